// SPDX-License-Identifier: Apache-2.0
#include "runtime/attached_operands.h"

#include <fmt/format.h>

#include "device/memory.h"
#include "runtime/report.h"

namespace reprise::runtime {
namespace {

Status CheckOperand(const RepriseOperand& operand, size_t index) {
  const std::string name = fmt::format("operands[{}]", index);
  if (operand.address == nullptr) {
    return Error(kInvalidValue, fmt::format("{} has no address", name))
        .Culprit("parameter operands")
        .Hint("pass the address of the first byte that the task touches, or leave the operand out");
  }
  if (operand.bytes == 0) {
    return Error(kInvalidValue, fmt::format("{} has 0 bytes, must have at least 1", name))
        .Culprit("parameter operands")
        .Hint("pass the number of bytes that the task touches, or leave the operand out");
  }
  if (operand.access < REPRISE_ACCESS_READ || operand.access > REPRISE_ACCESS_READ_WRITE) {
    return Error(kInvalidValue,
                 fmt::format("the access of {} is {}, must be {} to {}", name, operand.access,
                             static_cast<int>(REPRISE_ACCESS_READ), static_cast<int>(REPRISE_ACCESS_READ_WRITE)))
        .Culprit("parameter operands")
        .Hint("pass REPRISE_ACCESS_READ, REPRISE_ACCESS_WRITE or REPRISE_ACCESS_READ_WRITE");
  }
  if (!device::ChecksPointers()) return {};
  return device::MemoryRegistry::Get().CheckRange(operand.address, operand.bytes, name.c_str()).status();
}

}  // namespace

StatusOr<AttachedOperands> ReadOperands(const RepriseOperand* operands, size_t count) {
  if (count > REPRISE_MAX_OPERANDS) {
    return Error(kInvalidValue, fmt::format("count is {}, must be at most {}", count, REPRISE_MAX_OPERANDS))
        .Culprit("parameter count")
        .Hint("pass the number of entries in operands; ranges that follow each other may be one operand");
  }
  if (count != 0) REPRISE_RETURN_IF_ERROR(NotNullInner(operands, "operands"));
  auto read = std::make_unique<std::vector<ir::Operand>>();
  read->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    REPRISE_RETURN_IF_ERROR(CheckOperand(operands[i], i));
    read->push_back({operands[i].address, operands[i].bytes, static_cast<ir::Access>(operands[i].access)});
  }
  return AttachedOperands(std::move(read));
}

void TellAttached(const std::vector<ir::Operand>* attached, ir::OperandSink& sink) {
  if (attached == nullptr) {
    sink.TakeOpaque();
    return;
  }
  for (const ir::Operand& operand : *attached) sink.Take(operand);
}

}  // namespace reprise::runtime
