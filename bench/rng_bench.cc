// SPDX-License-Identifier: Apache-2.0
//
// What random numbers cost in CPU time: 1 Mi of each kind on one thread, against the generators of the C++ library,
// Philox one block at a time, and the memory that the numbers go to. All of it in turn in one process; what is shown is
// the median time for an element, and the median of the ratios to our own draw in the same round.
//
//     build/release/bin/rng_bench [rounds]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/philox.h"

namespace {

using reprise::kernels::Distribution;
using reprise::kernels::DrawCall;
using reprise::kernels::DType;

constexpr int64_t kCount = 1 << 20;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Row {
  std::string name;
  size_t ours;  // index of the row it is held against
  std::function<void()> run;
  std::vector<double> ns = {};  // for an element
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  std::vector<float> out(kCount), from(kCount, 1.0f);
  std::vector<uint64_t> wide(kCount);
  std::vector<uint8_t> mask(kCount);
  uint64_t position = 0;
  const auto draw = [&](Distribution distribution, DType type, double a, double b, void* to) {
    DrawCall call;
    call.distribution = distribution;
    call.type = type;
    call.a = a;
    call.b = b;
    call.range = 1000;
    call.count = kCount;
    call.out = to;
    call.in = from.data();
    call.mask = mask.data();
    return [call, &position] { (void)reprise::kernels::Draw(call, 42, ++position, {0, call.count}); };
  };
  std::mt19937_64 engine(42);
  std::vector<Row> rows;
  const size_t uniform = rows.size();
  rows.push_back({"uniform float32", uniform, draw(Distribution::kUniform, DType::kFloat, 0, 1, out.data())});
  rows.push_back(
      {"  philox, one block at a time", uniform, [&] {
         ++position;
         for (uint32_t b = 0; b < kCount / 4; ++b) {
           const auto words = reprise::kernels::Philox4x32({static_cast<uint32_t>(position), 0, b, 0}, {42, 0});
           for (size_t j = 0; j < 4; ++j) out[b * 4 + j] = static_cast<float>(words[j] >> 8) * 0x1p-24f;
         }
       }});
  rows.push_back({"  mt19937_64, uniform_real_distribution", uniform, [&] {
                    std::uniform_real_distribution<float> distribution;
                    for (float& x : out) x = distribution(engine);
                  }});
  rows.push_back(
      {"  memory: fill", uniform, [&] { std::memset(out.data(), static_cast<int>(++position), kCount * 4); }});
  rows.push_back({"  memory: copy", uniform, [&] { std::memcpy(out.data(), from.data(), kCount * 4); }});
  const size_t normal = rows.size();
  rows.push_back({"normal float32", normal, draw(Distribution::kNormal, DType::kFloat, 0, 1, out.data())});
  rows.push_back({"  mt19937_64, normal_distribution", normal, [&] {
                    std::normal_distribution<float> distribution;
                    for (float& x : out) x = distribution(engine);
                  }});
  const auto add = [&](const char* name, const std::function<void()>& run) {
    rows.push_back({name, rows.size(), run});
  };
  add("normal float64", draw(Distribution::kNormal, DType::kDouble, 0, 1, wide.data()));
  add("normal bfloat16", draw(Distribution::kNormal, DType::kBFloat16, 0, 1, out.data()));
  add("exponential float32", draw(Distribution::kExponential, DType::kFloat, 1, 0, out.data()));
  add("Bernoulli bool", draw(Distribution::kBernoulli, DType::kBool, 0.5, 0, mask.data()));
  add("dropout float32", draw(Distribution::kDropout, DType::kFloat, 0.1, 0, out.data()));
  add("integers int64", draw(Distribution::kRandint, DType::kInt64, 0, 0, wide.data()));
  const size_t permutation = rows.size();
  add("permutation int64", draw(Distribution::kPermutation, DType::kInt64, 0, 0, wide.data()));
  rows.push_back({"  mt19937_64, iota and shuffle", permutation, [&] {
                    for (size_t i = 0; i < wide.size(); ++i) wide[i] = i;
                    std::shuffle(wide.begin(), wide.end(), engine);
                  }});
  for (int round = -2; round < rounds; ++round) {  // the first two warm up
    for (Row& row : rows) {
      const double begin = bench::CpuNs();
      row.run();
      const double end = bench::CpuNs();
      if (round >= 0) row.ns.push_back((end - begin) / kCount);
    }
  }
  std::printf("%-42s %12s %12s %12s\n", "1 Mi elements, one thread", "least, ns", "median, ns", "times ours");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> ratios;
    for (size_t r = 0; r < rows[i].ns.size(); ++r) ratios.push_back(rows[i].ns[r] / rows[rows[i].ours].ns[r]);
    const double least = *std::min_element(rows[i].ns.begin(), rows[i].ns.end());
    std::printf("%-42s %12.3f %12.3f", rows[i].name.c_str(), least, Median(rows[i].ns));
    if (rows[i].ours != i) std::printf(" %12.2f", Median(ratios));
    std::printf("\n");
  }
  return 0;
}
