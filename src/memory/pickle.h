// SPDX-License-Identifier: Apache-2.0
//
// Writes values in the format of Python's pickle module, protocol 2: numbers, texts, lists, tuples of two,
// dictionaries. Viewers read it without Python, so only what they all know is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace reprise::memory {

/// Calls nest: Begin…, the values (in a dictionary: Key and a value), End. Finish after the outermost value.
class PickleWriter {
 public:
  PickleWriter();
  void BeginDict() { Begin('}', 'u'); }
  void BeginList() { Begin(']', 'e'); }
  void End();
  /// A text that occurs again is written once.
  void Key(std::string_view text);
  void Text(std::string_view text);
  void Bool(bool value);
  void Int(int64_t value);
  void Pair(uint64_t first, uint64_t second);
  void Unsigned(uint64_t value);
  /// Gives the value written last a number, with which Recall writes it again, as the same object.
  uint32_t Remember();
  void Recall(uint32_t number);
  std::string Finish();

 private:
  struct Open {
    char end;       ///< what adds the values since the mark
    int count = 0;  ///< since the mark; keys do not count
  };
  void Begin(char empty, char end);
  void Item();
  void Number(uint64_t value, int bytes);

  std::string out_;
  std::vector<Open> open_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t remembered_ = 0;
  bool after_key_ = false;
};

}  // namespace reprise::memory
