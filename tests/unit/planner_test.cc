// SPDX-License-Identifier: Apache-2.0
//
// The planner of static memory: the check of plans against hand-made ones, all that places against that check, searches
// against brute force and against problems that were cut from a full block, so that their lowest plan is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plan/csv.h"
#include "plan/picture.h"
#include "plan/place.h"
#include "plan/search.h"
#include "plan/sections.h"
#include "plan/solve.h"
#include "plan/validate.h"
#include "scale.h"

namespace reprise::plan {
namespace {

using testing::Loops;
using Random = std::mt19937_64;

int64_t Below(Random& random, int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); }

// ---- Problems ----

Problem RandomProblem(Random& random, int count, Time times, Bytes sizes) {
  Problem problem;
  for (int i = 0; i < count; ++i) {
    const Time begin = Below(random, times);
    problem.buffers.push_back({begin, begin + 1 + Below(random, times - begin), 1 + Below(random, sizes)});
  }
  return problem;
}

// A block of `height` bytes over `times`, cut into pieces by guillotine: all of it is in use all the time.
Problem CutBlock(Random& random, size_t pieces, Time times, Bytes height) {
  struct Piece {
    Time begin, end;
    Bytes low, high;
  };
  std::vector<Piece> cut = {{0, times, 0, height}};
  for (int tries = 0; cut.size() < pieces && tries < 100'000; ++tries) {
    Piece& piece = cut[static_cast<size_t>(Below(random, static_cast<int64_t>(cut.size())))];
    Piece rest = piece;
    if (random() % 2 == 0) {
      if (piece.end - piece.begin < 2) continue;
      piece.end = rest.begin = piece.begin + 1 + Below(random, piece.end - piece.begin - 1);
    } else {
      if (piece.high - piece.low < 2) continue;
      piece.high = rest.low = piece.low + 1 + Below(random, piece.high - piece.low - 1);
    }
    cut.push_back(rest);
  }
  std::shuffle(cut.begin(), cut.end(), random);
  Problem problem;
  for (const Piece& piece : cut) problem.buffers.push_back({piece.begin, piece.end, piece.high - piece.low});
  return problem;
}

// The lowest height of all orders in which buffers can be stacked: one of them leads to a lowest plan.
Bytes BruteForce(const Problem& problem) {
  std::vector<BufferId> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  Bytes best = kMostBytes;
  do {
    Work work;
    best = std::min(best, PlaceInOrder(problem, order, Fit::kLowest, work)->height);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

Fault FaultOf(const Problem& problem, std::vector<Bytes> offsets, Bytes height = -1) {
  Solution solution = {std::move(offsets), 0};
  if (solution.offsets.size() == problem.buffers.size()) solution.height = HeightOf(problem, solution.offsets);
  if (height >= 0) solution.height = height;
  return Check(problem, solution).fault;
}

// ---- The check ----

TEST(PlannerCheck, KnowsGoodPlansFromBadOnes) {
  const Problem two = {{{0, 3, 4}, {2, 5, 4}}, {}, {}};
  EXPECT_EQ(FaultOf(two, {0, 4}), Fault::kNone);
  EXPECT_EQ(FaultOf(two, {4, 0}), Fault::kNone);
  EXPECT_EQ(FaultOf(two, {0, 3}), Fault::kOverlap);
  EXPECT_EQ(FaultOf(two, {0, 0}), Fault::kOverlap);
  EXPECT_EQ(FaultOf(two, {-1, 4}), Fault::kNegative);
  EXPECT_EQ(FaultOf(two, {0}), Fault::kCount);
  EXPECT_EQ(FaultOf(two, {0, 4}, 9), Fault::kHeight);
  const Problem in_turn = {{{0, 3, 4}, {3, 5, 4}}, {}, {}};
  EXPECT_EQ(FaultOf(in_turn, {0, 0}), Fault::kNone) << "a lifetime does not hold its end";
  Problem apart = in_turn;
  apart.apart = {{0, 1}};
  EXPECT_EQ(FaultOf(apart, {0, 0}), Fault::kOverlap);
  EXPECT_EQ(FaultOf(apart, {0, 4}), Fault::kNone);
  EXPECT_EQ(FaultOf({{{0, 3, 4, 8}}, {}, {}}, {4}), Fault::kAlignment);
  EXPECT_EQ(FaultOf({{{0, 3, 4, 1, 16}}, {}, {}}, {0}), Fault::kMoved);
  EXPECT_EQ(FaultOf({{{0, 3, 0}, {0, 3, 4}}, {}, {}}, {2, 0}), Fault::kNone) << "no bytes are shared with nobody";
  // A large one hides the small ones between its begin and its end.
  EXPECT_EQ(FaultOf({{{0, 9, 100}, {1, 2, 5}, {3, 4, 5}}, {}, {}}, {0, 100, 50}), Fault::kOverlap);
}

TEST(PlannerCheck, KnowsGoodProblemsFromBadOnes) {
  const auto fault = [](const Problem& problem) { return Check(problem).fault; };
  EXPECT_EQ(fault({}), Fault::kNone);
  EXPECT_EQ(fault({{{3, 3, 4}}, {}, {}}), Fault::kLifetime);
  EXPECT_EQ(fault({{{0, 3, -4}}, {}, {}}), Fault::kSize);
  EXPECT_EQ(fault({{{0, 3, kMostBytes}, {5, 6, 1}}, {}, {}}), Fault::kSize);
  EXPECT_EQ(fault({{{0, 3, 4, 3}}, {}, {}}), Fault::kAlignment);
  EXPECT_EQ(fault({{{0, 3, 4, 0}}, {}, {}}), Fault::kAlignment);
  EXPECT_EQ(fault({{{0, 3, 4, 8, 4}}, {}, {}}), Fault::kAlignment);
  EXPECT_EQ(fault({{{0, 3, 4, 1, -2}}, {}, {}}), Fault::kNegative);
  EXPECT_EQ(fault({{{0, 3, 4}}, {{0, 0}}, {}}), Fault::kPair);
  EXPECT_EQ(fault({{{0, 3, 4}}, {{0, 1}}, {}}), Fault::kPair);
  EXPECT_EQ(fault({{{0, 3, 4}}, {}, {"a", "b"}}), Fault::kCount);
  EXPECT_EQ(fault({{{0, 3, 4, 1, 0}, {1, 2, 4, 1, 2}}, {}, {}}), Fault::kOverlap);
  const Problem named = {{{0, 3, 4}, {7, 5, 4}}, {}, {"weights", "scores"}};
  const Status status = ToStatus(named, nullptr, Check(named));
  EXPECT_EQ(status.code(), kInvalidArgument);
  EXPECT_NE(status.detail().culprit.find("buffer scores (4 bytes, live from 7 until 5"), std::string::npos);
  EXPECT_EQ(Solve(named).ok(), false);
}

TEST(PlannerCheck, AgreesWithAPairwiseOne) {
  Random random(7);
  for (int run = 0; run < Loops(2000, 200); ++run) {
    const Problem problem = RandomProblem(random, 2 + static_cast<int>(Below(random, 7)), 12, 6);
    std::vector<Bytes> offsets;
    for (size_t i = 0; i < problem.buffers.size(); ++i) offsets.push_back(Below(random, 24));
    bool is_good = true;
    for (size_t a = 0; a < offsets.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        is_good = is_good && !(OverlapInTime(problem.buffers[a], problem.buffers[b]) &&
                               offsets[a] < offsets[b] + problem.buffers[b].size &&
                               offsets[b] < offsets[a] + problem.buffers[a].size);
      }
    }
    ASSERT_EQ(FaultOf(problem, offsets) == Fault::kNone, is_good) << run;
  }
}

// ---- Heuristics ----

TEST(Planner, EveryHeuristicMakesAPlan) {
  Random random(11);
  for (int run = 0; run < Loops(200, 20); ++run) {
    Problem problem = RandomProblem(random, 1 + static_cast<int>(Below(random, 60)), 1 + Below(random, 40), 50);
    Work work;
    const std::optional<Solution> skyline = PlaceOnSkyline(problem, work);
    ASSERT_TRUE(Check(problem, *skyline).ok()) << run;
    for (Buffer& buffer : problem.buffers) buffer.alignment = Bytes{1} << Below(random, 6);
    if (problem.buffers.size() > 2) {
      problem.buffers[0].at = 64;
      problem.apart = {{1, 2}};
    }
    for (const Order order : {Order::kSize, Order::kLifetime, Order::kArea, Order::kBegin}) {
      for (const Fit fit : {Fit::kLowest, Fit::kBest}) {
        const std::optional<Solution> placed = PlaceInOrder(problem, Sorted(problem, order), fit, work);
        const Verdict verdict = Check(problem, *placed);
        ASSERT_TRUE(verdict.ok()) << run << ": " << ToStatus(problem, &*placed, verdict).detail().what;
      }
    }
  }
}

TEST(Planner, HeuristicsEndWithTheirWork) {
  Random random(12);
  const Problem problem = RandomProblem(random, 300, 100, 50);
  Work work{1000};
  EXPECT_FALSE(PlaceInOrder(problem, Sorted(problem, Order::kSize), Fit::kBest, work));
  Work none{10};
  EXPECT_FALSE(PlaceOnSkyline(problem, none));
}

TEST(Planner, SectionsHoldWhatIsLiveTogether) {
  Random random(13);
  for (int run = 0; run < Loops(300, 50); ++run) {
    const Problem problem = RandomProblem(random, 1 + static_cast<int>(Below(random, 30)), 20, 9);
    const Sections sections = FindSections(problem);
    ASSERT_LE(sections.count, problem.buffers.size());
    std::vector<Bytes> live(sections.count, 0);
    for (size_t a = 0; a < problem.buffers.size(); ++a) {
      ASSERT_LT(sections.first[a], sections.last[a]);
      for (uint32_t s = sections.first[a]; s < sections.last[a]; ++s) live[s] += problem.buffers[a].size;
      for (size_t b = 0; b < a; ++b) {
        const bool meet = sections.first[a] < sections.last[b] && sections.first[b] < sections.last[a];
        ASSERT_EQ(meet, OverlapInTime(problem.buffers[a], problem.buffers[b]));
      }
    }
    ASSERT_EQ(*std::max_element(live.begin(), live.end()), LowerBound(problem));
  }
}

// ---- Search ----

TEST(PlannerSearch, FindsTheLowestPlanWithEachTechniqueAndWithout) {
  Random random(17);
  const std::vector<SearchTechniques> all = {{},
                                             {.bounds = false},
                                             {.dominance = false},
                                             {.groups = false},
                                             {.memory = false},
                                             {.learning = false},
                                             {false, false, false, false, false}};
  for (int run = 0; run < Loops(25, 6); ++run) {
    const Problem problem = RandomProblem(random, 6, 7, 9);
    const Bytes lowest = BruteForce(problem);
    for (size_t i = 0; i < all.size(); ++i) {
      Search search(problem, static_cast<uint32_t>(i), all[i]);
      ASSERT_EQ(search.Fit(lowest, 20'000'000, 5'000'000), Outcome::kFits) << run << " " << i;
      ASSERT_EQ(search.solution().height, lowest);
      ASSERT_TRUE(Check(problem, search.solution()).ok());
      ASSERT_EQ(search.Fit(lowest - 1, 20'000'000, 5'000'000), Outcome::kTooHigh) << run << " " << i;
      ASSERT_EQ(search.Fit(lowest + 1, 20'000'000, 5'000'000), Outcome::kFits)
          << "failures of a lower capacity say nothing";
    }
  }
}

TEST(PlannerSearch, FillsABlockThatWasCut) {
  Random random(19);
  for (int run = 0; run < Loops(12, 3); ++run) {
    const Problem problem = CutBlock(random, 60, 60, 200);
    Options options;
    options.capacity = 200;
    options.search_nodes = 3'000'000;
    options.searches = run % 2 == 0 ? 1 : 2;
    StatusOr<Result> result = Solve(problem, options);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->solution.height, 200) << run;
  }
}

TEST(PlannerSearch, EndsWhenItIsTold) {
  Random random(23);
  const Problem problem = CutBlock(random, 400, 400, 5000);
  Options options;
  options.search_nodes = uint64_t{1} << 60;
  int asked = 0;
  options.keep_going = [&](const Progress& progress) {
    EXPECT_GE(progress.height, progress.lower_bound);
    return ++asked < 3;
  };
  StatusOr<Result> result = Solve(problem, options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(asked >= 3 || result->solution.height == 5000);
}

TEST(PlannerSearch, TwoRunsAreTheSame) {
  Random random(29);
  const Problem problem = CutBlock(random, 120, 100, 1000);
  Options options;
  options.search_nodes = 100'000;
  options.searches = 2;
  const Solution first = Solve(problem, options).value().solution;
  EXPECT_EQ(first, Solve(problem, options).value().solution);
  EXPECT_EQ(Solve(problem).value().solution, Solve(problem).value().solution);
}

// ---- The planner ----

TEST(Planner, IsNeverWorseThanGreedyBySize) {
  Random random(31);
  for (int run = 0; run < Loops(60, 15); ++run) {
    Problem problem = RandomProblem(random, 1 + static_cast<int>(Below(random, 120)), 1 + Below(random, 200), 4096);
    for (Buffer& buffer : problem.buffers) {
      if (run % 3 == 1) buffer.alignment = 512;
      if (run % 3 == 2) buffer.size *= 512;
    }
    if (run % 5 == 4 && problem.buffers.size() > 1) {
      problem.buffers[0].at = 1 << 12;
      problem.apart.emplace_back(0, 1);
    }
    Work work;
    const Bytes greedy = PlaceInOrder(problem, Sorted(problem, Order::kSize), Fit::kBest, work)->height;
    StatusOr<Result> result = Solve(problem);
    ASSERT_TRUE(result.ok()) << run;
    ASSERT_LE(result->solution.height, greedy) << run;
    ASSERT_GE(result->solution.height, result->lower_bound) << run;
  }
}

TEST(Planner, ManyBuffers) {
  Random random(37);
  Problem problem;
  const int count = Loops(30'000, 5'000);
  for (int i = 0; i < count; ++i) {
    const Time begin = Below(random, count);
    problem.buffers.push_back({begin, begin + 1 + Below(random, 100), 512 * (1 + Below(random, 1000))});
  }
  StatusOr<Result> result = Solve(problem);
  ASSERT_TRUE(result.ok());
  EXPECT_LT(static_cast<double>(result->solution.height), 1.25 * static_cast<double>(result->lower_bound));
}

TEST(Planner, SmallCases) {
  EXPECT_EQ(Solve({}).value().solution.height, 0);
  EXPECT_EQ(Solve({{{0, 1, 0}}, {}, {}}).value().solution.height, 0);
  EXPECT_EQ(Solve({{{0, 1, 5, 1, 7}}, {}, {}}).value().solution.height, 12);
  // The time axis has no ends of its own.
  constexpr Time kFirst = std::numeric_limits<Time>::min();
  constexpr Time kLast = std::numeric_limits<Time>::max();
  EXPECT_EQ(Solve({{{kFirst, kLast, 5}, {kFirst, 0, 6}, {0, kLast, 7}}, {}, {}}).value().solution.height, 12);
}

// ---- Files and pictures ----

TEST(PlannerFile, IsReadAndWritten) {
  const std::string text = "id,lower,upper,size,alignment,at,offset\nb1,0,3,4,4,,8\nb2,3,9,4,1,2,2\n";
  StatusOr<File> file = ParseCsv(text);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->problem, (Problem{{{0, 3, 4, 4}, {3, 9, 4, 1, 2}}, {}, {"b1", "b2"}}));
  EXPECT_EQ(file->solution, (Solution{{8, 2}, 12}));
  EXPECT_EQ(ToCsv(file->problem, &*file->solution), text);
  StatusOr<File> moved = ParseCsv("size,id,upper,lower\r\n4,x,3,0\r\n");
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(ToCsv(moved->problem), "id,lower,upper,size\nx,0,3,4\n");
  EXPECT_FALSE(moved->solution);
}

TEST(PlannerFile, SaysWhatIsWrong) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "line 1: there is no column ''"},
      {"id,lower,upper\n", "line 1: the column 'size' is missing"},
      {"id,lower,upper,size,size\n", "line 1: the column 'size' stands twice"},
      {"id,lower,upper,size,colour\n", "line 1: there is no column 'colour'"},
      {"id,lower,upper,size\nb,0,1\n", "line 2: 3 cells under 4 columns"},
      {"id,lower,upper,size\nb,0,1,4k\n", "line 2: '4k' in column 'size' is no integer of 64 bits"},
      {"id,lower,upper,size\nb,0,1,99999999999999999999\n", "is no integer of 64 bits"},
      {"id,lower,upper,size\nb,0,,4\n", "line 2: '' in column 'upper' is no integer"},
      {"id,lower,upper,size\nb,5,1,4\n", "a buffer ends before it begins"},
      {"id,lower,upper,size,offset\nb,0,1,4,9000000000000000000\n", "is too large"},
  };
  for (const auto& [text, wanted] : cases) {
    StatusOr<File> file = ParseCsv(text);
    ASSERT_FALSE(file.ok()) << text;
    const Status status = std::move(file).status();
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_NE(status.detail().what.find(wanted), std::string::npos) << status.detail().what;
  }
}

TEST(PlannerPicture, ShowsEveryBuffer) {
  const Problem problem = {{{0, 3, 4}, {2, 5, 4}}, {}, {"a<b", "second"}};
  const std::string svg = ToSvg(problem, {{0, 4}, 8}, "two & more");
  EXPECT_NE(svg.find("<title>a&lt;b: 4 bytes at 0, live from 0 until 3</title>"), std::string::npos);
  EXPECT_NE(svg.find("<title>second: 4 bytes at 4, live from 2 until 5</title>"), std::string::npos);
  EXPECT_NE(svg.find("two &amp; more"), std::string::npos);
  EXPECT_NE(ToSvg({}, {}, "nothing").find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace reprise::plan
