// SPDX-License-Identifier: Apache-2.0
//
// Operations that are called as functions, in two phases, with tensors of aclnn: the first checks them and makes an
// operation that holds them, the second runs it.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "atb/context.h"
#include "atb/operation.h"
#include "facade/atb/operation.h"
#include "facade/atb/params.h"
#include "runtime/report.h"

struct aclTensor;

namespace reprise::atb_library {
namespace {

using ops::transformer::GivenTensor;
using ops::transformer::Mask;
using ops::transformer::Request;
using runtime::Api;

/// What the first phase makes for the second one.
class BoundOperation final : public ::atb::Operation {
 public:
  BoundOperation(Request request, Tensors inputs, Tensors outputs, std::vector<std::vector<char>> numbers)
      : request_(std::move(request)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        numbers_(std::move(numbers)) {}

  std::string GetName() const override { return std::string(ops::transformer::SignatureOf(request_).name); }
  ::atb::Status InferShape(const ::atb::SVector<::atb::TensorDesc>&,
                           ::atb::SVector<::atb::TensorDesc>&) const override {
    return Refuses("atb::Operation::InferShape");
  }
  uint32_t GetInputNum() const override { return static_cast<uint32_t>(inputs_.size()); }
  uint32_t GetOutputNum() const override { return static_cast<uint32_t>(outputs_.size()); }
  ::atb::Status Setup(const ::atb::VariantPack&, uint64_t&, ::atb::Context*) override {
    return Refuses("atb::Operation::Setup");
  }
  ::atb::Status Execute(const ::atb::VariantPack&, uint8_t*, uint64_t, ::atb::Context*) override {
    return Refuses("atb::Operation::Execute");
  }
  Status Launch(::atb::Context* context) const { return RunOn(context, request_, inputs_, outputs_); }

 private:
  static int Refuses(const char* api) {
    return runtime::Refuse(api, errors::kFeatureNotSupported, "the operation was made by a function of two phases",
                           "pass it to the second phase of that function");
  }

  const Request request_;
  const Tensors inputs_, outputs_;
  const std::vector<std::vector<char>> numbers_;  // those of the host, which the program may free
};

/// The tensors of a call, as they come.
class Binder {
 public:
  Status In(const aclTensor* tensor) { return Put(tensor, inputs_); }
  Status Out(const aclTensor* tensor) { return Put(tensor, outputs_); }
  /// Numbers on the host.
  Status Numbers(const aclTensor* tensor) {
    REPRISE_RETURN_IF_ERROR(Put(tensor, inputs_));
    GivenTensor& given = inputs_.back();
    if (!given.is_given) return {};
    const auto bytes =
        static_cast<size_t>(given.view.count) * static_cast<size_t>(kernels::ItemSize(given.view.dtype()));
    const char* const data = static_cast<const char*>(given.view.data);
    if (bytes != 0 && data == nullptr) return Error(kOperatorArgumentNull, "a tensor of lengths has no data");
    std::vector<char>& copy = numbers_.emplace_back(std::max<size_t>(bytes, 1));
    if (bytes != 0) std::memcpy(copy.data(), data, bytes);
    given.view.data = nullptr;
    given.host = copy.data();
    return {};
  }

  /// Checks the call; the operation on success.
  Status Finish(Request request, uint64_t* workspace_bytes, ::atb::Operation** op) {
    if (workspace_bytes == nullptr) return runtime::NullParameter(kOperatorArgumentNull, "workspaceSize");
    if (op == nullptr) return runtime::NullParameter(kOperatorArgumentNull, "op");
    *workspace_bytes = 0;
    *op = nullptr;
    REPRISE_RETURN_IF_ERROR(ops::transformer::Check(request, inputs_, outputs_));
    *op = new BoundOperation(std::move(request), std::move(inputs_), std::move(outputs_), std::move(numbers_));
    return {};
  }

