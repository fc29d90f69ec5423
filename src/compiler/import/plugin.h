// SPDX-License-Identifier: Apache-2.0
//
// libreprise_ge_proto.so: all that touches protobuf, in a library of its own that is opened on demand.
//
// A process may hold other releases of protobuf with the same names: libtorch_cpu.so exports 3.13. A library that links
// protobuf would be given those functions. The plugin is therefore opened with RTLD_DEEPBIND: its own libraries come
// first for it, and for nobody else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/export/export.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// What the plugin does; its one exported function returns the table.
struct ProtoFunctions {
  const char* build;  ///< of which build it is: kProtoBuild
  StatusOr<std::unique_ptr<Graph>> (*import_bytes)(std::string_view bytes);
  StatusOr<std::string> (*export_bytes)(const Graph& graph, const ExportOptions& options);
  StatusOr<std::string> (*text_of_model)(std::string_view bytes);
  StatusOr<std::string> (*model_of_text)(std::string_view text);
};

/// Both libraries are built from this text; its number changes with the structures that they share.
inline constexpr char kProtoBuild[] = "1";
inline constexpr char kProtoLibrary[] = "libreprise_ge_proto.so";
inline constexpr char kProtoSymbol[] = "reprise_ge_proto_functions";

/// The plugin beside this library, opened at the first call. Refuses (100003) when it is missing, when what it needs
/// is, or when it is of another build. Threads: thread-safe.
StatusOr<const ProtoFunctions*> OpenProto();
/// The plugin at a path, for OpenProto and its tests.
StatusOr<const ProtoFunctions*> OpenProtoAt(const std::string& path);

}  // namespace reprise::compiler
