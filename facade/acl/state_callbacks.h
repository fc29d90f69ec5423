// SPDX-License-Identifier: Apache-2.0
//
// Functions of a program that want to know when devices are set, streams come and go, or tasks are aborted.
#pragma once

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/stream.h"

namespace reprise::facade {

/// Callbacks of one sort, each under a name.
///
/// Threads: thread-safe; callbacks run without the lock.
template <class Function>
class NamedCallbacks {
 public:
  struct Entry {
    Function function;
    void* args;
  };

  /// A null function removes the name; 107000 when the name is taken.
  Status Set(const char* name, Function function, void* args) {
    std::lock_guard lock(mutex_);
    if (function == nullptr) {
      entries_.erase(name);
      return {};
    }
    if (!entries_.emplace(name, Entry{function, args}).second) {
      return Error(kInvalidValue, fmt::format("a callback is registered under the name \"{}\" already", name))
          .Culprit(fmt::format("parameter regName \"{}\"", name))
          .Hint("choose another name, or remove the callback by registering NULL under its name");
    }
    return {};
  }

  std::vector<Entry> All() const {
    std::lock_guard lock(mutex_);
    std::vector<Entry> all;
    for (const auto& [name, entry] : entries_) all.push_back(entry);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

NamedCallbacks<aclrtDeviceStateCallback>& DeviceStateCallbacks();
NamedCallbacks<aclrtStreamStateCallback>& StreamStateCallbacks();
NamedCallbacks<aclrtDeviceTaskAbortCallback>& TaskAbortCallbacks();

void AnnounceDevice(int32_t device_id, aclrtDeviceState state);
void AnnounceStream(const runtime::Stream& stream, aclrtStreamState state);
/// Announces the default stream of a context that is new, and later the end of all its streams. Repeated calls for one
/// context do nothing.
void AnnounceContext(runtime::Context& context);

}  // namespace reprise::facade
