// SPDX-License-Identifier: Apache-2.0
//
// scaled_dot_product_attention with the device's kernels, which never make the matrix of scores. What they do not take
// (dropout, a mask that needs gradients, float64, …) runs as the composites of torch.
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "ops/native.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int32_t>::max();
constexpr int64_t kCausal = 2;  // sparseMode: from the left upper corner
constexpr int64_t kCopies = 8;  // of each statistic that the gradients take

double ScaleOf(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

bool IsFit(const at::Tensor& tensor, const at::Tensor& query) {
  return tensor.dim() == 4 && tensor.scalar_type() == query.scalar_type() && tensor.device() == query.device() &&
         tensor.numel() != 0 && tensor.size(3) == query.size(3);
}

int64_t Choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout, bool is_causal, std::optional<double>,
               bool groups) {
  // Programs that are compiled have tensors of Python's here, perhaps without numbers for sizes. What torch says of
  // that kernel's second result is not what it is on npu, and inductor checks it.
  if (query.key_set().has(c10::DispatchKey::Python)) return static_cast<int64_t>(sdp::SDPBackend::math);
  const at::ScalarType type = query.scalar_type();
  // vmap takes the parts of it one by one.
  for (const at::Tensor* const each : {&query, &key, &value}) {
    if (each->key_set().has(c10::DispatchKey::FuncTorchBatched)) return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  const bool is_plain = (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) && dropout == 0 &&
                        IsFit(query, query) && IsFit(key, query) && IsFit(value, query) &&
                        key.sizes() == value.sizes() && query.size(0) == key.size(0) &&
                        (query.size(1) == key.size(1) || (groups && query.size(1) % key.size(1) == 0));
  const bool needs_gradients =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad() ||
                                     (mask.has_value() && mask->defined() && mask->requires_grad()));
  const bool has_mask = mask.has_value() && mask->defined();
  const bool fits =
      is_plain && !(has_mask && (needs_gradients || is_causal)) && !(needs_gradients && query.size(1) != key.size(1));
  return static_cast<int64_t>(fits ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;

Forward Attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& bias, double, bool is_causal, bool, std::optional<double> scale) {
  const c10::DeviceGuard guard(query.device());
  const int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2), keys = key.size(2);
  const at::Tensor out = at::empty_like(query);
  const at::Tensor log_sum = Empty({batch, heads, queries, 1}, at::kFloat, query.device());
  at::Tensor shift;
  if (bias.has_value() && bias->defined()) shift = bias->expand({batch, heads, queries, keys});
  // The operator lets a single query see all keys.
  const bool sees_one = is_causal && queries == 1 && keys > 1;
  const at::Tensor seen_keys = sees_one ? key.narrow(2, 0, 1) : key;
  const at::Tensor seen_values = sees_one ? value.narrow(2, 0, 1) : value;
  const bool done = NativeCall("aclnnFusedInferAttentionScore", "aten::scaled_dot_product_attention")
                        .Tensor(query)
                        .Tensors(seen_keys)
                        .Tensors(seen_values)
                        .Tensor(shift)
                        .Null()  // mask
                        .Null()  // lengths
                        .Null()
                        .Null()  // quantisation
                        .Null()
                        .Null()
                        .Null()
                        .Null()
                        .Null()
                        .Null()
                        .Null()  // pages
                        .Null()  // paddings
                        .Null()
                        .Int(heads)
                        .Real(ScaleOf(query, scale))
                        .Int(kNoLimit)
                        .Int(kNoLimit)
                        .Text("BNSD")
                        .Int(key.size(1))
                        .Int(is_causal ? kCausal : 0)
                        .Int(0)
                        .Int(0)
                        .Int(0)
                        .Int(1)
                        .Tensor(out)
                        .Tensor(log_sum)
                        .Launch();
  TORCH_CHECK_NOT_IMPLEMENTED(done, "scaled_dot_product_attention: npu does not take query ", query.sizes(), ", key ",
                              key.sizes(), " and this mask; torch.nn.attention.sdpa_kernel(SDPBackend.MATH) does");
  // Nothing is drawn, but who records the call keeps a seed. Not of the device `meta`, as announced: the gradients
  // would be its business then.
  const at::Tensor nothing = at::zeros({}, at::TensorOptions(at::kLong));
  return {out, log_sum.squeeze(-1), at::Tensor(), at::Tensor(), queries, keys, nothing, nothing, at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> AttentionBackward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor&,
    std::array<bool, 4>, const at::Tensor& out, const at::Tensor& log_sum, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool is_causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const c10::DeviceGuard guard(query.device());
  const at::Tensor d_query = at::empty_like(query), d_key = at::empty_like(key), d_value = at::empty_like(value);
  // exp(score - maximum) / sum, with the logarithm of the sum in the maximum.
  const c10::IntArrayRef rows = log_sum.sizes();
  const at::Tensor maximum = log_sum.unsqueeze(-1).expand({rows[0], rows[1], rows[2], kCopies});
  const at::Tensor one = at::ones({1}, log_sum.options());
  const at::Tensor sum = one.expand(maximum.sizes());
  const bool done = NativeCall("aclnnFlashAttentionScoreGrad", "aten::scaled_dot_product_attention_backward")
                        .Tensor(query)
                        .Tensor(key)
                        .Tensor(value)
                        .Tensor(grad)
                        .Null()
                        .Null()
                        .Null()
                        .Null()
                        .Tensor(maximum)
                        .Tensor(sum)
                        .Null()
                        .Tensor(out)
                        .Null()
                        .Real(ScaleOf(query, scale))
                        .Real(1)
                        .Int(kNoLimit)
                        .Int(kNoLimit)
                        .Int(query.size(1))
                        .Text("BNSD")
                        .Int(0)
                        .Int(is_causal ? kCausal : 0)
                        .Tensor(d_query)
                        .Tensor(d_key)
                        .Tensor(d_value)
                        .Null()
                        .Launch();
  TORCH_CHECK_NOT_IMPLEMENTED(done, "scaled_dot_product_attention: npu has no gradients for query ", query.sizes(),
                              " and key ", key.sizes(), "; torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has");
  return {d_query, d_key, d_value, at::Tensor()};
}

// TransformerEncoder asks before it packs a padded batch into a nested tensor, which npu does not have.
bool PacksPaddedBatch(const at::Tensor&, const at::Tensor&) { return false; }

at::Tensor PackPaddedBatch(const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "_nested_tensor_from_mask: npu has no nested tensors; make the "
                              "TransformerEncoder with enable_nested_tensor=False, or leave mask_check on");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask", PackPaddedBatch);
  m.impl("_nested_tensor_from_mask_left_aligned", PacksPaddedBatch);
  m.impl("_fused_sdp_choice", Choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable", Attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", AttentionBackward);
}

}  // namespace
}  // namespace torch_npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_npu::Choice)
}  // namespace at::native
