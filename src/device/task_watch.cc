// SPDX-License-Identifier: Apache-2.0
#include "device/task_watch.h"

#include <atomic>

#include "device/timeline.h"

namespace reprise::device {
namespace {

std::atomic<TaskWatch*> g_watch{nullptr};

}  // namespace

TaskWatch* TaskWatch::Current() noexcept { return g_watch.load(std::memory_order_acquire); }

void TaskWatch::Set(TaskWatch* watch) noexcept {
  g_watch.store(watch, std::memory_order_release);
  Timeline::SetWatched(watch != nullptr);
}

}  // namespace reprise::device
