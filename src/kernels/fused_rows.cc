// SPDX-License-Identifier: Apache-2.0
#include "kernels/fused_rows.h"

#include <cmath>

#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/row_io.h"
#include "kernels/simd/normalize.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr float kTop = 127;
constexpr float kBottom = -128;

// Row `row` of the last dim, elements [begin, begin + n).
void ReadRow(const TensorRef& ref, int64_t row, int64_t n, float* to) {
  const int last = ref.rank - 1;
  const int64_t stride = last < 0 || ref.sizes[last] == 1 ? 0 : ref.strides[last] * ItemSize(ref.dtype);
  const char* const from = last < 0 ? static_cast<const char*>(ref.data) : EntryOf(ref, 1, ref, 1, row);
  FindCast(ref.dtype, DType::kFloat)(from, stride, reinterpret_cast<char*>(to), sizeof(float), n);
}

void WriteRow(const TensorRef& ref, int64_t row, int64_t n, const float* from) {
  const int last = ref.rank - 1;
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(float), EntryOf(ref, 1, ref, 1, row),
                                     ref.strides[last] * ItemSize(ref.dtype), n);
}

float ReadNumber(const TensorRef& ref, int64_t i) {
  float value = 0;
  FindCast(ref.dtype, DType::kFloat)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

void WriteNumber(const TensorRef& ref, int64_t i, float value) {
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(&value), 0, EntryOf(ref, 0, ref, 0, i), 0, 1);
}

void WriteInt8(const TensorRef& ref, int64_t row, int64_t n, const float* from) {
  char* const to = EntryOf(ref, 1, ref, 1, row);
  const int64_t stride = ref.strides[ref.rank - 1];
  for (int64_t i = 0; i < n; ++i) {
    const float low = from[i] < kBottom ? kBottom : from[i];
    const float bounded = low > kTop ? kTop : low;
    const float number = bounded == bounded ? bounded : 0.0F;
    // Numbers of this size have no bits behind the point.
    to[i * stride] = static_cast<char>(static_cast<int8_t>(static_cast<int32_t>((number + 0x1.8p23F) - 0x1.8p23F)));
  }
}

// Makes `v` what is to be rounded, and returns the step.
float Rescale(float* v, int64_t n, float top = kTop) {
  float most = 0;
  bool has_nan = false;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(v[i]);
    most = size > most ? size : most;
    has_nan = has_nan || v[i] != v[i];
  }
  const float step = has_nan ? NAN : most / top;
  if (step == 0 || step != step) {
    std::fill_n(v, n, 0.0F);
  } else {
    for (int64_t i = 0; i < n; ++i) v[i] /= step;
  }
  return step;
}

int64_t WordOf(const TensorRef& ref, int64_t i) {
  int64_t word = 0;
  FindCast(ref.dtype, DType::kInt64)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&word), 0, 1);
  return word;
}

}  // namespace

int64_t NormQuantScratchBytes(int64_t n) { return 6 * Arena::BytesFor(n * 4); }

void NormQuant(const NormQuantOperands& o, Range rows, void* scratch) {
  const int64_t n = o.x1.sizes[o.x1.rank - 1];
  Arena arena(scratch);
  float* const sum = arena.Take<float>(n);
  float* const y = arena.Take<float>(n);
  float* const other = arena.Take<float>(n);
  float* const gamma = arena.Take<float>(n);
  float* const beta = arena.Take<float>(n);
  float* const v = arena.Take<float>(n);
  ReadRow(o.gamma, 0, n, gamma);
  if (o.beta.data != nullptr) ReadRow(o.beta, 0, n, beta);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    ReadRow(o.x1, row, n, sum);
    ReadRow(o.x2, row, n, other);
    for (int64_t i = 0; i < n; ++i) sum[i] += other[i];
    WriteRow(o.sum, row, n, sum);
    ReadRow(o.sum, row, n, sum);
    float rstd = 0;
    simd::RmsNormRows(sum, gamma, o.epsilon, y, &rstd, 1, n);
    if (o.beta.data != nullptr) {
      for (int64_t i = 0; i < n; ++i) y[i] += beta[i];
    }
    if (o.norm.data != nullptr) WriteRow(o.norm, row, n, y);
    for (int k = 0; k < 2; ++k) {
      if (o.out[k].data == nullptr) continue;
      std::copy_n(y, n, v);
      if (o.scale[k].data != nullptr) {
        ReadRow(o.scale[k], 0, n, other);
        if (!o.is_dynamic && o.divides) {
          for (int64_t i = 0; i < n; ++i) v[i] /= other[i];
        } else {
          for (int64_t i = 0; i < n; ++i) v[i] *= other[i];
        }
      }
      if (o.is_dynamic) {
        WriteNumber(o.step[k], row, Rescale(v, n));
      } else if (o.zero[k].data != nullptr) {
        ReadRow(o.zero[k], 0, n, other);
        for (int64_t i = 0; i < n; ++i) v[i] += other[i];
      }
      WriteInt8(o.out[k], row, n, v);
    }
  }
}

