// SPDX-License-Identifier: Apache-2.0
#include "kernels/channels_last_conv.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "kernels/convolution_phases.h"
#include "kernels/plane.h"
#include "kernels/simd/activation_rows.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/patches.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kDepth = 256;          // of a block: a panel of it takes half of the first-level cache
constexpr int64_t kPixels = 112;         // of a unit, more or less: so many times kDepth lie in the second-level cache
constexpr int64_t kUnits = 8;            // at least, where there is work for them
constexpr int64_t kLeastCost = 1 << 16;  // multiply-adds of a unit that is cut off for the sake of kUnits
constexpr int64_t kFewChannels = 16;     // below it the taps of a row are joined
constexpr int64_t kLeastPixels = 16;     // otherwise packing the weights costs more than it saves
constexpr int64_t kLeastPatches = 32;    // below it the transformed filters, which are larger, take longer to come
constexpr int64_t kLeastPatchesOfRun = 40;   // the same where filters are transformed with each run
constexpr int64_t kPatchChannels = 32;       // in and out, below which transforms cost more than products save
constexpr int64_t kPatches = 56;             // of a unit, more or less
constexpr int64_t kPatchPanels = 2;          // multiplied in one go
constexpr int64_t kLeastPatchPanels = 4;     // of a unit where columns are cut
constexpr int64_t kLeastPixelsOfBlock = 24;  // where pixels are cut for the sake of kUnits
constexpr int64_t kKeptWeights = 96 << 10;   // elements of weights that stay in the second-level cache
constexpr int64_t kCostOfEach = 4;           // a multiply-add of a channel by itself, which memory holds up
using simd::kPatchPlaces;

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Dims of pixels, the innermost first.
constexpr int kPixelDims[] = {4, 3, 2, 0};

// From one pixel to the next, where they follow one another in even steps.
int64_t PixelStep(const TensorRef& ref) {
  for (const int d : kPixelDims) {
    if (ref.sizes[d] != 1) return ref.strides[d];
  }
  return ref.strides[0];
}

// Pixels follow one another in even steps.
bool IsEven(const TensorRef& ref) {
  int64_t step = PixelStep(ref);
  for (const int d : kPixelDims) {
    if (ref.sizes[d] != 1 && ref.strides[d] != step) return false;
    step *= ref.sizes[d];
  }
  return true;
}

// Of pixel `i` of all pictures, counted from the first one.
int64_t PixelAt(const TensorRef& ref, int64_t i) {
  int64_t at = 0;
  for (const int d : kPixelDims) {
    at += i % ref.sizes[d] * ref.strides[d];
    i /= ref.sizes[d];
  }
  return at;
}

// Of the input, counted with the padding: what outputs reach.
int64_t ReachOf(const ConvDim& dim) { return (dim.out - 1) * dim.stride + (dim.kernel - 1) * dim.dilation + 1; }

bool MeetsPadding(const ConvDim& dim) { return dim.pad > 0 || ReachOf(dim) - dim.pad > dim.in; }

bool AreFinite(const float* numbers, int64_t count) {
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) is_finite &= std::abs(numbers[i]) <= std::numeric_limits<float>::max();
  return is_finite;
}

// Null: sums become what the activation says while they are stored.
RowFn RowOf(const ConvEpilogue& epilogue) {
  switch (epilogue.activation) {
    case ConvActivation::kHardSwish:
      return simd::FindActivationRow(simd::ActivationRow::kHardswish, DType::kFloat).function;
    case ConvActivation::kSwish: return simd::FindActivationRow(simd::ActivationRow::kSilu, DType::kFloat).function;
    case ConvActivation::kRow: return epilogue.row;
    default: return nullptr;
  }
}

// Of a tap of the kernel.
int64_t TapAt(const TensorRef& weight, int64_t tap) {
  const int64_t row = tap / weight.sizes[4];
  return row / weight.sizes[3] * weight.strides[2] + row % weight.sizes[3] * weight.strides[3] +
         tap % weight.sizes[4] * weight.strides[4];
}

}  // namespace

ActivationPass::ActivationPass(const ConvEpilogue& epilogue) : row_(RowOf(epilogue)) {
  std::copy(std::begin(epilogue.numbers), std::end(epilogue.numbers), numbers_);
}

void ActivationPass::Run(float* sums, int64_t step, int64_t pixels, int64_t columns) const {
  if (row_ == nullptr) return;
  const bool is_run = step == columns;
  for (int64_t p = 0; p < (is_run ? 1 : pixels); ++p) {
    RowArgs row{};
    row.out = sums + p * step;
    row.in[0] = row.out;
    row.numbers = numbers_;
    row_(&row, 0, is_run ? pixels * columns : columns);
  }
}

bool ChannelsLastConv::Fits(const ConvShape& shape, const TensorRef& input, const TensorRef& out) {
  if (input.dtype == DType::kDouble) return false;
  if (CategoryOf(input.dtype) != Category::kFloating || CategoryOf(out.dtype) != Category::kFloating) return false;
  if (shape.batch * shape.dims[0].out * shape.dims[1].out * shape.dims[2].out < kLeastPixels) return false;
  if (shape.in_channels == 1 && shape.out_channels == 1 && shape.groups == 1) return false;
  if (shape.in_channels == 1 && shape.out_channels > 1 && shape.groups > 1) return false;
  const bool reads_channels = input.strides[1] == 1 || input.sizes[1] == 1;
  const bool writes_channels = out.strides[1] == 1 || out.sizes[1] == 1;
  if (!reads_channels || !writes_channels) return false;
  if (input.sizes[1] == 1 && out.sizes[1] == 1) return false;
  if (!shape.transposed) return IsEven(out);
  const bool joins_taps =
      shape.groups == 1 && shape.in_channels < kFewChannels;  // those of a phase do not lie in a row
  return !joins_taps && input.dtype == DType::kFloat && out.dtype == DType::kFloat && ReachesAll(shape);
}

bool ChannelsLastConv::ReachesAll(const ConvShape& shape) {
  for (const ConvDim& dim : shape.dims) {
    if (shape.transposed && std::min(dim.stride, dim.out) > dim.kernel) return false;
    for (const ConvPhase& phase : PhasesOf(dim, shape.transposed)) {
      if (phase.taps.empty()) return false;
    }
  }
  return true;
}

