// SPDX-License-Identifier: Apache-2.0
//
// Ranks of libhccl: collectives_rank FOLDER RANK RANKS is one rank of a group of processes, and can make ranks of its
// own process as well (acts that begin with local_).
#include <arpa/inet.h>
#include <dirent.h>
#include <hccl/hccl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "../device.h"
#include "acts.h"
#include "values.h"

namespace bench {
namespace {

#define CHECK_HCCL(call) CHECK_ACL(static_cast<int>(call))

void Must(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void BusyFor(double ns) {
  const double end = Now() + ns;
  while (Now() < end) {
  }
}

// Waits for a file that another rank writes; its content.
std::string Await(const std::string& path) {
  for (int tries = 0; tries < 60000; ++tries) {
    std::ifstream file(path, std::ios::binary);
    if (file.good()) return {std::istreambuf_iterator<char>(file), {}};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error("no file " + path + " within a minute");
}
void Write(const std::string& path, const std::string& content) {
  std::ofstream(path + ".part", std::ios::binary) << content;
  Must(std::rename((path + ".part").c_str(), path.c_str()) == 0, "cannot write " + path);
}

class Memory {
 public:
  ~Memory() {
    if (data_ != nullptr) aclrtFree(data_);
  }
  float* AtLeast(size_t count) {
    if (count <= count_) return data_;
    if (data_ != nullptr) CHECK_ACL(aclrtFree(data_));
    void* data = nullptr;
    CHECK_ACL(aclrtMalloc(&data, count * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST));
    data_ = static_cast<float*>(data);
    count_ = count;
    return data_;
  }

 private:
  float* data_ = nullptr;
  size_t count_ = 0;
};

// One end of a TCP connection between ranks 0 and 1, without any library.
class RawSocket {
 public:
  RawSocket(const std::string& folder, int rank) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    if (rank == 0) {
      const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      Must(bind(listener, where, sizeof address) == 0 && listen(listener, 1) == 0 &&
               getsockname(listener, where, &size) == 0,
           "cannot listen on the loopback interface");
      Write(folder + "/raw", std::to_string(ntohs(address.sin_port)));
      fd_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      close(listener);
    } else {
      address.sin_port = htons(static_cast<uint16_t>(std::stoi(Await(folder + "/raw"))));
      fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      Must(connect(fd_, where, sizeof address) == 0, "cannot connect to the loopback interface");
    }
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~RawSocket() { close(fd_); }
  RawSocket(const RawSocket&) = delete;
  void Send(const void* data, size_t bytes) const {
    const auto* at = static_cast<const char*>(data);
    for (ssize_t sent = 0; bytes > 0; at += sent, bytes -= static_cast<size_t>(sent)) {
      sent = send(fd_, at, bytes, MSG_NOSIGNAL);
      Must(sent > 0, "the raw connection broke");
    }
  }
  void Receive(void* data, size_t bytes) const {
    auto* at = static_cast<char*>(data);
    for (ssize_t got = 0; bytes > 0; at += got, bytes -= static_cast<size_t>(got)) {
      got = recv(fd_, at, bytes, 0);
      Must(got > 0, "the raw connection broke");
    }
  }

 private:
  int fd_ = -1;
};

// How often the threads of the process but the calling one have gone to sleep.
double Sleeps() {
  double sum = 0;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return 0;
  const auto self = std::to_string(syscall(SYS_gettid));
  while (const dirent* entry = readdir(folder)) {
    if (self == entry->d_name || entry->d_name[0] == '.') continue;
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) sum += std::atof(line.c_str() + 24);
    }
  }
  closedir(folder);
  return sum;
}

// ---- Ranks in processes ----

constexpr int kInGraph = 100;

class Member {
 public:
  Member(Device& device, std::string folder, int rank, int ranks)
      : device_(device), folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}
  ~Member() {
    graph_.reset();
    if (comm_ != nullptr) HcclCommDestroy(comm_);
  }
  Member(const Member&) = delete;

  void Add(Acts& acts);

