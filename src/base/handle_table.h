// SPDX-License-Identifier: Apache-2.0
//
// Handles that users hold: a kind, a generation and an index in 64 bits, never an address. A destroyed or foreign
// handle is therefore recognised without touching memory that it might point to.
//
//   bits 63..56  kind (0x51 …): no heap pointer has such a top byte
//   bits 55..32  generation of the slot, so that a reused slot does not revive old handles
//   bits 31..0   slot index
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/calls.h"
#include "base/mutex.h"
#include "base/no_destroy.h"

namespace reprise {

enum class HandleKind : uint8_t {
  kContext = 0x51,
  kStream,
  kEvent,
  kModel,
  kLane,  // capture-internal stream of a model
  kTask,
  kTaskGroup,
  kCondition,
  kBinary,
  kFunction,
  kKernelArgs,
  kNotify,
  kLabel,
  kLabelList,
  kTensor,
  kScalar,
  kArray,
  kTensorList,
  kScalarList,
  kExecutor,
  kDataBuffer,
  kCountNotify,
  kPhysicalMemory,
  kTensorDesc,
  kAllocatorDesc,
  kMemoryPool,
  kQueueBuffer,
  kQueueAttr,
  kQueueRoute,
  kQueueRouteList,
  kQueueRouteQuery,
  kTdtItem,
  kTdtDataset,
  kTdtChannel,
  kProfilerConfig,
  kProfilerSubscription,
  kProfilerStep,
  kProfilerStamp,
  kOpAttributes,
  kOpHandle,
  kGraphDumpOption,
  kBinaryData,
  kCommunicator,
  kModelDesc,
  kModelDataset,
};

/// What a handle of the wrong sort looks like; for messages.
enum class HandleState { kNull, kLive, kDestroyed, kWrongKind, kForeign };

inline uint64_t HandleBits(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
inline uint8_t HandleKindBits(const void* handle) { return static_cast<uint8_t>(HandleBits(handle) >> 56); }

/// "stream", "event" …; null when the bits are not one of our kinds.
const char* HandleKindName(uint8_t kind) noexcept;

/// Maps handles of one kind to objects.
///
/// Threads: thread-safe; Find takes no lock. What a call (base/calls.h) finds stays in memory until it ends, provided
/// that whoever destroys it takes the handle away first and then retires the object.
template <class T, HandleKind Kind>
class HandleTable {
 public:
  constexpr HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  /// The tables of the runtime are never destroyed; this is for others.
  ~HandleTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  /// Null when 2^20 objects are alive.
  void* Insert(T* object) {
    MutexLock lock(mutex_);
    uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = size_;
      if (index / kChunk >= kMaxChunks) return nullptr;
      if (index % kChunk == 0) {
        chunks_[index / kChunk].store(new Slot[kChunk], std::memory_order_release);
      }
      ++size_;
      free_.reserve(size_);  // so that Erase cannot fail
    }
    Slot& slot = chunks_[index / kChunk].load(std::memory_order_relaxed)[index % kChunk];
    slot.birth = BirthMoment();
    slot.object.store(object, std::memory_order_release);
    const uint64_t bits = (uint64_t{static_cast<uint8_t>(Kind)} << 56) | (uint64_t{slot.generation} << 32) | index;
    slot.handle.store(bits, std::memory_order_release);
    ++live_;
    return reinterpret_cast<void*>(bits);
  }

  /// The live object behind `handle`, or null.
  T* Find(const void* handle) const noexcept {
    const Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->handle.load(std::memory_order_acquire) != HandleBits(handle)) return nullptr;
    T* const object = slot->object.load(std::memory_order_acquire);
    // Looked at again: the slot may have become another object's in between.
    return slot->handle.load(std::memory_order_relaxed) == HandleBits(handle) ? object : nullptr;
  }

  /// Calls `visit` with the live object behind `handle`, which is not erased meanwhile; false when there is none. For
  /// those who do not own it. `visit` must be short and leave the table alone.
  template <class Visit>
  bool With(const void* handle, Visit visit) const {
    MutexLock lock(mutex_);
    T* const object = Find(handle);
    if (object == nullptr) return false;
    visit(*object);
    return true;
  }

