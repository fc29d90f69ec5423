// SPDX-License-Identifier: Apache-2.0
#include "ops/transformer/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/named_call.h"
#include "ops/transformer/plan.h"

namespace reprise::ops::transformer {
namespace {

using kernels::DType;
using Names = std::vector<std::string_view>;

constexpr std::string_view kUnknown = "the tensor";

Signature Describe(const PagedAttention& request) {
  Names inputs = {"query", "keyCache"};
  if (request.value_size == 0) inputs.push_back("valueCache");
  inputs.insert(inputs.end(), {"blockTables", "contextLens"});
  if (request.mask != Mask::kNone) inputs.push_back("mask");
  if (request.has_query_lengths) inputs.push_back("qSeqLens");
  return {"PagedAttentionOperation", std::move(inputs), {{"attnOut", 0}}};
}

Signature Describe(const SelfAttention& request) {
  Names inputs = {"query", "key", "value"};
  if (request.is_paged) inputs.push_back("blockTables");
  if (request.has_mask) inputs.push_back("mask");
  inputs.push_back("seqLen");
  if (request.is_paged) inputs.push_back("kvSeqLen");
  if (request.has_slopes) inputs.push_back("slopes");
  return {request.name, std::move(inputs), {{"output", 0}}};
}

Signature Describe(const LatentAttention& /*request*/) {
  return {"AtbMLA", {"qNope", "qRope", "ctKV", "kRope", "blockTables", "contextLens"}, {{"attenOut", 0}, {"lse", 0}}};
}

Signature Describe(const RingAttention& /*request*/) {
  return {"AtbRingMLA",
          {"qNope", "qRope", "kNope", "kRope", "value", "mask", "seqLen", "prevOut", "prevLse"},
          {{"output", 0}, {"softmaxLse", 0, DType::kFloat}}};
}

Signature Describe(const CacheWrite& request) {
  if (!request.has_value) {
    return {"ReshapeAndCacheOperation", {"key", "keyCache", "slotMapping"}, {{"keyCacheOut", 1}}};
  }
  return {"ReshapeAndCacheOperation",
          {"key", "value", "keyCache", "valueCache", "slotMapping"},
          {{"keyCacheOut", 2}, {"valueCacheOut", 3}}};
}

Signature Describe(const CacheRead& /*request*/) {
  return {"AtbPagedCacheLoad",
          {"keyCache", "valueCache", "blockTables", "contextLens", "seqStarts"},
          {{"key", 0}, {"value", 1}}};
}

Signature Describe(const RmsNorm& request) {
  Signature result = {"RmsNormOperation", {"x"}, {}};
  if (request.kind != RmsNorm::Kind::kNorm) result.inputs.push_back("resIn");
  result.inputs.push_back("gamma");
  if (request.has_bias || request.is_quantized) result.inputs.push_back("beta");
  if (request.is_quantized) result.inputs.insert(result.inputs.end(), {"scale", "offset"});
  result.outputs.push_back({"y", 0, request.is_quantized ? DType::kInt8 : DType::kUndefined});
  if (request.kind == RmsNorm::Kind::kBefore) result.outputs.push_back({"resOut", 0});
  if (request.has_rstd) result.outputs.push_back({"rstd", 0, DType::kFloat});
  return result;
}

Signature Describe(const Rotary& /*request*/) {
  return {"RopeOperation", {"query", "key", "cos", "sin", "seqLen"}, {{"ropeQ", 0}, {"ropeK", 1}}};
}

Signature Describe(const Linear& request) {
  Names inputs = {"x", "weight"};
  if (request.has_bias) inputs.push_back("bias");
  if (request.accumulates) inputs.push_back("accum");
  return {
      "LinearOperation", std::move(inputs), {{"output", 0, request.accumulates ? DType::kFloat : DType::kUndefined}}};
}

Signature Describe(const GroupChoice& /*request*/) {
  return {"GroupTopkOperation", {"token", "idxArr"}, {{"output", 0}}};
}

Signature Describe(const ExpertChoice& /*request*/) {
  return {"AtbFusedAddTopkDiv", {"x", "addNum"}, {{"y", 0, DType::kFloat}, {"indices", 0, DType::kInt32}}};
}

Signature Describe(const Elementwise& request) {
  Signature result = {"ElewiseOperation", {"x"}, {{"out", 0}}};
  switch (request.kind) {
    case Elementwise::kAdd:
    case Elementwise::kMultiply:
    case Elementwise::kDivide:
    case Elementwise::kSubtract:
    case Elementwise::kAnd:
    case Elementwise::kOr: result.inputs.push_back("y"); break;
    case Elementwise::kLess:
    case Elementwise::kGreater:
    case Elementwise::kEqual:
      result.inputs.push_back("y");
      result.outputs[0].type = DType::kInt8;
      break;
    case Elementwise::kQuantizeChannels:
      result.inputs.insert(result.inputs.end(), {"scale", "offset"});
      result.outputs[0].type = DType::kInt8;
      break;
    case Elementwise::kDequantizeChannels:
      result.inputs.insert(result.inputs.end(), {"scale", "offset"});
      result.outputs[0].type = DType::kFloat16;
      break;
    case Elementwise::kDynamicQuantize:
      result.outputs = {{"out", 0, DType::kInt8}, {"scaleOut", 0, DType::kFloat}};
      break;
    default: result.outputs[0].type = request.type; break;
  }
  return result;
}

std::string ListOf(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

Names NamesOf(std::span<const OutputRule> rules) {
  Names names;
  for (const OutputRule& rule : rules) names.push_back(rule.name);
  return names;
}

Status CheckCount(const Signature& signature, const char* what, size_t count, std::span<const std::string_view> names) {
  if (count == names.size()) return {};
  return Error(kOperatorArgumentInvalid, fmt::format("{}: there are {} {} tensors, expected {} ({})", signature.name,
                                                     count, what, names.size(), ListOf(names)))
      .Culprit(fmt::format("the {} tensors", what))
      .Hint("pass the tensors that the parameters of the operation ask for, in this order");
}

// Tensors that may be left out.
bool IsOptional(std::string_view name) {
  for (const std::string_view known : {"mask", "seqStarts", "prevOut", "prevLse", "lse", "idxArr", "slopes"}) {
    if (name == known) return true;
  }
  return false;
}

// Bytes that do not overflow, as the sizes come from the caller.
StatusOr<uint64_t> CheckedBytes(const Plan& plan, std::string_view name, const Tensor& tensor) {
  int64_t bytes = kernels::ItemSize(tensor.dtype());
  for (const int64_t size : tensor.sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(1, size), &bytes)) {
      return plan.Wrong(name, fmt::format("has shape {}, which no memory holds", ShapeText(tensor.sizes)));
    }
  }
  return tensor.count == 0 ? 0 : static_cast<uint64_t>(bytes);
}

Status CheckOne(const Plan& plan, const Signature& signature, std::string_view name, const GivenTensor& tensor) {
  if (!tensor.is_given) {
    if (IsOptional(name)) return {};
    return plan.Wrong(name, "is missing", "give the tensor an address in device memory, or lengths one on the host");
  }
  const Tensor& view = tensor.view;
  if (view.dtype() == DType::kUndefined) {
    return plan.Wrong(name, fmt::format("is {}, which no operation takes", DTypeText(view.dtype_number)));
  }
  REPRISE_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedBytes(plan, name, view));
  if (tensor.host != nullptr) return {};
  return CheckDeviceMemory(signature.name, name, view.data, bytes, fmt::format("tensor {}", name),
                           "allocate it with aclrtMalloc");
}

