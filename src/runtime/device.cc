// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/env.h"
#include "base/fault.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "kernels/simd/matrix_unit.h"
#include "runtime/context.h"
#include "runtime/memory_pool.h"
#include "runtime/stream.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

// A plan counts the lanes of a graph in 16 bits; ids of events and notifies index tables that are mapped whole.
constexpr int64_t kMostWorkers = 1024;
constexpr int64_t kMostStreams = 65'000;
constexpr int64_t kMostEvents = 1 << 24;

}  // namespace

int32_t IdPool::Take() {
  MutexLock lock(mutex_);
  if (taken_ >= limit_) return -1;
  ++taken_;
  if (!returned_.empty()) {
    const int32_t id = *returned_.begin();
    returned_.erase(returned_.begin());
    return id;
  }
  return next_++;
}

void IdPool::Return(int32_t id) {
  MutexLock lock(mutex_);
  --taken_;
  returned_.insert(id);
}

int64_t IdPool::available() const {
  MutexLock lock(mutex_);
  return std::max<int64_t>(0, limit_ - taken_);
}

Holdings::Holder* Holdings::Enter(std::string name) {
  auto holder = std::make_unique<Holder>();
  holder->name = std::move(name);
  MutexLock lock(mutex_);
  holders_.push_back(std::move(holder));
  return holders_.back().get();
}

void Holdings::Rename(Holder* holder, std::string name) {
  MutexLock lock(mutex_);
  holder->name = std::move(name);
}

void Holdings::Leave(Holder* holder) {
  MutexLock lock(mutex_);
  std::erase_if(holders_, [holder](const auto& entry) { return entry.get() == holder; });
}

std::string Holdings::Describe(Kind kind, int64_t taken) const {
  constexpr size_t kShown = 3;
  MutexLock lock(mutex_);
  std::vector<std::pair<uint32_t, const Holder*>> by_count;
  int64_t in_graphs = 0;
  for (const auto& holder : holders_) {
    const uint32_t count = ((*holder).*kind).load(std::memory_order_relaxed);
    if (count == 0) continue;
    in_graphs += count;
    by_count.emplace_back(count, holder.get());
  }
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = fmt::format("{} held by the program itself", std::max<int64_t>(0, taken - in_graphs));
  for (size_t i = 0; i < by_count.size() && i < kShown; ++i) {
    text += fmt::format(", {} by {}", by_count[i].first, by_count[i].second->name);
    in_graphs -= by_count[i].first;
  }
  if (by_count.size() > kShown) text += fmt::format(", {} by {} more graphs", in_graphs, by_count.size() - kShown);
  return text;
}

Status Device::NoStream(const std::string& wanted) const {
  return Error(kNoStreamResource,
               fmt::format("device {} has no stream left{}: all {} are in use", id_, wanted, stream_ids_.limit()))
      .Culprit("streams: " + holdings_.Describe(&Holdings::Holder::streams, stream_ids_.limit()))
      .Hint(
          "destroy streams and graphs that are no longer needed; every stream that takes part in a capture costs one "
          "more in its graph (REPRISE_MAX_STREAMS sets the limit)");
}

Status Device::NoEvent(const std::string& wanted) const {
  return Error(kNoEventResource,
               fmt::format("device {} has no event left{}: all {} are in use", id_, wanted, event_ids_.limit()))
      .Culprit("events: " + holdings_.Describe(&Holdings::Holder::events, event_ids_.limit()))
      .Hint(
          "destroy events and graphs that are no longer needed; every event record in a capture costs one in its "
          "graph (REPRISE_MAX_EVENTS sets the limit)");
}

Device::Device(int id, int physical_id)
    : id_(id),
      physical_id_(physical_id),
      start_(Clock::now()),
      scheduler_(static_cast<int>(EnvInt(EnvVar::kWorkers, 0, kMostWorkers))),
      stream_ids_(EnvInt(EnvVar::kMaxStreams, 1, kMostStreams)),
      event_ids_(EnvInt(EnvVar::kMaxEvents, 1, kMostEvents)) {}

uint64_t Device::NowUs() const {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_).count());
}

StatusOr<Context*> Device::Retain() {
  MutexLock lock(primary_mutex_);
  if (primary_ == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(primary_, Context::Create(*this, true));
  }
  ++primary_count_;
  return primary_;
}

StatusOr<Context*> Device::Open() {
  MutexLock lock(primary_mutex_);
  if (primary_ == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(primary_, Context::Create(*this, true));
    ++primary_count_;
  }
  return primary_;
}

namespace {

constexpr const char* kResets = "resets the device, which waits for that stream";

}  // namespace

Status Device::Release() {
  UniqueLock lock(primary_mutex_);
  if (primary_count_ == 0) {
    return Error(kInvalidValue, fmt::format("device {} is not set: its reference count is 0", id_))
        .Hint("call aclrtResetDevice once for each aclrtSetDevice");
  }
  if (primary_count_ == 1) REPRISE_RETURN_IF_ERROR(primary_->CheckNotInside(kResets));
  if (--primary_count_ != 0) return {};
  return DestroyPrimary(lock);
}

Status Device::ReleaseForce() {
  UniqueLock lock(primary_mutex_);
  if (primary_count_ == 0) {
    return Error(kInvalidValue, fmt::format("device {} is not set: its reference count is 0", id_))
        .Hint("call aclrtResetDeviceForce only while the device is set");
  }
  REPRISE_RETURN_IF_ERROR(primary_->CheckNotInside(kResets));
  primary_count_ = 0;
  return DestroyPrimary(lock);
}

