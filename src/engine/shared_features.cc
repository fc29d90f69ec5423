// SPDX-License-Identifier: Apache-2.0
#include "engine/shared_features.h"

#include <utility>

namespace reprise::engine {

StatusOr<SharedFeatures::Lease> SharedFeatures::Begin(uint64_t bytes, void* stream) {
  mutex_.lock();
  std::unique_ptr<Mutex, Unlock> held(&mutex_);  // handed to the Lease
  const bool grows = bytes > bytes_;
  if (stream_ != nullptr && (stream_ != stream || grows)) WaitForStream(stream_);
  if (grows) {
    memory_ = {};
    bytes_ = 0;
    REPRISE_ASSIGN_OR_RETURN(memory_, TakeMemory(nullptr, bytes, stream));
    bytes_ = bytes;
  }
  stream_ = stream;
  return Lease{memory_.address, bytes_, std::move(held)};
}

uint64_t SharedFeatures::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace reprise::engine
