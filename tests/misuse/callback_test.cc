// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for host functions and callbacks.
#include <pthread.h>

#include <climits>

#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) { RestartWith(argv, {{"REPRISE_DEVICES", "2"}}); }

void Nothing(void*) {}
void Count(void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); }

uint64_t Self() { return static_cast<uint64_t>(pthread_self()); }
aclrtCallbackBlockType Block(int number) { return static_cast<aclrtCallbackBlockType>(number); }

struct World : BasicWorld {
  aclrtStream subscribed = nullptr;  // to the test's thread
  aclrtStream elsewhere = nullptr;   // to thread id kElsewhere
  std::atomic<int> calls{0};
  char text[64] = "{\"key\": 1}";

  static constexpr uint64_t kElsewhere = 12345;
  static constexpr uint64_t kNobody = 54321;
};

class CallbackMisuse : public Misuse<World> {
 protected:
  void SetUp() override {
    Misuse::SetUp();
    world_.subscribed = NewStream();
    world_.elsewhere = NewStream();
    MUST(aclrtSubscribeReport(Self(), world_.subscribed));
    MUST(aclrtSubscribeReport(World::kElsewhere, world_.elsewhere));
  }

  void StillWorks() override {
    Misuse::StillWorks();
    const int before = world_.calls.load();
    EXPECT_EQ(0, aclrtLaunchHostFunc(world_.stream, &Count, &world_.calls));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
    EXPECT_EQ(0, aclrtLaunchCallback(&Count, &world_.calls, ACL_CALLBACK_BLOCK, world_.subscribed));
    EXPECT_EQ(0, aclrtProcessReport(kPatience));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(world_.subscribed, kPatience));
    EXPECT_EQ(world_.calls.load(), before + 2);
  }
};

TEST_F(CallbackMisuse, NullPointersAndRanges) {
  Everywhere({
      ROW(107000, aclrtLaunchHostFunc(w.stream, nullptr, nullptr)),
      ROW(107000, aclrtLaunchHostFunc(nullptr, nullptr, nullptr)),
      ROW(107000, aclrtLaunchHostFunc(w.captured, nullptr, nullptr)),
      ROW(107000, aclrtLaunchCallback(nullptr, nullptr, ACL_CALLBACK_BLOCK, w.subscribed)),
      ROW(107000, aclrtLaunchCallback(nullptr, nullptr, ACL_CALLBACK_NO_BLOCK, nullptr)),
      ROW(100000, aclrtLaunchCallback(&Nothing, nullptr, Block(2), w.subscribed)),
      ROW(100000, aclrtLaunchCallback(&Nothing, nullptr, Block(-1), w.subscribed)),
      ROW(100000, aclrtLaunchCallback(&Nothing, nullptr, Block(INT_MAX), w.subscribed)),
      ROW(100000, aclrtSubscribeHostFunc(Self(), nullptr)),
      ROW(100000, aclrtUnSubscribeHostFunc(Self(), nullptr)),
      ROW(100000, aclrtProcessReport(0)),
      ROW(100000, aclrtProcessReport(-2)),
      ROW(100000, aclrtProcessReport(INT_MIN)),
      ROW(100000, aclrtProcessHostFunc(0)),
      ROW(100000, aclrtProcessHostFunc(-2)),
      ROW(100000, aclrtProcessHostFunc(INT_MIN)),
      ROW(100000, aclrtCacheLastTaskExtendInfo(nullptr, 4)),
      ROW(100000, aclrtCacheLastTaskExtendInfo(w.text, 0)),
      ROW(100000, aclrtCacheLastTaskOpInfo(nullptr, 4)),
      ROW(100000, aclrtCacheLastTaskOpInfo(w.text, 0)),
      ROW(100000, aclrtCacheLastTaskOpInfo(w.text, (64 << 10) + 1)),
      ROW(100000, aclrtCacheLastTaskOpInfo(w.text, SIZE_MAX)),
  });
}

