// SPDX-License-Identifier: Apache-2.0
#include "rng/generator.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <random>
#include <utility>

#include "base/mutex.h"
#include "kernels/philox.h"

namespace reprise::rng {
namespace {

using Values = GeneratorState::Values;

static_assert(std::endian::native == std::endian::little, "states are little endian");

constexpr uint64_t kUnit = GeneratorState::kUnit;
constexpr uint64_t kMaxOffset = GeneratorState::kMaxOffset;

Status Captured(uint64_t capture, int device, const char* call) {
  return Error(kStreamCaptured,
               fmt::format("{} is not allowed while the stream is being captured: it needs the generator's "
                           "values now, and they change with each replay",
                           call))
      .Culprit(fmt::format("capture {} of the current stream of device {}", capture, device))
      .Hint("make, seed and read generators before the capture or after it");
}

Status CheckNotCapturing(Environment& environment, int device, const char* call) {
  const uint64_t capture = environment.CurrentCapture(device);
  return capture == 0 ? Status() : Captured(capture, device, call);
}

Status NewSeedInCapture(uint64_t seed, uint64_t current, uint64_t capture, int device) {
  return Error(kCaptureModeForbids,
               fmt::format("a new seed ({}, in place of {}) cannot be set in a capture: a replay takes the seed "
                           "that the generator has then",
                           seed, current))
      .Culprit(fmt::format("capture {} of device {}", capture, device))
      .Hint("seed the generator before the capture, or between replays");
}

Status CheckOffset(uint64_t offset) {
  if (offset % kUnit != 0) {
    return Error(kInvalidValue, fmt::format("offset {} is not a multiple of 4", offset))
        .Culprit("parameter offset")
        .Hint(fmt::format("pass {}, the next multiple of 4", (offset | 3) == UINT64_MAX ? 0 : (offset | 3) + 1));
  }
  if (offset > kMaxOffset) {
    return Error(kInvalidValue, fmt::format("offset {} is more than {}, the largest one", offset, kMaxOffset))
        .Culprit("parameter offset")
        .Hint("pass an offset that fits 63 bits; another seed is another sequence");
  }
  return {};
}

// Moves `offset` on; 207012 and no change when there is no room.
Status Advance(uint64_t& offset, uint64_t increment, const char* whose) {
  if (increment > kMaxOffset - offset) {
    return Error(kLimitExceeded,
                 fmt::format("{} {} cannot move on by {}: the largest one is {}", whose, offset, increment, kMaxOffset))
        .Culprit(whose)
        .Hint("set another seed, which sets the offset to 0");
  }
  offset += (increment + kUnit - 1) / kUnit * kUnit;
  return {};
}

}  // namespace

uint64_t PhiloxArguments::ForeignSeed() const {
  const uint64_t key = Seed();
  const uint64_t position = Offset() / kUnit;
  // The last block that a draw could have, which none has.
  const auto words = kernels::Philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), UINT32_MAX, UINT32_MAX},
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return uint64_t{words[1]} << 32 | words[0];
}

struct GeneratorState::Cells {
  explicit Cells(Environment& where) : environment(where) {}
  Cells(const Cells&) = delete;
  Cells& operator=(const Cells&) = delete;
  ~Cells() {
    if (seed != nullptr) environment.FreeCell(seed);
    if (offset != nullptr) environment.FreeCell(offset);
  }

  Environment& environment;
  int64_t* seed = nullptr;
  int64_t* offset = nullptr;
};

GeneratorState::GeneratorState(Environment& environment, int device, uint64_t seed, uint64_t offset)
    : environment_(environment), device_(device), seed_(seed), offset_(offset) {}

GeneratorState::~GeneratorState() = default;

