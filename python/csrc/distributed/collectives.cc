// SPDX-License-Identifier: Apache-2.0
//
// ProcessGroupHCCL: operators of all ranks.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "device/runtime.h"
#include "distributed/process_group.h"
#include "distributed/tensor_checks.h"

namespace torch_npu {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

uint32_t RootOf(int64_t root) { return static_cast<uint32_t>(root); }

// What bool and uint8 are reduced as, where the result goes back to the same tensor.
bool IsReducedAsInt(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

// A reduction into `output`, which may be `input`: what is done before and after the operator of the library.
struct Reduction {
  ReduceOp how;
  HcclReduceOp native;
  at::Tensor input, output;   // of the program
  at::Tensor sent, received;  // what the library gets; made by Before
  int64_t ranks = 1;

  // Runs on the stream of the communicator.
  void Before() {
    sent = input;
    received = output;
    const bool in_place = input.is_same(output);
    if (how.op_ == ReduceOp::PREMUL_SUM) {
      sent = TimesFactor(input, how);
      if (in_place) received = sent;
    } else if (in_place && IsReducedAsInt(input)) {
      sent = received = input.to(at::kInt);
    }
  }

  void After() {
    if (how.op_ == ReduceOp::AVG && received.numel() != 0) DivideBy(received, ranks);
    if (!received.is_same(output)) output.copy_(received, true);
  }
};

std::shared_ptr<Reduction> MakeReduction(const ReduceOp& how, const at::Tensor& input, const at::Tensor& output,
                                         int64_t ranks, const char* what) {
  auto reduction = std::make_shared<Reduction>();
  reduction->how = how;
  reduction->native = HcclReductionOf(how, input, what);
  // Bits of bool become integers, whose sum is an "or" when it goes back.
  if (how.op_ == ReduceOp::SUM && input.is_same(output) && IsReducedAsInt(input)) reduction->native = HCCL_REDUCE_SUM;
  reduction->input = input;
  reduction->output = output;
  reduction->ranks = ranks;
  return reduction;
}

}  // namespace

void ProcessGroupHCCL::CheckRoot(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "invalid root rank ", root, " of a process group of ", size_, " ranks");
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = OnlyOne(tensors);
  CheckRoot(options.rootRank);
  const HcclDataType type = HcclTypeOf(tensor);
  return Submit({.type = OpType::BROADCAST,
                 .name = "HcclBroadcast",
                 .function = "HcclBroadcast",
                 .inputs = tensors,
                 .outputs = tensors,
                 .timeout = options.timeout,
                 .run = [tensor, type, root = options.rootRank](HcclComm comm, aclrtStream stream) {
                   return HcclBroadcast(tensor.data_ptr(), CountOf(tensor), type, RootOf(root), comm, stream);
                 }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::AllReduce(Tensors& tensors, const ReduceOp& how,
                                                          std::chrono::milliseconds timeout, OpType type) {
  auto parts = std::make_shared<std::vector<std::shared_ptr<Reduction>>>();
  for (const at::Tensor& tensor : tensors) parts->push_back(MakeReduction(how, tensor, tensor, size_, "allreduce"));
  return Submit({.type = type,
                 .name = "HcclAllreduce",
                 .function = "HcclAllReduce",
                 .inputs = tensors,
                 .outputs = tensors,
                 .timeout = timeout,
                 .run =
                     [parts](HcclComm comm, aclrtStream stream) {
                       for (const auto& part : *parts) {
                         const HcclResult code =
                             HcclAllReduce(part->sent.data_ptr(), part->received.data_ptr(), CountOf(part->sent),
                                           HcclTypeOf(part->sent), part->native, comm, stream);
                         if (code != HCCL_SUCCESS) return code;
                       }
                       return HCCL_SUCCESS;
                     },
                 .before =
                     [parts] {
                       for (const auto& part : *parts) part->Before();
                     },
                 .after =
                     [parts] {
                       for (const auto& part : *parts) part->After();
                     }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  (void)OnlyOne(tensors);
  TORCH_CHECK(!options.sparseIndices, "ProcessGroupHCCL does not support allreduce of sparse tensors; use to_dense()");
  return AllReduce(tensors, options.reduceOp, options.timeout, OpType::ALLREDUCE);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::allreduce_coalesced(Tensors& tensors,
                                                                    const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty");
  for (const at::Tensor& tensor : tensors) {
    CheckOne(tensor);
    TORCH_CHECK(tensor.device() == tensors[0].device(), "Tensors must be on same NPU device: ", tensors[0].device(),
                " and ", tensor.device());
  }
  return AllReduce(tensors, options.reduceOp, options.timeout, OpType::ALLREDUCE_COALESCED);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = OnlyOne(tensors);
  return ReduceInto(tensor, tensor, options);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::ReduceInto(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceOptions& options) {
  CheckOne(input);
  CheckOne(output);
  CheckRoot(options.rootRank);
  TORCH_CHECK(input.numel() == output.numel() && input.scalar_type() == output.scalar_type(),
              "output tensor must have the same numel and type as input tensor: ", output.numel(), " of ",
              output.scalar_type(), " and ", input.numel(), " of ", input.scalar_type());
  const auto part = MakeReduction(options.reduceOp, input, output, size_, "reduce");
  const bool is_root = options.rootRank == rank_;
  return Submit({.type = OpType::REDUCE,
                 .name = "HcclReduce",
                 .function = "HcclReduce",
                 .inputs = {input},
                 .outputs = {output},
                 .timeout = options.timeout,
                 .run =
                     [part, root = options.rootRank](HcclComm comm, aclrtStream stream) {
                       return HcclReduce(part->sent.data_ptr(), part->received.data_ptr(), CountOf(part->sent),
                                         HcclTypeOf(part->sent), part->native, RootOf(root), comm, stream);
                     },
                 .before = [part] { part->Before(); },
                 .after =
                     [part, is_root] {
                       if (is_root) part->After();
                     }});
}

// ---- Gathering ----

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  const at::Tensor input = OnlyOne(inputs);
  TORCH_CHECK(outputs.size() == 1,
              "Tensor list mustn't be larger than the number of available NPUs: allgather takes "
              "one list of outputs, not ",
              outputs.size());
  const Tensors& parts = outputs[0];
  TORCH_CHECK(parts.size() == static_cast<size_t>(size_), "allgather needs one output for each of the ", size_,
              " ranks, not ", parts.size());
  CheckMany(parts, "the outputs of an allgather");
  TORCH_CHECK(parts[0].scalar_type() == input.scalar_type() && parts[0].device() == input.device(),
              "Tensors must have identical type and device: the input is ", input.scalar_type(), " on ", input.device(),
              ", the outputs are ", parts[0].scalar_type(), " on ", parts[0].device());
  TORCH_CHECK(parts[static_cast<size_t>(rank_)].numel() == input.numel(), "the input of an allgather has ",
              input.numel(), " elements, the output for this rank ", parts[static_cast<size_t>(rank_)].numel());
  const HcclDataType type = HcclTypeOf(input);
  const auto layout = std::make_shared<const Layout>(LayoutOf(parts));
  const bool is_even = HaveSameCounts(parts);
  const auto flat = std::make_shared<at::Tensor>();
  return Submit({.type = OpType::ALLGATHER,
                 .name = "HcclAllgather",
                 .function = is_even ? "HcclAllGather" : "HcclAllGatherV",
                 .inputs = inputs,
                 .outputs = parts,
                 .timeout = options.timeout,
                 .run =
                     [=](HcclComm comm, aclrtStream stream) {
                       if (is_even) {
                         return HcclAllGather(input.data_ptr(), flat->data_ptr(), CountOf(input), type, comm, stream);
                       }
                       return HcclAllGatherV(input.data_ptr(), CountOf(input), flat->data_ptr(), layout->counts.data(),
                                             layout->offsets.data(), type, comm, stream);
                     },
                 .before = [=] { *flat = at::empty({layout->total}, input.options().memory_format(std::nullopt)); },
                 .after = [=] { CopyOut(*flat, parts); }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                                const c10d::AllgatherOptions& options) {
  TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(),
              "Tensor list must be nonempty, with an output for "
              "each input: ",
              inputs.size(), " inputs, ", outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckOne(inputs[i]);
    CheckOne(outputs[i]);
    (void)HcclTypeOf(inputs[i]);
    TORCH_CHECK(inputs[i].scalar_type() == outputs[i].scalar_type(),
                "output tensor must have the same type as input tensor: ", outputs[i].scalar_type(), " and ",
                inputs[i].scalar_type());
    TORCH_CHECK(inputs[i].numel() * size_ == outputs[i].numel(),
                "output tensor size must be equal to world_size times input tensor size: ", outputs[i].numel(), " and ",
                size_, " times ", inputs[i].numel());
    TORCH_CHECK(inputs[i].device() == outputs[i].device() && inputs[i].device() == inputs[0].device(),
                "Tensors must be on same NPU device: ", inputs[i].device(), " and ", outputs[i].device());
  }
  return Submit({.type = outputs.size() == 1 ? OpType::_ALLGATHER_BASE : OpType::COALESCED,
                 .name = "HcclAllgatherBase",
                 .function = "HcclAllGather",
                 .inputs = inputs,
                 .outputs = outputs,
                 .timeout = options.timeout,
                 .run = [inputs, outputs](HcclComm comm, aclrtStream stream) {
                   for (size_t i = 0; i < inputs.size(); ++i) {
                     const HcclResult code = HcclAllGather(inputs[i].data_ptr(), outputs[i].data_ptr(),
                                                           CountOf(inputs[i]), HcclTypeOf(inputs[i]), comm, stream);
                     if (code != HCCL_SUCCESS) return code;
                   }
                   return HCCL_SUCCESS;
                 }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::AllGatherUneven(at::Tensor& output, at::Tensor& input,
                                                                const std::vector<int64_t>& splits,
                                                                const c10d::AllgatherOptions& options) {
  CheckTwo(output, input);
  TORCH_CHECK(input.scalar_type() == output.scalar_type(),
              "output tensor must have the same type as input tensor: ", output.scalar_type(), " and ",
              input.scalar_type());
  const HcclDataType type = HcclTypeOf(input);
  const auto layout = std::make_shared<const Layout>(LayoutOfRows(output, splits, size_));
  TORCH_CHECK(layout->counts[static_cast<size_t>(rank_)] == CountOf(input), "the splits give this rank ",
              layout->counts[static_cast<size_t>(rank_)], " elements of the output, its input has ", input.numel());
  return Submit({.type = OpType::_ALLGATHER_BASE,
                 .name = "HcclAllgatherUneven",
                 .function = "HcclAllGatherV",
                 .inputs = {input},
                 .outputs = {output},
                 .timeout = options.timeout,
                 .run = [=](HcclComm comm, aclrtStream stream) {
                   return HcclAllGatherV(input.data_ptr(), CountOf(input), output.data_ptr(), layout->counts.data(),
                                         layout->offsets.data(), type, comm, stream);
                 }});
}

// ---- Reducing and scattering ----

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = OnlyOne(outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
              "reduce_scatter needs one input for each of the ", size_, " ranks, not ",
              inputs.empty() ? 0 : inputs[0].size());
  const Tensors parts = inputs[0];
  CheckMany(parts, "the inputs of a reduce_scatter");
  TORCH_CHECK(parts[0].device() == output.device(),
              "tensors of a reduce_scatter must all reside on the same device, "
              "not on ",
              parts[0].device(), " and ", output.device());
  TORCH_CHECK(parts[0].scalar_type() == output.scalar_type(),
              "input tensor must be the same type as the output tensor.");
  TORCH_CHECK(parts[static_cast<size_t>(rank_)].numel() == output.numel(), "the input for this rank has ",
              parts[static_cast<size_t>(rank_)].numel(), " elements, the output of the reduce_scatter ",
              output.numel());
  const HcclReduceOp native = HcclReductionOf(options.reduceOp, output, "reduce_scatter");
  const HcclDataType type = HcclTypeOf(output);
  const auto layout = std::make_shared<const Layout>(LayoutOf(parts));
  const bool is_even = HaveSameCounts(parts);
  const auto flat = std::make_shared<at::Tensor>();
  return Submit({.type = OpType::REDUCE_SCATTER,
                 .name = "HcclReduceScatter",
                 .function = is_even ? "HcclReduceScatter" : "HcclReduceScatterV",
                 .inputs = parts,
                 .outputs = outputs,
                 .timeout = options.timeout,
                 .run =
                     [=](HcclComm comm, aclrtStream stream) {
                       if (is_even) {
                         return HcclReduceScatter(flat->data_ptr(), output.data_ptr(), CountOf(output), type, native,
                                                  comm, stream);
                       }
                       return HcclReduceScatterV(flat->data_ptr(), layout->counts.data(), layout->offsets.data(),
                                                 output.data_ptr(), CountOf(output), type, native, comm, stream);
                     },
                 .before =
                     [=, how = options.reduceOp] {
                       *flat = FlatCopy(parts, layout->total);
                       if (how.op_ == ReduceOp::PREMUL_SUM) *flat = TimesFactor(*flat, how);
                     },
                 .after =
                     [=, ranks = size_, how = options.reduceOp]() mutable {
                       if (how.op_ == ReduceOp::AVG && output.numel() != 0) {
                         at::Tensor result = output;
                         DivideBy(result, ranks);
                       }
                     }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                     const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(),
              "Tensor list must be nonempty, with an output for "
              "each input: ",
              inputs.size(), " inputs, ", outputs.size(), " outputs");
  auto parts = std::make_shared<std::vector<std::shared_ptr<Reduction>>>();
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckOne(inputs[i]);
    CheckOne(outputs[i]);
    TORCH_CHECK(inputs[i].device() == outputs[i].device(),
                "tensors of a reduce_scatter must all reside on the same device, not on ", inputs[i].device(), " and ",
                outputs[i].device());
    TORCH_CHECK(inputs[i].scalar_type() == outputs[i].scalar_type(),
                "input tensor must be the same type as the output tensor.");
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_,
                "input tensor must be the same size as output size times world size: ", inputs[i].numel(), " and ",
                outputs[i].numel(), " times ", size_);
    parts->push_back(MakeReduction(options.reduceOp, inputs[i], outputs[i], size_, "reduce_scatter"));
  }
  return Submit({.type = outputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                 .name = "HcclReduceScatterBase",
                 .function = "HcclReduceScatter",
                 .inputs = inputs,
                 .outputs = outputs,
                 .timeout = options.timeout,
                 .run =
                     [parts](HcclComm comm, aclrtStream stream) {
                       for (const auto& part : *parts) {
                         const HcclResult code = HcclReduceScatter(part->sent.data_ptr(), part->received.data_ptr(),
                                                                   CountOf(part->received), HcclTypeOf(part->sent),
                                                                   part->native, comm, stream);
                         if (code != HCCL_SUCCESS) return code;
                       }
                       return HCCL_SUCCESS;
                     },
                 .before =
                     [parts] {
                       for (const auto& part : *parts) part->Before();
                     },
                 .after =
                     [parts] {
                       for (const auto& part : *parts) part->After();
                     }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::ReduceScatterUneven(at::Tensor& output, at::Tensor& input,
                                                                    const std::vector<int64_t>& splits,
                                                                    const c10d::ReduceScatterOptions& options) {
  CheckTwo(output, input);
  TORCH_CHECK(input.scalar_type() == output.scalar_type(), "input tensor must be the same type as the output tensor.");
  const auto layout = std::make_shared<const Layout>(LayoutOfRows(input, splits, size_));
  TORCH_CHECK(layout->counts[static_cast<size_t>(rank_)] == CountOf(output), "the splits give this rank ",
              layout->counts[static_cast<size_t>(rank_)], " elements of the input, its output has ", output.numel());
  const auto part = MakeReduction(options.reduceOp, input, output, size_, "reduce_scatter");
  return Submit({.type = OpType::_REDUCE_SCATTER_BASE,
                 .name = "HcclReduceScatterUneven",
                 .function = "HcclReduceScatterV",
                 .inputs = {input},
                 .outputs = {output},
                 .timeout = options.timeout,
                 .run =
                     [=](HcclComm comm, aclrtStream stream) {
                       return HcclReduceScatterV(part->sent.data_ptr(), layout->counts.data(), layout->offsets.data(),
                                                 part->received.data_ptr(), CountOf(part->received),
                                                 HcclTypeOf(part->sent), part->native, comm, stream);
                     },
                 .before = [part] { part->Before(); },
                 .after = [part] { part->After(); }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                        const c10d::ScatterOptions& options) {
  const at::Tensor output = OnlyOne(outputs);
  CheckRoot(options.rootRank);
  const HcclDataType type = HcclTypeOf(output);
  Tensors parts;
  if (options.rootRank == rank_) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
                "scatter needs one input for each of the ", size_, " ranks, not ",
                inputs.empty() ? 0 : inputs[0].size());
    parts = inputs[0];
    CheckMany(parts, "the inputs of a scatter");
    TORCH_CHECK(HaveSameCounts(parts) && parts[0].numel() == output.numel(),
                "Tensors must have identical size: all inputs of a scatter are of the size of the output, ",
                output.sizes());
    TORCH_CHECK(parts[0].scalar_type() == output.scalar_type(),
                "Tensors must have identical type: ", parts[0].scalar_type(), " and ", output.scalar_type());
  } else {
    TORCH_CHECK(inputs.empty() || inputs[0].empty(), "only the root of a scatter has inputs");
  }
  const auto flat = std::make_shared<at::Tensor>();
  Tensors all_inputs = parts.empty() ? outputs : parts;
  return Submit({.type = OpType::SCATTER,
                 .name = "HcclScatter",
                 .function = "HcclScatter",
                 .inputs = std::move(all_inputs),
                 .outputs = outputs,
                 .timeout = options.timeout,
                 .run =
                     [=, root = options.rootRank](HcclComm comm, aclrtStream stream) {
                       void* const sent = flat->defined() ? flat->data_ptr() : nullptr;
                       return HcclScatter(sent, output.data_ptr(), CountOf(output), type, RootOf(root), comm, stream);
                     },
                 .before =
                     [=] {
                       if (!parts.empty()) *flat = FlatCopy(parts, LayoutOf(parts).total);
                     }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::barrier(const c10d::BarrierOptions& options) {
  // The Work of a barrier has no tensors; the device is that of the group, else the one that is asked for.
  c10::DeviceIndex device = DefaultDevice();
  if (!options.device_ids.empty()) {
    TORCH_CHECK(options.device_ids.size() == 1,
                "ProcessGroupHCCL support one device per process only: a barrier of devices ", options.device_ids);
    device = static_cast<c10::DeviceIndex>(options.device_ids[0]);
  }
  const DeviceScope scope(device);
  return Submit({.type = OpType::BARRIER,
                 .name = "HcclBarrier",
                 .function = "HcclBarrier",
                 .timeout = options.timeout,
                 .run = [](HcclComm comm, aclrtStream stream) { return HcclBarrier(comm, stream); },
                 .device = device});
}

}  // namespace torch_npu
