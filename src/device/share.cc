// SPDX-License-Identifier: Apache-2.0
#include "device/share.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/fault.h"
#include "base/mutex.h"

namespace reprise::device {
namespace {

constexpr uint32_t kMaxOffers = 8192;  // fits the 14 bits of a packed key
constexpr uint32_t kMaxTakers = 32;
constexpr char kTableLabel[] = "reprise-offers";
constexpr std::string_view kKeyPrefix = "reprise";
constexpr uint32_t kNonceMask = (1u << 28) - 1;

// One offer, as other processes see it. `nonce` is 0 while the entry is free, and is written last.
struct Entry {
  std::atomic<uint32_t> nonce;
  ShareKind kind;
  int32_t fd;
  uint32_t checks_pid;
  uint64_t file_bytes;
  uint64_t offset;
  uint64_t bytes;
  uint64_t extra;
  std::atomic<uint32_t> takers;
  std::atomic<int32_t> taker_pids[kMaxTakers];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

struct Table {
  std::atomic<int32_t> pid;  // a forked child has the parent's descriptors, but is not the one who offers
  Entry entries[kMaxOffers];
};

// The table of this process; made by its first offer.
struct Own {
  Mutex mutex;
  Table* table REPRISE_GUARDED_BY(mutex) = nullptr;
  pid_t pid REPRISE_GUARDED_BY(mutex) = 0;
  uint32_t used REPRISE_GUARDED_BY(mutex) = 0;
  std::vector<uint32_t> free REPRISE_GUARDED_BY(mutex);
};

Own& TheOwn() {
  static auto* const own = new Own;
  return *own;
}

Entry* Find(Own& own, const ShareKey& key) REPRISE_REQUIRES(own.mutex) {
  if (own.table == nullptr || key.pid != getpid() || own.pid != key.pid || key.index >= own.used) return nullptr;
  Entry& entry = own.table->entries[key.index];
  return key.nonce != 0 && entry.nonce.load() == key.nonce ? &entry : nullptr;
}

Status NoSuchOffer(const char* what, const std::string& why) {
  return Error(kInvalidValue, fmt::format("the key names no {}: {}", what, why))
      .Culprit("the key")
      .Hint("pass the key that the exporting process got, while that process is alive and has not closed it");
}

std::string Why(int error) { return std::generic_category().message(error); }

// The processes' ids mean the same where this is the same number.
uint32_t PidSpace() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 ? static_cast<uint32_t>(space.st_ino) : 0;
}

Status NotReached(int32_t pid, const char* what, int error) {
  if (error == EMFILE || error == ENFILE) {
    return Error(kResourceExhausted, fmt::format("the {} of process {} cannot be opened: {}", what, pid, Why(error)))
        .Hint("close files, or raise the limit of open files");
  }
  struct stat owner {};
  const bool known = stat(fmt::format("/proc/{}", pid).c_str(), &owner) == 0;
  return Error(kIpcError, fmt::format("the host does not let process {} open the {} of process {}: {}", getpid(), what,
                                      pid, Why(error)))
      .Culprit(known ? fmt::format("the users of the two processes, {} and {}", geteuid(), owner.st_uid)
                     : fmt::format("/proc/{}", pid))
      .Hint("run both processes as the same user, in one container and without PR_SET_DUMPABLE 0");
}

// The open table of another process: the descriptor whose memory file has our label.
StatusOr<int> OpenTable(int32_t pid, const char* what) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) {
    const int error = errno;
    if (error != ENOENT && error != ESRCH) return NotReached(pid, what, error);
    if (access("/proc/self/fd", F_OK) != 0) {
      return Error(kIpcError,
                   fmt::format("the {} of process {} cannot be looked for: there is no /proc here", what, pid))
          .Culprit("/proc")
          .Hint("mount /proc in the importing process's container");
    }
    return NoSuchOffer(what, fmt::format("process {} has ended, or is in another container", pid));
  }
  int found = -1;
  int refused = 0;
  while (const dirent* entry = readdir(listing)) {  // NOLINT(concurrency-mt-unsafe): the stream is this call's own
    char target[128];
    const std::string path = folder + "/" + entry->d_name;
    const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
    if (length <= 0) {
      if (errno == EACCES || errno == EPERM) refused = errno;
      continue;
    }
    target[length] = '\0';
    if (std::strstr(target, kTableLabel) == nullptr) continue;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      if (errno != ENOENT) refused = errno;
      continue;
    }
    int32_t owner = 0;
    // A forked child carries its parent's table too; the owner is in the first word.
    if (pread(fd, &owner, sizeof owner, 0) == sizeof owner && owner == pid) {
      found = fd;
      break;
    }
    close(fd);
  }
  closedir(listing);
  if (found >= 0) return found;
  if (refused != 0) return NotReached(pid, what, refused);
  return NoSuchOffer(what,
                     Process::Of(pid).HasEnded()
                         ? fmt::format("process {} has ended", pid)
                         : fmt::format("process {} exports nothing; its id may have been that of another one", pid));
}

}  // namespace

