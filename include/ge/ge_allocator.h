/* SPDX-License-Identifier: Apache-2.0 */
/* Allocators of the program, which Session::RegisterExternalAllocator takes. */
#ifndef REPRISE_GE_GE_ALLOCATOR_H_
#define REPRISE_GE_GE_ALLOCATOR_H_

#include <cstddef>
#include <memory>

namespace ge {

class Allocator;

/* Memory with a count of its users, 1 at first; the last one gives it back to its allocator. */
class MemBlock {
 public:
  MemBlock(Allocator& allocator, void* addr, size_t block_size)
      : allocator_(&allocator), addr_(addr), count_(1), size_(block_size) {}
  virtual ~MemBlock() = default;
  MemBlock(const MemBlock&) = delete;
  MemBlock& operator=(const MemBlock&) = delete;

  const void* GetAddr() const { return addr_; }
  void* GetAddr() { return addr_; }
  size_t GetSize() const { return size_; }
  void SetSize(size_t mem_size) { size_ = mem_size; }
  size_t AddCount() { return ++count_; }
  size_t SubCount() { return count_ > 0 ? --count_ : 0; }
  size_t GetCount() const { return count_; }
  /* One user less. */
  void Free();

 private:
  Allocator* allocator_;
  void* addr_;
  size_t count_;
  size_t size_;
};

/* Serves one stream. Memory that is given back may be used again by work that comes later on the stream. */
class Allocator {
 public:
  Allocator() = default;
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /* Null when there is none. */
  virtual MemBlock* Malloc(size_t size) = 0;
  virtual void Free(MemBlock* block) = 0;
  /* `addr`: where the caller would like it. */
  virtual MemBlock* MallocAdvise(size_t size, void* addr) {
    (void)addr;
    return Malloc(size);
  }
};

inline void MemBlock::Free() {
  if (count_ > 0 && SubCount() == 0) allocator_->Free(this);
}

using AllocatorPtr = std::shared_ptr<Allocator>;

}  // namespace ge

#endif  // REPRISE_GE_GE_ALLOCATOR_H_
