// SPDX-License-Identifier: Apache-2.0
//
// Queues, their attributes and their routes.
#include "tdt/queue.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl_tdt_queue.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/report.h"
#include "tdt/buffer.h"
#include "tdt/handles.h"
#include "tdt/waiting.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::HandleKind;
using reprise::Status;
namespace runtime = reprise::runtime;
namespace tdt = reprise::tdt;
using runtime::Api;
using runtime::NotNull;

namespace {

using Attributes = tdt::GuardedTable<tdt::QueueAttributes, HandleKind::kQueueAttr>;
using Routes = tdt::GuardedTable<tdt::Route, HandleKind::kQueueRoute>;
using RouteLists = tdt::GuardedTable<std::vector<tdt::Route>, HandleKind::kQueueRouteList>;
using Queries = tdt::GuardedTable<tdt::RouteQuery, HandleKind::kQueueRouteQuery>;

Attributes& TheAttributes() {
  static auto* const table = new Attributes("queue attribute object");
  return *table;
}
Routes& TheRoutes() {
  static auto* const table = new Routes("queue route");
  return *table;
}
RouteLists& TheLists() {
  static auto* const table = new RouteLists("list of queue routes");
  return *table;
}
Queries& TheQueries() {
  static auto* const table = new Queries("query for queue routes");
  return *table;
}

// Body of the functions that return an object: null when it cannot be made.
template <class Handle, class Table, class Object>
Handle* Make(const char* api, Table& table, Object object) noexcept {
  void* handle = nullptr;
  Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(handle, table.Add(std::make_unique<Object>(std::move(object))));
    return {};
  });
  return static_cast<Handle*>(handle);
}

template <class Table>
aclError Destroy(const char* api, Table& table, const void* handle, const char* parameter) {
  return Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, parameter));
    return table.Take(handle).status();
  });
}

// The value of an attribute that the caller passes.
template <class T>
Status Read(size_t len, const void* param, T* value) {
  if (len != sizeof(T)) {
    return Error(kInvalidArgument, fmt::format("len is {}, must be {} for this type", len, sizeof(T)))
        .Culprit("parameter len")
        .Hint("pass the address of a variable of the type that the enumerator names, and its size");
  }
  std::memcpy(value, param, sizeof(T));
  return {};
}

template <class T>
Status Write(const T& value, size_t len, size_t* written, void* param) {
  if (len < sizeof(T)) {
    return Error(kInvalidArgument, fmt::format("len is {}, must be at least {} for this type", len, sizeof(T)))
        .Culprit("parameter len")
        .Hint("pass the address of a variable of the type that the enumerator names, and its size");
  }
  std::memcpy(param, &value, sizeof(T));
  *written = sizeof(T);
  return {};
}

Status NoSuchType(int64_t type, const char* valid) {
  return Error(kInvalidArgument, fmt::format("type is {}, must be {}", type, valid))
      .Culprit("parameter type")
      .Hint("pass one of the enumerators");
}

Status CheckUserData(const void* user, size_t bytes) {
  if (bytes > tdt::kUserAreaBytes) {
    return Error(kInvalidArgument, fmt::format("userDataSize is {}, must be at most {}", bytes, tdt::kUserAreaBytes))
        .Culprit("parameter userDataSize")
        .Hint("put more into the data itself");
  }
  return bytes == 0 ? Status() : NotNull(user, "userData");
}

// A copy of the routes of a list.
Status CopyList(const acltdtQueueRouteList* list, const char* parameter, std::vector<tdt::Route>* routes) {
  REPRISE_RETURN_IF_ERROR(NotNull(list, parameter));
  return TheLists().With(list, [&](const std::vector<tdt::Route>& found) -> Status {
    *routes = found;
    return {};
  });
}

Status SetStates(acltdtQueueRouteList* list, tdt::RouteState state) {
  return TheLists().With(list, [&](std::vector<tdt::Route>& found) -> Status {
    for (tdt::Route& route : found) route.state = state;
    return {};
  });
}

}  // namespace

// ---- Attributes ----

acltdtQueueAttr* acltdtCreateQueueAttr(void) {
  return Make<acltdtQueueAttr>("acltdtCreateQueueAttr", TheAttributes(), tdt::QueueAttributes());
}

aclError acltdtDestroyQueueAttr(const acltdtQueueAttr* attr) {
  return Destroy("acltdtDestroyQueueAttr", TheAttributes(), attr, "attr");
}

