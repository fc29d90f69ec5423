// SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/activation_functions.h"
#include "kernels/cast.h"
#include "kernels/math_functions.h"
#include "kernels/plane.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/recurrent_cell.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kEntries = 8;  // of the batch that share a pass over the weight
constexpr int64_t kBlock = 512;

// The functions of gates on contiguous numbers, in place.
template <class T>
struct GateRows {
  void Sigmoid(T* x, int64_t n) const { Run(sigmoid, x, x, n); }
  void Tanh(T* x, int64_t n) const { Run(tanh, x, x, n); }
  void Tanh(const T* x, T* to, int64_t n) const { Run(tanh, x, to, n); }

 private:
  static void Run(RowFn function, const T* x, T* to, int64_t n) {
    RowArgs args;
    args.in[0] = x;
    args.out = to;
    function(&args, 0, n);
  }
  RowFn sigmoid = kSigmoidFn.find(DTypeOf<T>()).function;
  RowFn tanh = kTanhFn.find(DTypeOf<T>()).function;
};

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
    is_plain_ = ref->dtype == DTypeOf<T>() && step_ == sizeof(T);
  }
  explicit operator bool() const { return ref_ != nullptr; }

  void Read(int64_t step, int64_t entry, int64_t packed_row, T* to) const {
    Read(step, entry, packed_row, to, 0, length_);
  }
  void Write(int64_t step, int64_t entry, int64_t packed_row, const T* from) const {
    Write(step, entry, packed_row, from, 0, length_);
  }
  // Columns [column, column + count) of a row.
  void Read(int64_t step, int64_t entry, int64_t packed_row, T* to, int64_t column, int64_t count) const {
    load_(At(step, entry, packed_row) + column * step_, step_, reinterpret_cast<char*>(to), sizeof(T), count);
  }
  void Write(int64_t step, int64_t entry, int64_t packed_row, const T* from, int64_t column, int64_t count) const {
    if (ref_ == nullptr) return;
    char* const to = At(step, entry, packed_row) + column * step_;
    if (is_plain_) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    } else {
      store_(reinterpret_cast<const char*>(from), sizeof(T), to, step_, count);
    }
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
  bool is_plain_ = false;
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

// sums[r] += x[r] times matrix, for rows of `width`; x[r] has `depth` numbers.
template <class T>
void AddProducts(const T* matrix, int64_t depth, int64_t width, const T* x, T* sums, int64_t rows) {
  if (rows == 0) return;
  const int64_t panel = simd::PanelWidth(T());
  const int64_t whole = width / panel * panel;
  if (whole != 0) simd::MultiplyBlock({x, depth}, {matrix, panel, width}, sums, width, rows, whole, depth, true);
  if (whole == width) return;
  for (int64_t k = 0; k < depth; ++k) {
    const T* const line = matrix + k * width;
    for (int64_t r = 0; r < rows; ++r) {
      const T factor = x[r * depth + k];
      T* const sum = sums + r * width;
      for (int64_t j = whole; j < width; ++j) sum[j] += factor * line[j];
    }
  }
}

// ---- Steps ----

// Entries that share a pass over the columns of a part, units of it. Columns of all gates are whole panels.
constexpr int64_t kMostRows = 24;
constexpr int64_t kPanelMultiple = 32;

int64_t GatesOf(const RecurrentArgs& args) { return args.is_gru ? 3 : 4; }
int64_t UnitsOfBlock(int64_t gates) { return gates * simd::kCellUnits % kPanelMultiple == 0 ? simd::kCellUnits : 32; }

// How the units of a layer are cut into blocks, and its entries into groups.
struct Cut {
  Cut(int64_t gate_count, int64_t hidden, int64_t batch)
      : gates(gate_count),
        units(UnitsOfBlock(gate_count)),
        blocks((hidden + units - 1) / units),
        groups((batch + kMostRows - 1) / kMostRows),
        rows(groups == 0 ? 0 : (batch + groups - 1) / groups) {}
  explicit Cut(const RecurrentArgs& args) : Cut(GatesOf(args), args.hidden, args.batch) {}

  int64_t columns() const { return gates * units; }  // of a block
  int64_t padded_hidden() const { return blocks * units; }

  int64_t gates, units, blocks;
  int64_t groups, rows;  // rows: of a group
};

