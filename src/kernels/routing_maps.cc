// SPDX-License-Identifier: Apache-2.0
#include "kernels/routing_maps.h"

#include "kernels/row_io.h"
#include "kernels/score_order.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

using row_io::Number;
using row_io::PutNumber;
using row_io::PutWord;
using row_io::Word;

constexpr int64_t kColumnsInFlight = 512;

void NormalizeScores(float* p, int64_t columns, bool is_sigmoid) {
  if (is_sigmoid) {
    for (int64_t c = 0; c < columns; ++c) p[c] = 1.0F / (1.0F + std::exp(-p[c]));
    return;
  }
  float greatest = p[0];
  for (int64_t c = 1; c < columns; ++c) greatest = std::max(greatest, p[c]);
  float sum = 0;
  for (int64_t c = 0; c < columns; ++c) {
    p[c] = std::exp(p[c] - greatest);
    sum += p[c];
  }
  for (int64_t c = 0; c < columns; ++c) p[c] /= sum;
}

bool IsPair(const TensorRef& of, int64_t token, int64_t expert) {
  return token >= 0 && token < of.sizes[0] && expert >= 0 && expert < of.sizes[1];
}

}  // namespace

void ListEntries(const MapLayout& layout, int64_t* token, int64_t* expert) {
  const int64_t tokens = layout.map.sizes[0];
  const int64_t experts = layout.map.sizes[1];
  const auto is_set = [&](int64_t t, int64_t e) { return Word(layout.map, t * experts + e) != 0; };
  int64_t row = 0;
  const auto put = [&](int64_t t, int64_t e) {
    token[row] = t;
    expert[row++] = e;
  };
  for (int64_t e = 0; e < experts && row < layout.rows; ++e) {
    const int64_t end = layout.capacity != 0 ? std::min(layout.rows, row + layout.capacity) : layout.rows;
    for (int64_t t = 0; t < tokens && row < end; ++t) {
      if (is_set(t, e)) put(t, e);
    }
    if (layout.capacity == 0) continue;
    for (int64_t t = 0; t < tokens && row < end; ++t) {
      if (!is_set(t, e)) put(t, e);
    }
  }
  while (row < layout.rows) put(-1, -1);
}

void OrderByToken(const int64_t* token, int64_t rows, int64_t tokens, int64_t* order, int64_t* begin) {
  std::fill_n(begin, tokens + 1, int64_t{0});
  for (int64_t i = 0; i < rows; ++i) {
    if (token[i] >= 0) ++begin[token[i]];
  }
  int64_t sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t count = begin[t];
    begin[t] = sum;
    sum += count;
  }
  int64_t rest = sum;
  for (int64_t i = 0; i < rows; ++i) order[token[i] >= 0 ? begin[token[i]]++ : rest++] = i;
  // begin[t] is where token t ends now.
  for (int64_t t = tokens; t > 0; --t) begin[t] = begin[t - 1];
  begin[0] = 0;
}

void ReadTokens(const TensorRef& index, int64_t tokens, int64_t* token) {
  const int64_t n = ElementCount(index);
  for (int64_t i = 0; i < n; ++i) {
    token[i] = Word(index, i);
    if (token[i] < 0 || token[i] >= tokens) token[i] = -1;
  }
}

void ListSorted(const TensorRef& sorted_indices, int64_t choices, int64_t tokens, int64_t* order, int64_t* begin,
                int64_t* token) {
  const int64_t n = ElementCount(sorted_indices);
  std::fill_n(token, n, int64_t{-1});
  for (int64_t t = 0; t <= tokens; ++t) begin[t] = std::min(n, t * choices);
  for (int64_t i = 0; i < n; ++i) {
    order[i] = Word(sorted_indices, i);
    if (order[i] < 0 || order[i] >= n) {
      order[i] = -1;
    } else if (choices != 0) {
      token[order[i]] = i / choices;
    }
  }
}

void GatherPairs(const TensorRef& from, const int64_t* token, const int64_t* expert, const TensorRef& out, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    PutNumber(out, i, IsPair(from, token[i], expert[i]) ? Number(from, token[i] * from.sizes[1] + expert[i]) : 0.0F);
  }
}

void ScatterPairs(const TensorRef& from, const int64_t* token, const int64_t* expert, const TensorRef& out,
                  Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    if (IsPair(out, token[i], expert[i])) PutNumber(out, token[i] * out.sizes[1] + expert[i], Number(from, i));
  }
}

