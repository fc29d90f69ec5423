/* SPDX-License-Identifier: Apache-2.0
 *
 * The current stream of a thread: what graphs, allocators and random draws use when no stream is named.
 *
 * Streams are those of aclrtCreateStream; a stream that was not made by this interface is as good as one that was.
 */
#ifndef REPRISE_STREAM_H_
#define REPRISE_STREAM_H_

#include <optional>

#include "reprise/error.h"

namespace reprise {

/** Device of the calling thread's context; 0 when it has none. */
int CurrentDevice() noexcept;

/** The calling thread's stream on a device (-1: the current device). The default stream of the device's primary context
 *  unless another was set. Opens the device if it is not open yet. A thread that never had a context takes that one.
 *  Throws Exception: 107001 no such device; 107002 the thread's context was destroyed. */
void* CurrentStream(int device = -1);

/** Makes `stream` the calling thread's stream on the device it belongs to; null: the default stream of the current
 *  device. The stream is borrowed. A thread that never had a context takes the stream's.
 *  Throws Exception: 107017 not a stream. */
void SetCurrentStream(void* stream);

/** The error that the next synchronisation of `stream` will report, and reports all the same, in the words of
 *  aclrtSynchronizeStream; nullopt: none so far. Waits for nothing. Throws Exception: 107017 not a stream. */
std::optional<Exception> PendingError(void* stream);

/** Whether any stream of the process is being captured. One load, for those who ask before each call. Threads: a capture
 *  that the calling thread has begun, or learned of, is seen. */
bool AnyStreamIsCapturing() noexcept;

/** Another current stream until the end of the scope. */
class StreamGuard {
 public:
  explicit StreamGuard(void* stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  int device_;
  void* previous_;  // null: none was set
};

}  // namespace reprise

#endif  // REPRISE_STREAM_H_
