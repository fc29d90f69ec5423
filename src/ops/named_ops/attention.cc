// SPDX-License-Identifier: Apache-2.0
//
// Attention, positions by rotation, and caches of keys and values.
#include <array>
#include <utility>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// ---- Attention for training ----

// Sequences of different lengths lie behind one another where their ends are given.
bool HasLengths(const NamedCall& call) { return call.Has("actual_seq_qlen") || call.Has("actual_seq_kvlen"); }

StepArgument OptionalNumbers(const NamedCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  return *call.context.Numbers(name);
}

Status LowerFlashAttention(NamedCall& call) {
  const auto& context = call.context;
  const bool has_lengths = HasLengths(call);
  std::vector<Setting> settings = {{"query", call.Input("query").view()},
                                   {"key", call.Input("key").view()},
                                   {"value", call.Input("value").view()},
                                   {"realShiftOptional", OptionalInput(call, "real_shift")},
                                   {"dropMaskOptional", OptionalInput(call, "drop_mask")},
                                   {"paddingMaskOptional", OptionalInput(call, "padding_mask")},
                                   {"attenMaskOptional", OptionalInput(call, "atten_mask")},
                                   {"prefixOptional", OptionalNumbers(call, "prefix")},
                                   {"qStartIdxOptional", OptionalNumbers(call, "q_start_idx")},
                                   {"kvStartIdxOptional", OptionalNumbers(call, "kv_start_idx")},
                                   {"scaleValue", context.Real("scale_value")},
                                   {"keepProb", context.Real("keep_prob")},
                                   {"preTokens", context.Int("pre_tockens")},
                                   {"nextTokens", context.Int("next_tockens")},
                                   {"headNum", context.Int("head_num")},
                                   {"inputLayout", context.Text("input_layout")},
                                   {"innerPrecise", context.Int("inner_precise")},
                                   {"sparseMode", context.Int("sparse_mode")},
                                   {"pseType", int64_t{1}},
                                   {"softmaxMaxOut", call.Output("softmax_max").view()},
                                   {"softmaxSumOut", call.Output("softmax_sum").view()},
                                   {"attentionOutOut", call.Output("attention_out").view()}};
  if (has_lengths) {
    settings.push_back({"actualSeqQLenOptional", OptionalNumbers(call, "actual_seq_qlen")});
    settings.push_back({"actualSeqKvLenOptional", OptionalNumbers(call, "actual_seq_kvlen")});
  }
  return StepWith(call, has_lengths ? "aclnnFlashAttentionVarLenScoreV2" : "aclnnFlashAttentionScoreV2", settings);
}

Status LowerFlashAttentionGradient(NamedCall& call) {
  const auto& context = call.context;
  const bool has_lengths = HasLengths(call);
  std::vector<Setting> settings = {{"query", call.Input("query").view()},
                                   {"keyIn", call.Input("key").view()},
                                   {"value", call.Input("value").view()},
                                   {"dy", call.Input("dy").view()},
                                   {"pseShiftOptional", OptionalInput(call, "pse_shift")},
                                   {"dropMaskOptional", OptionalInput(call, "drop_mask")},
                                   {"paddingMaskOptional", OptionalInput(call, "padding_mask")},
                                   {"attenMaskOptional", OptionalInput(call, "atten_mask")},
                                   {"softmaxMaxOptional", OptionalInput(call, "softmax_max")},
                                   {"softmaxSumOptional", OptionalInput(call, "softmax_sum")},
                                   {"softmaxInOptional", OptionalInput(call, "softmax_in")},
                                   {"attentionInOptional", OptionalInput(call, "attention_in")},
                                   {"prefixOptional", OptionalNumbers(call, "prefix")},
                                   {"qStartIdxOptional", OptionalNumbers(call, "q_start_idx")},
                                   {"kvStartIdxOptional", OptionalNumbers(call, "kv_start_idx")},
                                   {"scaleValue", context.Real("scale_value")},
                                   {"keepProb", context.Real("keep_prob")},
                                   {"preTokens", context.Int("pre_tockens")},
                                   {"nextTokens", context.Int("next_tockens")},
                                   {"headNum", context.Int("head_num")},
                                   {"inputLayout", context.Text("input_layout")},
                                   {"innerPrecise", context.Int("inner_precise")},
                                   {"sparseMode", context.Int("sparse_mode")},
                                   {"pseType", int64_t{1}},
                                   {"dqOut", call.Output("dq").view()},
                                   {"dkOut", call.Output("dk").view()},
                                   {"dvOut", call.Output("dv").view()}};
  if (call.Has("pse_shift")) settings.push_back({"dpseOut", OptionalOutput(call, "dpse")});
  if (has_lengths) {
    settings.push_back({"actualSeqQLenOptional", OptionalNumbers(call, "actual_seq_qlen")});
    settings.push_back({"actualSeqKvLenOptional", OptionalNumbers(call, "actual_seq_kvlen")});
  }
  return StepWith(call, has_lengths ? "aclnnFlashAttentionUnpaddingScoreGradV2" : "aclnnFlashAttentionScoreGradV2",
                  settings);
}

