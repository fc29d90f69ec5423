// SPDX-License-Identifier: Apache-2.0
//
// Memory that a graph names but does not own: tensors of the program that captured operators read or write. Replays
// over such memory after it was freed would compute with whatever lies there by then, so they are refused. Memory that
// came into being in a capture belongs to the pool of a graph, and is not looked at.
//
// REPRISE_TORCH_LIVENESS: warn says it and goes on, off does not look.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace reprise {
class Graph;
}

namespace torch_npu {

/// Of one capture. Threads: thread-safe.
class GraphLiveness {
 public:
  /// From now on, what operators of this capture use is noted. Null when liveness is off.
  static std::shared_ptr<GraphLiveness> Begin(const reprise::Graph* graph);
  /// The capture is over.
  void End() noexcept;
  ~GraphLiveness();
  GraphLiveness(const GraphLiveness&) = delete;
  GraphLiveness& operator=(const GraphLiveness&) = delete;

  /// Whether something that the graph names was freed.
  bool is_broken() const noexcept { return is_broken_.load(std::memory_order_relaxed); }
  /// Throws NpuError, or warns once.
  void Refuse();

 private:
  friend struct LivenessTable;
  explicit GraphLiveness(const reprise::Graph* graph) : graph_(graph) {}

  const reprise::Graph* graph_;
  bool is_open_ = true;                            // the rest: under the lock of the table
  std::unordered_map<void*, std::string> places_;  // by block: where it was first used
  std::string used_at_, freed_at_;
  void* gone_ = nullptr;
  bool warned_ = false;
  std::atomic<bool> is_broken_{false};
};

/// How many captures are open whose uses are noted.
inline std::atomic<int> g_open_liveness{0};
/// Counts, by a hash of the address, of the blocks that anybody wants to hear of when they are freed.
inline constexpr size_t kWatchedSlots = size_t{1} << 14;
extern std::atomic<uint16_t> g_watched[kWatchedSlots];
inline size_t WatchedSlot(const void* block) noexcept {
  return (reinterpret_cast<uintptr_t>(block) >> 9) * 0x9e3779b97f4a7c15 >> 50;
}

void NoteUseSlow(const c10::StorageImpl& storage);
void NoteBirthSlow(void* block);
void NoteFreeSlow(void* block) noexcept;

/// An operator that is being launched on the current stream works with this memory.
inline void NoteUse(const c10::StorageImpl& storage) {
  if (g_open_liveness.load(std::memory_order_relaxed) != 0) [[unlikely]]
    NoteUseSlow(storage);
}
inline void NoteUse(const at::Tensor& tensor) {
  if (g_open_liveness.load(std::memory_order_relaxed) != 0) [[unlikely]]
    NoteUseSlow(*tensor.storage().unsafeGetStorageImpl());
}
/// The allocator has handed the block out.
inline void NoteBirth(void* block) {
  if (g_open_liveness.load(std::memory_order_relaxed) != 0) [[unlikely]]
    NoteBirthSlow(block);
}
/// The program gives the block back.
inline void NoteFree(void* block) noexcept {
  if (g_watched[WatchedSlot(block)].load(std::memory_order_relaxed) != 0) [[unlikely]]
    NoteFreeSlow(block);
}

}  // namespace torch_npu
