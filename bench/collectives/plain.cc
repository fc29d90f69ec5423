// SPDX-License-Identifier: Apache-2.0
//
// A process without libhccl: collectives_plain FOLDER 0 1.
#include "../device.h"
#include "acts.h"

namespace bench {

void AddPlainActs(Acts& acts, Device& device) {
  acts["launches"] = [&device](std::istringstream& arguments) {
    CHECK_ACL(aclrtSetDevice(0));  // acts of local ranks leave another one
    constexpr int kLaunches = 1000;
    const auto body = [&] {
      for (int i = 0; i < kLaunches; ++i) Launch(device.kernels().no_op, 0, device.stream());
      CHECK_ACL(aclrtSynchronizeStream(device.stream()));
    };
    return Timed(arguments, body, body);
  };
  acts["replay"] = [&device](std::istringstream& arguments) {
    CHECK_ACL(aclrtSetDevice(0));  // acts of local ranks leave another one
    static const Graph graph = CaptureChain(device.kernels().no_op, 10, device.stream());
    const auto body = [&] { graph.Run(device.stream()); };
    return Timed(arguments, body, body);
  };
  acts["empty"] = [&device](std::istringstream& arguments) {
    CHECK_ACL(aclrtSetDevice(0));  // acts of local ranks leave another one
    const auto body = [&] {
      Launch(device.kernels().no_op, 0, device.stream());
      CHECK_ACL(aclrtSynchronizeStream(device.stream()));
    };
    return Timed(arguments, body, body);
  };
}

}  // namespace bench

#ifdef REPRISE_BENCH_PLAIN
#include <cstdlib>
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  bench::Device device;
  bench::Acts acts;
  bench::AddPlainActs(acts, device);
  return bench::Serve(acts, argv[1], std::atoi(argv[2]));
}
#endif
