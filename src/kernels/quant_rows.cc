// SPDX-License-Identifier: Apache-2.0
#include "kernels/quant_rows.h"

#include "kernels/row_io.h"
#include "kernels/simd/normalize.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

using row_io::ReadPart;
using row_io::WriteIntegers;

constexpr int64_t kChunk = 512;  // elements in flight; a multiple of what an int32 packs

int64_t Width(const TensorRef& x) { return x.sizes[x.rank - 1]; }

float GeluOfFloat(float x) { return 0.5F * x * (1.0F + std::erf(x * 0.70710678118654752F)); }
float GeluTanhOfFloat(float x) {
  constexpr float kFactor = 0.79788456080286536F;  // sqrt(2 / pi)
  return 0.5F * x * (1.0F + std::tanh(kFactor * (x + 0.044715F * x * x * x)));
}

struct Extent {
  float least = INFINITY;
  float greatest = -INFINITY;

  void Take(float value) {
    if (value != value || least != least) {
      least = greatest = NAN;
      return;
    }
    least = value < least ? value : least;
    greatest = value > greatest ? value : greatest;
  }
  float Most() const { return std::fmax(std::fabs(least), std::fabs(greatest)); }
};

// Elements [begin, begin + n) of a row of x * smooth.
void ReadSmoothed(const TensorRef& x, const TensorRef& smooth, int64_t row, int64_t begin, int64_t n, float* v) {
  ReadPart(x, x, row, begin, n, v);
  if (smooth.data == nullptr) return;
  float factor[kChunk];
  ReadPart(smooth, x, row, begin, n, factor);
  for (int64_t i = 0; i < n; ++i) v[i] *= factor[i];
}

Extent ExtentOf(const TensorRef& x, const TensorRef& smooth, int64_t row) {
  const int64_t n = Width(x);
  float v[kChunk];
  Extent extent;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t part = std::min(kChunk, n - begin);
    ReadSmoothed(x, smooth, row, begin, part, v);
    for (int64_t i = 0; i < part; ++i) extent.Take(v[i]);
  }
  return extent;
}

void Divide(float* v, int64_t n, float step, float offset) {
  if (step == 0 || step != step) {
    std::fill_n(v, n, 0.0F);
  } else {
    for (int64_t i = 0; i < n; ++i) v[i] = v[i] / step + offset;
  }
}

}  // namespace

void QuantizeByScale(const ScaleQuantization& o, Range rows) {
  const int64_t n = Width(o.x);
  float v[kChunk];
  float other[kChunk];
  row_io::GroupWalk walk(o.group_ends, true, EntryCount(o.x, 1));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t group = walk.GroupOf(row);
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      if (group < 0) {
        std::fill_n(v, part, 0.0F);
        WriteIntegers(o.y, o.is_packed, row, begin, part, v);
        continue;
      }
      ReadSmoothed(o.x, o.smooth, row, begin, part, v);
      if (o.group_ends.data != nullptr) {
        ReadPart(o.scale, o.scale, group, begin, part, other);
      } else {
        ReadPart(o.scale, o.x, row, begin, part, other);
      }
      if (o.divides) {
        for (int64_t i = 0; i < part; ++i) v[i] /= other[i];
      } else {
        for (int64_t i = 0; i < part; ++i) v[i] *= other[i];
      }
      if (o.offset.data != nullptr) {
        ReadPart(o.offset, o.x, row, begin, part, other);
        for (int64_t i = 0; i < part; ++i) v[i] += other[i];
      }
      WriteIntegers(o.y, o.is_packed, row, begin, part, v);
    }
  }
}

