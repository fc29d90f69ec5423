// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_gradients.h"

#include <algorithm>
#include <cmath>

#include "kernels/plane.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

// ---- Convolutions ----

// The sum of left[i] right[i * stride]; eight partial sums.
template <class T>
T StridedDot(const T* left, const T* right, int64_t stride, int64_t n) {
  T sums[8] = {};
  int64_t i = 0;
  if (stride == 1) {
    for (; i + 8 <= n; i += 8) {
      for (int64_t k = 0; k < 8; ++k) sums[k] += left[i + k] * right[i + k];
    }
  } else {
    for (; i + 8 <= n; i += 8) {
      for (int64_t k = 0; k < 8; ++k) sums[k] += left[i + k] * right[(i + k) * stride];
    }
  }
  for (; i < n; ++i) sums[i % 8] += left[i] * right[i * stride];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Adds the products of a row of left with one of right to the `kernel` sums of a row of the weight.
template <class T>
void AddRowProducts(const ConvDim& dim, const T* left, const T* right, double* sums) {
  for (int64_t k = 0; k < dim.kernel; ++k) {
    const int64_t shift = k * dim.dilation - dim.pad;  // right = left * stride + shift
    const int64_t first = shift >= 0 ? 0 : (-shift + dim.stride - 1) / dim.stride;
    const int64_t room = dim.in - 1 - shift;
    const int64_t end = room < 0 ? 0 : std::min(dim.out, room / dim.stride + 1);
    if (first >= end) continue;
    sums[k] +=
        static_cast<double>(StridedDot(left + first, right + first * dim.stride + shift, dim.stride, end - first));
  }
}

template <class T>
void WeightGradientOf(const ConvGradientShape& shape, const TensorRef& left, const TensorRef& right,
                      const TensorRef& out, Range units, double* sums) {
  const ConvDim& deep = shape.dims[0];
  const ConvDim& high = shape.dims[1];
  const ConvDim& wide = shape.dims[2];
  const int64_t volume = deep.kernel * high.kernel * wide.kernel;
  const int64_t inner = out.sizes[1];
  const int64_t of_group = out.sizes[0] / shape.groups;
  const auto row_of = [](const TensorRef& ref, int64_t n, int64_t c, int64_t d, int64_t h) {
    return static_cast<const T*>(ref.data) + n * ref.strides[0] + c * ref.strides[1] + d * ref.strides[2] +
           h * ref.strides[3];
  };
  const CastFn store = FindCast(DType::kDouble, out.dtype);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t a = unit / inner;
    const int64_t b = a / of_group * inner + unit % inner;
    std::fill_n(sums, volume, 0.0);
    for (int64_t n = 0; n < left.sizes[0]; ++n) {
      for (int64_t place = 0; place < deep.out * high.out; ++place) {
        const int64_t i = place / high.out;
        const int64_t j = place % high.out;
        const T* row = row_of(left, n, a, i, j);
        for (int64_t k = 0; k < deep.kernel * high.kernel; ++k) {
          const int64_t d = i * deep.stride - deep.pad + k / high.kernel * deep.dilation;
          const int64_t h = j * high.stride - high.pad + k % high.kernel * high.dilation;
          if (d < 0 || d >= deep.in || h < 0 || h >= high.in) continue;
          AddRowProducts(wide, row, row_of(right, n, b, d, h), sums + k * wide.kernel);
        }
      }
    }
    for (int64_t k = 0; k < volume; ++k) {
      const int64_t offset = a * out.strides[0] + unit % inner * out.strides[1] +
                             k / wide.kernel / high.kernel * out.strides[2] +
                             k / wide.kernel % high.kernel * out.strides[3] + k % wide.kernel * out.strides[4];
      store(reinterpret_cast<const char*>(sums + k), 0, ElementAt(out, offset), 0, 1);
    }
  }
}

// ---- Channels ----

constexpr int64_t kBlock = 512;

// Channel c of [N, C, ..].
TensorRef ChannelOf(const TensorRef& ref, int64_t c) {
  TensorRef channel = ref;
  channel.data = ElementAt(ref, c * ref.strides[1]);
  channel.sizes[1] = 1;
  return channel;
}

