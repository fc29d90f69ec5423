// SPDX-License-Identifier: Apache-2.0
//
// Hyper-connections on a manifold: streams of hidden states that a doubly stochastic matrix mixes, with gradients, and
// convolutions along the tokens that see only earlier ones.
#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/stream_parts.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace streams {
namespace {

using kernels::DType;

// Where streams and their sizes stand: x [.., streams, size].
Status MixShape(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.rank() < 2 || x.sizes()[static_cast<size_t>(x.rank()) - 2] > kMostStreams) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected [.., streams, size] with {} streams at most",
                                              ShapeText(x.sizes()), kMostStreams));
  }
  const auto rank = static_cast<size_t>(x.rank());
  Dims shape;
  shape.assign(x.sizes().data(), rank);
  const int64_t streams = shape[rank - 2], size = shape[rank - 1];
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), shape, [] { return "the shape of x,"; }));
  shape[rank - 1] = streams;
  if (call.Find("hRes") != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("hRes"), shape, [] { return "[.., streams, streams]:"; }));
  }
  const std::span<const int64_t> outer(shape.data(), rank - 1);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("hPost"), outer, [] { return "[.., streams]:"; }));
  shape[rank - 2] = size;
  return call.CheckShape(call.Get("hOut"), outer, [] { return "[.., size]:"; });
}

// refs: out, x, h_res, h_out, h_post. A unit is what one token has.
template <class T>
void MixTokens(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t n = launch.ints[0], size = launch.ints[1];
  const T* const matrices = DataOf<T>(launch, 2, memory);
  for (int64_t token = range.begin; token < range.end; ++token) {
    const T* const x = DataOf<T>(launch, 1, memory) + token * n * size;
    const T* const h_out = DataOf<T>(launch, 3, memory) + token * size;
    for (int64_t i = 0; i < n; ++i) {
      T* const out = DataOf<T>(launch, 0, memory) + (token * n + i) * size;
      const T post = DataOf<T>(launch, 4, memory)[token * n + i];
      for (int64_t d = 0; d < size; ++d) out[d] = matrices == nullptr ? x[i * size + d] : T(0);
      for (int64_t j = 0; matrices != nullptr && j < n; ++j) {
        const T factor = matrices[(token * n + j) * n + i];
        for (int64_t d = 0; d < size; ++d) out[d] += factor * x[j * size + d];
      }
      for (int64_t d = 0; d < size; ++d) out[d] += post * h_out[d];
    }
  }
}

void RunMix(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return MixTokens<double>(launch, range, memory);
  MixTokens<float>(launch, range, memory);
}

Status LowerMix(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  const Operand& x_operand = call.Get("x");
  const Dense x = DenseInput(call, x_operand, math);
  const Dense h_res = DenseInput(call, call.Find("hRes"), math);
  const Dense h_out = DenseInput(call, call.Get("hOut"), math);
  const Dense h_post = DenseInput(call, call.Get("hPost"), math);
  // Streams of the result read all those of x, which may lie in its place.
  const Dense out = DenseOutput(call, call.Get("out"), math);
  Launch& launch = call.AddLaunch(RunMix);
  out.Write(call, launch);
  for (const Dense* input : {&x, &h_res, &h_out, &h_post}) input->Read(call, launch);
  const auto rank = static_cast<size_t>(x_operand.rank());
  const int64_t streams = x_operand.sizes()[rank - 2], size = x_operand.sizes()[rank - 1];
  launch.ints.push_back(streams);
  launch.ints.push_back(size);
  launch.units = 1;
  for (const int64_t d : x_operand.sizes().first(rank - 2)) launch.units *= d;
  launch.grain = GrainOf(streams * size * (streams + 1));
  out.Store(call);
  return {};
}

// ---- Gradients of the mix behind a layer ----

Status MixBackwardShape(OpCall& call) {
  StreamSizes sizes{};
  Dims outer;
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(ReadStreams(call, x, sizes, outer));
  const Dims whole(x.sizes().data(), x.sizes().size());
  for (const std::string_view name : {"gradOutput", "gradX"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, whole, "the shape of x,"));
  }
  for (const std::string_view name : {"hRes", "gradHres"}) {
    REPRISE_RETURN_IF_ERROR(
        CheckOptional(call, name, With(outer, {sizes.streams, sizes.streams}), "[.., streams, streams]:"));
  }
  for (const std::string_view name : {"hOut", "gradHout"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, With(outer, {sizes.size}), "[.., size]:"));
  }
  for (const std::string_view name : {"hPost", "gradHpost"}) {
    REPRISE_RETURN_IF_ERROR(CheckOptional(call, name, With(outer, {sizes.streams}), "[.., streams]:"));
  }
  return {};
}

