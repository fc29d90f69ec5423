// SPDX-License-Identifier: Apache-2.0
#include "kernels/grid_sample.h"

#include <algorithm>
#include <cmath>

namespace reprise::kernels {
namespace {

constexpr int kMostTaps = 4;

// The taps of a point along one axis.
template <class T>
struct AxisTaps {
  int count = 0;
  int64_t index[kMostTaps];  // -1 outside
  T weight[kMostTaps];
  T slope[kMostTaps];  // of the weight, by the coordinate in the grid
};

// A coordinate in elements, and how fast it goes with the one in the grid.
template <class T>
struct Place {
  T at;
  T rate;
};

template <class T>
Place<T> Clamped(Place<T> place, int64_t size) {
  if (!(place.at > 0)) return {0, 0};
  const T last = static_cast<T>(size - 1);
  return place.at >= last ? Place<T>{last, 0} : place;
}

template <class T>
Place<T> Mirrored(Place<T> place, bool align_corners, int64_t size) {
  const T low = align_corners ? T(0) : T(-0.5);
  const T span = static_cast<T>(align_corners ? size - 1 : size);
  if (span == 0) return {0, 0};
  T distance = place.at - low;
  T rate = place.rate;
  if (distance < 0) {
    distance = -distance;
    rate = -rate;
  }
  const T rest = std::fmod(distance, span);
  const bool is_back = std::fmod(std::floor(distance / span), T(2)) != 0;
  return is_back ? Place<T>{span - rest + low, -rate} : Place<T>{rest + low, rate};
}

template <class T>
Place<T> Padded(Place<T> place, const SampleShape& shape, int64_t size) {
  if (shape.padding == SamplePadding::kZeros) return place;
  if (shape.padding == SamplePadding::kReflection) place = Mirrored(place, shape.align_corners, size);
  return Clamped(place, size);
}

template <class T>
int64_t ElementOf(T at, int64_t size) {
  return at >= 0 && at < static_cast<T>(size) ? static_cast<int64_t>(at) : -1;
}

// Derivatives of CubicWeights by t.
template <class T>
void CubicSlopes(T t, T* slopes) {
  constexpr T kA = T(-0.75);
  const auto inner = [](T x) { return (3 * (kA + 2) * x - 2 * (kA + 3)) * x; };
  const auto outer = [](T x) { return (3 * kA * x - 10 * kA) * x + 8 * kA; };
  slopes[0] = outer(t + 1);
  slopes[1] = inner(t);
  slopes[2] = -inner(1 - t);
  slopes[3] = -outer(2 - t);
}

template <class T>
AxisTaps<T> TapsAt(const SampleShape& shape, T coordinate, int64_t size) {
  AxisTaps<T> taps;
  const T half = shape.align_corners ? static_cast<T>(size - 1) / 2 : static_cast<T>(size) / 2;
  Place<T> place{shape.align_corners ? (coordinate + 1) / 2 * static_cast<T>(size - 1)
                                     : ((coordinate + 1) * static_cast<T>(size) - 1) / 2,
                 half};
  if (shape.mode == SampleMode::kBicubic) {
    taps.count = 4;
    const T first = std::floor(place.at);
    CubicWeights(place.at - first, taps.weight);
    CubicSlopes(place.at - first, taps.slope);
    for (int k = 0; k < 4; ++k) {
      taps.index[k] = ElementOf(Padded(Place<T>{first + static_cast<T>(k - 1), 0}, shape, size).at, size);
      taps.slope[k] *= half;
    }
    return taps;
  }
  place = Padded(place, shape, size);
  if (shape.mode == SampleMode::kNearest) {
    taps.count = 1;
    taps.index[0] = ElementOf(std::nearbyint(place.at), size);
    taps.weight[0] = 1;
    taps.slope[0] = 0;
    return taps;
  }
  taps.count = 2;
  const T first = std::floor(place.at);
  taps.index[0] = ElementOf(first, size);
  taps.index[1] = ElementOf(first + 1, size);
  taps.weight[1] = place.at - first;
  taps.weight[0] = 1 - taps.weight[1];
  taps.slope[0] = -place.rate;
  taps.slope[1] = place.rate;
  return taps;
}

// The taps of a point along all axes; those of missing axes are one element of weight 1.
template <class T>
struct PointTaps {
  AxisTaps<T> axis[3];
  int64_t step[3];

  PointTaps(const GridSampling& sampling, const T* point) {
    const int missing = 3 - sampling.dims;
    int64_t stride = 1;
    for (int d = 2; d >= 0; --d) {
      if (d < missing) {
        axis[d] = {1, {0}, {1}, {0}};
        step[d] = 0;
        continue;
      }
      const int64_t size = sampling.size[d - missing];
      axis[d] = TapsAt(sampling.shape, point[2 - d], size);
      step[d] = stride;
      stride *= size;
    }
  }

  // fn(offset, i, j, k) for each tap that lies inside.
  template <class Fn>
  void ForEach(Fn&& fn) const {
    for (int i = 0; i < axis[0].count; ++i) {
      if (axis[0].index[i] < 0) continue;
      for (int j = 0; j < axis[1].count; ++j) {
        if (axis[1].index[j] < 0) continue;
        const int64_t base = axis[0].index[i] * step[0] + axis[1].index[j] * step[1];
        for (int k = 0; k < axis[2].count; ++k) {
          if (axis[2].index[k] >= 0) fn(base + axis[2].index[k], i, j, k);
        }
      }
    }
  }
  T Weight(int i, int j, int k) const { return axis[0].weight[i] * axis[1].weight[j] * axis[2].weight[k]; }
};

constexpr int kMostPointTaps = 64;

// Offsets and weights of the taps inside, in order.
template <class T>
struct FlatTaps {
  int count = 0;
  int64_t offset[kMostPointTaps];
  T weight[kMostPointTaps];

