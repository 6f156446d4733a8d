/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much an engine takes of everything, decided before anything is mapped: context, KV pages,
 * rows of a step, arena. What doesn't fit is refused here, with what would.
 */
#ifndef ECH_ENGINE_SIZES_H
#define ECH_ENGINE_SIZES_H

#include "src/chip/platform.h"
#include "src/engine/engine_int.h"

typedef struct ech_sizes {
    ech_forward_options forward;
    ech_model_plan plan;
    ech_memory_shape shape;
    uint64_t available;     /* bytes of memory that may be taken now */
    const char *limited_by; /* what says so; NULL: the machine's memory */
} ech_sizes;

/*
 * From the engine's options and model, and the bytes of memory that may be taken, by whose word
 * (NULL: nobody's). Without kv_memory the pages take half of what the weights leave, more where one
 * answer of full length needs it; what even that can't hold is taken off the context, with a
 * warning. EINVAL: an option is out of range. ENOMEM: the plan doesn't fit, with its numbers.
 */
ech_status ech_sizes_plan(const ech_engine *e, uint64_t available, const char *limited_by,
                          ech_sizes *ret, ech_error *err);

/* The plan in words, lines that end with a newline; *ret_text is for free(). ENOMEM. */
ech_status ech_sizes_describe(const ech_engine *e, const ech_sizes *s, const ech_cpu_options *cpu,
                              char **ret_text, ech_error *err);

#endif
