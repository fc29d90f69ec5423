// SPDX-License-Identifier: Apache-2.0
//
// Which inputs are worth a check before each run. What it saves is that they are brought into another order before they
// are used, and work that weights alone decide.
#include <algorithm>
#include <set>

#include "compiler/checked_inputs.h"
#include "compiler/operands.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"
#include "compiler/storage.h"
#include "ops/prepared_weights.h"

namespace reprise::compiler {
namespace {

// Products of fewer rows read a weight as fast where it lies: they wait for memory, or nearly.
constexpr int64_t kFewestRows = 4;
// Of one weight of which no product is made: statistics, scales, biases.
constexpr uint64_t kSmallBytes = 64 << 10;
// Multiply-adds of all products of checked weights; below, a run takes less than the tasks around the check.
constexpr int64_t kFewestProducts = 1 << 20;

enum class Kind : uint8_t { kConvolution, kTransposed, kMatrices, kFewBits, kRecurrent };

struct Product {
  std::string_view type, weight;
  Kind kind;
  size_t data = 0;  // the place of what is multiplied with the weight
};
constexpr Product kProducts[] = {
    {"Conv2D", "filter", Kind::kConvolution},
    {"Conv2DFused", "filter", Kind::kConvolution},
    {"DepthwiseConv2D", "filter", Kind::kConvolution},
    {"Conv3D", "filter", Kind::kConvolution},
    {"Conv3DFused", "filter", Kind::kConvolution},
    {"Conv2DBackpropInput", "filter", Kind::kTransposed, 2},
    {"Conv2DTranspose", "filter", Kind::kTransposed, 1},
    {"Conv3DBackpropInput", "filter", Kind::kTransposed, 2},
    {"MatMul", "x2", Kind::kMatrices},
    {"MatMulV2", "x2", Kind::kMatrices},
    {"MatMulV3", "x2", Kind::kMatrices},
    {"BatchMatMul", "x2", Kind::kMatrices},
    {"BatchMatMulV2", "x2", Kind::kMatrices},
    {"BatchMatMulV3", "x2", Kind::kMatrices},
    {"WeightQuantBatchMatmulV2", "weight", Kind::kFewBits},
    {"LSTMFused", "weight_hidden", Kind::kRecurrent},
    {"GRUFused", "weight_hidden", Kind::kRecurrent},
};

// Norms of inference, which fold into the product that they follow: their operands behind the first are as constant as
// the weights are, though frameworks say so of parameters alone, and not of statistics.
constexpr std::string_view kNorms[] = {"BNInfer", "BatchNorm", "BatchNormV3"};

constexpr int32_t kInt4 = 29;  // aclDataType
constexpr int32_t kInt32 = 3;

// Whether a product of so many rows reads its weight in another order once it stays.
bool IsReordered(Kind kind, int32_t dtype, int64_t rows) {
  if (kind == Kind::kRecurrent) return true;
  if (kind != Kind::kFewBits) return rows >= kFewestRows;
  return (dtype == kInt4 || dtype == kInt32) && rows <= ops::MostPreparedAntiquantRows();
}

class Choice {
 public:
  Choice(const Graph& graph, const CompileOptions& options, std::span<const uint32_t> asked)
      : graph_(graph), options_(options), writes_(graph), sources_(graph.nodes.size()) {
    for (const uint32_t input : asked) {
      if (input < graph.inputs.size() && MayStay(input)) asked_.insert(input);
    }
  }

  std::vector<uint32_t> Run(uint64_t most_bytes) {
    ForgetData();
    for (const uint32_t input : asked_) sources_[graph_.inputs[input]] = {input};
    for (const NodeId id : TopologicalOrder(graph_)) Visit(id);
    if (products_ < kFewestProducts) return {};
    std::set<uint32_t> chosen;
    for (const uint32_t input : useful_) Take(input, most_bytes, chosen);
    if (chosen.empty()) return {};
    asked_.insert(beside_.begin(), beside_.end());
    for (const uint32_t input : asked_) {
      if (BytesOf(input) <= kSmallBytes) Take(input, most_bytes, chosen);
    }
    return {chosen.begin(), chosen.end()};
  }

 private:
  uint64_t BytesOf(uint32_t input) const {
    return compiler::BytesOf(graph_.TensorOf({graph_.inputs[input], 0})).value_or(0);
  }

  // Nobody writes its memory while the graph runs.
  bool MayStay(uint32_t input) const {
    const Port port{graph_.inputs[input], 0};
    const bool is_shared = std::ranges::any_of(options_.shared_inputs, [&](const auto& p) { return p.first == input; });
    return !is_shared && std::ranges::count(options_.scratch_inputs, input) == 0 && !writes_.IsWritten(port) &&
           graph_.at(port.node).type != "RefData" && BytesOf(input) > 0;
  }

