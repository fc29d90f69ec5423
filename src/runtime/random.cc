// SPDX-License-Identifier: Apache-2.0
#include "runtime/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <utility>

#include "device/memory.h"
#include "ir/task.h"
#include "ir/task_info.h"
#include "kernels/float16.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

constexpr int64_t kDrawGrain = 4 << 10;  // blocks of four numbers; also keeps threads off each other's mask bytes

uint64_t LowBytes(const RandomParam& param) {
  uint64_t bits = 0;
  const size_t bytes = std::min<size_t>(param.bytes, 8);
  const void* from = param.is_address ? reinterpret_cast<const void*>(param.bits_or_address) : &param.bits_or_address;
  std::memcpy(&bits, from, bytes);  // little endian, as the device
  return bits;
}

// One draw in progress.
struct Draw {
  RandomFunction function;
  RandomType type;
  double a, b;
  IntegerRange integers;
  PhiloxKey key;
  uint64_t counter[2];
  uint64_t count;
  void* result;
};

PhiloxCounter CounterOf(const Draw& draw, uint64_t block) {
  const uint64_t low = draw.counter[0] + block;
  const uint64_t high = draw.counter[1] + (low < block ? 1 : 0);
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}

// (0, 1], so that its logarithm exists; and [0, 1).
double OpenZero(uint32_t word) { return (static_cast<double>(word) + 1.0) * 0x1p-32; }
double OpenOne(uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

// Four standard normal numbers (Box and Muller).
void Normals(const PhiloxCounter& words, double out[4]) {
  for (int i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(OpenZero(words[static_cast<size_t>(i)])));
    const double angle = 2.0 * std::numbers::pi * OpenOne(words[static_cast<size_t>(i) + 1]);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
}

void DrawBlock(const Draw& draw, uint64_t block, double out[4]) {
  const PhiloxCounter counter = CounterOf(draw, block);
  const PhiloxCounter words = Philox4x32(counter, draw.key);
  switch (draw.function) {
    case RandomFunction::kDropoutMask:
      for (size_t i = 0; i < 4; ++i) out[i] = OpenOne(words[i]) >= draw.a ? 1.0 : 0.0;
      return;
    case RandomFunction::kUniform:
      for (size_t i = 0; i < 4; ++i) out[i] = draw.a + OpenOne(words[i]) * (draw.b - draw.a);
      return;
    case RandomFunction::kNormal: Normals(words, out); break;
    case RandomFunction::kTruncatedNormal: {
      Normals(words, out);
      // Numbers that are too far out are replaced by those of other keys. One in twenty is; 32 times in a row never.
      PhiloxKey key = draw.key;
      for (int attempt = 0; attempt < 32; ++attempt) {
        const auto far = [](double z) { return std::abs(z) > 2.0; };
        if (std::none_of(out, out + 4, far)) break;
        key[1] ^= 0x5DEECE66;
        key[0] += 0x632BE5AB;
        double again[4];
        Normals(Philox4x32(counter, key), again);
        for (int i = 0; i < 4; ++i) {
          if (far(out[i])) out[i] = again[i];
        }
      }
      for (int i = 0; i < 4; ++i) out[i] = std::clamp(out[i], -2.0, 2.0);
      break;
    }
  }
  for (int i = 0; i < 4; ++i) out[i] = draw.a + draw.b * out[i];
}

void Store(const Draw& draw, uint64_t index, double value) {
  const auto number = static_cast<float>(value);
  switch (draw.type) {
    case RandomType::kFloat16: static_cast<uint16_t*>(draw.result)[index] = kernels::FloatToHalfBits(number); return;
    case RandomType::kBFloat16:
      static_cast<uint16_t*>(draw.result)[index] = kernels::FloatToBFloat16Bits(number);
      return;
    default: static_cast<float*>(draw.result)[index] = number;
  }
}

// Integers take twice their bits of words, so that no number is preferred by more than one part in 2^32 (2^64).
void IntegerBlocks(void* arg, int64_t begin, int64_t end) {
  const auto& draw = *static_cast<const Draw*>(arg);
  for (auto block = static_cast<uint64_t>(begin); block < static_cast<uint64_t>(end); ++block) {
    const PhiloxCounter words = Philox4x32(CounterOf(draw, block), draw.key);
    const uint64_t halves[2] = {words[0] | uint64_t{words[1]} << 32, words[2] | uint64_t{words[3]} << 32};
    const auto scaled = [](uint64_t word, uint64_t range) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
    };
    if (RandomBytes(draw.type) == 8) {
      // (halves[1]:halves[0] * range) >> 128
      const uint64_t low = scaled(halves[0], draw.integers.range);
      const auto wide = static_cast<unsigned __int128>(halves[1]) * draw.integers.range + low;
      static_cast<uint64_t*>(draw.result)[block] = draw.integers.low + static_cast<uint64_t>(wide >> 64);
      continue;
    }
    for (uint64_t i = 0; i < 2 && block * 2 + i < draw.count; ++i) {
      static_cast<uint32_t*>(draw.result)[block * 2 + i] =
          static_cast<uint32_t>(draw.integers.low + scaled(halves[i], draw.integers.range));
    }
  }
}

