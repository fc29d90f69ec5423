// SPDX-License-Identifier: Apache-2.0
#include "runtime/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "device/inquiry.h"
#include "device/scheduler.h"
#include "device/split.h"
#include "device/work_cost.h"
#include "ir/task_info.h"
#include "runtime/park.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::Access;
using ir::OpaqueOperands;
using ir::OperandSink;
using ir::RunResult;
using ir::TaskInfo;
using ir::TaskKind;
using ir::TaskType;

constexpr const char* kCopyName = "MEMCPY_ASYNC";

// Copies of this size and more are split over idle workers.
constexpr uint64_t kParallelCopyFrom = 4u << 20;
constexpr int64_t kParallelCopyGrain = 1 << 20;

RunResult RunCopy(RunContext& context, void* payload) {
  auto* p = static_cast<CopyItem*>(payload);
  CopyBytes(context, p->dst, p->src, p->bytes);
  return RunResult::kDone;
}

constexpr TaskType kCopy = {.kind = TaskKind::kCopy,
                            .name = kCopyName,
                            .run = RunCopy,
                            .never_waits = true,
                            .operands = [](const void* payload, OperandSink& sink) {
                              const auto* p = static_cast<const CopyItem*>(payload);
                              sink.Take({p->src, p->bytes, Access::kRead});
                              sink.Take({p->dst, p->bytes, Access::kWrite});
                            }};

struct Copy2dPayload {
  void* dst;
  const void* src;
  uint64_t dst_pitch, src_pitch, width, height;
};

constexpr TaskType kCopy2d = {.kind = TaskKind::kCopy,
                              .name = kCopyName,
                              .run =
                                  [](RunContext&, void* payload) {
                                    auto* p = static_cast<Copy2dPayload*>(payload);
                                    Copy2d(p->dst, p->dst_pitch, p->src, p->src_pitch, p->width, p->height);
                                    return RunResult::kDone;
                                  },
                              .describe =
                                  [](const void* payload, TaskInfo& info) {
                                    const auto* p = static_cast<const Copy2dPayload*>(payload);
                                    info.rows = p->height;
                                    info.row_bytes = p->width;
                                  },
                              .never_waits = true,
                              .operands =
                                  [](const void* payload, OperandSink& sink) {
                                    const auto* p = static_cast<const Copy2dPayload*>(payload);
                                    sink.Take({p->src, p->src_pitch * (p->height - 1) + p->width, Access::kRead});
                                    sink.Take({p->dst, p->dst_pitch * (p->height - 1) + p->width, Access::kWrite});
                                  }};

struct CopyBatchPayload {
  std::vector<CopyItem>* items;
};

constexpr TaskType kCopyBatch = {
    .kind = TaskKind::kCopy,
    .name = kCopyName,
    .run =
        [](RunContext&, void* payload) {
          for (const CopyItem& item : *static_cast<CopyBatchPayload*>(payload)->items) {
            std::memmove(item.dst, item.src, item.bytes);
          }
          return RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<CopyBatchPayload*>(payload)->items; },
    .never_waits = true,
    .operands =
        [](const void* payload, OperandSink& sink) {
          for (const CopyItem& item : *static_cast<const CopyBatchPayload*>(payload)->items) {
            sink.Take({item.src, item.bytes, Access::kRead});
            sink.Take({item.dst, item.bytes, Access::kWrite});
          }
        }};

struct SnapshotPayload {
  void* dst;
  std::string* bytes;
};

constexpr TaskType kSnapshotCopy = {
    .kind = TaskKind::kCopy,
    .name = kCopyName,
    .run =
        [](RunContext&, void* payload) {
          auto* p = static_cast<SnapshotPayload*>(payload);
          std::memcpy(p->dst, p->bytes->data(), p->bytes->size());
          return RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<SnapshotPayload*>(payload)->bytes; },
    .never_waits = true,
    .operands =
        [](const void* payload, OperandSink& sink) {
          const auto* p = static_cast<const SnapshotPayload*>(payload);
          sink.Take({p->dst, p->bytes->size(), Access::kWrite});
        }};

struct FillPayload {
  void* dst;
  uint64_t count;
  uint32_t value;
};

