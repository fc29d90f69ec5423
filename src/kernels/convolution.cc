// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#include <cstring>

#include "kernels/convolution_phases.h"
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
constexpr int64_t kSlack = 64;            // elements behind the prepared input that may be read
constexpr int64_t kLongRow = 4096;        // elements of outputs that are computed as one row, more or less
constexpr int64_t kFusedInput = 1 << 16;  // elements of prepared input that a unit keeps to itself

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

// Blocks of products that are summed in one go, of nearly equal size: those of ChannelsLastConv where there is one tap.
int64_t DepthBlocks(int64_t depth) { return DivideUp(depth, kDepth); }
Range DepthBlock(int64_t depth, int64_t i) {
  const int64_t count = DepthBlocks(depth);
  return {depth * i / count, depth * (i + 1) / count};
}

// Whether the last three dims are walked as one.
bool IsFlat(const TensorRef& ref) {
  int64_t stride = ref.strides[4] * ref.sizes[4];
  for (int d = 3; d >= 2; --d) {
    if (ref.sizes[d] != 1 && ref.strides[d] != stride) return false;
    stride *= ref.sizes[d];
  }
  return true;
}

// Whether channels and taps of one output channel lie back to back.
bool IsLine(const TensorRef& weight) {
  const int64_t kernel = weight.sizes[2] * weight.sizes[3] * weight.sizes[4];
  const bool has_channels = weight.sizes[1] == 1 || weight.strides[1] == kernel;
  return has_channels && (kernel == 1 || (IsFlat(weight) && weight.strides[4] == 1));
}

void Flatten(TensorRef& ref) {
  ref.sizes[4] *= ref.sizes[2] * ref.sizes[3];
  ref.sizes[2] = ref.sizes[3] = 1;
}

// As memcpy, which is a call, for rows that may be short.
template <class T>
inline void CopyRow(T* to, const T* from, int64_t n) {
  if (n >= 16 || n < 4) {
    if (n >= 16) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    }
  } else if (n >= 8) {
    T parts[2][8];
    std::memcpy(parts[0], from, sizeof parts[0]);
    std::memcpy(parts[1], from + n - 8, sizeof parts[1]);
    std::memcpy(to, parts[0], sizeof parts[0]);
    std::memcpy(to + n - 8, parts[1], sizeof parts[1]);
  } else {
    T parts[2][4];
    std::memcpy(parts[0], from, sizeof parts[0]);
    std::memcpy(parts[1], from + n - 4, sizeof parts[1]);
    std::memcpy(to, parts[0], sizeof parts[0]);
    std::memcpy(to + n - 4, parts[1], sizeof parts[1]);
  }
}

template <class Body>
void ForEachTap(const ConvPhase* const (&parts)[3], const Body& body) {
  for (const ConvTap& d : parts[0]->taps) {
    for (const ConvTap& h : parts[1]->taps) {
      for (const ConvTap& w : parts[2]->taps) body(d, h, w);
    }
  }
}

// A run of columns whose outputs lie in one row.
struct Run {
  int64_t source;
  int64_t out;
  int32_t column;
  int32_t length;
};

}  // namespace

// ---- The setup ----

