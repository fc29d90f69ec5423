// SPDX-License-Identifier: Apache-2.0
//
// What a process may do to itself: have no room for threads, set variables before its first call, fork, cancel threads.
// Each in a process of its own.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "../unit/scale.h"
#include "child.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string NewFolder() {
  std::string name = (fs::temp_directory_path() / "reprise-process-XXXXXX").string();
  return ::mkdtemp(name.data()) != nullptr ? name : "";
}

std::string TextOf(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Message() {
  const char* const message = aclGetRecentErrMsg();
  return message != nullptr ? message : "";
}

// A count that work on the stream raises, and that the launch itself may have seen raised.
struct Count {
  std::atomic<int> value{0};
  static void Raise(void* count) { static_cast<Count*>(count)->value.fetch_add(1); }
};

aclrtStream SetUpStream() {
  EXPECT_EQ(0, aclInit(nullptr));
  EXPECT_EQ(0, aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  EXPECT_EQ(0, aclrtCreateStream(&stream));
  return stream;
}

void ExpectWorks(aclrtStream stream) {
  Count count;
  EXPECT_EQ(0, aclrtLaunchHostFunc(stream, Count::Raise, &count));
  EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(stream, kPatience));
  EXPECT_EQ(1, count.value.load());
}

// Nothing is queued that no thread would run, and the text names limits.
void ExpectRefusedWithoutThreads(aclrtStream stream) {
  Count count;
  EXPECT_EQ(207005, aclrtLaunchHostFunc(stream, Count::Raise, &count));
  const std::string text = Message();
  for (const char* part : {"no worker thread", "RLIMIT_NPROC", "RLIMIT_AS", "Solution: raise the limit"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  aclrtStreamStatus status{};
  EXPECT_EQ(0, aclrtStreamQuery(stream, &status));
  EXPECT_EQ(ACL_STREAM_STATUS_COMPLETE, status);
  EXPECT_EQ(0, aclrtSynchronizeStream(stream)) << "there is nothing to wait for";
  EXPECT_EQ(0, count.value.load());
}

// ---- Threads that cannot be had ----

// 1: the thread for timers; 2: the only worker.
TEST(ProcessBody, DISABLED_NoThread) {
  ::setenv("REPRISE_WORKERS", "1", 1);
  ::setenv("REPRISE_FAIL_AT", ("scheduler.thread:" + Child::Argument()).c_str(), 1);
  const aclrtStream stream = SetUpStream();
  ExpectRefusedWithoutThreads(stream);
  ExpectWorks(stream);  // the point fails once: it is tried again
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, WithoutThreadsSubmissionsAreRefused) {
  for (const char* nth : {"1", "2"}) Child("ProcessBody.DISABLED_NoThread", nth);
}

TEST(ProcessBody, DISABLED_NoRoomForThreads) {
  const bool processes = Child::Argument() == "processes";
  const aclrtStream stream = SetUpStream();
  // Root may have as many as it likes.
  if (processes && ::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) GTEST_SKIP() << "one user only";
  const auto which = processes ? RLIMIT_NPROC : RLIMIT_AS;
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(which, &before));
  rlim_t most = 0;
  if (!processes) {  // room for anything but a stack
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (1 << 20);
  }
  const rlimit none{most, before.rlim_max};
  ASSERT_EQ(0, ::setrlimit(which, &none));
  ExpectRefusedWithoutThreads(stream);
  ASSERT_EQ(0, ::setrlimit(which, &before));
  ExpectWorks(stream);
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, WithoutRoomForThreadsSubmissionsAreRefused) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need threads and memory of their own";
  Child("ProcessBody.DISABLED_NoRoomForThreads", "processes");
  Child("ProcessBody.DISABLED_NoRoomForThreads", "memory");
}

TEST(ProcessBody, DISABLED_FewerThreads) {
  ::setenv("REPRISE_WORKERS", "4", 1);
  ::setenv("REPRISE_FAIL_AT", "scheduler.thread:3", 1);
  ::setenv("ASCEND_PROCESS_LOG_PATH", Child::Argument().c_str(), 1);
  ::setenv("ASCEND_GLOBAL_LOG_LEVEL", "2", 1);
  const aclrtStream first = SetUpStream();
  aclrtStream second = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&second));
  aclrtEvent event = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  Gate gate;
  gate.Block(first);
  EXPECT_EQ(0, aclrtRecordEvent(event, first));
  EXPECT_EQ(0, aclrtStreamWaitEvent(second, event));
  Count count;
  EXPECT_EQ(0, aclrtLaunchHostFunc(second, Count::Raise, &count));
  gate.Open();
  EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(second, kPatience));
  EXPECT_EQ(1, count.value.load());
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, WithFewerThreadsItGoesOnAndSaysSoOnce) {
  const std::string folder = NewFolder();
  Child("ProcessBody.DISABLED_FewerThreads", folder).Join();
  std::string log;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) log += TextOf(entry.path());
  }
  const size_t at = log.find("1 of 4 worker threads");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("worker threads", at + 25), std::string::npos) << log;
  fs::remove_all(folder);
}

