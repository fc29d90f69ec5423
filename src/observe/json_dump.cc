// SPDX-License-Identifier: Apache-2.0
#include "observe/json_dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/fault.h"
#include "base/json_text.h"
#include "base/log.h"
#include "device/memory.h"
#include "runtime/device.h"

namespace reprise::observe {
namespace {

using ir::TaskInfo;
using ir::TaskKind;

// Shown lengths of tasks by type; the dump has no measured times.
struct Span {
  double dur;
  int step;
};

Span SpanOf(std::string_view type) {
  if (type == "NOP") return {0.5, 1};
  if (type.find("RECORD") != std::string_view::npos) return {4.5, 5};
  if (type.find("WAIT") != std::string_view::npos) return {14.5, 15};
  return {9.5, 10};
}

bool IsKernel(const ir::Node& node) {
  return node.type->kind == TaskKind::kKernel || node.type->kind == TaskKind::kAicpuKernel ||
         node.type->kind == TaskKind::kClosure;
}

std::string TaskName(const TaskInfo& info) {
  if (info.event_id >= 0) return fmt::format("{}_{}", info.name, info.event_id);
  if (info.address != 0) return fmt::format("{}_{}", info.name, info.address);
  return info.name;
}

// Origin last: the order of aclmdlRIGetStreams. The lanes of a model built by hand are its bound streams.
template <class Visit>
void ForEachLane(const model::Model& model, Visit visit) {
  for (size_t i = model.bound().size(); i-- > 0;) {
    const ir::Graph& stored = *model.bound()[i].stream->stored();
    visit(stored, stored.lanes()[0]);
  }
  const ir::Graph& graph = model.graph();
  for (size_t i = graph.lanes().size(); i-- > 0;) visit(graph, graph.lanes()[i]);
}

// Arguments that are no addresses keep the value they had when the task was captured: what surprises at a replay.
std::string FrozenValues(const std::vector<uint64_t>& args) {
  const auto& memory = device::MemoryRegistry::Get();
  std::string text;
  for (size_t i = 0; i < args.size(); ++i) {
    if (memory.Find(reinterpret_cast<const void*>(args[i])).has_value()) continue;
    fmt::format_to(std::back_inserter(text), "{}[{}]={:#x}", text.empty() ? "" : " ", i, args[i]);
  }
  return text;
}

// Where the program launched the task, innermost first.
void AppendStack(std::string& out, const TaskInfo& info) {
  if (info.stack.empty()) return;
  out += ",\"Call Stack\":[";
  for (size_t i = 0; i < info.stack.size(); ++i) {
    fmt::format_to(std::back_inserter(out), R"({}"{}")", i != 0 ? "," : "", JsonEscape(info.stack[i]));
  }
  out += ']';
}

void AppendTask(std::string& out, const model::Model& model, const ir::Graph& graph, const ir::Lane& lane,
                ir::NodeId id, int ts, bool verbose) {
  const ir::Node& node = graph.node(id);
  const TaskInfo info = ir::Describe(node);
  fmt::format_to(std::back_inserter(out),
                 R"({{"name":"{}","pid":"{} aclGraph","tid":"stream{}","ts":{},"dur":{},"ph":"X","args":{{)"
                 R"("Model Id":{},"Stream Id":{},"Task Id":{},"Task Type":"{}")",
                 JsonEscape(TaskName(info)), getpid(), lane.stream_id, ts, SpanOf(info.type_name).dur, model.id(),
                 lane.stream_id, node.position, info.type_name);
  if (const auto it = graph.extend_info().find(id); it != graph.extend_info().end()) {
    fmt::format_to(std::back_inserter(out), R"(,"ExtendInfo":"{}")", JsonEscape(it->second));
  }
  if (IsKernel(node)) {
    fmt::format_to(std::back_inserter(out), R"(,"Numblocks":{})", info.num_blocks);
    if (std::string_view(info.type_name).starts_with("KERNEL_MIX")) {
      fmt::format_to(std::back_inserter(out), R"(,"Task Ration":{})", info.mix_ration);
    }
    fmt::format_to(std::back_inserter(out), R"(,"Schem Mode":{})", info.schem_mode);
    if (verbose && !info.args.empty()) {
      out += ",\"Kernel Args\":\"";
      for (size_t i = 0; i < info.args.size(); ++i) {
        fmt::format_to(std::back_inserter(out), "{}{:#018x}", i != 0 ? " " : "", info.args[i]);
      }
      fmt::format_to(std::back_inserter(out), R"(","Kernel Args Size":{},"Frozen Values":"{}")", info.args_bytes,
                     FrozenValues(info.args));
    }
  }
  AppendStack(out, info);
}

// What the graph costs, with its first task: the file has one object for each task, which readers count on.
void AppendBill(std::string& out, const model::Model& model) {
  const model::Bill bill = model.TakeBill();
  fmt::format_to(std::back_inserter(out), R"(,"Bill":{{"Streams":{},"Events":{},"Tasks":{},"Bytes":{}}})", bill.streams,
                 bill.events, bill.tasks, bill.bytes);
}

}  // namespace

std::string JsonDump(const model::Model& model, bool verbose) {
  std::string out = "[\n";
  bool first = true;
  ForEachLane(model, [&](const ir::Graph& graph, const ir::Lane& lane) {
    int ts = 0;
    for (const ir::NodeId id : lane.nodes) {
      if (!first) out += ",\n";
      AppendTask(out, model, graph, lane, id, ts, verbose);
      if (first) AppendBill(out, model);
      out += "}}";
      first = false;
      ts += SpanOf(ir::Describe(graph.node(id)).type_name).step;
    }
  });
  if (!first) out += '\n';
  return out + "]";
}

Status WriteJsonDump(const model::Model& model, const std::string& path, bool verbose) {
  FILE* file = FaultPoint("json.file") ? nullptr : std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return Error(107000, fmt::format("\"{}\" cannot be opened for writing: {}", path, std::strerror(errno)))
        .Hint("pass a path in an existing folder that this process may write to");
  }
  const std::string text = JsonDump(model, verbose);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    return Error(107000, fmt::format("{} cannot be written completely: {}", path, std::strerror(errno)))
        .Hint("make room, or name another folder");
  }
  return {};
}

void LogTasks(const model::Model& model) {
  ForEachLane(model, [&](const ir::Graph& graph, const ir::Lane& lane) {
    for (const ir::NodeId id : lane.nodes) {
      const ir::Node& node = graph.node(id);
      const TaskInfo info = ir::Describe(node);
      REPRISE_LOG(kInfo, "RUNTIME", "{}: device {}, stream {}, task {}, type {}, name {}", model.Describe(),
                  model.context().device().id(), lane.stream_id, node.position, info.type_name, TaskName(info));
    }
  });
}

}  // namespace reprise::observe
