// SPDX-License-Identifier: Apache-2.0
#include "torchair/graph.h"

#include <acl/acl.h>
#include <dlfcn.h>
#include <hccl/hccl_comm.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <sstream>
#include <thread>

#include "torchair/log.h"

namespace torchair {
namespace {

constexpr int64_t kHost = 0;
constexpr int64_t kDevice = 1;

std::string Text(const std::vector<std::vector<int64_t>>& shapes) {
  std::ostringstream text;
  const char* outer = "[";
  for (const auto& shape : shapes) {
    text << outer << "[";
    outer = ", ";
    for (size_t i = 0; i < shape.size(); ++i) text << (i > 0 ? ", " : "") << shape[i];
    text << "]";
  }
  return shapes.empty() ? "[]" : text.str() + "]";
}

std::map<ge::AscendString, ge::AscendString> ForEngine(const Options& options) {
  std::map<ge::AscendString, ge::AscendString> own;
  for (const auto& [key, value] : options) own.emplace(key.c_str(), value.c_str());
  return own;
}

// What the graph was compiled with holds for its collectives, too; the engine has loaded their library.
void SetDeterministic(bool is_on) {
  static std::atomic<decltype(&HcclSetConfig)> known{nullptr};
  if (known.load() == nullptr) {
    void* const library = dlopen("libhccl.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return;  // the graph has none after all
    known.store(reinterpret_cast<decltype(&HcclSetConfig)>(dlsym(library, "HcclSetConfig")));
  }
  HcclConfigValue value;
  value.value = is_on ? 1 : 0;
  TORCH_CHECK(known.load() != nullptr && known.load()(HCCL_DETERMINISTIC, value) == HCCL_SUCCESS,
              "Failed to set HCCL_DETERMINISTIC. See that libhccl.so is the one of this package");
}

// "1,0,…": one flag for each input; those that are left out are 0.
std::vector<bool> Flags(const Options& options, const char* key, size_t inputs) {
  std::vector<bool> flags(inputs, false);
  const auto found = options.find(key);
  if (found == options.end()) return flags;
  std::istringstream text(found->second);
  std::string flag;
  for (size_t i = 0; i < inputs && std::getline(text, flag, ','); ++i) flags[i] = flag == "1";
  return flags;
}

// "input,output|…": which input each of these outputs is. What the engine cannot read, it refuses itself.
std::map<size_t, size_t> SharedMemory(const Options& options, size_t inputs) {
  std::map<size_t, size_t> shared;
  const auto found = options.find("ge.exec.outputReuseInputMemIndexes");
  if (found == options.end()) return shared;
  std::istringstream text(found->second);
  std::string pair;
  while (std::getline(text, pair, '|')) {
    std::istringstream numbers(pair);
    size_t input = 0;
    size_t output = 0;
    char comma = 0;
    if (numbers >> input >> comma >> output && input < inputs) shared[output] = input;
  }
  return shared;
}

bool IsCarriedByBytes(ge::DataType type) { return type == ge::DT_HIFLOAT8 || type == ge::DT_FLOAT4_E1M2; }

void Describe(const at::Tensor& tensor, gert::TensorPlacement placement, gert::Tensor& own) {
  const auto sizes = tensor.sizes();
  for (gert::Shape* shape : {&own.MutableOriginShape(), &own.MutableStorageShape()}) {
    shape->SetDimNum(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) shape->SetDim(i, sizes[i]);
  }
  own.SetData(gert::TensorData(const_cast<void*>(tensor.const_data_ptr()), nullptr, tensor.nbytes(), placement));
}

// Which streams the engine has chosen, by name of graph.
void LogStreams(const std::string& name, const ge::CompiledGraphSummary& summary) {
  std::shared_ptr<ge::StreamAllocationSummary> allocation;
  if (summary.GetStreamAllocationSummary(allocation) != ge::SUCCESS || allocation == nullptr) return;
  for (const auto& [label, streams] : allocation->GetAllLogicalStreamInfos()) {
    std::string text = "stream allocation of graph " + name + ", part " + label.GetString() + ":";
    for (const auto& stream : streams) text += std::string("\n  ") + stream.ToStringInfo().GetString();
    TORCHAIR_LOG(kInfo, text);
  }
}

void SetFormats(size_t rank, gert::Tensor& own) {
  own.SetOriginFormat(rank == 4 ? ge::FORMAT_NCHW : rank == 5 ? ge::FORMAT_NCDHW : ge::FORMAT_ND);
  own.SetStorageFormat(own.GetOriginFormat());
}

}  // namespace

NpuGraph::~NpuGraph() {
  if (session_ != nullptr) (void)session_->RemoveGraph(id_);
}

void NpuGraph::Load(const std::string& model, Options options, std::vector<int64_t> placements,
                    const std::vector<int64_t>& types, int64_t executor) {
  TORCH_CHECK(model.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()), "the model of graph ", name_,
              " has ", model.size(), " bytes, which exceed 2G limit");
  TORCH_CHECK(executor == 0 || executor == 1, "graph ", name_, " has executor type ", executor,
              ", which is neither 0 (CPU) nor 1 (NPU)");
  CheckEngine(graph_.LoadFromSerializedModelArray(model.data(), model.size()), "reading the model of graph " + name_);
  on_device_ = executor == 1;
  options.emplace("ge.exec.memoryOptimizationPolicy", "MemoryPriority");
  if (on_device_) options.emplace("ge.exec.reuseZeroCopyMemory", "1");
  refreshable_ = options["ge.featureBaseRefreshable"] == "1";
  frozen_ = Flags(options, "frozenInput", placements.size());
  weights_ = Flags(options, "weightInput", placements.size());
  shared_ = SharedMemory(options, placements.size());
  has_collectives_ = model.find("Hcom") != std::string::npos;
  is_deterministic_ = options["ge.deterministic"] == "1";
  has_gears_ = options.count("ge.dynamicDims") > 0 && options.count("ge.inputShape") > 0 &&
               options.count("ge.dynamicNodeType") > 0;
  placements_ = std::move(placements);
  types_.clear();
  for (const int64_t type : types) {
    types_.push_back(type >= 0 && type < ge::DT_MAX ? static_cast<ge::DataType>(type) : ge::DT_UNDEFINED);
  }
  options_ = std::move(options);
  static std::atomic<uint32_t> next{0};
  id_ = next++;
  loaded_model_ = true;
}

void NpuGraph::SetHintShape(std::vector<std::vector<int64_t>> inputs, std::vector<std::vector<int64_t>> outputs) {
  TORCH_CHECK(loaded_model_, "graph ", name_, " has no model yet: call load before set_hint_shape");
  input_shapes_ = std::move(inputs);
  output_shapes_ = std::move(outputs);
}

void NpuGraph::Compile() {
  TORCH_CHECK(loaded_model_, "graph ", name_, " has no model yet: call load before compile");
  TORCH_CHECK(!compiled_, "graph ", name_, " is compiled already");
  auto session = EngineSession();
  Options own;
  for (const auto& [key, value] : options_) {
    if (key.rfind("ge.", 0) == 0) own.emplace(key, value);
  }
  CheckEngine(session->AddGraph(id_, graph_, ForEngine(own)), "adding graph " + name_);
  session_ = std::move(session);
  if (!on_device_) {
    compiled_ = true;
    return;
  }
  CheckEngine(session_->CompileGraph(id_), "compiling graph " + name_);
  const auto summary = session_->GetCompiledGraphSummary(id_);
  TORCH_CHECK(summary != nullptr, "graph ", name_, " was compiled, but its summary is missing");
  if (Logs(LogLevel::kInfo)) LogStreams(name_, *summary);
  is_static_ = summary->IsStatic();
  if (is_static_) {
    CheckOutputs(*summary);
    (void)summary->GetConstMemorySize(const_bytes_);
    (void)summary->GetFeatureMemorySize(feature_bytes_);
  }
  compiled_ = true;
}

void NpuGraph::CheckOutputs(const ge::CompiledGraphSummary& summary) {
  std::vector<ge::Shape> shapes;
  std::vector<ge::DataType> types;
  CheckEngine(summary.GetOutputShapes(shapes), "asking for the shapes of graph " + name_);
  CheckEngine(summary.GetOutputDtypes(types), "asking for the types of graph " + name_);
  std::vector<std::vector<int64_t>> own;
  for (const ge::Shape& shape : shapes) own.push_back(shape.GetDims());
  const auto differ = [&](const char* what) {
    TORCH_CHECK(false, "graph ", name_, ": ", what, " of GE net output(s) ", Text(own),
                " is not equal to FX net output(s) ", Text(output_shapes_));
  };
  if (!output_shapes_.empty()) {
    if (own.size() != output_shapes_.size()) differ("number");
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].size() != output_shapes_[i].size()) differ("dim number");
      for (size_t k = 0; k < own[i].size(); ++k) {
        if (own[i][k] >= 0 && output_shapes_[i][k] >= 0 && own[i][k] != output_shapes_[i][k]) differ("dim");
      }
    }
  }
  for (size_t i = 0; i < types.size() && i < types_.size(); ++i) {
    if (types[i] == types_[i] || types_[i] == ge::DT_UNDEFINED) continue;
    if (IsCarriedByBytes(types[i]) && types_[i] == ge::DT_UINT8) {
      TORCH_WARN("graph ", name_, ": output ", i, " is of type ", static_cast<int>(types[i]),
                 " in the engine, and uint8 for PyTorch");
      continue;
    }
    TORCH_CHECK(false, "graph ", name_, ": the type ", static_cast<int>(types[i]), " of GE output ", i,
                " is not equal to FX net output(s) type ", static_cast<int>(types_[i]));
  }
  types_ = std::move(types);
  output_shapes_ = std::move(own);
}

