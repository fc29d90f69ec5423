/* SPDX-License-Identifier: Apache-2.0
 *
 * The way in for layers that bring their own computations, such as a framework's operators: an object that runs in
 * stream order like a kernel, once when eager and at every replay when captured.
 *
 *     class Scale final : public reprise::Operation {
 *      public:
 *       Scale(float* x, int64_t count, float by) : x_(x), count_(count), by_(by) {}
 *       void Run(uint64_t) override { for (int64_t i = 0; i < count_; ++i) x_[i] *= by_; }
 *       reprise::OperationInfo Describe() const override { return {"scale"}; }
 *       ...
 *     };
 *     reprise::LaunchOperation(stream, std::make_unique<Scale>(x, n, 2.0f));
 */
#ifndef REPRISE_OPERATION_H_
#define REPRISE_OPERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "memory_types.h"
#include "operands.h"
#include "random.h"

namespace reprise {

/** What dumps and error messages show of an operation. */
struct OperationInfo {
  std::string name;
  std::vector<Frame> stack;  ///< of the program when it was launched, innermost first; may be empty
  std::string shapes = {};   ///< of what it reads and writes: "float32[2,3], float32[3] -> float32[2,3]"; may be empty
};

/** Work in stream order. It must not hold references to what it reads and writes if streams keep that alive. */
class Operation {
 public:
  virtual ~Operation() = default;
  /** Computes. Never called by two threads at once, but by a different one each time: a worker, or a thread that waits
   *  for the stream. `seed`: fresh at each run when the launch named a generator, in a replay the one of the eager call
   *  at that moment; else 0. What it throws becomes the stream's error, with the name and the place of the operation,
   * and the number of an Exception (207001 for std::bad_alloc, else 507015): the next synchronisation reports it. Later
   * work of the stream goes on; of a replay, what has not run yet is left out, and the graph can be replayed again.
   * Must not wait for streams. */
  virtual void Run(uint64_t seed) = 0;
  /** Any thread, also while it runs. */
  virtual OperationInfo Describe() const = 0;
};

struct OperationOptions {
  Generator* generator = nullptr;  ///< borrowed during the call; moved on by one draw
  /// Foreign code that may wait for locks of the program: runs on a worker, never on a thread that waits for the
  /// stream, and shows as a host function. Not allowed in a task group.
  bool is_host_function = false;
  /// All memory that it touches, at most REPRISE_MAX_OPERANDS ranges; see operands.h. Without a value: not known.
  std::optional<std::vector<RepriseOperand>> operands = {};
};

/** Queues it on `stream` (null: the calling thread's current stream), or records it when that is being captured.
 *  Destroyed after its only run, or with the graph that recorded it, or when the launch is refused; on any thread.
 *  On a stream that updates a task group it takes the place of the next operation there; one that draws takes the place
 *  of one that draws, and keeps that one's generator.
 *  Throws Exception: 107000 null operation, operands that operands.h refuses; those of any submission. */
void LaunchOperation(void* stream, std::unique_ptr<Operation> operation, const OperationOptions& options = {});

/** For loops in Operation::Run: calls body(begin, end) over disjoint ranges that cover [0, count), on this thread and on
 *  idle ones of the device, and returns when all calls have returned. `item_bytes`: that one item reads and writes,
 *  about; it decides how many threads the loop is worth. Ranges depend on how many threads there are: results should
 *  not. Once a call has thrown, calls that have not begun are left out, and what it threw is thrown here. Elsewhere than
 *  in Run, and in a body, it is one call on this thread. */
void ParallelFor(int64_t count, int64_t item_bytes, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace reprise

#endif  // REPRISE_OPERATION_H_
