// SPDX-License-Identifier: Apache-2.0
#include <ATen/CachedTensorUtils.h>
#include <reprise/memory.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bind/bindings.h"
#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/device_allocator.h"
#include "memory/history.h"
#include "memory/host_allocator.h"
#include "memory/pluggable.h"

namespace torch_npu {
namespace {

namespace py = pybind11;
namespace device_memory = reprise::device_memory;
namespace host_memory = reprise::host_memory;

using torch_npu::Name;  // beside the one here
using Id = std::pair<uint64_t, uint64_t>;
using Stats = std::vector<std::pair<std::string, int64_t>>;

reprise::PoolId PoolOf(const Id& id) {
  TORCH_CHECK_VALUE(id.first == 0 || id.second == 0, "(", id.first, ", ", id.second,
                    ") names no pool: at most one half of an id is not zero");
  return {id.first, id.second};
}

template <class Function>
void Def(py::module_& module, const char* name, Function&& function) {
  module.def(name, torch::wrap_pybind_function(std::forward<Function>(function)));
}

// ---- What there is ----

py::dict ToDict(const Stats& stats) {
  py::dict dict;
  for (const auto& [name, value] : stats) dict[py::str(name)] = value;
  return dict;
}

const char* Name(reprise::BlockState state) {
  switch (state) {
    case reprise::BlockState::kActiveAllocated: return "active_allocated";
    case reprise::BlockState::kActivePendingFree: return "active_pending_free";
    case reprise::BlockState::kInactive: return "inactive";
  }
  return "";
}

// A snapshot in the form of torch.cuda.memory._snapshot.
class SnapshotDict {
 public:
  explicit SnapshotDict(HistoryMode mode) : mode_(mode) {}

  py::dict Make(const reprise::MemorySnapshot& snapshot) {
    py::list segments;
    size_t devices = std::max<size_t>(snapshot.device_traces.size(), static_cast<size_t>(DeviceCount()));
    for (const reprise::SegmentInfo& segment : snapshot.segments) segments.append(Segment(segment));
    py::list traces;
    for (size_t i = 0; i < devices; ++i) {
      py::list trace;
      if (mode_.keeps_trace && i < snapshot.device_traces.size()) {
        for (const reprise::TraceEntry& entry : snapshot.device_traces[i]) trace.append(Entry(entry));
      }
      traces.append(trace);
    }
    py::dict settings;
    for (const auto& [key, value] : snapshot.settings) settings[py::str(key)] = value;
    py::dict dict;
    dict["segments"] = segments;
    dict["device_traces"] = traces;
    dict["allocator_settings"] = settings;
    dict["external_annotations"] = py::list();
    return dict;
  }

