// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/philox.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/philox.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::CappedTag<uint32_t, 16>;
using WordVec = hn::Vec<WordTag>;
using IntTag = hn::Rebind<int32_t, WordTag>;
using FloatTag = hn::Rebind<float, WordTag>;
using FloatVec = hn::Vec<FloatTag>;

// One word of each block: lane i belongs to block first + i.
struct Words {
  WordVec w0, w1, w2, w3;
};

// Both halves of a * m, lane by lane.
HWY_INLINE HWY_ATTR void Multiply(WordVec a, WordVec m, WordVec& high, WordVec& low) {
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(m);
  high = hn::Set(WordTag(), static_cast<uint32_t>(product >> 32));
  low = hn::Set(WordTag(), static_cast<uint32_t>(product));
#else
  const WordTag d;
  const hn::RepartitionToWide<WordTag> wide;
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
#endif
}

// Walks the blocks of a draw, a vector of them at a time.
class Blocks {
 public:
  HWY_INLINE HWY_ATTR Blocks(const PhiloxSource& source, uint64_t first)
      : counter0_(static_cast<uint32_t>(source.counter)),
        counter1_(static_cast<uint32_t>(source.counter >> 32)),
        block_(first),
        lane_(hn::Iota(WordTag(), 0)) {
    auto key0 = static_cast<uint32_t>(source.seed);
    auto key1 = static_cast<uint32_t>(source.seed >> 32);
    for (uint32_t(&keys)[2] : keys_) {
      keys[0] = key0;
      keys[1] = key1;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
  }

  HWY_INLINE HWY_ATTR Words Next() {
    const WordTag d;
    WordVec c0 = hn::Set(d, counter0_);
    WordVec c1 = hn::Set(d, counter1_);
    // No carry between the lanes: a vector begins at a multiple of its length.
    WordVec c2 = hn::Add(lane_, hn::Set(d, static_cast<uint32_t>(block_)));
    WordVec c3 = hn::Set(d, static_cast<uint32_t>(block_ >> 32));
    block_ += hn::Lanes(d);
    const WordVec m0 = hn::Set(d, 0xD2511F53u);
    const WordVec m1 = hn::Set(d, 0xCD9E8D57u);
    for (const uint32_t(&keys)[2] : keys_) {
      WordVec high0, low0, high1, low1;
      Multiply(c0, m0, high0, low0);
      Multiply(c2, m1, high1, low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, keys[0]));
      c1 = low1;
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, keys[1]));
      c3 = low0;
    }
    return {c0, c1, c2, c3};
  }

 private:
  const uint32_t counter0_, counter1_;
  uint64_t block_;
  const WordVec lane_;
  uint32_t keys_[10][2];
};

// ---- From words to numbers ----

// Words below 2^31 as floats; the conversion of signed numbers is one instruction everywhere.
HWY_INLINE HWY_ATTR FloatVec ToFloat(WordVec word) { return hn::ConvertTo(FloatTag(), hn::BitCast(IntTag(), word)); }

// (0, 1]: w / 2^32 and half a step, from two exact halves of 16 bits.
HWY_INLINE HWY_ATTR FloatVec OpenZero(WordVec word) {
  const WordTag d;
  const FloatTag f;
  const FloatVec high = ToFloat(hn::ShiftRight<16>(word));
  const FloatVec low = hn::Add(ToFloat(hn::And(word, hn::Set(d, 0xFFFFu))), hn::Set(f, 0.5f));
  return hn::Add(hn::Mul(high, hn::Set(f, 0x1p-16f)), hn::Mul(low, hn::Set(f, 0x1p-32f)));
}

// log(u) of u = (w + 1/2) / 2^32, within 1 ulp: u = 2^k m with m within sqrt(1/2) and sqrt(2), f = m - 1, and
// log(1 + f) = f - f^2 / 2 + f^3 p(f), p interpolated at Chebyshev nodes, degree 7. Near u = 1, where a float has no
// digits left for u, f is made from the words themselves; so the logarithm is never 0.
HWY_INLINE HWY_ATTR FloatVec Log(WordVec word) {
  const FloatTag d;
  const IntTag di;
  const FloatVec u = OpenZero(word);
  const auto bits = hn::BitCast(di, u);
  const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const FloatVec below_one = hn::Neg(OpenZero(hn::Xor(word, hn::Set(WordTag(), 0xFFFFFFFFu))));
  const FloatVec of_mantissa = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(k))), hn::Set(d, 1.0f));
  const FloatVec f = hn::IfThenElse(hn::RebindMask(d, hn::Eq(k, hn::Zero(di))), below_one, of_mantissa);
  FloatVec p = hn::Set(d, -0x1.43b246p-4f);
  p = hn::Add(hn::Mul(p, f), hn::Set(d, 0x1.02814ep-3f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, -0x1.0a33eap-3f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, 0x1.231ce6p-3f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, -0x1.54d03ep-3f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, 0x1.999f14p-3f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, -0x1.0000cep-2f));
  p = hn::Add(hn::Mul(p, f), hn::Set(d, 0x1.555554p-2f));
  const FloatVec square = hn::Mul(f, f);
  const FloatVec n = hn::ConvertTo(d, k);
  // ln 2 in two parts; the first has 9 mantissa bits, so n times it is exact.
  FloatVec log = hn::Mul(hn::Mul(p, f), square);
  log = hn::Add(log, hn::Mul(n, hn::Set(d, -0x1.bd0106p-13f)));
  log = hn::Sub(log, hn::Mul(square, hn::Set(d, 0.5f)));
  log = hn::Add(log, f);
  return hn::Add(log, hn::Mul(n, hn::Set(d, 0.693359375f)));
}