// Columns [0, columns) of a block of the weight, panel behind panel.
template <class T>
void PackBlock(const TensorRef& weight, const Cut& cut, int64_t hidden, int64_t block, T* to) {
  const int64_t depth = weight.sizes[0];
  const int64_t panel = simd::PanelWidth(T());
  const int64_t piece = std::min(panel, simd::kCellUnits);
  const CastFn load = FindCast(weight.dtype, DTypeOf<T>());
  const int64_t item = ItemSize(weight.dtype);
  for (int64_t column = 0; column < cut.columns(); column += piece) {
    T* const target = to + column / panel * depth * panel + column % panel;
    const int64_t unit = block * cut.units + column % cut.units;
    const int64_t count = std::clamp<int64_t>(hidden - unit, 0, piece);
    if (count < piece) {
      for (int64_t k = 0; k < depth; ++k) std::fill_n(target + k * panel + count, piece - count, T(0));
    }
    if (count == 0) continue;
    const char* const from = ElementAt(weight, (column / cut.units * hidden + unit) * weight.strides[1]);
    if constexpr (std::is_same_v<T, float>) {
      if (weight.dtype == DType::kFloat && weight.strides[0] == 1) {
        simd::Transpose(reinterpret_cast<const float*>(from), weight.strides[1], count, depth, target, panel);
        continue;
      }
    }
    for (int64_t k = 0; k < depth; ++k) {
      load(from + k * weight.strides[0] * item, weight.strides[1] * item, reinterpret_cast<char*>(target + k * panel),
           sizeof(T), count);
    }
  }
}

// As simd::LstmCells and simd::GruCells, which float32 takes, gate by gate.
void LstmCells(const simd::CellRows<double>& cells) {
  const GateRows<double> functions;
  const int64_t n = cells.units;
  for (int64_t r = 0; r < cells.rows; ++r) {
    double* const sums = cells.sums + r * 4 * n;
    for (int g = 0; g < 4; ++g) {
      double* const gate = sums + g * n;
      const double* const x = cells.x + r * cells.x_row + g * cells.x_gate;
      for (int64_t j = 0; j < n; ++j) gate[j] = gate[j] + cells.bias[g * n + j] + x[j];
      g == cells.candidate ? functions.Tanh(gate, n) : functions.Sigmoid(gate, n);
    }
    const double *const f = sums + cells.forget * n, *const g = sums + cells.candidate * n, *const o = sums + 3 * n;
    double* const cell = cells.cell + r * cells.state_row;
    double* const after = cells.after + r * cells.state_row;
    double* const tanh_c = cells.extra + r * n;
    for (int64_t j = 0; j < n; ++j) cell[j] = f[j] * cell[j] + sums[j] * g[j];
    functions.Tanh(cell, tanh_c, n);
    for (int64_t j = 0; j < n; ++j) after[j] = o[j] * tanh_c[j];
  }
}

void GruCells(const simd::CellRows<double>& cells) {
  const GateRows<double> functions;
  const int64_t n = cells.units;
  for (int64_t r = 0; r < cells.rows; ++r) {
    double* const sums = cells.sums + r * 3 * n;
    const double* const x = cells.x + r * cells.x_row;
    for (int64_t j = 0; j < 3 * n; ++j) sums[j] += cells.bias[j];
    double* const hidden = cells.extra + r * n;
    std::copy_n(sums + 2 * n, n, hidden);
    for (int g = 0; g < 2; ++g) {
      for (int64_t j = 0; j < n; ++j) sums[g * n + j] += x[g * cells.x_gate + j];
    }
    functions.Sigmoid(sums, 2 * n);
    double* const fresh = sums + 2 * n;
    for (int64_t j = 0; j < n; ++j) fresh[j] = x[2 * cells.x_gate + j] + sums[j] * hidden[j];
    functions.Tanh(fresh, n);
    const double *const z = sums + n, *const before = cells.before + r * cells.state_row;
    double* const after = cells.after + r * cells.state_row;
    for (int64_t j = 0; j < n; ++j) after[j] = (1 - z[j]) * fresh[j] + z[j] * before[j];
  }
}

