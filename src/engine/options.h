// SPDX-License-Identifier: Apache-2.0
//
// Options: texts by key, given to the process, a session, a graph, or a load. One table says what each key means.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::engine {

using OptionMap = std::map<std::string, std::string, std::less<>>;

enum OptionLevel : uint8_t { kGlobalLevel = 1, kSessionLevel = 2, kGraphLevel = 4, kLoadLevel = 8 };

enum class OptionKind : uint8_t {
  kText,      ///< anything
  kChoice,    ///< one of `values`, with | between them
  kNumber,    ///< an integer of `values`: "0..3", "1.." without an upper end
  kFile,      ///< a file that exists
  kKey,       ///< 1 to 128 letters, digits, _ and -
  kSwitches,  ///< "PassA:on;PassB:off"
  kSteps,     ///< "0|3-5"
  kStreams,   ///< "cv", "LoadBalance:N", "MainStream:N", N 1 to 64
};

struct OptionRow {
  std::string_view key;
  uint8_t levels = 0;  ///< bits of OptionLevel
  OptionKind kind = OptionKind::kText;
  std::string_view values;
  std::string_view initial;  ///< what holds when nobody sets it
  bool has_effect = true;    ///< false: accepted, changes nothing here
  std::string_view about;
};

/// The table, in the order of the alphabet.
std::span<const OptionRow> OptionRows();
const OptionRow* FindOption(std::string_view key);

/// Holds what is given at one level against the table. Empty values count as not given. Keys without a row, and those of
/// other levels, are told of once in the process as warnings, and ignored. `number`: of the refusal.
Status CheckOptions(const OptionMap& options, OptionLevel level, int number);

/// What holds for a graph: its own options, then those of the session, then those of the process, then the table.
///
/// Threads: thread-compatible; a value type.
class OptionSet {
 public:
  OptionSet() = default;
  OptionSet(const OptionMap& process, const OptionMap& session, const OptionMap& graph);

  /// Empty where nobody set it and the table says nothing.
  std::string_view Get(std::string_view key) const;
  bool Is(std::string_view key, std::string_view value) const { return Get(key) == value; }
  bool IsSet(std::string_view key) const { return given_.contains(key); }
  /// Of an option of kNumber, whose value was checked.
  int64_t Number(std::string_view key) const;

  /// Options that exclude or need each other.
  Status CheckTogether(int number) const;

 private:
  OptionMap given_;
};

}  // namespace reprise::engine
