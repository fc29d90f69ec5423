// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of tensors whose channels lie back to back (NHWC, NDHWC), float32 inside, over up to three spatial dims,
// plain and transposed, in groups, with what follows them: a sum with another tensor, an activation.
//
// Formula   out[n, y, o] = activation(scaling[o](bias[o] + sum over k, i of weight[o, i, k] * in[n, y * stride +
//   k * dilation - pad, i]) + addend[n, y, o]); elements of in outside of it are 0.
//   Transposed: the sum over i and the x, k with y = x * stride + k * dilation - pad, of weight[i, o, k] * in[n, x, i].
// Accumulation  float32: k is walked first, i fastest, in blocks of about 256 that are added in order; bias and addend
//   come last; rounded once. Of up to 8 outputs: the sum over i of each k first.
// Order     depends on the shape alone. Multiply and add are fused where the processor can.
// NaN, Inf  as IEEE 754, also in the padding: Inf * 0 is NaN. A clamp leaves NaN.
// Aliasing  none.
//
// How it is done. For each output pixel and tap there is a pointer to the channels of the input that meet there, or to
// zeros where the tap is in the padding: no pixel is copied, and taps that neighbours have in the padding are left out
// where all weights are finite. Weights are packed into panels of channels, one after the
// other as the product reads them. Inputs of few channels are copied with their padding, so that the taps of a row of
// the kernel are one run; so are those of other types, which are converted on the way. Groups of one channel go through
// a product of vectors over channels. A transposed convolution is a plain one of stride 1 for each residue of the
// outputs modulo the stride. Few outputs are computed otherwise (tap_columns.h).
#pragma once

#include <memory>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/elementwise.h"
#include "kernels/simd/channels_last.h"
#include "kernels/strided.h"
#include "kernels/tap_columns.h"

namespace reprise::kernels {

/// What follows a convolution and a sum with another tensor.
enum class ConvActivation : uint8_t { kNone, kClamp, kHardSwish, kSwish, kRelu, kRow };
struct ConvEpilogue {
  ConvActivation activation = ConvActivation::kNone;
  float low = 0, high = 0;          ///< of a clamp
  RowFn row = nullptr;              ///< of kRow: a function of one input, float32
  float numbers[kMaxNumbers] = {};  ///< that it takes
};

/// What becomes of sums that are there, in a pass of its own: a row function, or nothing.
class ActivationPass {
 public:
  ActivationPass() = default;
  explicit ActivationPass(const ConvEpilogue& epilogue);

  bool IsNothing() const { return row_ == nullptr; }
  /// In place; `step`: elements from one pixel to the next.
  void Run(float* sums, int64_t step, int64_t pixels, int64_t columns) const;

 private:
  RowFn row_ = nullptr;
  float numbers_[kMaxNumbers] = {};
};

/// Everything that follows from shapes, types and strides; const and safe for use by many threads.
///
/// Input, addend and out are [N, C, D, H, W], weight has rank 5, too.
class ChannelsLastConv {
 public:
  /// Whether it computes this. Views have rank 5; the shape fits them.
  static bool Fits(const ConvShape& shape, const TensorRef& input, const TensorRef& out);
  /// Whether a tap reaches each output, as it has to where the convolution is transposed.
  static bool ReachesAll(const ConvShape& shape);

  /// \param keeps_weight  the packed weight serves many runs, so that more may be made of it
  /// \pre Fits(shape, input, out)
  ChannelsLastConv(const ConvShape& shape, const TensorRef& input, const TensorRef& out, const ConvEpilogue& epilogue,
                   bool keeps_weight = false);

  const ConvShape& shape() const { return shape_; }
  /// float32 elements of the prepared input; 0: Convolve reads the input itself.
  int64_t source_elements() const { return source_elements_; }
  /// Its rows.
  int64_t prepare_units() const { return shape_.batch * source_planes_ * source_rows_; }
  int64_t prepare_cost() const { return source_row_; }
  void Prepare(const TensorRef& input, float* source, Range range) const;

