// SPDX-License-Identifier: Apache-2.0
//
// Operators called by their type ("MatMulV2"), with descriptors, buffers and attributes: the aclop* functions.
//
// A row of the table (named_ops/steps.h) says how the inputs, outputs and attributes of a type are called and which
// types it takes; works out the shape of the result; and cuts the work into steps, each a call of the operator
// machinery (op_call.h). All steps are planned before the first one is submitted, so a refused call does nothing.
// Workspaces, intermediate results and constants belong to the tasks (TaskMemory).
//
// Numbers: 100000 for null or absurd arguments and buffers that are too small, 107017 for handles that are not live,
// 107000 for memory that the device does not reach, 100024 for an unknown type, 100021, 100022, 100023 for inputs,
// outputs, attributes that do not fit it.
#pragma once

#include <cstdint>
#include <string>

#include "base/handle_table.h"
#include "base/status.h"

namespace reprise::ops {

/// A call as the C functions get it: arrays of handles, borrowed.
struct NamedArguments {
  const char* type = nullptr;
  int num_inputs = 0;
  const void* const* input_descs = nullptr;  ///< aclTensorDesc
  const void* const* inputs = nullptr;       ///< aclDataBuffer
  int num_outputs = 0;
  const void* const* output_descs = nullptr;
  const void* const* outputs = nullptr;
  const void* attributes = nullptr;  ///< aclopAttr; may be null
};

/// What a call does with the shapes of the results.
enum class ShapeResult : uint8_t { kKeep, kWriteBack };

/// Checks, plans and submits a call.
///
/// \param stream  handle; null: the default stream of the current context
///
/// Threads:  thread-safe; the objects of one call belong to the thread meanwhile
/// Capture:  recorded as kernels; the values of constant inputs are copied at the call
Status RunNamed(const NamedArguments& arguments, const void* stream, ShapeResult shapes);

/// Checks a call that has descriptors and attributes only.
Status CheckNamed(const NamedArguments& arguments);

/// Writes the shapes of the results, and types where they are undefined, to the output descriptors. `outputs` is not
/// looked at; `inputs` for constants only.
Status InferNamed(const NamedArguments& arguments);

/// The call as JSON text: type, inputs, outputs, attributes.
StatusOr<std::string> DescribeNamed(const NamedArguments& arguments);

// ---- Operators looked up once: what stands behind aclopHandle* ----

/// Keeps type, descriptors and attributes of a checked call; 200000 when the process has too many.
StatusOr<void*> CreateNamedHandle(const NamedArguments& arguments);
/// Runs it with buffers; the other members of `arguments` are not looked at.
Status RunNamedHandle(const void* handle, const NamedArguments& arguments, const void* stream);
/// Null is fine; 107017 for anything else that is not live.
Status DestroyNamedHandle(const void* handle);

}  // namespace reprise::ops
