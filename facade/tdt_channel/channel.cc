// SPDX-License-Identifier: Apache-2.0
//
// Tensor channels, datasets and data items.
#include "tdt/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "acl/acl_tdt.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
namespace tdt = reprise::tdt;
using runtime::Api;
using runtime::NotNull;

namespace {

// Body of the functions that return an object or a part of one: null, and a message, when there is none.
template <class T, class Get>
T* Pointer(const char* api, Get get) noexcept {
  void* handle = nullptr;
  Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(handle, get());
    return {};
  });
  return static_cast<T*>(handle);
}

// For the functions that return a property of an item: null, and a message, when there is no such item.
tdt::ItemRef ItemOrNull(const char* api, const acltdtDataItem* item) noexcept {
  tdt::ItemRef found;
  Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(item, "dataItem"));
    REPRISE_ASSIGN_OR_RETURN(found, tdt::FindItem(item));
    return {};
  });
  return found;
}

}  // namespace

// ---- Items ----

acltdtDataItem* acltdtCreateDataItem(acltdtTensorType tdtType, const int64_t* dims, size_t dimNum, aclDataType dataType,
                                     void* data, size_t size) {
  return Pointer<acltdtDataItem>("acltdtCreateDataItem",
                                 [&] { return tdt::CreateItem(tdtType, dims, dimNum, dataType, data, size); });
}

aclError acltdtDestroyDataItem(acltdtDataItem* dataItem) {
  return Api("acltdtDestroyDataItem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataItem, "dataItem"));
    return tdt::DestroyItem(dataItem);
  });
}

acltdtTensorType acltdtGetTensorTypeFromItem(const acltdtDataItem* dataItem) {
  const tdt::ItemRef item = ItemOrNull("acltdtGetTensorTypeFromItem", dataItem);
  return item == nullptr ? ACL_TENSOR_DATA_UNDEFINED : static_cast<acltdtTensorType>(item->type);
}

aclDataType acltdtGetDataTypeFromItem(const acltdtDataItem* dataItem) {
  const tdt::ItemRef item = ItemOrNull("acltdtGetDataTypeFromItem", dataItem);
  return item == nullptr ? ACL_DT_UNDEFINED : static_cast<aclDataType>(item->data_type);
}

void* acltdtGetDataAddrFromItem(const acltdtDataItem* dataItem) {
  const tdt::ItemRef item = ItemOrNull("acltdtGetDataAddrFromItem", dataItem);
  return item == nullptr ? nullptr : item->data;
}

size_t acltdtGetDataSizeFromItem(const acltdtDataItem* dataItem) {
  const tdt::ItemRef item = ItemOrNull("acltdtGetDataSizeFromItem", dataItem);
  return item == nullptr ? 0 : item->bytes;
}

size_t acltdtGetDimNumFromItem(const acltdtDataItem* dataItem) {
  const tdt::ItemRef item = ItemOrNull("acltdtGetDimNumFromItem", dataItem);
  return item == nullptr ? 0 : item->dims.size();
}

aclError acltdtGetDimsFromItem(const acltdtDataItem* dataItem, int64_t* dims, size_t dimNum) {
  return Api("acltdtGetDimsFromItem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataItem, "dataItem"));
    REPRISE_ASSIGN_OR_RETURN(const tdt::ItemRef item, tdt::FindItem(dataItem));
    if (dimNum != 0) REPRISE_RETURN_IF_ERROR(NotNull(dims, "dims"));
    if (dimNum < item->dims.size()) {
      return Error(kInvalidArgument, fmt::format("dimNum is {}, the item has {} dimensions", dimNum, item->dims.size()))
          .Culprit("parameter dimNum")
          .Hint("pass room for as many as acltdtGetDimNumFromItem returns");
    }
    std::copy(item->dims.begin(), item->dims.end(), dims);
    return {};
  });
}

