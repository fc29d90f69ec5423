// SPDX-License-Identifier: Apache-2.0
//
// Kernels that a program brings along: loading of kernel binaries (see <reprise/kernel.h>), their functions, argument
// blocks and launches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "reprise/kernel.h"
#include "runtime/attached_operands.h"
#include "runtime/objects.h"
#include "runtime/stream.h"

namespace reprise::runtime {

class KernelArgs;
class KernelBinary;

/// The longest argument block of a launch.
constexpr uint32_t kMaxArgsBytes = 64u << 10;

/// One kernel of a binary; lives as long as its binary.
struct KernelFunction {
  KernelBinary* binary;
  const RepriseKernelDesc* desc;
  std::string name;
  void* handle;
  uint32_t args_bytes = 0;  ///< that its parameters take, each in slots of eight bytes; 0: it does not tell them
};

/// A loaded binary. Unloading drops the handle; queued launches and graphs keep the code alive.
///
/// Threads: thread-safe.
class KernelBinary final : public ir::Anchor {
 public:
  /// Path of a shared object (or of an `.o` with an `.so` beside it), or a registered key. Any other ELF file gives an
  /// empty binary, so that loaders which never launch keep working.
  static StatusOr<KernelBinary*> LoadFile(const std::string& path);
  /// Registered key, or the bytes of a shared object or of any other ELF file.
  static StatusOr<KernelBinary*> LoadData(const void* data, size_t bytes);
  static bool Unload(KernelBinary* binary);

  void* handle() const { return handle_; }
  StatusOr<KernelFunction*> FindByName(const std::string& name) const;
  StatusOr<KernelFunction*> FindByEntry(uint64_t entry) const;
  /// Another name for an AI CPU kernel of the binary; the same pair of names gives the same function.
  StatusOr<KernelFunction*> RegisterAlias(const std::string& kernel, const std::string& alias);
  const std::string& source() const { return source_; }
  const void* image() const { return image_.empty() ? nullptr : image_.data(); }
  size_t image_bytes() const { return image_.size(); }

 private:
  KernelBinary() = default;
  ~KernelBinary();
  void LetGo();
  void End() noexcept override { delete this; }
  static StatusOr<KernelBinary*> Make(std::string source, void* library, const RepriseKernelTable* table)
      REPRISE_NOT_ANALYSED;  // nobody else knows the binary yet
  static StatusOr<KernelBinary*> Open(const std::string& source, const std::string& path);

  std::string source_;
  std::string image_;
  void* library_ = nullptr;  // of dlopen
  void* handle_ = nullptr;
  uint64_t birth_ = 0;  // when it is unloaded
  mutable Mutex functions_mutex_;
  std::vector<std::unique_ptr<KernelFunction>> functions_ REPRISE_GUARDED_BY(functions_mutex_);  // grows only
  bool is_unloaded_ REPRISE_GUARDED_BY(functions_mutex_) = false;                                // no more handles
  friend Status MakeKernelArgs(KernelFunction& function, void** handle);
  Mutex args_mutex_;
  std::vector<std::unique_ptr<KernelArgs>> args_ REPRISE_GUARDED_BY(args_mutex_);
};

HandleTable<KernelBinary, HandleKind::kBinary>& KernelBinaries();
namespace internal {
extern constinit NoDestroy<HandleTable<KernelFunction, HandleKind::kFunction>> g_kernel_functions;
}  // namespace internal
inline HandleTable<KernelFunction, HandleKind::kFunction>& KernelFunctions() {
  return internal::g_kernel_functions.value;
}

/// Kernel code in host memory of the caller, which is not copied.
struct BinaryData {
  const void* data;
  size_t bytes;
  void* handle;
};
HandleTable<BinaryData, HandleKind::kBinaryData>& BinaryDatas();

/// Offset and size of a parameter in the argument block. 207000 when the kernel does not tell its parameters.
struct ParamPlace {
  size_t offset;
  size_t bytes;
};
StatusOr<std::vector<ParamPlace>> ParamsOf(const KernelFunction& function);

/// 107000 for an argument list whose entries are not the parameters that the kernel tells, one by one; `bytes(i)` is
/// the size of entry i. What comes behind the parameters is the program's own affair.
Status CheckListedArgs(const KernelFunction& function, size_t count, const std::function<size_t(size_t)>& bytes);

/// Scratch memory in which the cores of one device meet; kernels get its address as a parameter.
void* HardwareSyncArea(int device);
constexpr size_t kHardwareSyncBytes = 64u << 10;

/// Makes the kernels of a program known under a key; see repriseRegisterKernels.
Status RegisterKernels(const char* key, const RepriseKernelTable* table);

/// Launch attributes that have a meaning here; the numbers are those of aclrtLaunchKernelAttrId.
struct LaunchAttributes {
  uint8_t schem_mode = 0;
  uint8_t data_dump = 0;
  uint16_t timeout_s = 0;
  uint32_t dynamic_ubuf = 0;
  uint64_t timeout_us = 0;

