// SPDX-License-Identifier: Apache-2.0
//
// Queue buffers: memory, length, user area, references, chains. Both sets of functions work on the same objects.
#include "fixture.h"

namespace reprise::testing {
namespace {

class BufferTest : public Runtime {};

TEST_F(BufferTest, HasMemoryAndLength) {
  aclrtMbuf buf = nullptr;
  MUST(aclrtAllocBuf(&buf, 1000));
  void* data = nullptr;
  size_t size = 0, length = 1;
  MUST(aclrtGetBufData(buf, &data, &size));
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  std::memset(data, 7, size);
  MUST(aclrtGetBufDataLen(buf, &length));
  EXPECT_EQ(length, 0u) << "nothing is valid yet";
  MUST(aclrtSetBufDataLen(buf, 1000));
  MUST(aclrtGetBufDataLen(buf, &length));
  EXPECT_EQ(length, 1000u);
  EXPECT_ACL(107000, aclrtSetBufDataLen(buf, 1001));
  EXPECT_ACL(107000, aclrtSetBufDataLen(buf, SIZE_MAX));
  MUST(aclrtGetBufDataLen(buf, &length));
  EXPECT_EQ(length, 1000u);
  MUST(aclrtFreeBuf(buf));
  EXPECT_ACL(107017, aclrtFreeBuf(buf));
  EXPECT_ACL(107017, aclrtGetBufData(buf, &data, &size));
}

TEST_F(BufferTest, MemoryOfBothTypes) {
  for (const uint32_t type : {ACL_TDT_NORMAL_MEM, ACL_TDT_DVPP_MEM}) {
    acltdtBuf buf = nullptr;
    MUST(acltdtAllocBuf(1, type, &buf));
    MUST(acltdtFreeBuf(buf));
  }
  acltdtBuf buf = nullptr;
  EXPECT_ACL(100000, acltdtAllocBuf(1, 2, &buf));
  EXPECT_ACL(100000, acltdtAllocBuf(0, ACL_TDT_NORMAL_MEM, &buf));
  EXPECT_ACL(100000, aclrtAllocBuf(&buf, 0));
  EXPECT_ACL(207001, acltdtAllocBuf(SIZE_MAX, ACL_TDT_NORMAL_MEM, &buf));
  EXPECT_ACL(207001, aclrtAllocBuf(&buf, SIZE_MAX / 2));
  EXPECT_EQ(buf, nullptr);
}

TEST_F(BufferTest, UserAreaHas96Bytes) {
  const acltdtBuf buf = NewBuf(8);
  std::vector<uint8_t> in(96), out(96, 0xFF);
  MUST(acltdtGetBufUserData(buf, out.data(), 96, 0));
  EXPECT_EQ(out, in) << "zero at first";
  std::iota(in.begin(), in.end(), uint8_t{1});
  MUST(acltdtSetBufUserData(buf, in.data(), 96, 0));
  MUST(acltdtSetBufUserData(buf, in.data(), 1, 95));
  in[95] = 1;
  MUST(acltdtGetBufUserData(buf, out.data(), 96, 0));
  EXPECT_EQ(out, in);
  MUST(aclrtGetBufUserData(buf, out.data(), 4, 90));
  EXPECT_EQ(out[0], 91);
  const std::pair<size_t, size_t> outside[] = {
      {97, 0}, {96, 1}, {1, 96}, {2, 95}, {SIZE_MAX, 0}, {1, SIZE_MAX}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX, 2}};
  for (const auto& [size, offset] : outside) {
    EXPECT_ACL(100000, acltdtSetBufUserData(buf, in.data(), size, offset)) << size << " at " << offset;
    EXPECT_ACL(100000, aclrtGetBufUserData(buf, in.data(), size, offset)) << size << " at " << offset;
  }
  MUST(acltdtGetBufUserData(buf, out.data(), 0, 96));
  MUST(acltdtFreeBuf(buf));
}

TEST_F(BufferTest, ReferencesShareTheBlock) {
  const acltdtBuf buf = NewBuf(16);
  acltdtBuf twin = nullptr;
  MUST(acltdtCopyBufRef(buf, &twin));
  EXPECT_NE(buf, twin);
  void *first = nullptr, *second = nullptr;
  size_t size = 0;
  MUST(acltdtGetBufData(buf, &first, &size));
  MUST(aclrtGetBufData(twin, &second, &size));
  EXPECT_EQ(first, second);
  const char word[] = "user";
  char read[sizeof word] = "";
  MUST(aclrtSetBufUserData(buf, word, sizeof word, 3));
  MUST(aclrtSetBufDataLen(buf, 5));
  std::memcpy(first, "abcde", 5);
  MUST(acltdtFreeBuf(buf));
  // The block lives on.
  EXPECT_EQ(0, std::memcmp(second, "abcde", 5));
  MUST(acltdtGetBufUserData(twin, read, sizeof read, 3));
  EXPECT_STREQ(read, word);
  MUST(acltdtGetBufDataLen(twin, &size));
  EXPECT_EQ(size, 5u);
  MUST(acltdtFreeBuf(twin));
  EXPECT_ACL(107017, acltdtFreeBuf(twin));
}

TEST_F(BufferTest, ChainsHaveUpTo128Buffers) {
  const aclrtMbuf head = NumberBuf(0);
  uint32_t count = 0;
  MUST(aclrtGetBufChainNum(head, &count));
  EXPECT_EQ(count, 1u);
  std::vector<aclrtMbuf> members{head};
  for (int i = 1; i < 128; ++i) {
    members.push_back(NumberBuf(i));
    MUST(aclrtAppendBufChain(head, members.back()));
  }
  MUST(acltdtGetBufChainNum(head, &count));
  EXPECT_EQ(count, 128u);
  const aclrtMbuf one_more = NumberBuf(128);
  EXPECT_ACL(207012, aclrtAppendBufChain(head, one_more));
  EXPECT_ACL(207012, acltdtAppendBufChain(head, one_more));
  for (uint32_t i = 0; i < 128; ++i) {
    aclrtMbuf found = nullptr;
    MUST(aclrtGetBufFromChain(head, i, &found));
    EXPECT_EQ(found, members[i]);
  }
  aclrtMbuf found = nullptr;
  EXPECT_ACL(107000, aclrtGetBufFromChain(head, 128, &found));
  EXPECT_ACL(107000, acltdtGetBufFromChain(head, UINT32_MAX, &found));
  EXPECT_EQ(found, nullptr);
  MUST(aclrtFreeBuf(one_more));
  MUST(aclrtFreeBuf(head));
  for (const aclrtMbuf member : members) EXPECT_ACL(107017, aclrtFreeBuf(member)) << "went with its head";
}

TEST_F(BufferTest, MembersOfAChain) {
  const acltdtBuf head = NumberBuf(1), member = NumberBuf(2), other = NumberBuf(3), other_member = NumberBuf(4);
  MUST(acltdtAppendBufChain(head, member));
  MUST(acltdtAppendBufChain(other, other_member));
  acltdtBuf found = nullptr;
  uint32_t count = 0;
  EXPECT_ACL(107000, acltdtAppendBufChain(head, head));
  EXPECT_ACL(107000, acltdtAppendBufChain(head, member));
  EXPECT_ACL(107000, acltdtAppendBufChain(other, member)) << "in a chain";
  EXPECT_ACL(107000, acltdtAppendBufChain(member, other)) << "not a head";
  EXPECT_ACL(107000, acltdtAppendBufChain(head, other)) << "has a chain";
  EXPECT_ACL(107000, acltdtFreeBuf(member));
  EXPECT_ACL(107000, acltdtGetBufChainNum(member, &count));
  EXPECT_ACL(107000, acltdtGetBufFromChain(member, 0, &found));
  // Members are otherwise as usable as before.
  size_t length = 0;
  MUST(acltdtSetBufDataLen(member, 4));
  MUST(acltdtGetBufDataLen(member, &length));
  EXPECT_EQ(length, 4u);
  // A copy of a member is a buffer of its own, a copy of a head has a chain of its own.
  acltdtBuf single = nullptr, chain = nullptr;
  MUST(acltdtCopyBufRef(member, &single));
  MUST(acltdtGetBufChainNum(single, &count));
  EXPECT_EQ(count, 1u);
  MUST(acltdtCopyBufRef(head, &chain));
  MUST(acltdtGetBufChainNum(chain, &count));
  EXPECT_EQ(count, 2u);
  MUST(acltdtFreeBuf(head));
  MUST(acltdtGetBufFromChain(chain, 1, &found));
  MUST(acltdtGetBufDataLen(found, &length));
  EXPECT_EQ(length, 4u);
  for (const acltdtBuf buf : {single, chain, other}) MUST(acltdtFreeBuf(buf));
}

TEST_F(BufferTest, ThreadsShareABlock) {
  const acltdtBuf buf = NewBuf(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < Loops(2000, 200); ++i) {
        acltdtBuf twin = nullptr, link = nullptr;
        ASSERT_EQ(0, acltdtCopyBufRef(buf, &twin));
        ASSERT_EQ(0, acltdtCopyBufRef(buf, &link));
        ASSERT_EQ(0, acltdtAppendBufChain(twin, link));
        ASSERT_EQ(0, acltdtSetBufUserData(twin, &i, sizeof i, static_cast<size_t>(t) * sizeof i));
        int read = -1;
        ASSERT_EQ(0, acltdtGetBufUserData(link, &read, sizeof read, static_cast<size_t>(t) * sizeof i));
        ASSERT_EQ(read, i);
        ASSERT_EQ(0, acltdtFreeBuf(twin));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MUST(acltdtFreeBuf(buf));
}

TEST_F(BufferTest, NeedsAContextToBeMade) {
  acltdtBuf buf = nullptr;
  std::thread([&] {
    EXPECT_ACL(107002, acltdtAllocBuf(8, ACL_TDT_NORMAL_MEM, &buf));
    EXPECT_ACL(107002, aclrtAllocBuf(&buf, 8));
  }).join();
  EXPECT_EQ(buf, nullptr);
}

}  // namespace
}  // namespace reprise::testing
