/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits against those of transformers (tests/golden). Arguments: a model and the stem of its
 * expected files, relative to the source tree; a model "$NAME" is at the path in that variable;
 * for quantised weights, whose activations are quantised too, the tolerance.
 * Every instruction set that the CPU has, every KV and compute type, each within its own tolerance,
 * which is relative to the row's largest logit.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/safetensors.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

#define MAX_POSITIONS 512u

#ifdef ECH_SANITIZE
#define SANITIZED true
#else
#define SANITIZED false
#endif

static char model_path[1024];
static bool is_large;
static double quant_tolerance;   /* 0: the weights aren't quantised */
static char expected_path[1024]; /* without its suffix */

/* expected.safetensors, open. */
static ech_weights expected;

static void *load_tensor(const char *const fmt, const size_t prompt, size_t *const ret_n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%zu", fmt, prompt);
    const ech_weight *const w = ech_weights_find(&expected, name);
    if (w == NULL) return NULL;
    void *const data = malloc(w->bytes + 1);
    assert_int_equal(ech_weights_read(&expected, w->file, w->offset, data, w->bytes, NULL), ECH_OK);
    if (ret_n != NULL) *ret_n = w->bytes / 4;
    return data;
}

typedef struct golden {
    int32_t *ids; /* [n] */
    size_t n;
    int32_t *top_ids;  /* [n, 16] */
    float *top_logits; /* [n, 16] */
    float *logsumexp;  /* [n] */
    int32_t *at;       /* [n_at] positions of which all logits are known; may be NULL */
    size_t n_at;
    float *logits; /* [n_at, vocab] */
} golden;

static bool golden_load(golden *const g, const size_t prompt)
{
    *g = (golden){ 0 };
    g->ids = load_tensor("ids", prompt, &g->n);
    if (g->ids == NULL) return false;
    g->top_ids = load_tensor("top_ids", prompt, NULL);
    g->top_logits = load_tensor("top_logits", prompt, NULL);
    g->logsumexp = load_tensor("logsumexp", prompt, NULL);
    g->at = load_tensor("logits_at", prompt, &g->n_at);
    g->logits = load_tensor("logits", prompt, NULL);
    return true;
}

static void golden_free(golden *const g)
{
    free(g->ids);
    free(g->top_ids);
    free(g->top_logits);
    free(g->logsumexp);
    free(g->at);
    free(g->logits);
}

static double largest(const float *const row, const size_t n)
{
    double max = 0.0;
    for (size_t i = 0; i < n; i++) {
        max = fmax(max, fabs((double)row[i]));
    }
    return max;
}

static double log_sum_exp(const float *const row, const size_t n)
{
    const double max = largest(row, n);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += exp(row[i] - max);
    }
    return max + log(sum);
}

/* The worst error of a prompt, relative to its row's largest logit. NaN counts as infinite. */
static double worst_error(const golden *const g, const float *const logits, const size_t vocab)
{
    double worst = 0.0;
    for (size_t p = 0; p < g->n; p++) {
        const float *const row = logits + p * vocab;
        const double scale = largest(row, vocab);
        double off = fabs(log_sum_exp(row, vocab) - (double)g->logsumexp[p]);
        for (size_t k = 0; k < 16; k++) {
            off = fmax(
                off, fabs((double)row[g->top_ids[p * 16 + k]] - (double)g->top_logits[p * 16 + k]));
        }
        if (!(off / scale <= worst)) worst = isfinite(off / scale) ? off / scale : HUGE_VAL;
    }
    for (size_t a = 0; a < g->n_at; a++) {
        const float *const row = logits + (size_t)g->at[a] * vocab;
        const float *const want = g->logits + a * vocab;
        const double scale = largest(want, vocab);
        for (size_t i = 0; i < vocab; i++) {
            const double off = fabs((double)row[i] - (double)want[i]) / scale;
            if (!(off <= worst)) worst = isfinite(off) ? off : HUGE_VAL;
        }
    }
    return worst;
}

