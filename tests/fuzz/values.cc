// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: values of environment variables, through the functions that read them.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "input.h"
#include "memory/config.h"
#include "runtime/device.h"

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string copy(reinterpret_cast<const char*>(data), bytes);
  const std::string_view text = copy;
  const auto number = reprise::ParseInt(text);
  const auto size = reprise::ParseBytes(text);
  // A number is read back as it is written, and a size without a suffix is that number.
  if (number && reprise::ParseInt(std::to_string(*number)) != number) Found("another number is read back");
  if (number && *number >= 0 && size != static_cast<uint64_t>(*number)) Found("a number that is no size");
  if (number && *number < 0 && size) Found("a negative size");
  if (size && *size > INT64_MAX) Found("a size that does not fit");

  for (const int physical : {1, 3, 64}) {
    int previous = -1;
    for (const int id : reprise::runtime::ParseVisibleDevices(text, physical)) {
      if (id <= previous || id >= physical) Found("devices that are not ascending, or not there");
      previous = id;
    }
  }
  for (const auto& [module, level] : reprise::ParseModuleLevels(text)) {
    if (level < reprise::LogLevel::kDebug || level > reprise::LogLevel::kNone) Found("no level");
    if (text.find(module) == std::string_view::npos) Found("a module that the text does not have");
  }

  auto config = reprise::memory::Config::Parse(text);
  if (config.ok()) {
    // What was understood can be said again, and means the same.
    std::string again;
    for (const auto& [key, value] : config->Settings()) again += key + ":" + value + ",";
    auto second = reprise::memory::Config::Parse(again);
    if (!second.ok() || second->Settings() != config->Settings()) Found("settings that are not read back");
  } else {
    const reprise::Status status = std::move(config).status();
    if (status.code() != 107000 || status.detail().hint.empty()) Found("a refusal without advice");
  }
  return 0;
}
