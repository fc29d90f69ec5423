// SPDX-License-Identifier: Apache-2.0
//
// Every type of operator: called at once, with a shape that is found out, through a handle, and captured and replayed;
// each time against plain loops.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "harness.h"

namespace aclop_test {
namespace {

struct In {
  aclDataType type;
  Dims dims;
  bool is_constant = false;
  Values constant = {};
};

In Const(Values values, aclDataType type = ACL_INT64) {
  const auto count = static_cast<int64_t>(values.size());
  return {type, {count}, true, std::move(values)};
}

using Inputs = std::vector<Values>;

struct Case {
  std::string type;
  std::vector<In> inputs;
  aclDataType out_type;
  Dims out;
  std::function<Values(const Inputs&)> expected;
  std::function<void(Attr&)> attributes = nullptr;
  double tolerance = 0;
};

// Index in a tensor of `dims` of element `at` of a tensor of `out`, to which it broadcasts.
int64_t BroadcastIndex(int64_t at, const Dims& dims, const Dims& out) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t back = 1; back <= out.size(); ++back) {
    const int64_t position = at % out[out.size() - back];
    at /= out[out.size() - back];
    if (back > dims.size()) continue;
    const int64_t size = dims[dims.size() - back];
    if (size != 1) index += position * stride;
    stride *= size;
  }
  return index;
}

std::function<Values(const Inputs&)> Map(std::function<double(double)> f) {
  return [f](const Inputs& in) {
    Values out;
    for (const double x : in[0]) out.push_back(f(x));
    return out;
  };
}

std::function<Values(const Inputs&)> Zip(const Dims& a, const Dims& b, const Dims& out,
                                         std::function<double(double, double)> f) {
  return [=](const Inputs& in) {
    Values values;
    for (int64_t i = 0; i < Count(out); ++i) {
      values.push_back(f(in[0][static_cast<size_t>(BroadcastIndex(i, a, out))],
                         in[1][static_cast<size_t>(BroadcastIndex(i, b, out))]));
    }
    return values;
  };
}

// Batches of matrices; each operand's batch broadcasts.
std::function<Values(const Inputs&)> Product(Dims a_batch, Dims b_batch, Dims batch, int64_t m, int64_t k, int64_t n,
                                             bool a_transposed, bool b_transposed, bool with_bias = false) {
  return [=](const Inputs& in) {
    Values out;
    for (int64_t g = 0; g < Count(batch); ++g) {
      const int64_t a0 = BroadcastIndex(g, a_batch, batch) * m * k;
      const int64_t b0 = BroadcastIndex(g, b_batch, batch) * k * n;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += in[0][static_cast<size_t>(a0 + (a_transposed ? l * m + i : i * k + l))] *
                   in[1][static_cast<size_t>(b0 + (b_transposed ? j * k + l : l * n + j))];
          }
          out.push_back(with_bias ? sum + in[2][static_cast<size_t>(j)] : sum);
        }
      }
    }
    return out;
  };
}

const auto kCopyOfFirst = [](const Inputs& in) { return in[0]; };

// Rows of `length` in the middle of `inner` others.
Values Softmax(const Values& x, int64_t length, int64_t inner) {
  Values out(x.size());
  for (int64_t o = 0; o < static_cast<int64_t>(x.size()) / (length * inner); ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t l) { return static_cast<size_t>((o * length + l) * inner + i); };
      double sum = 0;
      for (int64_t l = 0; l < length; ++l) sum += std::exp(x[at(l)]);
      for (int64_t l = 0; l < length; ++l) out[at(l)] = std::exp(x[at(l)]) / sum;
    }
  }
  return out;
}

