// SPDX-License-Identifier: Apache-2.0
#include "observe/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_file.h"
#include "observe/colours.h"
#include "runtime/device.h"

namespace reprise::observe {
namespace {

constexpr int kColumn = 250;
constexpr int kRow = 46;
constexpr int kBoxWidth = 200;
constexpr int kBoxHeight = 32;
constexpr int kTop = 84;
constexpr int kLeft = 30;

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string Shorten(const std::string& text, size_t most) {
  return text.size() <= most ? text : fmt::format("{}…", std::string_view(text).substr(0, most - 1));
}

std::string Bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < (1u << 20)) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// The row of each node: below its predecessor in the lane, and below the record that it waits for.
std::vector<int> Rows(const ir::Graph& graph) {
  std::vector<int> rows(graph.nodes().size(), 0);
  for (ir::NodeId id = 0; id < graph.nodes().size(); ++id) {
    const ir::Node& node = graph.node(id);
    int row = 0;
    if (node.position != 0) row = rows[graph.lanes()[node.lane].nodes[node.position - 1]] + 1;
    if (node.type == &ir::kEdgeWait) {
      row = std::max(row, rows[static_cast<const ir::EdgePayload*>(node.payload)->record] + 1);
    }
    rows[id] = row;
  }
  return rows;
}

std::string Subtitle(const ir::TaskInfo& info) {
  if (info.num_blocks != 0)
    return fmt::format("{} · {} block{}", info.type_name, info.num_blocks, info.num_blocks == 1 ? "" : "s");
  uint64_t bytes = 0;
  for (const ir::AccessRange& range : info.ranges) {
    if (range.is_write) bytes += range.bytes;
  }
  return bytes != 0 ? Bytes(bytes) : info.type_name;
}

class Drawing {
 public:
  Drawing(const model::Model& model, size_t max_tasks)
      : model_(model),
        graph_(model.graph()),
        rows_(Rows(graph_)),
        each_(std::max<size_t>(4, max_tasks / std::max<size_t>(1, graph_.lanes().size()))) {
    // Rows that show nothing in any lane take no room.
    for (const ir::Lane& lane : graph_.lanes()) {
      for (size_t i = 0; i < lane.nodes.size(); ++i) {
        if (IsShown(lane, i)) y_of_row_[rows_[lane.nodes[i]]] = 0;
      }
    }
    int next = 0;
    for (auto& [row, y] : y_of_row_) y = kTop + kRow * next++;
  }

  std::string Svg() {
    WriteHead();
    for (ir::LaneId lane = 0; lane < graph_.lanes().size(); ++lane) WriteLane(lane);
    for (const ir::Node& node : graph_.nodes()) {
      if (node.type == &ir::kEdgeWait) WriteEdge(node);
    }
    return std::move(out_) + "</svg>\n";
  }

 private:
  bool IsShown(const ir::Lane& lane, size_t position) const {
    return lane.nodes.size() <= each_ || position < each_ / 2 || position >= lane.nodes.size() - each_ / 2;
  }
  static int XOf(ir::LaneId lane) { return kLeft + kColumn * static_cast<int>(lane); }
  int YOf(ir::NodeId id) { return y_of_row_[rows_[id]]; }
  std::back_insert_iterator<std::string> Out() { return std::back_inserter(out_); }

  void WriteHead() {
    const size_t lanes = graph_.lanes().size();
    const int width = std::max(2 * kLeft + kColumn * static_cast<int>(lanes), 460);
    const int height = kTop + kRow * (static_cast<int>(y_of_row_.size()) + 1);
    fmt::format_to(
        Out(),
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif">)"
        "\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
        "orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#555\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        R"(<text x="{2}" y="28" font-size="16" font-weight="bold">{3}</text>)"
        "\n"
        R"(<text x="{2}" y="48" font-size="12" fill="#555">{4} tasks on {5} stream{6}, {7}</text>)"
        "\n",
        width, height, kLeft, EscapeXml(model_.Describe()), graph_.nodes().size(), lanes, lanes == 1 ? "" : "s",
        Bytes(model_.TakeBill().bytes));
  }

