// SPDX-License-Identifier: Apache-2.0
//
// Functions that a compiler made while the program runs, as tasks of a stream.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>

namespace torch_npu {

/// `extern "C" void(void* const* arguments)`, which stays loaded. `kinds` has a letter for each argument: r a tensor
/// that is read, w one that is written, i an int, f a float, d a double.
class CompiledKernel {
 public:
  CompiledKernel(std::string name, uint64_t address, std::string kinds);

  /// Queues a call on the current stream of the device of its tensors, or records it. Tensors of the CPU without
  /// dimensions are read now. Called with the GIL, which is released while the stream takes the task.
  void operator()(const pybind11::args& arguments) const;

 private:
  using Entry = void (*)(void* const*);
  std::string name_;
  Entry entry_;
  std::string kinds_;
};

}  // namespace torch_npu
