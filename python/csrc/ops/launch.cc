// SPDX-License-Identifier: Apache-2.0
#include "ops/launch.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "ops/kernel_scope.h"
#include "ops/values.h"

namespace torch_npu {
namespace {

class Function final : public reprise::Operation {
 public:
  Function(const char* name, std::function<void(uint64_t)> work)
      : name_(name), work_(std::move(work)), stack_(StackOfLaunch()) {}
  void Run(uint64_t seed) override {
    const KernelScope scope;
    try {
      work_(seed);
    } catch (const c10::Error& error) {  // without the frames of C++, which nobody asked for
      throw std::runtime_error(error.what_without_backtrace());
    }
  }
  reprise::OperationInfo Describe() const override { return {name_, stack_}; }

 private:
  std::string name_;
  std::function<void(uint64_t)> work_;
  std::vector<reprise::Frame> stack_;
};

}  // namespace

bool IsBlocking() {
  static const bool blocking = [] {
    const char* const set = std::getenv("ASCEND_LAUNCH_BLOCKING");
    return set != nullptr && std::string_view(set) == "1";
  }();
  return blocking;
}

Touched& Touched::Add(const at::Tensor& tensor, uint32_t access) {
  if (!tensor.defined() || tensor.device().type() != c10::kPrivateUse1) return *this;
  const c10::Storage& storage = tensor.storage();
  if (storage.nbytes() != 0) operands_.push_back({storage.data(), storage.nbytes(), access});
  return *this;
}

void Launch(std::unique_ptr<reprise::Operation> operation, reprise::Generator* generator, Touched* touched) {
  EnsureContext();
  const NPUStream stream = CurrentStream();
  reprise::OperationOptions options;
  options.generator = generator;
  if (touched != nullptr && stream.is_capturing()) options.operands = touched->operands();
  Guarded([&] { reprise::LaunchOperation(stream.handle(), std::move(operation), options); });
  WaitIfBlocking(stream);
}

void WaitIfBlocking(const NPUStream& stream) {
  if (IsBlocking() && !stream.is_external() && !stream.is_capturing()) stream.synchronize();
}

void Launch(const char* name, std::function<void()> work, Touched* touched) {
  Launch(std::make_unique<Function>(name, [work = std::move(work)](uint64_t) { work(); }), nullptr, touched);
}

void LaunchRandom(const char* name, reprise::Generator& generator, std::function<void(uint64_t)> work) {
  Launch(std::make_unique<Function>(name, std::move(work)), &generator);
}

namespace {

// REPRISE_TORCH_STACKS; negative: not set.
int WishForStacks() {
  static const int wish = [] {
    const char* const set = std::getenv("REPRISE_TORCH_STACKS");
    return set == nullptr ? -1 : std::atoi(set);
  }();
  return wish;
}

}  // namespace

std::vector<reprise::Frame> StackOfLaunch() {
  return StackOfLaunch(WishForStacks() < 0 && CurrentStream().is_capturing());
}

std::vector<reprise::Frame> StackOfLaunch(bool is_captured) {
  const int wish = WishForStacks();
  return wish > 0 || (wish < 0 && is_captured) ? PythonStack() : std::vector<reprise::Frame>();
}

std::string ShapesText(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results) {
  std::string text;
  const auto add = [&](const at::Tensor& tensor) {
    if (!text.empty() && !text.ends_with("> ")) text += ", ";
    text += c10::getDtypeNames(tensor.scalar_type()).first;
    text += '[';
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      text += (dim == 0 ? "" : ",") + std::to_string(tensor.size(dim));
    }
    text += ']';
  };
  for (const c10::IValue& argument : arguments) ForEachTensor(argument, add);
  bool is_first = true;
  for (const at::Tensor& tensor : results) {
    if (!tensor.defined()) continue;
    if (std::exchange(is_first, false)) text += text.empty() ? "-> " : " -> ";
    add(tensor);
  }
  return text;
}

void RefuseInCapture(const std::string& what, const std::string& why, const std::string& next) {
  if (!CurrentStream().is_capturing()) return;
  constexpr int kCaptured = 107027;
  // torch prints by many small operators, which nobody has heard of.
  if (IsCalledFrom("torch/_tensor_str.py")) {
    RefuseCall("print", kCaptured,
               "printing a tensor cannot run while the current stream is capturing: it copies the values to the host, "
               "and nothing has been computed yet",
               "print, str, repr or an f-string of a tensor on npu",
               "print after the capture and a replay; in the capture, print its shape, dtype and device");
  }
  RefuseCall(what, kCaptured, what + " cannot run while the current stream is capturing: " + why, what, next);
}

}  // namespace torch_npu
