/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that runs a program: a nondeterministic pushdown automaton made deterministic as it
 * goes.
 *
 *     frame    one entry of a stack: a return address, or a loop with its count; and the frame
 *              below. Equal frames are one frame, so a stack is a number
 *     item     (instruction, stack): one thing the automaton may be doing, waiting for a byte
 *     config   a set of items, sorted. Equal configs are one config, so a state is a number
 *
 * Successors of a config are found once per class of bytes and remembered. Frames and configs are
 * kept until the memory limit is reached; then ech_machine_collect keeps only those that somebody
 * holds. Not thread safe: the constraint's lock guards it.
 */
#ifndef ECH_TEXT_CONSTRAINT_MACHINE_H
#define ECH_TEXT_CONSTRAINT_MACHINE_H

#include "src/text/constraint_program.h"

#define ECH_CONFIG_DEAD 0u /* no item: the text can't be continued */
#define ECH_MAX_ITEMS   20000u

typedef struct ech_frame {
    uint32_t below;
    uint32_t tag;                   /* return address, or loop | ECH_FRAME_LOOP */
    uint32_t value;                 /* count of a loop */
    uint32_t nest;                  /* levels of the stack that count */
    uint32_t rough[ECH_CX_REACHES]; /* the frame's stand-ins for masks, 0: not computed yet */
} ech_frame;

#define ECH_FRAME_LOOP 0x80000000u

typedef struct ech_item {
    uint32_t pc;
    uint32_t stack; /* 0: empty */
} ech_item;

typedef struct ech_config {
    uint32_t first, n; /* items */
    uint32_t next;     /* its row of successors plus one, 0: none yet */
    /* The configs whose masks of tokens within a reach are the same, UINT32_MAX: not computed yet
     */
    uint32_t rough[ECH_CX_REACHES];
    uint32_t mask[ECH_CX_REACHES]; /* indices of those masks plus one, 0: none yet */
    uint32_t local; /* the same for what the mask of a relative config is made from */
} ech_config;

typedef struct ech_machine {
    const ech_program *program;
    uint32_t reach[ECH_CX_REACHES]; /* how far ahead masks look, in bytes */
    size_t max_bytes;               /* hard limit */

    ech_frame *frames; /* [0] unused */
    uint32_t n_frames, cap_frames;
    ech_index frame_index;
    ech_item *items;
    uint32_t n_items, cap_items;
    ech_config *configs;
    uint32_t n_configs, cap_configs;
    ech_index config_index;
    uint32_t *rows; /* [n_rows][n_classes], UINT32_MAX: not computed yet */
    uint32_t n_rows, cap_rows;

    /* scratch of one step */
    ech_item *work;
    uint32_t n_work, cap_work;
    ech_item *found; /* items of the config being built */
    uint32_t n_found, cap_found;
    uint64_t *seen; /* (pc, stack) pairs of this step, a hash table of cap_seen slots */
    uint32_t *seen_round;
    uint32_t n_seen, cap_seen, round;
    uint32_t *fresh; /* frames of nullable loops begun in this step */
    uint32_t n_fresh, cap_fresh;

    ech_status rc; /* ENOMEM or ELIMIT of the step that failed; the caller clears it */
} ech_machine;

ech_status ech_machine_init(ech_machine *m, const ech_program *program,
                            const uint32_t reach[ECH_CX_REACHES], size_t max_bytes);
void ech_machine_fini(ech_machine *m);
size_t ech_machine_bytes(const ech_machine *m);

/* The config before the first byte. */
uint32_t ech_machine_start(ech_machine *m);
/*
 * The config after one byte of a class; DEAD when there is none, and when m->rc is set. once: the
 * answer isn't kept, for places that a text passes through and won't come back to.
 */
uint32_t ech_machine_step_slow(ech_machine *m, uint32_t config, uint32_t byte_class, bool once);

static inline uint32_t ech_machine_step(ech_machine *const m, const uint32_t config,
                                        const uint32_t byte_class)
{
    const uint32_t row = m->configs[config].next;
    if (row != 0) {
        const uint32_t to = m->rows[(size_t)(row - 1) * m->program->n_classes + byte_class];
        if (to != UINT32_MAX) return to;
    }
    return ech_machine_step_slow(m, config, byte_class, false);
}

/* One step along a text that is accepted: used if it is known, not kept if it isn't. */
static inline uint32_t ech_machine_step_once(ech_machine *const m, const uint32_t config,
                                             const uint8_t byte)
{
    const uint32_t c = m->program->class_of[byte];
    return m->configs[config].next != 0 ? ech_machine_step(m, config, c)
                                        : ech_machine_step_slow(m, config, c, true);
}

/* Whether the text may end here. */
bool ech_machine_accepts(const ech_machine *m, uint32_t config);
/* Whether any byte may follow. */
bool ech_machine_can_continue(const ech_machine *m, uint32_t config);
/*
 * The config that stands in for this one where only the next token counts, and that is no longer
 * than the reach: counts that it can't bring near their bounds are set to one value, states of
 * automata that it can't tell apart to one state. Its mask is the same.
 */
uint32_t ech_machine_rough(ech_machine *m, uint32_t config, int reach);
/*
 * The config as seen by somebody who doesn't know the whole stack: all items' stacks are cut at the
 * topmost return address that they share, and returning there is the item (EXIT, empty stack). The
 * configs of all places where a string is being written differ, their relative config is one.
 * *ret_base is the frame of that return address. DEAD when there is none near the top.
 */
uint32_t ech_machine_relative(ech_machine *m, uint32_t config, uint32_t *ret_base);
/* The config after returning to a frame's address. */
uint32_t ech_machine_return(ech_machine *m, uint32_t frame);
/* Whether a config has the item (EXIT, empty stack); *ret_only: and no other. */
bool ech_machine_exits(const ech_machine *m, uint32_t config, bool *ret_only);
/* The config of the items in m->found, which differ from each other. */
uint32_t ech_machine_config_of_found(ech_machine *m);
/* The config of one instruction, on an empty stack. */
uint32_t ech_machine_config_at(ech_machine *m, uint32_t pc);

/*
 * Empties the machine but for the configs that are visited: visit calls keep for each place that
 * holds a config; keep replaces its number.
 */
typedef void ech_machine_keep(void *keeper, uint32_t *config);
ech_status ech_machine_collect(ech_machine *m,
                               void (*visit)(void *user, ech_machine_keep *keep, void *keeper),
                               void *user);

#endif
