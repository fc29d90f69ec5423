// SPDX-License-Identifier: Apache-2.0
//
// reprise/operation.h: objects that run in stream order, eagerly and in graphs; what they throw, draw and show.
#include <reprise/operation.h>
#include <reprise/random.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../runtime/child.h"
#include "../runtime/fixture.h"
#include "../unit/scale.h"
#include "exec/assign.h"
#include "fixture.h"
#include "model/model.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Call final : public Operation {
 public:
  using Body = std::function<void(uint64_t seed)>;
  Call(OperationInfo info, Body body, std::atomic<int>* gone = nullptr)
      : info_(std::move(info)), body_(std::move(body)), gone_(gone) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() override {
    if (gone_ != nullptr) ++*gone_;
  }
  void Run(uint64_t seed) override { body_(seed); }
  OperationInfo Describe() const override { return info_; }

 private:
  const OperationInfo info_;
  const Body body_;
  std::atomic<int>* const gone_;
};

class Operations : public GraphTest {
 protected:
  void TearDown() override {
    GraphTest::TearDown();
    EXPECT_EQ(gone_, made_) << "each is destroyed once";
  }
  std::unique_ptr<Operation> Make(Call::Body body, OperationInfo info = {"step", {}}) {
    ++made_;
    return std::make_unique<Call>(std::move(info), std::move(body), &gone_);
  }
  void Launch(aclrtStream stream, Call::Body body, const OperationOptions& options = {}) {
    LaunchOperation(stream, Make(std::move(body)), options);
  }
  /// Notes its value when it runs. On streams that are in order with each other.
  void Note(aclrtStream stream, int value) {
    Launch(stream, [this, value](uint64_t) { order_.push_back(value); });
  }
  std::vector<int> Order() {
    Wait(stream_);
    return std::exchange(order_, {});
  }
  /// The number that the stream's next synchronisation returns, and its message.
  static std::pair<int, std::string> Synchronised(aclrtStream stream) {
    (void)aclGetRecentErrMsg();
    const int code = aclrtSynchronizeStream(stream);
    const char* message = aclGetRecentErrMsg();
    return {code, message != nullptr ? message : ""};
  }

  std::atomic<int> made_{0}, gone_{0};
  std::vector<int> order_;
};

TEST_F(Operations, RunInStreamOrderOnceWhenEager) {
  for (int i = 0; i < 3; ++i) Note(i == 1 ? nullptr : stream_, i);
  EXPECT_THAT(Order(), ElementsAre(0, 1, 2));
  EXPECT_EQ(gone_, 3);
}

TEST_F(Operations, RunOncePerReplayAndGoWithTheGraph) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    for (int i = 0; i < 2; ++i) Note(nullptr, i);
    Launch(stream_, [this](uint64_t) { order_.push_back(2); }, {.is_host_function = true});
  }
  EXPECT_THAT(Order(), ElementsAre()) << "a capture runs nothing";
  for (int i = 0; i < 2; ++i) graph.Replay();
  EXPECT_THAT(Order(), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(gone_, 0);
  graph.Reset();
  EXPECT_EQ(gone_, 3);
}

TEST_F(Operations, AHostFunctionThatWaitsForItsStreamIsTold) {
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  int code = -1;
  Launch(stream_,
         [&](uint64_t) {
           (void)aclrtSetCurrentContext(context);
           code = aclrtSynchronizeStream(stream_);
         },
         {.is_host_function = true});
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(code, 507000);
}

TEST_F(Operations, GoWithAGraphThatIsDroppedInItsCapture) {
  {
    Graph graph;
    graph.CaptureBegin();
    Note(nullptr, 0);
  }
  EXPECT_EQ(gone_, 1);
  EXPECT_THAT(Order(), ElementsAre());
}

TEST_F(Operations, ThoseOfAnAbortedStreamGoWithoutRunning) {
  const aclrtStream other = NewStream();
  Gate gate;
  gate.Block(other);
  Generator generator;
  Launch(other, [this](uint64_t) { order_.push_back(1); });
  Launch(other, [this](uint64_t) { order_.push_back(2); }, {.is_host_function = true});
  Launch(other, [this](uint64_t) { order_.push_back(3); }, {.generator = &generator});
  EXPECT_EQ(0, aclrtStreamAbort(other));
  gate.Open();
  (void)aclrtSynchronizeStream(other);
  EXPECT_EQ(gone_, 3);
  EXPECT_THAT(Order(), ElementsAre());
}

