// SPDX-License-Identifier: Apache-2.0
#include "graph/host_function.h"

#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <reprise/operation.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

namespace py = pybind11;

// What waits for a thread that has the GIL: calls for the main thread, and references to drop. Tasks end, and graphs
// die, on any thread and below locks of the core, where the GIL must not be asked for.
class Deferred {
 public:
  static Deferred& Get() {
    static auto* const deferred = new Deferred;  // threads of the runtime use it until the very end
    return *deferred;
  }

  void Call(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    Schedule();
  }
  void Drop(PyObject* object) {
    {
      const std::lock_guard lock(mutex_);
      garbage_.push_back(object);
    }
    Schedule();
  }

  // With the GIL, on the main thread.
  void RunCalls() {
    for (const std::function<void()>& call : Taken(calls_)) call();
  }
  // With the GIL. What a finaliser raises is nobody's business here.
  void DropGarbage() {
    for (PyObject* const object : Taken(garbage_)) Py_DECREF(object);
  }

 private:
  template <class Item>
  std::vector<Item> Taken(std::vector<Item>& items) {
    const std::lock_guard lock(mutex_);
    return std::exchange(items, {});
  }

  static int Run(void*) {
    Deferred& self = Get();
    self.is_scheduled_.store(false);  // what comes from here on asks for another turn
    self.RunCalls();
    self.DropGarbage();
    return 0;
  }

