// SPDX-License-Identifier: Apache-2.0
//
// Operators as what streams and graphs take: the type of their task, their numbers, what others are told of them.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "collective/operation.h"
#include "device/inquiry.h"
#include "device/spinning.h"
#include "ir/task_info.h"
#include "runtime/submission.h"

namespace reprise::collective {
namespace {

using device::RunContext;
using ir::RunResult;

// Where ranks have more threads than cores, callers and workers do not spin for so long after an operator: only the
// wait for others does, which gives its core away.
constexpr auto kHold = std::chrono::milliseconds(1);

// Begins as ir::NumberedPayload.
struct Payload {
  ir::Numbered* numbered;
  Operation* operation;
};

RunResult Run(RunContext& context, void* payload) {
  return RunOperation(context, *static_cast<Payload*>(payload)->operation);
}

void Cancel(void* payload, device::Runnable* runnable) noexcept {
  CancelRun(*static_cast<Payload*>(payload)->operation, runnable, true);
}

void Destroy(void* payload) noexcept {
  Operation* const operation = static_cast<Payload*>(payload)->operation;
  bool is_unused = operation->number.binding < 0 && operation->number.value != ir::Number::kNone;
  for (const Transfer& transfer : operation->call.transfers)
    is_unused |= transfer.number.binding < 0 && transfer.number.value != ir::Number::kNone;
  if (is_unused) operation->communicator->operators().Skipped("its stream was aborted or destroyed");
  delete operation;
}

// The number of a task that is queued.
class Taker final : public ir::SeriesSink {
 public:
  void Take(ir::Series& series, ir::Number& number) override { number.value = series.Take(1); }
};
void TakeNumbers(void* payload) {
  Taker taker;
  static_cast<Payload*>(payload)->operation->TellSeries(taker);
}

// The group, and how much this rank sends and receives.
std::string DescribeForTimeline(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  const Call& call = operation.call;
  uint64_t sent = call.SendBytes(communicator.rank(), communicator.ranks());
  uint64_t received = call.ReceiveBytes(communicator.rank(), communicator.ranks());
  for (const Transfer& transfer : call.transfers) (transfer.is_send ? sent : received) += transfer.bytes();
  return fmt::format("group {}, rank {} of {}, sends {} bytes, receives {} bytes", communicator.name(),
                     communicator.rank(), communicator.ranks(), sent, received);
}

void Describe(const void* payload, ir::TaskInfo& info) {
  const Operation& operation = *static_cast<const Payload*>(payload)->operation;
  const Communicator& communicator = *operation.communicator;
  const Call& call = operation.call;
  info.name = TaskNameOf(call.op);
  info.type_name = TaskNameOf(call.op);
  if (info.wants_shapes) info.shapes = DescribeForTimeline(operation);
  if (operation.stage != Operation::kBegin && device::Inquiry::IsOpen()) {
    info.waits_for = fmt::format("{}, seq {}: {}", communicator.Describe(), SpokenNumber(operation.running),
                                 WhoIsMissing(operation));
  }
}

void TellOperands(const void* payload, ir::OperandSink& sink) {
  const Operation& operation = *static_cast<const Payload*>(payload)->operation;
  const Call& call = operation.call;
  const uint32_t rank = operation.communicator->rank();
  const uint32_t ranks = operation.communicator->ranks();
  for (const Transfer& transfer : call.transfers) {
    if (transfer.count != 0)
      sink.Take({transfer.buffer, transfer.bytes(), transfer.is_send ? ir::Access::kRead : ir::Access::kWrite});
  }
  if (const uint64_t bytes = call.SendBytes(rank, ranks); call.send != nullptr && bytes != 0)
    sink.Take({call.send, bytes, ir::Access::kRead});
  if (const uint64_t bytes = call.ReceiveBytes(rank, ranks); call.receive != nullptr && bytes != 0)
    sink.Take({call.receive, bytes, ir::Access::kWrite});
}

constexpr ir::TaskType kCollective = {.kind = ir::TaskKind::kCollective,
                                      .name = "HCCL",
                                      .run = Run,
                                      .destroy = Destroy,
                                      .cancel = Cancel,
                                      .describe = Describe,
                                      .operands = TellOperands};

}  // namespace

void HoldSpinningIfCrowded(const Board& board) {
  if (board.IsCrowded()) device::HoldSpinning(Clock::now() + kHold);
}

Operation::~Operation() {
  FreeStaged(&staged[0]);
  FreeStaged(&staged[1]);
  if (communicator != nullptr) communicator->Release();
}

void Operation::TellSeries(ir::SeriesSink& sink) {
  if (call.transfers.empty()) return sink.Take(communicator->operators(), number);
  for (Transfer& transfer : call.transfers) {
    sink.Take(transfer.is_send ? communicator->sends(transfer.peer) : communicator->receives(transfer.peer),
              transfer.number);
  }
}

uint64_t Operation::Fingerprint() const {
  uint64_t hash = FingerprintOf(descriptor);
  for (const Transfer& transfer : call.transfers) {
    hash = hash * 31 + transfer.count * 8 + transfer.type * 2 + (transfer.is_send ? 1 : 0);
  }
  return hash;
}

Status Submit(runtime::Stream& stream, Communicator& communicator, Call call) {
  auto operation = std::make_unique<Operation>();
  operation->communicator = &communicator;
  communicator.Retain();
  operation->call = std::move(call);
  Descriptor& descriptor = operation->descriptor;
  descriptor.op = static_cast<uint8_t>(operation->call.op);
  descriptor.type = operation->call.type;
  descriptor.reduction = operation->call.reduction;
  descriptor.count = operation->call.count;
  descriptor.root = operation->call.root;
  descriptor.rank = communicator.rank();
  descriptor.vectors_hash = HashOf(operation->call);
  Operation* const released = operation.release();
  Payload payload{released, released};
  HoldSpinningIfCrowded(communicator.board());
  return runtime::Submit(stream, ir::MakeTask(kCollective, payload), TakeNumbers);
}

}  // namespace reprise::collective
