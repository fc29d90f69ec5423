// SPDX-License-Identifier: Apache-2.0
#include "kernels/routing.h"

#include <cmath>

#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/quantize.h"
#include "kernels/score_order.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kColumnsAtOnce = 512;
constexpr int kDigits = 8;  // of 8 bits

// Sorts `keys` with `values` by digits, in place of them or of the other two arrays: returns where they are. Stable.
struct SortedPairs {
  uint64_t* keys;
  int64_t* values;
};
SortedPairs SortPairs(uint64_t* keys, int64_t* values, uint64_t* other_keys, int64_t* other_values, int64_t n) {
  uint64_t all = 0;
  uint64_t common = ~uint64_t{0};
  for (int64_t i = 0; i < n; ++i) {
    all |= keys[i];
    common &= keys[i];
  }
  const uint64_t varying = n == 0 ? 0 : all & ~common;
  for (int digit = 0; digit < kDigits; ++digit) {
    const int shift = 8 * digit;
    if ((varying >> shift & 0xFF) == 0) continue;
    int64_t begins[256] = {};
    for (int64_t i = 0; i < n; ++i) ++begins[keys[i] >> shift & 0xFF];
    int64_t sum = 0;
    for (int64_t& begin : begins) {
      const int64_t count = begin;
      begin = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = begins[keys[i] >> shift & 0xFF]++;
      other_keys[to] = keys[i];
      other_values[to] = values[i];
    }
    std::swap(keys, other_keys);
    std::swap(values, other_values);
  }
  return {keys, values};
}

constexpr uint64_t kSign = uint64_t{1} << 63;
uint64_t KeyOf(int64_t expert) { return static_cast<uint64_t>(expert) ^ kSign; }
int64_t ExpertOf(uint64_t key) { return static_cast<int64_t>(key ^ kSign); }

// Stores int64 words as the elements of `ref`.
void StoreWords(const TensorRef& ref, int64_t* words) {
  if (ref.data == nullptr) return;
  const Staged<int64_t> target(ref);
  const int64_t n = ElementCount(ref);
  if (target.in_place()) {
    std::copy_n(words, n, target.Target(0, nullptr));
  } else {
    target.Write(0, n, words);
  }
}

int64_t ReadWord(const TensorRef& ref, int64_t i) {
  int64_t word = 0;
  FindCast(ref.dtype, DType::kInt64)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&word), 0, 1);
  return word;
}

float ReadFloat(const TensorRef& ref, int64_t i) {
  float value = 0;
  FindCast(ref.dtype, DType::kFloat)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

// Elements of a line along the last dim.
struct Line {
  char* data;
  int64_t stride;  // bytes
  CastFn read, write;

  Line(const TensorRef& ref, int64_t row)
      : data(EntryOf(ref, 1, ref, 1, row)),
        stride(ref.strides[ref.rank - 1] * ItemSize(ref.dtype)),
        read(FindCast(ref.dtype, DType::kFloat)),
        write(FindCast(DType::kFloat, ref.dtype)) {}
  void Read(int64_t begin, int64_t n, float* to) const {
    read(data + begin * stride, stride, reinterpret_cast<char*>(to), sizeof(float), n);
  }
  void Write(int64_t begin, int64_t n, const float* from) const {
    write(reinterpret_cast<const char*>(from), sizeof(float), data + begin * stride, stride, n);
  }
};

// Row `row` of a tensor as a tensor of one dim, or an element as one of none.
TensorRef Part(const TensorRef& ref, int dims, int64_t row) {
  TensorRef part = ref;
  part.data = EntryOf(ref, dims, ref, dims, row);
  part.rank = dims;
  for (int d = 0; d < dims; ++d) {
    part.sizes[d] = ref.sizes[ref.rank - dims + d];
    part.strides[d] = ref.strides[ref.rank - dims + d];
  }
  return part;
}

void Clear(const TensorRef& line) {
  const char zero[16] = {};
  FindCast(line.dtype, line.dtype)(zero, 0, static_cast<char*>(line.data),
                                   (line.rank == 0 ? 0 : line.strides[0]) * ItemSize(line.dtype),
                                   line.rank == 0 ? 1 : line.sizes[0]);
}

int64_t PlaceOf(const CombineOperands& operands, int64_t token, int64_t choice) {
  const int64_t tokens = operands.out.sizes[0];
  return ReadWord(operands.place, operands.by_choice ? token + tokens * choice : token * operands.choices + choice);
}

int64_t RowsOf(const TensorRef& rows) { return EntryCount(rows, 1); }

}  // namespace

