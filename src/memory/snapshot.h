// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of device memory as files: for the memory viewer of PyTorch, for programs, and as a picture.
#pragma once

#include <string>

#include "base/status.h"
#include "memory/timeline_picture.h"
#include "reprise/memory_types.h"

namespace reprise::memory {

/// The bytes of a pickle as PyTorch's memory viewer reads it: a dictionary of "segments", "device_traces" (one list for
/// each device, empty without a history), "allocator_settings" and "external_annotations".
std::string SnapshotPickle(const MemorySnapshot& snapshot);

/// The content of SnapshotPickle as JSON; pool ids are arrays of two numbers.
std::string SnapshotJson(const MemorySnapshot& snapshot);

/// By the end of the path: .json; .svg and .html for the timeline; everything else is a pickle. 107009 when the file
/// cannot be written, and then there is none.
Status WriteSnapshot(const MemorySnapshot& snapshot, const std::string& path, const TimelineOptions& options = {});

}  // namespace reprise::memory
