// SPDX-License-Identifier: Apache-2.0
#include "kernels/exponent_code.h"

#include <bit>
#include <cstring>
#include <numeric>

namespace reprise::kernels {
namespace {

static_assert(std::endian::native == std::endian::little);

// Widths of the groups that are looked at together.
constexpr int64_t kWidthsAtOnce = 4096;

// Which exponent has a rank, and the other way round.
struct Ranks {
  explicit Ranks(const int32_t* counts) {
    std::iota(std::begin(exponent), std::end(exponent), uint8_t{0});
    std::stable_sort(std::begin(exponent), std::end(exponent),
                     [counts](uint8_t a, uint8_t b) { return counts[a] > counts[b]; });
    for (int r = 0; r < 256; ++r) rank[exponent[r]] = static_cast<uint8_t>(r);
  }
  uint8_t exponent[256];
  uint8_t rank[256];
};

// Bits: an unsigned number as wide as the floating one. Behind the exponent it has as many bits less.
template <class Bits>
struct Parts {
  static constexpr int kFraction = static_cast<int>(sizeof(Bits)) * 8 - 9;
  static constexpr Bits kFractionMask = (Bits{1} << kFraction) - 1;
  static constexpr int64_t kRest = sizeof(Bits) - 1;

  static void Split(const void* numbers, Range range, uint8_t* exponents, uint8_t* rest) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      Bits bits;
      std::memcpy(&bits, static_cast<const char*>(numbers) + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      exponents[i] = static_cast<uint8_t>(bits >> kFraction);
      const auto others = static_cast<Bits>((bits & kFractionMask) | (bits >> (kFraction + 8) << kFraction));
      std::memcpy(rest + i * kRest, &others, kRest);
    }
  }
  static void Join(const uint8_t* exponents, const uint8_t* rest, Range range, void* numbers) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      Bits others = 0;
      std::memcpy(&others, rest + i * kRest, kRest);
      const auto bits = static_cast<Bits>((others & kFractionMask) | (Bits{exponents[i]} << kFraction) |
                                          (others >> kFraction << (kFraction + 8)));
      std::memcpy(static_cast<char*>(numbers) + i * static_cast<int64_t>(sizeof(Bits)), &bits, sizeof(Bits));
    }
  }
};

}  // namespace

void TwoPieces::Read(int64_t begin, int64_t count, uint8_t* to) const {
  const int64_t of_first = std::clamp<int64_t>(first_bytes - begin, 0, count);
  if (of_first > 0) std::memcpy(to, first + begin, static_cast<size_t>(of_first));
  if (of_first == count) return;
  std::memcpy(to + of_first, second + (begin + of_first - first_bytes), static_cast<size_t>(count - of_first));
}

void TwoPieces::Write(int64_t begin, int64_t count, const uint8_t* from) const {
  const int64_t of_first = std::clamp<int64_t>(first_bytes - begin, 0, count);
  if (of_first > 0) std::memcpy(first + begin, from, static_cast<size_t>(of_first));
  if (of_first == count) return;
  std::memcpy(second + (begin + of_first - first_bytes), from + of_first, static_cast<size_t>(count - of_first));
}

void SplitExponents(DType type, const void* numbers, Range range, uint8_t* exponents, uint8_t* rest) {
  if (type == DType::kFloat) return Parts<uint32_t>::Split(numbers, range, exponents, rest);
  Parts<uint16_t>::Split(numbers, range, exponents, rest);
}

void JoinExponents(DType type, const uint8_t* exponents, const uint8_t* rest, Range range, void* numbers) {
  if (type == DType::kFloat) return Parts<uint32_t>::Join(exponents, rest, range, numbers);
  Parts<uint16_t>::Join(exponents, rest, range, numbers);
}

void CountExponents(const uint8_t* exponents, int64_t numbers, int32_t* counts) {
  std::fill_n(counts, 256, 0);
  for (int64_t i = 0; i < numbers; ++i) ++counts[exponents[i]];
}

void PackExponents(const uint8_t* exponents, const int32_t* counts, Range range, uint8_t* widths, uint8_t* groups) {
  const Ranks ranks(counts);
  for (int64_t group = range.begin; group < range.end; ++group) {
    const uint8_t* const from = exponents + group * kExponentGroup;
    uint8_t* to = groups + group * kExponentGroup;
    unsigned all = 0;
    for (int64_t i = 0; i < kExponentGroup; ++i) all |= ranks.rank[from[i]];
    const int width = std::bit_width(all);
    widths[group] = static_cast<uint8_t>(width);
    for (int64_t i = 0; i < kExponentGroup; i += 8) {
      uint64_t eight = 0;
      for (int64_t k = 0; k < 8; ++k) eight |= uint64_t{ranks.rank[from[i + k]]} << (k * width);
      std::memcpy(to, &eight, static_cast<size_t>(width));
      to += width;
    }
  }
}

void JoinGroups(const uint8_t* widths, const uint8_t* groups, int64_t count, const TwoPieces& stream) {
  stream.Write(0, count, widths);
  int64_t begin = count;
  for (int64_t group = 0; group < count; ++group) {
    stream.Write(begin, 8 * widths[group], groups + group * kExponentGroup);
    begin += 8 * widths[group];
  }
}

void FindGroups(const TwoPieces& stream, int64_t count, int64_t* begins) {
  uint8_t widths[kWidthsAtOnce];
  int64_t begin = count;
  for (int64_t done = 0; done < count; done += kWidthsAtOnce) {
    const int64_t some = std::min(kWidthsAtOnce, count - done);
    stream.Read(done, some, widths);
    for (int64_t i = 0; i < some; ++i) {
      begins[done + i] = begin;
      begin += 8 * std::min<int64_t>(widths[i], 8);
    }
  }
}

void UnpackExponents(const TwoPieces& stream, const int64_t* begins, const int32_t* counts, Range range,
                     uint8_t* exponents) {
  const Ranks ranks(counts);
  for (int64_t group = range.begin; group < range.end; ++group) {
    uint8_t stored = 0;
    stream.Read(group, 1, &stored);
    const int width = std::min<int>(stored, 8);
    uint8_t packed[kExponentGroup];
    stream.Read(begins[group], 8 * width, packed);
    const uint64_t mask = (uint64_t{1} << width) - 1;
    uint8_t* const to = exponents + group * kExponentGroup;
    for (int64_t i = 0; i < kExponentGroup; i += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, packed + i / 8 * width, static_cast<size_t>(width));
      for (int64_t k = 0; k < 8; ++k) to[i + k] = ranks.exponent[(eight >> (k * width)) & mask];
    }
  }
}

}  // namespace reprise::kernels
