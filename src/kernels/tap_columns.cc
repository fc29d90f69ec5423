// SPDX-License-Identifier: Apache-2.0
#include "kernels/tap_columns.h"

#include <algorithm>

#include "kernels/plane.h"
#include "kernels/simd/channels_last.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kMostOutputs = 8;
constexpr int64_t kLeastChannels = 16;   // below it the taps of a row are joined
constexpr int64_t kDepth = 256;          // of a block of the product
constexpr int64_t kUnits = 16;           // at most
constexpr int64_t kLeastCost = 1 << 16;  // multiply-adds of a unit
constexpr int64_t kSlack = 8;            // elements behind the last pixel that are read
constexpr int64_t kMostKept = 1 << 18;   // elements of rows that are kept: the second-level cache

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t FloorDivide(int64_t n, int64_t by) { return n >= 0 ? n / by : -DivideUp(-n, by); }

// Pairs of a pixel and a tap of it.
int64_t PairsOf(const ConvShape& shape) {
  const ConvDim& h = shape.dims[1];
  const ConvDim& w = shape.dims[2];
  const int64_t pixels = shape.transposed ? h.in * w.in : h.out * w.out;
  return shape.batch * pixels * h.kernel * w.kernel;
}

// How far behind its first tap the last one of an output may be, in rows or pixels of the input.
int64_t SpanOf(const ConvDim& dim, bool transposed) {
  const int64_t span = (dim.kernel - 1) * dim.dilation;
  return transposed ? span / dim.stride : span;
}

}  // namespace

bool TapColumns::Pays(const ConvShape& shape) {
  const int64_t taps = shape.dims[1].kernel * shape.dims[2].kernel;
  if (!IsUnused(shape.dims[0]) || taps == 1 || shape.groups != 1 || shape.out_channels > kMostOutputs ||
      shape.in_channels < kLeastChannels)
    return false;
  const ConvDim& w = shape.dims[2];
  const int64_t row = (w.in + 2 * (w.kernel - 1) * w.dilation) * taps * shape.out_channels;
  if ((SpanOf(shape.dims[1], shape.transposed) + 2) * row > kMostKept) return false;
  const int64_t lanes = simd::PanelWidth(float()) / 2;
  const int64_t by_outputs = PairsOf(shape) * DivideUp(shape.out_channels, lanes) * shape.in_channels;
  const int64_t inputs = shape.batch * shape.dims[1].in * shape.dims[2].in;
  const int64_t by_taps = inputs * DivideUp(taps * shape.out_channels, lanes) * shape.in_channels +
                          PairsOf(shape) * DivideUp(shape.out_channels, 4);
  return 4 * by_taps < 3 * by_outputs;
}

TapColumns::TapColumns(const ConvShape& shape)
    : outputs_(shape.out_channels),
      taps_(shape.dims[1].kernel * shape.dims[2].kernel),
      depth_(shape.in_channels),
      columns_(taps_ * outputs_),
      width_(simd::PanelWidth(float())),
      panels_(DivideUp(columns_, width_)),
      rows_(shape.batch * shape.dims[1].out),
      height_(shape.dims[1]),
      breadth_(shape.dims[2]),
      is_transposed_(shape.transposed) {
  for (int i = 0; i < 2; ++i) phases_[i] = PhasesOf(shape.dims[1 + i], shape.transposed);
  ring_ = SpanOf(height_, is_transposed_) + 1;
  const int64_t step = is_transposed_ ? 1 : breadth_.stride;
  int64_t last = breadth_.in - 1;
  for (const ConvPhase& phase : phases_[1]) {
    for (const ConvTap& tap : phase.taps) {
      zeros_before_ = std::max(zeros_before_, -tap.shift);
      last = std::max(last, (phase.count - 1) * step + tap.shift);
    }
  }
  pixels_ = zeros_before_ + last + 1;
  // A unit computes rows of z for itself that the one before it has had, too: a fifth of its rows at most.
  const int64_t again = (height_.kernel - 1) * height_.dilation / (is_transposed_ ? 1 : height_.stride);
  const int64_t cost = shape.batch * height_.in * breadth_.in * columns_ * depth_;
  units_ = std::clamp<int64_t>(std::min(rows_ / (4 * again + 1), cost / kLeastCost), 1, kUnits);
}

int64_t TapColumns::unit_cost() const {
  const int64_t rows = DivideUp(rows_, units_);
  const int64_t read = is_transposed_ ? DivideUp(rows, height_.stride) : rows * height_.stride;
  return (read + ring_ - 1) * breadth_.in * panels_ * width_ * depth_;
}

int64_t TapColumns::PackScratchBytes() const { return ScratchCutter::Bytes<float>(columns_ * depth_); }

void TapColumns::Pack(const float* lines, float* packed, void* scratch) const {
  ScratchCutter cut(scratch);
  auto* const ordered = cut.Cut<float>(columns_ * depth_);
  for (int64_t o = 0; o < outputs_; ++o) {
    for (int64_t t = 0; t < taps_; ++t) {
      std::copy_n(lines + (o * taps_ + t) * depth_, depth_, ordered + (t * outputs_ + o) * depth_);
    }
  }
  for (int64_t first = 0; first < depth_; first += kDepth) {
    const int64_t depth = std::min(kDepth, depth_ - first);
    for (int64_t column = 0; column < panels_ * width_; column += width_, packed += depth * width_) {
      const int64_t count = std::min(width_, columns_ - column);
      if (count < width_) std::fill_n(packed, depth * width_, 0.0f);
      simd::Transpose(ordered + column * depth_ + first, depth_, count, depth, packed, width_);
    }
  }
}

