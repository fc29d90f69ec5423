// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/calls.h"
#include "engine/compile_cache.h"
#include "engine/numbers.h"
#include "engine/warnings.h"
#include "runtime/report.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::engine {
namespace {

std::string WeightFolder(uint64_t session) {
  const char* const work = std::getenv("ASCEND_WORK_PATH");
  return fmt::format("{}/tmp_weight_{}_{}", work != nullptr && *work != '\0' ? work : ".", getpid(), session);
}

Status NoSuchGraph(uint32_t graph, uint64_t session) {
  return Fail(kGraphNotExist, kWrongOrder, fmt::format("session {} has no graph {}", session, graph))
      .Culprit(fmt::format("graph_id {}", graph))
      .Hint("add it with AddGraph first");
}

Status RunsAlready(uint64_t session) {
  return Fail(kSessionAlreadyRunning, kWrongOrder, fmt::format("session {} runs a graph by another call", session))
      .Hint("call again when the other call has returned, or use another session");
}

HostTensor HostCopyOf(int32_t dtype, const std::vector<int64_t>& shape, const void* data, uint64_t bytes) {
  HostTensor copy{dtype, shape, std::string(bytes, '\0')};
  if (bytes > 0) std::memcpy(copy.bytes.data(), data, bytes);
  return copy;
}

std::vector<InputMeta> MetasOf(std::span<const InputTensor> inputs) {
  std::vector<InputMeta> metas;
  for (const InputTensor& input : inputs) metas.push_back(input.meta);
  return metas;
}

Status CallBack(uint32_t graph, const GraphState& state, std::span<const OutputTensor> collected,
                const std::map<std::string, Session::Collect>& callbacks) {
  std::map<std::string, std::map<std::string, HostTensor>> by_key;
  for (size_t i = 0; i < collected.size(); ++i) {
    const CollectedResult& about = state.collected[i];
    const OutputTensor& value = collected[i];
    by_key[about.key].emplace(about.name, HostCopyOf(value.dtype, value.shape, value.data, value.bytes));
  }
  for (const auto& [key, values] : by_key) {
    const auto found = callbacks.find(key);
    if (found == callbacks.end()) continue;
    const int answer = found->second(graph, values);
    if (answer == 0) continue;
    return Fail(kFailed, kInner, fmt::format("the callback for {} answers {}", key, static_cast<uint32_t>(answer)))
        .Culprit(fmt::format("graph_id {}", graph))
        .Hint("look into the function that was given to RegisterCallBackFunc");
  }
  return {};
}

}  // namespace

Session::Session(uint64_t id, Interface interface, OptionMap process, OptionMap options)
    : id_(id), interface_(interface), process_options_(std::move(process)), options_(std::move(options)) {
  const OptionSet set(process_options_, options_, {});
  const int64_t device =
      set.IsSet("ge.session_device_id") ? set.Number("ge.session_device_id") : set.Number("ge.exec.deviceId");
  device_ = static_cast<int>(std::max<int64_t>(device, 0));
  compiles_in_parallel_ = set.Is("ge.AllowMultiGraphParallelCompile", "1");
  const std::string_view policy = set.Get("ge.exec.staticMemoryPolicy");
  is_policy_4_ = policy == "4";
  if (policy == "1" || policy == "2" || policy == "4") shared_features_ = std::make_shared<SharedFeatures>();
  patience_ms_ = set.Number("stream_sync_timeout");
  weight_folder_ = WeightFolder(id);
}

Session::~Session() {
  {
    MutexLock lock(jobs_mutex_);
    is_ending_ = true;
  }
  jobs_changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  std::map<uint32_t, EntryPtr> graphs;
  {
    MutexLock lock(mutex_);
    graphs.swap(graphs_);
  }
  for (const auto& [number, entry] : graphs) entry->Remove();
  std::error_code ignored;
  std::filesystem::remove_all(weight_folder_, ignored);
}

