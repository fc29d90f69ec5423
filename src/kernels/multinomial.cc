// SPDX-License-Identifier: Apache-2.0
#include "kernels/multinomial.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/philox.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = 256;

// A category and the number that decides about it.
struct Candidate {
  double number;
  int64_t category;
};

// Elements [begin, begin + n) of a draw of float64 numbers.
void DrawDoubles(Distribution distribution, uint64_t seed, uint64_t position, int64_t begin, int64_t n, double* out) {
  DrawCall call;
  call.distribution = distribution;
  call.type = DType::kDouble;
  call.a = distribution == Distribution::kExponential ? 1 : 0;
  call.b = 1;
  call.count = begin + n;
  // The draw counts elements from its first one.
  call.out = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(out) - static_cast<uintptr_t>(begin) * sizeof(double));
  Draw(call, seed, position, {begin, begin + n});
}

}  // namespace

int64_t MultinomialScratchBytes(int64_t categories) {
  return Arena::BytesFor(categories * 8) + Arena::BytesFor(categories * 16);
}

void Multinomial(const TensorRef& weights, bool replacement, uint64_t seed, uint64_t position, const TensorRef& out,
                 void* scratch, Range range) {
  const int64_t categories = weights.sizes[weights.rank - 1];
  const int64_t samples = out.sizes[out.rank - 1];
  Arena arena(scratch);
  double* row_buffer = arena.Take<double>(categories);
  auto* candidates = arena.Take<Candidate>(categories);
  const Staged<double> rows(weights);
  const Staged<int64_t> result(out);
  double numbers[kChunk];
  int64_t chosen[kChunk];
  for (int64_t row = range.begin; row < range.end; ++row) {
    const double* weight = rows.Read(row * categories, categories, row_buffer);
    const auto weight_of = [&](int64_t c) {
      return weight[c] > 0 && weight[c] <= std::numeric_limits<double>::max() ? weight[c] : 0.0;
    };
    if (replacement) {
      double sum = 0;
      int64_t last = 0;
      for (int64_t c = 0; c < categories; ++c) {
        if (weight_of(c) > 0) last = c;
        sum += weight_of(c);
        row_buffer[c] = sum;
      }
      for (int64_t first = 0; first < samples; first += kChunk) {
        const int64_t n = std::min(kChunk, samples - first);
        const int64_t begin = row * samples + first;
        DrawDoubles(Distribution::kUniform, seed, position, begin, n, numbers);
        int64_t* to = result.Target(begin, chosen);
        for (int64_t i = 0; i < n; ++i) {
          const double* at = std::upper_bound(row_buffer, row_buffer + categories, numbers[i] * sum);
          to[i] = std::min<int64_t>(at - row_buffer, last);
        }
        result.Write(begin, n, chosen);
      }
      continue;
    }
    for (int64_t first = 0; first < categories; first += kChunk) {
      const int64_t n = std::min(kChunk, categories - first);
      DrawDoubles(Distribution::kExponential, seed, position, row * categories + first, n, numbers);
      for (int64_t i = 0; i < n; ++i) {
        const double w = weight_of(first + i);
        candidates[first + i] = {w > 0 ? numbers[i] / w : std::numeric_limits<double>::infinity(), first + i};
      }
    }
    std::partial_sort(candidates, candidates + samples, candidates + categories,
                      [](const Candidate& a, const Candidate& b) {
                        return a.number != b.number ? a.number < b.number : a.category < b.category;
                      });
    for (int64_t first = 0; first < samples; first += kChunk) {
      const int64_t n = std::min(kChunk, samples - first);
      int64_t* to = result.Target(row * samples + first, chosen);
      for (int64_t i = 0; i < n; ++i) to[i] = candidates[first + i].category;
      result.Write(row * samples + first, n, chosen);
    }
  }
}

}  // namespace reprise::kernels
