// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace bench {
namespace {

// Beyond this a rank is taken for stuck.
constexpr int kLimitSeconds = 120;
constexpr size_t kTail = 400;

std::string Replaced(std::string word, const std::string& folder, int rank, int ranks) {
  if (word == "FOLDER") return folder;
  if (word == "RANK") return std::to_string(rank);
  if (word == "RANKS") return std::to_string(ranks);
  return word;
}

}  // namespace

Group::Group(Way way) : way_(std::move(way)), rest_(static_cast<size_t>(way_.ranks)) {
  const char* const base = std::getenv("TMPDIR");
  folder_ = std::string(base != nullptr ? base : "/tmp") + "/collectives_bench.XXXXXX";
  Require(mkdtemp(folder_.data()) != nullptr, "cannot make a folder for the pipes of ranks");
  for (int rank = 0; rank < way_.ranks; ++rank) {
    const std::string number = std::to_string(rank);
    // Opened for both directions a pipe needs nobody on the other side yet.
    for (auto& [name, fds] : {std::pair{"/in." + number, &in_}, std::pair{"/out." + number, &out_}}) {
      Require(mkfifo((folder_ + name).c_str(), 0600) == 0, "cannot make a pipe");
      fds->push_back(open((folder_ + name).c_str(), O_RDWR | O_CLOEXEC));
      Require(fds->back() >= 0, "cannot open a pipe");
    }
  }
  const bool one_for_all = std::find(way_.command.begin(), way_.command.end(), "RANK") == way_.command.end();
  for (int rank = 0; rank < (one_for_all ? 1 : way_.ranks); ++rank) Start(rank);
}

void Group::Start(int rank) {
  std::vector<std::string> words;
  for (const std::string& word : way_.command) words.push_back(Replaced(word, folder_, rank, way_.ranks));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder_ + "/log." + std::to_string(rank);
  const pid_t pid = fork();
  Require(pid >= 0, "cannot start a process");
  if (pid == 0) {
    const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    const int nothing = open("/dev/null", O_RDONLY);
    if (fd < 0 || nothing < 0) _exit(126);
    dup2(fd, 1);
    dup2(fd, 2);
    dup2(nothing, 0);
    for (const auto& [name, value] : way_.environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
    _exit(127);
  }
  processes_.push_back(pid);
}

Group::~Group() {
  for (const int fd : in_) close(fd);  // ranks see the end of their lines
  for (const int pid : processes_) {
    for (int tries = 0; pid > 0; ++tries) {
      if (waitpid(pid, nullptr, WNOHANG) != 0) break;
      if (tries == 500) kill(pid, SIGKILL);
      usleep(10000);
    }
  }
  for (const int fd : out_) close(fd);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

bool Group::HasEnded() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    int status = 0;
    if (processes_[i] <= 0 || waitpid(processes_[i], &status, WNOHANG) != processes_[i]) continue;
    processes_[i] = 0;
    std::string tail;
    if (std::FILE* const log = std::fopen((folder_ + "/log." + std::to_string(i)).c_str(), "r")) {
      char text[4096];
      while (std::fgets(text, sizeof text, log) != nullptr) tail += text;
      std::fclose(log);
    }
    // What was said last, on one line.
    if (tail.size() > kTail) tail.erase(0, tail.size() - kTail);
    std::replace(tail.begin(), tail.end(), '\n', ' ');
    why_ = "a process of " + way_.name + " has ended: " + tail;
    return true;
  }
  return false;
}

std::string Group::Answer(int rank) {
  const auto index = static_cast<size_t>(rank);
  std::string& text = rest_[index];
  const double end = NowNs() + kLimitSeconds * 1e9;
  for (;;) {
    if (const size_t line = text.find('\n'); line != std::string::npos) {
      const std::string answer = text.substr(0, line);
      text.erase(0, line + 1);
      return answer;
    }
    pollfd wanted{out_[index], POLLIN, 0};
    if (poll(&wanted, 1, 200) > 0) {
      char part[4096];
      const ssize_t got = read(out_[index], part, sizeof part);
      if (got > 0) text.append(part, static_cast<size_t>(got));
    } else if (HasEnded()) {
      return {};
    } else if (NowNs() > end) {
      why_ = way_.name + ": rank " + std::to_string(rank) + " has not answered for " + std::to_string(kLimitSeconds) +
             " s";
      return {};
    }
  }
}

std::vector<Report> Group::Try(const std::string& line) {
  for (const int pid : processes_) {
    if (pid <= 0) return {};  // why_ is known
  }
  for (const int fd : in_) Require(write(fd, (line + "\n").data(), line.size() + 1) > 0, "cannot write to a rank");
  std::vector<Report> reports;
  bool good = true;
  for (int rank = 0; rank < way_.ranks; ++rank) {
    const std::string answer = Answer(rank);
    if (answer.empty()) return {};
    std::istringstream words(answer);
    std::string word;
    words >> word;
    if (word != "ok") {
      why_ = way_.name + ": " + answer;
      good = false;
      continue;
    }
    Report report;
    int64_t preempted = 0;
    words >> report.begin_ns >> report.end_ns >> preempted;
    preemptions_ += preempted;
    for (double value = 0; words >> value;) report.more.push_back(value);
    reports.push_back(report);
  }
  return good ? reports : std::vector<Report>{};
}

std::vector<Report> Group::Ask(const std::string& line) {
  std::vector<Report> reports = Try(line);
  Require(!reports.empty(), (line + ": " + why_).c_str());
  return reports;
}

double Group::Ns(const std::string& line) {
  double most = 0;
  for (const Report& report : Ask(line)) most = std::max(most, report.ns());
  return most;
}

Sampler Group::Timed(const std::string& act, double units) {
  // More and more: the first ones wake who has to be awake, and say little of those that follow.
  int repetitions = 1;
  Ns(act + " 1");
  for (;;) {
    const double once = Ns(act + " " + std::to_string(repetitions)) / repetitions + 0.1;
    const double wanted = std::clamp(effort().sample_ns / once, 1.0, 1e6);
    if (wanted < 2 * repetitions) break;
    repetitions = static_cast<int>(std::min(wanted, 16.0 * repetitions));
  }
  const std::string line = act + " " + std::to_string(repetitions);
  return [this, line, repetitions, units] {
    return Undisturbed([&] { return Ns(line) / repetitions / units; }, [this] { return preemptions(); });
  };
}

}  // namespace bench
