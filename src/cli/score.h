/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scoring a text in windows, as `echelon perplexity` and `echelon kld` do. As llama.cpp defines it:
 * the text's ids are cut into windows of ctx, each is computed by itself, with BOS in place of its
 * first id where the vocabulary begins texts with one, and the ids behind the first half are
 * counted, which all have a context. Strided: windows of ctx + stride / 2 begin every `stride` ids
 * and the last `stride` ids of each count.
 */
#ifndef ECH_CLI_SCORE_H
#define ECH_CLI_SCORE_H

#include "echelon/engine.h"
#include "src/cli/load_options.h"

typedef struct ech_score_options {
    int64_t ctx, chunks, stride, threads, prefill_chunk;
    bool is_ids; /* the file has token ids instead of a text */
} ech_score_options;

extern ech_score_options ech_score_given;

/* The options that both commands have. */
#define ECH_SCORE_OPTIONS                                                                          \
    { "ctx", 'c',     ECH_OPT_INT, &ech_score_given.ctx, "N", "tokens of a window; default 512",   \
      4,     1 << 20, NULL },                                                                      \
        { "chunks",    0,                                                                          \
          ECH_OPT_INT, &ech_score_given.chunks,                                                    \
          "N",         "most windows; default: as many as the text has",                           \
          1,           1 << 20,                                                                    \
          NULL },                                                                                  \
        { "ids",                                                                                   \
          0,                                                                                       \
          ECH_OPT_FLAG,                                                                            \
          &ech_score_given.is_ids,                                                                 \
          NULL,                                                                                    \
          "FILE has token ids, separated by blanks or commas, taken as they are",                  \
          0,                                                                                       \
          0,                                                                                       \
          NULL },                                                                                  \
        { "threads",   'j',                                                                        \
          ECH_OPT_INT, &ech_score_given.threads,                                                   \
          "N",         "cores of a chip; default: all physical cores",                             \
          1,           256,                                                                        \
          NULL },                                                                                  \
        { "prefill-chunk",                                                                         \
          0,                                                                                       \
          ECH_OPT_INT,                                                                             \
          &ech_score_given.prefill_chunk,                                                          \
          "N",                                                                                     \
          "most prompt tokens in one step; default: the engine's",                                 \
          1,                                                                                       \
          512,                                                                                     \
          NULL },                                                                                  \
        ECH_KV_TYPE_OPTION, ECH_COMPUTE_OPTION, ECH_LOAD_OPTIONS

/* Sums over ids that were counted. */
typedef struct ech_score_sum {
    double nll, sq; /* of negative log-probabilities, and of their squares */
    uint64_t n;
} ech_score_sum;

/* A text in windows on an open engine. */
typedef struct ech_score {
    ech_engine *engine;
    ech_engine_info info;
    uint32_t ctx, n_windows;
    uint32_t first;      /* rows first … ctx - 2 of a window are counted */
    int32_t *ids;        // [n_windows][ctx] as the model reads them
    ech_score_sum *sums; // [n_windows]
    /* NULL, or gets every counted row, in the order of windows and rows; on the engine's thread. */
    void (*row)(void *ctx, uint32_t window, uint32_t row, int32_t target, const float *logits);
    void *row_ctx;
    ech_score_sum total;
} ech_score;

/* Opens model and text. EINVAL: the text is too short for one window. close() always follows. */
ech_status ech_score_open(ech_score *s, const char *model, const char *text_path, ech_error *err);
/* Computes all windows; a line on stderr shows how far it is. */
ech_status ech_score_run(ech_score *s, ech_error *err);
void ech_score_close(ech_score *s);

/* Of a sum: perplexity and its standard error. */
double ech_score_perplexity(const ech_score_sum *sum, double *ret_stderr);

#endif
