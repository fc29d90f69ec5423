// SPDX-License-Identifier: Apache-2.0
//
// OpCall: one phase-one call while it is checked and planned.
//
// The rules and lowering functions of a Computation see the arguments through it: operands in order, attributes by
// name, and words for messages. A refusal names the operator, the argument, what it is and what it should be:
//
//     aclnnAdd: out has shape [4, 3], expected the broadcast shape [4, 2] of self [4, 2] and other [1, 2]
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/strided.h"
#include "ops/argument.h"
#include "ops/executor.h"
#include "ops/launch.h"
#include "ops/op_schema.h"
#include "ops/tensor.h"

namespace reprise::ops {

/// A tensor, or a scalar in the place of one.
struct Operand {
  const Tensor* tensor = nullptr;  ///< null for a scalar
  const kernels::Scalar* scalar = nullptr;
  kernels::DType dtype = kernels::DType::kUndefined;
  int32_t slot = -1;  ///< Executor::slots; -1 for a scalar
  uint16_t param = 0;
  int32_t element = -1;      ///< of a list
  bool apart = false;        ///< has types of its own (Param::types): no say in the type of the computation
  int8_t packed_dim = -1;    ///< dim along which a byte holds two 4-bit numbers, the first in the lower bits; sizes and
                             ///< strides are those of the bytes
  int32_t type_number = -1;  ///< aclDataType as given
  bool is_left_as_is = false;  ///< of role kInOut, but this call writes nothing there

  std::span<const int64_t> sizes() const { return tensor != nullptr ? tensor->sizes : std::span<const int64_t>(); }
  int rank() const { return static_cast<int>(sizes().size()); }
};

/// Threads: belongs to the thread that calls phase one.
class OpCall {
 public:
  OpCall(const OpSchema& schema, std::span<const Argument> args, Executor& executor)
      : op(schema), args_(args), executor_(executor) {}

  /// Everything that the row says, in order.
  Status Run();

  const OpSchema& op;
  InlineVector<Operand, 3> inputs;   ///< roles kInput and kInOut; the elements of lists one by one
  InlineVector<Operand, 2> outputs;  ///< roles kOutput and kInOut
  /// For shape rules: with these attributes the call only reads the operand, if it is there, which has role kInOut. So
  /// it may share memory with others that are read.
  void LeaveAsIs(std::string_view name);
  kernels::DType compute = kernels::DType::kUndefined;

  /// Only the workspace matters, for whatever lengths: see Prepare.
  bool only_tells_size() const { return executor_.only_tells_size; }

  // ---- Operands, by the name of the parameter ----

  /// The tensor, or scalar with role kInput; null for an absent optional one.
  const Operand* Find(std::string_view name) const;
  /// \pre it is there: not optional, or Find() said so.
  const Operand& Get(std::string_view name) const { return *Find(name); }
  /// The tensors of a list, without null entries; empty for an absent one.
  std::span<const Operand> List(std::string_view name) const;

  // ---- Attributes, by the name of the parameter ----

  int64_t Int(std::string_view name) const { return ArgumentOf(name).integer; }
  bool Bool(std::string_view name) const { return Int(name) != 0; }
  kernels::DType Type(std::string_view name) const { return static_cast<kernels::DType>(Int(name)); }
  /// Null for an absent optional one.
  const kernels::Scalar* Scalar(std::string_view name) const;
  double Real(std::string_view name) const { return ArgumentOf(name).real; }
  /// "" for an absent optional one.
  std::string_view Text(std::string_view name) const;
  std::span<const int64_t> Ints(std::string_view name) const;
  /// Empty for an absent optional one.
  std::vector<bool> Bools(std::string_view name) const;
  /// The numbers of a list of scalars; 161002 names the entry that is none.
  StatusOr<std::vector<kernels::Scalar>> Scalars(std::string_view name) const;
  /// Whether an optional object was given.
  bool IsGiven(std::string_view name) const { return ArgumentOf(name).handle != nullptr; }
  /// Whether the row has a parameter of that name.
  bool Has(std::string_view name) const { return FindParam(name) >= 0; }

  // ---- Words ----

  std::string NameOf(const Operand& operand) const;
  /// "self [4, 2] and other [1, 2]".
  std::string InputShapes() const;
  /// "self float32 and other int64".
  std::string InputTypes() const;
  /// 161002: "<operator>: <text>".
  Status Invalid(std::string text, std::string hint = {}) const;
  /// 161002: "<operator>: <operand> <text>".
  Status InvalidOperand(const Operand& operand, std::string_view text, std::string hint = {}) const;

