// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>
#include <vector>

#include "compiler/storage.h"

namespace reprise::compiler {
namespace {

// Makes one launch of several, each of which reads what the one before writes (ops::Launch::fuse).
class Fuser {
 public:
  explicit Fuser(Lowered& lowered) : lowered_(lowered) {}

  void Run() {
    for (const LoweredTask& task : lowered_.tasks) {
      for (size_t i = 0; i < task.launch->refs.size(); ++i) {
        if (task.launch->uses[i].slot >= 0) ++touches_[StorageOf(task, i)];
      }
      if (task.workspace != 0) ++touches_[lowered_.Find(task.workspace)];
    }
    for (size_t at = 0; at < lowered_.tasks.size();) {
      size_t count = 1;
      while (Goes(at, count)) ++count;
      at += count > 1 ? FuseSome(at, count) : 1;
    }
    std::erase_if(lowered_.tasks, [](const LoweredTask& task) { return task.launch == nullptr; });
  }

 private:
  StorageId StorageOf(const LoweredTask& task, size_t operand) const {
    return lowered_.Find(reinterpret_cast<uintptr_t>(task.launch->refs[operand].data));
  }

  // Whether the task behind those reads what the last of them writes, and nobody else does.
  bool Goes(size_t at, size_t count) const {
    if (at + count >= lowered_.tasks.size()) return false;
    const LoweredTask& first = lowered_.tasks[at + count - 1];
    const LoweredTask& then = lowered_.tasks[at + count];
    if (first.launch->fuse == nullptr || then.launch->fuse != first.launch->fuse) return false;
    if (first.launch->call != nullptr || then.launch->call != nullptr) return false;
    const kernels::TensorRef& out = first.launch->refs[0];
    const kernels::TensorRef& input = then.launch->refs[1];
    if (first.launch->uses[0].slot < 0 || then.launch->uses[1].slot < 0 || out.data != input.data) return false;
    const StorageId id = StorageOf(first, 0);
    const Storage& storage = lowered_.storages[id];
    const auto touches = touches_.find(id);
    return storage.kind == Storage::Kind::kFeature && touches->second == 2 &&
           storage.address == reinterpret_cast<uintptr_t>(out.data) && ops::ExtentBytes(out) == storage.bytes &&
           ops::ExtentBytes(input) == storage.bytes;
  }

  // Whether the caller may put what the first reads where the last writes: one launch would read it until its end.
  bool MayShare(const ops::Launch& first, const ops::Launch& last) const {
    const auto kind_of = [&](const ops::Launch& launch, size_t operand) {
      return lowered_.storages[lowered_.Find(reinterpret_cast<uintptr_t>(launch.refs[operand].data))].kind;
    };
    return kind_of(last, 0) == Storage::Kind::kOutput && kind_of(first, 1) != Storage::Kind::kFeature;
  }

  // As many of the first ones as gain by it. \return how many tasks there is nothing more to be done with
  size_t FuseSome(size_t at, size_t most) {
    for (size_t count = most; count > 1; --count) {
      std::vector<const ops::Launch*> launches;
      for (size_t i = at; i < at + count; ++i) launches.push_back(lowered_.tasks[i].launch.get());
      if (MayShare(*launches.front(), *launches.back())) continue;
      LaunchOwner fused(launches[0]->fuse(launches));
      if (fused == nullptr) continue;
      for (size_t i = at; i < at + count; ++i) lowered_.tasks[i].launch.reset();
      LoweredTask& last = lowered_.tasks[at + count - 1];
      last.workspace = WorkspaceOf(*fused);
      last.launch = std::move(fused);
      return count;
    }
    return 1;
  }

  // For scratch that is not on the stack.
  uint64_t WorkspaceOf(const ops::Launch& launch) {
    if (launch.has_scratch_on_stack()) return 0;
    const Storage& last = lowered_.storages.back();
    Storage storage;
    storage.address = (last.address + last.bytes + 2 * kStorageAlignment - 1) & ~(kStorageAlignment - 1);
    storage.bytes = launch.scratch_bytes * static_cast<uint64_t>(launch.parts()) + ops::kScratchAlignment;
    lowered_.storages.push_back(std::move(storage));
    return lowered_.storages.back().address;
  }

  Lowered& lowered_;
  std::map<StorageId, size_t> touches_;  // operands, and workspaces, of all tasks
};

}  // namespace

void FuseTasks(Lowered& lowered) { Fuser(lowered).Run(); }

}  // namespace reprise::compiler
