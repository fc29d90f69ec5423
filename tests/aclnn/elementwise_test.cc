// SPDX-License-Identifier: Apache-2.0
//
// Add, Sub, Mul, Div with their scalar and in-place forms, Relu, Exp: every type against every type, all layouts.
#include <cmath>

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_div.h"
#include "aclnnop/aclnn_exp.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_sub.h"
#include "harness.h"

namespace aclnn_test {
namespace {

enum class Op { kAdd, kSub, kMul, kDiv };
constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};

// One result and how far off a right answer may be.
struct Expected {
  Value value;
  long double tolerance;
};

Expected Compute(Op op, Value a, Value b, Value alpha, aclDataType compute, aclDataType out) {
  const Type& type = TypeOf(compute);
  const Value scaled = {alpha.re * b.re - alpha.im * b.im, alpha.re * b.im + alpha.im * b.re};
  Value value;
  switch (op) {
    case Op::kAdd: value = {a.re + scaled.re, a.im + scaled.im}; break;
    case Op::kSub: value = {a.re - scaled.re, a.im - scaled.im}; break;
    case Op::kMul: value = {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; break;
    case Op::kDiv: {
      const long double norm = b.re * b.re + b.im * b.im;
      if (type.cls == Class::kComplex) {
        value = {(a.re * b.re + a.im * b.im) / norm, (a.im * b.re - a.re * b.im) / norm};
      } else {
        value.re = a.re / b.re;
      }
      break;
    }
  }
  if (type.cls == Class::kBool) {  // or, and
    value.re = op == Op::kAdd ? (a.re != 0 || scaled.re != 0) : (a.re != 0 && b.re != 0);
  }
  if (type.cls <= Class::kInt) return {Wrap(Wrap(value, compute), out), 0};
  const long double size = std::fabs(a.re) + std::fabs(a.im) + std::fabs(scaled.re) + std::fabs(scaled.im) +
                           std::fabs(value.re) + std::fabs(value.im);
  return {value, 4 * size * std::max(type.epsilon, TypeOf(out).epsilon)};
}

aclnnStatus Binary(aclrtStream stream, Op op, const aclTensor* a, const aclTensor* b, const aclScalar* alpha,
                   aclTensor* out) {
  switch (op) {
    case Op::kAdd: return RUN(aclnnAdd, a, b, alpha, out);
    case Op::kSub: return RUN(aclnnSub, a, b, alpha, out);
    case Op::kMul: return RUN(aclnnMul, a, b, out);
    case Op::kDiv: return RUN(aclnnDiv, a, b, out);
  }
  return -1;
}

aclnnStatus Inplace(aclrtStream stream, Op op, aclTensor* self, const aclTensor* other, const aclScalar* alpha) {
  switch (op) {
    case Op::kAdd: return RUN(aclnnInplaceAdd, self, other, alpha);
    case Op::kSub: return RUN(aclnnInplaceSub, self, other, alpha);
    case Op::kMul: return RUN(aclnnInplaceMul, self, other);
    case Op::kDiv: return RUN(aclnnInplaceDiv, self, other);
  }
  return -1;
}

aclnnStatus WithScalar(aclrtStream stream, Op op, const aclTensor* a, const aclScalar* b, const aclScalar* alpha,
                       aclTensor* out) {
  switch (op) {
    case Op::kAdd: return RUN(aclnnAdds, a, b, alpha, out);
    case Op::kSub: return RUN(aclnnSubs, a, b, alpha, out);
    case Op::kMul: return RUN(aclnnMuls, a, b, out);
    case Op::kDiv: return RUN(aclnnDivs, a, b, out);
  }
  return -1;
}

aclnnStatus InplaceWithScalar(aclrtStream stream, Op op, aclTensor* self, const aclScalar* other,
                              const aclScalar* alpha) {
  switch (op) {
    case Op::kAdd: return RUN(aclnnInplaceAdds, self, other, alpha);
    case Op::kSub: return RUN(aclnnInplaceSubs, self, other, alpha);
    case Op::kMul: return RUN(aclnnInplaceMuls, self, other);
    case Op::kDiv: return RUN(aclnnInplaceDivs, self, other);
  }
  return -1;
}

class ElementwiseTest : public AclnnTest {
 protected:
  // Expectations for tensors a and b (b may hold one value for all) that broadcast to `out`.
  void Check(Op op, const std::vector<Value>& a, const Shape& a_shape, const std::vector<Value>& b,
             const Shape& b_shape, Value alpha, aclDataType compute, const TestTensor& out) {
    const auto a_index = BroadcastIndices(a_shape, out.shape());
    const auto b_index = BroadcastIndices(b_shape, out.shape());
    std::vector<Value> expected;
    std::vector<long double> tolerance;
    for (size_t i = 0; i < a_index.size(); ++i) {
      const Expected e = Compute(op, a[static_cast<size_t>(a_index[i])], b[static_cast<size_t>(b_index[i])], alpha,
                                 compute, out.type());
      expected.push_back(e.value);
      tolerance.push_back(e.tolerance);
    }
    ExpectValues(out.Read(), expected, tolerance);
    EXPECT_TRUE(out.SurroundingsAreIntact());
  }

  static aclDataType ComputeType(Op op, aclDataType met) {
    const bool to_float = op == Op::kDiv && met != ACL_DT_UNDEFINED && TypeOf(met).cls < Class::kFloat;
    return to_float ? ACL_FLOAT : met;
  }
  static bool Takes(Op op, aclDataType type) { return op != Op::kSub || type != ACL_BOOL; }
};

TEST_F(ElementwiseTest, EveryPairOfTypesMeetsInItsPromotedType) {
  const Value two = {2};
  const TestScalar alpha(ACL_INT64, two);
  const TestScalar one(ACL_INT64, {1});
  for (const Op op : kOps) {
    for (const Type& x : AllTypes()) {
      for (const Type& y : AllTypes()) {
        SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << ", " << x.name << " with " << y.name);
        TestTensor a({3, 4}, x.id, random);
        TestTensor b({4}, y.id, random);
        a.FillSmall(random);
        b.FillSmall(random);
        const aclDataType compute = ComputeType(op, Meet(x.id, y.id));
        if (op == Op::kDiv && (x.cls == Class::kComplex || y.cls == Class::kComplex)) {
          // Which of infinity and NaN each part of x / 0 gets is a matter of taste.
          std::vector<Value> divisors = b.Read();
          for (Value& divisor : divisors) {
            if (divisor.re == 0 && divisor.im == 0) divisor.re = 1;
          }
          b.Write(divisors);
        }
        const bool is_bool = compute == ACL_BOOL;  // bool does not hold the value 2
        for (const aclDataType out_type :
             {compute == ACL_DT_UNDEFINED ? ACL_FLOAT : compute, ACL_COMPLEX128, ACL_INT32}) {
          TestTensor out({3, 4}, out_type, random);
          const aclnnStatus status = Binary(stream, op, a.get(), b.get(), is_bool ? one.get() : alpha.get(), out.get());
          if (!Takes(op, x.id) || !Takes(op, y.id) || compute == ACL_DT_UNDEFINED || !Converts(compute, out_type)) {
            EXPECT_EQ(status, 161002) << TypeOf(out_type).name;
            continue;
          }
          ASSERT_EQ(status, 0) << RecentMessage();
          Check(op, a.Read(), a.shape(), b.Read(), b.shape(), is_bool ? Value{1} : two, compute, out);
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, EveryTypeMeetsEveryScalarWeakly) {
  const TestScalar alpha(ACL_INT64, {1});
  for (const Op op : kOps) {
    for (const Type& x : AllTypes()) {
      for (const Type& y : AllTypes()) {
        SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << ", " << x.name << " with " << y.name);
        if (!Takes(op, x.id)) continue;
        const Value value = {y.cls == Class::kBool  ? 1.0L
                             : y.cls == Class::kInt ? 3.0L
                                                    : 2.5L,
                             y.cls == Class::kComplex ? -1.5L : 0.0L};
        const TestScalar other(y.id, value);
        TestTensor a({2, 5}, x.id, random);
        a.FillSmall(random);
        const aclDataType compute = ComputeType(op, MeetScalar(x.id, y.id));
        TestTensor out({2, 5}, compute, random);
        ASSERT_EQ(WithScalar(stream, op, a.get(), other.get(), alpha.get(), out.get()), 0) << RecentMessage();
        Check(op, a.Read(), a.shape(), {value}, {}, {1}, compute, out);

        const std::vector<Value> before = a.Read();
        const aclnnStatus status = InplaceWithScalar(stream, op, a.get(), other.get(), alpha.get());
        if (!Converts(compute, x.id)) {
          EXPECT_EQ(status, 161002);
          continue;
        }
        ASSERT_EQ(status, 0) << RecentMessage();
        Check(op, before, a.shape(), {value}, {}, {1}, compute, a);
      }
    }
  }
}

TEST_F(ElementwiseTest, RandomShapesAndLayoutsBroadcast) {
  const TestScalar alpha(ACL_FLOAT, {0.5L});
  for (int round = 0; round < 150; ++round) {
    const size_t rank = random() % 9;
    Shape out_shape(rank);
    for (int64_t& size : out_shape) size = rank > 5 ? 1 + random() % 3 : random() % 20 == 0 ? 0 : 1 + random() % 6;
    const auto shrink = [&] {
      Shape shape = out_shape;
      for (int64_t& size : shape) {
        if (random() % 3 == 0 && size != 0) size = 1;
      }
      return Shape(shape.begin() + static_cast<std::ptrdiff_t>(random() % (rank + 1)), shape.end());
    };
    const Shape b_shape = shrink();
    const Op op = kOps[random() % 4];
    const aclDataType type = round % 2 == 0 ? ACL_FLOAT : ACL_DOUBLE;
    SCOPED_TRACE(testing::Message() << "round " << round);
    TestTensor a(out_shape, type, random);
    TestTensor b(b_shape, round % 3 == 0 ? ACL_INT32 : type, random);
    a.FillSmall(random);
    b.FillSmall(random);
    TestTensor out(out_shape, type, random);
    ASSERT_EQ(Binary(stream, op, a.get(), b.get(), alpha.get(), out.get()), 0) << RecentMessage();
    Check(op, a.Read(), a.shape(), b.Read(), b.shape(), {0.5L}, type, out);

    const std::vector<Value> before = a.Read();
    ASSERT_EQ(Inplace(stream, op, a.get(), b.get(), alpha.get()), 0) << RecentMessage();
    Check(op, before, a.shape(), b.Read(), b.shape(), {0.5L}, type, a);
    // The two forms are one computation.
    ExpectValues(a.Read(), out.Read());
  }
}

TEST_F(ElementwiseTest, BothInputsMayBroadcast) {
  const TestScalar alpha(ACL_FLOAT, {1});
  TestTensor a({4, 1}, ACL_FLOAT, random);
  TestTensor b({3}, ACL_FLOAT, random);
  a.FillSmall(random);
  b.FillSmall(random);
  TestTensor out({4, 3}, ACL_FLOAT, random);
  ASSERT_EQ(RUN(aclnnAdd, a.get(), b.get(), alpha.get(), out.get()), 0) << RecentMessage();
  Check(Op::kAdd, a.Read(), a.shape(), b.Read(), b.shape(), {1}, ACL_FLOAT, out);
}

TEST_F(ElementwiseTest, LargeTensorsAreSplitWithoutAChange) {
  const TestScalar alpha(ACL_FLOAT, {0.1L});
  const int64_t n = 300001;
  TestTensor a({n}, ACL_FLOAT);
  TestTensor b({n}, ACL_FLOAT);
  std::vector<Value> values(static_cast<size_t>(n));
  for (Value& value : values) value.re = static_cast<float>(random()) / 4e9F;
  a.Write(values);
  for (Value& value : values) value.re = static_cast<float>(random()) / 4e9F;
  b.Write(values);
  TestTensor whole({n}, ACL_FLOAT);
  ASSERT_EQ(RUN(aclnnAdd, a.get(), b.get(), alpha.get(), whole.get()), 0);
  // The same in pieces that are too small to be split.
  TestTensor pieces({n}, ACL_FLOAT);
  for (int64_t begin = 0; begin < n; begin += 10007) {
    const int64_t size = std::min<int64_t>(10007, n - begin);
    const auto view = [&](const TestTensor& t) {
      return aclCreateTensor(&size, 1, ACL_FLOAT, nullptr, begin, ACL_FORMAT_ND, &n, 1, t.storage());
    };
    aclTensor* const x = view(a);
    aclTensor* const y = view(b);
    aclTensor* const z = view(pieces);
    ASSERT_EQ(RUN(aclnnAdd, x, y, alpha.get(), z), 0) << RecentMessage();
    for (aclTensor* t : {x, y, z}) EXPECT_EQ(aclDestroyTensor(t), 0);
  }
  EXPECT_EQ(whole.ReadStorage(), pieces.ReadStorage());
}

TEST_F(ElementwiseTest, TheOutputMayBeTheVeryInput) {
  const TestScalar alpha(ACL_FLOAT, {2});
  TestTensor a({5, 3}, ACL_FLOAT, random);
  TestTensor b({5, 3}, ACL_FLOAT, random);
  a.FillSmall(random);
  b.FillSmall(random);
  const std::vector<Value> before = a.Read();
  ASSERT_EQ(RUN(aclnnAdd, a.get(), b.get(), alpha.get(), a.get()), 0) << RecentMessage();
  Check(Op::kAdd, before, a.shape(), b.Read(), b.shape(), {2}, ACL_FLOAT, a);
  // And self may be other, too.
  const std::vector<Value> middle = a.Read();
  ASSERT_EQ(RUN(aclnnInplaceMul, a.get(), a.get()), 0) << RecentMessage();
  Check(Op::kMul, middle, a.shape(), middle, a.shape(), {1}, ACL_FLOAT, a);
}

TEST_F(ElementwiseTest, AlphaMustKeepItsValue) {
  TestTensor ints({3}, ACL_INT32);
  TestTensor floats({3}, ACL_FLOAT);
  ints.FillSmall(random);
  floats.FillSmall(random);
  const TestScalar half(ACL_FLOAT, {0.5L});
  const TestScalar whole(ACL_DOUBLE, {3});
  const TestScalar imaginary(ACL_COMPLEX64, {1, 1});
  EXPECT_EQ(RUN(aclnnAdd, ints.get(), ints.get(), half.get(), ints.get()), 161002);
  EXPECT_NE(RecentMessage().find("alpha"), std::string::npos);
  EXPECT_EQ(RUN(aclnnAdd, floats.get(), floats.get(), imaginary.get(), floats.get()), 161002);
  const std::vector<Value> before = ints.Read();
  ASSERT_EQ(RUN(aclnnAdd, ints.get(), ints.get(), whole.get(), ints.get()), 0) << RecentMessage();
  Check(Op::kAdd, before, ints.shape(), before, ints.shape(), {3}, ACL_INT32, ints);
}

TEST_F(ElementwiseTest, ReluKeepsPositiveValuesAndNaN) {
  for (const Type& type : AllTypes()) {
    SCOPED_TRACE(type.name);
    TestTensor a({3, 7}, type.id, random);
    a.FillSmall(random);
    TestTensor out({3, 7}, type.id, random);
    const aclnnStatus status = RUN(aclnnRelu, a.get(), out.get());
    if (type.cls == Class::kBool || type.cls == Class::kComplex) {
      EXPECT_EQ(status, 161002);
      continue;
    }
    ASSERT_EQ(status, 0) << RecentMessage();
    std::vector<Value> values = a.Read();
    if (type.cls == Class::kFloat) {
      values[0].re = NAN;
      values[1].re = -INFINITY;
      a.Write(values);
      ASSERT_EQ(RUN(aclnnRelu, a.get(), out.get()), 0);
    }
    for (Value& value : values) value.re = value.re <= 0 ? 0 : value.re;
    ExpectValues(out.Read(), values);
    EXPECT_TRUE(out.SurroundingsAreIntact());
    ASSERT_EQ(RUN(aclnnInplaceRelu, a.get()), 0);
    ExpectValues(a.Read(), values);
    EXPECT_TRUE(a.SurroundingsAreIntact());
  }
}

TEST_F(ElementwiseTest, ExpOfEveryType) {
  for (const Type& type : AllTypes()) {
    SCOPED_TRACE(type.name);
    TestTensor a({4, 5}, type.id, random);
    a.FillSmall(random);
    const aclDataType compute = type.cls < Class::kFloat ? ACL_FLOAT : type.id;
    TestTensor out({4, 5}, compute, random);
    ASSERT_EQ(RUN(aclnnExp, a.get(), out.get()), 0) << RecentMessage();
    std::vector<Value> values = a.Read();
    std::vector<long double> tolerance;
    for (Value& value : values) {
      const long double size = std::exp(value.re);
      value = {size * std::cos(value.im), size * std::sin(value.im)};
      tolerance.push_back(4 * size * TypeOf(compute).epsilon);
    }
    ExpectValues(out.Read(), values, tolerance);
    if (type.cls < Class::kFloat) {
      TestTensor narrow({4, 5}, type.id, random);
      EXPECT_EQ(RUN(aclnnExp, a.get(), narrow.get()), 161002);
    }
  }
}

TEST_F(ElementwiseTest, DivisionByZeroAndIntegerOverflowAreDefined) {
  TestTensor a({3}, ACL_FLOAT);
  TestTensor zero({1}, ACL_FLOAT);
  a.Write({{1}, {-1}, {0}});
  zero.Write({{0}});
  TestTensor out({3}, ACL_FLOAT);
  ASSERT_EQ(RUN(aclnnDiv, a.get(), zero.get(), out.get()), 0);
  ExpectValues(out.Read(), {{INFINITY}, {-INFINITY}, {NAN}});

  TestTensor big({2}, ACL_INT64);
  big.Write({{9223372036854775807.0L}, {-9223372036854775808.0L}});
  ASSERT_EQ(RUN(aclnnInplaceMul, big.get(), big.get()), 0);
  ExpectValues(big.Read(), {{1}, {0}});
}

}  // namespace
}  // namespace aclnn_test
