// SPDX-License-Identifier: Apache-2.0
//
// Context: owns streams and models of one device; one of them is current on each thread that uses the API.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>

#include "base/gated_mutex.h"
#include "base/mutex.h"
#include "base/status.h"
#include "runtime/objects.h"

namespace reprise::runtime {

class Device;
class Stream;

/// Strictness of captures; the numbers are those of aclmdlRICaptureMode.
enum class CaptureMode : uint8_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2, kNone = 3 };

/// How many captures of each mode are open, and the strictest of them.
class CaptureCounts {
 public:
  void Add(CaptureMode mode) { counts_[static_cast<int>(mode)].fetch_add(1, std::memory_order_relaxed); }
  void Remove(CaptureMode mode) { counts_[static_cast<int>(mode)].fetch_sub(1, std::memory_order_relaxed); }
  CaptureMode Strictest() const {
    for (int i = 0; i < 3; ++i) {
      if (counts_[i].load(std::memory_order_relaxed) != 0) return static_cast<CaptureMode>(i);
    }
    return CaptureMode::kNone;
  }

 private:
  std::atomic<uint32_t> counts_[3]{};
};

/// What a context owns beyond streams: captured models. Implemented by the layer above.
class ContextResident {
 public:
  /// The context is being destroyed: frees this object.
  virtual void ReleaseFromContext() = 0;

 protected:
  ~ContextResident() = default;
};

/// Life cycle: Create … Destroy; after Destroy the handle is stale and nothing of the context is left.
/// Threads: thread-safe.
class Context {
 public:
  static StatusOr<Context*> Create(Device& device, bool is_primary);
  /// Waits for the work of all streams, then frees streams and residents. False when another thread does that.
  static bool Destroy(Context* context);
  static size_t CountOn(const Device& device);

  Device& device() const { return device_; }
  void* handle() const { return handle_; }
  bool is_primary() const { return is_primary_; }
  Stream* default_stream() const { return default_stream_; }

  /// Waits until all streams are idle. 507046 on timeout, else the first asynchronous error of any stream.
  Status Synchronize(int64_t timeout_ms);
  /// 507000 for a thread that runs a host function of one of the streams, and does `what`, which would wait for it.
  Status CheckNotInside(const char* what) const;

  /// False when the context is being destroyed: only callers that found it before can still use it.
  bool AddStream(Stream* stream);
  /// Takes the stream out of the lists, so that no other call finds it here; the context still waits for RemoveStream.
  void HideStream(Stream* stream);
  void RemoveStream(Stream* stream);
  template <class Visit>
  void ForEachStream(Visit visit) {
    MutexLock lock(streams_mutex_);
    for (Stream* stream : streams_) visit(*stream);
  }
  /// False as with AddStream.
  bool AddResident(ContextResident* resident);
  /// Of all threads that destroy a resident, one gets true. The context waits until that thread says that the resident
  /// is gone.
  bool TakeResident(ContextResident* resident);
  void ResidentIsGone();

  /// One lock for the capture state of all streams of the context. Rank: above stream and event locks. Tasks that are
  /// recorded take it shortly.
  GatedMutex capture_mutex;
  /// Open captures; written under capture_mutex, read without it.
  CaptureCounts capture_counts;
  std::atomic<uint32_t> capturing_streams{0};

  Mutex options_mutex;
  std::map<int, int64_t> options REPRISE_GUARDED_BY(options_mutex);  ///< aclrtCtxSetSysParamOpt
  std::atomic<bool> stop_on_failure{false};

 private:
  Context(Device& device, bool is_primary) : device_(device), is_primary_(is_primary) {}
  ~Context() = default;

  Device& device_;
  const bool is_primary_;
  void* handle_ = nullptr;
  Stream* default_stream_ = nullptr;
  void DestroyContents();

  std::atomic<bool> is_leaving_{false};
  Mutex streams_mutex_;
  std::set<Stream*> streams_ REPRISE_GUARDED_BY(streams_mutex_);
  size_t hidden_streams_ REPRISE_GUARDED_BY(streams_mutex_) = 0;
  bool is_closed_ REPRISE_GUARDED_BY(streams_mutex_) = false;
  Mutex residents_mutex_;
  std::set<ContextResident*> residents_ REPRISE_GUARDED_BY(residents_mutex_);
  size_t leaving_residents_ REPRISE_GUARDED_BY(residents_mutex_) = 0;
  bool takes_residents_ REPRISE_GUARDED_BY(residents_mutex_) = true;
};

/// The thread's current context; 107002 when it has none or it was destroyed. A thread that never had one gets the
/// primary context of the default device, if there is one.
StatusOr<Context*> CurrentContext();
/// The device of threads that choose none; -1 for none, as at first.
void SetDefaultDevice(int device);
int DefaultDevice();
/// Handle of the current context, live or not; null when none.
void* CurrentContextHandle();
void SetCurrentContext(Context* context);

}  // namespace reprise::runtime
