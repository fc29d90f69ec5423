// SPDX-License-Identifier: Apache-2.0
//
// Argument lists that live in memory of the caller: the list object where the caller put the handle, parameters and
// placeholder buffers in a second block. Nothing has to be freed, so nothing is kept elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "runtime/kernel.h"

namespace reprise::runtime {

/// An argument list as KernelArgs, in memory of the caller.
///
/// Threads: thread-compatible.
class UserArgs {
 public:
  /// Bytes of the list object.
  static size_t ObjectBytes() { return sizeof(UserArgs); }
  /// Bytes of the block that holds `user_bytes` of parameters and placeholder data, whatever they are made of.
  static StatusOr<size_t> BlockBytes(size_t user_bytes);

  /// Makes an empty list at `object`. 107000 when the memory cannot be written.
  static Status Create(const KernelFunction& function, void* object, void* block, size_t block_bytes);
  /// The list at an address, or null when there is none; looks without touching memory that may not be there.
  static UserArgs* Find(void* object);

  /// Handle of the kernel that the list was made for; the kernel may have been unloaded.
  void* function_handle() const { return function_; }
  StatusOr<uint32_t> Append(const void* value, size_t bytes);
  StatusOr<uint32_t> AppendPlaceholder();
  StatusOr<void*> PlaceholderBuffer(uint32_t param, size_t bytes);
  Status Update(uint32_t param, const void* value, size_t bytes);
  Status Finalize();
  Status Launch(Stream& stream, uint32_t blocks, const LaunchAttributes& attributes) const;

 private:
  struct Param {
    uint32_t offset;
    uint32_t bytes;
    uint32_t buffer;  ///< offset of a placeholder's data
    uint32_t buffer_bytes;
    bool placeholder;
  };

  UserArgs() = default;
  Status CheckFunction() const;
  StatusOr<Param*> FindParam(uint32_t param);
  Status NoRoom(size_t bytes) const;

  uint64_t magic_ = 0;
  const void* self_ = nullptr;  // a copy of the object is no list
  void* function_ = nullptr;
  std::byte* block_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t used_ = 0;     // parameters grow from the front of the block
  uint32_t buffers_ = 0;  // and placeholder data from its end
  uint32_t count_ = 0;
  bool finalized_ = false;
  Param params_[KernelArgs::kMaxParams] = {};
};

}  // namespace reprise::runtime
