// SPDX-License-Identifier: Apache-2.0
//
// The network between machines (N): two namespaces of the network with a pair of interfaces between them, and others
// than ranks who connect. Nothing leaves the machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "collective/wire.h"
#include "process_ranks.h"

namespace {

using namespace reprise::testing;
namespace wire = reprise::collective::wire;
using reprise::collective::Endpoint;

bool IsFull() {
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  return form != nullptr && std::string(form) == "full";
}

std::string ThisProgram() {
  char path[4096] = "";
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

// ---- Two machines that are namespaces ----

std::string Unshare() { return geteuid() == 0 ? "unshare -n" : "unshare -Urn"; }

bool HasNamespaces() {
  return std::system((Unshare() + " ip link add va type veth peer name vb >/dev/null 2>&1").c_str()) == 0;
}

// A line of a pipe.
std::string ReadLine(int fd) {
  std::string line;
  char c = 0;
  while (read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}
void WriteLine(int fd, const std::string& line) {
  const std::string whole = line + "\n";
  EXPECT_EQ(static_cast<ssize_t>(whole.size()), write(fd, whole.data(), whole.size()));
}

constexpr int kBlackHole = 11;

// The ranks of one of two machines: one here, the others in children.
void RunHalf(uint32_t first, uint32_t end, Arguments mine) {
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t rank = first + 1; rank < end; ++rank) {
    children.push_back(
        std::make_unique<Child>("HcclProcesses.DISABLED_Rank", Write(rank, mine.ranks, mine.token, mine.what)));
  }
  mine.rank = first;
  RunRank(mine);
  for (size_t i = 0; i < children.size(); ++i) {
    const bool dies = mine.what == 3 && end == mine.ranks && i + 1 == children.size();
    dies ? children[i]->Kill() : children[i]->Join();
  }
}

// The ranks of the second machine.
TEST(HcclMachines, DISABLED_Second) {
  int in = -1;
  int out = -1;
  std::istringstream(Child::Argument()) >> in >> out;
  WriteLine(out, "born");
  ASSERT_EQ("go", ReadLine(in));
  ASSERT_EQ(0, std::system("ip link set lo up && ip addr add 10.99.0.2/24 dev vb && ip link set vb up"));
  WriteLine(out, "up");
  const Arguments arguments = Read(ReadLine(in));
  RunHalf(arguments.ranks / 2, arguments.ranks, arguments);
}

// The first machine, which is the one that makes the other.
TEST(HcclMachines, DISABLED_First) {
  Arguments arguments = Read();
  int there[2];
  int back[2];
  ASSERT_EQ(0, pipe(there));
  ASSERT_EQ(0, pipe(back));
  ::setenv("REPRISE_TEST_ARGUMENT", (std::to_string(there[0]) + " " + std::to_string(back[1])).c_str(), 1);
  const std::string program = ThisProgram();
  const char* words[] = {"unshare",
                         "-n",
                         program.c_str(),
                         "--gtest_filter=HcclMachines.DISABLED_Second",
                         "--gtest_also_run_disabled_tests",
                         "--gtest_output=",
                         nullptr};
  pid_t second = -1;
  ASSERT_EQ(0, posix_spawnp(&second, words[0], nullptr, nullptr, const_cast<char**>(words), environ));
  ::unsetenv("REPRISE_TEST_ARGUMENT");
  close(there[0]);
  close(back[1]);
  ASSERT_EQ("born", ReadLine(back[0]));
  ASSERT_EQ(0, std::system(("ip link set lo up && ip link add va type veth peer name vb netns " +
                            std::to_string(second) + " && ip addr add 10.99.0.1/24 dev va && ip link set va up")
                               .c_str()));
  WriteLine(there[1], "go");
  ASSERT_EQ("up", ReadLine(back[0]));
  ASSERT_EQ(0, aclrtSetDevice(0));
  OK(HcclGetRootInfo(&arguments.token));
  WriteLine(there[1], Write(0, arguments.ranks, arguments.token, arguments.what));
  RunHalf(0, arguments.ranks / 2, arguments);
  int status = -1;
  ASSERT_EQ(second, waitpid(second, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

class HcclNamespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasNamespaces()) GTEST_SKIP() << "no namespaces of the network with a pair of interfaces (unshare, ip) here";
  }
  static void Run(uint32_t ranks, int what) {
    ::setenv("REPRISE_TEST_ARGUMENT", Write(0, ranks, {}, what).c_str(), 1);
    const std::string command = "exec " + Unshare() + " " + ThisProgram() +
                                " --gtest_filter=HcclMachines.DISABLED_First --gtest_also_run_disabled_tests "
                                "--gtest_output=";
    EXPECT_EQ(0, std::system(command.c_str()));
    ::unsetenv("REPRISE_TEST_ARGUMENT");
  }
};

TEST_F(HcclNamespaces, HC_071_HC_072_HC_073_EveryOperatorBetweenMachines) { Run(4, 9); }
TEST_F(HcclNamespaces, HC_082_GraphsAndSmallOperators) { Run(4, 2); }
TEST_F(HcclNamespaces, HC_100_MismatchIsNamedOnBothMachines) { Run(4, 5); }
TEST_F(HcclNamespaces, HC_109_AKilledRankIsNamedOnBothMachines) { Run(4, 3); }
TEST_F(HcclNamespaces, HF_04_ARankThatDoesNotComeIsNamedOnBothMachines) { Run(4, 10); }
TEST_F(HcclNamespaces, HC_109_AMachineThatIsCutOff) {
  if (!IsFull()) GTEST_SKIP() << "takes as long as silence may last; in the full form";
  Run(4, kBlackHole);
}

// ---- Others than ranks ----

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(0, connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to)) << port;
  return fd;
}