// What one thread needs to take part in the steps.
template <class T>
class Steps {
 public:
  Steps(const RecurrentArgs& a, const RecurrentMemory& memory)
      : args_(a),
        cut_(a),
        schedule_(a),
        is_present_(a.presence),
        n_(a.hidden),
        stride_(cut_.padded_hidden()),
        is_packed_(memory.is_packed),
        h_(a.h),
        c_(a.c),
        tanh_c_(a.tanh_c),
        y_(a.y),
        last_h_(a.last_h),
        last_c_(a.last_c),
        gates_{RowsOf<T>(a.gates[0]), RowsOf<T>(a.gates[1]), RowsOf<T>(a.gates[2]), RowsOf<T>(a.gates[3])} {
    ScratchCutter states(memory.states);
    for (T*& state : states_) state = states.Cut<T>(a.batch * stride_);
    cells_ = states.Cut<T>(a.batch * stride_);
    packed_ = static_cast<T*>(memory.packed);
    ScratchCutter scratch(memory.scratch);
    sums_ = scratch.Cut<T>(cut_.rows * cut_.columns());
    x_ = scratch.Cut<T>(cut_.rows * cut_.columns());
    extra_ = scratch.Cut<T>(cut_.rows * cut_.units);
    bias_ = scratch.Cut<T>(cut_.blocks * cut_.columns());
    FillBias(scratch.Cut<T>(cut_.gates * n_));
  }

  static int64_t StateBytes(const RecurrentArgs& args) {
    return 3 * ScratchCutter::Bytes<T>(args.batch * Cut(args).padded_hidden());
  }
  static int64_t ScratchBytes(const RecurrentArgs& args) {
    const Cut cut(args);
    return 2 * ScratchCutter::Bytes<T>(cut.rows * cut.columns()) + ScratchCutter::Bytes<T>(cut.rows * cut.units) +
           ScratchCutter::Bytes<T>(cut.blocks * cut.columns()) + ScratchCutter::Bytes<T>(cut.gates * args.hidden);
  }

  void Run(StepTeam& team, int64_t member) {
    int64_t step = 0;
    team.Step(member, step++, [&](int64_t part) { Begin(PartOf(part)); });
    schedule_.ForEachStep(args_.reverse, [&](int64_t t, int64_t first_row, int64_t present) {
      Now now{t, first_row, present, states_[(step - 1) % 2], states_[step % 2]};
      team.Step(member, step++, [&](int64_t part) { Step(PartOf(part), now); });
    });
    T* const last = states_[(step - 1) % 2];
    team.Step(member, step, [&](int64_t part) { End(PartOf(part), last); });
  }

 private:
  // Entries [begin, begin + count) and units [unit, unit + width) of a block.
  struct Part {
    int64_t block, group, begin, count, unit, width;
  };
  struct Now {
    int64_t t, first_row, present;
    const T* before;
    T* after;
  };

  // Blocks before groups: a thread keeps its columns of the weight.
  Part PartOf(int64_t part) const {
    Part p{};
    p.block = part / cut_.groups;
    p.group = part % cut_.groups;
    p.begin = p.group * cut_.rows;
    p.count = std::min(cut_.rows, args_.batch - p.begin);
    p.unit = p.block * cut_.units;
    p.width = std::min(cut_.units, n_ - p.unit);
    return p;
  }

  void FillBias(T* source) {
    std::fill_n(bias_, cut_.blocks * cut_.columns(), T(0));
    std::fill_n(source, cut_.gates * n_, T(0));
    if (args_.bias != nullptr) RowsOf<T>(args_.bias).Read(0, 0, 0, source);
    if (args_.input_bias != nullptr) {
      RowsOf<T>(args_.input_bias).Read(0, 0, 0, bias_);
      for (int64_t j = 0; j < cut_.gates * n_; ++j) source[j] += bias_[j];
      std::fill_n(bias_, cut_.blocks * cut_.columns(), T(0));
    }
    if (args_.forget_bias != 0) {
      for (int64_t j = 0; j < n_; ++j) source[forget() * n_ + j] += static_cast<T>(args_.forget_bias);
    }
    for (int64_t block = 0; block < cut_.blocks; ++block) {
      const int64_t unit = block * cut_.units;
      for (int64_t g = 0; g < cut_.gates; ++g) {
        std::copy_n(source + g * n_ + unit, std::min(cut_.units, n_ - unit),
                    bias_ + block * cut_.columns() + g * cut_.units);
      }
    }
  }

