// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;  // elements staged at a time: 4 KiB per operand at most

struct Staging {
  alignas(64) char bytes[kBlock * 16];
};

// Converts rows from one type to another, if need be through the type of the computation.
class RowCast {
 public:
  void Run(DType from, DType middle, DType to, const char* src, int64_t src_stride, char* dst, int64_t dst_stride,
           int64_t n) {
    if (!reader_) reader_.emplace(from, middle, to);
    reader_->Read(src, src_stride, dst, dst_stride, n);
  }

 private:
  std::optional<RowReader> reader_;  // looked up when the first row needs it
};

// Brings the rows of one input into the type that the row function takes, block by block.
class InputRow {
 public:
  void Init(DType dtype, DType middle, DType wanted) {
    dtype_ = dtype;
    middle_ = middle;
    wanted_ = wanted;
    item_ = ItemSize(wanted);
  }

  // Starts a row; returns whether Block() will need staging.
  bool Begin(const char* data, int64_t stride, int64_t n, Staging& staging) {
    data_ = data;
    stride_ = stride;
    is_direct_ = dtype_ == wanted_ && middle_ == wanted_ && (stride == item_ || n == 1);
    if (is_direct_) return false;
    if (stride == 0) cast_.Run(dtype_, middle_, wanted_, data, 0, staging.bytes, item_, std::min(n, kBlock));
    return true;
  }

  // Elements [begin, begin + n) of the row, contiguous and of the wanted type.
  const char* Block(int64_t begin, int64_t n, Staging& staging) {
    if (is_direct_) return data_ + begin * item_;
    if (stride_ != 0) {
      cast_.Run(dtype_, middle_, wanted_, data_ + begin * stride_, stride_, staging.bytes, item_, n);
    }
    return staging.bytes;
  }

  // One element for the whole row, as `math`.
  const void* Single(const char* data, DType math, bool is_scalar, Staging& staging) {
    if (dtype_ == math && (middle_ == math || is_scalar)) return data;
    single_cast_.Run(dtype_, middle_, math, data, 0, staging.bytes, ItemSize(math), 1);
    return staging.bytes;
  }

 private:
  DType dtype_ = DType::kUndefined;
  DType middle_ = DType::kUndefined;
  DType wanted_ = DType::kUndefined;
  int64_t item_ = 0;
  RowCast cast_;
  RowCast single_cast_;
  const char* data_ = nullptr;
  int64_t stride_ = 0;
  bool is_direct_ = false;
};

bool Repeats(const TensorRef& ref) {
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] != 1 && ref.strides[d] != 0) return false;
  }
  return true;
}

Loop LoopOver(const TensorRef* refs, int inputs) {
  switch (inputs) {
    case 1: return MakeLoop({&refs[0], &refs[1]});
    case 2: return MakeLoop({&refs[0], &refs[1], &refs[2]});
    default: return MakeLoop({&refs[0], &refs[1], &refs[2], &refs[3]});
  }
}

// Where a plane of an operand begins: all dims but the first two count planes.
char* PlaneOf(const Loop& loop, int64_t plane, int operand) {
  char* at = loop.base[operand];
  for (int d = 2; d < loop.rank; plane /= loop.sizes[d++]) at += plane % loop.sizes[d] * loop.strides[d][operand];
  return at;
}

// ---- Short rows ----

constexpr int64_t kTileBytes = 4096;      // of an operand: some of them lie in the first-level cache
constexpr int64_t kShortRowBytes = 1024;  // longer ones are worth a call each
constexpr int64_t kCopiedRowBytes = 256;  // the same where something is copied for each row, or need not be
constexpr int64_t kFewestRows = 4;