// Plans may lay them out on lanes as they like, which host functions forbid.
TEST_F(Operations, PlansMayMoveThem) {
  Generator generator;
  const struct {
    OperationOptions options;
    bool may_move;
  } table[] = {{{}, true},
               {{.generator = &generator}, true},
               {{.is_host_function = true}, false},
               {{.generator = &generator, .is_host_function = true}, false}};
  for (const auto& row : table) {
    Graph graph;
    {
      Capture capture(graph, stream_);
      Launch(
          nullptr, [](uint64_t) {}, row.options);
    }
    const model::Model* model = model::Models().Find(graph.raw_executable());
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(exec::CanSchedule(model->graph()), row.may_move) << "row " << &row - table;
  }
}

TEST_F(Operations, ManyThreadsLaunchAndReplayAtOnce) {
  constexpr int kThreads = 4;
  const int rounds = Loops(300, 60);
  Generator generator;
  std::atomic<int> eager{0}, replayed{0};
  std::mutex mutex;
  std::set<uint64_t> seeds;
  const auto note = [&](std::atomic<int>& count, uint64_t seed) {
    ++count;
    std::lock_guard lock(mutex);
    seeds.insert(seed);
  };
  Graph graph;
  {
    Capture capture(graph, stream_);
    for (int i = 0; i < 2; ++i) {
      Launch(nullptr, [&](uint64_t seed) { note(replayed, seed); }, {.generator = &generator});
    }
  }
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, on = NewStream()] {
      ASSERT_EQ(0, aclrtSetCurrentContext(context));
      for (int i = 0; i < rounds; ++i) {
        Launch(on, [&](uint64_t seed) { note(eager, seed); },
               {.generator = &generator, .is_host_function = i % 8 == 0});
        graph.Replay(on);
        if (i % 16 == 0) {
          ASSERT_EQ(0, aclrtSynchronizeStream(on));
        }
      }
      ASSERT_EQ(0, aclrtSynchronizeStream(on));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(eager, kThreads * rounds);
  EXPECT_EQ(replayed, 2 * kThreads * rounds);
  EXPECT_EQ(seeds.size(), size_t{3} * kThreads * rounds) << "no seed twice";
}

TEST_F(Operations, RefusedLaunchesSayWhyAndDestroyTheOperation) {
  aclrtStream stale = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&stale));
  ASSERT_EQ(0, aclrtDestroyStream(stale));
  aclrtStream persistent = nullptr;
  ASSERT_EQ(0, aclrtCreateStreamWithConfig(&persistent, 0, ACL_STREAM_PERSISTENT));
  Generator foreign(0);
  Generator moved = std::move(foreign);
  const auto nothing = [](uint64_t) {};
  const struct {
    const char* what;
    int code;
    const char* words;
    std::function<void()> call;
  } table[] = {
      {"null operation", 107000, "parameter operation", [&] { LaunchOperation(stream_, nullptr); }},
      {"destroyed stream", 107017, "stream", [&] { Launch(stale, nothing); }},
      {"destroyed stream, host function", 107017, "stream",
       [&] { Launch(stale, nothing, {.is_host_function = true}); }},
      {"destroyed stream, generator", 107017, "stream", [&] { Launch(stale, nothing, {.generator = &moved}); }},
      {"generator, stored for a model", 207000, "stores its tasks",
       [&] { Launch(persistent, nothing, {.generator = &moved}); }},
      {"generator moved from", 107000, "options.generator", [&] { Launch(stream_, nothing, {.generator = &foreign}); }},
  };
  for (const auto& row : table) {
    EXPECT_TRUE(Refused(row.code, row.words, row.call)) << row.what;
    EXPECT_EQ(gone_, made_) << row.what;
  }
  EXPECT_EQ(moved.offset(), 0u) << "a refused launch draws nothing";
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(0, aclrtDestroyStream(persistent));
}

