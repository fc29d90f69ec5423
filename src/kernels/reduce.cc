// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include <bit>
#include <optional>

#include "kernels/arithmetic.h"
#include "kernels/cast.h"
#include "kernels/simd/fold.h"
#include "kernels/simd/rows.h"
#include "kernels/sum_tree.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kAhead = 4;           // rows of columns asked for before they are read
constexpr int64_t kColumnBytes = 1024;  // outputs reduced side by side take this much
constexpr int64_t kShortBlocks = 64;    // rows, and parts of one, up to this length need no tree
constexpr int64_t kLevels = 37;         // 2^36 blocks of 512 elements: more than any address space holds

// ---- Folds ----

struct AddFold {
  template <class T>
  static T Identity() {
    return T{};
  }
  template <class T>
  static T Of(T a, T b) {
    return AddValue(a, b);
  }
};
struct MulFold {
  template <class T>
  static T Identity() {
    return T{1};
  }
  template <class T>
  static T Of(T a, T b) {
    return MulValue(a, b);
  }
};
struct MaxFold {
  template <class T>
  static T Identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class T>
  static T Of(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct MinFold {
  template <class T>
  static T Identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class T>
  static T Of(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

// How values of one type are folded; everything else works on bytes.
struct Fold {
  int64_t item;
  simd::BlockFn block;  // at most kSumBlock elements
  simd::RowFoldFn row;
  alignas(16) char identity[16];
  simd::ColumnsFn columns = nullptr;  // at most kSumBlock rows of float32; null: there is none

  void Fill(char* to, int64_t n) const {
    const int64_t bytes = n * item;
    std::memcpy(to, identity, static_cast<size_t>(item));
    for (int64_t done = item; done < bytes; done *= 2) {
      std::memcpy(to + done, to, static_cast<size_t>(std::min(done, bytes - done)));
    }
  }
};

template <class T, class F>
void FoldBlock(const void* data, int64_t n, const void*, void* out) {
  const T* x = static_cast<const T*>(data);
  T lanes[kSumLanes];
  for (T& lane : lanes) lane = F::template Identity<T>();
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t l = 0; l < kSumLanes; ++l) lanes[l] = F::Of(lanes[l], x[i + l]);
  }
  for (int64_t l = 0; i + l < n; ++l) lanes[l] = F::Of(lanes[l], x[i + l]);
  for (int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = F::Of(lanes[l], lanes[l + width]);
  }
  *static_cast<T*>(out) = lanes[0];
}

template <class T, class F>
void FoldRow(void* acc_at, const void* data, int64_t n) {
  T* acc = static_cast<T*>(acc_at);
  const T* x = static_cast<const T*>(data);
  for (int64_t j = 0; j < n; ++j) acc[j] = F::Of(acc[j], x[j]);
}

template <class T, class F>
Fold MakeFold() {
  Fold fold{sizeof(T), FoldBlock<T, F>, FoldRow<T, F>, {}};
  const T identity = F::template Identity<T>();
  std::memcpy(fold.identity, &identity, sizeof(T));
  return fold;
}

template <class F>
Fold FindSumFold(DType stage) {
  switch (stage) {
    case DType::kFloat: return MakeFold<float, F>();
    case DType::kDouble: return MakeFold<double, F>();
    case DType::kComplex64: return MakeFold<std::complex<float>, F>();
    case DType::kComplex128: return MakeFold<std::complex<double>, F>();
    default: return MakeFold<int64_t, F>();
  }
}

template <class F>
Fold FindExtremeFold(DType stage) {
  switch (stage) {
    case DType::kFloat: return MakeFold<float, F>();
    case DType::kDouble: return MakeFold<double, F>();
    case DType::kInt64: return MakeFold<int64_t, F>();
    case DType::kInt32: return MakeFold<int32_t, F>();
    default: return MakeFold<uint8_t, F>();  // bool
  }
}

Fold FindFold(ReduceOp op, int pass, DType stage) {
  switch (op) {
    case ReduceOp::kMax:
    case ReduceOp::kNormInf:
    case ReduceOp::kAny: {
      Fold fold = FindExtremeFold<MaxFold>(stage);
      if (stage == DType::kFloat) {
        fold.block = simd::FindExtremeBlock(true);
        fold.row = simd::FindExtremeRow(true);
      }
      return fold;
    }
    case ReduceOp::kMin:
    case ReduceOp::kNormMinusInf:
    case ReduceOp::kAll: {
      Fold fold = FindExtremeFold<MinFold>(stage);
      if (stage == DType::kFloat) {
        fold.block = simd::FindExtremeBlock(false);
        fold.row = simd::FindExtremeRow(false);
      }
      return fold;
    }
    case ReduceOp::kProd: return FindSumFold<MulFold>(stage);
    case ReduceOp::kLogSumExp:
      if (pass == 0) return FindFold(ReduceOp::kMax, 0, stage);
      [[fallthrough]];
    default: {
      Fold fold = FindSumFold<AddFold>(stage);
      if (stage == DType::kFloat) {
        fold.block = simd::FindSumBlock(simd::SumOf::kValue);
        fold.row = simd::FindAddRow();
        fold.columns = simd::FindAddColumns();
      }
      return fold;
    }
  }
}

// Folds rows of `columns` values pairwise, like the carries of a binary counter: level L holds the fold of 2^L rows
// while bit L of the count is set.
class FoldTree {
 public:
  FoldTree(const Fold& fold, int64_t columns)
      : fold_(fold), columns_(columns), bytes_(static_cast<size_t>(columns * fold.item)) {}

  void Push(const void* row) {
    int level = 0;
    // Earlier rows stand on the left.
    const void* carry = row;
    for (uint64_t count = count_++; (count & 1) != 0; count >>= 1, ++level) {
      fold_.row(Level(level), carry, columns_);
      carry = Level(level);
    }
    std::memcpy(Level(level), carry, bytes_);
  }

  void Finish(void* total) {
    if (count_ == 0) return fold_.Fill(static_cast<char*>(total), columns_);
    uint64_t rest = count_;
    const char* folded = Level(std::countr_zero(rest));
    for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
      char* level = Level(std::countr_zero(rest));
      fold_.row(level, folded, columns_);
      folded = level;
    }
    std::memcpy(total, folded, bytes_);
  }

 private:
  char* Level(int level) { return levels_ + static_cast<size_t>(level) * bytes_; }

  const Fold& fold_;
  int64_t columns_;
  size_t bytes_;
  uint64_t count_ = 0;
  alignas(64) char levels_[kLevels * kColumnBytes];
};

// ---- Terms and finishes ----

// x[i] = term(x[i]); `shift` advances by `shift_step` elements.
using TermFn = void (*)(void* x, int64_t n, const void* shift, int64_t shift_step, double value);

template <class T>
void NanToZero(void* data, int64_t n, const void*, int64_t, double) {
  T* x = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] == x[i] ? x[i] : T{};
}
template <class T>
void NonZero(void* data, int64_t n, const void*, int64_t, double) {
  T* x = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] != 0 ? T{1} : T{0};
}
template <class T>
void Magnitude(void* data, int64_t n, const void*, int64_t, double) {
  T* x = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) x[i] = std::abs(x[i]);
}
template <class T>
void Square(void* data, int64_t n, const void*, int64_t, double) {
  T* x = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) x[i] *= x[i];
}
template <class T>
void Power(void* data, int64_t n, const void*, int64_t, double value) {
  T* x = static_cast<T*>(data);
  const auto p = static_cast<T>(value);
  for (int64_t i = 0; i < n; ++i) x[i] = std::pow(std::abs(x[i]), p);
}
template <class T>
void SquaredDeviation(void* data, int64_t n, const void* shift_at, int64_t step, double) {
  T* x = static_cast<T*>(data);
  const T* shift = static_cast<const T*>(shift_at);
  for (int64_t i = 0; i < n; ++i) {
    const T d = x[i] - shift[i * step];
    x[i] = d * d;
  }
}
template <class T>
void ExpShifted(void* data, int64_t n, const void* shift_at, int64_t step, double) {
  T* x = static_cast<T*>(data);
  const T* shift = static_cast<const T*>(shift_at);
  for (int64_t i = 0; i < n; ++i) x[i] -= shift[i * step];
  if constexpr (std::is_same_v<T, float>) {
    simd::ExpShiftedRow(x, 0, n);
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i]);
  }
}