constexpr TaskType kFill = {.kind = TaskKind::kFill,
                            .name = kCopyName,
                            .run =
                                [](RunContext&, void* payload) {
                                  auto* p = static_cast<FillPayload*>(payload);
                                  std::memset(p->dst, static_cast<int>(p->value), p->count);
                                  return RunResult::kDone;
                                },
                            .describe =
                                [](const void* payload, TaskInfo& info) {
                                  info.fill_bytes = 1;
                                  info.fill_value = static_cast<const FillPayload*>(payload)->value;
                                },
                            .never_waits = true,
                            .operands =
                                [](const void* payload, OperandSink& sink) {
                                  const auto* p = static_cast<const FillPayload*>(payload);
                                  sink.Take({p->dst, p->count, Access::kWrite});
                                }};

constexpr TaskType kFill32 = {.kind = TaskKind::kFill,
                              .name = kCopyName,
                              .run =
                                  [](RunContext&, void* payload) {
                                    auto* p = static_cast<FillPayload*>(payload);
                                    std::fill_n(static_cast<uint32_t*>(p->dst), p->count, p->value);
                                    return RunResult::kDone;
                                  },
                              .describe =
                                  [](const void* payload, TaskInfo& info) {
                                    info.fill_bytes = 4;
                                    info.fill_value = static_cast<const FillPayload*>(payload)->value;
                                  },
                              .never_waits = true,
                              .operands =
                                  [](const void* payload, OperandSink& sink) {
                                    const auto* p = static_cast<const FillPayload*>(payload);
                                    sink.Take({p->dst, p->count * 4, Access::kWrite});
                                  }};

struct ValuePayload {
  uint64_t* address;
  uint64_t value;
  ValueCompare compare;
  ParkClock clock;
};

bool Satisfied(const ValuePayload& p) {
  const uint64_t now = std::atomic_ref<uint64_t>(*p.address).load(std::memory_order_acquire);
  switch (p.compare) {
    case ValueCompare::kGreaterEqual: return static_cast<int64_t>(now - p.value) >= 0;
    case ValueCompare::kEqual: return now == p.value;
    case ValueCompare::kAnd: return (now & p.value) != 0;
    case ValueCompare::kNor: return ~(now | p.value) != 0;
  }
  return true;
}

void DescribeValue(const void* payload, TaskInfo& info) {
  const auto* p = static_cast<const ValuePayload*>(payload);
  info.address = reinterpret_cast<uint64_t>(p->address);
  info.value = p->value;
  info.compare = static_cast<uint32_t>(p->compare);
}

constexpr TaskType kValueWrite = {
    .kind = TaskKind::kValueWrite,
    .name = "MEM_WRITE_VALUE",
    .run =
        [](RunContext&, void* payload) {
          auto* p = static_cast<ValuePayload*>(payload);
          std::atomic_ref<uint64_t>(*p->address).store(p->value, std::memory_order_release);
          return RunResult::kDone;
        },
    .describe = DescribeValue,
    .operands =
        [](const void* payload, OperandSink& sink) {
          sink.Take({static_cast<const ValuePayload*>(payload)->address, 8, Access::kWrite});
        }};

constexpr TaskType kValueWait = {
    .kind = TaskKind::kValueWait,
    .name = "MEM_WAIT_VALUE",
    .run =
        [](RunContext& context, void* payload) {
          auto* p = static_cast<ValuePayload*>(payload);
          // A cell may be written by anything (the host, a kernel, a copy): nobody wakes us.
          if (!Satisfied(*p)) return Park(context, p->clock, 0, true, "value", 0);
          EndPark(context, p->clock);
          return RunResult::kDone;
        },
    .describe = DescribeValue,
    .operands =
        [](const void* payload, OperandSink& sink) {
          sink.Take({static_cast<const ValuePayload*>(payload)->address, 8, Access::kRead});
        }};

struct HostFuncPayload {
  void (*function)(void*);
  void* argument;
};

// One with attached operands begins as one without.
struct ToldHostFuncPayload {
  HostFuncPayload call;
  const std::vector<ir::Operand>* operands;  // owned
};

ir::RunResult RunHostFunc(RunContext& context, void* payload) {
  // Foreign code may wait, or take locks that the synchronising thread holds.
  if (!context.on_worker()) return RunResult::kNeedsWorker;
  auto* p = static_cast<HostFuncPayload*>(payload);
  const device::Activity activity(reinterpret_cast<const void*>(p->function), context.whole(), context.device_id,
                                  context.stream_id, context.task_id);
  p->function(p->argument);
  return RunResult::kDone;
}

