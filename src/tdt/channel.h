// SPDX-License-Identifier: Apache-2.0
//
// Tensor channels: named, bounded queues inside the process that carry datasets, which are lists of host tensors.
//
// Whoever opens a channel with the device and the name of an open one is at the other end of the same queue. It ends,
// with what it holds, when its last handle is destroyed; a reset of the device leaves it.
//
// Who owns what: an item that a program makes is a view of the program's memory, and the program destroys it. A dataset
// refers to its items, it does not own them. Receiving is the exception: the received items own copies of the data, and
// belong to the dataset that they were received into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::tdt {

constexpr size_t kDefaultCapacity = 128;
constexpr size_t kMaxCapacity = size_t{1} << 20;
constexpr size_t kMaxDims = 128;

// ---- Items ----

/// What an item is made of; the types are numbers of acltdtTensorType and aclDataType. Does not change.
struct Item {
  int type = 0;
  int data_type = -1;
  std::vector<int64_t> dims;
  void* data = nullptr;
  size_t bytes = 0;
};
using ItemRef = std::shared_ptr<const Item>;

StatusOr<void*> CreateItem(int type, const int64_t* dims, size_t dim_count, int data_type, void* data, size_t bytes);
/// 100000 for a received item.
Status DestroyItem(const void* handle);
StatusOr<ItemRef> FindItem(const void* handle);

// ---- Datasets ----

StatusOr<void*> CreateDataset();
/// Received items go with it.
Status DestroyDataset(const void* handle);
Status AddItem(void* dataset, void* item);
StatusOr<size_t> DatasetSize(const void* dataset);
StatusOr<void*> DatasetItem(const void* dataset, size_t index);
/// The channel that it was received from, else "". Valid until the dataset is received into or destroyed.
StatusOr<const char*> DatasetName(const void* dataset);

// ---- Channels ----

/// Capacity in datasets; 0 takes that of the open channel of this name, or kDefaultCapacity.
StatusOr<void*> OpenChannel(uint32_t device, const char* name, size_t capacity);
/// Calls that wait with this handle return 107017.
Status CloseChannel(const void* channel);
/// For good: sends are refused with 507005, receives as soon as nothing is left.
Status StopChannel(const void* channel);
Status CleanChannel(const void* channel);
/// Datasets in the channel.
StatusOr<size_t> ChannelSize(const void* channel);

/// Copies the data at the call. Timeouts: -1 for ever, 0 not at all, else milliseconds. 207014 when it stays full.
Status Send(const void* channel, const void* dataset, int32_t timeout_ms);
/// Into a dataset that is empty, or holds nothing but what it received before, which goes. 207013 when the channel
/// stays empty.
Status Receive(const void* channel, void* dataset, int32_t timeout_ms);

/// Handles that exist, for tests.
struct ChannelCounts {
  size_t items, datasets, channels;
  bool operator==(const ChannelCounts&) const = default;
};
ChannelCounts LiveChannelObjects();

}  // namespace reprise::tdt
