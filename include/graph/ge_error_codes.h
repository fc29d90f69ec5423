/* SPDX-License-Identifier: Apache-2.0 */
/* What functions of the classes of graphs return. */
#ifndef REPRISE_GRAPH_GE_ERROR_CODES_H_
#define REPRISE_GRAPH_GE_ERROR_CODES_H_

#include <cstdint>

namespace ge {

using graphStatus = uint32_t;
const graphStatus GRAPH_SUCCESS = 0;
const graphStatus GRAPH_FAILED = 0xFFFFFFFF;
const graphStatus GRAPH_NOT_CHANGED = 1343242304;
const graphStatus GRAPH_PARAM_INVALID = 50331649;
const graphStatus GRAPH_PARAM_OUT_OF_RANGE = 50331644;
const graphStatus GRAPH_NULL_PTR = 50331538;

}  // namespace ge

#endif  // REPRISE_GRAPH_GE_ERROR_CODES_H_
