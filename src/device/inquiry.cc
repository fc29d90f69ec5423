// SPDX-License-Identifier: Apache-2.0
#include "device/inquiry.h"

#include <algorithm>

namespace reprise::device {
namespace {

// How long after an answer the next one may take.
constexpr auto kPause = std::chrono::milliseconds(10);

struct Answers {
  std::mutex turn;
  std::mutex mutex;
  std::vector<std::string> lines;
  std::atomic<uint32_t> count{0};
};

Answers& TheAnswers() {
  static auto* const answers = new Answers;
  return *answers;
}

}  // namespace

std::atomic<bool> Inquiry::open_{false};

Inquiry::Inquiry() {
  TheAnswers().turn.lock();
  open_.store(true, std::memory_order_seq_cst);
}

Inquiry::~Inquiry() {
  Answers& answers = TheAnswers();
  open_.store(false, std::memory_order_seq_cst);
  {
    std::lock_guard lock(answers.mutex);
    answers.lines.clear();
  }
  answers.turn.unlock();
}

void Inquiry::Answer(std::string line) {
  Answers& answers = TheAnswers();
  std::lock_guard lock(answers.mutex);
  if (!open_.load() || std::find(answers.lines.begin(), answers.lines.end(), line) != answers.lines.end()) return;
  answers.lines.push_back(std::move(line));
  answers.count.fetch_add(1, std::memory_order_release);
  FutexWake(answers.count, 1);
}

std::vector<std::string> Inquiry::Collect(Clock::duration patience) {
  Answers& answers = TheAnswers();
  for (auto limit = Clock::now() + patience;;) {
    const uint32_t seen = answers.count.load(std::memory_order_acquire);
    {
      std::lock_guard lock(answers.mutex);
      if (!answers.lines.empty()) limit = std::min(limit, Clock::now() + kPause);
    }
    FutexWait(answers.count, seen, limit);
    if (answers.count.load(std::memory_order_acquire) != seen) {
      limit = Clock::now() + kPause;
    } else if (Clock::now() >= limit) {
      break;
    }
  }
  std::lock_guard lock(answers.mutex);
  std::vector<std::string> lines = answers.lines;
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace reprise::device
