/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim chip: rules, programs and their runs. sim.h is the contract. One thread, the child's; the
 * step itself is in sim_step.c, chip-local memory in sim_memory.c.
 */
#include "src/chip/sim/sim.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/chip/pack.h"
#include "src/chip/sampler_program.h"
#include "src/chip/sim/sim_memory.h"
#include "src/chip/sim/sim_step.h"

struct ech_sim {
    ech_sim_options options;
    uint32_t generation;
    uint32_t seen[ECH_SIM_MAX_RULES]; /* matching events so far, per rule */
    ech_sim_memory memory;
};

struct ech_sim_program {
    const void *bytes;
    size_t len;
    uint32_t kind;   /* ech_program_kind; 0: a call */
    void *scratch;   /* of the sampler, one core */
    uint32_t *order; // [max_rows] of a forward program
};

/* ---- rules --------------------------------------------------------------------------------- */

/* A task that takes its time: a poll every millisecond. */
static ech_status be_slow(const int32_t ms, const ech_exec_args *const args, ech_error *const err)
{
    const struct timespec one_ms = { 0, 1000000 };
    for (int32_t i = 0; i < ms; i++) {
        (void)nanosleep(&one_ms, NULL);
        if (args != NULL && args->poll != NULL && args->poll(args->poll_ctx, (uint32_t)i)) {
            return ech_fail(err, ECH_ECANCELLED, "sim: cancelled after %d of %d ms", i + 1, ms);
        }
    }
    return ECH_OK;
}

static ech_status act(const uint32_t action, const int32_t arg, const ech_exec_args *const args,
                      ech_error *const err)
{
    switch (action) {
    case ECH_SIM_FAIL:
        return ech_fail(err, arg < 0 ? (ech_status)arg : ECH_ETASK, "sim: failed as it was told");
    case ECH_SIM_STALL:
        for (;;) {
            (void)pause();
        }
    case ECH_SIM_EXIT:
        _exit(arg);
    case ECH_SIM_KILL:
        (void)kill(getpid(), arg != 0 ? arg : SIGKILL);
        return ECH_OK;
    case ECH_SIM_SLOW:
        return be_slow(arg, args, err);
    default:
        return ECH_OK;
    }
}

/* Whether a rule is about this event, before it is counted. */
static bool matches(const ech_sim *const sim, const ech_sim_rule *const r, const uint32_t event,
                    const uint32_t kind, const ech_sim_step *const step)
{
    if (r->event != event || (r->kind != 0 && r->kind != kind)) return false;
    if (sim->generation < r->min_generation || sim->generation > r->max_generation) return false;
    if (r->has_id == 0) return true;
    bool found = false;
    for (uint32_t i = 0; step != NULL && i < step->n_rows; i++) {
        found = found || ech_sim_step_id(step, i) == r->id;
    }
    return found;
}

static ech_status apply_rules(ech_sim *const sim, const uint32_t event, const uint32_t kind,
                              const ech_sim_step *const step, const ech_exec_args *const args,
                              ech_error *const err)
{
    for (uint32_t i = 0; i < sim->options.n_rules; i++) {
        const ech_sim_rule *const r = &sim->options.rules[i];
        if (!matches(sim, r, event, kind, step)) continue;
        const uint32_t n = sim->seen[i]++;
        const bool now =
            n == r->first || (n > r->first && r->every != 0 && (n - r->first) % r->every == 0);
        if (now) ECH_TRY(act(r->action, r->arg, args, err));
    }
    return ECH_OK;
}

static ech_status check_options(const ech_sim_options *const o, ech_error *const err)
{
    if (o->struct_size != sizeof *o || o->n_rules > ECH_SIM_MAX_RULES) {
        return ech_fail(err, ECH_EINVAL, "sim: options of %u bytes with %u rules, expected %zu, %d",
                        o->struct_size, o->n_rules, sizeof *o, ECH_SIM_MAX_RULES);
    }
    for (uint32_t i = 0; i < o->n_rules; i++) {
        if (o->rules[i].event >= ECH_SIM_EVENTS || o->rules[i].action >= ECH_SIM_ACTIONS) {
            return ech_fail(err, ECH_EINVAL, "sim: rule %u has event %u, action %u: unknown", i,
                            o->rules[i].event, o->rules[i].action);
        }
    }
    return ECH_OK;
}

