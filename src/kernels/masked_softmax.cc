// SPDX-License-Identifier: Apache-2.0
#include "kernels/masked_softmax.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/plane.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr double kMasked = -10000;
constexpr int64_t kBlock = 512;

using Numbers = Staged<double>;

void SoftmaxInPlace(double* x, int64_t n) {
  double largest = -INFINITY;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - largest);
    sum += x[i];
  }
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}

// Whether elements of a row of [B, N, S, L] are masked.
class RowMask {
 public:
  RowMask(const MaskedRows& rows) : shape_(*rows.x), mask_(rows.mask) {
    if (mask_ != nullptr) numbers_.emplace(*mask_);
  }

  // 1 where an element is masked.
  const double* Read(int64_t row, double* buffer) const {
    const int64_t n = shape_.sizes[3];
    const int64_t s = row % shape_.sizes[2];
    if (mask_ == nullptr) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = i > s ? 1 : 0;
      return buffer;
    }
    const int64_t head = row / shape_.sizes[2] % shape_.sizes[1];
    const int64_t batch = row / shape_.sizes[2] / shape_.sizes[1];
    const int64_t entry = (mask_->sizes[0] == 1 ? 0 : batch) * mask_->sizes[1] + (mask_->sizes[1] == 1 ? 0 : head);
    return numbers_->Read((entry * shape_.sizes[2] + s) * n, n, buffer);
  }

 private:
  const TensorRef& shape_;
  const TensorRef* mask_;
  std::optional<Numbers> numbers_;
};

double Gelu(double x, bool by_tanh) {
  if (!by_tanh) return 0.5 * x * std::erfc(-x * M_SQRT1_2);
  return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x, bool by_tanh) {
  constexpr double kRoot = M_2_SQRTPI * M_SQRT1_2;
  if (!by_tanh) return 0.5 * std::erfc(-x * M_SQRT1_2) + x * std::exp(-0.5 * x * x) * 0.5 * kRoot;
  const double t = std::tanh(kRoot * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * x * x);
}

// Calls fn(row, first column, n) for the pieces of the elements [range) of [.., n], of kBlock at most.
template <class Fn>
void ForEachPiece(Range range, int64_t n, Fn&& fn) {
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t count = std::min({kBlock, range.end - at, n - at % n});
    fn(at / n, at % n, count);
    at += count;
  }
}

}  // namespace

void MaskedSoftmax(const MaskedRows& rows, void* scratch, Range range) {
  const int64_t n = rows.x->sizes[3];
  ScratchCutter cutter(scratch);
  double* const values = cutter.Cut<double>(n);
  double* const buffer = cutter.Cut<double>(n);
  const Numbers x(*rows.x);
  const Numbers out(*rows.out);
  const RowMask mask(rows);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const double* const from = x.Read(row * n, n, values);
    for (int64_t i = 0; i < n; ++i) values[i] = from[i] * rows.scale;
    const double* const masked = mask.Read(row, buffer);
    for (int64_t i = 0; i < n; ++i) values[i] = masked[i] != 0 ? kMasked : values[i];
    SoftmaxInPlace(values, n);
    std::copy_n(values, n, out.Target(row * n, buffer));
    out.Write(row * n, n, buffer);
  }
}

void MaskedSoftmaxGrad(const MaskedRows& rows, void* scratch, Range range) {
  const int64_t n = rows.x->sizes[3];
  ScratchCutter cutter(scratch);
  double* const grads = cutter.Cut<double>(n);
  double* const values = cutter.Cut<double>(n);
  double* const buffer = cutter.Cut<double>(n);
  const Numbers dys(*rows.x);
  const Numbers ys(*rows.y);
  const Numbers out(*rows.out);
  const RowMask mask(rows);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const double* const dy = dys.Read(row * n, n, grads);
    const double* const y = ys.Read(row * n, n, values);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += dy[i] * y[i];
    for (int64_t i = 0; i < n; ++i) grads[i] = rows.scale * y[i] * (dy[i] - sum);
    const double* const masked = mask.Read(row, buffer);
    for (int64_t i = 0; i < n; ++i) grads[i] = masked[i] != 0 ? 0 : grads[i];
    std::copy_n(grads, n, out.Target(row * n, buffer));
    out.Write(row * n, n, buffer);
  }
}

