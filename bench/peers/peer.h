// SPDX-License-Identifier: Apache-2.0
//
// Other systems that run graphs of tasks, behind one interface. Each is a file of its own; what is not installed when
// the benchmarks are configured is replaced by a sentence that says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yardsticks.h"

namespace bench {

/// What the nodes of a peer's graph do.
enum class Body {
  kNothing,
  kCount,  ///< adds one to a counter, to see that all ran
  kWork,   ///< SpinWork(dag.iterations[node])
  kStamp,  ///< the same, and Stamps::Note(node)
};

/// Runs a graph so many times, launch and wait included. Empty: this peer has nothing like it.
using PeerWork = std::function<void(int repetitions)>;

class Peer {
 public:
  virtual ~Peer() = default;
  /// Why it cannot be used although it was built: no device, say. Empty: it can.
  virtual std::string missing() const { return {}; }
  /// Lets go of threads that would spin on when somebody else is measured.
  virtual void Rest() {}
  /// A graph of any shape. It is checked by whoever asks for it: see Body.
  virtual PeerWork Graph(const Dag&, Body) { return {}; }
  /// A chain of no-ops where the nodes cannot be functions of ours; the peer checks it.
  virtual PeerWork OwnChain(int /*nodes*/) { return {}; }
  /// A chain of adds in place of float tensors, x += b, on so many threads; the peer checks the sums.
  virtual PeerWork Adds(int /*nodes*/, size_t /*elements*/, int /*threads*/) { return {}; }
};

/// Samples a peer's graph, and lets the peer rest.
inline Sampler RepeatPeer(Peer& peer, const PeerWork& work, double units = 1) {
  Sampler sample = Repeat(work, units);
  peer.Rest();
  return [&peer, sample] {
    const double ns = sample();
    peer.Rest();
    return ns;
  };
}

/// What nodes of kind kCount have added up.
std::atomic<uint64_t>& PeerCount();

/// One body, so that a peer can inline it.
template <Body kind>
struct RunBody {
  void operator()(uint32_t node, uint32_t iterations) const;
};

struct PeerEntry {
  std::string name;     ///< "oneTBB flow graph, lightweight"
  std::string missing;  ///< "not installed (libtbb-dev)"; empty: there is one
  std::function<std::unique_ptr<Peer>()> make;
  double chain_goal;  ///< how many times faster a chain of 1000 no-ops has to be here; 0: no goal
  bool shapes;        ///< runs DAGs, not only chains
  bool tensors;       ///< computes
};
/// All peers, also those that are not here. Made when asked for, because they keep threads and memory.
const std::vector<PeerEntry>& Peers();

std::unique_ptr<Peer> MakeTbb(bool lightweight);
std::unique_ptr<Peer> MakeOpenMp();
std::unique_ptr<Peer> MakeOpenCl();
std::unique_ptr<Peer> MakeTaskflow(bool inside_worker);
std::unique_ptr<Peer> MakeGgml();

}  // namespace bench
