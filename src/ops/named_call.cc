// SPDX-License-Identifier: Apache-2.0
#include "ops/named_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/memory.h"
#include "runtime/descriptors.h"

namespace reprise::ops {

using kernels::DType;

std::optional<uint64_t> BytesOf(std::span<const int64_t> dims, uint64_t item_bytes) {
  uint64_t bytes = item_bytes;
  bool is_empty = false;
  for (const int64_t dim : dims) {
    is_empty |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return std::nullopt;
  }
  if (bytes > INT64_MAX) return std::nullopt;
  return is_empty ? 0 : bytes;
}

Status CheckDeviceMemory(std::string_view op, std::string_view name, const void* data, uint64_t bytes,
                         std::string culprit, std::string hint) {
  if (bytes == 0 || !device::ChecksPointers()) return {};
  const device::MemoryRegistry& registry = device::MemoryRegistry::Get();
  auto range = registry.CheckRange(data, bytes, std::string(name).c_str());
  if (!range.ok()) {
    Status cause = std::move(range).status();
    return Error(cause.code(), fmt::format("{}: {}", op, cause.detail().what))
        .Culprit(std::move(culprit))
        .Hint(cause.detail().hint);
  }
  if (range.value().kind != device::MemoryKind::kPageable) return {};
  return Error(kInvalidValue,
               fmt::format("{}: {} is not device memory: {} {}", op, name, fmt::ptr(data), registry.Explain(data)))
      .Culprit(std::move(culprit))
      .Hint(std::move(hint));
}

// ---- Views and tensors ----

StridedView StridedView::Of(DType dtype, std::span<const int64_t> sizes, void* data) {
  StridedView view;
  view.dtype = dtype;
  view.sizes.assign(sizes.data(), sizes.size());
  view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    view.strides[d] = stride;
    // Where another dim is 0 the product may overflow; such strides are never used.
    (void)__builtin_mul_overflow(stride, sizes[d], &stride);
  }
  view.data = data;
  return view;
}

StridedView StridedView::Transposed() const {
  StridedView view = *this;
  const size_t last = view.sizes.size() - 1;
  std::swap(view.sizes[last], view.sizes[last - 1]);
  std::swap(view.strides[last], view.strides[last - 1]);
  return view;
}

ir::TensorInfo TensorInfoOf(std::string name, const StridedView& view, bool is_read, bool is_write) {
  ir::TensorInfo tensor;
  tensor.name = std::move(name);
  tensor.data = view.data;
  tensor.dtype = static_cast<int32_t>(view.dtype);
  tensor.sizes.assign(view.sizes.begin(), view.sizes.end());
  tensor.strides.assign(view.strides.begin(), view.strides.end());
  tensor.is_read = is_read;
  tensor.is_write = is_write;
  return tensor;
}

bool NamedTensor::is_known() const {
  return std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
}

// ---- The row as data ----

NamedCall::NamedCall(const NamedOp& row, const opdef::GraphOp& graph_op, Arena* arena)
    : op(row), context(graph_op), arena_(arena), memory_(arena == nullptr ? new TaskMemory : nullptr) {
  for (const opdef::Operand& operand : graph_op.inputs) input_slots_.push_back({operand.name, &operand});
  for (const opdef::Operand& operand : graph_op.outputs) output_slots_.push_back({operand.name, &operand});
}

NamedCall::~NamedCall() {
  for (const Launch* launch : launches_) launch->Release();
  if (memory_ != nullptr) memory_->Release();
}

// ---- Binding ----

namespace {

std::string NameOf(const opdef::Operand& operand, size_t index) {
  return operand.is_list() ? fmt::format("{}[{}]", operand.name, index) : std::string(operand.name);
}

std::string OutputsText(const opdef::GraphOp& op) {
  std::string text;
  for (const opdef::Operand& output : op.outputs) {
    text.append(text.empty() ? "" : ", ").append(output.name).append(output.is_list() ? "[]" : "");
  }
  return text;
}

}  // namespace

