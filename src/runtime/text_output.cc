// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_output.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace reprise::runtime {
namespace {

std::atomic<TextReader> the_reader{nullptr};

}  // namespace

void SetTextReader(TextReader reader) { the_reader.store(reader, std::memory_order_release); }

void PrintText(std::string_view stream, std::string_view text) {
  const std::string line = std::string(text) + '\n';
  const TextReader reader = the_reader.load(std::memory_order_acquire);
  if (reader != nullptr && reader(line)) return;
  std::FILE* const file = stream == "stdout" ? stdout : stderr;
  std::fwrite(line.data(), 1, line.size(), file);  // in one call, so that lines of several threads do not mix
  std::fflush(file);
}

}  // namespace reprise::runtime
