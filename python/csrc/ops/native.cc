// SPDX-License-Identifier: Apache-2.0
#include "ops/native.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "graph/liveness.h"
#include "graph/task_group.h"
#include "ops/launch.h"
#include "ops/tensors.h"
#include "ops/values.h"

namespace torch_npu {
namespace {

using c10::IValue;
using reprise::OperatorArgument;
using Kind = OperatorArgument::Kind;

// Types of the computation that a row is for; the kernels of the CPU do the others. kNonZeroAlpha: a product that
// counts for nothing, NaN or not.
enum class Only { kAny, kFloating, kIntegral, kNonZeroAlpha };

// One operator of torch: a row of api/torch_ops.csv. `arguments`, one word for each parameter of the operator of the
// device:
//     name       that argument; of a list of numbers or a number, too
//     !name      the same, a tensor whose type has no say (masks, statistics)
//     name|word  the same, or the word when it is none
//     name[]     a number as a list of one; none is an empty list
//     name#      a number as an integer
//     name$      an integer as a number of any type
//     @0         result 0
//     %0         type of result 0
//     =7 =0.5    constants; an integer, a real number
//     [] -       an empty list; null
// and, for operators that torch_npu defines (DeclareNative):
//     name{}     a tensor as a list of one
//     name%|29   a number of torch's for a type, or what it is when none: the device's number for the type
//     name:a=0,b=1  a text from among these, as its number
//     @*         all results as a list
//     @1?name    result 1 if that flag is set, or that tensor is there, else null
// A row also serves the forms of the operator that work in place and that have out=.
// Not in the table: indexing and losses by class (the CPU kernels report indices that are out of range; kernels of the
// device cannot), integer division (zero), whatever draws.
struct Row {
  std::string_view torch;
  const char* function;  // C name
  std::string_view arguments;
  const char* with_scalar = "";  // function for an `other` that is a number
  Only only = Only::kAny;
};

constexpr Row kRows[] = {
#define REPRISE_TORCH_OP(torch, function, arguments, with_scalar, only) \
  {torch, function, arguments, with_scalar, Only::only},
#include "ops/generated/torch_ops.def"
};

// Operators of torch.ops.npu and torch.ops.atb.
constexpr Row kDeclaredRows[] = {
#define REPRISE_DECLARED_OP(torch, function, arguments) {torch, function, arguments},
#include "ops/generated/torch_ops.def"
};

// What a parameter is made from.
struct Source {
  enum class From : uint8_t { kArgument, kResult, kTypeOfResult, kInt, kReal, kEmptyList, kNull };
  From from = From::kNull;
  int index = -1;           // of the argument or result
  bool is_apart = false;    // its type has no say
  bool is_number = false;   // torch calls it a Scalar
  bool is_alpha = false;    // of a product
  bool is_list = false;     // a number stands for a list of one
  bool is_integer = false;  // whatever it is, an integer is wanted
  bool is_type = false;
  int flag = -1;  // argument without which it is null
  std::vector<std::pair<std::string, int64_t>> choices;
  bool has_default = false;
  bool default_is_real = false;
  int64_t integer = 0;
  double real = 0;
};

bool ParseNumber(std::string_view text, Source& source) {
  source.default_is_real = text.find('.') != std::string_view::npos;
  if (source.default_is_real) {
    return std::from_chars(text.begin(), text.end(), source.real).ec == std::errc();
  }
  return std::from_chars(text.begin(), text.end(), source.integer).ec == std::errc();
}

bool IsNumberType(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::NumberType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && IsNumberType(optional->getElementType());
}

bool ParseChoices(std::string_view text, Source& source) {
  while (!text.empty()) {
    const std::string_view choice = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), choice.size() + 1));
    const size_t equals = choice.find('=');
    if (equals == std::string_view::npos) return false;
    auto& [name, number] = source.choices.emplace_back();
    name = choice.substr(0, equals);
    if (std::from_chars(choice.begin() + equals + 1, choice.end(), number).ec != std::errc()) return false;
  }
  return true;
}

