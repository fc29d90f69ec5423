// SPDX-License-Identifier: Apache-2.0
#include "capture/graph_memory.h"

#include <fmt/format.h>

#include "base/mutex.h"
#include "capture/session.h"
#include "device/memory.h"

namespace reprise::capture {

StatusOr<void*> TakeGraphMemory(runtime::Stream& stream, uint64_t bytes) {
  if (!stream.is_capturing()) [[likely]]
    return nullptr;
  MutexLock lock(stream.context().capture_mutex);
  Session* session = Session::Of(stream);
  if (session == nullptr) return nullptr;
  return session->model().TakeMemory(bytes);
}

StatusOr<bool> GiveBackGraphMemory(runtime::Stream& stream, void* block) {
  if (!stream.is_capturing()) [[likely]]
    return false;
  MutexLock lock(stream.context().capture_mutex);
  Session* session = Session::Of(stream);
  if (session == nullptr) return false;
  if (session->model().owns_memory(block)) return true;
  return Error(kFeatureNotSupported,
               fmt::format("{} was not taken in the capture of {}, so that it cannot be given back in it",
                           fmt::ptr(block), stream.Describe()))
      .Culprit(session->Describe())
      .Hint("give it back on a stream outside of the capture");
}

}  // namespace reprise::capture
