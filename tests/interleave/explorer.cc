// SPDX-License-Identifier: Apache-2.0
#include "explorer.h"

#include <link.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "points.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#error "the switch of fibers below is written for x86-64"
#endif

// Keeps what a function must preserve on the stack of the fiber that is left, and takes it from that of the next.
extern "C" void interleave_switch(void** leave, void* enter);
asm(R"(
.text
.globl interleave_switch
.type interleave_switch, @function
interleave_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size interleave_switch, .-interleave_switch
)");

extern "C" char __data_start;  // NOLINT: names of the linker
extern "C" char _end;          // NOLINT

namespace interleave {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr uint64_t kCanary = 0x5afe'57ac'0b07'703du;
constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kLeap = 1'000'000;  // how far the clock moves when all threads spin
constexpr int kIdleRounds = 4000;     // of spinning, while nothing changes, until that counts as a livelock
constexpr int kRush = 256;            // relaxations that a spinner out of patience skips
constexpr int kSlice = 300;           // steps in a row, see Options::slices
constexpr size_t kTraceLines = 160;
constexpr int kSecondsForOne = 300;  // a few where nothing else runs

enum class State : uint8_t { kReady, kAsleep, kJoining, kDone };

struct Fiber {
  int id = 0;
  State state = State::kReady;
  bool yielded = false;      // and nobody has changed anything since
  bool reads_clock = false;  // since it last slept: a spinner with an end
  bool timed_out = false;
  int rush = 0;
  int in_a_row = 0;
  const char* what = "";
  const volatile void* key = nullptr;
  int64_t deadline = 0;
  uint64_t asleep_since = 0;
  int joins = -1;
  Where where;
  std::function<void()> body;
  void* sp = nullptr;
  std::byte* stack = nullptr;
  std::vector<std::byte> tls;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

struct Event {
  int fiber;
  const char* operation;
  const volatile void* object;
  const char* file;
  uint32_t line;
  bool has_value;
  uint64_t value;
};

struct Decision {
  uint16_t choice;
  uint16_t options;
};

// A part of the tree: everything that one schedule needs. One exploration in a process.
struct World {
  Options options;
  std::function<void()> program;

  std::vector<std::unique_ptr<Fiber>> fibers;
  Fiber* running = nullptr;
  void* main_sp = nullptr;
  void* main_fake_stack = nullptr;
  const void* main_stack = nullptr;
  size_t main_stack_bytes = 0;
  std::vector<std::byte*> free_stacks;
  std::vector<std::byte> main_tls;

  std::vector<Decision> path;  // of this schedule; its beginning is given
  size_t given = 0;
  size_t depth = 0;
  int used = 0;  // preemptions
  int straight = 0;
  int wakes = 0;
  int slices = 0;
  int64_t clock = kLeap;
  int idle_rounds = 0;
  int steps = 0;
  uint64_t sleeps = 0;
  bool failed = false;
  std::string failure;
  std::vector<Event> trace;

  // Statics that nobody has changed yet need no decision; found out while exploring, then it begins anew.
  std::vector<const volatile void*> changed_statics;
  bool begin_anew = false;
  const volatile void* last_object = nullptr;
};

World* g_world = nullptr;  // while a schedule runs
std::byte* g_tls = nullptr;
size_t g_tls_bytes = 0;

bool IsStatic(const volatile void* object) { return object >= &__data_start && object < &_end; }

// ---- Switching ----

// Variables that are thread_local in the program's sources belong to fibers.
void FindTls() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS || info->dlpi_tls_data == nullptr) continue;
          g_tls = static_cast<std::byte*>(info->dlpi_tls_data);
          g_tls_bytes = info->dlpi_phdr[i].p_memsz;
        }
        return 1;  // the first object is the program
      },
      nullptr);
}

void SwitchStacks(void** leave, void** leave_fake, bool ends, Fiber* next) {
  World& world = *g_world;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ends ? nullptr : leave_fake, next != nullptr ? next->stack : world.main_stack,
                                 next != nullptr ? kStackBytes : world.main_stack_bytes);
#else
  (void)leave_fake;
  (void)ends;
