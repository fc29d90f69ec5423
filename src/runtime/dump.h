// SPDX-License-Identifier: Apache-2.0
//
// Dump: arguments of launched kernels, what operators read and write (data_dump.h), and data of failed tasks, as files
// below a folder, or in pieces to a function of the program.
//
// Arguments are written when a kernel is launched (or captured), one JSON object on a line of its own; all launches
// between Start and Stop are in one file. A replay launches nothing anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/condition_variable.h"
#include "base/mutex.h"
#include "base/status.h"
#include "ir/task.h"
#include "runtime/data_dump.h"
#include "runtime/exception.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Threads: thread-safe.
class Dump {
 public:
  /// Whether arguments of launches are wanted.
  static bool wants_args() noexcept { return wants_args_.load(std::memory_order_relaxed); }
  /// Whether operators shall tell what tensors they were called with, for arguments or for data.
  static bool wants_tensors() noexcept { return wants_tensors_.load(std::memory_order_relaxed); }
  static Dump& Get();

  /// 100044 when arguments are dumped already, 100003 when the folder cannot be used.
  Status StartArgs(const std::string& folder);
  /// 100045 when no arguments are dumped; 100004 when something could not be written.
  Status StopArgs();
  /// One line about a launch on `stream`; `args_readable` is false for an argument block that is read at run time only.
  static std::string DescribeLaunch(const Stream& stream, const ir::Task& task, bool args_readable);
  void WriteLaunch(const std::string& line) noexcept;

  /// How much is saved of a task that failed.
  enum class Scene : uint8_t {
    kNone,    ///< nothing
    kBrief,   ///< the memory that it worked on
    kNormal,  ///< and what is known of the task
    kDetail   ///< and what the streams of the program do
  };
  struct Settings {
    std::string folder;          ///< may be empty when only failures are dumped: then exception_folder says where
    Scene scene = Scene::kNone;  ///< not kNone: failures are dumped and nothing else
    DataDumpOptions data;        ///< for kNone
  };
  /// The configured dump: init, any number of configurations, finalize. 100044 and 100045 for another order.
  Status Init();
  Status Configure(const Settings& settings);
  Status CheckInit();
  Status Finalize();
  /// The dump that the configuration file of aclInit asks for: until EndOfFile no other call configures.
  Status StartOfFile(const Settings& settings);
  Status EndOfFile();
  /// Begins to save failed tasks if variables of the environment ask for it, which goes before all configurations and
  /// does not end. 100009 for a variable that makes no sense.
  Status StartOfEnvironment();

  /// Gets pieces instead of files: name of the file, offset, bytes, whether it is the last piece of that file. Anything
  /// but 0 counts as not written. Called on the thread that caused the piece, without a lock.
  using Receiver = std::function<int(const std::string& file, uint64_t offset, std::string_view bytes, bool last)>;
  void SetReceiver(Receiver receiver);
  /// Removes the receiver, which does not run any more when this returns, unless the receiver itself is the caller.
  void RemoveReceiver();

  struct Tensor {
    int type;
    int format;
    int data_type;
    uint64_t bytes;
    const void* address;  ///< of the data; may be wild
    bool on_host;
    uint32_t args_offset;
    std::vector<uint64_t> shape;
    std::vector<uint64_t> origin_shape;
  };
  /// Writes a description to the file `name` below exception_folder, and the data of each tensor that can be read to
  /// `name`.<index>.bin beside it.
  /// `more`: members of the description, each behind a comma. A brief one says no types and shapes.
  Status SaveTensors(int device, const std::string& name, const std::string& tag, std::span<const Tensor> tensors,
                     const std::string& more = {}, bool is_brief = false);
  /// The folder in which data of failed tasks of the device is saved.
  std::string exception_folder(int device);
  /// Folder of the arguments, valid for ever; null when no arguments are dumped.
  const char* args_folder();
  /// A copy of the text at an address that stays valid.
  const char* Keep(const std::string& text);

 private:
  struct Sink {
    bool on = false;
    std::string folder;
    std::string path;
    std::FILE* file = nullptr;  // opened by the first line
    uint64_t delivered = 0;     // bytes that the receiver got
    bool failed = false;
    std::string failure;
  };

  Dump() = default;
  Status ConfigureLocked(const Settings& settings) REPRISE_REQUIRES(mutex_);
  Status FinalizeLocked() REPRISE_REQUIRES(mutex_);
  Status NotInitialized() const REPRISE_REQUIRES(mutex_);
  void SaveFailure(const TaskFailure& failure) noexcept;
  Status EndSink(UniqueLock<Mutex>& lock) REPRISE_REQUIRES(mutex_);
  void SetWants() noexcept REPRISE_REQUIRES(mutex_);
  void SetListener() REPRISE_REQUIRES(mutex_);
  Scene scene_locked() const REPRISE_REQUIRES(mutex_) {
    return environment_scene_ != Scene::kNone ? environment_scene_ : scene_;
  }
  int Deliver(const std::string& file, uint64_t offset, std::string_view bytes, bool last, UniqueLock<Mutex>& lock)
      REPRISE_REQUIRES(mutex_) REPRISE_NOT_ANALYSED;
  Status WriteWhole(const std::string& path,
                    const std::function<bool(const std::function<bool(std::string_view)>&)>& fill);

  static std::atomic<bool> wants_args_;
  static std::atomic<bool> wants_tensors_;

  Mutex mutex_;
  Sink sink_ REPRISE_GUARDED_BY(mutex_);
  uint32_t next_file_ REPRISE_GUARDED_BY(mutex_) = 0;
  bool initialized_ REPRISE_GUARDED_BY(mutex_) = false;
  bool of_file_ REPRISE_GUARDED_BY(mutex_) = false;
  Scene scene_ REPRISE_GUARDED_BY(mutex_) = Scene::kNone;
  Scene environment_scene_ REPRISE_GUARDED_BY(mutex_) = Scene::kNone;
  std::string environment_folder_ REPRISE_GUARDED_BY(mutex_);
  std::string configured_folder_ REPRISE_GUARDED_BY(mutex_);
  std::set<std::string> kept_ REPRISE_GUARDED_BY(mutex_);

  std::shared_ptr<const Receiver> receiver_;
  uint32_t delivering_ = 0;
  ConditionVariable delivered_;
};

}  // namespace reprise::runtime