// What this process listens at, as the kernel says.
std::vector<uint16_t> OwnPorts() {
  std::set<std::string> sockets;
  for (int fd = 0; fd < 1024; ++fd) {
    char target[64] = "";
    if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target - 1) > 0)
      sockets.insert(target);
  }
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned address = 0;
    unsigned port = 0;
    unsigned state = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), " %*d: %x:%x %*s %x %*s %*s %*s %*d %*d %lu", &address, &port, &state, &inode) == 4 &&
        state == 10 && sockets.count("socket:[" + std::to_string(inode) + "]") != 0)
      ports.push_back(static_cast<uint16_t>(port));
  }
  return ports;
}

// That the other side says nothing and hangs up.
void ExpectHungUp(int fd) {
  char byte = 0;
  pollfd entry{fd, POLLIN, 0};
  ASSERT_EQ(1, poll(&entry, 1, 60000));
  EXPECT_LE(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
  close(fd);
}
template <class T>
void SendTo(int fd, const T& what, size_t bytes = sizeof(T)) {
  EXPECT_EQ(static_cast<ssize_t>(bytes), send(fd, &what, bytes, MSG_NOSIGNAL));
}
template <class T>
bool ReceiveFrom(int fd, T& what) {
  return recv(fd, &what, sizeof what, MSG_WAITALL) == static_cast<ssize_t>(sizeof what);
}

// A Hello as rank 1 of 2 would send it, with the nonce that the token has behind two words.
wire::Hello HelloOf(const HcclRootInfo& token) {
  wire::Hello hello{};
  hello.magic = wire::kHelloMagic;
  hello.version = wire::kVersion;
  std::memcpy(hello.nonce.data(), token.internal + 8, hello.nonce.size());
  hello.rank = 1;
  hello.ranks = 2;
  hello.pid = 12345;
  hello.buffer_mb = 200;
  hello.exec_timeout_s = 1836;
  hello.host = 1;
  return hello;
}

// HF-10: set-up goes on; who is no rank gets nothing but a closed connection.
TEST(HcclMachines, DISABLED_Strangers) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 2, {}, 2};
  OK(HcclGetRootInfo(&arguments.token));
  const std::vector<uint16_t> ports = OwnPorts();
  ASSERT_EQ(1u, ports.size());
  const int silent = ConnectTo(ports[0]);
  std::vector<std::byte> noise(4096);
  std::mt19937 random(1);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  int fd = ConnectTo(ports[0]);
  SendTo(fd, *noise.data(), 4096);
  ExpectHungUp(fd);
  wire::Hello hello = HelloOf(arguments.token);
  hello.nonce[3] ^= 1;
  fd = ConnectTo(ports[0]);
  SendTo(fd, hello);
  ExpectHungUp(fd);
  hello.version = 77;  // of who knows the nonce it would end the set-up
  fd = ConnectTo(ports[0]);
  SendTo(fd, hello);
  ExpectHungUp(fd);
  hello = HelloOf(arguments.token);
  hello.rank = 2;
  fd = ConnectTo(ports[0]);
  SendTo(fd, hello);
  ExpectHungUp(fd);
  // Many who say nothing: the eldest have to go.
  std::vector<int> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(ConnectTo(ports[0]));
  ExpectHungUp(crowd[0]);
  crowd[0] = -1;
  {
    Child child("HcclProcesses.DISABLED_Rank", Write(1, 2, arguments.token, 2));
    Group group(arguments);
    const std::vector<uint16_t> data = OwnPorts();
    ASSERT_EQ(1u, data.size());
    fd = ConnectTo(data[0]);
    SendTo(fd, *noise.data(), 4096);
    ExpectHungUp(fd);
    wire::LinkHello greeting{};
    greeting.magic = wire::kLinkMagic;
    greeting.version = wire::kVersion;
    greeting.from = 1;
    fd = ConnectTo(data[0]);
    SendTo(fd, greeting);
    ExpectHungUp(fd);
    RunSmall(group.me, 2);
  }
  for (const int each : crowd) close(each);
  close(silent);
}

