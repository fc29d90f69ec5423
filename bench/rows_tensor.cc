// SPDX-License-Identifier: Apache-2.0
//
// Chains of 1000 additions of float tensors in place, as a program captures them through aclnnInplaceAdd.
#include <aclnnop/aclnn_add.h>

#include <algorithm>

#include "rows.h"

namespace bench {
namespace {

constexpr int kNodes = 1000;

// x += b, kNodes times, in a graph.
class CapturedAdds {
 public:
  CapturedAdds(aclrtStream stream, size_t elements) : elements_(elements) {
    for (float** memory : {&sum_, &addend_}) {
      CHECK_ACL(aclrtMalloc(reinterpret_cast<void**>(memory), elements * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST));
    }
    std::fill(sum_, sum_ + elements, 0.0F);  // device memory of this device is host memory
    std::fill(addend_, addend_ + elements, 1.0F);
    const auto shape = static_cast<int64_t>(elements);
    const int64_t stride = 1;
    const auto view = [&](void* data) {
      return aclCreateTensor(&shape, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &shape, 1, data);
    };
    aclTensor* sum = view(sum_);
    aclTensor* addend = view(addend_);
    float one = 1;
    aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
    graph_ = std::make_unique<Graph>(Capture(stream, [&] {
      for (int i = 0; i < kNodes; ++i) {
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        CHECK_ACL(aclnnInplaceAddGetWorkspaceSize(sum, addend, alpha, &bytes, &executor));
        Require(bytes == 0, "an addition in place asks for a workspace");
        CHECK_ACL(aclnnInplaceAdd(nullptr, 0, executor, stream));
      }
    }));
    CHECK_ACL(aclDestroyScalar(alpha));
    CHECK_ACL(aclDestroyTensor(sum));
    CHECK_ACL(aclDestroyTensor(addend));
    Run(stream);
    Run(stream);
    Require(std::all_of(sum_, sum_ + elements_, [](float value) { return value == 2.0F * kNodes; }),
            "two replays of 1000 additions computed a wrong sum");
  }
  ~CapturedAdds() {
    graph_.reset();
    CHECK_ACL(aclrtFree(sum_));
    CHECK_ACL(aclrtFree(addend_));
  }
  CapturedAdds(const CapturedAdds&) = delete;
  void Run(aclrtStream stream) const { graph_->Run(stream); }

 private:
  size_t elements_;
  float* sum_ = nullptr;
  float* addend_ = nullptr;
  std::unique_ptr<Graph> graph_;
};

void CheckPlain(PlainAdds& plain) {
  std::fill(plain.sum(), plain.sum() + plain.elements(), 0.0F);
  plain.Run();
  Require(plain.sum()[0] == kNodes && plain.sum()[plain.elements() - 1] == kNodes, "the plain loop is wrong");
}

// The splitting thread lives for one sample only.
Sampler Split(PlainAdds& plain) {
  return [&plain] {
    return Undisturbed([&] {
      const Pinned pinned(UsableCores().front());
      SplitAdds split(plain, UsableCores().back());
      split.Run();
      double start = NowNs();
      split.Run();
      const int repetitions = std::clamp(static_cast<int>(effort().sample_ns / (NowNs() - start + 1)), 1, 1000);
      start = NowNs();
      for (int i = 0; i < repetitions; ++i) split.Run();
      return (NowNs() - start) / repetitions / kNodes;
    });
  };
}

const PeerEntry& GgmlEntry() {
  return *std::find_if(Peers().begin(), Peers().end(), [](const PeerEntry& entry) { return entry.tensors; });
}

Row AgainstGgml(const std::string& id, const std::string& what, aclrtStream stream, const CapturedAdds& adds,
                size_t elements, double goal) {
  Row row = NewRow(id, what);
  const PeerEntry& entry = GgmlEntry();
  row.yardstick = entry.name;
  row.missing = entry.missing;
  row.sense = Sense::kAtLeast;
  row.figure_unit = "×";
  row.goal = goal;
  if (!row.missing.empty()) return row;
  const std::unique_ptr<Peer> peer = entry.make();
  const auto series = Interleave(
      {Repeat(Times([&] { adds.Run(stream); }), kNodes), RepeatPeer(*peer, peer->Adds(kNodes, elements, 1), kNodes),
       RepeatPeer(*peer, peer->Adds(kNodes, elements, 2), kNodes)},
      effort().rounds);
  const size_t best = Of(series[1]).median <= Of(series[2]).median ? 1 : 2;
  Here(row, series[0], "ns");
  There(row, entry.name + (best == 1 ? ", 1 thread" : ", 2 threads"), series[best], "ns");
  Judge(row, Ratios(series[best], series[0]), "×", Sense::kAtLeast, goal);
  return row;
}

void SmallAdds(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("R10", "adds of 8 floats");
  PlainAdds plain(kNodes, 8);
  CheckPlain(plain);
  const CapturedAdds adds(stream, 8);
  const auto series = Interleave(
      {Repeat(Times([&] { plain.Run(); }), kNodes), Repeat(Times([&] { adds.Run(stream); }), kNodes)}, effort().rounds);
  Row row = NewRow("R10", "adds of 8 floats, per node");
  Here(row, series[1], "ns");
  There(row, "plain loop", series[0], "ns");
  Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 2.0);
  bench.table.rows.push_back(row);
  bench.table.rows.push_back(AgainstGgml("R10", "adds of 8 floats, faster than ggml", stream, adds, 8, 6));
}

void LargeAdds(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  for (const size_t elements : {size_t{1024}, size_t{65536}}) {
    const std::string name = "adds of " + std::to_string(elements) + " floats";
    Progress("R11", name);
    PlainAdds plain(kNodes, elements);
    CheckPlain(plain);
    const CapturedAdds adds(stream, elements);
    AddBestOfTries(bench.table, [&] {
      const auto series = Interleave({Split(plain), Repeat(Times([&] { adds.Run(stream); }), kNodes)}, effort().rounds);
      Row row = NewRow("R11", name + ", per node");
      Here(row, series[1], "ns");
      There(row, "plain loops, each core half of every tensor", series[0], "ns");
      Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, elements == 1024 ? 1.3 : 0);
      return std::vector<Row>{row};
    });
    if (elements == 65536) {
      bench.table.rows.push_back(AgainstGgml("R11", name + ", faster than ggml", stream, adds, elements, 1.8));
    }
  }
}

}  // namespace

void TensorRows(Bench& bench) {
  if (bench.Wants("R10")) SmallAdds(bench);
  if (bench.Wants("R11")) LargeAdds(bench);
}

}  // namespace bench
