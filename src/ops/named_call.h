// SPDX-License-Identifier: Apache-2.0
//
// NamedCall: one call of an operator by its type while it is checked and planned; what the rows of the table see.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/task_info.h"
#include "ops/launch.h"
#include "ops/op_attributes.h"
#include "ops/op_schema.h"
#include "ops/tensor.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops {

class NamedCall;

/// How the types of a call hang together, beyond those that the row lists.
enum class NamedTypes : uint8_t {
  kSame,         ///< all inputs that are no constants, and the output, have one type
  kOutputByRow,  ///< so do the inputs; the row checks the output
  kFree,         ///< the row checks
};

/// A row of the table. Texts as in the prototypes of the graph engine: inputs "x1, x2, bias?, axes#, x[]" (optional,
/// constant, any number), attributes "alpha:Float!" (must be set) with the kinds Bool, Int, Float, Type, Ints.
struct NamedOp {
  std::string_view type;
  std::string_view inputs;
  std::string_view output;
  std::string_view attributes;
  DTypeSet types;
  NamedTypes rule = NamedTypes::kSame;
  Status (*infer)(NamedCall& call) = nullptr;  ///< sets NamedCall::shape
  Status (*plan)(NamedCall& call) = nullptr;   ///< adds the steps
  int code = 0;                                ///< chooses among types that share functions
};

/// The row of a type, or null.
const NamedOp* FindNamedOp(std::string_view type);
std::span<const NamedOp> NamedOps();

/// Strided view of memory that the steps work on. Sizes and strides in elements.
struct View {
  kernels::DType dtype = kernels::DType::kUndefined;
  Dims sizes;
  Dims strides;
  void* data = nullptr;

  /// Row-major.
  static View Of(kernels::DType dtype, std::span<const int64_t> sizes, void* data);
  /// This memory, row-major, with other sizes.
  View As(std::span<const int64_t> new_sizes) const { return Of(dtype, new_sizes, data); }
  /// The last two dims exchanged.
  View Transposed() const;
};

/// As dumps show it.
ir::TensorInfo TensorInfoOf(std::string name, const View& view, bool is_read, bool is_write);

/// One input or output.
struct NamedTensor {
  std::string name;            ///< "x2", "x[1]"; for messages
  const char* parameter = "";  ///< "inputs", "outputs"
  int index = 0;               ///< there
  bool is_absent = false;      ///< an optional input left out
  bool has_constant = false;   ///< the value is known now
  int32_t dtype_number = -1;   ///< aclDataType
  int32_t format = -1;         ///< aclFormat
  std::vector<int64_t> dims;   ///< -1, -2 where not known
  std::vector<char> constant;
  bool on_host = false;  ///< buffer lies on the host
  bool has_buffer = false;
  void* data = nullptr;
  uint64_t buffer_bytes = 0;

  kernels::DType dtype() const {
    const auto type = static_cast<kernels::DType>(dtype_number);
    return kernels::IsKnown(type) ? type : kernels::DType::kUndefined;
  }
  bool is_known() const;
  int rank() const { return static_cast<int>(dims.size()); }
  View view() const { return View::Of(dtype(), dims, data); }
};

/// 107000 unless the device reaches all bytes; REPRISE_CHECK_POINTERS=0 lets everything pass.
Status CheckDeviceMemory(std::string_view op, std::string_view name, const void* data, uint64_t bytes,
                         std::string culprit, std::string hint);

/// An argument of a step, in the order of Routine::params.
using StepArgument =
    std::variant<View, std::vector<View>, int64_t, bool, kernels::DType, kernels::Scalar, std::vector<int64_t>>;

/// What a step computes: a computation with its parameters.
struct Routine {
  std::span<const Param> params;
  const Computation& computation;
};

/// Threads: belongs to the thread that makes the call.
class NamedCall {
 public:
  explicit NamedCall(const NamedOp& row);
  ~NamedCall();
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;

  const NamedOp& op;
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  const Attributes* attributes = nullptr;
  /// For dumps: what the call reads and writes; empty: `inputs` and `outputs`.
  std::vector<ir::TensorInfo> told;

  /// Set by NamedOp::infer.
  std::vector<int64_t> shape;
  kernels::DType result_type = kernels::DType::kUndefined;  ///< of an output whose type is undefined

  // ---- The parts of a call, in this order ----

  /// Attributes against the row; names the inputs; numbers and types and formats.
  Status Bind();
  /// The shape of the output; needs the constants. `complete` says that unknown dims of inputs are an error, and else
  /// false in *inferred tells that they, or missing constants, kept the shape from being known.
  Status Infer(bool complete, bool* inferred);
  /// Sizes and places of the buffers; copies constants. After Infer.
  Status CheckBuffers();
  /// All steps.
  Status Plan();
  Status Submit(runtime::Stream& stream);

  // ---- For the rows ----

  const NamedTensor& Input(std::string_view name) const { return inputs[First(name)]; }
  bool Has(std::string_view name) const;
  std::span<const NamedTensor> List(std::string_view name) const;
  const NamedTensor& output() const { return outputs[0]; }
  View OutputView() const { return View::Of(outputs[0].dtype(), shape, outputs[0].data); }

  bool Bool(std::string_view name, bool otherwise) const;
  int64_t Int(std::string_view name, int64_t otherwise) const;
  double Real(std::string_view name, double otherwise) const;
  std::vector<int64_t> Ints(std::string_view name, const std::vector<int64_t>& otherwise) const;
  bool HasAttribute(std::string_view name) const { return FindAttribute(name) != nullptr; }
  /// The integers of a constant input.
  StatusOr<std::vector<int64_t>> Constant(std::string_view name) const;
  StatusOr<int64_t> ConstantInt(std::string_view name) const;

  /// 100021, 100022, 100023: "<operator>: <tensor> <text>".
  Status WrongInput(const NamedTensor& tensor, std::string text, std::string hint = {}) const;
  Status WrongInputs(std::string text, std::string hint = {}) const;
  Status WrongOutput(std::string text, std::string hint = {}) const;
  Status WrongAttribute(std::string_view name, std::string text, std::string hint = {}) const;
  /// `dim` counted from the front; `what` names where it came from. Rank 0 has dim 0.
  StatusOr<int64_t> WrapDim(std::string_view what, int64_t dim, int rank) const;
  StatusOr<std::vector<int64_t>> WrapDims(std::string_view what, std::span<const int64_t> dims, int rank) const;

  /// Adds the kernels of a routine.
  Status Step(const Routine& routine, std::span<const StepArgument> arguments);
  Status Step(const Routine& routine, std::initializer_list<StepArgument> arguments) {
    return Step(routine, std::span<const StepArgument>(arguments.begin(), arguments.size()));
  }
  /// An intermediate result of the call.
  View Temporary(kernels::DType dtype, std::span<const int64_t> sizes);

 private:
  struct PlannedLaunch {
    Launch* launch;  // one reference
    void* workspace;
  };
  struct Slot;
  struct AttributeRule;

  size_t First(std::string_view name) const;
  const AttributeValue* FindAttribute(std::string_view name) const;
  Status CheckAttributes() const;
  Status NameInputs();
  Status CheckTypes() const;
  Status CheckFormat(const NamedTensor& tensor, int code) const;
  Status CheckBuffer(NamedTensor& tensor, std::span<const int64_t> dims, bool is_input);
  void TellTensors();

  std::vector<Slot> slots_;
  std::vector<AttributeRule> rules_;
  TaskMemory* memory_;
  std::vector<PlannedLaunch> launches_;
};

}  // namespace reprise::ops
