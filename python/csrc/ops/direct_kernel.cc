// SPDX-License-Identifier: Apache-2.0
#include "ops/direct_kernel.h"

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/liveness.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

// Rows of a table by their numbers: index_select along the first dim, and with it embeddings; an index that is one
// tensor of numbers in the first place, which may count from the end.
class SelectRows final : public reprise::Operation {
 public:
  struct Table {
    char* to;
    const char* from;
    const char* index;
    int64_t count;         // of indices
    int64_t index_stride;  // bytes
    bool is_wide;          // int64, else int32
    int64_t rows;
    int64_t row_stride;  // bytes
    int64_t row_bytes;
    bool wraps;  // numbers below 0 count from the end
  };

  SelectRows(const std::string& name, const Table& table, std::string shapes, std::vector<reprise::Frame> place)
      : name_(name), table_(table), shapes_(std::move(shapes)), place_(std::move(place)) {}

  void Run(uint64_t) override {
    if (table_.count * table_.row_bytes < kLeastShared) return Copy(0, table_.count);
    reprise::ParallelFor(table_.count, 2 * table_.row_bytes, [this](int64_t begin, int64_t end) { Copy(begin, end); });
  }
  reprise::OperationInfo Describe() const override { return {name_, place_, shapes_}; }

 private:
  // Less is not worth asking who else could copy.
  static constexpr int64_t kLeastShared = 16 << 10;

  void Copy(int64_t begin, int64_t end) const {
    char* to = table_.to + begin * table_.row_bytes;
    for (int64_t i = begin; i < end; ++i, to += table_.row_bytes) {
      const char* const at = table_.index + i * table_.index_stride;
      const int64_t given = table_.is_wide ? Load<int64_t>(at) : Load<int32_t>(at);
      const int64_t row = given < 0 && table_.wraps ? given + table_.rows : given;
      if (row < 0 || row >= table_.rows) throw std::runtime_error(WordsFor(given));
      std::memcpy(to, table_.from + row * table_.row_stride, static_cast<size_t>(table_.row_bytes));
    }
  }

  // As the CPU's kernels say it.
  std::string WordsFor(int64_t given) const {
    if (!table_.wraps) return "index out of range in self";
    return "index " + std::to_string(given) + " is out of bounds for dimension 0 with size " +
           std::to_string(table_.rows);
  }
  template <class T>
  static int64_t Load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  const std::string& name_;
  const Table table_;
  const std::string shapes_;
  const std::vector<reprise::Frame> place_;
};

// `wraps`: numbers below 0 count from the end. Null where the tensors are not plain ones.
std::unique_ptr<reprise::Operation> MakeRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                             c10::ArrayRef<at::Tensor> made, const at::Tensor& index,
                                             const at::Tensor& out, bool wraps) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.device().type() == c10::kPrivateUse1 && !tensor.is_conj() && !tensor.is_neg();
  };
  const bool is_wide = index.scalar_type() == at::kLong;
  if (self.dim() == 0 || !is_plain(self) || !is_plain(index) || !is_plain(out) || !out.is_contiguous() ||
      (!is_wide && index.scalar_type() != at::kInt) || out.scalar_type() != self.scalar_type()) {
    return nullptr;
  }
  if (index.dim() != 1 && !index.is_contiguous()) return nullptr;
  int64_t elements = 1;
  for (int64_t d = self.dim(); d-- > 1; elements *= self.size(d)) {
    if (self.size(d) != 1 && self.stride(d) != elements) return nullptr;
  }
  const auto item = static_cast<int64_t>(self.element_size());
  const auto index_item = static_cast<int64_t>(index.element_size());
  for (const at::Tensor* tensor : {&self, &index, &out}) NoteUse(*tensor);
  std::vector<reprise::Frame> place = StackOfLaunch();
  std::string shapes = place.empty() ? std::string() : ShapesText(arguments, made);
  return std::make_unique<SelectRows>(
      name,
      SelectRows::Table{.to = static_cast<char*>(out.mutable_data_ptr()),
                        .from = static_cast<const char*>(self.const_data_ptr()),
                        .index = static_cast<const char*>(index.const_data_ptr()),
                        .count = index.numel(),
                        .index_stride = index.dim() == 1 ? index.stride(0) * index_item : index_item,
                        .is_wide = is_wide,
                        .rows = self.size(0),
                        .row_stride = self.stride(0) * item,
                        .row_bytes = elements * item,
                        .wraps = wraps},
      std::move(shapes), std::move(place));
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

}  // namespace

DirectKernel FindDirectKernel(const std::string& name) {
  if (name == "aten::index_select") return MakeSelectRows;
  if (name == "aten::index.Tensor_out") return MakeIndexedRows;
  return nullptr;
}

}  // namespace torch_npu
