// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ops/transformer/plan.h"

namespace reprise::ops::transformer {
namespace {

using kernels::DType;
using kernels::Scalar;

constexpr int64_t kKeepPrecision = 0;
constexpr float kLeastByte = -128;
constexpr float kGreatestByte = 127;

// The tensor, or a float32 copy.
StatusOr<Tensor> AsFloat(Plan& plan, const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat) return tensor;
  const Tensor wide = plan.chain.Temporary(DType::kFloat, tensor.sizes);
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnCast", {{"self", &tensor}, {"dtype", DType::kFloat}, {"out", &wide}}));
  return wide;
}

// The shape without the last dim, as it is; the product of the others as rows.
int64_t LastOf(const Tensor& tensor) { return tensor.sizes.empty() ? 1 : tensor.sizes[tensor.sizes.size() - 1]; }
int64_t RowsOf(const Tensor& tensor) { return LastOf(tensor) == 0 ? 0 : tensor.count / LastOf(tensor); }

Status CheckVector(const Plan& plan, std::string_view name, int64_t size, bool may_be_single) {
  const int64_t count = plan.In(name).count;
  if (count == size || (may_be_single && count == 1)) return {};
  return plan.WrongShape(name, may_be_single ? fmt::format("[{}] or [1]", size) : fmt::format("[{}]", size));
}

}  // namespace

// ---- Caches ----

namespace {

// A cache is written where it is.
Status CheckInPlace(const Plan& plan, std::string_view in, std::string_view out) {
  if (plan.In(in).data == plan.Out(out).data && plan.In(in).count == plan.Out(out).count) return {};
  return plan.Wrong(out, fmt::format("is other memory than {}", in), "pass the cache as input and as output");
}

}  // namespace

Status Make(const CacheWrite& request, Plan& plan) {
  const char* const mode = request.is_tiled ? "PA_NZ" : "Norm";
  REPRISE_RETURN_IF_ERROR(CheckInPlace(plan, "keyCache", "keyCacheOut"));
  if (request.has_value) REPRISE_RETURN_IF_ERROR(CheckInPlace(plan, "valueCache", "valueCacheOut"));
  Tensor slots = plan.In("slotMapping");
  if (slots.sizes.size() != 1) slots = Reshaped(slots, {slots.count});
  // The cache of one head may leave out the dim of the heads.
  const auto with_heads = [&](std::string_view name) {
    const Tensor& cache = plan.In(name);
    if (cache.sizes.size() != 3 || request.is_tiled) return cache;
    return Reshaped(cache, {cache.sizes[0], cache.sizes[1], 1, cache.sizes[2]});
  };
  const auto rows_of = [&](std::string_view name, const Tensor& cache) {
    const Tensor& rows = plan.In(name);
    const bool is_plain = cache.sizes.size() == 4 && !request.is_tiled && !rows.sizes.empty() && rows.sizes[0] > 0;
    if (!is_plain || rows.count / rows.sizes[0] != cache.sizes[2] * cache.sizes[3]) return rows;
    return Reshaped(rows, {rows.sizes[0], cache.sizes[2], cache.sizes[3]});
  };
  const Tensor key_cache = with_heads("keyCache");
  const Tensor key = rows_of("key", key_cache);
  if (!request.has_value) {
    return plan.chain.Add("aclnnScatterPaCache",
                          {{"key", &key}, {"keyCacheRef", &key_cache}, {"slotMapping", &slots}, {"cacheMode", mode}});
  }
  const Tensor value_cache = with_heads("valueCache");
  const Tensor value = rows_of("value", value_cache);
  return plan.chain.Add("aclnnScatterPaKvCache", {{"key", &key},
                                                  {"keyCacheRef", &key_cache},
                                                  {"slotMapping", &slots},
                                                  {"value", &value},
                                                  {"valueCacheRef", &value_cache},
                                                  {"cacheMode", mode}});
}

