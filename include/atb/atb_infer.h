/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ATB_ATB_INFER_H_
#define ATB_ATB_INFER_H_

#include "context.h"
#include "infer_op_params.h"
#include "operation.h"
#include "types.h"
#include "utils.h"

#endif  // ATB_ATB_INFER_H_