// One residue of the outputs: where they lie, which taps of the whole kernel meet there, in the order in which its
// convolution has them.
struct ChannelsLastConv::Phase {
  ChannelsLastConv conv;
  int64_t first[3], step[3];
  std::vector<int64_t> taps;
  int64_t packed_begin, unit_begin;

  TensorRef OutputsOf(TensorRef all) const {
    int64_t offset = 0;
    for (int d = 0; d < 3; ++d) {
      offset += first[d] * all.strides[2 + d];
      all.strides[2 + d] *= step[d];
      all.sizes[2 + d] = conv.shape_.dims[d].out;
    }
    all.data = ElementAt(all, offset);
    return all;
  }
};

void ChannelsLastConv::MakePhases(const TensorRef& input, const TensorRef& out, bool keeps_weight) {
  auto phases = std::make_shared<std::vector<Phase>>();
  const std::vector<ConvPhase> of_dim[3] = {PhasesOf(shape_.dims[0], true), PhasesOf(shape_.dims[1], true),
                                            PhasesOf(shape_.dims[2], true)};
  const int64_t kernel_h = shape_.dims[1].kernel;
  const int64_t kernel_w = shape_.dims[2].kernel;
  for (const ConvPhase& d : of_dim[0]) {
    for (const ConvPhase& h : of_dim[1]) {
      for (const ConvPhase& w : of_dim[2]) {
        const ConvPhase* const parts[3] = {&d, &h, &w};
        ConvShape plain = shape_;
        plain.transposed = false;
        TensorRef outputs = out;
        for (int i = 0; i < 3; ++i) {
          // Taps that lie further behind in the kernel meet inputs that lie further in front.
          const std::vector<ConvTap>& taps = parts[i]->taps;
          const auto count = static_cast<int64_t>(taps.size());
          const int64_t dilation = count == 1 ? 1 : taps[0].shift - taps[1].shift;
          plain.dims[i] = {shape_.dims[i].in, parts[i]->count, count, 1, -taps.back().shift, dilation};
          outputs.sizes[2 + i] = parts[i]->count;
          outputs.strides[2 + i] *= shape_.dims[i].stride;
        }
        Phase phase{ChannelsLastConv(plain, input, outputs, epilogue_, keeps_weight),
                    {d.first, h.first, w.first},
                    {shape_.dims[0].stride, shape_.dims[1].stride, shape_.dims[2].stride},
                    {},
                    packed_elements_,
                    phase_units_};
        for (auto kd = d.taps.rbegin(); kd != d.taps.rend(); ++kd) {
          for (auto kh = h.taps.rbegin(); kh != h.taps.rend(); ++kh) {
            for (auto kw = w.taps.rbegin(); kw != w.taps.rend(); ++kw) {
              phase.taps.push_back((kd->kernel * kernel_h + kh->kernel) * kernel_w + kw->kernel);
            }
          }
        }
        packed_elements_ += phase.conv.packed_elements();
        phase_units_ += phase.conv.units();
        phases->push_back(std::move(phase));
      }
    }
  }
  phases_ = std::move(phases);
}

ChannelsLastConv::ChannelsLastConv(const ConvShape& shape, const TensorRef& input, const TensorRef& out,
                                   const ConvEpilogue& epilogue, bool keeps_weight)
    : shape_(shape),
      epilogue_(epilogue),
      activate_(epilogue),
      is_direct_(out.dtype == DType::kFloat && IsEven(out)),
      width_(simd::PanelWidth(float())) {
  const ConvDim& d = shape.dims[0];
  const ConvDim& h = shape.dims[1];
  const ConvDim& w = shape.dims[2];
  is_depthwise_ = shape.in_channels == 1 && shape.out_channels == 1;
  panels_ = DivideUp(shape.out_channels, width_);
  if (is_direct_ && input.dtype == DType::kFloat && TapColumns::Pays(shape)) {
    tap_columns_ = std::make_shared<const TapColumns>(shape);
    packed_elements_ = tap_columns_->packed_elements();
    pixel_blocks_ = tap_columns_->units();
    return;
  }
  if (shape.transposed) {
    MakePhases(input, out, keeps_weight);
    return;
  }
  taps_ = d.kernel * h.kernel * w.kernel;
  run_ = is_depthwise_ ? shape.groups : shape.in_channels;
  joins_taps_ = shape.groups == 1 && shape.in_channels < kFewChannels && w.kernel > 1 && w.dilation == 1;
  if (joins_taps_ || input.dtype != DType::kFloat) {
    source_planes_ = ReachOf(d);
    source_rows_ = ReachOf(h);
    source_row_ = ReachOf(w) * all_channels();
    source_elements_ = shape.batch * source_planes_ * source_rows_ * source_row_;
  }
  if (joins_taps_) {
    run_ *= w.kernel;
    taps_ = d.kernel * h.kernel;
  }
  packed_elements_ = is_depthwise_ ? taps_ * shape.groups : shape.groups * panels_ * width_ * taps_ * run_;
  by_patches_ = AllowsPatches(input) && patches() >= (keeps_weight ? kLeastPatches : kLeastPatchesOfRun);
  if (by_patches_) {
    patch_begin_ = packed_elements_;
    packed_elements_ += kPatchPlaces * panels_ * width_ * shape.in_channels;
  } else if (!is_depthwise_ && std::any_of(std::begin(shape.dims), std::end(shape.dims), MeetsPadding)) {
    leaves_out_padding_ = true;
    finite_begin_ = packed_elements_;
    packed_elements_ += shape.groups * panels_;
  }
  CutDepth();
  CutIntoUnits();
}

bool ChannelsLastConv::AllowsPatches(const TensorRef& input) const {
  const auto has_three = [](const ConvDim& dim) { return dim.kernel == 3 && dim.stride == 1 && dim.dilation == 1; };
  return IsUnused(shape_.dims[0]) && has_three(shape_.dims[1]) && has_three(shape_.dims[2]) && shape_.groups == 1 &&
         is_direct_ && input.dtype == DType::kFloat &&
         std::min(shape_.in_channels, shape_.out_channels) >= kPatchChannels;
}

