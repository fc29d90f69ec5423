// SPDX-License-Identifier: Apache-2.0
//
// reprise/reprise.h: closures as tasks, the bill and the picture of a graph.
#include <reprise/reprise.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "fixture.h"

namespace reprise::testing {
namespace {

class CppApi : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
  }
  aclrtStream stream_ = nullptr;
};

// What a closure owns may call the runtime when it goes.
struct Caller {
  explicit Caller(std::atomic<int>& gone) : gone_(&gone) { EXPECT_EQ(0, aclrtGetCurrentContext(&context_)); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    EXPECT_EQ(0, aclrtSetCurrentContext(context_));  // it may go on a worker
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, nullptr));  // takes the lock of captures
    gone_->fetch_add(1);
  }
  aclrtStream stream = nullptr;

 private:
  std::atomic<int>* gone_;
  aclrtContext context_ = nullptr;
};

TEST_F(CppApi, ClosureRunsInOrderAndIsDestroyedOnce) {
  std::atomic<int> gone{0};
  std::vector<int> order;
  {
    auto owned = std::make_shared<Caller>(gone);
    owned->stream = stream_;
    for (int i = 0; i < 3; ++i) {
      MUST(LaunchClosure(stream_, "append", [owned, &order, i] {
        order.push_back(i);
        return 0;
      }));
    }
  }
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(gone, 1);
}

TEST_F(CppApi, CapturedClosureRunsOncePerReplayAndGoesWithTheGraph) {
  std::atomic<int> gone{0};
  int runs = 0;
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  auto owned = std::make_shared<Caller>(gone);
  owned->stream = stream_;
  MUST(LaunchClosure(stream_, "count", [owned = std::move(owned), &runs] {
    ++runs;
    return 0;
  }));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 3; ++i) MUST(aclmdlRIExecuteAsync(model, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(gone, 0);
  MUST(aclmdlRIDestroy(model));
  EXPECT_EQ(gone, 1);
}

TEST_F(CppApi, RefusedAndDroppedClosuresGoWithoutTheLock) {
  std::atomic<int> gone{0};
  const aclrtStream other = NewStream();
  aclrtEvent fork = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  const auto launch = [&](aclrtStream stream) {
    auto owned = std::make_shared<Caller>(gone);
    owned->stream = stream_;
    return LaunchClosure(stream, "owner", [owned = std::move(owned)] { return 0; });
  };
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(launch(stream_));
  MUST(aclrtRecordEvent(fork, stream_));
  MUST(aclrtStreamWaitEvent(other, fork));
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  EXPECT_EQ(107034, launch(other)) << "interrupts the group, and invalidates";
  EXPECT_EQ(gone, 1);
  MUST(launch(stream_));
  EXPECT_EQ(gone, 2) << "accepted and dropped";
  aclmdlRI model = nullptr;
  EXPECT_NE(0, aclmdlRICaptureEnd(stream_, &model));
  EXPECT_EQ(gone, 3) << "the graph has gone";
  EXPECT_EQ(0, aclrtDestroyEvent(fork));
}

// An update replaces closures while the lock of captures is held: at once, in the order of a busy stream, and when its
// stream goes in the middle of it.
TEST_F(CppApi, ReplacedClosuresOfAGroupGoWithoutTheLock) {
  constexpr int kClosures = 2;
  std::atomic<int> gone{0};
  std::vector<int> order;
  const auto launch = [&](aclrtStream stream, int value) {
    auto owned = std::make_shared<Caller>(gone);
    owned->stream = stream_;
    return LaunchClosure(stream, "append", [owned = std::move(owned), &order, value] {
      order.push_back(value);
      return 0;
    });
  };
  aclrtTaskGrp group = nullptr;
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  for (int i = 0; i < kClosures; ++i) MUST(launch(stream_, i));
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  const auto run = [&] {
    order.clear();
    EXPECT_EQ(0, aclmdlRIExecuteAsync(model, stream_));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
    return order;
  };
  EXPECT_THAT(run(), ::testing::ElementsAre(0, 1));
  aclrtStream other = NewStream();
  MUST(aclmdlRICaptureTaskUpdateBegin(other, group));
  for (int i = 0; i < kClosures; ++i) MUST(launch(other, 10 + i));
  MUST(aclmdlRICaptureTaskUpdateEnd(other));
  EXPECT_EQ(gone, kClosures);
  EXPECT_THAT(run(), ::testing::ElementsAre(10, 11));
  {
    Gate gate;
    gate.Block(other);
    MUST(aclmdlRICaptureTaskUpdateBegin(other, group));
    for (int i = 0; i < kClosures; ++i) MUST(launch(other, 20 + i));
    MUST(aclmdlRICaptureTaskUpdateEnd(other));
    EXPECT_THAT(run(), ::testing::ElementsAre(10, 11)) << "the stream has not come to it";
    EXPECT_EQ(gone, kClosures);
  }
  MUST(aclrtSynchronizeStream(other));
  EXPECT_EQ(gone, 2 * kClosures);
  MUST(aclmdlRICaptureTaskUpdateBegin(other, group));
  MUST(launch(other, 30));
  EXPECT_EQ(0, aclrtDestroyStream(other));
  EXPECT_EQ(gone, 2 * kClosures + 1);
  EXPECT_THAT(run(), ::testing::ElementsAre(30, 21));
  EXPECT_EQ(0, aclmdlRIDestroy(model));
  EXPECT_EQ(gone, 3 * kClosures + 1);
}

TEST_F(CppApi, FailureOfAClosureIsReported) {
  MUST(LaunchClosure(stream_, "checksum", [] { return 507015; }));
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream_));
}

