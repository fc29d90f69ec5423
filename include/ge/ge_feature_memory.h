/* SPDX-License-Identifier: Apache-2.0 */
/* A part of the memory of intermediate results. */
#ifndef REPRISE_GE_GE_FEATURE_MEMORY_H_
#define REPRISE_GE_GE_FEATURE_MEMORY_H_

#include <cstddef>
#include <memory>

#include "ge/ge_api_types.h"

#pragma GCC visibility push(default)

namespace ge {

class FeatureMemory {
 public:
  ~FeatureMemory();
  FeatureMemory(const FeatureMemory&) = delete;
  FeatureMemory& operator=(const FeatureMemory&) = delete;

  MemoryType GetType() const;
  size_t GetSize() const;
  bool IsFixed() const;

 private:
  friend class CompiledGraphSummary;
  FeatureMemory(MemoryType type, size_t size, bool is_fixed);
  struct Data;
  std::shared_ptr<Data> data_;
};
using FeatureMemoryPtr = std::shared_ptr<FeatureMemory>;

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GE_GE_FEATURE_MEMORY_H_