void SumRowsOfTokens(const TensorRef& rows, const TensorRef& weight, const int64_t* order, const int64_t* begin,
                     const TensorRef& out, Range tokens) {
  const int64_t n = out.sizes[1];
  float sum[kColumnsInFlight];
  float part[kColumnsInFlight];
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    for (int64_t first = 0; first < n; first += kColumnsInFlight) {
      const int64_t count = std::min(kColumnsInFlight, n - first);
      std::fill_n(sum, count, 0.0F);
      for (int64_t i = begin[t]; i < begin[t + 1]; ++i) {
        const int64_t row = order[i];
        if (row < 0 || row >= rows.sizes[0]) continue;
        const float factor = weight.data != nullptr ? Number(weight, row) : 1.0F;
        row_io::ReadPart(rows, rows, row, first, count, part);
        for (int64_t c = 0; c < count; ++c) sum[c] += factor * part[c];
      }
      row_io::WritePart(out, t, first, count, sum);
    }
  }
}

void UnpermuteByMapBackward(const UnpermuteGradient& o, Range entries) {
  const int64_t n = o.gradient.sizes[1];
  float from[kColumnsInFlight];
  float part[kColumnsInFlight];
  for (int64_t i = entries.begin; i < entries.end; ++i) {
    const int64_t row = Word(o.out_index, i);
    const int64_t token = o.token[i];
    if (row < 0 || row >= o.rows_gradient.sizes[0] || token < 0 || token >= o.gradient.sizes[0]) continue;
    const bool has_probs = o.probs.data != nullptr;
    const bool is_pair = has_probs && IsPair(o.probs, token, o.expert[i]);
    const int64_t place = is_pair ? token * o.probs.sizes[1] + o.expert[i] : 0;
    const float weight = !has_probs ? 1.0F : is_pair ? Number(o.probs, place) : 0.0F;
    float dot = 0;
    for (int64_t first = 0; first < n; first += kColumnsInFlight) {
      const int64_t count = std::min(kColumnsInFlight, n - first);
      row_io::ReadPart(o.gradient, o.gradient, token, first, count, from);
      if (is_pair) {
        row_io::ReadPart(o.rows, o.rows, row, first, count, part);
        for (int64_t c = 0; c < count; ++c) dot += from[c] * part[c];
      }
      for (int64_t c = 0; c < count; ++c) part[c] = weight * from[c];
      row_io::WritePart(o.rows_gradient, row, first, count, part);
    }
    if (is_pair && o.probs_gradient.data != nullptr) PutNumber(o.probs_gradient, place, dot);
  }
}

void OrderByExpert(const TensorRef& counts, int64_t tokens, int64_t* order) {
  const int64_t ranks = counts.sizes[0];
  const int64_t experts = counts.sizes[1];
  int64_t row = 0;
  int64_t all = 0;
  const auto count_of = [&](int64_t i, int64_t from) { return std::clamp<int64_t>(Word(counts, i), 0, tokens - from); };
  for (int64_t e = 0; e < experts; ++e) {
    int64_t source = 0;
    for (int64_t i = 0; i < ranks * experts; ++i) {
      const int64_t count = count_of(i, source);
      if (i % experts == e) {
        for (int64_t j = 0; j < count; ++j) order[row++] = source + j;
      }
      source += count;
    }
    all = source;
  }
  while (row < tokens) order[row++] = all++;
}

void SumRanks(const TensorRef& counts, bool wants_ends, const TensorRef& out) {
  const int64_t experts = counts.sizes[1];
  uint64_t end = 0;  // wraps, whatever the counts are
  for (int64_t e = 0; e < experts; ++e) {
    uint64_t sum = 0;
    for (int64_t r = 0; r < counts.sizes[0]; ++r) sum += static_cast<uint64_t>(Word(counts, r * experts + e));
    end += sum;
    PutWord(out, e, static_cast<int64_t>(wants_ends ? end : sum));
  }
}

int64_t TableGatingScratchBytes(int64_t columns, int64_t k) {
  return Arena::BytesFor(columns * 4) + Arena::BytesFor(k * 4) + Arena::BytesFor(k * 8);
}

void GateByTable(const TableGating& gating, const TensorRef& x, const TensorRef& ids, const TensorRef& table,
                 const TensorRef& y, const TensorRef& expert, const TensorRef& norm, Range rows, void* scratch) {
  const int64_t columns = x.sizes[1];
  const int64_t k = y.sizes[1];
  Arena arena(scratch);
  float* const p = arena.Take<float>(columns);
  float* const chosen = arena.Take<float>(k);
  auto* const places = arena.Take<int64_t>(k);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(x, row, columns, p);
    NormalizeScores(p, columns, gating.is_sigmoid);
    if (norm.data != nullptr) row_io::Write(norm, row, columns, p);
    const int64_t id = Word(ids, row);
    const bool is_id = id >= 0 && id < table.sizes[0];
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      places[j] = is_id ? Word(table, id * k + j) : -1;
      if (places[j] < 0 || places[j] >= columns) places[j] = -1;
      chosen[j] = places[j] < 0 ? 0.0F : p[places[j]];
      sum += chosen[j];
    }
    const float divisor = gating.divides ? sum + gating.eps : 1.0F;
    for (int64_t j = 0; j < k; ++j) {
      chosen[j] = places[j] < 0 ? 0.0F : chosen[j] / divisor * gating.factor;
      PutWord(expert, row * k + j, places[j]);
    }
    row_io::Write(y, row, k, chosen);
  }
}