 private:
  void MakeToken(const std::string& name) {
    if (rank_ != 0) return;
    HcclRootInfo token{};
    CHECK_HCCL(HcclGetRootInfo(&token));
    Write(folder_ + "/" + name, std::string(token.internal, sizeof token.internal));
  }
  HcclComm Create(const HcclRootInfo& token) const {
    HcclComm comm = nullptr;
    CHECK_HCCL(HcclCommInitRootInfo(static_cast<uint32_t>(ranks_), &token, static_cast<uint32_t>(rank_), &comm));
    return comm;
  }
  HcclRootInfo Token(const std::string& name) const {
    HcclRootInfo token{};
    const std::string text = Await(folder_ + "/" + name);
    Must(text.size() == sizeof token.internal, "the token is damaged");
    std::memcpy(token.internal, text.data(), text.size());
    return token;
  }
  HcclComm comm() {
    if (comm_ == nullptr) {
      MakeToken("token");
      comm_ = Create(Token("token"));
    }
    return comm_;
  }
  aclrtStream stream() const { return device_.stream(); }
  void Wait() const { CHECK_ACL(aclrtSynchronizeStream(stream())); }
  void Meet() {
    CHECK_HCCL(HcclBarrier(comm(), stream()));
    Wait();
  }
  void Submit(const std::string& name, size_t count);
  Answer Collective(const std::string& name, std::istringstream& arguments);
  Answer Copy(std::istringstream& arguments, bool without_root);
  Answer Late(std::istringstream& arguments);
  Answer Many(std::istringstream& arguments, bool replay);
  Answer Idle(std::istringstream& arguments);
  Answer Make(std::istringstream& arguments);
  Answer Raw(std::istringstream& arguments);

  Device& device_;
  const std::string folder_;
  const int rank_, ranks_;
  HcclComm comm_ = nullptr;
  Memory send_, receive_;
  std::set<std::string> checked_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<RawSocket> raw_;
};

void Member::Submit(const std::string& name, size_t count) {
  const uint64_t block = count / static_cast<size_t>(ranks_);
  float* const send = send_.AtLeast(count);
  float* const receive = receive_.AtLeast(count);
  if (name == "allreduce") {
    CHECK_HCCL(HcclAllReduce(send, receive, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm(), stream()));
  } else if (name == "allgather") {
    CHECK_HCCL(HcclAllGather(send, receive, block, HCCL_DATA_TYPE_FP32, comm(), stream()));
  } else if (name == "reduce_scatter") {
    CHECK_HCCL(HcclReduceScatter(send, receive, block, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm(), stream()));
  } else if (name == "all_to_all") {
    CHECK_HCCL(HcclAlltoAll(send, block, HCCL_DATA_TYPE_FP32, receive, block, HCCL_DATA_TYPE_FP32, comm(), stream()));
  } else if (name == "broadcast") {
    CHECK_HCCL(HcclBroadcast(receive, count, HCCL_DATA_TYPE_FP32, 0, comm(), stream()));
  } else if (name == "ping") {  // there and back
    const uint32_t peer = rank_ == 0 ? 1 : 0;
    for (uint32_t turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == (rank_ == 0)) {
        CHECK_HCCL(HcclSend(send, count, HCCL_DATA_TYPE_FP32, peer, comm(), stream()));
      } else {
        CHECK_HCCL(HcclRecv(receive, count, HCCL_DATA_TYPE_FP32, peer, comm(), stream()));
      }
    }
  } else {
    throw std::runtime_error("no operator " + name);
  }
}

// NAME BYTES REPETITIONS: each is waited for. Checked when it is new.
Answer Member::Collective(const std::string& name, std::istringstream& arguments) {
  size_t bytes = 0;
  arguments >> bytes;
  const size_t count = bytes / sizeof(float);
  if (checked_.insert(name + std::to_string(bytes)).second) {
    float* const send = send_.AtLeast(count);
    float* const receive = receive_.AtLeast(count);
    for (size_t i = 0; i < count; ++i) send[i] = ValueOf(rank_, i);
    for (size_t i = 0; i < count; ++i) receive[i] = name == "broadcast" ? send[i] : 0;
    Submit(name, count);
    Wait();
    if (name != "ping") {
      CheckResult(name, receive, count, rank_, ranks_);
    } else {
      for (size_t i = 0; i < count; ++i) Must(receive[i] == ValueOf(1 - rank_, i), "a message came damaged");
    }
  }
  return Timed(
      arguments, [&] { Meet(); },
      [&] {
        Submit(name, count);
        Wait();
      });
}

