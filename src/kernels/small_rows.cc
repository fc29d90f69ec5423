// SPDX-License-Identifier: Apache-2.0
#include "kernels/small_rows.h"

#include <array>

#include "kernels/row_io.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kSmallChunk = 512;  // elements in flight; a multiple of kSmallBlock

struct SmallNumbers {
  std::array<float, 256> values;
};

const SmallNumbers& SmallNumbersOf(SmallFloat type) {
  const auto make = [](SmallFloat of) {
    SmallNumbers numbers;
    for (size_t bits = 0; bits < numbers.values.size(); ++bits) {
      numbers.values[bits] = FromSmall(of, static_cast<uint8_t>(bits));
    }
    return numbers;
  };
  static const SmallNumbers kNumbers[] = {make(SmallFloat::kHiFloat8), make(SmallFloat::kFloat8E5M2),
                                          make(SmallFloat::kFloat8E4M3), make(SmallFloat::kFloat8E8M0)};
  return kNumbers[static_cast<int32_t>(type) - static_cast<int32_t>(SmallFloat::kHiFloat8)];
}

// Elements [begin, begin + n) of a row.
void WriteSmall(const TensorRef& ref, SmallFloat type, int64_t row, int64_t begin, int64_t n, const float* from) {
  const int64_t step = ref.strides[ref.rank - 1];
  char* const to = EntryOf(ref, 1, ref, 1, row) + begin * step;
  for (int64_t i = 0; i < n; ++i) to[i * step] = static_cast<char>(ToSmall(type, from[i]));
}

void ZeroRow(const TensorRef& ref, int64_t row, int64_t n) {
  const int64_t step = ref.strides[ref.rank - 1] * ItemSize(ref.dtype);
  char* const to = EntryOf(ref, 1, ref, 1, row);
  const int64_t bytes = ItemSize(ref.dtype);
  for (int64_t i = 0; i < n; ++i) std::memset(to + i * step, 0, static_cast<size_t>(bytes));
}

// The greater one, or NaN.
float GreaterOrNan(float most, float magnitude) {
  return magnitude > most || magnitude != magnitude ? magnitude : most;
}

float ExtentOfNumbers(const float* v, int64_t n, float most) {
  for (int64_t i = 0; i < n && most == most; ++i) most = GreaterOrNan(most, std::fabs(v[i]));
  return most;
}

void DivideByStep(float* v, int64_t n, float step) {
  if (step == 0) {
    std::fill_n(v, n, 0.0F);
  } else {
    for (int64_t i = 0; i < n; ++i) v[i] /= step;
  }
}

struct SmallRange {
  int64_t begin = 0, end = 0;
};

// Group `wanted` of a list; from the last one on the rows behind it.
SmallRange RowsOfGroup(const TensorRef& list, bool holds_ends, int64_t wanted, int64_t limit) {
  SmallRange range;
  for (int64_t group = 0; group <= wanted; ++group) {
    range.begin = range.end;
    if (group == list.sizes[0]) {
      range.end = limit;
      break;
    }
    const int64_t number = row_io::Word(list, group);
    range.end = holds_ends ? std::clamp(number, range.begin, limit)
                           : range.begin + std::clamp<int64_t>(number, 0, limit - range.begin);
  }
  return range;
}

}  // namespace

float GreatestSmall(SmallFloat type) {
  switch (type) {
    case SmallFloat::kHiFloat8: return 32768;
    case SmallFloat::kFloat8E5M2: return 57344;
    case SmallFloat::kFloat8E4M3: return 448;
    default: return std::ldexp(1.0F, 127);
  }
}

// ---- Blocks of the rows of groups ----

