// SPDX-License-Identifier: Apache-2.0
//
// The parts of torch_npu._C; each adds its classes and functions to the module.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "device/stream.h"

namespace torch_npu {

/// The stream of a Python object; RuntimeError unless it is a stream of an npu device.
NPUStream StreamOf(pybind11::handle object);

void BindDevice(pybind11::module_& module);         // devices, sync debug mode, runtime functions
void BindStreams(pybind11::module_& module);        // Stream and Event types, current streams, task groups
void BindMemory(pybind11::module_& module);         // allocators, pools, statistics, snapshots
void BindGenerator(pybind11::module_& module);      // default generators
void BindGraph(pybind11::module_& module);          // NPUGraph
void BindHostFunctions(pybind11::module_& module);  // Python callables as tasks
void BindTaskGroups(pybind11::module_& module);     // groups of tasks, and their updates
void BindOps(pybind11::module_& module);            // switches of the operators
void BindProfiler(pybind11::module_& module);       // the recorder of timelines
void BindDistributed(pybind11::module_& module);    // process groups of hccl
void BindShare(pybind11::module_& module);          // memory that CPU code and other processes see

}  // namespace torch_npu
