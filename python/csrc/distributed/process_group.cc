// SPDX-License-Identifier: Apache-2.0
//
// ProcessGroupHCCL: its life, its communicators, and how it submits an operator.
#include "distributed/process_group.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "distributed/monitor.h"
#include "distributed/recorder.h"
#include "memory/device_allocator.h"

namespace torch_npu {
namespace {

using std::chrono::milliseconds;

constexpr int kUserWaitSeconds = 1800;  // on top of the time limit of the library
constexpr int kExecSeconds = 1836;      // that of the library, when nobody says another

// Variables of the environment that rule groups; read when the first is made.
struct Environment {
  bool blocks = c10d::getCvarBool({"TORCH_HCCL_BLOCKING_WAIT", "HCCL_BLOCKING_WAIT"}, false);
  bool high_priority = c10d::getCvarBool({"TORCH_HCCL_HIGH_PRIORITY"}, false);
  int handling = c10d::getCvarInt({"TORCH_HCCL_ASYNC_ERROR_HANDLING", "HCCL_ASYNC_ERROR_HANDLING"}, 1);
  int reuse = c10d::getCvarInt({"MULTI_STREAM_MEMORY_REUSE"}, 1);
  int exec_seconds = ExecSeconds();
  bool notes_progress = c10d::getCvarBool({"TORCH_HCCL_DESYNC_DEBUG", "HCCL_DESYNC_DEBUG"}, false);
  std::string rank_table = RankTable();
  int transfer_buffer = c10d::getCvarInt({"P2P_HCCL_BUFFSIZE"}, 20);
  int buffer = c10d::getCvarInt({"HCCL_BUFFSIZE"}, 200);

  static int ExecSeconds() {
    const char* const text = std::getenv("HCCL_EXEC_TIMEOUT");
    return text == nullptr || *text == '\0' ? kExecSeconds : static_cast<int>(std::strtod(text, nullptr) + 0.5);
  }

  // "": none that serves.
  static std::string RankTable() {
    const std::string path = c10d::getCvarString({"RANK_TABLE_FILE"}, "");
    std::error_code error;
    return std::filesystem::is_symlink(path, error) || access(path.c_str(), R_OK) != 0 ? "" : path;
  }
};

const Environment& Settings() {
  static const Environment settings;
  return settings;
}

ErrorHandling HandlingOf(const Environment& settings) {
  if (settings.blocks) return ErrorHandling::kNone;
  TORCH_CHECK(settings.handling >= 0 && settings.handling <= 3, "TORCH_HCCL_ASYNC_ERROR_HANDLING is ",
              settings.handling, ": use 0 (none), 1 (end the process), 2 (clean up), 3 (end it without cleaning up)");
  return static_cast<ErrorHandling>(settings.handling);
}

uint64_t NextGroupId() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
}

c10::intrusive_ptr<HcclOptions> CopyOf(const c10::intrusive_ptr<HcclOptions>& options) {
  return options ? c10::make_intrusive<HcclOptions>(*options) : c10::make_intrusive<HcclOptions>();
}

std::vector<int64_t> GlobalRanks(const HcclOptions& options) {
  return {options.global_ranks_in_group.begin(), options.global_ranks_in_group.end()};
}

std::unique_ptr<Progress> NewProgress(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                      std::vector<int64_t> ranks) {
  return Settings().notes_progress ? std::make_unique<Progress>(store, rank, std::move(ranks)) : nullptr;
}

std::vector<int64_t> NumbersUpTo(int size) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// The communicator of all ranks that was made by a rank table, of which those of other groups are parts.
struct TableWhole {
  std::mutex mutex;
  std::weak_ptr<HcclHandle> handle;
};
TableWhole& WholeOfTable() {
  static auto* const whole = new TableWhole;
  return *whole;
}

// Streams of communicators that share the buffers of one name.
NPUStream SharedStream(const std::string& buffer_name, c10::DeviceIndex device,
                       const std::function<NPUStream()>& make) {
  static auto* const mutex = new std::mutex;
  static auto* const streams = new std::map<std::pair<std::string, c10::DeviceIndex>, NPUStream>;
  const std::lock_guard lock(*mutex);
  const auto key = std::make_pair(buffer_name, device);
  const auto found = streams->find(key);
  if (found != streams->end()) return found->second;
  return streams->emplace(key, make()).first->second;
}

}  // namespace

