// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of few outputs, whose taps are columns of a product, on every instruction set that the machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/channels_last_conv.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels {
namespace {

using simd::testing::ForEachTarget;

struct Case {
  bool transposed;
  int64_t batch, channels, height, width, outputs, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation;
  int64_t more = 0;  // pads behind the image, beyond those in front
};

ConvShape ShapeOf(const Case& c) {
  ConvShape shape;
  shape.batch = c.batch;
  shape.in_channels = c.channels;
  shape.out_channels = c.outputs;
  shape.transposed = c.transposed;
  const auto dim = [&](int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    const int64_t reach = c.dilation * (kernel - 1) + 1;
    const int64_t out =
        c.transposed ? (in - 1) * stride - 2 * pad + reach : (in + 2 * pad + c.more - reach) / stride + 1;
    return ConvDim{in, out, kernel, stride, pad, c.dilation};
  };
  shape.dims[1] = dim(c.height, c.kernel_h, c.stride_h, c.pad_h);
  shape.dims[2] = dim(c.width, c.kernel_w, c.stride_w, c.pad_w);
  return shape;
}

TensorRef ChannelsLast(std::vector<float>& data, int64_t n, int64_t c, int64_t h, int64_t w) {
  TensorRef ref = MakeContiguous(data.data(), DType::kFloat, {n, c, 1, h, w});
  ref.strides[0] = ref.strides[2] = h * w * c;
  ref.strides[1] = 1;
  ref.strides[3] = w * c;
  ref.strides[4] = c;
  return ref;
}

// Small whole numbers, whose sums of products are exact in any order.
std::vector<float> Numbers(int64_t n, int64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& number : numbers) {
    seed = (seed * 1103515245 + 12345) & 0x7fffffff;
    number = static_cast<float>((seed >> 16) % 7 - 3);
  }
  return numbers;
}

// Where input and kernel meet for position `at` of a dim and tap `k`; false: nowhere, also not in the padding.
bool Meets(const Case& c, int64_t at, int64_t k, int64_t stride, int64_t pad, int64_t& in) {
  if (!c.transposed) {
    in = at * stride + k * c.dilation - pad;
    return true;
  }
  const int64_t from = at + pad - k * c.dilation;
  in = from / stride;
  return from % stride == 0;
}

struct Operands {
  std::vector<float> in, weights, bias, addend;
};
Operands OperandsOf(const Case& c) {
  const ConvShape shape = ShapeOf(c);
  return {Numbers(c.batch * c.height * c.width * c.channels, 5),
          Numbers(c.channels * c.outputs * c.kernel_h * c.kernel_w, 3), Numbers(c.outputs, 2),
          Numbers(c.batch * shape.dims[1].out * shape.dims[2].out * c.outputs, 7)};
}

// As the formula says, a zero for each element outside of the input; with `follows`, bias, addend and ReLU.
std::vector<float> Expected(const Case& c, const Operands& operands, bool follows = true) {
  const ConvShape shape = ShapeOf(c);
  const int64_t rows = shape.dims[1].out;
  const int64_t pixels = shape.dims[2].out;
  std::vector<float> expected(operands.addend.size());
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
    const int64_t o = i % c.outputs, x = i / c.outputs % pixels, y = i / c.outputs / pixels % rows;
    const int64_t n = i / c.outputs / pixels / rows;
    float sum = 0;
    for (int64_t kh = 0; kh < c.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < c.kernel_w; ++kw) {
        int64_t in_y = 0, in_x = 0;
        if (!Meets(c, y, kh, c.stride_h, c.pad_h, in_y) || !Meets(c, x, kw, c.stride_w, c.pad_w, in_x)) continue;
        const bool is_inside = in_y >= 0 && in_y < c.height && in_x >= 0 && in_x < c.width;
        for (int64_t k = 0; k < c.channels; ++k) {
          const int64_t at = ((n * c.height + in_y) * c.width + in_x) * c.channels + k;
          const int64_t line = c.transposed ? k * c.outputs + o : o * c.channels + k;
          sum += (is_inside ? operands.in[static_cast<size_t>(at)] : 0.0f) *
                 operands.weights[static_cast<size_t>((line * c.kernel_h + kh) * c.kernel_w + kw)];
        }
      }
    }
    if (follows) {
      sum += operands.bias[static_cast<size_t>(o)] + operands.addend[static_cast<size_t>(i)];
      sum = sum <= 0 ? 0 : sum;
    }
    expected[static_cast<size_t>(i)] = sum;
  }
  return expected;
}

