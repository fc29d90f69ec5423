// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm_variants.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 512;

using Numbers = Staged<double>;

double NumberAt(const Numbers& numbers, int64_t index) {
  double number;
  return *numbers.Read(index, 1, &number);
}

void StoreNumber(const Numbers& numbers, int64_t index, double value) {
  *numbers.Target(index, &value) = value;
  numbers.Write(index, 1, &value);
}

std::optional<Numbers> NumbersOf(const TensorRef* ref) {
  if (ref == nullptr) return std::nullopt;
  return std::optional<Numbers>(std::in_place, *ref);
}

void AddRow(const std::optional<Numbers>& numbers, int64_t begin, int64_t n, double* buffer, double* sum) {
  if (!numbers) return;
  const double* const row = numbers->Read(begin, n, buffer);
  for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

void StoreRow(const std::optional<Numbers>& numbers, int64_t begin, int64_t n, const double* row, double* buffer) {
  if (!numbers) return;
  std::copy_n(row, n, numbers->Target(begin, buffer));
  numbers->Write(begin, n, buffer);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

// ---- Sums ----

int64_t SumNormScratchBytes(int64_t length) {
  return 4 * Arena::BytesFor(length * static_cast<int64_t>(sizeof(double)));
}

void SumNorm(const SumNormArgs& args, void* scratch, Range rows) {
  const int64_t n = args.length;
  Arena arena(scratch);
  auto* const s = arena.Take<double>(n);
  auto* const buffer = arena.Take<double>(n);
  auto* const gamma_buffer = arena.Take<double>(n);
  auto* const beta_buffer = arena.Take<double>(n);
  const Numbers x1(*args.x1);
  const auto x2 = NumbersOf(args.x2);
  const auto bias = NumbersOf(args.bias);
  const int64_t bias_step = args.bias != nullptr && ElementCount(*args.bias) != n ? n : 0;
  const double* const gamma = Numbers(*args.gamma).Read(0, n, gamma_buffer);
  const double* const beta = args.beta != nullptr ? Numbers(*args.beta).Read(0, n, beta_buffer) : nullptr;
  const auto out = NumbersOf(args.out);
  const auto out2 = NumbersOf(args.out2);
  const auto sum = NumbersOf(args.sum);
  const auto mean = NumbersOf(args.mean);
  const auto rstd = NumbersOf(args.rstd);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    std::copy_n(x1.Read(r * n, n, buffer), n, s);
    AddRow(x2, r * n, n, buffer, s);
    AddRow(bias, r * bias_step, n, buffer, s);
    StoreRow(sum, r * n, n, s, buffer);
    if (args.rounds_sum) std::copy_n(sum->Read(r * n, n, buffer), n, s);
    double centre = 0;
    if (args.centres) {
      for (int64_t i = 0; i < n; ++i) centre += s[i];
      centre /= static_cast<double>(n);
    }
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += (s[i] - centre) * (s[i] - centre);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + args.eps);
    if (mean) StoreNumber(*mean, r, centre);
    if (rstd) StoreNumber(*rstd, r, scale);
    for (int64_t i = 0; i < n; ++i) {
      s[i] = (s[i] - centre) * scale * (gamma[i] + args.shift) + (beta != nullptr ? beta[i] : 0);
    }
    StoreRow(out, r * n, n, s, buffer);
    if (out2) {
      std::copy_n(out->Read(r * n, n, buffer), n, s);
      StoreRow(out2, r * n, n, s, buffer);
    }
  }
}

int64_t SumNormGradScratchBytes(int64_t length) {
  return 4 * Arena::BytesFor(length * static_cast<int64_t>(sizeof(double)));
}

