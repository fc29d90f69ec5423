// SPDX-License-Identifier: Apache-2.0
//
// What a device prints (operators that print tensors): to a reader, if the process has one, else to standard error.
#pragma once

#include <string_view>

namespace reprise::runtime {

/// Takes text; false: it could not, so that the text goes on to standard error.
using TextReader = bool (*)(std::string_view text);

/// There is one for the process; tensor channels register theirs when the channel for texts is opened.
void SetTextReader(TextReader reader);

/// Prints the text and a line feed.
///
/// \param stream  "stdout", "stderr", "log(info)" ... as operators say it; without a reader only "stdout" is not
///   standard error
/// Threads: thread-safe; texts of one thread come out in their order
void PrintText(std::string_view stream, std::string_view text);

}  // namespace reprise::runtime
