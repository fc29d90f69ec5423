// SPDX-License-Identifier: Apache-2.0
//
// Contexts and operations, as programs see them.
#include "facade/atb/operation.h"

#include <fmt/format.h>

#include <new>
#include <span>
#include <utility>
#include <vector>

#include "atb/utils.h"
#include "facade/atb/params.h"
#include "ops/operator_chain.h"
#include "runtime/report.h"
#include "runtime/stream.h"

#pragma GCC visibility push(default)

namespace atb {
template <class Param>
[[gnu::visibility("default")]] Status CreateOperation(const Param& param, Operation** operation);
}  // namespace atb

#pragma GCC visibility pop

namespace reprise::atb_library {
namespace {

using ops::transformer::GivenTensor;
using ops::transformer::Request;
using runtime::Api;
using runtime::Refuse;

// The layouts that programs are compiled with.
static_assert(sizeof(::atb::Tensor) == 104 && sizeof(::atb::SVector<::atb::Tensor>) == 6784);

constexpr std::size_t kMostDims = ::atb::MAX_DIM;

// 161002 for more dims than a description has.
StatusOr<std::span<const int64_t>> SizesOf(const ::atb::TensorDesc& desc) {
  if (desc.shape.dimNum <= kMostDims) return std::span<const int64_t>(desc.shape.dims, desc.shape.dimNum);
  return Error(kOperatorArgumentInvalid,
               fmt::format("a tensor has {} dims, at most {} are possible", desc.shape.dimNum, kMostDims))
      .Hint("set desc.shape.dimNum, and so many of desc.shape.dims");
}

StatusOr<Tensors> TensorsOf(const ::atb::SVector<::atb::Tensor>& list) {
  Tensors tensors;
  tensors.reserve(list.size());
  for (const ::atb::Tensor& from : list) {
    GivenTensor& to = tensors.emplace_back();
    if (from.deviceData == nullptr && from.hostData == nullptr && from.desc.dtype == ACL_DT_UNDEFINED) continue;
    REPRISE_ASSIGN_OR_RETURN(const std::span<const int64_t> sizes, SizesOf(from.desc));
    to.view = ops::RowMajor(static_cast<kernels::DType>(from.desc.dtype), sizes, from.deviceData);
    to.view.format = from.desc.format == ACL_FORMAT_UNDEFINED ? ACL_FORMAT_ND : from.desc.format;
    to.host = from.deviceData == nullptr ? from.hostData : nullptr;
    to.is_given = true;
  }
  return tensors;
}

class StreamContext final : public ::atb::Context {
 public:
  ::atb::Status SetExecuteStream(aclrtStream stream) override {
    streams_ = {stream};
    return 0;
  }
  aclrtStream GetExecuteStream() const override { return streams_.empty() ? nullptr : streams_[0]; }
  ::atb::Status SetAsyncTilingCopyStatus(bool enable) override {
    is_async_ = enable;
    return 0;
  }
  bool GetAsyncTilingCopyStatus() const override { return is_async_; }
  ::atb::Status SetExecuteStreams(const std::vector<aclrtStream>& streams) override {
    streams_ = streams;
    return 0;
  }
  std::vector<aclrtStream> GetExecuteStreams() override { return streams_; }
  ::atb::Status SetExecuteType(::atb::ExecuteType type) override {
    if (type == ::atb::EXECUTE_NORMAL) return 0;
    return Refuse("atb::Context::SetExecuteType", errors::kFeatureNotSupported,
                  "an operation is prepared and launched in one step", "leave the type at EXECUTE_NORMAL");
  }
  ::atb::ExecuteType GetExecuteType() override { return ::atb::EXECUTE_NORMAL; }
  ::atb::Status SetLaunchMode(::atb::LaunchMode mode) override {
    if (mode == ::atb::KERNEL_LAUNCH_MODE) return 0;
    return Refuse("atb::Context::SetLaunchMode", errors::kFeatureNotSupported, "operations keep no graphs of their own",
                  "capture the stream with aclmdlRICaptureBegin instead");
  }
  ::atb::LaunchMode GetLaunchMode() override { return ::atb::KERNEL_LAUNCH_MODE; }

 private:
  std::vector<aclrtStream> streams_;
  bool is_async_ = false;
};

}  // namespace

Status RunOn(::atb::Context* context, const Request& request, const Tensors& inputs, const Tensors& outputs) {
  if (context == nullptr) {
    return Error(kOperatorArgumentNull, "the context is null").Hint("make one with atb::CreateContext");
  }
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, runtime::FindStream(context->GetExecuteStream()));
  return ops::transformer::Run(request, inputs, outputs, *stream);
}

