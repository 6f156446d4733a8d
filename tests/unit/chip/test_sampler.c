/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row of the sampler: what a row may say and what its record answers, in small vocabularies
 * whose results are worked out by hand. Distributions are compared with numpy elsewhere
 * (tests/scripts/test_sampler.py).
 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/sampler.h"
#include "src/chip/sampler_math.h"

enum { VOCAB = 100, ROWS = 4, HISTORY = 64, LISTS = 64, SLOTS = 8, TOP = 20 };

/* A task with room for everything; every row starts greedy over logits[i] = -i. */
typedef struct fixture {
    float logits[ROWS * VOCAB];
    ech_sampler_row rows[ROWS];
    int32_t history[HISTORY];
    int32_t lists[LISTS];
    uint32_t masks[2 * ECH_MASK_WORDS(VOCAB)];
    float state[2 * 2];
    int32_t ids[SLOTS];
    _Alignas(8) uint8_t out[ROWS * ECH_SAMPLE_OUT_BYTES(TOP)];
    ech_sample_args args;
    void *scratch;
} fixture;

static fixture *fixture_new(void)
{
    fixture *const f = calloc(1, sizeof *f);
    f->args = (ech_sample_args){
        .logits = f->logits,
        .rows = f->rows,
        .history = f->history,
        .lists = f->lists,
        .masks = f->masks,
        .state = f->state,
        .ids = f->ids,
        .out = f->out,
        .vocab = VOCAB,
        .n_rows = ROWS,
        .n_logits = ROWS,
        .n_masks = 2,
        .n_state = 2,
        .n_ids = SLOTS,
        .out_stride = ECH_SAMPLE_OUT_BYTES(TOP),
        .max_history = HISTORY,
        .n_history = HISTORY,
        .n_lists = LISTS,
    };
    for (int r = 0; r < ROWS; r++) {
        ech_sampler_row_init(&f->rows[r]);
        f->rows[r].logit_row = (uint32_t)r;
        f->rows[r].out_slot = r;
        for (int i = 0; i < VOCAB; i++) {
            f->logits[r * VOCAB + i] = (float)-i;
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        f->ids[i] = -7;
    }
    const size_t bytes = ech_sample_scratch_bytes(VOCAB, HISTORY);
    f->scratch = aligned_alloc(64, bytes);
    memset(f->scratch, 0xff, bytes);
    return f;
}

static int setup(void **state)
{
    *state = fixture_new();
    return 0;
}

static int teardown(void **state)
{
    fixture *const f = *state;
    free(f->scratch);
    free(f);
    return 0;
}

static const ech_sample_out *run(fixture *const f, const uint32_t i)
{
    ech_sample_row(&f->args, i, f->scratch);
    return (const ech_sample_out *)(const void *)(f->out + i * f->args.out_stride);
}

static void assert_id(fixture *const f, const int32_t id)
{
    const ech_sample_out *const o = run(f, 0);
    assert_int_equal(o->status, ECH_SAMPLE_OK);
    assert_int_equal(o->id, id);
    assert_int_equal(f->ids[0], id);
}

static void assert_status(fixture *const f, const uint32_t status)
{
    const ech_sample_out *const o = run(f, 0);
    assert_int_equal(o->status, status);
    assert_int_equal(o->id, 0);
    assert_int_equal(o->n_top, 0);
    assert_int_equal(f->ids[0], 0);
}

static void greedy_takes_the_largest_and_the_lower_id_of_equals(void **state)
{
    fixture *const f = *state;
    assert_id(f, 0);
    f->logits[70] = 5.0f;
    f->logits[97] = 5.0f;
    assert_id(f, 70);
    f->logits[0] = -0.0f; /* equal to the +0 after it */
    f->logits[70] = 0.0f;
    f->logits[97] = 0.0f;
    assert_id(f, 0);
}

static void a_bad_logit_fails_its_row_alone(void **state)
{
    fixture *const f = *state;
    const float bad[] = { NAN, -NAN, INFINITY };
    for (int k = 0; k < 3; k++) {
        for (int at = 0; at < VOCAB; at++) {
            const float kept = f->logits[at];
            f->logits[at] = bad[k];
            assert_status(f, ECH_SAMPLE_NAN);
            f->logits[at] = kept;
        }
    }
    f->logits[3] = NAN;
    assert_int_equal(run(f, 1)->status, ECH_SAMPLE_OK);
    f->rows[0].temperature = 1.0f;
    f->rows[0].mask_row = 0; /* a NaN that the mask hides is still one */
    memset(f->masks, 0x01, sizeof f->masks);
    assert_status(f, ECH_SAMPLE_NAN);
}

static void a_row_without_a_finite_logit_fails(void **state)
{
    fixture *const f = *state;
    for (int i = 0; i < VOCAB; i++) {
        f->logits[i] = -INFINITY;
    }
    assert_status(f, ECH_SAMPLE_NAN);
    f->logits[42] = -3e38f;
    assert_id(f, 42);
    f->rows[0].temperature = 1.0f;
    assert_id(f, 42);
}

static void masks_and_lists_narrow_the_choice(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    row->mask_row = 1;
    memset(f->masks, 0, sizeof f->masks);
    assert_status(f, ECH_SAMPLE_MASKED);
    uint32_t *const mask = f->masks + ECH_MASK_WORDS(VOCAB);
    mask[1] = 1u << 5; /* 37 */
    mask[3] = 1u << 3; /* 99, in the last, partial word */
    assert_id(f, 37);
    f->lists[0] = 37;
    row->banned = (ech_sampler_list){ 0, 1 };
    assert_id(f, 99);
    f->lists[1] = 37;
    f->lists[2] = 50;
    row->allowed = (ech_sampler_list){ 1, 2 };
    assert_status(f, ECH_SAMPLE_MASKED);
    row->banned.n = 0;
    assert_id(f, 37);
    row->mask_row = -1;
    f->lists[1] = 51;
    assert_id(f, 50);
}

static void mask_bits_beyond_the_vocabulary_are_ignored(void **state)
{
    fixture *const f = *state;
    memset(f->masks, 0, sizeof f->masks);
    f->masks[3] = 0xfffffff0u; /* ids 100 and above */
    f->rows[0].mask_row = 0;
    assert_status(f, ECH_SAMPLE_MASKED);
}

static void bias_is_added_and_never_unbans(void **state)
{
    fixture *const f = *state;
    const float bias = 100.0f;
    f->lists[0] = 60;
    memcpy(&f->lists[1], &bias, sizeof bias);
    f->rows[0].bias = (ech_sampler_list){ 0, 2 };
    assert_id(f, 60);
    f->lists[2] = 60;
    f->rows[0].banned = (ech_sampler_list){ 2, 1 };
    assert_id(f, 0);
}

static void min_tokens_bans_the_stop_ids_until_then(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    f->lists[0] = 0;
    row->stop = (ech_sampler_list){ 0, 1 };
    row->min_tokens = 3;
    row->n_done = 2;
    assert_id(f, 1);
    row->n_done = 3;
    assert_id(f, 0);
}

static void bad_words_ban_the_last_id_after_the_others(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    const int32_t words[] = { 3, 8, 9, 0, 1, 1 }; /* [8 9 0], [1] */
    memcpy(f->lists, words, sizeof words);
    row->bad_words = (ech_sampler_list){ 0, 6 };
    const int32_t history[] = { 8, 9, 8, 9 };
    memcpy(f->history, history, sizeof history);
    row->n_prompt = 4; /* in the prompt it is no beginning of an output */
    assert_id(f, 0);
    row->n_prompt = 2;
    row->n_output = 2;
    assert_id(f, 2);
    f->ids[5] = 9;
    row->n_output = 1;
    row->pending_slot = 5; /* the id of the step before counts as output */
    assert_id(f, 2);
}

static void penalties_count_prompt_and_output_as_documented(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    for (int i = 0; i < VOCAB; i++) {
        f->logits[i] = i < 4 ? 4.0f - 0.5f * (float)i : -50.0f; /* 4, 3.5, 3, 2.5 */
    }
    f->history[0] = 0; /* prompt */
    f->history[1] = 1; /* output, twice */
    f->history[2] = 1;
    row->n_prompt = 1;
    row->n_output = 2;
    row->repetition = 2.0f; /* 2, 1.75, 3 */
    assert_id(f, 2);
    row->repetition = 1.0f;
    row->presence = 10.0f; /* prompt ids cost nothing */
    assert_id(f, 0);
    f->logits[1] = 5.0f;
    row->presence = 0.0f;
    row->frequency = 0.45f; /* 5 - 2 * 0.45 = 4.1 */
    assert_id(f, 1);
    row->frequency = 0.55f; /* 3.9 */
    assert_id(f, 0);
    row->frequency = 0.0f;
    row->repetition = 0.5f; /* a negative logit is multiplied: 2 * -50 */
    f->history[0] = 50;
    f->logits[0] = 11.0f; /* 1: 10 */
    assert_id(f, 0);
}

static void dry_costs_what_would_carry_on_a_repeat(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    const int32_t history[] = { 7, 8, 0, 9, 7, 8 }; /* 0 would repeat 7 8 0: length 2 */
    memcpy(f->history, history, sizeof history);
    row->n_prompt = 4;
    row->n_output = 2;
    row->dry_base = 2.0f;
    row->dry_multiplier = 0.9f;
    row->dry_allowed_length = 2; /* costs 0.9 */
    assert_id(f, 0);
    row->dry_multiplier = 1.1f;
    assert_id(f, 1);
    row->dry_allowed_length = 3;
    assert_id(f, 0);
    row->dry_allowed_length = 1; /* costs 2 * 1.1 */
    f->logits[1] = -2.0f;
    assert_id(f, 1);
    f->lists[0] = 7; /* a breaker shortens the repeat to 8: length 1, 1.1 */
    row->dry_breakers = (ech_sampler_list){ 0, 1 };
    assert_id(f, 0);
    row->dry_breakers.n = 0;
    const int32_t sequence[] = { 2, 9, 7 }; /* the same for 9 7, wherever it ends */
    memcpy(f->lists, sequence, sizeof sequence);
    row->dry_sequences = (ech_sampler_list){ 0, 3 };
    assert_id(f, 0);
    f->lists[1] = 5; /* 5 7 occurs nowhere */
    assert_id(f, 1);
    row->dry_sequences.n = 0;
    row->dry_window = 3; /* 9 7 8: nothing repeats */
    row->dry_multiplier = 100.0f;
    assert_id(f, 0);
}

static void dry_of_one_id_over_and_over_stays_finite(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    row->n_output = HISTORY; /* all zeros: the repeat is 63 long */
    row->dry_multiplier = 1e9f;
    row->dry_base = 1e9f;
    row->temperature = 1.0f;
    row->top_k = 1;
    assert_id(f, 1);
}

static void log_probabilities_are_those_of_the_raw_logits(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    row->n_top = TOP;
    row->temperature = 0.1f;
    f->lists[0] = 0;
    row->banned = (ech_sampler_list){ 0, 1 };
    const ech_sample_out *const o = run(f, 0);
    assert_int_equal(o->id, 1);
    double mass = 0.0;
    for (int i = VOCAB; i-- > 0;) {
        mass += exp(-i);
    }
    assert_true(fabs(o->logprob - (-1.0 - log(mass))) < 1e-6);
    assert_int_equal(o->rank, 2); /* among the raw ones, not of those that may be drawn */
    assert_int_equal(o->n_top, TOP);
    for (int i = 0; i < TOP; i++) {
        assert_int_equal(o->top[i].id, i);
        assert_true(fabs(o->top[i].logprob - (-i - log(mass))) < 2e-6);
    }
}

static void a_score_row_gives_the_target_and_draws_nothing(void **state)
{
    fixture *const f = *state;
    f->rows[0].mode = ECH_SAMPLE_SCORE;
    f->rows[0].target_id = 99;
    f->logits[99] = -INFINITY;
    f->rows[0].n_top = 1;
    const ech_sample_out *const o = run(f, 0);
    assert_int_equal(o->status, ECH_SAMPLE_OK);
    assert_int_equal(o->id, 99);
    assert_true(o->logprob == -INFINITY);
    assert_int_equal(o->top[0].id, 0);
    assert_int_equal(o->rank, VOCAB);
    assert_int_equal(f->ids[0], -7);
}

/* As vLLM counts: how many are at least as good, whatever their order. */
static void a_rank_counts_equal_logits(void **state)
{
    fixture *const f = *state;
    f->rows[0].mode = ECH_SAMPLE_SCORE;
    f->rows[0].n_top = 1;
    f->logits[50] = f->logits[51] = f->logits[40]; /* -40: 0 to 39 are better, 40 as good */
    for (int id = 39; id <= 51; id += id == 40 ? 10 : 1) {
        f->rows[0].target_id = id;
        assert_int_equal(run(f, 0)->rank, id == 39 ? 40 : 43);
    }
}

static void mirostat_reads_one_half_of_its_state_and_writes_the_other(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    row->temperature = 1.0f;
    row->mirostat = 2;
    row->mirostat_tau = 3.0f;
    row->mirostat_eta = 0.5f;
    row->state_slot = 1;
    row->state_parity = 1;
    row->n_done = 4;
    f->state[3] = 0.01f; /* mu: only the first id surprises less */
    const ech_sample_out *o = run(f, 0);
    assert_int_equal(o->id, 0);
    /* alone it has surprise 0: mu - eta * (0 - tau) */
    assert_true(fabs(o->mu - 1.51) < 1e-5);
    assert_true(f->state[2] == o->mu);
    assert_true(f->state[3] == 0.01f);
    const float mu = o->mu;
    o = run(f, 0); /* running a step twice is running it once */
    assert_true(o->mu == mu && f->state[2] == mu);
    row->n_done = 0; /* the first id starts at 2 tau, whatever the state holds */
    f->state[3] = -100.0f;
    o = run(f, 0);
    assert_true(o->mu > 1.0f);
    row->mirostat = 1;
    o = run(f, 0);
    assert_int_equal(o->status, ECH_SAMPLE_OK);
    assert_true(o->mu > 1.0f);
}

static void extreme_temperatures_are_harmless(void **state)
{
    fixture *const f = *state;
    const float ts[] = { 1e-45f, 1e-30f, 1e-5f, 1e9f };
    for (int k = 0; k < 4; k++) {
        f->rows[0].temperature = ts[k];
        const ech_sample_out *const o = run(f, 0);
        assert_int_equal(o->status, ECH_SAMPLE_OK);
        if (k < 3) assert_int_equal(o->id, 0);
    }
    for (int i = 0; i < VOCAB; i++) {
        f->logits[i] = i % 2 == 0 ? -3e38f : 3e38f;
    }
    for (int k = 0; k < 4; k++) {
        f->rows[0].temperature = ts[k];
        assert_int_equal(run(f, 0)->id % 2, 1);
    }
}

static void every_filter_keeps_one_id_at_its_limit(void **state)
{
    fixture *const f = *state;
    ech_sampler_row base;
    ech_sampler_row_init(&base);
    base.temperature = 1.0f;
    base.out_slot = 0;
    f->rows[0] = base;
    f->rows[0].top_p = 0.0f;
    assert_id(f, 0);
    f->rows[0] = base;
    f->rows[0].min_p = 1.0f;
    assert_id(f, 0);
    f->rows[0] = base;
    f->rows[0].top_k = 1;
    assert_id(f, 0);
    f->rows[0] = base;
    f->rows[0].typical_p = 0.0f;
    assert_int_equal(run(f, 0)->status, ECH_SAMPLE_OK);
    f->rows[0] = base;
    f->rows[0].top_k = 3;
    f->rows[0].xtc_probability = 1.0f;
    f->rows[0].xtc_threshold = 0.0f;
    assert_id(f, 2); /* all three pass the threshold: the last stays */
}

/* Every field of a row set to nonsense in turn: the row says so, nothing else happens. */
static void a_row_that_points_nowhere_fails_alone(void **state)
{
    fixture *const f = *state;
    const ech_sampler_list far = { LISTS, 1 };
    const ech_sampler_list wrap = { UINT32_MAX, UINT32_MAX };
    ech_sampler_row bad[40];
    int n = 0;
#define BAD(field, value)                                                                          \
    do {                                                                                           \
        bad[n] = f->rows[0];                                                                       \
        bad[n++].field = (value);                                                                  \
    } while (0)
    BAD(mode, 2);
    BAD(logit_row, ROWS);
    BAD(out_slot, SLOTS);
    BAD(history, HISTORY + 1);
    BAD(n_prompt, HISTORY + 1);
    BAD(n_output, UINT32_MAX);
    BAD(pending_slot, SLOTS);
    BAD(mask_row, 2);
    BAD(n_top, TOP + 1);
    BAD(temperature, NAN);
    BAD(temperature, -1.0f);
    BAD(temperature, INFINITY);
    BAD(top_p, NAN);
    BAD(top_p, 1.5f);
    BAD(min_p, -0.5f);
    BAD(typical_p, 2.0f);
    BAD(repetition, 0.0f);
    BAD(frequency, NAN);
    BAD(presence, INFINITY);
    BAD(dry_multiplier, -1.0f);
    BAD(dry_base, 0.5f);
    BAD(xtc_probability, 7.0f);
    BAD(xtc_threshold, NAN);
    BAD(mirostat, 3);
    BAD(bias, far);
    BAD(bias, ((ech_sampler_list){ 0, 3 }));
    BAD(allowed, far);
    BAD(banned, wrap);
    BAD(stop, far);
    BAD(bad_words, wrap);
    BAD(dry_breakers, far);
    BAD(dry_sequences, wrap);
#undef BAD
    for (int i = 0; i < n; i++) {
        f->rows[0] = bad[i];
        const ech_sample_out *const o = run(f, 0);
        assert_int_equal(o->status, ECH_SAMPLE_BAD_ROW);
    }
}

static void an_id_outside_the_vocabulary_fails_the_row(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    const ech_sampler_row base = *row;
    const int32_t ids[] = { VOCAB, -1, INT32_MAX, INT32_MIN };
    for (int k = 0; k < 4; k++) {
        f->lists[0] = f->history[0] = ids[k];
        ech_sampler_list *const lists[] = { &row->allowed, &row->banned, &row->bias };
        for (int l = 0; l < 3; l++) {
            *row = base;
            *lists[l] = (ech_sampler_list){ 0, 2 };
            assert_status(f, ECH_SAMPLE_BAD_ROW);
        }
        *row = base;
        row->n_output = 1;
        row->repetition = 1.5f;
        assert_status(f, ECH_SAMPLE_BAD_ROW);
        *row = base;
        row->bad_words = (ech_sampler_list){ 0, 1 }; /* a word longer than its list */
        assert_status(f, ECH_SAMPLE_BAD_ROW);
    }
    f->lists[0] = 0; /* a word of length 0 */
    assert_status(f, ECH_SAMPLE_BAD_ROW);
}

static void a_row_does_not_depend_on_what_scratch_held(void **state)
{
    fixture *const f = *state;
    ech_sampler_row *const row = &f->rows[0];
    row->temperature = 1.5f;
    row->repetition = 1.3f;
    row->dry_multiplier = 0.5f;
    row->dry_base = 1.5f;
    row->n_output = 20;
    row->n_top = 5;
    for (int i = 0; i < 20; i++) {
        f->history[i] = i % 7;
    }
    _Alignas(8) uint8_t first[ECH_SAMPLE_OUT_BYTES(TOP)];
    for (int k = 0; k < 256; k++) {
        memset(f->scratch, k, ech_sample_scratch_bytes(VOCAB, HISTORY));
        (void)run(f, 0);
        if (k == 0) memcpy(first, f->out, sizeof first);
        assert_memory_equal(first, f->out, ECH_SAMPLE_OUT_BYTES(5));
    }
}

static void philox_gives_the_published_words(void **state)
{
    (void)state;
    uint32_t r[4];
    ech_sampler_philox(0, 0, r);
    assert_int_equal(r[0], 0x6627e8d5u);
    assert_int_equal(r[1], 0xe169c58du);
    assert_int_equal(r[2], 0xbc57ac4cu);
    assert_int_equal(r[3], 0x9b00dbd8u);
}

static void exp_and_log_are_as_accurate_as_they_say(void **state)
{
    (void)state;
    for (double x = -690.0; x <= 690.0; x += 0.37) {
        assert_true(fabs(ech_sampler_exp(x) / exp(x) - 1.0) < 3e-10);
        assert_true(fabs(ech_sampler_log(exp(x)) - x) < 1e-13 * fmax(1.0, fabs(x)));
    }
    assert_true(ech_sampler_exp(-INFINITY) < 1e-300);
    assert_true(ech_sampler_log(1.0) == 0.0);
    assert_true(ech_sampler_powi(1.5, 0) == 1.0);
    assert_true(fabs(ech_sampler_powi(1.5, 21) / pow(1.5, 21) - 1.0) < 1e-13);
    assert_true(ech_sampler_powi(3.0, UINT32_MAX) == 1e30);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(greedy_takes_the_largest_and_the_lower_id_of_equals),
        T(a_bad_logit_fails_its_row_alone),
        T(a_row_without_a_finite_logit_fails),
        T(masks_and_lists_narrow_the_choice),
        T(mask_bits_beyond_the_vocabulary_are_ignored),
        T(bias_is_added_and_never_unbans),
        T(min_tokens_bans_the_stop_ids_until_then),
        T(bad_words_ban_the_last_id_after_the_others),
        T(penalties_count_prompt_and_output_as_documented),
        T(dry_costs_what_would_carry_on_a_repeat),
        T(dry_of_one_id_over_and_over_stays_finite),
        T(log_probabilities_are_those_of_the_raw_logits),
        T(a_score_row_gives_the_target_and_draws_nothing),
        T(a_rank_counts_equal_logits),
        T(mirostat_reads_one_half_of_its_state_and_writes_the_other),
        T(extreme_temperatures_are_harmless),
        T(every_filter_keeps_one_id_at_its_limit),
        T(a_row_that_points_nowhere_fails_alone),
        T(an_id_outside_the_vocabulary_fails_the_row),
        T(a_row_does_not_depend_on_what_scratch_held),
        T(philox_gives_the_published_words),
        T(exp_and_log_are_as_accurate_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