TEST_F(CallbackMisuse, BadStreams) {
  const Rows rows = {
      ROW(107017, aclrtLaunchHostFunc(w.bad, &Count, &w.calls)),
      ROW(107017, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.bad)),
      ROW(107017, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_NO_BLOCK, w.bad)),
      ROW(107017, aclrtSubscribeReport(Self(), w.bad)),
      ROW(107017, aclrtUnSubscribeReport(Self(), w.bad)),
      ROW(107017, aclrtSubscribeHostFunc(Self(), w.bad)),
      ROW(107017, aclrtUnSubscribeHostFunc(Self(), w.bad)),
  };
  for (const Handle& bad : world_.BadHandles("stream")) Everywhere(bad, rows);
  Rows foreign = rows;
  for (auto& row : foreign) row.code = row.code_while_capturing = 107003;
  Everywhere({"stream of another context", world_.foreign}, foreign);
}

TEST_F(CallbackMisuse, Subscriptions) {
  Everywhere({
      // A stream has one thread.
      ROW(107011, aclrtSubscribeReport(Self(), w.subscribed)),
      ROW(107011, aclrtSubscribeReport(World::kElsewhere, w.subscribed)),
      // Not subscribed, or to another thread.
      ROW(107011, aclrtUnSubscribeReport(Self(), w.stream)),
      ROW(107011, aclrtUnSubscribeReport(Self(), nullptr)),
      ROW(107011, aclrtUnSubscribeReport(Self(), w.elsewhere)),
      // The other subscription is another one.
      ROW(107012, aclrtUnSubscribeHostFunc(Self(), w.subscribed)),
      ROW(107012, aclrtUnSubscribeHostFunc(World::kElsewhere, w.elsewhere)),
      ROW(107012, aclrtUnSubscribeReport(World::kNobody, w.subscribed)),
      ROW(107012, aclrtUnSubscribeReport(0, w.stream)),
      ROW(107012, aclrtUnSubscribeHostFunc(UINT64_MAX, w.subscribed)),
      // Nobody would run it.
      ROW(107015, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.stream)),
      ROW(107015, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_NO_BLOCK, nullptr)),
      ROW(507012, aclrtProcessReport(1)),
      ROW(107012, aclrtProcessHostFunc(1)),
      ROW(107012, aclrtProcessHostFunc(-1)),
  });
  EXPECT_ACL(0, aclrtUnSubscribeReport(Self(), world_.subscribed));
  EXPECT_ACL(107012, aclrtUnSubscribeReport(Self(), world_.subscribed));
  EXPECT_ACL(107012, aclrtProcessReport(-1));
  EXPECT_ACL(107015, aclrtLaunchCallback(&Count, &world_.calls, ACL_CALLBACK_BLOCK, world_.subscribed));
  EXPECT_ACL(0, aclrtSubscribeReport(Self(), world_.subscribed));
  StillWorks();
}

TEST_F(CallbackMisuse, ThreadThatIsNotSubscribed) {
  std::thread([&] {
    RunRows({
        ROW(107012, aclrtProcessReport(-1)),
        ROW(107012, aclrtProcessReport(1)),
        ROW(107012, aclrtProcessHostFunc(-1)),
        ROW(107012, aclrtProcessHostFunc(1)),
    });
  }).join();
  WithoutContext({
      ROW(107002, aclrtLaunchHostFunc(w.stream, &Count, &w.calls)),
      ROW(107002, aclrtLaunchHostFunc(nullptr, &Count, &w.calls)),
      ROW(107002, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.subscribed)),
      ROW(107002, aclrtSubscribeReport(1, w.stream)),
      ROW(107002, aclrtSubscribeReport(1, nullptr)),
      ROW(107002, aclrtUnSubscribeReport(World::kElsewhere, w.elsewhere)),
      ROW(107002, aclrtSubscribeHostFunc(1, w.stream)),
      ROW(107002, aclrtUnSubscribeHostFunc(World::kElsewhere, w.elsewhere)),
      ROW(107000, aclrtCacheLastTaskOpInfo(w.text, 4)),
      ROW(107000, aclrtCacheLastTaskExtendInfo(w.text, 4)),
  });
}

