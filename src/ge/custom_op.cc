// SPDX-License-Identifier: Apache-2.0
//
// Operators of the program's: from what a run of the compiler gives to the context that Execute sees.
#include "graph/custom_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>

#include "base/mutex.h"
#include "compiler/custom_op.h"
#include "compiler/storage.h"
#include "ge/access.h"
#include "register/op_impl_registry.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;

struct Registry {
  reprise::Mutex mutex;
  std::map<std::string, BaseOpCreator, std::less<>> creators REPRISE_GUARDED_BY(mutex);
  std::map<std::string, std::set<int32_t>, std::less<>> values REPRISE_GUARDED_BY(mutex);  // operands that are read
};
Registry& TheRegistry() {
  static auto* registry = new Registry;  // programs register, and ask, until the end of the process
  return *registry;
}

// Which tensors of a node belong to which operand: required and optional ones have one, which may be left out.
std::vector<gert::AnchorInstanceInfo> Instances(const IrDefinition::Entries& operands,
                                                const std::vector<std::string>& names) {
  std::vector<gert::AnchorInstanceInfo> instances;
  uint32_t next = 0;
  for (const auto& [operand, kind] : operands) {
    uint32_t count = 0;
    if (kind == "dynamic") {
      while (next + count < names.size() && names[next + count] == fmt::format("{}{}", operand, count)) ++count;
    } else if (next < names.size() && names[next] == operand) {
      count = 1;
    }
    instances.emplace_back(next, count);
    next += count;
  }
  return instances;
}

std::vector<std::string> NamesOf(const auto& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

// Without entries for a type that has a class and no prototype.
IrDefinition DefinitionOf(const std::string& type) {
  auto definition = GraphAccess::DefinitionOf(type);
  return definition.ok() ? *std::move(definition) : IrDefinition();
}

reprise::Status Refuse(std::string what, std::string culprit, std::string hint) {
  return reprise::Error(static_cast<int>(GRAPH_PARAM_INVALID), std::move(what))
      .Culprit(std::move(culprit))
      .Hint(std::move(hint));
}

template <class Body>
graphStatus Answer(const char* api, Body body) {
  return static_cast<graphStatus>(reprise::runtime::Api(api, body));
}

void Describe(gert::Tensor& tensor, int32_t dtype, int32_t format, const std::vector<int64_t>& sizes) {
  tensor.SetDataType(dtype < 0 ? DT_UNDEFINED : static_cast<DataType>(dtype));
  tensor.SetOriginFormat(static_cast<Format>(format));
  tensor.SetStorageFormat(static_cast<Format>(format));
  for (gert::Shape* shape : {&tensor.MutableStorageShape(), &tensor.MutableOriginShape()}) {
    shape->SetDimNum(0);
    for (const int64_t size : sizes) shape->AppendDim(size);
  }
}

}  // namespace
}  // namespace ge

struct gert::EagerOpExecutionContext::Data {
  const reprise::compiler::CustomCall& call;
  std::vector<AnchorInstanceInfo> inputs_of;
  std::vector<AnchorInstanceInfo> outputs_of;
  std::deque<Tensor> inputs;
  std::vector<bool> has_input;
  std::deque<Tensor> outputs;
  std::vector<bool> is_made;
  std::vector<std::optional<size_t>> same_as;  ///< by output, the input that it is
  reprise::Status failure;                     ///< of the last call that failed
};

namespace ge {
namespace {

using Data = gert::EagerOpExecutionContext::Data;

// What the operator made, and of which size.
reprise::Status TakeOutputs(Data& data) {
  const compiler::CustomCall& call = data.call;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    compiler::RunTensor& made = call.outputs[i];
    if (data.same_as[i]) {
      made = call.inputs[*data.same_as[i]];
      continue;
    }
    if (!data.is_made[i]) {
      return reprise::Error(reprise::kInvalidArgument, fmt::format("node {}: Execute of {} has not made output {}",
                                                                   call.node.name, call.node.type, i))
          .Culprit(fmt::format("the operator {} of the program", call.node.type))
          .Hint("call MallocOutputTensor or MakeOutputRefInput for every output");
    }
  }
  return {};
}

class ProgramOp final : public compiler::CustomOp {
 public:
  ProgramOp(std::string type, std::unique_ptr<BaseCustomOp> op) : type_(std::move(type)), op_(std::move(op)) {}

  bool ReadsValue(const compiler::Node& node, uint32_t input) const override {
    std::set<int32_t> read;
    {
      Registry& registry = TheRegistry();
      const reprise::MutexLock lock(registry.mutex);
      const auto found = registry.values.find(type_);
      if (found == registry.values.end()) return false;
      read = found->second;
    }
    const auto instances = Instances(DefinitionOf(type_).inputs, NamesOf(node.inputs));
    return std::ranges::any_of(read, [&](int32_t operand) {
      if (operand < 0 || static_cast<size_t>(operand) >= instances.size()) return false;
      const auto& instance = instances[static_cast<size_t>(operand)];
      return input >= instance.GetInstanceStart() && input - instance.GetInstanceStart() < instance.GetInstanceNum();
    });
  }

