// SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kEntries = 8;  // of the batch that share a pass over the weight
constexpr int64_t kBlock = 512;

template <class T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Rows of H numbers: of a sequence [T, B, H], of a packed one [rows, H], or of [B, H].
template <class T>
class RowsOf {
 public:
  explicit RowsOf(const TensorRef* ref) : ref_(ref) {
    if (ref == nullptr) return;
    const int64_t stride = ref->strides[ref->rank - 1];
    load_ = FindCast(ref->dtype, DTypeOf<T>());
    store_ = FindCast(DTypeOf<T>(), ref->dtype);
    step_ = stride * ItemSize(ref->dtype);
    length_ = ref->sizes[ref->rank - 1];
  }
  explicit operator bool() const { return ref_ != nullptr; }

  void Read(int64_t step, int64_t entry, int64_t packed_row, T* to) const {
    load_(At(step, entry, packed_row), step_, reinterpret_cast<char*>(to), sizeof(T), length_);
  }
  void Write(int64_t step, int64_t entry, int64_t packed_row, const T* from) const {
    if (ref_ == nullptr) return;
    store_(reinterpret_cast<const char*>(from), sizeof(T), At(step, entry, packed_row), step_, length_);
  }

 private:
  char* At(int64_t step, int64_t entry, int64_t packed_row) const {
    if (ref_->rank == 2) return ElementAt(*ref_, packed_row * ref_->strides[0]);
    return ElementAt(*ref_, step * ref_->strides[0] + entry * ref_->strides[1]);
  }

  const TensorRef* ref_;
  CastFn load_ = nullptr;
  CastFn store_ = nullptr;
  int64_t step_ = 0;
  int64_t length_ = 0;
};

// Rows of [B, H], or zeros.
template <class T>
void ReadState(const TensorRef* ref, int64_t entry, int64_t hidden, T* to) {
  if (ref == nullptr) {
    std::fill_n(to, hidden, T(0));
  } else {
    RowsOf<T>(ref).Read(0, 0, entry, to);
  }
}

template <class T>
void ReadStates(const TensorRef* ref, int64_t begin, int64_t count, int64_t hidden, T* to) {
  for (int64_t r = 0; r < count; ++r) ReadState(ref, begin + r, hidden, to + r * hidden);
}

template <class T>
void WriteStates(const TensorRef* ref, int64_t begin, int64_t count, int64_t hidden, const T* from) {
  const RowsOf<T> rows(ref);
  for (int64_t r = 0; r < count; ++r) rows.Write(0, 0, begin + r, from + r * hidden);
}

// Which rows a step has.
class Schedule {
 public:
  explicit Schedule(const RecurrentArgs& args)
      : args_(args), rows_(args.input_part != nullptr ? args.input_part->sizes[0] : args.of_input_part->sizes[0]) {
    is_padded_ = rows_ == args.steps * args.batch;
    if (args.batch_sizes == nullptr) return;
    for (int64_t t = 0; t < args.steps; ++t) total_ += SizeOf(t);
  }

  // Whether there are rows for all entries in all steps.
  bool is_padded() const { return is_padded_; }
  // The first row behind those of all steps, and behind all.
  Range unused() const { return {is_padded_ ? rows_ : std::min(total_, rows_), rows_}; }

  // Calls fn(step, first packed row, entries that have one) for each step in the order of the direction, or against it.
  template <class Fn>
  void ForEachStep(bool backwards, Fn&& fn) const {
    int64_t row = backwards ? total_ : 0;
    for (int64_t s = 0; s < args_.steps; ++s) {
      const int64_t t = backwards ? args_.steps - 1 - s : s;
      if (args_.batch_sizes == nullptr) {
        fn(t, t * args_.batch, args_.batch);
        continue;
      }
      const int64_t size = SizeOf(t);
      if (backwards) row -= size;
      fn(t, is_padded_ ? t * args_.batch : row, is_padded_ ? size : std::clamp<int64_t>(rows_ - row, 0, size));
      if (!backwards) row += size;
    }
  }

