// SPDX-License-Identifier: Apache-2.0
#include "compiler/staged.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <unordered_map>

#include "base/mutex.h"
#include "compiler/control_flow.h"
#include "compiler/custom_op.h"
#include "compiler/device_block.h"
#include "compiler/node_call.h"
#include "compiler/run_check.h"
#include "compiler/stage_plan.h"
#include "compiler/storage.h"
#include "compiler/type_numbers.h"
#include "compiler/views.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::compiler {
namespace {

constexpr size_t kMostShapes = 64;            // plans that a stage keeps
constexpr uint64_t kMostValueBytes = 8192;    // of inputs on the host whose values may decide shapes
constexpr uint64_t kLeastHoistedBytes = 512;  // of constants that all shapes share

bool IsValue(const RunTensor& tensor) {
  return tensor.on_host && (tensor.dtype == kInt32Number || tensor.dtype == kInt64Number) &&
         tensor.bytes <= kMostValueBytes;
}

// What decides the plan of a stage.
std::string KeyOf(std::span<const RunTensor> inputs) {
  std::string key;
  const auto add = [&key](int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const RunTensor& input : inputs) {
    add(input.dtype);
    add(static_cast<int64_t>(input.shape.size()) * 2 + (IsValue(input) ? 1 : 0));
    for (const int64_t size : input.shape) add(size);
    if (IsValue(input)) key.append(static_cast<const char*>(input.data), input.bytes);
  }
  return key;
}

struct ShapeCounts {
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> misses{0};
  std::atomic<uint64_t> evictions{0};
};

// A stage with its plans: one for each set of input shapes, the least used dropped first.
class ShapedStage {
 public:
  ShapedStage(Graph graph, const CompileOptions& options, ShapeCounts& counts)
      : graph_(std::move(graph)), options_(options), counts_(counts) {}

  struct Planned {
    std::unique_ptr<StagePlan> plan;
    std::unique_ptr<ShapedStage> rest;
    Mutex memory_mutex;
    DeviceBlock features REPRISE_GUARDED_BY(memory_mutex);
    DeviceBlock constants REPRISE_GUARDED_BY(memory_mutex);
    bool has_constants REPRISE_GUARDED_BY(memory_mutex) = false;
  };

  StatusOr<std::shared_ptr<Planned>> Find(std::span<const RunTensor> inputs) {
    std::string key = KeyOf(inputs);
    MutexLock lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      counts_.hits.fetch_add(1, std::memory_order_relaxed);
      recent_.splice(recent_.begin(), recent_, found->second);
      return recent_.front().second;
    }
    counts_.misses.fetch_add(1, std::memory_order_relaxed);
    Graph known = graph_;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Node& data = known.at(known.inputs[i]);
      data.outputs[0].tensor.dtype = inputs[i].dtype;
      data.outputs[0].tensor.shape = opdef::Shape::Of(inputs[i].shape);
      if (!IsValue(inputs[i])) continue;
      auto constant = std::make_shared<Constant>();
      constant->dtype = inputs[i].dtype;
      constant->shape = inputs[i].shape;
      constant->bytes.assign(static_cast<const char*>(inputs[i].data), inputs[i].bytes);
      data.kind = NodeKind::kConstant;
      data.constant = std::move(constant);
    }
    opdef::Facts facts;
    REPRISE_RETURN_IF_ERROR(InferShapes(known, facts));
    auto planned = std::make_shared<Planned>();
    REPRISE_ASSIGN_OR_RETURN(planned->plan, PlanStage(std::move(known), options_));
    if (planned->plan->has_rest)
      planned->rest = std::make_unique<ShapedStage>(std::move(planned->plan->rest), options_, counts_);
    recent_.emplace_front(key, planned);
    by_key_[std::move(key)] = recent_.begin();
    if (recent_.size() > kMostShapes) {
      counts_.evictions.fetch_add(1, std::memory_order_relaxed);
      by_key_.erase(recent_.back().first);
      recent_.pop_back();
    }
    return planned;
  }

 private:
  const Graph graph_;
  const CompileOptions& options_;
  ShapeCounts& counts_;
  using Recent = std::list<std::pair<std::string, std::shared_ptr<Planned>>>;
  Mutex mutex_;
  Recent recent_ REPRISE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Recent::iterator> by_key_ REPRISE_GUARDED_BY(mutex_);
};

