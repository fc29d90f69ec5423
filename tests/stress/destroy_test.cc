// SPDX-License-Identifier: Apache-2.0
//
// Handles that threads destroy while others use them: nobody crashes, hangs or gets another object; the loser reads a
// number of the refusals for handles that are gone.
#include <acl/acl_rt_memory_soma.h>

#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "../unit/scale.h"
#include "stress.h"

namespace reprise::stress {
namespace {

using testing::InForm;
using testing::Loops;

constexpr int kUsers = 3;
constexpr int kLaunches = 100;  // so many of what others may destroy must have succeeded
constexpr int kSlots = 3;       // of each sort; few, so that threads meet

// What threads share: any of them may be gone when it is used.
struct Shared {
  std::atomic<void*> streams[kSlots]{};
  std::atomic<void*> events[kSlots]{};
  std::atomic<void*> models[kSlots]{};
  std::atomic<void*> notifies[kSlots]{};
  std::atomic<void*> pools[kSlots]{};
  std::atomic<void*> binaries[kSlots]{};
  std::atomic<void*> labels[kSlots]{};
  std::atomic<int> launched{0};  // launches and executions that were accepted
  std::atomic<bool> done{false};
};

// Nothing was there yet (100000); gone (107017, 107002); of a context that is gone, or of the one that has come since
// (107003, 107004); dropped with its stream (107023, 107022); in or out of a capture that somebody else has begun or
// ended (1070xx, 507xxx).
bool IsAllowed(int code) {
  // 207000: somebody has begun to capture the stream on which a block of a pool was taken.
  static const std::set<int> allowed = {207000, 0,      100000, 107017, 107002, 107003, 107004, 107022,
                                        107023, 107024, 107025, 107026, 107027, 107028, 107029, 107030,
                                        107031, 107032, 107036, 107037, 107038, 107040, 507011, 507031,
                                        507046, 507047, 507903, 107000, 107001, 107005, 100002, 100037};
  return allowed.contains(code);
}

#define EXPECT_ALLOWED(...)                                                                       \
  do {                                                                                            \
    const int code_ = (__VA_ARGS__);                                                              \
    const char* const text_ = aclGetRecentErrMsg();                                               \
    EXPECT_TRUE(IsAllowed(code_)) << #__VA_ARGS__ << ": " << (text_ != nullptr ? text_ : "none"); \
  } while (false)

class Destroy : public Device {
 protected:
  void SetUp() override {
    Device::SetUp();
    append_ = Kernel("append");
    overseer_ = std::make_unique<Overseer>(
        [] { return std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()); });
  }
  void TearDown() override { overseer_.reset(); }

