// SPDX-License-Identifier: Apache-2.0
//
// Settings of the caching allocators: which texts are taken, what they mean, and what is said about the others.
#include "memory/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

namespace reprise::memory {
namespace {

using ::testing::HasSubstr;

struct Good {
  const char* text;
  std::function<bool(const Config&)> holds;
};

TEST(MemoryConfig, GoodTextsMeanWhatTheySay) {
  const std::vector<uint64_t> four(16, 4);
  const Good table[] = {
      {"", [](const Config& c) { return c.Settings() == Config{}.Settings(); }},
      {" , ,", [](const Config& c) { return c.Settings() == Config{}.Settings(); }},
      {"max_split_size_mb:64", [](const Config& c) { return c.max_split_size == 64 * kMiB; }},
      {"max_split_size_mb:21", [](const Config& c) { return c.max_split_size == 21 * kMiB; }},
      {"max_non_split_rounding_mb:32", [](const Config& c) { return c.max_non_split_rounding == 32 * kMiB; }},
      {"large_segment_size_mb:512", [](const Config& c) { return c.large_segment_size == 512 * kMiB; }},
      {"segment_size_mb:40", [](const Config& c) { return c.large_segment_size == 40 * kMiB; }},
      {"large_segment_size_mb:40,large_segment_size_mb:60",
       [](const Config& c) { return c.large_segment_size == 60 * kMiB; }},
      {"garbage_collection_threshold:0.6", [](const Config& c) { return c.garbage_collection_threshold == 0.6; }},
      {"roundup_power2_divisions:4", [&](const Config& c) { return c.roundup_power2_divisions == four; }},
      {"roundup_power2_divisions:0",
       [&](const Config& c) { return c.roundup_power2_divisions == std::vector<uint64_t>(16, 0); }},
      {"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
       [](const Config& c) {
         return c.roundup_power2_divisions == std::vector<uint64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
       }},
      {"roundup_power2_divisions: [ 64 : 8 , 256 : 2 ] , expandable_segments : True",
       [](const Config& c) {
         return c.expandable_segments &&
                c.roundup_power2_divisions == std::vector<uint64_t>{8, 8, 8, 8, 8, 8, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0};
       }},
      {"roundup_power2_divisions:[>:2]",
       [](const Config& c) { return c.roundup_power2_divisions == std::vector<uint64_t>(16, 2); }},
      {"roundup_power2_divisions:[32768:4]", [&](const Config& c) { return c.roundup_power2_divisions == four; }},
      {"expandable_segments:True", [](const Config& c) { return c.expandable_segments; }},
      {"expandable_segments:True,expandable_segments:False", [](const Config& c) { return !c.expandable_segments; }},
      {"expandable_segments:False,max_split_size_mb:64",
       [](const Config& c) { return !c.expandable_segments && c.max_split_size == 64 * kMiB; }},
      {"expandable_segments:True,page_size:1g",
       [](const Config& c) { return c.expandable_segments && c.expandable_pages_1g; }},
      {"base_addr_aligned_kb:0", [](const Config& c) { return c.base_addr_aligned == 0; }},
      {"base_addr_aligned_kb:16", [](const Config& c) { return c.base_addr_aligned == 16 * kKiB; }},
      {"multi_stream_lazy_reclaim:True", [](const Config& c) { return c.multi_stream_lazy_reclaim; }},
      {"per_process_memory_fraction:0.25", [](const Config& c) { return c.per_process_memory_fraction == 0.25; }},
      {"per_process_memory_fraction:0", [](const Config& c) { return c.per_process_memory_fraction == 0; }},
      {"release_lock_on_npumalloc:True", [](const Config& c) { return c.release_lock_on_malloc; }},
      {"throw_on_npumalloc_oom:True", [](const Config& c) { return c.throw_on_oom; }},
      {"graph_capture_record_stream_reuse:True", [](const Config& c) { return c.graph_capture_record_stream_reuse; }},
      {"pinned_use_background_threads:True", [](const Config& c) { return c.pinned_use_background_threads; }},
      {"pinned_max_round_threshold_mb:3", [](const Config& c) { return c.pinned_max_round_threshold == 3 * kMiB; }},
      {"pinned_max_cached_size_mb:0", [](const Config& c) { return c.pinned_max_cached_size == 0; }},
      {"pinned_mem_register:True", [](const Config& c) { return c.pinned_mem_register; }},
      {"pinned_reserve_segment_size_mb:100",
       [](const Config& c) { return c.pinned_reserve_segment_size == 100 * kMiB; }},
      {"pin_memory_expandable_segments:True", [](const Config& c) { return c.pin_memory_expandable_segments; }},
  };
  for (const Good& row : table) {
    StatusOr<Config> config = Config::Parse(row.text);
    ASSERT_TRUE(config.ok()) << row.text << ": " << std::move(config).status().detail().what;
    EXPECT_TRUE(row.holds(*config)) << row.text;
  }
}

TEST(MemoryConfig, BadTextsAreRefusedWithKeyValueAndWhatIsAllowed) {
  struct Bad {
    const char* text;
    const char* what;
    const char* hint;
  };
  const Bad table[] = {
      {"max_split_size_mb:20", "'20' is no value for max_split_size_mb", "more than 20"},
      {"max_split_size_mb:-1", "'-1'", "more than 20"},
      {"max_split_size_mb:sixty", "'sixty'", "MiB"},
      {"max_split_size_mb:64MB", "'64MB'", "MiB"},
      {"max_split_size_mb:99999999999999999999", "max_split_size_mb", "MiB"},
      {"max_split_size_mb:17592186044416", "max_split_size_mb", "MiB"},
      {"max_split_size_mb:", "''", "MiB"},
      {"max_split_size_mb", "''", "MiB"},
      {"max_non_split_rounding_mb:19", "max_non_split_rounding_mb", "20 or more"},
      {"large_segment_size_mb:19", "large_segment_size_mb", "from 20 to 512"},
      {"large_segment_size_mb:513", "large_segment_size_mb", "from 20 to 512"},
      {"segment_size_mb:1", "segment_size_mb", "large_segment_size_mb"},
      {"garbage_collection_threshold:0", "garbage_collection_threshold", "between 0 and 1"},
      {"garbage_collection_threshold:1", "garbage_collection_threshold", "between 0 and 1"},
      {"garbage_collection_threshold:nan", "garbage_collection_threshold", "between 0 and 1"},
      {"garbage_collection_threshold:0.5x", "'0.5x'", "between 0 and 1"},
      {"roundup_power2_divisions:3", "roundup_power2_divisions", "power of two"},
      {"roundup_power2_divisions:[256:3]", "roundup_power2_divisions", "power of two"},
      {"roundup_power2_divisions:[300:1]", "roundup_power2_divisions", "powers of two"},
      {"roundup_power2_divisions:[512:1,256:1]", "roundup_power2_divisions", "ascending"},
      {"roundup_power2_divisions:[256:1,256:1]", "roundup_power2_divisions", "ascending"},
      {"roundup_power2_divisions:[>:1,256:1]", "roundup_power2_divisions", "last"},
      {"roundup_power2_divisions:[65536:1]", "roundup_power2_divisions", "32768"},
      {"roundup_power2_divisions:[256:1", "roundup_power2_divisions", "list"},
      {"roundup_power2_divisions:[]", "roundup_power2_divisions", "list"},
      {"roundup_power2_divisions:[256]", "roundup_power2_divisions", "list"},
      {"roundup_power2_divisions:[", "roundup_power2_divisions", "list"},
      {"expandable_segments:true", "'true' is no value for expandable_segments", "True or False"},
      {"expandable_segments:1", "'1'", "True or False"},
      {"expandable_segments:True:False", "'True:False'", "True or False"},
      {"page_size:2m", "page_size", "1g"},
      {"base_addr_aligned_kb:17", "base_addr_aligned_kb", "from 0 to 16"},
      {"multi_stream_lazy_reclaim:yes", "multi_stream_lazy_reclaim", "True or False"},
      {"per_process_memory_fraction:1.5", "per_process_memory_fraction", "from 0 to 1"},
      {"per_process_memory_fraction:-0.1", "per_process_memory_fraction", "from 0 to 1"},
      {"release_lock_on_npumalloc:", "release_lock_on_npumalloc", "True or False"},
      {"throw_on_npumalloc_oom:t", "throw_on_npumalloc_oom", "True or False"},
      {"graph_capture_record_stream_reuse:1", "graph_capture_record_stream_reuse", "True or False"},
      {"pinned_use_background_threads:2", "pinned_use_background_threads", "True or False"},
      {"pinned_max_round_threshold_mb:1.5", "'1.5'", "MiB"},
      {"pinned_max_cached_size_mb:-3", "pinned_max_cached_size_mb", "MiB"},
      {"pinned_mem_register:x", "pinned_mem_register", "True or False"},
      {"pinned_reserve_segment_size_mb:lots", "pinned_reserve_segment_size_mb", "MiB"},
      {"pin_memory_expandable_segments:0", "pin_memory_expandable_segments", "True or False"},
      {"expandable_segment:True", "no key 'expandable_segment'", "did you mean expandable_segments?"},
      {"max_split_size:64", "no key 'max_split_size'", "did you mean max_split_size_mb?"},
      {"colour:blue", "no key 'colour'", "use one of max_split_size_mb"},
      {":3", "no key ''", "use one of"},
      {"expandable_segments:True,max_split_size_mb:64", "max_split_size_mb exclude each other", "leave out"},
      {"garbage_collection_threshold:0.5,expandable_segments:True", "garbage_collection_threshold exclude each other",
       "leave out"},
  };
  for (const Bad& row : table) {
    StatusOr<Config> config = Config::Parse(row.text);
    ASSERT_FALSE(config.ok()) << row.text;
    const Status status = std::move(config).status();
    EXPECT_EQ(status.code(), 107000) << row.text;
    EXPECT_THAT(status.detail().what, HasSubstr(row.what)) << row.text;
    EXPECT_THAT(status.detail().hint, HasSubstr(row.hint)) << row.text;
    EXPECT_THAT(status.detail().culprit, HasSubstr(row.text[0] == ':' ? "key ''" : "")) << row.text;
    EXPECT_FALSE(status.detail().culprit.empty()) << row.text;
  }
}

TEST(MemoryConfig, AVeryLongKeyIsRefusedLikeAnyOther) {
  StatusOr<Config> config = Config::Parse(std::string(1 << 20, 'x') + ":1");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::move(config).status().detail().hint, HasSubstr("use one of"));
}

// What Settings says, Parse understands, and it means the same.
TEST(MemoryConfig, SettingsAreATextThatMeansTheSame) {
  const char* texts[] = {
      "",
      "max_split_size_mb:64,garbage_collection_threshold:0.7,roundup_power2_divisions:[256:1,512:2,>:4]",
      "expandable_segments:True,page_size:1g,base_addr_aligned_kb:3,per_process_memory_fraction:0.3",
      "pinned_use_background_threads:True,pinned_max_round_threshold_mb:7,pinned_max_cached_size_mb:9",
      "pinned_mem_register:True,pinned_reserve_segment_size_mb:64,pin_memory_expandable_segments:True",
      "multi_stream_lazy_reclaim:True,release_lock_on_npumalloc:True,throw_on_npumalloc_oom:True,segment_size_mb:77",
  };
  for (const char* text : texts) {
    StatusOr<Config> config = Config::Parse(text);
    ASSERT_TRUE(config.ok()) << text;
    std::map<std::string, std::string> shown;
    std::string again;
    for (const auto& [key, value] : config->Settings()) {
      again += fmt::format("{}:{},", key, value);
      EXPECT_TRUE(shown.emplace(key, value).second) << key;
    }
    StatusOr<Config> second = Config::Parse(again);
    ASSERT_TRUE(second.ok()) << again << ": " << std::move(second).status().detail().what;
    EXPECT_EQ(second->Settings(), config->Settings()) << text;
    EXPECT_EQ(second->max_split_size, config->max_split_size);
    EXPECT_EQ(second->roundup_power2_divisions, config->roundup_power2_divisions);
    EXPECT_EQ(second->pinned_max_round_threshold, config->pinned_max_round_threshold);
    EXPECT_EQ(second->garbage_collection_threshold, config->garbage_collection_threshold);
  }
  EXPECT_GE(Config{}.Settings().size(), 12u);
}

// The environment is read once for each process, so each row below is a process of its own that runs this test alone.
TEST(MemoryConfigChild, DISABLED_PrintsWhatTheEnvironmentSays) {
  StatusOr<Config> config = Config::FromEnvironment();
  if (config.ok()) {
    std::printf("split %llu caching %d\n", static_cast<unsigned long long>(config->max_split_size / kMiB),
                config->no_cache ? 0 : 1);
    return;
  }
  const Status status = std::move(config).status();
  std::printf("%d %s; %s; %s\n", status.code(), status.detail().what.c_str(), status.detail().culprit.c_str(),
              status.detail().hint.c_str());
}

std::string RunChild(const std::string& environment) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return "no path";
  const std::string command = fmt::format(
      "env -u PYTORCH_NPU_ALLOC_CONF -u PYTORCH_ALLOC_CONF -u PYTORCH_NO_NPU_MEMORY_CACHING -u GTEST_OUTPUT {} '{}' "
      "--gtest_also_run_disabled_tests --gtest_filter='MemoryConfigChild.*' 2>&1",
      environment, self);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "no process";
  std::string output;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  return pclose(pipe) == 0 ? output : "failed: " + output;
}

