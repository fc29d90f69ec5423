// SPDX-License-Identifier: Apache-2.0
//
// Profiler: what the aclprof* functions do. One recording at a time, from Start to Stop, written as a timeline (see
// device/timeline.h) into the folder that Init named:
//
//     ──Init──► ready ──Start──► recording ──Stop: trace_<pid>_<n>.json──► ready ──Finalize──►
//
// Beside it Stop writes a folder that the command msprof reads (prof_folder.h).
//
// Marks, ranges and steps may be set at any time; they are kept only while somebody records.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/handle_table.h"
#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::profile {

/// Threads: all functions are thread-safe; ranges that nest belong to the calling thread.
class Profiler {
 public:
  static Profiler& Get();

  /// 100042 when it is ready or recording, 100003 when the folder cannot be made or written to.
  Status Init(const std::string& folder);
  /// Stops what runs. 100043 unless Init was called.
  Status Finalize();
  bool is_ready();

  StatusOr<void*> CreateConfig(std::vector<int32_t> devices, uint64_t data_kinds);
  /// 100042 while it is in use.
  Status DestroyConfig(const void* config);
  Status SetFolder(const std::string& folder);
  /// Of files that begin later.
  Status SetStorageLimit(uint64_t megabytes);
  /// Whether Start would begin now.
  Status CheckStart(const void* config);
  Status Start(const void* config);
  Status Stop(const void* config);
  static void* CreateStep();
  static bool DestroyStep(const void* step);
  /// Queues the begin or the end of a step.
  static Status StepTime(const void* step, bool is_end, runtime::Stream& stream);

  static void* CreateStamp();
  static bool DestroyStamp(const void* stamp);
  static Status SetStampText(const void* stamp, std::string text);
  static Status MarkStamp(const void* stamp);
  /// An instant on this thread, and one on the stream when it comes to it.
  static Status MarkOn(runtime::Stream& stream, const std::string& text, bool also_here);

  static Status PushStamp(const void* stamp);
  static Status Pop();
  /// A second stack, of ranges with attributes.
  static void PushNamed(std::string_view name);
  static Status PopNamed();
  StatusOr<uint32_t> StartRange(const void* stamp);
  Status StopRange(uint32_t range);

  /// A number for the text, equal at each call. 207005 when there are too many texts.
  StatusOr<uint64_t> NumberOf(std::string_view text);
  /// The text of such a number; empty when it has none.
  std::string TextOf(uint64_t number);

 private:
  Profiler();
  struct State;
  Status CheckStartLocked(const void* config);
  Status StopLocked();
  static void WriteAtExit();
  const std::unique_ptr<State> state_;
};

/// What aclprofCreateSubscribeConfig makes; there are no offline models to subscribe to. The table is here because the
/// functions on it are in two libraries.
struct ProfilerSubscription {};
HandleTable<ProfilerSubscription, HandleKind::kProfilerSubscription>& ProfilerSubscriptions();

}  // namespace reprise::profile
