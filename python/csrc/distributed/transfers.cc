// SPDX-License-Identifier: Apache-2.0
//
// ProcessGroupHCCL: operators between pairs of ranks, all to all, and calls that are submitted together.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "device/runtime.h"
#include "distributed/process_group.h"
#include "distributed/tensor_checks.h"

namespace torch_npu {

using c10d::OpType;

// ---- All to all ----

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                              std::vector<int64_t>& output_splits,
                                                              std::vector<int64_t>& input_splits,
                                                              const c10d::AllToAllOptions& options) {
  CheckTwo(output, input);
  const HcclDataType type = HcclTypeOf(input);
  TORCH_CHECK(input.dim() > 0 && output.dim() > 0,
              "tensors of an all_to_all need a dimension to split; a tensor without dimensions has none");
  TORCH_CHECK(input.scalar_type() == output.scalar_type(),
              "Tensors are not equal in size or data type: ", input.scalar_type(), " and ", output.scalar_type());
  const bool is_even = output_splits.empty() && input_splits.empty();
  if (is_even) {
    TORCH_CHECK(input.numel() == output.numel(), "Tensors are not equal in size or data type: ", input.sizes(), " and ",
                output.sizes());
  }
  const auto sent = std::make_shared<const Layout>(LayoutOfRows(input, input_splits, size_));
  const auto received = std::make_shared<const Layout>(LayoutOfRows(output, output_splits, size_));
  return Submit({.type = OpType::ALLTOALL_BASE,
                 .name = "HcclAlltoAll",
                 .function = is_even ? "HcclAlltoAll" : "HcclAlltoAllV",
                 .inputs = {input},
                 .outputs = {output},
                 .timeout = options.timeout,
                 .run = [=](HcclComm comm, aclrtStream stream) {
                   if (is_even) {
                     return HcclAlltoAll(input.data_ptr(), sent->counts[0], type, output.data_ptr(),
                                         received->counts[0], type, comm, stream);
                   }
                   return HcclAlltoAllV(input.data_ptr(), sent->counts.data(), sent->offsets.data(), type,
                                        output.data_ptr(), received->counts.data(), received->offsets.data(), type,
                                        comm, stream);
                 }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::alltoall(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks, "all_to_all needs ", ranks,
              " inputs and outputs, one for each rank, not ", inputs.size(), " and ", outputs.size());
  CheckMany(inputs, "the inputs of an all_to_all");
  CheckMany(outputs, "the outputs of an all_to_all");
  TORCH_CHECK(inputs[0].scalar_type() == outputs[0].scalar_type(),
              "Tensors are not equal in size or data type: ", inputs[0].scalar_type(), " and ",
              outputs[0].scalar_type());
  TORCH_CHECK(inputs[0].device() == outputs[0].device(), "Tensors must be on same NPU device: ", inputs[0].device(),
              " and ", outputs[0].device());
  const HcclDataType type = HcclTypeOf(inputs[0]);
  const auto sent = std::make_shared<const Layout>(LayoutOf(inputs));
  const auto received = std::make_shared<const Layout>(LayoutOf(outputs));
  const auto flat_in = std::make_shared<at::Tensor>();
  const auto flat_out = std::make_shared<at::Tensor>();
  return Submit({.type = OpType::ALLTOALL,
                 .name = "HcclAlltoAll",
                 .function = "HcclAlltoAllV",
                 .inputs = inputs,
                 .outputs = outputs,
                 .timeout = options.timeout,
                 .run =
                     [=](HcclComm comm, aclrtStream stream) {
                       return HcclAlltoAllV(flat_in->data_ptr(), sent->counts.data(), sent->offsets.data(), type,
                                            flat_out->data_ptr(), received->counts.data(), received->offsets.data(),
                                            type, comm, stream);
                     },
                 .before =
                     [=] {
                       *flat_in = FlatCopy(inputs, sent->total);
                       *flat_out = at::empty({received->total}, flat_in->options());
                     },
                 .after = [=] { CopyOut(*flat_out, outputs); }});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::AllToAllVc(at::Tensor& output, at::Tensor& input,
                                                           const std::vector<std::vector<int64_t>>& matrix,
                                                           const c10d::AllToAllOptions& options) {
  CheckTwo(output, input);
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK_VALUE(matrix.size() == ranks, "the matrix of an all_to_all_vc has ", matrix.size(),
                    " rows, the process group ", ranks, " ranks");
  TORCH_CHECK(input.dim() > 0 && output.dim() > 0,
              "tensors of an all_to_all need a dimension to split; a tensor without dimensions has none");
  TORCH_CHECK(input.scalar_type() == output.scalar_type(),
              "Tensors are not equal in size or data type: ", input.scalar_type(), " and ", output.scalar_type());
  const auto own = static_cast<size_t>(rank_);
  int64_t sent = 0;
  int64_t received = 0;
  const int64_t row =
      input.size(0) != 0 ? input.numel() / input.size(0) : (output.size(0) != 0 ? output.numel() / output.size(0) : 1);
  const auto counts = std::make_shared<std::vector<uint64_t>>();
  for (size_t from = 0; from < ranks; ++from) {
    TORCH_CHECK_VALUE(matrix[from].size() == ranks, "row ", from, " of the matrix of an all_to_all_vc has ",
                      matrix[from].size(), " numbers, the process group ", ranks, " ranks");
    for (const int64_t rows : matrix[from]) {
      TORCH_CHECK_VALUE(rows >= 0, "the matrix of an all_to_all_vc has ", rows, "; numbers of rows are 0 or more");
      counts->push_back(static_cast<uint64_t>(rows * row));
    }
    sent += matrix[own].size() == ranks ? matrix[own][from] : 0;
    received += matrix[from][own];
  }
  TORCH_CHECK_VALUE(sent == input.size(0) && received == output.size(0),
                    "the matrix of an all_to_all_vc says that rank ", rank_, " sends ", sent, " rows and receives ",
                    received, "; its tensors have ", input.size(0), " and ", output.size(0));
  const HcclDataType type = HcclTypeOf(input);
  return Submit({.type = OpType::ALLTOALL_BASE,
                 .name = "HcclAlltoAllVC",
                 .function = "HcclAlltoAllVC",
                 .inputs = {input},
                 .outputs = {output},
                 .timeout = options.timeout,
                 .run = [=](HcclComm comm, aclrtStream stream) {
                   return HcclAlltoAllVC(input.data_ptr(), counts->data(), type, output.data_ptr(), type, comm, stream);
                 }});
}

// ---- To one rank ----

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                       const c10d::GatherOptions& options) {
  const at::Tensor input = OnlyOne(inputs);
  CheckRoot(options.rootRank);
  const HcclDataType type = HcclTypeOf(input);
  Tensors parts;
  if (options.rootRank == rank_) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
                "gather needs one output for each of the ", size_, " ranks, not ",
                outputs.empty() ? 0 : outputs[0].size());
    parts = outputs[0];
    CheckMany(parts, "the outputs of a gather");
    TORCH_CHECK(parts[0].scalar_type() == input.scalar_type() && parts[0].device() == input.device(),
                "Tensors must have identical type and device: the input is ", input.scalar_type(), " on ",
                input.device(), ", the outputs are ", parts[0].scalar_type(), " on ", parts[0].device());
    TORCH_CHECK(parts[static_cast<size_t>(rank_)].numel() == input.numel(), "the input of a gather has ", input.numel(),
                " elements, the output for the root ", parts[static_cast<size_t>(rank_)].numel());
  } else {
    TORCH_CHECK(outputs.empty() || outputs[0].empty(), "only the root of a gather has outputs");
  }
  const auto items = std::make_shared<std::vector<HcclSendRecvItem>>();
  if (parts.empty()) {
    items->push_back({HCCL_SEND, input.data_ptr(), CountOf(input), type, static_cast<uint32_t>(options.rootRank)});
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (rank == static_cast<size_t>(rank_)) continue;
    items->push_back({HCCL_RECV, parts[rank].data_ptr(), CountOf(parts[rank]), type, static_cast<uint32_t>(rank)});
  }
  return Submit({.type = OpType::GATHER,
                 .name = "HcclGather",
                 .function = "HcclSend",
                 .inputs = inputs,
                 .outputs = parts,
                 .timeout = options.timeout,
                 .run =
                     [items](HcclComm comm, aclrtStream stream) {
                       HcclResult code = HcclGroupStart();
                       for (HcclSendRecvItem& item : *items) {
                         if (code != HCCL_SUCCESS) break;
                         code = item.sendRecvType == HCCL_SEND
                                    ? HcclSend(item.buf, item.count, item.dataType, item.remoteRank, comm, stream)
                                    : HcclRecv(item.buf, item.count, item.dataType, item.remoteRank, comm, stream);
                       }
                       const HcclResult end = HcclGroupEnd();
                       return code != HCCL_SUCCESS ? code : end;
                     },
                 .after =
                     [=, own = static_cast<size_t>(rank_)] {
                       if (parts.empty()) return;
                       at::Tensor mine = parts[own];
                       if (mine.numel() != 0) mine.copy_(input.view(mine.sizes()), true);
                     }});
}

