// SPDX-License-Identifier: Apache-2.0
//
// The functions that the caching allocators need of the runtime. An interface of its own, so that the rules of the
// allocators are tested on a simulated device whose streams move only when a test says so.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace reprise::memory {

struct CaptureState {
  bool is_open = false;  ///< active or invalidated
  uint64_t id = 0;       ///< of the capture; only while it is open
};

/// Where a stream stands in its capture. Tasks of one stream follow each other, so a number says which ones are meant.
struct CapturePoint {
  uint64_t capture = 0;          ///< 0: in none, or in one that can come to nothing
  uint32_t lane = 0;             ///< number of the stream in the graph
  uint32_t tasks = 0;            ///< all that the stream has done to memory so far
  std::vector<uint32_t> before;  ///< by lane, what comes before whatever is submitted to the stream next
};

/// How far a stream is with its capture.
struct CaptureMoment {
  uint64_t capture = 0;  ///< 0: in none
  uint32_t tasks = 0;    ///< that the stream has recorded
};

struct DeviceSize {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

/// Threads: all functions may be called from any thread. None calls back into an allocator. Those that take device
/// memory or events never break a capture that is open, whatever its mode.
class Driver {
 public:
  virtual ~Driver() = default;

  // Device memory.
  virtual int DeviceCount() = 0;
  /// 207001: the device has no room.
  virtual StatusOr<void*> Allocate(int device, uint64_t bytes) = 0;
  virtual void Free(int device, void* segment) = 0;
  virtual DeviceSize Size(int device) = 0;

  // Ranges of addresses whose pages come and go. Addresses and sizes are multiples of the page that was reserved for.
  virtual StatusOr<void*> ReserveRange(int device, uint64_t bytes, uint64_t page_bytes) = 0;
  /// Gives [at, at + bytes) memory, page by page: all of it or none. 207001: the device has no room.
  virtual Status CommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) = 0;
  virtual void DecommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) = 0;
  /// Ends a range in which no page is committed any more.
  virtual void ReleaseRange(int device, void* range) = 0;

  // Pinned host memory.
  virtual StatusOr<void*> AllocateHost(uint64_t bytes) = 0;
  virtual void FreeHost(void* block) = 0;

  // Streams.
  /// The current stream of the calling thread.
  virtual void* CurrentStream(int device) = 0;
  virtual int CurrentDevice() = 0;
  virtual CaptureState CaptureOf(void* stream) = 0;
  virtual CapturePoint PointInCapture(void* stream) = 0;
  /// Takes no lock of a capture, whose owner may be about to free blocks.
  virtual CaptureMoment MomentInCapture(void* stream) = 0;

  // Events: a point in a stream's work.
  virtual StatusOr<void*> RecordEvent(void* stream) = 0;
  /// Never waits; true when the device is gone.
  virtual bool IsDone(void* event) = 0;
  virtual void Wait(void* event) = 0;
  virtual void ReleaseEvent(void* event) = 0;
  /// Waits for all streams of the device that are not being captured. No lock of an allocator is held.
  virtual void WaitForDevice(int device) = 0;

  // Checks of memory (base/memory_checker.h): the pieces of plain segments and of pages begin closed.
  virtual bool IsMemoryChecked() { return false; }
  /// No stream of the process has work.
  virtual bool IsIdle() { return false; }
};

}  // namespace reprise::memory