TEST_F(CallbackMisuse, ThreadOfAnotherDevice) {
  MUST(aclrtSetDevice(1));
  world_.bad = NewStream();
  RunRows({
      ROW(107012, aclrtSubscribeReport(World::kElsewhere, w.bad)),
      ROW(107012, aclrtSubscribeReport(Self(), w.bad)),
      ROW(107003, aclrtSubscribeReport(World::kNobody, w.stream)),
      ROW(107003, aclrtUnSubscribeReport(World::kElsewhere, w.elsewhere)),
      ROW(107003, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.subscribed)),
      ROW(107003, aclrtLaunchHostFunc(w.stream, &Count, &w.calls)),
      ROW(0, aclrtSubscribeReport(World::kNobody, w.bad)),
  });
  EXPECT_ACL(0, aclrtResetDeviceForce(1));
  EXPECT_ACL(0, aclrtSetCurrentContext(world_.context));
  EXPECT_ACL(107012, aclrtUnSubscribeReport(World::kNobody, world_.stream));  // ended with its stream
  StillWorks();
}

TEST_F(CallbackMisuse, TooManyThreads) {
  std::vector<aclrtStream> streams;
  for (uint64_t id = 1'000'000; streams.size() < 1022; ++id) {  // two threads are subscribed already
    streams.push_back(NewStream());
    ASSERT_EQ(0, aclrtSubscribeReport(id, streams.back()));
  }
  world_.bad = NewStream();
  RunRows({
      ROW(107012, aclrtSubscribeReport(2'000'000, w.bad)),
      ROW(0, aclrtSubscribeReport(World::kElsewhere, w.bad)),
  });
  StillWorks();
  MUST(aclrtDestroyStream(streams.back()));  // which ends its subscription
  streams.pop_back();
  MUST(aclrtUnSubscribeReport(World::kElsewhere, world_.bad));
  EXPECT_ACL(0, aclrtSubscribeReport(2'000'000, world_.bad));
  for (const aclrtStream stream : streams) MUST(aclrtDestroyStream(stream));
}

// Callbacks that nobody will run any more do not hold their streams for ever.
TEST_F(CallbackMisuse, UnsubscribedWithCallbacksUnderWay) {
  for (const aclrtCallbackBlockType type : {ACL_CALLBACK_BLOCK, ACL_CALLBACK_NO_BLOCK}) {
    SCOPED_TRACE(type);
    const aclrtStream stream = NewStream();
    const aclrtStream witness = NewStream();
    constexpr uint64_t kThread = 777;
    MUST(aclrtSubscribeReport(kThread, stream));
    MUST(aclrtSubscribeReport(kThread + 1, witness));
    aclrtEvent before = nullptr;
    MUST(aclrtCreateEvent(&before));
    MUST(aclrtRecordEvent(before, stream));
    MUST(aclrtLaunchCallback(&Count, &world_.calls, type, stream));
    MUST(aclrtLaunchCallback(&Count, &world_.calls, type, stream));
    MUST(aclrtSynchronizeEventWithTimeout(before, kPatience));
    // The first one is in the thread's queue, or about to be: both must end.
    if (type == ACL_CALLBACK_BLOCK) {
      EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, 5));
    }
    EXPECT_ACL(0, aclrtUnSubscribeReport(kThread, stream));
    const int code = aclrtSynchronizeStreamWithTimeout(stream, kPatience);
    EXPECT_TRUE(code == 107015 || (code == 0 && type == ACL_CALLBACK_NO_BLOCK)) << code;
    EXPECT_EQ(0, world_.calls.load()) << "nobody has run them";
    EXPECT_ACL(0, aclrtDestroyStream(stream));
    EXPECT_ACL(0, aclrtDestroyStream(witness));
    EXPECT_ACL(0, aclrtDestroyEvent(before));
  }
}

