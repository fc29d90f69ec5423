// SPDX-License-Identifier: Apache-2.0
//
// torch.accelerator.Graph on this device.
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <memory>
#include <string>

#include "graph/npu_graph.h"

namespace torch_npu {
namespace {

reprise::CaptureMode ModeOf(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::Default:
    case at::GraphCaptureMode::Global: return reprise::CaptureMode::kGlobal;
    case at::GraphCaptureMode::ThreadLocal: return reprise::CaptureMode::kThreadLocal;
    case at::GraphCaptureMode::Relaxed: return reprise::CaptureMode::kRelaxed;
  }
  TORCH_CHECK(false, "capture mode ", static_cast<int>(mode), " is not known: expected 0 to 3");
}

/// An NPUGraph that NPUGraph::CurrentlyCapturing does not hand out: torch owns it.
class AcceleratorGraph final : public at::GraphImplInterface {
 public:
  explicit AcceleratorGraph(const at::GraphImplArgs& args) : graph_(std::make_shared<NPUGraph>(args.keep_graph)) {
    graph_->set_owned_by_accelerator(true);
  }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    graph_->capture_begin(pool, ModeOf(mode));
  }
  void capture_end() override { graph_->capture_end(); }
  void instantiate() override { graph_->instantiate(); }
  void replay() override { graph_->replay(); }
  void reset() override { graph_->reset(); }
  at::MempoolId_t pool() const override { return graph_->pool(); }
  // Not pure, or not there, in some versions of the interface.
  void enable_debug_mode() { NPUGraph::enable_debug_mode(); }             // NOLINT
  void debug_dump(const std::string& path) { graph_->debug_dump(path); }  // NOLINT

 private:
  const std::shared_ptr<NPUGraph> graph_;
};

}  // namespace
}  // namespace torch_npu

namespace at {
// Found by the name of the device in capitals.
REGISTER_GRAPH_IMPL(NPU, torch_npu::AcceleratorGraph)
}  // namespace at
