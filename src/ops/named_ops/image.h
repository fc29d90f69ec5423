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

/// Refuses tensors of another rank than the layout has.
inline Status CheckImages(const NamedCall& call, std::initializer_list<std::string_view> inputs,
                          const opdef::ImageLayout& layout) {
  const size_t rank = layout.spatial.size() + 2;
  for (const std::string_view name : inputs) {
    const NamedTensor& tensor = call.Input(name);
    if (tensor.dims.size() == rank) continue;
    return call.WrongInput(tensor, fmt::format("has {} dims", tensor.dims.size()),
                           fmt::format("pass {} dims: batch, channels and {} of the image", rank, rank - 2));
  }
  if (call.shape().size() == rank) return {};
  return call.WrongOutput(call.output(), fmt::format("gets {} dims", call.shape().size()),
                          fmt::format("ask for {} sizes: batch, channels and {} of the image", rank, rank - 2));
}

}  // namespace reprise::ops::named
