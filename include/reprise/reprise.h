// SPDX-License-Identifier: Apache-2.0
//
// The C++ API: what the C interface of acl/acl.h does not offer. Link Reprise::reprise (libreprise.so) besides the C
// libraries; handles are those of the C interface.
//
//     reprise::WriteGraphPicture(model, "graph.svg");
//     reprise::LaunchClosure(stream, "checksum", [buffer] { return buffer->Verify() ? 0 : 507015; });
//
// Errors: functions return 0 or a public error number (see docs/errors.md); aclGetRecentErrMsg has the words.
#ifndef REPRISE_REPRISE_H_
#define REPRISE_REPRISE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel.h"
#include "operands.h"

namespace reprise {

/// "0.1.0"
const char* Version();

/// The bill of a graph: what it holds on to, bodies of conditional tasks included.
struct GraphStats {
  uint32_t tasks;         ///< nodes, the resets that sealing adds included
  uint32_t streams;       ///< graph-internal streams; bound streams of a model built by hand
  uint32_t events;        ///< graph-internal events
  uint64_t memory_bytes;  ///< host memory of nodes, arguments and plan
};

/// Fills `stats` for a model of the current context, also while it is being captured.
///
/// Threads: a model that is being captured must not be captured further meanwhile.
/// Errors: 107000 null argument; 107017 stale handle; 107002, 107004 other context.
int GetGraphStats(void* model_ri, GraphStats* stats);

/// Writes an SVG picture: one column per stream, tasks top-down, arrows where a stream waits for another, bodies of
/// conditional tasks as frames. A name that ends in .dot makes a file for Graphviz, one in .json a trace.
///
/// \param every_task  a box for each task; else those of long streams share boxes, by the line of the program that
///                    launched them or by name
///
/// Errors: as above; 107000 for other endings; 107009 when the file cannot be written (107000 for .json).
int WriteGraphPicture(void* model_ri, const char* path, bool every_task = false);

/// Queues opaque host work that runs on a device worker, in stream order, like a kernel.
///
/// \param stream   aclrtStream; null means the default stream of the current context
/// \param name     shown in dumps; copied
/// \param closure  owns what it needs; returns 0 or an error number, which the stream reports at its next
///                 synchronisation. Destroyed after its only run, or with the graph that captured it. Must not wait for
///                 the stream it runs on.
///
/// Threads: thread-safe.
/// Capture: recorded as a kernel; runs once per replay.
int LaunchClosure(void* stream, const char* name, std::function<int()> closure);

/// As LaunchClosure above, for a closure whose caller says what memory it touches, all of it; see operands.h.
///
/// Errors: as above; 107000 for operands that operands.h refuses.
int LaunchClosure(void* stream, const char* name, std::function<int()> closure,
                  const std::vector<RepriseOperand>& operands);

}  // namespace reprise

#endif  // REPRISE_REPRISE_H_
