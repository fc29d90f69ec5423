// SPDX-License-Identifier: Apache-2.0
//
// Tasks that rewrite a stored task of a built model: new parameters are read from device memory when the update runs,
// in the order of the stream that executes it. A run of the stored task uses the old content or the new one, never a
// mixture.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "runtime/kernel.h"
#include "runtime/random.h"
#include "runtime/stream.h"

namespace reprise::model {

/// Cells in device memory; a null one leaves that part of the kernel task as it is.
struct KernelUpdate {
  runtime::KernelBinary* binary;  ///< where `entry` is looked up
  const uint64_t* entry;          ///< entry (tiling key) of the kernel to run
  const uint32_t* blocks;
};

/// `read` makes the new request from `bytes` bytes at `source`; it starts as the old one.
struct RandomUpdate {
  const void* source;
  size_t bytes;
  Status (*read)(const void* source, size_t bytes, runtime::RandomRequest* request);
};

/// 107027 when a stream is being captured, 107005 when `stored` is not bound to a model, 107000 for a task that is not
/// there or of another sort. What is wrong with the new parameters is an error of `stream`.
Status UpdateKernel(runtime::Stream& stored, uint32_t task_id, const KernelUpdate& update, runtime::Stream& stream);
Status UpdateRandom(runtime::Stream& stored, uint32_t task_id, const RandomUpdate& update, runtime::Stream& stream);

}  // namespace reprise::model
