// SPDX-License-Identifier: Apache-2.0
#include "base/folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace reprise {

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) error = std::error_code(errno, std::generic_category());
  if (!error) return {};
  return Error(kInvalidFile, fmt::format("the folder \"{}\" cannot be used: {}", folder, error.message()))
      .Culprit(fmt::format("folder \"{}\"", folder))
      .Hint("name a folder that this process may create and write to");
}

}  // namespace reprise
