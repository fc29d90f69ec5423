/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/ascend_string.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_ASCEND_STRING_H_
#define REPRISE_EXTERNAL_GRAPH_ASCEND_STRING_H_

#include "graph/ascend_string.h"

#endif  // REPRISE_EXTERNAL_GRAPH_ASCEND_STRING_H_