struct Computed {
  int units = 0;
  bool by_tap_columns = false;
  std::vector<float> results;
};
// Unit by unit, the last one first.
Computed RunUnits(const Case& c, Operands x) {
  const ConvShape shape = ShapeOf(c);
  const int64_t rows = shape.dims[1].out;
  const int64_t pixels = shape.dims[2].out;
  Computed run;
  run.results.assign(x.addend.size(), -1);
  const TensorRef input = ChannelsLast(x.in, c.batch, c.channels, c.height, c.width);
  const TensorRef out = ChannelsLast(run.results, c.batch, c.outputs, rows, pixels);
  const TensorRef more = ChannelsLast(x.addend, c.batch, c.outputs, rows, pixels);
  const TensorRef weight = MakeContiguous(
      x.weights.data(), DType::kFloat,
      {c.transposed ? c.channels : c.outputs, c.transposed ? c.outputs : c.channels, 1, c.kernel_h, c.kernel_w});
  const TensorRef offsets = MakeContiguous(x.bias.data(), DType::kFloat, {c.outputs});
  EXPECT_TRUE(ChannelsLastConv::Fits(shape, input, out));
  ConvEpilogue epilogue;
  epilogue.activation = ConvActivation::kRelu;
  const ChannelsLastConv conv(shape, input, out, epilogue, true);
  run.by_tap_columns = conv.by_tap_columns();
  run.units = static_cast<int>(conv.units());
  EXPECT_FALSE(run.by_tap_columns && (conv.has_tiles() || conv.has_rows()));
  std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
  std::vector<double> scratch(static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16));
  conv.Pack(weight, packed.data(), {0, conv.pack_units()}, scratch.data());
  for (int64_t unit = conv.units() - 1; unit >= 0; --unit) {
    conv.Convolve(input, nullptr, packed.data(), &offsets, &more, out, {unit, unit + 1}, scratch.data());
  }
  return run;
}

// One to eight outputs; steps, dilation, padding on all sides and none; kernels wider than the picture; several blocks
// of channels; units that begin inside of a picture and that go over the end of one.
constexpr Case kCases[] = {
    {false, 1, 64, 40, 33, 3, 3, 3, 1, 1, 1, 1, 1},     {false, 3, 17, 9, 11, 1, 5, 5, 1, 1, 2, 2, 1},
    {false, 1, 300, 8, 9, 4, 3, 3, 1, 1, 0, 0, 1},      {false, 2, 32, 21, 20, 2, 3, 3, 1, 1, 2, 2, 2},
    {false, 1, 48, 1, 200, 5, 1, 7, 1, 1, 0, 3, 1},     {false, 2, 20, 12, 5, 3, 9, 9, 1, 1, 4, 4, 1},
    {false, 1, 24, 18, 17, 2, 5, 3, 2, 1, 2, 1, 1},     {true, 4, 48, 16, 15, 3, 4, 4, 2, 2, 1, 1, 1},
    {true, 1, 33, 7, 9, 1, 3, 3, 2, 2, 1, 1, 1},        {true, 2, 16, 6, 13, 8, 5, 4, 3, 2, 1, 0, 1},
    {true, 1, 64, 30, 30, 4, 3, 3, 1, 1, 1, 1, 1},      {true, 1, 20, 10, 11, 2, 3, 3, 2, 1, 0, 2, 3},
    {true, 1, 40, 1, 100, 3, 1, 16, 1, 8, 0, 4, 1},     {false, 1, 64, 20, 21, 3, 3, 3, 2, 2, 0, 0, 1, 1},
    {false, 1, 48, 17, 30, 2, 3, 5, 1, 1, 2, 4, 1, -2}, {false, 2, 33, 9, 12, 4, 3, 3, 1, 1, 0, 0, 2, 5}};

