// SPDX-License-Identifier: Apache-2.0
#include "engine/compiled_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "compiler/dump/dump.h"
#include "compiler/passes/switches.h"
#include "compiler/storage.h"
#include "engine/banks.h"
#include "engine/collectives.h"
#include "engine/compile_cache.h"
#include "engine/fusion_results.h"
#include "engine/numbers.h"
#include "engine/option_values.h"
#include "engine/result_types.h"
#include "engine/warnings.h"
#include "engine/weight_files.h"

namespace reprise::engine {
namespace {

// More sets of shapes than programs have that do not say so; the oldest one goes.
constexpr size_t kMostSpecialised = 16;
// What a graph may keep of weights among its inputs where options do not say.
constexpr uint64_t kPreparedBytes = uint64_t{1} << 30;

std::atomic<CompileFunction> g_compile{nullptr};
std::atomic<uint64_t> g_compilations{0};

const compiler::Tensor& InputOf(const compiler::Graph& graph, size_t i) {
  return graph.at(graph.inputs[i]).outputs[0].tensor;
}

// Whether `open` can be `sizes`.
bool Fits(const opdef::Shape& open, const std::vector<int64_t>& sizes) {
  if (!open.has_rank()) return true;
  if (open.rank() != sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (open[d].is_number() && sizes[d] >= 0 && open[d].number() != sizes[d]) return false;
  }
  return true;
}

Status DoesNotFit(const compiler::Graph& graph, size_t i, const std::vector<int64_t>& sizes, std::string_view whose) {
  return Fail(kParamInvalid, kBadInput,
              fmt::format("{} input {} has the shape [{}], the graph has {}", whose, i, fmt::join(sizes, ", "),
                          InputOf(graph, i).shape.text()))
      .Culprit(fmt::format("input {} of graph {}: node {}", i, graph.name, graph.at(graph.inputs[i]).name))
      .Hint("give a shape that agrees with the graph's");
}

Status CheckCount(const compiler::Graph& graph, size_t given) {
  if (given == graph.inputs.size()) return {};
  return Fail(kParamInvalid, kBadInput,
              fmt::format("{} inputs are given, the graph has {}", given, graph.inputs.size()))
      .Culprit(fmt::format("graph {}", graph.name))
      .Hint("describe every input of the graph");
}

// Which passes run.
StatusOr<compiler::PassOptions> PassOptionsOf(const OptionSet& options) {
  compiler::PassOptions passes;
  passes.level = options.Is("ge.oo.level", "O1") ? compiler::Level::kO1 : compiler::Level::kO3;
  passes.folds_constants = options.Is("ge.oo.constantFolding", "true");
  passes.drops_dead_code = options.Is("ge.oo.deadCodeElimination", "true");
  passes.prefers_memory = options.Is("ge.exec.memoryOptimizationPolicy", "MemoryPriority");
  passes.is_inference = options.Is("ge.graphRunMode", "0");
  passes.order = static_cast<compiler::OrderMode>(options.Number("ge.topoSortingMode"));
  if (const std::string_view file = options.Get("ge.fusionSwitchFile"); !file.empty()) {
    Status status = compiler::ReadSwitchFile(std::string(file), passes);
    if (!status.ok()) return As(kParamInvalid, kBadValue, std::move(status));
  }
  auto switches = compiler::ParseSwitches(options.Get("ge.optimizationSwitch"));
  if (!switches.ok()) return As(kParamInvalid, kBadValue, std::move(switches).status());
  passes.switched = std::move(switches).value();
  std::vector<std::string> unknown;
  passes.disabled = compiler::ParseDisabled(options.Get("ge.disableOptimizations"), unknown);
  for (const std::string& name : unknown) {
    Warn(fmt::format("ge.disableOptimizations names {}, which it cannot turn off", name));
  }
  return passes;
}

// The compiler's share of the options.
StatusOr<compiler::CompileOptions> CompileOptionsOf(const OptionSet& options) {
  compiler::CompileOptions result;
  result.reuses_memory = !options.Is("ge.exec.disableReuseMemory", "1");
  result.has_single_stream = options.Is("ge.enableSingleStream", "true");
  REPRISE_ASSIGN_OR_RETURN(result.passes, PassOptionsOf(options));
  REPRISE_ASSIGN_OR_RETURN(result.scratch_inputs,
                           IndexesOf("ge.exec.inputReuseMemIndexes", options.Get("ge.exec.inputReuseMemIndexes"), ','));
  REPRISE_ASSIGN_OR_RETURN(result.scratch_outputs, IndexesOf("ge.exec.outputReuseMemIndexes",
                                                             options.Get("ge.exec.outputReuseMemIndexes"), ','));
  REPRISE_ASSIGN_OR_RETURN(result.shared_inputs, IndexPairsOf("ge.exec.outputReuseInputMemIndexes",
                                                              options.Get("ge.exec.outputReuseInputMemIndexes")));
  result.passes.scratch_inputs = result.scratch_inputs;
  result.passes.shared_inputs = result.shared_inputs;
  return result;
}

// What options say of the nodes.
Status CheckNodes(const compiler::Graph& graph, const OptionSet& options) {
  const bool by_ge = options.Is("ge.exec.graphIOMemAllocMode", "ByGE");
  const bool single = options.Is("ge.enableSingleStream", "true");
  for (const compiler::Node& node : graph.nodes) {
    if (node.is_removed) continue;
    if (by_ge && node.type == "RefData") {
      return Fail(kParamInvalid, kBadInput,
                  fmt::format("node {} is a RefData, which ge.exec.graphIOMemAllocMode = ByGE forbids", node.name))
          .Culprit(fmt::format("node {}", node.name))
          .Hint("leave the option out, or make the input a Data");
    }
    if (single && node.notes.contains("_user_stream_label")) {
      return Fail(kParamInvalid, kBadValue,
                  fmt::format("node {} has a label of a stream, which ge.enableSingleStream = true forbids", node.name))
          .Culprit(fmt::format("node {}", node.name))
          .Hint("leave the option out, or the attribute _user_stream_label");
    }
  }
  return {};
}

// Sizes stay open although a run, a caller or a hint tells them.
bool KeepsOpen(const OptionSet& options) {
  return !options.Is("ge.jit_compile", "1") || options.Is("ge.compile_dynamic_mode", "1");
}

bool HasGears(const OptionSet& options) { return !options.Get("ge.dynamicDims").empty(); }

void SetInputs(compiler::Graph& graph, const std::vector<opdef::Shape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (compiler::Output& output : graph.at(graph.inputs[i]).outputs) output.tensor.shape = shapes[i];
  }
}

}  // namespace

