// SPDX-License-Identifier: Apache-2.0
//
// Which bank of tuned choices holds for a graph.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/tuning_bank.h"
#include "engine/options.h"

namespace reprise::engine {

/// Folders where a bank may be, the first that has one counts. Empty texts are left out.
std::vector<std::string> BankFolders(std::string_view environment, std::string_view option, std::string_view home);
/// Those of TUNE_BANK_PATH, ge.op_bank_path and HOME.
std::vector<std::string> BankFolders(const OptionSet& options);

/// The bank for a compilation; null where there is none. One that cannot be read is told of in a warning. Banks are
/// read once in the process, and again when their file has another size.
std::shared_ptr<const compiler::TuningBank> FindBank(const OptionSet& options);
/// The same object as FindBank's, made where it is not there.
StatusOr<std::shared_ptr<compiler::TuningBank>> OpenBank(const std::string& folder);

}  // namespace reprise::engine
