/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/shape.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_SHAPE_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_SHAPE_H_

#include "exe_graph/runtime/shape.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_SHAPE_H_
