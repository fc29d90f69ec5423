// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <thread>

#include "fixture.h"

namespace reprise::testing {
namespace {

class Stream : public Runtime {};

TEST_F(Stream, FlagsAndPriorityAreKept) {
  aclrtStream stream = nullptr;
  EXPECT_ACL(0, aclrtCreateStreamWithConfig(&stream, 5, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
  uint32_t value = 77;
  EXPECT_ACL(0, aclrtStreamGetFlags(stream, &value));
  EXPECT_EQ(value, 3U);
  EXPECT_ACL(0, aclrtStreamGetPriority(stream, &value));
  EXPECT_EQ(value, 5U);
  EXPECT_ACL(0, aclrtStreamGetFlags(nullptr, &value));
  EXPECT_EQ(value, 0U);
  EXPECT_ACL(0, aclrtCreateStreamWithConfig(&stream, 0, 0x8000));
  EXPECT_ACL(0, aclrtStreamGetFlags(stream, &value));
  EXPECT_EQ(value, 0U) << "unknown flags make a plain stream";
  EXPECT_ACL(107000, aclrtCreateStreamWithConfig(&stream, 8, 0));
  EXPECT_ACL(107000, aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY));
  int32_t least = 0;
  int32_t greatest = 9;
  EXPECT_ACL(0, aclrtDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 7);
  EXPECT_EQ(greatest, 0);
  EXPECT_ACL(0, aclrtDeviceGetStreamPriorityRange(nullptr, nullptr));
}

TEST_F(Stream, IdsAreUniqueAndTheNumberLeftFalls) {
  uint32_t before = 0;
  EXPECT_ACL(0, aclrtGetStreamAvailableNum(&before));
  const aclrtStream a = NewStream();
  const aclrtStream b = NewStream();
  int32_t id[3] = {-1, -1, -1};
  EXPECT_ACL(0, aclrtStreamGetId(nullptr, &id[0]));
  EXPECT_ACL(0, aclrtStreamGetId(a, &id[1]));
  EXPECT_ACL(0, aclrtStreamGetId(b, &id[2]));
  EXPECT_TRUE(id[0] != id[1] && id[1] != id[2] && id[0] != id[2]);
  uint32_t after = 0;
  EXPECT_ACL(0, aclrtGetStreamAvailableNum(&after));
  EXPECT_EQ(after, before - 2);
  EXPECT_EQ(before, 1983U) << "the default stream is one";
}

TEST_F(Stream, CreationStopsAtTheCapacity) {
  uint32_t left = 0;
  EXPECT_ACL(0, aclrtGetStreamAvailableNum(&left));
  for (; left > 0; --left) ASSERT_NE(NewStream(), nullptr);
  aclrtStream stream = nullptr;
  EXPECT_ACL(207008, aclrtCreateStream(&stream));
  EXPECT_EQ(stream, nullptr);
}

TEST_F(Stream, ConfigurationHandle) {
  aclrtStreamConfigHandle* config = aclrtCreateStreamConfigHandle();
  ASSERT_NE(config, nullptr);
  EXPECT_EQ(config->flag, 0U);
  EXPECT_EQ(config->priority, 0U);
  const size_t flag = ACL_STREAM_PERSISTENT;
  const uint32_t priority = 3;
  EXPECT_ACL(0, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, &flag, sizeof flag));
  EXPECT_ACL(0, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_PRIORITY, &priority, sizeof priority));
  EXPECT_ACL(100000, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_PRIORITY, &priority, 8));
  EXPECT_ACL(100000, aclrtSetStreamConfigOpt(config, static_cast<aclrtStreamConfigAttr>(4), &flag, 8));
  EXPECT_ACL(100000, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, nullptr, 8));
  EXPECT_ACL(100000, aclrtSetStreamConfigOpt(nullptr, ACL_RT_STREAM_FLAG, &flag, 8));
  // The flags may come as 32 bits, too, with anything behind them.
  const uint32_t narrow[2] = {ACL_STREAM_PERSISTENT, 0xFFFFFFFF};
  EXPECT_ACL(0, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, narrow, 4));
  EXPECT_EQ(config->flag, ACL_STREAM_PERSISTENT);
  for (const size_t bytes : {0, 2, 5, 16}) {
    EXPECT_ACL(100000, aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, narrow, bytes));
  }
  aclrtStream stream = nullptr;
  EXPECT_ACL(0, aclrtCreateStreamV2(&stream, config));
  uint32_t value = 0;
  EXPECT_ACL(0, aclrtStreamGetFlags(stream, &value));
  EXPECT_EQ(value, ACL_STREAM_PERSISTENT);
  EXPECT_ACL(0, aclrtStreamGetPriority(stream, &value));
  EXPECT_EQ(value, 3U);
  EXPECT_ACL(0, aclrtDestroyStreamConfigHandle(config));
  EXPECT_ACL(107017, aclrtDestroyStreamConfigHandle(config));
  EXPECT_ACL(107017, aclrtCreateStreamV2(&stream, config));
  EXPECT_ACL(100000, aclrtCreateStreamV2(&stream, nullptr));
  EXPECT_ACL(100000, aclrtDestroyStreamConfigHandle(nullptr));
}

