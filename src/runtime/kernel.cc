// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <system_error>

#include "base/fault.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "ir/task_info.h"
#include "runtime/dump.h"
#include "runtime/exception.h"
#include "runtime/kernel_image.h"
#include "runtime/report.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

struct KeyRegistry {
  Mutex mutex;
  std::map<std::string, const RepriseKernelTable*, std::less<>> tables REPRISE_GUARDED_BY(mutex);
};

KeyRegistry& Keys() {
  static auto* const keys = new KeyRegistry;
  return *keys;
}

const RepriseKernelTable* FindKey(std::string_view key) {
  KeyRegistry& keys = Keys();
  MutexLock lock(keys.mutex);
  const auto it = keys.tables.find(key);
  return it != keys.tables.end() ? it->second : nullptr;
}

Status CheckTable(const RepriseKernelTable* table, const std::string& source) {
  if (table == nullptr)
    return Error(kInvalidValue, fmt::format("the kernel table of {} is null", source))
        .Hint("pass the table of the kernels");
  if (table->abi_version != REPRISE_KERNEL_ABI_VERSION) {
    return Error(kInvalidValue, fmt::format("the kernel table of {} has layout version {}, this runtime reads {}",
                                            source, table->abi_version, REPRISE_KERNEL_ABI_VERSION))
        .Hint("compile the kernels against the reprise/kernel.h of this installation");
  }
  for (uint32_t i = 0; i < table->kernel_count; ++i) {
    const RepriseKernelDesc& desc = table->kernels[i];
    if (desc.name == nullptr || desc.fn == nullptr) {
      return Error(kInvalidValue,
                   fmt::format("kernel {} of {} has no {}", i, source, desc.name == nullptr ? "name" : "function"))
          .Hint("define kernels with REPRISE_KERNEL, which fills both in");
    }
    for (uint32_t j = 0; j < i; ++j) {
      if (std::strcmp(table->kernels[j].name, desc.name) == 0) {
        return Error(kKernelDuplicate, fmt::format("{} has two kernels named {}", source, desc.name))
            .Hint("give each kernel of a table a name of its own");
      }
    }
  }
  return {};
}

bool IsElf(std::string_view bytes) {
  return bytes.substr(0, 4) ==
         "\x7f"
         "ELF";
}

bool StartsAsElf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return IsElf({magic, sizeof magic});
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes;
  for (char chunk[1 << 16]; in.read(chunk, sizeof chunk), in.gcount() > 0;) {
    bytes.append(chunk, static_cast<size_t>(in.gcount()));
  }
  return bytes;
}

const char* TypeName(uint32_t kind) {
  switch (kind) {
    case REPRISE_KERNEL_VECTOR: return "KERNEL_AIVEC";
    case REPRISE_KERNEL_MIX: return "KERNEL_MIX_AIC";
    case REPRISE_KERNEL_AICPU: return "KERNEL_AICPU";
    default: return "KERNEL_AICORE";
  }
}

enum class ArgsKind : uint8_t { kInline, kHeap, kDevice };

// A launch as its parts.
struct KernelLaunch {
  KernelFunction* function;
  const void* args;  // kHeap, kDevice; else where they are copied from
  uint32_t args_bytes;
  uint32_t blocks;
  LaunchAttributes attributes;
  ArgsKind args_kind;
  const std::vector<ir::Operand>* operands = nullptr;  // what the caller attached; owned
};

// What stands in place of the attributes of a launch with attached operands.
struct OperandsHead {
  LaunchAttributes attributes;
  const std::vector<ir::Operand>* operands;  // owned
  ArgsKind args_kind;
};

// A launch as it is queued and recorded: graphs hold a million of these, and most have a few bytes of arguments, no
// attributes and no attached operands. Behind it: the attributes or an OperandsHead, if any; then the arguments, or
// their address.
struct KernelPayload {
  static constexpr uint32_t kHasHead = 3;  // in place of an ArgsKind

  KernelFunction* function;
  uint32_t blocks;
  uint32_t args_bytes : 29;
  uint32_t kind : 2;            // ArgsKind, or kHasHead
  uint32_t has_attributes : 1;  // set with kHasHead, too

  const OperandsHead& head() const { return *reinterpret_cast<const OperandsHead*>(this + 1); }
  ArgsKind args_kind() const { return kind == kHasHead ? head().args_kind : static_cast<ArgsKind>(kind); }
  const std::vector<ir::Operand>* operands() const { return kind == kHasHead ? head().operands : nullptr; }
  LaunchAttributes attributes() const {
    if (has_attributes == 0) return {};
    return *reinterpret_cast<const LaunchAttributes*>(this + 1);
  }
  const std::byte* tail() const {
    const size_t before = kind == kHasHead ? sizeof(OperandsHead) : has_attributes != 0 ? sizeof(LaunchAttributes) : 0;
    return reinterpret_cast<const std::byte*>(this + 1) + before;
  }
  const void* argument_block() const {
    if (kind == static_cast<uint32_t>(ArgsKind::kInline)) [[likely]]
      return reinterpret_cast<const std::byte*>(this + 1) + (has_attributes != 0 ? sizeof(LaunchAttributes) : 0);
    if (args_kind() == ArgsKind::kInline) return tail();
    const void* args;
    std::memcpy(&args, tail(), sizeof args);
    return args;
  }
  /// Without the operands, which belong to this launch alone.
  KernelLaunch parts() const { return {function, argument_block(), args_bytes, blocks, attributes(), args_kind()}; }
};
// Arguments are aligned as the payload is.
static_assert(sizeof(KernelPayload) == 16 && sizeof(LaunchAttributes) == 16 && sizeof(OperandsHead) == 32);
constexpr uint32_t kMaxDeviceArgsBytes = (1u << 29) - 1;

