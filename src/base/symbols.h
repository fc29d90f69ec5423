// SPDX-License-Identifier: Apache-2.0
//
// Names of functions from the files that are mapped: also of functions that nobody exports, and in handlers of signals,
// where dladdr is not allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reprise {

struct Symbol {
  char file[512] = "";   ///< the mapped file; empty: none is
  char name[256] = "";   ///< mangled; empty: the file does not tell it
  uint64_t in_file = 0;  ///< the address as the file has it, which addr2line wants
  uint64_t in_function = 0;

  /// Behind the last slash.
  const char* file_name() const noexcept;
};

/// Takes system calls and the stack alone. False when the address lies in no mapped file.
bool FindSymbol(const void* address, Symbol& symbol) noexcept;

/// "name in libfile.so", with the name as the source has it; "0x12 in libfile.so" without one. Not for handlers.
std::string DescribeFunction(const void* function);

}  // namespace reprise