aclError acltdtSetQueueAttr(acltdtQueueAttr* attr, acltdtQueueAttrType type, size_t len, const void* param) {
  return Api("acltdtSetQueueAttr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(attr, "attr"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    return TheAttributes().With(attr, [&](tdt::QueueAttributes& found) -> Status {
      if (type == ACL_TDT_QUEUE_NAME_PTR) {
        const char* pointer = nullptr;
        REPRISE_RETURN_IF_ERROR(Read(len, param, &pointer));
        REPRISE_RETURN_IF_ERROR(NotNull(pointer, "*param"));
        REPRISE_ASSIGN_OR_RETURN(found.name, tdt::ReadName(pointer, "*param"));
        return {};
      }
      if (type != ACL_TDT_QUEUE_DEPTH_UINT32) return NoSuchType(type, "0 (name) or 1 (depth)");
      uint32_t depth = 0;
      REPRISE_RETURN_IF_ERROR(Read(len, param, &depth));
      if (depth < 1 || depth > tdt::kMaxDepth) {
        return Error(kInvalidArgument, fmt::format("depth is {}, must be 1 to {}", depth, tdt::kMaxDepth))
            .Culprit("parameter param")
            .Hint("pass how many buffers the queue holds at most");
      }
      found.depth = depth;
      return {};
    });
  });
}

aclError acltdtGetQueueAttr(const acltdtQueueAttr* attr, acltdtQueueAttrType type, size_t len, size_t* paramRetSize,
                            void* param) {
  return Api("acltdtGetQueueAttr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(attr, "attr"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramRetSize, "paramRetSize"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    return TheAttributes().With(attr, [&](const tdt::QueueAttributes& found) -> Status {
      switch (type) {
        case ACL_TDT_QUEUE_NAME_PTR: return Write(found.name.c_str(), len, paramRetSize, param);
        case ACL_TDT_QUEUE_DEPTH_UINT32: return Write(found.depth, len, paramRetSize, param);
      }
      return NoSuchType(type, "0 (name) or 1 (depth)");
    });
  });
}

// ---- Queues ----

aclError acltdtCreateQueue(const acltdtQueueAttr* attr, uint32_t* qid) {
  return Api("acltdtCreateQueue", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(attr, "attr"));
    REPRISE_RETURN_IF_ERROR(NotNull(qid, "qid"));
    tdt::QueueAttributes attributes;
    REPRISE_RETURN_IF_ERROR(TheAttributes().With(attr, [&](const tdt::QueueAttributes& found) -> Status {
      attributes = found;
      return {};
    }));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Context* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(*qid, tdt::CreateQueue(attributes, context->device().id()));
    return {};
  });
}

aclError acltdtDestroyQueue(uint32_t qid) {
  return Api("acltdtDestroyQueue", [&]() -> Status { return tdt::DestroyQueue(qid); });
}

aclError acltdtEnqueue(uint32_t qid, acltdtBuf buf, int32_t timeout) {
  return Api("acltdtEnqueue", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::Enqueue(qid, buf, timeout);
  });
}

aclError acltdtDequeue(uint32_t qid, acltdtBuf* buf, int32_t timeout) {
  return Api("acltdtDequeue", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_ASSIGN_OR_RETURN(*buf, tdt::Dequeue(qid, timeout));
    return {};
  });
}

aclError acltdtEnqueueData(uint32_t qid, const void* data, size_t dataSize, const void* userData, size_t userDataSize,
                           int32_t timeout, uint32_t rsv) {
  return Api("acltdtEnqueueData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    if (dataSize == 0)
      return Error(kInvalidArgument, "dataSize is 0, must be at least 1")
          .Culprit("parameter dataSize")
          .Hint("pass the number of bytes of the data");
    REPRISE_RETURN_IF_ERROR(CheckUserData(userData, userDataSize));
    if (rsv != 0) {
      return Error(kInvalidArgument, fmt::format("rsv is {}, must be 0: it is reserved", rsv))
          .Culprit("parameter rsv")
          .Hint("pass 0");
    }
    return tdt::EnqueueData(qid, data, dataSize, userData, userDataSize, timeout);
  });
}

