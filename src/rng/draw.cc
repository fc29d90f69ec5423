// SPDX-License-Identifier: Apache-2.0
#include "rng/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "device/memory.h"
#include "ir/task.h"
#include "ir/task_info.h"
#include "runtime/device.h"
#include "runtime/submission.h"
#include "runtime/tasks.h"

namespace reprise::rng {
namespace {

using kernels::Distribution;
using kernels::DrawCall;

// Elements that are worth a thread; whole steps of the vector kernels.
constexpr int64_t kGrain = 16 << 10;

struct DrawPayload {
  DrawCall call;
  PhiloxArguments philox;
  bool has_arguments;  // false until the draw has taken over those of the one that it replaces
};

// Pieces of one draw on several threads.
struct Pieces {
  const DrawCall& call;
  uint64_t seed;
  uint64_t position;
  std::atomic<int64_t> bad{INT64_MAX};  // the first element that cannot be drawn
};

void DrawPiece(void* arg, int64_t begin, int64_t end) {
  auto& pieces = *static_cast<Pieces*>(arg);
  const int64_t bad = kernels::Draw(pieces.call, pieces.seed, pieces.position, {begin, end});
  if (bad < 0) return;
  int64_t first = pieces.bad.load(std::memory_order_relaxed);
  while (bad < first && !pieces.bad.compare_exchange_weak(first, bad, std::memory_order_relaxed)) {
  }
}

double ProbabilityAt(const DrawCall& call, int64_t i) {
  return kernels::DispatchFloating(call.in_type, [&]<class T>(kernels::TypeTag<T>) {
    return static_cast<double>(static_cast<kernels::MathType<T>>(static_cast<const T*>(call.in)[i]));
  });
}

Status NotReplaced() {
  return Error(kRuntimeCannot, "a draw that was meant to replace another one ran without having done so")
      .Culprit("the end of the update of a task group while another thread submitted to it")
      .Hint("submit the replacements of a task group from the thread that opened the update");
}

ir::RunResult RunDraw(device::RunContext& context, void* payload) {
  const auto& draw = *static_cast<const DrawPayload*>(payload);
  if (!draw.has_arguments) [[unlikely]] {
    context.Fail(NotReplaced());
    return ir::RunResult::kDone;
  }
  Pieces pieces{draw.call, draw.philox.Seed(), draw.philox.Offset() / GeneratorState::kUnit};
  if (draw.call.distribution == Distribution::kPermutation || draw.call.count <= kGrain) {
    DrawPiece(&pieces, 0, draw.call.count);
  } else {
    context.scheduler().ParallelFor(draw.call.count, kGrain, DrawPiece, &pieces);
  }
  if (const int64_t bad = pieces.bad.load(std::memory_order_relaxed); bad != INT64_MAX) [[unlikely]] {
    context.Fail(
        Error(kVectorCoreException, fmt::format("element {} of the probabilities is {}, must be between 0 and 1", bad,
                                                ProbabilityAt(draw.call, bad)))
            .Culprit(fmt::format("a Bernoulli draw of {} elements", draw.call.count))
            .Hint("look at what computes the probabilities"));
  }
  return ir::RunResult::kDone;
}

const char* TaskName(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform: return "RandomUniform";
    case Distribution::kNormal: return "RandomNormal";
    case Distribution::kLogNormal: return "RandomLogNormal";
    case Distribution::kExponential: return "RandomExponential";
    case Distribution::kCauchy: return "RandomCauchy";
    case Distribution::kGeometric: return "RandomGeometric";
    case Distribution::kBernoulli: return "RandomBernoulli";
    case Distribution::kBernoulliEach: return "RandomBernoulliTensor";
    case Distribution::kRandint: return "RandomInt";
    case Distribution::kDropout: return "Dropout";
    case Distribution::kPermutation: return "RandomPermutation";
  }
  return "Random";
}

// The memory of a draw.
struct Operand {
  const char* name;
  const void* address;
  uint64_t bytes;
  uint64_t item_bytes;
  bool is_write;
};

struct Operands {
  Operand list[3];
  size_t count = 0;

