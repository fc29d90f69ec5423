// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls as tables: each row is one call that must return its number, leave a message with the number, the
// function's name and advice, leave what it could have written alone, and have no other effect.
//
//     struct World : BasicWorld { aclrtEvent event = nullptr; };
//     class EventMisuse : public Misuse<World> { … };
//
//     TEST_F(EventMisuse, Null) {
//       Everywhere({
//           ROW(100000, aclrtQueryEvent(nullptr, w.out.As<aclrtEventStatus>())),
//       });
//     }
//     TEST_F(EventMisuse, Handles) {
//       for (const Handle& bad : world_.BadHandles("event")) {
//         Everywhere(bad, {ROW(107017, aclrtDestroyEvent(w.bad))});
//       }
//     }
//
// ROW expects a type World in the scope where it is written and calls it `w`.
#pragma once

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <random>

#include "../runtime/fixture.h"
#include "../unit/scale.h"

namespace reprise::testing {

/// Where the calls of rows write. It is full of a pattern before each row, and must still be so after a refusal. Rows
/// never read their input from here.
struct Out {
  static constexpr unsigned char kPattern = 0xA5;

  alignas(64) std::array<unsigned char, 1024> bytes;

  void Fill() { bytes.fill(kPattern); }
  bool untouched() const {
    return std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == kPattern; });
  }
  /// Room for a T; different `place`s (0 to 7) do not overlap.
  template <class T>
  T* As(size_t place = 0) {
    return reinterpret_cast<T*>(bytes.data() + place * 128);
  }
  void** handle(size_t place = 0) { return As<void*>(place); }
};

/// A handle and its sort: "stream", "event", ….
struct Handle {
  std::string kind;
  void* handle;
};

inline void* Address(uintptr_t number) { return reinterpret_cast<void*>(number); }

/// What every table may pass. Null members are deliberate nulls.
struct BasicWorld {
  Out out;
  aclrtContext context = nullptr;  ///< current on the test's thread
  aclrtStream stream = nullptr;
  aclrtStream foreign = nullptr;   ///< of another context of the device
  aclrtStream captured = nullptr;  ///< being captured while rows run with a capture
  aclrtEvent event = nullptr;
  void* memory = nullptr;  ///< device memory of kMemoryBytes
  void* pinned = nullptr;  ///< pinned host memory of kMemoryBytes
  void* bad = nullptr;     ///< the handle that rows are tried with, see Everywhere
  int64_t local = 0;       ///< memory that is no object; input that rows may read

  static constexpr size_t kMemoryBytes = 4096;

  /// Live objects of every sort, and handles of destroyed ones.
  std::vector<Handle> live;
  std::vector<Handle> dead;

  void AddHandles(const std::string& kind, void* living, void* destroyed) {
    if (living != nullptr) live.push_back({kind, living});
    if (destroyed != nullptr) dead.push_back({kind, destroyed});
  }

  /// What is no handle of a living `kind`: destroyed ones, live handles of other sorts, addresses, numbers. Not null.
  std::vector<Handle> BadHandles(const std::string& kind) {
    std::vector<Handle> all;
    for (const Handle& handle : live) {
      if (handle.kind != kind) all.push_back({"live " + handle.kind, handle.handle});
    }
    for (const Handle& handle : dead) all.push_back({"destroyed " + handle.kind, handle.handle});
    all.push_back({"address of a variable", &local});
    all.push_back({"odd address", reinterpret_cast<char*>(&local) + 1});
    all.push_back({"device memory", memory});
    for (const uintptr_t number : {uintptr_t{1}, uintptr_t{2}, uintptr_t{0x1000}, uintptr_t{UINT32_MAX},
                                   uintptr_t{1} << 63, UINTPTR_MAX - 1, UINTPTR_MAX}) {
      char text[32];
      std::snprintf(text, sizeof text, "%#" PRIxPTR, number);
      all.push_back({text, Address(number)});
    }
    return all;
  }
};

template <class World>
struct Row {
  int code;
  const char* call;
  int (*run)(World&);
  int code_while_capturing;  ///< when some other stream is being captured
};

