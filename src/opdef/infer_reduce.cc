// SPDX-License-Identifier: Apache-2.0
//
// Rules of reductions, scans, losses, and of results whose size depends on data.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// `shape` without `dims`, or with size 1 there. No dims: all of them.
Sizes Reduced(const Sizes& shape, const std::vector<int64_t>& dims, bool keep, bool none_is_all) {
  Sizes out;
  for (size_t d = 0; d < shape.rank(); ++d) {
    const bool is_reduced =
        (dims.empty() && none_is_all) || std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    if (!is_reduced) out.dims().push_back(shape[d]);
    if (is_reduced && keep) out.dims().push_back(1);
  }
  return out;
}

// The name of the attribute or input that names the dims.
std::string_view AxesName(const InferContext& call) {
  for (const std::string_view name : {"axes", "dim", "dims"}) {
    if (call.op.FindAttribute(name) != nullptr) return name;
  }
  return "axes";
}

// Shape without one dim, the dim as a number of the shape; nothing where it is not known.
Status SetWithout(InferContext& call, std::string_view what, std::optional<int64_t> given, bool keep) {
  const Sizes& x = call.First().shape;
  if (!x.has_rank()) return call.Open();
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.rank() == 0 ? 0 : x.rank() - (keep ? 0 : 1)));
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim(what, *given, x.rank()));
  return call.SetRest(Reduced(x, {dim}, keep, false));
}

}  // namespace

Status Reduce(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  const std::string_view name = AxesName(call);
  const bool is_attribute = call.op.FindAttribute(name) != nullptr;
  const bool keep = call.Bool(call.op.FindAttribute("keep_dims") != nullptr ? "keep_dims" : "keepdim");
  for (std::vector<InferResult>& results : call.outputs) {
    if (results[0].dtype == -1) results[0].dtype = x.dtype;
  }
  if (!x.shape.has_rank()) return call.Open();
  std::vector<int64_t> given;
  if (is_attribute) {
    given = call.Ints(name);
  } else if (const auto numbers = call.Numbers(name); numbers.has_value()) {
    given = *numbers;
  } else {
    if (keep) return call.SetRest(Sizes::Unknown(x.shape.rank()));
    const Dim count = call.In(name).shape.elements();
    const auto rank = static_cast<int64_t>(x.shape.rank());
    if (!count.is_number() || count.number() < 1 || count.number() > rank) return call.Open();
    return call.SetRest(Sizes::Unknown(static_cast<size_t>(rank - count.number())));
  }
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, call.WrapDims(name, given, x.shape.rank()));
  const bool keeps_all = call.op.FindAttribute("noop_with_empty_axes") != nullptr && call.Bool("noop_with_empty_axes");
  return call.SetRest(Reduced(x.shape, dims, keep, !keeps_all));
}

Status ArgInput(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> dim, call.Number("dimension"));
  return SetWithout(call, "dimension", dim, false);
}

Status ArgAttribute(InferContext& call) {  // rule
  return SetWithout(call, "dimension", call.Int("dimension"), call.Bool("keep_dims"));
}

// Running sums: like the input, along a dim that it has.
Status Scan(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> axis, call.Number("axis"));
  if (x.has_rank() && axis.has_value()) REPRISE_RETURN_IF_ERROR(call.WrapDim("axis", *axis, x.rank()).status());
  return call.SetRest(x);
}

Status Softmax(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  if (x.shape.has_rank()) {
    REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, call.WrapDims("axes", call.Ints("axes"), x.shape.rank()));
    std::sort(axes.begin(), axes.end());
    if (axes.empty() || axes.back() - axes.front() + 1 != static_cast<int64_t>(axes.size())) {
      return call.WrongAttribute("axes", "is " + TextOf(call.Ints("axes")),
                                 "name one dim, or dims that follow each other");
    }
  }
  InferResult& out = call.Out(0);
  if (out.dtype == -1) out.dtype = x.dtype;
  if (call.op.FindAttribute("half_to_float") != nullptr && call.Bool("half_to_float")) {
    if (x.dtype != 1) {
      return call.WrongAttribute("half_to_float", fmt::format("is set, but {} is {}", x.name, TypeName(x.dtype)),
                                 "pass x as float16, or leave the attribute out");
    }
    out.dtype = 0;
  }
  return call.SetRest(x.shape);
}

