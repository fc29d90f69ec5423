// SPDX-License-Identifier: Apache-2.0
//
// Operators by type as a view of the graph operators: each row has one, and computes types that it has. What LowerNamed
// hands to a compiler.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "ops/named_lowering.h"

namespace reprise::ops {
namespace {

TEST(NamedOpTest, EveryRowIsAGraphOperatorWithTheTypesOfItsSteps) {
  for (const NamedOp& row : NamedOps()) {
    SCOPED_TRACE(row.type);
    const opdef::GraphOp* const op = opdef::FindGraphOp(row.type);
    ASSERT_NE(nullptr, op);
    EXPECT_NE(nullptr, row.lower);
    EXPECT_EQ(&row, FindNamedOp(row.type)) << "twice in the tables";
    const opdef::Operand* data = nullptr;  // Empty has none
    for (const opdef::Operand& input : op->inputs) {
      if (data == nullptr && !input.is_value()) data = &input;
    }
    for (const kernels::DType type : kernels::kAllDTypes) {
      if (!row.types.Has(type)) continue;
      EXPECT_TRUE(data == nullptr || data->types().Has(static_cast<int32_t>(type)))
          << opdef::TypeName(static_cast<int32_t>(type));
    }
    for (const opdef::AttributeDef& attribute : op->attributes) {
      EXPECT_NE(opdef::AttributeKind::kTensor, attribute.kind) << attribute.name;
    }
  }
}

// What the specification ranks A and B has steps, or a reason that the refusal says.
TEST(NamedOpTest, EveryGraphOperatorHasStepsOrAReason) {
  for (const opdef::GraphOp& op : opdef::GraphOps()) {
    SCOPED_TRACE(op.type);
    const bool has_steps = FindNamedOp(op.type) != nullptr;
    const NamedReason* const reason = FindReason(op.type);
    EXPECT_FALSE(has_steps && reason != nullptr) << "has steps, so that the reason is never said";
    if (has_steps || op.rank == 'C') continue;
    EXPECT_NE(nullptr, reason) << "add steps in named_ops/FAMILY.cc, or a reason in named_ops/reasons.cc";
    if (reason == nullptr) continue;
    Status refusal = NoSteps(op.type);
    EXPECT_EQ(kOpNotFound, refusal.code());
    EXPECT_NE(std::string::npos, refusal.detail().what.find(reason->why));
    EXPECT_FALSE(refusal.detail().hint.empty());
  }
}

bool HasOperand(std::span<const opdef::Operand> operands, std::string_view name) {
  return std::any_of(operands.begin(), operands.end(), [&](const auto& operand) { return operand.name == name; });
}

// Whether a word names something that is there.
bool IsWord(const opdef::GraphOp& op, std::string_view word) {
  std::string_view name = word.substr(1);
  switch (word[0]) {
    case '%': return !name.empty();
    case '@': return op.FindAttribute(name) != nullptr;
    case '#': return HasOperand(op.inputs, name) || op.FindAttribute(name) != nullptr;
    case '$': return HasOperand(op.inputs, name);
    case '=':
      if (name.starts_with("type:")) name.remove_prefix(5);
      if (name.starts_with('=')) return HasOperand(op.outputs, name.substr(1));
      return name.empty() || name == "type" || HasOperand(op.outputs, name);
    default: return HasOperand(op.inputs, word);
  }
}

TEST(NamedOpTest, WordsFitTheOperatorAndItsFunction) {
  for (const NamedOp& row : NamedOps()) {
    if (row.function.empty()) continue;
    SCOPED_TRACE(row.type);
    const opdef::GraphOp& op = *opdef::FindGraphOp(row.type);
    const OpId id = FindOp(row.function);
    ASSERT_NE(OpId::kCount, id) << row.function;
    size_t words = row.arguments.empty() ? op.inputs.size() + op.outputs.size() : 0;
    for (std::string_view rest = row.arguments; !rest.empty(); ++words) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      EXPECT_TRUE(IsWord(op, word)) << word;
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    }
    EXPECT_EQ(SchemaOf(id).params.size(), words) << row.function;
  }
}

constexpr auto kFloat = static_cast<int32_t>(kernels::DType::kFloat);
constexpr auto kInt32 = static_cast<int32_t>(kernels::DType::kInt32);
constexpr auto kInt64 = static_cast<int32_t>(kernels::DType::kInt64);

// Memory that is not there.
class Plan : public Arena {
 public:
  void* Allocate(uint64_t bytes) override {
    allocated += bytes;
    return Next(bytes);
  }
  void* Keep(std::span<const char> bytes) override {
    kept.emplace_back(bytes.begin(), bytes.end());
    return Next(bytes.size());
  }
  void* Next(uint64_t bytes) {
    next_ += (bytes + 2 * kScratchAlignment) / kScratchAlignment * kScratchAlignment;
    return reinterpret_cast<void*>(next_);
  }
  uint64_t allocated = 0;
  std::vector<std::vector<char>> kept;

