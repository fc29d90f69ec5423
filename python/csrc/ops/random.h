// SPDX-License-Identifier: Apache-2.0
//
// From operators to the core's draws.
#pragma once

#include <ATen/core/Tensor.h>
#include <reprise/random.h>

#include <optional>
#include <utility>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "ops/launch.h"

namespace torch_npu {

/// The core's name of a type; none when its draws do not make it.
std::optional<reprise::ElementType> ElementTypeOf(at::ScalarType type);

/// Runs `draw(stream)`, which submits one draw to the current stream.
template <class Draw>
void SubmitDraw(Draw&& draw) {
  EnsureContext();
  const NPUStream stream = CurrentStream();
  Guarded([&] { std::forward<Draw>(draw)(stream.handle()); });
  WaitIfBlocking(stream);
}

}  // namespace torch_npu
