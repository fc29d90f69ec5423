// SPDX-License-Identifier: Apache-2.0
#include "ops/named_call.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/env.h"
#include "device/memory.h"
#include "ir/task_info.h"
#include "ops/op_call.h"
#include "runtime/descriptors.h"
#include "runtime/dump.h"
#include "runtime/stream.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// Bytes, or nothing when they do not fit. Sizes beside a 0 have to fit, too, so that products of them never overflow.
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

// The schema of a routine under the name of a type; tasks point to it, so it stays for ever. Their number is bounded by
// the table.
const OpSchema& SchemaOf(const NamedOp& op, const Routine& routine) {
  using Key = std::tuple<const NamedOp*, const Param*, const Computation*>;
  static auto* const mutex = new std::mutex;
  static auto* const schemas = new std::map<Key, OpSchema>;
  std::lock_guard lock(*mutex);
  const Key key{&op, routine.params.data(), &routine.computation};
  return schemas->try_emplace(key, OpSchema{OpId::kCount, op.type, routine.params, kAllTypes, routine.computation})
      .first->second;
}

// The argument objects of a step, which live while it is planned.
class StepObjects {
 public:
  StepObjects() = default;
  StepObjects(const StepObjects&) = delete;
  StepObjects& operator=(const StepObjects&) = delete;
  ~StepObjects() {
    for (const void* list : lists_) (void)DestroyTensorList(list);
    for (const void* tensor : tensors_) (void)DestroyTensor(tensor);
    for (const void* scalar : scalars_) (void)DestroyScalar(scalar);
    for (const void* array : arrays_) (void)DestroyArray<int64_t>(array);
  }

  StatusOr<const void*> Tensor(const StridedView& view, bool is_owned = true) {
    if (is_owned) tensors_.reserve(tensors_.size() + 1);
    const ops::TensorSpec desc{.view_dims = view.sizes.data(),
                               .view_rank = view.sizes.size(),
                               .dtype = static_cast<int32_t>(view.dtype),
                               .strides = view.strides.data(),
                               .storage_dims = view.sizes.data(),
                               .storage_rank = view.sizes.size(),
                               .data = view.data};
    REPRISE_ASSIGN_OR_RETURN(const void* handle, CreateTensor(desc));
    if (is_owned) tensors_.push_back(handle);
    return handle;
  }
  StatusOr<const void*> List(const std::vector<StridedView>& views) {
    std::vector<const void*> handles;
    handles.reserve(views.size());
    lists_.reserve(lists_.size() + 1);
    for (const StridedView& view : views) {
      // A list owns its tensors, but it does not exist before all of them do.
      REPRISE_ASSIGN_OR_RETURN(const void* handle, Tensor(view));
      handles.push_back(handle);
    }
    REPRISE_ASSIGN_OR_RETURN(const void* list, CreateTensorList(handles.data(), handles.size()));
    lists_.push_back(list);
    tensors_.resize(tensors_.size() - handles.size());
    return list;
  }
  StatusOr<const void*> Scalar(const kernels::Scalar& value) {
    scalars_.reserve(scalars_.size() + 1);
    REPRISE_ASSIGN_OR_RETURN(const void* handle, CreateScalar(value.bytes, static_cast<int32_t>(value.dtype)));
    scalars_.push_back(handle);
    return handle;
  }
  StatusOr<const void*> Ints(const std::vector<int64_t>& values) {
    arrays_.reserve(arrays_.size() + 1);
    REPRISE_ASSIGN_OR_RETURN(const void* handle, CreateIntArray(values.data(), values.size()));
    arrays_.push_back(handle);
    return handle;
  }

 private:
  std::vector<const void*> tensors_, lists_, scalars_, arrays_;
};

struct ArgumentMaker {
  StepObjects& objects;

