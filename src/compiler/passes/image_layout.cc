// SPDX-License-Identifier: Apache-2.0
//
// Convolutions in a row, and what stands between them, with channels behind the spatial dims (NHWC, NDHWC), as their
// kernels like it; transposes only where such a region begins and ends.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/patterns.h"
#include "compiler/passes/permutation.h"
#include "compiler/passes/writes.h"
#include "compiler/type_numbers.h"

namespace reprise::compiler {
namespace {

constexpr std::string_view kConvolutions[] = {"Conv2D", "Conv2DBackpropInput", "Conv2DFused", "Conv2DTransposeD",
                                              "Conv3D", "Conv3DFused"};
constexpr std::string_view kTransposed[] = {"Conv2DBackpropInput", "Conv2DTransposeD"};
constexpr std::string_view kImagePools[] = {"AvgPoolV2", "MaxPoolWithArgmaxV3"};
constexpr std::string_view kImageMeans[] = {"ReduceMean", "ReduceMeanD"};
constexpr std::string_view kImageJoins[] = {"ConcatD", "ConcatV2"};
constexpr std::string_view kImageSplits[] = {"SplitD", "SplitV"};
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

// Pictures of one, two and three spatial dims.
constexpr size_t kLeastRank = 3, kMostRank = 5;

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

const char* MarkOfLast(size_t rank) { return rank == 3 ? "_nwc" : rank == 4 ? "_nhwc" : "_ndhwc"; }
const char* MarkOfFirst(size_t rank) { return rank == 3 ? "_ncw" : rank == 4 ? "_nchw" : "_ncdhw"; }

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
      : graph_(graph), context_(context), rewriter_(graph), writes_(graph) {}

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
  // What a member makes of its operands.
  struct Member {
    std::vector<uint32_t> images;     // inputs that come with channels behind, by index in Node::inputs
    std::vector<uint32_t> constants;  // inputs of as many dims that are constants
    uint32_t gives = 1;               // how many of its outputs, from the first on, have channels behind, too
    size_t rank = 4;                  // of its images
  };

  struct Shuffle {
    int64_t groups = 0;
    std::vector<Node> nodes;  // as they were, the last one first
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
    return shape.has_rank() && shape.rank() >= kLeastRank && shape.rank() <= kMostRank;
  }
  size_t RankOf(const Port& port) const { return std::as_const(graph_).TensorOf(port).shape.rank(); }
  const Constant* ConstantOf(const Port& port) const { return port.is_set() ? at(port.node).constant.get() : nullptr; }

  std::string TextOf(NodeId id, std::string_view attribute) const {
    const auto found = at(id).attributes.find(attribute);
    const auto* text = found == at(id).attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? std::string() : *text;
  }

  static bool IsMarked(const Node& node) {
    const char* const marks[] = {"_cannot_be_deleted", "_user_stream_label", "_stream_label", "_batch_label"};
    return std::any_of(std::begin(marks), std::end(marks), [&](auto mark) { return FindNote(node, mark) != nullptr; });
  }

  // A node that may be moved to another layout at all.
  bool IsFree(NodeId id) const {
    const Node& node = at(id);
    if (node.is_removed || node.op == nullptr || node.outputs.empty() || !IsImage({id, 0})) return false;
    if (IsMarked(node)) return false;
    for (const Input& input : node.inputs) {
      if (input.source.is_set() && writes_.IsWritten(input.source)) return false;
    }
    for (uint32_t output = 0; output < node.outputs.size(); ++output) {
      if (writes_.IsWritten({id, output})) return false;
    }
    return true;
  }

  std::optional<Member> AsConvolution(NodeId id) const {
    if (!IsFree(id)) return std::nullopt;
    const size_t rank = RankOf({id, 0});
    if (rank < 4 || TextOf(id, "data_format") != (rank == 4 ? "NCHW" : "NCDHW")) return std::nullopt;
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
    Member member{{*x}, {*filter}};
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
    return x ? std::optional(Member{{*x}, {}}) : std::nullopt;
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
    return Member{{*x}, {}, keeps ? 1u : 0u};
  }

