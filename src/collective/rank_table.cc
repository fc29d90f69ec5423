// SPDX-License-Identifier: Apache-2.0
#include "collective/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "collective/board.h"
#include "collective/numbers.h"

namespace reprise::collective {
namespace {

using Json = nlohmann::json;

Status Bad(const char* category, const std::string& what) {
  return Error(kParameter, fmt::format("{}: the rank table is wrong: {}", category, what))
      .Culprit("the rank table")
      .Hint(
          "write the members status, version, server_count and server_list, with device_id and rank_id for each "
          "device");
}

// The member of an object that is a text, or nothing.
std::optional<std::string> TextOf(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string()) return std::nullopt;
  return at->get<std::string>();
}

// Numbers are texts.
std::optional<int64_t> NumberOf(const Json& object, const char* name, int64_t most) {
  const std::optional<std::string> text = TextOf(object, name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || error != std::errc() || end != text->data() + text->size() || value < 0 || value > most)
    return std::nullopt;
  return value;
}

}  // namespace

StatusOr<RankTable> ParseRankTable(const std::string& text) {
  const Json table = Json::parse(text, nullptr, false);
  if (table.is_discarded() || !table.is_object()) return Bad("EI0004", "it is no object of JSON");
  const std::optional<std::string> status = TextOf(table, "status");
  if (!status) return Bad("EI0004", "it has no status");
  if (*status == "initializing") return Bad("EI0004", "its status is initializing: it is not ready");
  if (*status != "completed")
    return Bad("EI0004", fmt::format("its status is \"{}\", must be completed", status->substr(0, 40)));
  const std::optional<std::string> version = TextOf(table, "version");
  if (!version) return Bad("EI0004", "it has no version");
  if (*version == "2.0") {
    return Error(kNotSupported, "rank tables of version 2.0 describe devices that are not here")
        .Culprit("the rank table")
        .Hint("write a table of version 1.0");
  }
  if (*version != "1.0" && *version != "1.2")
    return Bad("EI0004", fmt::format("its version is \"{}\"", version->substr(0, 40)));
  const auto servers = table.find("server_list");
  if (servers == table.end() || !servers->is_array() || servers->empty()) return Bad("EI0004", "it has no server_list");
  const std::optional<int64_t> count = NumberOf(table, "server_count", kMostRanks);
  if (!count || static_cast<size_t>(*count) != servers->size())
    return Bad("EI0014", fmt::format("server_count is not the {} servers of server_list", servers->size()));
  RankTable result;
  result.servers = static_cast<uint32_t>(servers->size());
  std::set<std::string> names;
  std::vector<std::pair<int64_t, RankTable::Rank>> found;
  for (size_t i = 0; i < servers->size(); ++i) {
    const Json& server = (*servers)[i];
    const std::optional<std::string> name = server.is_object() ? TextOf(server, "server_id") : std::nullopt;
    if (!name || name->empty() || name->size() > 64) return Bad("EI0016", fmt::format("server {} has no server_id", i));
    if (!names.insert(*name).second) return Bad("EI0014", fmt::format("two servers have the server_id {}", *name));
    const auto devices = server.find("device");
    if (devices == server.end() || !devices->is_array() || devices->empty())
      return Bad("EI0016", fmt::format("server {} has no devices", *name));
    for (const Json& device : *devices) {
      const std::optional<int64_t> id = device.is_object() ? NumberOf(device, "device_id", 1 << 20) : std::nullopt;
      if (!id) return Bad("EI0016", fmt::format("a device of server {} has no device_id", *name));
      const std::optional<int64_t> rank = NumberOf(device, "rank_id", kMostRanks - 1);
      if (!rank) return Bad("EI0016", fmt::format("device {} of server {} has no rank_id", *id, *name));
      const std::string address = TextOf(server, "host_ip").value_or(TextOf(device, "device_ip").value_or(""));
      if (result.servers > 1 && address.empty())
        return Bad("EI0016", fmt::format("device {} of server {} has no device_ip", *id, *name));
      std::optional<int64_t> port = 0;
      if (device.contains("device_port")) port = NumberOf(device, "device_port", 65535);
      if (!port || (*port == 0 && device.contains("device_port")))
        return Bad("EI0016", fmt::format("device_port of device {} of server {} is no port", *id, *name));
      found.emplace_back(*rank, RankTable::Rank{static_cast<uint32_t>(i), *id, address, static_cast<uint16_t>(*port)});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < found.size(); ++i) {
    if (i != 0 && found[i].first == found[i - 1].first)
      return Bad("EI0014", fmt::format("rank_id {} is there twice", found[i].first));
    if (found[i].first != static_cast<int64_t>(i)) return Bad("EI0014", fmt::format("rank_id {} is missing", i));
    result.ranks.push_back(found[i].second);
  }
  return result;
}

}  // namespace reprise::collective
