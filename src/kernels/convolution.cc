// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#include <cstring>

#include "kernels/plane.h"
#include "kernels/simd/convolution_row.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kDepth = 256;           // of a block of the product
constexpr int64_t kColumns = 256;         // of a block of the product, at most
constexpr int64_t kRows = 132;            // of a block of weights: a multiple of the rows of a tile
constexpr int64_t kMostRows = 4 * kRows;  // of a unit
constexpr int64_t kRowsWithoutPanels = 2;
constexpr int64_t kSlack = 64;  // elements behind the prepared input that may be read

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

// Whether the last three dims are walked as one.
bool IsFlat(const TensorRef& ref) {
  int64_t stride = ref.strides[4] * ref.sizes[4];
  for (int d = 3; d >= 2; --d) {
    if (ref.sizes[d] != 1 && ref.strides[d] != stride) return false;
    stride *= ref.sizes[d];
  }
  return true;
}

void Flatten(TensorRef& ref) {
  ref.sizes[4] *= ref.sizes[2] * ref.sizes[3];
  ref.sizes[2] = ref.sizes[3] = 1;
}

struct Tap {
  int64_t kernel;
  int64_t shift;  // in the input, from step_in * output
};

struct DimPhase {
  int64_t first;
  int64_t count;
  std::vector<Tap> taps;
};

std::vector<DimPhase> PhasesOf(const ConvDim& dim, bool transposed) {
  std::vector<DimPhase> phases;
  for (int64_t residue = 0; residue < (transposed ? std::min(dim.stride, dim.out) : 1); ++residue) {
    DimPhase& phase = phases.emplace_back();
    phase.first = residue;
    phase.count = transposed ? DivideUp(dim.out - residue, dim.stride) : dim.out;
    for (int64_t k = 0; k < dim.kernel; ++k) {
      if (!transposed) {
        phase.taps.push_back({k, k * dim.dilation - dim.pad});
        continue;
      }
      const int64_t shift = residue + dim.pad - k * dim.dilation;
      if (shift % dim.stride == 0) phase.taps.push_back({k, shift / dim.stride});
    }
  }
  return phases;
}

// A run of columns whose outputs lie in one row.
struct Run {
  int64_t source;
  int64_t out;
  int32_t column;
  int32_t length;
};

}  // namespace

// ---- The plan ---------------------------------------------------------------------------------------------------

void ConvPlan::Simplify(ConvShape& shape, TensorRef& input, TensorRef& out) {
  bool is_pointwise = true;
  for (int d = 0; d < 3; ++d) {
    ConvDim& dim = shape.dims[d];
    if (dim.kernel != 1 || dim.pad != 0 || (shape.transposed && dim.stride != 1) ||
        (shape.transposed && dim.in != dim.out)) {
      is_pointwise = false;
      continue;
    }
    input.strides[2 + d] *= dim.stride;
    input.sizes[2 + d] = dim.in = dim.out;
    dim.stride = dim.dilation = 1;
  }
  if (!is_pointwise || !IsFlat(input) || !IsFlat(out)) return;
  Flatten(input);
  Flatten(out);
  shape.dims[0] = shape.dims[1] = ConvDim();
  shape.dims[2].in = shape.dims[2].out = input.sizes[4];
}

