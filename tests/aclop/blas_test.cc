// SPDX-License-Identifier: Apache-2.0
//
// Matrix products as BLAS has them, against plain loops; eager, captured and replayed; refusals.
#include <acl/ops/acl_cblas.h>

#include <random>

#include "harness.h"

namespace aclop_test {
namespace {

class BlasTest : public AclopTest {
 protected:
  Values Random(int64_t count) {
    Values values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int>(random() % 9) - 4);
    return values;
  }
  std::mt19937 random{20261121};
};

// Element of a stored matrix after op().
double At(const Values& matrix, int64_t row, int64_t column, int64_t ld, bool transposed) {
  return matrix[static_cast<size_t>(transposed ? column * ld + row : row * ld + column)];
}

TEST_F(BlasTest, ProductsWithStridesAndTranspositions) {
  struct Types {
    aclDataType in, out;
  };
  const int m = 5;
  const int n = 3;
  const int k = 70;
  for (const Types types : {Types{ACL_FLOAT, ACL_FLOAT}, Types{ACL_FLOAT16, ACL_FLOAT16}, Types{ACL_FLOAT16, ACL_FLOAT},
                            Types{ACL_INT8, ACL_INT32}, Types{ACL_DOUBLE, ACL_DOUBLE}}) {
    for (int trans = 0; trans < 8; ++trans) {
      const bool ta = (trans & 1) != 0;
      const bool tb = (trans & 2) != 0;
      const bool tc = (trans & 4) != 0;
      const int gap = trans % 3;  // 0: told as -1
      const int lda = (ta ? m : k) + gap;
      const int ldb = (tb ? k : n) + gap;
      const int ldc = (tc ? m : n) + gap;
      SCOPED_TRACE(testing::Message() << "types " << types.in << ", " << types.out << ", trans " << trans);
      const Values av = Random((ta ? k : m) * lda);
      const Values bv = Random((tb ? n : k) * ldb);
      const Values cv = Random((tc ? n : m) * ldc);
      const Tensor a(types.in, {static_cast<int64_t>(av.size())}, av);
      const Tensor b(types.in, {static_cast<int64_t>(bv.size())}, bv);
      Tensor c(types.out, {static_cast<int64_t>(cv.size())}, cv);
      const Tensor alpha(types.out, {1}, {2});
      const Tensor beta(types.out, {1}, {3});
      const auto launch = [&] {
        return aclblasGemmEx(ta, tb, tc, m, n, k, alpha.memory(), a.memory(), gap == 0 ? -1 : lda, types.in, b.memory(),
                             gap == 0 ? -1 : ldb, types.in, beta.memory(), c.memory(), gap == 0 ? -1 : ldc, types.out,
                             0, stream);
      };
      const auto expected = [&](const Values& before) {
        Values after = before;  // gaps stay
        for (int i = 0; i < m; ++i) {
          for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int l = 0; l < k; ++l) sum += At(av, i, l, lda, ta) * At(bv, l, j, ldb, tb);
            const auto at = static_cast<size_t>(tc ? j * ldc + i : i * ldc + j);
            after[at] = 2 * sum + 3 * before[at];
          }
        }
        return after;
      };
      ASSERT_EQ(0, launch()) << RecentMessage();
      ASSERT_EQ(0, aclrtSynchronizeStream(stream));
      // float16 holds whole numbers to 2048; sums beyond are rounded once.
      const double close = types.out == ACL_FLOAT16 ? 1.0 / 2048 : 0;
      ExpectClose(c.Read(), expected(cv), close, "eager");

      c.Write(cv);
      ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
      ASSERT_EQ(0, launch()) << RecentMessage();
      aclmdlRI model = nullptr;
      ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model)) << RecentMessage();
      EXPECT_EQ(cv, c.Read());
      for (int replay = 0; replay < 2; ++replay) {
        c.Write(cv);
        ASSERT_EQ(0, aclmdlRIExecuteAsync(model, stream));
        ASSERT_EQ(0, aclrtSynchronizeStream(stream));
        ExpectClose(c.Read(), expected(cv), close, "replay");
      }
      ASSERT_EQ(0, aclmdlRIDestroy(model));
    }
  }
}

