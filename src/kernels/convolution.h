// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of up to three spatial dims, plain and transposed, in groups.
//
// Formula   plain:       out[n, o, y] = bias[o] + sum over i, k of weight[o, i, k] * in[n, i, y * stride + k * dilation
// - pad]
//           transposed:  out[n, o, y] = bias[o] + sum over i, k of weight[i, o, k] * in[n, i, x] for the x, k with
//                        y = x * stride + k * dilation - pad
//   Elements of in outside of it are 0; i and o count the channels of one group.
// Accumulation  float32 for float32, float16 and bfloat16, float64 for float64: sums of products over (i, k), k
// fastest,
//   in blocks of up to 256 and nearly equal size that are added in order; the bias is added last; rounded once. With
//   one tap these are the sums of channels_last_conv.h, and so they are in groups of one channel.
// Order     depends on the shape alone. Multiply and add are fused where the processor can.
// NaN, Inf  as IEEE 754, also in the padding: Inf * 0 is NaN.
// Aliasing  none.
//
// How it is done. A transposed convolution is one plain convolution of stride 1 for each residue of the outputs modulo
// the stride, with the taps that meet there; so there is a list of phases, of which a plain convolution has one. The
// input is copied with its padding around it into the type of the accumulation, each plane split by its positions
// modulo the stride, unless it already is what that would give. From there every tap of every row of outputs is
// contiguous. The weights are packed into the panels of simd/matmul_tile.h and multiplied with panels of columns: one
// column for each output position, as deep as the taps times the channels. Groups of one or two outputs go without
// panels: a plane of outputs is one long row, with what lies between its rows computed in vain. Where such groups are
// small they prepare their own input. Weights of float32 whose channels and taps lie in a line are read where they lie.
#pragma once

#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

struct ConvDim {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t pad = 0;
  int64_t dilation = 1;
};

struct ConvShape {
  int64_t batch = 1;
  int64_t groups = 1;
  int64_t in_channels = 1;   ///< of a group
  int64_t out_channels = 1;  ///< of a group
  ConvDim dims[3];           ///< D, H, W
  bool transposed = false;
};

/// A dim that is only there to make three.
inline bool IsUnused(const ConvDim& dim) { return dim.in == 1 && dim.out == 1 && dim.kernel == 1 && dim.pad == 0; }

/// Taps of the kernel.
inline int64_t KernelSize(const ConvShape& shape) {
  return shape.dims[0].kernel * shape.dims[1].kernel * shape.dims[2].kernel;
}
/// Whether the last three dims of a view of rank 5, the taps of a filter, lie in a line, one element after the other.
bool HasLinesOfTaps(const TensorRef& ref);

/// The numbers of a shape, to tell it from others.
void AppendNumbers(const ConvShape& shape, std::vector<int64_t>& numbers);

/// Everything that follows from shapes, types and strides; const and safe for use by many threads.
///
/// Input and out are [N, C, D, H, W], weight has rank 5, too. The source is what Convolve reads: the prepared copy or
/// the input itself.
class ConvSetup {
 public:
  /// Rewrites shape and views of kernels of size 1 to fewer, longer rows.
  static void Simplify(ConvShape& shape, TensorRef& input, TensorRef& out);

  /// \param weight  what Convolve may read where it lies, if that will do; null: it is packed
  ConvSetup(const ConvShape& shape, const TensorRef& input, const TensorRef* weight = nullptr);

  const ConvShape& shape() const { return shape_; }
  /// float32 or float64.
  DType compute() const { return compute_; }

  /// Elements of the prepared input; 0: Convolve reads the input itself.
  int64_t source_elements() const { return is_direct_ || is_fused_ ? 0 : source_elements_; }
  int64_t prepare_units() const;
  int64_t prepare_cost() const { return size_[1] * size_[2]; }
  void Prepare(const TensorRef& input, void* source, Range range) const;

  /// 0: Convolve reads the weight itself.
  int64_t packed_elements() const { return weight_row_ != 0 ? 0 : packed_elements_; }
  int64_t pack_units() const;
  int64_t pack_cost() const;
  void Pack(const TensorRef& weight, void* packed, Range range, void* scratch) const;
  int64_t PackScratchBytes() const;
  /// On which numbers the packed weight depends beside the weight.
  void TellPacking(std::vector<int64_t>& numbers) const;

  int64_t units() const { return units_; }
  /// Multiply-adds of one unit.
  int64_t unit_cost() const { return unit_cost_; }
  /// \param input   what is read if there is no prepared source
  /// \param source  null: there is none
  /// \param packed  the packed weight, or its first element
  /// \param bias    null: none
  void Convolve(const TensorRef& input, const void* source, const void* packed, const TensorRef* bias,
                const TensorRef& out, Range range, void* scratch) const;
  int64_t ScratchBytes() const;

 private:
  void CutIntoUnits();

  struct Phase {
    int64_t first[3], count[3];   // outputs: first + i * step_out, i < count
    std::vector<int64_t> taps;    // offset in the source of each tap
    std::vector<int64_t> kernel;  // its position in the kernel, row-major
    std::vector<int64_t> offset;  // in the source, for each (channel, tap)
    int64_t columns;              // outputs of one channel, all of the batch
    int64_t block_columns;        // of a unit
    int64_t column_blocks;
    int64_t packed_begin;
    int64_t pack_begin;  // units
    int64_t unit_begin;
    int64_t depth() const { return static_cast<int64_t>(offset.size()); }
  };
  template <class T>
  friend class ConvRunner;

  template <class T>
  void PrepareAs(const TensorRef& input, T* source, Range range) const;
  template <class T>
  void PreparePart(const TensorRef& input, int64_t plane, int64_t part, bool has_zeros, T* to) const;
  template <class T>
  void PackAs(const TensorRef& weight, T* packed, Range range, T* scratch) const;

  ConvShape shape_;
  DType compute_;
  bool is_direct_ = false;  // the input is the source
  bool by_rows_ = false;    // without panels
  bool is_fused_ = false;   // each unit, a group of an entry of the batch, prepares its input
  int64_t weight_row_ = 0;  // elements from one output channel to the next of a weight that is read where it lies
  int64_t step_in_[3], step_out_[3], lead_[3];
  int64_t size_[3];    // of the prepared input in each dim: positions of one residue of the stride
  int64_t pitch_[3];   // in the source, from one output to the next
  int64_t parts_ = 1;  // of a prepared plane: residues of the three dims, positions in D
  int64_t stride_n_ = 0, stride_c_ = 0;
  int64_t source_elements_ = 0;
  int64_t packed_elements_ = 0;
  int64_t row_blocks_ = 1, block_rows_ = 1;
  int64_t units_ = 0, unit_cost_ = 0;
  int64_t widest_block_ = 0, deepest_ = 0;
  int64_t block_outputs_ = 0;  // rows of outputs that are one long row
  std::vector<Phase> phases_;
};

}  // namespace reprise::kernels
