// SPDX-License-Identifier: Apache-2.0
//
// Addresses of this machine for others: which interface ranks on other machines reach it at, and sockets there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/futex.h"
#include "base/status.h"

struct sockaddr_storage;

namespace reprise::collective {

/// An address and a port, as they travel. family 0: none.
struct Endpoint {
  uint16_t family = 0;  ///< 4 or 6
  uint16_t port = 0;
  uint32_t scope = 0;  ///< of a link-local IPv6 address: index of the interface; only here
  uint8_t address[16] = {};

  bool is_set() const { return family != 0; }
  /// "10.0.0.1:5000", "[fe80::1]:5000".
  std::string Print() const;
};
static_assert(sizeof(Endpoint) == 24);

/// From a text such as "10.0.0.1"; not set when it is none.
Endpoint ParseAddress(const std::string& text);

/// What HCCL_SOCKET_IFNAME asks for: "a,b" prefixes, "^a" none of them, "=a" exactly, "^=a" not exactly.
bool MatchesInterfaceRule(const std::string& rule, const std::string& name);

/// One address of an interface.
struct Interface {
  std::string name;
  Endpoint endpoint;
  bool is_up = true;
};
/// The address that HCCL_SOCKET_IFNAME and HCCL_SOCKET_FAMILY leave, from `all` in their order: others before docker's,
/// docker's before loopback. Not set when there is none.
Endpoint ChooseAddress(const std::vector<Interface>& all, const std::string& rule, int family);
/// The address of this machine: HCCL_IF_IP, else ChooseAddress. 19 when there is none.
StatusOr<Endpoint> OwnAddress();

/// Ports: "a-b,c" in this order; empty: the kernel chooses.
std::vector<uint16_t> ParsePorts(const std::string& text);
/// Ports of the rendezvous: HCCL_HOST_SOCKET_PORT_RANGE, else 32 from HCCL_IF_BASE_PORT. Empty: any.
std::vector<uint16_t> RendezvousPorts();
/// Ports of data: HCCL_NPU_SOCKET_PORT_RANGE. Empty: any.
std::vector<uint16_t> DataPorts();

/// A socket that listens at `at`, on the first of `ports` that is free; sets the port. -1 with errno.
int ListenTcp(Endpoint& at, const std::vector<uint16_t>& ports) noexcept;
/// A connection; -1 with errno (ETIMEDOUT).
int ConnectTcp(const Endpoint& to, Clock::time_point deadline) noexcept;
/// The other side of a connection.
Endpoint PeerOf(int fd) noexcept;
/// Whether HCCL_WHITELIST_FILE lets a machine take part; always, unless HCCL_WHITELIST_DISABLE is 0.
bool IsWelcome(const Endpoint& peer);
/// 1 with EI0001 when the file of HCCL_WHITELIST_FILE is needed and cannot be read.
Status CheckWhitelist();

}  // namespace reprise::collective