// HF-11
TEST(HcclMachines, DISABLED_OtherVersion) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  const std::vector<uint16_t> ports = OwnPorts();
  ASSERT_EQ(1u, ports.size());
  const int slow = ConnectTo(ports[0]);  // has connected and not said yet who it is
  wire::Hello hello = HelloOf(token);
  hello.ranks = 3;
  hello.version = wire::kVersion + 1;
  const int fd = ConnectTo(ports[0]);
  SendTo(fd, hello);
  wire::Welcome welcome{};
  ASSERT_TRUE(ReceiveFrom(fd, welcome));
  EXPECT_EQ(HCCL_E_INTERNAL, welcome.code);
  hello.version = wire::kVersion;
  hello.rank = 2;
  SendTo(slow, hello);
  welcome = {};
  ASSERT_TRUE(ReceiveFrom(slow, welcome));
  EXPECT_EQ(HCCL_E_INTERNAL, welcome.code);
  HcclComm comm = nullptr;
  EXPECT_EQ(HCCL_E_INTERNAL, HcclCommInitRootInfo(3, &token, 0, &comm));
  EXPECT_NE(std::string::npos, Message().find("EI0008: rank 1 (process 12345) speaks version")) << Message();
  close(fd);
  close(slow);
}

// A rank 1 that keeps to the protocol until there is a link.
struct Impostor {
  explicit Impostor(const HcclRootInfo& token, uint16_t port) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(0, bind(listener, reinterpret_cast<sockaddr*>(&at), length));
    EXPECT_EQ(0, listen(listener, 1));
    EXPECT_EQ(0, getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length));
    service = ConnectTo(port);
    SendTo(service, HelloOf(token));
    wire::Welcome welcome{};
    wire::RosterRow roster[2] = {};
    EXPECT_TRUE(ReceiveFrom(service, welcome));
    EXPECT_EQ(1u, welcome.spans);
    EXPECT_TRUE(ReceiveFrom(service, roster));
    wire::Meeting meeting{};
    meeting.endpoint.family = 4;
    meeting.endpoint.port = ntohs(at.sin_port);
    std::memcpy(meeting.endpoint.address, &at.sin_addr, 4);
    SendTo(service, meeting);
    wire::Table table{};
    Endpoint endpoints[2];
    EXPECT_TRUE(ReceiveFrom(service, table));
    EXPECT_TRUE(ReceiveFrom(service, endpoints));
    link = accept(listener, nullptr, nullptr);
    close(listener);
    wire::LinkHello greeting{};
    EXPECT_TRUE(ReceiveFrom(link, greeting));
    SendTo(link, greeting);
    wire::Verdict ready{};
    SendTo(service, ready);
    wire::Verdict go{};
    EXPECT_TRUE(ReceiveFrom(service, go));
    EXPECT_EQ(0, go.code);
  }
  ~Impostor() {
    close(service);
    close(link);
  }
  int service = -1;
  int link = -1;
};

// A frame that is nearly one of the protocol, and bytes that may be its payload.
std::vector<std::byte> NearlyAFrame(std::mt19937& random) {
  wire::Frame frame{};
  frame.magic = random() % 16 != 0 ? wire::kFrameMagic : random();
  frame.kind = static_cast<wire::FrameKind>(1 + random() % 10);
  frame.flags = static_cast<uint8_t>(random() % 5);
  frame.rank = random() % 4 != 0 ? 1 - random() % 2 : random();
  frame.peer = random() % 4 != 0 ? random() % 2 : random();
  const auto small = [&] { return random() % 3 != 0 ? random() % 70 : uint64_t{random()} << (random() % 33); };
  frame.number = small();
  frame.value = small();
  frame.offset = small();
  frame.cookie = random() % 4;
  frame.bytes = random() % 2 == 0 ? 0 : random() % 3 == 0 ? sizeof(wire::Shown) + random() % 64 : small();
  std::vector<std::byte> bytes(sizeof frame + std::min<uint64_t>(frame.bytes, 4096));
  std::memcpy(bytes.data(), &frame, sizeof frame);
  for (size_t i = sizeof frame; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random() % 8);
  return bytes;
}