template <class T>
TermFn FindRealTerm(ReduceOp op, int pass) {
  switch (op) {
    case ReduceOp::kNanSum: return NanToZero<T>;
    case ReduceOp::kNormZero: return NonZero<T>;
    case ReduceOp::kNormOne:
    case ReduceOp::kNormInf:
    case ReduceOp::kNormMinusInf: return Magnitude<T>;
    case ReduceOp::kNormTwo: return Square<T>;
    case ReduceOp::kNormP: return Power<T>;
    case ReduceOp::kVar:
    case ReduceOp::kStd: return pass == 0 ? nullptr : SquaredDeviation<T>;
    case ReduceOp::kLogSumExp: return pass == 0 ? nullptr : ExpShifted<T>;
    default: return nullptr;
  }
}

TermFn FindTerm(ReduceOp op, int pass, DType stage) {
  switch (stage) {
    case DType::kFloat: return FindRealTerm<float>(op, pass);
    case DType::kDouble: return FindRealTerm<double>(op, pass);
    case DType::kComplex64: return op == ReduceOp::kNanSum ? NanToZero<std::complex<float>> : nullptr;
    case DType::kComplex128: return op == ReduceOp::kNanSum ? NanToZero<std::complex<double>> : nullptr;
    default: return nullptr;
  }
}

