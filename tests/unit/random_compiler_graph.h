// SPDX-License-Identifier: Apache-2.0
//
// Random graphs of operators, with small whole numbers as inputs: valid, with shapes, computed by EvaluateGraph.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/constant.h"
#include "compiler/evaluate.h"
#include "compiler/graph.h"
#include "compiler/rewrite.h"

namespace reprise::compiler::testing {

enum Writers : bool { kWithoutWriters, kWithWriters };
/// kManyRows: also other types, sizes of 0, operators whose results are not whole numbers.
enum Rows : bool { kFewRows, kManyRows };

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed, Writers writers = kWithoutWriters, Rows rows = kFewRows)
      : random_(seed),
        has_writers_(writers == kWithWriters),
        has_many_rows_(rows == kManyRows),
        graph_(std::make_unique<Graph>()),
        rewriter_(*graph_) {
    graph_->name = "random";
    for (size_t i = 0, count = 1 + Below(3); i < count; ++i) AddData();
    for (size_t i = 0, count = 3 + Below(25); i < count; ++i) AddNode();
    for (size_t i = 0, count = 1 + Below(4); i < count; ++i) graph_->results.push_back(Any());
    for (size_t i = 0, count = Below(3); i < count; ++i) AddOrder();
  }

  std::unique_ptr<Graph> Take() { return std::move(graph_); }

  std::vector<ConstantPtr> Inputs(const Graph& graph) {
    std::vector<ConstantPtr> inputs;
    for (const NodeId id : graph.inputs) {
      const Tensor& tensor = graph.at(id).outputs[0].tensor;
      inputs.push_back(Numbers(tensor.dtype, tensor.shape.numbers()));
    }
    return inputs;
  }

 private:
  static constexpr int32_t kFloat = 0;
  static constexpr int32_t kHalf = 1;
  static constexpr int32_t kInt = 3;
  static constexpr int32_t kLong = 9;
  static constexpr int32_t kBool = 12;
  static constexpr int32_t kBrainFloat = 27;

  size_t Below(size_t count) { return random_() % count; }
  template <class T>
  T Of(std::initializer_list<T> choices) {
    return choices.begin()[Below(choices.size())];
  }

  ConstantPtr Numbers(int32_t dtype, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<int64_t> values(static_cast<size_t>(count));
    for (int64_t& value : values) value = dtype == kBool ? Below(2) : static_cast<int64_t>(Below(9)) - 4;
    return MakeConstant(dtype, std::move(shape), std::span<const int64_t>(values));
  }

  std::vector<int64_t> SomeShape() {
    if (has_many_rows_ && is_large_) return Of<std::vector<int64_t>>({{96, 100}, {100}, {96, 1}, {2, 48, 100}, {}});
    if (has_many_rows_ && Below(8) == 0)
      return Of<std::vector<int64_t>>({{0}, {0, 3}, {2, 0, 3}, {1, 1, 1, 1}, {5, 7}});
    return Of<std::vector<int64_t>>({{}, {1}, {3}, {2, 3}, {3, 2}, {1, 3}, {3, 3}, {2, 1, 3}, {1, 2, 3}});
  }

  int32_t SomeType() {
    if (!has_many_rows_) return Of({kFloat, kFloat, kInt, kHalf});
    return Of({kFloat, kFloat, kFloat, kInt, kHalf, kBrainFloat, kLong, kBool});
  }

  void AddData() {
    Node node;
    node.type = "Data";
    node.kind = NodeKind::kData;
    node.outputs.push_back({"y", {SomeType(), kFormatNd, opdef::Shape::Of(SomeShape())}});
    graph_->inputs.push_back(rewriter_.Add(std::move(node)));
    ports_.push_back({graph_->inputs.back(), 0});
  }

  Port Any() { return ports_[Below(ports_.size())]; }
  Port AConstant(int32_t dtype, std::vector<int64_t> values) {
    const auto size = static_cast<int64_t>(values.size());
    return {rewriter_.AddConstant("c", MakeConstant(dtype, {size}, std::span<const int64_t>(values))), 0};
  }
  const Tensor& TensorOf(Port port) const { return graph_->TensorOf(port); }

  void AddOrder() {
    const auto then = static_cast<NodeId>(Below(graph_->nodes.size()));
    if (then == 0 || graph_->at(then).is_removed) return;
    const auto first = static_cast<NodeId>(Below(then));  // edges lead to later nodes
    if (!graph_->at(first).is_removed) rewriter_.AddOrder(first, then);
  }

  // Results of which rounding decides more than the last digits: only of whole numbers.
  bool IsWhole(const std::vector<Port>& inputs) const {
    return std::none_of(inputs.begin(), inputs.end(), [&](const Port& port) { return rounded_.contains(port.node); });
  }

  // Kept if the operator takes the operands.
  void Try(std::string_view type, const std::vector<Port>& inputs, opdef::Attributes attributes = {}) {
    static const std::set<std::string_view> kRounding = {"SoftmaxV2", "LayerNormV4", "RmsNorm",     "Div",
                                                         "RealDiv",   "ReduceMean",  "Sigmoid",     "Exp",
                                                         "Tanh",      "Gelu",        "LogSoftmaxV2"};
    static const std::set<std::string_view> kDeciding = {"Cast",     "Greater", "Less", "Equal",
                                                         "ArgMaxV2", "Sign",    "Floor"};
    const bool is_whole = IsWhole(inputs) && !kRounding.contains(type);
    if (!is_whole && kDeciding.contains(type)) return;
    const NodeId id = rewriter_.AddOperator("", type, inputs, {}, std::move(attributes));
    opdef::Facts facts;
    const bool is_known = graph_->at(id).op != nullptr && (CanEvaluate(graph_->at(id)) || type == "Shape");
    if (is_known && Verify(*graph_).ok() && InferShapes(*graph_, facts).ok()) {
      const Tensor& result = graph_->at(id).outputs[0].tensor;
      const opdef::Dim elements = result.shape.elements();
      std::vector<ConstantPtr> values(graph_->at(id).inputs.size());
      bool computes =
          result.shape.is_static() && elements.is_number() && elements.number() < (is_large_ ? 40000 : 4096);
      for (size_t i = 0; computes && i < values.size(); ++i) {
        const Tensor& tensor = TensorOf(graph_->at(id).inputs[i].source);
        const Node& source = graph_->at(graph_->at(id).inputs[i].source.node);
        values[i] = source.constant != nullptr ? source.constant : Numbers(tensor.dtype, tensor.shape.numbers());
      }
      // Kernels take fewer types than rows.
      computes = computes && (type == "Shape" || EvaluateNode(*graph_, id, values).ok());
      if (computes) {
        if (!is_whole) rounded_.insert(id);
        for (uint32_t o = 0; o < graph_->at(id).outputs.size(); ++o) ports_.push_back({id, o});
        return;
      }
    }
    rewriter_.Remove(id);
  }

  void AddNode() {
    const Port x = Any();
    const Tensor tensor = TensorOf(x);
    const size_t rank = tensor.shape.rank();
    if (has_writers_ && Below(4) == 0) {
      const Port target = Below(2) == 0 ? x : Port{};
      if (!target.is_set()) Try("TensorMove", {x});
      return Try(Of<const char*>({"AssignAdd", "Assign", "AssignSub"}),
                 {target.is_set() ? target : ports_.back(), Any()});
    }
    if (has_many_rows_ && Below(2) == 0) return AddOtherNode(x);
    switch (Below(15)) {
      case 0: return Try(Of<const char*>({"Abs", "Neg", "Relu", "Square"}), {x});
      case 1:
      case 2: return Try(Of<const char*>({"Add", "Sub", "Mul", "Maximum", "Minimum"}), {x, Any()});
      case 3: {  // the same again
        const NodeId id = x.node;
        if (graph_->at(id).kind != NodeKind::kOperator) return;
        ports_.push_back({rewriter_.Clone(id, ""), x.output});
        if (rounded_.contains(id)) rounded_.insert(ports_.back().node);
        return;
      }
      case 4: {
        Port made = {rewriter_.AddConstant("c", Numbers(tensor.dtype, SomeShape())), 0};
        ports_.push_back(made);
        return;
      }
      case 5: return Try("Cast", {x}, {{"dst_type", opdef::DataTypeValue{Of({kFloat, kHalf, kInt, kLong})}}});
      case 6: {
        std::vector<int64_t> order(rank);
        for (size_t d = 0; d < rank; ++d) order[d] = static_cast<int64_t>(d);
        if (rank == 0) return;
        Port moved = x;
        for (size_t times = 1 + Below(2); times > 0; --times) {
          std::shuffle(order.begin(), order.end(), random_);
          Try("Transpose", {moved, AConstant(Of({kInt, kLong}), order)});
          moved = ports_.back();
          if (TensorOf(moved).shape.rank() != rank) return;
        }
        return;
      }
      case 7: {
        if (!tensor.shape.elements().is_number()) return;
        const int64_t count = tensor.shape.elements().number();
        std::vector<int64_t> sizes = {count};
        if (count % 3 == 0) sizes = {3, -1};
        if (count % 2 == 0 && Below(2) == 0) sizes = {2, 1, -1};
        return Try("Reshape", {x, AConstant(Of({kInt, kLong}), sizes)});
      }
      case 8: return Try("Unsqueeze", {x}, {{"axes", std::vector<int64_t>{static_cast<int64_t>(Below(rank + 1))}}});
      case 9: {
        const int64_t axis = static_cast<int64_t>(Below(rank + 1));
        return Try("ReduceSum", {x, AConstant(kLong, {rank == 0 ? 0 : axis % static_cast<int64_t>(rank)})},
                   {{"keep_dims", Below(2) == 0}});
      }
      case 10: return Try(Of<const char*>({"Identity", "TensorMove"}), {x});
      case 11: return Try("AddN", Below(2) == 0 ? std::vector<Port>{x} : std::vector<Port>{x, x});
      case 12: return Try("MatMulV2", {x, Any()});
      case 13: return Try("ConcatD", {x, x}, {{"concat_dim", int64_t{0}}, {"N", int64_t{2}}});
      default: return Try("Shape", {x}, {{"dtype", int64_t{Of({kInt, kLong})}}});
    }
  }

  void AddOtherNode(Port x) {
    const Tensor tensor = TensorOf(x);
    const auto rank = static_cast<int64_t>(tensor.shape.rank());
    const int64_t dim = rank == 0 ? 0 : static_cast<int64_t>(Below(static_cast<size_t>(rank)));
    const int64_t size = rank == 0 ? 1 : tensor.shape[static_cast<size_t>(dim)].number();
    switch (Below(16)) {
      case 0: return Try(Of<const char*>({"Sigmoid", "Exp", "Tanh", "Gelu", "Sign", "Floor", "LogicalNot"}), {x});
      case 1: return Try(Of<const char*>({"Greater", "Less", "Equal", "LogicalAnd", "LogicalOr"}), {x, Any()});
      case 2: return Try(Of<const char*>({"Div", "RealDiv"}), {x, Any()});
      case 3: return Try(Of<const char*>({"SoftmaxV2", "LogSoftmaxV2"}), {x}, {{"axes", std::vector<int64_t>{dim}}});
      case 4:
        return Try(Of<const char*>({"ReduceMean", "ReduceMax", "ReduceMin"}), {x, AConstant(kLong, {dim})},
                   {{"keep_dims", Below(2) == 0}});
      case 5: {
        if (rank == 0) return;
        const Tensor& known = TensorOf(x);
        const int64_t last = known.shape.back().number();
        const Port gamma = {rewriter_.AddConstant("gamma", Numbers(tensor.dtype, {last})), 0};
        if (Below(2) == 0) return Try("RmsNorm", {x, gamma});
        return Try("LayerNormV4", {x, AConstant(kLong, {last}), gamma, gamma});
      }
      case 6: {
        if (size == 0) return;
        std::vector<int64_t> places(1 + Below(4));
        for (int64_t& place : places) place = static_cast<int64_t>(Below(static_cast<size_t>(size)));
        return Try("GatherV2", {x, AConstant(Of({kInt, kLong}), places), AConstant(kLong, {dim})});
      }
      case 7:
      case 8: return Try("ConcatD", {x, Below(2) == 0 ? x : Any()}, {{"concat_dim", dim}, {"N", int64_t{2}}});
      case 9: {  // each input is used here alone: no copies
        const size_t made = ports_.size();
        Try("Abs", {x});
        if (ports_.size() != made + 1) return;
        const Port first = ports_.back();
        Try("Neg", {x});
        if (ports_.size() != made + 2) return;
        const Port second = ports_.back();
        ports_.resize(made);
        return Try("ConcatV2", {first, second, AConstant(kLong, {dim})}, {{"N", int64_t{2}}});
      }
      case 10: {
        if (size < 2) return;
        const auto first = static_cast<int64_t>(1 + Below(static_cast<size_t>(size - 1)));
        Port parts[2] = {AConstant(kLong, {first, size - first}), AConstant(kLong, {dim})};
        return Try("SplitV", {x, parts[0], parts[1]}, {{"num_split", int64_t{2}}});
      }
      case 11: return Try("Tile", {x, AConstant(kLong, std::vector<int64_t>(static_cast<size_t>(rank), 1 + Below(2)))});
      case 12: {
        for (size_t tries = 0; tries < 4; ++tries) {
          const Port condition = Any();
          if (TensorOf(condition).dtype == kBool) return Try("SelectV2", {condition, x, Any()});
        }
        return;
      }
      case 13: return Try("Cumsum", {x, AConstant(kLong, {dim})}, {{"reverse", Below(2) == 0}});
      case 14: return Try("ReverseV2", {x, AConstant(kLong, {dim})});
      default: return Try("Cast", {x}, {{"dst_type", opdef::DataTypeValue{SomeType()}}});
    }
  }

  std::mt19937 random_;
  const bool has_writers_;
  const bool has_many_rows_;
  const bool is_large_ = has_many_rows_ && Below(6) == 0;
  std::set<NodeId> rounded_;  // whose results are not whole numbers
  std::unique_ptr<Graph> graph_;
  Rewriter rewriter_;
  std::vector<Port> ports_;
};

}  // namespace reprise::compiler::testing
