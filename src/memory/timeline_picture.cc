// SPDX-License-Identifier: Apache-2.0
#include "memory/timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>

#include "base/json_text.h"
#include "memory/timeline.h"
#include "memory/utf8.h"

namespace reprise::memory {
namespace {

constexpr int kWidth = 1180;
constexpr int kLeft = 92;     // of the plots
constexpr int kPlot = 760;    // their width
constexpr int kHeight = 220;  // and height
constexpr int kLegend = kLeft + kPlot + 24;
constexpr int kRow = 18;
constexpr size_t kColumns = 760;
constexpr size_t kMostPools = 10;  // with a colour of their own
constexpr size_t kMostHolders = 8;
constexpr size_t kMostOoms = 50;

constexpr const char* kDefaultColour = "#98a3b0";
constexpr const char* kRestColour = "#5d5f66";
// Of captures warm, of pools by handle cool.
constexpr const char* kCaptureColours[] = {"#d9622b", "#e0a526", "#b8385b", "#8a5a2b", "#d98cae", "#7d6a18"};
constexpr const char* kHandleColours[] = {"#2f6fb3", "#2f8a6b", "#6b55b0", "#3fa7c4", "#4c9a2a"};

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : Utf8(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      // XML has no way to write other control characters.
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
    }
  }
  return out;
}

std::string Shorten(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  // Of a path, the end says more.
  return fmt::format("{}...{}", text.substr(0, most / 2 - 3), text.substr(text.size() - most / 2));
}

std::string Amount(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.4g} KiB", value / 1024);
  if (bytes < int64_t{1} << 30) return fmt::format("{:.4g} MiB", value / (1 << 20));
  return fmt::format("{:.4g} GiB", value / (1 << 30));
}

std::string Time(double us) {
  if (us < 1e3) return fmt::format("{:.4g} us", us);
  if (us < 1e6) return fmt::format("{:.4g} ms", us / 1e3);
  return fmt::format("{:.4g} s", us / 1e6);
}

// What is drawn of one pool, or of all that have no colour of their own.
struct Band {
  std::string name;
  const char* colour;
  int64_t allocated_peak = 0;
  int64_t reserved_peak = 0;
};

// The state that each column shows: of all in its time, the one with most.
using Columns = std::vector<std::vector<int64_t>>;

struct Drawing {
  const Timeline* timeline;
  std::vector<Band> bands;
  std::vector<size_t> band_of;  ///< by pool
  Columns allocated, reserved;
  int64_t begin_us = 0;
  int64_t end_us = 0;

  size_t ColumnAt(int64_t time_us) const {
    if (end_us <= begin_us || time_us <= begin_us) return 0;
    const double part = static_cast<double>(time_us - begin_us) / static_cast<double>(end_us - begin_us);
    return std::min(kColumns - 1, static_cast<size_t>(part * static_cast<double>(kColumns)));
  }
  size_t ColumnOf(ptrdiff_t change) const {
    return change < 0 ? 0 : ColumnAt(timeline->changes[static_cast<size_t>(change)].time_us);
  }
};

std::string PoolName(const Timeline::Pool& pool, const TimelineOptions& options) {
  for (const auto& [id, name] : options.pool_names) {
    if (id == pool.id) return name;
  }
  if (pool.id.is_default()) return "default pool";
  return fmt::format("{} pool ({},{})", pool.id.capture != 0 ? "capture's" : "handle's", pool.id.capture,
                     pool.id.handle);
}

void ChooseBands(Drawing& drawing, const TimelineOptions& options) {
  const std::vector<Timeline::Pool>& pools = drawing.timeline->pools;
  std::vector<size_t> order(pools.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // The default pool lies at the bottom, then the largest ones.
  std::stable_sort(order.begin() + 1, order.end(),
                   [&](size_t a, size_t b) { return pools[a].reserved_peak > pools[b].reserved_peak; });
  drawing.band_of.resize(pools.size());
  const bool shared = order.size() > kMostPools + 1;
  size_t captures = 0;
  size_t handles = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Timeline::Pool& pool = pools[order[i]];
    if (i < kMostPools || !shared) {
      const char* colour = pool.id.is_default()   ? kDefaultColour
                           : i >= kMostPools      ? kRestColour
                           : pool.id.capture != 0 ? kCaptureColours[captures++ % std::size(kCaptureColours)]
                                                  : kHandleColours[handles++ % std::size(kHandleColours)];
      drawing.bands.push_back({PoolName(pool, options), colour});
    } else if (i == kMostPools) {
      drawing.bands.push_back({fmt::format("{} further pools", order.size() - kMostPools), kRestColour});
    }
    const size_t band = shared ? std::min(i, kMostPools) : i;
    drawing.band_of[order[i]] = band;
    drawing.bands[band].allocated_peak += pool.allocated_peak;
    drawing.bands[band].reserved_peak += pool.reserved_peak;
  }
}

