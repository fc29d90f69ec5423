// SPDX-License-Identifier: Apache-2.0
//
// Linear maps between volumes that are a product of one map for each dim: resizes of any kind, average pools, padding
// that repeats the input, and the gradients of all these, which are the transposed maps.
//
// Formula   out[.., o0, o1, o2] = sum over the taps k of o0, l of o1, m of o2 of
//             weight0[k] weight1[l] weight2[m] in[.., index0[k], index1[l], index2[m]]
// Order     rows are added up in the order of the taps of the outer dims, then elements along the row in the order of
//   the innermost, in float32 (float64 for float64); rounded once. Any partition of the rows gives the same bits.
// Copies    Where each output has one tap of weight 1, elements of any type are copied bit for bit.
// NaN, Inf  IEEE 754; a tap with weight 0 is none. Aliasing: none.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

/// The map of one dim: output o has the taps [begin[o], begin[o + 1]).
struct SeparableDim {
  int64_t in = 1;
  int64_t out = 1;
  std::vector<int64_t> begin;
  std::vector<int32_t> index;
  std::vector<double> weight;
  std::vector<float> narrow;  ///< the weights as float32; Finish fills it

  /// Outputs are added in order: the taps of one, then Close.
  void Tap(int64_t at, double factor) {
    if (factor == 0) return;
    index.push_back(static_cast<int32_t>(at));
    weight.push_back(factor);
  }
  void Close() { begin.push_back(static_cast<int64_t>(index.size())); }

  /// One output, which is the only input.
  static SeparableDim Identity();
  /// The map of the gradient.
  SeparableDim Transposed() const;
  /// Whether each output has one tap, of weight 1.
  bool IsCopy() const;
};

struct Separable {
  SeparableDim dims[3];
  bool is_copy = false;

  /// To be called once the dims are there.
  void Finish();
};

/// `in` and `out` are [leading.., D, H, W]; a unit is a row of out.
void RunSeparable(const Separable& map, const TensorRef& in, const TensorRef& out, Range rows, void* scratch);
int64_t SeparableScratchBytes(const Separable& map);

}  // namespace reprise::kernels