  static StatusOr<Argument> Wrap(ParamKind kind, StatusOr<const void*> handle) {
    if (!handle.ok()) return std::move(handle).status();
    return Argument::Handle(kind, handle.value());
  }
  StatusOr<Argument> operator()(const StridedView& view) const {
    return Wrap(ParamKind::kTensor, objects.Tensor(view));
  }
  StatusOr<Argument> operator()(const std::vector<StridedView>& views) const {
    return Wrap(ParamKind::kTensorList, objects.List(views));
  }
  StatusOr<Argument> operator()(int64_t value) const { return Argument::Integer(ParamKind::kInt, value); }
  StatusOr<Argument> operator()(bool value) const { return Argument::Integer(ParamKind::kBool, value); }
  StatusOr<Argument> operator()(double value) const { return Argument::Real(value); }
  StatusOr<Argument> operator()(DType type) const {
    return Argument::Integer(ParamKind::kDType, static_cast<int64_t>(type));
  }
  StatusOr<Argument> operator()(const kernels::Scalar& value) const {
    return Wrap(ParamKind::kScalar, objects.Scalar(value));
  }
  StatusOr<Argument> operator()(const std::vector<int64_t>& values) const {
    return Wrap(ParamKind::kIntArray, objects.Ints(values));
  }
};

// A refusal of the operator machinery with a number of this interface.
Status AsNamed(Status&& status) {
  const Status::Detail& detail = status.detail();
  const int code = detail.code == kOperatorArgumentNull || detail.code == kOperatorArgumentInvalid ? kInvalidArgument
                   : detail.code == kOperatorInternalError                                         ? kOutOfHostMemory
                                                                                                   : kInternalError;
  return Error(code, detail.what, detail.function, detail.file, detail.line).Culprit(detail.culprit).Hint(detail.hint);
}

}  // namespace

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

struct NamedCall::Slot {
  std::string_view name;
  bool is_optional = false;
  bool is_list = false;
  bool is_constant = false;
  size_t first = 0;  // NamedCall::inputs
  size_t count = 0;
};

NamedCall::NamedCall(const NamedOp& row, const opdef::GraphOp& graph_op)
    : op(row), context(graph_op), memory_(new TaskMemory) {
  for (const opdef::Operand& operand : context.op.inputs) {
    slots_.push_back({operand.name, operand.is_optional(), operand.is_list(), operand.is_value()});
  }
}

NamedCall::~NamedCall() {
  for (const Launch* launch : launches_) launch->Release();
  memory_->Release();
}

// ---- Binding ----

Status NamedCall::Bind() {
  REPRISE_RETURN_IF_ERROR(opdef::CheckAttributes(context.op, attributes, "set it with an aclopSetAttr function"));
  context.attributes = attributes;
  const std::string_view output_name = context.op.outputs[0].name;
  REPRISE_RETURN_IF_ERROR(NameInputs());
  if (outputs.size() != 1) {
    return Error(kOpOutputNotMatch,
                 fmt::format("{}: has {} outputs, expected 1 ({})", op.type, outputs.size(), output_name))
        .Culprit("parameter numOutputs")
        .Hint("pass one descriptor and one buffer for the output");
  }
  outputs[0].name = output_name;
  for (const NamedTensor& input : inputs) {
    if (!input.is_absent) REPRISE_RETURN_IF_ERROR(CheckFormat(input, kOpInputNotMatch));
  }
  REPRISE_RETURN_IF_ERROR(CheckFormat(outputs[0], kOpOutputNotMatch));
  return CheckTypes();
}

