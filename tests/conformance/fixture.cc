// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "../support/program_folder.h"

namespace reprise::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWorkerSeconds = 80;     // above kWaitMs
constexpr int kWatchdogSeconds = 110;  // above every bounded wait of one test, below the ctest limit

// Waits for `done`; false after `seconds`. Times of the system clock, because condition variables then use
// pthread_cond_timedwait, the one form that the thread sanitizer of gcc 12 understands; second by second, so that a
// clock that is set forward and a process that was stopped cost one of them and no more.
template <class Done>
bool WaitSeconds(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, int seconds, Done done) {
  for (int i = 0; i < seconds; ++i) {
    if (changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(1), done)) return true;
  }
  return done();
}

// Ends the program when a test does not end: a call that never returns cannot be failed in any other way.
class Watchdog {
 public:
  explicit Watchdog(std::string test)
      : thread_([this, test = std::move(test)] {
          std::unique_lock lock(mutex_);
          if (WaitSeconds(done_changed_, lock, kWatchdogSeconds, [this] { return done_; })) return;
          std::fprintf(stderr, "[  FAILED  ] %s did not end within %d s: a call in it does not return\n", test.c_str(),
                       kWatchdogSeconds);
          std::fflush(nullptr);
          std::_Exit(124);
        }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    done_changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;
};

void InitOnce() {
  static const int result = aclInit(nullptr);
  if (result != 0 && result != ACL_ERROR_REPEAT_INITIALIZE) {
    throw std::runtime_error("aclInit returned " + std::to_string(result));
  }
}

std::string Describe(const char* message) { return message != nullptr ? message : "(no recent message)"; }

}  // namespace

// ---- Checking calls ----

void DropMessage() { (void)aclGetRecentErrMsg(); }

std::string FunctionOf(const char* call) {
  const std::string text = call;
  const size_t end = text.find_first_of(" (");
  size_t begin = text.find_first_not_of(':');
  if (begin == std::string::npos) begin = 0;
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

AssertionResult CheckAcl(int expected, int got, const char* call, const std::string& function) {
  if (got != expected) {
    return ::testing::AssertionFailure() << call << "\n  expected " << expected << "\n  got      " << got << "\n  "
                                         << Describe(got != 0 ? aclGetRecentErrMsg() : nullptr);
  }
  if (expected == 0 || function.empty()) return ::testing::AssertionSuccess();
  const char* const raw = aclGetRecentErrMsg();
  const std::string message = Describe(raw);
  std::ostringstream missing;
  if (raw == nullptr) missing << "\n  aclGetRecentErrMsg() is null";
  if (raw != nullptr && message.find(std::to_string(expected)) == std::string::npos) {
    missing << "\n  the message does not carry the number " << expected;
  }
  if (raw != nullptr && message.find(function) == std::string::npos) {
    missing << "\n  the message does not name " << function;
  }
  if (missing.str().empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << call << "\n  got " << got << " as expected, but" << missing.str() << "\n  "
                                       << message;
}

void Must(int got, const char* call, const char* file, int line) {
  if (got == 0) return;
  std::ostringstream text;
  text << file << ":" << line << ": " << call << " returned " << got << "\n  " << Describe(aclGetRecentErrMsg());
  throw std::runtime_error(text.str());
}

aclmdlRICaptureMode OddMode(int value) {
  aclmdlRICaptureMode mode = kGlobal;
  static_assert(sizeof(mode) == sizeof(value));
  std::memcpy(&mode, &value, sizeof(mode));
  return mode;
}

// ---- Threads ----

struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> piece;  // set: to be run
  std::exception_ptr thrown;
  bool finished = false;  // the piece has ended
  bool stop = false;
  bool hangs = false;
  std::thread thread;
};

Worker::Worker(aclrtContext context) : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_, context] {
    std::unique_lock lock(state->mutex);
    for (;;) {
      state->changed.wait(lock, [&] { return state->stop || state->piece; });
      if (state->stop) return;
      std::function<void()> piece = std::move(state->piece);
      state->piece = nullptr;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        if (context != nullptr) MUST(aclrtSetCurrentContext(context));
        piece();
      } catch (...) {
        thrown = std::current_exception();
      }
      piece = nullptr;
      lock.lock();
      state->thrown = thrown;
      state->finished = true;
      state->changed.notify_all();
    }
  });
}

