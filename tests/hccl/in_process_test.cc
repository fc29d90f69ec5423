// SPDX-License-Identifier: Apache-2.0
//
// Collectives of ranks in one process: in one thread (L) and in threads (T). Tests carry the items of the specification.
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "ranks.h"

namespace {

using namespace reprise::testing;
using Clock = std::chrono::steady_clock;

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> { static constexpr HcclDataType value = HCCL_DATA_TYPE_FP32; };
template <>
struct TypeOf<double> { static constexpr HcclDataType value = HCCL_DATA_TYPE_FP64; };
template <>
struct TypeOf<int8_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_INT8; };
template <>
struct TypeOf<int16_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_INT16; };
template <>
struct TypeOf<int32_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_INT32; };
template <>
struct TypeOf<int64_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_INT64; };
template <>
struct TypeOf<uint8_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_UINT8; };
template <>
struct TypeOf<uint64_t> { static constexpr HcclDataType value = HCCL_DATA_TYPE_UINT64; };

template <class T>
T ValueOf(uint32_t rank, size_t i) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(std::sin(static_cast<double>(rank * 7919 + i))) * 3;
  } else {
    return static_cast<T>(rank * 31 + i * 17 + 1);
  }
}

template <class T>
T Combine(T a, T b, HcclReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    if (op == HCCL_REDUCE_SUM) return static_cast<T>(x + y);
    if (op == HCCL_REDUCE_PROD) return static_cast<T>(x * y);
  } else {
    if (op == HCCL_REDUCE_SUM) return a + b;
    if (op == HCCL_REDUCE_PROD) return a * b;
  }
  return op == HCCL_REDUCE_MAX ? std::max(a, b) : std::min(a, b);
}

template <class T>
T Folded(size_t ranks, size_t i, HcclReduceOp op) {
  T value = ValueOf<T>(0, i);
  for (uint32_t rank = 1; rank < ranks; ++rank) value = Combine(value, ValueOf<T>(rank, i), op);
  return value;
}

template <class T>
void CheckAllReduce(Ranks& ranks, size_t count, HcclReduceOp op, bool in_place) {
  std::vector<Buffer<T>> send;
  std::vector<Buffer<T>> receive;
  for (Rank& rank : ranks) {
    rank.Use();
    send.emplace_back(count);
    receive.emplace_back(count);
    send.back().Fill([&](size_t i) { return ValueOf<T>(rank.rank, i); });
  }
  ranks.InLine([&](Rank& rank) {
    T* const to = in_place ? send[rank.rank].data() : receive[rank.rank].data();
    EXPECT_OK(HcclAllReduce(send[rank.rank].data(), to, count, TypeOf<T>::value, op, rank.comm, rank.stream));
  });
  for (Rank& rank : ranks) {
    T* const got = in_place ? send[rank.rank].data() : receive[rank.rank].data();
    for (size_t i = 0; i < count; ++i) {
      const T wanted = Folded<T>(ranks.size(), i, op);
      ASSERT_EQ(0, std::memcmp(&wanted, &got[i], sizeof(T)))
          << "rank " << rank.rank << " of " << ranks.size() << ", element " << i << " of " << count << ", op " << op;
    }
  }
}

TEST(Hccl, HC_040_AllReduceEqualsTheSerialFold) {
  for (const uint32_t n : {1u, 2u, 3u, 8u}) {
    Ranks ranks(n);
    for (const auto op : {HCCL_REDUCE_SUM, HCCL_REDUCE_PROD, HCCL_REDUCE_MAX, HCCL_REDUCE_MIN}) {
      for (const size_t count : {1u, 7u, 1023u}) {
        CheckAllReduce<float>(ranks, count, op, count == 7);
        CheckAllReduce<int32_t>(ranks, count, op, false);
        CheckAllReduce<int16_t>(ranks, count, op, true);
        CheckAllReduce<int8_t>(ranks, count, op, false);
        CheckAllReduce<uint64_t>(ranks, count, op, false);
        CheckAllReduce<double>(ranks, count, op, true);
      }
      CheckAllReduce<int64_t>(ranks, 5003, op, false);
    }
    CheckAllReduce<float>(ranks, (1 << 16) + 3, HCCL_REDUCE_SUM, true);
    CheckAllReduce<float>(ranks, (1 << 16) + 3, HCCL_REDUCE_SUM, false);
    CheckAllReduce<uint8_t>(ranks, (1 << 16) + 3, HCCL_REDUCE_MAX, false);
  }
}

// bfloat16 by hand: the upper half of a float, rounded to nearest even.
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

TEST(Hccl, HC_040_HalvesAreSummedInFloatAndRoundedOnce) {
  Ranks ranks(3);
  constexpr size_t kCount = 4099;
  std::vector<Buffer<uint16_t>> buffers;
  for (Rank& rank : ranks) {
    rank.Use();
    buffers.emplace_back(kCount);
    buffers.back().Fill([&](size_t i) { return ToBf16(ValueOf<float>(rank.rank, i)); });
  }
  ranks.InLine([&](Rank& rank) {
    uint16_t* const data = buffers[rank.rank].data();
    EXPECT_OK(HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_SUM, rank.comm, rank.stream));
  });
  for (size_t i = 0; i < kCount; ++i) {
    float sum = FromBf16(ToBf16(ValueOf<float>(0, i)));
    sum += FromBf16(ToBf16(ValueOf<float>(1, i)));
    sum += FromBf16(ToBf16(ValueOf<float>(2, i)));
    for (Rank& rank : ranks) ASSERT_EQ(ToBf16(sum), buffers[rank.rank][i]) << i;
  }
}