void FillColumns(Drawing& drawing) {
  const Timeline& timeline = *drawing.timeline;
  std::vector<int64_t> allocated(drawing.bands.size());
  std::vector<int64_t> reserved(drawing.bands.size());
  for (size_t i = 0; i < timeline.pools.size(); ++i) {
    allocated[drawing.band_of[i]] += timeline.pools[i].allocated_before;
    reserved[drawing.band_of[i]] += timeline.pools[i].reserved_before;
  }
  const auto sum = [](const std::vector<int64_t>& of) {
    int64_t all = 0;
    for (const int64_t bytes : of) all += bytes;
    return all;
  };
  size_t column = 0;
  int64_t most_allocated = -1;
  int64_t most_reserved = -1;
  drawing.allocated.assign(kColumns, {});
  drawing.reserved.assign(kColumns, {});
  int64_t all_allocated = sum(allocated);
  int64_t all_reserved = sum(reserved);
  const auto look = [&] {
    if (all_allocated > most_allocated) {
      most_allocated = all_allocated;
      drawing.allocated[column] = allocated;
    }
    if (all_reserved > most_reserved) {
      most_reserved = all_reserved;
      drawing.reserved[column] = reserved;
    }
  };
  look();
  for (const Timeline::Change& change : timeline.changes) {
    for (const size_t at = drawing.ColumnAt(change.time_us); column < at;) {
      ++column;
      most_allocated = most_reserved = -1;
      look();
    }
    allocated[drawing.band_of[change.pool]] += change.allocated;
    reserved[drawing.band_of[change.pool]] += change.reserved;
    all_allocated += change.allocated;
    all_reserved += change.reserved;
    look();
  }
  while (column + 1 < kColumns) {
    ++column;
    most_allocated = most_reserved = -1;
    look();
  }
}

// Round distances between the marks of an axis: at most `most` of them up to `end`.
double Step(double end, int most, const std::vector<double>& mantissas, double base) {
  double scale = 1;
  while (true) {
    for (const double mantissa : mantissas) {
      if (end / (mantissa * scale) <= most) return mantissa * scale;
    }
    scale *= base;
  }
}

class Svg {
 public:
  Svg(const MemorySnapshot& snapshot, const TimelineOptions& options)
      : options_(options), timelines_(Timelines(snapshot)) {
    for (const Timeline& timeline : timelines_) {
      Drawing& drawing = drawings_.emplace_back();
      drawing.timeline = &timeline;
      if (!timeline.changes.empty()) {
        drawing.begin_us = timeline.changes.front().time_us;
        drawing.end_us = timeline.changes.back().time_us;
      }
      ChooseBands(drawing, options);
      FillColumns(drawing);
    }
  }

  const std::vector<Drawing>& drawings() const { return drawings_; }

