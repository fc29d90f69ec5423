// SPDX-License-Identifier: Apache-2.0
#include "compiler/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>

#include "base/futex.h"
#include "base/mutex.h"
#include "compiler/device_block.h"
#include "compiler/picture.h"
#include "compiler/program.h"
#include "compiler/run_check.h"
#include "compiler/staged.h"
#include "compiler/tune.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::compiler {
namespace {

// A region whose memory is the caller's, or else allocated with the first run.
struct RegionMemory {
  void* given = nullptr;
  DeviceBlock own;

  StatusOr<void*> Base(runtime::Device& device, uint64_t bytes) {
    if (given != nullptr || bytes == 0) return given;
    if (own.data() == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(own, DeviceBlock::Allocate(device, bytes));
    }
    return own.data();
  }
};

// Constants on their way into memory of the caller's, which may have been free for this stream only: tasks that are
// queued there may still write what lay in it before.
struct QueuedConstants {
  enum State : uint32_t { kQueued, kWritten, kLost };
  std::vector<Storage> values;
  std::atomic<uint32_t> state{kQueued};
  int32_t stream = 0;

  static Status Queue(runtime::Stream& stream, const std::shared_ptr<QueuedConstants>& constants, void* base) {
    constants->stream = stream.id();
    constants->state.store(kQueued, std::memory_order_relaxed);
    // Whoever waits goes on, too, when the stream drops the task.
    std::shared_ptr<void> end(nullptr, [constants](void*) {
      uint32_t queued = kQueued;
      constants->state.compare_exchange_strong(queued, kLost);
      FutexWake(constants->state, INT32_MAX);
    });
    return runtime::QueueClosureNow(stream, "constants of a compiled graph",
                                    [constants, end, base](device::RunContext&) -> Status {
                                      Program::WriteConstants(constants->values, base);
                                      constants->state.store(kWritten, std::memory_order_release);
                                      return {};
                                    });
  }
};

Status CheckRegion(const char* region, const void* base, uint64_t bytes, uint64_t needed) {
  if (base == nullptr || bytes >= needed) return {};
  return Error(kInvalidArgument, fmt::format("the memory for {} has {} bytes, {} are needed", region, bytes, needed))
      .Culprit("parameter size")
      .Hint("allocate as much as the summary of the compiled graph says");
}

class StaticExecutable final : public Executable {
 public:
  StaticExecutable(Graph graph, Program* program, std::vector<std::pair<uint32_t, uint32_t>> shared,
                   bool drops_constants)
      : graph_(std::move(graph)), program_(program), shared_(std::move(shared)), drops_constants_(drops_constants) {
    for (const Port& port : graph_.results) {
      results_.push_back(graph_.TensorOf(port));
      known_outputs_.push_back(KnownTensor::Of(results_.back()));
    }
    for (const NodeId input : graph_.inputs) known_inputs_.push_back(KnownTensor::Of(graph_.TensorOf({input, 0})));
  }

  bool is_static() const override { return true; }
  const MemoryNeeds& needs() const override { return program_->needs(); }
  const Graph& graph() const override { return graph_; }
  std::span<const Tensor> results() const override { return results_; }
  std::span<const std::pair<uint32_t, uint32_t>> shared() const override { return shared_; }
  std::span<const LogicalStream> logical_streams() const override { return program_->streams().streams; }
  size_t events() const override { return program_->events(); }
  std::vector<PlannedBlock> memory_plan() const override { return program_->memory_plan(graph_); }

  Status SetConstants(void* base, uint64_t bytes) override {
    REPRISE_RETURN_IF_ERROR(CheckRegion("constants", base, bytes, needs().constants));
    MutexLock lock(mutex_);
    if (drops_constants_ && constants_written_) {
      return Error(kInvalidArgument, "the constants of the executable are written, and stay where they are")
          .Culprit("parameter base")
          .Hint("give the memory before the first run");
    }
    constants_.given = base;
    constants_written_ = false;
    queued_.reset();
    return {};
  }
  Status SetFeatures(void* base, uint64_t bytes) override {
    REPRISE_RETURN_IF_ERROR(CheckRegion("features", base, bytes, needs().features));
    MutexLock lock(mutex_);
    features_.given = base;
    return {};
  }
  Status SetFixedFeatures(void* base, uint64_t bytes) override {
    return CheckRegion("fixed features", base, bytes, needs().fixed_features);
  }

