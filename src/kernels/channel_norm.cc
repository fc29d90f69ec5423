// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel_norm.h"

#include <cmath>

#include "kernels/plane.h"
#include "kernels/simd/centred_sums.h"
#include "kernels/sum_tree.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = kSumBlock;
constexpr int64_t kColumns = 128;  // channels side by side
constexpr int64_t kRowBlock = 64;

TensorRef WithoutDims(const TensorRef& ref, int first, int count) {
  TensorRef rest = ref;
  rest.rank = ref.rank - count;
  for (int d = first; d < rest.rank; ++d) {
    rest.sizes[d] = ref.sizes[d + count];
    rest.strides[d] = ref.strides[d + count];
  }
  return rest;
}

// Tensors of one shape in row-major order, in chunks of numbers of type T.
template <class T>
class Chunks {
 public:
  /// \param writes  how many of them, the first ones, are written
  Chunks(std::initializer_list<const TensorRef*> operands, int writes)
      : loop_(MakeLoop(operands, LoopOrder::kRowMajor)), writes_(writes) {
    int k = 0;
    for (const TensorRef* operand : operands) {
      is_same_[k] = operand->dtype == DTypeOf<T>();
      cast_[k] = k < writes ? FindCast(DTypeOf<T>(), operand->dtype) : FindCast(operand->dtype, DTypeOf<T>());
      ++k;
    }
  }

  /// Calls fn(T* const* elements, n), n at most kChunk, with the operands moved to `bases`.
  template <class Fn>
  void ForEach(std::initializer_list<char*> bases, Fn&& fn) {
    std::copy(bases.begin(), bases.end(), loop_.base);
    ForEachRow(loop_, {0, loop_.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t i = 0; i < n; i += kChunk) {
        const int64_t count = std::min(kChunk, n - i);
        T* elements[kMaxOperands] = {};
        for (int k = 0; k < loop_.operand_count; ++k) {
          char* at = ptrs[k] + i * strides[k];
          const bool is_direct = IsDirect(k, strides[k]);
          elements[k] = is_direct ? reinterpret_cast<T*>(at) : buffer_[k];
          if (!is_direct && k >= writes_) {
            cast_[k](at, strides[k], reinterpret_cast<char*>(buffer_[k]), sizeof(T), count);
          }
        }
        fn(static_cast<T* const*>(elements), count);
        for (int k = 0; k < writes_; ++k) {
          if (IsDirect(k, strides[k])) continue;
          cast_[k](reinterpret_cast<const char*>(buffer_[k]), sizeof(T), ptrs[k] + i * strides[k], strides[k], count);
        }
      }
    });
  }

 private:
  bool IsDirect(int k, int64_t stride) const { return is_same_[k] && stride == static_cast<int64_t>(sizeof(T)); }

  Loop loop_;
  int writes_;
  bool is_same_[kMaxOperands] = {};
  CastFn cast_[kMaxOperands] = {};
  alignas(64) T buffer_[3][kChunk];
};

double Get(const TensorRef* ref, int64_t offset, double otherwise) {
  if (ref == nullptr) return otherwise;
  if (ref->dtype == DType::kFloat) return static_cast<const float*>(ref->data)[offset];
  double value;
  FindCast(ref->dtype, DType::kDouble)(ElementAt(*ref, offset), 0, reinterpret_cast<char*>(&value), 0, 1);
  return value;
}

void Put(const TensorRef* ref, int64_t offset, double value) {
  if (ref == nullptr) return;
  if (ref->dtype == DType::kFloat) {
    static_cast<float*>(ref->data)[offset] = static_cast<float>(value);
    return;
  }
  FindCast(DType::kDouble, ref->dtype)(reinterpret_cast<const char*>(&value), 0, ElementAt(*ref, offset), 0, 1);
}

// ---- Sums of a block ----

double SumRow(const float* x, int64_t n) { return simd::SumBlock(x, n); }
double SumRow(const double* x, int64_t n) { return SumOfBlock(x, n); }

double SumSquares(const float* x, float centre, int64_t n) { return simd::SumSquares(x, centre, n); }
double SumSquares(const double* x, double centre, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - centre) * (x[i] - centre);
  return sum;
}

double SumProducts(const float* g, const float* x, float centre, int64_t n) {
  return simd::SumProducts(g, x, centre, n);
}
double SumProducts(const double* g, const double* x, double centre, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += g[i] * (x[i] - centre);
  return sum;
}