// Types that a function of another name computes, with the attributes that they have.
void AddFunctionCases(std::vector<Case>& cases, aclDataType type) {
  const double close = type == ACL_FLOAT16 ? 1.0 / 512 : 2e-6;
  const Dims a = {3, 1, 4};
  const Dims b = {2, 1};
  const Dims ab = {3, 2, 4};
  const In positive = {type, {4}, true, {0.5, 1, 2, 4}};
  const auto unary = [&](const char* name, std::function<double(double)> f, aclDataType out,
                         std::function<void(Attr&)> attributes = nullptr) {
    cases.push_back({name, {{type, a}}, out, a, Map(std::move(f)), std::move(attributes), close});
  };
  const auto binary = [&](const char* name, std::function<double(double, double)> f, aclDataType out) {
    cases.push_back({name, {{type, a}, {type, b}}, out, ab, Zip(a, b, ab, std::move(f)), nullptr, close});
  };
  unary(
      "Ceil", [](double x) { return std::ceil(x); }, type);
  unary(
      "Erf", [](double x) { return std::erf(x); }, type);
  unary(
      "Floor", [](double x) { return std::floor(x); }, type);
  unary(
      "Round", [](double x) { return std::nearbyint(x); }, type);
  unary(
      "Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, type);
  unary(
      "Sign", [](double x) { return (x > 0) - (x < 0); }, type);
  unary(
      "Square", [](double x) { return x * x; }, type);
  unary(
      "Tanh", [](double x) { return std::tanh(x); }, type);
  unary(
      "Trunc", [](double x) { return std::trunc(x); }, type);
  unary(
      "IsFinite", [](double) { return 1.0; }, ACL_BOOL);
  unary(
      "CeluV2", [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); }, type,
      [](Attr& attr) { attr.Float("alpha", 2); });
  unary(
      "Elu", [](double x) { return 3 * (x > 0 ? x : 2 * std::expm1(x / 4)); }, type,
      [](Attr& attr) { attr.Float("alpha", 2).Float("scale", 3).Float("input_scale", 0.25); });
  unary(
      "HardShrink", [](double x) { return std::abs(x) > 1 ? x : 0; }, type, [](Attr& attr) { attr.Float("lambd", 1); });
  unary(
      "LeakyRelu", [](double x) { return x > 0 ? x : x / 4; }, type,
      [](Attr& attr) { attr.Float("negative_slope", 0.25); });
  unary(
      "SoftShrink", [](double x) { return x > 1    ? x - 1
                                          : x < -1 ? x + 1
                                                   : 0; }, type,
      [](Attr& attr) { attr.Float("lambd", 1); });
  unary(
      "ThresholdV2D", [](double x) { return x > 1 ? x : -7; }, type,
      [](Attr& attr) { attr.Float("threshold", 1).Float("value", -7); });
  for (const auto& [name, f] :
       {std::pair<const char*, double (*)(double)>{"Log1p", [](double x) { return std::log1p(x); }},
        {"Reciprocal", [](double x) { return 1 / x; }},
        {"Rsqrt", [](double x) { return 1 / std::sqrt(x); }},
        {"Sqrt", [](double x) { return std::sqrt(x); }}}) {
    cases.push_back({name, {positive}, type, {4}, Map(f), nullptr, close});
  }
  const In small = {type, {4}, true, {-1, -0.5, 0.5, 1}};
  for (const auto& [name, f] :
       {std::pair<const char*, double (*)(double)>{"Acos", [](double x) { return std::acos(x); }},
        {"Asin", [](double x) { return std::asin(x); }},
        {"Atan", [](double x) { return std::atan(x); }},
        {"Cos", [](double x) { return std::cos(x); }},
        {"Cosh", [](double x) { return std::cosh(x); }},
        {"Expm1", [](double x) { return std::expm1(x); }},
        {"HardSwish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
        {"Mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
        {"Sin", [](double x) { return std::sin(x); }},
        {"Sinh", [](double x) { return std::sinh(x); }},
        {"Tan", [](double x) { return std::tan(x); }}}) {
    cases.push_back({name, {small}, type, {4}, Map(f), nullptr, close});
  }
  const auto modulo = [](double x, double y) { return x - y * std::floor(x / y); };
  const auto remainder = [](double x, double y) { return std::fmod(x, y); };
  const In divisor = {type, {2, 1}, true, {-1.5, 2}};
  cases.push_back({"FloorMod", {{type, a}, divisor}, type, ab, Zip(a, b, ab, modulo), nullptr, close});
  cases.push_back({"Mod", {{type, a}, divisor}, type, ab, Zip(a, b, ab, remainder), nullptr, close});
  cases.push_back({"Lerp",
                   {{type, a}, {type, a}, {type, {1}, true, {0.25}}},
                   type,
                   a,
                   Zip(a, a, a, [](double x, double y) { return x + 0.25 * (y - x); }),
                   nullptr,
                   close});
  binary(
      "Atan2", [](double x, double y) { return std::atan2(x, y); }, type);
  const auto reduce = [&](const char* name, std::function<double(double, double)> f, double first) {
    cases.push_back({name,
                     {{type, ab}, Const({-1, 0})},
                     type,
                     {1, 2, 1},
                     [f = std::move(f), first](const Inputs& in) {
                       Values out(2, first);
                       for (size_t i = 0; i < 24; ++i) out[i / 4 % 2] = f(out[i / 4 % 2], in[0][i]);
                       return out;
                     },
                     [](Attr& attr) { attr.Bool("keep_dims", true); },
                     close});
  };
  reduce(
      "ReduceMax", [](double x, double y) { return std::max(x, y); }, -9);
  reduce(
      "ReduceMin", [](double x, double y) { return std::min(x, y); }, 9);
  reduce(
      "ReduceLogSumExp", [](double x, double y) { return std::log(std::exp(x) + std::exp(y)); }, -1e9);
  binary(
      "Equal", [](double x, double y) { return x == y; }, ACL_BOOL);
  binary(
      "NotEqual", [](double x, double y) { return x != y; }, ACL_BOOL);
  binary(
      "Less", [](double x, double y) { return x < y; }, ACL_BOOL);
  binary(
      "LessEqual", [](double x, double y) { return x <= y; }, ACL_BOOL);
  binary(
      "Greater", [](double x, double y) { return x > y; }, ACL_BOOL);
  binary(
      "GreaterEqual", [](double x, double y) { return x >= y; }, ACL_BOOL);
  binary(
      "Maximum", [](double x, double y) { return std::max(x, y); }, type);
  binary(
      "Minimum", [](double x, double y) { return std::min(x, y); }, type);
  binary(
      "FloorDiv", [](double x, double y) { return std::floor(x / y); }, type);
  cases.push_back({"Pow",
                   {positive, {type, {2, 1}}},
                   type,
                   {2, 4},
                   Zip({4}, {2, 1}, {2, 4}, [](double x, double y) { return std::pow(x, y); }),
                   nullptr,
                   close});
  cases.push_back({"IsClose",
                   {{type, a}, {type, b}},
                   ACL_BOOL,
                   ab,
                   Zip(a, b, ab, [](double x, double y) { return std::abs(x - y) <= 0.75 + 0.5 * std::abs(y); }),
                   [](Attr& attr) { attr.Float("rtol", 0.5).Float("atol", 0.75); }});
  for (const char* name : {"ClipByValue", "ClipByValueV2"}) {
    cases.push_back({name, {{type, a}, {type, {}, true, {-1}}, {type, {}, true, {2}}}, type, a, Map([](double x) {
                       return std::min(std::max(x, -1.0), 2.0);
                     })});
  }
  const auto mean = [](const Inputs& in) {  // of dims 0 and 2
    Values out(2);
    for (size_t i = 0; i < 24; ++i) out[i / 4 % 2] += in[0][i] / 12;
    return out;
  };
  cases.push_back({"ReduceMean", {{type, ab}, Const({0, 2}, ACL_INT32)}, type, {2}, mean, nullptr, close});
  cases.push_back({"ReduceMeanD",
                   {{type, ab}},
                   type,
                   {1, 2, 1},
                   mean,
                   [](Attr& attr) {
                     attr.Ints("axes", {0, 2}).Bool("keep_dims", true);
                   },
                   close});
  cases.push_back({"Roll",
                   {{type, {4, 2}}},
                   type,
                   {4, 2},
                   [](const Inputs& in) {
                     Values out(8);
                     for (size_t i = 0; i < 8; ++i) out[(i + 2) % 8] = in[0][i];
                     return out;
                   },
                   [](Attr& attr) { attr.Ints("shifts", {1}).Ints("dims", {0}); }});
}

void AddBitCases(std::vector<Case>& cases, aclDataType type) {
  const Dims a = {5};
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  const auto bits = [&](const char* name, std::function<double(int64_t, int64_t)> f) {
    cases.push_back({name, {{type, a}, {type, a}}, type, a, Zip(a, a, a, [=](double x, double y) {
                       return f(whole(x), whole(y));
                     })});
  };
  bits("BitwiseAnd", [](int64_t x, int64_t y) { return x & y; });
  bits("BitwiseOr", [](int64_t x, int64_t y) { return x | y; });
  cases.push_back({"Invert", {{type, a}}, type, a, Map([=](double x) { return ~whole(x); })});
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16}) AddFunctionCases(cases, type);
  for (const aclDataType type : {ACL_INT32, ACL_INT64}) AddBitCases(cases, type);
  {
    const Dims c = {4};
    for (const bool all : {true, false}) {
      cases.push_back(
          {all ? "ReduceAll" : "ReduceAny", {{ACL_BOOL, {2, 2}}, Const({1})}, ACL_BOOL, {2}, [=](const Inputs& in) {
             Values out;
             for (size_t i = 0; i < 4; i += 2) {
               const bool x = in[0][i] != 0, y = in[0][i + 1] != 0;
               out.push_back(all ? x && y : x || y);
             }
             return out;
           }});
    }
    cases.push_back({"LogicalAnd", {{ACL_BOOL, c}, {ACL_BOOL, c}}, ACL_BOOL, c, Zip(c, c, c, [](double x, double y) {
                       return x != 0 && y != 0;
                     })});
    cases.push_back({"LogicalOr", {{ACL_BOOL, c}, {ACL_BOOL, c}}, ACL_BOOL, c, Zip(c, c, c, [](double x, double y) {
                       return x != 0 || y != 0;
                     })});
    cases.push_back({"LogicalNot", {{ACL_BOOL, c}}, ACL_BOOL, c, Map([](double x) { return x == 0; })});
  }
  const Dims a = {3, 1, 4};
  const Dims b = {2, 1};
  const Dims ab = {3, 2, 4};
  const auto add = [](double x, double y) { return x + y; };
  const auto sub = [](double x, double y) { return x - y; };
  const auto mul = [](double x, double y) { return x * y; };
  for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16, ACL_INT32, ACL_INT64, ACL_DOUBLE}) {
    for (const char* name : {"Add", "AddV2"}) {
      cases.push_back({name, {{type, a}, {type, b}}, type, ab, Zip(a, b, ab, add)});
    }
    cases.push_back({"Sub", {{type, a}, {type, b}}, type, ab, Zip(a, b, ab, sub)});
    cases.push_back({"Mul", {{type, a}, {type, b}}, type, ab, Zip(a, b, ab, mul)});
    cases.push_back({"Neg", {{type, a}}, type, a, Map([](double x) { return -x; })});
    cases.push_back({"Abs", {{type, a}}, type, a, Map([](double x) { return std::abs(x); })});
    cases.push_back({"Relu", {{type, a}}, type, a, Map([](double x) { return std::max(x, 0.0); })});
    for (const char* name : {"Identity", "TensorMove"}) cases.push_back({name, {{type, ab}}, type, ab, kCopyOfFirst});
    cases.push_back({"ZerosLike", {{type, ab}}, type, ab, Map([](double) { return 0.0; })});
    cases.push_back({"OnesLike", {{type, ab}}, type, ab, Map([](double) { return 1.0; })});
    cases.push_back(
        {"Fills", {{type, ab}}, type, ab, Map([](double) { return 3.0; }), [](Attr& attr) { attr.Float("value", 3); }});
    cases.push_back({"Adds", {{type, ab}}, type, ab, Map([](double x) { return x + 3; }), [](Attr& attr) {
                       attr.Float("value", 3);
                     }});
    cases.push_back({"Muls", {{type, ab}}, type, ab, Map([](double x) { return x * -2; }), [](Attr& attr) {
                       attr.Float("value", -2);
                     }});
    cases.push_back({"Axpy",
                     {{type, a}, {type, b}},
                     type,
                     ab,
                     Zip(a, b, ab, [](double x, double y) { return x + 2 * y; }),
                     [](Attr& attr) { attr.Float("alpha", 2); }});
    cases.push_back({"AxpyV2", {{type, a}, {type, b}, {type, {}}}, type, ab, [=](const Inputs& in) {
                       return Zip(a, b, ab, [&](double x, double y) { return x + in[2][0] * y; })(in);
                     }});
    cases.push_back({"Sxpy", {{type, a}, {type, b}, {type, {1}}}, type, ab, [=](const Inputs& in) {
                       return Zip(a, b, ab, [&](double x, double y) { return x - in[2][0] * y; })(in);
                     }});
    cases.push_back({"Sxpy", {{type, a}, {type, b}}, type, ab, Zip(a, b, ab, sub)});
    cases.push_back({"AddN",
                     {{type, a}, {type, a}, {type, a}},
                     type,
                     a,
                     [](const Inputs& in) {
                       Values sum = in[0];
                       for (size_t i = 0; i < sum.size(); ++i) sum[i] += in[1][i] + in[2][i];
                       return sum;
                     },
                     [](Attr& attr) { attr.Int("N", 3); }});
    cases.push_back({"AddN", {{type, a}}, type, a, kCopyOfFirst});
    cases.push_back({"Assign", {{type, ab}, {type, b}}, type, ab, Zip(ab, b, ab, [](double, double y) { return y; })});
    cases.push_back({"AssignAdd", {{type, ab}, {type, b}}, type, ab, Zip(ab, b, ab, add)});
    cases.push_back({"AssignSub", {{type, ab}, {type, b}}, type, ab, Zip(ab, b, ab, sub)});

    // Shapes.
    cases.push_back({"Reshape", {{type, ab}, Const({4, -1}, ACL_INT32)}, type, {4, 6}, kCopyOfFirst});
    cases.push_back({"ExpandDims", {{type, ab}, Const({-1})}, type, {3, 2, 4, 1}, kCopyOfFirst});
    cases.push_back({"Unsqueeze", {{type, ab}}, type, {1, 3, 2, 1, 4}, kCopyOfFirst, [](Attr& attr) {
                       attr.Ints("axes", {-2, 0});
                     }});
    cases.push_back({"Squeeze", {{type, {1, 3, 1, 4}}}, type, {3, 4}, kCopyOfFirst});
    cases.push_back({"Squeeze", {{type, {1, 3, 1, 4}}}, type, {1, 3, 4}, kCopyOfFirst, [](Attr& attr) {
                       attr.Ints("axis", {-2});
                     }});
    cases.push_back({"FlattenV2", {{type, ab}}, type, {3, 8}, kCopyOfFirst});
    cases.push_back({"FlattenV2", {{type, ab}}, type, {6, 4}, kCopyOfFirst, [](Attr& attr) {
                       attr.Int("axis", 0).Int("end_axis", 1);
                     }});
    for (const char* name : {"BroadcastTo", "Expand"}) {
      cases.push_back({name, {{type, b}, Const({3, -1, 4})}, type, ab, [=](const Inputs& in) {
                         Values out;
                         for (int64_t i = 0; i < Count(ab); ++i) {
                           out.push_back(in[0][static_cast<size_t>(BroadcastIndex(i, b, ab))]);
                         }
                         return out;
                       }});
    }
    cases.push_back({"Fill", {Const({2, 5}, ACL_INT32), {type, {}}}, type, {2, 5}, [](const Inputs& in) {
                       return Values(10, in[1][0]);
                     }});

    // Order and joining. Dims {3, 2, 4} in the order 2, 0, 1.
    const auto transposed = [](const Inputs& in) {
      Values out;
      for (size_t k = 0; k < 4; ++k) {
        for (size_t i = 0; i < 3; ++i) {
          for (size_t j = 0; j < 2; ++j) out.push_back(in[0][(i * 2 + j) * 4 + k]);
        }
      }
      return out;
    };
    cases.push_back({"Transpose", {{type, ab}, Const({2, 0, 1})}, type, {4, 3, 2}, transposed});
    cases.push_back({"TransposeD", {{type, ab}}, type, {4, 3, 2}, transposed, [](Attr& attr) {
                       attr.Ints("perm", {-1, 0, 1});
                     }});
    cases.push_back({"Permute", {{type, ab}}, type, {4, 3, 2}, transposed, [](Attr& attr) {
                       attr.Ints("order", {2, 0, 1});
                     }});
    const auto joined = [](const Inputs& in) {  // [2, 3] and [2, 1] along dim 1
      return Values{in[0][0], in[0][1], in[0][2], in[1][0], in[0][3], in[0][4], in[0][5], in[1][1]};
    };
    const In left = {type, {2, 3}};
    const In right = {type, {2, 1}};
    cases.push_back(
        {"ConcatD", {left, right}, type, {2, 4}, joined, [](Attr& attr) { attr.Int("concat_dim", 1).Int("N", 2); }});
    cases.push_back({"ConcatV2", {left, right, Const({-1})}, type, {2, 4}, joined});
    cases.push_back({"Concat", {Const({1}, ACL_INT32), left, right}, type, {2, 4}, [=](const Inputs& in) {
                       return joined({in[1], in[2]});
                     }});
    cases.push_back(
        {"Pack",
         {{type, {2}}, {type, {2}}, {type, {2}}},
         type,
         {2, 3},
         [](const Inputs& in) { return Values{in[0][0], in[1][0], in[2][0], in[0][1], in[1][1], in[2][1]}; },
         [](Attr& attr) { attr.Int("axis", -1).Int("N", 3); }});

    // Sums over dims 0 and 2 of {3, 2, 4}.
    const auto sum = [](const Inputs& in) {
      Values out(2);
      for (size_t i = 0; i < 24; ++i) out[i / 4 % 2] += in[0][i];
      return out;
    };
    const auto total = [](const Inputs& in) {
      double out = 0;
      for (const double x : in[0]) out += x;
      return Values{out};
    };
    cases.push_back({"ReduceSum", {{type, ab}, Const({0, -1})}, type, {2}, sum});
    cases.push_back({"ReduceSum", {{type, ab}, Const({2, 0}, ACL_INT32)}, type, {1, 2, 1}, sum, [](Attr& attr) {
                       attr.Bool("keep_dims", true);
                     }});
    cases.push_back({"ReduceSumD", {{type, ab}}, type, {2}, sum, [](Attr& attr) { attr.Ints("axes", {0, 2}); }});
    cases.push_back({"ReduceSumD", {{type, ab}}, type, {}, total, [](Attr& attr) { attr.Ints("axes", {}); }});

    // The two halves of the norm with exponent 4 over dims 0 and 2.
    if (type == ACL_FLOAT) {
      const auto exponent = [](Attr& attr) { attr.Float("p", 4); };
      cases.push_back({"LpNormReduceV2",
                       {{type, ab}},
                       type,
                       {1, 2, 1},
                       [](const Inputs& in) {
                         Values out(2);
                         for (size_t i = 0; i < 24; ++i) out[i / 4 % 2] += std::pow(in[0][i], 4);
                         return out;
                       },
                       [exponent](Attr& attr) {
                         exponent(attr);
                         attr.Ints("axes", {0, 2}).Bool("keepdim", true);
                       },
                       1e-5});
      cases.push_back(
          {"LpNormUpdateV2", {{type, ab}}, type, ab, Map([](double x) { return std::pow(x, 0.25); }), exponent, 1e-5});
    }

    // Products. Halves from -4 to 4: all sums are exact in float16, too.
    cases.push_back(
        {"MatMul", {{type, {3, 5}}, {type, {5, 4}}}, type, {3, 4}, Product({}, {}, {}, 3, 5, 4, false, false)});
    cases.push_back({"MatMul",
                     {{type, {5, 3}}, {type, {4, 5}}, {type, {4}}},
                     type,
                     {3, 4},
                     Product({}, {}, {}, 3, 5, 4, true, true, true),
                     [](Attr& attr) { attr.Bool("transpose_x1", true).Bool("transpose_x2", true); }});
    cases.push_back({"MatMulV2",
                     {{type, {3, 5}}, {type, {4, 5}}, {type, {1, 4}}},
                     type,
                     {3, 4},
                     Product({}, {}, {}, 3, 5, 4, false, true, true),
                     [](Attr& attr) { attr.Bool("transpose_x2", true).Int("offset_x", 0).Int("_note", 7); }});
    cases.push_back({"BatchMatMul",
                     {{type, {2, 3, 5}}, {type, {2, 4, 5}}},
                     type,
                     {2, 3, 4},
                     Product({2}, {2}, {2}, 3, 5, 4, false, true),
                     [](Attr& attr) { attr.Bool("adj_x2", true); }});
    cases.push_back({"BatchMatMulV2",
                     {{type, {2, 1, 5, 3}}, {type, {3, 5, 4}}},
                     type,
                     {2, 3, 3, 4},
                     Product({2, 1}, {3}, {2, 3}, 3, 5, 4, true, false),
                     [](Attr& attr) { attr.Bool("adj_x1", true); }});
  }
  for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE}) {
    const double close = type == ACL_FLOAT16 ? 1.0 / 1024 : type == ACL_FLOAT ? 1e-6 : 1e-14;
    const auto div = [](double x, double y) { return x / y; };
    for (const char* name : {"Div", "RealDiv"}) {
      cases.push_back({name, {{type, a}, {type, b}}, type, ab, Zip(a, b, ab, div), nullptr, close});
    }
    cases.push_back({"Exp", {{type, a}}, type, a, Map([](double x) { return std::exp(x); }), nullptr, close});
    cases.push_back({"Exp",
                     {{type, a}},
                     type,
                     a,
                     Map([](double x) { return std::pow(2.0, 0.5 * x + 1); }),
                     [](Attr& attr) { attr.Float("base", 2).Float("scale", 0.5).Int("shift", 1); },
                     2 * close});
    cases.push_back(
        {"SoftmaxV2", {{type, ab}}, type, ab, [](const Inputs& in) { return Softmax(in[0], 4, 1); }, nullptr, close});
    cases.push_back({"SoftmaxV2",
                     {{type, ab}},
                     type,
                     ab,
                     [](const Inputs& in) { return Softmax(in[0], 6, 4); },
                     [](Attr& attr) {
                       attr.Ints("axes", {1, 0});
                     },
                     close});
  }
  // Types that differ.
  cases.push_back({"SoftmaxV2",
                   {{ACL_FLOAT16, ab}},
                   ACL_FLOAT,
                   ab,
                   [](const Inputs& in) { return Softmax(in[0], 2, 4); },
                   [](Attr& attr) { attr.Ints("axes", {1}).Bool("half_to_float", true); },
                   1e-6});
  cases.push_back({"MatMulV2",
                   {{ACL_FLOAT16, {3, 5}}, {ACL_FLOAT16, {5, 4}}, {ACL_FLOAT, {4}}},
                   ACL_FLOAT,
                   {3, 4},
                   Product({}, {}, {}, 3, 5, 4, false, false, true)});
  cases.push_back({"MatMulV2",
                   {{ACL_INT8, {2, 400}}, {ACL_INT8, {400, 3}}},
                   ACL_INT32,
                   {2, 3},
                   Product({}, {}, {}, 2, 400, 3, false, false)});
  cases.push_back(
      {"RealDiv", {{ACL_INT32, {8}}, {ACL_INT32, {8}}}, ACL_INT32, {8}, Zip({8}, {8}, {8}, [](double x, double y) {
         return y == 0 ? (x > 0 ? INT32_MAX : x < 0 ? INT32_MIN : 0) : std::trunc(x / y);
       })});
  cases.push_back(
      {"Div", {{ACL_INT32, {8}}, {ACL_INT32, {8}}}, ACL_INT32, {8}, Zip({8}, {8}, {8}, [](double x, double y) {
         return y == 0 ? 0 : std::trunc(x / y);
       })});
  cases.push_back(
      {"Cast", {{ACL_FLOAT, ab}}, ACL_INT32, ab, Map([](double x) { return std::trunc(x); }), [](Attr& attr) {
         attr.Int("dst_type", ACL_INT32);
       }});
  cases.push_back({"Cast", {{ACL_INT64, ab}}, ACL_FLOAT16, ab, kCopyOfFirst, [](Attr& attr) {
                     attr.Type("dst_type", ACL_FLOAT16).Bool("truncate", true);
                   }});
  cases.push_back({"Cast", {{ACL_FLOAT, ab}}, ACL_BOOL, ab, Map([](double x) { return x != 0; }), [](Attr& attr) {
                     attr.Int("dst_type", ACL_BOOL);
                   }});
  cases.push_back({"Empty",
                   {Const({2, 3})},
                   ACL_FLOAT,
                   {2, 3},
                   [](const Inputs&) { return Values(6); },
                   [](Attr& attr) { attr.Int("dtype", ACL_FLOAT).Bool("init", true); }});
  // Bool, no elements, one element.
  cases.push_back({"Add", {{ACL_BOOL, {8}}, {ACL_BOOL, {8}}}, ACL_BOOL, {8}, Zip({8}, {8}, {8}, [](double x, double y) {
                     return x != 0 || y != 0;
                   })});
  cases.push_back(
      {"Add", {{ACL_FLOAT, {0, 3}}, {ACL_FLOAT, {3}}}, ACL_FLOAT, {0, 3}, [](const Inputs&) { return Values(); }});
  cases.push_back({"Mul", {{ACL_FLOAT, {}}, {ACL_FLOAT, {}}}, ACL_FLOAT, {}, [](const Inputs& in) {
                     return Values{in[0][0] * in[1][0]};
                   }});
  cases.push_back({"MatMul", {{ACL_FLOAT, {3, 0}}, {ACL_FLOAT, {0, 2}}}, ACL_FLOAT, {3, 2}, [](const Inputs&) {
                     return Values(6);
                   }});
  return cases;
}