constexpr TaskType kHostFunc = {
    .kind = TaskKind::kHostFunc, .name = "HOSTFUNC_CALLBACK", .run = RunHostFunc, .operands = OpaqueOperands};

constexpr TaskType kToldHostFunc = {
    .kind = TaskKind::kHostFunc,
    .name = "HOSTFUNC_CALLBACK",
    .run = RunHostFunc,
    .destroy = [](void* payload) noexcept { delete static_cast<ToldHostFuncPayload*>(payload)->operands; },
    .describe =
        [](const void* payload, TaskInfo& info) {
          if (!info.names_only) info.attached = *static_cast<const ToldHostFuncPayload*>(payload)->operands;
        },
    .operands =
        [](const void* payload, OperandSink& sink) {
          TellAttached(static_cast<const ToldHostFuncPayload*>(payload)->operands, sink);
        }};

struct ClosureState {
  std::string name;
  Closure closure;
  AttachedOperands operands;
};

struct ClosurePayload {
  ClosureState* state;
};

constexpr TaskType kClosure = {
    .kind = TaskKind::kClosure,
    .name = "KERNEL_AIVEC",
    .run =
        [](RunContext& context, void* payload) {
          if (!context.on_worker()) return RunResult::kNeedsWorker;
          ClosureState& state = *static_cast<ClosurePayload*>(payload)->state;
          try {
            Status status = state.closure(context);
            if (!status.ok()) context.Fail(std::move(status));
          } catch (const std::exception& error) {
            context.Fail(Error(kAicoreException, fmt::format("closure {} threw: {}", state.name, error.what()))
                             .Hint("look at what the closure computes there, and at the values it was given"));
          } catch (...) {
            context.Fail(
                Error(kAicoreException, fmt::format("closure {} threw something that is no std::exception", state.name))
                    .Hint("throw what derives from std::exception, so that the reason is known"));
          }
          return RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<ClosurePayload*>(payload)->state; },
    .describe =
        [](const void* payload, TaskInfo& info) {
          const ClosureState& state = *static_cast<const ClosurePayload*>(payload)->state;
          info.name = state.name;
          info.num_blocks = 1;
          if (!info.names_only && state.operands != nullptr) info.attached = *state.operands;
        },
    .operands =
        [](const void* payload, OperandSink& sink) {
          TellAttached(static_cast<const ClosurePayload*>(payload)->state->operands.get(), sink);
        }};

struct OperationPayload {
  Operation* operation;
  const std::vector<ir::Operand>* operands;  // owned; null where nobody has told them
};

ir::RunResult RunOperationTask(RunContext& context, void* payload) {
  RunOperation(context, *static_cast<OperationPayload*>(payload)->operation, 0);
  return RunResult::kDone;
}

void DestroyOperation(void* payload) noexcept {
  delete static_cast<OperationPayload*>(payload)->operation;
  delete static_cast<OperationPayload*>(payload)->operands;
}

void OperandsOfOperation(const void* payload, OperandSink& sink) {
  TellAttached(static_cast<const OperationPayload*>(payload)->operands, sink);
}

constexpr TaskType kOperation = {.kind = TaskKind::kClosure,
                                 .name = "KERNEL_AIVEC",
                                 .run = RunOperationTask,
                                 .destroy = DestroyOperation,
                                 .describe =
                                     [](const void* payload, TaskInfo& info) {
                                       const auto* p = static_cast<const OperationPayload*>(payload);
                                       DescribeOperation(*p->operation, 1, p->operands, info);
                                     },
                                 .never_waits = true,
                                 .operands = OperandsOfOperation};

constexpr TaskType kHostOperation = {.kind = TaskKind::kHostFunc,
                                     .name = "HOSTFUNC_CALLBACK",
                                     .run =
                                         [](RunContext& context, void* payload) {
                                           if (!context.on_worker()) return RunResult::kNeedsWorker;
                                           const device::Activity activity(nullptr, context.whole(), context.device_id,
                                                                           context.stream_id, context.task_id);
                                           return RunOperationTask(context, payload);
                                         },
                                     .destroy = DestroyOperation,
                                     .describe =
                                         [](const void* payload, TaskInfo& info) {
                                           const auto* p = static_cast<const OperationPayload*>(payload);
                                           DescribeOperation(*p->operation, 0, p->operands, info);
                                         },
                                     .operands = OperandsOfOperation};

