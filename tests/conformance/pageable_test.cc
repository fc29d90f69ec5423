// SPDX-License-Identifier: Apache-2.0
//
// Host memory in asynchronous copies: AG-079 … AG-089.
//
// "Pageable" is a std::vector: neither from aclrtMallocHost nor registered.
#include "fixture.h"
#include "weak.h"

#include <cstdlib>

namespace reprise::conformance {
namespace {

TEST_F(AclGraph, AG_079_CapturedCopyFromPageableMemoryIsRefused) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(1);
  std::vector<uint64_t> pageable(1, 5);
  Begin(s, kRelaxed);
  EXPECT_ACL(107000, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  ExpectActive(s);
  EXPECT_ACL(107000, aclrtMemcpyAsync(pageable.data(), 8, cell, 8, ACL_MEMCPY_DEVICE_TO_HOST, s));
  ExpectActive(s);
  const aclmdlRI model = End(s);
  EXPECT_EQ(CountTasks(model), 0U);
  Replay(model, s);
  EXPECT_EQ(ReadCell(cell), 1U);
  EXPECT_EQ(pageable[0], 5U);
}

TEST_F(AclGraph, AG_080_CapturedCopyFromPinnedMemoryCopiesAtReplay) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(1);
  uint64_t* const pinned = NewPinned(1, 5);
  Begin(s);
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  const aclmdlRI model = End(s);
  Sync(s);
  EXPECT_EQ(ReadCell(cell), 1U);
  pinned[0] = 6;  // the pointer was captured, not the content
  Replay(model, s);
  EXPECT_EQ(ReadCell(cell), 6U);
}

TEST_F(AclGraph, AG_081_EachReplayCopiesTheNewContent) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell();
  uint64_t* const in = NewPinned(1);
  uint64_t* const out = NewPinned(1);
  Begin(s);
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, in, 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  MUST(Axpb(s, cell, 10, 1));
  EXPECT_ACL(0, aclrtMemcpyAsync(out, 8, cell, 8, ACL_MEMCPY_DEVICE_TO_HOST, s));
  const aclmdlRI model = End(s);
  for (uint64_t round = 1; round <= 3; ++round) {
    in[0] = round;
    out[0] = 0;
    Replay(model, s);
    EXPECT_EQ(out[0], 10 * round + 1);
  }
}

TEST_F(AclGraph, AG_082_PageableCopyOnOtherStreamIsRefusedForARestrictedThread) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  uint64_t* const cell = NewCell(1);
  const std::vector<uint64_t> pageable(1, 5);
  Begin(s1, kGlobal);
  EXPECT_ACL(107041, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
  Sync(s2);
  EXPECT_EQ(ReadCell(cell), 1U);
  ExpectActive(s1);
  End(s1);
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
  Sync(s2);
  EXPECT_EQ(ReadCell(cell), 5U);
}

TEST_F(AclGraph, AG_083_PageableCopyOnOtherStreamWorksDuringARelaxedCapture) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  uint64_t* const cell = NewCell(1);
  const std::vector<uint64_t> pageable(1, 5);
  Begin(s1, kRelaxed);
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
  Sync(s2);
  EXPECT_EQ(ReadCell(cell), 5U);
  ExpectActive(s1);
  ExpectIdle(s2);
  EXPECT_EQ(CountTasks(End(s1)), 0U);
}

TEST_F(AclGraph, AG_084_PageableCopyOfAnotherThreadWorksDuringAThreadLocalCapture) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  uint64_t* const cell = NewCell(1);
  const std::vector<uint64_t> pageable(1, 5);
  Begin(s1, kThreadLocal);
  Worker u(context());
  u.Run([&] {
    EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
    Sync(s2);
  });
  EXPECT_EQ(ReadCell(cell), 5U);
  // The begin thread itself is restricted.
  EXPECT_ACL(107041, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
  ExpectActive(s1);
  End(s1);
}

TEST_F(AclGraph, AG_085_PageableCopyOutsideCapturesIsDoneAtReturn) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(1);
  std::vector<uint64_t> pageable(1, 5);
  MUST(Launch(s, "slow_axpb", cell, uint64_t{1}, uint64_t{1}, kSlowUs));
  std::vector<uint64_t> back(1, 0);
  EXPECT_ACL(0, aclrtMemcpyAsync(back.data(), 8, cell, 8, ACL_MEMCPY_DEVICE_TO_HOST, s));
  EXPECT_EQ(back[0], 2U) << "the copy comes after earlier work of its stream and is complete at return";
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  pageable[0] = 6;
  EXPECT_EQ(ReadCell(cell), 5U);
}

TEST_F(AclGraph, AG_086_CapturedDeviceCopyRunsAtReplayOnly) {
  const aclrtStream s = NewStream();
  uint64_t* const src = NewCell(5);
  uint64_t* const dst = NewCell(1);
  Begin(s);
  EXPECT_ACL(0, aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, s));
  const aclmdlRI model = End(s);
  Sync(s);
  EXPECT_EQ(ReadCell(dst), 1U);
  EXPECT_EQ(CountTasks(model), 1U);
  Replay(model, s);
  EXPECT_EQ(ReadCell(dst), 5U);
}

TEST_F(AclGraph, AG_087_CapturedHostToHostCopyIsRefused) {
  const aclrtStream s = NewStream();
  uint64_t* const src = NewPinned(1, 5);
  uint64_t* const dst = NewPinned(1, 1);
  Begin(s);
  EXPECT_ACL(207000, aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_HOST_TO_HOST, s));
  ExpectActive(s);
  const aclmdlRI model = End(s);
  EXPECT_EQ(CountTasks(model), 0U);
  Replay(model, s);
  EXPECT_EQ(dst[0], 1U);
}

TEST_F(AclGraph, AG_088_CapturedCopyFromRegisteredMemoryCopiesAtReplay) {
  constexpr size_t kPage = 4096;
  void* const memory = std::aligned_alloc(kPage, kPage);
  ASSERT_NE(memory, nullptr);
  const Finally release([memory] {
    (void)aclrtHostUnregister(memory);
    std::free(memory);
  });
  auto* const host = static_cast<uint64_t*>(memory);
  host[0] = 5;
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(1);
  void* alias = nullptr;
  EXPECT_ACL(0, aclrtHostRegister(memory, kPage, ACL_HOST_REGISTER_MAPPED, &alias));
  Begin(s);
  EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  const aclmdlRI model = End(s);
  host[0] = 6;
  Replay(model, s);
  EXPECT_EQ(ReadCell(cell), 6U);
  DestroyModel(model);
  // Unregistered, it is pageable again.
  EXPECT_ACL(0, aclrtHostUnregister(memory));
  Begin(s);
  EXPECT_ACL(107000, aclrtMemcpyAsync(cell, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE, s));
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_089_CapturedMemcpy2dFromPageableMemoryIsRefused) {
  const aclrtStream s = NewStream();
  uint64_t* const cells = NewCells(4, 1);
  const std::vector<uint64_t> pageable = {5, 6};
  uint64_t* const pinned = NewPinned(2, 7);
  Begin(s, kRelaxed);
  EXPECT_ACL(107000, aclrtMemcpy2dAsync(cells, 16, pageable.data(), 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, s));
  ExpectActive(s);
  EXPECT_ACL(0, aclrtMemcpy2dAsync(cells, 16, pinned, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE, s));
  const aclmdlRI model = End(s);
  Replay(model, s);
  EXPECT_THAT(ReadCells(cells, 4), ElementsAre(7, 1, 7, 1));
}

}  // namespace
}  // namespace reprise::conformance
