// SPDX-License-Identifier: Apache-2.0
//
// What rules of inference share; for infer_*.cc alone.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "opdef/infer.h"
#include "opdef/infer_rules.h"

namespace reprise::opdef::infer {

using Sizes = opdef::Shape;

/// "[1, -1]".
inline std::string TextOf(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }
inline std::string TextOf(const std::vector<Dim>& values) { return Sizes(values).text(); }

/// The shape that a list of sizes of unknown value stands for: as many unknown sizes as the list has entries.
inline Sizes UnknownSizes(const InferTensor& list) {
  if (!list.shape.has_rank() || list.shape.rank() > 1) return Sizes::UnknownRank();
  if (list.shape.rank() == 0) return Sizes::Unknown(1);
  const Dim& count = list.shape[0];
  return count.is_number() && count.number() <= 64 ? Sizes::Unknown(static_cast<size_t>(count.number()))
                                                   : Sizes::UnknownRank();
}

/// Dims [first, last) of a shape.
inline std::vector<Dim> Part(const Sizes& shape, size_t first, size_t last) {
  return {shape.dims().begin() + static_cast<std::ptrdiff_t>(first),
          shape.dims().begin() + static_cast<std::ptrdiff_t>(last)};
}

inline void Append(std::vector<Dim>& dims, const std::vector<Dim>& more) {
  dims.insert(dims.end(), more.begin(), more.end());
}

/// Insertion of a dim in front of dim `d`.
inline void Insert(std::vector<Dim>& dims, size_t d, const Dim& dim) {
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d), dim);
}

/// One number, as a scalar or in dims of size 1.
inline bool MayBeOneNumber(const Sizes& shape) {
  return !shape.has_rank() || std::all_of(shape.dims().begin(), shape.dims().end(),
                                          [](const Dim& dim) { return dim.is_unknown() || dim.Is(1); });
}

/// Types that are rounded from float32: float16, bfloat16; and float32 itself.
inline bool IsSingleOrHalf(int32_t type) { return type == 0 || type == 1 || type == 27; }

}  // namespace reprise::opdef::infer
