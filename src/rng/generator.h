// SPDX-License-Identifier: Apache-2.0
//
// Generators of random numbers whose seed and offset survive capture and replay. A state counts how many numbers were
// drawn (the offset). A captured draw reads the seed and the offset from device memory when it runs; each replay writes
// them anew and moves the state on by what the whole graph draws. So a replay draws what the same calls would have
// drawn eagerly at that moment.
//
// Who calls what, when graph G captures two draws of state S and is replayed:
//
//     Take ── Environment::Register (G notes S), two cells ── offset_in_graph 0
//     Take ───────────────────────────────────────────────── offset_in_graph 4
//     end of capture: G calls CaptureEpilogue ─────────────── 8, which G keeps
//     each replay:    G calls ReplayPrologue(8) ───────────── cells := seed, offset; offset += 8; then the graph runs
//     G goes:         G calls RemoveCapture ───────────────── cells are freed
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/mutex.h"
#include "base/status.h"

namespace reprise::rng {

class GeneratorState;

/// What a generator asks of those who know streams, captures and memory. No lock of a state is held while one of these
/// functions runs. Threads: thread-safe.
class Environment {
 public:
  virtual ~Environment() = default;
  /// The capture of the calling thread's current stream; 0: it is not captured. Ids are those of open captures; one may
  /// come again when the graph that had it has called RemoveCapture.
  virtual uint64_t CurrentCapture(int device) = 0;
  /// The capture that a stream (a handle) takes part in, also one that it was forked into; 0: none.
  virtual uint64_t CaptureOf(void* stream) = 0;
  /// The graph that owns the capture takes note of a state that draws in it; more than once is like once. 107030 when
  /// no graph owns the capture, or it belongs to the body of a conditional task ("RNG inside conditional nodes is not
  /// supported").
  virtual Status Register(uint64_t capture, std::shared_ptr<GeneratorState> state) = 0;
  /// 8 bytes of device memory outside every private pool.
  virtual StatusOr<int64_t*> AllocateCell(int device) = 0;
  virtual void FreeCell(int64_t* cell) noexcept = 0;
  /// Queues two writes; the cells are in use on `stream` until it has passed them.
  virtual Status WriteCells(void* stream, int64_t* seed_cell, int64_t seed, int64_t* offset_cell, int64_t offset) = 0;
};

/// The one of the process; the layer that knows graphs defines it.
Environment& TheEnvironment();

/// What a draw needs: numbers, or where they will stand when it runs. Trivially copyable, part of a task's payload.
struct PhiloxArguments {
  uint64_t seed = 0;
  uint64_t offset = 0;                 ///< numbers drawn before, a multiple of 4
  const int64_t* seed_cell = nullptr;  ///< not null: captured; the values above are not used
  const int64_t* offset_cell = nullptr;
  uint64_t offset_in_graph = 0;  ///< captured: added to what the cell holds

  bool captured() const { return seed_cell != nullptr; }
  /// Reads device memory: while the task runs.
  uint64_t Seed() const { return captured() ? static_cast<uint64_t>(*seed_cell) : seed; }
  uint64_t Offset() const { return captured() ? static_cast<uint64_t>(*offset_cell) + offset_in_graph : offset; }
  /// A seed for a generator of foreign code that makes the numbers of this draw; no draw of ours uses the same words.
  uint64_t ForeignSeed() const;
};

/// Seed and offset, and what the captures that draw from them need. Several generators may share one.
///
/// `capture` is the id of a capture; where a function says so, 0 stands for none. In a capture the offset is that of
/// the capture: how many numbers it has drawn so far. The first call for a capture registers the state there.
///
/// Threads: thread-safe; the state's mutex guards all of it, and is the last one of any chain: it is held neither while
/// memory is taken nor while the environment is called.
class GeneratorState : public std::enable_shared_from_this<GeneratorState> {
 public:
  static constexpr uint64_t kDefaultSeed = 67280421310721;
  /// Offsets are multiples of this and at most kMaxOffset.
  static constexpr uint64_t kUnit = 4;
  static constexpr uint64_t kMaxOffset = static_cast<uint64_t>(INT64_MAX) / kUnit * kUnit;

  GeneratorState(Environment& environment, int device, uint64_t seed = kDefaultSeed, uint64_t offset = 0);
  ~GeneratorState();

  int device() const { return device_; }
  Environment& environment() const { return environment_; }

  // ---- What generators do with it; capture may be 0 ----
  uint64_t seed() const;
  struct Values {
    uint64_t seed = 0;
    uint64_t offset = 0;
  };
  /// Both at one moment; the offset is that of the capture, if there is one.
  StatusOr<Values> Get(uint64_t capture);
  /// Sets both. In a capture: 107030 ("new seed") unless the seed is the one that the state has. 107000 for an offset
  /// that is no multiple of 4 or too large.
  Status Set(Values values, uint64_t capture);
  /// Sets the seed, and the offset to 0. In a capture the same seed changes nothing, another is 107030.
  Status SetSeed(uint64_t seed, uint64_t capture);
  Status SetOffset(uint64_t offset, uint64_t capture);
  /// What the next draw uses, and moves the offset on by `increment`, rounded up to a multiple of 4. 207012 when the
  /// offset would be too large; then nothing has changed.
  StatusOr<PhiloxArguments> Take(uint64_t increment, uint64_t capture);

