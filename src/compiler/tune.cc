// SPDX-License-Identifier: Apache-2.0
#include "compiler/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <set>

#include "compiler/device_block.h"
#include "compiler/hash.h"
#include "compiler/operands.h"
#include "compiler/program.h"
#include "compiler/text.h"
#include "opdef/infer.h"
#include "runtime/stream.h"

namespace reprise::compiler {
namespace {

constexpr double kWorthwhile = 0.95;  // of the time without tuning
constexpr int kRepeats = 5;           // of which the least time counts
constexpr double kLeastUs = 500;      // of one measurement

std::string SplitText(int64_t grain) { return fmt::format("split {}", grain); }
std::optional<int64_t> GrainOf(const std::string& choice) {
  constexpr std::string_view kPrefix = "split ";
  int64_t grain = 0;
  if (!choice.starts_with(kPrefix)) return std::nullopt;
  const char* const end = choice.data() + choice.size();
  const auto [stop, error] = std::from_chars(choice.data() + kPrefix.size(), end, grain);
  return error == std::errc() && stop == end && grain >= 0 ? std::optional(grain) : std::nullopt;
}

std::string FusionKey(uint64_t graph, std::string_view pass) { return fmt::format("graph {:016x} {}", graph, pass); }

bool IsFusion(const Pass& pass) { return pass.group != PassGroup::kPlain && pass.level != Level::kO0; }

class Tuner {
 public:
  Tuner(const Graph& graph, const CompileOptions& options, runtime::Stream& stream, std::span<const RunTensor> inputs,
        TuningBank& bank, const TuneOptions& tune_options)
      : graph_(graph), options_(options), stream_(stream), inputs_(inputs), bank_(bank), tune_options_(tune_options) {
    options_.bank = nullptr;
  }

  StatusOr<TuneReport> Run() {
    REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<Executable> executable, Executable::Compile(graph_, options_));
    if (!executable->is_static()) return report_;
    if (inputs_.size() != executable->graph().inputs.size()) {
      return Error(kInvalidArgument, fmt::format("there are {} sample inputs, the graph has {}", inputs_.size(),
                                                 executable->graph().inputs.size()))
          .Culprit(fmt::format("graph {}", graph_.name))
          .Hint("pass one tensor for each Data node");
    }
    std::vector<const Pass*> fusions;
    for (const auto& [name, record] : executable->pass_records()) {
      if (!tune_options_.tunes_fusions) break;
      const Pass* const pass = FindPass(name);
      if (pass != nullptr && IsFusion(*pass) && record.changed != 0) fusions.push_back(pass);
    }
    REPRISE_ASSIGN_OR_RETURN(Trial whole, MakeTrial(executable->graph(), options_));
    std::vector<Candidate> splits;
    if (tune_options_.tunes_splits) splits = SplitsOf(executable->graph(), *whole.program);
    total_ = fusions.size() + splits.size();
    REPRISE_RETURN_IF_ERROR(TuneFusions(fusions, whole));
    REPRISE_RETURN_IF_ERROR(TuneSplits(executable->graph(), splits));
    return report_;
  }

 private:
  // A program with memory, as it runs alone.
  struct Trial {
    ProgramOwner program;
    std::vector<DeviceBlock> blocks;
    std::vector<void*> bases;
  };
  struct Candidate {
    std::string key;
    size_t task;
  };

  StatusOr<Trial> MakeTrial(const Graph& graph, const CompileOptions& options) {
    Trial trial;
    REPRISE_ASSIGN_OR_RETURN(Program* const program, Program::Build(graph, options));
    trial.program.reset(program);
    const auto add = [&](uint64_t bytes) -> Status {
      REPRISE_ASSIGN_OR_RETURN(DeviceBlock block,
                               DeviceBlock::Allocate(stream_.device(), std::max<uint64_t>(bytes, 64)));
      trial.bases.push_back(block.data());
      trial.blocks.push_back(std::move(block));
      return {};
    };
    REPRISE_RETURN_IF_ERROR(add(program->needs().constants));
    REPRISE_RETURN_IF_ERROR(add(program->needs().features));
    Program::WriteConstants(program->constants(), trial.bases[kConstantRegion]);
    for (uint32_t i = 0; i < program->inputs(); ++i) {
      REPRISE_RETURN_IF_ERROR(add(program->input_bytes(i)));
      const uint64_t bytes = std::min(program->input_bytes(i), inputs_[i].bytes);
      if (bytes != 0 && inputs_[i].data != nullptr) std::memcpy(trial.bases.back(), inputs_[i].data, bytes);
    }
    for (uint32_t i = 0; i < program->outputs(); ++i) REPRISE_RETURN_IF_ERROR(add(program->output_bytes(i)));
    return trial;
  }

