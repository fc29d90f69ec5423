// SPDX-License-Identifier: Apache-2.0
#include "kernels/channels_last_conv.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

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

bool IsUnused(const ConvDim& dim) { return dim.in == 1 && dim.out == 1 && dim.kernel == 1 && dim.pad == 0; }

// From one pixel to the next, where they follow one another in even steps.
int64_t PixelStep(const TensorRef& ref) {
  if (ref.sizes[4] != 1) return ref.strides[4];
  return ref.sizes[3] != 1 ? ref.strides[3] : ref.strides[0];
}

// Pixels follow one another in even steps.
bool IsEven(const TensorRef& ref) {
  const int64_t step = PixelStep(ref);
  return (ref.sizes[3] == 1 || ref.strides[3] == step * ref.sizes[4]) &&
         (ref.sizes[0] == 1 || ref.strides[0] == step * ref.sizes[4] * ref.sizes[3]);
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
  if (shape.transposed || input.dtype == DType::kDouble || !IsUnused(shape.dims[0])) return false;
  if (CategoryOf(input.dtype) != Category::kFloating || CategoryOf(out.dtype) != Category::kFloating) return false;
  if (shape.batch * shape.dims[1].out * shape.dims[2].out < kLeastPixels) return false;
  if (shape.in_channels == 1 && shape.out_channels == 1 && shape.groups == 1) return false;
  if (shape.in_channels == 1 && shape.out_channels > 1 && shape.groups > 1) return false;
  const bool reads_channels = input.strides[1] == 1 || input.sizes[1] == 1;
  const bool writes_channels = out.strides[1] == 1 || out.sizes[1] == 1;
  if (!reads_channels || !writes_channels) return false;
  if (input.sizes[1] == 1 && out.sizes[1] == 1) return false;
  return IsEven(out);
}

ChannelsLastConv::ChannelsLastConv(const ConvShape& shape, const TensorRef& input, const TensorRef& out,
                                   const ConvEpilogue& epilogue, bool keeps_weight)
    : shape_(shape),
      epilogue_(epilogue),
      activate_(epilogue),
      is_direct_(out.dtype == DType::kFloat),
      width_(simd::PanelWidth(float())) {
  const ConvDim& h = shape.dims[1];
  const ConvDim& w = shape.dims[2];
  is_depthwise_ = shape.in_channels == 1 && shape.out_channels == 1;
  panels_ = DivideUp(shape.out_channels, width_);
  taps_ = h.kernel * w.kernel;
  run_ = is_depthwise_ ? shape.groups : shape.in_channels;
  joins_taps_ = shape.groups == 1 && shape.in_channels < kFewChannels && w.kernel > 1 && w.dilation == 1;
  if (joins_taps_ || input.dtype != DType::kFloat) {
    source_rows_ = (h.out - 1) * h.stride + (h.kernel - 1) * h.dilation + 1;
    source_row_ = ((w.out - 1) * w.stride + (w.kernel - 1) * w.dilation + 1) * all_channels();
    source_elements_ = shape.batch * source_rows_ * source_row_;
  }
  if (joins_taps_) {
    run_ *= w.kernel;
    taps_ = h.kernel;
  }
  packed_elements_ =
      is_depthwise_ ? taps_ * shape.groups : shape.groups * panels_ * width_ * h.kernel * w.kernel * shape.in_channels;
  by_patches_ = AllowsPatches(input) && patches() >= (keeps_weight ? kLeastPatches : kLeastPatchesOfRun);
  if (by_patches_) {
    patch_begin_ = packed_elements_;
    packed_elements_ += kPatchPlaces * panels_ * width_ * shape.in_channels;
  }
  CutDepth();
  CutIntoUnits();
}

