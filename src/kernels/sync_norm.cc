// SPDX-License-Identifier: Apache-2.0
#include "kernels/sync_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/plane.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;

using Numbers = Staged<double>;

// Channel c of [N, C, ..].
TensorRef OneChannel(const TensorRef& ref, int64_t c) {
  TensorRef channel = ref;
  channel.data = ElementAt(ref, c * ref.strides[1]);
  channel.sizes[1] = 1;
  return channel;
}

double Load(const TensorRef* ref, int64_t index, double missing = 0) {
  if (ref == nullptr) return missing;
  double value;
  FindCast(ref->dtype, DType::kDouble)(ElementAt(*ref, OffsetOf(*ref, ref->rank, index)), 0,
                                       reinterpret_cast<char*>(&value), 8, 1);
  return value;
}

void Store(const TensorRef* ref, int64_t index, double value) {
  if (ref == nullptr) return;
  FindCast(DType::kDouble, ref->dtype)(reinterpret_cast<const char*>(&value), 0,
                                       ElementAt(*ref, OffsetOf(*ref, ref->rank, index)), 0, 1);
}

// Calls fn(x, n) for blocks of a channel; returns its number of elements.
template <class Fn>
int64_t ForEachOf(const TensorRef& channel, Fn&& fn) {
  const Numbers numbers(channel);
  const int64_t count = ElementCount(channel);
  double block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    fn(numbers.Read(begin, n, block), begin, n);
  }
  return count;
}

void MoveRunning(const SyncNormArgs& args, int64_t c, double mean, double var, double count) {
  const auto move = [&](const TensorRef* running, double value) {
    if (running == nullptr) return;
    Store(running, c, Load(running, c) * (1 - args.momentum) + value * args.momentum);
  };
  move(args.running_mean, mean);
  move(args.running_var, count > 1 ? var * count / (count - 1) : var);
}

}  // namespace

void SyncNormSums(const SyncNormArgs& args, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    double sum = 0;
    double squares = 0;
    ForEachOf(OneChannel(*args.x, c), [&](const double* x, int64_t, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
        squares += x[i] * x[i];
      }
    });
    Store(args.sum, c, sum);
    Store(args.product, c, squares);
  }
}

void SyncNormStats(const SyncNormArgs& args, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const TensorRef channel = OneChannel(*args.x, c);
    double mean = 0;
    const auto count = static_cast<double>(ForEachOf(channel, [&](const double* x, int64_t, int64_t n) {
      for (int64_t i = 0; i < n; ++i) mean += x[i];
    }));
    mean /= count;
    double squares = 0;
    ForEachOf(channel, [&](const double* x, int64_t, int64_t n) {
      for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    });
    Store(args.mean, c, mean);
    Store(args.invstd, c, 1 / std::sqrt(squares / count + args.eps));
  }
}

void SyncNormalise(const SyncNormArgs& args, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const double mean = Load(args.mean, c);
    const double scale = Load(args.invstd, c) * Load(args.weight, c, 1);
    const double shift = Load(args.bias, c);
    const Numbers out(OneChannel(*args.out, c));
    ForEachOf(OneChannel(*args.x, c), [&](const double* x, int64_t begin, int64_t n) {
      double block[kBlock];
      double* const to = out.Target(begin, block);
      for (int64_t i = 0; i < n; ++i) to[i] = (x[i] - mean) * scale + shift;
      out.Write(begin, n, block);
    });
  }
}

void SyncNormGradients(const SyncNormArgs& args, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const double mean = Load(args.mean, c);
    const Numbers grads(OneChannel(*args.dy, c));
    double sum = 0;
    double product = 0;
    ForEachOf(OneChannel(*args.x, c), [&](const double* x, int64_t begin, int64_t n) {
      double block[kBlock];
      const double* const dy = grads.Read(begin, n, block);
      for (int64_t i = 0; i < n; ++i) {
        sum += dy[i];
        product += dy[i] * (x[i] - mean);
      }
    });
    Store(args.sum, c, sum);
    Store(args.product, c, product);
    Store(args.of_weight, c, product * Load(args.invstd, c));
    Store(args.of_bias, c, sum);
  }
}

void SyncNormGradientOfX(const SyncNormArgs& args, Range channels) {
  double total = 0;
  const int64_t parts = ElementCount(*args.counts);
  for (int64_t i = 0; i < parts; ++i) total += Load(args.counts, i);
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const double mean = Load(args.mean, c);
    const double invstd = Load(args.invstd, c);
    const double scale = invstd * Load(args.weight, c, 1);
    const double shift = Load(args.sum, c) / total;
    const double slope = Load(args.product, c) / total * invstd * invstd;
    const Numbers grads(OneChannel(*args.dy, c));
    const Numbers out(OneChannel(*args.out, c));
    ForEachOf(OneChannel(*args.x, c), [&](const double* x, int64_t begin, int64_t n) {
      double dy_block[kBlock];
      double block[kBlock];
      const double* const dy = grads.Read(begin, n, dy_block);
      double* const to = out.Target(begin, block);
      for (int64_t i = 0; i < n; ++i) to[i] = (dy[i] - shift - (x[i] - mean) * slope) * scale;
      out.Write(begin, n, block);
    });
  }
}

void SyncNormGather(const SyncNormArgs& args, Range channels) {
  const int64_t parts = args.mean->sizes[0];
  const int64_t width = args.mean->sizes[1];
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    double count = 0;
    double mean = 0;
    double squares = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const double n = Load(args.counts, i);
      if (n == 0) continue;
      const double m = Load(args.mean, i * width + c);
      const double s = Load(args.invstd, i * width + c);
      const double away = m - mean;
      squares += n * (1 / (s * s) - args.eps) + away * away * count * n / (count + n);
      mean += away * n / (count + n);
      count += n;
    }
    const double var = squares / count;
    Store(args.all_mean, c, mean);
    Store(args.all_invstd, c, 1 / std::sqrt(var + args.eps));
    MoveRunning(args, c, mean, var, count);
  }
}

void SyncNormGatherSums(const SyncNormArgs& args, Range channels) {
  const int64_t parts = args.sum->sizes[0];
  const int64_t width = args.sum->sizes[1];
  double count = 0;
  const int64_t counts = ElementCount(*args.counts);
  for (int64_t i = 0; i < counts; ++i) count += Load(args.counts, i);
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < parts; ++i) {
      sum += Load(args.sum, i * width + c);
      squares += Load(args.product, i * width + c);
    }
    const double mean = sum / count;
    // Rounding of the sums may bring it below 0.
    const double var = std::max(0.0, squares / count - mean * mean);
    Store(args.all_mean, c, mean);
    Store(args.all_invstd, c, 1 / std::sqrt(var + args.eps));
    MoveRunning(args, c, mean, var, count);
  }
}

}  // namespace reprise::kernels