TEST_F(CallbackMisuse, DestroyedWithCallbacksUnderWay) {
  const aclrtStream stream = NewStream();
  MUST(aclrtSubscribeReport(778, stream));
  MUST(aclrtLaunchCallback(&Count, &world_.calls, ACL_CALLBACK_BLOCK, stream));
  EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, 5));
  EXPECT_ACL(0, aclrtDestroyStreamForce(stream));
  EXPECT_EQ(0, world_.calls.load());
  EXPECT_ACL(107012, aclrtUnSubscribeReport(778, world_.stream));
  StillWorks();
}

TEST_F(CallbackMisuse, TwoSubscriptions) {
  World& w = world_;
  // A stream may have one of each, of the same thread or of another one.
  EXPECT_ACL(0, aclrtSubscribeHostFunc(World::kNobody, w.subscribed));
  EXPECT_ACL(107011, aclrtSubscribeHostFunc(World::kNobody, w.subscribed));
  EXPECT_ACL(0, aclrtSubscribeHostFunc(Self(), w.stream));
  // The hints name the functions of the subscription in question.
  const auto hint = [](int code, int got) {
    EXPECT_EQ(code, got);
    const char* const message = aclGetRecentErrMsg();
    const std::string text = message != nullptr ? message : "";
    const size_t at = text.find("Solution: ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_NE(hint(107011, aclrtSubscribeHostFunc(1, w.stream)).find("aclrtUnSubscribeHostFunc"), std::string::npos);
  EXPECT_NE(hint(107011, aclrtSubscribeReport(1, w.subscribed)).find("aclrtUnSubscribeReport"), std::string::npos);
  EXPECT_NE(hint(107012, aclrtUnSubscribeHostFunc(1, w.stream)).find("aclrtSubscribeHostFunc"), std::string::npos);
  EXPECT_NE(hint(107012, aclrtUnSubscribeReport(1, w.stream)).find("aclrtSubscribeReport"), std::string::npos);
  std::thread([&] {
    EXPECT_NE(hint(107012, aclrtProcessHostFunc(1)).find("aclrtSubscribeHostFunc"), std::string::npos);
    EXPECT_NE(hint(107012, aclrtProcessReport(1)).find("aclrtSubscribeReport"), std::string::npos);
  }).join();
  // Callbacks come as reports where both are there.
  w.calls = 0;
  MUST(aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_NO_BLOCK, w.subscribed));
  MUST(aclrtSynchronizeStreamWithTimeout(w.subscribed, kPatience));
  EXPECT_ACL(507012, aclrtProcessHostFunc(1));
  EXPECT_ACL(0, aclrtProcessReport(kPatience));
  EXPECT_EQ(1, w.calls.load());
  MUST(aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_NO_BLOCK, w.stream));
  MUST(aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
  EXPECT_ACL(507012, aclrtProcessReport(1));
  EXPECT_ACL(0, aclrtProcessHostFunc(kPatience));
  EXPECT_EQ(2, w.calls.load());
  w.calls = 0;
  EXPECT_ACL(0, aclrtUnSubscribeHostFunc(World::kNobody, w.subscribed));
  EXPECT_ACL(0, aclrtUnSubscribeHostFunc(Self(), w.stream));
  StillWorks();
}

// A thread polls as soon as it runs; whoever made it subscribes it a little later.
TEST_F(CallbackMisuse, SubscribedWhileItWaits) {
  std::atomic<uint64_t> id{0};
  const aclrtStream stream = NewStream();
  std::thread waiting([&] {
    id.store(Self());
    id.notify_all();
    EXPECT_ACL(0, aclrtProcessReport(kPatience));
  });
  id.wait(0);
  EXPECT_ACL(0, aclrtSubscribeReport(id.load(), stream));
  EXPECT_ACL(0, aclrtLaunchCallback(&Count, &world_.calls, ACL_CALLBACK_BLOCK, stream));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(stream, kPatience));
  waiting.join();
  EXPECT_EQ(1, world_.calls.load());
}

