// SPDX-License-Identifier: Apache-2.0
//
// Generators of random numbers whose seed and offset survive capture and replay. A state counts how many numbers were
// drawn (the offset). A captured draw reads the seed and the offset from device memory when it runs; each replay writes
// them anew and moves the state on by what the whole graph draws. So a replay draws what the same calls would have
// drawn eagerly at that moment.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/status.h"

namespace reprise::rng {

class GeneratorState;

/// What a generator asks of those who know streams, captures and memory. Threads: thread-safe.
class Environment {
 public:
  virtual ~Environment() = default;
  /// Of the calling thread's current stream; 0: it is not captured.
  virtual uint64_t CurrentCapture(int device) = 0;
  /// The graph that owns the capture takes note of a state that draws in it. 107030 when no graph owns the capture, or
  /// it belongs to the body of a conditional task.
  virtual Status Register(uint64_t capture, std::shared_ptr<GeneratorState> state) = 0;
  /// 8 bytes of device memory outside every private pool.
  virtual StatusOr<int64_t*> AllocateCell(int device) = 0;
  virtual void FreeCell(int64_t* cell) = 0;
  /// Queues two writes; the cells are in use on `stream` until it has passed them.
  virtual Status WriteCells(void* stream, int64_t* seed_cell, int64_t seed, int64_t* offset_cell, int64_t offset) = 0;
};

/// What a draw needs: numbers, or where they will stand when it runs. Trivially copyable, part of a task's payload.
struct PhiloxArguments {
  uint64_t seed = 0;
  uint64_t offset = 0;  ///< numbers drawn before, a multiple of 4
  const int64_t* seed_cell = nullptr;  ///< not null: captured; the values above are not used
  const int64_t* offset_cell = nullptr;
  uint64_t offset_in_graph = 0;  ///< captured: added to what the cell holds

  bool captured() const { return seed_cell != nullptr; }
  /// Reads device memory: while the task runs.
  uint64_t Seed() const { return captured() ? static_cast<uint64_t>(*seed_cell) : seed; }
  uint64_t Offset() const { return captured() ? static_cast<uint64_t>(*offset_cell) + offset_in_graph : offset; }
};

/// Threads: thread-safe; the state's mutex guards all of it, and is not held while memory is taken.
class GeneratorState : public std::enable_shared_from_this<GeneratorState> {
 public:
  static constexpr uint64_t kDefaultSeed = 67280421310721;

  GeneratorState(Environment& environment, int device, uint64_t seed = kDefaultSeed);
  ~GeneratorState();

  int device() const { return device_; }

  // ---- what a graph does with it; `capture` is the id of the capture
  /// The capture is over: what all its draws together move the offset by.
  uint64_t CaptureEpilogue(uint64_t capture);
  /// Before each replay: reads seed and offset and moves the offset on, in one step; then queues the writes of the
  /// cells. Nothing when no captured draw reads them.
  Status ReplayPrologue(uint64_t capture, uint64_t increment, void* stream);
  /// The graph is gone, or its capture has failed. Seed and offset stay.
  void RemoveCapture(uint64_t capture);

 private:
  friend class Generator;
  Environment& environment_;
  const int device_;
};

}  // namespace reprise::rng
