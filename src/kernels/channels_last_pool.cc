// SPDX-License-Identifier: Apache-2.0
#include "kernels/channels_last_pool.h"

#include "kernels/plane.h"
#include "kernels/pool_window.h"
#include "kernels/simd/channels_last.h"

namespace reprise::kernels {
namespace {

// Channels of one pixel as float32, in place where they are that, else in a line of the buffer.
class Pixels {
 public:
  Pixels(const TensorRef& self, float* buffer) : self_(self), read_(self.dtype, 1), buffer_(buffer) {}

  const float* At(int64_t n, int64_t y, int64_t x, int64_t line = 0) const {
    const int64_t offset = n * self_.strides[0] + y * self_.strides[3] + x * self_.strides[4];
    return read_.Read(ElementAt(self_, offset), self_.sizes[1], buffer_ + line * self_.sizes[1]);
  }

 private:
  const TensorRef& self_;
  RowReaderAs<float> read_;
  float* buffer_;
};

void Sum(const float* __restrict x, int64_t n, float* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

// Calls fill(n, oh, ow, values) for each output pixel of the rows.
template <class Fill>
void ForEachPixel(const TensorRef& out, Range rows, float* buffer, Fill fill) {
  const RowWriterAs<float> write(out.dtype, 1);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t n = row / out.sizes[3];
    const int64_t oh = row % out.sizes[3];
    for (int64_t ow = 0; ow < out.sizes[4]; ++ow) {
      char* const to = ElementAt(out, n * out.strides[0] + oh * out.strides[3] + ow * out.strides[4]);
      float* const values = write.Buffer(to, buffer);
      fill(n, oh, ow, values);
      write.Write(to, values, out.sizes[1]);
    }
  }
}

// Pixels of a window that are compared in one go.
constexpr int64_t kPixelsAtOnce = 16;

}  // namespace

bool FitsChannelsLast(const TensorRef& self, const TensorRef& out) {
  const auto fits = [](const TensorRef& ref) {
    const bool is_known = ref.dtype == DType::kFloat || ref.dtype == DType::kFloat16 || ref.dtype == DType::kBFloat16;
    return is_known && ref.rank == 5 && ref.sizes[2] == 1 && ref.sizes[1] > 1 && ref.strides[1] == 1;
  };
  return fits(self) && fits(out);
}

int64_t ChannelsLastPoolRows(const TensorRef& out) { return out.sizes[0] * out.sizes[3]; }

int64_t ChannelsLastPoolCost(const PoolShape& shape, const TensorRef& out) {
  return out.sizes[4] * out.sizes[1] * WindowSize(shape.h) * WindowSize(shape.w);
}

int64_t ChannelsLastPoolScratchBytes(const TensorRef& out) {
  return 2 * ScratchCutter::Bytes<float>(out.sizes[1]) + ScratchCutter::Bytes<float>(kPixelsAtOnce * out.sizes[1]);
}

void ChannelsLastMaxPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows,
                         void* scratch) {
  const int64_t channels = out.sizes[1];
  ScratchCutter cut(scratch);
  const Pixels pixels(self, cut.Cut<float>(kPixelsAtOnce * channels));
  const float* places[kPixelsAtOnce];
  ForEachPixel(out, rows, cut.Cut<float>(channels), [&](int64_t n, int64_t oh, int64_t ow, float* best) {
    int64_t count = 0;
    for (int64_t kh = 0; kh < shape.h.kernel; ++kh) {
      const int64_t y = oh * shape.h.stride - shape.h.pad + kh * shape.h.dilation;
      if (y < 0 || y >= shape.h.in) continue;
      for (int64_t kw = 0; kw < shape.w.kernel; ++kw) {
        const int64_t x = ow * shape.w.stride - shape.w.pad + kw * shape.w.dilation;
        if (x < 0 || x >= shape.w.in) continue;
        if (count == kPixelsAtOnce) {
          simd::LargestOfPixels(places, count, channels, best);
          places[0] = best;
          count = 1;
        }
        places[count] = pixels.At(n, y, x, count);
        ++count;
      }
    }
    simd::LargestOfPixels(places, count, channels, best);
  });
}

void ChannelsLastAvgPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows,
                         void* scratch) {
  const int64_t channels = out.sizes[1];
  ScratchCutter cut(scratch);
  const Pixels pixels(self, cut.Cut<float>(channels));
  float* const column = cut.Cut<float>(channels);
  ForEachPixel(out, rows, cut.Cut<float>(channels), [&](int64_t n, int64_t oh, int64_t ow, float* sum) {
    const Window in_h = WindowOf(shape.h, oh, shape.count_include_pad);
    const Window in_w = WindowOf(shape.w, ow, shape.count_include_pad);
    std::fill_n(sum, channels, 0.0f);
    if (in_h.end <= in_h.begin || in_w.end <= in_w.begin) return;
    for (int64_t x = in_w.begin; x < in_w.end; ++x) {
      std::fill_n(column, channels, 0.0f);
      for (int64_t y = in_h.begin; y < in_h.end; ++y) Sum(pixels.At(n, y, x), channels, column);
      Sum(column, channels, sum);
    }
    const int64_t divisor = shape.divisor_override != 0 ? shape.divisor_override : in_h.extent * in_w.extent;
    for (int64_t c = 0; c < channels; ++c) sum[c] /= static_cast<float>(divisor);
  });
}

}  // namespace reprise::kernels
