// SPDX-License-Identifier: Apache-2.0
//
// Taskflow on two workers: launched and waited for by the caller, or run from inside a worker (corun), where it costs
// no hand-off.
#include <memory>
#include <taskflow/taskflow.hpp>
#include <vector>

#include "peers/body.h"

namespace bench {
namespace {

class Taskflow final : public Peer {
 public:
  explicit Taskflow(bool inside_worker) : inside_worker_(inside_worker) {}
  PeerWork Graph(const Dag& dag, Body body) override {
    return WithBody(body, [&](auto run) -> PeerWork {
      auto flow = std::make_shared<tf::Taskflow>();
      std::vector<tf::Task> tasks;
      for (int i = 0; i < dag.nodes(); ++i) {
        const uint32_t iterations = dag.iterations[static_cast<size_t>(i)];
        const auto index = static_cast<uint32_t>(i);
        tasks.push_back(flow->emplace([run, index, iterations] { run(index, iterations); }));
        for (const int before : dag.predecessors[static_cast<size_t>(i)]) {
          tasks[static_cast<size_t>(before)].precede(tasks.back());
        }
      }
      return [this, flow](int repetitions) {
        if (!inside_worker_) {
          for (int i = 0; i < repetitions; ++i) executor_.run(*flow).wait();
          return;
        }
        executor_
            .async([&] {
              for (int i = 0; i < repetitions; ++i) executor_.corun(*flow);
            })
            .wait();
      };
    });
  }

 private:
  bool inside_worker_;
  tf::Executor executor_{2};
};

}  // namespace

std::unique_ptr<Peer> MakeTaskflow(bool inside_worker) { return std::make_unique<Taskflow>(inside_worker); }

}  // namespace bench