// Inputs belong to the slots by their place. An optional one is left out by a descriptor of type ACL_DT_UNDEFINED, or,
// behind the last that is there, by no descriptor at all.
Status NamedCall::NameInputs() {
  size_t most = 0;
  size_t least = 0;
  bool has_list = false;
  for (const Slot& slot : slots_) {
    ++most;
    if (!slot.is_optional) ++least;
    has_list |= slot.is_list;
  }
  if (inputs.size() < least || (inputs.size() > most && !has_list)) {
    return Error(kOpInputNotMatch, fmt::format("{}: has {} inputs, expected {}{} ({})", op.type, inputs.size(), least,
                                               has_list       ? " or more"
                                               : least < most ? fmt::format(" to {}", most)
                                                              : "",
                                               opdef::InputsText(context.op)))
        .Culprit("parameter numInputs")
        .Hint("pass the inputs in this order; leave an optional one out with a descriptor of type ACL_DT_UNDEFINED");
  }
  size_t next = 0;
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    slot.first = next;
    slot.count = slot.is_list ? inputs.size() - (slots_.size() - 1) : next < inputs.size() ? 1 : 0;
    for (size_t i = 0; i < slot.count; ++i) {
      NamedTensor& input = inputs[next++];
      input.name = slot.is_list ? fmt::format("{}[{}]", slot.name, i) : std::string(slot.name);
      input.is_absent = input.dtype_number == -1;
      if (!input.is_absent || slot.is_optional) continue;
      return WrongInput(input, "has the undefined type, but is not optional", "create the descriptor with a type");
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

namespace {

// How the types of a call hang together, beyond those that the steps compute.
enum class Types : uint8_t {
  kSame,          // inputs that are no constants, and the output, have one type
  kOutputByRule,  // so have the inputs; the rule of inference checks the output
  kOutputOwn,     // so have the inputs; the output has a type of its own, as that of a comparison
  kFree,          // an attribute says the type of the output
};

Types TypesOf(const opdef::GraphOp& op) {
  switch (op.outputs[0].source) {
    case opdef::TypeSource::kRule: return Types::kOutputByRule;
    case opdef::TypeSource::kAttribute: return Types::kFree;
    default: break;
  }
  const opdef::Operand& output = op.outputs[0];
  return output.variable == 0 && output.bits != 0 ? Types::kOutputOwn : Types::kSame;
}

}  // namespace

Status NamedCall::CheckTypes() const {
  const Types rule = TypesOf(context.op);
  const NamedTensor* first = nullptr;
  for (const Slot& slot : slots_) {
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      if (input.rank() > kernels::kMaxRank) {
        return WrongInput(input, fmt::format("has {} dims, at most {} are possible", input.rank(), kernels::kMaxRank),
                          "join dims that lie side by side");
      }
      if (slot.is_constant) {
        if (input.dtype() == DType::kInt32 || input.dtype() == DType::kInt64) continue;
        return WrongInput(input, fmt::format("is {}", DTypeText(input.dtype_number)), "pass int32 or int64");
      }
      if (!op.types.Has(input.dtype())) {
        std::string known;
        for (DType type : kernels::kAllDTypes) {
          if (op.types.Has(type)) known.append(known.empty() ? "" : ", ").append(kernels::Name(type));
        }
        return WrongInput(input, fmt::format("is {}, which the operator does not take", DTypeText(input.dtype_number)),
                          "use one of " + known);
      }
      if (first == nullptr) first = &input;
      if (rule == Types::kFree || input.dtype_number == first->dtype_number || slot.is_optional) continue;
      return WrongInput(input,
                        fmt::format("is {}, but {} is {}", DTypeText(input.dtype_number), first->name,
                                    DTypeText(first->dtype_number)),
                        "cast one of them: the inputs of this operator have one type");
    }
  }
  if (outputs[0].dtype_number == -1) return {};
  if (outputs[0].dtype() == DType::kUndefined) {
    return WrongOutput(fmt::format("is {}, which no operator writes", DTypeText(outputs[0].dtype_number)),
                       "create the descriptor with the type of the result");
  }
  if (rule == Types::kOutputOwn && !context.op.outputs[0].types().Has(outputs[0].dtype_number)) {
    return WrongOutput(fmt::format("is {}, which the operator does not write", DTypeText(outputs[0].dtype_number)),
                       "create the descriptor with the type of the result");
  }
  if (rule == Types::kSame && first != nullptr && outputs[0].dtype_number != first->dtype_number) {
    return WrongOutput(fmt::format("is {}, but {} is {}", DTypeText(outputs[0].dtype_number), first->name,
                                   DTypeText(first->dtype_number)),
                       "the output of this operator has the type of its inputs");
  }
  return {};
}

// Whether all shapes and constants that inference needs are there.
Status NamedCall::CheckKnown(bool complete, bool* is_known) const {
  *is_known = false;
  for (const Slot& slot : slots_) {
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      if (!input.is_known()) {
        if (!complete) return {};
        return WrongInput(input, fmt::format("has the shape {}, which is not known", ShapeText(input.dims)),
                          "describe inputs with the sizes they have");
      }
      if (slot.is_constant && !input.has_constant && !complete) return {};
      if (!BytesOf(input.dims, 16).has_value()) {
        return WrongInput(input, fmt::format("has the shape {}, more elements than memory has", ShapeText(input.dims)),
                          "create the descriptor with the shape of the data");
      }
    }
  }
  *is_known = true;
  return {};
}

