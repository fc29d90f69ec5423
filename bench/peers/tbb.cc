// SPDX-License-Identifier: Apache-2.0
//
// oneTBB's flow graph: a continue_node for each node of the DAG, two threads, the caller being one of them. Lightweight
// nodes run inside the put of their predecessor.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <memory>
#include <vector>

#include "peers/body.h"

namespace bench {
namespace {

namespace flow = tbb::flow;

template <class Policy>
struct FlowGraph {
  using Node = flow::continue_node<flow::continue_msg, Policy>;
  flow::graph graph;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Node*> roots;

  template <class Run>
  FlowGraph(const Dag& dag, Run run) {
    for (int i = 0; i < dag.nodes(); ++i) {
      const uint32_t iterations = dag.iterations[static_cast<size_t>(i)];
      const auto index = static_cast<uint32_t>(i);
      nodes.push_back(std::make_unique<Node>(
          graph, [run, index, iterations](const flow::continue_msg&) { run(index, iterations); }));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (dag.predecessors[i].empty()) roots.push_back(nodes[i].get());
      for (const int before : dag.predecessors[i]) flow::make_edge(*nodes[static_cast<size_t>(before)], *nodes[i]);
    }
  }
  void Run() {
    for (Node* root : roots) root->try_put(flow::continue_msg());
    graph.wait_for_all();
  }
};

class Tbb final : public Peer {
 public:
  explicit Tbb(bool lightweight) : lightweight_(lightweight) {}
  PeerWork Graph(const Dag& dag, Body body) override {
    return lightweight_ ? Make<flow::lightweight>(dag, body) : Make<flow::queueing>(dag, body);
  }

 private:
  template <class Policy>
  PeerWork Make(const Dag& dag, Body body) {
    return WithBody(body, [&](auto run) -> PeerWork {
      std::shared_ptr<FlowGraph<Policy>> graph;
      arena_.execute([&] { graph = std::make_shared<FlowGraph<Policy>>(dag, run); });
      return [this, graph](int repetitions) {
        arena_.execute([&] {
          for (int i = 0; i < repetitions; ++i) graph->Run();
        });
      };
    });
  }

  bool lightweight_;
  tbb::global_control threads_{tbb::global_control::max_allowed_parallelism, 2};
  tbb::task_arena arena_{2};
};

}  // namespace

std::unique_ptr<Peer> MakeTbb(bool lightweight) { return std::make_unique<Tbb>(lightweight); }

}  // namespace bench
