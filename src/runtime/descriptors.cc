// SPDX-License-Identifier: Apache-2.0
#include "runtime/descriptors.h"

namespace reprise::runtime {

HandleTable<TensorDesc, HandleKind::kTensorDesc>& TensorDescs() {
  static constinit NoDestroy<HandleTable<TensorDesc, HandleKind::kTensorDesc>> table;
  return table.value;
}

HandleTable<DataBuffer, HandleKind::kDataBuffer>& DataBuffers() {
  static constinit NoDestroy<HandleTable<DataBuffer, HandleKind::kDataBuffer>> table;
  return table.value;
}

}  // namespace reprise::runtime
