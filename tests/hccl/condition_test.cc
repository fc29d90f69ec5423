// SPDX-License-Identifier: Apache-2.0
//
// Collectives in bodies of conditional tasks. Tests carry the items of the specification.
#include "conditions.h"

#include <deque>

#include "../runtime/child.h"

namespace {

using namespace reprise::testing;

constexpr aclmdlRICondTaskType kIf = ACL_MODEL_RI_COND_TYPE_IF;
constexpr aclmdlRICondTaskType kWhile = ACL_MODEL_RI_COND_TYPE_WHILE;
constexpr aclmdlRICondTaskType kSwitch = ACL_MODEL_RI_COND_TYPE_SWITCH;

// A graph of each rank, its cells by the order in which they were added, and a buffer for the sums.
struct Side {
  Side(Rank& of, size_t count) : rank(of), recorder(of), data(count) {}
  void Sum(HcclComm comm = nullptr) { SumOn(recorder.stream(), comm); }
  void SumOn(aclrtStream stream, HcclComm comm = nullptr) {
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), data.size(), HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                            comm != nullptr ? comm : rank.comm, stream));
  }
  void Add(aclmdlRICondTaskType type, const std::vector<Recorder::Body>& bodies) {
    cells.push_back(nullptr);
    uint64_t** const cell = &cells.back();
    *cell = recorder.Add(type, bodies);
  }
  void Launch() { EXPECT_EQ(0, aclmdlRIExecuteAsync(graph, rank.stream)) << Message(); }

  Rank& rank;
  Recorder recorder;
  Buffer<int64_t> data;
  std::deque<uint64_t*> cells;  // stays where it is: tasks point to it
  aclmdlRI graph = nullptr;
};

class Sides {
 public:
  Sides(uint32_t count, size_t elements, const std::function<void(Side&)>& record) : ranks(count) {
    for (Rank& rank : ranks) {
      rank.Use();
      sides.push_back(std::make_unique<Side>(rank, elements));
      Side& side = *sides.back();
      side.graph = side.recorder.Graph([&] { record(side); });
    }
  }
  ~Sides() {
    for (const auto& side : sides) {
      side->rank.Use();
      EXPECT_EQ(0, aclmdlRIDestroy(side->graph)) << Message();
    }
  }
  Side& operator[](size_t i) { return *sides[i]; }
  void Set(size_t cell, uint64_t value) {
    for (const auto& side : sides) *side->cells[cell] = value;
  }
  void Fill(int64_t value) {
    for (const auto& side : sides) side->data.Fill([&](size_t) { return value; });
  }
  void Replay() {
    ranks.InLine([&](Rank& rank) { sides[rank.rank]->Launch(); });
  }
  void Expect(int64_t value) {
    for (const auto& side : sides) {
      ASSERT_EQ(value, side->data[0]);
      ASSERT_EQ(value, side->data[side->data.size() - 1]);
    }
  }
  /// All ranks fail, and say that a condition differed.
  void ExpectMismatch() {
    for (const auto& side : sides) {
      side->rank.Use();
      EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(side->rank.stream, 60000)) << side->rank.rank;
      const std::string message = Message();
      EXPECT_NE(std::string::npos, message.find("EI0005")) << message;
      EXPECT_NE(std::string::npos, message.find("a condition")) << message;
      HcclResult error = HCCL_SUCCESS;
      EXPECT_OK(HcclGetCommAsyncError(side->rank.comm, &error));
      EXPECT_EQ(HCCL_E_PARA, error);
    }
  }

  Ranks ranks;
  std::vector<std::unique_ptr<Side>> sides;
};

// Small data lie in the slots, large ones do not.
constexpr size_t kSizes[] = {4, 5000};

TEST(HcclConditions, HC_090_IfBothWays) {
  for (const size_t size : kSizes) {
    Sides all(2, size, [](Side& s) {
      s.Sum();
      s.Add(kIf, {[&] { s.Sum(); }});
      s.Sum();
    });
    for (uint64_t step = 0; step < 20; ++step) {
      all.Fill(1);
      all.Set(0, step % 3 == 0 ? 0 : step);
      all.Replay();
      all.Expect(step % 3 == 0 ? 4 : 8);
    }
  }
}

