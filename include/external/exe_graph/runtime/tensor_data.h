/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/tensor_data.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_

#include "exe_graph/runtime/tensor_data.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_