namespace {

// One block: rows [row, row + rows) of all matrices, columns [begin, begin + columns).
void QuantizeOneBlock(const GroupedBlocks& o, int64_t row, int64_t rows, int64_t begin, int64_t columns,
                      int64_t place) {
  float v[kSmallChunk];
  float most = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t at = 0; at < columns; at += kSmallChunk) {
      const int64_t part = std::min(kSmallChunk, columns - at);
      row_io::ReadPart(o.x, o.x, r, begin + at, part, v);
      most = ExtentOfNumbers(v, part, most);
    }
  }
  float step = most / o.top;
  if (step > o.most) step = o.most;
  row_io::PutNumber(o.step, place, step);
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t at = 0; at < columns; at += kSmallChunk) {
      const int64_t part = std::min(kSmallChunk, columns - at);
      row_io::ReadPart(o.x, o.x, r, begin + at, part, v);
      DivideByStep(v, part, step);
      WriteSmall(o.y, o.type, r, begin + at, part, v);
    }
  }
}

}  // namespace

void QuantizeGroupedBlocks(const GroupedBlocks& o, Range units) {
  const int64_t m = o.x.sizes[o.x.rank - 2];
  const int64_t n = o.x.sizes[o.x.rank - 1];
  const int64_t down = o.step.sizes[o.step.rank - 2];
  const int64_t across = o.step.sizes[o.step.rank - 1];
  const int64_t groups = o.ends.sizes[0];
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t matrix = unit / (down + 1);
    const int64_t line = unit % (down + 1);
    if (line == down) {
      const SmallRange rest = RowsOfGroup(o.ends, true, groups, m);
      for (int64_t row = rest.begin; row < rest.end; ++row) ZeroRow(o.y, matrix * m + row, n);
      continue;
    }
    // The group whose blocks begin at this line or before it.
    SmallRange rows;
    bool is_block = false;
    for (int64_t group = 0; group < groups && !is_block; ++group) {
      rows = {rows.end, std::clamp(row_io::Word(o.ends, group), rows.end, m)};
      const int64_t block = line - (rows.begin / o.rows + group);
      is_block = block >= 0 && rows.begin + block * o.rows < rows.end;
      if (is_block) rows.begin += block * o.rows;
    }
    for (int64_t column = 0; column < across; ++column) {
      const int64_t place = (matrix * down + line) * across + column;
      if (!is_block) {
        row_io::PutNumber(o.step, place, 0);
        continue;
      }
      const int64_t begin = column * o.columns;
      QuantizeOneBlock(o, matrix * m + rows.begin, std::min(o.rows, rows.end - rows.begin), begin,
                       std::min(o.columns, n - begin), place);
    }
  }
}

// ---- Scaled, with what was greatest ----

void QuantizeScaled(const ScaledSmall& o, Range rows) {
  const int64_t n = o.x.sizes[o.x.rank - 1];
  int64_t rows_of_entry = 1;  // rows that one place of the first dim has
  for (int d = 1; d < o.x.rank - 1; ++d) rows_of_entry *= o.x.sizes[d];
  const bool has_groups = o.ends.data != nullptr;
  const int64_t limit = has_groups ? o.x.sizes[0] : INT64_MAX;
  int64_t group = 0;
  SmallRange range = has_groups ? RowsOfGroup(o.ends, true, 0, limit) : SmallRange{0, limit};
  float v[kSmallChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t entry = row / rows_of_entry;
    while (has_groups && group < o.ends.sizes[0] && entry >= range.end) {
      ++group;
      range = {range.end, group == o.ends.sizes[0] ? limit : std::clamp(row_io::Word(o.ends, group), range.end, limit)};
    }
    const bool is_in_group = !has_groups || group < o.ends.sizes[0];
    const float scale = is_in_group ? row_io::Number(o.scale, group) : 0;
    float most = 0;
    for (int64_t at = 0; at < n; at += kSmallChunk) {
      const int64_t part = std::min(kSmallChunk, n - at);
      row_io::ReadPart(o.x, o.x, row, at, part, v);
      most = ExtentOfNumbers(v, part, most);
      for (int64_t i = 0; i < part; ++i) v[i] = is_in_group ? v[i] * scale : 0;
      WriteSmall(o.y, o.type, row, at, part, v);
    }
    row_io::PutNumber(o.extent, row, most);
  }
}