TEST(HcclConditions, HC_090_IfWithTwoBodies) {
  Sides all(2, 4, [](Side& s) { s.Add(kIf, {[&] { s.Sum(); }, [&] { s.Sum(), s.Sum(), s.Sum(); }}); });
  for (uint64_t step = 0; step < 6; ++step) {
    all.Fill(1);
    all.Set(0, step % 2);
    all.Replay();
    all.Expect(step % 2 == 0 ? 8 : 2);
  }
}

// More rounds than a rank may have operators under way.
TEST(HcclConditions, HC_090_WhileOfManyRounds) {
  for (const size_t size : kSizes) {
    Sides all(2, size, [](Side& s) {
      s.Add(kWhile, {[&] {
              s.Sum();
              s.recorder.CountDown(&s.cells[0]);
            }});
    });
    for (const uint64_t rounds : {5u, 0u, 1u, 40u, 5u}) {
      all.Fill(1);
      all.Set(0, rounds);
      all.Replay();
      all.Expect(int64_t{1} << rounds);
    }
  }
}

TEST(HcclConditions, HC_090_SwitchOverBranches) {
  Sides all(3, 4, [](Side& s) { s.Add(kSwitch, {[&] { s.Sum(); }, [] {}, [&] { s.Sum(), s.Sum(); }}); });
  for (uint64_t step = 0; step < 8; ++step) {
    all.Fill(1);
    all.Set(0, step % 4);  // 3: no branch
    all.Replay();
    const int64_t values[] = {3, 1, 9, 1};
    all.Expect(values[step % 4]);
  }
}

TEST(HcclConditions, HC_090_NestedConditions) {
  Sides all(3, 4, [](Side& s) {
    s.Add(kWhile, {[&] {
            s.Sum();
            s.Add(kIf, {[&] { s.Sum(); }, [&] { s.Add(kIf, {[&] { s.Sum(), s.Sum(); }}); }});
            s.Sum();
            s.recorder.CountDown(&s.cells[0]);
          }});
  });
  for (uint64_t step = 0; step < 8; ++step) {
    all.Fill(1);
    all.Set(0, 2);
    all.Set(1, step % 2);
    all.Set(2, step / 2 % 2);
    all.Replay();
    const int64_t each = step % 2 == 1 ? 27 : step / 2 % 2 == 1 ? 81 : 9;
    all.Expect(each * each);
  }
}

TEST(HcclConditions, HC_090_SeveralCommunicatorsAndStreams) {
  Ranks others(2);
  Sides all(2, 3000, [&](Side& s) {
    const HcclComm other = others[s.rank.rank].comm;
    s.Add(kIf, {[&] {
            s.Sum();
            s.Sum(other);
          }});
    s.Add(kWhile, {[&] {
            s.Sum(other);
            s.recorder.CountDown(&s.cells[1]);
          }});
  });
  for (uint64_t step = 0; step < 12; ++step) {
    all.Fill(1);
    all.Set(0, step % 2);
    all.Set(1, step % 3);
    all.Replay();
    all.Expect(int64_t{1} << (2 * (step % 2) + step % 3));
  }
}

