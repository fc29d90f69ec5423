// SPDX-License-Identifier: Apache-2.0
//
// A slow disk, for LD_PRELOAD: calls that touch a file below REPRISE_SLOW_DISK (an absolute path without links) first
// wait for 0 to 20 ms, by REPRISE_SLOW_DISK_SEED; all others pass. After kMost waits a process has waited for half a
// minute, which is enough: from then on its disk is fast. stdio writes its buffers behind our back, so that of a FILE
// only fopen, fflush and fclose wait.
//
// Sanitizers intercept the same functions: theirs come next in the order of symbols, and nothing here calls what they
// intercept. AddressSanitizer wants verify_asan_link_order=0.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/fcntl.h>  // without the prototypes of open, which is defined with three parameters below
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 3000, kLongestNs = 20000000 };

static const char* g_folder;  // null: not ready, or not asked for
static size_t g_length;
static atomic_ullong g_seed;
static atomic_int g_waits;

__attribute__((constructor)) static void Prepare(void) {
  const char* seed = getenv("REPRISE_SLOW_DISK_SEED");
  atomic_store(&g_seed, seed != NULL ? strtoull(seed, NULL, 10) : 0);
  g_folder = getenv("REPRISE_SLOW_DISK");
  g_length = g_folder != NULL ? strlen(g_folder) : 0;
}

// For tests of this.
__attribute__((visibility("default"))) int reprise_slow_disk_waits(void) { return atomic_load(&g_waits); }

static void* Real(void* _Atomic* slot, const char* name) {
  void* function = atomic_load_explicit(slot, memory_order_relaxed);
  if (function == NULL) {
    function = dlsym(RTLD_NEXT, name);
    atomic_store_explicit(slot, function, memory_order_relaxed);
  }
  return function;
}

static void Wait(void) {
  if (atomic_load(&g_waits) >= kMost) return;
  atomic_fetch_add(&g_waits, 1);
  uint64_t mix = atomic_fetch_add(&g_seed, 0x9e3779b97f4a7c15U) + 0x9e3779b97f4a7c15U;  // splitmix64
  mix = (mix ^ (mix >> 30)) * 0xbf58476d1ce4e5b9U;
  mix = (mix ^ (mix >> 27)) * 0x94d049bb133111ebU;
  struct timespec time = {0, (long)((mix ^ (mix >> 31)) % (kLongestNs + 1))};
  syscall(SYS_nanosleep, &time, NULL);
}

static int Below(const char* path) {
  return strncmp(path, g_folder, g_length) == 0 && (path[g_length] == '/' || path[g_length] == '\0');
}

static int FdBelow(int fd) {
  if (g_folder == NULL || fd < 0) return 0;
  char link[32];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return Below(path);
}

static int PathBelow(int folder, const char* path) {
  if (g_folder == NULL || path == NULL) return 0;
  if (path[0] == '/') return Below(path);
  if (folder != AT_FDCWD) return FdBelow(folder);
  char here[4096];
  return syscall(SYS_getcwd, here, sizeof here) > 0 && Below(here);
}

static void WaitIf(int (*below)(int, const char*), int folder, const char* path) {
  const int saved = errno;
  if (below(folder, path)) Wait();
  errno = saved;
}

static int OpenFileBelow(int fd, const char* unused) {
  (void)unused;
  return FdBelow(fd);
}

// Functions are looked up before the program starts: a child of a program with threads must not take dlsym's lock.
#define WRAP(result, name, parameters, arguments, ...)                                      \
  static void* _Atomic real_##name;                                                         \
  __attribute__((constructor)) static void Find_##name(void) { Real(&real_##name, #name); } \
  __attribute__((visibility("default"))) result name parameters {                           \
    WaitIf(__VA_ARGS__);                                                                    \
    return ((result(*) parameters)Real(&real_##name, #name))arguments;                      \
  }
#define AT(folder, path) PathBelow, folder, path
#define PATH(path) AT(AT_FDCWD, path)
#define FD(fd) OpenFileBelow, fd, NULL

WRAP(int, open, (const char* path, int flags, mode_t mode), (path, flags, mode), PATH(path))
WRAP(int, open64, (const char* path, int flags, mode_t mode), (path, flags, mode), PATH(path))
WRAP(int, __open_2, (const char* path, int flags), (path, flags), PATH(path))
WRAP(int, __open64_2, (const char* path, int flags), (path, flags), PATH(path))
WRAP(int, openat, (int at, const char* path, int flags, mode_t mode), (at, path, flags, mode), AT(at, path))
WRAP(int, openat64, (int at, const char* path, int flags, mode_t mode), (at, path, flags, mode), AT(at, path))
WRAP(int, __openat_2, (int at, const char* path, int flags), (at, path, flags), AT(at, path))
WRAP(int, __openat64_2, (int at, const char* path, int flags), (at, path, flags), AT(at, path))
WRAP(int, creat, (const char* path, mode_t mode), (path, mode), PATH(path))
WRAP(int, creat64, (const char* path, mode_t mode), (path, mode), PATH(path))
WRAP(FILE*, fopen, (const char* path, const char* mode), (path, mode), PATH(path))
WRAP(FILE*, fopen64, (const char* path, const char* mode), (path, mode), PATH(path))
WRAP(int, fflush, (FILE * file), (file), FD(file != NULL ? fileno(file) : -1))
WRAP(int, fclose, (FILE * file), (file), FD(fileno(file)))
WRAP(ssize_t, write, (int fd, const void* data, size_t bytes), (fd, data, bytes), FD(fd))
WRAP(ssize_t, writev, (int fd, const struct iovec* parts, int count), (fd, parts, count), FD(fd))
WRAP(ssize_t, pwrite, (int fd, const void* data, size_t bytes, off_t at), (fd, data, bytes, at), FD(fd))
WRAP(ssize_t, pwrite64, (int fd, const void* data, size_t bytes, off64_t at), (fd, data, bytes, at), FD(fd))
WRAP(int, fsync, (int fd), (fd), FD(fd))
WRAP(int, fdatasync, (int fd), (fd), FD(fd))
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), FD(fd))
WRAP(int, ftruncate64, (int fd, off64_t bytes), (fd, bytes), FD(fd))
WRAP(int, rename, (const char* from, const char* to), (from, to), PATH(to))
WRAP(int, renameat, (int a, const char* from, int b, const char* to), (a, from, b, to), AT(b, to))
WRAP(int, renameat2, (int a, const char* from, int b, const char* to, unsigned how), (a, from, b, to, how), AT(b, to))
WRAP(int, unlink, (const char* path), (path), PATH(path))
WRAP(int, unlinkat, (int at, const char* path, int flags), (at, path, flags), AT(at, path))
WRAP(int, remove, (const char* path), (path), PATH(path))
WRAP(int, mkdir, (const char* path, mode_t mode), (path, mode), PATH(path))
WRAP(int, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode), AT(at, path))
WRAP(int, rmdir, (const char* path), (path), PATH(path))
