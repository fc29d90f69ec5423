// SPDX-License-Identifier: Apache-2.0
//
// From a C call of an operator to the generic one: the generated functions pass their arguments as they are, and each
// becomes an ops::Argument of the kind that its C type says.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>

#include "aclnn/acl_meta.h"
#include "ops/argument.h"
#include "ops/executor.h"
#include "runtime/report.h"

namespace reprise::opapi {

/// A C argument. Conversions are implicit, so that a call reads {self, other, alpha, out}.
struct Packed : ops::Argument {
  using Kind = ops::ParamKind;

  Packed(const aclTensor* p) : Argument(Handle(Kind::kTensor, p)) {}          // NOLINT(google-explicit-constructor)
  Packed(const aclScalar* p) : Argument(Handle(Kind::kScalar, p)) {}          // NOLINT
  Packed(const aclIntArray* p) : Argument(Handle(Kind::kIntArray, p)) {}      // NOLINT
  Packed(const aclFloatArray* p) : Argument(Handle(Kind::kFloatArray, p)) {}  // NOLINT
  Packed(const aclBoolArray* p) : Argument(Handle(Kind::kBoolArray, p)) {}    // NOLINT
  Packed(const aclTensorList* p) : Argument(Handle(Kind::kTensorList, p)) {}  // NOLINT
  Packed(const aclScalarList* p) : Argument(Handle(Kind::kScalarList, p)) {}  // NOLINT
  Packed(const char* p) : Argument(Text(p)) {}                                // NOLINT
  Packed(aclDataType type) : Argument(Integer(Kind::kDType, type)) {}         // NOLINT
  template <std::same_as<bool> T>
  Packed(T value) : Argument(Integer(Kind::kBool, value)) {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) Packed(T value)
      : Argument(Integer(Kind::kInt, static_cast<int64_t>(value))) {}  // NOLINT
  template <std::floating_point T>
  Packed(T value) : Argument(Real(value)) {}  // NOLINT
};
static_assert(sizeof(Packed) == sizeof(ops::Argument), "arrays of one are passed as arrays of the other");

inline aclnnStatus Plan(ops::OpId id, const char* api, std::initializer_list<Packed> args, uint64_t* workspace_bytes,
                        aclOpExecutor** executor) noexcept {
  return runtime::Api(api, [&] {
    return ops::Prepare(id, {static_cast<const ops::Argument*>(args.begin()), args.size()}, workspace_bytes,
                        reinterpret_cast<void**>(executor));
  });
}

/// Tells the workspace of any lengths.
inline aclnnStatus TellMost(ops::OpId id, const char* api, std::initializer_list<Packed> args,
                            uint64_t* workspace_bytes, aclOpExecutor** executor) noexcept {
  return runtime::Api(api, [&] {
    return ops::Prepare(id, {static_cast<const ops::Argument*>(args.begin()), args.size()}, workspace_bytes,
                        reinterpret_cast<void**>(executor), true);
  });
}

inline aclnnStatus Launch(ops::OpId id, const char* api, void* workspace, uint64_t workspace_bytes,
                          aclOpExecutor* executor, aclrtStream stream) noexcept {
  return runtime::Api(api, [&] { return ops::Execute(id, workspace, workspace_bytes, executor, stream); });
}

}  // namespace reprise::opapi
