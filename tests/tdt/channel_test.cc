// SPDX-License-Identifier: Apache-2.0
//
// Tensor channels: items, datasets, sending and receiving.
#include <atomic>
#include <mutex>

#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) { RestartWith(argv, {{"REPRISE_DEVICES", "2"}}); }

// Channels need no current context.
class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override { DropMessage(); }
  static acltdtChannelHandle* Open(size_t capacity = 4, const char* name = "test", uint32_t device = 0) {
    acltdtChannelHandle* channel = acltdtCreateChannelWithCapacity(device, name, capacity);
    EXPECT_NE(channel, nullptr);
    return channel;
  }
  static size_t SizeOf(const acltdtChannelHandle* channel) {
    size_t size = SIZE_MAX;
    EXPECT_EQ(0, acltdtQueryChannelSize(channel, &size));
    return size;
  }
};

// ---- Items and datasets ----

TEST_F(ChannelTest, ItemTellsWhatItWasMadeOf) {
  float data[6] = {};
  const int64_t dims[] = {2, 3};
  acltdtDataItem* item = acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, dims, 2, ACL_FLOAT, data, sizeof data);
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(acltdtGetTensorTypeFromItem(item), ACL_TENSOR_DATA_TENSOR);
  EXPECT_EQ(acltdtGetDataTypeFromItem(item), ACL_FLOAT);
  EXPECT_EQ(acltdtGetDataAddrFromItem(item), data);
  EXPECT_EQ(acltdtGetDataSizeFromItem(item), sizeof data);
  EXPECT_EQ(acltdtGetDimNumFromItem(item), 2u);
  int64_t read[3] = {-7, -7, -7};
  EXPECT_ACL(100000, acltdtGetDimsFromItem(item, read, 1));
  EXPECT_ACL(100000, acltdtGetDimsFromItem(item, read, 0));
  EXPECT_EQ(read[0], -7);
  MUST(acltdtGetDimsFromItem(item, read, 3));
  EXPECT_EQ(read[0], 2);
  EXPECT_EQ(read[1], 3);
  EXPECT_EQ(read[2], -7) << "only what there is";
  size_t count = 9, id = 9;
  MUST(acltdtGetSliceInfoFromItem(item, &count, &id));
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(id, 0u);
  MUST(acltdtDestroyDataItem(item));
  EXPECT_ACL(107017, acltdtDestroyDataItem(item));
  EXPECT_EQ(acltdtGetTensorTypeFromItem(item), ACL_TENSOR_DATA_UNDEFINED);
  EXPECT_EQ(acltdtGetDataTypeFromItem(item), ACL_DT_UNDEFINED);
  EXPECT_NONE(107017, acltdtGetDataAddrFromItem(item));
  EXPECT_EQ(acltdtGetDataSizeFromItem(item), 0u);
  EXPECT_EQ(acltdtGetDimNumFromItem(item), 0u);
  DropMessage();
}

TEST_F(ChannelTest, WhatIsNoItem) {
  float data[6] = {};
  const int64_t dims[] = {2, 3}, negative[] = {2, -1}, huge[] = {INT64_MAX, INT64_MAX};
  constexpr auto kType = ACL_TENSOR_DATA_TENSOR;
  EXPECT_NONE(100000, acltdtCreateDataItem(ACL_TENSOR_DATA_UNDEFINED, dims, 2, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(static_cast<acltdtTensorType>(5), dims, 2, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, nullptr, 2, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 129, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, SIZE_MAX, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, negative, 2, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, huge, 2, ACL_FLOAT, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, ACL_DT_UNDEFINED, data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, static_cast<aclDataType>(5), data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, static_cast<aclDataType>(1000), data, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, ACL_FLOAT, nullptr, 24));
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, ACL_FLOAT, data, 23)) << "smaller than its dimensions";
  EXPECT_NONE(100000, acltdtCreateDataItem(kType, dims, 2, ACL_FLOAT, data, SIZE_MAX));
}