  reprise::Status Run(compiler::CustomCall& call) const override {
    auto* const eager = dynamic_cast<EagerExecuteOp*>(op_.get());
    if (eager == nullptr) {
      return reprise::Error(reprise::kInvalidArgument,
                            fmt::format("node {}: the class of the operator {} has no Execute", call.node.name, type_))
          .Culprit(fmt::format("the operator {} of the program", type_))
          .Hint("derive the class from ge::EagerExecuteOp");
    }
    const IrDefinition definition = DefinitionOf(type_);
    Data data{call,
              Instances(definition.inputs, NamesOf(call.node.inputs)),
              Instances(definition.outputs, NamesOf(call.node.outputs)),
              {},
              {},
              {},
              std::vector<bool>(call.outputs.size(), false),
              std::vector<std::optional<size_t>>(call.outputs.size()),
              {}};
    for (const compiler::RunTensor& input : call.inputs) {
      gert::Tensor& tensor = data.inputs.emplace_back();
      Describe(tensor, input.dtype, FORMAT_ND, input.shape);
      tensor.SetData(gert::TensorData(input.data, nullptr, input.bytes, gert::kOnDeviceHbm));
      data.has_input.push_back(input.dtype >= 0);
    }
    for (const compiler::Tensor& told : call.told) {
      Describe(data.outputs.emplace_back(), told.dtype, told.format,
               told.shape.has_rank() ? told.shape.numbers() : std::vector<int64_t>{-2});
    }
    gert::EagerOpExecutionContext context(&data);
    REPRISE_RETURN_IF_ERROR(Execute(*eager, context, data));
    return TakeOutputs(data);
  }

 private:
  reprise::Status Execute(EagerExecuteOp& op, gert::EagerOpExecutionContext& context, Data& data) const {
    std::string reason;
    try {
      const graphStatus status = op.Execute(&context);
      if (status == GRAPH_SUCCESS) return {};
      if (!data.failure.ok()) return std::move(data.failure);
      reason = fmt::format("answers {}", status);
    } catch (const std::exception& error) {
      reason = fmt::format("throws: {}", error.what());
    } catch (...) {
      reason = "throws what is no std::exception";
    }
    return reprise::Error(reprise::kInvalidArgument,
                          fmt::format("node {}: Execute of {} {}", data.call.node.name, type_, reason))
        .Culprit(fmt::format("the operator {} of the program", type_))
        .Hint("look into the class that the program registered with REG_AUTO_MAPPING_OP");
  }

  const std::string type_;
  const std::unique_ptr<BaseCustomOp> op_;
};

}  // namespace

graphStatus CustomOpFactory::RegisterCustomOpCreator(const AscendString& op_type, const BaseOpCreator& creator) {
  return Answer("ge::CustomOpFactory::RegisterCustomOpCreator", [&]() -> reprise::Status {
    const std::string type = op_type.GetString();
    if (type.empty() || !creator) {
      return Refuse(type.empty() ? "op_type is empty" : "creator is empty",
                    type.empty() ? "parameter op_type" : "parameter creator", "use REG_AUTO_MAPPING_OP");
    }
    if (reprise::opdef::FindGraphOp(type) != nullptr) {
      return Refuse(fmt::format("the operator type {} is one of the library", type), "parameter op_type",
                    "choose another name");
    }
    std::unique_ptr<BaseCustomOp> op = creator();
    if (op == nullptr) {
      return Refuse(fmt::format("the creator of {} gives no object", type), "parameter creator", "let it give one");
    }
    compiler::RegisterCustomOp(type, std::make_shared<ProgramOp>(type, std::move(op)));
    Registry& registry = TheRegistry();
    const reprise::MutexLock lock(registry.mutex);
    registry.creators[type] = creator;
    return {};
  });
}

std::unique_ptr<BaseCustomOp> CustomOpFactory::CreateCustomOp(const AscendString& op_type) {
  BaseOpCreator creator;
  {
    Registry& registry = TheRegistry();
    const reprise::MutexLock lock(registry.mutex);
    const auto found = registry.creators.find(op_type.GetString());
    if (found == registry.creators.end()) return nullptr;
    creator = found->second;
  }
  return creator();
}

graphStatus CustomOpFactory::GetAllRegisteredOps(std::vector<AscendString>& all_registered_ops) {
  all_registered_ops.clear();
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  for (const auto& [type, creator] : registry.creators) all_registered_ops.emplace_back(type.c_str());
  return GRAPH_SUCCESS;
}

bool CustomOpFactory::IsExistOp(const AscendString& op_type) {
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  return registry.creators.contains(op_type.GetString());
}

}  // namespace ge

