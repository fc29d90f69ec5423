// SPDX-License-Identifier: Apache-2.0
#include "compiler/program.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "compiler/tune.h"
#include "device/scheduler.h"
#include "ir/task_info.h"
#include "runtime/device.h"
#include "runtime/submission.h"

namespace reprise::compiler {
namespace {

constexpr uint64_t kNoTicket = UINT64_MAX;

struct RunTask {
  Program::Run* run;
  exec::Replay* replay;
  exec::Replay::Progress progress;

  static ir::RunResult Execute(device::RunContext& context, void* payload) {
    auto* task = static_cast<RunTask*>(payload);
    if (task->progress.ticket == kNoTicket && !task->IsWanted()) return ir::RunResult::kDone;
    // No run waits for another but for its turn, so turns are taken in the order in which runs begin.
    if (task->progress.ticket == kNoTicket) task->progress.ticket = task->replay->Submit();
    const ir::RunResult result = task->replay->Run(context, task->progress);
    if (result == ir::RunResult::kDone) task->Rewind();
    return result;
  }

  static void Cancel(void* payload, device::Runnable* runnable) noexcept {
    auto* task = static_cast<RunTask*>(payload);
    if (task->progress.ticket == kNoTicket) return;
    const bool was_running = task->progress.phase != exec::Replay::Progress::kQueued;
    task->replay->Abandon(task->progress, runnable);
    if (!was_running) task->replay->Cancel(task->progress.ticket);
    task->Rewind();
  }

  static void Destroy(void* payload) noexcept {
    auto* task = static_cast<RunTask*>(payload);
    if (task->progress.ticket != kNoTicket && task->progress.phase == exec::Replay::Progress::kQueued) {
      task->replay->Cancel(task->progress.ticket);
    }
    Program::EndRun{}(task->run);
  }

  static void Describe(const void* payload, ir::TaskInfo& info) {
    info.name = "compiled graph";
    const Program::Run& run = *static_cast<const RunTask*>(payload)->run;
    for (const void* base : run.bindings.bases) info.args.push_back(reinterpret_cast<uint64_t>(base));
  }

  bool IsWanted() const {
    return run->condition == nullptr || run->condition->holds.load(std::memory_order_acquire) == run->runs_if;
  }