ech_status ech_sim_create(ech_sim **const ret_sim, const void *const options,
                          const size_t options_bytes, const uint32_t generation,
                          ech_error *const err)
{
    ech_sim_options o = { .struct_size = sizeof o };
    if (options_bytes != 0) {
        if (options_bytes != sizeof o) {
            return ech_fail(err, ECH_EINVAL, "sim: options of %zu bytes, expected %zu",
                            options_bytes, sizeof o);
        }
        memcpy(&o, options, sizeof o);
    }
    ECH_TRY(check_options(&o, err));
    ech_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL) return ech_fail(err, ECH_ENOMEM, "sim: out of memory");
    sim->options = o;
    sim->generation = generation;
    ech_status rc = ech_sim_memory_init(&sim->memory, o.local_bytes, err);
    if (rc == ECH_OK) rc = apply_rules(sim, ECH_SIM_OPEN, 0, NULL, NULL, err);
    if (rc == ECH_OK) {
        *ret_sim = sim;
    } else {
        ech_sim_destroy(&sim);
    }
    return rc;
}

void ech_sim_destroy(ech_sim **const sim)
{
    if (*sim == NULL) return;
    ech_sim_memory_fini(&(*sim)->memory);
    free(*sim);
    *sim = NULL;
}

/* ---- programs ------------------------------------------------------------------------------ */

static bool is_call(const void *const bytes, const size_t len)
{
    uint64_t word = 0;
    if (len == sizeof word) memcpy(&word, bytes, sizeof word);
    return word == ECH_SIM_CALL;
}

static ech_status check_program(const void *const bytes, const size_t len, uint32_t *const ret_kind,
                                ech_error *const err)
{
    ech_program_kind kind;
    ECH_TRY(ech_program_head_check(bytes, len, &kind, err));
    *ret_kind = kind;
    switch (kind) {
    case ECH_PROGRAM_FORWARD:
        return ech_forward_check(bytes, len, UINT64_MAX, err);
    case ECH_PROGRAM_PACK:
        return ech_pack_check(bytes, len, err);
    case ECH_PROGRAM_SAMPLE:
        return ech_sample_program_check(bytes, len, err);
    default:
        return ech_fail(err, ECH_EUNSUPPORTED, "sim: a program of kind %d", (int)kind);
    }
}

static bool take_memory(ech_sim_program *const p)
{
    if (p->kind == ECH_PROGRAM_SAMPLE) {
        const ech_sample_header *const h = p->bytes;
        p->scratch = aligned_alloc(64, h->scratch_bytes);
        return p->scratch != NULL;
    }
    if (p->kind == ECH_PROGRAM_FORWARD) {
        const ech_forward_header *const h = p->bytes;
        p->order = calloc((size_t)h->max_rows + 1, sizeof *p->order);
        return p->order != NULL;
    }
    return true;
}

ech_status ech_sim_load(ech_sim *const sim, const void *const bytes, const size_t len,
                        ech_sim_program **const ret_program, ech_error *const err)
{
    uint32_t kind = 0;
    if (!is_call(bytes, len)) ECH_TRY(check_program(bytes, len, &kind, err));
    ECH_TRY(apply_rules(sim, ECH_SIM_LOAD, kind, NULL, NULL, err));
    ech_sim_program *p = calloc(1, sizeof *p);
    if (p == NULL) return ech_fail(err, ECH_ENOMEM, "sim: out of memory");
    *p = (ech_sim_program){ .bytes = bytes, .len = len, .kind = kind };
    if (!take_memory(p)) {
        ech_sim_unload(&p);
        return ech_fail(err, ECH_ENOMEM, "sim: out of memory");
    }
    *ret_program = p;
    return ECH_OK;
}

void ech_sim_unload(ech_sim_program **const program)
{
    ech_sim_program *const p = *program;
    if (p == NULL) return;
    free(p->scratch);
    free(p->order);
    free(p);
    *program = NULL;
}