// Two conditional tasks of one graph at the same time: each has its own envelope, whichever begins first.
TEST(HcclConditions, HC_090_ConditionsOnForkedStreams) {
  std::vector<Buffer<int64_t>> more;
  Ranks rows(1);  // devices exist before buffers do
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
    more.emplace_back(6);
  }
  std::deque<uint64_t*> cells(2);
  Sides all(2, 6, [&](Side& s) {
    Buffer<int64_t>& mine = more[s.rank.rank];
    uint64_t** const cell = &cells[s.rank.rank];
    s.recorder.Beside(
        [&](aclrtStream side) {
          *cell = s.recorder.AddOn(side, kWhile, {[&] {
                                     EXPECT_OK(HcclAllReduce(mine.data(), mine.data(), 6, HCCL_DATA_TYPE_INT64,
                                                             HCCL_REDUCE_SUM, s.rank.comm, s.recorder.stream()));
                                     s.recorder.CountDown(cell);
                                   }});
        },
        [&] { s.Add(kIf, {[&] { s.Sum(), s.Sum(); }}); });
  });
  for (uint64_t step = 0; step < 20; ++step) {
    all.Fill(1);
    for (auto& buffer : more) buffer.Fill([](size_t) { return 1; });
    all.Set(0, step % 2);
    for (uint64_t* cell : cells) *cell = step % 5;
    all.Replay();
    all.Expect(step % 2 == 0 ? 1 : 4);
    for (auto& buffer : more) ASSERT_EQ(int64_t{1} << (step % 5), buffer[5]);
  }
}

TEST(HcclConditions, HC_090_OperatorsOnForkedStreamsOfABody) {
  std::vector<Buffer<int64_t>> more;
  Ranks rows(1);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
    more.emplace_back(5000);
  }
  Sides all(2, 5000, [&](Side& s) {
    Buffer<int64_t>& mine = more[s.rank.rank];
    s.Add(kWhile, {[&] {
            s.recorder.Beside(
                [&](aclrtStream side) {
                  for (int i = 0; i < 3; ++i)
                    EXPECT_OK(HcclAllReduce(mine.data(), mine.data(), 5000, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                                            s.rank.comm, side));
                },
                [&] { s.Sum(), s.Sum(); });
            s.recorder.CountDown(&s.cells[0]);
          }});
  });
  for (int step = 0; step < 10; ++step) {
    all.Fill(1);
    for (auto& buffer : more) buffer.Fill([](size_t) { return 1; });
    all.Set(0, 2);
    all.Replay();
    all.Expect(16);
    for (auto& buffer : more) ASSERT_EQ(64, buffer[4999]);
  }
}