void SetCompileFunction(CompileFunction function) { g_compile = function; }
uint64_t CountOfCompilations() { return g_compilations; }

StatusOr<std::shared_ptr<CompiledGraph>> CompiledGraph::Compile(const compiler::Graph& source, const OptionSet& options,
                                                                std::span<const InputMeta> inputs,
                                                                const CompileSite& site) {
  RegisterCollectives();
  auto compiled = std::make_shared<CompiledGraph>();
  compiled->source_ = source;
  REPRISE_RETURN_IF_ERROR(ReadWeights(compiled->source_, options));
  REPRISE_RETURN_IF_ERROR(CastResults(compiled->source_, options.Get("ge.outputDatatype")));
  REPRISE_ASSIGN_OR_RETURN(compiled->state_, TakeState(compiled->source_));
  compiled->options_ = options;
  compiled->site_ = site;
  REPRISE_ASSIGN_OR_RETURN(compiled->compile_options_, CompileOptionsOf(options));
  compiled->compile_options_.bank = FindBank(options);
  if (compiler::TheDumpSettings().is_on) {
    compiled->compile_options_.passes.on_stage =
        [id = site.graph](compiler::Stage stage, const compiler::Graph& graph) { DumpStage(graph, id, NameOf(stage)); };
  }
  REPRISE_RETURN_IF_ERROR(CheckNodes(source, options));

  const size_t count = source.inputs.size();
  if (!inputs.empty()) REPRISE_RETURN_IF_ERROR(CheckCount(source, inputs.size()));
  const std::string_view hint_text = options.Get("ge.inputHintShape");
  std::vector<std::optional<std::vector<int64_t>>> hints(count);
  if (!hint_text.empty()) {
    REPRISE_ASSIGN_OR_RETURN(hints, HintShapesOf(hint_text, count));
  }
  std::vector<opdef::Shape> shapes;
  for (size_t i = 0; i < compiled->source_.inputs.size(); ++i) {
    opdef::Shape shape = InputOf(compiled->source_, i).shape;
    if (i < count && !shape.is_static() && !HasGears(options)) {
      if (!inputs.empty()) {
        if (!Fits(shape, inputs[i].shape)) return DoesNotFit(source, i, inputs[i].shape, "the caller's");
        if (!KeepsOpen(options)) {
          shape = opdef::Shape::Of(inputs[i].shape);
          compiled->is_specialised_ = true;
        }
      } else if (hints[i]) {
        if (!Fits(shape, *hints[i])) return DoesNotFit(source, i, *hints[i], "of ge.inputHintShape");
        if (!KeepsOpen(options)) shape = opdef::Shape::Of(*hints[i]);
      }
    }
    shapes.push_back(std::move(shape));
  }
  REPRISE_ASSIGN_OR_RETURN(compiled->summary_.weights, WriteWeights(source, options, site));
  if (HasGears(options)) {
    REPRISE_RETURN_IF_ERROR(compiled->AddGears(shapes));
  } else {
    REPRISE_RETURN_IF_ERROR(compiled->Add(shapes));
  }
  compiled->Summarise();
  return compiled;
}

