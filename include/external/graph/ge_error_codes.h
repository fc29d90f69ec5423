/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for graph/ge_error_codes.h. */
#ifndef REPRISE_EXTERNAL_GRAPH_GE_ERROR_CODES_H_
#define REPRISE_EXTERNAL_GRAPH_GE_ERROR_CODES_H_

#include "graph/ge_error_codes.h"

#endif  // REPRISE_EXTERNAL_GRAPH_GE_ERROR_CODES_H_
