// SPDX-License-Identifier: Apache-2.0
#include "compiler/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <set>

#include "base/env.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/svg_text.h"
#include "base/text_file.h"
#include "plan/picture.h"

namespace reprise::compiler {
namespace {

constexpr size_t kMostNodes = 300;
constexpr double kBoxWidth = 172;
constexpr double kBoxHeight = 38;
constexpr double kColumn = kBoxWidth + 18;
constexpr double kRow = kBoxHeight + 30;
constexpr double kMargin = 28;
constexpr double kGap = 56;  // between the two graphs
constexpr double kTop = 112;
constexpr double kFont = 11;

struct Look {
  const char* fill;
  const char* stroke;
  const char* dashes;
};
constexpr Look kInput{"#e6f6e8", "#2f8a45", ""};
constexpr Look kKept{"#e3f0ff", "#2f6fb3", ""};
constexpr Look kMade{"#ffe2b8", "#b06a00", ""};
constexpr Look kGone{"#f6f6f7", "#85858f", " stroke-dasharray=\"5 3\""};

struct Box {
  NodeId node;
  size_t row;
  double x = 0;  // of the middle, in columns
};

std::string KeyOf(const Node& node) { return node.type + " " + node.name; }

std::set<std::string> KeysOf(const Graph& graph) {
  std::set<std::string> keys;
  for (const Node& node : graph.nodes) {
    if (!node.is_removed) keys.insert(KeyOf(node));
  }
  return keys;
}

// One of the two graphs: which node stands where.
class Drawing {
 public:
  Drawing(const Graph& graph, const Graph& other, const Look& changed)
      : graph_(graph), others_(KeysOf(other)), changed_(changed) {
    Place();
  }

  size_t nodes() const { return nodes_; }
  double width() const { return std::max<double>(static_cast<double>(columns_) * kColumn, kBoxWidth + 40); }
  double height() const { return static_cast<double>(rows_.size()) * kRow; }

  void Draw(std::string& svg, double left, const std::string& title) const {
    auto out = std::back_inserter(svg);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\">{}</text>\n", left,
                   kTop - 18, EscapeXml(FitText(title, width(), 13, true)));
    const auto middle = [&](const Box& box) { return left + (box.x + 0.5) * kColumn; };
    const auto top = [&](const Box& box) { return kTop + static_cast<double>(box.row) * kRow; };
    for (const auto& [id, box] : boxes_) {
      for (const NodeId before : Before(id)) {
        const auto from = boxes_.find(before);
        if (from == boxes_.end()) continue;
        DrawEdge(svg, middle(from->second), top(from->second), middle(box), top(box));
      }
    }
    for (const auto& [id, box] : boxes_) DrawBox(svg, graph_.at(id), middle(box), top(box));
  }

 private:
  static bool IsDrawn(const Node& node) { return !node.is_removed && node.kind != NodeKind::kConstant; }

  std::vector<NodeId> Before(NodeId id) const {
    std::vector<NodeId> before;
    for (const Input& input : graph_.at(id).inputs) {
      if (input.source.is_set() && std::ranges::count(before, input.source.node) == 0) {
        before.push_back(input.source.node);
      }
    }
    return before;
  }

  // To the next row straight down; past other rows beside the boxes of the column.
  static void DrawEdge(std::string& svg, double x1, double top1, double x2, double top2) {
    constexpr double kAside = 24;
    std::string path;
    if (top2 - top1 <= kRow) {
      const double y1 = top1 + kBoxHeight;
      const double y = (y1 + top2) / 2;
      path = fmt::format("M{0:.1f} {1:.1f}C{0:.1f} {2:.1f} {3:.1f} {2:.1f} {3:.1f} {4:.1f}", x1, y1, y, x2, top2 - 2);
    } else {
      path = fmt::format("M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}V{:.1f}", x1 + kBoxWidth / 2, top1 + kBoxHeight / 2,
                         x1 + kColumn / 2, top2 - 15, x2 + kAside, top2 - 2);
    }
    fmt::format_to(std::back_inserter(svg),
                   "<path d=\"{}\" fill=\"none\" stroke=\"#85858f\" stroke-linejoin=\"round\" "
                   "marker-end=\"url(#to)\"/>\n",
                   path);
  }