  explicit Operands(const DrawCall& call) {
    const auto add = [&](const char* name, const void* address, kernels::DType type, bool is_write) {
      const auto item = static_cast<uint64_t>(kernels::ItemSize(type));
      list[count++] = {name, address, static_cast<uint64_t>(call.count) * item, item, is_write};
    };
    add("out", call.out, call.type, true);
    if (call.distribution == Distribution::kDropout) {
      add("in", call.in, call.type, false);
      if (call.mask != nullptr) add("mask", call.mask, kernels::DType::kBool, true);
    } else if (call.distribution == Distribution::kBernoulliEach) {
      add("probabilities", call.in, call.in_type, false);
    }
  }
  const Operand* begin() const { return list; }
  const Operand* end() const { return list + count; }
};

void DescribeDraw(const void* payload, ir::TaskInfo& info) {
  const auto& draw = *static_cast<const DrawPayload*>(payload);
  info.name = TaskName(draw.call.distribution);
  const int64_t blocks = draw.call.distribution == Distribution::kPermutation ? 1 : (draw.call.count - 1) / kGrain + 1;
  info.num_blocks = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, runtime::HardwareCores(1)));
  if (info.names_only) return;
  for (const Operand& operand : Operands(draw.call)) {
    info.args.push_back(reinterpret_cast<uint64_t>(operand.address));
  }
  info.args_bytes = static_cast<uint32_t>(info.args.size() * sizeof(uint64_t));
}

// A captured draw reads seed and offset from cells of the generator.
void TellCells(const PhiloxArguments& philox, ir::OperandSink& sink) {
  if (!philox.captured()) return;
  sink.Take({philox.seed_cell, sizeof(int64_t), ir::Access::kRead});
  sink.Take({philox.offset_cell, sizeof(int64_t), ir::Access::kRead});
}

void OperandsOfDraw(const void* payload, ir::OperandSink& sink) {
  const auto& draw = *static_cast<const DrawPayload*>(payload);
  for (const Operand& operand : Operands(draw.call)) {
    sink.Take({operand.address, operand.bytes, operand.is_write ? ir::Access::kWrite : ir::Access::kRead});
  }
  TellCells(draw.philox, sink);
}

void InheritDraw(const void* replaced, void* payload) {
  auto& draw = *static_cast<DrawPayload*>(payload);
  draw.philox = static_cast<const DrawPayload*>(replaced)->philox;
  draw.has_arguments = true;
}

constexpr ir::TaskType kDraw = {.kind = ir::TaskKind::kKernel,
                                .name = "KERNEL_AIVEC",
                                .run = RunDraw,
                                .describe = DescribeDraw,
                                .never_waits = true,
                                .inherit = InheritDraw,
                                .operands = OperandsOfDraw};

// ---- Operations ----

struct OperationPayload {
  Operation* operation;
  const std::vector<ir::Operand>* operands;  // owned; null where nobody has told them
  PhiloxArguments philox;
  bool has_arguments;  // as in DrawPayload
};

ir::RunResult RunRandomOperation(device::RunContext& context, void* payload) {
  const auto& random = *static_cast<const OperationPayload*>(payload);
  if (random.has_arguments) [[likely]] {
    runtime::RunOperation(context, *random.operation, random.philox.ForeignSeed());
  } else {
    context.Fail(NotReplaced());
  }
  return ir::RunResult::kDone;
}

void DestroyRandomOperation(void* payload) noexcept {
  delete static_cast<OperationPayload*>(payload)->operation;
  delete static_cast<OperationPayload*>(payload)->operands;
}

void OperandsOfRandomOperation(const void* payload, ir::OperandSink& sink) {
  TellCells(static_cast<const OperationPayload*>(payload)->philox, sink);
  runtime::TellAttached(static_cast<const OperationPayload*>(payload)->operands, sink);
}

