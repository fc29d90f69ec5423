// SPDX-License-Identifier: Apache-2.0
//
// From addresses of code to lines of sources, for messages.
#pragma once

#include <string>

namespace reprise {

/// "path/file.cc:12 in Function", or what of it the file that the address lies in tells by debug information and
/// symbols; empty: nothing. Costs milliseconds for the first address in a file (a second for one with very much debug
/// information) and is remembered. With GCC's libbacktrace where this was built with it, else by the program addr2line.
/// Thread-safe; not in handlers of signals.
std::string DescribeSourceLine(const void* address);

}  // namespace reprise
