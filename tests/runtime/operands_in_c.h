/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPRISE_TESTS_OPERANDS_IN_C_H_
#define REPRISE_TESTS_OPERANDS_IN_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Launches a host function, written in C, that adds 1 to the first byte of `data`. */
int32_t LaunchTouchInC(void* stream, void* data, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
