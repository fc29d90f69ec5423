// SPDX-License-Identifier: Apache-2.0
#include "reprise/verbose.h"

#include <fmt/format.h>

#include "base/verbose.h"

namespace reprise {

std::vector<EventCounter> EventCounters() {
  std::vector<EventCounter> counters;
  for (size_t i = 0; i < static_cast<size_t>(VerboseEvent::kCount); ++i) {
    const auto event = static_cast<VerboseEvent>(i);
    const EventInfo& info = InfoOf(event);
    counters.push_back({CategoryName(info.category), info.name, info.meaning, CountOf(event)});
  }
  return counters;
}

bool DispatchIsVerbose() { return IsVerbose(VerboseCategory::kDispatch); }

void NoteSlowOperator(bool is_synchronous, const char* name, const char* reason) {
  Note(is_synchronous ? VerboseEvent::kSynchronous : VerboseEvent::kCpuKernel,
       [&] { return reason == nullptr ? std::string(name) : fmt::format("{}: {}", name, reason); });
}

}  // namespace reprise
