// SPDX-License-Identifier: Apache-2.0
#include "exec/call_code.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "exec/plan.h"

namespace reprise::exec {
namespace {

#ifdef __x86_64__
constexpr bool kCanEmit = true;
#else
constexpr bool kCanEmit = false;
#endif

// Calls `run(begin, end)` for each run of calls that is long enough, in the order of steps.
template <class Take>
void VisitRuns(const Plan& plan, uint32_t least_run, Take take) {
  const Steps& steps = plan.steps();
  for (const PlanLane& lane : plan.lanes()) {
    for (uint32_t at = lane.begin; at < lane.end;) {
      const uint32_t begin = at++;
      if (steps[begin].kind != Step::kCall) continue;
      const uint32_t sort = steps[begin].Sort();
      while (at != lane.end && steps[at].Sort() == sort) ++at;
      if (at - begin >= least_run) take(static_cast<uint32_t>(&lane - plan.lanes().data()), begin, at);
    }
  }
}

// The distance, if it fits the 32 bits that instructions have for it.
bool Near(const void* from, const void* to, int32_t& distance) {
  const auto wide = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  distance = static_cast<int32_t>(wide);
  return distance == wide;
}

// The code of a run is a function
//
//   Stopped run(const RepriseKernelContext* contexts, const void* base, const RepriseKernelContext** current,
//               const std::atomic<uint32_t>* failed);
//
// that keeps its parameters in rbx, r12, r13 and r14, which kernels preserve. rbx moves on from context to context.
struct Stopped {
  int64_t code;  // of which 32 bits mean something
  const RepriseKernelContext* at;
};
using RunFn = Stopped (*)(const RepriseKernelContext*, const void*, const RepriseKernelContext**,
                          const std::atomic<uint32_t>*);
static_assert(std::atomic<uint32_t>::is_always_lock_free, "code reads its value at its address");
static_assert(sizeof(RepriseKernelContext) <= 127, "one byte holds the distance between two");

class Writer {
 public:
  // Most that a run needs beside its calls, and that a call needs.
  static constexpr size_t kRunBytes = 64;
  static constexpr size_t kCallBytes = 48;

  explicit Writer(std::byte* at) : at_(at) {}

  std::byte* at() const { return at_; }

  // Returns the entry.
  std::byte* BeginRun(const void* base) {
    base_ = base;
    stop_ = at_;
    Bytes({0x48, 0x89, 0xDA});  // mov rdx, rbx
    Leave();
    std::byte* const entry = at_;
    Bytes({0xF3, 0x0F, 0x1E, 0xFA});                    // endbr64
    Bytes({0x55, 0x48, 0x89, 0xE5});                    // push rbp; mov rbp, rsp
    Bytes({0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56});  // push rbx; push r12; push r13; push r14
    Bytes({0x48, 0x89, 0xFB, 0x49, 0x89, 0xF4});        // mov rbx, rdi; mov r12, rsi
    Bytes({0x49, 0x89, 0xD5, 0x49, 0x89, 0xCE});        // mov r13, rdx; mov r14, rcx
    return entry;
  }

  void Call(const Step& step) {
    Bytes({0x48, 0x89, 0xDF});        // mov rdi, rbx
    Bytes({0x49, 0x89, 0x5D, 0x00});  // mov [r13], rbx
    Arguments(step.data);
    if (step.args_bytes == 0) {
      Bytes({0x31, 0xD2});  // xor edx, edx
    } else {
      Bytes({0xBA});  // mov edx, number
      Put(static_cast<uint32_t>(step.args_bytes));
    }
    const auto* const function = reinterpret_cast<const void*>(step.call);
    int32_t distance;
    if (Near(at_ + 5, function, distance)) {
      Bytes({0xE8});  // call function
      Put(distance);
    } else {
      Bytes({0x48, 0xB8});  // mov rax, function
      Put(function);
      Bytes({0xFF, 0xD0});  // call rax
    }
    // One comparison for both reasons to stop: the kernel's number is 0, and so is the mark.
    Bytes({0x41, 0x3B, 0x06});  // cmp eax, [r14]
    Bytes({0x0F, 0x85});        // jne stop
    Put(static_cast<int32_t>(stop_ - (at_ + sizeof(int32_t))));
    Bytes({0x48, 0x83, 0xC3, static_cast<uint8_t>(sizeof(RepriseKernelContext))});  // add rbx, size of a context
  }

