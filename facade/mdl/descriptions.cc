// SPDX-License-Identifier: Apache-2.0
//
// aclmdlDesc: what the inputs and outputs of a model are.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "acl/acl_mdl.h"
#include "runtime/objects.h"
#include "runtime/offline_model.h"
#include "runtime/report.h"

namespace reprise::facade {
namespace {

using runtime::Api;
using runtime::GearKind;
using runtime::ModelDesc;
using runtime::ModelDescription;
using runtime::ModelDescs;
using runtime::ModelTensor;
using Tensors = std::vector<ModelTensor>;

enum class Side : uint8_t { kInputs, kOutputs };

StatusOr<ModelDesc*> Find(const aclmdlDesc* desc) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(desc, "modelDesc"));
  return runtime::FindObject(ModelDescs(), desc, "aclmdlDesc");
}

StatusOr<const ModelDescription*> Filled(const aclmdlDesc* desc) {
  REPRISE_ASSIGN_OR_RETURN(const ModelDesc* const found, Find(desc));
  if (found->about != nullptr) return found->about.get();
  return Error(kInvalidArgument, "modelDesc describes no model yet")
      .Culprit("parameter modelDesc")
      .Hint("fill it with aclmdlGetDesc");
}

const Tensors& Of(const ModelDescription& about, Side side) {
  return side == Side::kInputs ? about.inputs : about.outputs;
}

StatusOr<const ModelTensor*> TensorAt(const aclmdlDesc* desc, size_t index, Side side) {
  REPRISE_ASSIGN_OR_RETURN(const ModelDescription* const about, Filled(desc));
  const Tensors& tensors = Of(*about, side);
  if (index < tensors.size()) return &tensors[index];
  return Error(kInvalidArgument, fmt::format("index is {}, the model has {} {}", index, tensors.size(),
                                             side == Side::kInputs ? "inputs" : "outputs"))
      .Culprit("parameter index")
      .Hint(side == Side::kInputs ? "pass an index below aclmdlGetNumInputs"
                                  : "pass an index below aclmdlGetNumOutputs");
}

// For getters that return a value: a failure leaves a message, and the value is `none`.
template <class T, class Read>
T ValueOr(const char* api, T none, const aclmdlDesc* desc, size_t index, Side side, Read read) {
  T value = none;
  Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelTensor* const tensor, TensorAt(desc, index, side));
    value = read(*tensor);
    return {};
  });
  return value;
}

size_t CountOf(const char* api, const aclmdlDesc* desc, Side side) {
  size_t count = 0;
  Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelDescription* const about, Filled(desc));
    count = Of(*about, side).size();
    return {};
  });
  return count;
}

Status WriteDims(const std::string& name, const std::vector<int64_t>& sizes, aclmdlIODims* dims) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(dims, "dims"));
  if (sizes.size() > ACL_MAX_DIM_CNT) {
    return Error(kInvalidArgument,
                 fmt::format("{} has {} dims, aclmdlIODims holds {}", name, sizes.size(), ACL_MAX_DIM_CNT))
        .Culprit("parameter dims")
        .Hint("ask for the sizes of inputs one by one");
  }
  std::memset(dims, 0, sizeof *dims);
  name.copy(dims->name, ACL_MAX_TENSOR_NAME_LEN - 1);
  dims->dimCount = sizes.size();
  std::copy(sizes.begin(), sizes.end(), dims->dims);
  return {};
}

aclError DimsOf(const char* api, const aclmdlDesc* desc, size_t index, Side side, aclmdlIODims* dims) {
  return Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelTensor* const tensor, TensorAt(desc, index, side));
    return WriteDims(tensor->alias, side == Side::kInputs ? tensor->open_dims : tensor->dims, dims);
  });
}

aclError IndexOf(const char* api, const aclmdlDesc* desc, const char* name, Side side, size_t* index) {
  return Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelDescription* const about, Filled(desc));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(name, "name"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(index, "index"));
    const Tensors& tensors = Of(*about, side);
    const auto found =
        std::ranges::find_if(tensors, [name](const ModelTensor& t) { return t.name == name || t.alias == name; });
    if (found != tensors.end()) {
      *index = static_cast<size_t>(found - tensors.begin());
      return {};
    }
    return Error(kInvalidArgument,
                 fmt::format("the model has no {} {}", side == Side::kInputs ? "input" : "output", name))
        .Culprit("parameter name")
        .Hint("use a name that aclmdlGetInputNameByIndex or aclmdlGetOutputNameByIndex gives");
  });
}

// Fills a description, whose texts stay where they are until it is filled again.
Status Fill(aclmdlDesc* desc, const std::shared_ptr<runtime::OfflineModel>& model) {
  REPRISE_ASSIGN_OR_RETURN(ModelDesc * found, Find(desc));
  found->about = std::make_shared<const ModelDescription>(model->description());
  return {};
}