TEST_F(Operations, HostFunctionsAreRefusedInTaskGroups) {
  for (const bool draws : {false, true}) {
    Generator generator;
    aclrtTaskGrp group = nullptr;
    aclmdlRI model = nullptr;
    ASSERT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    ASSERT_EQ(0, aclmdlRICaptureTaskGrpBegin(stream_));
    OperationOptions options{.is_host_function = true};
    if (draws) options.generator = &generator;
    // A generator is refused in a capture that is none of a Graph, before the group is looked at.
    EXPECT_TRUE(Refused(draws ? 107030 : 507009, "", [&] {
      Launch(
          stream_, [](uint64_t) {}, options);
    }));
    EXPECT_EQ(gone_, made_);
    (void)aclmdlRICaptureTaskGrpEnd(stream_, &group);
    if (aclmdlRICaptureEnd(stream_, &model) == 0) {
      EXPECT_EQ(0, aclmdlRIDestroy(model));
    }
  }
}

// ---- Failures ----

struct Failure {
  const char* what;
  int code;
  std::vector<const char*> words;
  Call::Body body;
};

std::vector<Failure> Failures() {
  return {
      {"std::exception",
       507015,
       {"operation step failed: shapes differ"},
       [](uint64_t) { throw std::runtime_error("shapes differ"); }},
      {"std::bad_alloc",
       207001,
       {"operation step failed", "no memory", "free memory"},
       [](uint64_t) { throw std::bad_alloc(); }},
      {"Exception",
       107017,
       {"operation step failed: it is stale", "culprit 7", "make a new one"},
       [](uint64_t) { throw Exception(107017, "whole", "it is stale", "culprit 7", "make a new one"); }},
      {"OutOfMemory",
       207001,
       {"operation step failed: full"},
       [](uint64_t) { throw OutOfMemory(207001, "whole", "full", "", ""); }},
      {"Exception with a number of nobody",
       507015,
       {"failed: odd"},
       [](uint64_t) { throw Exception(31337, "whole", "odd", "", ""); }},
      {"Exception with the number of success",
       507015,
       {"failed: odd"},
       [](uint64_t) { throw Exception(0, "whole", "odd", "", ""); }},
      {"something else", 507015, {"operation step failed", "no std::exception"}, [](uint64_t) { throw 7; }},
  };
}

TEST_F(Operations, LoopsCoverEachItemOnceWhoeverRunsThem) {
  constexpr int64_t kMost = 5000;
  std::vector<std::atomic<int>> seen(kMost);
  const auto count_one = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  };
  const auto expect_all = [&](int64_t count, int times) {
    for (int64_t i = 0; i < kMost; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i < count ? times : 0) << i;
    for (auto& each : seen) each = 0;
  };
  for (const int64_t bytes : {int64_t{0}, int64_t{8}, int64_t{1} << 20, INT64_MAX}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, kMost}) {
      SCOPED_TRACE(::testing::Message() << count << " items of " << bytes << " bytes");
      ParallelFor(count, bytes, count_one);
      expect_all(count, 1);
      Graph graph;
      {
        Capture capture(graph, stream_);
        Launch(stream_, [=](uint64_t) { ParallelFor(count, bytes, count_one); });
      }
      graph.Replay(stream_);
      graph.Replay(stream_);
      ASSERT_EQ(0, aclrtSynchronizeStream(stream_));
      expect_all(count, 2);
    }
  }
  Launch(stream_, [&](uint64_t) {
    ParallelFor(kMost / 10, 1 << 20, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ParallelFor(10, 1 << 20, [&](int64_t first, int64_t last) { count_one(10 * i + first, 10 * i + last); });
      }
    });
  });
  ASSERT_EQ(0, aclrtSynchronizeStream(stream_));
  expect_all(kMost, 1);
}

TEST_F(Operations, WhatALoopThrowsIsWhatTheOperationThrows) {
  Launch(stream_, [](uint64_t) {
    ParallelFor(1000, 1 << 20, [](int64_t begin, int64_t end) {
      if (begin <= 700 && 700 < end) throw std::runtime_error("item 700 is missing");
    });
  });
  const auto [code, message] = Synchronised(stream_);
  EXPECT_EQ(code, 507015);
  EXPECT_THAT(message, HasSubstr("item 700 is missing"));
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
}

