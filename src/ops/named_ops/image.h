// SPDX-License-Identifier: Apache-2.0
//
// Views of images: channels in front of the spatial dims, as functions take them.
#pragma once

#include "opdef/windows.h"
#include "ops/named_ops/settings.h"

namespace reprise::ops::named {

/// [n, c, spatial..], whichever order they lie in.
inline StridedView ChannelsFirst(const StridedView& view, const opdef::ImageLayout& layout) {
  std::vector<size_t> order = {layout.batch, layout.channel};
  order.insert(order.end(), layout.spatial.begin(), layout.spatial.end());
  return Permuted(view, order);
}

}  // namespace reprise::ops::named
