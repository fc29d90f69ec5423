// SPDX-License-Identifier: Apache-2.0
//
// Attributes of convolutions, pools and grids, which name every dim of a layout ("NHWC"), as values of the spatial
// dims. Read by rules of inference and by whoever computes the operators.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "opdef/infer.h"

namespace reprise::opdef {

/// Where the letters of data_format stand.
struct ImageLayout {
  size_t batch = 0, channel = 0;
  std::vector<size_t> spatial;
};

/// As data_format says, or with channels in front where the row has no such attribute; 100023 for other formats.
/// \param spatial  2 or 3 dims
StatusOr<ImageLayout> LayoutOf(const InferContext& call, size_t spatial);
/// 3 for operators that have it in their name, else 2.
size_t SpatialDims(const InferContext& call);

/// The entries of a list of numbers that belong to the spatial dims: all of them, one for all, or those of the layout.
StatusOr<std::vector<int64_t>> SpatialOf(const InferContext& call, std::string_view name, const ImageLayout& layout);

using Pads = std::vector<std::pair<int64_t, int64_t>>;
/// Pads in front of and behind each of `count` spatial dims: pairs, or one for both.
StatusOr<Pads> PadsOf(const InferContext& call, size_t count, std::string_view name = "pads");

/// Windows of a pool that names how it pads.
struct NamedWindows {
  ImageLayout layout;
  std::vector<int64_t> sizes, strides;
  std::string mode;  ///< CALCULATED: by `pads`; SAME: as many windows as strides begin; VALID: without pads
  Pads pads;
  bool is_global = false;  ///< one window over everything
  bool ceil = false;       ///< a last window that is not full
};
/// By the attributes ksize, strides, padding or padding_mode, and, where the row has them, pads, global_pooling and
/// ceil_mode; or by those of Pooling, whose ceil_mode is 0 where sizes are rounded up.
StatusOr<NamedWindows> NamedWindowsOf(const InferContext& call);
/// Pads in front of and behind a dim of this size, for as many windows as strides begin in it.
std::pair<int64_t, int64_t> SamePads(int64_t size, int64_t window, int64_t stride);

/// Windows of a pool that says where the largest elements were.
struct PoolWindows {
  std::vector<int64_t> sizes, strides, dilations;
  Pads pads;
};
StatusOr<PoolWindows> MaxPoolWindows(const InferContext& call, const ImageLayout& lists);
/// Of MaxPoolWithArgmaxV1: elements 1 and 2 of the lists are windows over dims 2 and 3.
ImageLayout MaxPoolMaskLists();

}  // namespace reprise::opdef
