// SPDX-License-Identifier: Apache-2.0
#include "kernels/fourier.h"

#include <cmath>
#include <numbers>

#include "kernels/batch.h"
#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

size_t SmallestFactor(size_t n) {
  for (size_t factor = 2; factor * factor <= n; ++factor) {
    if (n % factor == 0) return factor;
  }
  return n;
}

// out = the transform of n numbers of `in`, `stride` apart: those of each remainder by the smallest factor of n are
// transformed first. `roots` has those of n * stride; `terms` has room for n numbers.
void Transform(const FourierNumber* in, size_t stride, size_t n, const FourierNumber* roots, FourierNumber* out,
               FourierNumber* terms) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  const size_t factor = SmallestFactor(n);
  const size_t part = n / factor;
  for (size_t r = 0; r < factor; ++r) {
    Transform(in + r * stride, stride * factor, part, roots, out + r * part, terms);
  }
  for (size_t k = 0; k < part; ++k) {
    for (size_t r = 0; r < factor; ++r) terms[r] = out[r * part + k] * roots[r * k * stride];
    for (size_t q = 0; q < factor; ++q) {
      FourierNumber sum = terms[0];
      // A step of part * q in the roots of n, n of them a turn.
      for (size_t r = 1, at = 0; r < factor; ++r) {
        at = (at + part * q) % n;
        sum += terms[r] * roots[at * stride];
      }
      out[q * part + k] = sum;
    }
  }
}

// n numbers of a tensor, `step` elements apart.
void ReadNumbers(DType dtype, const char* from, int64_t step, int64_t n, FourierNumber* to) {
  FindCast(dtype, DType::kComplex128)(from, step * ItemSize(dtype), reinterpret_cast<char*>(to), sizeof(FourierNumber),
                                      n);
}

void WriteReal(DType dtype, char* to, double value) {
  FindCast(DType::kDouble, dtype)(reinterpret_cast<const char*>(&value), 0, to, 0, 1);
}

// A number where `to` points: complex, or two numbers `step` elements apart.
void WriteNumber(DType dtype, char* to, int64_t step, FourierNumber value) {
  if (CategoryOf(dtype) == Category::kComplex) {
    FindCast(DType::kComplex128, dtype)(reinterpret_cast<const char*>(&value), 0, to, 0, 1);
    return;
  }
  WriteReal(dtype, to, value.real());
  WriteReal(dtype, to + step * ItemSize(dtype), value.imag());
}

}  // namespace

void FillRoots(FourierNumber* roots, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    roots[i] = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n));
  }
}

void TransformRow(const FourierNumber* in, int64_t n, const FourierNumber* roots, FourierNumber* out,
                  FourierNumber* terms) {
  Transform(in, 1, static_cast<size_t>(n), roots, out, terms);
}

void TransformWindows(const WindowTransforms& o, Range frames, void* scratch) {
  auto* const in = static_cast<FourierNumber*>(scratch);
  FourierNumber* const out = in + o.n;
  FourierNumber* const terms = out + o.n;
  const int64_t bins = o.out.sizes[1];
  const int64_t count = o.out.sizes[2];
  const int64_t before = (o.n - o.width) / 2;
  const int64_t x_bytes = ItemSize(o.x.dtype);
  for (int64_t frame = frames.begin; frame < frames.end; ++frame) {
    const int64_t row = frame / count;
    const int64_t t = frame % count;
    std::fill_n(in, o.n, FourierNumber());
    const int64_t first = t * o.hop + before;
    ReadNumbers(o.x.dtype,
                static_cast<const char*>(o.x.data) + (row * o.x.strides[0] + first * o.x.strides[1]) * x_bytes,
                o.x.strides[1], o.width, in + before);
    if (o.window.data != nullptr) {
      ReadNumbers(o.window.dtype, static_cast<const char*>(o.window.data), o.window.strides[0], o.width, terms);
      for (int64_t j = 0; j < o.width; ++j) in[before + j] *= terms[j];
    }
    TransformRow(in, o.n, o.roots, out, terms);
    for (int64_t k = 0; k < bins; ++k) {
      const int64_t place = row * o.out.strides[0] + k * o.out.strides[1] + t * o.out.strides[2];
      WriteNumber(o.out.dtype, static_cast<char*>(o.out.data) + place * ItemSize(o.out.dtype),
                  o.out.rank == 4 ? o.out.strides[3] : 0, out[k] * o.factor);
    }
  }
}

void TransformRealRows(const RealTransforms& o, Range rows, void* scratch) {
  auto* const in = static_cast<FourierNumber*>(scratch);
  FourierNumber* const out = in + o.n;
  FourierNumber* const terms = out + o.n;
  const int64_t length = std::min(o.n, o.x.sizes[o.x.rank - 1]);
  const int64_t bins = o.out.sizes[o.out.rank - 2];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::fill_n(in, o.n, FourierNumber());
    ReadNumbers(o.x.dtype, EntryOf(o.x, 1, o.x, 1, row), o.x.strides[o.x.rank - 1], length, in);
    TransformRow(in, o.n, o.roots, out, terms);
    char* const to = EntryOf(o.out, 2, o.out, 2, row);
    for (int64_t k = 0; k < bins; ++k) {
      WriteNumber(o.out.dtype, to + k * o.out.strides[o.out.rank - 2] * ItemSize(o.out.dtype),
                  o.out.strides[o.out.rank - 1], out[k] * o.factor);
    }
  }
}

}  // namespace reprise::kernels
