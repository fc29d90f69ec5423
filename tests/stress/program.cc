// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fmt/format.h>

#include <algorithm>

namespace reprise::stress {

uint64_t Rng::Next() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Memory::Memory() {
  for (int i = 0; i < kWords; ++i) words[static_cast<size_t>(i)] = 1000 + static_cast<uint64_t>(i);
}

// ---- Text ----

namespace {

std::string Word(int word) {
  if (word < kFirstPinned) return fmt::format("&device[{}]", word);
  if (word < kFirstHost) return fmt::format("&pinned[{}]", word - kFirstPinned);
  return fmt::format("&host[{}]", word - kFirstHost);
}

const char* CopyKind(const Effect& effect) {
  if (effect.src >= kFirstPinned) return "HOST_TO_DEVICE";
  return effect.dst >= kFirstPinned ? "DEVICE_TO_HOST" : "DEVICE_TO_DEVICE";
}

std::string EventName(int event) {
  if (event < kGateEvent) return fmt::format("e{}", event);
  if (event < kOutEvent) return fmt::format("gate{}", event - kGateEvent);
  if (event < kChainEvent) return fmt::format("out{}", event - kOutEvent);
  return "chain";
}

}  // namespace

std::string Effect::Text(const std::string& stream) const {
  const auto launch = [&](const char* name, const std::string& args) {
    return fmt::format("launch({}, \"{}\", {})", stream, name, args);
  };
  switch (kind) {
    case kAxpb: return launch("axpb", fmt::format("{}, {}, {}", Word(dst), a, b));
    case kSlowAxpb: return launch("slow_axpb", fmt::format("{}, {}, {}, 50", Word(dst), a, b));
    case kDecrement: return launch("decrement", Word(dst));
    case kCopyCell: return launch("copy_cell", fmt::format("{}, {}", Word(dst), Word(src)));
    case kAppend: return launch("append", fmt::format("log{}, {}", dst, a));
    case kSlowAppend: return launch("slow_append", fmt::format("log{}, {}, 50", dst, a));
    case kFail: return launch("fail", fmt::format("{}", kFailure));
    case kAppendValue: return launch("append_value", fmt::format("log{}, {}", dst, Word(src)));
    case kCopy:
      return fmt::format("aclrtMemcpyAsync({0}, {2}, {1}, {2}, ACL_MEMCPY_{3}, {4})", Word(dst), Word(src), 8 * count,
                         CopyKind(*this), stream);
    case kFill: return fmt::format("aclrtMemsetAsync({0}, {1}, {2}, {1}, {3})", Word(dst), 8 * count, a, stream);
    case kValueWrite: return fmt::format("aclrtValueWrite({}, {}, 0, {})", Word(dst), a, stream);
    case kHostFunc:
      return fmt::format("aclrtLaunchHostFunc({}, axpb_on_host, {{{}, {}, {}}})", stream, Word(dst), a, b);
  }
  return "?";
}

std::string Call::Text() const {
  const std::string s = fmt::format("s{}", stream);
  const std::string e = EventName(event);
  const std::string m = fmt::format("m{}", slot);
  const std::string task = fmt::format("kernel {} of graph stream {} of {}", nth, lane, m);
  std::string text;
  switch (kind) {
    case kEffect: text = effects[0].Text(s); break;
    case kRecord: text = fmt::format("aclrtRecordEvent({}, {})", e, s); break;
    case kWait: text = fmt::format("aclrtStreamWaitEvent({}, {})", s, e); break;
    case kReset: text = fmt::format("aclrtResetEvent({}, {})", e, s); break;
    case kRecordExternal:
      text = fmt::format("aclrtRecordEventWithFlag({}, {}, ACL_EVENT_RECORD_EXTERNAL)", e, s);
      break;
    case kWaitExternal:
      text = fmt::format("aclrtStreamWaitEventWithFlag({}, {}, 0, ACL_EVENT_WAIT_EXTERNAL)", s, e);
      break;
    case kSyncStream: text = fmt::format("aclrtSynchronizeStream({})", s); break;
    case kSyncStreamTimeout: text = fmt::format("aclrtSynchronizeStreamWithTimeout({}, 60000)", s); break;
    case kStreamQuery: text = fmt::format("aclrtStreamQuery({}, &status)", s); break;
    case kSyncEvent: text = fmt::format("aclrtSynchronizeEvent({})", e); break;
    case kQueryEvent: text = fmt::format("aclrtQueryEventStatus({}, &status)", e); break;
    case kSyncDevice: text = "aclrtSynchronizeDevice()"; break;
    case kCheck: text = "check()"; break;
    case kBegin: text = fmt::format("aclmdlRICaptureBegin({}, {}) // for {}", s, aux, m); break;
    case kEnd: text = fmt::format("aclmdlRICaptureEnd({}, &{})", s, m); break;
    case kGroupBegin: text = fmt::format("aclmdlRICaptureTaskGrpBegin({})", s); break;
    case kGroupEnd: text = fmt::format("aclmdlRICaptureTaskGrpEnd({}, &group{}_{})", s, slot, group); break;
    case kConditional: {
      constexpr const char* kNames[] = {"if", "while", "switch"};
      text = fmt::format("{} ({}) {{", kNames[condition], nth);
      for (const Effect& effect : effects) text += fmt::format(" {};", effect.Text("body"));
      text += fmt::format(" }} // conditional task on {}, bodies captured on s{}", s, aux);
      break;
    }
    case kUpdateBegin: text = fmt::format("aclmdlRICaptureTaskUpdateBegin({}, group{}_{})", s, slot, group); break;
    case kUpdateEnd: text = fmt::format("aclmdlRICaptureTaskUpdateEnd({})", s); break;
    case kExecute: text = fmt::format("aclmdlRIExecuteAsync({}, {})", m, s); break;
    case kDestroy: text = fmt::format("aclmdlRIDestroy({})", m); break;
    case kSetKernel: text = fmt::format("aclmdlRITaskSetParams({}: {})", task, effects[0].Text("_")); break;
    case kDisable: text = fmt::format("aclmdlRITaskDisable({})", task); break;
    case kUpdateModel: text = fmt::format("aclmdlRIUpdate({})", m); break;
    case kNewStream: text = fmt::format("aclrtDestroyStream({0}); aclrtCreateStream(&{0})", s); break;
    case kNewEvent:
      text = fmt::format("aclrtDestroyEvent({0}); aclrtCreateEventExWithFlag(&{0}, ACL_EVENT_SYNC)", e);
      break;
    case kPageableCopy:
      text = fmt::format("aclrtMemcpyAsync(&device[0], 8, pageable, 8, ACL_MEMCPY_HOST_TO_DEVICE, {})", s);
      break;
  }
  if (expected != 0) return fmt::format("{};  // returns {}", text, expected);
  return text + ";";
}

std::string Text(const Program& program) {
  std::string text;
  for (const Call& call : program) text += "  " + call.Text() + "\n";
  return text;
}

// ---- Oracle ----

void Oracle::Apply(const Effect& effect) {
  const auto word = [&](int i) -> uint64_t& { return memory_.words[static_cast<size_t>(i)]; };
  const auto log = [&](int i) -> std::vector<uint64_t>& { return memory_.logs[static_cast<size_t>(i)]; };
  switch (effect.kind) {
    case Effect::kAxpb:
    case Effect::kSlowAxpb:
    case Effect::kHostFunc: word(effect.dst) = word(effect.dst) * effect.a + effect.b; break;
    case Effect::kDecrement: --word(effect.dst); break;
    case Effect::kCopyCell: word(effect.dst) = word(effect.src); break;
    case Effect::kAppend:
    case Effect::kSlowAppend: log(effect.dst).push_back(effect.a); break;
    case Effect::kAppendValue: log(effect.dst).push_back(word(effect.src)); break;
    case Effect::kCopy:
      for (int i = 0; i < effect.count - (mistake_ == Mistake::kCopyTooShort ? 1 : 0); ++i) {
        word(effect.dst + i) = word(effect.src + i);
      }
      break;
    case Effect::kFill:
      for (int i = 0; i < effect.count; ++i) word(effect.dst + i) = effect.a * 0x0101010101010101;
      break;
    case Effect::kValueWrite: word(effect.dst) = effect.a; break;
    case Effect::kFail: break;
  }
}

void Oracle::Run(const Model& model) {
  for (const Op& op : model.ops) {
    if (op.disabled && mistake_ != Mistake::kDisableForgotten) continue;
    // The rest of the execution is skipped.
    if (op.effect.kind == Effect::kFail && op.times != 0 && mistake_ != Mistake::kFailureIgnored) return;
    for (int i = 0; i < op.times; ++i) Apply(op.effect);
  }
}

void Oracle::Step(const Call& call) {
  if (call.expected != 0) return;
  const auto slot = static_cast<size_t>(std::max(call.slot, 0));
  Model& model = models_[slot];
  switch (call.kind) {
    case Call::kEffect:
      if (call.update) {
        Update& update = updates_[static_cast<size_t>(call.stream)];
        int place = update.next++;
        for (Op& op : models_[static_cast<size_t>(update.slot)].ops) {
          if (op.group != update.group || place-- != 0) continue;
          if (mistake_ != Mistake::kUpdateForgotten) op.effect = call.effects[0];
        }
      } else if (call.slot >= 0) {
        model.ops.push_back({call.effects[0], model.group_open ? model.groups : -1});
      } else {
        Apply(call.effects[0]);
      }
      break;
    case Call::kConditional: {
      Op op{call.effects[0]};
      if (call.condition == kConditionIf) {
        const bool first = (call.nth != 0) != (mistake_ == Mistake::kConditionInverted);
        op.effect = call.effects[first ? 0 : 1];
      } else if (call.condition == kConditionWhile) {
        op.times = mistake_ == Mistake::kLoopOnce ? std::min(call.nth, 1) : call.nth;
      } else if (call.nth < static_cast<int>(call.effects.size())) {
        op.effect = call.effects[static_cast<size_t>(call.nth)];
      } else {
        op.times = 0;
      }
      model.ops.push_back(op);
      break;
    }
    case Call::kBegin:
    case Call::kDestroy: model = {}; break;
    case Call::kGroupBegin: model.group_open = true; break;
    case Call::kGroupEnd:
      model.group_open = false;
      ++model.groups;
      break;
    case Call::kUpdateBegin: updates_[static_cast<size_t>(call.stream)] = {call.slot, call.group, 0}; break;
    case Call::kExecute:
      if (call.deferred) {
        deferred_[slot] = true;
      } else {
        Run(model);
      }
      break;
    case Call::kRecord:
      if (call.event >= kGateEvent && call.event < kOutEvent) {
        const auto gated = static_cast<size_t>(call.event - kGateEvent);
        if (deferred_[gated]) Run(models_[gated]);
        deferred_[gated] = false;
      }
      break;
    case Call::kSetKernel: model.ops[static_cast<size_t>(call.op)].effect = call.effects[0]; break;
    case Call::kDisable: model.ops[static_cast<size_t>(call.op)].disabled = true; break;
    default: break;
  }
}

// ---- Generator ----

Intents Generate(uint64_t seed) {
  struct Weight {
    Intent::Kind kind;
    int weight;
  };
  constexpr Weight kWeights[] = {
      {Intent::kEffect, 46},   {Intent::kRecord, 4},      {Intent::kWait, 5},       {Intent::kSyncStream, 3},
      {Intent::kSyncEvent, 2}, {Intent::kCheck, 2},       {Intent::kSyncDevice, 1}, {Intent::kBegin, 6},
      {Intent::kFork, 4},      {Intent::kJoin, 3},        {Intent::kEnd, 10},       {Intent::kGroup, 6},
      {Intent::kUpdate, 8},    {Intent::kExecute, 24},    {Intent::kWaitOut, 2},    {Intent::kDestroy, 2},
      {Intent::kSetKernel, 4}, {Intent::kDisable, 3},     {Intent::kNewStream, 1},  {Intent::kNewEvent, 1},
      {Intent::kProbe, 7},     {Intent::kConditional, 5}, {Intent::kFail, 2},       {Intent::kSpoil, 2},
      {Intent::kAbort, 1},
  };
  static_assert(std::size(kWeights) == Intent::kKinds);
  int total = 0;
  for (const Weight& weight : kWeights) total += weight.weight;
  Rng rng(seed * 0x2545F4914F6CDD1D + 1);
  Intents intents(static_cast<size_t>(20 + rng.Below(200)));
  const int slots = 1 + rng.Below(kSlots);
  for (Intent& intent : intents) {
    int pick = rng.Below(total);
    for (const Weight& weight : kWeights) {
      intent.kind = weight.kind;
      if ((pick -= weight.weight) < 0) break;
    }
    intent.s = rng.Below(kStreams);
    intent.t = rng.Below(kStreams);
    intent.event = rng.Below(kEdgeEvents);
    intent.slot = rng.Below(slots);
    intent.seed = rng.Next();
  }
  return intents;
}

namespace {

Effect DrawKernel(Rng& rng) {
  Effect effect;
  constexpr Effect::Kind kKinds[] = {Effect::kAxpb,       Effect::kAxpb,       Effect::kAxpb,   Effect::kSlowAxpb,
                                     Effect::kDecrement,  Effect::kCopyCell,   Effect::kAppend, Effect::kAppend,
                                     Effect::kSlowAppend, Effect::kAppendValue};
  effect.kind = kKinds[rng.Below(static_cast<int>(std::size(kKinds)))];
  const bool on_log = effect.kind >= Effect::kAppend;
  effect.dst = rng.Below(on_log ? kLogs : kDeviceWords);
  effect.src = rng.Below(kDeviceWords);
  effect.a = on_log ? rng.Next() % 1000 : 3 + 2 * (rng.Next() % 50);  // odd: no information is lost
  effect.b = rng.Next() % 100;
  return effect;
}

Effect DrawEffect(Rng& rng) {
  if (rng.Chance(60)) return DrawKernel(rng);
  Effect effect;
  effect.a = rng.Next() % 200;
  effect.count = 1 + rng.Below(5);
  switch (rng.Below(6)) {
    case 0:
      effect.kind = Effect::kHostFunc;
      effect.count = 1;
      effect.dst = kFirstHost + rng.Below(kHostWords);
      effect.a = 3 + 2 * (rng.Next() % 50);
      effect.b = rng.Next() % 100;
      return effect;
    case 1:
      effect.kind = Effect::kValueWrite;
      effect.count = 1;
      effect.dst = rng.Below(kDeviceWords);
      return effect;
    case 2:
      effect.kind = Effect::kFill;
      effect.dst = rng.Below(kDeviceWords - effect.count);
      return effect;
    default: break;
  }
  effect.kind = Effect::kCopy;
  // Halves of device memory, so that source and destination never overlap.
  const int half = kDeviceWords / 2;
  effect.dst = rng.Below(half - effect.count);
  effect.src = half + rng.Below(half - effect.count);
  if (rng.Chance(50)) std::swap(effect.dst, effect.src);
  const int pinned = kFirstPinned + rng.Below(kPinnedWords - effect.count);
  if (rng.Chance(25)) {
    effect.dst = pinned;
  } else if (rng.Chance(33)) {
    effect.src = pinned;
  }
  return effect;
}

// Another kernel that touches the same cells in the same way.
Effect Vary(const Effect& old, Rng& rng) {
  Effect effect = old;
  if (old.kind <= Effect::kDecrement) {
    effect.kind = static_cast<Effect::Kind>(rng.Below(Effect::kDecrement + 1));
    effect.a = 3 + 2 * (rng.Next() % 50);
    effect.b = rng.Next() % 100;
  } else if (old.kind == Effect::kAppend || old.kind == Effect::kSlowAppend) {
    effect.kind = rng.Chance(50) ? Effect::kAppend : Effect::kSlowAppend;
    effect.a = rng.Next() % 1000;
  }
  return effect;
}

// ---- Lowering ----

using Clock = std::array<uint32_t, kStreams>;

void Merge(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

// Who touched a thing last.
struct History {
  int writer = -1;
  uint32_t written = 0;
  Clock read{};
};

struct Access {
  int thing;
  bool write;
};
using Accesses = std::vector<Access>;

// Things beyond the cells of memory: task groups and gate events.
int GroupThing(int slot, int group) { return kCells + slot * (kMostGroups + 1) + group; }
int GateThing(int slot) { return GroupThing(slot, kMostGroups); }
constexpr int kThings = kCells + kSlots * (kMostGroups + 1);

void AddAccesses(const Effect& effect, Accesses& all) {
  const bool on_log =
      effect.kind == Effect::kAppend || effect.kind == Effect::kSlowAppend || effect.kind == Effect::kAppendValue;
  for (int i = 0; i < effect.count; ++i) {
    all.push_back({on_log ? kWords + effect.dst : effect.dst + i, true});
    if (effect.kind == Effect::kCopy || effect.kind == Effect::kCopyCell || effect.kind == Effect::kAppendValue) {
      all.push_back({effect.src + i, false});
    }
  }
}

enum class Flavour { kPlain, kGated, kRecordsOut, kRecordsChain, kWaitsChain };

struct ModelOp {
  Effect effect;
  int stream;
  int nth = -1;  // among the kernels of its stream; -1: it cannot be changed
  int group = -1;
  bool disabled = false;
};

struct Model {
  bool live = false;
  Flavour flavour = Flavour::kPlain;
  std::vector<ModelOp> ops;
  Accesses accesses;
  std::vector<int> lanes;  // in the order of joining
  int groups = 0;
  Clock last{};      // end of the newest execution
  Clock executed{};  // by stream: when it executed the model last
};

struct Capture {
  bool open = false;
  bool fails = false;  // it has a failing kernel, and stays on one stream: what runs beside a failure is not defined
  int origin = 0;
  uint64_t id = 0;
  std::array<Clock, kStreams> clocks{};
  std::array<int, kStreams> kernels{};
  std::array<History, kCells> histories{};
  Model model;
};

struct EventState {
  bool recorded = false;  // by an ordinary record
  Clock clock{};
  uint64_t capture = 0;  // that recorded it last, and where
  int capture_slot = 0;
  Clock capture_clock{};
};

class Lowerer {
 public:
  Program Run(const Intents& intents) {
    for (const Intent& intent : intents) Lower(intent);
    for (int slot = 0; slot < kSlots; ++slot) End(slot);
    SyncDevice();
    Check();
    return std::move(program_);
  }

 private:
  static size_t At(int i) { return static_cast<size_t>(i); }
  Capture& capture(int slot) { return captures_[At(slot)]; }
  Model& model(int slot) { return models_[At(slot)]; }
  EventState& event(int i) { return events_[At(i)]; }
  int slot_of(int stream) const { return member_[At(stream)]; }
  bool captured(int stream) const { return slot_of(stream) >= 0; }
  bool any_capture() const {
    return std::any_of(captures_.begin(), captures_.end(), [](const Capture& c) { return c.open; });
  }
  // The capture that a wait for the event would join, or -1.
  int open_capture_of(const EventState& state) {
    return state.capture != 0 && capture(state.capture_slot).open && capture(state.capture_slot).id == state.capture
               ? state.capture_slot
               : -1;
  }

  Call& Emit(Call::Kind kind, int stream = -1) {
    Call& call = program_.emplace_back();
    call.kind = kind;
    call.stream = stream;
    return call;
  }

  // The clocks that count for a call on the stream: those of the device, or of its capture.
  Clock& clock(int stream) {
    return captured(stream) ? capture(slot_of(stream)).clocks[At(stream)] : clocks_[At(stream)];
  }
  uint32_t Tick(int stream) {
    if (!captured(stream)) Merge(clocks_[At(stream)], host_);
    return ++clock(stream)[At(stream)];
  }
  History& history(int stream, int thing) {
    return captured(stream) ? capture(slot_of(stream)).histories[At(thing)] : histories_[At(thing)];
  }

  void EmitRecord(int e, int stream) {
    Call& call = Emit(Call::kRecord, stream);
    call.event = e;
    call.slot = slot_of(stream);
    Tick(stream);
    EventState& state = event(e);
    if (captured(stream)) {
      state.capture = capture(slot_of(stream)).id;
      state.capture_slot = slot_of(stream);
      state.capture_clock = clock(stream);
    } else {
      state.recorded = true;
      state.clock = clock(stream);
    }
  }

  void EmitWait(int e, int stream) {
    Call& call = Emit(Call::kWait, stream);
    call.event = e;
    const int joins = open_capture_of(event(e));
    if (joins >= 0 && !captured(stream)) {
      member_[At(stream)] = joins;
      capture(joins).model.lanes.push_back(stream);
    }
    call.slot = slot_of(stream);
    Tick(stream);
    Merge(clock(stream), joins >= 0 ? event(e).capture_clock : event(e).clock);
  }

  // An event for an edge; -1 when all are in use by captures.
  int PickEvent(bool for_capture) {
    for (int i = 0; i < kEdgeEvents; ++i) {
      const int e = next_event_++ % kEdgeEvents;
      if (for_capture || open_capture_of(event(e)) < 0) return e;
    }
    return -1;
  }

  std::vector<int> Unordered(int stream, const Accesses& accesses, const Clock& known) {
    std::vector<int> others;
    const auto need = [&](int other, uint32_t time) {
      if (other == stream || known[At(other)] >= time) return;
      if (std::find(others.begin(), others.end(), other) == others.end()) others.push_back(other);
    };
    for (const Access& access : accesses) {
      const History& h = history(stream, access.thing);
      if (h.writer >= 0) need(h.writer, h.written);
      for (int other = 0; access.write && other < kStreams; ++other) need(other, h.read[At(other)]);
    }
    return others;
  }

  /// Makes everything that conflicts with the accesses happen before the next call on the stream.
  bool Order(int stream, const Accesses& accesses, const Clock& also_known = {}) {
    Clock known = clock(stream);
    if (!captured(stream)) Merge(known, host_);
    Merge(known, also_known);
    const std::vector<int> others = Unordered(stream, accesses, known);
    for (const int other : others) {
      if (slot_of(other) != slot_of(stream)) return false;  // what it did before its capture cannot be recorded now
    }
    for (const int other : others) {
      const int e = PickEvent(captured(stream));
      if (e < 0) return false;
      EmitRecord(e, other);
      EmitWait(e, stream);
    }
    return true;
  }

  void Note(int stream, const Accesses& accesses, uint32_t time) {
    for (const Access& access : accesses) {
      History& h = history(stream, access.thing);
      if (access.write) {
        h = {stream, time, {}};
      } else {
        h.read[At(stream)] = time;
      }
    }
  }

  bool LowerEffects(int stream, const std::vector<Effect>& effects, Call::Kind kind, const Intent& intent) {
    Accesses accesses;
    for (const Effect& effect : effects) AddAccesses(effect, accesses);
    if (!Order(stream, accesses)) return false;
    if (kind == Call::kGroupBegin) Emit(kind, stream).slot = slot_of(stream);
    const auto record = [&](const Effect& effect, bool changeable) {
      if (!captured(stream)) return;
      Capture& c = capture(slot_of(stream));
      const bool grouped = kind == Call::kGroupBegin;
      const int nth = effect.is_kernel() && kind != Call::kConditional ? c.kernels[At(stream)]++ : -1;
      c.model.ops.push_back({effect, stream, changeable && !grouped ? nth : -1, grouped ? c.model.groups : -1});
      AddAccesses(effect, c.model.accesses);
    };
    if (kind == Call::kConditional) {
      Call& call = Emit(kind, stream);
      call.slot = slot_of(stream);
      call.aux = intent.t;
      call.condition = ConditionOf(intent);
      call.nth = static_cast<int>(intent.seed >> 60) & (call.condition == kConditionIf ? 1 : 3);
      call.effects = effects;
      // One place in the list of effects, as in the oracle; the accesses of all bodies.
      record(effects[0], false);
      for (size_t i = 1; i < effects.size(); ++i) {
        AddAccesses(effects[i], capture(slot_of(stream)).model.accesses);
      }
    } else {
      for (const Effect& effect : effects) {
        Call& call = Emit(Call::kEffect, stream);
        call.slot = slot_of(stream);
        call.effects = {effect};
        record(effect, true);
      }
    }
    Note(stream, accesses, Tick(stream));
    if (kind == Call::kGroupBegin) {
      Call& call = Emit(Call::kGroupEnd, stream);
      call.slot = slot_of(stream);
      call.group = capture(slot_of(stream)).model.groups++;
    }
    return true;
  }

  static int ConditionOf(const Intent& intent) { return static_cast<int>((intent.seed >> 56) % 3); }

  void SyncStream(int stream, bool timeout) {
    Emit(timeout ? Call::kSyncStreamTimeout : Call::kSyncStream, stream).expected = failed_[At(stream)] ? kFailure : 0;
    Drained(stream);
  }

  void Drained(int stream) {
    failed_[At(stream)] = false;  // reported once
    Merge(host_, clocks_[At(stream)]);
    drained_[At(stream)] = clocks_[At(stream)][At(stream)];
  }

  void SyncDevice() {
    Call& call = Emit(Call::kSyncDevice);
    if (any_capture()) {
      call.expected = 107027;
      return;
    }
    call.expected = std::count(failed_.begin(), failed_.end(), true) != 0 ? kFailure : 0;
    for (int stream = 0; stream < kStreams; ++stream) Drained(stream);
  }

  void Check() {
    Call& call = Emit(Call::kCheck);
    for (int cell = 0; cell < kCells; ++cell) {
      const History& h = histories_[At(cell)];
      call.readable.push_back(h.writer < 0 || host_[At(h.writer)] >= h.written);
    }
  }

  void Begin(const Intent& intent) {
    const int s = intent.s;
    Rng rng(intent.seed);
    if (captured(s)) {
      Call& call = Emit(Call::kBegin, s);
      call.slot = intent.slot;
      call.aux = rng.Below(3);
      call.expected = 107027;
      return;
    }
    if (capture(intent.slot).open) return;
    if (std::count_if(captures_.begin(), captures_.end(), [](const Capture& c) { return c.open; }) == 2) return;
    Destroy(intent.slot);
    // Otherwise nobody can order itself behind the stream until the capture ends.
    if (rng.Chance(60)) SyncStream(s, rng.Chance(50));
    Call& call = Emit(Call::kBegin, s);
    call.slot = intent.slot;
    call.aux = rng.Below(3);
    Capture& c = capture(intent.slot);
    c = {};
    c.open = true;
    c.origin = s;
    c.id = ++next_capture_;
    c.model.lanes.push_back(s);
    member_[At(s)] = intent.slot;
    constexpr Flavour kFlavours[] = {Flavour::kPlain,        Flavour::kPlain,     Flavour::kPlain,
                                     Flavour::kGated,        Flavour::kGated,     Flavour::kRecordsOut,
                                     Flavour::kRecordsChain, Flavour::kWaitsChain};
    c.model.flavour = kFlavours[rng.Below(static_cast<int>(std::size(kFlavours)))];
    const auto emit = [&](Call::Kind kind, int e) {
      Call& task = Emit(kind, s);
      task.event = e;
      task.slot = intent.slot;
    };
    if (c.model.flavour == Flavour::kGated) {
      emit(Call::kWait, kGateEvent + intent.slot);
      emit(Call::kReset, kGateEvent + intent.slot);
    } else if (c.model.flavour == Flavour::kWaitsChain) {
      emit(Call::kWaitExternal, kChainEvent);
    }
  }

  void End(int slot) {
    Capture& c = capture(slot);
    if (!c.open) return;
    // The last task of every forked stream is a record that the origin waits for.
    for (const int lane : std::vector<int>(c.model.lanes)) {
      if (lane == c.origin) continue;
      const int e = PickEvent(true);
      EmitRecord(e, lane);
      EmitWait(e, c.origin);
    }
    if (c.model.flavour == Flavour::kRecordsOut || c.model.flavour == Flavour::kRecordsChain) {
      Call& call = Emit(Call::kRecordExternal, c.origin);
      call.slot = slot;
      call.event = c.model.flavour == Flavour::kRecordsOut ? kOutEvent + slot : kChainEvent;
    }
    Emit(Call::kEnd, c.origin).slot = slot;
    for (const int lane : c.model.lanes) member_[At(lane)] = -1;
    c.open = false;
    model(slot) = std::move(c.model);
    model(slot).live = true;
  }

  // The capture comes to nothing.
  void EndInVain(int slot, int code) {
    Capture& c = capture(slot);
    Call& call = Emit(Call::kEnd, c.origin);
    call.slot = slot;
    call.expected = code;
    for (const int lane : c.model.lanes) member_[At(lane)] = -1;
    c = {};
  }

  // A wait across captures invalidates both; what follows is accepted and dropped.
  void Spoil(const Intent& intent) {
    if (!captured(intent.s) || !captured(intent.t) || slot_of(intent.s) == slot_of(intent.t)) return;
    const int first = slot_of(intent.s);
    const int second = slot_of(intent.t);
    const int e = PickEvent(true);
    EmitRecord(e, intent.s);
    Call& wait = Emit(Call::kWait, intent.t);
    wait.event = e;
    wait.slot = second;
    wait.expected = 107032;
    Rng rng(intent.seed);
    for (const int stream : {intent.s, intent.t}) {
      Call& call = Emit(Call::kEffect, stream);
      call.slot = slot_of(stream);
      call.effects = {DrawEffect(rng)};
    }
    EndInVain(first, 507903);
    EndInVain(second, 507903);
  }

  // An end with a stream that has not joined.
  void Abort(const Intent& intent) {
    if (!captured(intent.s) || captured(intent.t) || capture(slot_of(intent.s)).fails) return;
    Fork(intent);
    EndInVain(slot_of(intent.s), 107025);
  }

  void Destroy(int slot) {
    if (!model(slot).live) return;
    Emit(Call::kDestroy).slot = slot;
    Merge(host_, model(slot).last);  // it waits for executions
    model(slot) = {};
  }

  // The calls of an update; the caller has ordered them.
  void EmitUpdate(int stream, int slot, int group, Rng& rng) {
    Call& begin = Emit(Call::kUpdateBegin, stream);
    begin.slot = slot;
    begin.group = group;
    for (ModelOp& op : model(slot).ops) {
      if (op.group != group) continue;
      op.effect = Vary(op.effect, rng);
      Call& call = Emit(Call::kEffect, stream);
      call.update = true;
      call.effects = {op.effect};
    }
    Emit(Call::kUpdateEnd, stream);
    Note(stream, {{GroupThing(slot, group), true}}, Tick(stream));
  }

  void Update(const Intent& intent) {
    Model& m = model(intent.slot);
    if (!m.live || m.groups == 0) return;
    Rng rng(intent.seed);
    const int group = rng.Below(m.groups);
    if (captured(intent.s)) {
      Call& call = Emit(Call::kUpdateBegin, intent.s);
      call.slot = intent.slot;
      call.group = group;
      call.expected = 107027;
      return;
    }
    if (Order(intent.s, {{GroupThing(intent.slot, group), true}})) EmitUpdate(intent.s, intent.slot, group, rng);
  }

  void Execute(const Intent& intent) {
    Model& m = model(intent.slot);
    if (!m.live) return;
    const int s = intent.s;
    const auto emit = [&]() -> Call& {
      Call& call = Emit(Call::kExecute, s);
      call.slot = intent.slot;
      return call;
    };
    if (captured(s)) {
      emit().expected = 107027;
      return;
    }
    Accesses accesses = m.accesses;
    for (int group = 0; group < m.groups; ++group) accesses.push_back({GroupThing(intent.slot, group), false});
    // Executions of one model run in the order of the calls, whatever their streams.
    Clock known = m.last;
    if (m.flavour == Flavour::kWaitsChain) Merge(known, event(kChainEvent).clock);
    if (m.flavour == Flavour::kGated) {
      const int t = intent.t;
      if (t == s || captured(t)) return;
      Rng rng(intent.seed);
      const int group = m.groups != 0 && rng.Chance(60) ? rng.Below(m.groups) : -1;
      // The record, and an update in front of it, come after the previous execution has reset the gate.
      Accesses opener = {{GateThing(intent.slot), true}};
      if (group >= 0) opener.push_back({GroupThing(intent.slot, group), true});
      if (!Order(t, opener) || !Order(s, accesses, known)) return;
      emit().deferred = true;
      if (group >= 0) EmitUpdate(t, intent.slot, group, rng);
      Call& record = Emit(Call::kRecord, t);
      record.event = kGateEvent + intent.slot;
      Tick(t);
      Merge(known, clock(t));
      accesses.push_back({GateThing(intent.slot), true});
    } else {
      if (!Order(s, accesses, known)) return;
      emit();
    }
    for (const ModelOp& op : m.ops) {
      if (op.effect.kind == Effect::kFail && !op.disabled) failed_[At(s)] = true;
    }
    const uint32_t time = Tick(s);
    Merge(clock(s), known);
    Note(s, accesses, time);
    m.last = clock(s);
    m.executed[At(s)] = time;
    if (m.flavour == Flavour::kRecordsOut || m.flavour == Flavour::kRecordsChain) {
      EventState& state = event(m.flavour == Flavour::kRecordsOut ? kOutEvent + intent.slot : kChainEvent);
      state.recorded = true;
      state.clock = clock(s);
    }
  }

  // Tasks may be changed when no execution is pending. It is until its stream has moved on, so that a later execution
  // on another stream, which has ended, tells too little: the streams themselves are synchronised.
  bool Quiesce(int slot) {
    const Model& m = model(slot);
    for (int s = 0; s < kStreams; ++s) {
      if (m.executed[At(s)] > drained_[At(s)] && captured(s)) return false;
    }
    for (int s = 0; s < kStreams; ++s) {
      if (m.executed[At(s)] > drained_[At(s)]) SyncStream(s, false);
    }
    return true;
  }

  void Change(const Intent& intent) {
    Model& m = model(intent.slot);
    if (!m.live) return;
    Rng rng(intent.seed);
    std::vector<int> candidates;
    for (size_t i = 0; i < m.ops.size(); ++i) {
      if (m.ops[i].nth >= 0) candidates.push_back(static_cast<int>(i));
    }
    if (candidates.empty() || !Quiesce(intent.slot)) return;
    const int at = candidates[At(rng.Below(static_cast<int>(candidates.size())))];
    ModelOp& op = m.ops[At(at)];
    Call& call = Emit(intent.kind == Intent::kSetKernel ? Call::kSetKernel : Call::kDisable);
    call.slot = intent.slot;
    call.op = at;
    call.nth = op.nth;
    const auto lane = std::find(m.lanes.rbegin(), m.lanes.rend(), op.stream);
    call.lane = static_cast<int>(lane - m.lanes.rbegin());  // the stream that joined last comes first
    if (intent.kind == Intent::kSetKernel) {
      op.effect = Vary(op.effect, rng);
      call.effects = {op.effect};
    } else {
      op.nth = -1;  // so that a disabled task stays as it is
      op.disabled = true;
    }
    if (rng.Chance(30) && !captured(intent.s)) {
      Call& refused = Emit(Call::kExecute, intent.s);
      refused.slot = intent.slot;
      refused.expected = 507011;
    }
    Emit(Call::kUpdateModel).slot = intent.slot;
  }

  void Wait(const Intent& intent) {
    const EventState& state = event(intent.event);
    const int joins = open_capture_of(state);
    if (captured(intent.s)) {
      if (joins >= 0) {
        if (joins == slot_of(intent.s)) EmitWait(intent.event, intent.s);
        return;  // a wait across captures ends both
      }
      Call& call = Emit(Call::kWait, intent.s);
      call.event = intent.event;
      call.slot = slot_of(intent.s);
      if (state.recorded) call.expected = 107024;
      return;
    }
    if (joins >= 0 && capture(joins).fails) return;
    EmitWait(intent.event, intent.s);
  }

  // A kernel that fails: the next synchronisation of its stream says so, once.
  void Fail(const Intent& intent) {
    const int s = intent.s;
    if (!captured(s)) {
      failed_[At(s)] = true;
    } else {
      Capture& c = capture(slot_of(s));
      if (c.model.lanes.size() != 1) return;
      c.fails = true;
    }
    Effect effect;
    effect.kind = Effect::kFail;
    effect.count = 0;
    LowerEffects(s, {effect}, Call::kEffect, intent);
  }

  void Fork(const Intent& intent) {
    if (!captured(intent.s) || captured(intent.t) || capture(slot_of(intent.s)).fails) return;
    const int e = PickEvent(true);
    EmitRecord(e, intent.s);
    EmitWait(e, intent.t);
  }

  void Probe(const Intent& intent) {
    const int s = intent.s;
    if (!captured(s)) {
      // With a failure, the answer depends on whether the work has ended already.
      if (!failed_[At(s)]) Emit(Call::kStreamQuery, s);
      return;
    }
    Rng rng(intent.seed);
    switch (rng.Below(5)) {
      case 0: Emit(Call::kSyncStream, s).expected = 107027; break;
      case 1: Emit(Call::kStreamQuery, s).expected = 107027; break;
      case 2: Emit(Call::kPageableCopy, s).expected = 107000; break;
      case 3: {
        const Capture& c = capture(slot_of(s));
        if (c.origin == s) return;
        Call& call = Emit(Call::kEnd, s);
        call.slot = slot_of(s);
        call.expected = 107036;
        break;
      }
      default:
        if (open_capture_of(event(intent.event)) < 0) return;
        Call& call = Emit(rng.Chance(50) ? Call::kSyncEvent : Call::kQueryEvent);
        call.event = intent.event;
        call.expected = 107028;
        break;
    }
  }

  void Lower(const Intent& intent) {
    const int s = intent.s;
    Rng rng(intent.seed);
    switch (intent.kind) {
      case Intent::kEffect: LowerEffects(s, {DrawEffect(rng)}, Call::kEffect, intent); break;
      case Intent::kRecord:
        if (captured(s) || open_capture_of(event(intent.event)) < 0) EmitRecord(intent.event, s);
        break;
      case Intent::kWait: Wait(intent); break;
      case Intent::kSyncStream:
        if (!captured(s)) SyncStream(s, rng.Chance(50));
        break;
      case Intent::kSyncEvent:
        if (open_capture_of(event(intent.event)) >= 0) break;
        if (rng.Chance(30)) {
          Emit(Call::kQueryEvent).event = intent.event;
          break;
        }
        Emit(Call::kSyncEvent).event = intent.event;
        Merge(host_, event(intent.event).clock);
        break;
      case Intent::kSyncDevice: SyncDevice(); break;
      case Intent::kCheck: Check(); break;
      case Intent::kBegin: Begin(intent); break;
      case Intent::kFork: Fork(intent); break;
      case Intent::kJoin:
        if (captured(s) && s != intent.t && slot_of(s) == slot_of(intent.t)) {
          const int e = PickEvent(true);
          EmitRecord(e, s);
          EmitWait(e, intent.t);
        }
        break;
      case Intent::kEnd: End(intent.slot); break;
      case Intent::kGroup: {
        if (!captured(s) || capture(slot_of(s)).model.groups == kMostGroups) break;
        std::vector<Effect> effects(static_cast<size_t>(1 + rng.Below(3)));
        for (Effect& effect : effects) effect = DrawKernel(rng);
        LowerEffects(s, effects, Call::kGroupBegin, intent);
        break;
      }
      case Intent::kConditional:
        if (captured(s) && !captured(intent.t)) {
          const int condition = ConditionOf(intent);
          const int bodies = condition == kConditionWhile ? 1 : condition == kConditionIf ? 2 : 2 + rng.Below(2);
          std::vector<Effect> effects;
          for (int i = 0; i < bodies; ++i) effects.push_back(DrawEffect(rng));
          LowerEffects(s, effects, Call::kConditional, intent);
        }
        break;
      case Intent::kFail: Fail(intent); break;
      case Intent::kSpoil: Spoil(intent); break;
      case Intent::kAbort: Abort(intent); break;
      case Intent::kUpdate: Update(intent); break;
      case Intent::kExecute: Execute(intent); break;
      case Intent::kWaitOut:
        if (!captured(s)) EmitWait(kOutEvent + intent.slot, s);
        break;
      case Intent::kDestroy: Destroy(intent.slot); break;
      case Intent::kSetKernel:
      case Intent::kDisable: Change(intent); break;
      case Intent::kNewStream:
        if (captured(s)) break;
        Emit(Call::kNewStream, s);
        Drained(s);
        break;
      case Intent::kNewEvent:
        Emit(Call::kNewEvent).event = intent.event;
        event(intent.event) = {};
        break;
      case Intent::kProbe: Probe(intent); break;
      case Intent::kKinds: break;
    }
  }

  Program program_;
  std::array<Clock, kStreams> clocks_{};
  Clock host_{};
  Clock drained_{};  // by stream: how far the host has synchronised that very stream
  std::array<History, kThings> histories_{};
  std::array<int, kStreams> member_{-1, -1, -1, -1, -1};
  std::array<bool, kStreams> failed_{};  // by stream: its next synchronisation reports a failure
  std::array<Capture, kSlots> captures_{};
  std::array<Model, kSlots> models_{};
  std::array<EventState, kEvents> events_{};
  int next_event_ = 0;
  uint64_t next_capture_ = 0;
};

}  // namespace

Program Lower(const Intents& intents) { return Lowerer().Run(intents); }

}  // namespace reprise::stress
