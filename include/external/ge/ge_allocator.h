/* SPDX-License-Identifier: Apache-2.0 */
/* The place where older build scripts look. */
#ifndef REPRISE_EXTERNAL_GE_GE_ALLOCATOR_H_
#define REPRISE_EXTERNAL_GE_GE_ALLOCATOR_H_

#include "ge/ge_allocator.h"

#endif  // REPRISE_EXTERNAL_GE_GE_ALLOCATOR_H_