// ---- Life ----

ProcessGroupHCCL::ProcessGroupHCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   const c10::intrusive_ptr<HcclOptions>& options)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(CopyOf(options)),
      global_ranks_(GlobalRanks(*options_)),
      id_(NextGroupId()),
      progress_(size > 0 && rank >= 0 && rank < size ? NewProgress(store_, rank, RanksOfGroup()) : nullptr),
      watchdog_handles_(HandlingOf(Settings()) != ErrorHandling::kNone),
      watchdog_({HandlingOf(Settings()), options_->group_id,
                 [this] {
                   for (const auto& communicator : AllCommunicators()) communicator->Abort();
                 },
                 progress_ ? std::function<std::string()>([this] { return progress_->Report(); }) : nullptr}) {
  TORCH_CHECK(size > 0 && rank >= 0 && rank < size, "a process group of ", size, " ranks has no rank ", rank);
  TORCH_CHECK(Settings().buffer > 0, "HCCL_BUFFSIZE is ", Settings().buffer, ", it must be at least 1 (MB)");
  TORCH_CHECK(Settings().transfer_buffer >= 0, "P2P_HCCL_BUFFSIZE is ", Settings().transfer_buffer,
              ", it must be 0 (send and receive with the communicator of the group) or more (MB)");
  Monitor::Start(store_, static_cast<int>(RanksOfGroup()[static_cast<size_t>(rank)]), size);
  init();
}

ProcessGroupHCCL::~ProcessGroupHCCL() { shutdown(); }

std::vector<int64_t> ProcessGroupHCCL::RanksOfGroup() const {
  return global_ranks_.empty() ? NumbersUpTo(size_) : global_ranks_;
}

void ProcessGroupHCCL::shutdown() {
  watchdog_.Stop();
  const auto all = AllCommunicators();
  for (const auto& communicator : all) communicator->Settle();
  const ReleaseGil no_gil;
  for (const auto& communicator : all) communicator->Destroy();
}

void ProcessGroupHCCL::Abort(const std::string& reason) {
  LOG(INFO) << "process group " << options_->group_id << " is aborted: " << reason;
  watchdog_.Clear();
  const auto all = AllCommunicators();
  const ReleaseGil no_gil;
  for (const auto& communicator : all) communicator->Abort();
  for (const auto& communicator : all) communicator->Settle();
  for (const auto& communicator : all) communicator->Destroy();
  const std::lock_guard lock(mutex_);
  communicator_ = nullptr;
  transfers_.clear();
}

void ProcessGroupHCCL::Resume() {
  watchdog_.Clear();
  for (const auto& communicator : AllCommunicators()) communicator->Resume();
}

void ProcessGroupHCCL::DeleteStoreKeys() {
  std::vector<std::string> keys;
  {
    const std::lock_guard lock(mutex_);
    keys = std::exchange(keys_, {});
  }
  const ReleaseGil no_gil;
  for (const std::string& key : keys) {
    try {
      (void)store_->deleteKey(key);
    } catch (const std::exception&) {  // a store that cannot, or is gone
    }
  }
}

void ProcessGroupHCCL::BeginAnew() {
  DeleteStoreKeys();
  const std::lock_guard lock(mutex_);
  created_ = 0;
  ++rebuilds_;
}

