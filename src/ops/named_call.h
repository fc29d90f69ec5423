// SPDX-License-Identifier: Apache-2.0
//
// NamedCall: one call of an operator by its type while it is checked and planned; what the rows of the table see.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/task_info.h"
#include "kernels/small_float.h"
#include "opdef/infer.h"
#include "ops/executor.h"
#include "ops/launch.h"
#include "ops/op_attributes.h"
#include "ops/op_schema.h"
#include "ops/tensor.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops {

class NamedCall;

/// A row of the table: the steps that compute a graph operator (opdef/graph_op.h), which has all the rest.
struct NamedOp {
  std::string_view type;
  /// Types that the steps compute, among those that the operator has: of the first input that is no value, and of the
  /// others with the same types. Empty: all that the operator and the function have and kernels know.
  DTypeSet types;
  Status (*lower)(NamedCall& call) = nullptr;  ///< adds the steps
  int code = 0;                                ///< chooses among types that share functions
  /// For LowerAsFunction (named_ops/steps.h): the aclnn function that computes it, and what it is called with, in
  /// words. Empty: all inputs, then all outputs.
  std::string_view function = {};
  std::string_view arguments = {};
  /// The steps move elements whatever they are, or convert them: also kernels::SmallFloat, as tensors of uint8.
  bool moves_bits = false;
};

/// The row of a type, or null.
const NamedOp* FindNamedOp(std::string_view type);
std::span<const NamedOp> NamedOps();

/// Why a graph operator has no row, and what to do instead.
struct NamedReason {
  std::string_view why;  ///< behind its name: "needs several processes"
  std::string_view next;
};
/// Null where nothing is said.
const NamedReason* FindReason(std::string_view type);

/// Strided view of memory that the steps work on. Sizes and strides in elements.
struct StridedView {
  kernels::DType dtype = kernels::DType::kUndefined;
  Dims sizes;
  Dims strides;
  void* data = nullptr;
  int32_t small_type = -1;  ///< kernels::SmallFloat of `dtype` uint8, for steps whose function computes with such

  /// Row-major.
  static StridedView Of(kernels::DType dtype, std::span<const int64_t> sizes, void* data);
  /// This memory, row-major, with other sizes.
  StridedView As(std::span<const int64_t> new_sizes) const { return Of(dtype, new_sizes, data); }
  /// The last two dims exchanged.
  StridedView Transposed() const;
};

/// As dumps show it.
ir::TensorInfo TensorInfoOf(std::string name, const StridedView& view, bool is_read, bool is_write);

/// One input or output.
struct NamedTensor {
  std::string name;            ///< "x2", "x[1]"; for messages
  const char* parameter = "";  ///< "inputs", "outputs"
  int index = 0;               ///< there
  bool is_absent = false;  ///< an optional input left out; an output that nobody wants, which gets memory of the call
  bool has_constant = false;     ///< the value is known now
  int32_t dtype_number = -1;     ///< aclDataType
  int32_t format = -1;           ///< aclFormat
  std::vector<int64_t> dims;     ///< -1, -2 where not known; of outputs, Infer() sets them
  std::vector<int64_t> strides;  ///< in elements; empty: row-major. Only for operands whose step takes any
  bool is_bound = false;         ///< outputs: the shape depends on data, and `dims` are the largest
  std::vector<char> constant;
  std::span<const char> known;  ///< borrowed for the call: elements that will not change, however many
  bool on_host = false;         ///< buffer lies on the host
  bool has_buffer = false;
  void* data = nullptr;
  uint64_t buffer_bytes = 0;

  kernels::DType dtype() const {
    const auto type = static_cast<kernels::DType>(dtype_number);
    if (is_small()) return kernels::DType::kUInt8;
    return kernels::IsKnown(type) ? type : kernels::DType::kUndefined;
  }
  bool is_known() const;
  bool is_small() const { return kernels::IsSmallFloat(dtype_number); }
  int rank() const { return static_cast<int>(dims.size()); }
  StridedView view() const {
    StridedView out = StridedView::Of(dtype(), dims, data);
    if (!strides.empty()) out.strides.assign(strides.data(), strides.size());
    return out;
  }
  /// As view(), and tells small floats from bytes.
  StridedView numbers() const {
    StridedView out = view();
    if (is_small()) out.small_type = dtype_number;
    return out;
  }
};

