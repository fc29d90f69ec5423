// SPDX-License-Identifier: Apache-2.0
#include "string_overloads.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0);
