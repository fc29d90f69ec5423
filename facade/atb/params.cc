// SPDX-License-Identifier: Apache-2.0
#include "facade/atb/params.h"

#include <fmt/format.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

namespace reprise::atb_library {

using ops::transformer::Mask;
using ops::transformer::Request;

// The layouts that programs are compiled with.
static_assert(sizeof(infer::ElewiseParam) == 64 && offsetof(infer::ElewiseParam, outTensorType) == 52);
static_assert(sizeof(infer::GroupTopkParam) == 24 && offsetof(infer::GroupTopkParam, n) == 10);
static_assert(sizeof(infer::LinearParam) == 32 && offsetof(infer::LinearParam, enAccum) == 8);
static_assert(sizeof(infer::PagedAttentionParam) == 120 && offsetof(infer::PagedAttentionParam, mlaVHeadSize) == 48);
static_assert(sizeof(infer::ReshapeAndCacheParam) == 24 && offsetof(infer::ReshapeAndCacheParam, kvCacheCfg) == 4);
static_assert(sizeof(infer::RmsNormParam) == 144 && offsetof(infer::RmsNormParam, postNormParam) == 104);
static_assert(sizeof(infer::RopeParam) == 16);
static_assert(sizeof(infer::SelfAttentionParam) == 144 && offsetof(infer::SelfAttentionParam, windowSize) == 76);

Status Unsupported(const char* operation, const char* member, int64_t value, std::string hint) {
  return Error(kFeatureNotSupported, fmt::format("{}: {} is {}, which is not supported yet", operation, member, value))
      .Culprit(fmt::format("parameter {}", member))
      .Hint(std::move(hint));
}

namespace {

/// A member, what it is, and what it has to be.
struct Fixed {
  const char* member;
  int64_t value;
  int64_t expected = 0;
};

Status CheckFixed(const char* operation, std::initializer_list<Fixed> members) {
  for (const Fixed& one : members) {
    if (one.value == one.expected) continue;
    return Unsupported(operation, one.member, one.value, fmt::format("leave {} at {}", one.member, one.expected));
  }
  return {};
}

Status CheckReserved(const char* operation, std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) {
    if (byte != 0) {
      return Unsupported(operation, "a reserved byte", byte, "initialise the parameters: begin with {}");
    }
  }
  return {};
}

}  // namespace

StatusOr<Request> Read(const infer::ElewiseParam& param) {
  using Kind = ops::transformer::Elementwise::Kind;
  constexpr const char* kName = "ElewiseOperation";
  const auto kind = static_cast<int64_t>(param.elewiseType);
  const bool is_left_out = kind == Kind::kQuantize || kind == Kind::kDequantizeChannels;
  if (kind <= Kind::kUndefined || kind >= Kind::kCount || is_left_out) {
    return Unsupported(kName, "elewiseType", kind,
                       "call the aclnn operator that does the same, such as aclnnAscendQuant");
  }
  REPRISE_RETURN_IF_ERROR(CheckFixed(kName, {{"quantParam.asymmetric", param.quantParam.asymmetric}}));
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  ops::transformer::Elementwise request;
  request.kind = static_cast<Kind>(kind);
  request.factor = param.mulsParam.varAttr;
  if (param.outTensorType != ACL_DT_UNDEFINED) request.type = static_cast<kernels::DType>(param.outTensorType);
  return Request(request);
}

StatusOr<Request> Read(const infer::GroupTopkParam& param) {
  constexpr const char* kName = "GroupTopkOperation";
  if (param.groupMultiFlag > infer::GroupTopkParam::SUM_MULTI_MAX) {
    return Unsupported(kName, "groupMultiFlag", param.groupMultiFlag, "pass 0, the greatest element, or 1, a sum of n");
  }
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  const bool is_sum = param.groupMultiFlag == infer::GroupTopkParam::SUM_MULTI_MAX;
  return Request(
      ops::transformer::GroupChoice{.groups = param.groupNum, .chosen = param.k, .summed = is_sum ? param.n : 1});
}

StatusOr<Request> Read(const infer::LinearParam& param) {
  constexpr const char* kName = "LinearOperation";
  REPRISE_RETURN_IF_ERROR(CheckFixed(kName, {{"outDataType", param.outDataType, ACL_DT_UNDEFINED}}));
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  if (param.hasBias && param.enAccum) {
    return Unsupported(kName, "hasBias with enAccum", 1, "add the bias to the sum first, and set hasBias to false");
  }
  return Request(ops::transformer::Linear{.transposes_a = param.transposeA,
                                          .transposes_b = param.transposeB,
                                          .has_bias = param.hasBias,
                                          .accumulates = param.enAccum});
}

