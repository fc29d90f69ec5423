// SPDX-License-Identifier: Apache-2.0
#include "ops/operator_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "ops/op_call.h"
#include "runtime/stream.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// Where no memory is: temporaries of a chain that only checks differ from one another and from everything real.
constexpr uintptr_t kNowhere = uintptr_t{1} << 60;

// The objects that the arguments of one call point to.
struct ChainObjects {
  std::vector<std::unique_ptr<std::vector<int64_t>>> ints;
};

// What a parameter gets that nobody set; `text` is its default from the table.
Argument DefaultArgument(const Param& param, ChainObjects& objects) {
  const std::string_view text = param.default_value;
  const auto number = [&](auto value) {
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  switch (param.kind) {
    case ParamKind::kInt:
    case ParamKind::kDType: return Argument::Integer(param.kind, number(int64_t{0}));
    case ParamKind::kBool: return Argument::Integer(param.kind, text == "true" ? 1 : 0);
    case ParamKind::kReal: return Argument::Real(number(0.0));
    case ParamKind::kString:
      // Texts of the table are literals, so they end with a zero.
      return Argument::Text(text.empty() || text == "null" ? nullptr : text.data());
    case ParamKind::kIntArray:
      if (text.empty() || text == "null") break;
      objects.ints.push_back(std::make_unique<std::vector<int64_t>>());
      return Argument::Object(param.kind, objects.ints.back().get());
    default: break;
  }
  return Argument::Handle(param.kind, nullptr);
}

struct ValueArgument {
  ParamKind kind;

  Argument operator()(const Tensor* tensor) const {
    return tensor == nullptr ? Argument::Handle(kind, nullptr) : Argument::Object(kind, tensor);
  }
  Argument operator()(const std::vector<Tensor>& list) const { return Argument::Object(kind, &list); }
  Argument operator()(const std::vector<int64_t>& list) const { return Argument::Object(kind, &list); }
  Argument operator()(const kernels::Scalar& scalar) const { return Argument::Object(kind, &scalar); }
  Argument operator()(const char* text) const { return Argument::Text(text); }
  Argument operator()(double value) const { return Argument::Real(value); }
  Argument operator()(int64_t value) const { return Argument::Integer(kind, value); }
  Argument operator()(bool value) const { return Argument::Integer(kind, value ? 1 : 0); }
  Argument operator()(DType type) const { return Argument::Integer(kind, static_cast<int64_t>(type)); }
};

uint64_t BytesOf(const Tensor& tensor) {
  return static_cast<uint64_t>(tensor.count) * static_cast<uint64_t>(kernels::ItemSize(tensor.dtype()));
}

}  // namespace

// ---- Views ----

Tensor RowMajor(DType dtype, std::span<const int64_t> sizes, void* data) {
  Tensor tensor;
  tensor.sizes.assign(sizes.data(), sizes.size());
  tensor.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    tensor.strides[d] = stride;
    (void)__builtin_mul_overflow(stride, std::max<int64_t>(1, sizes[d]), &stride);
  }
  tensor.count = 1;
  // Sizes that no memory holds are refused by whoever checks the memory.
  for (const int64_t size : sizes) (void)__builtin_mul_overflow(tensor.count, size, &tensor.count);
  tensor.data = data;
  tensor.dtype_number = static_cast<int32_t>(dtype);
  return tensor;
}

Tensor Reshaped(const Tensor& tensor, std::initializer_list<int64_t> sizes) {
  Tensor view = RowMajor(tensor.dtype(), {sizes.begin(), sizes.size()}, tensor.data);
  view.dtype_number = tensor.dtype_number;
  view.offset = tensor.offset;
  return view;
}

Tensor Exchanged(const Tensor& tensor, size_t first, size_t second) {
  Tensor view = tensor;
  std::swap(view.sizes[first], view.sizes[second]);
  std::swap(view.strides[first], view.strides[second]);
  return view;
}

Tensor Narrowed(const Tensor& tensor, size_t dim, int64_t begin, int64_t count) {
  Tensor view = tensor;
  view.offset += begin * view.strides[dim];
  view.sizes[dim] = count;
  view.count = 1;
  for (const int64_t size : view.sizes) view.count *= size;
  return view;
}

Tensor Repeated(const Tensor& tensor, std::initializer_list<int64_t> sizes) {
  Tensor view = Reshaped(tensor, sizes);
  for (int64_t& stride : view.strides) stride = 0;
  return view;
}

// ---- The chain ----

OperatorChain::OperatorChain(std::string name, bool only_checks)
    : name_(std::move(name)), only_checks_(only_checks), next_(kNowhere), memory_(new TaskMemory) {
  auto site = std::make_shared<OperationInfo>();
  site->name = name_;
  site_ = std::move(site);
}

OperatorChain::~OperatorChain() { memory_->Release(); }

Tensor OperatorChain::Temporary(DType dtype, std::span<const int64_t> sizes) {
  Tensor tensor = RowMajor(dtype, sizes, nullptr);
  const uint64_t bytes = BytesOf(tensor);
  if (only_checks_) {
    tensor.data = reinterpret_cast<void*>(next_);
    next_ += (bytes + 2 * kScratchAlignment) / kScratchAlignment * kScratchAlignment;
  } else {
    tensor.data = memory_->Allocate(bytes);
  }
  return tensor;
}

Tensor OperatorChain::Zeros(DType dtype, std::initializer_list<int64_t> sizes) {
  const Tensor tensor = Temporary(dtype, sizes);
  if (!only_checks_) std::memset(tensor.data, 0, BytesOf(tensor));
  return tensor;
}

Status OperatorChain::Add(std::string_view op, std::initializer_list<Setting> settings) {
  const OpId id = FindOp(op);
  if (id == OpId::kCount) return Error(kInternalError, fmt::format("{}: there is no operator {}", name_, op));
  const OpSchema& schema = SchemaOf(id);
  ChainObjects objects;
  std::vector<Argument> arguments;
  arguments.reserve(schema.params.size());
  size_t used = 0;
  for (const Param& param : schema.params) {
    const auto* setting =
        std::find_if(settings.begin(), settings.end(), [&](const Setting& known) { return known.name == param.name; });
    if (setting == settings.end()) {
      arguments.push_back(DefaultArgument(param, objects));
      continue;
    }
    ++used;
    arguments.push_back(std::visit(ValueArgument{param.kind}, setting->value));
  }
  if (used != settings.size()) {
    return Error(kInternalError, fmt::format("{}: {} has no parameter of one of the names that were set", name_, op));
  }
  auto executor = std::make_unique<Executor>(schema);
  if (Status status = OpCall(schema, arguments, *executor).Run(); !status.ok()) {
    const Status::Detail& cause = status.detail();
    return Error(cause.code, fmt::format("{}: {}", name_, cause.what), cause.function, cause.file, cause.line)
        .Culprit(cause.culprit)
        .Hint(cause.hint);
  }
  if (only_checks_) return {};
  const uint64_t bytes = executor->workspace_bytes + executor->own_bytes;
  calls_.push_back({std::move(executor), bytes != 0 ? memory_->Allocate(bytes) : nullptr});
  return {};
}

Status OperatorChain::Submit(runtime::Stream& stream) {
  for (const Planned& call : calls_) {
    for (Launch* launch : call.executor->launches) launch->site = site_;
    const std::span<Launch* const> launches(call.executor->launches.data(), call.executor->launches.size());
    REPRISE_RETURN_IF_ERROR(SubmitLaunches(stream, launches, call.workspace, memory_));
  }
  return {};
}

}  // namespace reprise::ops
