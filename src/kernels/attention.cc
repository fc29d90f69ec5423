// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cast.h"
#include "kernels/simd/attention.h"
#include "kernels/simd/matrix_unit.h"
#include "kernels/simd/panels.h"

namespace reprise::kernels {
namespace {

using simd::kScorePad;

// Keys of one step, rows of one unit: what is read over and over stays in the second-level cache.
constexpr int64_t kKeys = 128;
constexpr int64_t kRows = 198;
// Rows of one tile, which blocks are a multiple of; and of a block at least, where there are few heads.
constexpr int64_t kTileRows = 6;
constexpr int64_t kLeastRows = 48;
// Up to this many rows keys and values are read where they are: packing them would cost more than it saves.
constexpr int64_t kFewRows = 8;
// Keys and values that are converted at a time for few rows: the first-level cache.
constexpr int64_t kStaged = 16;
// Keys of a piece, and the number of units from which on pieces are not needed.
constexpr int64_t kPieceKeys = 512;
constexpr int64_t kEnoughUnits = 16;
constexpr int64_t kMostPieces = 16;

// Rows that the matrix unit multiplies in one go.
constexpr int64_t kUnitStep = 2 * simd::kUnitRows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

// Whether the matrix unit may have the products of such a call, which packs keys and values.
bool AllowsUnit(const AttentionSetup& setup) {
  return setup.most_rows > kFewRows && setup.depth > 0 && setup.depth <= simd::kMostUnitDepth && simd::HasMatrixUnit();
}

// Parts of bfloat16 of queries, keys and values, if the matrix unit multiplies them; else 0.
int UnitPartsOf(const AttentionSetup& setup, const AttentionOperands& in) {
  if (!AllowsUnit(setup)) return 0;
  const DType type = in.query.dtype;
  const bool is_short = type == DType::kBFloat16 || type == DType::kFloat16;
  const bool has_factors = in.query_factor.data != nullptr || in.score_factor.data != nullptr ||
                           in.key_factors.scale.data != nullptr || in.value_factors.scale.data != nullptr;
  const auto has_type = [&](const TensorRef& ref) { return ref.dtype == type; };
  if (!is_short || has_factors || !std::all_of(in.keys.begin(), in.keys.end(), has_type) ||
      !std::all_of(in.values.begin(), in.values.end(), has_type)) {
    return 0;
  }
  if (setup.rope_depth != 0 && !(has_type(in.query_rope) && has_type(in.key_rope))) return 0;
  return type == DType::kBFloat16 ? 1 : 2;
}

// What the matrix unit reads, in elements of bfloat16: parts of rows of queries and of weights, panels of keys and
// values.
struct UnitLayout {
  int64_t query_stride, weight_stride, query, weights, keys, values, query_tiles, value_panels;

  UnitLayout(const AttentionSetup& setup, int64_t rows) {
    constexpr int64_t kParts = 2;
    // A line more than needed, so that rows lie in different sets of a cache.
    query_stride = RoundUp(setup.depth, simd::kUnitDepth) + simd::kUnitDepth;
    weight_stride = kKeys + simd::kUnitDepth;
    query = kParts * rows * query_stride;
    weights = kParts * kUnitStep * weight_stride;
    keys = kParts * kKeys * simd::EvenDepth(setup.depth);
    values = kParts * kKeys * RoundUp(setup.value_depth, 32);
    query_tiles = DivideUp(rows, simd::kUnitRows);
    value_panels = DivideUp(setup.value_depth, simd::kPairPanelWidth);
  }
  int64_t Floats() const {
    return RoundUp((query + weights + keys + values) / 2 + DivideUp(query_tiles + value_panels, 4), 16);
  }
};

// Scratch memory, in floats.
struct Layout {
  int64_t rows, query, scores, out, keys, values, staged, statistics, unit;

  explicit Layout(const AttentionSetup& setup) {
    const bool is_few = setup.most_rows <= kFewRows;
    rows = setup.most_rows;
    query = RoundUp(rows * setup.depth, 16);
    scores = rows * kKeys;
    out = rows * RoundUp(setup.value_depth, 32);
    keys = is_few ? 0 : kKeys * setup.depth;
    values = is_few ? 0 : kKeys * RoundUp(setup.value_depth, 32);
    staged = kKeys * RoundUp(std::max(setup.depth, setup.value_depth), 16);
    statistics = RoundUp(3 * rows, 16);
    unit = AllowsUnit(setup) ? UnitLayout(setup, rows).Floats() + 16 : 0;
  }
  int64_t Floats() const { return query + scores + out + keys + values + staged + statistics + 2 * kKeys + unit; }
};

// Rows that a unit has: (query, head) pairs of one key head, the heads of a query side by side.
class Unit {
 public:
  Unit(const AttentionSetup& setup, const AttentionOperands& operands, void* scratch)
      : setup_(setup),
        in_(operands),
        layout_(setup),
        group_(setup.heads / setup.kv_heads),
        unit_parts_(UnitPartsOf(setup, operands)),
        unit_layout_(setup, layout_.rows) {
    query_ = static_cast<float*>(scratch);
    scores_ = query_ + layout_.query;
    out_ = scores_ + layout_.scores;
    keys_ = out_ + layout_.out;
    values_ = keys_ + layout_.keys;
    staged_ = values_ + layout_.values;
    maximum_ = staged_ + layout_.staged;
    sum_ = maximum_ + layout_.rows;
    ends_ = reinterpret_cast<int32_t*>(sum_ + layout_.rows);
    row_ = maximum_ + layout_.statistics;
    mask_row_ = reinterpret_cast<uint8_t*>(row_ + kKeys);
    if (unit_parts_ > 0) {
      const auto behind = reinterpret_cast<uintptr_t>(row_ + 2 * kKeys);
      unit_query_ = reinterpret_cast<BFloat16*>(row_ + 2 * kKeys) + (-behind & 63) / sizeof(BFloat16);
      unit_weights_ = unit_query_ + unit_layout_.query;
      unit_keys_ = unit_weights_ + unit_layout_.weights;
      unit_values_ = unit_keys_ + unit_layout_.keys;
      query_least_ = reinterpret_cast<uint8_t*>(unit_values_ + unit_layout_.values);
      value_least_ = query_least_ + unit_layout_.query_tiles;
    }
    out_stride_ = RoundUp(setup.value_depth, 32);
    from_query_ = FindCast(in_.query.dtype, DType::kFloat);
    result_factor_ = NumberOf(in_.weight_factor) * NumberOf(in_.value_factor);
    score_factor_ = NumberOf(in_.score_factor);
  }

