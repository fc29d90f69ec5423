// SPDX-License-Identifier: Apache-2.0
#include "distributed/recorder.h"

#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/python_stack.h"

namespace torch_npu {
namespace {

using TraceDict = c10::Dict<c10::IValue, c10::IValue>;
using TraceList = c10::List<c10::IValue>;

TraceDict NewTraceDict() { return TraceDict(c10::AnyType::get(), c10::AnyType::get()); }
TraceList NewTraceList() { return TraceList(c10::AnyType::get()); }

void TellTensors(const std::vector<at::Tensor>& tensors, std::vector<std::vector<int64_t>>& sizes,
                 std::vector<std::string>& types) {
  for (const at::Tensor& tensor : tensors) {
    sizes.push_back(tensor.sizes().vec());
    types.emplace_back(c10::toString(tensor.scalar_type()));
  }
}

TraceList ListOf(const std::vector<std::string>& texts) {
  TraceList list = NewTraceList();
  for (const std::string& text : texts) list.push_back(text);
  return list;
}

TraceList ListOf(const std::vector<std::vector<int64_t>>& sizes) {
  TraceList list = NewTraceList();
  for (const std::vector<int64_t>& of_one : sizes) {
    TraceList numbers = NewTraceList();
    for (const int64_t number : of_one) numbers.push_back(number);
    list.push_back(numbers);
  }
  return list;
}

TraceList ListOf(const std::vector<reprise::Frame>& frames) {
  TraceList list = NewTraceList();
  for (const reprise::Frame& frame : frames) {
    TraceDict row = NewTraceDict();
    row.insert("name", frame.name);
    row.insert("filename", frame.filename);
    row.insert("line", frame.line);
    list.push_back(row);
  }
  return list;
}

// A captured operator is over for the recorder: replays of a graph are not noted.
bool IsActive(const Operation& operation) { return !operation.is_captured() && !operation.IsDone(); }

const char* StateOf(const Operation& operation) {
  if (operation.is_captured() || !operation.is_submitted()) return "scheduled";
  return operation.IsDone() ? "completed" : "started";
}

c10::IValue TimeOrNone(int64_t ns) { return ns == 0 ? c10::IValue() : c10::IValue(ns); }

// As programs that read dumps know it.
std::string ReadersName(const RecordedOperation& entry) {
  using c10d::OpType;
  switch (entry.operation->info().type) {
    case OpType::ALLREDUCE: return "all_reduce";
    case OpType::ALLREDUCE_COALESCED: return "allreduce_coalesced";
    case OpType::BROADCAST: return "broadcast";
    case OpType::REDUCE: return "reduce";
    case OpType::ALLGATHER: return "all_gather";
    case OpType::_ALLGATHER_BASE: return "_all_gather_base";
    case OpType::REDUCE_SCATTER: return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE: return "_reduce_scatter_base";
    case OpType::REDUCE_SCATTER_TENSOR_COALESCED: return "reduce_scatter_tensor_coalesced";
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE: return "all_to_all";
    case OpType::SCATTER: return "scatter";
    case OpType::GATHER: return "gather";
    case OpType::BARRIER: return "barrier";
    case OpType::SEND: return c10::str("send ", entry.rank, "->", entry.peer);
    case OpType::RECV: return c10::str("recv ", entry.rank, "<-", entry.peer);
    default: return "all_gather_into_tensor_coalesced";
  }
}

TraceDict RowOf(const RecordedOperation& entry, bool with_frames) {
  const Operation& operation = *entry.operation;
  const OperationInfo& info = operation.info();
  const std::string state = StateOf(operation);
  const auto number = static_cast<int64_t>(info.number);
  TraceDict row = NewTraceDict();
  row.insert("record_id", static_cast<int64_t>(entry.record_id));
  row.insert("pg_id", static_cast<int64_t>(entry.group_id));
  row.insert("process_group", std::make_tuple(entry.group_name, entry.group_description));
  row.insert("collective_seq_id", info.is_transfer ? 0 : number);
  row.insert("p2p_seq_id", info.is_transfer ? number : 0);
  row.insert("op_id", static_cast<int64_t>(entry.operator_id));
  row.insert("profiling_name", "hccl:" + ReadersName(entry));
  row.insert("time_created_ns", entry.created_ns);
  row.insert("input_sizes", ListOf(entry.input_sizes));
  row.insert("input_dtypes", ListOf(entry.input_types));
  row.insert("output_sizes", ListOf(entry.output_sizes));
  row.insert("output_dtypes", ListOf(entry.output_types));
  row.insert("state", state);
  const int64_t done_ns = operation.done_ns();
  const int64_t submitted_ns = operation.submitted_ns();
  row.insert("duration_ms",
             done_ns == 0 ? c10::IValue() : c10::IValue(static_cast<double>(done_ns - submitted_ns) / 1e6));
  row.insert("time_discovered_started_ns", TimeOrNone(submitted_ns));
  row.insert("time_discovered_completed_ns", TimeOrNone(done_ns));
  row.insert("retired", !IsActive(operation));
  row.insert("timeout_ms", static_cast<int64_t>(info.timeout.count()));
  row.insert("is_p2p", info.is_transfer);
  if (with_frames) row.insert("frames", ListOf(entry.frames));
  return row;
}

std::string RanksText(const std::vector<int64_t>& ranks) {
  std::string text = "[";
  for (const int64_t rank : ranks) text += (text.size() == 1 ? "" : ", ") + std::to_string(rank);
  return text + "]";
}

// The newest collective of a group that was called, handed to the device, done.
struct GroupProgress {
  int64_t enqueued = -1, started = -1, completed = -1;