  // One turn of the main thread for all that is due. The interpreter has room for a few dozen such requests; when
  // others have filled it, a thread asks again.
  void Schedule() {
    if (!CanTakeGil() || is_scheduled_.exchange(true)) return;
    if (Py_AddPendingCall(&Run, nullptr) == 0) return;
    try {
      std::thread([] {
        while (CanTakeGil() && Py_AddPendingCall(&Run, nullptr) != 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }).detach();
    } catch (const std::system_error&) {
      is_scheduled_.store(false);  // no thread to be had: the next one who asks tries again
    }
  }

  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
  std::vector<PyObject*> garbage_;
  std::atomic<bool> is_scheduled_{false};
};

// A reference that may go away on any thread.
class Held {
 public:
  explicit Held(py::object object) : object_(object.release().ptr()) {}
  ~Held() {
    if (CanTakeGil()) Deferred::Get().Drop(object_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

struct Payload {
  Payload(py::object function_of, py::object data_of) : function(std::move(function_of)), data(std::move(data_of)) {}
  Held function;
  Held data;  // or arguments
};

// With the GIL. Nobody is there to whom an exception could go.
void Report(PyObject* result, PyObject* function) {
  if (result == nullptr) {
    PyErr_WriteUnraisable(function);
  } else {
    Py_DECREF(result);
  }
}

void CallWithData(const Payload& payload) {
  if (!CanTakeGil()) return;
  const py::gil_scoped_acquire gil;
  Report(PyObject_CallOneArg(payload.function.get(), payload.data.get()), payload.function.get());
  Deferred::Get().DropGarbage();
}

std::string NameOf(const py::object& function) {
  const py::object name = py::getattr(function, "__qualname__", py::none());
  return py::isinstance<py::str>(name) ? name.cast<std::string>() : Py_TYPE(function.ptr())->tp_name;
}

class HostFunction : public reprise::Operation {
 public:
  HostFunction(py::object function, py::object data)
      : name_(NameOf(function)),
        payload_(std::make_shared<Payload>(std::move(function), std::move(data))),
        stack_(StackOfLaunch()) {}
  void Run(uint64_t) override { CallWithData(*payload_); }
  reprise::OperationInfo Describe() const final { return {name_, stack_}; }

 protected:
  const std::shared_ptr<Payload>& payload() const { return payload_; }

 private:
  std::string name_;
  std::shared_ptr<Payload> payload_;
  std::vector<reprise::Frame> stack_;
};

constexpr const char* kPointer = "host_tensor_ptr";
constexpr const char* kBuffer = "host_tensor_buffer";
constexpr Py_ssize_t kPointerItems = 5;

bool IsPointer(py::handle value) {
  if (!PyTuple_CheckExact(value.ptr()) || PyTuple_GET_SIZE(value.ptr()) != kPointerItems) return false;
  PyObject* const first = PyTuple_GET_ITEM(value.ptr(), 0);
  return PyUnicode_Check(first) && PyUnicode_CompareWithASCIIString(first, kPointer) == 0;
}

// A copy of nested lists and tuples, with each pointer tuple replaced by change(tuple).
template <class Change>
py::object Rebuild(py::handle value, Change&& change) {
  if (IsPointer(value)) return change(py::reinterpret_borrow<py::tuple>(value));
  if (PyTuple_CheckExact(value.ptr())) {
    py::tuple copy(PyTuple_GET_SIZE(value.ptr()));
    for (size_t i = 0; i < copy.size(); ++i) {
      copy[i] = Rebuild(PyTuple_GET_ITEM(value.ptr(), static_cast<Py_ssize_t>(i)), change);
    }
    return copy;
  }
  if (PyList_CheckExact(value.ptr())) {
    py::list copy;
    for (const py::handle item : value) copy.append(Rebuild(item, change));
    return copy;
  }
  return py::reinterpret_borrow<py::object>(value);
}

class PendingHostFunction final : public HostFunction {
 public:
  struct Part {
    const char* data;
    size_t bytes;
  };
  PendingHostFunction(py::object function, py::object args, std::vector<Part> parts)
      : HostFunction(std::move(function), std::move(args)), parts_(std::move(parts)) {}

  void Run(uint64_t) override {
    std::vector<std::string> buffers;
    buffers.reserve(parts_.size());
    for (const Part& part : parts_) buffers.emplace_back(part.data, part.bytes);
    Deferred::Get().Call([payload = payload(), buffers = std::move(buffers)] { CallWithBuffers(*payload, buffers); });
  }

 private:
  static void CallWithBuffers(const Payload& payload, const std::vector<std::string>& buffers) {
    size_t next = 0;
    try {
      const py::object args = Rebuild(payload.data.get(), [&](const py::tuple& pointer) -> py::object {
        const std::string& buffer = buffers[next++];
        return py::make_tuple(kBuffer, py::bytearray(buffer.data(), buffer.size()), pointer[3], pointer[4]);
      });
      Report(PyObject_CallObject(payload.function.get(), args.ptr()), payload.function.get());
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("arguments of a host function");
    }
  }

  std::vector<Part> parts_;
};

void Submit(const NPUStream& stream, std::unique_ptr<reprise::Operation> operation) {
  EnsureContext();
  reprise::OperationOptions options;
  options.is_host_function = true;
  const ReleaseGil no_gil;
  Guarded([&] { reprise::LaunchOperation(stream.handle(), std::move(operation), options); });
}

// The thread that serves the callbacks of one device.
class Reporter {
 public:
  static Reporter& Of(c10::DeviceIndex device) {
    static auto* const all = new std::array<Reporter, kMaxDevices>;
    return (*all)[static_cast<size_t>(device)];
  }

  void Subscribe(const NPUStream& stream) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      stops_ = false;
      thread_ = std::thread([this] { Serve(); });
    }
    const int code = aclrtSubscribeReport(static_cast<uint64_t>(thread_.native_handle()), stream.handle());
    if (code == 0) ++streams_;
    StopIfUnused();
    Check(code, "aclrtSubscribeReport");
    subscribed_.notify_one();
  }

  void Unsubscribe(const NPUStream& stream) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(thread_.joinable(), "stream ", stream.id(), " of npu:", static_cast<int>(stream.device_index()),
                " is not subscribed; call _subscribe_report first");
    const int code = aclrtUnSubscribeReport(static_cast<uint64_t>(thread_.native_handle()), stream.handle());
    if (code == 0) --streams_;
    StopIfUnused();
    Check(code, "aclrtUnSubscribeReport");
  }

 private:
  static constexpr int kPollMilliseconds = 100;
  static constexpr int kNotSubscribed = 107012;

