// SPDX-License-Identifier: Apache-2.0
//
// Task: one device action, the only thing that a stream takes.
//
// A task is a type (a static table of functions) and a payload (bytes that the type understands). Everything that the
// runtime can do is one: a copy, a kernel with its argument block, an operator with tensors, an event record, or an
// opaque host closure that owns what it needs. Submission moves the payload either into a stream's queue, where it
// runs once, or into a graph, where it runs at every replay; the task does not know which.
//
// Payloads are relocated by memcpy and must survive that (no pointers into themselves). `run` may be called again:
// after it returned kParked, and once per replay in a graph.
#pragma once

#include <reprise/kernel.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/operand.h"

namespace reprise::device {
class RunContext;
class Runnable;
}  // namespace reprise::device

namespace reprise::ir {

struct Chain;  // tasks that run in another way together: chain.h
struct ChainTask;
struct ReusedBlock;
struct TaskInfo;  // what dumps and messages show of a task: task_info.h

enum class TaskKind : uint8_t {
  kKernel,  // AI Core, vector or mix kernel: may be in a task group, has public parameters
  kAicpuKernel,
  kCopy,
  kFill,
  kReduce,
  kRandom,
  kHostFunc,
  kCallback,
  kEventRecord,
  kEventWait,
  kEventReset,
  kExternalRecord,
  kExternalWait,
  kValueWrite,
  kValueWait,
  kNop,
  kGraph,         // replay of a graph as one task of a stream
  kClosure,       // opaque host work that runs like a kernel
  kCondition,     // runs one of several sub-graphs
  kStreamActive,  // the following three only inside built models
  kStreamSwitch,
  kLabelSwitch,
  kLabelSet,
  kEndGraph,
  kNotifyRecord,
  kNotifyWait,
  kMark,        // a point in time for timelines
  kCollective,  // an operator of a communicator: waits for other ranks, and takes numbers (series.h)
};

enum class RunResult : uint8_t {
  kDone,
  kParked,       // waits for something that will wake the stream; run is then called again
  kNeedsWorker,  // must not run on a thread of the user; run is called again on a worker
};

/// A task that is one call of a kernel and nothing else, for plans that make the call themselves.
struct DirectCall {
  RepriseKernelFn function;
  const void* args;  ///< as long as the payload lives
  const char* name;
  uint32_t args_bytes;
};

/// What tasks of a graph need for as long as the graph may run, such as the code of kernels. A graph holds each of them
/// once. Tasks in a queue hold none of them: they run soon, and whoever ends an anchor leaves a last task behind them.
///
/// Threads: thread-safe.
class Anchor {
 public:
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) End();
  }

 protected:
  ~Anchor() = default;
  /// The last reference is gone.
  virtual void End() noexcept = 0;

 private:
  std::atomic<uint32_t> references_{1};
};

/// One call of an element-wise computation: function(args, begin, end) computes the elements [begin, end).
struct RangeCall {
  void (*function)(const void* args, int64_t begin, int64_t end);
  int64_t count;     ///< of elements in all; at least 1
  uint64_t args[5];  ///< copied with the call; what they point to lives as long as the payload
};

/// Ranges of an element-wise computation begin at multiples of this many elements and have no fewer, but for one that
/// is all there is: so each element goes through the same code (vector body or tail) however the work is split.
inline constexpr int64_t kRangeUnit = 256;

/// What an element-wise task declares: element i of what it writes depends on elements i of what it reads, on whatever
/// elements of operands that it names as broadcast, and on nothing else; any split by the rule of kRangeUnit gives the
/// same bits, in any order, also at the same time; it cannot fail. TaskType::operands tells all memory that it touches:
/// an operand is `call.count` elements back to back, one element that is read for all, or broadcast. Two operands of a
/// task may be one and the same range, but for those that are broadcast; they never overlap in part.
struct Elementwise {
  RangeCall call;
  int64_t grain;           ///< fewest elements that are worth a thread
  uint64_t broadcast = 0;  ///< bit i: the i-th operand that TaskType::operands tells, which is only read, is broadcast
};

/// What an element-wise task computes, for those who make one function of several tasks (exec/block_generator.h).
struct ElementFormula {
  /// Element i of what is written, in row-major order of `sizes`, depends on the elements that the same walk comes to.
  /// A stride of 0 stands for one element that is read for all along that dim.
  struct Operand {
    void* data = nullptr;
    int32_t dtype = -1;  ///< aclDataType
    bool is_written = false;
    std::span<const int64_t> sizes;
    std::span<const int64_t> strides;  ///< in elements
  };
  std::string_view operation;          ///< the operator, "aclnnAdd", "Mul"
  const void* routine = nullptr;       ///< tasks that have the same one compute the same function of their numbers
  int32_t compute = -1;                ///< aclDataType in which it is computed; -1: that of its operands
  std::span<const std::byte> numbers;  ///< alpha, slope, bounds: 16 bytes each, of type number_type
  int32_t number_type = -1;
  std::vector<Operand> operands;  ///< what is written first
};