// ---- From rank to rank ----

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::send(Tensors& tensors, int peer, int /*tag*/) {
  const at::Tensor tensor = OnlyOne(tensors);
  const HcclDataType type = HcclTypeOf(tensor);
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "invalid rank ", peer, " of a process group of ", size_, " ranks");
  return Submit({.type = OpType::SEND,
                 .name = "HcclSend",
                 .function = "HcclSend",
                 .inputs = tensors,
                 .outputs = tensors,
                 .run =
                     [=, this](HcclComm comm, aclrtStream stream) {
                       return HcclSend(tensor.data_ptr(), CountOf(tensor), type, PeerIn(comm, peer), comm, stream);
                     },
                 .peer = peer});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::recv(Tensors& tensors, int peer, int /*tag*/) {
  const at::Tensor tensor = OnlyOne(tensors);
  const HcclDataType type = HcclTypeOf(tensor);
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "invalid rank ", peer, " of a process group of ", size_, " ranks");
  return Submit({.type = OpType::RECV,
                 .name = "HcclRecv",
                 .function = "HcclRecv",
                 .inputs = tensors,
                 .outputs = tensors,
                 .run =
                     [=, this](HcclComm comm, aclrtStream stream) {
                       return HcclRecv(tensor.data_ptr(), CountOf(tensor), type, PeerIn(comm, peer), comm, stream);
                     },
                 .peer = peer});
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK(false, "ProcessGroupHCCL does not support recv from any source; name the rank: recv(tensor, src=...)");
}