void BiasedSoftmax(const BiasedRows& rows, void* scratch, Range range) {
  const int64_t n = rows.length;
  const int64_t steps = rows.steps;
  const int64_t heads = rows.heads;
  ScratchCutter cutter(scratch);
  double* const values = cutter.Cut<double>(n);
  double* const buffer = cutter.Cut<double>(n);
  const Numbers x(*rows.x);
  const Numbers out(*rows.out);
  const Numbers bias(*rows.bias);
  std::optional<Numbers> mask;
  int64_t windows = 1;
  if (rows.mask != nullptr) {
    mask.emplace(*rows.mask);
    windows = ElementCount(*rows.mask) / (steps * n);
  }
  for (int64_t row = range.begin; row < range.end; ++row) {
    const int64_t s = row % steps;
    const int64_t head = row / steps % heads;
    const int64_t window = row / steps / heads % windows;
    const double* const from = x.Read(row * n, n, values);
    for (int64_t i = 0; i < n; ++i) values[i] = from[i] * rows.scale;
    const auto add = [&](const Numbers& numbers, int64_t at) {
      const double* const more = numbers.Read(at * n, n, buffer);
      for (int64_t i = 0; i < n; ++i) values[i] += more[i];
    };
    if (mask) add(*mask, window * steps + s);
    add(bias, head * steps + s);
    SoftmaxInPlace(values, n);
    std::copy_n(values, n, out.Target(row * n, buffer));
    out.Write(row * n, n, buffer);
  }
}

void GeluProduct(const TensorRef& x, const TensorRef& out, bool by_tanh, int64_t n, Range range) {
  const Numbers numbers(x);
  const Numbers results(out);
  double left_block[kBlock];
  double right_block[kBlock];
  double block[kBlock];
  ForEachPiece(range, n, [&](int64_t row, int64_t column, int64_t count) {
    const double* const left = numbers.Read(row * 2 * n + column, count, left_block);
    const double* const right = numbers.Read((row * 2 + 1) * n + column, count, right_block);
    double* const to = results.Target(row * n + column, block);
    for (int64_t i = 0; i < count; ++i) to[i] = Gelu(left[i], by_tanh) * right[i];
    results.Write(row * n + column, count, block);
  });
}

void GeGluGrad(const GeGluGradient& args, Range range) {
  const Numbers of_out(*args.of_out);
  const Numbers self(*args.self);
  const Numbers gelu(*args.gelu);
  const Numbers of_self(*args.of_self);
  double grad_block[kBlock], plain_block[kBlock], active_block[kBlock], gelu_block[kBlock], block[kBlock];
  ForEachPiece(range, args.n, [&](int64_t row, int64_t column, int64_t count) {
    const int64_t left = row * 2 * args.n + column;
    const int64_t right = left + args.n;
    const int64_t active = args.activates_left ? left : right;
    const int64_t plain = args.activates_left ? right : left;
    const double* const dy = of_out.Read(row * args.n + column, count, grad_block);
    const double* const x = self.Read(active, count, active_block);
    const double* const factor = self.Read(plain, count, plain_block);
    const double* const g = gelu.Read(row * args.n + column, count, gelu_block);
    double* to = of_self.Target(plain, block);
    for (int64_t i = 0; i < count; ++i) to[i] = dy[i] * g[i];
    of_self.Write(plain, count, block);
    to = of_self.Target(active, block);
    for (int64_t i = 0; i < count; ++i) to[i] = dy[i] * factor[i] * GeluSlope(x[i], args.by_tanh);
    of_self.Write(active, count, block);
  });
}

void SplitHeads(const TensorRef& qkv, const TensorRef& bias, const TensorRef* const outs[3], Range rows) {
  const TensorRef& shape = *outs[0];  // [B, heads, T, d]
  const int64_t heads = shape.sizes[1];
  const int64_t steps = shape.sizes[2];
  const int64_t width = shape.sizes[3];
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const Numbers numbers(qkv);
  const Numbers biases(bias);
  double block[kBlock], bias_block[kBlock], result[kBlock];
  for (int k = 0; k < 3; ++k) {
    const Numbers out(*outs[k]);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t to_row = (row / steps * heads + head) * steps + row % steps;
        for (int64_t begin = 0; begin < width; begin += kBlock) {
          const int64_t n = std::min(kBlock, width - begin);
          const int64_t column = (k * heads + head) * width + begin;
          const double* const x = numbers.Read(row * 3 * heads * width + column, n, block);
          const double* const b = biases.Read(column, n, bias_block);
          double* const to = out.Target(to_row * width + begin, result);
          for (int64_t i = 0; i < n; ++i) to[i] = (x[i] + b[i]) * (k == 0 ? scale : 1);
          out.Write(to_row * width + begin, n, result);
        }
      }
    }
  }
}

}  // namespace reprise::kernels
