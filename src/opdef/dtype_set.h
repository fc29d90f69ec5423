// SPDX-License-Identifier: Apache-2.0
//
// Sets of element types, by the names that the tables of operators use (api/ops/*.csv).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/dtype.h"

namespace reprise::opdef {

/// A set of element types.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<kernels::DType> types) {
    for (kernels::DType type : types) bits_ |= 1u << kernels::DTypeIndex(type);
  }
  static constexpr DTypeSet All() {
    DTypeSet all;
    all.bits_ = (1u << kernels::kAllDTypes.size()) - 1;
    return all;
  }
  constexpr bool Has(kernels::DType type) const {
    return kernels::IsKnown(type) && (bits_ >> kernels::DTypeIndex(type) & 1) != 0;
  }
  constexpr DTypeSet Without(DTypeSet other) const {
    DTypeSet rest;
    rest.bits_ = bits_ & ~other.bits_;
    return rest;
  }
  constexpr DTypeSet With(DTypeSet other) const {
    DTypeSet both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  constexpr DTypeSet And(DTypeSet other) const {
    DTypeSet both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr uint32_t bits() const { return bits_; }
  friend constexpr bool operator==(DTypeSet, DTypeSet) = default;

 private:
  uint32_t bits_ = 0;
};

// The sets that api/ops/*.csv name.
inline constexpr DTypeSet kAllTypes = DTypeSet::All();
inline constexpr DTypeSet kFloatingTypes = {kernels::DType::kFloat, kernels::DType::kFloat16, kernels::DType::kBFloat16,
                                            kernels::DType::kDouble};
inline constexpr DTypeSet kComplexTypes = {kernels::DType::kComplex64, kernels::DType::kComplex128};
inline constexpr DTypeSet kNumericTypes = kAllTypes.Without({kernels::DType::kBool});
inline constexpr DTypeSet kRealTypes = kNumericTypes.Without(kComplexTypes);
inline constexpr DTypeSet kRealAndBoolTypes = kAllTypes.Without(kComplexTypes);
inline constexpr DTypeSet kFloatingAndComplexTypes = kFloatingTypes.With(kComplexTypes);
inline constexpr DTypeSet kIntegralTypes = kRealAndBoolTypes.Without(kFloatingTypes);
inline constexpr DTypeSet kIntegerTypes = kRealTypes.Without(kFloatingTypes);
inline constexpr DTypeSet kIndexTypes = {kernels::DType::kInt32, kernels::DType::kInt64};
inline constexpr DTypeSet kMaskTypes = {kernels::DType::kBool, kernels::DType::kUInt8};
inline constexpr DTypeSet kByteTypes = {kernels::DType::kInt8, kernels::DType::kUInt8};
inline constexpr DTypeSet kBoolType = {kernels::DType::kBool};
inline constexpr DTypeSet kSolverTypes = {kernels::DType::kFloat, kernels::DType::kDouble, kernels::DType::kComplex64,
                                          kernels::DType::kComplex128};
inline constexpr DTypeSet kQuantizedTypes = {kernels::DType::kInt8, kernels::DType::kInt32};
inline constexpr DTypeSet kFloatingAndQuantizedTypes = kFloatingTypes.With(kQuantizedTypes);
inline constexpr DTypeSet kInt32Type = {kernels::DType::kInt32};
inline constexpr DTypeSet kInt64Type = {kernels::DType::kInt64};
inline constexpr DTypeSet kWideFloatingTypes = {kernels::DType::kFloat, kernels::DType::kDouble};
inline constexpr DTypeSet kUInt8Type = {kernels::DType::kUInt8};
inline constexpr DTypeSet kFloat32Type = {kernels::DType::kFloat};
inline constexpr DTypeSet kSingleAndHalfTypes = {kernels::DType::kFloat, kernels::DType::kFloat16,
                                                 kernels::DType::kBFloat16};
inline constexpr DTypeSet kSingleHalfAndInt8Types = kSingleAndHalfTypes.With({kernels::DType::kInt8});
inline constexpr DTypeSet kMaskByteTypes = {kernels::DType::kBool, kernels::DType::kInt8, kernels::DType::kUInt8};

}  // namespace reprise::opdef
