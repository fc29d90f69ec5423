// SPDX-License-Identifier: Apache-2.0
//
// ggml's CPU backend: a graph of adds of float tensors, computed by a pool of threads that is kept between runs.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "peers/peer.h"

namespace bench {
namespace {

struct AddGraph {
  ggml_context* context = nullptr;
  ggml_threadpool* pool = nullptr;
  ggml_cgraph* graph = nullptr;
  ggml_tensor* sum = nullptr;
  ggml_cplan plan{};
  std::vector<uint8_t> work;

  AddGraph(int nodes, size_t elements, int threads) {
    const size_t tensors = static_cast<size_t>(nodes) + 8;
    ggml_init_params parameters{};
    parameters.mem_size = 2 * elements * sizeof(float) + 4096 + tensors * (ggml_tensor_overhead() + 256) +
                          ggml_graph_overhead_custom(2 * tensors, false);
    context = ggml_init(parameters);
    Require(context != nullptr, "ggml: no memory");
    sum = ggml_new_tensor_1d(context, GGML_TYPE_F32, static_cast<int64_t>(elements));
    ggml_tensor* addend = ggml_new_tensor_1d(context, GGML_TYPE_F32, static_cast<int64_t>(elements));
    Fill(sum, 0);
    Fill(addend, 1);
    graph = ggml_new_graph_custom(context, 2 * tensors, false);
    ggml_tensor* last = sum;
    for (int i = 0; i < nodes; ++i) last = ggml_add_inplace(context, last, addend);
    ggml_build_forward_expand(graph, last);
    ggml_threadpool_params pool_parameters = ggml_threadpool_params_default(threads);
    pool = ggml_threadpool_new(&pool_parameters);
    Require(pool != nullptr, "ggml: no threads");
    plan = ggml_graph_plan(graph, threads, pool);
    work.resize(plan.work_size + 1);
    plan.work_data = work.data();
    Run();
    Run();
    const auto* values = static_cast<const float*>(ggml_get_data(sum));
    const auto expected = static_cast<float>(2 * nodes);
    Require(std::all_of(values, values + elements, [&](float value) { return value == expected; }), "ggml: wrong sums");
  }
  ~AddGraph() {
    ggml_threadpool_free(pool);
    ggml_free(context);
  }
  AddGraph(const AddGraph&) = delete;

  static void Fill(ggml_tensor* tensor, float value) {
    auto* values = static_cast<float*>(ggml_get_data(tensor));
    std::fill(values, values + ggml_nelements(tensor), value);
  }
  void Run() { Require(ggml_graph_compute(graph, &plan) == GGML_STATUS_SUCCESS, "ggml: ggml_graph_compute failed"); }
};

class Ggml final : public Peer {
 public:
  // Threads of its pools poll for a long time; the next run wakes them.
  void Rest() override {
    for (const std::weak_ptr<AddGraph>& graph : graphs_) {
      if (const auto alive = graph.lock()) ggml_threadpool_pause(alive->pool);
    }
  }
  // It has no empty node: its chain is one of the least work it does.
  PeerWork OwnChain(int nodes) override { return Adds(nodes, 8, 1); }
  PeerWork Adds(int nodes, size_t elements, int threads) override {
    auto graph = std::make_shared<AddGraph>(nodes, elements, threads);
    graphs_.push_back(graph);
    return [graph](int repetitions) {
      for (int i = 0; i < repetitions; ++i) graph->Run();
    };
  }

 private:
  std::vector<std::weak_ptr<AddGraph>> graphs_;
};

}  // namespace

std::unique_ptr<Peer> MakeGgml() { return std::make_unique<Ggml>(); }

}  // namespace bench