void Worker::Run(std::function<void()> piece) {
  std::unique_lock lock(state_->mutex);
  if (state_->hangs) throw std::runtime_error("the thread still hangs in an earlier call");
  state_->piece = std::move(piece);
  state_->finished = false;
  state_->changed.notify_all();
  if (!WaitSeconds(state_->changed, lock, kWorkerSeconds, [this] { return state_->finished; })) {
    state_->hangs = true;
    throw std::runtime_error("a call on the other thread does not return");
  }
  if (state_->thrown) std::rethrow_exception(std::exchange(state_->thrown, nullptr));
}

Worker::~Worker() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
  }
  // A thread that hangs inside the library cannot be ended; the test has failed already.
  if (state_->hangs) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

bool Eventually(const std::function<bool()>& done) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kWaitMs);
  while (!done()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

RelaxedScope::RelaxedScope() { MUST(aclmdlRICaptureThreadExchangeMode(&mode_)); }
RelaxedScope::~RelaxedScope() { (void)aclmdlRICaptureThreadExchangeMode(&mode_); }

// ---- Device memory ----

std::vector<uint64_t> ReadCells(const uint64_t* cells, size_t count) {
  std::vector<uint64_t> values(count);
  const RelaxedScope relaxed;
  MUST(aclrtMemcpy(values.data(), count * 8, cells, count * 8, ACL_MEMCPY_DEVICE_TO_HOST));
  return values;
}

uint64_t ReadCell(const uint64_t* cell) { return ReadCells(cell, 1)[0]; }

void WriteCell(uint64_t* cell, uint64_t value) {
  const RelaxedScope relaxed;
  MUST(aclrtMemcpy(cell, 8, &value, 8, ACL_MEMCPY_HOST_TO_DEVICE));
}

std::vector<uint64_t> Log::Ids() const {
  std::vector<uint64_t> all = ReadCells(words, 2 + kCapacity);
  return {all.begin() + 2, all.begin() + 2 + static_cast<ptrdiff_t>(std::min<uint64_t>(all[0], kCapacity))};
}

void Log::Clear() const { WriteCell(words, 0); }

// ---- Fixture ----

struct AclGraph::Impl {
  std::unique_ptr<Watchdog> watchdog;
  struct OwnedStream {
    aclrtStream stream;
    aclrtContext context;
  };
  std::vector<OwnedStream> streams;
  std::vector<aclrtContext> contexts;
  std::vector<aclrtEvent> events;
  std::set<aclrtEvent> external_events;
  std::vector<void*> device_memory;
  std::vector<void*> pinned_memory;
  std::vector<aclmdlRI> models;
  std::vector<Gate> gates;
  aclrtStream gate_stream = nullptr;
  aclrtBinHandle binary = nullptr;
  std::map<std::string, aclrtFuncHandle> kernels;
  bool device_set = false;
};

AclGraph::AclGraph() : impl_(std::make_unique<Impl>()) {}
AclGraph::~AclGraph() = default;

void AclGraph::SetUp() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  impl_->watchdog = std::make_unique<Watchdog>(std::string(info->test_suite_name()) + "." + info->name());
  InitOnce();
  MUST(aclrtSetDevice(0));
  impl_->device_set = true;
  MUST(aclrtGetCurrentContext(&context_));
  DropMessage();
}