struct BlockLoop {
  const KernelPayload* payload;
  RepriseKernelContext context;
  std::atomic<int32_t> error{0};

  void Run(int64_t begin, int64_t end) {
    RepriseKernelContext block = context;
    for (int64_t i = begin; i < end; ++i) {
      block.block_index = static_cast<uint32_t>(i);
      const int32_t code = payload->function->desc->fn(&block, payload->argument_block(), payload->args_bytes);
      int32_t none = 0;
      if (code != 0) error.compare_exchange_strong(none, code);
    }
  }
};

// Blocks are spread over workers only when the first one shows that they are worth it.
constexpr auto kSpreadFrom = std::chrono::microseconds(2);

void KernelFailed(RunContext& context, const void* payload, int32_t code) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  NoteFailingKernel(p->argument_block(), p->args_bytes, p->function->handle, p->function->binary->handle());
  context.Fail(
      Error(code, fmt::format("kernel {} failed with {} ({} blocks, {} bytes of arguments)", p->function->name, code,
                              p->blocks, p->args_bytes))
          .Culprit(fmt::format("kernel {} of {}", p->function->name, p->function->binary->source()))
          .Hint("check the kernel's arguments and the memory they point to; the number is what the kernel returned"));
}

RunResult RunKernel(RunContext& context, void* payload) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  BlockLoop loop{p,
                 {sizeof(RepriseKernelContext), 0, p->blocks, context.device_id, context.stream_id, context.task_id,
                  p->function->desc->name}};
  context.kernel = &loop.context;
  if (p->blocks == 1) {
    loop.Run(0, 1);
  } else {
    const auto start = Clock::now();
    loop.Run(0, 1);
    if (Clock::now() - start < kSpreadFrom) {
      loop.Run(1, p->blocks);
    } else {
      context.scheduler().ParallelFor(
          p->blocks - 1, 1,
          [](void* arg, int64_t begin, int64_t end) { static_cast<BlockLoop*>(arg)->Run(begin + 1, end + 1); }, &loop);
    }
  }
  context.kernel = nullptr;
  if (const int32_t code = loop.error.load()) [[unlikely]]
    KernelFailed(context, payload, code);
  return RunResult::kDone;
}

// One block needs no loop.
bool DirectKernel(const void* payload, ir::DirectCall& call) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  call = {p->function->desc->fn, p->argument_block(), p->function->desc->name, p->args_bytes};
  return p->blocks == 1;
}

// A block that never moves, behind a count: launches that differ in the kernel alone share it.
struct alignas(16) SharedBlock {
  std::atomic<uint32_t> references{1};

  static std::byte* New(size_t bytes) {
    auto* block = new (new std::byte[sizeof(SharedBlock) + bytes]) SharedBlock;
    return reinterpret_cast<std::byte*>(block + 1);
  }
  static SharedBlock* Of(const void* args) { return static_cast<SharedBlock*>(const_cast<void*>(args)) - 1; }
  static void Release(const void* args) noexcept {
    SharedBlock* block = Of(args);
    if (block->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete[] reinterpret_cast<std::byte*>(block);
  }
};
static_assert(sizeof(SharedBlock) == 16 && __STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);

void DestroyKernel(void* payload) noexcept {
  auto* p = static_cast<KernelPayload*>(payload);
  if (p->args_kind() == ArgsKind::kHeap) SharedBlock::Release(p->argument_block());
  delete p->operands();
}

ir::Anchor* AnchorOfKernel(const void* payload) { return static_cast<const KernelPayload*>(payload)->function->binary; }

void DescribeKernel(const void* payload, ir::TaskInfo& info) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  info.name = p->function->name;
  info.type_name = TypeName(p->function->desc->kind);
  info.num_blocks = p->blocks;
  const LaunchAttributes attributes = p->attributes();
  info.schem_mode = attributes.schem_mode;
  info.dynamic_ubuf = attributes.dynamic_ubuf;
  info.data_dump = attributes.data_dump;
  info.timeout_s = attributes.timeout_s;
  info.timeout_us = attributes.timeout_us;
  info.function = p->function->handle;
  info.args_address = p->argument_block();
  info.mix_ration = p->function->desc->vector_ratio;
  info.args_bytes = p->args_bytes;
  if (info.names_only) return;
  if (p->operands() != nullptr) info.attached = *p->operands();
  info.args.resize(p->args_bytes / 8);
  if (!info.args.empty()) std::memcpy(info.args.data(), p->argument_block(), info.args.size() * 8);
}

// Any word of the argument block may be an address, unless the caller has said what the kernel touches.
void OperandsOfKernel(const void* payload, ir::OperandSink& sink) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  if (p->operands() != nullptr) return TellAttached(p->operands(), sink);
  sink.TakeWords(reinterpret_cast<const uint64_t*>(p->argument_block()), p->args_bytes / 8);
  sink.TakeOpaque();
}