void NpuGraph::CheckInputs(const std::vector<at::Tensor>& inputs) const {
  TORCH_CHECK(inputs.size() == placements_.size(), "graph ", name_, " takes ", placements_.size(), " inputs, not ",
              inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_host = inputs[i].is_cpu();
    if (placements_[i] == (is_host ? kHost : kDevice)) continue;
    TORCH_CHECK(false, "input ", i, " of graph ", name_, " must be on the ",
                placements_[i] == kHost ? "host" : "device", " as it was when the graph was compiled, but it is on ",
                inputs[i].device(), "; if the program comes from cache_compile, remove the cache");
  }
}

void NpuGraph::CheckGears() const {
  for (size_t i = 0; i < placements_.size() && i < input_shapes_.size(); ++i) {
    const auto& shape = input_shapes_[i];
    const bool has_gears = std::find(shape.begin(), shape.end(), -1) != shape.end();
    TORCH_CHECK(!has_gears || placements_[i] == kDevice, "input ", i, " of graph ", name_,
                " has gears (set_dim_gears) and is on the host, where no gear can be chosen: move it to the device, "
                "or take the gears from it");
  }
}

void NpuGraph::TakeFeatureMemory(void* stream) {
  features_ = ShareFeatures(stream, feature_bytes_);
  CheckEngine(session_->UpdateGraphFeatureMemoryBase(id_, features_->memory.get(), features_->bytes),
              "giving memory to graph " + name_);
}

