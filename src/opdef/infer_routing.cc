// SPDX-License-Identifier: Apache-2.0
//
// Rules of mixtures of experts: rows in the order of their experts and back.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

Dim DimOf(const InferTensor& tensor, size_t d) {
  return tensor.shape.has_rank() && tensor.shape.rank() > d ? tensor.shape[d] : Dim::Unknown();
}

Dim LastOf(const InferTensor& tensor) {
  return tensor.shape.has_rank() && tensor.shape.rank() != 0 ? tensor.shape.back() : Dim::Unknown();
}

// The smaller one, where that is certain.
Dim Smaller(const Dim& a, const Dim& b) {
  const auto is_at_most = [](const Dim& x, const Dim& y) {
    const std::optional<int64_t> least = (y - x).least();
    return least.has_value() && *least >= 0;
  };
  return is_at_most(a, b) ? a : is_at_most(b, a) ? b : Dim::Unknown();
}

}  // namespace

Status ExpertTokens(InferContext& call) {  // rule
  const int64_t experts = call.Int("num_experts");
  if (experts < 1) return call.WrongAttribute("num_experts", fmt::format("is {}", experts), "set it to 1 or more");
  return call.SetRest(Sizes{experts});
}

// k experts for each row.
Status GatingTopK(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const int64_t k = call.Int("k");
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a row of experts for each token");
  const Dim& experts = x.shape.back();
  if (k < 1 || (experts.is_number() && k > experts.number())) {
    return call.WrongAttribute("k", fmt::format("is {}, but {} has the shape {}", k, x.name, x.shape.text()),
                               "choose 1 expert or more of those that there are");
  }
  Sizes shape = x.shape;
  shape.dims().back() = k;
  return call.SetRest(shape);
}

// The active rows, one for each of their experts.
Status InitRouting(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& experts = call.In("expert_idx");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(experts, 2));
  const Dim k = DimOf(experts, 1);
  const Dim rows = DimOf(x, 0);
  REPRISE_RETURN_IF_ERROR(
      call.Set(call.Out("expanded_x"), Sizes{Smaller(rows, call.Int("active_num")) * k, DimOf(x, 1)}));
  return call.SetRest(Sizes{rows * k});
}

// As InitRouting, with rows that are dropped or padded to a capacity, counts, and scales.
Status InitRoutingV3(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& experts = call.In("expert_idx");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(experts, 2));
  const Dim all = DimOf(x, 0) * DimOf(experts, 1);
  const Dim width = DimOf(x, 1);
  const int64_t active = call.Int("active_num");
  const Dim rows = active > 0 ? Smaller(all, active) : all;
  const bool is_padded = call.Int("drop_pad_mode") == 1;
  Sizes expanded = {rows, width};
  if (is_padded) expanded = {call.Int("expert_num"), call.Int("expert_capacity"), width};
  const int64_t mode = call.Int("quant_mode");  // -1 none, 0 by given scales, 1 by row
  InferResult& values = call.Out("expanded_x");
  constexpr int32_t kInt8 = 2;
  if (values.dtype == -1) values.dtype = values.wanted != -1 ? values.wanted : mode == -1 ? x.dtype : kInt8;
  REPRISE_RETURN_IF_ERROR(call.Set(values, expanded));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("expanded_row_idx"), Sizes{all}));
  const std::vector<int64_t> range = call.Ints("active_expert_range");
  const int64_t count = range.size() == 2 ? range[1] - range[0] : call.Int("expert_num");
  if (count < 0)
    return call.WrongAttribute("expert_num", fmt::format("is {}", count), "set it to the number of experts");
  constexpr int64_t kPairs = 2;  // experts beside their counts
  const bool is_pairs = call.Int("expert_tokens_num_type") == kPairs;
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("expert_tokens_count_or_cumsum"),
                                   is_pairs ? Sizes{call.Int("expert_num"), kPairs} : Sizes{count}));
  InferResult& scale = call.Out("expanded_scale");
  if (scale.dtype == -1) scale.dtype = scale.wanted != -1 ? scale.wanted : 0;
  const bool has_scale = mode == 1 || (mode == -1 && call.Has("scale"));
  const Dim scales = is_padded ? Dim(call.Int("expert_num")) * call.Int("expert_capacity") : rows;
  return call.Set(scale, has_scale ? Sizes{scales} : Sizes{0});
}

// A row for each token, as wide as the rows of the experts.
Status FinalizeRouting(InferContext& call) {  // rule
  const Dim width = LastOf(call.In("expanded_x"));
  Dim rows = Dim::Unknown();
  for (const std::string_view name : {"scales", "x1"}) {
    if (rows.is_unknown() && call.Has(name)) rows = DimOf(call.In(name), 0);
  }
  if (rows.is_unknown() && call.op.FindAttribute("K") != nullptr && call.Int("K") > 0) {
    rows = FloorDiv(DimOf(call.In("expanded_row_idx"), 0), call.Int("K"));
  }
  return call.SetRest(Sizes{rows, width});
}

// Tokens of several ranks: as many as before, with counts for each expert.
Status ReRouting(InferContext& call) {  // rule
  const InferTensor& tokens = call.In("tokens");
  const Dim rows = DimOf(tokens, 0);
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("permute_tokens"), tokens.shape));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("permute_per_token_scales"),
                                   call.Has("per_token_scales") ? call.In("per_token_scales").shape : Sizes{rows}));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("permute_token_idx"), Sizes{rows}));
  return call.Set(call.Out("expert_token_num"), Sizes{DimOf(call.In("expert_token_num_per_rank"), 1)});
}

}  // namespace reprise::opdef::infer
