// SPDX-License-Identifier: Apache-2.0
#include "compiler/checked_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/verbose.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"
#include "compiler/run_check.h"
#include "compiler/storage.h"
#include "device/scheduler.h"
#include "device/write_watch.h"
#include "ops/digest.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::compiler {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;  // of a weight; small enough to share the work, and to end early
constexpr uint64_t kShareBytes = 128 << 10;  // that are worth a thread
// Runs between the change of a weight and the next look at whether weights stay the same.
constexpr uint32_t kFewestRunsToLook = 8;
constexpr uint32_t kMostRunsToLook = 4096;

using Addresses = std::vector<const char*>;

// Weights cut into pieces, and these into shares of threads.
class Pieces {
 public:
  explicit Pieces(std::span<const uint64_t> bytes) {
    uint64_t of_share = kShareBytes;
    for (uint32_t weight = 0; weight < bytes.size(); ++weight) {
      for (uint64_t at = 0; at < bytes[weight]; at += kPieceBytes) {
        if (of_share >= kShareBytes) {
          shares_.push_back(pieces_.size());
          of_share = 0;
        }
        pieces_.push_back({weight, at, std::min(kPieceBytes, bytes[weight] - at)});
        of_share += pieces_.back().bytes;
      }
    }
    shares_.push_back(pieces_.size());
  }

  size_t size() const { return pieces_.size(); }

  // Where the pieces lie when the weights lie at `addresses`.
  std::vector<device::WatchedRange> RangesAt(const Addresses& addresses) const {
    std::vector<device::WatchedRange> ranges;
    for (const Piece& piece : pieces_) ranges.push_back({addresses[piece.weight] + piece.at, piece.bytes});
    return ranges;
  }

  // visit(piece, digest) on any thread, of pieces that are wanted, until it returns false, which ends its share.
  // Without a scheduler on this one.
  template <class Wanted, class Visit>
  void ForEach(device::Scheduler* scheduler, const Addresses& addresses, const Wanted& wanted, Visit& visit) const {
    struct Work {
      const Pieces& pieces;
      const Addresses& addresses;
      const Wanted& wanted;
      Visit& visit;
    } work{*this, addresses, wanted, visit};
    constexpr auto kBody = [](void* arg, int64_t first, int64_t last) {
      const Work& all = *static_cast<const Work*>(arg);
      const size_t end = all.pieces.shares_[static_cast<size_t>(last)];
      for (size_t i = all.pieces.shares_[static_cast<size_t>(first)]; i < end; ++i) {
        const Piece& piece = all.pieces.pieces_[i];
        if (!all.wanted(i)) continue;
        if (!all.visit(i, ops::DigestOf(all.addresses[piece.weight] + piece.at, piece.bytes))) return;
      }
    };
    const int64_t shares = static_cast<int64_t>(shares_.size()) - 1;
    if (scheduler == nullptr) return kBody(&work, 0, shares);
    scheduler->ParallelFor(shares, 1, kBody, &work);
  }

 private:
  struct Piece {
    uint32_t weight;
    uint64_t at;
    uint64_t bytes;
  };
  std::vector<Piece> pieces_;
  std::vector<size_t> shares_;  ///< the first piece of each, and the end
};

constexpr auto kAll = [](size_t) { return true; };

// Weights at one place, watched for writes: a look need only read what has been written since the look before.
class Watched {
 public:
  // Nothing where the kernel does not tell.
  static std::shared_ptr<Watched> Of(const Pieces& pieces, const Addresses& addresses) {
    std::unique_ptr<device::WriteWatch> watch = device::WriteWatch::Of(pieces.RangesAt(addresses));
    if (watch == nullptr) return nullptr;
    return std::make_shared<Watched>(addresses, std::move(watch));
  }
  Watched(const Addresses& addresses, std::unique_ptr<device::WriteWatch> watch)
      : addresses_(addresses), watch_(std::move(watch)), checked_(watch_->size()) {}