constexpr ir::TaskType KernelType(ir::TaskKind kind, const char* name, void (*destroy)(void*) noexcept) {
  return {.kind = kind,
          .name = name,
          .run = RunKernel,
          .destroy = destroy,
          .describe = DescribeKernel,
          .direct = DirectKernel,
          .direct_failed = KernelFailed,
          .never_waits = kind == ir::TaskKind::kKernel,  // those of AI CPUs may call back and wait
          .anchor = AnchorOfKernel,
          .operands = OperandsOfKernel};
}
constexpr ir::TaskType kKernel = KernelType(ir::TaskKind::kKernel, "KERNEL_AICORE", DestroyKernel);
constexpr ir::TaskType kAicpuKernel = KernelType(ir::TaskKind::kAicpuKernel, "KERNEL_AICPU", DestroyKernel);
// The usual ones own nothing, so that whoever gives up many of them need not look at each.
constexpr ir::TaskType kInlineKernel = KernelType(ir::TaskKind::kKernel, "KERNEL_AICORE", nullptr);
constexpr ir::TaskType kInlineAicpuKernel = KernelType(ir::TaskKind::kAicpuKernel, "KERNEL_AICPU", nullptr);

const ir::TaskType& TypeOf(const KernelLaunch& launch) {
  const bool is_aicpu = launch.function->desc->kind == REPRISE_KERNEL_AICPU;
  const bool owns = launch.args_kind == ArgsKind::kHeap || launch.operands != nullptr;
  if (owns) return is_aicpu ? kAicpuKernel : kKernel;
  return is_aicpu ? kInlineAicpuKernel : kInlineKernel;
}

bool HasAttributes(const KernelLaunch& launch) {
  return launch.attributes != LaunchAttributes{} || launch.operands != nullptr;
}

size_t PayloadBytes(const KernelLaunch& launch, bool has_attributes) {
  const size_t head = launch.operands != nullptr ? sizeof(OperandsHead) : has_attributes ? sizeof(LaunchAttributes) : 0;
  return sizeof(KernelPayload) + head +
         (launch.args_kind == ArgsKind::kInline ? launch.args_bytes : sizeof launch.args);
}

void CopyArgs(void* to, const void* args, size_t bytes) {
  if (bytes == sizeof(uint64_t)) {  // one scalar or address: no call
    std::memcpy(to, args, sizeof(uint64_t));
  } else if (bytes != 0) {
    std::memcpy(to, args, bytes);
  }
}

// Everything side by side.
void Write(const KernelLaunch& launch, bool has_attributes, std::byte* at) {
  auto* const payload = new (at) KernelPayload{launch.function, launch.blocks, launch.args_bytes & kMaxDeviceArgsBytes,
                                               static_cast<uint32_t>(launch.args_kind), has_attributes ? 1u : 0u};
  if (launch.operands != nullptr) {
    payload->kind = KernelPayload::kHasHead;
    new (payload + 1) OperandsHead{launch.attributes, launch.operands, launch.args_kind};
  } else if (has_attributes) {
    new (payload + 1) LaunchAttributes(launch.attributes);
  }
  auto* const tail = const_cast<std::byte*>(payload->tail());
  if (launch.args_kind != ArgsKind::kInline) {
    std::memcpy(tail, &launch.args, sizeof launch.args);
  } else {
    CopyArgs(tail, launch.args, launch.args_bytes);
  }
}

template <class Take>
Status WithTask(const KernelLaunch& launch, Take take) {
  // On the stack; the queue or the graph copies it once.
  alignas(16) std::byte small[512];
  std::unique_ptr<std::byte[]> large;
  const bool has_attributes = HasAttributes(launch);
  const size_t bytes = PayloadBytes(launch, has_attributes);
  std::byte* at = small;
  if (bytes > sizeof small) {
    large.reset(new std::byte[bytes]);
    at = large.get();
  }
  Write(launch, has_attributes, at);
  return take(ir::Task{&TypeOf(launch), at, static_cast<uint32_t>(bytes)});
}

Status SubmitLaunch(Stream& stream, const KernelLaunch& launch) {
  return WithTask(
      launch, [&](const ir::Task& task) { return SubmitKernel(stream, task, launch.args_kind != ArgsKind::kDevice); });
}

uint32_t ArgsBytesOf(const RepriseKernelDesc& desc) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; desc.param_sizes != nullptr && i < desc.param_count; ++i) {
    bytes += (uint64_t{desc.param_sizes[i]} + 7) / 8 * 8;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
}

// "2 parameters of 8 and 4 bytes, in slots of eight bytes 16 bytes in all".
std::string DescribeParams(const KernelFunction& function) {
  const RepriseKernelDesc& desc = *function.desc;
  std::string sizes;
  constexpr uint32_t kMost = 16;
  for (uint32_t i = 0; i < std::min(desc.param_count, kMost); ++i) {
    sizes += fmt::format("{}{}", i == 0 ? "" : i + 1 == desc.param_count ? " and " : ", ", desc.param_sizes[i]);
  }
  if (desc.param_count > kMost) sizes += ", ...";
  return fmt::format("{} parameter{} of {} bytes, in slots of eight bytes {} bytes in all", desc.param_count,
                     desc.param_count == 1 ? "" : "s", sizes, function.args_bytes);
}

[[gnu::cold]] Status ArgsTooShort(int code, const KernelFunction& function, size_t args_bytes) {
  return Error(code, fmt::format("kernel {} has {}; the launch passes {} bytes of arguments", function.name,
                                 DescribeParams(function), args_bytes))
      .Culprit(fmt::format("kernel {} of {}", function.name, function.binary->source()))
      .Hint("pass all parameters in declaration order, each at a multiple of eight bytes, and the size of the block");
}