int64_t ChannelsLastConv::patch_width() const { return kPatchPanels * width_; }

void ChannelsLastConv::CutDepth() {
  if (is_depthwise_) return;
  if (by_patches_) {
    const int64_t count = DivideUp(shape_.in_channels, kDepth);
    for (int64_t i = 0; i < count; ++i) {
      channel_blocks_.push_back({shape_.in_channels * i / count, shape_.in_channels * (i + 1) / count});
    }
  }
  int64_t begin = 0;
  const auto add = [&](int64_t tap, int64_t taps, int64_t channel, int64_t depth) {
    blocks_.push_back({tap, taps, channel, depth, begin});
    begin += taps * depth;
  };
  if (run_ <= kDepth) {
    const int64_t count = DivideUp(taps_, kDepth / run_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = taps_ * i / count;
      add(first, taps_ * (i + 1) / count - first, 0, run_);
    }
    return;
  }
  const int64_t count = DivideUp(run_, kDepth);
  for (int64_t tap = 0; tap < taps_; ++tap) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = run_ * i / count;
      add(tap, 1, first, run_ * (i + 1) / count - first);
    }
  }
}

void ChannelsLastConv::CutIntoUnits() {
  if (by_patches_) {
    // Each unit transforms its patches, so that columns are cut only where these are few.
    pixel_blocks_ = DivideUp(patches(), kPatches);
    if (pixel_blocks_ < kUnits) {
      pixel_blocks_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, pixel_blocks_))));
    }
    while (pixel_blocks_ * column_blocks_ < kUnits && panels_ >= 2 * column_blocks_ * kLeastPatchPanels) {
      column_blocks_ *= 2;
    }
    return;
  }
  const int64_t count = pixels();
  pixel_blocks_ = DivideUp(count, kPixels);
  // In numbers that parts of equal size come from.
  pixel_blocks_ = pixel_blocks_ < kUnits ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pixel_blocks_)))
                                         : DivideUp(pixel_blocks_, kUnits) * kUnits;
  const auto wants_more = [&] {
    return pixel_blocks_ * column_blocks_ * (is_depthwise_ ? 1 : shape_.groups) < kUnits &&
           unit_cost() >= 2 * kLeastCost;
  };
  if (is_depthwise_) {
    while (wants_more() && count >= 2 * pixel_blocks_ * kLeastPixelsOfBlock) pixel_blocks_ *= 2;
    return;
  }
  // Weights that stay in the second-level cache may be read again by each block of pixels; others are cut themselves,
  // and where that gives parts of different size, pixels once more.
  const bool stays = panels_ * width_ * taps_ * run_ <= kKeptWeights;
  while (wants_more() && stays && count >= 2 * pixel_blocks_ * kLeastPixelsOfBlock) pixel_blocks_ *= 2;
  while (wants_more() && 2 * column_blocks_ <= panels_) column_blocks_ *= 2;
  if (panels_ % column_blocks_ != 0 && panels_ <= kUnits && count >= 2 * pixel_blocks_ * kLeastPixelsOfBlock) {
    column_blocks_ = panels_;
    pixel_blocks_ *= 2;
  }
}

int64_t ChannelsLastConv::most_columns() const {
  return is_depthwise_ ? shape_.groups : DivideUp(panels_, column_blocks_) * width_;
}

int64_t ChannelsLastConv::unit_cost() const {
  if (phases_ != nullptr) {
    int64_t most = 0;
    for (const Phase& phase : *phases_) most = std::max(most, phase.conv.unit_cost());
    return most;
  }
  if (tap_columns_ != nullptr) return tap_columns_->unit_cost();
  if (by_patches_) return most_patches() * kPatchPlaces * shape_.in_channels * shape_.out_channels / column_blocks_;
  return most_pixels() * taps_ * (is_depthwise_ ? kCostOfEach * shape_.groups : run_ * most_columns());
}

// ---- Input ----

void ChannelsLastConv::Prepare(const TensorRef& input, float* source, Range range) const {
  const ConvDim& d = shape_.dims[0];
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  const int64_t channels = all_channels();
  const int64_t columns = source_row_ / channels;
  const int64_t item = ItemSize(input.dtype);
  const CastFn cast = FindCast(input.dtype, DType::kFloat);
  const int64_t step = input.sizes[1] == 1 ? 1 : input.strides[1];
  const bool is_run = input.strides[4] == channels * step || input.sizes[4] == 1;
  const bool has_planes = input.dtype == DType::kFloat && input.strides[4] == 1 && channels > 1;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    float* to = source + unit * source_row_;
    const int64_t n = unit / source_rows_ / source_planes_;
    const int64_t z = unit / source_rows_ % source_planes_ - d.pad;
    const int64_t y = unit % source_rows_ - h.pad;
    if (z < 0 || z >= d.in || y < 0 || y >= h.in) {
      std::fill_n(to, source_row_, 0.0f);
      continue;
    }
    const int64_t before = std::min(w.pad, columns);
    const int64_t inside = std::clamp<int64_t>(columns - before, 0, w.in);
    std::fill_n(to, before * channels, 0.0f);
    std::fill_n(to + (before + inside) * channels, (columns - before - inside) * channels, 0.0f);
    const char* from = ElementAt(input, n * input.strides[0] + z * input.strides[2] + y * input.strides[3]);
    to += before * channels;
    if (is_run) {
      cast(from, step * item, reinterpret_cast<char*>(to), sizeof(float), inside * channels);
      continue;
    }
    if (has_planes) {
      simd::Transpose(reinterpret_cast<const float*>(from), step, channels, inside, to, channels);
      continue;
    }
    for (int64_t x = 0; x < inside; ++x, to += channels) {
      cast(from + x * input.strides[4] * item, step * item, reinterpret_cast<char*>(to), sizeof(float), channels);
    }
  }
}

// ---- Weights ----

