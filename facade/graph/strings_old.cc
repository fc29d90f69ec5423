// SPDX-License-Identifier: Apache-2.0
//
// As strings.cc, with std::string as it was before C++11.
#include "graph/graph.h"
#include "graph/operator_factory.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0);
