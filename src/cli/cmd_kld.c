/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon kld`: how far a model's predictions are from those of another, whose logits were saved
 * (logits_file.h): Kullback-Leibler divergence of every counted position of a text's windows, and
 * how often the likeliest token is the same. The rows come on the engine's thread, which waits for
 * the comparison; the main thread reads the results when all are done.
 *
 * Two runs with the same text and options: one with --save, one with --base; both at once save
 * while they compare. Exit codes as everywhere; a large divergence is none. A file of saved
 * logits is vocabulary × rows × 4 bytes, gigabytes for a large vocabulary, so rows go to the
 * disk as they come.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/logits_file.h"
#include "src/cli/numbers.h"
#include "src/cli/score.h"

static const char *base_path, *save_path;
static bool as_json;

static const ech_option OPTIONS[] = {
    { "base", 0, ECH_OPT_STRING, &base_path, "FILE", "saved logits to compare with", 0, 0, NULL },
    { "save", 0, ECH_OPT_STRING, &save_path, "FILE", "save this model's logits", 0, 0, NULL },
    ECH_SCORE_OPTIONS,
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
};

typedef struct comparison {
    ech_logits_shape shape;
    ech_logits_file *base, *saved;
    float *row;  // [vocab] of the base
    double *kld; // [n_windows * n_rows]
    uint64_t n;
    uint64_t n_same_top;
    ech_score_sum base_sum;
    ech_error err; /* the first that a row met */
} comparison;

/* ---- rows ---- */

typedef struct summary {
    double log_sum; /* of the exponentials */
    uint32_t top;
} summary;

/*
 * The largest is subtracted before exp, so that nothing overflows; in double, as a sum over a
 * vocabulary loses digits in float.
 */
static summary sum_up(const float *x, uint32_t n)
{
    uint32_t top = 0;
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[top]) top = i;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - x[top]);
    return (summary){ .log_sum = x[top] + log(sum), .top = top };
}

/* KL(base ‖ this model), in nats. */
static double divergence(const float *base, const summary *b, const float *row, const summary *r,
                         uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double log_p = base[i] - b->log_sum, log_q = row[i] - r->log_sum;
        sum += exp(log_p) * (log_p - log_q);
    }
    return sum;
}

/*
 * Rows may come in any order of windows; what is summed doesn't care, and divergences are sorted
 * at the end.
 */
static ech_status compare_row(comparison *c, uint32_t window, uint32_t at, int32_t target,
                              const float *row, ech_error *err)
{
    const uint32_t n = c->shape.vocab;
    ECH_TRY(ech_logits_file_read(c->base, window, at, c->row, err));
    const summary b = sum_up(c->row, n), r = sum_up(row, n);
    const double nll = b.log_sum - c->row[target];
    c->kld[c->n++] = divergence(c->row, &b, row, &r, n);
    c->n_same_top += b.top == r.top;
    c->base_sum.nll += nll;
    c->base_sum.sq += nll * nll;
    c->base_sum.n++;
    return ECH_OK;
}

/*
 * The hook can't fail the run: the first error stays in *c, later rows do nothing, and compare()
 * reports it.
 */
static void on_row(void *ctx, uint32_t window, uint32_t at, int32_t target, const float *row)
{
    comparison *const c = ctx;
    ech_status rc = c->err.code;
    if (rc == ECH_OK && c->saved != NULL)
        rc = ech_logits_file_write(c->saved, window, at, row, &c->err);
    if (rc == ECH_OK && c->base != NULL) (void)compare_row(c, window, at, target, row, &c->err);
}

/* ---- results ---- */

typedef struct statistics {
    double mean, error, median, p99, max, same_top;
} statistics;

/*
 * Sorts the divergences. Two passes for the variance: divergences are tiny and their squares
 * vanish beside the mean's.
 */
static statistics describe(comparison *c)
{
    const double n = (double)c->n;
    double sum = 0, sq = 0;
    for (uint64_t i = 0; i < c->n; i++)
        sum += c->kld[i];
    const double mean = sum / n;
    for (uint64_t i = 0; i < c->n; i++)
        sq += (c->kld[i] - mean) * (c->kld[i] - mean);
    ech_sort_numbers(c->kld, c->n);
    return (statistics){
        .mean = mean,
        .error = c->n > 1 ? sqrt(sq / (n - 1) / n) : 0,
        .median = c->kld[c->n / 2],
        .p99 = c->kld[c->n * 99 / 100],
        .max = c->kld[c->n - 1],
        .same_top = (double)c->n_same_top / n,
    };
}

static void print_compared(comparison *c, const ech_score *s)
{
    const statistics t = describe(c);
    const double ppl = ech_score_perplexity(&s->total, NULL);
    const double base_ppl = ech_score_perplexity(&c->base_sum, NULL);
    if (as_json) {
        (void)printf("{\"mean_kld\": %.9g, \"stderr_kld\": %.9g, \"median_kld\": %.9g, "
                     "\"p99_kld\": %.9g, \"max_kld\": %.9g, \"same_top\": %.6f, "
                     "\"perplexity\": %.6f, \"base_perplexity\": %.6f, \"tokens\": %llu}\n",
                     t.mean, t.error, t.median, t.p99, t.max, t.same_top, ppl, base_ppl,
                     (unsigned long long)c->n);
        return;
    }
    (void)printf("mean KLD     %.6f ± %.6f\nmedian KLD   %.6f\n99 %% KLD     %.6f\n"
                 "max KLD      %.6f\nsame top     %.2f %%\nperplexity   %.4f, the base's %.4f\n"
                 "tokens       %llu\n",
                 t.mean, t.error, t.median, t.p99, t.max, 100 * t.same_top, ppl, base_ppl,
                 (unsigned long long)c->n);
}

static ech_status print_saved(const ech_score *s, ech_error *err)
{
    const double ppl = ech_score_perplexity(&s->total, NULL);
    if (!as_json) {
        (void)printf("saved %s, perplexity %.4f, %llu tokens\n", save_path, ppl,
                     (unsigned long long)s->total.n);
        return ECH_OK;
    }
    json_t *const root = json_pack("{s:s, s:f, s:I}", "saved", save_path, "perplexity", ppl,
                                   "tokens", (json_int_t)s->total.n);
    const int rc = root != NULL ? json_dumpf(root, stdout, JSON_REAL_PRECISION(9)) : -1;
    json_decref(root);
    if (rc != 0)
        return ech_fail(err, ECH_EINVAL, "printing %s: out of memory, or a name that is not UTF-8",
                        save_path);
    (void)printf("\n");
    return ECH_OK;
}

/* ---- running ---- */

/*
 * Before anything is computed: a base of another text or a path that can't be written is said at
 * once.
 */
static ech_status open_files(comparison *c, const ech_score *s, ech_error *err)
{
    c->shape = (ech_logits_shape){ .vocab = s->info.vocab_size,
                                   .ctx = s->ctx,
                                   .n_windows = s->n_windows,
                                   .first = s->first,
                                   .n_rows = s->ctx - 1 - s->first };
    if (base_path != NULL)
        ECH_TRY(ech_logits_file_open(&c->base, base_path, &c->shape, s->ids, err));
    if (save_path != NULL)
        ECH_TRY(ech_logits_file_create(&c->saved, save_path, &c->shape, s->ids, err));
    c->row = calloc(c->shape.vocab, sizeof *c->row);
    c->kld = calloc((size_t)s->n_windows * c->shape.n_rows, sizeof *c->kld);
    if (c->row == NULL || c->kld == NULL)
        return ech_fail(err, ECH_ENOMEM, "comparing logits: out of memory");
    return ECH_OK;
}

/* The saved file gets its name last, when every row is in it. */
static ech_status compare(comparison *c, ech_score *s, ech_error *err)
{
    ECH_TRY(open_files(c, s, err));
    s->row = on_row;
    s->row_ctx = c;
    ECH_TRY(ech_score_run(s, err));
    if (c->err.code != ECH_OK) return ech_fail(err, c->err.code, "%s", c->err.text);
    if (c->saved != NULL) ECH_TRY(ech_logits_file_finish(c->saved, err));
    if (c->base != NULL)
        print_compared(c, s);
    else
        return print_saved(s, err);
    return ECH_OK;
}

static int run(int argc, char **argv)
{
    ech_score s = { 0 };
    comparison c = { 0 };
    ech_error err = { .code = ECH_OK };
    if (argc != 2) return ech_usage_error("kld takes a MODEL and a FILE of text");
    if (base_path == NULL && save_path == NULL)
        return ech_usage_error("kld needs --base FILE, --save FILE, or both");
    ech_status rc = ech_score_open(&s, argv[0], argv[1], &err);
    if (rc == ECH_OK) rc = compare(&c, &s, &err);
    ech_score_close(&s);
    ech_logits_file_close(&c.base);
    ech_logits_file_close(&c.saved);
    free(c.row);
    free(c.kld);
    return rc == ECH_OK ? ECH_EXIT_OK : ech_report(&err);
}

const ech_command ech_cmd_kld = {
    "kld",
    "MODEL FILE",
    "how far a model's predictions are from saved ones",
    "echelon kld MODEL-f32.gguf text.txt --chunks 64 --save base.logits\n"
    "echelon kld MODEL-q4.gguf text.txt --chunks 64 --base base.logits",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
