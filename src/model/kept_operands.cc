// SPDX-License-Identifier: Apache-2.0
#include "model/kept_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <utility>

#include "base/env.h"
#include "base/mutex.h"
#include "base/no_destroy.h"
#include "base/verbose.h"
#include "device/scheduler.h"
#include "device/timeline.h"
#include "device/write_watch.h"
#include "exec/plan.h"
#include "ir/dag.h"
#include "ir/slot.h"
#include "model/chain_steps.h"

namespace reprise::model {

using device::WatchedRange;
using device::WriteWatch;
using exec::kMostPayloadBytes;
using ir::KeptOperand;

namespace {

// Before these a graph may never be executed again.
constexpr uint32_t kExecutionsBefore = 1;
constexpr uint64_t kLeastBytes = 8 << 10;      // of an operand; what is smaller is read from the caches in any order
constexpr uint64_t kMostMadeBytes = 32 << 20;  // of forms in one execution, or one form: no execution takes for ever
constexpr uint64_t kPage = 4096;
// Executions that are not watched after an operand has been written: twice as many each time.
constexpr uint32_t kFewestResting = 8;
constexpr uint32_t kMostResting = 4096;

uint64_t MostBytes() {
  static const uint64_t bytes = EnvBytes(EnvVar::kKeptOperands);
  return bytes;
}

struct Totals {
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> dropped{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> chained{0};
  std::atomic<uint64_t> links{0};
  std::atomic<uint64_t> linked{0};
};
Totals& TheTotals() {
  static constinit NoDestroy<Totals> totals;
  return totals.value;
}

// Memory of a form; nothing where the bound or the host leaves no room.
std::shared_ptr<void> TakeMemory(uint64_t bytes) {
  Totals& totals = TheTotals();
  if (totals.bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes > MostBytes()) {
    totals.bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  const auto align = std::align_val_t{64};
  void* const block = ::operator new(bytes, align, std::nothrow);
  if (block == nullptr) {
    totals.bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  return {block, [bytes, align](void* memory) {
            ::operator delete(memory, align);
            TheTotals().bytes.fetch_sub(bytes, std::memory_order_relaxed);
          }};
}

// What the active tasks of a graph say of memory.
class Written final : public ir::OperandSink {
 public:
  void Take(const ir::Operand& operand) override {
    if (!operand.is_written() || operand.bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(operand.begin);
    writes_.emplace_back(begin, begin + operand.bytes);
  }
  void TakeWords(const uint64_t*, size_t) override { may_write_anywhere_ = true; }
  void TakeOpaque() override { may_write_anywhere_ = true; }

  void Visit(const ir::Node& node) {
    ir::VisitOperands(node, *this);
    if (!node.type->never_waits || ir::IsSlot(node.type)) lets_others_in_ = true;
  }

  // Work that the graph does not tell may come between its begin and a task.
  bool may_be_surprised() const { return may_write_anywhere_ || lets_others_in_; }

  // No Visit from here on.
  void Sort() {
    std::sort(writes_.begin(), writes_.end());
    size_t kept = 0;
    for (size_t i = 0; i < writes_.size(); ++i) {
      if (kept != 0 && writes_[i].first <= writes_[kept - 1].second) {
        writes_[kept - 1].second = std::max(writes_[kept - 1].second, writes_[i].second);
      } else {
        writes_[kept++] = writes_[i];
      }
    }
    writes_.resize(kept);
  }
  bool IsWritten(const void* data, uint64_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto behind = std::upper_bound(writes_.begin(), writes_.end(), begin + bytes,
                                         [](uintptr_t end, const auto& write) { return end <= write.first; });
    return behind != writes_.begin() && std::prev(behind)->second > begin;
  }

 private:
  std::vector<std::pair<uintptr_t, uintptr_t>> writes_;  // begin and end
  bool may_write_anywhere_ = false;
  bool lets_others_in_ = false;
};

}  // namespace

// ---- Forms ----

/// The form of one operand, for all graphs that read it. What was made is never changed: who reads it holds it.
class KeptForm {
 public:
  /// Nothing where the operand cannot be watched.
  static std::shared_ptr<KeptForm> Of(const KeptOperand& operand);
  ~KeptForm();
  KeptForm(const KeptForm&) = delete;
  KeptForm& operator=(const KeptForm&) = delete;

  const std::vector<WatchedRange>& ranges() const { return ranges_; }
  void Look() { watch_->Look(); }

  struct Answer {
    std::shared_ptr<void> made;  ///< the form, if it is there and holds
    bool is_awake;               ///< wants to be looked at before the next execution
  };
  /// After a look. Calls write(to) when it is time to make the form and `room`, from which it is taken, is not 0.
  template <class WriteTo>
  Answer Advance(const WriteTo& write, uint64_t& room) {
    MutexLock lock(mutex_);
    switch (state_) {
      case State::kResting:
        if (--left_ == 0) state_ = State::kNew;
        break;
      case State::kNew:
        Note();
        state_ = State::kSeen;
        break;
      case State::kSeen:
        if (!IsSame()) {
          Rest();
        } else if (room == 0) {
          break;
        } else if (std::shared_ptr<void> memory = TakeMemory(bytes_)) {
          write(memory.get());
          room -= std::min(room, bytes_);
          made_ = std::move(memory);
          state_ = State::kMade;
          Tell(VerboseEvent::kOperandKept, TheTotals().made, "is kept in another form");
        } else {
          Rest();
        }
        break;
      case State::kMade:
        if (IsSame()) break;
        made_ = nullptr;
        Rest();
        Tell(VerboseEvent::kOperandDropped, TheTotals().dropped, "has been written, and is read where it lies");
        break;
    }
    return {made_, state_ != State::kResting};
  }

  /// What was made holds until now, for a thread that uses it.
  bool IsStillSame() {
    watch_->Look();
    MutexLock lock(mutex_);
    return state_ == State::kMade && IsSame();
  }

 private:
  using Key = std::vector<int64_t>;
  enum class State : uint8_t { kNew, kSeen, kMade, kResting };
  struct Store {
    Mutex mutex;
    std::map<Key, std::weak_ptr<KeptForm>> forms REPRISE_GUARDED_BY(mutex);
  };
  static Store& TheStore() {
    static auto* const store = new Store;
    return *store;
  }

  KeptForm(Key key, const KeptOperand& operand) : key_(std::move(key)), bytes_(operand.form_bytes) {
    const auto* const begin = static_cast<const char*>(operand.data);
    const auto at = reinterpret_cast<uintptr_t>(begin);
    // Others may write to the pages at both ends: what matters there is kept to compare.
    const uint64_t head = std::min(operand.bytes, -at % kPage);
    const uint64_t tail = operand.bytes == head ? 0 : (at + operand.bytes) % kPage;
    const uint64_t middle = operand.bytes - head - tail;
    if (head != 0) AddPart({begin, head}, true);
    if (middle != 0) AddPart({begin + head, middle}, false);
    if (tail != 0) AddPart({begin + head + middle, tail}, true);
    watch_ = WriteWatch::Of(ranges_);
  }
  void AddPart(const WatchedRange& range, bool is_edge) REPRISE_REQUIRES(mutex_) {
    ranges_.push_back(range);
    parts_.push_back({0, std::vector<char>(is_edge ? range.bytes : 0)});
  }

  void Note() REPRISE_REQUIRES(mutex_) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].seen = watch_->writes(i);
      std::copy_n(static_cast<const char*>(ranges_[i].data), parts_[i].copy.size(), parts_[i].copy.data());
    }
  }
  // As it was noted.
  bool IsSame() REPRISE_REQUIRES(mutex_) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const uint64_t writes = watch_->writes(i);
      if (writes == parts_[i].seen) continue;
      if (parts_[i].copy.empty() || std::memcmp(parts_[i].copy.data(), ranges_[i].data, ranges_[i].bytes) != 0)
        return false;
      parts_[i].seen = writes;
    }
    return true;
  }
  void Rest() REPRISE_REQUIRES(mutex_) {
    resting_ = std::clamp(resting_ * 2, kFewestResting, kMostResting);
    left_ = resting_;
    state_ = State::kResting;
  }
  void Tell(VerboseEvent event, std::atomic<uint64_t>& count, const char* what) const {
    count.fetch_add(1, std::memory_order_relaxed);
    reprise::Note(event, [&] {
      return fmt::format("operand at {}, {} bytes: {}", ranges_.front().data,
                         static_cast<const char*>(ranges_.back().data) + ranges_.back().bytes -
                             static_cast<const char*>(ranges_.front().data),
                         what);
    });
  }