Status NamedCall::Bind() {
  REPRISE_RETURN_IF_ERROR(opdef::CheckAttributes(context.op, attributes, "set it with an aclopSetAttr function"));
  context.attributes = attributes;
  REPRISE_RETURN_IF_ERROR(NameInputs());
  REPRISE_RETURN_IF_ERROR(NameOutputs());
  for (const NamedTensor& input : inputs) {
    if (!input.is_absent) REPRISE_RETURN_IF_ERROR(CheckFormat(input, kOpInputNotMatch));
  }
  for (const NamedTensor& output : outputs) REPRISE_RETURN_IF_ERROR(CheckFormat(output, kOpOutputNotMatch));
  return CheckTypes();
}

// Without counts, inputs belong to the slots by their place. An optional one is left out by a descriptor of type
// ACL_DT_UNDEFINED, or, behind the last that is there, by no descriptor at all. Lists have one length.
Status NamedCall::NameInputs() {
  size_t singles = 0;
  size_t least = 0;
  size_t lists = 0;
  for (const Slot& slot : input_slots_) {
    lists += slot.operand->is_list() ? 1 : 0;
    singles += slot.operand->is_list() ? 0 : 1;
    if (!slot.operand->is_optional()) ++least;
  }
  const size_t listed = inputs.size() > singles ? inputs.size() - singles : 0;
  const bool fits = lists == 0 ? listed == 0 : listed % lists == 0;
  if (input_counts.empty() && (inputs.size() < least || !fits)) {
    return Error(kOpInputNotMatch, fmt::format("{}: has {} inputs, expected {}{} ({})", op.type, inputs.size(), least,
                                               lists > 1         ? " or more, lists of one length"
                                               : lists == 1      ? " or more"
                                               : least < singles ? fmt::format(" to {}", singles)
                                                                 : "",
                                               opdef::InputsText(context.op)))
        .Culprit("parameter numInputs")
        .Hint("pass the inputs in this order; leave an optional one out with a descriptor of type ACL_DT_UNDEFINED");
  }
  size_t next = 0;
  for (size_t s = 0; s < input_slots_.size(); ++s) {
    Slot& slot = input_slots_[s];
    const bool is_list = slot.operand->is_list();
    slot.first = next;
    slot.count = !input_counts.empty() ? input_counts[s] : is_list ? listed / lists : next < inputs.size() ? 1 : 0;
    for (size_t i = 0; i < slot.count; ++i) {
      NamedTensor& input = inputs[next++];
      input.name = NameOf(*slot.operand, i);
      input.is_absent = input.dtype_number == -1;
      if (!input.is_absent || slot.operand->is_optional() || is_list) continue;
      return WrongInput(input, "has the undefined type, but is not optional", "create the descriptor with a type");
    }
  }
  return {};
}

// Without counts, outputs belong to the slots by their place, too. Nobody wants those behind the last that is there,
// and those with a descriptor of type ACL_DT_UNDEFINED and no memory beside others.
Status NamedCall::NameOutputs() {
  size_t lists = 0;
  for (const Slot& slot : output_slots_) lists += slot.operand->is_list() ? 1 : 0;
  const size_t most = output_slots_.size();
  const bool fits = lists == 0 ? outputs.size() <= most : outputs.size() >= most - lists;
  if (output_counts.empty() && (!fits || (outputs.empty() && most != 0))) {
    return Error(kOpOutputNotMatch, fmt::format("{}: has {} outputs, expected {}{} ({})", op.type, outputs.size(),
                                                most > 1 && lists == 0 ? "1 to " : "", most, OutputsText(context.op)))
        .Culprit("parameter numOutputs")
        .Hint(most == 1 ? "pass one descriptor and one buffer for the output"
                        : "pass one descriptor and one buffer for each output");
  }
  if (output_counts.empty() && lists == 0) {
    const size_t given = outputs.size();
    outputs.resize(most);
    for (size_t i = given; i < most; ++i) {
      outputs[i].is_absent = true;
      outputs[i].parameter = "outputs";
      outputs[i].index = static_cast<int>(i);
    }
  }
  const size_t listed = lists == 0 ? 0 : (outputs.size() - (most - lists)) / lists;
  size_t next = 0;
  for (size_t s = 0; s < most; ++s) {
    Slot& slot = output_slots_[s];
    slot.first = next;
    slot.count = !output_counts.empty() ? output_counts[s] : slot.operand->is_list() ? listed : 1;
    for (size_t i = 0; i < slot.count; ++i) {
      NamedTensor& output = outputs[next++];
      output.name = NameOf(*slot.operand, i);
      if (outputs.size() == 1 || output.dtype_number != -1) continue;
      output.is_absent |= output.has_buffer && output.data == nullptr && output.buffer_bytes == 0;
    }
  }
  return {};
}