void ConvSetup::Simplify(ConvShape& shape, TensorRef& input, TensorRef& out) {
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

ConvSetup::ConvSetup(const ConvShape& shape, const TensorRef& input, const TensorRef* weight)
    : shape_(shape), compute_(input.dtype == DType::kDouble ? DType::kDouble : DType::kFloat) {
  by_rows_ = shape.out_channels <= kRowsWithoutPanels;
  std::vector<ConvPhase> of_dim[3];
  is_direct_ = !by_rows_ && input.dtype == compute_ && (input.strides[4] == 1 || input.sizes[4] == 1);
  for (int d = 0; d < 3; ++d) {
    const ConvDim& dim = shape.dims[d];
    of_dim[d] = PhasesOf(dim, shape.transposed);
    step_in_[d] = shape.transposed ? 1 : dim.stride;
    step_out_[d] = shape.transposed ? dim.stride : 1;
    lead_[d] = 0;
    int64_t last = -1;
    for (const ConvPhase& phase : of_dim[d]) {
      for (const ConvTap& tap : phase.taps) {
        lead_[d] = std::max(lead_[d], -tap.shift);
        last = std::max(last, step_in_[d] * (phase.count - 1) + tap.shift);
      }
    }
    size_[d] = DivideUp(std::max<int64_t>(1, lead_[d] + last + 1), step_in_[d]);
    is_direct_ = is_direct_ && lead_[d] == 0 && last < dim.in && (d < 2 || step_in_[d] == 1);
  }
  parts_ = step_in_[0] * step_in_[1] * step_in_[2] * size_[0];
  if (is_direct_) {
    for (int d = 0; d < 3; ++d) pitch_[d] = step_in_[d] * input.strides[2 + d];
    pitch_[2] = 1;
    stride_c_ = input.strides[1];
    stride_n_ = input.strides[0];
  } else {
    pitch_[2] = 1;
    pitch_[1] = size_[2];
    pitch_[0] = size_[1] * size_[2];
    stride_c_ = parts_ * size_[1] * size_[2];
    stride_n_ = shape.groups * shape.in_channels * stride_c_;
  }
  source_elements_ = shape.batch * shape.groups * shape.in_channels * stride_c_ + kSlack;
  is_fused_ = by_rows_ && shape.in_channels * stride_c_ <= kFusedInput;
  // Of position `x` of dim `d`, counted from the begin of the padding.
  const auto offset_of = [&](int d, int64_t x) {
    if (is_direct_) return x * (d == 2 ? 1 : input.strides[2 + d]);
    int64_t residue = size_[0] * pitch_[0];  // elements from one residue to the next: those of W lie closest
    for (int e = 2; e > d; --e) residue *= step_in_[e];
    return x % step_in_[d] * residue + x / step_in_[d] * pitch_[d];
  };

  int64_t pack_units = 0;
  for (const ConvPhase& d : of_dim[0]) {
    for (const ConvPhase& h : of_dim[1]) {
      for (const ConvPhase& w : of_dim[2]) {
        Phase& phase = phases_.emplace_back();
        const ConvPhase* const parts[3] = {&d, &h, &w};
        phase.columns = shape.batch;
        for (int i = 0; i < 3; ++i) {
          phase.first[i] = parts[i]->first;
          phase.count[i] = parts[i]->count;
          phase.columns *= parts[i]->count;
        }
        ForEachTap(parts, [&](const ConvTap& kd, const ConvTap& kh, const ConvTap& kw) {
          phase.taps.push_back(offset_of(0, kd.shift + lead_[0]) + offset_of(1, kh.shift + lead_[1]) +
                               offset_of(2, kw.shift + lead_[2]));
          phase.kernel.push_back((kd.kernel * shape.dims[1].kernel + kh.kernel) * shape.dims[2].kernel + kw.kernel);
        });
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
  CutIntoUnits();
  if (weight != nullptr && !shape.transposed && weight->dtype == compute_ && IsLine(*weight)) {
    weight_row_ = weight->strides[0];
  }
}

void ConvSetup::CutIntoUnits() {
  const ConvShape& shape = shape_;
  // Fixed by the shape, so that there is work for several threads but no column is packed too often.
  int64_t blocks = 0;
  block_outputs_ = std::max<int64_t>(1, kLongRow / size_[2]);
  for (Phase& phase : phases_) {
    if (by_rows_) {
      phase.block_columns = std::min(block_outputs_, phase.count[1]) * size_[2];
      phase.column_blocks = shape.batch * phase.count[0] * DivideUp(phase.count[1], block_outputs_);
    } else {
      const int64_t few = phase.columns >= 384 ? 4 : phase.columns >= 128 ? 2 : 1;
      const int64_t wanted = std::max(DivideUp(phase.columns, kColumns), few);
      phase.block_columns = RoundUp(DivideUp(phase.columns, wanted), 16);
      phase.column_blocks = DivideUp(phase.columns, phase.block_columns);
    }
    widest_block_ = std::max(widest_block_, phase.block_columns);
    blocks += phase.column_blocks * shape.groups;
  }
  block_rows_ = by_rows_ ? shape.out_channels : std::min(shape.out_channels, blocks >= 4 ? kMostRows : kRows);
  row_blocks_ = DivideUp(shape.out_channels, block_rows_);
  for (Phase& phase : phases_) {
    phase.unit_begin = units_;
    units_ += shape.groups * phase.column_blocks * row_blocks_;
  }
  unit_cost_ = widest_block_ * block_rows_ * std::max<int64_t>(1, deepest_);
  if (is_fused_) {
    unit_cost_ *= DivideUp(units_, shape.batch * shape.groups);
    unit_cost_ += shape.in_channels * stride_c_ * 4;
    units_ = shape.batch * shape.groups;
  }
}

// ---- Preparing the input ----

int64_t ConvSetup::prepare_units() const {
  return source_elements() == 0 ? 0 : shape_.batch * shape_.groups * shape_.in_channels * parts_;
}

// One residue of each dim at one position in D.
template <class T>
void ConvSetup::PreparePart(const TensorRef& input, int64_t plane, int64_t part, bool has_zeros, T* to) const {
  const int64_t channels = shape_.groups * shape_.in_channels;
  const int64_t stride = input.strides[4];
  const CastFn cast = FindCast(input.dtype, DTypeOf<T>());
  const bool is_direct = input.dtype == DTypeOf<T>() && stride == 1;
  const int64_t bytes = stride * ItemSize(input.dtype);
  const int64_t step = step_in_[2];
  const int64_t n = size_[2];
  const int64_t residue_w = part / size_[0] % step;
  const int64_t residue_h = part / size_[0] / step % step_in_[1];
  const int64_t residue_d = part / size_[0] / step / step_in_[1];
  const int64_t d = part % size_[0] * step_in_[0] + residue_d - lead_[0];
  const char* plane_at = ElementAt(
      input, plane / channels * input.strides[0] + plane % channels * input.strides[1] + d * input.strides[2]);
  // Position i of a row is element i * step - shift of that of the input.
  const int64_t shift = lead_[2] - residue_w;
  const int64_t begin = std::clamp<int64_t>(shift <= 0 ? 0 : DivideUp(shift, step), 0, n);
  const int64_t room = shape_.dims[2].in + shift;
  const int64_t end = std::clamp<int64_t>(room <= 0 ? 0 : DivideUp(room, step), begin, n);
  for (int64_t i = 0; i < size_[1]; ++i, to += n) {
    const int64_t h = i * step_in_[1] + residue_h - lead_[1];
    if (h < 0 || h >= shape_.dims[1].in || d < 0 || d >= shape_.dims[0].in || begin == end) {
      if (!has_zeros) std::fill_n(to, n, T{});
      continue;
    }
    const char* from = plane_at + h * input.strides[3] * ItemSize(input.dtype);
    if (!has_zeros) {
      std::fill(to, to + begin, T{});
      std::fill(to + end, to + n, T{});
    }
    const int64_t first = begin * step - shift;
    T* inner = to + begin;
    if (!is_direct) {
      cast(from + first * bytes, step * bytes, reinterpret_cast<char*>(inner), sizeof(T), end - begin);
      continue;
    }
    const T* row = reinterpret_cast<const T*>(from) + first;
    if (step == 1) {
      CopyRow(inner, row, end - begin);
    } else if (step == 2) {
      for (int64_t w = 0; w < end - begin; ++w) inner[w] = row[2 * w];
    } else {
      for (int64_t w = 0; w < end - begin; ++w) inner[w] = row[step * w];
    }
  }
}

template <class T>
void ConvSetup::PrepareAs(const TensorRef& input, T* source, Range range) const {
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    PreparePart(input, unit / parts_, unit % parts_, false, source + unit * size_[1] * size_[2]);
  }
}

void ConvSetup::Prepare(const TensorRef& input, void* source, Range range) const {
  if (compute_ == DType::kDouble) return PrepareAs(input, static_cast<double*>(source), range);
  PrepareAs(input, static_cast<float*>(source), range);
}

// ---- Packing the weights ----

int64_t ConvSetup::pack_units() const {
  const Phase& last = phases_.back();
  return last.pack_begin + shape_.groups * shape_.out_channels;
}

int64_t ConvSetup::pack_cost() const { return std::max<int64_t>(1, deepest_) * 2; }

int64_t ConvSetup::PackScratchBytes() const {
  const int64_t kernel = shape_.dims[0].kernel * shape_.dims[1].kernel * shape_.dims[2].kernel;
  return ScratchCutter::Bytes<double>(kernel * shape_.in_channels);
}

template <class T>
void ConvSetup::PackAs(const TensorRef& weight, T* packed, Range range, T* scratch) const {
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
    for (int64_t i = 0; i < (by_rows_ ? 1 : DepthBlocks(depth)); ++i) {
      const Range block = by_rows_ ? Range{0, depth} : DepthBlock(depth, i);
      const int64_t count = block.end - block.begin;
      T* to = base + block.begin * rows + o * count;
      if (taps == kernel) {
        std::copy_n(line + block.begin, count, to);
        continue;
      }
      for (int64_t j = 0; j < count; ++j, ++k) {
        to[j] = line[k / taps * kernel + phase.kernel[static_cast<size_t>(k % taps)]];
      }
    }
  }
}

void ConvSetup::Pack(const TensorRef& weight, void* packed, Range range, void* scratch) const {
  if (compute_ == DType::kDouble) {
    return PackAs(weight, static_cast<double*>(packed), range, static_cast<double*>(scratch));
  }
  PackAs(weight, static_cast<float*>(packed), range, static_cast<float*>(scratch));
}

bool HasLinesOfTaps(const TensorRef& ref) {
  int64_t step = 1;
  for (int d = 4; d >= 2; --d) {
    if (ref.sizes[d] != 1 && ref.strides[d] != step) return false;
    step *= ref.sizes[d];
  }
  return true;
}

void AppendNumbers(const ConvShape& shape, std::vector<int64_t>& numbers) {
  numbers.insert(numbers.end(), {shape.batch, shape.groups, shape.in_channels, shape.out_channels, shape.transposed});
  for (const ConvDim& dim : shape.dims) {
    numbers.insert(numbers.end(), {dim.in, dim.out, dim.kernel, dim.stride, dim.pad, dim.dilation});
  }
}

void ConvSetup::TellPacking(std::vector<int64_t>& numbers) const {
  AppendNumbers(shape_, numbers);
  numbers.insert(numbers.end(), {static_cast<int64_t>(compute_), by_rows_});
}

// ---- The product ----

/// One call of Convolve.
template <class T>
class ConvRunner {
 public:
  ConvRunner(const ConvSetup& setup, const TensorRef& input, const T* source, const T* packed, const TensorRef* bias,
             const TensorRef& out, void* scratch)
      : setup_(setup), shape_(setup.shape_), input_(input), source_(source), packed_(packed), bias_(bias), out_(out) {
    if (setup.is_direct_) source_ = static_cast<const T*>(input.data);
    width_ = simd::PanelWidth(T());
    ScratchCutter cut(scratch);
    c_ = cut.Cut<T>(Results(setup));
    if (setup.is_fused_) own_ = cut.Cut<T>(OwnSource(setup));
    if (setup.by_rows_) return;
    const int64_t columns = RoundUp(setup.widest_block_, width_);
    right_ = cut.Cut<T>(columns * std::min(kDepth, setup.deepest_) + kSlack);
    runs_ = cut.Cut<Run>(columns);
    pieces_ = cut.Cut<Run>(2 * columns);
  }

  static int64_t Scratch(const ConvSetup& setup) {
    int64_t bytes = ScratchCutter::Bytes<T>(Results(setup));
    if (setup.is_fused_) bytes += ScratchCutter::Bytes<T>(OwnSource(setup));
    if (setup.by_rows_) return bytes;
    const int64_t columns = RoundUp(setup.widest_block_, simd::PanelWidth(T()));
    return bytes + ScratchCutter::Bytes<T>(columns * std::min(kDepth, setup.deepest_) + kSlack) +
           ScratchCutter::Bytes<Run>(columns) + ScratchCutter::Bytes<Run>(2 * columns);
  }

  void RunAll(Range range) {
    if (setup_.is_fused_) {
      std::fill_n(own_, OwnSource(setup_), T{});  // the padding stays as it is
      for (int64_t unit = range.begin; unit < range.end; ++unit) RunGroup(unit);
      return;
    }
    size_t index = 0;
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      while (index + 1 < setup_.phases_.size() && unit >= setup_.phases_[index + 1].unit_begin) ++index;
      const ConvSetup::Phase& phase = setup_.phases_[index];
      const int64_t local = unit - phase.unit_begin;
      const int64_t row_block = local % setup_.row_blocks_;
      const int64_t block = local / setup_.row_blocks_ % phase.column_blocks;
      const int64_t group = local / setup_.row_blocks_ / phase.column_blocks;
      if (setup_.by_rows_) {
        const int64_t in_plane = DivideUp(phase.count[1], setup_.block_outputs_);
        RunLongRow(phase, block / in_plane / phase.count[0], group, block / in_plane % phase.count[0],
                   block % in_plane * setup_.block_outputs_);
      } else {
        FindRuns(phase, group, block);
        RunBlock(phase, group, row_block);
      }
    }
  }

 private:
  static int64_t Results(const ConvSetup& setup) {
    if (setup.by_rows_) return setup.widest_block_ + simd::kTapRowSlack;
    return RoundUp(setup.widest_block_, simd::PanelWidth(T())) * setup.block_rows_;
  }
  static int64_t OwnSource(const ConvSetup& setup) { return setup.shape_.in_channels * setup.stride_c_ + kSlack; }

  // Where output (n, d, h, w) of the phase reads and, but for the channel, is written.
  Run RunAt(const ConvSetup::Phase& phase, int64_t n, int64_t group, int64_t d, int64_t h, int64_t w) const {
    Run run{};
    run.source = n * setup_.stride_n_ + group * shape_.in_channels * setup_.stride_c_ + d * setup_.pitch_[0] +
                 h * setup_.pitch_[1] + w;
    run.out = n * out_.strides[0] + (phase.first[0] + d * setup_.step_out_[0]) * out_.strides[2] +
              (phase.first[1] + h * setup_.step_out_[1]) * out_.strides[3] +
              (phase.first[2] + w * setup_.step_out_[2]) * out_.strides[4];
    return run;
  }

  void FindRuns(const ConvSetup::Phase& phase, int64_t group, int64_t block) {
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
      Run& run = runs_[run_count_++];
      run = RunAt(phase, n, group, d, h, w);
      run.column = static_cast<int32_t>(at - begin);
      run.length = static_cast<int32_t>(length);
      at += length;
    }
  }

  T BiasOf(int64_t channel) const {
    T value{};
    if (bias_ != nullptr && bias_->dtype == DTypeOf<T>()) {
      value = static_cast<const T*>(bias_->data)[channel * bias_->strides[0]];
    } else if (bias_ != nullptr) {
      FindCast(bias_->dtype, DTypeOf<T>())(ElementAt(*bias_, channel * bias_->strides[0]), 0,
                                           reinterpret_cast<char*>(&value), 0, 1);
    }
    return value;
  }

  void StoreRun(const Run& run, int64_t channel, const T* values) const {
    const int64_t step = out_.strides[4] * setup_.step_out_[2];
    char* to = ElementAt(out_, run.out + channel * out_.strides[1]);
    if (out_.dtype == DTypeOf<T>() && step == 1) {
      CopyRow(reinterpret_cast<T*>(to), values, run.length);
      return;
    }
    FindCast(DTypeOf<T>(), out_.dtype)(reinterpret_cast<const char*>(values), sizeof(T), to,
                                       step * ItemSize(out_.dtype), run.length);
  }

  // All outputs of a group of an entry of the batch.
  void RunGroup(int64_t unit) {
    const int64_t n = unit / shape_.groups;
    const int64_t group = unit % shape_.groups;
    const int64_t part = setup_.size_[1] * setup_.size_[2];
    for (int64_t c = 0; c < shape_.in_channels; ++c) {
      const int64_t plane = (n * shape_.groups + group) * shape_.in_channels + c;
      for (int64_t p = 0; p < setup_.parts_; ++p) {
        setup_.PreparePart(input_, plane, p, true, own_ + c * setup_.stride_c_ + p * part);
      }
    }
    for (const ConvSetup::Phase& phase : setup_.phases_) {
      for (int64_t d = 0; d < phase.count[0]; ++d) {
        for (int64_t h = 0; h < phase.count[1]; h += setup_.block_outputs_) RunLongRow(phase, n, group, d, h);
      }
    }
  }

  // Rows of outputs from h on, of each channel of the group.
  void RunLongRow(const ConvSetup::Phase& phase, int64_t n, int64_t group, int64_t d, int64_t h) {
    const int64_t depth = phase.depth();
    const int64_t rows = std::min(setup_.block_outputs_, phase.count[1] - h);
    const int64_t length = (rows - 1) * setup_.size_[2] + phase.count[2];
    const Run run = RunAt(phase, n, group, d, h, 0);
    const T* source = setup_.is_fused_ ? own_ + d * setup_.pitch_[0] + h * setup_.pitch_[1] : source_ + run.source;
    const int64_t row_of_weight = setup_.weight_row_ != 0 ? setup_.weight_row_ : depth;
    const T* weight = packed_ + phase.packed_begin + group * shape_.out_channels * row_of_weight;
    const int64_t step = out_.strides[4] * setup_.step_out_[2];
    const bool is_direct = out_.dtype == DTypeOf<T>() && step == 1;
    const CastFn store = FindCast(DTypeOf<T>(), out_.dtype);
    const int64_t next = setup_.step_out_[1] * out_.strides[3] * ItemSize(out_.dtype);
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      const int64_t channel = group * shape_.out_channels + o;
      const T bias = bias_ == nullptr ? -T{} : BiasOf(channel);  // which leaves every sum as it is
      simd::TapRow(source, phase.offset.data(), weight + o * row_of_weight, depth, bias, c_, length);
      char* to = ElementAt(out_, run.out + channel * out_.strides[1]);
      const T* from = c_;
      for (int64_t row = 0; row < rows; ++row, to += next, from += setup_.size_[2]) {
        if (is_direct) {
          CopyRow(reinterpret_cast<T*>(to), from, phase.count[2]);
        } else {
          store(reinterpret_cast<const char*>(from), sizeof(T), to, step * ItemSize(out_.dtype), phase.count[2]);
        }
      }
    }
  }

  void RunBlock(const ConvSetup::Phase& phase, int64_t group, int64_t row_block) {
    const int64_t m0 = row_block * setup_.block_rows_;
    const int64_t rows = std::min(setup_.block_rows_, shape_.out_channels - m0);
    const int64_t depth = phase.depth();
    const int64_t panels = DivideUp(columns_, width_);
    const int64_t stride = panels * width_;
    const int64_t row_of_weight = setup_.weight_row_;
    const bool is_packed = row_of_weight == 0;
    const T* const weights =
        packed_ + phase.packed_begin + group * shape_.out_channels * (is_packed ? depth : row_of_weight);
    if (depth == 0) std::fill_n(c_, rows * stride, T{});
    FindPieces();
    for (int64_t block = 0; block < DepthBlocks(depth); ++block) {
      const int64_t k0 = DepthBlock(depth, block).begin;
      const int64_t count = DepthBlock(depth, block).end - k0;
      PackColumns(phase.offset.data() + k0, count);
      const T* left = weights + k0 * (is_packed ? shape_.out_channels : 1);
      const int64_t left_row = is_packed ? count : row_of_weight;
      for (int64_t i = 0; i < rows; i += kRows) {
        simd::MultiplyBlock(simd::LeftRows<T>{left + (m0 + i) * left_row, left_row},
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

  // Copies whole vectors: a piece may write what the next one, or the next step in depth, writes again.
  void CopyShort(const Run* piece, int64_t count, const int64_t* offset, int64_t depth, T* to) const {
    for (int64_t k = 0; k < depth; ++k, to += width_) {
      for (int64_t p = 0; p < count; ++p) {
        const T* from = source_ + piece[p].source + offset[k];
        T* at = to + piece[p].column % width_;
        for (int32_t i = 0; i < piece[p].length; i += 8) std::memcpy(at + i, from + i, 8 * sizeof(T));
      }
    }
  }

  void PackColumns(const int64_t* offset, int64_t depth) {
    int64_t p = 0;
    while (p < piece_count_) {
      const int64_t panel = pieces_[p].column / width_;
      int64_t count = 1;
      while (p + count < piece_count_ && pieces_[p + count].column / width_ == panel) ++count;
      T* to = right_ + panel * width_ * depth;
      if (pieces_[p].length == width_) {
        simd::CopyPanel(source_ + pieces_[p].source, offset, depth, to);
      } else if (!setup_.is_direct_) {
        CopyShort(pieces_ + p, count, offset, depth, to);
      } else {
        for (int64_t i = p; i < p + count; ++i) {
          const T* from = source_ + pieces_[i].source;
          T* column = to + pieces_[i].column % width_;
          for (int64_t k = 0; k < depth; ++k) {
            std::memcpy(column + k * width_, from + offset[k], static_cast<size_t>(pieces_[i].length) * sizeof(T));
          }
        }
      }
      p += count;
    }
    if (const int64_t rest = columns_ % width_; rest != 0) {
      T* to = right_ + columns_ / width_ * width_ * depth;
      for (int64_t k = 0; k < depth; ++k) std::fill_n(to + k * width_ + rest, width_ - rest, T{});
    }
  }

  const ConvSetup& setup_;
  const ConvShape& shape_;
  const TensorRef& input_;
  const T* source_;
  const T* packed_;
  const TensorRef* bias_;
  const TensorRef& out_;
  int64_t width_;
  T* right_ = nullptr;
  T* c_ = nullptr;
  T* own_ = nullptr;
  Run* runs_ = nullptr;
  Run* pieces_ = nullptr;
  int64_t columns_ = 0, run_count_ = 0, piece_count_ = 0;
};

int64_t ConvSetup::ScratchBytes() const {
  return compute_ == DType::kDouble ? ConvRunner<double>::Scratch(*this) : ConvRunner<float>::Scratch(*this);
}

void ConvSetup::Convolve(const TensorRef& input, const void* source, const void* packed, const TensorRef* bias,
                         const TensorRef& out, Range range, void* scratch) const {
  if (compute_ == DType::kDouble) {
    ConvRunner<double>(*this, input, static_cast<const double*>(source), static_cast<const double*>(packed), bias, out,
                       scratch)
        .RunAll(range);
    return;
  }
  ConvRunner<float>(*this, input, static_cast<const float*>(source), static_cast<const float*>(packed), bias, out,
                    scratch)
      .RunAll(range);
}

}  // namespace reprise::kernels
