// SPDX-License-Identifier: Apache-2.0
//
// Convolutions that read each point of their window beside its place, by an offset of its own and times a mask of its
// own, and their gradients. A point between pixels is read bilinearly; pixels outside of the image are 0.
// offset [N, 3 * G * K, Ho, Wo] holds, for G groups of channels and K points of the window: all distances to the right,
// all distances down, all masks. What is read is kept as an image [N, C, Ho * Kh, Wo * Kw], where the window of a
// result is a rectangle.
#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/deformable.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace deformable {
namespace {

using kernels::DType;

struct Problem {
  int64_t batch, in_channels, height, width;
  int64_t out_channels, kernel_h, kernel_w, out_h, out_w;
  int64_t stride_h, stride_w, top, left, dilation_h, dilation_w;
  int64_t groups, deformable_groups;

  int64_t points() const { return kernel_h * kernel_w; }
  int64_t places() const { return out_h * out_w; }
  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t moved_together() const { return in_channels / deformable_groups; }
};

// ---- Checks ----

Status FourNumbers(const OpCall& call, std::string_view name, int64_t least) {
  const std::span<const int64_t> values = call.Ints(name);
  if (values.size() == 4 &&
      std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= INT32_MAX; })) {
    return {};
  }
  return call.Invalid(fmt::format("{} is {}, expected four numbers from {} on", name, ShapeText(values), least));
}

Status ReadNumbers(const OpCall& call, Problem& p) {
  for (const std::string_view name : {"stride", "dilation"}) {
    REPRISE_RETURN_IF_ERROR(FourNumbers(call, name, 1));
    if (call.Ints(name)[0] == 1 && call.Ints(name)[1] == 1) continue;
    return call.Invalid(
        fmt::format("{} is {}, expected 1 for the dims N and C, [1, 1, h, w]", name, ShapeText(call.Ints(name))));
  }
  REPRISE_RETURN_IF_ERROR(FourNumbers(call, "padding", 0));
  if (!call.Bool("modulated")) {
    return call.Invalid("modulated is false, but offset has masks in every case here", "pass true, and masks of 1");
  }
  p.stride_h = call.Ints("stride")[2];
  p.stride_w = call.Ints("stride")[3];
  p.dilation_h = call.Ints("dilation")[2];
  p.dilation_w = call.Ints("dilation")[3];
  p.top = call.Ints("padding")[0];
  p.left = call.Ints("padding")[2];
  p.groups = call.Int("groups");
  p.deformable_groups = call.Int("deformableGroups");
  for (const std::string_view name : {"groups", "deformableGroups"}) {
    if (call.Int(name) < 1 || p.in_channels % call.Int(name) != 0) {
      return call.Invalid(
          fmt::format("{} is {}, which does not divide {} channels", name, call.Int(name), p.in_channels));
    }
  }
  return {};
}

Status ReadWeight(const OpCall& call, Problem& p) {
  const Operand& weight = call.Get("weight");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, weight, 4, 4));
  p.out_channels = weight.sizes()[0];
  if (weight.sizes()[1] != p.group_in() || p.out_channels % p.groups != 0) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected [a multiple of {}, {}, kernel ..]",
                                                   ShapeText(weight.sizes()), p.groups, p.group_in()));
  }
  if (weight.sizes()[2] == p.kernel_h && weight.sizes()[3] == p.kernel_w) return {};
  return call.Invalid(fmt::format("kernelSize is [{}, {}], but weight has shape {}", p.kernel_h, p.kernel_w,
                                  ShapeText(weight.sizes())));
}

