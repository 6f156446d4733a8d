/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step: a plan of the scheduler as the tensors of a forward and a sample task, its run, and
 * the records that come out of it. Prompts to embed are a task of their own in the same graph:
 *
 *     rows  [ of answers … | of embeddings … ]
 *             forward → sample   embed
 *
 *     built → sent → (one more may be built and sent behind it) → waited for → read
 *
 * Two exist, by parity. A step reads the ids that the step before it drew from shared memory, so
 * it is built while that one runs. Everything here happens on the engine's thread; the graph
 * callback too.
 */
#ifndef ECH_ENGINE_STEP_H
#define ECH_ENGINE_STEP_H

#include "src/engine/memory.h"
#include "src/engine/request.h"

/* What a row of the sampler stands for. */
typedef struct ech_draw {
    ech_answer *answer;
    bool awaits_mask; /* its mask can be written when the id before it is known */
    bool is_score;    /* of the known id at pos, a prompt's or one ahead; else it is drawn */
    uint32_t pos;     /* of the id */
} ech_draw;

typedef struct ech_step {
    ech_step_plan plan;
    uint32_t parity;
    ech_draw draws[ECH_STEP_MAX_LOGITS]; // [n_draws] in the order of the sampler's rows
    uint32_t n_draws;
    uint32_t n_hidden; // hidden states that embeddings take of it
    bool has_gate;     // `sample` waits until the masks that were missing are written
    ech_gate gate;
    ech_run *run; // NULL: not in flight
    int64_t sent_ns;
} ech_step;

typedef struct ech_programs {
    ech_callable pack, load, prefill, decode, sample, embed;
} ech_programs;

/*
 * A slot's own part of the shared memory, at every admission of an answer: lists, mirostat's state,
 * and nothing of the history yet.
 */
void ech_step_prepare_slot(const ech_memory *m, ech_answer *a);

/* Fills the tensors of step->parity from step->plan. Masks come from the hooks: a hook that fails
 * is reported by *ret_failed (the answer) and its error; the step must then be planned again. */
ech_status ech_step_build(ech_step *step, const ech_memory *m, ech_answer **ret_failed,
                          ech_error *err);
/* Submits it. args is scratch. On success step->run is in flight. */
ech_status ech_step_send(ech_step *step, const ech_memory *m, const ech_programs *programs,
                         ech_worker *w, ech_args *args, ech_error *err);
/*
 * Writes the masks that a step in flight waits for, now that the step before it was read, and opens
 * its gate. An answer whose hook fails goes to *ret_failed, with its error, and the call is to be
 * repeated; it draws without a mask, and nothing of that is seen.
 */
ech_status ech_step_open_gate(ech_step *step, const ech_memory *m, ech_worker *w,
                              ech_answer **ret_failed, ech_error *err);
/* The record of draw i of a step that is complete. Input from another process: checked. */
const ech_sample_out *ech_step_record(const ech_step *step, const ech_memory *m, uint32_t i);

#endif