class OperatorTest : public AclopTest {
 protected:
  Values Random(aclDataType type, int64_t count) {
    Values values;
    for (int64_t i = 0; i < count; ++i) {
      const int number = static_cast<int>(random() % 17) - 8;
      const bool is_whole = type != ACL_FLOAT && type != ACL_FLOAT16 && type != ACL_DOUBLE;
      values.push_back(type == ACL_BOOL ? number > 0 : is_whole ? number : number / 2.0);
    }
    return values;
  }

  std::mt19937 random{20261121};
};

// The objects of one case.
struct World {
  std::vector<std::unique_ptr<Tensor>> inputs;
  std::unique_ptr<Tensor> output;
  std::unique_ptr<Attr> attr;
  std::vector<const Tensor*> pointers;

  explicit World(const Case& test) {
    for (const In& in : test.inputs) {
      inputs.push_back(in.is_constant ? Tensor::Constant(in.type, in.dims, in.constant)
                                      : std::make_unique<Tensor>(in.type, in.dims));
      pointers.push_back(inputs.back().get());
    }
    output = std::make_unique<Tensor>(test.out_type, test.out);
    if (test.attributes != nullptr) {
      attr = std::make_unique<Attr>();
      test.attributes(*attr);
    }
  }
};

TEST_F(OperatorTest, EveryTypeComputesWhatItSays) {
  for (const Case& test : AllCases()) {
    World world(test);
    Arrays in(world.pointers);
    Arrays out({world.output.get()});
    const std::string what = test.type + " of type " + std::to_string(test.out_type);
    SCOPED_TRACE(what);
    Inputs values(test.inputs.size());
    const auto fill = [&] {
      for (size_t i = 0; i < test.inputs.size(); ++i) {
        const In& input = test.inputs[i];
        values[i] = input.is_constant ? input.constant : Random(input.type, Count(input.dims));
        if (!input.is_constant && !values[i].empty()) world.inputs[i]->Write(values[i]);
        // A quotient by zero is tested with whole numbers, where it has a value.
        if (test.type.ends_with("Div") && i == 1 && test.tolerance != 0) {
          for (double& value : values[i]) value = value == 0 ? 1 : value;
          world.inputs[i]->Write(values[i]);
        }
      }
      if (world.output->bytes() != 0) std::memset(world.output->memory(), 0x5A, world.output->bytes());
    };
    aclopAttr* const attr = world.attr != nullptr ? world.attr->get() : nullptr;

    // At once. The objects may go when the call returns; their contents are copied.
    fill();
    ASSERT_EQ(0, Run(test.type.c_str(), world.pointers, *world.output, world.attr.get())) << RecentMessage();
    ExpectClose(world.output->Read(), test.expected(values), test.tolerance, what);

    // With a shape that is found out.
    fill();
    const int64_t unknown = -2;
    aclTensorDesc* open = aclCreateTensorDesc(test.out_type, 1, &unknown, ACL_FORMAT_ND);
    ASSERT_EQ(0, aclopExecuteV2(test.type.c_str(), in.count(), in.descs.data(), in.buffers.data(), 1, &open,
                                out.buffers.data(), attr, stream))
        << RecentMessage();
    ASSERT_EQ(0, aclrtSynchronizeStream(stream));
    ExpectClose(world.output->Read(), test.expected(values), test.tolerance, what);
    ASSERT_EQ(test.out.size(), aclGetTensorDescNumDims(open));
    for (size_t d = 0; d < test.out.size(); ++d) EXPECT_EQ(test.out[d], aclGetTensorDescDim(open, d));
    aclDestroyTensorDesc(open);

    // Through a handle.
    fill();
    aclopHandle* handle = nullptr;
    ASSERT_EQ(0, aclopCompile(test.type.c_str(), in.count(), in.descs.data(), 1, out.descs.data(), attr, 0, 0, nullptr))
        << RecentMessage();
    ASSERT_EQ(0, aclopCreateHandle(test.type.c_str(), in.count(), in.descs.data(), 1, out.descs.data(), attr, &handle))
        << RecentMessage();
    ASSERT_EQ(0, aclopExecWithHandle(handle, in.count(), in.buffers.data(), 1, out.buffers.data(), stream))
        << RecentMessage();
    ASSERT_EQ(0, aclrtSynchronizeStream(stream));
    ExpectClose(world.output->Read(), test.expected(values), test.tolerance, what);

    // Captured, twice in a row, and replayed on other values.
    fill();
    ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED)) << RecentMessage();
    ASSERT_EQ(0, Launch(test.type.c_str(), world.pointers, *world.output, world.attr.get())) << RecentMessage();
    EXPECT_EQ(0, aclopExecWithHandle(handle, in.count(), in.buffers.data(), 1, out.buffers.data(), stream))
        << RecentMessage();
    aclopDestroyHandle(handle);
    aclmdlRI model = nullptr;
    ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model)) << RecentMessage();
    if (world.output->bytes() != 0) {
      EXPECT_EQ(0x5A, *static_cast<const char*>(world.output->memory())) << "a captured call ran";
    }
    for (int replay = 0; replay < 2; ++replay) {
      fill();
      ASSERT_EQ(0, aclmdlRIExecuteAsync(model, stream)) << RecentMessage();
      ASSERT_EQ(0, aclrtSynchronizeStream(stream)) << RecentMessage();
      ExpectClose(world.output->Read(), test.expected(values), test.tolerance, what);
    }
    EXPECT_EQ(0, aclmdlRIDestroy(model));
  }
}