Status CheckArgsBytes(const KernelFunction& function, size_t args_bytes) {
  if (args_bytes < function.args_bytes) [[unlikely]]
    return ArgsTooShort(kInvalidValue, function, args_bytes);
  return {};
}

// The last task behind those of a binary that was unloaded.
const ir::TaskType kUnloadTask = {
    .kind = ir::TaskKind::kNop,
    .name = "UNLOAD",
    .run = [](RunContext&, void*) { return RunResult::kDone; },
    .destroy = [](void* payload) noexcept { (*static_cast<ir::Anchor**>(payload))->Release(); },
    .operands = ir::NoOperands};

}  // namespace

HandleTable<KernelBinary, HandleKind::kBinary>& KernelBinaries() {
  return TheTable<KernelBinary, HandleKind::kBinary>();
}

constinit NoDestroy<HandleTable<KernelFunction, HandleKind::kFunction>> internal::g_kernel_functions;

HandleTable<BinaryData, HandleKind::kBinaryData>& BinaryDatas() {
  return TheTable<BinaryData, HandleKind::kBinaryData>();
}

HandleTable<KernelArgs, HandleKind::kKernelArgs>& KernelArgsTable() {
  return TheTable<KernelArgs, HandleKind::kKernelArgs>();
}

Status RegisterKernels(const char* key, const RepriseKernelTable* table) {
  if (key == nullptr || *key == 0)
    return Error(kInvalidValue, "the key of the kernel table is empty")
        .Hint("choose a key, by which aclrtBinaryLoadFromFile finds the table");
  REPRISE_RETURN_IF_ERROR(CheckTable(table, key));
  KeyRegistry& keys = Keys();
  MutexLock lock(keys.mutex);
  if (!keys.tables.emplace(key, table).second)
    return Error(kKernelDuplicate, fmt::format("key {} is taken", key))
        .Hint("register a table once, or choose another key");
  return {};
}

StatusOr<KernelBinary*> KernelBinary::Make(std::string source, void* library, const RepriseKernelTable* table) {
  auto* binary = new KernelBinary;
  binary->source_ = std::move(source);
  binary->library_ = library;
  for (uint32_t i = 0; table != nullptr && i < table->kernel_count; ++i) {
    const RepriseKernelDesc& desc = table->kernels[i];
    auto function =
        std::make_unique<KernelFunction>(KernelFunction{binary, &desc, desc.name, nullptr, ArgsBytesOf(desc)});
    function->handle = KernelFunctions().Insert(function.get());
    binary->functions_.push_back(std::move(function));
  }
  binary->handle_ = KernelBinaries().Insert(binary);
  if (binary->handle_ == nullptr || FaultPoint("kernel.binary")) {
    KernelBinaries().Erase(binary->handle_);
    for (auto& function : binary->functions_) KernelFunctions().Erase(function->handle);
    binary->Release();
    return Error(kResourceExhausted, "the process has too many kernel binaries")
        .Hint("unload binaries that are no longer needed with aclrtBinaryUnLoad");
  }
  return binary;
}

StatusOr<KernelBinary*> KernelBinary::Open(const std::string& source, const std::string& path) {
  // An ELF file for another machine, such as a device binary: loadable, but it holds no kernels for this device.
  REPRISE_ASSIGN_OR_RETURN(const ImageKind kind, InspectImage(ReadFile(path), source));
  if (kind == ImageKind::kForeign) return Make(source, nullptr, nullptr);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Make(source, nullptr, nullptr);
  const auto entry = reinterpret_cast<RepriseKernelTableFn>(dlsym(library, REPRISE_KERNEL_TABLE_SYMBOL));
  if (entry == nullptr) {
    dlclose(library);
    return Make(source, nullptr, nullptr);
  }
  const RepriseKernelTable* table = entry();
  if (Status status = CheckTable(table, source); !status.ok()) {
    dlclose(library);
    return status;
  }
  return Make(source, library, table);
}

StatusOr<KernelBinary*> KernelBinary::LoadFile(const std::string& path) {
  if (const RepriseKernelTable* table = FindKey(path)) return Make(path, nullptr, table);
  std::string shared = path;
  if (const size_t dot = path.rfind('.'); dot != std::string::npos && path.compare(dot, 3, ".so") != 0) {
    shared = path.substr(0, dot) + ".so";
  }
  // Devices and pipes can be opened, too, but reading them need not end.
  std::error_code ignored;
  if (access(shared.c_str(), R_OK) == 0 && std::filesystem::is_regular_file(shared, ignored) && StartsAsElf(shared)) {
    return Open(path, shared);
  }
  if (access(path.c_str(), R_OK) != 0 || FaultPoint("kernel.file")) {
    return Error(kFileOpen, fmt::format("\"{}\" cannot be opened: {}", path, std::strerror(errno)))
        .Hint("pass the path of a kernel binary, or a key given to repriseRegisterKernels");
  }
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return Error(kInvalidValue, fmt::format("\"{}\" is not a regular file", path))
        .Hint("pass the path of a kernel binary");
  }
  std::string image = ReadFile(path);
  const bool is_json = path.size() > 5 && path.compare(path.size() - 5, 5, ".json") == 0;
  if (!IsElf(image) && !is_json) {
    return Error(kInvalidValue, fmt::format("\"{}\" is neither an ELF file nor a JSON description", path))
        .Hint("pass the path of a shared object with kernels");
  }
  auto binary = Make(path, nullptr, nullptr);
  if (binary.ok()) binary.value()->image_ = std::move(image);
  return binary;
}