Status ReadProblem(const OpCall& call, Problem& p) {
  const Operand& x = call.Get(call.Has("x") ? "x" : "input");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, x, 4, 4));
  p.batch = x.sizes()[0];
  p.in_channels = x.sizes()[1];
  p.height = x.sizes()[2];
  p.width = x.sizes()[3];
  REPRISE_RETURN_IF_ERROR(ReadNumbers(call, p));
  const std::span<const int64_t> kernel = call.Ints("kernelSize");
  if (kernel.size() != 2 || kernel[0] < 1 || kernel[1] < 1 || kernel[0] > INT32_MAX || kernel[1] > INT32_MAX) {
    return call.Invalid(fmt::format("kernelSize is {}, expected two numbers above 0", ShapeText(kernel)));
  }
  p.kernel_h = kernel[0];
  p.kernel_w = kernel[1];
  if (call.Has("weight")) REPRISE_RETURN_IF_ERROR(ReadWeight(call, p));
  const auto size_of = [](int64_t size, int64_t padding, int64_t count, int64_t dilation, int64_t stride) {
    const int64_t rest = size + padding - dilation * (count - 1) - 1;
    return rest < 0 ? 0 : rest / stride + 1;
  };
  const std::span<const int64_t> padding = call.Ints("padding");
  p.out_h = size_of(p.height, padding[0] + padding[1], p.kernel_h, p.dilation_h, p.stride_h);
  p.out_w = size_of(p.width, padding[2] + padding[3], p.kernel_w, p.dilation_w, p.stride_w);
  if (p.out_h == 0 || p.out_w == 0) {
    return call.InvalidOperand(x, fmt::format("has shape {}: with padding {} no kernel of [{}, {}] fits",
                                              ShapeText(x.sizes()), ShapeText(padding), p.kernel_h, p.kernel_w));
  }
  return {};
}

Status Check(OpCall& call, std::string_view name, std::initializer_list<int64_t> shape, std::string_view what) {
  if (!call.Has(name) || call.Find(name) == nullptr) return {};
  return call.CheckShape(call.Get(name), std::span<const int64_t>(shape.begin(), shape.size()),
                         [&] { return std::string(what); });
}

}  // namespace

Status DeformableShape(OpCall& call) {
  Problem p{};
  REPRISE_RETURN_IF_ERROR(ReadProblem(call, p));
  const int64_t offsets = 3 * p.deformable_groups * p.points();
  for (const std::string_view name : {"offset", "gradOffset"}) {
    REPRISE_RETURN_IF_ERROR(Check(call, name, {p.batch, offsets, p.out_h, p.out_w},
                                  "[N, 3 * deformableGroups * points of the kernel, out ..]:"));
  }
  for (const std::string_view name : {"out", "gradOutput"}) {
    REPRISE_RETURN_IF_ERROR(Check(call, name, {p.batch, p.out_channels, p.out_h, p.out_w}, "the convolved shape"));
  }
  for (const std::string_view name : {"deformOutOptional", "offsetOut"}) {
    REPRISE_RETURN_IF_ERROR(Check(call, name, {p.batch, p.in_channels, p.out_h * p.kernel_h, p.out_w * p.kernel_w},
                                  "a kernel for each place of the result,"));
  }
  for (const std::string_view name : {"biasOptional", "gradBias"}) {
    REPRISE_RETURN_IF_ERROR(Check(call, name, {p.out_channels}, "one for each channel of the result,"));
  }
  REPRISE_RETURN_IF_ERROR(Check(call, "gradInput", {p.batch, p.in_channels, p.height, p.width}, "the shape of input,"));
  return Check(call, "gradWeight", {p.out_channels, p.group_in(), p.kernel_h, p.kernel_w}, "the shape of weight,");
}