Status WrongKind(const char* which) {
  return Error(kModelNotDynamic, fmt::format("the model was not built with {}", which))
      .Culprit("parameter modelDesc")
      .Hint(fmt::format("build it with the option {}", which));
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: the helpers above
using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::NotNull;

aclmdlDesc* aclmdlCreateDesc() {
  void* handle = nullptr;
  Api("aclmdlCreateDesc", [&]() -> Status {
    auto desc = std::make_unique<ModelDesc>();
    handle = ModelDescs().Insert(desc.get());
    if (handle == nullptr) {
      return Error(kOutOfHostMemory, "the process has too many descriptions of models").Hint("call aclmdlDestroyDesc");
    }
    (void)desc.release();  // the table holds it until aclmdlDestroyDesc
    return {};
  });
  return static_cast<aclmdlDesc*>(handle);
}

aclError aclmdlDestroyDesc(aclmdlDesc* modelDesc) {
  return Api("aclmdlDestroyDesc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelDesc, "modelDesc"));
    if (ModelDescs().Destroy(modelDesc)) return {};
    return reprise::runtime::NotLive(ModelDescs(), modelDesc, "aclmdlDesc");
  });
}

aclError aclmdlGetDesc(aclmdlDesc* modelDesc, uint32_t modelId) {
  return Api("aclmdlGetDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto model, reprise::runtime::FindOfflineModel(modelId));
    return Fill(modelDesc, model);
  });
}

aclError aclmdlGetDescFromFile(aclmdlDesc* modelDesc, const char* modelPath) {
  return Api("aclmdlGetDescFromFile", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelPath, "modelPath"));
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, reprise::runtime::ReadModelFile(modelPath));
    REPRISE_ASSIGN_OR_RETURN(const auto model, reprise::runtime::OpenOfflineModel(bytes));
    return Fill(modelDesc, model);
  });
}

aclError aclmdlGetDescFromMem(aclmdlDesc* modelDesc, const void* model, size_t modelSize) {
  return Api("aclmdlGetDescFromMem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(model, "model"));
    REPRISE_ASSIGN_OR_RETURN(const auto opened,
                             reprise::runtime::OpenOfflineModel({static_cast<const char*>(model), modelSize}));
    return Fill(modelDesc, opened);
  });
}

size_t aclmdlGetNumInputs(aclmdlDesc* modelDesc) { return CountOf("aclmdlGetNumInputs", modelDesc, Side::kInputs); }
size_t aclmdlGetNumOutputs(aclmdlDesc* modelDesc) { return CountOf("aclmdlGetNumOutputs", modelDesc, Side::kOutputs); }

size_t aclmdlGetInputSizeByIndex(aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetInputSizeByIndex", size_t{0}, modelDesc, index, Side::kInputs,
                 [](const ModelTensor& tensor) { return tensor.bytes; });
}
size_t aclmdlGetOutputSizeByIndex(aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetOutputSizeByIndex", size_t{0}, modelDesc, index, Side::kOutputs,
                 [](const ModelTensor& tensor) { return tensor.bytes; });
}

aclError aclmdlGetInputDims(const aclmdlDesc* modelDesc, size_t index, aclmdlIODims* dims) {
  return DimsOf("aclmdlGetInputDims", modelDesc, index, Side::kInputs, dims);
}
aclError aclmdlGetInputDimsV2(const aclmdlDesc* modelDesc, size_t index, aclmdlIODims* dims) {
  return DimsOf("aclmdlGetInputDimsV2", modelDesc, index, Side::kInputs, dims);
}
aclError aclmdlGetOutputDims(const aclmdlDesc* modelDesc, size_t index, aclmdlIODims* dims) {
  return DimsOf("aclmdlGetOutputDims", modelDesc, index, Side::kOutputs, dims);
}

const char* aclmdlGetInputNameByIndex(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetInputNameByIndex", static_cast<const char*>(nullptr), modelDesc, index, Side::kInputs,
                 [](const ModelTensor& tensor) { return tensor.name.c_str(); });
}
const char* aclmdlGetOutputNameByIndex(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetOutputNameByIndex", static_cast<const char*>(nullptr), modelDesc, index, Side::kOutputs,
                 [](const ModelTensor& tensor) { return tensor.name.c_str(); });
}

aclError aclmdlGetInputIndexByName(const aclmdlDesc* modelDesc, const char* name, size_t* index) {
  return IndexOf("aclmdlGetInputIndexByName", modelDesc, name, Side::kInputs, index);
}
aclError aclmdlGetOutputIndexByName(const aclmdlDesc* modelDesc, const char* name, size_t* index) {
  return IndexOf("aclmdlGetOutputIndexByName", modelDesc, name, Side::kOutputs, index);
}