void QuantizeDynamically(const DynamicQuantization& o, Range rows) {
  const int64_t n = Width(o.x);
  const row_io::IntegerRange range = row_io::RangeOf(o.y.dtype, o.is_packed);
  float v[kChunk];
  Extent all;
  int64_t known = -1;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const bool is_shared = o.extent.data != nullptr;
    if (is_shared && row / o.share != known) {
      known = row / o.share;
      all = {};
      for (int64_t i = 2 * known * o.share; i < 2 * (known + 1) * o.share; ++i) all.Take(row_io::Number(o.extent, i));
    }
    const Extent extent = is_shared ? all : ExtentOf(o.x, o.smooth, row);
    const bool is_symmetric = o.offset.data == nullptr;
    const float step =
        is_symmetric ? extent.Most() * o.ratio / o.top : (extent.greatest - extent.least) / (range.top - range.bottom);
    const float zero = is_symmetric || step == 0 ? 0.0F : range.top - extent.greatest / step;
    if (!is_shared || row % o.share == 0) {
      const int64_t place = is_shared ? row / o.share : row;
      if (o.step.data != nullptr) row_io::PutNumber(o.step, place, step);
      if (!is_symmetric) row_io::PutNumber(o.offset, place, zero);
    }
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      ReadSmoothed(o.x, o.smooth, row, begin, part, v);
      Divide(v, part, step, zero);
      WriteIntegers(o.y, o.is_packed, row, begin, part, v);
    }
  }
}

void FindExtents(const TensorRef& x, const TensorRef& smooth, const TensorRef& extent, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Extent found = ExtentOf(x, smooth, row);
    row_io::PutNumber(extent, 2 * row, found.least);
    row_io::PutNumber(extent, 2 * row + 1, found.greatest);
  }
}

int64_t GeluQuantizeScratchBytes(int64_t n) { return 2 * Arena::BytesFor(n * 4); }

void GeluQuantize(const GeluQuantization& o, Range rows, void* scratch) {
  const int64_t n = Width(o.x);
  Arena arena(scratch);
  float* const v = arena.Take<float>(n);
  float* const other = arena.Take<float>(n);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(o.x, row, n, v);
    for (int64_t i = 0; i < n; ++i) v[i] = o.is_tanh ? GeluTanhOfFloat(v[i]) : GeluOfFloat(v[i]);
    if (o.scale.data != nullptr) {
      row_io::Read(o.scale, 0, n, other);
      for (int64_t i = 0; i < n; ++i) v[i] *= other[i];
    }
    if (o.offset.data != nullptr) {
      row_io::Read(o.offset, 0, n, other);
      for (int64_t i = 0; i < n; ++i) v[i] += other[i];
    }
    if (o.step.data != nullptr) {
      Extent extent;
      for (int64_t i = 0; i < n; ++i) extent.Take(v[i]);
      const float step = extent.Most() / row_io::RangeOf(o.y.dtype, false).top;
      row_io::PutNumber(o.step, row, step);
      Divide(v, n, step, 0);
    }
    WriteIntegers(o.y, false, row, 0, n, v);
  }
}

int64_t NormQuantizeScratchBytes(int64_t n) { return 5 * Arena::BytesFor(n * 4); }

void NormQuantize(const NormQuantization& o, Range rows, void* scratch) {
  const int64_t n = Width(o.x);
  Arena arena(scratch);
  float* const x = arena.Take<float>(n);
  float* const gamma = arena.Take<float>(n);
  float* const v = arena.Take<float>(n);
  float* const scale = arena.Take<float>(n);
  float* const other = arena.Take<float>(n);
  row_io::Read(o.gamma, 0, n, gamma);
  row_io::Read(o.scale, 0, n, scale);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(o.x, row, n, x);
    float rstd = 0;
    simd::RmsNormRows(x, gamma, o.epsilon, v, &rstd, 1, n);
    if (o.rstd.data != nullptr) row_io::PutNumber(o.rstd, row, rstd);
    if (o.beta.data != nullptr) {
      row_io::Read(o.beta, 0, n, other);
      for (int64_t i = 0; i < n; ++i) v[i] += other[i];
    }
    for (int64_t i = 0; i < n; ++i) v[i] = o.divides ? v[i] / scale[i] : v[i] * scale[i];
    if (o.offset.data != nullptr) {
      row_io::Read(o.offset, 0, n, other);
      for (int64_t i = 0; i < n; ++i) v[i] += other[i];
    }
    WriteIntegers(o.y, o.is_packed, row, 0, n, v);
  }
}

