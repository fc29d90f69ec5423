// SPDX-License-Identifier: Apache-2.0
//
// From graphs of the compiler to models (api/ge.proto), and files of both.
//
// What came from a model is written as it was read, as far as it still holds: types and shapes that have changed since
// are written as they are now.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// How much of a graph is written.
enum class Content : uint8_t {
  kAll,        ///< also the bytes of constants
  kNoData,     ///< constants have types and shapes only
  kStructure,  ///< names, types and edges
};

struct ExportOptions {
  Content content = Content::kAll;
  bool completes = false;  ///< all inputs and outputs are described, also those that the model did not describe
};

/// A serialised model. Refuses (100000) graphs that a model cannot hold: more than 2 GiB.
StatusOr<std::string> ExportBytes(const Graph& graph, const ExportOptions& options = {});
/// A model in protobuf's text form.
StatusOr<std::string> ToProtoText(const Graph& graph, const ExportOptions& options = {});

/// Writes and reads a file of a serialised model (.air). Refuse (100003, 100004) files that cannot be used, with the
/// reason of the system; a file that cannot be written completely is left as it was.
Status SaveModel(const Graph& graph, const std::string& path);
StatusOr<std::unique_ptr<Graph>> LoadModel(const std::string& path);

}  // namespace reprise::compiler
