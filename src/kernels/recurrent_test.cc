// SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/step_team.h"

namespace reprise::kernels {
namespace {

// ---- StepTeam ----

// Runs `threads` threads through all steps; thread i comes when step come[i] is being run. Each part of each step runs
// once, behind all parts of the step before.
void ExpectStepsInOrder(int64_t members, int64_t parts, int64_t steps, const std::vector<int64_t>& come) {
  StepTeam team(members, parts);
  std::vector<std::atomic<int>> runs(static_cast<size_t>(parts * steps));
  std::atomic<int64_t> reached{0};
  std::atomic<bool> is_in_order{true};
  const auto run = [&](int64_t member) {
    while (reached.load() < come[static_cast<size_t>(member)]) std::this_thread::yield();
    team.Join();
    for (int64_t s = 0; s < steps; ++s) {
      team.Step(member, s, [&](int64_t part) {
        if (reached.load() < s) reached.store(s);
        runs[static_cast<size_t>(s * parts + part)].fetch_add(1);
        for (int64_t other = 0; s > 0 && other < parts; ++other) {
          if (runs[static_cast<size_t>((s - 1) * parts + other)].load() != 1) is_in_order = false;
        }
      });
      team.Step(member, s, [&](int64_t) { is_in_order = false; });  // a step that is done runs nothing
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < come.size(); ++t) threads.emplace_back(run, static_cast<int64_t>(t));
  run(0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_in_order);
  for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i].load(), 1) << i;
}

TEST(StepTeam, EachPartRunsOnceBehindTheStepBefore) {
  ExpectStepsInOrder(1, 1, 3, {0});
  ExpectStepsInOrder(2, 7, 40, {0, 0});
  ExpectStepsInOrder(4, 3, 40, {0, 0, 0, 0});  // members without parts
  ExpectStepsInOrder(3, 16, 40, {0, 0, 0});
}

TEST(StepTeam, ThreadsMayComeLateOrNever) {
  ExpectStepsInOrder(5, 9, 20, {0});
  ExpectStepsInOrder(3, 8, 20, {0, 10});
  ExpectStepsInOrder(2, 8, 20, {0, 19});
}

// What a step wrote without atomics is seen by all parts of the next one.
TEST(StepTeam, StepsSeeWhatTheOneBeforeWrote) {
  constexpr int64_t kParts = 6, kSteps = 200;
  StepTeam team(3, kParts);
  std::vector<int64_t> states[2] = {std::vector<int64_t>(kParts, 1), std::vector<int64_t>(kParts, 0)};
  const auto run = [&](int64_t member) {
    team.Join();
    for (int64_t s = 0; s < kSteps; ++s) {
      team.Step(member, s, [&](int64_t part) {
        uint64_t sum = static_cast<uint64_t>(part);
        for (const int64_t value : states[s % 2]) sum = sum * 31 + static_cast<uint64_t>(value);
        states[(s + 1) % 2][static_cast<size_t>(part)] = static_cast<int64_t>(sum);
      });
    }
  };
  std::vector<int64_t> expected(kParts, 1);
  for (int64_t s = 0; s < kSteps; ++s) {
    std::vector<int64_t> next(kParts);
    for (int64_t part = 0; part < kParts; ++part) {
      uint64_t sum = static_cast<uint64_t>(part);
      for (const int64_t value : expected) sum = sum * 31 + static_cast<uint64_t>(value);
      next[static_cast<size_t>(part)] = static_cast<int64_t>(sum);
    }
    expected = next;
  }
  std::thread second(run, 1), third(run, 2);
  run(0);
  second.join();
  third.join();
  EXPECT_EQ(states[kSteps % 2], expected);
}

// ---- Steps of a layer ----

struct Shape {
  bool is_gru;
  int64_t steps, batch, hidden;
};

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<char, FreeDeleter>;

// Filled with what no result may depend on.
Block NewBlock(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes + 64) / 64 * 64;
  Block block(static_cast<char*>(std::aligned_alloc(64, size)));
  std::memset(block.get(), 0xff, size);
  return block;
}

