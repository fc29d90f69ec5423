// SPDX-License-Identifier: Apache-2.0
#include "kernels/channels_last_conv.h"

#include <bit>
#include <cstring>

#include "kernels/plane.h"
#include "kernels/simd/channels_last.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kDepth = 256;          // of a block: a panel of it takes half of the first-level cache
constexpr int64_t kPixels = 112;         // of a unit, more or less: so many times kDepth lie in the second-level cache
constexpr int64_t kUnits = 8;            // at least, where there is work for them
constexpr int64_t kLeastCost = 1 << 16;  // multiply-adds of a unit that is cut off for the sake of kUnits
constexpr int64_t kFewChannels = 16;     // below it the taps of a row are joined
constexpr int64_t kLeastPixels = 16;     // otherwise packing the weights costs more than it saves

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

}  // namespace

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
                                   const ConvEpilogue& epilogue)
    : shape_(shape), epilogue_(epilogue), is_direct_(out.dtype == DType::kFloat), width_(simd::PanelWidth(float())) {
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
  CutDepth();
  CutIntoUnits();
}

void ChannelsLastConv::CutDepth() {
  if (is_depthwise_) return;
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
  const int64_t count = pixels();
  pixel_blocks_ = DivideUp(count, kPixels);
  // In numbers that parts of equal size come from.
  pixel_blocks_ = pixel_blocks_ < kUnits ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pixel_blocks_)))
                                         : DivideUp(pixel_blocks_, kUnits) * kUnits;
  if (is_depthwise_) {
    while (pixel_blocks_ < kUnits && 2 * pixel_blocks_ <= count && unit_cost() >= 2 * kLeastCost) pixel_blocks_ *= 2;
    return;
  }
  while (pixel_blocks_ * column_blocks_ * shape_.groups < kUnits && 2 * column_blocks_ <= panels_ &&
         unit_cost() >= 2 * kLeastCost) {
    column_blocks_ *= 2;
  }
}

int64_t ChannelsLastConv::most_columns() const {
  return is_depthwise_ ? shape_.groups : DivideUp(panels_, column_blocks_) * width_;
}

int64_t ChannelsLastConv::unit_cost() const {
  return most_pixels() * taps_ * (is_depthwise_ ? shape_.groups : run_ * most_columns());
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
    for (int64_t x = 0; x < inside; ++x, to += channels) {
      cast(from + x * input.strides[4] * item, step * item, reinterpret_cast<char*>(to), sizeof(float), channels);
    }
  }
}

// ---- Weights ----

int64_t ChannelsLastConv::PackScratchBytes() const {
  if (is_depthwise_) return 0;
  const int64_t line = shape_.dims[1].kernel * shape_.dims[2].kernel * shape_.in_channels;
  return ScratchCutter::Bytes<float>(line * width_);
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
  auto* const lines = static_cast<float*>(scratch);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t group = unit / panels_;
    const int64_t panel = unit % panels_;
    const int64_t columns = std::min(width_, shape_.out_channels - panel * width_);
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t o = group * shape_.out_channels + panel * width_ + column;
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
  }
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
};

struct ChannelsLastConv::Scratch {
  const float** rows;
  float* zeros;
  float* sums;
  float* addend;
  float* bias;
};

int64_t ChannelsLastConv::ScratchBytes() const {
  return ScratchCutter::Bytes<const float*>(taps_ * most_pixels()) + ScratchCutter::Bytes<float>(run_) +
         2 * ScratchCutter::Bytes<float>(kept_sums()) +
         ScratchCutter::Bytes<float>(shape_.groups * shape_.out_channels);
}

void ChannelsLastConv::FindRows(const Operands& operands, int64_t group, Range range, const float** rows,
                                const float* zeros) const {
  const ConvDim& h = shape_.dims[1];
  const ConvDim& w = shape_.dims[2];
  const int64_t count = range.end - range.begin;
  const int64_t kernel_w = joins_taps_ ? 1 : w.kernel;
  const float* const from = operands.input + (is_depthwise_ ? 0 : group * shape_.in_channels);
  int64_t x = range.begin % w.out;
  int64_t y = range.begin / w.out % h.out;
  int64_t n = range.begin / w.out / h.out;
  for (int64_t p = 0; p < count; ++p) {
    const float* const entry = from + n * operands.strides[0];
    const float** row = rows + p;
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const int64_t at_y = y * h.stride + kh * h.dilation - operands.pad_h;
      const bool is_inside = at_y >= 0 && at_y < operands.in_h;
      for (int64_t kw = 0; kw < kernel_w; ++kw, row += count) {
        const int64_t at_x = x * w.stride + kw * w.dilation - operands.pad_w;
        const bool is_there = is_inside && at_x >= 0 && at_x < operands.in_w;
        *row = is_there ? entry + at_y * operands.strides[1] + at_x * operands.strides[2] : zeros;
      }
    }
    if (++x < w.out) continue;
    x = 0;
    if (++y < h.out) continue;
    y = 0;
    ++n;
  }
}