// The inputs as the rules of inference see them.
Status NamedCall::Describe() {
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    context.inputs[s].clear();
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      const NamedTensor& input = inputs[i];
      if (input.is_absent) continue;
      opdef::InferTensor& tensor = context.inputs[s].emplace_back();
      tensor.name = input.name;
      tensor.place = fmt::format("parameter {}[{}]", input.parameter, input.index);
      tensor.dtype = input.dtype_number;
      tensor.shape = opdef::Shape::Of(input.dims);
      if (!slot.is_constant) continue;
      REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> value, Constant(input));
      tensor.value.emplace(value.begin(), value.end());
    }
  }
  context.outputs[0].assign(1, {});
  context.outputs[0][0].wanted = outputs[0].dtype_number;
  return {};
}

Status NamedCall::Infer(bool complete, bool* inferred) {
  *inferred = false;
  bool is_known = false;
  REPRISE_RETURN_IF_ERROR(CheckKnown(complete, &is_known));
  if (!is_known) return {};
  REPRISE_RETURN_IF_ERROR(Describe());
  REPRISE_RETURN_IF_ERROR(opdef::Infer(context));
  REPRISE_RETURN_IF_ERROR(CheckResult());
  *inferred = true;
  return {};
}

// What was inferred against the descriptor of the output, which gets the type where it has none.
Status NamedCall::CheckResult() {
  const opdef::InferResult& result = context.Out(0);
  shape = result.shape.numbers();
  const bool is_too_large = !result.shape.is_static() || shape.size() > kernels::kMaxRank;
  if (is_too_large || !BytesOf(shape, 16).has_value()) {
    return WrongOutput(fmt::format("gets the shape {}, which is too large", result.shape.text()),
                       "pass inputs that ask for a smaller result");
  }
  NamedTensor& out = outputs[0];
  if (out.dtype_number == -1) {
    if (result.dtype == -1) {
      return WrongOutput("has the undefined type", "create the descriptor with the type of the result");
    }
    out.dtype_number = result.dtype;
  }
  if (out.dtype() == DType::kUndefined) {  // a type that graphs have and kernels do not compute
    const opdef::Operand& operand = context.op.outputs[0];
    const std::string text = fmt::format("is {}, which is no type that can be written", result.dtype);
    if (operand.source != opdef::TypeSource::kAttribute)
      return WrongOutput(text, "create the descriptor with another type");
    return context.WrongAttribute(context.op.attributes[static_cast<size_t>(operand.attribute)].name, text,
                                  "set it to the aclDataType of the output");
  }
  // Frameworks fill one number with the dims [1], which no constant without elements could say.
  if (op.type == "Fill" && out.dims.empty() && shape.size() == 1 && shape[0] == 1) shape.clear();
  const bool is_open = out.dims.size() == 1 && out.dims[0] == runtime::TensorDesc::kUnknownRank;
  bool fits = is_open || out.dims.size() == shape.size();
  for (size_t d = 0; fits && !is_open && d < shape.size(); ++d) {
    fits = out.dims[d] == shape[d] || out.dims[d] == runtime::TensorDesc::kUnknownDim;
  }
  if (fits) return {};
  return WrongOutput(fmt::format("has the shape {}, but the result has {}", ShapeText(out.dims), ShapeText(shape)),
                     "create the descriptor with the shape of the result");
}