// ---- Variables ----

TEST(ProcessBody, DISABLED_Variables) {
  const std::string folder = Child::Argument();
  ::setenv("REPRISE_DEVICES", "3", 1);
  ::setenv("REPRISE_SOC", "Ascend910B4", 1);
  ::setenv("REPRISE_MAX_STREAMS", "7", 1);
  ::setenv("ASCEND_LAUNCH_BLOCKING", "1", 1);
  ::setenv("REPRISE_TRACE_CALLS", "1", 1);
  ::setenv("REPRISE_ERROR_JSON", (folder + "/errors").c_str(), 1);
  ::setenv("REPRISE_PROFILE", (folder + "/profile").c_str(), 1);
  ::setenv("ASCEND_PROCESS_LOG_PATH", (folder + "/log").c_str(), 1);
  ::setenv("ASCEND_GLOBAL_LOG_LEVEL", "0", 1);
  const aclrtStream stream = SetUpStream();
  uint32_t number = 0;
  EXPECT_EQ(0, aclrtGetDeviceCount(&number));
  EXPECT_EQ(3u, number);
  EXPECT_STREQ("Ascend910B4", aclrtGetSocName());
  EXPECT_EQ(0, aclrtGetStreamAvailableNum(&number));
  EXPECT_EQ(5u, number);  // one is the default stream
  Count count;
  EXPECT_EQ(0, aclrtLaunchHostFunc(stream, Count::Raise, &count));
  EXPECT_EQ(1, count.value.load()) << "the submission has not waited";
  EXPECT_EQ(107001, aclrtSetDevice(17));
  EXPECT_THAT(Message(), HasSubstr("Call: aclrtSetDevice, called by thread"));
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, VariablesThatAreSetBeforeTheFirstCallCount) {
  const std::string folder = NewFolder();
  Child("ProcessBody.DISABLED_Variables", folder).Join();
  EXPECT_THAT(TextOf(folder + "/errors"), HasSubstr("107001"));
  EXPECT_THAT(TextOf(folder + "/profile"), HasSubstr("traceEvents"));
  EXPECT_TRUE(fs::exists(folder + "/log/debug/plog"));
  fs::remove_all(folder);
}

// ---- Forks ----

// The exit status of a fork that runs `body`, which returns how many things were not as they should be.
int InFork(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(60);  // what hangs does so for ever
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(pid, ::waitpid(pid, &status, 0));
  return status;
}

