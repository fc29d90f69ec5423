// SPDX-License-Identifier: Apache-2.0
//
// The gates of hyper-connections: what a layer reads of its streams, where its result goes, and how the streams mix,
// all from one product of the streams with a matrix; and the gradients of that.
//
// n streams of `size` numbers make a token. Gates, in the order of the rows of phi: n for what is read, n for what is
// written, and those of the mix: n * n, or in gradients any number.
#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/stream_parts.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace gates {
namespace {

using kernels::DType;

constexpr int64_t kExpCost = 16;  // light elements

struct Sizes : StreamSizes {
  int64_t gates;
  bool mixes;       // there are gates of the mix
  double eps;       // beside the mean square
  double gate_eps;  // beside the gates
};

template <class T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// ---- Shapes ----

Status CheckPrecision(const OpCall& call) {
  for (const std::string_view name : {"opImplMode", "innerPrecise"}) {
    if (!call.Has(name) || call.Int(name) == 0 || call.Int(name) == 1) continue;
    return call.Invalid(fmt::format("{} is {}, expected 0 or 1", name, call.Int(name)));
  }
  return {};
}

// What forward and backward have in common: x, phi, alpha, gamma.
Status ReadGates(OpCall& call, Sizes& sizes, Dims& outer) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckPrecision(call));
  REPRISE_RETURN_IF_ERROR(ReadStreams(call, x, sizes, outer));
  const int64_t n = sizes.streams;
  const Operand& alpha = call.Get("alpha");
  if (alpha.rank() != 1 || (alpha.sizes()[0] != 2 && alpha.sizes()[0] != 3)) {
    return call.InvalidOperand(
        alpha,
        fmt::format("has shape {}, expected [3], or [2] for gates without those of the mix", ShapeText(alpha.sizes())));
  }
  sizes.mixes = alpha.sizes()[0] == 3;
  const Operand& phi = call.Get("phi");
  const bool is_gradient = call.Has("gradPhi");  // whose mix may have other gates than n * n
  const bool fits =
      phi.rank() == 2 && phi.sizes()[1] == sizes.width() &&
      (is_gradient && sizes.mixes ? phi.sizes()[0] > 2 * n : phi.sizes()[0] == 2 * n + (sizes.mixes ? n * n : 0));
  if (!fits) {
    return call.InvalidOperand(
        phi, fmt::format("has shape {}, expected [{}, {}] for x {}", ShapeText(phi.sizes()),
                         sizes.mixes ? fmt::format("{}", n * n + 2 * n) : fmt::format("{}", 2 * n), sizes.width(),
                         ShapeText(x.sizes())));
  }
  sizes.gates = phi.sizes()[0];
  for (const std::string_view name : {"gamma", "gammaOptional", "gradGamma"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, With({}, {n, sizes.size}), "[streams, size]:"));
  }
  return {};
}

Status GatesShape(OpCall& call) {
  Sizes sizes{};
  Dims outer;
  REPRISE_RETURN_IF_ERROR(ReadGates(call, sizes, outer));
  const int64_t n = sizes.streams;
  if (sizes.mixes && call.Find("hRes") == nullptr) {
    return call.Invalid("hRes is null, but alpha has 3 elements, so that there are gates of the mix",
                        "pass a tensor for hRes");
  }
  const int64_t gates[] = {sizes.gates};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("bias"), gates, [] { return "one for each row of phi,"; }));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "hIn", With(outer, {sizes.size}), "[.., size]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "hPost", With(outer, {n}), "[.., streams]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "hRes", With(outer, {n, n}), "[.., streams, streams]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "invRmsOptional", outer, "[..]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "hMixOptional", With(outer, {sizes.gates}), "[.., rows of phi]:"));
  return CheckOptional(call, "hPreOptional", With(outer, {n}), "[.., streams]:");
}