TEST(Hccl, HC_040_NaNWinsAndZerosHaveSigns) {
  Ranks ranks(2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values[] = {{nan, 1, -0.0f, 0.0f}, {1, nan, 0.0f, -0.0f}};
  std::vector<Buffer<float>> buffers;
  for (Rank& rank : ranks) {
    rank.Use();
    buffers.emplace_back(4);
    buffers.back().Fill([&](size_t i) { return values[rank.rank][i]; });
  }
  ranks.InLine([&](Rank& rank) {
    float* const data = buffers[rank.rank].data();
    EXPECT_OK(HcclAllReduce(data, data, 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, rank.comm, rank.stream));
  });
  EXPECT_TRUE(std::isnan(buffers[0][0]) && std::isnan(buffers[1][1]));
  EXPECT_FALSE(std::signbit(buffers[0][2]));
  EXPECT_FALSE(std::signbit(buffers[1][3]));
}

// Every operator but the reductions to all, small and large.
void CheckOperators(Ranks& ranks, size_t count) {
  const auto n = static_cast<uint32_t>(ranks.size());
  std::vector<Buffer<int32_t>> send;
  std::vector<Buffer<int32_t>> receive;
  for (Rank& rank : ranks) {
    rank.Use();
    send.emplace_back(count * n);
    receive.emplace_back(count * n);
  }
  const auto reset = [&] {
    for (Rank& rank : ranks) {
      send[rank.rank].Fill([&](size_t i) { return ValueOf<int32_t>(rank.rank, i); });
      receive[rank.rank].Fill([](size_t) { return -1; });
    }
  };
  const auto type = HCCL_DATA_TYPE_INT32;
  for (uint32_t root = 0; root < n; ++root) {
    SCOPED_TRACE("root " + std::to_string(root));
    reset();  // HC-041
    ranks.InLine([&](Rank& r) {
      EXPECT_OK(HcclReduce(send[r.rank].data(), receive[r.rank].data(), count, type, HCCL_REDUCE_SUM, root, r.comm, r.stream));
    });
    for (uint32_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(r == root ? Folded<int32_t>(n, i, HCCL_REDUCE_SUM) : -1, receive[r][i]) << r << " " << i;
    }
    reset();  // HC-044
    ranks.InLine([&](Rank& r) { EXPECT_OK(HcclBroadcast(send[r.rank].data(), count, type, root, r.comm, r.stream)); });
    for (uint32_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf<int32_t>(root, i), send[r][i]);
    }
    reset();  // HC-045
    ranks.InLine([&](Rank& r) {
      EXPECT_OK(HcclScatter(r.rank == root ? send[r.rank].data() : nullptr, receive[r.rank].data(), count, type, root, r.comm, r.stream));
    });
    for (uint32_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf<int32_t>(root, r * count + i), receive[r][i]);
    }
  }
  reset();  // HC-042
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(HcclReduceScatter(send[r.rank].data(), receive[r.rank].data(), count, type, HCCL_REDUCE_SUM, r.comm, r.stream));
  });
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(Folded<int32_t>(n, r * count + i, HCCL_REDUCE_SUM), receive[r][i]);
  }
  reset();  // HC-043
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(HcclAllGather(send[r.rank].data(), receive[r.rank].data(), count, type, r.comm, r.stream));
  });
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count * n; ++i) ASSERT_EQ(ValueOf<int32_t>(static_cast<uint32_t>(i / count), i % count), receive[r][i]);
  }
  reset();  // HC-046
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(HcclAlltoAll(send[r.rank].data(), count, type, receive[r.rank].data(), count, type, r.comm, r.stream));
  });
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count * n; ++i)
      ASSERT_EQ(ValueOf<int32_t>(static_cast<uint32_t>(i / count), r * count + i % count), receive[r][i]);
  }
}

TEST(Hccl, HC_041_to_HC_046_OperatorsMoveWhatTheySay) {
  for (const uint32_t n : {1u, 2u, 4u}) {
    Ranks ranks(n);
    for (const size_t count : {1u, 5u, 3001u}) CheckOperators(ranks, count);
  }
}

// V forms against what the arrays say, with counts drawn at random, zeros among them.
TEST(Hccl, HC_042_HC_043_HC_046_VectorForms) {
  constexpr uint32_t kRanks = 3;
  Ranks ranks(kRanks);
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    const size_t most = round % 3 == 0 ? 4000 : 9;
    std::vector<std::vector<uint64_t>> matrix(kRanks, std::vector<uint64_t>(kRanks));
    for (auto& row : matrix) {
      for (auto& count : row) count = random() % most * (random() % 4 != 0);
    }
    const size_t room = kRanks * (most + 3);
    std::vector<Buffer<int64_t>> send;
    std::vector<Buffer<int64_t>> receive;
    for (Rank& rank : ranks) {
      rank.Use();
      send.emplace_back(room);
      receive.emplace_back(room);
      send.back().Fill([&](size_t i) { return ValueOf<int64_t>(rank.rank, i); });
      receive.back().Fill([](size_t) { return -1; });
    }
    std::vector<std::vector<uint64_t>> send_counts(kRanks), send_offsets(kRanks), counts(kRanks), offsets(kRanks);
    for (uint32_t r = 0; r < kRanks; ++r) {
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        send_counts[r].push_back(matrix[r][peer]);
        send_offsets[r].push_back(peer * (most + 3));  // gaps
        counts[r].push_back(matrix[peer][r]);
        offsets[r].push_back((kRanks - 1 - peer) * (most + 3));  // another order
      }
    }
    ranks.InLine([&](Rank& rank) {
      const uint32_t r = rank.rank;
      EXPECT_OK(HcclAlltoAllV(send[r].data(), send_counts[r].data(), send_offsets[r].data(), HCCL_DATA_TYPE_INT64,
                              receive[r].data(), counts[r].data(), offsets[r].data(), HCCL_DATA_TYPE_INT64, rank.comm, rank.stream));
      // HC-062: what happens to the arrays afterwards does not matter.
      std::vector<uint64_t> before = send_counts[r];
      std::fill(send_counts[r].begin(), send_counts[r].end(), uint64_t{1} << 60);
      send_counts[r] = before;
    });
    for (uint32_t r = 0; r < kRanks; ++r) {
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        for (uint64_t i = 0; i < counts[r][peer]; ++i)
          ASSERT_EQ(ValueOf<int64_t>(peer, send_offsets[peer][r] + i), receive[r][offsets[r][peer] + i]);
      }
    }
    std::vector<uint64_t> flat;
    for (const auto& row : matrix) flat.insert(flat.end(), row.begin(), row.end());
    ranks.InLine([&](Rank& rank) {
      EXPECT_OK(HcclAlltoAllVC(send[rank.rank].data(), flat.data(), HCCL_DATA_TYPE_INT64, receive[rank.rank].data(),
                               HCCL_DATA_TYPE_INT64, rank.comm, rank.stream));
    });
    for (uint32_t r = 0; r < kRanks; ++r) {
      uint64_t to = 0;
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        uint64_t from = 0;
        for (uint32_t k = 0; k < r; ++k) from += matrix[peer][k];
        for (uint64_t i = 0; i < matrix[peer][r]; ++i) ASSERT_EQ(ValueOf<int64_t>(peer, from + i), receive[r][to++]);
      }
    }
    const std::vector<uint64_t>& each = matrix[0];
    const std::vector<uint64_t> places = {2 * (most + 3), 0, most + 3};
    ranks.InLine([&](Rank& rank) {
      EXPECT_OK(HcclAllGatherV(send[rank.rank].data(), each[rank.rank], receive[rank.rank].data(), each.data(),
                               places.data(), HCCL_DATA_TYPE_INT64, rank.comm, rank.stream));
    });
    for (uint32_t r = 0; r < kRanks; ++r) {
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        for (uint64_t i = 0; i < each[peer]; ++i) ASSERT_EQ(ValueOf<int64_t>(peer, i), receive[r][places[peer] + i]);
      }
    }
    ranks.InLine([&](Rank& rank) {
      EXPECT_OK(HcclReduceScatterV(send[rank.rank].data(), each.data(), places.data(), receive[rank.rank].data(),
                                   each[rank.rank], HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, rank.comm, rank.stream));
    });
    for (uint32_t r = 0; r < kRanks; ++r) {
      for (uint64_t i = 0; i < each[r]; ++i)
        ASSERT_EQ(Folded<int64_t>(kRanks, places[r] + i, HCCL_REDUCE_SUM), receive[r][i]);
    }
  }
}