namespace {

// ---- Reading beside the place ----

// Where a point is read: the pixel above and left of it, and how far it is from there.
template <class T>
struct Point {
  bool is_inside = false;
  int64_t row = 0, column = 0;
  T down = 0, right = 0;
  T mask = 0;
};

template <class T>
Point<T> PointOf(const Problem& p, const T* offset, int64_t entry, int64_t group, int64_t point, int64_t place) {
  const int64_t block = p.deformable_groups * p.points() * p.places();
  const T* const at = offset + entry * 3 * block + (group * p.points() + point) * p.places() + place;
  const T x = static_cast<T>(place % p.out_w * p.stride_w - p.left + point % p.kernel_w * p.dilation_w) + at[0];
  const T y = static_cast<T>(place / p.out_w * p.stride_h - p.top + point / p.kernel_w * p.dilation_h) + at[block];
  Point<T> result;
  result.mask = at[2 * block];
  result.is_inside =
      y > -1 && x > -1 && y < static_cast<T>(p.height) && x < static_cast<T>(p.width);  // not NaN, either
  if (!result.is_inside) return result;
  result.row = static_cast<int64_t>(std::floor(y));
  result.column = static_cast<int64_t>(std::floor(x));
  result.down = y - static_cast<T>(result.row);
  result.right = x - static_cast<T>(result.column);
  return result;
}
// The four pixels around a point: [above, below] x [left, right].
template <class T>
struct Corners {
  T value[2][2];

  Corners(const Problem& p, const T* image, const Point<T>& point) {
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t row = point.row + i, column = point.column + j;
        const bool exists = row >= 0 && row < p.height && column >= 0 && column < p.width;
        value[i][j] = exists ? image[row * p.width + column] : T(0);
      }
    }
  }
  T Blend(T down, T right) const {
    return (1 - down) * ((1 - right) * value[0][0] + right * value[0][1]) +
           down * ((1 - right) * value[1][0] + right * value[1][1]);
  }
  T ToTheRight(T down) const { return (1 - down) * (value[0][1] - value[0][0]) + down * (value[1][1] - value[1][0]); }
  T Down(T right) const { return (1 - right) * (value[1][0] - value[0][0]) + right * (value[1][1] - value[0][1]); }
};

// A unit is a point of the window of one group of channels in one entry.
struct Unit {
  int64_t entry, group, point;

  Unit(const Problem& p, int64_t unit)
      : entry(unit / p.points() / p.deformable_groups),
        group(unit / p.points() % p.deformable_groups),
        point(unit % p.points()) {}
};

// Where the kept image has what a point of the window read for a place.
int64_t KeptAt(const Problem& p, int64_t entry, int64_t channel, int64_t point, int64_t place) {
  const int64_t row = place / p.out_w * p.kernel_h + point / p.kernel_w;
  const int64_t column = place % p.out_w * p.kernel_w + point % p.kernel_w;
  return ((entry * p.in_channels + channel) * p.out_h * p.kernel_h + row) * p.out_w * p.kernel_w + column;
}

// refs: what is read [N, C, K, places], the same as an image, x, offset. Units: Unit.
template <class T>
void ReadPoints(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  T* const kept = DataOf<T>(launch, 1, memory);
  const T* const x = DataOf<T>(launch, 2, memory);
  const T* const offset = DataOf<T>(launch, 3, memory);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const Unit unit(p, index);
    for (int64_t place = 0; place < p.places(); ++place) {
      const Point<T> point = PointOf(p, offset, unit.entry, unit.group, unit.point, place);
      for (int64_t k = 0; k < p.moved_together(); ++k) {
        const int64_t channel = unit.group * p.moved_together() + k;
        const int64_t image = unit.entry * p.in_channels + channel;
        T value = 0;
        if (point.is_inside)
          value = Corners<T>(p, x + image * p.height * p.width, point).Blend(point.down, point.right);
        value *= point.mask;
        DataOf<T>(launch, 0, memory)[(image * p.points() + unit.point) * p.places() + place] = value;
        if (kept != nullptr) kept[KeptAt(p, unit.entry, channel, unit.point, place)] = value;
      }
    }
  }
}

// refs: out, what was read, weight, bias. A unit is a channel of the result in one entry.
template <class T>
void AddUp(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const T* const bias = DataOf<T>(launch, 3, memory);
  const int64_t depth = p.group_in() * p.points();
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t entry = unit / p.out_channels, channel = unit % p.out_channels;
    T* const out = DataOf<T>(launch, 0, memory) + unit * p.places();
    const int64_t first = entry * p.in_channels + channel / p.group_out() * p.group_in();
    const T* const read = DataOf<T>(launch, 1, memory) + first * p.points() * p.places();
    const T* const weight = DataOf<T>(launch, 2, memory) + channel * depth;
    std::fill_n(out, p.places(), bias == nullptr ? T(0) : bias[channel]);
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t place = 0; place < p.places(); ++place) out[place] += weight[i] * read[i * p.places() + place];
    }
  }
}