Status NamedCall::CheckFormat(const NamedTensor& tensor, int code) const {
  if (tensor.format == -1 || IsBaseFormat(tensor.format)) return {};
  // Matrices may be in the fractal format, which is plain memory here.
  const bool takes_fractals = op.type == "Identity" || op.type.find("MatMul") != std::string_view::npos;
  if (takes_fractals && IsFractalFormat(tensor.format)) return {};
  return Error(code, fmt::format("{}: {} has the storage format {}, which this device does not know", op.type,
                                 tensor.name, FormatText(tensor.format)))
      .Culprit(fmt::format("parameter {}[{}]", tensor.parameter, tensor.index))
      .Hint("keep tensors in format ND, NCHW, NHWC, NCDHW, NDHWC or NCL");
}

// What the steps compute; Infer() holds the types against the row.
Status NamedCall::CheckTypes() const {
  const opdef::Operand* first = nullptr;  // the first that is no value
  DTypeSet computed = op.types.empty() ? kAllTypes : op.types;
  if (op.types.empty() && !op.function.empty()) {  // what its first tensor takes
    const Routine routine = Routine::Of(op.function);
    computed = routine.params[0].types.empty() ? routine.types : routine.params[0].types;
  }
  for (const Slot& slot : input_slots_) {
    const opdef::Operand& operand = *slot.operand;
    if (first == nullptr && !operand.is_value()) first = &operand;
    const bool is_like_first = first != nullptr && operand.variable == first->variable && operand.bits == first->bits;
    DTypeSet types = operand.types().known();
    if (!operand.is_value() && is_like_first) types = types.And(computed);
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      if (input.rank() > kernels::kMaxRank) {
        return WrongInput(input, fmt::format("has {} dims, at most {} are possible", input.rank(), kernels::kMaxRank),
                          "join dims that lie side by side");
      }
      if (input.is_small() ? op.moves_bits && operand.types().Has(input.dtype_number) : types.Has(input.dtype())) {
        continue;
      }
      std::string known;
      for (DType type : kernels::kAllDTypes) {
        if (types.Has(type)) known.append(known.empty() ? "" : ", ").append(kernels::Name(type));
      }
      return WrongInput(input, fmt::format("is {}, which the operator does not take", DTypeText(input.dtype_number)),
                        "use one of " + known);
    }
  }
  for (const NamedTensor& output : outputs) {
    if (output.dtype_number == -1 || IsWritten(output)) continue;
    return WrongOutput(output, fmt::format("is {}, which no operator writes", DTypeText(output.dtype_number)),
                       "create the descriptor with the type of the result");
  }
  return {};
}

// ---- Inference ----