  int forget() const { return args_.cell_before_forget ? 2 : 1; }
  int candidate() const { return args_.is_gru ? 2 : args_.cell_before_forget ? 1 : 2; }
  T* PackedBlock(int64_t block) const { return packed_ + block * n_ * cut_.columns(); }

  void Begin(const Part& p) {
    if (p.group == 0 && !is_packed_) PackBlock(*args_.weight, cut_, n_, p.block, PackedBlock(p.block));
    ReadState(args_.first_h, p, states_[0]);
    ReadState(args_.first_c, p, cells_);
  }

  void ReadState(const TensorRef* ref, const Part& p, T* to) const {
    const RowsOf<T> rows(ref);
    for (int64_t r = p.begin; r < p.begin + p.count; ++r) {
      T* const row = to + r * stride_ + p.unit;
      std::fill_n(row, cut_.units, T(0));
      if (rows) rows.Read(0, 0, r, row, p.unit, p.width);
    }
  }

  void End(const Part& p, const T* last) {
    for (int64_t r = p.begin; r < p.begin + p.count; ++r) {
      last_h_.Write(0, 0, r, last + r * stride_ + p.unit, p.unit, p.width);
      last_c_.Write(0, 0, r, cells_ + r * stride_ + p.unit, p.unit, p.width);
    }
  }

  void Step(const Part& p, const Now& now) {
    const int64_t rows = std::clamp<int64_t>(now.present - p.begin, 0, p.count);
    if (rows != 0) {
      const int64_t panel = simd::PanelWidth(T());
      simd::MultiplyBlock({now.before + p.begin * stride_, stride_}, {PackedBlock(p.block), n_ * panel, panel}, sums_,
                          cut_.columns(), rows, cut_.columns(), n_, false);
    }
    for (int64_t r = 0; r < rows;) {
      const int64_t first = r;
      while (r < rows && is_present_(now.t, p.begin + r)) ++r;
      if (r != first) Compute(p, now, first, r - first);
      if (r < rows) Keep(p, now, r++, true);
    }
    for (int64_t r = rows; r < p.count; ++r) Keep(p, now, r, false);
  }

  // Rows [first, first + count) of the part, which take part in the step.
  void Compute(const Part& p, const Now& now, int64_t first, int64_t count) {
    const int64_t entry = p.begin + first;
    const int64_t row = now.first_row + entry;
    simd::CellRows<T> cells;
    cells.rows = count;
    cells.units = cut_.units;
    cells.sums = sums_ + first * cut_.columns();
    cells.x = static_cast<const T*>(args_.input_part->data) + row * cut_.gates * n_ + p.unit;
    cells.x_row = cut_.gates * n_;
    cells.x_gate = n_;
    if (p.width != cut_.units) PadInput(p.width, count, cells);
    cells.bias = bias_ + p.block * cut_.columns();
    const int64_t at = entry * stride_ + p.unit;
    cells.before = now.before + at;
    cells.after = now.after + at;
    cells.cell = cells_ + at;
    cells.state_row = stride_;
    cells.extra = extra_ + first * cut_.units;
    cells.saves = saves_;
    cells.forget = forget();
    cells.candidate = candidate();
    args_.is_gru ? GruCells(cells) : LstmCells(cells);
    for (int64_t r = 0; r < count; ++r) WriteRow(p, now.t, entry + r, row + r, cells, r);
  }

