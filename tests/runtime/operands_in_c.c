/* SPDX-License-Identifier: Apache-2.0
 *
 * reprise/operands.h as a C program uses it. */
#include <reprise/operands.h>

#include "operands_in_c.h"

static void Touch(void* data) { ++*(unsigned char*)data; }

int32_t LaunchTouchInC(void* stream, void* data, uint64_t bytes) {
  const RepriseOperand operand = {data, bytes, REPRISE_ACCESS_READ_WRITE};
  return repriseLaunchHostFuncWithOperands(stream, Touch, data, &operand, 1);
}