  // For the next replay of a graph that holds the task.
  void Rewind() {
    progress = {};
    progress.ticket = kNoTicket;
    progress.bindings = &run->bindings;
  }
};

constexpr ir::TaskType kCompiledGraph = {.kind = ir::TaskKind::kClosure,
                                         .name = "COMPILED_GRAPH",
                                         .run = RunTask::Execute,
                                         .destroy = RunTask::Destroy,
                                         .cancel = RunTask::Cancel,
                                         .describe = RunTask::Describe,
                                         .operands = ir::OpaqueOperands};

// How tuning has found that tasks are cut, where it has looked at them.
void ApplySplits(const Graph& graph, const TuningBank& bank, Lowered& lowered) {
  NodeId last = kNoNode;
  size_t number_in_node = 0;
  for (LoweredTask& task : lowered.tasks) {
    number_in_node = task.node == last ? number_in_node + 1 : 0;
    last = task.node;
    if (task.node == kNoNode || task.launch->parts() <= 1) continue;
    const auto entry = bank.Find(SplitKey(graph, task.node, number_in_node));
    if (entry) ApplySplit(*task.launch, entry->choice);
  }
}

}  // namespace

StatusOr<Program*> Program::Build(const Graph& graph, const CompileOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(Lowered lowered, Lower(graph, options.has_single_stream));
  PrepareConstants(lowered);
  ProgramOwner program(new Program);
  REPRISE_ASSIGN_OR_RETURN(program->needs_, PlanMemory(lowered, options));
  if (options.validates_memory) REPRISE_RETURN_IF_ERROR(ValidateMemory(lowered, program->needs_));
  if (options.bank != nullptr) ApplySplits(graph, *options.bank, lowered);
  program->PlaceRegions(lowered);
  program->streams_ = std::move(lowered.streams);
  program->events_ = lowered.order.events();
  program->AddTasks(lowered);
  return program.release();
}

// Until the first run each region lies where nothing else does, so that a plan can be made.
void Program::PlaceRegions(const Lowered& lowered) {
  inputs_ = lowered.inputs;
  outputs_ = lowered.outputs;
  input_bytes_.resize(lowered.inputs);
  output_bytes_.resize(lowered.outputs);
  places_.resize(lowered.regions());
  bases_.resize(lowered.regions());
  std::vector<uint64_t> region_bytes(lowered.regions());
  region_bytes[kConstantRegion] = needs_.constants;
  region_bytes[kFeatureRegion] = needs_.features;
  for (const Storage& storage : lowered.storages) {
    const uint32_t region = lowered.RegionOf(storage);
    if (storage.kind == Storage::Kind::kInput) input_bytes_[storage.index] = storage.bytes;
    if (storage.kind == Storage::Kind::kOutput) output_bytes_[storage.index] = storage.bytes;
    if (region >= kFirstInputRegion) region_bytes[region] = storage.bytes;
    if (storage.kind == Storage::Kind::kConstant && storage.end != 0) constants_.push_back(storage);
    if (storage.kind == Storage::Kind::kFeature && storage.end != 0) features_.push_back(storage);
  }
  uint64_t at = uint64_t{1} << 44;
  for (uint32_t region = 0; region < lowered.regions(); ++region) {
    bases_[region] = reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
    at += (region_bytes[region] + 2 * kStorageAlignment - 1) & ~(kStorageAlignment - 1);
  }
}

void* Program::PlaceOperand(const Lowered& lowered, uint64_t address, uint32_t task, int32_t operand) {
  const Storage& storage = lowered.storages[lowered.Find(address)];
  const uint32_t region = lowered.RegionOf(storage);
  const uint64_t offset = storage.offset + (address - storage.address);
  places_[region].push_back({task, operand, offset});
  return static_cast<char*>(bases_[region]) + offset;
}

void Program::AddTasks(Lowered& lowered) {
  const auto& order = lowered.order;
  for (uint32_t stream = 0; stream < order.streams(); ++stream) {
    graph_.AddLane(static_cast<int32_t>(stream), static_cast<int32_t>(stream), ir::kNoNode);
  }
  std::vector<bool> records(order.size(), false);
  for (uint32_t task = 0; task < order.size(); ++task) {
    for (const uint32_t before : order.waits_of(task)) records[before] = true;
  }
  std::vector<ir::NodeId> record_of(order.size(), ir::kNoNode);
  for (LoweredTask& task : lowered.tasks) {
    const auto number = static_cast<uint32_t>(launches_.size());
    const ir::LaneId lane = order.stream_of(number);
    for (const uint32_t before : order.waits_of(number)) {
      ir::EdgePayload edge{record_of[before], 0, 0};
      graph_.Add(lane, ir::MakeTask(ir::kEdgeWait, edge));
    }
    AddLaunch(lowered, task, lane);
    if (records[number]) {
      record_of[number] = static_cast<ir::NodeId>(graph_.nodes().size());
      ir::EdgePayload edge{record_of[number], 0, 0};
      graph_.Add(lane, ir::MakeTask(ir::kEdgeRecord, edge));
    }
  }
  is_touched_.resize(launches_.size());
  touched_.reserve(launches_.size());
}

void Program::AddLaunch(const Lowered& lowered, LoweredTask& task, ir::LaneId lane) {
  const auto number = static_cast<uint32_t>(launches_.size());
  ops::Launch& launch = *task.launch;
  for (size_t i = 0; i < launch.refs.size(); ++i) {
    if (launch.uses[i].slot < 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(launch.refs[i].data);
    launch.refs[i].data = PlaceOperand(lowered, address, number, static_cast<int32_t>(i));
  }
  ops::LaunchTask payload{&launch, nullptr, nullptr};
  if (task.workspace != 0) payload.workspace = PlaceOperand(lowered, task.workspace, number, kWorkspace);
  launch.Bind();
  nodes_.push_back(task.node);
  task.launch.release();  // the task has the reference
  launches_.push_back(&launch);
  const ir::NodeId id = graph_.Add(lane, ir::MakeTask(ops::TaskTypeOf(launch), payload));
  ids_.push_back(id);
  payloads_.push_back(static_cast<ops::LaunchTask*>(graph_.node(id).payload));
}

Program::~Program() {
  while (Run* const run = runs_) {
    runs_ = run->next;
    delete run;
  }
}

Program::RunOwner Program::NewRun() {
  Run* run = nullptr;
  {
    MutexLock lock(runs_lock_);
    run = runs_;
    if (run != nullptr) runs_ = run->next;
  }
  if (run == nullptr) {
    auto fresh = std::make_unique<Run>();
    fresh->bindings.bases.resize(bases_.size());
    run = fresh.release();
  }
  Retain();
  run->program = this;
  return RunOwner(run);
}

void Program::Take(Run* run) noexcept {
  run->keeps.clear();
  run->condition.reset();
  std::fill(run->bindings.bases.begin(), run->bindings.bases.end(), nullptr);
  {
    MutexLock lock(runs_lock_);
    run->next = runs_;
    runs_ = run;
  }
  Release();
}

std::vector<PlannedBlock> Program::memory_plan(const Graph& graph) const {
  std::vector<PlannedBlock> blocks;
  for (const Storage& storage : features_) {
    const NodeId node = nodes_[storage.begin];
    const std::string name = node == kNoNode ? std::string("copy") : graph.at(node).name;
    // What lies where another value lies is in the life of that one.
    if (storage.same_as == kNoStorage)
      blocks.push_back({name, storage.begin, storage.end, storage.offset, storage.bytes});
  }
  for (const Storage& storage : features_) {
    const NodeId node = nodes_[storage.begin];
    if (storage.same_as == kNoStorage || node == kNoNode) continue;
    for (PlannedBlock& block : blocks) {
      const bool holds = block.offset == storage.offset && block.begin <= storage.begin && storage.end <= block.end;
      if (holds) block.name += ", " + graph.at(node).name;
    }
  }
  return blocks;
}

void Program::WriteConstants(std::span<const Storage> constants, void* base) {
  for (const Storage& storage : constants) {
    if (storage.bytes == 0) continue;
    char* const to = static_cast<char*>(base) + storage.offset;
    if (storage.form) {
      storage.form->Write(storage.constant->bytes.data(), to);
    } else {
      std::memcpy(to, storage.constant->bytes.data(), storage.bytes);
    }
  }
}

void Program::Bind(const exec::Bindings& bindings, std::vector<ir::NodeId>& moved) {
  moved.reserve(launches_.size());  // throws before anything has changed
  touched_.clear();
  for (uint32_t region = 0; region < bases_.size(); ++region) {
    char* const base = static_cast<char*>(bindings.bases[region]);
    if (bases_[region] == base) continue;
    bases_[region] = base;
    for (const Place& place : places_[region]) {
      if (place.operand == kWorkspace) {
        payloads_[place.task]->workspace = base + place.offset;
        continue;
      }
      launches_[place.task]->refs[static_cast<size_t>(place.operand)].data = base + place.offset;
      if (is_touched_[place.task]) continue;
      is_touched_[place.task] = true;
      touched_.push_back(place.task);  // within what was reserved
    }
  }
  for (const uint32_t task : touched_) {
    is_touched_[task] = false;
    ir::Elementwise rows;
    const bool had_rows = launches_[task]->Rows(rows);
    launches_[task]->Bind();
    if (had_rows || launches_[task]->Rows(rows)) moved.push_back(ids_[task]);
  }
}

Status Program::Submit(runtime::Stream& stream, RunOwner run) {
  exec::Replay* replay = nullptr;
  {
    MutexLock lock(replay_mutex_);
    device::Scheduler& scheduler = stream.device().scheduler();
    if (replay_ == nullptr) {
      replay_ = std::make_unique<exec::Replay>(graph_, scheduler);
      replay_->SetBinder(*this);
      scheduler_ = &scheduler;
    }
    if (scheduler_ != &scheduler) {
      return Error(kInvalidArgument, "the compiled graph ran on another device before")
          .Culprit("the stream")
          .Hint("run it on streams of one device, or compile it once for each");
    }
    replay = replay_.get();
  }
  RunTask task{run.release(), replay, {}};
  task.Rewind();
  if (std::byte* const place = runtime::TryReserve(stream, kCompiledGraph, sizeof task)) [[likely]] {
    new (place) RunTask(task);
    return runtime::Commit(stream);
  }
  return runtime::Submit(stream, ir::MakeTask(kCompiledGraph, task));
}

}  // namespace reprise::compiler
