// SPDX-License-Identifier: Apache-2.0
//
// From the parameters of the library to the requests of ops/transformer: what differs from the default of a member that
// nothing here looks at is refused with 207000.
#pragma once

#include "atb/infer_op_params.h"
#include "base/status.h"
#include "ops/transformer/operation.h"

namespace reprise::atb_library {

namespace infer = ::atb::infer;

StatusOr<ops::transformer::Request> Read(const infer::ElewiseParam& param);
StatusOr<ops::transformer::Request> Read(const infer::GroupTopkParam& param);
StatusOr<ops::transformer::Request> Read(const infer::LinearParam& param);
StatusOr<ops::transformer::Request> Read(const infer::PagedAttentionParam& param);
StatusOr<ops::transformer::Request> Read(const infer::ReshapeAndCacheParam& param);
StatusOr<ops::transformer::Request> Read(const infer::RmsNormParam& param);
StatusOr<ops::transformer::Request> Read(const infer::RopeParam& param);
StatusOr<ops::transformer::Request> Read(const infer::SelfAttentionParam& param);

/// 207000: "<operation>: <member> is <value>".
Status Unsupported(const char* operation, const char* member, int64_t value, std::string hint);

}  // namespace reprise::atb_library