// refs: gradients of x, h_res, h_out, h_post; gradient of the result, x, h_res, h_out, h_post. A unit is a token.
template <class T>
void MixGradients(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t n = launch.ints[0], size = launch.ints[1];
  const T* const matrices = DataOf<T>(launch, 6, memory);
  for (int64_t token = range.begin; token < range.end; ++token) {
    T* const of_x = DataOf<T>(launch, 0, memory) + token * n * size;
    T* const of_res = DataOf<T>(launch, 1, memory) + token * n * n;
    T* const of_out = DataOf<T>(launch, 2, memory) + token * size;
    T* const of_post = DataOf<T>(launch, 3, memory) + token * n;
    const T* const grad = DataOf<T>(launch, 4, memory) + token * n * size;
    const T* const x = DataOf<T>(launch, 5, memory) + token * n * size;
    const T* const h_out = DataOf<T>(launch, 7, memory) + token * size;
    const T* const post = DataOf<T>(launch, 8, memory) + token * n;
    std::fill_n(of_out, size, T(0));
    for (int64_t i = 0; i < n; ++i) {
      const T* const grad_i = grad + i * size;
      of_post[i] = Dot(grad_i, h_out, size);
      for (int64_t d = 0; d < size; ++d) of_out[d] += post[i] * grad_i[d];
    }
    for (int64_t j = 0; j < n; ++j) {
      T* const row = of_x + j * size;
      for (int64_t d = 0; d < size; ++d) row[d] = matrices == nullptr ? grad[j * size + d] : T(0);
      for (int64_t i = 0; i < n; ++i) {
        of_res[j * n + i] = Dot(x + j * size, grad + i * size, size);
        if (matrices == nullptr) continue;
        const T factor = matrices[(token * n + j) * n + i];
        for (int64_t d = 0; d < size; ++d) row[d] += factor * grad[i * size + d];
      }
    }
  }
}

void RunMixGradients(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return MixGradients<double>(launch, range, memory);
  MixGradients<float>(launch, range, memory);
}

Status LowerMixBackward(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  StreamSizes sizes{};
  Dims outer;
  REPRISE_RETURN_IF_ERROR(ReadStreams(call, call.Get("x"), sizes, outer));
  Dense inputs[5], outputs[4];
  const std::string_view in[5] = {"gradOutput", "x", "hRes", "hOut", "hPost"};
  const std::string_view out[4] = {"gradX", "gradHres", "gradHout", "gradHpost"};
  for (size_t i = 0; i < 5; ++i) inputs[i] = DenseInput(call, call.Find(in[i]), math);
  for (size_t i = 0; i < 4; ++i) outputs[i] = DenseOutput(call, call.Get(out[i]), math);
  Launch& launch = call.AddLaunch(RunMixGradients);
  for (const Dense& output : outputs) output.Write(call, launch);
  for (const Dense& input : inputs) input.Read(call, launch);
  launch.compute = math;
  launch.ints.push_back(sizes.streams);
  launch.ints.push_back(sizes.size);
  launch.units = sizes.tokens;
  launch.grain = GrainOf(2 * sizes.width() * (sizes.streams + 1));
  for (const Dense& output : outputs) output.Store(call);
  return {};
}

// ---- Convolutions that see earlier tokens ----

Status CausalShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  if (x.rank() != 3) {
    return call.InvalidOperand(x,
                               fmt::format("has shape {}, expected [tokens, batch, channels]", ShapeText(x.sizes())));
  }
  if (weight.rank() != 2 || weight.sizes()[0] == 0 || weight.sizes()[1] != x.sizes()[2]) {
    return call.InvalidOperand(
        weight, fmt::format("has shape {}, expected [window, {}]", ShapeText(weight.sizes()), x.sizes()[2]));
  }
  if (call.Find("maskOptional") != nullptr) {
    const int64_t mask[] = {x.sizes()[1], x.sizes()[0]};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("maskOptional"), mask, [] { return "[batch, tokens]:"; }));
  }
  for (const std::string_view name : {"out", "gradY", "gradX"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), x.sizes(), [] { return "the shape of x,"; }));
  }
  if (!call.Has("gradWeight")) return {};
  return call.CheckShape(call.Get("gradWeight"), weight.sizes(), [] { return "the shape of weight,"; });
}

struct Convolution {
  int64_t tokens, batch, channels, window;
};

// Whether the result of this token counts.
bool Counts(const uint8_t* mask, const Convolution& c, int64_t token, int64_t entry) {
  return mask == nullptr || mask[entry * c.tokens + token] != 0;
}

