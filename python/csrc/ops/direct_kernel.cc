// SPDX-License-Identifier: Apache-2.0
#include "ops/direct_kernel.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/liveness.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

// RowNumbers of rows.
struct RowNumbers {
  const char* data;
  int64_t count;
  int64_t stride;  // bytes
  bool is_wide;    // int64, else int32

  explicit RowNumbers(const at::Tensor& index)
      : data(static_cast<const char*>(index.const_data_ptr())),
        count(index.numel()),
        stride((index.dim() == 1 ? index.stride(0) : 1) * static_cast<int64_t>(index.element_size())),
        is_wide(index.scalar_type() == at::kLong) {}

  int64_t operator[](int64_t i) const {
    const char* const at = data + i * stride;
    return is_wide ? Load<int64_t>(at) : Load<int32_t>(at);
  }

 private:
  template <class T>
  static int64_t Load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
};

// As the CPU's kernels say it.
std::string OutOfBounds(int64_t number, int64_t rows) {
  return "index " + std::to_string(number) + " is out of bounds for dimension 0 with size " + std::to_string(rows);
}

// What is known of each where it is launched.
class DirectOperation : public reprise::Operation {
 public:
  DirectOperation(const std::string& name, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> made)
      : name_(name), place_(StackOfLaunch()), shapes_(place_.empty() ? std::string() : ShapesText(arguments, made)) {}
  reprise::OperationInfo Describe() const override { return {name_, place_, shapes_}; }

 private:
  const std::string& name_;
  const std::vector<reprise::Frame> place_;
  const std::string shapes_;
};

// Rows of a table by their numbers: index_select along the first dim, and with it embeddings; an index that is one
// tensor of numbers in the first place, which may count from the end.
class SelectRows final : public DirectOperation {
 public:
  struct Table {
    char* to;
    const char* from;
    RowNumbers numbers;
    int64_t rows;
    int64_t row_stride;  // bytes
    int64_t row_bytes;
    bool wraps;  // numbers below 0 count from the end
  };

  SelectRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> made,
             const Table& table)
      : DirectOperation(name, arguments, made), table_(table) {}

  void Run(uint64_t) override {
    reprise::ParallelFor(table_.numbers.count, 2 * table_.row_bytes,
                         [this](int64_t begin, int64_t end) { Copy(begin, end); });
  }

 private:
  void Copy(int64_t begin, int64_t end) const {
    char* to = table_.to + begin * table_.row_bytes;
    for (int64_t i = begin; i < end; ++i, to += table_.row_bytes) {
      const int64_t given = table_.numbers[i];
      const int64_t row = given < 0 && table_.wraps ? given + table_.rows : given;
      if (row < 0 || row >= table_.rows) throw std::runtime_error(WordsFor(given));
      std::memcpy(to, table_.from + row * table_.row_stride, static_cast<size_t>(table_.row_bytes));
    }
  }
  std::string WordsFor(int64_t given) const {
    return table_.wraps ? OutOfBounds(given, table_.rows) : "index out of range in self";
  }

  const Table table_;
};

// Rows are added to rows of a table by their numbers: index_add along the first dim. Each element gets its addends in
// the order of the numbers. Nothing is written if a number is no row.
template <class T>
class AddRows final : public DirectOperation {
 public:
  struct Table {
    T* to;
    const T* self;  // what is there first; `to` where that works in place
    const T* from;
    RowNumbers numbers;
    int64_t rows;
    int64_t columns;
  };

  AddRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments, const Table& table)
      : DirectOperation(name, arguments, {}), table_(table) {}

  void Run(uint64_t) override {
    const int64_t count = table_.numbers.count;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = table_.numbers[i];
      if (row < 0 || row >= table_.rows) throw std::runtime_error(OutOfBounds(row, table_.rows));
    }
    const int64_t item_bytes = 3 * kColumns * (count + table_.rows) * static_cast<int64_t>(sizeof(T));
    reprise::ParallelFor((table_.columns + kColumns - 1) / kColumns, item_bytes, [this](int64_t begin, int64_t end) {
      Add(begin * kColumns, std::min(table_.columns, end * kColumns));
    });
  }

 private:
  static constexpr int64_t kColumns = 64 / static_cast<int64_t>(sizeof(T));  // of a part: a line of the caches

  void Add(int64_t begin, int64_t end) const {
    const int64_t columns = table_.columns;
    if (table_.to != table_.self) {
      const auto bytes = static_cast<size_t>(end - begin) * sizeof(T);
      for (int64_t at = begin; at < table_.rows * columns; at += columns) {
        std::memcpy(table_.to + at, table_.self + at, bytes);
      }
    }
    for (int64_t i = 0; i < table_.numbers.count; ++i) {
      T* const to = table_.to + table_.numbers[i] * columns;
      const T* const from = table_.from + i * columns;
      int64_t c = begin;
      for (; c + kColumns <= end; c += kColumns) {
        T sums[kColumns];
        for (int64_t k = 0; k < kColumns; ++k) sums[k] = to[c + k] + from[c + k];
        std::memcpy(to + c, sums, sizeof sums);
      }
      for (; c < end; ++c) to[c] += from[c];
    }
  }

  const Table table_;
};

bool IsPlain(const at::Tensor& tensor) {
  return tensor.device().type() == c10::kPrivateUse1 && !tensor.is_conj() && !tensor.is_neg();
}

bool AreNumbers(const at::Tensor& index) { return index.scalar_type() == at::kLong || index.scalar_type() == at::kInt; }

