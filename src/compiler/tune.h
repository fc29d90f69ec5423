// SPDX-License-Identifier: Apache-2.0
//
// Tuning: choices of a compilation that are measured on this machine, with the shapes of one graph, and kept in a bank
// for later compilations.
//
//     candidates                             key in the bank
//     how a task is split over threads       operator, types, shapes and attributes of its node
//     each fusion that the graph admits      the graph and the pass
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/storage.h"
#include "compiler/tuning_bank.h"

namespace reprise::compiler {

struct TuneOptions {
  bool tunes_fusions = true;
  bool tunes_splits = true;
  /// Told before each candidate set; false ends the tuning with what it has. May be empty.
  std::function<bool(size_t done, size_t total, const std::string& what)> progress;
  /// In place of the clock: what a candidate takes, in us. Empty: it is run and measured.
  std::function<double(const std::string& key, const std::string& choice)> measure;
  /// Told of each entry when it is in the bank. May be empty.
  std::function<Status(const std::string& key, const TuningBank::Entry& entry)> on_entry;
};

struct TuneReport {
  size_t tried = 0;     ///< keys that were measured
  size_t known = 0;     ///< that the bank had
  size_t improved = 0;  ///< of those measured: another choice than without tuning
  bool is_complete = true;
};

/// Tunes a graph of known shapes on copies of the inputs; `report->tried` and `known` are 0 where there is nothing to
/// tune. Waits for the stream.
StatusOr<TuneReport> Tune(const Graph& graph, const CompileOptions& options, runtime::Stream& stream,
                          std::span<const RunTensor> inputs, TuningBank& bank, const TuneOptions& tune_options = {});

/// What stands for a task in the bank: the `number`-th of its node.
std::string SplitKey(const Graph& graph, NodeId node, size_t number);
/// Gives a launch that was not yet sealed anew the split of the bank's choice; texts that are none change nothing.
void ApplySplit(ops::Launch& launch, const std::string& choice);

/// Turns passes off that the bank says make this graph slower.
void ApplyFusions(const Graph& graph, const TuningBank& bank, PassOptions& passes);

}  // namespace reprise::compiler
