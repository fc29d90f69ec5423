// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the CPU behind operators of the table in python/torch_npu/_ops that depend on values of the device: they
// run as tasks of a stream, so nobody waits for those values.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace torch_npu {
namespace {

// Products of so many pairs of int8 add up to no more than 2^24, up to which float32 has all integers.
constexpr int64_t kExactDepth = 1024;

// result += x1 x x2, of int8, exactly.
void AddProduct(const at::Tensor& x1, const at::Tensor& x2, at::Tensor& result) {
  for (int64_t begin = 0; begin < x1.size(1); begin += kExactDepth) {
    const int64_t size = std::min(kExactDepth, x1.size(1) - begin);
    result.add_(
        at::mm(x1.narrow(1, begin, size).to(at::kFloat), x2.narrow(0, begin, size).to(at::kFloat)).to(at::kInt));
  }
}

at::Tensor IntMatmul(const at::Tensor& x1, const at::Tensor& x2) {
  std::vector<int64_t> batch = at::infer_size(x1.sizes().slice(0, static_cast<size_t>(x1.dim() - 2)),
                                              x2.sizes().slice(0, static_cast<size_t>(x2.dim() - 2)));
  const auto expand = [&](const at::Tensor& tensor) {
    std::vector<int64_t> sizes = batch;
    sizes.insert(sizes.end(), {tensor.size(-2), tensor.size(-1)});
    return tensor.expand(sizes).reshape({-1, tensor.size(-2), tensor.size(-1)});
  };
  const at::Tensor left = x1.numel() == 0 || x2.numel() == 0 ? at::Tensor() : expand(x1);
  std::vector<int64_t> sizes = batch;
  sizes.insert(sizes.end(), {x1.size(-2), x2.size(-1)});
  at::Tensor result = at::zeros(sizes, at::kInt);
  if (!left.defined()) return result;
  const at::Tensor right = expand(x2);
  const at::Tensor flat = result.view({-1, x1.size(-2), x2.size(-1)});
  for (int64_t i = 0; i < left.size(0); ++i) {
    at::Tensor part = flat[i];
    AddProduct(left[i], right[i], part);
  }
  return result;
}

at::Tensor GroupedIntMatmul(const at::Tensor& x, at::TensorList weights, const at::Tensor& group_list, int64_t type) {
  std::vector<at::Tensor> matrices;
  for (const at::Tensor& weight : weights) {
    if (weight.dim() == 2) {
      matrices.push_back(weight);
    } else {
      for (int64_t i = 0; i < weight.size(0); ++i) matrices.push_back(weight[i]);
    }
  }
  const at::Tensor numbers = group_list.to(at::kLong).contiguous();
  const auto* const data = numbers.const_data_ptr<int64_t>();
  const bool has_names = type == 2;
  TORCH_CHECK(numbers.dim() == (has_names ? 2 : 1) && (!has_names || numbers.size(1) == 2),
              "npu_grouped_matmul: group_list has shape ", numbers.sizes(), " with group_list_type ", type);
  at::Tensor result = at::zeros({x.size(0), matrices.at(0).size(1)}, at::kInt);
  int64_t begin = 0;
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const int64_t number = has_names ? data[2 * i + 1] : data[i];
    const int64_t which = has_names ? data[2 * i] : i;
    const int64_t end = std::clamp(type == 0 ? number : begin + number, begin, x.size(0));
    if (end == begin) continue;
    TORCH_CHECK_INDEX(which >= 0 && which < static_cast<int64_t>(matrices.size()), "npu_grouped_matmul: group ", which,
                      " has rows, but there are ", matrices.size(), " weights");
    at::Tensor part = result.narrow(0, begin, end - begin);
    AddProduct(x.narrow(0, begin, end - begin), matrices[static_cast<size_t>(which)], part);
    begin = end;
  }
  return result;
}

