// SPDX-License-Identifier: Apache-2.0
#include "plan/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace reprise::plan {
namespace {

struct Event {
  Time time;
  bool begins;  // ends come first
  BufferId buffer;
  bool operator<(const Event& other) const {
    if (time != other.time) return time < other.time;
    return begins != other.begins ? !begins : buffer < other.buffer;
  }
};

bool ShareBytes(const Problem& problem, const std::vector<Bytes>& offsets, BufferId a, BufferId b) {
  return offsets[a] < offsets[b] + problem.buffers[b].size && offsets[b] < offsets[a] + problem.buffers[a].size &&
         problem.buffers[a].size > 0 && problem.buffers[b].size > 0;
}

// Goes through time. Live buffers do not overlap, or the check has ended: so each new one has to look at the live ones
// before and behind it alone. Buffers at kAnywhere are left out.
Verdict FindOverlap(const Problem& problem, const std::vector<Bytes>& offsets) {
  std::vector<Event> events;
  events.reserve(2 * offsets.size());
  for (BufferId i = 0; i < offsets.size(); ++i) {
    if (offsets[i] == kAnywhere || problem.buffers[i].size == 0) continue;
    events.push_back({problem.buffers[i].begin, true, i});
    events.push_back({problem.buffers[i].end, false, i});
  }
  std::sort(events.begin(), events.end());
  std::map<Bytes, BufferId> live;
  for (const Event& event : events) {
    const Bytes offset = offsets[event.buffer];
    if (!event.begins) {
      live.erase(offset);
      continue;
    }
    const auto behind = live.lower_bound(offset);
    if (behind != live.end() && ShareBytes(problem, offsets, event.buffer, behind->second)) {
      return {Fault::kOverlap, behind->second, event.buffer};
    }
    if (behind != live.begin() && ShareBytes(problem, offsets, event.buffer, std::prev(behind)->second)) {
      return {Fault::kOverlap, std::prev(behind)->second, event.buffer};
    }
    live.emplace_hint(behind, offset, event.buffer);
  }
  for (const auto& [a, b] : problem.apart) {
    if (offsets[a] != kAnywhere && offsets[b] != kAnywhere && ShareBytes(problem, offsets, a, b)) {
      return {Fault::kOverlap, a, b};
    }
  }
  return {};
}

Verdict CheckBuffer(const Buffer& buffer, BufferId id) {
  if (buffer.begin >= buffer.end) return {Fault::kLifetime, id};
  if (buffer.size < 0 || buffer.size > kMostBytes) return {Fault::kSize, id};
  if (buffer.alignment <= 0 || (buffer.alignment & (buffer.alignment - 1)) != 0 || buffer.alignment > kMostBytes) {
    return {Fault::kAlignment, id};
  }
  if (buffer.at == kAnywhere) return {};
  if (buffer.at < 0) return {Fault::kNegative, id};
  if (buffer.at > kMostBytes) return {Fault::kSize, id};
  return {buffer.at % buffer.alignment != 0 ? Fault::kAlignment : Fault::kNone, id};
}

}  // namespace

Verdict Check(const Problem& problem) {
  if (!problem.names.empty() && problem.names.size() != problem.buffers.size()) return {Fault::kCount};
  Bytes sum = 0;
  for (BufferId i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    if (const Verdict verdict = CheckBuffer(buffer, i); !verdict.ok()) return verdict;
    const Bytes most = buffer.size + buffer.alignment - 1;
    if (most > kMostBytes - sum) return {Fault::kSize, i};
    sum += most;
  }
  for (const auto& [a, b] : problem.apart) {
    if (a == b || a >= problem.buffers.size() || b >= problem.buffers.size()) return {Fault::kPair, a, b};
  }
  std::vector<Bytes> given;
  given.reserve(problem.buffers.size());
  for (const Buffer& buffer : problem.buffers) given.push_back(buffer.at);
  return FindOverlap(problem, given);
}

Verdict Check(const Problem& problem, const Solution& solution) {
  if (solution.offsets.size() != problem.buffers.size()) return {Fault::kCount};
  for (BufferId i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    const Bytes offset = solution.offsets[i];
    if (offset < 0) return {Fault::kNegative, i};
    if (offset % buffer.alignment != 0) return {Fault::kAlignment, i};
    if (buffer.at != kAnywhere && offset != buffer.at) return {Fault::kMoved, i};
  }
  if (const Verdict verdict = FindOverlap(problem, solution.offsets); !verdict.ok()) return verdict;
  return {solution.height != HeightOf(problem, solution.offsets) ? Fault::kHeight : Fault::kNone};
}

Status ToStatus(const Problem& problem, const Solution* solution, const Verdict& verdict) {
  if (verdict.ok()) return {};
  const auto describe = [&](BufferId id) {
    if (id >= problem.buffers.size()) return fmt::format("buffer {}, which does not exist", id);
    const Buffer& buffer = problem.buffers[id];
    std::string text = fmt::format("buffer {} ({} bytes, live from {} until {}", NameOf(problem, id), buffer.size,
                                   buffer.begin, buffer.end);
    const Bytes offset = solution != nullptr && id < solution->offsets.size() ? solution->offsets[id] : buffer.at;
    if (offset != kAnywhere) text += fmt::format(", at {}", offset);
    return text + ")";
  };
  const std::string buffer =
      verdict.fault == Fault::kCount || verdict.fault == Fault::kHeight ? "" : describe(verdict.buffer);
  const auto fail = [&](std::string what, const char* hint) {
    return Error(kInvalidArgument, std::move(what)).Culprit(buffer).Hint(hint);
  };
  switch (verdict.fault) {
    case Fault::kNone: break;
    case Fault::kCount:
      return fail("offsets or names do not match the buffers", "give one for each buffer, or no names");
    case Fault::kLifetime:
      return fail("a buffer ends before it begins", "let `end` be the first moment behind its life");
    case Fault::kSize:
      return fail(fmt::format("a size is negative, or the sizes add up to more than {}", kMostBytes),
                  "check the sizes");
    case Fault::kAlignment:
      return fail("an alignment is no power of two, or an offset no multiple of it", "check both");
    case Fault::kPair:
      return fail(fmt::format("the pair ({}, {}) names no two buffers", verdict.buffer, verdict.other),
                  "check the pairs");
    case Fault::kNegative: return fail("an offset is negative", "begin at 0");
    case Fault::kMoved: return fail("a buffer is not at the offset that it must have", "keep the given offsets");
    case Fault::kOverlap:
      return fail(fmt::format("it shares bytes with {}, and both are live", describe(verdict.other)),
                  "move one of them; if their offsets are given, they cannot both be right");
    case Fault::kHeight:
      return fail(fmt::format("the height is {}, but the greatest end of a buffer {}", solution->height,
                              HeightOf(problem, solution->offsets)),
                  "take HeightOf");
  }
  return {};
}

}  // namespace reprise::plan
