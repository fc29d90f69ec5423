// SPDX-License-Identifier: Apache-2.0
#include "ops/op_traits.h"

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ops/npu_ops.h"

namespace torch_npu {
namespace {

bool IsTensorType(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto optional = type->cast<c10::OptionalType>()) return IsTensorType(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return IsTensorType(list->getElementType());
  return false;
}

bool IsGeneratorType(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && IsGeneratorType(optional->getElementType());
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool DependsOnData(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
}

// Overloads of every operator, by name.
const std::vector<std::string>& OverloadsOf(const std::string& name) {
  static const auto* const all = [] {
    auto* const overloads = new std::unordered_map<std::string, std::vector<std::string>>;
    for (const c10::OperatorName& each : c10::Dispatcher::singleton().getAllOpNames()) {
      (*overloads)[each.name].push_back(each.overload_name);
    }
    return overloads;
  }();
  static const std::vector<std::string> none;
  const auto found = all->find(name);
  return found == all->end() ? none : found->second;
}

// Whether `out` takes what `functional` takes, and after that the results to write.
bool IsOutOf(const c10::FunctionSchema& out, const c10::FunctionSchema& functional) {
  const auto& few = functional.arguments();
  const auto& many = out.arguments();
  if (many.size() != few.size() + functional.returns().size() || functional.returns().empty()) return false;
  for (size_t i = 0; i < few.size(); ++i) {
    if (few[i].name() != many[i].name() || *few[i].type() != *many[i].type() || IsWritten(few[i]) ||
        IsWritten(many[i])) {
      return false;
    }
  }
  for (size_t i = few.size(); i < many.size(); ++i) {
    if (!IsWritten(many[i]) || *many[i].type() != *functional.returns()[i - few.size()].type()) return false;
  }
  return true;
}

template <class Accept>
std::optional<c10::OperatorHandle> FindOverload(const std::string& name, Accept&& accept) {
  for (const std::string& overload : OverloadsOf(name)) {
    const auto other = c10::Dispatcher::singleton().findSchema({name, overload});
    if (other.has_value() && accept(*other)) return other;
  }
  return std::nullopt;
}

// Losses give their out= argument the sizes of the input before they reduce it.
bool CanWriteResults(const c10::FunctionSchema& schema) {
  if (schema.argumentIndexWithName("reduction").has_value()) return false;
  for (const c10::Argument& value : schema.returns()) {
    if (value.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

// What the schemas do not say. Results that depend on data, or that the Meta kernel announces wrongly.
bool MustWait(const std::string& name) {
  static constexpr std::array<std::string_view, 3> kNames = {"aten::_efficientzerotensor", "aten::_embedding_bag",
                                                             "aten::_embedding_bag_forward_only"};
  for (const std::string_view each : kNames) {
    if (name == each) return true;
  }
  return name.rfind("aten::quantize_per_tensor", 0) == 0;  // announced as if they were not quantized
}

// Whether an operator in place refuses a tensor whose elements share memory; these do not.
bool RefusesOverlaps(const std::string& name) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "aten::fill_",      "aten::zero_",      "aten::masked_fill_",     "aten::index_fill_",
      "aten::index_put_", "aten::resize_as_", "aten::_index_put_impl_", "aten::fill_diagonal_"};
  if (!name.ends_with('_')) return false;
  for (const std::string_view each : kNames) {
    if (name == each) return false;
  }
  return true;
}

// Operators that torch has no Meta kernel for: the first result is like this argument; `mask`: a second one of type
// bool.
struct LikeRule {
  std::string_view name;
  int argument;
  bool mask = false;
};

constexpr std::array<LikeRule, 19> kLikeRules = {{
    {"aten::_logcumsumexp", 0},
    {"aten::glu_jvp", 0},
    {"aten::glu_backward_jvp", 0},
    {"aten::_dirichlet_grad", 0},
    {"aten::_sample_dirichlet", 0},
    {"aten::_standard_gamma_grad", 0},
    {"aten::binomial", 0},
    {"aten::_masked_softmax", 0},
    {"aten::_masked_softmax_backward", 0},
    {"aten::multi_margin_loss_backward", 1},
    {"aten::multilabel_margin_loss_backward", 1},
    {"aten::fractional_max_pool3d_backward", 1},
    {"aten::_ctc_loss_backward", 1},
    {"aten::_ctc_loss_backward.Tensor", 1},
    {"aten::fake_quantize_per_tensor_affine_cachemask", 0, true},
    {"aten::fake_quantize_per_channel_affine_cachemask", 0, true},
    {"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", 0, true},
    {"aten::_fake_quantize_learnable_per_tensor_affine", 0},
    {"aten::_fake_quantize_learnable_per_channel_affine", 0},
}};

std::vector<LikeArgument> LikeOf(const std::string& name) {
  for (const LikeRule& rule : kLikeRules) {
    if (name != rule.name) continue;
    std::vector<LikeArgument> like = {{rule.argument, std::nullopt}};
    if (rule.mask) like.push_back({rule.argument, at::kBool});
    return like;
  }
  return {};
}

// add.out of add.Tensor and add_.Tensor: what torch calls in their place.
std::optional<c10::OperatorHandle> OutOf(const c10::OperatorHandle& op) {
  std::string name = op.schema().name();
  std::optional<c10::OperatorHandle> functional = op;
  if (name.ends_with('_')) {
    name.pop_back();
    functional = c10::Dispatcher::singleton().findSchema({name, op.schema().overload_name()});
  }
  if (!functional.has_value()) return std::nullopt;
  return FindOverload(name,
                      [&](const c10::OperatorHandle& other) { return IsOutOf(other.schema(), functional->schema()); });
}

OpTraits MakeTraits(const c10::OperatorHandle& op) {
  OpTraits traits(op);
  const c10::FunctionSchema& schema = op.schema();
  traits.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  const bool indexes = schema.name().find("index") != std::string::npos;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    traits.is_written.push_back(IsWritten(arguments[i]));
    const auto list = arguments[i].type()->cast<c10::ListType>();
    traits.takes_host.push_back(indexes && list && list->getElementType()->kind() == c10::TypeKind::OptionalType);
    if (IsGeneratorType(arguments[i].type())) traits.generator = static_cast<int>(i);
  }
  bool is_view = false;
  bool has_other_returns = false;
  for (const c10::Argument& value : schema.returns()) {
    int returned = -1;
    bool is_part = false;
    if (const c10::AliasInfo* const alias = value.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const c10::AliasInfo* const other = arguments[i].alias_info();
        if (other != nullptr && other->beforeSets() == alias->beforeSets()) returned = static_cast<int>(i);
      }
      is_part = !alias->isWrite();
    }
    is_view |= is_part;
    traits.makes_tensors |= returned < 0;
    has_other_returns |= !IsTensorType(value.type());
    traits.returns_argument.push_back(is_part ? -1 : returned);
  }
  traits.draws = traits.generator >= 0 || op.hasTag(at::Tag::nondeterministic_seeded);
  traits.is_pointwise = op.hasTag(at::Tag::pointwise);
  traits.has_cpu = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  // Not "computed": torch has a fallback for Meta, which throws.
  traits.has_meta = op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
                    op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  if (!traits.has_meta) traits.like = LikeOf(traits.name);
  const bool is_announced = traits.has_meta || !traits.like.empty();

  bool depends_on_data = DependsOnData(op);
  const auto functional =
      FindOverload(schema.name(), [&](const c10::OperatorHandle& other) { return IsOutOf(schema, other.schema()); });
  traits.is_out_form = functional.has_value();
  if (functional.has_value()) depends_on_data |= DependsOnData(*functional) || !traits.has_meta;
  if (indexes && depends_on_data && schema.name().rfind("aten::index", 0) == 0) {
    depends_on_data = false;
    traits.masks_are_dynamic = true;
  }
  const NativeOp* const declared = schema.name().rfind("aten::", 0) != 0 ? FindNative(schema) : nullptr;
  if ((declared != nullptr || IsHostKernel(traits.name)) && !is_view && !has_other_returns) {
    traits.kind = OpKind::kAsync;
  } else if (is_view && !traits.makes_tensors && !has_other_returns) {
    traits.kind = OpKind::kView;
  } else if (is_view || has_other_returns || depends_on_data || (traits.makes_tensors && !is_announced) ||
             schema.name().rfind("aten::", 0) != 0 || MustWait(traits.name)) {
    traits.kind = OpKind::kSynchronous;
  }
  if (traits.kind == OpKind::kAsync && traits.makes_tensors && CanWriteResults(schema)) {
    traits.out = FindOverload(schema.name(), [&](const c10::OperatorHandle& other) {
      return other.hasKernelForDispatchKey(c10::DispatchKey::CPU) && IsOutOf(other.schema(), schema);
    });
  }
  if (schema.name().rfind("aten::", 0) == 0) traits.check = FindCheck(std::string_view(schema.name()).substr(6));
  traits.is_in_place = traits.kind == OpKind::kAsync && !traits.is_written.empty() && traits.is_written[0] &&
                       RefusesOverlaps(schema.name());
  if (traits.kind == OpKind::kAsync && !traits.draws) {
    // The form with out= of mean.dim is called mean.out, as if it were that of mean.
    traits.native = declared != nullptr ? declared : FindNative(functional.value_or(op).schema());
    traits.direct = FindDirectKernel(traits.name);
  }
  if (traits.native != nullptr && IsPutTogether(op)) {
    const auto out = OutOf(op);
    traits.putting = out.has_value() ? Putting::kOnce : Putting::kAlways;
    if (out.has_value()) traits.name = toString(out->operator_name());
  }
  traits.name_alone = std::make_shared<reprise::OperationInfo>(reprise::OperationInfo{traits.name, {}});
  return traits;
}

struct Remembered {
  const c10::FunctionSchema* schema = nullptr;
  const OpTraits* traits = nullptr;
};

constexpr size_t kRemembered = 1024;  // a power of two

const OpTraits& SlowTraitsOf(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const all = new std::unordered_map<std::string, std::unique_ptr<OpTraits>>;
  // A library may be taken away and come again with another schema under the same name.
  const std::string key = toString(op.schema());
  const std::lock_guard lock(mutex);
  std::unique_ptr<OpTraits>& traits = (*all)[key];
  if (!traits) traits = std::make_unique<OpTraits>(MakeTraits(op));
  return *traits;
}

}  // namespace

bool IsPutTogether(const c10::OperatorHandle& op) {
  // These run by what the Meta kernels say; see fallback.cc.
  static constexpr std::array<std::string_view, 4> kOthers = {"aten::pow.Scalar", "aten::clamp.Tensor",
                                                              "aten::clamp_.Tensor", "aten::replication_pad2d"};
  const std::string name = toString(op.operator_name());
  for (const std::string_view each : kOthers) {
    if (name == each) return false;
  }
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

const OpTraits& TraitsOf(const c10::OperatorHandle& op) {
  thread_local std::array<Remembered, kRemembered> t_remembered;
  const c10::FunctionSchema* const schema = &op.schema();
  const auto address = reinterpret_cast<uintptr_t>(schema);
  Remembered& place = t_remembered[(address ^ (address >> 10)) / 16 % kRemembered];
  if (place.schema == schema) [[likely]]
    return *place.traits;
  const OpTraits& traits = SlowTraitsOf(op);
  // Operators of torch stay; those of others may go, and their addresses be used again.
  if (schema->name().rfind("aten::", 0) == 0 || (traits.native != nullptr && IsDeclared(*traits.native)))
    place = {schema, &traits};
  return traits;
}

}  // namespace torch_npu
