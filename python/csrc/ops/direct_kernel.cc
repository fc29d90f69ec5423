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

// Rows of a table by their numbers: index_select along the first dim, and with it embeddings.
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
  };

  SelectRows(const std::string& name, const Table& table, std::string shapes, std::vector<reprise::Frame> place)
      : name_(name), table_(table), shapes_(std::move(shapes)), place_(std::move(place)) {}

  void Run(uint64_t) override {
    char* to = table_.to;
    for (int64_t i = 0; i < table_.count; ++i, to += table_.row_bytes) {
      const char* const at = table_.index + i * table_.index_stride;
      const int64_t row = table_.is_wide ? Load<int64_t>(at) : Load<int32_t>(at);
      if (row < 0 || row >= table_.rows) throw std::runtime_error("index out of range in self");
      std::memcpy(to, table_.from + row * table_.row_stride, static_cast<size_t>(table_.row_bytes));
    }
  }
  reprise::OperationInfo Describe() const override { return {name_, place_, shapes_}; }

 private:
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

std::unique_ptr<reprise::Operation> MakeSelectRows(const std::string& name, c10::ArrayRef<c10::IValue> arguments,
                                                   c10::ArrayRef<at::Tensor> made) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  const at::Tensor& out = made[0];
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.device().type() == c10::kPrivateUse1 && !tensor.is_conj() && !tensor.is_neg();
  };
  const bool is_wide = index.scalar_type() == at::kLong;
  if (self.dim() == 0 || arguments[1].toInt() != 0 || index.dim() != 1 || !is_plain(self) || !is_plain(index) ||
      !is_plain(out) || !out.is_contiguous() || (!is_wide && index.scalar_type() != at::kInt) ||
      out.scalar_type() != self.scalar_type()) {
    return nullptr;
  }
  int64_t elements = 1;
  for (int64_t d = self.dim(); d-- > 1; elements *= self.size(d)) {
    if (self.size(d) != 1 && self.stride(d) != elements) return nullptr;
  }
  const auto item = static_cast<int64_t>(self.element_size());
  for (const at::Tensor* tensor : {&self, &index, &out}) NoteUse(*tensor);
  std::vector<reprise::Frame> place = StackOfLaunch();
  std::string shapes = place.empty() ? std::string() : ShapesText(arguments, made);
  return std::make_unique<SelectRows>(
      name,
      SelectRows::Table{.to = static_cast<char*>(out.mutable_data_ptr()),
                        .from = static_cast<const char*>(self.const_data_ptr()),
                        .index = static_cast<const char*>(index.const_data_ptr()),
                        .count = index.size(0),
                        .index_stride = index.stride(0) * static_cast<int64_t>(index.element_size()),
                        .is_wide = is_wide,
                        .rows = self.size(0),
                        .row_stride = self.stride(0) * item,
                        .row_bytes = elements * item},
      std::move(shapes), std::move(place));
}

}  // namespace

DirectKernel FindDirectKernel(const std::string& name) {
  return name == "aten::index_select" ? MakeSelectRows : nullptr;
}

}  // namespace torch_npu
