// SPDX-License-Identifier: Apache-2.0
//
// What operators on streams of hidden states share: tensors [.., streams, size], and tensors with the same dims in
// front.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/op_call.h"

namespace reprise::ops {

inline constexpr int64_t kMostStreams = 64;

struct StreamSizes {
  int64_t tokens, streams, size;

  int64_t width() const { return streams * size; }
};

/// \pre x has two dims or more.
inline StreamSizes StreamSizesOf(const Operand& x) {
  const std::span<const int64_t> sizes = x.sizes();
  StreamSizes streams{1, sizes[sizes.size() - 2], sizes[sizes.size() - 1]};
  for (const int64_t d : sizes.first(sizes.size() - 2)) streams.tokens *= d;
  return streams;
}

/// Reads x [.., streams, size]; `outer` becomes its dims but the last two.
inline Status ReadStreams(const OpCall& call, const Operand& x, StreamSizes& sizes, Dims& outer) {
  if (x.rank() < 2 || x.sizes()[static_cast<size_t>(x.rank()) - 2] > kMostStreams) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected [.., streams, size] with {} streams at most",
                                              ShapeText(x.sizes()), kMostStreams));
  }
  outer.assign(x.sizes().data(), x.sizes().size() - 2);
  sizes = StreamSizesOf(x);
  return {};
}

inline Dims With(const Dims& outer, std::initializer_list<int64_t> more) {
  Dims shape = outer;
  for (const int64_t d : more) shape.push_back(d);
  return shape;
}

/// An operand that may be absent has `shape`.
inline Status CheckOptional(OpCall& call, std::string_view name, const Dims& shape, std::string_view what) {
  if (!call.Has(name) || call.Find(name) == nullptr) return {};
  return call.CheckShape(call.Get(name), shape, [&] { return std::string(what); });
}

/// The sum of a[i] * b[i], in eight lanes for vectors to hold.
template <class T>
T Dot(const T* a, const T* b, int64_t count) {
  T lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 8; ++k) lanes[k] += a[i + k] * b[i + k];
  }
  for (; i < count; ++i) lanes[i % 8] += a[i] * b[i];
  for (int64_t half = 4; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

}  // namespace reprise::ops