TEST_F(Operations, WhatTheyThrowIsReportedOnceAndLaterWorkGoesOn) {
  for (const bool is_host : {false, true}) {
    for (const Failure& row : Failures()) {
      Launch(stream_, row.body, {.is_host_function = is_host});
      Note(stream_, 1);
      const auto [code, message] = Synchronised(stream_);
      EXPECT_EQ(code, row.code) << row.what << ": " << message;
      for (const char* words : row.words) EXPECT_THAT(message, HasSubstr(words)) << row.what;
      EXPECT_THAT(Order(), ElementsAre(1)) << row.what;
    }
  }
}

TEST_F(Operations, WhoLooksAtAPendingErrorLeavesItToTheNextSynchronisation) {
  EXPECT_EQ(PendingError(stream_), std::nullopt);
  for (const Failure& row : Failures()) {
    Launch(stream_, row.body);
    std::optional<Exception> seen;
    while (!(seen = PendingError(stream_))) std::this_thread::yield();
    EXPECT_EQ(seen->code(), row.code) << row.what;
    for (const char* words : row.words) EXPECT_THAT(seen->what(), HasSubstr(words)) << row.what;
    EXPECT_NE(PendingError(stream_), std::nullopt) << row.what;
    EXPECT_EQ(Synchronised(stream_).first, row.code) << row.what;
    EXPECT_EQ(PendingError(stream_), std::nullopt) << row.what;
  }
  int nothing = 0;
  EXPECT_TRUE(Refused(107017, "stream", [&] { (void)PendingError(&nothing); }));
}

TEST_F(Operations, WhetherAnythingIsCapturedIsKnown) {
  EXPECT_FALSE(AnyStreamIsCapturing());
  const aclrtStream other = NewStream();
  for (int turn = 0; turn < 2; ++turn) {
    Graph first, second;
    {
      Capture capture(first, stream_);
      EXPECT_TRUE(AnyStreamIsCapturing());
      {
        Capture nested(second, other);
        EXPECT_TRUE(AnyStreamIsCapturing());
      }
      EXPECT_TRUE(AnyStreamIsCapturing());
    }
    EXPECT_FALSE(AnyStreamIsCapturing());
  }
  {
    Graph dropped;
    dropped.CaptureBegin();
    EXPECT_TRUE(AnyStreamIsCapturing());
  }
  EXPECT_FALSE(AnyStreamIsCapturing());
  const aclrtStream destroyed = NewStream();
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureBegin(destroyed, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  EXPECT_TRUE(AnyStreamIsCapturing());
  (void)aclmdlRICaptureEnd(destroyed, &model);
  EXPECT_FALSE(AnyStreamIsCapturing());
  EXPECT_EQ(0, model == nullptr ? 0 : aclmdlRIDestroy(model));
}

TEST_F(Operations, FailuresInReplaysLeaveOutTheRestOfTheReplayAlone) {
  for (const Failure& row : Failures()) {
    bool fails = true;
    Graph graph;
    {
      Capture capture(graph, stream_);
      Note(nullptr, 0);
      Launch(nullptr, [&](uint64_t seed) {
        if (fails) row.body(seed);
      });
      Note(nullptr, 1);
    }
    graph.Replay();
    Note(stream_, 2);
    const auto [code, message] = Synchronised(stream_);
    EXPECT_EQ(code, row.code) << row.what << ": " << message;
    for (const char* words : row.words) EXPECT_THAT(message, HasSubstr(words)) << row.what;
    EXPECT_THAT(message, HasSubstr("of graph stream")) << row.what;
    EXPECT_THAT(Order(), ElementsAre(0, 2)) << row.what;
    fails = false;
    graph.Replay();
    EXPECT_THAT(Order(), ElementsAre(0, 1)) << row.what;
  }
}

TEST_F(Operations, FailuresOnForkedLanesAreReportedOnce) {
  const aclrtStream other = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  Graph graph;
  std::atomic<int> behind{0};
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
    ASSERT_EQ(0, aclrtStreamWaitEvent(other, fork));
    Launch(other, [](uint64_t) { throw std::runtime_error("on a lane"); });
    ASSERT_EQ(0, aclrtRecordEvent(join, other));
    ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
    Launch(stream_, [&](uint64_t) { ++behind; });
  }
  for (int i = 0; i < 5; ++i) {
    graph.Replay();
    const auto [code, message] = Synchronised(stream_);
    EXPECT_EQ(code, 507015);
    EXPECT_THAT(message, HasSubstr("operation step failed: on a lane"));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  }
  EXPECT_EQ(behind, 0);
  EXPECT_EQ(0, aclrtDestroyEvent(fork));
  EXPECT_EQ(0, aclrtDestroyEvent(join));
}