StatusOr<CompiledGraph::Subject> CompiledGraph::PrepareTrial(const compiler::Graph& source, const OptionSet& options,
                                                             std::span<const InputMeta> inputs) {
  Subject subject{source, {}};
  REPRISE_RETURN_IF_ERROR(ReadWeights(subject.graph, options));
  REPRISE_ASSIGN_OR_RETURN(subject.options, CompileOptionsOf(options));
  REPRISE_RETURN_IF_ERROR(CheckNodes(source, options));
  REPRISE_RETURN_IF_ERROR(CheckCount(source, inputs.size()));
  std::vector<opdef::Shape> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const opdef::Shape& own = InputOf(source, i).shape;
    if (!Fits(own, inputs[i].shape)) return DoesNotFit(source, i, inputs[i].shape, "the sample's");
    shapes.push_back(own.is_static() ? own : opdef::Shape::Of(inputs[i].shape));
  }
  SetInputs(subject.graph, shapes);
  return subject;
}

Status CompiledGraph::Add(const std::vector<opdef::Shape>& shapes) {
  compiler::Graph graph = source_;
  SetInputs(graph, shapes);
  REPRISE_ASSIGN_OR_RETURN(CompileCache cache, CompileCache::Open(options_, graph, compile_options_));
  compiler::CompileOptions compile_options = compile_options_;
  if (std::unique_ptr<compiler::Graph> known = cache.Find()) {
    graph = std::move(*known);
    compile_options.is_optimised = !compiler::TheDumpSettings().is_on;  // dumps show what each stage does
  }
  DumpStage(graph, site_.graph, "PreRunBegin");
  const CompileFunction replaced = g_compile;
  auto made = replaced != nullptr ? replaced(std::move(graph), compile_options)
                                  : compiler::Executable::Compile(std::move(graph), compile_options);
  if (!made.ok()) return As(kGraphPrerunFailed, kStageFailed, std::move(made).status());
  DumpStage((*made)->graph(), site_.graph, "Build");
  if (!cache.was_found()) {
    ++g_compilations;
    cache.Keep((*made)->graph());
    if (!options_.Is("ge.exportCompileStat", "0")) {
      NoteFusions(compiler::FusionResult(site_.session, site_.graph, (*made)->pass_records()),
                  options_.Is("ge.exportCompileStat", "2"));
    }
  }
  Variant variant{shapes, {}, {}, std::move(made).value(), 0};
  for (const compiler::Tensor& result : variant.executable->results()) {
    variant.result_bytes.push_back(compiler::BytesOf(result));
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    Variant::Known& known = variant.known.emplace_back();
    known.dtype = InputOf(source_, i).dtype;
    known.has_sizes = shapes[i].is_static();
    if (!known.has_sizes) continue;
    known.sizes = shapes[i].numbers();
    compiler::Tensor tensor = InputOf(source_, i);
    tensor.shape = shapes[i];
    known.bytes = compiler::BytesOf(tensor).value_or(0);
  }
  if (!variants_.empty() && variants_.front().executable->is_static()) {
    const Variant& last = variants_.back();
    variant.constants_at = last.constants_at + last.executable->needs().constants;
  }
  CheckInputsOf(variant);
  variants_.push_back(std::move(variant));
  return {};
}

