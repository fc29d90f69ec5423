// SPDX-License-Identifier: Apache-2.0
//
// The state of a Graph, and the steps that begin and end its capture: each either done, or undone with all before it.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "memory/device_allocator.h"
#include "memory/host_allocator.h"
#include "model/model.h"
#include "reprise/graph.h"
#include "rng/generator.h"
#include "runtime/event.h"

namespace reprise {

/// Threads: as Graph; `Adopt` and the filters of the allocators may run on any thread.
class Graph::Impl : public std::enable_shared_from_this<Graph::Impl> {
 public:
  explicit Impl(Options options) : options_(options) {}
  ~Impl() { Reset(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status CaptureBegin(const CaptureOptions& options);
  Status CaptureEnd();
  Status Instantiate();
  Status Replay(void* stream);
  void Reset() noexcept;
  Status CheckCaptured(const char* what) const;
  StatusOr<GraphMemory> Memory() const;
  StatusOr<void*> RawGraph() const;
  StatusOr<void*> RawExecutable() const;
  StatusOr<bool> Dump(const std::string& path, bool every_task) const;
  StatusOr<void*> BeginIf(const void* predicate, void* stream);
  Status EndConditional();
  Status AbandonConditional(const std::string& why);

  GraphState state() const noexcept { return state_.load(std::memory_order_acquire); }
  PoolId pool() const { return pool_; }

  /// Of a capture of a Graph, bodies of conditions included; null when it is of none.
  struct Owner {
    std::shared_ptr<Impl> graph;
    bool is_body = false;
  };
  static Owner FindOwner(uint64_t capture);
  /// A generator draws in the capture for the first time.
  void Adopt(std::shared_ptr<rng::GeneratorState> state);

  /// The object that holds this; moves with it.
  std::atomic<Graph*> holder{nullptr};

 private:
  /// What one graph owes the allocators.
  struct Lease {
    int device = 0;
    PoolId pool;
    bool of_device = false;
    bool of_host = false;
    void Return() noexcept;
  };
  /// A model that was still executing when its graph was reset.
  struct Zombie {
    void* model;
    Lease lease;
  };
  struct Body {
    model::Model* model = nullptr;
    uint64_t capture = 0;
    void* stream = nullptr;
    bool owns_stream = false;       ///< made for this body
    void* parent_stream = nullptr;  ///< current before
  };

  StatusOr<model::Model*> Model(const char* what) const;
  Status Route(const StreamFilter& filter);
  void Unroute() noexcept;
  void DropGenerators() noexcept;
  Status PrepareDraws(runtime::Stream& stream);
  Status NoteDraws(runtime::Stream& stream);
  void TellReusedBlocks(ir::Graph& graph) const;
  Status Fail(Status why) noexcept;
  static void DestroyModel(void* model, Lease lease) noexcept;
  static void BuryZombies() noexcept;

  const Options options_;
  std::atomic<GraphState> state_{GraphState::kEmpty};
  void* model_ = nullptr;  ///< handle; the model goes with its context, whoever holds it
  uint64_t capture_ = 0;   ///< id; 0: none yet
  /// Capture whose streams allocate from the pool: the graph's, or that of the innermost open body. Shared with the
  /// filters of the allocators.
  std::shared_ptr<std::atomic<uint64_t>> routed_;
  PoolId pool_;
  Lease lease_;
  bool routed_device_ = false, routed_host_ = false;
  void* stream_ = nullptr;
  int device_ = 0;
  int thread_ = 0;
  bool on_current_ = false;  ///< it began on the current stream of its thread
  CaptureMode mode_ = CaptureMode::kGlobal;
  std::vector<Body> bodies_;
  Status bad_body_;  ///< why the capture must fail although the runtime does not know
  /// States that draw in the open capture. A lock of its own, because they are adopted under locks of theirs.
  Mutex generators_mutex_;
  std::set<std::shared_ptr<rng::GeneratorState>> generators_ REPRISE_GUARDED_BY(generators_mutex_);
  /// States that draw in the captured graph, each with the offsets that all its draws of one replay take.
  std::vector<std::pair<std::shared_ptr<rng::GeneratorState>, uint64_t>> drawn_;
  Mutex replay_mutex_;
  /// Behind the newest execution, when it draws: its numbers stand in cells that the next one writes anew.
  runtime::EventRecord* last_drawn_ = nullptr;
  void* last_stream_ = nullptr;
};

}  // namespace reprise
