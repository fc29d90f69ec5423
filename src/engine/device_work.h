// SPDX-License-Identifier: Apache-2.0
//
// What the engine needs of the runtime and of the caching allocators: contexts, streams, memory.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::engine {

/// The program's allocator of one stream. Called without any lock of the engine.
class ExternalAllocator {
 public:
  struct Block {
    void* address = nullptr;
    void* handle = nullptr;  ///< for Free; null: there is no memory
  };
  virtual ~ExternalAllocator() = default;
  virtual Block Malloc(uint64_t bytes) = 0;
  virtual void Free(void* handle) = 0;
};
using AllocatorPtr = std::shared_ptr<ExternalAllocator>;

/// Device memory and who gives it back.
struct Memory {
  void* address = nullptr;
  std::shared_ptr<void> owner;
};

/// From the allocator, or where it is null from the caching allocator for work on the stream. kOutOfMemory.
StatusOr<Memory> TakeMemory(const AllocatorPtr& allocator, uint64_t bytes, void* stream);

/// Makes a context current on a thread that has none: the primary one of the device, which the engine holds until
/// ReleaseDevices.
Status UseDevice(int device);
void ReleaseDevices();

/// The stream of a handle; null: the default stream of the current context.
StatusOr<runtime::Stream*> FindStream(void* handle);
/// Whether an address is memory of a device, as far as it can be told; told again without a look while it is the same
/// address and no memory comes or goes. Threads: thread-compatible.
class KnownPlace {
 public:
  bool IsDeviceMemory(const void* address);

 private:
  const void* address_ = nullptr;
  uint64_t changes_ = UINT64_MAX;
  bool is_device_ = false;
};
/// Waits for a stream, if it is still there.
void WaitForStream(void* handle);

/// A stream of the engine's own, made on first use. Threads: thread-compatible.
class OwnStream {
 public:
  OwnStream() = default;
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  StatusOr<runtime::Stream*> Get();

 private:
  void* handle_ = nullptr;
};

}  // namespace reprise::engine
