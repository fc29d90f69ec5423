// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv_band.h"

#include <algorithm>
#include <utility>

#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kLeastBytes = 1 << 20;       // of a result between: smaller ones stay in the caches
constexpr int64_t kMostKeptBytes = 384 << 10;  // of the rows that are kept: they and weights share a second-level cache
constexpr int64_t kPixels = 112;               // in one go, more or less, as units of ChannelsLastConv have
constexpr int64_t kMostRepeated = 16;          // one part in so many may be computed twice
constexpr int64_t kMostWeights = 64 << 10;     // elements of all filters, which each step reads

// Rows of pixels with channels behind; the next picture is `batch_step` elements behind.
TensorRef RowsAt(float* data, int64_t batch, int64_t batch_step, int64_t height, int64_t width, int64_t channels) {
  TensorRef ref;
  ref.data = data;
  ref.dtype = DType::kFloat;
  ref.rank = 5;
  const int64_t sizes[] = {batch, channels, 1, height, width};
  const int64_t strides[] = {batch_step, 1, height * width * channels, width * channels, channels};
  std::copy_n(sizes, 5, ref.sizes);
  std::copy_n(strides, 5, ref.strides);
  return ref;
}

// Convolutions that take a picture as one row get the rows of their neighbours.
void GiveRows(ConvBand::Convs& convs) {
  const auto give = [&](size_t to, int64_t height, int64_t width) {
    if (convs[to]->IsFlat() && convs[to]->shape().dims[2].in == height * width) {
      convs[to] = convs[to]->WithRows(height, width);
    }
  };
  for (size_t i = 1; i < convs.size(); ++i) {
    const ConvDim(&before)[3] = convs[i - 1]->shape().dims;
    give(i, before[1].out, before[2].out);
  }
  for (size_t i = convs.size() - 1; i-- > 0;) {
    const ConvDim(&then)[3] = convs[i + 1]->shape().dims;
    give(i, then[1].in, then[2].in);
  }
}

// Whether one reads what the other gives.
bool Follows(const ConvShape& then, const ConvShape& first) {
  return then.batch == first.batch && then.dims[1].in == first.dims[1].out && then.dims[2].in == first.dims[2].out &&
         then.groups * then.in_channels == first.groups * first.out_channels;
}

}  // namespace

std::shared_ptr<const ConvBand> ConvBand::Of(Convs convs, int64_t threads) {
  if (convs.size() < 2 || convs.size() > kMostConvs) return nullptr;
  GiveRows(convs);
  int64_t weights = 0;
  for (size_t i = 0; i < convs.size(); ++i) {
    if (!convs[i]->has_rows()) return nullptr;
    if (i != 0 && (convs[i]->source_elements() != 0 || !Follows(convs[i]->shape(), convs[i - 1]->shape()))) {
      return nullptr;
    }
    weights += convs[i]->packed_elements();
  }
  if (weights > kMostWeights) return nullptr;
  std::shared_ptr<ConvBand> band(new ConvBand(std::move(convs)));
  for (size_t i = 0; i + 1 < band->convs_.size(); ++i) {
    const int64_t rows = band->shape(i).batch * band->shape(i).dims[1].out;
    if (rows * band->RowElements(i) * static_cast<int64_t>(sizeof(float)) < kLeastBytes) return nullptr;
  }
  return band->CutIntoBands(threads) ? band : nullptr;
}

// Of a result.
int64_t ConvBand::RowElements(size_t stage) const {
  return shape(stage).dims[2].out * shape(stage).groups * shape(stage).out_channels;
}

int64_t ConvBand::RowCost(size_t stage) const {
  const ConvShape& of = shape(stage);
  return RowElements(stage) * of.in_channels * of.dims[1].kernel * of.dims[2].kernel;
}

// Rows of the result of the convolution before, for rows of a result.
Range ConvBand::RowsFor(size_t stage, Range rows) const {
  const ConvDim& h = shape(stage).dims[1];
  const int64_t begin = std::clamp(rows.begin * h.stride - h.pad, int64_t{0}, h.in);
  const int64_t end = std::clamp((rows.end - 1) * h.stride - h.pad + (h.kernel - 1) * h.dilation + 1, begin, h.in);
  return {begin, end};
}

void ConvBand::SetStep(int64_t rows) {
  step_ = rows;
  for (size_t i = convs_.size() - 1; i-- > 0;) {
    const ConvDim& h = shape(i + 1).dims[1];
    rows = std::min((rows - 1) * h.stride + (h.kernel - 1) * h.dilation + 1, h.in);
    kept_[i] = rows;
  }
}

int64_t ConvBand::KeptBytes() const {
  int64_t elements = 0;
  for (size_t i = 0; i + 1 < convs_.size(); ++i) elements += kept_[i] * RowElements(i);
  return elements * static_cast<int64_t>(sizeof(float));
}

// Multiply-adds that two bands both do, of one picture.
int64_t ConvBand::RepeatedCost(int64_t bands) const {
  const int64_t out = shape(convs_.size() - 1).dims[1].out;
  int64_t cost = 0;
  for (int64_t band = 1; band < bands; ++band) {
    Range before = {out * (band - 1) / bands, out * band / bands};
    Range rows = {out * band / bands, out * (band + 1) / bands};
    for (size_t i = convs_.size() - 1; i > 0; --i) {
      before = RowsFor(i, before);
      rows = RowsFor(i, rows);
      cost += std::max(int64_t{0}, before.end - rows.begin) * RowCost(i - 1);
    }
  }
  return cost;
}

