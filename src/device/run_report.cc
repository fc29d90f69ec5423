// SPDX-License-Identifier: Apache-2.0
#include "device/run_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/env.h"
#include "base/signal_text.h"
#include "base/symbols.h"
#include "device/inquiry.h"
#include "device/memory.h"
#include "device/move_to_file.h"
#include "device/scheduler.h"
#include "ir/task.h"

namespace reprise::device {
namespace {

// What a small file of /proc says; empty when it cannot be read.
std::string ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[512];
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  std::string_view words(text, got > 0 ? static_cast<size_t>(got) : 0);
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.remove_suffix(1);
  return std::string(words);
}

struct SystemCall {
  long number;
  const char* words;
  bool has_descriptor;
};
constexpr SystemCall kSystemCalls[] = {
    {SYS_clock_nanosleep, "sleeps (clock_nanosleep)", false},
    {SYS_nanosleep, "sleeps (nanosleep)", false},
    {SYS_futex, "waits for a lock, a condition or another thread (futex)", false},
    {SYS_read, "waits in read", true},
    {SYS_readv, "waits in readv", true},
    {SYS_pread64, "waits in pread", true},
    {SYS_write, "waits in write", true},
    {SYS_writev, "waits in writev", true},
    {SYS_recvfrom, "waits in recv", true},
    {SYS_recvmsg, "waits in recvmsg", true},
    {SYS_sendto, "waits in send", true},
    {SYS_sendmsg, "waits in sendmsg", true},
    {SYS_accept, "waits in accept", true},
    {SYS_accept4, "waits in accept", true},
    {SYS_connect, "waits in connect", true},
    {SYS_flock, "waits in flock", true},
    {SYS_fcntl, "waits in fcntl", true},
    {SYS_ppoll, "waits in ppoll", false},
    {SYS_pselect6, "waits in select", false},
    {SYS_epoll_pwait, "waits in epoll_wait", false},
    {SYS_wait4, "waits for a child process (wait)", false},
    {SYS_waitid, "waits for a child process (waitid)", false},
    {SYS_rt_sigtimedwait, "waits for a signal", false},
#ifdef SYS_poll  // not on every architecture
    {SYS_poll, "waits in poll", false},
    {SYS_select, "waits in select", false},
    {SYS_epoll_wait, "waits in epoll_wait", false},
    {SYS_pause, "waits for a signal", false},
#endif
};

std::string DescribeSystemCall(const std::string& line) {
  char* end = nullptr;
  const long number = std::strtol(line.c_str(), &end, 10);
  for (const SystemCall& call : kSystemCalls) {
    if (call.number != number) continue;
    if (!call.has_descriptor) return call.words;
    const unsigned long descriptor = std::strtoul(end, nullptr, 16);
    char target[128];
    const ssize_t size = readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), target, sizeof target);
    return fmt::format("{} of file descriptor {}{}", call.words, descriptor,
                       size > 0 ? fmt::format(" ({})", std::string_view(target, static_cast<size_t>(size))) : "");
  }
  return fmt::format("is in system call {}", number);
}

const char* WordsOf(Activity::Kind kind) {
  return kind == Activity::Kind::kHostFunction ? "host function" : "callback";
}

// A string of another thread, which may be gone.
std::string CopyString(const char* at) {
  std::string text;
  for (char part[16]; at != nullptr && text.size() < 128;) {
    // Not across a page, whose neighbour need not be there.
    const size_t bytes = std::min(sizeof part, 4096 - reinterpret_cast<uintptr_t>(at) % 4096);
    if (!CopyUntrusted(part, at, bytes)) break;
    const size_t size = strnlen(part, bytes);
    text.append(part, size);
    if (size != bytes) break;
    at += bytes;
  }
  return text;
}

}  // namespace

std::string StateOfThread(int thread) {
  const std::string folder = fmt::format("/proc/self/task/{}/", thread);
  if (const std::string line = ReadSmallFile(folder + "syscall"); !line.empty()) {
    if (line.starts_with("running")) return "computes";
    if (!line.starts_with("-1")) return DescribeSystemCall(line);
  }
  const std::string where = ReadSmallFile(folder + "wchan");
  if (where.size() > 1) return fmt::format("waits in {}", where);
  const std::string stat = ReadSmallFile(folder + "stat");
  const size_t at = stat.rfind(')');
  if (at == std::string::npos || at + 2 >= stat.size()) return "";
  switch (stat[at + 2]) {
    case 'R': return "computes";
    case 'S': return "sleeps or waits";
    case 'D': return "waits for a disk or the like";
    case 'T':
    case 't': return "is stopped";
    default: return "";
  }
}

std::vector<Activity::Helper> Activity::Helpers() {
  std::vector<Helper> helpers;
  for (const Slot* slot = Slots(); slot != nullptr; slot = slot->next) {
    const Runnable* const stream = __atomic_load_n(&slot->helps, __ATOMIC_RELAXED);
    if (stream != nullptr) helpers.push_back({stream, __atomic_load_n(&slot->thread, __ATOMIC_RELAXED)});
  }
  return helpers;
}