#define ROW(code, ...) ROW_CAPTURE(code, code, __VA_ARGS__)
/// `code_while_capturing` instead of `code` while another stream is captured in mode GLOBAL.
#define ROW_CAPTURE(code, code_while_capturing, ...) \
  ::reprise::testing::Row<World> {                   \
    code, #__VA_ARGS__,                              \
        [](World& w) {                               \
          (void)w;                                   \
          return static_cast<int>(__VA_ARGS__);      \
        },                                           \
        code_while_capturing                         \
  }

/// A thread with device 0 current and a world to pass to calls.
template <class World>
class Misuse : public Runtime {
 protected:
  using Rows = std::vector<Row<World>>;

  void SetUp() override {
    Runtime::SetUp();
    World& w = world_;
    MUST(aclrtGetCurrentContext(&w.context));
    MUST(aclrtCreateContext(&other_context_, 0));
    w.foreign = NewStream();
    aclrtContext dead_context = nullptr;
    MUST(aclrtCreateContext(&dead_context, 0));
    MUST(aclrtDestroyContext(dead_context));
    MUST(aclrtSetCurrentContext(w.context));
    w.stream = NewStream();
    const aclrtStream dead_stream = NewStream();
    MUST(aclrtDestroyStream(dead_stream));
    MUST(aclrtCreateEvent(&w.event));
    aclrtEvent dead_event = nullptr;
    MUST(aclrtCreateEvent(&dead_event));
    MUST(aclrtDestroyEvent(dead_event));
    w.memory = NewMemory(World::kMemoryBytes);
    MUST(aclrtMallocHost(&w.pinned, World::kMemoryBytes));
    std::memset(w.pinned, 0, World::kMemoryBytes);
    progress_ = static_cast<uint8_t*>(NewMemory(64));
    w.AddHandles("context", w.context, dead_context);
    w.AddHandles("stream", w.stream, dead_stream);
    w.AddHandles("event", w.event, dead_event);
  }

  void TearDown() override {
    EXPECT_EQ(0, aclrtFreeHost(world_.pinned));
    if (gone_) return;
    EXPECT_EQ(0, aclrtSetCurrentContext(world_.context));
    EXPECT_EQ(0, aclrtDestroyEvent(world_.event));
    EXPECT_EQ(0, aclrtDestroyContext(other_context_));
    Runtime::TearDown();
  }

  /// Valid work on the world's stream still does what it should. Suites add what belongs to their functions.
  virtual void StillWorks() {
    ++count_;
    EXPECT_EQ(0, aclrtMemsetAsync(progress_, 64, count_, 64, world_.stream));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
    EXPECT_EQ(progress_[63], static_cast<uint8_t>(count_));
  }

  /// Runs the rows on this thread as it is.
  void RunRows(const Rows& rows, bool capturing = false) {
    for (const Row<World>& row : rows) RunRow(row, capturing ? row.code_while_capturing : row.code);
  }

  /// The rows once as it is, and once with another stream being captured, in each mode; that capture stays active, ends
  /// well, and its model does what was captured.
  void Everywhere(const Rows& rows) {
    RunRows(rows);
    StillWorks();
    WhileCapturing(rows);
  }
  /// The same with `world_.bad` set.
  void Everywhere(const Handle& bad, const Rows& rows) {
    const std::string trace = "bad handle: " + bad.kind;
    SCOPED_TRACE(trace);
    world_.bad = bad.handle;
    Everywhere(rows);
    world_.bad = nullptr;
  }