 private:
  int64_t SizeOf(int64_t t) const {
    int64_t size;
    const TensorRef& sizes = *args_.batch_sizes;
    FindCast(sizes.dtype, DType::kInt64)(ElementAt(sizes, t * sizes.strides[0]), 0, reinterpret_cast<char*>(&size), 8,
                                         1);
    return std::clamp<int64_t>(size, 0, args_.batch);
  }

  const RecurrentArgs& args_;
  int64_t rows_;
  bool is_padded_ = true;
  int64_t total_ = 0;
};

// Which entries take part in a step, where RecurrentArgs::presence says so.
class Presence {
 public:
  explicit Presence(const TensorRef* ref) : ref_(ref) {
    if (ref != nullptr) load_ = FindCast(ref->dtype, DType::kDouble);
  }
  bool operator()(int64_t t, int64_t entry) const {
    if (ref_ == nullptr) return true;
    const bool has_lengths = ref_->rank == 1;
    const int64_t offset = has_lengths ? entry * ref_->strides[0] : t * ref_->strides[0] + entry * ref_->strides[1];
    double value;
    load_(ElementAt(*ref_, offset), 0, reinterpret_cast<char*>(&value), sizeof(value), 1);
    return has_lengths ? static_cast<double>(t) < value : value != 0;
  }

 private:
  const TensorRef* ref_;
  CastFn load_ = nullptr;
};

// sums[r] += x[r] times matrix, for rows of `width`; x[r] has `depth` numbers. Rows that are not asked for stay.
template <class T>
void AddProducts(const T* matrix, int64_t depth, int64_t width, const T* x, T* sums, int64_t rows) {
  for (int64_t k = 0; k < depth; ++k) {
    const T* const line = matrix + k * width;
    for (int64_t r = 0; r < rows; ++r) {
      const T factor = x[r * depth + k];
      T* const sum = sums + r * width;
      for (int64_t j = 0; j < width; ++j) sum[j] += factor * line[j];
    }
  }
}

template <class T>
struct Steps {
  explicit Steps(const RecurrentArgs& a)
      : args(a),
        n(a.hidden),
        width((a.is_gru ? 3 : 4) * a.hidden),
        forget((a.cell_before_forget ? 2 : 1) * a.hidden),
        candidate((a.cell_before_forget ? 1 : 2) * a.hidden),
        input_part(a.input_part),
        h(a.h),
        c(a.c),
        tanh_c(a.tanh_c),
        y(a.y),
        gates{RowsOf<T>(a.gates[0]), RowsOf<T>(a.gates[1]), RowsOf<T>(a.gates[2]), RowsOf<T>(a.gates[3])} {}

  // One entry: `part` is the hidden state's, `x` the input's; h and c move on.
  void Lstm(int64_t t, int64_t entry, int64_t row, T* part, const T* x, T* state, T* cell, T* buffer) const {
    for (int64_t j = 0; j < width; ++j) part[j] += x[j];
    for (int64_t j = 0; j < n; ++j) {
      part[j] = Sigmoid(part[j]);
      part[forget + j] = Sigmoid(part[forget + j]);
      part[candidate + j] = std::tanh(part[candidate + j]);
      part[3 * n + j] = Sigmoid(part[3 * n + j]);
      cell[j] = part[forget + j] * cell[j] + part[j] * part[candidate + j];
      buffer[j] = std::tanh(cell[j]);
      state[j] = part[3 * n + j] * buffer[j];
    }
    gates[0].Write(t, entry, row, part);
    gates[1].Write(t, entry, row, part + candidate);
    gates[2].Write(t, entry, row, part + forget);
    gates[3].Write(t, entry, row, part + 3 * n);
    tanh_c.Write(t, entry, row, buffer);
    c.Write(t, entry, row, cell);
  }

  // What an entry whose sequence has ended leaves in this step.
  void Clear(int64_t t, int64_t entry, int64_t row, T* zeros) const {
    std::fill_n(zeros, n, T(0));
    for (const RowsOf<T>* rows : {&h, &c, &tanh_c, &y, gates, gates + 1, gates + 2, gates + 3}) {
      rows->Write(t, entry, row, zeros);
    }
  }

