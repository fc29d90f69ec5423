// SPDX-License-Identifier: Apache-2.0
#include "kernels/token_sampling.h"

#include <algorithm>
#include <cmath>

#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

template <class T>
T Load(const TensorRef& ref, int64_t index) {
  T value;
  FindCast(ref.dtype, DTypeOf<T>())(ElementAt(ref, OffsetOf(ref, ref.rank, index)), 0, reinterpret_cast<char*>(&value),
                                    sizeof(T), 1);
  return value;
}

template <class T>
void Store(const TensorRef& ref, int64_t index, T value) {
  FindCast(DTypeOf<T>(), ref.dtype)(reinterpret_cast<const char*>(&value), 0,
                                    ElementAt(ref, OffsetOf(ref, ref.rank, index)), 0, 1);
}

template <class T>
void LoadRow(const TensorRef& ref, int64_t row, int64_t n, T* to) {
  FindCast(ref.dtype, DTypeOf<T>())(ElementAt(ref, row * ref.strides[0]), ref.strides[1] * ItemSize(ref.dtype),
                                    reinterpret_cast<char*>(to), sizeof(T), n);
}

template <class T>
void StoreRow(const TensorRef& ref, int64_t row, int64_t n, const T* from) {
  FindCast(DTypeOf<T>(), ref.dtype)(reinterpret_cast<const char*>(from), sizeof(T),
                                    ElementAt(ref, row * ref.strides[0]), ref.strides[1] * ItemSize(ref.dtype), n);
}

// Works on one row after the other.
class Row {
 public:
  Row(const TokenSampling& sampling, void* scratch)
      : sampling_(sampling), n_(sampling.logits->sizes[1]), cutter_(scratch) {
    logits_ = cutter_.Cut<double>(n_);
    weights_ = cutter_.Cut<double>(n_);
    buffer_ = cutter_.Cut<double>(n_);
    order_ = cutter_.Cut<int64_t>(n_);
  }

  void Run(int64_t row) {
    LoadRow(*sampling_.logits, row, n_, logits_);
    for (int64_t i = 0; i < n_; ++i) {
      double& x = logits_[i];
      if (!sampling_.is_logits) x = std::log(x);
      if (std::isnan(x)) x = -INFINITY;
      order_[i] = i;
    }
    std::sort(order_, order_ + n_,
              [this](int64_t a, int64_t b) { return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b); });
    kept_ = n_;
    KeepLargest(Load<int64_t>(*sampling_.top_k, row));
    Weigh();
    KeepLikely(Load<double>(*sampling_.top_p, row));
    if (sampling_.min_p != nullptr) {
      const double least = Load<double>(*sampling_.min_p, row) * weights_[0];
      while (kept_ > 1 && weights_[kept_ - 1] < least) --kept_;
    }
    Weigh();
    Choose(row);
    Tell(row);
  }

 private:
  double LogitAt(int64_t place) const { return logits_[order_[place]]; }

  void KeepLargest(int64_t k) {
    if (k < 1 || k > std::min(n_, sampling_.most_k)) return;
    kept_ = k;
    while (kept_ < n_ && LogitAt(kept_) == LogitAt(k - 1)) ++kept_;
  }

  // The softmax of what is kept, by descending logits.
  void Weigh() {
    const double largest = LogitAt(0);
    double sum = 0;
    for (int64_t i = 0; i < kept_; ++i) {
      // Infinite ones share what there is.
      weights_[i] = LogitAt(i) == largest ? 1 : std::exp(LogitAt(i) - largest);
      sum += weights_[i];
    }
    for (int64_t i = 0; i < kept_; ++i) weights_[i] /= sum;
  }

  void KeepLikely(double p) {
    if (!(p < 1)) return;
    double sum = 0;
    int64_t last = kept_;
    while (last > 1 && sum + weights_[last - 1] <= 1 - p) sum += weights_[--last];
    kept_ = last;
  }

  void Choose(int64_t row) {
    int64_t token = order_[0];
    if (sampling_.q != nullptr) {
      LoadRow(*sampling_.q, row, n_, buffer_);
      double best = -1;
      for (int64_t i = 0; i < kept_; ++i) {
        const int64_t candidate = order_[i];
        const double score = weights_[i] / (std::fabs(buffer_[candidate]) + sampling_.eps);
        if (score > best || (score == best && candidate < token)) {
          best = score;
          token = candidate;
        }
      }
    }
    Store(*sampling_.token, row, token);
  }

  void Tell(int64_t row) {
    if (sampling_.kept != nullptr) {
      std::fill_n(buffer_, n_, sampling_.is_logits ? -INFINITY : 0.0);
      LoadRow(*sampling_.logits, row, n_, logits_);
      for (int64_t i = 0; i < kept_; ++i) buffer_[order_[i]] = logits_[order_[i]];
      StoreRow(*sampling_.kept, row, n_, buffer_);
    }
    if (sampling_.order != nullptr) StoreRow(*sampling_.order, row, n_, order_);
    if (sampling_.sorted != nullptr) {
      std::fill(weights_ + kept_, weights_ + n_, 0.0);
      StoreRow(*sampling_.sorted, row, n_, weights_);
    }
  }

  const TokenSampling& sampling_;
  int64_t n_;
  ScratchCutter cutter_;
  double* logits_;
  double* weights_;
  double* buffer_;
  int64_t* order_;
  int64_t kept_ = 0;
};

}  // namespace

int64_t TokenSamplingScratchBytes(int64_t vocabulary) {
  return 3 * ScratchCutter::Bytes<double>(vocabulary) + ScratchCutter::Bytes<int64_t>(vocabulary);
}

void SampleTokens(const TokenSampling& sampling, void* scratch, Range rows) {
  Row row(sampling, scratch);
  for (int64_t i = rows.begin; i < rows.end; ++i) row.Run(i);
}

void AdvanceSequences(const AdvanceStep& step, Range sequences) {
  const int64_t blocks = step.blocks->sizes[1];
  for (int64_t i = sequences.begin; i < sequences.end; ++i) {
    const auto position = Load<int64_t>(*step.lengths, i);
    Store(*step.tokens, i, Load<int64_t>(*step.sampled, i));
    Store(*step.positions, i, position);
    Store(*step.lengths, i, position + 1);
    if (position < 0 || position / step.block_size >= blocks) continue;
    const auto block = Load<int64_t>(*step.blocks, i * blocks + position / step.block_size);
    Store(*step.slots, i, block * step.block_size + position % step.block_size);
  }
}

}  // namespace reprise::kernels