int64_t ChannelsLastConv::PackScratchBytes() const {
  if (is_depthwise_) return 0;
  if (tap_columns_ != nullptr) {
    const int64_t lines = shape_.out_channels * KernelSize(shape_) * shape_.in_channels;
    return ScratchCutter::Bytes<float>(lines) + tap_columns_->PackScratchBytes();
  }
  if (phases_ != nullptr) {
    int64_t most = 0;
    for (const Phase& phase : *phases_) most = std::max(most, phase.conv.PackScratchBytes());
    return ScratchCutter::Bytes<float>(KernelSize(shape_) * shape_.in_channels * width_) + most;
  }
  const int64_t line = taps_ * run_;
  const int64_t filters = by_patches_ ? kPatchPlaces * shape_.in_channels * width_ : 0;
  return ScratchCutter::Bytes<float>(line * width_) + ScratchCutter::Bytes<float>(filters);
}

// [output, tap, channel] of some outputs of a group.
void ChannelsLastConv::GatherLines(const TensorRef& weight, int64_t group, Range outputs, float* lines) const {
  const int64_t taps = KernelSize(shape_);
  const int64_t channels = shape_.in_channels;
  const CastFn cast = FindCast(weight.dtype, DType::kFloat);
  const int64_t item = ItemSize(weight.dtype);
  const int64_t channel_step = weight.strides[shape_.transposed ? 0 : 1];
  const int64_t output_step = weight.strides[shape_.transposed ? 1 : 0];
  const int64_t of_group = group * (shape_.transposed ? channels : shape_.out_channels) * weight.strides[0];
  const bool has_lines_of_taps = weight.dtype == DType::kFloat && HasLinesOfTaps(weight);
  for (int64_t o = outputs.begin; o < outputs.end; ++o, lines += taps * channels) {
    const int64_t at = of_group + o * output_step;
    if (has_lines_of_taps) {
      simd::Transpose(reinterpret_cast<const float*>(ElementAt(weight, at)), channel_step, channels, taps, lines,
                      channels);
      continue;
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      cast(ElementAt(weight, at + TapAt(weight, tap)), channel_step * item,
           reinterpret_cast<char*>(lines + tap * channels), sizeof(float), channels);
    }
  }
}

void ChannelsLastConv::PackPanel(const float* lines, int64_t group, int64_t panel, int64_t columns, float* packed,
                                 float* filters) const {
  const int64_t depth = taps_ * run_;
  float* const base = packed + group * panels_ * width_ * depth;
  for (const Block& block : blocks_) {
    float* const to = base + (block.begin * panels_ + panel * block.count()) * width_;
    if (columns < width_) std::fill_n(to, block.count() * width_, 0.0f);
    simd::Transpose(lines + block.begin, depth, columns, block.count(), to, width_);
  }
  if (by_patches_) PackPatches(lines, panel, columns, packed + patch_begin_, filters);
  if (leaves_out_padding_) packed[finite_begin_ + group * panels_ + panel] = AreFinite(lines, columns * depth) ? 1 : 0;
}

void ChannelsLastConv::Pack(const TensorRef& weight, float* packed, Range range, void* scratch) const {
  if (is_depthwise_) {
    const CastFn cast = FindCast(weight.dtype, DType::kFloat);
    const auto pack = [&](int64_t tap, float* to) {
      cast(ElementAt(weight, TapAt(weight, tap)), weight.strides[0] * ItemSize(weight.dtype),
           reinterpret_cast<char*>(to), sizeof(float), shape_.groups);
    };
    if (phases_ == nullptr) {
      for (int64_t tap = 0; tap < taps_; ++tap) pack(tap, packed + tap * shape_.groups);
      return;
    }
    for (const Phase& phase : *phases_) {
      float* to = packed + phase.packed_begin;
      for (const int64_t tap : phase.taps) pack(tap, std::exchange(to, to + shape_.groups));
    }
    return;
  }
  const int64_t channels = shape_.in_channels;
  const int64_t depth = KernelSize(shape_) * channels;
  ScratchCutter cut(scratch);
  if (tap_columns_ != nullptr) {
    auto* const all = cut.Cut<float>(shape_.out_channels * depth);
    GatherLines(weight, 0, {0, shape_.out_channels}, all);
    return tap_columns_->Pack(all, packed, cut.Cut<char>(tap_columns_->PackScratchBytes()));
  }
  auto* const lines = cut.Cut<float>(depth * width_);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t group = unit / panels_;
    const int64_t panel = unit % panels_;
    const int64_t columns = std::min(width_, shape_.out_channels - panel * width_);
    GatherLines(weight, group, {panel * width_, panel * width_ + columns}, lines);
    if (phases_ == nullptr) {
      ScratchCutter rest = cut;
      auto* const filters = rest.Cut<float>(by_patches_ ? kPatchPlaces * channels * width_ : 0);
      PackPanel(lines, group, panel, columns, packed, filters);
      continue;
    }
    for (const Phase& phase : *phases_) {
      const ChannelsLastConv& conv = phase.conv;
      ScratchCutter rest = cut;
      auto* const own = rest.Cut<float>(conv.taps_ * channels * width_);
      auto* const filters = rest.Cut<float>(conv.by_patches_ ? kPatchPlaces * channels * width_ : 0);
      float* to = own;
      for (int64_t column = 0; column < columns; ++column) {
        for (const int64_t tap : phase.taps) {
          std::copy_n(lines + column * depth + tap * channels, channels, to);
          to += channels;
        }
      }
      conv.PackPanel(own, group, panel, columns, packed + phase.packed_begin, filters);
    }
  }
}

// Panels that are multiplied in one go stand together: by place in the patch, then by block of channels.
void ChannelsLastConv::PackPatches(const float* lines, int64_t panel, int64_t columns, float* packed,
                                   float* filters) const {
  const int64_t channels = shape_.in_channels;
  for (int64_t column = 0; column < columns; ++column) {
    simd::TransformFilter(lines + column * 9 * channels, channels, filters + column * kPatchPlaces * channels);
  }
  const int64_t first = panel / kPatchPanels * kPatchPanels;
  const int64_t together = std::min(kPatchPanels, panels_ - first);
  float* to = packed + first * width_ * kPatchPlaces * channels;
  for (int64_t place = 0; place < kPatchPlaces; ++place) {
    for (const Range& block : channel_blocks_) {
      const int64_t depth = block.end - block.begin;
      float* const own = to + (panel - first) * depth * width_;
      if (columns < width_) std::fill_n(own, depth * width_, 0.0f);
      simd::Transpose(filters + place * channels + block.begin, kPatchPlaces * channels, columns, depth, own, width_);
      to += together * depth * width_;
    }
  }
}

