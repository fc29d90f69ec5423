/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/tensor.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_TENSOR_H_
#define REPRISE_EXTERNAL_GRAPH_TENSOR_H_

#include "graph/tensor.h"

#endif  // REPRISE_EXTERNAL_GRAPH_TENSOR_H_
