/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/graph.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_GRAPH_H_
#define REPRISE_EXTERNAL_GRAPH_GRAPH_H_

#include "graph/graph.h"

#endif  // REPRISE_EXTERNAL_GRAPH_GRAPH_H_