  // What an entry that does not take part in this step leaves.
  void Keep(int64_t t, int64_t entry, int64_t row, const T* state, const T* cell, T* zeros) const {
    Clear(t, entry, row, zeros);
    h.Write(t, entry, row, state);
    if (!args.is_gru) c.Write(t, entry, row, cell);
  }

  void Gru(int64_t t, int64_t entry, int64_t row, T* part, const T* x, T* state) const {
    gates[3].Write(t, entry, row, part + 2 * n);
    for (int64_t j = 0; j < n; ++j) {
      part[j] = Sigmoid(part[j] + x[j]);
      part[n + j] = Sigmoid(part[n + j] + x[n + j]);
      part[2 * n + j] = std::tanh(x[2 * n + j] + part[j] * part[2 * n + j]);
      state[j] = (T(1) - part[n + j]) * part[2 * n + j] + part[n + j] * state[j];
    }
    gates[0].Write(t, entry, row, part);
    gates[1].Write(t, entry, row, part + n);
    gates[2].Write(t, entry, row, part + 2 * n);
  }

  const RecurrentArgs& args;
  int64_t n, width;
  int64_t forget, candidate;  // LSTM: first columns of these gates
  RowsOf<T> input_part, h, c, tanh_c, y;
  RowsOf<T> gates[kMostGates];
};

template <class T>
void RunSteps(const RecurrentArgs& args, void* scratch, Range entries) {
  const Steps<T> steps(args);
  const Schedule schedule(args);
  const Presence is_present(args.presence);
  ScratchCutter cutter(scratch);
  T* const parts = cutter.Cut<T>(kEntries * steps.width);
  T* const states = cutter.Cut<T>(kEntries * steps.n);
  T* const cells = cutter.Cut<T>(kEntries * steps.n);
  T* const x = cutter.Cut<T>(steps.width);
  T* const bias = cutter.Cut<T>(steps.width);
  T* const buffer = cutter.Cut<T>(steps.n);
  const auto* const weight = static_cast<const T*>(args.weight->data);
  std::fill_n(bias, steps.width, T(0));
  if (args.bias != nullptr) RowsOf<T>(args.bias).Read(0, 0, 0, bias);
  if (args.forget_bias != 0) {
    for (int64_t j = 0; j < steps.n; ++j) bias[steps.forget + j] += static_cast<T>(args.forget_bias);
  }
  for (int64_t begin = entries.begin; begin < entries.end; begin += kEntries) {
    const int64_t count = std::min(kEntries, entries.end - begin);
    ReadStates(args.first_h, begin, count, steps.n, states);
    ReadStates(args.first_c, begin, count, steps.n, cells);
    schedule.ForEachStep(args.reverse, [&](int64_t t, int64_t first_row, int64_t present) {
      const int64_t rows = std::clamp<int64_t>(present - begin, 0, count);
      for (int64_t r = 0; r < rows; ++r) std::copy_n(bias, steps.width, parts + r * steps.width);
      AddProducts(weight, steps.n, steps.width, states, parts, rows);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t entry = begin + r;
        const int64_t row = first_row + entry;
        T* const state = states + r * steps.n;
        if (!is_present(t, entry)) {
          steps.Keep(t, entry, row, state, cells + r * steps.n, buffer);
          continue;
        }
        steps.input_part.Read(t, entry, row, x);
        if (args.is_gru) {
          steps.Gru(t, entry, row, parts + r * steps.width, x, state);
        } else {
          steps.Lstm(t, entry, row, parts + r * steps.width, x, state, cells + r * steps.n, buffer);
        }
        steps.h.Write(t, entry, row, state);
        steps.y.Write(t, entry, row, state);
      }
      if (!schedule.is_padded()) return;
      for (int64_t r = rows; r < count; ++r) steps.Clear(t, begin + r, first_row + begin + r, buffer);
    });
    WriteStates(args.last_h, begin, count, steps.n, states);
    WriteStates(args.last_c, begin, count, steps.n, cells);
  }
}

