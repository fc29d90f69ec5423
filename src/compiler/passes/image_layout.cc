// SPDX-License-Identifier: Apache-2.0
//
// Convolutions in a row, and what stands between them, with channels behind the spatial dims (NHWC, NDHWC), as their
// kernels like it; transposes only where such a region begins and ends.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "compiler/constant.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/image_members.h"
#include "compiler/passes/patterns.h"
#include "compiler/passes/permutation.h"
#include "compiler/type_numbers.h"

namespace reprise::compiler {
namespace {

// Multiply-adds of convolutions that are worth moving one element to another place.
constexpr int64_t kWorthOfMove = 16;

// The elements of a constant of as many dims as pictures have in another order.
std::shared_ptr<const Constant> WithChannelsLast(const Constant& constant) {
  auto result = std::make_shared<Constant>();
  result->dtype = constant.dtype;
  result->shape = InOrder(constant.shape, OrderOfLast(constant.shape.size()));
  result->bytes.resize(constant.bytes.size());
  const int64_t channels = constant.shape[1];
  int64_t area = 1;
  for (size_t d = 2; d < constant.shape.size(); ++d) area *= constant.shape[d];
  const int64_t count = constant.shape[0] * channels * area;
  if (count == 0) return result;
  const size_t item = constant.bytes.size() / static_cast<size_t>(count);
  const char* from = constant.bytes.data();
  for (int64_t n = 0; n < constant.shape[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < area; ++p, from += item) {
        std::memcpy(result->bytes.data() + static_cast<size_t>((n * area + p) * channels + c) * item, from, item);
      }
    }
  }
  return result;
}

class ImageRegions {
 public:
  ImageRegions(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), rewriter_(graph), images_(rewriter_) {}

  void Run() {
    order_ = TopologicalOrder(graph_);
    GatherShuffles();
    FindRegions();
    KeepWorthwhile();
    SpreadNorms();
    // Constants and transposes that are added are no members.
    for (const NodeId id : order_) {
      if (members_.contains(id)) Turn(id);
    }
    for (const NodeId id : order_) {
      if (members_.contains(id)) TurnBack(id);
    }
    for (const auto& [id, shuffle] : shuffles_) {
      members_.contains(id) ? SpreadShuffle(id, shuffle.groups) : RestoreShuffle(id, shuffle);
    }
  }

 private:
  const Node& at(NodeId id) const { return std::as_const(graph_).at(id); }

  using Member = ImageMember;

  struct Shuffle {
    int64_t groups = 0;
    std::vector<Node> nodes;  // as they were, the last one first
  };

  // The groups of channels of which a transpose takes the first ones, then the second ones and so on, in pictures of
  // these sizes: it exchanges two dims between what lies in front of the channels and what lies behind.
  std::optional<int64_t> GroupsOf(NodeId transpose, const std::vector<int64_t>& picture) const {
    const auto permutation = PermutationOf(graph_, transpose);
    const auto sizes = images_.SizesOf(at(transpose).inputs[0].source);
    if (!permutation || !sizes || permutation->size() != sizes->size()) return std::nullopt;
    std::vector<int64_t> order;  // without dims of one element
    for (const int64_t dim : *permutation) {
      if ((*sizes)[static_cast<size_t>(dim)] != 1) order.push_back(dim);
    }
    const auto at = std::adjacent_find(order.begin(), order.end(), std::greater<>());
    if (at == order.end()) return std::nullopt;
    const int64_t groups = (*sizes)[static_cast<size_t>(at[1])];
    const int64_t in_group = (*sizes)[static_cast<size_t>(at[0])];
    int64_t in_front = 1;
    for (auto dim = order.begin(); dim != at; ++dim) in_front *= (*sizes)[static_cast<size_t>(*dim)];
    std::swap(at[0], at[1]);
    const bool is_one_exchange = std::is_sorted(order.begin(), order.end());
    return is_one_exchange && in_front == picture[0] && groups * in_group == picture[1] ? std::optional(groups)
                                                                                        : std::nullopt;
  }

  // Nodes that give channels another order: reshapes, a transpose of groups, reshapes. While regions are looked for,
  // the last one stands for all.
  void GatherShuffles() {
    for (const NodeId id : order_) {
      if (at(id).is_removed || at(id).type != "Reshape" || !images_.IsFree(id)) continue;
      const auto sizes = images_.SizesOf({id, 0});
      if (!sizes) continue;
      Shuffle shuffle{};
      Port source = at(id).inputs[0].source;
      std::vector<NodeId> nodes;
      while (source.is_set() && (shuffle.groups == 0 || images_.SizesOf(source) != sizes)) {
        const Node& node = at(source.node);
        const bool is_reshape = node.type == "Reshape";
        if (node.inputs.empty() || node.inputs[0].name != "x" || images_.IsMarked(node) ||
            !rewriter_.HasOneReader(source))
          break;
        if (!is_reshape) {
          const auto groups = shuffle.groups == 0 ? GroupsOf(source.node, *sizes) : std::nullopt;
          if (!groups) break;
          shuffle.groups = *groups;
        }
        nodes.push_back(source.node);
        source = node.inputs[0].source;
      }
      if (shuffle.groups == 0 || !source.is_set() || images_.SizesOf(source) != sizes || images_.IsWritten(source))
        continue;
      rewriter_.Set({id, 0}, source);
      for (const NodeId node : nodes) {
        shuffle.nodes.push_back(at(node));
        rewriter_.Remove(node);
      }
      shuffles_.emplace(id, std::move(shuffle));
    }
  }
  void RestoreShuffle(NodeId id, Shuffle shuffle) {
    Port source = at(id).inputs[0].source;
    for (auto node = shuffle.nodes.rbegin(); node != shuffle.nodes.rend(); ++node) {
      node->inputs[0].source = source;
      source = {rewriter_.Add(std::move(*node)), 0};
    }
    rewriter_.Set({id, 0}, source);
  }

