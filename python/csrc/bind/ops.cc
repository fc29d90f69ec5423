// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "bind/bindings.h"
#include "ops/meta_pass.h"
#include "ops/npu_ops.h"

namespace torch_npu {

void BindOps(pybind11::module_& module) {
  module.def("_meta_pass_counts", [] {
    const MetaCounts counts = CountsOfMetaPass();
    return pybind11::make_tuple(counts.hits, counts.misses);
  });
  module.def("_bind_operator", BindOperator);
  module.def("_bind_host_kernel", BindHostKernel);
  module.def("_bind_workspace", BindWorkspace);
  module.def("_bind_derivative", BindDerivative);
  module.def("_refuse_operator", RefuseOperator);
  module.def("_get_npu_format", FormatOf);
  module.def("_set_npu_format", SetFormat);
}

}  // namespace torch_npu