// Graph first, so that a refusal costs no memory; then the cells, without the mutex, because allocators have locks of
// their own. Two threads may come here at once: the second one's cells go again.
Status GeneratorState::RegisterIn(uint64_t capture) {
  REPRISE_RETURN_IF_ERROR(environment_.Register(capture, shared_from_this()));
  auto cells = std::make_shared<Cells>(environment_);
  REPRISE_ASSIGN_OR_RETURN(cells->seed, environment_.AllocateCell(device_));
  REPRISE_ASSIGN_OR_RETURN(cells->offset, environment_.AllocateCell(device_));
  MutexLock lock(mutex_);
  const auto [at, is_new] = captures_.try_emplace(capture);
  if (is_new) at->second.cells.swap(cells);
  return {};
}

template <class Fn>
Status GeneratorState::WithCapture(uint64_t capture, Fn fn) {
  {
    MutexLock lock(mutex_);
    if (const auto found = captures_.find(capture); found != captures_.end()) return fn(found->second);
  }
  REPRISE_RETURN_IF_ERROR(RegisterIn(capture));
  MutexLock lock(mutex_);
  if (const auto found = captures_.find(capture); found != captures_.end()) return fn(found->second);
  return Error(kCaptureModeForbids, fmt::format("capture {} ended while a generator began to draw in it", capture))
      .Culprit("the thread that ended the capture")
      .Hint("end a capture when all threads that submit to it have done so");
}

uint64_t GeneratorState::seed() const {
  MutexLock lock(mutex_);
  return seed_;
}

StatusOr<Values> GeneratorState::Get(uint64_t capture) {
  Values values;
  if (capture == 0) {
    MutexLock lock(mutex_);
    values = {seed_, offset_};
    return values;
  }
  REPRISE_RETURN_IF_ERROR(WithCapture(capture, [&](InCapture& in) REPRISE_REQUIRES(mutex_) -> Status {
    values = {seed_, in.offset};
    return {};
  }));
  return values;
}

Status GeneratorState::Set(Values values, uint64_t capture) {
  REPRISE_RETURN_IF_ERROR(CheckOffset(values.offset));
  if (capture == 0) {
    MutexLock lock(mutex_);
    seed_ = values.seed;
    offset_ = values.offset;
    return {};
  }
  // Looked at before a refusal registers anything, and again with the lock held.
  if (const uint64_t current = seed(); current != values.seed) {
    return NewSeedInCapture(values.seed, current, capture, device_);
  }
  return WithCapture(capture, [&](InCapture& in) REPRISE_REQUIRES(mutex_) -> Status {
    if (seed_ != values.seed) return NewSeedInCapture(values.seed, seed_, capture, device_);
    in.offset = values.offset;
    return {};
  });
}

Status GeneratorState::SetSeed(uint64_t seed, uint64_t capture) {
  MutexLock lock(mutex_);
  if (capture != 0) return seed == seed_ ? Status() : NewSeedInCapture(seed, seed_, capture, device_);
  seed_ = seed;
  offset_ = 0;
  return {};
}

Status GeneratorState::SetOffset(uint64_t offset, uint64_t capture) {
  REPRISE_RETURN_IF_ERROR(CheckOffset(offset));
  if (capture == 0) {
    MutexLock lock(mutex_);
    offset_ = offset;
    return {};
  }
  return WithCapture(capture, [&](InCapture& in) -> Status {
    in.offset = offset;
    return {};
  });
}

StatusOr<PhiloxArguments> GeneratorState::Take(uint64_t increment, uint64_t capture) {
  PhiloxArguments arguments;
  if (capture == 0) {
    MutexLock lock(mutex_);
    arguments.seed = seed_;
    arguments.offset = offset_;
    REPRISE_RETURN_IF_ERROR(Advance(offset_, increment, "the generator's offset"));
    return arguments;
  }
  REPRISE_RETURN_IF_ERROR(WithCapture(capture, [&](InCapture& in) -> Status {
    arguments.seed_cell = in.cells->seed;
    arguments.offset_cell = in.cells->offset;
    arguments.offset_in_graph = in.offset;
    Status advanced = Advance(in.offset, increment, "the offset within the capture");
    in.consumed = in.consumed || advanced.ok();
    return advanced;
  }));
  return arguments;
}