Status GatesBackwardShape(OpCall& call) {
  Sizes sizes{};
  Dims outer;
  REPRISE_RETURN_IF_ERROR(ReadGates(call, sizes, outer));
  const int64_t n = sizes.streams, of_mix = sizes.gates - 2 * n;
  if (!sizes.mixes) {
    return call.InvalidOperand(call.Get("alpha"), "has 2 elements: gates without a mix have no gradient here",
                               "pass 3 elements");
  }
  const Dims whole(call.Get("x").sizes().data(), call.Get("x").sizes().size());
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "gradHIn", With(outer, {sizes.size}), "[.., size]:"));
  for (const std::string_view name : {"gradHPost", "hPre", "hPost"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, With(outer, {n}), "[.., streams]:"));
  }
  const Dims mix = of_mix == n * n && call.Get("gradHRes").rank() == call.Get("x").rank() ? With(outer, {n, n})
                                                                                          : With(outer, {of_mix});
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "gradHRes", mix, "[.., gates of the mix]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "invRms", outer, "[..]:"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "hMix", With(outer, {sizes.gates}), "[.., rows of phi]:"));
  for (const std::string_view name : {"gradXPostOptional", "gradX"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, whole, "the shape of x,"));
  }
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "gradPhi", With({}, {sizes.gates, sizes.width()}), "the shape of phi,"));
  REPRISE_RETURN_IF_ERROR(CheckOptional(call, "gradAlpha", With({}, {3}), "[3]:"));
  return CheckOptional(call, "gradBias", With({}, {sizes.gates}), "one for each row of phi,");
}

Sizes SizesOf(const OpCall& call) {
  Sizes sizes{};
  static_cast<StreamSizes&>(sizes) = StreamSizesOf(call.Get("x"));
  sizes.gates = call.Get("phi").sizes()[0];
  sizes.mixes = call.Get("alpha").sizes()[0] == 3;
  sizes.eps = call.Has("normEps") ? call.Real("normEps") : 0;
  sizes.gate_eps = call.Real("hcEps");
  return sizes;
}

// ---- The matrix with gamma in it ----

// refs: result, phi, gamma. A unit is a row.
template <class T>
void ScaleRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t width = launch.ints[0];
  const T* const gamma = DataOf<T>(launch, 2, memory);
  for (int64_t row = range.begin; row < range.end; ++row) {
    T* const out = DataOf<T>(launch, 0, memory) + row * width;
    const T* const phi = DataOf<T>(launch, 1, memory) + row * width;
    for (int64_t i = 0; i < width; ++i) out[i] = phi[i] * gamma[i];
  }
}

void RunScaleRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return ScaleRows<double>(launch, range, memory);
  ScaleRows<float>(launch, range, memory);
}

// phi with each row times gamma; phi itself without that.
Dense ScaledPhi(OpCall& call, const Dense& phi, const Operand* gamma_operand, DType math, const Sizes& sizes) {
  if (gamma_operand == nullptr) return phi;
  const Dense gamma = DenseInput(call, gamma_operand, math);
  const int64_t shape[] = {sizes.gates, sizes.width()};
  const Dense scaled = DenseTemporary(call, math, shape);
  Launch& launch = call.AddLaunch(RunScaleRows);
  scaled.Write(call, launch);
  phi.Read(call, launch);
  gamma.Read(call, launch);
  launch.compute = math;
  launch.ints.push_back(sizes.width());
  launch.units = sizes.gates;
  launch.grain = GrainOf(sizes.width());
  return scaled;
}

// ---- Forward ----

enum GateRef : size_t { kHIn, kHPost, kHRes, kInvRms, kHMix, kHPre, kX, kPhi, kAlpha, kBias };

// refs: GateRef. A unit is a token. Scratch: its gates.
template <class T>
void Gates(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<Sizes>();
  const int64_t n = s.streams, width = s.width();
  const T* const phi = DataOf<T>(launch, kPhi, memory);
  const T* const alpha = DataOf<T>(launch, kAlpha, memory);
  const T* const bias = DataOf<T>(launch, kBias, memory);
  T* const mix = static_cast<T*>(memory.scratch);
  T pre[kMostStreams];
  const auto keep = [&](GateRef ref, int64_t token, const T* from, int64_t count) {
    if (T* const to = DataOf<T>(launch, ref, memory); to != nullptr) std::copy_n(from, count, to + token * count);
  };
  for (int64_t token = range.begin; token < range.end; ++token) {
    const T* const x = DataOf<T>(launch, kX, memory) + token * width;
    const T inverse = T(1) / std::sqrt(Dot(x, x, width) / static_cast<T>(width) + static_cast<T>(s.eps));
    for (int64_t k = 0; k < s.gates; ++k) mix[k] = Dot(x, phi + k * width, width);
    keep(kInvRms, token, &inverse, 1);
    keep(kHMix, token, mix, s.gates);
    for (int64_t i = 0; i < n; ++i) {
      pre[i] = Sigmoid(mix[i] * inverse * alpha[0] + bias[i]) + static_cast<T>(s.gate_eps);
    }
    keep(kHPre, token, pre, n);
    T* const post = DataOf<T>(launch, kHPost, memory) + token * n;
    for (int64_t i = 0; i < n; ++i) {
      post[i] =
          2 * Sigmoid(mix[n + i] * inverse * alpha[1] + bias[n + i]) + (s.mixes ? T(0) : static_cast<T>(s.gate_eps));
    }
    if (T* const res = DataOf<T>(launch, kHRes, memory); res != nullptr) {
      for (int64_t i = 0; i < n * n; ++i) {
        res[token * n * n + i] = s.mixes ? mix[2 * n + i] * inverse * alpha[2] + bias[2 * n + i] : T(0);
      }
    }
    T* const in = DataOf<T>(launch, kHIn, memory) + token * s.size;
    for (int64_t d = 0; d < s.size; ++d) in[d] = pre[0] * x[d];
    for (int64_t i = 1; i < n; ++i) {
      for (int64_t d = 0; d < s.size; ++d) in[d] += pre[i] * x[i * s.size + d];
    }
  }
}

