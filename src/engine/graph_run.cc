// SPDX-License-Identifier: Apache-2.0
//
// One run of a graph: inputs held against it, outputs given memory, the executable queued.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/storage.h"
#include "engine/graph_entry.h"
#include "engine/numbers.h"
#include "engine/warnings.h"
#include "runtime/stream.h"

namespace reprise::engine {
namespace {

// Outputs without memory, from the allocator of the stream. The outputs own it from then on; results that the program
// does not see come from the caching allocator.
class Outputs final : public compiler::OutputAllocator {
 public:
  Outputs(const AllocatorPtr& allocator, void* stream, std::vector<OutputTensor>& outputs)
      : allocator_(allocator), stream_(stream), outputs_(outputs) {}

  void* Allocate(size_t index, uint64_t bytes) override {
    const bool is_visible = index < outputs_.size();
    StatusOr<Memory> memory = TakeMemory(is_visible ? allocator_ : nullptr, std::max<uint64_t>(bytes, 1), stream_);
    if (!memory.ok()) {
      failure_ = std::move(memory).status();
      return nullptr;
    }
    void* const address = memory->address;
    if (is_visible) {
      outputs_[index].owner = std::move(memory->owner);
      return address;
    }
    const size_t number = index - outputs_.size();
    if (number >= hidden_.size()) hidden_.resize(number + 1);
    hidden_[number] = *std::move(memory);
    return address;
  }
  /// Memory of a result that the program does not see.
  Memory TakeHidden(size_t index) {
    const size_t number = index - outputs_.size();
    return number < hidden_.size() ? std::move(hidden_[number]) : Memory{};
  }
  /// Why there was no memory; ok when there was.
  Status TakeFailure() { return std::move(failure_); }

 private:
  const AllocatorPtr& allocator_;
  void* const stream_;
  std::vector<OutputTensor>& outputs_;
  std::vector<Memory> hidden_;
  Status failure_;
};

// Memory of runs of shapes that were not known before, from the allocator of the stream. Lives as long as the graph.
class Features final : public compiler::FeatureAllocator {
 public:
  Features(AllocatorPtr allocator, void* stream) : allocator_(std::move(allocator)), stream_(stream) {}
  void* Allocate(uint64_t bytes) override {
    StatusOr<Memory> memory = TakeMemory(allocator_, bytes, stream_);
    if (!memory.ok()) return nullptr;
    void* const address = memory->address;
    MutexLock lock(mutex_);
    blocks_[address] = *std::move(memory);
    return address;
  }
  void Free(void* block) override {
    Memory gone;  // ends without the lock
    MutexLock lock(mutex_);
    if (const auto found = blocks_.find(block); found != blocks_.end()) {
      gone = std::move(found->second);
      blocks_.erase(found);
    }
  }
  bool Is(const AllocatorPtr& allocator, void* stream) const { return allocator_ == allocator && stream_ == stream; }