int64_t SwigluScratchBytes(int64_t n) { return 2 * Arena::BytesFor(2 * n * 4) + Arena::BytesFor(n * 4); }

void SwigluRows(const SwigluOperands& o, Range rows, void* scratch) {
  const int64_t n = o.x.sizes[o.x.rank - 1] / 2;
  Arena arena(scratch);
  float* const v = arena.Take<float>(2 * n);
  float* const factor = arena.Take<float>(2 * n);
  float* const out = arena.Take<float>(n);
  const bool is_packed = o.out.dtype == DType::kInt32;
  int64_t group = 0;
  row_io::GroupWalk walk(o.group_counts, o.holds_ends, EntryCount(o.x, 1));
  const auto of_group = [&](const TensorRef& ref) { return EntryCount(ref, 1) > 1 ? group : 0; };
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    group = walk.GroupOf(row);
    if (group < 0) return;
    ReadRow(o.x, row, 2 * n, v);
    if (o.weight_scale.data != nullptr) {
      const bool bias_first = o.bias.data != nullptr && o.bias.dtype == DType::kInt32;
      if (bias_first) {
        ReadRow(o.bias, of_group(o.bias), 2 * n, factor);
        for (int64_t i = 0; i < 2 * n; ++i) v[i] += factor[i];
      }
      ReadRow(o.weight_scale, of_group(o.weight_scale), 2 * n, factor);
      for (int64_t i = 0; i < 2 * n; ++i) v[i] *= factor[i];
      if (o.row_scale.data != nullptr) {
        const float of_row = ReadNumber(o.row_scale, row);
        for (int64_t i = 0; i < 2 * n; ++i) v[i] *= of_row;
      }
      if (o.bias.data != nullptr && !bias_first) {
        ReadRow(o.bias, of_group(o.bias), 2 * n, factor);
        for (int64_t i = 0; i < 2 * n; ++i) v[i] += factor[i];
      }
    }
    const int64_t step = o.interleaves ? 2 : 1;
    const float* const first = v;
    const float* const second = o.interleaves ? v + 1 : v + n;
    const float* const a = o.activates_left ? first : second;
    const float* const b = o.activates_left ? second : first;
    for (int64_t i = 0; i < n; ++i) {
      float left = a[i * step];
      float right = b[i * step];
      if (o.clips) {
        left = left > o.limit ? o.limit : left;
        right = right > o.limit ? o.limit : right < -o.limit ? -o.limit : right;
      }
      out[i] = left / (1.0F + std::exp(-o.alpha * left)) * (o.clips ? right + o.shift : right);
    }
    if (o.mode == SwigluOperands::Mode::kPlain) {
      WriteRow(o.out, row, n, out);
      continue;
    }
    const bool is_static = o.mode == SwigluOperands::Mode::kStatic;
    if (o.scale.data != nullptr) {
      ReadRow(o.scale, of_group(o.scale), n, factor);
      for (int64_t i = 0; i < n; ++i) out[i] = is_static && !o.multiplies ? out[i] / factor[i] : out[i] * factor[i];
    }
    if (!is_static) {
      WriteNumber(o.step, row, Rescale(out, n, is_packed ? 7.0F : kTop));
    } else if (o.offset.data != nullptr) {
      ReadRow(o.offset, of_group(o.offset), n, factor);
      for (int64_t i = 0; i < n; ++i) out[i] += factor[i];
    }
    if (is_packed) {
      row_io::WriteIntegers(o.out, true, row, 0, n, out);
    } else {
      WriteInt8(o.out, row, n, out);
    }
  }
}

void MergeParts(const TensorRef* log_sums, const TensorRef* parts, int64_t count, const TensorRef& out,
                const TensorRef& log_sum, Range rows) {
  constexpr int64_t kAtOnce = 512;
  const int64_t n = out.sizes[out.rank - 1];
  float sum[kAtOnce];
  float part[kAtOnce];
  // A part without keys has +Inf.
  const auto read = [&](int64_t i, int64_t row) {
    const float value = ReadNumber(log_sums[i], row);
    return value == INFINITY ? -INFINITY : value;
  };
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float most = -INFINITY;
    bool has_nan = false;
    for (int64_t i = 0; i < count; ++i) {
      const float value = read(i, row);
      has_nan = has_nan || value != value;
      most = value > most ? value : most;
    }
    const bool is_empty = most == -INFINITY && !has_nan;
    float total = 0;
    for (int64_t i = 0; i < count && !is_empty; ++i) total += std::exp(read(i, row) - most);
    const float all = is_empty ? -INFINITY : most + std::log(total);
    if (log_sum.data != nullptr) WriteNumber(log_sum, row, all);
    for (int64_t begin = 0; begin < n; begin += kAtOnce) {
      const int64_t width = std::min(kAtOnce, n - begin);
      std::fill_n(sum, width, 0.0F);
      for (int64_t i = 0; i < count && !is_empty; ++i) {
        const float weight = std::exp(read(i, row) - all);
        if (weight == 0) continue;
        const TensorRef& from = parts[i];
        const int64_t stride = from.strides[from.rank - 1] * ItemSize(from.dtype);
        FindCast(from.dtype, DType::kFloat)(EntryOf(from, 1, from, 1, row) + begin * stride, stride,
                                            reinterpret_cast<char*>(part), sizeof(float), width);
        for (int64_t c = 0; c < width; ++c) sum[c] += weight * part[c];
      }
      const int64_t stride = out.strides[out.rank - 1] * ItemSize(out.dtype);
      FindCast(DType::kFloat, out.dtype)(reinterpret_cast<const char*>(sum), sizeof(float),
                                         EntryOf(out, 1, out, 1, row) + begin * stride, stride, width);
    }
  }
}

