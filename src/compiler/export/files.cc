// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/text_file.h"
#include "compiler/export/export.h"
#include "compiler/import/import.h"

namespace reprise::compiler {

Status SaveModel(const Graph& graph, const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string bytes, ExportBytes(graph));
  // Beside the file first, so that the one that is there stays until the new one is whole.
  const std::string draft = fmt::format("{}.{}.tmp", path, getpid());
  Status status = WriteTextFile(draft, bytes);
  if (status.ok() && std::rename(draft.c_str(), path.c_str()) != 0) {
    status = Error(kWriteFile, std::strerror(errno));
    std::remove(draft.c_str());
  }
  if (status.ok()) return {};
  return Error(kWriteFile,
               fmt::format("the graph {} cannot be saved as \"{}\": {}", graph.name, path, status.detail().what))
      .Culprit(fmt::format("file \"{}\"", path))
      .Hint("pass a path in an existing folder that this process may write to, and make room");
}

StatusOr<std::unique_ptr<Graph>> LoadModel(const std::string& path) {
  const auto wrong = [&](std::string_view reason) {
    return Error(kInvalidFile, fmt::format("the file \"{}\" cannot be read: {}", path, reason))
        .Culprit(fmt::format("file \"{}\"", path))
        .Hint("pass the path of a serialised model (.air)");
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return wrong("it is a folder");
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return wrong(std::strerror(errno));
  std::string bytes;
  char part[1 << 16];
  for (size_t count = 0; (count = std::fread(part, 1, sizeof part, file.get())) > 0;) {
    bytes.append(part, count);
    if (bytes.size() > INT32_MAX) return wrong("it has more than the 2 GiB of a model");
  }
  if (std::ferror(file.get()) != 0) return wrong(std::strerror(errno));
  return ImportBytes(bytes);
}

}  // namespace reprise::compiler
