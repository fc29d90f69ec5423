// SPDX-License-Identifier: Apache-2.0
//
// A graph of a session, and what it allows at which time.
//
//     added ──Compile──► built ──Load──► loaded          Turn: one compilation, load or run at a time; a second one is
//                                                        refused, never waited for
//
// Memory: constants, features and fixed features have bases of the program's, where it gave some, else blocks of the
// external allocator of the stream that the graph was loaded for, else memory of the executable's own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/compiled_graph.h"
#include "engine/device_work.h"
#include "engine/option_values.h"
#include "engine/options.h"
#include "engine/value_dump.h"

namespace reprise::engine {

/// A tensor that a program gives.
struct InputTensor {
  void* data = nullptr;
  uint64_t bytes = 0;
  InputMeta meta;
};

/// A tensor that a program gets: into memory that it brings, or into memory that the engine takes.
struct OutputTensor {
  void* data = nullptr;  ///< null: the engine takes it
  uint64_t bytes = 0;
  int32_t dtype = -1;
  std::vector<int64_t> shape;
  std::shared_ptr<void> owner;  ///< of memory that the engine has taken
};

enum class MemoryType : uint8_t { kDefault = 0, kP2p = 1 };

/// How a graph is run; see GeSession for those who may not mix them.
enum class RunStyle : uint8_t { kNone, kSync, kAsync, kStream };

/// Threads: thread-safe. No lock is held while allocators of the program run.
class GraphEntry : public std::enable_shared_from_this<GraphEntry> {
 public:
  GraphEntry(CompileSite site, std::shared_ptr<compiler::Graph> graph, std::shared_ptr<const void> identity,
             OptionSet options);
  ~GraphEntry();

  /// One compilation, load or run.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(std::shared_ptr<GraphEntry> entry) : entry_(std::move(entry)) {}
    Turn(Turn&&) noexcept = default;
    Turn& operator=(Turn&&) noexcept = default;
    ~Turn() {
      if (entry_ != nullptr) entry_->End();
    }

   private:
    std::shared_ptr<GraphEntry> entry_;
  };
  /// kGraphAlreadyRunning while another one lasts.
  StatusOr<Turn> Begin();

  const std::shared_ptr<const void>& identity() const { return identity_; }
  void CountLoad();

  // With a Turn.
  Status Compile(std::span<const InputMeta> inputs);
  Status Load(const OptionMap& options, void* stream, const AllocatorPtr& allocator);
  /// Queues a run. `host_anywhere`: any input may be in memory of the host.
  /// `collected`: gets results for callbacks, in the order of state().collected; null: they are dropped.
  Status Run(runtime::Stream& stream, std::span<const InputTensor> inputs, std::vector<OutputTensor>& outputs,
             const AllocatorPtr& allocator, bool host_anywhere, std::vector<OutputTensor>* collected = nullptr);
  /// kUnsupported for a style other than the first one.
  Status Claim(RunStyle style);

  bool has_variables() const { return has_variables_; }
  bool is_built() const;
  bool is_loaded() const;
  /// CompileGraph was called, not only a run.
  bool is_compiled_by_call() const;
  void set_compiled_by_call();
  RunStyle style() const;

  // Between turns.
  StatusOr<std::shared_ptr<const CompiledGraph>> Compiled() const;
  Status SetConstBase(const void* base, uint64_t bytes);
  Status UpdateFeatureBase(const void* base, uint64_t bytes);
  Status UpdateRefreshableBase(const void* base, uint64_t bytes);
  Status SetFixedBase(MemoryType type, const void* base, uint64_t bytes, bool is_policy_4);
  StatusOr<std::string> Timeline() const;
  /// Gives memory back, now or at the end of the turn that lasts.
  void Remove();

 private:
  enum class FeatureUse : uint8_t { kNone, kTotal, kRefreshable };

  void End();
  void Unload();
  std::string Name() const;
  Status CheckSetter(const char* api) const REPRISE_REQUIRES(mutex_);
  Status CheckBase(const char* parameter, const void* base, uint64_t bytes, uint64_t needed) const;
  Status SetFeatures(const void* base, uint64_t bytes, uint64_t needed, FeatureUse use) REPRISE_REQUIRES(mutex_);
  Status TakeRegions(void* stream, const AllocatorPtr& allocator);
  Status ApplyBases(Variant& variant);
  /// A run whose values are dumped goes through another executable.
  struct Dumping {
    std::shared_ptr<compiler::Executable> executable;
    std::vector<DumpedValue> values;
  };
  StatusOr<Dumping> BeginDump(const CompiledGraph& compiled, const Variant& variant, runtime::Stream& stream);
  Status PrepareInputs(const Variant& variant, std::span<const InputTensor> inputs, bool host_anywhere);
  Status CheckSizes(const Variant::Known& known, size_t i, const InputTensor& given,
                    const compiler::RunTensor& tensor) const;
  Status PrepareOutputs(const Variant& variant, size_t results, std::span<const OutputTensor> outputs);
  /// Memory between the nodes of a static graph, while the run is queued; null where the graph has its own.
  StatusOr<std::optional<SharedFeatures::Lease>> LeaseFeatures(compiler::Executable& executable,
                                                               runtime::Stream& stream);
  compiler::FeatureAllocator* FeaturesOf(const compiler::Executable& executable, const AllocatorPtr& allocator,
                                         void* stream);

  const CompileSite site_;
  const std::shared_ptr<const void> identity_;
  const OptionSet options_;
  std::shared_ptr<compiler::Graph> graph_;  ///< the program's, as it was added
  const bool has_variables_;
  const std::unique_ptr<ValueDump> dump_;  ///< with a Turn; null: nothing is dumped

  mutable Mutex mutex_;
  bool is_busy_ REPRISE_GUARDED_BY(mutex_) = false;
  bool is_removed_ REPRISE_GUARDED_BY(mutex_) = false;
  bool is_loaded_ REPRISE_GUARDED_BY(mutex_) = false;
  bool is_compiled_by_call_ REPRISE_GUARDED_BY(mutex_) = false;
  RunStyle style_ REPRISE_GUARDED_BY(mutex_) = RunStyle::kNone;
  uint32_t loads_ REPRISE_GUARDED_BY(mutex_) = 1;
  std::shared_ptr<CompiledGraph> compiled_ REPRISE_GUARDED_BY(mutex_);
  FeatureUse feature_use_ REPRISE_GUARDED_BY(mutex_) = FeatureUse::kNone;
  bool has_fixed_[2] REPRISE_GUARDED_BY(mutex_) = {false, false};
  bool is_fixed_disabled_ REPRISE_GUARDED_BY(mutex_) = false;

  // Written with a Turn, or under mutex_ without one.
  void* const_base_ = nullptr;
  void* feature_base_ = nullptr;
  uint64_t feature_bytes_ = 0;
  std::vector<Memory> regions_;                     ///< of the external allocator
  std::vector<std::shared_ptr<void>> kept_;         ///< what queued runs may still use
  std::vector<std::optional<FrozenInput>> frozen_;  ///< by input; shorter where the rest is not frozen
  std::vector<uint32_t> host_inputs_;
  std::set<void*> streams_;  ///< on which it ran
  // Of the run that is prepared; kept for their memory.
  std::vector<compiler::RunTensor> sources_;
  std::vector<compiler::RunTensor> targets_;
  std::vector<KnownPlace> places_;  ///< by input
};

}  // namespace reprise::engine
