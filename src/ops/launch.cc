// SPDX-License-Identifier: Apache-2.0
#include "ops/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <new>

#include "base/env.h"
#include "device/scheduler.h"
#include "device/split.h"
#include "ir/task_info.h"
#include "kernels/copy.h"
#include "ops/picture_chain.h"
#include "runtime/device.h"
#include "runtime/submission.h"

namespace reprise::ops {
namespace {

ir::RunResult RunTask(device::RunContext& context, void* payload) {
  const auto& task = *static_cast<const LaunchTask*>(payload);
  task.launch->Run(context, task.workspace);
  return ir::RunResult::kDone;
}

void DestroyTask(void* payload) noexcept {
  const auto& task = *static_cast<const LaunchTask*>(payload);
  task.launch->Release();
  if (task.memory != nullptr) task.memory->Release();
}

void DescribeTensors(const LaunchTask& task, ir::TaskInfo& info) {
  const Launch& launch = *task.launch;
  const auto begin = reinterpret_cast<uintptr_t>(task.workspace);
  Launch::KernelMemory memory;
  memory.workspace = static_cast<char*>(task.workspace) + (-begin & (kScratchAlignment - 1));
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    const int32_t slot = launch.uses[i].slot;
    if (slot < 0 && slot != OperandUse::kTemporary) continue;  // scalars of the launch itself
    if (launch.uses[i].is_prepared) continue;                  // in an order that nobody else knows
    const kernels::TensorRef ref = launch.Ref(i, memory);
    ir::TensorInfo& tensor = info.tensors.emplace_back();
    tensor.data = ref.data;
    tensor.dtype = static_cast<int32_t>(ref.dtype);
    tensor.sizes.assign(ref.sizes, ref.sizes + ref.rank);
    tensor.strides.assign(ref.strides, ref.strides + ref.rank);
    tensor.is_write = launch.uses[i].is_write;
    tensor.is_read = !tensor.is_write;
  }
  info.call = launch.call;
  info.call_begins = launch.call_begins;
  info.call_ends = launch.call_ends;
}

void DescribeTask(const void* payload, ir::TaskInfo& info) {
  const Launch& launch = *static_cast<const LaunchTask*>(payload)->launch;
  const bool is_cube = launch.op.computation.engine == Engine::kCube;
  info.name = launch.op.short_name();
  if (launch.site != nullptr) {
    if (!launch.site->name.empty()) info.name = launch.site->name;
    if (!info.names_only || info.wants_shapes) info.shapes = launch.site->shapes;
    if (!info.names_only) {
      for (const Frame& frame : launch.site->stack) {
        info.stack.push_back(fmt::format("{}:{} ({})", frame.filename, frame.line, frame.name));
      }
    }
  }
  info.type_name = is_cube ? "KERNEL_AICORE" : "KERNEL_AIVEC";
  const int64_t blocks = launch.grain == 0 ? 1 : (launch.units + launch.grain - 1) / launch.grain;
  info.num_blocks = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, runtime::HardwareCores(is_cube ? 0 : 1)));
  if (info.names_only) return;
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    if (launch.uses[i].slot < 0) continue;
    const kernels::TensorRef& ref = launch.refs[i];
    info.args.push_back(reinterpret_cast<uint64_t>(ref.data));
  }
  info.args_bytes = static_cast<uint32_t>(info.args.size() * sizeof(uint64_t));
  if (info.wants_tensors) DescribeTensors(*static_cast<const LaunchTask*>(payload), info);
}

void OperandsOfTask(const void* payload, ir::OperandSink& sink) {
  const Launch& launch = *static_cast<const LaunchTask*>(payload)->launch;
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    if (launch.uses[i].slot < 0) continue;
    sink.Take({launch.refs[i].data, ExtentBytes(launch.refs[i]),
               launch.uses[i].is_write ? ir::Access::kWrite : ir::Access::kRead});
  }
}

std::string_view NameOfTask(const void* payload) noexcept {
  const Launch& launch = *static_cast<const LaunchTask*>(payload)->launch;
  if (launch.site != nullptr && !launch.site->name.empty()) return launch.site->name;
  return launch.op.short_name();
}

bool RowsOfTask(const void* payload, ir::Elementwise& rows) {
  return static_cast<const LaunchTask*>(payload)->launch->Rows(rows);
}

