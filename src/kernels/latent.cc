// SPDX-License-Identifier: Apache-2.0
#include "kernels/latent.h"

#include <algorithm>
#include <cmath>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

float ElementOf(const TensorRef& ref, int64_t i) {
  float value;
  FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data) + i * ref.strides[0] * ItemSize(ref.dtype), 0,
                                     reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

// Element i of a tensor that may have one for all.
float FactorAt(const TensorRef& ref, int64_t i) { return ElementOf(ref, ref.sizes[0] == 1 ? 0 : i); }

float ToInt8(float x) { return std::clamp(std::nearbyint(x), -128.0f, 127.0f); }

void ApplyFactors(const LatentFactors& factors, int64_t token, float* line, int64_t count) {
  if (factors.row.data == nullptr && factors.column.data == nullptr) return;
  const float row = factors.row.data != nullptr ? ElementOf(factors.row, token) : 1;
  for (int64_t k = 0; k < count; ++k) {
    line[k] *= row * (factors.column.data != nullptr ? ElementOf(factors.column, k) : 1);
  }
}

float* LineAt(const TensorRef& lines, int64_t token) {
  return static_cast<float*>(lines.data) + token * lines.strides[0];
}

// s with max |line| / s = 127.
float ScaleOf(const float* line, int64_t count) {
  float most = 0;
  for (int64_t k = 0; k < count; ++k) {
    const float size = std::fabs(line[k]);
    most = size > most || size != size ? size : most;
  }
  return most / 127;
}

}  // namespace

void NormLatent(const LatentNorm& norm, Range range) {
  const int64_t count = norm.gamma.sizes[0];
  for (int64_t t = range.begin; t < range.end; ++t) {
    float* line = LineAt(norm.lines, t);
    ApplyFactors(norm.factors, t, line, norm.lines.sizes[1]);
    double squares = 0;
    for (int64_t k = 0; k < count; ++k) squares += static_cast<double>(line[k]) * line[k];
    const float inverse =
        norm.scale / std::sqrt(static_cast<float>(squares / static_cast<double>(count)) + norm.epsilon);
    for (int64_t k = 0; k < count; ++k) line[k] *= inverse * ElementOf(norm.gamma, k);
    if (norm.to_int8) {
      if (norm.smooth.data != nullptr) {
        for (int64_t k = 0; k < count; ++k) line[k] *= FactorAt(norm.smooth, k);
      }
      const float scale = ScaleOf(line, count);
      for (int64_t k = 0; k < count; ++k) line[k] = scale == 0 ? 0 : ToInt8(line[k] / scale);
      LineAt(norm.line_scale, t)[0] = scale;
      if (norm.scale_copy.data != nullptr) LineAt(norm.scale_copy, t)[0] = scale;
    }
    if (norm.out_scale.data != nullptr) {
      for (int64_t k = 0; k < count; ++k) line[k] = ToInt8(line[k] * FactorAt(norm.out_scale, k));
    }
    if (norm.copy.data == nullptr) continue;
    const TensorRef& copy = norm.copy;
    const int64_t item = ItemSize(copy.dtype);
    FindCast(DType::kFloat, copy.dtype)(reinterpret_cast<const char*>(line), sizeof(float),
                                        static_cast<char*>(copy.data) + t * copy.strides[0] * item,
                                        copy.strides[1] * item, count);
  }
}

void RotateLatent(const LatentRotation& rotation, Range range, float* scratch) {
  const TensorRef& lines = rotation.lines;
  const int64_t count = lines.sizes[2] - rotation.first;
  const int64_t half = count / 2;
  const auto angle = [](const TensorRef& ref, int64_t token, int64_t k) {
    TensorRef row = ref;
    row.data = static_cast<char*>(ref.data) + token * ref.strides[0] * ItemSize(ref.dtype);
    row.strides[0] = ref.strides[1];
    return ElementOf(row, k);
  };
  const TensorRef& out = rotation.out;
  const int64_t item = ItemSize(out.dtype);
  const CastFn cast = FindCast(DType::kFloat, out.dtype);
  float* const cos = scratch + count;
  float* const sin = cos + count;
  for (int64_t t = range.begin; t < range.end; ++t) {
    ApplyFactors(rotation.factors, t, LineAt(lines, t), lines.sizes[1] * lines.sizes[2]);
    for (int64_t k = 0; k < count; ++k) {
      cos[k] = angle(rotation.cos, t, k);
      sin[k] = angle(rotation.sin, t, k);
    }
    for (int64_t h = 0; h < lines.sizes[1]; ++h) {
      const float* x = LineAt(lines, t) + h * lines.strides[1] + rotation.first;
      for (int64_t i = 0; i < half; ++i) {
        scratch[i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
        scratch[half + i] = x[2 * i + 1] * cos[half + i] + x[2 * i] * sin[half + i];
      }
      if (rotation.out_scale.data != nullptr) {
        for (int64_t k = 0; k < count; ++k) scratch[k] = ToInt8(scratch[k] * FactorAt(rotation.out_scale, k));
      }
      cast(reinterpret_cast<const char*>(scratch), sizeof(float),
           static_cast<char*>(out.data) + (t * out.strides[0] + h * out.strides[1]) * item, out.strides[2] * item,
           count);
    }
  }
}

void QuantizeLatent(const TensorRef& x, const TensorRef& out, const TensorRef& scale, Range range) {
  const int64_t heads = x.sizes[1];
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t t = i / heads;
    const int64_t h = i % heads;
    const float* line = LineAt(x, t) + h * x.strides[1];
    const float own = ScaleOf(line, x.sizes[2]);
    auto* to = static_cast<int8_t*>(out.data) + t * out.strides[0] + h * out.strides[1];
    for (int64_t k = 0; k < x.sizes[2]; ++k) {
      to[k * out.strides[2]] = static_cast<int8_t>(own == 0 ? 0 : ToInt8(line[k] / own));
    }
    static_cast<float*>(scale.data)[t * scale.strides[0] + h * scale.strides[1]] = own;
  }
}

}  // namespace reprise::kernels
