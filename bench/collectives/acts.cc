// SPDX-License-Identifier: Apache-2.0
#include "acts.h"

#include <sys/resource.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>

namespace bench {
namespace {

int64_t OwnPreemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

double Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

int Serve(const Acts& acts, const std::string& folder, int rank) {
  std::ofstream out(folder + "/out." + std::to_string(rank));
  std::ifstream in(folder + "/in." + std::to_string(rank));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    const auto found = acts.find(name);
    if (found == acts.end()) {
      out << "error " << name << " is not known\n" << std::flush;
      continue;
    }
    try {
      const int64_t before = OwnPreemptions();
      const Answer answer = found->second(words);
      char text[128];
      std::snprintf(text, sizeof text, "ok %.0f %.0f %lld", answer.begin_ns, answer.end_ns,
                    static_cast<long long>(OwnPreemptions() - before));
      out << text;
      for (const double value : answer.more) {
        std::snprintf(text, sizeof text, " %.0f", value);
        out << text;
      }
      out << "\n" << std::flush;
    } catch (const std::exception& error) {
      out << "error " << error.what() << "\n" << std::flush;
    }
  }
  return 0;
}

}  // namespace bench