/* Runs prompts with their greedy ids; returns the worst error of all, -1 when skipped. */
static double run_all(const runner_options *const o, const size_t max_prompts)
{
    runner r;
    if (runner_open(&r, model_path, o) != ECH_OK) return -1.0;
    double worst = 0.0;
    golden g;
    for (size_t i = 0; i < max_prompts && golden_load(&g, i); i++) {
        float *const logits = calloc(g.n * r.info.vocab, sizeof *logits);
        lane l = { .ids = g.ids, .n = (uint32_t)g.n, .chunk = 64, .logits = logits };
        runner_run(&r, &l, 1);
        worst = fmax(worst, worst_error(&g, logits, r.info.vocab));
        free(logits);
        golden_free(&g);
    }
    runner_close(&r);
    return worst;
}

static const struct {
    const char *name;
    ech_isa isa;
} ISAS[] = { { "ref", ECH_ISA_REF }, { "avx2", ECH_ISA_AVX2 }, { "avx512", ECH_ISA_AVX512 } };

static void check(const ech_kv_type kv, const ech_compute compute, const double ref_tolerance,
                  const double tolerance)
{
    for (size_t i = 0; i < sizeof ISAS / sizeof ISAS[0]; i++) {
        const runner_options o = {
            .kv_type = kv,
            .compute = compute,
            .isa = ISAS[i].isa,
            .n_threads = 1,
            .max_rows = 64,
            .max_positions = MAX_POSITIONS,
            .n_seqs = 1,
        };
        /* Plain C takes its time: it plays all prompts where it is the yardstick, else some. */
        const bool is_ref = ISAS[i].isa == ECH_ISA_REF;
        const bool slow = is_ref && (kv != ECH_KV_F32 || SANITIZED || is_large);
        const double worst = run_all(&o, slow ? (is_large ? 1 : 3) : SIZE_MAX);
        if (worst < 0.0) {
            print_message("%s: skipped, this CPU lacks it\n", ISAS[i].name);
            continue;
        }
        const double exact = is_ref ? ref_tolerance : tolerance;
        const double allowed = fmax(exact, quant_tolerance);
        print_message("%s, kv %s, compute %s: worst %.2e, allowed %.0e\n", ISAS[i].name,
                      ech_kv_type_name(kv), ech_compute_name(compute), worst, allowed);
        assert_true(worst <= allowed);
    }
}

static void logits_with_f32_kv(void **state)
{
    (void)state;
    check(ECH_KV_F32, ECH_COMPUTE_F32, 2e-5, 1e-4);
}

static void logits_with_the_defaults(void **state)
{
    (void)state;
    check(ECH_KV_F16, ECH_COMPUTE_F32, 2e-3, 2e-3);
}

static void logits_with_bf16_compute(void **state)
{
    (void)state;
    check(ECH_KV_F16, ECH_COMPUTE_BF16, 3e-2, 3e-2);
}

/* Ids of a JSON array. */
static size_t read_ids(const json_t *const array, int32_t *const out, const size_t cap)
{
    const size_t n = json_array_size(array);
    assert_true(n <= cap);
    for (size_t i = 0; i < n; i++) {
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return n;
}

static int32_t best_id(const float *const row, const uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        if (row[i] > row[best]) best = i;
    }
    return (int32_t)best;
}

/* Continues a prompt greedily and compares every id. */
static void check_greedy(runner *const r, const json_t *const row, const size_t number)
{
    int32_t ids[MAX_POSITIONS];
    int32_t want[MAX_POSITIONS];
    const size_t n_prompt = read_ids(json_object_get(row, "prompt_ids"), ids, MAX_POSITIONS / 2);
    const size_t n_want = read_ids(json_object_get(row, "greedy_ids"), want, MAX_POSITIONS / 2);
    float *const logits = calloc((n_prompt + n_want) * r->info.vocab, sizeof *logits);
    lane l = { .ids = ids, .chunk = 64, .logits = logits };
    for (size_t i = 0; i < n_want; i++) {
        l.n = (uint32_t)(n_prompt + i);
        l.logits_from = l.n - 1;
        runner_run(r, &l, 1);
        const int32_t id = best_id(logits + (size_t)l.logits_from * r->info.vocab, r->info.vocab);
        if (id != want[i])
            fail_msg("prompt %zu, id %zu: expected %d, found %d", number, i, want[i], id);
        ids[l.n] = id;
    }
    free(logits);
}

