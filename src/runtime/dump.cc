// SPDX-License-Identifier: Apache-2.0
#include "runtime/dump.h"

#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "base/env.h"
#include "base/fault.h"
#include "base/folder.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "ir/graph.h"
#include "ir/task_info.h"
#include "kernels/dtype.h"
#include "runtime/kernel.h"
#include "runtime/objects.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

// A piece for the receiver, and of a tensor while it is copied.
constexpr size_t kPiece = 256u << 10;
constexpr size_t kPage = 4096;
// More of a tensor is not saved: sizes of failed operators may be garbage.
constexpr uint64_t kMostTensorBytes = 1u << 30;

// Calls of the receiver that this thread is in: what it launches itself is not dumped.
thread_local int t_in_receiver = 0;

// `what` begins with whose fault it is: that of the callback, or that of the file.
Status NotWritten(const std::string& what) {
  if (what.starts_with("the callback")) {
    return Error(kWriteFile, what)
        .Culprit("the function given to acldumpRegCallback")
        .Hint("let the function return 0 once it has taken a piece");
  }
  return Error(kWriteFile, what).Culprit("the file").Hint("make room, and look at the permissions of the folder");
}

std::string Numbers(std::span<const uint64_t> values) { return fmt::format("[{}]", fmt::join(values, ",")); }

}  // namespace

std::atomic<bool> Dump::wants_args_{false};
std::atomic<bool> Dump::wants_tensors_{false};

Dump& Dump::Get() {
  static auto* const dump = new Dump;
  return *dump;
}

const char* Dump::Keep(const std::string& text) {
  MutexLock lock(mutex_);
  return kept_.insert(text).first->c_str();
}

// ---- Arguments of launches ----

void Dump::SetWants() noexcept {
  wants_args_.store(sink_.on, std::memory_order_relaxed);
  wants_tensors_.store(sink_.on || DataDump::Get().on(), std::memory_order_relaxed);
}

Status Dump::StartArgs(const std::string& folder) {
  MutexLock lock(mutex_);
  if (sink_.on) {
    return Error(kDumpAlreadyRun, "arguments are dumped already")
        .Culprit(fmt::format("an earlier aclopStartDumpArgs with the folder \"{}\"", sink_.folder))
        .Hint("call aclopStopDumpArgs first");
  }
  REPRISE_RETURN_IF_ERROR(MakeFolder(folder));
  sink_ = {};
  sink_.folder = folder;
  sink_.path = fmt::format("{}/kernel_args_{}_{}.jsonl", folder, getpid(), next_file_++);
  sink_.on = true;
  SetWants();
  return {};
}

Status Dump::EndSink(UniqueLock<Mutex>& lock) {
  Sink ended = std::exchange(sink_, {});
  SetWants();
  if (ended.file != nullptr && std::fclose(ended.file) != 0 && !ended.failed) {
    ended.failed = true;
    ended.failure = fmt::format("{} cannot be written: {}", ended.path, std::strerror(errno));
  }
  if (ended.delivered != 0) {
    // Behind the pieces that other threads are delivering.
    if (t_in_receiver == 0) delivered_.wait(lock, [&] { return delivering_ == 0; });
    if (receiver_ != nullptr && Deliver(ended.path, ended.delivered, {}, true, lock) != 0 && !ended.failed) {
      ended.failed = true;
      ended.failure = fmt::format("the callback refused the last piece of {}", ended.path);
    }
  }
  return ended.failed ? NotWritten(ended.failure) : Status();
}

Status Dump::StopArgs() {
  UniqueLock lock(mutex_);
  if (!sink_.on) {
    return Error(kDumpNotRun, "no arguments are dumped")
        .Culprit("aclopStartDumpArgs was not called, or aclopStopDumpArgs was called since")
        .Hint("call aclopStartDumpArgs first");
  }
  return EndSink(lock);
}

const char* Dump::args_folder() {
  std::string folder;
  {
    MutexLock lock(mutex_);
    folder = sink_.on ? sink_.folder : scene_ == Scene::kNone ? configured_folder_ : std::string();
  }
  return folder.empty() ? nullptr : Keep(folder);
}

