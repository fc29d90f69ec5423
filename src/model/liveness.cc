// SPDX-License-Identifier: Apache-2.0
#include "model/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "ir/task_info.h"

namespace reprise::model {
namespace {

bool Skips(const ir::Node& node) { return node.disabled || node.type == &ir::kSlotTask; }

// Visits the addresses of a task: both ends of known ranges, and every word of an argument block, of which those that
// are no addresses lie in no range that was ever registered.
template <class Visit>
void ForEachAddress(const ir::Node& node, Visit visit) {
  class Addresses final : public ir::OperandSink {
   public:
    explicit Addresses(Visit& visit) : visit_(visit) {}
    void Take(const ir::Operand& operand) override {
      if (operand.bytes == 0) return;
      const auto begin = reinterpret_cast<uintptr_t>(operand.begin);
      visit_(begin);
      visit_(begin + operand.bytes - 1);
    }
    void TakeWords(const uint64_t* words, size_t count) override {
      for (size_t i = 0; i < count; ++i) visit_(static_cast<uintptr_t>(words[i]));
    }

   private:
    Visit& visit_;
  };
  Addresses addresses(visit);
  ir::VisitOperands(node, addresses);
}

bool StillNames(const ir::Node& node, uintptr_t wanted) {
  bool found = false;
  if (Skips(node)) return found;
  ForEachAddress(node, [&](uintptr_t address) { found |= address == wanted; });
  return found;
}

// Neither a small number nor beyond what processes have: most words that are no addresses.
bool MayBeAddress(uintptr_t word) { return word >= 4096 && word >> 56 == 0; }

}  // namespace

Liveness::Liveness() : seen_(device::MemoryRegistry::Get().Watch()) {}

Liveness::~Liveness() { device::MemoryRegistry::Get().Unwatch(); }

void Liveness::Forget(std::span<const ir::NodeId> changed) {
  if (!collected_ || changed_.size() > uses_.size() + 1000) return Forget();  // the list grows until memory is freed
  try {
    changed_.insert(changed_.end(), changed.begin(), changed.end());
  } catch (const std::bad_alloc&) {
    return Forget();
  }
  Forgive();
}

void Liveness::Forget() {
  collected_ = false;
  Forgive();
}

void Liveness::Forgive() {
  gone_.reset();
  // A new argument may be an address that the heap took over from a range that was freed before.
  seen_ = device::MemoryRegistry::Get().freed_count();
}

void Liveness::Add(std::vector<Use>& uses, const ir::Graph& graph, ir::NodeId node) {
  if (Skips(graph.node(node))) return;
  ForEachAddress(graph.node(node), [&](uintptr_t address) {
    if (MayBeAddress(address)) uses.push_back({address, node});
  });
}

void Liveness::Sort(std::vector<Use>& uses) {
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
}

void Liveness::Collect(const ir::Graph& graph) {
  uses_.clear();
  changed_uses_.clear();
  changed_.clear();
  for (ir::NodeId node = 0; node < graph.nodes().size(); ++node) Add(uses_, graph, node);
  Sort(uses_);
  uses_.shrink_to_fit();
  collected_ = true;
}

// The old addresses of the changed tasks stay: whoever finds one asks the task.
void Liveness::CollectChanged(const ir::Graph& graph) {
  for (const ir::NodeId node : changed_) Add(changed_uses_, graph, node);
  changed_.clear();
  Sort(changed_uses_);
  if (changed_uses_.size() > uses_.size() / 2 + 1000) Collect(graph);  // paid for by the changes
}

// Whether the graph names an address of the range, and nothing else lies there by now.
bool Liveness::Names(const std::vector<Use>& uses, const ir::Graph& graph, const device::FreedRange& range) {
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  for (auto it = std::lower_bound(uses.begin(), uses.end(), Use{range.begin, 0});
       it != uses.end() && it->address - range.begin < range.bytes;) {
    const uintptr_t address = it->address;
    const bool gone = !memory.Find(reinterpret_cast<const void*>(address)).has_value();
    for (; it != uses.end() && it->address == address; ++it) {
      if (gone && StillNames(graph.node(it->node), address)) return true;
    }
  }
  return false;
}

bool Liveness::FindGone(const ir::Graph& graph) {
  device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  if (!device::ChecksPointers()) return false;
  if (!collected_) Collect(graph);
  if (!changed_.empty()) CollectChanged(graph);
  if (gone_ && Names(graph, *gone_)) return true;
  gone_.reset();  // mapped or allocated again at the same place
  const std::vector<device::FreedRange> freed = memory.FreedSince(seen_);
  const auto first = std::find_if(freed.begin(), freed.end(), [&](const auto& range) { return Names(graph, range); });
  if (first == freed.end()) {
    seen_ = freed.empty() ? memory.freed_count() : freed.back().number;
    return false;
  }
  gone_ = *first;
  return true;
}

Status Liveness::TellGone(const ir::Graph& graph, const std::string& owner) const {
  for (const ir::Node& node : graph.nodes()) {
    if (Skips(node)) continue;
    uintptr_t found = 0;
    ForEachAddress(node, [&](uintptr_t address) {
      if (found == 0 && address - gone_->begin < gone_->bytes) found = address;
    });
    if (found == 0) continue;
    const ir::TaskInfo info = ir::Describe(node);
    const ir::Lane& lane = graph.lanes()[node.lane];
    return Error(kInvalidValue,
                 fmt::format("{} cannot run: task {} of its stream {}, {}, uses {:#x}, and the memory there was "
                             "freed after it was captured",
                             owner, node.position, lane.stream_id,
                             info.name == info.type_name ? ir::SpokenName(node)
                                                         : fmt::format("{} ({})", info.name, info.type_name),
                             found))
        .Culprit(fmt::format("{} was freed by thread {}{}", gone_->text, gone_->thread,
                             gone_->call.empty() ? "" : " (" + gone_->call + ")"))
        .Hint(
            "keep what a graph uses until aclmdlRIDestroy, or capture the graph again "
            "(REPRISE_CHECK_POINTERS=0 switches the check off)");
  }
  return {};
}

}  // namespace reprise::model
