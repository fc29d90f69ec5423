// SPDX-License-Identifier: Apache-2.0
//
// Ranks for tests: a device, a stream and a communicator each, with buffers; and the serial reference.
#pragma once

#include <acl/acl.h>
#include <gtest/gtest.h>
#include <hccl/hccl.h>
#include <hccl/hccl_sym_win.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace reprise::testing {

constexpr int kDevices = 8;

/// Read by the first call of the process.
inline const bool kHasDevices = ::setenv("REPRISE_DEVICES", std::to_string(kDevices).c_str(), 1) == 0;

#define OK(call) ASSERT_EQ(0, static_cast<int>(call)) << ::reprise::testing::Message()
#define EXPECT_OK(call) EXPECT_EQ(0, static_cast<int>(call)) << ::reprise::testing::Message()

inline std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

/// `count` elements of device memory with a value that depends on rank and place.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_EQ(0, aclrtMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST));
  }
  Buffer(Buffer&& other) noexcept : count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  ~Buffer() {
    if (data_ != nullptr) aclrtFree(data_);
  }
  T* data() { return static_cast<T*>(data_); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data()[i]; }
  void Fill(const std::function<T(size_t)>& value) {
    for (size_t i = 0; i < count_; ++i) data()[i] = value(i);
  }
  std::vector<T> Values() { return std::vector<T>(data(), data() + count_); }

 private:
  size_t count_;
  void* data_ = nullptr;
};

/// One rank of this process.
struct Rank {
  uint32_t rank = 0;
  int device = 0;
  aclrtStream stream = nullptr;
  HcclComm comm = nullptr;

  void Use() const { EXPECT_EQ(0, aclrtSetDevice(device)); }
  void Wait() const { EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(stream, 60000)) << Message(); }
};

/// All ranks of a group in this process, device i for rank i.
class Ranks {
 public:
  explicit Ranks(uint32_t count) : ranks_(count) {
    std::vector<int32_t> devices;
    std::vector<HcclComm> comms(count);
    for (uint32_t i = 0; i < count; ++i) devices.push_back(static_cast<int32_t>(i));
    EXPECT_EQ(0, aclrtSetDevice(0));
    EXPECT_EQ(0, static_cast<int>(HcclCommInitAll(count, devices.data(), comms.data()))) << Message();
    for (uint32_t i = 0; i < count; ++i) {
      ranks_[i] = {i, static_cast<int>(i), nullptr, comms[i]};
      ranks_[i].Use();
      EXPECT_EQ(0, aclrtCreateStream(&ranks_[i].stream));
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (Rank& rank : ranks_) {
      rank.Use();
      if (rank.comm != nullptr) HcclCommDestroy(rank.comm);
      aclrtDestroyStreamForce(rank.stream);
    }
  }
  size_t size() const { return ranks_.size(); }
  Rank& operator[](size_t i) { return ranks_[i]; }
  auto begin() { return ranks_.begin(); }
  auto end() { return ranks_.end(); }

  /// One thread drives all ranks, one after the other, then waits for all.
  void InLine(const std::function<void(Rank&)>& submit) {
    for (Rank& rank : ranks_) {
      rank.Use();
      submit(rank);
    }
    for (Rank& rank : ranks_) {
      rank.Use();
      rank.Wait();
    }
  }
  /// A thread for each rank.
  void InThreads(const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      threads.emplace_back([&] {
        rank.Use();
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<Rank> ranks_;
};

}  // namespace reprise::testing