  // The dim that an attribute or a constant of that name tells, from the front.
  std::optional<int64_t> DimOf(NodeId id, const char* name, size_t rank) const {
    std::optional<int64_t> dim;
    if (const auto found = at(id).attributes.find(name); found != at(id).attributes.end()) {
      if (const auto* number = std::get_if<int64_t>(&found->second)) dim = *number;
    } else if (const auto input = InputOf(id, name)) {
      const Constant* const constant = ConstantOf(at(id).inputs[*input].source);
      const auto numbers = constant == nullptr ? std::nullopt : IntegersOf(*constant);
      if (numbers && numbers->size() == 1) dim = numbers->front();
    }
    if (dim && *dim < 0) *dim += static_cast<int64_t>(rank);
    return dim;
  }
  void SetDim(NodeId id, const char* name, int64_t dim, size_t rank) {
    if (const auto input = InputOf(id, name)) {
      SetIntegers({id, *input}, {dim}, rank);
    } else {
      graph_.at(id).attributes.insert_or_assign(name, dim);
    }
  }

  // Of pictures, channel behind channel.
  std::optional<Member> AsJoin(NodeId id) const {
    if (!IsFree(id) || DimOf(id, "concat_dim", RankOf({id, 0})) != 1) return std::nullopt;
    const auto dim = InputOf(id, "concat_dim");
    Member member;
    for (uint32_t i = 0; i < at(id).inputs.size(); ++i) {
      if (dim == i) continue;
      const Port source = at(id).inputs[i].source;
      if (!source.is_set() || !IsImage(source)) return std::nullopt;
      member.images.push_back(i);
    }
    return member.images.empty() ? std::nullopt : std::optional(member);
  }

