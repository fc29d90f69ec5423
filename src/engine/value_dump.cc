// SPDX-License-Identifier: Apache-2.0
#include "engine/value_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>

#include "base/folder.h"
#include "base/text_file.h"
#include "compiler/graph.h"
#include "engine/dumped_values.h"
#include "engine/option_values.h"
#include "engine/warnings.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::engine {
namespace {

// The same for all dumps of the process.
const std::string& BeginningOfDumps() {
  static const std::string text = [] {
    const time_t now = time(nullptr);
    tm local{};
    localtime_r(&now, &local);
    char buffer[32];
    strftime(buffer, sizeof buffer, "%Y%m%d%H%M%S", &local);
    return std::string(buffer);
  }();
  return text;
}

uint64_t Microseconds() {
  timeval now{};
  gettimeofday(&now, nullptr);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_usec);
}

// As part of the name of a file.
std::string Plain(std::string name) {
  for (char& c : name) {
    if (c == '/' || c == '.' || c == '\\' || c == ' ') c = '_';
  }
  return name.substr(0, 150);
}

void WriteFiles(const std::string& folder, const std::vector<DumpedValue>& values, bool only_statistics) {
  Status status = MakeFolder(folder);
  std::string table = kStatisticsHead;
  for (const DumpedValue& value : values) {
    if (!status.ok()) break;
    if (only_statistics) {
      table += StatisticsOf(value);
      continue;
    }
    const std::string file = fmt::format("{}/{}.{}.{}.0.{}.{}.{}.npy", folder, Plain(value.type), Plain(value.node),
                                         value.task, Microseconds(), value.is_input ? "input" : "output", value.index);
    status = WriteTextFile(file, NpyOf(value));
  }
  if (status.ok() && only_statistics) status = WriteTextFile(folder + "/statistics.csv", table);
  if (!status.ok()) Warn(fmt::format("the dump {} is not whole: {}", folder, status.detail().what));
}

}  // namespace

std::unique_ptr<ValueDump> ValueDump::Of(const OptionSet& options, uint32_t graph_id, int device) {
  if (!options.Is("ge.exec.enableDump", "1")) return nullptr;
  auto dump = std::make_unique<ValueDump>();
  dump->path_ = options.Get("ge.exec.dumpPath");
  dump->steps_ = options.Get("ge.exec.dumpStep");
  for (const std::string_view layer : SplitText(options.Get("ge.exec.dumpLayer"), ' ')) {
    if (!layer.empty()) dump->layers_.emplace_back(layer);
  }
  dump->inputs_ = !options.Is("ge.exec.dumpMode", "output");
  dump->outputs_ = !options.Is("ge.exec.dumpMode", "input");
  dump->only_statistics_ = options.Is("ge.exec.dumpData", "stats");
  dump->graph_id_ = graph_id;
  dump->device_ = device;
  return dump;
}

bool ValueDump::Begin() {
  const auto step = static_cast<int64_t>(next_step_++);
  if (steps_.empty()) return true;
  return std::ranges::any_of(SplitText(steps_, '|'), [step](std::string_view part) {
    const size_t dash = part.find('-');
    const int64_t first = NumberOf(part.substr(0, dash)).value_or(0);
    const int64_t last = dash == std::string_view::npos ? first : NumberOf(part.substr(dash + 1)).value_or(first);
    return first <= step && step <= last;
  });
}

bool ValueDump::Wants(const compiler::Node& node) const {
  if (node.is_removed || node.kind == compiler::NodeKind::kData || node.kind == compiler::NodeKind::kConstant ||
      node.kind == compiler::NodeKind::kOrder) {
    return false;
  }
  return layers_.empty() || std::ranges::count(layers_, node.name) != 0 || std::ranges::count(layers_, node.type) != 0;
}

StatusOr<const ValueDump::Copy*> ValueDump::CopyOf(const std::shared_ptr<compiler::Executable>& original,
                                                   const compiler::CompileOptions& options) {
  if (const auto known = copies_.find(original); known != copies_.end()) return &known->second;
  compiler::Graph graph = original->graph();
  Copy copy;
  for (compiler::NodeId id = 0; id < graph.nodes.size(); ++id) {
    const compiler::Node& node = graph.at(id);
    if (!Wants(node)) continue;
    const auto add = [&](const compiler::Port& port, bool is_input, size_t index) {
      copy.values.push_back({.type = node.type, .node = node.name, .task = id, .is_input = is_input, .index = index});
      graph.results.push_back(port);
    };
    for (size_t i = 0; i < node.inputs.size() && inputs_; ++i) {
      if (node.inputs[i].source.is_set()) add(node.inputs[i].source, true, i);
    }
    for (uint32_t i = 0; i < node.outputs.size() && outputs_; ++i) add({id, i}, false, i);
  }
  compiler::CompileOptions plain = options;
  plain.passes.level = compiler::Level::kO1;  // what was fused stays as it is
  plain.passes.on_stage = nullptr;
  REPRISE_ASSIGN_OR_RETURN(copy.executable, compiler::Executable::Compile(std::move(graph), plain));
  return &(copies_[original] = std::move(copy));
}

Status ValueDump::Write(runtime::Stream& stream, const std::string& graph, std::vector<DumpedValue> values) const {
  const std::string folder =
      fmt::format("{}/{}/{}/{}/{}/{}", path_, BeginningOfDumps(), device_, Plain(graph), graph_id_, next_step_ - 1);
  return runtime::SubmitClosure(
      stream, "dump of a compiled graph",
      [folder, values = std::move(values), only_statistics = only_statistics_](device::RunContext&) -> Status {
        WriteFiles(folder, values, only_statistics);
        return {};
      });
}

}  // namespace reprise::engine
