/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a tensor, with what frees it. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_
#define REPRISE_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_

#include <cstddef>
#include <cstdint>

#include "graph/ge_error_codes.h"

namespace gert {

using TensorAddress = void*;
using ConstTensorAddressPtr = const void*;

enum TensorOperateType : int32_t {
  kGetTensorAddress = 0,
  kFreeTensor = 1,
  kPlusShareCount = 2,
  kTensorOperateType = 3
};

enum TensorPlacement : int32_t {
  kOnDeviceHbm = 0,
  kOnHost = 1,
  kFollowing = 2, /* behind the tensor */
  kOnDeviceP2p = 3,
  kTensorPlacementEnd = 4
};

/* Answers ge::GRAPH_SUCCESS. `addr` is what the TensorData holds; `out` is where kGetTensorAddress puts the memory. */
using TensorAddrManager = ge::graphStatus (*)(TensorAddress addr, TensorOperateType operate_type, void** out);

/* Without a manager, the memory belongs to somebody else. Moved, not copied; ShareFrom shares. */
class TensorData {
 public:
  explicit TensorData(TensorAddress addr = nullptr, TensorAddrManager manager = nullptr)
      : TensorData(addr, manager, 0, kTensorPlacementEnd) {}
  TensorData(TensorAddress addr, TensorAddrManager manager, size_t size, TensorPlacement placement)
      : addr_(addr), manager_(manager), size_(size), placement_(placement), reserved_0_{}, reserved_1_{} {}
  TensorData(const TensorData&) = delete;
  TensorData& operator=(const TensorData&) = delete;
  TensorData(TensorData&& other) noexcept
      : addr_(other.addr_),
        manager_(other.manager_),
        size_(other.size_),
        placement_(other.placement_),
        reserved_0_{},
        reserved_1_{} {
    other.Forget();
  }
  TensorData& operator=(TensorData&& other) noexcept {
    if (this == &other) return *this;
    (void)Free();
    addr_ = other.addr_;
    manager_ = other.manager_;
    size_ = other.size_;
    placement_ = other.placement_;
    other.Forget();
    return *this;
  }
  ~TensorData() { (void)Free(); }

  TensorAddress GetAddr() const {
    if (manager_ == nullptr || addr_ == nullptr) return addr_;
    TensorAddress memory = nullptr;
    return manager_(addr_, kGetTensorAddress, &memory) == ge::GRAPH_SUCCESS ? memory : nullptr;
  }
  size_t GetSize() const { return size_; }
  void SetSize(size_t size) { size_ = size; }
  TensorPlacement GetPlacement() const { return placement_; }
  void SetPlacement(TensorPlacement placement) { placement_ = placement; }
  bool IsSharable() const { return manager_ != nullptr; }

  ge::graphStatus SetAddr(const ConstTensorAddressPtr addr, TensorAddrManager manager) {
    const ge::graphStatus status = Free();
    if (status != ge::GRAPH_SUCCESS) return status;
    addr_ = const_cast<TensorAddress>(addr);
    manager_ = manager;
    return ge::GRAPH_SUCCESS;
  }
  ge::graphStatus Free() {
    if (manager_ != nullptr && addr_ != nullptr) {
      const ge::graphStatus status = manager_(addr_, kFreeTensor, nullptr);
      if (status != ge::GRAPH_SUCCESS) return status;
    }
    addr_ = nullptr;
    manager_ = nullptr;
    return ge::GRAPH_SUCCESS;
  }
  /* Hands the memory to the caller, with what frees it. */
  TensorAddress Release(TensorAddrManager& manager) {
    manager = manager_;
    TensorAddress addr = addr_;
    Forget();
    return addr;
  }
  ge::graphStatus ShareFrom(const TensorData& other) {
    if (this == &other) return ge::GRAPH_SUCCESS;
    if (other.manager_ != nullptr && other.addr_ != nullptr) {
      const ge::graphStatus shared = other.manager_(other.addr_, kPlusShareCount, nullptr);
      if (shared != ge::GRAPH_SUCCESS) return shared;
    }
    const ge::graphStatus status = SetAddr(other.addr_, other.manager_);
    size_ = other.size_;
    placement_ = other.placement_;
    return status;
  }

 private:
  void Forget() {
    addr_ = nullptr;
    manager_ = nullptr;
    size_ = 0;
    placement_ = kTensorPlacementEnd;
  }

  TensorAddress addr_;
  TensorAddrManager manager_;
  size_t size_;
  TensorPlacement placement_;
  uint8_t reserved_0_[4];
  uint8_t reserved_1_[40];
};
static_assert(sizeof(TensorData) == 72, "programs are compiled for this size");

}  // namespace gert

#endif  // REPRISE_EXE_GRAPH_RUNTIME_TENSOR_DATA_H_