// BYTES REPETITIONS: what the machine needs to move so much, on all ranks at once.
Answer Member::Copy(std::istringstream& arguments, bool without_root) {
  size_t bytes = 0;
  arguments >> bytes;
  const float* const send = send_.AtLeast(bytes / sizeof(float));
  float* const receive = receive_.AtLeast(bytes / sizeof(float));
  const bool copies = !without_root || rank_ != 0;
  return Timed(
      arguments, [&] { Meet(); },
      [&] {
        if (copies) std::memcpy(receive, send, bytes);
      });
}

// REPETITIONS: rank 0 comes a millisecond after the others, which have parked. When rank 0 came, when others were done.
Answer Member::Late(std::istringstream& arguments) {
  int repetitions = 1;
  arguments >> repetitions;
  send_.AtLeast(1);
  receive_.AtLeast(1);
  Answer answer;
  for (int i = 0; i < repetitions; ++i) {
    Meet();
    if (rank_ == 0) BusyFor(1e6);
    const double begin = Now();
    Submit("allreduce", 1);
    Wait();
    answer.more.push_back(rank_ == 0 ? begin : Now());
  }
  return answer;
}

// BYTES REPETITIONS: 100 operators and one wait, called or replayed.
Answer Member::Many(std::istringstream& arguments, bool replay) {
  size_t bytes = 0;
  arguments >> bytes;
  const size_t count = bytes / sizeof(float);
  const auto submit = [&] {
    for (int i = 0; i < kInGraph; ++i) Submit("allreduce", count);
  };
  if (replay && graph_ == nullptr) {
    float* const send = send_.AtLeast(count);
    float* const receive = receive_.AtLeast(count);
    comm();
    graph_ = std::make_unique<Graph>(Capture(stream(), submit));
    for (size_t i = 0; i < count; ++i) {
      send[i] = ValueOf(rank_, i);
      receive[i] = 0;
    }
    graph_->Run(stream());
    CheckResult("allreduce", receive, count, rank_, ranks_);
  }
  return Timed(
      arguments, [&] { Meet(); },
      [&] {
        if (replay) {
          graph_->Launch(stream());
        } else {
          submit();
        }
        Wait();
      });
}

// MILLISECONDS: CPU time in nanoseconds, and how often threads went to sleep, while nothing is asked of the rank.
Answer Member::Idle(std::istringstream& arguments) {
  int milliseconds = 0;
  arguments >> milliseconds;
  Meet();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the watcher looks on for a while
  timespec before{}, after{};
  const double slept = Sleeps();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  return {
      0,
      0,
      {static_cast<double>(after.tv_sec - before.tv_sec) * 1e9 + static_cast<double>(after.tv_nsec - before.tv_nsec),
       Sleeps() - slept}};
}

// TOKEN: creates a communicator of it, and destroys it.
Answer Member::Make(std::istringstream& arguments) {
  std::string name;
  arguments >> name;
  const HcclRootInfo token = Token(name);
  Answer answer;
  answer.begin_ns = Now();
  const HcclComm comm = Create(token);
  answer.end_ns = Now();
  CHECK_HCCL(HcclCommDestroy(comm));
  return answer;
}

// BYTES REPETITIONS: rank 0 sends so much through a socket of its own to rank 1, which answers with four bytes.
Answer Member::Raw(std::istringstream& arguments) {
  size_t bytes = 0;
  arguments >> bytes;
  if (raw_ == nullptr) raw_ = std::make_unique<RawSocket>(folder_, rank_);
  float* const send = send_.AtLeast(bytes / sizeof(float));
  float* const receive = receive_.AtLeast(bytes / sizeof(float));
  return Timed(
      arguments, [&] { Meet(); },
      [&] {
        if (rank_ == 0) {
          raw_->Send(send, bytes);
          raw_->Receive(receive, 4);
        } else {
          raw_->Receive(receive, bytes);
          raw_->Send(send, 4);
        }
      });
}

