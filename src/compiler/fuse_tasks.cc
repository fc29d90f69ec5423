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
      lowered_.ForEachOperand(task, [&](StorageId id, int, bool) { ++touches_[id]; });
    }
    for (size_t at = 0; at < lowered_.tasks.size();) {
      size_t count = 1;
      while (Goes(at, count)) ++count;
      at += count > 1 ? FuseSome(at, count) : 1;
    }
    std::erase_if(lowered_.tasks, [](const LoweredTask& task) { return task.launch == nullptr; });
  }

 private:
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
    const StorageId id = lowered_.Find(out.data);
    const Storage& storage = lowered_.storages[id];
    const auto touches = touches_.find(id);
    return storage.kind == Storage::Kind::kFeature && touches->second == 2 &&
           storage.address == reinterpret_cast<uintptr_t>(out.data) && ops::ExtentBytes(out) == storage.bytes &&
           ops::ExtentBytes(input) == storage.bytes;
  }

  // Whether what one before the last reads may lie where the last writes, as the caller may put inputs and outputs: one
  // launch would read it until its end.
  bool MayShare(size_t at, size_t last) const {
    const auto is_of_caller = [&](StorageId id) {
      const Storage::Kind kind = lowered_.storages[id].kind;
      return kind == Storage::Kind::kInput || kind == Storage::Kind::kOutput;
    };
    const StorageId out = lowered_.Find(lowered_.tasks[last].launch->refs[0].data);
    bool may_share = false;
    for (; at < last; ++at) {
      lowered_.ForEachOperand(lowered_.tasks[at], [&](StorageId id, int, bool) {
        may_share |= id == out || (is_of_caller(out) && is_of_caller(id));
      });
    }
    return may_share;
  }

  // As many of the first ones as gain by it. \return how many tasks there is nothing more to be done with
  size_t FuseSome(size_t at, size_t most) {
    for (size_t count = most; count > 1; --count) {
      std::vector<const ops::Launch*> launches;
      for (size_t i = at; i < at + count; ++i) launches.push_back(lowered_.tasks[i].launch.get());
      if (MayShare(at, at + count - 1)) continue;
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
    Storage storage;
    storage.bytes = launch.scratch_bytes * static_cast<uint64_t>(launch.parts()) + ops::kScratchAlignment;
    return lowered_.storages[lowered_.Add(std::move(storage))].address;
  }

  Lowered& lowered_;
  std::map<StorageId, size_t> touches_;  // operands, and workspaces, of all tasks
};

}  // namespace

void FuseTasks(Lowered& lowered) { Fuser(lowered).Run(); }

}  // namespace reprise::compiler
