// SPDX-License-Identifier: Apache-2.0
//
// The largest of windows against its definition, and cut into ranges.
#include "kernels/pool.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using testing::Pick;
using testing::Rng;

constexpr int64_t kPlanes = 3;

PoolDim DimOf(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return {in, (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1, kernel, stride, pad, pad, dilation, false};
}

template <class T>
struct Pooled {
  std::vector<T> values;
  std::vector<int32_t> indices;
};

// NaN, ties, and what is smaller than all numbers.
template <class T>
T Value(Rng& rng) {
  const int64_t number = Pick(rng, -4, 4);
  if constexpr (std::is_floating_point_v<T>) {
    if (number == 4 && Pick(rng, 0, 3) == 0) return std::numeric_limits<T>::quiet_NaN();
    if (number < -1) return -std::numeric_limits<T>::infinity();
  } else if (number < -1) {
    return std::numeric_limits<T>::min();
  }
  return static_cast<T>(number);
}

template <class T>
Pooled<T> Reference(const PoolShape& shape, const std::vector<T>& in) {
  Pooled<T> out;
  for (int64_t plane = 0; plane < kPlanes; ++plane) {
    for (int64_t oh = 0; oh < shape.h.out; ++oh) {
      for (int64_t ow = 0; ow < shape.w.out; ++ow) {
        int64_t best = -1;
        T most{};
        for (int64_t tap = 0; tap < shape.h.kernel * shape.w.kernel; ++tap) {
          const int64_t ih = oh * shape.h.stride - shape.h.pad + tap / shape.w.kernel * shape.h.dilation;
          const int64_t iw = ow * shape.w.stride - shape.w.pad + tap % shape.w.kernel * shape.w.dilation;
          if (ih < 0 || ih >= shape.h.in || iw < 0 || iw >= shape.w.in) continue;
          const T value = in[static_cast<size_t>((plane * shape.h.in + ih) * shape.w.in + iw)];
          const bool is_nan = value != value;
          if (best >= 0 && !(value > most) && !is_nan) continue;
          best = ih * shape.w.in + iw;
          most = value;
        }
        out.values.push_back(most);
        out.indices.push_back(static_cast<int32_t>(best));
      }
    }
  }
  return out;
}

template <class T>
void Check(DType dtype) {
  Rng rng(31);
  for (int round = 0; round < 200; ++round) {
    const int64_t kernel = Pick(rng, 1, 4);
    const int64_t dilation = Pick(rng, 1, 4) == 1 ? 2 : 1;
    const int64_t pad = Pick(rng, 0, kernel / 2);
    const int64_t least = dilation * (kernel - 1) + 1;
    PoolShape shape;
    shape.h = DimOf(Pick(rng, least, 9), kernel, Pick(rng, 1, 3), pad, dilation);
    shape.w = DimOf(Pick(rng, least, 40), kernel, Pick(rng, 1, 3), pad, dilation);
    std::vector<T> in(static_cast<size_t>(kPlanes * shape.h.in * shape.w.in));
    for (T& value : in) value = Value<T>(rng);
    const Pooled<T> expected = Reference(shape, in);
    Pooled<T> found{std::vector<T>(expected.values.size()), std::vector<int32_t>(expected.indices.size())};
    const int64_t in_sizes[] = {kPlanes, 1, shape.h.in, shape.w.in};
    const int64_t out_sizes[] = {kPlanes, 1, shape.h.out, shape.w.out};
    const TensorRef self = MakeContiguous(in.data(), dtype, 4, in_sizes);
    const TensorRef out = MakeContiguous(found.values.data(), dtype, 4, out_sizes);
    const TensorRef indices = MakeContiguous(found.indices.data(), DType::kInt32, 4, out_sizes);
    const auto bytes = static_cast<size_t>(PoolScratchBytes(shape));
    std::vector<std::max_align_t> scratch(bytes / sizeof(std::max_align_t) + 8);
    void* aligned = scratch.data();
    size_t space = scratch.size() * sizeof(std::max_align_t);
    ASSERT_NE(std::align(64, bytes, aligned, space), nullptr);
    for (int64_t begin = 0; begin < PoolRowCount(out);) {
      const int64_t end = std::min(PoolRowCount(out), begin + Pick(rng, 1, 7));
      MaxPool(shape, self, out, round % 4 == 0 ? nullptr : &indices, nullptr, {begin, end}, aligned);
      begin = end;
    }
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const bool is_nan = expected.values[i] != expected.values[i];
      ASSERT_TRUE(is_nan ? found.values[i] != found.values[i] : found.values[i] == expected.values[i])
          << Name(dtype) << ", round " << round << ", " << i;
      if (round % 4 == 0) continue;
      ASSERT_EQ(found.indices[i], expected.indices[i]) << Name(dtype) << ", round " << round;
    }
  }
}

TEST(MaxPool, IsTheLargestOfEachWindow) {
  Check<float>(DType::kFloat);
  Check<double>(DType::kDouble);
  Check<int64_t>(DType::kInt64);
}

}  // namespace
}  // namespace reprise::kernels