std::string ShareKey::Print() const {
  const std::string text = fmt::format("{}-{}-{}-{:07x}", kKeyPrefix, pid, index, nonce);
  return space == 0 ? text : fmt::format("{}-{:x}", text, space);
}

std::optional<ShareKey> ShareKey::Parse(std::string_view text) {
  if (text.substr(0, kKeyPrefix.size()) != kKeyPrefix) return std::nullopt;
  text.remove_prefix(kKeyPrefix.size());
  ShareKey key;
  const auto field = [&](auto& value, int base) {
    if (text.empty() || text.front() != '-') return false;
    text.remove_prefix(1);
    const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    text.remove_prefix(static_cast<size_t>(after - text.data()));
    return error == std::errc();
  };
  if (!field(key.pid, 10) || !field(key.index, 10) || !field(key.nonce, 16)) return std::nullopt;
  if (!text.empty() && (!field(key.space, 16) || key.space == 0 || !text.empty())) return std::nullopt;
  if (key.pid <= 0 || key.nonce == 0) return std::nullopt;
  return key;
}

// pid: 22 bits (the kernel's limit), index: 14, nonce: 28.
uint64_t ShareKey::Pack() const {
  return (static_cast<uint64_t>(pid) << 42) | (static_cast<uint64_t>(index) << 28) | nonce;
}

ShareKey ShareKey::Unpack(uint64_t token) {
  return {static_cast<int32_t>(token >> 42), static_cast<uint32_t>(token >> 28) & 0x3FFF,
          static_cast<uint32_t>(token) & kNonceMask, 0};
}

int MakeMemoryFile(const char* label, uint64_t bytes) noexcept {
  if (FaultPoint("share.file")) {
    errno = ENOMEM;
    return -1;
  }
  const int fd = memfd_create(label, MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

namespace {

// What /proc/PID/stat says, as far as it is needed. False with errno.
struct ProcessStat {
  char state = 0;
  uint64_t threads = 0;
  uint64_t start = 0;
};

bool ReadStat(int32_t pid, ProcessStat* stat) {
  char path[32];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/stat", pid).out = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t length = read(fd, text, sizeof text - 1);
  const int error = errno;
  close(fd);
  if (length <= 0) {
    errno = length == 0 ? ESRCH : error;
    return false;
  }
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');  // the name before it may hold anything
  errno = EPROTO;
  if (at == nullptr || at[1] != ' ') return false;
  stat->state = at[2];
  for (int field = 2; (at = std::strchr(at + 1, ' ')) != nullptr; ++field) {
    if (field == 19) stat->threads = std::strtoull(at + 1, nullptr, 10);
    if (field == 21) {
      stat->start = std::strtoull(at + 1, nullptr, 10);
      return true;
    }
  }
  return false;
}

}  // namespace

Process Process::Of(int32_t pid) {
  Process process;
  process.pid_ = pid;
  ProcessStat stat;
  if (ReadStat(pid, &stat)) {
    process.start_ = stat.start;
  } else if (errno == ENOENT || errno == ESRCH) {
    process.start_ = UINT64_MAX;  // not that of any
  }
  return process;
}

bool Process::HasEnded() const {
  if (pid_ == 0) return false;
  ProcessStat stat;
  if (!ReadStat(pid_, &stat)) return (errno == ENOENT || errno == ESRCH) && access("/proc/self/stat", F_OK) == 0;
  if (start_ != 0 && stat.start != start_) return true;
  // A zombie; or only its first thread is one.
  return stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
}

StatusOr<ShareKey> Offer(const ShareOffer& offer) {
  Own& own = TheOwn();
  MutexLock lock(own.mutex);
  if (own.table == nullptr || own.pid != getpid()) {  // a forked child begins with a table of its own
    const int fd = MakeMemoryFile(kTableLabel, sizeof(Table));
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      const int error = errno;
      if (fd >= 0) close(fd);
      return Error(kResourceExhausted, fmt::format("no memory file for the table of exports: {}", Why(error)))
          .Hint("free memory of the host, or raise the limit of open files (ulimit -n)");
    }
    own.table = static_cast<Table*>(at);
    own.pid = getpid();
    own.used = 0;
    own.free.clear();
    own.table->pid.store(own.pid);
  }
  uint32_t index = 0;
  if (!own.free.empty()) {
    index = own.free.back();
    own.free.pop_back();
  } else if (own.used < kMaxOffers) {
    index = own.used++;
    own.free.reserve(own.used);  // so that Withdraw cannot fail
  } else {
    return Error(kResourceExhausted, fmt::format("the process exports {} objects, which is the most", kMaxOffers))
        .Hint("close exports that are no longer needed");
  }
  uint32_t nonce = 0;
  while (nonce == 0) {
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) nonce = static_cast<uint32_t>(errno) * 2654435761u;
    nonce &= kNonceMask;
  }
  Entry& entry = own.table->entries[index];
  entry.kind = offer.kind;
  entry.fd = offer.fd;
  entry.checks_pid = offer.checks_pid ? 1 : 0;
  entry.file_bytes = offer.file_bytes;
  entry.offset = offer.offset;
  entry.bytes = offer.bytes;
  entry.extra = offer.extra;
  entry.takers.store(0);
  entry.nonce.store(nonce, std::memory_order_release);
  return ShareKey{own.pid, index, nonce, PidSpace()};
}