std::vector<Activity::Run> Activity::Runs(int device) {
  std::vector<Run> runs;
  for (const Slot* slot = Slots(); slot != nullptr; slot = slot->next) {
    const RunPlace* const at = __atomic_load_n(&slot->place, __ATOMIC_RELAXED);
    Run run;
    if (at == nullptr || !CopyUntrusted(&run.place, at, sizeof run.place) || run.place.device_id != device) continue;
    run.thread = __atomic_load_n(&slot->thread, __ATOMIC_RELAXED);
    if (run.place.kernel != nullptr) {
      RepriseKernelContext kernel{};
      if (!CopyUntrusted(&kernel, run.place.kernel, sizeof kernel)) continue;
      run.place.stream_id = kernel.stream_id;
      run.place.task_id = kernel.task_id;
      run.kernel = CopyString(kernel.kernel_name);
    }
    if (__atomic_load_n(&slot->place, __ATOMIC_RELAXED) == at) runs.push_back(std::move(run));
  }
  return runs;
}

std::vector<std::string> Activity::Describe(int device) {
  std::vector<std::string> lines;
  for (const Slot* slot = Slots(); slot != nullptr; slot = slot->next) {
    const uint64_t serial = slot->serial.load(std::memory_order_acquire);
    if (serial % 2 == 0 || slot->device.load(std::memory_order_relaxed) != device) continue;
    const void* const function = slot->function.load(std::memory_order_relaxed);
    const Runnable* const whole = slot->whole.load(std::memory_order_relaxed);
    const int32_t stream = slot->stream.load(std::memory_order_relaxed);
    const uint32_t task = slot->task.load(std::memory_order_relaxed);
    const Kind kind = slot->kind.load(std::memory_order_relaxed);
    const std::chrono::nanoseconds since(slot->since_ns.load(std::memory_order_relaxed));
    const char* const awaited_what = slot->awaited_what.load(std::memory_order_acquire);
    const Runnable* const awaited = slot->awaited.load(std::memory_order_relaxed);
    const int64_t awaited_id = slot->awaited_id.load(std::memory_order_relaxed);
    const int32_t thread = __atomic_load_n(&slot->thread, __ATOMIC_RELAXED);
    // A function of an object may not be asked for its name: the object may be gone.
    const std::string name = function == nullptr ? "of an object" : DescribeFunction(function);
    const std::string state = awaited_what == nullptr ? StateOfThread(thread) : "";
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot->serial.load(std::memory_order_relaxed) != serial) continue;  // it has ended
    std::string line = fmt::format(
        "stream {}, task {}: {} {} runs on thread {} since {} ms", stream, task, WordsOf(kind), name, thread,
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch() - since).count());
    if (awaited_what != nullptr) {
      line += fmt::format(" and waits for {} {}", awaited_what, awaited_id);
      if (awaited != nullptr && awaited == whole) line += ", which waits for it: a deadlock";
    } else if (!state.empty()) {
      line += fmt::format(" and {}", state);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// ---- Faults ----

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// So many of them are told; a program may live on with faults that a handler of its own sees to.
constexpr int kMostReports = 8;
constexpr uint32_t kMostSlots = 16;

struct Faults {
  struct sigaction before[std::size(kSignals)] = {};
  std::atomic<int> reports{0};
};
constinit Faults g_faults;
constinit thread_local bool t_tells __attribute__((tls_model("initial-exec"))) = false;

const char* NameOfSignal(int signal) noexcept {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    default: return "SIGILL";
  }
}

void TellRange(SignalText& text, uint64_t value) noexcept {
  MemoryRange range;
  switch (MemoryRegistry::Get().TryFind(value, range)) {
    case MemoryRegistry::Found::kYes:
      text << (range.kind == MemoryKind::kDevice ? "device memory" : "host memory") << " [";
      text.Hex(range.begin) << ", ";
      text.Hex(range.end()) << ") of device " << range.device << ", byte " << (value - range.begin) << " of "
                            << range.bytes;
      return;
    case MemoryRegistry::Found::kNo: text << "in no allocation"; return;
    case MemoryRegistry::Found::kBusy: text << "allocations are being changed"; return;
  }
}

void TellArguments(SignalText& text, const void* args, uint32_t bytes) noexcept {
  text << "  arguments: " << bytes << " bytes at " << args << '\n';
  for (uint32_t i = 0; i < std::min(bytes / 8, kMostSlots); ++i) {
    uint64_t value = 0;
    if (!CopyUntrusted(&value, static_cast<const std::byte*>(args) + size_t{i} * 8, sizeof value)) {
      text << "    cannot be read\n";
      return;
    }
    text << "    slot " << i << ": ";
    text.Hex(value, 16);
    // Small numbers are no addresses; what looks like one is looked up.
    if (value >= 4096) {
      text << "  ";
      TellRange(text, value);
    }
    text << '\n';
  }
  if (bytes / 8 > kMostSlots) text << "    and " << (bytes / 8 - kMostSlots) << " more\n";
}

