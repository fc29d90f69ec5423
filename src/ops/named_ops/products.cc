// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices that do more than multiply: groups, quantised weights, an activation between or behind.
#include <array>
#include <utility>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

StridedView MatrixOf(const NamedCall& call, std::string_view name, std::string_view transposed) {
  const StridedView view = call.Input(name).view();
  return call.context.Bool(transposed) && view.sizes.size() > 1 ? view.Transposed() : view;
}

std::vector<StridedView> MatricesOf(const NamedCall& call, std::string_view name, std::string_view transposed) {
  std::vector<StridedView> views = ViewsOf(call.List(name));
  for (StridedView& view : views) {
    if (call.context.Bool(transposed) && view.sizes.size() > 1) view = view.Transposed();
  }
  return views;
}

StepArgument OptionalList(const NamedCall& call, std::string_view name) {
  std::vector<StridedView> views = ViewsOf(call.List(name));
  if (views.empty()) return nullptr;
  return views;
}

Status LowerFusedProduct(NamedCall& call) {
  return StepWith(call, "aclnnFusedMatmul",
                  {{"x1", MatrixOf(call, "x1", "transpose_x1")},
                   {"x2", MatrixOf(call, "x2", "transpose_x2")},
                   {"bias", OptionalInput(call, "bias")},
                   {"x3", OptionalInput(call, "x3")},
                   {"fusedOpType", call.context.Text("fused_op_type")},
                   {"cubeMathType", int64_t{0}},
                   {"y", call.OutputView()}});
}

Status LowerGroupedProduct(NamedCall& call) {
  const auto& context = call.context;
  return StepWith(
      call, "aclnnGroupedMatmulV5",
      {{"x", MatricesOf(call, "x", "transpose_x")},
       {"weight", MatricesOf(call, "weight", "transpose_weight")},
       {"biasOptional", OptionalList(call, "bias")},
       {"scaleOptional", OptionalList(call, "scale")},
       {"offsetOptional", OptionalList(call, "offset")},
       {"antiquantScaleOptional", OptionalList(call, "antiquant_scale")},
       {"antiquantOffsetOptional", OptionalList(call, "antiquant_offset")},
       {"perTokenScaleOptional", call.Has("per_token_scale")
                                     ? StepArgument(std::vector<StridedView>{call.Input("per_token_scale").view()})
                                     : nullptr},
       {"groupListOptional", OptionalInput(call, "group_list")},
       {"splitItem", context.Int("split_item")},
       {"groupType", context.Int("group_type")},
       {"groupListType", context.Int("group_list_type")},
       {"actType", context.Int("act_type")},
       {"out", OutputViews(call, "y")}});
}

Status LowerGroupedSwiglu(NamedCall& call) {
  const auto& context = call.context;
  const std::vector<StridedView> smooth = ViewsOf(call.List("smooth_scale"));
  return StepWith(call, "aclnnGroupedMatmulSwigluQuantV2",
                  {{"x", call.Input("x").view()},
                   {"weight", MatricesOf(call, "weight", "transpose_weight")},
                   {"weightScale", ViewsOf(call.List("weight_scale"))},
                   {"weightAssistMatrixOptional", OptionalList(call, "weight_assist_matrix")},
                   {"biasOptional", OptionalInput(call, "bias")},
                   {"xScale", call.Input("x_scale").view()},
                   {"smoothScaleOptional", smooth.empty() ? nullptr : StepArgument(smooth[0])},
                   {"groupList", call.Input("group_list").view()},
                   {"dequantMode", context.Int("dequant_mode")},
                   {"dequantDtype", context.Int("dequant_dtype")},
                   {"quantMode", context.Int("quant_mode")},
                   {"groupListType", context.Int("group_list_type")},
                   {"output", call.Output("y").view()},
                   {"outputScale", call.Output("y_scale").view()}});
}

// Scales and offsets are rows for each of the columns, transposed or not.
Status LowerWeightQuantProduct(NamedCall& call) {
  const bool turns = call.context.Bool("transpose_weight");
  const auto factors = [&](std::string_view name) -> StepArgument {
    if (!call.Has(name)) return nullptr;
    const StridedView view = call.Input(name).view();
    if (turns && view.sizes.size() == 2) return view.Transposed();
    return view;
  };
  return StepWith(call, "aclnnWeightQuantBatchMatmulV3",
                  {{"x", MatrixOf(call, "x", "transpose_x")},
                   {"weight", MatrixOf(call, "weight", "transpose_weight")},
                   {"antiquantScale", factors("antiquant_scale")},
                   {"antiquantOffsetOptional", factors("antiquant_offset")},
                   {"quantScaleOptional", OptionalInput(call, "quant_scale")},
                   {"quantOffsetOptional", OptionalInput(call, "quant_offset")},
                   {"biasOptional", OptionalInput(call, "bias")},
                   {"antiquantGroupSize", call.context.Int("antiquant_group_size")},
                   {"innerPrecise", call.context.Int("inner_precise")},
                   {"y", call.OutputView()}});
}

