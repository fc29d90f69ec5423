// SPDX-License-Identifier: Apache-2.0
#include "runtime/descriptors.h"

namespace reprise::runtime {

HandleTable<TensorDesc, HandleKind::kTensorDesc>& TensorDescs() {
  static auto* const table = new HandleTable<TensorDesc, HandleKind::kTensorDesc>;
  return *table;
}

HandleTable<DataBuffer, HandleKind::kDataBuffer>& DataBuffers() {
  static auto* const table = new HandleTable<DataBuffer, HandleKind::kDataBuffer>;
  return *table;
}

}  // namespace reprise::runtime
