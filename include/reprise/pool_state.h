/* SPDX-License-Identifier: Apache-2.0
 *
 * What a memory pool holds at a moment, to set it back to that later. Plain values, no ownership.
 */
#ifndef REPRISE_POOL_STATE_H_
#define REPRISE_POOL_STATE_H_

#include <cstdint>
#include <vector>

#include "memory_types.h"

namespace reprise {

/** Segments and blocks of a pool. */
struct PoolState {
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;       ///< bytes
    uint64_t requested = 0;  ///< bytes, as asked for
    bool is_live = false;    ///< somebody holds it
  };
  struct Segment {
    uint64_t address = 0;
    uint64_t size = 0;          ///< bytes
    std::vector<Block> blocks;  ///< by address, side by side
  };
  int device = -1;
  PoolId pool;
  std::vector<Segment> segments;  ///< by address
};

/** What setting a pool back has done. */
struct PoolChange {
  std::vector<uint64_t> freed;  ///< blocks that were held, by address
  std::vector<uint64_t> taken;  ///< blocks that are held now
};

}  // namespace reprise

#endif  // REPRISE_POOL_STATE_H_