 private:
  const AllocatorPtr allocator_;
  void* const stream_;
  Mutex mutex_;
  std::map<void*, Memory> blocks_ REPRISE_GUARDED_BY(mutex_);
};

Status WrongCount(int number, const std::string& name, const char* what, size_t given, size_t wanted) {
  return Fail(number, kBadValue, fmt::format("{} {} are given, {} has {}", given, what, name, wanted))
      .Culprit(fmt::format("parameter {}", what))
      .Hint(fmt::format("give {} {}", wanted, what));
}

}  // namespace

// An input whose sizes are known. Only the bytes count: programs do not always set shapes anew, and give [1] for a
// scalar.
Status GraphEntry::CheckSizes(const Variant::Known& known, size_t i, const InputTensor& given,
                              const compiler::RunTensor& tensor) const {
  const uint64_t needed = compiler::BytesOf(tensor.dtype, known.sizes).value_or(0);
  if (tensor.bytes < needed) {
    return Fail(kParamInvalid, kTooSmall,
                fmt::format("input {} has {} bytes and the shape [{}], {} needs {} bytes for [{}]", i, tensor.bytes,
                            fmt::join(given.meta.shape, ", "), Name(), needed, fmt::join(known.sizes, ", ")))
        .Culprit(fmt::format("input {}", i))
        .Hint("give a tensor as large as the graph's input");
  }
  if (given.meta.shape.empty() || compiler::BytesOf(tensor.dtype, given.meta.shape) == needed) return {};
  return Fail(kParamInvalid, kBadInput,
              fmt::format("input {} has the shape [{}], {} was compiled for [{}]", i, fmt::join(given.meta.shape, ", "),
                          Name(), fmt::join(known.sizes, ", ")))
      .Culprit(fmt::format("input {}", i))
      .Hint("give a tensor of that shape, or compile the graph with -1 where sizes differ");
}

Status GraphEntry::PrepareInputs(const Variant& variant, std::span<const InputTensor> inputs, bool host_anywhere) {
  const bool is_static = variant.executable->is_static();
  sources_.resize(inputs.size());
  places_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputTensor& given = inputs[i];
    const Variant::Known& known = variant.known[i];
    compiler::RunTensor& tensor = sources_[i];
    tensor.data = given.data;
    tensor.bytes = given.bytes;
    if (i < frozen_.size() && frozen_[i]) {
      if (frozen_[i]->address == nullptr) frozen_[i] = {given.data, given.bytes};
      tensor.data = frozen_[i]->address;
      tensor.bytes = frozen_[i]->bytes;
    }
    tensor.dtype = given.meta.dtype >= 0 ? given.meta.dtype : known.dtype;
    if (known.has_sizes) {
      const bool is_usual =
          tensor.dtype == known.dtype && tensor.bytes >= known.bytes && given.meta.shape == known.sizes;
      if (!is_usual) REPRISE_RETURN_IF_ERROR(CheckSizes(known, i, given, tensor));
      tensor.shape = known.sizes;
    } else {
      tensor.shape = given.meta.shape;
    }
    if (tensor.data == nullptr && tensor.bytes > 0) {
      return Fail(kParamInvalid, kNullValue, fmt::format("input {} has {} bytes, but no address", i, tensor.bytes))
          .Culprit(fmt::format("input {}", i))
          .Hint("give it memory");
    }
    tensor.on_host = tensor.bytes > 0 && !places_[i].IsDeviceMemory(tensor.data);
    if (tensor.on_host && is_static && !host_anywhere &&
        std::ranges::count(host_inputs_, static_cast<uint32_t>(i)) == 0) {
      return Fail(kParamInvalid, kBadInput, fmt::format("input {} is in memory of the host", i))
          .Culprit(fmt::format("input {} at {}", i, fmt::ptr(tensor.data)))
          .Hint("copy it to the device, or name it in ge.exec.hostInputIndexes of LoadGraph");
    }
  }
  return {};
}

// Memory of the caller, held against what is written there; none for results that it does not see.
Status GraphEntry::PrepareOutputs(const Variant& variant, size_t results, std::span<const OutputTensor> outputs) {
  targets_.resize(results);
  for (size_t i = outputs.size(); i < results; ++i) targets_[i] = {};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputTensor& given = outputs[i];
    compiler::RunTensor& target = targets_[i];
    target.data = given.data;
    target.bytes = given.bytes;
    target.dtype = -1;
    target.shape.clear();
    const uint64_t needed = variant.result_bytes[i].value_or(0);
    if (given.data == nullptr || given.bytes >= needed) continue;
    return Fail(kParamInvalid, kTooSmall,
                fmt::format("output {} has {} bytes, {} writes {}", i, given.bytes, Name(), needed))
        .Culprit(fmt::format("output {} at {}", i, fmt::ptr(given.data)))
        .Hint("give a larger buffer, or none");
  }
  return {};
}

StatusOr<GraphEntry::Dumping> GraphEntry::BeginDump(const CompiledGraph& compiled, const Variant& variant,
                                                    runtime::Stream& stream) {
  Dumping dumping{variant.executable, {}};
  if (dump_ == nullptr || !dump_->Begin()) return dumping;
  if (stream.is_capturing()) {
    Warn(fmt::format("{} is captured, and dumps no values", Name()));
    return dumping;
  }
  REPRISE_ASSIGN_OR_RETURN(const ValueDump::Copy* const copy,
                           dump_->CopyOf(variant.executable, compiled.compile_options()));
  return Dumping{copy->executable, copy->values};
}

