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
#include "kernels/picture_layout.h"
#include "kernels/simd/activation_rows.h"
#include "kernels/simd/patches.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels {
namespace {

using simd::testing::ForEachTarget;

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
  int64_t more = 0;  // pads behind the image, beyond those in front
};

ConvShape ShapeOf(const Case& c) {
  ConvShape shape;
  shape.batch = c.batch;
  shape.groups = c.groups;
  shape.in_channels = c.channels / c.groups;
  shape.out_channels = c.outputs / c.groups;
  const auto out = [&](int64_t in) {
    return (in + 2 * c.pad + c.more - c.dilation * (c.kernel - 1) - 1) / c.stride + 1;
  };
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

// Computes unit by unit, the last one first.
void RunUnits(const ChannelsLastConv& conv, const TensorRef& input, const TensorRef& weight, const TensorRef* bias,
              const TensorRef* addend, const TensorRef& out) {
  std::vector<float> source(static_cast<size_t>(conv.source_elements()));
  std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
  std::vector<double> scratch(static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16));
  if (!source.empty()) conv.Prepare(input, source.data(), {0, conv.prepare_units()});
  conv.Pack(weight, packed.data(), {0, conv.pack_units()}, scratch.data());
  for (int64_t unit = conv.units() - 1; unit >= 0; --unit) {
    conv.Convolve(input, source.empty() ? nullptr : source.data(), packed.data(), bias, addend, out, {unit, unit + 1},
                  scratch.data());
  }
}

TEST(ChannelsLastSimd, EveryInstructionSetConvolves) {
  // Joined taps, rests of panels and tiles, narrow panels, blocks of taps and of channels, dilation, groups, one
  // channel each by kernels of several sizes, steps and dilations, patches with and without rests, types.
  constexpr Case kCases[] = {{1, 3, 12, 11, 21, 5, 2, 2, 1, 1},      {2, 8, 5, 7, 16, 1, 1, 0, 1, 1},
                             {1, 40, 9, 8, 37, 3, 1, 1, 1, 1},       {1, 300, 5, 5, 18, 3, 1, 1, 1, 1},
                             {1, 6, 9, 11, 10, 3, 2, 2, 2, 2},       {1, 37, 9, 10, 37, 3, 2, 1, 1, 37},
                             {2, 16, 7, 13, 16, 3, 1, 1, 1, 16},     {1, 4, 8, 9, 5, 3, 1, 2, 2, 1},
                             {1, 70, 6, 17, 70, 3, 1, 1, 1, 70},     {1, 33, 9, 9, 33, 5, 1, 2, 1, 33},
                             {1, 20, 11, 12, 20, 5, 2, 2, 1, 20},    {1, 9, 12, 13, 9, 3, 1, 2, 2, 9},
                             {1, 40, 13, 12, 37, 3, 1, 1, 1, 1},     {2, 32, 11, 9, 70, 3, 1, 0, 1, 1},
                             {1, 260, 12, 12, 33, 3, 1, 2, 1, 1},    {1, 20, 9, 13, 101, 1, 1, 0, 1, 1},
                             {1, 3, 12, 10, 21, 3, 2, 0, 1, 1, 1},   {1, 40, 12, 11, 37, 3, 2, 0, 1, 1, 1},
                             {1, 32, 13, 12, 70, 3, 1, 2, 1, 1, -2}, {1, 32, 13, 12, 70, 3, 1, 0, 1, 1, 2},
                             {1, 37, 9, 10, 37, 3, 2, 0, 1, 37, 1},  {1, 33, 9, 9, 33, 5, 1, 4, 1, 33, -3},
                             {1, 18, 9, 12, 18, 3, 1, 0, 4, 18, 8},  {2, 64, 7, 6, 40, 1, 2, 0, 1, 1, 3}};
  int by_patches = 0;
  for (const Case& c : kCases) {
    const ConvShape shape = ShapeOf(c);
    const int64_t pixels = c.batch * shape.dims[1].out * shape.dims[2].out;
    const std::vector<float> in = Numbers(c.batch * c.channels * c.height * c.width, 5);
    const std::vector<float> weights = Numbers(c.outputs * shape.in_channels * c.kernel * c.kernel, 3);
    std::vector<float> bias = Numbers(c.outputs, 2);
    const std::vector<float> addend = Numbers(pixels * c.outputs, 7);
    const std::vector<float> expected = Expected(c, in, weights, bias, addend, -9, 60);
    for (const auto& [dtype, keeps] :
         {std::pair(DType::kFloat, false), std::pair(DType::kFloat, true), std::pair(DType::kBFloat16, true)}) {
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
        const ChannelsLastConv conv(shape, input, out, {ConvActivation::kClamp, -9, 60}, keeps);
        by_patches += conv.by_patches() ? 1 : 0;
        RunUnits(conv, input, weight, &offsets, &more, out);
        EXPECT_EQ(results, As(dtype, expected)) << hwy::TargetName(target) << ", " << c.channels << " to " << c.outputs
                                                << ", " << Name(dtype) << (keeps ? ", kept" : "");
      });
      EXPECT_GE(targets, 2) << "nothing was compared";
    }
  }
  EXPECT_GE(by_patches, 6) << "no patches were computed";
}

