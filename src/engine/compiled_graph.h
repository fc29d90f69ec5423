// SPDX-License-Identifier: Apache-2.0
//
// A graph of a session, compiled: one executable, or one for each gear or for each set of shapes that came along.
//
//     compiler::Graph ──input shapes, gears──► graphs ──compiler──► variants, summary
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/checked_inputs.h"
#include "compiler/executable.h"
#include "compiler/graph.h"
#include "engine/graph_state.h"
#include "engine/options.h"
#include "engine/shared_features.h"
#include "engine/summary.h"

namespace reprise::engine {

/// What a caller says of an input.
struct InputMeta {
  int32_t dtype = -1;  ///< aclDataType; -1: as the graph has it
  std::vector<int64_t> shape;
};

/// An executable, and for which sizes of inputs it is.
struct Variant {
  /// What an input is, ready to be compared.
  struct Known {
    int32_t dtype = -1;
    bool has_sizes = false;
    std::vector<int64_t> sizes;
    uint64_t bytes = 0;
  };

  std::vector<opdef::Shape> inputs;
  std::vector<Known> known;                           ///< the same
  std::vector<std::optional<uint64_t>> result_bytes;  ///< of results whose sizes are known
  std::shared_ptr<compiler::Executable> executable;
  uint64_t constants_at = 0;  ///< offset in the region of constants, which all variants share
};

/// Where a compilation happens.
struct CompileSite {
  uint64_t session = 0;
  uint32_t graph = 0;
  std::string weight_folder;  ///< for constants in files; made on demand
  std::shared_ptr<Variables> variables;
  std::shared_ptr<SharedFeatures> features;  ///< null: graphs have features of their own
  int device = 0;
};

/// Threads: thread-compatible.
class CompiledGraph {
 public:
  /// Compiles. `inputs` beat hints; empty: nothing is said. Refuses what the options forbid, and what the compiler
  /// refuses, as a number of the engine.
  static StatusOr<std::shared_ptr<CompiledGraph>> Compile(const compiler::Graph& source, const OptionSet& options,
                                                          std::span<const InputMeta> inputs, const CompileSite& site);

  /// A graph with the shapes of these inputs, and how it is compiled; for trials.
  struct Subject {
    compiler::Graph graph;
    compiler::CompileOptions options;
  };
  static StatusOr<Subject> PrepareTrial(const compiler::Graph& source, const OptionSet& options,
                                        std::span<const InputMeta> inputs);

  const Summary& summary() const { return summary_; }
  /// The variant of every run; null where the inputs decide.
  Variant* only_variant() { return has_gears_ || is_specialised_ ? nullptr : &variants_.front(); }
  /// Inputs behind those of the program, and results behind its own.
  const GraphState& state() const { return state_; }
  const compiler::CompileOptions& compile_options() const { return compile_options_; }
  bool has_gears() const { return has_gears_; }
  /// What the results are; of gears those of the first one.
  std::span<const compiler::Tensor> results() const { return variants_.front().executable->results(); }
  /// Weights among the inputs: executables of known shapes, also those that come later, keep what they make of them
  /// while they stay the same (compiler/checked_inputs.h).
  void CheckInputs(std::vector<uint32_t> weights);
  /// What became of them in the runs of the first variant; nothing where none is worth it.
  std::optional<compiler::CheckedRuns> checked_runs() const {
    return compiler::CheckedRunsOf(*variants_.front().executable);
  }
  std::vector<Variant>& variants() { return variants_; }
  /// The executable for these inputs. Gears: kParamInvalid unless one fits. Where shapes came along with a run, others
  /// are compiled when they come, and use memory of their own.
  StatusOr<Variant*> Choose(std::span<const InputMeta> inputs);
  /// The graph after all passes; of gears the first one's.
  const compiler::Graph& optimised() const { return variants_.front().executable->graph(); }
  /// The same as the program sees it: variables are nodes.
  compiler::Graph visible() const;

 private:
  Status Add(const std::vector<opdef::Shape>& shapes);
  void CheckInputsOf(Variant& variant) const;
  Status AddGears(const std::vector<opdef::Shape>& shapes);
  void Summarise();

  compiler::Graph source_;
  GraphState state_;
  OptionSet options_;
  compiler::CompileOptions compile_options_;
  CompileSite site_;
  std::vector<uint32_t> weights_;
  std::vector<Variant> variants_;
  bool has_gears_ = false;
  bool is_specialised_ = false;  ///< sizes that the graph leaves open came along with a run
  Summary summary_;
};

/// In place of compiler::Executable::Compile, for tests of what is around it; null: that again.
using CompileFunction = StatusOr<std::shared_ptr<compiler::Executable>> (*)(compiler::Graph,
                                                                            const compiler::CompileOptions&);
void SetCompileFunction(CompileFunction function);
/// How many executables were compiled so far, not taken from a cache.
uint64_t CountOfCompilations();

}  // namespace reprise::engine
