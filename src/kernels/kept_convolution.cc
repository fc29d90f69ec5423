// SPDX-License-Identifier: Apache-2.0
#include "kernels/kept_convolution.h"

#include <cstring>

#include "kernels/cast.h"
#include "kernels/token_sequences.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kNoLine = -1;

int64_t Remainder(int64_t a, int64_t b) { return ((a % b) + b) % b; }

// Some channels of all sequences.
class KeptChannels {
 public:
  KeptChannels(const KeptConvolution& shape, const KeptConvolutionOperands& in, int64_t first, int64_t count)
      : s_(shape),
        in_(in),
        first_(first),
        count_(count),
        item_(ItemSize(in.x.dtype)),
        widen_(FindCast(in.x.dtype, DType::kFloat)),
        narrow_(FindCast(DType::kFloat, in.x.dtype)),
        copy_(FindCast(in.x.dtype, in.x.dtype)) {
    for (int64_t w = 0; w < s_.window; ++w) {
      Load(Address(in_.weight, w * in_.weight.strides[0]), StrideOf(in_.weight), weight_[w]);
    }
  }

  void Run() {
    int64_t end = 0;
    for (int64_t b = 0; b < s_.sequences; ++b) {
      int64_t begin = b * s_.batch_tokens;
      int64_t after = begin + s_.batch_tokens;
      if (in_.starts.data != nullptr) {
        begin = std::clamp<int64_t>(NumberAt(in_.starts, b), end, s_.tokens);
        after = std::clamp<int64_t>(NumberAt(in_.starts, b + 1), begin, s_.tokens);
      }
      Clear(end, begin);
      end = after;
      if (!RunSequence(b, begin, after - begin)) Clear(begin, after);
    }
    Clear(end, s_.tokens);
  }

 private:
  // ---- Rows: the channels of a token ----

  static int64_t LastStride(const TensorRef& ref) { return ref.strides[ref.rank - 1]; }
  int64_t StrideOf(const TensorRef& ref) const { return LastStride(ref) * item_; }
  char* Address(const TensorRef& ref, int64_t elements) const {
    return static_cast<char*>(ref.data) + (elements + first_ * LastStride(ref)) * item_;
  }
  char* TokenOf(const TensorRef& ref, int64_t token) const {
    if (ref.rank == 2) return Address(ref, token * ref.strides[0]);
    return Address(ref, token / s_.batch_tokens * ref.strides[0] + token % s_.batch_tokens * ref.strides[1]);
  }
  char* KeptOf(int64_t line, int64_t token) const {
    return Address(in_.states, line * in_.states.strides[0] + token * in_.states.strides[1]);
  }
  void Load(const char* from, int64_t stride, float* to) const {
    widen_(from, stride, reinterpret_cast<char*>(to), sizeof(float), count_);
  }
  void Store(const float* from, char* to, int64_t stride) const {
    narrow_(reinterpret_cast<const char*>(from), sizeof(float), to, stride, count_);
  }
  void Clear(int64_t begin, int64_t end) const {
    if (s_.is_in_place) return;
    const float zeros[kTapChannels] = {};
    for (int64_t t = begin; t < end; ++t) Store(zeros, TokenOf(in_.out, t), StrideOf(in_.out));
  }

  // ---- Lines of the states ----

  bool IsLine(int64_t line) const { return line >= 0 && line < s_.lines; }
  int64_t LineOf(int64_t b, int64_t block) const {
    if (s_.blocks == 0) return in_.lines.data == nullptr ? b : NumberAt(in_.lines, b);
    if (block < 0 || block >= s_.blocks) return kNoLine;
    return static_cast<const int32_t*>(in_.lines.data)[b * in_.lines.strides[0] + block * in_.lines.strides[1]];
  }
  int64_t BlockOf(const TensorRef& blocks, int64_t b) const { return s_.blocks == 0 ? 0 : NumberAt(blocks, b); }

  // Row i of a sequence behind its first W - 1 kept ones, which are negative: what the convolution of token i sees
  // last.
  void LoadRow(int64_t begin, int64_t i, float* to) const {
    if (i < 0) {
      std::memcpy(to, before_[i + s_.window - 1], sizeof(before_[0]));
    } else {
      Load(TokenOf(in_.x, begin + i), StrideOf(in_.x), to);
    }
  }

  // The last rows of what the sequence has seen become the last of a line: those of x, and before them those that lie
  // in line `from`, `kept` of them, which may be the same line.
  void Keep(int64_t from, int64_t kept, int64_t to, int64_t begin, int64_t length) const {
    const int64_t seen = kept + length;
    const int64_t moved = std::min(s_.line_tokens, seen);
    const int64_t stride = StrideOf(in_.states);
    const int64_t of_line = std::max<int64_t>(kept - (seen - moved), 0);  // rows that come from the other line
    const float zeros[kTapChannels] = {};
    for (int64_t n = 0; n < of_line; ++n) {
      // A row goes towards the start where x takes its place, else towards the end.
      const int64_t i = seen >= s_.line_tokens ? n : of_line - 1 - n;
      char* const target = KeptOf(to, s_.line_tokens - moved + i);
      if (from == kNoLine) {
        Store(zeros, target, stride);
      } else {
        copy_(KeptOf(from, seen - moved + i), stride, target, stride, count_);
      }
    }
    for (int64_t i = of_line; i < moved; ++i) {
      copy_(TokenOf(in_.x, begin + seen - moved + i - kept), StrideOf(in_.x), KeptOf(to, s_.line_tokens - moved + i),
            stride, count_);
    }
  }