StatusOr<Session::EntryPtr> Session::Find(uint32_t graph) const {
  MutexLock lock(mutex_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return NoSuchGraph(graph, id_);
  return found->second;
}

AllocatorPtr Session::AllocatorOf(void* stream) const {
  MutexLock lock(mutex_);
  const auto found = allocators_.find(stream);
  return found != allocators_.end() ? found->second : nullptr;
}

Status Session::AddGraph(uint32_t graph, std::shared_ptr<compiler::Graph> model, std::shared_ptr<const void> identity,
                         const OptionMap& options) {
  if (const auto tune = options.find("ge.autoTuneMode"); tune != options.end() && !tune->second.empty()) {
    return Fail(kFailed, kBadValue, fmt::format("option ge.autoTuneMode is \"{}\"", tune->second))
        .Culprit(fmt::format("options of graph_id {}", graph))
        .Hint("leave it out, and tune with AOE");
  }
  REPRISE_RETURN_IF_ERROR(CheckOptions(options, kGraphLevel, kGraphOptionsInvalid));
  OptionSet set(process_options_, options_, options);
  REPRISE_RETURN_IF_ERROR(set.CheckTogether(kGraphOptionsInvalid));
  MutexLock lock(mutex_);
  if (const auto found = graphs_.find(graph); found != graphs_.end()) {
    if (identity == nullptr) {
      return Fail(kGraphAlreadyExist, kWrongOrder, fmt::format("session {} has a graph {} already", id_, graph))
          .Culprit(fmt::format("graph_id {}", graph))
          .Hint("choose another number, or remove the graph first");
    }
    found->second->CountLoad();
    Warn(fmt::format("session {} has a graph {} already, which stays", id_, graph));
    return {};
  }
  for (const auto& [number, entry] : graphs_) {
    if (identity == nullptr || entry->identity() != identity) continue;
    return Fail(kGraphAlreadyExist, kWrongOrder, fmt::format("the graph was added as graph {} already", number))
        .Culprit(fmt::format("graph_id {}", graph))
        .Hint("add a copy of it: AddGraphWithCopy");
  }
  graphs_[graph] =
      std::make_shared<GraphEntry>(CompileSite{id_, graph, weight_folder_, variables_, shared_features_, device_},
                                   std::move(model), std::move(identity), std::move(set));
  return {};
}

Status Session::RemoveGraph(uint32_t graph) {
  EntryPtr entry;
  {
    MutexLock lock(mutex_);
    const auto found = graphs_.find(graph);
    if (found == graphs_.end()) return NoSuchGraph(graph, id_);
    entry = std::move(found->second);
    graphs_.erase(found);
  }
  entry->Remove();
  return {};
}

Status Session::Build(GraphEntry& entry, std::span<const InputMeta> inputs) {
  if (compiles_in_parallel_) return entry.Compile(inputs);
  MutexLock lock(compile_mutex_);
  return entry.Compile(inputs);
}

Status Session::CompileGraph(uint32_t graph, std::span<const InputMeta> inputs) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  if (interface_ == Interface::kFirst && entry->style() == RunStyle::kAsync) return entry->Claim(RunStyle::kStream);
  if (entry->is_built()) {
    Warn(fmt::format("graph {} of session {} is compiled already", graph, id_));
    return {};
  }
  if (interface_ == Interface::kFirst && entry->has_variables()) {
    return Fail(kUnsupported, kWrongOrder,
                fmt::format("graph {} of session {} has variables, which CompileGraph does not take", graph, id_))
        .Culprit(fmt::format("graph_id {}", graph))
        .Hint("leave CompileGraph out: runs compile by themselves; or use ge::GeSession");
  }
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_RETURN_IF_ERROR(Build(*entry, inputs));
  entry->set_compiled_by_call();
  return {};
}

Status Session::BuildGraph(uint32_t graph, std::span<const InputMeta> inputs) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  if (!entry->is_built()) REPRISE_RETURN_IF_ERROR(Build(*entry, inputs));
  return entry->is_loaded() ? Status() : entry->Load({}, nullptr, nullptr);
}

