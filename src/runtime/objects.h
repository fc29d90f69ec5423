// SPDX-License-Identifier: Apache-2.0
//
// Handles of runtime objects: from what the user passes to the object, or to an error that says what is wrong with it.
#pragma once

#include "base/handle_table.h"
#include "base/status.h"

namespace reprise::runtime {

class Context;
class Stream;
class Event;

HandleTable<Context, HandleKind::kContext>& Contexts();
HandleTable<Stream, HandleKind::kStream>& Streams();
HandleTable<Event, HandleKind::kEvent>& Events();

/// 107017 for a handle that is not live; `expected` is the word for the message.
template <class T, HandleKind Kind>
StatusOr<T*> FindObject(HandleTable<T, Kind>& table, const void* handle, const char* expected) {
  if (T* object = table.Find(handle)) return object;
  return Error(107017, DescribeBadHandle(table.Classify(handle), handle, expected));
}

}  // namespace reprise::runtime
