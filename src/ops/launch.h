// SPDX-License-Identifier: Apache-2.0
//
// Launch: one prepared kernel of an operator call, ready to run any number of times.
//
// Phase one fills a Launch, phase two submits it as one task (ir::TaskKind::kKernel), a graph runs it at every replay.
// From its first submission on it is immutable and shared by reference count: by the executor while that is repeatable,
// and by every task, queued or in a graph. To move an operand to another address the executor replaces the Launch by a
// changed copy (executor.h), so what was submitted before keeps its own addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "ir/task.h"
#include "ir/task_info.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"
#include "kernels/step_team.h"
#include "kernels/strided.h"
#include "ops/inline_vector.h"
#include "ops/op_schema.h"
#include "reprise/operation.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops {

/// The operands of a kernel; up to four, as most have, without an allocation.
using Refs = InlineVector<kernels::TensorRef, 4>;

/// Where the operand at the same place of Launch::refs comes from.
struct OperandUse {
  static constexpr int32_t kAbsent = INT32_MIN;         ///< an optional operand that was null; its ref has no data
  static constexpr int32_t kTemporary = INT32_MIN + 1;  ///< memory of the workspace; data counts from its begin

  int32_t slot = -1;  ///< Executor::slots; negative: scalars[-1 - slot] of the launch, or one of the above
  bool is_write = false;
  bool is_prepared = false;  ///< the memory holds a PreparedForm of the operand
};

class Launch;

/// An operand in the order in which the kernel reads it fastest. Whoever knows that the values stay as they are makes
/// the form once, and lets the launch read it instead: compiled graphs do for constants (compiler/prepare.h). Forms
/// depend on the processor and on nothing but the operand, so that launches which ask for the same one can share it.
struct PreparedForm {
  size_t operand = 0;  ///< Launch::refs
  uint64_t bytes = 0;  ///< of the form; 0: there is none, or it would not be faster
  /// Makes the form. `to` is aligned to 64.
  void (*write)(const kernels::TensorRef& from, void* to) = nullptr;
  /// Units and scratch of the launch, whose operand is marked, for the form. Needs no more workspace than before.
  void (*adopt)(Launch& launch) = nullptr;
  /// The launch gives the same bits with the form as without. Graphs that were captured read no others.
  bool keeps_bits = false;
};

/// Life cycle: made and filled by a lowering function, Seal, submitted; freed with the last reference.
/// Threads: immutable after Seal but for Executor::MoveTensor, which touches unshared ones only; the count is atomic.
class Launch {
 public:
  /// What a call of a kernel may use besides its operands.
  struct KernelMemory {
    void* scratch = nullptr;            ///< of this call alone, see OpCall::AddScratch
    char* workspace = nullptr;          ///< aligned; holds the temporaries of the operator
    kernels::StepTeam* team = nullptr;  ///< of launches with `goes_in_steps`; null: the call is the only one
  };

  /// Does work items [range.begin, range.end); calls for disjoint ranges may run at the same time, each with scratch of
  /// its own. The result does not depend on how the items are cut into ranges.
  using Kernel = void (*)(const Launch& launch, kernels::Range range, const KernelMemory& memory);

  /// A better function than `kernel` for a launch whose operands have rows (see Rows); false when there is none.
  using FindRangeCall = bool (*)(Launch& launch, ir::RangeCall& call);

  Launch(const OpSchema& schema, Kernel function) : op(schema), kernel(function) {}
  /// An unshared copy.
  Launch(const Launch& other);
  Launch& operator=(const Launch&) = delete;

  const OpSchema& op;
  const Kernel kernel;
  kernels::DType compute = kernels::DType::kUndefined;

  Refs refs;                         ///< outputs first
  InlineVector<OperandUse, 4> uses;  ///< one for each of refs
  InlineVector<kernels::Scalar, 2> scalars;
  InlineVector<int64_t, 4> ints;  ///< dims, masks and the like; meaning belongs to the kernel
  /// Whatever else the plan prepared, once, for every run: parameters, packed constants, primitives. Shared by copies
  /// of the launch, so it holds no address of an operand; const, or safe for runs at the same time.
  std::shared_ptr<const void> state;