#endif
  interleave_switch(leave, next != nullptr ? next->sp : world.main_sp);
}

void Arrived([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  World& world = *g_world;
  const bool first = world.main_stack == nullptr;  // then we come from the main stack
  __sanitizer_finish_switch_fiber(fake_stack, first ? &world.main_stack : nullptr,
                                  first ? &world.main_stack_bytes : nullptr);
#endif
}

void SwitchTo(Fiber* next) {
  World& world = *g_world;
  Fiber* me = world.running;
  if (me == next) return;
  if (g_tls_bytes != 0) {
    std::memcpy(me->tls.data(), g_tls, g_tls_bytes);
    std::memcpy(g_tls, next->tls.data(), g_tls_bytes);
  }
  world.running = next;
  next->in_a_row = 0;
  SwitchStacks(&me->sp, &me->fake_stack, me->state == State::kDone, next);
  Arrived(me->fake_stack);
}

// Leaves the schedule; never returns.
[[noreturn]] void Leave() {
  World& world = *g_world;
  Fiber* me = world.running;
  SwitchStacks(&me->sp, &me->fake_stack, false, nullptr);
  std::abort();
}

// ---- Decisions ----

// One of `count` ways to go on; the first costs nothing, each other `cost`.
size_t Choose(size_t count, int cost) {
  World& world = *g_world;
  if (count < 2 || world.straight != 0 || world.used + cost > world.options.preemptions) return 0;
  if (world.depth == world.given) {
    world.path.push_back({0, static_cast<uint16_t>(count)});
    ++world.given;
  }
  Decision& decision = world.path[world.depth++];
  if (decision.options == 0) decision.options = static_cast<uint16_t>(count);  // a schedule that is repeated
  if (decision.options != count || decision.choice >= count) {
    Fail("the program is not deterministic: the same schedule led to another place", Where::current());
  }
  if (decision.choice != 0) world.used += cost;
  return decision.choice;
}

std::string Describe(const Event& event) {
  const char* slash = std::strrchr(event.file, '/');
  char line[256];
  std::snprintf(line, sizeof line, "  thread %d  %-10s %p", event.fiber, event.operation,
                const_cast<const void*>(event.object));
  std::string text = line;
  if (event.has_value) text += " = " + std::to_string(event.value);
  return text + "  " + (slash != nullptr ? slash + 1 : event.file) + ":" + std::to_string(event.line) + "\n";
}

void Trace(const char* operation, const volatile void* object, const Where& where) {
  World& world = *g_world;
  world.running->where = where;
  world.trace.push_back({world.running->id, operation, object, where.file_name(), where.line(), false, 0});
  if (++world.steps > world.options.most_steps) {
    Fail("livelock: " + std::to_string(world.steps) + " steps and no end", where);
  }
}

bool CanRun(const Fiber& fiber) { return fiber.state == State::kReady && !fiber.yielded; }

// Those that can run, beginning behind the running one.
size_t Others(Fiber** others, size_t most) {
  World& world = *g_world;
  const size_t count = world.fibers.size();
  size_t found = 0;
  for (size_t i = 1; i < count; ++i) {
    Fiber& fiber = *world.fibers[(static_cast<size_t>(world.running->id) + i) % count];
    if (CanRun(fiber) && found < most) others[found++] = &fiber;
  }
  return found;
}

std::string WhoWaits() {
  std::string text;
  for (const auto& fiber : g_world->fibers) {
    if (fiber->state == State::kDone) continue;
    const char* slash = std::strrchr(fiber->where.file_name(), '/');
    text += "  thread " + std::to_string(fiber->id) +
            (fiber->state == State::kReady     ? " spins"
             : fiber->state == State::kJoining ? " joins thread " + std::to_string(fiber->joins)
                                               : std::string(" sleeps: ") + fiber->what) +
            " at " + (slash != nullptr ? slash + 1 : fiber->where.file_name()) + ":" +
            std::to_string(fiber->where.line()) + "\n";
  }
  return text;
}

void Idle() {
  World& world = *g_world;
  world.clock += kLeap;
  if (++world.idle_rounds > kIdleRounds) {
    Fail("nothing changes any more; a wake-up was lost, or a condition never comes:\n" + WhoWaits(),
         world.running->where);
  }
}

// The running fiber cannot go on: gives the turn to another.
void GoElsewhere() {
  World& world = *g_world;
  Fiber* others[16];
  const size_t count = Others(others, 16);
  if (count != 0) {
    SwitchTo(others[Choose(count, 0)]);
    return;
  }
  const size_t all = world.fibers.size();
  for (size_t i = 1; i <= all; ++i) {  // who spins
    Fiber& fiber = *world.fibers[(static_cast<size_t>(world.running->id) + i) % all];
    if (fiber.state != State::kReady) continue;
    Idle();
    fiber.yielded = false;
    SwitchTo(&fiber);
    return;
  }
  Fiber* nearest = nullptr;
  bool all_done = true;
  for (const auto& fiber : world.fibers) {
    all_done = all_done && fiber->state == State::kDone;
    if (fiber->state != State::kAsleep || fiber->deadline == 0) continue;
    if (nearest == nullptr || fiber->deadline < nearest->deadline) nearest = fiber.get();
  }
  if (all_done) Leave();
  if (nearest == nullptr || !world.options.timeouts) {
    Fail("deadlock, or a lost wake-up: nobody can go on\n" + WhoWaits(), world.running->where);
  }
  Idle();
  world.clock = std::max(world.clock, nearest->deadline);
  nearest->state = State::kReady;
  nearest->timed_out = true;
  SwitchTo(nearest);
}

void FiberMain() {
  Arrived(nullptr);
  Fiber* me = g_world->running;
  me->body();
  me->body = nullptr;
  World& world = *g_world;
  for (const auto& fiber : world.fibers) {
    if (fiber->state == State::kJoining && fiber->joins == me->id) fiber->state = State::kReady;
  }
  world.last_object = nullptr;
  Changed();
  me->state = State::kDone;
  GoElsewhere();
  std::abort();
}

// ---- Schedules ----

std::byte* TakeStack(World& world) {
  if (!world.free_stacks.empty()) {
    std::byte* stack = world.free_stacks.back();
    world.free_stacks.pop_back();
    return stack;
  }
  auto* stack = static_cast<std::byte*>(std::aligned_alloc(64, kStackBytes));
  if (stack == nullptr) std::abort();
  std::memcpy(stack, &kCanary, sizeof kCanary);
  return stack;
}

void RunOnce(World& world) {
  world.depth = 0;
  world.used = world.straight = world.wakes = world.slices = world.idle_rounds = world.steps = 0;
  world.clock = kLeap;
  world.trace.clear();
  if (g_tls_bytes != 0) world.main_tls.assign(g_tls, g_tls + g_tls_bytes);
  g_world = &world;
  Spawn(world.program);
  world.running = world.fibers[0].get();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&world.main_fake_stack, world.running->stack, kStackBytes);
#endif
  interleave_switch(&world.main_sp, world.running->sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(world.main_fake_stack, nullptr, nullptr);
#endif
  g_world = nullptr;
  if (g_tls_bytes != 0) std::memcpy(g_tls, world.main_tls.data(), g_tls_bytes);
  for (const auto& fiber : world.fibers) {
    uint64_t canary = 0;
    std::memcpy(&canary, fiber->stack, sizeof canary);
    if (canary != kCanary) {
      std::fputs("interleave: the stack of a fiber is too small\n", stderr);
      std::abort();
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber->stack, kStackBytes);
#endif
    world.free_stacks.push_back(fiber->stack);
  }
  if (!world.failed) world.fibers.clear();  // after a failure they keep what hangs on their stacks
}

std::string ScheduleText(const World& world) {
  std::string text;
  for (size_t i = 0; i < world.depth; ++i) {
    if (world.path[i].choice == 0) continue;
    text += (text.empty() ? "" : ",") + std::to_string(i) + ":" + std::to_string(world.path[i].choice);
  }
  return text.empty() ? "-" : text;
}

std::string FailureText(const World& world, const std::string& name, const std::string& what, bool whole_trace) {
  std::string text =
      name + ": " + what + "\nrepeat it: REPRISE_INTERLEAVE='" + name + "=" + ScheduleText(world) + "'\n";
  const size_t all = world.trace.size();
  const size_t first = whole_trace || all < kTraceLines ? 0 : all - kTraceLines;
  text += "the last " + std::to_string(all - first) + " of " + std::to_string(all) + " steps:\n";
  for (size_t i = first; i < all; ++i) text += Describe(world.trace[i]);
  return text;
}

// The next schedule in depth-first order; false when there is none.
bool Advance(World& world) {
  world.path.resize(world.depth);
  while (!world.path.empty() && world.path.back().choice + 1 == world.path.back().options) world.path.pop_back();
  world.given = world.path.size();
  if (world.path.empty()) return false;
  ++world.path.back().choice;
  return true;
}

struct Wire {
  bool failed;
  bool complete;
  uint64_t schedules;
  uint64_t steps;
  uint64_t longest;
};

int g_pipe = -1;
const std::string* g_name = nullptr;
Report g_report;

void Send(const Report& report) {
  const Wire wire{report.failed, report.complete, report.schedules, report.steps, report.longest};
  std::string bytes(reinterpret_cast<const char*>(&wire), sizeof wire);
  bytes += report.text;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::write(g_pipe, bytes.data() + sent, bytes.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
}

void OnCrash(int signal) {
  g_report.failed = true;
  g_report.text = *g_name + ": ended by signal " + std::to_string(signal);
  if (g_world != nullptr) g_report.text = FailureText(*g_world, *g_name, "signal " + std::to_string(signal), false);
  Send(g_report);
  ::_exit(0);
}

void CatchCrashes() {
#if !defined(__SANITIZE_ADDRESS__)  // which says more about it
  static std::byte stack[64 << 10];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  ::sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = OnCrash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) ::sigaction(signal, &action, nullptr);
#else
  (void)OnCrash;
#endif
}

// "17:1,42:2" → the decisions that are not the first option.
std::vector<Decision> ParseSchedule(const char* text) {
  std::vector<Decision> path;
  while (*text != '\0') {
    char* end = nullptr;
    const unsigned long at = std::strtoul(text, &end, 10);
    if (*end != ':' || at > 100'000) break;
    const unsigned long choice = std::strtoul(end + 1, &end, 10);
    if (at >= path.size()) path.resize(at + 1, {0, 0});
    path[at].choice = static_cast<uint16_t>(choice);
    text = *end == ',' ? end + 1 : end;
  }
  return path;
}

[[noreturn]] void ExploreHere(const std::string& name, const Options& options, const std::function<void()>& program) {
  g_name = &name;
  CatchCrashes();
  FindTls();
  auto* world = new World;  // never deleted: a failed schedule leaves its objects behind
  world->options = options;
  world->program = program;
  const char* wish = std::getenv("REPRISE_INTERLEAVE");
  const bool repeat = wish != nullptr && std::strncmp(wish, (name + "=").c_str(), name.size() + 1) == 0;
  if (repeat) {
    world->path = ParseSchedule(wish + name.size() + 1);
    world->given = world->path.size();
  }
  const auto failed = [&] {
    g_report.failed = true;
    g_report.text = FailureText(*world, name, world->failure, repeat);
  };
  // Twice the first way: what is made at first use (static variables) is there afterwards.
  if (!repeat) {
    RunOnce(*world);
    ++g_report.schedules;
    if (!world->failed) {
      world->path.clear();
      world->given = 0;
    }
  }
  while (!world->failed) {
    world->begin_anew = false;
    RunOnce(*world);
    ++g_report.schedules;
    g_report.steps += static_cast<uint64_t>(world->steps);
    g_report.longest = std::max<uint64_t>(g_report.longest, world->depth);
    if (world->failed || repeat) break;
    if (world->begin_anew) {
      world->path.clear();
      world->given = 0;
      continue;
    }
    if (!Advance(*world)) {
      g_report.complete = true;
      break;
    }
    if (g_report.schedules >= options.most_schedules) break;
  }
  if (world->failed) {
    failed();
  } else if (repeat) {
    g_report.complete = true;
    g_report.text = FailureText(*world, name, "this schedule ends well", true);
    std::fputs(g_report.text.c_str(), stdout);
    std::fflush(stdout);
  }
  Send(g_report);
  ::_exit(0);
}

}  // namespace

// ---- For the programs ----

Report Explore(const std::string& name, const Options& options, const std::function<void()>& program) {
  Report report;
  int ends[2];
  if (::pipe(ends) != 0) {
    report.failed = true;
    report.text = "no pipe";
    return report;
  }
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    g_pipe = ends[1];
    ExploreHere(name, options, program);
  }
  ::close(ends[1]);
  std::string bytes;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kSecondsForOne);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()).count();
    pollfd poll_end{ends[0], POLLIN, 0};
    if (child < 0 || left <= 0 || ::poll(&poll_end, 1, static_cast<int>(left)) <= 0) {
      if (child > 0) ::kill(child, SIGKILL);
      report.text = name + ": no end within " + std::to_string(kSecondsForOne) + " s";
      break;
    }
    char buffer[4096];
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    bytes.append(buffer, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  if (child > 0) ::waitpid(child, &status, 0);
  if (bytes.size() < sizeof(Wire)) {
    report.failed = true;
    if (report.text.empty()) report.text = name + ": the process ended with status " + std::to_string(status);
    return report;
  }
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  report.failed = wire.failed;
  report.complete = wire.complete;
  report.schedules = wire.schedules;
  report.steps = wire.steps;
  report.longest = wire.longest;
  report.text = bytes.substr(sizeof wire);
  return report;
}