  void Take(uint32_t input, uint64_t& room, std::set<uint32_t>& chosen) const {
    const uint64_t bytes = BytesOf(input);
    if (bytes > room || !chosen.insert(input).second) return;
    room -= bytes;
  }

  // What products take beside a weight is no weight, whatever the caller says.
  void ForgetData() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.at(id);
      const Product* const product = ProductOf(node);
      if (product == nullptr || node.inputs.size() <= product->data) continue;
      const Port data = node.inputs[product->data].source;
      if (!data.is_set()) continue;
      std::erase_if(asked_, [&](uint32_t input) { return graph_.inputs[input] == data.node; });
    }
  }

  static const Product* ProductOf(const Node& node) {
    const auto* const product =
        std::ranges::find_if(kProducts, [&](const Product& known) { return known.type == node.type; });
    return node.kind == NodeKind::kOperator && product != std::end(kProducts) ? product : nullptr;
  }

  // What a node makes of weights alone has these weights as its sources.
  void Visit(NodeId id) {
    const Node& node = graph_.at(id);
    if (node.kind != NodeKind::kOperator) return;
    bool is_of_weights = IsPure(graph_, id);
    std::set<uint32_t> all;
    for (const Input& input : node.inputs) {
      if (!input.source.is_set()) continue;
      const std::set<uint32_t>& own = sources_[input.source.node];
      is_of_weights &= !own.empty() || graph_.at(input.source.node).kind == NodeKind::kConstant;
      all.insert(own.begin(), own.end());
    }
    if (is_of_weights) {
      sources_[id] = std::move(all);
    } else {
      if (!all.empty()) VisitProduct(id);
      VisitNorm(node);
    }
  }

  void VisitNorm(const Node& node) {
    if (std::ranges::count(kNorms, node.type) == 0 || node.inputs.empty() || !node.inputs[0].source.is_set()) return;
    if (ProductOf(graph_.at(node.inputs[0].source.node)) == nullptr) return;
    for (const Input& operand : std::span(node.inputs).subspan(1)) {
      if (!operand.source.is_set()) continue;
      const auto found = std::ranges::find(graph_.inputs, operand.source.node);
      const auto input = static_cast<uint32_t>(found - graph_.inputs.begin());
      if (found != graph_.inputs.end() && MayStay(input)) beside_.insert(input);
    }
  }

  void VisitProduct(NodeId id) {
    const Node& node = graph_.at(id);
    const Product* const product = ProductOf(node);
    if (product == nullptr || node.op == nullptr) return;
    StatusOr<Operands> operands = BindOperands(graph_, id);
    if (!operands.ok()) return;
    for (size_t o = 0; o < operands.value().size(); ++o) {
      if (node.op->inputs[o].name != product->weight || operands.value()[o].size() != 1) continue;
      const Port weight = node.inputs[operands.value()[o][0]].source;
      const std::set<uint32_t>& own = sources_[weight.node];
      const opdef::Shape& shape = graph_.TensorOf(weight).shape;
      const opdef::Shape& result = graph_.TensorOf({id, 0}).shape;
      if (own.empty() || !shape.is_static() || !result.is_static() || shape.rank() < 2 || result.rank() < 2) return;
      const int64_t elements = shape.elements().number();
      const bool is_transposed = product->kind == Kind::kTransposed;
      const bool is_convolution = is_transposed || product->kind == Kind::kConvolution;
      const bool has_one_weight = is_convolution || product->kind == Kind::kRecurrent;  // for all of the result
      const int64_t columns =
          is_convolution ? shape[is_transposed ? 1 : 0].number() : result[result.rank() - 1].number();
      const int64_t rows = has_one_weight ? result.elements().number() / std::max<int64_t>(1, columns)
                                          : result[result.rank() - 2].number();
      if (!IsReordered(product->kind, graph_.TensorOf(weight).dtype, rows)) return;
      useful_.insert(own.begin(), own.end());
      products_ += elements > INT64_MAX / 2 / rows ? kFewestProducts : std::min(elements * rows, kFewestProducts);
    }
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const Writes writes_;
  std::vector<std::set<uint32_t>> sources_;  ///< by node: the weights that it is made of, and of nothing else
  std::set<uint32_t> asked_;
  std::set<uint32_t> useful_;
  std::set<uint32_t> beside_;  ///< operands of norms behind products
  int64_t products_ = 0;
};

}  // namespace

std::vector<uint32_t> ChooseCheckedInputs(const Graph& graph, const CompileOptions& options,
                                          std::span<const uint32_t> asked, uint64_t most_bytes) {
  return asked.empty() ? std::vector<uint32_t>() : Choice(graph, options, asked).Run(most_bytes);
}

}  // namespace reprise::compiler