aclError acltdtDequeueData(uint32_t qid, void* data, size_t dataSize, size_t* retDataSize, void* userData,
                           size_t userDataSize, int32_t timeout) {
  return Api("acltdtDequeueData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    REPRISE_RETURN_IF_ERROR(NotNull(retDataSize, "retDataSize"));
    if (dataSize == 0)
      return Error(kInvalidArgument, "dataSize is 0, must be at least 1")
          .Culprit("parameter dataSize")
          .Hint("pass the number of bytes of the data");
    REPRISE_RETURN_IF_ERROR(CheckUserData(userData, userDataSize));
    REPRISE_ASSIGN_OR_RETURN(*retDataSize, tdt::DequeueData(qid, data, dataSize, userData, userDataSize, timeout));
    return {};
  });
}

aclError acltdtGrantQueue(uint32_t qid, int32_t pid, uint32_t permission, int32_t timeout) {
  return Api("acltdtGrantQueue", [&]() -> Status { return tdt::GrantQueue(qid, pid, permission, timeout); });
}

aclError acltdtAttachQueue(uint32_t qid, int32_t timeout, uint32_t* permission) {
  return Api("acltdtAttachQueue", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(permission, "permission"));
    REPRISE_ASSIGN_OR_RETURN(*permission, tdt::AttachQueue(qid, timeout));
    return {};
  });
}

// ---- Routes ----

acltdtQueueRoute* acltdtCreateQueueRoute(uint32_t srcId, uint32_t dstId) {
  return Make<acltdtQueueRoute>("acltdtCreateQueueRoute", TheRoutes(),
                                tdt::Route{srcId, dstId, tdt::RouteState::kUnbound});
}

aclError acltdtDestroyQueueRoute(const acltdtQueueRoute* route) {
  return Destroy("acltdtDestroyQueueRoute", TheRoutes(), route, "route");
}

aclError acltdtGetQueueRouteParam(const acltdtQueueRoute* route, acltdtQueueRouteParamType type, size_t len,
                                  size_t* paramRetSize, void* param) {
  return Api("acltdtGetQueueRouteParam", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(route, "route"));
    REPRISE_RETURN_IF_ERROR(NotNull(paramRetSize, "paramRetSize"));
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    return TheRoutes().With(route, [&](const tdt::Route& found) -> Status {
      switch (type) {
        case ACL_TDT_QUEUE_ROUTE_SRC_UINT32: return Write(found.source, len, paramRetSize, param);
        case ACL_TDT_QUEUE_ROUTE_DST_UINT32: return Write(found.destination, len, paramRetSize, param);
        case ACL_TDT_QUEUE_ROUTE_STATUS_INT32:
          return Write(static_cast<int32_t>(found.state), len, paramRetSize, param);
      }
      return NoSuchType(type, "0 (source), 1 (destination) or 2 (status)");
    });
  });
}

acltdtQueueRouteList* acltdtCreateQueueRouteList(void) {
  return Make<acltdtQueueRouteList>("acltdtCreateQueueRouteList", TheLists(), std::vector<tdt::Route>());
}

aclError acltdtDestroyQueueRouteList(const acltdtQueueRouteList* routeList) {
  return Destroy("acltdtDestroyQueueRouteList", TheLists(), routeList, "routeList");
}

aclError acltdtAddQueueRoute(acltdtQueueRouteList* routeList, const acltdtQueueRoute* route) {
  return Api("acltdtAddQueueRoute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(routeList, "routeList"));
    REPRISE_RETURN_IF_ERROR(NotNull(route, "route"));
    tdt::Route copy;
    REPRISE_RETURN_IF_ERROR(TheRoutes().With(route, [&](const tdt::Route& found) -> Status {
      copy = found;
      return {};
    }));
    return TheLists().With(routeList, [&](std::vector<tdt::Route>& list) -> Status {
      list.push_back(copy);
      return {};
    });
  });
}

aclError acltdtGetQueueRoute(const acltdtQueueRouteList* routeList, size_t index, acltdtQueueRoute* route) {
  return Api("acltdtGetQueueRoute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(routeList, "routeList"));
    REPRISE_RETURN_IF_ERROR(NotNull(route, "route"));
    tdt::Route copy;
    REPRISE_RETURN_IF_ERROR(TheLists().With(routeList, [&](const std::vector<tdt::Route>& list) -> Status {
      if (index >= list.size()) {
        return Error(kInvalidArgument, fmt::format("index is {}, the list has {} routes", index, list.size()))
            .Culprit("parameter index")
            .Hint("pass an index below what acltdtGetQueueRouteNum returns");
      }
      copy = list[index];
      return {};
    }));
    return TheRoutes().With(route, [&](tdt::Route& found) -> Status {
      found = copy;
      return {};
    });
  });
}

