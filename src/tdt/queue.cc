// SPDX-License-Identifier: Apache-2.0
#include "tdt/queue.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/fault.h"
#include "base/mutex.h"
#include "tdt/buffer.h"
#include "tdt/waiting.h"

namespace reprise::tdt {
namespace {

constexpr size_t kMaxQueues = 8192;
constexpr size_t kMaxRoutes = 1024;

struct Queue {
  uint32_t id = 0;
  int device = 0;
  std::string name;
  bool destroyed = false;
  Bell room;   // for those who enqueue
  Bell items;  // for those who dequeue

  std::vector<Parcel> slots;  // a ring, so that putting in cannot fail
  size_t first = 0;
  size_t count = 0;

  // Routes that are bound.
  std::vector<Queue*> destinations;
  std::vector<Queue*> sources;
  std::vector<Parcel> copies;  // room for those on their way to all destinations but one

  // Work list of Settle.
  Queue* next = nullptr;
  bool listed = false;

  bool empty() const { return count == 0; }
  bool full() const { return count == slots.size(); }
  Parcel& front() { return slots[first]; }
  void Push(Parcel parcel) noexcept {
    slots[(first + count++) % slots.size()] = std::move(parcel);
    items.Ring();
  }
  Parcel Pop() noexcept {
    Parcel parcel = std::move(slots[first]);
    first = (first + 1) % slots.size();
    --count;
    room.Ring();
    return parcel;
  }
  std::string Describe() const {
    return name.empty() ? fmt::format("queue {}", id) : fmt::format("queue {} (\"{}\")", id, name);
  }
};

using QueueRef = std::shared_ptr<Queue>;

// All queues under one lock, because routes reach from one to another. It is above the lock of the buffers. Bytes are
// copied outside.
struct Hub {
  Mutex mutex;
  std::map<uint32_t, QueueRef> queues REPRISE_GUARDED_BY(mutex);
  std::vector<Route> routes REPRISE_GUARDED_BY(mutex);
  uint32_t next_id REPRISE_GUARDED_BY(mutex) = 0;
};

Hub& TheHub() {
  static auto* const hub = new Hub;
  return *hub;
}

// The functions below with a Hub need its lock.

StatusOr<QueueRef> Find(const Hub& hub, uint32_t id, const char* parameter = "qid") REPRISE_REQUIRES(hub.mutex) {
  if (const auto it = hub.queues.find(id); it != hub.queues.end()) return it->second;
  return Error(kInvalidQueueId, fmt::format("{} {} is no queue; {} exist", parameter, id, hub.queues.size()))
      .Culprit(fmt::format("{} {}", parameter, id))
      .Hint("pass an id that acltdtCreateQueue wrote and that was not destroyed since");
}

Status Gone(const Queue& queue) {
  return Error(kInvalidQueueId, fmt::format("{} was destroyed while this call waited for it", queue.Describe()))
      .Culprit("a call of acltdtDestroyQueue by another thread")
      .Hint("destroy a queue only when no thread waits for it any more");
}

void List(Queue*& work, Queue* queue) noexcept {
  if (queue->listed) return;
  queue->listed = true;
  queue->next = work;
  work = queue;
}

// Moves the oldest parcel of `queue` to all its destinations. False when that is not possible now; for want of memory,
// too: the parcel then waits for the next occasion.
bool Forward(Queue& queue) noexcept {
  if (queue.empty() || queue.destinations.empty()) return false;
  for (const Queue* destination : queue.destinations) {
    if (destination->full()) return false;
  }
  queue.copies.clear();
  for (size_t i = 1; i < queue.destinations.size(); ++i) {
    Parcel copy = CopyParcel(*queue.front());
    if (copy == nullptr) {
      queue.copies.clear();
      return false;
    }
    queue.copies.push_back(std::move(copy));  // Bind has reserved
  }
  for (size_t i = 1; i < queue.destinations.size(); ++i) {
    queue.destinations[i]->Push(std::move(queue.copies[i - 1]));
  }
  queue.copies.clear();
  queue.destinations[0]->Push(queue.Pop());
  return true;
}

// Forwards what can be forwarded after `queue` got a parcel or lost one. Ends because routes have no circle.
void Settle(Queue* queue) noexcept {
  Queue* work = nullptr;
  List(work, queue);
  for (Queue* source : queue->sources) List(work, source);
  while (work != nullptr) {
    Queue& one = *work;
    work = one.next;
    one.listed = false;
    bool moved = false;
    while (Forward(one)) moved = true;
    if (!moved) continue;
    for (Queue* destination : one.destinations) List(work, destination);
    for (Queue* source : one.sources) List(work, source);
  }
}

// Waits until the queue has room, or an item.
Status Await(Queue& queue, UniqueLock<Mutex>& lock, bool for_room, const Deadline& deadline, int32_t timeout_ms) {
  for (;;) {
    if (queue.destroyed) return Gone(queue);
    if (for_room ? !queue.full() : !queue.empty()) return {};
    if ((for_room ? queue.room : queue.items).Wait(lock, deadline)) continue;
    if (queue.destroyed) return Gone(queue);
    if (for_room ? !queue.full() : !queue.empty()) return {};
    if (for_room) {
      return Error(kQueueFull, fmt::format("{} is full {}: {} buffers", queue.Describe(), AfterWaiting(timeout_ms),
                                           queue.slots.size()))
          .Culprit(queue.destinations.empty() ? "nobody dequeues" : "a destination of its routes is full")
          .Hint("dequeue, wait longer, or create the queue with a larger ACL_TDT_QUEUE_DEPTH_UINT32");
    }
    return Error(kQueueEmpty, fmt::format("{} is empty {}", queue.Describe(), AfterWaiting(timeout_ms)))
        .Culprit("nobody enqueues")
        .Hint("enqueue, or wait longer; -1 waits for ever");
  }
}

// Puts in what `make` returns, once there is room.
template <class MakeParcel>
Status Put(uint32_t id, int32_t timeout_ms, MakeParcel make) {
  REPRISE_ASSIGN_OR_RETURN(const Deadline deadline, DeadlineAfter(timeout_ms));
  Hub& hub = TheHub();
  UniqueLock lock(hub.mutex);
  REPRISE_ASSIGN_OR_RETURN(const QueueRef queue, Find(hub, id));
  REPRISE_RETURN_IF_ERROR(Await(*queue, lock, true, deadline, timeout_ms));
  queue->Push(make());
  Settle(queue.get());
  return {};
}

bool Same(const Route& a, const Route& b) { return a.source == b.source && a.destination == b.destination; }

std::string Describe(const Route& route) { return fmt::format("route {} -> {}", route.source, route.destination); }

// Which queue hands on to which.
class Network {
 public:
  explicit Network(const std::vector<Route>& routes) {
    for (const Route& route : routes) Add(route);
  }
  void Add(const Route& route) { edges_[route.source].insert(route.destination); }
  bool Has(const Route& route) const {
    const auto it = edges_.find(route.source);
    return it != edges_.end() && it->second.count(route.destination) != 0;
  }
  bool Reaches(uint32_t from, uint32_t to) const {
    std::set<uint32_t> seen{from};
    std::vector<uint32_t> work{from};
    while (!work.empty()) {
      const uint32_t id = work.back();
      work.pop_back();
      if (id == to) return true;
      const auto it = edges_.find(id);
      if (it == edges_.end()) continue;
      for (const uint32_t next : it->second) {
        if (seen.insert(next).second) work.push_back(next);
      }
    }
    return false;
  }

