// SPDX-License-Identifier: Apache-2.0
//
// Discrete Fourier transforms as products of matrices: a dim of n = n1 * n2 elements as n1 by n2 of them, so that it
// takes n * (n1 + n2) products instead of n * n.
#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <numbers>

#include "ops/named_ops/settings.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// [rows, columns] of e^(-2 pi i row column / n), in the type of x.
StridedView Roots(NamedCall& call, DType type, int64_t rows, int64_t columns, int64_t n) {
  std::vector<std::complex<double>> wide;
  wide.reserve(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const double turn = static_cast<double>(row * column % n) / static_cast<double>(n);
      wide.push_back(std::polar(1.0, -2 * std::numbers::pi * turn));
    }
  }
  const std::array<int64_t, 2> sizes = {rows, columns};
  if (type == DType::kComplex128) return call.Numbers(type, sizes, wide.data());
  const std::vector<std::complex<float>> narrow(wide.begin(), wide.end());
  return call.Numbers(type, sizes, narrow.data());
}

// The largest divisor that is at most the root of n.
int64_t FrontFactor(int64_t n) {
  int64_t best = 1;
  for (int64_t factor = 2; factor * factor <= n; ++factor) {
    if (n % factor == 0) best = factor;
  }
  return best;
}

// The last dim of x [lines, n], which is row-major, into `out`, whose last stride may be any. Element j1 * n2 + j2 of a
// line gives element k1 + n1 * k2.
Status StepTransform(NamedCall& call, const StridedView& x, const StridedView& out) {
  constexpr int64_t kKeepPrecision = 0;
  const int64_t lines = x.sizes[0];
  const int64_t n = x.sizes[1];
  const int64_t n1 = FrontFactor(n);
  const int64_t n2 = n / n1;
  const std::array<int64_t, 3> sizes = {lines, n1, n2};
  StridedView parts = x.As(sizes);
  if (n1 > 1) {
    const StridedView turned = call.Temporary(x.dtype, sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {Roots(call, x.dtype, n1, n1, n1), parts, turned, kKeepPrecision}));
    REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {turned, Roots(call, x.dtype, n1, n2, n), turned}));
    parts = turned;
  }
  StridedView result = out;
  result.sizes.assign(sizes.data(), sizes.size());
  const std::array<int64_t, 3> strides = {out.strides[0], out.strides[1], out.strides[1] * n1};
  result.strides.assign(strides.data(), strides.size());
  return call.Step(kMatmul, {parts, Roots(call, x.dtype, n2, n2, n2), result, kKeepPrecision});
}

// \param dims  how many of the last ones
Status LowerTransform(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  const auto dims = static_cast<size_t>(call.op.code);
  if (x.sizes.size() < dims) {
    return call.WrongInput(call.Input("x"), fmt::format("has {} dims", x.sizes.size()),
                           fmt::format("pass {} dims or more", dims));
  }
  constexpr int64_t kLongest = 1 << 16;
  for (size_t d = x.sizes.size() - dims; d < x.sizes.size(); ++d) {
    const int64_t n = x.sizes[d];
    const int64_t front = FrontFactor(std::min(n, kLongest));
    if (n <= kLongest && n / front <= kLongest / 16) continue;
    return call.WrongInput(call.Input("x"), fmt::format("has {} elements in dim {}, whose factors are too large", n, d),
                           "pass dims of 65536 elements at most, with no prime factor above 4096");
  }
  const int64_t count = CountOf(x.sizes);
  if (count == 0) return {};
  const int64_t columns = x.sizes[x.sizes.size() - 1];
  const std::array<int64_t, 2> lines = {count / columns, columns};
  if (dims == 1) return StepTransform(call, x.As(lines), out.As(lines));
  // Rows, laid out by columns; then these.
  const int64_t rows = x.sizes[x.sizes.size() - 2];
  const int64_t images = count / columns / rows;
  const StridedView first = call.Temporary(x.dtype, lines);
  REPRISE_RETURN_IF_ERROR(StepTransform(call, x.As(lines), first));
  const std::array<int64_t, 3> turned_sizes = {images, columns, rows};
  const std::array<int64_t, 3> sizes = {images, rows, columns};
  const StridedView turned = call.Temporary(x.dtype, turned_sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {first.As(sizes).Transposed(), turned}));
  const StridedView second = call.Temporary(x.dtype, turned_sizes);
  const std::array<int64_t, 2> turned_lines = {images * columns, rows};
  REPRISE_RETURN_IF_ERROR(StepTransform(call, turned.As(turned_lines), second.As(turned_lines)));
  return call.Step(kCopy, {second.Transposed(), out.As(sizes)});
}

constexpr NamedOp kFourierRows[] = {
    {"FFT", {}, LowerTransform, 1},
    {"FFT2D", {}, LowerTransform, 2},
};

}  // namespace

std::span<const NamedOp> FourierRows() { return kFourierRows; }

}  // namespace reprise::ops::named