void RunGates(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return Gates<double>(launch, range, memory);
  Gates<float>(launch, range, memory);
}

Status LowerGates(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  const Sizes sizes = SizesOf(call);
  const Dense x = DenseInput(call, call.Get("x"), math);
  const Dense phi = ScaledPhi(call, DenseInput(call, call.Get("phi"), math), call.Find("gammaOptional"), math, sizes);
  const Dense alpha = DenseInput(call, call.Get("alpha"), math);
  const Dense bias = DenseInput(call, call.Get("bias"), math);
  Dense outputs[6];
  const std::string_view names[6] = {"hIn", "hPost", "hRes", "invRmsOptional", "hMixOptional", "hPreOptional"};
  for (size_t i = 0; i < 6; ++i) outputs[i] = DenseOutput(call, call.Find(names[i]), math);
  Launch& launch = call.AddLaunch(RunGates);
  for (const Dense& output : outputs) output.Write(call, launch);
  for (const Dense* input : {&x, &phi, &alpha, &bias}) input->Read(call, launch);
  launch.compute = math;
  launch.state = std::make_shared<Sizes>(sizes);
  launch.units = sizes.streams == 0 ? 0 : sizes.tokens;
  launch.grain = GrainOf(sizes.width() * (sizes.gates + 2) + sizes.gates * kExpCost);
  call.AddScratch(launch, static_cast<uint64_t>(sizes.gates) * sizeof(double));
  for (const Dense& output : outputs) output.Store(call);
  return {};
}

// ---- Backward ----
//
// A gate is sigmoid(alpha * mix * inverse + bias), or that without a sigmoid. `inner` is the gradient of what stands in
// the brackets, for each token and gate; the gradient of mix is then inner * alpha * inverse, of x scaled by gamma that
// times phi, and of inverse the sum over the gates of inner * alpha * mix.

int64_t AlphaOf(const Sizes& s, int64_t gate) { return gate < s.streams ? 0 : gate < 2 * s.streams ? 1 : 2; }

enum InnerRef : size_t {
  kInner,
  kOfMix,
  kPull,
  kBX,
  kBAlpha,
  kGradIn,
  kGradPost,
  kGradRes,
  kBInv,
  kBMix,
  kBPre,
  kBPost
};

// refs: InnerRef. A unit is a token. kPull: the factor of x in its own gradient, by way of the inverse.
template <class T>
void Inner(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<Sizes>();
  const int64_t n = s.streams, of_mix = s.gates - 2 * n;
  const T* const alpha = DataOf<T>(launch, kBAlpha, memory);
  for (int64_t token = range.begin; token < range.end; ++token) {
    T* const inner = DataOf<T>(launch, kInner, memory) + token * s.gates;
    T* const grad_mix = DataOf<T>(launch, kOfMix, memory) + token * s.gates;
    const T* const x = DataOf<T>(launch, kBX, memory) + token * s.width();
    const T* const grad_in = DataOf<T>(launch, kGradIn, memory) + token * s.size;
    for (int64_t i = 0; i < n; ++i) {
      const T gate = DataOf<T>(launch, kBPre, memory)[token * n + i] - static_cast<T>(s.gate_eps);
      inner[i] = Dot(grad_in, x + i * s.size, s.size) * gate * (1 - gate);
      const T post = DataOf<T>(launch, kBPost, memory)[token * n + i];
      inner[n + i] = DataOf<T>(launch, kGradPost, memory)[token * n + i] * post * (1 - post / 2);
    }
    std::copy_n(DataOf<T>(launch, kGradRes, memory) + token * of_mix, of_mix, inner + 2 * n);
    const T inverse = DataOf<T>(launch, kBInv, memory)[token];
    const T* const mix = DataOf<T>(launch, kBMix, memory) + token * s.gates;
    T of_inverse = 0;
    for (int64_t k = 0; k < s.gates; ++k) {
      const T of_scaled = inner[k] * alpha[AlphaOf(s, k)];
      of_inverse += of_scaled * mix[k];
      grad_mix[k] = of_scaled * inverse;
    }
    DataOf<T>(launch, kPull, memory)[token] = -of_inverse * inverse * inverse * inverse / static_cast<T>(s.width());
  }
}

