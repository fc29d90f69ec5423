// SPDX-License-Identifier: Apache-2.0
#include "api/runtime_driver.h"

#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "api/streams.h"
#include "base/calls.h"
#include "base/memory_checker.h"
#include "base/mutex.h"
#include "capture/session.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "device/virtual_memory.h"
#include "reprise/stream.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace reprise::api {
namespace {

using device::MemoryKind;
using device::MemoryRegistry;
using device::VirtualMemory;
using runtime::EventRecord;
using runtime::Stream;

constexpr uint32_t kLocationDevice = 1;  // ACL_MEM_LOCATION_TYPE_DEVICE
constexpr uint32_t kHugePages = 4;       // ACL_HBM_MEM_HUGE

// Those that were set before stay, for threads that are between the two calls.
std::atomic<const WaitScope*> g_wait_scope{nullptr};

// Lets go of what the caller holds.
class Waiting {
 public:
  Waiting() : scope_(g_wait_scope.load(std::memory_order_acquire)) {
    if (scope_ != nullptr) left_ = scope_->leave();
  }
  ~Waiting() {
    if (scope_ != nullptr) scope_->enter(left_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const WaitingCall waiting_;  // also while it takes that back: hence the first of the members
  const WaitScope* const scope_;
  void* left_ = nullptr;
};

class RuntimeDriver final : public memory::Driver {
 public:
  int DeviceCount() override { return static_cast<int>(runtime::Devices().size()); }

  StatusOr<void*> Allocate(int device, uint64_t bytes) override {
    // Nobody gets memory of a device whose last context is going: it would be taken away again.
    REPRISE_ASSIGN_OR_RETURN(runtime::Device * found, runtime::FindDevice(device));
    MutexLock lock(found->contexts_mutex);
    if (runtime::Context::CountOn(*found) == 0) {
      return Error(kNoContext, "device memory is asked for on a device without context")
          .Hint("call aclrtSetDevice first");
    }
    REPRISE_ASSIGN_OR_RETURN(void* const segment, MemoryRegistry::Get().AllocateDevice(
                                                      device, bytes, static_cast<uint32_t>(device::kHugePage)));
    ForbidAccess(segment, bytes);
    return segment;
  }
  void Free(int, void* segment) override {
    // Gone already when the device was reset.
    [[maybe_unused]] const Status freed =
        MemoryRegistry::Get().Free(segment, MemoryKind::kDevice, false, device::Users::kNone);
  }
  memory::DeviceSize Size(int device) override {
    const uint64_t total = MemoryRegistry::total_bytes();
    const uint64_t used = MemoryRegistry::Get().used_bytes(device);
    return {total > used ? total - used : 0, total};
  }

  StatusOr<void*> ReserveRange(int, uint64_t bytes, uint64_t) override {
    return VirtualMemory::Get().Reserve(bytes, nullptr);
  }
  Status CommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) override {
    for (uint64_t done = 0; done < bytes; done += page_bytes) {
      Status status = CommitPage(device, static_cast<char*>(at) + done, page_bytes);
      ForbidAccess(static_cast<char*>(at) + done, status.ok() ? page_bytes : 0);
      if (status.ok()) continue;
      DecommitPages(device, at, done, page_bytes);
      return status;
    }
    return {};
  }
  void DecommitPages(int, void* at, uint64_t bytes, uint64_t page_bytes) override {
    for (uint64_t done = 0; done < bytes; done += page_bytes) {
      [[maybe_unused]] const Status unmapped = VirtualMemory::Get().Unmap(static_cast<char*>(at) + done, true);
    }
  }
  void ReleaseRange(int, void* range) override {
    [[maybe_unused]] const Status released = VirtualMemory::Get().Release(range);
  }

  StatusOr<void*> AllocateHost(uint64_t bytes) override {
    return MemoryRegistry::Get().AllocateHost(CurrentDevice(), bytes);
  }
  void FreeHost(void* block) override {
    [[maybe_unused]] const Status freed = MemoryRegistry::Get().Free(block, MemoryKind::kPinnedHost);
  }

  void* CurrentStream(int device) override { return CurrentStreamOrNull(device); }
  int CurrentDevice() override { return reprise::CurrentDevice(); }
  memory::CaptureState CaptureOf(void* stream) override {
    // Asked about streams of others, too, who may destroy them at any time.
    uint64_t id = 0;
    runtime::Streams().With(stream, [&](const Stream& found) { id = found.capture_id(); });
    return {id != 0, id};
  }

  memory::CapturePoint PointInCapture(void* stream) override {
    const CallGuard guard;  // the stream may be another thread's, who may destroy it at any time
    const Stream* const found = guard.admitted() ? runtime::Streams().Find(stream) : nullptr;
    if (found == nullptr) return {};
    capture::Standing standing = capture::StandingOf(*found);
    return {standing.capture, standing.lane, standing.tasks, std::move(standing.before)};
  }

  memory::CaptureMoment MomentInCapture(void* stream) override {
    memory::CaptureMoment moment;
    runtime::Streams().With(stream, [&](const Stream& found) {
      moment = {found.capture_id(), found.captured_tasks.load(std::memory_order_acquire)};
    });
    return moment;
  }

  StatusOr<void*> RecordEvent(void* stream) override {
    StatusOr<EventRecord*> point = nullptr;
    bool lives = runtime::Streams().With(stream, [&](Stream& found) {
      // Past the capture it would be done at once, and the captured use is still to come.
      point = found.is_capturing() ? Error(kStreamCaptured, "no event is recorded on a stream that is being captured")
                                   : runtime::RecordPoint(found);
    });
    if (!lives) {  // it may be on its way out, with work that has not run
      Stream::ForEach([&](Stream& found) {
        if (found.handle() != stream) return;
        lives = true;
        point = runtime::RecordPoint(found);
      });
    }
    if (!lives) {  // destroyed: it is past everything
      point = EventRecord::Create();
      (*point)->Complete(0);
    }
    REPRISE_ASSIGN_OR_RETURN(EventRecord* const record, std::move(point));
    return static_cast<void*>(record);
  }
  bool IsDone(void* event) override { return static_cast<EventRecord*>(event)->done(); }
  void Wait(void* event) override { static_cast<EventRecord*>(event)->Wait(std::nullopt); }
  void ReleaseEvent(void* event) override { static_cast<EventRecord*>(event)->Release(); }

  void WaitForDevice(int device) override {
    const Waiting waiting;
    std::vector<EventRecord*> points;
    runtime::Contexts().ForEach([&](runtime::Context* context) {
      if (context->device().id() != device) return;
      context->ForEachStream([&](Stream& stream) {
        if (stream.is_capturing() || stream.is_persistent() || stream.IsIdle()) return;
        auto point = runtime::RecordPoint(stream);
        if (point.ok()) points.push_back(*point);
      });
    });
    for (EventRecord* point : points) {
      point->Wait(std::nullopt);
      point->Release();
    }
  }

  bool IsMemoryChecked() override { return reprise::IsMemoryChecked(); }
  bool IsIdle() override { return !device::ParkedMemory::Get().InFlight(); }

 private:
  static Status CommitPage(int device, void* at, uint64_t bytes) {
    device::PhysicalProperties properties;
    properties.attribute = kHugePages;
    properties.location_type = kLocationDevice;
    properties.location_id = static_cast<uint32_t>(device);
    properties.device = device;
    VirtualMemory& memory = VirtualMemory::Get();
    REPRISE_ASSIGN_OR_RETURN(void* const handle, memory.Create(bytes, properties));
    Status status = memory.Map(at, bytes, handle, true);
    // Mapped, the memory goes with its mapping.
    [[maybe_unused]] const Status dropped = memory.Free(handle);
    return status;
  }
};

// Never destroyed: blocks are freed by static objects of programs, too.
struct Allocators {
  Mutex mutex;
  RuntimeDriver driver REPRISE_GUARDED_BY(mutex);
  std::atomic<memory::DeviceAllocator*> device{nullptr};
  std::atomic<memory::HostAllocator*> host{nullptr};
};

Allocators& All() {
  static auto* const all = new Allocators;
  return *all;
}

void ForgetDevice(int device) {
  if (memory::DeviceAllocator* allocator = DeviceMemoryOrNull()) allocator->ForgetDevice(device);
}

std::string ExplainBlock(uintptr_t address) {
  memory::DeviceAllocator* const allocator = DeviceMemoryOrNull();
  return allocator != nullptr ? allocator->ExplainReport(address) : std::string();
}

template <class Allocator>
StatusOr<Allocator*> Make(std::atomic<Allocator*>& place) {
  if (Allocator* made = place.load(std::memory_order_acquire)) [[likely]]
    return made;
  MutexLock lock(All().mutex);
  if (Allocator* made = place.load(std::memory_order_acquire)) return made;
  REPRISE_ASSIGN_OR_RETURN(const memory::Config config, memory::Config::FromEnvironment());
  auto* const made = new Allocator(All().driver, config);
  AddToMemoryReports(ExplainBlock);
  runtime::AtMemoryFreed(ForgetDevice);
  place.store(made, std::memory_order_release);
  return made;
}

}  // namespace

StatusOr<memory::DeviceAllocator*> DeviceMemory() { return Make(All().device); }
StatusOr<memory::HostAllocator*> HostMemory() { return Make(All().host); }
memory::DeviceAllocator* DeviceMemoryOrNull() noexcept { return All().device.load(std::memory_order_acquire); }
memory::HostAllocator* HostMemoryOrNull() noexcept { return All().host.load(std::memory_order_acquire); }

void SetWaitScope(WaitScope scope) {
  // Never destroyed; sanitizers find all of them here.
  static auto* const all = new std::deque<WaitScope>;
  MutexLock lock(All().mutex);
  g_wait_scope.store(scope.leave == nullptr ? nullptr : &all->emplace_back(scope), std::memory_order_release);
}

}  // namespace reprise::api