void Member::Add(Acts& acts) {
  for (const char* name : {"allreduce", "allgather", "reduce_scatter", "all_to_all", "broadcast", "ping"}) {
    acts[name] = [this, name](std::istringstream& arguments) { return Collective(name, arguments); };
  }
  acts["copy"] = [this](std::istringstream& arguments) { return Copy(arguments, false); };
  acts["copy_others"] = [this](std::istringstream& arguments) { return Copy(arguments, true); };
  acts["late"] = [this](std::istringstream& arguments) { return Late(arguments); };
  acts["eager_many"] = [this](std::istringstream& arguments) { return Many(arguments, false); };
  acts["replay_many"] = [this](std::istringstream& arguments) { return Many(arguments, true); };
  acts["idle"] = [this](std::istringstream& arguments) { return Idle(arguments); };
  acts["token"] = [this](std::istringstream& arguments) {
    std::string name;
    arguments >> name;
    MakeToken(name);
    return Answer{};
  };
  acts["create"] = [this](std::istringstream& arguments) { return Make(arguments); };
  acts["raw"] = [this](std::istringstream& arguments) { return Raw(arguments); };
  acts["join"] = [this](std::istringstream&) {
    Meet();
    return Answer{};
  };
}

// ---- Ranks in one process ----

struct Local {
  int device = 0;
  aclrtStream stream = nullptr;
  HcclComm comm = nullptr;
  std::unique_ptr<Memory> send = std::make_unique<Memory>(), receive = std::make_unique<Memory>();
  std::unique_ptr<Graph> collectives, empty;

