// SPDX-License-Identifier: Apache-2.0
//
// What a task does, in words, for all forms of dumps: directions and sizes of copies, values of fills, shapes of
// tensors, what a wait waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/task_info.h"

namespace reprise::observe {

/// "640 B", "4.0 KiB".
std::string ByteText(uint64_t bytes);

/// One copy of a task: from where to where. A task has several when it is a batch.
struct CopyText {
  std::string direction;  ///< "host to device"; "?" for memory that is gone
  uint64_t bytes;
  const void* from;  ///< null: the bytes were taken when the task was captured
  const void* to;
};
std::vector<CopyText> CopiesOf(const ir::Node& node, const ir::TaskInfo& info);

/// "float[16,64]".
std::string TensorText(const ir::TensorInfo& tensor);
/// "0x01", as wide as the value that the fill repeats.
std::string FillText(const ir::TaskInfo& info);

struct TaskText {
  std::string title;                 ///< a name: "MatMul", "copy host to device"
  std::vector<std::string> details;  ///< at most two short lines
  std::vector<std::string> more;     ///< lines for who asks for everything: addresses, arguments' shapes, the stack
};
/// `info` as DescribeFully gives it.
TaskText TextOf(const ir::Node& node, const ir::TaskInfo& info);

/// ir::Describe with tensors.
ir::TaskInfo DescribeFully(const ir::Node& node);

/// Tasks that order others and compute nothing.
bool OnlyOrders(const ir::Node& node);

}  // namespace reprise::observe