// One run of a staged executable.
class StagedRun {
 public:
  StagedRun(const Graph& graph, runtime::Stream& stream, const RunRequest& request, CalledGraphs& called)
      : graph_(graph), stream_(stream), request_(request), called_(called) {}

  // What is freed now is used again behind what is on the stream.
  ~StagedRun() {
    for (void* const block : leased_) request_.features->Free(block);
  }
  StagedRun(const StagedRun&) = delete;
  StagedRun& operator=(const StagedRun&) = delete;

  // Leaves the results in `results`; those that a program could write where the caller wants them are there.
  Status Run(ShapedStage& stage, std::vector<RunTensor> inputs) {
    std::vector<uint32_t> wanted(graph_.results.size());
    for (uint32_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
    REPRISE_RETURN_IF_ERROR(RunStage(stage, std::move(inputs), wanted));
    return End();
  }

 private:
  // Written by the stream alone, or by the host while the stream has nothing to do.
  StatusOr<void*> Allocate(uint64_t bytes) {
    bytes = std::max<uint64_t>(bytes, 1);
    if (request_.features == nullptr || stream_.sink() != nullptr) return AllocateOwn(bytes);
    void* const block = request_.features->Allocate(bytes);
    if (block == nullptr) {
      return Error(kOutOfDeviceMemory,
                   fmt::format("the allocator has no {} bytes for values of graph {}", bytes, graph_.name))
          .Culprit("the allocator of the stream")
          .Hint("let it give memory, or free what is not needed");
    }
    leased_.push_back(block);
    return block;
  }

  // Memory that nobody has used before: the host may write it at any time.
  StatusOr<void*> AllocateOwn(uint64_t bytes) {
    REPRISE_ASSIGN_OR_RETURN(DeviceBlock block, DeviceBlock::Allocate(stream_.device(), std::max<uint64_t>(bytes, 1)));
    blocks_->push_back(std::move(block));
    return blocks_->back().data();
  }

  Status Wait() {
    if (stream_.sink() != nullptr) {
      return Error(
                 kStreamCaptured,
                 fmt::format("graph {} waits for the stream in the middle of a run: shapes or branches depend on data",
                             graph_.name))
          .Culprit("the stream, which is being captured")
          .Hint("end the capture first, or compile the graph with known shapes");
    }
    return stream_.Synchronize(runtime::DeadlineAfterMs(-1));
  }

  // `wanted`: by result of the stage, the result of the graph.
  Status RunStage(ShapedStage& stage, std::vector<RunTensor> inputs, std::span<const uint32_t> wanted) {
    REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ShapedStage::Planned> planned, stage.Find(inputs));
    plans_.push_back(planned);
    const StagePlan& plan = *planned->plan;
    std::vector<RunTensor> values = std::move(inputs);
    if (plan.program != nullptr) REPRISE_RETURN_IF_ERROR(RunProgram(*planned, values, wanted));
    if (std::ranges::any_of(plan.lone, NeedsWait)) REPRISE_RETURN_IF_ERROR(Wait());
    for (const LoneNode& lone : plan.lone) REPRISE_RETURN_IF_ERROR(RunLone(lone, values));
    for (size_t i = 0; i < plan.results.size(); ++i) {
      const StagePlan::Source& source = plan.results[i];
      if (!source.from_rest) REPRISE_RETURN_IF_ERROR(Finish(wanted[i], values[source.number]));
    }
    if (planned->rest == nullptr) return {};
    std::vector<RunTensor> rest;
    for (const ValueId value : plan.rest_inputs) rest.push_back(values[value]);
    std::vector<uint32_t> rest_wanted;
    for (size_t i = 0; i < plan.results.size(); ++i) {
      if (!plan.results[i].from_rest) continue;
      rest_wanted.resize(std::max<size_t>(rest_wanted.size(), plan.results[i].number + 1));
      rest_wanted[plan.results[i].number] = wanted[i];
    }
    return RunStage(*planned->rest, std::move(rest), rest_wanted);
  }