int64_t OrderAssignmentsWords(const RoutingSetup& setup) {
  return 6 * setup.assignments + 2 * (setup.end_expert - setup.first_expert);
}

void OrderAssignments(const RoutingSetup& setup, const RoutingOperands& operands, int64_t* words) {
  const int64_t n = setup.assignments;
  const int64_t experts = setup.end_expert - setup.first_expert;
  auto* const keys = reinterpret_cast<uint64_t*>(words);
  auto* const other_keys = keys + n;
  int64_t* const values = words + 2 * n;
  int64_t* const other_values = values + n;
  int64_t* const row_idx = other_values + n;
  int64_t* const places = row_idx + n;  // row_idx_out
  int64_t* const counts = places + n;
  const auto is_counted = [&](int64_t expert) { return expert >= setup.first_expert && expert < setup.end_expert; };

  const int64_t* const given = Staged<int64_t>(operands.expert_idx).Read(0, n, row_idx);
  for (int64_t i = 0; i < n; ++i) {
    keys[i] = setup.keeps_others || is_counted(given[i]) ? KeyOf(given[i]) : ~uint64_t{0};
    values[i] = i;
  }
  const SortedPairs sorted = SortPairs(keys, values, other_keys, other_values, n);
  const int64_t* rows = nullptr;
  if (operands.row_idx.data != nullptr) rows = Staged<int64_t>(operands.row_idx).Read(0, n, row_idx);

  std::fill_n(counts, experts, int64_t{0});
  std::fill_n(operands.source, setup.rows, int64_t{-1});
  std::fill_n(operands.expert, setup.rows, int64_t{0});
  std::fill_n(places, n, int64_t{-1});
  for (int64_t i = 0; i < n; ++i) {
    const bool is_other = !setup.keeps_others && sorted.keys[i] == ~uint64_t{0};
    const int64_t expert = ExpertOf(sorted.keys[i]);
    const bool is_in_range = !is_other && is_counted(expert);
    const int64_t at = is_in_range ? expert - setup.first_expert : 0;
    const int64_t number = is_in_range ? counts[at]++ : 0;
    if (is_other || (setup.capacity != 0 && (!is_in_range || number >= setup.capacity))) continue;
    const int64_t place = setup.capacity != 0 ? at * setup.capacity + number : i;
    const int64_t assignment = sorted.values[i];
    const int64_t row = rows != nullptr ? rows[assignment] : assignment;
    if (row < 0 || row >= n) continue;
    if (setup.names_sources) {
      places[i] = row;
    } else {
      places[row] = place;
    }
    if (place >= setup.rows) continue;
    operands.source[place] = rows != nullptr ? row % setup.tokens : row / setup.choices;
    operands.expert[place] = at;
  }
  StoreWords(operands.row_idx_out, places);
  if (operands.expert_idx_out.data != nullptr) {
    for (int64_t i = 0; i < n; ++i) places[i] = ExpertOf(sorted.keys[i]);
    StoreWords(operands.expert_idx_out, places);
  }
  StoreWords(operands.before_capacity, counts);
  int64_t* const told = counts + experts;
  if (setup.count == RoutingSetup::Count::kPairs) {
    // Pairs take two words each, which the arrays of the assignments, all read, need not have: elements one by one.
    int64_t next = 0;
    const auto put = [&](int64_t i, int64_t word) {
      FindCast(DType::kInt64, operands.counts.dtype)(reinterpret_cast<const char*>(&word), 0,
                                                     EntryOf(operands.counts, 0, operands.counts, 0, i), 0, 1);
    };
    for (int64_t e = 0; e < experts; ++e) {
      if (counts[e] == 0) continue;
      put(next++, setup.first_expert + e);
      put(next++, counts[e]);
    }
    while (next < ElementCount(operands.counts)) put(next++, 0);
  } else if (setup.count != RoutingSetup::Count::kNone) {
    int64_t sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      sum += counts[e];
      told[e] = setup.count == RoutingSetup::Count::kEnds ? sum : counts[e];
    }
    StoreWords(operands.counts, told);
  }
}

