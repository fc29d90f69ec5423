// SPDX-License-Identifier: Apache-2.0
//
// Data dump: what operators read and write, as files, taken right before and right behind their runs. For each
//
//     <folder>/<time>/<device>/                                   operators that are called one by one
//     <folder>/<time>/<device>/<model name>/<model id>/<index>/   those of the index-th execution of a graph
//         {type}.{name}.{task}.{stream}.{time}                    a description, JSON
//         {type}.{name}.{task}.{stream}.{time}.input.0.npy        its tensors, where their types are known or bytes
//         {type}.{name}.{task}.{stream}.{time}.csv                instead of both: numbers about them
//
// Where the program takes dumps in pieces, these are the names of the pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/task_watch.h"
#include "ir/task.h"
#include "ir/task_info.h"
#include "runtime/stream.h"
#include "runtime/tensor_file.h"

namespace reprise::runtime {

struct DataDumpOptions {
  std::string folder;
  bool inputs = false;
  bool outputs = true;
  bool statistics = false;        ///< numbers instead of elements
  std::set<std::string> columns;  ///< of them, as dump_stats names them; empty: all
  bool operators = true;          ///< a set of files for each call of an operator
  bool kernels = true;            ///< and for each kernel of those that are several
  bool single = true;             ///< operators outside of graphs
  bool graphs = true;
  struct Layers {
    std::string model;                ///< empty: any
    std::vector<std::string> layers;  ///< types or names of operators; empty: all
  };
  std::vector<Layers> list;                          ///< of graphs; empty: all
  std::vector<std::pair<uint64_t, uint64_t>> steps;  ///< executions of a graph, from, to; empty: all
  struct Without {
    std::string name;
    std::set<std::string> positions;  ///< "input0", "output1"; empty: the whole operator
  };
  std::vector<Without> without_types;
  std::vector<Without> without_names;
  /// If not empty: only the outputs of these operators are written, after each run of an operator that `list` names.
  std::vector<std::string> watched;
};

/// Threads: thread-safe.
class DataDump final : public device::TaskWatch {
 public:
  static DataDump& Get();

  /// How a file is written: path, and a function that hands its bytes over and returns false when they were refused.
  using WriteFile = std::function<Status(const std::string& path, const std::function<bool(const TakeBytes&)>& fill)>;

  /// Starts a dump and ends an earlier one, without reporting its failures. 100003 when the folder cannot be used.
  Status Start(DataDumpOptions options, WriteFile write);
  /// Ends the dump; 100004 when something could not be written. Succeeds when there is no dump.
  Status Stop();
  bool on() const { return Now() != nullptr; }

  /// Queues a task that writes the tensors of an operator of the program's own. Does nothing unless data is dumped.
  Status SubmitTensors(Stream& stream, ir::OperatorInfo operation);

  uint32_t BeginGraph(uint32_t model_id, const std::string& name) noexcept override;
  void* Begin(const device::RunContext& context, const ir::TaskType& type, const void* payload,
              uint32_t graph) noexcept override;
  void End(void* run, bool failed) noexcept override;
  void Drop(void* run) noexcept override;

 private:
  class Session;
  class Record;
  struct Run;

  DataDump() = default;
  std::shared_ptr<Session> Now() const {
    MutexLock lock(mutex_);
    return session_;
  }

  mutable Mutex mutex_;
  std::shared_ptr<Session> session_ REPRISE_GUARDED_BY(mutex_);
};

/// The name as a part of a file name: characters that separate names or folders become underscores, as in files of the
/// toolkit.
std::string InFileName(std::string_view name);

}  // namespace reprise::runtime