void DrawBlocks(void* arg, int64_t begin, int64_t end) {
  const auto& draw = *static_cast<const Draw*>(arg);
  for (auto block = static_cast<uint64_t>(begin); block < static_cast<uint64_t>(end); ++block) {
    double numbers[4];
    DrawBlock(draw, block, numbers);
    const uint64_t first = block * 4;
    const uint64_t here = std::min<uint64_t>(4, draw.count - first);
    if (draw.function != RandomFunction::kDropoutMask) {
      for (uint64_t i = 0; i < here; ++i) Store(draw, first + i, numbers[i]);
      continue;
    }
    unsigned nibble = 0;
    for (uint64_t i = 0; i < here; ++i) nibble |= (numbers[i] != 0.0 ? 1u : 0u) << i;
    auto& byte = static_cast<uint8_t*>(draw.result)[first / 8];
    byte = static_cast<uint8_t>(first % 8 == 0 ? nibble : byte | nibble << 4);
  }
}

ir::RunResult RunRandom(device::RunContext& context, void* payload) {
  const auto& request = *static_cast<const RandomRequest*>(payload);
  Draw draw{};
  draw.function = request.function;
  draw.type = request.type;
  const bool integers = IsInteger(request.type);
  if (integers) {
    auto range = RandomRange(request);
    if (!range.ok()) {  // of device memory, so not checked before
      const Status why = std::move(range).status();
      context.Fail(Error(kAicpuException, why.detail().what)
                       .Culprit("the random numbers' min and max in device memory")
                       .Hint("write a min that is below max, both within the type of the numbers"));
      return ir::RunResult::kDone;
    }
    draw.integers = *range;
  }
  draw.a = RandomValue(request.a, request.type);
  draw.b = RandomValue(request.b, request.type);
  const uint64_t seed = RandomInteger(request.seed);
  draw.key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  draw.count = RandomInteger(request.count);
  draw.result = request.result;
  std::memcpy(draw.counter, request.counter, sizeof draw.counter);
  if (request.count.is_address) {  // not known before, so not checked before
    auto range = device::MemoryRegistry::Get().CheckRange(
        draw.result, RandomResultBytes(draw.function, draw.type, draw.count), "randomResultAddr");
    if (!range.ok()) {
      context.Fail(Error(kDeviceMemoryError, fmt::format("{} random numbers do not fit", draw.count))
                       .Culprit(std::move(range).status().detail().what)
                       .Hint("write a smaller count to the address in randomNum, or allocate more for the results"));
      return ir::RunResult::kDone;
    }
  }
  const uint64_t each = !integers ? 4 : RandomBytes(draw.type) == 4 ? 2 : 1;
  const uint64_t blocks = draw.count / each + (draw.count % each != 0 ? 1 : 0);
  context.scheduler().ParallelFor(static_cast<int64_t>(blocks), kDrawGrain, integers ? IntegerBlocks : DrawBlocks,
                                  &draw);
  draw.counter[0] += blocks;
  if (draw.counter[0] < blocks) ++draw.counter[1];
  std::memcpy(request.counter, draw.counter, sizeof draw.counter);
  return ir::RunResult::kDone;
}

