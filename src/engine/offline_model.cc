// SPDX-License-Identifier: Apache-2.0
//
// Graphs compiled ahead of time as offline models: the table that runtime/offline_model.h asks this library for.
#include "runtime/offline_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "compiler/compiled_file.h"
#include "compiler/import/import.h"
#include "compiler/storage.h"
#include "device/memory.h"
#include "engine/graph_entry.h"
#include "engine/numbers.h"
#include "engine/offline.h"
#include "engine/option_values.h"
#include "runtime/allocation.h"
#include "runtime/context.h"
#include "runtime/stream.h"

namespace reprise::engine {
namespace {

using runtime::GearKind;
using runtime::ModelBuffer;
using runtime::ModelDescription;
using runtime::ModelTensor;

constexpr size_t kLongestName = 127;
constexpr std::string_view kGearInput = "ascend_mbatch_shape_data";
constexpr int32_t kInt64Type = 9;  // aclDataType

// Memory of outputs for which the caller brings none, and which then is the caller's: aclrtFree takes it back.
class Blocks final : public ExternalAllocator {
 public:
  explicit Blocks(runtime::Device& device) : device_(device) {}
  Block Malloc(uint64_t bytes) override {
    auto made = runtime::AllocateBlock(device_, std::max<uint64_t>(bytes, 1), runtime::PageWish::kAny, true);
    return made.ok() ? Block{*made, *made} : Block{};
  }
  void Free(void* handle) override {
    {
      MutexLock lock(mutex_);
      if (given_away_.erase(handle) != 0) return;
    }
    [[maybe_unused]] const Status freed =
        device::MemoryRegistry::Get().Free(handle, device::MemoryKind::kDevice);  // gone with its device
  }
  void GiveAway(void* block) {
    MutexLock lock(mutex_);
    given_away_.insert(block);
  }

 private:
  runtime::Device& device_;
  Mutex mutex_;
  std::set<void*> given_away_ REPRISE_GUARDED_BY(mutex_);
};

// What the engine says, with the numbers of the functions of models.
Status AsModelStatus(Status status, uint32_t id) {
  if (status.ok()) return status;
  Status::Detail detail = status.detail();
  switch (detail.code) {
    case kParamInvalid:
    case kGraphGetInOutFailed: detail.code = kInvalidArgument; break;
    case kOutOfMemory:
    case kMemallocFailed: detail.code = kOutOfDeviceMemory; break;
    case kUnsupported:
    case kGraphUnsupported: detail.code = kApiNotSupported; break;
    default:
      if ((detail.code & 0xFFF00000) == 0x50100000 || detail.code == kFailed) detail.code = kInternalError;
  }
  constexpr size_t kIdLength = 6;  // "E13025"
  if (detail.what.size() > kIdLength + 2 && detail.what[0] == 'E' && detail.what.compare(kIdLength, 2, ": ") == 0) {
    detail.what.erase(0, kIdLength + 2);
  }
  detail.what = fmt::format("model {}: {}", id, detail.what);
  return Status(std::move(detail));
}

Status Mismatch(int code, uint32_t id, std::string what, std::string culprit, std::string hint) {
  return Error(code, fmt::format("model {}: {}", id, what)).Culprit(std::move(culprit)).Hint(std::move(hint));
}

size_t BytesOfDims(int32_t dtype, const std::vector<int64_t>& dims) {
  if (std::ranges::any_of(dims, [](int64_t dim) { return dim < 0; })) return 0;
  return compiler::BytesOf(dtype, dims).value_or(0);
}

ModelTensor Describe(std::string name, const compiler::Tensor& tensor) {
  ModelTensor described;
  described.name = std::move(name);
  described.type = tensor.dtype;
  described.format = tensor.format;
  described.open_dims = tensor.shape.numbers();
  described.dims = described.open_dims;
  described.bytes = BytesOfDims(tensor.dtype, described.dims);
  return described;
}

// Names that fit into a description; others get one that no tensor has.
void SetAliases(ModelDescription& about) {
  std::set<std::string> taken;
  for (const auto* const tensors : {&about.inputs, &about.outputs}) {
    for (const ModelTensor& tensor : *tensors) taken.insert(tensor.name);
  }
  const auto name = [&](std::vector<ModelTensor>& tensors, const char* what) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].alias = tensors[i].name;
      if (tensors[i].name.size() <= kLongestName) continue;
      tensors[i].alias = fmt::format("acl_modelId_{}_{}_{}", about.id, what, i);
      while (!taken.insert(tensors[i].alias).second) tensors[i].alias += "_";
    }
  };
  name(about.inputs, "input");
  name(about.outputs, "output");
}