// The sums of float32 whose term is part of the fold: they need no buffer. False for others.
bool FindFusedSum(ReduceOp op, int pass, simd::SumOf& what) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean: what = simd::SumOf::kValue; return true;
    case ReduceOp::kNormOne: what = simd::SumOf::kMagnitude; return true;
    case ReduceOp::kNormTwo: what = simd::SumOf::kSquare; return true;
    case ReduceOp::kVar:
    case ReduceOp::kStd: what = pass == 0 ? simd::SumOf::kValue : simd::SumOf::kSquaredDeviation; return true;
    default: return false;
  }
}

template <class T>
void FinishReal(const ReduceSpec& spec, int pass, T* x, int64_t n, const T* shift, int64_t count) {
  switch (spec.op) {
    case ReduceOp::kNormTwo:
      for (int64_t i = 0; i < n; ++i) x[i] = std::sqrt(x[i]);
      return;
    case ReduceOp::kNormInf:
      if (count == 0) std::fill_n(x, n, T{0});
      return;
    case ReduceOp::kNormP:
      for (int64_t i = 0; i < n; ++i) x[i] = std::pow(x[i], static_cast<T>(1 / spec.value));
      return;
    case ReduceOp::kLogSumExp:
      if (pass == 0) {
        for (int64_t i = 0; i < n; ++i) x[i] = std::isinf(x[i]) ? T{0} : x[i];
      } else {
        for (int64_t i = 0; i < n; ++i) x[i] = std::log(x[i]) + shift[i];
      }
      return;
    case ReduceOp::kVar:
    case ReduceOp::kStd: {
      const auto divisor = static_cast<T>(pass == 0 ? static_cast<double>(count)
                                                    : std::max(0.0, static_cast<double>(count) - spec.value));
      for (int64_t i = 0; i < n; ++i) x[i] /= divisor;
      if (pass == 1 && spec.op == ReduceOp::kStd) {
        for (int64_t i = 0; i < n; ++i) x[i] = std::sqrt(x[i]);
      }
      return;
    }
    default: return;
  }
}

template <class T>
void DivideBy(void* data, int64_t n, int64_t count) {
  T* x = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) x[i] /= static_cast<T>(count);
}