  void Add(const Operation& operation) {
    if (operation.info().is_transfer) return;
    const auto number = static_cast<int64_t>(operation.info().number);
    enqueued = std::max(enqueued, number);
    if (operation.is_captured() || !operation.is_submitted()) return;
    started = std::max(started, number);
    if (operation.IsDone()) completed = std::max(completed, number);
  }
};

}  // namespace

Recorder::Recorder()
    : capacity_(static_cast<size_t>(std::max(0, c10d::getCvarInt({"TORCH_HCCL_TRACE_BUFFER_SIZE"}, 0)))) {}

Recorder& Recorder::Get() {
  static auto* const recorder = new Recorder;  // never destroyed: watchdogs may dump at the very end
  return *recorder;
}

void Recorder::Add(RecordedOperation entry, const std::vector<at::Tensor>& inputs,
                   const std::vector<at::Tensor>& outputs) {
  if (capacity_ == 0) return;
  TellTensors(inputs, entry.input_sizes, entry.input_types);
  TellTensors(outputs, entry.output_sizes, entry.output_types);
  entry.frames = PythonStack();
  entry.created_ns = NowNs();
  const std::lock_guard lock(mutex_);
  entry.record_id = next_id_++;
  if (entries_.size() == capacity_) entries_.pop_front();
  entries_.push_back(std::move(entry));
}

std::vector<RecordedOperation> Recorder::Entries() const {
  const std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

c10::IValue Recorder::Trace(const TraceWishes& wishes) const {
  TraceDict groups = NewTraceDict();
  TraceList rows = NewTraceList();
  std::map<uint64_t, GroupProgress> progress;
  for (const RecordedOperation& entry : Entries()) {
    TraceDict group = NewTraceDict();
    group.insert("name", entry.group_name);
    group.insert("desc", entry.group_description);
    group.insert("ranks", RanksText(entry.ranks));
    groups.insert_or_assign(std::to_string(entry.group_id), group);
    progress[entry.group_id].Add(*entry.operation);
    if (!wishes.only_active || IsActive(*entry.operation)) rows.push_back(RowOf(entry, wishes.frames));
  }
  TraceDict status = NewTraceDict();
  for (const auto& [group, of_group] : progress) {
    TraceDict row = NewTraceDict();
    row.insert("last_enqueued_collective", of_group.enqueued);
    row.insert("last_started_collective", of_group.started);
    row.insert("last_completed_collective", of_group.completed);
    status.insert(std::to_string(group), row);
  }
  TraceDict trace = NewTraceDict();
  trace.insert("version", "2.4");
  trace.insert("pg_config", groups);
  trace.insert("pg_status", status);
  trace.insert("hccl_comm_state", NewTraceDict());
  if (wishes.operators) trace.insert("entries", rows);
  return trace;
}

std::string Recorder::Pickled(const TraceWishes& wishes) const {
  std::string bytes;
  const auto write = [&](const char* data, size_t size) { bytes.append(data, size); };
  torch::jit::Pickler pickler(write, nullptr, nullptr, nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(Trace(wishes));
  pickler.stop();
  return bytes;
}

}  // namespace torch_npu