void AclGraph::TearDown() {
  // From here on a test that passed must also clean up without complaint; after a failure only the freeing counts.
  const bool passed = !HasFailure() && !IsSkipped();
  const auto check = [&](int got, const char* what) {
    if (passed && got != 0) {
      ADD_FAILURE() << "after the test: " << what << " returned " << got << "\n  " << Describe(aclGetRecentErrMsg());
    }
  };
  if (!impl_->device_set) {
    impl_->watchdog.reset();
    return;
  }
  (void)aclrtSetCurrentContext(context_);
  aclmdlRICaptureMode mode = kGlobal;
  (void)aclmdlRICaptureThreadExchangeMode(&mode);

  for (const auto& [stream, owner] : impl_->streams) {
    if (owner != context_) continue;
    aclmdlRICaptureStatus status = kNone;
    aclmdlRI model = nullptr;
    if (aclmdlRICaptureGetInfo(stream, &status, &model) != 0 || status == kNone) continue;
    if (passed) ADD_FAILURE() << "the test left a capture open";
    aclmdlRI ended = nullptr;
    if (aclmdlRICaptureEnd(stream, &ended) == 0) (void)aclmdlRIDestroy(ended);
  }
  if (!passed) {
    // Let go of whatever may still wait.
    aclrtStream helper = nullptr;
    if (aclrtCreateStream(&helper) == 0) {
      for (const Gate gate : impl_->gates) (void)aclrtValueWrite(gate.cell, 1, 0, helper);
      for (const aclrtEvent event : impl_->external_events) (void)aclrtRecordEvent(event, helper);
      (void)aclrtSynchronizeStreamWithTimeout(helper, 1000);
      (void)aclrtDestroyStreamForce(helper);
    }
  }
  for (const auto& [stream, owner] : impl_->streams) {
    if (owner == context_) (void)aclrtSynchronizeStreamWithTimeout(stream, passed ? kWaitMs : 1000);
  }
  for (const aclmdlRI model : impl_->models) check(aclmdlRIDestroy(model), "aclmdlRIDestroy");
  if (impl_->gate_stream != nullptr) check(aclrtDestroyStream(impl_->gate_stream), "aclrtDestroyStream");
  for (const auto& [stream, owner] : impl_->streams) {
    if (owner != context_) continue;
    check(passed ? aclrtDestroyStream(stream) : aclrtDestroyStreamForce(stream), "aclrtDestroyStream");
  }
  for (const aclrtEvent event : impl_->events) check(aclrtDestroyEvent(event), "aclrtDestroyEvent");
  for (void* memory : impl_->device_memory) check(aclrtFree(memory), "aclrtFree");
  for (void* memory : impl_->pinned_memory) check(aclrtFreeHost(memory), "aclrtFreeHost");
  if (impl_->binary != nullptr) check(aclrtBinaryUnLoad(impl_->binary), "aclrtBinaryUnLoad");
  for (const aclrtContext other : impl_->contexts) check(aclrtDestroyContext(other), "aclrtDestroyContext");
  (void)aclrtSetCurrentContext(context_);
  check(aclrtResetDevice(0), "aclrtResetDevice");
  impl_->watchdog.reset();
}

aclrtContext AclGraph::NewContext() {
  aclrtContext before = nullptr;
  MUST(aclrtGetCurrentContext(&before));
  aclrtContext made = nullptr;
  MUST(aclrtCreateContext(&made, 0));
  impl_->contexts.push_back(made);
  MUST(aclrtSetCurrentContext(before));
  return made;
}

aclrtStream AclGraph::DefaultStream() {
  aclrtStream stream = nullptr;
  MUST(aclrtCtxGetCurrentDefaultStream(&stream));
  return stream;
}

aclrtStream AclGraph::NewStream(uint32_t flags) {
  aclrtContext owner = nullptr;
  MUST(aclrtGetCurrentContext(&owner));
  aclrtStream stream = nullptr;
  if (flags == 0) {
    MUST(aclrtCreateStream(&stream));
  } else {
    MUST(aclrtCreateStreamWithConfig(&stream, 0, flags));
  }
  impl_->streams.push_back({stream, owner});
  return stream;
}

aclrtEvent AclGraph::NewEx(uint32_t mask) {
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, mask));
  impl_->events.push_back(event);
  return event;
}

aclrtEvent AclGraph::NewClassic() {
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEvent(&event));
  impl_->events.push_back(event);
  return event;
}

aclrtEvent AclGraph::NewClassicWithFlag(uint32_t mask) {
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventWithFlag(&event, mask));
  impl_->events.push_back(event);
  if (mask == ACL_EVENT_EXTERNAL) impl_->external_events.insert(event);
  return event;
}

uint64_t* AclGraph::NewCells(size_t count, uint64_t value) {
  void* memory = nullptr;
  MUST(aclrtMalloc(&memory, count * 8, ACL_MEM_MALLOC_HUGE_FIRST));
  if (memory == nullptr) throw std::runtime_error("aclrtMalloc returned 0 without memory");
  impl_->device_memory.push_back(memory);
  const std::vector<uint64_t> values(count, value);
  const RelaxedScope relaxed;
  MUST(aclrtMemcpy(memory, count * 8, values.data(), count * 8, ACL_MEMCPY_HOST_TO_DEVICE));
  return static_cast<uint64_t*>(memory);
}

uint64_t* AclGraph::NewPinned(size_t count, uint64_t value) {
  void* memory = nullptr;
  MUST(aclrtMallocHost(&memory, count * 8));
  if (memory == nullptr) throw std::runtime_error("aclrtMallocHost returned 0 without memory");
  impl_->pinned_memory.push_back(memory);
  auto* const cells = static_cast<uint64_t*>(memory);
  std::fill(cells, cells + count, value);
  return cells;
}

Log AclGraph::NewLog() {
  uint64_t* const words = NewCells(2 + Log::kCapacity);
  WriteCell(words + 1, Log::kCapacity);
  return {words};
}

void AclGraph::Own(aclmdlRI model) {
  if (model == nullptr) throw std::runtime_error("no graph to own");
  impl_->models.push_back(model);
}