TEST(Hccl, HC_047_HC_048_HC_064_SendsAndReceives) {
  constexpr uint32_t kRanks = 4;
  Ranks ranks(kRanks);
  for (const size_t count : {1u, 300u, 100000u}) {
    std::vector<Buffer<int32_t>> send;
    std::vector<Buffer<int32_t>> receive;
    for (Rank& rank : ranks) {
      rank.Use();
      send.emplace_back(count);
      receive.emplace_back(2 * count);
      send.back().Fill([&](size_t i) { return ValueOf<int32_t>(rank.rank, i); });
    }
    const auto expect = [&](const char* what, int before) {
      for (uint32_t r = 0; r < kRanks; ++r) {
        const uint32_t from = (r + kRanks - static_cast<uint32_t>(before)) % kRanks;
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf<int32_t>(from, i), receive[r][i]) << what;
        std::fill_n(receive[r].data(), 2 * count, -1);
      }
    };
    // A ring: even ranks send first.
    ranks.InLine([&](Rank& r) {
      const uint32_t next = (r.rank + 1) % kRanks;
      const uint32_t last = (r.rank + kRanks - 1) % kRanks;
      for (uint32_t turn = 0; turn < 2; ++turn) {
        if (r.rank % 2 == turn) {
          EXPECT_OK(HcclSend(send[r.rank].data(), count, HCCL_DATA_TYPE_INT32, next, r.comm, r.stream));
        } else {
          EXPECT_OK(HcclRecv(receive[r.rank].data(), count, HCCL_DATA_TYPE_INT32, last, r.comm, r.stream));
        }
      }
    });
    expect("ring", 1);
    // The same in one call, with a message to oneself.
    ranks.InLine([&](Rank& r) {
      HcclSendRecvItem items[4] = {
          {HCCL_SEND, send[r.rank].data(), count, HCCL_DATA_TYPE_INT32, (r.rank + 1) % kRanks},
          {HCCL_RECV, receive[r.rank].data(), count, HCCL_DATA_TYPE_INT32, (r.rank + kRanks - 1) % kRanks},
          {HCCL_RECV, receive[r.rank].data() + count, count, HCCL_DATA_TYPE_INT32, r.rank},
          {HCCL_SEND, send[r.rank].data(), count, HCCL_DATA_TYPE_INT32, r.rank}};
      EXPECT_OK(HcclBatchSendRecv(items, 4, r.comm, r.stream));
    });
    for (uint32_t r = 0; r < kRanks; ++r) ASSERT_EQ(ValueOf<int32_t>(r, count - 1), receive[r][2 * count - 1]);
    expect("batch", 1);
    // In a group: with both neighbours, all sends first.
    ranks.InLine([&](Rank& r) {
      const uint32_t next = (r.rank + 1) % kRanks;
      const uint32_t last = (r.rank + kRanks - 1) % kRanks;
      EXPECT_OK(HcclGroupStart());
      EXPECT_OK(HcclSend(send[r.rank].data(), count, HCCL_DATA_TYPE_INT32, next, r.comm, r.stream));
      EXPECT_OK(HcclSend(send[r.rank].data(), count, HCCL_DATA_TYPE_INT32, last, r.comm, r.stream));
      EXPECT_OK(HcclRecv(receive[r.rank].data(), count, HCCL_DATA_TYPE_INT32, last, r.comm, r.stream));
      EXPECT_OK(HcclRecv(receive[r.rank].data() + count, count, HCCL_DATA_TYPE_INT32, next, r.comm, r.stream));
      EXPECT_OK(HcclGroupEnd());
    });
    expect("group", 1);
  }
}

TEST(Hccl, HC_047_ManyMessagesKeepTheirOrder) {
  Ranks ranks(2);
  ranks[0].Use();
  Buffer<int32_t> send(200);
  send.Fill([](size_t i) { return static_cast<int32_t>(i); });
  ranks[1].Use();
  Buffer<int32_t> receive(200);
  ranks.InLine([&](Rank& r) {
    for (size_t i = 0; i < 200; ++i) {
      EXPECT_OK(r.rank == 0 ? HcclSend(&send[i], 1, HCCL_DATA_TYPE_INT32, 1, r.comm, r.stream)
                            : HcclRecv(&receive[i], 1, HCCL_DATA_TYPE_INT32, 0, r.comm, r.stream));
    }
  });
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(static_cast<int32_t>(i), receive[i]);
}

