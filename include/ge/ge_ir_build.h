/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs compiled ahead of time, without a session:

       ge::aclgrphBuildInitialize(global);
       ge::aclgrphBuildModel(graph, {{"input_shape", "x:1,16"}}, model);
       ge::aclgrphSaveModel("net", model);              // net.om
       ge::aclgrphBuildFinalize();

   What comes out is a compiled graph of this library, for this kind of processor. ge::Graph::LoadFromFile and
   LoadFromMem read it; a session then runs it. Options are those of sessions and graphs (ge/ge_api_types.h),
   input_shape and output_type. Gears, preprocessing of images and bundles are refused: UNSUPPORTED. */
#ifndef REPRISE_GE_GE_IR_BUILD_H_
#define REPRISE_GE_GE_IR_BUILD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ge/ge_api_types.h"
#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/graph.h"
#include "graph/tensor.h"

#pragma GCC visibility push(default)

namespace ge {

const int IR_MAJOR_VERSION = 1;
const int IR_MINOR_VERSION = 0;
const int IR_PATCH_VERSION = 0;

enum aclgrphAttrType : int32_t { ATTR_TYPE_KEEP_DTYPE = 0, ATTR_TYPE_WEIGHT_COMPRESS = 1 };

struct GraphWithOptions {
  ge::Graph graph;
  std::map<AscendString, AscendString> build_options;
};

/* Options for all builds until aclgrphBuildFinalize. */
graphStatus aclgrphBuildInitialize(std::map<AscendString, AscendString>& global_options);
inline graphStatus aclgrphBuildInitialize(std::map<std::string, std::string>& global_options) {
  std::map<AscendString, AscendString> options;
  for (const auto& option : global_options) options[AscendString(option.first.c_str())] = option.second.c_str();
  return aclgrphBuildInitialize(options);
}
void aclgrphBuildFinalize();

/* The graph stays as it is. */
graphStatus aclgrphBuildModel(const Graph& graph, const std::map<AscendString, AscendString>& build_options,
                              ModelBufferData& model);
inline graphStatus aclgrphBuildModel(const Graph& graph, const std::map<std::string, std::string>& build_options,
                                     ModelBufferData& model) {
  std::map<AscendString, AscendString> options;
  for (const auto& option : build_options) options[AscendString(option.first.c_str())] = option.second.c_str();
  return aclgrphBuildModel(graph, options, model);
}
/* ".om" is put behind a name that does not end so. */
graphStatus aclgrphSaveModel(const char* output_file, const ModelBufferData& model);
inline graphStatus aclgrphSaveModel(const std::string& output_file, const ModelBufferData& model) {
  return aclgrphSaveModel(output_file.c_str(), model);
}

graphStatus aclgrphGetIRVersion(int* major_version, int* minor_version, int* patch_version);
/* Types and shapes of all nodes of the graph. */
graphStatus aclgrphInferShapeAndType(ge::Graph& graph);
/* The graph as text, in a file of this name. */
graphStatus aclgrphDumpGraph(const ge::Graph& graph, const char* file, const size_t len);
/* A graph of one operator, whose inputs are those of the graph. */
graphStatus aclgrphGenerateForOp(const AscendString& op_type, const std::vector<TensorDesc>& inputs,
                                 const std::vector<TensorDesc>& outputs, Graph& graph);

/* Refused. */
graphStatus aclgrphSetOpAttr(Graph& graph, aclgrphAttrType attr_type, const char* cfg_path);
graphStatus aclgrphBundleBuildModel(const std::vector<GraphWithOptions>& graph_with_options, ModelBufferData& model);
graphStatus aclgrphBundleSaveModel(const char* output_file, const ModelBufferData& model);

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GE_GE_IR_BUILD_H_
