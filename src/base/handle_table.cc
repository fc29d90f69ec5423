// SPDX-License-Identifier: Apache-2.0
#include "base/handle_table.h"

#include <fmt/format.h>

namespace reprise {

const char* HandleKindName(uint8_t kind) noexcept {
  switch (static_cast<HandleKind>(kind)) {
    case HandleKind::kContext: return "context";
    case HandleKind::kStream: return "stream";
    case HandleKind::kEvent: return "event";
    case HandleKind::kModel: return "model";
    case HandleKind::kLane: return "graph-internal stream";
    case HandleKind::kTask: return "graph task";
    case HandleKind::kTaskGroup: return "task group";
    case HandleKind::kCondition: return "condition";
    case HandleKind::kBinary: return "kernel binary";
    case HandleKind::kBinaryData: return "kernel binary in memory";
    case HandleKind::kFunction: return "kernel function";
    case HandleKind::kKernelArgs: return "kernel argument";
    case HandleKind::kNotify: return "notify";
    case HandleKind::kCountNotify: return "counting notify";
    case HandleKind::kTensorDesc: return "aclTensorDesc";
    case HandleKind::kMemoryPool: return "memory pool";
    case HandleKind::kProfilerConfig: return "profiler configuration";
    case HandleKind::kProfilerSubscription: return "profiler subscription";
    case HandleKind::kProfilerStep: return "profiler step";
    case HandleKind::kProfilerStamp: return "profiler stamp";
    case HandleKind::kAllocatorDesc: return "allocator descriptor";
    case HandleKind::kPhysicalMemory: return "physical memory";
    case HandleKind::kLabel: return "label";
    case HandleKind::kLabelList: return "label list";
    case HandleKind::kTensor: return "aclTensor";
    case HandleKind::kScalar: return "aclScalar";
    case HandleKind::kArray: return "array";
    case HandleKind::kTensorList: return "aclTensorList";
    case HandleKind::kScalarList: return "aclScalarList";
    case HandleKind::kExecutor: return "aclOpExecutor";
    case HandleKind::kDataBuffer: return "aclDataBuffer";
    case HandleKind::kQueueBuffer: return "queue buffer";
    case HandleKind::kQueueAttr: return "queue attribute";
    case HandleKind::kQueueRoute: return "queue route";
    case HandleKind::kQueueRouteList: return "list of queue routes";
    case HandleKind::kQueueRouteQuery: return "query for queue routes";
    case HandleKind::kTdtItem: return "data item";
    case HandleKind::kTdtDataset: return "dataset";
    case HandleKind::kTdtChannel: return "channel";
    case HandleKind::kOpAttributes: return "aclopAttr";
    case HandleKind::kOpHandle: return "aclopHandle";
    case HandleKind::kGraphDumpOption: return "aclGraphDumpOption";
    case HandleKind::kCommunicator: return "communicator";
    case HandleKind::kModelDesc: return "aclmdlDesc";
    case HandleKind::kModelDataset: return "aclmdlDataset";
  }
  return nullptr;
}

std::string DescribeBadHandle(HandleState state, const void* handle, const char* expected) {
  switch (state) {
    case HandleState::kNull: return fmt::format("the {} handle is null", expected);
    case HandleState::kDestroyed: return fmt::format("{} handle {} was destroyed", expected, fmt::ptr(handle));
    case HandleState::kWrongKind:
      return fmt::format("{} is a handle of kind {}, not {}", fmt::ptr(handle), HandleKindName(HandleKindBits(handle)),
                         expected);
    case HandleState::kForeign:
    case HandleState::kLive: break;
  }
  return fmt::format("{} is no {} handle that this runtime made", fmt::ptr(handle), expected);
}

std::string HintForBadHandle(HandleState state, const char* expected) {
  switch (state) {
    case HandleState::kDestroyed:
      return fmt::format("use the {} before it is destroyed, and destroy it once", expected);
    case HandleState::kWrongKind: return fmt::format("pass a handle of kind {} for this parameter", expected);
    case HandleState::kNull:
    case HandleState::kForeign:
    case HandleState::kLive: break;
  }
  return fmt::format("pass the {} handle that its creating call wrote", expected);
}

}  // namespace reprise
