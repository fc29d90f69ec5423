// SPDX-License-Identifier: Apache-2.0
//
// Snapshots as files. JSON is held against the snapshot here, the pickle against the JSON by Python; what a timeline
// says is held against a plain recount.
#include "memory/snapshot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "../unit/scale.h"
#include "base/fault.h"
#include "memory/timeline.h"
#include "support/json.h"

namespace reprise::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Context : public TraceContext {
 public:
  explicit Context(std::vector<Frame> frames) : frames_(std::move(frames)) {}
  std::vector<Frame> Frames() const override {
    ++asked;
    return frames_;
  }
  mutable int asked = 0;

 private:
  std::vector<Frame> frames_;
};

TraceContextPtr At(const std::string& name, int line = 7) {
  return std::make_shared<Context>(std::vector<Frame>{{"model.cc", line, name}, {"main.cc", 3, "main"}});
}
void* Stream(uintptr_t n) { return reinterpret_cast<void*>(n); }

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "reprise-snapshot-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Empty when Python finds nothing wrong.
std::string Python(const std::string& arguments) {
  FILE* pipe = popen(fmt::format("'{}' '{}' {} 2>&1", PYTHON, CHECKER, arguments).c_str(), "r");
  if (pipe == nullptr) return "no process";
  std::string output;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  return pclose(pipe) == 0 ? "" : output;
}

// Everything that can be in a snapshot, with texts and numbers that are hard to write.
MemorySnapshot Everything() {
  MemorySnapshot snapshot;
  const TraceContextPtr odd = std::make_shared<Context>(std::vector<Frame>{
      {"/tmp/a \"quoted\"\\path\n\t.cc", -1, "std::vector<int>::operator&& <T>"},
      {"b\xff\xc3(\xed\xa0\x80.cc", INT64_MAX, std::string(300, 'n') + "\xe2\x82\xac\x01"},
  });
  SegmentInfo small = {0, 0x7f0000000000, 2 << 20, 1024, 2048, 900, Stream(0x5555aaaa0000), {}, false, false, odd, {}};
  small.blocks = {{0x7f0000000000, 1024, 900, BlockState::kActiveAllocated, odd},
                  {0x7f0000000400, 1024, 1000, BlockState::kActivePendingFree, nullptr},
                  {0x7f0000000800, (2 << 20) - 2048, 0, BlockState::kInactive, nullptr}};
  SegmentInfo large = {2,       INT64_MAX,       40 << 20, 40 << 20, 40 << 20, 40 << 20,
                       nullptr, {0, 1ull << 40}, true,     true,     nullptr,  {}};
  large.blocks = {{INT64_MAX, 40 << 20, 40 << 20, BlockState::kActiveAllocated, At("large")}};
  snapshot.segments = {small, large};
  snapshot.device_traces.resize(2);
  int64_t time = 1700000000000000;
  for (int action = 0; action <= static_cast<int>(TraceAction::kOom); ++action) {
    snapshot.device_traces[0].push_back({static_cast<TraceAction>(action),
                                         0,
                                         0x7f0000000000u + action * 512u,
                                         uint64_t{1} << (6 * action),
                                         Stream(action),
                                         {3, 0},
                                         ++time,
                                         action % 2 == 0 ? odd : nullptr});
  }
  snapshot.settings = {{"expandable_segments", "False"}, {"roundup_power2_divisions", "[256:1,>:2]"}};
  return snapshot;
}