uint64_t GeneratorState::CaptureEpilogue(uint64_t capture) {
  MutexLock lock(mutex_);
  const auto found = captures_.find(capture);
  return found == captures_.end() ? 0 : std::exchange(found->second.offset, 0);
}

Status GeneratorState::ReplayPrologue(uint64_t capture, uint64_t increment, void* stream) {
  if (const uint64_t now = environment_.CaptureOf(stream); now != 0) {
    return Error(kStreamCaptured,
                 "a graph that draws random numbers cannot be replayed on a stream that is being captured")
        .Culprit(fmt::format("capture {} of device {}", now, device_))
        .Hint("replay it outside of captures");
  }
  std::shared_ptr<Cells> cells;
  Values values;
  {
    MutexLock lock(mutex_);
    const auto found = captures_.find(capture);
    if (found == captures_.end() || !found->second.consumed) return {};
    values = {seed_, offset_};
    REPRISE_RETURN_IF_ERROR(Advance(offset_, increment, "the generator's offset"));
    cells = found->second.cells;
  }
  return environment_.WriteCells(stream, cells->seed, static_cast<int64_t>(values.seed), cells->offset,
                                 static_cast<int64_t>(values.offset));
}

void GeneratorState::RemoveCapture(uint64_t capture) {
  std::shared_ptr<Cells> cells;  // freed when the mutex is not held
  MutexLock lock(mutex_);
  if (const auto found = captures_.find(capture); found != captures_.end()) {
    cells.swap(found->second.cells);
    captures_.erase(found);
  }
}

// ---- Generator ----

StatusOr<std::shared_ptr<Generator>> Generator::Create(Environment& environment, int device) {
  REPRISE_RETURN_IF_ERROR(CheckNotCapturing(environment, device, "making a generator"));
  return std::make_shared<Generator>(std::make_shared<GeneratorState>(environment, device));
}

Generator::Generator(std::shared_ptr<GeneratorState> state) : state_(std::move(state)) {}

std::shared_ptr<GeneratorState> Generator::state() const {
  MutexLock lock(mutex_);
  return state_;
}

int Generator::device() const { return state()->device(); }

StatusOr<std::shared_ptr<Generator>> Generator::Clone() const {
  const std::shared_ptr<GeneratorState> from = state();
  REPRISE_RETURN_IF_ERROR(CheckNotCapturing(from->environment(), from->device(), "cloning a generator"));
  REPRISE_ASSIGN_OR_RETURN(const Values values, from->Get(0));
  return std::make_shared<Generator>(
      std::make_shared<GeneratorState>(from->environment(), from->device(), values.seed, values.offset));
}

uint64_t Generator::CurrentSeed() const { return state()->seed(); }

Status Generator::SetCurrentSeed(uint64_t seed) {
  const std::shared_ptr<GeneratorState> on = state();
  return on->SetSeed(seed, on->environment().CurrentCapture(on->device()));
}

StatusOr<uint64_t> Generator::NewSeed() {
  const std::shared_ptr<GeneratorState> on = state();
  REPRISE_RETURN_IF_ERROR(CheckNotCapturing(on->environment(), on->device(), "seeding a generator at random"));
  const uint64_t seed = UnforeseeableSeed();
  REPRISE_RETURN_IF_ERROR(on->SetSeed(seed, 0));
  return seed;
}

StatusOr<uint64_t> Generator::GetOffset() const {
  const std::shared_ptr<GeneratorState> of = state();
  REPRISE_RETURN_IF_ERROR(CheckNotCapturing(of->environment(), of->device(), "reading a generator's offset"));
  REPRISE_ASSIGN_OR_RETURN(const Values values, of->Get(0));
  return values.offset;
}

