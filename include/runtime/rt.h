/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPRISE_RUNTIME_RT_H_
#define REPRISE_RUNTIME_RT_H_
#include "experiment/runtime/runtime/rt.h"
#endif /* REPRISE_RUNTIME_RT_H_ */