// refs: gradX, x, gradient of mix, pull, phi with gamma, gradHIn, hPre, gradXPost. A unit is a token.
template <class T>
void OfX(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<Sizes>();
  const int64_t n = s.streams, width = s.width();
  const T* const phi = DataOf<T>(launch, 4, memory);
  const T* const more = DataOf<T>(launch, 7, memory);
  for (int64_t token = range.begin; token < range.end; ++token) {
    T* const out = DataOf<T>(launch, 0, memory) + token * width;
    const T* const x = DataOf<T>(launch, 1, memory) + token * width;
    const T* const grad_mix = DataOf<T>(launch, 2, memory) + token * s.gates;
    const T pull = DataOf<T>(launch, 3, memory)[token];
    const T* const grad_in = DataOf<T>(launch, 5, memory) + token * s.size;
    for (int64_t i = 0; i < n; ++i) {
      const T pre = DataOf<T>(launch, 6, memory)[token * n + i];
      for (int64_t d = 0; d < s.size; ++d) out[i * s.size + d] = pull * x[i * s.size + d] + pre * grad_in[d];
    }
    for (int64_t k = 0; k < s.gates; ++k) {
      const T factor = grad_mix[k];
      for (int64_t i = 0; i < width; ++i) out[i] += factor * phi[k * width + i];
    }
    for (int64_t i = 0; more != nullptr && i < width; ++i) out[i] += more[token * width + i];
  }
}

// refs: sum over the tokens of the gradient of mix times x, gradBias (both float64), gradient of mix, inner, x. A unit
// is a gate.
template <class T>
void OverTokens(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<Sizes>();
  const int64_t width = s.width();
  const T* const grad_mix = DataOf<T>(launch, 2, memory);
  const T* const inner = DataOf<T>(launch, 3, memory);
  for (int64_t gate = range.begin; gate < range.end; ++gate) {
    double* const out = DataOf<double>(launch, 0, memory) + gate * width;
    std::fill_n(out, width, 0.0);
    double of_bias = 0;
    for (int64_t token = 0; token < s.tokens; ++token) {
      const double factor = static_cast<double>(grad_mix[token * s.gates + gate]);
      const T* const x = DataOf<T>(launch, 4, memory) + token * width;
      for (int64_t i = 0; i < width; ++i) out[i] += factor * static_cast<double>(x[i]);
      of_bias += static_cast<double>(inner[token * s.gates + gate]);
    }
    DataOf<double>(launch, 1, memory)[gate] = of_bias;
  }
}

// refs: gradPhi, gradGamma, gradAlpha (all float64), what OverTokens summed, phi, gamma, inner, mix, inverse.
template <class T>
void OfParameters(const Launch& launch, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<Sizes>();
  const int64_t width = s.width();
  double* const of_phi = DataOf<double>(launch, 0, memory);
  double* const of_gamma = DataOf<double>(launch, 1, memory);
  double* const of_alpha = DataOf<double>(launch, 2, memory);
  const double* const sums = DataOf<double>(launch, 3, memory);
  const T* const phi = DataOf<T>(launch, 4, memory);
  const T* const gamma = DataOf<T>(launch, 5, memory);
  if (of_gamma != nullptr) std::fill_n(of_gamma, width, 0.0);  // and so it stays without gamma
  for (int64_t gate = 0; gate < s.gates; ++gate) {
    const int64_t row = gate * width;
    for (int64_t i = 0; i < width; ++i) {
      of_phi[row + i] = gamma == nullptr ? sums[row + i] : sums[row + i] * static_cast<double>(gamma[i]);
      if (gamma != nullptr && of_gamma != nullptr) of_gamma[i] += sums[row + i] * static_cast<double>(phi[row + i]);
    }
  }
  std::fill_n(of_alpha, 3, 0.0);
  const T* const inner = DataOf<T>(launch, 6, memory);
  const T* const mix = DataOf<T>(launch, 7, memory);
  const T* const inverse = DataOf<T>(launch, 8, memory);
  for (int64_t token = 0; token < s.tokens; ++token) {
    for (int64_t k = 0; k < s.gates; ++k) {
      const int64_t at = token * s.gates + k;
      of_alpha[AlphaOf(s, k)] +=
          static_cast<double>(inner[at]) * static_cast<double>(mix[at]) * static_cast<double>(inverse[token]);
    }
  }
}

