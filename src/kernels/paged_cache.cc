// SPDX-License-Identifier: Apache-2.0
#include "kernels/paged_cache.h"

#include "kernels/batch.h"
#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

int64_t WordAt(const TensorRef& ref, int64_t i) {
  int64_t word = 0;
  FindCast(ref.dtype, DType::kInt64)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&word), 0, 1);
  return word;
}

// Calls fn(address, stride in bytes, first element, count) for the runs that line `slot` consists of.
template <class Fn>
void ForEachRun(CacheLayout layout, const TensorRef& cache, int64_t slot, Fn&& fn) {
  const int64_t item = ItemSize(cache.dtype);
  const int64_t page_tokens = PageTokens(layout, cache);
  const int64_t page = slot / page_tokens;
  const int64_t place = slot % page_tokens;
  if (layout == CacheLayout::kFolded) {
    const int last = cache.rank - 1;
    const int64_t line = cache.sizes[last];
    const int64_t piece = kPieceBytes / item;
    for (int64_t begin_of = 0; begin_of < line; begin_of += piece) {
      const int64_t at = begin_of * page_tokens + place * piece;
      const int64_t offset = page * cache.strides[0] + at / line * cache.strides[1] + at % line * cache.strides[last];
      fn(static_cast<char*>(cache.data) + offset * item, cache.strides[last] * item, begin_of, piece);
    }
    return;
  }
  const int token_dim = layout == CacheLayout::kLines ? 1 : cache.rank - 2;
  char* const begin =
      static_cast<char*>(cache.data) + (page * cache.strides[0] + place * cache.strides[token_dim]) * item;
  const int64_t length = cache.sizes[cache.rank - 1];
  const int64_t stride = cache.strides[cache.rank - 1] * item;
  // The dims between, of which there is one, or two with heads.
  const int first = layout == CacheLayout::kLines ? 2 : 1;
  const int last = layout == CacheLayout::kLines ? cache.rank - 2 : cache.rank - 3;
  int64_t outer = 1;
  for (int d = first; d < last; ++d) outer *= cache.sizes[d];
  const int64_t inner = last >= first ? cache.sizes[last] : 1;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t offset =
          (last > first ? o * cache.strides[first] : 0) + (last >= first ? i * cache.strides[last] : 0);
      fn(begin + offset * item, stride, (o * inner + i) * length, length);
    }
  }
}

// Calls fn(address, stride in bytes, count) for elements [begin, begin + count) of a token [head, element].
template <class Fn>
void ForEachPart(const TensorRef& tokens, int64_t token, int64_t begin, int64_t count, Fn&& fn) {
  const int64_t item = ItemSize(tokens.dtype);
  const int last = tokens.rank - 1;
  const int64_t length = tokens.sizes[last];
  while (count > 0) {
    const int64_t head = begin / length;
    const int64_t at = begin % length;
    const int64_t part = std::min(count, length - at);
    const int64_t offset =
        token * tokens.strides[0] + (last > 1 ? head * tokens.strides[1] : 0) + at * tokens.strides[last];
    fn(static_cast<char*>(tokens.data) + offset * item, tokens.strides[last] * item, part);
    begin += part;
    count -= part;
  }
}

}  // namespace

int64_t CacheLine(CacheLayout layout, const TensorRef& cache) {
  if (layout != CacheLayout::kPieces) {
    if (cache.rank < 3 || cache.rank > 4) return -1;
    return cache.sizes[cache.rank - 1] * (cache.rank == 4 ? cache.sizes[2] : 1);
  }
  if (cache.rank < 4 || cache.rank > 5) return -1;
  return cache.sizes[cache.rank - 1] * cache.sizes[1] * (cache.rank == 5 ? cache.sizes[2] : 1);
}

int64_t PageTokens(CacheLayout layout, const TensorRef& cache) {
  return cache.sizes[layout != CacheLayout::kPieces ? 1 : cache.rank - 2];
}