// Whether all shapes and constants are there that the shape of a result needs.
Status NamedCall::CheckKnown(bool complete, bool* is_known) const {
  *is_known = false;
  for (const Slot& slot : input_slots_) {
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      if (!input.is_known()) {
        if (!complete) return {};
        return WrongInput(input, fmt::format("has the shape {}, which is not known", ShapeText(input.dims)),
                          "describe inputs with the sizes they have");
      }
      if (!BytesOf(input.dims, 16).has_value()) {
        return WrongInput(input, fmt::format("has the shape {}, more elements than memory has", ShapeText(input.dims)),
                          "create the descriptor with the shape of the data");
      }
      if (!slot.operand->is_value() || input.has_constant) continue;
      if (!complete) return {};
      return Constant(input).status();
    }
  }
  *is_known = true;
  return {};
}

// The operands as the rules of inference see them.
Status NamedCall::Describe() {
  for (size_t s = 0; s < input_slots_.size(); ++s) {
    const Slot& slot = input_slots_[s];
    context.inputs[s].clear();
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      opdef::InferTensor& tensor = context.inputs[s].emplace_back();
      tensor.name = input.name;
      tensor.place = fmt::format("parameter {}[{}]", input.parameter, input.index);
      tensor.dtype = input.dtype_number;
      tensor.shape = opdef::Shape::Of(input.dims);
      if (!slot.operand->is_value() || !input.has_constant || !input.is_known()) continue;
      if (kernels::CategoryOf(input.dtype()) < kernels::Category::kFloating) {
        REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> value, Constant(input));
        tensor.value.emplace(value.begin(), value.end());
      } else {
        REPRISE_ASSIGN_OR_RETURN(const kernels::Scalar value, ConstantScalar(slot.name));
        tensor.reals = {value.As<double>()};
      }
    }
  }
  for (size_t s = 0; s < output_slots_.size(); ++s) {
    context.outputs[s].assign(output_slots_[s].count, {});
    for (size_t i = 0; i < output_slots_[s].count; ++i) {
      context.outputs[s][i].wanted = outputs[output_slots_[s].first + i].dtype_number;
    }
  }
  return {};
}

Status NamedCall::Infer(bool complete, bool* inferred) {
  *inferred = false;
  REPRISE_RETURN_IF_ERROR(Describe());
  REPRISE_RETURN_IF_ERROR(opdef::Infer(context));
  bool is_known = false;
  REPRISE_RETURN_IF_ERROR(CheckKnown(complete, &is_known));
  if (!is_known) return {};
  REPRISE_RETURN_IF_ERROR(CheckResults());
  *inferred = true;
  return {};
}

Status NamedCall::CheckResults() {
  for (size_t s = 0; s < output_slots_.size(); ++s) {
    const Slot& slot = output_slots_[s];
    if (context.outputs[s].size() != slot.count) {
      return Error(kOpOutputNotMatch, fmt::format("{}: there are {} tensors for {}, the result has {}", op.type,
                                                  slot.count, slot.name, context.outputs[s].size()))
          .Culprit("parameter numOutputs")
          .Hint("pass as many outputs as the result has");
    }
    for (size_t i = 0; i < slot.count; ++i) {
      REPRISE_RETURN_IF_ERROR(CheckResult(*slot.operand, context.outputs[s][i], outputs[slot.first + i]));
    }
  }
  return {};
}

