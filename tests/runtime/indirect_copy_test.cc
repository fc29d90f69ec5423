// SPDX-License-Identifier: Apache-2.0
//
// Copies whose addresses lie in device memory, and the question what sort of memory an address is.
#include "fixture.h"

namespace reprise::testing {
namespace {

constexpr auto kInner = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;

class IndirectCopy : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
    dst_cell_ = static_cast<void**>(NewMemory(sizeof(void*)));
    src_cell_ = static_cast<const void**>(NewMemory(sizeof(void*)));
    a_ = static_cast<uint64_t*>(NewMemory(64));
    b_ = static_cast<uint64_t*>(NewMemory(64));
    for (uint64_t i = 0; i < 8; ++i) a_[i] = 100 + i;
    *dst_cell_ = b_;
    *src_cell_ = a_;
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    for (void* block : {static_cast<void*>(dst_cell_), static_cast<void*>(src_cell_), static_cast<void*>(a_),
                        static_cast<void*>(b_)}) {
      EXPECT_EQ(0, aclrtFree(block));
    }
    Runtime::TearDown();
  }
  aclError Copy(size_t dst_offset, size_t count, size_t src_offset) {
    return aclrtMemcpyAsyncWithOffset(dst_cell_, 64, dst_offset, src_cell_, count, src_offset, kInner, stream_);
  }

  aclrtStream stream_ = nullptr;
  void** dst_cell_ = nullptr;
  const void** src_cell_ = nullptr;
  uint64_t* a_ = nullptr;
  uint64_t* b_ = nullptr;
};

TEST_F(IndirectCopy, ReadsTheCellsWhenItRuns) {
  Gate gate;
  gate.Block(stream_);
  *dst_cell_ = nullptr;  // what the cells hold at the call does not matter
  *src_cell_ = nullptr;
  EXPECT_ACL(0, Copy(8, 16, 24));
  *dst_cell_ = b_;
  *src_cell_ = a_;
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(std::vector<uint64_t>(b_, b_ + 4), ::testing::ElementsAre(0, 103, 104, 0));
}

TEST_F(IndirectCopy, SeesWhatEarlierTasksWrote) {
  *dst_cell_ = nullptr;
  MUST(aclrtValueWrite(dst_cell_, reinterpret_cast<uint64_t>(b_), 0, stream_));
  EXPECT_ACL(0, Copy(0, 8, 0));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(b_[0], 100u);
}

TEST_F(IndirectCopy, LargeCopiesAreComplete) {
  constexpr size_t kBytes = (size_t{4} << 20) + 24;
  auto* from = static_cast<unsigned char*>(NewMemory(kBytes));
  auto* to = static_cast<unsigned char*>(NewMemory(kBytes));
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  *src_cell_ = from;
  *dst_cell_ = to;
  EXPECT_ACL(0, aclrtMemcpyAsyncWithOffset(dst_cell_, kBytes, 0, src_cell_, kBytes, 0, kInner, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(0, std::memcmp(from, to, kBytes));
  // Overlapping ranges are copied as memmove does.
  const std::vector<unsigned char> before(from, from + kBytes - 16);
  *dst_cell_ = from;
  EXPECT_ACL(0, aclrtMemcpyAsyncWithOffset(dst_cell_, kBytes, 16, src_cell_, kBytes - 16, 0, kInner, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(0, std::memcmp(from + 16, before.data(), before.size()));
  EXPECT_EQ(0, aclrtFree(from));
  EXPECT_EQ(0, aclrtFree(to));
}

TEST_F(IndirectCopy, CapturedCellsAreReadAtEveryReplay) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, Copy(0, 8, 0));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(b_[0], 0u);
  for (uint64_t i = 0; i < 3; ++i) {
    *src_cell_ = a_ + i;
    *dst_cell_ = b_ + i;
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(b_[i], 100 + i);
  }
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(IndirectCopy, WildAddressesFailTheTask) {
  char host[8] = {};
  const void* const wild[] = {nullptr, reinterpret_cast<void*>(16), host,
                              a_ + 12};  // 96 bytes: what a block of 64 gets
  for (const void* address : wild) {
    *src_cell_ = address;
    EXPECT_ACL(0, Copy(0, 8, 0));
    EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
    EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  }
  *src_cell_ = a_;
  *dst_cell_ = a_ + 11;
  EXPECT_ACL(0, Copy(0, 16, 0));  // half of it behind the end
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
  EXPECT_ACL(0, Copy(SIZE_MAX - 7, 8, 0));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(a_[7], 107u);
}

TEST_F(IndirectCopy, OffsetArgumentsAreChecked) {
  EXPECT_ACL(0, aclrtMemcpyAsyncWithOffset(nullptr, 0, 0, nullptr, 0, 0, ACL_MEMCPY_DEFAULT, stream_));
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(nullptr, 8, 0, src_cell_, 8, 0, kInner, stream_));
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, nullptr, 8, 0, kInner, stream_));
  for (int kind : {-1, 0, 1, 2, 3, 4, 5, 7, 8}) {
    EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, src_cell_, 8, 0, static_cast<aclrtMemcpyKind>(kind),
                                                  stream_));
  }
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, src_cell_, 9, 0, kInner, stream_));
  EXPECT_ACL(107017, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, src_cell_, 8, 0, kInner, &stream_));
  void* host[2] = {b_, b_};
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(host, 8, 0, src_cell_, 8, 0, kInner, stream_));
  auto* odd = reinterpret_cast<const void**>(reinterpret_cast<char*>(a_) + 4);
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, odd, 8, 0, kInner, stream_));
  EXPECT_ACL(0, aclrtMemcpyAsyncWithOffset(dst_cell_, 8, 0, src_cell_, 8, 0, kInner, nullptr));
  EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
  EXPECT_EQ(b_[0], 100u);
}

