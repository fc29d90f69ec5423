// SPDX-License-Identifier: Apache-2.0
//
// Arena: memory that is only ever appended to and is freed all at once. Addresses stay valid until then.
#pragma once

#include <cstddef>
#include <vector>

#include "base/pages.h"

namespace reprise::ir {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (const PageBlock& block : blocks_) GivePages(block);
  }

  /// 16-byte aligned; throws std::bad_alloc.
  void* Allocate(size_t bytes) {
    bytes = (bytes + 15) & ~size_t{15};
    if (bytes > left_) [[unlikely]]
      Grow(bytes);
    std::byte* at = next_;
    next_ += bytes;
    left_ -= bytes;
    used_ += bytes;
    return at;
  }
  size_t used_bytes() const { return used_; }

 private:
  void Grow(size_t bytes) {
    // Doubling keeps the number of blocks logarithmic; the ceiling keeps the waste of the last one bounded.
    block_ = block_ < kMaxBlock ? block_ * 2 : kMaxBlock;
    const size_t size = bytes > block_ ? bytes : block_;
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back(TakePages(size));
    next_ = blocks_.back().data;
    left_ = blocks_.back().bytes;
  }

  static constexpr size_t kMaxBlock = size_t{1} << 20;
  std::vector<PageBlock> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t used_ = 0;
  size_t block_ = 512;
};

}  // namespace reprise::ir
