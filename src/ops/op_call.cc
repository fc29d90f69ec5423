// SPDX-License-Identifier: Apache-2.0
#include "ops/op_call.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ranges>

#include "ir/task_info.h"
#include "kernels/small_float.h"
#include "ops/overlap.h"
#include "runtime/device.h"
#include "runtime/dump.h"

namespace reprise::ops {
namespace {

const char* KindName(ParamKind kind) {
  switch (kind) {
    case ParamKind::kTensor: return "aclTensor";
    case ParamKind::kScalar: return "aclScalar";
    case ParamKind::kIntArray: return "aclIntArray";
    case ParamKind::kFloatArray: return "aclFloatArray";
    case ParamKind::kBoolArray: return "aclBoolArray";
    case ParamKind::kTensorList: return "aclTensorList";
    case ParamKind::kScalarList: return "aclScalarList";
    case ParamKind::kString: return "string";
    default: return "value";
  }
}

std::string Join(const InlineVector<Operand, 3>& operands, const auto& text) {
  std::string joined;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i != 0) joined += i + 1 == operands.size() ? " and " : ", ";
    joined += text(operands[i]);
  }
  return joined;
}

// Bytes from the start of the storage to the end of the view, or -1 when they do not fit.
int64_t EndOfView(const Tensor& tensor) {
  if (tensor.count == 0) return 0;
  __int128 last = tensor.offset;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    last += static_cast<__int128>(tensor.sizes[d] - 1) * tensor.strides[d];
    if (last > INT64_MAX) return -1;
  }
  last = (last + 1) * kernels::ItemSize(tensor.dtype());
  return last > INT64_MAX ? -1 : static_cast<int64_t>(last);
}

constexpr int32_t kInt4 = 29;  // ACL_INT4

// An integer of the size of a type that no kernel knows: complex32, floating types of 8 bits.
kernels::DType BitsOf(int32_t dtype_number) {
  if (dtype_number == 33) return kernels::DType::kInt32;
  if (dtype_number >= 34 && dtype_number <= 37) return kernels::DType::kInt8;
  return kernels::DType::kUndefined;
}

// Strides through which the tensor is seen in the shape `sizes`, with the same elements in the same order; false where
// there are none.
bool FindStrides(const Tensor& tensor, std::span<const int64_t> sizes, Dims& strides) {
  strides.resize(sizes.size());
  int64_t count = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = count;
    if (__builtin_mul_overflow(count, sizes[d], &count)) count = 0;  // strides of nothing, if the counts agree
  }
  if (count != tensor.count) return false;
  if (count == 0) return true;
  // From the back: dims that lie end to end are one run, which new dims must fill.
  size_t next = sizes.size();
  size_t d = tensor.sizes.size();
  while (d > 0) {
    if (tensor.sizes[--d] == 1) continue;
    const auto step = static_cast<uint64_t>(tensor.strides[d]);
    uint64_t run = static_cast<uint64_t>(tensor.sizes[d]);
    while (d > 0 && (tensor.sizes[d - 1] == 1 || static_cast<uint64_t>(tensor.strides[d - 1]) == run * step)) {
      run *= static_cast<uint64_t>(tensor.sizes[--d]);
    }
    uint64_t filled = 1;
    while (next > 0 && (filled < run || sizes[next - 1] == 1)) {
      --next;
      strides[next] = static_cast<int64_t>(filled * step);
      filled *= static_cast<uint64_t>(sizes[next]);
    }
    if (filled != run) return false;
  }
  return true;  // dims that are left have size 1
}

// Element by element the same memory.
bool SameView(const kernels::TensorRef& a, const kernels::TensorRef& b) {
  if (a.data != b.data || a.rank != b.rank || kernels::ItemSize(a.dtype) != kernels::ItemSize(b.dtype)) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.sizes[d] != b.sizes[d] || (a.sizes[d] != 1 && a.strides[d] != b.strides[d])) return false;
  }
  return true;
}

// Element by element one half of the memory of `whole`, as the real parts of complex numbers are.
bool HalfOf(const kernels::TensorRef& whole, const kernels::TensorRef& part) {
  const int64_t size = kernels::ItemSize(part.dtype);
  if (kernels::CategoryOf(whole.dtype) != kernels::Category::kComplex || kernels::ItemSize(whole.dtype) != 2 * size ||
      whole.rank != part.rank) {
    return false;
  }
  const auto distance = static_cast<const char*>(part.data) - static_cast<const char*>(whole.data);
  if (distance != 0 && distance != size) return false;
  for (int d = 0; d < whole.rank; ++d) {
    if (whole.sizes[d] != part.sizes[d]) return false;
    if (whole.sizes[d] != 1 && part.strides[d] != 2 * whole.strides[d]) return false;
  }
  return true;
}

}  // namespace

