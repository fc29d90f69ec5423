// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/recurrent_cell.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/recurrent_cell.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

// Calls fn(entry, unit) for one vector of units after the other.
template <class Fn>
HWY_INLINE HWY_ATTR void ForEachCell(const CellRows<float>& cells, const Fn& fn) {
  static_assert(kCellUnits % hn::MaxLanes(FloatTag()) == 0);
  constexpr auto kStep = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  for (int64_t r = 0; r < cells.rows; ++r) {
    for (int64_t u = 0; u < cells.units; u += kStep) fn(r, u);
  }
}

HWY_INLINE HWY_ATTR FloatVec LoadAt(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE HWY_ATTR void StoreAt(FloatVec value, float* to) { hn::StoreU(value, FloatTag(), to); }

// ---- Functions ----
//
// As fractions, so that one division serves a product of two of them. Within 4 ulp; fused where the processor does
// that, as the products in front of them are.

// 1 + e^-x: sigmoid(x) is its reciprocal. Beyond 87 either way it stays what it is there.
HWY_INLINE HWY_ATTR FloatVec OnePlusExp(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const FloatVec most = hn::Set(d, 87.0f), least = hn::Set(d, -87.0f);
  x = hn::IfThenElse(hn::Gt(x, most), most, x);  // so that NaN stays
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
  // -x = k ln 2 - s. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const FloatVec magic = hn::Set(d, 12582912.0f);
  const FloatVec biased = hn::MulAdd(x, hn::Set(d, -0x1.715476p+0f), magic);
  const FloatVec k = hn::Sub(biased, magic);
  const FloatVec s = hn::MulAdd(k, hn::Set(d, 0x1.62e430p-1f), x);
  FloatVec e = hn::Set(d, 0x1.6a2414p-10f);
  e = hn::MulAdd(e, s, hn::Set(d, -0x1.1239f4p-7f));
  e = hn::MulAdd(e, s, hn::Set(d, 0x1.5558f2p-5f));
  e = hn::MulAdd(e, s, hn::Set(d, -0x1.555492p-3f));
  e = hn::MulAdd(e, s, hn::Set(d, 0x1.fffffcp-2f));
  e = hn::MulAdd(hn::Mul(s, s), e, hn::Sub(hn::Set(d, 1.0f), s));
  const auto power = hn::Add(hn::Sub(hn::BitCast(di, biased), hn::BitCast(di, magic)), hn::Set(di, 127));
  return hn::MulAdd(e, hn::BitCast(d, hn::ShiftLeft<23>(power)), hn::Set(d, 1.0f));
}

HWY_INLINE HWY_ATTR FloatVec Reciprocal(FloatVec x) { return hn::Div(hn::Set(FloatTag(), 1.0f), x); }

// tanh(x) = over / under, x P(x^2) / Q(x^2): P and Q of least relative error up to 9, where tanh rounds to 1.
struct Fraction {
  FloatVec over, under;
  HWY_INLINE HWY_ATTR FloatVec value() const { return hn::Div(over, under); }
};
HWY_INLINE HWY_ATTR Fraction TanhFraction(FloatVec x) {
  const FloatTag d;
  const FloatVec most = hn::Set(d, 9.0f), least = hn::Set(d, -9.0f);
  x = hn::IfThenElse(hn::Gt(x, most), most, x);
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
  const FloatVec z = hn::Mul(x, x);
  const FloatVec one = hn::Set(d, 1.0f);
  FloatVec p = hn::MulAdd(z, hn::Set(d, 0x1.cadcd8p-27f), hn::Set(d, 0x1.59c354p-16f));
  FloatVec q = hn::MulAdd(z, hn::Set(d, 0x1.a18034p-21f), hn::Set(d, 0x1.58867cp-12f));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.ca2c78p-9f));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.a7f7eep-6f));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.120b1cp-3f));
  q = hn::MulAdd(q, z, hn::Set(d, 0x1.de5ad8p-2f));
  return {hn::Mul(hn::MulAdd(p, z, one), x), hn::MulAdd(q, z, one)};
}

// ---- Cells ----

template <bool kSaves>
HWY_INLINE HWY_ATTR void RunLstmCells(const CellRows<float>& cells) {
  ForEachCell(cells, [&](int64_t r, int64_t u) HWY_ATTR {
    float* const sums = cells.sums + r * 4 * cells.units + u;
    const float* const x = cells.x + r * cells.x_row + u;
    const auto gate = [&](int64_t g) HWY_ATTR {
      const FloatVec sum = hn::Add(LoadAt(sums + g * cells.units), LoadAt(cells.bias + g * cells.units + u));
      return hn::Add(sum, LoadAt(x + g * cells.x_gate));
    };
    const FloatVec i = OnePlusExp(gate(0));
    const FloatVec f = Reciprocal(OnePlusExp(gate(cells.forget)));
    const Fraction g = TanhFraction(gate(cells.candidate));
    const FloatVec o = OnePlusExp(gate(3));
    float* const cell = cells.cell + r * cells.state_row + u;
    const FloatVec c = hn::MulAdd(f, LoadAt(cell), hn::Div(g.over, hn::Mul(g.under, i)));
    const Fraction t = TanhFraction(c);
    StoreAt(c, cell);
    StoreAt(hn::Div(t.over, hn::Mul(t.under, o)), cells.after + r * cells.state_row + u);
    if constexpr (kSaves) {
      StoreAt(Reciprocal(i), sums);
      StoreAt(f, sums + cells.forget * cells.units);
      StoreAt(g.value(), sums + cells.candidate * cells.units);
      StoreAt(Reciprocal(o), sums + 3 * cells.units);
      StoreAt(t.value(), cells.extra + r * cells.units + u);
    }
  });
}

HWY_ATTR void LstmCellsTarget(const CellRows<float>& cells) {
  cells.saves ? RunLstmCells<true>(cells) : RunLstmCells<false>(cells);
}

HWY_ATTR void GruCellsTarget(const CellRows<float>& cells) {
  ForEachCell(cells, [&](int64_t r, int64_t u) HWY_ATTR {
    float* const sums = cells.sums + r * 3 * cells.units + u;
    const float* const x = cells.x + r * cells.x_row + u;
    const auto hidden = [&](int64_t g) HWY_ATTR {
      return hn::Add(LoadAt(sums + g * cells.units), LoadAt(cells.bias + g * cells.units + u));
    };
    const FloatVec reset = Reciprocal(OnePlusExp(hn::Add(hidden(0), LoadAt(x))));
    const FloatVec z = Reciprocal(OnePlusExp(hn::Add(hidden(1), LoadAt(x + cells.x_gate))));
    const FloatVec part = hidden(2);
    const FloatVec n = TanhFraction(hn::MulAdd(reset, part, LoadAt(x + 2 * cells.x_gate))).value();
    const FloatVec before = LoadAt(cells.before + r * cells.state_row + u);
    StoreAt(hn::MulAdd(z, hn::Sub(before, n), n), cells.after + r * cells.state_row + u);
    if (!cells.saves) return;
    StoreAt(reset, sums);
    StoreAt(z, sums + cells.units);
    StoreAt(n, sums + 2 * cells.units);
    StoreAt(part, cells.extra + r * cells.units + u);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(LstmCellsTarget);
HWY_EXPORT(GruCellsTarget);

void LstmCells(const CellRows<float>& cells) { HWY_DYNAMIC_DISPATCH(LstmCellsTarget)(cells); }
void GruCells(const CellRows<float>& cells) { HWY_DYNAMIC_DISPATCH(GruCellsTarget)(cells); }

}  // namespace reprise::kernels::simd
#endif
