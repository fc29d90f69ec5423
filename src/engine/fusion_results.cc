// SPDX-License-Identifier: Apache-2.0
#include "engine/fusion_results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/no_destroy.h"
#include "engine/json_files.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

struct Kept {
  Mutex mutex;
  std::vector<std::string> texts REPRISE_GUARDED_BY(mutex);
  bool is_written REPRISE_GUARDED_BY(mutex) = true;
};

Kept& TheKept() {
  static NoDestroy<Kept> kept;
  return kept.value;
}

void Write(Kept& kept) REPRISE_REQUIRES(kept.mutex) {
  const char* const work = std::getenv("ASCEND_WORK_PATH");
  const std::string folder = work != nullptr && *work != '\0' ? fmt::format("{}/FE/{}", work, ::getpid()) : ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream file(folder + "/fusion_result.json", std::ios::trunc);
  file << MergedObjects(kept.texts);
  if (!file.flush()) Warn(fmt::format("{}/fusion_result.json cannot be written", folder));
  kept.is_written = true;
}

}  // namespace

void NoteFusions(std::string text, bool now) {
  Kept& kept = TheKept();
  MutexLock lock(kept.mutex);
  kept.texts.push_back(std::move(text));
  kept.is_written = false;
  if (now) Write(kept);
}

void WriteFusions() {
  Kept& kept = TheKept();
  MutexLock lock(kept.mutex);
  if (!kept.is_written) Write(kept);
  kept.texts.clear();
}

}  // namespace reprise::engine
