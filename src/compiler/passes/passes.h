// SPDX-License-Identifier: Apache-2.0
//
// Passes: rewrites of a graph, one after another, each with a name that options switch.
//
// A pass is a function that changes the graph and counts what it did. It sees verified graphs with inferred shapes, and
// leaves such behind: what it adds has types and shapes. The list has them in the order in which they run, by stage; a
// pass runs when its level is admitted, its switch is on, and nobody has turned it off by name. It runs for the graph
// and for each graph that is called below it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "compiler/order.h"

namespace reprise::compiler {

enum class Level : uint8_t {
  kO0,  ///< always: the graph is wrong without it
  kO1,  ///< folding, dead branches, shapes
  kO3,  ///< everything
};

/// Groups of passes that options name together.
enum class PassGroup : uint8_t { kPlain, kGraphFusion, kBufferFusion };

/// When a pass runs. The passes of one stage run one after another, and again until none of them changes anything,
/// where a stage repeats.
enum class Stage : uint8_t {
  kPrepare,
  kInference,  ///< repeats: what is folded makes shapes known
  kPrepareOptimise,
  kFusion,     ///< repeats
  kOptimise1,  ///< repeats
  kOptimise2,  ///< repeats
  kOptimise3,
  kAfterSplit,
  kBeforeBuild,
  kCount
};
/// As dumps call the graph behind the stage: "PreRunAfterPrepare".
std::string_view NameOf(Stage stage);

/// What became of a pass.
struct PassRecord {
  uint64_t matched = 0;               ///< places that look as the pass wants them
  uint64_t changed = 0;               ///< of those, the ones that were rewritten
  std::vector<std::string> refusals;  ///< of the others: node and reason, the first few
};

/// By name of a pass: on, off. "ALL": those that have no entry of their own.
using Switches = std::map<std::string, bool, std::less<>>;

struct PassOptions {
  Level level = Level::kO3;
  bool folds_constants = true;  ///< ge.oo.constantFolding
  bool drops_dead_code = true;  ///< ge.oo.deadCodeElimination
  bool prefers_memory = false;  ///< ge.exec.memoryOptimizationPolicy = MemoryPriority
  bool is_inference = true;
  Switches switched;                     ///< ge.optimizationSwitch: beats everything but Level::kO0
  std::vector<std::string> disabled;     ///< ge.disableOptimizations
  Switches graph_fusions;                ///< ge.fusionSwitchFile, GraphFusion
  Switches buffer_fusions;               ///< ge.fusionSwitchFile, UBFusion
  OrderMode order = OrderMode::kStable;  ///< ge.topoSortingMode
  std::vector<uint32_t> scratch_inputs;
  std::vector<std::pair<uint32_t, uint32_t>> shared_inputs;
  std::function<void(Stage, const Graph&)> on_stage;  ///< behind each stage, also when it changed nothing; may be empty
};

/// What decides which graph the passes make of another one, as a text: equal for equal choices.
std::string TextOf(const PassOptions& options);

/// What passes may use. One compilation.
struct PassContext {
  const PassOptions& options;
  opdef::Facts& facts;
  const Graph* root = nullptr;   ///< the graph that is compiled; the pass may run for one below it
  PassRecord* record = nullptr;  ///< of the pass that runs

  /// A place matches, and was rewritten.
  void Changed() { ++record->matched, ++record->changed; }
  /// A place matches, and was left for a reason.
  void Refused(const Node& node, std::string_view reason);
  bool is_root(const Graph& graph) const { return &graph == root; }
};

struct Pass {
  std::string_view name;  ///< as options spell it
  Stage stage = Stage::kFusion;
  Level level = Level::kO3;
  PassGroup group = PassGroup::kPlain;
  std::string_view switched_by = {};  ///< "ge.oo.constantFolding", …; empty: by its name alone
  Status (*run)(Graph& graph, PassContext& context) = nullptr;
  std::string_view about = {};
};

/// All, in the order in which they run.
std::span<const Pass> Passes();
/// The pass of a name, or null. Where it runs in several stages, the first.
const Pass* FindPass(std::string_view name);
/// Whether ge.disableOptimizations takes the name.
bool CanBeDisabled(std::string_view name);
/// Whether these options let the pass run.
bool IsAdmitted(const Pass& pass, const PassOptions& options);

using PassRecords = std::map<std::string, PassRecord, std::less<>>;

/// Runs what the options admit. The graph is verified and inferred again behind each stage that changed it, and
/// sorted at the end. `records` may be null.
Status RunPasses(Graph& graph, const PassOptions& options, PassRecords* records);
/// Runs one pass once, whatever the options say of it.
Status RunPass(const Pass& pass, Graph& graph, const PassOptions& options, PassRecord* record);

}  // namespace reprise::compiler