void ChannelsLastConv::TellPacking(std::vector<int64_t>& numbers) const {
  AppendNumbers(shape_, numbers);
  numbers.insert(numbers.end(), {is_depthwise_, by_patches_, tap_columns_ != nullptr, width_, panels_});
  if (phases_ == nullptr) return;
  for (const Phase& phase : *phases_) numbers.push_back(phase.conv.by_patches_);
}

// ---- The convolution ----

struct ChannelsLastConv::Operands {
  const float* input;  // the first element, of whichever of the two
  int64_t pads[3];     // of D, H, W
  Range rows[2];       // of D, H: what is not padding
  int64_t columns;     // of W
  int64_t strides[4];  // of batch, D, H, W
  const float* packed;
  const TensorRef* bias;
  const TensorRef* addend;
  const TensorRef& out;
  const simd::ChannelScaling& scaling;
  int64_t ring;  // RowOperands
};

struct ChannelsLastConv::Scratch {
  const float** rows;
  float* zeros;
  float* sums;
  float* addend;
  float* bias;
  // Of patches: their pixels as they are read, as they are written; transformed; sums.
  const float** pixels;
  int64_t* outputs;
  int64_t* left_out;
  float* patches;
  float* patch_sums;
  char* tap_columns;
};

int64_t ChannelsLastConv::kept_places() const {
  if (tap_columns_ != nullptr) return 0;
  if (by_patches_) return taps_ * 2;  // for what patches leave out
  if (!is_depthwise_) return taps_ * most_pixels();
  const ConvDim& w = shape_.dims[2];
  const int64_t pixels = std::min(w.out, most_pixels());
  return shape_.dims[0].kernel * shape_.dims[1].kernel * ((pixels - 1) * w.stride + (w.kernel - 1) * w.dilation + 1);
}

int64_t ChannelsLastConv::ScratchBytes() const {
  if (phases_ != nullptr) {
    int64_t most = 0;
    for (const Phase& phase : *phases_) most = std::max(most, phase.conv.ScratchBytes());
    return most;
  }
  return ScratchCutter::Bytes<const float*>(kept_places()) + ScratchCutter::Bytes<float>(run_) +
         2 * ScratchCutter::Bytes<float>(kept_sums()) +
         ScratchCutter::Bytes<float>(shape_.groups * shape_.out_channels) +
         ScratchCutter::Bytes<const float*>(kPatchPlaces * kept_patches()) +
         ScratchCutter::Bytes<int64_t>(4 * kept_patches()) + ScratchCutter::Bytes<int64_t>(kept_patches()) +
         ScratchCutter::Bytes<float>(kPatchPlaces * kept_patches() * shape_.in_channels) +
         ScratchCutter::Bytes<float>(kPatchPlaces * kept_patches() * patch_width()) +
         (tap_columns_ == nullptr ? 0 : tap_columns_->ScratchBytes());
}

// The channels of each pixel of the input that meet pixels and taps, or zeros where a tap is in the padding.
class ChannelsLastConv::Places {
 public:
  Places(const Operands& operands, int64_t group_channels, const float* zeros)
      : operands_(operands), from_(operands.input + group_channels), zeros_(zeros) {}

  // A row of the input, counted without the padding, x * strides[3] elements behind which pixel x lies; null: the row
  // is in the padding.
  const float* Row(int64_t n, int64_t z, int64_t y) const {
    const auto is_in = [](int64_t at, const Range& rows) { return at >= rows.begin && at < rows.end; };
    if (!is_in(z, operands_.rows[0]) || !is_in(y, operands_.rows[1])) return nullptr;
    if (operands_.ring != 0) y %= operands_.ring;
    return from_ + n * operands_.strides[0] + z * operands_.strides[1] + y * operands_.strides[2];
  }
  const float* At(const float* row, int64_t x) const {
    const bool is_inside = row != nullptr && x >= 0 && x < operands_.columns;
    return is_inside ? row + x * operands_.strides[3] : zeros_;
  }
  // Pixels first, first + step, … of a row.
  void Fill(const float* row, int64_t first, int64_t step, int64_t count, const float** to) const {
    if (row == nullptr) {
      std::fill_n(to, count, zeros_);
      return;
    }
    // How many of them lie before pixel x.
    const auto before = [=](int64_t x) { return std::clamp<int64_t>((x - first + step - 1) / step, 0, count); };
    const int64_t begin = first >= 0 ? 0 : before(0);
    const int64_t end = std::max(begin, first >= operands_.columns ? 0 : before(operands_.columns));
    std::fill_n(to, begin, zeros_);
    const float* from = row + (first + begin * step) * operands_.strides[3];
    for (int64_t i = begin; i < end; ++i, from += step * operands_.strides[3]) to[i] = from;
    std::fill_n(to + end, count - end, zeros_);
  }
  // line(row): each row of the input that the taps of a row of outputs meet, in the order of the taps.
  template <class Line>
  void ForEachRow(const ConvShape& shape, int64_t row, const Line& line) const {
    const ConvDim& d = shape.dims[0];
    const ConvDim& h = shape.dims[1];
    const int64_t n = row / h.out / d.out;
    const int64_t z = row / h.out % d.out * d.stride - operands_.pads[0];
    const int64_t y = row % h.out * h.stride - operands_.pads[1];
    for (int64_t kd = 0; kd < d.kernel; ++kd) {
      for (int64_t kh = 0; kh < h.kernel; ++kh) line(Row(n, z + kd * d.dilation, y + kh * h.dilation));
    }
  }

 private:
  const Operands& operands_;
  const float* from_;
  const float* zeros_;
};

void ChannelsLastConv::FindRows(const Operands& operands, int64_t group, Range range, const float** rows,
                                const float* zeros) const {
  const ConvDim& w = shape_.dims[2];
  const int64_t count = range.end - range.begin;
  const int64_t kernel_w = joins_taps_ ? 1 : w.kernel;
  const Places places(operands, group * shape_.in_channels, zeros);
  int64_t x = range.begin % w.out;
  int64_t of_outputs = range.begin / w.out;
  for (int64_t p = 0; p < count;) {
    const int64_t pixels = std::min(w.out - x, count - p);  // of this row
    const float** row = rows + p;
    places.ForEachRow(shape_, of_outputs, [&](const float* line) {
      for (int64_t kw = 0; kw < kernel_w; ++kw, row += count) {
        places.Fill(line, x * w.stride + kw * w.dilation - operands.pads[2], w.stride, pixels, row);
      }
    });
    p += pixels;
    x = 0;
    ++of_outputs;
  }
}