// ---- Gradients ----

// refs: gradients of what was read [N, C, K, places], weight, gradOutput. A unit is a channel in one entry.
template <class T>
void OfRead(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const int64_t depth = p.group_in() * p.points();
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t entry = unit / p.in_channels, channel = unit % p.in_channels;
    const int64_t first = channel / p.group_in() * p.group_out();
    T* const out = DataOf<T>(launch, 0, memory) + unit * p.points() * p.places();
    std::fill_n(out, p.points() * p.places(), T(0));
    for (int64_t o = first; o < first + p.group_out(); ++o) {
      const T* const weight = DataOf<T>(launch, 1, memory) + o * depth + channel % p.group_in() * p.points();
      const T* const grad = DataOf<T>(launch, 2, memory) + (entry * p.out_channels + o) * p.places();
      for (int64_t k = 0; k < p.points(); ++k) {
        for (int64_t place = 0; place < p.places(); ++place) out[k * p.places() + place] += weight[k] * grad[place];
      }
    }
  }
}

// refs: gradWeight, gradBias (both float64), gradOutput, the kept image. A unit is a channel of the result.
template <class T>
void OfWeight(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const T* const kept = DataOf<T>(launch, 3, memory);
  for (int64_t o = range.begin; o < range.end; ++o) {
    double of_bias = 0;
    for (int64_t entry = 0; entry < p.batch; ++entry) {
      const T* const grad = DataOf<T>(launch, 2, memory) + (entry * p.out_channels + o) * p.places();
      for (int64_t place = 0; place < p.places(); ++place) of_bias += static_cast<double>(grad[place]);
    }
    DataOf<double>(launch, 1, memory)[o] = of_bias;
    for (int64_t i = 0; i < p.group_in() * p.points(); ++i) {
      const int64_t channel = o / p.group_out() * p.group_in() + i / p.points(), point = i % p.points();
      double sum = 0;
      for (int64_t entry = 0; entry < p.batch; ++entry) {
        const T* const grad = DataOf<T>(launch, 2, memory) + (entry * p.out_channels + o) * p.places();
        for (int64_t place = 0; place < p.places(); ++place) {
          sum += static_cast<double>(grad[place]) * static_cast<double>(kept[KeptAt(p, entry, channel, point, place)]);
        }
      }
      DataOf<double>(launch, 0, memory)[o * p.group_in() * p.points() + i] = sum;
    }
  }
}

// refs: gradInput, gradients of what was read, offset. A unit is a channel in one entry.
template <class T>
void OfInput(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const T* const offset = DataOf<T>(launch, 2, memory);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t entry = unit / p.in_channels, group = unit % p.in_channels / p.moved_together();
    T* const out = DataOf<T>(launch, 0, memory) + unit * p.height * p.width;
    const T* const grad = DataOf<T>(launch, 1, memory) + unit * p.points() * p.places();
    std::fill_n(out, p.height * p.width, T(0));
    for (int64_t i = 0; i < p.points() * p.places(); ++i) {
      const Point<T> point = PointOf(p, offset, entry, group, i / p.places(), i % p.places());
      for (int64_t corner = 0; point.is_inside && corner < 4; ++corner) {
        const int64_t below = corner / 2, beside = corner % 2, row = point.row + below, column = point.column + beside;
        if (row < 0 || row >= p.height || column < 0 || column >= p.width) continue;
        const T share = (below != 0 ? point.down : 1 - point.down) * (beside != 0 ? point.right : 1 - point.right);
        out[row * p.width + column] += grad[i] * point.mask * share;
      }
    }
  }
}

