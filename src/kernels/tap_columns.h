// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of few outputs, channels back to back, over one or two spatial dims, plain and transposed. With one
// output in each lane of a vector most lanes would be empty; here each tap of each output is a column of one product:
//
//   z[q, t, o] = sum over i of weight[o, i, t] * in[q, i]     for pixels q of the input
//   out[p, o]  = sum over taps t, in order, of z[place of t at p, t, o]
//
// Rows of z are kept in a ring while rows of outputs read them, with pixels of zeros around them for taps in the
// padding: also there, Inf * 0 is NaN.
#pragma once

#include <vector>

#include "kernels/convolution.h"
#include "kernels/convolution_phases.h"

namespace reprise::kernels {

/// Everything that follows from a shape; const and safe for use by many threads.
class TapColumns {
 public:
  /// Whether it computes this, in fewer vectors than outputs by taps are, and keeps no more than the caches do.
  static bool Pays(const ConvShape& shape);

  /// \pre one group; nothing in the first of three dims; at most 8 outputs
  explicit TapColumns(const ConvShape& shape);

  int64_t packed_elements() const { return panels_ * width_ * depth_; }
  int64_t PackScratchBytes() const;
  /// \param lines  weights as [output, tap, channel]
  void Pack(const float* lines, float* packed, void* scratch) const;

  /// Units are rows of outputs of all pictures that follow one another.
  int64_t units() const { return units_; }
  Range RowsOf(int64_t unit) const { return {rows_ * unit / units_, rows_ * (unit + 1) / units_}; }
  /// Multiply-adds of one unit.
  int64_t unit_cost() const;

  int64_t ScratchBytes() const;
  /// Elements; pixel (n, y, x) of the input lies at n * batch_step + y * row_step + x * pixel_step.
  struct Operands {
    const float* input;
    int64_t batch_step, row_step, pixel_step;
    const float* packed;
    float* out;  ///< of the first row
    int64_t out_step;
  };
  /// Sums, without what follows them.
  void Run(const Operands& operands, Range rows, void* scratch) const;

 private:
  class Ring;

  // Rows of the input that output row `row` of a picture may meet, in the padding, too.
  Range Reach(int64_t row) const;
  int64_t row_elements() const { return pixels_ * columns_; }

  int64_t outputs_, taps_, depth_;
  int64_t columns_;  // taps by outputs
  int64_t width_, panels_;
  int64_t rows_ = 0, units_ = 1;
  ConvDim height_, breadth_;
  bool is_transposed_;
  std::vector<ConvPhase> phases_[2];       // of rows, of pixels
  int64_t ring_ = 0;                       // rows that are kept
  int64_t zeros_before_ = 0, pixels_ = 0;  // of a row of z, with its zeros
};

}  // namespace reprise::kernels