Status Make(const CacheRead& request, Plan& plan) {
  const Tensor* const starts = request.has_starts ? &plan.In("seqStarts") : nullptr;
  if (request.has_starts && !plan.Has("seqStarts")) return plan.Wrong("seqStarts", "is missing");
  return plan.chain.Add("aclnnGatherPaKvCache", {{"keyCache", &plan.In("keyCache")},
                                                 {"valueCache", &plan.In("valueCache")},
                                                 {"blockTables", &plan.In("blockTables")},
                                                 {"seqLens", &plan.In("contextLens")},
                                                 {"keyRef", &plan.Out("key")},
                                                 {"valueRef", &plan.Out("value")},
                                                 {"seqOffsetOptional", starts},
                                                 {"cacheMode", request.is_tiled ? "PA_NZ" : "Norm"},
                                                 {"isSeqLensCumsum", request.is_cumulative}});
}

// ---- Norms ----

namespace {

Status MakeQuantized(const RmsNorm& request, Plan& plan) {
  const Tensor& x = plan.In("x");
  const int64_t size = LastOf(x);
  const int64_t rows = RowsOf(x);
  for (const char* name : {"gamma", "beta"}) REPRISE_RETURN_IF_ERROR(CheckVector(plan, name, size, false));
  for (const char* name : {"scale", "offset"}) REPRISE_RETURN_IF_ERROR(CheckVector(plan, name, size, true));
  if (plan.Out("y").count != x.count) return plan.WrongShape("y", fmt::format("that of x, {}", ShapeText(x.sizes)));
  const Tensor flat = Reshaped(x, {rows, size});
  const Tensor zeros = Repeated(plan.chain.Zeros(x.dtype(), {1}), {rows, size});
  const Tensor sum = plan.chain.Temporary(x.dtype(), {rows, size});
  const Tensor out = Reshaped(plan.Out("y"), {rows, size});
  const Tensor gamma = Reshaped(plan.In("gamma"), {size});
  const Tensor beta = Reshaped(plan.In("beta"), {size});
  const Tensor scale = Reshaped(plan.In("scale"), {plan.In("scale").count});
  const Tensor offset = Reshaped(plan.In("offset"), {plan.In("offset").count});
  return plan.chain.Add("aclnnAddRmsNormQuantV2", {{"x1", &flat},
                                                   {"x2", &zeros},
                                                   {"gamma", &gamma},
                                                   {"scales1", &scale},
                                                   {"zeroPoints1Optional", &offset},
                                                   {"betaOptional", &beta},
                                                   {"axis", int64_t{-1}},
                                                   {"epsilon", static_cast<double>(request.epsilon)},
                                                   {"divMode", true},
                                                   {"y1Out", &out},
                                                   {"xOut", &sum}});
}

}  // namespace

Status Make(const RmsNorm& request, Plan& plan) {
  if (request.is_quantized) return MakeQuantized(request, plan);
  const Tensor& x = plan.In("x");
  const int64_t size = LastOf(x);
  const int64_t rows = RowsOf(x);
  REPRISE_RETURN_IF_ERROR(CheckVector(plan, "gamma", size, false));
  const Tensor& y = plan.Out("y");
  if (y.count != x.count) return plan.WrongShape("y", fmt::format("that of x, {}", ShapeText(x.sizes)));
  const Tensor in = Reshaped(x, {rows, size});
  const Tensor out = Reshaped(y, {rows, size});
  const Tensor gamma = Reshaped(plan.In("gamma"), {size});
  if (request.has_rstd && plan.Out("rstd").count != rows) return plan.WrongShape("rstd", fmt::format("{} rows", rows));
  const Tensor rstd =
      request.has_rstd ? Reshaped(plan.Out("rstd"), {rows, 1}) : plan.chain.Temporary(DType::kFloat, {rows, 1});
  const auto epsilon = static_cast<double>(request.epsilon);
  if (request.kind == RmsNorm::Kind::kNorm) {
    return plan.chain.Add("aclnnRmsNorm",
                          {{"x", &in}, {"gamma", &gamma}, {"epsilon", epsilon}, {"yOut", &out}, {"rstdOut", &rstd}});
  }
  if (plan.In("resIn").count != x.count)
    return plan.WrongShape("resIn", fmt::format("that of x, {}", ShapeText(x.sizes)));
  const Tensor other = Reshaped(plan.In("resIn"), {rows, size});
  const bool keeps = request.kind == RmsNorm::Kind::kBefore;
  if (keeps && plan.Out("resOut").count != x.count) return plan.WrongShape("resOut", "that of x");
  const Tensor sum = keeps ? Reshaped(plan.Out("resOut"), {rows, size}) : plan.chain.Temporary(x.dtype(), {rows, size});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnAddRmsNorm", {{"x1", &in},
                                                             {"x2", &other},
                                                             {"gamma", &gamma},
                                                             {"epsilon", epsilon},
                                                             {"yOut", &out},
                                                             {"rstdOut", &rstd},
                                                             {"xOut", &sum}}));
  if (!request.has_bias) return {};
  REPRISE_RETURN_IF_ERROR(CheckVector(plan, "beta", size, false));
  const Tensor beta = Reshaped(plan.In("beta"), {size});
  return plan.chain.Add("aclnnInplaceAdd", {{"selfRef", &out}, {"other", &beta}, {"alpha", Scalar::Of(1.0f)}});
}