void Antiquantize(const TensorRef& x, bool is_packed, const TensorRef& scale, const TensorRef& offset, bool square,
                  const TensorRef& y, Range rows) {
  const int64_t n = Width(y);
  float v[kChunk];
  float other[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      if (is_packed) {
        const int64_t step = x.strides[x.rank - 1] * ItemSize(x.dtype);
        const char* const from = EntryOf(x, 1, x, 1, row);
        for (int64_t i = 0; i < part; ++i) {
          int32_t word = 0;
          std::memcpy(&word, from + (begin + i) / row_io::kPackedNumbers * step, sizeof word);
          // To the top and back, which extends the sign.
          const auto shift = static_cast<uint32_t>(28 - 4 * (i % row_io::kPackedNumbers));
          v[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(word) << shift) >> 28);
        }
      } else {
        ReadPart(x, x, row, begin, part, v);
      }
      if (offset.data != nullptr) {
        ReadPart(offset, y, row, begin, part, other);
        for (int64_t i = 0; i < part; ++i) v[i] += other[i];
      }
      ReadPart(scale, y, row, begin, part, other);
      for (int64_t i = 0; i < part; ++i) v[i] *= square ? other[i] * other[i] : other[i];
      row_io::WritePart(y, row, begin, part, v);
    }
  }
}

void QuantizeBlocks(const BlockQuantization& o, Range blocks) {
  const int64_t down = o.step.sizes[o.step.rank - 2];
  const int64_t across = o.step.sizes[o.step.rank - 1];
  const int64_t height = o.x.sizes[o.x.rank - 2];
  const int64_t width = Width(o.x);
  float v[kChunk];
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const int64_t first = block / down * height + block % down * o.rows;
    const int64_t count = std::min(o.rows, height - block % down * o.rows);
    for (int64_t c = 0; c < across; ++c) {
      const int64_t left = c * o.columns;
      const int64_t right = std::min(left + o.columns, width);
      const auto each = [&](auto&& use) {
        for (int64_t row = first; row < first + count; ++row) {
          for (int64_t begin = left; begin < right; begin += kChunk) {
            const int64_t part = std::min(kChunk, right - begin);
            ReadPart(o.x, o.x, row, begin, part, v);
            use(row, begin, part);
          }
        }
      };
      Extent extent;
      each([&](int64_t, int64_t, int64_t part) {
        for (int64_t i = 0; i < part; ++i) extent.Take(v[i]);
      });
      const float own = extent.Most() / o.top;
      const float step = own < o.least ? o.least : own;
      row_io::PutNumber(o.step, block * across + c, step);
      each([&](int64_t row, int64_t begin, int64_t part) {
        Divide(v, part, step, 0);
        WriteIntegers(o.y, false, row, begin, part, v);
      });
    }
  }
}

void FakeQuantize(const FakeQuantization& o, Range rows) {
  const int64_t n = Width(o.x);
  const auto low = static_cast<float>(o.low);
  const auto high = static_cast<float>(o.high);
  float v[kChunk];
  float scale[kChunk];
  float zero[kChunk];
  float mask[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      ReadPart(o.x, o.x, row, begin, part, v);
      if (!o.enabled) {
        std::fill_n(mask, part, 1.0F);
      } else {
        ReadPart(o.scale, o.x, row, begin, part, scale);
        ReadPart(o.zero, o.x, row, begin, part, zero);
        for (int64_t i = 0; i < part; ++i) {
          const float q = zero[i] + std::nearbyint(v[i] * (1.0F / scale[i]));
          mask[i] = q >= low && q <= high ? 1.0F : 0.0F;
          v[i] = (std::fmin(std::fmax(q, low), high) - zero[i]) * scale[i];
        }
      }
      row_io::WritePart(o.out, row, begin, part, v);
      row_io::WritePart(o.mask, row, begin, part, mask);
    }
  }
}