Status NamedCall::CheckBuffer(NamedTensor& tensor, std::span<const int64_t> dims, bool is_input) {
  const uint64_t bytes = *BytesOf(dims, static_cast<uint64_t>(kernels::ItemSize(tensor.dtype())));
  const auto culprit = [&] { return fmt::format("parameter {}[{}]", tensor.parameter, tensor.index); };
  if (is_input && tensor.has_constant) {
    if (tensor.constant.size() < bytes) {
      return Error(kInvalidArgument,
                   fmt::format("{}: the constant {} has {} bytes, {} of {} need {}", op.type, tensor.name,
                               tensor.constant.size(), ShapeText(dims), DTypeText(tensor.dtype_number), bytes))
          .Culprit(culprit())
          .Hint("pass all elements to aclSetTensorConst, or in the host buffer");
    }
    tensor.data = memory_->Allocate(bytes);
    if (bytes != 0) std::memcpy(tensor.data, tensor.constant.data(), bytes);
    return {};
  }
  if (tensor.buffer_bytes < bytes || (tensor.data == nullptr && bytes != 0)) {
    const std::string have = tensor.data == nullptr
                                 ? std::string("is null")
                                 : fmt::format("has {} bytes at {}", tensor.buffer_bytes, fmt::ptr(tensor.data));
    return Error(kInvalidArgument, fmt::format("{}: the buffer of {} {}, {} of {} need {} bytes", op.type, tensor.name,
                                               have, ShapeText(dims), DTypeText(tensor.dtype_number), bytes))
        .Culprit(culprit())
        .Hint("pass a buffer that holds all elements");
  }
  return CheckDeviceMemory(op.type, tensor.name, tensor.data, bytes, culprit(),
                           is_input ? "allocate it with aclrtMalloc, or give the value with aclSetTensorConst or in "
                                      "host memory with aclSetTensorPlaceMent"
                                    : "allocate it with aclrtMalloc");
}

Status NamedCall::CheckBuffers() {
  for (const Slot& slot : slots_) {
    if (slot.is_constant) continue;  // read by Infer
    for (size_t i = slot.first; i < slot.first + slot.count; ++i) {
      if (!inputs[i].is_absent) REPRISE_RETURN_IF_ERROR(CheckBuffer(inputs[i], inputs[i].dims, true));
    }
  }
  return CheckBuffer(outputs[0], shape, false);
}

// ---- For the rows ----

size_t NamedCall::First(std::string_view name) const {
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& known) { return known.name == name; });
  return slot->first;  // rows ask for what they have
}

bool NamedCall::Has(std::string_view name) const {
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& known) { return known.name == name; });
  return slot != slots_.end() && slot->count != 0 && !inputs[slot->first].is_absent;
}

std::span<const NamedTensor> NamedCall::List(std::string_view name) const {
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& known) { return known.name == name; });
  return std::span<const NamedTensor>(inputs).subspan(slot->first, slot->count);
}

StatusOr<std::vector<int64_t>> NamedCall::Constant(const NamedTensor& input) const {
  if (!input.has_constant) {
    return WrongInput(input, "has no value that is known at the call",
                      "set it with aclSetTensorConst, or pass a host buffer and mark it with aclSetTensorPlaceMent");
  }
  const auto item = static_cast<size_t>(kernels::ItemSize(input.dtype()));
  const uint64_t bytes = *BytesOf(input.dims, item);
  if (input.rank() > 1 || input.constant.size() < bytes) {
    return WrongInput(
        input, fmt::format("has the shape {} and a constant of {} bytes", ShapeText(input.dims), input.constant.size()),
        "pass a list of numbers, one dim, with all its elements");
  }
  std::vector<int64_t> values(bytes / item);
  for (size_t i = 0; i < values.size(); ++i) {
    if (item == 8) {
      std::memcpy(&values[i], input.constant.data() + i * item, item);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, input.constant.data() + i * item, item);
      values[i] = narrow;
    }
  }
  return values;
}