Status MakeAll(const Request& request, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs,
               OperatorChain& chain, const Signature& signature) {
  Plan plan(signature, inputs, outputs, chain);
  REPRISE_RETURN_IF_ERROR(plan.CheckTensors());
  return std::visit([&](const auto& one) { return Make(one, plan); }, request);
}

// What differs from the input that an output is like.
Status AdjustShape(const Request& request, std::span<const Description> inputs, const Signature& signature,
                   std::vector<Description>& outputs) {
  std::vector<int64_t>& sizes = outputs[0].sizes;
  if (const auto* linear = std::get_if<Linear>(&request)) {
    const std::vector<int64_t>& weight = inputs[1].sizes;
    if (sizes.size() < 2 || weight.size() < 2) {
      return Error(kOperatorArgumentInvalid, fmt::format("{}: x has shape {} and weight {}, expected matrices",
                                                         signature.name, ShapeText(sizes), ShapeText(weight)));
    }
    const size_t last = sizes.size() - 1;
    if (linear->transposes_a) sizes[last - 1] = sizes[last];
    sizes[last] = weight[weight.size() - (linear->transposes_b ? 2 : 1)];
  }
  if (const auto* paged = std::get_if<PagedAttention>(&request); paged != nullptr && paged->value_size != 0) {
    if (sizes.size() == 3) sizes[2] = paged->value_size;
  }
  return {};
}

}  // namespace

Signature SignatureOf(const Request& request) {
  return std::visit([](const auto& one) { return Describe(one); }, request);
}

StatusOr<std::vector<Description>> InferOutputs(const Request& request, std::span<const Description> inputs) {
  const Signature signature = SignatureOf(request);
  REPRISE_RETURN_IF_ERROR(CheckCount(signature, "input", inputs.size(), signature.inputs));
  std::vector<Description> outputs;
  for (const OutputRule& rule : signature.outputs) {
    Description output = inputs[rule.like];
    if (rule.type != DType::kUndefined) output.dtype_number = static_cast<int32_t>(rule.type);
    outputs.push_back(std::move(output));
  }
  REPRISE_RETURN_IF_ERROR(AdjustShape(request, inputs, signature, outputs));
  return outputs;
}

