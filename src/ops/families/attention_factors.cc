// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/families/attention.h"

namespace reprise::ops::attention {
namespace {

using kernels::DType;

/// Which tokens share a factor of the cache.
enum TokenMode : int64_t { kPerChannel, kPerToken, kPerHead, kPerTokenHead, kPagedToken, kPagedTokenHead };

bool IsFloating(DType type) { return type == DType::kFloat || type == DType::kFloat16 || type == DType::kBFloat16; }

// A tensor seen without some of its dims.
struct Factors {
  TensorRef ref;
  void Drop(int dim) {
    for (int d = dim; d + 1 < ref.rank; ++d) {
      ref.sizes[d] = ref.sizes[d + 1];
      ref.strides[d] = ref.strides[d + 1];
    }
    --ref.rank;
  }
  void DropOnes() {
    for (int d = ref.rank - 1; d >= 0; --d) {
      if (ref.sizes[d] == 1) Drop(d);
    }
  }
};

Status WrongFactor(const OpCall& call, const Operand& operand, int64_t mode, std::string_view expected) {
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} for mode {}", ShapeText(operand.sizes()), expected, mode));
}

TensorRef FullView(const TensorRef& from) {
  TensorRef to;
  to.data = from.data;
  to.dtype = from.dtype;
  to.rank = 4;
  for (int d = 0; d < 4; ++d) to.sizes[d] = 1;
  return to;
}

void SetDim(TensorRef& to, int at, const TensorRef& from, int dim) {
  to.sizes[at] = from.sizes[dim];
  to.strides[at] = from.sizes[dim] == 1 ? 0 : from.strides[dim];
}

// A factor for each element of each head, or one for all.
StatusOr<TensorRef> ChannelView(const OpCall& call, const Operand& operand, Factors f, int64_t heads, int64_t depth) {
  f.DropOnes();
  TensorRef to = FullView(f.ref);
  if (f.ref.rank == 0) return to;
  if (f.ref.rank == 2 && f.ref.sizes[0] == heads && f.ref.sizes[1] == depth) {
    SetDim(to, 1, f.ref, 0);
    SetDim(to, 3, f.ref, 1);
    return to;
  }
  if (f.ref.rank == 1 && f.ref.sizes[0] == heads * depth) {
    to.sizes[1] = heads;
    to.strides[1] = f.ref.strides[0] * depth;
    to.sizes[3] = depth;
    to.strides[3] = f.ref.strides[0];
    return to;
  }
  return WrongFactor(call, operand, kPerChannel, fmt::format("1 number or [{}, {}]", heads, depth));
}

// Factors for each token, and for each head if there are three dims.
StatusOr<TensorRef> TokenView(const OpCall& call, const Operand& operand, const Factors& f, bool has_heads,
                              int64_t batches, int64_t heads, int64_t tokens, int64_t mode) {
  const TensorRef& ref = f.ref;
  const int last = has_heads ? 2 : 1;
  const bool fits = ref.rank == last + 1 && ref.sizes[0] >= batches && ref.sizes[last] >= tokens &&
                    (!has_heads || ref.sizes[1] == heads);
  if (!fits) {
    return WrongFactor(
        call, operand, mode,
        has_heads ? fmt::format("[{}, {}, {}]", batches, heads, tokens) : fmt::format("[{}, {}]", batches, tokens));
  }
  TensorRef to = FullView(ref);
  to.sizes[0] = ref.sizes[0];
  to.strides[0] = ref.strides[0];
  if (has_heads) SetDim(to, 1, ref, 1);
  to.sizes[2] = ref.sizes[last];
  to.strides[2] = ref.strides[last];
  return to;
}

// What tokens with the view `tokens` are multiplied with, or moved by.
StatusOr<TensorRef> FactorView(const OpCall& call, const Attention& a, const Extent& extent, const Operand& operand,
                               Factors f, const HeadView& tokens, int64_t mode) {
  if (!IsFloating(operand.dtype)) {
    return call.InvalidOperand(
        operand, fmt::format("has {}, expected float32, float16 or bfloat16", kernels::Name(operand.dtype)));
  }
  const int64_t heads = tokens.heads();
  const bool is_paged = mode == kPagedToken || mode == kPagedTokenHead;
  const int64_t batches = is_paged      ? tokens.batch()
                          : a.is_packed ? (a.is_paged() ? static_cast<int64_t>(a.setup->sequences.size()) : 1)
                          : a.parts.keys.size() > 1 ? static_cast<int64_t>(a.parts.keys.size())
                                                    : a.query.batch();
  const int64_t count = is_paged || (a.is_packed && !a.is_paged()) ? tokens.tokens() : extent.most_keys;
  switch (mode) {
    case kPerChannel: return ChannelView(call, operand, f, heads, tokens.depth());
    case kPerToken:
    case kPagedToken:
      while (f.ref.rank > 2 && f.ref.sizes[0] == 1) f.Drop(0);
      if (f.ref.rank == 3 && f.ref.sizes[2] == 1) f.Drop(2);
      return TokenView(call, operand, f, false, batches, heads, count, mode);
    case kPerHead: {
      f.DropOnes();
      TensorRef to = FullView(f.ref);
      if (f.ref.rank == 0 && heads == 1) return to;
      if (f.ref.rank != 1 || f.ref.sizes[0] != heads) {
        return WrongFactor(call, operand, mode, fmt::format("[{}]", heads));
      }
      SetDim(to, 1, f.ref, 0);
      return to;
    }
    case kPerTokenHead:
    case kPagedTokenHead:
      while (f.ref.rank > 3 && f.ref.sizes[0] == 1) f.Drop(0);
      if (f.ref.rank == 4 && f.ref.sizes[3] == 1) f.Drop(3);
      return TokenView(call, operand, f, true, batches, heads, count, mode);
    default:
      return call.InvalidOperand(operand, fmt::format("is given with mode {}, expected a mode from 0 to 5", mode),
                                 "0 channel or tensor, 1 token, 2 head, 3 token and head, 4 and 5 as 1 and 3 in pages");
  }
}

int64_t ModeOf(const OpCall& call, std::string_view name) {
  return call.Has(name) ? call.Int(name) : int64_t{kPerChannel};
}

// Scale and offset of keys (0) or values (1), alone or out of the tensor of both.
Status ReadPairOfFactors(const OpCall& call, const Attention& a, const Extent& extent, const HeadView& tokens,
                         int which, TensorRef& scale, TensorRef& offset, bool& in_pages) {
  const Parts& parts = a.parts;
  const Operand* own[] = {which == 0 ? parts.key_scale : parts.value_scale,
                          which == 0 ? parts.key_offset : parts.value_offset};
  const Operand* both[] = {parts.both_scale, parts.both_offset};
  const std::string_view name = which == 0 ? "keyAntiquantMode" : "valueAntiquantMode";
  for (int i = 0; i < 2; ++i) {
    const Operand* operand = own[i] != nullptr ? own[i] : both[i];
    if (operand == nullptr) continue;
    Factors f{call.RefOf(*operand)};
    const int64_t mode = ModeOf(call, own[i] != nullptr ? name : "antiquantMode");
    if (own[i] == nullptr) {
      if (f.ref.rank == 0 || f.ref.sizes[0] != 2) {
        return WrongFactor(call, *operand, mode, "2 in the first dim, of keys and of values,");
      }
      f.ref.data = static_cast<char*>(f.ref.data) + which * f.ref.strides[0] * kernels::ItemSize(f.ref.dtype);
      f.Drop(0);
    }
    REPRISE_ASSIGN_OR_RETURN((i == 0 ? scale : offset), FactorView(call, a, extent, *operand, f, tokens, mode));
    in_pages = mode == kPagedToken || mode == kPagedTokenHead;
    if (in_pages && !a.is_paged()) {
      return call.InvalidOperand(*operand, fmt::format("is given with mode {}, but keys do not lie in pages", mode));
    }
  }
  if (offset.rank != 0 && scale.rank == 0) {
    return call.Invalid("there is an offset of int8 tokens, but no scale", "pass both, or the scale alone");
  }
  return {};
}

Status CheckNumber(const OpCall& call, const Operand* operand) {
  if (operand == nullptr) return {};
  if (operand->dtype != DType::kFloat && operand->dtype != DType::kUInt64) {
    return call.InvalidOperand(*operand,
                               fmt::format("has {}, expected float32 or uint64", kernels::Name(operand->dtype)));
  }
  if (operand->tensor->count == 1) return {};
  return call.InvalidOperand(*operand, fmt::format("has shape {}, expected one number", ShapeText(operand->sizes())));
}

Status ReadOutScale(const OpCall& call, Attention& a) {
  const Parts& parts = a.parts;
  const bool is_int8 = parts.out->dtype == DType::kInt8;
  if (is_int8 != (parts.out_scale != nullptr)) {
    return call.InvalidOperand(
        *parts.out,
        is_int8 ? "has int8, but there is no scale for results" : "is not int8, but there is a scale for results",
        "quantScale2 and int8 results come together");
  }
  for (int i = 0; i < 2; ++i) {
    const Operand* operand = i == 0 ? parts.out_scale : parts.out_offset;
    if (operand == nullptr) continue;
    if (parts.out_scale == nullptr) return call.InvalidOperand(*operand, "is given without a scale for results");
    if (!IsFloating(operand->dtype)) {
      return call.InvalidOperand(*operand,
                                 fmt::format("has {}, expected float32 or bfloat16", kernels::Name(operand->dtype)));
    }
    REPRISE_ASSIGN_OR_RETURN((i == 0 ? a.out_scale : a.out_offset),
                             ChannelView(call, *operand, {call.RefOf(*operand)}, a.setup->heads, a.setup->value_depth));
  }
  return {};
}

// A factor for each token and head of int8 queries.
Status ReadQueryFactor(const OpCall& call, Attention& a) {
  const Operand* operand = a.parts.query_factor;
  if (operand == nullptr) return {};
  if (a.parts.query->dtype != DType::kInt8 || operand->dtype != DType::kFloat) {
    return call.InvalidOperand(
        *operand, fmt::format("has {} for queries of {}, expected float32 for int8", kernels::Name(operand->dtype),
                              kernels::Name(a.parts.query->dtype)));
  }
  if (const int64_t mode = ModeOf(call, "queryQuantMode"); mode != kPerTokenHead) {
    return call.Invalid(fmt::format("queryQuantMode is {}, expected 3", mode), "a factor for each token and head");
  }
  TensorRef ref = call.RefOf(*operand);
  if (ref.rank > 1 && ref.sizes[ref.rank - 1] == 1 && ref.rank == a.parts.query->rank()) --ref.rank;
  // The dims of the queries without their elements; BSH has the heads behind.
  std::string layout(a.layout == "BSH" ? "BSN" : a.layout == "SBH" ? "SBN" : a.layout);
  std::erase(layout, 'D');
  bool fits = ref.rank == static_cast<int>(layout.size());
  TensorRef to = FullView(ref);
  const TensorRef& query = a.query.ref;
  for (int d = 0; fits && d < ref.rank; ++d) {
    const char letter = layout[static_cast<size_t>(d)];
    const int at = letter == 'B' ? 0 : letter == 'N' ? 1 : 2;
    to.sizes[at] = ref.sizes[d];
    to.strides[at] = ref.strides[d];
    fits = ref.sizes[d] == query.sizes[at];
  }
  if (!fits) {
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected a number for each token and head of query "
                                                     "in the layout {}",
                                                     ShapeText(operand->sizes()), layout));
  }
  a.query_factor = to;
  return {};
}

}  // namespace

