// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding_bag.h"

#include <algorithm>
#include <cmath>

namespace reprise::kernels {
namespace {

template <class T>
void Reduce(const EmbeddingBags& bags, const T* weight, const int64_t* indices, const int64_t* offsets, const T* scales,
            T* out, int64_t* sizes, int64_t* max_indices, Range units) {
  const int64_t width = bags.width;
  for (int64_t bag = units.begin; bag < units.end; ++bag) {
    T* line = out + bag * width;
    int64_t* best = max_indices != nullptr ? max_indices + bag * width : nullptr;
    std::fill_n(line, width, T(0));
    if (best != nullptr) std::fill_n(best, width, int64_t{0});
    int64_t count = 0;
    const Range items = bags.ItemsOf(offsets, bag);
    for (int64_t i = items.begin; i < items.end; ++i) {
      if (!bags.Counts(indices[i])) continue;
      const T* row = weight + indices[i] * width;
      const bool is_first = count++ == 0;
      if (bags.mode != BagMode::kMax) {
        const T scale = scales != nullptr ? scales[i] : T(1);
        for (int64_t j = 0; j < width; ++j) line[j] += scale * row[j];
        continue;
      }
      for (int64_t j = 0; j < width; ++j) {
        if (!is_first && !(row[j] > line[j] || (row[j] != row[j] && line[j] == line[j]))) continue;
        line[j] = row[j];
        if (best != nullptr) best[j] = indices[i];
      }
    }
    if (bags.mode == BagMode::kMean && count > 1) {
      for (int64_t j = 0; j < width; ++j) line[j] /= static_cast<T>(count);
    }
    sizes[bag] = count;
  }
}

template <class T>
double NormOf(const T* row, int64_t n, double order) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double size = std::abs(static_cast<double>(row[j]));
    if (std::isinf(order)) {
      sum = size > sum || size != size ? size : sum;
    } else {
      sum += order == 2 ? size * size : order == 1 ? size : std::pow(size, order);
    }
  }
  if (order == 2) return std::sqrt(sum);
  return order == 1 || std::isinf(order) ? sum : std::pow(sum, 1 / order);
}

template <class T>
void Renorm(T* table, int64_t rows, int64_t width, const int64_t* indices, int64_t count, double order, double limit,
            uint8_t* seen) {
  std::fill_n(seen, rows, uint8_t{0});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= rows || seen[index] != 0) continue;
    seen[index] = 1;
    T* row = table + index * width;
    const double norm = NormOf(row, width, order);
    if (!(norm > limit)) continue;
    const T factor = static_cast<T>(limit / (norm + 1e-7));
    for (int64_t j = 0; j < width; ++j) row[j] *= factor;
  }
}

}  // namespace

Range EmbeddingBags::ItemsOf(const int64_t* offsets, int64_t bag) const {
  const int64_t begin = std::clamp<int64_t>(offsets[bag], 0, items);
  const bool is_last = bag + 1 == bags && !has_end;
  return {begin, is_last ? items : std::clamp<int64_t>(offsets[bag + 1], begin, items)};
}

void ReduceBags(const EmbeddingBags& bags, DType type, const void* weight, const int64_t* indices,
                const int64_t* offsets, const void* scales, void* out, int64_t* sizes, int64_t* max_indices,
                Range units) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Reduce(bags, static_cast<const T*>(weight), indices, offsets, static_cast<const T*>(scales), static_cast<T*>(out),
           sizes, max_indices, units);
  };
  type == DType::kDouble ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

void BagsOfItems(const EmbeddingBags& bags, const int64_t* offsets, int64_t* of_item) {
  std::fill_n(of_item, bags.items, int64_t{0});
  for (int64_t bag = 0; bag < bags.bags; ++bag) {
    const Range items = bags.ItemsOf(offsets, bag);
    for (int64_t i = items.begin; i < items.end; ++i) of_item[i] = bag;
  }
}

void RenormRows(DType type, void* table, int64_t rows, int64_t width, const int64_t* indices, int64_t count,
                double order, double limit, uint8_t* seen) {
  if (type == DType::kDouble) {
    return Renorm(static_cast<double*>(table), rows, width, indices, count, order, limit, seen);
  }
  Renorm(static_cast<float*>(table), rows, width, indices, count, order, limit, seen);
}

}  // namespace reprise::kernels
