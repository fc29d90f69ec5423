/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/expand_dims_type.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_

#include "exe_graph/runtime/expand_dims_type.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_
