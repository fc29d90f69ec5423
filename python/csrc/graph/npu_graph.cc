// SPDX-License-Identifier: Apache-2.0
#include "graph/npu_graph.h"

#include <acl/acl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <reprise/memory.h>
#include <reprise/reprise.h>

#include <map>
#include <mutex>
#include <utility>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/capture_places.h"
#include "device/runtime.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

using reprise::CaptureMode;
using reprise::GraphState;

// Which object captures with which graph of the core.
struct Capturing {
  std::mutex mutex;
  std::map<const reprise::Graph*, std::weak_ptr<NPUGraph>> graphs;
};

Capturing& TheCapturing() {
  static auto* const capturing = new Capturing;
  return *capturing;
}

void KeepOpInfo(const NPUStream& stream, bool keep) {
  aclrtStreamAttrValue value{};
  value.cacheOpInfoSwitch = keep ? 1 : 0;
  (void)aclrtSetStreamAttribute(stream.handle(), ACL_STREAM_ATTR_CACHE_OP_INFO, &value);  // for insight only
}

c10::Device OnDevice(c10::DeviceIndex device) { return {c10::kPrivateUse1, device}; }

}  // namespace

NPUGraph::NPUGraph(bool keep_graph)
    : core_(std::make_unique<reprise::Graph>(reprise::Graph::Options{keep_graph})), keep_graph_(keep_graph) {}

NPUGraph::~NPUGraph() {
  reset();
  if (!IsAlive()) (void)core_.release();  // NOLINT(bugprone-unused-return-value): the process ends
}

// ---- Capture ----

void NPUGraph::capture_begin(c10::MempoolId_t pool, CaptureMode mode, bool report_shape) {
  EnsureContext();
  const NPUStream stream = CurrentStream();
  if (!partial_.empty()) reset();
  const GraphState state = core_->state();
  const bool may_begin = state == GraphState::kEmpty || state == GraphState::kFailed;
  if (may_begin) {  // else the core refuses it
    TORCH_CHECK(!stream.is_external(), "External NPU stream is not supported by capture_begin: capture on a stream of ",
                "torch.npu.Stream()");
    bodies_.clear();
  }
  const bool keeps_info = may_begin && report_shape && !stream.is_capturing();
  if (keeps_info) KeepOpInfo(stream, true);
  try {
    reprise::Graph::CaptureOptions options;
    options.stream = stream.handle();
    options.pool = {pool.first, pool.second};
    options.mode = mode;
    Guarded([&] {
      const ReleaseGil no_gil;
      core_->CaptureBegin(options);
    });
  } catch (...) {
    if (keeps_info) KeepOpInfo(stream, false);
    throw;
  }
  device_ = stream.device_index();
  stream_ = stream.id();
  mode_ = mode;
  failure_.clear();
  NoteCaptureBegin(stream);
  Capturing& capturing = TheCapturing();
  const std::lock_guard lock(capturing.mutex);
  capturing.graphs[core_.get()] = weak_from_this();
  liveness_ = GraphLiveness::Begin(core_.get());
}

void NPUGraph::capture_end() {
  if (core_->state() == GraphState::kCapturing) {
    const NPUStream current = CurrentStream(device_);
    // A relaxed capture may end in another thread, but on its stream. What else is wrong, the core knows.
    TORCH_CHECK(mode_ != CaptureMode::kRelaxed || !bodies_.empty() || current.id() == stream_,
                "capture_end must be called on the same stream as capture_begin: ", current.unwrap(),
                " is current; make the captured stream current and call capture_end again, the capture is still open");
  }
  try {
    try {
      const ReleaseGil no_gil;
      core_->CaptureEnd();
    } catch (const reprise::Exception& error) {
      const std::string place = PythonPlace();
      failure_ = error.cause() + (place.empty() ? "" : ", at " + place);
      Raise(error);
    }
  } catch (...) {
    if (core_->state() != GraphState::kCapturing) {
      CaptureIsOver();
      LeaveBodies(0);
    }
    throw;
  }
  CaptureIsOver();
  WarnIfEmpty();
}

void NPUGraph::CaptureIsOver() noexcept {
  if (liveness_ != nullptr) liveness_->End();
  Capturing& capturing = TheCapturing();
  const std::lock_guard lock(capturing.mutex);
  if (capturing.graphs.erase(core_.get()) != 0) NoteCaptureEnd(device_, stream_);
}

void NPUGraph::WarnIfEmpty() {
  if (warned_empty_ || !partial_.empty()) return;  // the exception of the body is enough
  reprise::GraphStats stats{};
  void* const model = Guarded([&] { return keep_graph_ ? core_->raw_graph() : core_->raw_executable(); });
  Check(reprise::GetGraphStats(model, &stats), "reprise::GetGraphStats");
  if (stats.tasks != 0) return;
  warned_empty_ = true;
  TORCH_WARN(
      "The NPU Graph is empty: nothing was submitted to the captured stream. Work on other streams belongs to a ",
      "graph only when they were forked from the captured one, by an event.");
}

std::shared_ptr<NPUGraph> NPUGraph::CurrentlyCapturing() {
  TORCH_CHECK(IsInitialized() && CurrentStream().is_capturing(),
              "the current stream is not currently capturing: call this between capture_begin and capture_end, with a "
              "stream of that capture current");
  const reprise::Graph* const core = Guarded([] { return &reprise::Graph::Capturing(CurrentStream().handle()); });
  std::shared_ptr<NPUGraph> graph;
  {
    Capturing& capturing = TheCapturing();
    const std::lock_guard lock(capturing.mutex);
    if (const auto found = capturing.graphs.find(core); found != capturing.graphs.end()) graph = found->second.lock();
  }
  TORCH_CHECK(graph != nullptr, "the current stream is captured, but not by a torch.npu.NPUGraph");
  TORCH_CHECK(!graph->owned_by_accelerator_,
              "the graph that is capturing belongs to a torch.accelerator.Graph, which does not hand it out: use "
              "torch.npu.graph if you need it");
  return graph;
}

