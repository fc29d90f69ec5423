/* SPDX-License-Identifier: Apache-2.0
 *
 * Capture once, replay often, with memory and random numbers that stay right.
 *
 *     reprise::Graph graph;
 *     {
 *       reprise::Capture capture(graph, stream);     // what is submitted to `stream` from here on is recorded
 *       float* y = static_cast<float*>(reprise::device_memory::Allocate(bytes, stream));
 *       aclnnAdd(…, stream);
 *     }                                              // recorded and ready; after an exception: nothing is left of it
 *     graph.Replay(stream);
 *     aclrtSynchronizeStream(stream);
 *
 * All functions throw reprise::Exception with the number that the C interface returns for the same mistake.
 */
#ifndef REPRISE_GRAPH_H_
#define REPRISE_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "error.h"
#include "memory_types.h"

namespace reprise {

/** Which synchronous calls are refused while the capture is open; the numbers are those of aclmdlRICaptureMode. */
enum class CaptureMode {
  kGlobal = 0,       ///< those of all threads
  kThreadLocal = 1,  ///< those of this thread
  kRelaxed = 2       ///< none
};

enum class GraphState {
  kEmpty,
  kCapturing,
  kCaptured,  ///< recorded, not instantiated (keep_graph)
  kReady,
  kFailed  ///< the capture ended with an error; Reset or a new capture makes it usable
};

/** Bytes that a graph keeps. Pools that are shared are counted whole. */
struct GraphMemory {
  uint64_t device_reserved_bytes = 0;  ///< segments of its pool
  uint64_t device_live_bytes = 0;      ///< blocks in it that somebody holds
  uint64_t plan_bytes = 0;             ///< host memory of nodes, arguments and plan
};

/** A captured graph. One thread at a time, except Replay, which any number of threads may call. Movable.
 *  Destroying it resets it. */
class Graph {
 public:
  struct Options {
    /// Capturing does not instantiate: the recorded graph can be changed through raw_graph() before Instantiate().
    bool keep_graph = false;
  };
  struct CaptureOptions {
    void* stream = nullptr;  ///< null: the calling thread's current stream. Not a default stream.
    PoolId pool;             ///< of another graph or of NewPoolId(), to share memory; default: one of its own
    CaptureMode mode = CaptureMode::kGlobal;
  };

  Graph();
  explicit Graph(Options options);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Either the capture has begun, or nothing has changed.
  void CaptureBegin(const CaptureOptions& options);
  void CaptureBegin() { CaptureBegin(CaptureOptions()); }
  /// On a wrong stream (the current one differs) or a wrong thread the capture stays open. After any other error the
  /// graph has failed, and its pool is given back.
  void CaptureEnd();
  /// With keep_graph: makes the recorded graph ready, or ready again after changes.
  void Instantiate();
  /// Queues one execution on `stream` (null: the calling thread's current stream); instantiates if that is due.
  /// Executions of one graph run one after another, whatever streams they are on.
  void Replay(void* stream = nullptr);
  /// Back to empty, from any state; an open capture is aborted. Waits for executions. Memory that somebody still holds
  /// stays valid.
  void Reset() noexcept;

  GraphState state() const noexcept;
  /// Once captured.
  PoolId pool() const;
  GraphMemory memory() const;
  /// The aclmdlRI of the recorded graph (only with keep_graph) and of the instantiated one. Owned by the graph.
  void* raw_graph() const;
  void* raw_executable() const;

  /// Writes the tasks, those of bodies included, by the ending of the name: .json (Chrome trace), .dot (Graphviz), .svg
  /// (a picture, in which the tasks of long streams share boxes unless `every_task`; the others list all in any case).
  /// False, and a warning, when there is nothing to write. Throws Exception: 107000 for other endings; 107000 or 107009
  /// when the file cannot be written.
  bool Dump(const std::string& path, bool every_task = false) const;

  /// Records what follows on the current stream as the body of a condition: it runs in a replay when the byte at
  /// `predicate` (device memory) is not zero then. Returns the stream to submit the body to, which is the current
  /// stream until EndConditional: `stream`, which is not captured yet, or if null one made for it. Bodies nest.
  void* BeginIf(const void* predicate, void* stream = nullptr);
  void EndConditional();
  /// Ends a body in which the program has failed: streams and pools are restored, but the capture is spoiled, so that
  /// CaptureEnd fails. `why`: for its message.
  void AbandonConditional(const std::string& why);

  /// The graph that captures on the stream (null: the current stream).
  /// Throws 107029 when the stream is not being captured, or not by a Graph.
  static Graph& Capturing(void* stream = nullptr);

  class Impl;  ///< for the layers above

 private:
  friend class Capture;
  std::shared_ptr<Impl> impl_;
};

/** One capture as a scope: begins here, ends with the scope. Leaving the scope by an exception discards the capture and
 *  resets the graph. */
class Capture {
 public:
  explicit Capture(Graph& graph, void* stream = nullptr);
  Capture(Graph& graph, const Graph::CaptureOptions& options);
  /// Throws what CaptureEnd throws, unless an exception is under way.
  ~Capture() noexcept(false);
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Ends the capture now.
  void End();

 private:
  void Begin(const Graph::CaptureOptions& options);
  Graph& graph_;
  void* previous_stream_ = nullptr;
  int device_ = 0;
  int exceptions_;  // under way when it began
  bool open_ = false;
};

}  // namespace reprise

#endif  // REPRISE_GRAPH_H_
