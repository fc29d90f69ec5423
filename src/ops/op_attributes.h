// SPDX-License-Identifier: Apache-2.0
//
// Attributes: what stands behind aclopAttr*, the attributes of an operator that is called by its type.
#pragma once

#include <cstdint>

#include "base/handle_table.h"
#include "base/status.h"
#include "opdef/attribute.h"

namespace reprise::ops {

using opdef::Attributes;
using opdef::AttributeValue;
using opdef::DataTypeValue;

/// Most entries of a list, and of a list of lists in all.
inline constexpr int64_t kMaxAttributeEntries = int64_t{1} << 20;

HandleTable<Attributes, HandleKind::kOpAttributes>& AttributeSets();

/// 200000 when the process has too many.
StatusOr<void*> CreateAttributes();
/// Null is fine; 107017 for anything else that is not live.
Status DestroyAttributes(const void* handle);
/// 100000 for null, 107017 for anything else that is not live.
StatusOr<Attributes*> FindAttributes(const void* handle);

}  // namespace reprise::ops