  // ---- What a graph does with it ----
  /// The capture is over: what all its draws together move the offset by.
  uint64_t CaptureEpilogue(uint64_t capture);
  /// Before each replay: reads seed and offset and moves the offset on, in one step; then queues the writes of the
  /// cells on `stream` (a handle). The stream must wait for an earlier replay of the same graph first: its draws still
  /// read the cells. Nothing when no captured draw reads them, whatever the increment; and also with the increment 0
  /// when one does. 107027 for a stream that is being captured; 207012 as Take.
  Status ReplayPrologue(uint64_t capture, uint64_t increment, void* stream);
  /// The graph is gone, or its capture has failed. Seed and offset stay.
  void RemoveCapture(uint64_t capture);

 private:
  struct Cells;
  struct InCapture {
    std::shared_ptr<Cells> cells;
    uint64_t offset = 0;
    bool consumed = false;  // some draw reads the cells
  };

  Status RegisterIn(uint64_t capture);
  /// Calls fn(InCapture&) with the mutex held, after the state was registered in the capture.
  template <class Fn>
  Status WithCapture(uint64_t capture, Fn fn);

  Environment& environment_;
  const int device_;
  mutable Mutex mutex_;
  uint64_t seed_ REPRISE_GUARDED_BY(mutex_);
  uint64_t offset_ REPRISE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, InCapture> captures_ REPRISE_GUARDED_BY(mutex_);
};

/// What users hold: a state that can be exchanged. Calls ask the environment whether the current stream of the calling
/// thread is captured; draws ask about their own stream.
///
/// Refused in a capture (107027): Create, Clone, NewSeed, SetOffset, GetOffset, EngineInputs.
///
/// Threads: thread-safe; its mutex comes before that of the state.
class Generator {
 public:
  static constexpr size_t kStateBytes = 16;

  /// Seed 67280421310721, offset 0.
  static StatusOr<std::shared_ptr<Generator>> Create(Environment& environment, int device);
  /// Adopts a state; in captures, too.
  explicit Generator(std::shared_ptr<GeneratorState> state);

  /// An independent generator with the same seed and offset.
  StatusOr<std::shared_ptr<Generator>> Clone() const;
  int device() const;

  uint64_t CurrentSeed() const;
  Status SetCurrentSeed(uint64_t seed);
  /// Draws a seed that nobody can foresee, sets and returns it.
  StatusOr<uint64_t> NewSeed();

  /// Of the state, outside of captures.
  StatusOr<uint64_t> GetOffset() const;
  Status SetOffset(uint64_t offset);
  /// The offset of the state; in a capture, the offset within the capture.
  StatusOr<uint64_t> PhiloxOffset() const;
  Status SetPhiloxOffset(uint64_t offset);

  /// Seed and offset, 64 bits each, little endian. In a capture the offset is that of the capture, and such a state
  /// means something only inside the same capture. A state with another offset than 0 that was saved outside is charged
  /// on top of the state's own offset at each replay.
  using StateBytes = std::array<uint8_t, kStateBytes>;
  StatusOr<StateBytes> GetState() const;
  /// 16 bytes as above, or 8: the seed alone, with the offset 0. 107000 for other sizes ("RNG state is wrong size").
  Status SetState(std::span<const uint8_t> bytes);

  /// A new generator that shares the state.
  std::shared_ptr<Generator> GraphsafeGetState() const;
  /// Shares the state of `other` from now on. 107000 ("NPU Generator") when there is none, or it is of another device.
  Status GraphsafeSetState(const Generator* other);

  /// For a draw on a stream (a handle).
  StatusOr<PhiloxArguments> Take(uint64_t increment, void* stream);
  /// Values for those who cannot read them later.
  StatusOr<GeneratorState::Values> EngineInputs(uint64_t increment);

  std::shared_ptr<GeneratorState> state() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<GeneratorState> state_ REPRISE_GUARDED_BY(mutex_);
};

/// The generators of those who name none: one for each device, made once, with seeds that nobody can foresee. Make them
/// when the device is made: also allowed in a capture, but then nobody has had the chance to seed them.
///
/// Threads: thread-safe.
class DefaultGenerators {
 public:
  explicit DefaultGenerators(Environment& environment) : environment_(environment) {}
  std::shared_ptr<Generator> Of(int device);

 private:
  Environment& environment_;
  Mutex mutex_;
  std::unordered_map<int, std::shared_ptr<Generator>> generators_ REPRISE_GUARDED_BY(mutex_);
};

/// 64 bits from the machine's source of entropy.
uint64_t UnforeseeableSeed();

}  // namespace reprise::rng