static ech_status run_forward(ech_sim *const sim, const ech_sim_program *const p,
                              const ech_exec_args *const args, ech_error *const err)
{
    ech_sim_step step;
    ECH_TRY(ech_sim_step_bind(p->bytes, args, &step, err));
    ECH_TRY(apply_rules(sim, ECH_SIM_RUN, p->kind, &step, args, err));
    return ech_sim_step_run(&step, p->order, err);
}

static ech_status run_sample(const ech_sim_program *const p, const ech_exec_args *const args,
                             ech_error *const err)
{
    ech_sample_args a;
    ECH_TRY(ech_sample_bind(p->bytes, args, &a, err));
    for (uint32_t i = 0; i < a.n_rows; i++) {
        ech_sample_row(&a, i, p->scratch);
    }
    return ECH_OK;
}

static ech_status run_call(const ech_exec_args *const args, ech_error *const err)
{
    if (args->n_scalars == 0) return ECH_OK;
    const uint64_t arg = args->n_scalars > 1 ? args->scalars[1] : 0;
    if (args->scalars[0] >= ECH_SIM_ACTIONS) {
        return ech_fail(err, ECH_EINVAL, "sim: a call of action %llu",
                        (unsigned long long)args->scalars[0]);
    }
    return act((uint32_t)args->scalars[0], (int32_t)(int64_t)arg, args, err);
}

ech_status ech_sim_run(ech_sim *const sim, ech_sim_program *const program,
                       const ech_exec_args *const args, ech_error *const err)
{
    if (args->poll != NULL && args->poll(args->poll_ctx, 0)) {
        return ech_fail(err, ECH_ECANCELLED, "sim: cancelled before it began");
    }
    if (program->kind == ECH_PROGRAM_FORWARD) return run_forward(sim, program, args, err);
    ECH_TRY(apply_rules(sim, ECH_SIM_RUN, program->kind, NULL, args, err));
    if (program->kind == ECH_PROGRAM_SAMPLE) return run_sample(program, args, err);
    return program->kind == 0 ? run_call(args, err) : ECH_OK;
}

/* ---- commands ------------------------------------------------------------------------------ */

ech_status ech_sim_control(ech_sim *const sim, const uint32_t op, const void *const req,
                           const size_t req_len, void *const resp, const size_t cap,
                           size_t *const ret_len, ech_error *const err)
{
    ech_sim_memory_request r;
    if (op < ECH_SIM_ALLOC || op > ECH_SIM_COPY_OUT) {
        return ech_fail(err, ECH_EUNSUPPORTED, "sim: command %u is unknown", op);
    }
    if (req_len < sizeof r) {
        return ech_fail(err, ECH_EINVAL, "sim: command %u with %zu bytes, needed are %zu", op,
                        req_len, sizeof r);
    }
    memcpy(&r, req, sizeof r);
    void *at;
    *ret_len = 0;
    switch (op) {
    case ECH_SIM_ALLOC:
        if (cap < sizeof r.address) return ech_fail(err, ECH_ELIMIT, "sim: no room for an address");
        ECH_TRY(ech_sim_memory_alloc(&sim->memory, r.bytes, &r.address, err));
        memcpy(resp, &r.address, sizeof r.address);
        *ret_len = sizeof r.address;
        return ECH_OK;
    case ECH_SIM_FREE:
        return ech_sim_memory_free(&sim->memory, r.address, err);
    case ECH_SIM_COPY_IN:
        if (r.bytes > req_len - sizeof r) {
            return ech_fail(err, ECH_EINVAL, "sim: copying %llu bytes in, %zu came with it",
                            (unsigned long long)r.bytes, req_len - sizeof r);
        }
        ECH_TRY(ech_sim_memory_at(&sim->memory, r.address, r.bytes, &at, err));
        memcpy(at, (const char *)req + sizeof r, r.bytes);
        return ECH_OK;
    default:
        if (r.bytes > cap) {
            return ech_fail(err, ECH_ELIMIT, "sim: copying %llu bytes out, room is for %zu",
                            (unsigned long long)r.bytes, cap);
        }
        ECH_TRY(ech_sim_memory_at(&sim->memory, r.address, r.bytes, &at, err));
        memcpy(resp, at, r.bytes);
        *ret_len = r.bytes;
        return ECH_OK;
    }
}