Status GraphEntry::Run(runtime::Stream& stream, std::span<const InputTensor> inputs, std::vector<OutputTensor>& outputs,
                       const AllocatorPtr& allocator, bool host_anywhere, std::vector<OutputTensor>* collected) {
  std::shared_ptr<CompiledGraph> compiled;
  {
    MutexLock lock(mutex_);
    compiled = compiled_;
  }
  if (inputs.size() != graph_->inputs.size()) {
    return WrongCount(kParamInvalid, Name(), "inputs", inputs.size(), graph_->inputs.size());
  }
  Variant* variant = compiled->only_variant();
  if (variant == nullptr) {
    std::vector<InputMeta> metas;
    for (const InputTensor& input : inputs) metas.push_back(input.meta);
    REPRISE_ASSIGN_OR_RETURN(variant, compiled->Choose(metas));
  }
  REPRISE_ASSIGN_OR_RETURN(Dumping dumping, BeginDump(*compiled, *variant, stream));
  compiler::Executable& executable = *dumping.executable;
  const size_t results = executable.results().size();
  const size_t wanted = results - compiled->state().collected.size() - dumping.values.size();
  if (outputs.empty()) outputs.resize(wanted);
  if (outputs.size() != wanted) {
    return WrongCount(kGraphGetInOutFailed, Name(), "outputs", outputs.size(), wanted);
  }
  REPRISE_RETURN_IF_ERROR(PrepareInputs(*variant, inputs, host_anywhere));
  for (const VariableUse& use : compiled->state().variables) {
    REPRISE_ASSIGN_OR_RETURN(const Variables::Value value, site_.variables->Use(use, stream.handle()));
    sources_.push_back({value.data, value.bytes, value.dtype, value.shape, false});
  }
  REPRISE_RETURN_IF_ERROR(PrepareOutputs(*variant, results, outputs));
  REPRISE_ASSIGN_OR_RETURN(const std::optional<SharedFeatures::Lease> lease, LeaseFeatures(executable, stream));
  Outputs taken(allocator, stream.handle(), outputs);
  streams_.insert(stream.handle());
  Status status =
      executable.Run(stream, {sources_, targets_, &taken, FeaturesOf(executable, allocator, stream.handle())});
  if (!status.ok()) {
    for (OutputTensor& output : outputs) {
      if (output.data == nullptr) output.owner.reset();
    }
    Status reason = taken.TakeFailure();
    return As(kParamInvalid, kBadInput, reason.ok() ? std::move(status) : std::move(reason));
  }
  const auto fill = [&](OutputTensor& output, size_t i) {
    output.dtype = targets_[i].dtype;
    output.shape = targets_[i].shape;
    if (output.data != nullptr) return;
    output.data = targets_[i].data;
    output.bytes = compiler::BytesOf(output.dtype, output.shape).value_or(0);
  };
  for (size_t i = 0; i < wanted; ++i) fill(outputs[i], i);
  const size_t first_dumped = results - dumping.values.size();
  for (size_t i = wanted; i < first_dumped && collected != nullptr; ++i) {
    OutputTensor& output = collected->emplace_back();
    fill(output, i);
    output.owner = taken.TakeHidden(i).owner;
  }
  if (dumping.values.empty()) return {};
  for (size_t i = 0; i < dumping.values.size(); ++i) {
    DumpedValue& value = dumping.values[i];
    value.dtype = targets_[first_dumped + i].dtype;
    value.shape = targets_[first_dumped + i].shape;
    value.bytes = compiler::BytesOf(value.dtype, value.shape).value_or(0);
    value.memory = taken.TakeHidden(first_dumped + i);
  }
  return dump_->Write(stream, compiled->summary().name, std::move(dumping.values));
}

StatusOr<std::optional<SharedFeatures::Lease>> GraphEntry::LeaseFeatures(compiler::Executable& executable,
                                                                         runtime::Stream& stream) {
  const bool has_own = site_.features == nullptr || !executable.is_static() || feature_base_ != nullptr;
  if (has_own || executable.needs().features == 0) return std::optional<SharedFeatures::Lease>();
  if (stream.is_capturing()) {  // what is captured keeps its memory
    REPRISE_RETURN_IF_ERROR(executable.SetFeatures(nullptr, 0));
    return std::optional<SharedFeatures::Lease>();
  }
  REPRISE_ASSIGN_OR_RETURN(SharedFeatures::Lease lease,
                           site_.features->Begin(executable.needs().features, stream.handle()));
  REPRISE_RETURN_IF_ERROR(executable.SetFeatures(lease.base, lease.bytes));
  return std::optional(std::move(lease));
}

compiler::FeatureAllocator* GraphEntry::FeaturesOf(const compiler::Executable& executable,
                                                   const AllocatorPtr& allocator, void* stream) {
  if (executable.is_static()) return nullptr;
  for (const auto& kept : kept_) {
    auto* const known = static_cast<Features*>(kept.get());
    if (known->Is(allocator, stream)) return known;
  }
  auto fresh = std::make_shared<Features>(allocator, stream);
  kept_.push_back(fresh);
  return fresh.get();
}

}  // namespace reprise::engine