void NpuGraph::FirstRun(const std::vector<at::Tensor>& inputs, void* stream) {
  if (has_gears_) CheckGears();
  allocator_ = StreamAllocator::Of(stream);
  CheckEngine(session_->RegisterExternalAllocator(stream, allocator_), "registering an allocator");
  Options load;
  std::string frozen;
  std::string hosts;
  std::string weights;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (frozen_[i] && placements_[i] == kDevice) {
      frozen += (frozen.empty() ? "" : ";") + std::to_string(i) + "," +
                std::to_string(reinterpret_cast<uintptr_t>(inputs[i].const_data_ptr())) + "," +
                std::to_string(inputs[i].storage().nbytes());
      kept_.push_back(inputs[i]);
    }
    if (weights_[i] && placements_[i] == kDevice) weights += (weights.empty() ? "" : ";") + std::to_string(i);
    if (placements_[i] == kHost && is_static_) hosts += (hosts.empty() ? "" : ";") + std::to_string(i);
  }
  if (!frozen.empty()) load["ge.exec.frozenInputIndexes"] = frozen;
  if (!hosts.empty()) load["ge.exec.hostInputIndexes"] = hosts;
  if (!weights.empty()) load["reprise.checkedInputIndexes"] = weights;
  if (is_static_) {
    constants_ = AllocateOnDevice(const_bytes_);
    CheckEngine(session_->SetGraphConstMemoryBase(id_, constants_.get(), const_bytes_),
                "giving memory for constants to graph " + name_);
    if (!refreshable_) TakeFeatureMemory(stream);
  }
  device_copies_.resize(inputs.size());
  engine_inputs_ = std::vector<gert::Tensor>(inputs.size());
  engine_outputs_ = std::vector<gert::Tensor>(types_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    engine_inputs_[i].SetDataType(TypeOf(inputs[i].scalar_type()));
    SetFormats(static_cast<size_t>(inputs[i].dim()), engine_inputs_[i]);
  }
  if (refreshable_ && is_static_) {  // the engine wants one to begin with
    const c10::DataPtr first = AllocateOnDevice(feature_bytes_);
    CheckEngine(session_->UpdateGraphFeatureMemoryBase(id_, first.get(), feature_bytes_),
                "giving memory to graph " + name_);
    CheckEngine(session_->LoadGraph(id_, ForEngine(load), stream), "loading graph " + name_);
  } else {
    CheckEngine(session_->LoadGraph(id_, ForEngine(load), stream), "loading graph " + name_);
  }
  stream_ = stream;
  has_run_ = true;
  if (on_load_) {
    ge::AscendString timeline;
    CheckEngine(session_->GraphDebugJSONPrint(id_, 0, timeline), "asking for the tasks of graph " + name_);
    on_load_(timeline.GetString());
  }
}