  int64_t packed_elements() const { return packed_elements_; }
  int64_t pack_units() const { return is_depthwise_ || tap_columns_ != nullptr ? 1 : shape_.groups * panels_; }
  int64_t pack_cost() const { return packed_elements_ / pack_units(); }
  int64_t PackScratchBytes() const;
  void Pack(const TensorRef& weight, float* packed, Range range, void* scratch) const;
  /// On which numbers the packed weight depends beside the weight.
  void TellPacking(std::vector<int64_t>& numbers) const;

  int64_t units() const {
    return phases_ != nullptr ? phase_units_ : (is_depthwise_ ? 1 : shape_.groups * column_blocks_) * pixel_blocks_;
  }
  /// Whether it multiplies transformed patches.
  bool by_patches() const { return by_patches_; }
  /// Whether a unit computes pixels that follow one another, and some of their channels.
  bool has_tiles() const { return !by_patches_ && phases_ == nullptr && tap_columns_ == nullptr; }
  /// Whether taps of outputs are columns of a product.
  bool by_tap_columns() const { return tap_columns_ != nullptr; }
  /// What a unit computes. \pre has_tiles()
  struct Tile {
    Range pixels;  ///< of all pictures
    Range channels;
  };
  Tile TileOf(int64_t unit) const;
  /// Multiply-adds of one unit.
  int64_t unit_cost() const;
  int64_t ScratchBytes() const;
  /// \param source        null: `input` is read
  /// \param bias, addend  null: none; addend has the type of out
  void Convolve(const TensorRef& input, const float* source, const float* packed, const TensorRef* bias,
                const TensorRef* addend, const TensorRef& out, Range range, void* scratch,
                const simd::ChannelScaling& scaling = {}) const;

  /// Whether some rows of outputs can be computed by themselves (ConvolveRows).
  bool has_rows() const;
  /// Whether it takes pixels one by one and all of a picture as one row, and the same with rows of `width` pixels.
  bool IsFlat() const;
  std::shared_ptr<const ChannelsLastConv> WithRows(int64_t height, int64_t width) const;
  /// Where ConvolveRows reads, and what else there is to be computed.
  struct RowOperands {
    TensorRef input;
    const float* source = nullptr;  ///< null: `input` is read
    int64_t ring = 0;  ///< rows of the input that there are, row y in place of row y - ring; 0: all are there
    const float* packed = nullptr;
    const TensorRef* bias = nullptr;  ///< these two: null: none
    const TensorRef* addend = nullptr;
    simd::ChannelScaling scaling = {};
  };
  /// All channels of some pixels of all pictures. `out`: where pixel 0 would lie.
  /// \pre has_rows(); scratch as for Convolve
  void ConvolveRows(const RowOperands& operands, const TensorRef& out, Range pixels, void* scratch) const;

 private:
  /// Taps and channels, walked in this order, that are summed in one go.
  struct Block {
    int64_t first_tap, taps, first_channel, depth;
    int64_t begin;  ///< of all taps times channels, how many lie before it
    int64_t count() const { return taps * depth; }
  };
  struct Operands;
  struct Scratch;
  struct Phase;
  class Places;

  // What a unit computes.
  struct Part {
    Range pixels;  // or patches
    int64_t group;
    Range panels;
    int64_t first_column, columns;  // of the group, which the panels have
    int64_t first_channel;          // of out
  };