void Check(bool holds, const char* what, Where where) {
  if (!holds) Fail(std::string("does not hold: ") + what, where);
}

Straight::Straight() {
  if (g_world != nullptr) ++g_world->straight;
}

Straight::~Straight() {
  if (g_world != nullptr) --g_world->straight;
}

void Settle() {
  World& world = *g_world;
  for (;;) {
    Fiber* others[16];
    if (Others(others, 16) == 0) {
      // Those that spin may go on when the clock moves; a few rounds end every spin that has an end.
      bool spins = false;
      for (const auto& fiber : world.fibers) {
        if (fiber.get() == world.running || fiber->state != State::kReady) continue;
        fiber->yielded = false;
        spins = true;
      }
      if (!spins) return;
      Idle();
      if (Others(others, 16) == 0) return;
    }
    SwitchTo(others[0]);
  }
}

// ---- For the shim ----

void Point(const char* operation, const volatile void* object, const Where& where) {
  if (g_world == nullptr) return;
  World& world = *g_world;
  Trace(operation, object, where);
  world.last_object = object;
  if (world.options.slices && ++world.running->in_a_row > kSlice + world.slices) {
    ++world.slices;  // of different lengths, or each might end in the same place of a loop
    Fiber* next = nullptr;
    if (Others(&next, 1) != 0) SwitchTo(next);
    world.running->in_a_row = 0;
    world.last_object = object;
    return;
  }
  if (world.straight != 0 || world.used >= world.options.preemptions) return;
  if (IsStatic(object) &&
      std::find(world.changed_statics.begin(), world.changed_statics.end(), object) == world.changed_statics.end()) {
    return;
  }
  Fiber* others[16];
  const size_t count = Others(others, 15);
  const size_t choice = Choose(count + 1, 1);
  if (choice != 0) SwitchTo(others[choice - 1]);
  world.last_object = object;
}

