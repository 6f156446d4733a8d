/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection: the places where tests make the system fail. One load and a branch where it is
 * off. Counters are per process and are inherited by a fork, so that a test arms them before init.
 */
#ifndef ECH_BASE_OS_FAULT_H
#define ECH_BASE_OS_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ech_fault {
    ECH_FAULT_ALLOC,   /* ech_mem_alloc() returns NULL */
    ECH_FAULT_MAP,     /* shared memory is exhausted */
    ECH_FAULT_UNMAP,   /* a mapping can't be released */
    ECH_FAULT_FORK,    /* no more processes */
    ECH_FAULT_THREAD,  /* no more threads */
    ECH_FAULT_KILL,    /* a child can't be killed */
    ECH_FAULT_TMPFILE, /* the file system has no files without a name */
    ECH_FAULT_COUNT
} ech_fault;

/*
 * The next `skip` calls of this kind succeed, the `times` calls after them fail. times 0 switches
 * the fault off.
 */
void ech_fault_arm(ech_fault kind, uint64_t skip, uint64_t times);
/* Calls of this kind since it was armed: how a sweep knows that it has seen every n. */
uint64_t ech_fault_calls(ech_fault kind);

extern uint32_t ech_fault_armed; /* bit per kind */
bool ech_fault_check(ech_fault kind);

static inline bool ech_fault_hit(const ech_fault kind)
{
    return __builtin_expect(__atomic_load_n(&ech_fault_armed, __ATOMIC_RELAXED) >> kind & 1, 0) &&
           ech_fault_check(kind);
}

/* Zeroed memory from the C library, by way of the fault. NULL when there is none. */
void *ech_mem_alloc(size_t n, size_t size);

/*
 * Points of the mailbox protocol, in the order in which a task passes them. A child that reaches
 * the armed point of the armed number calls the hook: tests kill it there.
 */
#define ECH_POINT_MAP(X)                                                                           \
    X(CHILD_FORKED, "forked")                                                                      \
    X(CHILD_OPENED, "opened")                                                                      \
    X(CHILD_READY, "ready")                                                                        \
    X(CHILD_IDLE, "idle")                                                                          \
    X(FRAME_SEEN, "frame seen")                                                                    \
    X(FRAME_ACCEPTED, "frame accepted")                                                            \
    X(FRAME_DECODED, "frame decoded")                                                              \
    X(FRAME_RAN, "callable returned")                                                              \
    X(FRAME_RESULT, "result written")                                                              \
    X(FRAME_DONE, "done published")                                                                \
    X(CONTROL_SEEN, "control seen")                                                                \
    X(CONTROL_ANSWERED, "control answered")                                                        \
    X(CONTROL_DONE, "control published")                                                           \
    X(SHUTDOWN_SEEN, "shutdown seen")                                                              \
    X(CHILD_CLOSED, "closed")                                                                      \
    X(INIT_MAPPED, "init: memory mapped")                                                          \
    X(INIT_FORKED, "init: zygote forked")                                                          \
    X(INIT_WAITING, "init: waiting for children")                                                  \
    X(CLOSE_DRAINED, "close: drained")

typedef enum ech_point {
#define X(name, text) ECH_POINT_##name,
    ECH_POINT_MAP(X)
#undef X
        ECH_POINT_COUNT
} ech_point;

typedef void (*ech_point_fn)(ech_point point, uint32_t child, void *arg);

const char *ech_point_name(ech_point point);
/* Calls fn at every point from now on, in this process and those forked later; NULL: off. */
void ech_point_hook(ech_point_fn fn, void *arg);

extern ech_point_fn ech_point_hooked;
void ech_point_call(ech_point point, uint32_t child);

static inline void ech_point_at(const ech_point point, const uint32_t child)
{
    if (__builtin_expect(ech_point_hooked != NULL, 0)) ech_point_call(point, child);
}

#endif
