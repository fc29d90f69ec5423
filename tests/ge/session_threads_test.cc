// SPDX-License-Identifier: Apache-2.0
//
// Sessions and graphs that several threads use at once.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace reprise::engine {
namespace {

using testing::ElementsAre;

TEST_F(EngineTest, SessionsCompileAndRunAtTheSameTime) {
  constexpr int kThreads = 4;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      const auto expect = [&](bool is_right) { failures += is_right ? 0 : 1; };
      auto id = OpenSession(Interface::kFirst, {});
      auto session = FindSession(*id, "test");
      auto graph = compiler::FromText(kAddText);
      const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
      expect((*session)->AddGraph(1, model, model, {}).ok());
      for (int run = 0; run < 3; ++run) {
        const auto base = static_cast<float>(number + run);
        std::vector<float> x(4, base);
        std::vector<HostTensor> outputs;
        expect((*session)->RunAndWait(1, std::vector<InputTensor>{OnHost(x, {4})}, outputs).ok());
        if (outputs.size() != 1) continue;
        const std::vector<float> y = Floats(outputs[0]);
        for (size_t i = 0; i < y.size(); ++i) expect(y[i] == (base + static_cast<float>(i + 1)) * base);
      }
      CloseSession(*id);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(EngineTest, AGraphRunsForOneThreadAtATime) {
  AddCompiled(1, kAddText);
  const auto allocator = std::make_shared<CountingAllocator>();
  ASSERT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
  int second = 0;
  allocator->on_malloc = [&] {  // during the run
    std::thread([&] {
      std::vector<OutputTensor> none;
      second = session_->RunOnStream(1, stream_, inputs, none).code();
    }).join();
  };
  std::vector<OutputTensor> outputs;
  ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
  Sync();
  EXPECT_EQ(second, kGraphAlreadyRunning);
  EXPECT_THAT(Floats(outputs[0].data, 16), ElementsAre(2, 8, 18, 32));
  allocator->on_malloc = nullptr;
  outputs.clear();
}

}  // namespace
}  // namespace reprise::engine
