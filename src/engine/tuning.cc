// SPDX-License-Identifier: Apache-2.0
#include "engine/tuning.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/env.h"
#include "base/mutex.h"
#include "base/no_destroy.h"
#include "engine/banks.h"
#include "engine/engine.h"
#include "engine/numbers.h"
#include "engine/tuning_run.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

using compiler::TuningBank;
using GraphPtr = std::shared_ptr<const compiler::Graph>;

// What was said of a tuning so far.
struct Tuning {
  std::optional<uint64_t> session;
  GraphPtr graph;
  std::vector<HostTensor> inputs;
  std::vector<GraphPtr> depend_graphs;
  std::vector<std::vector<HostTensor>> depend_inputs;
};

struct Tunings {
  Mutex mutex;
  bool has_begun REPRISE_GUARDED_BY(mutex) = false;
  std::string work_path REPRISE_GUARDED_BY(mutex);
  bool tunes_fusions REPRISE_GUARDED_BY(mutex) = false;
  // Replaced as a whole when something is set, so that a run keeps what it began with.
  std::map<uint64_t, std::shared_ptr<const Tuning>> by_id REPRISE_GUARDED_BY(mutex);
  uint64_t next_id REPRISE_GUARDED_BY(mutex) = 1;
  std::function<double(const std::string&, const std::string&)> clock REPRISE_GUARDED_BY(mutex);

  Mutex run_mutex;  ///< while a tuning runs; never waited for
};

Tunings& All() {
  static NoDestroy<Tunings> tunings;
  return tunings.value;
}

Status NotBegun(const char* api) {
  return Fail(kFailed, kWrongOrder, fmt::format("{} was called before AoeInitialize", api))
      .Culprit(fmt::format("the call of {}", api))
      .Hint("call AoeInitialize first");
}

Status NoSuchTuning(uint64_t id) {
  return Fail(kParamInvalid, kBadValue, fmt::format("there is no tuning session {}", id))
      .Culprit(fmt::format("tuning session {}", id))
      .Hint("pass the number that AoeCreateSession gave, before AoeDestroySession");
}

StatusOr<std::shared_ptr<const Tuning>> Find(uint64_t id) {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  const auto found = all.by_id.find(id);
  if (found == all.by_id.end()) return NoSuchTuning(id);
  return found->second;
}

template <class Change>
Status Set(uint64_t id, Change change) {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  const auto found = all.by_id.find(id);
  if (found == all.by_id.end()) return NoSuchTuning(id);
  auto next = std::make_shared<Tuning>(*found->second);
  change(*next);
  found->second = std::move(next);
  return {};
}

// A path of an option, checked; `is_file`: else a folder.
Status CheckPath(const char* key, const std::string& path, bool is_file) {
  std::error_code error;
  if (is_file ? std::filesystem::is_regular_file(path, error) : std::filesystem::is_directory(path, error)) return {};
  return Fail(kParamInvalid, kBadValue, fmt::format("option {} is no {} that exists", key, is_file ? "file" : "folder"))
      .Culprit(fmt::format("option {}: \"{}\"", key, path))
      .Hint(is_file ? "name a file that exists, or leave the option out" : "make the folder first");
}

Status CheckComplete(uint64_t id, const Tuning& tuning) {
  const char* missing = nullptr;
  if (!tuning.session) missing = "AoeSetGeSession";
  if (tuning.session && tuning.graph == nullptr) missing = "AoeSetTuningGraph";
  if (missing != nullptr) {
    return Fail(kFailed, kWrongOrder, fmt::format("AoeTuningGraph was called before {}", missing))
        .Culprit(fmt::format("tuning session {}", id))
        .Hint(fmt::format("call {} first", missing));
  }
  if (tuning.depend_graphs.size() == tuning.depend_inputs.size() || tuning.depend_inputs.empty()) return {};
  return Fail(kParamInvalid, kBadInput,
              fmt::format("there are {} graphs to run first, and inputs for {}", tuning.depend_graphs.size(),
                          tuning.depend_inputs.size()))
      .Culprit(fmt::format("tuning session {}", id))
      .Hint("pass as many lists to AoeSetDependGraphsInputs as graphs to AoeSetDependGraphs");
}

