// SPDX-License-Identifier: Apache-2.0
//
// Offline models: loaded, run, unloaded. What runs them is the graph engine (runtime/offline_model.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl_mdl.h"
#include "datasets.h"
#include "runtime/context.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace reprise::facade {
namespace {

using runtime::GearKind;
using runtime::ModelBuffer;
using runtime::ModelDescription;
using runtime::OfflineModel;

StatusOr<std::string_view> BytesOf(const void* model, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(model, "model"));
  if (bytes != 0) return std::string_view(static_cast<const char*>(model), bytes);
  return Error(kInvalidArgument, "modelSize is 0").Culprit("parameter modelSize").Hint("pass the size of the model");
}

StatusOr<std::string> BytesOfFile(const char* path, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(path, parameter));
  return runtime::ReadModelFile(path);
}

struct Regions {
  void* work = nullptr;
  size_t work_bytes = 0;
  void* weights = nullptr;
  size_t weight_bytes = 0;
};

Status Load(std::string_view bytes, uint32_t* id, const Regions& memory) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(id, "modelId"));
  REPRISE_ASSIGN_OR_RETURN(
      *id, runtime::LoadOfflineModel(bytes, memory.work, memory.work_bytes, memory.weights, memory.weight_bytes));
  return {};
}

Status QuerySize(std::string_view bytes, size_t* work, size_t* weights) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(work, "workSize"));
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(weights, "weightSize"));
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<OfflineModel> model, runtime::OpenOfflineModel(bytes));
  *work = model->description().work_bytes;
  *weights = model->description().weight_bytes;
  return {};
}

// The buffers of a list, with the shapes that it tells.
StatusOr<std::vector<ModelBuffer>> BuffersOf(const ModelDataset& dataset) {
  std::vector<ModelBuffer> buffers;
  for (const ModelDataset::Entry& entry : dataset.entries) {
    REPRISE_ASSIGN_OR_RETURN(const runtime::DataBuffer* const buffer,
                             runtime::FindObject(runtime::DataBuffers(), entry.buffer, "aclDataBuffer"));
    ModelBuffer& read = buffers.emplace_back();
    read.data = buffer->data;
    read.bytes = buffer->bytes;
    const runtime::TensorDesc* const told =
        entry.descriptor != nullptr ? runtime::TensorDescs().Find(entry.descriptor) : nullptr;
    if (told == nullptr) continue;
    read.has_dims = true;
    read.dims = told->dims;
  }
  return buffers;
}

// What a run has made: shapes, and memory where the caller brought none.
Status TellOutputs(const ModelDescription& about, ModelDataset& dataset, const std::vector<ModelBuffer>& made) {
  for (size_t i = 0; i < made.size(); ++i) {
    ModelDataset::Entry& entry = dataset.entries[i];
    runtime::TensorDesc desc;
    desc.type = made[i].type;
    desc.format = about.outputs[i].format;
    desc.dims = made[i].dims;
    desc.name = about.outputs[i].name;
    REPRISE_ASSIGN_OR_RETURN(aclTensorDesc* const kept, KeepDescriptor(desc));
    SetDescriptor(entry, kept);
    if (runtime::DataBuffer* const buffer = runtime::DataBuffers().Find(entry.buffer);
        buffer != nullptr && buffer->data == nullptr) {
      *buffer = {made[i].data, made[i].bytes};
    }
  }
  return {};
}

Status Execute(uint32_t id, const aclmdlDataset* input, aclmdlDataset* output, runtime::Stream* stream) {
  REPRISE_ASSIGN_OR_RETURN(const ModelDataset* inputs, FindDataset(input, "input"));
  REPRISE_ASSIGN_OR_RETURN(ModelDataset * outputs, FindDataset(output, "output"));
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<OfflineModel> model, runtime::FindOfflineModel(id));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<ModelBuffer> given, BuffersOf(*inputs));
  REPRISE_ASSIGN_OR_RETURN(std::vector<ModelBuffer> made, BuffersOf(*outputs));
  REPRISE_RETURN_IF_ERROR(model->Run(stream, given, made, inputs->gear));
  return TellOutputs(model->description(), *outputs, made);
}

// ---- Gears ----

Status NoGears(uint32_t id, const char* which) {
  return Error(kModelNotDynamic, fmt::format("model {} was not built with {}", id, which))
      .Culprit("parameter modelId")
      .Hint(fmt::format("build it with the option {}", which));
}

Status ChooseGear(uint32_t id, aclmdlDataset* dataset, size_t index, GearKind kind, const char* option,
                  std::vector<int64_t> sizes) {
  REPRISE_ASSIGN_OR_RETURN(ModelDataset * found, FindDataset(dataset, "dataset"));
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<OfflineModel> model, runtime::FindOfflineModel(id));
  const ModelDescription& about = model->description();
  if (about.gear_kind != kind) return NoGears(id, option);
  if (index + 1 != about.inputs.size()) {
    return Error(kInvalidArgument,
                 fmt::format("index is {}, the input that chooses a gear is {}", index, about.inputs.size() - 1))
        .Culprit("parameter index")
        .Hint("pass the index that aclmdlGetInputIndexByName finds for ACL_DYNAMIC_TENSOR_NAME");
  }
  if (std::ranges::find(about.gears, sizes) == about.gears.end()) {
    std::vector<std::string> texts;
    for (const auto& gear : about.gears) texts.push_back(fmt::format("[{}]", fmt::join(gear, ", ")));
    return Error(kInvalidArgument, fmt::format("[{}] is no gear of model {}, which has {}", fmt::join(sizes, ", "), id,
                                               fmt::join(texts, " ")))
        .Culprit("sizes of the gear")
        .Hint("choose one of the gears that the model was built with");
  }
  found->gear = std::move(sizes);
  return {};
}

