// SPDX-License-Identifier: Apache-2.0
//
// What operators share that move elements and do not compute: copies between strided views, and copies whose dims are
// cut into pieces.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/remap.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {

/// 161002 where `from` is complex and the computation is not; `name` is the argument that has it.
Status CheckNotComplexToReal(const OpCall& call, kernels::DType from, std::string_view name);

// ---- Strided views ----

/// Dims of a copy between two views; joined as they come, so that more of them fit than a tensor has.
class CopyDims {
 public:
  void Add(int64_t size, int64_t out_stride, int64_t self_stride) {
    if (size == 1) return;
    if (count_ != 0 && out_strides_[count_ - 1] == size * out_stride &&
        self_strides_[count_ - 1] == size * self_stride) {
      sizes_[count_ - 1] *= size;
    } else {
      sizes_[count_++] = size;
    }
    out_strides_[count_ - 1] = out_stride;
    self_strides_[count_ - 1] = self_stride;
  }
  bool fits() const { return count_ <= kernels::kMaxRank; }
  void Apply(kernels::TensorRef& out, kernels::TensorRef& self) const {
    out.rank = self.rank = count_;
    for (int d = 0; d < count_; ++d) {
      out.sizes[d] = self.sizes[d] = sizes_[d];
      out.strides[d] = out_strides_[d];
      self.strides[d] = self_strides_[d];
    }
  }

 private:
  int count_ = 0;
  int64_t sizes_[2 * kernels::kMaxRank] = {};
  int64_t out_strides_[2 * kernels::kMaxRank] = {};
  int64_t self_strides_[2 * kernels::kMaxRank] = {};
};

/// The last input of the call to its output, whose types are these numbers of aclDataType.
void AddConvertSmall(OpCall& call, int32_t from, int32_t to);
/// out = self through these views.
void AddCopyOfViews(OpCall& call, const kernels::TensorRef& out, const kernels::TensorRef& self);

// ---- Cut dims ----

using Pieces = std::vector<kernels::RemapPiece>;

/// A dim of `size` that stays as it is.
Pieces WholeDim(int64_t size);

/// `pieces(d)` of each dim of out; out and self have the same rank.
template <class PiecesOf>
std::shared_ptr<kernels::Remap> MakeRemap(const kernels::TensorRef& out, const kernels::TensorRef& self,
                                          PiecesOf&& pieces) {
  auto remap = std::make_shared<kernels::Remap>();
  const int64_t item = kernels::ItemSize(out.dtype);
  remap->dtype = out.dtype;
  remap->dims.reserve(static_cast<size_t>(out.rank));
  for (int d = 0; d < out.rank; ++d) {
    remap->dims.push_back({out.sizes[d], out.strides[d] * item, self.strides[d] * item, pieces(d)});
  }
  remap->Finish();
  return remap;
}

/// A launch's kernel: refs 0 and 1 by the kernels::Remap that is its state.
void RunRemapLaunch(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);

/// The first output = the first input by `remap`.
void AddRemap(OpCall& call, std::shared_ptr<kernels::Remap> remap);

}  // namespace reprise::ops