  void WhileCapturing(const Rows& rows) {
    for (const auto mode : {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
                            ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
      const std::string trace = "while another stream is captured, mode " + std::to_string(mode);
      SCOPED_TRACE(trace);
      BeginCapture(mode);
      RunRows(rows, mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
      StillWorks();
      EndCapture();
      if (HasFatalFailure()) return;
    }
  }

  /// The rows on a thread that has no current context.
  void WithoutContext(const Rows& rows) {
    SCOPED_TRACE("on a thread without a context");
    std::thread([&] { RunRows(rows); }).join();
    StillWorks();
  }
  /// The rows on this thread after its device was reset: every stream, context and piece of device memory is gone.
  void AfterReset(const Rows& rows) {
    SCOPED_TRACE("after a reset of the device");
    MUST(aclrtDestroyContext(other_context_));
    MUST(aclrtResetDeviceForce(0));
    gone_ = true;
    RunRows(rows);
  }

  /// Captures `world_.captured`, one fill being in the capture.
  void BeginCapture(aclmdlRICaptureMode mode) {
    if (capture_stream_ == nullptr) capture_stream_ = NewStream();
    world_.captured = capture_stream_;
    MUST(aclmdlRICaptureBegin(world_.captured, mode));
    MUST(aclrtMemsetAsync(progress_, 64, 0xC0, 1, world_.captured));
  }
  void ExpectCaptureActive(const char* call = "") {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(world_.captured, &status, nullptr)) << call;
    EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE) << call;
  }
  void EndCapture() {
    ExpectCaptureActive();
    aclmdlRI model = nullptr;
    MUST(aclmdlRICaptureEnd(world_.captured, &model));
    progress_[0] = 0;
    MUST(aclmdlRIExecuteAsync(model, world_.stream));
    MUST(aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
    EXPECT_EQ(progress_[0], 0xC0) << "the model does what was captured";
    MUST(aclmdlRIDestroy(model));
    world_.captured = nullptr;
  }

  World world_;
  aclrtContext other_context_ = nullptr;

 private:
  void RunRow(const Row<World>& row, int code) {
    world_.out.Fill();
    DropMessage();
    EXPECT_TRUE(CheckAcl(code, row.run(world_), FunctionOf(row.call))) << row.call;
    EXPECT_TRUE(code == 0 || world_.out.untouched()) << row.call << " wrote something although it refused";
    EXPECT_TRUE(code < 107000 || aclrtGetLastError(ACL_RT_THREAD_LEVEL) == code) << row.call;
    if (world_.captured != nullptr) ExpectCaptureActive(row.call);
  }

  uint8_t* progress_ = nullptr;  // device memory is host memory here
  uint8_t count_ = 0;
  aclrtStream capture_stream_ = nullptr;
  bool gone_ = false;
};

// ---- Random arguments ----

/// Seeds to try: REPRISE_TEST_SEED alone when it is set, else `count` fixed ones, more in the full form.
inline std::vector<uint64_t> Seeds(int count) {
  if (const char* text = std::getenv("REPRISE_TEST_SEED"); text != nullptr) return {std::strtoull(text, nullptr, 0)};
  std::vector<uint64_t> seeds;
  for (int i = 1; i <= testing::InForm(count); ++i) seeds.push_back(static_cast<uint64_t>(i));
  return seeds;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}

  size_t Below(size_t n) { return static_cast<size_t>(engine_() % n); }
  template <class T>
  T Pick(const std::vector<T>& values) {
    return values[Below(values.size())];
  }
  /// One of the values, as an enumerator that the enumeration need not have.
  template <class Enum>
  Enum PickEnum(const std::vector<int>& values) {
    return static_cast<Enum>(Pick(values));
  }

 private:
  std::mt19937_64 engine_;
};

/// A call with random arguments.
struct RandomCall {
  const char* function;
  std::function<int(Dice&)> run;
};

/// Makes `steps` random calls: each one either succeeds or leaves a message that is worth reading. `after` runs after
/// each call.
inline void RunRandomCalls(uint64_t seed, int steps, const std::vector<RandomCall>& calls,
                           const std::function<void()>& after = {}) {
  const std::string trace = "repeat with REPRISE_TEST_SEED=" + std::to_string(seed);
  SCOPED_TRACE(trace);
  Dice dice(seed);
  for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
    const RandomCall& call = calls[dice.Below(calls.size())];
    DropMessage();
    const int code = call.run(dice);
    if (code == 0) {
      EXPECT_EQ(nullptr, aclGetRecentErrMsg()) << call.function << " succeeded in step " << i;
    } else {
      EXPECT_TRUE(CheckAcl(code, code, call.function)) << "step " << i;
    }
    if (after) after();
  }
}

}  // namespace reprise::testing