class CopyDescriptor : public IndirectCopy {
 protected:
  void SetUp() override {
    IndirectCopy::SetUp();
    MUST(aclrtGetMemcpyDescSize(kInner, &bytes_));
    desc_ = NewMemory(bytes_);
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtFree(desc_));
    IndirectCopy::TearDown();
  }
  size_t bytes_ = 0;
  void* desc_ = nullptr;
};

TEST_F(CopyDescriptor, RunsWhatItHoldsThen) {
  Gate gate;
  gate.Block(stream_);
  EXPECT_ACL(0, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, 8, nullptr));
  EXPECT_ACL(0, aclrtMemcpyAsyncWithDesc(desc_, kInner, stream_));
  EXPECT_ACL(0, aclrtSetMemcpyDesc(desc_, kInner, a_ + 1, b_ + 1, 16, nullptr));
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(std::vector<uint64_t>(b_, b_ + 4), ::testing::ElementsAre(0, 101, 102, 0));
}

TEST_F(CopyDescriptor, CapturedItIsReadAtEveryReplayAndFilledMeanwhile) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, aclrtMemcpyAsyncWithDesc(desc_, kInner, stream_));
  EXPECT_ACL(0, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, 8, nullptr));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  for (uint64_t i = 0; i < 3; ++i) {
    MUST(aclrtSetMemcpyDesc(desc_, kInner, a_ + i, b_ + i, 8, nullptr));
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(b_[i], 100 + i);
  }
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(CopyDescriptor, AnEmptyOneFailsTheTask) {
  EXPECT_ACL(0, aclrtMemcpyAsyncWithDesc(desc_, kInner, stream_));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
}

TEST_F(CopyDescriptor, MemoryThatWasFreedMeanwhileFailsTheTask) {
  void* gone = NewMemory(64);
  MUST(aclrtSetMemcpyDesc(desc_, kInner, gone, b_, 64, nullptr));
  MUST(aclrtFree(gone));
  EXPECT_ACL(0, aclrtMemcpyAsyncWithDesc(desc_, kInner, stream_));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
}

TEST_F(CopyDescriptor, ArgumentsAreChecked) {
  size_t size = 5;
  EXPECT_ACL(100000, aclrtGetMemcpyDescSize(kInner, nullptr));
  EXPECT_ACL(100000, aclrtGetMemcpyDescSize(ACL_MEMCPY_DEVICE_TO_DEVICE, &size));
  EXPECT_EQ(size, 5u);
  EXPECT_ACL(100000, aclrtSetMemcpyDesc(nullptr, kInner, a_, b_, 8, nullptr));
  EXPECT_ACL(100000, aclrtSetMemcpyDesc(desc_, kInner, nullptr, b_, 8, nullptr));
  EXPECT_ACL(100000, aclrtSetMemcpyDesc(desc_, kInner, a_, nullptr, 8, nullptr));
  EXPECT_ACL(100000, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, 0, nullptr));
  EXPECT_ACL(100000, aclrtSetMemcpyDesc(desc_, ACL_MEMCPY_DEFAULT, a_, b_, 8, nullptr));
  EXPECT_ACL(107000, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, 8, &size));
  char host[64] = {};
  EXPECT_ACL(107000, aclrtSetMemcpyDesc(host, kInner, a_, b_, 8, nullptr));
  EXPECT_ACL(107000, aclrtSetMemcpyDesc(desc_, kInner, host, b_, 8, nullptr));
  EXPECT_ACL(107000, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, 1 << 20, nullptr));
  EXPECT_ACL(107000, aclrtSetMemcpyDesc(desc_, kInner, a_, b_, SIZE_MAX, nullptr));
  EXPECT_ACL(100000, aclrtMemcpyAsyncWithDesc(nullptr, kInner, stream_));
  EXPECT_ACL(100000, aclrtMemcpyAsyncWithDesc(desc_, kInner, nullptr));
  EXPECT_ACL(100000, aclrtMemcpyAsyncWithDesc(desc_, ACL_MEMCPY_DEFAULT, stream_));
  EXPECT_ACL(107000, aclrtMemcpyAsyncWithDesc(host, kInner, stream_));
  EXPECT_ACL(107017, aclrtMemcpyAsyncWithDesc(desc_, kInner, host));
  // Nothing of this has written the descriptor.
  MUST(aclrtMemcpyAsyncWithDesc(desc_, kInner, stream_));
  EXPECT_ACL(507053, aclrtSynchronizeStream(stream_));
}