Status OpCall::Run() {
  runtime::ApplyMatrixUnitSetting();
  REPRISE_RETURN_IF_ERROR(CheckNulls());
  REPRISE_RETURN_IF_ERROR(Bind());
  REPRISE_RETURN_IF_ERROR(CheckTypes());
  REPRISE_RETURN_IF_ERROR(op.computation.dtype_rule(*this));
  REPRISE_RETURN_IF_ERROR(CheckFormats());
  REPRISE_RETURN_IF_ERROR(CheckViews());
  REPRISE_RETURN_IF_ERROR(op.computation.shape_rule(*this));
  REPRISE_RETURN_IF_ERROR(CheckAliasing());
  REPRISE_RETURN_IF_ERROR(op.computation.lower(*this));
  Finish();
  return {};
}

// ---- Binding ----

Status OpCall::CheckNulls() const {
  if (args_.size() != op.params.size()) {
    return Error(kOperatorInternalError, fmt::format("{}: called with {} arguments, its table row has {}", op.name,
                                                     args_.size(), op.params.size()))
        .Hint("rebuild the libraries of one release together: this is a defect");
  }
  auto param = op.params.begin();
  for (const Argument& arg : args_) {
    if (arg.is_pointer() && arg.handle == nullptr && !param->optional) {
      return Error(kOperatorArgumentNull, fmt::format("{}: {} is null", op.name, param->name))
          .Hint(fmt::format("pass an {}", KindName(param->kind)));
    }
    ++param;
  }
  return {};
}

Status OpCall::BindTensor(const Param& param, uint16_t index, const void* handle, const Tensor* tensor,
                          int32_t element) {
  const auto slot = static_cast<int32_t>(executor_.slots.size());
  TensorSlot& entry = executor_.slots.emplace_back();
  entry.param = index;
  entry.element = element;
  if (handle == nullptr) return {};  // absent; keeps its place in the count of tensors
  if (tensor == nullptr) tensor = Tensors().Find(handle);
  if (tensor == nullptr) [[unlikely]] {
    return Invalid(fmt::format("{}: {}", executor_.NameOf(entry),
                               DescribeBadHandle(Tensors().Classify(handle), handle, "aclTensor")),
                   "pass what aclCreateTensor returned, before it is destroyed");
  }
  entry.handle = handle;
  entry.base = reinterpret_cast<uintptr_t>(tensor->data);
  entry.count = tensor->count;
  entry.dtype = tensor->dtype();
  Operand operand{tensor, nullptr, tensor->dtype(), slot, index, element, !param.types.empty()};
  operand.type_number = tensor->dtype_number;
  if (op.computation.takes != 0) {
    if (tensor->count == 0 && element >= 0 && (op.computation.takes & kTakesEmptyAsNull) != 0 &&
        !(operand.apart ? param.types : op.types).Has(operand.dtype)) {
      return {};
    }
    REPRISE_RETURN_IF_ERROR(BindUnusual(operand));
  }
  if (param.role != Role::kOutput) inputs.push_back(operand);
  if (param.role != Role::kInput) outputs.push_back(operand);
  return {};
}

// Tensors of types that no kernel knows, as what lies in memory.
Status OpCall::BindUnusual(Operand& operand) {
  const Tensor& given = *operand.tensor;
  if (operand.dtype != kernels::DType::kUndefined) return {};
  const uint8_t takes = op.computation.takes;
  if (given.dtype_number == kInt4 && (takes & kTakesInt4) != 0) {
    // Two numbers of neighbours in memory to a byte.
    int packed = -1;
    for (size_t d = given.sizes.size(); packed < 0 && d-- > 0;) {
      if (given.strides[d] == 1 && given.sizes[d] != 1) packed = static_cast<int>(d);
    }
    bool fits = packed >= 0 && given.offset % 2 == 0;
    for (size_t d = 0; fits && d < given.sizes.size(); ++d) {
      fits = (static_cast<int>(d) == packed ? given.sizes[d] : given.sizes[d] == 1 ? 0 : given.strides[d]) % 2 == 0;
    }
    if (!fits) {
      return InvalidOperand(
          operand,
          fmt::format("is int4 of shape {}, strides {} and offset {}, whose numbers do not fill bytes",
                      ShapeText(given.sizes), ShapeText(given.strides), given.offset),
          "one dim has stride 1 and an even size, the strides of the others and the offset are even");
    }
    auto bytes = std::make_unique<Tensor>(given);
    bytes->dtype_number = static_cast<int32_t>(kernels::DType::kInt8);
    bytes->offset /= 2;
    bytes->count /= 2;
    for (size_t d = 0; d < bytes->sizes.size(); ++d) {
      if (static_cast<int>(d) == packed) {
        bytes->sizes[d] /= 2;
      } else {
        bytes->strides[d] /= 2;
      }
    }
    operand.packed_dim = static_cast<int8_t>(packed);
    operand.dtype = kernels::DType::kInt8;
    operand.tensor = views_.emplace_back(std::move(bytes)).get();
    return {};
  }
  const kernels::DType bits = BitsOf(given.dtype_number);
  const bool computes = (takes & kTakesSmallFloats) != 0 && kernels::IsSmallFloat(given.dtype_number);
  if (bits == kernels::DType::kUndefined || ((takes & kTakesAnyBits) == 0 && !computes)) return {};
  auto moved = std::make_unique<Tensor>(given);
  moved->dtype_number = static_cast<int32_t>(bits);
  operand.dtype = bits;
  operand.tensor = views_.emplace_back(std::move(moved)).get();
  moves_bits_ = (takes & kTakesAnyBits) != 0;
  return {};
}