TEST_F(BlasTest, VectorsWithStrides) {
  const int m = 4;
  const int n = 6;
  for (const bool transposed : {false, true}) {
    for (const int step : {-1, 1, 3}) {
      const int rows = transposed ? n : m;
      const int depth = transposed ? m : n;
      const int gap = std::max(step, 1);
      const Values av = Random(m * n);
      const Values xv = Random(depth * gap);
      const Values yv = Random(rows * gap);
      Values expected = yv;
      for (int i = 0; i < rows; ++i) {
        double sum = 0;
        for (int l = 0; l < depth; ++l) sum += At(av, i, l, n, transposed) * xv[static_cast<size_t>(l * gap)];
        expected[static_cast<size_t>(i * gap)] = 2 * sum - yv[static_cast<size_t>(i * gap)];
      }
      const auto check = [&](aclDataType in, aclDataType out, auto run) {
        const Tensor a(in, {m * n}, av);
        const Tensor x(in, {depth * gap}, xv);
        const Tensor y(out, {rows * gap}, yv);
        const Tensor alpha(out, {}, {2});
        const Tensor beta(out, {}, {-1});
        ASSERT_EQ(0, run(alpha.memory(), a.memory(), x.memory(), beta.memory(), y.memory())) << RecentMessage();
        ASSERT_EQ(0, aclrtSynchronizeStream(stream));
        EXPECT_EQ(expected, y.Read());
      };
      check(ACL_FLOAT, ACL_FLOAT, [&](void* alpha, void* a, void* x, void* beta, void* y) {
        return aclblasGemvEx(transposed, m, n, alpha, a, n, ACL_FLOAT, x, step, ACL_FLOAT, beta, y, step, ACL_FLOAT, 1,
                             stream);
      });
      using Half = aclFloat16*;
      check(ACL_FLOAT16, ACL_FLOAT16, [&](void* alpha, void* a, void* x, void* beta, void* y) {
        return aclblasHgemv(transposed, m, n, Half(alpha), Half(a), -1, Half(x), step, Half(beta), Half(y), step, 0,
                            stream);
      });
      check(ACL_INT8, ACL_INT32, [&](void* alpha, void* a, void* x, void* beta, void* y) {
        return aclblasS8gemv(transposed, m, n, static_cast<int32_t*>(alpha), static_cast<int8_t*>(a), -1,
                             static_cast<int8_t*>(x), step, static_cast<int32_t*>(beta), static_cast<int32_t*>(y), step,
                             0, stream);
      });
    }
  }
}

// Also the two products with fixed types, and an inner size of 0.
TEST_F(BlasTest, BetaOfZeroDoesNotReadTheResult) {
  const Tensor one(ACL_FLOAT16, {}, {1});
  const Tensor zero(ACL_FLOAT16, {}, {0});
  const Tensor a(ACL_FLOAT16, {2, 2}, {1, 2, 3, 4});
  const Tensor c(ACL_FLOAT16, {2, 2});
  std::memset(c.memory(), 0xFF, c.bytes());  // NaN
  const auto half = [](const Tensor& tensor) { return static_cast<aclFloat16*>(tensor.memory()); };
  ASSERT_EQ(0, aclblasHgemm(0, 1, 0, 2, 2, 2, half(one), half(a), -1, half(a), -1, half(zero), half(c), -1, 0, stream))
      << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{5, 11, 11, 25}), c.Read());
  ASSERT_EQ(0, aclblasHgemm(0, 0, 0, 2, 2, 0, half(one), half(a), -1, half(a), -1, half(one), half(c), -1, 0, stream))
      << RecentMessage();
  ASSERT_EQ(0, aclblasHgemm(0, 0, 0, 0, 2, 2, half(one), half(a), -1, half(a), -1, half(one), half(c), -1, 0, stream))
      << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{5, 11, 11, 25}), c.Read());

  const Tensor bytes(ACL_INT8, {2, 2}, {127, 127, 1, 0});
  const Tensor sum(ACL_INT32, {2, 2}, {1, 1, 1, 1});
  const Tensor two(ACL_INT32, {}, {2});
  ASSERT_EQ(0, aclblasS8gemm(0, 1, 0, 2, 2, 2, static_cast<int32_t*>(two.memory()),
                             static_cast<int8_t*>(bytes.memory()), -1, static_cast<int8_t*>(bytes.memory()), -1,
                             static_cast<int32_t*>(two.memory()), static_cast<int32_t*>(sum.memory()), -1, 0, stream))
      << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{64518, 256, 256, 4}), sum.Read());
}

