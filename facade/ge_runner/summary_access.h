// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "call.h"
#include "engine/summary.h"
#include "ge/ge_graph_compile_summary.h"

namespace ge {

struct SummaryAccess {
  /// Of a compiled graph; null, with a message, when it is not compiled.
  static CompiledGraphSummaryPtr Of(uint64_t session, const char* api, uint32_t graph_id);
};

}  // namespace ge

namespace reprise::ge_runner {

ge::Status SetFixedBase(uint64_t session, const char* api, uint32_t graph_id, ge::MemoryType type, const void* memory,
                        size_t size);
/// kParamInvalid for a callback that is not there.
Status CheckCallback(bool is_there);

}  // namespace reprise::ge_runner
