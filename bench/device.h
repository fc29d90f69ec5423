// SPDX-License-Identifier: Apache-2.0
//
// Our side of every comparison, through the public C interface alone: a device with streams, kernels, graphs that are
// captured with streams and events.
#pragma once

#include <acl/acl.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "yardsticks.h"

namespace bench {

/// Ends the program with the library's words when a call of it fails.
void CheckAcl(int code, const char* call);
#define CHECK_ACL(call) ::bench::CheckAcl((call), #call)

struct Kernels {
  aclrtFuncHandle no_op = nullptr;  ///< 8 bytes of arguments
  aclrtFuncHandle count = nullptr;  ///< adds its argument to a counter
  aclrtFuncHandle work = nullptr;   ///< WorkArguments
  aclrtFuncHandle stamp = nullptr;  ///< the same, and notes when the node ran
  std::vector<aclrtFuncHandle> mixed;
};
struct WorkArguments {
  uint32_t iterations;
  uint32_t node;
};

/// What the kernel `count` has added up so far.
uint64_t Counted();

/// Order in which nodes ran: every node of a graph that is checked notes one number.
class Stamps {
 public:
  explicit Stamps(int nodes);
  ~Stamps();
  Stamps(const Stamps&) = delete;
  static void Note(uint32_t node);
  /// Every node ran `times` times, and its last run came after the last runs of its predecessors.
  void Check(const Dag& dag, int times, const char* what) const;

 private:
  std::vector<std::atomic<uint32_t>> at_, runs_;
  std::atomic<uint32_t> clock_{0};
};

/// The device, one stream, the kernels; one in a process.
class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;

  aclrtStream stream() const { return stream_; }
  const Kernels& kernels() const { return kernels_; }

 private:
  aclrtStream stream_ = nullptr;
  Kernels kernels_;
};

void Launch(aclrtFuncHandle kernel, uint64_t argument, aclrtStream stream);

/// A captured graph; destroyed with this.
class Graph {
 public:
  explicit Graph(aclmdlRI model) : model_(model) {}
  ~Graph();
  Graph(Graph&& other) noexcept : model_(other.model_) { other.model_ = nullptr; }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  aclmdlRI model() const { return model_; }

  void Launch(aclrtStream stream) const { CHECK_ACL(aclmdlRIExecuteAsync(model_, stream)); }
  /// Launches and waits.
  void Run(aclrtStream stream) const {
    Launch(stream);
    CHECK_ACL(aclrtSynchronizeStream(stream));
  }

 private:
  aclmdlRI model_;
};

/// `record` submits to the stream.
template <class Record>
Graph Capture(aclrtStream stream, Record record) {
  CHECK_ACL(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  record();
  aclmdlRI model = nullptr;
  CHECK_ACL(aclmdlRICaptureEnd(stream, &model));
  return Graph(model);
}
Graph CaptureChain(aclrtFuncHandle kernel, int nodes, aclrtStream stream, uint64_t argument = 1);

/// Streams and events that captures of DAGs use; kept, because making them is not what is measured.
class DagRecorder {
 public:
  explicit DagRecorder(aclrtStream origin) : origin_(origin) {}
  ~DagRecorder();
  DagRecorder(const DagRecorder&) = delete;

  /// A kernel a node. Nodes share a stream only where one depends on the other anyhow, so that the graph has the edges
  /// of the DAG and no others; every other edge is an event.
  Graph Capture(const Dag& dag, aclrtFuncHandle kernel);
  /// One kernel a node, each task of a fork on a stream of its own.
  Graph CaptureForkJoin(const Dag& dag, aclrtFuncHandle kernel);

 private:
  Graph Record(const Dag& dag, aclrtFuncHandle kernel, const std::vector<size_t>& stream_of, size_t streams);
  aclrtStream origin_;
  std::vector<aclrtStream> streams_;
  std::vector<aclrtEvent> events_;
};

}  // namespace bench