bool FormulaOfTask(const void* payload, ir::ElementFormula& formula) {
  const Launch& launch = *static_cast<const LaunchTask*>(payload)->launch;
  if (launch.find_rows != nullptr) return false;
  formula.operation = launch.op.name;
  formula.compute = static_cast<int32_t>(launch.compute);
  if (launch.element.row.function != nullptr) {
    formula.routine = reinterpret_cast<const void*>(launch.element.row.function);
    formula.numbers = std::as_bytes(std::span(launch.element.numbers));
    formula.number_type = static_cast<int32_t>(launch.element.row.math);
  }
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    const kernels::TensorRef& ref = launch.refs[i];
    const auto rank = static_cast<size_t>(ref.rank);
    formula.operands.push_back(
        {ref.data, static_cast<int32_t>(ref.dtype), launch.uses[i].is_write, {ref.sizes, rank}, {ref.strides, rank}});
  }
  return true;
}

constexpr ir::TaskType kVectorType = {.kind = ir::TaskKind::kKernel,
                                      .name = "KERNEL_AIVEC",
                                      .run = RunTask,
                                      .destroy = DestroyTask,
                                      .describe = DescribeTask,
                                      .never_waits = true,
                                      .elementwise = RowsOfTask,
                                      .formula = FormulaOfTask,
                                      .keeping = &kLaunchKeeping,
                                      .chain = MakePictureChain,
                                      .operands = OperandsOfTask,
                                      .name_of = NameOfTask};
constexpr ir::TaskType kCubeType = {.kind = ir::TaskKind::kKernel,
                                    .name = "KERNEL_AICORE",
                                    .run = RunTask,
                                    .destroy = DestroyTask,
                                    .describe = DescribeTask,
                                    .never_waits = true,
                                    .keeping = &kLaunchKeeping,
                                    .chain = MakePictureChain,
                                    .operands = OperandsOfTask,
                                    .name_of = NameOfTask};

// Items of a launch. Each part has a share of its own, the same one in launches that follow one another (see
// Scheduler::ParallelFor), and takes from it, and then from others', call by call: half of what is left each time, so
// that parts end together although one of them came late or shares its core. What a kernel does once in a call is paid
// for by `least` items.
class ItemsLeft {
 public:
  ItemsLeft() {}  // NOLINT(modernize-use-equals-default): that would clear all shares
  ItemsLeft(int64_t items, int64_t least, int64_t parts)
      : least_(least), parts_(parts), count_(std::min(parts, kMostShares)), divisor_(2 * (parts / count_)) {
    for (int64_t i = 0; i < count_; ++i) {
      shares_[i].first = items * i / count_;
      shares_[i].end = items * (i + 1) / count_;
    }
  }

  // Empty where there is nothing left.
  kernels::Range Take(int64_t part) {
    const int64_t own = part * count_ / parts_;
    for (int64_t i = 0; i < count_; ++i) {
      Share& share = shares_[(own + i) % count_];
      const std::atomic_ref<int64_t> next(share.first);
      int64_t from = next.load(std::memory_order_relaxed);
      while (from < share.end) {
        const int64_t to = std::min(share.end, from + std::max(least_, (share.end - from) / divisor_));
        if (next.compare_exchange_weak(from, to, std::memory_order_relaxed)) return {from, to};
      }
    }
    return {0, 0};
  }

 private:
  static constexpr int64_t kMostShares = 16;
  struct alignas(64) Share {
    int64_t first, end;  // the first one that is left
  };
  Share shares_[kMostShares];  // those behind count_ are not touched: short launches have no time for it
  int64_t least_ = 1, parts_ = 1, count_ = 0, divisor_ = 2;
};

struct SplitRun {
  const Launch& launch;
  Launch::KernelMemory memory;  // scratch: the first block, or null
  ItemsLeft left;               // where parts take it
};

// Calls that a part makes are no smaller than what so many for each would be.
constexpr int64_t kMostCallsOfPart = 6;
constexpr int64_t kMostCheapCallsOfPart = 16;

// The row function of any element-wise launch.
void RunKernel(const void* args, int64_t begin, int64_t end) {
  const Launch& launch = **static_cast<const Launch* const*>(args);
  launch.kernel(launch, {begin, end}, {});
}