TEST_F(BlasTest, WrongCallsAreRefused) {
  const Tensor s(ACL_FLOAT, {}, {1});
  const Tensor a(ACL_FLOAT, {4, 4}, Values(16, 1));
  const Tensor c(ACL_FLOAT, {4, 4}, Values(16, 7));
  float pageable[16] = {};
  const char* const f = "aclblasGemmEx";
  struct Arguments {
    int ta = 0, tb = 0, tc = 0, m = 4, n = 4, k = 4;
    const void* alpha;
    const void* a;
    int lda = -1;
    aclDataType type_a = ACL_FLOAT;
    const void* b;
    int ldb = -1;
    aclDataType type_b = ACL_FLOAT;
    const void* beta;
    void* c;
    int ldc = -1;
    aclDataType type_c = ACL_FLOAT;
    int type = 0;
    aclrtStream stream;
  };
  const auto refuse = [&](int code, const std::vector<std::string>& words, auto change) {
    Arguments x;
    x.alpha = x.beta = s.memory();
    x.a = x.b = a.memory();
    x.c = c.memory();
    x.stream = stream;
    change(x);
    ExpectRefused(code,
                  aclblasGemmEx(x.ta, x.tb, x.tc, x.m, x.n, x.k, x.alpha, x.a, x.lda, x.type_a, x.b, x.ldb, x.type_b,
                                x.beta, x.c, x.ldc, x.type_c, x.type, x.stream),
                  words, f);
  };
  refuse(100000, {"alpha"}, [](Arguments& x) { x.alpha = nullptr; });
  refuse(100000, {"beta"}, [](Arguments& x) { x.beta = nullptr; });
  refuse(100000, {"matrixA"}, [](Arguments& x) { x.a = nullptr; });
  refuse(100000, {"matrixB"}, [](Arguments& x) { x.b = nullptr; });
  refuse(100000, {"matrixC"}, [](Arguments& x) { x.c = nullptr; });
  refuse(100000, {"m is -1"}, [](Arguments& x) { x.m = -1; });
  refuse(100000, {"n is -2147483648"}, [](Arguments& x) { x.n = INT32_MIN; });
  refuse(100000, {"k is -3"}, [](Arguments& x) { x.k = -3; });
  refuse(100000, {"lda is 3", "at least 4"}, [](Arguments& x) { x.lda = 3; });
  refuse(100000, {"ldb is 0"}, [](Arguments& x) { x.ldb = 0; });
  refuse(100000, {"ldc is -2"}, [](Arguments& x) { x.ldc = -2; });
  refuse(100000, {"type is 2"}, [](Arguments& x) { x.type = 2; });
  refuse(100000, {"matrixB is float16"}, [](Arguments& x) { x.type_b = ACL_FLOAT16; });
  refuse(100000, {"matrixC is int32"}, [](Arguments& x) { x.type_c = ACL_INT32; });
  refuse(100000, {"matrixA is type 999"}, [](Arguments& x) { x.type_a = x.type_b = static_cast<aclDataType>(999); });
  refuse(200001, {"transA is 2", "row-major"}, [](Arguments& x) { x.ta = 2; });
  refuse(200001, {"transC is -1"}, [](Arguments& x) { x.tc = -1; });
  refuse(107000, {"matrixA is not device memory"}, [&](Arguments& x) { x.a = pageable; });
  refuse(107000, {"alpha is not device memory"}, [&](Arguments& x) { x.alpha = pageable; });
  refuse(107000, {"matrixC"}, [&](Arguments& x) { x.c = static_cast<char*>(c.memory()) + 4096; });
  refuse(107000, {"matrixA"}, [](Arguments& x) { x.m = x.k = x.lda = INT32_MAX; });
  refuse(107000, {"matrixB"}, [](Arguments& x) { x.ldb = INT32_MAX; });
  refuse(100000, {"overlaps"}, [&](Arguments& x) { x.alpha = c.memory(); });
  refuse(107017, {}, [](Arguments& x) { x.stream = const_cast<void*>(x.a); });
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ(Values(16, 7), c.Read());
  ExpectRefused(100000,
                aclblasGemvEx(0, 4, 4, s.memory(), a.memory(), -1, ACL_FLOAT, a.memory(), 0, ACL_FLOAT, s.memory(),
                              c.memory(), 1, ACL_FLOAT, 0, stream),
                {"incx is 0"}, "aclblasGemvEx");
  ExpectRefused(100000,
                aclblasGemvEx(0, 4, 4, s.memory(), a.memory(), -1, ACL_FLOAT, a.memory(), 1, ACL_FLOAT, s.memory(),
                              c.memory(), -5, ACL_FLOAT, 0, stream),
                {"incy is -5"}, "aclblasGemvEx");
}

}  // namespace
}  // namespace aclop_test
