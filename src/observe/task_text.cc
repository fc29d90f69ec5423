// SPDX-License-Identifier: Apache-2.0
#include "observe/task_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <string_view>
#include <utility>

#include "device/memory.h"
#include "ir/task_info.h"
#include "kernels/dtype.h"
#include "observe/lanes.h"

namespace reprise::observe {
namespace {

using ir::TaskInfo;
using ir::TaskKind;

constexpr size_t kMostListed = 16;  // tensors, copies and frames in the lines for who asks for everything

// "host", "device"; with its number where several devices are in it.
std::string Side(const void* address, bool with_device) {
  if (address == nullptr) return "captured bytes";
  const auto range = device::MemoryRegistry::Get().Find(address);
  if (!range.has_value()) return "?";
  if (range->kind != device::MemoryKind::kDevice) return "host";
  return with_device ? fmt::format("device {}", range->device) : "device";
}

std::string Direction(const void* from, const void* to) {
  const auto& memory = device::MemoryRegistry::Get();
  const auto a = memory.Find(from), b = memory.Find(to);
  const bool differ = a.has_value() && b.has_value() && !a->is_host() && !b->is_host() && a->device != b->device;
  return fmt::format("{} to {}", Side(from, differ), Side(to, differ));
}

std::string Hex(const void* address) { return fmt::format("{:#x}", reinterpret_cast<uintptr_t>(address)); }

const char* Plural(uint64_t count) { return count == 1 ? "" : "s"; }

// "KERNEL_AIVEC" -> "vector kernel".
std::string_view KernelText(std::string_view type) {
  if (type == "KERNEL_AICORE") return "cube kernel";
  if (type == "KERNEL_AIVEC") return "vector kernel";
  if (type == "KERNEL_AICPU") return "CPU kernel";
  if (type.starts_with("KERNEL_MIX")) return "mixed kernel";
  return type;
}

const char* AccessVerb(const ir::Operand& operand) {
  return !operand.is_written() ? "reads" : operand.is_read() ? "updates" : "writes";
}

void AddCopies(const ir::Node& node, const TaskInfo& info, TaskText& text) {
  const std::vector<CopyText> copies = CopiesOf(node, info);
  if (copies.empty()) {
    if (!info.ranges.empty()) text.title = "copy, addresses read from memory";
    for (const ir::AccessRange& range : info.ranges) {
      text.more.push_back(fmt::format("reads {} bytes at {}", range.bytes, Hex(range.begin)));
    }
    return;
  }
  uint64_t bytes = 0;
  bool same = true;
  for (const CopyText& copy : copies) {
    bytes += copy.bytes;
    same = same && copy.direction == copies[0].direction;
  }
  const CopyText& first = copies[0];
  const char* what = node.type->kind == TaskKind::kReduce ? "reduce" : "copy";
  text.title = fmt::format("{} {}", what, same ? first.direction : "in several directions");
  std::string size = ByteText(bytes);
  if (copies.size() > 1) size += fmt::format(" in {} copies", copies.size());
  if (info.rows > 1) size += fmt::format(", {} rows of {}", info.rows, ByteText(info.row_bytes));
  text.details = {std::move(size)};
  if (copies.size() == 1) {
    text.details.push_back(first.from == nullptr ? fmt::format("to {}", Hex(first.to))
                                                 : fmt::format("{} -> {}", Hex(first.from), Hex(first.to)));
  }
  for (size_t i = 0; i < copies.size() && i < kMostListed; ++i) {
    text.more.push_back(fmt::format("{}: {} bytes, {} -> {}", copies[i].direction, copies[i].bytes,
                                    copies[i].from == nullptr ? "captured bytes" : Hex(copies[i].from),
                                    Hex(copies[i].to)));
  }
  if (copies.size() > kMostListed) text.more.push_back(fmt::format("… {} more", copies.size() - kMostListed));
}

void AddTensors(const TaskInfo& info, TaskText& text) {
  // The shapes of the call; else those that the kernel walks, which may have fewer dimensions.
  if (!info.shapes.empty()) text.details.push_back(info.shapes);
  const auto& tensors = info.call != nullptr ? info.call->tensors : info.tensors;
  if (tensors.empty()) return;
  std::string in, out;
  if (info.call == nullptr && !info.shapes.empty()) text.more.emplace_back("as the kernel walks them:");
  for (const ir::TensorInfo& tensor : tensors) {
    std::string& side = tensor.is_write ? out : in;
    if (!side.empty()) side += ", ";
    side += TensorText(tensor);
  }
  if (info.shapes.empty())
    text.details.push_back(in.empty() ? fmt::format("-> {}", out) : fmt::format("{} -> {}", in, out));
  for (size_t i = 0; i < tensors.size() && i < kMostListed; ++i) {
    const char* access = !tensors[i].is_write ? "reads" : tensors[i].is_read ? "updates" : "writes";
    text.more.push_back(fmt::format("{} {}{}{} at {}", access, tensors[i].name, tensors[i].name.empty() ? "" : " ",
                                    TensorText(tensors[i]), Hex(tensors[i].data)));
  }
  if (tensors.size() > kMostListed) text.more.push_back(fmt::format("… {} more", tensors.size() - kMostListed));
}

// What the caller of the launch told of foreign code.
void AddAttached(const TaskInfo& info, TaskText& text) {
  for (size_t i = 0; i < info.attached.size() && i < kMostListed; ++i) {
    const ir::Operand& operand = info.attached[i];
    text.more.push_back(fmt::format("{} {} byte{} at {}", AccessVerb(operand), operand.bytes, Plural(operand.bytes),
                                    Hex(operand.begin)));
  }
  if (info.attached.size() > kMostListed)
    text.more.push_back(fmt::format("… {} more", info.attached.size() - kMostListed));
}

}  // namespace

std::string ByteText(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (size >= 1023.95 && unit + 1 < std::size(kUnits)) size /= 1024, ++unit;
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::vector<CopyText> CopiesOf(const ir::Node& node, const TaskInfo& info) {
  std::vector<CopyText> copies;
  if (node.type->kind != TaskKind::kCopy && node.type->kind != TaskKind::kReduce) return copies;
  const ir::AccessRange* read = nullptr;
  for (const ir::AccessRange& range : info.ranges) {
    if (!range.is_write) {
      if (read == nullptr) read = &range;  // a reduction reads what it writes, too
      continue;
    }
    const void* from = read != nullptr ? read->begin : nullptr;
    const uint64_t bytes = info.row_bytes != 0 ? info.rows * info.row_bytes : range.bytes;
    copies.push_back({Direction(from, range.begin), bytes, from, range.begin});
    read = nullptr;
  }
  return copies;
}

std::string TensorText(const ir::TensorInfo& tensor) {
  const auto type = static_cast<kernels::DType>(tensor.dtype);
  return fmt::format("{}[{}]",
                     kernels::IsKnown(type) ? std::string(kernels::Name(type)) : fmt::format("type {} ", tensor.dtype),
                     fmt::join(tensor.sizes, ","));
}

std::string FillText(const TaskInfo& info) {
  const uint32_t bytes = info.fill_bytes < 8 ? info.fill_bytes : 8;
  const uint64_t mask = bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
  return fmt::format("0x{:0{}x}", info.fill_value & mask, 2 * bytes);
}

TaskText TextOf(const ir::Node& node, const TaskInfo& info) {
  TaskText text;
  text.title = info.name;
  if (info.num_blocks != 0) {
    text.details.push_back(
        fmt::format("{}, {} block{}", KernelText(info.type_name), info.num_blocks, Plural(info.num_blocks)));
  }
  switch (node.type->kind) {
    case TaskKind::kCopy:
    case TaskKind::kReduce: AddCopies(node, info, text); break;
    case TaskKind::kFill:
      if (info.ranges.empty() || info.fill_bytes == 0) break;
      text.title = fmt::format("fill {} memory", Side(info.ranges[0].begin, false));
      text.details = {fmt::format("{} with {}", ByteText(info.ranges[0].bytes), FillText(info)),
                      fmt::format("at {}", Hex(info.ranges[0].begin))};
      text.more.push_back(fmt::format("{} bytes at {}, each {} set to {}", info.ranges[0].bytes,
                                      Hex(info.ranges[0].begin), info.fill_bytes == 1 ? "byte" : "32-bit word",
                                      FillText(info)));
      break;
    case TaskKind::kEventRecord: text.title = fmt::format("record event {}", info.event_id); break;
    case TaskKind::kEventWait: text.title = fmt::format("wait for event {}", info.event_id); break;
    case TaskKind::kEventReset: text.title = fmt::format("reset event {}", info.event_id); break;
    case TaskKind::kNotifyRecord: text.title = fmt::format("record notify {}", info.notify_id); break;
    case TaskKind::kNotifyWait: text.title = fmt::format("wait for notify {}", info.notify_id); break;
    case TaskKind::kValueWrite: text.title = fmt::format("write {} to {:#x}", info.value, info.address); break;
    case TaskKind::kValueWait: {
      static constexpr const char* kCompare[] = {">=", "==", "any bit of", "no bit of"};
      text.title = fmt::format("wait until {:#x} {} {}", info.address, info.compare < 4 ? kCompare[info.compare] : "?",
                               info.value);
      break;
    }
    case TaskKind::kStreamActive:
      if (info.active_stream_id >= 0) text.title = fmt::format("start stream {}", info.active_stream_id);
      break;
    case TaskKind::kCondition:
      text.title = info.condition;
      text.details = {fmt::format("value at {}", Hex(info.cell))};
      for (const ShownBody& body : BodiesOf(info)) {
        const size_t tasks = CountTasks(*body.model);
        text.more.push_back(fmt::format("{}: {}, {} task{}", body.when, body.model->Describe(), tasks, Plural(tasks)));
      }
      break;
    default: AddTensors(info, text);
  }
  if (node.type->kind == TaskKind::kHostFunc || node.type->kind == TaskKind::kCallback) {
    text.details.emplace_back("host function");
    if (text.title == info.type_name) text.title = "host function";
    if (text.title == "host function") text.details.clear();
  }
  AddAttached(info, text);
  if (node.disabled != 0) text.details.emplace_back("disabled: does not run");
  for (size_t i = 0; i < info.stack.size() && i < kMostListed; ++i) {
    text.more.push_back((i == 0 ? "at " : "   ") + info.stack[i]);
  }
  return text;
}

TaskInfo DescribeFully(const ir::Node& node) {
  TaskInfo info;
  info.wants_tensors = true;
  ir::Describe(*node.type, node.payload, info);
  if (info.name.empty()) info.name = info.type_name;
  return info;
}

bool OnlyOrders(const ir::Node& node) {
  switch (node.type->kind) {
    case TaskKind::kEventRecord:
    case TaskKind::kEventWait:
    case TaskKind::kEventReset:
    case TaskKind::kExternalRecord:
    case TaskKind::kExternalWait:
    case TaskKind::kNotifyRecord:
    case TaskKind::kNotifyWait:
    case TaskKind::kValueWrite:
    case TaskKind::kValueWait:
    case TaskKind::kNop:
    case TaskKind::kStreamActive:
    case TaskKind::kStreamSwitch:
    case TaskKind::kLabelSwitch:
    case TaskKind::kLabelSet:
    case TaskKind::kEndGraph:
    case TaskKind::kMark: return true;
    default: return false;
  }
}

}  // namespace reprise::observe
