// SPDX-License-Identifier: Apache-2.0
//
// Operands: the memory that a task reads and writes, as data. Liveness, dumps and pictures use this one source, and so
// does whatever has to know whether two tasks may run in another order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace reprise::ir {

enum class Access : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

/// A byte range that a task touches, at the addresses that it has when the task is asked.
struct Operand {
  const void* begin;
  uint64_t bytes;
  Access access;
  bool is_read() const { return (static_cast<uint8_t>(access) & static_cast<uint8_t>(Access::kRead)) != 0; }
  bool is_written() const { return (static_cast<uint8_t>(access) & static_cast<uint8_t>(Access::kWrite)) != 0; }
};

/// Takes what a task tells. Telling allocates nothing.
class OperandSink {
 public:
  virtual void Take(const Operand& operand) = 0;
  /// Words of an argument block. Each may be an address, of which nothing else is known: the task is opaque, too.
  virtual void TakeWords(const uint64_t* /*words*/, size_t /*count*/) {}
  /// The task may read and write more than it has told: only its code knows.
  virtual void TakeOpaque() {}

 protected:
  ~OperandSink() = default;
};

/// How a type of task tells its operands: a function, or a lambda that captures nothing. Has no default and takes no
/// null pointer, so that every type has to say something.
class TellOperands {
 public:
  using Function = void (*)(const void* payload, OperandSink& sink);

  template <std::convertible_to<Function> F>
  constexpr TellOperands(F function) : function_(function) {}  // NOLINT: type tables name functions
  TellOperands(std::nullptr_t) = delete;

  void operator()(const void* payload, OperandSink& sink) const { function_(payload, sink); }

 private:
  Function function_;
};

/// For tasks that touch no memory of the program: events, notifies, marks.
inline void NoOperands(const void* /*payload*/, OperandSink& /*sink*/) {}
/// For tasks that run foreign code.
inline void OpaqueOperands(const void* /*payload*/, OperandSink& sink) { sink.TakeOpaque(); }

struct TaskType;
struct Node;

/// Tells the operands of a task; nothing for a task that touches no memory.
void VisitOperands(const TaskType& type, const void* payload, OperandSink& sink);
void VisitOperands(const Node& node, OperandSink& sink);

/// The task tells everything that it reads and writes.
bool TellsAll(const TaskType& type, const void* payload);

}  // namespace reprise::ir
