// SPDX-License-Identifier: Apache-2.0
//
// What stands around products and convolutions: transposes, biases, batch norms.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

bool IsBatched(const Node& node) { return node.type.starts_with("Batch"); }

// The attribute that transposes operand 0 or 1.
const char* FlagName(const Node& node, int operand) {
  constexpr const char* kNames[2][2] = {{"transpose_x1", "transpose_x2"}, {"adj_x1", "adj_x2"}};
  return kNames[IsBatched(node)][operand];
}

// ---- Transposes into products ----

// The dims of a transpose; nothing where they are not known.
std::vector<int64_t> PermutationOf(const Match& match, NodeId transpose) {
  std::vector<int64_t> perm;
  const std::string& type = match.graph().at(transpose).type;
  if (type == "Transpose") {
    perm = match.Integers(match.In(transpose, "perm")).value_or(std::vector<int64_t>());
  } else {
    perm = match.Ints(transpose, type == "Permute" ? "order" : "perm");
  }
  const opdef::Shape& shape = match.TensorOf(match.In(transpose, "x")).shape;
  if (!shape.has_rank() || shape.rank() != perm.size()) return {};
  for (int64_t& dim : perm) dim += dim < 0 ? static_cast<int64_t>(perm.size()) : 0;
  return perm;
}

// A transpose in front of a product, as a flag of the product; where it moves other dims, too, what is left of it keeps
// the rows of its source together.
void FuseTranspose(Match& match) {
  Port sources[2] = {match.In("x1"), match.In("x2")};
  bool flags[2] = {match.Flag(match.root(), FlagName(match.node(), 0)),
                   match.Flag(match.root(), FlagName(match.node(), 1))};
  bool is_changed = false;
  for (int i = 0; i < 2; ++i) {
    const size_t mark = match.Mark();
    const NodeId transpose = match.Maker(sources[i], {"Transpose", "TransposeD", "Permute"});
    if (transpose == kNoNode) continue;
    std::vector<int64_t> perm = PermutationOf(match, transpose);
    const size_t rank = perm.size();
    if (rank < 2 || perm[rank - 2] + 1 != static_cast<int64_t>(rank) || !match.IsClosed()) {
      match.BackTo(mark);
      continue;
    }
    std::swap(perm[rank - 2], perm[rank - 1]);
    sources[i] = match.In(transpose, "x");
    if (!std::is_sorted(perm.begin(), perm.end())) sources[i] = match.AddTranspose(transpose, perm);
    flags[i] = !flags[i];
    is_changed = true;
  }
  if (!is_changed) return;
  opdef::Attributes attributes = match.node().attributes;
  for (int i = 0; i < 2; ++i) attributes.insert_or_assign(FlagName(match.node(), i), flags[i]);
  const std::string type = match.node().type;
  match.Replace(type, {{"x1", sources[0]}, {"x2", sources[1]}, {"bias", match.In("bias")}}, std::move(attributes));
}

// What an exchange of the last two dims reads; not set where the port is none. It becomes part of the pattern.
Port BeforeExchange(Match& match, Port port) {
  const size_t mark = match.Mark();
  const NodeId transpose = match.Maker(port, {"Transpose", "TransposeD", "Permute"});
  if (transpose == kNoNode) return {};
  if (PermutationOf(match, transpose) == std::vector<int64_t>{1, 0}) return match.In(transpose, "x");
  match.BackTo(mark);
  return {};
}