// An activation gives the bits that it gives alone, by pixels and by patches.
TEST(ChannelsLastSimd, ActivationsFollow) {
  for (const Case& c : {Case{1, 32, 13, 12, 70, 3, 1, 1, 1, 1}, Case{1, 37, 9, 10, 37, 3, 1, 1, 1, 37},
                        Case{1, 20, 9, 13, 101, 1, 1, 0, 1, 1}}) {
    const ConvShape shape = ShapeOf(c);
    const int64_t outputs = c.outputs * shape.dims[1].out * shape.dims[2].out;
    std::vector<float> in = Numbers(c.channels * c.height * c.width, 5);
    if (c.groups == 1) in[77] = std::numeric_limits<float>::infinity();
    std::vector<float> weights = Numbers(c.outputs * shape.in_channels * c.kernel * c.kernel, 3);
    const TensorRef input = ChannelsLast(in.data(), DType::kFloat, 1, c.channels, c.height, c.width);
    const TensorRef weight =
        MakeContiguous(weights.data(), DType::kFloat, {c.outputs, shape.in_channels, 1, c.kernel, c.kernel});
    for (const auto& [activation, row] : {std::pair(ConvActivation::kHardSwish, simd::ActivationRow::kHardswish),
                                          std::pair(ConvActivation::kSwish, simd::ActivationRow::kSilu)}) {
      std::vector<float> plain(static_cast<size_t>(outputs));
      std::vector<float> found(static_cast<size_t>(outputs));
      for (std::vector<float>* results : {&plain, &found}) {
        const TensorRef out =
            ChannelsLast(results->data(), DType::kFloat, 1, c.outputs, shape.dims[1].out, shape.dims[2].out);
        const ConvActivation follows = results == &plain ? ConvActivation::kNone : activation;
        RunUnits(ChannelsLastConv(shape, input, out, {follows}, true), input, weight, nullptr, nullptr, out);
      }
      RowArgs args{};
      args.in[0] = args.out = plain.data();
      simd::FindActivationRow(row, DType::kFloat).function(&args, 0, outputs);
      EXPECT_EQ(As(DType::kFloat, found), As(DType::kFloat, plain)) << c.channels;
    }
  }
}