  // Functions read whole blocks of units.
  void PadInput(int64_t width, int64_t count, simd::CellRows<T>& cells) {
    std::fill_n(x_, count * cut_.columns(), T(0));
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t g = 0; g < cut_.gates; ++g) {
        std::copy_n(cells.x + r * cells.x_row + g * cells.x_gate, width, x_ + r * cut_.columns() + g * cut_.units);
      }
    }
    cells.x = x_;
    cells.x_row = cut_.columns();
    cells.x_gate = cut_.units;
  }

  void WriteRow(const Part& p, int64_t t, int64_t entry, int64_t row, const simd::CellRows<T>& cells, int64_t r) const {
    const T* const state = cells.after + r * stride_;
    h_.Write(t, entry, row, state, p.unit, p.width);
    y_.Write(t, entry, row, state, p.unit, p.width);
    if (!saves_) return;
    const T* const sums = cells.sums + r * cut_.columns();
    const T* const extra = cells.extra + r * cut_.units;
    if (args_.is_gru) {
      for (int64_t g = 0; g < 3; ++g) gates_[g].Write(t, entry, row, sums + g * cut_.units, p.unit, p.width);
      gates_[3].Write(t, entry, row, extra, p.unit, p.width);
      return;
    }
    const int64_t order[] = {0, candidate(), forget(), 3};
    for (int64_t g = 0; g < 4; ++g) gates_[g].Write(t, entry, row, sums + order[g] * cut_.units, p.unit, p.width);
    tanh_c_.Write(t, entry, row, extra, p.unit, p.width);
    c_.Write(t, entry, row, cells.cell + r * stride_, p.unit, p.width);
  }

  // A row that does not take part in the step: the states stay. `exists`: it is one of the step all the same, whose h
  // and c show them; else its sequence has ended.
  void Keep(const Part& p, const Now& now, int64_t r, bool exists) {
    const int64_t entry = p.begin + r;
    const int64_t at = entry * stride_ + p.unit;
    std::copy_n(now.before + at, cut_.units, now.after + at);
    if (!exists && !schedule_.is_padded()) return;
    const int64_t row = now.first_row + entry;
    std::fill_n(x_, cut_.units, T(0));
    for (const RowsOf<T>* to : {&h_, &c_, &tanh_c_, &y_, gates_, gates_ + 1, gates_ + 2, gates_ + 3}) {
      to->Write(now.t, entry, row, x_, p.unit, p.width);
    }
    if (!exists) return;
    h_.Write(now.t, entry, row, now.after + at, p.unit, p.width);
    if (!args_.is_gru) c_.Write(now.t, entry, row, cells_ + at, p.unit, p.width);
  }

  const RecurrentArgs& args_;
  const Cut cut_;
  const Schedule schedule_;
  const Presence is_present_;
  const int64_t n_;
  const int64_t stride_;  // of states
  const bool is_packed_;
  const RowsOf<T> h_, c_, tanh_c_, y_, last_h_, last_c_;
  const RowsOf<T> gates_[kMostGates];
  const bool saves_ = c_ || tanh_c_ || gates_[0] || gates_[1] || gates_[2] || gates_[3];
  T* states_[2];
  T* cells_;
  T* packed_;
  T *sums_, *x_, *extra_, *bias_;
};

template <class T>
void RunSteps(const RecurrentArgs& args, const RecurrentMemory& memory, StepTeam* team, int64_t member) {
  if (RecurrentParts(args) == 0) return;
  Steps<T> steps(args, memory);
  if (team != nullptr) return steps.Run(*team, member);
  StepTeam alone(1, RecurrentParts(args));
  steps.Run(alone, 0);
}

// ---- Gradients ----

// What steps saved, and where its columns are.
template <class T>
struct Saved {
  explicit Saved(const RecurrentArgs& a)
      : n(a.hidden),
        width(GatesOf(a) * a.hidden),
        forget((a.cell_before_forget ? 2 : 1) * a.hidden),
        candidate((a.cell_before_forget ? 1 : 2) * a.hidden),
        h(a.h),
        c(a.c),
        tanh_c(a.tanh_c),
        gates{RowsOf<T>(a.gates[0]), RowsOf<T>(a.gates[1]), RowsOf<T>(a.gates[2]), RowsOf<T>(a.gates[3])} {}

  int64_t n, width;
  int64_t forget, candidate;  // LSTM: first columns of these gates
  RowsOf<T> h, c, tanh_c;
  RowsOf<T> gates[kMostGates];
};

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
  const Saved<T> steps(args);
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
template <class T>
void ReadColumns(const TensorRef& ref, int64_t row, int64_t begin, int64_t n, T* to) {
  const int64_t last = ref.strides[ref.rank - 1];
  const int64_t offset = OffsetOf(ref, ref.rank - 1, row) + begin * last;
  FindCast(ref.dtype, DTypeOf<T>())(ElementAt(ref, offset), last * ItemSize(ref.dtype), reinterpret_cast<char*>(to),
                                    sizeof(T), n);
}