/// 107000 unless the device reaches all bytes; REPRISE_CHECK_POINTERS=0 lets everything pass.
Status CheckDeviceMemory(std::string_view op, std::string_view name, const void* data, uint64_t bytes,
                         std::string culprit, std::string hint);

/// An argument of a step, in the order of Routine::params. Numbers become what the parameter is; null stands for an
/// optional parameter that is left out.
using StepArgument = std::variant<StridedView, std::vector<StridedView>, int64_t, bool, double, kernels::DType,
                                  kernels::Scalar, std::vector<int64_t>, std::vector<bool>, std::vector<float>,
                                  std::vector<kernels::Scalar>, std::string, std::nullptr_t>;

/// What a step computes: a computation with its parameters.
struct Routine {
  std::span<const Param> params;
  const Computation& computation;
  DTypeSet types = kAllTypes;  ///< of operands that have none of their own

  /// As the aclnn function of that name computes. \pre there is one.
  static Routine Of(std::string_view function);
};

/// Where the memory comes from that a call takes beside its operands: a compiler plans it.
class Arena {
 public:
  virtual ~Arena() = default;
  /// At least `bytes`, aligned to kScratchAlignment, for intermediate results and workspaces. Each block is of its own.
  virtual void* Allocate(uint64_t bytes) = 0;
  /// Memory with these bytes, which the call only reads; aligned as above.
  virtual void* Keep(std::span<const char> bytes) = 0;
};

/// Threads: belongs to the thread that makes the call.
class NamedCall {
 public:
  /// \param arena  borrowed; null: the tasks that Submit() queues own all memory together
  NamedCall(const NamedOp& row, const opdef::GraphOp& graph_op, Arena* arena = nullptr);
  ~NamedCall();
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;

  const NamedOp& op;
  /// What the row of the graph operator says of the call: operands, attributes, shapes; filled in by Infer().
  opdef::InferContext context;
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  /// How many of them belong to each operand of the row. Empty: they belong to the operands by their place.
  std::vector<size_t> input_counts;
  std::vector<size_t> output_counts;
  const Attributes* attributes = nullptr;
  /// Addresses are as the arena and the caller give them, and are not looked at before the launches run; the memory of
  /// constants has their values, where it is given.
  bool trusts_memory = false;
  /// For dumps: what the call reads and writes; empty: `inputs` and `outputs`.
  std::vector<ir::TensorInfo> told;

  // ---- The parts of a call, in this order ----

  /// Attributes against the row; names the operands; numbers and types and formats.
  Status Bind();
  /// The shapes and types of the outputs; needs the constants. `complete` says that unknown dims of inputs are an
  /// error, and else false in *inferred tells that they, or missing constants, kept the shapes from being known.
  Status Infer(bool complete, bool* inferred);
  /// Sizes and places of the buffers; copies constants. After Infer.
  Status CheckBuffers();
  /// All steps.
  Status Lower();
  /// Queues the launches. \pre the call has no arena.
  Status Submit(runtime::Stream& stream);

  // ---- What was planned; valid as long as the call, launches as long as somebody holds a reference ----

  /// One step: its launches, in their order, share a workspace.
  struct PlannedStep {
    size_t launches;  ///< so many of launches(), behind those of the step before
    void* workspace;  ///< of the arena; null where there is none
    uint64_t workspace_bytes;
  };
  std::span<Launch* const> launches() const { return launches_; }
  std::span<const PlannedStep> steps() const { return steps_; }
  /// An output whose shape the kernels find out. They write it to `found->outputs[entry]`.
  struct FoundOutput {
    size_t output;  ///< NamedCall::outputs
    std::shared_ptr<const FoundShapes> found;
    size_t entry;
  };
  std::span<const FoundOutput> found_outputs() const { return found_; }

