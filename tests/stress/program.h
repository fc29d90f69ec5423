// SPDX-License-Identifier: Apache-2.0
//
// Random programs of runtime calls and what they must compute.
//
// A program is made in two steps. The generator draws intents ("fill these words on stream 2", "end the capture of
// slot 1") without looking at any state. Lower turns them into calls: it follows every access with vector clocks, and
// puts a record and a wait in front of a call that would otherwise race; an intent that makes no sense at its place is
// left out. Because of that any part of a list of intents is a program again, which is what the shrinker needs.
//
// Programs are free of races, so plain interpretation in the order of the calls (Oracle) says what memory holds.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace reprise::stress {

constexpr int kStreams = 5;
constexpr int kSlots = 4;  ///< places for models
constexpr int kMostGroups = 3;

// Words of 64 bits: device memory, pinned host memory, host memory that only host functions touch. Then the logs.
constexpr int kDeviceWords = 32;
constexpr int kPinnedWords = 8;
constexpr int kHostWords = 3;
constexpr int kFirstPinned = kDeviceWords;
constexpr int kFirstHost = kFirstPinned + kPinnedWords;
constexpr int kWords = kFirstHost + kHostWords;
constexpr int kLogs = 2;
constexpr int kLogCapacity = 120;  // of entries; some programs exceed it
constexpr int kCells = kWords + kLogs;

// Events: some for edges, then for each slot one with ACL_EVENT_EXTERNAL, that the graph waits for and resets, and one
// that it records with the external flag; last, one that some graphs record and others wait for with that flag.
constexpr int kEdgeEvents = 6;
constexpr int kGateEvent = kEdgeEvents;
constexpr int kOutEvent = kGateEvent + kSlots;
constexpr int kChainEvent = kOutEvent + kSlots;
constexpr int kEvents = kChainEvent + 1;

/// splitmix64: the same numbers on every platform.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int Below(int limit) { return static_cast<int>(Next() % static_cast<uint64_t>(limit)); }
  bool Chance(int percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

/// What one task does to memory.
struct Effect {
  enum Kind {
    kAxpb,
    kSlowAxpb,
    kDecrement,
    kCopyCell,
    kAppend,
    kSlowAppend,
    kAppendValue,
    kFail,  ///< touches nothing
    kLastKernel = kFail,
    kCopy,
    kFill,
    kValueWrite,
    kHostFunc
  };
  Kind kind = kAxpb;
  int dst = 0;  ///< word, or log
  int src = 0;
  int count = 1;
  uint64_t a = 0;
  uint64_t b = 0;

  bool is_kernel() const { return kind <= kLastKernel; }
  std::string Text(const std::string& stream) const;
};

struct Memory {
  std::array<uint64_t, kWords> words{};
  std::array<std::vector<uint64_t>, kLogs> logs;  ///< all entries, beyond the capacity too

  Memory();  ///< what programs start with
};

struct Intent {
  enum Kind {
    kEffect,
    kRecord,
    kWait,
    kSyncStream,
    kSyncEvent,
    kSyncDevice,
    kCheck,
    kBegin,
    kFork,
    kJoin,
    kEnd,
    kGroup,
    kConditional,
    kFail,
    kSpoil,
    kAbort,
    kUpdate,
    kExecute,
    kWaitOut,
    kDestroy,
    kSetKernel,
    kDisable,
    kNewStream,
    kNewEvent,
    kProbe,
    kKinds
  };
  Kind kind = kEffect;
  int s = 0;
  int t = 0;
  int event = 0;
  int slot = 0;
  uint64_t seed = 0;
};

struct Call {
  enum Kind {
    kEffect,
    kRecord,
    kWait,
    kReset,
    kRecordExternal,
    kWaitExternal,
    kSyncStream,
    kSyncStreamTimeout,
    kStreamQuery,
    kSyncEvent,
    kQueryEvent,
    kSyncDevice,
    kCheck,
    kBegin,
    kEnd,
    kGroupBegin,
    kGroupEnd,
    kConditional,
    kUpdateBegin,
    kUpdateEnd,
    kExecute,
    kDestroy,
    kSetKernel,
    kDisable,
    kUpdateModel,
    kNewStream,
    kNewEvent,
    kPageableCopy
  };
  Kind kind = kEffect;
  int stream = -1;
  int event = -1;
  int slot = -1;  ///< of the model; of an effect, record or wait: of the capture that it goes into
  int group = -1;
  int lane = -1;  ///< of a task: index of its stream in aclmdlRIGetStreams
  int nth = -1;   ///< of a task: among the kernels of the lane
  int op = -1;    ///< of a task: among the effects of the model
  int aux = -1;   ///< a further stream, or the mode of a capture
  /// Of a conditional task: aclmdlRICondTaskType; `nth` is the value that it begins with. A loop counts it down.
  int condition = 0;
  bool update = false;    ///< an effect that replaces the next one of a group
  bool deferred = false;  ///< an execution that waits for the record of its gate event
  int expected = 0;       ///< what the call returns
  std::vector<Effect> effects;
  std::vector<char> readable;  ///< of a check: by cell

  std::string Text() const;
};

using Intents = std::vector<Intent>;
using Program = std::vector<Call>;

Intents Generate(uint64_t seed);
Program Lower(const Intents& intents);
std::string Text(const Program& program);

/// Deliberate mistakes of the oracle, to show that they are found.
enum class Mistake {
  kNone,
  kCopyTooShort,
  kUpdateForgotten,
  kDisableForgotten,
  kConditionInverted,
  kLoopOnce,
  kFailureIgnored
};

// Types of conditional tasks; the numbers are those of aclmdlRICondTaskType.
constexpr int kConditionIf = 0;
constexpr int kConditionWhile = 1;
constexpr int kConditionSwitch = 2;

/// What a failing kernel returns, and then the next synchronisation of its stream.
constexpr int kFailure = 507015;

/// Interprets a program in the order of its calls.
class Oracle {
 public:
  explicit Oracle(Mistake mistake = Mistake::kNone) : mistake_(mistake) {}
  void Step(const Call& call);
  const Memory& memory() const { return memory_; }

 private:
  struct Op {
    Effect effect;
    int group = -1;
    bool disabled = false;
    int times = 1;
  };
  struct Model {
    std::vector<Op> ops;
    int groups = 0;
    bool group_open = false;
  };
  void Apply(const Effect& effect);
  void Run(const Model& model);

  const Mistake mistake_;
  Memory memory_;
  std::array<Model, kSlots> models_;
  std::array<bool, kSlots> deferred_{};
  // The update that is open, by stream: slot, group and how many kernels are replaced.
  struct Update {
    int slot = -1;
    int group = -1;
    int next = 0;
  };
  std::array<Update, kStreams> updates_{};
};

}  // namespace reprise::stress
