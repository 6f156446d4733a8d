/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon perplexity`: how well a model predicts a text, as llama.cpp defines it (score.h).
 *
 * Prints exp of the mean negative log-likelihood and its standard error, which says how many
 * windows are enough for a comparison. Progress is on standard error, on a terminal only. Main
 * thread.
 */
#include <stdio.h>

#include "src/cli/commands.h"
#include "src/cli/score.h"

static bool as_json;

static const ech_option OPTIONS[] = {
    ECH_SCORE_OPTIONS,
    { "stride", 0, ECH_OPT_INT, &ech_score_given.stride, "N",
      "windows that overlap: one begins every N tokens; default: they don't", 1, 1 << 20, NULL },
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
};

/*
 * nll is given with eight digits, as small differences between quantized types are what it is
 * run for.
 */
static void print_result(const ech_score *s)
{
    double error;
    const double ppl = ech_score_perplexity(&s->total, &error);
    if (as_json)
        (void)printf("{\"perplexity\": %.6f, \"stderr\": %.6f, \"nll\": %.8f, \"tokens\": %llu, "
                     "\"ctx\": %u, \"chunks\": %u}\n",
                     ppl, error, s->total.nll / (double)s->total.n, (unsigned long long)s->total.n,
                     s->ctx, s->n_windows);
    else
        (void)printf("perplexity %.4f ± %.4f over %llu tokens, %u windows of %u\n", ppl, error,
                     (unsigned long long)s->total.n, s->n_windows, s->ctx);
}

/* Closing comes in every case: opening may have failed halfway. */
static int run(int argc, char **argv)
{
    ech_score s = { 0 };
    ech_error err = { .code = ECH_OK };
    if (argc != 2) return ech_usage_error("perplexity takes a MODEL and a FILE of text");
    ech_status rc = ech_score_open(&s, argv[0], argv[1], &err);
    if (rc == ECH_OK) rc = ech_score_run(&s, &err);
    if (rc == ECH_OK) print_result(&s);
    ech_score_close(&s);
    return rc == ECH_OK ? ECH_EXIT_OK : ech_report(&err);
}

const ech_command ech_cmd_perplexity = {
    "perplexity",
    "MODEL FILE",
    "how well a model predicts a text",
    "echelon perplexity MODEL.gguf text.txt --chunks 64\n"
    "echelon perplexity MODEL.gguf text.txt --ctx 512 --stride 128 --json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
