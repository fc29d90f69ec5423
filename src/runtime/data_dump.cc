// SPDX-License-Identifier: Apache-2.0
#include "runtime/data_dump.h"

#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "base/folder.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "ir/graph.h"
#include "ir/task_info.h"
#include "kernels/dtype.h"
#include "runtime/device.h"
#include "runtime/tasks.h"

namespace reprise::runtime {
namespace {

using ir::TaskInfo;
using ir::TaskKind;
using ir::TensorInfo;

constexpr char kTensorsTask[] = "DumpOpTensors";
constexpr size_t kMostGraphRuns = 1 << 16;  // that are known; earlier ones have ended
constexpr size_t kMostOpenCalls = 1 << 12;
constexpr int32_t kBytes = static_cast<int32_t>(kernels::DType::kUInt8);

bool IsOperator(TaskKind kind) {
  return kind == TaskKind::kKernel || kind == TaskKind::kAicpuKernel || kind == TaskKind::kClosure ||
         kind == TaskKind::kRandom;
}

uint64_t MicrosecondsNow() {
  timeval now{};
  gettimeofday(&now, nullptr);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_usec);
}

std::string FolderOfTime() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &parts)};
}

std::string TypeText(const TensorInfo& tensor) {
  const auto type = static_cast<kernels::DType>(tensor.dtype);
  return kernels::IsKnown(type) ? std::string(kernels::Name(type)) : fmt::format("aclDataType {}", tensor.dtype);
}

bool IsNamed(const std::vector<std::string>& names, const std::string& type, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& wanted) { return wanted == type || wanted == name; });
}

// A dim that repeats the same memory is shown once.
TensorInfo WithoutRepeats(TensorInfo tensor) {
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.strides[d] == 0 && tensor.sizes[d] > 1) tensor.sizes[d] = 1;
  }
  return tensor;
}

struct Column {
  const char* title;
  const char* wanted_as;  // in dump_stats; null: always there
};
constexpr Column kColumns[] = {{"Input/Output", nullptr},
                               {"Index", nullptr},
                               {"Data Size", nullptr},
                               {"Data Type", nullptr},
                               {"Format", nullptr},
                               {"Shape", nullptr},
                               {"Max Value", "Max"},
                               {"Min Value", "Min"},
                               {"Avg Value", "Avg"},
                               {"L2norm Value", "L2norm"},
                               {"Count", nullptr},
                               {"Nan Count", "Nan"},
                               {"Negative Inf Count", "Negative Inf"},
                               {"Positive Inf Count", "Positive Inf"}};

std::string HexOfArgs(const TaskInfo& info) {
  std::string bytes(info.args_bytes, '\0');
  if (info.args_address == nullptr || !device::CopyFromUntrusted(bytes.data(), info.args_address, bytes.size()))
    return {};
  const auto* begin = reinterpret_cast<const unsigned char*>(bytes.data());
  return fmt::format("{:02x}", fmt::join(begin, begin + bytes.size(), ""));
}

}  // namespace

std::string InFileName(std::string_view name) {
  std::string out(name.substr(0, 100));
  for (char& c : out) {
    if (c == '.' || c == '/' || c == '\\' || static_cast<unsigned char>(c) <= ' ' || c == '\x7F') c = '_';
  }
  return out.empty() ? "task" : out;
}

// What is dumped from one Start to the next Stop.
class DataDump::Session {
 public:
  Session(DataDumpOptions options, WriteFile write)
      : options_(std::move(options)),
        write_(std::move(write)),
        root_(fmt::format("{}/{}", options_.folder, FolderOfTime())) {}

  const DataDumpOptions& options() const { return options_; }

  struct GraphRun {
    std::string folder;  // below that of the device
    std::vector<std::string> layers;
    bool all_layers = false;
    std::string model;
    uint32_t model_id = 0;
    uint64_t index = 0;
  };

