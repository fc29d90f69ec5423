// SPDX-License-Identifier: Apache-2.0
//
// What the conformance tests are written with.
//
// The tests see only the C ABI. One test checks one item of items.csv and carries its id:
//
//     TEST_F(AclGraph, AG_036_SyncCopyOnBeginThreadIsRefusedInGlobalMode) {
//       const aclrtStream s = NewStream();
//       Begin(s, kGlobal);
//       EXPECT_TRUE(CopyIsRefused(107030));   // the code, the message, and that nothing was copied
//       ExpectActive(s);
//       End(s);
//     }
//
// Three rules keep them honest. EXPECT_ACL(code, call) compares the number and, for a refusal, asks that the recent
// message carries the number and names the function. What a graph computed is read back and compared; kernels write
// values that come out differently in another order. Every wait has an end: waits of the device are bounded by kWaitMs,
// everything else by a watchdog that ends the program with the name of the test.
//
// Objects made through the fixture belong to it and are released after the test in an order that copes with a test that
// stopped half way: captures ended, gates opened, graphs, streams, events, memory.
#pragma once

#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace reprise::conformance {

using ::testing::AssertionResult;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

inline constexpr int32_t kWaitMs = 60'000;  ///< longest wait for work that a healthy device finishes at once
inline constexpr int32_t kBlockedMs = 30;   ///< how long blocked work is watched before the test believes it
inline constexpr uint64_t kSlowUs = 3'000;  ///< duration of the slow_* kernels

inline constexpr aclmdlRICaptureMode kGlobal = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
inline constexpr aclmdlRICaptureMode kThreadLocal = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
inline constexpr aclmdlRICaptureMode kRelaxed = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

inline constexpr aclmdlRICaptureStatus kNone = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
inline constexpr aclmdlRICaptureStatus kActive = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
inline constexpr aclmdlRICaptureStatus kInvalidated = ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;

// ---- Checking calls ----

/// Empties the thread's recent message, so that the next one is that of the call under test.
void DropMessage();

/// Compares `got` with `expected`. With `function` set and a code expected, also checks the recent message.
AssertionResult CheckAcl(int expected, int got, const char* call, const std::string& function);

/// `aclrtFoo(a, b)` → `aclrtFoo`
std::string FunctionOf(const char* call);

/// Stops the test (not only the helper) unless `got` is 0.
void Must(int got, const char* call, const char* file, int line);

// More text may be streamed into these, as into EXPECT_EQ.
#define REPRISE_EXPECT_ACL_(code, call, text, function)                                                                \
  GTEST_AMBIGUOUS_ELSE_BLOCKER_                                                                                        \
  if (const ::testing::AssertionResult acl_result_ = ::reprise::conformance::CheckAcl((code), (call), text, function)) \
    ;                                                                                                                  \
  else                                                                                                                 \
    ADD_FAILURE() << acl_result_.message() << "\n"