bool Parse(std::string_view word, const c10::FunctionSchema& schema, Source& source) {
  using From = Source::From;
  if (word == "-") return true;
  if (word == "[]") {
    source.from = From::kEmptyList;
    return true;
  }
  if (word.front() == '!') {
    source.is_apart = true;
    word.remove_prefix(1);
  }
  if (word.front() == '=') {
    if (!ParseNumber(word.substr(1), source)) return false;
    source.from = source.default_is_real ? From::kReal : From::kInt;
    return true;
  }
  if (word.front() == '@' || word.front() == '%') {
    source.from = word.front() == '@' ? From::kResult : From::kTypeOfResult;
    source.index = word[1] == '*' ? -1 : word[1] - '0';
    if (const size_t mark = word.find('?'); mark != std::string_view::npos) {
      const auto flag = schema.argumentIndexWithName(word.substr(mark + 1));
      if (!flag.has_value()) return false;
      source.flag = *flag;
    }
    return true;
  }
  if (const size_t bar = word.find('|'); bar != std::string_view::npos) {
    source.has_default = true;
    if (!ParseNumber(word.substr(bar + 1), source)) return false;
    word = word.substr(0, bar);
  }
  if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
    if (!ParseChoices(word.substr(colon + 1), source)) return false;
    word = word.substr(0, colon);
  }
  if (word.ends_with("%")) {
    source.is_type = true;
    word.remove_suffix(1);
  }
  if (word.ends_with("[]") || word.ends_with("{}")) {
    source.is_list = true;
    word.remove_suffix(2);
  }
  if (word.ends_with("#")) {
    source.is_integer = true;
    word.remove_suffix(1);
  }
  if (word.ends_with("$")) {
    source.is_number = true;
    word.remove_suffix(1);
  }
  const auto index = schema.argumentIndexWithName(word);
  if (!index.has_value()) return false;
  source.from = From::kArgument;
  source.index = *index;
  source.is_alpha = word == "alpha";
  source.is_number |= IsNumberType(schema.arguments()[static_cast<size_t>(*index)].type());
  return true;
}

int32_t AclType(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return ACL_FLOAT;
    case at::kHalf: return ACL_FLOAT16;
    case at::kChar: return ACL_INT8;
    case at::kInt: return ACL_INT32;
    case at::kByte: return ACL_UINT8;
    case at::kShort: return ACL_INT16;
    case at::kLong: return ACL_INT64;
    case at::kDouble: return ACL_DOUBLE;
    case at::kBool: return ACL_BOOL;
    case at::kComplexFloat: return ACL_COMPLEX64;
    case at::kComplexDouble: return ACL_COMPLEX128;
    case at::kBFloat16: return ACL_BF16;
    default: return ACL_DT_UNDEFINED;
  }
}

// What programs pass for a type: torch's number of it, or 256 more than the device's.
int64_t AclTypeOfNumber(int64_t number) {
  constexpr int64_t kDeviceTypes = 256;
  if (number >= kDeviceTypes) return number - kDeviceTypes;
  if (number == static_cast<int64_t>(at::kQUInt4x2)) return ACL_INT4;
  if (number < 0 || number >= static_cast<int64_t>(at::ScalarType::Undefined)) return ACL_DT_UNDEFINED;
  return AclType(static_cast<at::ScalarType>(number));
}

// False for tensors that the device's operators cannot see.
bool Describe(const at::Tensor& tensor, reprise::TensorView& view) {
  const int32_t type = AclType(tensor.scalar_type());
  if (type == ACL_DT_UNDEFINED || tensor.device().type() != c10::kPrivateUse1 || tensor.is_conj() || tensor.is_neg()) {
    return false;
  }
  NoteUse(tensor);
  view = {const_cast<void*>(tensor.const_data_ptr()), type, static_cast<int>(tensor.dim()), tensor.sizes().data(),
          tensor.strides().data()};
  return true;
}

// \pre the thread has the context of the stream's device
void QueueOn(const NPUStream& stream, reprise::PreparedOperator& plan,
             const std::shared_ptr<const reprise::OperationInfo>& info, at::Tensor workspace = {}) {
  // Of the caller, if it is large enough. Else whoever gets its memory next does so behind this launch.
  const uint64_t bytes = plan.workspace_bytes();
  if (bytes == 0) {
    workspace.reset();
  } else if (!workspace.defined() || workspace.nbytes() < bytes) {
    // Nothing would hold the memory back until the graph has run.
    TORCH_CHECK(!IsUpdating(stream), info->name, ": needs ", bytes,
                " bytes of workspace, which a task of a graph has no ",
                "room for of its own; pass a tensor of that size as workspace, at the capture and at each update");
    workspace = Empty({static_cast<int64_t>(bytes)}, at::kByte, stream.device());
  }
  Guarded([&] { plan.Launch(stream.handle(), workspace.defined() ? workspace.data_ptr() : nullptr, info); });
  WaitIfBlocking(stream);
}