// A transposed matrix of int8 in front of a quantised product, as a flag. The scales of weights are exchanged with
// them.
void FuseQuantisedTranspose(Match& match) {
  const bool is_weight_only = match.node().type == "WeightQuantBatchMatmulV2";
  const char* const operand = is_weight_only ? "weight" : "x2";
  const char* const flag = is_weight_only ? "transpose_weight" : "transpose_x2";
  constexpr int32_t kInt8 = 2;
  if (match.TensorOf(match.In(operand)).dtype != kInt8) return;
  const Port weight = BeforeExchange(match, match.In(operand));
  if (!weight.is_set()) return;
  opdef::Attributes attributes = match.node().attributes;
  attributes.insert_or_assign(flag, !match.Flag(match.root(), flag));
  const Port bias = match.In("bias");
  if (!is_weight_only) {
    if (!match.IsClosed()) return;
    return match.Replace("QuantBatchMatmulV3",
                         {{"x1", match.In("x1")},
                          {"x2", weight},
                          {"scale", match.In("scale")},
                          {"offset", match.In("offset")},
                          {"bias", bias},
                          {"pertoken_scale", match.In("pertoken_scale")}},
                         std::move(attributes));
  }
  Port factors[2] = {match.In("antiquant_scale"), match.In("antiquant_offset")};
  for (Port& factor : factors) {
    if (!factor.is_set() || match.TensorOf(factor).shape.rank() == 1) continue;
    factor = BeforeExchange(match, factor);
    if (!factor.is_set()) return match.Refuse("the scales of groups are not transposed");
  }
  if (!match.IsClosed()) return;
  match.Replace("WeightQuantBatchMatmulV2",
                {{"x", match.In("x")},
                 {"weight", weight},
                 {"antiquant_scale", factors[0]},
                 {"antiquant_offset", factors[1]},
                 {"quant_scale", match.In("quant_scale")},
                 {"quant_offset", match.In("quant_offset")},
                 {"bias", bias}},
                std::move(attributes));
}

// ---- Batches of batches ----

// A product of batches whose dims in front were made one, and are taken apart again: the product takes them as they
// are.
void FuseFlattening(Match& match) {
  const Port product = match.In("x");
  const NodeId node = match.Maker(product, {"BatchMatMul", "BatchMatMulV2"});
  const opdef::Shape& result = match.Result().shape;
  if (node == kNoNode || !result.has_rank() || result.rank() < 4) return;
  const opdef::Shape& flat = match.TensorOf(product).shape;
  const size_t rank = result.rank();
  if (!flat.has_rank() || flat.rank() != 3 || !AreEqual(flat[1], result[rank - 2]) ||
      !AreEqual(flat[2], result[rank - 1])) {
    return;
  }
  const Port first = match.BeforeFlattening(match.In(node, "x1"), rank);
  const Port second = match.BeforeFlattening(match.In(node, "x2"), rank);
  if (!first.is_set() || !second.is_set()) return;
  for (const Port operand : {first, second}) {
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (AreEqual(match.TensorOf(operand).shape[d], result[d])) continue;
      return match.Refuse("the dims in front of the operands are not those of the result");
    }
  }
  if (!match.IsClosed()) return;
  opdef::Attributes attributes = match.graph().at(node).attributes;
  const std::string type = match.graph().at(node).type;
  match.Replace(type, {{"x1", first}, {"x2", second}, {"bias", match.In(node, "bias")}}, std::move(attributes));
}

// ---- Operands that were broadcast ----

// An operand of a product of batches that was repeated for each of its matrices: the product does that itself.
void FuseBroadcast(Match& match) {
  Port operands[2] = {match.In("x1"), match.In("x2")};
  const opdef::Shape& result = match.Result().shape;
  if (!result.has_rank()) return;
  const size_t rank = result.rank();
  bool is_changed = false;
  for (int i = 0; i < 2; ++i) {
    const size_t mark = match.Mark();
    const NodeId broadcast = match.Maker(operands[i], {"BroadcastTo", "Expand"});
    if (broadcast == kNoNode) continue;
    const Port source = match.In(broadcast, "x");
    const opdef::Shape& narrow = match.TensorOf(source).shape;
    const opdef::Shape& wide = match.TensorOf(operands[i]).shape;
    const opdef::Shape& other = match.TensorOf(operands[1 - i]).shape;
    bool is_fit = narrow.has_rank() && narrow.rank() >= 2 && wide.has_rank() && wide.rank() == rank &&
                  other.has_rank() && other.rank() == rank;
    // The matrix stays what it is, and the other operand has all of the batch.
    for (size_t d = 0; is_fit && d < 2; ++d) {
      is_fit = AreEqual(narrow[narrow.rank() - 1 - d], wide[rank - 1 - d]);
    }
    for (size_t d = 0; is_fit && d + 2 < rank; ++d) is_fit = AreEqual(other[d], result[d]);
    if (!is_fit || !match.IsClosed()) {
      match.BackTo(mark);
      continue;
    }
    operands[i] = source;
    is_changed = true;
  }
  if (!is_changed) return;
  opdef::Attributes attributes = match.node().attributes;
  const std::string type = match.node().type;
  match.Replace(type, {{"x1", operands[0]}, {"x2", operands[1]}, {"bias", match.In("bias")}}, std::move(attributes));
}

