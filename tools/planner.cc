// SPDX-License-Identifier: Apache-2.0
//
// reprise-planner: plans the memory of buffers whose lifetimes a CSV file lists, and says how good the plan is.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "plan/csv.h"
#include "plan/picture.h"
#include "plan/solve.h"
#include "plan/validate.h"

namespace reprise::plan {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string file;
  std::string output;
  std::string picture;
  Bytes capacity = 0;
  double seconds = 0;
  uint32_t searches = 1;
  bool check = false;
};

int Fail(const std::string& file, const Status& status) {
  const Status::Detail& detail = status.detail();
  fmt::print(stderr, "reprise-planner: {}: {}{}{}\n", file, detail.culprit.empty() ? "" : detail.culprit + ": ",
             detail.what, detail.hint.empty() ? "" : "; " + detail.hint);
  return 1;
}

int FailToWrite(const std::string& file) {
  fmt::print(stderr, "reprise-planner: {}: cannot be written; name a file in a folder that you may write to\n", file);
  return 1;
}

bool Write(const std::string& file, const std::string& text) {
  if (file == "-") return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  std::ofstream out(file, std::ios::binary);
  out << text;
  return static_cast<bool>(out.flush());
}

// One line that is written over again, on a terminal alone.
void ShowProgress(const Progress& progress, double elapsed, double seconds) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r{:.4f} of the lower bound, {} nodes, {:.0f} s left  ",
             static_cast<double>(progress.height) / static_cast<double>(std::max<Bytes>(progress.lower_bound, 1)),
             progress.nodes, std::max(seconds - elapsed, 0.0));
  std::fflush(stderr);
}

int CheckOnly(const Arguments& arguments, const File& file) {
  if (!file.solution) {
    fmt::print(stderr, "reprise-planner: {}: no column 'offset', or not filled in everywhere\n", arguments.file);
    return 1;
  }
  if (const Status status = ToStatus(file.problem, &*file.solution, Check(file.problem, *file.solution));
      !status.ok()) {
    return Fail(arguments.file, status);
  }
  fmt::print("{}: a plan of {} bytes; the lower bound is {}\n", arguments.file, file.solution->height,
             LowerBound(file.problem));
  return 0;
}

int Run(const Arguments& arguments) {
  std::ifstream in(arguments.file, std::ios::binary);
  if (!in) {
    fmt::print(stderr, "reprise-planner: {}: cannot be read\n", arguments.file);
    return 1;
  }
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  StatusOr<File> file = ParseCsv(text);
  if (!file.ok()) return Fail(arguments.file, std::move(file).status());
  if (arguments.check) return CheckOnly(arguments, *file);
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  Options options;
  options.capacity = arguments.capacity;
  options.searches = arguments.searches;
  if (arguments.seconds > 0) {
    options.search_nodes = Options::kQuick - 1;  // as many as fit into the time
    options.keep_going = [&](const Progress& progress) {
      ShowProgress(progress, elapsed(), arguments.seconds);
      return elapsed() < arguments.seconds;
    };
  }
  StatusOr<Result> result = Solve(file->problem, options);
  if (isatty(STDERR_FILENO) != 0 && arguments.seconds > 0) fmt::print(stderr, "\r\033[K");
  if (!result.ok()) return Fail(arguments.file, std::move(result).status());
  const Solution& solution = result->solution;
  const std::string summary =
      fmt::format("{}: {} buffers, height {}, lower bound {}, ratio {:.4f}, {}, {:.1f} ms", arguments.file,
                  file->problem.buffers.size(), solution.height, result->lower_bound,
                  static_cast<double>(solution.height) / static_cast<double>(std::max<Bytes>(result->lower_bound, 1)),
                  result->method, elapsed() * 1e3);
  fmt::print(arguments.output == "-" ? stderr : stdout, "{}\n", summary);
  if (!arguments.output.empty() && !Write(arguments.output, ToCsv(file->problem, &solution))) {
    return FailToWrite(arguments.output);
  }
  if (!arguments.picture.empty() && !Write(arguments.picture, ToSvg(file->problem, solution, arguments.file))) {
    return FailToWrite(arguments.picture);
  }
  return arguments.capacity > 0 && solution.height > arguments.capacity ? 2 : 0;
}

}  // namespace
}  // namespace reprise::plan

int main(int argc, char** argv) {
  reprise::plan::Arguments arguments;
  CLI::App app("Plans memory for buffers of known lifetimes: CSV with the columns id, lower, upper, size.",
               "reprise-planner");
  app.add_option("FILE", arguments.file, "the problem; with a column `offset`, a plan for --check")->required();
  app.add_option("--capacity", arguments.capacity, "bytes that will do; exit status 2 if the plan is larger")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", arguments.seconds, "look for lower plans so long; otherwise some milliseconds")
      ->check(CLI::PositiveNumber);
  app.add_option("--searches", arguments.searches, "searches beside each other, a thread each")
      ->check(CLI::Range(1, 256));
  app.add_option("--output", arguments.output, "write the plan as CSV; - for standard output");
  app.add_option("--picture", arguments.picture, "draw the plan as SVG");
  app.add_flag("--check", arguments.check, "check the plan in FILE, make none");
  CLI11_PARSE(app, argc, argv);
  return reprise::plan::Run(arguments);
}