  Status RunProgram(ShapedStage::Planned& planned, std::vector<RunTensor>& values, std::span<const uint32_t> wanted) {
    const StagePlan& plan = *planned.plan;
    Program& program = *plan.program;
    std::vector<void*> bases(kFirstInputRegion);
    for (const ValueId input : plan.program_inputs) {
      RunTensor& value = values[input];
      if (value.on_host) REPRISE_RETURN_IF_ERROR(CopyToDevice(value));
      bases.push_back(value.data);
    }
    const auto first = static_cast<ValueId>(values.size());
    for (size_t i = 0; i < plan.program_outputs.size(); ++i) {
      const Tensor& tensor = plan.program_outputs[i];
      RunTensor made;
      made.dtype = tensor.dtype;
      made.shape = tensor.shape.numbers();
      made.bytes = *BytesOf(tensor);
      const std::optional<uint32_t> final = FinalOf(plan, first + static_cast<ValueId>(i), wanted);
      if (final && CanWrite(*final)) {
        RunTensor& output = request_.outputs[*final];
        REPRISE_RETURN_IF_ERROR(PlaceOutput(graph_, *final, tensor, output, request_.allocator));
        made.data = output.data;
      } else {
        REPRISE_ASSIGN_OR_RETURN(made.data, Allocate(made.bytes));
      }
      bases.push_back(made.data);
      values.push_back(std::move(made));
    }
    {
      MutexLock lock(planned.memory_mutex);
      if (planned.features.data() == nullptr) {
        REPRISE_ASSIGN_OR_RETURN(planned.features, DeviceBlock::Allocate(stream_.device(), program.needs().features));
      }
      if (!planned.has_constants) {
        REPRISE_ASSIGN_OR_RETURN(planned.constants, DeviceBlock::Allocate(stream_.device(), program.needs().constants));
        Program::WriteConstants(program.constants(), planned.constants.data());
        planned.has_constants = true;
      }
      bases[kFeatureRegion] = planned.features.data();
      bases[kConstantRegion] = planned.constants.data();
    }
    // A captured run may outlive the plan's place among those that are kept.
    Program::RunOwner run = program.NewRun();
    run->bindings.bases = std::move(bases);
    run->keeps.push_back(std::make_unique<KeptPlan>(plans_.back()));
    return program.Submit(stream_, std::move(run));
  }

  // The result of the graph that a value of a stage is.
  static std::optional<uint32_t> FinalOf(const StagePlan& plan, ValueId value, std::span<const uint32_t> wanted) {
    for (size_t i = 0; i < plan.results.size(); ++i) {
      if (!plan.results[i].from_rest && plan.results[i].number == value) return wanted[i];
    }
    return std::nullopt;
  }