  /// Where the call comes from, for dumps and errors; null: the operator is all that is known.
  std::shared_ptr<const OperationInfo> site;
  /// The call as the program made it, see ir::TaskInfo; null unless tensors are dumped.
  std::shared_ptr<const ir::OperatorInfo> call;
  bool call_begins = false;
  bool call_ends = false;

  /// Set for kernels that go through steps, each behind the one before, which threads do together: `units` are the
  /// parts of a step. The range of a call is the number of a member of the team (kernels/step_team.h), and each call
  /// returns when all steps are done.
  bool goes_in_steps = false;

  int64_t units = 0;            ///< work items; a launch without any is dropped
  int64_t grain = 0;            ///< fewest items that are worth a thread; 0: all on one
  uint64_t scratch_bytes = 0;   ///< for each concurrent call of the kernel; up to kMostStackBytes it is on its stack
  uint64_t scratch_offset = 0;  ///< in the workspace, of what is not
  /// What a call does beside its items is little: threads take few of them at a time, so that they end together.
  bool has_cheap_calls = false;

  /// Set for kernels whose items are the elements of refs, each computed from the same elements; refs are coalesced.
  FindRangeCall find_range_call = nullptr;
  kernels::ElementCall element;  ///< of element-wise functions, see LowerElementwise

  /// Set instead for kernels whose items are the elements of a contiguous refs[0], and which read other operands than
  /// Bind understands. Whether it is so at these addresses; bit i of `broadcast`: ir::Elementwise::broadcast.
  bool (*find_rows)(const Launch& launch, uint64_t& broadcast) = nullptr;

  /// Set for kernels that know a faster form of an operand.
  PreparedForm (*find_prepared)(const Launch& launch) = nullptr;
  /// Reads the form at `data` from here on. \pre unshared; form is what find_prepared gave
  void Adopt(const PreparedForm& form, void* data);

  /// Set for kernels of which several launches can be one, with the operands of all of them in their order: short ones
  /// cost more around the kernel than in it. Makes it of launches with the same function, none of which needs what
  /// another writes; they have one reference, too.
  Launch* (*join)(std::span<const Launch* const> launches) = nullptr;

  /// Set for kernels of which launches that follow one another can be one where each reads what the one before writes,
  /// and nobody else needs that: the one launch does not write it. Null where it would not be faster.
  Launch* (*fuse)(std::span<const Launch* const> launches) = nullptr;

  /// Set for a launch that does nothing but pack its second operand into the first one, a temporary: tells the numbers
  /// on which the packed form depends beside that operand.
  void (*tell_packing)(const Launch& launch, std::vector<int64_t>& key) = nullptr;
  /// Of the one launch of that call that reads the temporary: which operand it is. -1: none is.
  int8_t packed_operand = -1;

  static constexpr uint64_t kMostStackBytes = 128 << 10;
  bool has_scratch_on_stack() const { return scratch_bytes <= kMostStackBytes; }

  /// Far from worth a thread (device/work_cost.h).
  bool is_short() const { return grain != 0 && units <= grain / 2; }
  /// Number of ranges that may run at the same time and the number of scratch blocks; at least 1.
  int64_t parts() const { return parts_; }

  /// Lets scalar operands point to `scalars`, fixes the number of parts, binds.
  void Seal();
  /// Takes over the addresses in `refs`; to be called after they were changed.
  void Bind();
  /// As Bind, for addresses at which the operands overlap each other as they did before.
  void Rebind();

  /// What the launch declares to plans: all operands are contiguous, single elements or broadcast, and no two of them
  /// overlap without being the same. False when it is not so; then `kernel` does it.
  bool Rows(ir::Elementwise& rows) const;

  template <class T>
  const T& State() const {
    return *static_cast<const T*>(state.get());
  }
  /// Operand i where it is in this run; refs[i] itself unless it may be a temporary.
  kernels::TensorRef Ref(size_t i, const KernelMemory& memory) const {
    kernels::TensorRef ref = refs[i];
    if (uses[i].slot == OperandUse::kTemporary) ref.data = memory.workspace + reinterpret_cast<uintptr_t>(ref.data);
    return ref;
  }
  bool HasOperand(size_t i) const { return uses[i].slot != OperandUse::kAbsent; }
  /// Operand i as it was given; null where it is left out.
  const kernels::TensorRef* RefOrNull(size_t i) const { return HasOperand(i) ? &refs[i] : nullptr; }