// What was inferred against the descriptor of an output, which gets the shape, and the type where it has none.
Status NamedCall::CheckResult(const opdef::Operand& operand, const opdef::InferResult& result, NamedTensor& out) const {
  out.is_bound = !result.shape.is_static() && result.bound.has_value();
  const opdef::Shape& known = out.is_bound ? *result.bound : result.shape;
  std::vector<int64_t> shape = known.numbers();
  const bool is_too_large = !known.is_static() || shape.size() > kernels::kMaxRank;
  if (is_too_large || !BytesOf(shape, 16).has_value()) {
    return WrongOutput(out, fmt::format("gets the shape {}, which is too large", known.text()),
                       "pass inputs that ask for a smaller result");
  }
  if (out.dtype_number == -1) {
    if (result.dtype == -1) {
      return WrongOutput(out, "has the undefined type", "create the descriptor with the type of the result");
    }
    out.dtype_number = result.dtype;
  }
  if (!IsWritten(out)) {  // a type that graphs have and kernels do not compute
    const std::string text = fmt::format("is {}, which is no type that can be written", result.dtype);
    if (operand.source != opdef::TypeSource::kAttribute)
      return WrongOutput(out, text, "create the descriptor with another type");
    return context.WrongAttribute(context.op.attributes[static_cast<size_t>(operand.attribute)].name, text,
                                  "set it to the aclDataType of the output");
  }
  // Frameworks fill one number with the dims [1], which no constant without elements could say.
  if (op.type == "Fill" && out.dims.empty() && shape.size() == 1 && shape[0] == 1) shape.clear();
  const bool is_open = out.is_absent || (out.dims.size() == 1 && out.dims[0] == runtime::TensorDesc::kUnknownRank);
  bool fits = is_open || out.dims.size() == shape.size();
  for (size_t d = 0; fits && !is_open && d < shape.size(); ++d) {
    fits = out.dims[d] == shape[d] || out.dims[d] == runtime::TensorDesc::kUnknownDim;
  }
  if (!fits) {
    return WrongOutput(out,
                       fmt::format("has the shape {}, but the result has {}", ShapeText(out.dims), ShapeText(shape)),
                       "create the descriptor with the shape of the result");
  }
  out.dims = std::move(shape);
  return {};
}

// ---- Buffers ----

Status NamedCall::CheckBuffer(NamedTensor& tensor, bool is_input) {
  const uint64_t bytes = *BytesOf(tensor.dims, static_cast<uint64_t>(kernels::ItemSize(tensor.dtype())));
  const auto culprit = [&] { return fmt::format("parameter {}[{}]", tensor.parameter, tensor.index); };
  if (!is_input && tensor.is_absent) {
    tensor.data = Allocate(bytes);
    return {};
  }
  if (is_input && tensor.has_constant && !(trusts_memory && tensor.data != nullptr)) {
    if (tensor.constant.size() < bytes) {
      return Error(kInvalidArgument,
                   fmt::format("{}: the constant {} has {} bytes, {} of {} need {}", op.type, tensor.name,
                               tensor.constant.size(), ShapeText(tensor.dims), DTypeText(tensor.dtype_number), bytes))
          .Culprit(culprit())
          .Hint("pass all elements to aclSetTensorConst, or in the host buffer");
    }
    tensor.data = Keep(std::span<const char>(tensor.constant).first(bytes));
    return {};
  }
  if (trusts_memory) return {};
  if (tensor.buffer_bytes < bytes || (tensor.data == nullptr && bytes != 0)) {
    const std::string have = tensor.data == nullptr
                                 ? std::string("is null")
                                 : fmt::format("has {} bytes at {}", tensor.buffer_bytes, fmt::ptr(tensor.data));
    return Error(kInvalidArgument, fmt::format("{}: the buffer of {} {}, {} of {} need {} bytes", op.type, tensor.name,
                                               have, ShapeText(tensor.dims), DTypeText(tensor.dtype_number), bytes))
        .Culprit(culprit())
        .Hint("pass a buffer that holds all elements");
  }
  return CheckDeviceMemory(op.type, tensor.name, tensor.data, bytes, culprit(),
                           is_input ? "allocate it with aclrtMalloc, or give the value with aclSetTensorConst or in "
                                      "host memory with aclSetTensorPlaceMent"
                                    : "allocate it with aclrtMalloc");
}

Status NamedCall::CheckBuffers() {
  for (const Slot& slot : input_slots_) {
    if (slot.operand->is_value()) continue;  // read by Infer
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      if (!inputs[i].is_absent) REPRISE_RETURN_IF_ERROR(CheckBuffer(inputs[i], true));
    }
  }
  for (const Slot& slot : output_slots_) {
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const bool is_hidden = slot.operand->is_unnamed() && outputs[i].is_absent;
      if (is_hidden) {  // written in place although nobody asks for it
        outputs[i].data = Input(slot.name).data;
      } else {
        REPRISE_RETURN_IF_ERROR(CheckBuffer(outputs[i], false));
      }
    }
  }
  return {};
}