c10d::ErrorType ProcessGroupHCCL::getError() {
  for (const auto& communicator : AllCommunicators()) {
    const HcclResult code = communicator->error();
    if (code == HCCL_E_TIMEOUT) return c10d::ErrorType::TIMEOUT;
    if (code == HCCL_E_REMOTE) return c10d::ErrorType::REMOTE_ERROR;
    if (code != HCCL_SUCCESS) return c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupHCCL::AddEphemeralTimeout(milliseconds more) {
  const std::lock_guard lock(mutex_);
  ephemeral_ += more;
}

milliseconds ProcessGroupHCCL::TimeoutOf(milliseconds asked) {
  const std::lock_guard lock(mutex_);
  milliseconds limit = asked == c10d::kUnsetTimeout ? options_->timeout : asked;
  if (limit == kBackendDefaultTimeout) {
    if (Settings().exec_seconds == 0) return milliseconds(0);
    limit = std::chrono::seconds(Settings().exec_seconds + kUserWaitSeconds);
  }
  return limit + std::exchange(ephemeral_, milliseconds(0));
}

// ---- Communicators ----

std::vector<std::shared_ptr<Communicator>> ProcessGroupHCCL::AllCommunicators() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Communicator>> all;
  for (const auto& [peer, communicator] : transfers_) all.push_back(communicator);
  if (communicator_) all.push_back(communicator_);
  return all;
}

void ProcessGroupHCCL::eagerConnectSingleDevice(at::Device device) {
  TORCH_CHECK(device.type() == c10::kPrivateUse1 && device.has_index(),
              "a process group of hccl connects npu devices, such as npu:0, not ", device);
  (void)CommunicatorOf(device.index());
}

c10::DeviceIndex ProcessGroupHCCL::DefaultDevice() {
  if (bound_device_id_) return bound_device_id_->index();
  const std::lock_guard lock(mutex_);
  return device_ ? *device_ : CurrentDevice();
}

NPUStream ProcessGroupHCCL::NewStream(c10::DeviceIndex device) const {
  const bool is_high = options_->is_high_priority_stream || Settings().high_priority;
  return StreamFromPool(is_high ? -1 : 0, device);
}

NPUStream ProcessGroupHCCL::CollectiveStream(c10::DeviceIndex device) const {
  const auto found = options_->hccl_config.find("hccl_buffer_name");
  const std::string* const name =
      found == options_->hccl_config.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (name == nullptr || name->empty()) return NewStream(device);
  return SharedStream(*name, device, [&] { return NewStream(device); });
}

HcclRootInfo ProcessGroupHCCL::ExchangeRoot(const std::string& of_group, uint32_t rank) {
  HcclRootInfo root;
  std::string key = of_group;
  {
    const std::lock_guard lock(mutex_);
    // Rank 0 may not have deleted the keys of before yet.
    if (rebuilds_ != 0) key = c10::str("rebuilt ", rebuilds_, ":", key);
  }
  if (rank == 0) {
    CheckHccl(HcclGetRootInfo(&root), "HcclGetRootInfo");
    store_->set(key, std::vector<uint8_t>(root.internal, root.internal + sizeof root.internal));
    const std::lock_guard lock(mutex_);
    keys_.push_back(key);
    return root;
  }
  std::vector<uint8_t> bytes;
  try {
    bytes = store_->get(key);
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "[", rank_,
                     "] is setting up HCCL communicator and retrieving hcclUniqueId from [0] via c10d key-value store "
                     "by key '",
                     key, "', but store->get('", key, "') got error: ", error.what(),
                     ". This may indicate a possible application crash on rank 0 or a network set up issue.");
  }
  TORCH_CHECK_WITH(DistBackendError, bytes.size() == sizeof root.internal, "the store has ", bytes.size(),
                   " bytes under the key '", key, "' of an HCCL communicator, ", sizeof root.internal,
                   " were expected: the store serves something else under that key, too");
  std::memcpy(root.internal, bytes.data(), bytes.size());
  return root;
}

std::shared_ptr<Communicator> ProcessGroupHCCL::Create(c10::DeviceIndex device, const std::string& key, uint32_t rank,
                                                       uint32_t size, const std::string& name,
                                                       const NPUStream& stream) {
  const ReleaseGil no_gil;
  const DeviceScope scope(device);
  const HcclRootInfo root = ExchangeRoot(key, rank);
  HcclCommConfig config = ConfigOf(*options_, name);
  HcclComm handle = nullptr;
  CheckHccl(HcclCommInitRootInfoConfig(size, &root, rank, &config, &handle), "HcclCommInitRootInfoConfig");
  // All have the token. The store may outlive the group, and serve the next one of that name.
  if (rank == 0) DeleteStoreKeys();
  return std::make_shared<Communicator>(std::make_shared<HcclHandle>(handle), stream, rank, size, name);
}