  bool IsAt(const Addresses& addresses) const { return addresses_ == addresses; }
  void Look() { watch_->Look(); }
  size_t size() const { return checked_.size(); }
  uint64_t writes(size_t piece) const { return watch_->writes(piece); }
  // Whether it has been written since it was found as it should be.
  bool IsWritten(size_t piece) const {
    return checked_[piece].load(std::memory_order_acquire) != watch_->writes(piece);
  }
  // `writes`: as they were before it was read.
  void SetChecked(size_t piece, uint64_t writes) { checked_[piece].store(writes, std::memory_order_release); }

 private:
  const Addresses addresses_;
  const std::unique_ptr<device::WriteWatch> watch_;
  std::vector<std::atomic<uint64_t>> checked_;  ///< writes when it was read; none yet: 0
};

// What runs count; read by anybody.
struct Counts {
  std::atomic<uint64_t> preparations{0};
  std::atomic<uint64_t> prepared{0};
  std::atomic<uint64_t> general{0};
};

// The graph with weights compiled in, and what they were.
struct Prepared {
  std::shared_ptr<Executable> executable;
  std::vector<kernels::Digest> digests;       ///< by piece
  mutable std::atomic<bool> is_stale{false};  ///< a run found other weights
};

// One look at the weights before a run.
struct Check final : RunCondition {
  std::shared_ptr<const Pieces> pieces;
  std::shared_ptr<const Prepared> prepared;  ///< lives as long as runs that may go through it
  std::shared_ptr<Counts> counts;
  std::shared_ptr<Watched> watched;  ///< the weights there; nothing: all are read
  Addresses addresses;

  void Look(device::Scheduler& scheduler) {
    std::atomic<bool> is_same{true};
    const auto differs = [&](size_t piece, const kernels::Digest& digest) {
      if (digest == prepared->digests[piece]) return false;
      is_same.store(false, std::memory_order_relaxed);
      return true;
    };
    if (watched == nullptr) {
      const auto visit = [&](size_t piece, const kernels::Digest& digest) {
        return !differs(piece, digest) && is_same.load(std::memory_order_relaxed);
      };
      pieces->ForEach(&scheduler, addresses, kAll, visit);
    } else {
      watched->Look();
      std::vector<uint64_t> writes;
      for (size_t piece = 0; piece < watched->size(); ++piece) {
        if (!watched->IsWritten(piece)) continue;
        if (writes.empty()) writes.resize(watched->size());
        writes[piece] = watched->writes(piece);
      }
      const auto is_wanted = [&](size_t piece) { return writes[piece] != 0; };
      const auto visit = [&](size_t piece, const kernels::Digest& digest) {
        if (!differs(piece, digest)) watched->SetChecked(piece, writes[piece]);
        return is_same.load(std::memory_order_relaxed);
      };
      if (!writes.empty()) pieces->ForEach(&scheduler, addresses, is_wanted, visit);
    }
    const bool found = is_same.load(std::memory_order_relaxed);
    ++(found ? counts->prepared : counts->general);
    if (!found) prepared->is_stale.store(true, std::memory_order_relaxed);
    holds.store(found, std::memory_order_release);
  }
};

// Looks at weights that have changed: whether they stay the same from one look to the next.
struct Observation {
  std::vector<kernels::Digest> digests;  ///< of the last look; looks come one after another
  std::atomic<uint32_t> looks{0};
  std::atomic<bool> is_same{false};
  Mutex mutex;

  void Look(device::Scheduler& scheduler, const Pieces& pieces, const Addresses& addresses) {
    std::vector<kernels::Digest> found(pieces.size());
    const auto visit = [&](size_t piece, const kernels::Digest& digest) {
      found[piece] = digest;
      return true;
    };
    pieces.ForEach(&scheduler, addresses, kAll, visit);
    MutexLock lock(mutex);
    is_same.store(found == digests, std::memory_order_release);
    digests = std::move(found);
    looks.fetch_add(1, std::memory_order_release);
  }
};

