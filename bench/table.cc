// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bench {
namespace {

std::string Number(double value) {
  char text[64];
  const double size = std::fabs(value);
  const int digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Trailing zeros say nothing in a goal: 2, 1.5, 0.88.
std::string Short(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string Escaped(const std::string& text, bool xml) {
  std::string out;
  for (const char c : text) {
    if (xml && c == '&') {
      out += "&amp;";
    } else if (xml && c == '<') {
      out += "&lt;";
    } else if (xml && c == '>') {
      out += "&gt;";
    } else if (!xml && c == '|') {
      out += "\\|";
    } else {
      out += c;
    }
  }
  return out;
}

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string JsonNumber(double value) {
  char text[64];
  if (!std::isfinite(value)) return "null";
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string JsonSpread(const Spread& spread) {
  return "{\"least\": " + JsonNumber(spread.least) + ", \"median\": " + JsonNumber(spread.median) +
         ", \"most\": " + JsonNumber(spread.most) + "}";
}

size_t Letters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

constexpr const char* kGood = "#2a7f62";
constexpr const char* kBad = "#c0392b";

}  // namespace

Spread Of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

Verdict Row::verdict() const {
  if (!missing.empty()) return Verdict::kNoPeer;
  if (goal <= 0) return Verdict::kNone;
  const bool met = sense == Sense::kAtMost ? figure.median <= goal : figure.median >= goal;
  return met ? Verdict::kMet : Verdict::kMissed;
}

double Row::over_goal(double value) const {
  if (!missing.empty() || goal <= 0 || value <= 0) return 0;
  return sense == Sense::kAtMost ? value / goal : goal / value;
}

std::string Text(double value, const std::string& unit) { return Number(value) + (unit.empty() ? "" : " " + unit); }

std::string Text(const Spread& spread, const std::string& unit) {
  if (spread.least == spread.most) return Text(spread.median, unit);
  return Text(spread.median, unit) + " (" + Number(spread.least) + " to " + Number(spread.most) + ")";
}

std::string GoalText(const Row& row) {
  if (row.goal <= 0) return "";
  const std::string unit = row.figure_unit.empty() ? "" : " " + row.figure_unit;
  std::string text = (row.sense == Sense::kAtMost ? "≤ " : "≥ ") + Short(row.goal) + unit;
  if (row.aim > 0) text += " (aim " + Short(row.aim) + ")";
  return text;
}

const char* Word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet: return "met";
    case Verdict::kMissed: return "missed";
    case Verdict::kNoPeer: return "no peer";
    case Verdict::kNone: break;
  }
  return "–";
}

std::string Table::Markdown() const {
  std::string text = conditions.empty() ? "" : conditions + "\n\n";
  text +=
      "| Row | What | Here: median (least to most) | Yardstick | Yardstick's | Figure | Goal | Verdict |\n"
      "|---|---|--:|---|--:|--:|--:|---|\n";
  for (const Row& row : rows) {
    const Verdict verdict = row.verdict();
    const bool have = row.missing.empty();
    std::string word = Word(verdict);
    if (verdict == Verdict::kMissed) word.insert(0, "**").append("**");
    if (row.tries > 1) word += ", " + std::to_string(row.tries) + " tries";
    const std::string cells[] = {row.id,
                                 row.what,
                                 have && !row.here_unit.empty() ? Text(row.here, row.here_unit) : "",
                                 have ? row.yardstick : row.yardstick + ": " + row.missing,
                                 have && !row.there_unit.empty() ? Text(row.there, row.there_unit) : "",
                                 have && !row.figure_unit.empty() ? Text(row.figure, row.figure_unit) : "",
                                 GoalText(row),
                                 word};
    text += "|";
    for (const std::string& cell : cells) text += " " + Escaped(cell, false) + (cell.empty() ? "|" : " |");
    text += "\n";
  }
  int count[4] = {};
  for (const Row& row : rows) ++count[static_cast<int>(row.verdict())];
  text += "\n" + std::to_string(count[0]) + " met, " + std::to_string(count[1]) + " missed, " +
          std::to_string(count[2]) + " without their peer, " + std::to_string(count[3]) + " for comparison only.\n";
  return text;
}

std::string Table::Svg() const {
  std::vector<const Row*> bars;
  for (const Row& row : rows) {
    if (row.over_goal(row.figure.median) > 0) bars.push_back(&row);
  }
  double least = 0.5;
  double most = 2;
  size_t longest = 0;
  for (const Row* row : bars) {
    for (const double value : {row->figure.least, row->figure.most}) {
      const double ratio = row->over_goal(value);
      if (ratio <= 0) continue;  // a sample of nothing at all has no place on this axis
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
    longest = std::max(longest, Letters(row->what));
  }
  // Beyond these nothing is to be seen but that it is far away.
  least = std::max(least, 1e-3);
  most = std::min(most, 1e3);
  const double from = std::floor(std::log10(least) * 3) / 3;
  const double to = std::ceil(std::log10(most) * 3) / 3;

  constexpr int kLine = 22, kTop = 78, kAxis = 560, kGap = 14;
  const int label = std::max(200, static_cast<int>(longest) * 7 + 60);
  const int left = label + kGap;
  const int right = left + kAxis;
  const int width = right + 330;
  const int bottom = kTop + static_cast<int>(bars.size()) * kLine;
  const int height = bottom + 46;
  const auto x = [&](double ratio) {
    const double at = (std::log10(std::clamp(ratio, least, most)) - from) / (to - from);
    return left + at * kAxis;
  };
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) + "\" height=\"" +
                     std::to_string(height) +
                     "\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
                     "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  const auto put = [&](double at_x, double at_y, const char* anchor, const std::string& style,
                       const std::string& words) {
    text += "<text x=\"" + Fixed(at_x, 1) + "\" y=\"" + Fixed(at_y, 1) + "\" text-anchor=\"" + anchor + "\" " + style +
            ">" + Escaped(words, true) + "</text>\n";
  };
  const auto line = [&](double x1, double y1, double x2, double y2, const char* stroke, double thickness) {
    text += "<line x1=\"" + Fixed(x1, 1) + "\" y1=\"" + Fixed(y1, 1) + "\" x2=\"" + Fixed(x2, 1) + "\" y2=\"" +
            Fixed(y2, 1) + "\" stroke=\"" + stroke + "\" stroke-width=\"" + Fixed(thickness, 1) + "\"/>\n";
  };
  const auto box = [&](double x1, double y1, double w, double h, const char* fill) {
    text += "<rect x=\"" + Fixed(x1, 1) + "\" y=\"" + Fixed(y1, 1) + "\" width=\"" + Fixed(w, 1) + "\" height=\"" +
            Fixed(h, 1) + "\" fill=\"" + fill + "\"/>\n";
  };

