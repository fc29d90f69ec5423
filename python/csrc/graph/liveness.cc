// SPDX-License-Identifier: Apache-2.0
#include "graph/liveness.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <reprise/graph.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/device_allocator.h"

namespace torch_npu {

std::atomic<uint16_t> g_watched[kWatchedSlots];

namespace {

enum class LivenessMode { kRefuse, kWarn, kOff };

LivenessMode TheLivenessMode() {
  static const LivenessMode mode = [] {
    const char* const set = std::getenv("REPRISE_TORCH_LIVENESS");
    const std::string_view text = set == nullptr ? "" : set;
    if (text == "off" || text == "0") return LivenessMode::kOff;
    return text == "warn" ? LivenessMode::kWarn : LivenessMode::kRefuse;
  }();
  return mode;
}

std::string HexOf(const void* address) {
  char text[24];
  (void)std::snprintf(text, sizeof text, "%p", address);
  return text;
}

// Takes locks of the core, so the table's must not be held. Null: not captured, or not by a Graph.
const reprise::Graph* CapturingOn(const NPUStream& stream) {
  if (!stream.is_capturing()) return nullptr;
  try {
    return &reprise::Graph::Capturing(stream.handle());
  } catch (const reprise::Exception&) {
    return nullptr;
  }
}

}  // namespace

// Never asks for the GIL while it is locked.
struct LivenessTable {
  std::mutex mutex;
  std::unordered_map<const reprise::Graph*, GraphLiveness*> open;
  std::unordered_map<void*, std::vector<GraphLiveness*>> users;  // of a block, by its address
  std::unordered_set<void*> born;                                // blocks that were made in captures

  static LivenessTable& Get() {
    static auto* const table = new LivenessTable;  // frees come until the very end
    return *table;
  }
  static void Watch(void* block) { g_watched[WatchedSlot(block)].fetch_add(1, std::memory_order_relaxed); }
  static void Unwatch(void* block) { g_watched[WatchedSlot(block)].fetch_sub(1, std::memory_order_relaxed); }

  GraphLiveness* OpenOf(const reprise::Graph* graph) {
    const auto found = open.find(graph);
    return found == open.end() ? nullptr : found->second;
  }

  static bool Knows(const GraphLiveness& graph, void* block) { return graph.places_.count(block) != 0; }
  void Use(GraphLiveness& graph, void* block, std::string place) {
    if (!graph.places_.emplace(block, std::move(place)).second) return;
    users[block].push_back(&graph);
    Watch(block);
  }

  void Close(GraphLiveness& graph) {
    if (!std::exchange(graph.is_open_, false)) return;
    open.erase(graph.graph_);
    g_open_liveness.fetch_sub(1, std::memory_order_relaxed);
  }

  void Forget(GraphLiveness& graph) {
    for (const auto& [block, place] : graph.places_) {
      const auto found = users.find(block);
      if (found == users.end() || std::erase(found->second, &graph) == 0) continue;  // the block has gone
      Unwatch(block);
      if (found->second.empty()) users.erase(found);
    }
    graph.places_.clear();
  }

  // `place`: of the free.
  void Freed(void* block, const std::string& place) {
    if (born.erase(block) != 0) Unwatch(block);
    const auto found = users.find(block);
    if (found == users.end()) return;
    for (GraphLiveness* const graph : found->second) {
      Unwatch(block);
      if (graph->gone_ != nullptr) continue;
      graph->gone_ = block;
      graph->used_at_ = graph->places_[block];
      graph->freed_at_ = place;
      graph->is_broken_.store(true, std::memory_order_relaxed);
    }
    users.erase(found);
  }
};

std::shared_ptr<GraphLiveness> GraphLiveness::Begin(const reprise::Graph* graph) {
  if (TheLivenessMode() == LivenessMode::kOff) return nullptr;
  std::shared_ptr<GraphLiveness> made(new GraphLiveness(graph));
  LivenessTable& table = LivenessTable::Get();
  const std::lock_guard lock(table.mutex);
  table.open[graph] = made.get();
  g_open_liveness.fetch_add(1, std::memory_order_relaxed);
  return made;
}

void GraphLiveness::End() noexcept {
  LivenessTable& table = LivenessTable::Get();
  const std::lock_guard lock(table.mutex);
  table.Close(*this);
}

GraphLiveness::~GraphLiveness() {
  LivenessTable& table = LivenessTable::Get();
  const std::lock_guard lock(table.mutex);
  table.Close(*this);
  table.Forget(*this);
}

void GraphLiveness::Refuse() {
  std::string used;
  std::string freed;
  void* block;
  {
    const std::lock_guard lock(LivenessTable::Get().mutex);
    if (TheLivenessMode() == LivenessMode::kWarn && std::exchange(warned_, true)) return;
    used = used_at_;
    freed = freed_at_;
    block = gone_;
  }
  const std::string cause =
      "the graph cannot be replayed: memory that it uses, at " + HexOf(block) + ", was freed after it was captured";
  const std::string culprit = "a tensor that was captured" + (used.empty() ? "" : " at " + used) + " and freed" +
                              (freed.empty() ? " by a thread without Python code" : " at " + freed);
  const std::string hint =
      "keep the tensors that a graph was captured with for as long as it is replayed, and give them new values in "
      "place, by copy_(); or capture again (REPRISE_TORCH_LIVENESS=warn replays all the same)";
  if (TheLivenessMode() == LivenessMode::kWarn) {
    TORCH_WARN(cause, ": ", culprit, "; ", hint);
    return;
  }
  RefuseCall("NPUGraph.replay", 107000, cause, culprit, hint);
}

void NoteUseSlow(const c10::StorageImpl& storage) {
  void* const block = storage.data_ptr().get_context();
  if (block == nullptr || !IsOurs(storage.data_ptr())) return;
  const reprise::Graph* const capturing = CapturingOn(CurrentStream());
  if (capturing == nullptr) return;
  LivenessTable& table = LivenessTable::Get();
  {
    const std::lock_guard lock(table.mutex);
    if (table.born.count(block) != 0) return;
    GraphLiveness* const graph = table.OpenOf(capturing);
    if (graph == nullptr || LivenessTable::Knows(*graph, block)) return;
  }
  std::string place = PythonPlace();
  const std::lock_guard lock(table.mutex);
  if (GraphLiveness* const graph = table.OpenOf(capturing)) table.Use(*graph, block, std::move(place));
}

void NoteBirthSlow(void* block) {
  if (block == nullptr || !CurrentStream().is_capturing()) return;
  LivenessTable& table = LivenessTable::Get();
  const std::lock_guard lock(table.mutex);
  if (table.born.insert(block).second) LivenessTable::Watch(block);
}

void NoteFreeSlow(void* block) noexcept {
  try {
    LivenessTable& table = LivenessTable::Get();
    {
      const std::lock_guard lock(table.mutex);
      if (table.users.count(block) == 0) {
        table.Freed(block, "");
        return;
      }
    }
    const std::string place = PythonPlace();
    const std::lock_guard lock(table.mutex);
    table.Freed(block, place);
  } catch (...) {  // no memory for words: the graph stays as it is
  }
}

}  // namespace torch_npu
