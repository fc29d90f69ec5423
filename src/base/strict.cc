// SPDX-License-Identifier: Apache-2.0
#include "base/strict.h"

#include "base/env.h"

namespace reprise {

constinit bool internal::g_strict = false;

void ReadStrict() noexcept { internal::g_strict = EnvInt(EnvVar::kStrict, 0, 1) != 0; }

Status StrictRefusal(int code, const std::string& what, const char* function, const char* file, int line) {
  return Error(code, "strict: works here, may fail on a device: " + what, function, file, line);
}

}  // namespace reprise