void OperandsOfRandom(const void* payload, ir::OperandSink& sink) {
  const auto& request = *static_cast<const RandomRequest*>(payload);
  sink.Take({request.counter, 16, ir::Access::kReadWrite});
  if (request.count.is_address) {
    sink.TakeOpaque();  // how much is written is known when the task runs
  } else {
    const uint64_t bytes = RandomResultBytes(request.function, request.type, RandomInteger(request.count));
    sink.Take({request.result, bytes, ir::Access::kWrite});
  }
  for (const RandomParam& param : {request.a, request.b, request.seed, request.count}) {
    if (!param.is_address) continue;
    sink.Take({reinterpret_cast<const void*>(param.bits_or_address), param.bytes, ir::Access::kRead});
  }
}

constexpr ir::TaskType kRandom = {.kind = ir::TaskKind::kRandom,
                                  .name = "KERNEL_AICPU",
                                  .run = RunRandom,
                                  .describe = [](const void*, ir::TaskInfo& info) { info.name = "RandomNum"; },
                                  .never_waits = true,
                                  .operands = OperandsOfRandom};

}  // namespace

uint64_t RandomResultBytes(RandomFunction function, RandomType type, uint64_t count) {
  if (function == RandomFunction::kDropoutMask) return count / 8 + (count % 8 != 0 ? 1 : 0);
  const uint64_t bytes = RandomBytes(type);
  return count > UINT64_MAX / bytes ? UINT64_MAX : count * bytes;  // too much fits nowhere
}

double RandomValue(const RandomParam& param, RandomType type) {
  const uint64_t bits = LowBytes(param);
  switch (param.bytes) {
    case 2:
      return static_cast<double>(type == RandomType::kBFloat16
                                     ? kernels::BFloat16BitsToFloat(static_cast<uint16_t>(bits))
                                     : kernels::HalfBitsToFloat(static_cast<uint16_t>(bits)));
    case 4: return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case 8: return std::bit_cast<double>(bits);
    default: return 0.0;
  }
}

uint64_t RandomInteger(const RandomParam& param) { return LowBytes(param); }

StatusOr<IntegerRange> RandomRange(const RandomRequest& request) {
  const RandomType type = request.type;
  const bool is_signed = type == RandomType::kInt32 || type == RandomType::kInt64;
  const bool is_narrow = RandomBytes(type) == 4;
  const auto text = [&](uint64_t value) {
    return is_signed ? std::to_string(static_cast<int64_t>(value)) : std::to_string(value);
  };
  const auto read = [&](const RandomParam& param) {
    const uint64_t bits = LowBytes(param);
    return param.bytes == 4 && is_signed ? static_cast<uint64_t>(static_cast<int32_t>(bits)) : bits;
  };
  const uint64_t low = read(request.a);
  const uint64_t high = read(request.b);
  for (const auto& [name, value] : {std::pair{"min", low}, std::pair{"max", high}}) {
    const bool fits =
        !is_narrow || (is_signed ? static_cast<int64_t>(value) == static_cast<int32_t>(value) : value <= UINT32_MAX);
    if (fits) continue;
    return Error(kInvalidValue, fmt::format("{} is {}, which a 32-bit {} number cannot hold", name, text(value),
                                            is_signed ? "signed" : "unsigned"))
        .Hint("pass a value within the type of the numbers, or draw 64-bit ones");
  }
  const bool in_order = is_signed ? static_cast<int64_t>(low) < static_cast<int64_t>(high) : low < high;
  if (!in_order)
    return Error(kInvalidValue, fmt::format("min is {}, must be below max, which is {}", text(low), text(high)))
        .Hint("the numbers drawn are min, …, max - 1: pass a larger max");
  return IntegerRange{low, high - low};
}

Status WithRandomTask(const RandomRequest& request, const std::function<Status(const ir::Task&)>& take) {
  RandomRequest payload = request;
  return take(ir::MakeTask(kRandom, payload));
}

const RandomRequest& RequestOf(const void* payload) { return *static_cast<const RandomRequest*>(payload); }

Status SubmitRandom(Stream& stream, const RandomRequest& request) {
  return WithRandomTask(request, [&](const ir::Task& task) { return Submit(stream, task); });
}

}  // namespace reprise::runtime