// Work items with scratch on this thread's stack. Not inlined: the stack must be given back to a loop that replays.
[[gnu::noinline]] void RunOnStack(const Launch& launch, kernels::Range range, Launch::KernelMemory memory) {
  memory.scratch = __builtin_alloca_with_align(launch.scratch_bytes, kScratchAlignment * CHAR_BIT);
  launch.kernel(launch, range, memory);
}

void RunPart(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.scratch_bytes != 0 && memory.scratch == nullptr) return RunOnStack(launch, range, memory);
  launch.kernel(launch, range, memory);
}

// The scratch block of a part, unless each call has it on its stack.
Launch::KernelMemory MemoryOfPart(const Launch& launch, const Launch::KernelMemory& memory, int64_t part) {
  Launch::KernelMemory own = memory;
  if (own.scratch != nullptr) {
    own.scratch = static_cast<char*>(memory.scratch) + static_cast<uint64_t>(part) * launch.scratch_bytes;
  }
  return own;
}

// A launch that goes in steps: each call is a member of the team.
void RunTeam(device::RunContext& context, const Launch& launch, const Launch::KernelMemory& memory) {
  struct TeamRun {
    const Launch& launch;
    const Launch::KernelMemory& memory;
    kernels::StepTeam team;
  };
  TeamRun run{launch, memory, {launch.parts(), launch.units}};
  const auto body = [](void* arg, int64_t first, int64_t last) {
    auto& [work, all, team] = *static_cast<TeamRun*>(arg);
    for (int64_t member = first; member < last; ++member) {
      Launch::KernelMemory own = MemoryOfPart(work, all, member);
      own.team = &team;
      team.Join();
      RunPart(work, {member, member + 1}, own);
    }
  };
  context.scheduler().ParallelFor(launch.parts(), 1, body, &run);
}

// Launches with more operands keep to their kernel.
constexpr size_t kMostRowOperands = 4;

// How an operand lies under the elements of a result that is contiguous.
enum class Walk : uint8_t {
  kElements,   // element i of it under element i of the result
  kSingle,     // one element for all
  kBroadcast,  // row-major, but for dims in which it repeats
  kOther,
};

Walk WalkOf(const kernels::TensorRef& ref) {
  if (ref.rank == 0) return Walk::kElements;
  bool repeats = false;
  int64_t next = 1;
  for (int d = ref.rank - 1; d >= 0; --d) {
    if (ref.sizes[d] == 1) continue;
    if (ref.strides[d] == 0) {
      repeats = true;
    } else if (ref.strides[d] == next) {
      next *= ref.sizes[d];
    } else {
      return Walk::kOther;
    }
  }
  return !repeats ? Walk::kElements : next == 1 ? Walk::kSingle : Walk::kBroadcast;
}

}  // namespace

Launch::Launch(const Launch& other)
    : op(other.op),
      kernel(other.kernel),
      compute(other.compute),
      refs(other.refs),
      uses(other.uses),
      scalars(other.scalars),
      ints(other.ints),
      state(other.state),
      site(other.site),
      call(other.call),
      call_begins(other.call_begins),
      call_ends(other.call_ends),
      goes_in_steps(other.goes_in_steps),
      units(other.units),
      grain(other.grain),
      scratch_bytes(other.scratch_bytes),
      scratch_offset(other.scratch_offset),
      has_cheap_calls(other.has_cheap_calls),
      find_range_call(other.find_range_call),
      element(other.element),
      find_rows(other.find_rows),
      find_prepared(other.find_prepared),
      join(other.join),
      fuse(other.fuse),
      tell_packing(other.tell_packing),
      packed_operand(other.packed_operand) {
  Seal();
}

void Launch::Seal() {
  for (size_t i = 0; i < refs.size(); ++i) {
    if (uses[i].slot < 0 && uses[i].slot > OperandUse::kTemporary)
      refs[i].data = scalars[static_cast<size_t>(-1 - uses[i].slot)].bytes;
  }
  const int64_t threads = goes_in_steps ? std::min(Parallelism(), kernels::StepTeam::kMostMembers) : Parallelism();
  parts_ = grain == 0 ? 1 : std::clamp<int64_t>(units / grain, 1, threads);
  Bind();
}

