// SPDX-License-Identifier: Apache-2.0
//
// Calls that a thread makes again and again: what they return, and the plan of the device's kernels, which takes other
// memory at each call (reprise::PreparedOperator::Move) instead of being made anew. Everything that a plan depends on
// is compared: operator, types, sizes, strides, offsets, which tensors share a storage, attributes, values of numbers.
// Where tensors lie is what Move looks at.
//
// A table of each thread, so that nothing is locked; the oldest of a set makes room. Calls that are being captured are
// not looked up here, and none is kept: each of their tasks has a plan of its own.
#pragma once

#include <ATen/core/List.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/meta_pass.h"
#include "ops/native.h"

namespace torch_npu {

/// A tensor that a call makes, or an argument that it returns.
struct KnownResult {
  int argument = -1;
  at::ScalarType dtype = at::kFloat;
  size_t bytes = 0;
  c10::SmallVector<int64_t, 4> sizes, strides;  // no strides: contiguous
};

struct KnownCall {
  uint64_t hash = 0;
  std::vector<int64_t> words;   // of the key
  std::vector<int64_t> values;  // likewise
  std::shared_ptr<const Announcement> announced;
  NativePlan plan;
  std::vector<KnownResult> results;
  bool is_plain = false;   // all results are there: no parts, and no lists
  bool is_in_use = false;  // by a call further out in the thread
};

class KnownCalls {
 public:
  /// Of the calling thread; null when it is about to end.
  static KnownCalls* Mine();

  /// Null when there is none that nobody uses.
  KnownCall* Find(const MetaKey& key);
  /// Whether a call that was not found is worth keeping: its like was asked for lately.
  bool IsWorthKeeping(const MetaKey& key);
  void Keep(const MetaKey& key, std::shared_ptr<const Announcement> announced, NativePlan plan);
  /// How often plans that are here now have been moved: for tests and measurements.
  uint64_t TimesMoved() const;

  /// With the memory that it has: for calls that borrow the tensors of a list (unboxed.cc).
  std::optional<c10::List<at::Tensor>> spare_list;

 private:
  static constexpr size_t kSets = 128, kPlaces = 4;
  struct Set {
    std::array<KnownCall, kPlaces> places;
    uint64_t asked_for = 0;  // hash of the last one that was not here
    unsigned next = 0;
  };
  static constexpr size_t kOperators = 64;
  static uint64_t HashOf(const MetaKey& key);
  // Of an operator, which is the first word of its keys.
  KnownCall*& LastOf(const MetaKey& key) {
    return last_[static_cast<uint64_t>(key.words()[0]) * 0x9e3779b97f4a7c15 / (UINT64_MAX / kOperators + 1)];
  }
  Set& SetOf(uint64_t hash) { return sets_[hash % kSets]; }

  std::array<Set, kSets> sets_;
  std::array<KnownCall*, kOperators> last_{};  // that was found: programs ask for the same again and again
};

/// Marks a known call for as long as it is made.
class InUse {
 public:
  explicit InUse(KnownCall& call) : call_(call) { call.is_in_use = true; }
  ~InUse() { call_.is_in_use = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  KnownCall& call_;
};

}  // namespace torch_npu
