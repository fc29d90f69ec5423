// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "compiler/storage.h"

namespace reprise::compiler {
namespace {

// Tasks that may stand between two that are joined: values live from there on.
constexpr size_t kMostBetween = 64;

struct Touched {
  std::set<StorageId> read;
  std::set<StorageId> written;

  void Add(const Touched& other) {
    read.insert(other.read.begin(), other.read.end());
    written.insert(other.written.begin(), other.written.end());
  }
};

bool Meet(const std::set<StorageId>& a, const std::set<StorageId>& b) {
  return std::any_of(a.begin(), a.end(), [&](StorageId id) { return b.contains(id); });
}

class Joiner {
 public:
  explicit Joiner(Lowered& lowered) : lowered_(lowered) {}

  void Run() {
    for (size_t at = 0; at < lowered_.tasks.size(); ++at) Visit(at);
    End();
    std::erase_if(lowered_.tasks, [](const LoweredTask& task) { return task.launch == nullptr; });
  }

 private:
  void Visit(size_t at) {
    const LoweredTask& task = lowered_.tasks[at];
    const Touched touched = TouchedBy(task);
    if (CanJoin(*task.launch) && task.workspace == 0) {
      // Launches of one group write into different places of a storage that both write.
      const bool fits = !group_.empty() && lowered_.tasks[group_[0]].launch->join == task.launch->join &&
                        !Meet(touched.read, own_.written) && !Meet(touched.written, own_.read) &&
                        !Meet(touched.read, between_.written) && !Meet(touched.written, between_.written) &&
                        !Meet(touched.written, between_.read);
      if (!fits) End();
      group_.push_back(at);
      own_.Add(touched);
      return;
    }
    if (group_.empty()) return;
    between_.Add(touched);
    if (++count_between_ > kMostBetween) End();
  }

  // A launch that dumps are told of stays what the program called.
  static bool CanJoin(const ops::Launch& launch) {
    return launch.join != nullptr && launch.call == nullptr && launch.parts() == 1;
  }

  Touched TouchedBy(const LoweredTask& task) const {
    Touched touched;
    lowered_.ForEachOperand(
        task, [&](StorageId id, int, bool is_write) { (is_write ? touched.written : touched.read).insert(id); });
    return touched;
  }

  // The group becomes one task, where its first one stands.
  void End() {
    if (group_.size() > 1) {
      std::vector<const ops::Launch*> launches;
      for (const size_t at : group_) launches.push_back(lowered_.tasks[at].launch.get());
      LaunchOwner joined(launches[0]->join(launches));
      for (const size_t at : group_) lowered_.tasks[at].launch.reset();
      lowered_.tasks[group_[0]].launch = std::move(joined);
    }
    group_.clear();
    own_ = {};
    between_ = {};
    count_between_ = 0;
  }

  Lowered& lowered_;
  std::vector<size_t> group_;  // places of tasks
  Touched own_;                // by the tasks of the group
  Touched between_;            // by other tasks since the first of the group
  size_t count_between_ = 0;
};

}  // namespace

void JoinTasks(Lowered& lowered) { Joiner(lowered).Run(); }

}  // namespace reprise::compiler
