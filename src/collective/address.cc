// SPDX-License-Identifier: Apache-2.0
#include "collective/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/env.h"
#include "collective/numbers.h"
#include "collective/settings.h"
#include "collective/socket.h"

namespace reprise::collective {
namespace {

constexpr int kBacklog = 1024;
constexpr uint16_t kPortsFromBase = 32;

socklen_t ToSocket(const Endpoint& from, sockaddr_storage& to) {
  to = {};
  if (from.family == 4) {
    auto& in = reinterpret_cast<sockaddr_in&>(to);
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    std::memcpy(&in.sin_addr, from.address, 4);
    return sizeof in;
  }
  auto& in = reinterpret_cast<sockaddr_in6&>(to);
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(from.port);
  in.sin6_scope_id = from.scope;
  std::memcpy(&in.sin6_addr, from.address, 16);
  return sizeof in;
}

Endpoint FromSocket(const sockaddr* from) {
  Endpoint to;
  if (from != nullptr && from->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(from);
    to.family = 4;
    to.port = ntohs(in->sin_port);
    std::memcpy(to.address, &in->sin_addr, 4);
  } else if (from != nullptr && from->sa_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(from);
    to.family = 6;
    to.port = ntohs(in->sin6_port);
    to.scope = in->sin6_scope_id;
    std::memcpy(to.address, &in->sin6_addr, 16);
  }
  return to;
}

std::string PrintAddress(const Endpoint& at) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(at.family == 4 ? AF_INET : AF_INET6, at.address, text, sizeof text);
  return text;
}

bool IsLinkLocal(const Endpoint& at) {
  return at.family == 6 && at.address[0] == 0xfe && (at.address[1] & 0xc0) == 0x80;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    if (comma != 0 && !text.empty()) parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

bool StartsWith(std::string_view text, std::string_view begin) { return text.substr(0, begin.size()) == begin; }

std::vector<Interface> AllInterfaces() {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const Endpoint endpoint = FromSocket(each->ifa_addr);
    if (endpoint.is_set()) all.push_back({each->ifa_name, endpoint, (each->ifa_flags & IFF_UP) != 0});
  }
  freeifaddrs(list);
  return all;
}

int CloseWithError(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// The addresses of HCCL_WHITELIST_FILE.
struct Whitelist {
  Status error;
  std::set<std::string> addresses;
};
const Whitelist& TheWhitelist() {
  static const Whitelist* const list = [] {
    auto* read = new Whitelist;
    const std::string& path = Env(EnvVar::kHcclWhitelistFile);
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (file) text << file.rdbuf();
    const nlohmann::json root = nlohmann::json::parse(text.str(), nullptr, false);
    const bool is_good = root.is_object() && root.contains("host_ip") && root["host_ip"].is_array();
    if (!is_good) {
      read->error = Error(kParameter, fmt::format("EI0001: Value {} for environment variable HCCL_WHITELIST_FILE is "
                                                  "invalid, expected: a file of JSON with an array host_ip",
                                                  path))
                        .Culprit("environment variable HCCL_WHITELIST_FILE")
                        .Hint("name a file such as {\"host_ip\": [\"10.0.0.1\"]}, or set HCCL_WHITELIST_DISABLE to 1");
      return read;
    }
    for (const auto& each : root["host_ip"]) {
      if (each.is_string()) read->addresses.insert(PrintAddress(ParseAddress(each.get<std::string>())));
    }
    return read;
  }();
  return *list;
}

bool HasWhitelist() { return Env(EnvVar::kHcclWhitelistDisable) == "0"; }

}  // namespace

std::string Endpoint::Print() const {
  if (!is_set()) return "nowhere";
  const std::string text = PrintAddress(*this);
  return family == 4 ? fmt::format("{}:{}", text, port) : fmt::format("[{}]:{}", text, port);
}

Endpoint ParseAddress(const std::string& text) {
  Endpoint at;
  const size_t percent = text.find('%');
  const std::string plain = text.substr(0, percent);
  if (inet_pton(AF_INET, plain.c_str(), at.address) == 1) {
    at.family = 4;
  } else if (inet_pton(AF_INET6, plain.c_str(), at.address) == 1) {
    at.family = 6;
    if (percent != std::string::npos) at.scope = if_nametoindex(text.c_str() + percent + 1);
  }
  return at;
}

bool MatchesInterfaceRule(const std::string& rule, const std::string& name) {
  if (rule.empty()) return true;
  std::string_view rest = rule;
  const bool excludes = StartsWith(rest, "^");
  if (excludes) rest.remove_prefix(1);
  const bool is_exact = StartsWith(rest, "=");
  if (is_exact) rest.remove_prefix(1);
  const std::vector<std::string_view> parts = Split(rest);
  const bool matches = std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return is_exact ? name == part : StartsWith(name, part);
  });
  return matches != excludes;
}