void CompiledGraph::CheckInputs(std::vector<uint32_t> weights) {
  weights_ = std::move(weights);
  for (Variant& variant : variants_) CheckInputsOf(variant);
}

void CompiledGraph::CheckInputsOf(Variant& variant) const {
  const int64_t asked = options_.Number("reprise.preparedInputBytes");
  const uint64_t most_bytes = asked >= 0 ? static_cast<uint64_t>(asked) : kPreparedBytes;
  const compiler::Look look = asked >= 0 ? compiler::Look::kAlways : compiler::Look::kAtWrites;
  if (weights_.empty() || most_bytes == 0 || !variant.executable->is_static()) return;
  std::vector<uint32_t> chosen =
      compiler::ChooseCheckedInputs(variant.executable->graph(), compile_options_, weights_, most_bytes);
  if (chosen.empty()) return;
  compiler::Graph graph = source_;
  SetInputs(graph, variant.inputs);
  variant.executable = compiler::CheckInputs(std::move(variant.executable), std::move(graph), compile_options_,
                                             std::move(chosen), most_bytes, look);
}

Status CompiledGraph::AddGears(const std::vector<opdef::Shape>& shapes) {
  REPRISE_ASSIGN_OR_RETURN(const Gears gears, GearsOf(options_.Get("ge.inputShape"), options_.Get("ge.dynamicDims")));
  has_gears_ = true;
  std::vector<const std::vector<int64_t>*> named(shapes.size(), nullptr);
  size_t found = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string& name = source_.at(source_.inputs[i]).name;
    const auto input = std::ranges::find(gears.inputs, name, [](const auto& entry) { return entry.first; });
    if (input == gears.inputs.end()) continue;
    ++found;
    named[i] = &input->second;
    if (!Fits(shapes[i], input->second)) return DoesNotFit(source_, i, input->second, "of ge.inputShape");
  }
  if (found != gears.inputs.size()) {
    return Fail(kParamInvalid, kBadOption, "ge.inputShape has a name that no input of the graph has")
        .Culprit(fmt::format("option ge.inputShape: \"{}\"", options_.Get("ge.inputShape")))
        .Hint("use the names of the Data nodes");
  }
  for (const std::vector<int64_t>& dims : gears.dims) {
    std::vector<opdef::Shape> gear = shapes;
    size_t next = 0;
    for (size_t i = 0; i < gear.size(); ++i) {
      if (named[i] == nullptr) continue;
      std::vector<int64_t> sizes = *named[i];
      for (int64_t& size : sizes) {
        if (size == -1) size = dims[next++];
      }
      gear[i] = opdef::Shape::Of(sizes);
    }
    REPRISE_RETURN_IF_ERROR(Add(gear));
  }
  return {};
}