/// What a task reads of memory whose values may stay, and could read faster if it were kept in another form; see
/// TaskType::keeping.
struct KeptOperand {
  enum class Role : uint8_t {
    kReads,  ///< reads the operand, and could read its form instead
    kMakes,  ///< does nothing but write the form of the operand into a temporary
    kTakes,  ///< reads the temporary of the kMakes before it in its lane, and could read the form instead
  };
  Role role = Role::kReads;
  const void* data = nullptr;  ///< of the operand; null for kTakes
  uint64_t bytes = 0;          ///< of the operand, from its first byte to its last
  uint64_t form_bytes = 0;
  const void* temporary = nullptr;  ///< of kMakes and kTakes; nobody else reads it
  std::vector<int64_t> key;         ///< forms of one operand with equal keys are the same
};

/// How tasks of a type read kept operands, with the bits that they have without.
struct Keeping {
  uint32_t payload_bytes;
  /// Fills `kept`; false when there is nothing that would be worth it.
  bool (*find)(const void* payload, KeptOperand& kept);
  /// Makes the form, for kReads and kMakes; `to` is aligned to 64.
  void (*write)(device::RunContext& context, const void* payload, void* to);
  /// Makes at `adopted` the payload of a task of the same type that reads the form, for kReads and kTakes.
  void (*adopt)(const void* payload, void* form, void* adopted);
};

/// Static description of a sort of task.
struct TaskType {
  TaskKind kind;
  const char* name;  ///< "Task Type" of dumps
  /// Null for tasks that only order others inside a graph.
  RunResult (*run)(device::RunContext& context, void* payload);
  /// Releases what the payload owns; null when it owns nothing. Called once, whether or not the task ran.
  void (*destroy)(void* payload) noexcept = nullptr;
  /// The task is parked and will not run again: forget `runnable` as a waiter. Null when it never parks.
  void (*cancel)(void* payload, device::Runnable* runnable) noexcept = nullptr;
  void (*describe)(const void* payload, TaskInfo& info) = nullptr;
  /// Fills `call` when the task is a single call; null when it never is. Calling is then as good as `run`.
  bool (*direct)(const void* payload, DirectCall& call) = nullptr;
  /// The call that `direct` described has returned `code`, an error.
  void (*direct_failed)(device::RunContext& context, const void* payload, int32_t code) = nullptr;
  /// `run` always returns kDone, on any thread, so that a plan may move the task to another lane.
  bool never_waits = false;
  /// What the task needs while a graph holds it; null when nothing.
  Anchor* (*anchor)(const void* payload) = nullptr;
  /// Fills `rows` when the task is element-wise; null when it never is. Calling is then as good as `run`. Declared,
  /// never guessed.
  bool (*elementwise)(const void* payload, Elementwise& rows) = nullptr;
  /// Tells what an element-wise task computes; what it points to lives as long as the payload. Null: nobody can say.
  bool (*formula)(const void* payload, ElementFormula& formula) = nullptr;
  /// `payload` is about to take the place of `replaced` in a task group: takes over what belongs to that place, not to
  /// the call. Only tasks of the same type are replaced then. Null when there is nothing of that sort.
  void (*inherit)(const void* replaced, void* payload) = nullptr;
  /// For tasks that read operands faster in a form that somebody keeps while their values stay; null when none does.
  const Keeping* keeping = nullptr;
  /// For tasks that may become parts of chains: makes one of the tasks of a graph of one lane, all of them, in order.
  /// `reused` counts these tasks.
  Chain (*chain)(std::span<const ChainTask> tasks, std::span<const ReusedBlock> reused) = nullptr;
  /// Tells the memory that the task reads and writes, without allocating; NoOperands when it touches none,
  /// OpaqueOperands when only its code knows. Has no default: a type that says neither does not compile.
  TellOperands operands;
  /// What it computes, for handlers of signals: allocates nothing, takes no locks. Null where `direct` tells the name.
  std::string_view (*name_of)(const void* payload) noexcept = nullptr;
};

/// A task on its way to a stream: borrowed bytes. Whoever takes it owns the payload from then on, also on failure.
struct Task {
  const TaskType* type;
  void* payload;
  uint32_t payload_bytes;
  /// A run takes less time than handing the task to another thread, and needs nobody's lock: the thread that submits it
  /// may run it.
  bool is_short = false;

  void Destroy() const noexcept {
    if (type->destroy != nullptr) type->destroy(payload);
  }
};

template <class Payload>
Task MakeTask(const TaskType& type, Payload& payload) {
  static_assert(alignof(Payload) <= 16, "queues and arenas align payloads to 16 bytes");
  return {&type, &payload, sizeof(Payload)};
}

}  // namespace reprise::ir
