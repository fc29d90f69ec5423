// SPDX-License-Identifier: Apache-2.0
//
// Looks at a kernel binary before the dynamic loader does: the loader trusts what it maps, and a damaged file would end
// the process instead of the call.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::runtime {

enum class ImageKind {
  kForeign,   ///< for another machine, or no shared object: the loader would refuse it, it holds no kernels for the CPU
  kLoadable,  ///< headers and tables of a shared object of this machine are sound; its code is trusted
};

/// 107000 for a shared object of this machine whose headers or tables point outside of it. `source` is for messages.
StatusOr<ImageKind> InspectImage(std::string_view image, const std::string& source);

}  // namespace reprise::runtime