TEST_F(Stream, QueryAndTimeout) {
  const aclrtStream stream = NewStream();
  Gate gate;
  gate.Block(stream);
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  EXPECT_ACL(0, aclrtStreamQuery(stream, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, 5));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclrtStreamQuery(stream, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
}

TEST_F(Stream, SpecialStreamsAreWaitedForOnceTheHostUsesThem) {
  for (const uint32_t flag : {ACL_STREAM_PERSISTENT, ACL_STREAM_DEVICE_USE_ONLY, ACL_STREAM_CPU_SCHEDULE}) {
    aclrtStream stream = nullptr;
    EXPECT_ACL(0, aclrtCreateStreamWithConfig(&stream, 0, flag));
    EXPECT_ACL(0, aclrtSynchronizeStream(stream));
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    EXPECT_ACL(0, aclrtStreamQuery(stream, &status));
    EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
    Gate gate;
    gate.Block(stream);  // stored by a persistent stream, run by the others
    const bool runs = flag != ACL_STREAM_PERSISTENT;
    EXPECT_ACL(0, aclrtStreamQuery(stream, &status));
    EXPECT_EQ(status, runs ? ACL_STREAM_STATUS_NOT_READY : ACL_STREAM_STATUS_COMPLETE);
    EXPECT_ACL(runs ? 507046 : 0, aclrtSynchronizeStreamWithTimeout(stream, 5));
    gate.Open();
    EXPECT_ACL(0, aclrtSynchronizeStream(stream));
    EXPECT_ACL(0, aclrtDestroyStream(stream));
  }
}

TEST_F(Stream, AbortDropsWhatIsQueued) {
  const aclrtStream stream = NewStream();
  std::atomic<int> runs{0};
  Gate gate;
  gate.Block(stream);
  for (int i = 0; i < 10; ++i) {
    EXPECT_ACL(0, aclrtLaunchHostFunc(
                      stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &runs));
  }
  EXPECT_ACL(0, aclrtStreamAbort(stream));
  gate.Open();
  EXPECT_ACL(107023, aclrtSynchronizeStream(stream));
  EXPECT_EQ(runs, 0);
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclrtStreamAbort(stream)) << "nothing to drop";
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
}

TEST_F(Stream, StopEndsTheTaskInFrontAlone) {
  const aclrtStream stream = NewStream();
  EXPECT_ACL(0, aclrtStreamStop(stream)) << "nothing runs";
  EXPECT_ACL(107000, aclrtStreamStop(nullptr));
  std::atomic<int> runs{0};
  const auto count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  // A wait for a flag that nobody sets is given up; what is behind it runs.
  aclrtEvent never = nullptr;
  EXPECT_ACL(0, aclrtCreateEventWithFlag(&never, ACL_EVENT_SYNC));
  EXPECT_ACL(0, aclrtStreamWaitEvent(stream, never));
  EXPECT_ACL(0, aclrtLaunchHostFunc(stream, count, &runs));
  AwaitParked(stream, "EVENT_WAIT");
  EXPECT_ACL(0, aclrtStreamStop(stream));
  EXPECT_ACL(107023, aclrtSynchronizeStream(stream));
  EXPECT_EQ(runs, 1);
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  // A host function that has begun runs to its end.
  struct Held {
    std::atomic<bool> has_begun = false, go = false;
  } held;
  EXPECT_ACL(0, aclrtLaunchHostFunc(
                    stream,
                    [](void* argument) {
                      auto* const state = static_cast<Held*>(argument);
                      state->has_begun = true;
                      state->has_begun.notify_all();
                      state->go.wait(false);
                    },
                    &held));
  EXPECT_ACL(0, aclrtLaunchHostFunc(stream, count, &runs));
  held.has_begun.wait(false);
  EXPECT_ACL(0, aclrtStreamStop(stream));
  held.go = true;
  held.go.notify_all();
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ(runs, 2);
  EXPECT_ACL(0, aclrtDestroyEvent(never));
}

