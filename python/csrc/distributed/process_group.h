// SPDX-License-Identifier: Apache-2.0
//
// ProcessGroupHCCL: the backend "hccl" of torch.distributed, on the C functions of libhccl.so.
//
// An operator runs on the stream of its communicator, which waits for the stream that is current at the call; a Work
// waits in streams, not on the host. So operators are captured like everything else: the stream of the communicator
// joins the capture, and leaves it when the Work has been waited for.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/options.h"
#include "distributed/progress.h"
#include "distributed/watchdog.h"
#include "distributed/work.h"

namespace torch_npu {

class ProcessGroupHCCL final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// Copies the options.
  ProcessGroupHCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   const c10::intrusive_ptr<HcclOptions>& options);
  ~ProcessGroupHCCL() override;

  const std::string getBackendName() const override { return "hccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  const c10::intrusive_ptr<HcclOptions>& options() const noexcept { return options_; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_.load(); }
  void eagerConnectSingleDevice(at::Device device) override;
  void abort() override { Abort("abort of the process group"); }
  void shutdown() override;
  c10d::ErrorType getError() override;

  // Collectives.
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  /// As reduce, into another tensor.
  WorkPointer ReduceInto(at::Tensor& output, at::Tensor& input, const c10d::ReduceOptions& options);
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  /// `splits`: rows of each rank; empty: equal.
  WorkPointer ReduceScatterUneven(at::Tensor& output, at::Tensor& input, const std::vector<int64_t>& splits,
                                  const c10d::ReduceScatterOptions& options);
  WorkPointer AllGatherUneven(at::Tensor& output, at::Tensor& input, const std::vector<int64_t>& splits,
                              const c10d::AllgatherOptions& options);
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  /// `matrix`: [from][to], rows of dimension 0.
  WorkPointer AllToAllVc(at::Tensor& output, at::Tensor& input, const std::vector<std::vector<int64_t>>& matrix,
                         const c10d::AllToAllOptions& options);
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  // From rank to rank.
  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  /// Operators of this thread up to endCoalescing become one Work; null when there were none.
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  // What only this backend has.
  std::string CommunicatorName(int rank, bool create);
  uint64_t CommunicatorHandle(int rank);
  void SetCommunicatorName(const std::string& name);
  /// Of the streams that operators run on; -1: none yet.
  int64_t CollectiveStreamId(c10::DeviceIndex device);
  int64_t TransferStreamId(c10::DeviceIndex device, int peer);
  /// Destroys the communicators; the next operators make new ones.
  void Abort(const std::string& reason);
  void Resume();
  /// Forgets what it has in the store; the next communicator is the first one again.
  void BeginAnew();
  void AddEphemeralTimeout(std::chrono::milliseconds more);
  Watchdog& watchdog() noexcept { return watchdog_; }
  const std::vector<int64_t>& global_ranks() const noexcept { return global_ranks_; }

 private:
  /// One operator of libhccl, and what belongs to it.
  struct Call {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = "";      // for profilers: HcclAllreduce
    const char* function = "";  // for messages: HcclAllReduce
    Tensors inputs{}, outputs{};
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    std::function<HcclResult(HcclComm, aclrtStream)> run{};
    /// With the stream of the communicator current, before and after it.
    std::function<void()> before{}, after{};
    int peer = -1;                 // of a transfer
    c10::DeviceIndex device = -1;  // where there are no tensors
  };

  WorkPointer Submit(Call call);
  /// Notes an operator for the Work of the coalescing that this thread has begun, if it has.
  void NoteCoalesced(const Call& call, const std::shared_ptr<Communicator>& communicator);
  WorkPointer AllReduce(Tensors& tensors, const c10d::ReduceOp& reduction, std::chrono::milliseconds timeout,
                        c10d::OpType type);
  std::shared_ptr<Communicator> CommunicatorOf(c10::DeviceIndex device);
  std::shared_ptr<Communicator> CommunicatorFor(c10::DeviceIndex device, int peer);
  std::shared_ptr<Communicator> Create(c10::DeviceIndex device, const std::string& key, uint32_t rank, uint32_t size,
                                       const std::string& name, const NPUStream& stream);
  /// By the rank table of the environment; null when there is none or it does not serve.
  std::shared_ptr<Communicator> CreateByTable(c10::DeviceIndex device, const std::string& key, const std::string& name,
                                              const NPUStream& stream);
  void DeleteStoreKeys();
  HcclRootInfo ExchangeRoot(const std::string& of_group, uint32_t rank);
  NPUStream NewStream(c10::DeviceIndex device) const;
  NPUStream CollectiveStream(c10::DeviceIndex device) const;
  c10::DeviceIndex DefaultDevice();
  c10::DeviceIndex DeviceOf(const Call& call);
  std::chrono::milliseconds TimeoutOf(std::chrono::milliseconds asked);
  void KeepTensors(const Call& call, const NPUStream& stream, HcclWork& work) const;
  void Finish(const Call& call, const std::shared_ptr<Operation>& operation, HcclWork& work);
  void Note(const std::shared_ptr<Operation>& operation, const Call& call);
  std::vector<std::shared_ptr<Communicator>> AllCommunicators() const;
  void CheckRoot(int64_t root) const;
  /// Of the group, as numbers of the whole program.
  std::vector<int64_t> RanksOfGroup() const;
  c10::intrusive_ptr<HcclWork> MakeWork(const std::shared_ptr<Operation>& operation, const Tensors& outputs) const;
  /// The number of rank `peer` in a communicator that has all ranks, or this one and that one.
  uint32_t PeerIn(HcclComm communicator, int peer) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<HcclOptions> options_;
  const std::vector<int64_t> global_ranks_;
  const uint64_t id_;                         // in this process
  const std::unique_ptr<Progress> progress_;  // null: not asked for
  const bool watchdog_handles_;               // whether operators are looked after
  mutable std::mutex mutex_;                  // of what follows; not held while ranks meet
  std::mutex creation_;                       // ranks meet one communicator at a time
  std::optional<c10::DeviceIndex> device_;
  std::shared_ptr<Communicator> communicator_;
  std::map<int, std::shared_ptr<Communicator>> transfers_;  // by the peer
  uint64_t created_ = 0;                                    // communicators: the next key
  uint64_t rebuilds_ = 0;                                   // how often the group was made anew, on all ranks alike
  std::vector<std::string> keys_;                           // that this rank has set
  std::string own_name_;
  std::chrono::milliseconds ephemeral_{0};
  std::atomic<uint64_t> collectives_{0};
  std::atomic<uint64_t> transfers_count_{0};
  std::atomic<uint64_t> operators_{0};
  struct Coalescing {
    std::shared_ptr<Communicator> communicator;
    Tensors outputs;
    bool is_transfer = false;
  };
  std::map<std::thread::id, Coalescing> coalescing_;
  Watchdog watchdog_;  // last: its thread ends first
};

}  // namespace torch_npu