// ---- Conditions ----

void NPUGraph::begin_capture_to_if_node(const at::Tensor& predicate) {
  if (core_->state() == GraphState::kCapturing) {  // else the core refuses it
    TORCH_CHECK(predicate.defined() && predicate.is_privateuseone(), "the predicate must be on an npu device, not on ",
                predicate.defined() ? predicate.device().str() : "none",
                ": compute it from tensors of npu in the capture");
    TORCH_CHECK(predicate.numel() == 1, "the predicate must be a scalar tensor (one element), this one has sizes ",
                predicate.sizes());
    TORCH_CHECK(predicate.scalar_type() == at::kBool, "only bool tensors can be predicates, this one is ",
                predicate.scalar_type());
    TORCH_CHECK(predicate.get_device() == device_,
                "the predicate must be on the device of the capture, npu:", static_cast<int>(device_), ", not on ",
                predicate.device());
  }
  const c10::OptionalDeviceGuard device(device_ < 0 ? std::nullopt : std::make_optional(OnDevice(device_)));
  const NPUStream parent = CurrentStream();
  const bool is_open = core_->state() == GraphState::kCapturing;
  const NPUStream stream = StreamFromPool(0, parent.device_index());
  const void* const address = is_open ? predicate.const_data_ptr() : nullptr;
  Guarded([&] {
    const ReleaseGil no_gil;
    (void)core_->BeginIf(address, stream.handle());
  });
  bodies_.push_back({stream, parent});
  SetCurrentStream(stream);
}

template <class End>
void NPUGraph::EndBody(End&& end) {
  const size_t left = bodies_.empty() ? 0 : bodies_.size() - 1;
  try {
    Guarded([&] {
      const ReleaseGil no_gil;
      end();
    });
  } catch (...) {
    LeaveBodies(left);
    throw;
  }
  LeaveBodies(left);
}

void NPUGraph::end_capture_to_conditional_node() {
  EndBody([&] { core_->EndConditional(); });
}

void NPUGraph::abandon_conditional_node(const std::string& why) {
  EndBody([&] { core_->AbandonConditional(why); });
}

// The core has closed all but `left` bodies: the stream outside of them is current again, unless the user has chosen
// another one meanwhile.
void NPUGraph::LeaveBodies(size_t left) {
  while (bodies_.size() > left) {
    const Body body = bodies_.back();
    bodies_.pop_back();
    if (CurrentStream(device_) == body.stream) SetCurrentStream(body.parent);
  }
}

// ---- Replay and the rest ----

void NPUGraph::instantiate() {
  Guarded([&] {
    const ReleaseGil no_gil;
    core_->Instantiate();
  });
}

void NPUGraph::replay() {
  if (liveness_ != nullptr && liveness_->is_broken()) [[unlikely]]
    liveness_->Refuse();
  if (!partial_.empty()) [[unlikely]] {
    RefuseCall("NPUGraph.replay", 507011,
               "the graph cannot be replayed: its capture was left by an exception (" + partial_ +
                   "), so it holds only what came before",
               partial_, "a failed capture leaves a graph that cannot be replayed until it is captured again");
  }
  const c10::OptionalDeviceGuard device(device_ < 0 ? std::nullopt : std::make_optional(OnDevice(device_)));
  EnsureContext();
  const NPUStream stream = CurrentStream();
  try {
    const ReleaseGil no_gil;  // a full queue makes it wait
    core_->Replay(stream.handle());
  } catch (const reprise::Exception& error) {
    if (core_->state() != GraphState::kFailed || failure_.empty()) Raise(error);
    Raise(reprise::Exception(error.code(), error.what(), error.cause(), error.culprit() + ": " + failure_,
                             "a failed capture leaves a graph that cannot be replayed until it is captured again"));
  }
  if (IsBlocking() && !stream.is_external() && !waits_for_update_) stream.synchronize();
}

void NPUGraph::reset() noexcept {
  if (!IsAlive()) return;
  try {
    const ReleaseGil no_gil;
    CaptureIsOver();
    core_->Reset();
    liveness_.reset();
    partial_.clear();
    LeaveBodies(0);
  } catch (const std::exception& error) {
    TORCH_WARN("NPUGraph.reset: ", error.what());
  }
}

c10::MempoolId_t NPUGraph::pool() const {
  const reprise::PoolId pool = Guarded([&] { return core_->pool(); });
  return {pool.capture, pool.handle};
}

// The core keeps the editable form of every graph, so there is nothing to switch.
void NPUGraph::enable_debug_mode() {}

bool NPUGraph::debug_dump(const std::string& path, bool every_task) {
  const GraphState state = core_->state();
  if (state != GraphState::kCaptured && state != GraphState::kReady) {
    TORCH_WARN("NPUGraph.debug_dump: ", path, " is not written, there is no captured graph",
               state == GraphState::kFailed ? ": the capture has failed" : "");
    return false;
  }
  return Guarded([&] {
    const ReleaseGil no_gil;
    return core_->Dump(path, every_task);
  });
}

uint64_t NPUGraph::raw_graph() const {
  return reinterpret_cast<uint64_t>(Guarded([&] { return core_->raw_graph(); }));
}

uint64_t NPUGraph::raw_executable() const {
  return reinterpret_cast<uint64_t>(Guarded([&] { return core_->raw_executable(); }));
}

c10::MempoolId_t GraphPoolHandle() {
  const reprise::PoolId pool = reprise::NewPoolId();
  return {pool.capture, pool.handle};
}

}  // namespace torch_npu