void Finish(const ReduceSpec& spec, int pass, DType stage, void* x, int64_t n, const void* shift, int64_t count) {
  switch (stage) {
    case DType::kFloat:
      if (spec.op == ReduceOp::kMean) return DivideBy<float>(x, n, count);
      return FinishReal(spec, pass, static_cast<float*>(x), n, static_cast<const float*>(shift), count);
    case DType::kDouble:
      if (spec.op == ReduceOp::kMean) return DivideBy<double>(x, n, count);
      return FinishReal(spec, pass, static_cast<double*>(x), n, static_cast<const double*>(shift), count);
    case DType::kComplex64:
      if (spec.op != ReduceOp::kMean) return;
      return DivideBy<float>(x, 2 * n, count);
    case DType::kComplex128:
      if (spec.op != ReduceOp::kMean) return;
      return DivideBy<double>(x, 2 * n, count);
    case DType::kBool: {  // any byte but 0 was read as true
      auto* bytes = static_cast<uint8_t*>(x);
      for (int64_t i = 0; i < n; ++i) bytes[i] = bytes[i] != 0;
      return;
    }
    default: return;
  }
}

// ---- Reading ----

// Elements of self as the folds take them: cast, then the term.
class Source {
 public:
  Source(const ReduceSpec& spec, int pass, DType self, DType stage)
      : reader_(self, spec.compute, IsModulus(spec, stage) ? spec.compute : stage),
        term_(FindTerm(spec.op, pass, stage)),
        value_(spec.value),
        stage_bytes_(ItemSize(stage)) {
    // float32 needs no cast, and no buffer where its term is part of the fold.
    is_plain_ = self == stage && spec.compute == stage;
    if (IsModulus(spec, stage)) modulus_ = stage;
    if (spec.op == ReduceOp::kMax || spec.op == ReduceOp::kMin) flips_ = spec.compute == DType::kUInt64;
  }

  bool is_plain() const { return is_plain_; }
  TermFn term() const { return term_; }
  /// uint64 as the int64 that has its place in the order.
  bool flips() const { return flips_; }

  void Read(const char* src, int64_t src_stride, char* dst, int64_t n, const void* shift, int64_t shift_step) const {
    if (modulus_ == DType::kFloat) {
      ReadModulus<float>(src, src_stride, dst, n);
    } else if (modulus_ == DType::kDouble) {
      ReadModulus<double>(src, src_stride, dst, n);
    } else {
      reader_.Read(src, src_stride, dst, stage_bytes_, n);
    }
    if (flips_) Flip(dst, n);
    if (term_ != nullptr) term_(dst, n, shift, shift_step, value_);
  }

  /// Without the term. \pre no complex type, no flips.
  void ReadRaw(const char* src, int64_t src_stride, char* dst, int64_t n) const {
    reader_.Read(src, src_stride, dst, stage_bytes_, n);
  }

  static void Flip(char* data, int64_t n) {
    auto* x = reinterpret_cast<uint64_t*>(data);
    for (int64_t i = 0; i < n; ++i) x[i] ^= uint64_t{1} << 63;
  }

 private:
  static bool IsModulus(const ReduceSpec& spec, DType stage) {
    return CategoryOf(spec.compute) == Category::kComplex && CategoryOf(stage) == Category::kFloating;
  }

  template <class T>
  void ReadModulus(const char* src, int64_t src_stride, char* dst, int64_t n) const {
    std::complex<T> buffer[64];
    T* to = reinterpret_cast<T*>(dst);
    while (n > 0) {
      const int64_t count = std::min<int64_t>(n, 64);
      reader_.Read(src, src_stride, reinterpret_cast<char*>(buffer), sizeof buffer[0], count);
      for (int64_t i = 0; i < count; ++i) to[i] = std::abs(buffer[i]);
      src += count * src_stride;
      to += count;
      n -= count;
    }
  }

  RowReader reader_;
  TermFn term_;
  double value_;
  int64_t stage_bytes_;
  DType modulus_ = DType::kUndefined;
  bool is_plain_ = false;
  bool flips_ = false;
};

// Self without the kept dims, and self without the reduced ones.
TensorRef SelectDims(const TensorRef& self, uint32_t dim_mask) {
  TensorRef part;
  part.data = self.data;
  part.dtype = self.dtype;
  for (int d = 0; d < self.rank; ++d) {
    if ((dim_mask >> d & 1u) == 0) continue;
    part.sizes[part.rank] = self.sizes[d];
    part.strides[part.rank++] = self.strides[d];
  }
  return part;
}

