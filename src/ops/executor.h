// SPDX-License-Identifier: Apache-2.0
//
// Executor: a planned operator call, between phase one and phase two; what stands behind aclOpExecutor*.
//
//     Prepare ──► one-shot ──Execute (also a failing one)──► gone
//                    │ SetRepeatable                ▲
//                    ▼                              │ Destroy
//                 repeatable ──Execute──► repeatable┘   MoveTensor between two Execute calls
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/handle_table.h"
#include "base/status.h"
#include "ops/argument.h"
#include "ops/inline_vector.h"
#include "ops/launch.h"
#include "ops/op_schema.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops {

/// A tensor argument as phase one saw it.
struct TensorSlot {
  const void* handle = nullptr;  ///< null: the argument was null
  uintptr_t base = 0;            ///< address of the storage
  uint64_t offset_bytes = 0;     ///< from there to the first element
  uint64_t extent_bytes = 0;     ///< from the first element to the end of the last
  int64_t count = 0;             ///< elements
  kernels::DType dtype = kernels::DType::kUndefined;
  uint16_t param = 0;    ///< OpSchema::params
  int32_t element = -1;  ///< of a list; -1: no list
};

/// The slots of one tensor or list parameter.
struct ParamSlots {
  uint16_t param;
  uint32_t first;
  uint32_t count;
};

/// The shapes of outputs that only a run of the kernels tells: how many elements differ from 0, and the like. A kernel
/// writes the sizes; phase two waits for it and then gives them to the tensor objects.
struct FoundShapes {
  struct Output {
    int32_t slot = -1;
    bool is_packed = false;  ///< the result lies back to back, else it keeps the strides of the output
    int rank = 0;
    int64_t sizes[kernels::kMaxRank] = {};
  };
  // Launch::state is shared and const; this one belongs to a single run, as such executors are not repeatable.
  mutable InlineVector<Output, 3> outputs;
};

/// Threads: thread-compatible.
class Executor {
 public:
  explicit Executor(const OpSchema& schema) : op(schema) {}
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const OpSchema& op;
  InlineVector<TensorSlot, 4> slots;
  InlineVector<ParamSlots, 4> params;  ///< tensor and list parameters, in order
  InlineVector<Launch*, 2> launches;   ///< one reference each
  /// Up to this much memory of an operator is its own: nobody can reuse that before its tasks are done.
  static constexpr uint64_t kMostOwnBytes = 64 << 10;
  uint64_t workspace_bytes = 0;  ///< of the caller
  uint64_t own_bytes = 0;        ///< instead; each execution has a block of its own, see Submit
  bool is_repeatable = false;
  bool only_tells_size = false;               ///< phase two refuses it
  std::shared_ptr<FoundShapes> found_shapes;  ///< null for most: shapes are known in phase one

  /// Queues the launches. `workspace`: of the caller, or null if own_bytes are to be allocated here.
  /// Errors: those of the runtime; throws std::bad_alloc before anything is queued
  Status Submit(runtime::Stream& stream, void* workspace) const;
  /// What dumps of graphs show of the call, unless somebody has said where it comes from.
  void NoteShapes() const;
  /// Moves a slot to another storage address; launches that were submitted keep theirs.
  void MoveSlot(size_t slot, uintptr_t base);
  /// Calls with more tensors, null ones included, are not moved at once.
  static constexpr size_t kMostMoved = 12;
  /// Whether MoveAll can be asked: nothing in the plan but the addresses belongs to this one call.
  bool can_move_all() const;
  /// Moves all tensors at once: data[i] is the first element of the i-th slot that is not null. False, with nothing
  /// moved, where phase one might plan or say something else: tensors that share memory lie to each other otherwise
  /// than before, others do now, or one is aligned otherwise. Afterwards no launch is shared. Throws std::bad_alloc,
  /// with nothing moved. \pre can_move_all(), and own data begin at the base of each slot
  bool MoveAll(std::span<void* const> data);
  /// 161001 for a tensor with elements and no address; 361001 unless CheckRange takes all of them.
  Status CheckMemory() const;
  /// 361001 unless the bytes lie in one range that the runtime knows; `what` names them. REPRISE_CHECK_POINTERS=0
  /// lets everything pass.
  Status CheckRange(const void* pointer, uint64_t bytes, std::string_view what) const;
  /// For found_shapes: 161002 when the object of an output is gone.
  Status CheckOutputObjects() const;
  /// Gives the sizes in found_shapes to the objects.
  Status SetOutputShapes() const;
  /// "other", "tensors[2]".
  std::string NameOf(const TensorSlot& slot) const;
};

HandleTable<Executor, HandleKind::kExecutor>& Executors();

/// Phase one. Checks the arguments and plans the kernels; touches no device.
///
/// \param args  one for each parameter of the operator, in order
/// \param [out] workspace_bytes, executor  0 and null on failure
/// \param only_tells_size  the workspace is large enough whatever lengths a later call has; lengths may be missing, and
///                         the executor cannot run
///
/// Threads:  thread-safe
/// Errors:   161001 for null, 161002 for an argument that does not fit, 561101 when an executor cannot be made
Status Prepare(OpId id, std::span<const Argument> args, uint64_t* workspace_bytes, void** executor,
               bool only_tells_size = false);

/// Phase two. Submits the planned kernels to a stream; consumes an executor that is not repeatable, also on failure.
///
/// \param stream  handle; null: the default stream of the current context
///
/// Threads:  thread-safe
/// Capture:  recorded as kernels; refused (361001) for an operator whose output shapes a run tells, which also waits
/// for
///           the stream
/// Errors:   561103 for a null executor, 561102 for one that is used up; 161002 for too small a workspace or the
/// executor
///           of another operator; 361001 for memory that the runtime does not know or a refusal of the runtime
Status Execute(OpId id, void* workspace, uint64_t workspace_bytes, const void* executor, const void* stream);

/// Lets Execute keep the executor. 561000 for an operator whose output shapes a run tells.
Status SetRepeatable(const void* executor);
Status DestroyExecutor(const void* executor);

/// Which tensors an index counts.
enum class TensorRange : uint8_t { kInputs, kOutputs, kInputsThenOutputs };

/// Moves a tensor of a repeatable executor to another storage address; takes effect with the next Execute.
///
/// \param index    position among the tensor and list parameters of the range
/// \param element  position in the list; -1 where the parameter is a tensor
/// \param object   handle of the tensor or list given in phase one
Status MoveTensor(const void* executor, TensorRange range, uint64_t index, int64_t element, const void* object,
                  void* address);

}  // namespace reprise::ops