StatusOr<std::shared_ptr<const CompiledGraph>> Session::Compiled(uint32_t graph) const {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->Compiled();
}

bool Session::NeedsRebuild(uint32_t graph) const {
  MutexLock lock(mutex_);
  const auto found = graphs_.find(graph);
  return found == graphs_.end() || !found->second->is_built();
}

Status Session::SetConstBase(uint32_t graph, const void* base, uint64_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->SetConstBase(base, bytes);
}
Status Session::UpdateFeatureBase(uint32_t graph, const void* base, uint64_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->UpdateFeatureBase(base, bytes);
}
Status Session::UpdateRefreshableBase(uint32_t graph, const void* base, uint64_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->UpdateRefreshableBase(base, bytes);
}
Status Session::SetFixedBase(uint32_t graph, MemoryType type, const void* base, uint64_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->SetFixedBase(type, base, bytes, is_policy_4_);
}

Status Session::LoadGraph(uint32_t graph, const OptionMap& options, void* stream) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  if (interface_ == Interface::kSecond && !entry->is_built()) REPRISE_RETURN_IF_ERROR(Build(*entry, {}));
  return entry->Load(options, stream, AllocatorOf(stream));
}

// Compiled and loaded.
Status Session::Ready(GraphEntry& entry, void* stream, std::span<const InputTensor> inputs) {
  if (!entry.is_built()) REPRISE_RETURN_IF_ERROR(Build(entry, MetasOf(inputs)));
  return entry.is_loaded() ? Status() : entry.Load({}, stream, AllocatorOf(stream));
}

Status Session::Execute(uint32_t graph, void* stream, std::span<const InputTensor> inputs,
                        std::vector<OutputTensor>& outputs) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  if (!entry->is_built() || !entry->is_loaded()) {
    return Fail(kParamInvalid, kWrongOrder,
                fmt::format("graph {} of session {} is not {}", graph, id_, entry->is_built() ? "loaded" : "compiled"))
        .Culprit(fmt::format("graph_id {}", graph))
        .Hint("call CompileGraph and LoadGraph first");
  }
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, FindStream(stream));
  return RunOn(*found, graph, *entry, inputs, outputs, AllocatorOf(stream), false);
}

Status Session::RunOnStream(uint32_t graph, void* stream, std::span<const InputTensor> inputs,
                            std::vector<OutputTensor>& outputs) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  if (interface_ == Interface::kSecond) REPRISE_RETURN_IF_ERROR(entry->Claim(RunStyle::kStream));
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, FindStream(stream));
  REPRISE_RETURN_IF_ERROR(Ready(*entry, stream, inputs));
  return RunOn(*found, graph, *entry, inputs, outputs, AllocatorOf(stream), true);
}

Status Session::RunOn(runtime::Stream& stream, uint32_t graph, GraphEntry& entry, std::span<const InputTensor> inputs,
                      std::vector<OutputTensor>& outputs, const AllocatorPtr& allocator, bool host_anywhere) {
  std::vector<OutputTensor> collected;
  REPRISE_RETURN_IF_ERROR(entry.Run(stream, inputs, outputs, allocator, host_anywhere, &collected));
  return collected.empty() ? Status() : CallBackBehind(stream, graph, entry, std::move(collected));
}

Status Session::Wait(uint32_t graph, GraphEntry& entry, std::span<const InputTensor> inputs,
                     std::vector<HostTensor>& outputs) {
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, own_stream_.Get());
  REPRISE_RETURN_IF_ERROR(Ready(entry, nullptr, inputs));
  std::vector<OutputTensor> results;
  std::vector<OutputTensor> collected;
  Status status = entry.Run(*stream, inputs, results, nullptr, true, &collected);
  if (status.ok()) status = stream->Synchronize(runtime::DeadlineAfterMs(patience_ms_));
  if (!status.ok()) return status;
  outputs.clear();
  for (const OutputTensor& result : results) {
    outputs.push_back(HostCopyOf(result.dtype, result.shape, result.data, result.bytes));
  }
  if (collected.empty()) return {};
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<const CompiledGraph> compiled, entry.Compiled());
  return CallBack(graph, compiled->state(), collected, Callbacks());
}