bool ChannelsLastConv::AllowsPatches(const TensorRef& input) const {
  const auto has_three = [](const ConvDim& dim) { return dim.kernel == 3 && dim.stride == 1 && dim.dilation == 1; };
  return has_three(shape_.dims[1]) && has_three(shape_.dims[2]) && shape_.groups == 1 && is_direct_ &&
         input.dtype == DType::kFloat && std::min(shape_.in_channels, shape_.out_channels) >= kPatchChannels;
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
  if (by_patches_) return most_patches() * kPatchPlaces * shape_.in_channels * shape_.out_channels / column_blocks_;
  return most_pixels() * taps_ * (is_depthwise_ ? kCostOfEach * shape_.groups : run_ * most_columns());
}

// ---- Input ----

void ChannelsLastConv::Prepare(const TensorRef& input, float* source, Range range) const {
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
    const int64_t n = unit / source_rows_;
    const int64_t y = unit % source_rows_ - h.pad;
    if (y < 0 || y >= h.in) {
      std::fill_n(to, source_row_, 0.0f);
      continue;
    }
    const int64_t before = std::min(w.pad, columns);
    const int64_t inside = std::clamp<int64_t>(columns - before, 0, w.in);
    std::fill_n(to, before * channels, 0.0f);
    std::fill_n(to + (before + inside) * channels, (columns - before - inside) * channels, 0.0f);
    const char* from = ElementAt(input, n * input.strides[0] + y * input.strides[3]);
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
  const int64_t line = shape_.dims[1].kernel * shape_.dims[2].kernel * shape_.in_channels;
  const int64_t filters = by_patches_ ? kPatchPlaces * shape_.in_channels * width_ : 0;
  return ScratchCutter::Bytes<float>(line * width_) + ScratchCutter::Bytes<float>(filters);
}

void ChannelsLastConv::Pack(const TensorRef& weight, float* packed, Range range, void* scratch) const {
  const int64_t kernel_w = shape_.dims[2].kernel;
  const int64_t taps = shape_.dims[1].kernel * kernel_w;
  const int64_t item = ItemSize(weight.dtype);
  const CastFn cast = FindCast(weight.dtype, DType::kFloat);
  const auto tap_at = [&](int64_t tap) {
    return tap / kernel_w * weight.strides[3] + tap % kernel_w * weight.strides[4];
  };
  if (is_depthwise_) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      cast(ElementAt(weight, tap_at(tap)), weight.strides[0] * item,
           reinterpret_cast<char*>(packed + tap * shape_.groups), sizeof(float), shape_.groups);
    }
    return;
  }
  const int64_t channels = shape_.in_channels;
  const int64_t depth = taps * channels;
  ScratchCutter cut(scratch);
  auto* const lines = cut.Cut<float>(depth * width_);
  auto* const filters = cut.Cut<float>(by_patches_ ? kPatchPlaces * channels * width_ : 0);
  const bool has_rows_of_taps = weight.dtype == DType::kFloat && (kernel_w == 1 || weight.strides[4] == 1) &&
                                (taps == kernel_w || weight.strides[3] == kernel_w);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t group = unit / panels_;
    const int64_t panel = unit % panels_;
    const int64_t columns = std::min(width_, shape_.out_channels - panel * width_);
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t o = group * shape_.out_channels + panel * width_ + column;
      if (has_rows_of_taps) {
        simd::Transpose(reinterpret_cast<const float*>(ElementAt(weight, o * weight.strides[0])), weight.strides[1],
                        channels, taps, lines + column * depth, channels);
        continue;
      }
      for (int64_t tap = 0; tap < taps; ++tap) {
        cast(ElementAt(weight, o * weight.strides[0] + tap_at(tap)), weight.strides[1] * item,
             reinterpret_cast<char*>(lines + column * depth + tap * channels), sizeof(float), channels);
      }
    }
    float* const base = packed + group * panels_ * width_ * depth;
    for (const Block& block : blocks_) {
      float* const to = base + (block.begin * panels_ + panel * block.count()) * width_;
      if (columns < width_) std::fill_n(to, block.count() * width_, 0.0f);
      simd::Transpose(lines + block.begin, depth, columns, block.count(), to, width_);
    }
    if (by_patches_) PackPatches(lines, panel, columns, packed + patch_begin_, filters);
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
  numbers.insert(numbers.end(), {is_depthwise_, by_patches_, width_, panels_});
}

