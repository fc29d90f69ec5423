// SPDX-License-Identifier: Apache-2.0
#include "kernels/gating.h"

#include <cmath>

#include "kernels/cast.h"
#include "kernels/score_order.h"

namespace reprise::kernels {
namespace {

// Where row `row` of [i, j, ..] begins.
char* RowAt(const TensorRef& ref, int64_t row) {
  const int64_t at = row / ref.sizes[1] * ref.strides[0] + row % ref.sizes[1] * ref.strides[1];
  return static_cast<char*>(ref.data) + at * ItemSize(ref.dtype);
}

}  // namespace

void ChooseExperts(const TensorRef& x, const TensorRef& finished, const TensorRef& y, const TensorRef& expert,
                   const TensorRef& source, Range range, void* scratch) {
  const int64_t rows = x.sizes[0] * x.sizes[1];
  const int64_t columns = x.sizes[2];
  const int64_t k = y.sizes[2];
  auto* const p = static_cast<float*>(scratch);
  auto* const order = reinterpret_cast<int32_t*>(p + columns);
  const CastFn read = FindCast(x.dtype, DType::kFloat);
  const CastFn write = FindCast(DType::kFloat, y.dtype);
  const int64_t x_item = ItemSize(x.dtype);
  const int64_t y_item = ItemSize(y.dtype);
  const auto is_before = [p](int32_t a, int32_t b) { return IsChosenBefore(p, a, b); };
  for (int64_t row = range.begin; row < range.end; ++row) {
    read(RowAt(x, row), x.strides[2] * x_item, reinterpret_cast<char*>(p), sizeof(float), columns);
    float greatest = p[0];
    for (int64_t c = 1; c < columns; ++c) greatest = std::max(greatest, p[c]);
    float sum = 0;
    for (int64_t c = 0; c < columns; ++c) {
      p[c] = std::exp(p[c] - greatest);
      sum += p[c];
    }
    for (int64_t c = 0; c < columns; ++c) {
      p[c] /= sum;
      order[c] = static_cast<int32_t>(c);
    }
    std::partial_sort(order, order + k, order + columns, is_before);
    const bool is_finished = finished.data != nullptr && *RowAt(finished, row) != 0;
    auto* const experts = reinterpret_cast<int32_t*>(RowAt(expert, row));
    auto* const sources = reinterpret_cast<int32_t*>(RowAt(source, row));
    char* const to = RowAt(y, row);
    for (int64_t j = 0; j < k; ++j) {
      write(reinterpret_cast<const char*>(p + order[j]), 0, to + j * y.strides[2] * y_item, 0, 1);
      experts[j * expert.strides[2]] = is_finished ? static_cast<int32_t>(columns) : order[j];
      sources[j * source.strides[2]] = static_cast<int32_t>(j * rows + row);
    }
  }
}

}  // namespace reprise::kernels