ConvPlan::ConvPlan(const ConvShape& shape, const TensorRef& input)
    : shape_(shape), compute_(input.dtype == DType::kDouble ? DType::kDouble : DType::kFloat) {
  by_rows_ = shape.out_channels <= kRowsWithoutPanels;
  std::vector<DimPhase> of_dim[3];
  is_direct_ = !by_rows_ && input.dtype == compute_ && (input.strides[4] == 1 || input.sizes[4] == 1);
  for (int d = 0; d < 3; ++d) {
    const ConvDim& dim = shape.dims[d];
    of_dim[d] = PhasesOf(dim, shape.transposed);
    step_in_[d] = shape.transposed ? 1 : dim.stride;
    step_out_[d] = shape.transposed ? dim.stride : 1;
    lead_[d] = 0;
    int64_t last = -1;
    for (const DimPhase& phase : of_dim[d]) {
      for (const Tap& tap : phase.taps) {
        lead_[d] = std::max(lead_[d], -tap.shift);
        last = std::max(last, step_in_[d] * (phase.count - 1) + tap.shift);
      }
    }
    size_[d] = std::max<int64_t>(1, lead_[d] + last + 1);
    is_direct_ = is_direct_ && lead_[d] == 0 && size_[d] <= dim.in && (d < 2 || step_in_[d] == 1);
  }
  residue_row_ = DivideUp(size_[2], step_in_[2]);
  row_ = residue_row_ * step_in_[2];
  stride_h_ = is_direct_ ? input.strides[3] : row_;
  stride_d_ = is_direct_ ? input.strides[2] : size_[1] * row_;
  stride_c_ = is_direct_ ? input.strides[1] : size_[0] * size_[1] * row_;
  stride_n_ = is_direct_ ? input.strides[0] : shape.groups * shape.in_channels * stride_c_;
  source_elements_ = shape.batch * shape.groups * shape.in_channels * size_[0] * size_[1] * row_ + kSlack;

  int64_t pack_units = 0;
  for (const DimPhase& d : of_dim[0]) {
    for (const DimPhase& h : of_dim[1]) {
      for (const DimPhase& w : of_dim[2]) {
        Phase& phase = phases_.emplace_back();
        const DimPhase* const parts[3] = {&d, &h, &w};
        phase.columns = shape.batch;
        for (int i = 0; i < 3; ++i) {
          phase.first[i] = parts[i]->first;
          phase.count[i] = parts[i]->count;
          phase.columns *= parts[i]->count;
        }
        for (const Tap& kd : d.taps) {
          for (const Tap& kh : h.taps) {
            for (const Tap& kw : w.taps) {
              const int64_t x = kw.shift + lead_[2];
              phase.taps.push_back((kd.shift + lead_[0]) * stride_d_ + (kh.shift + lead_[1]) * stride_h_ +
                                   x % step_in_[2] * residue_row_ + x / step_in_[2]);
              phase.kernel.push_back((kd.kernel * shape.dims[1].kernel + kh.kernel) * shape.dims[2].kernel + kw.kernel);
            }
          }
        }
        for (int64_t c = 0; c < shape.in_channels; ++c) {
          for (const int64_t tap : phase.taps) phase.offset.push_back(c * stride_c_ + tap);
        }
        phase.packed_begin = packed_elements_;
        packed_elements_ += shape.groups * shape.out_channels * phase.depth();
        phase.pack_begin = pack_units;
        pack_units += shape.groups * shape_.out_channels;
        deepest_ = std::max(deepest_, phase.depth());
      }
    }
  }

  // Units: fixed by the shape, so that there is work for several threads but no column is packed too often.
  int64_t blocks = 0;
  for (Phase& phase : phases_) {
    if (by_rows_) {
      phase.block_columns = phase.count[2];
      phase.column_blocks = phase.columns / phase.count[2];
    } else {
      const int64_t wanted =
          std::max(DivideUp(phase.columns, kColumns), std::min<int64_t>(2, DivideUp(phase.columns, 64)));
      phase.block_columns = RoundUp(DivideUp(phase.columns, wanted), 16);
      phase.column_blocks = DivideUp(phase.columns, phase.block_columns);
    }
    widest_block_ = std::max(widest_block_, phase.block_columns);
    blocks += phase.column_blocks * shape.groups;
  }
  block_rows_ = by_rows_ ? shape.out_channels : std::min(shape.out_channels, blocks >= 8 ? kMostRows : kRows);
  row_blocks_ = DivideUp(shape.out_channels, block_rows_);
  for (Phase& phase : phases_) {
    phase.unit_begin = units_;
    units_ += shape.groups * phase.column_blocks * row_blocks_;
  }
  pack_depth_ = by_rows_ ? std::max<int64_t>(1, deepest_) : kDepth;
  unit_cost_ = widest_block_ * block_rows_ * std::max<int64_t>(1, deepest_);
}

// ---- Preparing the input ------------------------------------------------------------------------------------------