  void Run(const AttentionSequence& sequence, int64_t kv_head, int64_t block, int64_t piece, float* partial) {
    sequence_ = &sequence;
    kv_head_ = kv_head;
    first_row_ = block * sequence.block_rows;
    rows_ = std::min(sequence.block_rows, group_ * sequence.queries - first_row_);
    int64_t begin = 0;
    int64_t end = sequence.keys;
    if (setup_.is_split) {
      begin = std::min(end, piece * setup_.piece_keys);
      end = std::min(end, begin + setup_.piece_keys);
    }
    // Blocks that no row sees are left out; the others begin where they would without that.
    const int64_t last_query = (first_row_ + rows_ - 1) / group_;
    end = std::min(end, std::max(last_query + sequence.high + 1, sequence.prefix));
    if (sequence.prefix == 0) begin = std::max(begin, (first_row_ / group_ + sequence.low) / kKeys * kKeys);
    std::fill_n(maximum_, rows_, -kInfinity);
    std::fill_n(sum_, rows_, 0.0f);
    std::fill_n(out_, rows_ * out_stride_, 0.0f);
    if (begin < end) {
      LoadQueries(unit_parts_ > 0 ? 1 : setup_.scale);
      if (unit_parts_ > 0) SplitQueries();
    }
    const simd::MatrixUnitScope scope(unit_parts_ > 0);
    for (int64_t key = begin; key < end;) {
      int64_t count = std::min(kKeys - key % kKeys, end - key);
      if (setup_.page_tokens != 0) count = std::min(count, setup_.page_tokens - key % setup_.page_tokens);
      Step(key, count);
      key += count;
    }
    if (partial != nullptr) {
      std::memcpy(partial, maximum_, static_cast<size_t>(rows_) * sizeof(float));
      std::memcpy(partial + setup_.most_rows, sum_, static_cast<size_t>(rows_) * sizeof(float));
      for (int64_t r = 0; r < rows_; ++r) {
        std::memcpy(partial + 2 * setup_.most_rows + r * setup_.value_depth, out_ + r * out_stride_,
                    static_cast<size_t>(setup_.value_depth) * sizeof(float));
      }
    } else {
      for (int64_t r = 0; r < rows_; ++r) Finish(r, out_ + r * out_stride_, maximum_[r], sum_[r]);
    }
  }

  // Joins the pieces of one key head of a split setup.
  void Merge(const AttentionSequence& sequence, int64_t kv_head, const float* partial) {
    sequence_ = &sequence;
    kv_head_ = kv_head;
    first_row_ = 0;
    rows_ = group_ * sequence.queries;
    const int64_t size = setup_.most_rows * (2 + setup_.value_depth);
    for (int64_t r = 0; r < rows_; ++r) {
      float maximum = -kInfinity;
      for (int64_t p = 0; p < setup_.pieces; ++p) maximum = Greater(maximum, partial[p * size + r]);
      const float shift = maximum == -kInfinity ? 0 : maximum;
      float sum = 0;
      std::fill_n(out_, setup_.value_depth, 0.0f);
      for (int64_t p = 0; p < setup_.pieces; ++p) {
        const float* piece = partial + p * size;
        if (piece[setup_.most_rows + r] == 0) continue;
        const float factor = std::exp(piece[r] - shift);
        sum += factor * piece[setup_.most_rows + r];
        const float* from = piece + 2 * setup_.most_rows + r * setup_.value_depth;
        for (int64_t k = 0; k < setup_.value_depth; ++k) out_[k] += factor * from[k];
      }
      Finish(r, out_, maximum, sum);
    }
  }

 protected:
  // A factor; 1 where there is none.
  static float NumberOf(const TensorRef& ref) {
    if (ref.data == nullptr) return 1;
    float number;
    if (ref.dtype == DType::kUInt64) {
      std::memcpy(&number, ref.data, sizeof number);
    } else {
      FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data), 0, reinterpret_cast<char*>(&number), 0, 1);
    }
    return number;
  }

  // NaN wins.
  static float Greater(float a, float b) { return a > b || a != a ? a : b; }

  int64_t QueryOf(int64_t r) const { return (first_row_ + r) / group_; }
  int64_t HeadOf(int64_t r) const { return kv_head_ * group_ + (first_row_ + r) % group_; }

  void LoadQueries(float scale) {
    const TensorRef& query = in_.query;
    const int64_t item = ItemSize(query.dtype);
    for (int64_t r = 0; r < rows_; ++r) {
      const char* from = At(query, sequence_->query_batch, HeadOf(r), sequence_->query_begin + QueryOf(r));
      float* to = query_ + r * setup_.depth;
      const int64_t own = setup_.depth - setup_.rope_depth;
      from_query_(from, query.strides[3] * item, reinterpret_cast<char*>(to), sizeof(float), own);
      if (in_.query_factor.data != nullptr) {
        simd::ScaleRow(to, NumberOf(PartOf(in_.query_factor, HeadOf(r), sequence_->query_begin + QueryOf(r))), own);
      }
      if (score_factor_ != 1) simd::ScaleRow(to, score_factor_, own);
      if (setup_.rope_depth == 0) continue;
      const TensorRef& rope = in_.query_rope;
      FindCast(rope.dtype, DType::kFloat)(
          At(rope, sequence_->query_batch, HeadOf(r), sequence_->query_begin + QueryOf(r)),
          rope.strides[3] * ItemSize(rope.dtype), reinterpret_cast<char*>(to + own), sizeof(float), setup_.rope_depth);
    }
    if (scale != 1) simd::ScaleRow(query_, scale, rows_ * setup_.depth);
  }

