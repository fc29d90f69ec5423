// SPDX-License-Identifier: Apache-2.0
#include "tdt/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/env.h"
#include "base/fault.h"
#include "base/mutex.h"
#include "kernels/dtype.h"
#include "runtime/device.h"
#include "runtime/text_output.h"
#include "tdt/handles.h"
#include "tdt/waiting.h"

namespace reprise::tdt {
namespace {

// acltdtTensorType
constexpr int kTensor = 0;
constexpr int kEndOfSequence = 1;
constexpr int kAbnormal = 2;
constexpr int kEndTensor = 4;

// aclDataType
bool IsDataType(int type) {
  constexpr int kLast = 41;
  constexpr int kUnused[] = {5, 14, 15, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 31, 32};
  return type >= 0 && type <= kLast && std::find(std::begin(kUnused), std::end(kUnused), type) == std::end(kUnused);
}

// An item with its own memory.
struct OwningItem : Item {
  Bytes owned;
};

struct ItemEntry {
  ItemRef item;
  bool received = false;
};

struct Dataset {
  struct Member {
    void* handle;
    bool received;
  };
  std::vector<Member> members;
  std::string name;
};

using Message = std::vector<ItemRef>;

struct Channel {
  int device = 0;
  std::string name;
  size_t capacity = 0;
  size_t handles = 0;  // guarded by the registry

  Mutex mutex;
  Bell room;   // for senders
  Bell items;  // for receivers
  std::deque<Message> messages REPRISE_GUARDED_BY(mutex);
  bool stopped REPRISE_GUARDED_BY(mutex) = false;