  Status Run(runtime::Stream& stream, const RunRequest& request) override {
    REPRISE_RETURN_IF_ERROR(CheckCounts(graph_, request));
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      if (!known_inputs_[i].Fits(request.inputs[i])) REPRISE_RETURN_IF_ERROR(CheckInput(graph_, i, request.inputs[i]));
    }
    for (size_t i = 0; i < request.outputs.size(); ++i) {
      RunTensor& output = request.outputs[i];
      output.dtype = known_outputs_[i].dtype;
      output.shape = known_outputs_[i].shape;
      if (known_outputs_[i].Fits(output)) continue;
      REPRISE_RETURN_IF_ERROR(PlaceOutput(graph_, i, results_[i], output, request.allocator));
    }
    Program::RunOwner run = program_->NewRun();
    run->condition = request.condition;
    run->runs_if = request.runs_if;
    const std::span<void*> bases = run->bindings.bases;
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      bases[kFirstInputRegion + i] =
          request.inputs[i].on_host ? CopyOf(request.inputs[i], *run) : request.inputs[i].data;
    }
    const std::span<void*> out = bases.subspan(kFirstInputRegion + request.inputs.size());
    for (size_t i = 0; i < request.outputs.size(); ++i) out[i] = request.outputs[i].data;
    std::vector<size_t> apart;
    bool has_constants;
    {
      MutexLock lock(mutex_);
      has_constants = constants_written_ && queued_ == nullptr;
      REPRISE_ASSIGN_OR_RETURN(bases[kConstantRegion], constants_.Base(stream.device(), needs().constants));
      REPRISE_ASSIGN_OR_RETURN(bases[kFeatureRegion], features_.Base(stream.device(), needs().features));
    }
    if (!has_constants) REPRISE_RETURN_IF_ERROR(EnsureConstants(stream, bases[kConstantRegion]));
    if (!AreOutputsApart(request.inputs, request.outputs, known_inputs_, known_outputs_)) {
      apart = OverlappingOutputs(request.inputs, request.outputs, shared_);
    }
    if (apart.empty()) return program_->Submit(stream, std::move(run));
    return RunApart(stream, request, std::move(run), apart);
  }

 private:
  struct HostCopy final : Program::Keep {
    explicit HostCopy(uint64_t bytes) : data(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line))) {}
    struct alignas(64) Line {
      char bytes[64];
    };
    std::unique_ptr<Line[]> data;
  };
  static void* CopyOf(const RunTensor& tensor, Program::Run& run) {
    auto copy = std::make_unique<HostCopy>(tensor.bytes);
    if (tensor.bytes != 0) std::memcpy(copy->data.get(), tensor.data, tensor.bytes);
    void* const data = copy->data.get();
    run.keeps.push_back(std::move(copy));
    return data;
  }

  // Outputs that lie where other operands do are written elsewhere, and copied when all is done.
  Status RunApart(runtime::Stream& stream, const RunRequest& request, Program::RunOwner run,
                  const std::vector<size_t>& apart) {
    struct Copy {
      DeviceBlock block;
      void* to;
      uint64_t bytes;
    };
    auto copies = std::make_shared<std::vector<Copy>>();
    const std::span<void*> out = std::span(run->bindings.bases).subspan(kFirstInputRegion + request.inputs.size());
    for (const size_t index : apart) {
      const uint64_t bytes = program_->output_bytes(index);
      REPRISE_ASSIGN_OR_RETURN(DeviceBlock block, DeviceBlock::Allocate(stream.device(), bytes));
      out[index] = block.data();
      copies->push_back({std::move(block), request.outputs[index].data, bytes});
    }
    REPRISE_RETURN_IF_ERROR(program_->Submit(stream, std::move(run)));
    const auto copy_out = [copies, condition = request.condition,
                           runs_if = request.runs_if](device::RunContext&) -> Status {
      if (condition != nullptr && condition->holds.load(std::memory_order_acquire) != runs_if) return {};
      for (const Copy& each : *copies) std::memcpy(each.to, each.block.data(), each.bytes);
      return {};
    };
    return runtime::SubmitClosure(stream, "outputs of a compiled graph", copy_out);
  }

  // What the run submits behind this finds the constants in their place.
  Status EnsureConstants(runtime::Stream& stream, void* base) {
    for (;;) {
      std::shared_ptr<QueuedConstants> queued;
      {
        MutexLock lock(mutex_);
        if (!constants_written_) {
          // Memory of its own was never anybody else's; a stream that stores tasks runs none of them now.
          if (constants_.given == nullptr || stream.is_persistent()) {
            Program::WriteConstants(program_->constants(), base);
          } else {
            queued_ = std::make_shared<QueuedConstants>();
            queued_->values = program_->constants();
            queued_->state = QueuedConstants::kLost;
          }
          constants_written_ = true;
          if (drops_constants_) DropConstants();
        }
        if (queued_ == nullptr) return {};
        const uint32_t state = queued_->state.load(std::memory_order_acquire);
        if (state == QueuedConstants::kWritten) {
          queued_.reset();
          return {};
        }
        if (state == QueuedConstants::kLost) REPRISE_RETURN_IF_ERROR(QueuedConstants::Queue(stream, queued_, base));
        // Replays of what is captured now may come on any stream.
        if (queued_->stream == stream.id() && !stream.is_capturing()) return {};
        queued = queued_;
      }
      FutexWait(queued->state, QueuedConstants::kQueued, std::nullopt);
    }
  }

  void DropConstants() REPRISE_REQUIRES(mutex_) {
    program_->DropConstants();
    for (Node& node : graph_.nodes) node.constant.reset();
  }

  Graph graph_;
  const ProgramOwner program_;
  const std::vector<std::pair<uint32_t, uint32_t>> shared_;
  const bool drops_constants_;
  std::vector<Tensor> results_;
  std::vector<KnownTensor> known_inputs_;
  std::vector<KnownTensor> known_outputs_;
  Mutex mutex_;
  RegionMemory constants_ REPRISE_GUARDED_BY(mutex_);
  RegionMemory features_ REPRISE_GUARDED_BY(mutex_);
  bool constants_written_ REPRISE_GUARDED_BY(mutex_) = false;           // or queued
  std::shared_ptr<QueuedConstants> queued_ REPRISE_GUARDED_BY(mutex_);  // until they are known to be written
};

