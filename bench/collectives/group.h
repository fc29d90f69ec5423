// SPDX-License-Identifier: Apache-2.0
//
// A group of processes that do what they are asked for together (acts.h), and samplers of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../harness.h"

namespace bench {

struct Report {
  double begin_ns = 0;
  double end_ns = 0;
  std::vector<double> more{};
  double ns() const { return end_ns - begin_ns; }
};

class Group {
 public:
  struct Way {
    std::string name;
    int ranks = 1;
    /// The program of a rank; FOLDER, RANK and RANKS in its words are replaced. One process starts all ranks where no
    /// word is RANK.
    std::vector<std::string> command;
    std::vector<std::pair<std::string, std::string>> environment{};
  };
  explicit Group(Way way);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// The act on all ranks; their reports. Empty when one of them cannot: why() says it.
  std::vector<Report> Try(const std::string& line);
  /// Try, for what has to work.
  std::vector<Report> Ask(const std::string& line);
  /// Of the slowest rank.
  double Ns(const std::string& line);
  /// How often a rank has been taken off its core during acts.
  int64_t preemptions() const { return preemptions_; }
  const std::string& why() const { return why_; }
  int ranks() const { return way_.ranks; }

  /// "ACT" with repetitions that fill a sample; nanoseconds of one.
  Sampler Timed(const std::string& act, double units = 1);

 private:
  void Start(int rank);
  std::string Answer(int rank);
  bool HasEnded();

  const Way way_;
  std::string folder_, why_;
  std::vector<int> processes_, in_, out_;
  std::vector<std::string> rest_;
  int64_t preemptions_ = 0;
};

}  // namespace bench