// ---- Calls that are submitted together ----

void ProcessGroupHCCL::startCoalescing() {
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!coalescing_.contains(std::this_thread::get_id()),
                "this thread coalesces operators of the group already; end that first");
    coalescing_.emplace(std::this_thread::get_id(), Coalescing{});
  }
  CallGroup::Start();
}

void ProcessGroupHCCL::NoteCoalesced(const Call& call, const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = coalescing_.find(std::this_thread::get_id());
  if (found == coalescing_.end()) return;
  Coalescing& all = found->second;
  if (all.communicator) {
    TORCH_CHECK(all.communicator->device() == communicator->device(),
                "Expecting same device across coalesced P2P operations.");
    TORCH_CHECK(all.communicator == communicator, "Expecting same communicator across coalesced operations.");
  }
  all.communicator = communicator;
  all.is_transfer = call.peer >= 0;
  all.outputs.insert(all.outputs.end(), call.outputs.begin(), call.outputs.end());
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::endCoalescing() {
  Coalescing all;
  {
    const std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    TORCH_CHECK(found != coalescing_.end(), "this thread does not coalesce operators of the group; start that first");
    all = std::move(found->second);
    coalescing_.erase(found);
  }
  if (!all.communicator) {
    CallGroup::End();
    return nullptr;
  }
  const OperationInfo info{
      OpType::COALESCED, "HcclCoalesced", collectives_.load(), all.is_transfer, std::chrono::milliseconds(0), 0, 0};
  const auto operation = std::make_shared<Operation>(all.communicator, info);
  const auto work = MakeWork(operation, all.outputs);
  CallGroup::Add({.submit = [] {},
                  .after =
                      [operation, work] {
                        const DeviceScope scope(operation->communicator()->device());
                        work->MarkSubmitted();
                      },
                  .failed = [operation](const std::exception_ptr& error) { operation->MarkFailed(error); }});
  CallGroup::End();
  return work;
}

}  // namespace torch_npu
