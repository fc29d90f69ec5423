// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/token_lines.h"
#include "kernels/token_sequences.h"

namespace reprise::kernels {
namespace {

float ValueAt(const TensorRef& ref, int64_t offset) {
  float value;
  FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data) + offset * ItemSize(ref.dtype), 0,
                                     reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

// Elements [begin, begin + count) of a row of a matrix.
void LoadPart(const TensorRef& ref, int64_t row, int64_t begin, int64_t count, float* to) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(ref.dtype, DType::kFloat)(
      static_cast<const char*>(ref.data) + (row * ref.strides[0] + begin * ref.strides[1]) * item,
      ref.strides[1] * item, reinterpret_cast<char*>(to), sizeof(float), count);
}

void StorePart(const float* from, const TensorRef& ref, int64_t row, int64_t begin, int64_t count) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(DType::kFloat, ref.dtype)(
      reinterpret_cast<const char*>(from), sizeof(float),
      static_cast<char*>(ref.data) + (row * ref.strides[0] + begin * ref.strides[1]) * item, ref.strides[1] * item,
      count);
}

// A line [.., head, element] of a tensor of three dims.
void LoadHead(const TensorRef& ref, int64_t token, int64_t head, float* to) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(ref.dtype, DType::kFloat)(
      static_cast<const char*>(ref.data) + (token * ref.strides[0] + head * ref.strides[1]) * item,
      ref.strides[2] * item, reinterpret_cast<char*>(to), sizeof(float), ref.sizes[2]);
}

void StoreHead(const float* from, const TensorRef& ref, int64_t token, int64_t head) {
  const int64_t item = ItemSize(ref.dtype);
  FindCast(DType::kFloat, ref.dtype)(
      reinterpret_cast<const char*>(from), sizeof(float),
      static_cast<char*>(ref.data) + (token * ref.strides[0] + head * ref.strides[1]) * item, ref.strides[2] * item,
      ref.sizes[2]);
}

float WeightAt(const TensorRef& weight, int64_t b, int64_t n) {
  return ValueAt(weight, b * weight.strides[0] + n * weight.strides[1]);
}

}  // namespace

void JoinRing(const RingParts& parts, Range range, float* scratch) {
  const TensorRef& to = parts.new_out;
  const int64_t depth = to.sizes[3];
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t token = i % to.sizes[2];
    const int64_t head = i / to.sizes[2] % to.sizes[1];
    const int64_t batch = i / to.sizes[2] / to.sizes[1];
    float maximum[2], sum[2];
    for (int p = 0; p < 2; ++p) {
      LoadLine(parts.maximum[p], batch, head, token, 1, &maximum[p]);
      LoadLine(parts.sum[p], batch, head, token, 1, &sum[p]);
    }
    const float most = maximum[0] > maximum[1] || maximum[0] != maximum[0] ? maximum[0] : maximum[1];
    float share[2];
    for (int p = 0; p < 2; ++p) share[p] = sum[p] == 0 ? 0 : sum[p] * std::exp(maximum[p] - most);
    const float total = share[0] + share[1];
    std::fill_n(scratch, depth, 0.0f);
    for (int p = 0; p < 2; ++p) {
      if (share[p] == 0) continue;
      float* line = scratch + depth;
      LoadLine(parts.out[p], batch, head, token, depth, line);
      const float factor = share[p] / total;
      for (int64_t k = 0; k < depth; ++k) scratch[k] += factor * line[k];
    }
    StoreLine(scratch, to, batch, head, token, depth);
    for (const auto& [ref, value] : {std::pair(&parts.new_maximum, most), {&parts.new_sum, total}}) {
      auto* copies = reinterpret_cast<float*>(LineOf(*ref, batch, head, token));
      for (int64_t c = 0; c < ref->sizes[3]; ++c) copies[c * ref->strides[3]] = value;
    }
  }
}

void SplitQkv(const QkvHeads& h, Range range, float* scratch) {
  const int64_t size = h.size;
  const int64_t half = size / 2;
  float* const x = scratch;
  float* const y = x + size;
  float* const cos = y + size;
  float* const sin = cos + size;
  float* const gamma = sin + size;
  for (int64_t t = range.begin; t < range.end; ++t) {
    LoadPart(h.cos, t, 0, size, cos);
    LoadPart(h.sin, t, 0, size, sin);
    int64_t from = 0;
    for (int part = 0; part < 3; ++part) {
      const TensorRef& weights = part == 0 ? h.query_gamma : h.key_gamma;
      for (int64_t k = 0; part < 2 && k < size; ++k) gamma[k] = ValueAt(weights, k * weights.strides[0]);
      for (int64_t n = 0; n < h.heads[part]; ++n, ++from) {
        LoadPart(h.qkv, t, from * size, size, x);
        if (part < 2) {
          double squares = 0;
          for (int64_t k = 0; k < size; ++k) squares += static_cast<double>(x[k]) * x[k];
          const float inverse = 1 / std::sqrt(static_cast<float>(squares / static_cast<double>(size)) + h.epsilon);
          for (int64_t k = 0; k < size; ++k) x[k] *= inverse * gamma[k];
          for (int64_t k = 0; k < half; ++k) {
            y[k] = x[k] * cos[k] - x[half + k] * sin[k];
            y[half + k] = x[half + k] * cos[half + k] + x[k] * sin[half + k];
          }
        } else {
          std::copy_n(x, size, y);
        }
        if (h.copies[part].data != nullptr) StorePart(y, h.copies[part], t, n * size, size);
        if (part == 0) {
          StorePart(y, h.query, t, n * size, size);
          continue;
        }
        const TensorRef& scale = h.scales[part - 1];
        const TensorRef& offset = h.offsets[part - 1];
        for (int64_t k = 0; scale.data != nullptr && k < size; ++k) {
          const auto of = [&](const TensorRef& ref) {
            return ValueAt(ref,
                           (ref.sizes[0] == 1 ? 0 : n * ref.strides[0]) + (ref.sizes[1] == 1 ? 0 : k * ref.strides[1]));
          };
          const float value = y[k] / of(scale) + (offset.data != nullptr ? of(offset) : 0);
          y[k] = std::clamp(std::nearbyint(value), -128.0f, 127.0f);
        }
        StorePart(y, h.lines[part - 1], t, n * size, size);
      }
    }
  }
}