void ScaleRow(const float* x, float centre, float scale, float shift, int64_t n, float* out) {
  simd::ScaleRow(x, centre, scale, shift, n, out);
}
void ScaleRow(const double* x, double centre, double scale, double shift, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - centre) * scale + shift;
}

// Mean and sum of squared differences from it of all blocks so far.
class Moments {
 public:
  template <class T>
  void Add(const T* x, int64_t n) {
    const auto count = static_cast<double>(n);
    const double mean = SumRow(x, n) / count;
    const T centre = static_cast<T>(mean);
    const double rest = mean - static_cast<double>(centre);
    const double squares = SumSquares(x, centre, n) - rest * rest * count;
    const double difference = mean - mean_;
    const double total = count_ + count;
    squares_ += squares + difference * difference * (count_ * count / total);
    mean_ += difference * (count / total);
    count_ = total;
  }
  double mean() const { return mean_; }
  /// Without Bessel's correction.
  double variance() const { return squares_ < 0 ? 0 : squares_ / count_; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
};

// out = (x - centre) * scale + shift.
template <class T>
struct Scaling {
  T centre, scale, shift;
};

// From the statistics of channel c, of `count` elements; moves and saves them when training.
template <class T>
Scaling<T> ScalingOf(const BatchNormArgs& args, int64_t c, double count, double mean, double var) {
  const auto at = [c](const TensorRef* ref) { return ref == nullptr ? 0 : c * ref->strides[0]; };
  if (args.training) {
    const double keep = 1 - args.momentum;
    if (args.running_mean != nullptr) {
      const int64_t i = at(args.running_mean);
      Put(args.running_mean, i, args.momentum * mean + keep * Get(args.running_mean, i, 0));
    }
    if (args.running_var != nullptr) {
      const int64_t i = at(args.running_var);
      Put(args.running_var, i, args.momentum * (var * count / (count - 1)) + keep * Get(args.running_var, i, 0));
    }
  } else {
    mean = Get(args.running_mean, at(args.running_mean), 0);
    var = Get(args.running_var, at(args.running_var), 1);
  }
  const double invstd = 1 / std::sqrt(var + args.eps);
  if (args.training) {
    Put(args.save_mean, at(args.save_mean), mean);
    Put(args.save_invstd, at(args.save_invstd), invstd);
  }
  return {static_cast<T>(mean), static_cast<T>(invstd * Get(args.weight, at(args.weight), 1)),
          static_cast<T>(Get(args.bias, at(args.bias), 0))};
}

template <class T>
void RunBatchNorm(const BatchNormArgs& args, Range channels) {
  const TensorRef self = WithoutDims(*args.self, 1, 1);
  const TensorRef out = WithoutDims(*args.out, 1, 1);
  const auto count = static_cast<double>(ElementCount(self));
  Chunks<T> read({&self}, 0);
  Chunks<T> both({&out, &self}, 1);
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    char* from = ElementAt(*args.self, c * args.self->strides[1]);
    char* to = ElementAt(*args.out, c * args.out->strides[1]);
    Moments moments;
    if (args.training) read.ForEach({from}, [&](T* const* x, int64_t n) { moments.Add(x[0], n); });
    const Scaling<T> scaling = ScalingOf<T>(args, c, count, moments.mean(), moments.variance());
    both.ForEach({to, from}, [&](T* const* x, int64_t n) {
      ScaleRow(x[1], scaling.centre, scaling.scale, scaling.shift, n, x[0]);
    });
  }
}

