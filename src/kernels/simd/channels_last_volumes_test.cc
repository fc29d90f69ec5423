// SPDX-License-Identifier: Apache-2.0
//
// Convolutions over three dims, and transposed ones, of tensors whose channels lie back to back, on every instruction
// set that the machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/channels_last_conv.h"
#include "kernels/picture_layout.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels {
namespace {

using simd::testing::ForEachTarget;
using Three = std::array<int64_t, 3>;

// Small whole numbers, whose sums are exact in any order.
std::vector<float> Numbers(int64_t n, int64_t step) {
  std::vector<float> numbers(static_cast<size_t>(n));
  int64_t value = 1;
  for (float& number : numbers) {
    value = (value * 31 + step) % 17;
    number = static_cast<float>(value % 5 - 2);
  }
  return numbers;
}

int64_t Product(const Three& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

// [N, C, D, H, W], channels back to back.
TensorRef Behind(void* data, int64_t n, int64_t c, const Three& sizes) {
  TensorRef ref = MakeContiguous(data, DType::kFloat, {n, c, sizes[0], sizes[1], sizes[2]});
  ref.strides[1] = 1;
  ref.strides[4] = c;
  ref.strides[3] = c * sizes[2];
  ref.strides[2] = ref.strides[3] * sizes[1];
  ref.strides[0] = ref.strides[2] * sizes[0];
  return ref;
}

struct Case {
  bool transposed;
  int64_t batch, channels, outputs, groups;
  Three in, kernel, stride, pad, dilation, more;  // of the output of a transposed one, else of the pads behind

  Three out() const {
    Three sizes;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
      sizes[d] = transposed ? (in[d] - 1) * stride[d] - 2 * pad[d] + reach + more[d]
                            : (in[d] + 2 * pad[d] + more[d] - reach) / stride[d] + 1;
    }
    return sizes;
  }
  ConvShape shape() const {
    ConvShape shape{batch, groups, channels / groups, outputs / groups, {}, transposed};
    for (size_t d = 0; d < 3; ++d) shape.dims[d] = {in[d], out()[d], kernel[d], stride[d], pad[d], dilation[d]};
    return shape;
  }
};

// As the formula says, by walking the inputs of each output; with channels behind.
std::vector<float> Expected(const Case& c, const std::vector<float>& in, const TensorRef& weight,
                            const std::vector<float>& bias, const std::vector<float>& addend, float low, float high) {
  const ConvShape shape = c.shape();
  const Three out = c.out();
  const auto* const weights = static_cast<const float*>(weight.data);
  std::vector<float> expected(addend.size());
  for (size_t q = 0; q < expected.size(); ++q) {
    const auto at = static_cast<int64_t>(q);
    const int64_t o = at % c.outputs;
    const int64_t pixel = at / c.outputs;
    const Three y = {pixel / out[2] / out[1] % out[0], pixel / out[2] % out[1], pixel % out[2]};
    const int64_t n = pixel / Product(out);
    float sum = bias[static_cast<size_t>(o)] + addend[q];
    for (int64_t k = 0; k < Product(c.kernel); ++k) {
      const Three tap = {k / c.kernel[2] / c.kernel[1], k / c.kernel[2] % c.kernel[1], k % c.kernel[2]};
      int64_t from = n;
      bool is_inside = true;
      for (size_t d = 0; d < 3; ++d) {
        int64_t x = c.transposed ? y[d] + c.pad[d] - tap[d] * c.dilation[d]
                                 : y[d] * c.stride[d] - c.pad[d] + tap[d] * c.dilation[d];
        if (c.transposed) {
          is_inside = is_inside && x % c.stride[d] == 0;
          x /= c.stride[d];
        }
        is_inside = is_inside && x >= 0 && x < c.in[d];
        from = from * c.in[d] + x;
      }
      if (!is_inside) continue;
      const int64_t group = o / shape.out_channels;
      for (int64_t i = 0; i < shape.in_channels; ++i) {
        const int64_t channel = group * shape.in_channels + i;
        const int64_t first = c.transposed ? channel : o;
        const int64_t second = c.transposed ? o % shape.out_channels : i;
        const int64_t place = first * weight.strides[0] + second * weight.strides[1] + tap[0] * weight.strides[2] +
                              tap[1] * weight.strides[3] + tap[2] * weight.strides[4];
        sum += in[static_cast<size_t>(from * c.channels + channel)] * weights[place];
      }
    }
    expected[q] = std::min(std::max(sum, low), high);
  }
  return expected;
}

// Computes unit by unit, the last one first, in memory that holds something else.
void RunUnits(const ChannelsLastConv& conv, const TensorRef& input, const TensorRef& weight, const TensorRef* bias,
              const TensorRef* addend, const TensorRef& out) {
  std::vector<float> source(static_cast<size_t>(conv.source_elements()), 77.0f);
  std::vector<float> packed(static_cast<size_t>(conv.packed_elements()), 77.0f);
  std::vector<double> scratch(static_cast<size_t>(std::max(conv.ScratchBytes(), conv.PackScratchBytes()) / 8 + 16),
                              1e30);
  if (!source.empty()) conv.Prepare(input, source.data(), {0, conv.prepare_units()});
  for (int64_t unit = 0; unit < conv.pack_units(); ++unit) {
    conv.Pack(weight, packed.data(), {unit, unit + 1}, scratch.data());
  }
  for (int64_t unit = conv.units() - 1; unit >= 0; --unit) {
    conv.Convolve(input, source.empty() ? nullptr : source.data(), packed.data(), bias, addend, out, {unit, unit + 1},
                  scratch.data());
  }
}

// Three dims: joined taps, steps, dilation, groups, channels by themselves, blocks of taps and of channels, one of the
// dims empty of taps. Transposed: residues with other numbers of taps, outputs beyond the last input, padding that cuts
// outputs off, one residue, one of several patches, groups, channels by themselves, one dim, dilation that shares no
// factor with the stride.
constexpr Case kCases[] = {
    {false, 1, 3, 21, 1, {5, 9, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}},
    {false, 2, 20, 18, 1, {4, 6, 7}, {3, 3, 3}, {2, 1, 2}, {1, 0, 1}, {1, 1, 1}, {}},
    {false, 1, 40, 37, 1, {6, 5, 6}, {2, 3, 1}, {1, 1, 1}, {0, 1, 0}, {2, 1, 1}, {}},
    {false, 1, 300, 18, 1, {3, 4, 5}, {3, 1, 2}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}, {}},
    {false, 1, 12, 10, 2, {5, 6, 6}, {3, 2, 3}, {1, 2, 1}, {2, 1, 1}, {1, 1, 1}, {}},
    {false, 1, 37, 37, 37, {4, 7, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}},
    {false, 2, 20, 20, 20, {5, 6, 7}, {2, 3, 3}, {2, 2, 1}, {0, 1, 2}, {1, 1, 2}, {}},
    {false, 2, 70, 33, 1, {5, 4, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {}},
    {false, 1, 3, 21, 1, {5, 8, 8}, {3, 3, 3}, {1, 2, 2}, {1, 0, 0}, {1, 1, 1}, {-1, 1, 1}},
    {false, 1, 40, 37, 1, {4, 6, 7}, {3, 3, 3}, {1, 1, 2}, {2, 0, 0}, {1, 1, 1}, {-2, 2, 1}},
    {false, 1, 64, 48, 1, {1, 1, 40}, {1, 1, 2}, {1, 1, 1}, {0, 0, 8}, {1, 1, 8}, {0, 0, -8}},
    {false, 2, 20, 20, 20, {5, 6, 7}, {2, 3, 3}, {2, 2, 1}, {0, 0, 2}, {1, 1, 1}, {1, 1, -2}},
    {true, 1, 24, 21, 1, {1, 5, 6}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, {}},
    {true, 2, 40, 37, 1, {1, 6, 5}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {true, 1, 40, 70, 1, {1, 12, 13}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, {}},
    {true, 1, 33, 34, 1, {1, 9, 7}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, {}},
    {true, 1, 16, 18, 1, {1, 7, 8}, {1, 5, 5}, {1, 3, 2}, {0, 4, 3}, {1, 1, 1}, {0, 2, 0}},
    {true, 1, 40, 36, 2, {1, 5, 9}, {1, 4, 3}, {1, 2, 1}, {0, 0, 1}, {1, 1, 1}, {}},
    {true, 1, 21, 21, 21, {1, 6, 7}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, {}},
    {true, 1, 300, 20, 1, {1, 1, 30}, {1, 1, 8}, {1, 1, 4}, {0, 0, 2}, {1, 1, 1}, {}},
    {true, 1, 17, 19, 1, {1, 5, 5}, {1, 3, 3}, {1, 2, 2}, {0, 1, 0}, {1, 3, 3}, {}},
    {true, 1, 20, 18, 1, {3, 4, 5}, {2, 3, 3}, {2, 2, 2}, {0, 1, 1}, {1, 1, 1}, {0, 1, 1}},
};

std::string NameOf(const Case& c) {
  return std::string(c.transposed ? "transposed, " : "") + std::to_string(c.channels) + " to " +
         std::to_string(c.outputs);
}

TEST(ChannelsLastVolumes, EveryInstructionSetConvolves) {
  for (const Case& c : kCases) {
    const ConvShape shape = c.shape();
    const Three out_sizes = c.out();
    std::vector<float> in = Numbers(c.batch * c.channels * Product(c.in), 5);
    std::vector<float> bias = Numbers(c.outputs, 2);
    std::vector<float> addend = Numbers(c.batch * c.outputs * Product(out_sizes), 7);
    const int64_t outer = c.transposed ? c.channels : c.outputs;
    const int64_t inner = c.transposed ? shape.out_channels : shape.in_channels;
    std::vector<float> numbers = Numbers(outer * inner * Product(c.kernel), 3);
    const TensorRef input = Behind(in.data(), c.batch, c.channels, c.in);
    const TensorRef more = Behind(addend.data(), c.batch, c.outputs, out_sizes);
    const TensorRef offsets = MakeContiguous(bias.data(), DType::kFloat, {c.outputs});
    TensorRef weight =
        MakeContiguous(numbers.data(), DType::kFloat, {outer, inner, c.kernel[0], c.kernel[1], c.kernel[2]});
    for (const bool has_taps_apart : {false, true}) {
      if (has_taps_apart) weight = Behind(numbers.data(), outer, inner, c.kernel);
      const std::vector<float> expected = Expected(c, in, weight, bias, addend, -9, 60);
      const int targets = ForEachTarget([&](int64_t target) {
        std::vector<float> results(addend.size());
        const TensorRef out = Behind(results.data(), c.batch, c.outputs, out_sizes);
        ASSERT_TRUE(ChannelsLastConv::Fits(shape, input, out)) << NameOf(c);
        const ChannelsLastConv conv(shape, input, out, {ConvActivation::kClamp, -9, 60}, true);
        RunUnits(conv, input, weight, &offsets, &more, out);
        EXPECT_EQ(results, expected) << hwy::TargetName(target) << ", " << NameOf(c);
      });
      EXPECT_GE(targets, 2) << "nothing was compared";
    }
  }
}

// Taps in the padding are left out, unless zeros times what they hold is not zero.
TEST(ChannelsLastVolumes, InfiniteWeightsMeetThePadding) {
  constexpr Case kPadded[] = {{false, 1, 20, 37, 1, {3, 4, 30}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}},
                              {false, 1, 300, 20, 1, {3, 4, 9}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1}, {}},
                              {false, 1, 3, 18, 1, {3, 5, 16}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}}};
  for (const Case& c : kPadded) {
    const ConvShape shape = c.shape();
    const Three sizes = c.out();
    std::vector<float> in(static_cast<size_t>(c.channels * Product(c.in)), 1.0f);
    std::vector<float> numbers = Numbers(c.outputs * c.channels * Product(c.kernel), 3);
    const auto last = static_cast<size_t>(c.outputs - 1);
    numbers[last * static_cast<size_t>(c.channels * Product(c.kernel))] = std::numeric_limits<float>::infinity();
    const TensorRef input = Behind(in.data(), 1, c.channels, c.in);
    const TensorRef weight =
        MakeContiguous(numbers.data(), DType::kFloat, {c.outputs, c.channels, c.kernel[0], c.kernel[1], c.kernel[2]});
    const std::vector<float> none(static_cast<size_t>(c.outputs * Product(sizes)));
    std::vector<float> expected = Expected(c, in, weight, none, none, -INFINITY, INFINITY);
    const int targets = ForEachTarget([&](int64_t target) {
      std::vector<float> results(none.size());
      const TensorRef out = Behind(results.data(), 1, c.outputs, sizes);
      ASSERT_TRUE(ChannelsLastConv::Fits(shape, input, out)) << NameOf(c);
      RunUnits(ChannelsLastConv(shape, input, out, {}), input, weight, nullptr, nullptr, out);
      // The first tap of the last channel: it is in the padding of the first plane, row or column.
      int64_t met = 0;
      for (size_t i = 0; i < results.size(); ++i) {
        const auto pixel = static_cast<int64_t>(i) / c.outputs;
        const bool is_padding = (c.pad[0] > 0 && pixel / sizes[2] / sizes[1] == 0) ||
                                (c.pad[1] > 0 && pixel / sizes[2] % sizes[1] == 0) ||
                                (c.pad[2] > 0 && pixel % sizes[2] == 0);
        if (i % static_cast<size_t>(c.outputs) == last && is_padding) {
          EXPECT_TRUE(std::isnan(results[i])) << hwy::TargetName(target) << ", " << NameOf(c) << ", pixel " << pixel;
          ++met;
        } else {
          EXPECT_EQ(results[i], expected[i]) << hwy::TargetName(target) << ", " << NameOf(c) << ", element " << i;
        }
      }
      EXPECT_GT(met, 8);
    });
    EXPECT_GE(targets, 2) << "nothing was compared";
  }
}