// Scales of channels, a sum and a ReLU give the bits of their formulas, one after the other, by pixels and by patches.
TEST(ChannelsLastSimd, ScalesAndReluFollow) {
  for (const Case& c : {Case{1, 32, 13, 12, 70, 3, 1, 1, 1, 1}, Case{1, 37, 9, 10, 37, 3, 1, 1, 1, 37},
                        Case{2, 20, 9, 13, 101, 1, 1, 0, 1, 1}}) {
    const ConvShape shape = ShapeOf(c);
    const int64_t pixels = c.batch * shape.dims[1].out * shape.dims[2].out;
    std::vector<float> in = Numbers(c.batch * c.channels * c.height * c.width, 5);
    in[70] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> weights = Numbers(c.outputs * shape.in_channels * c.kernel * c.kernel, 3);
    std::vector<float> bias = Numbers(c.outputs, 2);
    std::vector<float> addend = Numbers(pixels * c.outputs, 7);
    std::vector<float> numbers[3];
    for (int i = 0; i < 3; ++i) {
      numbers[i] = Numbers(c.outputs, i + 4);
      for (float& number : numbers[i]) number = number / 3 + 0.1f;
    }
    const TensorRef input = ChannelsLast(in.data(), DType::kFloat, c.batch, c.channels, c.height, c.width);
    const TensorRef weight =
        MakeContiguous(weights.data(), DType::kFloat, {c.outputs, shape.in_channels, 1, c.kernel, c.kernel});
    const TensorRef offsets = MakeContiguous(bias.data(), DType::kFloat, {c.outputs});
    const TensorRef more =
        ChannelsLast(addend.data(), DType::kFloat, c.batch, c.outputs, shape.dims[1].out, shape.dims[2].out);
    ForEachTarget([&](int64_t target) {
      std::vector<float> results[2];
      for (const bool scales : {false, true}) {
        results[scales].resize(addend.size());
        const TensorRef out = ChannelsLast(results[scales].data(), DType::kFloat, c.batch, c.outputs, shape.dims[1].out,
                                           shape.dims[2].out);
        const ConvEpilogue epilogue{scales ? ConvActivation::kRelu : ConvActivation::kNone};
        const ChannelsLastConv conv(shape, input, out, epilogue, true);
        const simd::ChannelScaling scaling{numbers[0].data(), numbers[1].data(), numbers[2].data()};
        std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
        std::vector<double> scratch(
            static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16));
        conv.Pack(weight, packed.data(), {0, conv.pack_units()}, scratch.data());
        conv.Convolve(input, nullptr, packed.data(), &offsets, scales ? &more : nullptr, out, {0, conv.units()},
                      scratch.data(), scales ? scaling : simd::ChannelScaling());
      }
      for (size_t i = 0; i < addend.size(); ++i) {
        const size_t o = i % static_cast<size_t>(c.outputs);
        float& value = results[0][i];
        const float centred = value - numbers[0][o];
        const float scaled = centred * numbers[1][o];
        const float sum = (scaled + numbers[2][o]) + addend[i];
        value = sum <= 0 ? 0.0f : sum;
      }
      for (std::vector<float>& all : results) {  // whatever their bits
        for (float& value : all) value = std::isnan(value) ? -1.0f : value;
      }
      EXPECT_EQ(As(DType::kFloat, results[0]), As(DType::kFloat, results[1]))
          << hwy::TargetName(target) << ", " << c.channels << " channels";
    });
  }
}

