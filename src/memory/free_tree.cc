// SPDX-License-Identifier: Apache-2.0
#include "memory/free_tree.h"

#include "memory/block.h"

namespace reprise::memory {

namespace {

bool Before(const Block* a, const Block* b) { return a->size != b->size ? a->size < b->size : a->address < b->address; }

}  // namespace

Block** FreeTree::FindFit(uint64_t size) {
  Block** best = &no_block_;
  for (Block** link = &root_; *link != nullptr;) {
    if ((*link)->size >= size) {
      best = link;
      link = &(*link)->left;
    } else {
      link = &(*link)->right;
    }
  }
  return best;
}

Block* FreeTree::RemoveAt(Block** link) {
  Block* const removed = *link;
  Block* left = removed->left;
  Block* right = removed->right;
  while (left != nullptr && right != nullptr) {
    if (left->priority > right->priority) {
      *link = left;
      link = &left->right;
      left = left->right;
    } else {
      *link = right;
      link = &right->left;
      right = right->left;
    }
  }
  *link = left != nullptr ? left : right;
  removed->left = removed->right = nullptr;
  return removed;
}

void FreeTree::Insert(Block* block) {
  Block** link = &root_;
  while (*link != nullptr && (*link)->priority >= block->priority) {
    link = Before(block, *link) ? &(*link)->left : &(*link)->right;
  }
  // What stands here goes below: split into what comes before and what comes after.
  Block* rest = *link;
  *link = block;
  Block** before = &block->left;
  Block** after = &block->right;
  while (rest != nullptr) {
    if (Before(rest, block)) {
      *before = rest;
      before = &rest->right;
      rest = rest->right;
    } else {
      *after = rest;
      after = &rest->left;
      rest = rest->left;
    }
  }
  *before = *after = nullptr;
}

void FreeTree::Remove(Block* block) {
  Block** link = &root_;
  while (*link != block) link = Before(block, *link) ? &(*link)->left : &(*link)->right;
  RemoveAt(link);
}

void FreeTree::Grow(Block* block, char* address, uint64_t size) {
  Block** link = &root_;
  const Block* successor = nullptr;
  while (*link != block) {
    if (Before(block, *link)) {
      successor = *link;
      link = &(*link)->left;
    } else {
      link = &(*link)->right;
    }
  }
  if (const Block* after = block->right; after != nullptr) {
    while (after->left != nullptr) after = after->left;
    successor = after;
  }
  const bool stays =
      successor == nullptr || size < successor->size || (size == successor->size && address < successor->address);
  if (!stays) RemoveAt(link);
  block->address = address;
  block->size = size;
  if (!stays) Insert(block);
}

}  // namespace reprise::memory