 private:
  uintptr_t next_ = uintptr_t{1} << 40;
};

template <class T>
NamedTensor ValueOf(int32_t dtype, std::vector<T> values) {
  const std::vector dims = {static_cast<int64_t>(values.size())};
  return OperandOf(dtype, dims, nullptr, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// Addresses that the launches write.
std::set<void*> Written(const NamedCall& call) {
  std::set<void*> written;
  for (const Launch* launch : call.launches()) {
    for (size_t i = 0; i < launch->refs.size(); ++i) {
      if (launch->uses[i].is_write) written.insert(launch->refs[i].data);
    }
  }
  return written;
}

TEST(NamedLoweringTest, SeveralOutputs) {
  Plan plan;
  void* const values = plan.Next(48);
  void* const indices = plan.Next(48);
  NamedRequest request{.type = "TopKV2", .arena = &plan};
  request.inputs = {{OperandOf(kFloat, {4, 8}, plan.Next(128))}, {ValueOf<int32_t>(kInt32, {3})}};
  request.outputs = {{OperandOf(kFloat, {4, 3}, values)}, {OperandOf(kInt32, {-1, -1}, indices)}};
  auto call = LowerNamed(std::move(request));
  ASSERT_TRUE(call.ok()) << std::move(call).status().detail().what;
  EXPECT_EQ((std::vector<int64_t>{4, 3}), call.value()->Output("indices").dims);
  const std::set<void*> written = Written(*call.value());
  EXPECT_TRUE(written.contains(values) && written.contains(indices));
  size_t launches = 0;
  for (const NamedCall::PlannedStep& step : call.value()->steps()) launches += step.launches;
  EXPECT_EQ(launches, call.value()->launches().size());
}

TEST(NamedLoweringTest, AnOutputThatNobodyWantsIsInTheArena) {
  Plan plan;
  NamedRequest request{.type = "TopKV2", .arena = &plan};
  request.inputs = {{OperandOf(kFloat, {4, 8}, plan.Next(128))}, {ValueOf<int64_t>(kInt64, {3})}};
  request.outputs = {{OperandOf(-1, {-2}, plan.Next(48))}, {}};
  auto call = LowerNamed(std::move(request));
  ASSERT_TRUE(call.ok()) << std::move(call).status().detail().what;
  EXPECT_FALSE(call.value()->Wants("indices"));
  EXPECT_EQ(kFloat, call.value()->Output("values").dtype_number);
  EXPECT_GE(plan.allocated, 4u * 3u * 4u);
}

TEST(NamedLoweringTest, ListsOfOutputs) {
  Plan plan;
  const opdef::Attributes attributes = {{"num_split", int64_t{3}}};
  NamedRequest request{.type = "SplitV", .attributes = &attributes, .arena = &plan};
  request.inputs = {{OperandOf(kFloat, {2, 9}, plan.Next(72))},
                    {ValueOf<int64_t>(kInt64, {2, -1, 3})},
                    {ValueOf<int64_t>(kInt64, {1})}};
  request.outputs = {{OperandOf(kFloat, {2, 2}, plan.Next(16)), OperandOf(kFloat, {2, -1}, plan.Next(32)),
                      OperandOf(kFloat, {2, 3}, plan.Next(24))}};
  auto call = LowerNamed(std::move(request));
  ASSERT_TRUE(call.ok()) << std::move(call).status().detail().what;
  EXPECT_EQ((std::vector<int64_t>{2, 4}), call.value()->OutputList("y")[1].dims);
  EXPECT_EQ(3u, Written(*call.value()).size());
}

TEST(NamedLoweringTest, ConstantsWithoutMemoryAreKept) {
  Plan plan;
  NamedRequest request{.type = "Add", .arena = &plan};
  request.inputs = {{OperandOf(kFloat, {2}, plan.Next(8))}, {ValueOf<float>(kFloat, {1, 2})}};
  request.outputs = {{OperandOf(kFloat, {2}, plan.Next(8))}};
  auto call = LowerNamed(std::move(request));
  ASSERT_TRUE(call.ok()) << std::move(call).status().detail().what;
  ASSERT_EQ(1u, plan.kept.size());
  EXPECT_EQ(8u, plan.kept[0].size());
}

TEST(NamedLoweringTest, AnInputWrittenInPlaceIsCopiedWhereTheOutputLiesElsewhere) {
  Plan plan;
  for (const bool is_elsewhere : {false, true}) {
    void* const dst = plan.Next(16);
    void* const result = is_elsewhere ? plan.Next(16) : dst;
    NamedRequest request{.type = "ViewCopy", .arena = &plan};
    const auto numbers = [](int64_t value) { return std::vector{ValueOf<int64_t>(kInt64, {value})}; };
    request.inputs = {{OperandOf(kFloat, {4}, dst)},           numbers(2), numbers(1), numbers(1),
                      {OperandOf(kFloat, {4}, plan.Next(16))}, numbers(2), numbers(2), numbers(0)};
    request.outputs = {{OperandOf(kFloat, {4}, result)}};
    auto call = LowerNamed(std::move(request));
    ASSERT_TRUE(call.ok()) << std::move(call).status().detail().what;
    EXPECT_EQ(is_elsewhere ? 2u : 1u, call.value()->steps().size());
    EXPECT_FALSE(is_elsewhere && Written(*call.value()).contains(dst));
  }
}

TEST(NamedLoweringTest, TypesWithoutStepsAreRefused) {
  EXPECT_TRUE(HasSteps("Add"));
  EXPECT_FALSE(HasSteps("NoSuchType"));
  auto call = LowerNamed({.type = "NoSuchType"});
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(kOpNotFound, std::move(call).status().code());
}

}  // namespace
}  // namespace reprise::ops
