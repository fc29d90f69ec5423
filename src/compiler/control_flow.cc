// SPDX-License-Identifier: Apache-2.0
#include "compiler/control_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler/operands.h"
#include "compiler/type_numbers.h"
#include "kernels/dtype.h"
#include "runtime/stream.h"

namespace reprise::compiler {
namespace {

// Memory for the values of one trip of a loop, used again by the trip after the next: the stream runs trips one after
// another, and each reads only what the trip before it left.
class TripMemory {
 public:
  explicit TripMemory(const AllocateForRun& allocate) : allocate_(allocate) {}

  StatusOr<void*> Allocate(uint64_t bytes) {
    Block* best = nullptr;
    for (Block& block : blocks_) {
      const bool fits = !block.is_used && block.bytes >= bytes;
      if (fits && (best == nullptr || block.bytes < best->bytes)) best = &block;
    }
    if (best == nullptr) {
      // Values that grow with each trip: few blocks, each twice as large as the one before.
      if (is_again_) bytes = std::bit_ceil(bytes);
      REPRISE_ASSIGN_OR_RETURN(void* const data, allocate_(bytes));
      best = &blocks_.emplace_back(Block{data, bytes, false});
    }
    best->is_used = true;
    return best->data;
  }

  // The next trip that uses this memory begins.
  void Begin() {
    is_again_ = !blocks_.empty();
    for (Block& block : blocks_) block.is_used = false;
  }

 private:
  struct Block {
    void* data;
    uint64_t bytes;
    bool is_used;
  };
  const AllocateForRun& allocate_;
  std::vector<Block> blocks_;
  bool is_again_ = false;
};

class Caller {
 public:
  Caller(const Graph& graph, NodeId id, std::span<const RunTensor> inputs, runtime::Stream& stream,
         const CalledGraphs& called, const AllocateForRun& allocate)
      : graph_(graph), node_(graph.at(id)), stream_(stream), called_(called), allocate_(allocate) {
    for (const Input& input : node_.inputs) {
      const auto place = std::find(graph.inputs.begin(), graph.inputs.end(), input.source.node);
      if (place != graph.inputs.end()) {
        arguments_.push_back(inputs[static_cast<size_t>(place - graph.inputs.begin())]);
      } else if (input.source.is_set()) {
        arguments_.push_back(OfConstant(*graph.at(input.source.node).constant));
      }
    }
  }

  StatusOr<std::vector<RunTensor>> Run() {
    if (node_.type == "If" || node_.type == "StatelessIf") {
      REPRISE_RETURN_IF_ERROR(Expect(2));
      REPRISE_ASSIGN_OR_RETURN(const double predicate, Number(arguments_[0]));
      return Call(*node_.graphs[predicate != 0 ? 0 : 1], 1, Behind(1));
    }
    if (node_.type == "Case" || node_.type == "StatelessCase") {
      REPRISE_RETURN_IF_ERROR(Expect(1));
      REPRISE_ASSIGN_OR_RETURN(const double index, Number(arguments_[0]));
      // An index that names no branch takes the last one.
      const size_t last = node_.graphs.size() - 1;
      const size_t branch = index < 0 || index > static_cast<double>(last) ? last : static_cast<size_t>(index);
      return Call(*node_.graphs[branch], 1, Behind(1));
    }
    if (node_.type == "While" || node_.type == "StatelessWhile") return RunWhile();
    if (node_.type == "For") return RunFor();
    REPRISE_RETURN_IF_ERROR(Expect(1));
    return Call(*node_.graphs[0], 0, Behind(0));
  }

 private:
  Status Wrong(std::string what, std::string hint) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): {}", node_.name, node_.type, what))
        .Culprit(fmt::format("graph {}", graph_.name))
        .Hint(std::move(hint));
  }