// No constant without elements can be given for the dims of one number.
TEST_F(OperatorTest, OneNumberIsFilledWithDimsOfOne) {
  const auto dims = Tensor::Constant(ACL_INT64, {1}, {1});
  const Tensor value(ACL_FLOAT, {1}, {2.5});
  const Tensor y(ACL_FLOAT, {});
  EXPECT_EQ(0, Run("Fill", {dims.get(), &value}, y)) << RecentMessage();
  EXPECT_EQ((Values{2.5}), y.Read());
}

TEST_F(OperatorTest, LargeTensorsAreCutIntoRanges) {
  const Dims dims = {300, 1000};
  const Values left = Random(ACL_FLOAT, Count(dims));
  const Values right = Random(ACL_FLOAT, Count(dims));
  const Tensor x1(ACL_FLOAT, dims, left);
  const Tensor x2(ACL_FLOAT, dims, right);
  const Tensor y(ACL_FLOAT, dims);
  ASSERT_EQ(0, Run("Add", {&x1, &x2}, y)) << RecentMessage();
  Values expected = left;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += right[i];
  EXPECT_EQ(expected, y.Read());
}

TEST_F(OperatorTest, OutputMayBeTheInputWhereItsElementsStandAlone) {
  const Tensor x(ACL_FLOAT, {2}, {1, 2});
  const Tensor one(ACL_FLOAT, {}, {1});
  ASSERT_EQ(0, Run("AssignAdd", {&x, &one}, x)) << RecentMessage();
  ASSERT_EQ(0, Run("Mul", {&x, &x}, x)) << RecentMessage();
  EXPECT_EQ((Values{4, 9}), x.Read());
}