Status Session::CallBackBehind(runtime::Stream& stream, uint32_t graph, const GraphEntry& entry,
                               std::vector<OutputTensor> collected) const {
  if (stream.is_capturing()) {
    Warn(fmt::format("graph {} of session {} is captured, and calls nothing back", graph, id_));
    return {};
  }
  std::map<std::string, Collect> callbacks = Callbacks();
  if (callbacks.empty()) return {};
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledGraph> compiled, entry.Compiled());
  return runtime::SubmitClosure(stream, "callbacks of a compiled graph",
                                [graph, compiled = std::move(compiled), callbacks = std::move(callbacks),
                                 collected = std::move(collected)](device::RunContext&) -> Status {
                                  try {
                                    return CallBack(graph, compiled->state(), collected, callbacks);
                                  } catch (...) {
                                    return Fail(kFailed, kInner, "a callback of a run threw, which nobody can catch")
                                        .Culprit(fmt::format("graph_id {}", graph))
                                        .Hint("look into the function that was given to RegisterCallBackFunc");
                                  }
                                });
}

std::map<std::string, Session::Collect> Session::Callbacks() const {
  MutexLock lock(mutex_);
  return callbacks_;
}

Status Session::RegisterCallback(const std::string& key, Collect callback) {
  if (key != "Summary" && key != "Save") {
    return Fail(kParamInvalid, kBadValue, fmt::format("key is \"{}\", must be Summary or Save", key))
        .Culprit("parameter key")
        .Hint("register for the operators Summary or Save");
  }
  if (!callback)
    return Fail(kParamInvalid, kNullValue, "callback is null").Culprit("parameter callback").Hint("give one");
  MutexLock lock(mutex_);
  callbacks_[key] = std::move(callback);
  return {};
}

StatusOr<std::vector<HostTensor>> Session::ReadVariables(std::span<const std::string> names) {
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Variables::Value> values, variables_->Read(names));
  std::vector<HostTensor> tensors;
  for (const Variables::Value& value : values) {
    tensors.push_back(HostCopyOf(value.dtype, value.shape, value.data, value.bytes));
  }
  return tensors;
}

Status Session::RunAndWait(uint32_t graph, std::span<const InputTensor> inputs, std::vector<HostTensor>& outputs) {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  if (!sync_mutex_.try_lock()) return RunsAlready(id_).Culprit(fmt::format("graph_id {}", graph));
  const UniqueLock<Mutex> lock(sync_mutex_, std::adopt_lock);
  REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
  if (interface_ == Interface::kSecond) {
    REPRISE_RETURN_IF_ERROR(entry->Claim(RunStyle::kSync));
  } else if (entry->is_compiled_by_call()) {
    return Fail(kUnsupported, kWrongOrder,
                fmt::format("graph {} of session {} was compiled by CompileGraph, and RunGraph compiles itself", graph,
                            id_))
        .Culprit(fmt::format("graph_id {}", graph))
        .Hint("run it with RunGraphWithStreamAsync, or leave CompileGraph out");
  }
  return Wait(graph, *entry, inputs, outputs);
}

Status Session::RunLater(uint32_t graph, std::vector<HostTensor> inputs, Done done) {
  if (interface_ == Interface::kFirst) {
    REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
    if (entry->is_compiled_by_call()) {
      return Fail(kUnsupported, kWrongOrder,
                  fmt::format("graph {} of session {} was compiled by CompileGraph, and RunGraphAsync compiles itself",
                              graph, id_))
          .Culprit(fmt::format("graph_id {}", graph))
          .Hint("run it with RunGraphWithStreamAsync, or leave CompileGraph out");
    }
    REPRISE_RETURN_IF_ERROR(entry->Claim(RunStyle::kAsync));
  }
  MutexLock lock(jobs_mutex_);
  if (!worker_.joinable()) worker_ = std::thread([this] { Work(); });
  jobs_.push_back({graph, std::move(inputs), std::move(done)});
  jobs_changed_.notify_all();
  return {};
}