// Token by token, of each sequence and head, in float32: S = exp(g) S; u = beta (v - S k); S = S + u k^T;
// out = S q * scale.
at::Tensor GatedDeltaRule(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, at::Tensor& state,
                          const std::optional<at::Tensor>& beta, const std::optional<at::Tensor>& g,
                          const at::Tensor& lengths, const std::optional<at::Tensor>& indices,
                          const std::optional<at::Tensor>& accepted, double scale) {
  const int64_t tokens = value.size(0), heads = value.size(1), depth = value.size(2);
  const int64_t key_heads = key.size(1), key_depth = key.size(2);
  const auto plain = [](const at::Tensor& tensor, at::ScalarType type) { return tensor.to(type).contiguous(); };
  const at::Tensor q = plain(query, at::kFloat), k = plain(key, at::kFloat), v = plain(value, at::kFloat);
  const at::Tensor b = beta.has_value() ? plain(*beta, at::kFloat) : at::ones({tokens, heads}, at::kFloat);
  const at::Tensor decay = g.has_value() ? plain(*g, at::kFloat) : at::zeros({tokens, heads}, at::kFloat);
  const at::Tensor counts = plain(lengths, at::kLong);
  const at::Tensor places = indices.has_value() ? plain(*indices, at::kLong) : at::Tensor();
  const at::Tensor taken = accepted.has_value() ? plain(*accepted, at::kLong) : at::Tensor();
  at::Tensor out = at::zeros({tokens, heads, depth}, at::kFloat);
  const auto check_place = [&](int64_t place) {
    TORCH_CHECK_INDEX(place < state.size(0), "gated_delta_rule: state ", place, " is wanted of ", state.size(0));
  };
  const at::Tensor spare = at::empty({depth, key_depth}, at::kFloat);
  int64_t begin = 0;
  for (int64_t sequence = 0; sequence < counts.numel(); ++sequence) {
    const int64_t end = std::clamp(begin + counts.const_data_ptr<int64_t>()[sequence], begin, tokens);
    if (end == begin) continue;
    const auto place_of = [&](int64_t token) {
      return places.defined() ? places.const_data_ptr<int64_t>()[token] : sequence;
    };
    int64_t first = begin;
    if (taken.defined()) {
      first += std::clamp<int64_t>(taken.const_data_ptr<int64_t>()[sequence] - 1, 0, end - begin - 1);
    }
    const int64_t from = place_of(first);
    check_place(from);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t key_head = head / (heads / key_heads);
      if (from >= 0) {
        spare.copy_(state[from][head]);
      } else {
        spare.zero_();
      }
      auto* const matrix = spare.mutable_data_ptr<float>();
      for (int64_t token = begin; token < end; ++token) {
        const float* const q_row = q.const_data_ptr<float>() + (token * key_heads + key_head) * key_depth;
        const float* const k_row = k.const_data_ptr<float>() + (token * key_heads + key_head) * key_depth;
        const float* const v_row = v.const_data_ptr<float>() + (token * heads + head) * depth;
        float* const out_row = out.mutable_data_ptr<float>() + (token * heads + head) * depth;
        const float keep = std::exp(decay.const_data_ptr<float>()[token * heads + head]);
        const float rate = b.const_data_ptr<float>()[token * heads + head];
        for (int64_t i = 0; i < depth; ++i) {
          float* const row = matrix + i * key_depth;
          float known = 0;
          for (int64_t j = 0; j < key_depth; ++j) {
            row[j] *= keep;
            known += row[j] * k_row[j];
          }
          const float step = rate * (v_row[i] - known);
          float sum = 0;
          for (int64_t j = 0; j < key_depth; ++j) {
            row[j] += step * k_row[j];
            sum += row[j] * q_row[j];
          }
          out_row[i] = sum * static_cast<float>(scale);
        }
        const int64_t to = place_of(token);
        check_place(to);
        const bool is_last = token + 1 == end;
        if (to >= 0 && (is_last || place_of(token + 1) != to)) state[to][head].copy_(spare);
      }
    }
    begin = end;
  }
  return out.to(query.scalar_type());
}

// Boxes [n, 4] by descending score, and which of them are kept: those above the threshold of scores that share no more
// than a part of their union with one that is kept before them.
std::tuple<at::Tensor, at::Tensor> KeepBoxes(const at::Tensor& boxes, const at::Tensor& scores,
                                             const at::Tensor& iou_threshold,
                                             const std::optional<at::Tensor>& scores_threshold, double epsilon) {
  const int64_t count = boxes.size(0);
  const at::Tensor corners = boxes.to(at::kFloat).contiguous(), points = scores.to(at::kFloat).contiguous();
  const auto* const box = corners.const_data_ptr<float>();
  const auto* const score = points.const_data_ptr<float>();
  const auto limit = iou_threshold.to(at::kFloat).item<float>();
  const float least = scores_threshold.has_value() ? scores_threshold->to(at::kFloat).item<float>() : 0;
  std::vector<int32_t> order(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  // A score that is no number comes last.
  const auto rank = [&](int32_t i) { return std::isnan(score[i]) ? -INFINITY : score[i]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  at::Tensor by_score = at::empty({count}, at::kInt), kept = at::zeros({count}, at::kByte);
  auto* const flags = kept.mutable_data_ptr<uint8_t>();
  const auto area = [&](const float* b) { return (b[2] - b[0]) * (b[3] - b[1]); };
  for (int64_t i = 0; i < count; ++i) {
    const int32_t index = order[static_cast<size_t>(i)];
    by_score.mutable_data_ptr<int32_t>()[i] = index;
    const float* const own = box + 4 * index;
    bool keep = !scores_threshold.has_value() || score[index] > least;
    for (int64_t j = 0; keep && j < i; ++j) {
      if (flags[j] == 0) continue;
      const float* const other = box + 4 * order[static_cast<size_t>(j)];
      const float width = std::max(0.0F, std::min(own[2], other[2]) - std::max(own[0], other[0]));
      const float height = std::max(0.0F, std::min(own[3], other[3]) - std::max(own[1], other[1]));
      const float inter = width * height;
      keep = !(inter > limit * (area(own) + area(other) - inter + static_cast<float>(epsilon)));
    }
    flags[i] = keep ? 1 : 0;
  }
  return {by_score, kept};
}

TORCH_LIBRARY_IMPL(npu, CPU, m) {
  m.impl("_keep_boxes", KeepBoxes);
  m.impl("_int_matmul", IntMatmul);
  m.impl("_grouped_int_matmul", GroupedIntMatmul);
  m.impl("_gated_delta_rule", GatedDeltaRule);
}

}  // namespace
}  // namespace torch_npu
