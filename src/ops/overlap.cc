// SPDX-License-Identifier: Apache-2.0
#include "ops/overlap.h"

#include <algorithm>
#include <numeric>

namespace reprise::ops {
namespace {

using Wide = __int128;

// One unknown: step * k with low <= k <= high.
struct Term {
  int64_t step;
  int64_t low;
  int64_t high;
};

// The dims of a view that lead to other bytes, smallest stride first.
struct Steps {
  struct Step {
    int64_t bytes;
    int64_t count;
  };
  int size = 0;
  Step steps[kernels::kMaxRank];

  explicit Steps(const kernels::TensorRef& ref) {
    for (int d = 0; d < ref.rank; ++d) {
      const int64_t bytes = ref.strides[d] * kernels::ItemSize(ref.dtype);
      if (ref.sizes[d] > 1 && bytes != 0) steps[size++] = {bytes, ref.sizes[d]};
    }
    std::sort(steps, steps + size, [](const Step& a, const Step& b) { return a.bytes < b.bytes; });
  }

  // Fewer dims with the same bytes; what lies back to back becomes the element, whose width it returns.
  int64_t Join(int64_t width) {
    int kept = 0;
    for (int d = 0; d < size; ++d) {
      const Step& next = steps[d];
      if (kept == 0 && next.bytes <= width) {
        width += next.bytes * (next.count - 1);
      } else if (kept != 0 && next.bytes % steps[kept - 1].bytes == 0 &&
                 next.bytes / steps[kept - 1].bytes <= steps[kept - 1].count) {
        steps[kept - 1].count += (next.count - 1) * (next.bytes / steps[kept - 1].bytes);
      } else {
        steps[kept++] = next;
      }
    }
    size = kept;
    return width;
  }
};

// Whether the sum of some terms can fall into a range.
class Search {
 public:
  void Add(int64_t step, int64_t low, int64_t high) {
    for (int i = 0; i < size_; ++i) {
      if (terms_[i].step != step) continue;
      terms_[i].low += low;
      terms_[i].high += high;
      return;
    }
    terms_[size_++] = {step, low, high};
  }

  Overlap Run(Wide low, Wide high) {
    std::sort(terms_, terms_ + size_, [](const Term& a, const Term& b) { return a.step > b.step; });
    rest_[size_] = {0, 0, 0};
    for (int i = size_ - 1; i >= 0; --i) {
      const Term& term = terms_[i];
      rest_[i] = {rest_[i + 1].low + Wide{term.step} * term.low, rest_[i + 1].high + Wide{term.step} * term.high,
                  std::gcd(rest_[i + 1].divisor, term.step)};
    }
    return Descend(0, low, high);
  }

 private:
  struct Rest {  // the sums that the terms from here on can have
    Wide low, high;
    int64_t divisor;
  };

  static Wide FloorDivide(Wide value, Wide by) { return value / by - (value % by < 0 ? 1 : 0); }

  Overlap Descend(int at, Wide low, Wide high) {
    if (at == size_) return low <= 0 && 0 <= high ? Overlap::kSome : Overlap::kNone;
    const int64_t divisor = rest_[at].divisor;  // of every sum
    if (FloorDivide(high, divisor) * divisor < low) return Overlap::kNone;
    const Term& term = terms_[at];
    const Rest& rest = rest_[at + 1];
    const Wide first = std::max<Wide>(term.low, -FloorDivide(rest.high - low, term.step));
    const Wide last = std::min<Wide>(term.high, FloorDivide(high - rest.low, term.step));
    if (rest.divisor == 0) return first <= last ? Overlap::kSome : Overlap::kNone;
    for (Wide k = first; k <= last; ++k) {
      if (--budget_ < 0) return Overlap::kUnknown;
      const Overlap found = Descend(at + 1, low - k * term.step, high - k * term.step);
      if (found != Overlap::kNone) return found;
    }
    return Overlap::kNone;
  }

  int size_ = 0;
  int budget_ = 4096;
  Term terms_[2 * kernels::kMaxRank];
  Rest rest_[2 * kernels::kMaxRank + 1];
};

}  // namespace

Overlap OverlapOf(const kernels::TensorRef& a, const kernels::TensorRef& b) {
  Steps of_a(a);
  Steps of_b(b);
  const int64_t width_of_a = of_a.Join(kernels::ItemSize(a.dtype));
  const int64_t width_of_b = of_b.Join(kernels::ItemSize(b.dtype));
  // An element of a begins i bytes behind the first one, one of b j bytes: they meet where i - j is near the distance.
  Search search;
  for (int d = 0; d < of_a.size; ++d) search.Add(of_a.steps[d].bytes, 0, of_a.steps[d].count - 1);
  for (int d = 0; d < of_b.size; ++d) search.Add(of_b.steps[d].bytes, 1 - of_b.steps[d].count, 0);
  const Wide distance =
      static_cast<Wide>(reinterpret_cast<uintptr_t>(b.data)) - static_cast<Wide>(reinterpret_cast<uintptr_t>(a.data));
  return search.Run(distance - width_of_a + 1, distance + width_of_b - 1);
}

Overlap OverlapWithin(const kernels::TensorRef& ref) {
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] > 1 && ref.strides[d] == 0) return Overlap::kSome;
  }
  const Steps steps(ref);
  const int64_t width = kernels::ItemSize(ref.dtype);
  // Most views nest: each stride is beyond all that the smaller ones reach.
  Wide reach = width;
  bool nests = true;
  for (int d = 0; d < steps.size; ++d) {
    nests = nests && steps.steps[d].bytes >= reach;
    reach += Wide{steps.steps[d].bytes} * (steps.steps[d].count - 1);
  }
  if (nests) return Overlap::kNone;
  // Two elements differ in some dims; the one of these with the largest stride by a positive number of steps.
  for (int lead = 0; lead < steps.size; ++lead) {
    Search search;
    const int64_t bytes = steps.steps[lead].bytes;
    for (int d = 0; d < lead; ++d) {
      search.Add(steps.steps[d].bytes, 1 - steps.steps[d].count, steps.steps[d].count - 1);
    }
    search.Add(bytes, 0, steps.steps[lead].count - 2);  // steps beyond the first
    const Overlap found = search.Run(Wide{1 - width} - bytes, Wide{width - 1} - bytes);
    if (found != Overlap::kNone) return found;
  }
  return Overlap::kNone;
}

}  // namespace reprise::ops