  std::string Describe() const { return fmt::format("channel \"{}\" of device {}", name, device); }
};

// What a handle stands for.
struct End {
  explicit End(std::shared_ptr<Channel> of) : channel(std::move(of)) {}
  const std::shared_ptr<Channel> channel;
  bool closed = false;  // guarded by the channel
};
using EndRef = std::shared_ptr<End>;

// Locks are taken in this order: registry; channel; table of datasets; table of items.

GuardedTable<EndRef, HandleKind::kTdtChannel>& Channels() {
  static auto* const table = new GuardedTable<EndRef, HandleKind::kTdtChannel>("channel");
  return *table;
}

GuardedTable<Dataset, HandleKind::kTdtDataset>& Datasets() {
  static auto* const table = new GuardedTable<Dataset, HandleKind::kTdtDataset>("dataset");
  return *table;
}

GuardedTable<ItemEntry, HandleKind::kTdtItem>& Items() {
  static auto* const table = new GuardedTable<ItemEntry, HandleKind::kTdtItem>("data item");
  return *table;
}

struct Registry {
  Mutex mutex;
  std::map<std::pair<int, std::string>, std::shared_ptr<Channel>> channels REPRISE_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

StatusOr<EndRef> FindEnd(const void* handle) {
  EndRef end;
  REPRISE_RETURN_IF_ERROR(Channels().With(handle, [&](const EndRef& found) -> Status {
    end = found;
    return {};
  }));
  return end;
}

// Received items of a dataset that goes, or that is received into again.
void DropReceived(const std::vector<Dataset::Member>& members) {
  for (const Dataset::Member& member : members) {
    if (member.received) (void)Items().Take(member.handle);
  }
}

// Bytes of the elements of a type that the kernels know; 0 for the others (strings, less than a byte each).
size_t ElementBytes(int data_type) {
  const auto dtype = static_cast<kernels::DType>(data_type);
  return kernels::IsKnown(dtype) ? static_cast<size_t>(kernels::ItemSize(dtype)) : 0;
}

Status CheckTensor(const Item& item) {
  uint64_t count = 1;
  for (size_t i = 0; i < item.dims.size(); ++i) {
    if (item.dims[i] < 0) {
      return Error(kInvalidArgument, fmt::format("dims[{}] is {}, must be at least 0", i, item.dims[i]))
          .Culprit(fmt::format("parameter dims[{}]", i))
          .Hint("the dimensions of data are known");
    }
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(item.dims[i]), &count)) count = UINT64_MAX;
  }
  uint64_t needed = 0;
  if (__builtin_mul_overflow(count, uint64_t{ElementBytes(item.data_type)}, &needed)) needed = UINT64_MAX;
  if (needed > item.bytes) {
    return Error(kInvalidArgument, fmt::format("size is {}, the dimensions ask for {} bytes", item.bytes, needed))
        .Culprit("parameter size")
        .Hint("pass the size of the data in bytes; it may be larger than the tensor, not smaller");
  }
  return {};
}

StatusOr<Message> CopyMessage(const std::vector<ItemRef>& items) {
  Message message;
  message.reserve(items.size());
  for (const ItemRef& item : items) {
    auto copy = std::make_shared<OwningItem>();
    static_cast<Item&>(*copy) = *item;
    copy->data = nullptr;
    if (item->bytes != 0) {
      if (!FaultPoint("tdt.memory")) copy->owned = NewBytes(item->bytes);
      if (copy->owned == nullptr) {
        return Error(kOutOfHostMemory, fmt::format("the host has no {} bytes for a copy of the data", item->bytes))
            .Culprit("parameter dataset")
            .Hint("free memory, or send less at a time");
      }
      std::memcpy(copy->owned.get(), item->data, item->bytes);
      copy->data = copy->owned.get();
    }
    message.push_back(std::move(copy));
  }
  return message;
}

StatusOr<std::vector<ItemRef>> ItemsOf(const void* dataset) {
  std::vector<ItemRef> items;
  REPRISE_RETURN_IF_ERROR(Datasets().With(dataset, [&](const Dataset& found) -> Status {
    if (found.members.empty()) {
      return Error(kInvalidArgument, "the dataset is empty")
          .Culprit("parameter dataset")
          .Hint("add an item with acltdtAddDataItem; an item of type ACL_TENSOR_DATA_END_OF_SEQUENCE needs no data");
    }
    items.reserve(found.members.size());
    for (const Dataset::Member& member : found.members) {
      REPRISE_ASSIGN_OR_RETURN(ItemRef item, FindItem(member.handle));
      items.push_back(std::move(item));
    }
    return {};
  }));
  return items;
}

Status CheckReceivable(const Dataset& dataset) {
  for (const Dataset::Member& member : dataset.members) {
    if (member.received) continue;
    return Error(kInvalidArgument, "the dataset holds items that the program added")
        .Culprit("parameter dataset")
        .Hint("receive into a dataset from acltdtCreateDataset, or into one that holds only received items");
  }
  return {};
}

// What keeps a call from waiting on.
Status Ended(const End& end) {
  if (!end.closed) return {};
  return Error(kInvalidHandle,
               fmt::format("the handle of {} was destroyed while this call waited", end.channel->Describe()))
      .Culprit("a call of acltdtDestroyChannel by another thread")
      .Hint("stop the channel with acltdtStopChannel, which ends the calls that wait, before its handle is destroyed");
}

Status Stopped(const Channel& channel) {
  return Error(kChannelStopped, fmt::format("{} was stopped", channel.Describe()))
      .Culprit("acltdtStopChannel")
      .Hint("destroy all handles of the channel and open it again");
}

// Waits until the channel has room, or a message. With the lock of the channel, which has several names here.
Status Await(const End& end, UniqueLock<Mutex>& lock, bool for_room, const Deadline& deadline,
             int32_t timeout_ms) REPRISE_NOT_ANALYSED {
  Channel& channel = *end.channel;
  for (bool in_time = true;;) {
    REPRISE_RETURN_IF_ERROR(Ended(end));
    if (for_room && channel.stopped) return Stopped(channel);
    if (for_room ? channel.messages.size() < channel.capacity : !channel.messages.empty()) return {};
    if (channel.stopped) return Stopped(channel);
    if (!in_time) break;
    in_time = (for_room ? channel.room : channel.items).Wait(lock, deadline);
  }
  if (for_room) {
    return Error(kQueueFull, fmt::format("{} is full {}: {} datasets", channel.Describe(), AfterWaiting(timeout_ms),
                                         channel.capacity))
        .Culprit("nobody receives")
        .Hint("receive, wait longer, or open the channel with a larger capacity");
  }
  return Error(kQueueEmpty, fmt::format("{} is empty {}", channel.Describe(), AfterWaiting(timeout_ms)))
      .Culprit("nobody sends")
      .Hint("send, or wait longer; -1 waits for ever");
}

// Gives a message to a dataset. Either all of it happens or nothing.
Status Deliver(const Message& message, const std::string& name, void* dataset) {
  std::vector<Dataset::Member> members;
  members.reserve(message.size());
  std::string new_name = name;
  const auto deliver = [&]() -> Status {
    for (const ItemRef& item : message) {
      REPRISE_ASSIGN_OR_RETURN(void* handle, Items().Add(std::make_unique<ItemEntry>(ItemEntry{item, true})));
      members.push_back({handle, true});
    }
    return Datasets().With(dataset, [&](Dataset& found) -> Status {
      REPRISE_RETURN_IF_ERROR(CheckReceivable(found));
      found.members.swap(members);
      found.name.swap(new_name);
      return {};
    });
  };
  Status status;
  try {
    status = deliver();
  } catch (...) {
    DropReceived(members);
    throw;
  }
  DropReceived(members);  // the new ones when it failed, else the old ones
  return status;
}

}  // namespace