// Row by row: pixels that are neighbours share most of what they read.
void ChannelsLastConv::FilterRows(const Operands& operands, Range range, const Scratch& scratch, float* sums,
                                  int64_t sums_step, simd::PixelEpilogue epilogue) const {
  const ConvDim& w = shape_.dims[2];
  const int64_t kernel_rows = shape_.dims[0].kernel * shape_.dims[1].kernel;
  const Places places(operands, 0, scratch.zeros);
  for (int64_t p = range.begin; p < range.end;) {
    const int64_t x = p % w.out;
    const int64_t pixels = std::min(w.out - x, range.end - p);
    const int64_t columns = (pixels - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
    const float** place = scratch.rows;
    places.ForEachRow(shape_, p / w.out, [&](const float* line) {
      places.Fill(line, x * w.stride - operands.pads[2], 1, columns, place);
      place += columns;
    });
    simd::FilterPixels({scratch.rows, columns, w.stride, w.dilation, pixels, kernel_rows, w.kernel, operands.packed,
                        shape_.groups, sums, sums_step, epilogue});
    sums += pixels * sums_step;
    if (epilogue.addend != nullptr) epilogue.addend += pixels * epilogue.addend_stride;
    p += pixels;
  }
}

ChannelsLastConv::Part ChannelsLastConv::PartOf(int64_t unit) const {
  const int64_t pixel_block = unit % pixel_blocks_;
  const int64_t column_block = unit / pixel_blocks_ % column_blocks_;
  const int64_t count = by_patches_ ? patches() : pixels();
  Part part;
  part.group = unit / pixel_blocks_ / column_blocks_;
  if (tap_columns_ != nullptr) {
    const Range rows = tap_columns_->RowsOf(unit);
    part = {
        {rows.begin * shape_.dims[2].out, rows.end * shape_.dims[2].out}, 0, {0, panels_}, 0, shape_.out_channels, 0};
    return part;
  }
  part.pixels = {count * pixel_block / pixel_blocks_, count * (pixel_block + 1) / pixel_blocks_};
  const int64_t together = by_patches_ ? kPatchPanels : 1;
  const int64_t runs = DivideUp(panels_, together);
  part.panels = {runs * column_block / column_blocks_ * together,
                 std::min(panels_, runs * (column_block + 1) / column_blocks_ * together)};
  part.first_column = is_depthwise_ ? 0 : part.panels.begin * width_;
  part.columns =
      is_depthwise_ ? shape_.groups : std::min(shape_.out_channels, part.panels.end * width_) - part.first_column;
  part.first_channel = part.group * (is_depthwise_ ? 0 : shape_.out_channels) + part.first_column;
  return part;
}

ChannelsLastConv::Tile ChannelsLastConv::TileOf(int64_t unit) const {
  const Part part = PartOf(unit);
  return {part.pixels, {part.first_channel, part.first_channel + part.columns}};
}

// For the pixels of the part, the first one of which is pixel 0.
simd::PixelEpilogue ChannelsLastConv::EpilogueOf(const Operands& operands, const Part& part,
                                                 const Scratch& scratch) const {
  simd::PixelEpilogue epilogue;
  epilogue.clamps = epilogue_.activation == ConvActivation::kClamp;
  epilogue.is_relu = epilogue_.activation == ConvActivation::kRelu;
  epilogue.low = epilogue_.low;
  epilogue.high = epilogue_.high;
  if (operands.bias != nullptr) epilogue.bias = scratch.bias + part.first_channel;
  if (const simd::ChannelScaling& all = operands.scaling; all.scale != nullptr) {
    const int64_t first = part.first_channel;
    epilogue.scaling = {all.centre + first, all.scale + first, all.shift + first};
  }
  if (operands.addend == nullptr) return epilogue;
  const TensorRef& addend = *operands.addend;
  if (addend.dtype == DType::kFloat && IsEven(addend)) {
    const int64_t step = PixelStep(addend);
    epilogue.addend = reinterpret_cast<const float*>(ElementAt(addend, part.pixels.begin * step + part.first_channel));
    epilogue.addend_stride = step;
    return epilogue;
  }
  const CastFn cast = FindCast(addend.dtype, DType::kFloat);
  const int64_t item = ItemSize(addend.dtype);
  for (int64_t p = 0; p < part.pixels.end - part.pixels.begin; ++p) {
    const int64_t at = PixelAt(addend, part.pixels.begin + p) + part.first_channel;
    cast(ElementAt(addend, at), item, reinterpret_cast<char*>(scratch.addend + p * part.columns), sizeof(float),
         part.columns);
  }
  epilogue.addend = scratch.addend;
  epilogue.addend_stride = part.columns;
  return epilogue;
}

void ChannelsLastConv::MultiplyPixels(const Operands& operands, const Part& part, const Scratch& scratch, float* sums,
                                      int64_t sums_step, const simd::PixelEpilogue& epilogue) const {
  const int64_t count = part.pixels.end - part.pixels.begin;
  FindRows(operands, part.group, part.pixels, scratch.rows, scratch.zeros);
  const float* const packed = operands.packed + part.group * panels_ * width_ * taps_ * run_;
  const auto panels_of = [&](const Block& block) {
    return packed + (block.begin * panels_ + part.panels.begin * block.count()) * width_;
  };
  const float* const finite = operands.packed + finite_begin_ + part.group * panels_;
  const auto is_finite = [](float is) { return is != 0; };
  const bool leaves_out =
      leaves_out_padding_ && std::all_of(finite + part.panels.begin, finite + part.panels.end, is_finite);
  for (const Block& block : blocks_) {
    const bool is_last = &block == &blocks_.back();
    simd::MultiplyPixels({scratch.rows + block.first_tap * count, count, count, block.taps, block.first_channel,
                          block.depth, panels_of(block), is_last ? nullptr : panels_of(*(&block + 1)), part.columns,
                          sums, sums_step, block.begin != 0, is_last, epilogue, leaves_out ? scratch.zeros : nullptr});
  }
}

void ChannelsLastConv::RunPixels(const Operands& operands, const Part& part, const Scratch& scratch) const {
  const TensorRef& out = operands.out;
  const simd::PixelEpilogue epilogue = EpilogueOf(operands, part, scratch);
  float* sums = scratch.sums;
  int64_t sums_step = part.columns;
  if (is_direct_) {
    sums_step = PixelStep(out);
    sums = reinterpret_cast<float*>(ElementAt(out, part.pixels.begin * sums_step + part.first_channel));
  }
  if (is_depthwise_) {
    FilterRows(operands, part.pixels, scratch, sums, sums_step, epilogue);
  } else {
    MultiplyPixels(operands, part, scratch, sums, sums_step, epilogue);
  }
  // While what the unit wrote is still in the second-level cache.
  activate_.Run(sums, sums_step, part.pixels.end - part.pixels.begin, part.columns);
  if (is_direct_) return;
  const CastFn cast = FindCast(DType::kFloat, out.dtype);
  const int64_t item = ItemSize(out.dtype);
  for (int64_t p = 0; p < part.pixels.end - part.pixels.begin; ++p) {
    const int64_t at = PixelAt(out, part.pixels.begin + p) + part.first_channel;
    cast(reinterpret_cast<const char*>(sums + p * part.columns), sizeof(float), ElementAt(out, at), item, part.columns);
  }
}

// ---- By taps as columns ----

void ChannelsLastConv::RunTapColumns(const Operands& operands, const Part& part, const Scratch& scratch) const {
  const int64_t step = PixelStep(operands.out);
  auto* const out = reinterpret_cast<float*>(ElementAt(operands.out, part.pixels.begin * step));
  const int64_t(&strides)[4] = operands.strides;
  const int64_t width = shape_.dims[2].out;
  tap_columns_->Run({operands.input, strides[0], strides[2], strides[3], operands.packed, out, step},
                    {part.pixels.begin / width, part.pixels.end / width}, scratch.tap_columns);
  const int64_t pixels = part.pixels.end - part.pixels.begin;
  simd::FinishPixels({out, pixels, part.columns, out, step, EpilogueOf(operands, part, scratch)});
  activate_.Run(out, step, pixels, part.columns);
}

// ---- By patches ----

// Where the pixels of patches are read and written.
void ChannelsLastConv::FindPatches(const Operands& operands, Range range, const Scratch& scratch) const {
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  const int64_t count = range.end - range.begin;
  const Places places(operands, 0, scratch.zeros);
  for (int64_t p = 0; p < count; ++p) {
    const int64_t patch = range.begin + p;
    const int64_t x = 2 * (patch % row_patches());
    const int64_t y = 2 * (patch / row_patches() % patch_rows());
    const int64_t n = patch / row_patches() / patch_rows();
    const float** pixel = scratch.pixels + p;
    for (int64_t i = 0; i < 4; ++i) {
      const float* const line = places.Row(n, 0, y + i - operands.pads[1]);
      for (int64_t j = 0; j < 4; ++j, pixel += count) *pixel = places.At(line, x + j - operands.pads[2]);
    }
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t out_y = y + i / 2;
      const int64_t out_x = x + i % 2;
      const bool is_there = out_y < h.out && out_x < w.out;
      scratch.outputs[4 * p + i] = is_there ? (n * h.out + out_y) * w.out + out_x : -1;
    }
  }
}

