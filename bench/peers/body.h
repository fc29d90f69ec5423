// SPDX-License-Identifier: Apache-2.0
//
// The bodies of nodes, for the files of the peers.
#pragma once

#include "device.h"
#include "peers/peer.h"

namespace bench {

template <Body kind>
void RunBody<kind>::operator()(uint32_t node, uint32_t iterations) const {
  if constexpr (kind == Body::kNothing) {
    asm volatile("" ::: "memory");
  } else if constexpr (kind == Body::kCount) {
    PeerCount().fetch_add(1, std::memory_order_relaxed);
  } else {
    if constexpr (kind == Body::kStamp) Stamps::Note(node);
    if (iterations > 0) SpinWork(iterations);
  }
}

/// Calls `make` with the RunBody of that kind.
template <class Make>
PeerWork WithBody(Body body, Make make) {
  switch (body) {
    case Body::kNothing: return make(RunBody<Body::kNothing>());
    case Body::kCount: return make(RunBody<Body::kCount>());
    case Body::kWork: return make(RunBody<Body::kWork>());
    case Body::kStamp: return make(RunBody<Body::kStamp>());
  }
  return {};
}

}  // namespace bench