std::vector<at::Tensor> NpuGraph::RunOnHost(const std::vector<at::Tensor>& inputs,
                                            const std::vector<at::Tensor>& assigned) {
  for (const at::Tensor& tensor : assigned) {
    TORCH_CHECK(!tensor.defined(), "graph ", name_, " runs on the host, where outputs cannot be assigned");
  }
  std::vector<ge::Tensor> own;
  for (const at::Tensor& input : inputs) {
    const ge::TensorDesc desc(ge::Shape(input.sizes().vec()), ge::FORMAT_ND, TypeOf(input.scalar_type()));
    own.emplace_back(desc, static_cast<const uint8_t*>(input.const_data_ptr()), input.nbytes());
  }
  std::vector<ge::Tensor> results;
  CheckEngine(session_->RunGraph(id_, own, results), "running graph " + name_);
  std::vector<at::Tensor> outputs;
  for (const ge::Tensor& result : results) {
    const auto type = ScalarTypeOf(result.GetDataType());
    TORCH_CHECK(type.has_value(), "PyTorch has no type for output ", outputs.size(), " of graph ", name_);
    outputs.push_back(at::empty(result.GetTensorDesc().GetShape().GetDims(), at::device(at::kCPU).dtype(*type)));
    std::memcpy(outputs.back().mutable_data_ptr(), result.GetData(), outputs.back().nbytes());
  }
  return outputs;
}

at::Tensor NpuGraph::TakeOutput(size_t i, void* stream) {
  gert::Tensor& own = engine_outputs_[i];
  std::vector<int64_t> sizes;
  for (size_t k = 0; k < own.GetStorageShape().GetDimNum(); ++k) sizes.push_back(own.GetStorageShape().GetDim(k));
  const auto type = ScalarTypeOf(own.GetDataType());
  TORCH_CHECK(type.has_value(), "PyTorch has no type for output ", i, " of graph ", name_);
  const auto options = at::TensorOptions().device(c10::Device(c10::kPrivateUse1, c10::DeviceIndex(-1))).dtype(*type);
  at::Tensor output;
  c10::DataPtr memory = allocator_->Take(own.GetAddr());
  if (memory.get() != nullptr) {
    output = at::empty({0}, options);
    output.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(
        c10::Storage::use_byte_size_t(), own.GetSize(), std::move(memory), c10::GetAllocator(c10::kPrivateUse1), true));
    output.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {  // memory of the engine's
    output = at::empty(sizes, options);
    if (output.nbytes() > 0) {
      const int status = aclrtMemcpyAsync(output.mutable_data_ptr(), output.nbytes(), own.GetAddr(), output.nbytes(),
                                          ACL_MEMCPY_DEVICE_TO_DEVICE, stream);
      TORCH_CHECK(status == ACL_SUCCESS, "copying output ", i, " of graph ", name_, " failed: ", status);
    }
  }
  own.SetData(gert::TensorData());
  return output;
}

