// SPDX-License-Identifier: Apache-2.0
#include "distributed/monitor.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/python_stack.h"
#include "distributed/recorder.h"

namespace torch_npu {
namespace {

constexpr const char* kSomebodyTimedOut = "hccl dump";
constexpr const char* kHaveDumped = "hccl dumped";
// What a look into a store takes at most.
constexpr std::chrono::seconds kEndsWithin{2};

class MonitorThread : public std::enable_shared_from_this<MonitorThread> {
 public:
  MonitorThread(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  // Whether there is anything to do.
  bool Prepare() {
    dumps_on_timeout_ = c10d::getCvarBool({"TORCH_HCCL_DUMP_ON_TIMEOUT"}, false);
    check_ms_ = c10d::getCvarInt({"TORCH_HCCL_COORD_CHECK_MILSEC"}, 1000);
    wait_ms_ = c10d::getCvarInt({"TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC"}, 60000);
    const std::string pipe = c10d::getCvarString({"TORCH_HCCL_DEBUG_INFO_PIPE_FILE"}, "");
    if (dumps_on_timeout_) {
      try {
        store_ = store_->clone();  // of its own: the program may wait for a key
      } catch (const std::exception& error) {
        TORCH_WARN("a time-out on another rank will write no dump here, since the store cannot be opened twice: ",
                   error.what());
        store_ = nullptr;
      }
    }
    if (!pipe.empty()) OpenPipe(pipe + std::to_string(rank_) + ".pipe");
    return dumps_on_timeout_ || pipe_ >= 0;
  }

  void Begin() {
    process_ = getpid();
    wake_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([live = shared_from_this()] {
      live->Loop();
      const std::lock_guard lock(live->mutex_);
      live->has_ended_ = true;
      live->ended_.notify_all();
    });
  }

  void End() noexcept {
    if (!thread_.joinable()) return;
    if (process_ != getpid()) {
      new std::thread(std::move(thread_));  // of the process that this one was forked from: nothing to wait for
      return;
    }
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
    const ReleaseGil no_gil;
    if (pipe_ >= 0) (void)unlink(path_.c_str());
    {
      // It may be caught in a store that answers nobody. Then it is left alone, with what it uses.
      std::unique_lock lock(mutex_);
      if (!ended_.wait_for(lock, kEndsWithin, [this] { return has_ended_; })) return thread_.detach();
    }
    thread_.join();
    if (pipe_ >= 0) (void)close(pipe_);
    (void)close(wake_);
  }

  void DumpEverywhere() noexcept try {
    if (!dumps_on_timeout_) return;
    if (!TakesTurn()) return;
    WriteTrace();
    if (!store_) return;
    // On a thread of its own: a rank that ended in the midst of a write may leave a store that answers nobody.
    struct Answer {
      std::mutex mutex;
      std::condition_variable changed;
      bool is_there = false;
    };
    auto answer = std::make_shared<Answer>();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms_);
    std::thread([live = shared_from_this(), answer, end] {
      live->TellOthers(end);
      const std::lock_guard lock(answer->mutex);
      answer->is_there = true;
      answer->changed.notify_all();
    }).detach();
    std::unique_lock lock(answer->mutex);
    answer->changed.wait_until(lock, end, [&] { return answer->is_there; });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[HCCL] other ranks cannot be told to write dumps: %s\n", error.what());
  }

