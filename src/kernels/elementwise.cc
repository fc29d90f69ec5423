// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <cstring>
#include <optional>

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
