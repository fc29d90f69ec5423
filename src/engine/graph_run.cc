// SPDX-License-Identifier: Apache-2.0
//
// One run of a graph: inputs held against it, outputs given memory, the executable queued.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/storage.h"
#include "engine/graph_entry.h"
#include "engine/numbers.h"
#include "runtime/stream.h"

namespace reprise::engine {
namespace {

// Outputs without memory, from the allocator of the stream. The outputs own it from then on.
class Outputs final : public compiler::OutputAllocator {
 public:
  Outputs(const AllocatorPtr& allocator, void* stream, std::vector<OutputTensor>& outputs)
      : allocator_(allocator), stream_(stream), outputs_(outputs) {}

  void* Allocate(size_t index, uint64_t bytes) override {
    StatusOr<Memory> memory = TakeMemory(allocator_, std::max<uint64_t>(bytes, 1), stream_);
    if (!memory.ok()) {
      failure_ = std::move(memory).status();
      return nullptr;
    }
    outputs_[index].owner = std::move(memory->owner);
    return memory->address;
  }
  /// Why there was no memory; ok when there was.
  Status TakeFailure() { return std::move(failure_); }

 private:
  const AllocatorPtr& allocator_;
  void* const stream_;
  std::vector<OutputTensor>& outputs_;
  Status failure_;
};

// Features of shapes that were not known before, from the allocator of the stream. Lives as long as the graph.
class Features final : public compiler::FeatureAllocator {
 public:
  explicit Features(AllocatorPtr allocator) : allocator_(std::move(allocator)) {}
  void* Allocate(uint64_t bytes) override {
    const ExternalAllocator::Block block = allocator_->Malloc(bytes);
    if (block.handle == nullptr) return nullptr;
    if (block.address == nullptr) {
      allocator_->Free(block.handle);
      return nullptr;
    }
    MutexLock lock(mutex_);
    blocks_[block.address] = block.handle;
    return block.address;
  }
  void Free(void* block) override {
    void* handle = nullptr;
    {
      MutexLock lock(mutex_);
      const auto found = blocks_.find(block);
      if (found == blocks_.end()) return;
      handle = found->second;
      blocks_.erase(found);
    }
    allocator_->Free(handle);
  }
  const AllocatorPtr& allocator() const { return allocator_; }

 private:
  const AllocatorPtr allocator_;
  Mutex mutex_;
  std::map<void*, void*> blocks_ REPRISE_GUARDED_BY(mutex_);
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

Status GraphEntry::PrepareOutputs(const Variant& variant, std::vector<OutputTensor>& outputs) {
  const size_t results = variant.result_bytes.size();
  if (outputs.empty()) outputs.resize(results);
  if (outputs.size() != results) {
    return WrongCount(kGraphGetInOutFailed, Name(), "outputs", outputs.size(), results);
  }
  targets_.resize(outputs.size());
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

Status GraphEntry::Run(runtime::Stream& stream, std::span<const InputTensor> inputs, std::vector<OutputTensor>& outputs,
                       const AllocatorPtr& allocator, bool host_anywhere) {
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
  compiler::Executable& executable = *variant->executable;
  REPRISE_RETURN_IF_ERROR(PrepareInputs(*variant, inputs, host_anywhere));
  REPRISE_RETURN_IF_ERROR(PrepareOutputs(*variant, outputs));
  Outputs taken(allocator, stream.handle(), outputs);
  Features* features = nullptr;
  if (allocator != nullptr && !executable.is_static()) {
    for (const auto& kept : kept_) {
      auto* const known = static_cast<Features*>(kept.get());
      if (known->allocator() == allocator) features = known;
    }
    if (features == nullptr) {
      auto fresh = std::make_shared<Features>(allocator);
      features = fresh.get();
      kept_.push_back(std::move(fresh));
    }
  }
  streams_.insert(stream.handle());
  Status status = executable.Run(stream, {sources_, targets_, &taken, features});
  if (!status.ok()) {
    for (OutputTensor& output : outputs) {
      if (output.data == nullptr) output.owner.reset();
    }
    Status reason = taken.TakeFailure();
    return As(kParamInvalid, kBadInput, reason.ok() ? std::move(status) : std::move(reason));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    OutputTensor& output = outputs[i];
    output.dtype = targets_[i].dtype;
    output.shape = targets_[i].shape;
    if (output.data != nullptr) continue;
    output.data = targets_[i].data;
    output.bytes = compiler::BytesOf(output.dtype, output.shape).value_or(0);
  }
  return {};
}

}  // namespace reprise::engine
