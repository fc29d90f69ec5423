// SPDX-License-Identifier: Apache-2.0
//
// Executable: a graph of operators, compiled, that runs any number of times.
//
//     Graph ──passes──► Graph ──lower──► launches ──plan──► Program (ir::Graph, exec::Replay) ──► Run
//
// Memory is in regions. The caller gives the bases of inputs and outputs with each run, those of constants and of
// features (intermediate results and workspaces) when it likes, or has the executable allocate both.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "compiler/passes/passes.h"
#include "compiler/streams.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::compiler {

class TuningBank;

/// What is asked of a compilation, beside the graph.
struct CompileOptions {
  bool reuses_memory = true;  ///< intermediate results share memory where their lives allow it
#ifdef NDEBUG
  bool validates_memory = false;  ///< checks the memory plan: no two values that are needed at once share bytes
#else
  bool validates_memory = true;
#endif
  bool has_single_stream = false;  ///< everything on one stream, in order
  PassOptions passes;
  bool is_optimised = false;               ///< the graph has come through these passes already: none of them runs
  std::shared_ptr<const TuningBank> bank;  ///< choices that were measured; null: the usual ones
  std::vector<uint32_t> scratch_inputs;    ///< inputs that may be overwritten
  std::vector<uint32_t> scratch_outputs;   ///< outputs that may hold other values before they are written
  std::vector<std::pair<uint32_t, uint32_t>> shared_inputs;  ///< (input, output) that the caller puts at one address
  /// Constants are dropped when the first run has written them to their region, whose memory then stays the same.
  bool drops_constants = false;
};

/// A tensor of a run: where it is, and what it is.
struct RunTensor {
  void* data = nullptr;  ///< device memory; for outputs null: see Executable::Run
  uint64_t bytes = 0;
  int32_t dtype = -1;          ///< outputs: filled in
  std::vector<int64_t> shape;  ///< outputs: filled in
  bool on_host = false;        ///< `data` is memory of the host, read before Run returns
};

/// Where outputs that the caller gives no memory for come from.
class OutputAllocator {
 public:
  virtual ~OutputAllocator() = default;
  /// Memory of at least `bytes` for output `index`; null: there is none.
  virtual void* Allocate(size_t index, uint64_t bytes) = 0;
};

/// Where memory of one run comes from: features of shapes that were not known before.
class FeatureAllocator {
 public:
  virtual ~FeatureAllocator() = default;
  virtual void* Allocate(uint64_t bytes) = 0;
  virtual void Free(void* block) = 0;
};

/// What is known only when a queued run has its turn on the stream: whether it does anything.
struct RunCondition {
  std::atomic<bool> holds{false};  ///< written by a task of the stream before the run
};

/// One run.
struct RunRequest {
  std::span<const RunTensor> inputs;
  std::span<RunTensor> outputs;
  OutputAllocator* allocator = nullptr;  ///< null: outputs without memory are refused
  FeatureAllocator* features = nullptr;  ///< null: the executable's own
  /// Of static executables: the run does nothing unless `condition->holds` is `runs_if`. Null: it always runs.
  std::shared_ptr<const RunCondition> condition = nullptr;
  bool runs_if = true;
};

/// Sizes of the regions of a static executable, multiples of 512.
struct MemoryNeeds {
  uint64_t constants = 0;
  uint64_t features = 0;        ///< fixed ones included
  uint64_t fixed_features = 0;  ///< that must not move between runs
};

/// Memory between nodes: which tasks need it, and where it lies among the features.
struct PlannedBlock {
  std::string name;    ///< of the nodes that write it
  uint32_t begin = 0;  ///< the first task
  uint32_t end = 0;    ///< behind the last one
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// Threads: Run is thread-safe; runs of one executable come one after another, in the order of the calls.
class Executable {
 public:
  virtual ~Executable() = default;

  /// Compiles a verified graph. Refuses operators that have no kernel (100024) with node and type.
  static StatusOr<std::shared_ptr<Executable>> Compile(Graph graph, const CompileOptions& options);

  /// Whether all shapes are known, so that Needs() holds and one plan serves all runs.
  virtual bool is_static() const = 0;
  virtual const MemoryNeeds& needs() const = 0;
  /// The graph as it runs, after all passes.
  virtual const Graph& graph() const = 0;
  /// What the passes did.
  virtual const PassRecords& pass_records() const { return pass_records_; }
  /// What the results are, as far as that is known before a run.
  virtual std::span<const Tensor> results() const = 0;
  /// (input, output) that lie at one address.
  virtual std::span<const std::pair<uint32_t, uint32_t>> shared() const = 0;
  /// Logical streams, by number, with their nodes of graph().
  virtual std::span<const LogicalStream> logical_streams() const = 0;
  size_t streams() const { return logical_streams().size(); }
  virtual size_t events() const = 0;
  /// Of static executables.
  virtual std::vector<PlannedBlock> memory_plan() const { return {}; }

  /// Memory of the caller for a region, as large as needs() says, aligned to 512; null: the executable's own. Between
  /// runs; features also while runs are pending, which keep what they were given. Static executables only.
  virtual Status SetConstants(void* base, uint64_t bytes) = 0;
  virtual Status SetFeatures(void* base, uint64_t bytes) = 0;
  virtual Status SetFixedFeatures(void* base, uint64_t bytes) = 0;

  /// Queues one run on the stream. Returns before it is complete unless shapes depend on data. Refuses (100000) tensors
  /// that do not fit the graph, with the index and both shapes. A captured stream records the run.
  virtual Status Run(runtime::Stream& stream, const RunRequest& request) = 0;

 private:
  PassRecords pass_records_;
};

}  // namespace reprise::compiler
