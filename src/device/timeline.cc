// SPDX-License-Identifier: Apache-2.0
#include "device/timeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "base/calls.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "ir/task_info.h"

namespace reprise::device {
namespace {

constexpr const char* kTooManyNames = "(more names than are kept)";
constexpr uint32_t kTooManyNamesId = 1;
constexpr size_t kMostNameBytes = 512;
// Process numbers of the trace: the program's threads, then the devices.
constexpr int kHostTrack = 1;
constexpr int kFirstDeviceTrack = 2;

int32_t ThreadNumber() {
  thread_local const auto number = static_cast<int32_t>(syscall(SYS_gettid));
  return number;
}

// Marks carry bytes of the program; a JSON file takes UTF-8 only.
std::string CleanText(std::string_view text) {
  std::string out;
  text = text.substr(0, kMostNameBytes);
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = first < 0x80   ? 1
                          : first < 0xC2 ? 0
                          : first < 0xE0 ? 2
                          : first < 0xF0 ? 3
                          : first < 0xF5 ? 4
                                         : 0;
    bool good = length != 0 && i + length <= text.size();
    for (size_t j = 1; good && j < length; ++j) good = (static_cast<unsigned char>(text[i + j]) & 0xC0) == 0x80;
    if (good && length > 2) {
      // Overlong forms, surrogates, and what lies beyond the last code point.
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F) &&
             !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
    }
    if (good) {
      out.append(text, i, length);
      i += length;
    } else {
      out += '?';
      ++i;
    }
  }
  return out;
}

}  // namespace

std::atomic<uint32_t> Timeline::observers_{0};

void Timeline::SetObserver(uint32_t observer, bool on) noexcept {
  if (on) {
    observers_.fetch_or(observer, std::memory_order_seq_cst);
  } else {
    observers_.fetch_and(~observer, std::memory_order_seq_cst);
  }
}

uint64_t Timeline::Now() noexcept {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

Timeline& Timeline::Get() {
  static auto* const timeline = new Timeline;
  return *timeline;
}

void Timeline::AdoptOptions() noexcept {
  uint64_t limit = 0;
  bool shapes = false, each_task = false;
  for (const auto& [number, session] : sessions_) {
    limit = std::max(limit, session.options.limit);
    shapes |= session.options.shapes;
    each_task |= session.options.each_task;
  }
  if (!sessions_.empty()) limit_.store(limit, std::memory_order_relaxed);
  SetObserver(kShapes, shapes);
  SetObserver(kEachTask, each_task);
}

uint64_t Timeline::Start(Options options) {
  MutexLock lock(sessions_mutex_);
  if (Intern(kTooManyNames) == 0) throw std::bad_alloc();
  if (sessions_.empty()) count_.store(0, std::memory_order_relaxed);  // late events of an earlier one were counted
  const uint64_t number = next_session_++;
  sessions_.emplace(number, Session{Now(), std::move(options), dropped_.load(std::memory_order_relaxed)});
  AdoptOptions();
  SetObserver(kRecording, true);
  return number;
}

void Timeline::Drop(uint64_t session) noexcept {
  MutexLock lock(sessions_mutex_);
  sessions_.erase(session);
  AdoptOptions();
  if (!sessions_.empty()) return;
  SetObserver(kRecording, false);
  Clear();
}

void Timeline::Clear() noexcept {
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    std::vector<Event>().swap(shard.events);
  }
  count_.store(0, std::memory_order_relaxed);
  MutexLock lock(ranges_mutex_);
  open_.clear();
}