// ---- Items ----

StatusOr<void*> CreateItem(int type, const int64_t* dims, size_t dim_count, int data_type, void* data, size_t bytes) {
  if (type < kTensor || type > kEndTensor) {
    return Error(kInvalidArgument, fmt::format("tdtType is {}, must be {} to {}", type, kTensor, kEndTensor))
        .Culprit("parameter tdtType")
        .Hint("pass an ACL_TENSOR_DATA_* other than UNDEFINED");
  }
  if (dim_count > kMaxDims) {
    return Error(kInvalidArgument, fmt::format("dimNum is {}, must be 0 to {}", dim_count, kMaxDims))
        .Culprit("parameter dimNum")
        .Hint("pass the number of entries of dims");
  }
  if (dims == nullptr && dim_count != 0) {
    return Error(kInvalidArgument, fmt::format("dims is null, but dimNum is {}", dim_count))
        .Culprit("parameter dims")
        .Hint("pass the dimensions, or 0 for dimNum");
  }
  const bool is_mark = type == kEndOfSequence || type == kAbnormal;
  if (!IsDataType(data_type) && !(is_mark && data_type == -1)) {
    return Error(kInvalidArgument, fmt::format("dataType is {}, which is no type of data", data_type))
        .Culprit("parameter dataType")
        .Hint("pass an ACL_* type; ACL_DT_UNDEFINED is for end and error marks");
  }
  if (data == nullptr && bytes != 0) {
    return Error(kInvalidArgument, fmt::format("data is null, but size is {}", bytes))
        .Culprit("parameter data")
        .Hint("pass the address of the data, or size 0");
  }
  if (bytes > EnvBytes(EnvVar::kMemory)) {
    return Error(kInvalidArgument,
                 fmt::format("size is {}, must be at most {} (REPRISE_MEMORY)", bytes, EnvBytes(EnvVar::kMemory)))
        .Culprit("parameter size")
        .Hint("pass the number of bytes of the data");
  }
  auto item = std::make_shared<Item>();
  item->type = type;
  item->data_type = data_type;
  item->dims.assign(dims, dims + dim_count);
  item->data = data;
  item->bytes = bytes;
  if (!is_mark) REPRISE_RETURN_IF_ERROR(CheckTensor(*item));
  return Items().Add(std::make_unique<ItemEntry>(ItemEntry{std::move(item), false}));
}