// ---- Biases of products ----

// product + bias, where bias has one element for each column
void FuseProductBias(Match& match) {
  const auto [first, second] = match.Both(match.root());
  for (const auto& [product, bias] : {std::pair(first, second), std::pair(second, first)}) {
    match.BackTo(0);
    const NodeId node = match.Maker(product, {"MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"});
    if (node == kNoNode || match.In(node, "bias").is_set() || match.In(node, "offset_w").is_set()) continue;
    const Tensor& sum = match.Result();
    const Tensor& addend = match.TensorOf(bias);
    const Tensor& factor = match.TensorOf(match.In(node, "x1"));
    const Tensor& plain = match.TensorOf(product);
    if (!sum.shape.has_rank() || !addend.shape.has_rank() || sum.shape != plain.shape || sum.dtype != plain.dtype) {
      return match.Refuse("the sum has another shape or type than the product");
    }
    const size_t rank = addend.shape.rank();
    const bool is_row = rank == 1 || (rank == 2 && addend.shape[0].Is(1));
    if (!is_row || !AreEqual(addend.shape.back(), sum.shape.back())) {
      return match.Refuse(fmt::format("{} is no row of the product", match.graph().TextOf(bias)));
    }
    if (addend.dtype != factor.dtype && !(addend.dtype == kFloat32 && IsSingleOrHalf(factor.dtype))) {
      return match.Refuse("the bias has another type than the product");
    }
    if (!IsSingleOrHalf(factor.dtype)) return match.Refuse("the product is one of integers or wide numbers");
    if (!match.IsClosed()) return;
    opdef::Attributes attributes = match.graph().at(node).attributes;
    const char* type = IsBatched(match.graph().at(node)) ? "BatchMatMulV2" : "MatMulV2";
    return match.Replace(type, {{"x1", match.In(node, "x1")}, {"x2", match.In(node, "x2")}, {"bias", bias}},
                         std::move(attributes));
  }
}

// ---- Products of int8 ----

// A product of int8 that is scaled for each column and becomes float16 or bfloat16.
void FuseDequantisation(Match& match) {
  const int32_t dtype = match.Result().dtype;
  if (dtype != kFloat16 && dtype != kBFloat16) return;
  const Product product = match.Factors(match.In("x"));
  if (product.ports.empty() || product.ports.size() > 2 || !product.divisors.empty()) return;
  const size_t mark = match.Mark();
  for (size_t i = 0; i < product.ports.size(); ++i) {
    match.BackTo(mark);
    const Port sums = match.BeforeCast(product.ports[i]);
    const NodeId node = match.Maker(sums, {"MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"});
    constexpr int32_t kInt8 = 2;
    if (node == kNoNode || match.TensorOf(match.In(node, "x1")).dtype != kInt8 || product.ports[i] == sums) continue;
    if (match.TensorOf(match.In("x")).dtype != kFloat32 || match.TensorOf(product.ports[i]).dtype != kFloat32) {
      return match.Refuse("the product is not scaled in float32");
    }
    Port scale;
    if (product.ports.size() == 2) {
      scale = product.ports[1 - i];
      const Tensor& tensor = match.TensorOf(scale);
      if (product.factor != 1 || tensor.dtype != kFloat32 || !tensor.shape.has_rank() || tensor.shape.rank() != 1 ||
          !AreEqual(tensor.shape[0], match.Result().shape.back())) {
        return match.Refuse("the scale is no row of float32, or there is another one");
      }
    }
    const Port bias = match.In(node, "bias");
    if (bias.is_set() && match.TensorOf(bias).shape.rank() != 1) return match.Refuse("the bias is no row");
    if (match.Result().shape != match.TensorOf(sums).shape) return match.Refuse("the scale broadcasts the product");
    if (!match.IsClosed()) return;
    if (!scale.is_set()) scale = match.AddConstant("scale", kFloat32, {1}, std::vector<double>{product.factor});
    const Node& quantised = match.graph().at(node);
    return match.Replace("QuantBatchMatmulV3",
                         {{"x1", match.In(node, "x1")}, {"x2", match.In(node, "x2")}, {"scale", scale}, {"bias", bias}},
                         {{"dtype", int64_t{dtype}},
                          {"transpose_x1", match.Flag(node, FlagName(quantised, 0))},
                          {"transpose_x2", match.Flag(node, FlagName(quantised, 1))}});
  }
}