// A waiting thread that is unsubscribed by another one does not wait for ever.
TEST_F(CallbackMisuse, UnsubscribedWhileItWaits) {
  std::atomic<uint64_t> id{0};
  std::atomic<bool> subscribed{false};
  const aclrtStream stream = NewStream();
  std::thread waiting([&] {
    id.store(Self());
    id.notify_all();
    subscribed.wait(false);
    EXPECT_ACL(0, aclrtProcessReport(kPatience));
    DropMessage();
    const int code = aclrtProcessReport(-1);
    EXPECT_TRUE(code == 507012 || code == 107012) << code;  // the latter when it came too late to wait
    EXPECT_TRUE(CheckAcl(code, code, "aclrtProcessReport"));
  });
  id.wait(0);
  EXPECT_ACL(0, aclrtSubscribeReport(id.load(), stream));
  subscribed.store(true);
  subscribed.notify_all();
  EXPECT_ACL(0, aclrtLaunchCallback(&Count, &world_.calls, ACL_CALLBACK_BLOCK, stream));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(stream, kPatience));
  EXPECT_ACL(0, aclrtUnSubscribeReport(id.load(), stream));
  waiting.join();
  EXPECT_EQ(1, world_.calls.load());
}

TEST_F(CallbackMisuse, CapturedStream) {
  for (const auto mode :
       {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
    BeginCapture(mode);
    RunRows({
        ROW(107015, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.captured)),
        ROW(100000, aclrtLaunchCallback(&Count, &w.calls, Block(2), w.captured)),
        ROW(107000, aclrtLaunchCallback(nullptr, &w.calls, ACL_CALLBACK_BLOCK, w.captured)),
        ROW(107000, aclrtLaunchHostFunc(w.captured, nullptr, nullptr)),
        ROW(0, aclrtLaunchHostFunc(w.captured, &Count, &w.calls)),
        ROW(100000, aclrtCacheLastTaskOpInfo(w.text, SIZE_MAX)), ROW(0, aclrtCacheLastTaskOpInfo(w.text, 4)),
        ROW(0, aclrtCacheLastTaskExtendInfo(w.text, SIZE_MAX)),  // ends with the text
    });
    world_.calls = 0;
    EndCapture();
    EXPECT_EQ(1, world_.calls.load()) << "one launch, one replay";
    EXPECT_ACL(107000, aclrtCacheLastTaskOpInfo(world_.text, 4));
    EXPECT_ACL(107000, aclrtCacheLastTaskExtendInfo(world_.text, 4));
  }
}

TEST_F(CallbackMisuse, DeviceThatWasReset) {
  AfterReset({
      ROW(107017, aclrtLaunchHostFunc(w.stream, &Count, &w.calls)),
      ROW(107002, aclrtLaunchHostFunc(nullptr, &Count, &w.calls)),
      ROW(107017, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, w.subscribed)),
      ROW(107002, aclrtLaunchCallback(&Count, &w.calls, ACL_CALLBACK_BLOCK, nullptr)),
      ROW(107017, aclrtUnSubscribeReport(Self(), w.subscribed)),
      ROW(107012, aclrtProcessReport(-1)),
      ROW(107000, aclrtCacheLastTaskOpInfo(w.text, 4)),
  });
}

