// SPDX-License-Identifier: Apache-2.0
//
// Files of what the nodes of a graph read and write (ge.exec.enableDump):
//
//     PATH/TIME/DEVICE/GRAPH/GRAPH_ID/STEP/TYPE.NODE.TASK.STREAM.MICROSECONDS.output.0.npy
//     PATH/TIME/DEVICE/GRAPH/GRAPH_ID/STEP/statistics.csv                                    ge.exec.dumpData = stats
//
// A run that is dumped is one of another executable: the graph as it runs otherwise, with these values as further
// results. They are written when the stream has come to the end of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "engine/device_work.h"
#include "engine/options.h"

namespace reprise::engine {

/// A value that is dumped, and where it is.
struct DumpedValue {
  std::string type;  ///< of the node
  std::string node;
  size_t task = 0;  ///< the place of the node in the graph
  bool is_input = false;
  size_t index = 0;
  int32_t dtype = -1;
  std::vector<int64_t> shape = {};
  Memory memory = {};
  uint64_t bytes = 0;
};

/// Threads: thread-compatible.
class ValueDump {
 public:
  /// Null where the options ask for none.
  static std::unique_ptr<ValueDump> Of(const OptionSet& options, uint32_t graph_id, int device);

  /// Counts a run; whether it is one that is dumped.
  bool Begin();

  /// The executable that stands for another one, and the values behind its results.
  struct Copy {
    std::shared_ptr<compiler::Executable> executable;
    std::vector<DumpedValue> values;  ///< without memory
  };
  StatusOr<const Copy*> CopyOf(const std::shared_ptr<compiler::Executable>& original,
                               const compiler::CompileOptions& options);

  /// Writes the values of this run, behind what is on the stream.
  Status Write(runtime::Stream& stream, const std::string& graph, std::vector<DumpedValue> values) const;

 private:
  bool Wants(const compiler::Node& node) const;

  std::string path_;
  std::string steps_;
  std::vector<std::string> layers_;  ///< names or types; empty: all
  bool inputs_ = false;
  bool outputs_ = true;
  bool only_statistics_ = false;
  uint32_t graph_id_ = 0;
  int device_ = 0;
  uint64_t next_step_ = 0;
  std::map<std::shared_ptr<compiler::Executable>, Copy> copies_;
};

}  // namespace reprise::engine
