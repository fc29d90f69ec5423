// SPDX-License-Identifier: Apache-2.0
#include "kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::kernels {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log(e^a + e^b + e^c)
double LogSum(double a, double b, double c = kNever) {
  const double most = std::max({a, b, c});
  if (most == kNever) return kNever;
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

// The labels of an item with blanks around them.
struct Labels {
  const int64_t* targets;
  int64_t count;  // 2 * length + 1
  int64_t blank;
  int64_t classes;

  Labels(const CtcShape& shape, const int64_t* all, int64_t item)
      : targets(all + shape.target_begins[static_cast<size_t>(item)]),
        count(2 * shape.target_lengths[static_cast<size_t>(item)] + 1),
        blank(shape.blank),
        classes(shape.classes) {}

  int64_t operator[](int64_t s) const {
    if (s % 2 == 0) return blank;
    const int64_t label = targets[s / 2];
    return label >= 0 && label < classes ? label : blank;
  }
  // Whether s may follow s - 2 at once.
  bool MaySkip(int64_t s) const { return s >= 2 && (*this)[s] != blank && (*this)[s] != (*this)[s - 2]; }
};

template <class T>
void Loss(const CtcShape& shape, const T* log_probs, const int64_t* targets, T* loss, T* alpha, Range items) {
  const int64_t step = shape.items * shape.classes;
  for (int64_t n = items.begin; n < items.end; ++n) {
    const Labels labels(shape, targets, n);
    const int64_t times = shape.input_lengths[static_cast<size_t>(n)];
    T* rows = alpha + n * shape.times * shape.alpha_stride;
    std::fill_n(rows, shape.times * shape.alpha_stride, static_cast<T>(kNever));
    for (int64_t t = 0; t < times; ++t) {
      const T* emitted = log_probs + t * step + n * shape.classes;
      T* row = rows + t * shape.alpha_stride;
      const T* before = row - shape.alpha_stride;
      for (int64_t s = 0; s < labels.count; ++s) {
        double way = kNever;
        if (t == 0) {
          way = s < 2 ? 0.0 : kNever;
        } else {
          way = LogSum(before[s], s > 0 ? static_cast<double>(before[s - 1]) : kNever,
                       labels.MaySkip(s) ? static_cast<double>(before[s - 2]) : kNever);
        }
        row[s] = static_cast<T>(way + static_cast<double>(emitted[labels[s]]));
      }
    }
    double probability = kNever;
    if (times == 0) {
      probability = labels.count == 1 ? 0.0 : kNever;
    } else {
      const T* last = rows + (times - 1) * shape.alpha_stride;
      probability =
          LogSum(last[labels.count - 1], labels.count > 1 ? static_cast<double>(last[labels.count - 2]) : kNever);
    }
    loss[n] = static_cast<T>(-probability);
  }
}

template <class T>
void Gradient(const CtcShape& shape, const T* grad, const T* log_probs, const int64_t* targets, const T* loss,
              const T* alpha, T* out, double* scratch, Range items) {
  const int64_t step = shape.items * shape.classes;
  const int64_t width = 2 * shape.longest() + 1;
  double* beta = scratch;
  double* next = scratch + width;
  double* sums = scratch + 2 * width;
  for (int64_t n = items.begin; n < items.end; ++n) {
    const Labels labels(shape, targets, n);
    const int64_t times = shape.input_lengths[static_cast<size_t>(n)];
    const T* rows = alpha + n * shape.times * shape.alpha_stride;
    for (int64_t t = times; t < shape.times; ++t) std::fill_n(out + t * step + n * shape.classes, shape.classes, T(0));
    const auto negative = static_cast<double>(loss[n]);
    bool is_lost = false;
    if (shape.zero_infinity && times > 0) {
      const T* last = rows + (times - 1) * shape.alpha_stride;
      is_lost = LogSum(last[labels.count - 1],
                       labels.count > 1 ? static_cast<double>(last[labels.count - 2]) : kNever) == kNever;
    }
    for (int64_t t = times - 1; t >= 0; --t) {
      const T* emitted = log_probs + t * step + n * shape.classes;
      T* to = out + t * step + n * shape.classes;
      if (is_lost) {
        std::fill_n(to, shape.classes, T(0));
        continue;
      }
      std::swap(beta, next);
      std::fill_n(sums, shape.classes, kNever);
      for (int64_t s = labels.count - 1; s >= 0; --s) {
        double way = kNever;
        if (t == times - 1) {
          way = s + 2 >= labels.count ? 0.0 : kNever;
        } else {
          way = LogSum(next[s], s + 1 < labels.count ? next[s + 1] : kNever,
                       s + 2 < labels.count && labels.MaySkip(s + 2) ? next[s + 2] : kNever);
        }
        const int64_t label = labels[s];
        beta[s] = way + static_cast<double>(emitted[label]);
        sums[label] = LogSum(sums[label], static_cast<double>(rows[t * shape.alpha_stride + s]) + beta[s]);
      }
      for (int64_t c = 0; c < shape.classes; ++c) {
        const auto log_prob = static_cast<double>(emitted[c]);
        to[c] = static_cast<T>((std::exp(log_prob) - std::exp(sums[c] + negative - log_prob)) *
                               static_cast<double>(grad[n]));
      }
    }
  }
}

}  // namespace

int64_t CtcShape::longest() const {
  int64_t most = 0;
  for (const int64_t length : target_lengths) most = std::max(most, length);
  return most;
}

void CtcLoss(const CtcShape& shape, DType type, const void* log_probs, const int64_t* targets, void* loss, void* alpha,
             Range items) {
  if (type == DType::kDouble) {
    return Loss(shape, static_cast<const double*>(log_probs), targets, static_cast<double*>(loss),
                static_cast<double*>(alpha), items);
  }
  Loss(shape, static_cast<const float*>(log_probs), targets, static_cast<float*>(loss), static_cast<float*>(alpha),
       items);
}

void CtcGradient(const CtcShape& shape, DType type, const void* grad, const void* log_probs, const int64_t* targets,
                 const void* loss, const void* alpha, void* out, void* scratch, Range items) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Gradient(shape, static_cast<const T*>(grad), static_cast<const T*>(log_probs), targets, static_cast<const T*>(loss),
             static_cast<const T*>(alpha), static_cast<T*>(out), static_cast<double*>(scratch), items);
  };
  type == DType::kDouble ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

int64_t CtcScratchBytes(const CtcShape& shape) {
  return (2 * (2 * shape.longest() + 1) + shape.classes) * static_cast<int64_t>(sizeof(double));
}

}  // namespace reprise::kernels
