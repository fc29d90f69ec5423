// SPDX-License-Identifier: Apache-2.0
#include "tdt/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/env.h"
#include "base/fault.h"
#include "base/handle_table.h"
#include "base/mutex.h"
#include "tdt/handles.h"
#include "tdt/waiting.h"

namespace reprise::tdt {

struct Block {
  Bytes data;
  size_t capacity = 0;
  size_t length = 0;                             // guarded by the lock of the table
  std::array<std::byte, kUserAreaBytes> user{};  // the same
};

enum class Place { kUser, kMoving, kQueue };

struct Buffer {
  std::shared_ptr<Block> block;
  void* handle = nullptr;
  Place place = Place::kUser;
  Buffer* head = nullptr;                        // of the chain it was appended to
  std::vector<std::unique_ptr<Buffer>> members;  // of a head
};

namespace {

constexpr const char* kKind = "queue buffer";

// All buffers under one lock: chains reach from one to another, and everything done under it is short.
struct Table {
  Mutex mutex;
  HandleTable<Buffer, HandleKind::kQueueBuffer> handles REPRISE_GUARDED_BY(mutex);
};

Table& Buffers() {
  static auto* const table = new Table;
  return *table;
}

Status Insert(Table& table, Buffer* buffer, void** handle) REPRISE_REQUIRES(table.mutex) {
  *handle = FaultPoint("tdt.object") ? nullptr : table.handles.Insert(buffer);
  if (*handle != nullptr) return {};
  return Error(kResourceExhausted, "the process has no room for another queue buffer")
      .Culprit(fmt::format("{} live references on queue buffers", table.handles.live()))
      .Hint("free those that are no longer needed with acltdtFreeBuf or aclrtFreeBuf");
}

void Forget(Table& table, Buffer& buffer) noexcept REPRISE_REQUIRES(table.mutex) {
  if (buffer.handle != nullptr) table.handles.Erase(buffer.handle);
  for (const auto& member : buffer.members) Forget(table, *member);
}

StatusOr<Buffer*> Find(Table& table, const void* handle) REPRISE_REQUIRES(table.mutex) {
  Buffer* const buffer = table.handles.Find(handle);
  if (buffer == nullptr) {
    const HandleState state = table.handles.Classify(handle);
    if (state != HandleState::kDestroyed) return BadHandle(state, handle, kKind);
    return Error(kInvalidHandle, fmt::format("queue buffer {} was freed, or given to a queue", fmt::ptr(handle)))
        .Culprit(fmt::format("handle {}", fmt::ptr(handle)))
        .Hint(
            "a buffer that was enqueued belongs to whoever dequeues it; use the handle that the dequeuing call writes");
  }
  if (buffer->place == Place::kUser) return buffer;
  return Error(kInvalidHandle, fmt::format("queue buffer {} belongs to a queue", fmt::ptr(handle)))
      .Culprit("a call that enqueues it")
      .Hint("leave a buffer alone from the call that enqueues it on");
}

// What a chain is asked of.
StatusOr<Buffer*> FindHead(Table& table, const void* handle) REPRISE_REQUIRES(table.mutex) {
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  if (buffer->head == nullptr) return buffer;
  return Error(kInvalidValue, fmt::format("queue buffer {} is a member of a chain, not its head", fmt::ptr(handle)))
      .Culprit(fmt::format("the chain of {}", fmt::ptr(buffer->head->handle)))
      .Hint("pass the buffer that the others were appended to");
}

StatusOr<std::shared_ptr<Block>> NewBlock(size_t bytes) {
  if (bytes == 0)
    return Error(kInvalidArgument, "size is 0, must be at least 1")
        .Culprit("parameter size")
        .Hint("pass the number of bytes of the data");
  auto block = std::make_shared<Block>();
  block->capacity = bytes;
  const uint64_t most = EnvBytes(EnvVar::kMemory);
  if (bytes <= most && !FaultPoint("tdt.memory")) block->data = NewBytes(bytes);
  if (block->data == nullptr) {
    return Error(kOutOfDeviceMemory, fmt::format("there is no memory for a queue buffer of {} bytes", bytes))
        .Culprit("parameter size")
        .Hint(fmt::format("ask for less; one buffer has at most {} bytes (REPRISE_MEMORY)", most));
  }
  return block;
}

// One reference with its handle; the chain is the caller's.
StatusOr<std::unique_ptr<Buffer>> NewReference(Table& table, std::shared_ptr<Block> block, Place place)
    REPRISE_REQUIRES(table.mutex) {
  auto buffer = std::make_unique<Buffer>();
  buffer->block = std::move(block);
  buffer->place = place;
  REPRISE_RETURN_IF_ERROR(Insert(table, buffer.get(), &buffer->handle));
  return buffer;
}

StatusOr<std::unique_ptr<Buffer>> CopyChain(Table& table, const Buffer& from, Place place)
    REPRISE_REQUIRES(table.mutex) {
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> head, NewReference(table, from.block, place));
  // Until the copy is complete, its handles go with it.
  struct Undo {
    Table& table;
    Buffer* buffer;
    ~Undo() {
      if (buffer != nullptr) Forget(table, *buffer);
    }
  } undo{table, head.get()};
  head->members.reserve(from.members.size());
  for (const auto& member : from.members) {
    REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> copy, NewReference(table, member->block, place));
    copy->head = head.get();
    head->members.push_back(std::move(copy));
  }
  undo.buffer = nullptr;
  return head;
}

