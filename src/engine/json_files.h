// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::engine {

/// A compiled graph in the index of a cache.
struct CacheEntry {
  std::string key;
  std::string file;  ///< beside the index
};

/// Empty for a file that is not there, or is no index.
std::vector<CacheEntry> ReadCacheIndex(const std::string& path);
std::string CacheIndexText(const std::vector<CacheEntry>& entries);
/// The members of several objects as one.
std::string MergedObjects(const std::vector<std::string>& objects);
/// Whether the configuration of a cache wants graphs compiled although they are there.
bool IsCacheDebugged(const std::string& path);

/// {"value_bins": [{"value_bin_id": …, "value_bin_file": …}, …]}: files by id. Nothing for other text.
std::optional<std::map<std::string, std::string, std::less<>>> ValueBinsOf(std::string_view text);

}  // namespace reprise::engine
