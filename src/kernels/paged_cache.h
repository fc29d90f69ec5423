// SPDX-License-Identifier: Apache-2.0
//
// Tokens into a cache of pages, and out of it.
//
// A token is a line of numbers: heads, and the elements of each. A cache holds `page_tokens` tokens in each page; its
// lines may be cut into pieces that lie apart (kPieces).
// Slots, tables, lengths come from the device: what is out of range is left out.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int64_t kPieceBytes = 32;

/// How the numbers of a token lie in a cache.
enum class CacheLayout : uint8_t {
  kLines,   ///< [page, token, head, element]
  kPieces,  ///< [page, piece, token, element], or [page, head, piece, token, element]
  kFolded,  ///< as kLines says, but a page holds in row-major order what kPieces has, with pieces of kPieceBytes
};

/// Where a token goes: slot = page * page_tokens + place in the page.
enum class SlotRule : uint8_t {
  kEach,      ///< slots[t]
  kInRow,     ///< b * page_tokens + slots[t], for token t of sequence b = t / per_sequence: a page for each sequence
  kOfBlocks,  ///< slots[b * blocks + i / page_tokens] + i % page_tokens, for token i of sequence b, whose tokens come
              ///< in `blocks` blocks of page_tokens
};

/// Elements of a line that one work item moves, for all tokens in order: of two with one slot the later one counts.
inline constexpr int64_t kScatterPart = 256;
int64_t ScatterParts(const TensorRef& tokens);

/// cache[slot] = tokens, for every token.
///
/// \param tokens  [token, head, element] or [token, element]
/// \param slots   int32 or int64
/// \param per_sequence  tokens of a sequence
/// \param range   counts parts of a line
void ScatterTokens(const TensorRef& tokens, const TensorRef& slots, SlotRule rule, int64_t per_sequence,
                   CacheLayout layout, const TensorRef& cache, Range range);

/// Token t of sequence b is at place offset[b] + t of the pages that row b of the table lists.
struct PagedSequences {
  TensorRef table;    ///< int32 or int64 [sequence, page]
  TensorRef lengths;  ///< [sequence], or where sequences begin and the last one ends [sequence + 1]
  TensorRef offsets;  ///< [sequence], or without data
  bool lengths_are_ends = false;
};

/// tokens = the sequences end to end. Tokens beyond them stay as they are. \param range  counts sequences
void GatherTokens(const PagedSequences& sequences, CacheLayout layout, const TensorRef& cache, const TensorRef& tokens,
                  Range range);

/// Elements of a line of the cache; -1: its shape is no such layout.
int64_t CacheLine(CacheLayout layout, const TensorRef& cache);
int64_t PageTokens(CacheLayout layout, const TensorRef& cache);

}  // namespace reprise::kernels