::atb::Status RequestOperation::InferShape(const ::atb::SVector<::atb::TensorDesc>& in,
                                           ::atb::SVector<::atb::TensorDesc>& out) const {
  return Api("atb::Operation::InferShape", [&]() -> Status {
    std::vector<ops::transformer::Description> inputs;
    for (const ::atb::TensorDesc& desc : in) {
      REPRISE_ASSIGN_OR_RETURN(const std::span<const int64_t> sizes, SizesOf(desc));
      inputs.push_back({desc.dtype, {sizes.begin(), sizes.end()}});
    }
    REPRISE_ASSIGN_OR_RETURN(const auto outputs, ops::transformer::InferOutputs(request_, inputs));
    out.clear();
    for (const ops::transformer::Description& output : outputs) {
      ::atb::TensorDesc desc;
      desc.dtype = static_cast<aclDataType>(output.dtype_number);
      desc.format = ACL_FORMAT_ND;
      desc.shape.dimNum = output.sizes.size();
      for (size_t d = 0; d < output.sizes.size(); ++d) desc.shape.dims[d] = output.sizes[d];
      out.push_back(desc);
    }
    return {};
  });
}

uint32_t RequestOperation::GetInputNum() const {
  return static_cast<uint32_t>(ops::transformer::SignatureOf(request_).inputs.size());
}
uint32_t RequestOperation::GetOutputNum() const {
  return static_cast<uint32_t>(ops::transformer::SignatureOf(request_).outputs.size());
}

::atb::Status RequestOperation::Setup(const ::atb::VariantPack& tensors, uint64_t& workspace_bytes,
                                      ::atb::Context* context) {
  workspace_bytes = 0;
  return Api("atb::Operation::Setup", [&]() -> Status {
    if (context == nullptr) {
      return Error(kOperatorArgumentNull, "the context is null").Hint("make one with atb::CreateContext");
    }
    REPRISE_ASSIGN_OR_RETURN(const Tensors inputs, TensorsOf(tensors.inTensors));
    REPRISE_ASSIGN_OR_RETURN(const Tensors outputs, TensorsOf(tensors.outTensors));
    return ops::transformer::Check(request_, inputs, outputs);
  });
}

::atb::Status RequestOperation::Execute(const ::atb::VariantPack& tensors, uint8_t* /*workspace*/,
                                        uint64_t /*workspace_bytes*/, ::atb::Context* context) {
  return Api("atb::Operation::Execute", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const Tensors inputs, TensorsOf(tensors.inTensors));
    REPRISE_ASSIGN_OR_RETURN(const Tensors outputs, TensorsOf(tensors.outTensors));
    return RunOn(context, request_, inputs, outputs);
  });
}

}  // namespace reprise::atb_library

namespace atb {

using reprise::atb_library::RequestOperation;
using reprise::atb_library::StreamContext;
using reprise::runtime::Api;

#pragma GCC visibility push(default)

Status CreateContext(Context** context) {
  return Api("atb::CreateContext", [&]() -> reprise::Status {
    if (context == nullptr) return reprise::runtime::NullParameter(reprise::errors::kOperatorArgumentNull, "context");
    *context = new StreamContext;
    return {};
  });
}

// Not by way of Api: programs call them when the process ends, too.
Status DestroyContext(Context* context) {
  delete context;
  return 0;
}

Status DestroyOperation(Operation* operation) {
  delete operation;
  return 0;
}

template <class Param>
Status CreateOperation(const Param& param, Operation** operation) {
  return Api("atb::CreateOperation", [&]() -> reprise::Status {
    if (operation == nullptr)
      return reprise::runtime::NullParameter(reprise::errors::kOperatorArgumentNull, "operation");
    *operation = nullptr;
    REPRISE_ASSIGN_OR_RETURN(auto request, reprise::atb_library::Read(param));
    *operation = new RequestOperation(std::move(request));
    return {};
  });
}

template Status CreateOperation(const infer::ElewiseParam&, Operation**);
template Status CreateOperation(const infer::GroupTopkParam&, Operation**);
template Status CreateOperation(const infer::LinearParam&, Operation**);
template Status CreateOperation(const infer::PagedAttentionParam&, Operation**);
template Status CreateOperation(const infer::ReshapeAndCacheParam&, Operation**);
template Status CreateOperation(const infer::RmsNormParam&, Operation**);
template Status CreateOperation(const infer::RopeParam&, Operation**);
template Status CreateOperation(const infer::SelfAttentionParam&, Operation**);

uint64_t Utils::GetTensorSize(const Tensor& tensor) {
  const auto type = static_cast<reprise::kernels::DType>(tensor.desc.dtype);
  if (!reprise::kernels::IsKnown(type) || tensor.desc.shape.dimNum > MAX_DIM) return 0;
  auto bytes = static_cast<uint64_t>(reprise::kernels::ItemSize(type));
  for (uint64_t d = 0; d < tensor.desc.shape.dimNum; ++d) {
    const int64_t size = tensor.desc.shape.dims[d];
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return 0;
  }
  return bytes;
}

#pragma GCC visibility pop

}  // namespace atb