TEST_F(ChannelTest, OddItems) {
  char text[] = "some text";
  const int64_t empty[] = {0, 5};
  const int64_t one[] = {1};
  acltdtDataItem* const items[] = {
      acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, nullptr, 0, ACL_STRING, text, sizeof text),
      acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, empty, 2, ACL_FLOAT, nullptr, 0),
      acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, one, 1, ACL_INT8, text, sizeof text),  // more than it needs
      acltdtCreateDataItem(ACL_TENSOR_DATA_END_OF_SEQUENCE, nullptr, 0, ACL_DT_UNDEFINED, nullptr, 0),
      acltdtCreateDataItem(ACL_TENSOR_DATA_ABNORMAL, nullptr, 0, ACL_STRING, text, sizeof text),
      acltdtCreateDataItem(ACL_TENSOR_DATA_SLICE_TENSOR, one, 1, ACL_INT8, text, 1),
      acltdtCreateDataItem(ACL_TENSOR_DATA_END_TENSOR, one, 1, ACL_INT8, text, 1),
  };
  acltdtDataset* sent = acltdtCreateDataset();
  for (acltdtDataItem* item : items) {
    ASSERT_NE(item, nullptr);
    MUST(acltdtAddDataItem(sent, item));
  }
  EXPECT_STREQ(acltdtGetDatasetName(sent), "");
  acltdtChannelHandle* channel = Open();
  MUST(acltdtSendTensor(channel, sent, 0));
  acltdtDataset* got = acltdtCreateDataset();
  MUST(acltdtReceiveTensor(channel, got, 0));
  EXPECT_STREQ(acltdtGetDatasetName(got), "test");
  ASSERT_EQ(acltdtGetDatasetSize(got), std::size(items));
  for (size_t i = 0; i < std::size(items); ++i) {
    acltdtDataItem* item = acltdtGetDataItem(got, i);
    EXPECT_EQ(acltdtGetTensorTypeFromItem(item), acltdtGetTensorTypeFromItem(items[i]));
    EXPECT_EQ(acltdtGetDataTypeFromItem(item), acltdtGetDataTypeFromItem(items[i]));
    EXPECT_EQ(acltdtGetDimNumFromItem(item), acltdtGetDimNumFromItem(items[i]));
    EXPECT_EQ(acltdtGetDataSizeFromItem(item), acltdtGetDataSizeFromItem(items[i]));
    EXPECT_EQ(acltdtGetDataAddrFromItem(item) == nullptr, acltdtGetDataSizeFromItem(items[i]) == 0);
    int64_t dims[2] = {-1, -1}, expected[2] = {-1, -1};
    MUST(acltdtGetDimsFromItem(item, dims, 2));
    MUST(acltdtGetDimsFromItem(items[i], expected, 2));
    EXPECT_EQ(dims[0], expected[0]);
    EXPECT_EQ(dims[1], expected[1]);
  }
  EXPECT_STREQ(static_cast<char*>(acltdtGetDataAddrFromItem(acltdtGetDataItem(got, 0))), text);
  MUST(acltdtGetDimsFromItem(items[0], nullptr, 0));
  EXPECT_NONE(100000, acltdtGetDataItem(got, std::size(items)));
  EXPECT_NONE(100000, acltdtGetDataItem(got, SIZE_MAX));
  MUST(acltdtDestroyDataset(got));
  MUST(acltdtDestroyDataset(sent));
  for (acltdtDataItem* item : items) MUST(acltdtDestroyDataItem(item)) << "not owned by the dataset";
  MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, ReceiverHasItsOwnCopies) {
  acltdtChannelHandle* channel = Open();
  std::vector<int32_t> values{1, 2, 3};
  acltdtDataItem* item = NewItem(values);
  acltdtDataset *sent = acltdtCreateDataset(), *got = acltdtCreateDataset();
  MUST(acltdtAddDataItem(sent, item));
  MUST(acltdtAddDataItem(sent, item)) << "twice";
  MUST(acltdtSendTensor(channel, sent, 0));
  values.assign(3, 0);
  MUST(acltdtDestroyDataItem(item));
  EXPECT_ACL(107017, acltdtSendTensor(channel, sent, 0)) << "its items are gone";
  MUST(acltdtDestroyDataset(sent));
  MUST(acltdtReceiveTensor(channel, got, 0));
  ASSERT_EQ(acltdtGetDatasetSize(got), 2u);
  acltdtDataItem* received = acltdtGetDataItem(got, 1);
  EXPECT_EQ(ValuesOf(received), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_NE(acltdtGetDataAddrFromItem(received), values.data());
  EXPECT_NE(acltdtGetDataAddrFromItem(received), acltdtGetDataAddrFromItem(acltdtGetDataItem(got, 0)));
  EXPECT_ACL(100000, acltdtDestroyDataItem(received)) << "belongs to its dataset";
  // What was received can be sent on, also as part of another dataset.
  MUST(acltdtSendTensor(channel, got, 0));
  acltdtDataset* mixed = acltdtCreateDataset();
  MUST(acltdtAddDataItem(mixed, received));
  MUST(acltdtSendTensor(channel, mixed, 0));
  EXPECT_ACL(100000, acltdtReceiveTensor(channel, mixed, 0)) << "holds an item that was added";
  EXPECT_EQ(SizeOf(channel), 2u);
  // Receiving again replaces what was received.
  MUST(acltdtReceiveTensor(channel, got, 0));
  EXPECT_EQ(acltdtGetDatasetSize(got), 2u);
  EXPECT_EQ(acltdtGetDataSizeFromItem(received), 0u) << "went when the dataset was received into again";
  EXPECT_ACL(107017, acltdtSendTensor(channel, mixed, 0));
  MUST(acltdtReceiveTensor(channel, got, 0));
  EXPECT_EQ(acltdtGetDatasetSize(got), 1u);
  received = acltdtGetDataItem(got, 0);
  MUST(acltdtDestroyDataset(got));
  EXPECT_ACL(107017, acltdtDestroyDataItem(received));
  MUST(acltdtDestroyDataset(mixed));
  MUST(acltdtDestroyChannel(channel));
}

// ---- Channels ----

TEST_F(ChannelTest, KeepsTheOrderAndItsCapacity) {
  acltdtChannelHandle* channel = Open(3);
  std::vector<int32_t> values;
  EXPECT_EQ(207013, ReceiveValues(channel, &values, 0));
  EXPECT_TRUE(CheckAcl(207013, 207013, "acltdtReceiveTensor"));
  for (int i = 0; i < 3; ++i) MUST(SendValues(channel, {i}, 0));
  EXPECT_EQ(SizeOf(channel), 3u);
  EXPECT_EQ(207014, SendValues(channel, {3}, 0));
  EXPECT_TRUE(CheckAcl(207014, 207014, "acltdtSendTensor"));
  EXPECT_EQ(SizeOf(channel), 3u);
  for (int i = 0; i < 3; ++i) {
    MUST(ReceiveValues(channel, &values, 0));
    EXPECT_EQ(values, std::vector<int32_t>{i});
  }
  EXPECT_EQ(SizeOf(channel), 0u);
  MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, TimeoutsEnd) {
  acltdtChannelHandle* channel = Open(1);
  std::vector<int32_t> values;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(207013, ReceiveValues(channel, &values, 20));
  MUST(SendValues(channel, {1}, kLong));
  EXPECT_EQ(207014, SendValues(channel, {2}, 20));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
  EXPECT_EQ(100000, SendValues(channel, {2}, -2));
  EXPECT_EQ(100000, ReceiveValues(channel, &values, INT32_MIN));
  MUST(ReceiveValues(channel, &values, kLong));
  EXPECT_EQ(values, std::vector<int32_t>{1});
  MUST(acltdtDestroyChannel(channel));
  DropMessage();
}

TEST_F(ChannelTest, OneNameIsOneChannel) {
  acltdtChannelHandle *one = Open(2, "same"), *two = acltdtCreateChannel(0, "same"), *three = Open(2, "same");
  acltdtChannelHandle *elsewhere = Open(2, "same", 1), *other = Open(2, "other");
  ASSERT_NE(two, nullptr);
  EXPECT_NONE(100000, acltdtCreateChannelWithCapacity(0, "same", 3)) << "has capacity 2";
  MUST(SendValues(one, {5}, 0));
  EXPECT_EQ(SizeOf(two), 1u);
  EXPECT_EQ(SizeOf(elsewhere), 0u);
  EXPECT_EQ(SizeOf(other), 0u);
  MUST(acltdtDestroyChannel(one));
  EXPECT_ACL(107017, acltdtDestroyChannel(one));
  MUST(acltdtDestroyChannel(three));
  std::vector<int32_t> values;
  MUST(ReceiveValues(two, &values, 0));
  EXPECT_EQ(values, std::vector<int32_t>{5});
  MUST(SendValues(two, {6}, 0));
  MUST(acltdtDestroyChannel(two));
  one = Open(3, "same");
  EXPECT_EQ(SizeOf(one), 0u) << "a new channel";
  for (acltdtChannelHandle* channel : {one, elsewhere, other}) MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, WhatIsNoChannel) {
  EXPECT_NONE(107001, acltdtCreateChannel(2, "test"));
  EXPECT_NONE(107001, acltdtCreateChannel(UINT32_MAX, "test"));
  EXPECT_NONE(100000, acltdtCreateChannel(0, nullptr));
  EXPECT_NONE(100000, acltdtCreateChannel(0, ""));
  EXPECT_NONE(100000, acltdtCreateChannel(0, std::string(128, 'x').c_str()));
  EXPECT_NONE(100000, acltdtCreateChannelWithCapacity(0, "test", 0));
  EXPECT_NONE(100000, acltdtCreateChannelWithCapacity(0, "test", SIZE_MAX));
  EXPECT_NONE(107001, acltdtCreateChannelWithCapacity(7, "test", 1));
  acltdtChannelHandle* channel = acltdtCreateChannel(0, std::string(127, 'x').c_str());
  ASSERT_NE(channel, nullptr);
  MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, CleanDropsAndLetsSendersOn) {
  acltdtChannelHandle* channel = Open(1);
  MUST(SendValues(channel, {1}, 0));
  std::thread sender([&] { EXPECT_EQ(0, SendValues(channel, {2}, kLong)); });
  // The sender comes through after the first clean, or at once when the clean was first.
  MUST(acltdtCleanChannel(channel));
  sender.join();
  std::vector<int32_t> values;
  MUST(ReceiveValues(channel, &values, 0));
  EXPECT_EQ(values, std::vector<int32_t>{2});
  MUST(acltdtCleanChannel(channel));
  EXPECT_EQ(SizeOf(channel), 0u);
  MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, StoppedChannelGivesWhatIsLeft) {
  acltdtChannelHandle* channel = Open(2);
  MUST(SendValues(channel, {1}, 0));
  MUST(acltdtStopChannel(channel));
  MUST(acltdtStopChannel(channel));
  EXPECT_EQ(507005, SendValues(channel, {2}, -1));
  EXPECT_TRUE(CheckAcl(507005, 507005, "acltdtSendTensor"));
  std::vector<int32_t> values;
  MUST(ReceiveValues(channel, &values, -1));
  EXPECT_EQ(values, std::vector<int32_t>{1});
  EXPECT_EQ(507005, ReceiveValues(channel, &values, -1));
  EXPECT_TRUE(CheckAcl(507005, 507005, "acltdtReceiveTensor"));
  acltdtChannelHandle* same = acltdtCreateChannel(0, "test");
  EXPECT_EQ(507005, ReceiveValues(same, &values, -1)) << "the same channel";
  MUST(acltdtDestroyChannel(channel));
  MUST(acltdtDestroyChannel(same));
  channel = Open(2);
  MUST(SendValues(channel, {1}, 0)) << "a new one";
  MUST(acltdtDestroyChannel(channel));
}

// Callers come to wait at any time around the call that ends it; every one must end.
TEST_F(ChannelTest, StopAndDestroyWakeWaiters) {
  for (int round = 0; round < Loops(200, 30); ++round) {
    const bool stop = round % 2 == 0, sends = round % 4 < 2;
    acltdtChannelHandle* channel = Open(1);
    if (sends) {
      ASSERT_EQ(0, SendValues(channel, {0}, 0));
    }
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        started.fetch_add(1);
        std::vector<int32_t> values;
        const int code = sends ? SendValues(channel, {1}, -1) : ReceiveValues(channel, &values, -1);
        EXPECT_EQ(code, stop ? 507005 : 107017);
      });
    }
    while (started.load() < 3) std::this_thread::yield();
    for (int i = 0; i < round; ++i) std::this_thread::yield();
    ASSERT_EQ(0, stop ? acltdtStopChannel(channel) : acltdtDestroyChannel(channel));
    for (std::thread& thread : threads) thread.join();
    if (stop) {
      ASSERT_EQ(0, acltdtDestroyChannel(channel));
    }
  }
  DropMessage();
}

