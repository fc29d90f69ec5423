// SPDX-License-Identifier: Apache-2.0
#include "bind/bindings.h"
#include "ops/meta_pass.h"

namespace torch_npu {

void BindOps(pybind11::module_& module) {
  module.def("_meta_pass_counts", [] {
    const MetaCounts counts = CountsOfMetaPass();
    return pybind11::make_tuple(counts.hits, counts.misses);
  });
}

}  // namespace torch_npu