TEST(MemorySnapshot, JsonHoldsEveryField) {
  const MemorySnapshot snapshot = Everything();
  const nlohmann::json json = reprise::testing::ParseJson(SnapshotJson(snapshot));
  ASSERT_EQ(json["segments"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const SegmentInfo& segment = snapshot.segments[i];
    const nlohmann::json& shown = json["segments"][i];
    EXPECT_EQ(shown["device"], segment.device);
    EXPECT_EQ(shown["address"], segment.address);
    EXPECT_EQ(shown["total_size"], segment.total_size);
    EXPECT_EQ(shown["allocated_size"], segment.allocated_size);
    EXPECT_EQ(shown["active_size"], segment.active_size);
    EXPECT_EQ(shown["requested_size"], segment.requested_size);
    EXPECT_EQ(shown["stream"], reinterpret_cast<uintptr_t>(segment.stream));
    EXPECT_EQ(shown["segment_pool_id"], (std::vector<uint64_t>{segment.pool.capture, segment.pool.handle}));
    EXPECT_EQ(shown["segment_type"], i == 0 ? "small" : "large");
    EXPECT_EQ(shown["is_expandable"], segment.is_expandable);
    EXPECT_EQ(shown["frames"].size(), i == 0 ? 2u : 0u);
    ASSERT_EQ(shown["blocks"].size(), segment.blocks.size());
    for (size_t k = 0; k < segment.blocks.size(); ++k) {
      EXPECT_EQ(shown["blocks"][k]["address"], segment.blocks[k].address);
      EXPECT_EQ(shown["blocks"][k]["size"], segment.blocks[k].size);
      EXPECT_EQ(shown["blocks"][k]["requested_size"], segment.blocks[k].requested_size);
    }
  }
  EXPECT_EQ(json["segments"][0]["blocks"][0]["state"], "active_allocated");
  EXPECT_EQ(json["segments"][0]["blocks"][1]["state"], "active_pending_free");
  EXPECT_EQ(json["segments"][0]["blocks"][2]["state"], "inactive");
  const nlohmann::json& frame = json["segments"][0]["blocks"][0]["frames"][0];
  EXPECT_EQ(frame["filename"], "/tmp/a \"quoted\"\\path\n\t.cc");
  EXPECT_EQ(frame["line"], -1);
  EXPECT_EQ(frame["name"], "std::vector<int>::operator&& <T>");
  EXPECT_EQ(json["segments"][0]["frames"][1]["filename"], "b?\?(???.cc") << "what is no text becomes question marks";
  EXPECT_EQ(json["segments"][0]["frames"][1]["name"], std::string(300, 'n') + "\xe2\x82\xac\x01");
  EXPECT_EQ(json["segments"][0]["frames"][1]["line"], INT64_MAX);

  ASSERT_EQ(json["device_traces"].size(), 3u) << "one for each device, recorded or not";
  const char* names[] = {"alloc",         "free_requested", "free_completed",
                         "segment_alloc", "segment_free",   "segment_map",
                         "segment_unmap", "snapshot",       "oom"};
  ASSERT_EQ(json["device_traces"][0].size(), std::size(names));
  for (size_t i = 0; i < std::size(names); ++i) {
    const TraceEntry& entry = snapshot.device_traces[0][i];
    const nlohmann::json& shown = json["device_traces"][0][i];
    EXPECT_EQ(shown["action"], names[i]);
    EXPECT_EQ(shown[entry.action == TraceAction::kOom ? "device_free" : "addr"], entry.address);
    EXPECT_EQ(shown["size"], entry.size);
    EXPECT_EQ(shown["stream"], i);
    EXPECT_EQ(shown["pool_id"], (std::vector<uint64_t>{3, 0}));
    EXPECT_EQ(shown["time_us"], entry.time_us);
    EXPECT_EQ(shown["frames"].size(), i % 2 == 0 ? 2u : 0u);
  }
  EXPECT_EQ(json["allocator_settings"]["expandable_segments"], "False");
  EXPECT_EQ(json["allocator_settings"].size(), 2u);
  EXPECT_TRUE(json["external_annotations"].empty());
}

TEST(MemorySnapshot, PythonReadsThePickleAndFindsWhatTheJsonHolds) {
  const Folder folder;
  MemorySnapshot many = Everything();
  // Several batches, more texts than a byte counts, the same places again and again.
  std::vector<TraceContextPtr> places;
  for (int i = 0; i < 400; ++i) places.push_back(At(fmt::format("function {}", i), i));
  for (int i = 0; i < 3001; ++i) {
    many.device_traces[1].push_back({TraceAction::kAlloc,
                                     1,
                                     4096u * static_cast<unsigned>(i),
                                     4096,
                                     Stream(1),
                                     {},
                                     i,
                                     places[static_cast<size_t>(i * 7 % 400)]});
  }
  for (int i = 0; i < 1000; ++i) many.settings.emplace_back(fmt::format("key {}", i), "value");
  MemorySnapshot exact;
  exact.device_traces.resize(1);
  exact.device_traces[0].resize(1000);
  const std::pair<const char*, MemorySnapshot> snapshots[] = {
      {"nothing", {}}, {"everything", Everything()}, {"many", many}, {"exact", exact}};
  std::string pickles;
  for (const auto& [name, snapshot] : snapshots) {
    const std::string pickle = folder / (std::string(name) + ".pickle");
    const std::string json = folder / (std::string(name) + ".json");
    ASSERT_TRUE(WriteSnapshot(snapshot, pickle).ok());
    ASSERT_TRUE(WriteSnapshot(snapshot, json).ok());
    EXPECT_EQ(Read(pickle), SnapshotPickle(snapshot));
    EXPECT_EQ(Read(json), SnapshotJson(snapshot));
    pickles += " '" + pickle + "'";
  }
  EXPECT_EQ(Python("pickle" + pickles), "");
  // The check can fail: it notices one changed number.
  std::string changed = SnapshotJson(Everything());
  changed.replace(changed.find("262144"), 6, "262145");
  std::ofstream(folder / "everything.json") << changed;
  EXPECT_THAT(Python(fmt::format("pickle '{}'", folder / "everything.pickle")), HasSubstr("pickle and JSON differ"));
}

TEST(MemorySnapshot, EachPlaceIsTurnedIntoWordsOnceAndWrittenOnce) {
  const auto place = std::make_shared<Context>(std::vector<Frame>{{std::string(1000, 'f'), 1, "name"}});
  MemorySnapshot snapshot;
  snapshot.device_traces.resize(1);
  for (int i = 0; i < 1000; ++i) {
    snapshot.device_traces[0].push_back({TraceAction::kAlloc, 0, 1, 512, nullptr, {}, i, place});
  }
  const std::string pickle = SnapshotPickle(snapshot);
  EXPECT_EQ(place->asked, 1);
  EXPECT_LT(pickle.size(), 60000u);
  EXPECT_EQ(SnapshotJson(snapshot).find("\"frames\":[]"), std::string::npos);
  EXPECT_EQ(place->asked, 2);
}

TEST(MemorySnapshot, FilesThatCannotBeWrittenAreNamed) {
  const Folder folder;
  const auto refused = [](const Status& status, const std::string& path) {
    ASSERT_EQ(status.code(), 107009) << path;
    EXPECT_THAT(status.detail().what, HasSubstr(path));
    EXPECT_FALSE(status.detail().hint.empty());
  };
  for (const char* end : {"pickle", "json", "svg", "html"}) {
    const std::string path = folder / (std::string("no/such/folder.") + end);
    refused(WriteSnapshot(Everything(), path), path);
  }
  ArmFault("snapshot.file", 1);
  refused(WriteSnapshot(Everything(), folder / "fault.json"), folder / "fault.json");
  EXPECT_FALSE(std::filesystem::exists(folder / "fault.json"));
  std::filesystem::create_symlink("/dev/full", folder / "full.json");
  refused(WriteSnapshot(Everything(), folder / "full.json"), folder / "full.json");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "full.json")) << "no half a file is left";
}