// ---- Positions ----

// x * r1 + x with its halves exchanged, the front one negative, * r2
Status LowerRotaryProduct(NamedCall& call) {
  return StepAsFunction(call, "aclnnRotaryPositionEmbedding", "x r1 r2 %0 =");
}

// The gradients of the angles are zeros where nobody wants them.
Status StepRotaryGradient(NamedCall& call, const std::array<std::string_view, 4>& names, int64_t mode,
                          bool wants_angles) {
  const StridedView of_cos = call.Output(names[2]).view();
  const StridedView of_sin = call.Output(names[3]).view();
  if (!wants_angles) {
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {of_cos}));
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {of_sin}));
  }
  return StepWith(call, "aclnnRotaryPositionEmbeddingGrad",
                  {{"dy", call.Input("dy").view()},
                   {"cos", call.Input(names[0]).view()},
                   {"sin", call.Input(names[1]).view()},
                   {"xOptional", wants_angles ? StepArgument(call.Input("x").view()) : nullptr},
                   {"mode", mode},
                   {"dxOut", call.Output("dx").view()},
                   {"dcosOut", wants_angles ? StepArgument(of_cos) : nullptr},
                   {"dsinOut", wants_angles ? StepArgument(of_sin) : nullptr}});
}

Status LowerRotaryProductGradient(NamedCall& call) {
  const bool wants_angles = call.context.Bool("need_backward");
  return StepRotaryGradient(call, {"r1", "r2", "dr1", "dr2"}, 0, wants_angles);
}

Status LowerRotaryGradient(NamedCall& call) {
  return StepRotaryGradient(call, {"cos", "sin", "dcos", "dsin"}, call.context.Int("mode"), call.Has("x"));
}

// ---- Caches ----

Status LowerQkvCache(NamedCall& call) {
  const bool wants_rows = call.context.Bool("is_output_qkv");
  return StepAsFunction(call, "aclnnQkvRmsNormRopeCache",
                        wants_rows ? "qkv q_gamma k_gamma cos sin index =q_out =k_cache =v_cache k_scale v_scale "
                                     "k_offset v_offset @qkv_size @head_nums @epsilon @cache_mode "
                                     "=q_out_before_quant =k_out_before_quant =v_out_before_quant"
                                   : "qkv q_gamma k_gamma cos sin index =q_out =k_cache =v_cache k_scale v_scale "
                                     "k_offset v_offset @qkv_size @head_nums @epsilon @cache_mode %null %null %null");
}

Status LowerKvCache(NamedCall& call) {
  if (!call.context.Bool("is_output_kv")) {  // nobody is told the rows: they get zeros
    for (const std::string_view name : {"k_rope", "c_kv"})
      REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {call.Output(name).view()}));
  }
  return StepAsFunction(call, "aclnnKvRmsNormRopeCacheV2",
                        call.context.Bool("is_output_kv")
                            ? "kv gamma cos sin index =k_cache =ckv_cache k_rope_scale c_kv_scale k_rope_offset "
                              "c_kv_offset v @epsilon @cache_mode @is_output_kv =k_rope =c_kv"
                            : "kv gamma cos sin index =k_cache =ckv_cache k_rope_scale c_kv_scale k_rope_offset "
                              "c_kv_offset v @epsilon @cache_mode @is_output_kv %null %null");
}

