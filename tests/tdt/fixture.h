// SPDX-License-Identifier: Apache-2.0
//
// What the tests of channels and queues are written with.
#pragma once

#include <acl/acl.h>
#include <acl/acl_tdt.h>
#include <acl/acl_tdt_queue.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "../runtime/fixture.h"
#include "../unit/scale.h"

namespace reprise::testing {

constexpr int32_t kLong = kPatience;  // ms; no test gets there

/// A function that returns a pointer returned none, and left a message with the number and its name.
template <class T>
::testing::AssertionResult CheckNone(int code, T* got, const std::string& function) {
  if (got != nullptr) return ::testing::AssertionFailure() << function << " returned an object";
  return CheckAcl(code, code, function);
}
#define EXPECT_NONE(code, ...)                                                                          \
  EXPECT_TRUE(::reprise::testing::CheckNone((code), (::reprise::testing::DropMessage(), (__VA_ARGS__)), \
                                            ::reprise::testing::FunctionOf(#__VA_ARGS__)))

/// Tensor of int32 numbers on the caller's memory.
inline acltdtDataItem* NewItem(std::vector<int32_t>& values, acltdtTensorType type = ACL_TENSOR_DATA_TENSOR) {
  const int64_t dims[] = {static_cast<int64_t>(values.size())};
  acltdtDataItem* item = acltdtCreateDataItem(type, dims, 1, ACL_INT32, values.data(), values.size() * sizeof(int32_t));
  EXPECT_NE(item, nullptr);
  return item;
}

inline std::vector<int32_t> ValuesOf(const acltdtDataItem* item) {
  const auto* data = static_cast<const int32_t*>(acltdtGetDataAddrFromItem(item));
  return {data, data + acltdtGetDataSizeFromItem(item) / sizeof(int32_t)};
}

/// Sends one tensor; the number of acltdtSendTensor.
inline int SendValues(acltdtChannelHandle* channel, std::vector<int32_t> values, int32_t timeout) {
  acltdtDataItem* item = NewItem(values);
  acltdtDataset* dataset = acltdtCreateDataset();
  EXPECT_EQ(0, acltdtAddDataItem(dataset, item));
  const int code = acltdtSendTensor(channel, dataset, timeout);
  EXPECT_EQ(0, acltdtDestroyDataset(dataset));
  EXPECT_EQ(0, acltdtDestroyDataItem(item));
  return code;
}

/// Receives one tensor into `values`; the number of acltdtReceiveTensor.
inline int ReceiveValues(acltdtChannelHandle* channel, std::vector<int32_t>* values, int32_t timeout) {
  acltdtDataset* dataset = acltdtCreateDataset();
  const int code = acltdtReceiveTensor(channel, dataset, timeout);
  if (code == 0) {
    EXPECT_EQ(1u, acltdtGetDatasetSize(dataset));
    *values = ValuesOf(acltdtGetDataItem(dataset, 0));
  }
  EXPECT_EQ(0, acltdtDestroyDataset(dataset));
  return code;
}

inline uint32_t NewQueue(uint32_t depth, const char* name = "test") {
  acltdtQueueAttr* attr = acltdtCreateQueueAttr();
  EXPECT_EQ(0, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &name));
  EXPECT_EQ(0, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &depth));
  uint32_t id = UINT32_MAX;
  EXPECT_EQ(0, acltdtCreateQueue(attr, &id));
  EXPECT_EQ(0, acltdtDestroyQueueAttr(attr));
  return id;
}

inline acltdtBuf NewBuf(size_t bytes) {
  acltdtBuf buf = nullptr;
  EXPECT_EQ(0, acltdtAllocBuf(bytes, ACL_TDT_NORMAL_MEM, &buf));
  return buf;
}

/// A buffer that holds a number.
inline acltdtBuf NumberBuf(int64_t number) {
  const acltdtBuf buf = NewBuf(sizeof number);
  void* data = nullptr;
  size_t size = 0;
  EXPECT_EQ(0, acltdtGetBufData(buf, &data, &size));
  std::memcpy(data, &number, sizeof number);
  EXPECT_EQ(0, acltdtSetBufDataLen(buf, sizeof number));
  return buf;
}

/// Reads the number and frees the buffer.
inline int64_t TakeNumber(acltdtBuf buf) {
  int64_t number = 0;
  void* data = nullptr;
  size_t size = 0, length = 0;
  EXPECT_EQ(0, acltdtGetBufData(buf, &data, &size));
  EXPECT_EQ(0, acltdtGetBufDataLen(buf, &length));
  EXPECT_EQ(length, sizeof number);
  std::memcpy(&number, data, sizeof number);
  EXPECT_EQ(0, acltdtFreeBuf(buf));
  return number;
}

/// Two ends: numbers go in and come out.
inline int PutNumber(uint32_t queue, int64_t number, int32_t timeout = 0) {
  return acltdtEnqueueData(queue, &number, sizeof number, nullptr, 0, timeout, 0);
}
inline int64_t GetNumber(uint32_t queue, int32_t timeout = 0) {
  int64_t number = -1;
  size_t size = 0;
  EXPECT_EQ(0, acltdtDequeueData(queue, &number, sizeof number, &size, nullptr, 0, timeout));
  return number;
}

class RouteList {
 public:
  RouteList(std::initializer_list<std::pair<uint32_t, uint32_t>> routes = {}) {
    for (const auto& [source, destination] : routes) {
      acltdtQueueRoute* route = acltdtCreateQueueRoute(source, destination);
      EXPECT_EQ(0, acltdtAddQueueRoute(list_, route));
      EXPECT_EQ(0, acltdtDestroyQueueRoute(route));
    }
  }
  RouteList(const RouteList&) = delete;
  RouteList& operator=(const RouteList&) = delete;
  ~RouteList() { EXPECT_EQ(0, acltdtDestroyQueueRouteList(list_)); }
  operator acltdtQueueRouteList*() const { return list_; }  // NOLINT: to be passed to calls

  struct Entry {
    uint32_t source, destination;
    int32_t status;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries() const {
    std::vector<Entry> all;
    acltdtQueueRoute* route = acltdtCreateQueueRoute(0, 0);
    for (size_t i = 0; i < acltdtGetQueueRouteNum(list_); ++i) {
      Entry entry{};
      size_t size = 0;
      EXPECT_EQ(0, acltdtGetQueueRoute(list_, i, route));
      EXPECT_EQ(0, acltdtGetQueueRouteParam(route, ACL_TDT_QUEUE_ROUTE_SRC_UINT32, 4, &size, &entry.source));
      EXPECT_EQ(0, acltdtGetQueueRouteParam(route, ACL_TDT_QUEUE_ROUTE_DST_UINT32, 4, &size, &entry.destination));
      EXPECT_EQ(0, acltdtGetQueueRouteParam(route, ACL_TDT_QUEUE_ROUTE_STATUS_INT32, 4, &size, &entry.status));
      EXPECT_EQ(size, 4u);
      all.push_back(entry);
    }
    EXPECT_EQ(0, acltdtDestroyQueueRoute(route));
    return all;
  }

 private:
  acltdtQueueRouteList* const list_ = acltdtCreateQueueRouteList();
};

}  // namespace reprise::testing