const char* aclmdlGetTensorRealName(const aclmdlDesc* modelDesc, const char* name) {
  const char* real = nullptr;
  Api("aclmdlGetTensorRealName", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* const about, Filled(modelDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    for (const Tensors* const tensors : {&about->inputs, &about->outputs}) {
      for (const ModelTensor& tensor : *tensors) {
        if (real == nullptr && (tensor.alias == name || tensor.name == name)) real = tensor.name.c_str();
      }
    }
    if (real != nullptr) return {};
    return Error(kInvalidArgument, fmt::format("the model has no tensor {}", name))
        .Culprit("parameter name")
        .Hint("pass a name that aclmdlGetInputDims or aclmdlGetOutputDims has written");
  });
  return real;
}

aclFormat aclmdlGetInputFormat(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetInputFormat", ACL_FORMAT_UNDEFINED, modelDesc, index, Side::kInputs,
                 [](const ModelTensor& tensor) { return static_cast<aclFormat>(tensor.format); });
}
aclFormat aclmdlGetOutputFormat(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetOutputFormat", ACL_FORMAT_UNDEFINED, modelDesc, index, Side::kOutputs,
                 [](const ModelTensor& tensor) { return static_cast<aclFormat>(tensor.format); });
}
aclDataType aclmdlGetInputDataType(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetInputDataType", ACL_DT_UNDEFINED, modelDesc, index, Side::kInputs,
                 [](const ModelTensor& tensor) { return static_cast<aclDataType>(tensor.type); });
}
aclDataType aclmdlGetOutputDataType(const aclmdlDesc* modelDesc, size_t index) {
  return ValueOr("aclmdlGetOutputDataType", ACL_DT_UNDEFINED, modelDesc, index, Side::kOutputs,
                 [](const ModelTensor& tensor) { return static_cast<aclDataType>(tensor.type); });
}

// ---- Gears ----

aclError aclmdlGetDynamicBatch(const aclmdlDesc* modelDesc, aclmdlBatch* batch) {
  return Api("aclmdlGetDynamicBatch", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* const about, Filled(modelDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(batch, "batch"));
    std::memset(batch, 0, sizeof *batch);  // of a model without such gears: none
    if (about->gear_kind != GearKind::kBatch) return {};
    for (const auto& gear : about->gears) batch->batch[batch->batchCount++] = static_cast<uint64_t>(gear[0]);
    return {};
  });
}

aclError aclmdlGetDynamicHW(const aclmdlDesc* modelDesc, size_t /*index*/, aclmdlHW* hw) {
  return Api("aclmdlGetDynamicHW", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* const about, Filled(modelDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(hw, "hw"));
    std::memset(hw, 0, sizeof *hw);
    if (about->gear_kind != GearKind::kImage) return {};
    for (const auto& gear : about->gears) {
      hw->hw[hw->hwCount][0] = static_cast<uint64_t>(gear[0]);
      hw->hw[hw->hwCount++][1] = static_cast<uint64_t>(gear[1]);
    }
    return {};
  });
}

aclError aclmdlGetInputDynamicGearCount(const aclmdlDesc* modelDesc, size_t /*index*/, size_t* gearCount) {
  return Api("aclmdlGetInputDynamicGearCount", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* const about, Filled(modelDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(gearCount, "gearCount"));
    *gearCount = about->gear_kind == GearKind::kDims ? about->gears.size() : 0;
    return {};
  });
}

aclError aclmdlGetInputDynamicDims(const aclmdlDesc* modelDesc, size_t /*index*/, aclmdlIODims* dims,
                                   size_t gearCount) {
  return Api("aclmdlGetInputDynamicDims", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* const about, Filled(modelDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(dims, "dims"));
    if (about->gear_kind != GearKind::kDims) return WrongKind("dynamic_dims");
    if (gearCount < about->gears.size()) {
      return Error(kInvalidArgument,
                   fmt::format("gearCount is {}, the model has {} gears", gearCount, about->gears.size()))
          .Culprit("parameter gearCount")
          .Hint("pass what aclmdlGetInputDynamicGearCount has written");
    }
    for (size_t g = 0; g < about->gears.size(); ++g) {
      std::vector<int64_t> sizes;
      size_t next = 0;
      for (size_t i = 0; i + 1 < about->inputs.size(); ++i) {
        for (const int64_t size : about->inputs[i].open_dims) {
          sizes.push_back(size == -1 && next < about->gears[g].size() ? about->gears[g][next++] : size);
        }
      }
      REPRISE_RETURN_IF_ERROR(WriteDims("", sizes, &dims[g]));
    }
    return {};
  });
}
