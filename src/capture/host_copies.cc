// SPDX-License-Identifier: Apache-2.0
#include "capture/host_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/strict.h"
#include "capture/session.h"
#include "runtime/peers.h"

namespace reprise::capture {
namespace {

device::MemoryRegistry& Memory() { return device::MemoryRegistry::Get(); }

// For strict mode: whether the sides are what the kind says, and devices reach each other. Managed and mapped memory is
// both.
[[gnu::cold]] Status CheckDirection(CopyKind kind, const void* dst, const void* src, const CopySides& sides) {
  const int to = sides.dst.device, from = sides.src.device;
  if (!sides.dst.is_host() && !sides.src.is_host() && to != from && !runtime::HasPeerAccess(to, from) &&
      !runtime::HasPeerAccess(from, to)) {
    return StrictRefusal(
               kInvalidValue,
               fmt::format("the copy goes from device {} to device {}, which do not reach each other", from, to))
        .Culprit(fmt::format("dst {}; src {}", Memory().Explain(dst), Memory().Explain(src)))
        .Hint("call aclrtDeviceEnablePeerAccess first");
  }
  if (kind == CopyKind::kDefault) return {};
  const auto fits = [](const device::MemoryRange& range, const void* address, bool wants_device) {
    if (range.managed || wants_device != range.is_host()) return true;
    return wants_device && Memory().IsRegisteredForDevice(address);
  };
  const bool to_device = kind != CopyKind::kHostToHost && kind != CopyKind::kDeviceToHost;
  const bool from_device = kind == CopyKind::kDeviceToHost || kind == CopyKind::kDeviceToDevice;
  const bool dst_fits = fits(sides.dst, dst, to_device);
  if (dst_fits && fits(sides.src, src, from_device)) return {};
  constexpr const char* kNames[] = {"ACL_MEMCPY_HOST_TO_HOST",   "ACL_MEMCPY_HOST_TO_DEVICE",
                                    "ACL_MEMCPY_DEVICE_TO_HOST", "ACL_MEMCPY_DEVICE_TO_DEVICE",
                                    "ACL_MEMCPY_DEFAULT",        "ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE"};
  const device::MemoryRange& wrong = dst_fits ? sides.src : sides.dst;
  const char* const name = dst_fits ? "src" : "dst";
  return StrictRefusal(kInvalidValue,
                       fmt::format("kind is {}, and {} {} is {} memory", kNames[static_cast<uint32_t>(kind)], name,
                                   fmt::ptr(dst_fits ? src : dst), wrong.is_host() ? "host" : "device"))
      .Culprit(fmt::format("{} {}", name, Memory().Explain(dst_fits ? src : dst)))
      .Hint("pass the kind that fits both addresses, or ACL_MEMCPY_DEFAULT");
}

// Pageable memory may be no memory at all, so the kernel copies it.
Status CopyBytesNow(void* dst, const void* src, uint64_t bytes, const CopySides& sides) {
  if (!sides.pageable()) {
    std::memmove(dst, src, bytes);
    return {};
  }
  if (device::CopyUntrusted(dst, src, bytes)) return {};
  return Error(kInvalidValue, fmt::format("{} [{:#x}, {:#x}) is not accessible", sides.pageable_name(),
                                          sides.pageable_side().begin, sides.pageable_side().end()))
      .Culprit(fmt::format("{} {}", sides.pageable_name(),
                           Memory().Explain(reinterpret_cast<void*>(sides.pageable_side().begin))))
      .Hint("pass memory from aclrtMalloc, aclrtMallocHost or the program's heap that is still allocated");
}

Status PageableInCapture(const runtime::Stream& stream, const CopySides& sides) {
  return Error(kInvalidValue, fmt::format("{} {:#x} is pageable host memory, which {} cannot capture",
                                          sides.pageable_name(), sides.pageable_side().begin, stream.Describe()))
      .Culprit(fmt::format("parameter {}", sides.pageable_name()))
      .Hint("use memory from aclrtMallocHost, or register it with aclrtHostRegister: a replay reads and writes it");
}

// What an asynchronous copy with pageable memory has to do before it may copy on the calling thread.
Status BeforePageableCopy(runtime::Stream& stream, const CopySides& sides, const char* api) {
  if (stream.is_capturing()) return PageableInCapture(stream, sides);
  if (UnsafeIsRefused(stream.context())) {
    Status reason = CheckUnsafe(api);
    return Error(kCaptureModeBlocksAsync,
                 fmt::format("{} {:#x} is pageable host memory, so {} would have to wait, which an open capture "
                             "forbids",
                             sides.pageable_name(), sides.pageable_side().begin, api))
        .Culprit(reason.ok() ? std::string("a capture that has just ended") : reason.detail().culprit)
        .Hint(
            "use pinned host memory (aclrtMallocHost, aclrtHostRegister), or exchange the thread's capture mode to "
            "RELAXED");
  }
  return stream.Synchronize(std::nullopt);
}

StatusOr<CopySides> SidesOf(const Rows& rows) {
  // Bytes from the first to the last one that an access touches.
  const auto extent = [&](uint64_t pitch) { return pitch * (rows.height - 1) + rows.width; };
  return FindSides(rows.dst, extent(rows.dst_pitch), rows.src, extent(rows.src_pitch));
}

Status CopyRows(const Rows& rows, const CopySides& sides) {
  if (!sides.pageable()) {
    runtime::Copy2d(rows.dst, rows.dst_pitch, rows.src, rows.src_pitch, rows.width, rows.height);
    return {};
  }
  for (uint64_t row = 0; row < rows.height; ++row) {
    REPRISE_RETURN_IF_ERROR(CopyBytesNow(static_cast<char*>(rows.dst) + row * rows.dst_pitch,
                                         static_cast<const char*>(rows.src) + row * rows.src_pitch, rows.width, sides));
  }
  return {};
}

Status CopyItems(const CopyBatch& batch) {
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const runtime::CopyItem& item = batch.items[i];
    REPRISE_RETURN_IF_ERROR(CopyBytesNow(item.dst, item.src, item.bytes, batch.sides[i]));
  }
  return {};
}

// The task writes what the source holds now.
Status CopyStaged(runtime::Stream& stream, void* dst, const void* src, uint64_t bytes, const CopySides& sides) {
  if (sides.src.kind != device::MemoryKind::kPageable) return runtime::SubmitCopyOfSnapshot(stream, dst, src, bytes);
  std::string staged(bytes, '\0');
  REPRISE_RETURN_IF_ERROR(CopyBytesNow(staged.data(), src, bytes, sides));
  return runtime::SubmitCopyOfSnapshot(stream, dst, staged.data(), bytes);
}

// Pageable memory may be no memory at all, so the kernel writes it.
Status FillPageable(void* pointer, uint64_t bytes, uint8_t value) {
  if (IsStrict()) {
    return StrictRefusal(kInvalidValue, fmt::format("devPtr {} is neither device memory nor memory of aclrtMallocHost",
                                                    fmt::ptr(pointer)))
        .Culprit(fmt::format("devPtr {}", Memory().Explain(pointer)))
        .Hint("fill memory of the program with std::memset");
  }
  constexpr uint64_t kPart = 256u << 10;
  const std::string pattern(std::min(bytes, kPart), static_cast<char>(value));
  for (uint64_t done = 0; done < bytes; done += kPart) {
    auto* const at = static_cast<char*>(pointer) + done;
    if (device::CopyUntrusted(at, pattern.data(), std::min(bytes - done, kPart))) continue;
    return Error(kInvalidValue, fmt::format("devPtr [{}, {}) is not accessible", fmt::ptr(pointer),
                                            fmt::ptr(static_cast<char*>(pointer) + bytes)))
        .Culprit(fmt::format("devPtr {}", Memory().Explain(pointer)))
        .Hint("pass memory from aclrtMalloc, aclrtMallocHost or the program's heap that is still allocated");
  }
  return {};
}

}  // namespace