 private:
  std::map<uint32_t, std::set<uint32_t>> edges_;
};

Status NotEmpty(const std::vector<Route>& routes) {
  if (!routes.empty()) return {};
  return Error(kInvalidArgument, "the list has no route")
      .Culprit("parameter qRouteList")
      .Hint("add routes with acltdtAddQueueRoute");
}

}  // namespace

StatusOr<uint32_t> CreateQueue(const QueueAttributes& attributes, int device) {
  auto queue = std::make_shared<Queue>();
  queue->device = device;
  queue->name = attributes.name;
  queue->slots.resize(attributes.depth);
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  if (hub.queues.size() >= kMaxQueues || FaultPoint("tdt.object")) {
    return Error(kResourceExhausted,
                 fmt::format("the process has no room for another queue: {} exist", hub.queues.size()))
        .Culprit("live queues of the process")
        .Hint("destroy those that are no longer needed with acltdtDestroyQueue");
  }
  while (hub.queues.count(hub.next_id) != 0) ++hub.next_id;
  queue->id = hub.next_id;
  hub.queues.emplace(queue->id, queue);
  return hub.next_id++;
}

Status DestroyQueue(uint32_t id) {
  Hub& hub = TheHub();
  std::vector<Parcel> dropped;  // behind the lock
  MutexLock lock(hub.mutex);
  REPRISE_ASSIGN_OR_RETURN(const QueueRef queue, Find(hub, id));
  hub.queues.erase(id);
  queue->destroyed = true;
  queue->room.Ring();
  queue->items.Ring();
  for (Queue* source : queue->sources) std::erase(source->destinations, queue.get());
  for (Queue* destination : queue->destinations) std::erase(destination->sources, queue.get());
  for (Route& route : hub.routes) {
    if (route.source == id || route.destination == id) route.state = RouteState::kBroken;
  }
  // Nobody can be told of a route whose queues are both gone.
  std::erase_if(hub.routes, [&](const Route& route) REPRISE_REQUIRES(hub.mutex) {
    return hub.queues.count(route.source) == 0 && hub.queues.count(route.destination) == 0;
  });
  // A full queue here may have held up those before it, which have other destinations.
  const std::vector<Queue*> sources = std::exchange(queue->sources, {});
  queue->destinations.clear();
  dropped.swap(queue->slots);
  queue->count = 0;
  for (Queue* source : sources) Settle(source);
  return {};
}

Status Enqueue(uint32_t id, void* buffer, int32_t timeout_ms) {
  {
    // What is wrong with the queue is told before the buffer is touched.
    Hub& hub = TheHub();
    MutexLock lock(hub.mutex);
    REPRISE_RETURN_IF_ERROR(Find(hub, id).status());
  }
  REPRISE_ASSIGN_OR_RETURN(Handover handover, Handover::Begin(buffer));
  return Put(id, timeout_ms, [&] { return handover.Commit(); });
}

Status EnqueueData(uint32_t id, const void* data, size_t bytes, const void* user, size_t user_bytes,
                   int32_t timeout_ms) {
  {
    Hub& hub = TheHub();
    MutexLock lock(hub.mutex);
    REPRISE_RETURN_IF_ERROR(Find(hub, id).status());
  }
  REPRISE_ASSIGN_OR_RETURN(Parcel parcel, PackData(data, bytes, user, user_bytes));
  return Put(id, timeout_ms, [&] { return std::move(parcel); });
}

StatusOr<void*> Dequeue(uint32_t id, int32_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(const Deadline deadline, DeadlineAfter(timeout_ms));
  Hub& hub = TheHub();
  UniqueLock lock(hub.mutex);
  REPRISE_ASSIGN_OR_RETURN(const QueueRef queue, Find(hub, id));
  REPRISE_RETURN_IF_ERROR(Await(*queue, lock, false, deadline, timeout_ms));
  Parcel parcel = queue->Pop();
  Settle(queue.get());
  lock.unlock();
  return GiveOut(std::move(parcel));
}

StatusOr<size_t> DequeueData(uint32_t id, void* data, size_t bytes, void* user, size_t user_bytes, int32_t timeout_ms) {
  REPRISE_ASSIGN_OR_RETURN(const Deadline deadline, DeadlineAfter(timeout_ms));
  Hub& hub = TheHub();
  Parcel parcel;
  size_t length = 0;
  {
    UniqueLock lock(hub.mutex);
    REPRISE_ASSIGN_OR_RETURN(const QueueRef queue, Find(hub, id));
    REPRISE_RETURN_IF_ERROR(Await(*queue, lock, false, deadline, timeout_ms));
    length = ParcelBytes(*queue->front());
    if (length > bytes) {
      return Error(kInvalidArgument, fmt::format("the oldest buffer of {} has {} bytes, dataSize is {}",
                                                 queue->Describe(), length, bytes))
          .Culprit("parameter dataSize")
          .Hint("pass room for all of it; the buffer is still in the queue");
    }
    parcel = queue->Pop();
    Settle(queue.get());
  }
  Unpack(*parcel, data, length, user, user_bytes);
  return length;
}

// ---- Rights ----

Status GrantQueue(uint32_t id, int32_t pid, uint32_t rights, int32_t timeout_ms) {
  REPRISE_RETURN_IF_ERROR(DeadlineAfter(timeout_ms).status());
  if (rights == 0 || (rights & ~kAllRights) != 0) {
    return Error(kInvalidArgument,
                 fmt::format("permission is {:#x}, must be a sum of 1 (manage), 2 (dequeue) and 4 (enqueue)", rights))
        .Culprit("parameter permission")
        .Hint("pass a mask of ACL_TDT_QUEUE_PERMISSION_*");
  }
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  REPRISE_ASSIGN_OR_RETURN(const QueueRef queue, Find(hub, id));
  if (pid == getpid()) return {};  // has all rights
  return Error(kFeatureNotSupported,
               fmt::format("{} cannot be shared with process {}: queues of the CPU device live in one process",
                           queue->Describe(), pid))
      .Culprit("parameter pid")
      .Hint(fmt::format("use the queue in this process ({}), from as many threads as you like", getpid()));
}

StatusOr<uint32_t> AttachQueue(uint32_t id, int32_t timeout_ms) {
  REPRISE_RETURN_IF_ERROR(DeadlineAfter(timeout_ms).status());
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  REPRISE_RETURN_IF_ERROR(Find(hub, id).status());
  return kAllRights;
}

// ---- Routes ----

Status BindRoutes(const std::vector<Route>& routes) {
  REPRISE_RETURN_IF_ERROR(NotEmpty(routes));
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  std::vector<Route> all = hub.routes;
  Network network(all);
  std::vector<std::pair<Queue*, Queue*>> made;
  for (const Route& wanted : routes) {
    REPRISE_ASSIGN_OR_RETURN(const QueueRef source, Find(hub, wanted.source, "source queue"));
    REPRISE_ASSIGN_OR_RETURN(const QueueRef destination, Find(hub, wanted.destination, "destination queue"));
    if (network.Has(wanted)) continue;
    if (network.Reaches(wanted.destination, wanted.source)) {
      return Error(kInvalidArgument, fmt::format("{} would close a circle of routes", Describe(wanted)))
          .Culprit("parameter qRouteList")
          .Hint("leave out a route that leads back");
    }
    if (all.size() >= kMaxRoutes) {
      return Error(kResourceExhausted, fmt::format("the process has {} routes, which is the most", all.size()))
          .Culprit("bound and broken routes of the process")
          .Hint("unbind those that are no longer needed");
    }
    network.Add(wanted);
    all.push_back({wanted.source, wanted.destination, RouteState::kBound});
    made.emplace_back(source.get(), destination.get());
  }
  for (const auto& [source, destination] : made) {  // from here on nothing fails
    source->destinations.reserve(source->destinations.size() + made.size());
    source->copies.reserve(source->destinations.size() + made.size());
    destination->sources.reserve(destination->sources.size() + made.size());
  }
  for (const auto& [source, destination] : made) {
    source->destinations.push_back(destination);
    destination->sources.push_back(source);
  }
  hub.routes.swap(all);
  for (const auto& pair : made) Settle(pair.first);
  return {};
}

Status UnbindRoutes(const std::vector<Route>& routes) {
  REPRISE_RETURN_IF_ERROR(NotEmpty(routes));
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  const Network network(hub.routes);
  for (const Route& wanted : routes) {
    if (!network.Has(wanted)) {
      return Error(kInvalidArgument, fmt::format("{} is not bound", Describe(wanted)))
          .Culprit("parameter qRouteList")
          .Hint("acltdtQueryQueueRoutes tells which routes are bound");
    }
  }
  for (const Route& wanted : routes) {
    std::erase_if(hub.routes, [&](const Route& route) { return Same(route, wanted); });
    const auto source = hub.queues.find(wanted.source);
    const auto destination = hub.queues.find(wanted.destination);
    if (source == hub.queues.end() || destination == hub.queues.end()) continue;  // was broken
    std::erase(source->second->destinations, destination->second.get());
    std::erase(destination->second->sources, source->second.get());
    Settle(source->second.get());  // its other destinations may have waited for this one
  }
  return {};
}

StatusOr<std::vector<Route>> FindRoutes(const RouteQuery& query) {
  if (!query.mode) {
    return Error(kInvalidArgument, "the query has no mode")
        .Culprit("parameter queryInfo")
        .Hint("set ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM with acltdtSetQueueRouteQueryInfo");
  }
  const bool by_source = *query.mode == RouteQuery::kSource || *query.mode == RouteQuery::kBoth;
  const bool by_destination = *query.mode == RouteQuery::kDestination || *query.mode == RouteQuery::kBoth;
  if ((by_source && !query.source) || (by_destination && !query.destination)) {
    return Error(kInvalidArgument, fmt::format("the query of mode {} has no {} queue", *query.mode,
                                               by_source && !query.source ? "source" : "destination"))
        .Culprit("parameter queryInfo")
        .Hint("set the queue ids that the mode asks for with acltdtSetQueueRouteQueryInfo");
  }
  Hub& hub = TheHub();
  MutexLock lock(hub.mutex);
  std::vector<Route> found;
  for (const Route& route : hub.routes) {
    if (by_source && route.source != *query.source) continue;
    if (by_destination && route.destination != *query.destination) continue;
    if (*query.mode == RouteQuery::kBroken && route.state != RouteState::kBroken) continue;
    found.push_back(route);
  }
  return found;
}

}  // namespace reprise::tdt
