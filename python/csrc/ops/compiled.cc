// SPDX-License-Identifier: Apache-2.0
#include "ops/compiled.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/python_stack.h"
#include "graph/liveness.h"
#include "ops/launch.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

constexpr size_t kLargestElement = 16;
using Element = std::array<std::byte, kLargestElement>;

struct CompiledArguments {
  std::vector<void*> words;
  std::deque<Element> read_now;  // elements stay where they are
};

template <class Number>
void* WordOf(Number value) {
  static_assert(sizeof(Number) <= sizeof(void*));
  void* word = nullptr;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

}  // namespace

CompiledKernel::CompiledKernel(std::string name, uint64_t address, std::string kinds)
    : name_(std::move(name)),
      entry_(reinterpret_cast<Entry>(static_cast<uintptr_t>(address))),
      kinds_(std::move(kinds)) {
  TORCH_CHECK_VALUE(entry_ != nullptr, "the compiled kernel ", name_, " has no address");
  TORCH_CHECK_VALUE(kinds_.find_first_not_of("rwifd") == std::string::npos, "the kinds of arguments of ", name_,
                    " are letters of rwifd, not \"", kinds_, "\"");
}

void CompiledKernel::operator()(const pybind11::args& arguments) const {
  TORCH_CHECK_TYPE(arguments.size() == kinds_.size(), name_, " takes ", kinds_.size(), " arguments, not ",
                   arguments.size());
  auto call = std::make_shared<CompiledArguments>();
  call->words.reserve(kinds_.size());
  std::optional<c10::Device> device;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const pybind11::handle value = PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i));
    switch (kinds_[i]) {
      case 'i': call->words.push_back(WordOf(value.cast<int64_t>())); continue;
      case 'f': call->words.push_back(WordOf(value.cast<float>())); continue;
      case 'd': call->words.push_back(WordOf(value.cast<double>())); continue;
      default: break;
    }
    TORCH_CHECK_TYPE(THPVariable_Check(value.ptr()), "argument ", i, " of ", name_, " must be a tensor, not ",
                     Py_TYPE(value.ptr())->tp_name);
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (IsOnDevice(tensor)) {
      TORCH_CHECK(!device.has_value() || *device == tensor.device(), "the arguments of ", name_, " are on ", *device,
                  " and ", tensor.device(), ": move them to one device");
      device = tensor.device();
      NoteUse(tensor);
      call->words.push_back(tensor.data_ptr());
      continue;
    }
    TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0 && kinds_[i] == 'r' && tensor.itemsize() <= kLargestElement,
                "argument ", i, " of ", name_, " is on ", tensor.device(), " with sizes ", tensor.sizes(),
                ", but the kernel runs later, on an npu device: move it there with .npu() (tensors of the CPU without "
                "dimensions are read at the call)");
    Element& element = call->read_now.emplace_back();
    std::memcpy(element.data(), tensor.const_data_ptr(), tensor.itemsize());
    call->words.push_back(element.data());
  }
  const c10::OptionalDeviceGuard guard(device);
  const ReleaseGil no_gil;
  Launch(name_.c_str(), [entry = entry_, call = std::move(call)] { entry(call->words.data()); });
}

}  // namespace torch_npu