/* Fed the golden ids, the best id is the reference's wherever the reference is sure. */
static void check_best_ids(runner *const r)
{
    size_t n = 0;
    size_t same = 0;
    golden g;
    for (size_t i = 0; golden_load(&g, i); i++) {
        float *const logits = calloc(g.n * r->info.vocab, sizeof *logits);
        lane l = { .ids = g.ids, .n = (uint32_t)g.n, .chunk = 64, .logits = logits };
        runner_run(r, &l, 1);
        for (size_t p = 0; p < g.n; p++) {
            const bool equal =
                best_id(logits + p * r->info.vocab, r->info.vocab) == g.top_ids[p * 16];
            const float margin = g.top_logits[p * 16] - g.top_logits[p * 16 + 1];
            if (!equal && margin > 0.5f)
                fail_msg("prompt %zu, position %zu: margin %g", i, p, (double)margin);
            same += equal;
            n++;
        }
        free(logits);
        golden_free(&g);
    }
    print_message("best id equal at %zu of %zu positions\n", same, n);
    assert_true(same * 100 >= n * 90);
}

static void greedy_ids_with_the_defaults(void **state)
{
    (void)state;
    char path[1100];
    (void)snprintf(path, sizeof path, "%s.json", expected_path);
    json_error_t at;
    json_t *const rows = json_load_file(path, 0, &at);
    assert_true(json_array_size(rows) > 0);
    const runner_options o = { .isa = ECH_ISA_AUTO,
                               .n_threads = 1,
                               .max_rows = 64,
                               .max_positions = MAX_POSITIONS,
                               .n_seqs = 1 };
    runner r;
    assert_int_equal(runner_open(&r, model_path, &o), ECH_OK);
    size_t i;
    const json_t *row;
    if (quant_tolerance > 0.0) check_best_ids(&r);
    json_array_foreach(rows, i, row)
    {
        if (quant_tolerance == 0.0) check_greedy(&r, row, i);
    }
    runner_close(&r);
    json_decref(rows);
}

int main(const int argc, char **const argv)
{
    if (argc != 3 && argc != 4) {
        (void)fprintf(stderr, "usage: %s MODEL EXPECTED [TOLERANCE]\n", argv[0]);
        return 2;
    }
    /* "$NAME": a model too large for the tree, at the path in that variable. */
    if (argc == 4) quant_tolerance = strtod(argv[3], NULL);
    is_large = argv[1][0] == '$';
    const char *const outside = is_large ? getenv(argv[1] + 1) : NULL;
    if (is_large && outside == NULL) {
        (void)printf("skipped: %s names no model\n", argv[1] + 1);
        return 77;
    }
    if (outside != NULL) {
        (void)snprintf(model_path, sizeof model_path, "%s", outside);
    } else {
        (void)snprintf(model_path, sizeof model_path, "%s/%s", ECH_SOURCE_DIR, argv[1]);
    }
    (void)snprintf(expected_path, sizeof expected_path, "%s/%s.expected", ECH_SOURCE_DIR, argv[2]);
    char path[1100];
    (void)snprintf(path, sizeof path, "%s.safetensors", expected_path);
    ech_error err;
    if (ech_safetensors_read(&expected, path, &err) != ECH_OK ||
        ech_weights_seal(&expected, &err) != ECH_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_with_f32_kv),
        cmocka_unit_test(logits_with_the_defaults),
        cmocka_unit_test(logits_with_bf16_compute),
        cmocka_unit_test(greedy_ids_with_the_defaults),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ech_weights_fini(&expected);
    return failed;
}