void Saw(uint64_t value) {
  if (g_world == nullptr || g_world->trace.empty()) return;
  Event& event = g_world->trace.back();
  // Others may have made steps since ours was noted.
  if (event.fiber != g_world->running->id) return;
  event.value = value;
  event.has_value = true;
}

void Changed() {
  if (g_world == nullptr) return;
  World& world = *g_world;
  world.idle_rounds = 0;
  for (const auto& fiber : world.fibers) fiber->yielded = false;
  const volatile void* object = world.last_object;
  if (IsStatic(object) &&
      std::find(world.changed_statics.begin(), world.changed_statics.end(), object) == world.changed_statics.end()) {
    world.changed_statics.push_back(object);
    world.begin_anew = true;
  }
}

bool Sleep(const char* what, const volatile void* key, int64_t deadline, const Where& where) {
  if (g_world == nullptr) std::abort();
  World& world = *g_world;
  Trace(what, key, where);
  Fiber& me = *world.running;
  me.state = State::kAsleep;
  me.what = what;
  me.key = key;
  me.deadline = deadline;
  me.asleep_since = ++world.sleeps;
  me.reads_clock = false;
  me.timed_out = false;
  GoElsewhere();
  return !me.timed_out;
}

void Wake(const volatile void* key, int count) {
  if (g_world == nullptr) return;
  for (; count > 0; --count) {
    Fiber* first = nullptr;
    for (const auto& fiber : g_world->fibers) {
      if (fiber->state != State::kAsleep || fiber->key != key) continue;
      if (first == nullptr || fiber->asleep_since < first->asleep_since) first = fiber.get();
    }
    if (first == nullptr) return;
    first->state = State::kReady;
    first->yielded = false;
    g_world->idle_rounds = 0;
  }
}

