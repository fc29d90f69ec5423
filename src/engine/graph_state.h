// SPDX-License-Identifier: Apache-2.0
//
// What a session keeps between runs of its graphs: variables by name. And what a graph hands to callbacks of the
// session. Both are taken out of a graph before it is compiled: variables become inputs behind those of the program,
// what is handed out becomes results behind its own.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "compiler/graph.h"
#include "engine/device_work.h"

namespace reprise::engine {

/// A variable of a graph.
struct VariableUse {
  std::string name;  ///< shared_name, or that of the node
  std::string type;  ///< of the node: Variable, VariableV2
  compiler::Tensor tensor;
  uint64_t bytes = 0;
};

/// A result for a callback.
struct CollectedResult {
  std::string key;   ///< "Summary", "Save"
  std::string name;  ///< of the node; of several values of one node, those of what computes them
};

struct GraphState {
  std::vector<VariableUse> variables;
  std::vector<CollectedResult> collected;
};

/// Takes variables and collected results out. Those of
/// called graphs are handed over by the graph that calls. kParamInvalid for variables without a known size, and in
/// loops.
StatusOr<GraphState> TakeState(compiler::Graph& graph);
/// Whether there is a variable.
bool HasVariables(const compiler::Graph& graph);
/// Variables as nodes again, for the program to see.
void PutStateBack(const GraphState& state, compiler::Graph& graph);

/// Threads: thread-safe.
class Variables {
 public:
  struct Value {
    int32_t dtype = -1;
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
    void* data = nullptr;
  };
  /// The memory of a variable, for work on a stream; zeros from the first use on. kParamInvalid where the session has
  /// another variable of that name.
  StatusOr<Value> Use(const VariableUse& use, void* stream);
  /// What is there when all work that used variables is done. kParamInvalid for a name that there is not.
  StatusOr<std::vector<Value>> Read(std::span<const std::string> names);

 private:
  struct Kept {
    Value value;
    Memory memory;
  };
  Mutex mutex_;
  std::map<std::string, Kept> kept_ REPRISE_GUARDED_BY(mutex_);
  std::set<void*> streams_ REPRISE_GUARDED_BY(mutex_);
};

}  // namespace reprise::engine