template <class T>
struct Layer {
  Layer(const Shape& s, bool weight_is_rows, unsigned seed) : shape(s), rows_first(weight_is_rows) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> number(-1, 1);
    const auto fill = [&](int64_t count, double scale) {
      std::vector<T> all(static_cast<size_t>(count));
      for (T& value : all) value = static_cast<T>(number(random) * scale);
      return all;
    };
    gates = s.is_gru ? 3 : 4;
    x = fill(s.steps * s.batch * gates * s.hidden, 2);
    weight = fill(s.hidden * gates * s.hidden, 1 / std::sqrt(static_cast<double>(s.hidden)));
    bias = fill(gates * s.hidden, 1);
    if (!s.is_gru) input_bias = fill(gates * s.hidden, 1);
    first_h = fill(s.batch * s.hidden, 1);
    first_c = fill(s.batch * s.hidden, 1);
  }

  T WeightAt(int64_t k, int64_t column) const {
    return weight[static_cast<size_t>(rows_first ? k * gates * shape.hidden + column : column * shape.hidden + k)];
  }

  struct Results {
    std::vector<T> y, last_h, last_c, saved[kMostGates];
  };

  // `threads` of a team of `members` come; -1: no team.
  Results Run(int64_t members, int64_t threads, bool is_packed, bool saves = true) {
    const auto [is_gru, steps, batch, n] = shape;
    constexpr DType kType = DTypeOf<T>();
    Results results;
    results.y.assign(static_cast<size_t>(steps * batch * n), T(-7));
    results.last_h.assign(static_cast<size_t>(batch * n), T(-7));
    results.last_c = results.last_h;
    for (auto& saved : results.saved) saved = results.y;
    const auto tensor = [](std::vector<T>& data, std::vector<int64_t> sizes) {
      return MakeContiguous(data.data(), kType, static_cast<int>(sizes.size()), sizes.data());
    };
    const TensorRef x_ref = tensor(x, {steps * batch, gates * n}), bias_ref = tensor(bias, {gates * n});
    const TensorRef h_ref = tensor(first_h, {batch, n}), c_ref = tensor(first_c, {batch, n});
    const TensorRef y_ref = tensor(results.y, {steps, batch, n});
    const TensorRef last_h_ref = tensor(results.last_h, {batch, n}), last_c_ref = tensor(results.last_c, {batch, n});
    TensorRef saved[kMostGates];
    TensorRef weight_ref = tensor(weight, {n, gates * n});
    if (!rows_first) {
      weight_ref.strides[0] = 1;
      weight_ref.strides[1] = n;
    }
    RecurrentArgs args;
    args.is_gru = is_gru;
    args.steps = steps;
    args.batch = batch;
    args.hidden = n;
    args.input_part = &x_ref;
    args.weight = &weight_ref;
    args.bias = &bias_ref;
    const TensorRef input_bias_ref = tensor(input_bias, {gates * n});
    if (!is_gru) args.input_bias = &input_bias_ref;
    args.first_h = &h_ref;
    args.y = &y_ref;
    args.last_h = &last_h_ref;
    for (int g = 0; g < kMostGates; ++g) {
      saved[g] = tensor(results.saved[g], {steps, batch, n});
      if (saves) args.gates[g] = &saved[g];
    }
    if (!is_gru) {
      args.first_c = &c_ref;
      args.last_c = &last_c_ref;
    }
    const Block states = NewBlock(RecurrentStateBytes(args, kType));
    const Block packed = NewBlock(PackedRecurrentBytes(weight_ref, kType));
    if (is_packed) PackRecurrentWeight<T>(weight_ref, packed.get());
    StepTeam team(std::max<int64_t>(members, 1), RecurrentParts(args));
    const auto run = [&](int64_t member) {
      const Block scratch = NewBlock(RecurrentScratchBytes(args, kType));
      team.Join();
      RecurrentSteps(args, kType, {states.get(), packed.get(), is_packed, scratch.get()}, members < 0 ? nullptr : &team,
                     member);
    };
    std::vector<std::thread> others;
    for (int64_t t = 1; t < threads; ++t) others.emplace_back(run, t);
    run(0);
    for (std::thread& other : others) other.join();
    return results;
  }

  // The formulas of recurrent.h, one number after the other.
  Results Expected() const {
    const auto [is_gru, steps, batch, n] = shape;
    Results results;
    results.y.resize(static_cast<size_t>(steps * batch * n));
    std::vector<double> h(first_h.begin(), first_h.end()), c(first_c.begin(), first_c.end());
    const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
    for (int64_t t = 0; t < steps; ++t) {
      std::vector<double> next = h;
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t j = 0; j < n; ++j) {
          double a[4], part[4];
          for (int64_t g = 0; g < gates; ++g) {
            double sum = bias[static_cast<size_t>(g * n + j)];
            for (int64_t k = 0; k < n; ++k) sum += h[static_cast<size_t>(b * n + k)] * WeightAt(k, g * n + j);
            part[g] = sum;
            a[g] = x[static_cast<size_t>(((t * batch + b) * gates + g) * n + j)];
            if (!is_gru) a[g] += input_bias[static_cast<size_t>(g * n + j)];
          }
          const auto at = static_cast<size_t>(b * n + j);
          if (is_gru) {
            const double r = sigmoid(a[0] + part[0]), z = sigmoid(a[1] + part[1]);
            next[at] = (1 - z) * std::tanh(a[2] + r * part[2]) + z * h[at];
          } else {
            c[at] = sigmoid(a[1] + part[1]) * c[at] + sigmoid(a[0] + part[0]) * std::tanh(a[2] + part[2]);
            next[at] = sigmoid(a[3] + part[3]) * std::tanh(c[at]);
          }
          results.y[static_cast<size_t>(t * batch * n) + at] = static_cast<T>(next[at]);
        }
      }
      h = next;
    }
    results.last_h.assign(h.begin(), h.end());
    if (!is_gru) results.last_c.assign(c.begin(), c.end());
    return results;
  }

  Shape shape;
  bool rows_first;
  int64_t gates;
  std::vector<T> x, weight, bias, input_bias, first_h, first_c;
};