void Timeline::Add(const Event& event) noexcept {
  if (count_.fetch_add(1, std::memory_order_relaxed) >= limit_.load(std::memory_order_relaxed)) {
    count_.fetch_sub(1, std::memory_order_relaxed);
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Shard& shard = shards_[static_cast<uint32_t>(ThreadNumber()) % kShards];
  MutexLock lock(shard.mutex);
  if (!on()) return;  // the last session has ended meanwhile, and cleared the shards
  try {
    shard.events.push_back(event);
  } catch (const std::bad_alloc&) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

uint32_t Timeline::Intern(std::string_view text) noexcept try {
  if (text.empty()) return 0;
  std::string clean = CleanText(text);
  MutexLock lock(names_mutex_);
  if (const auto it = name_ids_.find(clean); it != name_ids_.end()) return it->second;
  if (names_.size() >= kMostNames) return kTooManyNamesId;
  if (names_.size() == names_.capacity()) names_.reserve(2 * names_.size() + 16);  // so that push_back cannot fail
  const auto id = static_cast<uint32_t>(names_.size() + 1);
  names_.push_back(&name_ids_.emplace(std::move(clean), id).first->first);
  return id;
} catch (const std::bad_alloc&) {
  return 0;
}

Timeline::Words Timeline::WordsOf(const ir::TaskType& type, const void* payload) noexcept try {
  if (type.describe == nullptr) return {type.name, Intern(type.name)};
  ir::TaskInfo info;
  info.type_name = type.name;
  info.names_only = true;
  info.wants_shapes = wants_shapes() || type.kind == ir::TaskKind::kCollective;
  type.describe(payload, info);
  const uint32_t name = Intern(info.name.empty() ? std::string_view(info.type_name) : info.name);
  return {info.type_name, name, info.wants_shapes ? Intern(info.shapes) : 0, info.num_blocks};
} catch (const std::bad_alloc&) {
  return {type.name};
}

void Timeline::Task(const RunContext& context, const ir::TaskType& type, const void* payload, uint64_t begin,
                    uint32_t label, bool failed) noexcept {
  if (!on()) return;  // tasks are watched only
  const uint64_t end = Now();
  Event event{};
  event.begin = begin;
  event.end = end;
  const Words words = WordsOf(type, payload);
  event.type = words.type;
  event.name = words.name;
  event.shapes = words.shapes;
  event.blocks = words.blocks;
  event.label = label;
  event.task_id = context.task_id;
  event.device = context.device_id;
  event.stream = context.stream_id;
  event.thread = ThreadNumber();
  event.kind = type.kind == ir::TaskKind::kMark ? Kind::kStreamMark : Kind::kTask;
  event.is_graph = type.kind == ir::TaskKind::kGraph;
  event.is_collective = type.kind == ir::TaskKind::kCollective;
  event.failed = failed;
  Add(event);
}

void Timeline::Submission(int32_t device, int32_t stream, uint32_t task_id, uint32_t name, uint64_t begin) noexcept {
  Event event{};
  event.begin = begin;
  event.end = Now();
  event.name = name;
  event.task_id = task_id;
  event.device = device;
  event.stream = stream;
  event.thread = ThreadNumber();
  event.kind = Kind::kSubmission;
  Add(event);
}

void Timeline::Step(const RunContext& context, std::string_view name, uint64_t begin) noexcept {
  Event event{};
  event.begin = begin;
  event.end = Now();
  event.name = Intern(name);
  event.device = context.device_id;
  event.stream = context.stream_id;
  event.kind = Kind::kStep;
  Add(event);
}

void Timeline::Mark(std::string_view name) noexcept {
  Event event{};
  event.begin = event.end = Now();
  event.name = Intern(name);
  event.thread = ThreadNumber();
  event.kind = Kind::kMark;
  Add(event);
}

void Timeline::Range(std::string_view name, uint64_t begin, uint64_t end, int32_t thread) noexcept {
  Event event{};
  event.begin = begin;
  event.end = end;
  event.name = Intern(name);
  event.thread = thread;
  event.kind = Kind::kLooseRange;
  Add(event);
}

uint64_t Timeline::OpenRange(std::string_view name, bool nested) noexcept try {
  if (!on()) return 0;
  const OpenOne range{Now(), Intern(name), ThreadNumber(), nested};
  MutexLock lock(ranges_mutex_);
  if (open_.size() >= kMostOpenRanges) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  open_.emplace(next_range_, range);
  return next_range_++;
} catch (const std::bad_alloc&) {
  return 0;
}

void Timeline::CloseRange(uint64_t range) noexcept {
  if (range == 0) return;
  Event event{};
  {
    MutexLock lock(ranges_mutex_);
    const auto it = open_.find(range);
    if (it == open_.end()) return;  // its session has ended
    event.begin = it->second.begin;
    event.name = it->second.name;
    event.thread = it->second.thread;
    event.kind = it->second.nested ? Kind::kRange : Kind::kLooseRange;
    open_.erase(it);
  }
  event.end = Now();
  Add(event);
}

std::vector<Timeline::Event> Timeline::Collect(const Session& session) {
  std::vector<Event> events;
  const auto add = [&](Event event) {
    if (event.end < session.begin) return;
    const auto& devices = session.options.devices;
    const bool on_device = event.kind == Kind::kTask || event.kind == Kind::kStreamMark || event.kind == Kind::kStep ||
                           event.kind == Kind::kSubmission;
    if (on_device && !devices.empty() && std::find(devices.begin(), devices.end(), event.device) == devices.end())
      return;
    event.begin = std::max(event.begin, session.begin);
    events.push_back(event);
  };
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    for (const Event& event : shard.events) add(event);
  }
  {
    MutexLock lock(ranges_mutex_);
    for (const auto& [number, range] : open_) {
      Event event{};
      event.begin = range.begin;
      event.end = Now();
      event.name = range.name;
      event.thread = range.thread;
      event.kind = range.nested ? Kind::kRange : Kind::kLooseRange;
      event.open = true;
      add(event);
    }
  }
  // What contains others comes first, as viewers want it.
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  return events;
}

// The file; text is gathered and written in pieces.
class Timeline::Writer {
 public:
  Writer(Timeline& timeline, const Session& session, FILE* file)
      : timeline_(timeline), session_(session), file_(file) {}

  // False when the file cannot take it; errno says why.
  bool Write(const std::vector<Event>& events) {
    const auto unix_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count() -
        static_cast<int64_t>(Now() - session_.begin);
    fmt::format_to(Out(),
                   R"({{"displayTimeUnit":"ns","otherData":{{"producer":"reprise","process":{},"start_unix_ns":{},)"
                   R"("start_monotonic_ns":{},"dropped_events":{}}},"traceEvents":[)"
                   "\n",
                   getpid(), unix_ns, session_.begin, timeline_.dropped_.load() - session_.dropped_before);
    Name(kHostTrack, 0, "process_name", "program");
    for (const Event& event : events) {
      WriteEvent(event);
      if (text_.size() > kPiece && !Flush()) return false;
    }
    text_ += "\n]}\n";
    return Flush();
  }

 private:
  static constexpr size_t kPiece = 64u << 10;

  std::back_insert_iterator<std::string> Out() { return std::back_inserter(text_); }
  bool Flush() {
    const bool written = std::fwrite(text_.data(), 1, text_.size(), file_) == text_.size();
    text_.clear();
    return written;
  }

  // Times are microseconds since the session began.
  double Us(uint64_t ns) const { return static_cast<double>(ns - session_.begin) / 1000; }

  std::string NameText(uint32_t id) const {
    MutexLock lock(timeline_.names_mutex_);
    return id == 0 || id > timeline_.names_.size() ? "?" : JsonEscape(*timeline_.names_[id - 1]);
  }

  void Separate() {
    if (!first_) text_ += ",\n";
    first_ = false;
  }

  void Name(int process, int64_t thread, const char* what, const std::string& name) {
    Separate();
    fmt::format_to(Out(), R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}})", process, thread, what,
                   name);
  }

  void HostTrack(int32_t thread) {
    if (!seen_.insert({kHostTrack, thread}).second) return;
    Name(kHostTrack, thread, "thread_name", fmt::format("thread {}", thread));
  }

  // Viewers take thread 0 for an idle one, so tracks count from 1.
  void DeviceTrack(const Event& event) {
    const int process = kFirstDeviceTrack + event.device;
    if (!seen_.insert({process, event.stream}).second) return;
    if (devices_.insert(event.device).second) {
      Name(process, 0, "process_name", fmt::format("device {}", event.device));
    }
    Name(process, event.stream + 1, "thread_name",
         event.label == 0 ? fmt::format("stream {}", event.stream)
                          : fmt::format("stream {} of {}", event.stream, NameText(event.label)));
  }

  void Begin(const char* phase, int process, int64_t thread, uint64_t begin, const char* category,
             const std::string& name) {
    Separate();
    fmt::format_to(Out(), R"({{"ph":"{}","pid":{},"tid":{},"ts":{:.3f},"cat":"{}","name":"{}")", phase, process, thread,
                   Us(begin), category, name);
  }

  void WriteEvent(const Event& event) {
    const bool on_host = event.kind == Kind::kSubmission || event.kind == Kind::kMark || event.kind == Kind::kRange ||
                         event.kind == Kind::kLooseRange;
    if (on_host) {
      HostTrack(event.thread);
    } else {
      DeviceTrack(event);
    }
    const int process = on_host ? kHostTrack : kFirstDeviceTrack + event.device;
    const int64_t thread = on_host ? event.thread : int64_t{event.stream} + 1;
    const double duration = static_cast<double>(event.end - event.begin) / 1000;
    switch (event.kind) {
      case Kind::kTask: {
        Begin("X", process, thread, event.begin, event.is_graph ? "graph" : "task", NameText(event.name));
        fmt::format_to(Out(), R"(,"dur":{:.3f},"args":{{"type":"{}","stream":{},"task":{},"thread":{})", duration,
                       event.type, event.stream, event.task_id, event.thread);
        if (event.label != 0) fmt::format_to(Out(), R"(,"graph":"{}")", NameText(event.label));
        if (event.blocks != 0) fmt::format_to(Out(), R"(,"blocks":{})", event.blocks);
        if (event.shapes != 0) {
          const char* const key = event.is_collective ? "collective" : "shapes";
          fmt::format_to(Out(), R"(,"{}":"{}")", key, NameText(event.shapes));
        }
        if (event.failed) text_ += R"(,"failed":true)";
        text_ += "}}";
        if (event.label == 0) EndFlow(event, process, thread);
        break;
      }
      case Kind::kStreamMark:
        Begin("i", process, thread, event.begin, "mark", NameText(event.name));
        text_ += R"(,"s":"t"})";
        EndFlow(event, process, thread);
        break;
      case Kind::kStep:
        Begin("X", process, thread, event.begin, "step", NameText(event.name));
        fmt::format_to(Out(), R"(,"dur":{:.3f}}})", duration);
        break;
      case Kind::kSubmission:
        Begin("X", process, thread, event.begin, "submission", "submit " + NameText(event.name));
        fmt::format_to(Out(), R"(,"dur":{:.3f},"args":{{"device":{},"stream":{},"task":{}}}}})", duration, event.device,
                       event.stream, event.task_id);
        submitted_[{event.device, event.stream, event.task_id}] = {event.begin, event.thread};
        break;
      case Kind::kMark:
        Begin("i", process, thread, event.begin, "mark", NameText(event.name));
        text_ += R"(,"s":"t"})";
        break;
      case Kind::kRange:
        Begin(event.open ? "B" : "X", process, thread, event.begin, "range", NameText(event.name));
        if (!event.open) fmt::format_to(Out(), R"(,"dur":{:.3f})", duration);
        text_ += '}';
        break;
      case Kind::kLooseRange:
        ++next_id_;
        Begin("b", process, thread, event.begin, "range", NameText(event.name));
        fmt::format_to(Out(), R"(,"id":{}}})", next_id_);
        if (event.open) break;
        Begin("e", process, thread, event.end, "range", NameText(event.name));
        fmt::format_to(Out(), R"(,"id":{}}})", next_id_);
        break;
    }
  }

  // An arrow from the submission to the task. Numbers of streams and tasks are used again, so the newest one counts.
  void EndFlow(const Event& event, int process, int64_t thread) {
    const auto it = submitted_.find({event.device, event.stream, event.task_id});
    if (it == submitted_.end()) return;
    ++next_id_;
    Begin("s", kHostTrack, it->second.thread, it->second.begin, "flow", "runs");
    fmt::format_to(Out(), R"(,"id":{}}})", next_id_);
    Begin("f", process, thread, event.begin, "flow", "runs");
    fmt::format_to(Out(), R"(,"bp":"e","id":{}}})", next_id_);
    submitted_.erase(it);
  }

  struct Submitted {
    uint64_t begin;
    int32_t thread;
  };
  Timeline& timeline_;
  const Session& session_;
  FILE* const file_;
  std::string text_;
  bool first_ = true;
  uint64_t next_id_ = 0;
  std::set<std::pair<int, int32_t>> seen_;
  std::set<int32_t> devices_;
  std::map<std::tuple<int32_t, int32_t, uint32_t>, Submitted> submitted_;
};

