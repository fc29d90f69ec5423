// SPDX-License-Identifier: Apache-2.0
//
// Inference: which shapes and types the outputs of a graph operator have, from what is known of its inputs.
//
//     InferContext call(*FindGraphOp("Add"));
//     call.inputs[0] = {{.name = "x1", .dtype = 0, .shape = {Dim::Symbol(0), 128}}};
//     call.inputs[1] = {{.name = "x2", .dtype = 0, .shape = {128}}};
//     REPRISE_RETURN_IF_ERROR(Infer(call));
//     call.outputs[0][0].shape.text();  // "[s0, 128]"
//
// Sizes may be unknown or symbols, ranks may be unknown, values of inputs may be missing: then less is known of the
// outputs, and nothing is refused for that reason alone. What contradicts itself is refused, by the numbers of
// operators called by their type: 100021 inputs, 100022 outputs, 100023 attributes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "opdef/attribute.h"
#include "opdef/graph_op.h"
#include "opdef/shape.h"

namespace reprise::opdef {

/// What is known of an input.
struct InferTensor {
  std::string name;    ///< "x2", "x[1]"; empty: Infer() makes it from the row
  std::string place;   ///< for messages: "parameter inputs[1]"; empty: "input x2"
  int32_t dtype = -1;  ///< aclDataType; -1: not known
  Shape shape;
  /// The elements of integers, where they are known.
  std::optional<std::vector<Dim>> value;
  /// The elements of floating numbers, where they are known.
  std::optional<std::vector<double>> reals;
};

/// What Infer() finds out about an output.
struct InferResult {
  int32_t wanted = -1;  ///< in: the type that the user gave; -1: none
  int32_t dtype = -1;
  Shape shape;
  bool is_set = false;                    ///< the shape is final
  std::optional<Shape> bound;             ///< where the shape depends on data: the largest one
  std::optional<std::vector<Dim>> value;  ///< the elements, where they follow from shapes and values
};

/// One operator with what is known of its inputs. Filled in by the user of Infer(); read by rules.
///
/// Threads: thread-compatible.
class InferContext {
 public:
  explicit InferContext(const GraphOp& row) : op(row), inputs(row.inputs.size()), outputs(row.outputs.size()) {}

  const GraphOp& op;
  /// By operand of the row: one tensor, none where it is left out, any number for a list.
  std::vector<std::vector<InferTensor>> inputs;
  const Attributes* attributes = nullptr;
  /// What was taken to be equal; a graph has one for all of its operators.
  Facts* facts = &own_facts_;
  /// By operand of the row. Infer() adds those that are missing.
  std::vector<std::vector<InferResult>> outputs;

  InferContext(const InferContext&) = delete;
  InferContext& operator=(const InferContext&) = delete;

  // ---- For the rules ----

  bool Has(std::string_view name) const;
  /// \pre Has(name).
  const InferTensor& In(std::string_view name) const;
  /// The first tensor that is there. \pre there is one.
  const InferTensor& First() const;
  std::span<const InferTensor> List(std::string_view name) const;
  InferResult& Out(std::string_view name);
  InferResult& Out(size_t index) { return outputs[index][0]; }
  /// The integers of an input, or of the attribute that stands for it; null where it is not there or not known.
  const std::vector<Dim>* Value(std::string_view name) const;
  /// The only integer of an input; unknown where that is not known.
  StatusOr<Dim> ValueInt(std::string_view name) const;
  /// As ValueInt, a number; nothing where it is not known.
  StatusOr<std::optional<int64_t>> Number(std::string_view name) const;
  /// The numbers of an input; nothing where one of them is not known.
  std::optional<std::vector<int64_t>> Numbers(std::string_view name) const;

  /// Attributes, or their defaults. \pre the row has one of this kind.
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Real(std::string_view name) const;
  std::string Text(std::string_view name) const;
  /// Of lists of integers; those of flags are 0 and 1.
  std::vector<int64_t> Ints(std::string_view name) const;
  /// Of a list of floats; empty where it is not set.
  std::vector<double> Reals(std::string_view name) const;
  bool HasAttribute(std::string_view name) const;

  /// The shape of an output is `shape`.
  Status Set(InferResult& result, Shape shape);
  Status Set(size_t index, Shape shape) { return Set(Out(index), std::move(shape)); }
  /// All outputs that have no shape yet get this one.
  Status SetRest(const Shape& shape);
  /// All outputs that have no shape yet are of unknown rank.
  Status Open() { return SetRest(Shape::UnknownRank()); }

  /// 100021, 100022, 100023: "<type>: <operand> <text>".
  Status WrongInput(const InferTensor& tensor, std::string text, std::string hint = {}) const;
  Status WrongInputs(std::string text, std::string hint = {}) const;
  Status WrongOutput(size_t index, std::string text, std::string hint = {}) const;
  Status WrongAttribute(std::string_view name, std::string text, std::string hint = {}) const;
  /// Of the attribute `what`, or else of the input.
  Status Wrong(std::string_view what, std::string text, std::string hint) const;
  /// `dim` counted from the front; `what` names the attribute or input it came from. Rank 0 has dim 0.
  StatusOr<int64_t> WrapDim(std::string_view what, int64_t dim, size_t rank) const;
  StatusOr<std::vector<int64_t>> WrapDims(std::string_view what, std::span<const int64_t> dims, size_t rank) const;
  /// The input has this rank, or an unknown one.
  Status ExpectRank(const InferTensor& tensor, size_t rank) const;
  /// Both sizes are equal, or taken to be so; else the input is refused.
  Status ExpectEqual(const InferTensor& tensor, const Dim& found, const Dim& wanted, std::string_view what) const;
  /// `name` broadcasts with `shape`, which becomes what both give.
  Status BroadcastWith(const InferTensor& tensor, Shape* shape) const;

 private:
  const AttributeValue* FindAttribute(std::string_view name) const;
  size_t IndexOf(std::string_view name) const;

  Facts own_facts_;
  mutable std::map<std::string_view, std::vector<Dim>> given_;  // values of attributes, as Value() hands them out
};

/// Works out the outputs. Checks attributes, numbers of inputs, and types first.
Status Infer(InferContext& call);

/// Names, kinds and presence of the attributes of a call; null: none are set. `missing_hint` is said where one must be
/// set. Names that begin with "_" are passed over.
Status CheckAttributes(const GraphOp& op, const Attributes* attributes, std::string_view missing_hint);

/// "list of integers" …
const char* KindNameOf(const AttributeValue& value);
/// As JSON.
std::string AttributeText(const AttributeValue& value);

}  // namespace reprise::opdef