  static void* NewStream() {
    aclrtStream stream = nullptr;
    return aclrtCreateStream(&stream) == 0 ? stream : nullptr;
  }
  static void* NewEvent() {
    aclrtEvent event = nullptr;
    return aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC) == 0 ? event : nullptr;
  }
  // Memory of the host: that of the device may be gone, too, and kernels do not ask.
  int Append(aclrtStream stream, uint64_t* log) const { return Launch(stream, append_, log, uint64_t{1}); }
  int Append(aclrtStream stream) const { return Append(stream, full_); }
  void* NewModel() const {
    void* const stream = NewStream();
    if (stream == nullptr) return nullptr;
    aclmdlRI model = nullptr;
    if (aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED) == 0) {
      for (int i = 0; i < 4; ++i) EXPECT_ALLOWED(Append(stream));
      EXPECT_ALLOWED(aclmdlRICaptureEnd(stream, &model));
    }
    EXPECT_ALLOWED(aclrtDestroyStream(stream));
    return model;
  }
  static void* NewNotify() {
    aclrtNotify notify = nullptr;
    return aclrtCreateNotify(&notify, 0) == 0 ? notify : nullptr;
  }
  static void* NewPool() {
    aclrtMemPoolProps props{};
    props.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED;
    props.handleType = ACL_MEM_HANDLE_TYPE_NONE;
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    aclrtMemPool pool = nullptr;
    return aclrtMemPoolCreate(&pool, &props) == 0 ? pool : nullptr;
  }
  static void* NewBinary() {
    aclrtBinHandle binary = nullptr;
    return aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary) == 0 ? binary : nullptr;
  }
  static void* NewLabel() {
    aclrtLabel label = nullptr;
    return aclrtCreateLabel(&label) == 0 ? label : nullptr;
  }

  // One call, with whatever lies in the slots.
  void UseAny(Shared& shared, std::mt19937& random) {
    const auto any = [&](std::atomic<void*>(&slots)[kSlots]) { return slots[random() % kSlots].load(); };
    void* const stream = any(shared.streams);
    if (stream == nullptr) return;
    switch (random() % 20) {
      case 0:
      case 1: {
        const int code = Append(stream);
        EXPECT_ALLOWED(code);
        shared.launched += code == 0 ? 1 : 0;
        return;
      }
      case 2: EXPECT_ALLOWED(aclrtSynchronizeStream(stream)); return;
      case 3: EXPECT_ALLOWED(aclrtSynchronizeStreamWithTimeout(stream, kWaitMs)); return;
      case 4: {
        aclrtStreamStatus status{};
        EXPECT_ALLOWED(aclrtStreamQuery(stream, &status));
        return;
      }
      case 5: EXPECT_ALLOWED(aclrtRecordEvent(any(shared.events), stream)); return;
      case 6: EXPECT_ALLOWED(aclrtStreamWaitEvent(stream, any(shared.events))); return;
      case 7: {
        aclrtEventRecordedStatus status{};
        EXPECT_ALLOWED(aclrtQueryEventStatus(any(shared.events), &status));
        return;
      }
      case 8: EXPECT_ALLOWED(aclrtSynchronizeEvent(any(shared.events))); return;
      case 9:
      case 10:
        if (void* const model = any(shared.models)) EXPECT_ALLOWED(aclmdlRIExecuteAsync(model, stream));
        return;
      case 11:
        if (void* const model = any(shared.models)) {
          uint32_t id = 0;
          EXPECT_ALLOWED(aclmdlRIGetId(model, &id));
          EXPECT_ALLOWED(aclmdlRISetName(model, "shared"));
        }
        return;
      case 12: EXPECT_ALLOWED(aclrtRecordNotify(any(shared.notifies), stream)); return;
      case 13: {
        void* block = nullptr;
        EXPECT_ALLOWED(aclrtMemPoolMallocAsync(&block, 4096, any(shared.pools), stream));
        if (block != nullptr) EXPECT_ALLOWED(aclrtMemPoolFreeAsync(block, stream));
        return;
      }
      case 14: {
        aclrtFuncHandle function = nullptr;
        EXPECT_ALLOWED(aclrtBinaryGetFunction(any(shared.binaries), "append", &function));
        if (function == nullptr) return;
        EXPECT_ALLOWED(Launch(stream, function, full_, uint64_t{1}));
        aclrtArgsHandle args = nullptr;
        EXPECT_ALLOWED(aclrtKernelArgsInit(function, &args));
        uint64_t value = 0;
        aclrtParamHandle param = nullptr;
        if (args != nullptr) EXPECT_ALLOWED(aclrtKernelArgsAppend(args, &value, sizeof value, &param));
        return;
      }
      case 15: {
        aclmdlRI model = nullptr;
        EXPECT_ALLOWED(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        EXPECT_ALLOWED(Append(stream));
        EXPECT_ALLOWED(aclmdlRICaptureEnd(stream, &model));
        if (model != nullptr) EXPECT_ALLOWED(aclmdlRIDestroy(model));
        return;
      }
      case 16: EXPECT_ALLOWED(aclrtSynchronizeDevice()); return;
      case 17: {
        int32_t id = 0;
        uint32_t priority = 0;
        EXPECT_ALLOWED(aclrtStreamGetId(stream, &id));
        EXPECT_ALLOWED(aclrtStreamGetPriority(stream, &priority));
        return;
      }
      case 18: EXPECT_ALLOWED(aclrtStreamAbort(stream)); return;
      default:
        if (void* const label = any(shared.labels)) EXPECT_ALLOWED(aclrtSetLabel(label, stream));
        return;
    }
  }

  // Puts a new object into a slot and destroys the old one. Now and then another thread has the same in mind.
  template <class Make, class End>
  static void Replace(std::atomic<void*>& slot, std::mt19937& random, Make make, End end) {
    void* const fresh = make();
    if (random() % 4 == 0) {
      if (void* const shared = slot.load()) EXPECT_ALLOWED(end(shared));  // and once more, by who takes it out
    }
    if (void* const old = slot.exchange(fresh)) EXPECT_ALLOWED(end(old));
  }
  void ReplaceAny(Shared& shared, std::mt19937& random) {
    const size_t slot = random() % kSlots;
    switch (random() % 8) {
      case 0: return Replace(shared.streams[slot], random, NewStream, aclrtDestroyStream);
      case 1: return Replace(shared.streams[slot], random, NewStream, aclrtDestroyStreamForce);
      case 2: return Replace(shared.events[slot], random, NewEvent, aclrtDestroyEvent);
      case 3:
        return Replace(
            shared.models[slot], random, [this] { return NewModel(); }, aclmdlRIDestroy);
      case 4: return Replace(shared.notifies[slot], random, NewNotify, aclrtDestroyNotify);
      case 5: return Replace(shared.pools[slot], random, NewPool, aclrtMemPoolDestroy);
      case 6: return Replace(shared.binaries[slot], random, NewBinary, aclrtBinaryUnLoad);
      default: return Replace(shared.labels[slot], random, NewLabel, aclrtDestroyLabel);
    }
  }

  // The device does what it should, for the objects that are left and for new ones.
  void ExpectWorks() {
    ASSERT_OK(aclrtSetDevice(0));
    const aclrtStream stream = NewStream();
    ASSERT_NE(stream, nullptr);
    uint64_t log[12] = {0, 10};
    for (int i = 0; i < 10; ++i) ASSERT_OK(Append(stream, log));
    ASSERT_OK(aclrtSynchronizeStreamWithTimeout(stream, kWaitMs));
    EXPECT_EQ(log[0], 10u);
    ASSERT_OK(aclrtDestroyStream(stream));
  }

  static inline uint64_t full_[2] = {0, 0};  // a log without room: entries are counted
  aclrtFuncHandle append_ = nullptr;
  std::unique_ptr<Overseer> overseer_;
};