TEST_F(OperatorTest, CallsOfAStreamRunInOrder) {
  const Tensor x(ACL_FLOAT, {4}, {1, 1, 1, 1});
  const Tensor two(ACL_FLOAT, {1}, {2});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(0, Launch(i % 2 == 0 ? "Mul" : "Sub", {&x, &two}, x)) << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  double expected = 1;
  for (int i = 0; i < 10; ++i) expected = i % 2 == 0 ? expected * 2 : expected - 2;
  EXPECT_EQ(Values(4, expected), x.Read());
}

TEST_F(OperatorTest, ConstantsMayBeOrdinaryOperands) {
  const Tensor x(ACL_FLOAT, {3}, {1, 2, 3});
  const Tensor y(ACL_FLOAT, {3});
  {
    const auto factor = Tensor::Constant(ACL_FLOAT, {}, {10});
    ASSERT_EQ(0, Launch("Mul", {&x, factor.get()}, y)) << RecentMessage();
  }
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{10, 20, 30}), y.Read());
}

TEST_F(OperatorTest, HostBuffersAreReadAtTheCall) {
  const Tensor x(ACL_INT32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor y(ACL_INT32, {3, 2});
  int64_t perm[] = {1, 0};
  const int64_t length = 2;
  aclTensorDesc* desc = aclCreateTensorDesc(ACL_INT64, 1, &length, ACL_FORMAT_ND);
  aclDataBuffer* buffer = aclCreateDataBuffer(perm, sizeof(perm));
  ASSERT_EQ(0, aclSetTensorPlaceMent(desc, ACL_MEMTYPE_HOST));
  aclTensorDesc* descs[] = {x.desc(), desc};
  aclDataBuffer* buffers[] = {x.buffer(), buffer};
  aclTensorDesc* out_descs[] = {y.desc()};
  aclDataBuffer* out_buffers[] = {y.buffer()};
  ASSERT_EQ(0, aclopExecute("Transpose", 2, descs, buffers, 1, out_descs, out_buffers, nullptr, stream))
      << RecentMessage();
  perm[0] = 7;  // too late to matter
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{1, 4, 2, 5, 3, 6}), y.Read());
  aclDestroyTensorDesc(desc);
  EXPECT_EQ(0, aclDestroyDataBuffer(buffer));
}

