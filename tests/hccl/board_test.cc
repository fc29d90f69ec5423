// SPDX-License-Identifier: Apache-2.0
//
// What ranks read of each other's end: the words are there as soon as a rank is out, and name the one with which it
// began.
#include "collective/board.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/operation.h"

namespace reprise::collective {
namespace {

std::shared_ptr<Board> MakeBoard(uint32_t ranks, uint8_t name) {
  StatusOr<std::shared_ptr<Board>> board = Board::Create({name}, ranks, false);
  EXPECT_TRUE(board.ok());
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    (*board)->rank(rank).pid = static_cast<int32_t>(1000 + rank);
    (*board)->rank(rank).state.store(static_cast<uint32_t>(RankState::kReady));
  }
  return *board;
}

bool HasLeft(const RankRow& row) { return row.state.load() == static_cast<uint32_t>(RankState::kLeft); }

// A rank fails and destroys its communicator at once, while another one reads why.
TEST(HcclBoard, TheWordsOfARankThatLeavesAreWhole) {
  constexpr int kRounds = 10000;
  const std::shared_ptr<Board> board = MakeBoard(1, 1);
  const std::string failed = "failed: " + std::string(400, 'f');
  const std::string left = "left: " + std::string(400, 'l');
  RankRow& row = board->rank(0);
  std::barrier<> both(2);
  std::thread leaver([&] {
    for (int round = 0; round < kRounds; ++round) {
      both.arrive_and_wait();
      board->Fail(0, RankState::kFailed, 7, failed);
      // So that the other one is somewhere in the midst of reading.
      for (std::atomic<int> spin = round % 97; spin > 0;) --spin;
      board->Fail(0, RankState::kLeft, 7, left);
      both.arrive_and_wait();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    both.arrive_and_wait();
    while (!HasLeft(row)) {
      if (!board->IsOut(0)) continue;
      const std::string words = board->ReasonOf(0);
      EXPECT_TRUE(words == failed || words == left) << "'" << words << "'";
    }
    EXPECT_EQ(left, board->ReasonOf(0));
    both.arrive_and_wait();
    row.ForgetReasons();
    row.state.store(static_cast<uint32_t>(RankState::kReady));
  }
  leaver.join();
}

// Several processes find that a rank is gone, each in words of its own.
TEST(HcclBoard, OfSeveralWhoTellOneIsHeard) {
  for (int round = 0; round < 200; ++round) {
    const std::shared_ptr<Board> board = MakeBoard(2, 2);
    std::vector<std::thread> tellers;
    for (int teller = 0; teller < 3; ++teller) {
      tellers.emplace_back([&, teller] {
        const std::string words(300, static_cast<char>('a' + teller));
        board->Fail(1, RankState::kFailed, 7, words);
        EXPECT_TRUE(board->IsOut(1));
      });
    }
    while (!board->IsOut(1)) std::this_thread::yield();
    const std::string first = board->ReasonOf(1);
    for (std::thread& teller : tellers) teller.join();
    EXPECT_EQ(std::string(300, first[0]), first);
    EXPECT_EQ(first, board->ReasonOf(1));
  }
}

// A process is killed while it writes why another one is gone.
TEST(HcclBoard, WhoeverTellsMayBeKilledAtIt) {
  const std::shared_ptr<Board> board = MakeBoard(2, 3);
  board->rank(1).reason(static_cast<uint32_t>(RankState::kFailed)).stage = Reason::kIsWritten;
  board->Fail(1, RankState::kFailed, 7, "what another process finds, too");
  EXPECT_TRUE(board->IsOut(1));
  EXPECT_EQ("rank 1 (process 1001) takes part no more", board->ReasonOf(1));
}

TEST(HcclBoard, ReasonsAreCutAtTheirRoom) {
  const std::shared_ptr<Board> board = MakeBoard(1, 4);
  board->Fail(0, RankState::kFailed, 7, std::string(5000, 'x'));
  EXPECT_EQ(std::string(sizeof Reason::text - 1, 'x'), board->ReasonOf(0));
  board->Fail(0, RankState::kSuspended, 7, "less than failed");
  EXPECT_EQ('x', board->ReasonOf(0)[0]);
}

// Each of eight ranks fails because of the one before it, and destroys its communicator: all name the first.
TEST(HcclBoard, TheRankWithWhichItBeganIsNamed) {
  constexpr uint32_t kRanks = 8;
  const std::shared_ptr<Board> board = MakeBoard(kRanks, 5);
  const std::string root = "rank 0 (process 1000) was killed, or ended without HcclCommDestroy";
  board->Fail(0, RankState::kFailed, 7, root);
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    const std::string lost = HeartbeatLost(*board, rank - 1);
    EXPECT_EQ("Heartbeat Lost Occurred: " + root, lost);
    const std::string what = fmt::format("EI0012: AllReduce of group g, seq 0 cannot end on rank {}, {}", rank, lost);
    board->Fail(rank, RankState::kFailed, 7, what);
    board->Fail(rank, RankState::kLeft, 7, fmt::format("rank {} destroyed group g, as it had failed: {}", rank, what));
  }
}

}  // namespace
}  // namespace reprise::collective
