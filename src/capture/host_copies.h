// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills between memory of any kind, at once or in the order of a stream. Memory that the runtime knows is
// copied by tasks; pageable memory of the program, which may be gone when a task runs, is copied during the call.
//
// Arguments that a C function names were checked by it: null pointers, sizes against those of the destination. Errors
// of memory are found here: 107000 for ranges that leave their allocation or are not accessible, for directions that
// strict mode refuses, and for pageable memory in a capture; 107030 and 107041 where a capture forbids the call.
//
// Threads: thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::capture {

/// Direction of a copy; the numbers are those of aclrtMemcpyKind.
enum class CopyKind : uint32_t {
  kHostToHost,
  kHostToDevice,
  kDeviceToHost,
  kDeviceToDevice,
  kDefault,            ///< as the addresses say
  kStagedHostToDevice  ///< the source may change as soon as the call returns
};

/// Rows of `width` bytes, `height` of them.
struct Rows {
  void* dst;
  uint64_t dst_pitch;
  const void* src;
  uint64_t src_pitch;
  uint64_t width;
  uint64_t height;
};

/// Memory at both ends of a copy.
struct CopySides {
  device::MemoryRange dst;
  device::MemoryRange src;
  const char* dst_name = "dst";
  bool pageable() const {
    return dst.kind == device::MemoryKind::kPageable || src.kind == device::MemoryKind::kPageable;
  }
  const device::MemoryRange& pageable_side() const { return dst.kind == device::MemoryKind::kPageable ? dst : src; }
  const char* pageable_name() const { return dst.kind != device::MemoryKind::kPageable ? "src" : dst_name; }
};

/// Finds the memory of both ends. The direction follows from the pointers; a kind that does not fit them is tolerated,
/// as on the device.
StatusOr<CopySides> FindSides(const void* dst, uint64_t dst_bytes, const void* src, uint64_t src_bytes);

/// Copies during the call. `api` is the name of the C function, for refusals.
Status CopyNow(void* dst, const void* src, uint64_t bytes, CopyKind kind, const char* api);
Status CopyRowsNow(const Rows& rows, CopyKind kind, const char* api);
/// Queues the copy. With pageable memory it waits for the stream and copies during the call; of a staged copy the
/// source is read during the call.
Status CopyInOrder(runtime::Stream& stream, void* dst, const void* src, uint64_t bytes, CopyKind kind, const char* api);
Status CopyRowsInOrder(runtime::Stream& stream, const Rows& rows, CopyKind kind, const char* api);

/// Copies that were checked one by one: `sides` are those of `items`.
struct CopyBatch {
  std::vector<runtime::CopyItem> items;
  std::vector<CopySides> sides;
};
Status CopyBatchNow(const CopyBatch& batch, const char* api);
Status CopyBatchInOrder(runtime::Stream& stream, const CopyBatch& batch, const char* api);

/// Fills with a byte, also pageable memory unless strict mode refuses that.
Status FillNow(void* pointer, uint8_t value, uint64_t bytes, const char* api);
Status FillInOrder(runtime::Stream& stream, void* pointer, uint8_t value, uint64_t bytes, const char* api);
/// 100000 unless `count` words lie in device or pinned memory, which is all that fills by words write.
Status CheckFillWords(const void* pointer, uint64_t count);
/// Fills with `count` words; `pointer` is aligned to 4 bytes, and CheckFillWords has taken it.
Status FillWordsNow(void* pointer, uint32_t value, uint64_t count, const char* api);
Status FillWordsInOrder(runtime::Stream& stream, void* pointer, uint32_t value, uint64_t count);

}  // namespace reprise::capture
