// SPDX-License-Identifier: Apache-2.0
//
// The graph engine of the process as torchair uses it: begun once, one session, ended at exit.
#pragma once

#include <ge/ge_api.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torchair {

using Options = std::map<std::string, std::string>;

/// The first call counts; later ones do nothing. Throws with the engine's words.
void InitializeEngine(const Options& options);
/// Graphs that were compiled before are of no use afterwards. Harmless when there is nothing to end.
void FinalizeEngine();
/// Throws unless the engine is initialised.
std::shared_ptr<ge::Session> EngineSession();

/// Throws unless `status` is 0: what was tried, then the engine's words.
void CheckEngine(ge::Status status, const std::string& what);

/// {names with kinds} of an operator's inputs, outputs and attributes; false where there is no such operator.
using Names = std::vector<std::pair<std::string, std::string>>;
bool FindOperator(const std::string& type, Names& inputs, Names& outputs, Names& attributes);

}  // namespace torchair
