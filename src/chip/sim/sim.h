/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Platform "sim": a chip that computes nothing real, and fails, stalls or dies on request. With it
 * the engine and the runtime are tested at full speed and in every kind of accident.
 *
 * What it runs:
 *
 *     pack      nothing
 *     forward   a model of hashes. The state of a position is hash(state of the position before,
 *               id), kept in the first 256 bytes of the position's page; logits are numbers drawn
 *               from that state. So what is sampled depends on every id before it and on every page
 *               being the right one, and on nothing else: a page that is lost, shared wrongly or
 *               crossed with another sequence's changes the text.
 *     sample    the real sampler, on one core
 *     a call    a program of 8 bytes, ECH_SIM_CALL: does what its scalars say (action, argument)
 *
 * What goes wrong, and when, is a list of rules in the chip's options. Rules count events of one
 * process; a replacement counts from 0 again, and rules can be bound to generations.
 *
 * It also has chip-local memory: a region that only this process maps (sim_memory.h).
 *
 * Owned by the one thread of the chip child. Left out: speed, cores.
 */
#ifndef ECH_CHIP_SIM_H
#define ECH_CHIP_SIM_H

#include "src/chip/exec.h"

/* "ECHSIMCL": the bytes of a program that does what scalars [action, argument] say. */
#define ECH_SIM_CALL      UINT64_C(0x4c434d4953484345)
#define ECH_SIM_MAX_RULES 32

typedef enum ech_sim_event {
    ECH_SIM_OPEN,
    ECH_SIM_LOAD,
    ECH_SIM_RUN,
    ECH_SIM_EVENTS,
} ech_sim_event;

typedef enum ech_sim_action {
    ECH_SIM_NOTHING,
    ECH_SIM_FAIL,  /* return status `arg`, ETASK where that is none */
    ECH_SIM_STALL, /* never return, never progress */
    ECH_SIM_EXIT,  /* _exit(arg) */
    ECH_SIM_KILL,  /* send signal arg to itself; 0: SIGKILL */
    ECH_SIM_SLOW,  /* take arg ms more, progressing every ms; then go on */
    ECH_SIM_ACTIONS,
} ech_sim_action;

/* One thing that goes wrong. All zero but for the action: the first open. */
typedef struct ech_sim_rule {
    uint32_t event;  /* ech_sim_event */
    uint32_t action; /* ech_sim_action */
    uint32_t kind;   /* ech_program_kind that is loaded or run; 0: any */
    uint32_t first;  /* at the first-th matching event of the process, from 0 */
    uint32_t every;  /* and at every every-th after it; 0: only then */
    uint32_t min_generation;
    uint32_t max_generation; /* 0 with min 0: the first process only. UINT32_MAX: all later ones */
    uint32_t has_id;         /* 1: only steps in which a row has the id below: a poisoned request */
    int32_t id;
    int32_t arg;
} ech_sim_rule;

_Static_assert(sizeof(ech_sim_rule) == 40, "shared between processes");

/* The options blob of platform "sim"; none at all: nothing goes wrong. */
typedef struct ech_sim_options {
    uint32_t struct_size; /* sizeof(ech_sim_options) */
    uint32_t n_rules;
    uint64_t local_bytes; /* of chip-local memory; 0: none */
    ech_sim_rule rules[ECH_SIM_MAX_RULES];
} ech_sim_options;

typedef struct ech_sim ech_sim;
typedef struct ech_sim_program ech_sim_program;

/* Options checked and copied; then the rules of ECH_SIM_OPEN. NULL, 0: no rules. */
ech_status ech_sim_create(ech_sim **ret_sim, const void *options, size_t options_bytes,
                          uint32_t generation, ech_error *err);
void ech_sim_destroy(ech_sim **sim);

/* Checks a program and takes the memory its runs need. The bytes must stay where they are. */
ech_status ech_sim_load(ech_sim *sim, const void *bytes, size_t len, ech_sim_program **ret_program,
                        ech_error *err);
void ech_sim_unload(ech_sim_program **program);
/* Applies the rules, then runs. The contract of tensors and scalars is that of the cpu chip. */
ech_status ech_sim_run(ech_sim *sim, ech_sim_program *program, const ech_exec_args *args,
                       ech_error *err);
/* Answers a command of sim_memory.h; EUNSUPPORTED for any other. */
ech_status ech_sim_control(ech_sim *sim, uint32_t op, const void *req, size_t req_len, void *resp,
                           size_t cap, size_t *ret_len, ech_error *err);

#endif
