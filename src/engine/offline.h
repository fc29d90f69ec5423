// SPDX-License-Identifier: Apache-2.0
//
// Graphs compiled without a session, to bytes that ge::Graph reads (aclgrphBuildModel).
#pragma once

#include <string>

#include "base/status.h"
#include "compiler/graph.h"
#include "engine/options.h"

namespace reprise::engine {

// Threads: thread-safe.

/// Options for all builds until the next EndBuilds. kParamInvalid for bad values.
Status BeginBuilds(const OptionMap& options);
void EndBuilds();

/// The compiled graph, in the form of compiler/compiled_file.h. `options`: those of sessions and graphs, and those of
/// builds: input_shape, output_type, dynamic_batch_size, dynamic_image_size, dynamic_dims. With gears the graph keeps
/// its open sizes, and says which gears it was built for; each of them was compiled once. kUnsupported for what one
/// compiled graph cannot be: preprocessing, other outputs.
StatusOr<std::string> BuildOffline(const compiler::Graph& graph, const OptionMap& options);
/// The gears that a compiled graph was built for; empty texts: none.
struct OfflineGears {
  std::string kind;    ///< "batch", "image", "dims"
  std::string shapes;  ///< as ge.inputShape
  std::string dims;    ///< as ge.dynamicDims
};
OfflineGears GearsOfModel(const compiler::Graph& graph);
/// Writes it to a file, whose name gets ".om" unless it ends so. kParamInvalid for bytes that are no compiled graph.
Status SaveOffline(const std::string& path, std::string_view bytes);
/// Types and shapes of all nodes, as a compilation infers them.
Status InferOffline(compiler::Graph& graph);

}  // namespace reprise::engine