void FindGroupExtents(const TensorRef& extent, const TensorRef& ends, int64_t limit, const TensorRef& out,
                      Range groups) {
  const int64_t rows = ElementCount(extent);
  const int64_t rows_of_entry = limit == 0 ? 0 : rows / limit;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    SmallRange range{0, rows};
    if (ends.data != nullptr) {
      range = RowsOfGroup(ends, true, group, limit);
      range = {range.begin * rows_of_entry, range.end * rows_of_entry};
    }
    float most = 0;
    for (int64_t row = range.begin; row < range.end; ++row) most = GreaterOrNan(most, row_io::Number(extent, row));
    row_io::PutNumber(out, group, most);
  }
}

// ---- After a gated activation ----

namespace {

struct GatedRow {
  float* a;
  float* b;
};

// The halves of a row of x within the limits.
void ReadHalves(const TensorRef& x, int64_t row, int64_t n, float limit, const GatedRow& to) {
  row_io::ReadPart(x, x, row, 0, n, to.a);
  row_io::ReadPart(x, x, row, n, n, to.b);
  if (!(limit > 0)) return;
  for (int64_t i = 0; i < n; ++i) {
    to.a[i] = to.a[i] > limit ? limit : to.a[i];
    to.b[i] = to.b[i] > limit ? limit : to.b[i] < -limit ? -limit : to.b[i];
  }
}

float SigmoidOfFloat(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// v of a row, in `a`.
void GateRow(const SmallSwiglu& o, int64_t row, int64_t n, const GatedRow& to) {
  ReadHalves(o.x, row, n, o.limit, to);
  const float weight = o.weight.data == nullptr ? 1.0F : row_io::Number(o.weight, row);
  for (int64_t i = 0; i < n; ++i) {
    to.a[i] = to.a[i] * SigmoidOfFloat(to.a[i]) * to.b[i];
    if (o.weight.data != nullptr) to.a[i] *= weight;
  }
}

void QuantizeRowInBlocks(const SmallSwiglu& o, int64_t row, int64_t n, float* v) {
  const int64_t blocks = (n + kSmallBlock - 1) / kSmallBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    float* const from = v + block * kSmallBlock;
    const int64_t count = std::min(kSmallBlock, n - block * kSmallBlock);
    const float most = ExtentOfNumbers(from, count, 0);
    float step = (most < kLeastExtent ? kLeastExtent : most) / o.top;
    if (o.rounds_up && std::isfinite(step)) {
      int exponent = 0;
      const float mantissa = std::frexp(step, &exponent);  // step = mantissa * 2^exponent, mantissa in [1/2, 1)
      step = std::ldexp(1.0F, mantissa == 0.5F ? exponent - 1 : exponent);
    }
    row_io::PutNumber(o.step, row * blocks + block, step);
    DivideByStep(from, count, step);
  }
}

void QuantizeRowByExponents(const SmallSwiglu& o, int64_t row, int64_t n, float* v) {
  const int64_t places = (n + 2 * kSmallGroup - 1) / (2 * kSmallGroup) * 2;
  for (int64_t place = 0; place < places; ++place) {
    float* const from = v + place * kSmallGroup;
    const int64_t count = std::min(kSmallGroup, n - place * kSmallGroup);
    uint8_t bits = 0;
    if (count > 0) {
      const float most = ExtentOfNumbers(from, count, 0);
      if (!std::isfinite(most)) {
        bits = 0xff;
      } else if (most > 0) {
        bits = static_cast<uint8_t>(std::clamp(std::ilogb(most) - static_cast<int>(o.top) + 127, 0, 254));
      }
      DivideByStep(from, count, FromSmall(SmallFloat::kFloat8E8M0, bits));
    }
    *EntryOf(o.step, 0, o.step, 0, row * places + place) = static_cast<char>(bits);
  }
}

}  // namespace

int64_t SmallSwigluScratchBytes(int64_t n) { return 2 * Arena::BytesFor(n * 4); }