void ExpandRows(RowQuantization quantization, const TensorRef& x, const int64_t* source, const int64_t* expert,
                const TensorRef& scale, const TensorRef& offset, const TensorRef& y, const TensorRef& scale_out,
                Range range) {
  const int64_t n = y.sizes[y.rank - 1];
  const CastFn copy = FindCast(x.dtype, y.dtype);
  const TensorRef none;
  for (int64_t r = range.begin; r < range.end; ++r) {
    const TensorRef to = Part(y, 1, r);
    if (source[r] < 0) {
      Clear(to);
      if (scale_out.data != nullptr) Clear(Part(scale_out, 0, r));
      continue;
    }
    const TensorRef from = Part(x, 1, source[r]);
    switch (quantization) {
      case RowQuantization::kNone:
        copy(static_cast<const char*>(from.data), from.strides[0] * ItemSize(from.dtype), static_cast<char*>(to.data),
             to.strides[0] * ItemSize(to.dtype), n);
        if (scale_out.data != nullptr && scale.data != nullptr) {
          const float value = ReadFloat(scale, source[r]);
          std::memcpy(Part(scale_out, 0, r).data, &value, sizeof value);
        }
        break;
      case RowQuantization::kStatic:
        Quantize(from, Part(scale, 1, 0), offset.data != nullptr ? Part(offset, 1, 0) : none, false, Rounding::kNearest,
                 to, {0, 1});
        break;
      case RowQuantization::kDynamic: {
        const TensorRef smooth = scale.data == nullptr ? none : Part(scale, 1, RowsOf(scale) == 1 ? 0 : expert[r]);
        DynamicQuantize(from, smooth, none, to, Part(scale_out, 0, r), none, {0, 1});
        break;
      }
    }
  }
}

void CombineRows(const CombineOperands& o, Range range) {
  const int64_t n = o.out.sizes[1];
  const int64_t rows = RowsOf(o.rows);
  float sum[kColumnsAtOnce];
  float part[kColumnsAtOnce];
  float bias[kColumnsAtOnce];
  for (int64_t t = range.begin; t < range.end; ++t) {
    for (int64_t begin = 0; begin < n; begin += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, n - begin);
      std::fill_n(sum, count, 0.0F);
      for (const TensorRef* x : {&o.x1, &o.x2}) {
        if (x->data == nullptr) continue;
        Line(*x, t).Read(begin, count, part);
        for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
      }
      for (int64_t j = 0; j < o.choices; ++j) {
        const int64_t row = PlaceOf(o, t, j);
        const bool is_there = row >= 0 && row < rows;
        if (is_there) {
          Line(o.rows, row).Read(begin, count, part);
        } else {
          if (o.bias.data == nullptr) continue;
          std::fill_n(part, count, 0.0F);
        }
        if (o.bias.data != nullptr) {
          const int64_t expert = ReadWord(o.expert, t * o.choices + j);
          if (expert >= 0 && expert < o.bias.sizes[0]) {
            Line(o.bias, expert).Read(begin, count, bias);
            for (int64_t c = 0; c < count; ++c) part[c] += bias[c];
          }
        }
        const float weight = o.weight.data != nullptr ? ReadFloat(o.weight, t * o.choices + j) : 1.0F;
        for (int64_t c = 0; c < count; ++c) sum[c] += weight * part[c];
      }
      Line(o.out, t).Write(begin, count, sum);
    }
  }
}

void CombineRowsBackward(const CombineOperands& o, const TensorRef& gradient, const TensorRef& rows_gradient,
                         const TensorRef& weight_gradient, Range range) {
  const int64_t n = gradient.sizes[1];
  const int64_t rows = RowsOf(rows_gradient);
  float from[kColumnsAtOnce];
  float part[kColumnsAtOnce];
  for (int64_t t = range.begin; t < range.end; ++t) {
    for (int64_t j = 0; j < o.choices; ++j) {
      const int64_t row = ReadWord(o.place, t * o.choices + j);
      const bool is_there = row >= 0 && row < rows;
      const float weight = o.weight.data != nullptr ? ReadFloat(o.weight, t * o.choices + j) : 1.0F;
      float dot = 0;
      for (int64_t begin = 0; is_there && begin < n; begin += kColumnsAtOnce) {
        const int64_t count = std::min(kColumnsAtOnce, n - begin);
        Line(gradient, t).Read(begin, count, from);
        if (weight_gradient.data != nullptr) {
          Line(o.rows, row).Read(begin, count, part);
          for (int64_t c = 0; c < count; ++c) dot += from[c] * part[c];
        }
        for (int64_t c = 0; c < count; ++c) part[c] = weight * from[c];
        Line(rows_gradient, row).Write(begin, count, part);
      }
      if (weight_gradient.data == nullptr) continue;
      FindCast(DType::kFloat, weight_gradient.dtype)(reinterpret_cast<const char*>(&dot), 0,
                                                     EntryOf(weight_gradient, 0, weight_gradient, 0, t * o.choices + j),
                                                     0, 1);
    }
  }
}