// One pass over the elements of outputs that lie side by side.
class Pass {
 public:
  Pass(const ReduceSpec& spec, int pass, const TensorRef& self, uint32_t dim_mask)
      : spec_(spec),
        pass_(pass),
        stage_(ReduceStage(spec)),
        item_(ItemSize(self.dtype)),
        source_(spec, pass, self.dtype, stage_),
        fold_(FindFold(spec.op, pass, stage_)) {
    const TensorRef reduced = SelectDims(self, dim_mask);
    reduced_ = MakeLoop({&reduced}, LoopOrder::kRowMajor);
    simd::SumOf what = simd::SumOf::kValue;
    const bool is_fused = stage_ == DType::kFloat && FindFusedSum(spec.op, pass, what);
    if (is_fused) {
      two_ = simd::FindSumBlocks(what, 2);
      four_ = simd::FindSumBlocks(what, 4);
      fused_ = simd::FindSumBlock(what);
    }
    is_extreme_ = (spec.op == ReduceOp::kMax || spec.op == ReduceOp::kMin || spec.op == ReduceOp::kAny ||
                   spec.op == ReduceOp::kAll);
    reads_raw_ = is_fused && CategoryOf(spec.compute) == Category::kFloating;
    if (source_.is_plain() && !source_.flips()) {
      direct_ = is_fused ? fused_ : source_.term() == nullptr ? fold_.block : nullptr;
    }
    is_contiguous_ = reduced_.strides[0][0] == item_;
  }

  int64_t count() const { return reduced_.count; }
  int64_t stage_bytes() const { return fold_.item; }
  int64_t most_columns() const { return kColumnBytes / fold_.item; }

  /// Folds of the reduced elements `part` for outputs whose elements begin at data + i * stride.
  void Run(const char* data, int64_t stride, int64_t columns, Range part, const char* shift, char* folds) {
    if (stride == item_ && !is_contiguous_ && columns >= 4) return Columns(data, columns, part, shift, folds);
    const int64_t n = part.end - part.begin;
    const bool is_row = is_contiguous_ && reduced_.rank == 1;
    const bool is_one_block = direct_ != nullptr && is_row && (n <= kSumBlock || is_extreme_);
    const bool is_short = fused_ != nullptr && reads_raw_ && is_row && n <= kShortBlocks * kSumBlock;
    for (int64_t i = 0; i < columns; ++i) {
      const char* own_shift = shift != nullptr ? shift + i * fold_.item : nullptr;
      char* out = folds + i * fold_.item;
      if (is_one_block) {
        direct_(data + i * stride + part.begin * item_, n, own_shift, out);
      } else if (is_short) {
        Short(data + i * stride + part.begin * item_, n, own_shift, out);
      } else {
        One(data + i * stride, part, own_shift, out);
      }
    }
  }

  /// Stored values from folds; both are `n` values of the stage type.
  void Finish(char* folds, int64_t n, const char* shift) const {
    kernels::Finish(spec_, pass_, stage_, folds, n, shift, reduced_.count);
    if (source_.flips()) Source::Flip(folds, n);
  }

 private:
  // The fold that FoldTree makes of n blocks.
  static float FoldBlocks(const float* blocks, int64_t n) {
    if (n == 1) return blocks[0];
    const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
    const int64_t left = floor == n ? n / 2 : floor;
    return FoldBlocks(blocks, left) + FoldBlocks(blocks + left, n - left);
  }