void CompressWindows(const Windows& windows, const TensorRef& x, const TensorRef& weight, const TensorRef& out,
                     Range range, float* scratch) {
  const int64_t depth = x.sizes[2];
  float* const line = scratch + depth;
  for (int64_t w = range.begin; w < range.end; ++w) {
    for (int64_t n = 0; n < x.sizes[1]; ++n) {
      std::fill_n(scratch, depth, 0.0f);
      for (int64_t b = 0; b < windows.block; ++b) {
        LoadHead(x, windows.begins[static_cast<size_t>(w)] + b, n, line);
        const float factor = WeightAt(weight, b, n);
        for (int64_t k = 0; k < depth; ++k) scratch[k] += factor * line[k];
      }
      StoreHead(scratch, out, w, n);
    }
  }
}

void CompressInputBackward(const Windows& windows, const TensorRef& dout, const TensorRef& weight, const TensorRef& dx,
                           Range range, float* scratch) {
  const int64_t depth = dx.sizes[2];
  float* const line = scratch + depth;
  for (int64_t t = range.begin; t < range.end; ++t) {
    // The sequence of the token; tokens behind the last one belong to none.
    const auto after = std::upper_bound(windows.tokens.begin(), windows.tokens.end(), t);
    const auto s = static_cast<size_t>(after - windows.tokens.begin()) - 1;
    for (int64_t n = 0; n < dx.sizes[1]; ++n) {
      std::fill_n(scratch, depth, 0.0f);
      if (s < windows.first.size() && windows.end[s] > windows.first[s]) {
        const int64_t place = t - windows.tokens[s];
        const int64_t count = windows.end[s] - windows.first[s];
        const int64_t low = place < windows.block ? 0 : (place - windows.block) / windows.stride + 1;
        const int64_t high = std::min(count - 1, place / windows.stride);
        for (int64_t w = low; w <= high; ++w) {
          LoadHead(dout, windows.first[s] + w, n, line);
          const float factor = WeightAt(weight, place - w * windows.stride, n);
          for (int64_t k = 0; k < depth; ++k) scratch[k] += factor * line[k];
        }
      }
      StoreHead(scratch, dx, t, n);
    }
  }
}

void CompressWeightBackward(const Windows& windows, const TensorRef& dout, const TensorRef& x, const TensorRef& dweight,
                            Range range) {
  for (int64_t b = range.begin; b < range.end; ++b) {
    for (int64_t n = 0; n < x.sizes[1]; ++n) {
      double total = 0;
      for (size_t w = 0; w < windows.begins.size(); ++w) {
        const int64_t a = static_cast<int64_t>(w) * dout.strides[0] + n * dout.strides[1];
        const int64_t c = (windows.begins[w] + b) * x.strides[0] + n * x.strides[1];
        float sum = 0;
        for (int64_t k = 0; k < x.sizes[2]; ++k) {
          sum += ValueAt(dout, a + k * dout.strides[2]) * ValueAt(x, c + k * x.strides[2]);
        }
        total += sum;
      }
      const auto result = static_cast<float>(total);
      FindCast(DType::kFloat, dweight.dtype)(
          reinterpret_cast<const char*>(&result), 0,
          static_cast<char*>(dweight.data) +
              (b * dweight.strides[0] + n * dweight.strides[1]) * ItemSize(dweight.dtype),
          0, 1);
    }
  }
}

void CompressNewest(const WindowCache& cache, const TensorRef& x, const TensorRef& weight, const TensorRef& table,
                    const TensorRef& slots, const TensorRef& out, Range range, float* scratch) {
  const int64_t depth = out.sizes[2];
  float* const line = scratch + depth;
  for (int64_t s = range.begin; s < range.end; ++s) {
    const int64_t length = cache.lengths[static_cast<size_t>(s)];
    const int64_t slot = NumberAt(slots, s);
    if (length < cache.block || (length - cache.block) % cache.stride != 0) continue;
    if (slot < 0 || slot >= out.sizes[0]) continue;
    for (int64_t n = 0; n < out.sizes[1]; ++n) {
      std::fill_n(scratch, depth, 0.0f);
      for (int64_t b = 0; b < cache.block; ++b) {
        const int64_t place = length - cache.block + b;
        if (table.data == nullptr) {
          LoadHead(x, cache.begins[static_cast<size_t>(s)] + place, n, line);
        } else {
          TensorRef page = x;
          const int64_t entry =
              static_cast<const int32_t*>(table.data)[s * table.strides[0] + place / x.sizes[1] * table.strides[1]];
          page.rank = 3;
          page.data = static_cast<char*>(x.data) +
                      std::clamp<int64_t>(entry, 0, x.sizes[0] - 1) * x.strides[0] * ItemSize(x.dtype);
          for (int d = 0; d < 3; ++d) {
            page.sizes[d] = x.sizes[d + 1];
            page.strides[d] = x.strides[d + 1];
          }
          LoadHead(page, place % x.sizes[1], n, line);
        }
        const float factor = WeightAt(weight, b, n);
        for (int64_t k = 0; k < depth; ++k) scratch[k] += factor * line[k];
      }
      StoreHead(scratch, out, slot, n);
    }
  }
}

}  // namespace reprise::kernels