void SumNormGradOfX(const SumNormGradArgs& args, void* scratch, Range rows) {
  const int64_t n = args.length;
  Arena arena(scratch);
  auto* const s = arena.Take<double>(n);
  auto* const g = arena.Take<double>(n);
  auto* const buffer = arena.Take<double>(n);
  const double* const gamma = Numbers(*args.gamma).Read(0, n, arena.Take<double>(n));
  const Numbers dy(*args.dy);
  const Numbers x1(*args.x1);
  const auto x2 = NumbersOf(args.x2);
  const auto dsum = NumbersOf(args.dsum);
  const auto dx = NumbersOf(args.dx);
  const Numbers means(*args.mean);
  const Numbers rstds(*args.rstd);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    std::copy_n(x1.Read(r * n, n, buffer), n, s);
    AddRow(x2, r * n, n, buffer, s);
    const double* const grad = dy.Read(r * n, n, buffer);
    const double mean = NumberAt(means, r);
    const double rstd = NumberAt(rstds, r);
    double plain = 0;
    double product = 0;
    for (int64_t i = 0; i < n; ++i) {
      s[i] = (s[i] - mean) * rstd;
      g[i] = grad[i] * gamma[i];
      plain += g[i];
      product += g[i] * s[i];
    }
    plain /= static_cast<double>(n);
    product /= static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) s[i] = rstd * (g[i] - plain - s[i] * product);
    AddRow(dsum, r * n, n, buffer, s);
    StoreRow(dx, r * n, n, s, buffer);
  }
}

void SumNormGradOfParameters(const SumNormGradArgs& args, Range columns) {
  const Numbers dy(*args.dy);
  const Numbers x1(*args.x1);
  const Numbers x2(*args.x2);
  const Numbers means(*args.mean);
  const Numbers rstds(*args.rstd);
  const auto dgamma = NumbersOf(args.dgamma);
  const auto dbeta = NumbersOf(args.dbeta);
  double dy_block[kBlock];
  double x1_block[kBlock];
  double x2_block[kBlock];
  for (int64_t begin = columns.begin; begin < columns.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, columns.end - begin);
    double of_gamma[kBlock] = {};
    double of_beta[kBlock] = {};
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t at = r * args.length + begin;
      const double* const grad = dy.Read(at, n, dy_block);
      const double* const a = x1.Read(at, n, x1_block);
      const double* const b = x2.Read(at, n, x2_block);
      const double mean = NumberAt(means, r);
      const double rstd = NumberAt(rstds, r);
      for (int64_t i = 0; i < n; ++i) {
        of_gamma[i] += grad[i] * (a[i] + b[i] - mean) * rstd;
        of_beta[i] += grad[i];
      }
    }
    StoreRow(dgamma, begin, n, of_gamma, dy_block);
    StoreRow(dbeta, begin, n, of_beta, dy_block);
  }
}

// ---- Groups ----

namespace {

// The elements of a channel of an entry of the batch lie at [channel * size, (channel + 1) * size), row-major.
struct Groups {
  explicit Groups(const GroupSwishArgs& args) : channels(args.x->sizes[1]), each(channels / args.groups), size(0) {
    size = 1;
    for (int d = 2; d < args.x->rank; ++d) size *= args.x->sizes[d];
  }
  int64_t channels;
  int64_t each;  // channels of a group
  int64_t size;  // elements of a channel
};

// Calls fn(numbers, n) for blocks of the elements [begin, begin + count).
template <class Fn>
void ForEachBlock(const Numbers& numbers, int64_t begin, int64_t count, Fn&& fn) {
  double block[kBlock];
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t n = std::min(kBlock, count - done);
    fn(numbers.Read(begin + done, n, block), n);
  }
}

}  // namespace