// Many short rows: operands that do not lie as the result does are brought into its order, tile by tile, so that one
// call computes several rows. Of an operand that repeats from row to row that is done once.
class TiledRows {
 public:
  // \pre FitsTiles(call, refs, loop)
  TiledRows(const ElementCall& call, const Loop& loop) : call_(call), loop_(loop), length_(loop.sizes[0]) {
    rows_ = std::min(loop.sizes[1], kTileBytes / RowBytes(call, loop));
    for (int k = 0; k < call.inputs; ++k) {
      const int64_t item = ItemSize(call.row.in[k]);
      const int64_t step = loop.strides[1][k + 1];
      const bool has_rows = loop.strides[0][k + 1] == item;
      kinds_[k] = has_rows && step == length_ * item ? Kind::kDense
                  : has_rows && step == 0            ? Kind::kRepeats
                                                     : Kind::kOther;
    }
  }

  static bool Fits(const ElementCall& call, const TensorRef* refs, const Loop& loop) {
    if (loop.rank < 2 || loop.sizes[1] < kFewestRows || call.row.is_wide || call.has_scalar) return false;
    const int64_t out_item = ItemSize(call.row.out);
    if (refs[0].dtype != call.row.out || loop.strides[0][0] != out_item ||
        loop.strides[1][0] != loop.sizes[0] * out_item) {
      return false;
    }
    bool is_dense = true;
    bool copies = call.row.single != nullptr && loop.strides[0][call.inputs] == 0;  // which takes one element as it is
    for (int k = 0; k < call.inputs; ++k) {
      const int64_t item = ItemSize(call.row.in[k]);
      const int64_t step = loop.strides[0][k + 1];
      const int64_t row_step = loop.strides[1][k + 1];
      if (refs[k + 1].dtype != call.row.in[k] || (step != item && step != 0)) return false;
      const bool has_rows = step == item;
      is_dense = is_dense && has_rows && row_step == loop.sizes[0] * item;
      copies = copies || (has_rows && row_step != 0 && row_step != loop.sizes[0] * item);
    }
    return !is_dense && RowBytes(call, loop) <= (copies ? kCopiedRowBytes : kShortRowBytes);
  }

  void Run(Range range) {
    const int64_t plane = length_ * loop_.sizes[1];
    for (int64_t at = range.begin; at < range.end;) {
      if (at / plane != plane_) Enter(at / plane);
      const int64_t row = at % plane / length_;
      const int64_t column = at % length_;
      const int64_t rows = std::min(rows_, loop_.sizes[1] - row);
      const int64_t count = std::min(rows * length_ - column, range.end - at);
      RowArgs args;
      args.numbers = call_.numbers;
      args.out = bases_[0] + (at % plane) * ItemSize(call_.row.out);
      for (int k = 0; k < call_.inputs; ++k) {
        const int64_t item = ItemSize(call_.row.in[k]);
        if (kinds_[k] == Kind::kDense) {
          args.in[k] = bases_[k + 1] + (at % plane) * item;
          continue;
        }
        if (kinds_[k] == Kind::kOther) Fill(k, row, rows);
        args.in[k] = tiles_[k] + column * item;
      }
      call_.row.function(&args, 0, count);
      at += count;
    }
  }

 private:
  enum class Kind : uint8_t { kDense, kRepeats, kOther };

  static int64_t RowBytes(const ElementCall& call, const Loop& loop) {
    int64_t item = 1;
    for (int k = 0; k < call.inputs; ++k) item = std::max(item, ItemSize(call.row.in[k]));
    return loop.sizes[0] * item;
  }

  // The elements of all dims but the first two.
  void Enter(int64_t plane) {
    plane_ = plane;
    for (int k = 0; k <= call_.inputs; ++k) {
      bases_[k] = PlaneOf(loop_, plane, k);
      if (k > 0 && kinds_[k - 1] == Kind::kRepeats) Fill(k - 1, 0, rows_);
    }
  }