Status Generator::SetOffset(uint64_t offset) {
  const std::shared_ptr<GeneratorState> on = state();
  REPRISE_RETURN_IF_ERROR(CheckNotCapturing(on->environment(), on->device(), "setting a generator's offset"));
  return on->SetOffset(offset, 0);
}

StatusOr<uint64_t> Generator::PhiloxOffset() const {
  const std::shared_ptr<GeneratorState> of = state();
  REPRISE_ASSIGN_OR_RETURN(const Values values, of->Get(of->environment().CurrentCapture(of->device())));
  return values.offset;
}

Status Generator::SetPhiloxOffset(uint64_t offset) {
  const std::shared_ptr<GeneratorState> on = state();
  return on->SetOffset(offset, on->environment().CurrentCapture(on->device()));
}

StatusOr<Generator::StateBytes> Generator::GetState() const {
  const std::shared_ptr<GeneratorState> of = state();
  REPRISE_ASSIGN_OR_RETURN(const Values values, of->Get(of->environment().CurrentCapture(of->device())));
  StateBytes bytes;
  std::memcpy(bytes.data(), &values.seed, 8);
  std::memcpy(bytes.data() + 8, &values.offset, 8);
  return bytes;
}

Status Generator::SetState(std::span<const uint8_t> bytes) {
  if (bytes.size() != kStateBytes && bytes.size() != 8) {
    return Error(
               kInvalidValue,
               fmt::format("RNG state is wrong size: {} bytes, must be 16 (seed and offset) or 8 (seed)", bytes.size()))
        .Culprit("parameter state")
        .Hint("pass what GetState has returned");
  }
  Values values;
  std::memcpy(&values.seed, bytes.data(), 8);
  if (bytes.size() == kStateBytes) std::memcpy(&values.offset, bytes.data() + 8, 8);
  const std::shared_ptr<GeneratorState> on = state();
  return on->Set(values, on->environment().CurrentCapture(on->device()));
}

std::shared_ptr<Generator> Generator::GraphsafeGetState() const { return std::make_shared<Generator>(state()); }

Status Generator::GraphsafeSetState(const Generator* other) {
  if (other == nullptr) {
    return Error(kInvalidValue, "there is no NPU Generator whose state could be shared")
        .Culprit("parameter generator")
        .Hint("pass a generator of the same device");
  }
  std::shared_ptr<GeneratorState> theirs = other->state();  // before our mutex: it may be the same generator
  MutexLock lock(mutex_);
  if (theirs->device() != state_->device()) {
    return Error(kInvalidValue,
                 fmt::format("the generator belongs to device {}, an NPU Generator of device {} is expected",
                             theirs->device(), state_->device()))
        .Culprit("parameter generator")
        .Hint("pass a generator of the same device");
  }
  state_.swap(theirs);
  return {};
}

StatusOr<PhiloxArguments> Generator::Take(uint64_t increment, void* stream) {
  const std::shared_ptr<GeneratorState> from = state();
  return from->Take(increment, from->environment().CaptureOf(stream));
}

StatusOr<Values> Generator::EngineInputs(uint64_t increment) {
  const std::shared_ptr<GeneratorState> from = state();
  REPRISE_RETURN_IF_ERROR(
      CheckNotCapturing(from->environment(), from->device(), "reading seed and offset for a draw of one's own"));
  REPRISE_ASSIGN_OR_RETURN(const PhiloxArguments arguments, from->Take(increment, 0));
  return Values{arguments.seed, arguments.offset};
}

std::shared_ptr<Generator> DefaultGenerators::Of(int device) {
  MutexLock lock(mutex_);
  std::shared_ptr<Generator>& generator = generators_[device];
  if (generator == nullptr) {
    generator =
        std::make_shared<Generator>(std::make_shared<GeneratorState>(environment_, device, UnforeseeableSeed()));
  }
  return generator;
}

uint64_t UnforeseeableSeed() {
  std::random_device source;
  const uint64_t high = source();
  return high << 32 | source();
}

}  // namespace reprise::rng
