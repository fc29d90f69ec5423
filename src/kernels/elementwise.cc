// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/arithmetic.h"
#include "kernels/simd/rows.h"

namespace reprise::kernels {
namespace {

// --- One contiguous row --------------------------------------------------------

template <class T>
inline constexpr bool kHasVectorRow = std::is_same_v<T, float> || kIsReducedFloat<T>;

template <class T>
void BinaryRow(BinaryOp op, const T* a, const T* b, T* out, int64_t n, MathType<T> alpha) {
  if constexpr (kHasVectorRow<T>) {
    simd::BinaryRow(op, DTypeOf<T>(), a, b, out, n, alpha);
  } else if constexpr (std::is_same_v<T, Bool>) {
    const uint8_t scale = alpha.byte;
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t x = a[i].byte != 0;
      const uint8_t y = b[i].byte != 0;
      uint8_t result = 0;
      switch (op) {
        case BinaryOp::kAdd: result = x | (scale & y); break;
        case BinaryOp::kSub: result = x ^ (scale & y); break;
        case BinaryOp::kMul:
        case BinaryOp::kDiv: result = x & y; break;
      }
      out[i].byte = result;
    }
  } else {
    switch (op) {
      case BinaryOp::kAdd:
        for (int64_t i = 0; i < n; ++i) out[i] = AddValue(a[i], MulValue(alpha, b[i]));
        break;
      case BinaryOp::kSub:
        for (int64_t i = 0; i < n; ++i) out[i] = SubValue(a[i], MulValue(alpha, b[i]));
        break;
      case BinaryOp::kMul:
        for (int64_t i = 0; i < n; ++i) out[i] = MulValue(a[i], b[i]);
        break;
      case BinaryOp::kDiv:
        for (int64_t i = 0; i < n; ++i) out[i] = DivValue(a[i], b[i]);
        break;
    }
  }
}

template <class T>
void UnaryRow(UnaryOp op, const T* a, T* out, int64_t n) {
  if constexpr (kHasVectorRow<T>) {
    simd::UnaryRow(op, DTypeOf<T>(), a, out, n);
  } else if constexpr (std::is_same_v<T, Bool>) {
    for (int64_t i = 0; i < n; ++i) out[i].byte = a[i].byte != 0;
  } else {
    switch (op) {
      case UnaryOp::kRelu:
        if constexpr (!kIsComplex<T>) {
          for (int64_t i = 0; i < n; ++i) out[i] = ReluValue(a[i]);
        }
        break;
      case UnaryOp::kExp:
        if constexpr (!std::is_integral_v<T>) {
          for (int64_t i = 0; i < n; ++i) out[i] = std::exp(a[i]);
        }
        break;
      case UnaryOp::kNeg:
        for (int64_t i = 0; i < n; ++i) out[i] = NegValue(a[i]);
        break;
      case UnaryOp::kAbs:
        for (int64_t i = 0; i < n; ++i) out[i] = AbsValue(a[i]);
        break;
      case UnaryOp::kCopy:
        for (int64_t i = 0; i < n; ++i) out[i] = a[i];
        break;
    }
  }
}

// --- The same as functions to be looked up -------------------------------------------

template <class T, BinaryOp kOp>
void BinaryRowCall(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  MathType<T> alpha;
  std::memcpy(&alpha, row.alpha, sizeof alpha);
  BinaryRow(kOp, static_cast<const T*>(row.a) + begin, static_cast<const T*>(row.b) + begin,
            static_cast<T*>(row.out) + begin, end - begin, alpha);
}

template <class T, UnaryOp kOp>
void UnaryRowCall(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  UnaryRow(kOp, static_cast<const T*>(row.a) + begin, static_cast<T*>(row.out) + begin, end - begin);
}

// --- Rows of any layout and type ------------------------------------------------

constexpr int64_t kBlock = 256;  // elements staged at a time: 4 KiB per operand at most

struct Staging {
  alignas(64) char bytes[kBlock * 16];
};

bool IsDirect(DType dtype, DType compute, int64_t stride, int64_t item, int64_t n) {
  return dtype == compute && (stride == item || n == 1);
}

// Brings input rows into `compute` type, block by block.
class InputRow {
 public:
  InputRow(DType dtype, DType compute) : dtype_(dtype), compute_(compute), item_(ItemSize(compute)) {}

  // Starts a row; returns whether Block() will need staging.
  bool Begin(const char* data, int64_t stride, int64_t n, Staging& staging) {
    data_ = data;
    stride_ = stride;
    is_direct_ = IsDirect(dtype_, compute_, stride, item_, n);
    if (is_direct_) return false;
    if (cast_ == nullptr) cast_ = FindCast(dtype_, compute_);
    if (stride == 0) cast_(data, 0, staging.bytes, item_, std::min(n, kBlock));
    return true;
  }

  // Elements [begin, begin + n) of the row, contiguous and of compute type.
  const char* Block(int64_t begin, int64_t n, Staging& staging) const {
    if (is_direct_) return data_ + begin * item_;
    if (stride_ != 0) cast_(data_ + begin * stride_, stride_, staging.bytes, item_, n);
    return staging.bytes;
  }