void AclGraph::ForgetModel(aclmdlRI model) { std::erase(impl_->models, model); }

void AclGraph::DestroyModel(aclmdlRI model) {
  ForgetModel(model);
  MUST(aclmdlRIDestroy(model));
}

void AclGraph::DestroyStream(aclrtStream stream) {
  std::erase_if(impl_->streams, [&](const auto& owned) { return owned.stream == stream; });
  MUST(aclrtDestroyStream(stream));
}

void AclGraph::DestroyEvent(aclrtEvent event) {
  std::erase(impl_->events, event);
  impl_->external_events.erase(event);
  MUST(aclrtDestroyEvent(event));
}

aclrtFuncHandle AclGraph::Kernel(const std::string& name) {
  static const std::string kernels = testing::BesideProgram("conformance_kernels.so");
  if (impl_->binary == nullptr) MUST(aclrtBinaryLoadFromFile(kernels.c_str(), nullptr, &impl_->binary));
  aclrtFuncHandle& function = impl_->kernels[name];
  if (function == nullptr) MUST(aclrtBinaryGetFunction(impl_->binary, name.c_str(), &function));
  return function;
}

aclError AclGraph::LaunchBlock(aclrtStream stream, const std::string& kernel, uint32_t blocks, ArgBlock args) {
  const aclrtFuncHandle function = Kernel(kernel);
  return aclrtLaunchKernelWithHostArgs(function, blocks, stream, nullptr, args.data(), args.size(), nullptr, 0);
}

void AclGraph::Sync(aclrtStream stream) { MUST(aclrtSynchronizeStreamWithTimeout(stream, kWaitMs)); }

AclGraph::Gate AclGraph::NewGate() {
  const Gate gate{NewCell()};
  impl_->gates.push_back(gate);
  return gate;
}

void AclGraph::WaitAt(aclrtStream stream, Gate gate) {
  MUST(aclrtValueWait(gate.cell, 1, ACL_STREAM_WAIT_VALUE_EQ, stream));
}

void AclGraph::Open(Gate gate) {
  if (impl_->gate_stream == nullptr) MUST(aclrtCreateStream(&impl_->gate_stream));
  MUST(aclrtValueWrite(gate.cell, 1, 0, impl_->gate_stream));
  Sync(impl_->gate_stream);
}

void AclGraph::Close(Gate gate) {
  if (impl_->gate_stream == nullptr) MUST(aclrtCreateStream(&impl_->gate_stream));
  MUST(aclrtValueWrite(gate.cell, 0, 0, impl_->gate_stream));
  Sync(impl_->gate_stream);
}

void AclGraph::ExpectBlocked(aclrtStream stream) {
  EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(stream, kBlockedMs));
}

void AclGraph::Begin(aclrtStream stream, aclmdlRICaptureMode mode) { MUST(aclmdlRICaptureBegin(stream, mode)); }

aclmdlRI AclGraph::End(aclrtStream stream) {
  const aclmdlRI expected = ModelOf(stream);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  Own(model);
  EXPECT_EQ(model, expected) << "CaptureEnd returned another graph than GetInfo";
  ExpectIdle(stream);
  return model;
}

void AclGraph::EndIsRefused(aclrtStream stream, int code) {
  aclmdlRI model = stream;  // anything but null
  EXPECT_ACL(code, aclmdlRICaptureEnd(stream, &model));
  EXPECT_EQ(model, nullptr);
  ExpectIdle(stream);
}

aclmdlRI AclGraph::ModelOf(aclrtStream stream) {
  aclmdlRICaptureStatus status = kNone;
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureGetInfo(stream, &status, &model));
  if (status == kNone || model == nullptr) throw std::runtime_error("the stream is not capturing");
  return model;
}

void AclGraph::ExpectStatus(aclrtStream stream, aclmdlRICaptureStatus status, const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, "capture status");
  aclmdlRICaptureStatus got = status == kNone ? kActive : kNone;  // the call must change it
  aclmdlRI model = status == kNone ? stream : nullptr;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(stream, &got, &model));
  EXPECT_EQ(got, status);
  if (status == kNone) {
    EXPECT_EQ(model, nullptr);
  } else {
    EXPECT_NE(model, nullptr);
  }
}

aclrtEvent AclGraph::Edge(aclrtStream from, aclrtStream to) {
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, from));
  MUST(aclrtStreamWaitEvent(to, event));
  return event;
}

void AclGraph::Replay(aclmdlRI model, aclrtStream stream) {
  MUST(aclmdlRIExecuteAsync(model, stream));
  Sync(stream);
}

