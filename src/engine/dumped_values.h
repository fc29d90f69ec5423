// SPDX-License-Identifier: Apache-2.0
//
// Values of tensors as files.
#pragma once

#include <string>

#include "engine/value_dump.h"

namespace reprise::engine {

/// As NumPy reads it. bfloat16 as float32; types that NumPy does not have as bytes.
std::string NpyOf(const DumpedValue& value);

inline constexpr const char* kStatisticsHead =
    "Op Type,Op Name,Input/Output,Index,Data Size,Data Type,Shape,Count,Max Value,Min Value,Avg Value,Nan Count,"
    "Inf Count\n";
/// A line of a table; without numbers for types that have none.
std::string StatisticsOf(const DumpedValue& value);

}  // namespace reprise::engine
