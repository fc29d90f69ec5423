// SPDX-License-Identifier: Apache-2.0
#include "ops/known_calls.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <utility>

namespace torch_npu {
namespace {

enum class Life : uint8_t { kNone, kLives, kEnded };
thread_local KnownCalls* t_calls = nullptr;
thread_local Life t_life = Life::kNone;

struct Owner {
  ~Owner() {
    t_life = Life::kEnded;
    delete std::exchange(t_calls, nullptr);
  }
};

// False where parts of arguments or lists are among them.
bool FindResults(const Announcement& announced, std::vector<KnownResult>& results) {
  for (const AnnouncedReturn& value : announced.returns) {
    KnownResult& result = results.emplace_back();
    result.argument = value.argument;
    if (value.argument >= 0) continue;
    if (value.is_list || value.tensors.size() != 1) return false;
    const AnnouncedTensor& made = value.tensors[0];
    if (made.kind != AnnouncedTensor::Kind::kNew || made.strides.size() != made.sizes.size()) return false;
    result.dtype = made.dtype;
    result.bytes = at::detail::computeStorageNbytes(made.sizes, made.strides, c10::elementSize(made.dtype));
    result.sizes = made.sizes;
    int64_t next = 1;
    bool is_contiguous = true;
    for (size_t d = made.sizes.size(); d-- > 0; next *= made.sizes[d]) is_contiguous &= made.strides[d] == next;
    if (!is_contiguous) result.strides = made.strides;
  }
  return true;
}

}  // namespace

KnownCalls* KnownCalls::Mine() {
  if (t_life == Life::kLives) [[likely]]
    return t_calls;
  if (t_life == Life::kEnded) return nullptr;
  static thread_local Owner owner;
  (void)owner;
  t_calls = new KnownCalls;
  t_life = Life::kLives;
  return t_calls;
}

uint64_t KnownCalls::HashOf(const MetaKey& key) {
  uint64_t hash = key.hash();
  for (const int64_t value : key.values()) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

KnownCall* KnownCalls::Find(const MetaKey& key) {
  const auto is_it = [&key](const KnownCall& call) {
    return call.plan.prepared != nullptr && !call.is_in_use && c10::ArrayRef<int64_t>(call.words) == key.words() &&
           c10::ArrayRef<int64_t>(call.values) == key.values();
  };
  KnownCall*& last = LastOf(key);
  if (last == nullptr || !is_it(*last)) {
    const uint64_t hash = HashOf(key);
    std::array<KnownCall, kPlaces>& places = SetOf(hash).places;
    const auto found = std::find_if(places.begin(), places.end(),
                                    [&](const KnownCall& call) { return call.hash == hash && is_it(call); });
    if (found == places.end()) return nullptr;
    last = &*found;
  }
  CountKnownAnswer();
  return last;
}

bool KnownCalls::IsWorthKeeping(const MetaKey& key) {
  const uint64_t hash = HashOf(key);
  return std::exchange(SetOf(hash).asked_for, hash) == hash;
}

void KnownCalls::Keep(const MetaKey& key, std::shared_ptr<const Announcement> announced, NativePlan plan) {
  const uint64_t hash = HashOf(key);
  Set& set = SetOf(hash);
  KnownCall& call = set.places[set.next++ % kPlaces];
  if (call.is_in_use) return;
  call.plan.prepared = nullptr;  // nothing is found here if there is no memory
  call.words.assign(key.words().begin(), key.words().end());
  call.values.assign(key.values().begin(), key.values().end());
  call.results.clear();
  call.is_plain = FindResults(*announced, call.results);
  call.announced = std::move(announced);
  call.plan = std::move(plan);
  call.hash = hash;
}

uint64_t KnownCalls::TimesMoved() const {
  uint64_t sum = 0;
  for (const Set& set : sets_) {
    for (const KnownCall& call : set.places) sum += call.plan.times_moved;
  }
  return sum;
}

}  // namespace torch_npu