  void StopIfUnused() {
    if (streams_ != 0) return;
    {
      const std::lock_guard lock(serving_);
      stops_ = true;
    }
    subscribed_.notify_one();
    thread_.join();
    thread_ = {};
  }

  void Serve() {
    for (;;) {
      const int code = aclrtProcessReport(kPollMilliseconds);
      std::unique_lock lock(serving_);
      if (stops_) return;
      if (code == kNotSubscribed) subscribed_.wait_for(lock, std::chrono::milliseconds(kPollMilliseconds));
      if (stops_) return;
    }
  }

  std::mutex mutex_;  // held by those who subscribe; never asked for by the thread
  std::mutex serving_;
  std::condition_variable subscribed_;
  std::thread thread_;
  size_t streams_ = 0;
  bool stops_ = false;
};

}  // namespace

void LaunchHostFunction(const NPUStream& stream, py::object function, py::object data) {
  TORCH_CHECK_TYPE(PyCallable_Check(function.ptr()) != 0, "a host function must be callable, not ",
                   Py_TYPE(function.ptr())->tp_name);
  Submit(stream, std::make_unique<HostFunction>(std::move(function), std::move(data)));
}

void LaunchPendingHostFunction(const NPUStream& stream, py::object function, const py::object& args) {
  TORCH_CHECK_TYPE(PyCallable_Check(function.ptr()) != 0, "a host function must be callable, not ",
                   Py_TYPE(function.ptr())->tp_name);
  std::vector<PendingHostFunction::Part> parts;
  const auto note = [&parts](const py::tuple& pointer) -> py::object {
    const auto address = pointer[1].cast<uintptr_t>();
    const auto bytes = pointer[2].cast<int64_t>();
    TORCH_CHECK_VALUE(bytes >= 0, "a host_tensor_ptr has ", bytes, " bytes; the size must not be negative");
    TORCH_CHECK_VALUE(address != 0 || bytes == 0, "a host_tensor_ptr of ", bytes, " bytes has no address");
    parts.push_back({reinterpret_cast<const char*>(address), static_cast<size_t>(bytes)});
    return pointer;
  };
  // A copy: lists may change until its turn.
  py::object frozen = Rebuild(py::tuple(args), note);
  Submit(stream, std::make_unique<PendingHostFunction>(std::move(function), std::move(frozen), std::move(parts)));
}

void RunPendingHostFunctions() {
  Deferred::Get().RunCalls();
  Deferred::Get().DropGarbage();
}

void SubscribeReport(const NPUStream& stream) {
  RefuseExternal(stream, "subscribing callbacks");
  EnsureContext();
  const ReleaseGil no_gil;
  Reporter::Of(stream.device_index()).Subscribe(stream);
}

void UnsubscribeReport(const NPUStream& stream) {
  RefuseExternal(stream, "unsubscribing callbacks");
  {
    const ReleaseGil no_gil;
    stream.synchronize();
    Reporter::Of(stream.device_index()).Unsubscribe(stream);
  }
  Deferred::Get().DropGarbage();
}

void LaunchCallback(const NPUStream& stream, py::object function, py::object data) {
  RefuseExternal(stream, "a callback");
  TORCH_CHECK_TYPE(PyCallable_Check(function.ptr()) != 0, "a callback must be callable, not ",
                   Py_TYPE(function.ptr())->tp_name);
  TORCH_CHECK(!stream.is_capturing(),
              "a callback cannot be part of a graph; use _launch_host_func while the stream is capturing");
  EnsureContext();
  auto* const payload = new Payload(std::move(function), std::move(data));
  const auto call = [](void* argument) {
    const std::unique_ptr<Payload> mine(static_cast<Payload*>(argument));
    CallWithData(*mine);
  };
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtLaunchCallback(call, payload, ACL_CALLBACK_BLOCK, stream.handle());
  }
  if (code != 0) delete payload;
  Check(code, "aclrtLaunchCallback");
}

}  // namespace torch_npu
