// SPDX-License-Identifier: Apache-2.0
#include "plan/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/svg_text.h"

namespace reprise::plan {
namespace {

constexpr double kLeft = 84;
constexpr double kTop = 48;
constexpr double kWidth = 1040;
constexpr double kHeight = 520;
constexpr double kFont = 11;
constexpr size_t kMostBoxes = 20'000;
constexpr const char* kColours[] = {"#2f6fb3", "#2f8a6b", "#6b55b0", "#b07a12", "#b8385b", "#3fa7c4", "#8a5a2b"};

std::string Amount(Bytes bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

// The place of times: each moment at which something begins or ends is as far from the last one as from the next.
// Lifetimes of problems differ by orders of magnitude; here the short ones can be seen, too.
class TimeAxis {
 public:
  explicit TimeAxis(const Problem& problem) {
    for (const Buffer& buffer : problem.buffers) {
      times_.push_back(buffer.begin);
      times_.push_back(buffer.end);
    }
    std::sort(times_.begin(), times_.end());
    times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
  }
  double At(Time time) const {
    const auto index = static_cast<double>(std::lower_bound(times_.begin(), times_.end(), time) - times_.begin());
    return kLeft + kWidth * index / std::max<double>(static_cast<double>(times_.size()) - 1, 1);
  }

 private:
  std::vector<Time> times_;
};

std::vector<BufferId> Drawn(const Problem& problem) {
  std::vector<BufferId> ids(problem.buffers.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](BufferId a, BufferId b) { return problem.buffers[a].size > problem.buffers[b].size; });
  if (ids.size() > kMostBoxes) ids.resize(kMostBoxes);
  return ids;
}

}  // namespace

std::string ToSvg(const Problem& problem, const Solution& solution, const std::string& title) {
  const Bytes bound = LowerBound(problem);
  const auto scale = kHeight / static_cast<double>(std::max<Bytes>(solution.height, 1));
  const auto y = [&](Bytes offset) { return kTop + kHeight - scale * static_cast<double>(offset); };
  const TimeAxis axis(problem);
  std::string svg;
  auto out = std::back_inserter(svg);
  fmt::format_to(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"{2}\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kLeft + kWidth + 24, kTop + kHeight + 40, kFont);
  fmt::format_to(out, "<text x=\"{}\" y=\"26\" font-size=\"15\" font-weight=\"bold\" fill=\"#24262b\">{}</text>\n",
                 kLeft, EscapeXml(FitText(title, kWidth, 15, true)));
  for (const BufferId id : Drawn(problem)) {
    const Buffer& buffer = problem.buffers[id];
    if (buffer.size == 0) continue;
    const double left = axis.At(buffer.begin);
    const double width = axis.At(buffer.end) - left;
    const double height = scale * static_cast<double>(buffer.size);
    const char* colour = kColours[id % std::size(kColours)];
    const double top = y(solution.offsets[id] + buffer.size);
    fmt::format_to(
        out,
        "<g><title>{}: {} bytes at {}, live from {} until {}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" "
        "width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" fill-opacity=\"0.28\" stroke=\"{}\" stroke-width=\"0.7\"/>",
        EscapeXml(NameOf(problem, id)), buffer.size, solution.offsets[id], buffer.begin, buffer.end, left, top, width,
        height, colour, colour);
    const std::string name = height > kFont + 3 && width > 20 ? FitText(NameOf(problem, id), width - 6, kFont) : "";
    if (!name.empty() && name != "…") {
      fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{:.2f}\" fill=\"#24262b\">{}</text>", left + 3,
                     top + height / 2 + kFont / 3, EscapeXml(name));
    }
    svg += "</g>\n";
  }
  for (int line = 0; line <= 4; ++line) {
    const Bytes at = solution.height / 4 * line;
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\" fill=\"#5d5f66\">{}</text>\n", kLeft - 6,
                   y(at) + kFont / 3, Amount(at));
  }
  fmt::format_to(out,
                 "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#5d5f66\"/>\n<path d=\"M{0} {4:.2f}H{3}\" "
                 "stroke=\"#c0392b\" stroke-dasharray=\"6 4\"/>\n",
                 kLeft, kTop, kTop + kHeight, kLeft + kWidth, y(bound));
  fmt::format_to(
      out,
      "<text x=\"{}\" y=\"{}\" fill=\"#5d5f66\">begins and ends of {} buffers, in their order; height {}; dashed: "
      "the lower bound, {}</text>\n</svg>\n",
      kLeft, kTop + kHeight + 22, problem.buffers.size(), Amount(solution.height), Amount(bound));
  return svg;
}

}  // namespace reprise::plan