TEST_F(Operations, FailuresNameTheInnermostFrame) {
  LaunchOperation(stream_, Make([](uint64_t) { throw std::runtime_error("no"); },
                                {"aten::mm", {{"model.py", 12, "forward"}, {"train.py", 3, "main"}}}));
  const auto [code, message] = Synchronised(stream_);
  EXPECT_EQ(code, 507015);
  EXPECT_THAT(message, AllOf(HasSubstr("operation aten::mm failed: no"), HasSubstr("at model.py:12 in forward"),
                             Not(HasSubstr("train.py"))));
}

// ---- Random ----

TEST_F(Operations, SeedsOfReplaysAreThoseOfEagerCalls) {
  for (const bool is_host : {false, true}) {
    Generator generator;
    std::vector<uint64_t> seeds;
    const auto draw = [&] {
      Launch(nullptr, [&](uint64_t seed) { seeds.push_back(seed); },
             {.generator = &generator, .is_host_function = is_host});
    };
    generator.ManualSeed(11);
    for (int i = 0; i < 6; ++i) draw();
    Wait(stream_);
    const std::vector<uint64_t> eager = std::exchange(seeds, {});
    EXPECT_EQ(std::set(eager.begin(), eager.end()).size(), 6u) << "each its own";
    EXPECT_EQ(generator.offset(), 24u) << "one draw each";
    generator.ManualSeed(11);
    Graph graph;
    {
      Capture capture(graph, stream_);
      draw();
      draw();
    }
    EXPECT_EQ(generator.offset(), 0u) << "a capture draws nothing";
    graph.Replay();
    draw();
    graph.Replay();
    draw();
    Wait(stream_);
    EXPECT_EQ(seeds, eager);
  }
  uint64_t none = 1;
  Launch(nullptr, [&](uint64_t seed) { none = seed; });
  Wait(stream_);
  EXPECT_EQ(none, 0u);
}

// ---- Task groups ----

class OperationGroups : public Operations {
 protected:
  /// A graph whose group holds what `fill` launches.
  void CaptureGroup(Graph& graph, const std::function<void()>& fill) {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, aclmdlRICaptureTaskGrpBegin(stream_));
    fill();
    ASSERT_EQ(0, aclmdlRICaptureTaskGrpEnd(stream_, &group_));
  }
  aclrtTaskGrp group_ = nullptr;
};

TEST_F(OperationGroups, AnUpdateReplacesThemInOrder) {
  Graph graph;
  CaptureGroup(graph, [&] {
    Note(nullptr, 0);
    Note(nullptr, 1);
  });
  graph.Replay();
  EXPECT_THAT(Order(), ElementsAre(0, 1));
  const aclrtStream updater = NewStream();
  ASSERT_EQ(0, aclmdlRICaptureTaskUpdateBegin(updater, group_));
  Note(updater, 10);
  EXPECT_TRUE(Refused(507009, "", [&] { Launch(updater, [](uint64_t) {}, {.is_host_function = true}); }));
  Note(updater, 11);
  EXPECT_TRUE(Refused(507000, "", [&] { Note(updater, 12); })) << "the group has two";
  ASSERT_EQ(0, aclmdlRICaptureTaskUpdateEnd(updater));
  ASSERT_EQ(0, aclrtSynchronizeStream(updater));
  graph.Replay();
  EXPECT_THAT(Order(), ElementsAre(10, 11));
  EXPECT_EQ(gone_, 4) << "two were replaced, two refused";
}