StatusOr<Request> Read(const infer::PagedAttentionParam& param) {
  using Param = infer::PagedAttentionParam;
  constexpr const char* kName = "PagedAttentionOperation";
  REPRISE_RETURN_IF_ERROR(CheckFixed(kName, {{"batchRunStatusEnable", param.batchRunStatusEnable},
                                             {"quantType", param.quantType},
                                             {"outDataType", param.outDataType, ACL_DT_UNDEFINED},
                                             {"hasQuantOffset", param.hasQuantOffset},
                                             {"compressType", param.compressType},
                                             {"scaleType", param.scaleType},
                                             {"inputLayout", param.inputLayout}}));
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  if (param.calcType < Param::CALC_TYPE_UNDEFINED || param.calcType > Param::CALC_TYPE_SPEC) {
    return Unsupported(kName, "calcType", param.calcType, "pass 0, a query for each sequence, or 1, several");
  }
  const bool has_query_lengths = param.calcType == Param::CALC_TYPE_SPEC;
  Mask mask = Mask::kNone;
  switch (param.maskType) {
    case Param::UNDEFINED: break;
    case Param::MASK_TYPE_NORM: mask = has_query_lengths ? Mask::kRows : Mask::kNorm; break;
    case Param::MASK_TYPE_ALIBI: mask = Mask::kAlibi; break;
    case Param::MASK_TYPE_SPEC: mask = Mask::kRows; break;
    case Param::MASK_TYPE_NORM_COMPRESS: mask = Mask::kCausal; break;
    default: return Unsupported(kName, "maskType", param.maskType, "pass 0 to 3 or 5");
  }
  const bool fits =
      has_query_lengths ? mask != Mask::kAlibi : mask == Mask::kNone || mask == Mask::kNorm || mask == Mask::kAlibi;
  if (!fits) {
    return Unsupported(kName, has_query_lengths ? "maskType with calcType 1" : "maskType with calcType 0",
                       param.maskType, "calcType 0 takes maskType 0, 1 and 2, calcType 1 takes 0, 1, 3 and 5");
  }
  return Request(ops::transformer::PagedAttention{.heads = param.headNum,
                                                  .kv_heads = param.kvHeadNum != 0 ? param.kvHeadNum : param.headNum,
                                                  .scale = param.qkScale,
                                                  .mask = mask,
                                                  .value_size = param.mlaVHeadSize,
                                                  .has_query_lengths = has_query_lengths});
}

StatusOr<Request> Read(const infer::ReshapeAndCacheParam& param) {
  using Param = infer::ReshapeAndCacheParam;
  constexpr const char* kName = "ReshapeAndCacheOperation";
  REPRISE_RETURN_IF_ERROR(CheckFixed(kName, {{"compressType", param.compressType}}));
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  if (param.kvCacheCfg < Param::K_CACHE_V_CACHE || param.kvCacheCfg > Param::K_CACHE_V_CACHE_NZ) {
    return Unsupported(kName, "kvCacheCfg", param.kvCacheCfg, "pass 0, 1 or 2");
  }
  return Request(ops::transformer::CacheWrite{.has_value = param.kvCacheCfg != Param::K_CACHE_V_BYPASS,
                                              .is_tiled = param.kvCacheCfg == Param::K_CACHE_V_CACHE_NZ});
}

