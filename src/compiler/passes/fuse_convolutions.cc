// SPDX-License-Identifier: Apache-2.0
//
// What follows a convolution, as a part of it: a sum with another tensor, an activation; and borders of zeros in front.
// Convolutions whose channels are split. Pools that need no mask.
#include <algorithm>
#include <limits>
#include <span>

#include "compiler/constant.h"
#include "compiler/passes/fusions.h"
#include "compiler/passes/image_members.h"
#include "compiler/passes/patterns.h"
#include "compiler/type_numbers.h"

namespace reprise::compiler {
namespace {

constexpr float kNoBound = std::numeric_limits<float>::max();
const std::initializer_list<std::string_view> kWithFollowers = {"Conv2D", "Conv2DFused", "Conv3D", "Conv3DFused"};

bool IsFused(const Match& match, NodeId convolution) { return match.graph().at(convolution).type.ends_with("Fused"); }

// What is added to the attributes and inputs of a convolution.
struct Following {
  Port addend;
  const char* activation = "";
  double low = 0, high = 0;
};

// Whether the convolution gives what the root gives, but for the values.
bool HasResultOf(const Match& match, const Tensor& tensor) {
  return tensor.dtype == match.Result().dtype && tensor.shape == match.Result().shape;
}

// A convolution that computes in the type of its result, with a filter that is known: others are not worth it.
NodeId ConvolutionAt(Match& match, Port port) {
  const NodeId node = match.Maker(port, kWithFollowers);
  if (node == kNoNode) return kNoNode;
  const Port filter = match.In(node, "filter");
  const int32_t dtype = match.TensorOf(port).dtype;
  const auto refuse = [&](std::string_view reason) {
    match.Refuse(reason);
    return kNoNode;
  };
  if (!match.IsConstant(filter)) return refuse("the filter is not constant");
  if (match.In(node, "offset_w").is_set()) return refuse("the convolution has an offset");
  if (!IsSingleOrHalf(dtype) || match.TensorOf(match.In(node, "x")).dtype != dtype ||
      match.TensorOf(filter).dtype != dtype) {
    return refuse("the convolution computes in another type");
  }
  if (!HasResultOf(match, match.TensorOf(port))) return refuse("the result has another shape or type");
  return node;
}

void FuseInto(Match& match, NodeId convolution, const Following& following) {
  if (!match.IsClosed()) return;
  opdef::Attributes attributes = match.graph().at(convolution).attributes;
  attributes.erase("offset_x");
  const bool is_fused = IsFused(match, convolution);
  Port addend = following.addend;
  if (is_fused && !addend.is_set()) addend = match.In(convolution, "addend");
  if (*following.activation != '\0') {
    attributes.insert_or_assign("activation", std::string(following.activation));
    if (std::string_view(following.activation) == "Clip") {
      attributes.insert_or_assign("low", static_cast<float>(following.low));
      attributes.insert_or_assign("high", static_cast<float>(following.high));
    }
  }
  std::string type = match.graph().at(convolution).type;
  if (!is_fused) type += "Fused";
  match.Replace(type,
                {{"x", match.In(convolution, "x")},
                 {"filter", match.In(convolution, "filter")},
                 {"bias", match.In(convolution, "bias")},
                 {"addend", addend}},
                std::move(attributes));
}

bool IsActive(const Match& match, NodeId convolution) {
  return IsFused(match, convolution) && !match.Text(convolution, "activation").empty();
}

// A convolution and another tensor of its shape.
void FuseSum(Match& match) {
  const auto [first, second] = match.Both(match.root());
  for (const auto& [sums, addend] : {std::pair(first, second), std::pair(second, first)}) {
    match.BackTo(0);
    if (!match.IsMadeBy(sums, kWithFollowers)) continue;
    // The other one may be a convolution of one reader, as behind a block whose own convolution is read twice.
    if (!match.HasOneReader(sums) && match.HasOneReader(addend)) continue;
    const NodeId convolution = ConvolutionAt(match, sums);
    if (convolution == kNoNode) return;
    const bool has_more =
        IsActive(match, convolution) || (IsFused(match, convolution) && match.In(convolution, "addend").is_set());
    if (has_more) continue;
    if (!HasResultOf(match, match.TensorOf(addend))) continue;
    Following following;
    following.addend = addend;
    return FuseInto(match, convolution, following);
  }
}

void FuseActivation(Match& match) {
  const NodeId convolution = ConvolutionAt(match, match.In("x"));
  if (convolution == kNoNode || IsActive(match, convolution)) return;
  Following following;
  following.activation = "Relu";
  const std::string& type = match.node().type;
  if (type == "Relu") return FuseInto(match, convolution, following);
  if (type == "HardSwish" || type == "Swish") {
    if (type == "Swish" && match.Real(match.root(), "scale") != 1) return match.Refuse("the Swish has a scale");
    following.activation = type == "Swish" ? "Swish" : "HardSwish";
    return FuseInto(match, convolution, following);
  }
  const auto low = match.Number(match.In("clip_value_min"));
  const auto high = match.Number(match.In("clip_value_max"));
  if (!low || !high) return match.Refuse("a bound is no constant number");
  if (!(*low <= *high) || *low < -kNoBound || *high > kNoBound) return match.Refuse("the bounds are none");
  following.activation = "Clip";
  following.low = *low;
  following.high = *high;
  FuseInto(match, convolution, following);
}

// Height and width of a list of MaxPoolWithArgmaxV1, which has them in the middle; nothing for other lengths.
std::vector<int64_t> MiddleOf(const std::vector<int64_t>& list) {
  if (list.size() == 4) return {list[1], list[2]};
  return list.size() == 2 ? list : std::vector<int64_t>();
}

// Largest elements of windows whose mask nobody wants: the operator that need not make it, and takes other layouts.
void FuseMask(Match& match) {
  if (!match.HasUsersOfFirstOutputOnly() || !match.IsClosed()) return;
  opdef::Attributes attributes;
  for (const char* name : {"ksize", "strides", "pads", "dilation"}) {
    const auto found = match.node().attributes.find(name);
    if (found == match.node().attributes.end()) continue;  // dilation: 1
    std::vector<int64_t> sizes = MiddleOf(match.Ints(match.root(), name));
    if (sizes.empty()) return match.Refuse(std::string(name) + " has neither two nor four numbers");
    attributes.insert_or_assign(name, std::move(sizes));
  }
  attributes.insert_or_assign("ceil_mode", match.Flag(match.root(), "ceil_mode"));
  attributes.insert_or_assign("data_format", std::string("NCHW"));
  match.Replace("MaxPoolWithArgmaxV3", {{"x", match.In("x")}}, std::move(attributes));
}

// ---- Borders of zeros ----

// What is added to an image in front of its dims and behind them, by dim; nothing unless that is zeros.
std::optional<std::vector<int64_t>> ZerosAround(const Match& match, NodeId border) {
  if (const std::string mode = match.Text(border, "mode"); !mode.empty() && mode != "constant") return std::nullopt;
  const auto found = match.graph().at(border).attributes.find("paddings_contiguous");
  const bool has_pairs =
      found == match.graph().at(border).attributes.end() || found->second == opdef::AttributeValue(true);
  const Port value = match.In(border, "constant_values");
  if (!has_pairs || (value.is_set() && match.Number(value) != 0)) return std::nullopt;
  auto around = match.Integers(match.In(border, "paddings"));
  const bool fits = around && around->size() == 2 * match.TensorOf({border, 0}).shape.rank() &&
                    std::all_of(around->begin(), around->end(), [](int64_t pad) { return pad >= 0; });
  return fits ? around : std::nullopt;
}

// Pads of a convolution are what stands around its image anyway.
void FuseBorder(Match& match) {
  const NodeId root = match.root();
  // A convolution over one dim has a picture of one row.
  const NodeId view = match.Maker(match.In("x"), {"Reshape"});
  const NodeId border = match.Maker(view == kNoNode ? match.In("x") : match.In(view, "x"), {"PadV3"});
  if (border == kNoNode) return;
  const Port image = match.In(border, "x");
  auto around = ZerosAround(match, border);
  if (!around) return match.Refuse("the border is not of zeros, or of sizes that are not known");
  const bool is_last = match.Text(root, "data_format") != "NCHW";
  std::vector<int64_t> shape;
  if (view != kNoNode) {
    const Tensor& rows = match.TensorOf({border, 0});
    const Tensor& picture = match.TensorOf({view, 0});
    const opdef::Shape& before = match.TensorOf(image).shape;
    const bool is_row = !is_last && rows.shape.rank() == 3 && picture.shape.rank() == 4 && rows.shape.is_static() &&
                        picture.shape.is_static() && before.is_static();
    if (!is_row) return match.Refuse("the border is that of another image");
    const std::vector<int64_t> sizes = rows.shape.numbers(), seen = picture.shape.numbers();
    if (seen != std::vector<int64_t>{sizes[0], sizes[1], 1, sizes[2]})
      return match.Refuse("the border is that of another image");
    around->insert(around->begin() + 4, {0, 0});
    shape = before.numbers();
    shape.insert(shape.begin() + 2, 1);
  }
  std::vector<int64_t> pads = match.Ints(root, "pads");
  if (pads.size() != 4 || around->size() != 8) return match.Refuse("the pads are not four numbers");
  const size_t first = is_last ? 1 : 2;  // spatial dim
  for (size_t i = 0; i < 8; ++i) {
    if (i / 2 >= first && i / 2 < first + 2) {
      pads[i - 2 * first] += (*around)[i];
    } else if ((*around)[i] != 0) {
      return match.Refuse("the border adds channels, or images");
    }
  }
  if (match.Int(root, "offset_x") != 0) return match.Refuse("the convolution has an offset");
  if (!match.IsClosed()) return;
  Port x = image;
  if (view != kNoNode) {
    Tensor picture = match.TensorOf({view, 0});
    picture.shape = opdef::Shape::Of(shape);
    x = match.AddOperator("image", "Reshape", {{"x", image}, {"shape", match.AddIntegers("shape", shape)}}, picture);
  }
  opdef::Attributes attributes = match.node().attributes;
  attributes.insert_or_assign("pads", std::move(pads));
  match.Replace(
      "Conv2D",
      {{"x", x}, {"filter", match.In("filter")}, {"bias", match.In("bias")}, {"offset_w", match.In("offset_w")}},
      std::move(attributes));
}

// ---- Channels that are split ----

// Outputs of a part that a convolution of its own is worth: whole vectors.
constexpr int64_t kLeastOutputsOfPart = 16;
constexpr size_t kMostParts = 4;
// Channels of the inputs that are read once more, for each of the outputs that are not copied.
constexpr int64_t kMostReadAgain = 2;

// Rows of a constant, from `begin` on.
std::shared_ptr<const Constant> RowsOf(const Constant& constant, int64_t begin, int64_t count) {
  auto rows = std::make_shared<Constant>();
  rows->dtype = constant.dtype;
  rows->shape = constant.shape;
  rows->shape[0] = count;
  const size_t bytes = constant.bytes.size() / static_cast<size_t>(constant.shape[0]);
  const auto first = constant.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(begin) * bytes);
  rows->bytes.assign(first, first + static_cast<std::ptrdiff_t>(static_cast<size_t>(count) * bytes));
  return rows;
}

// Each part of the channels gets a convolution of its own, which what follows the part can become a part of.
class ConvSplitter {
 public:
  ConvSplitter(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), rewriter_(graph), images_(rewriter_) {}

