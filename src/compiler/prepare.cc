// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

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
  explicit Preparation(Lowered& lowered) : lowered_(lowered) {}

  void Visit(ops::Launch& launch) {
    if (launch.find_prepared == nullptr) return;
    const ops::PreparedForm form = launch.find_prepared(launch);
    if (form.bytes == 0) return;
    const std::optional<Place> place = PlaceOf(launch, form.operand);
    if (!place) return;
    FormOfConstant made{launch.refs[form.operand], place->offset, form.write, nullptr, {}};
    launch.Adopt(form, PointerTo(FindOrAdd(place->source, std::move(made), form.bytes)));
  }

  // Whether `task` packs a constant for `reader`, which reads it packed from here on.
  bool Pack(const LoweredTask& task, LoweredTask& reader) {
    const ops::Launch& packing = *task.launch;
    ops::Launch& launch = *reader.launch;
    if (launch.packed_operand < 0 || reader.node != task.node || reader.workspace != task.workspace) return false;
    const auto packed = static_cast<size_t>(launch.packed_operand);
    if (launch.uses[packed].slot != ops::OperandUse::kTemporary || packing.uses[0].slot != launch.uses[packed].slot ||
        launch.refs[packed].data != packing.refs[0].data) {
      return false;
    }
    const std::optional<Place> place = PlaceOf(packing, 1);
    if (!place) return false;
    packing.Retain();
    FormOfConstant made{packing.refs[1], place->offset, nullptr, {&packing, ReleaseLaunch()}, {}};
    made.key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(packing.kernel))};
    packing.tell_packing(packing, made.key);
    ops::TakePacked(launch, PointerTo(FindOrAdd(place->source, std::move(made), ops::ExtentBytes(packing.refs[0]))));
    return true;
  }

 private:
  // Of an operand in a constant.
  struct Place {
    StorageId source;
    uint64_t offset;
  };
  std::optional<Place> PlaceOf(const ops::Launch& launch, size_t i) const {
    if (launch.uses[i].slot < 0) return std::nullopt;
    const auto address = reinterpret_cast<uintptr_t>(launch.refs[i].data);
    const StorageId source = lowered_.Find(address);
    const Storage& constant = lowered_.storages[source];
    if (constant.kind != Storage::Kind::kConstant || constant.form || constant.constant == nullptr) return std::nullopt;
    const uint64_t offset = address - constant.address;
    if (offset + ops::ExtentBytes(launch.refs[i]) > constant.constant->bytes.size()) return std::nullopt;
    return Place{source, offset};
  }
  void* PointerTo(StorageId id) const {
    return reinterpret_cast<void*>(lowered_.storages[id].address);  // NOLINT(performance-no-int-to-ptr)
  }

  StorageId FindOrAdd(StorageId source, FormOfConstant form, uint64_t bytes) {
    for (const auto& [from, made] : made_) {
      const Storage& storage = lowered_.storages[made];
      if (from == source && storage.form->offset == form.offset && storage.form->write == form.write &&
          storage.form->key == form.key && storage.bytes == bytes &&
          IsSameOperand(storage.form->operand, form.operand)) {
        return made;
      }
    }
    Storage storage;
    storage.kind = Storage::Kind::kConstant;
    storage.bytes = bytes;
    storage.constant = lowered_.storages[source].constant;
    storage.form = std::move(form);
    storage.form->operand.data = nullptr;
    made_.emplace_back(source, lowered_.Add(std::move(storage)));
    return made_.back().second;
  }

  Lowered& lowered_;
  std::vector<std::pair<StorageId, StorageId>> made_;
};

}  // namespace

void PackConstants(Lowered& lowered) {
  Preparation preparation(lowered);
  std::vector<LoweredTask>& tasks = lowered.tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].launch->tell_packing == nullptr) continue;
    for (size_t reader = i + 1; reader < tasks.size() && tasks[reader].node == tasks[i].node; ++reader) {
      if (!preparation.Pack(tasks[i], tasks[reader])) continue;
      tasks[i].launch = nullptr;
      break;
    }
  }
  std::erase_if(tasks, [](const LoweredTask& task) { return task.launch == nullptr; });
}

void PrepareConstants(Lowered& lowered) {
  Preparation preparation(lowered);
  for (LoweredTask& task : lowered.tasks) preparation.Visit(*task.launch);
}

}  // namespace reprise::compiler
