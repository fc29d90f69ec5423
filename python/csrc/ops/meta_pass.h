// SPDX-License-Identifier: Apache-2.0
//
// What an operator is going to return: its Meta kernel is asked, and the answer remembered, since many of these kernels
// are Python.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <vector>

#include "ops/op_traits.h"

namespace torch_npu {

/// Numbers that stand for everything a Meta kernel looks at: equal keys, equal answers.
class MetaKey {
 public:
  MetaKey(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments);

  /// False: a value that has no such numbers; do not remember.
  bool is_complete() const { return is_complete_; }
  uint64_t hash() const;
  c10::ArrayRef<int64_t> words() const { return words_; }
  /// What these leave out of the arguments, but for the memory of tensors on the device: values of numbers that are
  /// tensors of the host.
  c10::ArrayRef<int64_t> values() const { return values_; }

 private:
  void Add(const c10::IValue& value);
  void AddItems(c10::ArrayRef<c10::IValue> items);
  void Add(const at::Tensor& tensor);

  const OpTraits& traits_;
  c10::SmallVector<int64_t, 64> words_;
  c10::SmallVector<int64_t, 4> values_;
  c10::SmallVector<const void*, 8> storages_;
  mutable uint64_t hash_ = 0;  // 0: nobody has asked for it
  bool is_complete_ = true;
};

struct AnnouncedTensor {
  enum class Kind { kUndefined, kNew, kPart };
  Kind kind = Kind::kUndefined;
  at::ScalarType dtype = at::kFloat;
  bool is_conj = false, is_neg = false;
  int source = -1;  // kPart: an argument with its storage, as the number of the tensor among all
  int64_t offset = 0;
  c10::SmallVector<int64_t, 4> sizes;
  c10::SmallVector<int64_t, 4> strides;  // kNew: none if it gets them by itself
};

struct AnnouncedReturn {
  int argument = -1;  // that is returned
  bool is_list = false;
  c10::SmallVector<AnnouncedTensor, 1> tensors;
};

struct Announcement {
  std::vector<AnnouncedReturn> returns;
  bool is_empty = false;                             // nothing will be written
  mutable std::atomic<bool> types_are_known{false};  // the CPU kernel was seen to take them, or cannot be tried
};

/// Throws what is wrong with the arguments, of which `key` is made. Gives out= arguments their sizes.
/// \param was_known  set when the answer was remembered
std::shared_ptr<const Announcement> Announce(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments,
                                             const MetaKey& key, bool& was_known);

/// What KeepAnnounced was told of such a call; null: nothing.
std::shared_ptr<const Announcement> FindAnnounced(const MetaKey& key);
/// Remembers what a call returned: tensors of its own, or arguments. Passes over results that are neither.
void KeepAnnounced(const MetaKey& key, const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments,
                   c10::ArrayRef<c10::IValue> results);

/// Answers so far that were remembered, and that were not: for measurements.
struct MetaCounts {
  uint64_t hits, misses;
};
MetaCounts CountsOfMetaPass();
/// An answer was remembered elsewhere (known_calls.h).
void CountKnownAnswer();

}  // namespace torch_npu
