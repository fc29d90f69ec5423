// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary.h"

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

// Rows that a call holds in scratch: x, cos, sin, y.
constexpr int64_t kHeldRows = 4;

int64_t RowLength(const TensorRef& ref) { return ref.sizes[ref.rank - 1]; }

// The address of row `row` of `shape` in `ref`; size 1 repeats.
char* RowAt(const TensorRef& ref, const TensorRef& shape, int64_t row) {
  int64_t at = 0;
  for (int d = shape.rank - 2; d >= 0; --d) {
    const int64_t index = row % shape.sizes[d];
    row /= shape.sizes[d];
    if (ref.sizes[d] != 1) at += index * ref.strides[d];
  }
  return static_cast<char*>(ref.data) + at * ItemSize(ref.dtype);
}

struct Reader {
  explicit Reader(const TensorRef& source)
      : ref(source), cast(FindCast(source.dtype, DType::kFloat)), item(ItemSize(source.dtype)) {}

  void Read(const TensorRef& shape, int64_t row, float* to) const {
    cast(RowAt(ref, shape, row), ref.strides[ref.rank - 1] * item, reinterpret_cast<char*>(to), sizeof(float),
         RowLength(ref));
  }

  const TensorRef& ref;
  CastFn cast;
  int64_t item;
};

void Write(const float* from, const TensorRef& ref, const TensorRef& shape, int64_t row) {
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(float), RowAt(ref, shape, row),
                                     ref.strides[ref.rank - 1] * ItemSize(ref.dtype), RowLength(ref));
}

// fn(i, a, b): place i of the result takes x[a] times cos[i] plus, for pairs, -x[b] or x[b] times sin[i]; the sign is
// the fourth argument.
template <class Fn>
void ForEachPlace(RotaryMode mode, int64_t n, const Fn& fn) {
  const int64_t half = n / 2;
  switch (mode) {
    case RotaryMode::kHalf:
      for (int64_t i = 0; i < half; ++i) fn(i, i, i + half, -1.0f);
      for (int64_t i = half; i < n; ++i) fn(i, i, i - half, 1.0f);
      return;
    case RotaryMode::kInterleave:
      for (int64_t i = 0; i < n; i += 2) {
        fn(i, i, i + 1, -1.0f);
        fn(i + 1, i + 1, i, 1.0f);
      }
      return;
    case RotaryMode::kQuarter:
      for (int64_t part = 0; part < n; part += half) {
        for (int64_t i = part; i < part + half / 2; ++i) fn(i, i, i + half / 2, -1.0f);
        for (int64_t i = part + half / 2; i < part + half; ++i) fn(i, i, i - half / 2, 1.0f);
      }
      return;
    case RotaryMode::kInterleaveHalf:
      for (int64_t i = 0; i < half; ++i) fn(i, 2 * i, 2 * i + 1, -1.0f);
      for (int64_t i = 0; i < half; ++i) fn(half + i, 2 * i + 1, 2 * i, 1.0f);
      return;
  }
}

template <bool kBackward>
void Turn(RotaryMode mode, const TensorRef& from, const TensorRef& cos, const TensorRef& sin, const TensorRef& to,
          Range range, void* scratch) {
  const int64_t n = RowLength(from);
  auto* const x = static_cast<float*>(scratch);
  float* const c = x + n;
  float* const s = c + n;
  float* const y = s + n;
  const Reader read_x(from);
  const Reader read_cos(cos);
  const Reader read_sin(sin);
  for (int64_t row = range.begin; row < range.end; ++row) {
    read_x.Read(from, row, x);
    read_cos.Read(from, row, c);
    read_sin.Read(from, row, s);
    if constexpr (kBackward) {
      std::fill_n(y, n, 0.0f);
      ForEachPlace(mode, n, [&](int64_t i, int64_t a, int64_t b, float sign) {
        y[a] += x[i] * c[i];
        y[b] += sign * x[i] * s[i];
      });
    } else {
      ForEachPlace(mode, n,
                   [&](int64_t i, int64_t a, int64_t b, float sign) { y[i] = x[a] * c[i] + sign * x[b] * s[i]; });
    }
    Write(y, to, from, row);
  }
}

}  // namespace

