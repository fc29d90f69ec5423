// SPDX-License-Identifier: Apache-2.0
#include "runtime/user_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "device/memory.h"

namespace reprise::runtime {
namespace {

constexpr uint64_t kMagic = 0x7265702d61726773;
// What slots, rounding and the addresses of placeholders add at most.
constexpr size_t kOverhead = KernelArgs::kMaxParams * 24;
constexpr size_t kMaxBlock = kMaxArgsBytes + kOverhead;
constexpr std::byte kZeroes[kMaxBlock] = {};

struct Head {
  uint64_t magic;
  const void* self;
};

size_t RoundUp(size_t bytes) { return (bytes + 7) / 8 * 8; }

Status NotWritable(const char* parameter, const void* address, size_t bytes) {
  return Error(kInvalidValue, fmt::format("{} {}: not all of its {} bytes are memory that the process can write",
                                          parameter, fmt::ptr(address), bytes))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint(
          "allocate host memory of the sizes that aclrtKernelArgsGetHandleMemSize and aclrtKernelArgsGetMemSize tell");
}

}  // namespace

StatusOr<size_t> UserArgs::BlockBytes(size_t user_bytes) {
  if (user_bytes <= kMaxArgsBytes) return RoundUp(user_bytes) + kOverhead;
  return Error(kInvalidValue, fmt::format("userArgsSize is {}, must be at most {}", user_bytes, kMaxArgsBytes))
      .Culprit("parameter userArgsSize")
      .Hint("pass large data in device memory, and its address as the parameter");
}

Status UserArgs::Create(const KernelFunction& function, void* object, void* block, size_t block_bytes) {
  static_assert(std::is_trivially_copyable_v<UserArgs> && std::is_standard_layout_v<UserArgs>);
  static_assert(offsetof(UserArgs, magic_) == offsetof(Head, magic) &&
                offsetof(UserArgs, self_) == offsetof(Head, self));
  const auto at = reinterpret_cast<uintptr_t>(object);
  if (at % alignof(UserArgs) != 0) {
    return Error(kInvalidValue,
                 fmt::format("argsHandle {} is not aligned to {} bytes", fmt::ptr(object), alignof(UserArgs)))
        .Culprit("parameter argsHandle")
        .Hint("pass memory of malloc or new");
  }
  // More than a launch takes is of no use.
  const auto capacity = static_cast<uint32_t>(std::min(block_bytes, kMaxBlock));
  const auto block_at = reinterpret_cast<uintptr_t>(block);
  if (at < block_at + capacity && block_at < at + sizeof(UserArgs)) {
    return Error(kInvalidValue,
                 fmt::format("argsHandle {} and userHostMem {} overlap", fmt::ptr(object), fmt::ptr(block)))
        .Culprit("parameters argsHandle and userHostMem")
        .Hint("pass two blocks of memory");
  }
  if (!device::CopyUntrusted(block, kZeroes, capacity)) return NotWritable("userHostMem", block, capacity);
  UserArgs made;
  made.magic_ = kMagic;
  made.self_ = object;
  made.function_ = function.handle;
  made.block_ = static_cast<std::byte*>(block);
  made.capacity_ = capacity;
  made.buffers_ = capacity;
  if (!device::CopyUntrusted(object, &made, sizeof made)) return NotWritable("argsHandle", object, sizeof made);
  return {};
}

UserArgs* UserArgs::Find(void* object) {
  if (object == nullptr || reinterpret_cast<uintptr_t>(object) % alignof(UserArgs) != 0) return nullptr;
  if (HandleKindName(HandleKindBits(object)) != nullptr) return nullptr;  // a handle, not an address
  Head head{};
  if (!device::CopyUntrusted(&head, object, sizeof head)) return nullptr;
  return head.magic == kMagic && head.self == object ? static_cast<UserArgs*>(object) : nullptr;
}

Status UserArgs::CheckFunction() const {
  auto found = FindObject(KernelFunctions(), function_, "kernel function");
  return found.ok() ? Status() : std::move(found).status();
}

Status UserArgs::NoRoom(size_t bytes) const {
  return Error(kInvalidValue, fmt::format("the memory of the argument list has {} of {} bytes left, {} are needed",
                                          buffers_ - used_, capacity_, bytes))
      .Culprit("parameter actualArgsSize of aclrtKernelArgsInitByUserMem")
      .Hint("ask aclrtKernelArgsGetMemSize with the bytes of all parameters and of the data behind placeholders");
}

StatusOr<UserArgs::Param*> UserArgs::FindParam(uint32_t param) {
  if (param < count_) return &params_[param];
  return Error(kInvalidHandle, "paramHandle does not belong to this argument list")
      .Hint("pass a handle that aclrtKernelArgsAppend or aclrtKernelArgsAppendPlaceHolder wrote for this list");
}

StatusOr<uint32_t> UserArgs::Append(const void* value, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckFunction());
  if (finalized_)
    return Error(kInvalidValue, "the argument list is finalized").Hint("append before aclrtKernelArgsFinalize");
  if (count_ >= KernelArgs::kMaxParams) {
    return Error(kInvalidValue, fmt::format("the list has {} parameters already", count_))
        .Hint("pass a structure in one parameter, or through device memory");
  }
  if (bytes > kMaxArgsBytes || RoundUp(bytes) > buffers_ - used_) return NoRoom(bytes);
  std::memcpy(block_ + used_, value, bytes);
  params_[count_] = {used_, static_cast<uint32_t>(bytes), 0, 0, false};
  used_ += static_cast<uint32_t>(RoundUp(bytes));
  return count_++;
}