 private:
  static Status Put(const aclTensor* tensor, Tensors& list) {
    GivenTensor& given = list.emplace_back();
    if (tensor == nullptr) return {};
    REPRISE_ASSIGN_OR_RETURN(const ops::Tensor* found, ops::FindTensor(tensor));
    // Row-major, but the offset, which goes into the address.
    given.view = *found;
    if (given.view.data != nullptr && kernels::IsKnown(found->dtype())) {
      given.view.data = static_cast<char*>(found->data) + found->offset * kernels::ItemSize(found->dtype());
      given.view.offset = 0;
    }
    given.is_given = true;
    int64_t stride = 1;
    for (size_t d = found->sizes.size(); d-- > 0; stride *= found->sizes[d]) {
      if (found->sizes[d] > 1 && found->count != 0 && found->strides[d] != stride) {
        return Error(kOperatorArgumentInvalid,
                     fmt::format("a tensor of shape {} has strides {}, expected a row-major one",
                                 ops::ShapeText(found->sizes), ops::ShapeText(found->strides)))
            .Hint("copy it into contiguous memory first");
      }
    }
    return {};
  }

  Tensors inputs_, outputs_;
  std::vector<std::vector<char>> numbers_;
};

int Second(const char* api, ::atb::Operation* op, ::atb::Context* context) noexcept {
  return Api(api, [&]() -> Status {
    const auto* bound = dynamic_cast<const BoundOperation*>(op);
    if (bound == nullptr) {
      return Error(op == nullptr ? kOperatorArgumentNull : kOperatorArgumentInvalid,
                   fmt::format("{}: the operation is not one of {}GetWorkspaceSize", api, api))
          .Hint("pass the operation that the first phase wrote");
    }
    return bound->Launch(context);
  });
}

#define REPRISE_IN(tensor) REPRISE_RETURN_IF_ERROR(binder.In(tensor))
#define REPRISE_OUT(tensor) REPRISE_RETURN_IF_ERROR(binder.Out(tensor))
#define REPRISE_NUMBERS(tensor) REPRISE_RETURN_IF_ERROR(binder.Numbers(tensor))

}  // namespace
}  // namespace reprise::atb_library

using reprise::Status;
using reprise::runtime::Api;
namespace library = reprise::atb_library;
namespace transformer = reprise::ops::transformer;

#pragma GCC visibility push(default)

extern "C" {

int AtbPagedCacheLoadGetWorkspaceSize(const aclTensor* keyCache, const aclTensor* valueCache,
                                      const aclTensor* blockTables, const aclTensor* contextLens, const aclTensor* key,
                                      const aclTensor* value, const aclTensor* seqStarts, int8_t kvCacheCfg,
                                      bool isSeqLensCumsumType, bool hasSeqStarts, uint64_t* workspaceSize,
                                      atb::Operation** op, atb::Context* /*context*/) {
  return Api("AtbPagedCacheLoadGetWorkspaceSize", [&]() -> Status {
    library::Binder binder;
    for (const aclTensor* tensor : {keyCache, valueCache, blockTables, contextLens, seqStarts}) REPRISE_IN(tensor);
    for (const aclTensor* tensor : {key, value}) REPRISE_OUT(tensor);
    if (kvCacheCfg != 0 && kvCacheCfg != 1) {
      return library::Unsupported("AtbPagedCacheLoad", "kvCacheCfg", kvCacheCfg, "pass 0 for tiles, 1 for rows");
    }
    return binder.Finish(
        transformer::CacheRead{
            .is_tiled = kvCacheCfg == 0, .is_cumulative = isSeqLensCumsumType, .has_starts = hasSeqStarts},
        workspaceSize, op);
  });
}
int AtbPagedCacheLoad(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* op, atb::Context* context) {
  return library::Second("AtbPagedCacheLoad", op, context);
}

int AtbMLAGetWorkspaceSize(const aclTensor* qNope, const aclTensor* qRope, const aclTensor* ctKV,
                           const aclTensor* kRope, const aclTensor* blockTables, const aclTensor* contextLens,
                           const aclTensor* mask, const aclTensor* qSeqLen, const aclTensor* qkDescale,
                           const aclTensor* pvDescale, int32_t headNum, float qkScale, int32_t kvHeadNum, int maskType,
                           int calcType, uint8_t cacheMode, const aclTensor* attenOut, const aclTensor* lse,
                           uint64_t* workspaceSize, atb::Operation** op, atb::Context* /*context*/) {
  return Api("AtbMLAGetWorkspaceSize", [&]() -> Status {
    constexpr const char* kName = "AtbMLA";
    constexpr int kRing = 2;         // which asks for the sums
    constexpr int kSplitCaches = 1;  // ctKV and kRope apart, row by row
    if (maskType != 0 || mask != nullptr) return library::Unsupported(kName, "maskType", maskType, "pass no mask");
    if (calcType != 0 && calcType != kRing) {
      return library::Unsupported(kName, "calcType", calcType,
                                  "pass one query for each sequence: calcType 0, or 2 with lse");
    }
    if (cacheMode != kSplitCaches || qkDescale != nullptr || pvDescale != nullptr) {
      return library::Unsupported(kName, "cacheMode", cacheMode, "pass caches that are not quantised: cacheMode 1");
    }
    if (qSeqLen != nullptr) return library::Unsupported(kName, "qSeqLen", 1, "pass one query for each sequence");
    library::Binder binder;
    for (const aclTensor* tensor : {qNope, qRope, ctKV, kRope, blockTables}) REPRISE_IN(tensor);
    REPRISE_NUMBERS(contextLens);
    for (const aclTensor* tensor : {attenOut, lse}) REPRISE_OUT(tensor);
    return binder.Finish(transformer::LatentAttention{.heads = headNum, .kv_heads = kvHeadNum, .scale = qkScale},
                         workspaceSize, op);
  });
}
int AtbMLA(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* op, atb::Context* context) {
  return library::Second("AtbMLA", op, context);
}

int AtbRingMLAGetWorkspaceSize(const aclTensor* qNope, const aclTensor* qRope, const aclTensor* kNope,
                               const aclTensor* kRope, const aclTensor* value, const aclTensor* mask,
                               const aclTensor* seqLen, const aclTensor* prevOut, const aclTensor* prevLse,
                               int32_t headNum, int32_t kvHeadNum, float qkScale, int /*kernelType*/, int maskType,
                               int inputLayout, int calcType, const aclTensor* output, const aclTensor* softmaxLse,
                               uint64_t* workspaceSize, atb::Operation** op, atb::Context* /*context*/) {
  return Api("AtbRingMLAGetWorkspaceSize", [&]() -> Status {
    constexpr const char* kName = "AtbRingMLA";
    if (maskType != 0 && maskType != 1)
      return library::Unsupported(kName, "maskType", maskType, "pass 0, or 1 for causal");
    if (calcType != 0 && calcType != 1)
      return library::Unsupported(kName, "calcType", calcType, "pass 0, or 1 for the first");
    if (inputLayout != 0) return library::Unsupported(kName, "inputLayout", inputLayout, "pass 0");
    library::Binder binder;
    for (const aclTensor* tensor : {qNope, qRope, kNope, kRope, value, mask}) REPRISE_IN(tensor);
    REPRISE_NUMBERS(seqLen);
    for (const aclTensor* tensor : {prevOut, prevLse}) REPRISE_IN(tensor);
    for (const aclTensor* tensor : {output, softmaxLse}) REPRISE_OUT(tensor);
    return binder.Finish(transformer::RingAttention{.heads = headNum,
                                                    .kv_heads = kvHeadNum,
                                                    .scale = qkScale,
                                                    .is_causal = maskType == 1,
                                                    .is_first = calcType == 1},
                         workspaceSize, op);
  });
}
int AtbRingMLA(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* op, atb::Context* context) {
  return library::Second("AtbRingMLA", op, context);
}

int AtbSelfAttentionPrefixEncoderGetWorkspaceSize(const aclTensor* query, const aclTensor* key, const aclTensor* value,
                                                  const aclTensor* blockTables, const aclTensor* mask,
                                                  const aclTensor* seqLen, const aclTensor* kvSeqLen,
                                                  const aclTensor* slopes, int maskType, int32_t headNum,
                                                  int32_t kvHeadNum, float qkScale, const aclTensor* attnOut,
                                                  uint64_t* workspaceSize, atb::Operation** op,
                                                  atb::Context* /*context*/) {
  return Api("AtbSelfAttentionPrefixEncoderGetWorkspaceSize", [&]() -> Status {
    using Param = library::infer::SelfAttentionParam;
    constexpr const char* kName = "AtbSelfAttentionPrefixEncoder";
    const bool is_causal = maskType == Param::MASK_TYPE_NORM_COMPRESS || maskType == Param::MASK_TYPE_CAUSAL_MASK;
    if (!is_causal || slopes != nullptr) {
      return library::Unsupported(kName, "maskType", maskType, "pass 3 or 9, causal masks, and no slopes");
    }
    library::Binder binder;
    for (const aclTensor* tensor : {query, key, value, blockTables, mask}) REPRISE_IN(tensor);
    for (const aclTensor* tensor : {seqLen, kvSeqLen}) REPRISE_NUMBERS(tensor);
    REPRISE_OUT(attnOut);
    return binder.Finish(transformer::SelfAttention{.heads = headNum,
                                                    .kv_heads = kvHeadNum != 0 ? kvHeadNum : headNum,
                                                    .scale = qkScale,
                                                    .mask = transformer::Mask::kCausal,
                                                    .is_paged = true,
                                                    .name = kName,
                                                    .has_mask = true},
                         workspaceSize, op);
  });
}
int AtbSelfAttentionPrefixEncoder(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* op,
                                  atb::Context* context) {
  return library::Second("AtbSelfAttentionPrefixEncoder", op, context);
}

int AtbFusedAddTopkDivGetWorkspaceSize(const aclTensor* x, const aclTensor* addNum, const aclTensor* mappingNum,
                                       const aclTensor* mappingTable, uint32_t groupNum, uint32_t groupTopk, uint32_t n,
                                       uint32_t k, int activationType, bool isNorm, float scale,
                                       bool enableExpertMapping, const aclTensor* y, const aclTensor* indices,
                                       uint64_t* workspaceSize, atb::Operation** op, atb::Context* /*context*/) {
  return Api("AtbFusedAddTopkDivGetWorkspaceSize", [&]() -> Status {
    constexpr const char* kName = "AtbFusedAddTopkDiv";
    constexpr int kSigmoid = 8;
    if (activationType != kSigmoid) {
      return library::Unsupported(kName, "activationType", activationType, "pass 8, activation_sigmoid");
    }
    if (enableExpertMapping || mappingNum != nullptr || mappingTable != nullptr) {
      return library::Unsupported(kName, "enableExpertMapping", enableExpertMapping, "map the experts after the call");
    }
    library::Binder binder;
    for (const aclTensor* tensor : {x, addNum}) REPRISE_IN(tensor);
    for (const aclTensor* tensor : {y, indices}) REPRISE_OUT(tensor);
    return binder.Finish(transformer::ExpertChoice{.groups = groupNum,
                                                   .chosen_groups = groupTopk,
                                                   .summed = n,
                                                   .chosen = k,
                                                   .is_normalized = isNorm,
                                                   .scale = scale},
                         workspaceSize, op);
  });
}
int AtbFusedAddTopkDiv(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* op, atb::Context* context) {
  return library::Second("AtbFusedAddTopkDiv", op, context);
}

// The arguments are not looked at: there is no such operation yet.
int AtbMLAPreprocessGetWorkspaceSize() {
  return reprise::runtime::Refuse("AtbMLAPreprocessGetWorkspaceSize", reprise::errors::kFeatureNotSupported,
                                  "the fused preprocessing of latent attention is not supported yet",
                                  "call its parts: rms_norm, quantised matmul, rotary embedding, reshape_and_cache");
}
int AtbMLAPreprocess(void* /*workspace*/, uint64_t /*workspaceSize*/, atb::Operation* /*op*/,
                     atb::Context* /*context*/) {
  return AtbMLAPreprocessGetWorkspaceSize();
}

}  // extern "C"

#pragma GCC visibility pop
