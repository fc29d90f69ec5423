// SPDX-License-Identifier: Apache-2.0
//
// How much a call sends and receives.
#include <algorithm>

#include "collective/operation.h"

namespace reprise::collective {
namespace {

uint64_t Extent(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& offsets) {
  uint64_t end = 0;
  for (size_t i = 0; i < counts.size() && i < offsets.size(); ++i) {
    if (counts[i] != 0) end = std::max(end, offsets[i] + counts[i]);
  }
  return end;
}

}  // namespace

uint64_t Call::SendBytes(uint32_t rank, uint32_t ranks) const {
  const uint64_t element = SizeOf(type);
  switch (op) {
    case Operator::kAllReduce:
    case Operator::kReduce:
    case Operator::kAllGather: return count * element;
    case Operator::kBroadcast: return root == rank ? count * element : 0;
    case Operator::kReduceScatter:
    case Operator::kAllToAll: return count * ranks * element;
    case Operator::kScatter: return root == rank ? count * ranks * element : 0;
    case Operator::kAllGatherV: return vectors->receive_counts[rank] * element;
    case Operator::kReduceScatterV:
    case Operator::kAllToAllV: return Extent(vectors->send_counts, vectors->send_offsets) * element;
    case Operator::kAllToAllVC: {
      uint64_t sum = 0;
      for (uint32_t i = 0; i < ranks; ++i) sum += vectors->send_counts[uint64_t{rank} * ranks + i];
      return sum * element;
    }
    default: return 0;
  }
}

uint64_t Call::ReceiveBytes(uint32_t rank, uint32_t ranks) const {
  const uint64_t element = SizeOf(type);
  switch (op) {
    case Operator::kAllReduce:
    case Operator::kReduceScatter:
    case Operator::kScatter: return count * element;
    case Operator::kReduce: return root == rank ? count * element : 0;
    case Operator::kBroadcast: return root == rank ? 0 : count * element;
    case Operator::kAllGather:
    case Operator::kAllToAll: return count * ranks * element;
    case Operator::kAllGatherV:
    case Operator::kAllToAllV: return Extent(vectors->receive_counts, vectors->receive_offsets) * element;
    case Operator::kReduceScatterV: return vectors->send_counts[rank] * element;
    case Operator::kAllToAllVC: {
      uint64_t sum = 0;
      for (uint32_t i = 0; i < ranks; ++i) sum += vectors->send_counts[uint64_t{i} * ranks + rank];
      return sum * element;
    }
    default: return 0;
  }
}

}  // namespace reprise::collective
