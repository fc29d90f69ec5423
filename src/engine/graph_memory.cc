// SPDX-License-Identifier: Apache-2.0
//
// Memory of the program's for the regions of a compiled graph: who may give which, and when.
#include <fmt/format.h>

#include "engine/graph_entry.h"
#include "engine/numbers.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

Status Refuse(int number, const std::string& name, std::string_view what, std::string hint) {
  return Fail(number, kWrongOrder, fmt::format("{} {}", name, what)).Culprit(name).Hint(std::move(hint));
}

Status NotStatic(const std::string& name) {
  return Refuse(kFailed, name, "has shapes that are not known before a run: its regions have no sizes",
                "ask IsStatic of the summary first");
}

}  // namespace

Status GraphEntry::SetConstBase(const void* base, uint64_t bytes) {
  MutexLock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(CheckSetter("SetGraphConstMemoryBase"));
  if (is_loaded_) return Refuse(kGraphUnsupported, Name(), "is loaded: constants stay where they are", "set the base before LoadGraph");
  const Summary& summary = compiled_->summary();
  if (!summary.is_static) return NotStatic(Name());
  if (const_base_ != nullptr) {
    return Refuse(kGraphRepeatOperation, Name(), "has a base of constants already", "set it once");
  }
  REPRISE_RETURN_IF_ERROR(CheckBase("memory", base, bytes, summary.const_size()));
  const_base_ = const_cast<void*>(base);
  return {};
}

Status GraphEntry::SetFeatures(const void* base, uint64_t bytes, uint64_t needed, FeatureUse use) {
  const Summary& summary = compiled_->summary();
  if (!summary.is_static) return NotStatic(Name());
  if (feature_use_ != FeatureUse::kNone && feature_use_ != use) {
    return Refuse(kGraphUnsupported, Name(), "has feature memory by the other one of the two functions",
                  "use either UpdateGraphFeatureMemoryBase or UpdateGraphRefreshableFeatureMemoryBase");
  }
  REPRISE_RETURN_IF_ERROR(CheckBase("memory", base, bytes, needed));
  if (!summary.is_refreshable) {
    constexpr const char* kHint = "set ge.featureBaseRefreshable to 1, or give the memory once before LoadGraph";
    if (is_loaded_) return Refuse(kGraphUnsupported, Name(), "is loaded, and its feature memory may not move", kHint);
    if (feature_use_ != FeatureUse::kNone) {
      return Refuse(kGraphRepeatOperation, Name(), "has feature memory already, which may not move", kHint);
    }
  }
  feature_base_ = const_cast<void*>(base);
  feature_bytes_ = bytes;
  feature_use_ = use;
  if (!is_loaded_) return {};
  for (Variant& variant : compiled_->variants()) REPRISE_RETURN_IF_ERROR(ApplyBases(variant));
  return {};
}

Status GraphEntry::UpdateFeatureBase(const void* base, uint64_t bytes) {
  MutexLock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(CheckSetter("UpdateGraphFeatureMemoryBase"));
  if (has_fixed_[0] || has_fixed_[1]) {
    return Refuse(kGraphUnsupported, Name(), "has fixed feature memory of its own base",
                  "use UpdateGraphRefreshableFeatureMemoryBase for the rest");
  }
  return SetFeatures(base, bytes, compiled_->summary().feature_size(), FeatureUse::kTotal);
}

Status GraphEntry::UpdateRefreshableBase(const void* base, uint64_t bytes) {
  MutexLock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(CheckSetter("UpdateGraphRefreshableFeatureMemoryBase"));
  if (is_fixed_disabled_) {
    return Refuse(kGraphUnsupported, Name(), "may not have fixed feature memory, so that all of it has one base",
                  "use UpdateGraphFeatureMemoryBase");
  }
  return SetFeatures(base, bytes, compiled_->summary().refreshable_size(), FeatureUse::kRefreshable);
}

Status GraphEntry::SetFixedBase(MemoryType type, const void* base, uint64_t bytes, bool is_policy_4) {
  MutexLock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(CheckSetter("SetGraphFixedFeatureMemoryBase"));
  if (is_loaded_) return Refuse(kGraphUnsupported, Name(), "is loaded: fixed memory stays where it is", "set the base before LoadGraph");
  if (base == nullptr && bytes > 0) return CheckBase("memory", base, bytes, 0);
  bool& is_set = has_fixed_[static_cast<int>(type)];
  if (is_set || (type == MemoryType::kDefault && is_fixed_disabled_)) {
    return Refuse(kGraphRepeatOperation, Name(), "has a base of fixed feature memory already", "set it once");
  }
  const uint64_t needed = type == MemoryType::kDefault ? compiled_->summary().needs.fixed_features : 0;
  if (base == nullptr) {
    if (type == MemoryType::kP2p || is_policy_4) {
      return Refuse(kGraphUnsupported, Name(),
                    type == MemoryType::kP2p ? "cannot do without fixed memory of peers"
                                             : "cannot do without fixed memory under ge.exec.staticMemoryPolicy = 4",
                    "give an address");
    }
    is_fixed_disabled_ = true;
    return {};
  }
  if (needed == 0) {
    Warn(Name() + " needs no fixed feature memory of this type: the address is not used");
    return {};
  }
  REPRISE_RETURN_IF_ERROR(CheckBase("memory", base, bytes, needed));
  for (Variant& variant : compiled_->variants()) {
    REPRISE_RETURN_IF_ERROR(variant.executable->SetFixedFeatures(const_cast<void*>(base), bytes));
  }
  is_set = true;
  return {};
}

}  // namespace reprise::engine
