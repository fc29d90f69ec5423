// SPDX-License-Identifier: Apache-2.0
#include "runtime/indirect_copy.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "device/memory.h"
#include "ir/task.h"
#include "runtime/submission.h"
#include "runtime/tasks.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

// Tells a filled descriptor from memory that holds anything else.
constexpr uint64_t kFilled = 0x7265702d636f7079;

struct CopyDescriptor {
  uint64_t src;
  uint64_t dst;
  uint64_t bytes;
  uint64_t magic;
};
static_assert(sizeof(CopyDescriptor) == kCopyDescriptorBytes);

Status CheckSide(const void* begin, uint64_t bytes, const char* side) {
  if (!device::ChecksPointers()) return {};
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  auto range = memory.CheckRange(begin, bytes, side);
  if (range.ok() && range->kind != device::MemoryKind::kPageable) return {};
  return Error(kDeviceMemoryError,
               fmt::format("the {} of an indirect copy, {} of {} bytes, is no memory that the device reaches", side,
                           fmt::ptr(begin), bytes))
      .Culprit(range.ok() ? fmt::format("{} {}", fmt::ptr(begin), memory.Explain(begin))
                          : std::move(range).status().detail().what)
      .Hint("look at who wrote the address into device memory, and whether that was ordered before the copy");
}

RunResult CopyBetween(RunContext& context, void* dst, const void* src, uint64_t bytes) {
  Status status = CheckSide(dst, bytes, "destination");
  if (status.ok()) status = CheckSide(src, bytes, "source");
  if (!status.ok()) {
    context.Fail(std::move(status));
  } else if (dst != src) {
    CopyBytes(context, dst, src, bytes);
  }
  return RunResult::kDone;
}

struct DescriptorPayload {
  const void* descriptor;
};

RunResult RunDescriptor(RunContext& context, void* payload) {
  const void* at = static_cast<DescriptorPayload*>(payload)->descriptor;
  CopyDescriptor descriptor;
  std::memcpy(&descriptor, at, sizeof descriptor);
  if (descriptor.magic != kFilled) {
    context.Fail(Error(kDeviceMemoryError,
                       fmt::format("the {} bytes at {} are no copy descriptor", sizeof descriptor, fmt::ptr(at)))
                     .Culprit(fmt::format("parameter desc, which {}", device::MemoryRegistry::Get().Explain(at)))
                     .Hint("fill it with aclrtSetMemcpyDesc before the task runs, and let nothing else write there"));
    return RunResult::kDone;
  }
  return CopyBetween(context, reinterpret_cast<void*>(descriptor.dst), reinterpret_cast<const void*>(descriptor.src),
                     descriptor.bytes);
}

constexpr ir::TaskType kDescriptorCopy = {
    .kind = ir::TaskKind::kCopy,
    .name = "MEMCPY_ASYNC",
    .run = RunDescriptor,
    .never_waits = true,
    .operands = [](const void* payload, ir::OperandSink& sink) {
      const void* const descriptor = static_cast<const DescriptorPayload*>(payload)->descriptor;
      sink.Take({descriptor, kCopyDescriptorBytes, ir::Access::kRead});
      sink.TakeOpaque();  // what is copied stands in the descriptor when the task runs
    }};

struct CellsPayload {
  IndirectAddress dst;
  IndirectAddress src;
  uint64_t bytes;
};

Status Resolve(const IndirectAddress& from, const char* side, void** address) {
  uintptr_t base;
  std::memcpy(&base, from.cell, sizeof base);
  *address = reinterpret_cast<void*>(base + from.offset);
  if (base + from.offset >= base) return {};
  return Error(kDeviceMemoryError,
               fmt::format("the {} of an indirect copy, {:#x} plus {} bytes, wraps around", side, base, from.offset))
      .Culprit(fmt::format("the cell {} that holds {:#x}", fmt::ptr(from.cell), base))
      .Hint("write a base address into the cell before the task runs");
}

RunResult RunCells(RunContext& context, void* payload) {
  const auto* p = static_cast<const CellsPayload*>(payload);
  void* dst = nullptr;
  void* src = nullptr;
  Status status = Resolve(p->dst, "destination", &dst);
  if (status.ok()) status = Resolve(p->src, "source", &src);
  if (status.ok()) return CopyBetween(context, dst, src, p->bytes);
  context.Fail(std::move(status));
  return RunResult::kDone;
}

constexpr ir::TaskType kCellsCopy = {.kind = ir::TaskKind::kCopy,
                                     .name = "MEMCPY_ASYNC",
                                     .run = RunCells,
                                     .never_waits = true,
                                     .operands = [](const void* payload, ir::OperandSink& sink) {
                                       const auto* p = static_cast<const CellsPayload*>(payload);
                                       sink.Take({p->dst.cell, sizeof(void*), ir::Access::kRead});
                                       sink.Take({p->src.cell, sizeof(void*), ir::Access::kRead});
                                       sink.TakeOpaque();  // what is copied stands in the cells when the task runs
                                     }};

}  // namespace

void WriteCopyDescriptor(void* descriptor, void* dst, const void* src, uint64_t bytes) {
  const CopyDescriptor filled{reinterpret_cast<uintptr_t>(src), reinterpret_cast<uintptr_t>(dst), bytes, kFilled};
  std::memcpy(descriptor, &filled, sizeof filled);
}

Status SubmitCopyByDescriptor(Stream& stream, const void* descriptor) {
  DescriptorPayload payload{descriptor};
  return Submit(stream, ir::MakeTask(kDescriptorCopy, payload));
}

Status SubmitCopyByCells(Stream& stream, IndirectAddress dst, IndirectAddress src, uint64_t bytes) {
  CellsPayload payload{dst, src, bytes};
  return Submit(stream, ir::MakeTask(kCellsCopy, payload));
}

}  // namespace reprise::runtime
