// SPDX-License-Identifier: Apache-2.0
//
// What is remembered of allocations, with the place in the Python program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace torch_npu {

enum class HistoryContext { kNone, kState, kAlloc, kAll };

struct HistoryMode {
  bool keeps_trace = false;  ///< events, not only where live blocks were made
  HistoryContext context = HistoryContext::kNone;
};

/// `enabled`: none switches off, "state", "all". `context`: none, "state" (places of live blocks), "alloc" (of
/// allocations in the trace, too), "all" (of frees, too). ValueError for other words.
void RecordHistory(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                   uint64_t entries);
HistoryMode CurrentHistoryMode();

}  // namespace torch_npu