  void Fill(int k, int64_t row, int64_t rows) {
    const int64_t item = ItemSize(call_.row.in[k]);
    const char* from = bases_[k + 1] + row * loop_.strides[1][k + 1];
    char* to = tiles_[k];
    for (int64_t r = 0; r < rows; ++r, from += loop_.strides[1][k + 1], to += length_ * item) {
      if (loop_.strides[0][k + 1] != 0) {
        std::memcpy(to, from, static_cast<size_t>(length_ * item));
      } else if (item == 4) {
        Repeat<uint32_t>(from, to);
      } else if (item == 2) {
        Repeat<uint16_t>(from, to);
      } else {
        for (int64_t i = 0; i < length_; ++i) std::memcpy(to + i * item, from, static_cast<size_t>(item));
      }
    }
  }
  template <class T>
  void Repeat(const char* from, char* to) const {
    T value;
    std::memcpy(&value, from, sizeof value);
    std::fill_n(reinterpret_cast<T*>(to), length_, value);
  }

  const ElementCall& call_;
  const Loop& loop_;
  const int64_t length_;  // of a row
  int64_t rows_;          // of a tile
  int64_t plane_ = -1;
  Kind kinds_[kMaxElementInputs] = {};
  char* bases_[kMaxElementInputs + 1] = {};
  alignas(64) char tiles_[kMaxElementInputs][kTileBytes];
};

// ---- Operands whose columns are rows ----

// Where neighbours of an operand belong to rows that follow one another, blocks of rows are turned, so that each line
// of memory is read once.
class TurnedRows {
 public:
  // \pre Fits(call, refs, loop)
  TurnedRows(const ElementCall& call, const Loop& loop) : call_(call), loop_(loop), length_(loop.sizes[0]) {
    for (int k = 0; k < call.inputs; ++k) is_turned_[k] = loop.strides[0][k + 1] != ItemSize(call.row.in[k]);
  }

  static bool Fits(const ElementCall& call, const TensorRef* refs, const Loop& loop) {
    if (loop.rank < 2 || std::min(loop.sizes[0], loop.sizes[1]) < kFewest || call.row.is_wide || call.has_scalar) {
      return false;
    }
    if (refs[0].dtype != call.row.out || loop.strides[0][0] != ItemSize(call.row.out)) return false;
    bool turns = false;
    for (int k = 0; k < call.inputs; ++k) {
      const int64_t item = ItemSize(call.row.in[k]);
      const int64_t step = loop.strides[0][k + 1];
      if (refs[k + 1].dtype != call.row.in[k]) return false;
      if (step == item) continue;
      if (item != kItem || loop.strides[1][k + 1] != item || step < item) return false;
      turns = true;
    }
    return turns;
  }

  void Run(Range range) {
    const int64_t plane = length_ * loop_.sizes[1];
    for (int64_t at = range.begin; at < range.end;) {
      for (int k = 0; k <= call_.inputs; ++k) bases_[k] = PlaneOf(loop_, at / plane, k);
      const int64_t row = at % plane / length_;
      const int64_t column = at % length_;
      const int64_t whole = column != 0 ? 0 : (range.end - at) / length_;
      const int64_t rows = std::clamp<int64_t>(std::min(whole, loop_.sizes[1] - row), 1, kRows);
      const int64_t count = whole != 0 ? length_ : std::min(length_ - column, range.end - at);
      for (int64_t done = 0; done < count; done += kColumns) {
        RunBlock(row, rows, column + done, std::min(kColumns, count - done));
      }
      at += rows * count;
    }
  }

 private:
  static constexpr int64_t kItem = sizeof(float);
  static constexpr int64_t kFewest = 8;
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kColumns = 64;

  char* At(int operand, int64_t row, int64_t column) const {
    return bases_[operand] + row * loop_.strides[1][operand] + column * loop_.strides[0][operand];
  }

  void RunBlock(int64_t row, int64_t rows, int64_t column, int64_t count) {
    for (int k = 0; k < call_.inputs; ++k) {
      if (!is_turned_[k]) continue;
      simd::Transpose(reinterpret_cast<const float*>(At(k + 1, row, column)), loop_.strides[0][k + 1] / kItem, count,
                      rows, tiles_[k], kColumns);
    }
    RowArgs args;
    args.numbers = call_.numbers;
    for (int64_t r = 0; r < rows; ++r) {
      args.out = At(0, row + r, column);
      for (int k = 0; k < call_.inputs; ++k) {
        args.in[k] = is_turned_[k] ? reinterpret_cast<char*>(tiles_[k] + r * kColumns) : At(k + 1, row + r, column);
      }
      call_.row.function(&args, 0, count);
    }
  }