bool WakeArrives() {
  if (g_world == nullptr || g_world->straight != 0) return true;
  return ++g_world->wakes != g_world->options.lose_wake;
}

void Yield(const Where& where) {
  if (g_world == nullptr) return;
  World& world = *g_world;
  Fiber& me = *world.running;
  Trace("yield", nullptr, where);
  if (me.rush > 0) {
    --me.rush;
    return;
  }
  Fiber* others[16];
  const size_t count = Others(others, 15);
  if (count != 0) {
    // The thread behind us in the round; at the price of a preemption another one, or our patience ends.
    const size_t choice = Choose(count + (me.reads_clock ? 1 : 0), 1);
    if (choice == count) {
      me.rush = kRush;
      world.clock += kLeap;
      return;
    }
    me.yielded = true;
    SwitchTo(others[choice]);
    me.yielded = false;
    return;
  }
  Idle();
  const size_t all = world.fibers.size();
  for (size_t i = 1; i < all; ++i) {
    Fiber& fiber = *world.fibers[(static_cast<size_t>(me.id) + i) % all];
    if (fiber.state != State::kReady) continue;
    me.yielded = true;
    fiber.yielded = false;
    SwitchTo(&fiber);
    me.yielded = false;
    return;
  }
}

int64_t Now() {
  if (g_world == nullptr) return kLeap;
  g_world->running->reads_clock = true;
  g_world->running->rush = 0;
  return g_world->clock += kMicrosecond;
}