// Which of two tasks of a body runs first is open when they are on different streams.
TEST(HcclConditions, HC_090_NestedConditionsOnTwoStreamsOfABodyAreRefused) {
  Ranks ranks(1);
  Rank& rank = ranks[0];
  rank.Use();
  Buffer<int64_t> data(4);
  aclmdlRI graph = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureBegin(rank.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureGetInfo(rank.stream, &status, &model));
  aclmdlRICondHandle handle = nullptr;
  ASSERT_EQ(0, aclmdlRICondHandleCreate(model, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
  aclmdlRI body = nullptr;
  aclmdlRICondTaskParams params = {};
  params.handle = handle;
  params.type = kIf;
  params.size = 1;
  params.modelRIArray = &body;
  ASSERT_EQ(0, aclmdlRIAddCondTask(params, rank.stream, 0)) << Message();
  aclrtStream aux = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&aux));
  Rank there = rank;
  there.stream = aux;
  Recorder inside(there);
  ASSERT_EQ(0, aclmdlRICaptureToModelRIBegin(aux, body, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  const auto sum_inside = [&] {
    EXPECT_OK(
        HcclAllReduce(data.data(), data.data(), 4, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, rank.comm, inside.stream()));
  };
  inside.Beside([&](aclrtStream side) { (void)inside.AddOn(side, kIf, {sum_inside}); },
                [&] { (void)inside.Add(kIf, {sum_inside}); });
  EXPECT_EQ(207000, aclmdlRICaptureEnd(aux, &body));
  EXPECT_NE(std::string::npos, Message().find("one stream of the body")) << Message();
  (void)aclmdlRICaptureEnd(rank.stream, &graph);
  EXPECT_EQ(0, aclrtDestroyStream(aux));
}

TEST(HcclConditions, HC_090_ReplaysAndEagerOperatorsInTurns) {
  Sides all(2, 4, [](Side& s) {
    s.Add(kWhile, {[&] {
            s.Sum();
            s.recorder.CountDown(&s.cells[0]);
          }});
  });
  for (uint64_t step = 0; step < 40; ++step) {
    all.Fill(1);
    all.Set(0, step % 4);
    all.ranks.InLine([&](Rank& rank) {
      Side& s = all[rank.rank];
      s.SumOn(rank.stream);
      s.Launch();
      s.SumOn(rank.stream);
    });
    all.Expect(int64_t{1} << (step % 4 + 2));
  }
}

// Ranks in threads, many executions under way, and a second graph of the same communicator on another stream.
TEST(HcclConditions, HC_090_HC_095_ManyExecutionsInFlight) {
  constexpr int kSteps = 60;
  constexpr uint32_t kRanks = 3;
  Sides all(kRanks, 4, [](Side& s) {
    s.Add(kIf, {[&] { s.Sum(); }});
    s.Sum();
  });
  std::vector<std::unique_ptr<Side>> seconds;
  std::vector<Rank> places;
  for (Rank& rank : all.ranks) {
    rank.Use();
    places.push_back(rank);
    EXPECT_EQ(0, aclrtCreateStream(&places.back().stream));
  }
  for (Rank& place : places) {
    place.Use();
    seconds.push_back(std::make_unique<Side>(place, 2000));
    Side& s = *seconds.back();
    s.graph = s.recorder.Graph([&] { s.Add(kIf, {[&] { s.Sum(); }}); });
    *s.cells[0] = 1;
    s.data.Fill([](size_t) { return 1; });
  }
  all.Set(0, 1);
  all.Fill(0);
  all.ranks.InThreads([&](Rank& rank) {
    for (int step = 0; step < kSteps; ++step) {
      all[rank.rank].Launch();
      if (step < 20) seconds[rank.rank]->Launch();
    }
    rank.Wait();
    places[rank.rank].Wait();
  });
  all.Expect(0);
  for (const auto& s : seconds) {
    s->rank.Use();
    EXPECT_EQ(3486784401, s->data[1999]);  // 3^20
    EXPECT_EQ(0, aclmdlRIDestroy(s->graph));
  }
  seconds.clear();
  for (Rank& place : places) {
    place.Use();
    EXPECT_EQ(0, aclrtDestroyStream(place.stream));
  }
}

TEST(HcclConditions, HC_091_IfThatDiffersFailsOnAllRanks) {
  for (const uint32_t ranks : {2u, 3u}) {
    for (uint32_t odd = 0; odd < ranks; ++odd) {
      for (const uint64_t value : {0u, 1u}) {
        for (const size_t size : kSizes) {
          Sides all(ranks, size, [](Side& s) {
            s.Add(kIf, {[&] { s.Sum(); }});
            s.Sum();
          });
          all.Fill(1);
          all.Set(0, value);
          *all[odd].cells[0] = 1 - value;
          for (const auto& side : all.sides) {
            side->rank.Use();
            side->Launch();
          }
          all.ExpectMismatch();
        }
      }
    }
  }
}

TEST(HcclConditions, HC_091_LoopsOfDifferentLength) {
  Sides all(3, 4, [](Side& s) {
    s.Add(kWhile, {[&] {
            s.Sum();
            s.recorder.CountDown(&s.cells[0]);
          }});
  });
  all.Fill(1);
  all.Set(0, 30);
  *all[1].cells[0] = 29;
  for (const auto& side : all.sides) {
    side->rank.Use();
    side->Launch();
  }
  all.ExpectMismatch();
}

// Branches that do the same are different branches.
TEST(HcclConditions, HC_091_BranchesThatDiffer) {
  Sides all(2, 4, [](Side& s) { s.Add(kSwitch, {[&] { s.Sum(); }, [&] { s.Sum(); }}); });
  all.Fill(1);
  all.Set(0, 0);
  *all[1].cells[0] = 1;
  for (const auto& side : all.sides) {
    side->rank.Use();
    side->Launch();
  }
  all.ExpectMismatch();
}

TEST(HcclConditions, HC_091_HC_098_WorksAgainAfterResume) {
  Sides all(2, 4, [](Side& s) {
    s.Sum();
    s.Add(kIf, {[&] { s.Sum(); }});
  });
  all.Fill(1);
  all.Set(0, 1);
  all.Replay();
  all.Expect(4);
  *all[0].cells[0] = 0;
  for (const auto& side : all.sides) {
    side->rank.Use();
    side->Launch();
  }
  all.ExpectMismatch();
  for (Rank& rank : all.ranks) EXPECT_OK(HcclCommSuspend(rank.comm));
  for (Rank& rank : all.ranks) EXPECT_OK(HcclCommResume(rank.comm));
  for (uint64_t step = 0; step < 20; ++step) {
    all.Fill(1);
    all.Set(0, step % 2);
    all.Replay();
    all.Expect(step % 2 == 0 ? 2 : 4);
  }
}

// A rank that calls what others have in a conditional task.
TEST(HcclConditions, HC_091_ACallAgainstAConditionalTask) {
  Sides all(2, 4, [](Side& s) { s.Add(kIf, {[&] { s.Sum(); }}); });
  all.Fill(1);
  all.Set(0, 1);
  all.ranks[0].Use();
  all[0].Launch();
  all.ranks[1].Use();
  all[1].SumOn(all.ranks[1].stream);
  for (Rank& rank : all.ranks) {
    rank.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(rank.stream, 60000));
    EXPECT_NE(std::string::npos, Message().find("EI0005")) << Message();
  }
}

TEST(HcclConditions, HC_093_AGroupThatIsGoneIsNamedAtTheLaunch) {
  Sides all(1, 4, [](Side& s) { s.Add(kIf, {[&] { s.Sum(); }}); });
  char name[128];
  OK(HcclGetCommName(all.ranks[0].comm, name));
  OK(HcclCommDestroy(std::exchange(all.ranks[0].comm, nullptr)));
  EXPECT_EQ(507011, aclmdlRIExecuteAsync(all[0].graph, all.ranks[0].stream));
  EXPECT_NE(std::string::npos, Message().find(name)) << Message();
}

// In the body, and at its end.
TEST(HcclConditions, HC_097_HF_03_AnAbortAndADestroyedRankEndTheWait) {
  for (const bool is_in_body : {true, false}) {
    for (const bool aborts : {true, false}) {
      Sides all(2, 4, [](Side& s) { s.Add(kIf, {[&] { s.Sum(); }}); });
      all.Fill(1);
      all.Set(0, is_in_body ? 1 : 0);
      all.ranks[0].Use();
      all[0].Launch();
      if (aborts) {
        OK(aclrtStreamAbort(all.ranks[0].stream));
        (void)aclrtSynchronizeStreamWithTimeout(all.ranks[0].stream, 60000);
        all.ranks[1].Use();
        all[1].Launch();
        int code = aclrtSynchronizeStreamWithTimeout(all.ranks[1].stream, 60000);
        if (code == 0 && !is_in_body) {  // the other one had told already that it ran no operator
          all[1].Launch();
          code = aclrtSynchronizeStreamWithTimeout(all.ranks[1].stream, 60000);
        }
        EXPECT_EQ(507057, code) << Message();
      } else {
        EXPECT_OK(HcclCommDestroy(std::exchange(all.ranks[1].comm, nullptr)));
        EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(all.ranks[0].stream, 60000)) << Message();
        EXPECT_NE(std::string::npos, Message().find("destroyed")) << Message();
      }
    }
  }
}