  static char* At(const TensorRef& ref, int64_t i, int64_t j, int64_t k) {
    return static_cast<char*>(ref.data) +
           (i * ref.strides[0] + j * ref.strides[1] + k * ref.strides[2]) * ItemSize(ref.dtype);
  }

  // One number of a view.
  TensorRef PartOf(const TensorRef& ref, int64_t head, int64_t token) const {
    TensorRef part = ref;
    part.data = At(ref, sequence_->query_batch, head, token);
    return part;
  }

  // rows[j] = (rows[j] + offset) * scale for tokens [key, key + count).
  void Restore(const TokenFactors& factors, int64_t key, int64_t count, float* rows, int64_t stride, int64_t depth) {
    if (factors.scale.data == nullptr) return;
    for (int64_t j = 0; j < count; ++j) {
      float* row = rows + j * stride;
      if (factors.offset.data != nullptr) Apply<false>(factors, factors.offset, key + j, row, depth);
      Apply<true>(factors, factors.scale, key + j, row, depth);
    }
  }

  template <bool kMultiplies>
  void Apply(const TokenFactors& factors, const TensorRef& ref, int64_t key, float* row, int64_t depth) {
    const int64_t item = ItemSize(ref.dtype);
    const char* from = factors.of_pages
                           ? Tokens(ref, key)
                           : At(ref, sequence_->kv_tensor + sequence_->kv_batch, kv_head_, sequence_->kv_begin + key);
    const CastFn cast = FindCast(ref.dtype, DType::kFloat);
    if (ref.strides[3] == 0) {
      float number;
      cast(from, 0, reinterpret_cast<char*>(&number), 0, 1);
      for (int64_t k = 0; k < depth; ++k) row[k] = kMultiplies ? row[k] * number : row[k] + number;
      return;
    }
    for (int64_t k = 0; k < depth; k += kKeys) {
      const int64_t n = std::min(kKeys, depth - k);
      cast(from + k * ref.strides[3] * item, ref.strides[3] * item, reinterpret_cast<char*>(row_), sizeof(float), n);
      for (int64_t i = 0; i < n; ++i) row[k + i] = kMultiplies ? row[k + i] * row_[i] : row[k + i] + row_[i];
    }
  }

  // Tokens [key, key + count) of keys or values, of one page if there are pages.
  const char* Tokens(const TensorRef& ref, int64_t key) const {
    if (setup_.page_tokens == 0) return At(ref, sequence_->kv_batch, kv_head_, sequence_->kv_begin + key);
    const TensorRef& table = in_.table;
    const auto* entry = reinterpret_cast<const int32_t*>(table.data) + sequence_->kv_batch * table.strides[0] +
                        key / setup_.page_tokens * table.strides[1];
    return At(ref, std::clamp<int64_t>(*entry, 0, ref.sizes[0] - 1), kv_head_, key % setup_.page_tokens);
  }

  // The tokens as rows of float32: in place where they are, else converted into staged_.
  const float* Rows(const TensorRef& ref, int64_t key, int64_t count, int64_t depth, int64_t& stride) {
    const char* from = Tokens(ref, key);
    if (ref.dtype == DType::kFloat && (ref.strides[3] == 1 || depth == 1)) {
      stride = ref.strides[2];
      return reinterpret_cast<const float*>(from);
    }
    const int64_t item = ItemSize(ref.dtype);
    const CastFn cast = FindCast(ref.dtype, DType::kFloat);
    stride = depth;
    if (ref.strides[3] == 1 && ref.strides[2] == depth) {
      cast(from, item, reinterpret_cast<char*>(staged_), sizeof(float), count * depth);
      return staged_;
    }
    for (int64_t j = 0; j < count; ++j) {
      cast(from + j * ref.strides[2] * item, ref.strides[3] * item, reinterpret_cast<char*>(staged_ + j * depth),
           sizeof(float), depth);
    }
    return staged_;
  }

  // Whole keys: the rows of both parts side by side.
  const float* KeyRows(const TensorRef& keys, int64_t key, int64_t count, int64_t& stride) {
    if (setup_.rope_depth == 0) {
      const float* rows = Rows(keys, key, count, setup_.depth, stride);
      if (in_.key_factors.scale.data != nullptr) Restore(in_.key_factors, key, count, staged_, stride, setup_.depth);
      return rows;
    }
    stride = setup_.depth;
    int64_t at = 0;
    for (const TensorRef* part : {&keys, &in_.key_rope}) {
      const int64_t item = ItemSize(part->dtype);
      const char* from = Tokens(*part, key);
      const CastFn cast = FindCast(part->dtype, DType::kFloat);
      for (int64_t j = 0; j < count; ++j) {
        cast(from + j * part->strides[2] * item, part->strides[3] * item,
             reinterpret_cast<char*>(staged_ + j * stride + at), sizeof(float), part->sizes[3]);
      }
      if (at == 0) Restore(in_.key_factors, key, count, staged_, stride, part->sizes[3]);
      at += part->sizes[3];
    }
    return staged_;
  }

  const float* ValueRows(const TensorRef& values, int64_t key, int64_t count, int64_t& stride) {
    const float* rows = Rows(values, key, count, setup_.value_depth, stride);
    if (in_.value_factors.scale.data != nullptr) {
      Restore(in_.value_factors, key, count, staged_, stride, setup_.value_depth);
    }
    return rows;
  }

  // Calls use(rows, stride, j, n) for tokens [key + j, key + j + n) of `count`: all of them where they lie if that can
  // be read, else some at a time as float32, which read(key + j, n, stride) gives.
  template <class Read, class Use>
  void ForRows(const TensorRef& ref, bool is_plain, int64_t key, int64_t count, Read&& read, Use&& use) {
    if (is_plain && ref.strides[3] == 1) {
      const char* const from = Tokens(ref, key);
      switch (ref.dtype) {
        case DType::kFloat: return use(reinterpret_cast<const float*>(from), ref.strides[2], 0, count);
        case DType::kFloat16: return use(reinterpret_cast<const Half*>(from), ref.strides[2], 0, count);
        case DType::kBFloat16: return use(reinterpret_cast<const BFloat16*>(from), ref.strides[2], 0, count);
        default: break;
      }
    }
    for (int64_t j = 0; j < count; j += kStaged) {
      const int64_t n = std::min(kStaged, count - j);
      int64_t stride = 0;
      const float* const rows = read(key + j, n, stride);
      use(rows, stride, j, n);
    }
  }

