// SPDX-License-Identifier: Apache-2.0
//
// Arena: memory that is only ever appended to and is freed all at once. Addresses stay valid until then.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace reprise::ir {

class Arena {
 public:
  /// 16-byte aligned; throws std::bad_alloc.
  void* Allocate(size_t bytes) {
    bytes = (bytes + 15) & ~size_t{15};
    if (bytes > left_) Grow(bytes);
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
    blocks_.push_back(std::unique_ptr<std::byte[]>(new std::byte[size]));
    next_ = blocks_.back().get();
    left_ = size;
  }

  static constexpr size_t kMaxBlock = size_t{1} << 20;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t used_ = 0;
  size_t block_ = 512;
};

}  // namespace reprise::ir