// refs: out, x, weight, mask. A unit is a token of an entry.
template <class T>
void Convolve(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& c = launch.State<Convolution>();
  const bool is_gradient = launch.ints[0] != 0;  // of x: later tokens, and the mask counts for what is read
  const auto* mask = DataOf<uint8_t>(launch, 3, memory);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t token = unit / c.batch, entry = unit % c.batch;
    T* const out = DataOf<T>(launch, 0, memory) + unit * c.channels;
    std::fill_n(out, c.channels, T(0));
    if (!is_gradient && !Counts(mask, c, token, entry)) continue;
    for (int64_t w = 0; w < c.window; ++w) {
      const int64_t distance = c.window - 1 - w;
      const int64_t from = is_gradient ? token + distance : token - distance;
      if (from < 0 || from >= c.tokens || (is_gradient && !Counts(mask, c, from, entry))) continue;
      const T* const x = DataOf<T>(launch, 1, memory) + (from * c.batch + entry) * c.channels;
      const T* const weight = DataOf<T>(launch, 2, memory) + w * c.channels;
      for (int64_t k = 0; k < c.channels; ++k) out[k] += weight[k] * x[k];
    }
  }
}

// refs: gradient of the weight (float64), gradient of the result, x, mask. A unit is a place of the window.
template <class T>
void OfWeight(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& c = launch.State<Convolution>();
  const auto* mask = DataOf<uint8_t>(launch, 3, memory);
  for (int64_t w = range.begin; w < range.end; ++w) {
    double* const out = DataOf<double>(launch, 0, memory) + w * c.channels;
    std::fill_n(out, c.channels, 0.0);
    for (int64_t token = c.window - 1 - w; token < c.tokens; ++token) {
      for (int64_t entry = 0; entry < c.batch; ++entry) {
        if (!Counts(mask, c, token, entry)) continue;
        const int64_t from = token - (c.window - 1 - w);
        const T* const grad = DataOf<T>(launch, 1, memory) + (token * c.batch + entry) * c.channels;
        const T* const x = DataOf<T>(launch, 2, memory) + (from * c.batch + entry) * c.channels;
        for (int64_t k = 0; k < c.channels; ++k) out[k] += static_cast<double>(grad[k]) * static_cast<double>(x[k]);
      }
    }
  }
}

void RunConvolve(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return Convolve<double>(launch, range, memory);
  Convolve<float>(launch, range, memory);
}

void RunOfWeight(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.compute == DType::kDouble) return OfWeight<double>(launch, range, memory);
  OfWeight<float>(launch, range, memory);
}

std::shared_ptr<const Convolution> SizesOf(const OpCall& call) {
  const std::span<const int64_t> x = call.Get("x").sizes();
  return std::make_shared<Convolution>(Convolution{x[0], x[1], x[2], call.Get("weight").sizes()[0]});
}

void AddConvolution(OpCall& call, const Dense& out, const Dense& x, const Dense& weight, const Dense& mask,
                    bool is_gradient) {
  const auto sizes = SizesOf(call);
  Launch& launch = call.AddLaunch(RunConvolve);
  out.Write(call, launch);
  for (const Dense* input : {&x, &weight, &mask}) input->Read(call, launch);
  launch.state = sizes;
  launch.ints.push_back(is_gradient ? 1 : 0);
  launch.units = sizes->tokens * sizes->batch;
  launch.grain = GrainOf(sizes->window * sizes->channels);
}

Status LowerCausal(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  const Dense x = DenseInput(call, call.Get("x"), math);
  const Dense weight = DenseInput(call, call.Get("weight"), math);
  const Dense mask = DenseInput(call, call.Find("maskOptional"), DType::kBool);
  const Dense out = DenseOutput(call, call.Get("out"), math);
  AddConvolution(call, out, x, weight, mask, false);
  out.Store(call);
  return {};
}

Status LowerCausalBackward(OpCall& call) {
  const DType math = WideFloatOf(call.compute);
  const Dense grad = DenseInput(call, call.Get("gradY"), math);
  const Dense x = DenseInput(call, call.Get("x"), math);
  const Dense weight = DenseInput(call, call.Get("weight"), math);
  const Dense mask = DenseInput(call, call.Find("maskOptional"), DType::kBool);
  const Dense of_x = DenseOutput(call, call.Get("gradX"), math);
  const Dense of_weight = DenseOutput(call, call.Get("gradWeight"), DType::kDouble);
  AddConvolution(call, of_x, grad, weight, mask, true);
  const auto sizes = SizesOf(call);
  Launch& launch = call.AddLaunch(RunOfWeight);
  of_weight.Write(call, launch);
  for (const Dense* input : {&grad, &x, &mask}) input->Read(call, launch);
  launch.state = sizes;
  launch.units = sizes->window;
  launch.grain = GrainOf(sizes->tokens * sizes->batch * sizes->channels);
  of_x.Store(call);
  of_weight.Store(call);
  return {};
}

}  // namespace
}  // namespace streams

using streams::CausalShape;
using streams::LowerCausal;
using streams::LowerCausalBackward;
using streams::LowerMix;
using streams::LowerMixBackward;
using streams::MixBackwardShape;
using streams::MixShape;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/hyper_connections.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