aclError acltdtGetSliceInfoFromItem(const acltdtDataItem* dataItem, size_t* sliceNum, size_t* sliceId) {
  return Api("acltdtGetSliceInfoFromItem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataItem, "dataItem"));
    REPRISE_RETURN_IF_ERROR(NotNull(sliceNum, "sliceNum"));
    REPRISE_RETURN_IF_ERROR(NotNull(sliceId, "sliceId"));
    REPRISE_RETURN_IF_ERROR(tdt::FindItem(dataItem).status());
    // Channels inside the process never cut a tensor.
    *sliceNum = 0;
    *sliceId = 0;
    return {};
  });
}

// ---- Datasets ----

acltdtDataset* acltdtCreateDataset(void) {
  return Pointer<acltdtDataset>("acltdtCreateDataset", [] { return tdt::CreateDataset(); });
}

aclError acltdtDestroyDataset(acltdtDataset* dataset) {
  return Api("acltdtDestroyDataset", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    return tdt::DestroyDataset(dataset);
  });
}

aclError acltdtAddDataItem(acltdtDataset* dataset, acltdtDataItem* dataItem) {
  return Api("acltdtAddDataItem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataItem, "dataItem"));
    return tdt::AddItem(dataset, dataItem);
  });
}

acltdtDataItem* acltdtGetDataItem(const acltdtDataset* dataset, size_t index) {
  return Pointer<acltdtDataItem>("acltdtGetDataItem", [&]() -> reprise::StatusOr<void*> {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    return tdt::DatasetItem(dataset, index);
  });
}

size_t acltdtGetDatasetSize(const acltdtDataset* dataset) {
  size_t size = 0;
  Api("acltdtGetDatasetSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    REPRISE_ASSIGN_OR_RETURN(size, tdt::DatasetSize(dataset));
    return {};
  });
  return size;
}

const char* acltdtGetDatasetName(const acltdtDataset* dataset) {
  const char* name = nullptr;
  Api("acltdtGetDatasetName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    REPRISE_ASSIGN_OR_RETURN(name, tdt::DatasetName(dataset));
    return {};
  });
  return name;
}

// ---- Channels ----

acltdtChannelHandle* acltdtCreateChannel(uint32_t deviceId, const char* name) {
  return Pointer<acltdtChannelHandle>("acltdtCreateChannel", [&]() -> reprise::StatusOr<void*> {
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    return tdt::OpenChannel(deviceId, name, 0);
  });
}

acltdtChannelHandle* acltdtCreateChannelWithCapacity(uint32_t deviceId, const char* name, size_t capacity) {
  return Pointer<acltdtChannelHandle>("acltdtCreateChannelWithCapacity", [&]() -> reprise::StatusOr<void*> {
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    if (capacity == 0) {
      return Error(kInvalidArgument, fmt::format("capacity is 0, must be 1 to {}", tdt::kMaxCapacity))
          .Culprit("parameter capacity")
          .Hint("pass how many datasets the channel holds at most");
    }
    return tdt::OpenChannel(deviceId, name, capacity);
  });
}

aclError acltdtDestroyChannel(acltdtChannelHandle* handle) {
  return Api("acltdtDestroyChannel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    return tdt::CloseChannel(handle);
  });
}

aclError acltdtStopChannel(acltdtChannelHandle* handle) {
  return Api("acltdtStopChannel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    return tdt::StopChannel(handle);
  });
}

aclError acltdtCleanChannel(acltdtChannelHandle* handle) {
  return Api("acltdtCleanChannel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    return tdt::CleanChannel(handle);
  });
}

aclError acltdtSendTensor(const acltdtChannelHandle* handle, const acltdtDataset* dataset, int32_t timeout) {
  return Api("acltdtSendTensor", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    return tdt::Send(handle, dataset, timeout);
  });
}

aclError acltdtReceiveTensor(const acltdtChannelHandle* handle, acltdtDataset* dataset, int32_t timeout) {
  return Api("acltdtReceiveTensor", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataset, "dataset"));
    return tdt::Receive(handle, dataset, timeout);
  });
}

aclError acltdtQueryChannelSize(const acltdtChannelHandle* handle, size_t* size) {
  return Api("acltdtQueryChannelSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    REPRISE_ASSIGN_OR_RETURN(*size, tdt::ChannelSize(handle));
    return {};
  });
}
