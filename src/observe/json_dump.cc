// SPDX-License-Identifier: Apache-2.0
#include "observe/json_dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/fault.h"
#include "base/json_text.h"
#include "base/log.h"
#include "device/memory.h"
#include "ir/task_info.h"
#include "observe/lanes.h"
#include "observe/task_text.h"
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
  const std::vector<ShownLane> lanes = LanesOf(model);
  for (size_t i = lanes.size(); i-- > 0;) visit(model, *lanes[i].graph, lanes[i].lane());
}

// The model, then the bodies of its conditional tasks with theirs: no depth of nesting needs a deep stack.
std::vector<const model::Model*> WithBodies(const model::Model& model) {
  std::vector<const model::Model*> models{&model};
  for (size_t i = 0; i < models.size(); ++i) {
    const model::Model* owner = models[i];
    models.insert(models.end(), owner->bodies().begin(), owner->bodies().end());
  }
  return models;
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

void AppendCopy(std::string& out, const CopyText& copy) {
  fmt::format_to(std::back_inserter(out), R"({{"Direction":"{}","Bytes":{},"From":"{:#x}","To":"{:#x}"}})",
                 copy.direction, copy.bytes, reinterpret_cast<uintptr_t>(copy.from),
                 reinterpret_cast<uintptr_t>(copy.to));
}

const char* AccessText(bool is_read, bool is_write) {
  return !is_write ? "read" : is_read ? "read and write" : "write";
}

// What the task does, by its kind: members that other tools do not know, behind those that they do.
void AppendWork(std::string& out, const ir::Node& node, const TaskInfo& info) {
  const auto put = std::back_inserter(out);
  const std::vector<CopyText> copies = CopiesOf(node, info);
  if (copies.size() == 1) {
    out += node.type->kind == TaskKind::kReduce ? ",\"Reduce\":" : ",\"Copy\":";
    AppendCopy(out, copies[0]);
  } else if (!copies.empty()) {
    out += ",\"Copies\":";
    for (size_t i = 0; i < copies.size(); ++i) {
      out += i == 0 ? '[' : ',';
      AppendCopy(out, copies[i]);
    }
    out += ']';
  }
  if (info.rows > 1) fmt::format_to(put, R"(,"Rows":{},"Row Bytes":{})", info.rows, info.row_bytes);
  if (info.fill_bytes != 0 && !info.ranges.empty()) {
    fmt::format_to(put, R"(,"Fill":{{"To":"{:#x}","Bytes":{},"Value":"{}"}})",
                   reinterpret_cast<uintptr_t>(info.ranges[0].begin), info.ranges[0].bytes, FillText(info));
  }
  if (node.type->kind == TaskKind::kValueWrite) fmt::format_to(put, R"(,"Value":{})", info.value);
  if (node.type->kind == TaskKind::kValueWait) {
    fmt::format_to(put, R"(,"Waits":"{}")", JsonEscape(TextOf(node, info).title));
  }
  if (!info.shapes.empty()) fmt::format_to(put, R"(,"Shapes":"{}")", JsonEscape(info.shapes));
  if (const auto& tensors = info.call != nullptr ? info.call->tensors : info.tensors; !tensors.empty()) {
    out += ",\"Tensors\":";
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ir::TensorInfo& tensor = tensors[i];
      out += i == 0 ? '[' : ',';
      fmt::format_to(put, R"({{"Access":"{}","Tensor":"{}","Address":"{:#x}"}})",
                     AccessText(tensor.is_read, tensor.is_write), TensorText(tensor),
                     reinterpret_cast<uintptr_t>(tensor.data));
    }
    out += ']';
  }
  if (!info.attached.empty()) {
    out += ",\"Operands\":";
    for (size_t i = 0; i < info.attached.size(); ++i) {
      const ir::Operand& operand = info.attached[i];
      out += i == 0 ? '[' : ',';
      fmt::format_to(put, R"({{"Access":"{}","Address":"{:#x}","Bytes":{}}})",
                     AccessText(operand.is_read(), operand.is_written()), reinterpret_cast<uintptr_t>(operand.begin),
                     operand.bytes);
    }
    out += ']';
  }
  if (node.type->kind == TaskKind::kCondition) {
    fmt::format_to(put, R"(,"Condition":"{}","Cell":"{:#x}","Bodies":[)", info.condition,
                   reinterpret_cast<uintptr_t>(info.cell));
    const std::vector<ShownBody> bodies = BodiesOf(info);
    for (size_t i = 0; i < bodies.size(); ++i) {
      fmt::format_to(put, R"({}{{"Model Id":{},"Runs When":"{}"}})", i == 0 ? "" : ",", bodies[i].model->id(),
                     bodies[i].when);
    }
    out += ']';
  }
  if (node.disabled != 0) out += ",\"Disabled\":true";
}

// Returns how far the clock of the stream goes on.
int AppendTask(std::string& out, const model::Model& model, const ir::Graph& graph, const ir::Lane& lane, ir::NodeId id,
               int ts, bool verbose) {
  const ir::Node& node = graph.node(id);
  const TaskInfo info = DescribeFully(node);
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
  AppendWork(out, node, info);
  if (model.parent() != nullptr)
    fmt::format_to(std::back_inserter(out), R"(,"Parent Model Id":{})", model.parent()->id());
  AppendStack(out, info);
  return SpanOf(info.type_name).step;
}

// What the graph costs, with its first task: the file has one object for each task, which readers count on.
void AppendBill(std::string& out, const model::Model& model) {
  const model::Bill bill = model.TakeBill();
  fmt::format_to(std::back_inserter(out),
                 R"(,"Bill":{{"Streams":{},"Events":{},"Tasks":{},"Bytes":{}}},"Replays":{},)"
                 R"("Times":"ts and dur show the order in a stream, nothing was measured")",
                 bill.streams, bill.events, bill.tasks, bill.bytes, model.executions());
}

}  // namespace

std::string JsonDump(const model::Model& model, bool verbose) {
  std::string out = "[\n";
  bool first = true;
  for (const model::Model* shown : WithBodies(model)) {
    ForEachLane(*shown, [&](const model::Model& owner, const ir::Graph& graph, const ir::Lane& lane) {
      int ts = 0;
      for (const ir::NodeId id : lane.nodes) {
        if (!first) out += ",\n";
        ts += AppendTask(out, owner, graph, lane, id, ts, verbose);
        if (first) AppendBill(out, model);
        out += "}}";
        first = false;
      }
    });
  }
  if (!first) out += '\n';
  return out + "]";
}

Status WriteJsonDump(const model::Model& model, const std::string& path, bool verbose) {
  FILE* file = FaultPoint("json.file") ? nullptr : std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return Error(kInvalidValue, fmt::format("\"{}\" cannot be opened for writing: {}", path, std::strerror(errno)))
        .Hint("pass a path in an existing folder that this process may write to");
  }
  const std::string text = JsonDump(model, verbose);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    return Error(kInvalidValue, fmt::format("{} cannot be written completely: {}", path, std::strerror(errno)))
        .Hint("make room, or name another folder");
  }
  return {};
}

void LogTasks(const model::Model& model) {
  for (const model::Model* shown : WithBodies(model)) {
    ForEachLane(*shown, [&](const model::Model& owner, const ir::Graph& graph, const ir::Lane& lane) {
      for (const ir::NodeId id : lane.nodes) {
        const ir::Node& node = graph.node(id);
        const TaskInfo info = DescribeFully(node);
        const TaskText text = TextOf(node, info);
        const std::string name = TaskName(info);
        REPRISE_LOG(kInfo, "RUNTIME", "{}: device {}, stream {}, task {}, type {}, name {}{}{}{}{}", owner.Describe(),
                    owner.context().device().id(), lane.stream_id, node.position, info.type_name, name,
                    text.title == name ? "" : ", ", text.title == name ? "" : text.title,
                    text.details.empty() ? "" : ", ", fmt::join(text.details, ", "));
      }
    });
  }
}

}  // namespace reprise::observe