TEST(Hccl, HC_049_NobodyPassesABarrierEarly) {
  Ranks ranks(4);
  struct Count {
    std::atomic<int> before{0};
    std::atomic<int> early{0};
  } count;
  for (int round = 1; round <= 20; ++round) {
    ranks.InThreads([&](Rank& r) {
      EXPECT_EQ(0, aclrtLaunchHostFunc(r.stream, [](void* c) { static_cast<Count*>(c)->before.fetch_add(1); }, &count));
      EXPECT_OK(HcclBarrier(r.comm, r.stream));
      EXPECT_EQ(0, aclrtLaunchHostFunc(r.stream, [](void* c) {
                  if (static_cast<Count*>(c)->before.load() % 4 != 0) static_cast<Count*>(c)->early.fetch_add(1);
                }, &count));
      EXPECT_OK(HcclBarrier(r.comm, r.stream));
      r.Wait();
    });
    EXPECT_EQ(4 * round, count.before.load());
  }
  EXPECT_EQ(0, count.early.load());
}

TEST(Hccl, HC_010_HC_016_HC_022_TokensBringThreadsTogether) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  std::set<std::string> names;
  for (int round = 0; round < 3; ++round) {
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    std::vector<HcclComm> comms(4);
    std::vector<std::string> seen(4);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(r)));
        EXPECT_OK(HcclCommInitRootInfo(4, &token, r, &comms[r]));
        uint32_t rank = 99;
        uint32_t size = 0;
        EXPECT_OK(HcclGetRankId(comms[r], &rank));
        EXPECT_OK(HcclGetRankSize(comms[r], &size));
        EXPECT_EQ(r, rank);
        EXPECT_EQ(4u, size);
        char name[128];
        EXPECT_OK(HcclGetCommName(comms[r], name));
        seen[r] = name;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(4u, std::set<HcclComm>(comms.begin(), comms.end()).size());
    for (const std::string& name : seen) EXPECT_EQ(seen[0], name);
    EXPECT_TRUE(names.insert(seen[0]).second) << seen[0];
    EXPECT_LT(seen[0].size(), 128u);
    HcclComm found = nullptr;
    EXPECT_OK(HcclCommGetHandleWithName(seen[0].c_str(), &found));  // HC-023
    EXPECT_EQ(comms[0], found);
    HcclComm again = nullptr;
    EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(4, &token, 0, &again));  // used already
    for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));
    EXPECT_EQ(HCCL_E_PARA, HcclCommDestroy(comms[0]));  // HC-035
    EXPECT_EQ(HCCL_E_PARA, HcclCommGetHandleWithName(seen[0].c_str(), &found));
  }
  EXPECT_OK(HcclCommDestroy(nullptr));
  int foreign = 0;
  EXPECT_EQ(HCCL_E_PARA, HcclCommDestroy(&foreign));
}

TEST(Hccl, HC_011_HC_012_OneRankAndBadArguments) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comm = nullptr;
  EXPECT_EQ(HCCL_E_PTR, HcclGetRootInfo(nullptr));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(0, &token, 0, &comm));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(2, &token, 2, &comm));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitRootInfo(1, nullptr, 0, &comm));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitRootInfo(1, &token, 0, nullptr));
  HcclRootInfo broken{};
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(1, &broken, 0, &comm));
  OK(HcclCommInitRootInfo(1, &token, 0, &comm));
  EXPECT_OK(HcclCommDestroy(comm));
}

TEST(Hccl, HC_014_HC_015_RanksThatDoNotFit) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  for (const bool same_rank : {true, false}) {
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    std::vector<std::thread> threads;
    std::vector<std::string> messages(2);
    for (uint32_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
        HcclComm comm = nullptr;
        EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(same_rank ? 3 : 3 + i, &token, same_rank ? 1 : i, &comm));
        messages[i] = Message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& message : messages) EXPECT_NE(std::string::npos, message.find("EI0014")) << message;
  }
}

TEST(Hccl, HC_018_to_HC_021_Configurations) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclCommConfig config;
  const auto create = [&](HcclComm* comm) {
    HcclRootInfo token;
    EXPECT_OK(HcclGetRootInfo(&token));
    return HcclCommInitRootInfoConfig(1, &token, 0, &config, comm);
  };
  const auto with_size = [&](uint64_t size) { std::memcpy(config.reserved, &size, sizeof size); };
  HcclComm comm = nullptr;
  HcclCommConfigInit(nullptr);
  for (const uint64_t size : {32u, 2232u, 2240u, 2248u, 4096u}) {
    std::vector<char> bytes(4096);
    HcclCommConfigInit(&config);
    with_size(size);
    std::memcpy(bytes.data(), &config, sizeof config);
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    OK(HcclCommInitRootInfoConfig(1, &token, 0, reinterpret_cast<HcclCommConfig*>(bytes.data()), &comm)) << size;
    EXPECT_OK(HcclCommDestroy(comm));
  }
  HcclCommConfigInit(&config);
  std::strcpy(config.hcclCommName, "named");
  OK(create(&comm));
  char name[128];
  EXPECT_OK(HcclGetCommName(comm, name));
  EXPECT_STREQ("named", name);
  HcclComm second = nullptr;
  EXPECT_EQ(HCCL_E_PARA, create(&second));
  EXPECT_OK(HcclCommDestroy(comm));
  OK(create(&comm));
  EXPECT_OK(HcclCommDestroy(comm));
  const auto bad = [&](const char* what, const std::function<void()>& change) {
    HcclCommConfigInit(&config);
    change();
    EXPECT_EQ(HCCL_E_PARA, create(&comm)) << what;
  };
  bad("magic", [&] { config.reserved[8] = 0; });
  bad("size", [&] { with_size(31); });
  bad("name", [&] { std::memset(config.hcclCommName, 'x', sizeof config.hcclCommName); });
  bad("buffer", [&] { config.hcclBufferSize = 0; });
  bad("mode", [&] { config.hcclOpExpansionMode = 7; });
  // Ranks that differ.
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
      HcclCommConfig own;
      HcclCommConfigInit(&own);
      own.hcclBufferSize = 100 + i;
      HcclComm made = nullptr;
      EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfoConfig(2, &token, i, &own, &made));
      EXPECT_NE(std::string::npos, Message().find("hcclBufferSize differs between ranks: 10")) << Message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hccl, HC_024_InitAll) {
  ASSERT_EQ(0, aclrtSetDevice(2));
  int32_t devices[] = {3, 1};
  HcclComm comms[2];
  OK(HcclCommInitAll(2, devices, comms));
  int32_t current = -1;
  EXPECT_EQ(0, aclrtGetDevice(&current));
  EXPECT_EQ(2, current);
  uint32_t rank = 9;
  EXPECT_OK(HcclGetRankId(comms[1], &rank));
  EXPECT_EQ(1u, rank);
  for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));
  int32_t twice[] = {1, 1};
  int32_t wrong[] = {0, 77};
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(2, twice, comms));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(2, wrong, comms));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(0, devices, comms));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitAll(2, nullptr, comms));
}

