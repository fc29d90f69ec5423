// SPDX-License-Identifier: Apache-2.0
//
// A session: graphs by number, with options and allocators of their own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/condition_variable.h"
#include "base/mutex.h"
#include "base/status.h"
#include "compiler/tune.h"
#include "engine/device_work.h"
#include "engine/graph_entry.h"
#include "engine/options.h"

namespace reprise::engine {

/// A tensor in memory of the host.
struct HostTensor {
  int32_t dtype = -1;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// The two interfaces over the same sessions. The first one separates compiling, loading and running; the second one
/// does what is missing, and holds a graph to one way of running it.
enum class Interface : uint8_t { kFirst, kSecond };

/// Threads: thread-safe. No lock is held while allocators and callbacks of the program run.
class Session {
 public:
  Session(uint64_t id, Interface interface, OptionMap process, OptionMap options);
  ~Session();  ///< runs what is queued, then removes all graphs
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const { return id_; }
  /// Whether the calling thread is the one that calls back: it cannot end the session, which waits for it.
  bool IsOwnThread() const { return worker_.get_id() == std::this_thread::get_id(); }

  /// `identity`: of the program's graph, equal for copies that are one graph; null: a copy that nobody else has.
  Status AddGraph(uint32_t graph, std::shared_ptr<compiler::Graph> model, std::shared_ptr<const void> identity,
                  const OptionMap& options);
  Status RemoveGraph(uint32_t graph);
  /// `inputs`: empty: nothing is said of them.
  Status CompileGraph(uint32_t graph, std::span<const InputMeta> inputs = {});
  /// Compiles and loads for the session's own stream.
  Status BuildGraph(uint32_t graph, std::span<const InputMeta> inputs);
  StatusOr<std::shared_ptr<const CompiledGraph>> Compiled(uint32_t graph) const;
  bool NeedsRebuild(uint32_t graph) const;

  Status SetConstBase(uint32_t graph, const void* base, uint64_t bytes);
  Status UpdateFeatureBase(uint32_t graph, const void* base, uint64_t bytes);
  Status UpdateRefreshableBase(uint32_t graph, const void* base, uint64_t bytes);
  Status SetFixedBase(uint32_t graph, MemoryType type, const void* base, uint64_t bytes);

  Status LoadGraph(uint32_t graph, const OptionMap& options, void* stream);
  /// Queues a run of a loaded graph.
  Status Execute(uint32_t graph, void* stream, std::span<const InputTensor> inputs, std::vector<OutputTensor>& outputs);
  /// Queues a run; compiles and loads first where that was not done.
  Status RunOnStream(uint32_t graph, void* stream, std::span<const InputTensor> inputs,
                     std::vector<OutputTensor>& outputs);
  /// Runs and waits; inputs anywhere, outputs in memory of the host.
  Status RunAndWait(uint32_t graph, std::span<const InputTensor> inputs, std::vector<HostTensor>& outputs);
  /// Queues RunAndWait for the session's thread, which calls `done` with what came out. Nothing is called where this
  /// fails; in the second interface failures come by `done` alone.
  using Done = std::function<void(const Status& status, std::vector<HostTensor>& outputs)>;
  Status RunLater(uint32_t graph, std::vector<HostTensor> inputs, Done done);

  Status RegisterAllocator(void* stream, AllocatorPtr allocator);
  Status UnregisterAllocator(void* stream);

  /// Tunes a graph, of which it makes copies, with runs on the stream of RunAndWait. Returns when that is done.
  StatusOr<compiler::TuneReport> Tune(const compiler::Graph& graph, std::span<const InputTensor> inputs,
                                      compiler::TuningBank& bank, const compiler::TuneOptions& options);
  /// What graphs without options of their own have.
  OptionSet options() const { return {process_options_, options_, {}}; }

  /// Calls back with the results that a graph collects under a key ("Summary", "Save"), by name, at the end of each
  /// run: of runs on streams when the stream comes there, as a host function; captured runs call nothing. What the
  /// callback returns is that of the run, unless it is 0: on streams an error of the stream. kParamInvalid for another
  /// key.
  using Collect = std::function<int(uint32_t graph, const std::map<std::string, HostTensor>& values)>;
  Status RegisterCallback(const std::string& key, Collect callback);
  /// Values of variables, when all work that uses them is done.
  StatusOr<std::vector<HostTensor>> ReadVariables(std::span<const std::string> names);

  /// Of the memory that static graphs share; 0 where they do not.
  uint64_t shared_feature_bytes() const { return shared_features_ != nullptr ? shared_features_->bytes() : 0; }

  StatusOr<std::string> Timeline(uint32_t graph) const;
  /// The compiled graph as a model.
  StatusOr<std::string> CompiledModel(uint32_t graph) const;

 private:
  using EntryPtr = std::shared_ptr<GraphEntry>;
  struct Job {
    uint32_t graph;
    std::vector<HostTensor> inputs;
    Done done;
  };

  StatusOr<EntryPtr> Find(uint32_t graph) const;
  AllocatorPtr AllocatorOf(void* stream) const;
  Status Ready(GraphEntry& entry, void* stream, std::span<const InputTensor> inputs);
  Status Build(GraphEntry& entry, std::span<const InputMeta> inputs);
  Status Wait(uint32_t graph, GraphEntry& entry, std::span<const InputTensor> inputs, std::vector<HostTensor>& outputs);
  /// As GraphEntry::Run, and the callbacks behind it.
  Status RunOn(runtime::Stream& stream, uint32_t graph, GraphEntry& entry, std::span<const InputTensor> inputs,
               std::vector<OutputTensor>& outputs, const AllocatorPtr& allocator, bool host_anywhere);
  /// Queues the callbacks behind a run, with the functions that are registered now.
  Status CallBackBehind(runtime::Stream& stream, uint32_t graph, const GraphEntry& entry,
                        std::vector<OutputTensor> collected) const;
  std::map<std::string, Collect> Callbacks() const;
  Status UseOwnDevice() const { return UseDevice(device_); }
  void Work();

  const uint64_t id_;
  const Interface interface_;
  const OptionMap process_options_;
  const OptionMap options_;
  int device_ = 0;
  bool compiles_in_parallel_ = false;
  bool is_policy_4_ = false;
  std::shared_ptr<SharedFeatures> shared_features_;  ///< by ge.exec.staticMemoryPolicy
  int64_t patience_ms_ = -1;
  std::string weight_folder_;

  mutable Mutex mutex_;
  std::map<uint32_t, EntryPtr> graphs_ REPRISE_GUARDED_BY(mutex_);
  std::map<void*, AllocatorPtr> allocators_ REPRISE_GUARDED_BY(mutex_);
  std::map<std::string, Collect> callbacks_ REPRISE_GUARDED_BY(mutex_);
  const std::shared_ptr<Variables> variables_ = std::make_shared<Variables>();

  Mutex compile_mutex_;
  Mutex sync_mutex_;  ///< while RunAndWait lasts; never waited for by the first interface's RunGraph
  OwnStream own_stream_;

  Mutex jobs_mutex_;
  ConditionVariable jobs_changed_;
  std::deque<Job> jobs_ REPRISE_GUARDED_BY(jobs_mutex_);
  bool is_ending_ REPRISE_GUARDED_BY(jobs_mutex_) = false;
  std::thread worker_;
};

}  // namespace reprise::engine
