// SPDX-License-Identifier: Apache-2.0
//
// Rules of norms and of quantisation: tensors like x, and statistics or scales beside them.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// The last `count` sizes are 1.
Sizes WithOnes(Sizes shape, size_t count) {
  for (size_t d = shape.rank() - count; d < shape.rank(); ++d) shape[d] = 1;
  return shape;
}

// One number for each row: the shape without its last size.
Sizes RowsOf(const Sizes& shape) {
  if (!shape.has_rank() || shape.rank() == 0) return shape;
  return Sizes(Part(shape, 0, shape.rank() - 1));
}

bool IsScale(std::string_view name) { return name.find("scale") != std::string_view::npos || name == "offset"; }

}  // namespace

// The last dims, as many as gamma has, are normed: rstd has size 1 there.
Status RmsNorm(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  const InferTensor& gamma = call.In("gamma");
  Sizes shape = x.shape;
  if (call.Has("x2")) REPRISE_RETURN_IF_ERROR(call.BroadcastWith(call.In("x2"), &shape));
  InferResult& rstd = call.Out("rstd");
  if (!shape.has_rank() || !gamma.shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.Set(rstd, shape.has_rank() ? Sizes::Unknown(shape.rank()) : shape));
    return call.SetRest(shape);
  }
  const size_t normed = gamma.shape.rank();
  bool fits = normed <= shape.rank();
  for (size_t d = 0; fits && d < normed; ++d) {
    fits = call.facts->Unify(gamma.shape[d], shape[shape.rank() - normed + d]);
  }
  if (!fits) {
    return call.WrongInput(gamma,
                           fmt::format("has the shape {}, but {} has {}", gamma.shape.text(), x.name, shape.text()),
                           "give it the last sizes of the tensor");
  }
  REPRISE_RETURN_IF_ERROR(call.Set(rstd, WithOnes(shape, normed)));
  return call.SetRest(shape);
}

// The last dims, as many as normalized_shape has entries, are normed: mean and rstd have size 1 there.
Status LayerNorm(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::vector<Dim>* sizes = call.Value("normalized_shape");
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), x.shape));
  if (!x.shape.has_rank()) return call.Open();
  const Sizes normed = sizes != nullptr ? Sizes(*sizes) : UnknownSizes(call.In("normalized_shape"));
  if (!normed.has_rank()) return call.SetRest(Sizes::Unknown(x.shape.rank()));
  bool fits = normed.rank() <= x.shape.rank() && normed.rank() > 0;
  for (size_t d = 0; fits && d < normed.rank(); ++d) {
    fits = call.facts->Unify(normed[d], x.shape[x.shape.rank() - normed.rank() + d]);
  }
  if (!fits) {
    return call.WrongInput(call.In("normalized_shape"),
                           fmt::format("is {}, but {} has {}", normed.text(), x.name, x.shape.text()),
                           "give the last sizes of the tensor");
  }
  return call.SetRest(WithOnes(x.shape, normed.rank()));
}

// Statistics for each group of channels.
Status GroupNorm(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const int64_t groups = call.Int("num_groups");
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), x.shape));
  if (groups < 1) return call.WrongAttribute("num_groups", fmt::format("is {}", groups), "set it to 1 or more");
  if (!x.shape.has_rank()) return call.SetRest(Sizes{Dim::Unknown(), groups});
  if (x.shape.rank() < 2 || (x.shape[1].is_number() && x.shape[1].number() % groups != 0)) {
    return call.WrongInput(
        x, fmt::format("has the shape {}, whose channels do not make {} groups", x.shape.text(), groups),
        "pass [n, c, ..] with channels that num_groups divides");
  }
  return call.SetRest(Sizes{x.shape[0], groups});
}

// ---- Quantisation ----

// Results like x; a scale, and perhaps an offset, for each row.
Status RowScales(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (IsScale(call.op.outputs[i].name)) REPRISE_RETURN_IF_ERROR(call.Set(i, RowsOf(x)));
  }
  const bool turns = call.op.FindAttribute("transpose_y") != nullptr && call.Bool("transpose_y");
  if (!turns || !x.has_rank() || x.rank() < 2) return call.SetRest(x);
  Sizes shape = x;
  std::swap(shape[x.rank() - 1], shape[x.rank() - 2]);
  return call.SetRest(shape);
}

// Two halves along a dim make one, with a scale for each row.
Status SwigluQuant(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a tensor whose dim can be halved");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim("activate_dim", call.Int("activate_dim"), x.shape.rank()));
  Sizes shape = x.shape;
  Dim& size = shape[static_cast<size_t>(dim)];
  if (size.is_number() && size.number() % 2 != 0) {
    return call.WrongInput(x, fmt::format("has the shape {}, whose dim {} is odd", x.shape.text(), dim),
                           "pass two halves of equal size along activate_dim");
  }
  size = FloorDiv(size, 2);
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("scale"), RowsOf(shape)));
  return call.SetRest(shape);
}