TEST(Hccl, HC_026_OneThreadCreatesAllRanksInAGroup) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comms[3] = {};
  OK(HcclGroupStart());
  bool in_group = false;
  EXPECT_OK(HcclGroupStatusGet(&in_group));
  EXPECT_TRUE(in_group);
  for (uint32_t r = 0; r < 3; ++r) {
    ASSERT_EQ(0, aclrtSetDevice(static_cast<int>(r)));
    OK(HcclCommInitRootInfo(3, &token, r, &comms[r]));
  }
  OK(HcclGroupEnd());
  for (HcclComm comm : comms) {
    ASSERT_NE(nullptr, comm);
    EXPECT_OK(HcclCommDestroy(comm));
  }
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclGroupEnd());  // HC-066
}

TEST(Hccl, HC_031_to_HC_034_PartsOfAGroup) {
  Ranks ranks(4);
  HcclComm parts[4] = {};
  uint32_t members[] = {0, 2};
  ranks.InThreads([&](Rank& r) {
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    if (r.rank % 2 != 0) {
      EXPECT_OK(HcclCreateSubCommConfig(&r.comm, 0, nullptr, 0xFFFFFFFF, 0, &config, &parts[r.rank]));
      EXPECT_EQ(nullptr, parts[r.rank]);
      return;
    }
    EXPECT_OK(HcclCreateSubCommConfig(&r.comm, 2, members, 5, r.rank / 2, &config, &parts[r.rank]));
    uint32_t rank = 9;
    EXPECT_OK(HcclGetRankId(parts[r.rank], &rank));
    EXPECT_EQ(r.rank / 2, rank);
    char name[128];
    char parent[128];
    EXPECT_OK(HcclGetCommName(parts[r.rank], name));
    EXPECT_OK(HcclGetCommName(r.comm, parent));
    EXPECT_EQ(std::string(parent) + "_sub_5", name);
    HcclComm second = nullptr;
    EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&r.comm, 2, members, 5, r.rank / 2, &config, &second));
  });
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm comm = ranks[0].comm;
  HcclComm made = nullptr;
  uint32_t unsorted[] = {2, 0};
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, nullptr, 5, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 0xFFFFFFFF, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 0, members, 6, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 6, 2, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, unsorted, 6, 1, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 6, 1, &config, &made));
  EXPECT_EQ(HCCL_E_PTR, HcclCreateSubCommConfig(&comm, 2, members, 6, 0, nullptr, &made));
  // The part works, also when the whole is gone.
  for (Rank& r : ranks) EXPECT_OK(HcclCommDestroy(std::exchange(r.comm, nullptr)));
  std::vector<Buffer<int32_t>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(1);
    data.back()[0] = static_cast<int32_t>(r.rank) + 1;
  }
  ranks.InLine([&](Rank& r) {
    if (r.rank % 2 != 0) return;
    int32_t* const at = data[r.rank].data();
    EXPECT_OK(HcclAllReduce(at, at, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, parts[r.rank], r.stream));
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(4, data[2][0]);
  for (HcclComm part : parts) EXPECT_OK(HcclCommDestroy(part));
}

TEST(Hccl, HC_050_to_HC_056_WrongCalls) {
  Ranks ranks(2);
  Rank& r = ranks[0];
  r.Use();
  Buffer<float> a(64);
  Buffer<float> b(64);
  const auto f32 = HCCL_DATA_TYPE_FP32;
  const auto reduce = [&](void* s, void* d, uint64_t n, int type, int op, HcclComm c, aclrtStream stream) {
    return HcclAllReduce(s, d, n, static_cast<HcclDataType>(type), static_cast<HcclReduceOp>(op), c, stream);
  };
  EXPECT_OK(reduce(nullptr, nullptr, 0, f32, 0, nullptr, nullptr));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), 0x800000000, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), b.data(), 1, f32, 0, r.comm, nullptr));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), b.data(), 1, f32, 0, nullptr, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(nullptr, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), nullptr, 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), 1, f32, 0, &ranks, r.stream));
  for (const int type : {12, 13, 14, 17, 255}) EXPECT_EQ(HCCL_E_NOT_SUPPORT, reduce(a.data(), b.data(), 1, type, 0, r.comm, r.stream));
  for (const int op : {4, 255}) EXPECT_EQ(HCCL_E_NOT_SUPPORT, reduce(a.data(), b.data(), 1, f32, op, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(a.data(), 1, f32, 2, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclSend(a.data(), 1, f32, 2, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclSend(a.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, b.data(), 2, f32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, b.data(), 1, HCCL_DATA_TYPE_INT32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, a.data(), 1, f32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, HcclScatter(nullptr, b.data(), 1, f32, 0, r.comm, r.stream));
  float plain[4] = {};
  EXPECT_EQ(HCCL_E_PARA, reduce(plain, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_NE(std::string::npos, Message().find("sendBuf")) << Message();
  EXPECT_EQ(HCCL_E_PARA, reduce(reinterpret_cast<char*>(a.data()) + 1, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), uint64_t{1} << 30, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(a.data(), 1, f32, 0, r.comm, ranks[1].stream));  // of another device
  HcclResult error = HCCL_E_INTERNAL;
  EXPECT_OK(HcclGetCommAsyncError(r.comm, &error));
  EXPECT_EQ(HCCL_SUCCESS, error);  // refusals leave nothing behind
}

TEST(Hccl, HC_058_HC_061_ManyInARow) {
  Ranks ranks(2);
  std::vector<Buffer<int64_t>> data;
  for (Rank& rank : ranks) {
    rank.Use();
    data.emplace_back(16);
    data.back().Fill([](size_t) { return 1; });
  }
  // The host never waits for the other rank.
  ranks.InLine([&](Rank& rank) {
    for (int i = 0; i < 60; ++i) {
      int64_t* const at = data[rank.rank].data();
      EXPECT_OK(HcclAllReduce(at, at, 16, HCCL_DATA_TYPE_INT64, i % 3 == 0 ? HCCL_REDUCE_SUM : HCCL_REDUCE_MAX, rank.comm, rank.stream));
    }
  });
  for (auto& values : data) EXPECT_EQ(int64_t{1} << 20, values[3]);
}

TEST(Hccl, HC_059_HC_060_HC_063_OrdersThatMustNotMatter) {
  Ranks ranks(2);
  Ranks others(2);
  std::vector<Buffer<int32_t>> a;
  std::vector<Buffer<int32_t>> b;
  std::vector<aclrtStream> second(2);
  std::vector<aclrtEvent> event(2);
  for (Rank& r : ranks) {
    r.Use();
    a.emplace_back(5000);
    b.emplace_back(5000);
    a.back().Fill([](size_t) { return 1; });
    b.back().Fill([](size_t) { return 1; });
    OK(aclrtCreateStream(&second[r.rank]));
    OK(aclrtCreateEvent(&event[r.rank]));
  }
  const auto sum = [](Buffer<int32_t>& data, HcclComm comm, aclrtStream stream) {
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), data.size(), HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream));
  };
  for (int round = 0; round < 5; ++round) {
    for (Rank& r : ranks) {
      r.Use();
      const auto first = [&] { sum(a[r.rank], r.comm, r.stream); };
      const auto other = [&] { sum(b[r.rank], others[r.rank].comm, second[r.rank]); };
      r.rank == 0 ? first() : other();
      r.rank == 0 ? other() : first();
    }
    for (Rank& r : ranks) {
      r.Use();
      r.Wait();
      EXPECT_EQ(0, aclrtSynchronizeStream(second[r.rank]));
    }
  }
  EXPECT_EQ(32, a[0][4999]);
  EXPECT_EQ(32, b[1][4999]);
  // One communicator on two streams, of which one waits for the other.
  for (Rank& r : ranks) {
    r.Use();
    sum(b[r.rank], r.comm, second[r.rank]);
    OK(aclrtRecordEvent(event[r.rank], second[r.rank]));
    OK(aclrtStreamWaitEvent(r.stream, event[r.rank]));
    sum(a[r.rank], r.comm, r.stream);
  }
  for (Rank& r : ranks) {
    r.Use();
    r.Wait();
    EXPECT_EQ(0, aclrtSynchronizeStream(second[r.rank]));
    EXPECT_EQ(0, aclrtDestroyEvent(event[r.rank]));
    EXPECT_EQ(0, aclrtDestroyStream(second[r.rank]));
  }
  EXPECT_EQ(64, a[1][0]);
}

TEST(Hccl, HC_065_HC_067_HC_068_GroupsOfOperators) {
  Ranks ranks(2);
  Ranks others(2);
  std::vector<Buffer<int32_t>> data;
  std::vector<Buffer<int32_t>> more;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(4);
    more.emplace_back(4);
    data.back().Fill([](size_t) { return 1; });
    more.back().Fill([](size_t) { return 1; });
  }
  ranks.InLine([&](Rank& r) {
    int32_t* const at = data[r.rank].data();
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_OK(HcclGroupEnd());
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_OK(HcclGroupEnd());
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(4, data[1][3]);
  ranks.InLine([&](Rank& r) {
    int32_t* const at = data[r.rank].data();
    int32_t* const there = more[r.rank].data();
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclAllReduce(there, there, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, others[r.rank].comm, r.stream));
    EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(at, 4, HCCL_DATA_TYPE_INT32, 7, r.comm, r.stream));
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_EQ(HCCL_E_PARA, HcclGroupEnd());
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(2, more[1][0]);
  EXPECT_OK(HcclGroupStart());
  HcclSendRecvItem item = {HCCL_SEND, data[0].data(), 1, HCCL_DATA_TYPE_INT32, 1};
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclBatchSendRecv(&item, 1, ranks[0].comm, ranks[0].stream));
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclGroupEnd());
}

TEST(Hccl, HC_100_HC_107_HF_02_HF_05_MismatchesFailEverywhere) {
  struct Case {
    const char* field;
    std::function<HcclResult(Rank&, Buffer<float>&, bool)> call;
  };
  const auto reduce = [](Rank& r, Buffer<float>& b, uint64_t count, HcclDataType type, HcclReduceOp op) {
    return HcclAllReduce(b.data(), b.data(), count, type, op, r.comm, r.stream);
  };
  const Case cases[] = {
      {"count", [&](Rank& r, Buffer<float>& b, bool odd) { return reduce(r, b, odd ? 3 : 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM); }},
      {"dataType", [&](Rank& r, Buffer<float>& b, bool odd) { return reduce(r, b, 4, odd ? HCCL_DATA_TYPE_INT32 : HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM); }},
      {"op", [&](Rank& r, Buffer<float>& b, bool odd) { return reduce(r, b, 4, HCCL_DATA_TYPE_FP32, odd ? HCCL_REDUCE_MAX : HCCL_REDUCE_SUM); }},
      {"root", [&](Rank& r, Buffer<float>& b, bool odd) { return HcclBroadcast(b.data(), 4, HCCL_DATA_TYPE_FP32, odd ? 1 : 0, r.comm, r.stream); }},
      {"order", [&](Rank& r, Buffer<float>& b, bool odd) {
         return odd ? HcclBroadcast(b.data(), 4, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream) : reduce(r, b, 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM);
       }}};
  for (const Case& test : cases) {
    SCOPED_TRACE(test.field);
    Ranks ranks(4);
    std::vector<Buffer<float>> buffers;
    for (Rank& r : ranks) {
      r.Use();
      buffers.emplace_back(8);
      EXPECT_OK(test.call(r, buffers.back(), r.rank == 2));
    }
    for (Rank& r : ranks) {
      r.Use();
      EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
      const std::string message = Message();
      EXPECT_NE(std::string::npos, message.find("EI0005")) << message;
      EXPECT_NE(std::string::npos, message.find("The arguments for collective communication are inconsistent between ranks"));
      EXPECT_NE(std::string::npos, message.find("rank 2: ")) << message;
      EXPECT_NE(std::string::npos, message.find("rank 0, 1, 3: ")) << message;
      EXPECT_NE(std::string::npos, message.find(test.field)) << message;
      HcclResult error = HCCL_SUCCESS;
      EXPECT_OK(HcclGetCommAsyncError(r.comm, &error));
      EXPECT_EQ(HCCL_E_PARA, error);
      EXPECT_EQ(HCCL_E_REMOTE, test.call(r, buffers[r.rank], false));
      EXPECT_EQ(0, aclrtSynchronizeStream(r.stream));  // the error was told once
    }
  }
}

TEST(Hccl, HC_101_PairsOfCountsAreCompared) {
  Ranks ranks(2);
  std::vector<Buffer<int32_t>> buffers;
  for (Rank& r : ranks) {
    r.Use();
    buffers.emplace_back(64);
    const uint64_t send[] = {1, 2};
    const uint64_t receive[] = {r.rank == 0 ? 1u : 3u, r.rank == 0 ? 1u : 2u};
    const uint64_t offsets[] = {0, 8};
    EXPECT_OK(HcclAlltoAllV(buffers.back().data(), send, offsets, HCCL_DATA_TYPE_INT32, buffers.back().data() + 32,
                            receive, offsets, HCCL_DATA_TYPE_INT32, r.comm, r.stream));
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    EXPECT_NE(std::string::npos, Message().find("rank 0 sends 2 elements to rank 1, which receives 3 from it")) << Message();
  }
}

TEST(Hccl, HC_103_HF_04_ARankThatNeverComes) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  config.hcclExecTimeOut = 1;
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comms[2];
  OK(HcclGroupStart());
  for (uint32_t i = 0; i < 2; ++i) OK(HcclCommInitRootInfoConfig(2, &token, i, &config, &comms[i]));  // of one device
  OK(HcclGroupEnd());
  aclrtStream stream = nullptr;
  OK(aclrtCreateStream(&stream));
  Buffer<float> data(4);
  const auto begin = Clock::now();
  OK(HcclAllReduce(data.data(), data.data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comms[0], stream));
  EXPECT_EQ(507048, aclrtSynchronizeStreamWithTimeout(stream, 60000));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(900));
  const std::string message = Message();
  EXPECT_NE(std::string::npos, message.find("EI0002")) << message;
  EXPECT_NE(std::string::npos, message.find("did not come: rank 1")) << message;
  HcclResult error = HCCL_SUCCESS;
  EXPECT_OK(HcclGetCommAsyncError(comms[0], &error));
  EXPECT_EQ(HCCL_E_TIMEOUT, error);
  for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));  // HF-03
  EXPECT_EQ(0, aclrtDestroyStream(stream));
}

