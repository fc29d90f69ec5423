// SPDX-License-Identifier: Apache-2.0
//
// Products with weights of 8 and 4 bits on every instruction set that the machine has. Small whole numbers, scales that
// are powers of two: exact in any order.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/antiquant_matmul.h"
#include "kernels/cast.h"
#include "kernels/simd/low_bits.h"
#include "kernels/simd/test_targets.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

using namespace reprise::kernels::testing;

enum class Form : uint8_t { kRows, kColumns, kScattered, kInt4Rows, kInt4Columns, kWordRows, kWordColumns };
constexpr Form kForms[] = {Form::kRows,        Form::kColumns,  Form::kScattered,  Form::kInt4Rows,
                           Form::kInt4Columns, Form::kWordRows, Form::kWordColumns};

struct Problem {
  int64_t m, k, n, group;
  Form form;
  bool has_offset, has_bias, by_columns;  // by_columns: scales of a column lie back to back
  DType type = DType::kFloat;             // of x
};

// A weight with its numbers. The blocks of memory end where the numbers do, so that reading on is seen.
struct Weight {
  std::vector<int> numbers;  // [k, n]
  std::unique_ptr<uint8_t[]> bytes;
  AntiquantWeight view;
};

Weight MakeWeight(Rng& rng, const Problem& p) {
  Weight w;
  const bool is_packed = p.form >= Form::kInt4Rows;
  w.numbers.resize(static_cast<size_t>(p.k * p.n));
  for (int& number : w.numbers) number = static_cast<int>(is_packed ? Pick(rng, -8, 7) : Pick(rng, -128, 127));
  const bool along_rows = p.form == Form::kInt4Rows || p.form == Form::kWordRows;
  const bool by_columns = p.form == Form::kColumns || (is_packed && !along_rows);
  const int64_t spread = p.form == Form::kScattered ? 3 : 1;
  const auto size = static_cast<size_t>(is_packed ? p.k * p.n / 2 : p.k * p.n * spread);
  w.bytes = std::make_unique<uint8_t[]>(size);
  for (int64_t k = 0; k < p.k; ++k) {
    for (int64_t n = 0; n < p.n; ++n) {
      const auto number = static_cast<uint8_t>(w.numbers[static_cast<size_t>(k * p.n + n)]);
      const int64_t at = by_columns ? n * p.k + k : k * p.n + n;
      uint8_t& byte = w.bytes[static_cast<size_t>(is_packed ? at / 2 : at * spread)];
      byte = static_cast<uint8_t>(is_packed ? byte | (number & 15) << (at % 2 * 4) : number);
    }
  }
  const bool has_words = p.form >= Form::kWordRows;
  const int64_t share = has_words ? 8 : is_packed ? 2 : 1;
  const int64_t rows = by_columns ? p.k / share : p.k;
  const int64_t columns = by_columns ? p.n : p.n / share;
  w.view.packing = !is_packed ? Packing::kNone : along_rows ? Packing::kAlongRows : Packing::kAlongColumns;
  w.view.weight = MakeContiguous(w.bytes.get(), has_words ? DType::kInt32 : DType::kInt8, {rows, columns});
  w.view.weight.strides[0] = by_columns ? 1 : columns * spread;
  w.view.weight.strides[1] = by_columns ? rows : spread;
  w.view.group = p.group;
  return w;
}

std::vector<float> Multiply(Rng& rng, const Problem& p, const TensorRef& x, const AntiquantWeight& weight,
                            const TensorRef& bias) {
  std::vector<float> out(static_cast<size_t>(p.m * p.n), -1.0F);
  const TensorRef result = MakeContiguous(out.data(), DType::kFloat, {p.m, p.n});
  const auto bytes = static_cast<size_t>((AntiquantScratchBytes() + 63) / 64 * 64);
  static const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes), &std::free);
  std::memset(scratch.get(), 0xFF, bytes);  // NaN: what is not written must not count
  RunInPieces(rng, AntiquantUnitCount(p.n),
              [&](Range range) { AntiquantMatMul(x, weight, bias, result, range, scratch.get()); });
  const int64_t prepared_bytes = PreparedAntiquantBytes(x, weight);
  if (prepared_bytes == 0) return out;
  const std::unique_ptr<void, decltype(&std::free)> form(
      std::aligned_alloc(64, static_cast<size_t>(prepared_bytes + 63) / 64 * 64), &std::free);
  PrepareAntiquant(weight.weight, form.get());
  AntiquantWeight prepared = weight;
  prepared.weight.data = form.get();
  prepared.is_prepared = true;
  std::vector<float> same(out.size(), -1.0F);
  const TensorRef other = MakeContiguous(same.data(), DType::kFloat, {p.m, p.n});
  std::memset(scratch.get(), 0xFF, bytes);
  RunInPieces(rng, AntiquantUnitCount(p.n),
              [&](Range range) { AntiquantMatMul(x, prepared, bias, other, range, scratch.get()); });
  // Bits, since there may be NaN.
  EXPECT_EQ(std::memcmp(out.data(), same.data(), out.size() * sizeof(float)), 0) << "a prepared weight changes bits";
  return out;
}