// ---- Rotation ----

namespace {

// Rotates a tensor [tokens, heads * size] by angles [tokens, size].
Status Rotate(const Rotary& request, Plan& plan, std::string_view in, std::string_view out, const Tensor& cosines,
              const Tensor& sines) {
  const Tensor& x = plan.In(in);
  const int64_t tokens = cosines.sizes[0];
  const int64_t size = cosines.sizes[1];
  if (x.count != plan.Out(out).count || x.sizes.empty() || x.sizes[0] != tokens || x.count % (tokens * size) != 0) {
    return plan.WrongShape(in, fmt::format("[{}, heads * {}], as cos and sin have it", tokens, size));
  }
  const int64_t heads = x.count / (tokens * size);
  // Neighbouring parts of a head are the halves of rows.
  const int64_t pairs = request.coefficient / 2;
  const bool is_interleaved = request.coefficient == size;
  const int64_t rows = is_interleaved ? 1 : pairs;
  const int64_t row = size / rows;
  Tensor from = Reshaped(x, {tokens, heads, rows, row});
  const Tensor to = Reshaped(plan.Out(out), {tokens, heads, rows, row});
  const Tensor cos = Reshaped(cosines, {tokens, 1, rows, row});
  const Tensor sin = Reshaped(sines, {tokens, 1, rows, row});
  const int64_t mode = is_interleaved ? 1 : 0;
  const bool is_wide = cosines.dtype() == DType::kFloat && x.dtype() != DType::kFloat;
  Tensor result = to;
  if (is_wide) {  // angles of float32 ask for that precision
    REPRISE_ASSIGN_OR_RETURN(from, AsFloat(plan, from));
    result = plan.chain.Temporary(DType::kFloat, to.sizes);
  }
  REPRISE_RETURN_IF_ERROR(plan.chain.Add(
      "aclnnRotaryPositionEmbedding", {{"x", &from}, {"cos", &cos}, {"sin", &sin}, {"mode", mode}, {"out", &result}}));
  if (!is_wide) return {};
  return plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &to}, {"src", &result}});
}

}  // namespace

Status Make(const Rotary& request, Plan& plan) {
  const Tensor& cos = plan.In("cos");
  const Tensor& sin = plan.In("sin");
  if (cos.sizes.size() != 2 || sin.sizes.size() != 2 || sin.sizes[0] != cos.sizes[0] || sin.sizes[1] != cos.sizes[1]) {
    return plan.WrongShape("sin", fmt::format("two dims and the shape of cos, {}", ShapeText(cos.sizes)));
  }
  const int64_t size = cos.sizes[1];
  if (request.coefficient < 2 || request.coefficient % 2 != 0 || size == 0 || size % request.coefficient != 0) {
    return plan.Invalid(fmt::format("rotaryCoeff is {}, for heads of {} elements", request.coefficient, size),
                        "pass 2, 4 or the size of a head, an even divisor of it");
  }
  if (cos.sizes[0] == 0) return {};
  REPRISE_RETURN_IF_ERROR(Rotate(request, plan, "query", "ropeQ", cos, sin));
  return Rotate(request, plan, "key", "ropeK", cos, sin);
}