// The class by itself, also where it would not pay.
TEST(TapColumnsTest, SumsAreTheFormula) {
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const Case& c = kCases[i];
    const ConvShape shape = ShapeOf(c);
    const Operands x = OperandsOf(c);
    const int64_t taps = c.kernel_h * c.kernel_w;
    const int64_t width = shape.dims[2].out;
    std::vector<float> lines;  // weights as [output, tap, channel]
    for (int64_t o = 0; o < c.outputs; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t k = 0; k < c.channels; ++k) {
          const int64_t line = c.transposed ? k * c.outputs + o : o * c.channels + k;
          lines.push_back(x.weights[static_cast<size_t>(line * taps + t)]);
        }
      }
    }
    const std::vector<float> expected = Expected(c, x, false);
    ForEachTarget([&](int64_t target) {
      const TapColumns conv(shape);
      std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
      std::vector<double> scratch(static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8));
      conv.Pack(lines.data(), packed.data(), scratch.data());
      std::vector<float> results(expected.size(), -1);
      for (int64_t unit = conv.units() - 1; unit >= 0; --unit) {
        const Range rows = conv.RowsOf(unit);
        conv.Run({x.in.data(), c.height * c.width * c.channels, c.width * c.channels, c.channels, packed.data(),
                  results.data() + rows.begin * width * c.outputs, c.outputs},
                 rows, scratch.data());
      }
      EXPECT_EQ(results, expected) << hwy::TargetName(target) << ", case " << i;
    });
  }
}

TEST(TapColumnsTest, EveryInstructionSetGivesTheFormula) {
  int by_tap_columns = 0;
  int most_units = 0;
  int64_t most_lanes = 0;
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const Case& c = kCases[i];
    const Operands x = OperandsOf(c);
    const std::vector<float> expected = Expected(c, x);
    const int targets = ForEachTarget([&](int64_t target) {
      const Computed run = RunUnits(c, x);
      by_tap_columns += run.by_tap_columns ? 1 : 0;
      most_lanes = std::max(most_lanes, simd::PanelWidth(float()) / 2);
      if (run.by_tap_columns) most_units = std::max(most_units, run.units);
      EXPECT_EQ(run.results, expected) << hwy::TargetName(target) << ", case " << i;
    });
    EXPECT_GE(targets, 2) << "nothing was compared";
  }
  if (most_lanes < 8) return;  // short vectors are full without it
  EXPECT_GE(by_tap_columns, 10);
  EXPECT_GE(most_units, 4);
}

// Infinite weights make NaN of the zeros around the picture, infinite elements of what they meet.
TEST(TapColumnsTest, InfinitiesMeetThePadding) {
  for (const Case& c : {kCases[0], kCases[3], kCases[7]}) {
    Operands x = OperandsOf(c);
    x.weights[1] = std::numeric_limits<float>::infinity();
    x.in[static_cast<size_t>(c.width + 2) * static_cast<size_t>(c.channels)] = -std::numeric_limits<float>::infinity();
    const std::vector<float> expected = Expected(c, x);
    ForEachTarget([&](int64_t target) {
      const Computed run = RunUnits(c, x);
      int special = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(run.results[i] == expected[i] || (std::isnan(run.results[i]) && std::isnan(expected[i])))
            << hwy::TargetName(target) << ", " << i << ": " << run.results[i] << ", " << expected[i];
        special += std::isfinite(expected[i]) ? 0 : 1;
      }
      EXPECT_GT(special, 0);
    });
  }
}

// More outputs than a vector has use for, taps of few channels, and rows that no cache keeps are left to the other
// ways.
TEST(TapColumnsTest, OthersAreNotTaken) {
  ForEachTarget([&](int64_t target) {
    for (const Case& c :
         {Case{false, 1, 64, 12, 12, 9, 3, 3, 1, 1, 1, 1, 1}, Case{false, 1, 15, 12, 12, 3, 3, 3, 1, 1, 1, 1, 1},
          Case{false, 1, 64, 12, 12, 3, 1, 1, 1, 1, 0, 0, 1}, Case{false, 1, 16, 12, 4096, 8, 9, 9, 1, 1, 4, 4, 1},
          Case{false, 1, 64, 12, 12, 3, 3, 3, 4, 4, 1, 1, 1}}) {
      EXPECT_FALSE(TapColumns::Pays(ShapeOf(c))) << hwy::TargetName(target) << ", " << c.outputs << ", " << c.channels;
    }
  });
}

}  // namespace
}  // namespace reprise::kernels
