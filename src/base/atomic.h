/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words in which all code about shared memory speaks. Each use carries a comment that names
 * its partner: an acquire load sees everything that was written before the release store whose
 * value it read.
 *
 * They take plain integers, so that a struct in shared memory is plain data on both sides.
 */
#ifndef ECH_BASE_ATOMIC_H
#define ECH_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#define ech_load_relaxed(p)      __atomic_load_n((p), __ATOMIC_RELAXED)
#define ech_load_acquire(p)      __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define ech_store_relaxed(p, v)  __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define ech_store_release(p, v)  __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ech_fetch_add(p, v)      __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define ech_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define ech_fetch_or(p, v)       __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define ech_exchange(p, v)       __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
/* Full fence: orders a store before a later load of another word (Dekker-style handshakes). */
#if defined(__SANITIZE_THREAD__)
/* The sanitiser knows no fences; on the machines that it runs on this orders the same. */
#define ech_fence()              ech_fence_by_rmw_()
#else
#define ech_fence()              __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

/* On failure *expected holds what was found. */
#define ech_cas(p, expected, desired)                                                              \
    __atomic_compare_exchange_n((p), (expected), (desired), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

static inline void ech_fence_by_rmw_(void)
{
    uint32_t word = 0;
    (void)__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
}

/* Tells the core that this is a spin loop. */
static inline void ech_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
