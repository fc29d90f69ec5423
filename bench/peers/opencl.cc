// SPDX-License-Identifier: Apache-2.0
//
// PoCL's command buffers (cl_khr_command_buffer): OpenCL kernels recorded once and enqueued again. The library is
// loaded when it is there, so that a machine without an OpenCL platform runs everything else.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "peers/peer.h"

namespace bench {
namespace {

constexpr const char* kSource =
    "kernel void nothing(global uint* counter) {}\n"
    "kernel void add_one(global uint* counter) { *counter += 1; }\n";

void CheckCl(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  Require(false, (std::string("OpenCL: ") + what + " returned " + std::to_string(code)).c_str());
}

class OpenCl final : public Peer {
 public:
  OpenCl() { missing_ = Open(); }
  ~OpenCl() override {
    // The library stays loaded: its threads do not end before the process does.
    if (counter_ != nullptr) release_memory_(counter_);
    if (queue_ != nullptr) release_queue_(queue_);
    if (context_ != nullptr) release_context_(context_);
  }
  std::string missing() const override { return missing_; }

  PeerWork OwnChain(int nodes) override {
    const auto counting = Record("add_one", nodes);
    cl_uint sum = 0;
    CheckCl(write_(queue_, counter_, CL_TRUE, 0, sizeof sum, &sum, 0, nullptr, nullptr), "clEnqueueWriteBuffer");
    Enqueue(counting.get());
    Enqueue(counting.get());
    CheckCl(read_(queue_, counter_, CL_TRUE, 0, sizeof sum, &sum, 0, nullptr, nullptr), "clEnqueueReadBuffer");
    Require(sum == 2 * static_cast<cl_uint>(nodes), "OpenCL: two runs of a command buffer miscounted");
    const auto nothing = Record("nothing", nodes);
    return [this, nothing](int repetitions) {
      for (int i = 0; i < repetitions; ++i) Enqueue(nothing.get());
    };
  }

 private:
  using Buffer = std::shared_ptr<std::remove_pointer_t<cl_command_buffer_khr>>;

  template <class Function>
  bool Find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    return function != nullptr;
  }
  template <class Function>
  bool FindExtension(Function& function, const char* name) {
    function = reinterpret_cast<Function>(extension_(platform_, name));
    return function != nullptr;
  }

  std::string Open() {
    library_ = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return "no libOpenCL.so.1 (ocl-icd-libopencl1)";
    decltype(clGetPlatformIDs)* platforms = nullptr;
    decltype(clGetDeviceIDs)* devices = nullptr;
    decltype(clGetDeviceInfo)* info = nullptr;
    decltype(clCreateContext)* create_context = nullptr;
    decltype(clCreateCommandQueueWithProperties)* create_queue = nullptr;
    decltype(clCreateProgramWithSource)* create_program = nullptr;
    decltype(clBuildProgram)* build = nullptr;
    decltype(clCreateBuffer)* create_buffer = nullptr;
    if (!Find(platforms, "clGetPlatformIDs") || !Find(devices, "clGetDeviceIDs") || !Find(info, "clGetDeviceInfo") ||
        !Find(create_context, "clCreateContext") || !Find(create_queue, "clCreateCommandQueueWithProperties") ||
        !Find(create_program, "clCreateProgramWithSource") || !Find(build, "clBuildProgram") ||
        !Find(create_buffer, "clCreateBuffer") || !Find(create_kernel_, "clCreateKernel") ||
        !Find(set_argument_, "clSetKernelArg") || !Find(write_, "clEnqueueWriteBuffer") ||
        !Find(read_, "clEnqueueReadBuffer") || !Find(finish_, "clFinish") ||
        !Find(extension_, "clGetExtensionFunctionAddressForPlatform") || !Find(release_kernel_, "clReleaseKernel") ||
        !Find(release_memory_, "clReleaseMemObject") || !Find(release_queue_, "clReleaseCommandQueue") ||
        !Find(release_context_, "clReleaseContext")) {
      return "libOpenCL.so.1 is older than OpenCL 2.0";
    }
    cl_uint count = 0;
    std::vector<cl_platform_id> found(16);
    if (platforms(static_cast<cl_uint>(found.size()), found.data(), &count) != CL_SUCCESS) count = 0;
    for (cl_uint i = 0; i < count && i < found.size() && device_ == nullptr; ++i) {
      cl_device_id device = nullptr;
      if (devices(found[i], CL_DEVICE_TYPE_CPU, 1, &device, nullptr) != CL_SUCCESS) continue;
      std::vector<char> extensions(16384);
      if (info(device, CL_DEVICE_EXTENSIONS, extensions.size() - 1, extensions.data(), nullptr) != CL_SUCCESS) continue;
      if (std::strstr(extensions.data(), "cl_khr_command_buffer") == nullptr) continue;
      platform_ = found[i];
      device_ = device;
    }
    if (device_ == nullptr) return "no OpenCL platform with command buffers (pocl-opencl-icd)";
    if (!FindExtension(create_, "clCreateCommandBufferKHR") ||
        !FindExtension(finalize_, "clFinalizeCommandBufferKHR") ||
        !FindExtension(release_, "clReleaseCommandBufferKHR") ||
        !FindExtension(enqueue_, "clEnqueueCommandBufferKHR") ||
        !FindExtension(command_, "clCommandNDRangeKernelKHR")) {
      return "the OpenCL platform lacks functions of cl_khr_command_buffer";
    }
    cl_int code = 0;
    context_ = create_context(nullptr, 1, &device_, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) return "clCreateContext returned " + std::to_string(code);
    queue_ = create_queue(context_, device_, nullptr, &code);
    CheckCl(code, "clCreateCommandQueueWithProperties");
    const char* source = kSource;
    program_ = create_program(context_, 1, &source, nullptr, &code);
    CheckCl(code, "clCreateProgramWithSource");
    code = build(program_, 1, &device_, "", nullptr, nullptr);
    if (code != CL_SUCCESS) return "the OpenCL compiler fails: " + std::to_string(code);
    counter_ = create_buffer(context_, CL_MEM_READ_WRITE, sizeof(cl_uint), nullptr, &code);
    CheckCl(code, "clCreateBuffer");
    return {};
  }