TEST_F(Destroy, ObjectsGoWhileOthersUseThem) {
  const int rounds = InForm(Loops(6000, 300));
  Shared shared;
  std::vector<std::thread> threads;
  for (int i = 0; i < kUsers; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_OK(aclrtSetCurrentContext(context()));
      std::mt19937 random(static_cast<uint32_t>(i));
      while (!shared.done.load()) UseAny(shared, random);
    });
  }
  std::vector<std::thread> destroyers;
  for (int i = 0; i < 2; ++i) {
    destroyers.emplace_back([&, i] {
      EXPECT_OK(aclrtSetCurrentContext(context()));
      std::mt19937 random(static_cast<uint32_t>(100 + i));
      for (int round = 0; round < rounds || shared.launched.load() < kLaunches; ++round) ReplaceAny(shared, random);
    });
  }
  for (std::thread& thread : destroyers) thread.join();
  shared.done = true;
  for (std::thread& thread : threads) thread.join();
  ExpectWorks();
  EXPECT_OK(aclrtResetDeviceForce(0));
}

// A watchdog resets the device, destroys contexts, and ends and begins the process's use of the library, while others
// make and use streams, events and models.
TEST_F(Destroy, ContextsAndDevicesGoWhileOthersUseThem) {
  const int rounds = InForm(Loops(1000, 60));
  Shared shared;
  std::atomic<void*> context{nullptr};
  std::vector<std::thread> threads;
  for (int i = 0; i < kUsers; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      while (!shared.done.load()) {
        if (void* const made = random() % 3 == 0 ? context.load() : nullptr) {
          EXPECT_ALLOWED(aclrtSetCurrentContext(made));
        } else {
          EXPECT_ALLOWED(aclrtSetDevice(0));
        }
        for (int use = 0; use < 20; ++use) {
          if (random() % 4 == 0) {
            ReplaceAny(shared, random);
          } else {
            UseAny(shared, random);
          }
        }
      }
    });
  }
  for (int round = 0; round < rounds || shared.launched.load() < kLaunches; ++round) {
    aclrtContext made = nullptr;
    EXPECT_OK(aclrtCreateContext(&made, 0));
    context = made;
    if (round % 2 == 0) EXPECT_ALLOWED(aclrtResetDeviceForce(0));
    EXPECT_ALLOWED(aclInit(nullptr));
    EXPECT_ALLOWED(aclrtDestroyContext(made));
    EXPECT_ALLOWED(aclrtResetDeviceForce(0));
    EXPECT_ALLOWED(aclFinalize());
  }
  shared.done = true;
  for (std::thread& thread : threads) thread.join();
  ExpectWorks();
  EXPECT_OK(aclrtResetDeviceForce(0));
}

