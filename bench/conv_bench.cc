// SPDX-License-Identifier: Apache-2.0
//
// What the convolutions of ResNet-50 cost in CPU time, one picture, one thread: with channels in front, weights packed
// with each run and weights read where they lie; with channels behind, weights packed once. In turn in one process;
// medians. The first line is a product that lies in the first-level cache, as a bound.
//
//     build/release/bin/conv_bench [rounds]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/channels_last_conv.h"
#include "kernels/simd/channels_last.h"

namespace {

using namespace reprise::kernels;

struct Layer {
  int64_t in, size, out, kernel, stride, pad, count;  // `count`: so many of them in the network
};

constexpr Layer kLayers[] = {
    {3, 224, 64, 7, 2, 3, 1},   {64, 56, 64, 1, 1, 0, 1},    {64, 56, 64, 3, 1, 1, 3},    {64, 56, 256, 1, 1, 0, 4},
    {256, 56, 64, 1, 1, 0, 2},  {256, 56, 128, 1, 1, 0, 1},  {128, 56, 128, 3, 2, 1, 1},  {256, 56, 512, 1, 2, 0, 1},
    {128, 28, 512, 1, 1, 0, 4}, {512, 28, 128, 1, 1, 0, 3},  {128, 28, 128, 3, 1, 1, 3},  {512, 28, 256, 1, 1, 0, 1},
    {256, 28, 256, 3, 2, 1, 1}, {512, 28, 1024, 1, 2, 0, 1}, {256, 14, 1024, 1, 1, 0, 6}, {1024, 14, 256, 1, 1, 0, 5},
    {256, 14, 256, 3, 1, 1, 5}, {1024, 14, 512, 1, 1, 0, 1}, {512, 14, 512, 3, 2, 1, 1},  {1024, 14, 2048, 1, 2, 0, 1},
    {512, 7, 2048, 1, 1, 0, 3}, {2048, 7, 512, 1, 1, 0, 2},  {512, 7, 512, 3, 1, 1, 2},
};

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

void PrintBound(int rounds) {
  constexpr int64_t kDepth = 128;
  constexpr int kTimes = 2000;
  std::vector<float> rows(6 * kDepth, 0.5f);
  std::vector<float> panel(32 * kDepth, 0.25f);
  std::vector<float> out(6 * 32);
  const float* pointers[6];
  for (int i = 0; i < 6; ++i) pointers[i] = rows.data() + i * kDepth;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double begin = Now();
    for (int i = 0; i < kTimes; ++i) {
      simd::MultiplyPixels({pointers, 6, 6, 1, 0, kDepth, panel.data(), 16, out.data(), 32, false, true, {}});
    }
    times.push_back(Now() - begin);
  }
  std::printf("product in the first-level cache: %.1f Gflop/s\n", 2e-9 * 6 * 16 * kDepth * kTimes / Median(times));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  PrintBound(rounds);
  std::printf("%-28s %10s %10s %10s %10s\n", "layer", "packed ms", "in place", "behind", "Gflop/s");
  std::array<double, 3> sums{};
  double operations = 0;
  for (const Layer& layer : kLayers) {
    const std::vector<double> seconds = Seconds(layer, rounds);
    const int64_t size = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
    const double work = 2e-9 * static_cast<double>(layer.out * size * size * layer.in * layer.kernel * layer.kernel);
    char name[64];
    std::snprintf(name, sizeof name, "%d x %d to %d, %dx%d/%d at %d", static_cast<int>(layer.count),
                  static_cast<int>(layer.in), static_cast<int>(layer.out), static_cast<int>(layer.kernel),
                  static_cast<int>(layer.kernel), static_cast<int>(layer.stride), static_cast<int>(layer.size));
    std::printf("%-28s %10.2f %10.2f %10.2f %10.1f\n", name, seconds[0] * 1e3, seconds[1] * 1e3, seconds[2] * 1e3,
                work / seconds[2]);
    for (size_t i = 0; i < 3; ++i) sums[i] += seconds[i] * static_cast<double>(layer.count);
    operations += work * static_cast<double>(layer.count);
  }
  std::printf("%-28s %10.1f %10.1f %10.1f %10.1f\n", "all of the network", sums[0] * 1e3, sums[1] * 1e3, sums[2] * 1e3,
              operations / sums[2]);
}
