// SPDX-License-Identifier: Apache-2.0
#include "kernels/roi_align.h"

#include <algorithm>
#include <cmath>

#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

// As many points along one side of a bin, however large the box.
constexpr int64_t kMostSamples = 1024;

double Load(const TensorRef& ref, int64_t offset) {
  double value;
  FindCast(ref.dtype, DType::kDouble)(ElementAt(ref, offset), 0, reinterpret_cast<char*>(&value), 8, 1);
  return value;
}

void Store(const TensorRef& ref, int64_t offset, double value) {
  FindCast(DType::kDouble, ref.dtype)(reinterpret_cast<const char*>(&value), 0, ElementAt(ref, offset), 0, 1);
}

// One side of a box: where its bins begin and how they are sampled.
struct Side {
  double begin = 0;
  double bin = 0;
  int64_t samples = 1;

  double At(int64_t index, int64_t sample) const {
    return begin + static_cast<double>(index) * bin +
           (static_cast<double>(sample) + 0.5) * bin / static_cast<double>(samples);
  }
};

// The two pixels around a place, and the weight of the second one.
struct Pair {
  bool is_inside = false;
  int64_t low = 0;
  int64_t high = 0;
  double weight = 0;
};

Pair Around(double at, int64_t size) {
  if (!(at >= -1) || !(at <= static_cast<double>(size))) return {};
  at = std::max(at, 0.0);
  const auto low = static_cast<int64_t>(at);
  if (low >= size - 1) return {true, size - 1, size - 1, 0};
  return {true, low, low + 1, at - static_cast<double>(low)};
}

class Box {
 public:
  Box(const RoiAlign& args, int64_t index) : args_(args) {
    const TensorRef& boxes = *args.boxes;
    double numbers[5];
    for (int64_t k = 0; k < 5; ++k) numbers[k] = Load(boxes, index * boxes.strides[0] + k * boxes.strides[1]);
    const auto images = static_cast<double>(args.image->sizes[0]);
    image_ = numbers[0] >= 0 && numbers[0] < images ? static_cast<int64_t>(numbers[0]) : -1;
    x_ = SideOf(numbers[1], numbers[3], args.out->sizes[3]);
    y_ = SideOf(numbers[2], numbers[4], args.out->sizes[2]);
  }

  int64_t image() const { return image_; }
  double points() const { return static_cast<double>(std::max<int64_t>(1, x_.samples * y_.samples)); }

  // Calls fn(row, column, weight) for the pixels of the points of a bin.
  template <class Fn>
  void ForEachPixel(int64_t row, int64_t column, Fn&& fn) const {
    for (int64_t i = 0; i < y_.samples; ++i) {
      const Pair y = Around(y_.At(row, i), args_.image->sizes[2]);
      if (!y.is_inside) continue;
      for (int64_t j = 0; j < x_.samples; ++j) {
        const Pair x = Around(x_.At(column, j), args_.image->sizes[3]);
        if (!x.is_inside) continue;
        fn(y.low, x.low, (1 - y.weight) * (1 - x.weight));
        fn(y.low, x.high, (1 - y.weight) * x.weight);
        fn(y.high, x.low, y.weight * (1 - x.weight));
        fn(y.high, x.high, y.weight * x.weight);
      }
    }
  }

 private:
  Side SideOf(double first, double last, int64_t bins) const {
    Side side;
    side.begin = first * args_.scale - args_.shift;
    const double size = std::max((last + args_.more) * args_.scale - args_.shift - side.begin, args_.least);
    side.bin = size / static_cast<double>(bins);
    side.samples = args_.samples;
    if (side.samples <= 0) {
      const double wanted = std::ceil(side.bin);
      side.samples = wanted >= 0 ? static_cast<int64_t>(std::min(wanted, static_cast<double>(kMostSamples))) : 0;
    }
    return side;
  }

  const RoiAlign& args_;
  int64_t image_ = -1;
  Side x_, y_;
};

}  // namespace

void RoiAlignForward(const RoiAlign& args, Range items) {
  const TensorRef& image = *args.image;
  const TensorRef& out = *args.out;
  const int64_t channels = image.sizes[1];
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t index = item / channels;
    const int64_t channel = item % channels;
    const Box box(args, index);
    for (int64_t row = 0; row < out.sizes[2]; ++row) {
      for (int64_t column = 0; column < out.sizes[3]; ++column) {
        double sum = 0;
        if (box.image() >= 0) {
          const int64_t base = box.image() * image.strides[0] + channel * image.strides[1];
          box.ForEachPixel(row, column, [&](int64_t y, int64_t x, double weight) {
            if (weight != 0) sum += weight * Load(image, base + y * image.strides[2] + x * image.strides[3]);
          });
        }
        Store(out, index * out.strides[0] + channel * out.strides[1] + row * out.strides[2] + column * out.strides[3],
              sum / box.points());
      }
    }
  }
}

void RoiAlignBackward(const RoiAlign& args, void* scratch, Range items) {
  const TensorRef& image = *args.image;
  const TensorRef& grads = *args.out;
  const int64_t channels = image.sizes[1];
  const int64_t width = image.sizes[3];
  auto* const sums = static_cast<double*>(scratch);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t n = item / channels;
    const int64_t channel = item % channels;
    std::fill_n(sums, image.sizes[2] * width, 0.0);
    for (int64_t index = 0; index < args.boxes->sizes[0]; ++index) {
      const Box box(args, index);
      if (box.image() != n) continue;
      for (int64_t row = 0; row < grads.sizes[2]; ++row) {
        for (int64_t column = 0; column < grads.sizes[3]; ++column) {
          const double grad = Load(grads, index * grads.strides[0] + channel * grads.strides[1] +
                                              row * grads.strides[2] + column * grads.strides[3]) /
                              box.points();
          box.ForEachPixel(row, column,
                           [&](int64_t y, int64_t x, double weight) { sums[y * width + x] += weight * grad; });
        }
      }
    }
    for (int64_t i = 0; i < image.sizes[2] * width; ++i) {
      Store(image,
            n * image.strides[0] + channel * image.strides[1] + i / width * image.strides[2] +
                i % width * image.strides[3],
            sums[i]);
    }
  }
}

}  // namespace reprise::kernels
