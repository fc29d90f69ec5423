// SPDX-License-Identifier: Apache-2.0
//
// Which memory has been written since somebody looked, by whatever means and through whatever call. The kernel notes it
// page by page: asynchronous write protection of userfaultfd and PAGEMAP_SCAN, Linux 6.7. A look costs a walk over the
// page table, a quarter of a microsecond for each MiB, or less where pages are large; the first write to a page after a
// look costs a fault.
//
// Only private memory without a file can be watched: what several processes or several addresses share is written
// without a trace here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace reprise::device {

struct WatchedRange {
  const void* data = nullptr;
  uint64_t bytes = 0;
};

/// Some ranges that are looked at together. Ranges may share pages, also with those of other watches: what one look
/// sees is counted for all of them. Any thread may look.
class WriteWatch {
 public:
  /// The kernel can do it. False in a child of fork, and with REPRISE_WRITE_WATCH=0.
  static bool IsPossible();
  /// Nothing if one of the ranges cannot be watched. All ranges count as written once.
  static std::unique_ptr<WriteWatch> Of(std::span<const WatchedRange> ranges);

  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  /// Counts the writes until now. Those that run meanwhile are counted now or by the next look.
  void Look();
  /// Grows when a look finds that a page of the range has been written; never 0. A write of the same value, or to other
  /// bytes of the page, counts, too. Memory that can no longer be watched counts as written in every look.
  uint64_t writes(size_t range) const;
  size_t size() const;

 private:
  class Ranges;
  explicit WriteWatch(std::unique_ptr<Ranges> ranges);
  const std::unique_ptr<Ranges> ranges_;
};

}  // namespace reprise::device