const Shape kShapes[] = {{false, 3, 1, 1},  {false, 2, 3, 5},  {false, 4, 17, 16}, {false, 3, 50, 33},
                         {false, 2, 8, 70}, {false, 1, 1, 48}, {true, 3, 1, 1},    {true, 2, 3, 5},
                         {true, 4, 17, 32}, {true, 3, 50, 33}, {true, 2, 8, 70}};

template <class T>
void ExpectClose(const std::vector<T>& results, const std::vector<T>& expected, double bound) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) ASSERT_NEAR(results[i], expected[i], bound) << i;
}

template <class T>
void ExpectFormulas(double bound) {
  for (const Shape& shape : kShapes) {
    for (const bool rows_first : {false, true}) {
      SCOPED_TRACE(testing::Message() << (shape.is_gru ? "GRU " : "LSTM ") << shape.batch << " x " << shape.hidden
                                      << (rows_first ? " rows" : " columns"));
      Layer<T> layer(shape, rows_first, 20);
      const auto expected = layer.Expected();
      for (const bool is_packed : {false, true}) {
        const auto results = layer.Run(-1, 1, is_packed);
        ExpectClose(results.y, expected.y, bound);
        ExpectClose(results.last_h, expected.last_h, bound);
        if (!shape.is_gru) ExpectClose(results.last_c, expected.last_c, bound);
        for (const auto& saved : results.saved) {
          for (const T value : saved) ASSERT_NE(value, T(-7));  // all are written
        }
      }
    }
  }
}

TEST(RecurrentSteps, ComputeTheFormulas) {
  ExpectFormulas<float>(1e-5);
  ExpectFormulas<double>(1e-13);
}

TEST(RecurrentSteps, GiveTheSameBitsWhoeverComes) {
  for (const Shape& shape : kShapes) {
    Layer<float> layer(shape, false, 21);
    const auto alone = layer.Run(-1, 1, false);
    const std::pair<int64_t, int64_t> teams[] = {{1, 1}, {2, 2}, {2, 1}, {5, 5}, {5, 2}, {16, 3}};
    for (const auto& [members, threads] : teams) {
      const auto together = layer.Run(members, threads, members == 2);
      EXPECT_EQ(together.y, alone.y) << shape.batch << " x " << shape.hidden << ", " << threads << " of " << members;
      EXPECT_EQ(together.last_h, alone.last_h);
      for (int g = 0; g < kMostGates; ++g) EXPECT_EQ(together.saved[g], alone.saved[g]);
    }
  }
}

// What is saved changes nothing else, and each gate is what the formulas say.
TEST(RecurrentSteps, SavedGatesFitTheStates) {
  Layer<float> layer({false, 1, 3, 40}, false, 23);
  for (size_t i = 0; i < layer.x.size(); i += 7) layer.x[i] *= 50;  // far out, where gates are 0 and 1
  const auto plain = layer.Run(-1, 1, false, false);
  const auto saved = layer.Run(-1, 1, false, true);
  EXPECT_EQ(plain.y, saved.y);
  EXPECT_EQ(plain.last_c, saved.last_c);
  const auto expected = layer.Expected();
  ExpectClose(plain.y, expected.y, 1e-5);
  for (size_t at = 0; at < plain.y.size(); ++at) {
    const double i = saved.saved[0][at], g = saved.saved[1][at], f = saved.saved[2][at], o = saved.saved[3][at];
    ASSERT_NEAR(f * layer.first_c[at] + i * g, saved.last_c[at], 1e-6);
    ASSERT_NEAR(o * std::tanh(saved.last_c[at]), saved.y[at], 1e-6);
  }
}

// A number of one entry reaches no other entry, and no unit of a step but through the weight.
TEST(RecurrentSteps, NaNStaysInItsEntry) {
  Layer<float> layer({false, 2, 3, 20}, false, 22);
  const auto plain = layer.Run(-1, 1, false);
  layer.first_h[20] = NAN;  // of entry 1
  const auto marred = layer.Run(-1, 1, false);
  for (size_t i = 0; i < plain.y.size(); ++i) {
    if (i / 20 % 3 == 1) {
      EXPECT_TRUE(std::isnan(marred.y[i])) << i;
    } else {
      EXPECT_EQ(marred.y[i], plain.y[i]) << i;
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