TEST_F(OperationGroups, OneThatDrawsKeepsTheGeneratorOfTheOneItReplaces) {
  Generator generator, other;
  std::vector<uint64_t> before, after;
  const auto draw = [&](aclrtStream stream, Generator& from, std::vector<uint64_t>& seeds) {
    Launch(stream, [&seeds](uint64_t seed) { seeds.push_back(seed); }, {.generator = &from});
  };
  generator.ManualSeed(5);
  other.ManualSeed(6);
  for (int i = 0; i < 2; ++i) draw(stream_, generator, before);
  Wait(stream_);
  const std::vector<uint64_t> eager = std::exchange(before, {});
  generator.ManualSeed(5);
  Graph graph;
  CaptureGroup(graph, [&] { draw(nullptr, generator, before); });
  const aclrtStream updater = NewStream();
  graph.Replay();
  Wait(stream_);
  ASSERT_EQ(0, aclmdlRICaptureTaskUpdateBegin(updater, group_));
  draw(updater, other, after);
  ASSERT_EQ(0, aclmdlRICaptureTaskUpdateEnd(updater));
  ASSERT_EQ(0, aclrtSynchronizeStream(updater));
  graph.Replay();
  Wait(stream_);
  EXPECT_THAT(before, ElementsAre(eager[0]));
  EXPECT_THAT(after, ElementsAre(eager[1]));
  EXPECT_EQ(other.offset(), 0u) << "an update draws nothing";
}

TEST_F(OperationGroups, OneThatDrawsReplacesNothingElse) {
  Graph graph;
  CaptureGroup(graph, [&] { Note(nullptr, 0); });
  const aclrtStream updater = NewStream();
  Generator generator;
  ASSERT_EQ(0, aclmdlRICaptureTaskUpdateBegin(updater, group_));
  EXPECT_TRUE(
      Refused(507000, "not a random draw", [&] { Launch(updater, [](uint64_t) {}, {.generator = &generator}); }));
  (void)aclmdlRICaptureTaskUpdateEnd(updater);
  EXPECT_EQ(gone_, 1);
  graph.Replay();
  EXPECT_THAT(Order(), ElementsAre(0));
}

// ---- Dumps ----

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(Operations, DumpsShowWhereTheyWereLaunched) {
  const OperationInfo info{"aten::\"mm\"", {{"a<b>.py", 12, "forward"}, {"train.py", 3, "main"}}};
  const std::string folder = ::testing::TempDir() + "reprise_operations_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const auto dump = [&](const OperationInfo& shown, bool is_host, const char* ending) {
    Graph graph;
    {
      Capture capture(graph, stream_);
      LaunchOperation(stream_, Make([](uint64_t) {}, shown), {.is_host_function = is_host});
    }
    EXPECT_TRUE(graph.Dump(folder + "/graph" + ending));
    return ReadFile(folder + "/graph" + ending);
  };
  EXPECT_THAT(dump(info, false, ".json"),
              AllOf(HasSubstr("\"Call Stack\":[\"a<b>.py:12 (forward)\",\"train.py:3 (main)\"]"),
                    HasSubstr("\"name\":\"aten::\\\"mm\\\"\""), HasSubstr("KERNEL_AIVEC")));
  EXPECT_THAT(dump(info, true, ".json"), AllOf(HasSubstr("\"Call Stack\":[\"a<b>.py:12 (forward)\""),
                                               HasSubstr("HOSTFUNC_CALLBACK"), Not(HasSubstr("Numblocks"))));
  EXPECT_THAT(dump(info, false, ".dot"), HasSubstr("tooltip=\"a<b>.py:12 (forward)\""));
  EXPECT_THAT(dump(info, false, ".svg"), HasSubstr("\nat a&lt;b&gt;.py:12 (forward)\n   train.py:3 (main)</title>"));
  const OperationInfo bare{"bare", {}};
  EXPECT_THAT(dump(bare, false, ".json"), AllOf(HasSubstr("bare"), Not(HasSubstr("Call Stack"))));
  EXPECT_THAT(dump(bare, false, ".dot"), AllOf(HasSubstr("bare"), Not(HasSubstr("tooltip"))));
  EXPECT_THAT(dump(bare, false, ".svg"), AllOf(HasSubstr("<title>bare\n"), HasSubstr("1 block</title>")));
  std::filesystem::remove_all(folder);
}

class Mute final : public Operation {
 public:
  void Run(uint64_t) override { throw std::runtime_error("failed"); }
  OperationInfo Describe() const override { throw std::runtime_error("no words"); }
};