// ---- For the rows ----

const NamedCall::Slot& NamedCall::SlotOf(const std::vector<Slot>& slots, std::string_view name) {
  return *std::find_if(slots.begin(), slots.end(), [&](const Slot& known) { return known.name == name; });
}

bool NamedCall::Has(std::string_view name) const {
  const auto slot =
      std::find_if(input_slots_.begin(), input_slots_.end(), [&](const Slot& known) { return known.name == name; });
  return slot != input_slots_.end() && slot->count != 0 && !inputs[slot->first].is_absent;
}

std::span<const NamedTensor> NamedCall::List(std::string_view name) const {
  const Slot& slot = SlotOf(input_slots_, name);
  return std::span<const NamedTensor>(inputs).subspan(slot.first, slot.count);
}

std::span<const NamedTensor> NamedCall::OutputList(std::string_view name) const {
  const Slot& slot = SlotOf(output_slots_, name);
  return std::span<const NamedTensor>(outputs).subspan(slot.first, slot.count);
}

namespace {

constexpr const char* kTellValue =
    "set it with aclSetTensorConst, or pass a host buffer and mark it with aclSetTensorPlaceMent";

}  // namespace

StatusOr<std::vector<int64_t>> NamedCall::Constant(const NamedTensor& input) const {
  if (!input.has_constant) return WrongInput(input, "has no value that is known at the call", kTellValue);
  const auto item = static_cast<size_t>(kernels::ItemSize(input.dtype()));
  const std::optional<uint64_t> bytes = BytesOf(input.dims, item);
  if (!bytes.has_value() || input.constant.size() < *bytes) {
    return WrongInput(
        input, fmt::format("has the shape {} and a constant of {} bytes", ShapeText(input.dims), input.constant.size()),
        "pass a list of numbers with all its elements");
  }
  std::vector<int64_t> values(*bytes / item);
  for (size_t i = 0; i < values.size(); ++i) {
    const kernels::Scalar value(input.dtype(), input.constant.data() + i * item);
    values[i] = value.As<int64_t>();
  }
  return values;
}

StatusOr<kernels::Scalar> NamedCall::ConstantScalar(std::string_view name) const {
  const NamedTensor& input = Input(name);
  if (!input.has_constant) return WrongInput(input, "has no value that is known at the call", kTellValue);
  const std::optional<uint64_t> bytes = BytesOf(input.dims, static_cast<uint64_t>(kernels::ItemSize(input.dtype())));
  if (!bytes.has_value() || *bytes != static_cast<uint64_t>(kernels::ItemSize(input.dtype())) ||
      input.constant.size() < *bytes) {
    return WrongInput(
        input, fmt::format("has the shape {} and a constant of {} bytes", ShapeText(input.dims), input.constant.size()),
        "pass one number");
  }
  return kernels::Scalar(input.dtype(), input.constant.data());
}

Status NamedCall::WrongInput(const NamedTensor& tensor, std::string text, std::string hint) const {
  return Error(kOpInputNotMatch, fmt::format("{}: {} {}", op.type, tensor.name, text))
      .Culprit(fmt::format("parameter {}[{}]", tensor.parameter, tensor.index))
      .Hint(std::move(hint));
}

Status NamedCall::WrongOutput(const NamedTensor& tensor, std::string text, std::string hint) const {
  return Error(kOpOutputNotMatch, fmt::format("{}: {} {}", op.type, tensor.name, text))
      .Culprit(fmt::format("parameter {}[{}]", tensor.parameter, tensor.index))
      .Hint(std::move(hint));
}

}  // namespace reprise::ops
