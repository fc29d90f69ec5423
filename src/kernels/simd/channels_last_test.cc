// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and pools of tensors whose channels lie back to back, on every instruction set that the machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cast.h"
#include "kernels/channels_last_conv.h"
#include "kernels/channels_last_pool.h"

namespace reprise::kernels {
namespace {

template <class Fn>
int ForEachTarget(Fn&& fn) {
  int count = 0;
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1, ++count) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    fn(rest & -rest);
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return count;
}

// Small whole numbers: sums of their products are exact in any order, and in 16 bits if they are few.
std::vector<float> Numbers(int64_t n, int64_t step) {
  std::vector<float> numbers(static_cast<size_t>(n));
  int64_t value = 1;
  for (float& number : numbers) {
    value = (value * 31 + step) % 17;
    number = static_cast<float>(value % 5 - 2);
  }
  return numbers;
}

// [N, C, 1, H, W], channels back to back.
TensorRef ChannelsLast(void* data, DType dtype, int64_t n, int64_t c, int64_t h, int64_t w) {
  TensorRef ref = MakeContiguous(data, dtype, {n, c, 1, h, w});
  ref.strides[0] = ref.strides[2] = h * w * c;
  ref.strides[1] = 1;
  ref.strides[3] = w * c;
  ref.strides[4] = c;
  return ref;
}

struct Case {
  int64_t batch, channels, height, width, outputs, kernel, stride, pad, dilation, groups;
};

ConvShape ShapeOf(const Case& c) {
  ConvShape shape;
  shape.batch = c.batch;
  shape.groups = c.groups;
  shape.in_channels = c.channels / c.groups;
  shape.out_channels = c.outputs / c.groups;
  const auto out = [&](int64_t in) { return (in + 2 * c.pad - c.dilation * (c.kernel - 1) - 1) / c.stride + 1; };
  shape.dims[1] = {c.height, out(c.height), c.kernel, c.stride, c.pad, c.dilation};
  shape.dims[2] = {c.width, out(c.width), c.kernel, c.stride, c.pad, c.dilation};
  return shape;
}

// As the formula says; input and result with channels behind, weights with channels in front.
std::vector<float> Expected(const Case& c, const std::vector<float>& in, const std::vector<float>& weights,
                            const std::vector<float>& bias, const std::vector<float>& addend, float low, float high) {
  const ConvShape shape = ShapeOf(c);
  const int64_t inputs = shape.in_channels;
  std::vector<float> expected(addend.size());
  for (size_t q = 0; q < expected.size(); ++q) {
    const auto at = static_cast<int64_t>(q);
    const int64_t o = at % c.outputs;
    const int64_t x = at / c.outputs % shape.dims[2].out;
    const int64_t y = at / c.outputs / shape.dims[2].out % shape.dims[1].out;
    const int64_t n = at / c.outputs / shape.dims[2].out / shape.dims[1].out;
    float sum = bias[static_cast<size_t>(o)] + addend[q];
    for (int64_t ky = 0; ky < c.kernel; ++ky) {
      for (int64_t kx = 0; kx < c.kernel; ++kx) {
        const int64_t in_y = y * c.stride + ky * c.dilation - c.pad;
        const int64_t in_x = x * c.stride + kx * c.dilation - c.pad;
        if (in_y < 0 || in_y >= c.height || in_x < 0 || in_x >= c.width) continue;
        for (int64_t i = 0; i < inputs; ++i) {
          const int64_t channel = o / shape.out_channels * inputs + i;
          sum += in[static_cast<size_t>(((n * c.height + in_y) * c.width + in_x) * c.channels + channel)] *
                 weights[static_cast<size_t>(((o * inputs + i) * c.kernel + ky) * c.kernel + kx)];
        }
      }
    }
    expected[q] = std::min(std::max(sum, low), high);
  }
  return expected;
}

std::vector<char> As(DType dtype, const std::vector<float>& numbers) {
  std::vector<char> bytes(numbers.size() * static_cast<size_t>(ItemSize(dtype)));
  FindCast(DType::kFloat, dtype)(reinterpret_cast<const char*>(numbers.data()), sizeof(float), bytes.data(),
                                 ItemSize(dtype), static_cast<int64_t>(numbers.size()));
  return bytes;
}

TEST(ChannelsLastSimd, EveryInstructionSetConvolves) {
  // Joined taps, rests of panels and tiles, blocks of taps and of channels, dilation, groups, one channel each, types.
  constexpr Case kCases[] = {{1, 3, 12, 11, 21, 5, 2, 2, 1, 1},  {2, 8, 5, 7, 16, 1, 1, 0, 1, 1},
                             {1, 40, 9, 8, 37, 3, 1, 1, 1, 1},   {1, 300, 5, 5, 18, 3, 1, 1, 1, 1},
                             {1, 6, 9, 11, 10, 3, 2, 2, 2, 2},   {1, 37, 9, 10, 37, 3, 2, 1, 1, 37},
                             {2, 16, 7, 13, 16, 3, 1, 1, 1, 16}, {1, 4, 8, 9, 5, 3, 1, 2, 2, 1}};
  for (const Case& c : kCases) {
    const ConvShape shape = ShapeOf(c);
    const int64_t pixels = c.batch * shape.dims[1].out * shape.dims[2].out;
    const std::vector<float> in = Numbers(c.batch * c.channels * c.height * c.width, 5);
    const std::vector<float> weights = Numbers(c.outputs * shape.in_channels * c.kernel * c.kernel, 3);
    std::vector<float> bias = Numbers(c.outputs, 2);
    const std::vector<float> addend = Numbers(pixels * c.outputs, 7);
    const std::vector<float> expected = Expected(c, in, weights, bias, addend, -9, 60);
    for (const DType dtype : {DType::kFloat, DType::kBFloat16}) {
      std::vector<char> x = As(dtype, in);
      std::vector<char> w = As(dtype, weights);
      std::vector<char> a = As(dtype, addend);
      const TensorRef input = ChannelsLast(x.data(), dtype, c.batch, c.channels, c.height, c.width);
      const TensorRef weight = MakeContiguous(w.data(), dtype, {c.outputs, shape.in_channels, 1, c.kernel, c.kernel});
      const TensorRef more = ChannelsLast(a.data(), dtype, c.batch, c.outputs, shape.dims[1].out, shape.dims[2].out);
      const TensorRef offsets = MakeContiguous(bias.data(), DType::kFloat, {c.outputs});
      const int targets = ForEachTarget([&](int64_t target) {
        std::vector<char> results(a.size());
        const TensorRef out =
            ChannelsLast(results.data(), dtype, c.batch, c.outputs, shape.dims[1].out, shape.dims[2].out);
        ASSERT_TRUE(ChannelsLastConv::Fits(shape, input, out));
        const ChannelsLastConv conv(shape, input, out, {true, -9, 60});
        std::vector<float> source(static_cast<size_t>(conv.source_elements()));
        std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
        std::vector<double> scratch(
            static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16));
        if (!source.empty()) conv.Prepare(input, source.data(), {0, conv.prepare_units()});
        conv.Pack(weight, packed.data(), {0, conv.pack_units()}, scratch.data());
        for (int64_t unit = conv.units() - 1; unit >= 0; --unit) {
          conv.Convolve(input, source.empty() ? nullptr : source.data(), packed.data(), &offsets, &more, out,
                        {unit, unit + 1}, scratch.data());
        }
        EXPECT_EQ(results, As(dtype, expected))
            << hwy::TargetName(target) << ", " << c.channels << " to " << c.outputs << ", " << Name(dtype);
      });
      EXPECT_GE(targets, 2) << "nothing was compared";
    }
  }
}

