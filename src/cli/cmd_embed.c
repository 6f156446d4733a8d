/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon embed`: texts in, a vector for each out. One request holds all of them, so they run as
 * a batch; the vectors are printed in the order of the texts. The main thread does all of it.
 *
 * All vectors are kept until the last one is there, then printed: a failure of one text prints
 * none, since a list with a hole would be counted wrong. The exit code is that of the first text
 * that failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/engine.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/commands.h"
#include "src/cli/load_options.h"
#include "src/cli/numbers.h"

/* 0: not given, the engine chooses. */
static int64_t dimensions, threads, max_seq_len, prefill_chunk;
static ech_pooling pooling = ECH_POOLING_MODEL;
static bool as_json, as_ids, parse_special = true;

/* The library parses the word; the static error outlives the call. */
static const char *take_pooling(const char *name, const char *value)
{
    static ech_error err;
    (void)name;
    return ech_pooling_parse(value, &pooling, &err) == ECH_OK ? NULL : err.text;
}

static const ech_option OPTIONS[] = {
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "prints one JSON object a line for each text", 0, 0,
      NULL },
    { "ids", 0, ECH_OPT_FLAG, &as_ids, NULL, "the texts are token ids, 1,2,3", 0, 0, NULL },
    { "no-special", 0, ECH_OPT_NO_FLAG, &parse_special, NULL,
      "special tokens written in a text are ordinary text", 0, 0, NULL },
    { "pooling", 0, ECH_OPT_CALL, NULL, "HOW",
      "last, mean or cls; default: what the model's files say, else last", 0, 0, take_pooling },
    { "dimensions", 0, ECH_OPT_INT, &dimensions, "N",
      "the first N numbers, scaled to length 1; default: all", 1, 1 << 20, NULL },
    { "max-seq-len", 'c', ECH_OPT_INT, &max_seq_len, "N",
      "tokens that a text may have; default: the model's own limit", 1, 1 << 30, NULL },
    ECH_KV_TYPE_OPTION,
    ECH_COMPUTE_OPTION,
    ECH_LOAD_OPTIONS,
    { "prefill-chunk", 0, ECH_OPT_INT, &prefill_chunk, "N", "most tokens in one step; default 256",
      1, 512, NULL },
    { "threads", 'j', ECH_OPT_INT, &threads, "N", "cores of a chip; default: all physical cores", 1,
      256, NULL },
};

/*
 * What there is of one text. numbers is NULL until its event came, and stays it where the text
 * failed.
 */
typedef struct vector {
    float *numbers; // [n], owned
    size_t n;
    uint32_t n_tokens;
    ech_error error;
} vector;

/*
 * Owned by the prompt from the allocation on, so that run() frees it after a failure too. Every
 * id takes a digit and a comma at least, which bounds the list.
 */
static ech_status parse_ids(const char *text, ech_prompt *prompt, ech_error *err)
{
    int32_t *const ids = calloc(strlen(text) / 2 + 1, sizeof *ids);
    if (ids == NULL) return ech_fail(err, ECH_ENOMEM, "reading ids: out of memory");
    prompt->ids = ids;
    if (ech_parse_ids(text, ids, &prompt->n_ids)) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "reading ids: '%.40s' is no list like 1,2,3", text);
}

/* Texts stay in argv. */
static ech_status make_prompts(char **texts, size_t n, ech_prompt *prompts, ech_error *err)
{
    for (size_t i = 0; i < n; i++) {
        prompts[i] = (ech_prompt){ .text = texts[i], .text_len = strlen(texts[i]) };
        if (as_ids) ECH_TRY(parse_ids(texts[i], &prompts[i], err));
    }
    return ECH_OK;
}

/* The vector of an event is valid until the next one, so it is copied. */
static ech_status take_event(const ech_event *ev, vector *vectors, ech_error *err)
{
    vector *const v = &vectors[ev->choice];
    if (ev->kind == ECH_EVENT_EMBEDDING) {
        v->numbers = malloc(ev->n_embedding * sizeof *v->numbers);
        if (v->numbers == NULL) return ech_fail(err, ECH_ENOMEM, "embedding: out of memory");
        memcpy(v->numbers, ev->embedding, ev->n_embedding * sizeof *v->numbers);
        v->n = ev->n_embedding;
    } else if (ev->kind == ECH_EVENT_FINISH) {
        v->n_tokens = ev->usage.prompt_tokens;
        v->error = ev->error;
    }
    return ECH_OK;
}

/*
 * Waits without a limit: there is nothing to do in between, and Ctrl-C ends the program as
 * always.
 */
static ech_status embed(ech_engine *engine, const ech_prompt *prompts, size_t n, vector *vectors,
                        ech_error *err)
{
    ech_request_options o;
    ech_request *request;
    ech_event ev = { 0 };
    ech_request_options_default(&o);
    o.prompts = prompts;
    o.n_prompts = n;
    o.parse_special = parse_special;
    o.embed = true;
    o.dimensions = (uint32_t)dimensions;
    ECH_TRY(ech_engine_submit(engine, &o, &request, err));
    ech_status rc = ECH_OK;
    while (rc == ECH_OK && ev.kind != ECH_EVENT_DONE) {
        rc = ech_request_next(request, -1, &ev, err);
        if (rc == ECH_OK && ev.kind != ECH_EVENT_DONE) rc = take_event(&ev, vectors, err);
    }
    ech_request_close(&request);
    return rc;
}

/* Plain lines are for awk and numpy.loadtxt: numbers and blanks. */
static ech_status put_vector(ech_buf *b, size_t index, const vector *v)
{
    if (as_json)
        ECH_TRY(ech_buf_printf(b, "{\"index\":%zu,\"prompt_tokens\":%u,\"embedding\":[", index,
                               v->n_tokens));
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0) ECH_TRY(ech_buf_push(b, as_json ? ',' : ' '));
        ECH_TRY(ech_json_put_float(b, v->numbers[i]));
    }
    return ech_buf_puts(b, as_json ? "]}\n" : "\n");
}

/* Made in memory and written at once. */
static ech_status print(const vector *vectors, size_t n, ech_error *err)
{
    ech_buf b = { 0 };
    ech_status rc = ECH_OK;
    for (size_t i = 0; i < n && rc == ECH_OK; i++) {
        if (vectors[i].error.code != ECH_OK) {
            *err = vectors[i].error;
            rc = err->code;
        } else if (put_vector(&b, i, &vectors[i]) != ECH_OK) {
            rc = ech_fail(err, ECH_ENOMEM, "printing: out of memory");
        }
    }
    if (rc == ECH_OK) (void)fwrite(b.data, 1, b.len, stdout);
    ech_buf_fini(&b);
    return rc;
}

/* *ret may be set after a failure, too; closing takes both. */
static ech_status open_engine(const char *model_dir, ech_engine **ret, ech_error *err)
{
    ech_engine_options o;
    ech_engine_options_default(&o);
    o.model_dir = model_dir;
    o.pooling = pooling;
    o.threads = (uint32_t)threads;
    o.max_seq_len = (uint32_t)max_seq_len;
    ech_take_load_options(&o);
    o.prefill_chunk = (uint32_t)prefill_chunk;
    ECH_TRY(ech_engine_open(ret, &o, err));
    return ech_engine_wait_ready(*ret, -1, NULL, err);
}

/* Everything is released in one place; prompts of texts have no ids to free. */
static int run(int argc, char **argv)
{
    if (argc < 2) return ech_usage_error("embed takes a model and at least one text");
    const size_t n = (size_t)argc - 1;
    ech_error err = { .code = ECH_OK };
    ech_engine *engine = NULL;
    ech_prompt *const prompts = calloc(n, sizeof *prompts);
    vector *const vectors = calloc(n, sizeof *vectors);
    ech_status rc = prompts != NULL && vectors != NULL
                        ? make_prompts(argv + 1, n, prompts, &err)
                        : ech_fail(&err, ECH_ENOMEM, "embedding: out of memory");
    if (rc == ECH_OK) rc = open_engine(argv[0], &engine, &err);
    if (rc == ECH_OK) rc = embed(engine, prompts, n, vectors, &err);
    if (rc == ECH_OK) rc = print(vectors, n, &err);
    (void)ech_engine_close(&engine);
    for (size_t i = 0; i < n && prompts != NULL && vectors != NULL; i++) {
        free((void *)(uintptr_t)prompts[i].ids);
        free(vectors[i].numbers);
    }
    free(prompts);
    free(vectors);
    return rc == ECH_OK ? ECH_EXIT_OK : ech_report(&err);
}

const ech_command ech_cmd_embed = {
    "embed",
    "MODEL TEXT…",
    "texts as vectors",
    "echelon embed models/tale 'Once upon a time' 'The end'\n"
    "echelon embed DIR 'what is a ring?' --pooling mean --dimensions 256 --json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