  bool operator==(const LaunchAttributes&) const = default;
};

/// A pointer slot of an argument block that must hold the address of data that lies in the block as well.
struct ArgumentPlaceholder {
  uint32_t address_offset;
  uint32_t data_offset;
};

// Launches are refused with 107000 when the block is shorter than the parameters that the kernel tells.

/// Hands a kernel task with a copy of `args` to `take`, which owns it; for callers that put it elsewhere than into a
/// stream.
Status WithKernelTask(KernelFunction& function, uint32_t blocks, const LaunchAttributes& attributes, const void* args,
                      size_t args_bytes, const std::function<Status(const ir::Task&)>& take);

/// Whether tasks of the type are launches of loaded kernels of the cores (not AI CPU kernels, not operators).
bool IsLoadedKernel(const ir::TaskType& type);
/// Whether two launches of loaded kernels run on the same cores, in the same mix.
bool SameEngine(const void* payload, const void* other);
/// Whether two launches are of the same kernel.
bool SameFunction(const void* payload, const void* other);
/// Whether two launches are of kernels of one binary: while one of them exists, the end of the other unloads nothing.
bool SameBinary(const void* payload, const void* other);
/// The argument block in the payload of a launch, if it launches `function` with as many blocks and bytes of arguments
/// and holds the block itself; else null.
void* SameLaunchArguments(const ir::TaskType& type, void* payload, const KernelFunction& function, uint32_t blocks,
                          size_t args_bytes);
/// The launch attributes of a launch of a loaded kernel.
LaunchAttributes AttributesOf(const void* payload);
/// Hands a task like the launch behind `payload` to `take`, which owns it: with another kernel (unless null) and
/// another number of blocks (unless 0). 507009 for an AI CPU kernel, 507000 when the arguments are too short for it.
Status WithChangedKernel(const void* payload, KernelFunction* function, uint32_t blocks,
                         const std::function<Status(const ir::Task&)>& take);

/// Copies `args` (host memory) now.
Status LaunchWithHostArgs(Stream& stream, KernelFunction& function, uint32_t blocks, const LaunchAttributes& attributes,
                          const void* args, size_t args_bytes, std::span<const ArgumentPlaceholder> placeholders);
/// As LaunchWithHostArgs, with what the caller says of the memory that the kernel touches.
Status LaunchWithOperands(Stream& stream, KernelFunction& function, uint32_t blocks, const void* args,
                          size_t args_bytes, AttachedOperands operands);
/// Reads `args` (device memory) when the kernel runs.
Status LaunchWithDeviceArgs(Stream& stream, KernelFunction& function, uint32_t blocks,
                            const LaunchAttributes& attributes, const void* args, size_t args_bytes);

/// Assembles an argument block parameter by parameter (aclrtKernelArgs*).
///
/// Threads: thread-compatible.
class KernelArgs {
 public:
  static constexpr size_t kMaxParams = 128;

  explicit KernelArgs(KernelFunction& function) : function_(function) {}

  KernelFunction& function() const { return function_; }
  void* function_handle() const { return function_.handle; }
  StatusOr<uint32_t> Append(const void* value, size_t bytes);
  StatusOr<uint32_t> AppendPlaceholder();
  /// Host buffer behind the parameters, whose address the slot gets at launch.
  StatusOr<void*> PlaceholderBuffer(uint32_t param, size_t bytes);
  Status Update(uint32_t param, const void* value, size_t bytes);
  Status Finalize();
  bool finalized() const { return finalized_; }
  Status Launch(Stream& stream, uint32_t blocks, const LaunchAttributes& attributes) const;

  void* handle = nullptr;

 private:
  struct Param {
    size_t offset;
    size_t bytes;
    bool placeholder = false;
    std::unique_ptr<std::byte[]> buffer;
    size_t buffer_bytes = 0;
  };
  StatusOr<Param*> Find(uint32_t param);

  KernelFunction& function_;
  std::vector<Param> params_;
  std::vector<std::byte> block_;
  std::vector<std::unique_ptr<std::byte[]>> outgrown_;
  bool finalized_ = false;
};

HandleTable<KernelArgs, HandleKind::kKernelArgs>& KernelArgsTable();

/// An argument list that belongs to the function's binary: there is no call to destroy one.
Status MakeKernelArgs(KernelFunction& function, void** handle);

}  // namespace reprise::runtime
