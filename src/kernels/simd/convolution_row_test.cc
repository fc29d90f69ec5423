// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and centred sums on every instruction set that the machine has: panels have another width on each.
#include "kernels/simd/convolution_row.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/simd/centred_sums.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

// Small whole numbers: sums of their products are exact in any order.
std::vector<float> Numbers(int64_t n, int64_t step) {
  std::vector<float> numbers(static_cast<size_t>(n));
  int64_t value = 1;
  for (float& number : numbers) {
    value = (value * 31 + step) % 17;
    number = static_cast<float>(value - 8);
  }
  return numbers;
}

TEST(ConvolutionSimd, EveryInstructionSetConvolves) {
  // Height, width, outputs, stride: panels, their rests, groups of two outputs.
  constexpr int64_t kCases[][4] = {{7, 7, 13, 1}, {9, 21, 8, 2}, {5, 40, 2, 1}, {3, 3, 6, 1}};
  constexpr int64_t kInputs = 5;
  for (const auto& [height, width, outputs, stride] : kCases) {
    ConvShape shape;
    shape.in_channels = kInputs;
    shape.out_channels = outputs;
    shape.dims[1] = {height, (height - 1) / stride + 1, 3, stride, 1, 1};
    shape.dims[2] = {width, (width - 1) / stride + 1, 3, stride, 1, 1};
    const int64_t out_h = shape.dims[1].out;
    const int64_t out_w = shape.dims[2].out;
    std::vector<float> in = Numbers(kInputs * height * width, 5);
    std::vector<float> weights = Numbers(outputs * kInputs * 9, 3);
    std::vector<float> expected;
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t y = 0; y < out_h * out_w; ++y) {
        float sum = 0;
        for (int64_t k = 0; k < kInputs * 9; ++k) {
          const int64_t h = y / out_w * stride + k % 9 / 3 - 1;
          const int64_t w = y % out_w * stride + k % 3 - 1;
          if (h < 0 || h >= height || w < 0 || w >= width) continue;
          sum += weights[static_cast<size_t>(o * kInputs * 9 + k)] *
                 in[static_cast<size_t>((k / 9 * height + h) * width + w)];
        }
        expected.push_back(sum);
      }
    }
    const TensorRef input = MakeContiguous(in.data(), DType::kFloat, {1, kInputs, 1, height, width});
    const TensorRef weight = MakeContiguous(weights.data(), DType::kFloat, {outputs, kInputs, 1, 3, 3});
    const int targets = ForEachTarget([&](int64_t target) {
      const ConvSetup setup(shape, input);
      std::vector<float> source(static_cast<size_t>(setup.source_elements()));
      std::vector<float> packed(static_cast<size_t>(setup.packed_elements()));
      std::vector<double> scratch(
          static_cast<size_t>(std::max(setup.ScratchBytes(), setup.PackScratchBytes()) / 8 + 16));
      std::vector<float> results(expected.size());
      const TensorRef out = MakeContiguous(results.data(), DType::kFloat, {1, outputs, 1, out_h, out_w});
      setup.Prepare(input, source.data(), {0, setup.prepare_units()});
      setup.Pack(weight, packed.data(), {0, setup.pack_units()}, scratch.data());
      for (int64_t unit = setup.units() - 1; unit >= 0; --unit) {
        setup.Convolve(input, source.empty() ? nullptr : source.data(), packed.data(), nullptr, out, {unit, unit + 1},
                       scratch.data());
      }
      EXPECT_EQ(results, expected) << hwy::TargetName(target) << ", " << height << " x " << width;
    });
    EXPECT_GE(targets, 2) << "nothing was compared";
  }
}

TEST(CentredSumsSimd, EveryInstructionSetGivesTheSameBits) {
  for (const int64_t n : {1, 31, 32, 100, 512}) {
    std::vector<float> x(static_cast<size_t>(n));
    std::vector<float> g(x.size());
    double squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::sin(static_cast<float>(i) * 1.7f) + 2;
      g[i] = std::cos(static_cast<float>(i) * 0.9f);
      squares += (static_cast<double>(x[i]) - 2) * (static_cast<double>(x[i]) - 2);
    }
    std::vector<float> first;
    ForEachTarget([&](int64_t target) {
      std::vector<float> numbers(x.size());
      ScaleRow(x.data(), 2, 1.3f, 0.1f, n, numbers.data());
      numbers.push_back(SumBlock(x.data(), n));
      numbers.push_back(SumSquares(x.data(), 2, n));
      numbers.push_back(SumProducts(g.data(), x.data(), 2, n));
      if (first.empty()) first = numbers;
      EXPECT_EQ(first, numbers) << hwy::TargetName(target) << ", " << n << " elements";
      EXPECT_NEAR(numbers[x.size() + 1], squares, 1e-5 * squares + 1e-6) << hwy::TargetName(target);
    });
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