  uint32_t BeginGraph(uint32_t model_id, const std::string& name) {
    MutexLock lock(mutex_);
    const uint64_t index = executions_[model_id]++;
    const std::string shown = name.empty() ? "graph" : name;
    models_.insert(shown);
    GraphRun run;
    for (const DataDumpOptions::Layers& wanted : options_.list) {
      if (!wanted.model.empty() && wanted.model != shown) continue;
      matched_.insert(wanted.model);
      run.all_layers |= wanted.layers.empty();
      run.layers.insert(run.layers.end(), wanted.layers.begin(), wanted.layers.end());
    }
    if (options_.list.empty()) run.all_layers = true;
    const auto& steps = options_.steps;
    const bool is_step = steps.empty() || std::any_of(steps.begin(), steps.end(), [&](const auto& range) {
                           return range.first <= index && index <= range.second;
                         });
    if (!options_.graphs || !is_step || (!run.all_layers && run.layers.empty())) return 0;
    run.folder = fmt::format("/{}/{}/{}", InFileName(shown), model_id, index);
    run.model = shown;
    run.model_id = model_id;
    run.index = index;
    const uint32_t number = next_run_++;
    runs_.emplace(number, std::make_shared<const GraphRun>(std::move(run)));
    if (runs_.size() > kMostGraphRuns) runs_.erase(runs_.begin());
    return number;
  }
  std::shared_ptr<const GraphRun> FindRun(uint32_t number) {
    MutexLock lock(mutex_);
    const auto found = runs_.find(number);
    return found != runs_.end() ? found->second : nullptr;
  }

  // Layers without a model hold for operators outside of graphs as well.
  bool WantsSingle(const std::string& type, const std::string& name) const {
    if (!options_.single) return false;
    bool has_layers = false;
    for (const DataDumpOptions::Layers& wanted : options_.list) {
      if (!wanted.model.empty() || wanted.layers.empty()) continue;
      has_layers = true;
      if (IsNamed(wanted.layers, type, name)) return true;
    }
    return !has_layers;
  }

  std::string FolderOf(int32_t device, const GraphRun* run) const {
    return fmt::format("{}/{}{}", root_, device, run != nullptr ? run->folder : std::string());
  }

  void Write(const std::string& folder, const std::string& path, const std::function<bool(const TakeBytes&)>& fill) {
    Status written = MakeFolder(folder);
    if (written.ok()) written = write_(path, fill);
    if (written.ok()) return;
    REPRISE_LOG(kError, "RUNTIME", "dump: {}", written.detail().what);
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(written);
  }

  // The first kernel of a call leaves what the last one takes.
  using CallKey = std::tuple<const void*, uint32_t, int32_t, int32_t>;
  void Keep(const CallKey& key, std::shared_ptr<Record> record) {
    MutexLock lock(mutex_);
    if (calls_.size() >= kMostOpenCalls) calls_.erase(calls_.begin());  // its last kernel was dropped
    calls_[key] = std::move(record);
  }
  std::shared_ptr<Record> Take(const CallKey& key) {
    MutexLock lock(mutex_);
    const auto found = calls_.find(key);
    if (found == calls_.end()) return nullptr;
    std::shared_ptr<Record> record = std::move(found->second);
    calls_.erase(found);
    return record;
  }

  struct Watched {
    std::string type;
    std::string name;
    std::vector<TensorInfo> tensors;
  };
  void Remember(Watched watched) {
    MutexLock lock(mutex_);
    watched_[watched.name] = std::move(watched);
  }
  std::vector<Watched> Remembered() {
    MutexLock lock(mutex_);
    std::vector<Watched> all;
    for (const auto& entry : watched_) all.push_back(entry.second);
    return all;
  }

  Status End() {
    MutexLock lock(mutex_);
    for (const DataDumpOptions::Layers& wanted : options_.list) {
      if (wanted.model.empty() || matched_.contains(wanted.model)) continue;
      REPRISE_LOG(kWarning, "RUNTIME", "dump: no model \"{}\" of dump_list has run; those that have: {}", wanted.model,
                  models_.empty() ? "none" : fmt::format("{}", fmt::join(models_, ", ")));
    }
    if (failure_.ok()) return {};
    return Error(kWriteFile, failure_.detail().what).Culprit(failure_.detail().culprit).Hint(failure_.detail().hint);
  }