StatusOr<Request> Read(const infer::RmsNormParam& param) {
  using Param = infer::RmsNormParam;
  constexpr const char* kName = "RmsNormOperation";
  REPRISE_RETURN_IF_ERROR(CheckReserved(kName, param.rsv));
  ops::transformer::RmsNorm request;
  if (param.layerType == Param::RMS_NORM_NORM) {
    const Param::NormParam& norm = param.normParam;
    REPRISE_RETURN_IF_ERROR(CheckReserved(kName, norm.rsv));
    REPRISE_RETURN_IF_ERROR(CheckFixed(
        kName, {{"normParam.modelType", norm.modelType}, {"normParam.dynamicQuantType", norm.dynamicQuantType}}));
    request.is_quantized = norm.quantType == infer::QUANT_INT8;
    if (norm.quantType != infer::QUANT_UNDEFINED && !request.is_quantized) {
      return Unsupported(kName, "normParam.quantType", norm.quantType, "pass 0, or 2 for int8");
    }
    if (request.is_quantized && norm.rstd) {
      return Unsupported(kName, "normParam.rstd with quantType", norm.quantType, "leave rstd at false");
    }
    request.epsilon = norm.epsilon;
    request.has_rstd = norm.rstd;
    return Request(request);
  }
  const auto read_sum = [&](const auto& sum, ops::transformer::RmsNorm::Kind kind) -> Status {
    REPRISE_RETURN_IF_ERROR(CheckReserved(kName, sum.rsv));
    REPRISE_RETURN_IF_ERROR(CheckFixed(kName, {{"quantType", sum.quantType}}));
    request.kind = kind;
    request.epsilon = sum.epsilon;
    request.has_bias = sum.hasBias;
    return {};
  };
  if (param.layerType == Param::RMS_NORM_PRENORM) {
    REPRISE_RETURN_IF_ERROR(read_sum(param.preNormParam, ops::transformer::RmsNorm::Kind::kBefore));
  } else if (param.layerType == Param::RMS_NORM_POSTNORM) {
    REPRISE_RETURN_IF_ERROR(read_sum(param.postNormParam, ops::transformer::RmsNorm::Kind::kAfter));
  } else {
    return Unsupported(kName, "layerType", param.layerType, "pass 1 (norm), 2 (prenorm) or 3 (postnorm)");
  }
  return Request(request);
}

StatusOr<Request> Read(const infer::RopeParam& param) {
  REPRISE_RETURN_IF_ERROR(CheckFixed("RopeOperation", {{"cosFormat", param.cosFormat}}));
  REPRISE_RETURN_IF_ERROR(CheckReserved("RopeOperation", param.rsv));
  return Request(ops::transformer::Rotary{.coefficient = param.rotaryCoeff});
}

namespace {

constexpr const char* kSelfAttention = "SelfAttentionOperation";

Status CheckSelfAttention(const infer::SelfAttentionParam& param) {
  using Param = infer::SelfAttentionParam;
  if (param.calcType != Param::PA_ENCODER && param.calcType != Param::PREFIX_ENCODER) {
    return Unsupported(kSelfAttention, "calcType", param.calcType,
                       "pass 3 (sequences end to end) or 4 (with what came before them in pages)");
  }
  REPRISE_RETURN_IF_ERROR(CheckFixed(kSelfAttention, {{"quantType", param.quantType},
                                                      {"outDataType", param.outDataType, ACL_DT_UNDEFINED},
                                                      {"batchRunStatusEnable", param.batchRunStatusEnable},
                                                      {"clampType", param.clampType},
                                                      {"kvcacheCfg", param.kvcacheCfg},
                                                      {"scaleType", param.scaleType},
                                                      {"inputLayout", param.inputLayout},
                                                      {"mlaVHeadSize", param.mlaVHeadSize},
                                                      {"cacheType", param.cacheType},
                                                      {"windowSize", param.windowSize}}));
  return CheckReserved(kSelfAttention, param.rsv);
}

}  // namespace

StatusOr<Request> Read(const infer::SelfAttentionParam& param) {
  using Param = infer::SelfAttentionParam;
  REPRISE_RETURN_IF_ERROR(CheckSelfAttention(param));
  ops::transformer::SelfAttention request = {.heads = param.headNum,
                                             .kv_heads = param.kvHeadNum != 0 ? param.kvHeadNum : param.headNum,
                                             .scale = param.qScale * param.qkScale};
  request.is_paged = param.calcType == Param::PREFIX_ENCODER;
  switch (param.maskType) {
    case Param::MASK_TYPE_UNDEFINED: break;
    case Param::MASK_TYPE_NORM: request.mask = Mask::kNorm; break;
    case Param::MASK_TYPE_ALIBI: request.mask = Mask::kAlibi; break;
    case Param::MASK_TYPE_NORM_COMPRESS:
    case Param::MASK_TYPE_CAUSAL_MASK: request.mask = Mask::kCausal; break;
    default: return Unsupported(kSelfAttention, "maskType", param.maskType, "pass the whole mask, maskType 1 or 2");
  }
  request.has_mask = request.mask != Mask::kNone && param.maskType != Param::MASK_TYPE_CAUSAL_MASK;
  if (request.is_paged && (request.mask == Mask::kNorm || request.mask == Mask::kAlibi)) {
    return Unsupported(kSelfAttention, "maskType with calcType 4", param.maskType, "pass 0, 3 or 9");
  }
  return Request(request);
}

}  // namespace reprise::atb_library