class GraphModel final : public runtime::OfflineModel {
 public:
  explicit GraphModel(uint32_t id) { about_.id = id; }
  ~GraphModel() override {
    if (entry_ != nullptr) entry_->Remove();
  }

  Status Prepare(std::shared_ptr<compiler::Graph> graph) {
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    blocks_ = std::make_shared<Blocks>(context->device());
    // What was to be fused was fused when the graph was compiled.
    OptionMap options{{"ge.oo.level", "O1"}};
    REPRISE_RETURN_IF_ERROR(TakeGears(*graph, options));
    for (const compiler::NodeId input : graph->inputs) {
      about_.inputs.push_back(Describe(graph->at(input).name, graph->at(input).outputs[0].tensor));
    }
    std::vector<std::string> names;
    for (const compiler::Port& port : graph->results) names.push_back(graph->TextOf(port));
    CompileSite site;
    site.graph = about_.id;
    site.variables = std::make_shared<Variables>();
    site.device = context->device().id();
    entry_ = std::make_shared<GraphEntry>(std::move(site), std::move(graph), nullptr, OptionSet({}, {}, options));
    REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry_->Begin());
    REPRISE_RETURN_IF_ERROR(entry_->Compile({}));
    REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<const CompiledGraph> compiled, entry_->Compiled());
    const Summary& summary = compiled->summary();
    compiled_ = compiled;
    for (size_t i = 0; i < summary.output_shapes.size(); ++i) {
      compiler::Tensor tensor;
      tensor.dtype = summary.output_types[i];
      tensor.format = compiled->results()[i].format;
      tensor.shape = opdef::Shape::Of(summary.output_shapes[i]);
      about_.outputs.push_back(Describe(names[i], tensor));
    }
    DescribeGears();
    SetAliases(about_);
    about_.work_bytes = summary.is_static ? summary.feature_size() : kLeastRegion;
    about_.weight_bytes = summary.is_static ? summary.const_size() : kLeastRegion;
    return {};
  }

  const ModelDescription& description() const override { return about_; }

  Status SetMemory(void* work, size_t work_bytes, void* weights, size_t weight_bytes) override {
    if (compiled_->summary().is_static) {
      if (weights != nullptr) {
        REPRISE_RETURN_IF_ERROR(AsModelStatus(entry_->SetConstBase(weights, weight_bytes), about_.id));
      }
      if (work != nullptr) {
        REPRISE_RETURN_IF_ERROR(AsModelStatus(entry_->UpdateFeatureBase(work, work_bytes), about_.id));
      }
    }
    REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry_->Begin());
    return AsModelStatus(entry_->Load({}, nullptr, nullptr), about_.id);
  }

  Status Run(runtime::Stream* stream, std::span<const ModelBuffer> inputs, std::span<ModelBuffer> outputs,
             std::span<const int64_t> gear) override {
    MutexLock lock(mutex_);
    std::vector<InputTensor> given;
    REPRISE_RETURN_IF_ERROR(ReadInputs(inputs, gear, given));
    if (outputs.size() != about_.outputs.size()) {
      return Mismatch(
          kModelOutputNotMatch, about_.id,
          fmt::format("output has {} buffers, the model has {} outputs", outputs.size(), about_.outputs.size()),
          "parameter output", "add one buffer for each output of the description");
    }
    std::vector<OutputTensor> results(outputs.size());
    bool has_memory = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      results[i].data = outputs[i].data;
      results[i].bytes = outputs[i].bytes;
      has_memory = has_memory && outputs[i].data != nullptr;
    }
    runtime::Stream* own = nullptr;
    if (stream == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(own, own_stream_.Get());
    }
    runtime::Stream& used = stream != nullptr ? *stream : *own;
    {
      REPRISE_ASSIGN_OR_RETURN(const GraphEntry::Turn turn, entry_->Begin());
      Status status = entry_->Run(used, given, results, has_memory ? nullptr : blocks_, true);
      if (!status.ok()) return AsModelStatus(std::move(status), about_.id);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].data == nullptr && results[i].data != nullptr) blocks_->GiveAway(results[i].data);
      outputs[i].dims = results[i].shape;
      outputs[i].type = results[i].dtype;
      if (outputs[i].data != nullptr) continue;
      outputs[i].data = results[i].data;
      outputs[i].bytes = results[i].bytes;
    }
    return own != nullptr ? own->Synchronize(std::nullopt) : Status();
  }

 private:
  // Gears that the graph was compiled for.
  Status TakeGears(const compiler::Graph& graph, OptionMap& options) {
    const OfflineGears written = GearsOfModel(graph);
    if (written.dims.empty()) return {};
    REPRISE_ASSIGN_OR_RETURN(gears_, GearsOf(written.shapes, written.dims));
    options["ge.inputShape"] = written.shapes;
    options["ge.dynamicDims"] = written.dims;
    about_.gear_kind = written.kind == "batch"   ? GearKind::kBatch
                       : written.kind == "image" ? GearKind::kImage
                                                 : GearKind::kDims;
    return {};
  }

  // The sizes that a gear chooses, for each input.
  std::vector<std::vector<int64_t>> DimsOfGear(const std::vector<int64_t>& sizes) const {
    std::vector<std::vector<int64_t>> all;
    size_t next = 0;
    for (const ModelTensor& input : about_.inputs) {
      std::vector<int64_t> dims = input.open_dims;
      const auto named = std::ranges::find(gears_.inputs, input.name, [](const auto& entry) { return entry.first; });
      if (named != gears_.inputs.end()) {
        dims = named->second;
        for (int64_t& dim : dims) {
          if (dim == -1) dim = sizes[next++];
        }
      }
      all.push_back(std::move(dims));
    }
    return all;
  }

  void DescribeGears() {
    if (gears_.dims.empty()) return;
    for (const std::vector<int64_t>& sizes : gears_.dims) {
      const auto all = DimsOfGear(sizes);
      for (size_t i = 0; i < all.size(); ++i) {
        const size_t bytes = BytesOfDims(about_.inputs[i].type, all[i]);
        if (bytes < about_.inputs[i].bytes) continue;
        about_.inputs[i].bytes = bytes;
        about_.inputs[i].dims = all[i];
      }
      // One number chooses a batch, two an image.
      const size_t count = about_.gear_kind == GearKind::kBatch ? 1 : about_.gear_kind == GearKind::kImage ? 2 : 0;
      about_.gears.emplace_back(sizes.begin(), count == 0 ? sizes.end() : sizes.begin() + static_cast<int64_t>(count));
    }
    ModelTensor chosen;
    chosen.name = kGearInput;
    chosen.type = kInt64Type;
    chosen.format = compiler::kFormatNd;
    chosen.dims = {static_cast<int64_t>(about_.gears.front().size())};
    chosen.open_dims = chosen.dims;
    chosen.bytes = about_.gears.front().size() * sizeof(int64_t);
    about_.inputs.push_back(std::move(chosen));
  }

  Status ReadInputs(std::span<const ModelBuffer> inputs, std::span<const int64_t> gear,
                    std::vector<InputTensor>& given) const {
    if (inputs.size() != about_.inputs.size()) {
      return Mismatch(kModelInputNotMatch, about_.id,
                      fmt::format("input has {} buffers, the model has {} inputs", inputs.size(), about_.inputs.size()),
                      "parameter input", "add one buffer for each input of the description");
    }
    std::vector<std::vector<int64_t>> of_gear;
    if (about_.has_gear_input()) {
      const auto chosen = std::ranges::find(about_.gears, std::vector<int64_t>(gear.begin(), gear.end()));
      if (chosen == about_.gears.end()) {
        return Mismatch(kModelInputNotMatch, about_.id,
                        gear.empty() ? std::string("no gear is chosen for the run")
                                     : fmt::format("[{}] is no gear of the model", fmt::join(gear, ", ")),
                        "parameter input",
                        "call aclmdlSetDynamicBatchSize, aclmdlSetDynamicHWSize or aclmdlSetInputDynamicDims before");
      }
      of_gear = DimsOfGear(gears_.dims[static_cast<size_t>(chosen - about_.gears.begin())]);
    }
    const size_t count = about_.inputs.size() - (about_.has_gear_input() ? 1 : 0);
    for (size_t i = 0; i < count; ++i) {
      const ModelTensor& input = about_.inputs[i];
      const ModelBuffer& buffer = inputs[i];
      const std::vector<int64_t>& dims = !of_gear.empty() ? of_gear[i] : buffer.has_dims ? buffer.dims : input.dims;
      const auto culprit = [&] { return fmt::format("input {}: {}", i, input.name); };
      if (std::ranges::any_of(dims, [](int64_t dim) { return dim < 0; })) {
        return Mismatch(kModelInputNotMatch, about_.id,
                        fmt::format("the shape [{}] of input {} is open", fmt::join(dims, ", "), i), culprit(),
                        "say with aclmdlSetDatasetTensorDesc which shape it has");
      }
      const size_t needed = BytesOfDims(input.type, dims);
      if (buffer.bytes < needed || (buffer.data == nullptr && needed != 0)) {
        return Mismatch(kModelInputNotMatch, about_.id,
                        fmt::format("the buffer of input {} has {} bytes at {}, [{}] needs {}", i, buffer.bytes,
                                    fmt::ptr(buffer.data), fmt::join(dims, ", "), needed),
                        culprit(), "give a buffer as large as aclmdlGetInputSizeByIndex says");
      }
      given.push_back({buffer.data, buffer.bytes, {input.type, dims}});
    }
    return {};
  }

  ModelDescription about_;
  Gears gears_;
  std::shared_ptr<GraphEntry> entry_;
  std::shared_ptr<const CompiledGraph> compiled_;
  std::shared_ptr<Blocks> blocks_;
  Mutex mutex_;
  OwnStream own_stream_;
};