void Queue(reprise::PreparedOperator& plan, const std::shared_ptr<const reprise::OperationInfo>& info,
           at::Tensor workspace = {}) {
  EnsureContext();
  QueueOn(CurrentStream(), plan, info, std::move(workspace));
}

// Of "@1?name".
bool IsSet(const IValue& flag) {
  if (flag.isNone()) return false;
  return flag.isBool() ? flag.toBool() : flag.isInt() ? flag.toInt() != 0 : true;
}

constexpr size_t kMaxParameters = 16;  // without memory of their own
constexpr size_t kMaxTensors = 64;
constexpr size_t kNoList = static_cast<size_t>(-1);

}  // namespace

struct NativeOp {
  int op = -1;
  int op_with_scalar = -1;
  int other = -1;  // parameter that may be a number instead of a tensor
  Only only = Only::kAny;
  bool is_declared = false;  // elsewhere: the device alone says what it takes
  int workspace = -1;        // argument
  std::vector<Source> sources;
};

namespace {

// The arguments of one call; what they point to is in the object.
class Arguments {
 public:
  Arguments(const NativeOp& native, c10::ArrayRef<IValue> arguments, c10::ArrayRef<at::Tensor> results)
      : native_(native), arguments_(arguments), results_(results) {
    packed_.reserve(native.sources.size());
    if (native.is_declared) MakeRoom();
  }

  bool Build() {
    for (size_t i = 0; i < native_.sources.size(); ++i) {
      if (!Add(native_.sources[i], static_cast<int>(i) == native_.other)) return false;
    }
    if (native_.only == Only::kFloating) return c10::isFloatingType(type_);
    if (native_.only == Only::kNonZeroAlpha && alpha_is_zero_) return false;
    return native_.only != Only::kIntegral || c10::isIntegralType(type_, /*includeBool=*/false);
  }
  int op() const { return with_scalar_ ? native_.op_with_scalar : native_.op; }
  const OperatorArgument* data() const { return packed_.data(); }
  size_t size() const { return packed_.size(); }
  const std::string& why() const { return why_; }
  /// Where the tensors are, in their order.
  c10::ArrayRef<NativePlan::Place> places() const { return places_; }

 private:
  // Lists of tensors may be long.
  void MakeRoom() {
    size_t tensors = results_.size() + 1;
    for (const IValue& value : arguments_) ForEachTensor(value, [&](const at::Tensor&) { ++tensors; });
    if (tensors <= kMaxTensors) return;
    more_views_.resize(tensors);
    room_ = tensors;
  }
  reprise::TensorView* Views() { return (more_views_.empty() ? all_views_.data() : more_views_.data()) + views_; }

  bool Refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }

  OperatorArgument& Next(Kind kind) {
    OperatorArgument& next = packed_.emplace_back();
    next.kind = kind;
    return next;
  }

  bool AddView(const at::Tensor& tensor, bool is_apart, bool is_result, size_t index, size_t element = kNoList) {
    if (views_ == room_ || !Describe(tensor, *Views())) {
      if (!native_.is_declared) return false;
      return Refuse(c10::str("it takes no ", tensor.toString(), " on ", tensor.device(), " of sizes ", tensor.sizes()));
    }
    ++views_;
    places_.push_back({static_cast<int16_t>(index), static_cast<int16_t>(element), is_result});
    const at::ScalarType type = tensor.scalar_type();
    // Tensors of several types meet by rules of torch (zero-dimensional ones give way).
    if (!is_apart && !is_result && !native_.is_declared) {
      if (type_ != at::ScalarType::Undefined && type_ != type) return false;
      type_ = type;
    }
    return true;
  }

