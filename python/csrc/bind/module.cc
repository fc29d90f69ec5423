// SPDX-License-Identifier: Apache-2.0
#include "bind/bindings.h"

PYBIND11_MODULE(_C, module) {
  torch_npu::BindDevice(module);
  torch_npu::BindStreams(module);
  torch_npu::BindMemory(module);
  torch_npu::BindGenerator(module);
  torch_npu::BindGraph(module);
  torch_npu::BindHostFunctions(module);
  torch_npu::BindTaskGroups(module);
  torch_npu::BindOps(module);
  torch_npu::BindProfiler(module);
  torch_npu::BindDistributed(module);
  torch_npu::BindShare(module);
}