Status LowerLora(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView y, call.InPlace("y"));
  return StepWith(call, "aclnnAddLora",
                  {{"y", y},
                   {"x", call.Input("x").view()},
                   {"weightB", call.Input("weightB").view()},
                   {"indices", call.Input("indices").view()},
                   {"weightAOptional", OptionalInput(call, "weightA")},
                   {"layerIdx", call.context.Int("layer_idx")},
                   {"scale", call.context.Real("scale")},
                   {"yOffset", call.context.Int("y_offset")},
                   {"ySliceSize", call.context.Int("y_slice_size")},
                   {"out", y}});
}

StepArgument OptionalNumbers(const NamedCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  return call.Input(name).numbers();
}

// y += x1 x2, scaled.
Status LowerAddedQuantProduct(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView y, call.InPlace("y"));
  return StepWith(call, "aclnnQuantBatchMatmulInplaceAdd",
                  {{"x1", call.Input("x1").numbers()},
                   {"x2", call.Input("x2").numbers()},
                   {"x1ScaleOptional", OptionalNumbers(call, "x1_scale")},
                   {"x2Scale", call.Input("x2_scale").numbers()},
                   {"yRef", y},
                   {"transposeX1", call.context.Bool("transpose_x1")},
                   {"transposeX2", call.context.Bool("transpose_x2")},
                   {"groupSize", call.context.Int("group_size")}});
}

// y[e] += the product of group e, scaled.
Status LowerAddedQuantGroups(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView y, call.InPlace("y"));
  return StepWith(call, "aclnnQuantGroupedMatmulInplaceAdd",
                  {{"x1", call.Input("x1").numbers()},
                   {"x2", call.Input("x2").numbers()},
                   {"scale1Optional", OptionalNumbers(call, "scale1")},
                   {"scale2", call.Input("scale2").numbers()},
                   {"groupList", call.Input("group_list").view()},
                   {"yRef", y},
                   {"groupListType", call.context.Int("group_list_type")},
                   {"groupSize", call.context.Int("group_size")}});
}

constexpr NamedOp kProductRows[] = {
    {"AddLora", {}, LowerLora},
    As("FFN", {}, "aclnnFFNV2",
       "x weight1 weight2 #expert_tokens bias1 bias2 scale offset deq_scale1 deq_scale2 antiquant_scale1 "
       "antiquant_scale2 antiquant_offset1 antiquant_offset2 @activation @inner_precise @tokens_index_flag ="),
    {"FusedMatMul", {}, LowerFusedProduct},
    {"GroupedMatmul", {}, LowerGroupedProduct},
    As("GroupedMatmulFinalizeRouting", {}, "aclnnGroupedMatmulFinalizeRoutingV3",
       "x w scale bias offset %null %null pertoken_scale group_list shared_input logit row_index @dtype "
       "@shared_input_weight @shared_input_offset @transpose_x @transpose_w @group_list_type @tuning_config ="),
    {"GroupedMatmulSwigluQuantV2", {}, LowerGroupedSwiglu},
    {.type = "QuantBatchMatmulInplaceAdd", .types = {}, .lower = LowerAddedQuantProduct, .moves_bits = true},
    As("QuantBatchMatmulV3", {}, "aclnnQuantMatmulV4",
       "x1 x2 scale offset pertoken_scale bias @transpose_x1 @transpose_x2 ="),
    As("QuantGroupedMatmulDequant", {}, "aclnnQuantGroupedMatmulDequant",
       "x quantized_weight weight_scale group_list bias x_scale x_offset smooth_scale @x_quant_mode @transpose_weight "
       "="),
    {.type = "QuantGroupedMatmulInplaceAdd", .types = {}, .lower = LowerAddedQuantGroups, .moves_bits = true},
    As("QuantMatmulDequant", {}, "aclnnQuantMatmulDequant",
       "x quantized_weight weight_scale bias x_scale x_offset smooth_scale @x_quant_mode @transpose_weight ="),
    As("QuantMatmulReduceSum", {}, "aclnnQuantMatmulReduceSumWeightNz",
       "x1 x2 x1_scale x2_scale y_scale x1_offset x2_offset y_offset bias @transpose_x1 @transpose_x2 @group_size "
       "#dims "
       "@keep_dims ="),
    As("TransposeBatchMatMul", {}, "aclnnTransposeBatchMatMul",
       "x1 x2 bias scale @perm_x1 @perm_x2 @perm_y %0 @batch_split_factor ="),
    As("TransposeQuantBatchMatMul", {}, "aclnnTransposeQuantBatchMatMul",
       "x1 x2 bias x1_scale x2_scale =type @group_size @perm_x1 @perm_x2 @perm_y @batch_split_factor ="),
    {"WeightQuantBatchMatmulV2", {}, LowerWeightQuantProduct},
};

}  // namespace

std::span<const NamedOp> ProductRows() { return kProductRows; }

}  // namespace reprise::ops::named
