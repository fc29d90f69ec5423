// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <c10/util/Exception.h>
#include <reprise/stream.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"

namespace torch_npu {
namespace {

constexpr int64_t kTypeShift = 5;
constexpr int64_t kPoolSize = int64_t{1} << kTypeShift;
constexpr int64_t kExternalBit = int64_t{1} << 30;
constexpr int kTypes = 5;  // of streams that we make

// Streams of each type. REPRISE_TORCH_STREAMS=8 makes do with 8 of a priority.
int64_t SizeOf(size_t type) {
  static const std::array<int64_t, kTypes> sizes = [] {
    const char* const set = std::getenv("REPRISE_TORCH_STREAMS");
    const int64_t pool = set != nullptr && std::string_view(set) == "8" ? 8 : kPoolSize;
    return std::array<int64_t, kTypes>{1, 1, 4, pool, pool};
  }();
  return sizes[type];
}

struct DeviceStreams {
  std::mutex mutex;
  std::array<std::array<std::atomic<aclrtStream>, kPoolSize>, kTypes> handles{};
  // The runtime's numbers of those that are made.
  std::array<std::array<std::atomic<int32_t>, kPoolSize>, kTypes> numbers{};
  std::array<std::atomic<uint32_t>, kTypes> next{};
};

struct External {
  std::mutex mutex;
  std::vector<aclrtStream> handles;
  std::unordered_map<aclrtStream, int64_t> ids;
};

// Never destroyed: threads use streams until the very end.
DeviceStreams& Of(c10::DeviceIndex device) {
  static auto* const all = new std::array<DeviceStreams, kMaxDevices>;
  return (*all)[static_cast<size_t>(device)];
}

External& Externals() {
  static auto* const externals = new External;
  return *externals;
}

thread_local std::array<c10::StreamId, kMaxDevices> t_current{};  // 0: the default stream

c10::Stream Make(c10::StreamId id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

c10::DeviceIndex OrCurrent(c10::DeviceIndex device) { return device < 0 ? CurrentDevice() : device; }

StreamType TypeOf(c10::StreamId id) {
  return (id & kExternalBit) != 0 ? StreamType::kExternal : static_cast<StreamType>(id >> kTypeShift);
}

aclrtStream Create(c10::DeviceIndex device, StreamType type) {
  const DeviceScope scope(device);
  aclrtStream stream = nullptr;
  if (type == StreamType::kDefault) {
    Check(aclrtCtxGetCurrentDefaultStream(&stream), "aclrtCtxGetCurrentDefaultStream");
  } else {
    // Priorities of the runtime: 0 is the highest.
    Check(aclrtCreateStreamWithConfig(&stream, type == StreamType::kHigh ? 0 : 1, ACL_STREAM_FAST_LAUNCH),
          "aclrtCreateStreamWithConfig");
  }
  return stream;
}

}  // namespace

NPUStream::NPUStream(c10::Stream stream) : stream_(stream) {
  TORCH_CHECK(stream.device_type() == c10::kPrivateUse1, "not a stream of an npu device: ", stream);
  const c10::StreamId id = stream.id();
  const c10::DeviceIndex device = stream.device_index();
  TORCH_CHECK(IsDevice(device), "a stream of npu:", static_cast<int>(device), ": ", WhyNoDevice(device));
  if (id >= 0 && TypeOf(id) == StreamType::kExternal) {
    External& externals = Externals();
    const bool is_known = [&] {
      const std::lock_guard lock(externals.mutex);
      return (id & ~kExternalBit) < static_cast<int64_t>(externals.handles.size());
    }();
    TORCH_CHECK(is_known, "stream id ", id, " names no external stream");
    return;
  }
  TORCH_CHECK(id >= 0 && (id >> kTypeShift) < kTypes && id % kPoolSize < SizeOf(static_cast<size_t>(id >> kTypeShift)),
              "stream id ", id, " names no stream of npu:", static_cast<int>(device),
              "; use the stream_id of an existing stream");
}

StreamType NPUStream::type() const noexcept { return TypeOf(id()); }

aclrtStream NPUStream::handle() const {
  if (is_external()) {
    External& externals = Externals();
    const std::lock_guard lock(externals.mutex);
    return externals.handles[static_cast<size_t>(id() & ~kExternalBit)];
  }
  DeviceStreams& streams = Of(device_index());
  std::atomic<aclrtStream>& place =
      streams.handles[static_cast<size_t>(id() >> kTypeShift)][static_cast<size_t>(id() % kPoolSize)];
  if (aclrtStream made = place.load(std::memory_order_acquire)) [[likely]]
    return made;
  const std::lock_guard lock(streams.mutex);
  if (aclrtStream made = place.load(std::memory_order_acquire)) return made;
  aclrtStream made = Create(device_index(), type());
  int32_t number = -1;
  (void)aclrtStreamGetId(made, &number);  // for messages only
  streams.numbers[static_cast<size_t>(id() >> kTypeShift)][static_cast<size_t>(id() % kPoolSize)].store(number);
  place.store(made, std::memory_order_release);
  return made;
}

c10::StreamId StreamIdOf(c10::DeviceIndex device, int32_t number) noexcept {
  if (device < 0 || device >= kMaxDevices) return -1;
  const DeviceStreams& streams = Of(device);
  for (size_t type = 0; type < kTypes; ++type) {
    for (size_t i = 0; i < kPoolSize; ++i) {
      if (streams.handles[type][i].load(std::memory_order_acquire) == nullptr) continue;
      if (streams.numbers[type][i].load() == number) return static_cast<c10::StreamId>((type << kTypeShift) | i);
    }
  }
  return -1;
}

aclrtStream NPUStream::handle_if_made() const noexcept {
  if (is_external()) return handle();
  return Of(device_index())
      .handles[static_cast<size_t>(id() >> kTypeShift)][static_cast<size_t>(id() % kPoolSize)]
      .load(std::memory_order_acquire);
}

bool NPUStream::query() const {
  RefuseExternal(*this, "query");
  const DeviceScope scope(device_index());
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  Check(aclrtStreamQuery(handle(), &status), "aclrtStreamQuery");
  return status == ACL_STREAM_STATUS_COMPLETE;
}

void NPUStream::synchronize() const {
  RefuseExternal(*this, "synchronize");
  const DeviceScope scope(device_index());
  aclrtStream const stream = handle();
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtSynchronizeStream(stream);
  }
  Check(code, "aclrtSynchronizeStream");
}

bool NPUStream::is_capturing() const {
  if (!reprise::AnyStreamIsCapturing()) [[likely]]
    return false;
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI model = nullptr;
  aclrtStream const stream = handle_if_made();
  return stream != nullptr && aclmdlRICaptureGetInfo(stream, &status, &model) == 0 &&
         status != ACL_MODEL_RI_CAPTURE_STATUS_NONE;
}

NPUStream CurrentStream(c10::DeviceIndex device) {
  device = OrCurrent(device);
  const c10::Stream current = Make(t_current[static_cast<size_t>(device)], device);
  if (HasContext(device)) [[likely]]
    return {NPUStream::Known(), current};
  return NPUStream(current);
}

NPUStream DefaultStream(c10::DeviceIndex device) { return NPUStream(Make(0, OrCurrent(device))); }

void SetCurrentStream(const NPUStream& stream) {
  t_current[static_cast<size_t>(stream.device_index())] = stream.id();
  EnsureContext();
  // The core's allocators, graphs and generators ask for it, too.
  Guarded([&] { reprise::SetCurrentStream(stream.handle()); });
}

NPUStream StreamFromParts(int64_t id, int64_t device_index, int64_t device_type) {
  TORCH_CHECK(device_type == static_cast<int64_t>(c10::kPrivateUse1), "device_type ", device_type,
              " is not that of npu, ", static_cast<int>(c10::kPrivateUse1));
  TORCH_CHECK(device_index >= 0 && device_index < kMaxDevices, "device_index ", device_index, " names no npu device");
  return NPUStream(Make(id, static_cast<c10::DeviceIndex>(device_index)));
}

NPUStream StreamFromPool(int priority, c10::DeviceIndex device, StreamType type) {
  device = OrCurrent(device);
  if (type == StreamType::kNormal && priority < 0) type = StreamType::kHigh;
  DeviceStreams& streams = Of(device);
  const auto row = static_cast<size_t>(type);
  const int64_t size = SizeOf(row);
  for (int64_t tries = 0;; ++tries) {
    const int64_t index = streams.next[row].fetch_add(1) % size;
    const NPUStream stream(Make((static_cast<int64_t>(type) << kTypeShift) + index, device));
    if (tries == size || !stream.is_capturing()) return stream;
  }
}

void RefuseExternal(const NPUStream& stream, const char* what) {
  TORCH_CHECK(!stream.is_external(), "External NPU stream is not supported in ", what,
              "; use a torch.npu.Stream, and order it after the external one by the means of its owner");
}

NPUStream StreamFromExternal(aclrtStream handle, c10::DeviceIndex device) {
  External& externals = Externals();
  int64_t index;
  {
    const std::lock_guard lock(externals.mutex);
    const auto [at, is_new] = externals.ids.try_emplace(handle, static_cast<int64_t>(externals.handles.size()));
    if (is_new) externals.handles.push_back(handle);
    index = at->second;
  }
  return NPUStream(Make(index | kExternalBit, device));
}

StreamGuard::StreamGuard(const NPUStream& stream)
    : device_(ExchangeDevice(stream.device_index())), previous_(CurrentStream(stream.device_index())) {
  SetCurrentStream(stream);
}

StreamGuard::~StreamGuard() {
  SetCurrentStream(previous_);
  if (CurrentDevice() != device_) SetDevice(device_);
}

}  // namespace torch_npu