  struct Part {
    uint64_t seen;           // writes of the watch
    std::vector<char> copy;  // of an edge
  };
  const Key key_;
  const uint64_t bytes_;
  std::vector<WatchedRange> ranges_;
  std::unique_ptr<WriteWatch> watch_;
  Mutex mutex_;
  std::vector<Part> parts_ REPRISE_GUARDED_BY(mutex_);
  State state_ REPRISE_GUARDED_BY(mutex_) = State::kNew;
  uint32_t resting_ REPRISE_GUARDED_BY(mutex_) = 0;
  uint32_t left_ REPRISE_GUARDED_BY(mutex_) = 0;  // of resting_
  std::shared_ptr<void> made_ REPRISE_GUARDED_BY(mutex_);
};

std::shared_ptr<KeptForm> KeptForm::Of(const KeptOperand& operand) {
  Key key = operand.key;
  key.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(operand.data)));
  key.push_back(static_cast<int64_t>(operand.bytes));
  key.push_back(static_cast<int64_t>(operand.form_bytes));
  Store& store = TheStore();
  {
    MutexLock lock(store.mutex);
    const auto found = store.forms.find(key);
    if (found != store.forms.end()) {
      if (std::shared_ptr<KeptForm> form = found->second.lock()) return form;
    }
  }
  std::shared_ptr<KeptForm> form(new KeptForm(key, operand));
  if (form->watch_ == nullptr) return nullptr;
  std::shared_ptr<KeptForm> other;  // of somebody who was faster
  {
    MutexLock lock(store.mutex);
    std::weak_ptr<KeptForm>& place = store.forms[std::move(key)];
    other = place.lock();
    if (other == nullptr) place = form;
  }
  return other != nullptr ? other : form;
}

