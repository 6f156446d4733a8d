/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the engine share: opening it on a model of the tree, running a request to its end,
 * and what came out of it. Everything goes through echelon/engine.h.
 */
#ifndef ECH_TESTS_UNIT_ENGINE_HARNESS_H
#define ECH_TESTS_UNIT_ENGINE_HARNESS_H

#include "echelon/engine.h"
#include "src/base/buf.h"

enum { H_MAX_CHOICES = 256 };

typedef struct h_choice {
    int32_t *ids;    // [n]
    float *logprobs; // [n] of the ids, where they were asked for
    uint32_t n;
    int32_t *prompt_ids; // [n_prompt] with prompt_logprobs
    float *prompt_logprobs;
    uint32_t n_prompt;
    ech_buf text;
    ech_finish finish;
    const char *stop;
    ech_error error;
    ech_usage usage;
    uint64_t seed;
    uint32_t n_started, n_finished;
    bool is_broken; // an event came where it must not
} h_choice;

typedef struct h_result {
    ech_status submitted; // what ech_engine_submit gave; the rest counts for ECH_OK
    ech_error error;      // of it, or of DONE
    h_choice choices[H_MAX_CHOICES];
    uint32_t n_choices;
    ech_usage usage;
    uint64_t seed;
    uint32_t n_done;
} h_result;

/* Options that most tests start from: two threads, 512 positions, a pool of 64 pages. */
ech_engine_options h_options(void);
/* The model that comes with the tree unless o->model_dir says otherwise. Fails the test. */
ech_engine *h_open(const ech_engine_options *o);
/* A request of one prompt with log-probabilities, greedy, 32 tokens at most. */
ech_request_options h_request(const ech_prompt *prompt);
ech_prompt h_text(const char *text);

/* Takes one event into the result. */
void h_take(h_result *r, const ech_event *ev);
/* Submits, reads to the end, closes. The result is h_free's. */
h_result *h_run(ech_engine *e, const ech_request_options *o);
/* Reads a submitted request to its end and closes it. */
h_result *h_finish(ech_request **request);
void h_free(h_result **r);
/* Forgets what it holds, to be used again. */
void h_clear(h_result *r);

/* Same ids, same bits of log-probabilities, same text and reason. */
void h_assert_same(const h_choice *a, const h_choice *b);
bool h_is_same(const h_choice *a, const h_choice *b);
void h_print_choice(const char *name, const h_choice *c);

/* A constraint for the engine's vocabulary; fails the test when it doesn't compile. */
struct ech_constraint *h_constraint(ech_engine *e, int kind, const char *text);
/* The same constraint as a hook, which knows no id ahead. */
ech_constraint_hook h_plain_hook(struct ech_constraint *constraint);

ech_engine_counters h_counters(ech_engine *e);
/* Waits until nothing runs or waits; then every page must be free or cached. */
void h_assert_idle(ech_engine *e);

/* A seed from ECH_SEED or the given one, printed. */
uint64_t h_seed(uint64_t seed);
/* The next of a sequence of numbers below n. */
uint32_t h_draw(uint64_t *rng, uint32_t n);

#endif
