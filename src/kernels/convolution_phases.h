// SPDX-License-Identifier: Apache-2.0
//
// Convolutions along one dim, for those who walk their taps. A transposed one is a plain one of stride 1 for each
// residue of the outputs modulo the stride, with the taps that meet there.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/convolution.h"

namespace reprise::kernels {

struct ConvTap {
  int64_t kernel;  ///< its position
  int64_t shift;   ///< in the input, from stride * output; of a transposed convolution from the output of the phase
};

struct ConvPhase {
  int64_t first;  ///< output; the next ones are a stride apart where the convolution is transposed
  int64_t count;
  std::vector<ConvTap> taps;  ///< by position
};

/// One for a plain convolution.
inline std::vector<ConvPhase> PhasesOf(const ConvDim& dim, bool transposed) {
  std::vector<ConvPhase> phases;
  for (int64_t residue = 0; residue < (transposed ? std::min(dim.stride, dim.out) : 1); ++residue) {
    ConvPhase& phase = phases.emplace_back();
    phase.first = residue;
    phase.count = transposed ? (dim.out - residue + dim.stride - 1) / dim.stride : dim.out;
    for (int64_t k = 0; k < dim.kernel; ++k) {
      if (!transposed) {
        phase.taps.push_back({k, k * dim.dilation - dim.pad});
        continue;
      }
      const int64_t shift = residue + dim.pad - k * dim.dilation;
      if (shift % dim.stride == 0) phase.taps.push_back({k, shift / dim.stride});
    }
  }
  return phases;
}

}  // namespace reprise::kernels