// What is infinite or NaN stays where it belongs, though patches overlap.
TEST(ChannelsLastSimd, PatchesKeepInfinitiesApart) {
  const Case c = {1, 32, 11, 11, 48, 3, 1, 1, 1, 1};  // too few patches where the filters are not kept
  const ConvShape shape = ShapeOf(c);
  const int64_t inputs = c.channels * c.height * c.width;
  const int64_t outputs = c.outputs * c.height * c.width;
  std::vector<float> in = Numbers(inputs, 5);
  const auto at = [&](int64_t y, int64_t x) { return static_cast<size_t>((y * c.width + x) * c.channels); };
  in[at(0, 0)] = std::numeric_limits<float>::infinity();
  in[at(5, 7) + 31] = -std::numeric_limits<float>::infinity();
  in[at(10, 10) + 3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> weights(static_cast<size_t>(c.outputs * c.channels * 9), 0.5f);
  std::vector<float> addend = Numbers(outputs, 7);
  const TensorRef more = ChannelsLast(addend.data(), DType::kFloat, 1, c.outputs, c.height, c.width);
  const TensorRef input = ChannelsLast(in.data(), DType::kFloat, 1, c.channels, c.height, c.width);
  const TensorRef weight = MakeContiguous(weights.data(), DType::kFloat, {c.outputs, c.channels, 1, 3, 3});
  ForEachTarget([&](int64_t target) {
    std::vector<float> results[2];
    for (const bool keeps : {false, true}) {
      results[keeps].resize(addend.size());
      const TensorRef out = ChannelsLast(results[keeps].data(), DType::kFloat, 1, c.outputs, c.height, c.width);
      const ChannelsLastConv conv(shape, input, out, {}, keeps);
      EXPECT_EQ(conv.by_patches(), keeps);
      RunUnits(conv, input, weight, nullptr, &more, out);
    }
    int64_t finite = 0;
    for (size_t i = 0; i < results[0].size(); ++i) {
      const bool is_same = results[0][i] == results[1][i] || (std::isnan(results[0][i]) && std::isnan(results[1][i]));
      ASSERT_TRUE(is_same) << hwy::TargetName(target) << ", " << i << ": " << results[0][i] << ", " << results[1][i];
      finite += std::isfinite(results[0][i]) ? 1 : 0;
    }
    EXPECT_EQ(finite, outputs - c.outputs * (4 + 9 + 4)) << hwy::TargetName(target);
  });
}

// Sums by patches round otherwise, within what api/ops allows: 32 units in the last place of the largest result.
TEST(ChannelsLastSimd, PatchesAreExactEnough) {
  const Case c = {1, 256, 14, 14, 64, 3, 1, 1, 1, 1};
  const ConvShape shape = ShapeOf(c);
  auto noise = [state = uint64_t{1}]() mutable {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  };
  std::vector<float> in(static_cast<size_t>(c.channels * c.height * c.width));
  std::vector<float> weights(static_cast<size_t>(c.outputs * c.channels * 9));
  for (float& value : in) value = noise();
  for (float& value : weights) value = noise();
  const TensorRef input = ChannelsLast(in.data(), DType::kFloat, 1, c.channels, c.height, c.width);
  const TensorRef weight = MakeContiguous(weights.data(), DType::kFloat, {c.outputs, c.channels, 1, 3, 3});
  std::vector<float> results(static_cast<size_t>(c.outputs * c.height * c.width));
  const TensorRef out = ChannelsLast(results.data(), DType::kFloat, 1, c.outputs, c.height, c.width);
  RunUnits(ChannelsLastConv(shape, input, out, {}, true), input, weight, nullptr, nullptr, out);
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto q = static_cast<int64_t>(i);
    const int64_t o = q % c.outputs;
    const int64_t x = q / c.outputs % c.width;
    const int64_t y = q / c.outputs / c.width;
    double sum = 0;
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t in_y = y + k / 3 - 1;
      const int64_t in_x = x + k % 3 - 1;
      if (in_y < 0 || in_y >= c.height || in_x < 0 || in_x >= c.width) continue;
      for (int64_t channel = 0; channel < c.channels; ++channel) {
        sum += static_cast<double>(in[static_cast<size_t>((in_y * c.width + in_x) * c.channels + channel)]) *
               weights[static_cast<size_t>((o * c.channels + channel) * 9 + k)];
      }
    }
    largest = std::max(largest, std::abs(sum));
    worst = std::max(worst, std::abs(sum - results[i]));
  }
  EXPECT_LE(worst, 32 * 0x1p-24 * largest);
  RecordProperty("units", std::to_string(worst / largest * 0x1p24));
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
    const ChannelsLastConv conv(shape, input, out, {ConvActivation::kClamp, 0, std::numeric_limits<float>::infinity()});
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

