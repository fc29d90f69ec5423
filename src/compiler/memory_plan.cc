// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/storage.h"
#include "ir/task.h"
#include "plan/solve.h"

namespace reprise::compiler {
namespace {

// Addresses that stand for storages: where programs have no memory, far apart.
constexpr uint64_t kFirstAddress = uint64_t{1} << 45;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kStorageAlignment - 1) & ~(kStorageAlignment - 1); }

void Note(std::vector<Touch>& touches, uint32_t stream, uint32_t task) {
  const auto found =
      std::find_if(touches.begin(), touches.end(), [&](const Touch& touch) { return touch.stream == stream; });
  if (found == touches.end()) {
    touches.push_back({stream, task, task});
  } else {
    found->last = task;
  }
}

// Whether everything that touches the first has ended when anything that touches the second begins. \pre the first one
// ends to live before the other begins
bool IsOrdered(const TaskOrder& order, const Storage& first, const Storage& then) {
  for (const Touch& early : first.touches) {
    for (const Touch& late : then.touches) {
      if (!order.IsBefore(early.last, late.first)) return false;
    }
  }
  return true;
}

void FindLives(Lowered& lowered) {
  for (uint32_t at = 0; at < lowered.tasks.size(); ++at) {
    lowered.ForEachOperand(lowered.tasks[at], [&](StorageId id, int, bool) {
      Storage& storage = lowered.storages[id];
      storage.begin = std::min(storage.begin, at);
      storage.end = std::max(storage.end, at + 1);
      if (lowered.order.streams() != 1) Note(storage.touches, lowered.order.stream_of(at), at);
    });
  }
}

StorageId RootOf(const Lowered& lowered, StorageId id) {
  while (lowered.storages[id].same_as != kNoStorage) id = lowered.storages[id].same_as;
  return id;
}

// Lets element-wise tasks write over an operand whose last reader they are.
class InPlace {
 public:
  explicit InPlace(Lowered& lowered) : lowered_(lowered) {}

  void Run() {
    for (uint32_t at = 0; at < lowered_.tasks.size(); ++at) Visit(at);
  }

 private:
  // A whole storage that is a feature; else nothing.
  StorageId WholeFeature(const ops::Launch& launch, size_t operand) const {
    const kernels::TensorRef& ref = launch.refs[operand];
    const auto address = reinterpret_cast<uintptr_t>(ref.data);
    const StorageId id = lowered_.Find(address);
    const Storage& storage = lowered_.storages[id];
    const bool is_whole = storage.address == address && ops::ExtentBytes(ref) == storage.bytes && storage.bytes != 0;
    return is_whole && storage.kind == Storage::Kind::kFeature ? id : kNoStorage;
  }

  // All operands that lie in the storage are the whole of it.
  bool IsReadAlike(const ops::Launch& launch, StorageId id) const {
    for (size_t i = 0; i < launch.refs.size(); ++i) {
      if (launch.uses[i].slot < 0) continue;
      const bool lies_there = lowered_.Find(reinterpret_cast<uintptr_t>(launch.refs[i].data)) == id;
      if (lies_there && WholeFeature(launch, i) != id) return false;
    }
    return true;
  }

  // Other streams have done with the storage.
  bool IsReadBefore(const Storage& storage, uint32_t at) const {
    return std::all_of(storage.touches.begin(), storage.touches.end(),
                       [&](const Touch& touch) { return touch.last == at || lowered_.order.IsBefore(touch.last, at); });
  }

  void Visit(uint32_t at) {
    const ops::Launch& launch = *lowered_.tasks[at].launch;
    ir::Elementwise rows;
    if (!launch.Rows(rows)) return;
    size_t written = launch.refs.size();
    for (size_t i = 0; i < launch.refs.size(); ++i) {
      if (!launch.uses[i].is_write) continue;
      if (written != launch.refs.size()) return;  // two results
      written = i;
    }
    if (written == launch.refs.size()) return;
    const StorageId out = WholeFeature(launch, written);
    if (out == kNoStorage || lowered_.storages[out].begin != at || lowered_.storages[out].same_as != kNoStorage) return;
    for (size_t i = 0; i < launch.refs.size(); ++i) {
      if (i == written || launch.uses[i].slot < 0) continue;
      const StorageId in = WholeFeature(launch, i);
      if (in == kNoStorage || launch.refs[i].dtype != launch.refs[written].dtype ||
          lowered_.storages[in].bytes != lowered_.storages[out].bytes) {
        continue;
      }
      if (!IsReadAlike(launch, in)) continue;
      const StorageId root = RootOf(lowered_, in);
      Storage& source = lowered_.storages[root];
      if (root == out || source.end != at + 1 || !IsReadBefore(source, at)) continue;
      lowered_.storages[out].same_as = root;
      source.end = std::max(source.end, lowered_.storages[out].end);
      for (const Touch& touch : lowered_.storages[out].touches) {
        Note(source.touches, touch.stream, touch.first);
        Note(source.touches, touch.stream, touch.last);
      }
      return;
    }
  }

