// SPDX-License-Identifier: Apache-2.0
//
// Elements as integers of 8 bits, and back.
#include <array>
#include <utility>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

Status LowerNormQuant(NamedCall& call) {
  const std::vector<int64_t> mask = call.context.Ints("output_mask");
  StepArgument wanted = nullptr;
  if (!mask.empty()) wanted = std::vector<bool>(mask.begin(), mask.end());
  const bool is_made[2] = {mask.empty() || mask[0] != 0,
                           mask.size() > 1 ? mask[1] != 0 : mask.empty() && call.Has("smooth_scale2")};
  const char* const names[2][2] = {{"y1", "scale1"}, {"y2", "scale2"}};
  for (int k = 0; k < 2; ++k) {
    for (const char* const name : names[k]) {
      if (!is_made[k]) REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {call.Output(name).view()}));
    }
  }
  return StepWith(call, "aclnnAddRmsNormDynamicQuantV2",
                  {{"x1", call.Input("x1").view()},
                   {"x2", call.Input("x2").view()},
                   {"gamma", call.Input("gamma").view()},
                   {"smoothScale1Optional", OptionalInput(call, "smooth_scale1")},
                   {"smoothScale2Optional", OptionalInput(call, "smooth_scale2")},
                   {"betaOptional", OptionalInput(call, "beta")},
                   {"epsilon", call.context.Real("epsilon")},
                   {"outputMask", std::move(wanted)},
                   {"y1Out", call.Output("y1").view()},
                   {"y2Out", call.Output("y2").view()},
                   {"xOut", call.Output("x").view()},
                   {"scale1Out", call.Output("scale1").view()},
                   {"scale2Out", call.Output("scale2").view()}});
}

// Rows times a matrix, quantised. alpha is computed with in float32.
Status LowerRotateQuant(NamedCall& call) {
  StepArgument alpha = nullptr;
  if (call.Has("alpha")) {
    REPRISE_ASSIGN_OR_RETURN(StridedView wide, Converted(call, call.Input("alpha").view(), DType::kFloat));
    alpha = std::move(wide);
  }
  return StepWith(call, "aclnnRotateQuant",
                  {{"x", call.Input("x").view()},
                   {"rotation", call.Input("rotation").view()},
                   {"alpha", std::move(alpha)},
                   {"axis", call.context.Int("axis")},
                   {"roundMode", call.context.Text("round_mode")},
                   {"scaleAlg", call.context.Int("scale_alg")},
                   {"dstTypeMax", call.context.Real("dst_type_max")},
                   {"trans", call.context.Bool("transpose_y")},
                   {"yOut", call.Output("y").view()},
                   {"scaleOut", call.Output("scale").view()}});
}

// Blocks of the rows of groups, as floats of 8 bits.
Status LowerGroupedBlocks(NamedCall& call) {
  return StepWith(call, "aclnnGroupedDynamicBlockQuantV2",
                  {{"x", call.Input("x").view()},
                   {"groupList", call.Input("group_list").view()},
                   {"minScale", call.context.Real("min_scale")},
                   {"roundModeOptional", call.context.Text("round_mode")},
                   {"dstType", call.context.Int("dst_type")},
                   {"rowBlockSize", call.context.Int("row_block_size")},
                   {"colBlockSize", call.context.Int("col_block_size")},
                   {"groupListType", call.context.Int("group_list_type")},
                   {"dstTypeMax", call.context.Real("dst_type_max")},
                   {"yOut", call.Output("y").numbers()},
                   {"scaleOut", call.Output("scale").view()}});
}

// Scaled elements as floats of 8 bits; one list of one group, or none, is all of x.
Status LowerQuantMax(NamedCall& call) {
  const bool has_groups = call.Has("group_list");
  std::vector<Setting> settings = {{"x", call.Input("x").view()},
                                   {"scale", call.Input("scale").view()},
                                   {"roundMode", call.context.Text("round_mode")},
                                   {"dstType", call.context.Int("dst_type")},
                                   {"y", call.Output("y").numbers()},
                                   {"amax", call.Output("amax").view()}};
  if (has_groups) settings.push_back({"groupList", call.Input("group_list").view()});
  return StepWith(call, has_groups ? "aclnnGroupedQuantMax" : "aclnnQuantMax", settings);
}

constexpr NamedOp kQuantizationRows[] = {
    {"AddRmsNormDynamicQuant", {}, LowerNormQuant},
    As("AscendAntiQuantV2", {}, "aclnnAscendAntiQuant", "x scale offset =type @sqrt_mode ="),
    As("AscendQuantV2", {}, "aclnnAscendQuantV3", "x scale offset @sqrt_mode @round_mode =type @axis ="),
    As("DequantSwigluQuant", {}, "aclnnDequantSwigluQuantV2",
       "x weight_scale activation_scale bias quant_scale quant_offset group_index @activate_left @quant_mode =type "
       "@round_mode @activate_dim @swiglu_mode @clamp_limit @glu_alpha @glu_bias =y ==scale"),
    As("DynamicBlockQuant", {}, "aclnnDynamicBlockQuantV2",
       "x @min_scale @round_mode =type @row_block_size @col_block_size @dst_type_max =y =scale"),
    As("DynamicQuant", {}, "aclnnDynamicQuantV2", "x smooth_scales group_index =type =y =scale %null"),
    As("DynamicQuantV2", {}, "aclnnDynamicQuantV2", "x smooth_scales group_index =type =y =scale ==offset"),
    As("FlatQuant", {}, "aclnnFlatQuantV2", "x kronecker_p1 kronecker_p2 @clip_ratio @dst_type_max =out =quant_scale"),
    As("GeluQuant", {}, "aclnnGeluQuant",
       "x input_scale input_offset @approximate @quant_mode @round_mode =type =y ==out_scale"),
    As("GroupQuant", {}, "aclnnGroupQuant", "x scale group_index offset =type ="),
    {.type = "GroupedDynamicBlockQuant", .types = {}, .lower = LowerGroupedBlocks, .moves_bits = true},
    {.type = "QuantMax", .types = {}, .lower = LowerQuantMax, .moves_bits = true},
    As("Quantize", {}, "aclnnQuantize", "x scales zero_points =type @axis ="),
    {"RotateQuant", {}, LowerRotateQuant},
    As("TransQuantParamV2", {}, "aclnnTransQuantParamV3", "scale offset @round_mode ="),
};

}  // namespace

std::span<const NamedOp> QuantizationRows() { return kQuantizationRows; }

}  // namespace reprise::ops::named