void ScatterQuantized(const QuantScatter& o, Range rows) {
  const int64_t n = Width(o.updates);
  const int dims = o.updates.rank;
  float v[kChunk];
  float other[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    // Where the row lies: all indices but the last.
    int64_t at[kMaxRank] = {};
    int64_t rest = row;
    for (int d = dims - 2; d >= 0; --d) {
      at[d] = rest % o.updates.sizes[d];
      rest /= o.updates.sizes[d];
    }
    const int64_t first = row_io::Word(o.index, at[0]);
    const bool moves_row = o.axis == dims - 1;
    if (!moves_row) {
      if (first < 0 || first >= o.self.sizes[o.axis] - at[o.axis]) continue;
      at[o.axis] += first;
    } else if (first < 0 || first > o.self.sizes[o.axis] - n) {
      continue;
    }
    int64_t target = 0;
    bool is_inside = true;
    for (int d = 0; d < dims - 1; ++d) {
      is_inside = is_inside && at[d] < o.self.sizes[d];
      target = target * o.self.sizes[d] + at[d];
    }
    if (!is_inside) continue;
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      ReadPart(o.updates, o.updates, row, begin, part, v);
      ReadPart(o.scale, o.updates, row, begin, part, other);
      for (int64_t i = 0; i < part; ++i) v[i] /= other[i];
      if (o.zero.data != nullptr) {
        ReadPart(o.zero, o.updates, row, begin, part, other);
        for (int64_t i = 0; i < part; ++i) v[i] += other[i];
      }
      WriteIntegers(o.self, false, target, begin + (moves_row ? first : 0), part, v);
    }
  }
}

void ClampGroups(const TensorRef& x, const TensorRef& alpha, int64_t group, Range rows) {
  const float share = row_io::Number(alpha, 0);
  if (!(share > 0 && share < 1)) return;
  const int64_t n = Width(x);
  float v[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t begin = 0; begin < n; begin += group) {
      const int64_t part = std::min(group, n - begin);
      ReadPart(x, x, row, begin, part, v);
      Extent extent;
      for (int64_t i = 0; i < part; ++i) extent.Take(v[i]);
      const float limit = share * extent.Most();
      for (int64_t i = 0; i < part; ++i) v[i] = v[i] > limit ? limit : v[i] < -limit ? -limit : v[i];
      row_io::WritePart(x, row, begin, part, v);
    }
  }
}

int64_t NormGradQuantizeScratchBytes(int64_t n) { return 6 * Arena::BytesFor(n * 4); }

void NormGradQuantize(const NormGradQuantization& o, float* dgamma, Range rows, void* scratch) {
  const int64_t n = Width(o.x);
  Arena arena(scratch);
  float* const dy = arena.Take<float>(n);
  float* const x = arena.Take<float>(n);
  float* const gamma = arena.Take<float>(n);
  float* const v = arena.Take<float>(n);
  float* const scale = arena.Take<float>(n);
  float* const offset = arena.Take<float>(n);
  row_io::Read(o.gamma, 0, n, gamma);
  row_io::Read(o.scale, 0, n, scale);
  std::fill_n(offset, n, 0.0F);
  if (o.offset.data != nullptr) row_io::Read(o.offset, 0, n, offset);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(o.dy, row, n, dy);
    row_io::Read(o.x, row, n, x);
    const float rstd = row_io::Number(o.rstd, row);
    simd::RmsNormGradRows(dy, x, &rstd, gamma, v, dgamma, 1, n);
    for (int64_t i = 0; i < n; ++i) v[i] = (o.divides ? v[i] / scale[i] : v[i] * scale[i]) + offset[i];
    WriteIntegers(o.y, false, row, 0, n, v);
  }
}

void SumLines(const TensorRef& partials, const TensorRef& out, Range range) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    float sum = 0;
    for (int64_t line = 0; line < partials.sizes[0]; ++line) {
      sum += static_cast<const float*>(partials.data)[line * partials.sizes[1] + i];
    }
    row_io::PutNumber(out, i, sum);
  }
}

void ReduceScaledSums(const TensorRef& sums, const TensorRef& row_scale, const TensorRef& scale, const TensorRef& out,
                      Range rows) {
  const int64_t n = Width(out);
  const int64_t m = out.sizes[out.rank - 2];
  float total[kChunk];
  float v[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      std::fill_n(total, part, 0.0F);
      for (int64_t b = 0; b < sums.sizes[0]; ++b) {
        const float of_row = row_io::Number(row_scale, b * m + row);
        ReadPart(sums, sums, b * m + row, begin, part, v);
        for (int64_t i = 0; i < part; ++i) total[i] += v[i] * of_row;
      }
      ReadPart(scale, scale, 0, begin, part, v);
      for (int64_t i = 0; i < part; ++i) total[i] *= v[i];
      row_io::WritePart(out, row, begin, part, total);
    }
  }
}