TEST_F(OperatorTest, OptionalInputsMayBeLeftOut) {
  const Tensor x1(ACL_FLOAT, {1, 2}, {1, 2});
  const Tensor x2(ACL_FLOAT, {2, 1}, {3, 4});
  const Tensor y(ACL_FLOAT, {1, 1});
  const auto absent = Tensor::Absent();
  ASSERT_EQ(0, Run("MatMulV2", {&x1, &x2, absent.get(), absent.get()}, y)) << RecentMessage();
  EXPECT_EQ(Values{11}, y.Read());
}

TEST_F(OperatorTest, CastHasFunctionsOfItsOwn) {
  const Tensor x(ACL_FLOAT, {3}, {1.5, -2.5, 3});
  const Tensor y(ACL_INT32, {3});
  ASSERT_EQ(0, aclopCast(x.desc(), x.buffer(), y.desc(), y.buffer(), 0, stream)) << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{1, -2, 3}), y.Read());

  aclopHandle* handle = nullptr;
  ASSERT_EQ(0, aclopCreateHandleForCast(x.desc(), y.desc(), 1, &handle)) << RecentMessage();
  const Tensor z(ACL_INT32, {3});
  aclDataBuffer* in[] = {x.buffer()};
  aclDataBuffer* out[] = {z.buffer()};
  ASSERT_EQ(0, aclopExecWithHandle(handle, 1, in, 1, out, stream)) << RecentMessage();
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{1, -2, 3}), z.Read());
  aclopDestroyHandle(handle);
}