  const ElementCall& call_;
  const Loop& loop_;
  const int64_t length_;  // of a row
  bool is_turned_[kMaxElementInputs] = {};
  char* bases_[kMaxElementInputs + 1] = {};
  alignas(64) float tiles_[kMaxElementInputs][kRows * kColumns];
};

}  // namespace

ElementCall::ElementCall(const ElementFn& fn, DType type, std::span<const Scalar> values)
    : row(fn.find(type)), inputs(fn.inputs), compute(type) {
  if (row.function == nullptr) return;
  const auto item = static_cast<size_t>(ItemSize(row.math));
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(numbers + i * item, ToMath(values[i]).bytes, item);
}

Scalar ElementCall::ToMath(const Scalar& value) const {
  const auto cast = [](const Scalar& from, DType to) {
    Scalar result;
    result.dtype = to;
    FindCast(from.dtype, to)(reinterpret_cast<const char*>(from.bytes), 0, reinterpret_cast<char*>(result.bytes), 0, 1);
    return result;
  };
  return cast(cast(value, MathDType(compute)), row.math);
}

bool ElementCall::TakesSingle(const TensorRef& last) const {
  if (row.single == nullptr || has_scalar) return row.single != nullptr;
  return last.dtype == row.math && row.in[inputs - 1] == row.math && !row.is_wide && Repeats(last);
}

void ElementCall::Run(const TensorRef* refs, Range range) const {
  if (range.begin >= range.end) return;
  const Loop loop = LoopOver(refs, inputs);
  if (TiledRows::Fits(*this, refs, loop)) return TiledRows(*this, loop).Run(range);
  if (TurnedRows::Fits(*this, refs, loop)) return TurnedRows(*this, loop).Run(range);
  const TensorRef& out = refs[0];
  const int last = inputs - 1;
  const int64_t item = ItemSize(row.out);
  const bool is_single = TakesSingle(refs[inputs]);
  InputRow readers[kMaxElementInputs];
  for (int k = 0; k < inputs; ++k) {
    const bool is_wide = row.is_wide && row.in[k] == row.math;
    readers[k].Init(refs[k + 1].dtype, is_wide ? compute : row.in[k], row.in[k]);
  }
  RowCast store;
  const DType middle = row.is_wide && row.out == row.math ? compute : row.out;
  Staging staging[kMaxElementInputs];
  Staging result;
  RowArgs args;
  args.numbers = numbers;
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    const bool out_is_direct = out.dtype == row.out && middle == row.out && (strides[0] == item || n == 1);
    // One element for this row, even if another one for the next.
    const bool has_single =
        is_single || (row.single != nullptr && strides[inputs] == 0 && refs[inputs].dtype == row.in[last]);
    const RowFn function = has_single ? row.single : row.function;
    bool any_staged = !out_is_direct;
    for (int k = 0; k < inputs; ++k) {
      if (k == last && has_single) {
        args.in[k] = readers[k].Single(ptrs[k + 1], row.math, has_scalar, staging[k]);
      } else {
        any_staged |= readers[k].Begin(ptrs[k + 1], strides[k + 1], n, staging[k]);
      }
    }
    const int64_t step = any_staged ? kBlock : n;
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t count = std::min(step, n - begin);
      for (int k = 0; k < inputs; ++k) {
        if (k != last || !has_single) args.in[k] = readers[k].Block(begin, count, staging[k]);
      }
      if (out_is_direct) {
        args.out = ptrs[0] + begin * item;
        function(&args, 0, count);
      } else {
        args.out = result.bytes;
        function(&args, 0, count);
        store.Run(row.out, middle, out.dtype, result.bytes, item, ptrs[0] + begin * strides[0], strides[0], count);
      }
    }
  });
}

}  // namespace reprise::kernels
