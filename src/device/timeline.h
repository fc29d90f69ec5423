// SPDX-License-Identifier: Apache-2.0
//
// Timeline: when which task ran, and what the program marked, written as a Chrome trace (Perfetto, chrome://tracing).
//
// Off, it (together with the watch of task_watch.h) costs one relaxed load where tasks are run in batches, where a lane
// of a graph goes on, and for each submission to a stream. On, every task is described and kept in memory until the
// last session has taken it.
//
// Tracks: one for each stream and each lane of a graph, below their device; one for each thread of the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/scheduler.h"
#include "ir/task.h"

namespace reprise::device {

/// Threads: thread-safe.
class Timeline {
 public:
  /// The most events that are kept unless a session says otherwise; later events are counted and dropped.
  static constexpr uint64_t kDefaultLimit = 1u << 20;

  /// Whether anybody records.
  static bool on() noexcept { return (observers_.load(std::memory_order_relaxed) & kRecording) != 0; }
  /// Whether anybody records, or watches tasks: whoever runs them then does so one by one.
  static bool observed() noexcept { return observers_.load(std::memory_order_relaxed) != 0; }
  /// Whether somebody who records wants the shapes of operator calls, too.
  static bool wants_shapes() noexcept { return (observers_.load(std::memory_order_relaxed) & kShapes) != 0; }
  /// Whether somebody wants to see each task by itself, where a graph would run one thing in place of several.
  static bool wants_each_task() noexcept {
    return (observers_.load(std::memory_order_relaxed) & (kEachTask | kWatching)) != 0;
  }
  static void SetWatched(bool watched) noexcept { SetObserver(kWatching, watched); }
  /// Nanoseconds of the clock that the timeline uses; never 0.
  static uint64_t Now() noexcept;

  static Timeline& Get();

  struct Options {
    std::vector<int32_t> devices;    ///< whose tasks are wanted; empty: all
    uint64_t limit = kDefaultLimit;  ///< events in memory; with several sessions the largest of theirs
    bool shapes = false;             ///< of operator calls; with several sessions if one of them wants them
    bool each_task = true;  ///< false: links of chains (ir/chain.h) as they run, unless another session says true
  };

  /// Begins to record; returns the session's number.
  uint64_t Start(Options options);
  /// Writes what happened since Start and ends the session. When the file cannot be written (500005), the session goes
  /// on, so that nothing is lost and the call can be repeated.
  Status Stop(uint64_t session, const std::string& path);
  /// Ends the session without a file.
  void Drop(uint64_t session) noexcept;

  /// A task of a stream or of a graph's lane has run since `begin`; `context` says where. A mark becomes an instant.
  void Task(const RunContext& context, const ir::TaskType& type, const void* payload, uint64_t begin, uint32_t label,
            bool failed) noexcept;
  /// A task was handed to a stream since `begin`.
  void Submission(int32_t device, int32_t stream, uint32_t task_id, uint32_t name, uint64_t begin) noexcept;
  /// A range from `begin` until now on the track of the stream that `context` names; tasks may lie within it.
  void Step(const RunContext& context, std::string_view name, uint64_t begin) noexcept;
  /// An instant on the calling thread.
  void Mark(std::string_view name) noexcept;
  /// A range that the caller has measured with the clock of Now, on the thread with that kernel id.
  void Range(std::string_view name, uint64_t begin, uint64_t end, int32_t thread) noexcept;
  /// A duration that begins now on the calling thread; 0 when nobody records. `nested` ranges of a thread end in the
  /// opposite order of their beginnings, others when they like and on any thread.
  uint64_t OpenRange(std::string_view name, bool nested) noexcept;
  void CloseRange(uint64_t range) noexcept;