 private:
  const DataDumpOptions options_;
  const WriteFile write_;
  const std::string root_;

  Mutex mutex_;
  Status failure_ REPRISE_GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> executions_ REPRISE_GUARDED_BY(mutex_);  // by model
  std::map<uint32_t, std::shared_ptr<const GraphRun>> runs_ REPRISE_GUARDED_BY(mutex_);
  uint32_t next_run_ REPRISE_GUARDED_BY(mutex_) = 1;
  std::set<std::string> models_ REPRISE_GUARDED_BY(mutex_);   // that have run
  std::set<std::string> matched_ REPRISE_GUARDED_BY(mutex_);  // names of dump_list among them
  std::map<CallKey, std::shared_ptr<Record>> calls_ REPRISE_GUARDED_BY(mutex_);
  std::map<std::string, Watched> watched_ REPRISE_GUARDED_BY(mutex_);
};

// The files of one operator or kernel.
class DataDump::Record {
 public:
  struct Place {
    int32_t device;
    int32_t stream;
    uint32_t task;
    std::shared_ptr<const Session::GraphRun> run;  // null: of no graph
  };

  Record(std::shared_ptr<Session> session, const Place& place, std::string type, std::string name,
         std::vector<TensorInfo> tensors, std::string rest)
      : session_(std::move(session)),
        place_(place),
        type_(std::move(type)),
        name_(std::move(name)),
        tensors_(std::move(tensors)),
        rest_(std::move(rest)),
        time_(MicrosecondsNow()),
        folder_(session_->FolderOf(place.device, place.run.get())),
        path_(fmt::format("{}/{}.{}.{}.{}.{}", folder_, InFileName(type_), InFileName(name_), place.task, place.stream,
                          time_)) {}

  void AddNote(const std::string& note) { note_ += note_.empty() ? note : "; " + note; }