// ---- Products ----

Status Make(const Linear& request, Plan& plan) {
  const Tensor& out = plan.Out("output");
  const auto matrix = [&](std::string_view name, bool is_transposed) -> StatusOr<Tensor> {
    const Tensor& given = plan.In(name);
    const size_t rank = given.sizes.size();
    if (rank < 2 || rank > 3) return plan.WrongShape(name, "2 or 3 dims");
    return is_transposed ? Exchanged(given, rank - 1, rank - 2) : given;
  };
  REPRISE_ASSIGN_OR_RETURN(const Tensor a, matrix("x", request.transposes_a));
  REPRISE_ASSIGN_OR_RETURN(const Tensor b, matrix("weight", request.transposes_b));
  const bool has_more = request.has_bias || request.accumulates;
  const Tensor product = request.accumulates ? plan.chain.Temporary(DType::kFloat, out.sizes) : out;
  REPRISE_RETURN_IF_ERROR(
      plan.chain.Add("aclnnMatmul", {{"self", &a}, {"mat2", &b}, {"out", &product}, {"cubeMathType", kKeepPrecision}}));
  if (!has_more) return {};
  Tensor other = plan.In(request.accumulates ? "accum" : "bias");
  if (request.accumulates && (out.dtype() != DType::kFloat || other.dtype() != DType::kFloat)) {
    return plan.Wrong("accum", fmt::format("is {}, expected float32", DTypeText(other.dtype_number)));
  }
  if (request.accumulates && other.count != out.count) {
    return plan.WrongShape("accum", fmt::format("that of output, {}", ShapeText(out.sizes)));
  }
  if (request.has_bias && other.sizes.size() > 1) other = Reshaped(other, {other.count});
  return plan.chain.Add("aclnnAdd",
                        {{"self", &product}, {"other", &other}, {"alpha", Scalar::Of(1.0f)}, {"out", &out}});
}

// ---- Experts ----

Status Make(const GroupChoice& request, Plan& plan) {
  const Tensor& x = plan.In("token");
  const Tensor& out = plan.Out("output");
  if (x.sizes.size() != 2 || out.count != x.count) return plan.WrongShape("token", "[tokens, experts]");
  const int64_t rows = x.sizes[0];
  const int64_t experts = x.sizes[1];
  const int64_t groups = request.groups;
  if (groups < 1 || experts % groups != 0) {
    return plan.Invalid(fmt::format("groupNum is {}, for {} experts", groups, experts),
                        "pass a divisor of the number of experts");
  }
  const int64_t size = experts / groups;
  if (request.chosen < 1 || request.chosen > groups || request.summed < 1 || request.summed > size) {
    return plan.Invalid(
        fmt::format("k is {} and n is {}, for {} groups of {} experts", request.chosen, request.summed, groups, size),
        "k counts groups, n counts experts of a group; both are at least 1");
  }
  if (x.data != out.data) REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &out}, {"src", &x}}));
  const Tensor in_groups = Reshaped(out, {rows, groups, size});
  const Tensor greatest = plan.chain.Temporary(x.dtype(), {rows, groups, request.summed});
  const Tensor places = plan.chain.Temporary(DType::kInt64, {rows, groups, request.summed});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnTopk", {{"self", &in_groups},
                                                       {"k", request.summed},
                                                       {"dim", int64_t{-1}},
                                                       {"largest", true},
                                                       {"sorted", true},
                                                       {"valuesOut", &greatest},
                                                       {"indicesOut", &places}}));
  const Tensor best = plan.chain.Temporary(DType::kFloat, {rows, groups});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnReduceSum", {{"self", &greatest},
                                                            {"dims", std::vector<int64_t>{2}},
                                                            {"keepDims", false},
                                                            {"dtype", DType::kFloat},
                                                            {"out", &best}}));
  const Tensor values = plan.chain.Temporary(DType::kFloat, {rows, request.chosen});
  const Tensor chosen = plan.chain.Temporary(DType::kInt64, {rows, request.chosen});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnTopk", {{"self", &best},
                                                       {"k", request.chosen},
                                                       {"dim", int64_t{-1}},
                                                       {"largest", true},
                                                       {"sorted", true},
                                                       {"valuesOut", &values},
                                                       {"indicesOut", &chosen}}));
  const Tensor left_out = plan.chain.Temporary(DType::kBool, {rows, groups});
  REPRISE_RETURN_IF_ERROR(
      plan.chain.Add("aclnnInplaceFillScalar", {{"selfRef", &left_out}, {"value", Scalar::Of(int64_t{1})}}));
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnInplaceScatterValue", {{"selfRef", &left_out},
                                                                      {"dim", int64_t{1}},
                                                                      {"index", &chosen},
                                                                      {"value", Scalar::Of(int64_t{0})},
                                                                      {"reduce", int64_t{0}}}));
  const Tensor mask = Reshaped(left_out, {rows, groups, 1});
  return plan.chain.Add("aclnnInplaceMaskedFillScalar",
                        {{"selfRef", &in_groups}, {"mask", &mask}, {"value", Scalar::Of(0.0f)}});
}

