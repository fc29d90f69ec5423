// SPDX-License-Identifier: Apache-2.0
//
// Tasks of the runtime itself: copies, fills, value operations, host closures. Each function builds the task and hands
// it to the stream's door; argument checks happened before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "ir/task.h"
#include "reprise/operation.h"
#include "runtime/attached_operands.h"
#include "runtime/stream.h"

namespace reprise::runtime {

struct CopyItem {
  void* dst;
  const void* src;
  uint64_t bytes;
};

Status SubmitCopy(Stream& stream, void* dst, const void* src, uint64_t bytes);
/// Rows of `width` bytes; pitches in bytes.
Status SubmitCopy2d(Stream& stream, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width,
                    uint64_t height);
Status SubmitCopyBatch(Stream& stream, std::span<const CopyItem> items);
/// Copies `src` now; the task writes that snapshot, at every replay the same bytes.
Status SubmitCopyOfSnapshot(Stream& stream, void* dst, const void* src, uint64_t bytes);
Status SubmitFill(Stream& stream, void* dst, uint8_t value, uint64_t bytes);
Status SubmitFill32(Stream& stream, void* dst, uint32_t value, uint64_t count);

/// The copy itself; large ones are split over idle workers.
void CopyBytes(device::RunContext& context, void* dst, const void* src, uint64_t bytes);
void Copy2d(void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width, uint64_t height);

/// Comparisons of a value wait; the numbers are those of ACL_STREAM_WAIT_VALUE_*.
enum class ValueCompare : uint32_t { kGreaterEqual = 0, kEqual = 1, kAnd = 2, kNor = 3 };
Status SubmitValueWrite(Stream& stream, void* address, uint64_t value);
Status SubmitValueWait(Stream& stream, void* address, uint64_t value, ValueCompare compare);
/// The tasks of SubmitValueWrite and SubmitValueWait, for callers that put them elsewhere than into a stream; `take`
/// owns the task.
Status WithValueWrite(void* address, uint64_t value, const std::function<Status(const ir::Task&)>& take);
Status WithValueWait(void* address, uint64_t value, ValueCompare compare,
                     const std::function<Status(const ir::Task&)>& take);

/// Host code in stream order, on a worker thread; once per replay when captured. `type_name` as in dumps.
Status SubmitHostFunc(Stream& stream, void (*function)(void*), void* argument);
/// As SubmitHostFunc, with what the caller says of the memory that the function touches.
Status SubmitHostFunc(Stream& stream, void (*function)(void*), void* argument, AttachedOperands operands);

/// An opaque closure that owns what it needs and runs like a kernel: the way in for layers that bring their own
/// computations (a framework's operators). Destroyed after its only run, or with the graph that captured it. An error
/// that it returns becomes the stream's asynchronous error.
using Closure = std::function<Status(device::RunContext&)>;
Status SubmitClosure(Stream& stream, const char* name, Closure closure, AttachedOperands operands = nullptr);
/// As SubmitClosure, past an open capture, and without ever waiting.
Status QueueClosureNow(Stream& stream, const char* name, Closure closure);

/// As SubmitClosure, for an object that any thread may run, so that it must not wait. As a host function it runs on a
/// worker, and dumps do not show it as a kernel.
Status SubmitOperation(Stream& stream, std::unique_ptr<Operation> operation, bool is_host_function,
                       AttachedOperands operands = nullptr);

/// The parts of a task type around an operation. An exception of the operation becomes the task's failure.
void RunOperation(device::RunContext& context, Operation& operation, uint64_t seed) noexcept;
/// See reprise::ParallelFor.
void ShareLoop(int64_t count, int64_t item_bytes, const std::function<void(int64_t, int64_t)>& body);
/// `num_blocks` as dumps show it; 0: not a kernel. `operands`: null where nobody has told them.
void DescribeOperation(const Operation& operation, uint32_t num_blocks, const std::vector<ir::Operand>* operands,
                       ir::TaskInfo& info);

}  // namespace reprise::runtime
