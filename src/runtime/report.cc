// SPDX-License-Identifier: Apache-2.0
#include "runtime/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/call_trace.h"
#include "base/env.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "reprise/error.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

std::atomic<bool> g_process_wide{false};

struct ProcessMessage {
  Mutex mutex;
  std::string recent REPRISE_GUARDED_BY(mutex);
  std::string returned REPRISE_GUARDED_BY(mutex);
};

ProcessMessage& ForProcess() {
  static auto* const message = new ProcessMessage;
  return *message;
}

std::string TimeStamp() {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%d-%H:%M:%S", &local);
  return fmt::format("{}.{:03}.{:03}", text, now.tv_usec / 1000, now.tv_usec % 1000);
}

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Operator status codes are not errors of the runtime: aclrtGetLastError never shows them.
bool IsRuntimeCode(int code) {
  return code >= kInvalidValue && code < 600000 && code / 1000 != 161 && code / 1000 != 361 && code / 1000 != 561;
}

// Of words that begin with the name of the call, what follows it.
std::string_view WithoutName(std::string_view what, std::string_view api) {
  if (!what.starts_with(api)) return what;
  const std::string_view rest = what.substr(api.size());
  if (rest.starts_with(": ")) return rest.substr(2);
  return rest.starts_with(" is not ") ? rest.substr(4) : what;
}

// Takes a message code of its own ("E10062: ") from the front of words that have one; empty without one.
std::string_view TakeCategory(std::string_view& what) {
  constexpr size_t kLength = 6;  // of the code
  if (what.size() < kLength + 2 || what[0] != 'E' || what.substr(kLength, 2) != ": ") return {};
  const std::string_view category = what.substr(0, kLength);
  if (category.find_first_not_of("0123456789", 1) != std::string_view::npos) return {};
  what.remove_prefix(kLength + 2);
  return category;
}

}  // namespace

std::string FormatMessage(const char* api, const Status::Detail& detail) {
  const ErrorInfo& info = FindErrorInfo(detail.code);
  std::string_view what = detail.what;
  const std::string_view own = TakeCategory(what);
  const std::string_view category = own.empty() ? info.category : own;
  std::string text = fmt::format("{}[PID: {}] {} ({}): {}({}): {} failed: {}\n", category, getpid(), TimeStamp(),
                                 category, info.title, detail.code, api, WithoutName(what, api));
  text += fmt::format("        Solution: {}.\n", SolutionOf(detail));
  text +=
      fmt::format("        TraceBack (most recent call last):\n        {} returns {} ({})[FUNC:{}][FILE:{}][LINE:{}]\n",
                  api, detail.code, info.name, detail.function, FileName(detail.file), detail.line);
  if (!detail.culprit.empty()) text += fmt::format("        Culprit: {}.\n", detail.culprit);
  if (const std::string call = DescribeCall(); !call.empty()) text += fmt::format("        Call: {}.\n", call);
  // Words of the caller's may hold any byte, also one that would end the text in the middle.
  for (char& c : text) {
    if ((static_cast<unsigned char>(c) < ' ' && c != '\n') || c == '\x7F') c = '?';
  }
  return text;
}

namespace {

std::atomic<RefusalDescriber> g_describer{nullptr};

// One JSON object for each error, one line each, where REPRISE_ERROR_JSON says.
class JsonErrors {
 public:
  static JsonErrors& Get() {
    static auto* const errors = new JsonErrors(Env(EnvVar::kErrorJson));
    return *errors;
  }
  bool on() const { return fd_ >= 0; }

  void Write(const char* api, const Status::Detail& detail) const {
    Refusal refusal;
    refusal.call = api;
    refusal.code = detail.code;
    refusal.cause = detail.what;
    refusal.culprit = detail.culprit;
    refusal.hint = SolutionOf(detail);
    if (const RefusalDescriber describe = g_describer.load(std::memory_order_acquire)) describe(refusal);
    Write(refusal, fmt::format(R"(,"call":"{}","function":"{}","file":"{}","line":{})", JsonEscape(DescribeCall()),
                               JsonEscape(detail.function), FileName(detail.file), detail.line));
  }

