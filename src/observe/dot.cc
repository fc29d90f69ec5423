// SPDX-License-Identifier: Apache-2.0
#include "observe/dot.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_file.h"
#include "base/utf8.h"
#include "ir/graph.h"
#include "ir/task_info.h"
#include "observe/colours.h"
#include "observe/lanes.h"
#include "observe/task_text.h"

namespace reprise::observe {
namespace {

// The characters of a quoted DOT string.
std::string EscapeDot(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const char32_t c = NextCharacter(text, at);
    if (c == '"' || c == '\\') out += '\\';
    if (c < ' ') {
      out += ' ';
    } else {
      AppendCharacter(out, c, text, from, at);
    }
  }
  return out;
}

// Nodes of a model and the bodies in them; ids begin with the number of the model in `models`.
class DotText {
 public:
  explicit DotText(const model::Model& model) : models_{&model} {}

  std::string Run() {
    Put("digraph \"{}\" {{\n  rankdir=TB;\n  compound=true;\n  node [shape=box, style=\"rounded,filled\", "
        "fontname=\"sans-serif\", fontsize=10];\n",
        EscapeDot(models_[0]->Describe()));
    for (size_t i = 0; i < models_.size(); ++i) WriteModel(i);
    return std::move(out_) + "}\n";
  }

 private:
  template <class... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void WriteModel(size_t number) {
    const std::vector<ShownLane> lanes = LanesOf(*models_[number]);
    std::vector<std::string> behind;  // edges, when all nodes are there
    for (size_t i = 0; i < lanes.size(); ++i) {
      const ir::Lane& lane = lanes[i].lane();
      const std::string of_body = number == 0 ? "" : fmt::format("body {}: ", models_[number]->id());
      Put("  subgraph cluster_{}_{} {{\n    label=\"{}{} {} (captured stream {})\";\n", number, i, of_body,
          lanes[i].is_origin ? "origin, stream" : "stream", lane.stream_id, lane.user_stream_id);
      std::string previous;
      for (const ir::NodeId id : lane.nodes) {
        const std::string name = NameOf(number, lanes[i], id);
        const ir::Node node = lanes[i].graph->node(id);
        WriteNode(node, name);
        if (!previous.empty()) Put("    {} -> {};\n", previous, name);
        previous = name;
        if (node.type == &ir::kEdgeWait) {
          const ir::NodeId record = ir::EdgeOf(node).record;
          behind.push_back(fmt::format("  {} -> {} [color=\"#b3452f\"];\n", NameOf(number, lanes[i], record), name));
        }
        if (node.type->kind == ir::TaskKind::kCondition) {
          for (const ShownBody& body : BodiesOf(ir::Describe(node))) AddBody(body, name, behind);
        }
      }
      out_ += "  }\n";
    }
    for (const std::string& edge : behind) out_ += edge;
  }

  void WriteNode(const ir::Node& node, const std::string& name) {
    const ir::TaskInfo info = DescribeFully(node);
    const TaskText text = TextOf(node, info);
    Put("    {} [label=\"{}", name, EscapeDot(text.title));
    if (info.name != text.title && info.name != info.type_name) Put("\\n{}", EscapeDot(info.name));
    for (const std::string& detail : text.details) Put("\\n{}", EscapeDot(detail));
    Put("\\n{}, task {}\", fillcolor=\"{}\"", info.type_name, node.position, ColoursOf(node.type->kind).fill);
    if (!info.stack.empty()) Put(", tooltip=\"{}\"", EscapeDot(info.stack.front()));
    out_ += "];\n";
  }

  // Ids count in the graph, and in a model built by hand each stream has one.
  std::string NameOf(size_t number, const ShownLane& lane, ir::NodeId id) const {
    const bool is_built = models_[number]->kind() == model::ModelKind::kBuilt;
    return is_built ? fmt::format("m{}_s{}_n{}", number, lane.lane().stream_id, id)
                    : fmt::format("m{}_n{}", number, id);
  }

  void AddBody(const ShownBody& body, const std::string& from, std::vector<std::string>& edges) {
    const size_t number = models_.size();
    models_.push_back(body.model);
    const std::vector<ShownLane> lanes = LanesOf(*body.model);
    if (lanes.empty() || lanes[0].lane().nodes.empty()) return;
    edges.push_back(fmt::format("  {} -> {} [style=dashed, label=\"{}\", lhead=\"cluster_{}_0\"];\n", from,
                                NameOf(number, lanes[0], lanes[0].lane().nodes[0]), EscapeDot(body.when), number));
  }

  std::vector<const model::Model*> models_;
  std::string out_;
};

}  // namespace

std::string Dot(const model::Model& model) { return DotText(model).Run(); }

Status WriteDot(const model::Model& model, const std::string& path) { return WriteTextFile(path, Dot(model)); }

}  // namespace reprise::observe