  // As nodes again, with channels behind.
  void SpreadShuffle(NodeId id, int64_t groups) {
    const Port x = at(id).inputs[0].source;
    const std::vector<int64_t> sizes = *images_.SizesOf(x);
    std::vector<int64_t> cut = sizes;
    cut.back() /= std::max<int64_t>(1, groups);
    cut.insert(cut.end() - 1, groups);
    std::vector<int64_t> order(cut.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[order.size() - 2], order.back());
    Tensor tensor = graph_.TensorOf(x);
    tensor.shape = opdef::Shape::Of(cut);
    const auto rank = static_cast<int64_t>(cut.size());
    const NodeId shape = rewriter_.AddConstant(at(id).name + "_groups",
                                               MakeConstant(kInt64Number, {rank}, std::span<const int64_t>(cut)));
    const NodeId parts = rewriter_.AddOperator(at(id).name + "_cut", "Reshape", {x, {shape, 0}}, tensor);
    rewriter_.Set({id, 0}, AddTranspose(at(id).name + "_swap", {parts, 0}, order));
  }

  // Convolutions, and what reads at least one image of a member.
  void FindRegions() {
    for (const NodeId id : order_) {
      const bool is_convolution = IsImageConvolution(at(id));
      const auto member = images_.Of(id);
      if (!member) continue;
      const bool follows = std::any_of(member->images.begin(), member->images.end(),
                                       [&](uint32_t input) { return GivesImage(at(id).inputs[input].source); });
      if (!is_convolution && !follows) continue;
      members_.emplace(id, *member);
      Join(id, id);
      for (const uint32_t input : member->images) {
        const Port source = at(id).inputs[input].source;
        if (GivesImage(source)) Join(id, source.node);
      }
    }
  }

  bool GivesImage(const Port& port) const {
    const auto found = members_.find(port.node);
    return found != members_.end() && port.output < found->second.gives;
  }

  NodeId RootOf(NodeId id) {
    while (parent_[id] != id) id = parent_[id] = parent_[parent_[id]];
    return id;
  }
  void Join(NodeId a, NodeId b) {
    parent_.try_emplace(a, a);
    parent_.try_emplace(b, b);
    parent_[RootOf(a)] = RootOf(b);
  }

  // Elements, each unknown size counted as 1.
  int64_t ElementsOf(const Port& port) const {
    int64_t count = 1;
    const opdef::Shape& shape = std::as_const(graph_).TensorOf(port).shape;
    for (size_t d = 0; d < shape.rank(); ++d)
      count *= shape[d].is_number() ? std::max<int64_t>(1, shape[d].number()) : 1;
    return count;
  }

  // Leaves out regions whose transposes would cost more than their convolutions gain.
  void KeepWorthwhile() {
    std::map<NodeId, int64_t> balance;
    std::set<std::tuple<NodeId, NodeId, uint32_t>> seen;
    const auto move = [&](NodeId root, const Port& port) {
      if (seen.emplace(root, port.node, port.output).second) balance[root] -= kWorthOfMove * ElementsOf(port);
    };
    for (const auto& [id, member] : members_) {
      const NodeId root = RootOf(id);
      for (const uint32_t input : member.images) {
        const Port source = at(id).inputs[input].source;
        if (!GivesImage(source)) move(root, source);
      }
      for (uint32_t output = 0; output < member.gives; ++output) {
        if (HasOutsideUse({id, output})) move(root, {id, output});
      }
      if (!IsImageConvolution(at(id))) continue;
      const Constant& filter = *images_.ConstantOf(at(id).inputs[member.constants[0]].source);
      // Each input of a transposed convolution meets all taps, each output of another one.
      const bool is_transposed = IsTransposedConvolution(at(id));
      const Port meets = is_transposed ? at(id).inputs[member.images[0]].source : Port{id, 0};
      balance[root] += ElementsOf(meets) *
                       std::accumulate(filter.shape.begin() + 1, filter.shape.end(), int64_t{1}, std::multiplies<>());
    }
    for (auto entry = members_.begin(); entry != members_.end();) {
      const NodeId id = entry->first;
      if (balance[RootOf(id)] > 0) {
        ++entry;
        continue;
      }
      if (IsImageConvolution(at(id))) {
        context_.Refused(at(id), "to transpose what it reads and gives costs more than it saves");
      }
      entry = members_.erase(entry);
    }
  }

