// SPDX-License-Identifier: Apache-2.0
//
// Free blocks in the order of size, then address, so that the first that is large enough fits best. A treap whose links
// stand in the blocks: nothing is allocated when memory is freed.
#pragma once

#include <cstdint>

namespace reprise::memory {

struct Block;

/// Threads: one at a time.
class FreeTree {
 public:
  bool empty() const { return root_ == nullptr; }
  /// The smallest block of at least `size` bytes, of those the one with the lowest address; null: none. The link that
  /// points to it is for RemoveAt, and holds until the tree changes.
  Block** FindFit(uint64_t size);
  Block* RemoveAt(Block** link);
  void Insert(Block* block);
  void Remove(Block* block);
  /// Gives the block another address and a larger size; mostly the block keeps its place in the tree.
  void Grow(Block* block, char* address, uint64_t size);

  template <class F>
  void ForEach(const F& visit) const {
    Walk(root_, visit);
  }

 private:
  template <class F>
  static void Walk(Block* node, const F& visit);

  Block* root_ = nullptr;
  Block* no_block_ = nullptr;  ///< what FindFit points to when there is none
};

}  // namespace reprise::memory