// refs: gradOffset, gradients of what was read, x, offset. Units: Unit.
template <class T>
void OfOffset(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const T* const grads = DataOf<T>(launch, 1, memory);
  const T* const x = DataOf<T>(launch, 2, memory);
  const int64_t block = p.deformable_groups * p.points() * p.places();
  for (int64_t index = range.begin; index < range.end; ++index) {
    const Unit unit(p, index);
    for (int64_t place = 0; place < p.places(); ++place) {
      const Point<T> point = PointOf(p, DataOf<T>(launch, 3, memory), unit.entry, unit.group, unit.point, place);
      T to_the_right = 0, down = 0, of_mask = 0;
      for (int64_t k = 0; point.is_inside && k < p.moved_together(); ++k) {
        const int64_t image = unit.entry * p.in_channels + unit.group * p.moved_together() + k;
        const Corners<T> corners(p, x + image * p.height * p.width, point);
        const T grad = grads[(image * p.points() + unit.point) * p.places() + place];
        to_the_right += grad * corners.ToTheRight(point.down);
        down += grad * corners.Down(point.right);
        of_mask += grad * corners.Blend(point.down, point.right);
      }
      T* const out = DataOf<T>(launch, 0, memory) + unit.entry * 3 * block +
                     (unit.group * p.points() + unit.point) * p.places() + place;
      out[0] = to_the_right * point.mask;
      out[block] = down * point.mask;
      out[2 * block] = of_mask;
    }
  }
}

// ---- Launches ----

template <Launch::Kernel float_kernel, Launch::Kernel double_kernel>
void Run(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  (launch.compute == DType::kDouble ? double_kernel : float_kernel)(launch, range, memory);
}

struct Plan {
  OpCall* call = nullptr;
  Problem problem{};
  std::shared_ptr<const Problem> state;
  DType math = DType::kUndefined;

  void Add(Launch::Kernel kernel, std::initializer_list<const Dense*> written, std::initializer_list<const Dense*> read,
           int64_t units, int64_t cost) const {
    Launch& launch = call->AddLaunch(kernel);
    for (const Dense* dense : written) dense->Write(*call, launch);
    for (const Dense* dense : read) dense->Read(*call, launch);
    launch.compute = math;
    launch.state = state;
    launch.units = units;
    launch.grain = GrainOf(cost);
  }
};

StatusOr<Plan> PlanOf(OpCall& call) {
  Problem p{};
  REPRISE_RETURN_IF_ERROR(ReadProblem(call, p));
  return Plan{&call, p, std::make_shared<Problem>(p), WideFloatOf(call.compute)};
}

Dense ForEachPoint(const Plan& plan) {
  const Problem& p = plan.problem;
  const int64_t shape[] = {p.batch, p.in_channels, p.points(), p.places()};
  return DenseTemporary(*plan.call, plan.math, shape);
}

void AddReading(const Plan& plan, const Dense& read, const Dense& kept, const Dense& x, const Dense& offset) {
  const Problem& p = plan.problem;
  plan.Add(Run<ReadPoints<float>, ReadPoints<double>>, {&read, &kept}, {&x, &offset},
           p.batch * p.deformable_groups * p.points(), p.places() * p.moved_together() * 8);
}

void AddGradientsOfReading(const Plan& plan, const Dense& of_x, const Dense& of_offset, const Dense& of_read,
                           const Dense& x, const Dense& offset) {
  const Problem& p = plan.problem;
  plan.Add(Run<OfInput<float>, OfInput<double>>, {&of_x}, {&of_read, &offset}, p.batch * p.in_channels,
           p.points() * p.places() * 16);
  plan.Add(Run<OfOffset<float>, OfOffset<double>>, {&of_offset}, {&of_read, &x, &offset},
           p.batch * p.deformable_groups * p.points(), p.places() * p.moved_together() * 16);
}