  bool ReadsImage(const Use& use) const {
    if (use.is_result()) return false;
    const auto found = members_.find(use.node);
    if (found == members_.end()) return false;
    const std::vector<uint32_t>& images = found->second.images;
    return std::find(images.begin(), images.end(), use.index) != images.end();
  }

  bool HasOutsideUse(Port port) {
    const std::vector<Use>& uses = rewriter_.UsesOf(port);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return !ReadsImage(use); });
  }

  Port AddTranspose(const std::string& name, const Port& source, const std::vector<int64_t>& order) {
    const Tensor result = InOrder(graph_.TensorOf(source), order);
    return {rewriter_.AddOperator(name, "TransposeD", {source}, result, {{"perm", order}}), 0};
  }

  void Turn(NodeId id) {
    const Member& member = members_.at(id);
    const size_t rank = member.rank;
    for (const uint32_t input : member.images) {
      const Port source = at(id).inputs[input].source;
      if (GivesImage(source)) continue;
      const auto [entry, is_new] = turned_.try_emplace(source);
      if (is_new) {
        entry->second = AddTranspose(at(source.node).name + MarkOfLast(rank), source, OrderOfLast(rank));
      }
      rewriter_.Set({id, input}, entry->second);
    }
    for (const uint32_t input : member.constants) {
      const Port source = at(id).inputs[input].source;
      const auto [entry, is_new] = turned_.try_emplace(source);
      if (is_new) {
        entry->second = {rewriter_.AddConstant(at(source.node).name + MarkOfLast(rank),
                                               WithChannelsLast(*images_.ConstantOf(source))),
                         0};
      }
      rewriter_.Set({id, input}, entry->second);
    }
    images_.TurnOperator(id, member);
    context_.Changed();
  }

  // A norm that has stayed becomes a product and a sum, which take channels in any place.
  void SpreadNorms() {
    std::vector<NodeId> order;
    for (const NodeId id : order_) {
      const auto found = members_.find(id);
      if (found == members_.end() || at(id).type != "BNInfer") {
        order.push_back(id);
        continue;
      }
      const Member member = found->second;
      members_.erase(found);
      const ImageMembers::Factors factors = *images_.FactorsOf(id);
      Port last = at(id).inputs[member.images[0]].source;
      const Tensor result = at(id).outputs[0].tensor;
      std::vector<int64_t> shape(member.rank, 1);
      shape[1] = static_cast<int64_t>(factors.scale.size());
      for (const auto& [type, numbers] : {std::pair("Mul", &factors.scale), {"Add", &factors.offset}}) {
        const std::string name = at(id).name + (type[0] == 'M' ? "_scale" : "_offset");
        const NodeId constant =
            rewriter_.AddConstant(name, MakeConstant(kFloat32, shape, std::span<const double>(*numbers)));
        last = {rewriter_.AddOperator(at(id).name, type, {last, {constant, 0}}, result), 0};
        members_.emplace(last.node, Member{{0}, {1}, 1, member.rank});
        order.push_back(last.node);
      }
      rewriter_.Replace(id, last.node);
    }
    order_ = std::move(order);
  }

  // Whoever else uses the images gets them as they were.
  void TurnBack(NodeId id) {
    const uint32_t gives = members_.at(id).gives;
    if (gives == 0) return;
    const size_t rank = images_.RankOf({id, 0});
    std::vector<std::pair<uint32_t, Use>> others;
    for (uint32_t output = 0; output < gives; ++output) {
      for (const Use& use : rewriter_.UsesOf({id, output})) {
        if (!ReadsImage(use)) others.emplace_back(output, use);
      }
    }
    for (Output& output : graph_.at(id).outputs)
      output.tensor = InOrder(output.tensor, OrderOfLast(output.tensor.shape.rank()));
    std::map<uint32_t, Port> back;
    for (const auto& [output, use] : others) {
      const auto [entry, is_new] = back.try_emplace(output);
      if (is_new) {
        const std::string name = at(id).name + (output == 0 ? "" : "_" + std::to_string(output)) + MarkOfFirst(rank);
        entry->second = AddTranspose(name, {id, output}, OrderOfFirst(rank));
      }
      rewriter_.Set(use, entry->second);
    }
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  ImageMembers images_;
  std::vector<NodeId> order_;
  std::map<NodeId, Member> members_;
  std::map<NodeId, NodeId> parent_;
  std::map<NodeId, Shuffle> shuffles_;  // by the node that stands for all
  struct ByPlace {
    bool operator()(const Port& a, const Port& b) const {
      return a.node != b.node ? a.node < b.node : a.output < b.output;
    }
  };
  std::map<Port, Port, ByPlace> turned_;
};

}  // namespace

Status ChooseImageLayout(Graph& graph, PassContext& context) {
  const bool has_convolutions = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return !node.is_removed && IsImageConvolution(node);
  });
  if (has_convolutions) ImageRegions(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