std::shared_ptr<Communicator> ProcessGroupHCCL::CreateByTable(c10::DeviceIndex device, const std::string& key,
                                                              const std::string& name, const NPUStream& stream) {
  const std::string& table = Settings().rank_table;
  if (table.empty()) return nullptr;
  const ReleaseGil no_gil;
  const DeviceScope scope(device);
  const auto own = static_cast<uint32_t>(rank_);
  const auto size = static_cast<uint32_t>(size_);
  HcclCommConfig config = ConfigOf(*options_, name);
  HcclComm made = nullptr;
  HcclResult code;
  std::shared_ptr<HcclHandle> whole;
  if (global_ranks_.empty()) {
    code = HcclCommInitClusterInfoConfig(table.c_str(), own, &config, &made);
  } else {
    {
      const std::lock_guard lock(WholeOfTable().mutex);
      whole = WholeOfTable().handle.lock();
    }
    HcclComm parent = whole ? whole->Get() : nullptr;
    if (parent == nullptr) return nullptr;
    std::vector<uint32_t> ranks(global_ranks_.begin(), global_ranks_.end());
    // All members work out the same.
    const uint64_t part = std::hash<std::string>()(options_->group_id + "/" + key) >> 1;
    code = HcclCreateSubCommConfig(&parent, size, ranks.data(), part, own, &config, &made);
  }
  if (code != HCCL_SUCCESS) {
    LOG(INFO) << "the rank table " << table << " does not serve group " << options_->group_id << ": "
              << HcclGetErrorString(code) << "; its ranks meet through the store";
    return nullptr;
  }
  auto handle = std::make_shared<HcclHandle>(made);
  uint32_t ranks = 0;
  if (HcclGetRankSize(made, &ranks) != HCCL_SUCCESS || ranks != size) {
    LOG(INFO) << "the rank table " << table << " has " << ranks << " ranks, the group " << size
              << "; they meet through the store";
    return nullptr;
  }
  if (!whole) {
    const std::lock_guard lock(WholeOfTable().mutex);
    WholeOfTable().handle = handle;
  }
  return std::make_shared<Communicator>(std::move(handle), stream, own, size, name);
}

std::shared_ptr<Communicator> ProcessGroupHCCL::CommunicatorOf(c10::DeviceIndex device) {
  const auto existing = [&] {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!device_ || *device_ == device, "ProcessGroupHCCL support one device per process only: the group ",
                options_->group_id, " has used npu:", static_cast<int>(*device_),
                ", now npu:", static_cast<int>(device), "; make another group for that device");
    return communicator_;
  };
  if (auto made = existing()) [[likely]]
    return made;
  const ReleaseGil no_gil;
  const std::lock_guard creating(creation_);
  if (auto made = existing()) return made;
  std::string key, name;
  {
    const std::lock_guard lock(mutex_);
    key = std::to_string(created_++);
    name = own_name_.empty() ? "group_name_" + options_->group_id : own_name_;
  }
  const NPUStream stream = CollectiveStream(device);
  auto made = CreateByTable(device, key, name, stream);
  if (!made) made = Create(device, key, static_cast<uint32_t>(rank_), static_cast<uint32_t>(size_), name, stream);
  const std::lock_guard lock(mutex_);
  device_ = device;
  communicator_ = made;
  return made;
}

