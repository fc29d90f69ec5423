// SPDX-License-Identifier: Apache-2.0
#include "capture/liveness.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"
#include "capture/model.h"

namespace reprise::capture {
namespace {

bool Checks() {
  static const bool checks = EnvInt(EnvVar::kCheckPointers) != 0;
  return checks;
}

bool Skips(const ir::Node& node) { return node.disabled || node.type == &ir::kSlotTask; }

// Visits the addresses of a task: both ends of known ranges, and every word of an argument block, of which those that
// are no addresses lie in no range that was ever registered.
template <class Visit>
void ForEachAddress(const ir::TaskInfo& info, Visit visit) {
  for (const ir::AccessRange& range : info.ranges) {
    if (range.bytes == 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(range.begin);
    visit(begin);
    visit(begin + range.bytes - 1);
  }
  for (const uint64_t word : info.args) visit(static_cast<uintptr_t>(word));
}

}  // namespace

Liveness::Liveness() : seen_(device::MemoryRegistry::Get().Watch()) {}

Liveness::~Liveness() { device::MemoryRegistry::Get().Unwatch(); }

void Liveness::Forget() {
  collected_ = false;
  gone_.reset();
  // A new argument may be an address that the heap took over from a range that was freed before.
  seen_ = device::MemoryRegistry::Get().freed_count();
}

void Liveness::Collect(const ir::Graph& graph) {
  addresses_.clear();
  for (const ir::Node& node : graph.nodes()) {
    if (Skips(node)) continue;
    ForEachAddress(ir::Describe(node), [&](uintptr_t address) { addresses_.push_back(address); });
  }
  std::sort(addresses_.begin(), addresses_.end());
  addresses_.erase(std::unique(addresses_.begin(), addresses_.end()), addresses_.end());
  addresses_.shrink_to_fit();
  collected_ = true;
}

// Whether the graph names an address of the range, and nothing else lies there by now.
bool Liveness::Names(const device::FreedRange& range) const {
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  for (auto it = std::lower_bound(addresses_.begin(), addresses_.end(), range.begin);
       it != addresses_.end() && *it - range.begin < range.bytes; ++it) {
    if (!memory.Find(reinterpret_cast<const void*>(*it))) return true;
  }
  return false;
}

Status Liveness::Check(const Model& model) {
  device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  if (memory.freed_count() == seen_ && !gone_) [[likely]]
    return {};
  if (!Checks() || model.kind() == ModelKind::kBuilt) return {};
  if (!collected_) Collect(model.graph());
  if (gone_ && !Names(*gone_)) gone_.reset();  // mapped or allocated again at the same place
  if (!gone_) {
    const std::vector<device::FreedRange> freed = memory.FreedSince(seen_);
    const auto first = std::find_if(freed.begin(), freed.end(), [&](const auto& range) { return Names(range); });
    if (first == freed.end()) {
      seen_ = freed.empty() ? memory.freed_count() : freed.back().number;
      return {};
    }
    gone_ = *first;
  }
  for (const ir::Node& node : model.graph().nodes()) {
    if (Skips(node)) continue;
    const ir::TaskInfo info = ir::Describe(node);
    uintptr_t found = 0;
    ForEachAddress(info, [&](uintptr_t address) {
      if (found == 0 && address - gone_->begin < gone_->bytes) found = address;
    });
    if (found == 0) continue;
    const ir::Lane& lane = model.graph().lanes()[node.lane];
    return Error(
               107000,
               fmt::format("{} cannot run: task {} of its stream {}, {}, uses {:#x}, and the memory there was "
                           "freed after it was captured",
                           model.Describe(), node.position, lane.stream_id,
                           info.name == info.type_name ? info.name : fmt::format("{} ({})", info.name, info.type_name),
                           found))
        .Culprit(fmt::format("{} was freed by thread {}{}", gone_->text, gone_->thread,
                             gone_->call.empty() ? "" : " (" + gone_->call + ")"))
        .Hint(
            "keep what a graph uses until aclmdlRIDestroy, or capture the graph again "
            "(REPRISE_CHECK_POINTERS=0 switches the check off)");
  }
  return {};
}

}  // namespace reprise::capture