StatusOr<CopySides> FindSides(const void* dst, uint64_t dst_bytes, const void* src, uint64_t src_bytes) {
  CopySides sides;
  REPRISE_ASSIGN_OR_RETURN(sides.dst, Memory().CheckRange(dst, dst_bytes, "dst"));
  REPRISE_ASSIGN_OR_RETURN(sides.src, Memory().CheckRange(src, src_bytes, "src"));
  return sides;
}

Status CopyNow(void* dst, const void* src, uint64_t bytes, CopyKind kind, const char* api) {
  REPRISE_RETURN_IF_ERROR(CheckUnsafe(api));
  REPRISE_ASSIGN_OR_RETURN(const CopySides sides, FindSides(dst, bytes, src, bytes));
  if (IsStrict()) REPRISE_RETURN_IF_ERROR(CheckDirection(kind, dst, src, sides));
  return CopyBytesNow(dst, src, bytes, sides);
}

Status CopyRowsNow(const Rows& rows, CopyKind kind, const char* api) {
  REPRISE_RETURN_IF_ERROR(CheckUnsafe(api));
  REPRISE_ASSIGN_OR_RETURN(const CopySides sides, SidesOf(rows));
  if (IsStrict()) REPRISE_RETURN_IF_ERROR(CheckDirection(kind, rows.dst, rows.src, sides));
  return CopyRows(rows, sides);
}