Status LowerDeformable(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Plan plan, PlanOf(call));
  const Problem& p = plan.problem;
  const Dense x = DenseInput(call, call.Get("x"), plan.math), weight = DenseInput(call, call.Get("weight"), plan.math);
  const Dense offset = DenseInput(call, call.Get("offset"), plan.math);
  const Dense bias = DenseInput(call, call.Find("biasOptional"), plan.math);
  const Dense out = DenseOutput(call, call.Get("out"), plan.math);
  const Dense kept = DenseOutput(call, call.Find("deformOutOptional"), plan.math);
  const Dense read = ForEachPoint(plan);
  AddReading(plan, read, kept, x, offset);
  plan.Add(Run<AddUp<float>, AddUp<double>>, {&out}, {&read, &weight, &bias}, p.batch * p.out_channels,
           p.places() * p.group_in() * p.points());
  out.Store(call);
  kept.Store(call);
  return {};
}

Status LowerDeformableBackward(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Plan plan, PlanOf(call));
  const Problem& p = plan.problem;
  const auto in = [&](std::string_view name) { return DenseInput(call, call.Get(name), plan.math); };
  const Dense x = in("input"), grad = in("gradOutput"), kept = in("offsetOut"), weight = in("weight"),
              offset = in("offset");
  const Dense of_x = DenseOutput(call, call.Get("gradInput"), plan.math);
  const Dense of_offset = DenseOutput(call, call.Get("gradOffset"), plan.math);
  const Dense of_weight = DenseOutput(call, call.Get("gradWeight"), DType::kDouble);
  const Dense of_bias = DenseOutput(call, call.Get("gradBias"), DType::kDouble);
  const Dense of_read = ForEachPoint(plan);
  const int64_t each = p.points() * p.places();
  plan.Add(Run<OfRead<float>, OfRead<double>>, {&of_read}, {&weight, &grad}, p.batch * p.in_channels,
           each * p.group_out());
  plan.Add(Run<OfWeight<float>, OfWeight<double>>, {&of_weight, &of_bias}, {&grad, &kept}, p.out_channels,
           p.batch * each * p.group_in());
  AddGradientsOfReading(plan, of_x, of_offset, of_read, x, offset);
  for (const Dense* output : {&of_x, &of_offset, &of_weight, &of_bias}) output->Store(call);
  return {};
}

// refs: gradients of what was read [N, C, K, places], those of the kept image. A unit is a channel in one entry.
template <class T>
void FromImage(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& p = launch.State<Problem>();
  const T* const image = DataOf<T>(launch, 1, memory);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    T* const out = DataOf<T>(launch, 0, memory) + unit * p.points() * p.places();
    for (int64_t i = 0; i < p.points() * p.places(); ++i) {
      out[i] = image[KeptAt(p, unit / p.in_channels, unit % p.in_channels, i / p.places(), i % p.places())];
    }
  }
}

}  // namespace

Status LowerOffsets(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Plan plan, PlanOf(call));
  const Dense kept = DenseOutput(call, call.Get("offsetOut"), plan.math);
  AddReading(plan, ForEachPoint(plan), kept, DenseInput(call, call.Get("x"), plan.math),
             DenseInput(call, call.Get("offset"), plan.math));
  kept.Store(call);
  return {};
}

Status LowerOffsetsGradient(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Plan plan, PlanOf(call));
  const Problem& p = plan.problem;
  const Dense grad = DenseInput(call, call.Get("offsetOut"), plan.math);
  const Dense x = DenseInput(call, call.Get("x"), plan.math), offset = DenseInput(call, call.Get("offset"), plan.math);
  const Dense of_x = DenseOutput(call, call.Get("gradInput"), plan.math), of_read = ForEachPoint(plan);
  const Dense of_offset = DenseOutput(call, call.Get("gradOffset"), plan.math);
  plan.Add(Run<FromImage<float>, FromImage<double>>, {&of_read}, {&grad}, p.batch * p.in_channels,
           p.points() * p.places());
  AddGradientsOfReading(plan, of_x, of_offset, of_read, x, offset);
  of_x.Store(call);
  of_offset.Store(call);
  return {};
}

}  // namespace deformable

using deformable::DeformableShape;
using deformable::LowerDeformable;
using deformable::LowerDeformableBackward;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/deformable.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
