// SPDX-License-Identifier: Apache-2.0
//
// What the convolutions of ResNet-50 and MobileNetV2 cost in CPU time, one picture, one thread.
//
// The first line has two bounds: multiply-adds of operands that stay in registers, and a tile of the product that lies
// in the first-level cache. Then each network with channels behind: layers in turn, as a step of the network runs them,
// and each of them again and again. Then the layers of ResNet-50 three ways: with channels in front, weights packed
// with each run and weights read where they lie; with channels behind, weights packed once. Medians.
//
//     build/release/bin/conv_bench [rounds [networks]]    # a second argument: without the three ways
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/channels_last_conv.h"
#include "kernels/simd/channels_last.h"
#include "kernels/simd/matmul_tile.h"
#include "multiply_adds.h"

namespace {

using namespace reprise::kernels;

struct Layer {
  int64_t in, size, out, kernel, stride, pad, count;  // `count`: so many of them in the network
  int64_t groups = 1;
};

constexpr Layer kLayers[] = {
    {3, 224, 64, 7, 2, 3, 1},   {64, 56, 64, 1, 1, 0, 1},    {64, 56, 64, 3, 1, 1, 3},    {64, 56, 256, 1, 1, 0, 4},
    {256, 56, 64, 1, 1, 0, 2},  {256, 56, 128, 1, 1, 0, 1},  {128, 56, 128, 3, 2, 1, 1},  {256, 56, 512, 1, 2, 0, 1},
    {128, 28, 512, 1, 1, 0, 4}, {512, 28, 128, 1, 1, 0, 3},  {128, 28, 128, 3, 1, 1, 3},  {512, 28, 256, 1, 1, 0, 1},
    {256, 28, 256, 3, 2, 1, 1}, {512, 28, 1024, 1, 2, 0, 1}, {256, 14, 1024, 1, 1, 0, 6}, {1024, 14, 256, 1, 1, 0, 5},
    {256, 14, 256, 3, 1, 1, 5}, {1024, 14, 512, 1, 1, 0, 1}, {512, 14, 512, 3, 2, 1, 1},  {1024, 14, 2048, 1, 2, 0, 1},
    {512, 7, 2048, 1, 1, 0, 3}, {2048, 7, 512, 1, 1, 0, 2},  {512, 7, 512, 3, 1, 1, 2},
};

// Of MobileNetV2; 112 pixels a row at first.
constexpr Layer kSmallLayers[] = {
    {3, 224, 32, 3, 2, 1, 1},        {32, 112, 32, 3, 1, 1, 1, 32},   {32, 112, 16, 1, 1, 0, 1},
    {16, 112, 96, 1, 1, 0, 1},       {96, 112, 96, 3, 2, 1, 1, 96},   {96, 56, 24, 1, 1, 0, 1},
    {24, 56, 144, 1, 1, 0, 2},       {144, 56, 144, 3, 1, 1, 1, 144}, {144, 56, 24, 1, 1, 0, 1},
    {144, 56, 144, 3, 2, 1, 1, 144}, {144, 28, 32, 1, 1, 0, 1},       {32, 28, 192, 1, 1, 0, 3},
    {192, 28, 192, 3, 1, 1, 2, 192}, {192, 28, 32, 1, 1, 0, 2},       {192, 28, 192, 3, 2, 1, 1, 192},
    {192, 14, 64, 1, 1, 0, 1},       {64, 14, 384, 1, 1, 0, 4},       {384, 14, 384, 3, 1, 1, 4, 384},
    {384, 14, 64, 1, 1, 0, 3},       {384, 14, 96, 1, 1, 0, 1},       {96, 14, 576, 1, 1, 0, 3},
    {576, 14, 576, 3, 1, 1, 2, 576}, {576, 14, 96, 1, 1, 0, 2},       {576, 14, 576, 3, 2, 1, 1, 576},
    {576, 7, 160, 1, 1, 0, 1},       {160, 7, 960, 1, 1, 0, 3},       {960, 7, 960, 3, 1, 1, 3, 960},
    {960, 7, 160, 1, 1, 0, 2},       {960, 7, 320, 1, 1, 0, 1},       {320, 7, 1280, 1, 1, 0, 1},
};
constexpr int kPixelsOfTile = 12;

double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Buffers {
  std::vector<float> input, weight, out, source, packed;
  std::vector<double> scratch;
};

// Where channels lie back to back.
TensorRef Turned(TensorRef ref) {
  const int64_t c = ref.sizes[1];
  ref.strides[1] = 1;
  ref.strides[4] = c;
  ref.strides[3] = c * ref.sizes[4];
  ref.strides[0] = ref.strides[2] = ref.strides[3] * ref.sizes[3];
  return ref;
}

template <class Setup>
void Reserve(const Setup& setup, Buffers& buffers) {
  buffers.source.resize(static_cast<size_t>(setup.source_elements()));
  buffers.packed.resize(static_cast<size_t>(setup.packed_elements()));
  buffers.scratch.resize(static_cast<size_t>(std::max(setup.ScratchBytes(), setup.PackScratchBytes()) / 8 + 16));
}

std::vector<double> Seconds(const Layer& layer, int rounds) {
  const int64_t size = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
  Buffers buffers;
  buffers.input.assign(static_cast<size_t>(layer.in * layer.size * layer.size), 0.5f);
  buffers.weight.assign(static_cast<size_t>(layer.out * layer.in * layer.kernel * layer.kernel), 0.25f);
  buffers.out.resize(static_cast<size_t>(layer.out * size * size));
  ConvShape shape;
  shape.in_channels = layer.in;
  shape.out_channels = layer.out;
  shape.dims[1] = shape.dims[2] = {layer.size, size, layer.kernel, layer.stride, layer.pad, 1};
  const TensorRef input = MakeContiguous(buffers.input.data(), DType::kFloat, {1, layer.in, 1, layer.size, layer.size});
  const TensorRef out = MakeContiguous(buffers.out.data(), DType::kFloat, {1, layer.out, 1, size, size});
  const TensorRef weight =
      MakeContiguous(buffers.weight.data(), DType::kFloat, {layer.out, layer.in, 1, layer.kernel, layer.kernel});
  std::array<std::vector<double>, 3> times;
  for (int round = 0; round < rounds; ++round) {
    for (size_t way = 0; way < 2; ++way) {
      ConvShape flat = shape;
      TensorRef x = input;
      TensorRef y = out;
      ConvSetup::Simplify(flat, x, y);
      const ConvSetup setup(flat, x, way == 0 ? nullptr : &weight);
      Reserve(setup, buffers);
      const bool copies = setup.source_elements() != 0;
      const double begin = Now();
      if (copies) setup.Prepare(x, buffers.source.data(), {0, setup.prepare_units()});
      if (way == 0) setup.Pack(weight, buffers.packed.data(), {0, setup.pack_units()}, buffers.scratch.data());
      setup.Convolve(x, copies ? buffers.source.data() : nullptr,
                     way == 0 ? buffers.packed.data() : buffers.weight.data(), nullptr, y, {0, setup.units()},
                     buffers.scratch.data());
      times[way].push_back(Now() - begin);
    }
    const TensorRef x = Turned(input);
    const ChannelsLastConv conv(shape, x, Turned(out), {});
    Reserve(conv, buffers);
    const bool copies = conv.source_elements() != 0;
    conv.Pack(weight, buffers.packed.data(), {0, conv.pack_units()}, buffers.scratch.data());
    const double begin = Now();
    if (copies) conv.Prepare(x, buffers.source.data(), {0, conv.prepare_units()});
    conv.Convolve(x, copies ? buffers.source.data() : nullptr, buffers.packed.data(), nullptr, nullptr, Turned(out),
                  {0, conv.units()}, buffers.scratch.data());
    times[2].push_back(Now() - begin);
  }
  return {Median(times[0]), Median(times[1]), Median(times[2])};
}

// One layer with channels behind, its weight packed.
class BehindLayer {
 public:
  /// \param images  where it reads and writes: the images of two layers, which all share
  BehindLayer(const Layer& layer, std::vector<float> (&images)[2])
      : layer_(layer), size_((layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1) {
    const int64_t inner = layer.in / layer.groups;
    std::vector<float> weight(static_cast<size_t>(layer.out * inner * layer.kernel * layer.kernel), 0.25f);
    ConvShape shape;
    shape.groups = layer.groups;
    shape.in_channels = inner;
    shape.out_channels = layer.out / layer.groups;
    shape.dims[1] = shape.dims[2] = {layer.size, size_, layer.kernel, layer.stride, layer.pad, 1};
    input_ = Turned(MakeContiguous(images[0].data(), DType::kFloat, {1, layer.in, 1, layer.size, layer.size}));
    out_ = Turned(MakeContiguous(images[1].data(), DType::kFloat, {1, layer.out, 1, size_, size_}));
    conv_ = std::make_unique<ChannelsLastConv>(shape, input_, out_, ConvEpilogue{ConvActivation::kClamp, 0, 6}, true);
    Reserve(*conv_, buffers_);
    conv_->Pack(MakeContiguous(weight.data(), DType::kFloat, {layer.out, inner, 1, layer.kernel, layer.kernel}),
                buffers_.packed.data(), {0, conv_->pack_units()}, buffers_.scratch.data());
  }

  double Run() {
    const bool copies = conv_->source_elements() != 0;
    const double begin = Now();
    if (copies) conv_->Prepare(input_, buffers_.source.data(), {0, conv_->prepare_units()});
    conv_->Convolve(input_, copies ? buffers_.source.data() : nullptr, buffers_.packed.data(), nullptr, nullptr, out_,
                    {0, conv_->units()}, buffers_.scratch.data());
    return Now() - begin;
  }

  double gigaflops() const {
    return 2e-9 *
           static_cast<double>(layer_.out * size_ * size_ * layer_.in / layer_.groups * layer_.kernel * layer_.kernel);
  }
  int64_t units() const { return conv_->units(); }

 private:
  Layer layer_;
  int64_t size_;
  Buffers buffers_;
  TensorRef input_, out_;
  std::unique_ptr<ChannelsLastConv> conv_;
};

std::string NameOf(const Layer& layer) {
  char name[64];
  std::snprintf(name, sizeof name, "%d x %d to %d, %dx%d/%d%s at %d", static_cast<int>(layer.count),
                static_cast<int>(layer.in), static_cast<int>(layer.out), static_cast<int>(layer.kernel),
                static_cast<int>(layer.kernel), static_cast<int>(layer.stride), layer.groups > 1 ? " each" : "",
                static_cast<int>(layer.size));
  return name;
}

// Layers of a network one after the other, as a step of it runs them: a layer finds its weight where the step before
// left it, mostly in memory. `hot`: the layer again at once.
void PrintNetwork(const char* name, std::span<const Layer> layers, int rounds, double peak) {
  constexpr size_t kMostElements = size_t{1} << 21;  // of an image
  std::vector<float> images[2] = {std::vector<float>(kMostElements, 0.5f), std::vector<float>(kMostElements)};
  std::vector<BehindLayer> all;
  std::vector<size_t> kinds;
  for (size_t kind = 0; kind < layers.size(); ++kind) {
    for (int64_t i = 0; i < layers[kind].count; ++i) {
      all.emplace_back(layers[kind], images);
      kinds.push_back(kind);
    }
  }
  std::vector<std::vector<double>> cold(layers.size()), hot(layers.size());
  std::vector<double> whole;
  for (int round = 0; round < rounds; ++round) {
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const double seconds = all[i].Run();
      sum += seconds;
      cold[kinds[i]].push_back(seconds);
    }
    whole.push_back(sum);
  }
  double operations = 0;
  double hot_sum = 0;
  std::printf("%-30s %10s %10s %10s %10s %6s\n", name, "in turn ms", "Gflop/s", "hot ms", "Gflop/s", "units");
  for (size_t kind = 0, first = 0; kind < layers.size(); first += static_cast<size_t>(layers[kind++].count)) {
    for (int round = 0; round < rounds; ++round) hot[kind].push_back(all[first].Run());
    const double work = all[first].gigaflops();
    std::printf("%-30s %10.3f %10.1f %10.3f %10.1f %6d\n", NameOf(layers[kind]).c_str(), Median(cold[kind]) * 1e3,
                work / Median(cold[kind]), Median(hot[kind]) * 1e3, work / Median(hot[kind]),
                static_cast<int>(all[first].units()));
    operations += work * static_cast<double>(layers[kind].count);
    hot_sum += Median(hot[kind]) * static_cast<double>(layers[kind].count);
  }
  std::printf("%-30s %10.2f %10.1f %10.2f %10.1f   %.2f of the peak\n", "all", Median(whole) * 1e3,
              operations / Median(whole), hot_sum * 1e3, operations / hot_sum, operations / Median(whole) / peak);
}

double PeakGigaflops(int rounds) {
  constexpr int64_t kTimes = 1 << 19;
  std::vector<double> times;
  double count = 0;
  for (int round = 0; round < rounds; ++round) {
    const double begin = Now();
    count = static_cast<double>(bench::MultiplyAddsInRegisters(kTimes));
    times.push_back(Now() - begin);
  }
  return 2e-9 * count / Median(times);
}

// A tile of the product, all of whose operands lie in the first-level cache.
void PrintTile(int rounds, double peak) {
  constexpr int64_t kDepth = 128;
  constexpr int kTimes = 2000;
  const int64_t width = simd::PanelWidth(float());
  std::vector<float> rows(kPixelsOfTile * kDepth, 0.5f);
  std::vector<float> panel(static_cast<size_t>(width * kDepth), 0.25f);
  std::vector<float> out(static_cast<size_t>(kPixelsOfTile * width));
  const float* pointers[kPixelsOfTile];
  for (int i = 0; i < kPixelsOfTile; ++i) pointers[i] = rows.data() + i * kDepth;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double begin = Now();
    for (int i = 0; i < kTimes; ++i) {
      simd::MultiplyPixels({pointers,
                            kPixelsOfTile,
                            kPixelsOfTile,
                            1,
                            0,
                            kDepth,
                            panel.data(),
                            nullptr,
                            width,
                            out.data(),
                            width,
                            false,
                            true,
                            {}});
    }
    times.push_back(Now() - begin);
  }
  const double work = 2e-9 * static_cast<double>(kPixelsOfTile * width * kDepth * kTimes);
  std::printf("multiply-adds in registers: %.1f Gflop/s; a product in the first-level cache: %.1f\n", peak,
              work / Median(times));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const double peak = PeakGigaflops(rounds);
  PrintTile(rounds, peak);
  PrintNetwork("ResNet-50", kLayers, rounds, peak);
  PrintNetwork("MobileNetV2", kSmallLayers, rounds, peak);
  if (argc > 2) return 0;
  std::printf("%-28s %10s %10s %10s %10s\n", "layer", "packed ms", "in place", "behind", "Gflop/s");
  std::array<double, 3> sums{};
  double operations = 0;
  for (const Layer& layer : kLayers) {
    const std::vector<double> seconds = Seconds(layer, rounds);
    const int64_t size = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
    const double work = 2e-9 * static_cast<double>(layer.out * size * size * layer.in * layer.kernel * layer.kernel);
    std::printf("%-28s %10.2f %10.2f %10.2f %10.1f\n", NameOf(layer).c_str(), seconds[0] * 1e3, seconds[1] * 1e3,
                seconds[2] * 1e3, work / seconds[2]);
    for (size_t i = 0; i < 3; ++i) sums[i] += seconds[i] * static_cast<double>(layer.count);
    operations += work * static_cast<double>(layer.count);
  }
  std::printf("%-28s %10.1f %10.1f %10.1f %10.1f\n", "all of the network", sums[0] * 1e3, sums[1] * 1e3, sums[2] * 1e3,
              operations / sums[2]);
}
