/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for op_proto/all_ops.h. */
#ifndef REPRISE_ALL_OPS_H_
#define REPRISE_ALL_OPS_H_

#include "op_proto/all_ops.h"

#endif  // REPRISE_ALL_OPS_H_