  bool AddTensor(const at::Tensor& tensor, const Source& source, bool is_result, Kind kind = Kind::kTensor) {
    if (!tensor.defined()) {
      Next(Kind::kNull);
      return true;
    }
    OperatorArgument& to = Next(kind);
    to.values = Views();
    to.count = 1;
    return AddView(tensor, source.is_apart, is_result, static_cast<size_t>(source.index));
  }

  bool AddNumber(const at::Scalar& number) {
    if (numbers_ == numbers_of_.size()) return false;
    Number& value = numbers_of_[numbers_++];
    int32_t dtype = ACL_INT64;
    if (number.isBoolean()) {
      value.truth = number.toBool();
      dtype = ACL_BOOL;
    } else if (number.isFloatingPoint()) {
      // The type of the result would depend on torch's default.
      if (type_ != at::ScalarType::Undefined && c10::isIntegralType(type_, true)) return false;
      value.real[0] = number.toDouble();
      dtype = ACL_DOUBLE;
    } else if (number.isComplex()) {
      const auto complex = number.toComplexDouble();
      value.real[0] = complex.real();
      value.real[1] = complex.imag();
      dtype = ACL_COMPLEX128;
    } else {
      value.integer = number.toLong();
    }
    value.described = {&value.integer, dtype};
    OperatorArgument& to = Next(Kind::kScalar);
    to.values = &value.described;
    to.count = 1;
    return true;
  }

  bool AddTypeOf(const at::Tensor& result) {
    // Elements are converted before they are added, and large ones wrap.
    if (c10::isFloatingType(type_) && !c10::isFloatingType(result.scalar_type())) return false;
    Next(Kind::kInt).integer = AclType(result.scalar_type());
    return true;
  }

  bool AddInts(const int64_t* values, size_t count) {
    OperatorArgument& to = Next(Kind::kInts);
    to.values = values;
    to.count = count;
    return true;
  }