using MemoryType = Runtime;

TEST_F(MemoryType, EveryAddressMustBelongToOneOfTheTypes) {
  void* device = NewMemory(64);
  void* pinned = nullptr;
  MUST(aclrtMallocHost(&pinned, 64));
  void* reserved = nullptr;
  MUST(aclrtReserveMemAddress(&reserved, 2 << 20, 0, nullptr, 0));
  int local = 0;
  const auto check = [](std::vector<void*> addresses, uint32_t types) {
    uint32_t result = 7;
    EXPECT_ACL(0, aclrtCheckMemType(addresses.data(), static_cast<uint32_t>(addresses.size()), types, &result, 0));
    return result;
  };
  EXPECT_EQ(check({device, static_cast<char*>(device) + 63}, ACL_RT_MEM_TYPE_DEV), 1u);
  EXPECT_EQ(check({device}, ACL_RT_MEM_TYPE_DVPP), 0u);
  EXPECT_EQ(check({device}, ACL_RT_MEM_TYPE_RSVD), 0u);
  EXPECT_EQ(check({device}, ACL_RT_MEM_TYPE_DVPP | ACL_RT_MEM_TYPE_DEV), 1u);
  EXPECT_EQ(check({device, pinned}, ACL_RT_MEM_TYPE_DEV), 0u);
  EXPECT_EQ(check({&local}, ACL_RT_MEM_TYPE_DEV | ACL_RT_MEM_TYPE_DVPP | ACL_RT_MEM_TYPE_RSVD), 0u);
  EXPECT_EQ(check({nullptr}, ACL_RT_MEM_TYPE_DEV), 0u);
  EXPECT_EQ(check({reserved}, ACL_RT_MEM_TYPE_RSVD), 1u);
  EXPECT_EQ(check({reserved, device}, ACL_RT_MEM_TYPE_RSVD), 0u);
  EXPECT_EQ(check({reserved, device}, ACL_RT_MEM_TYPE_RSVD | ACL_RT_MEM_TYPE_DEV), 1u);
  MUST(aclrtReleaseMemAddress(reserved));
  EXPECT_EQ(check({reserved}, ACL_RT_MEM_TYPE_RSVD), 0u);
  MUST(aclrtFreeHost(pinned));
  MUST(aclrtFree(device));
}

TEST_F(MemoryType, ArgumentsAreChecked) {
  void* address = nullptr;
  uint32_t result = 7;
  EXPECT_ACL(100000, aclrtCheckMemType(nullptr, 1, ACL_RT_MEM_TYPE_DEV, &result, 0));
  EXPECT_ACL(100000, aclrtCheckMemType(&address, 1, ACL_RT_MEM_TYPE_DEV, nullptr, 0));
  EXPECT_ACL(107000, aclrtCheckMemType(&address, 0, ACL_RT_MEM_TYPE_DEV, &result, 0));
  EXPECT_ACL(107000, aclrtCheckMemType(&address, UINT32_MAX, ACL_RT_MEM_TYPE_DEV, &result, 0));
  for (uint32_t type : {0u, 1u, 4u, 0x22u, UINT32_MAX}) {
    EXPECT_ACL(107000, aclrtCheckMemType(&address, 1, type, &result, 0));
  }
  EXPECT_ACL(107000, aclrtCheckMemType(&address, 1, ACL_RT_MEM_TYPE_DEV, &result, 1));
  EXPECT_EQ(result, 7u);
}

}  // namespace
}  // namespace reprise::testing
