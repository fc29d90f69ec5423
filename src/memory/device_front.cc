// SPDX-License-Identifier: Apache-2.0
//
// When a cache has caches in front of it, and how it stays exact all the same. A parked block is live to the cache, so
// the cache counts at least what users hold. Whoever looks calls the blocks in first. No peak is missed either: what
// the cache counts never exceeds the peaks, since a block that would raise one calls in first; then it counts what is
// held.
#include <new>

#include "memory/device_cache.h"

namespace reprise::memory {

namespace {

/// As often threads have to wait for each other, at most, before the front opens again.
constexpr uint32_t kMostAwaits = 4096;
/// So many requests the front answers for each time it is called in; else it is not worth it.
constexpr int64_t kWorthCalling = 4;
constexpr int64_t kCallsToJudge = 64;

}  // namespace

/// Takes the block out of the hands of those who free into the front; false when it was freed there.
bool DeviceCache::Claim(Block& block, bool* was_held) {
  BlockHold held = block.hold.load(std::memory_order_relaxed);
  if (!UsesFront()) {  // then nobody frees there
    block.hold.store(BlockHold::kNone, std::memory_order_relaxed);
  } else if (held == BlockHold::kHeld) {
    block.hold.compare_exchange_strong(held, BlockHold::kNone, std::memory_order_acq_rel);
  }
  if (was_held != nullptr) *was_held = held == BlockHold::kHeld;
  return held != BlockHold::kParked;
}

bool DeviceCache::UsesFront() { return front_.load(std::memory_order_relaxed) != nullptr; }

/// What asks to see each allocation, or each free, sees them.
bool DeviceCache::MayUseFront() const {
  return captures_ == 0 && scopes_.empty() && !HasPending() && !trace_.is_on() && !config_.no_cache && !is_checked_;
}

/// Whether it is open, or is now, because threads have waited for each other.
bool DeviceCache::OpenFront() {
  if (UsesFront()) return true;
  if (mutex_.times_awaited() - awaited_before_ < awaits_to_open_) return false;
  if (!MayUseFront()) return false;
  if (front_caches_ == nullptr) front_caches_.reset(new (std::nothrow) FrontCaches);
  if (front_caches_ == nullptr) return false;
  front_taken_ = front_calls_ = 0;
  front_.store(front_caches_.get(), std::memory_order_release);
  return true;
}

void DeviceCache::CloseFront() {
  if (!UsesFront()) return;
  front_.store(nullptr, std::memory_order_relaxed);
  FrontCaches::Taken taken;
  front_caches_->Close(taken, [&](Block* block) { FreeParked(block); });
  NoteTaken(taken);
  awaited_before_ = mutex_.times_awaited();
  awaits_to_open_ = std::min(2 * awaits_to_open_, kMostAwaits);
}

/// All blocks that users have freed are free, and counted as that. False when there were none in front.
bool DeviceCache::CallIn() {
  if (!UsesFront()) return false;
  bool came = false;
  FrontCaches::Taken taken;
  front_caches_->CallIn(taken, [&](Block* block) {
    FreeParked(block);
    came = true;
  });
  NoteTaken(taken);
  return came;
}

void DeviceCache::CallInForPeak() {
  if (CallIn() && ++front_calls_ >= kCallsToJudge && front_taken_ < kWorthCalling * front_calls_) CloseFront();
}

void DeviceCache::FreeParked(Block* block) {
  TakeBack(block, nullptr);
  FreeBlock(block, nullptr);
}

void DeviceCache::NoteTaken(const FrontCaches::Taken& taken) {
  stats_.allocation.Pass(true, taken.count);
  stats_.allocated_bytes.Pass(true, taken.bytes);
  stats_.requested_bytes.Pass(true, taken.requested);
  front_taken_ += taken.count;
}

void DeviceCache::ExpectThreads() {
  Lock lock(mutex_);
  awaited_before_ = mutex_.times_awaited() - awaits_to_open_;
  OpenFront();
}

}  // namespace reprise::memory