// What the step before (t', row') left, in the order of the direction; the first state where there is none.
template <class T>
class Before {
 public:
  Before(const RowsOf<T>& rows, const TensorRef* first, int64_t hidden) : rows_(rows), first_(first), hidden_(hidden) {}
  void Read(bool exists, int64_t t, int64_t entry, int64_t row, T* to) const {
    if (exists) {
      rows_.Read(t, entry, row, to);
    } else {
      ReadState(first_, entry, hidden_, to);
    }
  }

 private:
  const RowsOf<T>& rows_;
  const TensorRef* first_;
  int64_t hidden_;
};

// Gradients of one step of one entry, for the four numbers that were saved for each element. dh and dc are those of the
// states behind the step; what reaches the states before it without the weight takes their place.
template <class T>
void GruGradient(int64_t n, const T* saved, const T* before, T* dh, T* of_input, T* of_hidden) {
  const T *const r = saved, *const z = saved + n, *const candidate = saved + 2 * n, *const hidden = saved + 3 * n;
  for (int64_t j = 0; j < n; ++j) {
    const T dn = dh[j] * (T(1) - z[j]) * (T(1) - candidate[j] * candidate[j]);
    of_input[j] = dn * hidden[j] * r[j] * (T(1) - r[j]);
    of_input[n + j] = dh[j] * (before[j] - candidate[j]) * z[j] * (T(1) - z[j]);
    of_input[2 * n + j] = dn;
    of_hidden[2 * n + j] = dn * r[j];
    dh[j] *= z[j];
  }
  std::copy_n(of_input, 2 * n, of_hidden);
}

template <class T>
void LstmGradient(int64_t n, const T* saved, const T* before, const T* tanh_c, T* dh, T* dc, T* of_gates,
                  int64_t forget, int64_t candidate) {
  const T *const i = saved, *const g = saved + n, *const f = saved + 2 * n, *const o = saved + 3 * n;
  for (int64_t j = 0; j < n; ++j) {
    dc[j] += dh[j] * o[j] * (T(1) - tanh_c[j] * tanh_c[j]);
    of_gates[j] = dc[j] * g[j] * i[j] * (T(1) - i[j]);
    of_gates[forget + j] = dc[j] * before[j] * f[j] * (T(1) - f[j]);
    of_gates[candidate + j] = dc[j] * i[j] * (T(1) - g[j] * g[j]);
    of_gates[3 * n + j] = dh[j] * tanh_c[j] * o[j] * (T(1) - o[j]);
    dc[j] *= f[j];
    dh[j] = T(0);
  }
}

