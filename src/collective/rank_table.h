// SPDX-License-Identifier: Apache-2.0
//
// Rank tables: files of JSON that say which rank runs on which device of which machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::collective {

struct RankTable {
  struct Rank {
    uint32_t server = 0;
    int64_t device = 0;
    std::string address;
    uint16_t port = 0;  ///< 0: none is named
  };
  std::vector<Rank> ranks;  ///< by rank id
  uint32_t servers = 0;
};

/// 1 with EI0004, EI0014 or EI0016 for a table that cannot be used.
StatusOr<RankTable> ParseRankTable(const std::string& text);

}  // namespace reprise::collective
