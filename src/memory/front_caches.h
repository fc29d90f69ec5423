// SPDX-License-Identifier: Apache-2.0
//
// Small blocks that their threads have freed and will soon ask for again, in front of the cache of a device. To the
// cache, a block that is parked here is still held: nothing of it changes, so that handing it out again is to find it.
// Neither way takes the lock of the device. Whoever wants to know how things are calls the blocks in first.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"
#include "memory/block.h"

namespace reprise::memory {

/// Requests above that go to the cache.
inline constexpr uint64_t kMostInFront = 64 * kKiB;

/// Threads: Take and Park may be called by all, at any time; everything else under the lock of the device.
class FrontCaches {
 public:
  /// The address of a parked block of the calling thread that was handed out for just such a request; null: none.
  void* Take(uint64_t bytes, void* stream) noexcept;
  /// Frees the block into a place that the calling thread has for its kind. False, with nothing done: there is none, or
  /// the block is not held, or not one for here.
  bool Park(Block* block, const void* address) noexcept;

  /// Requests that Take has answered since the last such call, with their bytes; all of small blocks.
  struct Taken {
    int64_t count = 0;
    int64_t bytes = 0;
    int64_t requested = 0;
  };

  /// Parks a block that nobody holds, in a place that is made for its kind where the calling thread has none. Returns
  /// the block that has lost its place for that, or null; the block itself when there is no room for another of its
  /// kind.
  Block* ParkInNewPlace(Block* block, Taken& taken) noexcept;
  /// Calls `free` with each parked block, which nobody holds then. No Park that has begun before is under way when it
  /// returns.
  template <class Free>
  void CallIn(Taken& taken, const Free& free) {
    for (Front& front : fronts_) {
      // Cleared before the places are looked at: who parks asks afterwards, see Park.
      if (!front.is_used.load(std::memory_order_relaxed) || !front.is_used.exchange(false)) continue;
      for (Place& place : front.places) {
        if (Block* block = Withdraw(place, taken)) free(block);
      }
    }
  }
  /// As CallIn; nobody has a place any more.
  template <class Free>
  void Close(Taken& taken, const Free& free) {
    for (Front& front : fronts_) {
      front.is_used.store(false);
      for (Place& place : front.places) {
        if (Block* block = Withdraw(place, taken, true)) free(block);
      }
    }
  }

 private:
  // What the lower bits of a place's word say. The upper ones count how often a block has left it, so that an unchanged
  // word says that nothing else has changed.
  enum State : uint64_t { kEmpty, kBusy, kParked };
  static constexpr uint64_t kStates = 3;
  static constexpr uint64_t kOnce = 4;

  struct alignas(64) Place {
    std::atomic<uint64_t> word{kEmpty};
    std::atomic<Block*> block{nullptr};
    // What it is for; changes only while the place is busy.
    std::atomic<uint64_t> bytes{0};  ///< 0: nothing
    std::atomic<void*> stream{nullptr};
    // Under the lock of the device.
    int64_t size = 0;      ///< what such a request occupies
    uint64_t counted = 0;  ///< leavings that are no news
  };
  static constexpr size_t kWays = 2;
  static constexpr size_t kPlaces = 32;
  static constexpr size_t kFronts = 16;

  /// Of a thread, or of a few.
  struct Front {
    std::atomic<bool> is_used{false};  ///< something may be parked
    uint32_t turn = 0;                 ///< whose place the next one gets
    std::array<Place, kPlaces> places;
  };

  static size_t ThreadNumber() noexcept;
  Front& Mine() noexcept { return fronts_[ThreadNumber() % kFronts]; }
  /// The first of the places that such requests may have.
  static Place* PlacesFor(Front& front, uint64_t bytes) noexcept {
    return &front.places[(bytes * 0x9e3779b97f4a7c15 >> 60) * kWays];
  }
  static_assert(kPlaces == 16 * kWays);

  static void ParkAt(Front& front, Place& place, uint64_t empty, Block* block) noexcept;
  static uint64_t AwaitIdle(const Place& place) noexcept;
  static void CountTaken(Place& place, uint64_t word, Taken& taken) noexcept;
  static Block* Withdraw(Place& place, Taken& taken, bool close = false) noexcept;

  std::array<Front, kFronts> fronts_;
};

}  // namespace reprise::memory