template <class T>
void RunGradients(const RecurrentArgs& args, void* scratch, Range entries) {
  const Steps<T> steps(args);
  const Schedule schedule(args);
  const Presence is_present(args.presence);
  const int64_t n = steps.n, width = steps.width;
  ScratchCutter cutter(scratch);
  T* const parts = cutter.Cut<T>(kEntries * width);
  T* const of_states = cutter.Cut<T>(kEntries * n);
  T* const of_cells = cutter.Cut<T>(kEntries * n);
  T* const saved = cutter.Cut<T>(6 * n);
  T* const x = cutter.Cut<T>(width);
  T *const before = saved + 4 * n, *const extra = saved + 5 * n;
  const auto* const weight = static_cast<const T*>(args.weight->data);
  const RowsOf<T> of_y(args.of_y), of_input(args.of_input_part), of_hidden(args.of_hidden_part);
  const RowsOf<T> h_before(args.h_before);
  const Before<T> states_before(steps.h, args.first_h, n), cells_before(steps.c, args.first_c, n);
  // The products that follow take all rows.
  const auto clear = [&](int64_t row) {
    std::fill_n(x, width, T(0));
    of_input.Write(0, 0, row, x);
    of_hidden.Write(0, 0, row, x);
    h_before.Write(0, 0, row, x);
  };
  if (entries.begin == 0) {
    for (int64_t row = schedule.unused().begin; row < schedule.unused().end; ++row) clear(row);
  }
  for (int64_t begin = entries.begin; begin < entries.end; begin += kEntries) {
    const int64_t count = std::min(kEntries, entries.end - begin);
    ReadStates(args.of_last_h, begin, count, n, of_states);
    ReadStates(args.of_last_c, begin, count, n, of_cells);
    // A step needs the one before it: each is worked on when its predecessor is known.
    int64_t t_now = -1, row_now = 0, present_now = 0;
    const auto work = [&](int64_t t_before, int64_t row_before, int64_t present_before) {
      const int64_t rows = std::clamp<int64_t>(present_now - begin, 0, count);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t entry = begin + r;
        const int64_t row = row_now + entry;
        const bool exists = t_before >= 0 && entry < present_before;
        T* const dh = of_states + r * n;
        T* const dc = of_cells + r * n;
        T* const part = parts + r * width;
        if (!is_present(t_now, entry)) {  // the gradients of the states pass
          clear(row);
          std::fill_n(part, width, T(0));
          continue;
        }
        if (of_y) {
          of_y.Read(t_now, entry, row, x);
          for (int64_t j = 0; j < n; ++j) dh[j] += x[j];
        }
        for (int64_t k = 0; k < 4; ++k) steps.gates[k].Read(t_now, entry, row, saved + k * n);
        states_before.Read(exists, t_before, entry, row_before + entry, before);
        h_before.Write(0, 0, row, before);
        if (args.is_gru) {
          GruGradient(n, saved, before, dh, x, part);
          of_input.Write(0, 0, row, x);
          of_hidden.Write(0, 0, row, part);
          continue;
        }
        cells_before.Read(exists, t_before, entry, row_before + entry, before);
        steps.tanh_c.Read(t_now, entry, row, extra);
        LstmGradient(n, saved, before, extra, dh, dc, part, steps.forget, steps.candidate);
        of_input.Write(0, 0, row, part);
      }
      AddProducts(weight, width, n, parts, of_states, rows);
      if (!schedule.is_padded()) return;
      for (int64_t r = rows; r < count; ++r) clear(row_now + begin + r);
    };
    schedule.ForEachStep(!args.reverse, [&](int64_t t, int64_t row, int64_t present) {
      if (t_now >= 0) work(t, row, present);
      t_now = t;
      row_now = row;
      present_now = present;
    });
    if (t_now >= 0) work(-1, 0, 0);
    WriteStates(args.of_first_h, begin, count, n, of_states);
    WriteStates(args.of_first_c, begin, count, n, of_cells);
  }
}

// n numbers of row `row` of a matrix from column `begin` on.
void ReadColumns(const TensorRef& ref, int64_t row, int64_t begin, int64_t n, double* to) {
  const int64_t last = ref.strides[ref.rank - 1];
  const int64_t offset = OffsetOf(ref, ref.rank - 1, row) + begin * last;
  FindCast(ref.dtype, DType::kDouble)(ElementAt(ref, offset), last * ItemSize(ref.dtype), reinterpret_cast<char*>(to),
                                      sizeof(double), n);
}

void WriteColumns(const TensorRef& ref, int64_t row, int64_t begin, int64_t n, const double* from) {
  const int64_t last = ref.strides[ref.rank - 1];
  const int64_t offset = OffsetOf(ref, ref.rank - 1, row) + begin * last;
  FindCast(DType::kDouble, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(double), ElementAt(ref, offset),
                                      last * ItemSize(ref.dtype), n);
}

}  // namespace

int64_t RecurrentScratchBytes(const RecurrentArgs& args, DType compute) {
  const int64_t n = args.hidden;
  const int64_t width = (args.is_gru ? 3 : 4) * n;
  const int64_t count = kEntries * (width + 2 * n) + 2 * width + 6 * n;
  return count * ItemSize(compute) + 8 * 64;
}

void RecurrentSteps(const RecurrentArgs& args, DType compute, void* scratch, Range entries) {
  if (compute == DType::kDouble) return RunSteps<double>(args, scratch, entries);
  RunSteps<float>(args, scratch, entries);
}

void RecurrentGradients(const RecurrentArgs& args, DType compute, void* scratch, Range entries) {
  if (compute == DType::kDouble) return RunGradients<double>(args, scratch, entries);
  RunGradients<float>(args, scratch, entries);
}