Status Timeline::Stop(uint64_t number, const std::string& path) {
  MutexLock lock(sessions_mutex_);
  const auto it = sessions_.find(number);
  if (it == sessions_.end())
    return Error(kProfilingFailure, fmt::format("there is no recording {}", number))
        .Hint("write a recording once, before it is dropped");
  const auto failed = [&](int error) {
    return Error(kProfilingFailure, fmt::format("the timeline cannot be written to {}: {}", path, std::strerror(error)))
        .Culprit(fmt::format("file {}", path))
        .Hint("make room, or make the folder writable, and stop again: what was recorded is kept");
  };
  const std::vector<Event> events = Collect(it->second);
  FILE* file = FaultPoint("timeline.file") ? nullptr : std::fopen(path.c_str(), "we");
  if (file == nullptr) return failed(errno);
  errno = 0;
  const bool written = Writer(*this, it->second, file).Write(events);
  const int error = errno;
  if (std::fclose(file) != 0 || !written) return failed(written ? errno : error);
  sessions_.erase(it);
  AdoptOptions();
  if (sessions_.empty()) {
    SetObserver(kRecording, false);
    Clear();
  }
  return {};
}

void SubmissionNote::Begin(const ir::Task& task) {
  name_ = Timeline::Get().WordsOf(*task.type, task.payload).name;
  begin_ = Timeline::Now();
}