TEST(ProcessBody, DISABLED_Forks) {
  // Before a device is used, a child is as good as its parent.
  if (!kSanitized) {
    EXPECT_EQ(0, aclInit(nullptr));
    uint32_t count = 0;
    EXPECT_EQ(0, aclrtGetDeviceCount(&count));
    EXPECT_EQ(0, InFork([] {
                if (aclrtSetDevice(0) != 0) return 1;
                aclrtStream own = nullptr;
                if (aclrtCreateStream(&own) != 0) return 2;
                Count raised;
                if (aclrtLaunchHostFunc(own, Count::Raise, &raised) != 0) return 3;
                if (aclrtSynchronizeStreamWithTimeout(own, kPatience) != 0) return 4;
                return raised.value.load() == 1 && aclrtResetDevice(0) == 0 ? 0 : 5;
              }));
    EXPECT_EQ(0, aclFinalize());
  }
  const aclrtStream stream = SetUpStream();
  ExpectWorks(stream);
  void* memory = nullptr;
  ASSERT_EQ(0, aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
  Gate gate;
  gate.Block(stream);  // threads are at work, and there is more to come
  EXPECT_EQ(0, InFork([&] {
              const std::function<int()> calls[] = {
                  [] { return aclInit(nullptr); },
                  [] { return aclrtSetDevice(0); },
                  [] {
                    aclrtStream made = nullptr;
                    return aclrtCreateStream(&made);
                  },
                  [&] { return aclrtSynchronizeStream(stream); },
                  [&] { return aclrtLaunchHostFunc(stream, Count::Raise, nullptr); },
                  [&] { return aclrtMemset(memory, 64, 0, 64); },
                  [&] { return aclrtFree(memory); },
                  [] { return aclrtSynchronizeDevice(); },
                  [] { return aclrtResetDevice(0); },
                  [] { return aclFinalize(); },
              };
              int wrong = 0;
              for (const auto& call : calls) {
                const int code = call();
                const std::string text = Message();
                wrong += code != 207000 || text.find("forked") == std::string::npos ||
                                 text.find("Solution: fork before") == std::string::npos
                             ? 1
                             : 0;
              }
              return wrong;
            }));
  gate.Open();
  ExpectWorks(stream);  // the parent has noticed nothing
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, ForksOfAProcessWithADeviceAreRefused) { Child("ProcessBody.DISABLED_Forks", ""); }

// One thread is in the midst of a line of the log, another one forks: the child must be able to log its refusals.
TEST(ProcessBody, DISABLED_ForksWhileItLogs) {
  ::setenv("ASCEND_LOG_PRINT_TO_STDOUT", "1", 1);
  const aclrtStream stream = SetUpStream();
  ExpectWorks(stream);
  std::fflush(stdout);
  const int real = ::dup(STDOUT_FILENO);
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC | O_NONBLOCK));
  std::array<char, 4096> bytes{};
  while (::write(ends[1], bytes.data(), bytes.size()) > 0) {
  }
  while (::write(ends[1], bytes.data(), 1) > 0) {
  }
  ASSERT_EQ(0, ::fcntl(ends[1], F_SETFL, 0));  // who writes now waits
  ASSERT_EQ(0, std::setvbuf(stdout, nullptr, _IONBF, 0));
  ASSERT_EQ(STDOUT_FILENO, ::dup2(ends[1], STDOUT_FILENO));
  std::atomic<pid_t> writes{0};
  std::thread writer([&] {
    writes = ::gettid();
    (void)aclrtSetDevice(99);
  });
  const auto sleeps = [&] {
    const std::string text = TextOf("/proc/self/task/" + std::to_string(writes.load()) + "/stat");
    const size_t end = text.rfind(')');
    return end != std::string::npos && text.compare(end + 1, 2, " S") == 0;
  };
  while (writes == 0 || !sleeps()) std::this_thread::yield();
  std::atomic<int> status{-1};
  std::thread forks([&] { status = InFork([] { return aclrtSetDevice(0) == 207000 ? 0 : 1; }); });
  // All that is written from now on has room.
  std::atomic<bool> done{false};
  std::thread reader([&] {
    for (bool last = false; !last;) {
      last = done.load();
      while (::read(ends[0], bytes.data(), bytes.size()) > 0) {
      }
      std::this_thread::yield();
    }
  });
  forks.join();
  writer.join();
  ASSERT_EQ(STDOUT_FILENO, ::dup2(real, STDOUT_FILENO));
  done = true;
  reader.join();
  EXPECT_EQ(0, status.load());
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, AForkInTheMidstOfALineOfTheLogIsRefused) { Child("ProcessBody.DISABLED_ForksWhileItLogs", ""); }