void Launch::Adopt(const PreparedForm& form, void* data) {
  refs[form.operand].data = data;
  uses[form.operand].is_prepared = true;
  form.adopt(*this);
  Seal();
}

void Launch::Bind() {
  row_ = {};
  broadcast_ = 0;
  if (find_rows != nullptr && units > 0 && find_rows(*this, broadcast_)) {
    row_ = {RunKernel, units, {reinterpret_cast<uint64_t>(this)}};
    return;
  }
  if (find_range_call == nullptr || units <= 0 || refs.size() > kMostRowOperands ||
      WalkOf(refs[0]) != Walk::kElements) {
    return;
  }
  // Executors that move their tensors do not look whether these overlap then.
  const auto begin_of = [](const kernels::TensorRef& ref) { return reinterpret_cast<uintptr_t>(ref.data); };
  const uintptr_t begin = begin_of(refs[0]);
  const uintptr_t end = begin + ExtentBytes(refs[0]);
  uint64_t told = uses[0].slot < 0 ? 0 : 1;  // operands, see OperandsOfTask
  uint64_t broadcast = 0;
  for (size_t i = 1; i < refs.size(); ++i) {
    const Walk walk = WalkOf(refs[i]);
    if (walk == Walk::kOther) return;
    const uintptr_t other = begin_of(refs[i]);
    const uintptr_t other_end =
        other +
        (walk == Walk::kSingle ? static_cast<uintptr_t>(kernels::ItemSize(refs[i].dtype)) : ExtentBytes(refs[i]));
    const bool is_same = other == begin && other_end == end && walk == Walk::kElements;
    if (!is_same && other < end && begin < other_end) return;
    if (uses[i].slot < 0) continue;
    if (walk == Walk::kBroadcast) broadcast |= uint64_t{1} << told;
    ++told;
  }
  broadcast_ = broadcast;
  BindRows();
}

void Launch::Rebind() {
  if (find_rows != nullptr) {
    Bind();
  } else if (row_.function != nullptr) {
    BindRows();
  }
}

void Launch::BindRows() {
  row_ = {RunKernel, units, {reinterpret_cast<uint64_t>(this)}};
  ir::RangeCall better = row_;
  if (broadcast_ == 0 && find_range_call(*this, better)) row_ = better;
}

bool Launch::Rows(ir::Elementwise& rows) const {
  if (row_.function == nullptr) return false;
  rows.call = row_;
  rows.grain = grain;
  rows.broadcast = broadcast_;
  return true;
}

void Launch::Run(device::RunContext& context, void* workspace) const {
  if (row_.function != nullptr) {  // the same calls as a plan makes
    if (parts_ == 1) {
      row_.function(row_.args, 0, row_.count);
      return;
    }
    // In units of ranges, of which the last one has what is left over: no part may be short.
    const auto body = [](void* arg, int64_t first, int64_t last) {
      const ir::RangeCall& row = static_cast<const Launch*>(arg)->row_;
      row.function(row.args, first * ir::kRangeUnit,
                   last == row.count / ir::kRangeUnit ? row.count : last * ir::kRangeUnit);
    };
    const int64_t row_units = row_.count / ir::kRangeUnit;
    context.scheduler().ParallelFor(row_units, device::EvenGrain(row_units, grain / ir::kRangeUnit, Parallelism()),
                                    body, const_cast<Launch*>(this), row_.count / grain);
    return;
  }
  const auto begin = reinterpret_cast<uintptr_t>(workspace);
  KernelMemory all;
  all.workspace = static_cast<char*>(workspace) + (-begin & (kScratchAlignment - 1));
  if (scratch_bytes != 0 && !has_scratch_on_stack()) all.scratch = all.workspace + scratch_offset;
  if (parts_ == 1) return RunPart(*this, {0, units}, all);
  if (goes_in_steps) return RunTeam(context, *this, all);
  if (scratch_bytes == 0) {
    SplitRun run{*this, all, {}};
    const auto body = [](void* arg, int64_t first, int64_t last) {
      const SplitRun& split = *static_cast<const SplitRun*>(arg);
      split.launch.kernel(split.launch, {first, last}, split.memory);
    };
    context.scheduler().ParallelFor(units, device::EvenGrain(units, grain, Parallelism()), body, &run, units / grain);
    return;
  }
  // Each part has a block of scratch. No call is for less than half of what is worth a thread.
  const int64_t most_calls = parts_ * (has_cheap_calls ? kMostCheapCallsOfPart : kMostCallsOfPart);
  SplitRun run{*this, all, {units, std::max({int64_t{1}, grain / 2, (units + most_calls - 1) / most_calls}), parts_}};
  const auto body = [](void* arg, int64_t first, int64_t last) {
    auto& [launch, memory, left] = *static_cast<SplitRun*>(arg);
    for (int64_t part = first; part < last; ++part) {
      const KernelMemory own = MemoryOfPart(launch, memory, part);
      for (;;) {
        const kernels::Range some = left.Take(part);
        if (some.begin == some.end) break;
        RunPart(launch, some, own);
      }
    }
  };
  context.scheduler().ParallelFor(parts_, 1, body, &run, units / grain);
}

