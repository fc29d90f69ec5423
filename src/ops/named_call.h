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
#include "opdef/infer.h"
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
  DTypeSet types;                              ///< that the steps compute, among those that the operator has
  Status (*lower)(NamedCall& call) = nullptr;  ///< adds the steps
  int code = 0;                                ///< chooses among types that share functions
  /// For LowerAsFunction: the aclnn function that computes it, and what it is called with, in words: an input by its
  /// name,
  /// "@alpha" an attribute, "#axes" the numbers of an input, "=" the output, "=type" its type; empty: all inputs, then
  /// the output.
  std::string_view function = {};
  std::string_view arguments = {};
};

/// The row of a type, or null.
const NamedOp* FindNamedOp(std::string_view type);
std::span<const NamedOp> NamedOps();

/// Strided view of memory that the steps work on. Sizes and strides in elements.
struct StridedView {
  kernels::DType dtype = kernels::DType::kUndefined;
  Dims sizes;
  Dims strides;
  void* data = nullptr;

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
  StridedView view() const { return StridedView::Of(dtype(), dims, data); }
};

/// 107000 unless the device reaches all bytes; REPRISE_CHECK_POINTERS=0 lets everything pass.
Status CheckDeviceMemory(std::string_view op, std::string_view name, const void* data, uint64_t bytes,
                         std::string culprit, std::string hint);

/// An argument of a step, in the order of Routine::params.
using StepArgument = std::variant<StridedView, std::vector<StridedView>, int64_t, bool, double, kernels::DType,
                                  kernels::Scalar, std::vector<int64_t>>;

/// What a step computes: a computation with its parameters.
struct Routine {
  std::span<const Param> params;
  const Computation& computation;
};

/// Threads: belongs to the thread that makes the call.
class NamedCall {
 public:
  NamedCall(const NamedOp& row, const opdef::GraphOp& graph_op);
  ~NamedCall();
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;

  const NamedOp& op;
  /// What the row of the graph operator says of the call: operands, attributes, shapes; filled in by Infer().
  opdef::InferContext context;
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  const Attributes* attributes = nullptr;
  /// For dumps: what the call reads and writes; empty: `inputs` and `outputs`.
  std::vector<ir::TensorInfo> told;

  /// Set by Infer().
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
  Status Lower();
  Status Submit(runtime::Stream& stream);

  // ---- For the rows ----

  const NamedTensor& Input(std::string_view name) const { return inputs[First(name)]; }
  bool Has(std::string_view name) const;
  std::span<const NamedTensor> List(std::string_view name) const;
  const NamedTensor& output() const { return outputs[0]; }
  StridedView OutputView() const { return StridedView::Of(outputs[0].dtype(), shape, outputs[0].data); }

  /// The integers of a constant input.
  StatusOr<std::vector<int64_t>> Constant(const NamedTensor& input) const;

  /// 100021, 100022: "<operator>: <tensor> <text>".
  Status WrongInput(const NamedTensor& tensor, std::string text, std::string hint = {}) const;
  Status WrongOutput(std::string text, std::string hint = {}) const;

  /// Adds the kernels of a routine.
  Status Step(const Routine& routine, std::span<const StepArgument> arguments);
  Status Step(const Routine& routine, std::initializer_list<StepArgument> arguments) {
    return Step(routine, std::span<const StepArgument>(arguments.begin(), arguments.size()));
  }
  /// An intermediate result of the call.
  StridedView Temporary(kernels::DType dtype, std::span<const int64_t> sizes);

 private:
  struct PlannedStep {
    size_t launches;  // so many of launches_, behind those of the step before
    void* workspace;
  };
  struct Slot;

  size_t First(std::string_view name) const;
  Status NameInputs();
  Status CheckTypes() const;
  Status CheckKnown(bool complete, bool* is_known) const;
  Status Describe();
  Status CheckResult();
  Status CheckFormat(const NamedTensor& tensor, int code) const;
  Status CheckBuffer(NamedTensor& tensor, std::span<const int64_t> dims, bool is_input);
  void TellTensors();

  std::vector<Slot> slots_;
  TaskMemory* memory_;
  std::vector<Launch*> launches_;  // one reference each
  std::vector<PlannedStep> steps_;
};

}  // namespace reprise::ops