  void MakePhases(const TensorRef& input, const TensorRef& out, bool keeps_weight);
  bool AllowsPatches(const TensorRef& input) const;
  void CutDepth();
  void CutIntoUnits();
  int64_t all_channels() const { return shape_.groups * shape_.in_channels; }
  int64_t pixels() const { return shape_.batch * shape_.dims[0].out * shape_.dims[1].out * shape_.dims[2].out; }
  int64_t patch_rows() const { return (shape_.dims[1].out + 1) / 2; }
  int64_t row_patches() const { return (shape_.dims[2].out + 1) / 2; }
  int64_t patches() const { return shape_.batch * patch_rows() * row_patches(); }
  int64_t most_pixels() const { return (pixels() + pixel_blocks_ - 1) / pixel_blocks_; }    // of a unit
  int64_t most_patches() const { return (patches() + pixel_blocks_ - 1) / pixel_blocks_; }  // of a unit
  int64_t patch_width() const;  // columns that are multiplied in one go
  int64_t most_columns() const;
  int64_t kept_places() const;
  int64_t kept_patches() const { return by_patches_ ? most_patches() : 0; }
  int64_t kept_sums() const { return is_direct_ ? 0 : most_pixels() * most_columns(); }
  void FindRows(const Operands& operands, int64_t group, Range pixels, const float** rows, const float* zeros) const;
  void FilterRows(const Operands& operands, Range pixels, const Scratch& scratch, float* sums, int64_t sums_step,
                  simd::PixelEpilogue epilogue) const;
  Part PartOf(int64_t unit) const;
  Operands OperandsOf(const RowOperands& given, const TensorRef& out) const;
  Scratch CutScratch(void* memory, const TensorRef* bias) const;
  simd::PixelEpilogue EpilogueOf(const Operands& operands, const Part& part, const Scratch& scratch) const;
  void MultiplyPixels(const Operands& operands, const Part& part, const Scratch& scratch, float* sums,
                      int64_t sums_step, const simd::PixelEpilogue& epilogue) const;
  void ActivatePatches(const Part& part, int64_t left_out, float* to, int64_t step, const Scratch& scratch) const;
  void RunPixels(const Operands& operands, const Part& part, const Scratch& scratch) const;
  void RunPatches(const Operands& operands, const Part& part, const Scratch& scratch) const;
  void RunTapColumns(const Operands& operands, const Part& part, const Scratch& scratch) const;
  void FindPatches(const Operands& operands, Range patches, const Scratch& scratch) const;
  void GatherLines(const TensorRef& weight, int64_t group, Range outputs, float* lines) const;
  void PackPanel(const float* lines, int64_t group, int64_t panel, int64_t columns, float* packed,
                 float* filters) const;
  void PackPatches(const float* lines, int64_t panel, int64_t columns, float* packed, float* filters) const;

  ConvShape shape_;
  ConvEpilogue epilogue_;
  ActivationPass activate_;    ///< of activations that sums do not become while they are stored
  bool is_direct_ = false;     ///< sums are where the outputs are
  bool is_depthwise_ = false;  ///< groups of one channel
  bool joins_taps_ = false;    ///< those of a row of the kernel are one
  bool by_patches_ = false;    ///< units are made of patches (simd/patches.h)
  int64_t run_ = 0;            ///< channels of a tap, of one group or of joined taps
  int64_t taps_ = 0;
  int64_t width_ = 0;   ///< of a panel
  int64_t panels_ = 0;  ///< of a group
  int64_t source_elements_ = 0, source_planes_ = 0, source_rows_ = 0, source_row_ = 0;
  int64_t packed_elements_ = 0;
  int64_t patch_begin_ = 0;  ///< in what is packed: the transformed filters
  /// Taps that all pixels of a tile have in the padding are left out, unless weights that are not finite would make NaN
  /// of its zeros.
  bool leaves_out_padding_ = false;
  int64_t finite_begin_ = 0;  ///< in what is packed: whether a panel's weights are finite, 1 or 0
  int64_t pixel_blocks_ = 1, column_blocks_ = 1;
  std::vector<Block> blocks_;
  std::vector<Range> channel_blocks_;                 ///< of products of patches
  std::shared_ptr<const TapColumns> tap_columns_;     ///< of few outputs; then units are its own
  std::shared_ptr<const std::vector<Phase>> phases_;  ///< of a transposed convolution; then most others stay empty
  int64_t phase_units_ = 0;
};

}  // namespace reprise::kernels