void QuantizeSwiglu(const SmallSwiglu& o, Range rows, void* scratch) {
  const int64_t n = o.y.sizes[o.y.rank - 1];
  Arena arena(scratch);
  const GatedRow halves = {arena.Take<float>(n), arena.Take<float>(n)};
  row_io::GroupWalk walk(o.counts, false, EntryCount(o.y, 1));
  const int64_t places = EntryCount(o.y, 1) == 0 ? 0 : EntryCount(o.step, 0) / EntryCount(o.y, 1);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t group = walk.GroupOf(row);
    if (group < 0) {
      ZeroRow(o.y, row, n);
      if (o.origin.data != nullptr) ZeroRow(o.origin, row, n);
      for (int64_t i = 0; o.mode != SmallSwiglu::Mode::kGiven && i < places; ++i) {
        char* const to = EntryOf(o.step, 0, o.step, 0, row * places + i);
        std::memset(to, 0, static_cast<size_t>(ItemSize(o.step.dtype)));
      }
      continue;
    }
    GateRow(o, row, n, halves);
    if (o.origin.data != nullptr) row_io::Write(o.origin, row, n, halves.a);
    switch (o.mode) {
      case SmallSwiglu::Mode::kBlocks: QuantizeRowInBlocks(o, row, n, halves.a); break;
      case SmallSwiglu::Mode::kExponents: QuantizeRowByExponents(o, row, n, halves.a); break;
      case SmallSwiglu::Mode::kGiven:
        DivideByStep(halves.a, n, row_io::Number(o.given, EntryCount(o.given, 0) == 1 ? 0 : group));
        break;
    }
    WriteSmall(o.y, o.type, row, 0, n, halves.a);
  }
}

void FindSwigluExtents(const SmallSwiglu& o, const TensorRef& extent, Range rows, void* scratch) {
  const int64_t n = o.x.sizes[o.x.rank - 1] / 2;
  Arena arena(scratch);
  const GatedRow halves = {arena.Take<float>(n), arena.Take<float>(n)};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    GateRow(o, row, n, halves);
    row_io::PutNumber(extent, row, ExtentOfNumbers(halves.a, n, 0));
  }
}

void FindGroupSteps(const TensorRef& extent, const TensorRef& counts, float top, const TensorRef& step, Range groups) {
  const int64_t rows = extent.sizes[0];
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const SmallRange range = counts.data == nullptr ? SmallRange{0, rows} : RowsOfGroup(counts, false, group, rows);
    float most = 0;
    for (int64_t row = range.begin; row < range.end && most == most; ++row) {
      most = GreaterOrNan(most, row_io::Number(extent, row));
    }
    row_io::PutNumber(step, group, (most < kLeastExtent ? kLeastExtent : most) / top);
  }
}

int64_t SmallSwigluGradientScratchBytes(int64_t n) { return 6 * Arena::BytesFor(n * 4); }

void SwigluGradient(const SmallSwigluGradient& o, Range rows, void* scratch) {
  const int64_t n = o.grad.sizes[o.grad.rank - 1];
  Arena arena(scratch);
  const GatedRow given = {arena.Take<float>(n), arena.Take<float>(n)};
  const GatedRow held = {arena.Take<float>(n), arena.Take<float>(n)};
  float* const grad = arena.Take<float>(n);
  float* const origin = arena.Take<float>(n);
  row_io::GroupWalk walk(o.counts, false, EntryCount(o.grad, 1));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (walk.GroupOf(row) < 0) {
      ZeroRow(o.grad_x, row, 2 * n);
      if (o.grad_weight.data != nullptr) row_io::PutNumber(o.grad_weight, row, 0);
      continue;
    }
    ReadHalves(o.x, row, n, 0, given);
    ReadHalves(o.x, row, n, o.limit, held);
    row_io::Read(o.grad, row, n, grad);
    if (o.origin.data != nullptr) row_io::Read(o.origin, row, n, origin);
    const float weight = o.weight.data == nullptr ? 1.0F : row_io::Number(o.weight, row);
    const bool has_limit = o.limit > 0;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float sigmoid = SigmoidOfFloat(held.a[i]);
      const float silu = held.a[i] * sigmoid;
      const float scaled = grad[i] * weight;
      sum += static_cast<double>(grad[i]) * (o.origin.data != nullptr ? origin[i] : silu * held.b[i]);
      const bool a_is_held = has_limit && given.a[i] >= o.limit;
      const bool b_is_held = has_limit && (given.b[i] >= o.limit || given.b[i] <= -o.limit);
      const float slope = sigmoid * (1.0F + held.a[i] * (1.0F - sigmoid));
      given.a[i] = a_is_held ? 0.0F : scaled * held.b[i] * slope;
      given.b[i] = b_is_held ? 0.0F : scaled * silu;
    }
    row_io::WritePart(o.grad_x, row, 0, n, given.a);
    row_io::WritePart(o.grad_x, row, n, n, given.b);
    if (o.grad_weight.data != nullptr) row_io::PutNumber(o.grad_weight, row, static_cast<float>(sum));
  }
}

