// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/storage.h"

namespace reprise::compiler {
namespace {

class Validation {
 public:
  Validation(const Lowered& lowered, const MemoryNeeds& needs)
      : lowered_(lowered), needs_(needs), touched_by_(lowered.storages.size()) {}

  Status Run() {
    FindTouches();
    std::vector<StorageId> features;
    for (StorageId id = 0; id < lowered_.storages.size(); ++id) {
      const Storage& storage = lowered_.storages[id];
      if (storage.kind != Storage::Kind::kFeature || touched_by_[id].empty()) continue;
      const bool is_inside =
          storage.offset % kStorageAlignment == 0 && storage.offset + storage.bytes <= needs_.features;
      if (!is_inside) return Wrong(fmt::format("storage {} of {} bytes lies at {}", id, storage.bytes, storage.offset));
      features.push_back(id);
    }
    std::sort(features.begin(), features.end(),
              [&](StorageId a, StorageId b) { return lowered_.storages[a].offset < lowered_.storages[b].offset; });
    for (size_t i = 0; i < features.size(); ++i) {
      const Storage& one = lowered_.storages[features[i]];
      for (size_t j = i + 1; j < features.size(); ++j) {
        const Storage& other = lowered_.storages[features[j]];
        if (other.offset >= one.offset + one.bytes) break;
        if (other.bytes == 0 || one.bytes == 0) continue;
        if (IsApart(features[i], features[j]) || IsApart(features[j], features[i])) continue;
        return Wrong(fmt::format("storages {} and {} share bytes at {} and are both needed at task {}", features[i],
                                 features[j], other.offset, *touched_by_[features[j]].begin()));
      }
    }
    return {};
  }

 private:
  Status Wrong(std::string what) const {
    return Error(kInternalError, "the memory plan is wrong: " + std::move(what))
        .Culprit("the compiler")
        .Hint("report it with the graph; compile with ge.exec.disableReuseMemory=1 until then");
  }

  void FindTouches() {
    for (uint32_t at = 0; at < lowered_.tasks.size(); ++at) {
      const LoweredTask& task = lowered_.tasks[at];
      for (size_t i = 0; i < task.launch->refs.size(); ++i) {
        if (task.launch->uses[i].slot < 0) continue;
        touched_by_[lowered_.Find(reinterpret_cast<uintptr_t>(task.launch->refs[i].data))].insert(at);
      }
      if (task.workspace != 0) touched_by_[lowered_.Find(task.workspace)].insert(at);
    }
  }

  // Each task that touches the first has ended before each that touches the second. One task may read the first and
  // write the second element by element, where the plan says that they are one block.
  bool IsApart(StorageId first, StorageId then) const {
    const bool are_one = RootOf(first) == RootOf(then);
    for (const uint32_t early : touched_by_[first]) {
      for (const uint32_t late : touched_by_[then]) {
        if (lowered_.order.IsBefore(early, late)) continue;
        ir::Elementwise rows;
        if (early != late || !are_one || !lowered_.tasks[early].launch->Rows(rows)) return false;
      }
    }
    return true;
  }

  StorageId RootOf(StorageId id) const {
    while (lowered_.storages[id].same_as != kNoStorage) id = lowered_.storages[id].same_as;
    return id;
  }

  const Lowered& lowered_;
  const MemoryNeeds& needs_;
  std::vector<std::set<uint32_t>> touched_by_;
};

}  // namespace

Status ValidateMemory(const Lowered& lowered, const MemoryNeeds& needs) { return Validation(lowered, needs).Run(); }

}  // namespace reprise::compiler
