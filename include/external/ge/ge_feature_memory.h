/* SPDX-License-Identifier: Apache-2.0 */
/* The place where older build scripts look. */
#ifndef REPRISE_EXTERNAL_GE_GE_FEATURE_MEMORY_H_
#define REPRISE_EXTERNAL_GE_GE_FEATURE_MEMORY_H_

#include "ge/ge_feature_memory.h"

#endif  // REPRISE_EXTERNAL_GE_GE_FEATURE_MEMORY_H_