Endpoint ChooseAddress(const std::vector<Interface>& all, const std::string& rule, int family) {
  const auto rank_of = [](const std::string& name) { return name == "lo" ? 2 : StartsWith(name, "docker") ? 1 : 0; };
  const Interface* best = nullptr;
  for (const Interface& each : all) {
    if (!each.is_up || each.endpoint.family != family || IsLinkLocal(each.endpoint)) continue;
    if (!MatchesInterfaceRule(rule, each.name)) continue;
    if (best == nullptr || rank_of(each.name) < rank_of(best->name)) best = &each;
  }
  return best != nullptr ? best->endpoint : Endpoint();
}

StatusOr<Endpoint> OwnAddress() {
  const Environment& environment = TheEnvironment();
  Endpoint at = ParseAddress(environment.interface_address);
  if (!at.is_set()) {
    const int family = Env(EnvVar::kHcclSocketFamily) == "AF_INET6" ? 6 : 4;
    at = ChooseAddress(AllInterfaces(), environment.interface_names, family);
  }
  at.port = 0;
  if (at.is_set()) return at;
  return Error(kNetwork, fmt::format("EI0006: no interface of this machine has an address for other machines{}",
                                     environment.interface_names.empty()
                                         ? std::string()
                                         : fmt::format(" (HCCL_SOCKET_IFNAME is {})", environment.interface_names)))
      .Culprit("the network interfaces of this machine")
      .Hint("name an interface with HCCL_SOCKET_IFNAME or an address with HCCL_IF_IP");
}

std::vector<uint16_t> ParsePorts(const std::string& text) {
  std::vector<uint16_t> ports;
  if (text.empty() || text == "auto") return ports;
  for (const std::string_view part : Split(text)) {
    uint32_t low = 0;
    const char* const end = part.data() + part.size();
    auto read = std::from_chars(part.data(), end, low);
    uint32_t high = low;
    if (read.ptr != end && *read.ptr == '-') std::from_chars(read.ptr + 1, end, high);
    for (uint32_t port = low; port <= high && port <= 65535; ++port) ports.push_back(static_cast<uint16_t>(port));
  }
  return ports;
}

std::vector<uint16_t> RendezvousPorts() {
  std::vector<uint16_t> ports = ParsePorts(Env(EnvVar::kHcclHostPorts));
  const std::string& base = Env(EnvVar::kHcclIfBasePort);
  if (!ports.empty() || base.empty() || !Env(EnvVar::kHcclHostPorts).empty()) return ports;
  const auto first = static_cast<uint32_t>(std::strtoul(base.c_str(), nullptr, 10));
  for (uint32_t port = first; port < first + kPortsFromBase && port <= 65535; ++port)
    ports.push_back(static_cast<uint16_t>(port));
  return ports;
}

std::vector<uint16_t> DataPorts() { return ParsePorts(Env(EnvVar::kHcclNpuPorts)); }

int ListenTcp(Endpoint& at, const std::vector<uint16_t>& ports) noexcept {
  const std::vector<uint16_t> any{0};
  for (const uint16_t port : ports.empty() ? any : ports) {
    at.port = port;
    sockaddr_storage address;
    socklen_t length = ToSocket(at, address);
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    // A port of a job that has just ended is free; one on which somebody listens is not.
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, kBacklog) != 0) {
      CloseWithError(fd);
      if (errno == EADDRINUSE || errno == EACCES) continue;
      return -1;
    }
    length = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return CloseWithError(fd);
    at.port = FromSocket(reinterpret_cast<sockaddr*>(&address)).port;
    return fd;
  }
  return -1;
}

int ConnectTcp(const Endpoint& to, Clock::time_point deadline) noexcept {
  sockaddr_storage address;
  const socklen_t length = ToSocket(to, address);
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return CloseWithError(fd);
    for (;;) {
      pollfd entry{fd, POLLOUT, 0};
      const int ready = poll(&entry, 1, MillisecondsTo(deadline));
      if (ready > 0) break;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) errno = ETIMEDOUT;
      return CloseWithError(fd);
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return CloseWithError(fd);
    if (error != 0) {
      errno = error;
      return CloseWithError(fd);
    }
  }
  return fd;
}

Endpoint PeerOf(int fd) noexcept {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return FromSocket(reinterpret_cast<sockaddr*>(&address));
}

Status CheckWhitelist() { return HasWhitelist() ? TheWhitelist().error.Clone() : Status(); }

bool IsWelcome(const Endpoint& peer) {
  return !HasWhitelist() || TheWhitelist().addresses.count(PrintAddress(peer)) != 0;
}

}  // namespace reprise::collective