// ---- Convolutions ----

// Conv3DFused as long as nothing follows in it: torchair writes it for types that Conv3D does not take.
// Transposed ones become Conv2DTransposeD, which has a bias.
const std::initializer_list<std::string_view> kFoldingConvolutions = {"Conv2D", "Conv3D", "Conv3DFused",
                                                                      "Conv2DBackpropInput", "Conv2DTransposeD"};

bool IsTransposed(const std::string& type) { return type == "Conv2DBackpropInput" || type == "Conv2DTransposeD"; }

// The dim of the channels; nothing for a layout that is none.
std::optional<size_t> ChannelDim(const Match& match, NodeId convolution) {
  const std::string format = match.Text(convolution, "data_format");
  const size_t at = format.find('C');
  return at == std::string::npos ? std::nullopt : std::optional(at);
}

// The elements of a bias, one for each channel: of shape [c], or with c in the place of the channels and 1 elsewhere.
std::optional<std::vector<double>> PerChannel(const Match& match, Port port, int64_t channels, size_t from_last) {
  auto values = match.Numbers(port);
  if (!values) return std::nullopt;
  const std::vector<int64_t>& shape = match.graph().at(port.node).constant->shape;
  if (values->size() == 1) return std::vector<double>(static_cast<size_t>(channels), (*values)[0]);
  if (static_cast<int64_t>(values->size()) != channels || shape.size() <= from_last) return std::nullopt;
  if (shape[shape.size() - 1 - from_last] != channels) return std::nullopt;
  return values;
}

// What a convolution needs to be folded into; the output channels are dim 0 of a filter in every layout.
struct FilterFolding {
  NodeId convolution = kNoNode;
  std::vector<double> filter;
  std::vector<double> bias;  // zeros where there is none
  std::vector<int64_t> filter_shape;
  int32_t filter_type = -1;
  int32_t bias_type = -1;
  bool is_transposed = false;
  int64_t groups = 1;

  // Of the element of a filter.
  size_t ChannelOf(size_t element) const {
    const size_t channels = bias.size();
    if (!is_transposed) return element / (filter.size() / channels);
    const auto own = static_cast<size_t>(filter_shape[1]);  // of a group
    const size_t taps = filter.size() / static_cast<size_t>(filter_shape[0] * filter_shape[1]);
    const size_t group = element / (filter.size() / static_cast<size_t>(groups));
    return group * own + element / taps % own;
  }
};

