/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/eager_op_execution_context.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_

#include "exe_graph/runtime/eager_op_execution_context.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_
