// SPDX-License-Identifier: Apache-2.0
//
// Where a test program finds what is built with it: kernel binaries, libraries. Its object may be part of the programs
// of several build trees, so no path is compiled in.
#pragma once

#include <unistd.h>

#include <string>

namespace reprise::testing {

/// The path of `name` in the folder of the running program.
inline std::string BesideProgram(const char* name) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self);
  std::string path(self, length > 0 ? static_cast<size_t>(length) : 0);
  path.resize(path.rfind('/') + 1);  // nothing is left where there is none
  return path + name;
}

}  // namespace reprise::testing
