// SPDX-License-Identifier: Apache-2.0
#include "headers_in_c.c"  // NOLINT: the same checks in the other language
