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
#include "opdef/graph_op.h"
#include "runtime/stream.h"

namespace reprise::engine {
namespace {

// Nothing where a size is below 0, or the bytes are more than 63 bits count.
std::optional<uint64_t> BytesOf(int32_t dtype, const std::vector<int64_t>& shape) {
  compiler::Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = opdef::Shape::Of(shape);
  return compiler::BytesOf(tensor);
}

// Outputs without memory, from the allocator of the stream.
class Outputs final : public compiler::OutputAllocator {
 public:
  /// The first `visible` results are the program's; others come from the caching allocator.
  Outputs(const AllocatorPtr& allocator, void* stream, size_t count, size_t visible)
      : allocator_(allocator), stream_(stream), taken_(count), visible_(visible) {}

  void* Allocate(size_t index, uint64_t bytes) override {
    StatusOr<Memory> memory = TakeMemory(index < visible_ ? allocator_ : nullptr, std::max<uint64_t>(bytes, 1), stream_);
    if (!memory.ok()) {
      failure_ = std::move(memory).status();
      return nullptr;
    }
    taken_[index] = std::move(memory).value();
    return taken_[index].address;
  }
  std::vector<Memory>& taken() { return taken_; }
  /// Why there was no memory; ok when there was.
  Status TakeFailure() { return std::move(failure_); }