// `wraps`: numbers below 0 count from the end. Null where the tensors are not plain ones.
std::unique_ptr<reprise::Operation> MakeRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                             c10::ArrayRef<at::Tensor> made, const at::Tensor& index,
                                             const at::Tensor& out, bool wraps) {
  const at::Tensor& self = arguments[0].toTensor();
  if (self.dim() == 0 || !IsPlain(self) || !IsPlain(index) || !IsPlain(out) || !out.is_contiguous() ||
      !AreNumbers(index) || out.scalar_type() != self.scalar_type()) {
    return nullptr;
  }
  if (index.dim() != 1 && !index.is_contiguous()) return nullptr;
  int64_t elements = 1;
  for (int64_t d = self.dim(); d-- > 1; elements *= self.size(d)) {
    if (self.size(d) != 1 && self.stride(d) != elements) return nullptr;
  }
  const auto item = static_cast<int64_t>(self.element_size());
  for (const at::Tensor* tensor : {&self, &index, &out}) NoteUse(*tensor);
  return std::make_unique<SelectRows>(name, arguments, made,
                                      SelectRows::Table{.to = static_cast<char*>(out.mutable_data_ptr()),
                                                        .from = static_cast<const char*>(self.const_data_ptr()),
                                                        .numbers = RowNumbers(index),
                                                        .rows = self.size(0),
                                                        .row_stride = self.stride(0) * item,
                                                        .row_bytes = elements * item,
                                                        .wraps = wraps});
}

std::unique_ptr<reprise::Operation> MakeSelectRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                                   c10::ArrayRef<at::Tensor> made) {
  const at::Tensor& index = arguments[2].toTensor();
  if (arguments[1].toInt() != 0 || index.dim() != 1) return nullptr;
  return MakeRows(name, arguments, made, index, made[0], false);
}

// self[index], and nothing else in the brackets. PyTorch makes the result and calls the form with out=.
std::unique_ptr<reprise::Operation> MakeIndexedRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                                    c10::ArrayRef<at::Tensor> made) {
  const c10::List<c10::IValue> indices = arguments[1].toList();
  if (indices.size() != 1) return nullptr;
  const c10::IValue first = indices.get(0);
  if (!first.isTensor()) return nullptr;
  const at::Tensor& index = first.toTensor();
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& out = arguments[2].toTensor();
  if (out.is_alias_of(self) || out.is_alias_of(index)) return nullptr;  // a mistake that the CPU kernel reports
  if (self.dim() == 0 || out.dim() != index.dim() + self.dim() - 1) return nullptr;
  if (out.sizes().slice(0, static_cast<size_t>(index.dim())) != index.sizes()) return nullptr;
  if (out.sizes().slice(static_cast<size_t>(index.dim())) != self.sizes().slice(1)) return nullptr;
  return MakeRows(name, arguments, made, index, out, true);
}

template <class T>
std::unique_ptr<reprise::Operation> MakeAddRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                                const at::Tensor& out) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  const at::Tensor& source = arguments[3].toTensor();
  for (const at::Tensor* tensor : {&self, &index, &source, &out}) NoteUse(*tensor);
  return std::make_unique<AddRows<T>>(name, arguments,
                                      typename AddRows<T>::Table{.to = out.mutable_data_ptr<T>(),
                                                                 .self = self.const_data_ptr<T>(),
                                                                 .from = source.const_data_ptr<T>(),
                                                                 .numbers = RowNumbers(index),
                                                                 .rows = out.size(0),
                                                                 .columns = out.numel() / out.size(0)});
}

// self, dim, index, source, alpha, out. PyTorch calls this form for the others, too.
std::unique_ptr<reprise::Operation> MakeIndexAdd(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                                 c10::ArrayRef<at::Tensor>) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  const at::Tensor& source = arguments[3].toTensor();
  const at::Tensor& out = arguments[5].toTensor();
  const at::Scalar alpha = arguments[4].toScalar();
  if (alpha.isComplex() || alpha.toDouble() != 1 || arguments[1].toInt() != 0) return nullptr;
  if (out.dim() < 2 || out.numel() == 0 || index.dim() != 1 || index.numel() == 0) return nullptr;
  if (!AreNumbers(index)) return nullptr;
  for (const at::Tensor* tensor : {&self, &source, &out}) {
    if (!IsPlain(*tensor) || !tensor->is_contiguous() || tensor->scalar_type() != out.scalar_type()) return nullptr;
  }
  const bool fits = self.sizes() == out.sizes() && source.dim() == out.dim() && source.size(0) == index.numel() &&
                    source.sizes().slice(1) == out.sizes().slice(1);
  if (!fits || !IsPlain(index) || out.is_alias_of(index) || out.is_alias_of(source)) return nullptr;
  if (out.is_alias_of(self) && out.const_data_ptr() != self.const_data_ptr()) return nullptr;
  if (out.scalar_type() == at::kFloat) return MakeAddRows<float>(name, arguments, out);
  if (out.scalar_type() == at::kDouble) return MakeAddRows<double>(name, arguments, out);
  return nullptr;
}

}  // namespace

DirectKernel FindDirectKernel(const std::string& name) {
  if (name == "aten::index_select") return MakeSelectRows;
  if (name == "aten::index.Tensor_out") return MakeIndexedRows;
  if (name == "aten::index_add.out") return MakeIndexAdd;
  return nullptr;
}

}  // namespace torch_npu