Status Check(const Request& request, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs) {
  const Signature signature = SignatureOf(request);
  OperatorChain chain(std::string(signature.name), /*only_checks=*/true);
  return MakeAll(request, inputs, outputs, chain, signature);
}

Status Run(const Request& request, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs,
           runtime::Stream& stream) {
  const Signature signature = SignatureOf(request);
  OperatorChain chain(std::string(signature.name), /*only_checks=*/false);
  REPRISE_RETURN_IF_ERROR(MakeAll(request, inputs, outputs, chain, signature));
  return chain.Submit(stream);
}

// ---- Plan ----

Status Plan::CheckTensors() const {
  REPRISE_RETURN_IF_ERROR(CheckCount(signature_, "input", inputs_.size(), signature_.inputs));
  REPRISE_RETURN_IF_ERROR(CheckCount(signature_, "output", outputs_.size(), NamesOf(signature_.outputs)));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(CheckOne(*this, signature_, signature_.inputs[i], inputs_[i]));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(CheckOne(*this, signature_, signature_.outputs[i].name, outputs_[i]));
  }
  return {};
}

const GivenTensor& Plan::Given(std::string_view name) const {
  static const GivenTensor kNone;
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    if (signature_.inputs[i] == name) return inputs_[i];
  }
  for (size_t i = 0; i < signature_.outputs.size(); ++i) {
    if (signature_.outputs[i].name == name) return outputs_[i];
  }
  return kNone;
}

const Tensor& Plan::Out(std::string_view name) const { return Given(name).view; }

StatusOr<std::vector<int64_t>> Plan::HostInts(std::string_view name) const {
  const GivenTensor& given = Given(name);
  const Tensor& view = given.view;
  const DType type = view.dtype();
  if (given.host == nullptr && view.count != 0) {
    return Wrong(name, "is in device memory, but its values are needed when the call is made",
                 "pass it on the host: a tensor of the CPU, with hostData set and no deviceData");
  }
  if (type != DType::kInt32 && type != DType::kUInt32 && type != DType::kInt64) {
    return Wrong(name, fmt::format("is {}, expected int32", DTypeText(view.dtype_number)));
  }
  std::vector<int64_t> values(static_cast<size_t>(view.count));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kInt64) {
      values[i] = static_cast<const int64_t*>(given.host)[i];
    } else if (type == DType::kInt32) {
      values[i] = static_cast<const int32_t*>(given.host)[i];
    } else {
      values[i] = static_cast<const uint32_t*>(given.host)[i];
    }
    if (values[i] < 0)
      return Wrong(name, fmt::format("has the entry {} at {}", values[i], i), "lengths are not negative");
  }
  return values;
}

StatusOr<Tensor> Plan::TokensOf(std::string_view name, const Tensor& tensor, int64_t heads) const {
  const std::span<const int64_t> sizes = tensor.sizes;
  if (heads <= 0) return Invalid(fmt::format("the number of heads is {}, expected at least 1", heads));
  if (sizes.size() == 3 && sizes[1] == heads) return tensor;
  if (sizes.size() != 2 || sizes[1] % heads != 0) {
    return WrongShape(name, fmt::format("[tokens, {}, size of a head]", heads));
  }
  return Reshaped(tensor, {sizes[0], heads, sizes[1] / heads});
}

StatusOr<Tensor> Plan::Pages(std::string_view name, int64_t heads) const {
  const Tensor& cache = In(name);
  const std::span<const int64_t> sizes = cache.sizes;
  if (heads <= 0) return Invalid(fmt::format("the number of key heads is {}, expected at least 1", heads));
  if (sizes.size() == 4 && sizes[2] == heads) return Exchanged(cache, 1, 2);
  if (sizes.size() != 3 || sizes[2] % heads != 0) {
    return WrongShape(name, fmt::format("[blocks, tokens of a block, {}, size of a head]", heads));
  }
  return Exchanged(Reshaped(cache, {sizes[0], sizes[1], heads, sizes[2] / heads}), 1, 2);
}

Status Plan::Wrong(std::string_view name, std::string_view text, std::string hint) const {
  return Error(kOperatorArgumentInvalid,
               fmt::format("{}: {} {}", signature_.name, name.empty() ? kUnknown : name, text))
      .Culprit(fmt::format("tensor {}", name))
      .Hint(std::move(hint));
}

Status Plan::Invalid(std::string_view text, std::string hint) const {
  return Error(kOperatorArgumentInvalid, fmt::format("{}: {}", signature_.name, text)).Hint(std::move(hint));
}

Status Plan::WrongShape(std::string_view name, std::string_view what) const {
  return Wrong(name, fmt::format("has shape {}, expected {}", ShapeText(Given(name).view.sizes), what));
}

Status Plan::Unsupported(std::string_view text, std::string hint) const {
  return Error(kFeatureNotSupported, fmt::format("{}: {}", signature_.name, text)).Hint(std::move(hint));
}

}  // namespace reprise::ops::transformer
