// SPDX-License-Identifier: Apache-2.0
#include "memory/front_caches.h"

#include <thread>

namespace reprise::memory {

namespace {

std::atomic<uint32_t> g_threads{0};
// From 1; 0: not numbered yet.
constinit thread_local uint32_t t_number __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

size_t FrontCaches::ThreadNumber() noexcept {
  if (t_number == 0) [[unlikely]]
    t_number = g_threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return t_number;
}

void* FrontCaches::Take(uint64_t bytes, void* stream) noexcept {
  Place* place = PlacesFor(Mine(), bytes);
  for (const Place* end = place + kWays; place != end; ++place) {
    uint64_t word = place->word.load(std::memory_order_acquire);
    if ((word & kStates) != kParked || place->bytes.load(std::memory_order_relaxed) != bytes ||
        place->stream.load(std::memory_order_relaxed) != stream) {
      continue;
    }
    Block* const block = place->block.load(std::memory_order_relaxed);
    // What was read above belongs together if the word is still the same.
    if (!place->word.compare_exchange_strong(word, (word & ~kStates) + kOnce, std::memory_order_acq_rel)) continue;
    block->hold.store(BlockHold::kHeld, std::memory_order_release);
    return block->address;
  }
  return nullptr;
}

bool FrontCaches::Park(Block* block, const void* address) noexcept {
  if (block->hold.load(std::memory_order_acquire) != BlockHold::kHeld || block->address != address) return false;
  const uint64_t bytes = block->requested;
  Front& front = Mine();
  Place* place = PlacesFor(front, bytes);
  for (const Place* end = place + kWays; place != end; ++place) {
    uint64_t word = place->word.load(std::memory_order_acquire);
    if ((word & kStates) != kEmpty || place->bytes.load(std::memory_order_relaxed) != bytes ||
        place->stream.load(std::memory_order_relaxed) != block->stream) {
      continue;
    }
    if (!place->word.compare_exchange_strong(word, word | kBusy, std::memory_order_seq_cst)) continue;
    BlockHold held = BlockHold::kHeld;
    if (!block->hold.compare_exchange_strong(held, BlockHold::kParked, std::memory_order_acq_rel)) {
      place->word.store(word, std::memory_order_release);  // somebody else has freed it meanwhile
      return false;
    }
    ParkAt(front, *place, word, block);
    return true;
  }
  return false;
}

// The place is busy for us, and its word was `empty` before.
void FrontCaches::ParkAt(Front& front, Place& place, uint64_t empty, Block* block) noexcept {
  place.block.store(block, std::memory_order_relaxed);
  // Asked after the place was made busy: either this is seen to be false, or who calls in comes by here yet.
  if (!front.is_used.load(std::memory_order_seq_cst)) front.is_used.store(true, std::memory_order_seq_cst);
  place.word.store(empty | kParked, std::memory_order_release);
}

Block* FrontCaches::ParkInNewPlace(Block* block, Taken& taken) noexcept {
  Front& front = Mine();
  Place* const places = PlacesFor(front, block->requested);
  Place* chosen = nullptr;
  for (size_t i = 0; i < kWays && chosen == nullptr; ++i) {
    if ((AwaitIdle(places[i]) & kStates) == kEmpty) chosen = &places[i];
  }
  for (size_t i = 0; i < kWays && chosen == nullptr; ++i) {
    Place& place = places[front.turn++ % kWays];
    const bool is_same = place.bytes.load(std::memory_order_relaxed) == block->requested &&
                         place.stream.load(std::memory_order_relaxed) == block->stream;
    if (!is_same) chosen = &place;
  }
  if (chosen == nullptr) return block;
  Block* const lost = Withdraw(*chosen, taken, true);
  // It is for nothing now, so nobody else comes here.
  const uint64_t word = chosen->word.load(std::memory_order_relaxed);
  chosen->word.store(word | kBusy, std::memory_order_seq_cst);
  chosen->size = static_cast<int64_t>(block->size);
  chosen->bytes.store(block->requested, std::memory_order_relaxed);
  chosen->stream.store(block->stream, std::memory_order_relaxed);
  block->hold.store(BlockHold::kParked, std::memory_order_relaxed);
  ParkAt(front, *chosen, word, block);
  return lost;
}

// Once nobody is in the midst of parking there. That takes him a few instructions, unless he has lost his core.
uint64_t FrontCaches::AwaitIdle(const Place& place) noexcept {
  for (int spins = 1;; ++spins) {
    const uint64_t word = place.word.load(std::memory_order_seq_cst);
    if ((word & kStates) != kBusy) return word;
    CpuRelax();
    if (spins % 256 == 0) std::this_thread::yield();
  }
}

void FrontCaches::CountTaken(Place& place, uint64_t word, Taken& taken) noexcept {
  const auto count = static_cast<int64_t>(word / kOnce - place.counted);
  place.counted = word / kOnce;
  taken.count += count;
  taken.bytes += count * place.size;
  taken.requested += count * static_cast<int64_t>(place.bytes.load(std::memory_order_relaxed));
}

Block* FrontCaches::Withdraw(Place& place, Taken& taken, bool close) noexcept {
  for (;;) {
    uint64_t word = AwaitIdle(place);
    const bool is_parked = (word & kStates) == kParked;
    if (!is_parked && !close) {
      CountTaken(place, word, taken);
      return nullptr;
    }
    Block* const block = is_parked ? place.block.load(std::memory_order_relaxed) : nullptr;
    const uint64_t next = (word & ~kStates) + kOnce;
    if (!place.word.compare_exchange_strong(word, close ? next | kBusy : next, std::memory_order_acq_rel)) continue;
    CountTaken(place, word, taken);
    place.counted = next / kOnce;
    if (close) {
      place.bytes.store(0, std::memory_order_relaxed);
      place.word.store(next, std::memory_order_release);
    }
    if (block != nullptr) block->hold.store(BlockHold::kNone, std::memory_order_release);
    return block;
  }
}

}  // namespace reprise::memory