// ---- Products ----

void WidenSmall(const SmallMatrix& o, Range rows) {
  const int64_t n = o.x.sizes[o.x.rank - 1];
  const int64_t depth = o.x.sizes[o.x.rank - 2];
  const int64_t step = o.x.strides[o.x.rank - 1];
  const auto& numbers = SmallNumbersOf(o.type).values;
  const auto& powers = SmallNumbersOf(SmallFloat::kFloat8E8M0).values;
  row_io::GroupWalk walk(o.groups, o.holds_ends, depth);
  int64_t known = -1;
  int64_t begin = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t group = o.groups.data == nullptr ? 0 : walk.GroupOf(row);
    auto* const to = reinterpret_cast<float*>(EntryOf(o.out, 1, o.out, 1, row));
    if (group < 0) {
      std::fill_n(to, n, 0.0F);
      continue;
    }
    if (o.groups.data != nullptr && group != known) {
      known = group;
      begin = RowsOfGroup(o.groups, o.holds_ends, group, depth).begin;
    }
    const char* const from = EntryOf(o.x, 1, o.x, 1, row);
    for (int64_t i = 0; i < n; ++i) to[i] = numbers[static_cast<uint8_t>(from[i * step])];
    if (o.exponents.data == nullptr) continue;
    const int64_t j = row - begin;
    const int64_t block = begin / (2 * kSmallGroup) + (o.groups.data == nullptr ? 0 : group) + j / (2 * kSmallGroup);
    const char* const line = static_cast<const char*>(o.exponents.data) + block * o.exponents.strides[0] +
                             j / kSmallGroup % 2 * o.exponents.strides[2];
    for (int64_t i = 0; i < n; ++i) to[i] *= powers[static_cast<uint8_t>(line[i * o.exponents.strides[1]])];
  }
}

void AddScaledProduct(const ScaledSum& o, Range rows) {
  const int64_t n = o.y.sizes[o.y.rank - 1];
  const int64_t m = o.y.sizes[o.y.rank - 2];
  float y[kSmallChunk];
  float other[kSmallChunk];
  float product[kSmallChunk];
  int64_t known = -1;
  bool is_empty = false;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (o.groups.data != nullptr && row / m != known) {
      known = row / m;
      const SmallRange range = RowsOfGroup(o.groups, o.holds_ends, known, o.depth);
      is_empty = range.begin == range.end;
    }
    if (is_empty) continue;
    for (int64_t begin = 0; begin < n; begin += kSmallChunk) {
      const int64_t part = std::min(kSmallChunk, n - begin);
      row_io::ReadPart(o.product, o.product, row, begin, part, product);
      for (const TensorRef* scale : {&o.column_scale, &o.row_scale}) {
        if (scale->data == nullptr) continue;
        row_io::ReadPart(*scale, o.y, row, begin, part, other);
        for (int64_t i = 0; i < part; ++i) product[i] *= other[i];
      }
      row_io::ReadPart(o.y, o.y, row, begin, part, y);
      for (int64_t i = 0; i < part; ++i) y[i] += product[i];
      row_io::WritePart(o.y, row, begin, part, y);
    }
  }
}

// ---- Turned into quantized caches ----

