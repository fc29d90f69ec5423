/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for ge/ge_ir_build.h. */
#ifndef REPRISE_EXTERNAL_GE_GE_IR_BUILD_H_
#define REPRISE_EXTERNAL_GE_GE_IR_BUILD_H_

#include "ge/ge_ir_build.h"

#endif  // REPRISE_EXTERNAL_GE_GE_IR_BUILD_H_