  // A fused sum of a row of at most kShortBlocks blocks.
  void Short(const char* data, int64_t n, const char* shift, char* out) const {
    if (n == 0) {
      std::memcpy(out, fold_.identity, sizeof(float));
      return;
    }
    float blocks[kShortBlocks] = {};
    int64_t count = 0;
    alignas(64) float buffer[4 * kSumBlock];
    for (int64_t begin = 0; begin < n; begin += 4 * kSumBlock) {
      int64_t rest = std::min(4 * kSumBlock, n - begin);
      const auto* x = reinterpret_cast<const float*>(data + begin * item_);
      if (direct_ == nullptr) {
        source_.ReadRaw(data + begin * item_, item_, reinterpret_cast<char*>(buffer), rest);
        x = buffer;
      }
      while (rest > 0) {
        const int64_t taken = rest >= 4 * kSumBlock ? 4 : rest >= 2 * kSumBlock ? 2 : 1;
        if (taken == 1) {
          fused_(x, std::min(rest, kSumBlock), shift, blocks + count);
        } else {
          (taken == 4 ? four_ : two_)(x, shift, blocks + count);
        }
        count += taken;
        x += taken * kSumBlock;
        rest -= taken * kSumBlock;
      }
    }
    const float sum = FoldBlocks(blocks, count);
    std::memcpy(out, &sum, sizeof sum);
  }

  void One(const char* data, Range part, const char* shift, char* out) {
    reduced_.base[0] = const_cast<char*>(data);
    alignas(64) char buffer[kSumBlock * 16];
    alignas(16) char blocks[4 * 16];
    int64_t filled = 0;
    FoldTree tree(fold_, 1);
    // Folds contiguous elements, all blocks but the last one full.
    const auto push = [&](const char* x, int64_t n, simd::BlockFn block) {
      for (; block == fused_ && four_ != nullptr && n >= 2 * kSumBlock;) {
        const int64_t count = n >= 4 * kSumBlock ? 4 : 2;
        (count == 4 ? four_ : two_)(x, shift, blocks);
        for (int64_t b = 0; b < count; ++b) tree.Push(blocks + b * fold_.item);
        x += count * kSumBlock * fold_.item;
        n -= count * kSumBlock;
      }
      for (; n > 0; n -= kSumBlock, x += kSumBlock * fold_.item) {
        block(x, std::min(n, kSumBlock), shift, blocks);
        tree.Push(blocks);
      }
    };
    // What is not folded from where it lies goes through the buffer: the terms are part of a fused sum, else not.
    const simd::BlockFn buffered = reads_raw_ ? fused_ : fold_.block;
    const int64_t room = fold_.item == 4 ? 4 * kSumBlock : kSumBlock;
    ForEachRow(reduced_, part, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      int64_t done = 0;
      while (done < n) {
        const char* src = ptrs[0] + done * strides[0];
        if (filled == 0 && direct_ != nullptr && strides[0] == item_ && n - done >= kSumBlock) {
          const int64_t count = (n - done) / kSumBlock * kSumBlock;
          push(src, count, direct_);
          done += count;
          continue;
        }
        const int64_t count = std::min(n - done, room - filled);
        char* to = buffer + filled * fold_.item;
        if (reads_raw_) {
          source_.ReadRaw(src, strides[0], to, count);
        } else {
          source_.Read(src, strides[0], to, count, shift, 0);
        }
        filled += count;
        done += count;
        // Back to whole blocks where they lie as soon as there is one.
        if (filled < room && (direct_ == nullptr || filled % kSumBlock != 0)) continue;
        push(buffer, filled, buffered);
        filled = 0;
      }
    });
    if (filled != 0) push(buffer, filled, buffered);
    tree.Finish(out);
  }

  void Columns(const char* data, int64_t columns, Range part, const char* shift, char* folds) {
    reduced_.base[0] = const_cast<char*>(data);
    alignas(64) char lanes[kSumLanes * kColumnBytes];
    alignas(64) char buffer[kColumnBytes];
    const int64_t bytes = columns * fold_.item;
    const bool is_direct = source_.is_plain() && source_.term() == nullptr && !source_.flips();
    int64_t filled = 0;
    FoldTree tree(fold_, columns);
    if (is_direct && fold_.columns != nullptr && reduced_.rank == 1 && columns >= 16) {
      const int64_t step = reduced_.strides[0][0];
      for (int64_t i = part.begin; i < part.end; i += kSumBlock) {
        fold_.columns(data + i * step, step, std::min(kSumBlock, part.end - i), columns, lanes);
        tree.Push(lanes);
      }
      return tree.Finish(folds);
    }
    // Lanes without an element change nothing.
    const auto used = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(part.end - part.begin)));
    const int64_t lane_count = std::min(kSumLanes, used);
    const auto push_lanes = [&] {
      for (int64_t width = lane_count / 2; width > 0; width /= 2) {
        for (int64_t l = 0; l < width; ++l) fold_.row(lanes + l * bytes, lanes + (l + width) * bytes, columns);
      }
      tree.Push(lanes);
    };
    ForEachRow(reduced_, part, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const char* row = ptrs[0] + i * strides[0];
        if (filled == 0) fold_.Fill(lanes, lane_count * columns);
        if (i + kAhead < n) {  // rows lie on pages of their own, which processors do not look ahead to
          const char* const next = row + kAhead * strides[0];
          for (int64_t b = 0; b < columns * item_; b += 64) __builtin_prefetch(next + b);
        }
        if (!is_direct) {
          source_.Read(row, item_, buffer, columns, shift, 1);
          row = buffer;
        }
        fold_.row(lanes + filled % kSumLanes * bytes, row, columns);
        if (++filled < kSumBlock) continue;
        push_lanes();
        filled = 0;
      }
    });
    if (filled != 0) push_lanes();
    tree.Finish(folds);
  }

  const ReduceSpec& spec_;
  int pass_;
  DType stage_;
  int64_t item_;
  Source source_;
  Fold fold_;
  Loop reduced_;
  simd::BlockFn direct_ = nullptr;  // a block of self as it is
  simd::BlockFn fused_ = nullptr;   // a block of values, terms included
  simd::BlocksFn two_ = nullptr;    // the same for several
  simd::BlocksFn four_ = nullptr;
  bool reads_raw_ = false;
  bool is_extreme_ = false;  // blocks of any length
  bool is_contiguous_ = false;
};