// Foreign code describes itself: a task whose words are lost is better than a dump that is.
OperationInfo InfoOf(const Operation& operation) noexcept {
  try {
    return operation.Describe();
  } catch (...) {
    return {};
  }
}

Status OperationFailed(const Operation& operation, int code, const char* what, const std::string& culprit,
                       const std::string& hint) {
  const OperationInfo info = InfoOf(operation);
  const std::string name = info.name.empty() ? "without a name" : info.name;
  std::string where = fmt::format("operation {}", name);
  if (!info.stack.empty()) {
    const Frame& frame = info.stack.front();
    where = fmt::format("at {}:{} in {}", frame.filename, frame.line, frame.name);
  }
  if (!culprit.empty()) where += fmt::format("; {}", culprit);
  return Error(code, fmt::format("operation {} failed: {}", name, what))
      .Culprit(std::move(where))
      .Hint(hint.empty() ? "look at what the operation computes there, and at the values it was given" : hint);
}

}  // namespace

namespace {

// Of the operation that the thread runs.
thread_local RunContext* t_operation = nullptr;

class InOperation {
 public:
  explicit InOperation(RunContext* context) : before_(std::exchange(t_operation, context)) {}
  ~InOperation() { t_operation = before_; }
  InOperation(const InOperation&) = delete;
  InOperation& operator=(const InOperation&) = delete;

 private:
  RunContext* const before_;
};

struct SharedLoop {
  const std::function<void(int64_t, int64_t)>& body;
  std::atomic<bool> failed{false};
  std::exception_ptr error;
};

}  // namespace

void ShareLoop(int64_t count, int64_t item_bytes, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t grain = device::GrainOf({0, 0, std::max<int64_t>(1, item_bytes)});
  if (t_operation == nullptr || count < 2 * grain) return body(0, count);
  device::Scheduler& scheduler = t_operation->scheduler();
  SharedLoop loop{body, {}, {}};
  scheduler.ParallelFor(
      count, device::EvenGrain(count, grain, scheduler.workers()),
      [](void* arg, int64_t begin, int64_t end) {
        SharedLoop& all = *static_cast<SharedLoop*>(arg);
        if (all.failed.load(std::memory_order_relaxed)) return;
        const InOperation no_loops_in_loops(nullptr);
        try {
          all.body(begin, end);
        } catch (...) {
          if (!all.failed.exchange(true)) all.error = std::current_exception();
        }
      },
      &loop, count / grain);
  if (loop.error != nullptr) std::rethrow_exception(loop.error);
}

void RunOperation(RunContext& context, Operation& operation, uint64_t seed) noexcept {
  constexpr int kFailed = kAicoreException;
  const InOperation here(&context);
  try {
    operation.Run(seed);
  } catch (const Exception& error) {
    const bool is_listed = error.code() != 0 && FindErrorInfo(error.code()).code == error.code();
    context.Fail(OperationFailed(operation, is_listed ? error.code() : kFailed, error.cause().c_str(), error.culprit(),
                                 error.hint()));
  } catch (const std::bad_alloc&) {
    context.Fail(OperationFailed(operation, kOutOfDeviceMemory, "there was no memory for what it computes", "",
                                 "free memory of the process: the memory of this device is the host's"));
  } catch (const std::exception& error) {
    context.Fail(OperationFailed(operation, kFailed, error.what(), "", ""));
  } catch (...) {
    context.Fail(OperationFailed(operation, kFailed, "it threw something that is no std::exception", "",
                                 "throw what derives from std::exception, so that the reason is known"));
  }
}

void DescribeOperation(const Operation& operation, uint32_t num_blocks, const std::vector<ir::Operand>* operands,
                       TaskInfo& info) {
  OperationInfo said = InfoOf(operation);
  info.name = std::move(said.name);
  info.num_blocks = num_blocks;
  if (!info.names_only || info.wants_shapes) info.shapes = std::move(said.shapes);
  if (info.names_only) return;
  if (operands != nullptr) info.attached = *operands;
  for (const Frame& frame : said.stack) {
    info.stack.push_back(fmt::format("{}:{} ({})", frame.filename, frame.line, frame.name));
  }
}

