// SPDX-License-Identifier: Apache-2.0
//
// The core speaks of functions of C and of streams by number. Here its words become those of Python programs.
#pragma once

#include <string>
#include <string_view>

namespace torch_npu {

/// "torch.npu.synchronize" for "aclrtSynchronizeDevice"; names without a counterpart stay.
std::string NameInPython(std::string_view function);

/// A text of the core, with names of torch.npu in it, ids of streams, and the Python lines where captures began.
std::string WordsInPython(std::string_view text);

/// "; forked at FILE:LINE in FUNCTION" for a text that blames a stream which was not joined; else "".
std::string ForkInPython(std::string_view text);

}  // namespace torch_npu
