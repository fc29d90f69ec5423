/* SPDX-License-Identifier: Apache-2.0
 *
 * Context: the streams on which operations run.
 */
#ifndef ATB_CONTEXT_H_
#define ATB_CONTEXT_H_

#include <vector>

#include "types.h"

namespace atb {

enum ExecuteType : int { EXECUTE_NORMAL = 0, EXECUTE_PRELAUNCH, EXECUTE_LAUNCH };
enum LaunchMode : int { KERNEL_LAUNCH_MODE = 0, GRAPH_LAUNCH_MODE };

/** Thread-compatible. */
class Context {
 public:
  Context() = default;
  virtual ~Context() = default;
  /** Null: the default stream of the current context of the runtime. */
  virtual Status SetExecuteStream(aclrtStream stream) = 0;
  virtual aclrtStream GetExecuteStream() const = 0;
  /** Without effect: nothing is copied before an operation runs. */
  virtual Status SetAsyncTilingCopyStatus(bool enable) = 0;
  virtual bool GetAsyncTilingCopyStatus() const = 0;
  /** The first one is that of SetExecuteStream. */
  virtual Status SetExecuteStreams(const std::vector<aclrtStream>& streams) = 0;
  virtual std::vector<aclrtStream> GetExecuteStreams() = 0;
  /** 207000 for anything but EXECUTE_NORMAL. */
  virtual Status SetExecuteType(ExecuteType type) = 0;
  virtual ExecuteType GetExecuteType() = 0;
  /** 207000 for anything but KERNEL_LAUNCH_MODE. */
  virtual Status SetLaunchMode(LaunchMode mode) = 0;
  virtual LaunchMode GetLaunchMode() = 0;
};

Status CreateContext(Context** context);
Status DestroyContext(Context* context);

}  // namespace atb

#endif  // ATB_CONTEXT_H_