void ChannelsLastConv::ActivatePatches(const Part& part, int64_t left_out, float* to, int64_t step,
                                       const Scratch& scratch) const {
  if (activate_.IsNothing()) return;
  const int64_t* next = scratch.left_out;
  for (int64_t patch = 0; patch < part.pixels.end; ++patch) {
    if (next < scratch.left_out + left_out && *next == patch) {
      ++next;
      continue;
    }
    for (const int64_t* pixel = scratch.outputs + 4 * patch; pixel < scratch.outputs + 4 * patch + 4; ++pixel) {
      if (*pixel >= 0) activate_.Run(to + *pixel * step, step, 1, part.columns);
    }
  }
}

void ChannelsLastConv::RunPatches(const Operands& operands, const Part& part, const Scratch& scratch) const {
  const int64_t channels = shape_.in_channels;
  const int64_t count = part.pixels.end - part.pixels.begin;
  FindPatches(operands, part.pixels, scratch);
  simd::TransformPatches({scratch.pixels, count, channels, scratch.patches});
  const float** const rows = scratch.pixels;  // which are not needed any more
  for (int64_t p = 0; p < count; ++p) rows[p] = scratch.patches + p * channels;

  const float* panels = operands.packed + patch_begin_ + part.panels.begin * width_ * kPatchPlaces * channels;
  Part some = part;
  some.pixels = {0, 0};
  for (int64_t first = part.panels.begin; first < part.panels.end; first += kPatchPanels) {
    some.panels = {first, std::min(first + kPatchPanels, part.panels.end)};
    some.first_column = some.first_channel = first * width_;
    some.columns = std::min(shape_.out_channels, some.panels.end * width_) - some.first_column;
    const int64_t stride = (some.panels.end - first) * width_;
    for (int64_t place = 0; place < kPatchPlaces; ++place) {
      for (const Range& block : channel_blocks_) {
        const int64_t depth = block.end - block.begin;
        const float* const next = panels + stride * depth;  // behind the last one, in vain
        simd::MultiplyPixels({rows,
                              0,
                              count,
                              1,
                              place * count * channels + block.begin,
                              depth,
                              panels,
                              next,
                              some.columns,
                              scratch.patch_sums + place * count * stride,
                              stride,
                              block.begin != 0,
                              false,
                              {}});
        panels = next;
      }
    }
    const simd::PixelEpilogue epilogue = EpilogueOf(operands, some, scratch);
    float* const to = reinterpret_cast<float*>(ElementAt(operands.out, some.first_channel));
    const int64_t step = PixelStep(operands.out);
    const int64_t left_out = simd::FinishPatches(
        {scratch.patch_sums, count, some.columns, stride, scratch.outputs, to, step, epilogue, scratch.left_out});
    Part finished = some;
    finished.pixels = {0, count};
    ActivatePatches(finished, left_out, to, step, scratch);
    for (int64_t i = 0; i < left_out; ++i) {
      for (int64_t row = 0; row < 2; ++row) {
        const int64_t* const pixels = scratch.outputs + 4 * scratch.left_out[i] + 2 * row;
        if (pixels[0] < 0) continue;
        Part pair = some;
        pair.pixels = {pixels[0], pixels[0] + (pixels[1] < 0 ? 1 : 2)};
        RunPixels(operands, pair, scratch);
      }
    }
  }
}

