// SPDX-License-Identifier: Apache-2.0
#include "observe/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/svg_text.h"
#include "base/text_file.h"
#include "ir/task_info.h"
#include "observe/colours.h"
#include "observe/grouping.h"
#include "observe/lanes.h"
#include "observe/task_text.h"

namespace reprise::observe {
namespace {

// In pixels.
constexpr int kMargin = 30;
constexpr int kBoxWidth = 236;
constexpr int kSlimHeight = 20;
constexpr int kLineHeight = 13;
constexpr int kBetween = 14;  // boxes of a column
constexpr int kGutter = 56;   // columns
constexpr int kPadding = 8;   // of texts in boxes, of frames
constexpr int kHeading = 38;  // of columns
constexpr int kCaption = 20;  // of frames
constexpr int kLeastWidth = 620;
constexpr double kNameSize = 12, kDetailSize = 10;

constexpr size_t kMostLanes = 32;    // columns, unless every task is wanted
constexpr size_t kMostDrawn = 3000;  // of the whole picture; bodies behind that are only named
constexpr int kDeepest = 24;         // bodies in bodies
constexpr size_t kMostNames = 40;    // that the title of a group lists

struct Sheet;

// A body of a conditional task.
struct Frame {
  std::string caption;
  std::unique_ptr<Sheet> sheet;  // null: not drawn
  int x = 0, width = 0, height = 0;
};

struct Box {
  std::vector<std::string> lines;  // the first is the name
  std::string title;               // everything, for the pointer that rests on it
  Colours colours{};
  bool is_slim = false, is_group = false, is_gap = false, is_faint = false;
  int y = 0, height = 0, width = kBoxWidth;
  std::vector<Frame> frames;
  int64_t starts_stream = -1;

