// SPDX-License-Identifier: Apache-2.0
#include "kernels/picture_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace reprise::kernels {
namespace {

struct Layout {
  int64_t n, c, h, w;
  int64_t strides[4];  // of batch, channels, rows and columns
};

// Planes that lie in a line, ones with gaps between rows, every other column, rows and columns exchanged, one column.
const Layout kLayouts[] = {
    {2, 5, 9, 11, {5 * 99, 99, 11, 1}},   {1, 70, 3, 67, {70 * 201, 201, 67, 1}}, {2, 3, 4, 6, {400, 100, 20, 1}},
    {1, 6, 5, 7, {6 * 140, 140, 28, 2}},  {3, 4, 6, 5, {4 * 30, 30, 1, 6}},       {2, 130, 65, 1, {130 * 65, 65, 1, 1}},
    {1, 9, 130, 1, {9 * 260, 260, 2, 1}}, {2, 7, 1, 150, {7 * 150, 150, 1, 1}},   {1, 1, 1, 1, {1, 1, 1, 1}},
};

TensorRef PlanesOf(const Layout& layout, float* data) {
  TensorRef ref;
  ref.data = data;
  ref.dtype = DType::kFloat;
  ref.rank = 5;
  const int64_t sizes[5] = {layout.n, layout.c, 1, layout.h, layout.w};
  const int64_t strides[5] = {layout.strides[0], layout.strides[1], 1, layout.strides[2], layout.strides[3]};
  std::copy_n(sizes, 5, ref.sizes);
  std::copy_n(strides, 5, ref.strides);
  return ref;
}

// visit(place in planes, place in pixels)
template <class Visit>
void ForEach(const Layout& l, const Visit& visit) {
  for (int64_t n = 0; n < l.n; ++n) {
    for (int64_t c = 0; c < l.c; ++c) {
      for (int64_t y = 0; y < l.h; ++y) {
        for (int64_t x = 0; x < l.w; ++x) {
          visit(static_cast<size_t>(n * l.strides[0] + c * l.strides[1] + y * l.strides[2] + x * l.strides[3]),
                static_cast<size_t>(((n * l.h + y) * l.w + x) * l.c + c));
        }
      }
    }
  }
}

TEST(PictureLayoutTest, EveryElementGoesToItsPlaceAndBack) {
  for (const Layout& layout : kLayouts) {
    size_t last = 0;
    ForEach(layout, [&](size_t plane, size_t) { last = std::max(last, plane); });
    std::vector<float> planes(last + 1);
    std::iota(planes.begin(), planes.end(), 1.0F);
    const auto count = static_cast<size_t>(layout.n * layout.c * layout.h * layout.w);
    std::vector<float> pixels(count);
    const TensorRef ref = PlanesOf(layout, planes.data());
    const int64_t units = PictureUnits(ref);
    for (int64_t unit = units - 1; unit >= 0; --unit) PixelsOfPlanes(ref, pixels.data(), {unit, unit + 1});
    ForEach(layout, [&](size_t plane, size_t pixel) { ASSERT_EQ(pixels[pixel], planes[plane]) << layout.w; });

    std::vector<float> back(planes.size(), -1.0F);  // what is between the elements stays
    std::vector<float> expected = back;
    ForEach(layout, [&](size_t plane, size_t) { expected[plane] = planes[plane]; });
    const TensorRef to = PlanesOf(layout, back.data());
    PlanesOfPixels(pixels.data(), to, {0, units / 2});
    PlanesOfPixels(pixels.data(), to, {units / 2, units});
    EXPECT_EQ(back, expected) << layout.c << " channels";
  }
}

TEST(PictureLayoutTest, WhatAFilterReadsIsUnfolded) {
  ConvShape shape;
  shape.batch = 2;
  shape.in_channels = 5;
  shape.dims[1] = {9, 5, 3, 2, 1, 1};
  shape.dims[2] = {11, 9, 2, 1, 1, 3};
  const Layout& layout = kLayouts[0];
  std::vector<float> planes(static_cast<size_t>(2 * 5 * 99));
  std::iota(planes.begin(), planes.end(), 1.0F);
  const TensorRef input = PlanesOf(layout, planes.data());
  std::vector<float> columns(static_cast<size_t>(2 * 5 * 9 * 5 * 6), -1.0F);
  Unfold(shape, input, columns.data(), {40, 90});
  Unfold(shape, input, columns.data(), {0, 40});
  for (int64_t i = 0; i < static_cast<int64_t>(columns.size()); ++i) {
    const int64_t tap = i % 6;
    const int64_t c = i / 6 % 5;
    const int64_t pixel = i / 30;
    const int64_t y = pixel / 9 % 5 * 2 - 1 + tap / 2;
    const int64_t x = pixel % 9 - 1 + tap % 2 * 3;
    const bool is_inside = y >= 0 && y < 9 && x >= 0 && x < 11;
    const float expected = is_inside ? planes[static_cast<size_t>(((pixel / 45 * 5 + c) * 9 + y) * 11 + x)] : 0;
    ASSERT_EQ(columns[static_cast<size_t>(i)], expected) << pixel << ", " << c << ", " << tap;
  }
}

TEST(PictureLayoutTest, NothingHasNoUnits) {
  Layout layout = kLayouts[0];
  layout.h = 0;
  EXPECT_EQ(PictureUnits(PlanesOf(layout, nullptr)), 0);
}

}  // namespace
}  // namespace reprise::kernels
