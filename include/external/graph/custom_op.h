/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/custom_op.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_CUSTOM_OP_H_
#define REPRISE_EXTERNAL_GRAPH_CUSTOM_OP_H_

#include "graph/custom_op.h"

#endif  // REPRISE_EXTERNAL_GRAPH_CUSTOM_OP_H_
