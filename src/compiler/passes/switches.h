// SPDX-License-Identifier: Apache-2.0
//
// What options, files and reports say of passes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/passes/passes.h"

namespace reprise::compiler {

/// "PassA:on;PassB:off". Refuses (100000) other words, with the part that is wrong.
StatusOr<Switches> ParseSwitches(std::string_view text);

/// "PassA,PassB" of ge.disableOptimizations. Names that cannot be disabled come in `unknown`.
std::vector<std::string> ParseDisabled(std::string_view text, std::vector<std::string>& unknown);

/// {"Switch": {"GraphFusion": {"PassA": "on", "ALL": "off"}, "UBFusion": {…}}}: the text of ge.fusionSwitchFile.
/// `name` is what refusals (100000) call it. Other members are passed over.
Status ParseSwitchFile(std::string_view json, std::string_view name, PassOptions& options);
/// Reads the file, and refuses (100000) one that cannot be read.
Status ReadSwitchFile(const std::string& path, PassOptions& options);

/// fusion_result.json for one graph: how often each fusion matched and was done.
std::string FusionResult(uint64_t session, uint32_t graph, const PassRecords& records);

}  // namespace reprise::compiler
