// SPDX-License-Identifier: Apache-2.0
//
// Texts of SVG pictures: what XML can hold, and how wide it is at most.
#pragma once

#include <string>
#include <string_view>

namespace reprise {

/// Text and attribute values. Line breaks stay, other control characters become blanks, bytes that are no UTF-8 U+FFFD.
std::string EscapeXml(std::string_view text);

/// In pixels, in any of the usual sans-serif fonts: that of the widest.
double TextWidth(std::string_view text, double font_size, bool is_bold = false);

/// The text, or as much of its begin as fits, with "…"; valid UTF-8 in one line.
std::string FitText(std::string_view text, double width, double font_size, bool is_bold = false);

}  // namespace reprise