int64_t ScatterParts(const TensorRef& tokens) {
  int64_t line = 1;
  for (int d = 1; d < tokens.rank; ++d) line *= tokens.sizes[d];
  return (line + kScatterPart - 1) / kScatterPart;
}

void ScatterTokens(const TensorRef& tokens, const TensorRef& slots, SlotRule rule, int64_t per_sequence,
                   CacheLayout layout, const TensorRef& cache, Range range) {
  const int64_t page_tokens = PageTokens(layout, cache);
  const int64_t most = cache.sizes[0] * page_tokens;
  const CastFn copy = FindCast(tokens.dtype, cache.dtype);
  const int64_t first = range.begin * kScatterPart;
  const int64_t end = range.end * kScatterPart;
  for (int64_t t = 0; t < tokens.sizes[0]; ++t) {
    int64_t slot = -1;
    switch (rule) {
      case SlotRule::kEach: slot = WordAt(slots, t); break;
      case SlotRule::kInRow: {
        const int64_t place = WordAt(slots, t);
        if (place >= 0 && place < page_tokens) slot = t / per_sequence * page_tokens + place;
        break;
      }
      case SlotRule::kOfBlocks: {
        const int64_t blocks = (per_sequence + page_tokens - 1) / page_tokens;
        const int64_t i = t % per_sequence;
        const int64_t begin = WordAt(slots, t / per_sequence * blocks + i / page_tokens);
        if (begin >= 0 && begin < most) slot = begin + i % page_tokens;
        break;
      }
    }
    if (slot < 0 || slot >= most) continue;
    ForEachRun(layout, cache, slot, [&](char* to, int64_t stride, int64_t begin, int64_t count) {
      const int64_t low = std::max(begin, first);
      const int64_t high = std::min(begin + count, end);
      if (low >= high) return;
      to += (low - begin) * stride;
      ForEachPart(tokens, t, low, high - low, [&](const char* from, int64_t from_stride, int64_t part) {
        copy(from, from_stride, to, stride, part);
        to += part * stride;
      });
    });
  }
}

void GatherTokens(const PagedSequences& sequences, CacheLayout layout, const TensorRef& cache, const TensorRef& tokens,
                  Range range) {
  const int64_t page_tokens = PageTokens(layout, cache);
  const CastFn copy = FindCast(cache.dtype, tokens.dtype);
  const int64_t room = tokens.sizes[0];
  const int64_t places = sequences.table.sizes[1] * page_tokens;
  const auto bounded = [&](int64_t i) { return std::clamp<int64_t>(WordAt(sequences.lengths, i), 0, room); };
  int64_t begin = 0;
  if (!sequences.lengths_are_ends) {
    for (int64_t b = 0; b < range.begin; ++b) begin = std::min(room, begin + bounded(b));
  }
  for (int64_t b = range.begin; b < range.end; ++b) {
    int64_t length = 0;
    if (sequences.lengths_are_ends) {
      begin = bounded(b);
      length = bounded(b + 1) - begin;
    } else {
      length = bounded(b);
    }
    // One that is beyond all places stays so.
    const int64_t first =
        sequences.offsets.data != nullptr ? std::clamp<int64_t>(WordAt(sequences.offsets, b), -room - 1, places) : 0;
    for (int64_t t = 0; t < length && begin + t < room; ++t) {
      const int64_t place = first + t;
      if (place < 0 || place >= places) continue;
      const int64_t page = WordAt(sequences.table, b * sequences.table.sizes[1] + place / page_tokens);
      if (page < 0 || page >= cache.sizes[0]) continue;
      ForEachRun(layout, cache, page * page_tokens + place % page_tokens,
                 [&](const char* from, int64_t stride, int64_t at, int64_t count) {
                   ForEachPart(tokens, begin + t, at, count, [&](char* to, int64_t to_stride, int64_t part) {
                     copy(from, stride, to, to_stride, part);
                     from += part * stride;
                   });
                 });
    }
    if (!sequences.lengths_are_ends) begin = std::min(room, begin + length);
  }
}

}  // namespace reprise::kernels
