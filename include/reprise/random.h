// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that survive capture and replay.
//
//     reprise::Generator generator(0);
//     generator.ManualSeed(42);
//     reprise::DrawNormal(stream, generator, noise, reprise::ElementType::kFloat32, count);
//
// Captured, such a draw makes at each replay the numbers that the same call would have made eagerly at that moment: the
// generator moves on by what the graph draws, and a seed that is set between two replays counts from the next one on.
//
// Errors: everything here throws reprise::Exception with a public error number; see docs/errors.md.
// Threads: everything here may be called from any thread.
#ifndef REPRISE_RANDOM_H_
#define REPRISE_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "error.h"

namespace reprise {

namespace rng {
class Generator;
}  // namespace rng

/// The numbers equal those of aclDataType.
enum class ElementType : int32_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 6,
  kUInt16 = 7,
  kUInt32 = 8,
  kInt64 = 9,
  kUInt64 = 10,
  kFloat64 = 11,
  kBool = 12,
  kBFloat16 = 27,
};

/// A generator: a seed, and an offset that counts what was drawn. Copies are the same generator; Clone makes another
/// one. While the current stream of the calling thread is being captured, what would tell or set the offset outside of
/// the capture is refused (107027), and the capture goes on.
class Generator {
 public:
  /// Seed and offset as GetState gives them.
  using State = std::array<uint8_t, 16>;

  /// Seed 67280421310721, offset 0. Refused while capturing.
  explicit Generator(int device = 0);
  /// The device's own: made once, with a seed that nobody can foresee. 107001: there is no such device.
  static Generator Default(int device = 0);

  int device() const;
  uint64_t initial_seed() const;

  /// Sets the seed, and the offset to 0. While capturing: the same seed changes nothing, another is refused (107030).
  void ManualSeed(uint64_t seed);
  /// Sets a seed that nobody can foresee, and returns it. Refused while capturing.
  uint64_t Seed();

  /// A multiple of 4. Refused while capturing.
  uint64_t offset() const;
  void SetOffset(uint64_t offset);

  /// While capturing, the offset in the state is how many numbers the capture has drawn so far: such a state means
  /// something only within the same capture. A state from outside with another offset than 0 is charged on top of the
  /// generator's own at each replay.
  State GetState() const;
  /// 16 bytes, or 8: the seed alone, with the offset 0.
  void SetState(const State& state);
  void SetState(const std::vector<uint8_t>& state);

  /// An independent generator with the same seed and offset. Refused while capturing.
  Generator Clone() const;
  /// A generator that shares seed and offset with this one: both move on together.
  Generator Share() const;
  /// Shares those of `other`, a generator of the same device, from now on.
  void ShareWith(const Generator& other);

  /// For layers below; never null.
  const std::shared_ptr<rng::Generator>& impl() const { return impl_; }

 private:
  explicit Generator(std::shared_ptr<rng::Generator> impl);

  std::shared_ptr<rng::Generator> impl_;
};

/// The states of the default generators of all devices, in their order.
std::vector<Generator::State> GetRngStates();
void SetRngStates(const std::vector<Generator::State>& states);
/// One seed for the default generators of all devices; SeedAll makes one that nobody can foresee, and returns it.
void ManualSeedAll(uint64_t seed);
uint64_t SeedAll();

// Draws of `count` elements into device memory, in the order of `stream` (aclrtStream; null means the default stream of
// the current context). One draw moves the generator on by 4, whatever its size; a draw of no elements does nothing.
// Numbers of 16 and 32 bits are computed in float32 and rounded once. Errors besides those of any submission: 107000
// for types and parameters that do not fit, and for addresses that are null, not aligned or not device memory.

/// [from, to), floating types.
void DrawUniform(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double from = 0.0,
                 double to = 1.0);
/// Floating types.
void DrawNormal(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double mean = 0.0,
                double deviation = 1.0);
/// e^x of such numbers.
void DrawLogNormal(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double mean = 1.0,
                   double deviation = 2.0);
void DrawExponential(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double rate = 1.0);
void DrawCauchy(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double median = 0.0,
                double half_width = 1.0);
/// Trials up to the first success; floating types.
void DrawGeometric(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double probability);
/// 1 with the probability, else 0; all types.
void DrawBernoulli(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double probability);
/// 1 with the element's own probability, of a floating type. One that is none fails the task (507035).
void DrawBernoulli(void* stream, Generator& generator, void* out, ElementType type, int64_t count,
                   const void* probabilities, ElementType probability_type);
/// Integers from [low, high); all types that hold them exactly.
void DrawInteger(void* stream, Generator& generator, void* out, ElementType type, int64_t count, int64_t low,
                 int64_t high);
/// out = in / (1 - probability) where kept, else 0; mask = 1 where kept, else 0 (bytes; may be null). Floating types;
/// `out` may be `in`.
void DrawDropout(void* stream, Generator& generator, const void* in, void* out, void* mask, ElementType type,
                 int64_t count, double probability);
/// 0, …, count - 1 in an order of which each is as likely as any other; integer types.
void DrawPermutation(void* stream, Generator& generator, void* out, ElementType type, int64_t count);

/// Queues host work of one's own that draws, like LaunchClosure: at each run it gets a seed for whatever generator it
/// uses, in a replay the same as in the eager call at that moment. `closure` returns 0 or an error number, which the
/// stream reports at its next synchronisation. It cannot be part of the update of a task group (507009).
void LaunchRandomClosure(void* stream, Generator& generator, const char* name,
                         std::function<int(uint64_t seed)> closure);

}  // namespace reprise

#endif  // REPRISE_RANDOM_H_
