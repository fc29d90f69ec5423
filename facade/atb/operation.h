// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "atb/operation.h"
#include "base/status.h"
#include "ops/transformer/operation.h"

namespace reprise::atb_library {

using Tensors = std::vector<ops::transformer::GivenTensor>;

/// An operation as its parameters say.
class RequestOperation final : public ::atb::Operation {
 public:
  explicit RequestOperation(ops::transformer::Request request) : request_(std::move(request)) {}

  std::string GetName() const override { return std::string(ops::transformer::SignatureOf(request_).name); }
  ::atb::Status InferShape(const ::atb::SVector<::atb::TensorDesc>& in,
                           ::atb::SVector<::atb::TensorDesc>& out) const override;
  uint32_t GetInputNum() const override;
  uint32_t GetOutputNum() const override;
  ::atb::Status Setup(const ::atb::VariantPack& tensors, uint64_t& workspace_bytes, ::atb::Context* context) override;
  ::atb::Status Execute(const ::atb::VariantPack& tensors, uint8_t* workspace, uint64_t workspace_bytes,
                        ::atb::Context* context) override;

 private:
  const ops::transformer::Request request_;
};

/// 161001 for null; runs the request on the stream of the context.
Status RunOn(::atb::Context* context, const ops::transformer::Request& request, const Tensors& inputs,
             const Tensors& outputs);

}  // namespace reprise::atb_library
