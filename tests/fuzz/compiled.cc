// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: files of compiled graphs, as they are and behind a line that fits, and what is compiled of them.
#include <memory>
#include <string>

#include "compiler/compiled_file.h"
#include "compiler/executable.h"
#include "compiler/import/import.h"
#include "compiler/text.h"
#include "engine/compile_cache.h"
#include "input.h"

using namespace reprise::fuzz;      // NOLINT: the two functions that libFuzzer looks for
using namespace reprise::compiler;  // NOLINT

namespace {

constexpr size_t kMostNodes = 64;

const Graph& Source() {
  static const std::unique_ptr<Graph> graph = [] {
    auto made = FromText("graph g\nx = Data() : float32 [4]\ny = Relu(x)\nreturn y\n");
    if (!made.ok()) Found("the source is not read");
    return std::move(made).value();
  }();
  return *graph;
}

reprise::engine::CompileCache OpenCache() {
  const reprise::engine::OptionMap options{{"ge.graph_compiler_cache_dir", "/"}, {"ge.graph_key", "k"}};
  auto cache = reprise::engine::CompileCache::Open({{}, options, options}, Source(), {});
  if (!cache.ok()) Found("the cache is not opened");
  return std::move(cache).value();
}

void Read(const std::string& bytes) {
  static const reprise::engine::CompileCache cache = OpenCache();
  std::string reason;
  const std::unique_ptr<Graph> graph = cache.ReadBytes(bytes, &reason);
  if (graph == nullptr) {
    if (reason.empty()) Found("a file is not used, for no reason");
    return;
  }
  if (graph->nodes.size() > kMostNodes) return;
  for (const bool is_optimised : {false, true}) {
    CompileOptions options;
    options.is_optimised = is_optimised;
    auto executable = Executable::Compile(*graph, options);
    if (!executable.ok() && std::move(executable).status().detail().hint.empty()) Found("a refusal without advice");
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string copy(reinterpret_cast<const char*>(data), bytes);
  Read(copy);
  Read(PackCompiled(reprise::engine::AboutCompiled(Source(), {}), copy));
  if (auto model = ModelOfText(copy); model.ok()) {
    Read(PackCompiled(reprise::engine::AboutCompiled(Source(), {}), *model));
  }
  return 0;
}