// The sizes that dims of all inputs, one after another, choose where gears differ.
StatusOr<std::vector<int64_t>> SizesOf(uint32_t id, const aclmdlIODims& dims) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<OfflineModel> model, runtime::FindOfflineModel(id));
  const ModelDescription& about = model->description();
  if (about.gear_kind != GearKind::kDims) return NoGears(id, "dynamic_dims");
  std::vector<int64_t> open;
  for (size_t i = 0; i + 1 < about.inputs.size(); ++i) {
    open.insert(open.end(), about.inputs[i].open_dims.begin(), about.inputs[i].open_dims.end());
  }
  std::vector<int64_t> sizes;
  if (dims.dimCount == open.size() && dims.dimCount <= ACL_MAX_DIM_CNT) {
    for (size_t d = 0; d < open.size(); ++d) {
      if (open[d] == -1) sizes.push_back(dims.dims[d]);
      if (open[d] == -1 || open[d] == dims.dims[d]) continue;
      return Error(kInvalidArgument, fmt::format("size {} is {}, model {} has {} there", d, dims.dims[d], id, open[d]))
          .Culprit("parameter dims")
          .Hint("take dims that aclmdlGetInputDynamicDims has written");
    }
    return sizes;
  }
  return Error(kInvalidArgument, fmt::format("dims has {} sizes, the inputs of model {} have {} together",
                                             dims.dimCount, id, open.size()))
      .Culprit("parameter dims")
      .Hint("take dims that aclmdlGetInputDynamicDims has written");
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: the helpers above
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

aclError aclmdlLoadFromFile(const char* modelPath, uint32_t* modelId) {
  return Api("aclmdlLoadFromFile", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, BytesOfFile(modelPath, "modelPath"));
    return Load(bytes, modelId, {});
  });
}

aclError aclmdlLoadFromMem(const void* model, size_t modelSize, uint32_t* modelId) {
  return Api("aclmdlLoadFromMem", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(model, modelSize));
    return Load(bytes, modelId, {});
  });
}

aclError aclmdlLoadFromFileWithMem(const char* modelPath, uint32_t* modelId, void* workPtr, size_t workSize,
                                   void* weightPtr, size_t weightSize) {
  return Api("aclmdlLoadFromFileWithMem", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, BytesOfFile(modelPath, "modelPath"));
    return Load(bytes, modelId, {workPtr, workSize, weightPtr, weightSize});
  });
}

aclError aclmdlLoadFromMemWithMem(const void* model, size_t modelSize, uint32_t* modelId, void* workPtr,
                                  size_t workSize, void* weightPtr, size_t weightSize) {
  return Api("aclmdlLoadFromMemWithMem", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(model, modelSize));
    return Load(bytes, modelId, {workPtr, workSize, weightPtr, weightSize});
  });
}

aclError aclmdlUnload(uint32_t modelId) {
  return Api("aclmdlUnload", [&] { return reprise::runtime::UnloadOfflineModel(modelId); });
}

aclError aclmdlQuerySize(const char* fileName, size_t* workSize, size_t* weightSize) {
  return Api("aclmdlQuerySize", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, BytesOfFile(fileName, "fileName"));
    return QuerySize(bytes, workSize, weightSize);
  });
}

aclError aclmdlQuerySizeFromMem(const void* model, size_t modelSize, size_t* workSize, size_t* weightSize) {
  return Api("aclmdlQuerySizeFromMem", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(model, modelSize));
    return QuerySize(bytes, workSize, weightSize);
  });
}

aclError aclmdlExecute(uint32_t modelId, const aclmdlDataset* input, aclmdlDataset* output) {
  return Api("aclmdlExecute", [&] { return Execute(modelId, input, output, nullptr); });
}

aclError aclmdlExecuteAsync(uint32_t modelId, const aclmdlDataset* input, aclmdlDataset* output, aclrtStream stream) {
  return Api("aclmdlExecuteAsync", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(reprise::runtime::Stream * found, reprise::runtime::FindStream(stream));
    return Execute(modelId, input, output, found);
  });
}

aclError aclmdlSetDynamicBatchSize(uint32_t modelId, aclmdlDataset* dataset, size_t index, uint64_t batchSize) {
  return Api("aclmdlSetDynamicBatchSize", [&] {
    return ChooseGear(modelId, dataset, index, reprise::runtime::GearKind::kBatch, "dynamic_batch_size",
                      {static_cast<int64_t>(batchSize)});
  });
}

aclError aclmdlSetDynamicHWSize(uint32_t modelId, aclmdlDataset* dataset, size_t index, uint64_t height,
                                uint64_t width) {
  return Api("aclmdlSetDynamicHWSize", [&] {
    return ChooseGear(modelId, dataset, index, reprise::runtime::GearKind::kImage, "dynamic_image_size",
                      {static_cast<int64_t>(height), static_cast<int64_t>(width)});
  });
}

aclError aclmdlSetInputDynamicDims(uint32_t modelId, aclmdlDataset* dataset, size_t index, const aclmdlIODims* dims) {
  return Api("aclmdlSetInputDynamicDims", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dims, "dims"));
    REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, SizesOf(modelId, *dims));
    return ChooseGear(modelId, dataset, index, reprise::runtime::GearKind::kDims, "dynamic_dims", std::move(sizes));
  });
}
