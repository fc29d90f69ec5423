// SPDX-License-Identifier: Apache-2.0
//
// What follows a convolution, as a part of it: a sum with another tensor, an activation. Pools that need no mask.
#include <limits>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

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

Status RunMask(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"MaxPoolWithArgmaxV1"}, FuseMask);
}
Status RunSum(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Add", "AddV2"}, FuseSum); }
Status RunActivation(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Relu", "ClipByValue", "ClipByValueV2", "HardSwish", "Swish"}, FuseActivation);
}

constexpr Pass kConvolutionPasses[] = {
    Fusion("MaxPoolMaskFusionPass", RunMask, "largest elements of windows without their mask"),
    Fusion("ConvAddFusionPass", RunSum, "a tensor added to a convolution"),
    Fusion("ConvActivationFusionPass", RunActivation, "Relu, bounds, HardSwish or Swish behind a convolution"),
};

}  // namespace

std::span<const Pass> ConvolutionFusions() { return kConvolutionPasses; }

}  // namespace reprise::compiler
