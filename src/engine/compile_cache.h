// SPDX-License-Identifier: Apache-2.0
//
// Compiled graphs in files, for processes that come later.
//
//     FOLDER/KEY.idx                     which file is there for the key, in JSON
//     FOLDER/KEY_YYYYMMDDHHMMSS.om       a line of JSON (what it fits), then the graph after all passes as a model
//     FOLDER/KEY.lock                    held while either is written
//     FOLDER/cache.conf                  {"cache_debug_mode": true}: look, tell, and compile all the same
//
// A file is used if it was made by this version for this processor, of the same graph with the same shapes, under
// options that ask for the same passes, and is whole; then no pass runs. Any other one is told of in a warning, with
// the reason, and the graph is compiled anew.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"
#include "engine/options.h"

namespace reprise::engine {

/// A compiled graph as a model.
StatusOr<std::string> ModelOf(const compiler::Graph& optimised);
/// What the line of a compiled file says of a compilation of `source` here; see compiler/compiled_file.h.
std::string AboutCompiled(const compiler::Graph& source, const compiler::CompileOptions& options);

/// The cache of one compilation; without the two options one that never finds and never keeps.
class CompileCache {
 public:
  /// Refuses a folder that is not there.
  static StatusOr<CompileCache> Open(const OptionSet& options, const compiler::Graph& source,
                                     const compiler::CompileOptions& compile_options);

  /// The compiled graph; null when there is none that fits.
  std::unique_ptr<compiler::Graph> Find();
  bool was_found() const { return was_found_; }
  /// The graph in the bytes of a file; null, and the reason, where they are not of this compilation.
  std::unique_ptr<compiler::Graph> ReadBytes(const std::string& bytes, std::string* reason) const;
  /// Keeps a compiled graph. A file that cannot be written is told of in a warning.
  void Keep(const compiler::Graph& optimised) const;

 private:
  std::string PathOf(const std::string& file) const { return folder_ + "/" + file; }
  std::unique_ptr<compiler::Graph> Read(const std::string& file, std::string* reason) const;
  Status Write(const compiler::Graph& optimised) const;

  std::string folder_;  ///< empty: there is no cache
  std::string key_;
  std::string fits_;  ///< the line that a file begins with, up to its checksum
  bool was_found_ = false;
};

}  // namespace reprise::engine