KeptForm::~KeptForm() {
  Store& store = TheStore();
  MutexLock lock(store.mutex);
  const auto found = store.forms.find(key_);
  if (found != store.forms.end() && found->second.expired()) store.forms.erase(found);
}

// ---- What one graph keeps ----

struct KeptOperands::Kept {
  std::shared_ptr<KeptForm> form;
  const void* data;
  uint64_t bytes;
  std::function<void(device::RunContext&, void* to)> write;  ///< makes the form
  std::shared_ptr<void> made;                                ///< what the tasks read now
  bool is_awake = true;
  std::vector<Use*> uses;
  std::vector<ir::Link*> links;
};

/// A task that reads a form. Steps are redirected to it.
struct KeptOperands::Use {
  alignas(16) std::byte captured[kMostPayloadBytes];  ///< the bytes of the task's payload, for all who look at it
  alignas(16) std::byte adopted[kMostPayloadBytes];   ///< of the task that reads the form; while it is on
  const KeptOperands& all;
  const ir::TaskType* type;
  void* payload;
  ir::NodeId node;
  KeptOperand::Role role;
  Kept& kept;
  Use* other;           ///< the taker of a maker, the maker of a taker
  bool is_out = false;  ///< its task has changed
  bool is_redirected = false;
  bool is_on = false;
  bool is_spared = false;  ///< a maker has not run in this execution

