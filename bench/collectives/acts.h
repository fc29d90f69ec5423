// SPDX-License-Identifier: Apache-2.0
//
// The side of a rank: a process that does what the program of the rows (bench.cc) asks for, line by line. A line names
// an act with its arguments; the answer is "ok BEGIN END PREEMPTIONS …", times of CLOCK_MONOTONIC in nanoseconds, or
// "error" and why. Systems that are compared speak the same (mpi.cc, peer.py).
#pragma once

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

struct Answer {
  double begin_ns = 0;
  double end_ns = 0;
  std::vector<double> more{};
};
/// Throws std::runtime_error where it cannot be done.
using Act = std::function<Answer(std::istringstream& arguments)>;
using Acts = std::map<std::string, Act>;

/// Answers until nobody asks any more. Lines come from FOLDER/in.RANK, answers go to FOLDER/out.RANK.
int Serve(const Acts& acts, const std::string& folder, int rank);

/// body(repetitions) of the last argument, timed, after `before`.
template <class Before, class Body>
Answer Timed(std::istringstream& arguments, Before before, Body body);

/// Acts of one device without collectives: for processes that have libhccl and for those that do not.
class Device;
void AddPlainActs(Acts& acts, Device& device);

double Now();

template <class Before, class Body>
Answer Timed(std::istringstream& arguments, Before before, Body body) {
  int repetitions = 1;
  arguments >> repetitions;
  before();
  Answer answer;
  answer.begin_ns = Now();
  for (int i = 0; i < repetitions; ++i) body();
  answer.end_ns = Now();
  return answer;
}

}  // namespace bench