// One number, or one for each element where nothing is reduced.
Status Loss(InferContext& call) {  // rule
  if (call.Text("reduction") != "none") return call.SetRest({});
  Sizes shape = call.First().shape;
  REPRISE_RETURN_IF_ERROR(call.BroadcastWith(call.inputs[1][0], &shape));
  return call.SetRest(shape);
}

Status NllLoss(InferContext& call) {  // rule
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("total_weight"), {}));
  return call.SetRest(call.Text("reduction") == "none" ? call.In("target").shape : Sizes());
}

// A loss for each row of scores, and the gradient of all scores. Labels broadcast with the scores, or are classes.
Status RowLoss(InferContext& call) {  // rule
  const InferTensor& scores = call.In("features");
  const InferTensor& labels = call.In("labels");
  Sizes shape = scores.shape;
  const bool has_classes = call.op.inputs[1].variable == 0;
  if (!has_classes) REPRISE_RETURN_IF_ERROR(call.BroadcastWith(labels, &shape));
  if (!shape.has_rank()) return call.Open();
  if (shape.rank() == 0) return call.WrongInput(scores, "has no dims", "pass rows of scores");
  Sizes rows(Part(shape, 0, shape.rank() - 1));
  if (has_classes && labels.shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.ExpectRank(labels, rows.rank()));
    for (size_t d = 0; d < rows.rank(); ++d) {
      REPRISE_RETURN_IF_ERROR(call.ExpectEqual(labels, labels.shape[d], rows[d], fmt::format("dim {}", d)));
    }
  }
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("loss"), std::move(rows)));
  return call.SetRest(shape);
}

// States and the gradient have the shape of the parameter, whatever else there is has one element.
Status OptimizerStep(InferContext& call) {  // rule
  const InferTensor& parameter = call.First();
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (call.inputs[i].empty()) continue;
    const InferTensor& tensor = call.inputs[i][0];
    const std::string_view name = call.op.inputs[i].name;
    const bool is_state = std::any_of(call.op.outputs.begin(), call.op.outputs.end(),
                                      [&](const Operand& output) { return output.name == name; });
    if (!is_state && name != "grad" && name != "gradient" && name != "delta" && name != "max_grad_norm") {
      if (MayBeOneNumber(tensor.shape)) continue;
      return call.WrongInput(tensor, fmt::format("has the shape {}", tensor.shape.text()), "pass one number");
    }
    if (!parameter.shape.has_rank() || !tensor.shape.has_rank()) continue;
    bool fits = parameter.shape.rank() == tensor.shape.rank();
    for (size_t d = 0; fits && d < tensor.shape.rank(); ++d) {
      fits = call.facts->Unify(tensor.shape[d], parameter.shape[d]);
    }
    if (fits) continue;
    return call.WrongInput(
        tensor,
        fmt::format("has the shape {}, but {} has {}", tensor.shape.text(), parameter.name, parameter.shape.text()),
        "pass a tensor of the parameter's shape");
  }
  return call.SetRest(parameter.shape);
}

Status TopK(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  if (!x.has_rank()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim("dim", call.Int("dim"), x.rank()));
  REPRISE_ASSIGN_OR_RETURN(const Dim k, call.ValueInt("k"));
  Sizes shape = x;
  if (x.rank() != 0) {
    Dim& size = shape[static_cast<size_t>(dim)];
    if (k.is_number() && (k.number() < 0 || (size.is_number() && k.number() > size.number()))) {
      return call.Wrong("k", fmt::format("is {}, but dim {} has {} elements", k.text(), dim, size.text()),
                        "ask for no more elements than there are");
    }
    size = k;
  }
  return call.SetRest(shape);
}

// As many distinct elements as there are, at most all of them.
Status Unique(InferContext& call) {  // rule
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("idx"), call.First().shape));
  call.Out("y").bound = Sizes{call.First().shape.elements()};
  return call.Set(call.Out("y"), Sizes::Unknown(1));
}

// A row of indices for each element found, or a column.
Status NonZero(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  if (!x.has_rank()) return call.SetRest(Sizes::Unknown(2));
  const bool transpose = call.op.FindAttribute("transpose") != nullptr && call.Bool("transpose");
  const Dim rank = static_cast<int64_t>(x.rank());
  call.Out(0).bound = transpose ? Sizes{rank, x.elements()} : Sizes{x.elements(), rank};
  return call.SetRest(transpose ? Sizes{rank, Dim::Unknown()} : Sizes{Dim::Unknown(), rank});
}

}  // namespace reprise::opdef::infer