// A matrix of x, in a type that holds its numbers.
struct Left {
  std::unique_ptr<char[]> bytes;
  TensorRef view;
};

Left MakeLeft(const Problem& p, const std::vector<float>& numbers) {
  Left left;
  const int64_t item = ItemSize(p.type);
  left.bytes = std::make_unique<char[]>(numbers.size() * static_cast<size_t>(item));
  FindCast(DType::kFloat, p.type)(reinterpret_cast<const char*>(numbers.data()), sizeof(float), left.bytes.get(), item,
                                  static_cast<int64_t>(numbers.size()));
  left.view = MakeContiguous(left.bytes.get(), p.type, {p.m, p.k});
  return left;
}

void Check(Rng& rng, const Problem& p) {
  const Weight w = MakeWeight(rng, p);
  const int64_t groups = (p.k + p.group - 1) / p.group;
  const auto fill = [&](int64_t count, int64_t low, int64_t high) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(Pick(rng, low, high));
    return values;
  };
  const int64_t most = p.type == DType::kFloat16 && p.form >= Form::kInt4Rows ? 2000 : 3;
  std::vector<float> x = fill(p.m * p.k, -most, most);
  std::vector<float> scale = fill(groups * p.n, 0, 2);
  for (float& value : scale) value = std::ldexp(1.0F, static_cast<int>(value) - 1);
  std::vector<float> offset = fill(groups * p.n, -3, 3);
  std::vector<float> bias = fill(p.n, -9, 9);
  AntiquantWeight weight = w.view;
  for (TensorRef* ref : {&weight.scale, &weight.offset}) {
    if (ref == &weight.offset && !p.has_offset) continue;
    *ref = MakeContiguous(ref == &weight.scale ? scale.data() : offset.data(), DType::kFloat, {groups, p.n});
    if (p.by_columns) ref->strides[0] = 1, ref->strides[1] = groups;
  }
  const Left left = MakeLeft(p, x);
  const TensorRef addend = p.has_bias ? MakeContiguous(bias.data(), DType::kFloat, {p.n}) : TensorRef();
  const std::vector<float> out = Multiply(rng, p, left.view, weight, addend);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double expected = p.has_bias ? bias[static_cast<size_t>(j)] : 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t g = l / p.group;
        const auto at = static_cast<size_t>(p.by_columns ? j * groups + g : g * p.n + j);
        const double number = w.numbers[static_cast<size_t>(l * p.n + j)] + (p.has_offset ? offset[at] : 0.0F);
        expected += static_cast<double>(x[static_cast<size_t>(i * p.k + l)]) * number * scale[at];
      }
      ASSERT_EQ(out[static_cast<size_t>(i * p.n + j)], expected)
          << "row " << i << " column " << j << " of m" << p.m << " k" << p.k << " n" << p.n << " group " << p.group
          << " form " << static_cast<int>(p.form) << " x " << Name(p.type) << (p.has_offset ? " offset" : "");
    }
  }
}

TEST(LowBits, EveryInstructionSetMultipliesEveryForm) {
  Rng rng(53);
  int number = 0;
  const int targets = ForEachTarget([&](int64_t target) {
    for (Form form : kForms) {
      // Rows: multiplied where the numbers lie, and unpacked. Groups: of a step, of parts of one, odd, of all.
      constexpr std::array<int64_t, 3> kSizes[] = {{1, 296, 40}, {2, 72, 8},    {3, 40, 136},
                                                   {7, 8, 16},   {18, 264, 24}, {50, 48, 264}};
      for (const auto& [m, k, n] : kSizes) {
        for (int64_t group : {int64_t{32}, int64_t{40}, int64_t{7}, k}) {
          for (DType type : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
            if (type != DType::kFloat && form < Form::kInt4Rows && group != 32 && group != k) continue;
            ++number;
            Check(rng, {m, k, n, group, form, number % 2 == 0, number % 3 == 0, number % 5 == 0, type});
            if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
          }
        }
      }
    }
    // Odd sizes, which only int8 has.
    for (Form form : {Form::kRows, Form::kColumns, Form::kScattered}) {
      for (int64_t m : {1, 5, 21}) {
        Check(rng, {m, 77, 67, 33, form, m == 5, true, false});
        Check(rng, {m, 1, 1, 1, form, true, false, false});
        if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
      }
    }
  });
  EXPECT_GE(targets, 1);
}

