// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/families/attention.h"

namespace reprise::ops::attention {
namespace {

// Entry i of lengths of which one stands for all; `most` where there are none.
StatusOr<int64_t> LengthOf(const OpCall& call, std::string_view name, std::span<const int64_t> lengths, size_t i,
                           size_t count, int64_t most) {
  if (lengths.empty()) return most;
  if (lengths.size() != 1 && lengths.size() < count) {
    return call.Invalid(fmt::format("{} has {} entries, expected 1 or {}", name, lengths.size(), count));
  }
  const int64_t length = lengths.size() == 1 ? lengths[0] : lengths[i];
  if (length < 0 || length > most) {
    return call.Invalid(fmt::format("entry {} of {} is {}, expected a value from 0 to {}", i, name, length, most));
  }
  return length;
}

// Entry i of lengths that are added up.
StatusOr<int64_t> EndOf(const OpCall& call, std::string_view name, std::span<const int64_t> ends, size_t i,
                        int64_t most) {
  const int64_t before = i == 0 ? 0 : ends[i - 1];
  if (ends[i] < before || ends[i] > most) {
    return call.Invalid(
        fmt::format("entry {} of {} is {}, expected a value from {} to {}", i, name, ends[i], before, most),
        "for layouts with T the entries are added up: each is where its sequence ends");
  }
  return ends[i];
}

// What of `sequence` its queries may see.
Status SetBand(const OpCall& call, int64_t sparse_mode, bool has_mask, int64_t before, int64_t after,
               AttentionSequence& sequence) {
  const int64_t shift = sequence.keys - sequence.queries;
  constexpr int64_t kFar = INT64_MAX / 8;
  before = std::clamp(before, -kFar, kFar);
  after = std::clamp(after, -kFar, kFar);
  switch (sparse_mode) {
    case kDefault:
      if (!has_mask) break;
      sequence.low = -before;
      sequence.high = after;
      break;
    case kAllMask:
    case kPrefix: break;
    case kLeftUpCausal: sequence.high = 0; break;
    case kRightDownCausal:
    case kCompressedPrefix: sequence.high = shift; break;
    case kBand:
      sequence.low = shift - before;
      sequence.high = shift + after;
      break;
    default:
      return call.Invalid(
          fmt::format("sparseMode is {}, expected a value from 0 to {}", sparse_mode, int64_t{kCompressedPrefix}),
          "0 band and mask, 1 mask, 2 causal from the left upper corner, 3 causal from the right lower "
          "corner, 4 band from there, 5 and 6 prefix");
  }
  return {};
}

// Turns the lengths into the sequences of the setup.
class Sequences {
 public:
  Sequences(const OpCall& call, Attention& a)
      : call_(call), a_(a), setup_(*a.setup), keeps_single_(KindOf(call) == kFused && a.query.tokens() == 1) {
    if (KindOf(call) != kIncremental) {
      query_name_ = FirstOf(call, {"actualSeqLengths", "actualSeqLengthsOptional", "actualSeqQLenOptional"});
      key_name_ = FirstOf(call, {"actualSeqLengthsKv", "actualSeqLengthsKvOptional", "actualSeqKvLenOptional"});
    } else {
      key_name_ = "actualSeqLengths";
    }
    query_lengths_ = IntsOf(call, query_name_);
    key_lengths_ = IntsOf(call, key_name_);
  }

  Status Fill() {
    auto count = static_cast<size_t>(a_.query.batch());
    if (a_.is_packed) {
      REPRISE_RETURN_IF_ERROR(CheckEnds());
      count = query_lengths_.size();
    }
    if (a_.is_paged() && key_lengths_.empty()) {
      return call_.Invalid(fmt::format("{} is missing", key_name_), "paged keys need the lengths of the sequences");
    }
    setup_.sequences.reserve(2 * count);
    for (size_t i = 0; i < count; ++i) {
      AttentionSequence s;
      REPRISE_RETURN_IF_ERROR(SetQueries(i, count, s));
      REPRISE_RETURN_IF_ERROR(SetKeys(i, count, s));
      setup_.sequences.push_back(s);
      if (!a_.is_packed) AddRest(s.query_batch, s.queries);
    }
    if (a_.is_packed) AddRest(0, query_lengths_.back());
    return {};
  }

 private:
  Status CheckEnds() const {
    const size_t count = query_lengths_.size();
    if (count == 0) {
      return call_.Invalid(fmt::format("{} is missing", query_name_), "layouts with T need the ends of the sequences");
    }
    if (a_.is_paged() || key_lengths_.size() == count) return {};
    return call_.Invalid(
        fmt::format("{} has {} entries and {} has {}", query_name_, count, key_name_, key_lengths_.size()),
        "layouts with T need an end of queries and one of keys for each sequence");
  }

