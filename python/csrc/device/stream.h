// SPDX-License-Identifier: Apache-2.0
//
// NPUStream: a c10::Stream of the npu device. Ids are type * 32 + index; streams are made at first use and live as long
// as the process.
#pragma once

#include <acl/acl.h>
#include <c10/core/Stream.h>

namespace torch_npu {

enum class StreamType : int64_t {
  kDefault = 0,
  kSecondary = 1,
  kSyncLaunch = 2,
  kNormal = 3,
  kHigh = 4,
  kExternal = 5
};

class NPUStream {
 public:
  /// Throws unless it is a stream of this device type with an id that was handed out or can be.
  explicit NPUStream(c10::Stream stream);

  const c10::Stream& unwrap() const noexcept { return stream_; }
  operator c10::Stream() const noexcept { return stream_; }
  c10::StreamId id() const noexcept { return stream_.id(); }
  c10::DeviceIndex device_index() const noexcept { return stream_.device_index(); }
  c10::Device device() const noexcept { return stream_.device(); }
  StreamType type() const noexcept;
  bool is_external() const noexcept { return type() == StreamType::kExternal; }
  /// The runtime's stream; created now if need be.
  aclrtStream handle() const;
  operator aclrtStream() const { return handle(); }
  /// Null when nobody has used the stream yet.
  aclrtStream handle_if_made() const noexcept;

  /// Work left? Refused while the stream is being captured.
  bool query() const;
  void synchronize() const;
  bool is_capturing() const;

  friend bool operator==(const NPUStream& a, const NPUStream& b) noexcept { return a.stream_ == b.stream_; }

 private:
  friend NPUStream CurrentStream(c10::DeviceIndex device);
  struct Known {};  // it was looked at before
  NPUStream(Known, c10::Stream stream) noexcept : stream_(stream) {}

  c10::Stream stream_;
};

/// Of the calling thread. -1: the current device.
NPUStream CurrentStream(c10::DeviceIndex device = -1);
NPUStream DefaultStream(c10::DeviceIndex device = -1);
void SetCurrentStream(const NPUStream& stream);

/// By its parts, as Python and other processes know it; throws unless it is one.
NPUStream StreamFromParts(int64_t id, int64_t device_index, int64_t device_type);

/// The next stream of a pool, round robin; those that are being captured are passed over. Lower numbers come first:
/// negative is the high pool.
NPUStream StreamFromPool(int priority = 0, c10::DeviceIndex device = -1, StreamType type = StreamType::kNormal);
/// Throws for a stream that somebody else made: `what` needs one of ours.
void RefuseExternal(const NPUStream& stream, const char* what);

/// Wraps a stream of somebody else; the same handle gives the same stream.
NPUStream StreamFromExternal(aclrtStream handle, c10::DeviceIndex device);

/// The id of the stream that the runtime's messages call "stream `number`"; -1: none of ours. Never throws.
c10::StreamId StreamIdOf(c10::DeviceIndex device, int32_t number) noexcept;

/// Another current stream (and device) for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(const NPUStream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  c10::DeviceIndex device_;
  NPUStream previous_;
};

}  // namespace torch_npu