  Lowered& lowered_;
};

// Between streams a block is used again only where the order of the tasks allows it.
void KeepApart(const Lowered& lowered, const std::vector<StorageId>& planned, plan::Problem& problem) {
  for (uint32_t a = 0; a < planned.size(); ++a) {
    for (uint32_t b = 0; b < a; ++b) {
      const Storage& one = lowered.storages[planned[a]];
      const Storage& other = lowered.storages[planned[b]];
      if (plan::OverlapInTime(problem.buffers[a], problem.buffers[b])) continue;
      const bool is_first = one.end <= other.begin;
      if (!IsOrdered(lowered.order, is_first ? one : other, is_first ? other : one)) problem.apart.emplace_back(b, a);
    }
  }
}

}  // namespace

uint32_t Lowered::RegionOf(const Storage& storage) const {
  switch (storage.kind) {
    case Storage::Kind::kConstant: return kConstantRegion;
    case Storage::Kind::kFeature: return kFeatureRegion;
    case Storage::Kind::kInput: return kFirstInputRegion + storage.index;
    case Storage::Kind::kOutput: break;
  }
  return kFirstInputRegion + inputs + storage.index;
}

StorageId Lowered::Find(uint64_t address) const {
  const auto behind =
      std::upper_bound(storages.begin(), storages.end(), address,
                       [](uint64_t wanted, const Storage& storage) { return wanted < storage.address; });
  return static_cast<StorageId>(behind - storages.begin() - 1);
}

StorageId Lowered::Add(Storage storage) {
  storage.address = kFirstAddress;
  if (!storages.empty()) {
    const Storage& last = storages.back();
    storage.address = last.address + ((last.bytes + 2 * kStorageAlignment - 1) & ~(kStorageAlignment - 1));
  }
  storages.push_back(std::move(storage));
  return static_cast<StorageId>(storages.size() - 1);
}

StatusOr<MemoryNeeds> PlanMemory(Lowered& lowered, const CompileOptions& options) {
  FindLives(lowered);
  if (options.reuses_memory) InPlace(lowered).Run();
  MemoryNeeds needs;
  plan::Problem problem;
  std::vector<StorageId> planned;
  for (StorageId id = 0; id < lowered.storages.size(); ++id) {
    Storage& storage = lowered.storages[id];
    // What operators have prepared at compile time they do not read any more.
    if (storage.kind == Storage::Kind::kConstant && storage.end != 0) {
      storage.offset = needs.constants;
      needs.constants += RoundUp(storage.bytes);
    }
    if (storage.kind != Storage::Kind::kFeature || storage.same_as != kNoStorage || storage.end == 0) continue;
    if (!options.reuses_memory) {
      storage.offset = needs.features;
      needs.features += RoundUp(storage.bytes);
      continue;
    }
    planned.push_back(id);
    problem.buffers.push_back({.begin = storage.begin,
                               .end = storage.end,
                               .size = static_cast<plan::Bytes>(RoundUp(storage.bytes)),
                               .alignment = static_cast<plan::Bytes>(kStorageAlignment)});
  }
  if (lowered.order.streams() != 1) KeepApart(lowered, planned, problem);
  if (!planned.empty()) {
    REPRISE_ASSIGN_OR_RETURN(const plan::Result result, plan::Solve(problem));
    for (size_t i = 0; i < planned.size(); ++i) {
      lowered.storages[planned[i]].offset = static_cast<uint64_t>(result.solution.offsets[i]);
    }
    needs.features = RoundUp(static_cast<uint64_t>(result.solution.height));
  }
  for (Storage& storage : lowered.storages) {
    if (storage.same_as == kNoStorage) continue;
    storage.offset =
        lowered.storages[RootOf(lowered, static_cast<StorageId>(&storage - lowered.storages.data()))].offset;
  }
  return needs;
}

}  // namespace reprise::compiler