int64_t RotaryRowCount(const TensorRef& x) {
  const int64_t length = RowLength(x);
  return length == 0 ? 0 : ElementCount(x) / length;
}

int64_t RotaryScratchBytes(const TensorRef& x) {
  return kHeldRows * RowLength(x) * static_cast<int64_t>(sizeof(float));
}

void Rotate(RotaryMode mode, const TensorRef& x, const TensorRef& cos, const TensorRef& sin, const TensorRef& y,
            Range range, void* scratch) {
  Turn<false>(mode, x, cos, sin, y, range, scratch);
}

void CombineRotation(const TensorRef& x, const TensorRef& turned, const TensorRef& cos, const TensorRef& sin,
                     const TensorRef& y, Range range, void* scratch) {
  const int64_t n = RowLength(x);
  auto* const a = static_cast<float*>(scratch);
  float* const b = a + n;
  float* const c = b + n;
  float* const s = c + n;
  const Reader read_x(x);
  const Reader read_turned(turned);
  const Reader read_cos(cos);
  const Reader read_sin(sin);
  for (int64_t row = range.begin; row < range.end; ++row) {
    read_x.Read(x, row, a);
    read_turned.Read(x, row, b);
    read_cos.Read(x, row, c);
    read_sin.Read(x, row, s);
    for (int64_t i = 0; i < n; ++i) a[i] = a[i] * c[i] + b[i] * s[i];
    Write(a, y, x, row);
  }
}

void RotateBackward(RotaryMode mode, const TensorRef& dy, const TensorRef& cos, const TensorRef& sin,
                    const TensorRef& dx, Range range, void* scratch) {
  Turn<true>(mode, dy, cos, sin, dx, range, scratch);
}

void RotaryAngleBackward(RotaryMode mode, const TensorRef& dy, const TensorRef& x, const TensorRef& dcos,
                         const TensorRef& dsin, Range range, void* scratch) {
  const int64_t n = RowLength(x);
  auto* const gradient = static_cast<float*>(scratch);
  float* const input = gradient + n;
  float* const c = input + n;
  float* const s = c + n;
  const Reader read_dy(dy);
  const Reader read_x(x);
  // The dims that repeat, as a tensor of their own.
  TensorRef repeated = x;
  for (int d = 0; d + 1 < x.rank; ++d) {
    if (dcos.sizes[d] == x.sizes[d]) repeated.sizes[d] = 1;
  }
  const int64_t times = n == 0 ? 0 : ElementCount(repeated) / n;
  for (int64_t row = range.begin; row < range.end; ++row) {
    std::fill_n(c, n, 0.0f);
    std::fill_n(s, n, 0.0f);
    for (int64_t t = 0; t < times; ++t) {
      // The row of x with the indices of `row` in the dims of dcos and of t in the others.
      int64_t at = 0;
      int64_t scale = 1;
      int64_t own = row;
      int64_t other = t;
      for (int d = x.rank - 2; d >= 0; --d) {
        const bool is_own = repeated.sizes[d] == 1;
        int64_t& rest = is_own ? own : other;
        at += rest % x.sizes[d] * scale;
        rest /= x.sizes[d];
        scale *= x.sizes[d];
      }
      read_dy.Read(x, at, gradient);
      read_x.Read(x, at, input);
      ForEachPlace(mode, n, [&](int64_t i, int64_t a, int64_t b, float sign) {
        c[i] += gradient[i] * input[a];
        s[i] += sign * gradient[i] * input[b];
      });
    }
    Write(c, dcos, dcos, row);
    Write(s, dsin, dcos, row);
  }
}

}  // namespace reprise::kernels