TEST_F(CppApi, ThrowingClosureIsAFailedTask) {
  MUST(LaunchClosure(stream_, "thrower", []() -> int { throw std::runtime_error("no more paper"); }));
  DropMessage();
  EXPECT_EQ(507015, aclrtSynchronizeStream(stream_));
  const char* const message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  EXPECT_THAT(message, ::testing::HasSubstr("no more paper"));
  EXPECT_THAT(message, ::testing::HasSubstr("thrower"));
}

TEST_F(CppApi, WrongCallsAreRefused) {
  const auto nothing = [] { return 0; };
  EXPECT_EQ(107000, LaunchClosure(stream_, nullptr, nothing));
  EXPECT_EQ(107000, LaunchClosure(stream_, "empty", {}));
  int local = 0;
  EXPECT_EQ(107017, LaunchClosure(&local, "wild", nothing));
  GraphStats stats{};
  EXPECT_EQ(107017, GetGraphStats(&local, &stats));
  EXPECT_EQ(107000, WriteGraphPicture(&local, nullptr));
}

TEST_F(CppApi, BillAndPictureOfAGraph) {
  const aclrtStream side = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtRecordEvent(fork, stream_));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(LaunchClosure(side, "beside <it>", [] { return 0; }));
  MUST(aclrtRecordEvent(join, side));
  MUST(aclrtStreamWaitEvent(stream_, join));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  GraphStats stats{};
  MUST(GetGraphStats(model, &stats));
  EXPECT_EQ(stats.tasks, 7u) << "closure, two records, two waits, two resets";
  EXPECT_EQ(stats.streams, 2u);
  EXPECT_EQ(stats.events, 2u);
  EXPECT_GT(stats.memory_bytes, 0u);
  const std::string path = "cpp_api_test_" + std::to_string(::getpid()) + ".svg";
  MUST(WriteGraphPicture(model, path.c_str()));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), ::testing::StartsWith("<svg"));
  EXPECT_THAT(text.str(), ::testing::HasSubstr("beside &lt;it&gt;"));
  EXPECT_EQ(0, std::remove(path.c_str()));
  EXPECT_EQ(107009, WriteGraphPicture(model, "/nowhere/at/all.svg"));
  EXPECT_EQ(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtDestroyEvent(fork));
  EXPECT_EQ(0, aclrtDestroyEvent(join));
}

}  // namespace
}  // namespace reprise::testing