TEST(ChannelsLastSimd, ClampsLeaveNaN) {
  const Case c = {1, 2, 4, 4, 3, 1, 1, 0, 1, 1};
  const ConvShape shape = ShapeOf(c);
  std::vector<float> in(32, 1.0f);
  in[0] = std::numeric_limits<float>::quiet_NaN();
  in[2] = -std::numeric_limits<float>::infinity();
  std::vector<float> weights(6, 1.0f);
  std::vector<float> results(48);
  const TensorRef input = ChannelsLast(in.data(), DType::kFloat, 1, 2, 4, 4);
  const TensorRef out = ChannelsLast(results.data(), DType::kFloat, 1, 3, 4, 4);
  ForEachTarget([&](int64_t target) {
    const ChannelsLastConv conv(shape, input, out, {true, 0, std::numeric_limits<float>::infinity()});
    std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
    std::vector<double> scratch(static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16));
    conv.Pack(MakeContiguous(weights.data(), DType::kFloat, {3, 2, 1, 1, 1}), packed.data(), {0, conv.pack_units()},
              scratch.data());
    conv.Convolve(input, nullptr, packed.data(), nullptr, nullptr, out, {0, conv.units()}, scratch.data());
    EXPECT_TRUE(std::isnan(results[0])) << hwy::TargetName(target);
    EXPECT_EQ(results[3], 0) << hwy::TargetName(target);
    EXPECT_EQ(results[6], 2) << hwy::TargetName(target);
  });
}