void StoreAt(const TensorRef& ref, int64_t c, double value) {
  FindCast(DType::kDouble, ref.dtype)(reinterpret_cast<const char*>(&value), 0, ElementAt(ref, c * ref.strides[0]), 0,
                                      1);
}
double LoadAt(const TensorRef& ref, int64_t c) {
  double value;
  FindCast(ref.dtype, DType::kDouble)(ElementAt(ref, c * ref.strides[0]), 0, reinterpret_cast<char*>(&value), 8, 1);
  return value;
}

struct ChannelSums {
  double grad = 0;
  double product = 0;  // grad (x - mean)
};

ChannelSums SumsOf(const Staged<double>& grads, const Staged<double>& xs, double mean, int64_t count) {
  double grad_block[kBlock];
  double x_block[kBlock];
  ChannelSums sums;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const double* g = grads.Read(begin, n, grad_block);
    const double* x = xs.Read(begin, n, x_block);
    for (int64_t i = 0; i < n; ++i) {
      sums.grad += g[i];
      sums.product += g[i] * (x[i] - mean);
    }
  }
  return sums;
}

}  // namespace

void ConvWeightGradient(const ConvGradientShape& shape, const TensorRef& left, const TensorRef& right,
                        const TensorRef& out, Range units, void* scratch) {
  auto* const sums = static_cast<double*>(scratch);
  if (left.dtype == DType::kDouble) return WeightGradientOf<double>(shape, left, right, out, units, sums);
  WeightGradientOf<float>(shape, left, right, out, units, sums);
}

int64_t ConvWeightGradientScratchBytes(const ConvGradientShape& shape) {
  return ScratchCutter::Bytes<double>(shape.dims[0].kernel * shape.dims[1].kernel * shape.dims[2].kernel);
}

void SumOfChannels(const TensorRef& in, const TensorRef& out, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const TensorRef channel = ChannelOf(in, c);
    const Staged<double> values(channel);
    const int64_t count = ElementCount(channel);
    double block[kBlock];
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      const double* x = values.Read(begin, n, block);
      for (int64_t i = 0; i < n; ++i) sum += x[i];
    }
    StoreAt(out, c, sum);
  }
}

void BatchNormBackward(const BatchNormGradient& operands, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const TensorRef grad = ChannelOf(*operands.grad, c);
    const Staged<double> grads(grad);
    const Staged<double> xs(ChannelOf(*operands.x, c));
    const int64_t count = ElementCount(grad);
    const double mean = LoadAt(*operands.mean, c);
    const bool is_constant = operands.variance != nullptr;
    const double invstd =
        is_constant ? 1 / std::sqrt(LoadAt(*operands.variance, c) + operands.eps) : LoadAt(*operands.invstd, c);
    const ChannelSums sums = SumsOf(grads, xs, mean, count);
    if (operands.of_weight != nullptr) StoreAt(*operands.of_weight, c, sums.product * invstd);
    if (operands.of_bias != nullptr) StoreAt(*operands.of_bias, c, sums.grad);
    if (operands.of_x == nullptr) continue;
    const double scale = invstd * (operands.weight == nullptr ? 1.0 : LoadAt(*operands.weight, c));
    const double shift = is_constant ? 0 : sums.grad / static_cast<double>(count);
    const double slope = is_constant ? 0 : sums.product * invstd * invstd / static_cast<double>(count);
    const Staged<double> results(ChannelOf(*operands.of_x, c));
    double grad_block[kBlock];
    double x_block[kBlock];
    double out_block[kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      const double* g = grads.Read(begin, n, grad_block);
      const double* x = xs.Read(begin, n, x_block);
      double* const to = results.Target(begin, out_block);
      for (int64_t i = 0; i < n; ++i) to[i] = (g[i] - shift - (x[i] - mean) * slope) * scale;
      results.Write(begin, n, out_block);
    }
  }
}

}  // namespace reprise::kernels
