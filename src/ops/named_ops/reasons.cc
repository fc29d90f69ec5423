// SPDX-License-Identifier: Apache-2.0
//
// Why operators of the specification's first ranks have no steps. scripts/gen_graph_ops.py reads the table, too.
#include <algorithm>
#include <array>

#include "ops/named_call.h"

namespace reprise::ops {
namespace {

struct Reason {
  std::string_view type;
  NamedReason reason;
};

constexpr NamedReason kGraph = {"is part of how a graph is built, and nothing by itself",
                                "put it into a graph, which the graph engine compiles"};
constexpr NamedReason kCollective = {"exchanges tensors with other processes, which graphs of the engine do",
                                     "put it into a graph, or call the function of libhccl.so"};
constexpr NamedReason kFloat4 = {"takes numbers of 4 bits with a floating point, which no kernel computes",
                                 "use QuantBatchMatmulV3 with int8, or WeightQuantBatchMatmulV2"};
constexpr NamedReason kText = {"gives or takes text, which is no memory of a device: alone it computes nothing",
                               "let PrintV2 read StringFormat in a graph of the engine, or call FormatAndPrint"};

// In the order of the alphabet.
constexpr Reason kReasons[] = {
    {"Const", kGraph},
    {"HcomAllGather", kCollective},
    {"HcomAllGatherV", kCollective},
    {"HcomAllReduce", kCollective},
    {"HcomAllToAll", kCollective},
    {"HcomAllToAllV", kCollective},
    {"HcomAllToAllVC", kCollective},
    {"HcomBroadcast", kCollective},
    {"HcomReceive", kCollective},
    {"HcomReduce", kCollective},
    {"HcomReduceScatter", kCollective},
    {"HcomReduceScatterV", kCollective},
    {"HcomSend", kCollective},
    {"PrintV2", kText},
    {"QuantBatchMatmulV4", kFloat4},
    {"StringFormat", kText},
};
static_assert(std::is_sorted(std::begin(kReasons), std::end(kReasons),
                             [](const Reason& a, const Reason& b) { return a.type < b.type; }));

}  // namespace

const NamedReason* FindReason(std::string_view type) {
  const auto* const found =
      std::lower_bound(std::begin(kReasons), std::end(kReasons), type,
                       [](const Reason& row, std::string_view wanted) { return row.type < wanted; });
  return found != std::end(kReasons) && found->type == type ? &found->reason : nullptr;
}

}  // namespace reprise::ops
