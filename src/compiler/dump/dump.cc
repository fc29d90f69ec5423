// SPDX-License-Identifier: Apache-2.0
#include "compiler/dump/dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>

#include "base/folder.h"
#include "base/log.h"
#include "base/text_file.h"

namespace reprise::compiler {
namespace {

constexpr size_t kLongestName = 255;

std::atomic<uint32_t> g_next{0};  // dump points of the process

struct FormInfo {
  const char* prefix;
  const char* extension;
};
FormInfo InfoOf(DumpForm form) {
  switch (form) {
    case DumpForm::kOnnx: return {"ge_onnx", ".pbtxt"};
    case DumpForm::kProto: return {"ge_proto", ".txt"};
    default: return {"ge_readable", ".txt"};
  }
}

std::string NameOf(DumpForm form, uint32_t number, const DumpPoint& point) {
  const FormInfo info = InfoOf(form);
  std::string name =
      fmt::format("{}_{:08}{}_graph_{}_", info.prefix, number, point.is_single_op ? "_aclop" : "", point.graph_id);
  for (const char c : point.stage) {
    const bool is_safe =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    name += is_safe ? c : '_';
  }
  const std::string_view extension = info.extension;
  if (name.size() > kLongestName - extension.size()) name.resize(kLongestName - extension.size());
  return name.append(extension);
}

// Where files go, with a slash behind it; empty: the current folder.
std::string MakeDumpFolder(const DumpSettings& settings, int device) {
  if (settings.folder.empty()) return {};
  const std::string folder = fmt::format("{}/pid_{}_deviceid_{}", settings.folder, getpid(), device);
  const Status status = MakeFolder(folder);
  if (status.ok()) return folder + '/';
  REPRISE_LOG(kWarning, "GE", "graphs are dumped into the current folder: {}", status.detail().what);
  return {};
}

StatusOr<std::string> WriteDump(const Graph& graph, DumpForm form, Content content, uint32_t number,
                                const DumpPoint& point, const std::string& folder) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, DumpText(graph, form, content));
  std::string path = folder + NameOf(form, number, point);
  REPRISE_RETURN_IF_ERROR(WriteTextFile(path, text));
  return path;
}

}  // namespace

StatusOr<std::string> DumpText(const Graph& graph, DumpForm form, Content content) {
  switch (form) {
    case DumpForm::kOnnx: return OnnxText(graph, content);
    case DumpForm::kProto: return ToProtoText(graph, {.content = content, .completes = true});
    default: return ReadableText(graph);
  }
}

void DumpStage(const Graph& graph, const DumpPoint& point, const DumpSettings& settings) noexcept {
  if (!settings.is_on || !(point.is_forced || settings.Takes(point.stage))) return;
  try {
    const uint32_t number = g_next.fetch_add(1, std::memory_order_relaxed);
    const std::string folder = MakeDumpFolder(settings, point.device);
    for (const DumpForm form : settings.forms) {
      StatusOr<std::string> path = WriteDump(graph, form, settings.content, number, point, folder);
      if (path.ok()) continue;
      const Status status = std::move(path).status();
      REPRISE_LOG(kWarning, "GE", "the graph {} is not dumped at {}: {}", graph.name, point.stage,
                  status.detail().what);
    }
  } catch (const std::exception& error) {
    REPRISE_LOG(kWarning, "GE", "a graph is not dumped: {}", error.what());
  }
}

void DumpStage(const Graph& graph, const DumpPoint& point) noexcept {
  static const DumpSettings* const settings = &TheDumpSettings();
  DumpStage(graph, point, *settings);
}

StatusOr<std::string> DumpToFile(const Graph& graph, DumpForm form, const DumpPoint& point,
                                 const DumpSettings& settings) {
  const uint32_t number = g_next.fetch_add(1, std::memory_order_relaxed);
  return WriteDump(graph, form, Content::kNoData, number, point, MakeDumpFolder(settings, point.device));
}

}  // namespace reprise::compiler
