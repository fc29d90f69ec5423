// SPDX-License-Identifier: Apache-2.0
//
// Queues of buffers inside the process, and routes that hand on from queue to queue.
//
// Ids are never used twice (until 2^32 were given), so the id of a destroyed queue is refused, not mistaken. Queues
// belong to the process: a reset of their device leaves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::tdt {

constexpr uint32_t kDefaultDepth = 128;
constexpr uint32_t kMaxDepth = 65536;

struct QueueAttributes {
  std::string name;  ///< for messages; several queues may have the same
  uint32_t depth = kDefaultDepth;
};

StatusOr<uint32_t> CreateQueue(const QueueAttributes& attributes, int device);
/// Frees what is in it. Calls that wait for it return 100032; its routes are broken from
/// now on, and forgotten when both their queues are gone.
Status DestroyQueue(uint32_t id);

/// Timeouts: -1 for ever, 0 not at all, else milliseconds.

/// Takes the buffer over; when it fails, the caller keeps it. 207014 when the queue stays full.
Status Enqueue(uint32_t id, void* buffer, int32_t timeout_ms);
Status EnqueueData(uint32_t id, const void* data, size_t bytes, const void* user, size_t user_bytes,
                   int32_t timeout_ms);
/// 207013 when the queue stays empty.
StatusOr<void*> Dequeue(uint32_t id, int32_t timeout_ms);
/// Bytes written to `data`. A buffer that does not fit stays in the queue.
StatusOr<size_t> DequeueData(uint32_t id, void* data, size_t bytes, void* user, size_t user_bytes, int32_t timeout_ms);

/// Rights of processes, ACL_TDT_QUEUE_PERMISSION_*. This process has all rights on all its queues.
constexpr uint32_t kAllRights = 7;
Status GrantQueue(uint32_t id, int32_t pid, uint32_t rights, int32_t timeout_ms);
StatusOr<uint32_t> AttachQueue(uint32_t id, int32_t timeout_ms);

/// ACL_TDT_QUEUE_ROUTE_*
enum class RouteState : int32_t { kUnbound = 0, kBound = 1, kBroken = 2 };

struct Route {
  uint32_t source = 0;
  uint32_t destination = 0;
  RouteState state = RouteState::kUnbound;
};

/// From now on, what is in a source goes to its destinations: one reference to each, as soon as all of them have room.
/// All routes or none; bound ones stay bound. Routes in a circle are refused.
Status BindRoutes(const std::vector<Route>& routes);
/// All or none; 100000 for a route that is not bound. Broken ones are forgotten.
Status UnbindRoutes(const std::vector<Route>& routes);

struct RouteQuery {
  /// acltdtQueueRouteQueryMode
  enum Mode { kSource = 0, kDestination = 1, kBoth = 2, kBroken = 100 };
  std::optional<int> mode;
  std::optional<uint32_t> source;
  std::optional<uint32_t> destination;
};
/// In the order in which they were bound. 100000 when the query lacks what its mode asks for.
StatusOr<std::vector<Route>> FindRoutes(const RouteQuery& query);

}  // namespace reprise::tdt
