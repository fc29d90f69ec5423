// SPDX-License-Identifier: Apache-2.0
//
// Operators of ranks in one process: in one thread (L) and in threads (T).
// Tests carry the items of the specification.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>

#include "ranks.h"
#include "values.h"

namespace {

using namespace reprise::testing;

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
      EXPECT_OK(HcclReduce(send[r.rank].data(), receive[r.rank].data(), count, type, HCCL_REDUCE_SUM, root, r.comm,
                           r.stream));
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
      EXPECT_OK(HcclScatter(r.rank == root ? send[r.rank].data() : nullptr, receive[r.rank].data(), count, type, root,
                            r.comm, r.stream));
    });
    for (uint32_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf<int32_t>(root, r * count + i), receive[r][i]);
    }
  }
  reset();  // HC-042
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(
        HcclReduceScatter(send[r.rank].data(), receive[r.rank].data(), count, type, HCCL_REDUCE_SUM, r.comm, r.stream));
  });
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(Folded<int32_t>(n, r * count + i, HCCL_REDUCE_SUM), receive[r][i]);
  }
  reset();  // HC-043
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(HcclAllGather(send[r.rank].data(), receive[r.rank].data(), count, type, r.comm, r.stream));
  });
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count * n; ++i)
      ASSERT_EQ(ValueOf<int32_t>(static_cast<uint32_t>(i / count), i % count), receive[r][i]);
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
                              receive[r].data(), counts[r].data(), offsets[r].data(), HCCL_DATA_TYPE_INT64, rank.comm,
                              rank.stream));
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
      EXPECT_EQ(0, aclrtLaunchHostFunc(
                       r.stream, [](void* c) { static_cast<Count*>(c)->before.fetch_add(1); }, &count));
      EXPECT_OK(HcclBarrier(r.comm, r.stream));
      EXPECT_EQ(0, aclrtLaunchHostFunc(
                       r.stream,
                       [](void* c) {
                         if (static_cast<Count*>(c)->before.load() % 4 != 0) static_cast<Count*>(c)->early.fetch_add(1);
                       },
                       &count));
      EXPECT_OK(HcclBarrier(r.comm, r.stream));
      r.Wait();
    });
    EXPECT_EQ(4 * round, count.before.load());
  }
  EXPECT_EQ(0, count.early.load());
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
      EXPECT_OK(HcclAllReduce(at, at, 16, HCCL_DATA_TYPE_INT64, i % 3 == 0 ? HCCL_REDUCE_SUM : HCCL_REDUCE_MAX,
                              rank.comm, rank.stream));
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
    EXPECT_OK(
        HcclAllReduce(data.data(), data.data(), data.size(), HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream));
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
          EXPECT_OK(HcclAllReduce(data[r.rank].data(), data[r.rank].data(), 4096, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX,
                                  r.comm, r.stream));
        });
      }
      EXPECT_EQ(1.0f, data[0][4095]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

size_t AvailableBytes() {
  std::ifstream lines("/proc/meminfo");
  for (std::string word; lines >> word;) {
    size_t kilobytes = 0;
    if (word == "MemAvailable:" && lines >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

TEST(Hccl, HC_117_MoreThanFourGigabytes) {
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  if (form == nullptr || std::string(form) != "full") GTEST_SKIP() << "takes 8 GiB and seconds; in the full form";
  constexpr size_t kBytes = (size_t{4} << 30) + 8;
  constexpr size_t kPart = kBytes / 2;
  if (AvailableBytes() < 3 * kBytes) GTEST_SKIP() << "needs " << 3 * kBytes << " bytes of memory";
  Ranks ranks(2);
  std::vector<Buffer<int8_t>> data;
  const auto places = [](size_t begin) {
    return std::vector<size_t>{begin, begin + 5, begin + kPart / 2, begin + kPart - 1};
  };
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(kBytes);
    if (data.back().data() == nullptr) GTEST_SKIP() << "a device has no " << kBytes << " bytes";
    for (const size_t i : places(r.rank * kPart)) data[r.rank][i] = static_cast<int8_t>(i % 100 + 1);
  }
  ranks.InLine([&](Rank& r) {
    int8_t* const to = data[r.rank].data();
    EXPECT_OK(HcclAllGather(to + r.rank * kPart, to, kPart, HCCL_DATA_TYPE_INT8, r.comm, r.stream));
  });
  for (Rank& r : ranks) {
    for (const size_t part : {size_t{0}, kPart}) {
      for (const size_t i : places(part)) EXPECT_EQ(static_cast<int8_t>(i % 100 + 1), data[r.rank][i]) << i;
    }
  }
  for (const size_t i : {size_t{0}, size_t{1} << 32, kBytes - 1}) data[0][i] = 77;
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(r.rank == 0 ? HcclSend(data[0].data(), kBytes, HCCL_DATA_TYPE_INT8, 1, r.comm, r.stream)
                          : HcclRecv(data[1].data(), kBytes, HCCL_DATA_TYPE_INT8, 0, r.comm, r.stream));
  });
  for (const size_t i : {size_t{0}, size_t{1} << 32, kBytes - 1}) EXPECT_EQ(77, data[1][i]);
}

// Random programs of collectives on all ranks, with a model of every rank's buffer. One thread submits for all ranks,
// or a thread for each does. The rows asan and tsan have this file, too: that is HC-115.
TEST(Hccl, HC_115_RandomProgramsEqualTheModel) {
  struct Step {
    size_t count;
    uint32_t root;
    HcclReduceOp op;
    int kind;
  };
  const size_t size = 6000;
  std::mt19937 random(20261123);
  for (const uint32_t n : {2u, 3u, 4u}) {
    for (const bool in_threads : {false, true}) {
      Ranks ranks(n);
      std::vector<Buffer<int32_t>> data;
      std::vector<std::vector<int32_t>> model(n);
      for (Rank& r : ranks) {
        r.Use();
        data.emplace_back(size);
        data.back().Fill([&](size_t i) { return ValueOf<int32_t>(r.rank, i); });
        model[r.rank] = data.back().Values();
      }
      std::vector<Step> program(60);
      for (Step& step : program) {
        step = {1 + random() % (random() % 4 == 0 ? size : 40), static_cast<uint32_t>(random() % n),
                static_cast<HcclReduceOp>(random() % 4), static_cast<int>(random() % 3)};
        std::vector<int32_t> folded(model[0].begin(), model[0].begin() + static_cast<std::ptrdiff_t>(step.count));
        for (uint32_t r = 1; r < n; ++r) {
          for (size_t i = 0; i < step.count; ++i) folded[i] = Combine(folded[i], model[r][i], step.op);
        }
        for (uint32_t r = 0; r < n; ++r) {
          if (step.kind == 0 || (step.kind == 2 && r == step.root))
            std::copy(folded.begin(), folded.end(), model[r].begin());
          if (step.kind == 1 && r != step.root) std::copy_n(model[step.root].begin(), step.count, model[r].begin());
        }
      }
      const auto submit = [&](Rank& r, const Step& step) {
        int32_t* const at = data[r.rank].data();
        const auto type = HCCL_DATA_TYPE_INT32;
        EXPECT_OK(step.kind == 0   ? HcclAllReduce(at, at, step.count, type, step.op, r.comm, r.stream)
                  : step.kind == 1 ? HcclBroadcast(at, step.count, type, step.root, r.comm, r.stream)
                                   : HcclReduce(at, at, step.count, type, step.op, step.root, r.comm, r.stream));
      };
      if (in_threads) {
        ranks.InThreads([&](Rank& r) {
          for (const Step& step : program) submit(r, step);
          r.Wait();
        });
      } else {
        for (const Step& step : program) {
          for (Rank& r : ranks) {
            r.Use();
            submit(r, step);
          }
        }
      }
      for (Rank& r : ranks) {
        r.Use();
        r.Wait();
        ASSERT_EQ(model[r.rank], data[r.rank].Values()) << "rank " << r.rank << " of " << n;
      }
    }
  }
}

}  // namespace