Status OpCall::BindObject(const Param& param, uint16_t index, const Argument& arg) {
  const auto first_slot = static_cast<uint32_t>(executor_.slots.size());
  if (param.kind == ParamKind::kTensor) {
    REPRISE_RETURN_IF_ERROR(BindTensor(param, index, arg.handle, static_cast<const Tensor*>(arg.handle), -1));
    executor_.params.push_back({index, first_slot, 1});
    return {};
  }
  if (param.kind == ParamKind::kTensorList) {
    int32_t element = 0;
    for (const Tensor& tensor : *static_cast<const std::vector<Tensor>*>(arg.handle)) {
      REPRISE_RETURN_IF_ERROR(BindTensor(param, index, &tensor, &tensor, element++));
    }
    executor_.params.push_back({index, first_slot, static_cast<uint32_t>(element)});
    return {};
  }
  objects_[index] = arg.handle;
  if (param.kind == ParamKind::kScalar && param.role == Role::kInput) {
    const auto* scalar = static_cast<const kernels::Scalar*>(arg.handle);
    inputs.push_back({nullptr, scalar, scalar->dtype, -1, index, -1});
  }
  return {};
}

Status OpCall::Bind() {
  objects_.resize(args_.size());
  uint16_t index = 0;
  for (const Param& param : op.params) {
    const Argument& arg = args_[index];
    if (arg.kind != param.kind) {
      return Error(kOperatorInternalError,
                   fmt::format("{}: {} does not arrive as the type of its table row", op.name, param.name))
          .Hint("rebuild the libraries of one release together: this is a defect");
    }
    const auto bad = [&](Status status) {
      return Error(status.code() == kOperatorArgumentNull ? kOperatorArgumentNull : kOperatorArgumentInvalid,
                   fmt::format("{}: {}: {}", op.name, param.name, status.detail().what))
          .Hint(status.detail().hint);
    };
    const auto first_slot = static_cast<uint32_t>(executor_.slots.size());
    if (arg.is_object) {
      REPRISE_RETURN_IF_ERROR(BindObject(param, index, arg));
      ++index;
      continue;
    }
    switch (param.kind) {
      case ParamKind::kTensor:
        REPRISE_RETURN_IF_ERROR(BindTensor(param, index, arg.handle, nullptr, -1));
        executor_.params.push_back({index, first_slot, 1});
        break;
      case ParamKind::kTensorList: {
        if (arg.handle != nullptr) {
          auto list = FindTensorList(arg.handle);
          if (!list.ok()) return bad(std::move(list).status());
          int32_t element = 0;
          for (const void* handle : list.value()->tensors) {
            REPRISE_RETURN_IF_ERROR(BindTensor(param, index, handle, nullptr, element++));
          }
        }
        executor_.params.push_back({index, first_slot, static_cast<uint32_t>(executor_.slots.size() - first_slot)});
        break;
      }
      case ParamKind::kScalar: {
        if (arg.handle == nullptr) break;
        auto scalar = FindScalar(arg.handle);
        if (!scalar.ok()) return bad(std::move(scalar).status());
        const kernels::Scalar* value = &scalar.value()->value;
        objects_[index] = value;
        if (param.role == Role::kInput) inputs.push_back({nullptr, value, value->dtype, -1, index, -1});
        break;
      }
      case ParamKind::kIntArray: {
        if (arg.handle == nullptr) break;
        auto array = FindArray<int64_t>(arg.handle);
        if (!array.ok()) return bad(std::move(array).status());
        objects_[index] = array.value();
        break;
      }
      case ParamKind::kFloatArray: {
        if (arg.handle == nullptr) break;
        auto array = FindArray<float>(arg.handle);
        if (!array.ok()) return bad(std::move(array).status());
        objects_[index] = array.value();
        break;
      }
      case ParamKind::kBoolArray: {
        if (arg.handle == nullptr) break;
        auto array = FindArray<bool>(arg.handle);
        if (!array.ok()) return bad(std::move(array).status());
        objects_[index] = array.value();
        break;
      }
      case ParamKind::kScalarList: {
        if (arg.handle == nullptr) break;
        auto list = FindScalarList(arg.handle);
        if (!list.ok()) return bad(std::move(list).status());
        objects_[index] = list.value();
        break;
      }
      case ParamKind::kInt:
      case ParamKind::kBool:
      case ParamKind::kReal:
      case ParamKind::kDType:
      case ParamKind::kString: break;
    }
    ++index;
  }
  return {};
}