  void WriteInputs() {
    if (!session_->options().inputs) return;
    int index = 0;
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.is_read) WriteTensor(tensor, "input", index++);
    }
  }

  void WriteOutputs() {
    int index = 0;
    for (TensorInfo& tensor : tensors_) {
      if (!tensor.is_write) continue;
      if (tensor.find) tensor.find(tensor);
      if (session_->options().outputs) WriteTensor(tensor, "output", index);
      ++index;
    }
  }

  void WriteDescription(bool failed) {
    if (session_->options().statistics) {
      std::string text;
      for (const Column& column : kColumns) {
        if (IsWanted(column)) text += fmt::format("{}{}", text.empty() ? "" : ",", column.title);
      }
      text += "\n" + rows_;
      session_->Write(folder_, path_ + ".csv", [&](const TakeBytes& take) { return take(text); });
      return;
    }
    std::string text = fmt::format(
        R"({{"format":"reprise data dump 1","op_type":"{}","op_name":"{}","process":{},"device":{},"stream":{},)"
        R"("task":{},"time_us":{},"failed":{})",
        JsonEscape(type_), JsonEscape(name_), getpid(), place_.device, place_.stream, place_.task, time_, failed);
    if (place_.run != nullptr) {
      text += fmt::format(R"(,"model":"{}","model_id":{},"data_index":{})", JsonEscape(place_.run->model),
                          place_.run->model_id, place_.run->index);
    }
    text += rest_;
    if (!note_.empty()) text += fmt::format(R"(,"note":"{}")", JsonEscape(note_));
    text += fmt::format(",\"tensors\":[{}\n]}}\n", described_);
    session_->Write(folder_, path_, [&](const TakeBytes& take) { return take(text); });
  }

 private:
  bool IsWanted(const Column& column) const {
    const auto& wanted = session_->options().columns;
    return column.wanted_as == nullptr || wanted.empty() || wanted.contains(column.wanted_as);
  }

  bool IsLeftOut(const std::string& position) const {
    const auto covers = [&](const DataDumpOptions::Without& without, const std::string& name) {
      return without.name == name && (without.positions.empty() || without.positions.contains(position));
    };
    const DataDumpOptions& options = session_->options();
    return std::any_of(options.without_types.begin(), options.without_types.end(),
                       [&](const auto& without) { return covers(without, type_); }) ||
           std::any_of(options.without_names.begin(), options.without_names.end(),
                       [&](const auto& without) { return covers(without, name_); });
  }

  void WriteTensor(const TensorInfo& tensor, const char* kind, int index) {
    if (IsLeftOut(fmt::format("{}{}", kind, index))) return;
    if (session_->options().statistics) return AddRow(tensor, kind, index);
    const std::string ending = fmt::format(".{}.{}.npy", kind, index);
    int64_t read = 0;
    session_->Write(folder_, path_ + ending, [&](const TakeBytes& take) { return WriteNpy(tensor, take, &read); });
    const int64_t count = CountOf(tensor);
    described_ += fmt::format(
        R"({}{{"kind":"{}","index":{},"name":"{}","data_type":"{}","format":"ND","shape":[{}],"strides":[{}],)"
        R"("bytes":{},"address":"{:#x}","file":"{}")",
        described_.empty() ? "\n" : ",\n", kind, index, JsonEscape(tensor.name), TypeText(tensor),
        fmt::join(tensor.sizes, ","), fmt::join(tensor.strides, ","), BytesOf(tensor),
        reinterpret_cast<uintptr_t>(tensor.data), JsonEscape(path_.substr(path_.rfind('/') + 1) + ending));
    if (read != count) {
      described_ +=
          fmt::format(R"(,"note":"the memory behind the first {} of {} elements cannot be read: zeros")", read, count);
    }
    described_ += '}';
  }

  void AddRow(const TensorInfo& tensor, const char* kind, int index) {
    const TensorStatistics found = StatisticsOf(tensor);
    const std::string values[] = {kind == std::string_view("input") ? "Input" : "Output",
                                  fmt::format("{}", index),
                                  fmt::format("{}", BytesOf(tensor)),
                                  TypeText(tensor),
                                  "ND",
                                  fmt::format("{}", fmt::join(tensor.sizes, "x")),
                                  found.max,
                                  found.min,
                                  found.mean,
                                  found.l2norm,
                                  fmt::format("{}", found.count),
                                  fmt::format("{}", found.nans),
                                  fmt::format("{}", found.negative_infinities),
                                  fmt::format("{}", found.positive_infinities)};
    static_assert(std::size(values) == std::size(kColumns));
    std::string row;
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      if (IsWanted(kColumns[i])) row += (row.empty() ? "" : ",") + values[i];
    }
    rows_ += row + "\n";
  }

  const std::shared_ptr<Session> session_;
  const Place place_;
  const std::string type_;
  const std::string name_;
  std::vector<TensorInfo> tensors_;
  const std::string rest_;  // further members of the description, each behind a comma
  const uint64_t time_;
  const std::string folder_;
  const std::string path_;
  std::string note_;
  std::string described_;
  std::string rows_;
};

// Between Begin and End.
struct DataDump::Run {
  std::shared_ptr<Session> session;
  Record::Place place;
  std::string type;
  std::string name;
  std::shared_ptr<Record> record;  // of the operator, or of the kernel that is all of it
  std::shared_ptr<Record> kernel;  // of a kernel among several
  std::shared_ptr<const ir::OperatorInfo> call;
  uint32_t graph;
  bool is_last = true;
  // In watcher mode.
  Session::Watched watched;
  bool is_watched = false;
  bool is_layer = false;

  // In watcher mode; false: of no interest.
  bool Watch(TaskInfo& info);
  // The records, with the inputs as they are now; false: none.
  bool MakeRecords(TaskInfo& info);
};

DataDump& DataDump::Get() {
  static auto* const dump = new DataDump;
  return *dump;
}

Status DataDump::Start(DataDumpOptions options, WriteFile write) {
  REPRISE_RETURN_IF_ERROR(MakeFolder(options.folder));
  auto session = std::make_shared<Session>(std::move(options), std::move(write));
  {
    MutexLock lock(mutex_);
    session_ = std::move(session);
  }
  device::TaskWatch::Set(this);
  return {};
}

