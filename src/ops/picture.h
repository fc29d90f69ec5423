// SPDX-License-Identifier: Apache-2.0
//
// Pictures, as chains of convolutions see them (picture_chain.h): contiguous tensors [N, C, ..] of float32, and the
// same elements with channels behind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/strided.h"
#include "ops/launch.h"

namespace reprise::ops::pictures {

struct Bytes {
  uintptr_t begin = 0, end = 0;
  bool Overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
  bool Contains(const Bytes& other) const { return begin <= other.begin && other.end <= end; }
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

inline Bytes BytesOf(const kernels::TensorRef& ref) {
  const auto begin = reinterpret_cast<uintptr_t>(ref.data);
  return {begin, begin + ExtentBytes(ref)};
}

/// A contiguous tensor [N, C, ..].
struct Picture {
  Bytes bytes;
  int64_t batch = 0, channels = 0, plane = 0;

  int64_t count() const { return batch * channels * plane; }
  bool IsRow(const kernels::TensorRef& ref) const {
    return ref.dtype == kernels::DType::kFloat && BytesOf(ref) == bytes && kernels::IsContiguous(ref) &&
           kernels::ElementCount(ref) == count();
  }
  void* data() const { return reinterpret_cast<void*>(bytes.begin); }
};

/// Of a view of rank 5 that is one.
inline std::optional<Picture> PictureOf(const kernels::TensorRef& ref) {
  if (ref.dtype != kernels::DType::kFloat || !kernels::IsContiguous(ref)) return std::nullopt;
  return Picture{BytesOf(ref), ref.sizes[0], ref.sizes[1], ref.sizes[2] * ref.sizes[3] * ref.sizes[4]};
}

/// Whether the view, whose dims are [N, C, ..], reads the picture, whole or by steps.
inline bool IsViewOf(const Picture& picture, const kernels::TensorRef& ref) {
  return ref.dtype == kernels::DType::kFloat && ref.data == picture.data() && ref.sizes[0] == picture.batch &&
         ref.sizes[1] == picture.channels && (ref.sizes[1] == 1 || ref.strides[1] == picture.plane) &&
         (ref.sizes[0] == 1 || ref.strides[0] == picture.plane * picture.channels) &&
         picture.bytes.Contains(BytesOf(ref));
}

/// The same view of a picture whose channels lie behind, at `pixels`.
inline kernels::TensorRef Behind(kernels::TensorRef ref, int64_t channels, float* pixels) {
  ref.data = pixels;
  ref.strides[1] = 1;
  for (int d = 2; d < ref.rank; ++d) ref.strides[d] *= channels;
  return ref;
}

/// A view [N, .., C] as [N, C, ..], and the other way round.
inline kernels::TensorRef ChannelsSecond(kernels::TensorRef ref) {
  std::rotate(ref.sizes + 1, ref.sizes + ref.rank - 1, ref.sizes + ref.rank);
  std::rotate(ref.strides + 1, ref.strides + ref.rank - 1, ref.strides + ref.rank);
  return ref;
}
inline kernels::TensorRef ChannelsLast(kernels::TensorRef ref) {
  std::rotate(ref.sizes + 1, ref.sizes + 2, ref.sizes + ref.rank);
  std::rotate(ref.strides + 1, ref.strides + 2, ref.strides + ref.rank);
  return ref;
}

inline kernels::TensorRef PlanesOf(const Picture& picture) {
  return kernels::MakeContiguous(picture.data(), kernels::DType::kFloat,
                                 {picture.batch, picture.channels, 1, 1, picture.plane});
}

/// Rows of channels for all pixels, as [1, channels, 1, 1, pixels].
inline kernels::TensorRef RowsOf(float* data, int64_t pixels, int64_t channels) {
  kernels::TensorRef ref = kernels::MakeContiguous(data, kernels::DType::kFloat, {1, pixels, 1, 1, channels});
  std::swap(ref.sizes[1], ref.sizes[4]);
  std::swap(ref.strides[1], ref.strides[4]);
  return ref;
}

}  // namespace reprise::ops::pictures
