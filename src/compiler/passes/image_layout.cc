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
#include <string_view>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/patterns.h"
#include "compiler/passes/writes.h"

namespace reprise::compiler {
namespace {

constexpr std::string_view kConvolutions[] = {"Conv2D", "Conv2DBackpropInput", "Conv2DFused", "Conv2DTransposeD",
                                              "Conv3D", "Conv3DFused"};
constexpr std::string_view kTransposed[] = {"Conv2DBackpropInput", "Conv2DTransposeD"};
constexpr std::string_view kImagePools[] = {"AvgPoolV2", "MaxPoolWithArgmaxV3"};
constexpr std::string_view kImageMeans[] = {"ReduceMean", "ReduceMeanD"};
constexpr std::string_view kImageJoins[] = {"ConcatD", "ConcatV2"};
constexpr std::string_view kImageElementwise[] = {
    "Abs",   "Add",     "AddV2",  "Adds",      "Cast",      "ClipByValue", "ClipByValueV2", "Div",   "Elu", "Exp",
    "Floor", "Gelu",    "GeluV2", "HardSwish", "LeakyRelu", "Maximum",     "Minimum",       "Mish",  "Mul", "Muls",
    "Neg",   "RealDiv", "Relu",   "Sigmoid",   "Sqrt",      "Square",      "Sub",           "Swish", "Tanh"};
// Multiply-adds of convolutions that are worth moving one element to another place.
constexpr int64_t kWorthOfMove = 16;

template <size_t kCount>
bool IsOneOf(const std::string_view (&types)[kCount], const std::string& type) {
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

// Where each dim comes from: {0, 2, 3, 1} of rank 4, and the way back {0, 3, 1, 2}.
std::vector<int64_t> OrderOfLast(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}
std::vector<int64_t> OrderOfFirst(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return order;
}

const char* MarkOfLast(size_t rank) { return rank == 4 ? "_nhwc" : "_ndhwc"; }
const char* MarkOfFirst(size_t rank) { return rank == 4 ? "_nchw" : "_ncdhw"; }

template <class T>
std::vector<T> InOrder(const std::vector<T>& from, const std::vector<int64_t>& order) {
  std::vector<T> to;
  for (const int64_t d : order) to.push_back(from[static_cast<size_t>(d)]);
  return to;
}

Tensor InOrder(Tensor tensor, const std::vector<int64_t>& order) {
  opdef::Shape shape = tensor.shape;
  for (size_t d = 0; d < order.size(); ++d) shape[d] = tensor.shape[static_cast<size_t>(order[d])];
  tensor.shape = std::move(shape);
  tensor.format = kFormatNd;
  return tensor;
}
Tensor ChannelsLast(const Tensor& tensor) { return InOrder(tensor, OrderOfLast(tensor.shape.rank())); }

// The elements of a constant of four or five dims in another order.
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
      : graph_(graph), context_(context), rewriter_(graph), writes_(graph) {}

  void Run() {
    order_ = TopologicalOrder(graph_);
    FindRegions();
    if (members_.empty()) return;
    KeepWorthwhile();
    // Constants and transposes that are added are no members.
    for (const NodeId id : order_) {
      if (members_.contains(id)) Turn(id);
    }
    for (const NodeId id : order_) {
      if (members_.contains(id)) TurnBack(id);
    }
  }

 private:
  // What a member makes of its operands.
  struct Member {
    std::vector<uint32_t> images;     // inputs that come with channels behind, by index in Node::inputs
    std::vector<uint32_t> constants;  // inputs of as many dims that are constants
    bool gives_image = true;          // its output 0 has channels behind, too
    size_t rank = 4;                  // of its images
  };

  const Node& at(NodeId id) const { return std::as_const(graph_).at(id); }

  std::optional<uint32_t> InputOf(NodeId id, std::string_view operand) const {
    StatusOr<Operands> operands = BindOperands(graph_, id);
    if (!operands.ok()) return std::nullopt;
    for (size_t o = 0; o < operands.value().size(); ++o) {
      if (at(id).op->inputs[o].name == operand && operands.value()[o].size() == 1) return operands.value()[o][0];
    }
    return std::nullopt;
  }

  bool IsImage(const Port& port) const {
    const opdef::Shape& shape = std::as_const(graph_).TensorOf(port).shape;
    return shape.has_rank() && (shape.rank() == 4 || shape.rank() == 5);
  }
  size_t RankOf(const Port& port) const { return std::as_const(graph_).TensorOf(port).shape.rank(); }
  const Constant* ConstantOf(const Port& port) const { return port.is_set() ? at(port.node).constant.get() : nullptr; }

  std::string TextOf(NodeId id, std::string_view attribute) const {
    const auto found = at(id).attributes.find(attribute);
    const auto* text = found == at(id).attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? std::string() : *text;
  }

  // A node that may be moved to another layout at all.
  bool IsFree(NodeId id) const {
    const Node& node = at(id);
    if (node.is_removed || node.op == nullptr || node.outputs.empty() || !IsImage({id, 0})) return false;
    for (const char* mark : {"_cannot_be_deleted", "_user_stream_label", "_stream_label", "_batch_label"}) {
      if (FindNote(node, mark) != nullptr) return false;
    }
    for (const Input& input : node.inputs) {
      if (input.source.is_set() && writes_.IsWritten(input.source)) return false;
    }
    return !writes_.IsWritten({id, 0});
  }

  std::optional<Member> AsConvolution(NodeId id) const {
    if (!IsFree(id)) return std::nullopt;
    const size_t rank = RankOf({id, 0});
    if (TextOf(id, "data_format") != (rank == 4 ? "NCHW" : "NCDHW")) return std::nullopt;
    const bool is_gradient = at(id).type == "Conv2DBackpropInput";
    const auto x = InputOf(id, is_gradient ? "out_backprop" : "x");
    const auto filter = InputOf(id, "filter");
    if (is_gradient) {
      const auto sizes = InputOf(id, "input_size");
      const Constant* const constant = sizes ? ConstantOf(at(id).inputs[*sizes].source) : nullptr;
      const auto numbers = constant == nullptr ? std::nullopt : IntegersOf(*constant);
      if (!numbers || numbers->size() != rank) return std::nullopt;
    }
    if (!x || !filter || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
    const Constant* const weights = ConstantOf(at(id).inputs[*filter].source);
    if (weights == nullptr || weights->shape.size() != rank || !IsSingleOrHalf(weights->dtype)) return std::nullopt;
    Member member{{*x}, {*filter}, true};
    if (const auto addend = InputOf(id, "addend"); addend && at(id).inputs[*addend].source.is_set()) {
      if (!IsImage(at(id).inputs[*addend].source)) return std::nullopt;
      member.images.push_back(*addend);
    }
    return member;
  }

  std::optional<Member> AsPool(NodeId id) const {
    const Node& node = at(id);
    const bool has_format = node.attributes.contains("data_format");  // NCHW without
    if (!IsFree(id) || RankOf({id, 0}) != 4) return std::nullopt;
    if (has_format && TextOf(id, "data_format") != "NCHW") return std::nullopt;
    for (uint32_t output = 1; output < node.outputs.size(); ++output) {
      if (rewriter_.UseCount(Port{id, output}) != 0) return std::nullopt;
    }
    const auto x = InputOf(id, "x");
    return x ? std::optional(Member{{*x}, {}, true}) : std::nullopt;
  }

  // The dims of `rank` that a mean takes away, in order; nothing where they are not known.
  std::optional<std::vector<int64_t>> AxesOf(NodeId id, size_t rank) const {
    std::optional<std::vector<int64_t>> axes;
    if (at(id).type == "ReduceMeanD") {
      const auto found = at(id).attributes.find("axes");
      if (found == at(id).attributes.end()) return std::nullopt;
      if (const auto* list = std::get_if<std::vector<int64_t>>(&found->second)) axes = *list;
    } else if (const auto input = InputOf(id, "axes")) {
      if (const Constant* constant = ConstantOf(at(id).inputs[*input].source)) axes = IntegersOf(*constant);
    }
    if (!axes) return std::nullopt;
    for (int64_t& axis : *axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    std::sort(axes->begin(), axes->end());
    return axes;
  }

  // The dims of a picture, the first of which is `first`.
  static std::vector<int64_t> SpatialOf(size_t rank, int64_t first) {
    std::vector<int64_t> dims(rank - 2);
    std::iota(dims.begin(), dims.end(), first);
    return dims;
  }

  std::optional<Member> AsMean(NodeId id) const {
    const auto x = InputOf(id, "x");
    if (!x || !IsImage(at(id).inputs[*x].source) || writes_.IsWritten({id, 0})) return std::nullopt;
    const size_t rank = RankOf(at(id).inputs[*x].source);
    const auto axes = AxesOf(id, rank);
    if (!axes || *axes != SpatialOf(rank, 2)) return std::nullopt;
    const opdef::Shape& result = std::as_const(graph_).TensorOf(Port{id, 0}).shape;
    if (!result.has_rank()) return std::nullopt;
    const bool keeps = result.rank() == rank;
    if (keeps && !IsFree(id)) return std::nullopt;
    return Member{{*x}, {}, keeps};
  }

  std::optional<Member> AsJoin(NodeId id) const {
    if (!IsFree(id) || at(id).type != "ConcatD") return std::nullopt;
    const auto found = at(id).attributes.find("concat_dim");
    const auto* dim = found == at(id).attributes.end() ? nullptr : std::get_if<int64_t>(&found->second);
    if (dim == nullptr || (*dim != 1 && *dim != 1 - static_cast<int64_t>(RankOf({id, 0})))) return std::nullopt;
    Member member;
    for (uint32_t i = 0; i < at(id).inputs.size(); ++i) {
      const Port source = at(id).inputs[i].source;
      if (!source.is_set() || !IsImage(source)) return std::nullopt;
      member.images.push_back(i);
    }
    return member;
  }

  std::optional<Member> AsElementwise(NodeId id) const {
    if (!IsFree(id) || at(id).outputs.size() != 1) return std::nullopt;
    Member member;
    const size_t rank = RankOf({id, 0});
    for (uint32_t i = 0; i < at(id).inputs.size(); ++i) {
      const Port source = at(id).inputs[i].source;
      if (!source.is_set()) continue;
      const opdef::Shape& shape = std::as_const(graph_).TensorOf(source).shape;
      if (!shape.has_rank()) return std::nullopt;
      if (shape.elements().Is(1) && shape.rank() < rank) continue;  // a number
      if (shape.rank() != rank) return std::nullopt;
      (ConstantOf(source) != nullptr ? member.constants : member.images).push_back(i);
    }
    return member.images.empty() ? std::nullopt : std::optional(member);
  }

  std::optional<Member> AsMember(NodeId id) const {
    const std::string& type = at(id).type;
    if (at(id).is_removed || at(id).op == nullptr) return std::nullopt;
    if (IsOneOf(kConvolutions, type)) return AsConvolution(id);
    if (IsOneOf(kImagePools, type)) return AsPool(id);
    if (IsOneOf(kImageMeans, type)) return AsMean(id);
    if (IsOneOf(kImageJoins, type)) return AsJoin(id);
    return IsOneOf(kImageElementwise, type) ? AsElementwise(id) : std::nullopt;
  }

  // Convolutions, and what reads at least one image of a member.
  void FindRegions() {
    for (const NodeId id : order_) {
      const bool is_convolution = IsOneOf(kConvolutions, at(id).type);
      auto member = AsMember(id);
      if (!member) continue;
      member->rank = RankOf(at(id).inputs[member->images[0]].source);
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
    return found != members_.end() && port.output == 0 && found->second.gives_image;
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
    std::set<std::pair<NodeId, NodeId>> seen;
    const auto move = [&](NodeId root, const Port& port) {
      if (seen.emplace(root, port.node).second) balance[root] -= kWorthOfMove * ElementsOf(port);
    };
    for (const auto& [id, member] : members_) {
      const NodeId root = RootOf(id);
      for (const uint32_t input : member.images) {
        const Port source = at(id).inputs[input].source;
        if (!GivesImage(source)) move(root, source);
      }
      if (member.gives_image && HasOutsideUse(id)) move(root, {id, 0});
      if (!IsOneOf(kConvolutions, at(id).type)) continue;
      const Constant& filter = *ConstantOf(at(id).inputs[member.constants[0]].source);
      // Each input of a transposed convolution meets all taps, each output of another one.
      const bool is_transposed = IsOneOf(kTransposed, at(id).type);
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
      if (IsOneOf(kConvolutions, at(id).type)) {
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

  bool HasOutsideUse(NodeId id) {
    const std::vector<Use>& uses = rewriter_.UsesOf({id, 0});
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return !ReadsImage(use); });
  }

  Port AddTranspose(const std::string& name, const Port& source, const std::vector<int64_t>& order) {
    const Tensor result = InOrder(graph_.TensorOf(source), order);
    return {rewriter_.AddOperator(name, "TransposeD", {source}, result, {{"perm", order}}), 0};
  }

  void PermuteList(NodeId id, const char* attribute, size_t rank) {
    const auto found = graph_.at(id).attributes.find(attribute);
    if (found == graph_.at(id).attributes.end()) return;
    auto* const list = std::get_if<std::vector<int64_t>>(&found->second);
    if (list != nullptr && list->size() == rank) *list = InOrder(*list, OrderOfLast(rank));
  }

  // Of the type and shape that the constant there has.
  void SetIntegers(const Use& use, const std::vector<int64_t>& numbers, size_t rank) {
    const Node& old = at(at(use.node).inputs[use.index].source.node);
    const NodeId now = rewriter_.AddConstant(
        old.name + MarkOfLast(rank),
        MakeConstant(old.constant->dtype, old.constant->shape, std::span<const int64_t>(numbers)));
    rewriter_.Set(use, {now, 0});
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
        entry->second = {
            rewriter_.AddConstant(at(source.node).name + MarkOfLast(rank), WithChannelsLast(*ConstantOf(source))), 0};
      }
      rewriter_.Set({id, input}, entry->second);
    }
    const std::string type = at(id).type;
    opdef::Attributes& attributes = graph_.at(id).attributes;
    if (IsOneOf(kConvolutions, type) || IsOneOf(kImagePools, type)) {
      attributes.insert_or_assign("data_format", std::string(rank == 4 ? "NHWC" : "NDHWC"));
      for (const char* list : {"strides", "dilations", "ksize", "dilation", "input_size", "output_padding"}) {
        PermuteList(id, list, rank);
      }
      if (type == "Conv2DBackpropInput") {
        const uint32_t sizes = *InputOf(id, "input_size");
        SetIntegers({id, sizes}, InOrder(*IntegersOf(*ConstantOf(at(id).inputs[sizes].source)), OrderOfLast(rank)),
                    rank);
      }
      if (type == "MaxPoolWithArgmaxV3") PermuteList(id, "pads", rank);
    } else if (IsOneOf(kImageJoins, type)) {
      attributes.insert_or_assign("concat_dim", static_cast<int64_t>(rank) - 1);
    } else if (type == "ReduceMeanD") {
      attributes.insert_or_assign("axes", SpatialOf(rank, 1));
    } else if (type == "ReduceMean") {
      SetIntegers({id, *InputOf(id, "axes")}, SpatialOf(rank, 1), rank);
    }
    context_.Changed();
  }

  // Whoever else uses the image gets it as it was.
  void TurnBack(NodeId id) {
    const size_t rank = members_.at(id).rank;
    if (!members_.at(id).gives_image) return;
    std::vector<Use> others;
    for (const Use& use : rewriter_.UsesOf({id, 0})) {
      if (!ReadsImage(use)) others.push_back(use);
    }
    for (Output& output : graph_.at(id).outputs) output.tensor = ChannelsLast(output.tensor);
    if (others.empty()) return;
    const Port back = AddTranspose(at(id).name + MarkOfFirst(rank), {id, 0}, OrderOfFirst(rank));
    for (const Use& use : others) rewriter_.Set(use, back);
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  Writes writes_;
  std::vector<NodeId> order_;
  std::map<NodeId, Member> members_;
  std::map<NodeId, NodeId> parent_;
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
    return !node.is_removed && IsOneOf(kConvolutions, node.type);
  });
  if (has_convolutions) ImageRegions(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