// ---- The whole process: REPRISE_PROFILE ----

namespace {

struct WholeProcess {
  uint64_t session = 0;
  pid_t process = 0;
  std::string path;
};

WholeProcess& Whole() {
  static auto* const whole = new WholeProcess;
  return *whole;
}

void WriteWholeProcess() {
  const WholeProcess& whole = Whole();
  if (getpid() != whole.process) return;  // a fork of the program: the file belongs to its parent
  const Status status = Timeline::Get().Stop(whole.session, whole.path);
  if (status.ok()) return;
  // Whoever set the variable waits for a file, and nobody is left to whom an error could be returned.
  std::fprintf(stderr, "reprise: %s: %s\n", EnvName(EnvVar::kProfile), status.detail().what.c_str());
}

void RecordWholeProcess() {
  std::string path = Env(EnvVar::kProfile);
  if (path.empty()) return;
  if (const size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  // The program may change its folder before it ends.
  if (path[0] != '/') {
    char here[4096];
    if (getcwd(here, sizeof here) != nullptr) path = fmt::format("{}/{}", here, path);
  }
  if (const std::string folder = path.substr(0, path.rfind('/') + 1); access(folder.c_str(), W_OK) != 0) {
    ComplainOfSetting(EnvVar::kProfile,
                      fmt::format("cannot be written at the end as it stands: {}: {}", folder, std::strerror(errno)));
  }
  WholeProcess& whole = Whole();
  whole.process = getpid();
  whole.path = path;
  Timeline::Options options;
  options.each_task = false;  // where the time goes is asked, so that it shows what runs
  whole.session = Timeline::Get().Start(std::move(options));
  (void)std::atexit(WriteWholeProcess);
}

[[maybe_unused]] const bool kAtFirstCall = (AtFirstCall(RecordWholeProcess), true);

}  // namespace
}  // namespace reprise::device
