/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/operator_factory.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_OPERATOR_FACTORY_H_
#define REPRISE_EXTERNAL_GRAPH_OPERATOR_FACTORY_H_

#include "graph/operator_factory.h"

#endif  // REPRISE_EXTERNAL_GRAPH_OPERATOR_FACTORY_H_