// ---- Timelines ----

// A random history, with what there was after each change.
struct History {
  struct Live {
    uint64_t bytes;
    PoolId pool;
    std::string place;
  };
  struct Moment {
    std::map<PoolId, int64_t> allocated, reserved;
    std::map<uint64_t, Live> live;
  };
  MemorySnapshot snapshot;
  std::vector<Moment> moments;  ///< [0] before the first entry, [i + 1] behind entry i

  explicit History(uint64_t seed, int steps) {
    std::mt19937_64 random(seed);
    const PoolId pools[] = {{}, {1, 0}, {0, 2}, {3, 0}};
    std::vector<TraceContextPtr> places;
    for (int i = 0; i < 6; ++i) places.push_back(At(fmt::format("f{}", i), i));
    std::vector<TraceEntry>& trace = snapshot.device_traces.emplace_back();
    std::map<uint64_t, std::pair<uint64_t, PoolId>> segments;
    std::map<uint64_t, TraceContextPtr> contexts;
    Moment now;
    uint64_t next = 1 << 20;
    moments.push_back(now);
    int64_t time = 5000;
    for (int i = 0; i < steps; ++i) {
      time += static_cast<int64_t>(random() % 50);
      const PoolId pool = pools[random() % 4];
      const size_t place = random() % 7;
      const TraceContextPtr context = place == 6 ? nullptr : places[place];
      const auto note = [&](TraceAction action, uint64_t address, uint64_t size, PoolId id) {
        trace.push_back({action, 0, address, size, Stream(1), id, time, context});
      };
      switch (random() % 8) {
        case 0:
          note(random() % 2 == 0 ? TraceAction::kSegmentAlloc : TraceAction::kSegmentMap, next, 1 << 20, pool);
          segments[next] = {1 << 20, pool};
          next += 1 << 20;
          now.reserved[pool] += 1 << 20;
          break;
        case 1:
          if (segments.empty()) continue;
          note(random() % 2 == 0 ? TraceAction::kSegmentFree : TraceAction::kSegmentUnmap, segments.begin()->first,
               segments.begin()->second.first, segments.begin()->second.second);
          now.reserved[segments.begin()->second.second] -= 1 << 20;
          segments.erase(segments.begin());
          break;
        case 2: note(TraceAction::kFreeCompleted, 3, 512, pool); break;
        case 3:
        case 4:
          if (now.live.empty()) continue;
          {
            const auto it = std::next(now.live.begin(), static_cast<ptrdiff_t>(random() % now.live.size()));
            note(TraceAction::kFreeRequested, it->first, it->second.bytes, it->second.pool);
            now.allocated[it->second.pool] -= static_cast<int64_t>(it->second.bytes);
            now.live.erase(it);
          }
          break;
        default: {
          uint64_t address = 16 * (1 + random() % 4096);
          if (now.live.count(address) != 0) continue;
          const uint64_t bytes = 512 * (1 + random() % 100);
          note(TraceAction::kAlloc, address, bytes, pool);
          now.allocated[pool] += static_cast<int64_t>(bytes);
          now.live[address] = {
              bytes, pool, context == nullptr ? "place not recorded" : fmt::format("f{} (model.cc:{})", place, place)};
          contexts[address] = context;
        }
      }
      moments.push_back(now);
    }
    for (const PoolId& pool : pools) {
      SegmentInfo segment;
      segment.pool = pool;
      segment.total_size = static_cast<uint64_t>(now.reserved[pool]);
      segment.allocated_size = static_cast<uint64_t>(now.allocated[pool]);
      for (const auto& [address, live] : now.live) {
        if (live.pool == pool) {
          segment.blocks.push_back({address, live.bytes, live.bytes, BlockState::kActiveAllocated, contexts[address]});
        }
      }
      segment.blocks.push_back({1, 99, 0, BlockState::kInactive, nullptr});
      snapshot.segments.push_back(segment);
    }
  }
};

