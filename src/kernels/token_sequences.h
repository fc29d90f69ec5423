// SPDX-License-Identifier: Apache-2.0
//
// Queries of several sequences and the keys of each, where lengths and tables of pages come from the device.
//
// A row is a token of queries. Row r belongs to sequence b at place i; it sees the first keys of its sequence:
//     all of b; causal from the right lower corner: keys of b - queries of b + i + 1, from the left upper one: i + 1.
// Tokens behind the end of their sequence see none.
// Lengths that are out of range are moved into it, and so are entries of the table.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

enum class Causal : uint8_t { kNo, kRightDown, kLeftUp };

/// What does not depend on addresses.
struct TokenLayout {
  int64_t sequences = 0;
  bool queries_are_packed = false;  ///< all queries in one batch, end to end: lengths are ends
  bool keys_are_packed = false;
  int64_t queries = 0;      ///< tokens of a batch
  int64_t keys = 0;         ///< tokens of a batch, or of a page
  int64_t key_batches = 0;  ///< batches, or pages
  int64_t table_pages = 0;  ///< columns of the table; 0: keys do not lie in pages
  Causal causal = Causal::kNo;

  bool is_paged() const { return table_pages != 0; }
  int64_t rows() const { return (queries_are_packed ? 1 : sequences) * queries; }
  /// Most keys of a sequence.
  int64_t capacity() const { return key_batches == 0 ? 0 : is_paged() ? table_pages * keys : keys; }
};

/// The numbers of the device. Absent ones have no data.
struct TokenLengths {
  TensorRef queries;  ///< int32 or int64 [sequence]
  TensorRef keys;
  TensorRef table;  ///< int32 [sequence, page]
};

/// Where a row, or the keys that belong to it, are.
struct TokenPlace {
  int64_t sequence = 0;
  int64_t batch = 0;  ///< of the query
  int64_t token = 0;
  int64_t seen = 0;       ///< keys
  int64_t key_batch = 0;  ///< of key 0, without pages
  int64_t key_begin = 0;
};

inline int64_t NumberAt(const TensorRef& ref, int64_t i) {
  const char* data = static_cast<const char*>(ref.data) + i * ref.strides[0] * ItemSize(ref.dtype);
  return ref.dtype == DType::kInt32 ? *reinterpret_cast<const int32_t*>(data) : *reinterpret_cast<const int64_t*>(data);
}

/// Finds rows; one row after the other is cheap.
class TokenSequences {
 public:
  TokenSequences(const TokenLayout& layout, const TokenLengths& lengths) : layout_(layout), lengths_(lengths) {}

  int64_t QueriesOf(int64_t b) const {
    if (lengths_.queries.data == nullptr) return layout_.queries;
    const int64_t begin = layout_.queries_are_packed ? QueryBegin(b) : 0;
    return std::clamp<int64_t>(NumberAt(lengths_.queries, b) - begin, 0, layout_.queries - begin);
  }
  int64_t QueryBegin(int64_t b) const {
    return layout_.queries_are_packed ? BeginOf(lengths_.queries, b, layout_.queries) : 0;
  }
  int64_t KeysOf(int64_t b) const {
    if (lengths_.keys.data == nullptr) return layout_.capacity();
    const int64_t begin = KeyBegin(b);
    return std::clamp<int64_t>(NumberAt(lengths_.keys, b) - begin, 0, layout_.capacity() - begin);
  }
  int64_t KeyBegin(int64_t b) const { return layout_.keys_are_packed ? BeginOf(lengths_.keys, b, layout_.keys) : 0; }

  /// Token i of sequence b.
  TokenPlace At(int64_t b, int64_t i) const {
    TokenPlace place;
    place.sequence = b;
    place.batch = layout_.queries_are_packed ? 0 : b;
    place.token = QueryBegin(b) + i;
    place.key_batch = layout_.keys_are_packed ? 0 : b;
    place.key_begin = KeyBegin(b);
    const int64_t queries = QueriesOf(b);
    if (i >= queries) return place;
    const int64_t keys = KeysOf(b);
    place.seen = keys;
    if (layout_.causal != Causal::kNo) {
      place.seen = std::clamp<int64_t>((layout_.causal == Causal::kLeftUp ? 0 : keys - queries) + i + 1, 0, keys);
    }
    return place;
  }

  /// Row r of all.
  TokenPlace Find(int64_t r) {
    if (!layout_.queries_are_packed) return At(r / layout_.queries, r % layout_.queries);
    if (r < begin_) last_ = begin_ = 0;
    while (last_ < layout_.sequences && r >= begin_ + QueriesOf(last_)) begin_ = QueryBegin(++last_);
    if (last_ < layout_.sequences) return At(last_, r - begin_);
    TokenPlace none;  // behind the last sequence
    none.token = r;
    return none;
  }

  /// Batch and token of key j of a row, and how many keys from there on lie one behind the other.
  struct KeyPlace {
    int64_t batch, token, run;
  };
  KeyPlace Key(const TokenPlace& place, int64_t j) const {
    if (!layout_.is_paged()) return {place.key_batch, place.key_begin + j, place.seen - j};
    const TensorRef& table = lengths_.table;
    const auto* entry = static_cast<const int32_t*>(table.data) + place.sequence * table.strides[0] +
                        j / layout_.keys * table.strides[1];
    const int64_t token = j % layout_.keys;
    return {std::clamp<int64_t>(*entry, 0, layout_.key_batches - 1), token,
            std::min(layout_.keys - token, place.seen - j)};
  }

 private:
  // Where sequence b begins whose ends are given: they may be in any order.
  static int64_t BeginOf(const TensorRef& ends, int64_t b, int64_t most) {
    if (b == 0) return 0;
    int64_t begin = 0;
    for (int64_t i = 0; i < b; ++i) begin = std::max(begin, std::clamp<int64_t>(NumberAt(ends, i), 0, most));
    return begin;
  }

  const TokenLayout& layout_;
  const TokenLengths& lengths_;
  int64_t last_ = 0, begin_ = 0;
};

}  // namespace reprise::kernels