  /// Forgets the handle and returns its object, or null when it was not live. Of two threads that destroy one object,
  /// one gets it. `birth`: for Retire.
  T* Erase(const void* handle, uint64_t* birth = nullptr) noexcept {
    MutexLock lock(mutex_);
    Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->handle.load(std::memory_order_relaxed) != HandleBits(handle)) return nullptr;
    if (birth != nullptr) *birth = slot->birth;
    slot->handle.store(0, std::memory_order_release);
    return EraseLocked(*slot, handle);
  }

  /// Erases the handle and retires its object, which is then deleted; false when it was not live. `soon` as in Retire.
  bool Destroy(const void* handle, bool soon = false) noexcept {
    uint64_t birth = 0;
    T* const object = Erase(handle, &birth);
    if (object != nullptr) RetireObject(object, birth, soon);
    return object != nullptr;
  }

  /// From now on nobody finds the object, but ForEach still visits it; false when it was not live. Show undoes that,
  /// unless somebody has erased it.
  bool Hide(const void* handle) noexcept {
    MutexLock lock(mutex_);
    Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->handle.load(std::memory_order_relaxed) != HandleBits(handle)) return false;
    slot->handle.store(0, std::memory_order_release);
    return true;
  }
  void Show(const void* handle) noexcept {
    MutexLock lock(mutex_);
    if (Slot* slot = HiddenSlotOf(handle)) slot->handle.store(HandleBits(handle), std::memory_order_release);
  }
  /// As Erase, also for a hidden object.
  T* EraseHidden(const void* handle, uint64_t* birth) noexcept {
    MutexLock lock(mutex_);
    Slot* slot = HiddenSlotOf(handle);
    if (slot == nullptr) return nullptr;
    *birth = slot->birth;
    slot->handle.store(0, std::memory_order_release);
    return EraseLocked(*slot, handle);
  }

  HandleState Classify(const void* handle) const noexcept {
    if (handle == nullptr) return HandleState::kNull;
    if (Find(handle) != nullptr) return HandleState::kLive;
    const uint8_t kind = HandleKindBits(handle);
    if (kind == static_cast<uint8_t>(Kind)) return HandleState::kDestroyed;
    return HandleKindName(kind) != nullptr ? HandleState::kWrongKind : HandleState::kForeign;
  }

  size_t live() const noexcept {
    MutexLock lock(mutex_);
    return live_;
  }

  /// Visits every live object. No object is erased meanwhile, so `visit` must be short and leave the table alone.
  template <class Visit>
  void ForEach(Visit visit) const {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < size_; ++i) {
      const Slot& slot = chunks_[i / kChunk].load(std::memory_order_relaxed)[i % kChunk];
      if (T* object = slot.object.load(std::memory_order_relaxed)) visit(object);
    }
  }

 private:
  static constexpr uint32_t kChunk = 1024;
  static constexpr uint32_t kMaxChunks = 1024;

  struct Slot {
    std::atomic<uint64_t> handle{0};
    std::atomic<T*> object{nullptr};
    uint32_t generation = 1;
    uint64_t birth = 0;
  };

  // The slot of a handle whose object is in it, hidden or not; null otherwise.
  Slot* HiddenSlotOf(const void* handle) const noexcept {
    Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->generation != ((HandleBits(handle) >> 32) & 0xFFFFFF)) return nullptr;
    return slot->object.load(std::memory_order_relaxed) != nullptr ? slot : nullptr;
  }

  T* EraseLocked(Slot& slot, const void* handle) noexcept REPRISE_REQUIRES(mutex_) {
    T* object = slot.object.load(std::memory_order_relaxed);
    slot.object.store(nullptr, std::memory_order_release);
    slot.generation = (slot.generation + 1) & 0xFFFFFF;
    free_.push_back(static_cast<uint32_t>(HandleBits(handle)));
    --live_;
    return object;
  }

  Slot* SlotOf(const void* handle) const noexcept {
    if (HandleKindBits(handle) != static_cast<uint8_t>(Kind)) return nullptr;
    const auto index = static_cast<uint32_t>(HandleBits(handle));
    if (index / kChunk >= kMaxChunks) return nullptr;
    Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk != nullptr ? &chunk[index % kChunk] : nullptr;
  }

  mutable Mutex mutex_;
  std::array<std::atomic<Slot*>, kMaxChunks> chunks_{};  // never freed: tables live as long as the process
  std::vector<uint32_t> free_ REPRISE_GUARDED_BY(mutex_);
  uint32_t size_ REPRISE_GUARDED_BY(mutex_) = 0;
  size_t live_ REPRISE_GUARDED_BY(mutex_) = 0;
};

/// The table of a kind, which is never destroyed. For the source that gives the table its name: libraries with hidden
/// symbols would each have their own.
template <class T, HandleKind Kind>
HandleTable<T, Kind>& TheTable() {
  static constinit NoDestroy<HandleTable<T, Kind>> table;
  return table.value;
}

/// One sentence about a handle that is not live: "… was destroyed", "… is an event handle, not a stream".
std::string DescribeBadHandle(HandleState state, const void* handle, const char* expected);
/// What to do about it.
std::string HintForBadHandle(HandleState state, const char* expected);

}  // namespace reprise