  Status Expect(size_t graphs) const {
    if (node_.graphs.size() >= graphs) return {};
    return Wrong(fmt::format("calls {} graphs, expected {}", node_.graphs.size(), graphs),
                 "name the graphs in subgraph_name, in the order of the operator's attributes");
  }

  static RunTensor OfConstant(const Constant& constant) {
    RunTensor tensor;
    tensor.data = const_cast<char*>(constant.bytes.data());
    tensor.bytes = constant.bytes.size();
    tensor.dtype = constant.dtype;
    tensor.shape = constant.shape;
    tensor.on_host = true;
    return tensor;
  }

  std::vector<RunTensor> Behind(size_t first) const {
    return {arguments_.begin() + static_cast<ptrdiff_t>(std::min(first, arguments_.size())), arguments_.end()};
  }

  Status Wait() { return stream_.Synchronize(runtime::DeadlineAfterMs(-1)); }

  // A number; of a tensor that is none, whether it has elements.
  StatusOr<double> Number(const RunTensor& tensor) const {
    uint64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
    if (!tensor.shape.empty() && elements != 1) return elements != 0 ? 1.0 : 0.0;
    const auto read = [&tensor](auto value) {
      std::memcpy(&value, tensor.data, sizeof value);
      return static_cast<double>(value);
    };
    switch (tensor.data != nullptr ? static_cast<kernels::DType>(tensor.dtype) : kernels::DType::kUndefined) {
      case kernels::DType::kBool:
      case kernels::DType::kUInt8: return read(uint8_t{});
      case kernels::DType::kInt8: return read(int8_t{});
      case kernels::DType::kInt16: return read(int16_t{});
      case kernels::DType::kInt32: return read(int32_t{});
      case kernels::DType::kInt64: return read(int64_t{});
      case kernels::DType::kFloat: return read(float{});
      case kernels::DType::kDouble: return read(double{});
      default:
        return Wrong(fmt::format("the value that decides is {}", opdef::TypeName(tensor.dtype)),
                     "cast it to bool or int32");
    }
  }

  // `skipped`: inputs of the node that are not among those that the graph's Data nodes count.
  StatusOr<std::vector<RunTensor>> Call(const Graph& callee, size_t skipped, const std::vector<RunTensor>& arguments,
                                        TripMemory* trip = nullptr) {
    Executable* const executable = called_.Find(&callee);
    if (executable == nullptr) return Wrong(fmt::format("the graph {} was not compiled", callee.name), "compile again");
    std::vector<RunTensor> inputs;
    for (size_t i = 0; i < callee.inputs.size(); ++i) {
      const size_t number = CallerInput(callee, i, skipped);
      if (number >= arguments.size()) {
        return Wrong(
            fmt::format("the graph {} takes input {}, the node gives {}", callee.name, number, arguments.size()),
            "give the node as many inputs as the graph has Data nodes");
      }
      inputs.push_back(arguments[number]);
    }
    struct Memory final : OutputAllocator {
      Memory(const AllocateForRun& allocate_with, TripMemory* of_trip) : allocate(allocate_with), trip(of_trip) {}
      void* Allocate(size_t, uint64_t bytes) override {
        StatusOr<void*> block = trip != nullptr ? trip->Allocate(bytes) : allocate(bytes);
        if (block.ok()) return block.value();
        status = std::move(block).status();
        return nullptr;
      }
      const AllocateForRun& allocate;
      TripMemory* const trip;
      Status status;
    } memory(allocate_, trip);
    std::vector<RunTensor> outputs(callee.results.size());
    RunRequest request;
    request.inputs = inputs;
    request.outputs = outputs;
    request.allocator = &memory;
    REPRISE_RETURN_IF_ERROR(executable->Run(stream_, request));
    return outputs;
  }

