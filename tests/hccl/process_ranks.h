// SPDX-License-Identifier: Apache-2.0
//
// Ranks in processes of their own: what they are told, and their communicator.
#pragma once

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "../runtime/child.h"
#include "ranks.h"

namespace reprise::testing {

// A token as text: an argument of a child.
inline std::string Hex(const HcclRootInfo& token) {
  std::ostringstream text;
  for (int i = 0; i < 128; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(token.internal[i]));
    text << digits;
  }
  return text.str();
}

struct Arguments {
  uint32_t rank = 0;
  uint32_t ranks = 0;
  HcclRootInfo token{};
  int what = 0;
};
inline std::string Write(uint32_t rank, uint32_t ranks, const HcclRootInfo& token, int what) {
  return std::to_string(rank) + " " + std::to_string(ranks) + " " + std::to_string(what) + " " + Hex(token);
}
inline Arguments Read(const std::string& text) {
  Arguments read;
  std::string hex;
  std::istringstream(text) >> read.rank >> read.ranks >> read.what >> hex;
  for (size_t i = 0; i < hex.size() / 2; ++i)
    read.token.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return read;
}
inline Arguments Read() { return Read(Child::Argument()); }

struct Group {
  explicit Group(const Arguments& arguments, int exec_timeout = -1) {
    EXPECT_EQ(0, aclrtSetDevice(0));
    EXPECT_EQ(0, aclrtCreateStream(&me.stream));
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    config.hcclExecTimeOut = exec_timeout;
    me.rank = arguments.rank;
    EXPECT_OK(HcclCommInitRootInfoConfig(arguments.ranks, &arguments.token, arguments.rank, &config, &me.comm));
  }
  ~Group() {
    if (me.comm != nullptr) HcclCommDestroy(me.comm);
    aclrtDestroyStreamForce(me.stream);
  }
  Rank me;
};

/// With a part behind the point that sums round differently in another order. Cheap: tests ask for it often.
inline float ValueOf(uint32_t rank, size_t i) {
  uint32_t hash = (rank * 7919 + static_cast<uint32_t>(i)) * 2654435761u;
  hash ^= hash >> 15;
  return static_cast<float>(static_cast<int32_t>(hash % 60001) - 30000) / 9973;
}

/// What one rank does and checks: `arguments.what` says which of the tests.
void RunRank(const Arguments& arguments);
/// Conditional tasks with operators in their bodies; `differs`: their conditions differ between ranks.
void RunConditions(const Arguments& arguments, bool differs);
/// Many small operators in a row, eager and as a graph; what 2 of RunRank, with a communicator that is there.
void RunSmall(const Rank& rank, uint32_t ranks);

}  // namespace reprise::testing