  void WriteLane(ir::LaneId lane_id) {
    const ir::Lane& lane = graph_.lanes()[lane_id];
    const int x = XOf(lane_id);
    fmt::format_to(Out(),
                   "<text x=\"{}\" y=\"{}\" font-size=\"12\" font-weight=\"bold\">{} {} (captured stream {})</text>\n",
                   x, kTop - 14, lane_id == 0 ? "origin, stream" : "stream", lane.stream_id, lane.user_stream_id);
    int previous_y = -1;
    bool gap = false;
    for (size_t i = 0; i < lane.nodes.size(); ++i) {
      if (!IsShown(lane, i)) {
        gap = true;
        continue;
      }
      const int y = YOf(lane.nodes[i]);
      if (previous_y >= 0) {
        fmt::format_to(
            Out(), "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#555\"{3} marker-end=\"url(#tip)\"/>\n",
            x + kBoxWidth / 2, previous_y + kBoxHeight, y, gap ? " stroke-dasharray=\"3 3\"" : "");
        if (gap) {
          fmt::format_to(Out(), "<text x=\"{}\" y=\"{}\" font-size=\"10\" fill=\"#555\">{} more</text>\n",
                         x + kBoxWidth / 2 + 6, y - 3, lane.nodes.size() - 2 * (each_ / 2));
        }
      }
      gap = false;
      previous_y = y;
      WriteTask(graph_.node(lane.nodes[i]), lane.stream_id, x, y);
    }
  }

  void WriteTask(const ir::Node& node, int32_t stream_id, int x, int y) {
    const ir::TaskInfo info = ir::Describe(node);
    const Colours style = ColoursOf(node.type->kind);
    fmt::format_to(
        Out(),
        "<g><title>task {} of stream {}: {} ({}){}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"5\" fill=\"{}\" stroke=\"{}\"/><text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>"
        "<text x=\"{}\" y=\"{}\" font-size=\"9\" fill=\"#555\">{}</text></g>\n",
        node.position, stream_id, EscapeXml(info.name), info.type_name,
        info.stack.empty() ? "" : ", " + EscapeXml(info.stack.front()), x, y, kBoxWidth, kBoxHeight, style.fill,
        style.stroke, x + 8, y + 14, EscapeXml(Shorten(info.name, 28)), x + 8, y + 26, EscapeXml(Subtitle(info)));
  }

  // From the record to the wait, where both are shown.
  void WriteEdge(const ir::Node& wait) {
    const ir::NodeId record_id = static_cast<const ir::EdgePayload*>(wait.payload)->record;
    const ir::Node& record = graph_.node(record_id);
    if (record.lane == wait.lane || !IsShown(graph_.lanes()[wait.lane], wait.position) ||
        !IsShown(graph_.lanes()[record.lane], record.position)) {
      return;
    }
    const ir::NodeId wait_id = graph_.lanes()[wait.lane].nodes[wait.position];
    const bool rightwards = record.lane < wait.lane;
    fmt::format_to(Out(),
                   "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#b3452f\" stroke-width=\"1.5\" "
                   "marker-end=\"url(#tip)\"/>\n",
                   XOf(record.lane) + (rightwards ? kBoxWidth : 0), YOf(record_id) + kBoxHeight / 2,
                   XOf(wait.lane) + (rightwards ? 0 : kBoxWidth), YOf(wait_id) + kBoxHeight / 2);
  }

  const model::Model& model_;
  const ir::Graph& graph_;
  const std::vector<int> rows_;  // by node
  const size_t each_;            // tasks that are shown of a lane
  std::map<int, int> y_of_row_;
  std::string out_;
};

}  // namespace

std::string SvgPicture(const model::Model& model, size_t max_tasks) { return Drawing(model, max_tasks).Svg(); }

Status WriteSvgPicture(const model::Model& model, const std::string& path) {
  return WriteTextFile(path, SvgPicture(model));
}

}  // namespace reprise::observe