/// Expects `code` from the call and, unless it is 0, a recent message with that number and the function's name.
#define EXPECT_ACL(code, ...)                                                                     \
  REPRISE_EXPECT_ACL_(code, (::reprise::conformance::DropMessage(), (__VA_ARGS__)), #__VA_ARGS__, \
                      ::reprise::conformance::FunctionOf(#__VA_ARGS__))
/// The same for a call wrapped by a helper: `function` is the ACL function that must be named.
#define EXPECT_ACL_AS(code, function, ...) \
  REPRISE_EXPECT_ACL_(code, (::reprise::conformance::DropMessage(), (__VA_ARGS__)), #__VA_ARGS__, #function)
/// The number only.
#define EXPECT_ACL_CODE(code, ...) REPRISE_EXPECT_ACL_(code, (__VA_ARGS__), #__VA_ARGS__, std::string())
/// A step that the test cannot go on without; usable in helpers that return a value.
#define MUST(...) \
  ::reprise::conformance::Must((::reprise::conformance::DropMessage(), (__VA_ARGS__)), #__VA_ARGS__, __FILE__, __LINE__)

// ---- Threads ----

/// A thread that runs one piece of the test at a time; `context` null gives a thread without a current context.
///
///     Worker u(context());
///     u.Run([&] { EXPECT_ACL(107038, aclmdlRICaptureEnd(s, &model)); });
///
/// Run returns when the piece has ended, rethrows what it threw, and fails the test after a time longer than kWaitMs.
class Worker {
 public:
  explicit Worker(aclrtContext context);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Run(std::function<void()> piece);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive us when it hangs
};

/// Polls until `done` holds; false when kWaitMs have passed.
bool Eventually(const std::function<bool()>& done);

/// Within its life the thread may do synchronous copies whatever is being captured.
class RelaxedScope {
 public:
  RelaxedScope();
  ~RelaxedScope();
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

 private:
  aclmdlRICaptureMode mode_ = kRelaxed;
};

/// Runs `piece` when the scope ends, also by a failed ASSERT.
class Finally {
 public:
  explicit Finally(std::function<void()> piece) : piece_(std::move(piece)) {}
  ~Finally() { piece_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  std::function<void()> piece_;
};

/// A mode that the enumeration does not have.
aclmdlRICaptureMode OddMode(int value);

// ---- Device memory, read and written by synchronous copies that no capture mode refuses ----

uint64_t ReadCell(const uint64_t* cell);
void WriteCell(uint64_t* cell, uint64_t value);
std::vector<uint64_t> ReadCells(const uint64_t* cells, size_t count);

/// The log that the append kernels write; a view, the memory is the fixture's.
struct Log {
  static constexpr size_t kCapacity = 1000;
  uint64_t* words = nullptr;

  std::vector<uint64_t> Ids() const;
  void Clear() const;
};

/// An argument block: each value in its 8-byte slot.
class ArgBlock {
 public:
  template <class... Args>
  explicit ArgBlock(Args... args) : slots_{Slot(args)...} {}
  void* data() { return slots_.data(); }
  size_t size() const { return slots_.size() * sizeof(uint64_t); }
  const std::vector<uint64_t>& slots() const { return slots_; }

 private:
  template <class T>
  static uint64_t Slot(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
    uint64_t slot = 0;
    std::memcpy(&slot, &value, sizeof(T));
    return slot;
  }
  std::vector<uint64_t> slots_;
};

// ---- Fixture ----

class AclGraph : public ::testing::Test {
 protected:
  AclGraph();
  ~AclGraph() override;
  void SetUp() override;
  void TearDown() override;

  /// Default context of device 0: current on the test's thread.
  aclrtContext context() const { return context_; }
  /// Another context of device 0; the current context stays what it is.
  aclrtContext NewContext();
  aclrtStream DefaultStream();

  // Objects. They belong to the fixture; a test that destroys one itself says so with Forget….
  aclrtStream NewStream(uint32_t flags = 0);
  aclrtEvent NewEx(uint32_t mask = ACL_EVENT_SYNC);      ///< aclrtCreateEventExWithFlag
  aclrtEvent NewClassic();                               ///< aclrtCreateEvent
  aclrtEvent NewClassicWithFlag(uint32_t mask);          ///< aclrtCreateEventWithFlag
  uint64_t* NewCells(size_t count, uint64_t value = 0);  ///< device memory
  uint64_t* NewCell(uint64_t value = 0) { return NewCells(1, value); }
  uint64_t* NewPinned(size_t count, uint64_t value = 0);  ///< aclrtMallocHost
  Log NewLog();
  /// A graph that the test got from elsewhere than End.
  void Own(aclmdlRI model);
  void DestroyStream(aclrtStream stream);
  void DestroyEvent(aclrtEvent event);
  void DestroyModel(aclmdlRI model);
  void ForgetModel(aclmdlRI model);

  // Kernels of conformance_kernels.so
  aclrtFuncHandle Kernel(const std::string& name);
  aclError LaunchBlock(aclrtStream stream, const std::string& kernel, uint32_t blocks, ArgBlock args);
  template <class... Args>
  aclError Launch(aclrtStream stream, const std::string& kernel, Args... args) {
    return LaunchBlock(stream, kernel, 1, ArgBlock(args...));
  }
  aclError Append(aclrtStream stream, const Log& log, uint64_t id) { return Launch(stream, "append", log.words, id); }
  /// Appends after kSlowUs: whoever should wait for it and does not, is early.
  aclError SlowAppend(aclrtStream stream, const Log& log, uint64_t id) {
    return Launch(stream, "slow_append", log.words, id, kSlowUs);
  }
  /// *cell = *cell * mul + add
  aclError Axpb(aclrtStream stream, uint64_t* cell, uint64_t mul, uint64_t add) {
    return Launch(stream, "axpb", cell, mul, add);
  }

  // Waiting
  void Sync(aclrtStream stream);  ///< at most kWaitMs; stops the test when the stream reports an error

  // A gate holds a stream on the device until the host opens it.
  struct Gate {
    uint64_t* cell = nullptr;
  };
  Gate NewGate();
  void WaitAt(aclrtStream stream, Gate gate);
  void Open(Gate gate);
  void Close(Gate gate);
  /// Blocked: still not finished after kBlockedMs.
  void ExpectBlocked(aclrtStream stream);

  // Capture
  void Begin(aclrtStream stream, aclmdlRICaptureMode mode = kGlobal);
  /// Ends the capture with 0 and checks that the graph is the one GetInfo named and that the stream is idle again.
  aclmdlRI End(aclrtStream stream);
  /// Expects `code` from CaptureEnd, no graph, and `stream` not capturing any more.
  void EndIsRefused(aclrtStream stream, int code);
  aclmdlRI ModelOf(aclrtStream stream);
  void ExpectStatus(aclrtStream stream, aclmdlRICaptureStatus status, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
  void ExpectActive(aclrtStream stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectStatus(stream, kActive, file, line);
  }
  void ExpectIdle(aclrtStream stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectStatus(stream, kNone, file, line);
  }
  void ExpectInvalidated(aclrtStream stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectStatus(stream, kInvalidated, file, line);
  }
  /// New Ex event, recorded on `from` and waited for by `to`: forks, joins, or just orders.
  aclrtEvent Edge(aclrtStream from, aclrtStream to);
  /// Executes once and waits for the end.
  void Replay(aclmdlRI model, aclrtStream stream);
  /// Captures one append of `id` on a stream of its own.
  aclmdlRI CaptureAppend(const Log& log, uint64_t id);
  /// Begins two captures (mode RELAXED) and links them, which invalidates both.
  void BeginInvalidated(aclrtStream stream, aclrtStream other);

  // Introspection
  std::vector<aclrtStream> StreamsOf(aclmdlRI model);
  std::vector<aclmdlRITask> TasksOf(aclrtStream stream);
  std::vector<aclmdlRITaskType> TypesOf(aclrtStream stream);
  size_t CountTasks(aclmdlRI model);
  size_t CountTasks(aclmdlRI model, aclmdlRITaskType type);
  /// The nth task of that type, the streams taken in the order of StreamsOf.
  aclmdlRITask FindTask(aclmdlRI model, aclmdlRITaskType type, size_t nth = 0);

  /// One fresh synchronous copy on this thread, in memory of its current context: refused, and nothing copied.
  AssertionResult CopyIsRefused(int code);
  /// The same: accepted, and the value arrived.
  AssertionResult CopyWorks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  aclrtContext context_ = nullptr;
};

}  // namespace reprise::conformance