void RunInner(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return Inner<double>(launch, range, memory);
  Inner<float>(launch, range, memory);
}

void RunOfX(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return OfX<double>(launch, range, memory);
  OfX<float>(launch, range, memory);
}

void RunOverTokens(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return OverTokens<double>(launch, range, memory);
  OverTokens<float>(launch, range, memory);
}

void RunOfParameters(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return OfParameters<double>(launch, memory);
  OfParameters<float>(launch, memory);
}

struct Plan {
  OpCall& call;
  const Sizes sizes;
  const std::shared_ptr<const Sizes> state;
  const DType math;

  Launch& Add(Launch::Kernel kernel, std::initializer_list<const Dense*> written,
              std::initializer_list<const Dense*> read, int64_t units, int64_t cost) const {
    Launch& launch = call.AddLaunch(kernel);
    for (const Dense* dense : written) dense->Write(call, launch);
    for (const Dense* dense : read) dense->Read(call, launch);
    launch.compute = math;
    launch.state = state;
    launch.units = units;
    launch.grain = GrainOf(cost);
    return launch;
  }
};

Status LowerGatesBackward(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  const Sizes s = SizesOf(call);
  const Plan plan{call, s, std::make_shared<Sizes>(s), math};
  const auto in = [&](std::string_view name) { return DenseInput(call, call.Find(name), math); };
  const Dense x = in("x"), phi = in("phi"), alpha = in("alpha"), grad_in = in("gradHIn"), grad_post = in("gradHPost");
  const Dense grad_res = in("gradHRes"), inverse = in("invRms"), mix = in("hMix"), pre = in("hPre"), post = in("hPost");
  const Dense gamma = in("gamma"), more = in("gradXPostOptional");
  const Dense scaled = ScaledPhi(call, phi, call.Find("gamma"), math, s);
  const Dense of_x = DenseOutput(call, call.Get("gradX"), math);
  const auto out = [&](std::string_view name) { return DenseOutput(call, call.Find(name), DType::kDouble); };
  const Dense of_phi = out("gradPhi"), of_alpha = out("gradAlpha"), of_bias = out("gradBias"),
              of_gamma = out("gradGamma");
  const int64_t each[] = {s.tokens, s.gates}, matrix[] = {s.gates, s.width()};
  const Dense inner = DenseTemporary(call, math, each), of_mix = DenseTemporary(call, math, each);
  const Dense pull = DenseTemporary(call, math, {each, 1}), sums = DenseTemporary(call, DType::kDouble, matrix);
  plan.Add(RunInner, {&inner, &of_mix, &pull},
           {&x, &alpha, &grad_in, &grad_post, &grad_res, &inverse, &mix, &pre, &post}, s.tokens,
           s.width() + 4 * s.gates);
  plan.Add(RunOverTokens, {&sums, &of_bias}, {&of_mix, &inner, &x}, s.gates, s.tokens * s.width());
  plan.Add(RunOfX, {&of_x}, {&x, &of_mix, &pull, &scaled, &grad_in, &pre, &more}, s.tokens, s.width() * (s.gates + 2));
  plan.Add(RunOfParameters, {&of_phi, &of_gamma, &of_alpha}, {&sums, &phi, &gamma, &inner, &mix, &inverse}, 1, 1);
  for (const Dense* output : {&of_x, &of_phi, &of_alpha, &of_bias, &of_gamma}) output->Store(call);
  return {};
}

}  // namespace
}  // namespace gates

using gates::GatesBackwardShape;
using gates::GatesShape;
using gates::LowerGates;
using gates::LowerGatesBackward;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/stream_gates.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