  int text_height() const { return is_slim ? kSlimHeight : 20 + kLineHeight * static_cast<int>(lines.size() - 1); }
};

struct Column {
  std::string heading, subheading;
  int32_t stream_id = -1;
  std::vector<Group> groups;
  std::vector<Box> boxes;  // one for each group
  int x = 0, width = kBoxWidth;
};

// One model, measured.
struct Sheet {
  std::vector<Column> columns;
  std::vector<LaneEdge> edges;  // between boxes: indices instead of positions
  std::string note;             // columns that are not shown
  int width = 0, height = 0;
};

std::string Lines(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

class Measure {
 public:
  explicit Measure(bool every_task) : every_task_(every_task) {}

  Sheet Of(const model::Model& model, int depth) {
    Sheet sheet;
    std::vector<ShownLane> lanes = LanesOf(model);
    const std::vector<LaneEdge> edges = EdgesBetween(lanes);
    std::vector<std::vector<Group>> groups = GroupTasks(lanes, edges, every_task_);
    size_t shown = lanes.size();
    if (!every_task_ && shown > kMostLanes) {
      shown = kMostLanes;
      size_t tasks = 0;
      for (size_t i = shown; i < lanes.size(); ++i) tasks += lanes[i].lane().nodes.size();
      sheet.note = fmt::format("{} further streams with {} tasks are not shown", lanes.size() - shown, tasks);
    }
    for (size_t i = 0; i < shown; ++i) {
      sheet.columns.push_back(ColumnOf(lanes[i], std::move(groups[i]), depth));
      tasks_ += lanes[i].lane().nodes.size();
      boxes_ += sheet.columns.back().boxes.size();
    }
    std::set<std::pair<uint64_t, uint64_t>> known;
    for (const LaneEdge& edge : edges) {
      if (edge.from_lane >= shown || edge.to_lane >= shown) continue;
      const uint32_t from = GroupAt(sheet.columns[edge.from_lane].groups, edge.from);
      const uint32_t to = GroupAt(sheet.columns[edge.to_lane].groups, edge.to);
      const bool from_gap = sheet.columns[edge.from_lane].groups[from].is_gap;
      if (from_gap && sheet.columns[edge.to_lane].groups[to].is_gap) continue;
      const auto key = [](uint32_t lane, uint32_t box) { return uint64_t{lane} << 32 | box; };
      if (known.emplace(key(edge.from_lane, from), key(edge.to_lane, to)).second) {
        sheet.edges.push_back({edge.from_lane, from, edge.to_lane, to});
      }
    }
    Place(sheet, lanes);
    return sheet;
  }

  size_t tasks() const { return tasks_; }
  size_t boxes() const { return boxes_; }

 private:
  Column ColumnOf(const ShownLane& shown, std::vector<Group> groups, int depth) {
    Column column;
    const ir::Lane& lane = shown.lane();
    column.stream_id = lane.stream_id;
    column.heading = fmt::format("stream {}{}", lane.stream_id, shown.is_origin ? ", origin" : "");
    if (lane.user_stream_id != lane.stream_id)
      column.subheading = fmt::format("captured: stream {}", lane.user_stream_id);
    for (const Group& group : groups) {
      const ir::Node first = shown.graph->node(lane.nodes[group.begin]);
      Box box = group.size() == 1 && !group.is_gap ? TaskBox(first, lane.stream_id, depth) : GroupBox(shown, group);
      box.height = box.text_height();
      if (!box.frames.empty()) {
        int width = kPadding, height = 0;
        for (Frame& frame : box.frames) {
          frame.x = width;
          width += frame.width + kPadding;
          height = std::max(height, frame.height);
        }
        box.height += height + kPadding;
        box.width = std::max(kBoxWidth, width);
      }
      column.width = std::max(column.width, box.width);
      column.boxes.push_back(std::move(box));
    }
    column.groups = std::move(groups);
    return column;
  }

  Box TaskBox(const ir::Node& node, int32_t stream_id, int depth) {
    const ir::TaskInfo info = DescribeFully(node);
    TaskText text = TextOf(node, info);
    Box box;
    box.is_slim = OnlyOrders(node);
    box.colours = ColoursOf(node.type->kind);
    box.is_faint = node.disabled != 0;
    box.starts_stream = info.active_stream_id;
    std::vector<std::string> title{text.title};
    if (info.name != text.title && info.name != info.type_name) title.push_back(info.name);
    title.push_back(fmt::format("{}, task {} of stream {}", info.type_name, node.position, stream_id));
    title.insert(title.end(), text.details.begin(), text.details.end());
    title.insert(title.end(), text.more.begin(), text.more.end());
    box.title = Lines(title);
    box.lines = std::move(text.details);
    box.lines.insert(box.lines.begin(), std::move(text.title));
    if (box.is_slim) box.lines.resize(1);
    for (const ShownBody& body : BodiesOf(info)) box.frames.push_back(FrameOf(body, depth));
    return box;
  }

  Frame FrameOf(const ShownBody& body, int depth) {
    Frame frame;
    const size_t tasks = CountTasks(*body.model);
    frame.caption =
        fmt::format("{}: {}", body.when, tasks == 0 ? "empty" : fmt::format("{} task{}", tasks, tasks == 1 ? "" : "s"));
    frame.height = kCaption + kPadding;
    frame.width = static_cast<int>(TextWidth(frame.caption, kDetailSize, true)) + 2 * kPadding;
    if (tasks == 0) return frame;
    if (depth >= kDeepest || (!every_task_ && boxes_ > kMostDrawn)) {
      frame.caption += " (not drawn)";
      frame.width = static_cast<int>(TextWidth(frame.caption, kDetailSize, true)) + 2 * kPadding;
      return frame;
    }
    frame.sheet = std::make_unique<Sheet>(Of(*body.model, depth + 1));
    frame.width = std::max(frame.width, frame.sheet->width + 2 * kPadding);
    frame.height += frame.sheet->height;
    return frame;
  }

  static Box GroupBox(const ShownLane& shown, const Group& group) {
    Box box;
    const LaneNodesOf nodes{shown};
    box.is_gap = group.is_gap;
    box.is_group = !group.is_gap;
    box.lines = {group.label};
    std::vector<std::string> title{group.label};
    if (!group.place.empty()) title.push_back("launched at " + group.place);
    title.push_back(fmt::format("tasks {} to {} of stream {}", group.begin, group.end - 1, shown.lane().stream_id));
    for (size_t i = 0; i < group.names.size() && i < kMostNames; ++i) title.push_back(group.names[i]);
    if (group.names.size() > kMostNames)
      title.push_back(fmt::format("… {} more names", group.names.size() - kMostNames));
    box.title = Lines(title);
    bool orders = true;
    ir::TaskKind kind = nodes.At(group.begin).type->kind;
    for (uint32_t i = group.begin; i < group.end && orders; ++i) {
      const ir::Node node = nodes.At(i);
      if (OnlyOrders(node)) continue;
      orders = false;
      kind = node.type->kind;
    }
    box.colours = ColoursOf(kind);
    if (group.is_gap) {
      box.colours = {"#ffffff", "#85858f"};
    } else if (orders) {
      box.is_slim = group.names.size() == 1;
    }
    if (box.is_slim) return box;
    if (group.is_gap) {
      box.lines.push_back(fmt::format("{}", fmt::join(group.names, ", ")));
    } else if (group.names.size() > 1) {
      box.lines.push_back(fmt::format("{} tasks: {}", group.size(), fmt::join(group.names, ", ")));
    } else if (!group.place.empty()) {
      box.lines.push_back("at " + group.place.substr(group.place.rfind('/') + 1));
    }
    if (box.lines.size() == 1) box.lines.push_back(fmt::format("{} tasks", group.size()));
    return box;
  }

  struct LaneNodesOf {
    const ShownLane& shown;
    ir::Node At(uint32_t position) const { return shown.graph->node(shown.lane().nodes[position]); }
  };

  // Boxes below what comes before them, here and in the lanes that they wait for. What is left out of lanes lies
  // between what is shown of them, so first what is before that in all lanes.
  static void Place(Sheet& sheet, const std::vector<ShownLane>& lanes) {
    struct Step {
      int phase;
      ir::NodeId node;
      uint32_t lane, box;
      bool operator<(const Step& other) const { return phase != other.phase ? phase < other.phase : node < other.node; }
    };
    std::vector<Step> steps;
    for (uint32_t lane = 0; lane < sheet.columns.size(); ++lane) {
      const std::vector<Group>& groups = sheet.columns[lane].groups;
      bool is_behind = false;
      for (uint32_t i = 0; i < groups.size(); ++i) {
        steps.push_back({groups[i].is_gap ? 1 : is_behind ? 2 : 0, lanes[lane].lane().nodes[groups[i].begin], lane, i});
        is_behind |= groups[i].is_gap;
      }
    }
    std::stable_sort(steps.begin(), steps.end());
    std::vector<LaneEdge> edges = sheet.edges;
    std::sort(edges.begin(), edges.end(), [](const LaneEdge& a, const LaneEdge& b) {
      return std::pair(a.to_lane, a.to) < std::pair(b.to_lane, b.to);
    });
    int bottom = kHeading;
    for (const Step& step : steps) {
      Column& column = sheet.columns[step.lane];
      Box& box = column.boxes[step.box];
      box.y = step.box == 0 ? kHeading : column.boxes[step.box - 1].y + column.boxes[step.box - 1].height + kBetween;
      auto edge = std::lower_bound(edges.begin(), edges.end(), step, [](const LaneEdge& a, const Step& wanted) {
        return std::pair(a.to_lane, a.to) < std::pair(wanted.lane, wanted.box);
      });
      for (; edge != edges.end() && edge->to_lane == step.lane && edge->to == step.box; ++edge) {
        const Box& record = sheet.columns[edge->from_lane].boxes[edge->from];
        box.y = std::max(box.y, record.y + record.height + kBetween / 2);
      }
      bottom = std::max(bottom, box.y + box.height);
    }
    int x = 0;
    for (Column& column : sheet.columns) {
      const double heading =
          std::max(TextWidth(column.heading, kNameSize, true), TextWidth(column.subheading, kDetailSize));
      column.width = std::max(column.width, static_cast<int>(heading) + 1);
      column.x = x;
      x += column.width + kGutter;
    }
    sheet.width = std::max(0, x - kGutter);
    sheet.height = bottom + (sheet.note.empty() ? 0 : kCaption);
    if (!sheet.note.empty()) {
      sheet.width = std::max(sheet.width, static_cast<int>(TextWidth(sheet.note, kDetailSize)) + 1);
    }
  }

  const bool every_task_;
  size_t tasks_ = 0, boxes_ = 0;
};

class Drawing {
 public:
  Drawing(const model::Model& model, bool every_task) : model_(model) {
    Measure measure(every_task);
    sheet_ = measure.Of(model, 0);
    const model::Bill bill = model.TakeBill();
    notes_.push_back(fmt::format("{} task{} on {} stream{}, {} of host memory", bill.tasks, bill.tasks == 1 ? "" : "s",
                                 bill.streams, bill.streams == 1 ? "" : "s", ByteText(bill.bytes)));
    const uint32_t runs = model.executions();
    const std::string_view body = model.parent() != nullptr ? "a body: its conditional task runs it; " : "";
    notes_.push_back(fmt::format("{}places and sizes show the order, not times",
                                 !body.empty() ? std::string(body)
                                 : runs == 0   ? "not replayed yet; "
                                               : fmt::format("replayed {} time{}; ", runs, runs == 1 ? "" : "s")));
    if (measure.boxes() < measure.tasks()) {
      notes_.push_back(
          fmt::format("{} box{} for {} tasks: one with a double edge holds several; the JSON dump lists all",
                      measure.boxes(), measure.boxes() == 1 ? "" : "es", measure.tasks()));
    }
  }

  std::string Svg() {
    const int top = 48 + 16 * static_cast<int>(notes_.size()) + 26;
    const int width = std::max(sheet_.width + 2 * kMargin, kLeastWidth);
    const int height = top + sheet_.height + kMargin;
    Put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif">)"
        "\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
        "orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#555\"/></marker><marker id=\"wait\" viewBox=\"0 0 8 8\" "
        "refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" "
        "fill=\"#b3452f\"/></marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height);
    Text(kMargin, 34, 16, model_.Describe(), width - 2 * kMargin, true);
    int y = 36;
    for (const std::string& note : notes_) Text(kMargin, y += 16, 11, note, width - 2 * kMargin, false, "#555");
    Legend(y + 8);
    if (model_.TakeBill().tasks == 0) Text(kMargin, top + 20, kNameSize, "no tasks", width, false, "#555");
    Write(sheet_, kMargin, top);
    return std::move(out_) + "</svg>\n";
  }

 private:
  template <class... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  // What does not fit is cut, and then the whole text shows when the pointer rests on it.
  void Text(double x, double y, double size, std::string_view text, double width, bool is_bold = false,
            std::string_view fill = "#111", std::string_view anchor = "") {
    const std::string fitting = FitText(text, width, size, is_bold);
    const bool is_cut = fitting != FitText(text, 1e9, size, is_bold);
    Put(R"(<text x="{}" y="{}" font-size="{}" fill="{}"{}{}>{}{}{}{}</text>)"
        "\n",
        x, y, size, fill, is_bold ? " font-weight=\"bold\"" : "", anchor, is_cut ? "<title>" : "",
        is_cut ? EscapeXml(text) : "", is_cut ? "</title>" : "", EscapeXml(fitting));
  }

  void Legend(int y) {
    static constexpr std::pair<ir::TaskKind, const char*> kRows[] = {{ir::TaskKind::kKernel, "computes"},
                                                                     {ir::TaskKind::kCopy, "moves memory"},
                                                                     {ir::TaskKind::kHostFunc, "calls the host"},
                                                                     {ir::TaskKind::kEventWait, "orders"}};
    int x = kMargin;
    for (const auto& [kind, what] : kRows) {
      const Colours colours = ColoursOf(kind);
      Put(R"(<rect x="{}" y="{}" width="10" height="10" rx="2" fill="{}" stroke="{}"/>)", x, y, colours.fill,
          colours.stroke);
      Text(x + 15, y + 9, kDetailSize, what, 200, false, "#555");
      x += 15 + static_cast<int>(TextWidth(what, kDetailSize)) + 16;
    }
  }

  void Write(const Sheet& sheet, int x, int y) {
    for (const LaneEdge& edge : sheet.edges) WriteEdge(sheet, edge, x, y);
    for (const Column& column : sheet.columns) {
      Text(x + column.x, y + 12, kNameSize, column.heading, column.width, true);
      Text(x + column.x, y + 26, kDetailSize, column.subheading, column.width, false, "#555");
      const int middle = x + column.x + kBoxWidth / 2;
      for (size_t i = 0; i < column.boxes.size(); ++i) {
        const Box& box = column.boxes[i];
        if (i != 0) {
          const Box& before = column.boxes[i - 1];
          Put("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#555\"{3} marker-end=\"url(#tip)\"/>\n",
              middle, y + before.y + before.height + (before.is_group ? 3 : 0), y + box.y,
              before.is_gap || box.is_gap ? " stroke-dasharray=\"3 3\"" : "");
        }
        WriteBox(box, x + column.x, y + box.y);
        if (box.starts_stream >= 0) WriteStart(sheet, column, box, x, y);
      }
    }
    if (!sheet.note.empty()) Text(x, y + sheet.height - 6, kDetailSize, sheet.note, sheet.width, false, "#555");
  }

  void WriteBox(const Box& box, int x, int y) {
    Put("<g{}><title>{}</title>", box.is_faint ? " opacity=\"0.45\"" : "", EscapeXml(box.title));
    const auto rect = [&](int shift) {
      Put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{}\" stroke=\"{}\"{}/>", x + shift,
          y + shift, box.width, box.height, box.colours.fill, box.colours.stroke,
          box.is_gap ? " stroke-dasharray=\"4 3\"" : "");
    };
    if (box.is_group) rect(3);
    rect(0);
    const double room = box.width - 2 * kPadding;
    if (box.is_slim) {
      Text(x + kPadding, y + 14, kDetailSize + 0.5, box.lines[0], room);
    } else {
      Text(x + kPadding, y + 15, kNameSize, box.lines[0], room);
      for (size_t i = 1; i < box.lines.size(); ++i) {
        Text(x + kPadding, y + 15 + kLineHeight * static_cast<int>(i), kDetailSize, box.lines[i], room, false, "#555");
      }
    }
    out_ += "</g>\n";
    for (const Frame& frame : box.frames) {
      const int top = y + box.text_height();
      Put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"#ffffff\" stroke=\"#b9b9c2\" "
          "stroke-dasharray=\"5 3\"/>\n",
          x + frame.x, top, frame.width, frame.height);
      Text(x + frame.x + kPadding, top + 14, kDetailSize, frame.caption, frame.width - 2 * kPadding, true, "#555");
      if (frame.sheet != nullptr) Write(*frame.sheet, x + frame.x + kPadding, top + kCaption);
    }
  }