// ---- The convolution ----

struct ChannelsLastConv::Operands {
  const float* input;  // the first element, of whichever of the two
  int64_t pad_h, pad_w, in_h, in_w;
  int64_t strides[3];  // of batch, rows and columns
  const float* packed;
  const TensorRef* bias;
  const TensorRef* addend;
  const TensorRef& out;
  const simd::ChannelScaling& scaling;
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
};

int64_t ChannelsLastConv::kept_places() const {
  if (by_patches_) return taps_ * 2;  // for what patches leave out
  if (!is_depthwise_) return taps_ * most_pixels();
  const ConvDim& w = shape_.dims[2];
  const int64_t pixels = std::min(w.out, most_pixels());
  return shape_.dims[1].kernel * ((pixels - 1) * w.stride + (w.kernel - 1) * w.dilation + 1);
}

int64_t ChannelsLastConv::ScratchBytes() const {
  return ScratchCutter::Bytes<const float*>(kept_places()) + ScratchCutter::Bytes<float>(run_) +
         2 * ScratchCutter::Bytes<float>(kept_sums()) +
         ScratchCutter::Bytes<float>(shape_.groups * shape_.out_channels) +
         ScratchCutter::Bytes<const float*>(kPatchPlaces * kept_patches()) +
         ScratchCutter::Bytes<int64_t>(4 * kept_patches()) + ScratchCutter::Bytes<int64_t>(kept_patches()) +
         ScratchCutter::Bytes<float>(kPatchPlaces * kept_patches() * shape_.in_channels) +
         ScratchCutter::Bytes<float>(kPatchPlaces * kept_patches() * patch_width());
}

// The channels of each pixel of the input that meet pixels and taps, or zeros where a tap is in the padding.
class ChannelsLastConv::Places {
 public:
  Places(const Operands& operands, int64_t group_channels, const float* zeros)
      : operands_(operands), from_(operands.input + group_channels), zeros_(zeros) {}

  // Of one row of the input, x * strides[2] elements behind it; null: the row is in the padding.
  const float* Row(int64_t n, int64_t y) const {
    const bool is_inside = y >= 0 && y < operands_.in_h;
    return is_inside ? from_ + n * operands_.strides[0] + y * operands_.strides[1] : nullptr;
  }
  const float* At(const float* row, int64_t x) const {
    const bool is_inside = row != nullptr && x >= 0 && x < operands_.in_w;
    return is_inside ? row + x * operands_.strides[2] : zeros_;
  }

 private:
  const Operands& operands_;
  const float* from_;
  const float* zeros_;
};

void ChannelsLastConv::FindRows(const Operands& operands, int64_t group, Range range, const float** rows,
                                const float* zeros) const {
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  const int64_t count = range.end - range.begin;
  const int64_t kernel_w = joins_taps_ ? 1 : w.kernel;
  const Places places(operands, group * shape_.in_channels, zeros);
  int64_t x = range.begin % w.out;
  int64_t y = range.begin / w.out % h.out;
  int64_t n = range.begin / w.out / h.out;
  for (int64_t p = 0; p < count;) {
    const int64_t pixels = std::min(w.out - x, count - p);  // of this row
    const float** row = rows + p;
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const float* const line = places.Row(n, y * h.stride + kh * h.dilation - operands.pad_h);
      for (int64_t kw = 0; kw < kernel_w; ++kw, row += count) {
        int64_t at = x * w.stride + kw * w.dilation - operands.pad_w;
        for (int64_t i = 0; i < pixels; ++i, at += w.stride) row[i] = places.At(line, at);
      }
    }
    p += pixels;
    x = 0;
    if (++y < h.out) continue;
    y = 0;
    ++n;
  }
}