  void Place() {
    for (const NodeId id : TopologicalOrder(graph_)) {
      if (!IsDrawn(graph_.at(id))) continue;
      if (++nodes_ > kMostNodes) continue;
      size_t row = 0;
      double sum = 0;
      size_t count = 0;
      for (const NodeId before : Before(id)) {
        const auto found = boxes_.find(before);
        if (found == boxes_.end()) continue;
        row = std::max(row, found->second.row + 1);
        sum += found->second.x;
        ++count;
      }
      if (rows_.size() <= row) rows_.resize(row + 1);
      // Below the middle of what it needs, or the next free column to the right.
      double x = count == 0 ? 0 : std::max(0.0, sum / static_cast<double>(count));
      for (const NodeId other : rows_[row]) x = std::max(x, boxes_.at(other).x + 1);
      rows_[row].push_back(id);
      boxes_[id] = {id, row, x};
      columns_ = std::max(columns_, x + 1);
    }
  }

  void DrawBox(std::string& svg, const Node& node, double middle, double top) const {
    const Look& look = node.kind == NodeKind::kData ? kInput : others_.contains(KeyOf(node)) ? kKept : changed_;
    const std::string shape = node.outputs.empty() ? std::string()
                                                   : fmt::format("{} {}", opdef::TypeName(node.outputs[0].tensor.dtype),
                                                                 node.outputs[0].tensor.shape.text());
    fmt::format_to(std::back_inserter(svg),
                   "<g><title>{}: {}, {}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"5\" "
                   "fill=\"{}\" stroke=\"{}\"{}/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" "
                   "font-weight=\"bold\">{}</text><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" "
                   "fill=\"#5d5f66\">{}</text></g>\n",
                   EscapeXml(node.name), EscapeXml(node.type), EscapeXml(shape), middle - kBoxWidth / 2, top, kBoxWidth,
                   kBoxHeight, look.fill, look.stroke, look.dashes, middle, top + 16,
                   EscapeXml(FitText(node.type, kBoxWidth - 8, kFont, true)), middle, top + 30,
                   EscapeXml(FitText(node.name + "  " + shape, kBoxWidth - 8, kFont)));
  }

  const Graph& graph_;
  const std::set<std::string> others_;
  const Look& changed_;
  std::map<NodeId, Box> boxes_;
  std::vector<std::vector<NodeId>> rows_;
  double columns_ = 1;
  size_t nodes_ = 0;
};

std::string PassText(const PassRecords& passes) {
  std::vector<std::string> texts;
  for (const auto& [name, record] : passes) {
    const Pass* const pass = FindPass(name);
    const bool is_fusion = pass != nullptr && pass->group != PassGroup::kPlain;
    if (is_fusion && record.changed != 0) texts.push_back(fmt::format("{} × {}", name, record.changed));
  }
  return texts.empty() ? std::string("nothing was fused") : fmt::format("fused: {}", fmt::join(texts, ", "));
}

// The picture of the plan, whose height is added to `height`; empty without blocks.
std::string PlanPicture(std::span<const PlannedBlock> blocks, double& height) {
  plan::Problem problem;
  plan::Solution solution;
  for (const PlannedBlock& block : blocks) {
    if (block.bytes == 0) continue;
    problem.buffers.push_back({.begin = block.begin, .end = block.end, .size = static_cast<plan::Bytes>(block.bytes)});
    problem.names.push_back(block.name);
    solution.offsets.push_back(static_cast<plan::Bytes>(block.offset));
  }
  if (problem.buffers.empty()) return {};
  solution.height = plan::HeightOf(problem, solution.offsets);
  std::string svg = plan::ToSvg(problem, solution, "Memory between the nodes: tasks from left to right, bytes upwards");
  const std::string place = fmt::format("<svg y=\"{:.1f}\" ", height);
  svg.replace(0, std::string_view("<svg ").size(), place);
  constexpr double kPlanHeight = 620;
  height += kPlanHeight;
  return svg;
}

void Legend(std::string& svg, double y) {
  struct Entry {
    const Look& look;
    const char* text;
  };
  double x = kMargin;
  for (const Entry& entry : {Entry{kInput, "input"}, Entry{kKept, "stays"}, Entry{kGone, "taken away by passes"},
                             Entry{kMade, "made by passes"}}) {
    fmt::format_to(std::back_inserter(svg),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"16\" height=\"12\" rx=\"2\" fill=\"{}\" stroke=\"{}\"{}/>"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                   x, y - 10, entry.look.fill, entry.look.stroke, entry.look.dashes, x + 22, y, entry.text);
    x += 44 + TextWidth(entry.text, kFont);
  }
}

}  // namespace