 private:
  py::dict Segment(const reprise::SegmentInfo& segment) {
    py::dict dict;
    dict["device"] = segment.device;
    dict["address"] = segment.address;
    dict["total_size"] = segment.total_size;
    dict["allocated_size"] = segment.allocated_size;
    dict["active_size"] = segment.active_size;
    dict["requested_size"] = segment.requested_size;
    dict["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
    dict["segment_pool_id"] = py::make_tuple(segment.pool.capture, segment.pool.handle);
    dict["segment_type"] = segment.is_large ? "large" : "small";
    dict["is_expandable"] = segment.is_expandable;
    dict["frames"] = Frames(segment.context);
    py::list blocks;
    for (const reprise::BlockInfo& block : segment.blocks) {
      py::dict entry;
      entry["address"] = block.address;
      entry["size"] = block.size;
      entry["requested_size"] = block.requested_size;
      entry["state"] = Name(block.state);
      entry["frames"] = Frames(block.context);
      entry["user_metadata"] = MetadataOf(block.context.get());
      blocks.append(entry);
    }
    dict["blocks"] = blocks;
    return dict;
  }

  py::dict Entry(const reprise::TraceEntry& entry) {
    py::dict dict;
    dict["action"] = Name(entry.action);
    dict[entry.action == reprise::TraceAction::kOom ? "device_free" : "addr"] = entry.address;
    dict["size"] = entry.size;
    dict["stream"] = reinterpret_cast<uintptr_t>(entry.stream);
    dict["pool_id"] = py::make_tuple(entry.pool.capture, entry.pool.handle);
    const bool is_free =
        entry.action == reprise::TraceAction::kFreeRequested || entry.action == reprise::TraceAction::kFreeCompleted ||
        entry.action == reprise::TraceAction::kSegmentFree || entry.action == reprise::TraceAction::kSegmentUnmap;
    const bool shows = mode_.context == HistoryContext::kAll || (mode_.context == HistoryContext::kAlloc && !is_free);
    dict["frames"] = Frames(shows ? entry.context : nullptr);
    dict["user_metadata"] = MetadataOf(entry.context.get());
    dict["time_us"] = entry.time_us;
    return dict;
  }

  // Most come from few places: each is made once.
  py::object Frames(const reprise::TraceContextPtr& context) {
    if (context == nullptr) return py::list();
    py::object& made = frames_[context.get()];
    if (!made) {
      py::list frames;
      for (const reprise::Frame& frame : context->Frames()) {
        py::dict dict;
        dict["filename"] = frame.filename;
        dict["line"] = frame.line;
        dict["name"] = frame.name;
        frames.append(dict);
      }
      made = frames;
    }
    return made;
  }

  const HistoryMode mode_;
  std::unordered_map<const reprise::TraceContext*, py::object> frames_;
};

void AttachOomObserver(py::object observer) {
  TORCH_CHECK_TYPE(PyCallable_Check(observer.ptr()) != 0, "an observer of memory shortage must be callable, not ",
                   Py_TYPE(observer.ptr())->tp_name);
  // Never given back: allocations fail until the very end.
  PyObject* const function = observer.release().ptr();
  Guarded([&] {
    device_memory::AddOomObserver([function](int device, uint64_t bytes, uint64_t total, uint64_t free) {
      if (!CanTakeGil()) return;
      const py::gil_scoped_acquire gil;
      PyObject* const result =
          PyObject_CallFunction(function, "iKKK", device, static_cast<unsigned long long>(bytes),
                                static_cast<unsigned long long>(total), static_cast<unsigned long long>(free));
      if (result == nullptr) PyErr_WriteUnraisable(function);
      Py_XDECREF(result);
    });
  });
}

// ---- Pools ----

// Gives its memory back without the GIL, because that may wait for the device.
class NPUMemPool {
 public:
  NPUMemPool(std::shared_ptr<const PluggableAllocator> allocator, bool use_on_oom, bool no_split)
      : allocator_(std::move(allocator)) {
    RefusePluggable("a pool");
    LazyInit();
    EnsureContext();
    reprise::MemPool::Options options;
    options.use_on_oom = use_on_oom;
    options.no_split = no_split;
    if (allocator_ != nullptr) {
      options.allocate = [a = allocator_](uint64_t bytes, int device, void* stream) {
        return a->allocate(static_cast<ssize_t>(bytes), device, stream);
      };
      options.free = [a = allocator_](void* segment, uint64_t bytes, int device, void* stream) {
        if (IsAlive()) a->free(segment, static_cast<ssize_t>(bytes), device, stream);
      };
    }
    pool_ = Guarded([&] { return std::make_unique<reprise::MemPool>(CurrentDevice(), std::move(options)); });
  }
  ~NPUMemPool() {
    const ReleaseGil no_gil;
    if (!IsAlive()) (void)pool_.release();  // the runtime has ended, or is that of the parent process
    pool_.reset();
  }
  NPUMemPool(const NPUMemPool&) = delete;
  NPUMemPool& operator=(const NPUMemPool&) = delete;

  const reprise::MemPool& core() const { return *pool_; }
  const std::shared_ptr<const PluggableAllocator>& allocator() const { return allocator_; }