  // ---- For the rows ----

  /// Also false where the row has no such operand; the others want names of the row.
  bool Has(std::string_view name) const;
  const NamedTensor& Input(std::string_view name) const { return inputs[SlotOf(input_slots_, name).first]; }
  std::span<const NamedTensor> List(std::string_view name) const;
  /// Outputs always have memory; Wants() says whether somebody looks at it.
  bool Wants(std::string_view name) const { return !Output(name).is_absent; }
  const NamedTensor& Output(std::string_view name) const { return outputs[SlotOf(output_slots_, name).first]; }
  std::span<const NamedTensor> OutputList(std::string_view name) const;
  /// An output that is an input written in place: its memory, into which the input was copied if it lies elsewhere.
  StatusOr<StridedView> InPlace(std::string_view name);
  StatusOr<std::vector<StridedView>> InPlaceList(std::string_view name);
  /// The first output.
  const NamedTensor& output() const { return outputs[0]; }
  StridedView OutputView() const { return outputs[0].view(); }
  const std::vector<int64_t>& shape() const { return outputs[0].dims; }

  /// The integers of a constant input.
  StatusOr<std::vector<int64_t>> Constant(const NamedTensor& input) const;
  /// The only element of a constant input.
  StatusOr<kernels::Scalar> ConstantScalar(std::string_view name) const;

  /// 100021, 100022: "<operator>: <tensor> <text>".
  Status WrongInput(const NamedTensor& tensor, std::string text, std::string hint = {}) const;
  Status WrongOutput(const NamedTensor& tensor, std::string text, std::string hint = {}) const;

  /// Adds the kernels of a routine.
  Status Step(const Routine& routine, std::span<const StepArgument> arguments);
  Status Step(const Routine& routine, std::initializer_list<StepArgument> arguments) {
    return Step(routine, std::span<const StepArgument>(arguments.begin(), arguments.size()));
  }
  /// An intermediate result of the call.
  StridedView Temporary(kernels::DType dtype, std::span<const int64_t> sizes);
  /// Numbers that the steps read.
  StridedView Numbers(kernels::DType dtype, std::span<const int64_t> sizes, const void* values);

 private:
  /// The tensors of an operand.
  struct Slot {
    std::string_view name;
    const opdef::Operand* operand;
    size_t first = 0;  // inputs or outputs
    size_t count = 0;
  };

  static const Slot& SlotOf(const std::vector<Slot>& slots, std::string_view name);
  Status NameInputs();
  Status NameOutputs();
  Status CheckTypes() const;
  Status CheckKnown(bool complete, bool* is_known) const;
  Status Describe();
  Status CheckResults();
  Status CheckResult(const opdef::Operand& operand, const opdef::InferResult& result, NamedTensor& out) const;
  Status CheckFormat(const NamedTensor& tensor, int code) const;
  /// Whether the steps write the type of an output.
  bool IsWritten(const NamedTensor& out) const {
    return out.is_small() ? op.moves_bits : out.dtype() != kernels::DType::kUndefined;
  }
  Status CheckBuffer(NamedTensor& tensor, bool is_input);
  Status CopyInput(const NamedTensor& input, const NamedTensor& output);
  void NoteFound(const Executor& executor);
  void TellTensors();
  void* Allocate(uint64_t bytes);
  void* Keep(std::span<const char> bytes);

  std::vector<Slot> input_slots_;
  std::vector<Slot> output_slots_;
  Arena* arena_;
  TaskMemory* memory_;             // null beside an arena
  std::vector<Launch*> launches_;  // one reference each
  std::vector<PlannedStep> steps_;
  std::vector<FoundOutput> found_;
};

/// Bytes of so many elements, or nothing when they do not fit. Sizes beside a 0 have to fit, too, so that products of
/// them never overflow.
std::optional<uint64_t> BytesOf(std::span<const int64_t> dims, uint64_t item_bytes);

}  // namespace reprise::ops