StatusOr<std::shared_ptr<runtime::OfflineModel>> LoadModel(std::string_view bytes, uint32_t id) {
  const auto parts = compiler::SplitCompiled(bytes);
  if (!parts) {
    if (bytes.starts_with("IMOD")) {
      return Error(kApiNotSupported, "the model holds code for the chip of a device, and the device here is the CPU")
          .Culprit("parameter model")
          .Hint("compile the graph with aclgrphBuildModel of this installation");
    }
    return Error(kParseModel, "the bytes are no compiled graph")
        .Culprit("parameter model")
        .Hint("give what aclgrphBuildModel has made, or aclgrphSaveModel has written");
  }
  if (!parts->model) {
    return Error(kDeserializeModel, "the compiled graph is damaged")
        .Culprit("parameter model")
        .Hint("build it again with aclgrphBuildModel");
  }
  auto graph = compiler::ImportBytes(*parts->model);
  if (!graph.ok()) {
    const Status status = std::move(graph).status();
    return Error(kDeserializeModel, fmt::format("the compiled graph cannot be read: {}", status.detail().what))
        .Culprit("parameter model")
        .Hint("build it again with aclgrphBuildModel");
  }
  auto model = std::make_shared<GraphModel>(id);
  Status status = model->Prepare(std::move(graph).value());
  if (!status.ok()) return AsModelStatus(std::move(status), id);
  return std::shared_ptr<runtime::OfflineModel>(std::move(model));
}

}  // namespace
}  // namespace reprise::engine

extern "C" const reprise::runtime::OfflineModels* reprise_offline_models() {
  static const reprise::runtime::OfflineModels kTable = {reprise::runtime::kOfflineModelsBuild,
                                                         reprise::engine::LoadModel};
  return &kTable;
}
