// SPDX-License-Identifier: Apache-2.0
//
// Draws as tasks: one kernel for each, eager and captured alike. What the numbers are stands in kernels/philox.h.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "kernels/philox.h"
#include "rng/generator.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::rng {

/// Offsets that one draw takes, whatever its size.
inline constexpr uint64_t kDrawIncrement = 4;

/// Queues a draw from `generator`. A draw of no elements is checked, and then neither queued nor charged.
///
/// Captured, each replay draws with the seed and the offset that the generator has then. On a stream that updates a
/// task group, the draw takes the place of another draw and goes on with that one's generator; `generator` is not
/// charged.
///
/// Errors: 107000 for types and parameters that do not fit, addresses that are null, not aligned or not device memory,
/// operands that overlap, a generator of another device; 207000 for a stream whose tasks are stored for a model; those
/// of Generator::Take and runtime::Submit. A probability tensor with something else than probabilities fails the task
/// with 507035.
///
/// Threads: thread-safe.
Status SubmitDraw(runtime::Stream& stream, Generator& generator, const kernels::DrawCall& call);

/// Foreign code that draws: at each run it gets a seed, the same in a replay as in the eager call at that moment.
using RandomClosure = std::function<Status(device::RunContext&, uint64_t seed)>;

/// Queues it as runtime::SubmitClosure does. `increment` as the code draws; 4 will do, as each seed is a sequence of
/// its own. 507009 on a stream that updates a task group; else as SubmitDraw.
Status SubmitRandomClosure(runtime::Stream& stream, Generator& generator, const char* name, RandomClosure closure,
                           uint64_t increment = kDrawIncrement);

/// Queues an operation that draws; in a task group it may take the place of another one, as a draw of SubmitDraw may.
Status SubmitRandomOperation(runtime::Stream& stream, Generator& generator, std::unique_ptr<Operation> operation,
                             bool is_host_function, runtime::AttachedOperands operands = nullptr);

}  // namespace reprise::rng