int64_t ConvPlan::prepare_units() const {
  return is_direct_ ? 0 : shape_.batch * shape_.groups * shape_.in_channels * size_[0] * size_[1];
}

template <class T>
void ConvPlan::PrepareAs(const TensorRef& input, T* source, Range range) const {
  const int64_t channels = shape_.groups * shape_.in_channels;
  const int64_t stride = input.strides[4];
  const CastFn cast = FindCast(input.dtype, DTypeOf<T>());
  const bool is_same = input.dtype == DTypeOf<T>();
  const int64_t bytes = stride * ItemSize(input.dtype);
  const int64_t step = step_in_[2];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    T* to = source + unit * row_;
    const int64_t h = unit % size_[1] - lead_[1];
    const int64_t d = unit / size_[1] % size_[0] - lead_[0];
    if (h < 0 || h >= shape_.dims[1].in || d < 0 || d >= shape_.dims[0].in) {
      std::fill_n(to, row_, T{});
      continue;
    }
    const int64_t plane = unit / size_[1] / size_[0];
    const char* from = ElementAt(input, plane / channels * input.strides[0] + plane % channels * input.strides[1] +
                                            d * input.strides[2] + h * input.strides[3]);
    for (int64_t residue = 0; residue < step; ++residue) {
      T* part = to + residue * residue_row_;
      // Position i of the part is element i * step + residue - lead of the row.
      const int64_t shift = lead_[2] - residue;
      const int64_t begin = std::clamp<int64_t>(shift <= 0 ? 0 : DivideUp(shift, step), 0, residue_row_);
      const int64_t room = shape_.dims[2].in + shift;
      const int64_t end = std::clamp<int64_t>(room <= 0 ? 0 : DivideUp(room, step), begin, residue_row_);
      std::fill(part, part + begin, T{});
      std::fill(part + end, part + residue_row_, T{});
      const int64_t first = begin * step - shift;
      const int64_t n = end - begin;
      if (n == 0) continue;
      if (is_same && stride == 1) {
        const T* row = reinterpret_cast<const T*>(from) + first;
        if (step == 1) {
          std::memcpy(part + begin, row, static_cast<size_t>(n) * sizeof(T));
        } else if (step == 2) {
          for (int64_t i = 0; i < n; ++i) part[begin + i] = row[2 * i];
        } else {
          for (int64_t i = 0; i < n; ++i) part[begin + i] = row[step * i];
        }
      } else {
        cast(from + first * bytes, step * bytes, reinterpret_cast<char*>(part + begin), sizeof(T), n);
      }
    }
  }
}

void ConvPlan::Prepare(const TensorRef& input, void* source, Range range) const {
  if (compute_ == DType::kDouble) return PrepareAs(input, static_cast<double*>(source), range);
  PrepareAs(input, static_cast<float*>(source), range);
}

// ---- Packing the weights ------------------------------------------------------------------------------------------

int64_t ConvPlan::pack_units() const {
  const Phase& last = phases_.back();
  return last.pack_begin + shape_.groups * shape_.out_channels;
}

int64_t ConvPlan::pack_cost() const { return std::max<int64_t>(1, deepest_) * 2; }

int64_t ConvPlan::PackScratchBytes() const {
  const int64_t kernel = shape_.dims[0].kernel * shape_.dims[1].kernel * shape_.dims[2].kernel;
  return ScratchCutter::Bytes<double>(kernel * shape_.in_channels);
}

