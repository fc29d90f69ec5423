// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer_steps.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;

// A block of a tensor that is read, changed and written.
class Block {
 public:
  explicit Block(const TensorRef* ref) {
    if (ref != nullptr) numbers_.emplace(*ref);
  }

  double* Load(int64_t begin, int64_t n) {
    if (!numbers_) {
      std::fill_n(values_, n, 0.0);
      return values_;
    }
    std::copy_n(numbers_->Read(begin, n, other_), n, values_);
    return values_;
  }
  void Store(int64_t begin, int64_t n) {
    if (!numbers_) return;
    std::copy_n(values_, n, numbers_->Target(begin, other_));
    numbers_->Write(begin, n, other_);
  }

 private:
  std::optional<Staged<double>> numbers_;
  double values_[kBlock];
  double other_[kBlock];
};

// Calls fn(i) for the elements of each block, with the blocks loaded before and those of `changed` stored behind it.
template <class Fn>
void ForEachBlock(std::initializer_list<Block*> all, std::initializer_list<Block*> changed, Range range, Fn&& fn) {
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    double* rows[8] = {};
    size_t count = 0;
    for (Block* block : all) rows[count++] = block->Load(begin, n);
    for (int64_t i = 0; i < n; ++i) fn(rows, i);
    for (Block* block : changed) block->Store(begin, n);
  }
}

double Decayed(const OptimizerNumbers& numbers, double gradient, double var) {
  const double g = numbers.maximize ? -gradient : gradient;
  return numbers.decay == 0 ? g : g + numbers.decay * var;
}

double Larger(double old, double now) { return old > now || std::isnan(old) ? old : now; }

}  // namespace

void AdamStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range) {
  Block var(tensors.var), m(tensors.m), v(tensors.v), gradient(tensors.gradient);
  const double rate = numbers.rate * std::sqrt(1 - numbers.power2) / (1 - numbers.power1);
  ForEachBlock({&var, &m, &v, &gradient}, {&var, &m, &v}, range, [&](double* const* rows, int64_t i) {
    const double g = rows[3][i];
    rows[1][i] += (g - rows[1][i]) * (1 - numbers.beta1);
    rows[2][i] += (g * g - rows[2][i]) * (1 - numbers.beta2);
    const double n = numbers.nesterov ? rows[1][i] * numbers.beta1 + (1 - numbers.beta1) * g : rows[1][i];
    rows[0][i] -= rate * n / (std::sqrt(rows[2][i]) + numbers.epsilon);
  });
}

void TorchAdamStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range) {
  Block var(tensors.var), m(tensors.m), v(tensors.v), largest(tensors.largest), gradient(tensors.gradient);
  const double rate = numbers.rate / (1 - numbers.power1);
  const double root = std::sqrt(1 - numbers.power2);
  const bool has_largest = tensors.largest != nullptr;
  Block nothing(nullptr);
  ForEachBlock({&var, &m, &v, &largest, &gradient},
               {&var, &m, &v, &largest, numbers.stores_gradient ? &gradient : &nothing}, range,
               [&](double* const* rows, int64_t i) {
                 const double plain = rows[4][i] / numbers.scale;
                 rows[4][i] = plain;
                 const double g = Decayed(numbers, plain, rows[0][i]);
                 rows[1][i] += (g - rows[1][i]) * (1 - numbers.beta1);
                 rows[2][i] += (g * g - rows[2][i]) * (1 - numbers.beta2);
                 double w = rows[2][i];
                 if (has_largest) w = rows[3][i] = Larger(rows[3][i], w);
                 rows[0][i] -= rate * rows[1][i] / (std::sqrt(w) / root + numbers.epsilon);
               });
}

void SgdStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range) {
  Block var(tensors.var), buffer(tensors.m), gradient(tensors.gradient);
  const bool has_buffer = tensors.m != nullptr;
  Block nothing(nullptr);
  ForEachBlock({&var, &buffer, &gradient}, {&var, &buffer, numbers.stores_gradient ? &gradient : &nothing}, range,
               [&](double* const* rows, int64_t i) {
                 const double plain = rows[2][i] / numbers.scale;
                 rows[2][i] = plain;
                 double g = Decayed(numbers, plain, rows[0][i]);
                 if (has_buffer) {
                   double& b = rows[1][i];
                   b = numbers.is_first ? g : numbers.momentum * b + (1 - numbers.dampening) * g;
                   g = numbers.nesterov ? g + numbers.momentum * b : b;
                 }
                 rows[0][i] -= numbers.rate * g;
               });
}

double FirstNumber(const TensorRef* ref, double missing) {
  return ref == nullptr ? missing : Scalar(ref->dtype, ref->data).As<double>();
}

void UpdateScale(const ScaleUpdate& update) {
  const auto store = [](const TensorRef* ref, auto value) {
    FindCast(DTypeOf<decltype(value)>(), ref->dtype)(reinterpret_cast<const char*>(&value), 0,
                                                     static_cast<char*>(ref->data), 0, 1);
  };
  auto scale = static_cast<float>(FirstNumber(update.scale, 0));
  auto tracker = static_cast<int64_t>(FirstNumber(update.tracker, 0));
  if (FirstNumber(update.found_inf, 0) > 0) {
    scale = static_cast<float>(scale * update.backoff);
    tracker = 0;
  } else if (++tracker == update.interval) {
    const auto grown = static_cast<float>(scale * update.growth);
    if (std::isfinite(grown)) scale = grown;
    tracker = 0;
  }
  store(update.new_scale, scale);
  store(update.new_tracker, tracker);
}

}  // namespace reprise::kernels