void SumOfRows(const TensorRef& matrix, const TensorRef& out, Range columns) {
  for (int64_t begin = columns.begin; begin < columns.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, columns.end - begin);
    double sums[kBlock] = {};
    double row[kBlock];
    for (int64_t r = 0; r < matrix.sizes[0]; ++r) {
      ReadColumns(matrix, r, begin, n, row);
      for (int64_t i = 0; i < n; ++i) sums[i] += row[i];
    }
    WriteColumns(out, 0, begin, n, sums);
  }
}

void LstmCell(const LstmCellArgs& args, Range entries) {
  const int64_t hidden = args.c_before->sizes[1];
  double gates[4][kBlock], other[kBlock], cell[kBlock], state[kBlock];
  for (int64_t entry = entries.begin; entry < entries.end; ++entry) {
    for (int64_t begin = 0; begin < hidden; begin += kBlock) {
      const int64_t n = std::min(kBlock, hidden - begin);
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t at = k * hidden + begin;
        ReadColumns(*args.input_gates, entry, at, n, gates[k]);
        const auto add = [&](const TensorRef* ref, int64_t row) {
          if (ref == nullptr) return;
          ReadColumns(*ref, row, at, n, other);
          for (int64_t i = 0; i < n; ++i) gates[k][i] += other[i];
        };
        add(args.hidden_gates, entry);
        add(args.input_bias, 0);
        add(args.hidden_bias, 0);
        for (int64_t i = 0; i < n; ++i) gates[k][i] = k == 2 ? std::tanh(gates[k][i]) : Sigmoid(gates[k][i]);
        WriteColumns(*args.storage, entry, at, n, gates[k]);
      }
      ReadColumns(*args.c_before, entry, begin, n, cell);
      for (int64_t i = 0; i < n; ++i) {
        cell[i] = gates[1][i] * cell[i] + gates[0][i] * gates[2][i];
        state[i] = gates[3][i] * std::tanh(cell[i]);
      }
      WriteColumns(*args.c, entry, begin, n, cell);
      WriteColumns(*args.h, entry, begin, n, state);
    }
  }
}

void LstmCellGrad(const LstmCellGradArgs& args, Range entries) {
  const int64_t hidden = args.c->sizes[1];
  double gates[4][kBlock], results[4][kBlock], cell[kBlock], before[kBlock], dh[kBlock], dc[kBlock];
  for (int64_t entry = entries.begin; entry < entries.end; ++entry) {
    for (int64_t begin = 0; begin < hidden; begin += kBlock) {
      const int64_t n = std::min(kBlock, hidden - begin);
      for (int64_t k = 0; k < 4; ++k) ReadColumns(*args.storage, entry, k * hidden + begin, n, gates[k]);
      ReadColumns(*args.c, entry, begin, n, cell);
      ReadColumns(*args.c_before, entry, begin, n, before);
      std::fill_n(dh, n, 0.0);
      std::fill_n(dc, n, 0.0);
      if (args.of_h != nullptr) ReadColumns(*args.of_h, entry, begin, n, dh);
      if (args.of_c != nullptr) ReadColumns(*args.of_c, entry, begin, n, dc);
      for (int64_t j = 0; j < n; ++j) {
        const double i = gates[0][j], f = gates[1][j], g = gates[2][j], o = gates[3][j];
        const double t = std::tanh(cell[j]);
        dc[j] += dh[j] * o * (1 - t * t);
        results[0][j] = dc[j] * g * i * (1 - i);
        results[1][j] = dc[j] * before[j] * f * (1 - f);
        results[2][j] = dc[j] * i * (1 - g * g);
        results[3][j] = dh[j] * t * o * (1 - o);
        dc[j] *= f;
      }
      for (int64_t k = 0; k < 4; ++k) WriteColumns(*args.of_gates, entry, k * hidden + begin, n, results[k]);
      WriteColumns(*args.of_c_before, entry, begin, n, dc);
    }
  }
}

}  // namespace reprise::kernels
