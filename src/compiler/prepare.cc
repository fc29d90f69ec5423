// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "compiler/storage.h"

namespace reprise::compiler {
namespace {

bool IsSameOperand(const kernels::TensorRef& a, const kernels::TensorRef& b) {
  return a.dtype == b.dtype && a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

// Of tasks that read equal operands of one constant there is one form.
class Preparation {
 public:
  explicit Preparation(Lowered& lowered) : lowered_(lowered) {
    if (lowered.storages.empty()) return;
    const Storage& last = lowered.storages.back();
    next_address_ = (last.address + last.bytes + 2 * kStorageAlignment) & ~(kStorageAlignment - 1);
  }

  void Visit(ops::Launch& launch) {
    if (launch.find_prepared == nullptr) return;
    const ops::PreparedForm form = launch.find_prepared(launch);
    if (form.bytes == 0 || launch.uses[form.operand].slot < 0) return;
    const kernels::TensorRef& operand = launch.refs[form.operand];
    const auto address = reinterpret_cast<uintptr_t>(operand.data);
    const StorageId source = lowered_.Find(address);
    const Storage& constant = lowered_.storages[source];
    if (constant.kind != Storage::Kind::kConstant || constant.form || constant.constant == nullptr) return;
    const uint64_t offset = address - constant.address;
    if (offset + ops::ExtentBytes(operand) > constant.constant->bytes.size()) return;
    const StorageId made = FindOrAdd(source, operand, offset, form);
    launch.Adopt(form, reinterpret_cast<void*>(lowered_.storages[made].address));  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  StorageId FindOrAdd(StorageId source, const kernels::TensorRef& operand, uint64_t offset,
                      const ops::PreparedForm& form) {
    for (const auto& [from, made] : made_) {
      const Storage& storage = lowered_.storages[made];
      if (from == source && storage.form->offset == offset && storage.form->write == form.write &&
          storage.bytes == form.bytes && IsSameOperand(storage.form->operand, operand)) {
        return made;
      }
    }
    Storage storage;
    storage.kind = Storage::Kind::kConstant;
    storage.address = next_address_;
    storage.bytes = form.bytes;
    storage.constant = lowered_.storages[source].constant;
    storage.form = FormOfConstant{operand, offset, form.write};
    storage.form->operand.data = nullptr;
    next_address_ += (form.bytes + 2 * kStorageAlignment - 1) & ~(kStorageAlignment - 1);
    lowered_.storages.push_back(std::move(storage));
    made_.emplace_back(source, static_cast<StorageId>(lowered_.storages.size() - 1));
    return made_.back().second;
  }

  Lowered& lowered_;
  uint64_t next_address_ = 0;
  std::vector<std::pair<StorageId, StorageId>> made_;
};

}  // namespace

void PrepareConstants(Lowered& lowered) {
  Preparation preparation(lowered);
  for (LoweredTask& task : lowered.tasks) preparation.Visit(*task.launch);
}

}  // namespace reprise::compiler
