// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "torchair/graph.h"

namespace torchair {
namespace {

constexpr std::array kTypes = {
    std::pair{at::kFloat, ge::DT_FLOAT},
    std::pair{at::kHalf, ge::DT_FLOAT16},
    std::pair{at::kChar, ge::DT_INT8},
    std::pair{at::kInt, ge::DT_INT32},
    std::pair{at::kByte, ge::DT_UINT8},
    std::pair{at::kShort, ge::DT_INT16},
    std::pair{at::kUInt16, ge::DT_UINT16},
    std::pair{at::kUInt32, ge::DT_UINT32},
    std::pair{at::kLong, ge::DT_INT64},
    std::pair{at::kUInt64, ge::DT_UINT64},
    std::pair{at::kDouble, ge::DT_DOUBLE},
    std::pair{at::kBool, ge::DT_BOOL},
    std::pair{at::kComplexFloat, ge::DT_COMPLEX64},
    std::pair{at::kComplexDouble, ge::DT_COMPLEX128},
    std::pair{at::kComplexHalf, ge::DT_COMPLEX32},
    std::pair{at::kBFloat16, ge::DT_BF16},
    std::pair{at::kQInt8, ge::DT_QINT8},
    std::pair{at::kQUInt8, ge::DT_QUINT8},
    std::pair{at::kQInt32, ge::DT_QINT32},
    std::pair{at::kFloat8_e5m2, ge::DT_FLOAT8_E5M2},
    std::pair{at::kFloat8_e4m3fn, ge::DT_FLOAT8_E4M3FN},
    std::pair{at::kFloat8_e8m0fnu, ge::DT_FLOAT8_E8M0},
};

}  // namespace

ge::DataType TypeOf(at::ScalarType type) {
  for (const auto& [torch_type, engine_type] : kTypes) {
    if (torch_type == type) return engine_type;
  }
  TORCH_CHECK(false, "the graph engine has no type for tensors of ", type);
}

std::optional<at::ScalarType> ScalarTypeOf(ge::DataType type) {
  // Types whose elements PyTorch sees as bytes, unless the program around the graph says more.
  if (type == ge::DT_HIFLOAT8 || type == ge::DT_FLOAT8_E8M0 || type == ge::DT_FLOAT4_E2M1 ||
      type == ge::DT_FLOAT4_E1M2) {
    return at::kByte;
  }
  for (const auto& [torch_type, engine_type] : kTypes) {
    if (engine_type == type) return torch_type;
  }
  return std::nullopt;
}

}  // namespace torchair