// Cosine and sine of 2 pi w / 2^32, within 2 ulp: the nearest quarter turn is taken off in integers, the rest is at
// most an eighth of a turn.
HWY_INLINE HWY_ATTR void CosSin(WordVec word, FloatVec& cosine, FloatVec& sine) {
  const WordTag d;
  const FloatTag f;
  const WordVec quarter = hn::ShiftRight<30>(hn::Add(word, hn::Set(d, 1u << 29)));
  const WordVec rest = hn::Sub(word, hn::ShiftLeft<30>(quarter));
  const FloatVec t = hn::Mul(ToFloat(rest), hn::Set(f, 0x1.921fb6p-30f));
  const FloatVec z = hn::Mul(t, t);
  FloatVec s = hn::Set(f, -0x1.9ac9b0p-13f);
  s = hn::Add(hn::Mul(s, z), hn::Set(f, 0x1.110c28p-7f));
  s = hn::Add(hn::Mul(s, z), hn::Set(f, -0x1.555552p-3f));
  s = hn::Add(hn::Mul(hn::Mul(s, z), t), t);
  FloatVec c = hn::Set(f, 0x1.9bd89cp-16f);
  c = hn::Add(hn::Mul(c, z), hn::Set(f, -0x1.6c12d2p-10f));
  c = hn::Add(hn::Mul(c, z), hn::Set(f, 0x1.555554p-5f));
  c = hn::Add(hn::Sub(hn::Mul(hn::Mul(c, z), z), hn::Mul(z, hn::Set(f, 0.5f))), hn::Set(f, 1.0f));
  const WordVec one = hn::Set(d, 1u);
  const auto swap = hn::RebindMask(f, hn::Eq(hn::And(quarter, one), one));
  const WordVec sine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(quarter));
  const WordVec cosine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(hn::Add(quarter, one)));
  cosine = hn::Xor(hn::IfThenElse(swap, s, c), hn::BitCast(f, cosine_sign));
  sine = hn::Xor(hn::IfThenElse(swap, c, s), hn::BitCast(f, sine_sign));
}

// ---- The functions ----

HWY_ATTR void PhiloxWordsTarget(const PhiloxSource& source, uint64_t first, int64_t blocks, uint32_t* out) {
  const WordTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Blocks walk(source, first);
  for (int64_t b = 0; b < blocks; b += lanes) {
    const Words w = walk.Next();
    hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, d, out + 4 * b);
  }
}

HWY_ATTR void UniformRowTarget(const PhiloxSource& source, uint64_t first, int64_t blocks, float from, float width,
                               float last, float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto uniform = [&](WordVec word) HWY_ATTR {
    const FloatVec u = hn::Mul(ToFloat(hn::ShiftRight<8>(word)), hn::Set(d, 0x1p-24f));
    return hn::Min(hn::Add(hn::Mul(u, hn::Set(d, width)), hn::Set(d, from)), hn::Set(d, last));
  };
  Blocks walk(source, first);
  for (int64_t b = 0; b < blocks; b += lanes) {
    const Words w = walk.Next();
    hn::StoreInterleaved4(uniform(w.w0), uniform(w.w1), uniform(w.w2), uniform(w.w3), d, out + 4 * b);
  }
}

HWY_ATTR void NormalRowTarget(const PhiloxSource& source, uint64_t first, int64_t blocks, float mean, float deviation,
                              float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto pair = [&](WordVec length, WordVec angle, FloatVec& z0, FloatVec& z1) HWY_ATTR {
    const FloatVec radius = hn::Sqrt(hn::Mul(Log(length), hn::Set(d, -2.0f)));
    FloatVec cosine, sine;
    CosSin(angle, cosine, sine);
    z0 = hn::Add(hn::Mul(hn::Mul(radius, cosine), hn::Set(d, deviation)), hn::Set(d, mean));
    z1 = hn::Add(hn::Mul(hn::Mul(radius, sine), hn::Set(d, deviation)), hn::Set(d, mean));
  };
  Blocks walk(source, first);
  for (int64_t b = 0; b < blocks; b += lanes) {
    const Words w = walk.Next();
    FloatVec z0, z1, z2, z3;
    pair(w.w0, w.w1, z0, z1);
    pair(w.w2, w.w3, z2, z3);
    hn::StoreInterleaved4(z0, z1, z2, z3, d, out + 4 * b);
  }
}

HWY_ATTR void ExponentialRowTarget(const PhiloxSource& source, uint64_t first, int64_t blocks, float scale,
                                   float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto exponential = [&](WordVec word) HWY_ATTR { return hn::Mul(Log(word), hn::Set(d, -scale)); };
  Blocks walk(source, first);
  for (int64_t b = 0; b < blocks; b += lanes) {
    const Words w = walk.Next();
    hn::StoreInterleaved4(exponential(w.w0), exponential(w.w1), exponential(w.w2), exponential(w.w3), d, out + 4 * b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(PhiloxWordsTarget);
HWY_EXPORT(UniformRowTarget);
HWY_EXPORT(NormalRowTarget);
HWY_EXPORT(ExponentialRowTarget);

void PhiloxWords(const PhiloxSource& source, uint64_t first, int64_t blocks, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(PhiloxWordsTarget)(source, first, blocks, out);
}

void UniformRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float from, float width, float last,
                float* out) {
  HWY_DYNAMIC_DISPATCH(UniformRowTarget)(source, first, blocks, from, width, last, out);
}

void NormalRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float mean, float deviation, float* out) {
  HWY_DYNAMIC_DISPATCH(NormalRowTarget)(source, first, blocks, mean, deviation, out);
}

void ExponentialRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(ExponentialRowTarget)(source, first, blocks, scale, out);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
