// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "base/calls.h"
#include "base/env.h"
#include "base/mutex.h"

namespace reprise {
namespace {

// The documented ceiling of one log file.
constexpr size_t kMaxFileBytes = 20u << 20;

class Logger {
 public:
  Logger() {
    global_ = static_cast<LogLevel>(EnvInt(EnvVar::kLogLevel, 0, static_cast<int64_t>(LogLevel::kNone)));
    lowest_ = global_;
    modules_ = ParseModuleLevels(Env(EnvVar::kModuleLogLevel));
    for (const auto& [module, level] : modules_) lowest_ = std::min(lowest_, level);
    to_stdout_ = Env(EnvVar::kLogStdout) == "1" || Env(EnvVar::kLogStdoutOld) == "1";
    folder_ = Env(EnvVar::kLogPath);
    if (!to_stdout_ && folder_.empty()) lowest_ = LogLevel::kNone;
  }

  LogLevel lowest() const { return lowest_; }
  Mutex& mutex() REPRISE_RETURNS_LOCK(mutex_) { return mutex_; }

  bool Enabled(LogLevel level, std::string_view module) const {
    const auto it = modules_.find(module);
    return level >= (it != modules_.end() ? it->second : global_);
  }

  void Write(std::string_view line) {
    const NoCancel no_cancel;
    MutexLock lock(mutex_);
    if (to_stdout_) {
      std::fwrite(line.data(), 1, line.size(), stdout);
      return;
    }
    if (file_ == nullptr || written_ > kMaxFileBytes) OpenFile();
    if (file_ == nullptr) return;
    std::fwrite(line.data(), 1, line.size(), file_);
    std::fflush(file_);
    written_ += line.size();
  }

 private:
  void OpenFile() REPRISE_REQUIRES(mutex_) {
    if (file_ != nullptr) std::fclose(file_);
    std::string folder = folder_;
    for (const char* part : {"", "/debug", "/plog"}) {
      folder += part;
      if (mkdir(folder.c_str(), 0750) != 0 && errno != EEXIST) break;
    }
    char stamp[32];
    const time_t now = time(nullptr);
    tm local{};
    strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", localtime_r(&now, &local));
    file_ = std::fopen(fmt::format("{}/plog-{}_{}_{}.log", folder, getpid(), stamp, files_++).c_str(), "we");
    written_ = 0;
  }

  LogLevel global_ = LogLevel::kError;
  LogLevel lowest_ = LogLevel::kError;
  std::map<std::string, LogLevel, std::less<>> modules_;
  bool to_stdout_ = false;
  std::string folder_;
  Mutex mutex_;
  FILE* file_ REPRISE_GUARDED_BY(mutex_) = nullptr;
  size_t written_ REPRISE_GUARDED_BY(mutex_) = 0;
  int files_ REPRISE_GUARDED_BY(mutex_) = 0;
};

Logger& TheLogger() {
  // Leaked: worker threads may log while the process exits.
  static auto* const logger = [] {
    auto* const made = new Logger;
    // A fork while another thread writes would never get the lock.
    pthread_atfork([]() REPRISE_NOT_ANALYSED { TheLogger().mutex().lock(); },
                   []() REPRISE_NOT_ANALYSED { TheLogger().mutex().unlock(); },
                   []() REPRISE_NOT_ANALYSED { TheLogger().mutex().unlock(); });
    return made;
  }();
  return *logger;
}

constexpr const char* kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

std::string ProcessName() {
  char name[64] = "";
  if (FILE* comm = std::fopen("/proc/self/comm", "re")) {
    if (std::fgets(name, sizeof name, comm) == nullptr) name[0] = 0;
    std::fclose(comm);
  }
  std::string text = name;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

std::map<std::string, LogLevel, std::less<>> ParseModuleLevels(std::string_view text) {
  std::map<std::string, LogLevel, std::less<>> levels;
  while (!text.empty()) {
    const size_t end = std::min(text.find(':'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    const auto level = ParseInt(part.substr(equals + 1));
    if (!level || *level < 0 || *level > static_cast<int64_t>(LogLevel::kNone)) continue;
    levels[std::string(part.substr(0, equals))] = static_cast<LogLevel>(*level);
  }
  return levels;
}

bool LogEnabled(LogLevel level, std::string_view module) noexcept {
  Logger& logger = TheLogger();
  return level >= logger.lowest() && level < LogLevel::kNone && logger.Enabled(level, module);
}

void WriteLog(LogLevel level, std::string_view module, const char* file, int line, const char* function,
              std::string_view text) noexcept try {
  static const std::string process = ProcessName();
  timeval now{};
  gettimeofday(&now, nullptr);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%d-%H:%M:%S", &local);
  const std::string_view path = file;
  TheLogger().Write(fmt::format("[{}] {}({},{}):{}.{:03}.{:03} [{}:{}]{} {}:{}\n", kLevelNames[static_cast<int>(level)],
                                module, getpid(), process, stamp, now.tv_usec / 1000, now.tv_usec % 1000,
                                path.substr(path.rfind('/') + 1), line, syscall(SYS_gettid), function, text));
} catch (...) {  // a log line is never worth a failure
}

}  // namespace reprise
