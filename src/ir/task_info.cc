// SPDX-License-Identifier: Apache-2.0
#include "ir/task_info.h"

#include <fmt/format.h>

#include "ir/graph.h"

namespace reprise::ir {

void Describe(const TaskType& type, const void* payload, TaskInfo& info) {
  info.type_name = type.name;
  if (type.describe != nullptr) type.describe(payload, info);
  if (info.names_only) return;
  class Ranges final : public OperandSink {
   public:
    explicit Ranges(std::vector<AccessRange>& ranges) : ranges_(ranges) {}
    void Take(const Operand& operand) override {
      if (operand.is_read()) ranges_.push_back({operand.begin, operand.bytes, false});
      if (operand.is_written()) ranges_.push_back({operand.begin, operand.bytes, true});
    }

   private:
    std::vector<AccessRange>& ranges_;
  };
  Ranges ranges(info.ranges);
  VisitOperands(type, payload, ranges);
}

TaskInfo Describe(const Node& node) {
  TaskInfo info;
  Describe(*node.type, node.payload, info);
  if (info.name.empty()) info.name = info.type_name;
  return info;
}

std::string SpokenName(const TaskType& type) {
  return type.kind == TaskKind::kFill ? fmt::format("memset ({})", type.name) : type.name;
}

std::string SpokenName(const Node& node) {
  std::string name = Describe(node).name;
  return name == node.type->name ? SpokenName(*node.type) : name;
}

std::string DescribeWaiting(const TaskType& type, const void* payload) {
  TaskInfo info;
  info.type_name = type.name;
  if (type.describe != nullptr) type.describe(payload, info);
  std::string text = type.kind == TaskKind::kFill ? SpokenName(type) : info.type_name;
  if (info.event_id >= 0) text += fmt::format(" of event {}", info.event_id);
  if (info.notify_id >= 0) text += fmt::format(" of notify {}", info.notify_id);
  if (type.kind == TaskKind::kValueWait) {
    static constexpr const char* kCompare[] = {">=", "==", "any bit of", "no bit of"};
    text +=
        fmt::format(" at {:#x} for {} {}", info.address, info.compare < 4 ? kCompare[info.compare] : "?", info.value);
  }
  if (!info.name.empty()) text += fmt::format(" ({})", info.name);
  if (!info.waits_for.empty()) text += fmt::format(", waits for {}", info.waits_for);
  return text;
}

}  // namespace reprise::ir