TEST_F(OperatorTest, InferShapeFillsTheDescriptor) {
  const Tensor x1(ACL_FLOAT16, {3, 5});
  const Tensor x2(ACL_FLOAT16, {4, 5});
  Attr attr;
  attr.Bool("transpose_x2", true);
  const int64_t unknown = -2;
  aclTensorDesc* open = aclCreateTensorDesc(ACL_DT_UNDEFINED, 1, &unknown, ACL_FORMAT_ND);
  Arrays in({&x1, &x2});
  ASSERT_EQ(0, aclopInferShape("MatMul", 2, in.descs.data(), in.buffers.data(), 1, &open, attr.get()))
      << RecentMessage();
  EXPECT_EQ(ACL_FLOAT16, aclGetTensorDescType(open));
  ASSERT_EQ(2u, aclGetTensorDescNumDims(open));
  EXPECT_EQ(3, aclGetTensorDescDim(open, 0));
  EXPECT_EQ(4, aclGetTensorDescDim(open, 1));
  aclDestroyTensorDesc(open);
}

// A dim that is not known keeps the known ones.
TEST_F(OperatorTest, KnownDimsOfAnOutputAreChecked) {
  const Tensor x(ACL_FLOAT, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor y(ACL_FLOAT, {2, 3});
  Arrays in({&x});
  Arrays out({&y});
  const int64_t half_known[] = {-1, 3};
  const int64_t wrong[] = {-1, 4};
  aclTensorDesc* open = aclCreateTensorDesc(ACL_FLOAT, 2, half_known, ACL_FORMAT_ND);
  ASSERT_EQ(0, aclopCompileAndExecuteV2("Neg", 1, in.descs.data(), in.buffers.data(), 1, &open, out.buffers.data(),
                                        nullptr, 0, 0, nullptr, stream))
      << RecentMessage();
  EXPECT_EQ(2, aclGetTensorDescDim(open, 0));
  aclDestroyTensorDesc(open);
  open = aclCreateTensorDesc(ACL_FLOAT, 2, wrong, ACL_FORMAT_ND);
  ExpectRefused(100022,
                aclopCompileAndExecuteV2("Neg", 1, in.descs.data(), in.buffers.data(), 1, &open, out.buffers.data(),
                                         nullptr, 0, 0, nullptr, stream),
                {"[-1, 4]", "[2, 3]"}, "aclopCompileAndExecuteV2");
  EXPECT_EQ(-1, aclGetTensorDescDim(open, 0));
  aclDestroyTensorDesc(open);
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{-1, -2, -3, -4, -5, -6}), y.Read());
}

}  // namespace
}  // namespace aclop_test
