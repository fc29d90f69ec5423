// SPDX-License-Identifier: Apache-2.0
#include "ops/op_attributes.h"

#include <fmt/format.h>

#include <memory>

#include "runtime/objects.h"
#include "runtime/report.h"

namespace reprise::ops {
HandleTable<Attributes, HandleKind::kOpAttributes>& AttributeSets() {
  return TheTable<Attributes, HandleKind::kOpAttributes>();
}

StatusOr<void*> CreateAttributes() {
  auto attributes = std::make_unique<Attributes>();
  void* handle = AttributeSets().Insert(attributes.get());
  if (handle == nullptr) {
    return Error(kOutOfHostMemory, "the process has too many attribute sets")
        .Culprit(fmt::format("{} live attribute sets", AttributeSets().live()))
        .Hint("destroy those that are no longer needed with aclopDestroyAttr");
  }
  (void)attributes.release();  // the table holds it
  return handle;
}

Status DestroyAttributes(const void* handle) {
  if (handle == nullptr) return {};
  const std::unique_ptr<Attributes> attributes(AttributeSets().Erase(handle));
  if (attributes != nullptr) return {};
  return runtime::FindObject(AttributeSets(), handle, "aclopAttr").status();
}

StatusOr<Attributes*> FindAttributes(const void* handle) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(handle, "attr"));
  return runtime::FindObject(AttributeSets(), handle, "aclopAttr");
}

}  // namespace reprise::ops