class CheckedExecutable final : public Executable {
 public:
  CheckedExecutable(std::shared_ptr<Executable> general, Graph source, const CompileOptions& options,
                    std::vector<uint32_t> inputs, uint64_t most_bytes, Look look)
      : general_(std::move(general)),
        inputs_(std::move(inputs)),
        most_bytes_(most_bytes),
        look_(look),
        source_(std::move(source)),
        options_(options) {
    options_.drops_constants = true;
    options_.passes.on_stage = nullptr;  // dumps show the graph that the program compiled
    std::vector<uint64_t> bytes;
    for (const uint32_t input : inputs_) {
      known_.push_back(KnownTensor::Of(general_->graph().TensorOf({general_->graph().inputs[input], 0})));
      bytes.push_back(known_.back().bytes);
    }
    const Writes writes(general_->graph());
    for (uint32_t input = 0; input < general_->graph().inputs.size(); ++input) {
      const NodeId node = general_->graph().inputs[input];
      if (writes.IsWritten({node, 0}) || general_->graph().at(node).type == "RefData") written_.push_back(input);
    }
    pieces_ = std::make_shared<const Pieces>(bytes);
  }

  bool is_static() const override { return true; }
  const MemoryNeeds& needs() const override { return general_->needs(); }
  const Graph& graph() const override { return general_->graph(); }
  const PassRecords& pass_records() const override { return general_->pass_records(); }
  std::span<const Tensor> results() const override { return general_->results(); }
  std::span<const std::pair<uint32_t, uint32_t>> shared() const override { return general_->shared(); }
  std::span<const LogicalStream> logical_streams() const override { return general_->logical_streams(); }
  size_t events() const override { return general_->events(); }
  std::vector<PlannedBlock> memory_plan() const override { return general_->memory_plan(); }
  Status SetConstants(void* base, uint64_t bytes) override { return general_->SetConstants(base, bytes); }
  Status SetFeatures(void* base, uint64_t bytes) override { return general_->SetFeatures(base, bytes); }
  Status SetFixedFeatures(void* base, uint64_t bytes) override { return general_->SetFixedFeatures(base, bytes); }

  Status Run(runtime::Stream& stream, const RunRequest& request) override {
    if (request.condition != nullptr || !HasWeights(request)) return general_->Run(stream, request);
    auto check = std::make_shared<Check>();
    check->addresses = AddressesOf(request);
    {
      MutexLock lock(mutex_);
      WatchAt(check->addresses);
      check->watched = watched_;
      if (watched_ == nullptr && look_ == Look::kAtWrites) return general_->Run(stream, request);
      REPRISE_RETURN_IF_ERROR(Advance(stream, request));
      check->prepared = prepared_;
    }
    if (check->prepared == nullptr) return general_->Run(stream, request);
    check->pieces = pieces_;
    check->counts = counts_;
    REPRISE_RETURN_IF_ERROR(
        runtime::SubmitClosure(stream, "check of inputs", [check](device::RunContext& context) -> Status {
          check->Look(context.scheduler());
          return {};
        }));
    RunRequest conditional = request;
    conditional.condition = check;
    conditional.runs_if = true;
    if (const Status status = check->prepared->executable->Run(stream, conditional); !status.ok()) {
      GiveUp(status.detail().what);  // there is no memory for it: the graph runs without it
      return general_->Run(stream, request);
    }
    conditional.runs_if = false;
    return general_->Run(stream, conditional);
  }

  CheckedRuns counts() const { return {counts_->preparations, counts_->prepared, counts_->general}; }