Status Make(const ExpertChoice& request, Plan& plan) {
  if (plan.In("x").sizes.size() != 2) return plan.WrongShape("x", "[tokens, experts]");
  if (request.summed != 1 && request.summed != 2) {
    return plan.Unsupported(fmt::format("n is {}, expected 1 or 2", request.summed),
                            "sum up one or two experts of a group");
  }
  const int64_t rows = plan.In("x").sizes[0];
  const int64_t experts = plan.In("x").sizes[1];
  REPRISE_RETURN_IF_ERROR(CheckVector(plan, "addNum", experts, false));
  const Tensor flat_bias = Reshaped(plan.In("addNum"), {experts});
  REPRISE_ASSIGN_OR_RETURN(const Tensor x, AsFloat(plan, plan.In("x")));
  REPRISE_ASSIGN_OR_RETURN(const Tensor bias, AsFloat(plan, flat_bias));
  const Tensor& y = plan.Out("y");
  const Tensor& indices = plan.Out("indices");
  constexpr int64_t kSigmoid = 1;
  REPRISE_RETURN_IF_ERROR(
      plan.chain.Add("aclnnMoeGatingTopK", {{"x", &x},
                                            {"biasOptional", &bias},
                                            {"k", request.chosen},
                                            {"kGroup", request.chosen_groups},
                                            {"groupCount", request.groups},
                                            {"groupSelectMode", request.summed - 1},
                                            {"renorm", int64_t{0}},
                                            {"normType", kSigmoid},
                                            {"outFlag", false},
                                            {"routedScalingFactor", static_cast<double>(request.scale)},
                                            {"eps", 0.0},
                                            {"yOut", &y},
                                            {"expertIdxOut", &indices}}));
  if (request.is_normalized) return {};
  const Tensor weights = plan.chain.Temporary(DType::kFloat, {rows, experts});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnSigmoid", {{"self", &x}, {"out", &weights}}));
  return plan.chain.Add("aclnnGather", {{"self", &weights}, {"dim", int64_t{1}}, {"index", &indices}, {"out", &y}});
}

// ---- Element by element ----

