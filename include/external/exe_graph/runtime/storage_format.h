/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for exe_graph/runtime/storage_format.h. */
#ifndef REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_STORAGE_FORMAT_H_
#define REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_STORAGE_FORMAT_H_

#include "exe_graph/runtime/storage_format.h"

#endif  // REPRISE_EXTERNAL_EXE_GRAPH_RUNTIME_STORAGE_FORMAT_H_
