// SPDX-License-Identifier: Apache-2.0
//
// Operands that the caller of a launch attached to foreign code; see <reprise/operands.h>.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "ir/operand.h"
#include "reprise/operands.h"

namespace reprise::runtime {

/// All that a task touches. Null: nobody has said.
using AttachedOperands = std::unique_ptr<const std::vector<ir::Operand>>;

/// Checks and copies what a caller names; never null. 107000 for what <reprise/operands.h> refuses.
StatusOr<AttachedOperands> ReadOperands(const RepriseOperand* operands, size_t count);

/// For TaskType::operands: what was attached, all of it; an opaque task when nothing was.
void TellAttached(const std::vector<ir::Operand>* attached, ir::OperandSink& sink);

}  // namespace reprise::runtime