std::optional<FilterFolding> FoldingOf(Match& match, Port port) {
  FilterFolding folding;
  folding.convolution = match.Maker(port, kFoldingConvolutions);
  if (folding.convolution == kNoNode) return std::nullopt;
  if (match.graph().at(folding.convolution).type == "Conv3DFused" &&
      (match.In(folding.convolution, "addend").is_set() || !match.Text(folding.convolution, "activation").empty())) {
    match.Refuse("something follows in the convolution already");
    return std::nullopt;
  }
  const Port filter = match.In(folding.convolution, "filter");
  const auto values = match.Numbers(filter);
  if (!values) {
    match.Refuse("the filter is not constant");
    return std::nullopt;
  }
  folding.filter = *values;
  folding.filter_shape = match.graph().at(filter.node).constant->shape;
  folding.filter_type = match.TensorOf(filter).dtype;
  if (!IsSingleOrHalf(folding.filter_type) || folding.filter_shape.empty() || folding.filter_shape[0] < 1) {
    match.Refuse("the filter is of integers, or empty");
    return std::nullopt;
  }
  folding.bias_type = folding.filter_type == kFloat16 ? kFloat16 : kFloat32;
  const Node& convolution = match.graph().at(folding.convolution);
  folding.is_transposed = IsTransposed(convolution.type);
  int64_t channels = folding.filter_shape[0];
  if (folding.is_transposed) {
    folding.groups = match.Int(folding.convolution, "groups");
    if (match.Text(folding.convolution, "data_format") != "NCHW" || folding.filter_shape.size() != 4 ||
        folding.groups < 1 || folding.filter_shape[0] % folding.groups != 0 || folding.filter.empty()) {
      match.Refuse("the channels of the filter are not dims 0 and 1");
      return std::nullopt;
    }
    const opdef::Shape& result = match.TensorOf(port).shape;
    bool is_known = result.has_rank();
    for (size_t d = 0; is_known && d < result.rank(); ++d) is_known = result[d].is_number();
    if (folding.filter_type == kBFloat16 || !is_known) {
      match.Refuse("a transposed convolution has sizes that are not known, or bfloat16, which none with a bias takes");
      return std::nullopt;
    }
    channels = folding.filter_shape[1] * folding.groups;
  }
  folding.bias.assign(static_cast<size_t>(channels), 0);
  if (const Port bias = match.In(folding.convolution, "bias"); bias.is_set()) {
    const auto given = match.Numbers(bias);
    if (!given || given->size() != folding.bias.size()) {
      match.Refuse("the bias is not constant");
      return std::nullopt;
    }
    folding.bias = *given;
    folding.bias_type = match.TensorOf(bias).dtype;
  }
  return folding;
}

// filter * scale, bias * scale + offset, by output channel, in float64.
void Fold(Match& match, FilterFolding folding, const std::vector<double>& scale, const std::vector<double>& offset) {
  for (size_t i = 0; i < folding.filter.size(); ++i) folding.filter[i] *= scale[folding.ChannelOf(i)];
  for (size_t c = 0; c < scale.size(); ++c) folding.bias[c] = folding.bias[c] * scale[c] + offset[c];
  const Node& convolution = match.graph().at(folding.convolution);
  std::string type = convolution.type;
  const Port x = match.In(folding.convolution, type == "Conv2DBackpropInput" ? "out_backprop" : "x");
  opdef::Attributes attributes = convolution.attributes;
  if (type == "Conv2DBackpropInput") {
    type = "Conv2DTransposeD";
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < 4; ++d) sizes.push_back(match.Result().shape[d].number());
    attributes.insert_or_assign("input_size", std::move(sizes));
  }
  const auto channels = static_cast<int64_t>(scale.size());
  const Port filter = match.AddConstant("filter", folding.filter_type, folding.filter_shape, folding.filter);
  const Port bias = match.AddConstant("bias", folding.bias_type, {channels}, folding.bias);
  match.Replace(type, {{"x", x}, {"filter", filter}, {"bias", bias}}, std::move(attributes));
}

// A batch norm by given statistics behind a convolution, all constant.
void FuseConvolutionNorm(Match& match) {
  const bool is_v3 = match.node().type == "BatchNormV3";
  const Port x = match.In("x");
  if (!match.IsMadeBy(x, kFoldingConvolutions)) return;
  if (is_v3 && match.Flag(match.root(), "is_training")) return match.Refuse("the batch norm is one of training");
  if (is_v3 && !match.HasUsersOfFirstOutputOnly()) return match.Refuse("its statistics have users");
  const auto folding = FoldingOf(match, x);
  if (!folding) return;
  if (ChannelDim(match, folding->convolution) != size_t{1}) {
    return match.Refuse("the channels are not dim 1, which the batch norm works on");
  }
  const auto scale = match.Numbers(match.In(is_v3 ? "weight" : "scale"));
  const auto offset = match.Numbers(match.In(is_v3 ? "bias" : "offset"));
  const auto mean = match.Numbers(match.In(is_v3 ? "running_mean" : "mean"));
  const auto variance = match.Numbers(match.In(is_v3 ? "running_var" : "variance"));
  if (!scale || !offset || !mean || !variance) return match.Refuse("scale, offset or statistics are not constant");
  const size_t channels = folding->bias.size();
  if (scale->size() != channels || offset->size() != channels || mean->size() != channels ||
      variance->size() != channels) {
    return match.Refuse("scale, offset or statistics have another number of channels than the filter");
  }
  if (!match.IsClosed()) return;
  const double epsilon = match.Real(match.root(), "epsilon").value_or(1e-5);
  std::vector<double> by(channels);
  std::vector<double> plus(channels);
  for (size_t c = 0; c < channels; ++c) {
    by[c] = (*scale)[c] / std::sqrt((*variance)[c] + epsilon);
    plus[c] = (*offset)[c] - (*mean)[c] * by[c];
    if (!std::isfinite(by[c]) || !std::isfinite(plus[c])) return match.Refuse("the statistics divide by 0");
  }
  Fold(match, *folding, by, plus);
}