void Session::Work() {
  while (true) {
    Job job;
    {
      UniqueLock<Mutex> lock(jobs_mutex_);
      while (jobs_.empty() && !is_ending_) jobs_changed_.wait(lock);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::vector<HostTensor> outputs;
    Status status;
    runtime::Api("ge::Session::RunGraphAsync", [&]() -> Status {
      std::vector<InputTensor> inputs;
      for (HostTensor& input : job.inputs) {
        inputs.push_back({input.bytes.data(), input.bytes.size(), {input.dtype, input.shape}});
      }
      const auto run = [&]() -> Status {
        REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(job.graph));
        if (interface_ == Interface::kSecond) REPRISE_RETURN_IF_ERROR(entry->Claim(RunStyle::kAsync));
        const MutexLock lock(sync_mutex_);
        REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry->Begin());
        return Wait(job.graph, *entry, inputs, outputs);
      };
      status = run();
      return status.Clone();
    });
    if (!status.ok()) outputs.clear();
    try {
      job.done(status, outputs);
    } catch (...) {
      Warn(fmt::format("the callback of a run of graph {} threw, which nobody can catch", job.graph));
    }
  }
}

Status Session::RegisterAllocator(void* stream, AllocatorPtr allocator) {
  if (stream == nullptr || allocator == nullptr) {
    return Fail(kFailed, kNullValue, fmt::format("{} is null", stream == nullptr ? "stream" : "allocator"))
        .Culprit(fmt::format("parameter {}", stream == nullptr ? "stream" : "allocator"))
        .Hint("pass a stream and an allocator");
  }
  MutexLock lock(mutex_);
  allocators_[stream] = std::move(allocator);
  return {};
}

Status Session::UnregisterAllocator(void* stream) {
  AllocatorPtr gone;  // ends without the lock
  MutexLock lock(mutex_);
  if (const auto found = allocators_.find(stream); found != allocators_.end()) {
    gone = std::move(found->second);
    allocators_.erase(found);
  }
  return {};
}

StatusOr<compiler::TuneReport> Session::Tune(const compiler::Graph& graph, std::span<const InputTensor> inputs,
                                             compiler::TuningBank& bank, const compiler::TuneOptions& options) {
  if (!sync_mutex_.try_lock()) return RunsAlready(id_).Culprit(fmt::format("session {}", id_));
  const UniqueLock lock(sync_mutex_, std::adopt_lock);
  REPRISE_RETURN_IF_ERROR(UseOwnDevice());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, own_stream_.Get());
  REPRISE_ASSIGN_OR_RETURN(const CompiledGraph::Subject subject,
                           CompiledGraph::PrepareTrial(graph, this->options(), MetasOf(inputs)));
  std::vector<compiler::RunTensor> samples;
  for (const InputTensor& input : inputs) {
    samples.push_back({.data = input.data, .bytes = input.bytes, .dtype = input.meta.dtype, .shape = input.meta.shape});
  }
  auto report = compiler::Tune(subject.graph, subject.options, *stream, samples, bank, options);
  if (!report.ok()) return As(kGraphPrerunFailed, kStageFailed, std::move(report).status());
  return report;
}

StatusOr<std::string> Session::Timeline(uint32_t graph) const {
  REPRISE_ASSIGN_OR_RETURN(const EntryPtr entry, Find(graph));
  return entry->Timeline();
}

StatusOr<std::string> Session::CompiledModel(uint32_t graph) const {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<const CompiledGraph> compiled, Compiled(graph));
  auto bytes = ModelOf(compiled->optimised());
  if (!bytes.ok()) return As(kFailed, kInner, std::move(bytes).status());
  return bytes;
}

}  // namespace reprise::engine