// A peer that knows the nonce and sends what no rank sends: its rank is lost, and nothing else happens.
TEST(HcclMachines, DISABLED_Impostors) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  std::mt19937 random(7);
  const int rounds = IsFull() ? 500 : 25;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    uint16_t port = 0;
    std::memcpy(&port, token.internal + 42, sizeof port);  // behind the family
    std::unique_ptr<Impostor> impostor;
    std::thread other([&] { impostor = std::make_unique<Impostor>(token, port); });
    Rank me;
    ASSERT_EQ(0, aclrtCreateStream(&me.stream));
    EXPECT_OK(HcclCommInitRootInfo(2, &token, 0, &me.comm));
    other.join();
    Buffer<float> data(40000);
    const auto type = HCCL_DATA_TYPE_FP32;
    if (round % 3 != 0) {
      EXPECT_OK(HcclAllReduce(data.data(), data.data(), 40000, type, HCCL_REDUCE_SUM, me.comm, me.stream));
    } else {
      EXPECT_OK(HcclRecv(data.data(), 40000, type, 1, me.comm, me.stream));
    }
    for (int frame = 0; frame < 40; ++frame) {
      const std::vector<std::byte> bytes = NearlyAFrame(random);
      if (send(impostor->link, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    }
    shutdown(impostor->link, SHUT_WR);
    EXPECT_NE(0, aclrtSynchronizeStreamWithTimeout(me.stream, 60000));
    EXPECT_OK(HcclCommDestroy(me.comm));
    EXPECT_EQ(0, aclrtDestroyStreamForce(me.stream));
  }
}

void RunWithNetwork(const char* test) {
  ::setenv("HCCL_IF_IP", "127.0.0.1", 1);
  ::setenv("REPRISE_HCCL_SHM", "0", 1);
  { Child child(test, ""); }
  ::unsetenv("HCCL_IF_IP");
  ::unsetenv("REPRISE_HCCL_SHM");
}

// Two ranks that take themselves for two machines, of which a list names this address or another one.
void MeetWithWhitelist(const Arguments& arguments) {
  EXPECT_EQ(0, aclrtSetDevice(0));
  HcclComm comm = nullptr;
  const HcclResult result = HcclCommInitRootInfo(2, &arguments.token, arguments.rank, &comm);
  const std::string message = Message();
  if (arguments.what == 0) {
    EXPECT_OK(result) << message;
    EXPECT_OK(HcclCommDestroy(comm));
    return;
  }
  EXPECT_EQ(HCCL_E_PARA, result);
  for (const char* part : {"EI0014", "rank 1", "127.0.0.1", "HCCL_WHITELIST_FILE"})
    EXPECT_NE(std::string::npos, message.find(part)) << message;
}
TEST(HcclMachines, DISABLED_Guest) { MeetWithWhitelist(Read()); }
TEST(HcclMachines, DISABLED_Host) {
  Arguments arguments = Read();
  ASSERT_EQ(0, aclrtSetDevice(0));
  OK(HcclGetRootInfo(&arguments.token));
  ::setenv("REPRISE_HCCL_HOST_ID", "another machine", 1);
  Child guest("HcclMachines.DISABLED_Guest", Write(1, 2, arguments.token, arguments.what));
  MeetWithWhitelist(arguments);
}
TEST(HcclMachines, HC_113_MachinesThatTheWhitelistDoesNotName) {
  const std::string path = "/tmp/reprise_hccl_list_" + std::to_string(getpid()) + ".json";
  ::setenv("HCCL_IF_IP", "127.0.0.1", 1);
  ::setenv("HCCL_WHITELIST_DISABLE", "0", 1);
  ::setenv("HCCL_WHITELIST_FILE", path.c_str(), 1);
  for (const int what : {0, 1}) {
    std::ofstream(path) << R"({"host_ip": [")" << (what == 0 ? "127.0.0.1" : "10.0.0.7") << R"("]})";
    Child host("HcclMachines.DISABLED_Host", Write(0, 2, {}, what));
  }
  std::remove(path.c_str());
  for (const char* name : {"HCCL_IF_IP", "HCCL_WHITELIST_DISABLE", "HCCL_WHITELIST_FILE"}) ::unsetenv(name);
}

TEST(HcclMachines, HF_10_StrangersAreIgnored) { RunWithNetwork("HcclMachines.DISABLED_Strangers"); }
TEST(HcclMachines, HF_11_AnotherVersionIsRefused) { RunWithNetwork("HcclMachines.DISABLED_OtherVersion"); }
TEST(HcclMachines, GarbageFromAPeerMakesItLost) { RunWithNetwork("HcclMachines.DISABLED_Impostors"); }

}  // namespace