int64_t Sum(const std::map<PoolId, int64_t>& bytes) {
  int64_t sum = 0;
  for (const auto& [pool, value] : bytes) sum += value;
  return sum;
}

TEST(MemoryTimeline, SaysWhatARecountSaysEvenWhenTheBeginningOfTheHistoryIsLost) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(::reprise::testing::Loops(300, 30)); ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, 200);
    std::vector<TraceEntry>& trace = history.snapshot.device_traces[0];
    const size_t lost = seed % 3 == 0 ? 0 : seed * 7 % trace.size();
    const size_t entries = trace.size();
    trace.erase(trace.begin(), trace.begin() + static_cast<ptrdiff_t>(lost));
    const std::vector<Timeline> timelines = Timelines(history.snapshot);
    ASSERT_EQ(timelines.size(), 1u);
    const Timeline& timeline = timelines[0];

    int64_t peak = -1;
    int64_t reserved_peak = -1;
    size_t peak_at = 0;
    for (size_t i = lost; i <= entries; ++i) {
      if (Sum(history.moments[i].allocated) > peak) peak_at = i, peak = Sum(history.moments[i].allocated);
      reserved_peak = std::max(reserved_peak, Sum(history.moments[i].reserved));
    }
    EXPECT_EQ(timeline.peak, peak);
    EXPECT_EQ(timeline.reserved_peak, reserved_peak);
    History::Moment& begin = history.moments[lost];
    for (const Timeline::Pool& pool : timeline.pools) {
      EXPECT_EQ(pool.allocated_before, begin.allocated[pool.id]);
      EXPECT_EQ(pool.reserved_before, begin.reserved[pool.id]);
      int64_t most = 0;
      for (size_t i = lost; i <= entries; ++i) most = std::max(most, history.moments[i].allocated[pool.id]);
      EXPECT_EQ(pool.allocated_peak, most);
    }
    int64_t held = 0;
    std::map<std::pair<PoolId, std::string>, int64_t> expected;
    for (const auto& [address, live] : history.moments[peak_at].live) {
      expected[{live.pool, live.place}] += static_cast<int64_t>(live.bytes);
    }
    std::map<std::pair<PoolId, std::string>, int64_t> shown;
    int64_t last = INT64_MAX;
    for (const Timeline::Holder& holder : timeline.holders) {
      held += holder.bytes;
      EXPECT_GT(holder.blocks, 0);
      EXPECT_LE(holder.bytes, last);
      last = holder.bytes;
      shown[{timeline.pools[holder.pool].id, holder.place}] += holder.bytes;
    }
    EXPECT_EQ(held, peak) << "all of it is held by somebody";
    // A block that came before the history and went in it has lost its place.
    if (lost == 0) {
      EXPECT_EQ(shown, expected);
    }
  }
}