  Use(const KeptOperands& owner, const ir::Node& task, ir::NodeId id, KeptOperand::Role how, Kept& what)
      : all(owner), type(task.type), payload(task.payload), node(id), role(how), kept(what), other(nullptr) {
    std::memcpy(captured, payload, type->keeping->payload_bytes);
  }
  ~Use() { TurnOff(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  bool has_adopted() const { return role != KeptOperand::Role::kMakes; }
  void TurnOn(void* form) {
    if (has_adopted()) type->keeping->adopt(payload, form, adopted);
    is_on = true;
  }
  void TurnOff() noexcept {
    if (!std::exchange(is_on, false)) return;
    if (has_adopted() && type->destroy != nullptr) type->destroy(adopted);
  }
};

ir::RunResult KeptOperands::Run(device::RunContext& context, void* data) {
  Use& use = *static_cast<Use*>(data);
  bool is_on = use.is_on;
  if (use.role == KeptOperand::Role::kTakes) {
    is_on = is_on && use.other->is_spared;
  } else if (is_on && use.all.asks_each_task_) {
    is_on = use.kept.form->IsStillSame();
  }
  if (use.role == KeptOperand::Role::kMakes) {
    use.is_spared = is_on;
    if (is_on) return ir::RunResult::kDone;
  }
  return use.type->run(context, is_on ? use.adopted : use.captured);
}

std::unique_ptr<KeptOperands> KeptOperands::Of(const ir::Graph& graph, std::unique_ptr<KeptOperands> before) {
  if (MostBytes() == 0 || !WriteWatch::IsPossible()) return nullptr;
  bool is_worth_it = false;
  for (const ir::Node& node : graph.nodes()) {
    if (node.type->keeping == nullptr || !ir::IsActive(node)) continue;
    is_worth_it = true;
    break;
  }
  if (!is_worth_it) return nullptr;
  std::unique_ptr<KeptOperands> kept(new KeptOperands(graph));
  if (before != nullptr) {
    kept->inherited_ = std::move(before->inherited_);
    for (const auto& each : before->kept_) kept->inherited_.push_back(each->form);
  }
  return kept;
}

KeptOperands::KeptOperands(const ir::Graph& graph) : graph_(graph) {}
KeptOperands::~KeptOperands() = default;

// Tasks and operands that are worth it.
void KeptOperands::Find() {
  Written written;
  for (const ir::Node& node : graph_.nodes()) {
    if (ir::IsActive(node)) written.Visit(node);
  }
  written.Sort();
  asks_each_task_ = written.may_be_surprised();
  std::map<const KeptForm*, Kept*> by_form;
  std::map<ir::LaneId, std::pair<const void*, Use*>> makers;  // the last one of each lane, and its temporary
  ir::NodeId id = 0;
  for (auto at = graph_.nodes().begin(); at != graph_.nodes().end(); ++at, ++id) {
    const ir::Node node = *at;
    if (!ir::IsActive(node) || node.type->keeping == nullptr || ir::IsSlot(node.type)) continue;
    if (node.type->keeping->payload_bytes > kMostPayloadBytes) continue;
    KeptOperand operand;
    if (!node.type->keeping->find(node.payload, operand)) continue;
    if (operand.role == KeptOperand::Role::kTakes) {
      const auto maker = makers.find(node.lane);
      if (maker == makers.end() || maker->second.first != operand.temporary) continue;
      Use& made_by = *maker->second.second;
      makers.erase(maker);
      uses_.push_back(std::make_unique<Use>(*this, node, id, operand.role, made_by.kept));
      uses_.back()->other = &made_by;
      made_by.other = uses_.back().get();
      made_by.kept.uses.push_back(uses_.back().get());
      continue;
    }
    if (operand.bytes < kLeastBytes || operand.form_bytes > MostBytes()) continue;
    if (written.IsWritten(operand.data, operand.bytes)) continue;
    std::shared_ptr<KeptForm> form = KeptForm::Of(operand);
    if (form == nullptr) continue;
    Kept*& kept = by_form[form.get()];
    if (kept == nullptr) {
      const auto write = [type = node.type, payload = node.payload](device::RunContext& context, void* to) {
        type->keeping->write(context, payload, to);
      };
      kept_.push_back(std::make_unique<Kept>(Kept{form, operand.data, operand.bytes, write, nullptr, true, {}, {}}));
      kept = kept_.back().get();
    }
    uses_.push_back(std::make_unique<Use>(*this, node, id, operand.role, *kept));
    kept->uses.push_back(uses_.back().get());
    if (operand.role == KeptOperand::Role::kMakes) makers[node.lane] = {operand.temporary, uses_.back().get()};
  }
  FindChain();
}

// ---- Chains ----

// Forms of all of its links, or none. A chain ends before the first task that may let others write: what its links
// read is as it was when the execution began.
void KeptOperands::FindChain() {
  static const bool is_on = EnvInt(EnvVar::kChains) != 0;
  if (!is_on) return;
  chain_ = ChainSteps::Of(graph_);
  if (chain_ != nullptr && !FindFormsOfChain()) chain_ = nullptr;
  if (chain_ != nullptr) return;
  for (const auto& kept : kept_) kept->links.clear();
}

bool KeptOperands::FindFormsOfChain() {
  Written written;
  for (const ir::Node& node : graph_.nodes()) {
    if (ir::IsActive(node)) written.Visit(node);
  }
  written.Sort();
  std::map<const KeptForm*, Kept*> by_form;
  for (const auto& kept : kept_) by_form[kept->form.get()] = kept.get();
  for (const ir::Chain::Part& part : chain_->chain().parts) {
    ir::Link* const link = part.link.get();
    KeptOperand operand;
    if (!link->FindOperand(operand)) continue;
    if (operand.form_bytes > MostBytes() || written.IsWritten(operand.data, operand.bytes)) return false;
    std::shared_ptr<KeptForm> form = KeptForm::Of(operand);
    if (form == nullptr) return false;
    Kept*& kept = by_form[form.get()];
    if (kept == nullptr) {
      const auto write = [link](device::RunContext& context, void* to) { link->WriteForm(context, to); };
      kept_.push_back(std::make_unique<Kept>(Kept{form, operand.data, operand.bytes, write, nullptr, true, {}, {}}));
      kept = kept_.back().get();
      is_look_stale_ = true;
    }
    kept->links.push_back(link);
    link->SetForm(kept->made.get());
  }
  return true;
}

// The links run where all of them can, and nobody wants to see each task.
void KeptOperands::TurnChain(exec::Plan& plan) noexcept {
  if (chain_ == nullptr) return;
  const bool is_ready = std::all_of(kept_.begin(), kept_.end(),
                                    [](const auto& kept) { return kept->links.empty() || kept->made != nullptr; });
  chain_->Turn(plan, is_ready && !device::Timeline::wants_each_task());
  if (!chain_->is_on()) return;
  TheTotals().chained.fetch_add(1, std::memory_order_relaxed);
  TheTotals().links.fetch_add(chain_->links(), std::memory_order_relaxed);
  TheTotals().linked.fetch_add(chain_->tasks(), std::memory_order_relaxed);
}

void KeptOperands::DropChain(exec::Plan& plan) noexcept {
  if (chain_ == nullptr) return;
  chain_->Turn(plan, false);
  // Those that only links would use go with them.
  std::erase_if(kept_, [](const auto& kept) {
    kept->links.clear();
    return kept->uses.empty();
  });
  is_look_stale_ = true;
  chain_ = nullptr;
  chain_rests_ = std::clamp(chain_rests_ * 2, kFewestResting, kMostResting);
  chain_rest_ = chain_rests_;
}

void KeptOperands::Redirect(exec::Plan& plan) {
  const auto redirect = [&](Use& use) {
    use.is_redirected = !use.is_out && plan.Redirect(graph_.node(use.node), use.type, Run, &use);
    return use.is_redirected;
  };
  for (const auto& use : uses_) use->is_redirected = false;
  for (const auto& use : uses_) {
    if (use->role == KeptOperand::Role::kReads) redirect(*use);
    // A maker is spared only where its taker can do without.
    if (use->role == KeptOperand::Role::kTakes && redirect(*use) && !redirect(*use->other)) GiveBack(plan, *use);
  }
}

void KeptOperands::GiveBack(exec::Plan& plan, Use& use) {
  use.is_out = true;
  if (!std::exchange(use.is_redirected, false)) return;
  plan.Redirect(graph_.node(use.node), use.type, use.type->run, use.payload);
  use.TurnOff();
  if (use.other != nullptr) GiveBack(plan, *use.other);
}

bool KeptOperands::Begin(exec::Plan& plan, bool is_new, device::RunContext& context) noexcept {
  if (executions_ < kExecutionsBefore) {
    ++executions_;
    return true;
  }
  try {
    if (!std::exchange(has_looked_for_, true)) {
      Find();
      is_new = true;
    }
    const bool wants_chain = chain_ == nullptr && chain_rest_ != 0 && --chain_rest_ == 0;
    if (wants_chain) FindChain();
    if (uses_.empty() && chain_ == nullptr && chain_rest_ == 0) return false;
    if (is_new) Redirect(plan);
    if (chain_ != nullptr && (is_new || wants_chain) && !chain_->Prepare(plan)) {
      DropChain(plan);
      chain_rest_ = 0;
    }
    LookAtAll();
    uint64_t room = kMostMadeBytes;
    for (const auto& kept : kept_) Advance(*kept, context, room);
    inherited_.clear();
    TurnChain(plan);
  } catch (const std::bad_alloc&) {
    // What was not done is done without.
    DropChain(plan);
    for (const auto& use : uses_) GiveBack(plan, *use);
    uses_.clear();
    kept_.clear();
    return false;
  }
  return true;
}

// What graphs share is looked at by each of them, since each may come behind a write.
void KeptOperands::LookAtAll() {
  if (!std::exchange(is_look_stale_, false)) {
    if (look_ != nullptr) return look_->Look();
    if (!looks_one_by_one_) return;
  } else {
    std::vector<WatchedRange> ranges;
    for (const auto& kept : kept_) {
      if (kept->is_awake) ranges.insert(ranges.end(), kept->form->ranges().begin(), kept->form->ranges().end());
    }
    look_ = ranges.empty() ? nullptr : WriteWatch::Of(ranges);  // which looks
    looks_one_by_one_ = !ranges.empty() && look_ == nullptr;
  }
  if (!looks_one_by_one_) return;
  for (const auto& kept : kept_) {
    if (kept->is_awake) kept->form->Look();
  }
}

void KeptOperands::Advance(Kept& kept, device::RunContext& context, uint64_t& room) {
  const auto write = [&](void* to) { kept.write(context, to); };
  KeptForm::Answer answer = kept.form->Advance(write, room);
  is_look_stale_ |= std::exchange(kept.is_awake, answer.is_awake) != answer.is_awake;
  if (answer.made == kept.made) return;
  for (Use* const use : kept.uses) use->TurnOff();
  kept.made = std::move(answer.made);
  for (ir::Link* const link : kept.links) link->SetForm(kept.made.get());
  if (kept.made == nullptr) return;
  for (Use* const use : kept.uses) {
    if (use->is_redirected) use->TurnOn(kept.made.get());
  }
}

void KeptOperands::Change(exec::Plan& plan, std::span<const ir::NodeId> changed) noexcept {
  if (!has_looked_for_) return;
  DropChain(plan);
  try {
    std::vector<std::pair<ir::NodeId, Use*>> by_node;
    by_node.reserve(uses_.size());
    for (const auto& use : uses_) by_node.emplace_back(use->node, use.get());  // in the order of nodes
    Written written;
    for (const ir::NodeId id : changed) {
      const auto use = std::lower_bound(by_node.begin(), by_node.end(), std::pair<ir::NodeId, Use*>(id, nullptr));
      if (use != by_node.end() && use->first == id) GiveBack(plan, *use->second);
      const ir::Node node = graph_.node(id);
      if (ir::IsActive(node)) written.Visit(node);
    }
    written.Sort();
    asks_each_task_ |= written.may_be_surprised();
    for (const auto& kept : kept_) {
      if (!written.IsWritten(kept->data, kept->bytes)) continue;
      for (Use* const use : kept->uses) GiveBack(plan, *use);
    }
  } catch (const std::bad_alloc&) {
    for (const auto& use : uses_) GiveBack(plan, *use);
  }
}

KeptTotals TotalsOfKept() {
  const Totals& totals = TheTotals();
  const auto now = [](const std::atomic<uint64_t>& total) { return total.load(std::memory_order_relaxed); };
  return {now(totals.made),    now(totals.dropped), now(totals.bytes),
          now(totals.chained), now(totals.links),   now(totals.linked)};
}

}  // namespace reprise::model
