// SPDX-License-Identifier: Apache-2.0
#include "profile/prof_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <system_error>

#include "base/fault.h"
#include "base/text_file.h"

namespace reprise::profile {
namespace {

namespace fs = std::filesystem;

uint64_t Read(clockid_t clock) {
  timespec time{};
  (void)clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Of the moment when the recording began, so that folders sort by time.
std::string FolderName(const Record& record) {
  const auto seconds = static_cast<time_t>(record.begin.unix_ns / 1'000'000'000);
  tm local{};
  (void)localtime_r(&seconds, &local);
  return fmt::format("PROF_{:06}_{:04}{:02}{:02}{:02}{:02}{:02}{:03}_P{}", record.number + 1, local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     record.begin.unix_ns / 1'000'000 % 1000, getpid());
}

// Readers take the numbers of clocks as texts.
std::string InfoText(const char* moment, const Record& record, const Clocks& clocks) {
  std::string devices;
  for (const int32_t device : record.devices) devices += fmt::format("{}{}", devices.empty() ? "" : ", ", device);
  return fmt::format(
      "{{\"collectionTime{}\": \"{}\", \"clockMonotonicRaw\": \"{}\", \"clockMonotonic\": \"{}\", \"process\": {}, "
      "\"devices\": [{}]}}\n",
      moment, clocks.unix_ns / 1000, clocks.raw_ns, clocks.monotonic_ns, getpid(), devices);
}

Status WriteInto(const fs::path& folder, const Record& record) {
  if (FaultPoint("profile.folder")) throw fs::filesystem_error("fault", std::make_error_code(std::errc::io_error));
  fs::create_directories(folder / "host" / "data");
  for (const int32_t device : record.devices)
    fs::create_directories(folder / fmt::format("device_{}", device) / "data");
  REPRISE_RETURN_IF_ERROR(WriteTextFile(folder / "host" / "start_info", InfoText("Begin", record, record.begin)));
  REPRISE_RETURN_IF_ERROR(WriteTextFile(folder / "host" / "end_info", InfoText("End", record, record.end)));
  const fs::path timeline = folder / "host" / "data" / "timeline.json";
  std::error_code no_links;
  fs::create_hard_link(record.trace, timeline, no_links);
  if (no_links) fs::copy_file(record.trace, timeline);
  return {};
}

}  // namespace

Clocks Clocks::Now() { return {Read(CLOCK_REALTIME), Read(CLOCK_MONOTONIC_RAW), Read(CLOCK_MONOTONIC)}; }

Status WriteRecordFolder(const Record& record) {
  const fs::path folder = fs::path(record.folder) / FolderName(record);
  std::string reason;
  try {
    const Status status = WriteInto(folder, record);
    if (status.ok()) return {};
    reason = status.detail().what;
  } catch (const fs::filesystem_error& error) {
    reason = error.code().message();
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return Error(kProfilingFailure, fmt::format("the record folder {} cannot be written: {}", folder.string(), reason))
      .Culprit(fmt::format("folder {}", folder.string()))
      .Hint(fmt::format("make room; the timeline itself has been written: {}", record.trace));
}

}  // namespace reprise::profile
