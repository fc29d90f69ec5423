// SPDX-License-Identifier: Apache-2.0
//
// What the types of shim.h tell the explorer, and ask it.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

namespace interleave {

using Where = std::source_location;

/// Comes before every operation on shared state: the place where another thread may be given the turn.
void Point(const char* operation, const volatile void* object, const Where& where);
/// The operation read or wrote this value; for the trace.
void Saw(uint64_t value);
/// The operation changed shared state.
void Changed();
/// Sleeps until a Wake for the key; false when the deadline (in nanoseconds of the clock; 0: none) has passed.
bool Sleep(const char* what, const volatile void* key, int64_t deadline, const Where& where);
/// Wakes up to `count` sleepers, the one that came first before others.
void Wake(const volatile void* key, int count);
/// False when Options::lose_wake says that this wake-up call is lost.
bool WakeArrives();
/// The thread can do nothing useful now.
void Yield(const Where& where);
/// The clock, in nanoseconds.
int64_t Now();
int Cores();
int SpinUs();
/// A thread that runs `body`; its number.
int Spawn(std::function<void()> body);
void Join(int thread);
int Self();
[[noreturn]] void Fail(const std::string& what, const Where& where);

}  // namespace interleave