// ---- Checks ----

namespace {

// Between numbers of 8 bits with a point, and between them and types of kernels.
bool ConvertsSmall(int32_t from, int32_t to) {
  const auto is_number = [](int32_t type) {
    const auto known = static_cast<kernels::DType>(type);
    return kernels::IsSmallFloat(type) ||
           (kernels::IsKnown(known) && kernels::CategoryOf(known) != kernels::Category::kComplex);
  };
  return is_number(from) && is_number(to);
}

}  // namespace

// Bits that are moved have one meaning on both sides.
Status OpCall::CheckBits() const {
  const Operand& first = outputs[0];
  const bool converts = (op.computation.takes & kTakesSmallFloats) != 0;
  for (const Operand& input : inputs) {
    if (input.tensor == nullptr || input.type_number == first.type_number) continue;
    if (converts && ConvertsSmall(input.type_number, first.type_number)) continue;
    return InvalidOperand(input,
                          fmt::format("has {} and {} has {}, between which nothing converts here",
                                      DTypeText(input.type_number), NameOf(first), DTypeText(first.type_number)),
                          "tensors of such a type are copied to tensors of the same one");
  }
  return {};
}

Status OpCall::CheckTypes() const {
  if (moves_bits_) REPRISE_RETURN_IF_ERROR(CheckBits());
  const auto check = [&](const Operand& operand) -> Status {
    if (operand.tensor == nullptr) return {};
    const DTypeSet types = operand.apart ? op.params[operand.param].types : op.types;
    if (types.Has(operand.dtype)) return {};
    std::string supported;
    for (kernels::DType type : kernels::kAllDTypes) {
      if (types.Has(type)) supported.append(supported.empty() ? "" : ", ").append(kernels::Name(type));
    }
    return InvalidOperand(operand,
                          fmt::format("has {}, which the operator does not take", DTypeText(operand.type_number)),
                          fmt::format("use one of {}", supported));
  };
  for (const Operand& operand : inputs) REPRISE_RETURN_IF_ERROR(check(operand));
  for (const Operand& operand : outputs) REPRISE_RETURN_IF_ERROR(check(operand));
  return {};
}

Status OpCall::CheckFormats() const {
  const auto check = [&](const Operand& operand) -> Status {
    if (operand.tensor == nullptr || IsBaseFormat(operand.tensor->format)) [[likely]]
      return {};
    if (IsFractalFormat(operand.tensor->format) && (op.computation.takes & kTakesFractals) != 0) return {};
    return InvalidOperand(operand, fmt::format("has the private format {}", FormatText(operand.tensor->format)),
                          "pass a tensor of format ND, NCHW, NHWC, NCDHW, NDHWC or NCL");
  };
  for (const Operand& operand : inputs) REPRISE_RETURN_IF_ERROR(check(operand));
  for (const Operand& operand : outputs) REPRISE_RETURN_IF_ERROR(check(operand));
  return {};
}

