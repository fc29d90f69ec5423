// SPDX-License-Identifier: Apache-2.0
//
// What dumps, pictures and messages show of a task. Nothing here decides how a task runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/operand.h"

namespace reprise::ir {

struct Node;
struct TaskType;

/// Byte range that a task reads or writes.
struct AccessRange {
  const void* begin;
  uint64_t bytes;
  bool is_write;
};

/// A tensor that a task, or the operator call that it belongs to, reads or writes.
struct TensorInfo {
  std::string name;            ///< of the operator's parameter, "tensors[2]"; may be empty
  const void* data = nullptr;  ///< the first element
  int32_t dtype = -1;          ///< aclDataType
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< in elements; 0 along dims that repeat
  bool is_read = false;
  bool is_write = false;
  int32_t slot = -1;  ///< means something to whoever made it
  /// Sets sizes and strides to those that the last run has found; empty: they are known.
  std::function<void(TensorInfo&)> find;
};

/// A call of an operator, which may be several kernels.
struct OperatorInfo {
  std::string type;                 ///< "Add"
  std::string name;                 ///< "aclnnAdd"
  std::vector<TensorInfo> tensors;  ///< in the order of the operator's parameters
};

/// A graph that a conditional task may run.
struct BodyInfo {
  const void* model;  ///< model::Model; lives as long as the graph that the task is in
  std::string when;   ///< what must hold for it to run: "value != 0"
};

/// What dumps and pictures show of a task, and messages, which name its type with SpokenName.
struct TaskInfo {
  bool names_only = false;          // wish of the caller: arguments and ranges may be left out
  bool wants_shapes = false;        // another one, beside names_only: `shapes`
  bool wants_tensors = false;       // another one: `tensors` and `call`
  std::string name;                 // kernel or operator name; empty: the type's name
  std::string waits_for;            // of a parked task: what is not said below; only for messages
  const char* type_name = nullptr;  // overrides TaskType::name where one type serves several (kernels)
  int64_t event_id = -1;
  uint64_t address = 0;  // value tasks: the cell,
  uint64_t value = 0;    //   the value written or compared with,
  uint32_t compare = 0;  //   and the comparison
  int64_t notify_id = -1;
  int64_t active_stream_id = -1;  // stream activation
  uint32_t num_blocks = 0;        // 0: not a kernel
  uint32_t mix_ration = 0;
  uint32_t schem_mode = 0;
  uint32_t dynamic_ubuf = 0;  // further launch attributes
  uint32_t data_dump = 0;
  uint32_t timeout_s = 0;
  uint64_t timeout_us = 0;
  void* function = nullptr;  // handle of a loaded kernel
  const void* args_address = nullptr;
  std::vector<uint64_t> args;  // argument block in 64-bit words
  uint32_t args_bytes = 0;
  std::vector<AccessRange> ranges;           // filled from TaskType::operands; empty for opaque tasks
  std::vector<Operand> attached;             // those of `ranges` that the caller of the launch told, of foreign code
  uint64_t rows = 0;                         // copies of rows: how many,
  uint64_t row_bytes = 0;                    //   and the bytes of each; ranges hold what lies between rows, too
  uint32_t fill_bytes = 0;                   // of the value that a fill repeats; 0: not a fill,
  uint64_t fill_value = 0;                   //   and that value
  const char* condition = "";                // conditional tasks: IF, WHILE or SWITCH,
  const void* cell = nullptr;                //   the value that decides,
  std::vector<BodyInfo> bodies;              //   and what it chooses from
  std::vector<std::string> stack;            // of the launch: "file:line (function)", innermost first; may be empty
  std::string shapes;                        // of the operator call, in words; empty: not known
  std::vector<TensorInfo> tensors;           // as the kernel walks them; empty where only ranges are known, or nothing
  std::shared_ptr<const OperatorInfo> call;  // null unless it was planned while somebody wanted to see tensors
  bool call_begins = false;                  // whether the task is the first kernel of that call,
  bool call_ends = false;                    //   the last
};

/// What a dump shows of the node; fills name and type name from the type where the payload says nothing.
TaskInfo Describe(const Node& node);
/// Adds to `info` what the type tells of the payload, its operands as ranges unless only names are wanted.
void Describe(const TaskType& type, const void* payload, TaskInfo& info);

/// The type's name for messages: that of dumps, except that a memset is told from a copy.
std::string SpokenName(const TaskType& type);
/// The name of the kernel, or of the type.
std::string SpokenName(const Node& node);

/// "NOTIFY_WAIT of notify 4", "MEM_WAIT_VALUE at 0x… for == 3 (it holds 1)": a task that waits.
std::string DescribeWaiting(const TaskType& type, const void* payload);

}  // namespace reprise::ir