  void Use() const { CHECK_ACL(aclrtSetDevice(device)); }
  void Wait() const { CHECK_ACL(aclrtSynchronizeStream(stream)); }
  void AllReduce() const {
    CHECK_HCCL(
        HcclAllReduce(send->AtLeast(1), receive->AtLeast(1), 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  }
};

class Locals {
 public:
  explicit Locals(Device& device) : device_(device) {}
  ~Locals() {
    for (Local& local : locals_) {
      local.Use();
      local.collectives.reset();
      local.empty.reset();
      HcclCommDestroy(local.comm);
      aclrtDestroyStream(local.stream);
    }
    aclrtSetDevice(0);
  }
  Locals(const Locals&) = delete;
  void Add(Acts& acts);

 private:
  static std::vector<int32_t> Devices(int count) {
    std::vector<int32_t> devices;
    for (int i = 0; i < count; ++i) devices.push_back(i);
    return devices;
  }
  // The first argument says how many.
  std::vector<Local>& Ranks(std::istringstream& arguments) {
    size_t count = 0;
    arguments >> count;
    if (!locals_.empty()) return locals_;
    std::vector<HcclComm> comms(count);
    CHECK_HCCL(HcclCommInitAll(static_cast<uint32_t>(count), Devices(static_cast<int>(count)).data(), comms.data()));
    locals_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      Local& local = locals_[i];
      local.device = static_cast<int>(i);
      local.comm = comms[i];
      local.Use();
      CHECK_ACL(aclrtCreateStream(&local.stream));
      local.send->AtLeast(1)[0] = ValueOf(static_cast<int>(i), 0);
      local.receive->AtLeast(1)[0] = 0;
    }
    Each([](Local& local) { local.AllReduce(); });
    for (const Local& local : locals_)
      Must(local.receive->AtLeast(1)[0] == SumOf(static_cast<int>(count), 0), "a sum of local ranks is wrong");
    return locals_;
  }
  template <class Body>
  void Each(Body body) {
    for (Local& local : locals_) {
      local.Use();
      body(local);
    }
    for (const Local& local : locals_) {
      local.Use();
      local.Wait();
    }
  }
  Answer Threads(std::istringstream& arguments);
  Answer Launches(std::istringstream& arguments, bool collectives);
  void Record();

  Device& device_;
  std::vector<Local> locals_;
};

// RANKS REPETITIONS: a thread drives each rank.
Answer Locals::Threads(std::istringstream& arguments) {
  Ranks(arguments);
  int repetitions = 1;
  arguments >> repetitions;
  std::vector<Answer> answers(locals_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < locals_.size(); ++i) {
    threads.emplace_back([this, i, repetitions, &answer = answers[i]] {
      const Local& local = locals_[i];
      local.Use();
      local.AllReduce();
      local.Wait();
      answer.begin_ns = Now();
      for (int k = 0; k < repetitions; ++k) {
        local.AllReduce();
        local.Wait();
      }
      answer.end_ns = Now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) {
    if (answer.end_ns - answer.begin_ns > answers[0].end_ns - answers[0].begin_ns) answers[0] = answer;
  }
  return answers[0];
}

void Locals::Record() {
  for (Local& local : locals_) {
    if (local.collectives != nullptr) continue;
    local.Use();
    local.collectives = std::make_unique<Graph>(Capture(local.stream, [&] {
      for (int i = 0; i < kInGraph; ++i) local.AllReduce();
    }));
    local.empty = std::make_unique<Graph>(CaptureChain(device_.kernels().no_op, kInGraph, local.stream));
  }
}

// RANKS REPETITIONS: the time of the launching calls alone.
Answer Locals::Launches(std::istringstream& arguments, bool collectives) {
  Ranks(arguments);
  int repetitions = 1;
  arguments >> repetitions;
  Record();
  Answer answer;
  for (int i = 0; i < repetitions; ++i) {
    for (const Local& local : locals_) {
      local.Use();
      const Graph& graph = collectives ? *local.collectives : *local.empty;
      const double begin = Now();
      graph.Launch(local.stream);
      answer.end_ns += Now() - begin;
    }
    for (const Local& local : locals_) {
      local.Use();
      local.Wait();
    }
  }
  return answer;
}

void Locals::Add(Acts& acts) {
  const auto each = [this](auto body) {
    return [this, body](std::istringstream& arguments) {
      Ranks(arguments);
      const auto all = [this, body] { Each(body); };
      return Timed(arguments, all, all);
    };
  };
  acts["local_allreduce"] = each([](Local& local) { local.AllReduce(); });
  acts["local_barrier"] = each([](Local& local) { CHECK_HCCL(HcclBarrier(local.comm, local.stream)); });
  acts["local_empty"] = each([this](Local& local) { Launch(device_.kernels().no_op, 0, local.stream); });
  acts["local_threads"] = [this](std::istringstream& arguments) { return Threads(arguments); };
  acts["local_launch"] = [this](std::istringstream& arguments) { return Launches(arguments, true); };
  acts["local_launch_empty"] = [this](std::istringstream& arguments) { return Launches(arguments, false); };
  acts["local_create"] = [](std::istringstream& arguments) {
    int count = 0;
    arguments >> count;
    std::vector<int32_t> devices = Devices(count);
    std::vector<HcclComm> comms(devices.size());
    Answer answer;
    answer.begin_ns = Now();
    CHECK_HCCL(HcclCommInitAll(static_cast<uint32_t>(count), devices.data(), comms.data()));
    answer.end_ns = Now();
    for (const HcclComm comm : comms) CHECK_HCCL(HcclCommDestroy(comm));
    return answer;
  };
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  bench::Device device;
  bench::Acts acts;
  bench::AddPlainActs(acts, device);
  // They are of one process: the others of the group do nothing meanwhile.
  if (std::atoi(argv[2]) != 0) {
    for (auto& [name, act] : acts) act = [](std::istringstream&) { return bench::Answer{}; };
  }
  bench::Member member(device, argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  member.Add(acts);
  bench::Locals locals(device);
  locals.Add(acts);
  return bench::Serve(acts, argv[1], std::atoi(argv[2]));
}
