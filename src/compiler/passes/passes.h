// SPDX-License-Identifier: Apache-2.0
//
// Passes: rewrites of a graph, one after another, each with a name that options switch.
//
// A pass is a function that changes the graph and counts what it did. It sees verified graphs with inferred shapes, and
// leaves such behind. The list has them in the order in which they run, by stage; a pass runs when its level is
// admitted, its switch is on, and nobody has turned it off by name.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

enum class Level : uint8_t {
  kO0,  ///< always: the graph is wrong without it
  kO1,  ///< folding, dead branches, shapes
  kO3,  ///< everything
};

/// Groups of passes that options name together.
enum class PassGroup : uint8_t { kPlain, kGraphFusion, kBufferFusion };

/// What became of a pass.
struct PassRecord {
  uint64_t matched = 0;   ///< places that look as the pass wants them
  uint64_t changed = 0;   ///< of those, the ones that were rewritten
  std::vector<std::string> refusals;  ///< of the others: node and reason, the first few
};

struct PassOptions {
  Level level = Level::kO3;
  bool folds_constants = true;    ///< ge.oo.constantFolding
  bool drops_dead_code = true;    ///< ge.oo.deadCodeElimination
  bool prefers_memory = false;    ///< ge.exec.memoryOptimizationPolicy = MemoryPriority
  bool is_inference = true;
  std::map<std::string, bool, std::less<>> switched;  ///< by name: on, off; "ALL"
  std::vector<std::string> disabled;                  ///< ge.disableOptimizations
  std::vector<uint32_t> scratch_inputs;
  std::vector<std::pair<uint32_t, uint32_t>> shared_inputs;
};

/// What passes may use. One compilation.
struct PassContext {
  const PassOptions& options;
  opdef::Facts& facts;
  PassRecord* record = nullptr;  ///< of the pass that runs

  /// A place matches; and was rewritten, or was not for a reason.
  void Changed() { ++record->matched, ++record->changed; }
  void Refused(const Node& node, std::string_view reason);
};

struct Pass {
  std::string_view name;    ///< as options spell it
  Level level = Level::kO3;
  PassGroup group = PassGroup::kPlain;
  std::string_view switched_by = {};  ///< "ge.oo.constantFolding", …; empty: by its name alone
  Status (*run)(Graph& graph, PassContext& context) = nullptr;
  std::string_view about = {};
};

/// All, in the order in which they run.
std::span<const Pass> Passes();

using PassRecords = std::map<std::string, PassRecord, std::less<>>;

/// Runs what the options admit, until nothing changes where passes feed each other. The graph is verified and inferred
/// again behind each pass that changed it.
Status RunPasses(Graph& graph, const PassOptions& options, PassRecords* records);

}  // namespace reprise::compiler