TEST_F(Stream, AnOrdinaryEventMayBeResetAfterItsWait) {
  const aclrtStream stream = NewStream(), other = NewStream();
  aclrtEvent event = nullptr;
  EXPECT_ACL(0, aclrtCreateEvent(&event));
  EXPECT_ACL(207000, aclrtResetEvent(event, other)) << "never recorded";
  for (int round = 0; round < 3; ++round) {
    Gate gate;
    gate.Block(stream);
    EXPECT_ACL(0, aclrtRecordEvent(event, stream));
    EXPECT_ACL(0, aclrtStreamWaitEvent(other, event));
    EXPECT_ACL(0, aclrtResetEvent(event, other));
    EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(other, 5)) << "the wait keeps its record";
    gate.Open();
    EXPECT_ACL(0, aclrtSynchronizeStream(other));
  }
  EXPECT_ACL(0, aclrtDestroyEvent(event));
}

// A wait that another thread submits while the record is being submitted waits for the one before, or lies behind it:
// it must not come to lie before the record that it waits for.
TEST_F(Stream, RecordsAndWaitsOfTwoThreadsNeverWaitForThemselves) {
  const aclrtStream stream = NewStream();
  for (const uint32_t flag : {ACL_EVENT_SYNC, ACL_EVENT_IPC}) {
    aclrtEvent event = nullptr;
    MUST(aclrtCreateEventExWithFlag(&event, flag));
    constexpr int kTimes = 2000;
    std::thread waiter([&] {
      EXPECT_ACL(0, aclrtSetDevice(0));
      for (int i = 0; i < kTimes; ++i) EXPECT_ACL(0, aclrtStreamWaitEvent(stream, event));
    });
    for (int i = 0; i < kTimes; ++i) EXPECT_ACL(0, aclrtRecordEvent(event, stream));
    waiter.join();
    EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(stream, 60'000));
    MUST(aclrtDestroyEvent(event));
  }
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Stream, ForcedDestructionDropsTheQueue) {
  const aclrtStream stream = NewStream();
  std::atomic<int> runs{0};
  auto gate = std::make_unique<Gate>();
  gate->Block(stream);
  EXPECT_ACL(0, aclrtLaunchHostFunc(
                    stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &runs));
  // The running task ends by itself; it must not hold up the destruction for ever.
  std::thread opener([&] { gate->Open(); });
  EXPECT_ACL(0, aclrtDestroyStreamForce(stream));
  opener.join();
  EXPECT_ACL(107017, aclrtDestroyStreamForce(stream));
  EXPECT_ACL(107017, aclrtSynchronizeStream(stream));
}

TEST_F(Stream, AttributesReadBack) {
  const aclrtStream stream = NewStream();
  aclrtStreamAttrValue value{};
  value.overflowSwitch = 1;
  EXPECT_ACL(0, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &value));
  uint32_t flag = 0;
  EXPECT_ACL(0, aclrtGetStreamOverflowSwitch(stream, &flag));
  EXPECT_EQ(flag, 1U);
  value.userCustomTag = 4711;
  EXPECT_ACL(0, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value));
  value.userCustomTag = 0;
  EXPECT_ACL(0, aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value));
  EXPECT_EQ(value.userCustomTag, 4711U);
  value.streamPriority = 6;
  EXPECT_ACL(0, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_PRIORITY, &value));
  uint32_t priority = 0;
  EXPECT_ACL(0, aclrtStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, 6U);
  value.streamPriority = 8;
  EXPECT_ACL(107000, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_PRIORITY, &value));
  value.overflowSwitch = 2;
  EXPECT_ACL(107000, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &value));
  EXPECT_ACL(107000, aclrtSetStreamAttribute(stream, static_cast<aclrtStreamAttr>(6), &value));
  EXPECT_ACL(107000, aclrtGetStreamAttribute(stream, static_cast<aclrtStreamAttr>(0), &value));
}

