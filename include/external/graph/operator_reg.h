/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/operator_reg.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_OPERATOR_REG_H_
#define REPRISE_EXTERNAL_GRAPH_OPERATOR_REG_H_

#include "graph/operator_reg.h"

#endif  // REPRISE_EXTERNAL_GRAPH_OPERATOR_REG_H_