  bool Add(const Source& source, bool may_be_number) {
    switch (source.from) {
      case Source::From::kNull: Next(Kind::kNull); return true;
      case Source::From::kInt: Next(Kind::kInt).integer = source.integer; return true;
      case Source::From::kReal: Next(Kind::kReal).real = source.real; return true;
      case Source::From::kEmptyList: return AddInts(nullptr, 0);
      case Source::From::kResult:
        if (source.index < 0) return AddResults();
        if (source.flag >= 0 && !IsSet(arguments_[static_cast<size_t>(source.flag)])) {
          Next(Kind::kNull);
          return true;
        }
        return static_cast<size_t>(source.index) < results_.size() &&
               AddTensor(results_[static_cast<size_t>(source.index)], source, true);
      case Source::From::kTypeOfResult: return AddTypeOf(results_[static_cast<size_t>(source.index)]);
      case Source::From::kArgument: break;
    }
    const IValue& value = arguments_[static_cast<size_t>(source.index)];
    if (value.isNone()) return AddNone(source);
    if (source.is_type) {
      Next(Kind::kInt).integer = AclTypeOfNumber(value.toInt());
      return true;
    }
    if (!source.choices.empty()) return AddChoice(source, value.toStringRef());
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (source.is_list) return AddTensor(tensor, source, false, Kind::kTensors);
      if (tensor.defined() && may_be_number && tensor.dim() == 0 && tensor.device().is_cpu()) {
        with_scalar_ = true;
        return tensor.unsafeGetTensorImpl()->is_wrapped_number() && AddNumber(tensor.item());
      }
      return AddTensor(tensor, source, false);
    }
    if (source.is_number && !source.is_integer) {
      if (source.is_alpha) alpha_is_zero_ = value.toScalar().equal(0);
      return AddNumber(value.toScalar());
    }
    if (source.is_integer) return AddInteger(value);
    if (source.is_list && value.isInt()) {
      single_ = value.toInt();
      return AddInts(&single_, 1);
    }
    return AddPlain(value, source);
  }

  bool AddResults() {
    OperatorArgument& to = Next(Kind::kTensors);
    to.values = Views();
    to.count = results_.size();
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!AddView(results_[i], false, true, i)) return false;
    }
    return true;
  }

  bool AddChoice(const Source& source, const std::string& text) {
    std::string known;
    for (const auto& [name, number] : source.choices) {
      if (name == text) {
        Next(Kind::kInt).integer = number;
        return true;
      }
      known += (known.empty() ? "" : ", ") + name;
    }
    return Refuse("it does not know '" + text + "', but " + known);
  }

  bool AddNone(const Source& source) {
    if (source.has_default && source.default_is_real) {
      Next(Kind::kReal).real = source.real;
    } else if (source.has_default) {
      Next(Kind::kInt).integer = source.integer;
    } else if (source.is_integer) {
      Next(Kind::kInt).integer = 1;  // a correction
    } else if (source.is_list) {
      return AddInts(nullptr, 0);
    } else {
      Next(Kind::kNull);
    }
    return true;
  }

  bool AddInteger(const IValue& value) {
    int64_t integer = 0;
    if (value.isString()) {
      integer = value.toStringRef() == "tanh" ? 1 : 0;
    } else if (value.isInt()) {
      integer = value.toInt();
    } else if (value.isDouble() && value.toDouble() == static_cast<double>(static_cast<int64_t>(value.toDouble()))) {
      integer = static_cast<int64_t>(value.toDouble());
    } else {
      return false;
    }
    Next(Kind::kInt).integer = integer;
    return true;
  }

  bool AddPlain(const IValue& value, const Source& source) {
    if (value.isInt()) {
      Next(Kind::kInt).integer = value.toInt();
    } else if (value.isBool()) {
      Next(Kind::kInt).integer = value.toBool() ? 1 : 0;
    } else if (value.isDouble()) {
      Next(Kind::kReal).real = value.toDouble();
    } else if (value.isString()) {
      Next(Kind::kText).values = value.toStringRef().c_str();
    } else if (value.isIntList()) {
      if (lists_ == int_lists_.size()) return false;
      auto& list = int_lists_[lists_++];
      for (const int64_t number : value.toIntList()) list.push_back(number);
      return AddInts(list.data(), list.size());
    } else if (value.isBoolList()) {
      for (const bool flag : value.toBoolList()) flags_.push_back(flag);
      OperatorArgument& to = Next(Kind::kBools);
      to.values = flags_.data();
      to.count = flags_.size();
    } else if (value.isTensorList()) {
      const auto tensors = value.toTensorList();
      OperatorArgument& to = Next(Kind::kTensors);
      to.values = Views();
      to.count = tensors.size();
      for (size_t i = 0; i < to.count; ++i) {
        if (!AddView(tensors[i], false, false, static_cast<size_t>(source.index), i)) return false;
      }
    } else {
      return false;
    }
    return true;
  }

  struct Number {
    union {
      int64_t integer = 0;
      double real[2];
      bool truth;
    };
    OperatorArgument::ScalarValue described{};
  };

  const NativeOp& native_;
  c10::ArrayRef<IValue> arguments_;
  c10::ArrayRef<at::Tensor> results_;
  bool with_scalar_ = false;
  bool alpha_is_zero_ = false;
  at::ScalarType type_ = at::ScalarType::Undefined;
  size_t views_ = 0, room_ = kMaxTensors, numbers_ = 0, lists_ = 0;
  int64_t single_ = 0;
  c10::SmallVector<OperatorArgument, kMaxParameters> packed_;
  c10::SmallVector<NativePlan::Place, 8> places_;
  std::array<reprise::TensorView, kMaxTensors> all_views_;
  std::vector<reprise::TensorView> more_views_;
  std::string why_;
  std::array<Number, 4> numbers_of_;
  std::array<c10::SmallVector<int64_t, 8>, 5> int_lists_;
  c10::SmallVector<bool, 4> flags_;
};

const NativeOp* MakeNative(const Row& row, const c10::FunctionSchema& schema) {
  auto native = std::make_unique<NativeOp>();
  native->op = reprise::FindOperator(row.function);
  if (native->op < 0) return nullptr;
  if (row.with_scalar[0] != '\0') native->op_with_scalar = reprise::FindOperator(row.with_scalar);
  native->only = row.only;
  std::string_view rest = row.arguments;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (word == "other" && native->op_with_scalar >= 0) native->other = static_cast<int>(native->sources.size());
    if (!Parse(word, schema, native->sources.emplace_back())) return nullptr;
  }
  return native.release();
}

