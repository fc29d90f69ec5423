// SPDX-License-Identifier: Apache-2.0
//
// Checked inputs: weights that a graph takes as inputs are compiled in as if they were constants, and looked at again
// before each run. A run whose weights are not those that were compiled in goes through the graph that reads them.
//
//     run ──► digests of the weights, where they are now ──equal──► graph with the weights compiled in
//                                                        ──else───► graph that takes them as inputs
//
// The look is a task of the stream, behind all that was queued before. Where the kernel tells which pages have been
// written (device/write_watch.h), it reads those alone; else all bytes. So it does not matter who has changed them, or
// through which address.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// Those of `asked` whose values a compilation makes use of, by index of Graph::inputs: filters of convolutions and
/// right operands of products of many rows, weights of 4 bits of products of few, as far as they have `most_bytes`
/// together, and small ones beside them.
/// Inputs that the graph writes are left out. `graph`: after all passes.
std::vector<uint32_t> ChooseCheckedInputs(const Graph& graph, const CompileOptions& options,
                                          std::span<const uint32_t> asked, uint64_t most_bytes);

/// When a look may read.
enum class Look {
  kAtWrites,  ///< what has been written: weights that cannot be watched are not compiled in
  kAlways,    ///< all weights, where they cannot be watched
};

/// `general` with checked inputs. `source`: the graph that it was compiled from. The copy with weights compiled in is
/// made by the first run that is not captured and finds its stream idle; it has constants and features of its own. A
/// run whose weights overlap memory that it writes goes through `general`. Where weights have changed, it is dropped,
/// and made again when they have stayed the same for a while.
std::shared_ptr<Executable> CheckInputs(std::shared_ptr<Executable> general, Graph source,
                                        const CompileOptions& options, std::vector<uint32_t> inputs,
                                        uint64_t most_bytes, Look look);

/// How often weights were compiled in, and how many runs found them changed.
struct CheckedRuns {
  uint64_t preparations = 0;
  uint64_t prepared = 0;  ///< runs that found the weights as they were
  uint64_t general = 0;   ///< runs that found them changed
};
/// Nothing for executables without checked inputs. Runs count when they begin on their stream.
std::optional<CheckedRuns> CheckedRunsOf(const Executable& executable);

}  // namespace reprise::compiler