  void Visit(NodeId id) {
    const std::string& type = at(id).type;
    if (at(id).is_removed || (type != "SplitD" && type != "SplitV")) return;
    const auto member = images_.Of(id);
    if (!member || HasOrder(id)) return;
    Port whole = at(id).inputs[member->images[0]].source;
    if (at(whole.node).type == "Reshape") {
      const auto reshape = images_.Of(whole.node);
      if (!reshape || !rewriter_.HasOneReader(whole) || HasOrder(whole.node)) return;
      whole = at(whole.node).inputs[reshape->images[0]].source;
    }
    const NodeId convolution = whole.node;
    if (at(convolution).type != "Conv2D") return;
    if (const char* const reason = WhyNot(id, whole)) return context_.Refused(at(convolution), reason);
    int64_t begin = 0;
    for (uint32_t output = 0; output < at(id).outputs.size(); ++output) {
      const int64_t count = ChannelsOf({id, output});
      rewriter_.ReplaceUses({id, output}, PartOf(convolution, id, output, begin, count));
      begin += count;
    }
    rewriter_.RemoveWithSources(id);
    context_.Changed();
  }

 private:
  const Node& at(NodeId id) const { return std::as_const(graph_).at(id); }
  int64_t ChannelsOf(Port port) const { return std::as_const(graph_).TensorOf(port).shape.numbers()[1]; }
  bool HasOrder(NodeId id) { return !rewriter_.FollowersOf(id).empty() || !at(id).after.empty(); }