int64_t TopKTopPScratchBytes(int64_t n) { return 2 * Arena::BytesFor(n * 4); }

void TopKTopP(const TensorRef& logits, const TensorRef& p, const TensorRef& k, const TensorRef& out, Range rows,
              void* scratch) {
  const int64_t n = logits.sizes[logits.rank - 1];
  Arena arena(scratch);
  float* const v = arena.Take<float>(n);
  float* const sorted = arena.Take<float>(n);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    ReadRow(logits, row, n, v);
    int64_t wanted = k.data != nullptr ? WordOf(k, row) : n;
    if (wanted < 1 || wanted > n) wanted = n;
    // NaN counts as the greatest.
    const auto is_before = [](float a, float b) { return a != a ? b == b : a > b; };
    std::copy_n(v, n, sorted);
    float least = -INFINITY;
    if (wanted < n) {
      std::nth_element(sorted, sorted + wanted - 1, sorted + n, is_before);
      least = sorted[wanted - 1];
    }
    if (p.data != nullptr) {
      // Equal to the k-th greatest: those are kept, too.
      int64_t kept = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (!(v[i] < least)) sorted[kept++] = v[i];
      }
      std::sort(sorted, sorted + kept, is_before);
      const float most = sorted[0];
      float total = 0;
      for (int64_t i = 0; i < kept; ++i) total += std::exp(sorted[i] - most);
      const float share = ReadNumber(p, row);
      // From the least on: what adds up to no more than 1 - p goes, but never the greatest.
      float sum = 0;
      int64_t last = kept - 1;
      for (; last > 0; --last) {
        sum += std::exp(sorted[last] - most) / total;
        if (sum > 1.0F - share) break;
      }
      least = sorted[last];
    }
    for (int64_t i = 0; i < n; ++i) {
      if (v[i] < least) v[i] = -INFINITY;
    }
    WriteRow(out, row, n, v);
  }
}

int64_t TableRotationScratchBytes(int64_t width, int64_t m) {
  return Arena::BytesFor(width * 4) + 2 * Arena::BytesFor(m * 4);
}

void RotateByTable(const TableRotation& rotation, const TensorRef& positions, const TensorRef& table,
                   const TensorRef& x, const TensorRef& y, Range tokens, void* scratch) {
  const int64_t width = x.sizes[1];
  const int64_t m = table.sizes[1];
  const int64_t half = m / 2;
  Arena arena(scratch);
  float* const v = arena.Take<float>(width);
  float* const angles = arena.Take<float>(m);
  float* const of_row = arena.Take<float>(m);
  const int64_t count = x.sizes[0];
  const auto read = [&](int64_t row, int64_t token, float* to) {
    const int64_t position = WordOf(positions, row * count + token);
    ReadRow(table, std::clamp<int64_t>(position, 0, table.sizes[0] - 1), m, to);
  };
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    ReadRow(x, token, width, v);
    read(0, token, angles);
    int64_t begin = rotation.sections[0];
    for (int row = 1; positions.rank == 2 && row < positions.sizes[0]; ++row) {
      read(row, token, of_row);
      if (rotation.alternates) {
        for (int64_t i = row; i < std::min(half, 3 * rotation.sections[row]); i += 3) {
          angles[i] = of_row[i];
          angles[half + i] = of_row[half + i];
        }
        continue;
      }
      const int64_t end = std::min(half, begin + rotation.sections[row]);
      for (int64_t i = begin; i < end; ++i) {
        angles[i] = of_row[i];
        angles[half + i] = of_row[half + i];
      }
      begin = end;
    }
    const int64_t step = rotation.pairs ? 2 : 1;
    const int64_t apart = rotation.pairs ? 1 : half;
    for (float* head = v; head < v + width; head += rotation.head_size) {
      for (int64_t i = 0; i < half; ++i) {
        const float a = head[i * step];
        const float b = head[i * step + apart];
        head[i * step] = a * angles[i] - b * angles[half + i];
        head[i * step + apart] = b * angles[i] + a * angles[half + i];
      }
    }
    WriteRow(y, token, width, v);
  }
}

}  // namespace reprise::kernels