StatusOr<KernelBinary*> KernelBinary::LoadData(const void* data, size_t bytes) {
  const std::string_view view(static_cast<const char*>(data), bytes);
  const std::string_view key = view.substr(0, view.find('\0'));
  if (const RepriseKernelTable* table = FindKey(key)) return Make(std::string(key), nullptr, table);
  if (!IsElf(view))
    return Error(kInvalidValue, fmt::format("the {} bytes of data are no ELF file", bytes))
        .Hint("pass the content of a shared object with kernels");
  const int fd = FaultPoint("kernel.file") ? -1 : memfd_create("reprise-kernels", MFD_CLOEXEC);
  if (fd < 0)
    return Error(kResourceExhausted, "no temporary file for the kernel binary")
        .Hint("free memory of the host, or raise the limit of open files (ulimit -n)");
  if (write(fd, data, bytes) != static_cast<ssize_t>(bytes)) {
    close(fd);
    return Error(kResourceExhausted, "no room in a temporary file for the kernel binary")
        .Hint("free memory of the host");
  }
  auto binary = Open(fmt::format("<{} bytes of data>", bytes), fmt::format("/proc/self/fd/{}", fd));
  close(fd);
  if (binary.ok()) binary.value()->image_ = std::string(view);
  return binary;
}

bool KernelBinary::Unload(KernelBinary* binary) {
  if (KernelBinaries().Erase(binary->handle_, &binary->birth_) == nullptr) return false;
  {
    MutexLock lock(binary->functions_mutex_);
    binary->is_unloaded_ = true;
    for (auto& function : binary->functions_) KernelFunctions().Erase(function->handle);
  }
  const auto let_go = [](void* retired) { static_cast<KernelBinary*>(retired)->LetGo(); };
  if (AwaitCalls()) {
    let_go(binary);
  } else {
    Retire(binary, let_go, binary->birth_, true);
  }
  return true;
}

// No call knows the binary any more: what they launched lies in queues, and what they made in the lists.
void KernelBinary::LetGo() {
  std::vector<std::unique_ptr<KernelArgs>> lists;
  {
    MutexLock lock(args_mutex_);
    lists.swap(args_);
  }
  for (auto& args : lists) {
    uint64_t birth = 0;
    KernelArgsTable().Erase(args->handle, &birth);
    RetireObject(args.release(), birth);
  }
  // Launches in queues do not hold the binary; what stands behind them does, for each stream that is at work.
  Stream::ForEach([this](Stream& stream) {
    if (stream.IsIdle()) return;
    Retain();
    ir::Anchor* anchor = this;
    SubmitLast(stream, ir::MakeTask(kUnloadTask, anchor));
  });
  Retire(
      this, [](void* retired) { static_cast<KernelBinary*>(retired)->Release(); }, birth_, true);
}

Status MakeKernelArgs(KernelFunction& function, void** handle) {
  auto args = std::make_unique<KernelArgs>(function);
  args->handle = KernelArgsTable().Insert(args.get());
  if (args->handle == nullptr)
    return Error(kResourceExhausted, "the process has too many kernel argument lists")
        .Hint("destroy argument lists that are no longer needed");
  *handle = args->handle;
  MutexLock lock(function.binary->args_mutex_);
  function.binary->args_.push_back(std::move(args));
  return {};
}

KernelBinary::~KernelBinary() {
  if (library_ != nullptr) dlclose(library_);
}

StatusOr<KernelFunction*> KernelBinary::FindByName(const std::string& name) const {
  std::string known;
  MutexLock lock(functions_mutex_);
  for (const auto& function : functions_) {
    if (function->name == name) return function.get();
    known += (known.empty() ? "" : ", ") + function->name;
  }
  return Error(kKernelLookup, fmt::format("{} has no kernel named \"{}\"", source_, name))
      .Hint(known.empty() ? "the file holds no host-compiled kernels: build it with reprise_add_kernels, see "
                            "reprise/kernel.h"
                          : "use one of: " + known);
}

StatusOr<KernelFunction*> KernelBinary::FindByEntry(uint64_t entry) const {
  std::string known;
  MutexLock lock(functions_mutex_);
  for (const auto& function : functions_) {
    if (entry != 0 && function->desc->entry == entry) return function.get();  // 0: has none
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", function->desc->entry, function->name);
  }
  return Error(kKernelLookup, fmt::format("{} has no kernel with entry {}", source_, entry))
      .Hint(known.empty() ? "the file holds no host-compiled kernels" : "use one of: " + known);
}