  void Step(int64_t key, int64_t count) {
    const TensorRef& keys = in_.keys[static_cast<size_t>(sequence_->kv_tensor)];
    const TensorRef& values = in_.values[static_cast<size_t>(sequence_->kv_tensor)];
    const bool is_few = layout_.keys == 0;
    int64_t stride = 0;
    count = FindEnds(key, count);
    if (count == 0) return;
    if (is_few) {
      ForRows(
          keys, setup_.rope_depth == 0 && in_.key_factors.scale.data == nullptr, key, count,
          [&](int64_t at, int64_t n, int64_t& s) { return KeyRows(keys, at, n, s); },
          [&](const auto* rows, int64_t s, int64_t j, int64_t n) {
            simd::DotKeys(query_, setup_.depth, rows_, rows, s, n, setup_.depth, scores_ + j, kKeys);
          });
    } else if (unit_parts_ > 0) {
      const float* rows = KeyRows(keys, key, count, stride);
      ScoreByUnit(rows, stride, count);
    } else {
      const float* rows = KeyRows(keys, key, count, stride);
      simd::PackKeys(rows, stride, count, setup_.depth, keys_);
      simd::MultiplyPanels(query_, setup_.depth, rows_, keys_, setup_.depth, count, scores_, kKeys, false,
                           {.cols = ends_});
    }
    for (int64_t r = 0; r < rows_; ++r) Weigh(r, key, count);
    if (is_few) {
      ForRows(
          values, in_.value_factors.scale.data == nullptr, key, count,
          [&](int64_t at, int64_t n, int64_t& s) { return ValueRows(values, at, n, s); },
          [&](const auto* rows, int64_t s, int64_t j, int64_t n) {
            simd::AddValues(scores_ + j, kKeys, rows_, rows, s, n, setup_.value_depth, out_, out_stride_);
          });
    } else {
      const float* rows = ValueRows(values, key, count, stride);
      if (unit_parts_ > 0 && AddByUnit(rows, stride, count)) return;
      simd::PackValues(rows, stride, count, setup_.value_depth, values_);
      simd::MultiplyPanels(scores_, kKeys, rows_, values_, count, setup_.value_depth, out_, out_stride_, true,
                           {.depth = ends_});
    }
  }

  // ---- By the matrix unit: parts of bfloat16 ----

  void SplitQueries() {
    const int64_t stride = unit_layout_.query_stride;
    for (int64_t r = 0; r < rows_; ++r) {
      BFloat16* const to = unit_query_ + r * stride;
      const uint8_t least =
          simd::SplitParts(query_ + r * setup_.depth, setup_.depth, unit_parts_, to, layout_.rows * stride);
      for (int p = 0; setup_.depth % 2 != 0 && p < unit_parts_; ++p) {
        to[p * layout_.rows * stride + setup_.depth] = BFloat16();
      }
      uint8_t& of_tile = query_least_[r / simd::kUnitRows];
      of_tile = r % simd::kUnitRows == 0 ? least : std::min(of_tile, least);
    }
  }

  // The greatest end of rows [r, r + n).
  int32_t GreatestEnd(int64_t r, int64_t n) const { return *std::max_element(ends_ + r, ends_ + r + n); }

  void ScoreByUnit(const float* keys, int64_t key_stride, int64_t count) {
    constexpr int64_t kWidth = simd::kPairPanelWidth;
    const int64_t depth = setup_.depth;
    const int64_t panel = unit_parts_ * simd::EvenDepth(depth) * kWidth;
    uint8_t least[kKeys / kWidth];
    for (int64_t p = 0; p * kWidth < count; ++p) {
      const int64_t lanes = std::min(kWidth, count - p * kWidth);
      simd::PanelOfColumns(keys + p * kWidth * key_stride, key_stride, lanes, depth, keys_);
      least[p] = simd::PartsOfPanel(keys_, depth, unit_parts_, unit_keys_ + p * panel);
    }
    const int64_t stride = unit_layout_.query_stride;
    for (int64_t r = 0; r < rows_; r += kUnitStep) {
      const int64_t rows = std::min(kUnitStep, rows_ - r);
      const int64_t cols = RoundUp(GreatestEnd(r, rows), kWidth);
      if (cols == 0) continue;
      const simd::UnitLeft left = {unit_query_ + r * stride, stride, layout_.rows * stride, unit_parts_,
                                   query_least_ + r / simd::kUnitRows};
      float* const scores = scores_ + r * kKeys;
      simd::MultiplyUnitBlock(left, {unit_keys_, unit_parts_, least}, scores, kKeys, rows, cols, depth, false);
      for (int64_t i = 0; setup_.scale != 1 && i < rows; ++i) simd::ScaleRow(scores + i * kKeys, setup_.scale, cols);
    }
  }

