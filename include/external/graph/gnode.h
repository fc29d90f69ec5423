/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/gnode.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_GNODE_H_
#define REPRISE_EXTERNAL_GRAPH_GNODE_H_

#include "graph/gnode.h"

#endif  // REPRISE_EXTERNAL_GRAPH_GNODE_H_