  void EndRun() {
    Bytes({0x31, 0xC0, 0x31, 0xD2});  // xor eax, eax; xor edx, edx
    Leave();
  }

 private:
  void Bytes(std::initializer_list<uint8_t> bytes) {
    std::memcpy(at_, bytes.begin(), bytes.size());
    at_ += bytes.size();
  }
  template <class T>
  void Put(T value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void Leave() { Bytes({0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5B, 0x5D, 0xC3}); }  // pop r14, r13, r12, rbx, rbp; ret
  void Arguments(const void* data) {
    int32_t distance;
    if (Near(base_, data, distance)) {
      Bytes({0x49, 0x8D, 0xB4, 0x24});  // lea rsi, [r12 + distance]
      Put(distance);
    } else {
      Bytes({0x48, 0xBE});  // mov rsi, data
      Put(data);
    }
  }

  std::byte* at_;
  const std::byte* stop_ = nullptr;
  const void* base_ = nullptr;
};

size_t WholePages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

CallCode::Calls CallCode::Count(const Plan& plan, uint32_t least_run) {
  Calls counted;
  VisitRuns(plan, least_run, [&](uint32_t, uint32_t begin, uint32_t end) {
    counted.calls += end - begin;
    for (uint32_t i = begin + 1; i != end; ++i)
      counted.changes += plan.steps()[i].call != plan.steps()[i - 1].call ? 1 : 0;
  });
  return counted;
}

std::unique_ptr<const CallCode> CallCode::Make(const Plan& plan, uint32_t least_run, int32_t device_id) {
  if (!kCanEmit || plan.is_program()) return nullptr;
  std::unique_ptr<CallCode> made(new CallCode);
  VisitRuns(plan, least_run, [&](uint32_t lane, uint32_t begin, uint32_t end) {
    const auto first = static_cast<uint32_t>(made->contexts_.size());
    made->runs_.push_back({begin, end, first, 0, plan.steps()[begin].data});
    const int32_t stream_id = plan.stream_id(lane, plan.steps()[begin]);
    for (uint32_t i = begin; i != end; ++i) {
      const Step& step = plan.steps()[i];
      made->contexts_.push_back({sizeof(RepriseKernelContext), 0, 1, device_id, stream_id, step.task_id, step.name});
    }
  });
  if (made->runs_.empty()) return nullptr;
  made->contexts_.shrink_to_fit();
  made->runs_.shrink_to_fit();

  const size_t most = WholePages(made->runs_.size() * Writer::kRunBytes + made->contexts_.size() * Writer::kCallBytes);
  if (most > std::numeric_limits<int32_t>::max()) return nullptr;
  void* const pages = mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  made->code_ = static_cast<std::byte*>(pages);
  made->code_bytes_ = most;
  Writer writer(made->code_);
  for (Run& run : made->runs_) {
    run.entry = static_cast<uint32_t>(writer.BeginRun(run.base) - made->code_);
    for (uint32_t i = run.begin; i != run.end; ++i) writer.Call(plan.steps()[i]);
    writer.EndRun();
  }
  const size_t used = WholePages(static_cast<size_t>(writer.at() - made->code_));
  if (used != most && munmap(made->code_ + used, most - used) == 0) made->code_bytes_ = used;
  if (mprotect(made->code_, made->code_bytes_, PROT_READ | PROT_EXEC) != 0) return nullptr;
  return made;
}

CallCode::~CallCode() {
  if (code_ != nullptr) munmap(code_, code_bytes_);
}

const CallCode::Run* CallCode::Find(uint32_t begin) const {
  const auto at = std::lower_bound(runs_.begin(), runs_.end(), begin,
                                   [](const Run& run, uint32_t wanted) { return run.begin < wanted; });
  return at != runs_.end() && at->begin == begin ? &*at : nullptr;
}

CallCode::Stop CallCode::Call(const Run& run, const RepriseKernelContext*& current,
                              const std::atomic<uint32_t>& failed) const {
  const RepriseKernelContext* const first = contexts_.data() + run.first_context;
  const auto function = reinterpret_cast<RunFn>(code_ + run.entry);
  const Stopped stopped = function(first, run.base, &current, &failed);
  if (stopped.at == nullptr) return {};
  return {run.begin + static_cast<uint32_t>(stopped.at - first), static_cast<int32_t>(stopped.code)};
}

size_t CallCode::memory_bytes() const {
  return code_bytes_ + runs_.capacity() * sizeof(Run) + contexts_.capacity() * sizeof(RepriseKernelContext);
}

}  // namespace reprise::exec
