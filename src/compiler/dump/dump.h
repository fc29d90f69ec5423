// SPDX-License-Identifier: Apache-2.0
//
// Graphs in files, as they are between the stages of a compilation: asked for by DUMP_GE_GRAPH and its companions
// (docs/environment.md). Nothing is written, and nothing costs, where it is not set.
//
//     <folder>/pid_17_deviceid_0/ge_proto_00000003_graph_1_PreRunBegin.txt
//     <folder>/pid_17_deviceid_0/ge_onnx_00000003_graph_1_PreRunBegin.pbtxt
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/export/export.h"
#include "compiler/graph.h"

namespace reprise::compiler {

enum class DumpForm : uint8_t {
  kOnnx,      ///< a model of ONNX in protobuf's text form, for viewers
  kProto,     ///< the model (api/ge.proto) in protobuf's text form
  kReadable,  ///< a line for each node
};

/// The graph in this form. Fails only where the plugin of models does, for kProto.
StatusOr<std::string> DumpText(const Graph& graph, DumpForm form, Content content);
std::string OnnxText(const Graph& graph, Content content);
/// Attributes are those of the operators; edges of order are left out. Constants of up to 6 values are shown whole, of
/// others the first and the last three.
std::string ReadableText(const Graph& graph);

/// What is dumped, and where.
struct DumpSettings {
  bool is_on = false;
  Content content = Content::kNoData;
  int level = 2;                    ///< 1 all stages, 2 the usual ones, 3 the last, 4 the first; 0: `stages`
  std::vector<std::string> stages;  ///< parts of names
  std::vector<DumpForm> forms;
  std::string folder;  ///< empty: the current one, without a folder for the process

  bool Takes(std::string_view stage) const;
};

/// Texts of the variables; empty: not set.
struct DumpVariables {
  std::string graph = {};      ///< DUMP_GE_GRAPH
  std::string level = {};      ///< DUMP_GRAPH_LEVEL
  std::string form = {};       ///< DUMP_GRAPH_FORMAT
  std::string path = {};       ///< DUMP_GRAPH_PATH
  std::string dump_path = {};  ///< ASCEND_DUMP_PATH, which goes before it
  std::string work_path = {};  ///< ASCEND_WORK_PATH, which comes behind it
};

/// What is wrong in the variables is told in `complaints`, and then as if it was not set.
DumpSettings ReadDumpSettings(const DumpVariables& variables, std::vector<std::string>* complaints);
/// The settings of the environment, read at the first call.
const DumpSettings& TheDumpSettings();

struct DumpPoint {
  uint32_t graph_id = 0;
  std::string_view stage = {};
  int device = 0;
  bool is_single_op = false;  ///< a graph of one operator that was called by its type
  bool is_forced = false;     ///< whatever the level says: the last stage, while operators are dumped
};

/// Writes the files of one stage, if the settings take it. A dump that cannot be written is told as a warning of the
/// module GE, and nothing else. Threads: thread-safe.
void DumpStage(const Graph& graph, const DumpPoint& point, const DumpSettings& settings) noexcept;
/// By the environment.
void DumpStage(const Graph& graph, const DumpPoint& point) noexcept;
inline void DumpStage(const Graph& graph, uint32_t graph_id, std::string_view stage) noexcept {
  DumpStage(graph, {.graph_id = graph_id, .stage = stage});
}

/// One file without weights, whether dumps are on or not; `suffix` in the place of a stage. Its path.
StatusOr<std::string> DumpToFile(const Graph& graph, DumpForm form, const DumpPoint& point,
                                 const DumpSettings& settings = TheDumpSettings());

}  // namespace reprise::compiler