  Status Submit(const Trial& trial) {
    Program::RunOwner run = trial.program->NewRun();
    run->bindings.bases = trial.bases;
    return trial.program->Submit(stream_, std::move(run));
  }

  // Whether to go on with the next set of candidates.
  bool Begin(const std::string& what) {
    if (tune_options_.progress && !tune_options_.progress(done_, total_, what)) report_.is_complete = false;
    ++done_;
    return report_.is_complete;
  }

  Status Keep(const std::string& key, const TuningBank::Entry& entry) {
    REPRISE_RETURN_IF_ERROR(bank_.Add(key, entry));
    return tune_options_.on_entry ? tune_options_.on_entry(key, entry) : Status();
  }

  // The least time of one call, in us.
  template <class Call>
  StatusOr<double> Measure(const std::string& key, const std::string& choice, Call submit) {
    if (tune_options_.measure) return tune_options_.measure(key, choice);
    double best = 0;
    int calls = 1;
    for (int i = 0; i < kRepeats;) {
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) REPRISE_RETURN_IF_ERROR(submit());
      REPRISE_RETURN_IF_ERROR(stream_.Synchronize(runtime::DeadlineAfterMs(-1)));
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (us < kLeastUs && calls < 4096) {
        calls *= 2;
        continue;
      }
      best = i == 0 ? us / calls : std::min(best, us / calls);
      ++i;
    }
    return best;
  }