StatusOr<std::shared_ptr<Executable>> CompileOptimised(Graph graph, const CompileOptions& options) {
  if (IsStaged(graph)) return CompileStaged(std::move(graph), options);
  REPRISE_ASSIGN_OR_RETURN(Program* const program, Program::Build(graph, options));
  // Only pairs that both ends of the graph have.
  std::vector<std::pair<uint32_t, uint32_t>> shared;
  for (const std::pair<uint32_t, uint32_t>& pair : options.shared_inputs) {
    if (pair.first < graph.inputs.size() && pair.second < graph.results.size()) shared.push_back(pair);
  }
  return std::shared_ptr<Executable>(
      std::make_shared<StaticExecutable>(std::move(graph), program, std::move(shared), options.drops_constants));
}

}  // namespace

StatusOr<std::shared_ptr<Executable>> Executable::Compile(Graph graph, const CompileOptions& options) {
  if (options.is_optimised) {
    opdef::Facts facts;
    REPRISE_RETURN_IF_ERROR(InferShapes(graph, facts));
    return CompileOptimised(std::move(graph), options);
  }
  PassOptions passes = options.passes;
  if (options.bank != nullptr) ApplyFusions(graph, *options.bank, passes);
  REPRISE_RETURN_IF_ERROR(InlineCalls(graph));
  opdef::Facts facts;
  REPRISE_RETURN_IF_ERROR(InferShapes(graph, facts));
  passes.scratch_inputs = options.scratch_inputs;
  passes.shared_inputs = options.shared_inputs;
  PassRecords records;
  Graph given;
  if (!PictureFolder().empty()) given = graph;
  REPRISE_RETURN_IF_ERROR(RunPasses(graph, passes, &records));
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<Executable> executable, CompileOptimised(std::move(graph), options));
  executable->pass_records_ = std::move(records);
  if (!PictureFolder().empty()) WriteCompilationPicture(given, *executable);
  return executable;
}

}  // namespace reprise::compiler