// Groups that are longer, or more, than are multiplied at a time.
TEST(LowBits, EveryPartOfTheDepthCounts) {
  Rng rng(54);
  for (Form form : kForms) {
    for (int64_t m : {1, 2, 7}) {
      for (int64_t group : {int64_t{2}, int64_t{64}, int64_t{5000}}) {
        for (DType type : {DType::kFloat, DType::kBFloat16}) {
          if (m == 7 && type == DType::kFloat) continue;
          Check(rng, {m, 9000, 8, group, form, group == 64, false, group == 2, type});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// An infinite x is infinite in its row alone, whatever the offset; padding does not make a NaN of it.
TEST(LowBits, AnInfinityStaysInItsRow) {
  Rng rng(55);
  for (Form form : {Form::kRows, Form::kColumns}) {
    for (int64_t m : {3, 20}) {
      const Problem p = {m, 37, 5, 10, form, true, false, false};
      const Weight w = MakeWeight(rng, p);
      std::vector<float> x(static_cast<size_t>(p.m * p.k), 1.0F);
      std::vector<float> scale(20, 1.0F);
      std::vector<float> offset(20, 200.0F);  // every factor is positive
      x[3] = INFINITY;
      AntiquantWeight weight = w.view;
      weight.scale = MakeContiguous(scale.data(), DType::kFloat, {4, 5});
      weight.offset = MakeContiguous(offset.data(), DType::kFloat, {4, 5});
      const std::vector<float> out = Multiply(rng, p, MakeContiguous(x.data(), DType::kFloat, {p.m, p.k}), weight, {});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isinf(out[i]), i < 5) << i;
    }
  }
}

// Rows of 16 bits whose numbers need all digits of their types: within the rounding of float32, the same bits however
// columns are cut, and whatever rows there are beside numbers that products of pairs leave out.
TEST(LowBits, EveryInstructionSetRoundsAsFloat32AndCutsDoNotCount) {
  ForEachTarget([](int64_t target) {
    for (Form form : {Form::kInt4Rows, Form::kInt4Columns, Form::kRows, Form::kColumns}) {
      for (DType type : {DType::kBFloat16, DType::kFloat16}) {
        for (int64_t m : {1, 2, 5, 20, 50}) {
          if (m == 50 && form != Form::kInt4Rows) continue;  // the others do not ask for so many
          Rng rng(56);
          const int64_t n = m <= 5 ? 520 : 136;
          const Problem p = {m, 640, n, 32, form, m % 4 == 2, false, false, type};
          const Weight w = MakeWeight(rng, p);
          std::vector<float> x(static_cast<size_t>(p.m * p.k));
          for (float& value : x) {
            value = static_cast<float>(Pick(rng, -2000, 2000)) / 1024;
            if (type == DType::kBFloat16) value = static_cast<float>(BFloat16(value));
          }
          // Too small for pairs, and too large, in the last row.
          x[x.size() - 7] = type == DType::kBFloat16 ? 0x1p-128F : 0x1p-24F;
          x[x.size() - 8] = type == DType::kBFloat16 ? 0x1.8p-110F : -0x1p-23F;
          std::vector<float> scale(static_cast<size_t>(20 * p.n));
          for (float& value : scale) value = static_cast<float>(Pick(rng, 1, 1000)) / 3000;
          std::vector<float> offset(scale.size());
          for (float& value : offset) value = static_cast<float>(Pick(rng, -80, 80)) / 10;
          AntiquantWeight weight = w.view;
          weight.scale = MakeContiguous(scale.data(), DType::kFloat, {20, p.n});
          if (p.has_offset) weight.offset = MakeContiguous(offset.data(), DType::kFloat, {20, p.n});
          const Left left = MakeLeft(p, x);
          const std::vector<float> out = Multiply(rng, p, left.view, weight, {});
          ASSERT_EQ(out, Multiply(rng, p, left.view, weight, {})) << hwy::TargetName(target);
          for (int64_t i = 0; i < p.m; ++i) {
            for (int64_t j = 0; j < p.n; ++j) {
              double sum = 0;
              double size = 0;
              for (int64_t l = 0; l < p.k; ++l) {
                const auto at = static_cast<size_t>(l / 32 * p.n + j);
                const double shift = p.has_offset ? offset[at] : 0;
                const double a = x[static_cast<size_t>(i * p.k + l)];
                const int number = w.numbers[static_cast<size_t>(l * p.n + j)];
                sum += a * (number + shift) * scale[at];
                size += std::abs(a) * (std::abs(number) + std::abs(shift)) * scale[at];
              }
              ASSERT_NEAR(out[static_cast<size_t>(i * p.n + j)], sum, size * 0x1p-20) << hwy::TargetName(target);
            }
          }
        }
      }
    }
  });
}

// Numbers that an instruction for pairs would take for 0, or make NaN of, in rows of their own.
TEST(LowBits, ExtremeNumbersCount) {
  for (Form form : {Form::kInt4Rows, Form::kInt4Columns, Form::kRows, Form::kColumns}) {
    for (int m : {4, 54, 4 + 256, 54 + 256}) {
      const bool has_offset = m >= 256;
      Rng rng(57);
      const Problem p = {m % 256, 64, 136, 32, form, has_offset, false, false, DType::kBFloat16};
      const Weight w = MakeWeight(rng, p);
      std::vector<float> x(static_cast<size_t>(p.m * p.k));
      for (int64_t k = 0; k < p.k; ++k) {
        x[static_cast<size_t>(k)] = 0x1p-133F * static_cast<float>(Pick(rng, -3, 3));                // subnormal
        x[static_cast<size_t>(p.k + k)] = 0x1p-126F * (1.0F + 0x1p-7F * static_cast<float>(k % 2));  // sums that are
      }
      x[static_cast<size_t>(2 * p.k + 5)] = INFINITY;
      x[static_cast<size_t>(3 * p.k + 9)] = NAN;
      std::vector<float> scale(static_cast<size_t>(2 * p.n), 0x1p120F);
      std::vector<float> offset(scale.size(), 9);  // every factor is positive
      AntiquantWeight weight = w.view;
      weight.scale = MakeContiguous(scale.data(), DType::kFloat, {2, p.n});
      if (has_offset) weight.offset = MakeContiguous(offset.data(), DType::kFloat, {2, p.n});
      const Left left = MakeLeft(p, x);
      const std::vector<float> out = Multiply(rng, p, left.view, weight, {});
      for (int64_t j = 0; j < p.n; ++j) {
        for (int64_t i = 0; i < 2; ++i) {
          double sum = 0;
          for (int64_t l = 0; l < p.k; ++l) {
            const int number = w.numbers[static_cast<size_t>(l * p.n + j)];
            sum += static_cast<double>(x[static_cast<size_t>(i * p.k + l)]) * (number + (has_offset ? 9 : 0)) * 0x1p120;
          }
          ASSERT_EQ(out[static_cast<size_t>(i * p.n + j)], sum) << i << " " << j;
        }
        const int factor = w.numbers[static_cast<size_t>(5 * p.n + j)] + (has_offset ? 9 : 0);
        const float infinite = out[static_cast<size_t>(2 * p.n + j)];
        if (factor == 0) {
          ASSERT_TRUE(std::isnan(infinite)) << j;
        } else {
          ASSERT_EQ(infinite, factor > 0 ? INFINITY : -INFINITY) << j;
        }
        ASSERT_TRUE(std::isnan(out[static_cast<size_t>(3 * p.n + j)])) << j;
      }
    }
  }
}

TEST(LowBits, EveryInstructionSetTurnsBytes) {
  ForEachTarget([](int64_t target) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {16, 16}, {33, 19}, {15, 40}, {64, 48}}) {
      std::vector<uint8_t> from(static_cast<size_t>(rows * (cols + 3)));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 37 + i / 251);
      std::vector<uint8_t> to(static_cast<size_t>(cols * (rows + 5)), 0xAA);
      TransposeBytes(from.data(), cols + 3, rows, cols, to.data(), rows + 5);
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t i = 0; i < rows + 5; ++i) {
          const int expected = i < rows ? from[static_cast<size_t>(i * (cols + 3) + j)] : 0xAA;
          ASSERT_EQ(to[static_cast<size_t>(j * (rows + 5) + i)], expected) << hwy::TargetName(target);
        }
      }
    }
  });
}

}  // namespace
}  // namespace reprise::kernels::simd