TEST_F(ChannelTest, DestroyWakesOnlyItsOwnWaiters) {
  acltdtChannelHandle *one = Open(1), *two = Open(1);
  std::thread first([&] {
    std::vector<int32_t> values;
    EXPECT_EQ(107017, ReceiveValues(one, &values, -1));
  });
  std::thread second([&] {
    std::vector<int32_t> values;
    EXPECT_EQ(0, ReceiveValues(two, &values, -1));
    EXPECT_EQ(values, std::vector<int32_t>{4});
  });
  MUST(acltdtDestroyChannel(one));
  first.join();
  MUST(SendValues(two, {4}, 0));
  second.join();
  MUST(acltdtDestroyChannel(two));
}

// Every number arrives once, those of one sender in their order.
TEST_F(ChannelTest, ManySendersAndReceivers) {
  constexpr int kSenders = 3, kReceivers = 3;
  const int each = Loops(2000, 200);
  acltdtChannelHandle* channel = Open(8);
  std::mutex mutex;
  std::vector<int> seen(static_cast<size_t>(kSenders * each));
  std::vector<std::thread> senders, receivers;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      for (int i = 0; i < each; ++i) ASSERT_EQ(0, SendValues(channel, {s, i}, kLong));
    });
  }
  for (int r = 0; r < kReceivers; ++r) {
    receivers.emplace_back([&] {
      std::vector<int> last(kSenders, -1);
      std::vector<int32_t> values;
      int code;
      while ((code = ReceiveValues(channel, &values, kLong)) == 0) {
        ASSERT_EQ(values.size(), 2u);
        const auto sender = static_cast<size_t>(values[0]);
        ASSERT_GT(values[1], last[sender]);
        last[sender] = values[1];
        std::lock_guard lock(mutex);
        ++seen[sender * static_cast<size_t>(each) + static_cast<size_t>(values[1])];
      }
      EXPECT_EQ(code, 507005);
    });
  }
  for (std::thread& thread : senders) thread.join();
  MUST(acltdtStopChannel(channel));  // what is left is still given out
  for (std::thread& thread : receivers) thread.join();
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  MUST(acltdtDestroyChannel(channel));
}

TEST_F(ChannelTest, OutlivesAResetOfTheDevice) {
  MUST(aclrtSetDevice(0));
  acltdtChannelHandle* channel = Open();
  MUST(SendValues(channel, {9}, 0));
  MUST(aclrtResetDeviceForce(0));
  std::vector<int32_t> values;
  MUST(ReceiveValues(channel, &values, 0));
  EXPECT_EQ(values, std::vector<int32_t>{9});
  MUST(acltdtDestroyChannel(channel));
}

}  // namespace
}  // namespace reprise::testing
