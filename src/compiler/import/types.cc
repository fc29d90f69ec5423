// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/import/import.h"

namespace reprise::compiler {
namespace {

// By number of DataType in api/ge.proto: the number of ge::DataType, which is that of aclDataType.
constexpr std::array<int32_t, 41> kTypes = {-1, 0,  1,  2,  4,  6,  7,  3,  9,  8,  10, 12, 11, 13,
                                            14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                            29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41};

struct Format {
  int32_t number;
  std::string_view name;
};
constexpr Format kFormats[] = {{0, "NCHW"},
                               {1, "NHWC"},
                               {2, "ND"},
                               {3, "NC1HWC0"},
                               {4, "FRACTAL_Z"},
                               {5, "NC1C0HWPAD"},
                               {6, "NHWC1C0"},
                               {7, "FSR_NCHW"},
                               {8, "FRACTAL_DECONV"},
                               {9, "C1HWNC0"},
                               {12, "NC1HWC0_C04"},
                               {13, "FRACTAL_Z_C04"},
                               {14, "CHWN"},
                               {16, "HWCN"},
                               {17, "NC1KHKWHWC0"},
                               {18, "BN_WEIGHT"},
                               {19, "FILTER_HWCK"},
                               {25, "C1HWNCoC0"},
                               {26, "MD"},
                               {27, "NDHWC"},
                               {28, "FRACTAL_ZZ"},
                               {29, "FRACTAL_NZ"},
                               {30, "NCDHW"},
                               {31, "DHWCN"},
                               {32, "NDC1HWC0"},
                               {33, "FRACTAL_Z_3D"},
                               {34, "CN"},
                               {35, "NC"},
                               {36, "DHWNC"},
                               {38, "FRACTAL_ZN_LSTM"},
                               {39, "FRACTAL_Z_G"},
                               {40, "RESERVED"},
                               {41, "ALL"},
                               {42, "NULL"},
                               {43, "ND_RNN_BIAS"},
                               {44, "FRACTAL_ZN_RNN"},
                               {45, "NYUV"},
                               {46, "NYUV_A"},
                               {47, "NCL"},
                               {48, "FRACTAL_Z_WINO"},
                               {49, "C1HWC0"},
                               {50, "FRACTAL_NZ_C0_16"},
                               {51, "FRACTAL_NZ_C0_32"},
                               {52, "FRACTAL_NZ_C0_2"},
                               {53, "FRACTAL_NZ_C0_4"},
                               {54, "FRACTAL_NZ_C0_8"}};

}  // namespace

std::string FormatName(int32_t format) {
  for (const Format& known : kFormats) {
    if (known.number == (format & 0xFF)) return std::string(known.name);
  }
  return fmt::format("FORMAT_{}", format & 0xFF);
}

int32_t FormatOfName(std::string_view name) {
  for (const Format& known : kFormats) {
    if (known.name == name) return known.number;
  }
  return -1;
}

int32_t TypeOfProto(int type) {
  return type >= 0 && type < static_cast<int>(kTypes.size()) ? kTypes[static_cast<size_t>(type)] : -1;
}

int ProtoOfType(int32_t dtype) {
  const auto* const found = std::find(kTypes.begin() + 1, kTypes.end(), dtype);
  return found == kTypes.end() ? 0 : static_cast<int>(found - kTypes.begin());
}

}  // namespace reprise::compiler
