// SPDX-License-Identifier: Apache-2.0
//
// Constants whose bytes are in files: nodes of type FileConstant.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// Where files of constants are looked for.
struct FileConstantPlaces {
  std::string folder;                                    ///< of paths that are not absolute; empty: the current one
  std::map<std::string, std::string, std::less<>> bins;  ///< paths by file_id
};

/// The value of a FileConstant node, read from its file: `location` (with `offset` and `length`) goes before
/// `file_path`, and that before `file_id`. Refuses (100000) nodes that name no file, or whose type and shape do not fit
/// it, and (100003) files that cannot be read.
StatusOr<std::shared_ptr<const Constant>> ReadFileConstant(const Node& node, const FileConstantPlaces& places);

}  // namespace reprise::compiler
