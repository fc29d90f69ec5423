// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: options of the graph engine, as lines "key=value", at every level and as the small languages they are.
#include <string>
#include <string_view>

#include "engine/numbers.h"
#include "engine/option_values.h"
#include "engine/options.h"
#include "engine/value_dump.h"
#include "input.h"

using namespace reprise::fuzz;    // NOLINT: the two functions that libFuzzer looks for
using namespace reprise::engine;  // NOLINT

namespace {

void Refused(const reprise::Status& status) {
  if (status.ok()) return;
  if (status.detail().hint.empty()) Found("a refusal without advice: " + status.detail().what);
  if (status.detail().what.find("E1") == std::string::npos) Found("a refusal without an id: " + status.detail().what);
}

template <class T>
void Refused(reprise::StatusOr<T> value) {
  if (!value.ok()) Refused(std::move(value).status());
}

void ReadAs(std::string_view value) {
  for (const size_t inputs : {size_t{0}, size_t{1}, size_t{3}}) {
    Refused(HintShapesOf(value, inputs));
    Refused(FrozenInputsOf(value, inputs, false));
    Refused(FrozenInputsOf(value, inputs, true));
  }
  for (const char separator : {',', ';'}) Refused(IndexesOf("key", value, separator));
  Refused(IndexPairsOf("key", value));
  Refused(GearsOf("x:-1,2;y:3,-1", value));
  Refused(GearsOf(value, "1,2;3,4"));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  OptionMap options;
  for (const std::string_view line : SplitText(text, '\n')) {
    const size_t equals = line.find('=');
    const std::string_view value = equals == std::string_view::npos ? line : line.substr(equals + 1);
    ReadAs(value);
    if (equals != std::string_view::npos) options[std::string(line.substr(0, equals))] = value;
  }
  for (const OptionLevel level : {kGlobalLevel, kSessionLevel, kGraphLevel, kLoadLevel}) {
    const reprise::Status status = CheckOptions(options, level, kParamInvalid);
    Refused(status);
    if (!status.ok()) continue;
    const OptionSet set(options, options, options);
    Refused(set.CheckTogether(kParamInvalid));
    if (const auto dump = ValueDump::Of(set, 1, 0); dump != nullptr) dump->Begin();
  }
  return 0;
}