  // Adds values, each times its weight. \return false: some of them are not finite, and would go into rows that do not
  // see them
  bool AddByUnit(const float* values, int64_t value_stride, int64_t count) {
    constexpr int64_t kWidth = simd::kPairPanelWidth;
    const int64_t panel = unit_parts_ * simd::EvenDepth(count) * kWidth;
    const int64_t panels = out_stride_ / kWidth;
    simd::PanelsOfRows(values, value_stride, setup_.value_depth, count, values_);
    for (int64_t p = 0; p < panels; ++p) {
      uint8_t& least = value_least_[p];
      least = simd::PartsOfPanel(values_ + p * count * kWidth, count, unit_parts_, unit_values_ + p * panel);
      if (least == 0) return false;
    }
    // Weights are 1 at most, and those that would make a product subnormal count as 0.
    static constexpr uint8_t kWeightLeast[kUnitStep / simd::kUnitRows] = {255, 255};
    const int64_t stride = unit_layout_.weight_stride;
    for (int64_t r = 0; r < rows_; r += kUnitStep) {
      const int64_t rows = std::min(kUnitStep, rows_ - r);
      if (GreatestEnd(r, rows) == 0) continue;
      for (int64_t i = 0; i < rows; ++i) {
        BFloat16* const to = unit_weights_ + i * stride;
        simd::SplitRounded(scores_ + (r + i) * kKeys, count, to, kUnitStep * stride);
        if (count % 2 != 0) to[count] = to[kUnitStep * stride + count] = BFloat16();
      }
      simd::MultiplyUnitBlock({unit_weights_, stride, kUnitStep * stride, 2, kWeightLeast},
                              {unit_values_, unit_parts_, value_least_}, out_ + r * out_stride_, out_stride_, rows,
                              out_stride_, count, true);
    }
    return true;
  }

  // Sets ends_ for keys [key, key + count): behind them a row sees none. Returns the greatest.
  int64_t FindEnds(int64_t key, int64_t count) {
    const TensorRef& mask = in_.mask;
    int64_t most = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = QueryOf(r);
      int64_t end = std::clamp<int64_t>(std::max(query + sequence_->high + 1, sequence_->prefix) - key, 0, count);
      if (mask.data != nullptr) {
        const char* const bytes = At(mask, sequence_->mask_batch, HeadOf(r), query) + key * mask.strides[3];
        while (end > 0 && bytes[(end - 1) * mask.strides[3]] != 0) --end;
      }
      ends_[r] = static_cast<int32_t>(end);
      most = std::max(most, end);
    }
    return most;
  }

  // Adds the shift to the scores of one row and hides what it does not see, and the padding.
  void Adjust(int64_t r, int64_t key, int64_t count) {
    float* scores = scores_ + r * kKeys;
    const int64_t query = QueryOf(r);
    const int64_t padded = RoundUp(count, kScorePad);
    if (in_.shift.data != nullptr) AddShift(r, key, count);
    std::fill(scores + count, scores + padded, -kInfinity);
    const int64_t begin = sequence_->prefix > 0 ? 0 : std::clamp<int64_t>(query + sequence_->low - key, 0, count);
    const int64_t end =
        std::clamp<int64_t>(std::max(query + sequence_->high + 1, sequence_->prefix) - key, begin, count);
    if (begin > 0) std::fill(scores, scores + begin, -kInfinity);
    if (end < count) std::fill(scores + end, scores + count, -kInfinity);
    if (in_.mask.data != nullptr) Hide(r, key, count);
  }

  // Scores of one row to weights; what was summed before is put on the new maximum.
  void Weigh(int64_t r, int64_t key, int64_t count) {
    float* scores = scores_ + r * kKeys;
    const int64_t end = ends_[r];
    const int64_t padded = RoundUp(end, kScorePad);
    if (padded < count) std::fill(scores + padded, scores + count, 0.0f);
    if (end == 0) return;
    Adjust(r, key, end);
    const float maximum = Greater(maximum_[r], simd::MaxOf(scores, padded));
    const float shift = maximum == -kInfinity ? 0 : maximum;
    if (maximum != maximum_[r]) {
      if (sum_[r] != 0) {
        const float factor = std::exp(maximum_[r] - shift);
        sum_[r] *= factor;
        simd::ScaleRow(out_ + r * out_stride_, factor, setup_.value_depth);
      }
      maximum_[r] = maximum;
    }
    sum_[r] += simd::ExpSum(scores, shift, padded);
    if (in_.drop.data != nullptr) Drop(r, key, end);
  }

  void AddShift(int64_t r, int64_t key, int64_t count) {
    const TensorRef& shift = in_.shift;
    const int64_t item = ItemSize(shift.dtype);
    const char* from = At(shift, sequence_->mask_batch, HeadOf(r), QueryOf(r)) + key * shift.strides[3] * item;
    FindCast(shift.dtype, DType::kFloat)(from, shift.strides[3] * item, reinterpret_cast<char*>(row_), sizeof(float),
                                         count);
    const float factor = setup_.shift_first ? setup_.scale : 1;
    float* scores = scores_ + r * kKeys;
    for (int64_t j = 0; j < count; ++j) scores[j] += factor * row_[j];
  }

  void Hide(int64_t r, int64_t key, int64_t count) {
    const TensorRef& mask = in_.mask;
    const auto* bytes = reinterpret_cast<const uint8_t*>(At(mask, sequence_->mask_batch, HeadOf(r), QueryOf(r))) +
                        key * mask.strides[3];
    if (mask.strides[3] != 1) {
      for (int64_t j = 0; j < count; ++j) mask_row_[j] = bytes[j * mask.strides[3]];
      bytes = mask_row_;
    }
    float* scores = scores_ + r * kKeys;
    for (int64_t j = 0; j < count; ++j) scores[j] = bytes[j] != 0 ? -kInfinity : scores[j];
  }

  void Drop(int64_t r, int64_t key, int64_t count) {
    const auto* bits = static_cast<const uint8_t*>(in_.drop.data);
    const int64_t first =
        sequence_->drop_begin + (HeadOf(r) * sequence_->queries + QueryOf(r)) * sequence_->drop_stride + key;
    float* scores = scores_ + r * kKeys;
    for (int64_t j = 0; j < count; ++j) {
      if ((bits[(first + j) / 8 * in_.drop.strides[0]] >> ((first + j) % 8) & 1) == 0) scores[j] = 0;
    }
  }

  void Finish(int64_t r, float* out, float maximum, float sum) {
    const int64_t head = HeadOf(r);
    const int64_t token = sequence_->query_begin + QueryOf(r);
    if (in_.sink.data != nullptr) {
      float sink = 0;
      const int64_t item = ItemSize(in_.sink.dtype);
      FindCast(in_.sink.dtype, DType::kFloat)(
          static_cast<const char*>(in_.sink.data) + head * in_.sink.strides[0] * item, item,
          reinterpret_cast<char*>(&sink), sizeof(float), 1);
      if (sink > maximum) {
        const float factor = sum == 0 ? 0 : std::exp(maximum - sink);
        sum *= factor;
        simd::ScaleRow(out, factor, setup_.value_depth);
        maximum = sink;
      }
      sum += sink == -kInfinity ? 0 : std::exp(sink - maximum);
    }
    if (sum != 0) simd::ScaleRow(out, result_factor_ / (sum * setup_.keep), setup_.value_depth);
    const TensorRef& to = in_.out;
    if (in_.out_scale.data != nullptr) Quantize(head, out);
    FindCast(DType::kFloat, to.dtype)(reinterpret_cast<const char*>(out), sizeof(float),
                                      At(to, sequence_->query_batch, head, token), to.strides[3] * ItemSize(to.dtype),
                                      setup_.value_depth);
    Put(in_.maximum, head, token, maximum);
    Put(in_.sum, head, token, sum);
    Put(in_.log_sum, head, token, sum == 0 ? kInfinity : maximum + std::log(sum));
  }

  // The line as int8 numbers.
  void Quantize(int64_t head, float* out) {
    for (int64_t k = 0; k < setup_.value_depth; ++k) {
      const auto number = [&](const TensorRef& ref) {
        TensorRef part = ref;
        part.data = At(ref, 0, head, 0) + k * ref.strides[3] * ItemSize(ref.dtype);
        return NumberOf(part);
      };
      const float x = out[k] * number(in_.out_scale) + (in_.out_offset.data != nullptr ? number(in_.out_offset) : 0);
      out[k] = std::clamp(std::nearbyint(x), -128.0f, 127.0f);
    }
  }

  void Put(const TensorRef& ref, int64_t head, int64_t token, float value) {
    if (ref.data == nullptr) return;
    auto* to = reinterpret_cast<float*>(At(ref, sequence_->query_batch, head, token));
    for (int64_t c = 0; c < ref.sizes[3]; ++c) to[c * ref.strides[3]] = value;
  }

  const AttentionSetup& setup_;
  const AttentionOperands& in_;
  const Layout layout_;
  const int64_t group_;
  const AttentionSequence* sequence_ = nullptr;
  int64_t kv_head_ = 0, first_row_ = 0, rows_ = 0, out_stride_ = 0;
  float result_factor_ = 1, score_factor_ = 1;
  float *query_, *scores_, *out_, *keys_, *values_, *staged_, *maximum_, *sum_, *row_;
  int32_t* ends_;  // of what each row sees of the keys of a step
  uint8_t* mask_row_;
  CastFn from_query_;
  const int unit_parts_;  // 0: the matrix unit is not used
  const UnitLayout unit_layout_;
  BFloat16 *unit_query_ = nullptr, *unit_weights_ = nullptr, *unit_keys_ = nullptr, *unit_values_ = nullptr;
  uint8_t *query_least_ = nullptr, *value_least_ = nullptr;  // of tiles of rows, of panels
};