// As many as keep the threads busy until the end, and do not repeat too much.
bool ConvBand::CutIntoBands(int64_t threads) {
  const ConvShape& last = shape(convs_.size() - 1);
  const int64_t out = last.dims[1].out;
  int64_t all = 0;
  for (size_t i = 0; i < convs_.size(); ++i) all += shape(i).dims[1].out * RowCost(i);
  bands_ = 0;
  for (const int64_t each : {int64_t{4}, int64_t{2}, int64_t{1}}) {
    const int64_t bands = (each * threads + last.batch - 1) / last.batch;
    if (bands > out || RepeatedCost(bands) > all / kMostRepeated) continue;
    bands_ = bands;
    break;
  }
  if (bands_ == 0) return false;
  SetStep(1);
  if (KeptBytes() > kMostKeptBytes) return false;
  const int64_t most = std::max(int64_t{1}, std::min(out / bands_, kPixels / last.dims[2].out));
  for (int64_t rows = most; rows > 1; --rows) {
    SetStep(rows);
    if (KeptBytes() <= kMostKeptBytes) return true;
  }
  SetStep(1);
  return true;
}

int64_t ConvBand::unit_cost() const {
  int64_t cost = 0;
  for (size_t i = 0; i < convs_.size(); ++i) cost += shape(i).dims[1].out * RowCost(i) / bands_;
  return cost;
}

int64_t ConvBand::ScratchBytes() const {
  int64_t bytes = 0;
  for (const auto& conv : convs_) bytes = std::max(bytes, conv->ScratchBytes());
  for (size_t i = 0; i + 1 < convs_.size(); ++i) bytes += ScratchCutter::Bytes<float>(kept_[i] * RowElements(i));
  return bytes;
}

void ConvBand::RunBand(std::span<const ChannelsLastConv::RowOperands> operands, const TensorRef& out, int64_t picture,
                       Range rows, void* memory) const {
  const size_t last = convs_.size() - 1;
  ScratchCutter cut(memory);
  float* kept[kMostConvs];
  int64_t done[kMostConvs] = {};  // rows before it are there, as far as they are needed
  Range wanted[kMostConvs];
  for (size_t i = 0; i < last; ++i) kept[i] = cut.Cut<float>(kept_[i] * RowElements(i));
  void* const scratch = cut.Cut<char>(0);
  // Rows of a result, to a place for pixel 0 of all pictures.
  const auto convolve = [&](size_t i, Range some, const TensorRef& to) {
    const ConvDim(&dims)[3] = shape(i).dims;
    ChannelsLastConv::RowOperands given = operands[i];
    if (i == 0 && given.input.sizes[3] != dims[1].in) {  // it is given as one row
      given.input.sizes[3] = dims[1].in;
      given.input.sizes[4] = dims[2].in;
      given.input.strides[3] = dims[2].in * given.input.strides[4];
    }
    if (i != 0) {
      given.input = RowsAt(kept[i - 1], shape(i).batch, 0, dims[1].in, dims[2].in, RowElements(i - 1) / dims[2].in);
      given.ring = kept_[i - 1];
    }
    const int64_t first = picture * dims[1].out;
    convs_[i]->ConvolveRows(given, to, {(first + some.begin) * dims[2].out, (first + some.end) * dims[2].out}, scratch);
  };
  for (int64_t begin = rows.begin; begin < rows.end; begin += step_) {
    wanted[last] = {begin, std::min(begin + step_, rows.end)};
    for (size_t i = last; i > 0; --i) wanted[i - 1] = RowsFor(i, wanted[i]);
    for (size_t i = 0; i < last; ++i) {
      const int64_t height = shape(i).dims[1].out;
      const int64_t width = shape(i).dims[2].out;
      for (int64_t row = std::max(done[i], wanted[i].begin); row < wanted[i].end;) {
        const int64_t place = row % kept_[i];
        const int64_t end = std::min(wanted[i].end, row + kept_[i] - place);  // where the ring begins again
        float* const to = kept[i] + (place - picture * height - row) * RowElements(i);
        convolve(i, {row, end},
                 RowsAt(to, shape(i).batch, height * RowElements(i), height, width, RowElements(i) / width));
        row = end;
      }
      done[i] = std::max(done[i], wanted[i].end);
    }
    convolve(last, wanted[last], out);
  }
}

// Of its picture.
Range ConvBand::RowsOf(int64_t unit) const {
  const int64_t rows = shape(convs_.size() - 1).dims[1].out;
  const int64_t band = unit % bands_;
  return {rows * band / bands_, rows * (band + 1) / bands_};
}

Range ConvBand::PixelsOf(int64_t unit) const {
  const ConvShape& last = shape(convs_.size() - 1);
  const int64_t first = unit / bands_ * last.dims[1].out;
  const Range rows = RowsOf(unit);
  return {(first + rows.begin) * last.dims[2].out, (first + rows.end) * last.dims[2].out};
}

void ConvBand::Run(std::span<const ChannelsLastConv::RowOperands> operands, const TensorRef& out, Range units,
                   void* scratch) const {
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    RunBand(operands, out, unit / bands_, RowsOf(unit), scratch);
  }
}

}  // namespace reprise::kernels