template <class T>
void ConvPlan::PackAs(const TensorRef& weight, T* packed, Range range, T* scratch) const {
  const int64_t kernel = weight.sizes[2] * weight.sizes[3] * weight.sizes[4];
  const int64_t item = ItemSize(weight.dtype);
  const CastFn cast = FindCast(weight.dtype, DTypeOf<T>());
  const bool is_flat = IsFlat(weight);
  const int64_t channel_stride = shape_.transposed ? weight.strides[0] : weight.strides[1];
  const bool is_line = is_flat && channel_stride == kernel * weight.strides[4];
  const bool is_direct = weight.dtype == DTypeOf<T>() && is_line && weight.strides[4] == 1;
  const int64_t rows = shape_.out_channels;
  size_t phase_index = 0;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    while (phase_index + 1 < phases_.size() && unit >= phases_[phase_index + 1].pack_begin) ++phase_index;
    const Phase& phase = phases_[phase_index];
    const int64_t group = (unit - phase.pack_begin) / rows;
    const int64_t o = (unit - phase.pack_begin) % rows;
    const int64_t depth = phase.depth();
    const auto taps = static_cast<int64_t>(phase.taps.size());
    T* const base = packed + phase.packed_begin + group * rows * depth;
    // All channels and taps of one output channel, in a line.
    const char* from =
        ElementAt(weight, shape_.transposed ? group * shape_.in_channels * weight.strides[0] + o * weight.strides[1]
                                            : (group * shape_.out_channels + o) * weight.strides[0]);
    const T* line = scratch;
    if (is_direct) {
      line = reinterpret_cast<const T*>(from);
    } else if (is_line) {
      cast(from, weight.strides[4] * item, reinterpret_cast<char*>(scratch), sizeof(T), kernel * shape_.in_channels);
    } else {
      for (int64_t c = 0; c < shape_.in_channels; ++c) {
        for (int64_t row = 0; row < (is_flat ? 1 : kernel / weight.sizes[4]); ++row) {
          const int64_t offset = c * channel_stride + row / weight.sizes[3] * weight.strides[2] +
                                 row % weight.sizes[3] * weight.strides[3];
          cast(from + offset * item, weight.strides[4] * item,
               reinterpret_cast<char*>(scratch + c * kernel + row * weight.sizes[4]), sizeof(T),
               is_flat ? kernel : weight.sizes[4]);
        }
      }
    }
    int64_t k = 0;
    for (int64_t k0 = 0; k0 < depth; k0 += pack_depth_) {
      const int64_t count = std::min(pack_depth_, depth - k0);
      T* to = base + k0 * rows + o * count;
      if (taps == kernel) {
        std::copy_n(line + k0, count, to);
        continue;
      }
      for (int64_t i = 0; i < count; ++i, ++k) {
        to[i] = line[k / taps * kernel + phase.kernel[static_cast<size_t>(k % taps)]];
      }
    }
  }
}

void ConvPlan::Pack(const TensorRef& weight, void* packed, Range range, void* scratch) const {
  if (compute_ == DType::kDouble) {
    return PackAs(weight, static_cast<double*>(packed), range, static_cast<double*>(scratch));
  }
  PackAs(weight, static_cast<float*>(packed), range, static_cast<float*>(scratch));
}

// ---- The product --------------------------------------------------------------------------------------------------

/// One call of Convolve.
template <class T>
class ConvRunner {
 public:
  ConvRunner(const ConvPlan& plan, const T* source, const T* packed, const TensorRef* bias, const TensorRef& out,
             void* scratch)
      : plan_(plan), shape_(plan.shape_), source_(source), packed_(packed), bias_(bias), out_(out) {
    width_ = simd::PanelWidth(T());
    ScratchCutter cut(scratch);
    if (plan.by_rows_) {
      c_ = cut.Cut<T>(plan.widest_block_ + simd::kTapRowSlack);
      return;
    }
    const int64_t columns = RoundUp(plan.widest_block_, width_);
    right_ = cut.Cut<T>(columns * std::min(kDepth, plan.deepest_));
    c_ = cut.Cut<T>(columns * plan.block_rows_);
    runs_ = cut.Cut<Run>(columns);
    pieces_ = cut.Cut<Run>(2 * columns);
  }

  static int64_t Scratch(const ConvPlan& plan) {
    if (plan.by_rows_) return ScratchCutter::Bytes<T>(plan.widest_block_ + simd::kTapRowSlack);
    const int64_t columns = RoundUp(plan.widest_block_, simd::PanelWidth(T()));
    return ScratchCutter::Bytes<T>(columns * std::min(kDepth, plan.deepest_)) +
           ScratchCutter::Bytes<T>(columns * plan.block_rows_) + ScratchCutter::Bytes<Run>(columns) +
           ScratchCutter::Bytes<Run>(2 * columns);
  }

