// SPDX-License-Identifier: Apache-2.0
//
// Contexts: owners of streams and models; one of them is current on each thread.
#include "runtime/context.h"
#include "acl/acl.h"
#include "check.h"
#include "runtime/device.h"
#include "runtime/objects.h"
#include "state_callbacks.h"

namespace reprise::facade {
namespace {

using runtime::Context;

StatusOr<Context*> FindContext(aclrtContext handle) {
  return runtime::FindObject(runtime::Contexts(), handle, "context");
}

Status CheckOption(aclSysParamOpt opt) {
  return InRange(opt, ACL_OPT_DETERMINISTIC, ACL_OPT_ENABLE_KERNEL_EARLY_START, "opt");
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return runtime::Api("aclrtCreateContext", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(context, "context"));
    REPRISE_RETURN_IF_ERROR(CheckInitialized("aclrtCreateContext"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Device * device, runtime::FindDevice(deviceId));
    REPRISE_ASSIGN_OR_RETURN(Context * made, Context::Create(*device, false));
    runtime::SetCurrentContext(made);
    AnnounceContext(*made);
    *context = made->handle();
    return {};
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return runtime::Api("aclrtDestroyContext", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(context, "context"));
    REPRISE_ASSIGN_OR_RETURN(Context * found, FindContext(context));
    if (found->is_primary()) {
      return Error(kInvalidValue, fmt::format("context {} is the default context of device {}", fmt::ptr(context),
                                              found->device().id()))
          .Culprit("aclrtSetDevice, which made it")
          .Hint("release it with aclrtResetDevice");
    }
    REPRISE_RETURN_IF_ERROR(found->CheckNotInside("destroys the context, which waits for that stream"));
    if (Context::Destroy(found)) return {};
    return Error(kInvalidHandle, fmt::format("context {} is being destroyed by another thread", fmt::ptr(context)))
        .Culprit("another call of aclrtDestroyContext")
        .Hint("destroy a context once");
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return runtime::Api("aclrtSetCurrentContext", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(context, "context"));
    REPRISE_RETURN_IF_ERROR(CheckInitialized("aclrtSetCurrentContext"));
    REPRISE_ASSIGN_OR_RETURN(Context * found, FindContext(context));
    runtime::SetCurrentContext(found);
    return {};
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return runtime::Api("aclrtGetCurrentContext", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(context, "context"));
    *context = nullptr;
    REPRISE_ASSIGN_OR_RETURN(const Context* current, runtime::CurrentContext());
    *context = current->handle();
    return {};
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return runtime::Api("aclrtCtxSetSysParamOpt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    std::lock_guard lock(context->options_mutex);
    context->options[opt] = value;
    return {};
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return runtime::Api("aclrtCtxGetSysParamOpt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    std::lock_guard lock(context->options_mutex);
    const auto found = context->options.find(opt);
    if (found == context->options.end()) {
      return Error(kOptionNotSet,
                   fmt::format("option {} was never set in context {}", static_cast<int>(opt), context->handle()))
          .Culprit(fmt::format("context {} of device {}", context->handle(), context->device().id()))
          .Hint("set it with aclrtCtxSetSysParamOpt first, or read the process-wide one with aclrtGetSysParamOpt");
    }
    *value = found->second;
    return {};
  });
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t* flags, int32_t* active) {
  return runtime::Api("aclrtGetPrimaryCtxState", [&]() -> Status {
    (void)flags;  // reserved, and ignored
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(active, "active"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Device* device, runtime::FindDevice(deviceId));
    *active = device->primary_active() ? 1 : 0;
    return {};
  });
}
