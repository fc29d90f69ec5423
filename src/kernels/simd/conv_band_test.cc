// SPDX-License-Identifier: Apache-2.0
//
// Convolutions row by row, held against the same ones one after the other, on every instruction set of the machine.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/conv_band.h"
#include "kernels/simd/activation_rows.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels {
namespace {

using simd::testing::ForEachTarget;

struct Layer {
  int64_t outputs, kernel, stride, pad, dilation;
  bool is_depthwise = false;
  bool is_flat = false;  ///< takes the picture as one row
};

std::vector<float> Numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761U + 1;
  for (float& number : numbers) {
    state = state * 1664525U + 1013904223U;
    number = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * 0x1p-23F;
  }
  return numbers;
}

TensorRef Behind(float* data, const ConvShape& shape, bool is_input) {
  const int64_t channels = shape.groups * (is_input ? shape.in_channels : shape.out_channels);
  const int64_t height = is_input ? shape.dims[1].in : shape.dims[1].out;
  const int64_t width = is_input ? shape.dims[2].in : shape.dims[2].out;
  TensorRef ref = MakeContiguous(data, DType::kFloat, {shape.batch, channels, 1, height, width});
  ref.strides[1] = 1;
  ref.strides[4] = channels;
  ref.strides[3] = width * channels;
  ref.strides[0] = ref.strides[2] = height * width * channels;
  return ref;
}

// Layers one after the other, with their weights, and a sum with another tensor behind the last one.
class Network {
 public:
  Network(int64_t batch, int64_t channels, int64_t height, int64_t width, const std::vector<Layer>& layers,
          bool has_addend) {
    input_ = Numbers(batch * channels * height * width, 7);
    for (const Layer& layer : layers) {
      ConvShape shape;
      shape.batch = batch;
      shape.groups = layer.is_depthwise ? channels : 1;
      shape.in_channels = channels / shape.groups;
      shape.out_channels = layer.outputs / shape.groups;
      const auto out = [&](int64_t in) {
        return (in + 2 * layer.pad - layer.dilation * (layer.kernel - 1) - 1) / layer.stride + 1;
      };
      shape.dims[1] = {height, out(height), layer.kernel, layer.stride, layer.pad, layer.dilation};
      shape.dims[2] = {width, out(width), layer.kernel, layer.stride, layer.pad, layer.dilation};
      channels = layer.outputs;
      height = shape.dims[1].out;
      width = shape.dims[2].out;
      if (layer.is_flat) {
        shape.dims[1] = {1, 1, 1, 1, 0, 1};
        shape.dims[2] = {height * width, height * width, 1, 1, 0, 1};
      }
      Add(shape);
    }
    if (has_addend) addend_ = Numbers(batch * channels * height * width, 9);
  }

  const ConvBand::Convs& convs() const { return convs_; }

  // One after the other.
  std::vector<float> Expected() {
    std::vector<float> from = input_;
    for (size_t i = 0; i < convs_.size(); ++i) {
      const ConvShape& shape = convs_[i]->shape();
      std::vector<float> to = Room(i);
      std::vector<double> scratch(static_cast<size_t>(convs_[i]->ScratchBytes() / 8 + 16));
      const TensorRef input = Behind(from.data(), shape, true);
      const std::vector<float> source = SourceOf(i, input);
      const TensorRef out = Behind(to.data(), shape, false);
      const TensorRef bias = BiasOf(i);
      const TensorRef addend = Behind(addend_.data(), shape, false);
      const bool adds = i + 1 == convs_.size() && !addend_.empty();
      convs_[i]->Convolve(input, source.empty() ? nullptr : source.data(), packed_[i].data(), &bias,
                          adds ? &addend : nullptr, out, {0, convs_[i]->units()}, scratch.data());
      from = std::move(to);
    }
    return from;
  }

  // Band by band, the last one first; NaN wherever nobody has written yet.
  std::vector<float> ByBands(const ConvBand& band) {
    const size_t last = convs_.size() - 1;
    std::vector<float> to = Room(last);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> scratch(static_cast<size_t>(band.ScratchBytes() / 4), nan);
    std::vector<TensorRef> biases;
    for (size_t i = 0; i <= last; ++i) biases.push_back(BiasOf(i));
    const TensorRef addend = Behind(addend_.data(), convs_[last]->shape(), false);
    std::vector<ChannelsLastConv::RowOperands> operands(convs_.size());
    operands[0].input = Behind(input_.data(), convs_[0]->shape(), true);
    const std::vector<float> source = SourceOf(0, operands[0].input);
    if (!source.empty()) operands[0].source = source.data();
    for (size_t i = 0; i <= last; ++i) {
      operands[i].packed = packed_[i].data();
      operands[i].bias = &biases[i];
    }
    if (!addend_.empty()) operands[last].addend = &addend;
    const TensorRef out = Behind(to.data(), convs_[last]->shape(), false);
    for (int64_t unit = band.units() - 1; unit >= 0; --unit) {
      std::fill(scratch.begin(), scratch.end(), nan);
      band.Run(operands, out, {unit, unit + 1}, scratch.data());
    }
    return to;
  }

