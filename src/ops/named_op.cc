// SPDX-License-Identifier: Apache-2.0
#include "ops/named_op.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "ops/named_lowering.h"
#include "runtime/descriptors.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace reprise::ops {
namespace {

using runtime::DataBuffer;

constexpr int kMaxTensors = 1024;
constexpr int32_t kDevicePlacement = 0;  // ACL_MEMTYPE_DEVICE

Status BadHandle(Status&& status, std::string_view parameter, int index) {
  Status::Detail detail = status.detail();
  detail.culprit = fmt::format("parameter {}[{}]", parameter, index);
  return Status(std::move(detail));
}

// One side of a call. Buffers are looked at when there are some.
Status ReadTensors(int count, const void* const* descs, const void* const* buffers, const char* parameter,
                   const char* desc_parameter, std::vector<NamedTensor>* out) {
  out->resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    NamedTensor& tensor = (*out)[static_cast<size_t>(i)];
    const auto null = [&](const char* name) {
      return Error(kInvalidArgument, fmt::format("{}[{}] is null", name, i))
          .Culprit(fmt::format("parameter {}[{}]", name, i))
          .Hint(fmt::format("pass as many entries of {} as the count says", name));
    };
    if (descs[i] == nullptr) return null(desc_parameter);
    auto found = runtime::FindObject(runtime::TensorDescs(), descs[i], "aclTensorDesc");
    if (!found.ok()) return BadHandle(std::move(found).status(), desc_parameter, i);
    const runtime::TensorDesc& desc = *found.value();
    tensor.parameter = parameter;
    tensor.index = i;
    tensor.name = fmt::format("{}[{}]", parameter, i);
    tensor.dtype_number = desc.type;
    // The storage format says how the elements lie; where it is not set, the format does.
    tensor.format = desc.storage_format != -1 ? desc.storage_format : desc.format;
    tensor.dims = desc.dims;
    tensor.constant = desc.constant;
    tensor.has_constant = !desc.constant.empty();
    tensor.on_host = desc.placement != kDevicePlacement;
    if (buffers == nullptr) continue;
    if (buffers[i] == nullptr) return null(parameter);
    auto buffer = runtime::FindObject(runtime::DataBuffers(), buffers[i], "aclDataBuffer");
    if (!buffer.ok()) return BadHandle(std::move(buffer).status(), parameter, i);
    tensor.data = buffer.value()->data;
    tensor.buffer_bytes = buffer.value()->bytes;
    tensor.has_buffer = true;
  }
  return {};
}

// Values in host memory are known at the call. Copies what the descriptor describes, no more than the buffer has.
void ReadHostValues(std::vector<NamedTensor>& inputs) {
  for (NamedTensor& input : inputs) {
    if (!input.on_host || input.has_constant || input.data == nullptr || !input.is_known()) continue;
    uint64_t bytes = static_cast<uint64_t>(kernels::ItemSize(input.dtype()));
    bool overflows = false;
    for (const int64_t dim : input.dims) overflows |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes);
    if (overflows || bytes > input.buffer_bytes) continue;  // refused with the buffer later on
    const char* const from = static_cast<const char*>(input.data);
    input.constant.assign(from, from + bytes);
    input.has_constant = true;
  }
}

enum class Buffers : uint8_t { kNone, kInputs, kBoth };

Status CheckCount(int count, const void* const* descs, const void* const* buffers, const char* what,
                  bool with_buffers) {
  const std::string number = fmt::format("num{}", what);
  if (count < 0 || count > kMaxTensors) {
    return Error(kInvalidArgument, fmt::format("{} is {}, must be 0 to {}", number, count, kMaxTensors))
        .Culprit("parameter " + number)
        .Hint("pass the number of entries of the arrays");
  }
  if (count == 0) return {};
  const std::string name = what == std::string_view("Inputs") ? "input" : "output";
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(descs, (name + "Desc").c_str()));
  if (with_buffers) REPRISE_RETURN_IF_ERROR(runtime::NotNull(buffers, (name + "s").c_str()));
  return {};
}

// Null arguments, ranges, handles.
struct RawCall {
  std::string_view type;
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  const Attributes* attributes = nullptr;
};
Status Read(const NamedArguments& arguments, Buffers buffers, RawCall* raw) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(arguments.type, "opType"));
  const bool with_inputs = buffers != Buffers::kNone;
  const bool with_outputs = buffers == Buffers::kBoth;
  REPRISE_RETURN_IF_ERROR(
      CheckCount(arguments.num_inputs, arguments.input_descs, arguments.inputs, "Inputs", with_inputs));
  REPRISE_RETURN_IF_ERROR(
      CheckCount(arguments.num_outputs, arguments.output_descs, arguments.outputs, "Outputs", with_outputs));
  REPRISE_RETURN_IF_ERROR(ReadTensors(arguments.num_inputs, arguments.input_descs,
                                      with_inputs ? arguments.inputs : nullptr, "inputs", "inputDesc", &raw->inputs));
  REPRISE_RETURN_IF_ERROR(ReadTensors(arguments.num_outputs, arguments.output_descs,
                                      with_outputs ? arguments.outputs : nullptr, "outputs", "outputDesc",
                                      &raw->outputs));
  if (arguments.attributes != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(raw->attributes, FindAttributes(arguments.attributes));
  }
  raw->type = arguments.type;
  return {};
}

