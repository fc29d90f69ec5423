// SPDX-License-Identifier: Apache-2.0
#include "bind/bindings.h"

namespace torch_npu {

void BindGenerator(pybind11::module_&) {}

}  // namespace torch_npu
