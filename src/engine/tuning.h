// SPDX-License-Identifier: Apache-2.0
//
// Tuning as programs call it (AOE): begun once in the process; tunings by number, each with an engine session for its
// trials, a graph and sample inputs; what was measured goes into the bank that compilations use.
//
//     Begin ──Open──► tuning ──session, graph, inputs──► Run (any number of times) ──Close──► End
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "compiler/tune.h"
#include "engine/options.h"
#include "engine/session.h"

namespace reprise::engine {

// Threads: thread-safe.

/// Options: work_path, a folder that exists (default "."), and job_type, "1": fusions, "2" (default): how operators are
/// split over threads. Begun already: a warning.
Status BeginTuning(const OptionMap& options);
/// Closes all tunings; nothing happens when it was not begun.
Status EndTuning();

/// kFailed before BeginTuning.
StatusOr<uint64_t> OpenTuning();

// kParamInvalid for a tuning that is not there. All but CloseTuning may be called again; the last call counts.
Status CloseTuning(uint64_t id);
Status SetTuningSession(uint64_t id, uint64_t session);
Status SetTuningGraph(uint64_t id, std::shared_ptr<const compiler::Graph> graph);
Status SetTuningInputs(uint64_t id, std::vector<HostTensor> inputs);
/// Graphs that run once before the trials, each with its inputs.
Status SetDependGraphs(uint64_t id, std::vector<std::shared_ptr<const compiler::Graph>> graphs);
Status SetDependInputs(uint64_t id, std::vector<std::vector<HostTensor>> inputs);

/// Tries the choices of a compilation on copies, and keeps the best ones in the bank (banks.h) and, also in the form of
/// a bank, under work_path. `tried` and `known` of the report are 0 where the graph leaves no choice. Shows its
/// progress on standard error if that is a terminal. SIGINT ends it after the current measurement, with kFailed: what
/// was measured is kept; then the signal is raised again for the program's own handler. One tuning runs at a time:
/// kGraphAlreadyRunning.
StatusOr<compiler::TuneReport> RunTuning(uint64_t id, const OptionMap& options);

/// In place of the clock, see compiler::TuneOptions; empty: the clock again.
void SetTuningClock(std::function<double(const std::string& key, const std::string& choice)> clock);

}  // namespace reprise::engine