  // From the record to the wait, behind the boxes between them.
  void WriteEdge(const Sheet& sheet, const LaneEdge& edge, int x, int y) {
    const Column& from = sheet.columns[edge.from_lane];
    const Column& to = sheet.columns[edge.to_lane];
    const Box& record = from.boxes[edge.from];
    const Box& wait = to.boxes[edge.to];
    const bool rightwards = edge.from_lane < edge.to_lane;
    Curve(x + from.x + (rightwards ? record.width : 0), y + record.y + record.text_height() / 2,
          x + to.x + (rightwards ? 0 : wait.width), y + wait.y + wait.text_height() / 2);
  }

  // From a task that starts a stream to the first task of that.
  void WriteStart(const Sheet& sheet, const Column& from, const Box& box, int x, int y) {
    for (const Column& to : sheet.columns) {
      if (to.stream_id != box.starts_stream || &to == &from || to.boxes.empty()) continue;
      const bool rightwards = from.x < to.x;
      Curve(x + from.x + (rightwards ? box.width : 0), y + box.y + box.text_height() / 2,
            x + to.x + (rightwards ? 0 : to.boxes[0].width), y + to.boxes[0].y + to.boxes[0].text_height() / 2);
    }
  }

  void Curve(int x1, int y1, int x2, int y2) {
    const int bend = x1 < x2 ? kGutter / 2 : -kGutter / 2;
    Put("<path d=\"M{} {} C{} {} {} {} {} {}\" fill=\"none\" stroke=\"#b3452f\" stroke-width=\"1.3\" "
        "marker-end=\"url(#wait)\"/>\n",
        x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2);
  }

  const model::Model& model_;
  Sheet sheet_;
  std::vector<std::string> notes_;
  std::string out_;
};

}  // namespace

std::string SvgPicture(const model::Model& model, bool every_task) { return Drawing(model, every_task).Svg(); }

Status WriteSvgPicture(const model::Model& model, const std::string& path, bool every_task) {
  return WriteTextFile(path, SvgPicture(model, every_task));
}

}  // namespace reprise::observe