Status NamedCall::WrongInput(const NamedTensor& tensor, std::string text, std::string hint) const {
  return Error(kOpInputNotMatch, fmt::format("{}: {} {}", op.type, tensor.name, text))
      .Culprit(fmt::format("parameter {}[{}]", tensor.parameter, tensor.index))
      .Hint(std::move(hint));
}

Status NamedCall::WrongOutput(std::string text, std::string hint) const {
  return Error(kOpOutputNotMatch, fmt::format("{}: {} {}", op.type, context.op.outputs[0].name, text))
      .Culprit("parameter outputs[0]")
      .Hint(std::move(hint));
}

// ---- Steps ----

StridedView NamedCall::Temporary(DType dtype, std::span<const int64_t> sizes) {
  const uint64_t bytes = *BytesOf(sizes, static_cast<uint64_t>(kernels::ItemSize(dtype)));
  return StridedView::Of(dtype, sizes, memory_->Allocate(bytes));
}

Status NamedCall::Lower() { return op.lower(*this); }

Status NamedCall::Step(const Routine& routine, std::span<const StepArgument> arguments) {
  StepObjects objects;
  std::vector<Argument> packed;
  packed.reserve(arguments.size());
  for (const StepArgument& argument : arguments) {
    auto made = std::visit(ArgumentMaker{objects}, argument);
    if (!made.ok()) return AsNamed(std::move(made).status());
    packed.push_back(made.value());
  }
  const OpSchema& schema = SchemaOf(op, routine);
  Executor executor(schema);
  if (Status status = OpCall(schema, packed, executor).Run(); !status.ok()) return AsNamed(std::move(status));
  const uint64_t bytes = executor.workspace_bytes + executor.own_bytes;
  void* workspace = bytes != 0 ? memory_->Allocate(bytes) : nullptr;
  launches_.reserve(launches_.size() + executor.launches.size());
  for (Launch* launch : executor.launches) {
    launch->Retain();
    launches_.push_back(launch);
  }
  steps_.push_back({executor.launches.size(), workspace});
  return {};
}

// What the program passed, for dumps: the steps behind it are kernels of one call.
void NamedCall::TellTensors() {
  auto call = std::make_shared<ir::OperatorInfo>();
  call->type = call->name = op.type;
  call->tensors = std::move(told);
  const auto add = [&](const NamedTensor& tensor, std::span<const int64_t> dims, const void* data, bool is_write) {
    const StridedView view = StridedView::Of(tensor.dtype(), dims, const_cast<void*>(data));
    call->tensors.push_back(TensorInfoOf(tensor.name, view, !is_write, is_write));
  };
  for (const NamedTensor& input : inputs) {
    if (input.is_absent) continue;
    const void* data = input.data;
    if (input.has_constant && data == nullptr && !input.constant.empty()) {
      void* const copy = memory_->Allocate(input.constant.size());
      std::memcpy(copy, input.constant.data(), input.constant.size());
      data = copy;
    }
    add(input, input.dims, data, false);
  }
  for (const NamedTensor& output : outputs) add(output, shape, output.data, true);
  Tell(launches_, call);
}

Status NamedCall::Submit(runtime::Stream& stream) {
  if (runtime::Dump::wants_tensors() && !launches_.empty()) [[unlikely]]
    TellTensors();
  std::span<Launch* const> left(launches_);
  for (const PlannedStep& step : steps_) {
    REPRISE_RETURN_IF_ERROR(SubmitLaunches(stream, left.first(step.launches), step.workspace, memory_));
    left = left.subspan(step.launches);
  }
  return {};
}

}  // namespace reprise::ops
