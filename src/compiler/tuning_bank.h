// SPDX-License-Identifier: Apache-2.0
//
// TuningBank: what was measured to be fastest on this kind of machine, in a file of JSON lines.
//
//     {"version":1,"cpu":"AuthenticAMD 25 1, 2 cores","key":"MatMulV2 float32 [64, 64] …","choice":"grain
//     128","us":12.5}
//
// Lines of other machines and versions are kept and not used. Of lines with one key the last one counts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"

namespace reprise::compiler {

/// Threads: thread-safe. Processes: writers append whole lines under a lock of the file, readers take what is there.
class TuningBank {
 public:
  /// The bank in `folder`, which is made if it is not there. Lines that are damaged are skipped and told once. Refuses
  /// (100000) a folder that cannot be made or read.
  static StatusOr<std::shared_ptr<TuningBank>> Open(const std::string& folder);
  /// The file of a bank in `folder`.
  static std::string PathIn(const std::string& folder) { return folder + "/reprise_tuning.jsonl"; }

  struct Entry {
    std::string choice;
    double us = 0;  ///< of a run with it
  };
  std::optional<Entry> Find(const std::string& key) const;
  size_t size() const;
  const std::string& path() const { return path_; }

  /// Keeps an entry, also in the file. 100000 when that cannot be written.
  Status Add(const std::string& key, Entry entry);

 private:
  TuningBank() = default;

  std::string path_;
  mutable Mutex mutex_;
  std::map<std::string, Entry> entries_ REPRISE_GUARDED_BY(mutex_);
};

/// What tells kinds of machines apart.
std::string MachineName();

}  // namespace reprise::compiler