constexpr ir::TaskType kRandomOperation = {.kind = ir::TaskKind::kClosure,
                                           .name = "KERNEL_AIVEC",
                                           .run = RunRandomOperation,
                                           .destroy = DestroyRandomOperation,
                                           .describe =
                                               [](const void* payload, ir::TaskInfo& info) {
                                                 const auto* p = static_cast<const OperationPayload*>(payload);
                                                 runtime::DescribeOperation(*p->operation, 1, p->operands, info);
                                               },
                                           .never_waits = true,
                                           .inherit =
                                               [](const void* replaced, void* payload) {
                                                 auto& random = *static_cast<OperationPayload*>(payload);
                                                 random.philox = static_cast<const OperationPayload*>(replaced)->philox;
                                                 random.has_arguments = true;
                                               },
                                           .operands = OperandsOfRandomOperation};

constexpr ir::TaskType kRandomHostOperation = {.kind = ir::TaskKind::kHostFunc,
                                               .name = "HOSTFUNC_CALLBACK",
                                               .run =
                                                   [](device::RunContext& context, void* payload) {
                                                     if (!context.on_worker()) return ir::RunResult::kNeedsWorker;
                                                     return RunRandomOperation(context, payload);
                                                   },
                                               .destroy = DestroyRandomOperation,
                                               .describe =
                                                   [](const void* payload, ir::TaskInfo& info) {
                                                     const auto* p = static_cast<const OperationPayload*>(payload);
                                                     runtime::DescribeOperation(*p->operation, 0, p->operands, info);
                                                   },
                                               .operands = OperandsOfRandomOperation};

// ---- Checks ----

Status CheckOperand(const Operand& operand, int64_t count) {
  if (operand.address == nullptr) {
    return Error(kInvalidValue, fmt::format("parameter {} is null", operand.name))
        .Culprit(fmt::format("parameter {}", operand.name))
        .Hint(fmt::format("pass device memory for {} elements of {} bytes", count, operand.item_bytes));
  }
  if (reinterpret_cast<uintptr_t>(operand.address) % operand.item_bytes != 0) {
    return Error(kInvalidValue, fmt::format("{} {} is not aligned to its elements of {} bytes", operand.name,
                                            fmt::ptr(operand.address), operand.item_bytes))
        .Culprit(fmt::format("parameter {}", operand.name))
        .Hint(fmt::format("pass an address that is a multiple of {}", operand.item_bytes));
  }
  if (!device::ChecksPointers()) return {};
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  auto range = memory.CheckRange(operand.address, operand.bytes, operand.name);
  if (!range.ok()) {
    return std::move(range)
        .status()
        .Culprit(fmt::format("parameter {}", operand.name))
        .Hint(fmt::format("allocate {} bytes for {} with aclrtMalloc", operand.bytes, operand.name));
  }
  if (range->kind != device::MemoryKind::kPageable) return {};
  return Error(kInvalidValue, fmt::format("{} {} is not device memory", operand.name, fmt::ptr(operand.address)))
      .Culprit(fmt::format("{} {}", fmt::ptr(operand.address), memory.Explain(operand.address)))
      .Hint(fmt::format("allocate {} with aclrtMalloc", operand.name));
}

// An operand may be another one, element for element; anything else that overlaps what is written is refused.
Status CheckOverlap(const Operand& written, const Operand& other) {
  const auto begin = reinterpret_cast<uintptr_t>(written.address);
  const auto other_begin = reinterpret_cast<uintptr_t>(other.address);
  if (begin >= other_begin + other.bytes || other_begin >= begin + written.bytes) return {};
  if (begin == other_begin && written.item_bytes == other.item_bytes && !other.is_write) return {};
  return Error(kInvalidValue,
               fmt::format("{} overlaps {}: {} bytes at {} and {} bytes at {}", written.name, other.name, written.bytes,
                           fmt::ptr(written.address), other.bytes, fmt::ptr(other.address)))
      .Culprit(fmt::format("parameters {} and {}", written.name, other.name))
      .Hint("pass memory of its own for each, or, where the elements have one size, the same address");
}

