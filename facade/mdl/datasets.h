// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "acl/acl_mdl.h"
#include "base/status.h"
#include "runtime/descriptors.h"
#include "runtime/offline_model.h"

namespace reprise::facade {

using runtime::ModelDataset;

StatusOr<ModelDataset*> FindDataset(const aclmdlDataset* dataset, const char* parameter);
/// 100000 for an index that the list does not have.
Status CheckEntry(const ModelDataset& dataset, size_t index);
/// A descriptor for a list to own.
StatusOr<aclTensorDesc*> KeepDescriptor(const runtime::TensorDesc& copied);
/// In the place of the one that the entry has; null: none.
void SetDescriptor(ModelDataset::Entry& entry, void* handle);

}  // namespace reprise::facade
