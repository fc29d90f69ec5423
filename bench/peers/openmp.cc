// SPDX-License-Identifier: Apache-2.0
//
// OpenMP tasks with dependences, as libgomp runs them on two threads. There is no graph to keep: every run creates its
// tasks anew.
#if __has_include(<omp.h>)
#include <omp.h>
#else  // clang-tidy without libomp
extern "C" int omp_pause_resource_all(int);
constexpr int omp_pause_soft = 1;
#endif

#include <memory>
#include <vector>

#include "peers/body.h"

namespace bench {
namespace {

template <class Run>
void RunOnce(const Dag& dag, std::vector<char>& tokens, Run run) {
  char* token = tokens.data();
#pragma omp parallel num_threads(2) firstprivate(token)
#pragma omp single
  for (int i = 0; i < dag.nodes(); ++i) {
    const std::vector<int>& before = dag.predecessors[static_cast<size_t>(i)];
    const int* list = before.data();
    const int count = static_cast<int>(before.size());
    const uint32_t iterations = dag.iterations[static_cast<size_t>(i)];
#pragma omp task depend(iterator(k = 0               \
                                 : count),           \
                        in                           \
                        : token[list[k]]) depend(out \
                                                 : token[i]) firstprivate(i, iterations, run)
    run(static_cast<uint32_t>(i), iterations);
  }
}

class OpenMp final : public Peer {
 public:
  ~OpenMp() override { OpenMp::Rest(); }
  // Idle threads of libgomp spin for milliseconds.
  void Rest() override { omp_pause_resource_all(omp_pause_soft); }
  PeerWork Graph(const Dag& dag, Body body) override {
    return WithBody(body, [&](auto run) -> PeerWork {
      auto kept = std::make_shared<Dag>(dag);
      auto tokens = std::make_shared<std::vector<char>>(static_cast<size_t>(dag.nodes()));
      return [kept, tokens, run](int repetitions) {
        for (int i = 0; i < repetitions; ++i) RunOnce(*kept, *tokens, run);
      };
    });
  }
};

}  // namespace

std::unique_ptr<Peer> MakeOpenMp() { return std::make_unique<OpenMp>(); }

}  // namespace bench
