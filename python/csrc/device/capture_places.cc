// SPDX-License-Identifier: Apache-2.0
#include "device/capture_places.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "common/python_stack.h"

namespace torch_npu {
namespace {

using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

std::atomic<int> g_open_captures{0};

struct CapturePlaces {
  std::mutex mutex;
  std::map<StreamKey, std::string> begun;  // one for each open capture
  std::map<StreamKey, std::string> forked;

  static CapturePlaces& Get() {
    static auto* const places = new CapturePlaces;
    return *places;
  }
  static std::string In(const std::map<StreamKey, std::string>& places, const StreamKey& key) {
    const std::lock_guard lock(Get().mutex);
    const auto found = places.find(key);
    return found == places.end() ? "" : found->second;
  }
};

StreamKey KeyOf(const NPUStream& stream) { return {stream.device_index(), stream.id()}; }

}  // namespace

void NoteCaptureBegin(const NPUStream& stream) {
  std::string place = PythonPlace();  // takes the GIL, so before the lock
  CapturePlaces& places = CapturePlaces::Get();
  const std::lock_guard lock(places.mutex);
  places.begun[KeyOf(stream)] = std::move(place);
  g_open_captures.store(static_cast<int>(places.begun.size()), std::memory_order_relaxed);
}

void NoteCaptureEnd(c10::DeviceIndex device, c10::StreamId stream) noexcept {
  CapturePlaces& places = CapturePlaces::Get();
  const std::lock_guard lock(places.mutex);
  places.begun.erase({device, stream});
  g_open_captures.store(static_cast<int>(places.begun.size()), std::memory_order_relaxed);
}

bool IsAnyCapturing() noexcept { return g_open_captures.load(std::memory_order_relaxed) != 0; }

void NoteFork(const NPUStream& stream) {
  std::string place = PythonPlace();
  CapturePlaces& places = CapturePlaces::Get();
  const std::lock_guard lock(places.mutex);
  places.forked[KeyOf(stream)] = std::move(place);
}

std::string CaptureBegunAt(c10::DeviceIndex device, int32_t number) {
  return CapturePlaces::In(CapturePlaces::Get().begun, {device, StreamIdOf(device, number)});
}

std::string ForkedAt(c10::DeviceIndex device, int32_t number) {
  return CapturePlaces::In(CapturePlaces::Get().forked, {device, StreamIdOf(device, number)});
}

}  // namespace torch_npu