std::vector<InputTensor> InputsOf(const std::vector<HostTensor>& tensors) {
  std::vector<InputTensor> inputs;
  for (const HostTensor& tensor : tensors) {
    // Inputs are only read.
    inputs.push_back({const_cast<char*>(tensor.bytes.data()), tensor.bytes.size(), {tensor.dtype, tensor.shape}});
  }
  return inputs;
}

// Each of them once, as graphs of the session with numbers that programs hardly use.
Status RunDependGraphs(Session& session, const Tuning& tuning) {
  constexpr uint32_t kLastNumber = ~uint32_t{0};
  for (uint32_t i = 0; i < tuning.depend_graphs.size(); ++i) {
    const uint32_t number = kLastNumber - i;
    REPRISE_RETURN_IF_ERROR(
        session.AddGraph(number, std::make_shared<compiler::Graph>(*tuning.depend_graphs[i]), nullptr, {}));
    std::vector<HostTensor> ignored;
    const std::vector<HostTensor> none;
    Status status =
        session.RunAndWait(number, InputsOf(i < tuning.depend_inputs.size() ? tuning.depend_inputs[i] : none), ignored);
    const Status removed = session.RemoveGraph(number);
    if (!status.ok()) return status;
    if (!removed.ok()) return removed.Clone();
  }
  return {};
}

// The bank that compilations of the session find. Where nobody names one, and that of the home folder cannot be had:
// that under work_path.
StatusOr<std::shared_ptr<TuningBank>> BankFor(const Session& session, const std::string& work_path) {
  const std::vector<std::string> folders = BankFolders(session.options());
  const bool is_named = !session.options().Get("ge.op_bank_path").empty() || !Env(EnvVar::kTuneBankPath).empty();
  if (!folders.empty()) {
    auto bank = OpenBank(folders.front());
    if (bank.ok()) return bank;
    if (is_named) return As(kPathInvalid, kBadValue, std::move(bank).status());
  }
  Warn(fmt::format("the bank is in {} alone: name it in TUNE_BANK_PATH for compilations to find it", work_path));
  return OpenBank(work_path);
}

Status Interrupted(uint64_t id, const compiler::TuneReport& report, const std::string& path) {
  return Fail(kFailed, kInner, fmt::format("tuning was interrupted by SIGINT, with {} choices measured", report.tried))
      .Culprit(fmt::format("tuning session {}", id))
      .Hint(fmt::format("tune again to go on: what was measured is in {}", path));
}

}  // namespace

Status BeginTuning(const OptionMap& options) {
  std::string work_path = ".";
  bool tunes_fusions = false;
  for (const auto& [key, value] : options) {
    if (key == "work_path") {
      REPRISE_RETURN_IF_ERROR(CheckPath("work_path", value, false));
      work_path = value;
    } else if (key == "job_type") {
      if (value != "1" && value != "2") {
        return Fail(kParamInvalid, kBadValue, "option job_type is neither 1 nor 2")
            .Culprit(fmt::format("option job_type: \"{}\"", value))
            .Hint("pass 1 to tune fusions, 2 to tune operators");
      }
      tunes_fusions = value == "1";
    } else {
      Warn(fmt::format("AoeInitialize knows no option {}, which changes nothing", key));
    }
  }
  Tunings& all = All();
  MutexLock lock(all.mutex);
  if (all.has_begun) {
    Warn("AoeInitialize was called before, whose options stay");
    return {};
  }
  all.has_begun = true;
  all.work_path = std::move(work_path);
  all.tunes_fusions = tunes_fusions;
  return {};
}