StatusOr<KernelFunction*> KernelBinary::RegisterAlias(const std::string& kernel, const std::string& alias) {
  MutexLock lock(functions_mutex_);
  if (is_unloaded_)
    return Error(kInvalidHandle, fmt::format("{} was unloaded by another thread meanwhile", source_))
        .Hint("unload a binary only when no other thread uses it");
  const RepriseKernelDesc* desc = nullptr;
  KernelFunction* clash = nullptr;
  std::string known;
  for (const auto& function : functions_) {
    if (function->desc->kind == REPRISE_KERNEL_AICPU) known += (known.empty() ? "" : ", ") + function->name;
    if (function->name == kernel) desc = function->desc;
    if (function->name == alias) clash = function.get();
  }
  if (known.empty()) {
    return Error(kInvalidValue, fmt::format("{} has no AI CPU kernels", source_))
        .Culprit("parameter handle")
        .Hint("look kernels of the cores up with aclrtBinaryGetFunction");
  }
  if (desc == nullptr) {
    return Error(kKernelLookup, fmt::format("{} has no kernel named \"{}\"", source_, kernel))
        .Culprit("parameter funcName")
        .Hint("use one of: " + known);
  }
  if (desc->kind != REPRISE_KERNEL_AICPU) {
    return Error(kInvalidValue, fmt::format("kernel {} of {} is no AI CPU kernel", kernel, source_))
        .Culprit("parameter funcName")
        .Hint("use one of: " + known);
  }
  if (clash != nullptr) {
    if (clash->desc == desc) return clash;
    return Error(kKernelDuplicate, fmt::format("{} has another kernel named {}", source_, alias))
        .Culprit("parameter kernelName")
        .Hint("choose another name");
  }
  auto function = std::make_unique<KernelFunction>(KernelFunction{this, desc, alias, nullptr, ArgsBytesOf(*desc)});
  functions_.reserve(functions_.size() + 1);
  function->handle = KernelFunctions().Insert(function.get());
  if (function->handle == nullptr)
    return Error(kResourceExhausted, "the process has too many kernels")
        .Hint("unload binaries that are no longer needed with aclrtBinaryUnLoad");
  functions_.push_back(std::move(function));
  return functions_.back().get();
}

StatusOr<std::vector<ParamPlace>> ParamsOf(const KernelFunction& function) {
  const RepriseKernelDesc& desc = *function.desc;
  if (desc.param_sizes == nullptr) {
    return Error(kFeatureNotSupported,
                 fmt::format("kernel {} does not tell the sizes of its parameters", function.name))
        .Culprit(fmt::format("kernel {} of {}", function.name, function.binary->source()))
        .Hint("define it with REPRISE_KERNEL, or launch it with aclrtLaunchKernelWithHostArgs");
  }
  std::vector<ParamPlace> places;
  size_t offset = 0;
  for (uint32_t i = 0; i < desc.param_count; ++i) {
    places.push_back({offset, desc.param_sizes[i]});
    offset += (size_t{desc.param_sizes[i]} + 7) / 8 * 8;
  }
  return places;
}

Status CheckListedArgs(const KernelFunction& function, size_t count, const std::function<size_t(size_t)>& bytes) {
  const RepriseKernelDesc& desc = *function.desc;
  const auto refuse = [&](const std::string& what) {
    return Error(kInvalidValue, fmt::format("kernel {} has {}; {}", function.name, DescribeParams(function), what))
        .Culprit(fmt::format("kernel {} of {}", function.name, function.binary->source()))
        .Hint("append every parameter in declaration order, with the size that the kernel declares");
  };
  for (uint32_t i = 0; desc.param_sizes != nullptr && i < desc.param_count; ++i) {
    if (i == count) return refuse(fmt::format("the argument list has {}", count));
    if (const size_t given = bytes(i); (given + 7) / 8 != (size_t{desc.param_sizes[i]} + 7) / 8) {
      return refuse(fmt::format("parameter {} of the argument list was appended with {} bytes", i, given));
    }
  }
  return {};
}

void* HardwareSyncArea(int device) {
  alignas(512) static std::byte areas[device::kMaxDevices][kHardwareSyncBytes];
  return areas[device];
}

namespace {

Status WithCopiedArgs(KernelFunction& function, uint32_t blocks, const LaunchAttributes& attributes, const void* args,
                      size_t args_bytes, AttachedOperands operands,
                      const std::function<Status(const ir::Task&)>& take) {
  if (args_bytes > kMaxArgsBytes) {
    return Error(kInvalidValue, fmt::format("argsSize is {}, must be at most {}", args_bytes, kMaxArgsBytes))
        .Hint(
            "pass the number of bytes of the arguments; large data lies in device memory, whose address is an "
            "argument");
  }
  REPRISE_RETURN_IF_ERROR(CheckArgsBytes(function, args_bytes));
  const KernelLaunch launch{&function,         args,          static_cast<uint32_t>(args_bytes), blocks, attributes,
                            ArgsKind::kInline, operands.get()};
  return WithTask(launch, [&](const ir::Task& task) {
    (void)operands.release();  // the task owns them
    return take(task);
  });
}

}  // namespace

Status WithKernelTask(KernelFunction& function, uint32_t blocks, const LaunchAttributes& attributes, const void* args,
                      size_t args_bytes, const std::function<Status(const ir::Task&)>& take) {
  return WithCopiedArgs(function, blocks, attributes, args, args_bytes, nullptr, take);
}

bool IsLoadedKernel(const ir::TaskType& type) { return &type == &kKernel || &type == &kInlineKernel; }

bool SameEngine(const void* payload, const void* other) {
  const RepriseKernelDesc& a = *static_cast<const KernelPayload*>(payload)->function->desc;
  const RepriseKernelDesc& b = *static_cast<const KernelPayload*>(other)->function->desc;
  return TypeName(a.kind) == TypeName(b.kind) && a.vector_ratio == b.vector_ratio;
}

bool SameFunction(const void* payload, const void* other) {
  return static_cast<const KernelPayload*>(payload)->function == static_cast<const KernelPayload*>(other)->function;
}

void* SameLaunchArguments(const ir::TaskType& type, void* payload, const KernelFunction& function, uint32_t blocks,
                          size_t args_bytes) {
  if (&type != &kInlineKernel) return nullptr;
  const auto* p = static_cast<const KernelPayload*>(payload);
  if (p->function != &function || p->blocks != blocks || p->args_bytes != args_bytes) return nullptr;
  if (p->args_kind() != ArgsKind::kInline) return nullptr;
  return const_cast<std::byte*>(p->tail());
}