Status OpCall::CheckViews() const {
  const auto check = [&](const Operand& operand) -> Status {
    if (operand.tensor == nullptr) return {};
    const Tensor& tensor = *operand.tensor;
    if (tensor.sizes.size() > kernels::kMaxRank) {
      return InvalidOperand(
          operand, fmt::format("has {} dimensions, at most {} are possible", tensor.sizes.size(), kernels::kMaxRank));
    }
    for (size_t d = 0; d < tensor.strides.size(); ++d) {
      if (tensor.strides[d] < 0) {
        return InvalidOperand(operand,
                              fmt::format("has stride {} in dim {}, it must not be negative", tensor.strides[d], d));
      }
    }
    const int64_t end = EndOfView(tensor);
    if (end < 0 || static_cast<uintptr_t>(end) > UINTPTR_MAX - reinterpret_cast<uintptr_t>(tensor.data)) {
      return InvalidOperand(operand, fmt::format("reaches beyond the address space: shape {}, strides {}, offset {}",
                                                 ShapeText(tensor.sizes), ShapeText(tensor.strides), tensor.offset));
    }
    TensorSlot& slot = executor_.slots[static_cast<size_t>(operand.slot)];
    slot.offset_bytes = static_cast<uint64_t>(tensor.offset * kernels::ItemSize(operand.dtype));
    slot.extent_bytes = tensor.count == 0 ? 0 : static_cast<uint64_t>(end) - slot.offset_bytes;
    return {};
  };
  for (const Operand& operand : inputs) REPRISE_RETURN_IF_ERROR(check(operand));
  for (const Operand& operand : outputs) {
    REPRISE_RETURN_IF_ERROR(check(operand));
    const Tensor& tensor = *operand.tensor;
    if (tensor.count == 0) continue;
    // Row-major ones, as most are, have no element twice.
    bool is_row_major = true;
    int64_t expected = 1;
    for (size_t d = tensor.sizes.size(); d-- > 0;) {
      if (tensor.sizes[d] == 1) continue;
      if (tensor.strides[d] == 0) {
        return InvalidOperand(
            operand,
            fmt::format("is written, but its {} elements of dim {} share memory (stride 0)", tensor.sizes[d], d),
            "write to a tensor without broadcast dims");
      }
      is_row_major = is_row_major && tensor.strides[d] == expected;
      expected *= tensor.sizes[d];
    }
    if (!is_row_major && OverlapWithin(RefOf(operand)) == Overlap::kSome) {
      return InvalidOperand(operand,
                            fmt::format("is written, but some of its elements share memory (shape {}, strides {})",
                                        ShapeText(tensor.sizes), ShapeText(tensor.strides)),
                            "write to a tensor whose elements lie apart");
    }
  }
  return {};
}

void OpCall::LeaveAsIs(std::string_view name) {
  for (Operand& output : outputs) {
    if (op.params[output.param].name == name) output.is_left_as_is = true;
  }
}