TEST(MemoryTimeline, ADeviceWithoutMemoryAndHistoryHasNone) {
  MemorySnapshot snapshot = Everything();
  const std::vector<Timeline> timelines = Timelines(snapshot);
  ASSERT_EQ(timelines.size(), 2u);
  EXPECT_EQ(timelines[0].device, 0);
  EXPECT_EQ(timelines[1].device, 2);
  EXPECT_TRUE(timelines[1].changes.empty());
  EXPECT_EQ(timelines[1].peak, 40 << 20);
  EXPECT_EQ(timelines[0].ooms.size(), 1u);
  EXPECT_TRUE(Timelines({}).empty());
}

// A capture beside eager work: what the picture is for.
MemorySnapshot Story(int rounds) {
  MemorySnapshot snapshot;
  std::vector<TraceEntry>& trace = snapshot.device_traces.emplace_back();
  int64_t time = 1000000;
  const TraceContextPtr weights = At("load_weights", 12);
  const TraceContextPtr activations = At("forward", 40);
  const TraceContextPtr captured = At("decode_step<\"fp16\">", 77);
  const auto note = [&](TraceAction action, uint64_t address, uint64_t mib, PoolId pool, const TraceContextPtr& at) {
    trace.push_back({action, 0, address, mib << 20, Stream(pool.capture + 1), pool, time += 250, at});
  };
  note(TraceAction::kSegmentAlloc, 1ull << 32, 64, {}, weights);
  note(TraceAction::kAlloc, 1ull << 32, 40, {}, weights);
  for (int i = 0; i < rounds; ++i) {
    note(TraceAction::kAlloc, (1ull << 32) + (40 << 20), 12 + static_cast<uint64_t>(i % 3) * 4, {}, activations);
    const PoolId pool = {static_cast<uint64_t>(1 + i % 4), 0};
    if (i < 4) note(TraceAction::kSegmentAlloc, (2ull + static_cast<uint64_t>(i)) << 32, 20, pool, captured);
    for (uint64_t k = 0; k < 3; ++k) {
      note(TraceAction::kAlloc, ((2ull + static_cast<uint64_t>(i % 4)) << 32) + (k << 22), 4, pool, captured);
    }
    for (uint64_t k = 0; k < 3; ++k) {
      if (k == 0 && i < 4) continue;
      note(TraceAction::kFreeRequested, ((2ull + static_cast<uint64_t>(i % 4)) << 32) + (k << 22), 4, pool, captured);
    }
    note(TraceAction::kFreeRequested, (1ull << 32) + (40 << 20), 12 + static_cast<uint64_t>(i % 3) * 4, {},
         activations);
  }
  note(TraceAction::kOom, 5 << 20, 512, {}, activations);
  note(TraceAction::kSegmentAlloc, 9ull << 32, 20, {0, 5}, weights);
  SegmentInfo segment = {0,         1ull << 32, 64 << 20, 40 << 20, 40 << 20, 40 << 20,
                         Stream(1), {},         true,     false,    weights,  {}};
  snapshot.segments.push_back(segment);
  return snapshot;
}