int SpinUs() { return g_world != nullptr ? g_world->options.spin_us : 0; }

int Cores() { return g_world != nullptr ? g_world->options.cores : 1; }

int Spawn(std::function<void()> body) {
  World& world = *g_world;
  auto fiber = std::make_unique<Fiber>();
  fiber->id = static_cast<int>(world.fibers.size());
  fiber->body = std::move(body);
  fiber->stack = TakeStack(world);
  fiber->tls = world.main_tls;
  // As interleave_switch leaves it: six registers, then the address to go to. The stack is aligned as after a call.
  auto* top = reinterpret_cast<void**>(fiber->stack + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&FiberMain);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber->sp = top;
  world.fibers.push_back(std::move(fiber));
  return world.fibers.back()->id;
}

void Join(int thread) {
  World& world = *g_world;
  Trace("join", nullptr, Where::current());
  if (world.fibers[static_cast<size_t>(thread)]->state == State::kDone) return;
  world.running->state = State::kJoining;
  world.running->joins = thread;
  GoElsewhere();
}

int Self() { return g_world != nullptr ? g_world->running->id : -1; }

void Fail(const std::string& what, const Where& where) {
  if (g_world == nullptr) std::abort();
  g_world->failed = true;
  g_world->failure = what + "\n  thread " + std::to_string(g_world->running->id) + " at " + where.file_name() + ":" +
                     std::to_string(where.line());
  Leave();
}

}  // namespace interleave
