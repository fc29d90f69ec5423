// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_files.h"

#include <fmt/format.h>

#include <set>

#include "base/folder.h"
#include "base/text_file.h"
#include "compiler/hash.h"
#include "engine/compiled_graph.h"
#include "engine/numbers.h"

namespace reprise::engine {
namespace {

constexpr uint64_t kWeightAlignment = 512;

}  // namespace

StatusOr<std::vector<WeightFile>> WriteWeights(const compiler::Graph& graph, const OptionSet& options,
                                               const CompileSite& site) {
  std::vector<WeightFile> files;
  if (options.Is("ge.externalWeight", "0")) return files;
  std::string folder(options.Get("ge.externalWeightDir"));
  if (folder.empty()) folder = site.weight_folder;
  if (Status made = MakeFolder(folder); !made.ok()) return As(kGraphPrerunFailed, kStageFailed, std::move(made));
  const bool is_combined = options.Is("ge.externalWeight", "2");
  const std::string combined = fmt::format("{}/{}_weight_combined", folder, graph.name);
  std::string together;
  std::set<std::string> written;
  for (const compiler::Node& node : graph.nodes) {
    if (node.is_removed || node.constant == nullptr) continue;
    const std::string& bytes = node.constant->bytes;
    if (is_combined) {
      together.resize((together.size() + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment);
      files.push_back({combined, bytes.size(), together.size(), node.name});
      together += bytes;
      continue;
    }
    const std::string id = "weight_" + compiler::DigestText(bytes);
    WeightFile file{folder + "/" + id, bytes.size(), 0, id};
    if (written.insert(id).second) {
      if (Status done = WriteTextFile(file.path, bytes); !done.ok()) {
        return As(kGraphPrerunFailed, kStageFailed, std::move(done));
      }
    }
    files.push_back(std::move(file));
  }
  if (is_combined && !files.empty()) {
    if (Status done = WriteTextFile(combined, together); !done.ok()) {
      return As(kGraphPrerunFailed, kStageFailed, std::move(done));
    }
  }
  return files;
}

}  // namespace reprise::engine