// The call with its types, attributes and shapes checked, as far as they are known.
Status Make(RawCall&& raw, bool complete, std::unique_ptr<NamedCall>* out) {
  const NamedOp* row = FindNamedOp(raw.type);
  if (row == nullptr) return NoSteps(raw.type);
  auto call = std::make_unique<NamedCall>(*row, *opdef::FindGraphOp(row->type));
  call->inputs = std::move(raw.inputs);
  call->outputs = std::move(raw.outputs);
  call->attributes = raw.attributes;
  REPRISE_RETURN_IF_ERROR(call->Bind());
  ReadHostValues(call->inputs);
  bool inferred = false;
  REPRISE_RETURN_IF_ERROR(call->Infer(complete, &inferred));
  *out = std::move(call);
  return {};
}

// The shapes that kernels found out, once the stream has come so far.
Status WaitForShapes(NamedCall& call, runtime::Stream& stream) {
  if (call.found_outputs().empty()) return {};
  REPRISE_RETURN_IF_ERROR(stream.Synchronize(runtime::DeadlineAfterMs(-1)));
  for (const NamedCall::FoundOutput& found : call.found_outputs()) {
    const FoundShapes::Output& entry = found.found->outputs[found.entry];
    call.outputs[found.output].dims.assign(entry.sizes, entry.sizes + entry.rank);
  }
  return {};
}

Status Run(RawCall&& raw, runtime::Stream& stream, std::unique_ptr<NamedCall>* done) {
  std::unique_ptr<NamedCall> call;
  REPRISE_RETURN_IF_ERROR(Make(std::move(raw), true, &call));
  REPRISE_RETURN_IF_ERROR(call->CheckBuffers());
  REPRISE_RETURN_IF_ERROR(call->Lower());
  if (!call->found_outputs().empty() && (stream.is_capturing() || stream.sink() != nullptr)) {
    return Error(kStreamCaptured,
                 fmt::format("{}: {} is being captured, and the shape of the result is known only when the host has "
                             "seen what the kernels found",
                             call->op.type, stream.Describe()))
        .Hint("call the operator before or after the capture, or on a stream outside of it");
  }
  REPRISE_RETURN_IF_ERROR(call->Submit(stream));
  REPRISE_RETURN_IF_ERROR(WaitForShapes(*call, stream));
  *done = std::move(call);
  return {};
}

void WriteBack(const NamedArguments& arguments, const NamedCall& call) {
  for (size_t i = 0; i < static_cast<size_t>(arguments.num_outputs); ++i) {
    runtime::TensorDesc* desc = runtime::TensorDescs().Find(arguments.output_descs[i]);
    if (desc == nullptr || call.outputs[i].is_absent) continue;  // was live a moment ago
    desc->dims = call.outputs[i].dims;
    if (desc->type == -1) desc->type = call.outputs[i].dtype_number;
  }
}

// What stands behind aclopHandle*.
struct NamedHandle {
  std::string type;
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  Attributes attributes;
};

HandleTable<NamedHandle, HandleKind::kOpHandle>& NamedHandles() {
  static constinit NoDestroy<HandleTable<NamedHandle, HandleKind::kOpHandle>> table;
  return table.value;
}

Status ReadBuffers(int count, const void* const* buffers, const char* parameter, std::vector<NamedTensor>* tensors) {
  if (static_cast<size_t>(count) != tensors->size()) {
    return Error(kInvalidArgument,
                 fmt::format("there are {} {}, the handle was created for {}", count, parameter, tensors->size()))
        .Culprit(fmt::format("parameter {}", parameter))
        .Hint("pass one buffer for each descriptor that aclopCreateHandle got");
  }
  for (int i = 0; i < count; ++i) {
    if (buffers[i] == nullptr) {
      return Error(kInvalidArgument, fmt::format("{}[{}] is null", parameter, i))
          .Culprit(fmt::format("parameter {}[{}]", parameter, i))
          .Hint("pass what aclCreateDataBuffer returned");
    }
    auto buffer = runtime::FindObject(runtime::DataBuffers(), buffers[i], "aclDataBuffer");
    if (!buffer.ok()) return BadHandle(std::move(buffer).status(), parameter, i);
    NamedTensor& tensor = (*tensors)[static_cast<size_t>(i)];
    tensor.data = buffer.value()->data;
    tensor.buffer_bytes = buffer.value()->bytes;
    tensor.has_buffer = true;
  }
  return {};
}

std::string TensorsText(const std::vector<NamedTensor>& tensors) {
  std::string out;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.is_absent) continue;
    out += fmt::format(R"({}    {{"name": "{}", "dtype": "{}", "format": "{}", "shape": {}, "constant": {}}})",
                       out.empty() ? "\n" : ",\n", JsonEscape(tensor.name), DTypeText(tensor.dtype_number),
                       tensor.format == -1 ? "UNDEFINED" : FormatText(tensor.format), ShapeText(tensor.dims),
                       tensor.has_constant);
  }
  return out.empty() ? "[]" : "[" + out + "\n  ]";
}

}  // namespace