TEST_F(Stream, StopOnFailureSpreadsAndIsSetOnce) {
  const aclrtStream before = NewStream();
  const aclrtStream stream = NewStream();
  aclrtStreamAttrValue value{};
  value.failureMode = ACL_STOP_ON_FAILURE;
  EXPECT_ACL(107000, aclrtSetStreamAttribute(nullptr, ACL_STREAM_ATTR_FAILURE_MODE, &value));
  EXPECT_ACL(107000, aclrtSetStreamFailureMode(stream, 2));
  EXPECT_ACL(0, aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
  EXPECT_ACL(107000, aclrtSetStreamFailureMode(stream, ACL_CONTINUE_ON_FAILURE));
  for (const aclrtStream other : {before, NewStream(), aclrtStream{}}) {
    EXPECT_ACL(0, aclrtGetStreamAttribute(other, ACL_STREAM_ATTR_FAILURE_MODE, &value));
    EXPECT_EQ(value.failureMode, uint64_t{ACL_STOP_ON_FAILURE});
    EXPECT_ACL(0, aclrtSetStreamFailureMode(other, ACL_STOP_ON_FAILURE)) << "each stream may still be set once";
  }
}

TEST_F(Stream, CacheOpInfoFollowsTheOriginOfTheCapture) {
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  const auto read = [](aclrtStream stream) {
    aclrtStreamAttrValue value{};
    value.cacheOpInfoSwitch = 77;
    EXPECT_ACL(0, aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value));
    return value.cacheOpInfoSwitch;
  };
  aclrtStreamAttrValue value{};
  value.cacheOpInfoSwitch = 1;
  EXPECT_ACL(0, aclrtSetStreamAttribute(origin, ACL_STREAM_ATTR_CACHE_OP_INFO, &value));
  EXPECT_EQ(read(origin), 0U);
  aclrtEvent fork = nullptr;
  aclrtEvent join = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  MUST(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtRecordEvent(fork, origin));
  MUST(aclrtStreamWaitEvent(forked, fork));
  EXPECT_EQ(read(origin), 1U);
  EXPECT_EQ(read(forked), 1U);
  value.cacheOpInfoSwitch = 0;
  EXPECT_ACL(0, aclrtSetStreamAttribute(origin, ACL_STREAM_ATTR_CACHE_OP_INFO, &value));
  EXPECT_EQ(read(forked), 0U);
  MUST(aclrtRecordEvent(join, forked));
  MUST(aclrtStreamWaitEvent(origin, join));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(origin, &model));
  EXPECT_EQ(read(origin), 0U);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

std::vector<std::pair<aclrtStream, int>> g_stream_states;
void NoteStream(aclrtStream stream, aclrtStreamState state, void*) { g_stream_states.emplace_back(stream, state); }

TEST_F(Stream, StateCallbacksSeeExplicitAndDefaultStreams) {
  g_stream_states.clear();
  EXPECT_ACL(0, aclrtRegStreamStateCallback("a", NoteStream, nullptr));
  EXPECT_ACL(107000, aclrtRegStreamStateCallback("a", NoteStream, nullptr));
  const aclrtStream stream = NewStream();
  EXPECT_ACL(0, aclrtDestroyStream(stream));
  aclrtContext first = nullptr;
  EXPECT_ACL(0, aclrtGetCurrentContext(&first));
  aclrtContext made = nullptr;
  EXPECT_ACL(0, aclrtCreateContext(&made, 0));
  aclrtStream default_stream = nullptr;
  EXPECT_ACL(0, aclrtCtxGetCurrentDefaultStream(&default_stream));
  EXPECT_ACL(0, aclrtSetCurrentContext(first));
  EXPECT_ACL(0, aclrtDestroyContext(made));
  EXPECT_ACL(0, aclrtRegStreamStateCallback("a", nullptr, nullptr));
  using Entry = std::pair<aclrtStream, int>;
  EXPECT_THAT(g_stream_states, ::testing::ElementsAre(Entry{stream, 1}, Entry{stream, 2}, Entry{default_stream, 1},
                                                      Entry{default_stream, 2}));
}

TEST_F(Stream, LastTaskIdRises) {
  std::thread([] {
    uint32_t id = 7;
    EXPECT_ACL(0, aclrtGetThreadLastTaskId(&id));
    EXPECT_EQ(id, 0U);
  }).join();
  const aclrtStream stream = NewStream();
  uint32_t first = 0;
  uint32_t second = 0;
  EXPECT_ACL(0, aclrtLaunchHostFunc(
                    stream, [](void*) {}, nullptr));
  EXPECT_ACL(0, aclrtGetThreadLastTaskId(&first));
  EXPECT_ACL(0, aclrtLaunchHostFunc(
                    stream, [](void*) {}, nullptr));
  EXPECT_ACL(0, aclrtGetThreadLastTaskId(&second));
  EXPECT_EQ(second, first + 1);
}

}  // namespace
}  // namespace reprise::testing