  // `more`: further members.
  void Write(const Refusal& refusal, const std::string& more) const {
    const ErrorInfo& info = FindErrorInfo(refusal.code);
    std::string line = fmt::format(
        R"({{"time":"{}","pid":{},"tid":{},"api":"{}","code":{},"name":"{}","category":"{}","what":"{}","culprit":"{}",)"
        R"("solution":"{}"{})",
        TimeStamp(), getpid(), ThreadId(), JsonEscape(refusal.call), refusal.code, info.name, info.category,
        JsonEscape(refusal.cause), JsonEscape(refusal.culprit), JsonEscape(refusal.hint), more);
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) line += fmt::format(R"(,"{}":"{}")", name, JsonEscape(value));
    };
    add("type", refusal.kind);
    add("stream", refusal.stream);
    add("python", refusal.place);
    line += "}\n";
    // One write, so that lines of several threads and processes do not mix.
    [[maybe_unused]] const ssize_t written = write(fd_, line.data(), line.size());
  }

 private:
  explicit JsonErrors(const std::string& path) {
    if (path == "stderr") {
      fd_ = STDERR_FILENO;
    } else if (!path.empty()) {
      fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (fd_ < 0) {
        ComplainOfSetting(EnvVar::kErrorJson,
                          fmt::format("cannot be opened ({}); no refusal is written there", std::strerror(errno)));
      }
    }
  }
  int fd_ = -1;
};

void StoreRecent(std::string message) {
  if (g_process_wide.load(std::memory_order_relaxed)) {
    ProcessMessage& process = ForProcess();
    MutexLock lock(process.mutex);
    process.recent = std::move(message);
  } else {
    ThisThread().recent_message = std::move(message);
  }
}

}  // namespace

int Report(const char* api, const Status& status) noexcept try {
  if (status.ok()) return 0;
  const Status::Detail& detail = status.detail();
  const NoCancel no_cancel;
  const WaitingCall waiting;  // the call does not use its objects any more: nobody needs to wait for the words
  std::string message = FormatMessage(api, detail);
  REPRISE_LOG(kError, "ASCENDCL", "{} failed with {}: {}", api, detail.code, detail.what);
  if (JsonErrors::Get().on()) JsonErrors::Get().Write(api, detail);
  if (IsRuntimeCode(detail.code)) ThisThread().last_error = detail.code;
  StoreRecent(std::move(message));
  return detail.code;
} catch (...) {  // no memory for the text: the number still gets through
  return status.code();
}

void Remember(const char* what_failed, const Status& failure) noexcept try {
  StoreRecent(FormatMessage(what_failed, failure.detail()));
} catch (...) {  // no memory for the text
}

Status NullParameter(int code, const char* parameter) {
  return Error(code, std::string("parameter ") + parameter + " is null")
      .Hint(std::string("pass an address or a handle for ") + parameter);
}

int Refuse(const char* api, int number, const char* reason, const char* advice) noexcept {
  return Api(api, [&]() -> Status {
    return Error(number, fmt::format("{} is not supported here: {}", api, reason)).Hint(advice);
  });
}

namespace {

std::atomic<bool> g_told_of_traces{false};

const char* TakeMessage() {
  if (g_process_wide.load(std::memory_order_relaxed)) {
    ProcessMessage& process = ForProcess();
    MutexLock lock(process.mutex);
    if (process.recent.empty()) return nullptr;
    process.returned = std::move(process.recent);
    process.recent.clear();
    return process.returned.c_str();
  }
  ThreadState& thread = ThisThread();
  if (thread.recent_message.empty()) return nullptr;
  thread.returned_message = std::move(thread.recent_message);
  thread.recent_message.clear();
  return thread.returned_message.c_str();
}

}  // namespace

const char* TakeRecentMessage() {
  const char* const message = TakeMessage();
  if (message == nullptr || CallTraceIsOn() || g_told_of_traces.exchange(true, std::memory_order_relaxed)) {
    return message;
  }
  // Once in the process, in the first message that somebody reads.
  try {
    thread_local std::string text;  // for as long as the message without it
    text = message;
    text += "        Hint: with REPRISE_TRACE_CALLS=1 messages name the line of the program that made the call.\n";
    return text.c_str();
  } catch (...) {
    return message;
  }
}

void SetProcessWideMessages(bool on) { g_process_wide = on; }

}  // namespace reprise::runtime

namespace reprise {

void SetRefusalDescriber(RefusalDescriber describer) noexcept {
  runtime::g_describer.store(describer, std::memory_order_release);
}

bool WritesRefusals() noexcept try { return runtime::JsonErrors::Get().on(); } catch (...) {
  return false;
}

void WriteRefusal(const Refusal& refusal) noexcept try {
  if (runtime::JsonErrors::Get().on()) runtime::JsonErrors::Get().Write(refusal, "");
} catch (...) {  // no memory for the text
}

}  // namespace reprise