  // Into some of the channels each.
  std::optional<Member> AsSplit(NodeId id) const {
    const auto x = InputOf(id, "x");
    if (!IsFree(id) || !x || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
    if (DimOf(id, "split_dim", RankOf({id, 0})) != 1) return std::nullopt;
    return Member{{*x}, {}, static_cast<uint32_t>(at(id).outputs.size())};
  }

  // Borders of a constant.
  std::optional<Member> AsPad(NodeId id) const {
    const auto x = InputOf(id, "x");
    const auto paddings = InputOf(id, "paddings");
    if (!IsFree(id) || !x || !paddings || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
    if (const std::string mode = TextOf(id, "mode"); !mode.empty() && mode != "constant") return std::nullopt;
    const auto pairs = at(id).attributes.find("paddings_contiguous");
    if (pairs != at(id).attributes.end() && pairs->second != opdef::AttributeValue(true)) return std::nullopt;
    const Constant* const constant = ConstantOf(at(id).inputs[*paddings].source);
    const auto numbers = constant == nullptr ? std::nullopt : IntegersOf(*constant);
    return numbers && numbers->size() == 2 * RankOf({id, 0}) ? std::optional(Member{{*x}, {}}) : std::nullopt;
  }

  // Pixels in another form: [n, c, h, w] as [n, c, h * w].
  std::optional<Member> AsReshape(NodeId id) const {
    const auto x = InputOf(id, "x");
    const auto shape = InputOf(id, "shape");
    if (!IsFree(id) || !x || !shape || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
    const auto before = SizesOf(at(id).inputs[*x].source);
    const auto after = SizesOf({id, 0});
    const bool keeps_channels = before && after && (*before)[0] == (*after)[0] && (*before)[1] == (*after)[1];
    if (!keeps_channels || ConstantOf(at(id).inputs[*shape].source) == nullptr) return std::nullopt;
    return Member{{*x}, {}};
  }

  // The sizes of a tensor; nothing where one is not known.
  std::optional<std::vector<int64_t>> SizesOf(const Port& port) const {
    const opdef::Shape& shape = std::as_const(graph_).TensorOf(port).shape;
    if (!shape.has_rank()) return std::nullopt;
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape.rank(); ++d) {
      if (!shape[d].is_number()) return std::nullopt;
      sizes.push_back(shape[d].number());
    }
    return sizes;
  }

  // The groups of channels of which a transpose takes the first ones, then the second ones and so on, in pictures of
  // these sizes: it exchanges two dims between what lies in front of the channels and what lies behind.
  std::optional<int64_t> GroupsOf(NodeId transpose, const std::vector<int64_t>& picture) const {
    const auto permutation = PermutationOf(graph_, transpose);
    const auto sizes = SizesOf(at(transpose).inputs[0].source);
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
      if (at(id).is_removed || at(id).type != "Reshape" || !IsFree(id)) continue;
      const auto sizes = SizesOf({id, 0});
      if (!sizes) continue;
      Shuffle shuffle{};
      Port source = at(id).inputs[0].source;
      std::vector<NodeId> nodes;
      while (source.is_set() && (shuffle.groups == 0 || SizesOf(source) != sizes)) {
        const Node& node = at(source.node);
        const bool is_reshape = node.type == "Reshape";
        if (node.inputs.empty() || node.inputs[0].name != "x" || IsMarked(node) || !rewriter_.HasOneReader(source))
          break;
        if (!is_reshape) {
          const auto groups = shuffle.groups == 0 ? GroupsOf(source.node, *sizes) : std::nullopt;
          if (!groups) break;
          shuffle.groups = *groups;
        }
        nodes.push_back(source.node);
        source = node.inputs[0].source;
      }
      if (shuffle.groups == 0 || !source.is_set() || SizesOf(source) != sizes || writes_.IsWritten(source)) continue;
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
    const std::vector<int64_t> sizes = *SizesOf(x);
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
    SetIntegers({id, *InputOf(id, "shape")}, sizes, sizes.size());
  }

  // Some elements of some dims.
  std::optional<Member> AsSlice(NodeId id) const {
    const auto x = InputOf(id, "x");
    const auto axes = InputOf(id, "axes");
    if (!IsFree(id) || !x || !axes || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
    for (const auto& [name, value] : at(id).attributes) {
      const auto* const mask = std::get_if<int64_t>(&value);
      if (name.ends_with("_mask") && (mask == nullptr || *mask != 0)) return std::nullopt;
    }
    const Constant* const constant = ConstantOf(at(id).inputs[*axes].source);
    const auto numbers = constant == nullptr ? std::nullopt : IntegersOf(*constant);
    const auto rank = static_cast<int64_t>(RankOf({id, 0}));
    const bool are_dims = numbers && std::all_of(numbers->begin(), numbers->end(),
                                                 [&](int64_t axis) { return axis >= -rank && axis < rank; });
    return are_dims ? std::optional(Member{{*x}, {}}) : std::nullopt;
  }

  // Of inference, by constants.
  std::optional<Member> AsNorm(NodeId id) const {
    const auto x = InputOf(id, "x");
    if (!IsFree(id) || !x || !IsImage(at(id).inputs[*x].source) || !FactorsOf(id)) return std::nullopt;
    return Member{{*x}, {}};
  }

  // A norm as what each channel is multiplied by, and what is added then.
  struct Factors {
    std::vector<double> scale, offset;
  };
  std::optional<Factors> FactorsOf(NodeId id) const {
    constexpr const char* kParameters[] = {"scale", "offset", "mean", "variance"};
    const Tensor& result = std::as_const(graph_).TensorOf(Port{id, 0});
    if (result.dtype != kFloat32 || !result.shape[1].is_number()) return std::nullopt;
    const auto channels = static_cast<size_t>(result.shape[1].number());
    std::vector<double> numbers[4];
    for (size_t i = 0; i < 4; ++i) {
      const auto input = InputOf(id, kParameters[i]);
      const Constant* const constant = input ? ConstantOf(at(id).inputs[*input].source) : nullptr;
      auto elements = constant == nullptr ? std::nullopt : RealsOf(*constant);
      if (!elements || elements->size() != channels) return std::nullopt;
      numbers[i] = std::move(*elements);
    }
    const auto found = at(id).attributes.find("epsilon");
    const auto* const epsilon = found == at(id).attributes.end() ? nullptr : std::get_if<float>(&found->second);
    if (epsilon == nullptr) return std::nullopt;
    Factors factors;
    for (size_t c = 0; c < channels; ++c) {
      const double scale = numbers[0][c] / std::sqrt(numbers[3][c] + static_cast<double>(*epsilon));
      const double offset = numbers[1][c] - numbers[2][c] * scale;
      if (!std::isfinite(scale) || !std::isfinite(offset)) return std::nullopt;
      factors.scale.push_back(scale);
      factors.offset.push_back(offset);
    }
    return factors;
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
    if (IsOneOf(kImageSplits, type)) return AsSplit(id);
    if (type == "StridedSliceV2") return AsSlice(id);
    if (type == "PadV3") return AsPad(id);
    if (shuffles_.contains(id)) return Member{{0}, {}};
    if (type == "Reshape") return AsReshape(id);
    if (type == "BNInfer") return AsNorm(id);
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

  bool HasOutsideUse(Port port) {
    const std::vector<Use>& uses = rewriter_.UsesOf(port);
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
      SetDim(id, "concat_dim", static_cast<int64_t>(rank) - 1, rank);
    } else if (IsOneOf(kImageSplits, type)) {
      SetDim(id, "split_dim", static_cast<int64_t>(rank) - 1, rank);
    } else if (type == "PadV3") {
      const uint32_t paddings = *InputOf(id, "paddings");
      const std::vector<int64_t> numbers = *IntegersOf(*ConstantOf(at(id).inputs[paddings].source));
      std::vector<int64_t> turned;
      for (const int64_t d : OrderOfLast(rank)) {
        turned.insert(turned.end(), numbers.begin() + 2 * d, numbers.begin() + 2 * d + 2);
      }
      SetIntegers({id, paddings}, turned, rank);
    } else if (type == "Reshape" && !shuffles_.contains(id)) {
      const std::vector<int64_t> sizes = *SizesOf({id, 0});
      SetIntegers({id, *InputOf(id, "shape")}, InOrder(sizes, OrderOfLast(sizes.size())), sizes.size());
    } else if (type == "StridedSliceV2") {
      const uint32_t axes = *InputOf(id, "axes");
      std::vector<int64_t> numbers = *IntegersOf(*ConstantOf(at(id).inputs[axes].source));
      const std::vector<int64_t> order = OrderOfFirst(rank);  // where each dim is now
      for (int64_t& axis : numbers)
        axis = order[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis)];
      SetIntegers({id, axes}, numbers, rank);
    } else if (type == "ReduceMeanD") {
      attributes.insert_or_assign("axes", SpatialOf(rank, 1));
    } else if (type == "ReduceMean") {
      SetIntegers({id, *InputOf(id, "axes")}, SpatialOf(rank, 1), rank);
    }
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
      const Factors factors = *FactorsOf(id);
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
    const size_t rank = RankOf({id, 0});
    std::vector<std::pair<uint32_t, Use>> others;
    for (uint32_t output = 0; output < gives; ++output) {
      for (const Use& use : rewriter_.UsesOf({id, output})) {
        if (!ReadsImage(use)) others.emplace_back(output, use);
      }
    }
    for (Output& output : graph_.at(id).outputs) output.tensor = ChannelsLast(output.tensor);
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
  Writes writes_;
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
    return !node.is_removed && IsOneOf(kConvolutions, node.type);
  });
  if (has_convolutions) ImageRegions(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
