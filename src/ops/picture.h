// SPDX-License-Identifier: Apache-2.0
//
// Pictures, as chains of convolutions see them (picture_chain.h): contiguous tensors [N, C, ..] of float32, and the
// same elements with channels behind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

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

/// The first of the channels that the view, whose dims are [N, C, ..], reads of the picture, whole planes or by steps;
/// -1: it reads something else.
inline int64_t FirstChannelOf(const Picture& picture, const kernels::TensorRef& ref) {
  const auto plane_bytes = static_cast<uint64_t>(picture.plane) * sizeof(float);
  if (ref.dtype != kernels::DType::kFloat || plane_bytes == 0 || !picture.bytes.Contains(BytesOf(ref))) return -1;
  const uint64_t before = reinterpret_cast<uintptr_t>(ref.data) - picture.bytes.begin;
  const auto first = static_cast<int64_t>(before / plane_bytes);
  if (before % plane_bytes != 0 || ref.sizes[0] != picture.batch || first + ref.sizes[1] > picture.channels) return -1;
  if (ref.sizes[1] != 1 && ref.strides[1] != picture.plane) return -1;
  if (ref.sizes[0] != 1 && ref.strides[0] != picture.plane * picture.channels) return -1;
  int64_t last = 0;  // element of the plane
  for (int d = 2; d < ref.rank; ++d) last += (ref.sizes[d] - 1) * ref.strides[d];
  return last < picture.plane ? first : -1;
}

/// The channel of the picture [N, C, plane] that each channel of a copy of `from` is, where `to`, of the same sizes, is
/// contiguous [N, .., plane] and takes whole planes of the picture of the same place in the batch; empty: it is another
/// copy.
inline std::vector<int32_t> OrderOfChannels(const Picture& picture, const kernels::TensorRef& from,
                                            const kernels::TensorRef& to) {
  const int64_t count = kernels::ElementCount(to);
  const int64_t of_picture = picture.channels * picture.plane;
  if (count == 0 || from.rank == 0 || from.rank != to.rank || !picture.bytes.Contains(BytesOf(from))) return {};
  // Planes lie in the innermost dim.
  if (from.strides[from.rank - 1] != 1 || picture.plane == 0 || from.sizes[from.rank - 1] % picture.plane != 0)
    return {};
  if (count % (picture.batch * picture.plane) != 0) return {};
  const int64_t channels = count / (picture.batch * picture.plane);
  const int64_t begin =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(from.data) - picture.bytes.begin) / int64_t{sizeof(float)};
  std::vector<int32_t> order(static_cast<size_t>(channels));
  for (int64_t row = 0; row < picture.batch * channels; ++row) {
    int64_t left = row * picture.plane;
    int64_t at = begin - row / channels * of_picture;
    for (int d = from.rank; d-- > 0; left /= to.sizes[d]) at += left % to.sizes[d] * from.strides[d];
    if (at < 0 || at >= of_picture || at % picture.plane != 0) return {};
    int32_t& channel = order[static_cast<size_t>(row % channels)];
    if (row >= channels && channel != at / picture.plane) return {};
    channel = static_cast<int32_t>(at / picture.plane);
  }
  return order;
}

/// Whether the view, whose dims are [N, C, ..], reads planes of so many elements as they lie.
inline bool HasPlanes(const kernels::TensorRef& ref, int64_t plane) {
  int64_t step = 1;
  for (int d = ref.rank - 1; d >= 2; step *= ref.sizes[d--]) {
    if (ref.sizes[d] != 1 && ref.strides[d] != step) return false;
  }
  return step == plane;
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