// A constant for each channel added to, or multiplied by, a convolution.
void FuseConvolutionConstant(Match& match) {
  const bool is_sum = match.node().type.starts_with("Add");
  const auto [first, second] = match.Both(match.root());
  for (const auto& [x, constant] : {std::pair(first, second), std::pair(second, first)}) {
    match.BackTo(0);
    if (!match.IsMadeBy(x, kFoldingConvolutions)) continue;
    if (!match.IsConstant(constant)) return match.Refuse("what is added or multiplied is not constant");
    const auto folding = FoldingOf(match, x);
    if (!folding) return;
    const auto dim = ChannelDim(match, folding->convolution);
    const opdef::Shape& shape = match.Result().shape;
    if (!dim || !shape.has_rank() || shape != match.TensorOf(x).shape ||
        match.Result().dtype != match.TensorOf(x).dtype) {
      return match.Refuse("the result has another shape or type than the convolution");
    }
    const auto channels = static_cast<int64_t>(folding->bias.size());
    const auto values = PerChannel(match, constant, channels, shape.rank() - 1 - *dim);
    if (!values) return match.Refuse("the constant has not one element for each channel");
    if (!match.IsClosed()) return;
    const std::vector<double> ones(folding->bias.size(), 1);
    const std::vector<double> zeros(folding->bias.size(), 0);
    return is_sum ? Fold(match, *folding, ones, *values) : Fold(match, *folding, *values, zeros);
  }
}

Status RunTranspose(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"}, FuseTranspose);
}
Status RunQuantisedTranspose(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"WeightQuantBatchMatmulV2", "QuantBatchMatmulV3"}, FuseQuantisedTranspose);
}
Status RunFlattening(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Reshape"}, FuseFlattening);
}
Status RunBroadcast(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"BatchMatMul", "BatchMatMulV2"}, FuseBroadcast);
}
Status RunProductBias(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Add", "AddV2"}, FuseProductBias);
}
Status RunDequantisation(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Cast"}, FuseDequantisation);
}
Status RunConvolutionNorm(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"BNInfer", "BatchNormV3"}, FuseConvolutionNorm);
}
Status RunConvolutionConstant(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Add", "AddV2", "Mul"}, FuseConvolutionConstant);
}

constexpr Pass kProductPasses[] = {
    Fusion("BatchMatMulReshapeFusionPass", RunFlattening, "reshapes around products of batches"),
    Fusion("BatchMatMulBroadcastFusionPass", RunBroadcast, "operands repeated for each matrix of a product"),
    Fusion("TransposeMatMulFusionPass", RunTranspose, "transposes into products"),
    Fusion("TransposeQuantMatMulFusionPass", RunQuantisedTranspose, "transposes into products of int8"),
    Fusion("MatMulBiasAddFusionPass", RunProductBias, "a row added to a product"),
    Fusion("QuantBatchMatmulFusionPass", RunDequantisation, "scales behind products of int8"),
    Fusion("ConvBatchnormFusionPass", RunConvolutionNorm, "a norm into the filter"),
    Fusion("ConvScaleFusionPass", RunConvolutionConstant, "constants of channels into filter and bias"),
};

}  // namespace

std::span<const Pass> ProductFusions() { return kProductPasses; }

}  // namespace reprise::compiler
