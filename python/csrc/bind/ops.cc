// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/Exceptions.h>

#include <string>

#include "bind/bindings.h"
#include "ops/compiled.h"
#include "ops/kernel_scope.h"
#include "ops/meta_pass.h"

namespace torch_npu {

void BindOps(pybind11::module_& module) {
  module.def("_meta_pass_counts", [] {
    const MetaCounts counts = CountsOfMetaPass();
    return pybind11::make_tuple(counts.hits, counts.misses);
  });
  module.def("_kernel_threads", &KernelThreads);
  pybind11::class_<CompiledKernel>(module, "_CompiledKernel")
      .def(pybind11::init(torch::wrap_pybind_function([](std::string name, uint64_t address, std::string kinds) {
             return std::make_unique<CompiledKernel>(std::move(name), address, std::move(kinds));
           })),
           pybind11::arg("name"), pybind11::arg("address"), pybind11::arg("kinds"))
      .def("__call__", torch::wrap_pybind_function(
                           [](const CompiledKernel& self, const pybind11::args& arguments) { self(arguments); }));
}

}  // namespace torch_npu
