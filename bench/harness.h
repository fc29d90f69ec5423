// SPDX-License-Identifier: Apache-2.0
//
// How everything here is measured. What is compared runs in one process and in turn: A, B, C, A, B, C, … A sample
// covers a few milliseconds of repetitions; one during which the kernel took a thread of ours off its core is taken
// again, a bounded number of times. Times of virtual machines drift by factors, so what is judged is the median of the
// ratios of neighbouring samples.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Ends the program with a message unless `holds`: a result that is wrong is not worth timing.
void Require(bool holds, const char* what);

double NowNs();
/// CPU time of all threads of the process.
double CpuNs();
/// How many cores' worth of time other processes have used since this object was made.
class OtherLoad {
 public:
  OtherLoad();
  double Cores() const;

 private:
  double wall_ns_, others_ns_;
};
/// The cores that the process may use, as they were when the program began.
const std::vector<int>& UsableCores();

/// Keeps the calling thread on one core while it lives.
class Pinned {
 public:
  explicit Pinned(int core);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<int> before_;
};
void PinThisThread(const std::vector<int>& cores);

/// How thorough a run is; set once, before anything is measured.
struct Effort {
  int rounds = 11;         ///< samples of each figure
  int slow_rounds = 7;     ///< where one sample takes long
  int small_rounds = 51;   ///< of ratios of small times, and single starts
  double sample_ns = 4e6;  ///< repetitions of one sample
  int tries = 3;           ///< of rows that need two undisturbed cores
};
Effort& effort();

int64_t Preemptions();
/// How often the calling thread has left its core, by itself or not.
int64_t OwnSwitches();
/// Samples that were kept although every retake was disturbed.
int DisturbedSamples();
void CountDisturbed();

/// One undisturbed call of `sample`, which returns what it wants counted. Where there is none within a few calls and a
/// bounded time, the median of those that were disturbed: the least would flatter whoever disturbs himself. `count`
/// says how often who is measured was taken off a core so far.
template <class Sample, class Count>
double Undisturbed(Sample sample, Count count) {
  std::array<double, 5> values{};
  size_t taken = 0;
  const double end = NowNs() + 10 * effort().sample_ns;
  do {
    const int64_t before = count();
    const double value = sample();
    if (count() == before) return value;
    values[taken++] = value;
  } while (taken < values.size() && NowNs() < end);
  CountDisturbed();
  std::sort(values.begin(), values.begin() + static_cast<ptrdiff_t>(taken));
  return values[taken / 2];
}
template <class Sample>
double Undisturbed(Sample sample) {
  return Undisturbed(sample, Preemptions);
}

/// Takes one sample: nanoseconds of one unit.
using Sampler = std::function<double()>;

/// Repeats work(repetitions) until a sample is filled; one run counts as `units`.
template <class Work>
Sampler Repeat(Work work, double units = 1) {
  work(1);
  double start = NowNs();
  work(1);
  double once = NowNs() - start + 1;
  // Short work is only known once it has been repeated.
  const int some = static_cast<int>(effort().sample_ns / 16 / once);
  if (some > 1) {
    start = NowNs();
    work(some);
    once = (NowNs() - start) / some + 0.1;
  }
  double wanted = effort().sample_ns / once;
  wanted = wanted < 1 ? 1 : wanted > 1e6 ? 1e6 : wanted;
  const int repetitions = static_cast<int>(wanted);
  return [work, units, repetitions]() mutable {
    return Undisturbed([&] {
      work(1);  // wakes who has to be awake
      const double begin = NowNs();
      work(repetitions);
      return (NowNs() - begin) / repetitions / units;
    });
  };
}

/// Makes work(repetitions) of a body that runs once.
template <class Body>
auto Times(Body body) {
  return [body](int repetitions) mutable {
    for (int i = 0; i < repetitions; ++i) body();
  };
}

using Series = std::vector<double>;

/// `rounds` samples of each, in turn; the first is sampled once more at the end, so that it surrounds the others.
/// result[i] belongs to samplers[i].
std::vector<Series> Interleave(const std::vector<Sampler>& samplers, int rounds);

/// value / yardstick, round by round; of the yardstick's samples before and after, the smaller. `yardstick` comes from
/// the first sampler of Interleave, `value` from another.
Series RatiosToFirst(const Series& value, const Series& yardstick);
/// a / b, round by round.
Series Ratios(const Series& a, const Series& b);
Series Scaled(Series values, double factor);
Series Inverse(Series values);

/// The rows that will be measured, in order; Progress counts them.
void ExpectRows(const std::vector<std::string>& ids);
/// "[3/16] R3 …" on standard error: what is measured now. A line each, so that it reads well in a log too.
void Progress(const std::string& row, const std::string& what);

}  // namespace bench