Status CheckCall(const DrawCall& call) {
  if (std::string why = kernels::WhyNot(call); !why.empty()) {
    return Error(kInvalidValue, std::move(why))
        .Culprit(fmt::format("a draw of {} {} elements", call.count, kernels::Name(call.type)))
        .Hint("pass parameters that the distribution and the element type take");
  }
  if (call.count > INT64_MAX / 8) {
    return Error(kInvalidValue, fmt::format("{} elements are more than any memory holds", call.count))
        .Culprit("parameter count")
        .Hint("pass the number of elements, not of bytes");
  }
  if (call.count == 0) return {};
  const Operands operands(call);
  for (const Operand& operand : operands) REPRISE_RETURN_IF_ERROR(CheckOperand(operand, call.count));
  for (const Operand& written : operands) {
    if (!written.is_write) continue;
    for (const Operand& other : operands) {
      if (&other != &written) REPRISE_RETURN_IF_ERROR(CheckOverlap(written, other));
    }
  }
  return {};
}

// Whether the stream is one that `generator` can draw on.
Status CheckStream(const runtime::Stream& stream, const Generator& generator) {
  if (const int device = generator.device(); device != stream.device().id()) {
    return Error(kInvalidValue, fmt::format("the generator belongs to device {}, {} to device {}", device,
                                            stream.Describe(), stream.device().id()))
        .Culprit("parameter generator")
        .Hint("draw with a generator of the stream's device");
  }
  if (stream.is_persistent()) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} stores its tasks for a model: a draw would make the same numbers in every "
                             "execution",
                             stream.Describe()))
        .Culprit(stream.Describe())
        .Hint("capture the draw, or use aclrtRandomNumAsync, whose counter lies in device memory");
  }
  return {};
}

}  // namespace

Status SubmitDraw(runtime::Stream& stream, Generator& generator, const kernels::DrawCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckCall(call));
  REPRISE_RETURN_IF_ERROR(CheckStream(stream, generator));
  if (call.count == 0) return {};
  DrawPayload payload{call, {}, true};
  if (stream.is_updating()) {
    payload.has_arguments = false;  // the update gives it those of the draw that it replaces
  } else {
    REPRISE_ASSIGN_OR_RETURN(payload.philox, generator.Take(kDrawIncrement, stream.handle()));
  }
  return runtime::Submit(stream, ir::MakeTask(kDraw, payload));
}

Status SubmitRandomOperation(runtime::Stream& stream, Generator& generator, std::unique_ptr<Operation> operation,
                             bool is_host_function, runtime::AttachedOperands operands) {
  REPRISE_RETURN_IF_ERROR(CheckStream(stream, generator));
  OperationPayload payload{operation.get(), operands.get(), {}, true};
  if (stream.is_updating()) {
    payload.has_arguments = false;  // the update gives it those of the one that it replaces
  } else {
    REPRISE_ASSIGN_OR_RETURN(payload.philox, generator.Take(kDrawIncrement, stream.handle()));
  }
  (void)operation.release();
  (void)operands.release();
  return runtime::Submit(stream, ir::MakeTask(is_host_function ? kRandomHostOperation : kRandomOperation, payload));
}

Status SubmitRandomClosure(runtime::Stream& stream, Generator& generator, const char* name, RandomClosure closure,
                           uint64_t increment) {
  REPRISE_RETURN_IF_ERROR(CheckStream(stream, generator));
  if (stream.is_updating()) {
    return Error(kTaskTypeNotSupported,
                 fmt::format("{} is updating a task group: a closure that draws cannot take the place of a "
                             "kernel, whose seed it would not have",
                             stream.Describe()))
        .Culprit(fmt::format("closure \"{}\"", name))
        .Hint("end the update with aclmdlRICaptureTaskUpdateEnd first, or draw with a draw");
  }
  REPRISE_ASSIGN_OR_RETURN(const PhiloxArguments philox, generator.Take(increment, stream.handle()));
  return runtime::SubmitClosure(stream, name, [philox, work = std::move(closure)](device::RunContext& context) {
    return work(context, philox.ForeignSeed());
  });
}

}  // namespace reprise::rng