std::string CompilationPicture(const Graph& given, const Graph& compiled, const PassRecords& passes,
                               std::span<const PlannedBlock> plan) {
  const Drawing before(given, compiled, kGone);
  const Drawing after(compiled, given, kMade);
  const double right = kMargin + before.width() + kGap;
  constexpr double kLeastWidth = 1160;  // of the plan
  const double width = std::max(right + after.width() + kMargin, kLeastWidth);
  double height = kTop + std::max(before.height(), after.height()) + 20;
  const std::string memory = PlanPicture(plan, height);

  std::string svg;
  fmt::format_to(std::back_inserter(svg),
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.1f} {1:.1f}\" width=\"{0:.1f}\" "
                 "height=\"{1:.1f}\" font-family=\"sans-serif\" font-size=\"{2}\" fill=\"#24262b\">\n"
                 "<rect width=\"{0:.1f}\" height=\"{1:.1f}\" fill=\"#ffffff\"/>\n"
                 "<defs><marker id=\"to\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
                 "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#85858f\"/></marker></defs>\n",
                 width, height, kFont);
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>\n",
                 kMargin, EscapeXml(FitText("Graph " + given.name, width - 2 * kMargin, 16, true)));
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"48\">{}</text>\n", kMargin,
                 EscapeXml(FitText(PassText(passes), width - 2 * kMargin, kFont)));
  Legend(svg, 70);
  const auto title = [](const char* text, const Drawing& drawing) {
    const size_t shown = std::min(drawing.nodes(), kMostNodes);
    return drawing.nodes() == shown ? fmt::format("{}: {} nodes", text, shown)
                                    : fmt::format("{}: the first {} of {} nodes", text, shown, drawing.nodes());
  };
  before.Draw(svg, kMargin, title("As given", before));
  after.Draw(svg, right, title("As it runs", after));
  svg += memory;
  svg += "</svg>\n";
  return svg;
}

const std::string& PictureFolder() { return Env(EnvVar::kGePicture); }

void WriteCompilationPicture(const Graph& given, const Executable& executable) noexcept {
  static std::atomic<uint32_t> next{1};
  try {
    std::string name;
    for (const char c : given.name) {
      const bool is_safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
      name += is_safe ? c : '_';
    }
    name.resize(std::min<size_t>(name.size(), 100));
    Status status = MakeFolder(PictureFolder());
    if (status.ok()) {
      const std::string svg =
          CompilationPicture(given, executable.graph(), executable.pass_records(), executable.memory_plan());
      status = WriteTextFile(fmt::format("{}/{}_{}.svg", PictureFolder(), name, next++), svg);
    }
    if (!status.ok()) REPRISE_LOG(kWarning, "GE", "no picture of graph {}: {}", given.name, status.detail().what);
  } catch (const std::exception& error) {
    REPRISE_LOG(kWarning, "GE", "no picture of graph {}: {}", given.name, error.what());
  }
}

}  // namespace reprise::compiler