Range TapColumns::Reach(int64_t row) const {
  const int64_t span = (height_.kernel - 1) * height_.dilation;
  if (!is_transposed_) {
    const int64_t first = row * height_.stride - height_.pad;
    return {first, first + span + 1};
  }
  const int64_t last = row + height_.pad;
  return {-FloorDivide(span - last, height_.stride), FloorDivide(last, height_.stride) + 1};
}

// Rows of z, row y in place of row y - ring_, and behind them one of zeros.
class TapColumns::Ring {
 public:
  Ring(const TapColumns& conv, const Operands& operands, void* scratch) : conv_(conv), operands_(operands) {
    ScratchCutter cut(scratch);
    z_ = cut.Cut<float>((conv.ring_ + 1) * conv.row_elements() + kSlack);
    pixels_ = cut.Cut<const float*>(conv.breadth_.in);
    auto* const zeros = cut.Cut<float>(conv.depth_);
    std::fill_n(zeros, conv.depth_, 0.0f);
    pixels_[0] = zeros;
    float* const zero = Row(conv.ring_);
    Multiply(1, zero);
    for (int64_t i = 1; i < conv.pixels_; ++i) std::copy_n(zero, conv.columns_, zero + i * conv.columns_);
    const int64_t before = conv.zeros_before_ * conv.columns_;
    const int64_t inside = conv.breadth_.in * conv.columns_;
    for (int64_t i = 0; i < conv.ring_; ++i) {
      std::copy_n(zero, before, Row(i));
      std::copy_n(zero, conv.row_elements() - before - inside, Row(i) + before + inside);
    }
  }

  static int64_t Bytes(const TapColumns& conv) {
    return ScratchCutter::Bytes<float>((conv.ring_ + 1) * conv.row_elements() + kSlack) +
           ScratchCutter::Bytes<const float*>(conv.breadth_.in) + ScratchCutter::Bytes<float>(conv.depth_);
  }

  void Compute(int64_t n, int64_t y) {
    const float* from = operands_.input + n * operands_.batch_step + y * operands_.row_step;
    for (int64_t x = 0; x < conv_.breadth_.in; ++x) pixels_[x] = from + x * operands_.pixel_step;
    Multiply(conv_.breadth_.in, Row(y % conv_.ring_) + conv_.zeros_before_ * conv_.columns_);
  }

  // Its pixel 0.
  const float* At(int64_t y) const {
    const bool is_inside = y >= 0 && y < conv_.height_.in;
    return Row(is_inside ? y % conv_.ring_ : conv_.ring_) + conv_.zeros_before_ * conv_.columns_;
  }

 private:
  float* Row(int64_t slot) const { return z_ + slot * conv_.row_elements(); }

  void Multiply(int64_t count, float* to) const {
    const float* packed = operands_.packed;
    for (int64_t first = 0; first < conv_.depth_; first += kDepth) {
      const int64_t depth = std::min(kDepth, conv_.depth_ - first);
      simd::MultiplyPixels({pixels_,
                            count,
                            count,
                            1,
                            first,
                            depth,
                            packed,
                            nullptr,
                            conv_.columns_,
                            to,
                            conv_.columns_,
                            first != 0,
                            false,
                            {}});
      packed += conv_.panels_ * conv_.width_ * depth;
    }
  }

  const TapColumns& conv_;
  const Operands& operands_;
  float* z_;
  const float** pixels_;
};

int64_t TapColumns::ScratchBytes() const { return Ring::Bytes(*this) + ScratchCutter::Bytes<const float*>(taps_); }

void TapColumns::Run(const Operands& operands, Range rows, void* scratch) const {
  ScratchCutter cut(scratch);
  auto* const taps = cut.Cut<const float*>(taps_);
  Ring ring(*this, operands, cut.Cut<char>(Ring::Bytes(*this)));
  const int64_t step_in = is_transposed_ ? 1 : breadth_.stride;
  const int64_t step_out = is_transposed_ ? breadth_.stride : 1;
  const auto residues = static_cast<int64_t>(phases_[0].size());
  int64_t next = 0;  // row of the input that is not there yet
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t n = row / height_.out;
    const int64_t y = row % height_.out;
    if (y == 0 || row == rows.begin) next = 0;
    const Range reach = Reach(y);
    for (next = std::max(next, reach.begin); next < std::min(reach.end, height_.in); ++next) ring.Compute(n, next);
    const ConvPhase& of_rows = phases_[0][static_cast<size_t>(y % residues)];
    const int64_t first = is_transposed_ ? y / height_.stride : y * height_.stride;
    float* const to = operands.out + (row - rows.begin) * breadth_.out * operands.out_step;
    for (const ConvPhase& of_pixels : phases_[1]) {
      int64_t count = 0;
      for (const ConvTap& h : of_rows.taps) {
        const float* const line = ring.At(first + h.shift);
        for (const ConvTap& w : of_pixels.taps) {
          taps[count++] = line + w.shift * columns_ + (h.kernel * breadth_.kernel + w.kernel) * outputs_;
        }
      }
      simd::SumTaps({taps, count, step_in * columns_, of_pixels.count, outputs_,
                     to + of_pixels.first * operands.out_step, step_out * operands.out_step});
    }
  }
}

}  // namespace reprise::kernels