// Rows of other operators than torch's own, by the name of the operator.
struct Declared {
  std::mutex mutex;
  std::unordered_map<std::string, const NativeOp*> rows;
};

Declared& AllDeclared() {
  static auto* const declared = new Declared;
  return *declared;
}

std::string FullName(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

const Row* FindRow(std::span<const Row> rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.torch == name; });
  return found == rows.end() ? nullptr : &*found;
}
const Row* FindRow(std::string_view name) { return FindRow(kRows, name); }

}  // namespace

std::vector<std::string> NativeOperators() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.torch);
  return names;
}

std::vector<std::pair<std::string, std::string>> DeclaredOperators() {
  std::vector<std::pair<std::string, std::string>> operators;
  for (const Row& row : kDeclaredRows) operators.emplace_back(row.torch, row.function);
  return operators;
}

const NativeOp* DeclareNative(const c10::FunctionSchema& schema) {
  const Row* const row = FindRow(kDeclaredRows, FullName(schema));
  TORCH_CHECK_VALUE(row != nullptr, schema, ": api/torch_ops.csv has no row for it");
  if (reprise::FindOperator(row->function) < 0) return nullptr;
  const NativeOp* const made = MakeNative(*row, schema);
  TORCH_CHECK_VALUE(made != nullptr, schema, ": cannot read the words '", row->arguments, "'");
  auto* const native = const_cast<NativeOp*>(made);
  native->is_declared = true;
  native->workspace = schema.argumentIndexWithName("workspace").value_or(-1);
  Declared& declared = AllDeclared();
  const std::lock_guard lock(declared.mutex);
  declared.rows[FullName(schema)] = native;
  return native;
}

const NativeOp* FindNative(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  if (name.rfind("aten::", 0) != 0) {
    Declared& declared = AllDeclared();
    const std::lock_guard lock(declared.mutex);
    const auto found = declared.rows.find(FullName(schema));
    return found == declared.rows.end() ? nullptr : found->second;
  }
  name = name.substr(6);
  std::string overload = schema.overload_name();
  const auto full = [&] { return overload.empty() ? name : name + "." + overload; };
  const Row* row = FindRow(full());
  if (row == nullptr && name.back() == '_') {
    name.pop_back();
    row = FindRow(full());
  }
  if (row == nullptr && overload.ends_with("out")) {
    overload =
        overload == "out" ? std::string() : overload.substr(0, overload.size() - std::string_view("_out").size());
    row = FindRow(full());
    if (row == nullptr && overload.empty()) row = FindRow(name + ".Tensor");
    if (row == nullptr && overload == "IntList") row = FindRow(name + ".dim_IntList");
  }
  return row == nullptr ? nullptr : MakeNative(*row, schema);
}

namespace {

constexpr size_t kMostPlaces = 12;

}  // namespace

bool LaunchNative(const NativeOp& native, c10::ArrayRef<IValue> arguments, c10::ArrayRef<at::Tensor> results,
                  const std::shared_ptr<const reprise::OperationInfo>& info, std::string* why, NativePlan* plan) {
  Arguments packed(native, arguments, results);
  if (!packed.Build()) {
    if (why != nullptr) *why = packed.why().empty() ? "it does not take these arguments" : packed.why();
    return false;
  }
  at::Tensor workspace;
  if (native.workspace >= 0 && arguments[static_cast<size_t>(native.workspace)].isTensor()) {
    workspace = arguments[static_cast<size_t>(native.workspace)].toTensor();
    plan = nullptr;
  }
  auto prepared = reprise::PreparedOperator::Make(packed.op(), packed.data(), packed.size(), why);
  if (prepared == nullptr) return false;
  Queue(*prepared, info, std::move(workspace));
  if (plan != nullptr && packed.places().size() <= kMostPlaces && prepared->can_move()) {
    plan->places.assign(packed.places().begin(), packed.places().end());
    plan->prepared = std::move(prepared);
  }
  return true;
}