  // ---- Checks that rules share ----

  /// Every output can hold values of type `compute`.
  Status CheckOutputsHold() const;
  /// `operand`, one of `inputs` or `outputs`, has shape `expected`; what() names that shape in the message ("the
  /// broadcast shape"). Dims of size 1 may be missing or too many, which changes neither the elements nor their order:
  /// then the operand has shape `expected` from here on.
  template <class What>
  Status CheckShape(const Operand& operand, std::span<const int64_t> expected, What what) {
    if (std::equal(expected.begin(), expected.end(), operand.sizes().begin(), operand.sizes().end())) [[likely]] {
      return {};
    }
    return Reshape(operand, expected, true) ? Status() : WrongShape(operand, expected, what());
  }
  /// As CheckShape, for operands whose elements are told by their place alone, such as statistics: any shape with as
  /// many elements will do.
  template <class What>
  Status CheckCount(const Operand& operand, std::span<const int64_t> expected, What what) {
    if (std::equal(expected.begin(), expected.end(), operand.sizes().begin(), operand.sizes().end())) [[likely]] {
      return {};
    }
    return Reshape(operand, expected, false) ? Status() : WrongShape(operand, expected, what());
  }
  /// Dim `dim` of a tensor of `rank`, counted from the end if negative, as counted from the front. Rank 0 has dim 0.
  StatusOr<int> WrapDim(std::string_view name, int64_t dim, int rank) const;

  // ---- Launches ----

  Launch& AddLaunch(Launch::Kernel kernel);
  /// The operand's memory as it was described; a scalar has rank 0.
  kernels::TensorRef RefOf(const Operand& operand) const;
  void Write(Launch& launch, const Operand& output) const { Write(launch, output, RefOf(output)); }
  void Read(Launch& launch, const Operand& input) const { Read(launch, input, RefOf(input)); }
  /// An operand through another view of its memory.
  void Write(Launch& launch, const Operand& output, const kernels::TensorRef& view) const;
  void Read(Launch& launch, const Operand& input, const kernels::TensorRef& view) const;
  /// The operand, or one without data for null; so that the places in Launch::refs are always the same.
  void WriteOptional(Launch& launch, const Operand* output) const;
  void ReadOptional(Launch& launch, const Operand* input) const;
  /// Row-major memory of the workspace, for what one launch of the operator leaves to another. Kernels get it with
  /// Launch::Ref.
  kernels::TensorRef Temporary(kernels::DType dtype, std::span<const int64_t> sizes);
  void WriteTemporary(Launch& launch, const kernels::TensorRef& temporary) const;
  void ReadTemporary(Launch& launch, const kernels::TensorRef& temporary) const;
  /// The shape of `output` will be what a kernel writes to the entry of the result; phase two waits for it. Until then
  /// `sizes`. To be passed on as Launch::state; outputs in the order of the calls.
  std::shared_ptr<const FoundShapes> FindShape(const Operand& output, std::span<const int64_t> sizes);
  /// Scratch of `bytes` for each part of the launch, on the stack of its thread or in the workspace; units and grain
  /// are final.
  void AddScratch(Launch& launch, uint64_t bytes);

 private:
  int FindParam(std::string_view name) const;
  const Argument& ArgumentOf(std::string_view name) const { return args_[static_cast<size_t>(FindParam(name))]; }
  Status CheckNulls() const;
  Status Bind();
  Status BindUnusual(Operand& operand);
  Status BindObject(const Param& param, uint16_t index, const Argument& arg);
  Status BindTensor(const Param& param, uint16_t index, const void* handle, const Tensor* tensor, int32_t element);
  Status CheckTypes() const;
  Status CheckBits() const;
  Status CheckFormats() const;
  Status CheckViews() const;
  Status CheckAliasing() const;
  Status WrongShape(const Operand& operand, std::span<const int64_t> expected, std::string what) const;
  bool Reshape(const Operand& operand, std::span<const int64_t> expected, bool keeps_sizes);
  void SeeAs(const Operand& operand, const Tensor* view);
  void TellTensors();
  void Finish();

  std::span<const Argument> args_;
  InlineVector<const void*, 8> objects_;  // what the handle in each argument stands for
  Executor& executor_;
  std::vector<std::unique_ptr<const Tensor>> views_;  // of operands that are seen otherwise than they were described
  bool moves_bits_ = false;                           // kTakesAnyBits, and an operand has such a type
};

}  // namespace reprise::ops