  put(16, 24, "start", "font-size=\"16\" font-weight=\"bold\"",
      "Capture and replay: how far each figure is from its goal");
  put(16, 43, "start", "fill=\"#555\"",
      "Bars end at the median of figure ÷ goal, lines show least to most. Left of 1: better than promised.");
  // Grid at 1, 2, 5 in each decade; numbers where they do not touch.
  const bool roomy = kAxis / (to - from) >= 130;
  for (int decade = -4; decade <= 3; ++decade) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = step * std::pow(10.0, decade);
      if (std::log10(value) < from - 1e-9 || std::log10(value) > to + 1e-9) continue;
      const double at = left + (std::log10(value) - from) / (to - from) * kAxis;
      const bool is_goal = decade == 0 && step == 1.0;
      if (is_goal) continue;
      line(at, kTop - 4, at, bottom + 4, "#e4e4e4", 1);
      if (step == 1.0 || roomy) put(at, bottom + 18, "middle", "fill=\"#777\" font-size=\"11\"", Short(value));
    }
  }
  double y = kTop;
  std::string previous;
  for (const Row* row : bars) {
    const double middle = y + kLine / 2.0;
    const double end = x(row->over_goal(row->figure.median));
    const double one = x(1);
    const char* colour = row->verdict() == Verdict::kMet ? kGood : kBad;
    put(label, middle + 4, "end", "", row->what);
    if (row->id != previous) {
      if (!previous.empty()) line(16, y, right + 320, y, "#ececec", 1);
      put(16, middle + 4, "start", "font-weight=\"bold\"", row->id);
      previous = row->id;
    }
    box(std::min(one, end), middle - 7, std::max(1.5, std::fabs(end - one)), 14, colour);
    line(x(row->over_goal(row->figure.least)), middle, x(row->over_goal(row->figure.most)), middle, "#222", 1.2);
    put(right + 10, middle + 4, "start", std::string("fill=\"") + colour + "\"",
        Text(row->figure.median, row->figure_unit) + ", goal " + GoalText(*row));
    y += kLine;
  }
  line(x(1), kTop - 6, x(1), bottom + 6, "#222", 1.6);
  put(x(1), kTop - 11, "middle", "font-weight=\"bold\"", "goal");
  put(x(1), bottom + 18, "middle", "font-weight=\"bold\" font-size=\"11\"", "1");
  put(left + kAxis / 2.0, bottom + 36, "middle", "fill=\"#555\"",
      "figure ÷ goal (goal ÷ figure where more is better), logarithmic");
  return text + "</svg>\n";
}

std::string Table::Json() const {
  std::string text = "{\n  \"conditions\": " + JsonText(conditions) + ",\n  \"rows\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    text += std::string(i == 0 ? "\n" : ",\n") + "    {\"id\": " + JsonText(row.id) +
            ", \"what\": " + JsonText(row.what) +
            ", \"verdict\": " + JsonText(row.verdict() == Verdict::kNone ? "none" : Word(row.verdict()));
    if (!row.missing.empty()) {
      text += ", \"yardstick\": " + JsonText(row.yardstick) + ", \"missing\": " + JsonText(row.missing);
    } else {
      text += ", \"here\": " + JsonSpread(row.here) + ", \"here_unit\": " + JsonText(row.here_unit);
      if (!row.yardstick.empty()) text += ", \"yardstick\": " + JsonText(row.yardstick);
      if (!row.there_unit.empty()) {
        text += ", \"there\": " + JsonSpread(row.there) + ", \"there_unit\": " + JsonText(row.there_unit);
      }
      text += ", \"figure\": " + JsonSpread(row.figure) + ", \"figure_unit\": " + JsonText(row.figure_unit) +
              ", \"tries\": " + std::to_string(row.tries);
    }
    if (row.goal > 0) {
      text += std::string(", \"goal\": {\"at\": ") + (row.sense == Sense::kAtMost ? "\"most\"" : "\"least\"") +
              ", \"value\": " + JsonNumber(row.goal) + "}";
    }
    text += "}";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace bench
