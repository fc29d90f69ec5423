// SPDX-License-Identifier: Apache-2.0
//
// The table of one dim of a resize, which several operators use.
#pragma once

#include <cstdint>

#include "kernels/resize.h"

namespace reprise::ops {

enum class ResizeKind : uint8_t { kNearest, kNearestExact, kLinear, kCubic };

/// Inputs that an output reads along one dim.
constexpr int TapsOf(ResizeKind kind) { return kind == ResizeKind::kLinear ? 2 : kind == ResizeKind::kCubic ? 4 : 1; }

/// Fills index and weight (empty for one tap) of a dim whose sizes are there.
/// \param given_scale  of the output to the input; 0 or less: the sizes decide
void FillResizeDim(kernels::ResizeDim& dim, ResizeKind kind, bool align_corners, double given_scale);

}  // namespace reprise::ops
