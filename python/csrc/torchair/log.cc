// SPDX-License-Identifier: Apache-2.0
#include "torchair/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

namespace torchair {
namespace {

constexpr std::array kNames = {"DEBUG", "INFO", "WARNING", "ERROR", "EVENT"};

std::mutex log_mutex;
std::string& LogFile() {
  static auto& path = *new std::string;
  return path;
}

LogLevel Wanted() {
  const char* const text = std::getenv("TNG_LOG_LEVEL");
  if (text == nullptr || *text == '\0') return LogLevel::kError;
  if (text[1] == '\0' && text[0] >= '0' && text[0] <= '4') return static_cast<LogLevel>(text[0] - '0');
  static std::once_flag said;
  std::call_once(said, [text] {
    WriteLog(LogLevel::kWarning, __FILE__, __LINE__,
             c10::str("TNG_LOG_LEVEL is \"", text, "\", not a number of 0 to 4: 3 (errors) holds"));
  });
  return LogLevel::kError;
}

}  // namespace

bool Logs(LogLevel level) {
  const LogLevel wanted = Wanted();
  if (level == LogLevel::kError) return true;
  return level == LogLevel::kEvent ? wanted == LogLevel::kEvent : level >= wanted;
}

void WriteLog(LogLevel level, const char* file, int line, const std::string& text) {
  const char* const slash = std::strrchr(file, '/');
  std::array<char, 32> when{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  (void)localtime_r(&now, &parts);
  (void)std::strftime(when.data(), when.size(), "%Y-%m-%d-%H:%M:%S", &parts);
  const std::string whole =
      c10::str("[", kNames.at(static_cast<size_t>(level)), "] TORCHAIR(", getpid(), ",python):", when.data(), " [",
               slash == nullptr ? file : slash + 1, ":", line, "]", syscall(SYS_gettid), " ", text, "\n");
  const std::lock_guard lock(log_mutex);
  (void)std::fwrite(whole.data(), 1, whole.size(), stderr);
  if (LogFile().empty()) return;
  if (std::FILE* const out = std::fopen(LogFile().c_str(), "a"); out != nullptr) {
    (void)std::fwrite(whole.data(), 1, whole.size(), out);
    (void)std::fclose(out);
  }
}

void SetLogFile(const std::string& path) {
  const std::lock_guard lock(log_mutex);
  LogFile() = path;
}

}  // namespace torchair