// An output that no tap reaches is the bias alone, which needs no product.
TEST(ChannelsLastVolumes, OutputsWithoutTapsDoNotFit) {
  const Case c = {true, 1, 20, 20, 1, {1, 6, 6}, {1, 2, 2}, {1, 3, 3}, {}, {1, 1, 1}, {}};
  float number = 0;
  const TensorRef input = Behind(&number, 1, 20, c.in);
  EXPECT_FALSE(ChannelsLastConv::Fits(c.shape(), input, Behind(&number, 1, 20, c.out())));
  ConvShape far = c.shape();
  for (int d : {1, 2}) {
    far.dims[d].stride = int64_t{1} << 40;  // which would be as many phases
    far.dims[d].out = int64_t{1} << 41;
  }
  EXPECT_FALSE(ChannelsLastConv::ReachesAll(far));
}

// Planes whose rows, and whose pictures, do not lie in a line.
TEST(PictureLayoutTest, TurnsVolumesOfAnyStrides) {
  constexpr int64_t kBatch = 2;
  constexpr int64_t kChannels = 70;
  const Three sizes = {3, 4, 5};
  const int64_t count = kBatch * kChannels * Product(sizes);
  for (const Three& gaps : {Three{0, 0, 0}, Three{0, 0, 3}, Three{0, 2, 0}, Three{5, 0, 0}, Three{1, 2, 3}}) {
    std::vector<float> memory(8000, -1.0f);
    std::vector<float> back(memory);
    TensorRef planes = MakeContiguous(memory.data(), DType::kFloat, {kBatch, kChannels, sizes[0], sizes[1], sizes[2]});
    planes.strides[3] = sizes[2] + gaps[2];
    planes.strides[2] = planes.strides[3] * sizes[1] + gaps[1];
    planes.strides[1] = planes.strides[2] * sizes[0] + gaps[0];
    planes.strides[0] = planes.strides[1] * kChannels;
    memory.resize(static_cast<size_t>(planes.strides[0] * kBatch), -1.0f);
    back.assign(memory.size(), -1.0f);
    planes.data = memory.data();
    std::vector<float> expected(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t c = i % kChannels;
      const int64_t pixel = i / kChannels;
      const int64_t at = pixel / Product(sizes) * planes.strides[0] + c * planes.strides[1] +
                         pixel / sizes[2] / sizes[1] % sizes[0] * planes.strides[2] +
                         pixel / sizes[2] % sizes[1] * planes.strides[3] + pixel % sizes[2];
      memory[static_cast<size_t>(at)] = expected[static_cast<size_t>(i)] = static_cast<float>(i);
    }
    std::vector<float> pixels(expected.size());
    for (int64_t unit = PictureUnits(planes) - 1; unit >= 0; --unit) {
      PixelsOfPlanes(planes, pixels.data(), {unit, unit + 1});
    }
    EXPECT_EQ(pixels, expected);
    TensorRef result = planes;
    result.data = back.data();
    for (int64_t unit = 0; unit < PictureUnits(result); ++unit) {
      PlanesOfPixels(pixels.data(), result, {unit, unit + 1});
    }
    EXPECT_EQ(back, memory) << "what lies between is left as it was";
  }
}

}  // namespace
}  // namespace reprise::kernels
