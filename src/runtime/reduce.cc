// SPDX-License-Identifier: Apache-2.0
#include "runtime/reduce.h"

#include <cstring>
#include <type_traits>

#include "device/work_cost.h"
#include "ir/task.h"
#include "kernels/float16.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

template <class T>
constexpr bool kIsFloat =
    std::is_same_v<T, float> || std::is_same_v<T, kernels::Half> || std::is_same_v<T, kernels::BFloat16>;

// What a T is computed in. 64 bits hold every sum; the conversion back to T wraps.
template <class T>
auto Widen(T value) {
  if constexpr (kIsFloat<T>) {
    return static_cast<float>(value);
  } else {
    return static_cast<int64_t>(value);
  }
}

template <ReduceKind kind, class Wide>
Wide Combine(Wide a, Wide b) {
  if constexpr (kind == ReduceKind::kSum) return a + b;
  if constexpr (kind == ReduceKind::kEqual) return a == b ? Wide{1} : Wide{0};
  if constexpr (std::is_floating_point_v<Wide>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  if constexpr (kind == ReduceKind::kMax) return a < b ? b : a;
  return b < a ? b : a;
}

template <class T, ReduceKind kind>
void Loop(T* dst, const T* src, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) dst[i] = T(Combine<kind>(Widen(dst[i]), Widen(src[i])));
}

template <class T>
void ByKind(void* dst, const void* src, uint64_t count, ReduceKind kind) {
  auto* to = static_cast<T*>(dst);
  const auto* from = static_cast<const T*>(src);
  switch (kind) {
    case ReduceKind::kSum: return Loop<T, ReduceKind::kSum>(to, from, count);
    case ReduceKind::kMax: return Loop<T, ReduceKind::kMax>(to, from, count);
    case ReduceKind::kMin: return Loop<T, ReduceKind::kMin>(to, from, count);
    case ReduceKind::kEqual: return Loop<T, ReduceKind::kEqual>(to, from, count);
  }
}

struct ReducePayload {
  void* dst;
  const void* src;
  uint64_t bytes;
  ReduceKind kind;
  ElementType type;
};

constexpr ir::TaskType kReduce = {
    .kind = ir::TaskKind::kReduce,
    .name = "MEMCPY_ASYNC",
    .run =
        [](device::RunContext& context, void* payload) {
          auto* p = static_cast<ReducePayload*>(payload);
          context.scheduler().ParallelFor(
              static_cast<int64_t>(p->bytes / ElementBytes(p->type)), device::GrainOf({.elements = 1}),
              [](void* arg, int64_t begin, int64_t end) {
                auto* q = static_cast<ReducePayload*>(arg);
                const auto offset = static_cast<uint64_t>(begin) * ElementBytes(q->type);
                Reduce(static_cast<char*>(q->dst) + offset, static_cast<const char*>(q->src) + offset,
                       static_cast<uint64_t>(end - begin), q->kind, q->type);
              },
              p);
          return ir::RunResult::kDone;
        },
    .never_waits = true,
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          const auto* p = static_cast<const ReducePayload*>(payload);
          sink.Take({p->src, p->bytes, ir::Access::kRead});
          sink.Take({p->dst, p->bytes, ir::Access::kReadWrite});
        }};

}  // namespace

void Reduce(void* dst, const void* src, uint64_t count, ReduceKind kind, ElementType type) {
  switch (type) {
    case ElementType::kFloat32: return ByKind<float>(dst, src, count, kind);
    case ElementType::kFloat16: return ByKind<kernels::Half>(dst, src, count, kind);
    case ElementType::kBFloat16: return ByKind<kernels::BFloat16>(dst, src, count, kind);
    case ElementType::kInt8: return ByKind<int8_t>(dst, src, count, kind);
    case ElementType::kInt16: return ByKind<int16_t>(dst, src, count, kind);
    case ElementType::kInt32: return ByKind<int32_t>(dst, src, count, kind);
  }
}

Status SubmitReduce(Stream& stream, void* dst, const void* src, uint64_t bytes, ReduceKind kind, ElementType type) {
  ReducePayload payload{dst, src, bytes, kind, type};
  return Submit(stream, ir::MakeTask(kReduce, payload));
}

}  // namespace reprise::runtime