int64_t Launch::Parallelism() {
  static const int64_t threads = [] {
    const int64_t configured = EnvInt(EnvVar::kWorkers, 0, 1024);
    return configured > 0 ? configured : int64_t{device::UsableCores()};
  }();
  return threads;
}

void* TaskMemory::Allocate(uint64_t bytes) {
  blocks_.reserve(blocks_.size() + 1);  // so that the new block cannot get lost
  void* block = ::operator new (std::max<uint64_t>(1, bytes), std::align_val_t{kScratchAlignment});
  blocks_.emplace_back(block);
  return block;
}

void TaskMemory::Free::operator()(void* block) const noexcept {
  ::operator delete (block, std::align_val_t{kScratchAlignment});
}

const ir::TaskType& TaskTypeOf(const Launch& launch) {
  return launch.op.computation.engine == Engine::kCube ? kCubeType : kVectorType;
}

Status SubmitLaunches(runtime::Stream& stream, std::span<Launch* const> launches, void* workspace,
                      const TaskMemory* memory) {
  for (const Launch* launch : launches) {
    launch->Retain();
    if (memory != nullptr) memory->Retain();
    LaunchTask payload{launch, workspace, memory};
    ir::Task task = ir::MakeTask(TaskTypeOf(*launch), payload);
    task.is_short = launch->is_short();
    REPRISE_RETURN_IF_ERROR(runtime::SubmitKernel(stream, task));
  }
  return {};
}

uint64_t ExtentBytes(const kernels::TensorRef& ref) {
  int64_t last = 0;
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] == 0) return 0;
    last += (ref.sizes[d] - 1) * ref.strides[d];
  }
  return static_cast<uint64_t>((last + 1) * kernels::ItemSize(ref.dtype));
}

void Coalesce(Refs& refs) {
  const kernels::TensorRef shape = refs[0];
  // All operands get the dims of the first one but those of size 1.
  for (kernels::TensorRef& ref : refs) {
    const kernels::TensorRef from = ref;
    ref.rank = 0;
    for (int d = 0; d < shape.rank; ++d) {
      if (shape.sizes[d] == 1) continue;
      const int own = d - shape.rank + from.rank;
      ref.sizes[ref.rank] = shape.sizes[d];
      ref.strides[ref.rank++] = own < 0 || from.sizes[own] == 1 ? 0 : from.strides[own];
    }
  }
  // Joins dim d + 1 into dim d where it continues it for every operand.
  for (int d = refs[0].rank - 2; d >= 0; --d) {
    const bool joins = std::all_of(refs.begin(), refs.end(), [d](const kernels::TensorRef& ref) {
      return ref.strides[d] == ref.sizes[d + 1] * ref.strides[d + 1];
    });
    if (!joins) continue;
    for (kernels::TensorRef& ref : refs) {
      ref.sizes[d] *= ref.sizes[d + 1];
      ref.strides[d] = ref.strides[d + 1];
      for (int e = d + 1; e + 1 < ref.rank; ++e) {
        ref.sizes[e] = ref.sizes[e + 1];
        ref.strides[e] = ref.strides[e + 1];
      }
      --ref.rank;
    }
  }
}

void RunCopy(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Copy(launch.Ref(1, memory), launch.Ref(0, memory), range);
}

}  // namespace reprise::ops
