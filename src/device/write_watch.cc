// SPDX-License-Identifier: Apache-2.0
#include "device/write_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/env.h"
#include "base/mutex.h"

namespace reprise::device {

struct PageSpan {
  uint64_t begin, end;  // whole pages
};

namespace {

// What the kernel knows and the headers of Debian 12 do not: linux/userfaultfd.h and linux/fs.h of Linux 6.7.
constexpr uint64_t kFeatureUnpopulated = uint64_t{1} << 13;
constexpr uint64_t kFeatureAsync = uint64_t{1} << 15;
constexpr uint64_t kUserModeOnly = 1;
constexpr uint64_t kIsWritten = uint64_t{1} << 1;     // PAGE_IS_WRITTEN
constexpr uint64_t kProtectFound = uint64_t{1} << 0;  // PM_SCAN_WP_MATCHING
constexpr uint64_t kOnlyWatched = uint64_t{1} << 1;   // PM_SCAN_CHECK_WPASYNC
struct PageRegion {
  uint64_t begin, end, categories;
};
struct ScanArguments {
  uint64_t size, flags, begin, end, walked_to, regions, region_count, most_pages;
  uint64_t inverted, all_of, any_of, told;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanArguments);  // PAGEMAP_SCAN

constexpr uint64_t kPage = 4096;
constexpr size_t kRegions = 128;

std::atomic<bool> g_is_child{false};  // the descriptors are those of the parent's memory

PageSpan PagesOf(const WatchedRange& range) {
  const auto begin = reinterpret_cast<uint64_t>(range.data);
  return {begin / kPage * kPage, (begin + range.bytes + kPage - 1) / kPage * kPage};
}

// The kernel's side.
class Kernel {
 public:
  static Kernel& Get() {
    static auto* const kernel = new Kernel;  // looks may come from static destructors
    return *kernel;
  }

  bool is_there() const { return faults_ >= 0 && pages_ >= 0; }

  bool Register(const PageSpan& span) const {
    if (!IsPrivate(span)) return false;
    uffdio_register request = {};
    request.range = {span.begin, span.end - span.begin};
    request.mode = UFFDIO_REGISTER_MODE_WP;
    return ioctl(faults_, UFFDIO_REGISTER, &request) == 0;
  }

  // Calls visit(begin, end) for what has been written since the scan before. False: not all of it is watched.
  template <class Visit>
  bool Scan(const PageSpan& span, const Visit& visit) const {
    PageRegion regions[kRegions];
    ScanArguments scan = {};
    scan.size = sizeof(scan);
    scan.flags = kProtectFound | kOnlyWatched;
    scan.begin = span.begin;
    scan.end = span.end;
    scan.regions = reinterpret_cast<uint64_t>(regions);
    scan.region_count = kRegions;
    scan.all_of = scan.told = kIsWritten;
    while (scan.begin < scan.end) {
      scan.walked_to = scan.begin;
      const int found = ioctl(pages_, kScan, &scan);
      if (found < 0 && errno == EINTR) continue;
      if (found < 0) return false;
      for (int i = 0; i < found; ++i) visit(regions[i].begin, regions[i].end);
      if (scan.walked_to <= scan.begin) return false;
      scan.begin = scan.walked_to;
    }
    return true;
  }

 private:
  Kernel() {
    pthread_atfork(nullptr, nullptr, [] { g_is_child.store(true, std::memory_order_relaxed); });
    const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly));
    if (fd < 0) return;
    uffdio_api api = {};
    api.api = UFFD_API;
    api.features = kFeatureAsync | kFeatureUnpopulated;
    const int pages = ioctl(fd, UFFDIO_API, &api) == 0 ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
    // A kernel that knows the features scans, too; one where something stands between does not.
    ScanArguments nothing = {};
    nothing.size = sizeof(nothing);
    nothing.told = nothing.all_of = kIsWritten;
    if (pages < 0 || ioctl(pages, kScan, &nothing) < 0) {
      close(fd);
      if (pages >= 0) close(pages);
      return;
    }
    faults_ = fd;
    pages_ = pages;
  }