// The gradients of one key head: all its queries, block by block, against all its keys.
class BackwardUnit : public Unit {
 public:
  BackwardUnit(const AttentionSetup& setup, const AttentionOperands& forward, const AttentionGradients& gradients,
               void* scratch)
      : Unit(setup, forward, scratch), to_(gradients), depth_(RoundUp(setup.depth, 32)), rest_(layout_, setup) {
    float* at = static_cast<float*>(scratch) + layout_.Floats();
    const auto take = [&at](int64_t count) {
      float* taken = at;
      at += count;
      return taken;
    };
    products_ = take(rest_.scores);
    turned_ = take(rest_.scores);
    gradient_ = take(rest_.rows * setup.value_depth);
    delta_ = take(RoundUp(rest_.rows, 16));
    query_panels_ = take(rest_.rows * depth_);
    gradient_panels_ = take(rest_.rows * out_stride_);
    key_columns_ = take(kKeys * depth_);
    value_columns_ = take(kKeys * out_stride_);
    key_panels_ = take(kKeys * depth_);
    query_sum_ = take(rest_.rows * depth_);
    key_sum_ = take(rest_.keys * depth_);
    value_sum_ = take(rest_.keys * out_stride_);
  }

  // Behind the floats of Layout.
  struct Rest {
    int64_t rows, scores, keys = 0;

    Rest(const Layout& layout, const AttentionSetup& setup) : rows(layout.rows), scores(rows * kKeys) {
      for (const AttentionSequence& s : setup.sequences) keys = std::max(keys, s.keys);
    }
    int64_t Floats(const AttentionSetup& setup) const {
      const int64_t depth = RoundUp(setup.depth, 32);
      const int64_t value_depth = RoundUp(setup.value_depth, 32);
      return 2 * scores + RoundUp(rows, 16) + rows * (setup.value_depth + 2 * depth + value_depth) +
             kKeys * (2 * depth + value_depth) + keys * (depth + value_depth);
    }
  };

  void Run(const AttentionSequence& sequence, int64_t kv_head) {
    sequence_ = &sequence;
    kv_head_ = kv_head;
    std::fill_n(key_sum_, sequence.keys * depth_, 0.0f);
    std::fill_n(value_sum_, sequence.keys * out_stride_, 0.0f);
    for (int64_t block = 0; block < sequence.blocks; ++block) {
      first_row_ = block * sequence.block_rows;
      rows_ = std::min(sequence.block_rows, group_ * sequence.queries - first_row_);
      RunBlock();
    }
    for (int64_t key = 0; key < sequence.keys; ++key) {
      const float* sum = key_sum_ + key * depth_;
      Store(sum, to_.key, sequence.kv_batch, kv_head, sequence.kv_begin + key);
      if (setup_.rope_depth != 0) {
        Store(sum + to_.key.sizes[3], to_.key_rope, sequence.kv_batch, kv_head, sequence.kv_begin + key);
      }
      Store(value_sum_ + key * out_stride_, to_.value, sequence.kv_batch, kv_head, sequence.kv_begin + key);
    }
  }

