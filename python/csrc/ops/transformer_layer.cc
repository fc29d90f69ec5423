// SPDX-License-Identifier: Apache-2.0
//
// What torch.nn takes in place of a whole transformer layer, or of its attention, when no gradients are wanted: put
// together from operators of the device. Masks of numbers say where to look away by what is not 0.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_masked_softmax.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

namespace torch_npu {
namespace {

using Optional = std::optional<at::Tensor>;

bool IsThere(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

// [batch, heads, length, embed_dim / heads]
at::Tensor ByHead(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// Query, key and value, each by head. Products of one input are one product.
std::array<at::Tensor, 3> Project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  int64_t heads, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t width = query.size(2);
  if (query.is_same(key) && key.is_same(value)) {
    const auto parts = at::linear(query, weight, bias).chunk(3, -1);
    return {ByHead(parts[0], heads), ByHead(parts[1], heads), ByHead(parts[2], heads)};
  }
  std::array<at::Tensor, 3> projected;
  const at::Tensor* const inputs[] = {&query, &key, &value};
  for (size_t i = 0; i < projected.size(); ++i) {
    const auto begin = static_cast<int64_t>(i) * width;
    projected[i] = ByHead(at::linear(*inputs[i], weight.narrow(0, begin, width),
                                     bias.defined() ? Optional(bias.narrow(0, begin, width)) : Optional()),
                          heads);
  }
  return projected;
}

std::tuple<at::Tensor, at::Tensor> MultiHeadAttention(const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value, int64_t embed_dim, int64_t num_head,
                                                      const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                                                      const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                                                      const Optional& mask, bool need_weights,
                                                      bool average_attn_weights, std::optional<int64_t> mask_type) {
  const c10::OptionalDeviceGuard guard(query.device());
  for (const at::Tensor* const each : {&query, &key, &value}) {
    TORCH_CHECK(
        each->dim() == 3,
        "_native_multi_head_attention: expected query, key and value of three dims [batch, length, embed_dim], got ",
        each->sizes(), "; unsqueeze what has no batch");
    TORCH_CHECK(each->size(2) == embed_dim, "_native_multi_head_attention: embed_dim is ", embed_dim,
                ", but the last dim of an input has ", each->size(2), " elements; pass the size of that dim");
  }
  TORCH_CHECK(num_head > 0 && embed_dim % num_head == 0, "_native_multi_head_attention: embed_dim is ", embed_dim,
              ", which does not divide by num_head, ", num_head, "; choose a number of heads that divides it");
  TORCH_CHECK(qkv_weight.dim() == 2 && qkv_weight.size(0) == 3 * embed_dim,
              "_native_multi_head_attention: expected qkv_weight of ", 3 * embed_dim,
              " rows, three times embed_dim, got ", qkv_weight.sizes(),
              "; pass the weights of query, key and value one below the other");
  const auto [q, k, v] = Project(query, key, value, num_head, qkv_weight, qkv_bias);
  at::Tensor attended, weights;
  if (!IsThere(mask) && !need_weights) {
    attended = at::scaled_dot_product_attention(q, k, v);
  } else {
    const double scale = 1.0 / std::sqrt(static_cast<double>(embed_dim / num_head));
    const at::Tensor scores = at::matmul(q * scale, k.transpose(-2, -1));
    weights = IsThere(mask) ? at::_masked_softmax(scores, mask->to(at::kBool), 3, mask_type) : at::softmax(scores, 3);
    attended = at::matmul(weights, v);
  }
  const at::Tensor out = at::linear(attended.transpose(1, 2).reshape(query.sizes()), proj_weight, proj_bias);
  if (!need_weights) return {out, at::Tensor()};
  return {out, average_attn_weights ? weights.mean(1) : weights};
}

at::Tensor EncoderLayer(const at::Tensor& src, int64_t embed_dim, int64_t num_heads, const at::Tensor& qkv_weight,
                        const at::Tensor& qkv_bias, const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                        bool use_gelu, bool norm_first, double eps, const at::Tensor& norm_weight_1,
                        const at::Tensor& norm_bias_1, const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2,
                        const at::Tensor& ffn_weight_1, const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2,
                        const at::Tensor& ffn_bias_2, const Optional& mask, std::optional<int64_t> mask_type) {
  const c10::OptionalDeviceGuard guard(src.device());
  const std::array<int64_t, 1> width = {embed_dim};
  const auto normalize = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, width, weight, bias, eps);
  };
  at::Tensor x = norm_first ? normalize(src, norm_weight_1, norm_bias_1) : src;
  x = std::get<0>(MultiHeadAttention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                                     false, true, mask_type));
  x = x + src;
  if (!norm_first) x = normalize(x, norm_weight_1, norm_bias_1);
  const at::Tensor inner =
      at::linear(norm_first ? normalize(x, norm_weight_2, norm_bias_2) : x, ffn_weight_1, ffn_bias_1);
  x = x + at::linear(use_gelu ? at::gelu(inner) : at::relu(inner), ffn_weight_2, ffn_bias_2);
  return norm_first ? x : normalize(x, norm_weight_2, norm_bias_2);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", MultiHeadAttention);
  m.impl("_transformer_encoder_layer_fwd", EncoderLayer);
}

}  // namespace
}  // namespace torch_npu