StatusOr<uint32_t> UserArgs::AppendPlaceholder() {
  const void* null = nullptr;
  auto param = Append(&null, sizeof null);
  if (param.ok()) params_[*param].placeholder = true;
  return param;
}

StatusOr<void*> UserArgs::PlaceholderBuffer(uint32_t param, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckFunction());
  REPRISE_ASSIGN_OR_RETURN(Param * entry, FindParam(param));
  if (!entry->placeholder)
    return Error(kInvalidValue, fmt::format("parameter {} is not a placeholder", param))
        .Hint("pass a parameter that aclrtKernelArgsAppendPlaceHolder returned");
  if (bytes > kMaxArgsBytes) return NoRoom(bytes);
  if (bytes > entry->buffer_bytes) {
    if (bytes > buffers_ - used_) return NoRoom(bytes);
    // Down to an address that suits every number.
    const uintptr_t end = reinterpret_cast<uintptr_t>(block_) + buffers_ - bytes;
    const size_t slack = end % 8;
    if (slack > buffers_ - used_ - bytes) return NoRoom(bytes + slack);
    buffers_ -= static_cast<uint32_t>(bytes + slack);
    entry->buffer = buffers_;
  }
  entry->buffer_bytes = static_cast<uint32_t>(bytes);
  return static_cast<void*>(block_ + entry->buffer);
}

Status UserArgs::Update(uint32_t param, const void* value, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckFunction());
  REPRISE_ASSIGN_OR_RETURN(Param * entry, FindParam(param));
  if (entry->placeholder || bytes > entry->bytes) {
    return Error(kInvalidValue, fmt::format("parameter {} holds {} bytes{}, cannot take {}", param, entry->bytes,
                                            entry->placeholder ? " and is a placeholder" : "", bytes))
        .Hint("append a parameter of the new size instead");
  }
  std::memcpy(block_ + entry->offset, value, bytes);
  finalized_ = false;
  return {};
}

Status UserArgs::Finalize() {
  REPRISE_RETURN_IF_ERROR(CheckFunction());
  finalized_ = true;
  return {};
}

Status UserArgs::Launch(Stream& stream, uint32_t blocks, const LaunchAttributes& attributes) const {
  REPRISE_ASSIGN_OR_RETURN(KernelFunction * function, FindObject(KernelFunctions(), function_, "kernel function"));
  if (!finalized_) {
    return Error(kInvalidValue, "the argument list is not finalized")
        .Hint("call aclrtKernelArgsFinalize before the launch");
  }
  REPRISE_RETURN_IF_ERROR(CheckListedArgs(*function, count_, [this](size_t i) { return params_[i].bytes; }));
  std::vector<std::byte> block(block_, block_ + used_);
  std::vector<ArgumentPlaceholder> placeholders;
  for (uint32_t i = 0; i < count_; ++i) {
    const Param& param = params_[i];
    if (!param.placeholder || param.buffer_bytes == 0) continue;
    const size_t at = block.size();
    placeholders.push_back({param.offset, static_cast<uint32_t>(at)});
    block.resize(at + RoundUp(param.buffer_bytes));
    std::memcpy(block.data() + at, block_ + param.buffer, param.buffer_bytes);
  }
  return LaunchWithHostArgs(stream, *function, blocks, attributes, block.data(), block.size(), placeholders);
}

}  // namespace reprise::runtime