bool LaunchAgain(NativePlan& plan, const NPUStream& stream, c10::ArrayRef<IValue> arguments,
                 c10::ArrayRef<const at::Tensor*> results, const std::shared_ptr<const reprise::OperationInfo>& info) {
  std::array<void*, kMostPlaces> data;
  size_t count = 0;
  for (const NativePlan::Place& place : plan.places) {
    const auto index = static_cast<size_t>(place.index);
    const at::Tensor& tensor = place.is_result      ? *results[index]
                               : place.element >= 0 ? arguments[index].toListRef()[place.element].toTensor()
                                                    : arguments[index].toTensor();
    NoteUse(tensor);
    data[count++] = const_cast<void*>(tensor.const_data_ptr());
  }
  if (!plan.prepared->Move(data.data(), count)) return false;
  ++plan.times_moved;
  QueueOn(stream, *plan.prepared, info);
  return true;
}

uint64_t NativeWorkspace(const NativeOp& native, c10::ArrayRef<IValue> arguments, c10::ArrayRef<at::Tensor> results,
                         std::string& why) {
  Arguments packed(native, arguments, results);
  why = "it does not take these arguments";
  if (!packed.Build()) {
    if (!packed.why().empty()) why = packed.why();
    return 0;
  }
  why.clear();
  return reprise::PreparedOperator::MostWorkspaceBytes(packed.op(), packed.data(), packed.size(), &why);
}

bool IsDeclared(const NativeOp& native) { return native.is_declared; }

NativeCall::NativeCall(const char* op, const char* name) : op_(reprise::FindOperator(op)), name_(name) {}

OperatorArgument& NativeCall::Next(Kind kind) {
  TORCH_INTERNAL_ASSERT(count_ < kMost, name_);
  OperatorArgument& next = arguments_[count_++];
  next.kind = kind;
  return next;
}

NativeCall& NativeCall::Tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return Null();
  reprise::TensorView& view = views_[count_];
  is_possible_ &= Describe(tensor, view);
  OperatorArgument& to = Next(Kind::kTensor);
  to.values = &view;
  to.count = 1;
  return *this;
}

NativeCall& NativeCall::Tensors(const at::Tensor& only) {
  Tensor(only);
  arguments_[count_ - 1].kind = Kind::kTensors;
  return *this;
}

NativeCall& NativeCall::Tensors(c10::ArrayRef<at::Tensor> list) {
  std::vector<reprise::TensorView>& views = lists_.emplace_front(list.size());
  for (size_t i = 0; i < list.size(); ++i) is_possible_ &= Describe(list[i], views[i]);
  OperatorArgument& to = Next(Kind::kTensors);
  to.values = views.data();
  to.count = views.size();
  return *this;
}

NativeCall& NativeCall::Number(const at::Scalar& number) {
  Numbers({&number, 1});
  arguments_[count_ - 1].kind = Kind::kScalar;
  return *this;
}

NativeCall& NativeCall::Numbers(c10::ArrayRef<at::Scalar> numbers) {
  auto& [values, described] = numbers_.emplace_front();
  values.resize(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool is_real = numbers[i].isFloatingPoint();
    if (is_real) {
      values[i].real = numbers[i].toDouble();
    } else {
      values[i].integer = numbers[i].toLong();
    }
    described.push_back({&values[i], is_real ? ACL_DOUBLE : ACL_INT64});
  }
  OperatorArgument& to = Next(Kind::kScalars);
  to.values = described.data();
  to.count = described.size();
  return *this;
}

NativeCall& NativeCall::Null() {
  Next(Kind::kNull);
  return *this;
}

NativeCall& NativeCall::Ints(c10::IntArrayRef values) {
  OperatorArgument& to = Next(Kind::kInts);
  to.values = values.data();
  to.count = values.size();
  return *this;
}

NativeCall& NativeCall::Int(int64_t value) {
  Next(Kind::kInt).integer = value;
  return *this;
}

NativeCall& NativeCall::Real(double value) {
  Next(Kind::kReal).real = value;
  return *this;
}

NativeCall& NativeCall::Text(const char* value) {
  Next(Kind::kText).values = value;
  return *this;
}

bool NativeCall::Launch() {
  if (op_ < 0 || !is_possible_) return false;
  const auto plan = reprise::PreparedOperator::Make(op_, arguments_.data(), count_);
  if (plan == nullptr) return false;
  Queue(*plan, std::make_shared<reprise::OperationInfo>(reprise::OperationInfo{name_, StackOfLaunch()}));
  return true;
}

}  // namespace torch_npu
