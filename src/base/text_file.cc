// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace reprise {

Status WriteTextFile(const std::string& path, std::string_view text) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return Error(kFileOpen, fmt::format("\"{}\" cannot be opened for writing: {}", path, std::strerror(errno)))
        .Hint("pass a path in an existing folder that this process may write to");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    Status status = Error(kFileOpen, fmt::format("{} cannot be written completely: {}", path, std::strerror(errno)))
                        .Hint("make room, or name another folder");
    std::error_code ignored;
    const std::filesystem::file_type type = std::filesystem::symlink_status(path, ignored).type();
    const bool is_ours = type == std::filesystem::file_type::regular || type == std::filesystem::file_type::symlink;
    if (is_ours) std::filesystem::remove(path, ignored);  // never a device
    return status;
  }
  return {};
}

}  // namespace reprise