std::string Dump::DescribeLaunch(const Stream& stream, const ir::Task& task, bool args_readable) {
  ir::TaskInfo info;
  info.names_only = !args_readable;
  info.wants_tensors = true;
  ir::Describe(*task.type, task.payload, info);
  std::string line;
  auto out = std::back_inserter(line);
  fmt::format_to(out, R"({{"name":"{}","type":"{}","device":{},"stream":{},"captured":{},"blocks":{},"args_bytes":{})",
                 JsonEscape(info.name), info.type_name, stream.device().id(), stream.id(), stream.is_capturing(),
                 info.num_blocks, info.args_bytes);
  if (!args_readable) {
    fmt::format_to(out, R"(,"args_address":"{:#x}")", reinterpret_cast<uintptr_t>(info.args_address));
  } else if (info.args_address != nullptr) {
    // All bytes in their order, which words of 8 would not show for a short end.
    const auto* bytes = static_cast<const unsigned char*>(info.args_address);
    fmt::format_to(out, R"(,"args":"{:02x}")", fmt::join(bytes, bytes + info.args_bytes, ""));
  }
  if (!info.ranges.empty()) {
    line += ",\"tensors\":[";
    for (size_t i = 0; i < info.ranges.size(); ++i) {
      const ir::AccessRange& range = info.ranges[i];
      fmt::format_to(out, R"({}{{"address":"{:#x}","bytes":{},"written":{}}})", i != 0 ? "," : "",
                     reinterpret_cast<uintptr_t>(range.begin), range.bytes, range.is_write);
    }
    line += ']';
  }
  if (info.call != nullptr && info.call_begins) {
    fmt::format_to(out, R"(,"operator":"{}","operands":[)", JsonEscape(info.call->name));
    bool first = true;
    for (const ir::TensorInfo& tensor : info.call->tensors) {
      const auto type = static_cast<kernels::DType>(tensor.dtype);
      fmt::format_to(out,
                     R"({}{{"name":"{}","data_type":"{}","format":"ND","shape":[{}],"strides":[{}],"written":{}}})",
                     first ? "" : ",", JsonEscape(tensor.name),
                     kernels::IsKnown(type) ? kernels::Name(type) : std::string_view("unknown"),
                     fmt::join(tensor.sizes, ","), fmt::join(tensor.strides, ","), tensor.is_write);
      first = false;
    }
    line += ']';
  }
  return line + "}\n";
}

// Calls the receiver without the lock.
int Dump::Deliver(const std::string& file, uint64_t offset, std::string_view bytes, bool last,
                  UniqueLock<Mutex>& lock) {
  const std::shared_ptr<const Receiver> receiver = receiver_;
  ++delivering_;
  lock.unlock();
  ++t_in_receiver;
  const int result = (*receiver)(file, offset, bytes, last);
  --t_in_receiver;
  lock.lock();
  if (--delivering_ == 0) delivered_.notify_all();
  return result;
}

void Dump::WriteLaunch(const std::string& line) noexcept try {
  if (t_in_receiver != 0) return;
  UniqueLock lock(mutex_);
  if (!sink_.on) return;
  const std::string path = sink_.path;
  std::string failure;
  if (receiver_ != nullptr) {
    const uint64_t offset = std::exchange(sink_.delivered, sink_.delivered + line.size());
    if (Deliver(path, offset, line, false, lock) != 0) failure = "the callback refused a piece of " + path;
  } else {
    if (sink_.file == nullptr) sink_.file = FaultPoint("dump.file") ? nullptr : std::fopen(path.c_str(), "we");
    if (sink_.file == nullptr || std::fwrite(line.data(), 1, line.size(), sink_.file) != line.size() ||
        std::fflush(sink_.file) != 0) {
      failure = fmt::format("{} cannot be written: {}", path, std::strerror(errno));
    }
  }
  // The sink may have ended while the receiver ran.
  if (failure.empty() || sink_.failed || sink_.path != path) return;
  REPRISE_LOG(kError, "RUNTIME", "dump: {}", failure);
  sink_.failed = true;
  sink_.failure = failure;
} catch (const std::exception&) {  // a launch does not fail because its dump does
}

// ---- The configured dump ----

Status Dump::Init() {
  MutexLock lock(mutex_);
  if (initialized_) {
    return Error(kDumpAlreadyRun, "the dump is initialised already")
        .Culprit(of_file_ ? "the key dump of the file that was given to aclInit" : "an earlier aclmdlInitDump")
        .Hint(of_file_ ? "describe the whole dump in that file, or take the key out of it"
                       : "call aclmdlFinalizeDump first");
  }
  initialized_ = true;
  return {};
}

Status Dump::NotInitialized() const {
  if (of_file_) {
    return Error(kDumpNotRun, "the dump was not initialised by aclmdlInitDump")
        .Culprit("the key dump of the file that was given to aclInit, which alone configures the dump now")
        .Hint("describe the whole dump in that file; aclFinalize ends it");
  }
  return Error(kDumpNotRun, "the dump is not initialised")
      .Culprit("aclmdlInitDump was not called, or aclmdlFinalizeDump was called since")
      .Hint("call aclmdlInitDump first");
}

Status Dump::CheckInit() {
  MutexLock lock(mutex_);
  return initialized_ && !of_file_ ? Status() : NotInitialized();
}

void Dump::SetListener() {
  if (scene_locked() != Scene::kNone) {
    AddFailureListener(this, [this](const TaskFailure& failure) { SaveFailure(failure); });
  } else {
    RemoveFailureListener(this);
  }
}

Status Dump::StartOfEnvironment() {
  const std::string wanted = Env(EnvVar::kDumpScene);
  const std::string collect = Env(EnvVar::kCollectPath);
  Scene scene = Scene::kNone;
  std::string folder;
  if (!wanted.empty()) {
    scene = wanted == "aic_err_brief_dump"    ? Scene::kBrief
            : wanted == "aic_err_norm_dump"   ? Scene::kNormal
            : wanted == "aic_err_detail_dump" ? Scene::kDetail
                                              : Scene::kNone;
    if (scene == Scene::kNone) {
      return Error(kInvalidDumpConfig,
                   fmt::format("ASCEND_DUMP_SCENE is \"{}\", must be aic_err_brief_dump, aic_err_norm_dump or "
                               "aic_err_detail_dump",
                               wanted))
          .Culprit("the environment variable ASCEND_DUMP_SCENE")
          .Hint("set it to one of these, or unset it");
    }
    folder = Env(EnvVar::kDumpPath);
    if (folder.empty()) folder = Env(EnvVar::kWorkPath);
    if (folder.empty()) folder = ".";
  } else if (!collect.empty()) {
    scene = Scene::kNormal;
    folder = collect;
  }
  MutexLock lock(mutex_);
  environment_scene_ = scene;
  environment_folder_ = folder;
  SetListener();
  return {};
}

Status Dump::ConfigureLocked(const Settings& settings) {
  if (!settings.folder.empty()) REPRISE_RETURN_IF_ERROR(MakeFolder(settings.folder));
  Status ended = DataDump::Get().Stop();
  configured_folder_ = settings.folder;
  scene_ = settings.scene;
  SetListener();
  if (scene_ == Scene::kNone) {
    DataDumpOptions data = settings.data;
    data.folder = settings.folder;
    REPRISE_RETURN_IF_ERROR(DataDump::Get().Start(
        std::move(data), [this](const std::string& path, const auto& fill) { return WriteWhole(path, fill); }));
  }
  SetWants();
  return ended;
}

Status Dump::FinalizeLocked() {
  initialized_ = false;
  of_file_ = false;
  scene_ = Scene::kNone;
  SetListener();
  configured_folder_.clear();
  Status ended = DataDump::Get().Stop();
  SetWants();
  return ended;
}

Status Dump::Configure(const Settings& settings) {
  MutexLock lock(mutex_);
  if (!initialized_ || of_file_) return NotInitialized();
  return ConfigureLocked(settings);
}

Status Dump::Finalize() {
  MutexLock lock(mutex_);
  if (!initialized_ || of_file_) return NotInitialized();
  return FinalizeLocked();
}

Status Dump::StartOfFile(const Settings& settings) {
  MutexLock lock(mutex_);
  if (initialized_) {
    return Error(kDumpAlreadyRun, "the dump is initialised already")
        .Culprit("an earlier aclmdlInitDump")
        .Hint("call aclmdlFinalizeDump first, or aclInit before aclmdlInitDump");
  }
  REPRISE_RETURN_IF_ERROR(ConfigureLocked(settings));
  initialized_ = true;
  of_file_ = true;
  return {};
}

Status Dump::EndOfFile() {
  MutexLock lock(mutex_);
  return of_file_ ? FinalizeLocked() : Status();
}

// ---- The receiver ----

void Dump::SetReceiver(Receiver receiver) {
  auto shared = std::make_shared<const Receiver>(std::move(receiver));
  MutexLock lock(mutex_);
  receiver_ = std::move(shared);
}

void Dump::RemoveReceiver() {
  UniqueLock lock(mutex_);
  receiver_ = nullptr;
  if (t_in_receiver == 0) delivered_.wait(lock, [&] { return delivering_ == 0; });
}

// ---- Tensors of failed operators ----

std::string Dump::exception_folder(int device) {
  std::string base;
  bool of_failures = false;
  {
    MutexLock lock(mutex_);
    of_failures = scene_locked() != Scene::kNone;
    if (!configured_folder_.empty() && !of_failures) return configured_folder_;
    base = environment_scene_ != Scene::kNone ? environment_folder_ : configured_folder_;
  }
  for (const EnvVar variable : {EnvVar::kCollectPath, EnvVar::kWorkPath}) {
    if (base.empty()) base = Env(variable);
  }
  if (base.empty()) base = ".";
  const std::string folder = base + "/extra-info/data-dump";
  return of_failures ? fmt::format("{}/{}", folder, device) : folder;
}

namespace {

// The argument block, and the memory that its words point to.
std::vector<Dump::Tensor> TensorsOf(const TaskFailure& failure, uint64_t most_behind_pointer) {
  constexpr int kFormatNd = 2, kUint8 = 4;
  enum { kInput = 0, kWorkspace = 2 };
  std::vector<Dump::Tensor> tensors;
  if (failure.args == nullptr || failure.args_bytes == 0) return tensors;
  std::vector<char> block(failure.args_bytes);
  if (!device::CopyUntrusted(block.data(), failure.args, block.size())) return tensors;
  tensors.push_back({kWorkspace, kFormatNd, kUint8, block.size(), failure.args, true, 0, {block.size()}, {}});
  for (size_t at = 0; at + sizeof(void*) <= block.size(); at += sizeof(void*)) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, block.data() + at, sizeof pointer);
    const auto range = device::MemoryRegistry::Get().Find(pointer);
    if (!range) continue;
    const uint64_t bytes = std::min(most_behind_pointer, range->end() - reinterpret_cast<uintptr_t>(pointer));
    tensors.push_back(
        {kInput, kFormatNd, kUint8, bytes, pointer, range->is_host(), static_cast<uint32_t>(at), {bytes}, {}});
  }
  return tensors;
}

// What scenes other than the brief one tell.
std::string DescribeFailure(const TaskFailure& failure, const KernelFunction* kernel, bool in_detail) {
  std::string more =
      fmt::format(R"(,"device":{},"stream":{},"task":{},"error_code":{},"submitter_thread":{})", failure.device_id,
                  failure.stream_id, failure.task_id, failure.error_code, failure.thread_id);
  if (kernel != nullptr) {
    more += fmt::format(R"(,"kernel":"{}","kernel_binary":"{}","args_bytes":{})", JsonEscape(kernel->name),
                        JsonEscape(kernel->binary->source()), failure.args_bytes);
  }
  if (!in_detail) return more;
  return more + R"(,"cores":"the device is the CPU: its cores have no memory and no registers of their own to save")";
}

// Where code and memory of the process lie, so that addresses can be told.
std::string MapsOfProcess() {
  std::ifstream file("/proc/self/maps");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

void Dump::SaveFailure(const TaskFailure& failure) noexcept try {
  // Where a tensor ends is not known, only where its block does.
  constexpr uint64_t kMostBehindPointer = 16u << 20;
  Scene scene;
  {
    MutexLock lock(mutex_);
    scene = scene_locked();
  }
  const KernelFunction* function = nullptr;
  if (auto found = FindObject(KernelFunctions(), failure.function, "kernel"); found.ok()) function = *found;
  const std::string kernel = function != nullptr ? function->name : "";
  timeval now{};
  gettimeofday(&now, nullptr);
  const std::string plain = InFileName(kernel);
  const std::string name =
      fmt::format("{}.{}.{}.{}.{}{:06}", plain, plain, failure.task_id, failure.stream_id, now.tv_sec, now.tv_usec);
  const std::string tag =
      fmt::format("task {} of stream {} on device {} failed with {}{}", failure.task_id, failure.stream_id,
                  failure.device_id, failure.error_code, kernel.empty() ? "" : fmt::format(" in kernel {}", kernel));
  const bool in_detail = scene == Scene::kDetail;
  Status saved =
      SaveTensors(failure.device_id, name, tag, TensorsOf(failure, in_detail ? kMostTensorBytes : kMostBehindPointer),
                  scene == Scene::kBrief ? "" : DescribeFailure(failure, function, in_detail), scene == Scene::kBrief);
  if (saved.ok() && in_detail) {
    saved = WriteWhole(fmt::format("{}/{}.maps", exception_folder(failure.device_id), name),
                       [](const auto& take) { return take(MapsOfProcess()); });
  }
  if (!saved.ok()) REPRISE_LOG(kError, "RUNTIME", "dump: {}: {}", tag, saved.detail().what);
} catch (const std::exception&) {  // the failure itself is reported all the same
}

// `fill` is handed a function that takes pieces and returns false when no more shall come.
Status Dump::WriteWhole(const std::string& path,
                        const std::function<bool(const std::function<bool(std::string_view)>&)>& fill) {
  bool by_receiver;
  {
    MutexLock lock(mutex_);
    by_receiver = receiver_ != nullptr;
  }
  if (!by_receiver) {
    std::FILE* file = FaultPoint("dump.file") ? nullptr : std::fopen(path.c_str(), "we");
    bool written = file != nullptr;
    int error = errno;
    if (file != nullptr) {
      written = fill([&](std::string_view bytes) {
        const bool taken = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
        if (!taken) error = errno;
        return taken;
      });
      if (std::fclose(file) != 0 && written) {
        written = false;
        error = errno;
      }
    }
    return written ? Status() : NotWritten(fmt::format("{} cannot be written: {}", path, std::strerror(error)));
  }
  uint64_t offset = 0;
  const auto send = [&](std::string_view bytes, bool last) {
    UniqueLock lock(mutex_);
    if (receiver_ == nullptr) return false;  // taken away meanwhile
    const int result = Deliver(path, offset, bytes, last, lock);
    offset += bytes.size();
    return result == 0;
  };
  if (fill([&](std::string_view bytes) { return send(bytes, false); }) && send({}, true)) return {};
  return NotWritten(fmt::format("the callback did not take all of {}", path));
}

Status Dump::SaveTensors(int device, const std::string& name, const std::string& tag, std::span<const Tensor> tensors,
                         const std::string& more, bool is_brief) {
  const std::string folder = exception_folder(device);
  REPRISE_RETURN_IF_ERROR(MakeFolder(folder));
  const std::string path = fmt::format("{}/{}", folder, name);
  std::string text = fmt::format("{{\"tag\":\"{}\",\"process\":{},\"thread\":{}{},\"tensors\":[", JsonEscape(tag),
                                 getpid(), ThreadId(), more);
  const std::unique_ptr<char[]> piece(new char[kPiece]);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const uint64_t wanted = std::min(tensor.bytes, kMostTensorBytes);
    uint64_t saved = 0;
    const auto* data = static_cast<const char*>(tensor.address);
    char probe;
    const std::string file = fmt::format("{}.{}.bin", name, i);
    const bool readable = wanted != 0 && data != nullptr && device::CopyUntrusted(&probe, data, 1);
    if (readable) {
      REPRISE_RETURN_IF_ERROR(WriteWhole(fmt::format("{}/{}", folder, file), [&](const auto& take) {
        size_t step = kPiece;
        while (saved < wanted) {
          // Up to the end of a page, so that everything in front of a hole is saved.
          const uint64_t to_edge = step - (reinterpret_cast<uintptr_t>(data) + saved) % step;
          const uint64_t bytes = std::min(wanted - saved, to_edge);
          if (!device::CopyUntrusted(piece.get(), data + saved, bytes)) {
            if (step == kPage) return true;
            step = kPage;
            continue;
          }
          if (!take({piece.get(), bytes})) return false;
          saved += bytes;
        }
        return true;
      }));
    }
    fmt::format_to(std::back_inserter(text),
                   R"({}{{"type":{},"bytes":{},"address":"{:#x}","placement":"{}","args_offset":{},"saved_bytes":{})",
                   i != 0 ? ",\n" : "\n", tensor.type, tensor.bytes, reinterpret_cast<uintptr_t>(tensor.address),
                   tensor.on_host ? "host" : "device", tensor.args_offset, saved);
    if (!is_brief) {
      fmt::format_to(std::back_inserter(text), R"(,"format":{},"data_type":{},"shape":{},"origin_shape":{})",
                     tensor.format, tensor.data_type, Numbers(tensor.shape), Numbers(tensor.origin_shape));
    }
    text += readable ? fmt::format(R"(,"file":"{}"}})", JsonEscape(file)) : std::string("}");
  }
  text += "\n]}\n";
  return WriteWhole(path, [&](const auto& take) { return take(text); });
}

}  // namespace reprise::runtime
