// SPDX-License-Identifier: Apache-2.0
#include "kernels/picture_layout.h"

#include <algorithm>
#include <vector>

#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kPixels = 64;    // of a unit, where planes lie in a line: whole cache lines of each channel
constexpr int64_t kChannels = 64;  // that are turned in one go: with the pixels half of the first-level cache

// The pixels of a channel in rows that are as long as strides allow.
struct Rows {
  int64_t depth = 1, height = 1, length = 1;  // rows [depth, height] of a picture, pixels of each
  int64_t strides[2] = {};                    // from one row to the next
  int64_t step = 1;                           // from one pixel to the next
  int64_t parts;                              // units of a row

  explicit Rows(const TensorRef& planes) {
    int64_t* const sizes[] = {&length, &height, &depth};
    int64_t* const steps[] = {&step, &strides[1], &strides[0]};
    int at = 0;
    for (int d = 4; d >= 2; --d) {
      if (planes.sizes[d] == 1) continue;
      if (*sizes[at] != 1 && planes.strides[d] != *steps[at] * *sizes[at]) ++at;
      if (*sizes[at] == 1) *steps[at] = planes.strides[d];
      *sizes[at] *= planes.sizes[d];
    }
    parts = (length + kPixels - 1) / kPixels;
  }
  int64_t count() const { return depth * height; }
};

// turn(plane, pixel, count): `count` pixels, from `plane` elements behind the first one of planes, and pixel `pixel`.
template <class Turn>
void ForEachUnit(const TensorRef& planes, Range units, const Turn& turn) {
  const Rows rows(planes);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t part = unit % rows.parts;
    const int64_t row = unit / rows.parts % rows.count();
    const int64_t n = unit / rows.parts / rows.count();
    const int64_t first = rows.length * part / rows.parts;
    const int64_t end = rows.length * (part + 1) / rows.parts;
    const int64_t plane = n * planes.strides[0] + row / rows.height * rows.strides[0] +
                          row % rows.height * rows.strides[1] + first * rows.step;
    turn(plane, (n * rows.count() + row) * rows.length + first, end - first, rows.step);
  }
}

}  // namespace

int64_t PictureUnits(const TensorRef& planes) {
  if (ElementCount(planes) == 0) return 0;
  const Rows rows(planes);
  return planes.sizes[0] * rows.count() * rows.parts;
}

int64_t PictureUnitElements(const TensorRef& planes) {
  return std::min(kPixels, Rows(planes).length) * planes.sizes[1];
}

void PixelsOfPlanes(const TensorRef& planes, float* pixels, Range units) {
  const int64_t channels = planes.sizes[1];
  const int64_t stride = planes.strides[1];
  ForEachUnit(planes, units, [&](int64_t plane, int64_t pixel, int64_t count, int64_t step) {
    const float* const from = static_cast<const float*>(planes.data) + plane;
    float* const to = pixels + pixel * channels;
    for (int64_t c = 0; c < channels; c += kChannels) {
      const int64_t some = std::min(kChannels, channels - c);
      if (step == 1) {
        simd::Transpose(from + c * stride, stride, some, count, to + c, channels);
        continue;
      }
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t i = c; i < c + some; ++i) to[p * channels + i] = from[i * stride + p * step];
      }
    }
  });
}

void PlanesOfPixels(const float* pixels, const TensorRef& planes, Range units) {
  const int64_t channels = planes.sizes[1];
  const int64_t stride = planes.strides[1];
  ForEachUnit(planes, units, [&](int64_t plane, int64_t pixel, int64_t count, int64_t step) {
    const float* const from = pixels + pixel * channels;
    float* const to = static_cast<float*>(planes.data) + plane;
    for (int64_t c = 0; c < channels; c += kChannels) {
      const int64_t some = std::min(kChannels, channels - c);
      if (step == 1) {
        simd::Transpose(from + c, channels, count, some, to + c * stride, stride);
        continue;
      }
      for (int64_t i = c; i < c + some; ++i) {
        for (int64_t p = 0; p < count; ++p) to[i * stride + p * step] = from[p * channels + i];
      }
    }
  });
}

void Unfold(const ConvShape& shape, const TensorRef& input, float* columns, Range pixels) {
  const ConvDim& h = shape.dims[1];
  const ConvDim& w = shape.dims[2];
  std::vector<const float*> taps(static_cast<size_t>(h.kernel * w.kernel));  // null: in the padding
  const auto* const data = static_cast<const float*>(input.data);
  float* to = columns + pixels.begin * shape.in_channels * h.kernel * w.kernel;
  for (int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    const int64_t x = pixel % w.out * w.stride - w.pad;
    const int64_t y = pixel / w.out % h.out * h.stride - h.pad;
    const float* const picture = data + pixel / w.out / h.out * input.strides[0];
    for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap) {
      const int64_t at_y = y + tap / w.kernel * h.dilation;
      const int64_t at_x = x + tap % w.kernel * w.dilation;
      const bool is_inside = at_y >= 0 && at_y < h.in && at_x >= 0 && at_x < w.in;
      taps[static_cast<size_t>(tap)] =
          is_inside ? picture + at_y * input.strides[3] + at_x * input.strides[4] : nullptr;
    }
    for (int64_t c = 0; c < shape.in_channels; ++c) {
      for (const float* const tap : taps) *to++ = tap == nullptr ? 0.0f : tap[c * input.strides[1]];
    }
  }
}

}  // namespace reprise::kernels