// Outputs that a call does not ask for have no elements.
StepArgument FilledOutput(const NamedCall& call, std::string_view name) {
  const StridedView view = call.Output(name).view();
  if (CountOf(view.sizes) == 0) return nullptr;
  return view;
}

Status LowerLatentProlog(NamedCall& call) {
  const auto& context = call.context;
  REPRISE_ASSIGN_OR_RETURN(StridedView kv_cache, call.InPlace("kv_cache"));
  REPRISE_ASSIGN_OR_RETURN(StridedView kr_cache, call.InPlace("kr_cache"));
  std::vector<Setting> settings = {{"tokenX", call.Input("token_x").view()},
                                   {"weightDq", call.Input("weight_dq").view()},
                                   {"weightUqQr", call.Input("weight_uq_qr").view()},
                                   {"weightUk", call.Input("weight_uk").view()},
                                   {"weightDkvKr", call.Input("weight_dkv_kr").view()},
                                   {"rmsnormGammaCq", call.Input("rmsnorm_gamma_cq").view()},
                                   {"rmsnormGammaCkv", call.Input("rmsnorm_gamma_ckv").view()},
                                   {"ropeSin", call.Input("rope_sin").view()},
                                   {"ropeCos", call.Input("rope_cos").view()},
                                   {"kvCacheRef", std::move(kv_cache)},
                                   {"krCacheRef", std::move(kr_cache)},
                                   {"dequantScaleXOptional", OptionalInput(call, "dequant_scale_x")},
                                   {"dequantScaleWDqOptional", OptionalInput(call, "dequant_scale_w_dq")},
                                   {"dequantScaleWUqQrOptional", OptionalInput(call, "dequant_scale_w_uq_qr")},
                                   {"dequantScaleWDkvKrOptional", OptionalInput(call, "dequant_scale_w_dkv_kr")},
                                   {"quantScaleCkvOptional", OptionalInput(call, "quant_scale_ckv")},
                                   {"quantScaleCkrOptional", OptionalInput(call, "quant_scale_ckr")},
                                   {"smoothScalesCqOptional", OptionalInput(call, "smooth_scales_cq")},
                                   {"rmsnormEpsilonCq", context.Real("rmsnorm_epsilon_cq")},
                                   {"rmsnormEpsilonCkv", context.Real("rmsnorm_epsilon_ckv")},
                                   {"cacheModeOptional", context.Text("cache_mode")},
                                   {"queryOut", call.Output("query").view()},
                                   {"queryRopeOut", call.Output("query_rope").view()}};
  if (call.op.type != "MlaPrologV3") {
    settings.push_back({"cacheIndex", call.Input("cache_index").view()});
    if (call.op.type == "MlaPrologV2") {
      settings.push_back({"dequantScaleQNopeOutOptional", FilledOutput(call, "dequant_scale_q_nope")});
    }
    return StepWith(call, "aclnnMlaPrologV2WeightNz", settings);
  }
  settings.push_back({"cacheIndexOptional", OptionalInput(call, "cache_index")});
  settings.push_back({"actualSeqLenOptional", OptionalInput(call, "actual_seq_len")});
  settings.push_back({"kNopeClipAlphaOptional", OptionalInput(call, "k_nope_clip_alpha")});
  settings.push_back({"weightQuantMode", context.Int("weight_quant_mode")});
  settings.push_back({"kvCacheQuantMode", context.Int("kv_cache_quant_mode")});
  settings.push_back({"queryQuantMode", context.Int("query_quant_mode")});
  settings.push_back({"ckvkrRepoMode", context.Int("ckvkr_repo_mode")});
  settings.push_back({"quantScaleRepoMode", context.Int("quant_scale_repo_mode")});
  settings.push_back({"tileSize", context.Int("tile_size")});
  settings.push_back({"qcQrScale", context.Real("qc_qr_scale")});
  settings.push_back({"kcScale", context.Real("kc_scale")});
  settings.push_back({"dequantScaleQNopeOutOptional", FilledOutput(call, "dequant_scale_q_nope")});
  settings.push_back({"queryNormOutOptional", FilledOutput(call, "query_norm")});
  settings.push_back({"dequantScaleQNormOutOptional", FilledOutput(call, "dequant_scale_q_norm")});
  return StepWith(call, "aclnnMlaPrologV3WeightNz", settings);
}