 private:
  // Whether the request has the weights on the device, as the graph takes them, where the run does not write. Where
  // not, the graph has the word.
  bool HasWeights(const RunRequest& request) const {
    if (request.inputs.size() != general_->graph().inputs.size()) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const RunTensor& given = request.inputs[inputs_[i]];
      if (given.on_host || given.data == nullptr || !known_[i].Fits(given) || IsWritten(given, request)) return false;
    }
    return true;
  }

  bool IsWritten(const RunTensor& weight, const RunRequest& request) const {
    const auto overlaps = [&](const RunTensor& other) {
      const auto begin = reinterpret_cast<uintptr_t>(weight.data);
      const auto from = reinterpret_cast<uintptr_t>(other.data);
      return other.data != nullptr && from < begin + weight.bytes && begin < from + other.bytes;
    };
    return std::ranges::any_of(written_, [&](uint32_t input) { return overlaps(request.inputs[input]); }) ||
           std::ranges::any_of(request.outputs, overlaps);
  }

  Addresses AddressesOf(const RunRequest& request) const {
    Addresses addresses;
    for (const uint32_t input : inputs_) addresses.push_back(static_cast<const char*>(request.inputs[input].data));
    return addresses;
  }

  // Watches the weights where runs find them. Those that move from run to run are not watched: that costs more than it
  // saves.
  void WatchAt(const Addresses& addresses) REPRISE_REQUIRES(mutex_) {
    if (watched_ != nullptr && watched_->IsAt(addresses)) return;
    watched_ = nullptr;
    const bool is_new = std::exchange(addresses_, addresses) != addresses;
    if (is_given_up_ || (is_new && prepared_ != nullptr)) return;
    watched_ = Watched::Of(*pieces_, addresses);
  }

  void GiveUp(const std::string& why) {
    MutexLock lock(mutex_);
    prepared_ = nullptr;
    GiveUpBecause(why);
  }

  // Drops what is stale, looks whether weights stay the same, prepares when they do.
  Status Advance(runtime::Stream& stream, const RunRequest& request) REPRISE_REQUIRES(mutex_) {
    if (prepared_ != nullptr && prepared_->is_stale.load(std::memory_order_relaxed)) {
      prepared_ = nullptr;
      observation_ = std::make_shared<Observation>();
      Postpone();
    }
    if (prepared_ != nullptr || is_given_up_ || stream.sink() != nullptr || !stream.CheckNotInside().ok()) return {};
    if (runs_to_look_ > 0) {
      --runs_to_look_;
      return {};
    }
    if (observation_ == nullptr || observation_->is_same.load(std::memory_order_acquire)) {
      // Nobody waits here for work that may need what this thread does next.
      if (stream.IsIdle()) Prepare(request);
      return {};
    }
    if (observation_->looks.load(std::memory_order_acquire) > 1) Postpone();
    runs_to_look_ = std::max(runs_to_look_, kFewestRunsToLook);
    return runtime::SubmitClosure(stream, "look at inputs",
                                  [observation = observation_, pieces = pieces_,
                                   addresses = AddressesOf(request)](device::RunContext& context) -> Status {
                                    observation->Look(context.scheduler(), *pieces, addresses);
                                    return {};
                                  });
  }

  void Postpone() REPRISE_REQUIRES(mutex_) {
    interval_ = std::min(std::max(interval_ * 2, kFewestRunsToLook), kMostRunsToLook);
    runs_to_look_ = interval_;
  }

  void Prepare(const RunRequest& request) REPRISE_REQUIRES(mutex_) {
    auto prepared = std::make_shared<Prepared>();
    auto made = Executable::Compile(WithValues(request, prepared->digests), options_);
    if (!made.ok()) {
      const Status why = std::move(made).status();
      return GiveUpBecause(fmt::format("{}: {}", why.detail().culprit, why.detail().what));
    }
    prepared->executable = std::move(made).value();
    if (!prepared->executable->is_static()) return GiveUpBecause("its shapes depend on data");
    const MemoryNeeds& needs = prepared->executable->needs();
    const uint64_t bytes = needs.constants + needs.features;
    if (bytes > AddedBytes()) {
      return GiveUpBecause(fmt::format("it would take {} bytes of memory, more than {}", bytes, AddedBytes()));
    }
    prepared_ = std::move(prepared);
    ++counts_->preparations;
  }

  void GiveUpBecause(const std::string& why) REPRISE_REQUIRES(mutex_) {
    is_given_up_ = true;
    Note(VerboseEvent::kWeightsNotCompiledIn,
         [&] { return fmt::format("graph {}: its weights are read anew in each run: {}", source_.name, why); });
  }

  // Packed weights may have as many bytes as the weights, and half as many once more.
  uint64_t AddedBytes() const {
    const uint64_t own = general_->needs().constants + general_->needs().features;
    return own > UINT64_MAX - 2 * most_bytes_ ? UINT64_MAX : own + 2 * most_bytes_;
  }

  // The graph with the weights of the request as constants, and their digests.
  Graph WithValues(const RunRequest& request, std::vector<kernels::Digest>& digests) const REPRISE_REQUIRES(mutex_) {
    Graph graph = source_;
    Rewriter rewriter(graph);
    Addresses copies;
    std::vector<std::shared_ptr<const Constant>> values;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      auto value = std::make_shared<Constant>();
      value->dtype = known_[i].dtype;
      value->shape = known_[i].shape;
      value->bytes.assign(static_cast<const char*>(request.inputs[inputs_[i]].data), known_[i].bytes);
      copies.push_back(value->bytes.data());
      PutConstant(rewriter, graph.inputs[inputs_[i]], value);
      values.push_back(std::move(value));
    }
    digests.resize(pieces_->size());
    const auto visit = [&](size_t piece, const kernels::Digest& digest) {
      digests[piece] = digest;
      return true;
    };
    // Of the copies, which nobody changes.
    pieces_->ForEach(nullptr, copies, kAll, visit);
    return graph;
  }

  // Whoever reads the input reads the constant; a result that is the input stays it.
  static void PutConstant(Rewriter& rewriter, NodeId input, std::shared_ptr<const Constant> value) {
    const std::vector<Use> uses = rewriter.UsesOf({input, 0});
    const NodeId constant = rewriter.AddConstant(rewriter.graph().at(input).name + "_value", std::move(value));
    for (const Use& use : uses) {
      if (!use.is_result()) rewriter.Set(use, {constant, 0});
    }
  }

  const std::shared_ptr<Executable> general_;
  const std::vector<uint32_t> inputs_;
  const uint64_t most_bytes_;
  const Look look_;
  std::vector<KnownTensor> known_;  ///< of inputs_
  std::vector<uint32_t> written_;   ///< inputs whose memory the graph writes
  std::shared_ptr<const Pieces> pieces_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  Mutex mutex_;
  const Graph source_;
  CompileOptions options_;
  std::shared_ptr<const Prepared> prepared_ REPRISE_GUARDED_BY(mutex_);
  std::shared_ptr<Watched> watched_ REPRISE_GUARDED_BY(mutex_);
  Addresses addresses_ REPRISE_GUARDED_BY(mutex_);  ///< of the last run that was not watched before
  std::shared_ptr<Observation> observation_ REPRISE_GUARDED_BY(mutex_);  ///< since weights have changed
  uint32_t interval_ REPRISE_GUARDED_BY(mutex_) = 0;
  uint32_t runs_to_look_ REPRISE_GUARDED_BY(mutex_) = 0;
  bool is_given_up_ REPRISE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<Executable> CheckInputs(std::shared_ptr<Executable> general, Graph source,
                                        const CompileOptions& options, std::vector<uint32_t> inputs,
                                        uint64_t most_bytes, Look look) {
  if (inputs.empty() || !general->is_static()) return general;
  return std::make_shared<CheckedExecutable>(std::move(general), std::move(source), options, std::move(inputs),
                                             most_bytes, look);
}

std::optional<CheckedRuns> CheckedRunsOf(const Executable& executable) {
  const auto* const checked = dynamic_cast<const CheckedExecutable*>(&executable);
  return checked != nullptr ? std::optional(checked->counts()) : std::nullopt;
}

}  // namespace reprise::compiler
