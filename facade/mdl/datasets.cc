// SPDX-License-Identifier: Apache-2.0
//
// aclmdlDataset: lists of buffers for inputs or outputs of a model, with descriptors where shapes are told or found.
#include "datasets.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "acl/acl_mdl.h"
#include "runtime/report.h"

namespace reprise::facade {

StatusOr<ModelDataset*> FindDataset(const aclmdlDataset* dataset, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(dataset, parameter));
  return runtime::FindObject(runtime::ModelDatasets(), dataset, "aclmdlDataset");
}

Status CheckEntry(const ModelDataset& dataset, size_t index) {
  if (index < dataset.entries.size()) return {};
  return Error(kInvalidArgument, fmt::format("index is {}, the list has {} buffers", index, dataset.entries.size()))
      .Culprit("parameter index")
      .Hint("pass an index below aclmdlGetDatasetNumBuffers");
}

StatusOr<aclTensorDesc*> KeepDescriptor(const runtime::TensorDesc& copied) {
  auto desc = std::make_unique<runtime::TensorDesc>(copied);
  void* const handle = runtime::TensorDescs().Insert(desc.get());
  if (handle == nullptr) {
    return Error(kOutOfHostMemory, "the process has too many tensor descriptors").Hint("destroy lists of buffers");
  }
  (void)desc.release();  // the table holds it
  return static_cast<aclTensorDesc*>(handle);
}

void SetDescriptor(ModelDataset::Entry& entry, void* handle) {
  if (entry.descriptor != nullptr) runtime::TensorDescs().Destroy(entry.descriptor);
  entry.descriptor = handle;
}

}  // namespace reprise::facade

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::facade::CheckEntry;
using reprise::facade::FindDataset;
using reprise::runtime::Api;
using reprise::runtime::ModelDataset;
using reprise::runtime::ModelDatasets;
using reprise::runtime::NotNull;

aclmdlDataset* aclmdlCreateDataset() {
  void* handle = nullptr;
  Api("aclmdlCreateDataset", [&]() -> Status {
    auto dataset = std::make_unique<ModelDataset>();
    handle = ModelDatasets().Insert(dataset.get());
    if (handle == nullptr) {
      return Error(kOutOfHostMemory, "the process has too many lists of buffers").Hint("call aclmdlDestroyDataset");
    }
    (void)dataset.release();  // the table holds it until aclmdlDestroyDataset
    return {};
  });
  return static_cast<aclmdlDataset*>(handle);
}

aclError aclmdlDestroyDataset(const aclmdlDataset* dataset) {
  return Api("aclmdlDestroyDataset", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    if (ModelDatasets().Destroy(dataset)) return {};
    return reprise::runtime::NotLive(ModelDatasets(), dataset, "aclmdlDataset");
  });
}

aclError aclmdlAddDatasetBuffer(aclmdlDataset* dataset, aclDataBuffer* dataBuffer) {
  return Api("aclmdlAddDatasetBuffer", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(ModelDataset * found, FindDataset(dataset, "dataset"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataBuffer, "dataBuffer"));
    REPRISE_ASSIGN_OR_RETURN(
        [[maybe_unused]] const auto* buffer,
        reprise::runtime::FindObject(reprise::runtime::DataBuffers(), dataBuffer, "aclDataBuffer"));
    found->entries.push_back({dataBuffer, nullptr});
    return {};
  });
}

size_t aclmdlGetDatasetNumBuffers(const aclmdlDataset* dataset) {
  size_t count = 0;
  Api("aclmdlGetDatasetNumBuffers", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelDataset* found, FindDataset(dataset, "dataset"));
    count = found->entries.size();
    return {};
  });
  return count;
}

aclDataBuffer* aclmdlGetDatasetBuffer(const aclmdlDataset* dataset, size_t index) {
  void* buffer = nullptr;
  Api("aclmdlGetDatasetBuffer", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelDataset* found, FindDataset(dataset, "dataset"));
    REPRISE_RETURN_IF_ERROR(CheckEntry(*found, index));
    buffer = found->entries[index].buffer;
    return {};
  });
  return static_cast<aclDataBuffer*>(buffer);
}

aclError aclmdlSetDatasetTensorDesc(aclmdlDataset* dataset, aclTensorDesc* tensorDesc, size_t index) {
  return Api("aclmdlSetDatasetTensorDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(ModelDataset * found, FindDataset(dataset, "dataset"));
    REPRISE_RETURN_IF_ERROR(CheckEntry(*found, index));
    if (tensorDesc == nullptr) {  // none any more
      reprise::facade::SetDescriptor(found->entries[index], nullptr);
      return {};
    }
    REPRISE_ASSIGN_OR_RETURN(
        const reprise::runtime::TensorDesc* const desc,
        reprise::runtime::FindObject(reprise::runtime::TensorDescs(), tensorDesc, "aclTensorDesc"));
    REPRISE_ASSIGN_OR_RETURN(aclTensorDesc* const kept, reprise::facade::KeepDescriptor(*desc));
    reprise::facade::SetDescriptor(found->entries[index], kept);
    return {};
  });
}

aclTensorDesc* aclmdlGetDatasetTensorDesc(const aclmdlDataset* dataset, size_t index) {
  void* descriptor = nullptr;
  Api("aclmdlGetDatasetTensorDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelDataset* found, FindDataset(dataset, "dataset"));
    REPRISE_RETURN_IF_ERROR(CheckEntry(*found, index));
    descriptor = found->entries[index].descriptor;
    if (descriptor != nullptr) return {};
    return Error(kInvalidArgument, fmt::format("buffer {} has no descriptor", index))
        .Culprit("parameter index")
        .Hint("set one with aclmdlSetDatasetTensorDesc; outputs have one behind a run");
  });
  return static_cast<aclTensorDesc*>(descriptor);
}