TEST(MemoryTimeline, ThePictureIsWellFormedAndSaysWhatMatters) {
  const Folder folder;
  TimelineOptions options;
  options.title = "Memory of <decoder> & \"friends\" \xff";
  options.pool_names = {{{1, 0}, "graph 7 </script>"}};
  MemorySnapshot pools = Story(6);
  for (uint64_t i = 0; i < 40; ++i) {
    pools.device_traces[0].push_back(
        {TraceAction::kSegmentAlloc, 0, i << 40, 1 << 20, nullptr, {100 + i, 0}, 2000000, nullptr});
  }
  const std::pair<std::string, MemorySnapshot> snapshots[] = {
      {"nothing", {}}, {"everything", Everything()}, {"story", Story(30)}, {"pools", pools}};
  std::string pictures;
  for (const auto& [name, snapshot] : snapshots) {
    const std::string svg = folder / (name + ".svg");
    const std::string html = folder / (name + ".html");
    ASSERT_TRUE(WriteSnapshot(snapshot, svg, options).ok());
    ASSERT_TRUE(WriteSnapshot(snapshot, html, options).ok());
    pictures += fmt::format(" '{}' '{}'", svg, html);
    EXPECT_EQ(Read(svg), TimelineSvg(snapshot, options));
    EXPECT_THAT(Read(html), HasSubstr(Read(svg)));
    EXPECT_THAT(Read(svg), HasSubstr("Memory of &lt;decoder&gt; &amp; &quot;friends&quot; ?"));
  }
  EXPECT_EQ(Python("picture" + pictures), "");
  const std::string story = Read(folder / "story.svg");
  for (const char* text :
       {"Allocated bytes, by pool", "Reserved bytes, by pool", "default pool", "graph 7", "capture's pool (2,0)",
        "handle's pool (0,5)", ">peak ", ">OOM<", "out of memory: 512 MiB asked for", "time since the first",
        "What held ", "load_weights (model.cc:12)", "decode_step&lt;&quot;fp16&quot;&gt; (model.cc:77)", ">40 MiB<"}) {
    EXPECT_THAT(story, HasSubstr(text));
  }
  EXPECT_THAT(Read(folder / "story.html"), AllOf(HasSubstr("graph 7 \\u003c/script>"), HasSubstr("allocated:[[")));
  EXPECT_THAT(Read(folder / "nothing.svg"), HasSubstr("no device holds memory"));
  EXPECT_THAT(Read(folder / "everything.svg"), AllOf(HasSubstr("Device 2"), HasSubstr("no history was recorded")));
  EXPECT_THAT(Read(folder / "pools.svg"), HasSubstr("36 further pools"));
  EXPECT_THAT(Read(folder / "pools.svg"), Not(HasSubstr("capture's pool (139,0)")));
  // The check can fail.
  std::ofstream(folder / "broken.svg") << story.substr(0, story.size() - 8);
  EXPECT_NE(Python(fmt::format("picture '{}'", folder / "broken.svg")), "");
}

// Heights as drawn: what is in the picture is what is in the timeline, were it there for a moment only.
TEST(MemoryTimeline, ThePeakReachesAsHighAsItIsMarked) {
  MemorySnapshot spike = Story(30);
  std::vector<TraceEntry>& trace = spike.device_traces[0];
  TraceEntry entry = trace[100];
  for (const TraceAction action : {TraceAction::kFreeRequested, TraceAction::kAlloc}) {
    entry.action = action;
    entry.address = 1;
    entry.size = 300 << 20;
    trace.insert(trace.begin() + 100, entry);
  }
  for (const MemorySnapshot& snapshot : {Story(30), spike}) {
    const std::string svg = TimelineSvg(snapshot);
    const Timeline timeline = Timelines(snapshot)[0];
    const size_t circle = svg.find("<circle");
    ASSERT_NE(circle, std::string::npos);
    const size_t cy = svg.find("cy=\"", circle) + 4;
    const double marked = std::stod(svg.substr(cy, 10));
    double highest = 1e9;
    for (size_t at = svg.find("<path d=\""); at < circle; at = svg.find("<path d=\"", at + 1)) {
      std::string numbers = svg.substr(at + 9, svg.find('Z', at) - at - 9);
      std::replace_if(
          numbers.begin(), numbers.end(), [](char c) { return c == 'M' || c == 'L'; }, ' ');
      std::istringstream stream(numbers);
      for (double x = 0, y = 0; stream >> x >> y;) highest = std::min(highest, y);
    }
    EXPECT_NEAR(marked, highest, 0.11);
    EXPECT_THAT(svg, HasSubstr(fmt::format("peak {} MiB", timeline.peak >> 20)));
  }
  EXPECT_GT(Timelines(spike)[0].peak, 300 << 20);
}

TEST(MemoryTimeline, ALongHistoryMakesNoLargePicture) {
  const int rounds = ::reprise::testing::Loops(12000, 1200);
  const MemorySnapshot story = Story(rounds);
  EXPECT_GT(story.device_traces[0].size(), static_cast<size_t>(rounds) * 7);
  EXPECT_LT(TimelineSvg(story).size(), 400000u);
  EXPECT_LT(TimelineHtml(story).size(), 600000u);
}

}  // namespace
}  // namespace reprise::memory