  Status SetQueries(size_t i, size_t count, AttentionSequence& s) const {
    const int64_t tokens = a_.query.tokens();
    if (a_.is_packed) {
      s.query_begin = i == 0 ? 0 : query_lengths_[i - 1];
      REPRISE_ASSIGN_OR_RETURN(const int64_t end, EndOf(call_, query_name_, query_lengths_, i, tokens));
      s.queries = end - s.query_begin;
      return {};
    }
    s.query_batch = s.mask_batch = static_cast<int64_t>(i);
    // A single query is there whatever its lengths say: callers count what came before it, too.
    const auto lengths = keeps_single_ ? std::span<const int64_t>() : query_lengths_;
    REPRISE_ASSIGN_OR_RETURN(s.queries, LengthOf(call_, query_name_, lengths, i, count, tokens));
    return {};
  }

  Status SetKeys(size_t i, size_t count, AttentionSequence& s) const {
    if (a_.is_paged()) {
      s.kv_batch = static_cast<int64_t>(i);
      REPRISE_ASSIGN_OR_RETURN(s.keys, LengthOf(call_, key_name_, key_lengths_, i, count, a_.capacity));
      return {};
    }
    if (a_.is_packed) {
      s.kv_begin = i == 0 ? 0 : key_lengths_[i - 1];
      REPRISE_ASSIGN_OR_RETURN(const int64_t end, EndOf(call_, key_name_, key_lengths_, i, a_.keys[0].tokens()));
      s.keys = end - s.kv_begin;
      return {};
    }
    const bool is_list = a_.keys.size() > 1;
    s.kv_tensor = is_list ? static_cast<int64_t>(i) : 0;
    s.kv_batch = is_list ? 0 : static_cast<int64_t>(i);
    const int64_t tokens = a_.keys[static_cast<size_t>(s.kv_tensor)].tokens();
    REPRISE_ASSIGN_OR_RETURN(s.keys, LengthOf(call_, key_name_, key_lengths_, i, count, tokens));
    return {};
  }

  // The queries of a batch from `begin` on, which belong to no sequence and see nothing.
  void AddRest(int64_t batch, int64_t begin) {
    if (begin >= a_.query.tokens()) return;
    AttentionSequence rest;
    rest.query_batch = batch;
    rest.query_begin = begin;
    rest.queries = a_.query.tokens() - begin;
    setup_.sequences.push_back(rest);
  }

  const OpCall& call_;
  const Attention& a_;
  AttentionSetup& setup_;
  const bool keeps_single_;
  std::string_view query_name_, key_name_;
  std::span<const int64_t> query_lengths_, key_lengths_;
};

}  // namespace

Status AddSequences(OpCall& call, Attention& a) {
  if (!call.only_tells_size()) return Sequences(call, a).Fill();
  // The longest there can be.
  AttentionSequence s;
  s.queries = a.query.tokens();
  a.setup->sequences.push_back(s);
  return {};
}

StatusOr<Extent> SetVisible(const OpCall& call, Attention& a) {
  const Kind kind = KindOf(call);
  // A single query sees all keys that its mask leaves: for it preTokens and nextTokens say nothing.
  const bool has_band = !(kind == kFused && !a.is_packed && a.query.tokens() == 1) && a.parts.mask != nullptr;
  const std::span<const int64_t> prefix = IntsOf(call, FirstOf(call, {"prefixOptional"}));
  Extent extent;
  for (AttentionSequence& s : a.setup->sequences) {
    if (kind != kIncremental) {
      REPRISE_RETURN_IF_ERROR(SetBand(call, a.sparse_mode, has_band, call.Int("preTokens"), call.Int("nextTokens"), s));
    }
    if (a.is_paged() && s.keys > 0 && s.kv_batch >= a.table.sizes[0]) {
      return call.InvalidOperand(*a.parts.table, fmt::format("has shape {}, expected a row for each sequence",
                                                             ShapeText(a.parts.table->sizes())));
    }
    if (a.sparse_mode == kCompressedPrefix && s.keys > 0) {
      const auto at = static_cast<size_t>(s.mask_batch);
      if (a.is_packed || at >= prefix.size()) {
        return call.Invalid(fmt::format("sparseMode is 6 and prefixOptional has {} entries", prefix.size()),
                            "pass the length of the prefix of each sequence");
      }
      s.prefix = std::clamp<int64_t>(prefix[at], 0, s.keys);
    }
    extent.most_keys = std::max(extent.most_keys, s.keys);
    if (s.keys > 0) extent.most_queries = std::max(extent.most_queries, s.queries);
    s.drop_begin = extent.scores;
    s.drop_stride = s.keys;
    extent.scores += a.setup->heads * s.queries * s.keys;
  }
  return extent;
}

}  // namespace reprise::ops::attention