Status CopyInOrder(runtime::Stream& stream, void* dst, const void* src, uint64_t bytes, CopyKind kind,
                   const char* api) {
  REPRISE_ASSIGN_OR_RETURN(const CopySides sides, FindSides(dst, bytes, src, bytes));
  if (IsStrict()) [[unlikely]] {
    REPRISE_RETURN_IF_ERROR(CheckDirection(kind, dst, src, sides));
  }
  if (kind == CopyKind::kStagedHostToDevice && sides.dst.kind != device::MemoryKind::kPageable) {
    return CopyStaged(stream, dst, src, bytes, sides);
  }
  if (!sides.pageable()) [[likely]]
    return runtime::SubmitCopy(stream, dst, src, bytes);
  REPRISE_RETURN_IF_ERROR(BeforePageableCopy(stream, sides, api));
  return CopyBytesNow(dst, src, bytes, sides);
}

Status CopyRowsInOrder(runtime::Stream& stream, const Rows& rows, CopyKind kind, const char* api) {
  REPRISE_ASSIGN_OR_RETURN(const CopySides sides, SidesOf(rows));
  if (IsStrict()) REPRISE_RETURN_IF_ERROR(CheckDirection(kind, rows.dst, rows.src, sides));
  if (!sides.pageable()) {
    return runtime::SubmitCopy2d(stream, rows.dst, rows.dst_pitch, rows.src, rows.src_pitch, rows.width, rows.height);
  }
  REPRISE_RETURN_IF_ERROR(BeforePageableCopy(stream, sides, api));
  return CopyRows(rows, sides);
}

Status CopyBatchNow(const CopyBatch& batch, const char* api) {
  REPRISE_RETURN_IF_ERROR(CheckUnsafe(api));
  return CopyItems(batch);
}

Status CopyBatchInOrder(runtime::Stream& stream, const CopyBatch& batch, const char* api) {
  for (const CopySides& sides : batch.sides) {
    if (!sides.pageable()) continue;
    REPRISE_RETURN_IF_ERROR(BeforePageableCopy(stream, sides, api));
    return CopyItems(batch);
  }
  return runtime::SubmitCopyBatch(stream, batch.items);
}

Status FillNow(void* pointer, uint8_t value, uint64_t bytes, const char* api) {
  REPRISE_RETURN_IF_ERROR(CheckUnsafe(api));
  REPRISE_ASSIGN_OR_RETURN(const device::MemoryRange range, Memory().CheckRange(pointer, bytes, "devPtr"));
  if (range.kind == device::MemoryKind::kPageable) return FillPageable(pointer, bytes, value);
  std::memset(pointer, value, bytes);
  return {};
}

Status FillInOrder(runtime::Stream& stream, void* pointer, uint8_t value, uint64_t bytes, const char* api) {
  CopySides sides;  // filled as if it were copied to
  REPRISE_ASSIGN_OR_RETURN(sides.dst, Memory().CheckRange(pointer, bytes, "devPtr"));
  sides.src.kind = device::MemoryKind::kPinnedHost;
  sides.dst_name = "devPtr";
  if (!sides.pageable()) [[likely]]
    return runtime::SubmitFill(stream, pointer, value, bytes);
  REPRISE_RETURN_IF_ERROR(BeforePageableCopy(stream, sides, api));
  return FillPageable(pointer, bytes, value);
}

Status CheckFillWords(const void* pointer, uint64_t count) {
  REPRISE_ASSIGN_OR_RETURN(const device::MemoryRange range, Memory().CheckRange(pointer, count * 4, "devPtr"));
  if (range.kind != device::MemoryKind::kPageable) return {};
  return Error(kInvalidArgument,
               fmt::format("devPtr {} is neither device memory nor pinned host memory", fmt::ptr(pointer)))
      .Culprit(fmt::format("devPtr {}", Memory().Explain(pointer)))
      .Hint("pass memory from aclrtMalloc or aclrtMallocHost");
}

Status FillWordsNow(void* pointer, uint32_t value, uint64_t count, const char* api) {
  REPRISE_RETURN_IF_ERROR(CheckUnsafe(api));
  std::fill_n(static_cast<uint32_t*>(pointer), count, value);
  return {};
}

Status FillWordsInOrder(runtime::Stream& stream, void* pointer, uint32_t value, uint64_t count) {
  return runtime::SubmitFill32(stream, pointer, value, count);
}

}  // namespace reprise::capture
