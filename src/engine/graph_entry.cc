// SPDX-License-Identifier: Apache-2.0
#include "engine/graph_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/staged.h"
#include "engine/collectives.h"
#include "engine/numbers.h"
#include "engine/warnings.h"

namespace reprise::engine {

GraphEntry::GraphEntry(CompileSite site, std::shared_ptr<compiler::Graph> graph, std::shared_ptr<const void> identity,
                       OptionSet options)
    : site_(std::move(site)),
      identity_(std::move(identity)),
      options_(std::move(options)),
      graph_(std::move(graph)),
      has_variables_(HasVariables(*graph_)),
      dump_(ValueDump::Of(options_, site_.graph, site_.device)) {}

GraphEntry::~GraphEntry() = default;

std::string GraphEntry::Name() const { return fmt::format("graph {} of session {}", site_.graph, site_.session); }

StatusOr<GraphEntry::Turn> GraphEntry::Begin() {
  MutexLock lock(mutex_);
  if (is_busy_) {
    return Fail(kGraphAlreadyRunning, kWrongOrder, Name() + " is being run or compiled by another call")
        .Culprit(fmt::format("graph_id {}", site_.graph))
        .Hint("call again when the other call has returned");
  }
  is_busy_ = true;
  return Turn(shared_from_this());
}

void GraphEntry::End() {
  bool is_removed = false;
  {
    MutexLock lock(mutex_);
    is_busy_ = false;
    is_removed = is_removed_;
  }
  if (is_removed) Unload();
}

void GraphEntry::Remove() {
  {
    MutexLock lock(mutex_);
    is_removed_ = true;
    if (is_busy_) return;
    is_busy_ = true;  // nobody begins any more
  }
  Unload();
}

void GraphEntry::Unload() {
  for (void* stream : streams_) WaitForStream(stream);
  std::shared_ptr<CompiledGraph> compiled;
  {
    MutexLock lock(mutex_);
    compiled = std::exchange(compiled_, nullptr);
    is_loaded_ = false;
  }
  compiled.reset();
  regions_.clear();
  kept_.clear();
}

void GraphEntry::CountLoad() {
  MutexLock lock(mutex_);
  ++loads_;
}

bool GraphEntry::is_built() const {
  MutexLock lock(mutex_);
  return compiled_ != nullptr;
}
bool GraphEntry::is_loaded() const {
  MutexLock lock(mutex_);
  return is_loaded_;
}
bool GraphEntry::is_compiled_by_call() const {
  MutexLock lock(mutex_);
  return is_compiled_by_call_;
}
void GraphEntry::set_compiled_by_call() {
  MutexLock lock(mutex_);
  is_compiled_by_call_ = true;
}
RunStyle GraphEntry::style() const {
  MutexLock lock(mutex_);
  return style_;
}

Status GraphEntry::Claim(RunStyle style) {
  MutexLock lock(mutex_);
  if (style_ == RunStyle::kNone) style_ = style;
  if (style_ == style) return {};
  constexpr const char* kNames[] = {"", "RunGraph", "RunGraphAsync", "RunGraphWithStreamAsync"};
  return Fail(kUnsupported, kWrongOrder,
              fmt::format("{} was run by {}, and cannot be run by {}", Name(), kNames[static_cast<int>(style_)],
                          kNames[static_cast<int>(style)]))
      .Culprit(fmt::format("graph_id {}", site_.graph))
      .Hint("run a graph in one way, or add it again under another id");
}

Status GraphEntry::Compile(std::span<const InputMeta> inputs) {
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<CompiledGraph> compiled,
                           CompiledGraph::Compile(*graph_, options_, inputs, site_));
  // The program sees the graph as it is compiled.
  *graph_ = compiled->visible();
  MutexLock lock(mutex_);
  compiled_ = std::move(compiled);
  return {};
}

StatusOr<std::shared_ptr<const CompiledGraph>> GraphEntry::Compiled() const {
  MutexLock lock(mutex_);
  if (compiled_ != nullptr) return std::shared_ptr<const CompiledGraph>(compiled_);
  return Fail(kGraphNotBuilt, kWrongOrder, Name() + " is not compiled")
      .Culprit(fmt::format("graph_id {}", site_.graph))
      .Hint("call CompileGraph first");
}

