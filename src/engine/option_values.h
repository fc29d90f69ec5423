// SPDX-License-Identifier: Apache-2.0
//
// Options that are small languages, read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::engine {

/// Parts between separators; of an empty text none.
std::vector<std::string_view> SplitText(std::string_view text, char separator);
/// The whole text as a decimal integer.
std::optional<int64_t> NumberOf(std::string_view text);

/// "0:[2,3];1:[]": shapes by index of input. A shape of [-3] is no hint: nothing. Every index below `inputs` must be
/// there.
StatusOr<std::vector<std::optional<std::vector<int64_t>>>> HintShapesOf(std::string_view text, size_t inputs);

/// "0,2" or "0;2": indexes.
StatusOr<std::vector<uint32_t>> IndexesOf(std::string_view key, std::string_view text, char separator);
/// "in,out|in,out".
StatusOr<std::vector<std::pair<uint32_t, uint32_t>>> IndexPairsOf(std::string_view key, std::string_view text);

/// An input that keeps its address.
struct FrozenInput {
  void* address = nullptr;  ///< null: that of the first run
  uint64_t bytes = 0;
};
/// "i;j" or "i,address,bytes;…". `needs_address`: only the second form will do.
StatusOr<std::map<uint32_t, FrozenInput>> FrozenInputsOf(std::string_view text, size_t inputs, bool needs_address);

/// Gears: shapes of which a run has to have one.
struct Gears {
  std::vector<std::pair<std::string, std::vector<int64_t>>> inputs;  ///< names and shapes, -1 where gears differ
  std::vector<std::vector<int64_t>> dims;                            ///< one tuple for each gear
};
/// Of ge.inputShape and ge.dynamicDims.
StatusOr<Gears> GearsOf(std::string_view input_shape, std::string_view dynamic_dims);

}  // namespace reprise::engine
