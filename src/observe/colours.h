// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/task.h"

namespace reprise::observe {

struct Colours {
  const char* fill;
  const char* stroke;
};

/// Of a task in pictures: what computes, what moves memory, what calls the host, and all that orders.
inline Colours ColoursOf(ir::TaskKind kind) {
  switch (kind) {
    case ir::TaskKind::kKernel:
    case ir::TaskKind::kAicpuKernel:
    case ir::TaskKind::kClosure: return {"#e3f0ff", "#2f6fb3"};
    case ir::TaskKind::kCopy:
    case ir::TaskKind::kFill: return {"#e6f6e8", "#2f8a45"};
    case ir::TaskKind::kHostFunc:
    case ir::TaskKind::kCallback: return {"#fff3d9", "#b07a12"};
    default: return {"#f1f1f3", "#85858f"};
  }
}

}  // namespace reprise::observe