void CopyBytes(RunContext& context, void* dst, const void* src, uint64_t bytes) {
  const auto* from = static_cast<const char*>(src);
  const auto* to = static_cast<const char*>(dst);
  if (bytes < kParallelCopyFrom || (from + bytes > to && to + bytes > from)) {
    std::memmove(dst, src, bytes);  // partial overlap is legal here
    return;
  }
  CopyItem item{dst, src, bytes};
  context.scheduler().ParallelFor(
      static_cast<int64_t>(bytes), kParallelCopyGrain,
      [](void* arg, int64_t begin, int64_t end) {
        auto* whole = static_cast<CopyItem*>(arg);
        std::memcpy(static_cast<char*>(whole->dst) + begin, static_cast<const char*>(whole->src) + begin,
                    static_cast<size_t>(end - begin));
      },
      &item);
}

void Copy2d(void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width, uint64_t height) {
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  for (uint64_t row = 0; row < height; ++row, to += dst_pitch, from += src_pitch) std::memmove(to, from, width);
}

Status SubmitCopy(Stream& stream, void* dst, const void* src, uint64_t bytes) {
  CopyItem payload{dst, src, bytes};
  return Submit(stream, ir::MakeTask(kCopy, payload));
}

Status SubmitCopy2d(Stream& stream, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width,
                    uint64_t height) {
  Copy2dPayload payload{dst, src, dst_pitch, src_pitch, width, height};
  return Submit(stream, ir::MakeTask(kCopy2d, payload));
}

Status SubmitCopyBatch(Stream& stream, std::span<const CopyItem> items) {
  CopyBatchPayload payload{new std::vector<CopyItem>(items.begin(), items.end())};
  return Submit(stream, ir::MakeTask(kCopyBatch, payload));
}

Status SubmitCopyOfSnapshot(Stream& stream, void* dst, const void* src, uint64_t bytes) {
  SnapshotPayload payload{dst, new std::string(static_cast<const char*>(src), bytes)};
  return Submit(stream, ir::MakeTask(kSnapshotCopy, payload));
}

Status SubmitFill(Stream& stream, void* dst, uint8_t value, uint64_t bytes) {
  FillPayload payload{dst, bytes, value};
  return Submit(stream, ir::MakeTask(kFill, payload));
}

Status SubmitFill32(Stream& stream, void* dst, uint32_t value, uint64_t count) {
  FillPayload payload{dst, count, value};
  return Submit(stream, ir::MakeTask(kFill32, payload));
}

Status WithValueWrite(void* address, uint64_t value, const std::function<Status(const ir::Task&)>& take) {
  ValuePayload payload{static_cast<uint64_t*>(address), value, ValueCompare::kEqual, {}};
  return take(ir::MakeTask(kValueWrite, payload));
}

Status WithValueWait(void* address, uint64_t value, ValueCompare compare,
                     const std::function<Status(const ir::Task&)>& take) {
  ValuePayload payload{static_cast<uint64_t*>(address), value, compare, {}};
  return take(ir::MakeTask(kValueWait, payload));
}

Status SubmitValueWrite(Stream& stream, void* address, uint64_t value) {
  return WithValueWrite(address, value, [&](const ir::Task& task) { return Submit(stream, task); });
}

Status SubmitValueWait(Stream& stream, void* address, uint64_t value, ValueCompare compare) {
  return WithValueWait(address, value, compare, [&](const ir::Task& task) { return Submit(stream, task); });
}

Status SubmitHostFunc(Stream& stream, void (*function)(void*), void* argument) {
  HostFuncPayload payload{function, argument};
  return Submit(stream, ir::MakeTask(kHostFunc, payload));
}

Status SubmitHostFunc(Stream& stream, void (*function)(void*), void* argument, AttachedOperands operands) {
  ToldHostFuncPayload payload{{function, argument}, operands.release()};
  return Submit(stream, ir::MakeTask(kToldHostFunc, payload));
}

Status SubmitOperation(Stream& stream, std::unique_ptr<Operation> operation, bool is_host_function,
                       AttachedOperands operands) {
  OperationPayload payload{operation.release(), operands.release()};
  return Submit(stream, ir::MakeTask(is_host_function ? kHostOperation : kOperation, payload));
}

Status SubmitClosure(Stream& stream, const char* name, Closure closure, AttachedOperands operands) {
  ClosurePayload payload{new ClosureState{name, std::move(closure), std::move(operands)}};
  return Submit(stream, ir::MakeTask(kClosure, payload));
}

Status QueueClosureNow(Stream& stream, const char* name, Closure closure) {
  ClosurePayload payload{new ClosureState{name, std::move(closure), nullptr}};
  return QueueNow(stream, ir::MakeTask(kClosure, payload));
}

}  // namespace reprise::runtime