  std::string Draw() {
    y_ = 34;
    Text(kLeft, y_, options_.title, "font-size=\"17\" font-weight=\"bold\"");
    y_ += 14;
    if (drawings_.empty()) {
      y_ += 20;
      Text(kLeft, y_, "no device holds memory, and no history was recorded", kGrey);
    }
    for (const Drawing& drawing : drawings_) Device(drawing);
    y_ += 20;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
        kWidth, y_, out_);
  }
  /// Where the plots of each device begin, once drawn.
  const std::vector<int>& tops() const { return tops_; }

 private:
  static constexpr const char* kGrey = "fill=\"#555\"";

  template <class... Values>
  void Add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }
  void Text(double x, double y, std::string_view text, std::string_view style = "") {
    Add("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, Escape(text));
  }

  void Device(const Drawing& drawing) {
    const Timeline& timeline = *drawing.timeline;
    y_ += 22;
    Text(kLeft, y_, fmt::format("Device {}", timeline.device), "font-size=\"14\" font-weight=\"bold\"");
    y_ += 18;
    if (timeline.changes.empty()) {
      Text(kLeft, y_, "no history was recorded: this is what there is now; record a history to see it change", kGrey);
    } else {
      Text(kLeft, y_,
           fmt::format("{} changes in {}; peak {} allocated, {} reserved", timeline.changes.size(),
                       Time(static_cast<double>(drawing.end_us - drawing.begin_us)), Amount(timeline.peak),
                       Amount(timeline.reserved_peak)),
           kGrey);
    }
    y_ += 26;
    tops_.push_back(y_);
    const int64_t top = std::max({timeline.peak, timeline.reserved_peak, int64_t{1}});
    Legend(drawing, y_);
    Plot(drawing, drawing.allocated, "Allocated bytes, by pool", top, timeline.peak, timeline.peak_change);
    y_ += kHeight + 34;
    Plot(drawing, drawing.reserved, "Reserved bytes, by pool", top, timeline.reserved_peak,
         timeline.reserved_peak_change);
    y_ += kHeight;
    TimeAxis(drawing);
    y_ += 64;
    Holders(drawing);
  }

  void Plot(const Drawing& drawing, const Columns& columns, const char* title, int64_t top, int64_t peak,
            ptrdiff_t peak_change) {
    const auto y_of = [&](int64_t bytes) {
      return y_ + kHeight * (1 - static_cast<double>(bytes) / (static_cast<double>(top) * 1.08));
    };
    Text(kLeft, y_ - 6, title, "font-weight=\"bold\"");
    Add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#fafafa\" stroke=\"#cccccc\"/>\n", kLeft, y_, kPlot,
        kHeight);
    const double step = Step(static_cast<double>(top), 6, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, 1024);
    for (double at = 0; at <= static_cast<double>(top); at += step) {
      const double y = y_of(static_cast<int64_t>(at));
      Add("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n", kLeft, y, kLeft + kPlot, y);
      Text(kLeft - 8, y + 4, Amount(static_cast<int64_t>(at)), "text-anchor=\"end\" fill=\"#555\"");
    }
    // From below: each band lies on the sum of those before it. Equal neighbours are one line.
    std::vector<int64_t> base(kColumns, 0);
    for (size_t band = 0; band < drawing.bands.size(); ++band) {
      std::vector<int64_t> upper(kColumns);
      bool is_empty = true;
      for (size_t c = 0; c < kColumns; ++c) {
        upper[c] = base[c] + columns[c][band];
        is_empty &= columns[c][band] == 0;
      }
      if (!is_empty) {
        std::string path;
        const auto corner = [&](size_t c, int64_t bytes) {
          fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? "M" : "L",
                         kLeft + static_cast<double>(c) * kPlot / kColumns, y_of(bytes));
        };
        for (size_t c = 0; c < kColumns; ++c) {
          if (c == 0 || upper[c] != upper[c - 1]) {
            if (c != 0) corner(c, upper[c - 1]);
            corner(c, upper[c]);
          }
        }
        corner(kColumns, upper.back());
        for (size_t c = kColumns; c-- > 0;) {
          if (c + 1 == kColumns || base[c] != base[c + 1]) {
            if (c + 1 != kColumns) corner(c + 1, base[c + 1]);
            corner(c + 1, base[c]);
          }
        }
        corner(0, base[0]);
        Add("<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.85\" stroke=\"{}\" "
            "stroke-width=\"0.6\"><title>{}</title></path>\n",
            path, drawing.bands[band].colour, drawing.bands[band].colour, Escape(drawing.bands[band].name));
      }
      base = std::move(upper);
    }
    for (size_t i = 0; i < std::min(kMostOoms, drawing.timeline->ooms.size()); ++i) {
      const Timeline::Oom& oom = drawing.timeline->ooms[i];
      const double x = kLeft + static_cast<double>(drawing.ColumnAt(oom.time_us)) * kPlot / kColumns;
      Add("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#d00000\" stroke-width=\"1.5\">"
          "<title>out of memory: {3} asked for</title></line>\n",
          x, y_, y_ + kHeight, Amount(static_cast<int64_t>(oom.bytes)));
      const bool at_the_end = x > kLeft + kPlot - 40;
      Text(x + (at_the_end ? -3 : 3), y_ + kHeight - 5, "OOM",
           at_the_end ? "text-anchor=\"end\" fill=\"#d00000\" font-size=\"10\"" : "fill=\"#d00000\" font-size=\"10\"");
    }
    const double x = kLeft + (static_cast<double>(drawing.ColumnOf(peak_change)) + 0.5) * kPlot / kColumns;
    const bool to_the_left = x > kLeft + kPlot * 0.75;
    Add("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#222222\" stroke-dasharray=\"4 3\"/>\n"
        "<circle cx=\"{0:.1f}\" cy=\"{3:.1f}\" r=\"3.5\" fill=\"#222222\"/>\n",
        x, y_, y_ + kHeight, y_of(peak));
    Text(x + (to_the_left ? -7 : 7), y_of(peak) - 4, fmt::format("peak {}", Amount(peak)),
         to_the_left ? "text-anchor=\"end\" font-weight=\"bold\"" : "font-weight=\"bold\"");
  }

  void TimeAxis(const Drawing& drawing) {
    const auto range = static_cast<double>(drawing.end_us - drawing.begin_us);
    if (range > 0) {
      const double step = Step(range, 8, {1, 2, 5}, 10);
      for (double at = 0; at <= range; at += step) {
        const double x = kLeft + at / range * kPlot;
        Add("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#999999\"/>\n", x, y_, y_ + 5);
        Text(x, y_ + 18, Time(at), "text-anchor=\"middle\" fill=\"#555\"");
      }
    }
    Text(kLeft + kPlot / 2.0, y_ + 35, "time since the first recorded change", "text-anchor=\"middle\" fill=\"#555\"");
  }

  void Legend(const Drawing& drawing, int y) {
    Text(kLegend, y - 6, "Pools: most allocated, most reserved", "font-weight=\"bold\"");
    for (const Band& band : drawing.bands) {
      y += 2 * kRow;
      Add("<rect x=\"{}\" y=\"{}\" width=\"13\" height=\"13\" fill=\"{}\"/>\n", kLegend, y - 24, band.colour);
      Text(kLegend + 20, y - 13, Shorten(band.name, 36));
      Text(kLegend + 20, y + 1, fmt::format("{}, {}", Amount(band.allocated_peak), Amount(band.reserved_peak)),
           "font-size=\"10\" fill=\"#555\"");
    }
  }

  void Holders(const Drawing& drawing) {
    const Timeline& timeline = *drawing.timeline;
    Text(kLeft, y_,
         fmt::format(
             "What held {} at the peak{}", Amount(timeline.peak),
             timeline.peak_change < 0
                 ? std::string()
                 : fmt::format(", after {}", Time(static_cast<double>(
                                                 timeline.changes[static_cast<size_t>(timeline.peak_change)].time_us -
                                                 drawing.begin_us)))),
         "font-weight=\"bold\"");
    if (timeline.holders.empty()) {
      y_ += kRow;
      Text(kLeft, y_, "nothing", kGrey);
    }
    int64_t rest = timeline.peak;
    for (size_t i = 0; i < std::min(kMostHolders, timeline.holders.size()); ++i) {
      const Timeline::Holder& holder = timeline.holders[i];
      const Band& band = drawing.bands[drawing.band_of[holder.pool]];
      y_ += kRow;
      rest -= holder.bytes;
      const double part =
          timeline.peak == 0 ? 0 : static_cast<double>(holder.bytes) / static_cast<double>(timeline.peak);
      Add("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"12\" fill=\"{}\"/>\n", kLeft, y_ - 10,
          std::max(1.0, part * 120), band.colour);
      Text(kLeft + 130, y_, Amount(holder.bytes));
      Text(kLeft + 210, y_, fmt::format("{} block{}", holder.blocks, holder.blocks == 1 ? "" : "s"));
      Text(kLeft + 290, y_, Shorten(band.name, 30));
      Add("<text x=\"{}\" y=\"{}\"><title>{}</title>{}</text>\n", kLeft + 490, y_, Escape(holder.place),
          Escape(Shorten(holder.place, 90)));
    }
    if (timeline.holders.size() > kMostHolders) {
      y_ += kRow;
      Text(kLeft + 130, y_,
           fmt::format("{} in {} further places", Amount(rest), timeline.holders.size() - kMostHolders), kGrey);
    }
    y_ += 12;
  }

  const TimelineOptions& options_;
  const std::vector<Timeline> timelines_;
  std::vector<Drawing> drawings_;
  std::string out_;
  std::vector<int> tops_;
  int y_ = 0;
};

