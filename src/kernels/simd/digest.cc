// SPDX-License-Identifier: Apache-2.0
#include "kernels/digest.h"

#include <cstddef>
#include <cstring>

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/digest.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef REPRISE_KERNELS_SIMD_DIGEST_SUMS
#define REPRISE_KERNELS_SIMD_DIGEST_SUMS
namespace reprise::kernels::simd {

constexpr size_t kDigestLanes = 8;
constexpr size_t kDigestLineBytes = kDigestLanes * sizeof(uint64_t);
constexpr uint64_t kDigestStep = 0x9E3779B97F4A7C15;  // odd: keys of 2^64 lines differ

// For each word of a line a sum of products of its halves, whose keys differ by line, so that the order of lines
// counts; and one of the words themselves, so that none is lost where a product is 0.
struct DigestSums {
  alignas(64) uint64_t products[kDigestLanes] = {};
  alignas(64) uint64_t words[kDigestLanes] = {};
  alignas(64) uint64_t keys[kDigestLanes] = {};
};

}  // namespace reprise::kernels::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of words at any address.
template <class D>
HWY_ATTR HWY_INLINE hn::Vec<D> WordsAt(D d, const char* from) {
#if HWY_TARGET == HWY_SCALAR
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return hn::Set(d, word);
#else
  const hn::Repartition<uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
#endif
}

// Of each word the lower half times the upper one.
template <class D>
HWY_ATTR HWY_INLINE hn::Vec<D> ProductOfHalves(D d, hn::Vec<D> words) {
#if HWY_TARGET == HWY_SCALAR
  const uint64_t word = hn::GetLane(words);
  return hn::Set(d, (word & 0xFFFFFFFF) * (word >> 32));
#else
  (void)d;
  const hn::RepartitionToNarrow<D> halves;
  return hn::MulEven(hn::BitCast(halves, words), hn::BitCast(halves, hn::ShiftRight<32>(words)));
#endif
}

// The words from `lane` on, of as many lanes as two vectors have.
template <class D>
HWY_ATTR void AddWords(D d, DigestSums& sums, const char* from, size_t lines, size_t lane) {
  const size_t width = hn::Lanes(d);
  const auto step = hn::Set(d, kDigestStep);
  auto products0 = hn::Load(d, sums.products + lane);
  auto products1 = hn::Load(d, sums.products + lane + width);
  auto words0 = hn::Load(d, sums.words + lane);
  auto words1 = hn::Load(d, sums.words + lane + width);
  auto keys0 = hn::Load(d, sums.keys + lane);
  auto keys1 = hn::Load(d, sums.keys + lane + width);
  for (size_t line = 0; line < lines; ++line, from += kDigestLineBytes) {
    const auto word0 = WordsAt(d, from + lane * sizeof(uint64_t));
    const auto word1 = WordsAt(d, from + (lane + width) * sizeof(uint64_t));
    products0 = hn::Add(products0, ProductOfHalves(d, hn::Xor(word0, keys0)));
    products1 = hn::Add(products1, ProductOfHalves(d, hn::Xor(word1, keys1)));
    words0 = hn::Add(words0, word0);
    words1 = hn::Add(words1, word1);
    keys0 = hn::Add(keys0, step);
    keys1 = hn::Add(keys1, step);
  }
  hn::Store(products0, d, sums.products + lane);
  hn::Store(products1, d, sums.products + lane + width);
  hn::Store(words0, d, sums.words + lane);
  hn::Store(words1, d, sums.words + lane + width);
  hn::Store(keys0, d, sums.keys + lane);
  hn::Store(keys1, d, sums.keys + lane + width);
}

HWY_ATTR void AddLines(DigestSums& sums, const char* from, size_t lines) {
  const hn::CappedTag<uint64_t, kDigestLanes / 2> d;
  constexpr size_t kBlock = 128;  // lines: 8 KiB, which narrow vectors read more than once
  for (size_t first = 0; first < lines; first += kBlock) {
    const size_t count = lines - first < kBlock ? lines - first : kBlock;
    for (size_t lane = 0; lane < kDigestLanes; lane += 2 * hn::Lanes(d)) {
      AddWords(d, sums, from + first * kDigestLineBytes, count, lane);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels {
namespace simd {
namespace {

HWY_EXPORT(AddLines);

void AddAllLines(DigestSums& sums, const char* from, size_t lines) {
  HWY_DYNAMIC_DISPATCH(AddLines)(sums, from, lines);
}

uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace
}  // namespace simd

Digest DigestOf(const void* data, uint64_t bytes) {
  using simd::Mixed;
  simd::DigestSums sums;
  for (size_t i = 0; i < simd::kDigestLanes; ++i) sums.keys[i] = Mixed(i + 1);
  const auto* const from = static_cast<const char*>(data);
  const uint64_t whole = bytes / simd::kDigestLineBytes * simd::kDigestLineBytes;
  simd::AddAllLines(sums, from, whole / simd::kDigestLineBytes);
  if (whole != bytes) {
    char last[simd::kDigestLineBytes] = {};
    std::memcpy(last, from + whole, bytes - whole);
    simd::AddAllLines(sums, last, 1);
  }
  Digest digest{{Mixed(bytes + simd::kDigestStep), Mixed(~bytes)}};
  for (size_t i = 0; i < simd::kDigestLanes; ++i) {
    digest.words[0] = Mixed(digest.words[0] + sums.products[i]);
    digest.words[1] = Mixed(digest.words[1] ^ Mixed(sums.words[i] + i));
  }
  return digest;
}

}  // namespace reprise::kernels
#endif  // HWY_ONCE
