// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: what ranks read of each other: tokens, rank tables, addresses, and frames of a peer on another machine.
// The first byte says which.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collective/address.h"
#include "collective/net.h"
#include "collective/rank_table.h"
#include "collective/rendezvous.h"
#include "collective/wire.h"
#include "input.h"

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for
namespace collective = reprise::collective;
namespace wire = reprise::collective::wire;

namespace {

void ReadToken(const std::string& text) {
  std::vector<char> bytes(collective::kTokenBytes);
  std::copy_n(text.data(), std::min(text.size(), bytes.size()), bytes.data());
  if (collective::Token::Read(bytes.data()).ok()) return;
  // One that is a token, with one bit of it turned.
  collective::Token token;
  std::copy_n(text.data(), std::min(text.size(), token.nonce.size()), token.nonce.data());
  token.host = text.size();
  token.pid = 1;
  token.endpoint = collective::ParseAddress("127.0.0.1");
  token.Write(bytes.data());
  auto again = collective::Token::Read(bytes.data());
  if (!again.ok() || again->nonce != token.nonce || again->endpoint.Print() != token.endpoint.Print())
    Found("a token is read as another one");
  if (text.empty()) return;
  const size_t at = static_cast<uint8_t>(text[0]) % 64;
  bytes[at] = static_cast<char>(bytes[at] ^ (1 << (text.size() % 8)));
  if (collective::Token::Read(bytes.data()).ok()) Found("a token with a wrong bit is read");
}

void ReadTable(const std::string& text) {
  auto table = collective::ParseRankTable(text);
  if (!table.ok()) return;
  if (table->ranks.empty() || table->servers == 0 || table->servers > table->ranks.size()) Found("a table of nothing");
  for (const auto& rank : table->ranks) {
    if (rank.server >= table->servers) Found("a rank of no server");
  }
}

void ReadAddress(const std::string& text) {
  const collective::Endpoint at = collective::ParseAddress(text);
  if (at.is_set()) {
    const std::string print = at.Print();
    const bool is_long = print[0] == '[';
    const size_t end = is_long ? print.rfind(']') : print.rfind(':');
    const collective::Endpoint again = collective::ParseAddress(print.substr(is_long ? 1 : 0, end - (is_long ? 1 : 0)));
    if (again.family != at.family || !std::equal(at.address, at.address + 16, again.address))
      Found("an address is printed as another one");
  }
  if (text.size() < 64) (void)collective::ParsePorts(text);
  const size_t half = text.size() / 2;
  (void)collective::MatchesInterfaceRule(text.substr(0, half), text.substr(half));
  collective::Endpoint here;
  here.family = 4;
  (void)collective::ChooseAddress({{"lo", here, true}, {text, here, true}}, text.substr(half), 4);
}

// Rank 0 is the peer; rank 1 is of this process, shows a buffer and asks for one.
void ReadFrames(const std::string& text) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Found("no sockets");
  collective::Nonce nonce{};
  auto made = collective::Board::Create(nonce, 2, false);
  if (!made.ok()) Found("no board");
  const std::shared_ptr<collective::Board> board = *made;
  board->set_processes(2);
  if (!board->SetRemote({true, false}, {"peer", ""}, {0, 1}).ok()) Found("no mirror");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    board->rank(rank).process = rank;
    board->rank(rank).pid = 1;
    board->rank(rank).state.store(static_cast<uint32_t>(collective::RankState::kReady));
  }
  board->own_process = 1;
  std::vector<std::byte> shown(4096);
  std::vector<std::byte> wanted(300, std::byte{7});
  collective::Slot& slot = board->slot(1, 3);
  slot.send.address = reinterpret_cast<uint64_t>(shown.data());
  slot.send.bytes = shown.size();
  slot.published.store(4);
  auto net = std::make_unique<collective::Net>(*board);
  collective::Net* const links = net.get();
  board->set_net(std::move(net));
  collective::Arrivals arrivals;
  arrivals.sockets[0] = ends[1];
  if (!links->Connect(nonce, std::vector<collective::Endpoint>(2), arrivals, reprise::Clock::now()).ok())
    Found("no link");
  collective::Fetches fetches(2);
  links->Fetch({0, 0, wire::kFromSend, 3, 0, 256, wanted.data()}, fetches);
  // Bytes as they are, or each frame with what makes it one.
  std::string sent = text;
  if (!text.empty() && (text[0] & 1) != 0) {
    for (size_t at = 0; at + sizeof(wire::Frame) <= sent.size();) {
      wire::Frame frame;
      std::memcpy(&frame, sent.data() + at, sizeof frame);
      frame.magic = wire::kFrameMagic;
      frame.bytes = std::min<uint64_t>(frame.bytes, sent.size() - at - sizeof frame);
      std::memcpy(sent.data() + at, &frame, sizeof frame);
      at += sizeof frame + frame.bytes;
    }
  }
  (void)!send(ends[0], sent.data(), sent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(ends[0], SHUT_WR);
  const auto until = reprise::Clock::now() + std::chrono::seconds(60);
  while (!board->IsOut(0)) {
    if (reprise::Clock::now() > until) Found("a peer that is gone is not lost");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  (void)board->ReasonOf(0);
  links->Cancel(fetches);
  if (std::any_of(wanted.begin() + 256, wanted.end(), [](std::byte each) { return each != std::byte{7}; }))
    Found("a peer has written beyond what was asked for");
  slot.closed.store(4);
  close(ends[0]);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  switch (data[0] % 4) {
    case 0: ReadToken(text); break;
    case 1: ReadTable(text); break;
    case 2: ReadAddress(text); break;
    default: ReadFrames(text); break;
  }
  return 0;
}