TEST(Hccl, HC_036_DestroyWhileItWaits) {
  Ranks ranks(2);
  std::vector<Buffer<float>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(4);
  }
  ranks[0].Use();
  OK(HcclAllReduce(data[0].data(), data[0].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, ranks[0].comm, ranks[0].stream));
  OK(HcclCommDestroy(std::exchange(ranks[0].comm, nullptr)));
  EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(ranks[0].stream, 60000));
  ranks[1].Use();
  const HcclResult late = HcclAllReduce(data[1].data(), data[1].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, ranks[1].comm, ranks[1].stream);
  EXPECT_OK(late);
  // What rank 0 had published before it went is enough for rank 1, or it learns that rank 0 has gone.
  const int code = aclrtSynchronizeStreamWithTimeout(ranks[1].stream, 60000);
  EXPECT_TRUE(code == 507057) << code;
  EXPECT_NE(std::string::npos, Message().find("destroyed")) << Message();
}

TEST(Hccl, HC_074_HC_075_HC_076_SettingsSuspensionCallbacks) {
  for (const int32_t value : {1, 2, 0}) {
    EXPECT_OK(HcclSetConfig(HCCL_DETERMINISTIC, HcclConfigValue{value}));
    HcclConfigValue read{-1};
    EXPECT_OK(HcclGetConfig(HCCL_DETERMINISTIC, &read));
    EXPECT_EQ(value, read.value);
  }
  EXPECT_EQ(HCCL_E_PARA, HcclSetConfig(HCCL_DETERMINISTIC, HcclConfigValue{3}));
  static std::vector<int> phases;
  phases.clear();
  EXPECT_OK(HcclCommRegCommStateCallback("test", [](HcclComm, HcclCommStatePhase phase, void*) -> HcclResult {
    phases.push_back(phase);
    return HCCL_SUCCESS;
  }, nullptr));
  {
    Ranks ranks(2);
    std::vector<Buffer<float>> data;
    char name[128];
    EXPECT_OK(HcclGetCommName(ranks[0].comm, name));
    for (Rank& r : ranks) {
      r.Use();
      data.emplace_back(4);
      data.back().Fill([](size_t) { return 1.0f; });
      EXPECT_OK(HcclCommSuspend(r.comm));
      EXPECT_EQ(HCCL_E_SUSPENDING, HcclBroadcast(data.back().data(), 1, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream));
    }
    HcclCommStatus status = HCCL_COMM_STATUS_READY;
    EXPECT_OK(HcclCommGetStatus(name, &status));
    EXPECT_EQ(HCCL_COMM_STATUS_SUSPENDING, status);
    for (Rank& r : ranks) EXPECT_OK(HcclCommResume(r.comm));
    EXPECT_OK(HcclCommGetStatus(name, &status));
    EXPECT_EQ(HCCL_COMM_STATUS_READY, status);
    ranks.InLine([&](Rank& r) {
      EXPECT_OK(HcclAllReduce(data[r.rank].data(), data[r.rank].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
    });
    EXPECT_EQ(2.0f, data[1][3]);
  }
  EXPECT_EQ((std::vector<int>{2, 3, 2, 3, 0, 1, 0, 1}), phases);
  EXPECT_OK(HcclCommRegCommStateCallback("test", nullptr, nullptr));
}

TEST(Hccl, HC_007_HC_008_TextsAndCapabilities) {
  EXPECT_GT(HcclGetCommConfigCapability(), static_cast<uint32_t>(HCCL_COMM_CONFIG_BUFFER_NAME));
  std::set<std::string> texts;
  for (int code = 0; code <= 24; ++code) texts.insert(HcclGetErrorString(static_cast<HcclResult>(code)));
  EXPECT_EQ(25u, texts.size());
  for (const int code : {-1, 25, 999}) EXPECT_STREQ("unknown error", HcclGetErrorString(static_cast<HcclResult>(code)));
}

TEST(Hccl, HC_077_HC_078_MemoryOfCommunicators) {
  Ranks ranks(2);
  const HcclComm comm = ranks[0].comm;
  ranks[0].Use();
  void* range = nullptr;
  constexpr size_t kBytes = size_t{4} << 20;
  OK(aclrtReserveMemAddress(&range, kBytes, 0, nullptr, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommSetMemoryRange(comm, range, kBytes, 1, 0));
  EXPECT_OK(HcclCommSetMemoryRange(comm, range, kBytes, 0, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommSetMemoryRange(comm, static_cast<char*>(range) + 4096, 4096, 0, 0));
  void* const half = static_cast<char*>(range) + kBytes / 2;
  EXPECT_OK(HcclCommActivateCommMemory(comm, half, kBytes / 2, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommActivateCommMemory(comm, half, 4096, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommActivateCommMemory(comm, half, kBytes, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommDeactivateCommMemory(comm, range));
  EXPECT_OK(HcclCommDeactivateCommMemory(comm, half));
  EXPECT_OK(HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(0, aclrtReleaseMemAddress(range));
  std::vector<Buffer<int32_t>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(1000);
    data.back()[7] = static_cast<int32_t>(r.rank) + 40;
  }
  void* window = nullptr;
  EXPECT_OK(HcclCommRegister(comm, data[0].data(), 4000, &window, 0));
  uint32_t peers[] = {1};
  EXPECT_OK(HcclCommExchangeMem(comm, window, peers, 1));
  EXPECT_OK(HcclCommDeregister(comm, window));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommDeregister(comm, window));
  for (const bool fits : {true, false}) {
    ranks.InThreads([&](Rank& r) {
      HcclCommSymWindow symmetric = nullptr;
      const HcclResult result = HcclCommSymWinRegister(r.comm, data[r.rank].data(), fits ? 4000 : 1000 + 4 * r.rank, &symmetric, 1);
      EXPECT_EQ(fits ? HCCL_SUCCESS : HCCL_E_PARA, result) << Message();
      if (!fits) return;
      void* peer = nullptr;
      EXPECT_OK(HcclSymWinGetPeerPointer(symmetric, 28, 1 - r.rank, &peer));
      EXPECT_EQ(static_cast<int32_t>(1 - r.rank) + 40, *static_cast<int32_t*>(peer));
      HcclCommSymWindow found = nullptr;
      size_t offset = 0;
      EXPECT_OK(HcclCommSymWinGet(r.comm, &data[r.rank][5], 8, &found, &offset));
      EXPECT_EQ(symmetric, found);
      EXPECT_EQ(20u, offset);
      EXPECT_OK(HcclCommSymWinDeregister(symmetric));
    });
  }
  void* memory = nullptr;
  EXPECT_EQ(1, HcommMemAlloc(&memory, 0));
  EXPECT_EQ(2, HcommMemAlloc(nullptr, 8));
  EXPECT_EQ(0, HcommMemAlloc(&memory, 8));
  EXPECT_EQ(0, HcommMemFree(memory));
}

TEST(Hccl, HC_069_ManyGroupsAtOnce) {
  std::vector<std::thread> threads;
  for (int group = 0; group < 4; ++group) {
    threads.emplace_back([] {
      Ranks ranks(2);
      std::vector<Buffer<float>> data;
      for (Rank& r : ranks) {
        r.Use();
        data.emplace_back(4096);
        data.back().Fill([](size_t) { return 1.0f; });
      }
      for (int round = 0; round < 25; ++round) {
        ranks.InLine([&](Rank& r) {
          EXPECT_OK(HcclAllReduce(data[r.rank].data(), data[r.rank].data(), 4096, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, r.comm, r.stream));
        });
      }
      EXPECT_EQ(1.0f, data[0][4095]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Random programs of collectives on all ranks, each of which keeps a model of every rank's buffer.
TEST(Hccl, RandomProgramsEqualTheModel) {
  std::mt19937 random(20261123);
  for (const uint32_t n : {2u, 3u, 4u}) {
    Ranks ranks(n);
    const size_t size = 6000;
    std::vector<Buffer<int32_t>> data;
    std::vector<std::vector<int32_t>> model(n);
    for (Rank& r : ranks) {
      r.Use();
      data.emplace_back(size);
      data.back().Fill([&](size_t i) { return ValueOf<int32_t>(r.rank, i); });
      model[r.rank] = data.back().Values();
    }
    for (int step = 0; step < 60; ++step) {
      const size_t count = 1 + random() % (random() % 4 == 0 ? size : 40);
      const auto root = static_cast<uint32_t>(random() % n);
      const auto op = static_cast<HcclReduceOp>(random() % 4);
      const int kind = static_cast<int>(random() % 3);
      for (Rank& r : ranks) {
        r.Use();
        int32_t* const at = data[r.rank].data();
        const auto type = HCCL_DATA_TYPE_INT32;
        EXPECT_OK(kind == 0   ? HcclAllReduce(at, at, count, type, op, r.comm, r.stream)
                  : kind == 1 ? HcclBroadcast(at, count, type, root, r.comm, r.stream)
                              : HcclReduce(at, at, count, type, op, root, r.comm, r.stream));
      }
      std::vector<int32_t> folded(model[0].begin(), model[0].begin() + static_cast<std::ptrdiff_t>(count));
      for (uint32_t r = 1; r < n; ++r) {
        for (size_t i = 0; i < count; ++i) folded[i] = Combine(folded[i], model[r][i], op);
      }
      for (uint32_t r = 0; r < n; ++r) {
        if (kind == 0 || (kind == 2 && r == root)) std::copy(folded.begin(), folded.end(), model[r].begin());
        if (kind == 1 && r != root) std::copy_n(model[root].begin(), count, model[r].begin());
      }
    }
    for (Rank& r : ranks) {
      r.Use();
      r.Wait();
      ASSERT_EQ(model[r.rank], data[r.rank].Values()) << "rank " << r.rank << " of " << n;
    }
  }
}

}  // namespace
