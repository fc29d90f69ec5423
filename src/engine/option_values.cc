// SPDX-License-Identifier: Apache-2.0
#include "engine/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "engine/numbers.h"

namespace reprise::engine {
namespace {

constexpr int64_t kDummyShape = -3;  // no hint
constexpr size_t kMostGears = 256;

Status Malformed(std::string_view key, std::string_view text, std::string what, std::string form,
                 int number = kParamInvalid) {
  return Fail(number, kBadOption, fmt::format("option {} is \"{}\": {}", key, text, what))
      .Culprit(fmt::format("option {}", key))
      .Hint(fmt::format("write it as {}", form));
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "2, 3", with blanks or without; nothing where one is no number.
std::optional<std::vector<int64_t>> NumbersOf(std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string_view part : SplitText(text, ',')) {
    const std::optional<int64_t> number = NumberOf(Trim(part));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

StatusOr<std::vector<std::optional<std::vector<int64_t>>>> HintShapesOf(std::string_view text, size_t inputs) {
  constexpr const char* kKey = "ge.inputHintShape";
  constexpr const char* kForm = "0:[2,3];1:[]";
  std::vector<std::optional<std::vector<int64_t>>> shapes(inputs);
  std::set<int64_t> seen;
  for (const std::string_view part : SplitText(text, ';')) {
    const size_t colon = part.find(":[");
    const auto index = NumberOf(Trim(part.substr(0, colon)));
    if (colon == std::string_view::npos || part.back() != ']' || !index) {
      return Malformed(kKey, text, fmt::format("\"{}\" is no index with a shape", part), kForm);
    }
    if (*index < 0 || static_cast<uint64_t>(*index) >= inputs || !seen.insert(*index).second) {
      return Malformed(kKey, text,
                       fmt::format("index {} is there twice, or is none of the {} inputs of the graph", *index, inputs),
                       kForm);
    }
    const auto dims = NumbersOf(part.substr(colon + 2, part.size() - colon - 3));
    if (!dims) return Malformed(kKey, text, fmt::format("\"{}\" has a size that is no number", part), kForm);
    if (*dims == std::vector<int64_t>{kDummyShape}) continue;
    if (std::ranges::any_of(*dims, [](int64_t dim) { return dim < -1; })) {
      return Malformed(kKey, text, fmt::format("\"{}\" has a size below -1", part), kForm);
    }
    shapes[static_cast<size_t>(*index)] = *dims;
  }
  if (seen.size() < inputs) {
    return Malformed(kKey, text, fmt::format("it has {} shapes, the graph has {} inputs", seen.size(), inputs), kForm);
  }
  return shapes;
}

StatusOr<std::vector<uint32_t>> IndexesOf(std::string_view key, std::string_view text, char separator) {
  std::vector<uint32_t> indexes;
  for (const std::string_view part : SplitText(text, separator)) {
    const auto index = NumberOf(Trim(part));
    if (!index || *index < 0 || *index > UINT32_MAX) {
      return Malformed(key, text, fmt::format("\"{}\" is no index", part), fmt::format("0{}2", separator));
    }
    indexes.push_back(static_cast<uint32_t>(*index));
  }
  return indexes;
}

StatusOr<std::vector<std::pair<uint32_t, uint32_t>>> IndexPairsOf(std::string_view key, std::string_view text) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (const std::string_view part : SplitText(text, '|')) {
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> pair, IndexesOf(key, part, ','));
    if (pair.size() != 2) {
      return Malformed(key, text, fmt::format("\"{}\" is no input with an output", part), "in,out|in,out");
    }
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

StatusOr<std::map<uint32_t, FrozenInput>> FrozenInputsOf(std::string_view text, size_t inputs, bool needs_address) {
  constexpr const char* kKey = "ge.exec.frozenInputIndexes";
  const std::string form = needs_address ? "i,address,bytes;… with decimal addresses" : "i;j or i,address,bytes;…";
  std::map<uint32_t, FrozenInput> frozen;
  std::vector<std::string_view> parts = SplitText(text, ';');
  if (!parts.empty() && parts.back().empty()) parts.pop_back();  // a separator behind the last one
  for (const std::string_view part : parts) {
    const auto numbers = NumbersOf(part);
    if (!numbers) return Malformed(kKey, text, fmt::format("\"{}\" has what is no number", part), form);
    if (numbers->size() != 3 && (needs_address || numbers->size() != 1)) {
      return Malformed(kKey, text, fmt::format("\"{}\" has {} numbers", part, numbers->size()), form);
    }
    if ((*numbers)[0] < 0 || static_cast<uint64_t>((*numbers)[0]) >= inputs) {
      return Malformed(kKey, text, fmt::format("{} is none of the {} inputs of the graph", (*numbers)[0], inputs),
                       form);
    }
    FrozenInput input;
    if (numbers->size() == 3) {
      if ((*numbers)[1] <= 0 || (*numbers)[2] <= 0) {
        return Malformed(kKey, text, fmt::format("\"{}\" has an address or a size that is not above 0", part), form);
      }
      input.address = reinterpret_cast<void*>(static_cast<uintptr_t>((*numbers)[1]));  // NOLINT: from a text
      input.bytes = static_cast<uint64_t>((*numbers)[2]);
    }
    frozen[static_cast<uint32_t>((*numbers)[0])] = input;
  }
  return frozen;
}

StatusOr<Gears> GearsOf(std::string_view input_shape, std::string_view dynamic_dims) {
  constexpr const char* kShapeForm = "name:2,-1;name2: with -1 where gears differ";
  constexpr const char* kDimsForm = "a,b;c,d: one tuple for each gear, with a number for each -1";
  Gears gears;
  size_t open = 0;
  for (const std::string_view part : SplitText(input_shape, ';')) {
    const size_t colon = part.rfind(':');
    const auto dims = NumbersOf(colon == std::string_view::npos ? "?" : part.substr(colon + 1));
    if (!dims || std::ranges::any_of(*dims, [](int64_t dim) { return dim < -1; })) {
      return Malformed("ge.inputShape", input_shape, fmt::format("\"{}\" is no name with a shape", part), kShapeForm);
    }
    open += static_cast<size_t>(std::ranges::count(*dims, -1));
    gears.inputs.emplace_back(Trim(part.substr(0, colon)), *dims);
  }
  if (open == 0) return Malformed("ge.inputShape", input_shape, "no size is -1", kShapeForm);
  for (const std::string_view part : SplitText(dynamic_dims, ';')) {
    const auto dims = NumbersOf(part);
    if (!dims || std::ranges::any_of(*dims, [](int64_t dim) { return dim < 0; })) {
      return Malformed("ge.dynamicDims", dynamic_dims, fmt::format("\"{}\" are no sizes of 0 and more", part),
                       kDimsForm);
    }
    if (dims->size() != open) {
      return Malformed("ge.dynamicDims", dynamic_dims,
                       fmt::format("\"{}\" has {} sizes, ge.inputShape has {} of -1", part, dims->size(), open),
                       kDimsForm);
    }
    if (std::ranges::count(gears.dims, *dims) != 0) {
      return Malformed("ge.dynamicDims", dynamic_dims, fmt::format("the gear \"{}\" is there twice", part), kDimsForm);
    }
    gears.dims.push_back(*dims);
  }
  if (gears.dims.size() < 2 || gears.dims.size() > kMostGears) {
    return Malformed("ge.dynamicDims", dynamic_dims,
                     fmt::format("it has {} gears, must have 2 to {}", gears.dims.size(), kMostGears), kDimsForm);
  }
  return gears;
}

}  // namespace reprise::engine
