// SPDX-License-Identifier: Apache-2.0
#include "engine/offline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/no_destroy.h"
#include "base/text_file.h"
#include "compiler/compiled_file.h"
#include "compiler/executable.h"
#include "compiler/staged.h"
#include "engine/compile_cache.h"
#include "engine/compiled_graph.h"
#include "engine/numbers.h"
#include "engine/option_values.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

struct Builds {
  Mutex mutex;
  std::optional<OptionMap> options REPRISE_GUARDED_BY(mutex);  ///< nothing: not begun
};
Builds& TheBuilds() {
  static NoDestroy<Builds> builds;
  return builds.value;
}

// Options of builds that this one reads.
constexpr std::string_view kRead[] = {"input_shape", "output_type", "dynamic_batch_size", "dynamic_image_size",
                                      "dynamic_dims"};
// Attributes of a graph that was built for gears.
constexpr std::string_view kGearKind = "_reprise_gear_kind";
constexpr std::string_view kGearShapes = "_reprise_gear_shapes";
constexpr std::string_view kGearDims = "_reprise_gear_dims";

// Options of builds that ask for more than one compiled graph is.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"insert_op_conf", "images are not preprocessed: put the operators into the graph"},
    {"out_nodes", "the outputs are those of the graph: name them with Graph::SetOutputs"},
    {"input_fp16_nodes", "inputs have the types of the graph: set them on the Data nodes"},
};
// Those that change nothing.
constexpr std::string_view kIgnored[] = {"input_format", "log", "is_input_adjust_hw_layout",
                                         "is_output_adjust_hw_layout", "input_shape_range"};

Status BadOption(std::string_view key, std::string_view value, std::string what, std::string hint) {
  return Fail(kParamInvalid, kBadOption, fmt::format("option {} is \"{}\": {}", key, value, what))
      .Culprit(fmt::format("option {}", key))
      .Hint(std::move(hint));
}

// Values of the table, whatever the level; other keys stay.
Status CheckValues(const OptionMap& options) {
  for (const auto& [key, value] : options) {
    const OptionRow* const row = FindOption(key);
    if (row == nullptr) continue;
    const auto level = static_cast<OptionLevel>(row->levels & -row->levels);
    REPRISE_RETURN_IF_ERROR(CheckOptions({{key, value}}, level, kParamInvalid));
  }
  return {};
}

Status CheckOwn(const OptionMap& options) {
  for (const auto& [key, value] : options) {
    if (value.empty() || FindOption(key) != nullptr || std::ranges::count(kRead, key) != 0) continue;
    const auto* const refused =
        std::ranges::find_if(kRefused, [&key = key](const auto& entry) { return entry.first == key; });
    if (refused != std::end(kRefused)) {
      return Fail(kUnsupported, kBadValue, fmt::format("option {} is set, but {}", key, refused->second))
          .Culprit(fmt::format("option {}", key))
          .Hint("leave it out");
    }
    if (std::ranges::count(kIgnored, key) == 0) {
      Warn(fmt::format("option {} means nothing to builds of graphs and is ignored", key));
    }
  }
  return {};
}

// "x:1,3;y:" — the shapes of inputs by name.
Status SetShapes(compiler::Graph& graph, std::string_view text) {
  constexpr const char* kForm = "write it as name:2,-1;name2:3";
  for (const std::string_view part : SplitText(text, ';')) {
    const size_t colon = part.rfind(':');
    if (colon == std::string_view::npos) return BadOption("input_shape", text, "an input has no colon", kForm);
    const std::string_view name = part.substr(0, colon);
    const auto input =
        std::ranges::find_if(graph.inputs, [&](compiler::NodeId id) { return graph.at(id).name == name; });
    if (input == graph.inputs.end()) {
      return BadOption("input_shape", text, fmt::format("the graph has no input {}", name),
                       "use the names of the Data nodes");
    }
    std::vector<int64_t> sizes;
    for (const std::string_view size : SplitText(part.substr(colon + 1), ',')) {
      const std::optional<int64_t> number = NumberOf(size);
      if (!number || *number < -1) return BadOption("input_shape", text, fmt::format("\"{}\" is no size", size), kForm);
      sizes.push_back(*number);
    }
    for (compiler::Output& output : graph.at(*input).outputs) output.tensor.shape = opdef::Shape::Of(sizes);
  }
  return {};
}

std::string_view ValueOf(const OptionMap& options, std::string_view key) {
  const auto found = options.find(key);
  return found != options.end() ? std::string_view(found->second) : std::string_view();
}

// `tuple` so often that there is a number for each open size.
StatusOr<std::string> Repeated(std::string_view key, std::string_view value, std::string_view tuple, size_t open) {
  const size_t numbers = SplitText(tuple, ',').size();
  if (open % numbers != 0) {
    return BadOption(key, value, fmt::format("input_shape has {} sizes of -1", open),
                     "write -1 in input_shape for each size that a gear chooses");
  }
  std::vector<std::string_view> parts(open / numbers, tuple);
  return fmt::format("{}", fmt::join(parts, ","));
}