namespace {

struct ElementRow {
  Elementwise::Kind kind;
  const char* op;
  const char* first;   // names of its parameters
  const char* second;  // null: one operand
  bool has_alpha = false;
};

constexpr ElementRow kElementRows[] = {
    {Elementwise::kCos, "aclnnCos", "input", nullptr},
    {Elementwise::kSin, "aclnnSin", "self", nullptr},
    {Elementwise::kNegate, "aclnnNeg", "self", nullptr},
    {Elementwise::kNot, "aclnnLogicalNot", "self", nullptr},
    {Elementwise::kTanh, "aclnnTanh", "self", nullptr},
    {Elementwise::kAdd, "aclnnAdd", "self", "other", true},
    {Elementwise::kSubtract, "aclnnSub", "self", "other", true},
    {Elementwise::kMultiply, "aclnnMul", "self", "other"},
    {Elementwise::kDivide, "aclnnDiv", "self", "other"},
    {Elementwise::kAnd, "aclnnLogicalAnd", "self", "other"},
    {Elementwise::kOr, "aclnnLogicalOr", "self", "other"},
    {Elementwise::kLess, "aclnnLtTensor", "self", "other"},
    {Elementwise::kGreater, "aclnnGtTensor", "self", "other"},
    {Elementwise::kEqual, "aclnnEqTensor", "self", "other"},
};

// round(x / scale + offset), clamped to int8, in float32.
Status QuantizeChannels(Plan& plan) {
  const Tensor& x = plan.In("x");
  for (const char* name : {"scale", "offset"}) REPRISE_RETURN_IF_ERROR(CheckVector(plan, name, LastOf(x), true));
  const Tensor flat_scale = Reshaped(plan.In("scale"), {plan.In("scale").count});
  const Tensor flat_offset = Reshaped(plan.In("offset"), {plan.In("offset").count});
  REPRISE_ASSIGN_OR_RETURN(const Tensor wide, AsFloat(plan, x));
  REPRISE_ASSIGN_OR_RETURN(const Tensor scale, AsFloat(plan, flat_scale));
  REPRISE_ASSIGN_OR_RETURN(const Tensor offset, AsFloat(plan, flat_offset));
  const Tensor scaled = plan.chain.Temporary(DType::kFloat, x.sizes);
  OperatorChain& chain = plan.chain;
  REPRISE_RETURN_IF_ERROR(chain.Add("aclnnDiv", {{"self", &wide}, {"other", &scale}, {"out", &scaled}}));
  REPRISE_RETURN_IF_ERROR(
      chain.Add("aclnnAdd", {{"self", &scaled}, {"other", &offset}, {"alpha", Scalar::Of(1.0f)}, {"out", &scaled}}));
  REPRISE_RETURN_IF_ERROR(chain.Add("aclnnRound", {{"self", &scaled}, {"out", &scaled}}));
  REPRISE_RETURN_IF_ERROR(chain.Add("aclnnClamp", {{"self", &scaled},
                                                   {"clipValueMin", Scalar::Of(kLeastByte)},
                                                   {"clipValueMax", Scalar::Of(kGreatestByte)},
                                                   {"out", &scaled}}));
  return chain.Add("aclnnCast", {{"self", &scaled}, {"dtype", DType::kInt8}, {"out", &plan.Out("out")}});
}

}  // namespace

Status Make(const Elementwise& request, Plan& plan) {
  const Tensor& x = plan.In("x");
  const Tensor& out = plan.Out("out");
  for (const ElementRow& row : kElementRows) {
    if (row.kind != request.kind) continue;
    if (row.second == nullptr) return plan.chain.Add(row.op, {{row.first, &x}, {"out", &out}});
    const Tensor& y = plan.In("y");
    if (!row.has_alpha) return plan.chain.Add(row.op, {{row.first, &x}, {row.second, &y}, {"out", &out}});
    return plan.chain.Add(row.op,
                          {{row.first, &x}, {row.second, &y}, {"alpha", Scalar::Of(int64_t{1})}, {"out", &out}});
  }
  switch (request.kind) {
    case Elementwise::kCast: return plan.chain.Add("aclnnCast", {{"self", &x}, {"dtype", out.dtype()}, {"out", &out}});
    case Elementwise::kMultiplyScalar:
      return plan.chain.Add("aclnnMuls", {{"self", &x}, {"other", Scalar::Of(request.factor)}, {"out", &out}});
    case Elementwise::kQuantizeChannels: return QuantizeChannels(plan);
    case Elementwise::kDynamicQuantize:
      return plan.chain.Add("aclnnDynamicQuant", {{"x", &x}, {"yOut", &out}, {"scaleOut", &plan.Out("scaleOut")}});
    default: break;
  }
  return plan.Unsupported(fmt::format("elewiseType {} is not supported yet", static_cast<int>(request.kind)),
                          "call the aclnn operators that do the same");
}

}  // namespace reprise::ops::transformer
