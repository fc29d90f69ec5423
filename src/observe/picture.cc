// SPDX-License-Identifier: Apache-2.0
#include "observe/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
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

}  // namespace

std::string SvgPicture(const capture::Model& model, size_t max_tasks) {
  const ir::Graph& graph = model.graph();
  const std::vector<int> rows = Rows(graph);
  const size_t lanes = graph.lanes().size();
  const size_t each = std::max<size_t>(4, max_tasks / std::max<size_t>(1, lanes));
  const auto shown = [&](const ir::Lane& lane, size_t position) {
    return lane.nodes.size() <= each || position < each / 2 || position >= lane.nodes.size() - each / 2;
  };
  // Rows that show nothing in any lane take no room.
  std::map<int, int> y_of_row;
  for (const ir::Lane& lane : graph.lanes()) {
    for (size_t i = 0; i < lane.nodes.size(); ++i) {
      if (shown(lane, i)) y_of_row[rows[lane.nodes[i]]] = 0;
    }
  }
  int next = 0;
  for (auto& [row, y] : y_of_row) y = kTop + kRow * next++;
  const auto x_of = [](ir::LaneId lane) { return kLeft + kColumn * static_cast<int>(lane); };

  const int width = std::max(2 * kLeft + kColumn * static_cast<int>(lanes), 460);
  const int height = kTop + kRow * (next + 1);
  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif">)"
      "\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
      "orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#555\"/></marker></defs>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      R"(<text x="{2}" y="28" font-size="16" font-weight="bold">{3}</text>)"
      "\n"
      R"(<text x="{2}" y="48" font-size="12" fill="#555">{4} tasks on {5} stream{6}, {7}</text>)"
      "\n",
      width, height, kLeft, EscapeXml(model.Describe()), graph.nodes().size(), lanes, lanes == 1 ? "" : "s",
      Bytes(model.TakeBill().bytes));
  for (ir::LaneId lane_id = 0; lane_id < lanes; ++lane_id) {
    const ir::Lane& lane = graph.lanes()[lane_id];
    const int x = x_of(lane_id);
    fmt::format_to(std::back_inserter(out),
                   "<text x=\"{}\" y=\"{}\" font-size=\"12\" font-weight=\"bold\">{} {} (captured stream {})</text>\n",
                   x, kTop - 14, lane_id == 0 ? "origin, stream" : "stream", lane.stream_id, lane.user_stream_id);
    int previous_y = -1;
    bool gap = false;
    for (size_t i = 0; i < lane.nodes.size(); ++i) {
      if (!shown(lane, i)) {
        gap = true;
        continue;
      }
      const ir::Node& node = graph.node(lane.nodes[i]);
      const ir::TaskInfo info = ir::Describe(node);
      const int y = y_of_row[rows[lane.nodes[i]]];
      if (previous_y >= 0) {
        fmt::format_to(
            std::back_inserter(out),
            "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#555\"{3} marker-end=\"url(#tip)\"/>\n",
            x + kBoxWidth / 2, previous_y + kBoxHeight, y, gap ? " stroke-dasharray=\"3 3\"" : "");
        if (gap) {
          fmt::format_to(std::back_inserter(out),
                         "<text x=\"{}\" y=\"{}\" font-size=\"10\" fill=\"#555\">{} more</text>\n",
                         x + kBoxWidth / 2 + 6, y - 3, lane.nodes.size() - 2 * (each / 2));
        }
      }
      gap = false;
      previous_y = y;
      const Colours style = ColoursOf(node.type->kind);
      fmt::format_to(
          std::back_inserter(out),
          "<g><title>task {} of stream {}: {} ({}){}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
          "rx=\"5\" fill=\"{}\" stroke=\"{}\"/><text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>"
          "<text x=\"{}\" y=\"{}\" font-size=\"9\" fill=\"#555\">{}</text></g>\n",
          node.position, lane.stream_id, EscapeXml(info.name), info.type_name,
          info.stack.empty() ? "" : ", " + EscapeXml(info.stack.front()), x, y, kBoxWidth, kBoxHeight, style.fill,
          style.stroke, x + 8, y + 14, EscapeXml(Shorten(info.name, 28)), x + 8, y + 26, EscapeXml(Subtitle(info)));
    }
  }
  for (const ir::Node& node : graph.nodes()) {
    if (node.type != &ir::kEdgeWait) continue;
    const ir::NodeId record_id = static_cast<const ir::EdgePayload*>(node.payload)->record;
    const ir::Node& record = graph.node(record_id);
    const ir::NodeId id = graph.lanes()[node.lane].nodes[node.position];
    if (record.lane == node.lane || !shown(graph.lanes()[node.lane], node.position) ||
        !shown(graph.lanes()[record.lane], record.position)) {
      continue;
    }
    const bool rightwards = record.lane < node.lane;
    fmt::format_to(std::back_inserter(out),
                   "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#b3452f\" stroke-width=\"1.5\" "
                   "marker-end=\"url(#tip)\"/>\n",
                   x_of(record.lane) + (rightwards ? kBoxWidth : 0), y_of_row[rows[record_id]] + kBoxHeight / 2,
                   x_of(node.lane) + (rightwards ? 0 : kBoxWidth), y_of_row[rows[id]] + kBoxHeight / 2);
  }
  return out + "</svg>\n";
}

Status WriteSvgPicture(const capture::Model& model, const std::string& path) {
  return WriteTextFile(path, SvgPicture(model));
}

}  // namespace reprise::observe