Status OpCall::CheckAliasing() const {
  // Addresses first: most operands lie apart from each other.
  struct Extent {
    uintptr_t begin, end;
    const Operand* operand;
    bool is_output;
  };
  const auto extent_of = [&](const Operand& operand, bool is_output) {
    const TensorSlot& slot = executor_.slots[static_cast<size_t>(operand.slot)];
    const uintptr_t begin = slot.base + slot.offset_bytes;
    return Extent{begin, begin + slot.extent_bytes, &operand, is_output};
  };
  const auto has_memory = [](const Operand& operand) {
    return operand.tensor != nullptr && operand.tensor->count != 0 && operand.tensor->data != nullptr;
  };
  // Elements of lists go together by their places.
  const auto may_be = [&](const Operand& output, const Operand& input) {
    if (op.computation.aliasing == Aliasing::kNone) return false;
    if (op.computation.aliasing == Aliasing::kFirstInput && input.slot != inputs[0].slot) return false;
    return output.element < 0 || input.element < 0 || output.element == input.element;
  };
  // `input` may also be another output of a list.
  const auto check = [&](const Operand& output, const Operand& input) -> Status {
    if (input.slot == output.slot) return {};
    const kernels::TensorRef out = RefOf(output);
    const kernels::TensorRef in = RefOf(input);
    const bool may = may_be(output, input);
    if (may && (SameView(out, in) || HalfOf(out, in))) return {};
    if (OverlapOf(out, in) != Overlap::kSome) return {};
    return InvalidOperand(output,
                          fmt::format("[{}, +{} bytes) overlaps {} [{}, +{} bytes){}", fmt::ptr(out.data),
                                      ExtentBytes(out), NameOf(input), fmt::ptr(in.data), ExtentBytes(in),
                                      may ? " without being the same view of the same memory" : ""),
                          "let the output have memory of its own");
  };
  const auto both_listed = [](const Operand& a, const Operand& b) { return a.element >= 0 && b.element >= 0; };
  constexpr size_t kFewPairs = 256;
  const bool has_list = outputs.size() > 1 && outputs[0].element >= 0;
  if (outputs.size() * (inputs.size() + (has_list ? outputs.size() : 0)) <= kFewPairs) [[likely]] {
    for (const Operand& output : outputs) {
      if (!has_memory(output) || output.is_left_as_is) continue;
      const Extent out = extent_of(output, true);
      for (const Operand& input : inputs) {
        if (!has_memory(input)) continue;
        const Extent in = extent_of(input, false);
        if (out.begin < in.end && in.begin < out.end) REPRISE_RETURN_IF_ERROR(check(output, input));
      }
      if (!has_list) continue;
      for (const Operand* other = &output + 1; other != outputs.end(); ++other) {
        if (!has_memory(*other) || !both_listed(output, *other)) continue;
        const Extent next = extent_of(*other, true);
        if (out.begin < next.end && next.begin < out.end) REPRISE_RETURN_IF_ERROR(check(*other, output));
      }
    }
    return {};
  }
  // Long lists: in the order of their addresses, against those that begin before the end.
  std::vector<Extent> extents;
  extents.reserve(outputs.size() + inputs.size());
  for (const Operand& output : outputs) {
    if (has_memory(output) && !output.is_left_as_is) extents.push_back(extent_of(output, true));
  }
  for (const Operand& input : inputs) {
    if (has_memory(input)) extents.push_back(extent_of(input, false));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (auto first = extents.begin(); first != extents.end(); ++first) {
    for (auto second = first + 1; second != extents.end() && second->begin < first->end; ++second) {
      if (!first->is_output && !second->is_output) continue;
      if (first->is_output && second->is_output && !both_listed(*first->operand, *second->operand)) continue;
      const Extent& out = first->is_output ? *first : *second;
      const Extent& in = first->is_output ? *second : *first;
      REPRISE_RETURN_IF_ERROR(check(*out.operand, *in.operand));
    }
  }
  return {};
}

Status OpCall::CheckOutputsHold() const {
  for (const Operand& output : outputs) {
    if (output.apart || kernels::CanCast(compute, output.dtype)) continue;
    return InvalidOperand(output,
                          fmt::format("has {}, which cannot hold the result type {} of {}", kernels::Name(output.dtype),
                                      kernels::Name(compute), InputTypes()),
                          "use an output of a type that the result converts to, or cast an input");
  }
  return {};
}

// Another view of the same memory in the place of an operand, wherever it stands.
void OpCall::SeeAs(const Operand& operand, const Tensor* view) {
  const int32_t slot = operand.slot;
  for (Operand& input : inputs) {
    if (input.slot == slot && input.tensor != nullptr) input.tensor = view;
  }
  for (Operand& output : outputs) {
    if (output.slot == slot) output.tensor = view;
  }
}

bool OpCall::Reshape(const Operand& operand, std::span<const int64_t> expected, bool keeps_sizes) {
  if (operand.tensor == nullptr || expected.size() > kernels::kMaxRank) return false;
  const Tensor& given = *operand.tensor;
  const auto is_long = [](int64_t size) { return size != 1; };
  if (keeps_sizes && !std::ranges::equal(expected | std::views::filter(is_long),
                                         std::span<const int64_t>(given.sizes) | std::views::filter(is_long))) {
    return false;
  }
  auto view = std::make_unique<Tensor>(given);
  view->sizes.assign(expected.data(), expected.size());
  if (!FindStrides(given, expected, view->strides)) return false;
  SeeAs(operand, views_.emplace_back(std::move(view)).get());
  return true;
}

Status OpCall::WrongShape(const Operand& operand, std::span<const int64_t> expected, std::string what) const {
  std::string text = fmt::format("has shape {}, expected {} {}", ShapeText(operand.sizes()), what, ShapeText(expected));
  if (op.params[operand.param].role == Role::kInput) {
    return InvalidOperand(operand, text, "pass it in the expected shape; ones in it may be more or fewer");
  }
  return InvalidOperand(operand, fmt::format("{} of {}", text, InputShapes()),
                        "create the output with the expected shape; ones in it may be more or fewer");
}

StatusOr<int> OpCall::WrapDim(std::string_view name, int64_t dim, int rank) const {
  const int64_t limit = rank == 0 ? 1 : rank;
  if (dim >= -limit && dim < limit) return static_cast<int>(dim < 0 ? dim + limit : dim);
  return Invalid(
      fmt::format("{} is {}, expected a value from {} to {} for {}", name, dim, -limit, limit - 1, InputShapes()));
}

// ---- Attributes and words ----

int OpCall::FindParam(std::string_view name) const {
  int index = 0;
  for (const Param& param : op.params) {
    if (param.name == name) return index;
    ++index;
  }
  return -1;
}

const kernels::Scalar* OpCall::Scalar(std::string_view name) const {
  return static_cast<const kernels::Scalar*>(objects_[static_cast<size_t>(FindParam(name))]);
}

const Operand* OpCall::Find(std::string_view name) const {
  const int param = FindParam(name);
  for (const Operand& operand : inputs) {
    if (operand.param == param) return &operand;
  }
  for (const Operand& operand : outputs) {
    if (operand.param == param) return &operand;
  }
  return nullptr;
}

std::span<const Operand> OpCall::List(std::string_view name) const {
  const Operand* first = Find(name);
  if (first == nullptr) return {};
  const bool is_input = first >= inputs.begin() && first < inputs.end();
  const Operand* end = is_input ? inputs.end() : outputs.end();
  const Operand* last = first;
  while (last != end && last->param == first->param) ++last;
  return {first, last};
}

std::string_view OpCall::Text(std::string_view name) const {
  const char* text = ArgumentOf(name).text;
  return text != nullptr ? text : std::string_view();
}

std::vector<bool> OpCall::Bools(std::string_view name) const {
  const auto* values = static_cast<const std::vector<bool>*>(objects_[static_cast<size_t>(FindParam(name))]);
  return values != nullptr ? *values : std::vector<bool>();
}

std::span<const int64_t> OpCall::Ints(std::string_view name) const {
  const auto* values = static_cast<const std::vector<int64_t>*>(objects_[static_cast<size_t>(FindParam(name))]);
  return values != nullptr ? std::span<const int64_t>(*values) : std::span<const int64_t>();
}

StatusOr<std::vector<kernels::Scalar>> OpCall::Scalars(std::string_view name) const {
  const void* object = objects_[static_cast<size_t>(FindParam(name))];
  std::vector<kernels::Scalar> numbers;
  if (object == nullptr) return numbers;
  if (ArgumentOf(name).is_object) return *static_cast<const std::vector<kernels::Scalar>*>(object);
  for (const void* handle : static_cast<const ScalarListObject*>(object)->scalars) {
    auto scalar = FindScalar(handle);
    if (!scalar.ok()) {
      return Invalid(fmt::format("{}[{}]: {}", name, numbers.size(), std::move(scalar).status().detail().what));
    }
    numbers.push_back(scalar.value()->value);
  }
  return numbers;
}

std::string OpCall::NameOf(const Operand& operand) const {
  const std::string_view name = op.params[operand.param].name;
  return operand.element < 0 ? std::string(name) : fmt::format("{}[{}]", name, operand.element);
}

std::string OpCall::InputShapes() const {
  return Join(inputs, [&](const Operand& operand) {
    return operand.tensor != nullptr ? fmt::format("{} {}", NameOf(operand), ShapeText(operand.sizes()))
                                     : fmt::format("scalar {}", NameOf(operand));
  });
}

std::string OpCall::InputTypes() const {
  return Join(inputs, [&](const Operand& operand) {
    return fmt::format("{}{} {}", operand.tensor != nullptr ? "" : "scalar ", NameOf(operand),
                       kernels::Name(operand.dtype));
  });
}

Status OpCall::Invalid(std::string text, std::string hint) const {
  if (hint.empty())
    hint = fmt::format("see {}GetWorkspaceSize in its header: shapes, types and values it takes", op.name);
  return Error(kOperatorArgumentInvalid, fmt::format("{}: {}", op.name, text)).Hint(std::move(hint));
}

Status OpCall::InvalidOperand(const Operand& operand, std::string_view text, std::string hint) const {
  return Invalid(fmt::format("{} {}", NameOf(operand), text), std::move(hint));
}

// ---- Launches ----

Launch& OpCall::AddLaunch(Launch::Kernel kernel) {
  executor_.launches.reserve(executor_.launches.size() + 1);  // so that the new one cannot get lost
  auto* launch = new Launch(op, kernel);
  launch->compute = compute;
  executor_.launches.push_back(launch);
  return *launch;
}

kernels::TensorRef OpCall::RefOf(const Operand& operand) const {
  kernels::TensorRef ref;
  ref.dtype = operand.dtype;
  if (operand.tensor == nullptr) return ref;
  const Tensor& tensor = *operand.tensor;
  ref.rank = static_cast<int>(tensor.sizes.size());
  std::copy(tensor.sizes.begin(), tensor.sizes.end(), ref.sizes);
  std::copy(tensor.strides.begin(), tensor.strides.end(), ref.strides);
  const TensorSlot& slot = executor_.slots[static_cast<size_t>(operand.slot)];
  ref.data = reinterpret_cast<void*>(slot.base + slot.offset_bytes);
  return ref;
}

void OpCall::Write(Launch& launch, const Operand& output, const kernels::TensorRef& view) const {
  launch.refs.push_back(view);
  launch.uses.push_back({output.slot, true});
}

void OpCall::Read(Launch& launch, const Operand& input, const kernels::TensorRef& view) const {
  int32_t slot = input.slot;
  if (input.tensor == nullptr) {
    launch.scalars.push_back(*input.scalar);
    slot = -static_cast<int32_t>(launch.scalars.size());
  }
  launch.refs.push_back(view);
  launch.uses.push_back({slot, false});
}

void OpCall::WriteOptional(Launch& launch, const Operand* output) const {
  if (output != nullptr) return Write(launch, *output);
  launch.refs.push_back({});
  launch.uses.push_back({OperandUse::kAbsent, true});
}

void OpCall::ReadOptional(Launch& launch, const Operand* input) const {
  if (input != nullptr) return Read(launch, *input);
  launch.refs.push_back({});
  launch.uses.push_back({OperandUse::kAbsent, false});
}

kernels::TensorRef OpCall::Temporary(kernels::DType dtype, std::span<const int64_t> sizes) {
  const kernels::TensorRef ref = kernels::MakeContiguous(reinterpret_cast<void*>(executor_.workspace_bytes), dtype,
                                                         static_cast<int>(sizes.size()), sizes.data());
  const auto bytes = static_cast<uint64_t>(kernels::ElementCount(ref) * kernels::ItemSize(dtype));
  executor_.workspace_bytes += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return ref;
}

void OpCall::WriteTemporary(Launch& launch, const kernels::TensorRef& temporary) const {
  launch.refs.push_back(temporary);
  launch.uses.push_back({OperandUse::kTemporary, true});
}

void OpCall::ReadTemporary(Launch& launch, const kernels::TensorRef& temporary) const {
  launch.refs.push_back(temporary);
  launch.uses.push_back({OperandUse::kTemporary, false});
}

std::shared_ptr<const FoundShapes> OpCall::FindShape(const Operand& output, std::span<const int64_t> sizes) {
  if (executor_.found_shapes == nullptr) executor_.found_shapes = std::make_shared<FoundShapes>();
  FoundShapes::Output entry{output.slot, kernels::IsContiguous(RefOf(output)), static_cast<int>(sizes.size()), {}};
  std::copy(sizes.begin(), sizes.end(), entry.sizes);
  executor_.found_shapes->outputs.push_back(entry);
  return executor_.found_shapes;
}

void OpCall::AddScratch(Launch& launch, uint64_t bytes) {
  launch.Seal();
  launch.scratch_bytes = (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  if (launch.has_scratch_on_stack()) return;
  launch.scratch_offset = executor_.workspace_bytes;
  executor_.workspace_bytes += launch.scratch_bytes * static_cast<uint64_t>(launch.parts());
}

namespace {

std::function<void(ir::TensorInfo&)> FoundShapeOf(const std::shared_ptr<const FoundShapes>& shapes,
                                                  const FoundShapes::Output& found) {
  return [shapes, &found](ir::TensorInfo& tensor) {
    tensor.sizes.assign(found.sizes, found.sizes + found.rank);
    tensor.strides.resize(tensor.sizes.size());
    int64_t packed = 1;
    for (size_t d = tensor.sizes.size(); found.is_packed && d-- > 0;) {
      tensor.strides[d] = packed;
      packed *= tensor.sizes[d];
    }
  };
}

}  // namespace

// What the program passed, in the order of the parameters, for dumps.
void OpCall::TellTensors() {
  if (executor_.launches.empty()) return;
  auto told = std::make_shared<ir::OperatorInfo>();
  told->type = op.short_name();
  told->name = op.name;
  for (size_t i = 0; i < executor_.slots.size(); ++i) {
    const TensorSlot& slot = executor_.slots[i];
    const auto is_slot = [&](const Operand& operand) { return operand.slot == static_cast<int32_t>(i); };
    const auto input = std::find_if(inputs.begin(), inputs.end(), is_slot);
    const auto output = std::find_if(outputs.begin(), outputs.end(), is_slot);
    if (input == inputs.end() && output == outputs.end()) continue;
    const Operand& operand = input != inputs.end() ? *input : *output;
    if (operand.tensor == nullptr) continue;
    ir::TensorInfo& tensor = told->tensors.emplace_back();
    tensor.name = executor_.NameOf(slot);
    tensor.data = reinterpret_cast<const void*>(slot.base + slot.offset_bytes);
    tensor.dtype = static_cast<int32_t>(operand.dtype);
    tensor.sizes.assign(operand.tensor->sizes.begin(), operand.tensor->sizes.end());
    tensor.strides.assign(operand.tensor->strides.begin(), operand.tensor->strides.end());
    tensor.is_read = input != inputs.end();
    tensor.is_write = output != outputs.end();
    tensor.slot = static_cast<int32_t>(i);
    if (executor_.found_shapes == nullptr) continue;
    for (const FoundShapes::Output& found : executor_.found_shapes->outputs) {
      if (found.slot == tensor.slot) tensor.find = FoundShapeOf(executor_.found_shapes, found);
    }
  }
  Tell(executor_.launches, std::move(told));
}

void OpCall::Finish() {
  size_t kept = 0;
  for (Launch* launch : executor_.launches) {
    if (launch->units == 0) {
      launch->Release();
      continue;
    }
    launch->Seal();
    executor_.launches[kept++] = launch;
  }
  executor_.launches.truncate(kept);
  if (runtime::Dump::wants_tensors()) [[unlikely]]
    TellTensors();
  if (executor_.launches.empty()) executor_.workspace_bytes = 0;
  if (executor_.workspace_bytes == 0) return;
  executor_.workspace_bytes += kScratchAlignment;
  if (executor_.workspace_bytes <= Executor::kMostOwnBytes) std::swap(executor_.workspace_bytes, executor_.own_bytes);
}

}  // namespace reprise::ops