  const char* WhyNot(NodeId split, Port sums) {
    const NodeId convolution = sums.node;
    const std::vector<Output>& parts = at(split).outputs;
    if (!images_.Of(convolution)) return "the filter is not constant";
    if (!rewriter_.HasOneReader(sums) || HasOrder(convolution)) return "the result has other users";
    if (parts.size() > kMostParts) return "the channels are split into many parts";
    for (uint32_t output = 0; output < parts.size(); ++output) {
      if (!images_.SizesOf({split, output})) return "the shape of a part is not known";
      if (ChannelsOf({split, output}) % kLeastOutputsOfPart != 0) return "a part has no multiple of 16 channels";
    }
    if (!images_.SizesOf(sums)) return "the shape of the result is not known";
    const auto x = images_.InputOf(convolution, "x");
    const auto inputs = images_.SizesOf(at(convolution).inputs[*x].source);
    if (!inputs) return "the shape of the input is not known";
    if ((static_cast<int64_t>(parts.size()) - 1) * (*inputs)[1] > kMostReadAgain * ChannelsOf(sums))
      return "to read the input for each part costs more than a copy";
    const auto groups = at(convolution).attributes.find("groups");
    if (groups != at(convolution).attributes.end() && groups->second != opdef::AttributeValue(int64_t{1}))
      return "the convolution has groups";
    for (const char* operand : {"bias", "offset_w"}) {
      const auto input = images_.InputOf(convolution, operand);
      if (!input || !at(convolution).inputs[*input].source.is_set()) continue;
      if (std::string_view(operand) == "offset_w") return "the convolution has an offset";
      if (images_.ConstantOf(at(convolution).inputs[*input].source) == nullptr) return "the bias is not constant";
    }
    return nullptr;
  }

