// SPDX-License-Identifier: Apache-2.0
//
// Functions that take or give std::string are inline in the headers, so that each program has them with its own form of
// it. Programs that were compiled against other headers look for them in the library: this source is compiled twice,
// once for each form, with all inline functions kept.
#include "graph/graph.h"
#include "graph/operator_factory.h"