  /// A number for a text, for `label` and `name` above; 0 is no text. Kept for ever, hence up to a number of texts.
  uint32_t Intern(std::string_view text) noexcept;
  /// What a recording keeps of a task; texts as numbers of Intern.
  struct Words {
    const char* type = nullptr;  ///< name of its type
    uint32_t name = 0;
    uint32_t shapes = 0;  ///< 0 unless they are wanted and known
    uint32_t blocks = 0;  ///< 0: not a kernel
  };
  Words WordsOf(const ir::TaskType& type, const void* payload) noexcept;

 private:
  enum class Kind : uint8_t { kTask, kStreamMark, kStep, kSubmission, kMark, kRange, kLooseRange };
  struct Event {
    uint64_t begin;
    uint64_t end;
    const char* type;  ///< of the task; a literal
    uint32_t name;
    uint32_t label;  ///< graph of the task
    uint32_t shapes;
    uint32_t blocks;
    uint32_t task_id;
    int32_t device;
    int32_t stream;
    int32_t thread;
    Kind kind;
    bool is_graph;
    bool is_collective;  ///< whose shapes tell its group and bytes
    bool failed;
    bool open;  ///< a range that has not ended
  };
  struct Shard {
    alignas(64) Mutex mutex;
    std::vector<Event> events REPRISE_GUARDED_BY(mutex);
  };
  struct Session {
    uint64_t begin;
    Options options;
    uint64_t dropped_before;
  };
  struct OpenOne {
    uint64_t begin;
    uint32_t name;
    int32_t thread;
    bool nested;
  };
  class Writer;

  static constexpr size_t kShards = 16;
  static constexpr size_t kMostNames = 1u << 17;
  static constexpr size_t kMostOpenRanges = 1u << 16;

  void Add(const Event& event) noexcept;
  void Clear() noexcept;
  void AdoptOptions() noexcept REPRISE_REQUIRES(sessions_mutex_);
  std::vector<Event> Collect(const Session& session);

  static constexpr uint32_t kRecording = 1;
  static constexpr uint32_t kWatching = 2;
  static constexpr uint32_t kShapes = 4;
  static constexpr uint32_t kEachTask = 8;
  static void SetObserver(uint32_t observer, bool on) noexcept;
  static std::atomic<uint32_t> observers_;  // not inline: libraries with hidden symbols would each have their own

  Mutex sessions_mutex_;  // above all others
  std::map<uint64_t, Session> sessions_ REPRISE_GUARDED_BY(sessions_mutex_);
  uint64_t next_session_ REPRISE_GUARDED_BY(sessions_mutex_) = 1;

  Shard shards_[kShards];
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> limit_{kDefaultLimit};
  std::atomic<uint64_t> dropped_{0};

  Mutex names_mutex_;
  std::unordered_map<std::string, uint32_t> name_ids_ REPRISE_GUARDED_BY(names_mutex_);
  std::vector<const std::string*> names_ REPRISE_GUARDED_BY(names_mutex_);  // keys of name_ids_, by id - 1

  Mutex ranges_mutex_;
  std::map<uint64_t, OpenOne> open_ REPRISE_GUARDED_BY(ranges_mutex_);
  uint64_t next_range_ REPRISE_GUARDED_BY(ranges_mutex_) = 1;
};

/// For the time of one submission to a stream.
class SubmissionNote {
 public:
  explicit SubmissionNote(const ir::Task& task) {
    if (Timeline::on()) [[unlikely]]
      Begin(task);
  }
  /// The task has got its place in the stream.
  void Placed(int32_t device, int32_t stream, uint32_t task_id) {
    if (begin_ != 0) [[unlikely]]
      Timeline::Get().Submission(device, stream, task_id, name_, begin_);
  }

 private:
  void Begin(const ir::Task& task);
  uint64_t begin_ = 0;
  uint32_t name_ = 0;
};

/// When a parked task began; tells one that parked earlier from the one that runs now.
struct ParkedSince {
  uint64_t begin = 0;
  uint64_t key = 0;

  uint64_t BeginOf(uint64_t task, bool is_parked) const {
    return is_parked && begin != 0 && key == task ? begin : Timeline::Now();
  }
};

}  // namespace reprise::device