// One element for each channel of an entry of the batch: some channels side by side.
template <class T>
void RunBatchNormOfRows(const BatchNormArgs& args, Range channels) {
  const TensorRef& self = *args.self;
  const TensorRef& out = *args.out;
  const int64_t batch = self.sizes[0];
  const RowReaderAs<T> read(self.dtype, self.strides[1]);
  const RowWriterAs<T> write(out.dtype, out.strides[1]);
  T buffer[kColumns], result[kColumns];
  T centre[kColumns], scale[kColumns], shift[kColumns];
  double mean[kColumns] = {}, var[kColumns] = {};
  for (int64_t c = channels.begin; c < channels.end; c += kColumns) {
    const int64_t n = std::min(kColumns, channels.end - c);
    const auto row = [&](int64_t i) {
      return read.Read(ElementAt(self, i * self.strides[0] + c * self.strides[1]), n, buffer);
    };
    // totals[k] = sum of term(x, k) over the batch: rows in blocks, these in float64.
    const auto add_up = [&](double* totals, auto term) {
      std::fill_n(totals, n, 0.0);
      for (int64_t first = 0; first < batch; first += kRowBlock) {
        T sums[kColumns] = {};
        for (int64_t i = first; i < std::min(batch, first + kRowBlock); ++i) {
          const T* x = row(i);
          for (int64_t k = 0; k < n; ++k) sums[k] += term(x[k], k);
        }
        for (int64_t k = 0; k < n; ++k) totals[k] += static_cast<double>(sums[k]);
      }
    };
    const auto count = static_cast<double>(batch);
    if (args.training) {
      add_up(mean, [](T x, int64_t) { return x; });
      for (int64_t k = 0; k < n; ++k) {
        mean[k] /= count;
        centre[k] = static_cast<T>(mean[k]);
      }
      add_up(var, [&](T x, int64_t k) { return (x - centre[k]) * (x - centre[k]); });
      for (int64_t k = 0; k < n; ++k) {
        const double rest = mean[k] - static_cast<double>(centre[k]);
        var[k] = var[k] / count - rest * rest;
        if (var[k] < 0) var[k] = 0;
      }
    }
    for (int64_t k = 0; k < n; ++k) {
      const Scaling<T> scaling = ScalingOf<T>(args, c + k, count, mean[k], var[k]);
      centre[k] = scaling.centre;
      scale[k] = scaling.scale;
      shift[k] = scaling.shift;
    }
    for (int64_t i = 0; i < batch; ++i) {
      const T* x = row(i);
      char* to = ElementAt(out, i * out.strides[0] + c * out.strides[1]);
      T* values = write.Buffer(to, result);
      for (int64_t k = 0; k < n; ++k) values[k] = (x[k] - centre[k]) * scale[k] + shift[k];
      write.Write(to, values, n);
    }
  }
}

template <class T>
void RunGroupNorm(const GroupNormArgs& args, Range units) {
  const TensorRef& self = *args.self;
  const TensorRef rest = WithoutDims(self, 0, 2);
  const TensorRef rest_out = WithoutDims(*args.out, 0, 2);
  const int64_t channels = self.sizes[1] / args.groups;
  Chunks<T> read({&rest}, 0);
  Chunks<T> both({&rest_out, &rest}, 1);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t n = unit / args.groups;
    const int64_t group = unit % args.groups;
    const auto from = [&](int64_t c) {
      return ElementAt(self, n * self.strides[0] + (group * channels + c) * self.strides[1]);
    };
    Moments moments;
    for (int64_t c = 0; c < channels; ++c) {
      read.ForEach({from(c)}, [&](T* const* x, int64_t m) { moments.Add(x[0], m); });
    }
    const double mean = moments.mean();
    const auto centre = static_cast<T>(mean);
    const double rstd = 1 / std::sqrt(moments.variance() + args.eps);
    Put(args.mean, n * args.mean->strides[0] + group * args.mean->strides[1], mean);
    Put(args.rstd, n * args.rstd->strides[0] + group * args.rstd->strides[1], rstd);
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t channel = group * channels + c;
      const auto scale =
          static_cast<T>(rstd * Get(args.gamma, args.gamma == nullptr ? 0 : channel * args.gamma->strides[0], 1));
      const auto bias = static_cast<T>(Get(args.beta, args.beta == nullptr ? 0 : channel * args.beta->strides[0], 0));
      char* to = ElementAt(*args.out, n * args.out->strides[0] + channel * args.out->strides[1]);
      both.ForEach({to, from(c)}, [&](T* const* x, int64_t m) { ScaleRow(x[1], centre, scale, bias, m, x[0]); });
    }
  }
}

