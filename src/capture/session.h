// SPDX-License-Identifier: Apache-2.0
//
// Session: one capture. It belongs to its origin stream, owns the flat set of streams that take part, and is the sink
// of all of them. Every transition (begin, join, invalidate, end) happens under the context's capture_mutex.
//
// A capture is a transaction: whatever ends it puts context, thread and streams back as they were.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/order.h"
#include "model/model.h"
#include "runtime/context.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace reprise::capture {

using model::Model;
using model::TaskGroup;
using runtime::CaptureMode;

enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

/// Where a stream stands in its capture.
struct Standing {
  uint64_t capture = 0;          ///< 0: in none, or in one that is invalidated
  ir::LaneId lane = 0;           ///< of the stream
  uint32_t tasks = 0;            ///< of the lane up to the last one that can touch memory
  std::vector<uint32_t> before;  ///< by lane, what comes before whatever is submitted to the stream next
};

class Session final : public runtime::TaskSink, public model::Recorder {
 public:
  struct Member {
    runtime::Stream* stream;
    ir::LaneId lane;
    runtime::Event* forked_by = nullptr;  ///< only an address to compare with; the event may be gone
    std::string forked_by_text;
    TaskGroup* group = nullptr;  ///< open on this stream
    std::string group_opened;    ///< where
    int joined_by_thread = 0;
    std::string joined_by;  ///< the call, with REPRISE_TRACE_CALLS=1
    std::string last_call;  ///< of the last task, likewise
  };

  /// The capture that the stream takes part in, or null. With the context's capture_mutex held, for use beyond the
  /// call.
  static Session* Of(const runtime::Stream& stream);

  /// The capture to which the event's latest captured record belongs, while that capture is open. Another thread may
  /// end it at any time: without the capture_mutex only Describe and context mean something.
  struct CapturedRecord {
    std::shared_ptr<Session> session;
    ir::NodeId node = 0;
  };
  static CapturedRecord FindCaptured(runtime::Event& event);

  Model& model() const { return *model_; }
  runtime::Stream& origin() const { return *origin_; }
  CaptureMode mode() const { return mode_; }
  bool invalidated() const { return !why_.ok(); }
  const std::vector<Member>& members() const { return members_; }
  const std::string& Describe() const override { return description_; }
  const runtime::Context& context() const { return *context_; }
  int begin_thread() const { return begin_thread_; }
  /// Under REPRISE_CAPTURE_POLICY=strict or REPRISE_STRICT=1 that invalidates the capture.
  void Refused(const Status& error) override;
  void Abandon() override { Detach(); }

  uint64_t capture_id() const override { return id_; }
  void Forget(runtime::Stream& stream) override;

 private:
  friend Status Begin(runtime::Stream& stream, CaptureMode mode, Model* body);
  friend Status BeginGroup(runtime::Stream& stream);
  friend StatusOr<TaskGroup*> EndGroup(runtime::Stream& stream);
  friend StatusOr<Model*> End(runtime::Stream& stream);
  friend Status RecordEvent(runtime::Event& event, runtime::Stream& stream, bool external);
  friend Status WaitEvent(runtime::Stream& stream, runtime::Event& event, uint32_t timeout_s, bool external);
  friend Standing StandingOf(const runtime::Stream& stream);

  Session() = default;

  Member& MemberOf(const runtime::Stream& stream);
  Status CheckGroups(runtime::Stream& stream, const ir::Task& task);
  Status Record(runtime::Stream& stream, const ir::Task& task, bool& taken) override;
  /// The other end of a record of this capture.
  Status AddWait(runtime::Stream& stream, ir::NodeId record);
  Status Join(runtime::Stream& stream, runtime::Event& event, ir::NodeId record);
  void Invalidate(Status why);
  void Detach();
  Status CheckJoined() const;
  Status SealEvents();

  uint64_t id_ = 0;
  std::string description_;
  runtime::Context* context_ = nullptr;
  Model* model_ = nullptr;
  runtime::Stream* origin_ = nullptr;
  CaptureMode mode_ = CaptureMode::kGlobal;
  int begin_thread_ = 0;
  std::shared_ptr<runtime::CaptureCounts> thread_counts_;
  std::vector<Member> members_;
  size_t last_member_ = 0;
  Status why_;  ///< of the invalidation
  size_t open_groups_ = 0;
  Status group_error_;  ///< what the end of the open group will return
  std::vector<ir::NodeId> records_;
  std::unique_ptr<ir::Order> order_;  ///< once somebody has asked for it
};

/// `stream` becomes the origin of a new model, or of `body`, a sub model that was not captured yet.
Status Begin(runtime::Stream& stream, CaptureMode mode, Model* body = nullptr);

/// aclmdlRICaptureEnd: the finished model. On most failures the capture is over and everything is as before it began.
StatusOr<Model*> End(runtime::Stream& stream);

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  Model* model = nullptr;
};
CaptureInfo Info(const runtime::Stream& stream);

/// In no capture, too, when there is no memory to say more. The first time it looks at the whole graph, later at what
/// is new.
Standing StandingOf(const runtime::Stream& stream);

/// 107030 when an open capture forbids this thread the unsafe call `api` now.
Status CheckUnsafe(const char* api);
/// One of the captures that are open in the process; empty: none is.
std::string DescribeOpenCapture();
/// Whether CheckUnsafe would refuse.
bool UnsafeIsRefused(runtime::Context& context);

/// 107029 for a stream that is not being captured, with how its last capture failed. With the context's capture_mutex
/// held.
Status NotCaptured(const runtime::Stream& stream);
/// 507000 for a stream whose creation flags exclude captures.
Status CheckFlags(const runtime::Stream& stream);
/// As CheckFlags; 107005 for a stream that is bound to a built model, 207000 for a default stream.
Status CheckCapturable(const runtime::Stream& stream);
/// 107027 when any stream of the context is being captured.
Status CheckNoCaptureIn(runtime::Context& context, const char* api);
/// 107028 when the event's latest captured record belongs to a running capture.
Status CheckEventNotCaptured(runtime::Event& event, const char* api);

/// Event calls that look at captures first.
Status RecordEvent(runtime::Event& event, runtime::Stream& stream, bool external);
Status WaitEvent(runtime::Stream& stream, runtime::Event& event, uint32_t timeout_s, bool external);
Status ResetEvent(runtime::Event& event, runtime::Stream& stream);

/// The stream's switch for texts of operators: on only while capturing, and then that of the capture's origin.
uint32_t CacheOpInfo(const runtime::Stream& stream);

/// The node that the calling thread submitted last, if its stream is being captured; for attached texts.
Status AttachExtendInfo(std::string text);
Status AttachOpInfo(std::string bytes);

}  // namespace reprise::capture