  bool is_shared() const { return references_.load(std::memory_order_acquire) != 1; }
  void Retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() const {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  /// Runs all items on this thread and idle workers.
  void Run(device::RunContext& context, void* workspace) const;

  /// Threads that can work on one launch: the workers of a device.
  static int64_t Parallelism();

 private:
  ~Launch() = default;
  void BindRows();

  ir::RangeCall row_{};     // function: null when the launch has no rows
  uint64_t broadcast_ = 0;  // ir::Elementwise::broadcast
  int64_t parts_ = 1;
  mutable std::atomic<uint32_t> references_{1};
};

/// Memory that the tasks of one operator call own together: workspaces, intermediate results, constants. It lives as
/// long as the last of them: past the run of a queued task, as long as the model of a captured one.
///
/// Threads: Allocate belongs to the thread that plans the call; the count is atomic.
class TaskMemory {
 public:
  TaskMemory() = default;
  /// With one block.
  explicit TaskMemory(uint64_t bytes) { Allocate(bytes); }
  TaskMemory(const TaskMemory&) = delete;
  TaskMemory& operator=(const TaskMemory&) = delete;

  /// At least one byte, aligned to kScratchAlignment; throws std::bad_alloc.
  void* Allocate(uint64_t bytes);
  void* first() const { return blocks_.front().get(); }
  void Retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() const {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  struct Free {
    void operator()(void* block) const noexcept;
  };
  ~TaskMemory() = default;

  std::vector<std::unique_ptr<void, Free>> blocks_;
  mutable std::atomic<uint32_t> references_{1};
};

/// Lets the kernels of one call tell what it was.
template <class Launches>
void Tell(const Launches& launches, const std::shared_ptr<const ir::OperatorInfo>& call) {
  for (Launch* launch : launches) {
    launch->call = call;
    launch->call_begins = launch == *launches.begin();
    launch->call_ends = launch == *(launches.end() - 1);
  }
}

struct TaskMemoryRelease {
  void operator()(const TaskMemory* memory) const { memory->Release(); }
};

/// Which operand a form is made of: its bytes, and in the key what it looks like.
void TellOperand(const kernels::TensorRef& ref, ir::KeptOperand& kept);
/// Does what a launch that packs does (Launch::tell_packing), on this thread: `from` is its operand, which may lie
/// elsewhere than the launch says, `to` takes the ExtentBytes of refs[0].
void Pack(const Launch& packing, const kernels::TensorRef& from, void* to);
/// Lets a launch that reads a packed temporary (Launch::packed_operand) read it at `data`. \pre unshared
void TakePacked(Launch& launch, void* data);
/// How tasks of launches read operands that a graph keeps in other forms.
extern const ir::Keeping kLaunchKeeping;

/// Payload of a launch's task.
struct LaunchTask {
  const Launch* launch;      ///< one reference
  void* workspace;           ///< borrowed; aligned here, so any address will do
  const TaskMemory* memory;  ///< one reference; null: the caller owns all memory
};
/// The type of its tasks.
const ir::TaskType& TaskTypeOf(const Launch& launch);

/// The one way by which prepared launches enter a stream, however the operator was called: each becomes a task, in
/// their order, through the door for kernels. The tasks take references of their own. `workspace`: of all of them;
/// `memory`: what they own together, or null.
Status SubmitLaunches(runtime::Stream& stream, std::span<Launch* const> launches, void* workspace,
                      const TaskMemory* memory);

/// Alignment of scratch blocks; the workspace has this much to spare.
inline constexpr uint64_t kScratchAlignment = 64;

/// Bytes from the first element to the end of the last one; 0 without elements. Fits 64 bits for views that OpCall let
/// pass.
uint64_t ExtentBytes(const kernels::TensorRef& ref);

/// Rewrites the operands of an element-wise launch, outputs first, as views of one common shape with as few dims as
/// possible: size 1 vanishes, broadcast dims get stride 0, dims that all operands walk as one are joined.
void Coalesce(Refs& refs);

/// refs: out, source. Copies the elements of the range, and converts them where the types differ.
void RunCopy(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);

}  // namespace reprise::ops
