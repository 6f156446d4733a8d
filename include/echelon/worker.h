/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/worker.h - the worker runtime: task graphs over child processes.
 *
 * A worker of level 3 owns children: *next-level* children (chips, or workers of the level below)
 * that are addressed by number, and *sub* children, which run host functions and are picked by the
 * scheduler. Work is handed over as a **run**: a callback submits tasks, whose dependencies follow
 * from the tags of their tensors, and the run finishes as a whole.
 *
 *     ech_worker_options o = ech_worker_options_default();
 *     o.n_chips = 1;
 *     ech_worker *w = NULL;
 *     ech_worker_create(&w, &o, &err);
 *     ech_worker_buffer_create(w, "x", 4096, ECH_ACCESS_RW, &x, &err);    before init: any size
 *     ech_worker_register_host(w, "work", work, &work_id, &err);
 *     ech_worker_init(w, &err);                                           forks everything
 *     ech_worker_run(w, graph, arg, &err);                                any number of times
 *     ech_worker_close(&w, &err);
 *
 * Life cycle: NEW -> INITIALIZING -> READY | FAILED -> CLOSED. Regions, buffers larger than the
 * reserve, children and program bytes are known before init; nothing is mapped after it.
 *
 * Threads: every call may come from any thread unless it says otherwise; an ech_orch belongs to
 * the thread that runs the callback. A process that calls init may have threads of its own: the
 * children call only this library's code and functions that are safe after a fork.
 *
 * Ownership: a `ret_` parameter is written on success only. After a failure nothing was taken and
 * nothing is owed, except where a call says so.
 *
 * Errors: a failed *task* leaves the worker usable (ETASK, with the callable's own text). A lost
 * *endpoint* (ELOST) fails only its tasks until ech_worker_replace(). A *poisoned* endpoint or
 * worker (EPOISONED) can only be replaced or closed. docs/runtime.md has the table.
 */
#ifndef ECHELON_WORKER_H
#define ECHELON_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Limits: fixed, so that shared memory has a fixed layout ------------------------------- */

#define ECH_MAX_DIMS      5    /* dimensions of a view */
#define ECH_MAX_TENSORS   256  /* tensors of a task */
#define ECH_MAX_SCALARS   128  /* scalars of a task, 64 bits each */
#define ECH_MAX_GATES     8    /* gates that one task waits for */
#define ECH_MAX_CALLABLES 64   /* registered at one time */
#define ECH_MAX_CHILDREN  64   /* next-level and sub children together */
#define ECH_MAX_REGIONS   1024 /* of one worker */
#define ECH_MAX_BUFFERS   8192 /* alive at one time */
#define ECH_MAX_SCOPES    64   /* nesting depth */
#define ECH_RINGS         4    /* one per scope depth 0, 1, 2, and 3 or deeper */
#define ECH_NAME_BYTES    48   /* of a name, the terminating zero included */

typedef struct ech_worker ech_worker; /* opaque */
typedef struct ech_orch ech_orch;     /* opaque; valid inside one callback */
typedef struct ech_run ech_run;       /* opaque; a handle to wait on */
typedef struct ech_task ech_task;     /* opaque; a task as its child sees it */

/* ---- Tensors ------------------------------------------------------------------------------- */

/** Element types. The size of one element is ech_dtype_bytes(). */
typedef enum ech_dtype {
    ECH_DTYPE_U8,
    ECH_DTYPE_I8,
    ECH_DTYPE_U16,
    ECH_DTYPE_I16,
    ECH_DTYPE_U32,
    ECH_DTYPE_I32,
    ECH_DTYPE_U64,
    ECH_DTYPE_I64,
    ECH_DTYPE_F16,
    ECH_DTYPE_BF16,
    ECH_DTYPE_F32,
    ECH_DTYPE_F64,
    ECH_DTYPE_COUNT
} ech_dtype;

/**
 * What a task does to a tensor; the only source of dependencies. Read once, at submit.
 *
 *     tag              waits for writers   later tasks wait for it   memory
 *     INPUT            yes                 writers do (WAR)          the caller's
 *     OUTPUT           no                  yes                       the ring's, if none was given
 *     INOUT            yes                 yes                       the caller's
 *     OUTPUT_EXISTING  as a write (WAW,    yes                       the caller's
 *                      WAR), not a read
 *     NO_DEP           no                  no                        the caller orders it
 *
 * A task always waits for earlier readers and writers of bytes that it writes, except with NO_DEP.
 */
typedef enum ech_tag {
    ECH_INPUT,
    ECH_OUTPUT,
    ECH_INOUT,
    ECH_OUTPUT_EXISTING,
    ECH_NO_DEP,
    ECH_TAG_COUNT
} ech_tag;

/** What a buffer lets tasks do. READ: INPUT and NO_DEP only. */
typedef enum ech_access {
    ECH_ACCESS_READ = 1,
    ECH_ACCESS_RW = 3,
} ech_access;

/** Identity of a buffer: 32 bytes, the same in every process of the tree. All zero: no buffer. */
typedef struct ech_buffer {
    uint64_t nonce[2];   /* the worker that owns it */
    uint64_t id;         /* its place in that worker's table */
    uint64_t generation; /* changes when the place is used again */
} ech_buffer;

/**
 * A view of a buffer. Two views of one buffer with the same strides are compared as boxes, exactly:
 * disjoint rows, column blocks and tiles run together. Views with different strides are compared
 * by the bytes between their first and last element where they can't be compared exactly.
 */
typedef struct ech_tensor {
    ech_buffer buffer;
    uint64_t offset;                /* bytes from the buffer's start to the first element */
    uint64_t shape[ECH_MAX_DIMS];   /* elements per dimension, outermost first, each >= 1 */
    uint64_t strides[ECH_MAX_DIMS]; /* elements between neighbours, per dimension */
    uint8_t dtype;                  /* ech_dtype */
    uint8_t ndim;                   /* 1..ECH_MAX_DIMS */
    uint8_t tag;                    /* ech_tag; set by ech_args_add() */
    uint8_t reserved[5];            /* zero */
} ech_tensor;

/** Bytes of one element, 0 for a value that is no dtype. */
ECH_API size_t ech_dtype_bytes(ech_dtype dtype);

/**
 * A dense row-major view of a buffer from byte `offset`. shape has ndim entries. Pure; what is
 * wrong with it is reported by the submit that uses it.
 */
ECH_API ech_tensor ech_tensor_view(ech_buffer buffer, uint64_t offset, ech_dtype dtype,
                                   uint32_t ndim, const uint64_t *shape);

/** A dense view without a buffer, for OUTPUT: the ring gives the memory at submit. */
ECH_API ech_tensor ech_tensor_unplaced(ech_dtype dtype, uint32_t ndim, const uint64_t *shape);

/** Part of a view: extent elements from start in one dimension. The strides stay. */
ECH_API ech_tensor ech_tensor_slice(const ech_tensor *t, uint32_t dim, uint64_t start,
                                    uint64_t extent);

/* ---- Task arguments ------------------------------------------------------------------------ */

/** A gate: a dependency that a thread opens. See ech_gate_create(). */
typedef struct ech_gate {
    uint64_t run;
    uint32_t slot;
    uint32_t generation;
} ech_gate;

/**
 * Arguments of one task: tensors first, then scalars. Plain memory of about 34 kB: keep one and
 * clear it, rather than put many on a stack. One owner at a time. Mistakes (too many, a tensor
 * after a scalar) are remembered and reported by the submit, with need and capacity, before
 * anything is taken.
 */
typedef struct ech_args {
    uint32_t n_tensors; /* asked for; may exceed the capacity, then submit fails */
    uint32_t n_scalars;
    uint32_t n_gates;
    uint32_t misordered; /* a tensor came after a scalar */
    ech_gate gates[ECH_MAX_GATES];
    uint64_t scalars[ECH_MAX_SCALARS];
    ech_tensor tensors[ECH_MAX_TENSORS];
} ech_args;

/** Makes args empty. Memory that was never used before needs it too. */
ECH_API void ech_args_clear(ech_args *args);
/** Appends a tensor. The tag is copied now; a later change of *t has no effect. */
ECH_API void ech_args_add(ech_args *args, ech_tag tag, const ech_tensor *t);
/** Appends a scalar. */
ECH_API void ech_args_add_scalar(ech_args *args, uint64_t value);
/** The task waits until the gate is open as well. */
ECH_API void ech_args_add_gate(ech_args *args, ech_gate gate);
/**
 * Tensor i as submit left it: an OUTPUT without a buffer has the ring's buffer filled in, so that
 * later tasks can name it. Borrowed, valid until args is cleared. NULL when there is no tensor i.
 */
ECH_API const ech_tensor *ech_args_tensor(const ech_args *args, uint32_t i);

/* ---- A task in its child ------------------------------------------------------------------- */

/** A tensor that the child can touch: bounds and access were checked against the region table. */
typedef struct ech_task_tensor {
    void *ptr;                      /* the first element, mapped; same address in every process */
    uint64_t bytes;                 /* from the first element to the end of the last */
    uint64_t shape[ECH_MAX_DIMS];   /* elements */
    uint64_t strides[ECH_MAX_DIMS]; /* elements */
    uint8_t dtype, ndim, tag, writable;
} ech_task_tensor;

ECH_API uint32_t ech_task_n_tensors(const ech_task *task);
ECH_API uint32_t ech_task_n_scalars(const ech_task *task);
/** Tensor i, borrowed until the callable returns; NULL when there is none. */
ECH_API const ech_task_tensor *ech_task_tensor_at(const ech_task *task, uint32_t i);
/** Scalar i; 0 when there is none. */
ECH_API uint64_t ech_task_scalar_at(const ech_task *task, uint32_t i);
/** Tensor i as it was submitted (identity unchanged), to pass it on to a level below. */
ECH_API const ech_tensor *ech_task_view_at(const ech_task *task, uint32_t i);
/**
 * To be called between operations of a long task: advances the progress word (a child that makes
 * none for ECHELON_STALL_LIMIT seconds is killed), answers control commands, and returns true when
 * the task should stop early, whose callable then returns ECH_ECANCELLED. `where` is a number that
 * the report of a stall names: the index of the program step.
 */
ECH_API bool ech_task_poll(ech_task *task, uint32_t where);

/**
 * A host function: runs in a sub child, or in a chip child that has no platform. A failure is a
 * code and a text in *err (never NULL here); the run's error names the child, the code and the
 * text. It must not keep pointers beyond its return. Standard input and output are /dev/null there.
 * One that takes longer than ECHELON_STALL_LIMIT has to call ech_task_poll() meanwhile.
 */
typedef ech_status (*ech_host_fn)(ech_task *task, ech_error *err);

/**
 * An orchestration callback: submits tasks. arg is what ech_worker_submit() was given, or the
 * ech_task when it runs as a callable of a child that is a worker. Returning a failure fails the
 * run; tasks already submitted finish or are skipped.
 */
typedef ech_status (*ech_orch_fn)(ech_orch *orch, void *arg, ech_error *err);

/* ---- Options ------------------------------------------------------------------------------- */

/**
 * Ring sizes; 0 means "not set here". Precedence, per field and ring: the configuration of the
 * dispatch, the worker's options, ECHELON_RING_HEAP / _TASK_WINDOW / _DEP_POOL (one value, or four
 * separated by commas; PTO2_RING_* are accepted as aliases), built in: 16 MiB, 4096, 16384.
 */
typedef struct ech_ring_sizes {
    uint64_t heap_bytes[ECH_RINGS];  /* multiple of 64 */
    uint32_t task_window[ECH_RINGS]; /* power of two, >= 4 */
    uint32_t dep_pool[ECH_RINGS];    /* >= 4 */
} ech_ring_sizes;

/** What a platform gives the runtime: src/runtime/child.h. Opaque here. */
struct ech_child_ops;

typedef struct ech_worker_options {
    size_t struct_size;      /* sizeof(ech_worker_options), set by _default() */
    const char *name;        /* in errors, traces and process names; NULL: "worker" */
    int level;               /* a label, >= 3; default 3 */
    uint32_t n_chips;        /* chip children, numbered from 0 */
    uint32_t n_subs;         /* sub children */
    uint32_t n_ranks;        /* MPI ranks; needs level >= 4 */
    const struct ech_child_ops *chip_ops; /* how a chip child runs programs; NULL: its callables
                                           * are host functions (tests, pipelines) */
    const void *const *chip_options; /* n_chips pointers to blobs for chip_ops->open, or NULL;
                                      * copied by create */
    const size_t *chip_options_bytes; /* their sizes */
    double startup_timeout_s;    /* deadline of init, whole subtree; > 0 and finite; default 300 */
    double close_timeout_s;      /* budget of close; default 10 */
    double stall_limit_s;        /* no progress of a busy child; 0: ECHELON_STALL_LIMIT, else 30 */
    uint32_t run_depth;          /* runs in flight: 1 or 2; default 2 */
    uint64_t reserve_bytes;      /* for buffers made after init; default 64 MiB */
    uint64_t program_bytes;      /* for the bytes of programs; default 64 MiB, taken when used */
    ech_ring_sizes rings;        /* all 0: environment or built in */
    uint32_t spin_us;            /* how long waits spin before they sleep; default 50 */
    bool trace;                  /* record spans from the start; see ech_worker_trace_write() */
} ech_worker_options;

ECH_API ech_worker_options ech_worker_options_default(void);

typedef enum ech_worker_state {
    ECH_WORKER_NEW,
    ECH_WORKER_INITIALIZING,
    ECH_WORKER_READY,
    ECH_WORKER_FAILED,
    ECH_WORKER_CLOSED,
    ECH_WORKER_STATE_COUNT
} ech_worker_state;

/* ---- Life cycle ---------------------------------------------------------------------------- */

/**
 * Makes a NEW worker. Options are checked here; EINVAL names the option.
 * Ownership: *ret_worker is the caller's, to be given to ech_worker_close().
 */
ECH_API ech_status ech_worker_create(ech_worker **ret_worker, const ech_worker_options *options,
                                     ech_error *err);

/**
 * Adds `child`, which must be NEW, as the next next-level child of `w`, which must be NEW and of a
 * higher level. Its init happens in the child process, as part of w's.
 * Ownership: on success child belongs to w and *child is NULL; on failure it stays the caller's.
 */
ECH_API ech_status ech_worker_add_child(ech_worker *w, ech_worker **child, uint32_t *ret_index,
                                        ech_error *err);

/**
 * Forks the zygote and all children, recursively, and waits until every one is ready: one
 * transaction under one deadline. On failure everything is rolled back, the worker is FAILED and
 * err holds the first cause with the child's own text. ESTATE when the worker isn't NEW.
 */
ECH_API ech_status ech_worker_init(ech_worker *w, ech_error *err);

/** Waits until another thread's init ends and returns its result: every waiter sees one cause. */
ECH_API ech_status ech_worker_wait_ready(ech_worker *w, ech_error *err);

/**
 * Stops submissions, drains what is in flight within options.close_timeout_s, shuts the children
 * down, reaps them, unmaps. From any thread, in any state, any number of times; concurrent closers
 * share one result. EREENTRANT from inside a callback of w; ESTATE from the thread that is inside
 * init. What could not be released stays in a journal and a later shutdown retries only that.
 * The worker stays valid (CLOSED) for queries.
 */
ECH_API ech_status ech_worker_shutdown(ech_worker *w, ech_error *err);

/**
 * ech_worker_shutdown(), then frees the worker. On failure *w stays valid, so that it can be
 * closed again. NULL and a pointer to NULL are fine. No other thread may use w any more.
 */
ECH_API ech_status ech_worker_close(ech_worker **w, ech_error *err);

ECH_API ech_worker_state ech_worker_state_get(const ech_worker *w);
ECH_API const char *ech_worker_state_name(ech_worker_state state);

/* ---- Memory -------------------------------------------------------------------------------- */

enum ech_region_flags {
    ECH_REGION_HUGE = 1, /* ask for huge pages: 2 MiB alignment, advice, ech_worker_region_collapse() */
};

/** A mapping that every process of the worker shares. */
typedef struct ech_region {
    uint32_t index;   /* in the worker's table */
    uint64_t bytes;   /* as asked for */
    void *ptr;        /* same address in all processes; read-only for a file */
} ech_region;

/**
 * Maps `bytes` of zeroed shared memory, not yet populated. NEW workers only. bytes >= 1.
 * Ownership: the worker's, unmapped by close.
 */
ECH_API ech_status ech_worker_region_create(ech_worker *w, const char *name, uint64_t bytes,
                                            uint32_t flags, ech_region *ret_region, ech_error *err);

/**
 * Maps a whole file read-only (the model's source files, a weights cache). NEW workers only. An
 * empty file is EINVAL. The descriptor is closed again.
 */
ECH_API ech_status ech_worker_region_map_file(ech_worker *w, const char *name, const char *path,
                                              ech_region *ret_region, ech_error *err);

/**
 * Makes a filled region's pages huge where the kernel can (MADV_COLLAPSE). Returns the number of
 * bytes now in huge pages, 0 where that doesn't work: advice, never a failure.
 */
ECH_API uint64_t ech_worker_region_collapse(ech_worker *w, const ech_region *region);

/**
 * A buffer over bytes [offset, offset + bytes) of a region. EACCESS for RW over a file.
 * Ownership: the caller's, until ech_worker_buffer_release(); close releases what is left.
 */
ECH_API ech_status ech_worker_buffer_at(ech_worker *w, const ech_region *region, uint64_t offset,
                                        uint64_t bytes, ech_access access, ech_buffer *ret_buffer,
                                        ech_error *err);

/**
 * A buffer with memory of its own, zeroed, aligned to 64 bytes: before init a new region, after
 * init a piece of the reserve. ELIMIT names the reserve when it is full.
 */
ECH_API ech_status ech_worker_buffer_create(ech_worker *w, const char *name, uint64_t bytes,
                                            ech_access access, ech_buffer *ret_buffer,
                                            ech_error *err);

/**
 * Ends a buffer. EBUSY while a run in flight names it; ECH_OK again for one that is already
 * released; ESTALE for an identity that never was one of this worker's.
 */
ECH_API ech_status ech_worker_buffer_release(ech_worker *w, ech_buffer buffer, ech_error *err);

/** Where a buffer is mapped, NULL when the identity isn't current. */
ECH_API void *ech_worker_buffer_ptr(const ech_worker *w, ech_buffer buffer);
/** Its size in bytes, 0 when the identity isn't current. */
ECH_API uint64_t ech_worker_buffer_bytes(const ech_worker *w, ech_buffer buffer);

/**
 * A dense view at an address. EACCESS, naming `what`, when it isn't wholly inside one buffer:
 * private memory can't be used by another process.
 */
ECH_API ech_status ech_worker_tensor_at(const ech_worker *w, const char *what, const void *ptr,
                                        ech_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                        ech_tensor *ret_tensor, ech_error *err);

/**
 * Copies between the caller's memory and a buffer; ELIMIT, naming offset, length and size, when it
 * would leave the buffer; ESTALE for a released or forged identity.
 */
ECH_API ech_status ech_worker_copy_in(ech_worker *w, ech_buffer buffer, uint64_t offset,
                                      const void *src, uint64_t len, ech_error *err);
ECH_API ech_status ech_worker_copy_out(const ech_worker *w, ech_buffer buffer, uint64_t offset,
                                       void *dst, uint64_t len, ech_error *err);

/* ---- Callables ----------------------------------------------------------------------------- */

/**
 * Names a callable by the SHA-256 of its descriptor, never by a slot number. `ticket` tells two
 * registrations of one descriptor apart, so that each can be undone once.
 */
typedef struct ech_callable {
    uint8_t digest[32];
    uint64_t ticket;
} ech_callable;

/**
 * Registers a host function under a name. Its descriptor is {name, ABI version, build id of the
 * image, offset in it}. After init it reaches every child that can run it or none. EUNSUPPORTED for
 * an image that was loaded after init; ELIMIT for the 65th callable; ENOTFOUND after init when no
 * child can run it.
 */
ECH_API ech_status ech_worker_register_host(ech_worker *w, const char *name, ech_host_fn fn,
                                            ech_callable *ret_callable, ech_error *err);

/**
 * Registers a program for chips: its bytes are copied into shared memory. The descriptor is
 * {kind, name, bytes}: the same bytes under two names are two callables.
 */
ECH_API ech_status ech_worker_register_program(ech_worker *w, const char *kind, const char *name,
                                               const void *bytes, size_t n_bytes,
                                               ech_callable *ret_callable, ech_error *err);

/** Registers an orchestration function for children that are workers themselves. */
ECH_API ech_status ech_worker_register_orch(ech_worker *w, const char *name, ech_orch_fn fn,
                                            ech_callable *ret_callable, ech_error *err);

/**
 * Undoes one registration. The last one of a digest takes effect at the next run boundary, when no
 * frame names it any more. ESTALE for a handle that isn't current.
 */
ECH_API ech_status ech_worker_unregister(ech_worker *w, const ech_callable *callable,
                                         ech_error *err);

/** Bytes of a digest's text, its terminating zero included: "sha256:" and 64 hex digits. */
#define ECH_DIGEST_TEXT 72
ECH_API void ech_digest_format(const uint8_t digest[32], char out[ECH_DIGEST_TEXT]);
/** EFORMAT says whether prefix, length or a digit is wrong, with the offset. */
ECH_API ech_status ech_digest_parse(const char *text, uint8_t ret_digest[32], ech_error *err);

/* ---- Runs ---------------------------------------------------------------------------------- */

/**
 * Runs `fn` on this thread and hands the graph that it submits to the scheduler. At most
 * options.run_depth runs are in flight: one more blocks here, before its callback. Runs finish in
 * order; a prepared run starts when the one before it is complete and is failed unlaunched, with
 * the same cause, when that one fails. Returns the callback's error. ESTATE unless READY,
 * EREENTRANT from inside a callback of w.
 * Ownership: *ret_run is the caller's, to be given to ech_run_release().
 */
ECH_API ech_status ech_worker_submit(ech_worker *w, ech_orch_fn fn, void *arg, ech_run **ret_run,
                                     ech_error *err);

/** No deadline. */
#define ECH_FOREVER (-1.0)

/**
 * Waits for the run: its first error, or ECH_OK. ETIMEOUT leaves it running, and a later wait may
 * succeed. Repeated waits give the same result. The waiting thread drives the scheduler.
 */
ECH_API ech_status ech_run_wait(ech_run *run, double timeout_s, ech_error *err);
/** Whether the run has finished. */
ECH_API bool ech_run_done(const ech_run *run);
/**
 * Asks the run to stop: tasks not launched are skipped, running ones are asked to stop between
 * operations, its closed gates fail. The run then fails with ECANCELLED. May be called at any time.
 */
ECH_API void ech_run_cancel(ech_run *run);
/** Number of the run, from 1. */
ECH_API uint64_t ech_run_id(const ech_run *run);
/** Lets go of the handle; the run itself goes on. NULL is fine. Sets *run to NULL. */
ECH_API void ech_run_release(ech_run **run);

/** Submit, wait and release in one. */
ECH_API ech_status ech_worker_run(ech_worker *w, ech_orch_fn fn, void *arg, ech_error *err);

/* ---- Inside the callback ------------------------------------------------------------------- */

/** Per-dispatch settings; NULL is all defaults. */
typedef struct ech_dispatch {
    size_t struct_size;   /* sizeof(ech_dispatch) */
    const char *label;    /* in traces and dumps; NULL: the callable's name. Copied, cut to 15 bytes */
    ech_ring_sizes rings; /* for an orchestration that runs inside the child; 0: not set */
} ech_dispatch;

ECH_API ech_dispatch ech_dispatch_default(void);

/**
 * Submits one task to next-level child `worker` (0..n-1). Arguments are checked before the first
 * visible effect: worker, kind of callable, access, overlap of two writes in this task, memory.
 * Blocks while a ring is full, and fails (SCOPE_DEADLOCK, HEAP_RING_DEADLOCK,
 * TASK_WINDOW_DEADLOCK, DEP_POOL_OVERFLOW) when waiting can't help. Once a task of the run has
 * failed, every submit returns that first error.
 * args stays the caller's and may be reused at once; OUTPUTs without a buffer get theirs.
 */
ECH_API ech_status ech_submit_next_level(ech_orch *orch, const ech_callable *callable,
                                         ech_args *args, const ech_dispatch *dispatch,
                                         int64_t worker, ech_error *err);

/**
 * Submits one task with `n` members, member i with args[i] on child workers[i]. It is launched when
 * all its children are idle and completes once, when all members have. workers must be distinct.
 */
ECH_API ech_status ech_submit_next_level_group(ech_orch *orch, const ech_callable *callable,
                                               ech_args *const *args, const int64_t *workers,
                                               size_t n, const ech_dispatch *dispatch,
                                               ech_error *err);

/** Submits a host function to whichever sub child is idle first. */
ECH_API ech_status ech_submit_sub(ech_orch *orch, const ech_callable *callable, ech_args *args,
                                  const ech_dispatch *dispatch, ech_error *err);

/**
 * Ring memory that lives until the current scope has ended and its users are done. The view is
 * dense and may be used with any tag.
 */
ECH_API ech_status ech_alloc(ech_orch *orch, ech_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             ech_tensor *ret_tensor, ech_error *err);

/**
 * Scopes bound the life of slots and ring memory: what was submitted or allocated inside is given
 * back when the scope has ended and its users are done. Inner scopes use rings of their own, so
 * they never wait for outer ones. The callback itself is the outermost scope, depth 0.
 * ELIMIT beyond ECH_MAX_SCOPES, ESTATE for an end without a begin.
 */
ECH_API ech_status ech_scope_begin(ech_orch *orch, ech_error *err);
ECH_API ech_status ech_scope_end(ech_orch *orch, ech_error *err);

/**
 * A gate: a producer without a task. Tasks whose args hold it wait until ech_gate_open(). A run
 * with a closed gate doesn't finish; cancelling it fails the gate.
 */
ECH_API ech_status ech_gate_create(ech_orch *orch, ech_gate *ret_gate, ech_error *err);
/** Opens a gate, from any thread. Opening it again, or one of a finished run, does nothing. */
ECH_API void ech_gate_open(ech_worker *w, ech_gate gate);
/** Fails a gate: its tasks fail with this code and text. */
ECH_API void ech_gate_fail(ech_worker *w, ech_gate gate, ech_status code, const char *text);

/** The worker that a callback runs on, and the run's number. */
ECH_API ech_worker *ech_orch_worker(ech_orch *orch);
ECH_API uint64_t ech_orch_run_id(const ech_orch *orch);

/* ---- Channels to a running task ------------------------------------------------------------ */

/*
 * A bounded queue of messages of one size, from one sender to one receiver, in a buffer: the task
 * that receives gets the buffer as a NO_DEP tensor and runs until it is told to stop. mem and bytes
 * are the buffer's. Not for the dispatch path: each message costs a system call.
 */

/** Bytes that a channel takes; 0 for sizes that can't be. */
ECH_API uint64_t ech_channel_bytes(uint32_t depth, uint64_t message_bytes);
/** Makes an empty channel. EINVAL names need and size. Ownership: the memory stays the caller's. */
ECH_API ech_status ech_channel_init(void *mem, uint64_t bytes, uint32_t depth,
                                    uint64_t message_bytes, ech_error *err);
/**
 * Sends a message of `len` == message_bytes bytes if there is room: exactly `depth` messages fit.
 * *ret_sent says whether; a full channel is no error. ESTATE after a stop.
 */
ECH_API ech_status ech_channel_try_send(void *mem, uint64_t bytes, const void *message,
                                        uint64_t len, bool *ret_sent, ech_error *err);
/** Nothing is accepted after this; the receiver sees it once it has taken all earlier messages. */
ECH_API ech_status ech_channel_stop(void *mem, uint64_t bytes, ech_error *err);
/**
 * Takes the oldest message, waiting for one; *ret_stopped is true, and nothing was taken, when the
 * channel is stopped and empty. ETIMEOUT.
 */
ECH_API ech_status ech_channel_receive(void *mem, uint64_t bytes, void *message, uint64_t len,
                                       double timeout_s, bool *ret_stopped, ech_error *err);

/* ---- Children ------------------------------------------------------------------------------ */

/* Children are numbered: next-level children first (0..n-1), then the sub children. */

typedef enum ech_child_state {
    ECH_CHILD_NONE,      /* not started */
    ECH_CHILD_STARTING,
    ECH_CHILD_READY,
    ECH_CHILD_LOST,      /* the process is gone; ech_worker_replace() */
    ECH_CHILD_POISONED,  /* broke the protocol or a time limit; ech_worker_replace() */
    ECH_CHILD_STOPPED,   /* shut down */
    ECH_CHILD_STATE_COUNT
} ech_child_state;

typedef struct ech_child_info {
    ech_child_state state;
    int pid;             /* 0 when there is no process */
    int wait_status;     /* as waitpid() gives it, when it is gone */
    uint32_t generation; /* counts replacements */
    uint32_t in_flight;  /* frames handed over and not completed */
    uint64_t tasks;      /* completed by it */
    int64_t busy_ns;     /* time spent inside callables */
    int64_t replace_ns;  /* what the last replacement took */
} ech_child_info;

ECH_API uint32_t ech_worker_n_next(const ech_worker *w);
ECH_API uint32_t ech_worker_n_children(const ech_worker *w);
ECH_API ech_status ech_worker_child_info(ech_worker *w, uint32_t child, ech_child_info *ret_info,
                                         ech_error *err);

/**
 * Forks a lost or poisoned child again, with the same mappings, and waits until it is ready. A
 * child that is still alive is killed first. Other children go on. Tasks that were lost have
 * failed; the owner submits them again.
 */
ECH_API ech_status ech_worker_replace(ech_worker *w, uint32_t child, ech_error *err);

/** Bytes of a control command's request and of its answer. */
#define ECH_CONTROL_BYTES 4096

/**
 * Sends a command to a child by the control lane, which is answered whatever runs: op 0 is a ping
 * (the answer echoes the request), other numbers are the platform's. A timeout poisons the child's
 * control lane: later commands fail at once. Answers of more than cap bytes are ELIMIT.
 */
ECH_API ech_status ech_worker_control(ech_worker *w, uint32_t child, uint32_t op, const void *req,
                                      size_t req_len, void *resp, size_t cap, size_t *ret_len,
                                      double timeout_s, ech_error *err);

/**
 * Measures the bare hand-over: gives child one task with one scalar n times, by the mailbox code
 * that runs use but without a graph, and waits for each completion: accepted, completed, identity
 * and liveness checked. ret_ns gets n durations. ESTATE while a run is in flight. callable must be
 * a host function that the child can run.
 */
ECH_API ech_status ech_worker_round_trips(ech_worker *w, uint32_t child,
                                          const ech_callable *callable, size_t n, int64_t *ret_ns,
                                          ech_error *err);

/* ---- Observation --------------------------------------------------------------------------- */

/** One ring, now and since init. Units: bytes, slots or entries. */
typedef struct ech_ring_counters {
    uint64_t capacity, used, high_water;
    uint64_t taken;      /* in total */
    int64_t blocked_ns;  /* time that submitters waited for it */
} ech_ring_counters;

typedef struct ech_worker_counters {
    ech_ring_counters heap[ECH_RINGS], task_window[ECH_RINGS], dep_pool[ECH_RINGS];
    uint64_t runs, runs_failed, tasks, tasks_failed, tasks_skipped, tasks_accepted, edges;
    uint64_t gates, groups, children_lost, children_replaced, wakes;
    uint64_t warnings; /* lines logged: a run that waits with nothing running for 5 s, a child that a
                        * group kept idle for 5 s while it had tasks */
    uint32_t runs_in_flight, ready, in_flight, callables, regions, buffers;
    uint64_t region_bytes, reserve_used, reserve_bytes;
} ech_worker_counters;

/** One consistent snapshot. Any state, any thread. */
ECH_API void ech_worker_snapshot(ech_worker *w, ech_worker_counters *ret_counters);

/** Switches spans on or off while the worker runs. */
ECH_API void ech_worker_trace_set(ech_worker *w, bool enabled);
/**
 * Writes all spans recorded since init, of all processes, as a Chrome / Perfetto JSON trace: one
 * lane per child and core, tasks named by callable, arrows for dependencies.
 */
ECH_API ech_status ech_worker_trace_write(ech_worker *w, const char *path, ech_error *err);

/** Keeps the graph of the following runs for ech_run_deps_write(). Off by default; costs memory. */
ECH_API void ech_worker_deps_set(ech_worker *w, bool enabled);
/** Writes the graph of a run as DOT (path ends in .dot) or JSON. ESTATE when it wasn't kept. */
ECH_API ech_status ech_run_deps_write(const ech_run *run, const char *path, ech_error *err);

#ifdef __cplusplus
}
#endif

#endif
