// SPDX-License-Identifier: Apache-2.0
//
// Memory that comes back can be had again as if it had never been away: blocks that were merged, and pools.
#include <algorithm>
#include <vector>

#include "device_fixture.h"

namespace reprise::memory::testing {
namespace {

struct Again : DeviceTest {};

TEST_F(Again, MergedBlocksAreHandedOutWhole) {
  void* const stream = SimDriver::S(1);
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<char*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(Get(512 * kKiB, stream));
    char* const begin = *std::min_element(blocks.begin(), blocks.end());
    for (int i : order) Put(blocks[i]);
    EXPECT_EQ(Get(kMiB, stream), begin);
    EXPECT_EQ(Get(kMiB, stream), begin + kMiB) << "the second half of the segment is lost";
    EXPECT_EQ(Segments(), 1);
    Put(begin);
    Put(begin + kMiB);
    ASSERT_EQ(a().EmptyCache().code(), 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

// Only a pool that is not there takes functions, so whether it is gone can be told.
TEST_F(Again, APoolWhoseMemoryHasGoneIsMadeAnew) {
  void* const stream = SimDriver::S(1);
  const PoolId pool{0, 3};
  DeviceAllocator::PoolOptions options;
  options.allocate = [&](uint64_t bytes, int, void*) { return sim.Allocate(0, bytes).value(); };
  options.free = [&](void* segment, uint64_t, int, void*) { sim.Free(0, segment); };
  ASSERT_EQ(a().BeginAllocateToPool(0, pool, OnStream(stream)).code(), 0);
  char* const block = Get(512, stream);
  ASSERT_EQ(a().EndAllocateToPool(0, pool).code(), 0);
  ASSERT_EQ(a().ReleasePool(0, pool).code(), 0);
  Put(block);
  EXPECT_EQ(a().CreateOrUsePool(0, pool, options).code(), 107000) << "its memory is still cached";
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(a().CreateOrUsePool(0, pool, options).code(), 0) << "nothing is left of it";
  EXPECT_EQ(a().ReleasePool(0, pool).code(), 0);
}

}  // namespace
}  // namespace reprise::memory::testing
