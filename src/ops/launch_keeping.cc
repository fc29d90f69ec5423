// SPDX-License-Identifier: Apache-2.0
//
// What tasks of launches read in other forms (ir::Keeping): operands with a PreparedForm, and what calls pack.
#include <new>
#include <vector>

#include "device/scheduler.h"
#include "ops/launch.h"

namespace reprise::ops {
namespace {

using ir::KeptOperand;

const LaunchTask& TaskOf(const void* payload) { return *static_cast<const LaunchTask*>(payload); }

Launch::KernelMemory MemoryOf(const LaunchTask& task) {
  Launch::KernelMemory memory;
  const auto begin = reinterpret_cast<uintptr_t>(task.workspace);
  memory.workspace = static_cast<char*>(task.workspace) + (-begin & (kScratchAlignment - 1));
  return memory;
}

template <class Function>
int64_t NumberOf(Function* function) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(function));
}

bool FindPrepared(const Launch& launch, KeptOperand& kept) {
  const PreparedForm form = launch.find_prepared(launch);
  if (form.bytes == 0 || !form.keeps_bits || launch.uses[form.operand].slot < 0) return false;
  kept.role = KeptOperand::Role::kReads;
  kept.form_bytes = form.bytes;
  kept.key = {NumberOf(form.write)};
  TellOperand(launch.refs[form.operand], kept);
  return true;
}

bool Find(const void* payload, KeptOperand& kept) {
  const LaunchTask& task = TaskOf(payload);
  const Launch& launch = *task.launch;
  if (launch.tell_packing != nullptr) {
    if (launch.uses[1].slot < 0 || launch.uses[0].slot != OperandUse::kTemporary) return false;
    kept.role = KeptOperand::Role::kMakes;
    kept.form_bytes = ExtentBytes(launch.refs[0]);
    kept.temporary = launch.Ref(0, MemoryOf(task)).data;
    kept.key = {NumberOf(launch.kernel)};
    launch.tell_packing(launch, kept.key);
    TellOperand(launch.refs[1], kept);
    return true;
  }
  if (launch.packed_operand >= 0) {
    kept.role = KeptOperand::Role::kTakes;
    kept.temporary = launch.Ref(static_cast<size_t>(launch.packed_operand), MemoryOf(task)).data;
    return true;
  }
  return launch.find_prepared != nullptr && FindPrepared(launch, kept);
}

// Operand i lies in memory that the launch does not know otherwise.
void Place(Launch& launch, size_t i, void* data) {
  launch.refs[i].data = data;
  launch.uses[i].slot = 0;
  launch.uses[i].is_prepared = true;
  launch.Seal();
}

void Write(device::RunContext& context, const void* payload, void* to) {
  const LaunchTask& task = TaskOf(payload);
  const Launch& launch = *task.launch;
  if (launch.tell_packing == nullptr) {
    const PreparedForm form = launch.find_prepared(launch);
    return form.write(launch.refs[form.operand], to);
  }
  auto* const copy = new Launch(launch);
  Place(*copy, 0, to);
  copy->Run(context, task.workspace);
  copy->Release();
}

void Adopt(const void* payload, void* form, void* adopted) {
  const LaunchTask& task = TaskOf(payload);
  auto* const copy = new Launch(*task.launch);
  if (copy->packed_operand >= 0) {
    TakePacked(*copy, form);
  } else {
    copy->Adopt(copy->find_prepared(*copy), form);
  }
  if (task.memory != nullptr) task.memory->Retain();
  new (adopted) LaunchTask{copy, task.workspace, task.memory};
}

}  // namespace

void Pack(const Launch& packing, const kernels::TensorRef& from, void* to) {
  auto* const copy = new Launch(packing);
  Place(*copy, 0, to);
  copy->refs[1] = from;
  std::vector<char> scratch(copy->scratch_bytes + kScratchAlignment);
  char* const begin = scratch.data() + (-reinterpret_cast<uintptr_t>(scratch.data()) & (kScratchAlignment - 1));
  copy->kernel(*copy, {0, copy->units}, {.scratch = begin});
  copy->Release();
}

void TakePacked(Launch& launch, void* data) { Place(launch, static_cast<size_t>(launch.packed_operand), data); }

void TellOperand(const kernels::TensorRef& ref, KeptOperand& kept) {
  kept.data = ref.data;
  kept.bytes = ExtentBytes(ref);
  kept.key.push_back(static_cast<int64_t>(ref.dtype));
  kept.key.push_back(ref.rank);
  kept.key.insert(kept.key.end(), ref.sizes, ref.sizes + ref.rank);
  kept.key.insert(kept.key.end(), ref.strides, ref.strides + ref.rank);
}

constexpr ir::Keeping kLaunchKeeping = {
    .payload_bytes = sizeof(LaunchTask), .find = Find, .write = Write, .adopt = Adopt};

}  // namespace reprise::ops