 private:
  std::shared_ptr<const PluggableAllocator> allocator_;
  std::unique_ptr<reprise::MemPool> pool_;
};

void BeginPool(int device, const Id& id, reprise::StreamFilter filter) {
  RefusePluggable("a pool");
  Guarded([&] { device_memory::BeginPool(device, PoolOf(id), std::move(filter)); });
}

void BindPools(py::module_& module) {
  py::class_<NPUMemPool, std::shared_ptr<NPUMemPool>>(module, "_MemPool")
      .def(py::init(torch::wrap_pybind_function(
               [](std::shared_ptr<PluggableAllocator> allocator, bool use_on_oom, bool no_split) {
                 return std::make_shared<NPUMemPool>(std::move(allocator), use_on_oom, no_split);
               })),
           py::arg("allocator") = nullptr, py::arg("use_on_oom") = false, py::arg("no_split") = false)
      .def_property_readonly(
          "id", [](const NPUMemPool& pool) { return Id(pool.core().id().capture, pool.core().id().handle); })
      .def_property_readonly("device", [](const NPUMemPool& pool) { return pool.core().device(); })
      .def_property_readonly(
          "allocator",
          [](const NPUMemPool& pool) { return std::const_pointer_cast<PluggableAllocator>(pool.allocator()); })
      .def("use_count", torch::wrap_pybind_function(
                            [](const NPUMemPool& pool) { return Guarded([&] { return pool.core().use_count(); }); }));

  Def(module, "_npu_beginAllocateCurrentThreadToPool", [](int device, const Id& id) {
    BeginPool(device, id,
              [thread = std::this_thread::get_id()](void*) { return std::this_thread::get_id() == thread; });
  });
  Def(module, "_npu_beginAllocateCurrentStreamToPool", [](int device, const Id& id) {
    BeginPool(device, id, [mine = CurrentStream(static_cast<c10::DeviceIndex>(device)).handle()](void* stream) {
      return stream == mine;
    });
  });
  Def(module, "_npu_beginAllocateToPool",
      [](int device, const Id& id) { BeginPool(device, id, [](void*) { return true; }); });
  Def(module, "_npu_endAllocateToPool",
      [](int device, const Id& id) { Guarded([&] { device_memory::EndPool(device, PoolOf(id)); }); });
  Def(module, "_npu_releasePool",
      [](int device, const Id& id) { Guarded([&] { device_memory::ReleasePool(device, PoolOf(id)); }); });
  Def(module, "_npu_checkPoolLiveAllocations", [](int device, const Id& id, const std::vector<uint64_t>& expected) {
    std::vector<uint64_t> sorted = expected;
    std::sort(sorted.begin(), sorted.end());
    const std::vector<void*> live = Guarded([&] { return device_memory::LiveBlocks(device, PoolOf(id)); });
    return std::equal(sorted.begin(), sorted.end(), live.begin(), live.end(),
                      [](uint64_t a, const void* b) { return a == reinterpret_cast<uintptr_t>(b); });
  });
}

// ---- Pools set back ----

c10::StorageImpl& StorageAt(uint64_t address) {
  TORCH_CHECK_VALUE(address != 0, "the address of a storage is 0: pass tensor.untyped_storage()._cdata");
  return *reinterpret_cast<c10::StorageImpl*>(static_cast<uintptr_t>(address));
}

uint64_t BlockOf(const c10::StorageImpl& storage) { return reinterpret_cast<uintptr_t>(storage.data_ptr().get()); }

// Storages that are stale lose their memory; those that are live again own the blocks at their addresses. Blocks that
// nobody owns then are held until _npu_rawDelete, as graph trees expect it.
void SetPoolBack(int device, const reprise::PoolState& state, const std::vector<uint64_t>& stale,
                 const std::vector<uint64_t>& live) {
  TORCH_CHECK_VALUE(device == state.device, "the state is that of a pool of npu:", state.device,
                    ", not of npu:", device);
  std::vector<uint64_t> released;
  for (const uint64_t each : stale) {
    const c10::StorageImpl& storage = StorageAt(each);
    TORCH_CHECK(storage.data_ptr().get() == nullptr || IsOurs(storage.data_ptr()),
                "a stale storage does not own memory of the npu allocator");
    released.push_back(BlockOf(storage));
  }
  std::map<uint64_t, c10::StorageImpl*> owners;
  for (const uint64_t each : live) {
    c10::StorageImpl& storage = StorageAt(each);
    TORCH_CHECK(owners.emplace(BlockOf(storage), &storage).second, "two live storages have the same address, ",
                reinterpret_cast<const void*>(BlockOf(storage)), ": name each block once");
    if (IsOurs(storage.data_ptr())) released.push_back(BlockOf(storage));
  }
  std::map<uint64_t, bool> taken;
  for (const reprise::PoolState::Segment& segment : state.segments) {
    for (const reprise::PoolState::Block& block : segment.blocks) taken[block.address] = block.is_live;
  }
  for (const auto& [address, storage] : owners) {
    const auto found = taken.find(address);
    TORCH_CHECK(found != taken.end() && found->second, "no block was held at ", reinterpret_cast<const void*>(address),
                ", the address of a storage that is to be live again");
  }
  const reprise::PoolChange change = Guarded([&] { return device_memory::SetPoolState(state, released); });
  for (const uint64_t each : stale) {
    c10::DataPtr& data = StorageAt(each)._mutable_data_ptr_no_checks();
    if (!IsOurs(data)) continue;
    data.release_context();
    (void)data.compare_exchange_deleter(&FreeBlock, &c10::detail::deleteNothing);
  }
  for (const uint64_t address : change.taken) {
    void* const block = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
    const auto owner = owners.find(address);
    if (owner == owners.end()) continue;
    c10::StorageImpl& storage = *owner->second;
    if (IsOurs(storage.data_ptr())) (void)storage._mutable_data_ptr_no_checks().release_context();
    storage.set_data_ptr_noswap(c10::DataPtr(block, block, &FreeBlock, storage.device()));
  }
}

void BindCheckpoints(py::module_& module) {
  py::class_<reprise::PoolState, std::shared_ptr<reprise::PoolState>>(module, "_npu_PoolState")
      .def_property_readonly("device", [](const reprise::PoolState& state) { return state.device; })
      .def_property_readonly("pool",
                             [](const reprise::PoolState& state) { return Id(state.pool.capture, state.pool.handle); })
      .def_property_readonly("segments", [](const reprise::PoolState& state) {
        py::list segments;
        for (const reprise::PoolState::Segment& segment : state.segments) {
          py::list blocks;
          for (const reprise::PoolState::Block& block : segment.blocks) {
            py::dict entry;
            entry["ptr"] = block.address;
            entry["size"] = block.size;
            entry["requested_size"] = block.requested;
            entry["allocated"] = block.is_live;
            blocks.append(entry);
          }
          segments.append(blocks);
        }
        return segments;
      });
  Def(module, "_npu_getCheckpointState", [](int device, const Id& id) {
    RefusePluggable("the state of a pool");
    return std::make_shared<reprise::PoolState>(
        Guarded([&] { return device_memory::GetPoolState(device, PoolOf(id)); }));
  });
  Def(module, "_npu_setCheckpointPoolState",
      [](int device, const reprise::PoolState& state, const std::vector<uint64_t>& stale_storages,
         const std::vector<uint64_t>& storages_to_add_deleters_to) {
        SetPoolBack(device, state, stale_storages, storages_to_add_deleters_to);
      });
}

void BindAllocators(py::module_& module) {
  py::class_<PluggableAllocator, std::shared_ptr<PluggableAllocator>>(module, "_npu_NPUAllocator");
  Def(module, "_npu_customAllocator", [](uint64_t allocate, uint64_t free) {
    TORCH_CHECK_VALUE(allocate != 0 && free != 0, "a pluggable allocator consists of two functions, and one is null");
    auto made = std::make_shared<PluggableAllocator>();
    made->allocate = reinterpret_cast<PluggableAllocator::Allocate>(static_cast<uintptr_t>(allocate));
    made->free = reinterpret_cast<PluggableAllocator::Free>(static_cast<uintptr_t>(free));
    return made;
  });
  Def(module, "_npu_changeCurrentAllocator",
      [](std::shared_ptr<PluggableAllocator> allocator) { ChangeCurrentAllocator(std::move(allocator)); });
  Def(module, "_npu_getAllocator", [] { return std::const_pointer_cast<PluggableAllocator>(CurrentAllocator()); });
  Def(module, "_npu_getAllocatorBackend", [] { return HasPluggableAllocator() ? "pluggable" : "native"; });
}

// ---- Storages and tensors of others ----

at::Tensor TensorOver(c10::Storage storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

c10::Storage BorrowingStorage(void* data, size_t bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            c10::DataPtr(data, device), nullptr, false));
}

at::Tensor WeakRef(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().type() == c10::kPrivateUse1, "_weak_ref_tensor takes tensors of npu devices, not of ",
              tensor.device());
  const c10::Storage& storage = tensor.storage();
  return TensorOver(BorrowingStorage(storage.mutable_data(), storage.nbytes(), tensor.device()), tensor.scalar_type(),
                    tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

void BindStorages(py::module_& module) {
  Def(module, "_weak_ref_tensor", [](const at::Tensor& tensor) { return WeakRef(tensor); });
  Def(module, "_construct_storage_from_data_pointer", [](uint64_t address, const c10::Device& device, size_t bytes) {
    void* const data = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
    return py::reinterpret_steal<py::object>(THPStorage_Wrap(BorrowingStorage(data, bytes, device)));
  });
  Def(module, "_construct_NPU_Tensor_From_Storage_And_Metadata",
      [](const py::dict& metadata, const c10::Storage& storage) {
        const py::object dtype = metadata["dtype"];
        return TensorOver(storage, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type,
                          metadata["size"].cast<std::vector<int64_t>>(),
                          metadata["stride"].cast<std::vector<int64_t>>(), metadata["storage_offset"].cast<int64_t>());
      });
  Def(module, "_has_Standard_Deleter", [](uint64_t storage) { return IsOurs(StorageAt(storage).data_ptr()); });
  Def(module, "_free_And_Remove_DeleterFn", [](uint64_t storage) {
    c10::DataPtr& data = StorageAt(storage)._mutable_data_ptr_no_checks();
    TORCH_CHECK(IsOurs(data), "the storage does not own memory of the npu allocator");
    FreeBlock(data.get_context());
    data.release_context();
    TORCH_CHECK(data.compare_exchange_deleter(&FreeBlock, &c10::detail::deleteNothing));
  });
  Def(module, "_npu_setStorageError", [](uint64_t storage, std::string message) {
    StorageAt(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
  });
  Def(module, "_npu_clearStorageError",
      [](uint64_t storage) { StorageAt(storage).clear_data_ptr_access_error_msg_(); });
  Def(module, "_set_cached_tensors_enabled", [](bool enabled) { at::caching::set_cached_tensors_enabled(enabled); });
  Def(module, "_add_cached_tensor", [](const at::Tensor& tensor) { at::caching::add_cached_tensor(tensor); });
  Def(module, "_remove_cached_tensor", [](const at::Tensor& tensor) { at::caching::remove_cached_tensor(tensor); });
  Def(module, "_tensors_data_ptrs_at_indices_equal",
      [](const py::list& tensors, const py::list& addresses, const py::list& indices) {
        for (const py::handle each : indices) {
          const auto index = each.cast<size_t>();
          if (tensors[index].cast<at::Tensor>().data_ptr() !=
              reinterpret_cast<void*>(addresses[index].cast<uintptr_t>())) {
            return false;
          }
        }
        return true;
      });
  Def(module, "_npu_eraseStream", [](const at::Tensor& tensor, const c10::Stream& stream) {
    const c10::DataPtr& data = tensor.storage().data_ptr();
    if (!IsOurs(data) || HasPluggableAllocator()) return;
    Guarded([&] { device_memory::EraseStream(data.get_context(), NPUStream(stream).handle()); });
  });
}

}  // namespace

void BindMemory(py::module_& module) {
  Def(module, "_npu_emptyCache", [] { DeviceMemory().emptyCache(); });
  Def(module, "_npu_hostEmptyCache", [] { HostMemory().empty_cache(); });
  Def(module, "_npu_memoryStats", [](int device) {
    RefusePluggable("statistics of device memory");
    return ToDict(Guarded([&] { return device_memory::Stats(device).Flatten(); }));
  });
  Def(module, "_npu_resetPeakMemoryStats",
      [](int device) { DeviceMemory().resetPeakStats(static_cast<c10::DeviceIndex>(device)); });
  Def(module, "_npu_resetAccumulatedMemoryStats",
      [](int device) { DeviceMemory().resetAccumulatedStats(static_cast<c10::DeviceIndex>(device)); });
  Def(module, "_npu_hostMemoryStats", [] { return ToDict(Guarded([] { return host_memory::Stats().Flatten(); })); });
  Def(module, "_npu_resetPeakHostMemoryStats", [] { HostMemory().reset_peak_stats(); });
  Def(module, "_npu_resetAccumulatedHostMemoryStats", [] { HostMemory().reset_accumulated_stats(); });
  Def(module, "_npu_setMemoryFraction", [](double fraction, int device) {
    RefusePluggable("a limit of device memory");
    Guarded([&] { device_memory::SetFraction(device, fraction); });
  });
  Def(module, "_npu_getMemoryFraction",
      [](int device) { return Guarded([&] { return device_memory::Fraction(device); }); });
  Def(module, "_npu_setMemorySettings",
      [](const std::string& settings) { Guarded([&] { reprise::ChangeMemorySettings(settings); }); });
  Def(module, "_npu_memorySettings", [] { return Guarded([] { return reprise::MemorySettings(); }); });

  // Of a stream, or of one by its raw handle.
  Def(module, "_npu_rawAlloc", [](size_t bytes, const c10::Stream& stream) {
    return reinterpret_cast<uintptr_t>(AllocateOn(NPUStream(stream), bytes));
  });
  Def(module, "_npu_rawAllocByHandle", [](size_t bytes, uint64_t stream) {
    RefusePluggable("memory by the raw handle of a stream");
    return reinterpret_cast<uintptr_t>(Guarded(
        [&] { return device_memory::Allocate(bytes, reinterpret_cast<void*>(static_cast<uintptr_t>(stream))); }));
  });
  Def(module, "_npu_rawDelete", [](uint64_t block) {
    void* const address = reinterpret_cast<void*>(static_cast<uintptr_t>(block));
    if (!HasPluggableAllocator() || !PluggableFree(address)) Guarded([&] { device_memory::Free(address); });
  });

  Def(module, "_npu_memorySnapshot", [](const Id& pool) {
    RefusePluggable("a snapshot");
    const reprise::MemorySnapshot snapshot = Guarded([&] { return device_memory::Snapshot(PoolOf(pool)); });
    return SnapshotDict(CurrentHistoryMode()).Make(snapshot);
  });
  Def(module, "_npu_recordMemoryHistory",
      [](const std::optional<std::string>& enabled, const std::optional<std::string>& context, uint64_t entries,
         const std::vector<std::string>& skip_actions) { RecordHistory(enabled, context, entries, skip_actions); });
  Def(module, "_npu_setMemoryMetadata", [](std::string metadata) { SetMemoryMetadata(std::move(metadata)); });
  Def(module, "_npu_getMemoryMetadata", [] { return MemoryMetadata(); });
  Def(module, "_npu_dumpSnapshot", [](const std::string& path) {
    const ReleaseGil no_gil;
    Guarded([&] { device_memory::DumpSnapshot(path); });
  });
  Def(module, "_npu_attach_out_of_memory_observer",
      [](py::object observer) { AttachOomObserver(std::move(observer)); });

  BindPools(module);
  BindAllocators(module);
  BindCheckpoints(module);
  BindStorages(module);
}

}  // namespace torch_npu