TEST_F(CallbackMisuse, RandomArguments) {
  World& w = world_;
  std::vector<aclrtStream> streams;
  const std::vector<uint64_t> threads = {Self(), Self(), World::kElsewhere, World::kNobody, 0, UINT64_MAX};
  const auto stream = [&](Dice& d) { return d.Pick(streams); };
  const auto thread = [&](Dice& d) { return d.Pick(threads); };
  const std::vector<RandomCall> calls = {
      {"aclrtSubscribeReport", [&](Dice& d) { return aclrtSubscribeReport(thread(d), stream(d)); }},
      {"aclrtUnSubscribeReport", [&](Dice& d) { return aclrtUnSubscribeReport(thread(d), stream(d)); }},
      {"aclrtSubscribeHostFunc", [&](Dice& d) { return aclrtSubscribeHostFunc(thread(d), stream(d)); }},
      {"aclrtUnSubscribeHostFunc", [&](Dice& d) { return aclrtUnSubscribeHostFunc(thread(d), stream(d)); }},
      {"aclrtProcessReport",
       [&](Dice& d) {
         return aclrtProcessReport(d.Pick<int32_t>({INT_MIN, -2, 0, 1, 1, 1}));
       }},
      {"aclrtProcessHostFunc",
       [&](Dice& d) {
         return aclrtProcessHostFunc(d.Pick<int32_t>({-2, 0, 1}));
       }},
      {"aclrtLaunchCallback",
       [&](Dice& d) {
         return aclrtLaunchCallback(d.Below(5) == 0 ? nullptr : &Count, &w.calls,
                                    d.PickEnum<aclrtCallbackBlockType>({-1, 0, 1, 1, 2}), stream(d));
       }},
      {"aclrtLaunchHostFunc",
       [&](Dice& d) { return aclrtLaunchHostFunc(stream(d), d.Below(5) == 0 ? nullptr : &Count, &w.calls); }},
      {"aclrtCacheLastTaskOpInfo",
       [&](Dice& d) {
         return aclrtCacheLastTaskOpInfo(d.Below(3) == 0 ? nullptr : w.text, d.Pick<size_t>({0, 1, 64, SIZE_MAX}));
       }},
      {"aclrtCacheLastTaskExtendInfo",
       [&](Dice& d) {
         return aclrtCacheLastTaskExtendInfo(d.Below(3) == 0 ? nullptr : w.text, d.Pick<size_t>({0, 1, 64, SIZE_MAX}));
       }},
  };
  const std::vector<Handle> no_streams = w.BadHandles("stream");
  for (const uint64_t seed : Seeds(Loops(40, 8))) {
    const std::vector<aclrtStream> live = {NewStream(), NewStream(), NewStream()};
    streams.clear();
    for (int i = 0; i < 8; ++i) streams.insert(streams.end(), live.begin(), live.end());
    streams.insert(streams.end(), {nullptr, w.foreign});
    for (const Handle& bad : no_streams) streams.push_back(bad.handle);
    MUST(aclmdlRICaptureBegin(live[2], ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    RunRandomCalls(seed, 150, calls);
    aclmdlRI model = nullptr;
    EXPECT_ACL(0, aclmdlRICaptureEnd(live[2], &model));
    EXPECT_ACL(0, aclmdlRIDestroy(model));
    for (const aclrtStream gone : live) EXPECT_ACL(0, aclrtDestroyStreamForce(gone));
    for (const uint64_t id : threads) (void)aclrtUnSubscribeReport(id, nullptr);
    if (HasFailure()) return;
    // What still waits on the default stream may not call back later: it is dropped, and what runs has ended.
    aclrtStream default_stream = nullptr;
    MUST(aclrtCtxGetCurrentDefaultStream(&default_stream));
    EXPECT_ACL(0, aclrtStreamAbort(default_stream));
    EXPECT_NE(507046, aclrtSynchronizeStreamWithTimeout(default_stream, kPatience));
    while (aclrtProcessReport(1) == 0) {
    }  // callbacks that were left for this thread
    StillWorks();
  }
}

}  // namespace
}  // namespace reprise::testing
