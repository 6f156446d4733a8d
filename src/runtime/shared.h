/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker shares with its zygote and children besides mailboxes: the bell, the list of
 * processes, the tables of regions, buffers and callables. Mapped when the worker is made, before
 * any fork, so it has the same address everywhere; tables hold numbers and offsets, and addresses
 * only of regions, which every process maps at one place.
 */
#ifndef ECH_RUNTIME_SHARED_H
#define ECH_RUNTIME_SHARED_H

#include "src/runtime/mailbox.h"

#define ECH_SHARED_MAGIC   0x53434845u /* "EHCS" */
#define ECH_SHARED_VERSION 1u

/* What the zygote says about one child. W: zygote. */
enum ech_proc_phase {
    ECH_PROC_NONE,
    ECH_PROC_RUNNING,     /* pid is valid */
    ECH_PROC_EXITED,      /* wait_status is valid; the process entry is kept until REAP */
    ECH_PROC_FORK_FAILED, /* wait_status is the errno */
    ECH_PROC_REAPED
};

/* Generation and phase in one word, so that nobody sees a new process with an old phase. */
#define ECH_PROC_TAG(generation, phase) ((uint64_t)(generation) << 32 | (uint32_t)(phase))

typedef struct ech_proc {
    uint64_t tag;
    int32_t pid;
    int32_t wait_status;
    uint64_t reserved[6];
} ech_proc;

/* W: worker, before init. */
typedef struct ech_region_entry {
    uint64_t ptr, bytes; /* bytes 0: no region */
    uint16_t writable, huge;
    int32_t only_child; /* chip-local: the one child that may use it; -1: host-shared */
    char name[ECH_NAME_BYTES];
} ech_region_entry;

/* W: worker. A reader checks the generation before and the bounds after. */
typedef struct ech_buffer_entry {
    uint64_t generation; /* 0: free. Written last when the entry is made, first when it ends */
    uint64_t offset, bytes;
    uint32_t region, access;
} ech_buffer_entry;

enum ech_callable_kind {
    ECH_CALLABLE_NONE,
    ECH_CALLABLE_HOST,
    ECH_CALLABLE_PROGRAM,
    ECH_CALLABLE_ORCH,
};

#define ECH_KIND_BYTES 16

/* W: worker. */
typedef struct ech_callable_entry {
    uint32_t kind;       /* ech_callable_kind; NONE: free */
    uint32_t generation; /* counts uses of the place */
    uint32_t refs;       /* registrations that are not undone */
    uint32_t blocked;    /* a child could neither take it nor forget it: never again */
    uint8_t digest[32];
    uint64_t fn;           /* HOST, ORCH: address, in an image that was there before the fork */
    uint64_t bytes_offset; /* PROGRAM: in the program region */
    uint64_t n_bytes;
    uint64_t tickets; /* the last ticket given out */
    char program_kind[ECH_KIND_BYTES];
    char name[ECH_NAME_BYTES];
} ech_callable_entry;

typedef struct ech_shared {
    uint32_t magic, version;
    uint64_t nonce[2];
    uint64_t heap_ptr, heap_bytes; /* all four rings */
    uint64_t programs_ptr, programs_bytes;
    uint64_t reserved0[1];

    uint32_t bell;     /* futex: children and zygote ring it. W: anybody */
    uint32_t sleeping; /* threads of the worker that wait on it. W: worker */
    uint32_t tracing;  /* 1: record spans. W: worker */
    uint32_t reserved1[13];

    uint32_t zygote_up;     /* W: zygote */
    uint32_t zygote_events; /* W: zygote; counts changes of procs */
    uint32_t reserved2[14];

    ech_proc procs[ECH_MAX_CHILDREN];
    ech_callable_entry callables[ECH_MAX_CALLABLES];
    ech_region_entry regions[ECH_MAX_REGIONS];
    ech_buffer_entry buffers[ECH_MAX_BUFFERS];
    ech_mailbox mail[ECH_MAX_CHILDREN];
} ech_shared;

static_assert(sizeof(ech_proc) == ECH_LINE, "one line per process");
static_assert(offsetof(ech_shared, bell) == ECH_LINE, "the bell has a line of its own");
static_assert(offsetof(ech_shared, zygote_up) == 2 * ECH_LINE, "and so has the zygote");
static_assert(offsetof(ech_shared, mail) % ECH_LINE == 0, "mailboxes are aligned");

/* Wakes whoever of the worker sleeps; after a store that it has to see. */
void ech_shared_ring(ech_shared *s);

#endif