Status CheckUserArea(size_t bytes, size_t offset) {
  if (bytes <= kUserAreaBytes && offset <= kUserAreaBytes - bytes) return {};
  return Error(kInvalidArgument, fmt::format("{} bytes at offset {} do not lie in the user area of {} bytes", bytes,
                                             offset, kUserAreaBytes))
      .Culprit("parameters size and offset")
      .Hint(fmt::format("keep size + offset within {}", kUserAreaBytes));
}

void SetPlace(Buffer& buffer, Place place) noexcept {
  buffer.place = place;
  for (const auto& member : buffer.members) member->place = place;
}

}  // namespace

StatusOr<void*> AllocBuffer(size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<Block> block, NewBlock(bytes));
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, NewReference(table, std::move(block), Place::kUser));
  return buffer.release()->handle;  // the table holds it until FreeBuffer
}

Status FreeBuffer(void* handle) {
  Table& table = Buffers();
  std::unique_ptr<Buffer> freed;  // behind the lock
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  if (buffer->head != nullptr) {
    return Error(kInvalidValue,
                 fmt::format("queue buffer {} is a member of a chain and goes with its head", fmt::ptr(handle)))
        .Culprit(fmt::format("the chain of {}", fmt::ptr(buffer->head->handle)))
        .Hint("free the head of the chain");
  }
  Forget(table, *buffer);
  freed.reset(buffer);
  return {};
}

StatusOr<void*> CopyBuffer(const void* handle) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> copy, CopyChain(table, *buffer, Place::kUser));
  return copy.release()->handle;
}

StatusOr<BufferExtent> BufferData(const void* handle) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  return BufferExtent{buffer->block->data.get(), buffer->block->capacity};
}

StatusOr<size_t> BufferLength(const void* handle) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  return buffer->block->length;
}

Status SetBufferLength(void* handle, size_t bytes) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  if (bytes > buffer->block->capacity) {
    return Error(kInvalidValue, fmt::format("len is {}, the buffer has {} bytes", bytes, buffer->block->capacity))
        .Culprit("parameter len")
        .Hint("pass at most the size that the buffer was allocated with");
  }
  buffer->block->length = bytes;
  return {};
}

Status ReadUserArea(const void* handle, void* to, size_t bytes, size_t offset) {
  REPRISE_RETURN_IF_ERROR(CheckUserArea(bytes, offset));
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  std::memcpy(to, buffer->block->user.data() + offset, bytes);
  return {};
}

Status WriteUserArea(void* handle, const void* from, size_t bytes, size_t offset) {
  REPRISE_RETURN_IF_ERROR(CheckUserArea(bytes, offset));
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, Find(table, handle));
  std::memcpy(buffer->block->user.data() + offset, from, bytes);
  return {};
}

Status AppendToChain(void* head, void* handle) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * first, FindHead(table, head));
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, FindHead(table, handle));
  if (first == buffer) {
    return Error(kInvalidValue, "headBuf and buf are the same buffer")
        .Culprit("parameter buf")
        .Hint("append another buffer, or another reference from acltdtCopyBufRef");
  }
  if (!buffer->members.empty()) {
    return Error(kInvalidValue,
                 fmt::format("buf is itself the head of a chain of {} buffers", buffer->members.size() + 1))
        .Culprit("parameter buf")
        .Hint("append single buffers");
  }
  if (first->members.size() + 1 >= kMaxChain) {
    return Error(kLimitExceeded, fmt::format("the chain has {} buffers, which is the most", kMaxChain))
        .Culprit(fmt::format("the chain of {}", fmt::ptr(head)))
        .Hint("begin another chain");
  }
  first->members.reserve(first->members.size() + 1);
  first->members.emplace_back(buffer);
  buffer->head = first;
  return {};
}