Status DestroyItem(const void* handle) {
  REPRISE_RETURN_IF_ERROR(Items().With(handle, [&](const ItemEntry& entry) -> Status {
    if (!entry.received) return {};
    return Error(kInvalidArgument, "the item was received and belongs to its dataset")
        .Culprit("parameter dataItem")
        .Hint("destroy the dataset with acltdtDestroyDataset");
  }));
  return Items().Take(handle).status();
}

StatusOr<ItemRef> FindItem(const void* handle) {
  ItemRef item;
  REPRISE_RETURN_IF_ERROR(Items().With(handle, [&](const ItemEntry& entry) -> Status {
    item = entry.item;
    return {};
  }));
  return item;
}

// ---- Datasets ----

StatusOr<void*> CreateDataset() { return Datasets().Add(std::make_unique<Dataset>()); }

Status DestroyDataset(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Datasets().Take(handle));
  DropReceived(dataset->members);
  return {};
}

Status AddItem(void* dataset, void* item) {
  REPRISE_RETURN_IF_ERROR(FindItem(item).status());
  return Datasets().With(dataset, [&](Dataset& found) -> Status {
    found.members.push_back({item, false});
    return {};
  });
}

StatusOr<size_t> DatasetSize(const void* dataset) {
  size_t size = 0;
  REPRISE_RETURN_IF_ERROR(Datasets().With(dataset, [&](const Dataset& found) -> Status {
    size = found.members.size();
    return {};
  }));
  return size;
}

StatusOr<void*> DatasetItem(const void* dataset, size_t index) {
  void* item = nullptr;
  REPRISE_RETURN_IF_ERROR(Datasets().With(dataset, [&](const Dataset& found) -> Status {
    if (index >= found.members.size()) {
      return Error(kInvalidArgument, fmt::format("index is {}, the dataset has {} items", index, found.members.size()))
          .Culprit("parameter index")
          .Hint("pass an index below what acltdtGetDatasetSize returns");
    }
    item = found.members[index].handle;
    return {};
  }));
  return item;
}

StatusOr<const char*> DatasetName(const void* dataset) {
  const char* name = nullptr;
  REPRISE_RETURN_IF_ERROR(Datasets().With(dataset, [&](const Dataset& found) -> Status {
    name = found.name.c_str();
    return {};
  }));
  return name;
}

// ---- Channels ----

namespace {

// The channel whose reader gets what operators print.
constexpr std::string_view kTextChannel = "_npu_log";

std::shared_ptr<Channel> OpenTextChannel() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  for (const auto& [key, channel] : registry.channels) {
    if (key.second == kTextChannel) return channel;
  }
  return nullptr;
}

// One dataset of one text. A reader that does not come within a second gets nothing.
bool SendText(std::string_view text) {
  constexpr int32_t kPatienceMs = 1000;
  constexpr int kStringType = 13;
  const std::shared_ptr<Channel> channel = OpenTextChannel();
  StatusOr<Deadline> deadline = DeadlineAfter(kPatienceMs);
  if (channel == nullptr || !deadline.ok()) return false;
  Item item;
  item.type = kTensor;
  item.data_type = kStringType;
  item.data = const_cast<char*>(text.data());
  item.bytes = text.size();
  StatusOr<Message> message = CopyMessage({std::make_shared<const Item>(std::move(item))});
  if (!message.ok()) return false;
  const End end(channel);
  UniqueLock lock(channel->mutex);
  if (!Await(end, lock, true, *deadline, kPatienceMs).ok()) return false;
  channel->messages.push_back(std::move(*message));
  channel->items.Ring();
  return true;
}

}  // namespace

