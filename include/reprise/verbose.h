// SPDX-License-Identifier: Apache-2.0
//
// Why the slow way was taken: counters of events, and what layers above the core (the PyTorch layer) add to them. With
// REPRISE_VERBOSE=dispatch,plan,capture,alloc each event is also a line on standard error, with its reason.
//
//     for (const reprise::EventCounter& counter : reprise::EventCounters()) {
//       std::printf("%s.%s: %llu\n", counter.category, counter.name, (unsigned long long)counter.count);
//     }
#ifndef REPRISE_VERBOSE_H_
#define REPRISE_VERBOSE_H_

#include <cstdint>
#include <vector>

namespace reprise {

/// How often an event has happened in this process.
struct EventCounter {
  const char* category;  ///< "dispatch", "plan", "capture" or "alloc", as REPRISE_VERBOSE names it
  const char* name;      ///< "cpu_kernel"
  const char* meaning;   ///< a phrase
  uint64_t count;
};

/// All events, in a fixed order. Texts live for ever.
///
/// Threads: thread-safe; events that happen meanwhile may be missing.
std::vector<EventCounter> EventCounters();

/// Whether REPRISE_VERBOSE asks for lines of events of operators.
///
/// Threads: thread-safe.
bool DispatchIsVerbose();

/// An operator of a framework took a slower way than a kernel of the device.
///
/// \param is_synchronous  the host waits for its result; else it runs as a kernel of the CPU, in stream order
/// \param name            of the operator; borrowed
/// \param reason          for the line, may be null; used only if DispatchIsVerbose
///
/// Threads: thread-safe.
void NoteSlowOperator(bool is_synchronous, const char* name, const char* reason);

}  // namespace reprise

#endif  // REPRISE_VERBOSE_H_
