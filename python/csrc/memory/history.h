// SPDX-License-Identifier: Apache-2.0
//
// What is remembered of allocations, with the place in the Python program.
#pragma once

#include <reprise/memory_types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_npu {

enum class HistoryContext { kNone, kState, kAlloc, kAll };

struct HistoryMode {
  bool keeps_trace = false;  ///< events, not only where live blocks were made
  HistoryContext context = HistoryContext::kNone;
};

/// `enabled`: none switches off, "state", "all". `context`: none, "state" (places of live blocks), "alloc" (of
/// allocations in the trace, too), "all" (of frees, too). `skip_actions`: events that are not kept, by the names that
/// snapshots show. ValueError for other words.
void RecordHistory(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                   uint64_t entries, const std::vector<std::string>& skip_actions);
HistoryMode CurrentHistoryMode();

/// Where a block is being freed, and the metadata of now; null unless that is recorded.
reprise::TraceContextPtr ContextOfFree();
/// Goes with what is recorded from now on.
void SetMemoryMetadata(std::string metadata);
std::string MemoryMetadata();
/// What was set when the context was taken; "" for none.
std::string MetadataOf(const reprise::TraceContext* context);
const char* Name(reprise::TraceAction action);

}  // namespace torch_npu