 private:
  DType dtype_;
  DType compute_;
  int64_t item_;
  CastFn cast_ = nullptr;  // looked up when the first row needs it
  const char* data_ = nullptr;
  int64_t stride_ = 0;
  bool is_direct_ = false;
};

// Calls row(inputs, out, n) with contiguous pointers of compute type for every
// piece of the loop; stages whatever is strided or of another type.
template <int kInputs, class Row>
void RunRows(const Loop& loop, Range range, const TensorRef& out, const TensorRef* const* inputs, DType compute,
             Row&& row) {
  static_assert(kInputs == 1 || kInputs == 2);
  const int64_t item = ItemSize(compute);
  CastFn store = nullptr;
  InputRow readers[2] = {InputRow(inputs[0]->dtype, compute), InputRow(inputs[kInputs - 1]->dtype, compute)};
  Staging staging[kInputs];
  Staging result;
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    const bool out_is_direct = IsDirect(out.dtype, compute, strides[0], item, n);
    if (!out_is_direct && store == nullptr) store = FindCast(compute, out.dtype);
    bool any_staged = !out_is_direct;
    for (int k = 0; k < kInputs; ++k) {
      any_staged |= readers[k].Begin(ptrs[k + 1], strides[k + 1], n, staging[k]);
    }
    const int64_t step = any_staged ? kBlock : n;
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t count = std::min(step, n - begin);
      const char* blocks[kInputs];
      for (int k = 0; k < kInputs; ++k) blocks[k] = readers[k].Block(begin, count, staging[k]);
      if (out_is_direct) {
        row(blocks, ptrs[0] + begin * item, count);
      } else {
        row(blocks, result.bytes, count);
        store(result.bytes, item, ptrs[0] + begin * strides[0], strides[0], count);
      }
    }
  });
}

}  // namespace

bool Supports(BinaryOp, DType compute) { return IsKnown(compute); }

bool Supports(UnaryOp op, DType compute) {
  if (!IsKnown(compute)) return false;
  const Category category = CategoryOf(compute);
  switch (op) {
    case UnaryOp::kRelu: return category != Category::kComplex;
    case UnaryOp::kExp: return category >= Category::kFloating;
    case UnaryOp::kNeg: return category != Category::kBool;
    case UnaryOp::kAbs:
    case UnaryOp::kCopy: return true;
  }
  return false;
}

void Binary(BinaryOp op, const TensorRef& a, const TensorRef& b, const Scalar& alpha, DType compute,
            const TensorRef& out, Range range) {
  if (range.begin >= range.end) return;
  const Loop loop = MakeLoop({&out, &a, &b});
  const TensorRef* const inputs[2] = {&a, &b};
  DispatchAll(compute, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const bool uses_alpha = op == BinaryOp::kAdd || op == BinaryOp::kSub;
    using Math = MathType<T>;
    const Math scale = uses_alpha ? alpha.As<Math>() : Math();
    RunRows<2>(loop, range, out, inputs, compute, [&](const char* const* blocks, char* result, int64_t n) {
      BinaryRow(op, reinterpret_cast<const T*>(blocks[0]), reinterpret_cast<const T*>(blocks[1]),
                reinterpret_cast<T*>(result), n, scale);
    });
  });
}

void Unary(UnaryOp op, const TensorRef& a, DType compute, const TensorRef& out, Range range) {
  if (range.begin >= range.end) return;
  const Loop loop = MakeLoop({&out, &a});
  const TensorRef* const inputs[1] = {&a};
  DispatchAll(compute, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    RunRows<1>(loop, range, out, inputs, compute, [&](const char* const* blocks, char* result, int64_t n) {
      UnaryRow(op, reinterpret_cast<const T*>(blocks[0]), reinterpret_cast<T*>(result), n);
    });
  });
}

RowFn FindBinaryRow(BinaryOp op, DType dtype, bool is_scaled, bool b_is_single) {
  return DispatchAll(dtype, [&](auto tag) -> RowFn {
    using T = typename decltype(tag)::Type;
    if constexpr (kHasVectorRow<T>) {
      return simd::FindBinaryRow(op, dtype, is_scaled, b_is_single);
    } else {
      if (b_is_single) return nullptr;
      switch (op) {
        case BinaryOp::kAdd: return BinaryRowCall<T, BinaryOp::kAdd>;
        case BinaryOp::kSub: return BinaryRowCall<T, BinaryOp::kSub>;
        case BinaryOp::kMul: return BinaryRowCall<T, BinaryOp::kMul>;
        case BinaryOp::kDiv: return BinaryRowCall<T, BinaryOp::kDiv>;
      }
      return nullptr;
    }
  });
}

RowFn FindUnaryRow(UnaryOp op, DType dtype) {
  return DispatchAll(dtype, [&](auto tag) -> RowFn {
    using T = typename decltype(tag)::Type;
    if constexpr (kHasVectorRow<T>) {
      return simd::FindUnaryRow(op, dtype);
    } else {
      switch (op) {
        case UnaryOp::kCopy: return UnaryRowCall<T, UnaryOp::kCopy>;
        case UnaryOp::kRelu: return UnaryRowCall<T, UnaryOp::kRelu>;
        case UnaryOp::kExp: return UnaryRowCall<T, UnaryOp::kExp>;
        case UnaryOp::kNeg: return UnaryRowCall<T, UnaryOp::kNeg>;
        case UnaryOp::kAbs: return UnaryRowCall<T, UnaryOp::kAbs>;
      }
      return nullptr;
    }
  });
}

}  // namespace reprise::kernels
