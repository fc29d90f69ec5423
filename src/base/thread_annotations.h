// SPDX-License-Identifier: Apache-2.0
//
// What is guarded by which lock, in words that clang holds the sources against (-Wthread-safety; scripts/lint.sh).
// Other compilers see nothing of them. The locks themselves are in base/mutex.h and base/spin_lock.h.
#pragma once

#if defined(__clang__)
#define REPRISE_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define REPRISE_THREAD_ATTRIBUTE(...)
#endif

/// A member that is read and written only by threads that hold `lock`, and one whose pointee is.
#define REPRISE_GUARDED_BY(lock) REPRISE_THREAD_ATTRIBUTE(guarded_by(lock))
#define REPRISE_PT_GUARDED_BY(lock) REPRISE_THREAD_ATTRIBUTE(pt_guarded_by(lock))

/// A function whose caller holds the locks; one whose caller does not, because the function takes them itself. Stands
/// behind the parameters, also of a lambda.
#define REPRISE_REQUIRES(...) REPRISE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REPRISE_REQUIRES_SHARED(...) REPRISE_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define REPRISE_EXCLUDES(...) REPRISE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

/// A function that is trusted: what guards its data cannot be said in these words, or it opens
/// a lock that its caller passes.
#define REPRISE_NOT_ANALYSED REPRISE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

/// A function that returns a reference to a lock.
#define REPRISE_RETURNS_LOCK(lock) REPRISE_THREAD_ATTRIBUTE(lock_returned(lock))

// ---- For the types of locks ----

#define REPRISE_LOCK REPRISE_THREAD_ATTRIBUTE(capability("mutex"))
#define REPRISE_SCOPED_LOCK REPRISE_THREAD_ATTRIBUTE(scoped_lockable)
#define REPRISE_ACQUIRES(...) REPRISE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define REPRISE_ACQUIRES_SHARED(...) REPRISE_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define REPRISE_TRIES(...) REPRISE_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define REPRISE_TRIES_SHARED(...) REPRISE_THREAD_ATTRIBUTE(try_acquire_shared_capability(__VA_ARGS__))
#define REPRISE_RELEASES(...) REPRISE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define REPRISE_RELEASES_SHARED(...) REPRISE_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define REPRISE_RELEASES_ANY(...) REPRISE_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