 private:
  void Add(const ConvShape& shape) {
    ConvEpilogue epilogue;
    switch (convs_.size() % 3) {
      case 0: epilogue = {ConvActivation::kClamp, 0, 1}; break;
      case 1: epilogue.activation = ConvActivation::kRelu; break;
      default: epilogue.activation = ConvActivation::kSwish;
    }
    const auto seed = static_cast<uint32_t>(convs_.size());
    float* const nothing = nullptr;
    convs_.push_back(std::make_shared<const ChannelsLastConv>(shape, Behind(nothing, shape, true),
                                                              Behind(nothing, shape, false), epilogue, true));
    const ChannelsLastConv& conv = *convs_.back();
    const int64_t outputs = shape.groups * shape.out_channels;
    std::vector<float> weights = Numbers(outputs * shape.in_channels * KernelSize(shape), seed + 20);
    const TensorRef weight = MakeContiguous(
        weights.data(), DType::kFloat, {outputs, shape.in_channels, 1, shape.dims[1].kernel, shape.dims[2].kernel});
    std::vector<double> scratch(static_cast<size_t>(conv.PackScratchBytes() / 8 + 16));
    packed_.emplace_back(static_cast<size_t>(conv.packed_elements()));
    conv.Pack(weight, packed_.back().data(), {0, conv.pack_units()}, scratch.data());
    biases_.push_back(Numbers(outputs, seed + 40));
  }

  std::vector<float> Room(size_t i) const {
    const ConvShape& shape = convs_[i]->shape();
    const int64_t count = shape.batch * shape.groups * shape.out_channels * shape.dims[1].out * shape.dims[2].out;
    return std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<float> SourceOf(size_t i, const TensorRef& input) const {
    std::vector<float> source(static_cast<size_t>(convs_[i]->source_elements()));
    if (!source.empty()) convs_[i]->Prepare(input, source.data(), {0, convs_[i]->prepare_units()});
    return source;
  }
  TensorRef BiasOf(size_t i) {
    return MakeContiguous(biases_[i].data(), DType::kFloat, {static_cast<int64_t>(biases_[i].size())});
  }

  ConvBand::Convs convs_;
  std::vector<std::vector<float>> packed_, biases_;
  std::vector<float> input_, addend_;
};

Layer Depthwise(int64_t channels, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation = 1) {
  return {channels, kernel, stride, pad, dilation, true};
}
Layer Point(int64_t outputs, int64_t stride = 1) { return {outputs, 1, stride, 0, 1}; }
Layer Flat(int64_t outputs) { return {outputs, 1, 1, 0, 1, false, true}; }

TEST(ConvBandSimd, GivesTheBitsOfItsConvolutions) {
  const struct {
    int64_t batch, channels, height, width;
    std::vector<Layer> layers;
    bool has_addend;
  } cases[] = {
      {1, 9, 83, 51, {Point(72), Depthwise(72, 3, 1, 1), Point(9)}, true},
      {1, 7, 91, 50, {Point(65), Depthwise(65, 5, 2, 2)}, false},
      {2, 5, 122, 99, {Point(50), Depthwise(50, 3, 2, 0), Point(18, 2)}, false},
      {1, 3, 165, 119, {{64, 3, 2, 1, 1}, Depthwise(64, 3, 1, 1), Point(16)}, true},
      {1, 33, 120, 75, {Depthwise(33, 3, 1, 1), Point(20)}, false},
      {3, 8, 56, 41, {Point(40), {12, 3, 1, 2, 2}}, true},
      {1, 50, 97, 60, {Depthwise(50, 3, 1, 3, 3), Point(48), Depthwise(48, 7, 1, 3), Point(17)}, false},
      {1, 9, 83, 51, {Flat(72), Depthwise(72, 3, 1, 1), Flat(9)}, true},
      {3, 8, 56, 41, {Flat(40), {12, 3, 1, 2, 2}}, false},
      {2, 40, 75, 57, {Depthwise(40, 5, 1, 2), Flat(32), Flat(17)}, true},
      {1, 4, 200, 130, {Point(33), {96, 3, 3, 0, 1}, Point(40)}, false},
  };
  ForEachTarget([&](int64_t) {
    for (const auto& each : cases) {
      Network network(each.batch, each.channels, each.height, each.width, each.layers, each.has_addend);
      const std::vector<float> expected = network.Expected();
      for (const int64_t threads : {1, 2, 3}) {
        const std::shared_ptr<const ConvBand> band = ConvBand::Of(network.convs(), threads);
        ASSERT_TRUE(band != nullptr || threads > 1) << each.channels << " channels";
        if (band == nullptr) continue;  // bands would share too many rows
        const std::vector<float> found = network.ByBands(*band);
        ASSERT_EQ(found.size(), expected.size());
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
            << each.layers.size() << " layers, " << each.channels << " channels, " << threads << " threads";
      }
    }
  });
}

TEST(ConvBandSimd, IsThereOnlyWhereItPays) {
  const auto of = [](int64_t height, const std::vector<Layer>& layers, int64_t threads) {
    return ConvBand::Of(Network(1, 16, height, 112, layers, false).convs(), threads);
  };
  const std::vector<Layer> layers = {Point(96), Depthwise(96, 3, 1, 1), Point(24)};
  EXPECT_NE(of(112, layers, 2), nullptr);
  EXPECT_EQ(of(20, layers, 2), nullptr) << "what is between stays in the caches";
  EXPECT_EQ(of(112, layers, 64), nullptr) << "most rows would be computed twice";
  EXPECT_EQ(of(112, {Point(96)}, 2), nullptr) << "one convolution";
  EXPECT_EQ(of(112, {Flat(96), Flat(24)}, 2), nullptr) << "nobody tells how long a row is";
  EXPECT_EQ(of(112, {Point(96), {96, 3, 1, 1, 1}}, 2), nullptr) << "computed by patches, and many weights";
}

}  // namespace
}  // namespace reprise::kernels
