/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/inference_context.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_INFERENCE_CONTEXT_H_
#define REPRISE_EXTERNAL_GRAPH_INFERENCE_CONTEXT_H_

#include "graph/inference_context.h"

#endif  // REPRISE_EXTERNAL_GRAPH_INFERENCE_CONTEXT_H_
