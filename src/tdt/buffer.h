// SPDX-License-Identifier: Apache-2.0
//
// Queue buffers: shared blocks of host memory with a valid length and 96 bytes for the user, that travel through
// queues, alone or as a chain.
//
// A handle stands for one reference. References of one block share memory, length and user area. A chain belongs to
// the handle it was built with, its head; the appended handles stay usable, but come and go with the head.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::tdt {

constexpr size_t kUserAreaBytes = 96;
constexpr uint32_t kMaxChain = 128;

StatusOr<void*> AllocBuffer(size_t bytes);
/// Drops the reference, and with it its chain.
Status FreeBuffer(void* handle);
/// A reference on the block, and on each block of the chain when the handle is a head.
StatusOr<void*> CopyBuffer(const void* handle);

struct BufferExtent {
  void* data = nullptr;
  size_t bytes = 0;
};
StatusOr<BufferExtent> BufferData(const void* handle);
StatusOr<size_t> BufferLength(const void* handle);
Status SetBufferLength(void* handle, size_t bytes);
Status ReadUserArea(const void* handle, void* to, size_t bytes, size_t offset);
Status WriteUserArea(void* handle, const void* from, size_t bytes, size_t offset);

Status AppendToChain(void* head, void* handle);
StatusOr<uint32_t> ChainLength(const void* head);
/// The head itself for 0.
StatusOr<void*> ChainMember(const void* head, uint32_t index);

// ---- For queues ----

struct Buffer;
struct DropBuffer {
  void operator()(Buffer* buffer) const noexcept;
};
/// A buffer with its chain that no user holds. Its handles exist but are refused.
using Parcel = std::unique_ptr<Buffer, DropBuffer>;

StatusOr<Parcel> PackData(const void* data, size_t bytes, const void* user, size_t user_bytes);
/// Another parcel with the same blocks; null when there is no memory for it.
Parcel CopyParcel(const Buffer& buffer) noexcept;
/// Makes it the user's, who gets its handle.
void* GiveOut(Parcel parcel) noexcept;

/// Sum of the valid lengths of a chain.
size_t ParcelBytes(const Buffer& buffer);
/// Copies the valid bytes of the chain one behind the other, never more than `bytes`, and the start of the head's user
/// area.
void Unpack(const Buffer& buffer, void* data, size_t bytes, void* user, size_t user_bytes);

/// The way of a user's buffer into a queue: from Begin the handle is refused to others; Commit makes it a parcel with
/// new handles, so that the old ones are stale; without Commit the user keeps it as it was.
class Handover {
 public:
  Handover() = default;
  Handover(Handover&& other) noexcept
      : buffer_(std::exchange(other.buffer_, nullptr)), fresh_(std::exchange(other.fresh_, {})) {}
  Handover& operator=(Handover&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(fresh_, other.fresh_);
    return *this;
  }
  ~Handover();

  static StatusOr<Handover> Begin(void* handle);
  Parcel Commit() noexcept;

 private:
  Buffer* buffer_ = nullptr;
  std::vector<void*> fresh_;  // one for each buffer of the chain, the head's first
};

/// Handles that exist, for tests.
size_t LiveBuffers();

}  // namespace reprise::tdt