void Store(DType stage, const char* values, const TensorRef& out, char* to, int64_t stride, int64_t n) {
  FindCast(stage, out.dtype)(values, ItemSize(stage), to, stride, n);
}

// The type that out's value is cast from: uint64 was folded as int64, and the casts of both agree but to floating
// types.
DType StoredStage(const ReduceSpec& spec, DType stage) {
  const bool is_extreme = spec.op == ReduceOp::kMax || spec.op == ReduceOp::kMin;
  return is_extreme && spec.compute == DType::kUInt64 ? DType::kUInt64 : stage;
}

}  // namespace

int ReducePasses(ReduceOp op) {
  return op == ReduceOp::kLogSumExp || op == ReduceOp::kVar || op == ReduceOp::kStd ? 2 : 1;
}

DType ReduceStage(const ReduceSpec& spec) {
  const bool is_norm = spec.op >= ReduceOp::kNormZero && spec.op <= ReduceOp::kNormP;
  if (spec.op == ReduceOp::kAny || spec.op == ReduceOp::kAll) return DType::kBool;
  switch (spec.compute) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return DType::kFloat;
    case DType::kDouble: return DType::kDouble;
    case DType::kComplex64: return is_norm ? DType::kFloat : DType::kComplex64;
    case DType::kComplex128: return is_norm ? DType::kDouble : DType::kComplex128;
    case DType::kInt64:
    case DType::kUInt32:
    case DType::kUInt64: return DType::kInt64;
    default: return spec.op == ReduceOp::kMax || spec.op == ReduceOp::kMin ? DType::kInt32 : DType::kInt64;
  }
}

void Reduce(const ReduceSpec& spec, const TensorRef& self, uint32_t dim_mask, const TensorRef& out,
            const TensorRef* mean, Range range) {
  if (range.begin >= range.end) return;
  const DType stage = ReduceStage(spec);
  const int passes = ReducePasses(spec.op);
  Pass first(spec, 0, self, dim_mask);
  std::optional<Pass> second;
  if (passes == 2) second.emplace(spec, 1, self, dim_mask);
  Pass& last = passes == 2 ? *second : first;
  const TensorRef kept_part = SelectDims(self, ~dim_mask);
  const Loop kept = MakeLoop({&out, &kept_part, mean != nullptr ? mean : &out});
  const Range all{0, first.count()};
  const int64_t most = first.most_columns();
  alignas(64) char shifts[kColumnBytes];
  alignas(64) char folds[kColumnBytes];
  ForEachRow(kept, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += most) {
      const int64_t count = std::min(most, n - begin);
      const char* data = ptrs[1] + begin * strides[1];
      if (passes == 2) {
        first.Run(data, strides[1], count, all, nullptr, shifts);
        first.Finish(shifts, count, nullptr);
        if (mean != nullptr) Store(stage, shifts, *mean, ptrs[2] + begin * strides[2], strides[2], count);
      }
      last.Run(data, strides[1], count, all, shifts, folds);
      last.Finish(folds, count, shifts);
      Store(StoredStage(spec, stage), folds, out, ptrs[0] + begin * strides[0], strides[0], count);
    }
  });
}