TEST_F(Operations, OneThatCannotDescribeItselfIsDumpedAndReportedAllTheSame) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    LaunchOperation(stream_, std::make_unique<Mute>());
  }
  const std::string path = ::testing::TempDir() + "reprise_mute_" + std::to_string(::getpid()) + ".json";
  EXPECT_TRUE(graph.Dump(path));
  EXPECT_THAT(ReadFile(path), HasSubstr("KERNEL_AIVEC"));
  std::filesystem::remove(path);
  graph.Replay();
  const auto [code, message] = Synchronised(stream_);
  EXPECT_EQ(code, 507015);
  EXPECT_THAT(message, HasSubstr("operation without a name failed: failed"));
}

// ---- Threads ----

TEST_F(Operations, HostFunctionsNeverRunOnTheThreadThatWaits) {
  const std::thread::id self = std::this_thread::get_id();
  std::atomic<int> here{0}, elsewhere{0};
  const auto look = [&](uint64_t) { ++(std::this_thread::get_id() == self ? here : elsewhere); };
  Graph graph;
  {
    Capture capture(graph, stream_);
    Launch(nullptr, look, {.is_host_function = true});
  }
  for (int i = 0; i < 50; ++i) {
    Launch(nullptr, look, {.is_host_function = true});
    graph.Replay();
    Wait(stream_);
  }
  EXPECT_EQ(here, 0);
  EXPECT_EQ(elsewhere, 100);
}

// Two forked streams, each operation of which computes for a while.
TEST_F(Operations, ForkedStreamsRunSideBySide) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) < 2) GTEST_SKIP() << "there is one core";
  const char* const workers = std::getenv("REPRISE_WORKERS");
  if (workers != nullptr && std::atoi(workers) == 1) GTEST_SKIP() << "there is one worker";
  const aclrtStream other = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  struct Turn {
    std::atomic<int> running{0};
    std::atomic<int> most{0};
  } turn;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const auto compute = [&](uint64_t) {
    const int now = ++turn.running;
    int most = turn.most.load();
    while (now > most && !turn.most.compare_exchange_weak(most, now)) {
    }
    {
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    while (std::chrono::steady_clock::now() < end) {
    }
    --turn.running;
  };
  Graph graph;
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
    ASSERT_EQ(0, aclrtStreamWaitEvent(other, fork));
    for (int i = 0; i < 5; ++i) {
      Launch(stream_, compute);
      Launch(other, compute);
    }
    ASSERT_EQ(0, aclrtRecordEvent(join, other));
    ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
  }
  // The other core may be busy with somebody else for a while, and the thread that waits then does all of it.
  int replays = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (turn.most < 2 && std::chrono::steady_clock::now() < end) {
    ++replays;
    graph.Replay();
    Wait(stream_);
  }
  EXPECT_EQ(turn.most, 2) << "one after another in " << replays << " replays";
  EXPECT_GE(threads.size(), 2u);
  EXPECT_EQ(0, aclrtDestroyEvent(fork));
  EXPECT_EQ(0, aclrtDestroyEvent(join));
}

// ---- The default generator ----

// In a process where nobody has asked for it before.
TEST_F(Operations, DISABLED_TheDefaultGeneratorIsMadeInACapture) {
  std::vector<uint64_t> seeds;
  Graph graph;
  {
    Capture capture(graph, stream_);
    Generator generator = Generator::Default();
    for (int i = 0; i < 2; ++i) {
      Launch(nullptr, [&](uint64_t seed) { seeds.push_back(seed); }, {.generator = &generator});
    }
  }
  Generator generator = Generator::Default();
  EXPECT_EQ(generator.offset(), 0u);
  for (int i = 0; i < 2; ++i) graph.Replay();
  Wait(stream_);
  EXPECT_EQ(std::set(seeds.begin(), seeds.end()).size(), 4u);
  EXPECT_EQ(generator.offset(), 16u);
  generator.ManualSeed(generator.initial_seed());
  const std::vector<uint64_t> first = std::exchange(seeds, {});
  for (int i = 0; i < 2; ++i) graph.Replay();
  Wait(stream_);
  EXPECT_EQ(seeds, first);
}

TEST_F(Operations, TheDefaultGeneratorMayBeMadeInACapture) {
  Child child("Operations.DISABLED_TheDefaultGeneratorIsMadeInACapture", "");
  child.Join();
}

}  // namespace
}  // namespace reprise::testing