// Graphs read channels behind where their program has them in front: the sums are those of the other kernel.
TEST(ChannelsLastSimd, SumsAreThoseOfPlanes) {
  auto noise = [state = uint64_t{7}]() mutable {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  };
  // One tap, of one block and of several that are no multiples; steps; groups of one channel.
  for (const Case& c : {Case{1, 70, 9, 8, 37, 1, 1, 0, 1, 1}, Case{2, 300, 5, 7, 50, 1, 1, 0, 1, 1},
                        Case{1, 1030, 4, 5, 33, 1, 1, 0, 1, 1}, Case{1, 64, 9, 11, 40, 1, 2, 0, 1, 1},
                        Case{2, 37, 9, 10, 37, 3, 1, 1, 1, 37}, Case{1, 20, 11, 12, 20, 3, 2, 1, 1, 20},
                        Case{1, 18, 9, 9, 18, 5, 1, 2, 2, 18}}) {
    ConvShape shape = ShapeOf(c);
    const int64_t height = shape.dims[1].out;
    const int64_t width = shape.dims[2].out;
    std::vector<float> in(static_cast<size_t>(c.batch * c.channels * c.height * c.width));
    std::vector<float> weights(static_cast<size_t>(c.outputs * shape.in_channels * c.kernel * c.kernel));
    for (float& value : in) value = noise();
    for (float& value : weights) value = noise();
    const TensorRef weight =
        MakeContiguous(weights.data(), DType::kFloat, {c.outputs, shape.in_channels, 1, c.kernel, c.kernel});
    const TensorRef planes = MakeContiguous(in.data(), DType::kFloat, {c.batch, c.channels, 1, c.height, c.width});
    std::vector<float> pixels(in.size());
    const TensorRef input = ChannelsLast(pixels.data(), DType::kFloat, c.batch, c.channels, c.height, c.width);
    PixelsOfPlanes(planes, pixels.data(), {0, PictureUnits(planes)});
    ForEachTarget([&](int64_t target) {
      std::vector<float> behind(static_cast<size_t>(c.batch * c.outputs * height * width));
      std::vector<float> front(behind.size()), turned(behind.size());
      const TensorRef out = ChannelsLast(behind.data(), DType::kFloat, c.batch, c.outputs, height, width);
      RunUnits(ChannelsLastConv(shape, input, out, {}, true), input, weight, nullptr, nullptr, out);
      TensorRef result = MakeContiguous(turned.data(), DType::kFloat, {c.batch, c.outputs, 1, height, width});
      PlanesOfPixels(behind.data(), result, {0, PictureUnits(result)});

      result.data = front.data();
      ConvShape simple = shape;
      TensorRef source = planes;
      ConvSetup::Simplify(simple, source, result);
      const ConvSetup setup(simple, source);
      std::vector<float> prepared(static_cast<size_t>(setup.source_elements()));
      std::vector<float> packed(static_cast<size_t>(setup.packed_elements()));
      std::vector<double> scratch(
          static_cast<size_t>(std::max(setup.ScratchBytes(), setup.PackScratchBytes()) / 8 + 16));
      if (!prepared.empty()) setup.Prepare(source, prepared.data(), {0, setup.prepare_units()});
      setup.Pack(weight, packed.data(), {0, setup.pack_units()}, scratch.data());
      setup.Convolve(source, prepared.empty() ? nullptr : prepared.data(), packed.data(), nullptr, result,
                     {0, setup.units()}, scratch.data());
      EXPECT_EQ(As(DType::kFloat, front), As(DType::kFloat, turned))
          << hwy::TargetName(target) << ", " << c.channels << " channels";
    });
  }
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

// Rounded once, with the same bits on every instruction set.
TEST(ChannelsLastConvTest, FiltersAreTransformedInDoubles) {
  constexpr int64_t kChannels = 21;
  const std::vector<float> filter = Numbers(9 * kChannels, 7);
  constexpr double kSides[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  ForEachTarget([&](int64_t target) {
    std::vector<float> out(16 * kChannels);
    simd::TransformFilter(filter.data(), kChannels, out.data());
    for (int64_t place = 0; place < 16; ++place) {
      for (int64_t c = 0; c < kChannels; ++c) {
        double sum = 0;
        for (int64_t tap = 0; tap < 9; ++tap) {
          sum += kSides[place / 4][tap / 3] * kSides[place % 4][tap % 3] *
                 static_cast<double>(filter[static_cast<size_t>(tap * kChannels + c)]);
        }
        ASSERT_EQ(out[static_cast<size_t>(place * kChannels + c)], static_cast<float>(sum))
            << hwy::TargetName(target) << ", " << place << ", " << c;
      }
    }
  });
}

TEST(ChannelsLastPool, GivesWhatThePoolOfPlanesGives) {
  for (const DType dtype : {DType::kFloat, DType::kFloat16}) {
    for (const auto& [height, width, kernel, stride, pad, counts] :
         {std::array<int64_t, 6>{7, 9, 3, 2, 1, 1}, {6, 6, 2, 2, 0, 0}, {5, 8, 3, 1, 1, 0}, {9, 8, 6, 1, 2, 0}}) {
      constexpr int64_t kChannels = 85;
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

TEST(ChannelsLastPool, LargestKeepsNaNOnEveryInstructionSet) {
  constexpr int64_t kChannels = 85;
  std::vector<float> in = Numbers(4 * kChannels, 5);
  in[3] = in[2 * kChannels + 84] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < 4; ++i) in[static_cast<size_t>(i * kChannels + 7)] = -std::numeric_limits<float>::infinity();
  const float* const pixels[] = {in.data(), &in[kChannels], &in[2 * kChannels], &in[3 * kChannels]};
  ForEachTarget([&](int64_t target) {
    std::vector<float> out(kChannels);
    simd::LargestOfPixels(pixels, 4, kChannels, out.data());
    for (size_t c = 0; c < kChannels; ++c) {
      const float largest = std::max({pixels[0][c], pixels[1][c], pixels[2][c], pixels[3][c]});
      EXPECT_TRUE(c == 3 || c == 84 ? std::isnan(out[c]) : out[c] == largest) << hwy::TargetName(target) << ", " << c;
    }
  });
}

// Lanes that are left over, in place and not, and nothing beside the columns.
TEST(ChannelsLastSimd, FinishedPixelsAreTheFormula) {
  constexpr int64_t kPixels = 3;
  constexpr int64_t kStride = 71;
  for (const int64_t columns : {1, 3, 16, 31, 64, 67}) {
    const std::vector<float> in = Numbers(kPixels * kStride, 5);
    const std::vector<float> addend = Numbers(kPixels * kStride, 7);
    const std::vector<float> rows[3] = {Numbers(kStride, 4), Numbers(kStride, 6), Numbers(kStride, 9)};
    ForEachTarget([&](int64_t target) {
      for (int variant = 0; variant < 8; ++variant) {
        const bool scales = (variant & 1) != 0;
        const bool adds = (variant & 2) != 0;
        const bool is_relu = (variant & 4) != 0;
        std::vector<float> in_place = in;
        std::vector<float> apart(in.size(), -7.0f);
        simd::FinishedPixels block{in.data(), kPixels, columns, apart.data(), kStride, {}};
        if (scales) block.epilogue.scaling = {rows[0].data(), rows[1].data(), rows[2].data()};
        if (adds) block.epilogue.addend = addend.data();
        block.epilogue.addend_stride = kStride;
        block.epilogue.is_relu = is_relu;
        block.epilogue.clamps = !is_relu;
        block.epilogue.low = -1;
        block.epilogue.high = 2;
        simd::FinishPixels(block);
        block.in = block.out = in_place.data();
        simd::FinishPixels(block);
        for (size_t i = 0; i < in.size(); ++i) {
          const auto c = i % kStride;
          float wanted = in[i];
          if (scales) {
            const float centred = wanted - rows[0][c];
            const float scaled = centred * rows[1][c];
            wanted = scaled + rows[2][c];
          }
          if (adds) wanted += addend[i];
          wanted = is_relu ? std::max(wanted, 0.0f) : std::clamp(wanted, -1.0f, 2.0f);
          const bool is_there = c < static_cast<size_t>(columns);
          ASSERT_EQ(apart[i], is_there ? wanted : -7.0f) << hwy::TargetName(target) << ", " << variant << ", " << i;
          ASSERT_EQ(in_place[i], is_there ? wanted : in[i]) << hwy::TargetName(target) << ", " << variant << ", " << i;
        }
      }
    });
  }
}

// Together units compute each element of the result once.
TEST(ChannelsLastSimd, TilesOfUnitsCoverTheResult) {
  for (const Case& c : {Case{2, 40, 13, 13, 96, 1, 1, 1, 0, 1}, Case{1, 32, 29, 31, 32, 3, 2, 1, 1, 32},
                        Case{1, 512, 3, 3, 700, 1, 1, 1, 0, 1}}) {
    const ConvShape shape = ShapeOf(c);
    const int64_t pixels = c.batch * shape.dims[1].out * shape.dims[2].out;
    std::vector<float> none(1);
    const TensorRef input = ChannelsLast(none.data(), DType::kFloat, c.batch, c.channels, c.height, c.width);
    const TensorRef out =
        ChannelsLast(none.data(), DType::kFloat, c.batch, c.outputs, shape.dims[1].out, shape.dims[2].out);
    const ChannelsLastConv conv(shape, input, out, {});
    std::vector<int> times(static_cast<size_t>(pixels * c.outputs));
    for (int64_t unit = 0; unit < conv.units(); ++unit) {
      const ChannelsLastConv::Tile tile = conv.TileOf(unit);
      for (int64_t p = tile.pixels.begin; p < tile.pixels.end; ++p) {
        for (int64_t o = tile.channels.begin; o < tile.channels.end; ++o) {
          ++times[static_cast<size_t>(p * c.outputs + o)];
        }
      }
    }
    EXPECT_EQ(std::count(times.begin(), times.end(), 1), pixels * c.outputs) << c.channels << " channels";
  }
}

}  // namespace
}  // namespace reprise::kernels