StatusOr<uint32_t> ChainLength(const void* head) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * first, FindHead(table, head));
  return static_cast<uint32_t>(first->members.size() + 1);
}

StatusOr<void*> ChainMember(const void* head, uint32_t index) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * first, FindHead(table, head));
  if (index > first->members.size()) {
    return Error(kInvalidValue, fmt::format("index is {}, the chain has {} buffers", index, first->members.size() + 1))
        .Culprit("parameter index")
        .Hint("pass an index below what acltdtGetBufChainNum or aclrtGetBufChainNum writes");
  }
  return index == 0 ? first->handle : first->members[index - 1]->handle;
}

// ---- For queues ----

void DropBuffer::operator()(Buffer* buffer) const noexcept {
  Table& table = Buffers();
  {
    MutexLock lock(table.mutex);
    Forget(table, *buffer);
  }
  delete buffer;
}

StatusOr<Parcel> PackData(const void* data, size_t bytes, const void* user, size_t user_bytes) {
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<Block> block, NewBlock(bytes));
  std::memcpy(block->data.get(), data, bytes);
  if (user_bytes != 0) std::memcpy(block->user.data(), user, user_bytes);
  block->length = bytes;
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, NewReference(table, std::move(block), Place::kQueue));
  return Parcel(buffer.release());
}

Parcel CopyParcel(const Buffer& buffer) noexcept {
  try {
    Table& table = Buffers();
    MutexLock lock(table.mutex);
    auto copy = CopyChain(table, buffer, Place::kQueue);
    return Parcel(copy.ok() ? copy->release() : nullptr);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* GiveOut(Parcel parcel) noexcept {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  SetPlace(*parcel, Place::kUser);
  return parcel.release()->handle;
}

size_t ParcelBytes(const Buffer& buffer) {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  size_t bytes = buffer.block->length;
  for (const auto& member : buffer.members) bytes += member->block->length;
  return bytes;
}

void Unpack(const Buffer& buffer, void* data, size_t bytes, void* user, size_t user_bytes) {
  Table& table = Buffers();
  auto* to = static_cast<std::byte*>(data);
  const auto copy = [&](const Block& block) {
    size_t part;
    {
      MutexLock lock(table.mutex);
      part = std::min(block.length, bytes);  // other references may change it at any time
    }
    std::memcpy(to, block.data.get(), part);
    to += part;
    bytes -= part;
  };
  copy(*buffer.block);
  for (const auto& member : buffer.members) copy(*member->block);
  if (user_bytes != 0) {
    MutexLock lock(table.mutex);
    std::memcpy(user, buffer.block->user.data(), user_bytes);
  }
}

Handover::~Handover() {
  if (buffer_ == nullptr) return;
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  for (const void* handle : fresh_) table.handles.Erase(handle);
  SetPlace(*buffer_, Place::kUser);
}

StatusOr<Handover> Handover::Begin(void* handle) {
  Table& table = Buffers();
  Handover handover;  // undoes what was done, behind the lock
  MutexLock lock(table.mutex);
  REPRISE_ASSIGN_OR_RETURN(Buffer * buffer, FindHead(table, handle));
  handover.fresh_.reserve(buffer->members.size() + 1);
  handover.buffer_ = buffer;
  SetPlace(*buffer, Place::kMoving);
  for (size_t i = 0; i <= buffer->members.size(); ++i) {
    void* fresh = nullptr;
    REPRISE_RETURN_IF_ERROR(Insert(table, i == 0 ? buffer : buffer->members[i - 1].get(), &fresh));
    handover.fresh_.push_back(fresh);
  }
  return handover;
}

Parcel Handover::Commit() noexcept {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  Forget(table, *buffer_);
  buffer_->handle = fresh_[0];
  for (size_t i = 1; i < fresh_.size(); ++i) buffer_->members[i - 1]->handle = fresh_[i];
  SetPlace(*buffer_, Place::kQueue);
  fresh_.clear();
  return Parcel(std::exchange(buffer_, nullptr));
}

size_t LiveBuffers() {
  Table& table = Buffers();
  MutexLock lock(table.mutex);
  return table.handles.live();
}

}  // namespace reprise::tdt
