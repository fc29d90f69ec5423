// SPDX-License-Identifier: Apache-2.0
#include "base/svg_text.h"

#include <cstdint>

#include "base/utf8.h"

namespace reprise {
namespace {

// Advance widths of ' ' to '~' in hundredths of the font size, rounded up from DejaVu Sans, which is wide.
constexpr uint8_t kWidths[95] = {32, 41, 46, 84, 64, 95, 78, 28, 39, 39, 50, 84, 32, 37,  32, 34, 64, 64, 64,
                                 64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 77, 64,
                                 58, 78, 76, 30, 30, 66, 56, 87, 75, 79, 61, 79, 70, 64,  62, 74, 69, 99, 69,
                                 62, 69, 39, 34, 39, 84, 50, 50, 62, 64, 55, 64, 62, 36,  64, 64, 28, 28, 58,
                                 28, 98, 64, 62, 64, 64, 42, 53, 40, 64, 60, 82, 60, 60,  53, 64, 34, 64, 84};
constexpr double kBold = 1.15;

double CharacterWidth(char32_t c) {
  if (c >= ' ' && c <= '~') return kWidths[c - ' '] / 100.0;
  if (c < ' ') return kWidths[0] / 100.0;
  const bool is_mark = (c >= 0x300 && c <= 0x36F) || (c >= 0x200B && c <= 0x200F) || (c >= 0xFE00 && c <= 0xFE0F);
  if (is_mark) return 0;
  const bool is_wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                       (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) || c == kReplacement;
  if (is_wide) return 1.03;
  return c >= 0x1F000 ? 1.3 : 0.85;
}

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const char32_t c = NextCharacter(text, at);
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += '\n'; break;
      default:
        if (c < ' ' || c == 0x7F) {
          out += ' ';
        } else {
          AppendCharacter(out, c == 0xFFFE || c == 0xFFFF ? kReplacement : c, text, from, at);
        }
    }
  }
  return out;
}

double TextWidth(std::string_view text, double font_size, bool is_bold) {
  double width = 0;
  for (size_t at = 0; at < text.size();) width += CharacterWidth(NextCharacter(text, at));
  return width * font_size * (is_bold ? kBold : 1);
}

std::string FitText(std::string_view text, double width, double font_size, bool is_bold) {
  const double scale = font_size * (is_bold ? kBold : 1);
  const double room = width - CharacterWidth(0x2026) * scale;
  std::string out, kept;
  double used = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const char32_t c = NextCharacter(text, at);
    used += CharacterWidth(c) * scale;
    if (used > width) return kept + "…";
    if (c < ' ') {
      out += ' ';
    } else {
      AppendCharacter(out, c, text, from, at);
    }
    if (used <= room) kept = out;
  }
  return out;
}

}  // namespace reprise