// Two ranks that only exchange messages have a communicator of their own, so that the other ranks need not come. Once
// the group has one, it does: which of them a pair uses follows from the order of calls, so both ranks agree.
std::shared_ptr<Communicator> ProcessGroupHCCL::CommunicatorFor(c10::DeviceIndex device, int peer) {
  if (Settings().transfer_buffer == 0 || CallGroup::IsOpen()) return CommunicatorOf(device);
  const ReleaseGil no_gil;
  const std::lock_guard creating(creation_);
  std::shared_ptr<Communicator> collective;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!device_ || *device_ == device, "ProcessGroupHCCL support one device per process only: the group ",
                options_->group_id, " has used npu:", static_cast<int>(*device_),
                ", now npu:", static_cast<int>(device), "; make another group for that device");
    const auto found = transfers_.find(peer);
    if (found != transfers_.end()) return found->second;
    collective = communicator_;
  }
  std::shared_ptr<Communicator> made;
  if (collective) {
    made = collective->On(NewStream(device));
  } else {
    const int low = std::min(rank_, peer);
    const std::string key = c10::str(low, ":", std::max(rank_, peer));
    made =
        Create(device, key, rank_ == low ? 0 : 1, 2, "group_name_" + options_->group_id + "_" + key, NewStream(device));
  }
  const std::lock_guard lock(mutex_);
  device_ = device;
  transfers_.emplace(peer, made);
  return made;
}

std::string ProcessGroupHCCL::CommunicatorName(int rank, bool create) {
  TORCH_CHECK(rank >= 0, "Invalid rank ", rank, "; pass a rank of the process group");
  if (!create) {
    const std::lock_guard lock(mutex_);
    return communicator_ ? communicator_->name() : "";
  }
  char name[COMM_NAME_MAX_LENGTH] = {};
  CheckHccl(HcclGetCommName(CommunicatorOf(DefaultDevice())->handle(), name), "HcclGetCommName");
  return name;
}

uint64_t ProcessGroupHCCL::CommunicatorHandle(int rank) {
  TORCH_CHECK(rank >= 0, "Invalid rank ", rank, "; pass a rank of the process group");
  return reinterpret_cast<uint64_t>(CommunicatorOf(DefaultDevice())->handle());
}

void ProcessGroupHCCL::SetCommunicatorName(const std::string& name) {
  TORCH_CHECK(!name.empty() && name.size() < COMM_NAME_MAX_LENGTH, "the name of an HCCL communicator has 1 to ",
              COMM_NAME_MAX_LENGTH - 1, " characters, not ", name.size());
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!communicator_, "the group ", options_->group_id, " has an HCCL communicator already, ",
              communicator_ ? communicator_->name() : "", "; name it before its first operator");
  TORCH_CHECK(own_name_.empty() || own_name_ == name, "the HCCL communicator of group ", options_->group_id,
              " was named ", own_name_, " already; it cannot become ", name);
  own_name_ = name;
}

int64_t ProcessGroupHCCL::CollectiveStreamId(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  return communicator_ && (device < 0 || communicator_->device() == device) ? communicator_->stream().id() : -1;
}

int64_t ProcessGroupHCCL::TransferStreamId(c10::DeviceIndex device, int peer) {
  if (Settings().transfer_buffer == 0) return CollectiveStreamId(device);
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(peer);
  if (found == transfers_.end() || (device >= 0 && found->second->device() != device)) return -1;
  return found->second->stream().id();
}

// ---- Operators ----

c10::DeviceIndex ProcessGroupHCCL::DeviceOf(const Call& call) {
  if (!call.inputs.empty()) return call.inputs[0].device().index();
  if (!call.outputs.empty()) return call.outputs[0].device().index();
  return call.device >= 0 ? call.device : DefaultDevice();
}

void ProcessGroupHCCL::KeepTensors(const Call& call, const NPUStream& stream, HcclWork& work) const {
  constexpr int kStashUntilWait = 2;
  Tensors all = call.inputs;
  all.insert(all.end(), call.outputs.begin(), call.outputs.end());
  if (Settings().reuse == kStashUntilWait && !stream.is_capturing()) {
    work.Stash(std::move(all));
    return;
  }
  for (const at::Tensor& tensor : all) {
    if (tensor.numel() != 0) DeviceMemory().recordStream(tensor.storage().data_ptr(), stream);
  }
}