void CountUpTo(const TensorRef& sorted, const TensorRef& ends, Range range) {
  const int64_t n = ElementCount(sorted);
  for (int64_t e = range.begin; e < range.end; ++e) {
    int64_t low = 0;
    int64_t high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (ReadWord(sorted, middle) <= e) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    FindCast(DType::kInt64, ends.dtype)(reinterpret_cast<const char*>(&low), 0, EntryOf(ends, 0, ends, 0, e), 0, 1);
  }
}

int64_t GroupGatingScratchBytes(int64_t columns, int64_t groups) {
  return 3 * Arena::BytesFor(columns * 4) + 2 * Arena::BytesFor(groups * 4);
}

void ChooseExpertsInGroups(const GroupGating& gating, const TensorRef& x, const TensorRef& bias, const TensorRef& y,
                           const TensorRef& expert, const TensorRef& norm, Range range, void* scratch) {
  const int64_t columns = x.sizes[1];
  const int64_t k = y.sizes[1];
  const int64_t of_group = columns / gating.groups;
  Arena arena(scratch);
  auto* const p = arena.Take<float>(columns);
  auto* const value = arena.Take<float>(columns);
  auto* const order = arena.Take<int32_t>(columns);
  auto* const score = arena.Take<float>(gating.groups);
  auto* const group_order = arena.Take<int32_t>(gating.groups);
  for (int64_t row = range.begin; row < range.end; ++row) {
    Line(x, row).Read(0, columns, p);
    if (gating.is_sigmoid) {
      for (int64_t c = 0; c < columns; ++c) p[c] = 1.0F / (1.0F + std::exp(-p[c]));
    } else {
      float greatest = p[0];
      for (int64_t c = 1; c < columns; ++c) greatest = std::max(greatest, p[c]);
      float sum = 0;
      for (int64_t c = 0; c < columns; ++c) {
        p[c] = std::exp(p[c] - greatest);
        sum += p[c];
      }
      for (int64_t c = 0; c < columns; ++c) p[c] /= sum;
    }
    if (norm.data != nullptr) Line(norm, row).Write(0, columns, p);
    std::copy_n(p, columns, value);
    if (bias.data != nullptr) {
      Line(bias, 0).Read(0, columns, value);
      for (int64_t c = 0; c < columns; ++c) value[c] += p[c];
    }
    int64_t candidates = 0;
    if (gating.groups > 1) {
      for (int64_t g = 0; g < gating.groups; ++g) {
        const float* const member = value + g * of_group;
        float first = -INFINITY;
        float second = -INFINITY;
        for (int64_t i = 0; i < of_group; ++i) {
          if (member[i] > first || std::isnan(member[i])) {
            second = first;
            first = member[i];
          } else if (member[i] > second) {
            second = member[i];
          }
        }
        score[g] = gating.sums_two && of_group > 1 ? first + second : first;
        group_order[g] = static_cast<int32_t>(g);
      }
      std::partial_sort(group_order, group_order + gating.chosen_groups, group_order + gating.groups,
                        [&](int32_t a, int32_t b) { return IsChosenBefore(score, a, b); });
      std::sort(group_order, group_order + gating.chosen_groups);
      for (int64_t g = 0; g < gating.chosen_groups; ++g) {
        for (int64_t i = 0; i < of_group; ++i)
          order[candidates++] = static_cast<int32_t>(group_order[g] * of_group + i);
      }
    } else {
      for (int64_t c = 0; c < columns; ++c) order[candidates++] = static_cast<int32_t>(c);
    }
    std::partial_sort(order, order + k, order + candidates,
                      [&](int32_t a, int32_t b) { return IsChosenBefore(value, a, b); });
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += p[order[j]];
    const float divisor = gating.divides ? sum + gating.eps : 1.0F;
    for (int64_t j = 0; j < k; ++j) value[j] = p[order[j]] / divisor * gating.factor;
    Line(y, row).Write(0, k, value);
    FindCast(DType::kInt32, expert.dtype)(reinterpret_cast<const char*>(order), sizeof(int32_t),
                                          EntryOf(expert, 1, expert, 1, row),
                                          expert.strides[1] * ItemSize(expert.dtype), k);
  }
}

}  // namespace reprise::kernels