Status GraphEntry::Load(const OptionMap& options, void* stream, const AllocatorPtr& allocator) {
  std::shared_ptr<CompiledGraph> compiled;
  {
    MutexLock lock(mutex_);
    compiled = compiled_;
    if (compiled == nullptr) {
      return Fail(kGraphNotBuilt, kWrongOrder, Name() + " is not compiled")
          .Culprit(fmt::format("graph_id {}", site_.graph))
          .Hint("call CompileGraph first");
    }
    if (is_loaded_) {
      return Fail(kGraphRepeatOperation, kWrongOrder, Name() + " is loaded already")
          .Culprit(fmt::format("graph_id {}", site_.graph))
          .Hint("load a graph once");
    }
  }
  REPRISE_RETURN_IF_ERROR(CheckOptions(options, kLoadLevel, kParamInvalid));
  REPRISE_RETURN_IF_ERROR(CheckGroups(compiled->optimised()));
  const auto value = [&options](const char* key) {
    const auto found = options.find(key);
    return found != options.end() ? std::string_view(found->second) : std::string_view();
  };
  const size_t inputs = graph_->inputs.size();
  const bool is_static = compiled->summary().is_static;
  REPRISE_ASSIGN_OR_RETURN(auto frozen, FrozenInputsOf(value("ge.exec.frozenInputIndexes"), inputs, !is_static));
  REPRISE_ASSIGN_OR_RETURN(std::vector<uint32_t> hosts,
                           IndexesOf("ge.exec.hostInputIndexes", value("ge.exec.hostInputIndexes"), ';'));
  for (const uint32_t host : hosts) {
    if (host < inputs && !frozen.contains(host)) continue;
    return Fail(kParamInvalid, kBadValue,
                host < inputs ? fmt::format("input {} is named by ge.exec.hostInputIndexes and by "
                                            "ge.exec.frozenInputIndexes",
                                            host)
                              : fmt::format("ge.exec.hostInputIndexes names input {} of {}", host, inputs))
        .Culprit("option ge.exec.hostInputIndexes")
        .Hint("name each input of the graph in one of the two options");
  }
  REPRISE_ASSIGN_OR_RETURN(std::vector<uint32_t> weights,
                           IndexesOf("reprise.checkedInputIndexes", value("reprise.checkedInputIndexes"), ';'));
  for (const uint32_t weight : weights) {
    if (weight < inputs) continue;
    return Fail(kParamInvalid, kBadValue,
                fmt::format("reprise.checkedInputIndexes names input {} of {}", weight, inputs))
        .Culprit("option reprise.checkedInputIndexes")
        .Hint("name inputs of the graph, or leave the option out");
  }
  for (const auto& [index, input] : frozen) {
    const opdef::Shape& shape = compiled->variants().front().inputs[index];
    if (is_static || shape.is_static()) continue;
    return Fail(kParamInvalid, kBadValue,
                fmt::format("ge.exec.frozenInputIndexes names input {}, whose shape {} is not known", index,
                            shape.text()))
        .Culprit("option ge.exec.frozenInputIndexes")
        .Hint("freeze only inputs whose sizes are known");
  }
  // An address that stays does not say that the values do: weights may be written where they are.
  for (const auto& [index, input] : frozen) {
    if (std::ranges::count(weights, index) == 0) weights.push_back(index);
  }
  if (!weights.empty()) compiled->CheckInputs(std::move(weights));
  REPRISE_RETURN_IF_ERROR(TakeRegions(stream, allocator));
  frozen_.clear();
  for (auto& [index, input] : frozen) {
    if (index >= frozen_.size()) frozen_.resize(index + 1);
    frozen_[index] = input;
  }
  host_inputs_ = std::move(hosts);
  MutexLock lock(mutex_);
  is_loaded_ = true;
  return {};
}

Status GraphEntry::TakeRegions(void* stream, const AllocatorPtr& allocator) {
  std::shared_ptr<CompiledGraph> compiled;
  bool has_features = false;
  {
    MutexLock lock(mutex_);
    compiled = compiled_;
    has_features = feature_use_ != FeatureUse::kNone;
  }
  const Summary& summary = compiled->summary();
  if (!summary.is_static) return {};
  std::vector<Memory> regions;
  if (allocator != nullptr && const_base_ == nullptr && summary.needs.constants > 0) {
    REPRISE_ASSIGN_OR_RETURN(Memory memory, TakeMemory(allocator, summary.needs.constants, stream));
    const_base_ = memory.address;
    regions.push_back(std::move(memory));
  }
  if (allocator != nullptr && !has_features && summary.needs.features > 0) {
    REPRISE_ASSIGN_OR_RETURN(Memory memory, TakeMemory(allocator, summary.needs.features, stream));
    feature_base_ = memory.address;
    feature_bytes_ = summary.needs.features;
    regions.push_back(std::move(memory));
  }
  regions_ = std::move(regions);
  for (Variant& variant : compiled->variants()) REPRISE_RETURN_IF_ERROR(ApplyBases(variant));
  return {};
}

Status GraphEntry::ApplyBases(Variant& variant) {
  compiler::Executable& executable = *variant.executable;
  if (!executable.is_static()) return {};
  if (const_base_ != nullptr) {
    REPRISE_RETURN_IF_ERROR(
        executable.SetConstants(static_cast<char*>(const_base_) + variant.constants_at, executable.needs().constants));
  }
  if (feature_base_ != nullptr) REPRISE_RETURN_IF_ERROR(executable.SetFeatures(feature_base_, feature_bytes_));
  return {};
}

Status GraphEntry::CheckSetter(const char* api) const {
  const auto refuse = [&](int number, std::string_view what, std::string hint) {
    return Fail(number, kWrongOrder, fmt::format("{}: {} {}", api, Name(), what))
        .Culprit(fmt::format("graph_id {}", site_.graph))
        .Hint(std::move(hint));
  };
  if (is_busy_) return refuse(kGraphIsRunning, "is running", "call when the run has been queued");
  if (compiled_ == nullptr) return refuse(kGraphNotBuilt, "is not compiled", "call CompileGraph first");
  return {};
}

Status GraphEntry::CheckBase(const char* parameter, const void* base, uint64_t bytes, uint64_t needed) const {
  if (base != nullptr && bytes >= needed) return {};
  return Fail(kParamInvalid, base == nullptr ? kNullValue : kTooSmall,
              base == nullptr ? fmt::format("{} is null", parameter)
                              : fmt::format("{} has {} bytes, {} needs {}", parameter, bytes, Name(), needed))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("ask the summary of the compiled graph how much is needed");
}

StatusOr<std::string> GraphEntry::Timeline() const {
  MutexLock lock(mutex_);
  if (!is_loaded_ || compiled_ == nullptr) {
    return Fail(kModelNotLoaded, kWrongOrder, Name() + " is not loaded")
        .Culprit(fmt::format("graph_id {}", site_.graph))
        .Hint("load or run it first");
  }
  return TimelineOf(compiled_->optimised(), compiled_->summary().streams,
                    compiler::ShapeCacheOf(*compiled_->variants().front().executable));
}

}  // namespace reprise::engine
