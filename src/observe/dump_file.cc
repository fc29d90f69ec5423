// SPDX-License-Identifier: Apache-2.0
#include "observe/dump_file.h"

#include <fmt/format.h>

#include <string_view>

#include "observe/dot.h"
#include "observe/json_dump.h"
#include "observe/picture.h"

namespace reprise::observe {
namespace {

std::string_view EndingOf(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

}  // namespace

Status CheckDumpEnding(const std::string& path) {
  const std::string_view ending = EndingOf(path);
  if (ending == ".json" || ending == ".svg" || ending == ".dot") return {};
  return Error(kInvalidValue, ending.empty()
                                  ? fmt::format("the name \"{}\" has no ending that says what to write", path)
                                  : fmt::format("nothing is known to write into a file that ends in \"{}\"", ending))
      .Culprit(fmt::format("parameter path, \"{}\"", path))
      .Hint("end the name in .json (a trace with all tasks), .svg (a picture) or .dot (for Graphviz)");
}

Status WriteDump(const model::Model& model, const std::string& path, bool every_task) {
  REPRISE_RETURN_IF_ERROR(CheckDumpEnding(path));
  const std::string_view ending = EndingOf(path);
  if (ending == ".svg") return WriteSvgPicture(model, path, every_task);
  if (ending == ".dot") return WriteDot(model, path);
  return WriteJsonDump(model, path, true);
}

}  // namespace reprise::observe