  // All of it is mapped, private and without a file, as far as the list of mappings says.
  static bool IsPrivate(const PageSpan& span) {
    FILE* const file = std::fopen("/proc/self/maps", "re");
    if (file == nullptr) return false;
    uint64_t reached = span.begin;
    char line[512];
    bool is_private = true;
    while (is_private && reached < span.end && std::fgets(line, sizeof(line), file) != nullptr) {
      uint64_t begin = 0;
      uint64_t end = 0;
      uint64_t inode = 0;
      char access[8] = {};
      if (std::sscanf(line, "%lx-%lx %4s %*s %*s %lu", &begin, &end, access, &inode) != 4) continue;
      if (end <= reached) continue;
      is_private = begin <= reached && access[1] == 'w' && access[3] == 'p' && inode == 0;
      reached = end;
      for (size_t length = std::strlen(line); length + 1 == sizeof(line) && line[length - 1] != '\n';) {
        if (std::fgets(line, sizeof(line), file) == nullptr) break;  // the rest of a long path
        length = std::strlen(line);
      }
    }
    std::fclose(file);
    return is_private && reached >= span.end;
  }

  int faults_ = -1;
  int pages_ = -1;
};

}  // namespace

// The ranges of a watch, by address, and the spans of pages that they make.
class WriteWatch::Ranges {
 public:
  explicit Ranges(std::span<const WatchedRange> ranges) : writes_(ranges.size()) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      writes_[i].store(1, std::memory_order_relaxed);
      if (ranges[i].bytes > 0) order_.push_back({PagesOf(ranges[i]), i});
    }
    std::ranges::sort(order_, {}, [](const Entry& entry) { return entry.pages.begin; });
    uint64_t longest = 0;
    for (const Entry& entry : order_) {
      longest = std::max(longest, entry.pages.end - entry.pages.begin);
      if (!spans_.empty() && entry.pages.begin <= spans_.back().end) {
        spans_.back().end = std::max(spans_.back().end, entry.pages.end);
      } else {
        spans_.push_back(entry.pages);
      }
    }
    longest_ = longest;
  }

  std::span<const PageSpan> spans() const { return spans_; }
  const std::atomic<uint64_t>& writes(size_t range) const { return writes_[range]; }
  size_t size() const { return writes_.size(); }

  void Count(uint64_t begin, uint64_t end) {
    const uint64_t from = begin > longest_ ? begin - longest_ : 0;
    auto entry = std::ranges::lower_bound(order_, from, {}, [](const Entry& each) { return each.pages.begin; });
    for (; entry != order_.end() && entry->pages.begin < end; ++entry) {
      if (entry->pages.end > begin) writes_[entry->range].fetch_add(1, std::memory_order_release);
    }
  }

  // All watches, since what one of them scans is no longer told to others.
  struct All {
    Mutex mutex;
    std::vector<Ranges*> watches REPRISE_GUARDED_BY(mutex);
  };
  static All& TheWatches() {
    static auto* const all = new All;
    return *all;
  }

 private:
  struct Entry {
    PageSpan pages;
    size_t range;
  };
  std::vector<Entry> order_;
  std::vector<PageSpan> spans_;
  std::vector<std::atomic<uint64_t>> writes_;
  uint64_t longest_ = 0;
};

bool WriteWatch::IsPossible() {
  static const bool is_wanted = EnvInt(EnvVar::kWriteWatch) != 0;
  return is_wanted && !g_is_child.load(std::memory_order_relaxed) && Kernel::Get().is_there();
}

std::unique_ptr<WriteWatch> WriteWatch::Of(std::span<const WatchedRange> ranges) {
  if (!IsPossible()) return nullptr;
  auto made = std::make_unique<Ranges>(ranges);
  for (const PageSpan& span : made->spans()) {
    if (!Kernel::Get().Register(span)) return nullptr;
  }
  Ranges::All& all = Ranges::TheWatches();
  {
    MutexLock lock(all.mutex);
    all.watches.push_back(made.get());
  }
  std::unique_ptr<WriteWatch> watch(new WriteWatch(std::move(made)));
  watch->Look();  // from here on pages are protected
  return watch;
}

WriteWatch::WriteWatch(std::unique_ptr<Ranges> ranges) : ranges_(std::move(ranges)) {}

WriteWatch::~WriteWatch() {
  Ranges::All& all = Ranges::TheWatches();
  MutexLock lock(all.mutex);
  std::erase(all.watches, ranges_.get());
}

void WriteWatch::Look() {
  Ranges::All& all = Ranges::TheWatches();
  MutexLock lock(all.mutex);
  const auto count = [&all](uint64_t begin, uint64_t end) REPRISE_NOT_ANALYSED {
    for (Ranges* const watch : all.watches) watch->Count(begin, end);
  };
  for (const PageSpan& span : ranges_->spans()) {
    if (!IsPossible() || !Kernel::Get().Scan(span, count)) count(span.begin, span.end);
  }
}

uint64_t WriteWatch::writes(size_t range) const { return ranges_->writes(range).load(std::memory_order_acquire); }
size_t WriteWatch::size() const { return ranges_->size(); }

}  // namespace reprise::device
