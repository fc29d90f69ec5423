// SPDX-License-Identifier: Apache-2.0
//
// Mixtures of experts; what several processes do together.
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

// A hint that memory is needed soon: nothing is computed.
Status LowerHint(NamedCall&) { return {}; }

// Without scales of the rows there are none to put in order: zeros.
Status LowerReRouting(NamedCall& call) {
  if (!call.Has("per_token_scales")) {
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {call.Output("permute_per_token_scales").view()}));
  }
  return LowerAsFunction(call);
}

constexpr NamedOp kRoutingRows[] = {
    {"Cmo", {}, LowerHint},
    As("MoeComputeExpertTokens", {}, "aclnnMoeComputeExpertTokens", "sorted_experts @num_experts ="),
    As("MoeFinalizeRouting", {}, "aclnnMoeFinalizeRouting",
       "expanded_x x1 x2 bias scales expanded_row_idx expanded_expert_idx ="),
    As("MoeFinalizeRoutingV2", {}, "aclnnMoeFinalizeRoutingV2",
       "expanded_x expanded_row_idx x1 x2 bias scales expert_idx @drop_pad_mode ="),
    As("MoeGatingTopKSoftmax", {}, "aclnnMoeGatingTopKSoftmax", "x finished @k =y =expert_idx =row_idx"),
    As("MoeInitRouting", {}, "aclnnMoeInitRouting",
       "x row_idx expert_idx @active_num =expanded_x =expanded_row_idx =expanded_expert_idx"),
    As("MoeInitRoutingV3", {}, "aclnnMoeInitRoutingV3",
       "x expert_idx scale offset @active_num @expert_capacity @expert_num @drop_pad_mode @expert_tokens_num_type "
       "@expert_tokens_num_flag @quant_mode @active_expert_range @row_idx_type =expanded_x =expanded_row_idx "
       "=expert_tokens_count_or_cumsum =expanded_scale"),
    {"MoeReRouting",
     {},
     LowerReRouting,
     0,
     "aclnnMoeReRouting",
     "tokens expert_token_num_per_rank per_token_scales @expert_token_num_type @idx_type =permute_tokens "
     "=permute_per_token_scales =permute_token_idx =expert_token_num"},
    As("MoeUpdateExpert", {}, "aclnnMoeUpdateExpert",
       "expert_ids eplb_table expert_scales pruning_threshold active_mask @local_rank_id @world_size @balance_mode "
       "=balanced_expert_ids ==balanced_active_mask"),
};

}  // namespace

std::span<const NamedOp> RoutingRows() { return kRoutingRows; }

}  // namespace reprise::ops::named