void ReduceParts(const ReduceSpec& spec, int pass, const TensorRef& self, uint32_t dim_mask, const TensorRef* shift,
                 const TensorRef& partials, Range range) {
  if (range.begin >= range.end) return;
  Pass own(spec, pass, self, dim_mask);
  const TensorRef kept_part = SelectDims(self, ~dim_mask);
  TensorRef row = MakeContiguous(partials.data, partials.dtype, partials.rank - 1, partials.sizes + 1);
  const int64_t outputs = ElementCount(row);
  for (int64_t part = range.begin / outputs; part * outputs < range.end; ++part) {
    row.data = static_cast<char*>(partials.data) + part * outputs * own.stage_bytes();
    const Loop kept = MakeLoop({&row, &kept_part, shift != nullptr ? shift : &row});
    const Range columns{std::max<int64_t>(0, range.begin - part * outputs),
                        std::min(outputs, range.end - part * outputs)};
    const Range elements{part * kReducePart, std::min(own.count(), (part + 1) * kReducePart)};
    ForEachRow(kept, columns, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t begin = 0; begin < n; begin += own.most_columns()) {
        const int64_t count = std::min(own.most_columns(), n - begin);
        own.Run(ptrs[1] + begin * strides[1], strides[1], count, elements, ptrs[2] + begin * strides[2],
                ptrs[0] + begin * strides[0]);
      }
    });
  }
}

void ReducePartials(const ReduceSpec& spec, int pass, const TensorRef& partials, const TensorRef* shift, int64_t count,
                    const TensorRef& out, const TensorRef* mean, Range range) {
  if (range.begin >= range.end) return;
  const DType stage = ReduceStage(spec);
  const int64_t item = ItemSize(stage);
  const int passes = ReducePasses(spec.op);
  const Fold fold = FindFold(spec.op, pass, stage);
  const bool flips = StoredStage(spec, stage) != stage;
  const TensorRef row = MakeContiguous(partials.data, stage, partials.rank - 1, partials.sizes + 1);
  const int64_t outputs = ElementCount(row);
  const Loop kept = MakeLoop({&out, &row, shift != nullptr ? shift : &row, mean != nullptr ? mean : &out});
  const int64_t most = kColumnBytes / item;
  alignas(64) char folds[kColumnBytes];
  alignas(64) char values[kColumnBytes];
  alignas(64) char shifts[kColumnBytes];
  const CastFn gather = FindCast(stage, stage);
  ForEachRow(kept, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += most) {
      const int64_t columns = std::min(most, n - begin);
      const char* data = ptrs[1] + begin * strides[1];
      FoldTree tree(fold, columns);
      for (int64_t part = 0; part < partials.sizes[0]; ++part) {
        gather(data + part * outputs * item, strides[1], values, item, columns);
        tree.Push(values);
      }
      tree.Finish(folds);
      gather(ptrs[2] + begin * strides[2], strides[2], shifts, item, columns);
      Finish(spec, pass, stage, folds, columns, shifts, count);
      if (flips) Source::Flip(folds, columns);
      const bool is_last = pass + 1 == passes;
      Store(is_last ? StoredStage(spec, stage) : stage, folds, out, ptrs[0] + begin * strides[0], strides[0], columns);
      if (mean != nullptr) Store(stage, folds, *mean, ptrs[3] + begin * strides[3], strides[3], columns);
    }
  });
}

}  // namespace reprise::kernels
