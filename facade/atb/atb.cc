// SPDX-License-Identifier: Apache-2.0
//
// Operations of the transformer library. Their parameters and tensors are the caller's classes, of which nothing but
// the names is known here.
#include <cstdint>

#include "base/status.h"
#include "runtime/report.h"

using reprise::runtime::Refuse;

#pragma GCC visibility push(default)

namespace atb {

class Context;
class Operation;
struct Tensor;
using Status = int;

namespace infer {
struct [[gnu::visibility("default")]] ElewiseParam;
struct [[gnu::visibility("default")]] GroupTopkParam;
struct [[gnu::visibility("default")]] LinearParam;
struct [[gnu::visibility("default")]] PagedAttentionParam;
struct [[gnu::visibility("default")]] ReshapeAndCacheParam;
struct [[gnu::visibility("default")]] RmsNormParam;
struct [[gnu::visibility("default")]] RopeParam;
struct [[gnu::visibility("default")]] SelfAttentionParam;
}  // namespace infer

Status CreateContext(Context** context);
Status DestroyContext(Context* context);
template <class Param>
[[gnu::visibility("default")]] Status CreateOperation(const Param& param, Operation** operation);
Status DestroyOperation(Operation* operation);

class Utils {
 public:
  static uint64_t GetTensorSize(const Tensor& tensor);
};

}  // namespace atb

#pragma GCC visibility pop

namespace {

int No(const char* api) {
  return Refuse(
      api, reprise::errors::kFeatureNotSupported, "there is no transformer library for this device yet",
      "call the aclnn operators that do the same: torch_npu.npu_fusion_attention, npu_fused_infer_attention_score,"
      " npu_rms_norm, torch.nn.functional.scaled_dot_product_attention");
}

}  // namespace

namespace atb {

Status CreateContext(Context** context) {
  if (context != nullptr) *context = nullptr;
  return No("atb::CreateContext");
}
Status DestroyContext(Context* /*context*/) { return No("atb::DestroyContext"); }
template <class Param>
Status CreateOperation(const Param& /*param*/, Operation** operation) {
  if (operation != nullptr) *operation = nullptr;
  return No("atb::CreateOperation");
}
Status DestroyOperation(Operation* operation) { return operation != nullptr ? No("atb::DestroyOperation") : 0; }
uint64_t Utils::GetTensorSize(const Tensor& /*tensor*/) {
  No("atb::Utils::GetTensorSize");
  return 0;
}

template Status CreateOperation(const infer::ElewiseParam&, Operation**);
template Status CreateOperation(const infer::GroupTopkParam&, Operation**);
template Status CreateOperation(const infer::LinearParam&, Operation**);
template Status CreateOperation(const infer::PagedAttentionParam&, Operation**);
template Status CreateOperation(const infer::ReshapeAndCacheParam&, Operation**);
template Status CreateOperation(const infer::RmsNormParam&, Operation**);
template Status CreateOperation(const infer::RopeParam&, Operation**);
template Status CreateOperation(const infer::SelfAttentionParam&, Operation**);

}  // namespace atb