 private:
  // Until all have written theirs.
  void TellOthers(std::chrono::steady_clock::time_point end) noexcept try {
    store_->set(kSomebodyTimedOut, std::to_string(rank_));
    int64_t have = store_->add(kHaveDumped, 1);
    while (have < size_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      have = store_->add(kHaveDumped, 0);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[HCCL] other ranks cannot be told to write dumps: %s\n", error.what());
  }

  void OpenPipe(const std::string& path) {
    (void)unlink(path.c_str());
    // Also open for writing, so that it does not end when a writer goes.
    if (mkfifo(path.c_str(), 0600) == 0) pipe_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    TORCH_CHECK(pipe_ >= 0, "the pipe ", path, " cannot be made: ", std::strerror(errno),
                "; let TORCH_HCCL_DEBUG_INFO_PIPE_FILE begin with a folder that can be written to");
    path_ = path;
  }

  void Loop() noexcept {
    for (;;) {
      pollfd both[] = {{wake_, POLLIN, 0}, {pipe_, POLLIN, 0}};
      const bool asks = dumps_on_timeout_ && store_ && !store_is_lost_.load() && !has_dumped();
      const int ready = poll(both, pipe_ >= 0 ? 2 : 1, asks ? check_ms_ : -1);
      if (ready < 0 && errno != EINTR) return;
      if (ready > 0 && (both[0].revents & POLLIN) != 0) return;
      if (ready > 0 && (both[1].revents & POLLIN) != 0) {
        char bytes[256];
        while (read(pipe_, bytes, sizeof bytes) > 0) continue;
        WriteTrace();
      }
      if (asks) LookForOthers();
    }
  }

  void LookForOthers() noexcept try {
    if (!store_->check({kSomebodyTimedOut}) || !TakesTurn()) return;
    WriteTrace();
    (void)store_->add(kHaveDumped, 1);
  } catch (const std::exception&) {  // the rank that has the store has ended
    store_is_lost_.store(true);
  }

  bool has_dumped() {
    const std::lock_guard lock(mutex_);
    return has_dumped_;
  }
  // One dump for all time-outs, since they follow from each other.
  bool TakesTurn() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(has_dumped_, true);
  }

  // In one step, so that nobody reads half a file.
  void WriteTrace() noexcept try {
    std::string path = c10d::getCvarString({"TORCH_HCCL_DEBUG_INFO_TEMP_FILE"}, "");
    if (path.empty()) path = (std::filesystem::temp_directory_path() / "hccl_trace_rank_").string();
    path += std::to_string(rank_);
    const std::string part = path + ".part";
    std::ofstream file(part, std::ios::binary);
    file << Recorder::Get().Pickled({});
    file.close();
    if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
      std::fprintf(
          stderr,
          "[HCCL] the dump %s cannot be written; see that TORCH_HCCL_DEBUG_INFO_TEMP_FILE begins with a folder "
          "that has room and can be written to\n",
          path.c_str());
      return;
    }
    const char* const hint =
        Recorder::Get().capacity() == 0 ? "; it has no operators, since TORCH_HCCL_TRACE_BUFFER_SIZE is 0" : "";
    std::fprintf(stderr, "[HCCL] the last operators of rank %d are in %s%s\n", rank_, path.c_str(), hint);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[HCCL] no dump of the last operators: %s\n", error.what());
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  bool dumps_on_timeout_ = false;
  int check_ms_ = 0;
  int wait_ms_ = 0;
  std::string path_;
  int pipe_ = -1;
  int wake_ = -1;
  pid_t process_ = 0;
  std::thread thread_;
  std::atomic<bool> store_is_lost_{false};
  std::mutex mutex_;
  bool has_dumped_ = false;
  bool has_ended_ = false;  // the thread
  std::condition_variable ended_;
};

struct TheMonitor {
  std::mutex mutex;
  bool was_started = false;
  std::shared_ptr<MonitorThread> live;
};

TheMonitor& MonitorOfProcess() {
  static auto* const monitor = new TheMonitor;  // groups may end after static objects
  return *monitor;
}

}  // namespace

void Monitor::Start(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  TheMonitor& monitor = MonitorOfProcess();
  const std::lock_guard lock(monitor.mutex);
  if (std::exchange(monitor.was_started, true)) return;
  auto thread = std::make_shared<MonitorThread>(store, rank, size);
  if (!thread->Prepare()) return;
  thread->Begin();
  monitor.live = std::move(thread);
}

void Monitor::DumpAll() noexcept {
  std::shared_ptr<MonitorThread> live;
  {
    const std::lock_guard lock(MonitorOfProcess().mutex);
    live = MonitorOfProcess().live;
  }
  if (live) live->DumpEverywhere();
}

void Monitor::Stop() noexcept {
  std::shared_ptr<MonitorThread> live;
  {
    const std::lock_guard lock(MonitorOfProcess().mutex);
    live = std::move(MonitorOfProcess().live);
  }
  if (live) live->End();
}

}  // namespace torch_npu