size_t acltdtGetQueueRouteNum(const acltdtQueueRouteList* routeList) {
  std::vector<tdt::Route> routes;
  Api("acltdtGetQueueRouteNum", [&]() -> Status { return CopyList(routeList, "routeList", &routes); });
  return routes.size();
}

aclError acltdtBindQueueRoutes(acltdtQueueRouteList* qRouteList) {
  return Api("acltdtBindQueueRoutes", [&]() -> Status {
    std::vector<tdt::Route> routes;
    REPRISE_RETURN_IF_ERROR(CopyList(qRouteList, "qRouteList", &routes));
    REPRISE_RETURN_IF_ERROR(tdt::BindRoutes(routes));
    return SetStates(qRouteList, tdt::RouteState::kBound);
  });
}

aclError acltdtUnbindQueueRoutes(acltdtQueueRouteList* qRouteList) {
  return Api("acltdtUnbindQueueRoutes", [&]() -> Status {
    std::vector<tdt::Route> routes;
    REPRISE_RETURN_IF_ERROR(CopyList(qRouteList, "qRouteList", &routes));
    REPRISE_RETURN_IF_ERROR(tdt::UnbindRoutes(routes));
    return SetStates(qRouteList, tdt::RouteState::kUnbound);
  });
}

aclError acltdtQueryQueueRoutes(const acltdtQueueRouteQueryInfo* queryInfo, acltdtQueueRouteList* qRouteList) {
  return Api("acltdtQueryQueueRoutes", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(queryInfo, "queryInfo"));
    REPRISE_RETURN_IF_ERROR(NotNull(qRouteList, "qRouteList"));
    tdt::RouteQuery query;
    REPRISE_RETURN_IF_ERROR(TheQueries().With(queryInfo, [&](const tdt::RouteQuery& found) -> Status {
      query = found;
      return {};
    }));
    REPRISE_ASSIGN_OR_RETURN(std::vector<tdt::Route> found, tdt::FindRoutes(query));
    return TheLists().With(qRouteList, [&](std::vector<tdt::Route>& list) -> Status {
      list.swap(found);
      return {};
    });
  });
}

// ---- Queries ----

acltdtQueueRouteQueryInfo* acltdtCreateQueueRouteQueryInfo(void) {
  return Make<acltdtQueueRouteQueryInfo>("acltdtCreateQueueRouteQueryInfo", TheQueries(), tdt::RouteQuery());
}

aclError acltdtDestroyQueueRouteQueryInfo(const acltdtQueueRouteQueryInfo* info) {
  return Destroy("acltdtDestroyQueueRouteQueryInfo", TheQueries(), info, "info");
}

aclError acltdtSetQueueRouteQueryInfo(acltdtQueueRouteQueryInfo* param, acltdtQueueRouteQueryInfoParamType type,
                                      size_t len, const void* value) {
  return Api("acltdtSetQueueRouteQueryInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(param, "param"));
    REPRISE_RETURN_IF_ERROR(NotNull(value, "value"));
    return TheQueries().With(param, [&](tdt::RouteQuery& query) -> Status {
      if (type == ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM) {
        int mode = 0;
        REPRISE_RETURN_IF_ERROR(Read(len, value, &mode));
        if ((mode < ACL_TDT_QUEUE_ROUTE_QUERY_SRC || mode > ACL_TDT_QUEUE_ROUTE_QUERY_SRC_AND_DST) &&
            mode != ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL) {
          return Error(kInvalidArgument, fmt::format("the mode is {}, must be 0 to 2 or 100", mode))
              .Culprit("parameter value")
              .Hint("pass an ACL_TDT_QUEUE_ROUTE_QUERY_* enumerator");
        }
        query.mode = mode;
        return {};
      }
      const bool source = type == ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32;
      if (!source && type != ACL_TDT_QUEUE_ROUTE_QUERY_DST_ID_UINT32) {
        return NoSuchType(type, "0 (mode), 1 (source) or 2 (destination)");
      }
      uint32_t id = 0;
      REPRISE_RETURN_IF_ERROR(Read(len, value, &id));
      (source ? query.source : query.destination) = id;
      return {};
    });
  });
}
