// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache.h"

#include <fmt/format.h>

#include <cstring>

#include "device/memory.h"
#include "ir/task.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

// Tells a filled descriptor from memory that holds anything else.
constexpr uint64_t kFilled = 0x72657072636d6f64;

struct CacheDescriptor {
  uint64_t begin;
  uint64_t bytes;
  uint64_t magic;
  uint64_t reserved[5];
};
static_assert(sizeof(CacheDescriptor) == kCacheDescriptorBytes);

struct CachePayload {
  const void* begin;  // of the range, or of the descriptor
  uint64_t bytes;
};

void TellOperands(const void* payload, ir::OperandSink& sink) {
  const auto* p = static_cast<const CachePayload*>(payload);
  if (p->bytes != 0) sink.Take({p->begin, p->bytes, ir::Access::kRead});
}

RunResult RunDescriptor(RunContext& context, void* payload) {
  const void* at = static_cast<CachePayload*>(payload)->begin;
  CacheDescriptor descriptor;
  std::memcpy(&descriptor, at, sizeof descriptor);
  if (descriptor.magic != kFilled) {
    context.Fail(Error(kDeviceMemoryError, fmt::format("the {} bytes at {} are no descriptor of a cache operation",
                                                       sizeof descriptor, fmt::ptr(at)))
                     .Culprit(fmt::format("parameter cmoDesc, which {}", device::MemoryRegistry::Get().Explain(at)))
                     .Hint("fill it with aclrtCmoSetDesc before the task runs, and let nothing else write there"));
  }
  return RunResult::kDone;
}

RunResult RunNothing(RunContext& /*context*/, void* /*payload*/) { return RunResult::kDone; }

constexpr ir::TaskType CacheType(ir::RunResult (*run)(RunContext&, void*)) {
  return {.kind = ir::TaskKind::kNop, .name = "CMO", .run = run, .never_waits = true, .operands = TellOperands};
}
constexpr ir::TaskType kOperation = CacheType(RunNothing);
constexpr ir::TaskType kByDescriptor = CacheType(RunDescriptor);

Status SubmitRange(Stream& stream, const ir::TaskType& type, const void* begin, uint64_t bytes) {
  CachePayload payload{begin, bytes};
  return Submit(stream, ir::MakeTask(type, payload));
}

}  // namespace

Status SubmitCacheOperation(Stream& stream, const void* begin, uint64_t bytes) {
  return SubmitRange(stream, kOperation, begin, bytes);
}

Status SubmitCacheBarrier(Stream& stream) { return SubmitRange(stream, kOperation, nullptr, 0); }

void WriteCacheDescriptor(void* descriptor, const void* begin, uint64_t bytes) {
  const CacheDescriptor filled{reinterpret_cast<uintptr_t>(begin), bytes, kFilled, {}};
  std::memcpy(descriptor, &filled, sizeof filled);
}

Status SubmitCacheOperationByDescriptor(Stream& stream, const void* descriptor) {
  return SubmitRange(stream, kByDescriptor, descriptor, kCacheDescriptorBytes);
}

}  // namespace reprise::runtime