  Status TuneFusions(const std::vector<const Pass*>& fusions, Trial& whole) {
    if (fusions.empty()) return {};
    const uint64_t hash = HashOf(ToText(graph_));
    const auto run = [this](Trial& trial) { return [this, &trial] { return Submit(trial); }; };
    for (const Pass* pass : fusions) {
      const std::string key = FusionKey(hash, pass->name);
      if (bank_.Find(key)) {
        ++report_.known;
        continue;
      }
      if (!Begin(key)) return {};
      CompileOptions without = options_;
      without.passes.switched[std::string(pass->name)] = false;
      REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<Executable> other, Executable::Compile(graph_, without));
      if (!other->is_static()) continue;
      REPRISE_ASSIGN_OR_RETURN(Trial apart, MakeTrial(other->graph(), without));
      REPRISE_ASSIGN_OR_RETURN(const double on, Measure(key, "on", run(whole)));
      REPRISE_ASSIGN_OR_RETURN(const double off, Measure(key, "off", run(apart)));
      ++report_.tried;
      const bool is_better_off = off < kWorthwhile * on;
      report_.improved += is_better_off ? 1 : 0;
      REPRISE_RETURN_IF_ERROR(Keep(key, {is_better_off ? "off" : "on", is_better_off ? off : on}));
    }
    return {};
  }

  static std::vector<Candidate> SplitsOf(const Graph& graph, const Program& program) {
    std::vector<Candidate> candidates;
    std::set<std::string> seen;
    NodeId last = kNoNode;
    size_t number = 0;
    for (size_t task = 0; task < program.launches().size(); ++task) {
      const NodeId node = program.node_of(task);
      number = node == last ? number + 1 : 0;
      last = node;
      if (node == kNoNode || program.launches()[task]->parts() <= 1) continue;
      std::string key = SplitKey(graph, node, number);
      if (seen.insert(key).second) candidates.push_back({std::move(key), task});
    }
    return candidates;
  }

  Status TuneSplits(const Graph& graph, const std::vector<Candidate>& candidates) {
    if (candidates.empty()) return {};
    // Each value keeps its memory, so that each task can run again alone.
    CompileOptions apart = options_;
    apart.reuses_memory = false;
    REPRISE_ASSIGN_OR_RETURN(Trial trial, MakeTrial(graph, apart));
    REPRISE_RETURN_IF_ERROR(Submit(trial));
    REPRISE_RETURN_IF_ERROR(stream_.Synchronize(runtime::DeadlineAfterMs(-1)));
    for (const Candidate& candidate : candidates) {
      if (bank_.Find(candidate.key)) {
        ++report_.known;
        continue;
      }
      if (!Begin(candidate.key)) return {};
      const ops::Launch& launch = *trial.program->launches()[candidate.task];
      void* const workspace = trial.program->workspace_of(candidate.task);
      std::string best_choice;
      double best = 0;
      double usual = 0;
      // Scratch is there for as many parts as usual: other splits have fewer.
      for (const int64_t grain : {launch.grain, int64_t{0}, 2 * launch.grain, 4 * launch.grain}) {
        LaunchOwner copy(new ops::Launch(launch));
        copy->grain = grain;
        copy->Seal();
        if (grain > launch.grain && copy->parts() == 1) continue;  // as 0
        const std::string choice = SplitText(grain);
        ops::Launch* one = copy.get();
        REPRISE_ASSIGN_OR_RETURN(const double us, Measure(candidate.key, choice, [&] {
                                   return ops::SubmitLaunches(stream_, {&one, 1}, workspace, nullptr);
                                 }));
        if (best_choice.empty()) usual = best = us, best_choice = choice;
        if (us < best && us < kWorthwhile * usual) best = us, best_choice = choice;
      }
      ++report_.tried;
      report_.improved += best_choice != SplitText(launch.grain) ? 1 : 0;
      REPRISE_RETURN_IF_ERROR(Keep(candidate.key, {best_choice, best}));
    }
    return {};
  }

  const Graph& graph_;
  CompileOptions options_;
  runtime::Stream& stream_;
  const std::span<const RunTensor> inputs_;
  TuningBank& bank_;
  const TuneOptions& tune_options_;
  TuneReport report_;
  size_t done_ = 0;
  size_t total_ = 0;
};

}  // namespace

StatusOr<TuneReport> Tune(const Graph& graph, const CompileOptions& options, runtime::Stream& stream,
                          std::span<const RunTensor> inputs, TuningBank& bank, const TuneOptions& tune_options) {
  return Tuner(graph, options, stream, inputs, bank, tune_options).Run();
}

std::string SplitKey(const Graph& graph, NodeId id, size_t number) {
  const Node& node = graph.at(id);
  std::string key = node.type;
  for (const Input& input : node.inputs) {
    if (!input.source.is_set()) {
      key += " -";
      continue;
    }
    const Tensor& tensor = graph.TensorOf(input.source);
    key += fmt::format(" {} {}", opdef::TypeName(tensor.dtype), tensor.shape.text());
  }
  for (const Output& output : node.outputs) {
    key += fmt::format(" > {} {}", opdef::TypeName(output.tensor.dtype), output.tensor.shape.text());
  }
  for (const auto& [name, value] : node.attributes) key += fmt::format(" {}={}", name, opdef::AttributeText(value));
  return number == 0 ? key : fmt::format("{} #{}", key, number);
}

void ApplySplit(ops::Launch& launch, const std::string& choice) {
  const std::optional<int64_t> grain = GrainOf(choice);
  // Never more parts than there is scratch for.
  if (!grain || (*grain != 0 && *grain < launch.grain) || launch.grain == 0) return;
  launch.grain = *grain;
  launch.Seal();
}

void ApplyFusions(const Graph& graph, const TuningBank& bank, PassOptions& passes) {
  const uint64_t hash = HashOf(ToText(graph));
  for (const Pass& pass : Passes()) {
    if (!IsFusion(pass) || passes.switched.contains(pass.name)) continue;
    const auto entry = bank.Find(FusionKey(hash, pass.name));
    if (entry && entry->choice == "off") passes.switched[std::string(pass.name)] = false;
  }
}

}  // namespace reprise::compiler