// Row by row: pixels that are neighbours share most of what they read.
void ChannelsLastConv::FilterRows(const Operands& operands, Range range, const Scratch& scratch, float* sums,
                                  int64_t sums_step, simd::PixelEpilogue epilogue) const {
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  const Places places(operands, 0, scratch.zeros);
  for (int64_t p = range.begin; p < range.end;) {
    const int64_t x = p % w.out;
    const int64_t y = p / w.out % h.out;
    const int64_t n = p / w.out / h.out;
    const int64_t pixels = std::min(w.out - x, range.end - p);
    const int64_t columns = (pixels - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
    const float** place = scratch.rows;
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const float* const line = places.Row(n, y * h.stride + kh * h.dilation - operands.pad_h);
      const int64_t first = x * w.stride - operands.pad_w;
      for (int64_t column = 0; column < columns; ++column) *place++ = places.At(line, first + column);
    }
    simd::FilterPixels({scratch.rows, columns, w.stride, w.dilation, pixels, h.kernel, w.kernel, operands.packed,
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
  const int64_t step = PixelStep(addend);
  const char* const from = ElementAt(addend, part.pixels.begin * step + part.first_channel);
  if (addend.dtype == DType::kFloat) {
    epilogue.addend = reinterpret_cast<const float*>(from);
    epilogue.addend_stride = step;
    return epilogue;
  }
  const CastFn cast = FindCast(addend.dtype, DType::kFloat);
  const int64_t item = ItemSize(addend.dtype);
  for (int64_t p = 0; p < part.pixels.end - part.pixels.begin; ++p) {
    cast(from + p * step * item, item, reinterpret_cast<char*>(scratch.addend + p * part.columns), sizeof(float),
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
  for (const Block& block : blocks_) {
    const bool is_last = &block == &blocks_.back();
    simd::MultiplyPixels({scratch.rows + block.first_tap * count, count, count, block.taps, block.first_channel,
                          block.depth, panels_of(block), is_last ? nullptr : panels_of(*(&block + 1)), part.columns,
                          sums, sums_step, block.begin != 0, is_last, epilogue});
  }
}

void ChannelsLastConv::RunPixels(const Operands& operands, const Part& part, const Scratch& scratch) const {
  const TensorRef& out = operands.out;
  const int64_t out_step = PixelStep(out);
  char* const to = ElementAt(out, part.pixels.begin * out_step + part.first_channel);
  const simd::PixelEpilogue epilogue = EpilogueOf(operands, part, scratch);
  float* const sums = is_direct_ ? reinterpret_cast<float*>(to) : scratch.sums;
  const int64_t sums_step = is_direct_ ? out_step : part.columns;
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
    cast(reinterpret_cast<const char*>(sums + p * part.columns), sizeof(float), to + p * out_step * item, item,
         part.columns);
  }
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
      const float* const line = places.Row(n, y + i - operands.pad_h);
      for (int64_t j = 0; j < 4; ++j, pixel += count) *pixel = places.At(line, x + j - operands.pad_w);
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

void ChannelsLastConv::Convolve(const TensorRef& input, const float* source, const float* packed, const TensorRef* bias,
                                const TensorRef* addend, const TensorRef& out, Range range, void* memory,
                                const simd::ChannelScaling& scaling) const {
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  Operands operands{static_cast<const float*>(input.data),
                    h.pad,
                    w.pad,
                    h.in,
                    w.in,
                    {input.strides[0], input.strides[3], input.strides[4]},
                    packed,
                    bias,
                    addend,
                    out,
                    scaling};
  if (source != nullptr) {
    operands.input = source;
    operands.pad_h = operands.pad_w = 0;
    operands.in_h = source_rows_;
    operands.in_w = source_row_ / all_channels();
    operands.strides[0] = source_rows_ * source_row_;
    operands.strides[1] = source_row_;
    operands.strides[2] = all_channels();
  }
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
  std::fill_n(scratch.zeros, run_, 0.0f);
  if (bias != nullptr) {
    FindCast(bias->dtype, DType::kFloat)(static_cast<const char*>(bias->data), bias->strides[0] * ItemSize(bias->dtype),
                                         reinterpret_cast<char*>(scratch.bias), sizeof(float), bias->sizes[0]);
  }
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const Part part = PartOf(unit);
    by_patches_ ? RunPatches(operands, part, scratch) : RunPixels(operands, part, scratch);
  }
}

}  // namespace reprise::kernels
