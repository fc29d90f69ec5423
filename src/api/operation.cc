// SPDX-License-Identifier: Apache-2.0
#include "reprise/operation.h"

#include <utility>

#include "api/streams.h"
#include "api/throw.h"
#include "rng/draw.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise {

void LaunchOperation(void* stream, std::unique_ptr<Operation> operation, const OperationOptions& options) {
  api::Call("reprise::LaunchOperation", [&]() -> Status {
    if (operation == nullptr) {
      return Error(kInvalidValue, "parameter operation is null")
          .Culprit("parameter operation")
          .Hint("pass a std::unique_ptr to an object whose class derives from reprise::Operation");
    }
    if (options.generator != nullptr && options.generator->impl() == nullptr) {
      return Error(kInvalidValue, "the generator was moved from")
          .Culprit("options.generator")
          .Hint("pass the generator that it was moved to");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, api::FindStreamOrCurrent(stream));
    runtime::AttachedOperands operands;
    if (options.operands.has_value()) {
      REPRISE_ASSIGN_OR_RETURN(operands, runtime::ReadOperands(options.operands->data(), options.operands->size()));
    }
    if (options.generator == nullptr) {
      return runtime::SubmitOperation(*on, std::move(operation), options.is_host_function, std::move(operands));
    }
    return rng::SubmitRandomOperation(*on, *options.generator->impl(), std::move(operation), options.is_host_function,
                                      std::move(operands));
  });
}

void ParallelFor(int64_t count, int64_t item_bytes, const std::function<void(int64_t begin, int64_t end)>& body) {
  runtime::ShareLoop(count, item_bytes, body);
}

}  // namespace reprise