  // The W - 1 rows before the end of each block that is full now, but for the last one.
  void KeepBlocks(int64_t b, int64_t begin, int64_t length, int64_t computed) {
    const int64_t block = s_.block_tokens;
    const int64_t first = BlockOf(in_.first_block, b);
    const int64_t filled = BlockOf(in_.last_block, b) - first;
    const int64_t left = Remainder(length - (block - Remainder(computed, block)), block);
    const int64_t last_end = left == 0 ? length - block : length - left;
    float row[kTapChannels];
    for (int64_t chunk = std::max<int64_t>(-first, 0); chunk < std::min(filled, s_.blocks - first); ++chunk) {
      const int64_t end = last_end - (filled - chunk - 1) * block;
      const int64_t line = LineOf(b, first + chunk);
      if (!IsLine(line) || end < 0 || end > length) continue;
      for (int64_t j = 0; j + 1 < s_.window; ++j) {
        LoadRow(begin, end + j - (s_.window - 1), row);
        Store(row, KeptOf(line, s_.line_tokens - (s_.window - 1) + j), StrideOf(in_.states));
      }
    }
  }

  // ---- A sequence ----

  // False: it is left out.
  bool RunSequence(int64_t b, int64_t begin, int64_t length) {
    const int64_t read = LineOf(b, BlockOf(in_.initial_block, b));
    if (read == s_.skipped_line) return false;
    if (length == 0) return true;
    const bool has_computed = in_.computed.data != nullptr;
    const int64_t computed = has_computed ? NumberAt(in_.computed, b) : 0;
    const int64_t before = s_.window - 1;
    const int64_t most = s_.line_tokens - before;
    int64_t offset = most;
    if (in_.accepted.data != nullptr) offset = std::clamp<int64_t>(NumberAt(in_.accepted, b) - 1, 0, most);
    const bool is_new = has_computed && computed == 0;
    if (is_new) offset = 0;
    const int64_t from = is_new || !IsLine(read) ? kNoLine : read;
    for (int64_t j = 0; j < before; ++j) {
      std::fill_n(before_[j], kTapChannels, 0.0f);
      if (from != kNoLine) Load(KeptOf(from, offset + j), StrideOf(in_.states), before_[j]);
    }
    const int64_t write = LineOf(b, BlockOf(in_.last_block, b));
    if (IsLine(write)) Keep(from, offset + before, write, begin, length);
    if (s_.blocks != 0) KeepBlocks(b, begin, length, computed);
    Convolve(begin, length, s_.clears_start ? std::clamp<int64_t>(before - computed, 0, length) : 0);
    return true;
  }

  void Convolve(int64_t begin, int64_t length, int64_t cleared) {
    const int64_t window = s_.window;
    float sum[kTapChannels];
    for (int64_t j = 0; j + 1 < window; ++j) std::memcpy(rows_[j], before_[j], sizeof(rows_[0]));
    for (int64_t i = 0; i < length; ++i) {
      // Row r of what was seen lies in slot r % window.
      float* const own = rows_[(i + window - 1) % window];
      Load(TokenOf(in_.x, begin + i), StrideOf(in_.x), own);
      std::fill_n(sum, kTapChannels, 0.0f);
      for (int64_t w = 0; w < window && i >= cleared; ++w) {
        const float* const row = rows_[(i + w) % window];
        for (int64_t c = 0; c < count_; ++c) sum[c] += weight_[w][c] * row[c];
      }
      if (s_.adds_input) {
        for (int64_t c = 0; c < count_; ++c) sum[c] += own[c];
      }
      Store(sum, TokenOf(in_.out, begin + i), StrideOf(in_.out));
    }
  }

  const KeptConvolution& s_;
  const KeptConvolutionOperands& in_;
  const int64_t first_, count_;  // channels
  const int64_t item_;
  const CastFn widen_, narrow_, copy_;
  float weight_[kMostTaps][kTapChannels];
  float before_[kMostTaps][kTapChannels];  // W - 1 rows
  float rows_[kMostTaps][kTapChannels];
};

}  // namespace

void ConvolveKept(const KeptConvolution& shape, const KeptConvolutionOperands& operands, Range range) {
  for (int64_t group = range.begin; group < range.end; ++group) {
    const int64_t first = group * kTapChannels;
    KeptChannels(shape, operands, first, std::min(kTapChannels, shape.channels - first)).Run();
  }
}

}  // namespace reprise::kernels