Status DataDump::Stop() {
  device::TaskWatch::Set(nullptr);
  std::shared_ptr<Session> ended;
  {
    MutexLock lock(mutex_);
    ended = std::exchange(session_, nullptr);
  }
  return ended != nullptr ? ended->End() : Status();
}

uint32_t DataDump::BeginGraph(uint32_t model_id, const std::string& name) noexcept try {
  const std::shared_ptr<Session> session = Now();
  return session != nullptr ? session->BeginGraph(model_id, name) : 0;
} catch (const std::exception&) {
  return 0;
}

namespace {

// What the kernels of the program read and write only they know.
std::string DescribeArgs(const TaskInfo& info) {
  if (info.args_address == nullptr) return {};
  std::string text = fmt::format(R"(,"blocks":{},"args_bytes":{},"args":"{}","pointers":[)", info.num_blocks,
                                 info.args_bytes, HexOfArgs(info));
  bool first = true;
  for (size_t i = 0; i < info.args.size(); ++i) {
    const auto range = device::MemoryRegistry::Get().Find(reinterpret_cast<const void*>(info.args[i]));
    if (!range) continue;
    text += fmt::format(R"({}{{"args_offset":{},"address":"{:#x}","bytes_behind":{}}})", first ? "" : ",", 8 * i,
                        info.args[i], range->end() - info.args[i]);
    first = false;
  }
  return text + "]";
}

// The tensors of a task that tells no call: as its kernel walks them, or bytes.
std::vector<TensorInfo> TensorsOfTask(TaskInfo& info, std::string* note) {
  if (!info.tensors.empty()) {
    std::vector<TensorInfo> tensors;
    for (TensorInfo& tensor : info.tensors) tensors.push_back(WithoutRepeats(std::move(tensor)));
    return tensors;
  }
  std::vector<TensorInfo> tensors;
  for (const ir::AccessRange& range : info.ranges) {
    TensorInfo& tensor = tensors.emplace_back();
    tensor.data = range.begin;
    tensor.dtype = kBytes;
    tensor.sizes = {static_cast<int64_t>(range.bytes)};
    tensor.strides = {1};
    tensor.is_write = range.is_write;
    tensor.is_read = !range.is_write;
  }
  *note = tensors.empty() ? "what this task reads and writes is known to its code alone: no tensors"
                          : "types and shapes are not known: bytes";
  return tensors;
}

}  // namespace

bool DataDump::Run::Watch(TaskInfo& info) {
  if (!is_last) return false;
  const DataDumpOptions& options = session->options();
  is_watched = IsNamed(options.watched, type, name);
  is_layer = std::any_of(options.list.begin(), options.list.end(),
                         [&](const DataDumpOptions::Layers& layers) { return IsNamed(layers.layers, type, name); });
  if (!is_watched && !is_layer) return false;
  std::string note;
  watched = {type, name, info.call != nullptr ? info.call->tensors : TensorsOfTask(info, &note)};
  return true;
}

bool DataDump::Run::MakeRecords(TaskInfo& info) {
  const DataDumpOptions& options = session->options();
  std::string note;
  const auto make = [&](const std::string& as, std::vector<TensorInfo> tensors, std::string rest) {
    auto made = std::make_shared<Record>(session, place, type, as, std::move(tensors), std::move(rest));
    if (!note.empty()) made->AddNote(note);
    made->WriteInputs();
    return made;
  };
  const std::string kernel_type = fmt::format(R"(,"kernel_type":"{}")", info.type_name);
  if (call == nullptr) {
    const bool is_own_kernel = info.function != nullptr;
    if (is_own_kernel && !options.kernels) return false;
    const std::string args = DescribeArgs(info);
    std::vector<TensorInfo> tensors = TensorsOfTask(info, &note);
    if (!info.tensors.empty()) note = "planned before the dump began: shapes are as the kernel walks them";
    record = make(name, std::move(tensors), kernel_type + args);
    return true;
  }
  const std::string blocks = fmt::format(R"(,"blocks":{})", info.num_blocks);
  if (info.call_begins && info.call_ends) {
    record = make(name, call->tensors, kernel_type + blocks);
    return true;
  }
  if (options.operators && info.call_begins) record = make(name, call->tensors, "");
  if (options.kernels) {
    std::vector<TensorInfo> tensors = TensorsOfTask(info, &note);
    kernel = make(name + "_kernel", std::move(tensors), kernel_type + blocks);
  }
  return true;
}

void* DataDump::Begin(const device::RunContext& context, const ir::TaskType& type, const void* payload,
                      uint32_t graph) noexcept try {
  if (!IsOperator(type.kind) || graph == 0 || type.describe == nullptr) return nullptr;
  std::shared_ptr<Session> session = Now();
  if (session == nullptr) return nullptr;
  TaskInfo info;
  info.wants_tensors = true;
  ir::Describe(type, payload, info);
  if (info.name == kTensorsTask) return nullptr;

  auto run = std::make_unique<Run>();
  run->session = session;
  run->place = {context.device_id, context.stream_id, context.task_id, nullptr};
  run->call = info.call;
  run->graph = graph;
  run->is_last = info.call == nullptr || info.call_ends;
  run->type = info.call != nullptr ? info.call->type : info.name.empty() ? info.type_name : info.name;
  // What a framework calls the operation is told apart from what it is.
  const bool has_own_name = info.call != nullptr && info.name != info.call->type && !info.name.empty();
  run->name = info.call == nullptr ? run->type : has_own_name ? info.name : info.call->name;
  const bool is_watcher = !session->options().watched.empty();
  bool is_wanted = is_watcher;
  if (graph != kNoGraph) {
    run->place.run = session->FindRun(graph);
    if (run->place.run == nullptr) return nullptr;
    is_wanted = is_wanted || run->place.run->all_layers || IsNamed(run->place.run->layers, run->type, run->name);
  } else if (!is_watcher) {
    is_wanted = session->WantsSingle(run->type, run->name);
  }
  if (!is_wanted || !(is_watcher ? run->Watch(info) : run->MakeRecords(info))) return nullptr;
  return run.release();
} catch (const std::exception&) {  // a task does not fail because its dump does
  return nullptr;
}

void DataDump::End(void* pointer, bool failed) noexcept try {
  const std::unique_ptr<Run> run(static_cast<Run*>(pointer));
  Session& session = *run->session;
  if (run->is_watched) session.Remember(run->watched);
  if (run->is_layer) {
    for (Session::Watched& watched : session.Remembered()) {
      Record record(run->session, run->place, watched.type, fmt::format("{}_To_{}", watched.name, run->watched.name),
                    std::move(watched.tensors), "");
      record.WriteOutputs();
      record.WriteDescription(failed);
    }
  }
  if (run->kernel != nullptr) {
    run->kernel->WriteOutputs();
    run->kernel->WriteDescription(failed);
  }
  const Session::CallKey key{run->call.get(), run->graph, run->place.device, run->place.stream};
  if (!run->is_last && !failed) {
    if (run->record != nullptr) session.Keep(key, std::move(run->record));
    return;
  }
  if (run->record == nullptr && run->call != nullptr && session.options().operators) run->record = session.Take(key);
  if (run->record == nullptr) return;
  run->record->WriteOutputs();
  run->record->WriteDescription(failed);
} catch (const std::exception&) {
}

void DataDump::Drop(void* run) noexcept { delete static_cast<Run*>(run); }

Status DataDump::SubmitTensors(Stream& stream, ir::OperatorInfo operation) {
  if (!on()) return {};
  return SubmitClosure(
      stream, kTensorsTask,
      [told = std::make_shared<const ir::OperatorInfo>(std::move(operation))](device::RunContext& context) -> Status {
        const std::shared_ptr<Session> session = Get().Now();
        if (session == nullptr) return {};
        const Record::Place place{context.device_id, context.stream_id, context.task_id, nullptr};
        Record record(session, place, told->type, told->name, told->tensors, "");
        record.WriteInputs();
        record.WriteOutputs();
        record.WriteDescription(false);
        return {};
      });
}

}  // namespace reprise::runtime