// Each rank hands its data on to the next one.
void PassOn(Side& s, uint32_t ranks, Buffer<int64_t>& got) {
  HcclSendRecvItem items[] = {
      {HCCL_SEND, s.data.data(), s.data.size(), HCCL_DATA_TYPE_INT64, (s.rank.rank + 1) % ranks},
      {HCCL_RECV, got.data(), got.size(), HCCL_DATA_TYPE_INT64, (s.rank.rank + ranks - 1) % ranks}};
  EXPECT_OK(HcclBatchSendRecv(items, 2, s.rank.comm, s.recorder.stream()));
  EXPECT_EQ(0, aclrtMemcpyAsync(s.data.data(), s.data.size() * 8, got.data(), got.size() * 8,
                                ACL_MEMCPY_DEVICE_TO_DEVICE, s.recorder.stream()));
}

TEST(HcclConditions, HC_090_SendsAndReceives) {
  constexpr uint32_t kRanks = 3;
  for (const size_t size : kSizes) {
    Ranks rows(1);
    std::deque<Buffer<int64_t>> got;
    for (uint32_t i = 0; i < kRanks; ++i) {
      EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
      got.emplace_back(size);
    }
    Sides all(kRanks, size, [&](Side& s) {
      Buffer<int64_t>& mine = got[s.rank.rank];
      s.Add(kWhile, {[&] {
              PassOn(s, kRanks, mine);
              s.recorder.CountDown(&s.cells[0]);
            }});
      s.Add(kSwitch, {[] {}, [&] { PassOn(s, kRanks, mine), s.Sum(), PassOn(s, kRanks, mine); }});
      PassOn(s, kRanks, mine);
    });
    for (const uint64_t rounds : {0u, 1u, 5u, 30u, 2u}) {
      for (const uint64_t choice : {0u, 1u}) {
        for (const auto& side : all.sides) side->data.Fill([&](size_t) { return side->rank.rank; });
        all.Set(0, rounds);
        all.Set(1, choice);
        all.Replay();
        for (const auto& side : all.sides) {
          const auto came_from = static_cast<int64_t>((side->rank.rank + 3 * 40 - rounds - 1) % 3);
          ASSERT_EQ(choice == 0 ? came_from : 3, side->data[size - 1]) << rounds;
        }
      }
    }
  }
}