  void RunAll(Range range) {
    size_t index = 0;
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      while (index + 1 < plan_.phases_.size() && unit >= plan_.phases_[index + 1].unit_begin) ++index;
      const ConvPlan::Phase& phase = plan_.phases_[index];
      const int64_t local = unit - phase.unit_begin;
      const int64_t row_block = local % plan_.row_blocks_;
      const int64_t block = local / plan_.row_blocks_ % phase.column_blocks;
      const int64_t group = local / plan_.row_blocks_ / phase.column_blocks;
      FindRuns(phase, group, block);
      if (plan_.by_rows_) {
        RunRows(phase, group);
      } else {
        RunBlock(phase, group, row_block);
      }
    }
  }

 private:
  void FindRuns(const ConvPlan::Phase& phase, int64_t group, int64_t block) {
    const int64_t begin = block * phase.block_columns;
    columns_ = std::min(phase.block_columns, phase.columns - begin);
    run_count_ = 0;
    int64_t at = begin;
    while (at < begin + columns_) {
      const int64_t w = at % phase.count[2];
      const int64_t h = at / phase.count[2] % phase.count[1];
      const int64_t d = at / phase.count[2] / phase.count[1] % phase.count[0];
      const int64_t n = at / phase.count[2] / phase.count[1] / phase.count[0];
      const int64_t length = std::min(phase.count[2] - w, begin + columns_ - at);
      Run& run = plan_.by_rows_ ? only_ : runs_[run_count_];
      ++run_count_;
      run.source = n * plan_.stride_n_ + d * plan_.step_in_[0] * plan_.stride_d_ +
                   h * plan_.step_in_[1] * plan_.stride_h_ + w + group * shape_.in_channels * plan_.stride_c_;
      run.out = n * out_.strides[0] + (phase.first[0] + d * plan_.step_out_[0]) * out_.strides[2] +
                (phase.first[1] + h * plan_.step_out_[1]) * out_.strides[3] +
                (phase.first[2] + w * plan_.step_out_[2]) * out_.strides[4];
      run.column = static_cast<int32_t>(at - begin);
      run.length = static_cast<int32_t>(length);
      at += length;
    }
  }

  T BiasOf(int64_t channel) const {
    T value{};
    if (bias_ != nullptr) {
      FindCast(bias_->dtype, DTypeOf<T>())(ElementAt(*bias_, channel * bias_->strides[0]), 0,
                                           reinterpret_cast<char*>(&value), 0, 1);
    }
    return value;
  }

  void StoreRun(const Run& run, int64_t channel, const T* values) const {
    const int64_t step = out_.strides[4] * plan_.step_out_[2];
    char* to = ElementAt(out_, run.out + channel * out_.strides[1]);
    if (out_.dtype == DTypeOf<T>() && step == 1) {
      std::memcpy(to, values, static_cast<size_t>(run.length) * sizeof(T));
      return;
    }
    FindCast(DTypeOf<T>(), out_.dtype)(reinterpret_cast<const char*>(values), sizeof(T), to,
                                       step * ItemSize(out_.dtype), run.length);
  }

  // One row of outputs of each channel of the group.
  void RunRows(const ConvPlan::Phase& phase, int64_t group) {
    const int64_t depth = phase.depth();
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      const int64_t channel = group * shape_.out_channels + o;
      const T* weight = packed_ + phase.packed_begin + group * shape_.out_channels * depth;
      const T bias = BiasOf(channel);
      simd::TapRow(source_ + only_.source, phase.offset.data(), weight + o * depth, depth, bias, c_, only_.length);
      StoreRun(only_, channel, c_);
    }
  }

  void RunBlock(const ConvPlan::Phase& phase, int64_t group, int64_t row_block) {
    const int64_t m0 = row_block * plan_.block_rows_;
    const int64_t rows = std::min(plan_.block_rows_, shape_.out_channels - m0);
    const int64_t depth = phase.depth();
    const int64_t panels = DivideUp(columns_, width_);
    const int64_t stride = panels * width_;
    const T* const weights = packed_ + phase.packed_begin + group * shape_.out_channels * depth;
    if (depth == 0) std::fill_n(c_, rows * stride, T{});
    FindPieces();
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
      const int64_t count = std::min(kDepth, depth - k0);
      PackColumns(phase.offset.data() + k0, count);
      const T* left = weights + k0 * shape_.out_channels;
      for (int64_t i = 0; i < rows; i += kRows) {
        simd::MultiplyBlock(simd::LeftRows<T>{left + (m0 + i) * count, count},
                            simd::RightPanels<T>{right_, width_ * count, width_}, c_ + i * stride, stride,
                            std::min(kRows, rows - i), stride, count, k0 != 0);
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t channel = group * shape_.out_channels + m0 + i;
      T* row = c_ + i * stride;
      if (bias_ != nullptr) {
        const T bias = BiasOf(channel);
        for (int64_t j = 0; j < columns_; ++j) row[j] += bias;
      }
      for (int64_t r = 0; r < run_count_; ++r) StoreRun(runs_[r], channel, row + runs_[r].column);
    }
  }

  // Cuts the runs at the borders of panels.
  void FindPieces() {
    piece_count_ = 0;
    for (int64_t r = 0; r < run_count_; ++r) {
      int64_t done = 0;
      while (done < runs_[r].length) {
        const int64_t column = runs_[r].column + done;
        const int64_t length = std::min<int64_t>(runs_[r].length - done, width_ - column % width_);
        pieces_[piece_count_++] = {runs_[r].source + done, 0, static_cast<int32_t>(column),
                                   static_cast<int32_t>(length)};
        done += length;
      }
    }
  }

  template <int64_t kWidth>
  static void CopyPanel(const T* source, const int64_t* offset, int64_t depth, T* to) {
    for (int64_t k = 0; k < depth; ++k) std::memcpy(to + k * kWidth, source + offset[k], kWidth * sizeof(T));
  }

  void PackColumns(const int64_t* offset, int64_t depth) {
    for (int64_t p = 0; p < piece_count_; ++p) {
      const Run& piece = pieces_[p];
      const T* from = source_ + piece.source;
      T* to = right_ + piece.column / width_ * width_ * depth + piece.column % width_;
      if (piece.length == width_ && width_ == 16) {
        CopyPanel<16>(from, offset, depth, to);
      } else if (piece.length == width_ && width_ == 8) {
        CopyPanel<8>(from, offset, depth, to);
      } else {
        const int64_t length = piece.length;
        for (int64_t k = 0; k < depth; ++k) {
          const T* row = from + offset[k];
          for (int64_t i = 0; i < length; ++i) to[k * width_ + i] = row[i];
        }
      }
    }
    if (const int64_t rest = columns_ % width_; rest != 0) {
      T* to = right_ + columns_ / width_ * width_ * depth;
      for (int64_t k = 0; k < depth; ++k) std::fill_n(to + k * width_ + rest, width_ - rest, T{});
    }
  }

  const ConvPlan& plan_;
  const ConvShape& shape_;
  const T* source_;
  const T* packed_;
  const TensorRef* bias_;
  const TensorRef& out_;
  int64_t width_;
  T* right_ = nullptr;
  T* c_ = nullptr;
  Run* runs_ = nullptr;
  Run* pieces_ = nullptr;
  Run only_{};
  int64_t columns_ = 0, run_count_ = 0, piece_count_ = 0;
};

int64_t ConvPlan::ScratchBytes() const {
  return compute_ == DType::kDouble ? ConvRunner<double>::Scratch(*this) : ConvRunner<float>::Scratch(*this);
}

void ConvPlan::Convolve(const void* source, const void* packed, const TensorRef* bias, const TensorRef& out,
                        Range range, void* scratch) const {
  if (compute_ == DType::kDouble) {
    ConvRunner<double>(*this, static_cast<const double*>(source), static_cast<const double*>(packed), bias, out,
                       scratch)
        .RunAll(range);
    return;
  }
  ConvRunner<float>(*this, static_cast<const float*>(source), static_cast<const float*>(packed), bias, out, scratch)
      .RunAll(range);
}

}  // namespace reprise::kernels