ChannelsLastConv::Operands ChannelsLastConv::OperandsOf(const RowOperands& given, const TensorRef& out) const {
  const ConvDim(&dims)[3] = shape_.dims;
  const TensorRef& input = given.input;
  Operands operands{static_cast<const float*>(input.data),
                    {dims[0].pad, dims[1].pad, dims[2].pad},
                    {{0, dims[0].in}, {0, dims[1].in}},
                    dims[2].in,
                    {input.strides[0], input.strides[2], input.strides[3], input.strides[4]},
                    given.packed,
                    given.bias,
                    given.addend,
                    out,
                    given.scaling,
                    given.ring};
  if (given.source == nullptr) return operands;
  operands.input = given.source;
  for (int d = 0; d < 2; ++d) operands.rows[d] = {dims[d].pad, dims[d].pad + dims[d].in};
  std::fill_n(operands.pads, 3, 0);
  operands.columns = source_row_ / all_channels();
  operands.strides[0] = source_planes_ * source_rows_ * source_row_;
  operands.strides[1] = source_rows_ * source_row_;
  operands.strides[2] = source_row_;
  operands.strides[3] = all_channels();
  return operands;
}

ChannelsLastConv::Scratch ChannelsLastConv::CutScratch(void* memory, const TensorRef* bias) const {
  ScratchCutter cut(memory);
  Scratch scratch{};
  scratch.rows = cut.Cut<const float*>(kept_places());
  scratch.zeros = cut.Cut<float>(run_);
  scratch.sums = cut.Cut<float>(kept_sums());
  scratch.addend = cut.Cut<float>(kept_sums());
  scratch.bias = cut.Cut<float>(shape_.groups * shape_.out_channels);
  scratch.pixels = cut.Cut<const float*>(kPatchPlaces * kept_patches());
  scratch.outputs = cut.Cut<int64_t>(4 * kept_patches());
  scratch.left_out = cut.Cut<int64_t>(kept_patches());
  scratch.patches = cut.Cut<float>(kPatchPlaces * kept_patches() * shape_.in_channels);
  scratch.patch_sums = cut.Cut<float>(kPatchPlaces * kept_patches() * patch_width());
  scratch.tap_columns = cut.Cut<char>(tap_columns_ == nullptr ? 0 : tap_columns_->ScratchBytes());
  std::fill_n(scratch.zeros, run_, 0.0f);
  if (bias != nullptr) {
    FindCast(bias->dtype, DType::kFloat)(static_cast<const char*>(bias->data), bias->strides[0] * ItemSize(bias->dtype),
                                         reinterpret_cast<char*>(scratch.bias), sizeof(float), bias->sizes[0]);
  }
  return scratch;
}

void ChannelsLastConv::Convolve(const TensorRef& input, const float* source, const float* packed, const TensorRef* bias,
                                const TensorRef* addend, const TensorRef& out, Range range, void* memory,
                                const simd::ChannelScaling& scaling) const {
  if (phases_ != nullptr) {
    for (const Phase& phase : *phases_) {
      const Range own = {std::max(range.begin - phase.unit_begin, int64_t{0}),
                         std::min(range.end - phase.unit_begin, phase.conv.units())};
      if (own.begin >= own.end) continue;
      const TensorRef more = addend == nullptr ? TensorRef() : phase.OutputsOf(*addend);
      phase.conv.Convolve(input, nullptr, packed + phase.packed_begin, bias, addend == nullptr ? nullptr : &more,
                          phase.OutputsOf(out), own, memory, scaling);
    }
    return;
  }
  const RowOperands given{input, source, 0, packed, bias, addend, scaling};
  const Operands operands = OperandsOf(given, out);
  const Scratch scratch = CutScratch(memory, bias);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const Part part = PartOf(unit);
    if (tap_columns_ != nullptr) {
      RunTapColumns(operands, part, scratch);
    } else {
      by_patches_ ? RunPatches(operands, part, scratch) : RunPixels(operands, part, scratch);
    }
  }
}

bool ChannelsLastConv::has_rows() const {
  const ConvDim& d = shape_.dims[0];
  return is_direct_ && has_tiles() && d.in == 1 && d.out == 1 && d.kernel == 1;
}

bool ChannelsLastConv::IsFlat() const {
  const ConvDim& w = shape_.dims[2];
  return has_rows() && source_elements_ == 0 && IsUnused(shape_.dims[1]) && w.kernel == 1 && w.stride == 1 &&
         w.pad == 0 && w.in == w.out;
}

std::shared_ptr<const ChannelsLastConv> ChannelsLastConv::WithRows(int64_t height, int64_t width) const {
  auto same = std::make_shared<ChannelsLastConv>(*this);
  same->shape_.dims[1] = {height, height, 1, 1, 0, 1};
  same->shape_.dims[2] = {width, width, 1, 1, 0, 1};
  return same;
}

void ChannelsLastConv::ConvolveRows(const RowOperands& given, const TensorRef& out, Range range, void* memory) const {
  const Operands operands = OperandsOf(given, out);
  const Scratch scratch = CutScratch(memory, given.bias);
  Part part;
  part.panels = {0, panels_};
  part.columns = is_depthwise_ ? shape_.groups : shape_.out_channels;
  part.first_column = 0;
  for (int64_t begin = range.begin; begin < range.end; begin += most_pixels()) {
    part.pixels = {begin, std::min(begin + most_pixels(), range.end)};
    for (part.group = 0; part.group < (is_depthwise_ ? 1 : shape_.groups); ++part.group) {
      part.first_channel = part.group * shape_.out_channels;
      RunPixels(operands, part, scratch);
    }
  }
}

}  // namespace reprise::kernels