// The gears that the options ask for, as the engine writes them.
StatusOr<OfflineGears> WantedGears(const OptionMap& options) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {{"dynamic_batch_size", "batch"},
                                                                      {"dynamic_image_size", "image"},
                                                                      {"dynamic_dims", "dims"},
                                                                      {"ge.dynamicDims", "dims"}};
  OfflineGears gears;
  std::string_view chosen;
  for (const auto& [key, kind] : kKinds) {
    const std::string_view value = ValueOf(options, key);
    if (value.empty()) continue;
    if (!chosen.empty()) return BadOption(key, value, fmt::format("{} is set, too", chosen), "choose one of both");
    chosen = key;
    gears.kind = kind;
    gears.dims = value;
  }
  if (chosen.empty()) return gears;
  gears.shapes = ValueOf(options, chosen == "ge.dynamicDims" ? "ge.inputShape" : "input_shape");
  const auto open = static_cast<size_t>(std::ranges::count(gears.shapes, '-'));
  const std::string_view value = ValueOf(options, chosen);
  if (open == 0) {
    return BadOption(chosen, value, "input_shape has no size of -1",
                     "write -1 in input_shape for each size that a gear chooses");
  }
  if (gears.kind == "dims") return gears;
  std::vector<std::string> tuples;
  const char separator = gears.kind == "batch" ? ',' : ';';
  for (const std::string_view tuple : SplitText(value, separator)) {
    const size_t numbers = SplitText(tuple, ',').size();
    if (numbers != (gears.kind == "batch" ? 1 : 2)) {
      return BadOption(chosen, value, fmt::format("\"{}\" has {} numbers", tuple, numbers),
                       gears.kind == "batch" ? "write it as 1,2,4" : "write it as height,width;height,width");
    }
    REPRISE_ASSIGN_OR_RETURN(std::string repeated, Repeated(chosen, value, tuple, open));
    tuples.push_back(std::move(repeated));
  }
  gears.dims = fmt::format("{}", fmt::join(tuples, ";"));
  return gears;
}

std::string TextOf(const opdef::Attributes& attributes, std::string_view name) {
  const auto found = attributes.find(name);
  const auto* const text = found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text != nullptr ? *text : std::string();
}

}  // namespace

OfflineGears GearsOfModel(const compiler::Graph& graph) {
  return {TextOf(graph.attributes, kGearKind), TextOf(graph.attributes, kGearShapes),
          TextOf(graph.attributes, kGearDims)};
}

Status BeginBuilds(const OptionMap& options) {
  REPRISE_RETURN_IF_ERROR(CheckValues(options));
  REPRISE_RETURN_IF_ERROR(CheckOwn(options));
  Builds& builds = TheBuilds();
  MutexLock lock(builds.mutex);
  if (builds.options) Warn("aclgrphBuildInitialize was called before; its options are replaced");
  builds.options = options;
  return {};
}

void EndBuilds() {
  Builds& builds = TheBuilds();
  MutexLock lock(builds.mutex);
  builds.options.reset();
}

StatusOr<std::string> BuildOffline(const compiler::Graph& graph, const OptionMap& options) {
  OptionMap all;
  {
    Builds& builds = TheBuilds();
    MutexLock lock(builds.mutex);
    if (!builds.options) {
      return Fail(kFailed, kWrongOrder, "aclgrphBuildModel was called before aclgrphBuildInitialize")
          .Culprit("the call of aclgrphBuildModel")
          .Hint("call aclgrphBuildInitialize first");
    }
    all = *builds.options;
  }
  REPRISE_RETURN_IF_ERROR(CheckValues(options));
  REPRISE_RETURN_IF_ERROR(CheckOwn(options));
  for (const auto& [key, value] : options) all[key] = value;
  if (const auto type = all.find("output_type"); type != all.end() && !type->second.empty()) {
    if (type->second.find(':') != std::string::npos) {
      return BadOption("output_type", type->second, "it names single outputs", "give one type for all outputs");
    }
    all["ge.outputDatatype"] = type->second;
  }
  REPRISE_ASSIGN_OR_RETURN(const OfflineGears gears, WantedGears(all));
  all.erase("ge.dynamicDims");
  all.erase("ge.inputShape");
  const OptionSet set(all, all, all);
  REPRISE_RETURN_IF_ERROR(set.CheckTogether(kParamInvalid));
  compiler::Graph source = graph;
  if (const auto shapes = all.find("input_shape"); shapes != all.end() && !shapes->second.empty()) {
    REPRISE_RETURN_IF_ERROR(SetShapes(source, shapes->second));
  }
  if (!gears.dims.empty()) {  // each gear can be compiled
    OptionMap with = all;
    with["ge.inputShape"] = gears.shapes;
    with["ge.dynamicDims"] = gears.dims;
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const std::shared_ptr<CompiledGraph> checked,
                             CompiledGraph::Compile(source, OptionSet(with, with, with), {}, CompileSite{}));
  }
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<CompiledGraph> compiled,
                           CompiledGraph::Compile(source, set, {}, CompileSite{}));
  compiler::Graph visible = compiled->visible();
  if (!gears.dims.empty()) {
    visible.attributes.insert_or_assign(std::string(kGearKind), gears.kind);
    visible.attributes.insert_or_assign(std::string(kGearShapes), gears.shapes);
    visible.attributes.insert_or_assign(std::string(kGearDims), gears.dims);
  }
  auto model = ModelOf(visible);
  if (!model.ok()) return As(kFailed, kInner, std::move(model).status());
  return compiler::PackCompiled(AboutCompiled(source, compiled->compile_options()), *model);
}

Status SaveOffline(const std::string& path, std::string_view bytes) {
  const auto parts = compiler::SplitCompiled(bytes);
  if (!parts || !parts->model) {
    return Fail(kParamInvalid, kBadValue, "the model is no compiled graph")
        .Culprit("parameter model")
        .Hint("give what aclgrphBuildModel has made");
  }
  Status written = WriteTextFile(path.ends_with(".om") ? path : path + ".om", bytes);
  return written.ok() ? Status() : As(kPathInvalid, kBadValue, std::move(written));
}

Status InferOffline(compiler::Graph& graph) {
  opdef::Facts facts;
  Status status = compiler::InferShapes(graph, facts);
  return status.ok() ? Status() : As(kGraphInfershapeFailed, kStageFailed, std::move(status));
}

}  // namespace reprise::engine