void ChannelsLastConv::RunUnit(const Operands& operands, int64_t unit, const Scratch& scratch) const {
  const int64_t pixel_block = unit % pixel_blocks_;
  const int64_t column_block = unit / pixel_blocks_ % column_blocks_;
  const int64_t group = unit / pixel_blocks_ / column_blocks_;
  const Range range{pixels() * pixel_block / pixel_blocks_, pixels() * (pixel_block + 1) / pixel_blocks_};
  const int64_t count = range.end - range.begin;
  const int64_t first_panel = panels_ * column_block / column_blocks_;
  const int64_t last_panel = panels_ * (column_block + 1) / column_blocks_;
  const int64_t first_column = is_depthwise_ ? 0 : first_panel * width_;
  const int64_t columns =
      is_depthwise_ ? shape_.groups : std::min(shape_.out_channels, last_panel * width_) - first_column;
  const int64_t channel = group * (is_depthwise_ ? 0 : shape_.out_channels) + first_column;
  FindRows(operands, group, range, scratch.rows, scratch.zeros);

  const TensorRef& out = operands.out;
  const int64_t out_step = PixelStep(out);
  char* const to = ElementAt(out, range.begin * out_step + channel);
  simd::PixelEpilogue epilogue;
  epilogue.clamps = epilogue_.clamps;
  epilogue.low = epilogue_.low;
  epilogue.high = epilogue_.high;
  if (operands.bias != nullptr) epilogue.bias = scratch.bias + channel;
  if (operands.addend != nullptr) {
    const TensorRef& addend = *operands.addend;
    const int64_t step = PixelStep(addend);
    const char* const from = ElementAt(addend, range.begin * step + channel);
    if (addend.dtype == DType::kFloat) {
      epilogue.addend = reinterpret_cast<const float*>(from);
      epilogue.addend_stride = step;
    } else {
      const CastFn cast = FindCast(addend.dtype, DType::kFloat);
      const int64_t item = ItemSize(addend.dtype);
      for (int64_t p = 0; p < count; ++p) {
        cast(from + p * step * item, item, reinterpret_cast<char*>(scratch.addend + p * columns), sizeof(float),
             columns);
      }
      epilogue.addend = scratch.addend;
      epilogue.addend_stride = columns;
    }
  }
  float* const sums = is_direct_ ? reinterpret_cast<float*>(to) : scratch.sums;
  const int64_t sums_step = is_direct_ ? out_step : columns;
  if (is_depthwise_) {
    simd::FilterPixels({scratch.rows, count, count, taps_, operands.packed, columns, sums, sums_step, epilogue});
  } else {
    const float* const packed = operands.packed + group * panels_ * width_ * taps_ * run_;
    for (const Block& block : blocks_) {
      const bool is_last = &block == &blocks_.back();
      const float* const panels = packed + (block.begin * panels_ + first_panel * block.count()) * width_;
      simd::MultiplyPixels({scratch.rows + block.first_tap * count, count, count, block.taps, block.first_channel,
                            block.depth, panels, columns, sums, sums_step, block.begin != 0, is_last, epilogue});
    }
  }
  if (is_direct_) return;
  const CastFn cast = FindCast(DType::kFloat, out.dtype);
  const int64_t item = ItemSize(out.dtype);
  for (int64_t p = 0; p < count; ++p) {
    cast(reinterpret_cast<const char*>(sums + p * columns), sizeof(float), to + p * out_step * item, item, columns);
  }
}

void ChannelsLastConv::Convolve(const TensorRef& input, const float* source, const float* packed, const TensorRef* bias,
                                const TensorRef* addend, const TensorRef& out, Range range, void* memory) const {
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
                    out};
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
  scratch.rows = cut.Cut<const float*>(taps_ * most_pixels());
  scratch.zeros = cut.Cut<float>(run_);
  scratch.sums = cut.Cut<float>(kept_sums());
  scratch.addend = cut.Cut<float>(kept_sums());
  scratch.bias = cut.Cut<float>(shape_.groups * shape_.out_channels);
  std::fill_n(scratch.zeros, run_, 0.0f);
  if (bias != nullptr) {
    FindCast(bias->dtype, DType::kFloat)(static_cast<const char*>(bias->data), bias->strides[0] * ItemSize(bias->dtype),
                                         reinterpret_cast<char*>(scratch.bias), sizeof(float), bias->sizes[0]);
  }
  for (int64_t unit = range.begin; unit < range.end; ++unit) RunUnit(operands, unit, scratch);
}

}  // namespace reprise::kernels