int64_t GatingGradientScratchBytes(int64_t columns, int64_t k) {
  return 2 * Arena::BytesFor(columns * 4) + Arena::BytesFor(k * 4);
}

void GatingGradient(const TableGating& gating, const TensorRef& norm, const TensorRef& gradient,
                    const TensorRef& expert, const TensorRef& out, Range rows, void* scratch) {
  const int64_t columns = norm.sizes[1];
  const int64_t k = gradient.sizes[1];
  Arena arena(scratch);
  float* const p = arena.Take<float>(columns);
  float* const of_norm = arena.Take<float>(columns);
  float* const g = arena.Take<float>(k);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(norm, row, columns, p);
    row_io::Read(gradient, row, k, g);
    const auto place = [&](int64_t j) {
      const int64_t at = Word(expert, row * k + j);
      return at >= 0 && at < columns ? at : -1;
    };
    float sum = gating.eps;
    float dot = 0;
    for (int64_t j = 0; j < k; ++j) {
      g[j] *= gating.factor;
      if (place(j) < 0) continue;
      sum += p[place(j)];
      dot += g[j] * p[place(j)];
    }
    std::fill_n(of_norm, columns, 0.0F);
    for (int64_t j = 0; j < k; ++j) {
      if (place(j) < 0) continue;
      of_norm[place(j)] = gating.divides ? g[j] / sum - dot / (sum * sum) : g[j];
    }
    float all = 0;
    for (int64_t c = 0; c < columns; ++c) all += of_norm[c] * p[c];
    for (int64_t c = 0; c < columns; ++c) {
      of_norm[c] = gating.is_sigmoid ? of_norm[c] * p[c] * (1.0F - p[c]) : p[c] * (of_norm[c] - all);
    }
    row_io::Write(out, row, columns, of_norm);
  }
}

int64_t TopKSoftmaxScratchBytes(int64_t columns) { return 3 * Arena::BytesFor(columns * 4); }

void TopKSoftmax(const TensorRef& x, const TensorRef& finished, bool divides, const TensorRef& y,
                 const TensorRef& expert, const TensorRef& all, Range rows, void* scratch) {
  const int64_t columns = x.sizes[x.rank - 1];
  const int64_t k = y.sizes[y.rank - 1];
  Arena arena(scratch);
  float* const p = arena.Take<float>(columns);
  float* const chosen = arena.Take<float>(columns);
  auto* const order = arena.Take<int32_t>(columns);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    row_io::Read(x, row, columns, p);
    NormalizeScores(p, columns, false);
    if (all.data != nullptr) row_io::Write(all, row, columns, p);
    for (int64_t c = 0; c < columns; ++c) order[c] = static_cast<int32_t>(c);
    std::partial_sort(order, order + k, order + columns, [p](int32_t a, int32_t b) { return IsChosenBefore(p, a, b); });
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += p[order[j]];
    const bool is_finished = finished.data != nullptr && Word(finished, row) != 0;
    for (int64_t j = 0; j < k; ++j) {
      chosen[j] = divides ? p[order[j]] / sum : p[order[j]];
      PutWord(expert, row * k + j, is_finished ? columns : order[j]);
    }
    row_io::Write(y, row, k, chosen);
  }
}

void BalanceExperts(const ExpertBalance& o, Range tokens) {
  const int64_t k = o.expert_ids.sizes[1];
  const int64_t columns = o.table.sizes[1];
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    float sum = 0;
    for (int64_t j = 0; j < k && o.scales.data != nullptr; ++j) sum += Number(o.scales, t * k + j);
    const bool is_active = o.active.data == nullptr || Word(o.active, t) != 0;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t expert = Word(o.expert_ids, t * k + j);
      int64_t physical = -1;
      if (expert >= 0 && expert < o.table.sizes[0]) {
        const int64_t count = std::clamp<int64_t>(Word(o.table, expert * columns), 1, columns - 1);
        const int64_t of_each = (o.world + count - 1) / count;
        const int64_t place = o.by_token ? t % count : std::min(count - 1, o.rank / of_each);
        physical = Word(o.table, expert * columns + 1 + place);
      }
      PutWord(o.ids_out, t * k + j, physical);
      if (o.mask_out.data == nullptr) continue;
      const bool is_kept =
          is_active && (o.scales.data == nullptr || !(Number(o.scales, t * k + j) < Number(o.threshold, j) * sum));
      PutWord(o.mask_out, t * k + j, is_kept ? 1 : 0);
    }
  }
}

}  // namespace reprise::kernels
