// SPDX-License-Identifier: Apache-2.0
//
// Why the slow way was taken: events that are counted always, and told line by line on standard error when
// REPRISE_VERBOSE names their category:
//
//     REPRISE_VERBOSE=dispatch,plan;filter=aten::.*norm
//     reprise: dispatch: cpu_kernel: aten::native_batch_norm: …
//
// The table of events is verbose.def. An event is rare: none belongs on the way of a launch, a replay or an allocation
// that the cache serves.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

enum class VerboseCategory : uint8_t { kDispatch, kPlan, kCapture, kAlloc, kFusion };

enum class VerboseEvent : uint8_t {
#define REPRISE_EVENT(id, category, name, meaning) id,
#include "base/verbose.def"
#undef REPRISE_EVENT
  kCount
};

/// One row of the table of events.
struct EventInfo {
  VerboseCategory category;
  const char* name;
  const char* meaning;
};
const EventInfo& InfoOf(VerboseEvent event);
/// "dispatch"
const char* CategoryName(VerboseCategory category);

namespace internal {
extern std::atomic<uint64_t> g_event_counts[static_cast<size_t>(VerboseEvent::kCount)];
}  // namespace internal

inline uint64_t CountOf(VerboseEvent event) {
  return internal::g_event_counts[static_cast<size_t>(event)].load(std::memory_order_relaxed);
}
inline void Count(VerboseEvent event, uint64_t times = 1) {
  internal::g_event_counts[static_cast<size_t>(event)].fetch_add(times, std::memory_order_relaxed);
}

/// Whether REPRISE_VERBOSE names the category; read once.
bool IsVerbose(VerboseCategory category) noexcept;

/// Tells one event, if REPRISE_VERBOSE asks for it and its filter finds something in the line. Does not count it.
void Tell(VerboseEvent event, std::string_view text) noexcept;

/// Counts the event, and tells `text()` if somebody wants to read it.
template <class Text>
void Note(VerboseEvent event, Text text) {
  Count(event);
  if (IsVerbose(InfoOf(event).category)) [[unlikely]]
    Tell(event, text());
}

/// What a setting of REPRISE_VERBOSE means: categories as bits, the filter, and what is wrong with it (empty: nothing).
struct VerboseSetting {
  uint32_t categories = 0;
  std::string filter;
  std::string complaint;
};
VerboseSetting ParseVerbose(std::string_view text);

}  // namespace reprise
