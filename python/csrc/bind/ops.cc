// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <reprise/verbose.h>
#include <torch/csrc/Exceptions.h>

#include <memory>
#include <string>

#include "bind/bindings.h"
#include "ops/compiled.h"
#include "ops/kernel_scope.h"
#include "ops/known_calls.h"
#include "ops/meta_pass.h"
#include "ops/native.h"
#include "ops/npu_ops.h"

namespace torch_npu {

void BindOps(pybind11::module_& module) {
  module.def("_meta_pass_counts", [] {
    const MetaCounts counts = CountsOfMetaPass();
    return pybind11::make_tuple(counts.hits, counts.misses);
  });
  module.def("_times_moved", [] {  // of the calling thread
    const KnownCalls* const calls = KnownCalls::Mine();
    return calls != nullptr ? calls->TimesMoved() : 0;
  });
  module.def("_event_counters", [] {
    pybind11::dict counters;
    for (const reprise::EventCounter& counter : reprise::EventCounters()) {
      counters[pybind11::str(std::string(counter.category) + "." + counter.name)] = counter.count;
    }
    return counters;
  });
  module.def("_declared_operators", DeclaredOperators);
  module.def("_bind_operator", BindOperator);
  module.def("_bind_host_kernel", BindHostKernel);
  module.def("_bind_workspace", BindWorkspace);
  module.def("_bind_derivative", BindDerivative);
  module.def("_refuse_operator", RefuseOperator);
  module.def("_get_npu_format", FormatOf);
  module.def("_set_npu_format", SetFormat);
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