 private:
  static void Store(const float* from, const TensorRef& to, int64_t batch, int64_t head, int64_t token) {
    FindCast(DType::kFloat, to.dtype)(reinterpret_cast<const char*>(from), sizeof(float), At(to, batch, head, token),
                                      to.strides[3] * ItemSize(to.dtype), to.sizes[3]);
  }

  void RunBlock() {
    const int64_t width = setup_.value_depth;
    LoadQueries(setup_.scale);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t token = sequence_->query_begin + QueryOf(r);
      const auto load = [&](const TensorRef& ref, float* to) {
        const int64_t item = ItemSize(ref.dtype);
        FindCast(ref.dtype, DType::kFloat)(At(ref, sequence_->query_batch, HeadOf(r), token), ref.strides[3] * item,
                                           reinterpret_cast<char*>(to), sizeof(float), width);
      };
      float* gradient = gradient_ + r * width;
      load(to_.gradient, gradient);
      load(in_.out, staged_);
      delta_[r] = 0;
      for (int64_t k = 0; k < width; ++k) delta_[r] += gradient[k] * staged_[k];
      maximum_[r] = Statistic(in_.maximum, HeadOf(r), token);
      sum_[r] = Statistic(in_.sum, HeadOf(r), token);
    }
    simd::PackValues(query_, setup_.depth, rows_, setup_.depth, query_panels_);
    simd::PackValues(gradient_, width, rows_, width, gradient_panels_);
    std::fill_n(query_sum_, rows_ * depth_, 0.0f);
    const int64_t last = QueryOf(rows_ - 1);
    const int64_t end = std::min(sequence_->keys, std::max(last + sequence_->high + 1, sequence_->prefix));
    for (int64_t key = 0; key < end; key += kKeys) Step(key, std::min(kKeys, end - key));
    for (int64_t r = 0; r < rows_; ++r) {
      simd::ScaleRow(query_sum_ + r * depth_, setup_.scale, setup_.depth);
      const int64_t token = sequence_->query_begin + QueryOf(r);
      const float* sum = query_sum_ + r * depth_;
      Store(sum, to_.query, sequence_->query_batch, HeadOf(r), token);
      if (setup_.rope_depth != 0) {
        Store(sum + to_.query.sizes[3], to_.query_rope, sequence_->query_batch, HeadOf(r), token);
      }
    }
  }

  float Statistic(const TensorRef& ref, int64_t head, int64_t token) const {
    return *reinterpret_cast<const float*>(At(ref, sequence_->query_batch, head, token));
  }

  void Step(int64_t key, int64_t count) {
    int64_t stride = 0;
    const float* keys = KeyRows(in_.keys[0], key, count, stride);
    simd::PackKeys(keys, stride, count, setup_.depth, key_columns_);
    simd::PackValues(keys, stride, count, setup_.depth, key_panels_);
    const float* values = Rows(in_.values[0], key, count, setup_.value_depth, stride);
    simd::PackKeys(values, stride, count, setup_.value_depth, value_columns_);
    simd::MultiplyPanels(query_, setup_.depth, rows_, key_columns_, setup_.depth, count, scores_, kKeys, false);
    simd::MultiplyPanels(gradient_, setup_.value_depth, rows_, value_columns_, setup_.value_depth, count, products_,
                         kKeys, false);
    const bool has_drop = in_.drop.data != nullptr;
    for (int64_t r = 0; r < rows_; ++r) {
      float* weights = scores_ + r * kKeys;
      float* products = products_ + r * kKeys;
      const int64_t padded = RoundUp(count, kScorePad);
      Adjust(r, key, count);
      if (sum_[r] == 0) {
        std::fill_n(weights, padded, 0.0f);
      } else {
        simd::ExpSum(weights, maximum_[r], padded);
        simd::ScaleRow(weights, 1 / sum_[r], padded);
      }
      if (!has_drop) {
        for (int64_t j = 0; j < count; ++j) products[j] = weights[j] * (products[j] - delta_[r]);
        continue;
      }
      // The weights that the drop leaves, and the gradient of all of them.
      std::copy_n(weights, count, row_);
      Drop(r, key, count);
      simd::ScaleRow(weights, 1 / setup_.keep, count);
      for (int64_t j = 0; j < count; ++j) products[j] = weights[j] * products[j] - row_[j] * delta_[r];
    }
    Turn(scores_, count);
    simd::MultiplyPanels(turned_, rows_, count, gradient_panels_, rows_, setup_.value_depth,
                         value_sum_ + key * out_stride_, out_stride_, true);
    Turn(products_, count);
    simd::MultiplyPanels(turned_, rows_, count, query_panels_, rows_, setup_.depth, key_sum_ + key * depth_, depth_,
                         true);
    simd::MultiplyPanels(products_, kKeys, rows_, key_panels_, count, setup_.depth, query_sum_, depth_, true);
  }

  // turned_[j][r] = from[r][j].
  void Turn(const float* from, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t r = 0; r < rows_; ++r) turned_[j * rows_ + r] = from[r * kKeys + j];
    }
  }

  const AttentionGradients& to_;
  const int64_t depth_;
  const Rest rest_;
  float *products_, *turned_, *gradient_, *delta_, *query_panels_, *gradient_panels_, *key_columns_, *value_columns_,
      *key_panels_, *query_sum_, *key_sum_, *value_sum_;
};

const AttentionSequence& SequenceOf(const AttentionSetup& setup, int64_t unit) {
  const auto after = std::upper_bound(setup.sequences.begin(), setup.sequences.end(), unit,
                                      [](int64_t u, const AttentionSequence& s) { return u < s.first_unit; });
  return *(after - 1);
}

}  // namespace