namespace {

// Row `row` of x as numbers.
void ReadDequantized(const TurnedCaches& o, int64_t row, int64_t width, float* v, float* other) {
  if (o.x.dtype != DType::kInt32) return row_io::Read(o.x, row, width, v);
  const bool adds_first = o.bias.data != nullptr && o.bias.dtype == DType::kInt32;
  if (adds_first) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t sum = row_io::Word(o.x, row * width + i) + row_io::Word(o.bias, i);
      v[i] = static_cast<float>(sum);
    }
  } else {
    row_io::Read(o.x, row, width, v);
  }
  if (o.weight_scale.data != nullptr) {
    row_io::Read(o.weight_scale, 0, width, other);
    for (int64_t i = 0; i < width; ++i) v[i] *= other[i];
  }
  if (o.row_scale.data != nullptr) {
    const float scale = row_io::Number(o.row_scale, row);
    for (int64_t i = 0; i < width; ++i) v[i] *= scale;
  }
  if (o.bias.data != nullptr && !adds_first) {
    row_io::Read(o.bias, 0, width, other);
    for (int64_t i = 0; i < width; ++i) v[i] += other[i];
  }
}

void TurnHeads(float* v, int64_t heads, int64_t size, const float* cos, const float* sin) {
  const int64_t half = size / 2;
  for (int64_t head = 0; head < heads; ++head) {
    float* const line = v + head * size;
    for (int64_t i = 0; i < half; ++i) {
      const float a = line[i];
      const float b = line[i + half];
      line[i] = a * cos[i] - b * sin[i];
      line[i + half] = b * cos[i + half] + a * sin[i + half];
    }
  }
}

void WriteHeads(const TensorRef& ref, int64_t token, int64_t heads, int64_t size, const float* v) {
  if (ref.data == nullptr) return;
  for (int64_t head = 0; head < heads; ++head) row_io::Write(ref, token * heads + head, size, v + head * size);
}

// Line `line` of a cache, counted over its pages.
void WriteCacheLine(const TurnedCaches& o, int which, int64_t line, const float* v, float* out) {
  const TensorRef& cache = o.cache[which];
  const auto value = [&](const TensorRef& ref, int64_t head, int64_t i) {
    const int64_t heads = ref.sizes[0];
    const int64_t size = ref.sizes[1];
    return row_io::Number(ref, (heads == 1 ? 0 : head) * size + (size == 1 ? 0 : i));
  };
  for (int64_t head = 0; head < o.kv_heads; ++head) {
    for (int64_t i = 0; i < o.size; ++i) {
      out[i] = v[head * o.size + i] * value(o.scale[which], head, i);
      if (o.offset[which].data != nullptr) out[i] += value(o.offset[which], head, i);
    }
    row_io::WriteIntegers(cache, false, line * o.kv_heads + head, 0, o.size, out);
  }
}

}  // namespace

int64_t TurnedCachesScratchBytes(int64_t width) { return 4 * Arena::BytesFor(width * 4); }

void TurnIntoCaches(const TurnedCaches& o, Range tokens, void* scratch) {
  const int64_t width = o.x.sizes[o.x.rank - 1];
  const int64_t kv = o.kv_heads * o.size;
  Arena arena(scratch);
  float* const v = arena.Take<float>(width);
  float* const other = arena.Take<float>(width);
  float* const cos = arena.Take<float>(width);
  float* const sin = arena.Take<float>(width);
  const int64_t lines = o.cache[0].sizes[1];
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    ReadDequantized(o, token, width, v, other);
    row_io::Read(o.cos, token, o.size, cos);
    row_io::Read(o.sin, token, o.size, sin);
    TurnHeads(v, o.q_heads + o.kv_heads, o.size, cos, sin);
    float* const key = v + o.q_heads * o.size;
    float* const value = key + kv;
    WriteHeads(o.q, token, o.q_heads, o.size, v);
    WriteHeads(o.k, token, o.kv_heads, o.size, key);
    WriteHeads(o.v, token, o.kv_heads, o.size, value);
    int64_t line = 0;
    if (o.per_sequence > 0) {
      const int64_t page = token / o.per_sequence;
      const int64_t begin = row_io::Word(o.slots, page);
      if (begin < 0 || begin >= lines - token % o.per_sequence || page >= o.cache[0].sizes[0]) continue;
      line = page * lines + begin + token % o.per_sequence;
    } else {
      line = row_io::Word(o.slots, token);
      if (line < 0 || line >= o.cache[0].sizes[0] * lines) continue;
    }
    WriteCacheLine(o, 0, line, key, other);
    WriteCacheLine(o, 1, line, value, other);
  }
}

}  // namespace reprise::kernels
