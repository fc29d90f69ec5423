// SPDX-License-Identifier: Apache-2.0
#include "peers/peer.h"

namespace bench {
namespace {

#if REPRISE_BENCH_HAVE_TBB
constexpr const char* kNoTbb = "";
std::unique_ptr<Peer> TbbLightweight() { return MakeTbb(true); }
std::unique_ptr<Peer> TbbPlain() { return MakeTbb(false); }
#else
constexpr const char* kNoTbb = "not installed (libtbb-dev)";
std::unique_ptr<Peer> TbbLightweight() { return nullptr; }
std::unique_ptr<Peer> TbbPlain() { return nullptr; }
#endif
#if REPRISE_BENCH_HAVE_OPENMP
constexpr const char* kNoOpenMp = "";
std::unique_ptr<Peer> OpenMp() { return MakeOpenMp(); }
#else
constexpr const char* kNoOpenMp = "the compiler has no OpenMP";
std::unique_ptr<Peer> OpenMp() { return nullptr; }
#endif
#if REPRISE_BENCH_HAVE_OPENCL
constexpr const char* kNoOpenCl = "";
std::unique_ptr<Peer> OpenCl() { return MakeOpenCl(); }
#else
constexpr const char* kNoOpenCl = "not installed (opencl-headers, ocl-icd-opencl-dev, pocl-opencl-icd)";
std::unique_ptr<Peer> OpenCl() { return nullptr; }
#endif
#if REPRISE_BENCH_HAVE_TASKFLOW
constexpr const char* kNoTaskflow = "";
std::unique_ptr<Peer> TaskflowInside() { return MakeTaskflow(true); }
std::unique_ptr<Peer> TaskflowOutside() { return MakeTaskflow(false); }
#else
constexpr const char* kNoTaskflow = "no REPRISE_BENCH_TASKFLOW given";
std::unique_ptr<Peer> TaskflowInside() { return nullptr; }
std::unique_ptr<Peer> TaskflowOutside() { return nullptr; }
#endif
#if REPRISE_BENCH_HAVE_GGML
constexpr const char* kNoGgml = "";
std::unique_ptr<Peer> Ggml() { return MakeGgml(); }
#else
constexpr const char* kNoGgml = "no REPRISE_BENCH_GGML given";
std::unique_ptr<Peer> Ggml() { return nullptr; }
#endif

}  // namespace

std::atomic<uint64_t>& PeerCount() {
  static std::atomic<uint64_t> count{0};
  return count;
}

const std::vector<PeerEntry>& Peers() {
  static const std::vector<PeerEntry> peers = {
      {"oneTBB flow graph, lightweight", kNoTbb, TbbLightweight, 7, true, false},
      {"oneTBB flow graph", kNoTbb, TbbPlain, 7, true, false},
      {"libgomp tasks", kNoOpenMp, OpenMp, 0, true, false},
      {"PoCL command buffer", kNoOpenCl, OpenCl, 400, false, false},
      {"Taskflow corun in a worker", kNoTaskflow, TaskflowInside, 5, true, false},
      {"Taskflow run and wait", kNoTaskflow, TaskflowOutside, 9, true, false},
      {"ggml", kNoGgml, Ggml, 15, false, true},
  };
  return peers;
}

}  // namespace bench