// The numbers of all columns; what follows is equal is left out.
std::string Numbers(const Columns& columns) {
  std::string out = "[";
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c != 0 && columns[c] == columns[c - 1]) {
      out += ",0";
      continue;
    }
    fmt::format_to(std::back_inserter(out), "{}[{}]", c == 0 ? "" : ",", fmt::join(columns[c], ","));
  }
  return out + "]";
}

// Text within a script: neither the end of the script nor of the string may come out of a name.
std::string ScriptText(std::string_view text) {
  std::string out = "\"";
  for (const char c : JsonEscape(Utf8(text))) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

constexpr std::string_view kScript = R"(
const svg = document.querySelector("svg"), box = document.getElementById("at");
const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
line.setAttribute("stroke", "#0a0a0a");
line.setAttribute("pointer-events", "none");
svg.appendChild(line);
const at = (list, i) => { while (list[i] === 0) --i; return list[i]; };
const bytes = b => b < 1024 ? b + " B" : b < 1048576 ? (b / 1024).toFixed(1) + " KiB" :
    b < 1073741824 ? (b / 1048576).toFixed(2) + " MiB" : (b / 1073741824).toFixed(3) + " GiB";
svg.addEventListener("mousemove", e => {
  const r = svg.getBoundingClientRect(), x = (e.clientX - r.left) * plot.width / r.width;
  const y = (e.clientY - r.top) * plot.width / r.width, i = Math.floor((x - plot.left) / plot.wide * plot.columns);
  const d = devices.find(d => y >= d.top && y <= d.top + plot.high);
  box.style.display = line.style.display = d && i >= 0 && i < plot.columns ? "block" : "none";
  if (box.style.display === "none") return;
  for (const [name, value] of [["x1", x], ["x2", x], ["y1", d.top], ["y2", d.top + plot.high]]) {
    line.setAttribute(name, value);
  }
  const a = at(d.allocated, i), r2 = at(d.reserved, i), sum = l => l.reduce((p, q) => p + q, 0);
  box.textContent = "after " + ((i + 0.5) / plot.columns * d.us / 1000).toFixed(3) + " ms: " + bytes(sum(a)) +
      " allocated, " + bytes(sum(r2)) + " reserved\n" + d.pools.map((p, k) => a[k] || r2[k] ?
      p + ": " + bytes(a[k]) + ", " + bytes(r2[k]) + "\n" : "").join("");
  box.style.left = e.pageX + 16 + "px";
  box.style.top = e.pageY + 16 + "px";
});
)";

}  // namespace