bool SameBinary(const void* payload, const void* other) {
  return static_cast<const KernelPayload*>(payload)->function->binary ==
         static_cast<const KernelPayload*>(other)->function->binary;
}

LaunchAttributes AttributesOf(const void* payload) { return static_cast<const KernelPayload*>(payload)->attributes(); }

Status WithChangedKernel(const void* payload, KernelFunction* function, uint32_t blocks,
                         const std::function<Status(const ir::Task&)>& take) {
  KernelLaunch launch = static_cast<const KernelPayload*>(payload)->parts();
  if (function != nullptr) launch.function = function;
  if (blocks != 0) launch.blocks = blocks;
  if (launch.function->desc->kind == REPRISE_KERNEL_AICPU) {
    return Error(kTaskTypeNotSupported,
                 fmt::format("kernel {} is an AI CPU kernel, the stored task runs on the cores", launch.function->name))
        .Culprit(fmt::format("kernel {} of {}", launch.function->name, launch.function->binary->source()))
        .Hint("write the entry of a kernel of the cores into the cell");
  }
  if (launch.args_bytes < launch.function->args_bytes) {
    return ArgsTooShort(kRuntimeCannot, *launch.function, launch.args_bytes);
  }
  if (launch.args_kind == ArgsKind::kHeap) SharedBlock::Of(launch.args)->references.fetch_add(1);
  return WithTask(launch, take);
}

namespace {

// With attributes or placeholders, or on its way into files. Apart from the usual launch, which then saves fewer
// registers.
[[gnu::noinline]] Status LaunchInFull(Stream& stream, KernelFunction& function, uint32_t blocks,
                                      const LaunchAttributes& attributes, const void* args, size_t args_bytes,
                                      std::span<const ArgumentPlaceholder> placeholders) {
  KernelLaunch launch{&function, args, static_cast<uint32_t>(args_bytes), blocks, attributes, ArgsKind::kInline};
  if (placeholders.empty()) return SubmitLaunch(stream, launch);
  // Slots that point into the block need a block that never moves.
  std::unique_ptr<std::byte, void (*)(std::byte*)> holder(SharedBlock::New(args_bytes),
                                                          [](std::byte* unused) { SharedBlock::Release(unused); });
  std::byte* const block = holder.get();
  std::memcpy(block, args, args_bytes);
  for (const ArgumentPlaceholder& slot : placeholders) {
    if (uint64_t{slot.address_offset} + sizeof(void*) > args_bytes || slot.data_offset >= args_bytes) {
      return Error(kInvalidValue, fmt::format("placeholder {{{}, {}}} lies outside of the {} bytes of arguments",
                                              slot.address_offset, slot.data_offset, args_bytes))
          .Hint("let addrOffset and dataOffset point into the arguments");
    }
    const std::byte* data = block + slot.data_offset;
    std::memcpy(block + slot.address_offset, &data, sizeof data);
  }
  launch.args_kind = ArgsKind::kHeap;
  launch.args = holder.release();
  return SubmitLaunch(stream, launch);
}

}  // namespace

Status LaunchWithHostArgs(Stream& stream, KernelFunction& function, uint32_t blocks, const LaunchAttributes& attributes,
                          const void* args, size_t args_bytes, std::span<const ArgumentPlaceholder> placeholders) {
  if (args_bytes > kMaxArgsBytes) {
    return Error(kInvalidValue, fmt::format("argsSize is {}, must be at most {}", args_bytes, kMaxArgsBytes))
        .Hint(
            "pass the number of bytes of the arguments; large data lies in device memory, whose address is an "
            "argument");
  }
  REPRISE_RETURN_IF_ERROR(CheckArgsBytes(function, args_bytes));
  if (placeholders.empty() && attributes == LaunchAttributes{} && !Dump::wants_args()) [[likely]] {
    // The usual launch, written straight into the queue.
    const bool is_aicpu = function.desc->kind == REPRISE_KERNEL_AICPU;
    std::byte* const place =
        TryReserve(stream, is_aicpu ? kInlineAicpuKernel : kInlineKernel, sizeof(KernelPayload) + args_bytes);
    if (place != nullptr) [[likely]] {
      auto* const payload =
          new (place) KernelPayload{&function, blocks, static_cast<uint32_t>(args_bytes) & kMaxDeviceArgsBytes,
                                    static_cast<uint32_t>(ArgsKind::kInline), 0};
      CopyArgs(payload + 1, args, args_bytes);
      return Commit(stream);
    }
    // On its way into a graph or a slot, or through a full chunk.
    constexpr size_t kFew = 128;
    if (args_bytes <= kFew) {
      alignas(16) std::byte bytes[sizeof(KernelPayload) + kFew];
      auto* const payload =
          new (bytes) KernelPayload{&function, blocks, static_cast<uint32_t>(args_bytes) & kMaxDeviceArgsBytes,
                                    static_cast<uint32_t>(ArgsKind::kInline), 0};
      CopyArgs(payload + 1, args, args_bytes);
      return Submit(stream, ir::Task{is_aicpu ? &kInlineAicpuKernel : &kInlineKernel, bytes,
                                     static_cast<uint32_t>(sizeof(KernelPayload) + args_bytes)});
    }
  }
  return LaunchInFull(stream, function, blocks, attributes, args, args_bytes, placeholders);
}

