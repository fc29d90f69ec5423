/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/attr_value.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_ATTR_VALUE_H_
#define REPRISE_EXTERNAL_GRAPH_ATTR_VALUE_H_

#include "graph/attr_value.h"

#endif  // REPRISE_EXTERNAL_GRAPH_ATTR_VALUE_H_