StatusOr<void*> OpenChannel(uint32_t device, const char* name, size_t capacity) {
  REPRISE_ASSIGN_OR_RETURN(std::string text, ReadName(name, "name"));
  REPRISE_ASSIGN_OR_RETURN(const runtime::Device* on, runtime::FindDevice(device));
  if (capacity > kMaxCapacity) {
    return Error(kInvalidArgument, fmt::format("capacity is {}, must be 1 to {}", capacity, kMaxCapacity))
        .Culprit("parameter capacity")
        .Hint("pass how many datasets the channel holds at most");
  }
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  const std::pair key(on->id(), text);
  std::shared_ptr<Channel> channel;
  const auto it = registry.channels.find(key);
  if (it != registry.channels.end()) {
    channel = it->second;
    if (capacity != 0 && capacity != channel->capacity) {
      return Error(kInvalidArgument,
                   fmt::format("{} is open with capacity {}, not {}", channel->Describe(), channel->capacity, capacity))
          .Culprit("parameter capacity")
          .Hint("open it with the same capacity, or choose another name");
    }
  } else {
    channel = std::make_shared<Channel>();
    channel->device = on->id();
    channel->name = std::move(text);
    channel->capacity = capacity == 0 ? kDefaultCapacity : capacity;
  }
  auto end = std::make_unique<EndRef>(std::make_shared<End>(channel));
  registry.channels[key] = channel;
  if (channel->name == kTextChannel) runtime::SetTextReader(SendText);
  auto handle = Channels().Add(std::move(end));
  if (handle.ok()) {
    ++channel->handles;
  } else if (channel->handles == 0) {
    registry.channels.erase(key);
  }
  return handle;
}

Status CloseChannel(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<EndRef> end, Channels().Take(handle));
  const std::shared_ptr<Channel> channel = (*end)->channel;
  {
    MutexLock lock(channel->mutex);
    (*end)->closed = true;
    channel->room.Ring();
    channel->items.Ring();
  }
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  if (--channel->handles == 0) registry.channels.erase({channel->device, channel->name});
  return {};
}

Status StopChannel(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(const EndRef end, FindEnd(handle));
  Channel& channel = *end->channel;
  MutexLock lock(channel.mutex);
  channel.stopped = true;
  channel.room.Ring();
  channel.items.Ring();
  return {};
}

Status CleanChannel(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(const EndRef end, FindEnd(handle));
  Channel& channel = *end->channel;
  std::deque<Message> dropped;  // behind the lock
  MutexLock lock(channel.mutex);
  dropped.swap(channel.messages);
  channel.room.Ring();
  return {};
}

StatusOr<size_t> ChannelSize(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(const EndRef end, FindEnd(handle));
  MutexLock lock(end->channel->mutex);
  return end->channel->messages.size();
}

Status Send(const void* handle, const void* dataset, int32_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(const EndRef end, FindEnd(handle));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<ItemRef> items, ItemsOf(dataset));
  REPRISE_ASSIGN_OR_RETURN(const Deadline deadline, DeadlineAfter(timeout_ms));
  Channel& channel = *end->channel;
  if (timeout_ms == 0) {  // do not copy for nothing
    UniqueLock lock(channel.mutex);
    REPRISE_RETURN_IF_ERROR(Await(*end, lock, true, deadline, timeout_ms));
  }
  REPRISE_ASSIGN_OR_RETURN(Message message, CopyMessage(items));
  UniqueLock lock(channel.mutex);
  REPRISE_RETURN_IF_ERROR(Await(*end, lock, true, deadline, timeout_ms));
  channel.messages.push_back(std::move(message));
  channel.items.Ring();
  return {};
}

Status Receive(const void* handle, void* dataset, int32_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(const EndRef end, FindEnd(handle));
  REPRISE_RETURN_IF_ERROR(Datasets().With(dataset, CheckReceivable));
  REPRISE_ASSIGN_OR_RETURN(const Deadline deadline, DeadlineAfter(timeout_ms));
  Channel& channel = *end->channel;
  UniqueLock lock(channel.mutex);
  REPRISE_RETURN_IF_ERROR(Await(*end, lock, false, deadline, timeout_ms));
  // Under the lock: a dataset that cannot be delivered stays the first of the channel.
  REPRISE_RETURN_IF_ERROR(Deliver(channel.messages.front(), channel.name, dataset));
  channel.messages.pop_front();
  channel.room.Ring();
  return {};
}

ChannelCounts LiveChannelObjects() { return {Items().live(), Datasets().live(), Channels().live()}; }

}  // namespace reprise::tdt
