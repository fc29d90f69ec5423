/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/operator.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_OPERATOR_H_
#define REPRISE_EXTERNAL_GRAPH_OPERATOR_H_

#include "graph/operator.h"

#endif  // REPRISE_EXTERNAL_GRAPH_OPERATOR_H_