  Port PartOf(NodeId convolution, NodeId split, uint32_t output, int64_t begin, int64_t count) {
    const std::string name = at(convolution).name + "_" + std::to_string(output);
    const NodeId part = rewriter_.Clone(convolution, name);
    for (const char* operand : {"filter", "bias"}) {
      const auto input = images_.InputOf(convolution, operand);
      if (!input || !at(convolution).inputs[*input].source.is_set()) continue;
      const NodeId all = at(convolution).inputs[*input].source.node;
      const NodeId rows =
          rewriter_.AddConstant(at(all).name + "_" + std::to_string(output), RowsOf(*at(all).constant, begin, count));
      rewriter_.Set({part, *input}, {rows, 0});
    }
    std::vector<int64_t> sizes = std::as_const(graph_).TensorOf({convolution, 0}).shape.numbers();
    sizes[1] = count;
    graph_.at(part).outputs[0].tensor.shape = opdef::Shape::Of(sizes);
    const Tensor wanted = graph_.TensorOf({split, output});
    const std::vector<int64_t> numbers = wanted.shape.numbers();
    if (numbers == sizes) return {part, 0};
    const NodeId shape = rewriter_.AddConstant(
        name + "_shape",
        MakeConstant(kInt64Number, {static_cast<int64_t>(numbers.size())}, std::span<const int64_t>(numbers)));
    return {rewriter_.AddOperator(name + "_view", "Reshape", {{part, 0}, {shape, 0}}, wanted), 0};
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  ImageMembers images_;
};

Status RunSplit(Graph& graph, PassContext& context) {
  const bool has_convolutions = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                            [](const Node& node) { return !node.is_removed && node.type == "Conv2D"; });
  if (!has_convolutions) return {};
  ConvSplitter splitter(graph, context);
  for (NodeId id = 0, count = static_cast<NodeId>(graph.nodes.size()); id < count; ++id) splitter.Visit(id);
  return {};
}

Status RunBorder(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Conv2D"}, FuseBorder); }
Status RunMask(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"MaxPoolWithArgmaxV1"}, FuseMask);
}
Status RunSum(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Add", "AddV2"}, FuseSum); }
Status RunActivation(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Relu", "ClipByValue", "ClipByValueV2", "HardSwish", "Swish"}, FuseActivation);
}

constexpr Pass kConvolutionPasses[] = {
    Fusion("MaxPoolMaskFusionPass", RunMask, "largest elements of windows without their mask"),
    Fusion("ConvPadFusionPass", RunBorder, "a border of zeros in front of a convolution"),
    Fusion("ConvSplitFusionPass", RunSplit, "a convolution for each part of its channels"),
    Fusion("ConvAddFusionPass", RunSum, "a tensor added to a convolution"),
    Fusion("ConvActivationFusionPass", RunActivation, "Relu, bounds, HardSwish or Swish behind a convolution"),
};

}  // namespace

std::span<const Pass> ConvolutionFusions() { return kConvolutionPasses; }

}  // namespace reprise::compiler