// A scale for each block of rows and columns. Groups may each end in a block that is not full.
Status BlockScales(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), x.shape));
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  if (rank < 2) return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass rows and columns");
  const int64_t rows = call.Int("row_block_size");
  const int64_t columns = call.Int("col_block_size");
  for (const std::string_view name : {"row_block_size", "col_block_size"}) {
    if (call.Int(name) < 1)
      return call.WrongAttribute(name, fmt::format("is {}", call.Int(name)), "set it to 1 or more");
  }
  Sizes scale = x.shape;
  scale[rank - 1] = CeilDiv(x.shape[rank - 1], columns);
  if (call.Has("group_list")) {
    const Dim groups = call.In("group_list").shape.elements();
    scale[rank - 2] = FloorDiv(x.shape[rank - 2], rows) + groups;
  } else {
    scale[rank - 2] = CeilDiv(x.shape[rank - 2], rows);
  }
  return call.SetRest(scale);
}

Status FirstDimScales(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  REPRISE_RETURN_IF_ERROR(
      call.Set(call.Out("quant_scale"), x.has_rank() && x.rank() != 0 ? Sizes{x[0]} : Sizes::Unknown(1)));
  constexpr int32_t kInt32 = 3;
  constexpr int32_t kInt4 = 29;
  InferResult& out = call.Out(0);
  if (out.dtype == -1) out.dtype = out.wanted == kInt32 ? kInt32 : kInt4;
  if (out.dtype != kInt32 || !x.has_rank() || x.rank() == 0) return call.SetRest(x);
  constexpr int64_t kNumbers = 8;  // of 4 bits in a word
  Sizes words = x;
  words.dims().back() = FloorDiv(x.back(), kNumbers);
  return call.SetRest(words);
}

// The largest magnitude is one number, or one for each group.
Status QuantMax(InferContext& call) {  // rule
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("amax"), call.In("scale").shape));
  return call.SetRest(call.First().shape);
}

// Statistics and factors of the channels of x, where data_format has them. Reserved space that nothing uses is [0].
Status ChannelNorm(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string format = call.Text("data_format");
  const bool is_known = format.size() > 1 && format[0] == 'N' && (format[1] == 'C' || format.back() == 'C');
  if (!is_known) {
    return call.WrongAttribute("data_format", fmt::format("is \"{}\"", format), "use NHWC or NCHW");
  }
  if (x.shape.has_rank() && x.shape.rank() < 2) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass a batch with channels");
  }
  for (const std::string_view name : {"scale", "offset", "mean", "variance", "reserve_space_1", "reserve_space_2"}) {
    if (!call.Has(name)) continue;
    const InferTensor& numbers = call.In(name);
    REPRISE_RETURN_IF_ERROR(call.ExpectRank(numbers, 1));
    if (!x.shape.has_rank() || !numbers.shape.has_rank()) continue;
    const size_t channel = format.back() == 'C' ? x.shape.rank() - 1 : 1;
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(numbers, numbers.shape[0], x.shape[channel], "number of channels"));
  }
  if (call.op.type == "BatchNorm" && !call.Bool("is_training") && !(call.Has("mean") && call.Has("variance"))) {
    return call.WrongInputs("mean and variance are left out, but is_training is false",
                            "pass the statistics to normalise by");
  }
  return call.SetRest({0});
}

// Statistics of each channel of each element of the batch.
Status InstanceNorm(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string format = call.Text("data_format");
  if (format.size() < 2 || format[0] != 'N' || (format[1] != 'C' && format.back() != 'C')) {
    return call.WrongAttribute("data_format", fmt::format("is \"{}\"", format), "use NCHW, NHWC, NCDHW or NDHWC");
  }
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), x.shape));
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() < 3) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()),
                           "pass a batch with channels and an image");
  }
  const size_t channel = format.back() == 'C' ? x.shape.rank() - 1 : 1;
  for (const std::string_view name : {"gamma", "beta"}) {
    const InferTensor& factors = call.In(name);
    if (!factors.shape.has_rank()) continue;
    REPRISE_RETURN_IF_ERROR(
        call.ExpectEqual(factors, factors.shape.elements(), x.shape[channel], "number of elements"));
  }
  Sizes statistics = x.shape;
  for (size_t d = 1; d < statistics.rank(); ++d) {
    if (d != channel) statistics[d] = 1;
  }
  return call.SetRest(statistics);
}

// Dims from begin_norm_axis on; the statistics have size 1 there.
Status LayerNormByAxis(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), x.shape));
  if (!x.shape.has_rank()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(const int64_t begin,
                           call.WrapDim("begin_norm_axis", call.Int("begin_norm_axis"), x.shape.rank()));
  REPRISE_ASSIGN_OR_RETURN(const int64_t parameters,
                           call.WrapDim("begin_params_axis", call.Int("begin_params_axis"), x.shape.rank()));
  const Sizes wanted(Part(x.shape, static_cast<size_t>(parameters), x.shape.rank()));
  for (const std::string_view name : {"gamma", "beta"}) {
    const InferTensor& factors = call.In(name);
    if (!factors.shape.has_rank()) continue;
    bool fits = factors.shape.rank() == wanted.rank();
    for (size_t d = 0; fits && d < wanted.rank(); ++d) fits = call.facts->Unify(factors.shape[d], wanted[d]);
    if (fits) continue;
    return call.WrongInput(factors, fmt::format("has the shape {}, expected {}", factors.shape.text(), wanted.text()),
                           "pass the sizes of x from begin_params_axis on");
  }
  Sizes statistics = x.shape;
  for (auto d = static_cast<size_t>(begin); d < statistics.rank(); ++d) statistics[d] = 1;
  return call.SetRest(statistics);
}

}  // namespace reprise::opdef::infer