Status ReadFactors(const OpCall& call, Attention& a, const Extent& extent) {
  const Parts& parts = a.parts;
  const bool has_int8_keys = parts.keys[0].dtype == DType::kInt8;
  const bool has_int8_queries = parts.query->dtype == DType::kInt8;
  const bool has_factors = parts.both_scale != nullptr || parts.both_offset != nullptr || parts.key_scale != nullptr ||
                           parts.key_offset != nullptr || parts.value_scale != nullptr || parts.value_offset != nullptr;
  if (has_factors && !has_int8_keys) {
    return call.InvalidOperand(
        parts.keys[0], fmt::format("has {}, but there are factors for int8", kernels::Name(parts.keys[0].dtype)),
        "pass null for the factors, or int8 keys and values");
  }
  for (const Operand* number : {parts.score_factor, parts.weight_factor, parts.value_factor}) {
    REPRISE_RETURN_IF_ERROR(CheckNumber(call, number));
    if (number != nullptr && !has_int8_queries) {
      return call.InvalidOperand(*number, "is given, but query is not int8", "pass null");
    }
  }
  REPRISE_RETURN_IF_ERROR(ReadQueryFactor(call, a));
  REPRISE_RETURN_IF_ERROR(ReadOutScale(call, a));
  if (!has_int8_keys) return {};
  if (!has_int8_queries || has_factors) {
    REPRISE_RETURN_IF_ERROR(
        ReadPairOfFactors(call, a, extent, a.keys[0], 0, a.key_scale, a.key_offset, a.key_scale_in_pages));
    REPRISE_RETURN_IF_ERROR(
        ReadPairOfFactors(call, a, extent, a.values[0], 1, a.value_scale, a.value_offset, a.value_scale_in_pages));
  }
  const bool is_known = a.key_scale.rank != 0 && a.value_scale.rank != 0;
  if (is_known || (has_int8_queries && parts.score_factor != nullptr && parts.value_factor != nullptr)) return {};
  return call.InvalidOperand(parts.keys[0], "has int8, but there are no factors for keys and values",
                             "pass antiquantScale, or keyAntiquantScale and valueAntiquantScale; for int8 queries also "
                             "deqScale1 and deqScale2");
}