void PrepareAttention(AttentionSetup& setup, int64_t capacity) {
  const int64_t group = setup.heads / setup.kv_heads;
  int64_t most_rows = 0;
  for (const AttentionSequence& s : setup.sequences) most_rows = std::max(most_rows, group * s.queries);
  const bool is_few = most_rows <= kFewRows;
  setup.most_rows = std::min(most_rows, std::max(kRows, group));
  const int64_t count = static_cast<int64_t>(setup.sequences.size()) * setup.kv_heads;
  setup.pieces = 1;
  if (is_few && count < kEnoughUnits)
    setup.pieces = std::clamp<int64_t>(DivideUp(capacity, kPieceKeys), 1, kMostPieces);
  setup.is_split = setup.pieces > 1;
  setup.piece_keys = RoundUp(DivideUp(capacity, setup.pieces), kKeys);
  setup.units = 0;
  for (AttentionSequence& s : setup.sequences) {
    s.first_unit = setup.units;
    // Blocks of about the same size, since a small one packs as many keys as a large one; enough of them for threads.
    const int64_t rows = group * s.queries;
    const int64_t wanted = std::min(DivideUp(kEnoughUnits, std::max<int64_t>(1, count)), rows / kLeastRows);
    int64_t blocks = DivideUp(rows, std::max<int64_t>(1, setup.most_rows));
    if (!is_few) blocks = std::max(blocks, wanted);
    s.block_rows = std::min(setup.most_rows, RoundUp(DivideUp(rows, std::max<int64_t>(1, blocks)), kTileRows));
    s.blocks = setup.is_split ? setup.pieces : DivideUp(rows, std::max<int64_t>(1, s.block_rows));
    setup.units += setup.kv_heads * s.blocks;
  }
  setup.merge_units = setup.is_split ? count : 0;
}

int64_t AttentionScratchBytes(const AttentionSetup& setup) {
  return Layout(setup).Floats() * static_cast<int64_t>(sizeof(float));
}

int64_t AttentionPartialCount(const AttentionSetup& setup) {
  return setup.is_split ? setup.units * setup.most_rows * (2 + setup.value_depth) : 0;
}

int64_t MostAttentionPartials(const AttentionSetup& setup, int64_t capacity) {
  const int64_t pieces = std::clamp<int64_t>(DivideUp(capacity, kPieceKeys), 1, kMostPieces);
  return pieces > 1 ? kEnoughUnits * pieces * kFewRows * (2 + setup.value_depth) : 0;
}

void Attend(const AttentionSetup& setup, const AttentionOperands& operands, Range range, float* partial,
            void* scratch) {
  Unit unit(setup, operands, scratch);
  for (int64_t u = range.begin; u < range.end; ++u) {
    const AttentionSequence& sequence = SequenceOf(setup, u);
    const int64_t at = u - sequence.first_unit;
    const int64_t kv_head = at / sequence.blocks;
    int64_t block = at % sequence.blocks;
    if (setup.is_split) {
      unit.Run(sequence, kv_head, 0, block, partial + u * setup.most_rows * (2 + setup.value_depth));
      continue;
    }
    // From both ends: under a causal mask later blocks see more keys, and a run of units should be worth its length.
    block = block % 2 == 0 ? block / 2 : sequence.blocks - 1 - block / 2;
    unit.Run(sequence, kv_head, block, 0, nullptr);
  }
}

void MergeAttention(const AttentionSetup& setup, const AttentionOperands& operands, Range range, const float* partial,
                    void* scratch) {
  Unit unit(setup, operands, scratch);
  for (int64_t u = range.begin; u < range.end; ++u) {
    const AttentionSequence& sequence = setup.sequences[static_cast<size_t>(u / setup.kv_heads)];
    const int64_t kv_head = u % setup.kv_heads;
    const int64_t first = sequence.first_unit + kv_head * setup.pieces;
    unit.Merge(sequence, kv_head, partial + first * setup.most_rows * (2 + setup.value_depth));
  }
}

int64_t AttentionBackwardScratchBytes(const AttentionSetup& setup) {
  const Layout layout(setup);
  return (layout.Floats() + BackwardUnit::Rest(layout, setup).Floats(setup)) * static_cast<int64_t>(sizeof(float));
}

void AttendBackward(const AttentionSetup& setup, const AttentionOperands& forward, const AttentionGradients& gradients,
                    Range range, void* scratch) {
  BackwardUnit unit(setup, forward, gradients, scratch);
  for (int64_t u = range.begin; u < range.end; ++u) {
    unit.Run(setup.sequences[static_cast<size_t>(u / setup.kv_heads)], u % setup.kv_heads);
  }
}

void SinkGradient(const AttentionSetup& setup, const AttentionOperands& forward, const TensorRef& gradient,
                  const TensorRef& sink_gradient, Range range) {
  const auto number = [](const TensorRef& ref, int64_t offset) {
    float value;
    FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data) + offset * ItemSize(ref.dtype), 0,
                                       reinterpret_cast<char*>(&value), 0, 1);
    return value;
  };
  const auto at = [](const TensorRef& ref, int64_t batch, int64_t head, int64_t token) {
    return batch * ref.strides[0] + head * ref.strides[1] + token * ref.strides[2];
  };
  for (int64_t h = range.begin; h < range.end; ++h) {
    const float sink = number(forward.sink, h * forward.sink.strides[0]);
    double total = 0;
    for (const AttentionSequence& s : setup.sequences) {
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t token = s.query_begin + i;
        const float sum = number(forward.sum, at(forward.sum, s.query_batch, h, token));
        if (sum == 0) continue;
        const float maximum = number(forward.maximum, at(forward.maximum, s.query_batch, h, token));
        float delta = 0;
        const int64_t g = at(gradient, s.query_batch, h, token);
        const int64_t o = at(forward.out, s.query_batch, h, token);
        for (int64_t k = 0; k < setup.value_depth; ++k) {
          delta += number(gradient, g + k * gradient.strides[3]) * number(forward.out, o + k * forward.out.strides[3]);
        }
        total -= static_cast<double>(std::exp(sink - maximum) / sum * delta);
      }
    }
    const auto result = static_cast<float>(total);
    FindCast(DType::kFloat, sink_gradient.dtype)(
        reinterpret_cast<const char*>(&result), 0,
        static_cast<char*>(sink_gradient.data) + h * sink_gradient.strides[0] * ItemSize(sink_gradient.dtype), 0, 1);
  }
}

}  // namespace reprise::kernels