namespace gert {

OpImplRegisterV2::OpImplRegisterV2(const char* op_type) : type_(op_type != nullptr ? op_type : "") {}

OpImplRegisterV2& OpImplRegisterV2::InputsDataDependency(std::initializer_list<int32_t> inputs) {
  ge::Registry& registry = ge::TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  registry.values[type_].insert(inputs);
  return *this;
}

const char* EagerOpExecutionContext::GetNodeName() const { return data_->call.node.name.c_str(); }
const char* EagerOpExecutionContext::GetNodeType() const { return data_->call.node.type.c_str(); }
size_t EagerOpExecutionContext::GetComputeNodeInputNum() const { return data_->inputs.size(); }
size_t EagerOpExecutionContext::GetComputeNodeOutputNum() const { return data_->outputs.size(); }

const Tensor* EagerOpExecutionContext::GetInputTensor(size_t index) const {
  return index < data_->inputs.size() && data_->has_input[index] ? &data_->inputs[index] : nullptr;
}
const Tensor* EagerOpExecutionContext::GetRequiredInputTensor(size_t ir_index) const {
  return GetDynamicInputTensor(ir_index, 0);
}
const Tensor* EagerOpExecutionContext::GetOptionalInputTensor(size_t ir_index) const {
  return GetDynamicInputTensor(ir_index, 0);
}
const Tensor* EagerOpExecutionContext::GetDynamicInputTensor(size_t ir_index, size_t relative_index) const {
  const AnchorInstanceInfo* const instance = GetIrInputInstanceInfo(ir_index);
  if (instance == nullptr || relative_index >= instance->GetInstanceNum()) return nullptr;
  return GetInputTensor(instance->GetInstanceStart() + relative_index);
}
const AnchorInstanceInfo* EagerOpExecutionContext::GetIrInputInstanceInfo(size_t ir_index) const {
  return ir_index < data_->inputs_of.size() ? &data_->inputs_of[ir_index] : nullptr;
}
const AnchorInstanceInfo* EagerOpExecutionContext::GetIrOutputInstanceInfo(size_t ir_index) const {
  return ir_index < data_->outputs_of.size() ? &data_->outputs_of[ir_index] : nullptr;
}
const Tensor* EagerOpExecutionContext::GetOutputTensor(size_t index) const {
  return index < data_->outputs.size() ? &data_->outputs[index] : nullptr;
}

Tensor* EagerOpExecutionContext::MallocOutputTensor(size_t index, const StorageShape& shape,
                                                    const StorageFormat& format, ge::DataType dtype) {
  if (index >= data_->outputs.size()) return nullptr;
  std::vector<int64_t> sizes;
  const Shape& dims = shape.GetStorageShape();
  for (size_t d = 0; d < std::min(dims.GetDimNum(), Shape::kMaxDimNum); ++d) sizes.push_back(dims.GetDim(d));
  reprise::compiler::Tensor known;
  known.dtype = static_cast<int32_t>(dtype);
  known.shape = reprise::opdef::Shape::Of(sizes);
  const std::optional<uint64_t> bytes = reprise::compiler::BytesOf(known);
  const auto take = [&]() -> reprise::Status {
    if (!bytes) {
      return ge::Refuse(
          fmt::format("node {}: output {} has a shape or type of unknown size", data_->call.node.name, index),
          "parameter shape", "give sizes of 0 and up, and a type that has a size");
    }
    REPRISE_ASSIGN_OR_RETURN(void* const memory, data_->call.allocate(*bytes));
    data_->call.outputs[index] = {.data = memory, .bytes = *bytes, .dtype = known.dtype, .shape = std::move(sizes)};
    return {};
  };
  if (reprise::Status status = take(); !status.ok()) {
    data_->failure = std::move(status);
    return nullptr;
  }
  Tensor& tensor = data_->outputs[index];
  tensor.MutableShape() = shape;
  tensor.MutableFormat() = format;
  tensor.SetDataType(dtype);
  tensor.SetData(TensorData(data_->call.outputs[index].data, nullptr, *bytes, kOnDeviceHbm));
  data_->is_made[index] = true;
  data_->same_as[index].reset();
  return &tensor;
}

Tensor* EagerOpExecutionContext::MakeOutputRefInput(size_t output_index, size_t input_index) const {
  const Tensor* const input = GetInputTensor(input_index);
  if (input == nullptr || output_index >= data_->outputs.size()) return nullptr;
  Tensor& tensor = data_->outputs[output_index];
  tensor.MutableShape() = input->GetShape();
  tensor.MutableFormat() = input->GetFormat();
  tensor.SetDataType(input->GetDataType());
  tensor.SetData(TensorData(const_cast<void*>(input->GetAddr()), nullptr, input->GetSize(), kOnDeviceHbm));
  data_->same_as[output_index] = input_index;
  return &tensor;
}

void* EagerOpExecutionContext::MallocWorkSpace(size_t size) {
  reprise::StatusOr<void*> memory = data_->call.allocate(size);
  return memory.ok() ? *memory : nullptr;
}
void* EagerOpExecutionContext::GetStream() const { return data_->call.stream.handle(); }

}  // namespace gert