std::vector<at::Tensor> NpuGraph::Run(std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& assigned,
                                      void* stream) {
  TORCH_CHECK(compiled_, "graph ", name_, " is not compiled yet: call compile before run");
  CheckInputs(inputs);
  TORCH_CHECK(assigned.empty() || assigned.size() == types_.size(), "graph ", name_, " has ", types_.size(),
              " outputs, but ", assigned.size(), " are assigned");
  for (at::Tensor& input : inputs) {
    if (!input.is_contiguous()) input = input.contiguous();
  }
  if (!on_device_) return RunOnHost(inputs, assigned);
  if (!has_run_) FirstRun(inputs, stream);
  TORCH_CHECK(stream == stream_, "Unsupported run graph with different stream. Graph ", name_,
              " belongs to the stream of its first run; compile it once more for another stream");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor* tensor = &inputs[i];
    bool host = placements_[i] == kHost;
    if (host && !is_static_ && tensor->dim() > 1) {  // dynamic graphs take small ones from the host alone
      device_copies_[i] = tensor->to(c10::Device(c10::kPrivateUse1, c10::DeviceIndex(-1)));
      tensor = &device_copies_[i];
      host = false;
    }
    Describe(*tensor, host ? gert::kOnHost : gert::kOnDeviceHbm, engine_inputs_[i]);
  }
  const auto options = at::TensorOptions().device(c10::Device(c10::kPrivateUse1, c10::DeviceIndex(-1)));
  std::vector<at::Tensor> outputs(types_.size());
  std::vector<std::pair<size_t, at::Tensor>> to_host;
  for (size_t i = 0; i < outputs.size(); ++i) {
    gert::Tensor& own = engine_outputs_[i];
    own.SetDataType(types_[i]);
    const auto shared = shared_.find(i);
    if (i < assigned.size() && assigned[i].defined()) {
      outputs[i] = assigned[i];
    } else if (shared != shared_.end() && !inputs[shared->second].is_cpu()) {
      outputs[i] = inputs[shared->second];
    }
    if (outputs[i].defined()) {
      if (outputs[i].is_cpu()) {
        to_host.emplace_back(i, outputs[i]);
        outputs[i] = at::empty(outputs[i].sizes(), options.dtype(outputs[i].scalar_type()));
      }
      TORCH_CHECK(outputs[i].is_contiguous(), "output ", i, " of graph ", name_,
                  " is assigned a tensor that is not contiguous");
    } else if (is_static_ && !has_gears_) {
      outputs[i] = at::empty(output_shapes_[i], options.dtype(ScalarTypeOf(types_[i]).value()));
    } else {
      own.SetData(gert::TensorData());
      continue;
    }
    Describe(outputs[i], gert::kOnDeviceHbm, own);
  }
  c10::DataPtr features;
  if (is_static_ && refreshable_) {
    features = AllocateOnDevice(feature_bytes_);
    CheckEngine(session_->UpdateGraphFeatureMemoryBase(id_, features.get(), feature_bytes_),
                "giving memory to graph " + name_);
  }
  if (has_collectives_) SetDeterministic(is_deterministic_);
  CheckEngine(session_->ExecuteGraphWithStreamAsync(id_, stream, engine_inputs_, engine_outputs_),
              "running graph " + name_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) outputs[i] = TakeOutput(i, stream);
  }
  for (auto& [index, tensor] : to_host) {
    tensor.copy_(outputs[index]);
    outputs[index] = tensor;
  }
  return outputs;
}

}  // namespace torchair