aclmdlRI AclGraph::CaptureAppend(const Log& log, uint64_t id) {
  const aclrtStream stream = NewStream();
  Begin(stream, kRelaxed);
  MUST(Append(stream, log, id));
  return End(stream);
}

void AclGraph::BeginInvalidated(aclrtStream stream, aclrtStream other) {
  Begin(stream, kRelaxed);
  Begin(other, kRelaxed);
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, stream));
  EXPECT_ACL(107032, aclrtStreamWaitEvent(other, event));
  ExpectInvalidated(stream);
  ExpectInvalidated(other);
}

std::vector<aclrtStream> AclGraph::StreamsOf(aclmdlRI model) {
  uint32_t count = 0;
  MUST(aclmdlRIGetStreams(model, nullptr, &count));
  std::vector<aclrtStream> streams(count);
  if (count != 0) MUST(aclmdlRIGetStreams(model, streams.data(), &count));
  EXPECT_EQ(count, streams.size());
  return streams;
}

std::vector<aclmdlRITask> AclGraph::TasksOf(aclrtStream stream) {
  uint32_t count = 0;
  MUST(aclmdlRIGetTasksByStream(stream, nullptr, &count));
  std::vector<aclmdlRITask> tasks(count);
  if (count != 0) MUST(aclmdlRIGetTasksByStream(stream, tasks.data(), &count));
  EXPECT_EQ(count, tasks.size());
  return tasks;
}

std::vector<aclmdlRITaskType> AclGraph::TypesOf(aclrtStream stream) {
  std::vector<aclmdlRITaskType> types;
  for (const aclmdlRITask task : TasksOf(stream)) {
    MUST(aclmdlRITaskGetType(task, &types.emplace_back()));
  }
  return types;
}

size_t AclGraph::CountTasks(aclmdlRI model) {
  size_t count = 0;
  for (const aclrtStream stream : StreamsOf(model)) count += TasksOf(stream).size();
  return count;
}

size_t AclGraph::CountTasks(aclmdlRI model, aclmdlRITaskType type) {
  size_t count = 0;
  for (const aclrtStream stream : StreamsOf(model)) {
    const std::vector<aclmdlRITaskType> types = TypesOf(stream);
    count += static_cast<size_t>(std::count(types.begin(), types.end(), type));
  }
  return count;
}

aclmdlRITask AclGraph::FindTask(aclmdlRI model, aclmdlRITaskType type, size_t nth) {
  for (const aclrtStream stream : StreamsOf(model)) {
    for (const aclmdlRITask task : TasksOf(stream)) {
      aclmdlRITaskType got = ACL_MODEL_RI_TASK_DEFAULT;
      MUST(aclmdlRITaskGetType(task, &got));
      if (got == type && nth-- == 0) return task;
    }
  }
  throw std::runtime_error("the graph has no such task of type " + std::to_string(static_cast<int>(type)));
}

namespace {

// One fresh 8-byte cell of the current context.
struct CopyTarget {
  void* device = nullptr;
  CopyTarget() { MUST(aclrtMalloc(&device, 8, ACL_MEM_MALLOC_HUGE_FIRST)); }
  ~CopyTarget() { (void)aclrtFree(device); }
};

constexpr uint64_t kBefore = 0x1111;
constexpr uint64_t kCopied = 0x2222;

}  // namespace

AssertionResult AclGraph::CopyIsRefused(int code) {
  const CopyTarget target;
  WriteCell(static_cast<uint64_t*>(target.device), kBefore);
  const uint64_t value = kCopied;
  DropMessage();
  const AssertionResult result =
      CheckAcl(code, aclrtMemcpy(target.device, 8, &value, 8, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy", "aclrtMemcpy");
  if (!result) return result;
  const uint64_t found = ReadCell(static_cast<uint64_t*>(target.device));
  if (found != kBefore) return ::testing::AssertionFailure() << "the refused copy changed its destination";
  return result;
}

AssertionResult AclGraph::CopyWorks() {
  const CopyTarget target;
  WriteCell(static_cast<uint64_t*>(target.device), kBefore);
  const uint64_t value = kCopied;
  DropMessage();
  const AssertionResult result =
      CheckAcl(0, aclrtMemcpy(target.device, 8, &value, 8, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy", "aclrtMemcpy");
  if (!result) return result;
  const uint64_t found = ReadCell(static_cast<uint64_t*>(target.device));
  if (found != kCopied) return ::testing::AssertionFailure() << "the copy returned 0 but the value did not arrive";
  return result;
}

}  // namespace reprise::conformance