std::string TimelineSvg(const MemorySnapshot& snapshot, const TimelineOptions& options) {
  return Svg(snapshot, options).Draw();
}

std::string TimelineHtml(const MemorySnapshot& snapshot, const TimelineOptions& options) {
  Svg svg(snapshot, options);
  const std::string picture = svg.Draw();
  std::string devices;
  for (size_t i = 0; i < svg.drawings().size(); ++i) {
    const Drawing& drawing = svg.drawings()[i];
    std::string names;
    for (const Band& band : drawing.bands) names += (names.empty() ? "" : ",") + ScriptText(band.name);
    devices +=
        fmt::format("{{top:{},us:{},pools:[{}],\nallocated:{},\nreserved:{}}},\n", svg.tops()[i],
                    drawing.end_us - drawing.begin_us, names, Numbers(drawing.allocated), Numbers(drawing.reserved));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n"
      "<style>body {{ margin: 0; }} svg {{ max-width: 100%; height: auto; display: block; }}\n"
      "#at {{ display: none; position: absolute; margin: 0; padding: 6px; font: 12px monospace; background: #fffff0;\n"
      "border: 1px solid #888; pointer-events: none; }}</style>\n</head>\n<body>\n{1}<pre id=\"at\"></pre>\n"
      "<script>\nconst plot = {{width:{2},left:{3},wide:{4},high:{5},columns:{6}}};\nconst devices = [\n{7}];\n{8}"
      "</script>\n</body>\n</html>\n",
      Escape(options.title), picture, kWidth, kLeft, kPlot, 2 * kHeight + 34, kColumns, devices, kScript);
}

}  // namespace reprise::memory
