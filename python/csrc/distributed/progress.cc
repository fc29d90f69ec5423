// SPDX-License-Identifier: Apache-2.0
#include "distributed/progress.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "common/python_stack.h"

namespace torch_npu {

Progress::Progress(const c10::intrusive_ptr<c10d::Store>& store, int rank, std::vector<int64_t> ranks)
    : rank_(static_cast<size_t>(rank)), ranks_(std::move(ranks)) {
  try {
    store_ = store->clone();          // of its own: the program may wait for a key of the other
    store_->set(KeyOf(rank_), "0 ");  // it may have served a group before
  } catch (const std::exception& error) {
    works_.store(false);
    TORCH_WARN("TORCH_HCCL_DESYNC_DEBUG has no effect, since the store cannot be opened twice: ", error.what());
  }
}

std::string Progress::KeyOf(size_t rank) const { return "hccl progress " + std::to_string(rank); }

void Progress::Note(uint64_t number, const std::string& what) noexcept {
  if (!works_.load()) return;
  try {
    const ReleaseGil no_gil;
    store_->set(KeyOf(rank_), std::to_string(number) + " " + what);
  } catch (const std::exception&) {  // the rank that has the store has ended
    works_.store(false);
  }
}

std::vector<Progress::State> Progress::Read() {
  std::vector<State> states(ranks_.size());
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const std::string key = KeyOf(rank);
    if (!store_->check({key})) continue;
    const std::string text = store_->get_to_str(key);
    const size_t space = text.find(' ');
    states[rank] = {std::stoull(text), text.substr(space + 1)};
  }
  return states;
}

std::string Progress::Report() noexcept try {
  if (!works_.load()) return "desync report: the store of the group cannot be reached";
  const std::vector<State> states = Read();
  const auto by_number = [](const State& a, const State& b) { return a.number < b.number; };
  const uint64_t least = std::min_element(states.begin(), states.end(), by_number)->number;
  const uint64_t most = std::max_element(states.begin(), states.end(), by_number)->number;
  std::string text = "desync report:";
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const State& state = states[rank];
    text += c10::str("\n  rank ", ranks_[rank], state.number < most ? " lags: " : ": ",
                     state.number == 0 ? std::string("has called no collective of the group")
                                       : c10::str("last called collective ", state.number, ", ", state.what));
  }
  const auto differs = [&](const State& state) { return state.what != states[0].what; };
  if (least != most) {
    text += "\nsee why the ranks that lag have not called what the others have";
  } else if (std::any_of(states.begin(), states.end(), differs)) {
    text += "\nthe ranks have called different collectives: let all call the same ones in the same order";
  } else {
    text += "\nall ranks have called the same: one of them is slow, or its earlier work does not end";
  }
  return text;
} catch (const std::exception& error) {
  return std::string("desync report: the store of the group cannot be reached: ") + error.what();
}

}  // namespace torch_npu