  // Whether nothing else that the run reads or writes lies where the caller wants the output.
  bool CanWrite(uint32_t index) const {
    const RunTensor& output = request_.outputs[index];
    if (output.data == nullptr) return true;
    const auto begin = reinterpret_cast<uintptr_t>(output.data);
    const auto is_apart = [&](const RunTensor& other) {
      const auto other_begin = reinterpret_cast<uintptr_t>(other.data);
      return other.data == nullptr || other.on_host || other_begin >= begin + output.bytes ||
             begin >= other_begin + other.bytes;
    };
    for (const RunTensor& input : request_.inputs) {
      if (!is_apart(input)) return false;
    }
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      if (i != index && !is_apart(request_.outputs[i])) return false;
    }
    return true;
  }

  Status CopyToDevice(RunTensor& value) {
    REPRISE_ASSIGN_OR_RETURN(void* const copy, AllocateOwn(value.bytes));
    if (value.bytes != 0) std::memcpy(copy, value.data, value.bytes);
    value.data = copy;
    value.on_host = false;
    return {};
  }

  Status RunLone(const LoneNode& lone, std::vector<RunTensor>& values) {
    std::vector<RunTensor> inputs;
    for (const ValueId input : lone.inputs) {
      if (values[input].on_host) REPRISE_RETURN_IF_ERROR(CopyToDevice(values[input]));
      inputs.push_back(values[input]);
    }
    if (const std::shared_ptr<const CustomOp> custom = CustomOf(lone)) return RunCustom(lone, *custom, inputs, values);
    if (lone.graph.at(lone.node).kind != NodeKind::kCall) return RunOperator(lone, inputs, values);
    REPRISE_ASSIGN_OR_RETURN(
        std::vector<RunTensor> outputs,
        RunCall(lone.graph, lone.node, inputs, stream_, called_, [this](uint64_t bytes) { return Allocate(bytes); }));
    for (RunTensor& output : outputs) values.push_back(std::move(output));
    return {};
  }

  static std::shared_ptr<const CustomOp> CustomOf(const LoneNode& lone) {
    const Node& node = lone.graph.at(lone.node);
    return IsCustom(node) ? FindCustomOp(node.type) : nullptr;
  }

  // Operators of the program's put their work on the stream; only values that they read have to be there.
  static bool NeedsWait(const LoneNode& lone) {
    const std::shared_ptr<const CustomOp> custom = CustomOf(lone);
    if (custom == nullptr) return true;
    const Node& node = lone.graph.at(lone.node);
    for (uint32_t i = 0; i < node.inputs.size(); ++i) {
      const Port& source = node.inputs[i].source;
      const bool is_computed = source.is_set() && lone.graph.at(source.node).constant == nullptr;
      if (is_computed && custom->ReadsValue(node, i)) return true;
    }
    return false;
  }

  Status RunCustom(const LoneNode& lone, const CustomOp& custom, std::span<const RunTensor> given,
                   std::vector<RunTensor>& values) {
    const Node& node = lone.graph.at(lone.node);
    std::vector<RunTensor> inputs(node.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Port& port = node.inputs[i].source;
      if (!port.is_set()) continue;
      if (const auto& constant = lone.graph.at(port.node).constant; constant != nullptr) {
        REPRISE_ASSIGN_OR_RETURN(inputs[i], CopyOf(*constant));
        continue;
      }
      const auto place = std::ranges::find(lone.graph.inputs, port.node);
      inputs[i] = given[static_cast<size_t>(place - lone.graph.inputs.begin())];
    }
    std::vector<Tensor> told;
    for (const Output& output : node.outputs) told.push_back(output.tensor);
    std::vector<RunTensor> outputs(told.size());
    CustomCall call{node, stream_, inputs, told, outputs, [this](uint64_t bytes) { return Allocate(bytes); }};
    REPRISE_RETURN_IF_ERROR(custom.Run(call));
    values.insert(values.end(), outputs.begin(), outputs.end());
    return {};
  }

  StatusOr<RunTensor> CopyOf(const Constant& constant) {
    RunTensor tensor{.bytes = constant.bytes.size(), .dtype = constant.dtype, .shape = constant.shape};
    REPRISE_ASSIGN_OR_RETURN(tensor.data, AllocateOwn(tensor.bytes));
    std::memcpy(tensor.data, constant.bytes.data(), tensor.bytes);
    return tensor;
  }

  // The stream has nothing to do: values of inputs are there.
  Status RunOperator(const LoneNode& lone, std::span<const RunTensor> inputs, std::vector<RunTensor>& values) {
    Graph graph = lone.graph;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor& tensor = graph.at(graph.inputs[i]).outputs[0].tensor;
      tensor.dtype = inputs[i].dtype;
      tensor.shape = opdef::Shape::Of(inputs[i].shape);
    }
    const Node& node = graph.at(lone.node);
    NodeCall call(graph, lone.node, nullptr);
    REPRISE_RETURN_IF_ERROR(call.TakeStatus());
    std::vector<void*> addresses(node.inputs.size());
    for (uint32_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].source.is_set()) continue;
      const Node& source = graph.at(node.inputs[i].source.node);
      if (source.constant != nullptr) {
        REPRISE_ASSIGN_OR_RETURN(void* const copy, AllocateOwn(source.constant->bytes.size()));
        std::memcpy(copy, source.constant->bytes.data(), source.constant->bytes.size());
        addresses[i] = copy;
        call.SetInput(i, copy);
        continue;
      }
      const auto place = std::find(graph.inputs.begin(), graph.inputs.end(), node.inputs[i].source.node);
      const RunTensor& value = inputs[static_cast<size_t>(place - graph.inputs.begin())];
      addresses[i] = value.data;
      call.SetInput(i, value.data);
      if (call.IsValue(i)) call.SetValue(i, {static_cast<const char*>(value.data), value.bytes});
    }
    REPRISE_RETURN_IF_ERROR(call.Infer());
    std::vector<RunTensor> outputs(node.outputs.size());
    for (uint32_t i = 0; i < outputs.size(); ++i) {
      const ops::NamedTensor& told = call.call().outputs[i];
      outputs[i].dtype = told.dtype_number;
      outputs[i].shape = told.dims;
      Tensor tensor;
      tensor.dtype = told.dtype_number;
      tensor.shape = opdef::Shape::Of(told.dims);
      outputs[i].bytes = BytesOf(tensor).value_or(0);
      if (const std::optional<uint32_t> written = ReferencedInput(graph, lone.node, i)) {
        outputs[i].data = addresses[*written];
      } else {
        REPRISE_ASSIGN_OR_RETURN(outputs[i].data, Allocate(outputs[i].bytes));
      }
      call.SetOutput(i, outputs[i].data, outputs[i].bytes);
    }
    REPRISE_RETURN_IF_ERROR(call.Plan());
    REPRISE_RETURN_IF_ERROR(call.call().Submit(stream_));
    REPRISE_RETURN_IF_ERROR(Wait());
    for (const ops::NamedCall::FoundOutput& found : call.call().found_outputs()) {
      Shrink(outputs[found.output], found.found->outputs[found.entry]);
    }
    for (RunTensor& output : outputs) values.push_back(std::move(output));
    return {};
  }

  // Gives an output the sizes that the kernel found, with its elements back to back.
  static void Shrink(RunTensor& output, const ops::FoundShapes::Output& found) {
    const std::vector<int64_t> strides_of = output.shape;
    std::vector<int64_t> sizes(found.sizes, found.sizes + found.rank);
    const uint64_t elements = std::max<uint64_t>(1, ElementsOf(output.shape));
    const uint64_t item = output.bytes / elements;
    if (!found.is_packed && sizes.size() == strides_of.size()) Pack(output, sizes, item);
    output.shape = std::move(sizes);
    output.bytes = ElementsOf(output.shape) * item;
  }

  static uint64_t ElementsOf(std::span<const int64_t> shape) {
    uint64_t count = 1;
    for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
    return count;
  }

  // Rows of the new sizes lie at the strides of the old ones, in front of where they come from.
  static void Pack(const RunTensor& output, std::span<const int64_t> sizes, uint64_t item) {
    if (ElementsOf(sizes) == 0) return;
    std::vector<int64_t> at(sizes.size(), 0);
    auto* to = static_cast<char*>(output.data);
    while (true) {
      uint64_t from = 0;
      for (size_t d = 0; d < sizes.size(); ++d) {
        from = from * static_cast<uint64_t>(output.shape[d]) + static_cast<uint64_t>(at[d]);
      }
      std::memmove(to, static_cast<const char*>(output.data) + from * item, item);
      to += item;
      size_t d = sizes.size();
      while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  // A result is there; it goes where the caller wants it.
  Status Finish(uint32_t index, RunTensor& value) {
    RunTensor& output = request_.outputs[index];
    if (output.data == value.data && output.shape == value.shape && value.data != nullptr) return {};
    Tensor known;
    known.dtype = value.dtype;
    known.shape = opdef::Shape::Of(value.shape);
    REPRISE_RETURN_IF_ERROR(PlaceOutput(graph_, index, known, output, request_.allocator));
    if (value.bytes == 0) return {};
    if (value.on_host) REPRISE_RETURN_IF_ERROR(CopyToDevice(value));
    copies_.push_back({value.data, output.data, value.bytes});
    return {};
  }

  // Memory of the run lives until the stream has passed its end.
  Status End() {
    if (blocks_->empty() && copies_.empty()) return {};
    return runtime::SubmitClosure(
        stream_, "end of a compiled graph",
        [blocks = blocks_, copies = std::move(copies_), plans = std::move(plans_)](device::RunContext&) -> Status {
          for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
          return {};
        });
  }

  struct Copy {
    const void* from;
    void* to;
    uint64_t bytes;
  };
  struct KeptPlan final : Program::Keep {
    explicit KeptPlan(std::shared_ptr<ShapedStage::Planned> kept) : plan(std::move(kept)) {}
    std::shared_ptr<ShapedStage::Planned> plan;
  };

  const Graph& graph_;
  runtime::Stream& stream_;
  const RunRequest& request_;
  CalledGraphs& called_;
  std::shared_ptr<std::vector<DeviceBlock>> blocks_ = std::make_shared<std::vector<DeviceBlock>>();
  std::vector<void*> leased_;  ///< of the request's allocator
  std::vector<std::shared_ptr<ShapedStage::Planned>> plans_;
  std::vector<Copy> copies_;
};

class StagedExecutable final : public Executable {
 public:
  StagedExecutable(Graph graph, CompileOptions options) : graph_(std::move(graph)), options_(std::move(options)) {
    for (const Port& port : graph_.results) results_.push_back(graph_.TensorOf(port));
  }

  Status Compile() {
    REPRISE_ASSIGN_OR_RETURN(streams_, AssignStreams(graph_, options_.has_single_stream));
    REPRISE_RETURN_IF_ERROR(called_.Compile(graph_, options_));
    Graph first = graph_;
    {
      MutexLock lock(mutex_);
      Hoist(first);
    }
    first_ = std::make_unique<ShapedStage>(std::move(first), options_, counts_);
    return {};
  }

  bool is_static() const override { return false; }
  const MemoryNeeds& needs() const override { return needs_; }
  const Graph& graph() const override { return graph_; }
  std::span<const Tensor> results() const override { return results_; }
  std::span<const std::pair<uint32_t, uint32_t>> shared() const override { return {}; }
  std::span<const LogicalStream> logical_streams() const override { return streams_.streams; }
  size_t events() const override { return 0; }
  ShapeCache shape_cache() const { return {counts_.hits.load(), counts_.misses.load(), counts_.evictions.load()}; }
  Status SetConstants(void*, uint64_t) override { return NotStatic("constants"); }
  Status SetFeatures(void*, uint64_t) override { return NotStatic("features"); }
  Status SetFixedFeatures(void*, uint64_t) override { return NotStatic("fixed features"); }

  Status Run(runtime::Stream& stream, const RunRequest& request) override {
    REPRISE_RETURN_IF_ERROR(CheckCounts(graph_, request));
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      REPRISE_RETURN_IF_ERROR(CheckInput(graph_, i, request.inputs[i]));
    }
    std::vector<RunTensor> inputs(request.inputs.begin(), request.inputs.end());
    for (RunTensor& input : inputs) input.bytes = NeededBytes(input);  // blocks may be larger
    {
      MutexLock lock(mutex_);
      for (size_t i = 0; i < hoisted_.size(); ++i) REPRISE_RETURN_IF_ERROR(AddHoisted(stream.device(), i, inputs));
    }
    return StagedRun(graph_, stream, request, called_).Run(*first_, std::move(inputs));
  }

 private:
  struct Hoisted {
    std::shared_ptr<const Constant> constant;
    DeviceBlock block;
  };

  Status NotStatic(const char* region) const {
    return Error(kInvalidArgument,
                 fmt::format("graph {} has shapes that only runs know: it takes no memory for {}", graph_.name, region))
        .Culprit("the compiled graph")
        .Hint("register an allocator, or compile it with known shapes");
  }

  // Constants that no shape depends on become inputs behind those of the graph: all plans share their memory.
  void Hoist(Graph& graph) REPRISE_REQUIRES(mutex_) {
    std::vector<bool> decides(graph.nodes.size(), false);
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const Node& node = graph.at(id);
      if (node.op == nullptr || node.is_removed) continue;
      for (uint32_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i].source.is_set() && IsValueInput(graph, id, i)) decides[node.inputs[i].source.node] = true;
      }
    }
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      Node& node = graph.at(id);
      if (node.kind != NodeKind::kConstant || decides[id] || node.constant->bytes.size() < kLeastHoistedBytes) continue;
      hoisted_.push_back({node.constant, {}});
      node.kind = NodeKind::kData;
      node.constant = nullptr;
      graph.inputs.push_back(id);
    }
  }

  Status AddHoisted(runtime::Device& device, size_t index, std::vector<RunTensor>& inputs) REPRISE_REQUIRES(mutex_) {
    Hoisted& hoisted = hoisted_[index];
    const std::string& bytes = hoisted.constant->bytes;
    if (hoisted.block.data() == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(hoisted.block, DeviceBlock::Allocate(device, bytes.size()));
      std::memcpy(hoisted.block.data(), bytes.data(), bytes.size());
    }
    RunTensor& input = inputs.emplace_back();
    input.data = hoisted.block.data();
    input.bytes = bytes.size();
    input.dtype = hoisted.constant->dtype;
    input.shape = hoisted.constant->shape;
    return {};
  }

  const Graph graph_;
  const CompileOptions options_;
  const MemoryNeeds needs_;
  std::vector<Tensor> results_;
  StreamPlan streams_;
  CalledGraphs called_;
  ShapeCounts counts_;
  std::unique_ptr<ShapedStage> first_;
  Mutex mutex_;
  std::vector<Hoisted> hoisted_ REPRISE_GUARDED_BY(mutex_);
};

}  // namespace

std::optional<ShapeCache> ShapeCacheOf(const Executable& executable) {
  const auto* const staged = dynamic_cast<const StagedExecutable*>(&executable);
  return staged != nullptr ? std::optional(staged->shape_cache()) : std::nullopt;
}

bool IsStaged(const Graph& graph) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.at(id).is_removed && !IsReady(graph, id)) return true;
  }
  return false;
}

StatusOr<std::shared_ptr<Executable>> CompileStaged(Graph graph, const CompileOptions& options) {
  CompileOptions inner = options;
  inner.is_optimised = false;  // called graphs are compiled for what is known of their inputs
  auto executable = std::make_shared<StagedExecutable>(std::move(graph), std::move(inner));
  REPRISE_RETURN_IF_ERROR(executable->Compile());
  return std::shared_ptr<Executable>(std::move(executable));
}

}  // namespace reprise::compiler