 private:
  const AllocatorPtr& allocator_;
  void* const stream_;
  std::vector<Memory> taken_;
  const size_t visible_;
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

StatusOr<std::vector<compiler::RunTensor>> GraphEntry::PrepareInputs(const Variant& variant,
                                                                     std::span<const InputTensor> inputs,
                                                                     bool host_anywhere) {
  const bool is_static = variant.executable->is_static();
  std::vector<compiler::RunTensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputTensor& given = inputs[i];
    const compiler::Tensor& wanted = graph_->at(graph_->inputs[i]).outputs[0].tensor;
    compiler::RunTensor tensor{given.data, given.bytes, given.meta.dtype, given.meta.shape, false};
    const auto frozen = frozen_.find(static_cast<uint32_t>(i));
    if (frozen != frozen_.end()) {
      if (frozen->second.address == nullptr) frozen->second = {given.data, given.bytes};
      tensor.data = frozen->second.address;
      tensor.bytes = frozen->second.bytes;
    }
    if (tensor.dtype < 0) tensor.dtype = wanted.dtype;
    if (variant.inputs[i].is_static()) {
      // Only the bytes count: programs do not always set shapes anew, and give [1] for a scalar.
      const std::vector<int64_t> sizes = variant.inputs[i].numbers();
      const uint64_t needed = BytesOf(tensor.dtype, sizes).value_or(0);
      if (tensor.bytes < needed) {
        return Fail(kParamInvalid, kTooSmall,
                    fmt::format("input {} has {} bytes and the shape [{}], {} needs {} bytes for [{}]", i, tensor.bytes,
                                fmt::join(given.meta.shape, ", "), Name(), needed, fmt::join(sizes, ", ")))
            .Culprit(fmt::format("input {}", i))
            .Hint("give a tensor as large as the graph's input");
      }
      if (!given.meta.shape.empty() && BytesOf(tensor.dtype, given.meta.shape) != needed) {
        return Fail(kParamInvalid, kBadInput,
                    fmt::format("input {} has the shape [{}], {} was compiled for [{}]", i,
                                fmt::join(given.meta.shape, ", "), Name(), fmt::join(sizes, ", ")))
            .Culprit(fmt::format("input {}", i))
            .Hint("give a tensor of that shape, or compile the graph with -1 where sizes differ");
      }
      tensor.shape = sizes;
    }
    if (tensor.data == nullptr && tensor.bytes > 0) {
      return Fail(kParamInvalid, kNullValue, fmt::format("input {} has {} bytes, but no address", i, tensor.bytes))
          .Culprit(fmt::format("input {}", i))
          .Hint("give it memory");
    }
    tensor.on_host = tensor.bytes > 0 && !IsDeviceMemory(tensor.data);
    if (tensor.on_host && is_static && !host_anywhere &&
        std::ranges::count(host_inputs_, static_cast<uint32_t>(i)) == 0) {
      return Fail(kParamInvalid, kBadInput, fmt::format("input {} is in memory of the host", i))
          .Culprit(fmt::format("input {} at {}", i, fmt::ptr(tensor.data)))
          .Hint("copy it to the device, or name it in ge.exec.hostInputIndexes of LoadGraph");
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
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
  std::vector<InputMeta> metas;
  for (const InputTensor& input : inputs) metas.push_back(input.meta);
  REPRISE_ASSIGN_OR_RETURN(Variant * variant, compiled->Choose(metas));
  REPRISE_ASSIGN_OR_RETURN(Dumping dumping, BeginDump(*compiled, *variant, stream));
  compiler::Executable& executable = *dumping.executable;
  const auto results = executable.results();
  const size_t wanted = results.size() - compiled->state().collected.size() - dumping.values.size();
  if (outputs.empty()) outputs.resize(wanted);
  if (outputs.size() != wanted) {
    return WrongCount(kGraphGetInOutFailed, Name(), "outputs", outputs.size(), wanted);
  }
  REPRISE_ASSIGN_OR_RETURN(std::vector<compiler::RunTensor> sources, PrepareInputs(*variant, inputs, host_anywhere));
  for (const VariableUse& use : compiled->state().variables) {
    REPRISE_ASSIGN_OR_RETURN(const Variables::Value value, site_.variables->Use(use, stream.handle()));
    sources.push_back({value.data, value.bytes, value.dtype, value.shape, false});
  }
  REPRISE_ASSIGN_OR_RETURN(std::vector<compiler::RunTensor> targets, PrepareOutputs(executable, outputs));
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<SharedFeatures::Lease> lease, LeaseFeatures(executable, stream));
  Outputs taken(allocator, stream.handle(), results.size(), wanted);
  streams_.insert(stream.handle());
  Status status =
      executable.Run(stream, {sources, targets, &taken, FeaturesOf(executable, allocator, stream.handle())});
  if (!status.ok()) {
    Status reason = taken.TakeFailure();
    return As(kParamInvalid, kBadInput, reason.ok() ? std::move(status) : std::move(reason));
  }
  const auto fill = [&](OutputTensor& output, size_t i) {
    output.dtype = targets[i].dtype;
    output.shape = std::move(targets[i].shape);
    if (output.data != nullptr) return;
    output.data = targets[i].data;
    output.bytes = BytesOf(output.dtype, output.shape).value_or(0);
    output.owner = std::move(taken.taken()[i].owner);
  };
  for (size_t i = 0; i < wanted; ++i) fill(outputs[i], i);
  const size_t first_dumped = results.size() - dumping.values.size();
  for (size_t i = wanted; i < first_dumped && collected != nullptr; ++i) fill(collected->emplace_back(), i);
  if (dumping.values.empty()) return {};
  for (size_t i = 0; i < dumping.values.size(); ++i) {
    DumpedValue& value = dumping.values[i];
    value.dtype = targets[first_dumped + i].dtype;
    value.shape = targets[first_dumped + i].shape;
    value.bytes = BytesOf(value.dtype, value.shape).value_or(0);
    value.memory = std::move(taken.taken()[first_dumped + i]);
  }
  return dump_->Write(stream, compiled->summary().name, std::move(dumping.values));
}

// Memory of the caller, held against what is written there; none for results that it does not see.
StatusOr<std::vector<compiler::RunTensor>> GraphEntry::PrepareOutputs(const compiler::Executable& executable,
                                                                      std::span<const OutputTensor> outputs) const {
  const auto results = executable.results();
  std::vector<compiler::RunTensor> targets(results.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputTensor& given = outputs[i];
    if (given.data != nullptr && results[i].shape.is_static()) {
      const uint64_t needed = compiler::BytesOf(results[i]).value_or(0);
      if (given.bytes < needed) {
        return Fail(kParamInvalid, kTooSmall,
                    fmt::format("output {} has {} bytes, {} writes {}", i, given.bytes, Name(), needed))
            .Culprit(fmt::format("output {} at {}", i, fmt::ptr(given.data)))
            .Hint("give a larger buffer, or none");
      }
    }
    targets[i] = {given.data, given.bytes, -1, {}, false};
  }
  return targets;
}

StatusOr<std::unique_ptr<SharedFeatures::Lease>> GraphEntry::LeaseFeatures(compiler::Executable& executable,
                                                                           runtime::Stream& stream) {
  const bool has_own = site_.features == nullptr || !executable.is_static() || feature_base_ != nullptr;
  if (has_own || executable.needs().features == 0) return std::unique_ptr<SharedFeatures::Lease>();
  if (stream.is_capturing()) {  // what is captured keeps its memory
    REPRISE_RETURN_IF_ERROR(executable.SetFeatures(nullptr, 0));
    return std::unique_ptr<SharedFeatures::Lease>();
  }
  REPRISE_ASSIGN_OR_RETURN(SharedFeatures::Lease lease,
                           site_.features->Begin(executable.needs().features, stream.handle()));
  REPRISE_RETURN_IF_ERROR(executable.SetFeatures(lease.base, lease.bytes));
  return std::make_unique<SharedFeatures::Lease>(std::move(lease));
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
