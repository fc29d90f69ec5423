// SPDX-License-Identifier: Apache-2.0
//
// Handles of runtime objects: from what the user passes to the object, or to an error that says what is wrong with it.
#pragma once

#include "base/handle_table.h"
#include "base/no_destroy.h"
#include "base/status.h"

namespace reprise::runtime {

class Context;
class Stream;
class Event;

namespace internal {
// Objects, not functions that return them: every call looks two or three handles up.
extern constinit NoDestroy<HandleTable<Context, HandleKind::kContext>> g_contexts;
extern constinit NoDestroy<HandleTable<Stream, HandleKind::kStream>> g_streams;
extern constinit NoDestroy<HandleTable<Event, HandleKind::kEvent>> g_events;
}  // namespace internal

inline HandleTable<Context, HandleKind::kContext>& Contexts() { return internal::g_contexts.value; }
inline HandleTable<Stream, HandleKind::kStream>& Streams() { return internal::g_streams.value; }
inline HandleTable<Event, HandleKind::kEvent>& Events() { return internal::g_events.value; }

template <class T, HandleKind Kind>
[[gnu::cold, gnu::noinline]] Status NotLive(const HandleTable<T, Kind>& table, const void* handle,
                                            const char* expected) {
  const HandleState state = table.Classify(handle);
  return Error(kInvalidHandle, DescribeBadHandle(state, handle, expected)).Hint(HintForBadHandle(state, expected));
}

/// 107017 for a handle that is not live; `expected` is the word for the message.
template <class T, HandleKind Kind>
StatusOr<T*> FindObject(HandleTable<T, Kind>& table, const void* handle, const char* expected) {
  if (T* object = table.Find(handle)) [[likely]]
    return object;
  return NotLive(table, handle, expected);
}

}  // namespace reprise::runtime
