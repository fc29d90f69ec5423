// SPDX-License-Identifier: Apache-2.0
//
// The index of compiled graphs, in JSON.
#include "engine/json_files.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace reprise::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string TextOf(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::vector<CacheEntry> ReadCacheIndex(const std::string& path) {
  std::ifstream file(path);
  std::vector<CacheEntry> entries;
  if (!file) return entries;
  const Json root = Json::parse(file, nullptr, false);
  const auto found = root.is_object() ? root.find("cache_file_list") : root.end();
  if (found == root.end() || !found->is_array()) return entries;
  for (const Json& entry : *found) {
    if (entry.is_object()) entries.push_back({TextOf(entry, "graph_key"), TextOf(entry, "cache_file_name")});
  }
  return entries;
}

std::string CacheIndexText(const std::vector<CacheEntry>& entries) {
  Json list = Json::array();
  for (const CacheEntry& entry : entries) {
    list.push_back({{"graph_key", entry.key}, {"cache_file_name", entry.file}, {"var_desc_file_name", ""}});
  }
  return Json{{"cache_file_list", list}}.dump(1) + "\n";
}

bool IsCacheDebugged(const std::string& path) {
  std::ifstream file(path);
  if (!file) return false;
  const Json root = Json::parse(file, nullptr, false);
  return root.is_object() && root.value("cache_debug_mode", Json(false)) == Json(true);
}

std::string MergedObjects(const std::vector<std::string>& objects) {
  Json merged = Json::object();
  for (const std::string& text : objects) {
    const Json object = Json::parse(text, nullptr, false);
    if (object.is_object()) merged.update(object);
  }
  return merged.dump(2) + "\n";
}

std::optional<std::map<std::string, std::string, std::less<>>> ValueBinsOf(std::string_view text) {
  std::map<std::string, std::string, std::less<>> bins;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("value_bins") || !json["value_bins"].is_array()) return std::nullopt;
  for (const Json& bin : json["value_bins"]) {
    if (!bin.is_object() || !bin.contains("value_bin_id") || !bin.contains("value_bin_file")) return std::nullopt;
    if (!bin["value_bin_id"].is_string() || !bin["value_bin_file"].is_string()) return std::nullopt;
    bins.insert_or_assign(bin["value_bin_id"].get<std::string>(), bin["value_bin_file"].get<std::string>());
  }
  return bins;
}

}  // namespace reprise::engine