c10::intrusive_ptr<HcclWork> ProcessGroupHCCL::MakeWork(const std::shared_ptr<Operation>& operation,
                                                        const Tensors& outputs) const {
  const bool is_barrier = operation->info().type == c10d::OpType::BARRIER;
  return c10::make_intrusive<HcclWork>(rank_, operation, outputs, Settings().blocks, is_barrier);
}

uint32_t ProcessGroupHCCL::PeerIn(HcclComm communicator, int peer) const {
  uint32_t size = 0;
  CheckHccl(HcclGetRankSize(communicator, &size), "HcclGetRankSize");
  if (size == static_cast<uint32_t>(size_)) return static_cast<uint32_t>(peer);
  return peer < rank_ ? 0 : 1;
}

void ProcessGroupHCCL::Note(const std::shared_ptr<Operation>& operation, const Call& call) {
  RecordedOperation entry;
  entry.group_id = id_;
  entry.group_name = options_->group_id;
  entry.group_description = getGroupDesc();
  entry.ranks = RanksOfGroup();
  entry.rank = rank_;
  entry.peer = call.peer;
  entry.operator_id = operators_.fetch_add(1) + 1;
  entry.operation = operation;
  Recorder::Get().Add(std::move(entry), call.inputs, call.outputs);
}

void ProcessGroupHCCL::Finish(const Call& call, const std::shared_ptr<Operation>& operation, HcclWork& work) {
  const NPUStream& stream = operation->communicator()->stream();
  const DeviceScope scope(stream.device_index());
  if (call.after) {
    const StreamGuard guard(stream);
    call.after();
  }
  KeepTensors(call, stream, work);
  work.MarkSubmitted();
  if (!operation->is_captured() && watchdog_handles_) watchdog_.Add(operation);
}

ProcessGroupHCCL::WorkPointer ProcessGroupHCCL::Submit(Call asked) {
  const auto call = std::make_shared<const Call>(std::move(asked));
  const c10::DeviceIndex device = DeviceOf(*call);
  const DeviceScope scope(device);
  const bool is_transfer = call->peer >= 0;
  const auto communicator = is_transfer ? CommunicatorFor(device, call->peer) : CommunicatorOf(device);
  NoteCoalesced(*call, communicator);
  const NPUStream& stream = communicator->stream();
  const NPUStream current = CurrentStream(device);
  OperationInfo info{call->type, call->name, 0, is_transfer, TimeoutOf(call->timeout), 0, 0};
  info.number = is_transfer ? ++transfers_count_ : ++collectives_;
  for (const at::Tensor& tensor : call->inputs) info.input_count += tensor.numel();
  for (const at::Tensor& tensor : call->outputs) info.output_count += tensor.numel();
  const auto operation = std::make_shared<Operation>(communicator, info);
  const auto work = MakeWork(operation, call->outputs);
  if (Recorder::Get().capacity() != 0) Note(operation, *call);
  if (progress_ && !is_transfer)
    progress_->Note(info.number,
                    c10::str(call->name, " of ", info.input_count, " elements, ", info.output_count, " results"));
  if (!(current == stream)) {
    c10::Event before(c10::kPrivateUse1);
    before.record(current);
    before.block(stream);
  }
  {
    const StreamGuard guard(stream);
    if (call->before) call->before();
  }
  const auto group = c10::intrusive_ptr<ProcessGroupHCCL>::unsafe_reclaim_from_nonowning(this);
  CallGroup::Add({.submit =
                      [call, communicator] {
                        const NPUStream& of_call = communicator->stream();
                        const DeviceScope of_device(of_call.device_index());
                        const StreamGuard on_stream(of_call);
                        RECORD_FUNCTION(call->name, std::vector<c10::IValue>());
                        CheckHccl(call->run(communicator->handle(), of_call.handle()), call->function);
                      },
                  .after = [group, call, operation, work] { group->Finish(*call, operation, *work); },
                  .failed = [operation](const std::exception_ptr& error) { operation->MarkFailed(error); }});
  return work;
}

}  // namespace torch_npu
