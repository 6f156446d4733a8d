/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring one row of `echelon bench MODEL`, on the engine that everything else runs on. Times are
 * the engine's own, of its events: from the first step to the first id of a prompt, and from the
 * last stream's first id to its last.
 *
 * A depth is reached by a request that isn't timed: its pages stay in the prefix tree and the timed
 * prompt begins with them. What is timed must not be found there, so each begins with an id that no
 * earlier one had; how much was found is checked.
 */
#include <stdlib.h>
#include <time.h>

#include "src/base/error.h"
#include "src/cli/bench_model.h"

/* Long enough for a stable rate, short beside a repetition. */
#define READ_SECONDS 0.1
#define PEAK_SECONDS 0.05

/* What came of one request. */
typedef struct outcome {
    uint32_t cached;        /* least of a choice */
    int64_t started, ended; /* earliest first step, last end */
    int64_t last_first;     /* when the last choice had its first id */
    int64_t first_ids;      /* the same of the first choice */
} outcome;

uint64_t ech_bench_kv_tokens(const ech_bench_test *test)
{
    /* A page more for each, which a prompt's tail may need. */
    const uint64_t one = (uint64_t)test->n_depth + test->n_prompt + test->n_gen + 2 + 64;
    return one * test->n_streams + 2 * (uint64_t)test->n_prompt;
}

/* ---- prompts ---- */

/* splitmix64: the same ids on every machine. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* The stream's own depth ids, then n ids that begin as none before. */
static void fill_ids(ech_bench *b, uint32_t stream, uint32_t depth, uint32_t n, int32_t *ids)
{
    const uint64_t vocab = b->info.vocab_size;
    const uint64_t base = mix((uint64_t)b->seed * 1000 + stream);
    for (uint32_t i = 0; i < depth; i++)
        ids[i] = (int32_t)(mix(base + i) % vocab);
    const uint64_t own = mix(~(uint64_t)b->seed ^ b->n_made << 20);
    for (uint32_t i = 0; i < n; i++)
        ids[depth + i] = (int32_t)(mix(own + i) % vocab);
    if (n > 0) ids[depth] = (int32_t)(b->n_made++ % vocab);
}

/* ---- one request ---- */

static void take_finish(outcome *o, const ech_usage *u)
{
    if (u->cached_tokens < o->cached) o->cached = u->cached_tokens;
    if (u->started_ns < o->started) o->started = u->started_ns;
    if (u->finished_ns > o->ended) o->ended = u->finished_ns;
    if (u->first_token_ns > o->last_first) o->last_first = u->first_token_ns;
    if (u->first_token_ns < o->first_ids) o->first_ids = u->first_token_ns;
}

static ech_status read_events(ech_request *req, outcome *o, ech_error *err)
{
    ech_event ev = { 0 };
    while (ev.kind != ECH_EVENT_DONE) {
        ECH_TRY(ech_request_next(req, -1, &ev, err));
        if (ev.kind == ECH_EVENT_FINISH) take_finish(o, &ev.usage);
    }
    if (ev.error.code == ECH_OK) return ECH_OK;
    return ech_fail(err, ev.error.code, "%s", ev.error.text);
}

static ech_status run_prompts(ech_bench *b, const ech_prompt *prompts, uint32_t n_prompts,
                              uint32_t n_gen, outcome *ret, ech_error *err)
{
    ech_request_options o;
    ech_request *req;
    ech_request_options_default(&o);
    o.prompts = prompts;
    o.n_prompts = n_prompts;
    o.max_tokens = n_gen;
    o.ignore_eos = true;
    o.sampling.temperature = 0;
    *ret = (outcome){ .cached = UINT32_MAX, .started = INT64_MAX, .first_ids = INT64_MAX };
    ECH_TRY(ech_engine_submit(b->engine, &o, &req, err));
    const ech_status rc = read_events(req, ret, err);
    ech_request_close(&req);
    return rc;
}

/* n_own ids behind the depth of every stream, then n_gen that are drawn. */
static ech_status run_streams(ech_bench *b, const ech_bench_test *t, uint32_t n_own, uint32_t n_gen,
                              outcome *ret, ech_error *err)
{
    const size_t len = (size_t)t->n_depth + n_own;
    int32_t *const ids = calloc(len * t->n_streams, sizeof *ids);
    ech_prompt *const prompts = calloc(t->n_streams, sizeof *prompts);
    ech_status rc = ECH_OK;
    if (ids == NULL || prompts == NULL) rc = ech_fail(err, ECH_ENOMEM, "bench: out of memory");
    for (uint32_t s = 0; rc == ECH_OK && s < t->n_streams; s++) {
        fill_ids(b, s, t->n_depth, n_own, ids + s * len);
        prompts[s] = (ech_prompt){ .ids = ids + s * len, .n_ids = len };
    }
    if (rc == ECH_OK) rc = run_prompts(b, prompts, t->n_streams, n_gen, ret, err);
    free(ids);
    free(prompts);
    return rc;
}

/* ---- a repetition ---- */

static ech_status reach_depth(ech_bench *b, const ech_bench_test *t, ech_error *err)
{
    outcome unused;
    return t->n_depth > 0 ? run_streams(b, t, 0, 1, &unused, err) : ECH_OK;
}

static ech_status run_timed(ech_bench *b, const ech_bench_test *t, outcome *ret, ech_error *err)
{
    const uint32_t n_own = t->n_prompt > 0 ? t->n_prompt : 1;
    return run_streams(b, t, n_own, t->n_gen + 1, ret, err);
}

/* The first look at a depth may find that it was thrown out meanwhile: it is computed again. */
static ech_status repeat(ech_bench *b, const ech_bench_test *t, int64_t *ret_ns, ech_error *err)
{
    outcome o;
    for (int again = 0; again < 2; again++) {
        ECH_TRY(run_timed(b, t, &o, err));
        *ret_ns = t->n_prompt > 0 ? o.last_first - o.started : o.ended - o.last_first;
        if (o.cached == t->n_depth) return ECH_OK;
        ECH_TRY(reach_depth(b, t, err));
    }
    return ech_fail(err, ECH_ELIMIT,
                    "bench: of a depth of %u tokens %u are in the cache; give more --kv-memory",
                    t->n_depth, o.cached);
}

ech_status ech_bench_measure(ech_bench *b, const ech_bench_test *test, uint32_t n_reps,
                             ech_bench_row *row, ech_error *err)
{
    int64_t unused;
    *row = (ech_bench_row){ .test = *test, .n_reps = n_reps };
    const time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) != NULL)
        (void)strftime(row->when, sizeof row->when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    ECH_TRY(reach_depth(b, test, err));
    ECH_TRY(repeat(b, test, &unused, err));
    for (uint32_t i = 0; i < n_reps; i++) {
        ECH_TRY(ech_meter_run(b->meter, ECH_METER_READ, READ_SECONDS, &row->read[i], err));
        ECH_TRY(ech_meter_run(b->meter, b->info.product, PEAK_SECONDS, &row->peak[i], err));
        ECH_TRY(repeat(b, test, &row->ns[i], err));
    }
    return ECH_OK;
}