void ScaleChannels(const TensorRef& sums, const TensorRef& scale, const TensorRef& bias, const TensorRef& out,
                   Range rows) {
  const int64_t n = Width(out);
  const int64_t channels = out.sizes[1];
  int64_t of_channel = 1;
  for (int d = 2; d < out.rank - 1; ++d) of_channel *= out.sizes[d];
  const bool is_packed = scale.dtype == DType::kInt64 || scale.dtype == DType::kUInt64;
  float v[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t channel = row / of_channel % channels;
    const int64_t place = ElementCount(scale) == 1 ? 0 : channel;
    float factor = 0;
    if (is_packed) {
      const auto bits = static_cast<uint32_t>(row_io::Word(scale, place));
      std::memcpy(&factor, &bits, sizeof factor);
    } else {
      factor = row_io::Number(scale, place);
    }
    const float shift = bias.data == nullptr ? 0.0F : row_io::Number(bias, channel);
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      ReadPart(sums, sums, row, begin, part, v);
      for (int64_t i = 0; i < part; ++i) v[i] = (v[i] + shift) * factor;
      row_io::WritePart(out, row, begin, part, v);
    }
  }
}

void SumGroupedRows(const GroupedRowSum& o, Range blocks) {
  const int64_t width = Width(o.out);
  const int64_t rows = o.sums.sizes[0];
  const int64_t rows_out = o.out.sizes[0];
  const bool is_packed = o.scale.dtype == DType::kInt64 || o.scale.dtype == DType::kUInt64;
  float v[kGroupedRowSumColumns];
  float scale[kGroupedRowSumColumns];
  float sum[kGroupedRowSumColumns];
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const int64_t begin = block * kGroupedRowSumColumns;
    const int64_t n = std::min(kGroupedRowSumColumns, width - begin);
    for (int64_t r = 0; r < rows_out; ++r) {
      const int64_t own = r - o.shared_first;
      const bool has_shared = o.shared.data != nullptr && own >= 0 && own < o.shared.sizes[0];
      std::fill_n(v, n, 0.0F);
      if (has_shared) {
        ReadPart(o.shared, o.shared, own, begin, n, v);
        for (int64_t i = 0; i < n; ++i) v[i] *= o.shared_weight;
      }
      row_io::WritePart(o.out, r, begin, n, v);
    }
    row_io::GroupWalk walk(o.groups, o.holds_ends, rows);
    int64_t known = -1;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t group = walk.GroupOf(r);
      const int64_t target = row_io::Word(o.index, r);
      if (group < 0 || group >= o.scale.sizes[0] || target < 0 || target >= rows_out) continue;
      if (group != known) {
        known = group;
        if (is_packed) {
          for (int64_t i = 0; i < n; ++i) {
            const auto bits = static_cast<uint32_t>(row_io::Word(o.scale, group * width + begin + i));
            std::memcpy(scale + i, &bits, sizeof bits);
          }
        } else {
          ReadPart(o.scale, o.scale, group, begin, n, scale);
        }
      }
      const float of_row = (o.row_scale.data != nullptr ? row_io::Number(o.row_scale, r) : 1.0F);
      const float weight = (o.weight.data != nullptr ? row_io::Number(o.weight, r) : 1.0F);
      ReadPart(o.sums, o.sums, r, begin, n, v);
      ReadPart(o.out, o.out, target, begin, n, sum);
      for (int64_t i = 0; i < n; ++i) sum[i] += v[i] * scale[i] * of_row * weight;
      row_io::WritePart(o.out, target, begin, n, sum);
    }
  }
}

void GeluOfRows(const TensorRef& x, bool is_tanh, const TensorRef& out, Range rows) {
  const int64_t n = Width(x);
  float v[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      ReadPart(x, x, row, begin, part, v);
      for (int64_t i = 0; i < part; ++i) v[i] = is_tanh ? GeluTanhOfFloat(v[i]) : GeluOfFloat(v[i]);
      row_io::WritePart(out, row, begin, part, v);
    }
  }
}

}  // namespace reprise::kernels
