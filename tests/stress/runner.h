// SPDX-License-Identifier: Apache-2.0
//
// Runs programs on the device and compares them with the oracle.
#pragma once

#include <acl/acl.h>

#include <array>
#include <string>

#include "program.h"

namespace reprise::stress {

/// By kind of effect; null for effects that are no kernels.
using Functions = std::array<aclrtFuncHandle, Effect::kLastKernel + 1>;

/// Runs the program with streams, events and memory of its own. Empty when every call returned what it should and
/// memory was as the oracle says; else what went wrong first.
std::string RunProgram(const Program& program, const Functions& functions, Mistake mistake = Mistake::kNone);

}  // namespace reprise::stress
