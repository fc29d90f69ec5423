/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/types.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_TYPES_H_
#define REPRISE_EXTERNAL_GRAPH_TYPES_H_

#include "graph/types.h"

#endif  // REPRISE_EXTERNAL_GRAPH_TYPES_H_