template <class T>
void RunGroupNormBackward(const GroupNormBackwardArgs& args, Range units) {
  const TensorRef& self = *args.self;
  const TensorRef& grad = *args.grad_out;
  const TensorRef rest = WithoutDims(self, 0, 2);
  const TensorRef rest_grad = WithoutDims(grad, 0, 2);
  const TensorRef rest_in = args.grad_in == nullptr ? rest : WithoutDims(*args.grad_in, 0, 2);
  const int64_t channels = self.sizes[1] / args.groups;
  const double count = static_cast<double>(channels) * static_cast<double>(ElementCount(rest));
  Chunks<T> read({&rest, &rest_grad}, 0);
  Chunks<T> all({&rest_in, &rest, &rest_grad}, 1);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t n = unit / args.groups;
    const int64_t group = unit % args.groups;
    const double mean = Get(args.mean, n * args.mean->strides[0] + group * args.mean->strides[1], 0);
    const double rstd = Get(args.rstd, n * args.rstd->strides[0] + group * args.rstd->strides[1], 0);
    const auto centre = static_cast<T>(mean);
    const auto at = [&](const TensorRef& ref, int64_t channel) {
      return ElementAt(ref, n * ref.strides[0] + channel * ref.strides[1]);
    };
    const auto gamma = [&](int64_t channel) {
      return Get(args.gamma, args.gamma == nullptr ? 0 : channel * args.gamma->strides[0], 1);
    };
    double group_products = 0;
    double group_grads = 0;
    for (int64_t c = group * channels; c < (group + 1) * channels; ++c) {
      double products = 0;
      double grads = 0;
      read.ForEach({at(self, c), at(grad, c)}, [&](T* const* x, int64_t m) {
        products += SumProducts(x[1], x[0], centre, m);
        grads += SumRow(x[1], m);
      });
      products *= rstd;
      auto* sums = reinterpret_cast<double*>(args.sums->data) + 2 * (n * self.sizes[1] + c);
      sums[0] = products;
      sums[1] = grads;
      group_products += gamma(c) * products;
      group_grads += gamma(c) * grads;
    }
    if (args.grad_in == nullptr) continue;
    const auto slope = static_cast<T>(-group_products * rstd * rstd / count);
    const auto shift = static_cast<T>(-group_grads * rstd / count);
    for (int64_t c = group * channels; c < (group + 1) * channels; ++c) {
      const auto scale = static_cast<T>(rstd * gamma(c));
      all.ForEach({at(*args.grad_in, c), at(self, c), at(grad, c)}, [&](T* const* x, int64_t m) {
        T* __restrict to = x[0];
        const T* __restrict in = x[1];
        const T* __restrict g = x[2];
        for (int64_t i = 0; i < m; ++i) to[i] = g[i] * scale + (in[i] - centre) * slope + shift;
      });
    }
  }
}

bool HasChannelRows(const TensorRef& self) { return ElementCount(self) == self.sizes[0] * self.sizes[1]; }

}  // namespace

void BatchNorm(const BatchNormArgs& args, Range channels) {
  const bool by_rows = HasChannelRows(*args.self);
  if (args.self->dtype == DType::kDouble) {
    return by_rows ? RunBatchNormOfRows<double>(args, channels) : RunBatchNorm<double>(args, channels);
  }
  return by_rows ? RunBatchNormOfRows<float>(args, channels) : RunBatchNorm<float>(args, channels);
}

void BatchNormElements(const BatchNormArgs& args, Range elements) {
  const TensorRef& self = *args.self;
  const int64_t row = ElementCount(WithoutDims(self, 0, 2));
  const auto* const from = static_cast<const float*>(self.data);
  auto* const to = static_cast<float*>(args.out->data);
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t end = std::min(elements.end, (begin / row + 1) * row);
    const auto scaling = ScalingOf<float>(args, begin / row % self.sizes[1], 0, 0, 0);
    ScaleRow(from + begin, scaling.centre, scaling.scale, scaling.shift, end - begin, to + begin);
    begin = end;
  }
}

void BatchNormScaling(const BatchNormArgs& args, int64_t channels, float* centre, float* scale, float* shift) {
  for (int64_t c = 0; c < channels; ++c) {
    const auto scaling = ScalingOf<float>(args, c, 0, 0, 0);
    centre[c] = scaling.centre;
    scale[c] = scaling.scale;
    shift[c] = scaling.shift;
  }
}

void GroupNorm(const GroupNormArgs& args, Range units) {
  if (args.self->dtype == DType::kDouble) return RunGroupNorm<double>(args, units);
  RunGroupNorm<float>(args, units);
}

void GroupNormBackward(const GroupNormBackwardArgs& args, Range units) {
  if (args.self->dtype == DType::kDouble) return RunGroupNormBackward<double>(args, units);
  RunGroupNormBackward<float>(args, units);
}

void GroupNormParameterGrad(const TensorRef& sums, int64_t which, const TensorRef& out, Range channels) {
  const auto* values = static_cast<const double*>(sums.data);
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    double total = 0;
    for (int64_t n = 0; n < sums.sizes[0]; ++n) total += values[2 * (n * sums.sizes[1] + c) + which];
    Put(&out, c * out.strides[0], total);
  }
}

}  // namespace reprise::kernels