  Buffer Record(const char* name, int nodes) {
    cl_int code = 0;
    cl_kernel kernel = create_kernel_(program_, name, &code);
    CheckCl(code, "clCreateKernel");
    CheckCl(set_argument_(kernel, 0, sizeof(cl_mem), &counter_), "clSetKernelArg");
    cl_command_buffer_khr made = create_(1, &queue_, nullptr, &code);
    CheckCl(code, "clCreateCommandBufferKHR");
    const auto release = release_;
    Buffer buffer(made, [release](cl_command_buffer_khr old) { release(old); });
    const size_t one = 1;
    cl_sync_point_khr before = 0;
    for (int i = 0; i < nodes; ++i) {
      cl_sync_point_khr point = 0;
      CheckCl(command_(made, nullptr, nullptr, kernel, 1, nullptr, &one, &one, i > 0 ? 1 : 0, i > 0 ? &before : nullptr,
                       &point, nullptr),
              "clCommandNDRangeKernelKHR");
      before = point;
    }
    CheckCl(finalize_(made), "clFinalizeCommandBufferKHR");
    CheckCl(release_kernel_(kernel), "clReleaseKernel");
    return buffer;
  }

  void Enqueue(cl_command_buffer_khr buffer) {
    CheckCl(enqueue_(0, nullptr, buffer, 0, nullptr, nullptr), "clEnqueueCommandBufferKHR");
    CheckCl(finish_(queue_), "clFinish");
  }

  std::string missing_;
  void* library_ = nullptr;
  cl_platform_id platform_ = nullptr;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  cl_program program_ = nullptr;
  cl_mem counter_ = nullptr;
  decltype(clCreateKernel)* create_kernel_ = nullptr;
  decltype(clSetKernelArg)* set_argument_ = nullptr;
  decltype(clEnqueueWriteBuffer)* write_ = nullptr;
  decltype(clEnqueueReadBuffer)* read_ = nullptr;
  decltype(clFinish)* finish_ = nullptr;
  decltype(clGetExtensionFunctionAddressForPlatform)* extension_ = nullptr;
  decltype(clReleaseKernel)* release_kernel_ = nullptr;
  decltype(clReleaseMemObject)* release_memory_ = nullptr;
  decltype(clReleaseCommandQueue)* release_queue_ = nullptr;
  decltype(clReleaseContext)* release_context_ = nullptr;
  clCreateCommandBufferKHR_fn create_ = nullptr;
  clFinalizeCommandBufferKHR_fn finalize_ = nullptr;
  clReleaseCommandBufferKHR_fn release_ = nullptr;
  clEnqueueCommandBufferKHR_fn enqueue_ = nullptr;
  clCommandNDRangeKernelKHR_fn command_ = nullptr;
};

}  // namespace

std::unique_ptr<Peer> MakeOpenCl() { return std::make_unique<OpenCl>(); }

}  // namespace bench