TEST(MemoryConfig, TheEnvironmentSetsItAndTwoVariablesAtOnceAreRefused) {
  const struct {
    const char* environment;
    std::vector<const char*> says;
  } table[] = {
      {"", {"split 17592186044415 caching 1"}},
      {"PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64", {"split 64 caching 1"}},
      {"PYTORCH_ALLOC_CONF=max_split_size_mb:32 PYTORCH_NO_NPU_MEMORY_CACHING=1", {"split 32 caching 0"}},
      {"PYTORCH_NO_NPU_MEMORY_CACHING=", {"caching 1"}},
      {"PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64 PYTORCH_ALLOC_CONF=max_split_size_mb:64",
       {"107000 both PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF are set", "unset one"}},
      {"PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:2",
       {"107000 '2' is no value for max_split_size_mb", "which PYTORCH_NPU_ALLOC_CONF holds", "more than 20"}},
      {"PYTORCH_ALLOC_CONF=size:2", {"107000", "'size'", "which PYTORCH_ALLOC_CONF holds"}},
  };
  for (const auto& row : table) {
    const std::string output = RunChild(row.environment);
    for (const char* text : row.says) EXPECT_THAT(output, HasSubstr(text)) << row.environment;
  }
}

}  // namespace
}  // namespace reprise::memory