Status EndTuning() {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  all.has_begun = false;
  all.by_id.clear();
  return {};
}

StatusOr<uint64_t> OpenTuning() {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  if (!all.has_begun) return NotBegun("AoeCreateSession");
  const uint64_t id = all.next_id++;
  all.by_id[id] = std::make_shared<const Tuning>();
  return id;
}

Status CloseTuning(uint64_t id) {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  return all.by_id.erase(id) != 0 ? Status() : NoSuchTuning(id);
}

Status SetTuningSession(uint64_t id, uint64_t session) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<Session> found, FindSession(session, "AoeSetGeSession"));
  return Set(id, [&](Tuning& tuning) { tuning.session = found->id(); });
}
Status SetTuningGraph(uint64_t id, GraphPtr graph) {
  return Set(id, [&](Tuning& tuning) { tuning.graph = std::move(graph); });
}
Status SetTuningInputs(uint64_t id, std::vector<HostTensor> inputs) {
  return Set(id, [&](Tuning& tuning) { tuning.inputs = std::move(inputs); });
}
Status SetDependGraphs(uint64_t id, std::vector<GraphPtr> graphs) {
  return Set(id, [&](Tuning& tuning) { tuning.depend_graphs = std::move(graphs); });
}
Status SetDependInputs(uint64_t id, std::vector<std::vector<HostTensor>> inputs) {
  return Set(id, [&](Tuning& tuning) { tuning.depend_inputs = std::move(inputs); });
}

StatusOr<compiler::TuneReport> RunTuning(uint64_t id, const OptionMap& options) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<const Tuning> tuning, Find(id));
  for (const auto& [key, value] : options) {
    if (key == "ge.aoe_config_file" && !value.empty()) REPRISE_RETURN_IF_ERROR(CheckPath(key.c_str(), value, true));
    Warn(fmt::format("AoeTuningGraph: option {} changes nothing", key));
  }
  REPRISE_RETURN_IF_ERROR(CheckComplete(id, *tuning));
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, FindSession(*tuning->session, "AoeTuningGraph"));
  Tunings& all = All();
  if (!all.run_mutex.try_lock()) {
    return Fail(kGraphAlreadyRunning, kWrongOrder, "another tuning runs in this process, and measures its time")
        .Culprit(fmt::format("tuning session {}", id))
        .Hint("call again when the other call has returned");
  }
  const UniqueLock run(all.run_mutex, std::adopt_lock);
  compiler::TuneOptions trials;
  std::string work_path;
  {
    MutexLock lock(all.mutex);
    work_path = all.work_path;
    trials.tunes_fusions = all.tunes_fusions;
    trials.tunes_splits = !all.tunes_fusions;
    trials.measure = all.clock;
  }
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<TuningBank> bank, BankFor(*session, work_path));
  if (const std::string copy = TuningBank::PathIn(work_path); copy != bank->path()) {
    trials.on_entry = [&](const std::string& key, const TuningBank::Entry& entry) -> Status {
      REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<TuningBank> own, OpenBank(work_path));
      return own->Add(key, entry);
    };
  }
  REPRISE_RETURN_IF_ERROR(RunDependGraphs(*session, *tuning));
  const HeldInterrupt interrupt;
  ProgressLine line;
  trials.progress = [&](size_t done, size_t total, const std::string& what) {
    line.Show(done, total, what);
    return !HeldInterrupt::came();
  };
  REPRISE_ASSIGN_OR_RETURN(const compiler::TuneReport report,
                           session->Tune(*tuning->graph, InputsOf(tuning->inputs), *bank, trials));
  if (!report.is_complete) return Interrupted(id, report, bank->path());
  return report;
}

void SetTuningClock(std::function<double(const std::string& key, const std::string& choice)> clock) {
  Tunings& all = All();
  MutexLock lock(all.mutex);
  all.clock = std::move(clock);
}

}  // namespace reprise::engine