void TellFunction(SignalText& text, const void* function) noexcept {
  Symbol symbol;
  if (function == nullptr) {
    text << "of an object";
  } else if (!FindSymbol(function, symbol)) {
    text << function;
  } else if (symbol.name[0] != '\0') {
    text << symbol.name << " in " << symbol.file_name();
  } else {
    text.Hex(symbol.in_file) << " in " << symbol.file_name();
  }
}

// The kernel or the other task that this thread is in.
void TellTask(SignalText& text, const RunPlace& place) noexcept {
  TaskSpot spot;
  const bool is_found = place.find_task != nullptr ? place.find_task(place, place.where, spot)
                                                   : place.running != nullptr && place.running->FindTask(spot);
  ir::DirectCall call{};
  const char* name = nullptr;
  if (is_found && spot.type->direct != nullptr) {
    (void)spot.type->direct(spot.payload, call);
    name = call.name;
  } else if (place.kernel != nullptr) {
    name = place.kernel->kernel_name;
  }
  text << "in ";
  if (name != nullptr) text << "kernel " << name << ", ";
  if (is_found && name == nullptr && spot.type->name_of != nullptr) text << spot.type->name_of(spot.payload) << ", ";
  if (!is_found) {
    text << "a task of stream " << place.stream_id;
  } else if (spot.tasks > 1) {
    text << "tasks " << spot.task_id << " to " << spot.task_id + spot.tasks - 1 << " (" << spot.type->name << ")";
  } else {
    text << "task " << spot.task_id << " (" << spot.type->name << ")";
  }
  if (is_found) text << " of " << (spot.is_in_graph ? "graph stream " : "stream ") << spot.stream_id;
  text << " of device " << place.device_id;
  if (place.kernel != nullptr && place.kernel->block_count > 1)
    text << ", of " << place.kernel->block_count << " blocks";
  if (call.args_bytes == 0) {
    text << '\n';
    return;
  }
  text << '\n';
  TellArguments(text, call.args, call.args_bytes);
}

void Tell(int signal, const siginfo_t* info) noexcept {
  Activity::Function function{};
  const bool in_function = Activity::MyFunction(function);
  const RunPlace* const place = Activity::Place();
  if (!in_function && place == nullptr) return;  // no work of ours
  if (g_faults.reports.fetch_add(1, std::memory_order_relaxed) >= kMostReports) return;
  SignalText text;
  text << "reprise: " << NameOfSignal(signal);
  if (info->si_code > 0) {
    text << " at " << info->si_addr;
    if (signal == SIGSEGV || signal == SIGBUS) {
      text << " (";
      TellRange(text, reinterpret_cast<uintptr_t>(info->si_addr));
      text << ")";
    }
  } else {
    text << ", which a process has sent,";
  }
  text << " on thread " << static_cast<int64_t>(::syscall(SYS_gettid)) << ' ';
  // A host function that waits may help with other work meanwhile; then that is at fault.
  if (in_function && (place == nullptr || place->is_on_worker)) {
    text << "in " << WordsOf(function.kind) << ' ';
    text.WriteTo(STDERR_FILENO);
    SignalText rest;
    TellFunction(rest, function.function);
    rest << ", task " << function.task << " of stream " << function.stream << " of device " << function.device << '\n';
    rest.WriteTo(STDERR_FILENO);
    return;
  }
  TellTask(text, *place);
  text.WriteTo(STDERR_FILENO);
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (!t_tells) {  // a fault in here is left to those behind us
    t_tells = true;
    Tell(signal, info);
    t_tells = false;
  }
  errno = saved;
  size_t which = 0;
  while (which + 1 < std::size(kSignals) && kSignals[which] != signal) ++which;
  const struct sigaction& before = g_faults.before[which];
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    // The instruction faults again, and the process ends as it would have; a signal that was sent comes once more.
    if (info->si_code <= 0) (void)::syscall(SYS_tgkill, getpid(), ::syscall(SYS_gettid), signal);
  }
}

}  // namespace

void ReportFaults() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    if (EnvInt(EnvVar::kReportFaults) == 0) return;
    // What a handler may ask is made before.
    static char from = 0, to = 0;
    (void)MemoryRegistry::Get();
    (void)CopyUntrusted(&to, &from, 1);
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction& before = g_faults.before[i];
      if (sigaction(kSignals[i], nullptr, &before) != 0) continue;
      struct sigaction ours {};
      ours.sa_sigaction = OnFault;
      ours.sa_mask = before.sa_mask;
      ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
      sigaction(kSignals[i], &ours, nullptr);
    }
  });
}

}  // namespace reprise::device
