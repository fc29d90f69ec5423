// SPDX-License-Identifier: Apache-2.0
//
// NPUGraph: reprise::Graph with what torch adds: streams by their torch ids, warnings, the registry that finds the
// graph of a capture, conditional bodies with checks of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <reprise/graph.h>

#include <memory>
#include <string>
#include <vector>

#include "device/stream.h"
#include "graph/liveness.h"

namespace torch_npu {

/// One thread at a time, except replay. None of the functions needs the GIL; those that may wait release it if held.
class NPUGraph : public std::enable_shared_from_this<NPUGraph> {
 public:
  explicit NPUGraph(bool keep_graph = false);
  virtual ~NPUGraph();
  NPUGraph(const NPUGraph&) = delete;
  NPUGraph& operator=(const NPUGraph&) = delete;

  /// On the current stream. {0,0}: a pool of its own. Throws for pools with two halves, for TASK_QUEUE_ENABLE=2.
  /// `report_shape`: the runtime keeps what operators report about their tensors (aclrtCacheLastTaskOpInfo).
  void capture_begin(c10::MempoolId_t pool = {0, 0}, reprise::CaptureMode mode = reprise::CaptureMode::kGlobal,
                     bool report_shape = true);
  /// Warns once when nothing was captured ("NPU Graph is empty").
  void capture_end();
  void instantiate();
  /// On the current stream of the graph's device; with ASCEND_LAUNCH_BLOCKING=1 waits for it,
  /// unless it waits in turn for an update that may come later.
  void replay();
  void set_waits_for_update(bool waits) { waits_for_update_ = waits; }
  /// The program's own code in the capture has failed: replay is refused until the graph is captured again.
  void mark_partial(const std::string& why) { partial_ = why; }
  /// Whoever replays sees to it that what the graph uses is there: nobody looks for it.
  void forget_uses() { liveness_.reset(); }
  void reset() noexcept;
  c10::MempoolId_t pool() const;

  /// Sticky, for the process.
  static void enable_debug_mode();
  /// False, and a warning, when there is nothing to write.
  bool debug_dump(const std::string& path, bool every_task = false);
  uint64_t raw_graph() const;
  uint64_t raw_executable() const;

  /// The graph that owns the current stream's capture, also of a body of a condition.
  static std::shared_ptr<NPUGraph> CurrentlyCapturing();
  void begin_capture_to_if_node(const at::Tensor& predicate);
  void end_capture_to_conditional_node();
  /// After a failure within the body: restores what the end would, and lets capture_end fail.
  void abandon_conditional_node(const std::string& why);

  reprise::Graph& core() { return *core_; }
  /// Made by torch.accelerator.Graph: CurrentlyCapturing refuses it.
  void set_owned_by_accelerator(bool owned) { owned_by_accelerator_ = owned; }

 private:
  struct Body {
    NPUStream stream, parent;
  };

  template <class End>
  void EndBody(End&& end);
  void LeaveBodies(size_t left);
  void CaptureIsOver() noexcept;
  void WarnIfEmpty();

  std::unique_ptr<reprise::Graph> core_;  // left behind when the runtime is gone
  bool keep_graph_;
  bool warned_empty_ = false;
  bool owned_by_accelerator_ = false;
  bool waits_for_update_ = false;
  std::string failure_;  // what the end of the last capture said, and where
  std::string partial_;  // why the capture is not whole; empty: it is
  std::shared_ptr<GraphLiveness> liveness_;
  c10::DeviceIndex device_ = -1;
  reprise::CaptureMode mode_ = reprise::CaptureMode::kGlobal;
  c10::StreamId stream_ = 0;  // of the capture
  std::vector<Body> bodies_;  // open ones, innermost last
};

/// {0, n}, never given twice.
c10::MempoolId_t GraphPoolHandle();

}  // namespace torch_npu