// ---- Attention for inference ----

Status LowerInferAttention(NamedCall& call) {
  const bool wants_lse = call.context.Bool("softmax_lse_flag");
  constexpr std::string_view kWords =
      "query key value pse_shift atten_mask #actual_seq_lengths #actual_seq_lengths_kv dequant_scale1 quant_scale1 "
      "dequant_scale2 quant_scale2 quant_offset2 antiquant_scale antiquant_offset block_table query_padding_size "
      "kv_padding_size key_antiquant_scale key_antiquant_offset value_antiquant_scale value_antiquant_offset "
      "key_shared_prefix value_shared_prefix #actual_shared_prefix_len query_rope key_rope key_rope_antiquant_scale "
      "dequant_scale_query learnable_sink #q_start_idx #kv_start_idx @num_heads @scale @pre_tokens @next_tokens "
      "@input_layout @num_key_value_heads @sparse_mode @inner_precise @block_size @antiquant_mode @softmax_lse_flag "
      "@key_antiquant_mode @value_antiquant_mode @query_quant_mode @pse_type =attention_out ";
  return StepAsFunction(call, "aclnnFusedInferAttentionScoreV5",
                        std::string(kWords) + (wants_lse ? "=softmax_lse" : "%null"));
}

constexpr NamedOp kAttentionRows[] = {
    As("ApplyRotaryPosEmb", {}, "aclnnApplyRotaryPosEmbV2", "=query =key cos sin @layout @rotary_mode"),
    As("AttentionUpdate", {}, "aclnnAttentionUpdate", "lse go @update_type =output =lse_m"),
    As("DequantRopeQuantKvcache", {}, "aclnnDequantRopeQuantKvcache",
       "x cos sin =k_cache =v_cache indices scale_k scale_v offset_k offset_v weight_scale activation_scale bias "
       "#size_splits @quant_mode @layout %true %text:contiguous =q =k =v"),
    {"FlashAttentionScore", {}, LowerFlashAttention},
    {"FlashAttentionScoreGrad", {}, LowerFlashAttentionGradient},
    {"FusedInferAttentionScore", {}, LowerInferAttention},
    As("IncreFlashAttention", {}, "aclnnIncreFlashAttentionV4",
       "query key value pse_shift atten_mask #actual_seq_lengths dequant_scale1 quant_scale1 dequant_scale2 "
       "quant_scale2 quant_offset2 antiquant_scale antiquant_offset block_table kv_padding_size @num_heads "
       "@scale_value "
       "@input_layout @num_key_value_heads @block_size @inner_precise =attention_out"),
    As("InterleaveRope", {}, "aclnnInterleaveRope", "x cos sin ="),
    {"KvRmsNormRopeCache", {}, LowerKvCache},
    As("MaskedSoftmaxWithRelPosBias", {}, "aclnnMaskedSoftmaxWithRelPosBias",
       "x atten_mask relative_pos_bias @scale_value @inner_precision_mode ="),
    {"MlaProlog", {}, LowerLatentProlog},
    {"MlaPrologV2", {}, LowerLatentProlog},
    {"MlaPrologV3", {}, LowerLatentProlog},
    As("PromptFlashAttention", {}, "aclnnPromptFlashAttentionV3",
       "query key value pse_shift atten_mask #actual_seq_lengths #actual_seq_lengths_kv deq_scale1 quant_scale1 "
       "deq_scale2 quant_scale2 quant_offset2 @num_heads @scale_value @pre_tokens @next_tokens @input_layout "
       "@num_key_value_heads @sparse_mode @inner_precise =attention_out"),
    {"QkvRmsNormRopeCache", {}, LowerQkvCache},
    {"RotaryMul", {}, LowerRotaryProduct},
    {"RotaryMulGrad", {}, LowerRotaryProductGradient},
    As("RotaryPositionEmbedding", {}, "aclnnRotaryPositionEmbeddingV2", "x cos sin @mode rotate ="),
    {"RotaryPositionEmbeddingGrad", {}, LowerRotaryGradient},
};

}  // namespace

std::span<const NamedOp> AttentionRows() { return kAttentionRows; }

}  // namespace reprise::ops::named