// ---- Cancelled threads ----

// Runs `wait` on a thread that is cancelled in it; `release` lets it return. The thread ends behind the call, not in
// it.
void CancelIn(const std::function<void()>& wait, const std::function<void()>& inside,
              const std::function<void()>& release) {
  struct Shared {
    const std::function<void()>* wait;
    aclrtContext context = nullptr;
    std::atomic<bool> returned{false};
  } shared{&wait};
  ASSERT_EQ(0, aclrtGetCurrentContext(&shared.context));
  pthread_t thread{};
  ASSERT_EQ(0, ::pthread_create(
                   &thread, nullptr,
                   [](void* argument) -> void* {
                     auto* const self = static_cast<Shared*>(argument);
                     aclrtSetCurrentContext(self->context);
                     (*self->wait)();
                     self->returned = true;
                     ::pthread_testcancel();
                     return nullptr;
                   },
                   &shared));
  ::pthread_cancel(thread);
  inside();
  release();
  void* result = nullptr;
  ASSERT_EQ(0, ::pthread_join(thread, &result));
  EXPECT_EQ(PTHREAD_CANCELED, result);
  EXPECT_TRUE(shared.returned.load()) << "the thread has ended inside of the call";
}

TEST(ProcessBody, DISABLED_Cancelled) {
  ::setenv("REPRISE_STALL_MS", "10", 1);
  const aclrtStream stream = SetUpStream();
  ExpectWorks(stream);
  // What a synchronisation tells when nothing happens is where a thread could end: it is waited for.
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const int real = ::dup(STDERR_FILENO);
  ASSERT_EQ(STDERR_FILENO, ::dup2(ends[1], STDERR_FILENO));
  ::close(ends[1]);
  aclrtStream held = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&held));
  aclrtNotify notify = nullptr;
  ASSERT_EQ(0, aclrtCreateNotify(&notify, 0));
  ASSERT_EQ(0, aclrtWaitAndResetNotify(notify, held, 0));
  int code = -1;
  CancelIn([&] { code = aclrtSynchronizeStream(held); },
           [&] {
             std::string told;
             char piece[256];
             while (told.find("without progress") == std::string::npos) {
               const ssize_t got = ::read(ends[0], piece, sizeof piece);
               ASSERT_GT(got, 0);
               told.append(piece, static_cast<size_t>(got));
             }
           },
           [&] { EXPECT_EQ(0, aclrtRecordNotify(notify, stream)); });
  ASSERT_EQ(STDERR_FILENO, ::dup2(real, STDERR_FILENO));
  EXPECT_EQ(0, code);
  ExpectWorks(held);

  // A thread that waits for callbacks.
  std::atomic<uint64_t> id{0};
  Count count;
  CancelIn(
      [&] {
        id = static_cast<uint64_t>(::pthread_self());
        id.notify_all();
        while ((code = aclrtProcessReport(-1)) == 107012) {
        }
      },
      [&] {
        id.wait(0);
        EXPECT_EQ(0, aclrtSubscribeReport(id.load(), held));
      },
      [&] { EXPECT_EQ(0, aclrtLaunchCallback(Count::Raise, &count, ACL_CALLBACK_BLOCK, held)); });
  EXPECT_EQ(0, code);
  EXPECT_EQ(1, count.value.load());
  EXPECT_EQ(0, aclrtUnSubscribeReport(id.load(), held));
  ExpectWorks(held);
  EXPECT_EQ(0, aclrtResetDevice(0));
}
TEST(Process, CancelledThreadsEndBehindTheirCalls) { Child("ProcessBody.DISABLED_Cancelled", ""); }

}  // namespace
}  // namespace reprise::testing