  explicit FlatTaps(const PointTaps<T>& taps) {
    taps.ForEach([&](int64_t at, int i, int j, int k) {
      offset[count] = at;
      weight[count++] = taps.Weight(i, j, k);
    });
  }
};

template <class T>
void Sample(const GridSampling& s, const T* in, const T* grid, T* out, Range units) {
  const int64_t plane = s.plane();
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const FlatTaps<T> taps{PointTaps<T>(s, grid + unit * s.dims)};
    const int64_t first = unit / s.points * s.channels;
    const int64_t point = unit % s.points;
    for (int64_t c = 0; c < s.channels; ++c) {
      const T* values = in + (first + c) * plane;
      T sum = 0;
      for (int t = 0; t < taps.count; ++t) sum += taps.weight[t] * values[taps.offset[t]];
      out[(first + c) * s.points + point] = sum;
    }
  }
}

template <class T>
void InputGradient(const GridSampling& s, const T* grad, const T* grid, T* in_grad, Range units) {
  const int64_t plane = s.plane();
  const int64_t groups = (s.channels + kSampleChannels - 1) / kSampleChannels;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t item = unit / groups;
    const int64_t begin = unit % groups * kSampleChannels;
    const int64_t end = std::min(s.channels, begin + kSampleChannels);
    T* to = in_grad + (item * s.channels + begin) * plane;
    const T* from = grad + (item * s.channels + begin) * s.points;
    std::fill_n(to, (end - begin) * plane, T(0));
    for (int64_t p = 0; p < s.points; ++p) {
      const FlatTaps<T> taps{PointTaps<T>(s, grid + (item * s.points + p) * s.dims)};
      for (int64_t c = 0; c < end - begin; ++c) {
        const T value = from[c * s.points + p];
        for (int t = 0; t < taps.count; ++t) to[c * plane + taps.offset[t]] += taps.weight[t] * value;
      }
    }
  }
}

template <class T>
void PointGradient(const GridSampling& s, const T* grad, const T* in, const T* grid, T* grid_grad, Range units) {
  const int64_t plane = s.plane();
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const PointTaps<T> taps(s, grid + unit * s.dims);
    const int64_t first = unit / s.points * s.channels;
    const int64_t point = unit % s.points;
    T sums[3] = {};
    taps.ForEach([&](int64_t at, int i, int j, int k) {
      T product = 0;
      for (int64_t c = first; c < first + s.channels; ++c) product += grad[c * s.points + point] * in[c * plane + at];
      const T w[3] = {taps.axis[0].weight[i], taps.axis[1].weight[j], taps.axis[2].weight[k]};
      sums[0] += product * taps.axis[0].slope[i] * w[1] * w[2];
      sums[1] += product * w[0] * taps.axis[1].slope[j] * w[2];
      sums[2] += product * w[0] * w[1] * taps.axis[2].slope[k];
    });
    for (int d = 0; d < s.dims; ++d) grid_grad[unit * s.dims + d] = sums[2 - d];
  }
}

template <class T>
void Affine(int dims, const int64_t* sizes, bool align_corners, const T* theta, T* out, Range units) {
  const int64_t points = sizes[0] * sizes[1] * (dims == 3 ? sizes[2] : 1);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const T* map = theta + unit / points * dims * (dims + 1);
    int64_t rest = unit % points;
    T position[4];
    for (int d = 0; d < dims; ++d) {  // the last dim first
      const int64_t size = sizes[dims - 1 - d];
      const auto at = static_cast<T>(rest % size);
      rest /= size;
      if (align_corners) {
        position[d] = size > 1 ? 2 * at / static_cast<T>(size - 1) - 1 : T(0);
      } else {
        position[d] = (2 * at + 1) / static_cast<T>(size) - 1;
      }
    }
    position[dims] = 1;
    for (int d = 0; d < dims; ++d) {
      T sum = 0;
      for (int k = 0; k <= dims; ++k) sum += map[d * (dims + 1) + k] * position[k];
      out[unit * dims + d] = sum;
    }
  }
}

}  // namespace

int64_t GridSampling::plane() const {
  int64_t count = 1;
  for (int d = 0; d < dims; ++d) count *= size[d];
  return count;
}

void SampleGrid(const GridSampling& sampling, DType type, const void* in, const void* grid, void* out, Range units) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Sample(sampling, static_cast<const T*>(in), static_cast<const T*>(grid), static_cast<T*>(out), units);
  };
  type == DType::kDouble ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

void SampleGridInputGradient(const GridSampling& sampling, DType type, const void* grad, const void* grid,
                             void* in_grad, Range units) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    InputGradient(sampling, static_cast<const T*>(grad), static_cast<const T*>(grid), static_cast<T*>(in_grad), units);
  };
  type == DType::kDouble ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

void SampleGridPointGradient(const GridSampling& sampling, DType type, const void* grad, const void* in,
                             const void* grid, void* grid_grad, Range units) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    PointGradient(sampling, static_cast<const T*>(grad), static_cast<const T*>(in), static_cast<const T*>(grid),
                  static_cast<T*>(grid_grad), units);
  };
  type == DType::kDouble ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

void AffinePoints(DType type, int dims, const int64_t* sizes, bool align_corners, const void* theta, void* out,
                  Range units) {
  if (type == DType::kDouble) {
    return Affine(dims, sizes, align_corners, static_cast<const double*>(theta), static_cast<double*>(out), units);
  }
  Affine(dims, sizes, align_corners, static_cast<const float*>(theta), static_cast<float*>(out), units);
}

}  // namespace reprise::kernels