namespace {

std::array<std::atomic<void (*)(int)>, 4>& MemoryFreedHooks() {
  static std::array<std::atomic<void (*)(int)>, 4> hooks{};
  return hooks;
}

}  // namespace

void AtMemoryFreed(void (*hook)(int device)) {
  for (auto& place : MemoryFreedHooks()) {
    void (*none)(int) = nullptr;
    if (place.compare_exchange_strong(none, hook, std::memory_order_acq_rel) || none == hook) return;
  }
  std::abort();  // one place for each user of this function: make more
}

Status Device::DestroyPrimary(UniqueLock<Mutex>& lock) {
  Context* context = primary_;
  primary_ = nullptr;
  lock.unlock();  // destruction waits for work, which may take the lock through a callback
  Context::Destroy(context);
  // Calls may use the memory.
  const device::Users users = AwaitCalls() ? device::Users::kStreams : device::Users::kCalls;
  if (Context::CountOn(*this) == 0) {
    // Without the lock below: those who are called take locks under which others ask for memory.
    for (const auto& hook : MemoryFreedHooks()) {
      if (auto* const call = hook.load(std::memory_order_acquire)) call(id_);
    }
  }
  // Explicit contexts keep the device's memory; only the last user frees what the program forgot.
  MutexLock contexts_lock(contexts_mutex);
  if (Context::CountOn(*this) == 0) {
    MemoryPool::ForgetDevice(id_, users);
    device::MemoryRegistry::Get().FreeAllOfDevice(id_, users);
  }
  device::ParkedMemory::Get().Sweep();  // what waited for its streams
  return {};
}

bool Device::primary_active() const {
  MutexLock lock(primary_mutex_);
  return primary_ != nullptr;
}

std::vector<int> ParseVisibleDevices(std::string_view list, int physical) {
  std::vector<int> ids;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    while (at < end && *at == ' ') ++at;
    int id = -1;
    const auto [after, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || id >= physical || (!ids.empty() && id <= ids.back())) break;
    if (after != end && *after != ',' && *after != ' ') break;
    ids.push_back(id);
    at = after;
    while (at < end && *at == ' ') ++at;
    if (at < end) ++at;
  }
  return ids;
}

// Unless the number is set, one for each rank that a launcher of PyTorch has started on this machine: the first thing
// that its programs do is to choose the device of their local rank.
static int PhysicalDevices() {
  const char* const ranks = std::getenv("LOCAL_WORLD_SIZE");
  if (ranks != nullptr && std::getenv("REPRISE_DEVICES") == nullptr) {
    int count = 0;
    const char* const end = ranks + std::strlen(ranks);
    const auto [after, error] = std::from_chars(ranks, end, count);
    if (error == std::errc() && after == end && count >= 1 && count <= device::kMaxDevices) return count;
  }
  return static_cast<int>(EnvInt(EnvVar::kDevices, 1, device::kMaxDevices));
}

const std::vector<std::unique_ptr<Device>>& Devices() {
  static const auto* const devices = [] {
    internal::g_launch_is_blocking = EnvInt(EnvVar::kLaunchBlocking) != 0;  // nobody has a stream yet
    const int physical = PhysicalDevices();
    auto* all = new std::vector<std::unique_ptr<Device>>;
    const std::string& visible = Env(EnvVar::kVisibleDevices);
    if (visible.empty()) {
      for (int i = 0; i < physical; ++i) all->push_back(std::make_unique<Device>(i, i));
      return all;
    }
    for (const int id : ParseVisibleDevices(visible, physical)) {
      all->push_back(std::make_unique<Device>(static_cast<int>(all->size()), id));
    }
    return all;
  }();
  return *devices;
}

StatusOr<Device*> FindDevice(int64_t user_id) {
  const auto& devices = Devices();
  if (user_id >= 0 && user_id < static_cast<int64_t>(devices.size()))
    return devices[static_cast<size_t>(user_id)].get();
  if (devices.empty()) {
    return Error(kInvalidDevice, fmt::format("device {} does not exist: ASCEND_RT_VISIBLE_DEVICES=\"{}\" leaves none",
                                             user_id, Env(EnvVar::kVisibleDevices)));
  }
  if (devices.size() == 1) {
    return Error(kInvalidDevice, fmt::format("device {} does not exist: this process has one device, 0", user_id))
        .Hint(
            "pass 0, or start the program with REPRISE_DEVICES=8 in its environment for eight devices"
            " (ASCEND_RT_VISIBLE_DEVICES picks some of them)");
  }
  return Error(kInvalidDevice,
               fmt::format("device {} does not exist: valid ids are 0 to {}", user_id, devices.size() - 1));
}

static bool ChooseMatrixUnit() {
  using kernels::simd::MatrixUnitUse;
  const int64_t bits = EnvInt(EnvVar::kMatrixUnit);
  if (bits != 0 && bits != 16 && bits != 32)
    ComplainOfSetting(EnvVar::kMatrixUnit, "is none of 0, 16 and 32; 16 is used");
  kernels::simd::SetMatrixUnitUse(bits == 0    ? MatrixUnitUse::kNone
                                  : bits == 32 ? MatrixUnitUse::kAll
                                               : MatrixUnitUse::kShortTypes);
  return true;
}

void ApplyMatrixUnitSetting() {
  static const bool is_applied = ChooseMatrixUnit();
  (void)is_applied;
}

uint32_t HardwareCores(int type) {
  return static_cast<uint32_t>(EnvInt(type == 0 ? EnvVar::kCubeCores : EnvVar::kVectorCores));
}

}  // namespace reprise::runtime