template <class T>
void WriteColumns(const TensorRef& ref, int64_t row, int64_t begin, int64_t n, const T* from) {
  const int64_t last = ref.strides[ref.rank - 1];
  const int64_t offset = OffsetOf(ref, ref.rank - 1, row) + begin * last;
  FindCast(DTypeOf<T>(), ref.dtype)(reinterpret_cast<const char*>(from), sizeof(T), ElementAt(ref, offset),
                                    last * ItemSize(ref.dtype), n);
}

template <class T>
void RunCell(const LstmCellArgs& args, Range entries) {
  const int64_t hidden = args.c_before->sizes[1];
  const GateRows<T> rows;
  T gates[4][kBlock], other[kBlock], cell[kBlock], state[kBlock];
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
        k == 2 ? rows.Tanh(gates[k], n) : rows.Sigmoid(gates[k], n);
        WriteColumns(*args.storage, entry, at, n, gates[k]);
      }
      ReadColumns(*args.c_before, entry, begin, n, cell);
      for (int64_t i = 0; i < n; ++i) cell[i] = gates[1][i] * cell[i] + gates[0][i] * gates[2][i];
      rows.Tanh(cell, state, n);
      for (int64_t i = 0; i < n; ++i) state[i] *= gates[3][i];
      WriteColumns(*args.c, entry, begin, n, cell);
      WriteColumns(*args.h, entry, begin, n, state);
    }
  }
}

}  // namespace

int64_t RecurrentParts(const RecurrentArgs& args) {
  const Cut cut(args);
  return cut.blocks * cut.groups;
}

int64_t RecurrentGrain(const RecurrentArgs& args, DType compute) {
  // Time is in ns: of a product, or of its reading the weight, whichever takes longer; of the functions.
  constexpr int64_t kWorth = 700;
  constexpr int64_t kMultiplyAddsInTime = 100, kBytesInTime = 150, kFunctionsInTime = 2;
  const Cut cut(args);
  const int64_t numbers = args.hidden * cut.columns();
  const int64_t time = std::max(cut.rows * numbers / kMultiplyAddsInTime, numbers * ItemSize(compute) / kBytesInTime) +
                       cut.rows * cut.columns() / kFunctionsInTime;
  return std::max<int64_t>(1, kWorth / std::max<int64_t>(time, 1));
}

int64_t PackedRecurrentBytes(const TensorRef& weight, DType compute) {
  const int64_t hidden = weight.sizes[0];
  if (hidden == 0) return 0;
  const Cut cut(weight.sizes[1] / hidden, hidden, 0);
  return cut.blocks * cut.columns() * hidden * ItemSize(compute);
}

template <class T>
void PackRecurrentWeight(const TensorRef& weight, void* to) {
  const int64_t hidden = weight.sizes[0];
  const Cut cut(weight.sizes[1] / hidden, hidden, 0);
  for (int64_t block = 0; block < cut.blocks; ++block) {
    PackBlock(weight, cut, hidden, block, static_cast<T*>(to) + block * hidden * cut.columns());
  }
}
template void PackRecurrentWeight<float>(const TensorRef& weight, void* to);
template void PackRecurrentWeight<double>(const TensorRef& weight, void* to);

int64_t RecurrentStateBytes(const RecurrentArgs& args, DType compute) {
  return compute == DType::kDouble ? Steps<double>::StateBytes(args) : Steps<float>::StateBytes(args);
}

int64_t RecurrentScratchBytes(const RecurrentArgs& args, DType compute) {
  return compute == DType::kDouble ? Steps<double>::ScratchBytes(args) : Steps<float>::ScratchBytes(args);
}

void RecurrentSteps(const RecurrentArgs& args, DType compute, const RecurrentMemory& memory, StepTeam* team,
                    int64_t member) {
  if (compute == DType::kDouble) return RunSteps<double>(args, memory, team, member);
  RunSteps<float>(args, memory, team, member);
}

int64_t RecurrentGradientScratchBytes(const RecurrentArgs& args, DType compute) {
  const int64_t n = args.hidden;
  const int64_t width = GatesOf(args) * n;
  const int64_t count = kEntries * (width + 2 * n) + 2 * width + 6 * n;
  return count * ItemSize(compute) + 8 * 64;
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

void LstmCell(const LstmCellArgs& args, DType compute, Range entries) {
  if (compute == DType::kDouble) return RunCell<double>(args, entries);
  RunCell<float>(args, entries);
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