Status InferAttentionTypes(OpCall& call) {
  const Operand& query = call.Get("query");
  const Operand& out = call.Get("attentionOut");
  const bool has_int8_queries = query.dtype == DType::kInt8;
  call.compute = !has_int8_queries ? query.dtype : out.dtype == DType::kInt8 ? DType::kFloat16 : out.dtype;
  const Operand* first = nullptr;
  for (std::string_view name : {"key", "value"}) {
    const bool is_list = call.op.params[1].kind == ParamKind::kTensorList;
    const std::span<const Operand> tensors =
        is_list ? call.List(name) : std::span<const Operand>(call.Find(name), call.Find(name) == nullptr ? 0 : 1);
    for (const Operand& operand : tensors) {
      if (first == nullptr) first = &operand;
      const bool fits =
          operand.dtype == first->dtype && (operand.dtype == query.dtype || operand.dtype == DType::kInt8);
      if (fits) continue;
      return call.InvalidOperand(operand,
                                 fmt::format("has {}, expected the type {} of query, or int8 for keys and values",
                                             kernels::Name(operand.dtype), kernels::Name(query.dtype)));
    }
  }
  if (out.dtype != call.compute && out.dtype != DType::kInt8) {
    return call.InvalidOperand(
        out, fmt::format("has {}, expected {} or int8", kernels::Name(out.dtype), kernels::Name(call.compute)));
  }
  return {};
}

}  // namespace reprise::ops::attention