TEST(ChannelsLastSimd, OtherLayoutsDoNotFit) {
  const ConvShape shape = ShapeOf({1, 8, 6, 6, 8, 3, 1, 1, 1, 1});
  float number = 0;
  const TensorRef last = ChannelsLast(&number, DType::kFloat, 1, 8, 6, 6);
  const TensorRef first = MakeContiguous(&number, DType::kFloat, {1, 8, 1, 6, 6});
  EXPECT_TRUE(ChannelsLastConv::Fits(shape, last, last));
  EXPECT_FALSE(ChannelsLastConv::Fits(shape, first, last));
  EXPECT_FALSE(ChannelsLastConv::Fits(shape, last, first));
  ConvShape transposed = shape;
  transposed.transposed = true;
  EXPECT_FALSE(ChannelsLastConv::Fits(transposed, last, last));
  TensorRef wide = last;
  wide.dtype = DType::kDouble;
  EXPECT_FALSE(ChannelsLastConv::Fits(shape, wide, wide));
}

TEST(ChannelsLastPool, GivesWhatThePoolOfPlanesGives) {
  for (const DType dtype : {DType::kFloat, DType::kFloat16}) {
    for (const auto& [height, width, kernel, stride, pad, counts] :
         {std::array<int64_t, 6>{7, 9, 3, 2, 1, 1}, {6, 6, 2, 2, 0, 0}, {5, 8, 3, 1, 1, 0}}) {
      constexpr int64_t kChannels = 5;
      PoolShape shape;
      shape.h = {height, (height + 2 * pad - kernel) / stride + 1, kernel, stride, pad, pad, 1, false};
      shape.w = {width, (width + 2 * pad - kernel) / stride + 1, kernel, stride, pad, pad, 1, false};
      shape.count_include_pad = counts != 0;
      std::vector<char> in = As(dtype, Numbers(2 * kChannels * height * width, 5));
      const size_t bytes = static_cast<size_t>(2 * kChannels * shape.h.out * shape.w.out * ItemSize(dtype));
      std::vector<char> found(bytes);
      std::vector<char> wanted(bytes);
      const TensorRef self = ChannelsLast(in.data(), dtype, 2, kChannels, height, width);
      const TensorRef out = ChannelsLast(found.data(), dtype, 2, kChannels, shape.h.out, shape.w.out);
      const TensorRef plain = ChannelsLast(wanted.data(), dtype, 2, kChannels, shape.h.out, shape.w.out);
      std::vector<double> scratch(
          static_cast<size_t>(std::max(ChannelsLastPoolScratchBytes(out), PoolScratchBytes(shape)) / 8 + 16));
      ASSERT_TRUE(FitsChannelsLast(self, out));
      ChannelsLastMaxPool(shape, self, out, {0, ChannelsLastPoolRows(out)}, scratch.data());
      MaxPool(shape, self, plain, nullptr, nullptr, {0, PoolRowCount(plain)}, scratch.data());
      EXPECT_EQ(found, wanted) << "largest, " << Name(dtype) << ", " << height << " x " << width;
      ChannelsLastAvgPool(shape, self, out, {0, ChannelsLastPoolRows(out)}, scratch.data());
      AvgPool(shape, self, plain, {0, PoolRowCount(plain)}, scratch.data());
      EXPECT_EQ(found, wanted) << "means, " << Name(dtype) << ", " << height << " x " << width;
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
