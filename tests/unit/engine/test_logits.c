/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of logits that a request looks at, and scores of a part of the prompt. */
#include <math.h>

#include "tests/unit/engine/harness.h"
#include "tests/unit/test.h"

enum { N_IDS = 300, FROM = 137 };

/* What the hook saw: of each position of each choice its log-probability of the prompt's id. */
typedef struct seen {
    const int32_t *ids; // [N_IDS]
    uint32_t vocab;
    uint32_t n;
    uint32_t next[2]; /* of each choice */
    float logprobs[2][N_IDS];
} seen;

static void look(void *ctx, uint32_t choice, uint32_t pos, const float *row)
{
    seen *const s = ctx;
    double max = -INFINITY, sum = 0;
    assert_int_equal(pos, s->next[choice]); /* in order, none twice, none left out */
    s->next[choice]++;
    s->n++;
    for (uint32_t i = 0; i < s->vocab; i++)
        max = fmax(max, row[i]);
    for (uint32_t i = 0; i < s->vocab; i++)
        sum += exp(row[i] - max);
    s->logprobs[choice][pos] = (float)(row[s->ids[pos]] - max - log(sum));
}

static void fill(int32_t *ids, uint32_t vocab)
{
    for (uint32_t i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)((i * 7919 + 13) % vocab);
}

static void rows_are_those_of_the_scores(void **state)
{
    (void)state;
    const ech_engine_options eo = h_options();
    ech_engine *e = h_open(&eo);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(e, &info);
    int32_t ids[N_IDS];
    fill(ids, info.vocab_size);
    const ech_prompt prompts[2] = { { .ids = ids, .n_ids = N_IDS },
                                    { .ids = ids, .n_ids = N_IDS } };
    ech_request_options o = h_request(prompts);
    o.n_prompts = 2;
    o.max_tokens = 0;
    o.logprobs = -1;
    o.prompt_logprobs = 0;
    h_result *const all = h_run(e, &o);
    assert_int_equal(all->choices[0].n_prompt, N_IDS);

    seen s = { .ids = ids, .vocab = info.vocab_size, .next = { FROM, FROM } };
    o.prompt_logprobs_from = FROM;
    o.logits = look;
    o.logits_ctx = &s;
    h_result *const part = h_run(e, &o);
    assert_int_equal(s.n, 2 * (N_IDS - FROM));
    for (int c = 0; c < 2; c++) {
        assert_int_equal(part->choices[c].n_prompt, N_IDS - FROM);
        for (uint32_t i = FROM; i < N_IDS; i++) {
            /* The same bits whichever rows were scored, and those of the row that was seen. */
            const float had = part->choices[c].prompt_logprobs[i - FROM];
            assert_memory_equal(&had, &all->choices[c].prompt_logprobs[i], sizeof had);
            assert_true(fabsf(had - s.logprobs[c][i]) < 1e-4f * (1 + fabsf(had)));
        }
    }
    h_result *ends[2] = { all, part };
    h_free(&ends[0]);
    h_free(&ends[1]);
    h_assert_idle(e);
    ech_engine_close(&e);
}

static void what_can_not_be_is_refused(void **state)
{
    (void)state;
    const ech_engine_options eo = h_options();
    ech_engine *e = h_open(&eo);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options o = h_request(&prompt);
    o.logits = look;
    h_result *r = h_run(e, &o);
    assert_int_equal(r->submitted, ECH_EINVAL);
    h_free(&r);
    o.logits = NULL;
    o.prompt_logprobs = 0;
    o.prompt_logprobs_from = 100;
    r = h_run(e, &o);
    assert_int_equal(r->submitted, ECH_EINVAL);
    h_free(&r);
    ech_engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_scores),
        cmocka_unit_test(what_can_not_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
