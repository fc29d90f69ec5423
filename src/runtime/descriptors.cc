// SPDX-License-Identifier: Apache-2.0
#include "runtime/descriptors.h"

namespace reprise::runtime {

HandleTable<TensorDesc, HandleKind::kTensorDesc>& TensorDescs() {
  return TheTable<TensorDesc, HandleKind::kTensorDesc>();
}

HandleTable<DataBuffer, HandleKind::kDataBuffer>& DataBuffers() {
  return TheTable<DataBuffer, HandleKind::kDataBuffer>();
}

}  // namespace reprise::runtime