  // The branch gives what the node gives.
  StatusOr<std::vector<RunTensor>> RunWhile() {
    REPRISE_RETURN_IF_ERROR(Expect(2));
    std::vector<RunTensor> values = arguments_;
    TripMemory decisions(allocate_);
    TripMemory trips[2] = {TripMemory(allocate_), TripMemory(allocate_)};
    for (size_t trip = 0;; ++trip) {
      decisions.Begin();
      REPRISE_ASSIGN_OR_RETURN(const std::vector<RunTensor> condition, Call(*node_.graphs[0], 0, values, &decisions));
      REPRISE_RETURN_IF_ERROR(Wait());
      if (condition.empty()) return Wrong("the condition has no result", "let the first graph give one bool");
      REPRISE_ASSIGN_OR_RETURN(const double goes_on, Number(condition[0]));
      if (goes_on == 0) return values;
      trips[trip % 2].Begin();
      REPRISE_ASSIGN_OR_RETURN(std::vector<RunTensor> next, Call(*node_.graphs[1], 0, values, &trips[trip % 2]));
      if (next.size() != values.size()) {
        return Wrong(fmt::format("the body takes {} values and gives {}", values.size(), next.size()),
                     "let the body give what it takes");
      }
      values = std::move(next);
    }
  }

  StatusOr<std::vector<RunTensor>> RunFor() {
    REPRISE_RETURN_IF_ERROR(Expect(1));
    if (arguments_.size() < 3) return Wrong("has no start, limit and delta", "give them as the first three inputs");
    double bounds[3];
    for (size_t i = 0; i < 3; ++i) {
      REPRISE_ASSIGN_OR_RETURN(bounds[i], Number(arguments_[i]));
    }
    if (bounds[2] == 0) return Wrong("the delta is 0", "give a delta that leads to the limit");
    std::vector<RunTensor> values = Behind(3);
    // One block for all trips: each has ended before the next one begins.
    RunTensor count = arguments_[0];
    count.bytes = count.dtype == kInt64Number ? sizeof(int64_t) : sizeof(int32_t);
    count.on_host = false;
    REPRISE_ASSIGN_OR_RETURN(count.data, allocate_(count.bytes));
    TripMemory trips[2] = {TripMemory(allocate_), TripMemory(allocate_)};
    size_t trip = 0;
    for (double i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2]) {
      std::vector<RunTensor> arguments = values;
      const auto whole = static_cast<int64_t>(i);
      const auto narrow = static_cast<int32_t>(whole);
      std::memcpy(count.data, count.dtype == kInt64Number ? static_cast<const void*>(&whole) : &narrow, count.bytes);
      arguments.insert(arguments.begin(), count);
      TripMemory& memory = trips[trip++ % 2];
      memory.Begin();
      REPRISE_ASSIGN_OR_RETURN(values, Call(*node_.graphs[0], 0, arguments, &memory));
      REPRISE_RETURN_IF_ERROR(Wait());
    }
    return values;
  }

  const Graph& graph_;
  const Node& node_;
  runtime::Stream& stream_;
  const CalledGraphs& called_;
  const AllocateForRun& allocate_;
  std::vector<RunTensor> arguments_;
};

}  // namespace

Status CalledGraphs::Compile(const Graph& graph, const CompileOptions& options) {
  for (const Node& node : graph.nodes) {
    if (node.is_removed) continue;
    for (const std::shared_ptr<Graph>& callee : node.graphs) {
      if (by_graph_.contains(callee.get())) continue;
      REPRISE_ASSIGN_OR_RETURN(by_graph_[callee.get()], Executable::Compile(*callee, options));
    }
  }
  return {};
}

Executable* CalledGraphs::Find(const Graph* graph) const {
  const auto found = by_graph_.find(graph);
  return found == by_graph_.end() ? nullptr : found->second.get();
}

StatusOr<std::vector<RunTensor>> RunCall(const Graph& graph, NodeId node, std::span<const RunTensor> inputs,
                                         runtime::Stream& stream, const CalledGraphs& called,
                                         const AllocateForRun& allocate) {
  return Caller(graph, node, inputs, stream, called, allocate).Run();
}

}  // namespace reprise::compiler