Status RunNamed(const NamedArguments& arguments, const void* stream, ShapeResult shapes) {
  RawCall raw;
  REPRISE_RETURN_IF_ERROR(Read(arguments, Buffers::kBoth, &raw));
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
  std::unique_ptr<NamedCall> call;
  REPRISE_RETURN_IF_ERROR(Run(std::move(raw), *found, &call));
  if (shapes == ShapeResult::kWriteBack) WriteBack(arguments, *call);
  return {};
}

Status CheckNamed(const NamedArguments& arguments) {
  RawCall raw;
  REPRISE_RETURN_IF_ERROR(Read(arguments, Buffers::kNone, &raw));
  std::unique_ptr<NamedCall> call;
  return Make(std::move(raw), false, &call);
}

Status InferNamed(const NamedArguments& arguments) {
  RawCall raw;
  REPRISE_RETURN_IF_ERROR(Read(arguments, Buffers::kInputs, &raw));
  std::unique_ptr<NamedCall> call;
  REPRISE_RETURN_IF_ERROR(Make(std::move(raw), true, &call));
  WriteBack(arguments, *call);
  return {};
}

StatusOr<std::string> DescribeNamed(const NamedArguments& arguments) {
  RawCall raw;
  const bool has_buffers = arguments.inputs != nullptr && arguments.outputs != nullptr;
  REPRISE_RETURN_IF_ERROR(Read(arguments, has_buffers ? Buffers::kBoth : Buffers::kNone, &raw));
  std::unique_ptr<NamedCall> call;
  REPRISE_RETURN_IF_ERROR(Make(std::move(raw), false, &call));
  std::string attributes;
  if (call->attributes != nullptr) {
    for (const auto& [name, value] : *call->attributes) {
      attributes += fmt::format("{}\n    \"{}\": {}", attributes.empty() ? "" : ",", JsonEscape(name),
                                opdef::AttributeText(value));
    }
  }
  return fmt::format("{{\n  \"type\": \"{}\",\n  \"inputs\": {},\n  \"outputs\": {},\n  \"attributes\": {{{}}}\n}}\n",
                     call->op.type, TensorsText(call->inputs), TensorsText(call->outputs),
                     attributes.empty() ? "" : attributes + "\n  ");
}

StatusOr<void*> CreateNamedHandle(const NamedArguments& arguments) {
  RawCall raw;
  REPRISE_RETURN_IF_ERROR(Read(arguments, Buffers::kNone, &raw));
  auto kept = std::make_unique<NamedHandle>();
  kept->type = raw.type;
  kept->inputs = raw.inputs;
  kept->outputs = raw.outputs;
  if (raw.attributes != nullptr) kept->attributes = *raw.attributes;
  std::unique_ptr<NamedCall> call;
  REPRISE_RETURN_IF_ERROR(Make(std::move(raw), false, &call));
  void* handle = NamedHandles().Insert(kept.get());
  if (handle == nullptr) {
    return Error(kOutOfHostMemory, "the process has too many operator handles")
        .Culprit(fmt::format("{} live operator handles", NamedHandles().live()))
        .Hint("destroy those that are no longer needed with aclopDestroyHandle");
  }
  (void)kept.release();  // the table holds it
  return handle;
}

Status RunNamedHandle(const void* handle, const NamedArguments& arguments, const void* stream) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(handle, "handle"));
  if (arguments.num_inputs > 0) REPRISE_RETURN_IF_ERROR(runtime::NotNull(arguments.inputs, "inputs"));
  if (arguments.num_outputs > 0) REPRISE_RETURN_IF_ERROR(runtime::NotNull(arguments.outputs, "outputs"));
  REPRISE_RETURN_IF_ERROR(CheckCount(arguments.num_inputs, arguments.inputs, arguments.inputs, "Inputs", true));
  REPRISE_RETURN_IF_ERROR(CheckCount(arguments.num_outputs, arguments.outputs, arguments.outputs, "Outputs", true));
  REPRISE_ASSIGN_OR_RETURN(const NamedHandle* kept, runtime::FindObject(NamedHandles(), handle, "aclopHandle"));
  RawCall raw{kept->type, kept->inputs, kept->outputs, &kept->attributes};
  REPRISE_RETURN_IF_ERROR(ReadBuffers(arguments.num_inputs, arguments.inputs, "inputs", &raw.inputs));
  REPRISE_RETURN_IF_ERROR(ReadBuffers(arguments.num_outputs, arguments.outputs, "outputs", &raw.outputs));
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
  std::unique_ptr<NamedCall> call;
  return Run(std::move(raw), *found, &call);
}

Status DestroyNamedHandle(const void* handle) {
  if (handle == nullptr) return {};
  const std::unique_ptr<NamedHandle> kept(NamedHandles().Erase(handle));
  if (kept != nullptr) return {};
  return runtime::FindObject(NamedHandles(), handle, "aclopHandle").status();
}

}  // namespace reprise::ops