// One side of a pair has a message more in its body than the other one.
TEST(HcclConditions, HC_091_AMessageTooMany) {
  for (const size_t size : kSizes) {
    for (const uint32_t more : {0u, 1u}) {  // the sender, the receiver
      for (const uint64_t rounds : {0u, 3u}) {
        Sides all(2, size, [](Side& s) {
          s.Add(kWhile, {[&] {
                  if (s.rank.rank == 0) {
                    EXPECT_OK(HcclSend(s.data.data(), s.data.size(), HCCL_DATA_TYPE_INT64, 1, s.rank.comm,
                                       s.recorder.stream()));
                  } else {
                    EXPECT_OK(HcclRecv(s.data.data(), s.data.size(), HCCL_DATA_TYPE_INT64, 0, s.rank.comm,
                                       s.recorder.stream()));
                  }
                  s.recorder.CountDown(&s.cells[0]);
                }});
        });
        all.Set(0, rounds);
        *all[more].cells[0] = rounds + 1;
        for (const auto& side : all.sides) {
          side->rank.Use();
          side->Launch();
        }
        all.ExpectMismatch();
      }
    }
  }
}

TEST(HcclConditions, DISABLED_Strict) {
  const auto record = [](Side& s) {
    s.Add(kIf, {[&] { s.Sum(); }});
    s.Sum();
  };
  Sides all(2, 4, record);
  for (uint64_t step = 0; step < 4; ++step) {
    all.Fill(1);
    all.Set(0, step % 2);
    all.Replay();
    all.Expect(step % 2 == 0 ? 2 : 4);
  }
  // The body of one rank has one operator more: both are told, whether or not it runs.
  Sides odd(2, 4, [](Side& s) {
    s.Add(kIf, {[&] {
            s.Sum();
            if (s.rank.rank == 1) s.Sum();
          }});
  });
  odd.Set(0, 0);
  for (const auto& side : odd.sides) {
    side->rank.Use();
    side->Launch();
  }
  for (const auto& side : odd.sides) {
    side->rank.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(side->rank.stream, 60000));
    EXPECT_NE(std::string::npos, Message().find("the graph that it is of")) << Message();
  }
}
TEST(HcclConditions, HC_096_StrictGraphsWithConditions) {
  ::setenv("REPRISE_HCCL_STRICT_GRAPH", "1", 1);
  { Child child("HcclConditions.DISABLED_Strict", ""); }
  ::unsetenv("REPRISE_HCCL_STRICT_GRAPH");
}

}  // namespace