void GroupNormSwish(const GroupSwishArgs& args, Range units) {
  const Groups groups(args);
  const Numbers xs(*args.x);
  const Numbers outs(*args.out);
  const auto gammas = NumbersOf(args.gamma);
  const auto betas = NumbersOf(args.beta);
  const auto means = NumbersOf(args.mean);
  const auto rstds = NumbersOf(args.rstd);
  const int64_t count = groups.each * groups.size;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    double mean = 0;
    ForEachBlock(xs, unit * count, count, [&](const double* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) mean += x[i];
    });
    mean /= static_cast<double>(count);
    double squares = 0;
    ForEachBlock(xs, unit * count, count, [&](const double* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    });
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(count) + args.eps);
    if (means) StoreNumber(*means, unit, mean);
    if (rstds) StoreNumber(*rstds, unit, rstd);
    for (int64_t c = 0; c < groups.each; ++c) {
      const int64_t channel = unit % args.groups * groups.each + c;
      const double scale = rstd * (gammas ? NumberAt(*gammas, channel) : 1);
      const double shift = betas ? NumberAt(*betas, channel) : 0;
      int64_t at = unit * count + c * groups.size;
      ForEachBlock(xs, at, groups.size, [&](const double* x, int64_t n) {
        double block[kBlock];
        double* const to = outs.Target(at, block);
        for (int64_t i = 0; i < n; ++i) {
          const double y = (x[i] - mean) * scale + shift;
          to[i] = args.activates ? y * Sigmoid(args.scale * y) : y;
        }
        outs.Write(at, n, block);
        at += n;
      });
    }
  }
}

void GroupNormSwishGrad(const GroupSwishArgs& args, Range units) {
  const Groups groups(args);
  const Numbers xs(*args.x);
  const Numbers dys(*args.dy);
  const auto gammas = NumbersOf(args.gamma);
  const auto betas = NumbersOf(args.beta);
  const Numbers means(*args.mean);
  const Numbers rstds(*args.rstd);
  const auto dxs = NumbersOf(args.out);
  auto* const sums = static_cast<double*>(args.sums->data);
  const int64_t count = groups.each * groups.size;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const double mean = NumberAt(means, unit);
    const double rstd = NumberAt(rstds, unit);
    double plain = 0;
    double product = 0;
    // Calls fn(normalised x, gradient of y, elements, gamma) for the blocks of channel c.
    const auto visit = [&](int64_t c, auto&& fn) {
      const int64_t channel = unit % args.groups * groups.each + c;
      const double gamma = gammas ? NumberAt(*gammas, channel) : 1;
      const double beta = betas ? NumberAt(*betas, channel) : 0;
      int64_t at = unit * count + c * groups.size;
      ForEachBlock(xs, at, groups.size, [&](const double* x, int64_t n) {
        double dy_block[kBlock];
        double normal[kBlock];
        double grad[kBlock];
        const double* const dy = dys.Read(at, n, dy_block);
        for (int64_t i = 0; i < n; ++i) {
          normal[i] = (x[i] - mean) * rstd;
          const double y = args.scale * (normal[i] * gamma + beta);
          const double s = Sigmoid(y);
          grad[i] = dy[i] * s * (1 + y * (1 - s));
        }
        fn(normal, grad, at, n, gamma);
        at += n;
      });
    };
    for (int64_t c = 0; c < groups.each; ++c) {
      double of_gamma = 0;
      double of_beta = 0;
      double gamma_of_channel = 0;
      visit(c, [&](const double* normal, const double* grad, int64_t, int64_t n, double gamma) {
        for (int64_t i = 0; i < n; ++i) {
          of_gamma += grad[i] * normal[i];
          of_beta += grad[i];
        }
        gamma_of_channel = gamma;
      });
      double* const pair = sums + (unit * groups.each + c) * 2;
      pair[0] = of_gamma;
      pair[1] = of_beta;
      plain += of_beta * gamma_of_channel;
      product += of_gamma * gamma_of_channel;
    }
    if (!dxs) continue;
    plain /= static_cast<double>(count);
    product /= static_cast<double>(count);
    for (int64_t c = 0; c < groups.each; ++c) {
      visit(c, [&](const double* normal, const double* grad, int64_t at, int64_t n, double gamma) {
        double block[kBlock];
        double* const to = dxs->Target(at, block);
        for (int64_t i = 0; i < n; ++i) to[i] = rstd * (grad[i] * gamma - plain - normal[i] * product);
        dxs->Write(at, n, block);
      });
    }
  }
}

}  // namespace reprise::kernels
