// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/folder.h"
#include "base/text_file.h"
#include "compiler/hash.h"
#include "compiler/import/file_constant.h"
#include "engine/compiled_graph.h"
#include "engine/json_files.h"
#include "engine/numbers.h"
#include "opdef/graph_op.h"

namespace reprise::engine {
namespace {

constexpr uint64_t kWeightAlignment = 512;

bool IsInFile(const compiler::Node& node) { return !node.is_removed && node.type == "FileConstant"; }

bool HasFiles(const compiler::Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const compiler::Node& node) {
    return IsInFile(node) || (!node.is_removed && std::ranges::any_of(node.graphs, [](const auto& callee) {
             return callee != nullptr && HasFiles(*callee);
           }));
  });
}

Status ReadWeightsFrom(compiler::Graph& graph, const compiler::FileConstantPlaces& places) {
  for (compiler::Node& node : graph.nodes) {
    if (node.is_removed) continue;
    for (std::shared_ptr<compiler::Graph>& callee : node.graphs) {
      if (callee == nullptr || !HasFiles(*callee)) continue;
      callee = std::make_shared<compiler::Graph>(*callee);
      REPRISE_RETURN_IF_ERROR(ReadWeightsFrom(*callee, places));
    }
    if (!IsInFile(node)) continue;
    auto constant = compiler::ReadFileConstant(node, places);
    if (!constant.ok()) return As(kGraphPrerunFailed, kStageFailed, std::move(constant).status());
    if (node.outputs.empty()) node.outputs.push_back({"y", {}});
    node.outputs[0].tensor.dtype = (*constant)->dtype;
    node.outputs[0].tensor.shape = opdef::Shape::Of((*constant)->shape);
    node.type = "Const";
    node.kind = compiler::NodeKind::kConstant;
    node.op = opdef::FindGraphOp(node.type);
    node.attributes.clear();
    node.unread = nullptr;
    node.constant = std::move(constant).value();
  }
  return {};
}

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

Status ReadWeights(compiler::Graph& graph, const OptionSet& options) {
  if (!HasFiles(graph)) return {};
  compiler::FileConstantPlaces places;
  if (const std::string_view text = options.Get("ge.exec.value_bins"); !text.empty()) {
    auto bins = ValueBinsOf(text);
    if (!bins) {
      return Fail(kGraphOptionsInvalid, kBadValue, fmt::format("ge.exec.value_bins is {}", text))
          .Culprit("option ge.exec.value_bins")
          .Hint(R"(write it as {"value_bins": [{"value_bin_id": "ID", "value_bin_file": "FILE"}]})");
    }
    places.bins = std::move(*bins);
  }
  return ReadWeightsFrom(graph, places);
}

}  // namespace reprise::engine
