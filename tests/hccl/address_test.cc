// SPDX-License-Identifier: Apache-2.0
//
// Which address of this machine others get (HC-112): the rules over lists of interfaces, and over interfaces of a
// network namespace of its own.
#include "collective/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace {

using namespace reprise::collective;

std::string Without(const Endpoint& at) {
  const std::string text = at.Print();
  return at.is_set() ? text.substr(0, text.rfind(':')) : "none";
}

std::vector<Interface> SomeInterfaces() {
  std::vector<Interface> all;
  const std::pair<const char*, const char*> list[] = {
      {"lo", "127.0.0.1"},    {"docker0", "172.17.0.1"}, {"down0", "10.0.0.1"}, {"eth1", "10.0.1.1"},
      {"eth10", "10.0.10.1"}, {"ib0", "10.0.2.1"},       {"eth1", "fe80::1"},   {"ib0", "fd00::2"}};
  for (const auto& [name, address] : list)
    all.push_back({name, ParseAddress(address), std::string_view(name) != "down0"});
  return all;
}

TEST(HcclAddress, HC_112_RulesChooseInterfaces) {
  struct Case {
    const char* rule;
    const char* chosen;
  };
  const Case cases[] = {
      {"", "10.0.1.1"},           // the first that is neither docker's nor loopback
      {"eth", "10.0.1.1"},        // a prefix
      {"eth10", "10.0.10.1"},     // which may be a whole name
      {"ib,eth", "10.0.1.1"},     // one of several, in the order of the interfaces
      {"=eth10", "10.0.10.1"},    // exactly
      {"=eth", "none"},           // no interface has just that name
      {"=eth,ib0", "10.0.2.1"},   // both are exact
      {"^eth", "10.0.2.1"},       // not these
      {"^eth,ib", "172.17.0.1"},  // docker's before loopback
      {"^eth,ib,docker", "127.0.0.1"},
      {"^=eth1", "10.0.10.1"},  // not exactly this one
      {"^=eth", "10.0.1.1"},    // which excludes nothing
      {"lo", "127.0.0.1"},
      {"docker", "172.17.0.1"},
      {"down0", "none"},  // it is not up
      {"wlan", "none"},
  };
  for (const Case& each : cases)
    EXPECT_EQ(each.chosen, Without(ChooseAddress(SomeInterfaces(), each.rule, 4))) << each.rule;
  // Link-local addresses are no use without an interface.
  EXPECT_EQ("[fd00::2]", Without(ChooseAddress(SomeInterfaces(), "", 6)));
  EXPECT_EQ("none", Without(ChooseAddress(SomeInterfaces(), "eth", 6)));
}

// In a network namespace whose interfaces the test has made: prints the address that others would get.
TEST(HcclAddress, DISABLED_Print) {
  reprise::StatusOr<Endpoint> own = OwnAddress();
  std::printf("ADDRESS %s\n", own.ok() ? Without(*own).c_str() : "none");
}

const char* Unshare() { return geteuid() == 0 ? "unshare -n" : "unshare -Urn"; }

// Ends of pairs of interfaces, which need no module of the kernel that others do not; the far ends have no address.
constexpr const char* kInterfaces =
    "ip link set lo up"
    " && ip link add ra0 type veth peer name far0 && ip link add ra01 type veth peer name far1"
    " && ip link add docker0 type veth peer name far2"
    " && ip addr add 10.98.0.1/24 dev ra0 && ip addr add 10.98.1.1/24 dev ra01 && ip addr add 10.98.2.1/24 dev docker0"
    " && for i in ra0 ra01 docker0 far0 far1 far2; do ip link set $i up || exit 1; done";

std::string AddressWith(const std::string& variables) {
  char path[4096] = "";
  EXPECT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
  const std::string command = std::string(Unshare()) + " sh -c '" + kInterfaces + " && " + variables + " exec " + path +
                              " --gtest_filter=HcclAddress.DISABLED_Print --gtest_also_run_disabled_tests'";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof line, pipe) != nullptr) {
    const std::string_view view(line);
    if (view.substr(0, 8) == "ADDRESS ") text = view.substr(8, view.size() - 9);
  }
  EXPECT_EQ(0, pipe == nullptr ? -1 : pclose(pipe)) << command;
  return text;
}

TEST(HcclAddress, HC_112_InterfacesOfAMachine) {
  const std::string attempt = std::string(Unshare()) + " sh -c '" + kInterfaces + "' >/dev/null 2>&1";
  if (std::system(attempt.c_str()) != 0)
    GTEST_SKIP() << "no namespaces of the network with pairs of interfaces (unshare, ip) here";
  const std::pair<const char*, const char*> cases[] = {
      {"", "10.98.0.1"},
      {"HCCL_SOCKET_IFNAME=ra01", "10.98.1.1"},
      {"HCCL_SOCKET_IFNAME==ra0", "10.98.0.1"},
      {"HCCL_SOCKET_IFNAME=^=ra0", "10.98.1.1"},
      {"HCCL_SOCKET_IFNAME=^ra", "10.98.2.1"},
      {"HCCL_SOCKET_IFNAME=^ra,docker", "127.0.0.1"},
      {"HCCL_SOCKET_IFNAME=lo", "127.0.0.1"},
      {"HCCL_SOCKET_IFNAME=eth", "none"},
      {"HCCL_IF_IP=10.98.2.1", "10.98.2.1"},
      {"HCCL_IF_IP=10.98.2.1 HCCL_SOCKET_IFNAME=ra01", "10.98.2.1"},  // the address goes before names
  };
  for (const auto& [variables, address] : cases) EXPECT_EQ(address, AddressWith(variables)) << variables;
}

}  // namespace
