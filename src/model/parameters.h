// SPDX-License-Identifier: Apache-2.0
//
// Changing the tasks of a finished graph: parameters, disabling, and the update that makes the changes effective.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "model/model.h"
#include "runtime/kernel.h"

namespace reprise::model {

/// 107040 unless the model's tasks may be changed now; 207000 for a built model.
Status CheckChangeable(const Model& model);

/// Puts a kernel in the place of the node's kernel. `attributes` null keeps those of the node.
Status SetKernel(Model& model, ir::NodeId node, runtime::KernelFunction& function, uint32_t blocks,
                 const runtime::LaunchAttributes* attributes, const void* args, size_t args_bytes);
/// Where the caller writes the kernel's new arguments when nothing else of the launch changes, which it must do then;
/// null when more does.
void* ArgumentsInPlace(Model& model, ir::NodeId node, const runtime::KernelFunction& function, uint32_t blocks,
                       size_t args_bytes);
/// Puts a value task in the place of any node that has a public type.
Status SetValueWrite(Model& model, ir::NodeId node, void* address, uint64_t value);
Status SetValueWait(Model& model, ir::NodeId node, void* address, uint64_t value, uint32_t compare);
Status Disable(Model& model, ir::NodeId node);
/// A change was refused after the state check: the model can only be destroyed.
Status Fault(Model& model, Status why);

/// Makes changes effective for later executions.
Status UpdateModel(Model& model);

}  // namespace reprise::model
