// SPDX-License-Identifier: Apache-2.0
//
// ConvBand: convolutions of which each reads what the one before gives, computed row by row, so that what is between
// them is never written to memory: of each result between there are only the rows that the next convolution needs, in
// memory that stays in the caches.
//
// Formula   that of the convolutions one after the other (channels_last_conv.h), with the same bits.
// Aliasing  none.
//
// A unit is a band of rows of the last result. Of the results before, rows that two bands need are computed for each
// of them, so that bands do not wait for one another; where that is too much work, or what is between is small, there
// is no band.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/channels_last_conv.h"

namespace reprise::kernels {

/// Const and safe for use by many threads.
class ConvBand {
 public:
  using Convs = std::vector<std::shared_ptr<const ChannelsLastConv>>;
  static constexpr size_t kMostConvs = 4;

  /// Null where it would not pay. Each convolution reads the result of the one before, which nobody else needs.
  /// \param threads  that may work on it
  static std::shared_ptr<const ConvBand> Of(Convs convs, int64_t threads);

  const Convs& convs() const { return convs_; }
  int64_t units() const { return shape(0).batch * bands_; }
  /// Multiply-adds of one unit.
  int64_t unit_cost() const;
  int64_t ScratchBytes() const;
  /// Pixels of all pictures that a unit computes, with all of their channels.
  Range PixelsOf(int64_t unit) const;

  /// \param operands  of the convolutions in their order: of the first one all, of the last one all but the input, of
  ///                  those between them no addend
  void Run(std::span<const ChannelsLastConv::RowOperands> operands, const TensorRef& out, Range units,
           void* scratch) const;

 private:
  explicit ConvBand(Convs convs) : convs_(std::move(convs)), kept_(convs_.size()) {}

  const ConvShape& shape(size_t stage) const { return convs_[stage]->shape(); }
  Range RowsFor(size_t stage, Range rows) const;
  int64_t RowElements(size_t stage) const;
  int64_t RowCost(size_t stage) const;
  int64_t KeptBytes() const;
  int64_t RepeatedCost(int64_t bands) const;
  void SetStep(int64_t rows);
  bool CutIntoBands(int64_t threads);
  Range RowsOf(int64_t unit) const;
  void RunBand(std::span<const ChannelsLastConv::RowOperands> operands, const TensorRef& out, int64_t picture,
               Range rows, void* scratch) const;

  const Convs convs_;
  int64_t bands_ = 1;          // of a picture
  int64_t step_ = 1;           // rows of the last result in one go
  std::vector<int64_t> kept_;  // rows of each other result that are kept
};

}  // namespace reprise::kernels