Status LaunchWithOperands(Stream& stream, KernelFunction& function, uint32_t blocks, const void* args,
                          size_t args_bytes, AttachedOperands operands) {
  return WithCopiedArgs(function, blocks, {}, args, args_bytes, std::move(operands),
                        [&](const ir::Task& task) { return SubmitKernel(stream, task, true); });
}

Status LaunchWithDeviceArgs(Stream& stream, KernelFunction& function, uint32_t blocks,
                            const LaunchAttributes& attributes, const void* args, size_t args_bytes) {
  if (args_bytes > kMaxDeviceArgsBytes) {
    return Error(kInvalidValue, fmt::format("argsSize is {}, must be at most {}", args_bytes, kMaxDeviceArgsBytes))
        .Hint(
            "pass the number of bytes of the arguments; large data lies in device memory, whose address is an "
            "argument");
  }
  REPRISE_RETURN_IF_ERROR(CheckArgsBytes(function, args_bytes));
  return SubmitLaunch(stream,
                      {&function, args, static_cast<uint32_t>(args_bytes), blocks, attributes, ArgsKind::kDevice});
}

StatusOr<uint32_t> KernelArgs::Append(const void* value, size_t bytes) {
  if (finalized_)
    return Error(kInvalidValue, "the argument list is finalized").Hint("append before aclrtKernelArgsFinalize");
  if (params_.size() >= kMaxParams)
    return Error(kInvalidValue, fmt::format("the list has {} parameters already", kMaxParams))
        .Hint("pass a structure in one parameter, or through device memory");
  const size_t offset = block_.size();
  if (bytes > kMaxArgsBytes - offset) {
    return Error(kInvalidValue, fmt::format("the arguments exceed {} bytes", kMaxArgsBytes))
        .Hint("pass large arguments through device memory");
  }
  block_.resize(offset + (bytes + 7) / 8 * 8);
  std::memcpy(block_.data() + offset, value, bytes);
  params_.push_back({offset, bytes, false, nullptr, 0});
  return static_cast<uint32_t>(params_.size() - 1);
}

StatusOr<uint32_t> KernelArgs::AppendPlaceholder() {
  const void* null = nullptr;
  auto param = Append(&null, sizeof null);
  if (param.ok()) params_.back().placeholder = true;
  return param;
}

StatusOr<KernelArgs::Param*> KernelArgs::Find(uint32_t param) {
  if (param < params_.size()) return &params_[param];
  return Error(kInvalidHandle, "paramHandle does not belong to this argument list")
      .Hint("pass a handle that aclrtKernelArgsAppend or aclrtKernelArgsAppendPlaceHolder wrote for this list");
}

StatusOr<void*> KernelArgs::PlaceholderBuffer(uint32_t param, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(Param * entry, Find(param));
  if (!entry->placeholder)
    return Error(kInvalidValue, fmt::format("parameter {} is not a placeholder", param))
        .Hint("pass a parameter that aclrtKernelArgsAppendPlaceHolder returned");
  if (bytes > kMaxArgsBytes) {
    return Error(kInvalidValue,
                 fmt::format("dataSize is {}, the arguments must not exceed {} bytes", bytes, kMaxArgsBytes))
        .Hint("pass large arguments through device memory");
  }
  if (entry->buffer == nullptr || bytes > entry->buffer_bytes) {
    // The caller may still hold the address of the smaller one.
    if (entry->buffer != nullptr) outgrown_.push_back(std::move(entry->buffer));
    entry->buffer.reset(new std::byte[bytes]());
  }
  entry->buffer_bytes = bytes;
  return static_cast<void*>(entry->buffer.get());
}

Status KernelArgs::Update(uint32_t param, const void* value, size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(Param * entry, Find(param));
  if (entry->placeholder || bytes > entry->bytes) {
    return Error(kInvalidValue, fmt::format("parameter {} holds {} bytes{}, cannot take {}", param, entry->bytes,
                                            entry->placeholder ? " and is a placeholder" : "", bytes))
        .Hint("append a parameter of the new size instead");
  }
  std::memcpy(block_.data() + entry->offset, value, bytes);
  finalized_ = false;
  return {};
}

Status KernelArgs::Finalize() {
  finalized_ = true;
  return {};
}

Status KernelArgs::Launch(Stream& stream, uint32_t blocks, const LaunchAttributes& attributes) const {
  if (!finalized_) {
    return Error(kInvalidValue, "the argument list is not finalized")
        .Hint("call aclrtKernelArgsFinalize before the launch");
  }
  REPRISE_RETURN_IF_ERROR(CheckListedArgs(function_, params_.size(), [this](size_t i) { return params_[i].bytes; }));
  std::vector<std::byte> block = block_;
  std::vector<ArgumentPlaceholder> placeholders;
  for (const Param& param : params_) {
    if (!param.placeholder || param.buffer == nullptr) continue;
    placeholders.push_back({static_cast<uint32_t>(param.offset), static_cast<uint32_t>(block.size())});
    const size_t at = block.size();
    block.resize(at + (param.buffer_bytes + 7) / 8 * 8);
    std::memcpy(block.data() + at, param.buffer.get(), param.buffer_bytes);
  }
  return LaunchWithHostArgs(stream, function_, blocks, attributes, block.data(), block.size(), placeholders);
}

}  // namespace reprise::runtime

extern "C" __attribute__((visibility("default"))) int32_t repriseRegisterKernels(const char* binary_key,
                                                                                 const RepriseKernelTable* table) {
  return reprise::runtime::Api("repriseRegisterKernels",
                               [&] { return reprise::runtime::RegisterKernels(binary_key, table); });
}