bool Withdraw(const ShareKey& key) {
  Own& own = TheOwn();
  MutexLock lock(own.mutex);
  Entry* entry = Find(own, key);
  if (entry == nullptr) return false;
  entry->nonce.store(0);
  own.free.push_back(key.index);
  return true;
}

Status AllowTakers(const ShareKey& key, const int32_t* pids, size_t count) {
  Own& own = TheOwn();
  MutexLock lock(own.mutex);
  Entry* entry = Find(own, key);
  if (entry == nullptr) return NoSuchOffer("export of this process", "it was made by another one, or is closed");
  const uint32_t before = entry->takers.load();
  if (count > kMaxTakers - before) {
    return Error(kResourceExhausted,
                 fmt::format("{} more processes would be {}, the most is {}", count, before + count, kMaxTakers))
        .Hint("export without the check of process ids");
  }
  for (size_t i = 0; i < count; ++i) entry->taker_pids[before + i].store(pids[i]);
  entry->takers.store(before + static_cast<uint32_t>(count), std::memory_order_release);
  return {};
}

Taken& Taken::operator=(Taken&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(offer_, other.offer_);
  return *this;
}

Taken::~Taken() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<Taken> Take(const ShareKey& key, ShareKind kind, const char* what) {
  if (key.pid <= 0 || key.nonce == 0 || key.index >= kMaxOffers) return NoSuchOffer(what, "it is malformed");
  if (const uint32_t space = PidSpace(); key.space != 0 && space != 0 && key.space != space) {
    return NoSuchOffer(what, fmt::format("process {} of another container made it (pid namespace {}, here {})", key.pid,
                                         key.space, space));
  }
  REPRISE_ASSIGN_OR_RETURN(const int table_fd, OpenTable(key.pid, what));
  void* at = mmap(nullptr, sizeof(Table), PROT_READ, MAP_SHARED, table_fd, 0);
  close(table_fd);
  if (at == MAP_FAILED)
    return Error(kResourceExhausted, "no address space for the table of exports of another process")
        .Hint("raise the process's limit of address space (ulimit -v)");
  const struct Unmap {
    void* at;
    ~Unmap() { munmap(at, sizeof(Table)); }
  } unmap{at};
  const Entry& entry = static_cast<const Table*>(at)->entries[key.index];
  if (entry.nonce.load(std::memory_order_acquire) != key.nonce) {
    return NoSuchOffer(what, fmt::format("process {} has closed it, or freed what it named", key.pid));
  }
  if (entry.kind != kind) return NoSuchOffer(what, "it names an object of another kind");
  if (entry.checks_pid != 0 && key.pid != getpid()) {
    bool allowed = false;
    const uint32_t takers = std::min(entry.takers.load(std::memory_order_acquire), kMaxTakers);
    for (uint32_t i = 0; i < takers; ++i) allowed |= entry.taker_pids[i].load() == getpid();
    if (!allowed) {
      return Error(kInvalidValue,
                   fmt::format("process {} does not let process {} import this {}", key.pid, getpid(), what))
          .Culprit(fmt::format("the list of {} processes that the exporter allowed", takers))
          .Hint(
              "let the exporter name this process with the matching ...SetImportPid function, or export with the flag "
              "that switches the check off");
    }
  }
  Taken taken;
  taken.offer_ = {entry.kind, -1, entry.file_bytes, entry.offset, entry.bytes, entry.extra, entry.checks_pid != 0};
  const std::string path = fmt::format("/proc/{}/fd/{}", key.pid, entry.fd);
  taken.fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const int error = taken.fd_ < 0 ? errno : 0;
  struct stat file {};
  // Looked at again: the exporter may have closed the object, and its number may be another file by now.
  if (entry.nonce.load(std::memory_order_acquire) != key.nonce || error == ENOENT ||
      (error == 0 && (fstat(taken.fd_, &file) != 0 || static_cast<uint64_t>(file.st_size) < entry.file_bytes))) {
    return NoSuchOffer(what, fmt::format("process {} has closed it, or freed what it named", key.pid));
  }
  if (error != 0) return NotReached(key.pid, what, error);
  return taken;
}

}  // namespace reprise::device
