/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/tensor.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_H_

#include "exe_graph/runtime/tensor.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_H_