StatusOr<Variant*> CompiledGraph::Choose(std::span<const InputMeta> inputs) {
  if (Variant* const only = only_variant()) return only;
  for (Variant& variant : variants_) {
    bool fits = true;
    for (size_t i = 0; i < inputs.size() && fits; ++i) fits = Fits(variant.inputs[i], inputs[i].shape);
    if (fits) return &variant;
  }
  std::vector<std::string> texts;
  for (const InputMeta& input : inputs) texts.push_back(fmt::format("[{}]", fmt::join(input.shape, ", ")));
  if (has_gears_ && !options_.Is("ge.compileHybridMode", "1")) {
    return Fail(kParamInvalid, kBadInput,
                fmt::format("the shapes {} are those of no gear: {}", fmt::join(texts, ", "),
                            options_.Get("ge.dynamicDims")))
        .Culprit(fmt::format("inputs of graph {}", source_.name))
        .Hint("pad the inputs to a gear, or add one to ge.dynamicDims");
  }
  std::vector<opdef::Shape> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const opdef::Shape& own = InputOf(source_, i).shape;
    if (!Fits(own, inputs[i].shape)) return DoesNotFit(source_, i, inputs[i].shape, "the run's");
    shapes.push_back(own.is_static() || has_gears_ ? own : opdef::Shape::Of(inputs[i].shape));
  }
  for (size_t i = inputs.size(); i < source_.inputs.size(); ++i) shapes.push_back(InputOf(source_, i).shape);
  REPRISE_RETURN_IF_ERROR(Add(shapes));  // beside gears: one for all other shapes
  if (variants_.size() > kMostSpecialised) variants_.erase(variants_.begin() + 1);
  return &variants_.back();
}

compiler::Graph CompiledGraph::visible() const {
  compiler::Graph graph = optimised();
  PutStateBack(state_, graph);
  return graph;
}

void CompiledGraph::Summarise() {
  const auto size = [](const Variant& variant) { return variant.executable->needs().features; };
  const Variant& largest = *std::ranges::max_element(variants_, {}, size);
  const compiler::Executable& executable = *largest.executable;
  summary_.name = source_.name;
  summary_.is_static = std::ranges::all_of(variants_, [](const Variant& v) { return v.executable->is_static(); });
  summary_.needs = executable.needs();
  summary_.needs.constants = 0;
  for (const Variant& variant : variants_) {
    summary_.needs.constants += variant.executable->needs().constants;
    summary_.needs.fixed_features = std::max(summary_.needs.fixed_features, variant.executable->needs().fixed_features);
  }
  summary_.is_refreshable = options_.Is("ge.featureBaseRefreshable", "1");
  summary_.stream_count = executable.streams();
  summary_.event_count = executable.events();
  const size_t visible = executable.results().size() - state_.collected.size();
  for (const compiler::Tensor& result : executable.results().first(visible)) {
    summary_.output_shapes.push_back(result.shape.numbers());
    summary_.output_types.push_back(result.dtype);
  }
  // Of gears: the largest sizes.
  for (const Variant& variant : variants_) {
    const auto results = variant.executable->results().first(visible);
    for (size_t i = 0; i < results.size() && has_gears_; ++i) {
      const auto product = [](const std::vector<int64_t>& dims) {
        int64_t count = 1;
        for (const int64_t dim : dims) count *= dim;
        return count;
      };
      std::vector<int64_t> sizes = results[i].shape.numbers();
      if (product(sizes) > product(summary_.output_shapes[i])) summary_.output_shapes[i] = std::move(sizes);
    }
  }
  summary_.shared = Cross(executable.shared());
  summary_.streams = LogicalStreamsOf(executable);
  summary_.stream_graph = StreamGraphOf(executable.graph(), summary_.streams);
}

}  // namespace reprise::engine