// Two destroy one and the same: one of them does, and the other is told that it is gone.
TEST_F(Destroy, OfTwoWhoDestroyOneWins) {
  const int rounds = InForm(Loops(300, 30));
  struct Sort {
    const char* name;
    std::function<void*()> make;
    std::function<int(void*)> end;
  };
  const Sort sorts[] = {{"stream", NewStream, aclrtDestroyStream},
                        {"event", NewEvent, aclrtDestroyEvent},
                        {"model", [this] { return NewModel(); }, aclmdlRIDestroy},
                        {"notify", NewNotify, aclrtDestroyNotify},
                        {"pool", NewPool, aclrtMemPoolDestroy},
                        {"binary", NewBinary, aclrtBinaryUnLoad},
                        {"label", NewLabel, aclrtDestroyLabel},
                        {"context",
                         [] {
                           aclrtContext before = nullptr, made = nullptr;
                           EXPECT_OK(aclrtGetCurrentContext(&before));
                           EXPECT_OK(aclrtCreateContext(&made, 0));
                           EXPECT_OK(aclrtSetCurrentContext(before));
                           return made;
                         },
                         aclrtDestroyContext}};
  std::atomic<void*> target{nullptr};
  std::atomic<const Sort*> sort{nullptr};
  std::atomic<int> turn{0}, answered{0};
  std::atomic<int> other_code{0};
  std::thread other([&] {
    EXPECT_OK(aclrtSetCurrentContext(context()));
    for (int seen = 0;;) {
      turn.wait(seen);
      seen = turn.load();
      if (sort.load() == nullptr) return;
      other_code = sort.load()->end(target.load());
      answered = seen;
      answered.notify_all();
    }
  });
  for (const Sort& each : sorts) {
    for (int round = 0; round < rounds; ++round) {
      target = each.make();
      sort = &each;
      const int now = ++turn;
      turn.notify_all();
      const int code = each.end(target.load());
      for (int at = 0; (at = answered.load()) != now;) answered.wait(at);
      const int loser = code == 0 ? other_code.load() : code;
      EXPECT_TRUE((code == 0) != (other_code.load() == 0)) << each.name << ": " << code << " and " << other_code.load();
      EXPECT_EQ(loser, 107017) << each.name;
      if (HasFailure()) break;
    }
  }
  sort = nullptr;
  ++turn;
  turn.notify_all();
  other.join();
  EXPECT_OK(aclrtResetDeviceForce(0));
}

}  // namespace
}  // namespace reprise::stress
