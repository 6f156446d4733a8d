/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on the demo model, through its public header and the real worker. */
#include "tests/unit/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/constraint.h"
#include "echelon/parser.h"
#include "echelon/tokenizer.h"
#include "src/base/clock.h"
#include "tests/unit/engine/harness.h"

/* ---- golden ids ---- */

static h_choice choice_of_json(const json_t *row)
{
    h_choice c = { 0 };
    const json_t *const ids = json_object_get(row, "greedy_ids");
    c.n = (uint32_t)json_array_size(ids);
    c.ids = calloc(c.n, sizeof *c.ids);
    for (uint32_t i = 0; i < c.n; i++)
        c.ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    return c;
}

static void check_golden(const char *name, const char *dir, bool ignore_eos)
{
    char path[512];
    (void)snprintf(path, sizeof path, ECH_SOURCE_DIR "/tests/golden/%s.expected.json", name);
    json_t *const rows = json_load_file(path, 0, NULL);
    assert_true(json_is_array(rows));
    ech_engine_options o = h_options();
    o.model_dir = dir;
    o.max_seq_len = 256;
    o.kv_memory = 0;
    ech_engine *e = h_open(&o);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *const row = json_array_get(rows, i);
        const ech_prompt prompt = h_text(json_string_value(json_object_get(row, "prompt")));
        h_choice expected = choice_of_json(row);
        ech_request_options ro = h_request(&prompt);
        ro.max_tokens = ignore_eos ? expected.n : 200;
        ro.ignore_eos = ignore_eos;
        h_result *r = h_run(e, &ro);
        assert_int_equal(r->submitted, ECH_OK);
        assert_int_equal(r->choices[0].n, expected.n);
        assert_memory_equal(r->choices[0].ids, expected.ids, expected.n * sizeof(int32_t));
        const json_t *const text = json_object_get(row, "text");
        if (text != NULL) {
            assert_int_equal(r->choices[0].text.len, json_string_length(text));
            assert_memory_equal(r->choices[0].text.data, json_string_value(text),
                                json_string_length(text));
            assert_string_equal(ech_finish_name(r->choices[0].finish),
                                json_string_value(json_object_get(row, "finish_reason")));
        }
        free(expected.ids);
        h_free(&r);
    }
    ech_engine_close(&e);
    json_decref(rows);
}

static void tale_gives_the_golden_ids(void **state)
{
    (void)state;
    check_golden("tale", ECH_SOURCE_DIR "/models/tale", false);
}

static void tiny_models_give_the_golden_ids(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "qwen3/gqa-tied-bf16", "qwen3/untied-f32", "qwen3/mha-f16",
                                         "qwen3/mqa-sharded-bf16", "qwen3/yarn-bf16" };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        char dir[512];
        (void)snprintf(dir, sizeof dir, ECH_SOURCE_DIR "/tests/golden/%s", NAMES[i]);
        check_golden(NAMES[i], dir, true);
    }
}

/* ---- the same bits, however it is run ---- */

static const char *const PROMPTS[9] = {
    "Once upon a time, there was a clever turtle named Molly. She liked to eat cheese and to look "
    "at the stars. One day Molly went to the river with her friend. They found a small boat, and "
    "the boat was old. \"Shall we mend it?\" asked Molly. \"We need wood and a rope,\" said her "
    "friend. They walked back to the village and asked the carpenter.",
    "The",
    "One day",
    "There was a king who",
    "Q: What is 3 + 4?\nA:",
    "A small dog sat by the door and waited for its friend. The rain fell all day long.",
    "\"Thank you,\" said the",
    "In the old house at the end of the road",
    "Once",
};

static h_result *run_nine(const ech_engine_options *o, bool together)
{
    ech_engine *e = h_open(o);
    ech_prompt prompts[9];
    h_result *all = calloc(1, sizeof *all);
    for (int i = 0; i < 9; i++)
        prompts[i] = h_text(PROMPTS[i]);
    ech_request_options ro = h_request(prompts);
    ro.max_tokens = 40;
    if (together) {
        ro.n_prompts = 9;
        free(all);
        all = h_run(e, &ro);
    }
    for (int i = 0; i < 9 && !together; i++) {
        ro.prompts = &prompts[i];
        h_result *r = h_run(e, &ro);
        all->choices[i] = r->choices[0];
        all->n_choices = 9;
        free(r);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
    return all;
}

static void batch_chunk_and_threads_change_no_bit(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.no_prefix_cache = true;
    h_result *solo = run_nine(&o, false);
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (int c = 0; c < 4; c++) {
            static const uint32_t CHUNKS[] = { 0, 1, 7, 64 };
            o.threads = threads;
            o.prefill_chunk = CHUNKS[c];
            h_result *batch = run_nine(&o, true);
            assert_int_equal(batch->n_choices, 9);
            for (int i = 0; i < 9; i++)
                h_assert_same(&solo->choices[i], &batch->choices[i]);
            h_free(&batch);
        }
    h_free(&solo);
}

/* ---- the rest on one engine ---- */

static ech_engine *E;

static int open_one(void **state)
{
    (void)state;
    const ech_engine_options o = h_options();
    E = h_open(&o);
    return 0;
}

static int close_one(void **state)
{
    (void)state;
    h_assert_idle(E);
    ech_engine_close(&E);
    return 0;
}

static void a_prompt_is_reused_to_its_last_token(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text(PROMPTS[0]);
    const ech_request_options ro = h_request(&prompt);
    h_result *cold = h_run(E, &ro);
    h_result *warm = h_run(E, &ro);
    assert_int_equal(cold->choices[0].usage.cached_tokens, 0);
    assert_int_equal(warm->choices[0].usage.cached_tokens, warm->usage.prompt_tokens - 1);
    h_assert_same(&cold->choices[0], &warm->choices[0]);
    /* The answer is reused too: prompt and answer as the next prompt. */
    int32_t ids[512];
    ech_ids prompt_ids = { 0 };
    assert_int_equal(ech_tokenizer_encode(ech_engine_tokenizer(E), prompt.text, prompt.text_len,
                                          ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS,
                                          &prompt_ids, NULL),
                     ECH_OK);
    const uint32_t n = (uint32_t)prompt_ids.n;
    memcpy(ids, prompt_ids.data, n * sizeof *ids);
    memcpy(ids + n, cold->choices[0].ids, cold->choices[0].n * sizeof *ids);
    const ech_prompt longer = { .ids = ids, .n_ids = n + cold->choices[0].n };
    ech_request_options next = h_request(&longer);
    h_result *more = h_run(E, &next);
    assert_in_range(more->usage.cached_tokens, n + cold->choices[0].n - 2, longer.n_ids - 1);
    ech_ids_fini(&prompt_ids);
    h_free(&cold);
    h_free(&warm);
    h_free(&more);
}

static void choices_differ_by_their_seed_alone(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text(PROMPTS[5]);
    ech_request_options ro = h_request(&prompt);
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ro.sampling.seed = 1000;
    ro.n = 8;
    h_result *eight = h_run(E, &ro);
    assert_int_equal(eight->n_choices, 8);
    assert_int_equal(eight->usage.prompt_tokens, eight->choices[0].usage.prompt_tokens);
    ro.n = 1;
    for (uint32_t k = 0; k < 8; k++) {
        ro.sampling.seed = 1000 + k;
        h_result *one = h_run(E, &ro);
        assert_int_equal(eight->choices[k].seed, 1000 + k);
        h_assert_same(&one->choices[0], &eight->choices[k]);
        h_free(&one);
    }
    h_free(&eight);
}

static void a_drawn_seed_is_shown_and_repeats(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.sampling.temperature = 1.2f;
    h_result *drawn = h_run(E, &ro);
    ro.sampling.has_seed = true;
    ro.sampling.seed = drawn->seed;
    h_result *given = h_run(E, &ro);
    h_assert_same(&drawn->choices[0], &given->choices[0]);
    h_free(&drawn);
    h_free(&given);
}

static void stop_strings_end_the_text(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    h_result *whole = h_run(E, &ro);
    const char *const text = whole->choices[0].text.data;
    /* Every place of the text in turn: within tokens, across them. */
    for (size_t at = 0; at + 5 <= whole->choices[0].text.len; at += 3) {
        char stop[8];
        memcpy(stop, text + at, 5);
        stop[5] = '\0';
        const size_t first = (size_t)(strstr(text, stop) - text);
        const char *const stops[] = { "never in it", stop };
        ro.stop = stops;
        ro.n_stop = 2;
        ro.include_stop = at % 2 == 1;
        h_result *r = h_run(E, &ro);
        assert_int_equal(r->choices[0].finish, ECH_FINISH_STOP);
        assert_int_equal(r->choices[0].text.len, first + (ro.include_stop ? 5 : 0));
        assert_memory_equal(r->choices[0].text.data, text, r->choices[0].text.len);
        h_free(&r);
    }
    h_free(&whole);
}

static void max_tokens_and_context_end_with_length(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text(PROMPTS[0]);
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 100000; /* cut to the context */
    h_result *r = h_run(E, &ro);
    assert_int_equal(r->choices[0].finish, ECH_FINISH_LENGTH);
    assert_int_equal(r->usage.prompt_tokens + r->usage.completion_tokens, 512);
    h_free(&r);
    int32_t ids[512] = { 0 };
    const ech_prompt full = { .ids = ids, .n_ids = 512 };
    ro.prompts = &full;
    r = h_run(E, &ro);
    assert_int_equal(r->submitted, ECH_ECONTEXT);
    assert_non_null(strstr(r->error.text, "512"));
    h_free(&r);
    const ech_prompt almost = { .ids = ids, .n_ids = 511 };
    ro.prompts = &almost;
    r = h_run(E, &ro);
    assert_int_equal(r->choices[0].n, 1);
    h_free(&r);
}

static void bad_options_are_refused_by_name(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("x");
    const struct {
        const char *argument;
        ech_status code;
        ech_request_options o;
    } cases[] = {
#define CASE(argument, code, ...)                                                                  \
    { argument, code, ({                                                                           \
          ech_request_options o = h_request(&prompt);                                              \
          __VA_ARGS__;                                                                             \
          o;                                                                                       \
      }) }
        CASE("temperature", ECH_EINVAL, o.sampling.temperature = -1),
        CASE("temperature", ECH_EINVAL, o.sampling.temperature = __builtin_nanf("")),
        CASE("temperature", ECH_EINVAL, o.sampling.temperature = __builtin_inff()),
        CASE("top_p", ECH_EINVAL, o.sampling.top_p = 0),
        CASE("top_p", ECH_EINVAL, o.sampling.top_p = 1.5f),
        CASE("top_k", ECH_EINVAL, o.sampling.top_k = -1),
        CASE("min_p", ECH_EINVAL, o.sampling.min_p = 2),
        CASE("repetition_penalty", ECH_EINVAL, o.sampling.repetition_penalty = 0),
        CASE("frequency_penalty", ECH_EINVAL, o.sampling.frequency_penalty = 3),
        CASE("mirostat", ECH_EINVAL, o.sampling.mirostat = 3),
        CASE("n", ECH_EINVAL, o.n = 0),
        CASE("n", ECH_EINVAL, o.n = 129),
        CASE("logprobs", ECH_EINVAL, o.logprobs = 21),
        CASE("max_tokens", ECH_EINVAL, o.max_tokens = 0),
        CASE("min_tokens", ECH_EINVAL, o.min_tokens = 100),
        CASE("prompts", ECH_EINVAL, o.n_prompts = 0),
        CASE("struct_size", ECH_EINVAL, o.struct_size = 8),
        CASE("stop", ECH_EINVAL, static const char *const empty[] = { "" }; o.stop = empty;
             o.n_stop = 1),
        CASE("stop_ids", ECH_EINVAL, static const int32_t far[] = { 999999 }; o.stop_ids = far;
             o.n_stop_ids = 1),
        CASE("prompts", ECH_EINVAL, static const ech_prompt none = { .text = "" };
             o.prompts = &none),
        CASE("prompts", ECH_EINVAL, static const int32_t far[] = { 1, 999999 };
             static const ech_prompt ids = { .ids = far, .n_ids = 2 }; o.prompts = &ids),
        CASE("prompts", ECH_ECONTEXT, static int32_t long_ids[2048];
             static const ech_prompt ids = { .ids = long_ids, .n_ids = 2048 }; o.prompts = &ids),
        CASE("n", ECH_ELIMIT, static const ech_prompt many[17]; o.prompts = many; o.n_prompts = 17;
             o.n = 128),
        CASE("prompts", ECH_ELIMIT, static const ech_prompt many[4096]; o.prompts = many;
             o.n_prompts = 4096),
        CASE("dry_breakers", ECH_EINVAL, static const char *const empty[] = { "" };
             o.sampling.dry_breakers = empty; o.sampling.n_dry_breakers = 1),
        CASE("dry_range", ECH_EINVAL, o.sampling.dry_range = -2),
        CASE("logit_bias", ECH_ELIMIT, static ech_logit_bias many[40000];
             o.sampling.logit_bias = many; o.sampling.n_logit_bias = 40000;
             static const int32_t few[50000]; o.sampling.allowed_ids = few;
             o.sampling.n_allowed_ids = 50000),
        CASE("stop", ECH_ELIMIT, static char far[5000]; memset(far, 'a', sizeof far - 1);
             static const char *const longer[] = { far }; o.stop = longer; o.n_stop = 1),
        CASE("tenant_weight", ECH_EINVAL, o.tenant_weight = 0),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        h_result *r = h_run(E, &cases[i].o);
        assert_int_equal(r->submitted, cases[i].code);
        if (strcmp(r->error.argument, cases[i].argument) != 0)
            fail_msg("case %zu: '%s' (%s) does not name '%s'", i, r->error.argument, r->error.text,
                     cases[i].argument);
        h_free(&r);
    }
}

static void a_cancelled_request_ends_and_gives_its_pages_back(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 400;
    ro.n = 4;
    for (int at = 0; at < 12; at++) {
        ech_request *request;
        ech_event ev;
        ech_error err;
        assert_int_equal(ech_engine_submit(E, &ro, &request, NULL), ECH_OK);
        h_result *const r = calloc(1, sizeof *r);
        for (int i = 0; i < at * at; i++) {
            assert_int_equal(ech_request_next(request, 10000, &ev, &err), ECH_OK);
            h_take(r, &ev);
        }
        ech_request_cancel(request);
        while (r->n_done == 0) {
            assert_int_equal(ech_request_next(request, 10000, &ev, &err), ECH_OK);
            h_take(r, &ev);
        }
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(r->choices[i].finish, ECH_FINISH_CANCELLED);
        ech_request_cancel(request); /* harmless */
        ech_request_close(&request);
        h_result *done = r;
        h_free(&done);
    }
    h_assert_idle(E);
}

static void a_deadline_ends_a_request(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 400;
    ro.deadline_ns = ech_now_ns() + 20 * ECH_NS_PER_MS;
    ro.n = 8;
    h_result *r = h_run(E, &ro);
    assert_int_equal(r->error.code, ECH_ETIMEOUT);
    assert_int_equal(r->choices[7].finish, ECH_FINISH_ERROR);
    assert_true(ech_now_ns() - ro.deadline_ns < 2 * ECH_NS_PER_S);
    h_free(&r);
}

static void a_slow_reader_is_left_out_and_comes_back(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.event_bytes = 4096;
    ech_engine *e = h_open(&o);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 300;
    ech_request *slow;
    assert_int_equal(ech_engine_submit(e, &ro, &slow, NULL), ECH_OK);
    h_result *other = h_run(e, &ro); /* goes on meanwhile */
    ech_engine_counters c = h_counters(e);
    assert_int_equal(other->choices[0].n, 300);
    assert_true(c.generated_tokens < 300 + 100);
    h_result *r = h_finish(&slow);
    h_assert_same(&r->choices[0], &other->choices[0]);
    h_free(&r);
    h_free(&other);
    ech_engine_close(&e);
}

static void a_prompt_can_be_scored_and_echoed(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text(PROMPTS[0]);
    ech_request_options ro = h_request(&prompt);
    ro.prompt_logprobs = 0;
    ro.echo = true;
    ro.max_tokens = 0;
    h_result *scored = h_run(E, &ro);
    const h_choice *const c = &scored->choices[0];
    assert_string_equal(c->error.text, "");
    assert_int_equal(c->n_prompt, scored->usage.prompt_tokens);
    assert_int_equal(c->n, 0);
    assert_int_equal(c->text.len, strlen(PROMPTS[0]));
    assert_memory_equal(c->text.data, PROMPTS[0], c->text.len);
    assert_int_equal(c->finish, ECH_FINISH_LENGTH);
    for (uint32_t i = 1; i < c->n_prompt; i++)
        assert_true(c->prompt_logprobs[i] < 0);
    /* The log-probability of an id is the same whether it was drawn or is part of a prompt. */
    ro.max_tokens = 20;
    ro.echo = false;
    ro.ignore_eos = true;
    ro.prompt_logprobs = -1;
    h_result *drawn = h_run(E, &ro);
    int32_t ids[512];
    memcpy(ids, c->prompt_ids, c->n_prompt * sizeof *ids);
    memcpy(ids + c->n_prompt, drawn->choices[0].ids, 20 * sizeof *ids);
    const ech_prompt both = { .ids = ids, .n_ids = c->n_prompt + 20 };
    ro = h_request(&both);
    ro.prompt_logprobs = 3;
    ro.max_tokens = 1;
    h_result *again = h_run(E, &ro);
    assert_int_equal(again->choices[0].n_prompt, c->n_prompt + 20);
    assert_memory_equal(again->choices[0].prompt_logprobs, c->prompt_logprobs,
                        c->n_prompt * sizeof(float));
    assert_memory_equal(again->choices[0].prompt_logprobs + c->n_prompt, drawn->choices[0].logprobs,
                        20 * sizeof(float));
    assert_int_equal(again->choices[0].n, 1);
    h_free(&scored);
    h_free(&drawn);
    h_free(&again);
}

static void a_miss_is_explained(void **state)
{
    (void)state;
    const ech_prompt first = h_text("Once upon a time there was a king who had a red hat");
    const ech_prompt second = h_text("Once upon a time there was a king who had a blue hat");
    ech_request_options ro = h_request(&first);
    ro.cache_salt = "explain";
    ro.max_tokens = 2;
    h_result *r = h_run(E, &ro);
    ech_cache_explanation x;
    assert_int_equal(ech_engine_cache_explain(E, &first, "explain", &x, NULL), ECH_OK);
    assert_int_equal(x.cached_tokens, x.n_tokens - 1);
    assert_int_equal(ech_engine_cache_explain(E, &second, "explain", &x, NULL), ECH_OK);
    assert_true(x.has_divergence);
    assert_non_null(strstr(x.around, "[ blue][ red]"));
    assert_int_equal(ech_engine_cache_explain(E, &first, "other", &x, NULL), ECH_OK);
    assert_int_equal(x.cached_tokens, 0);
    h_free(&r);
}

static void penalties_and_lists_take_effect(void **state)
{
    (void)state;
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    h_result *plain = h_run(E, &ro);
    const int32_t first = plain->choices[0].ids[0];
    ro.sampling.banned_ids = &first;
    ro.sampling.n_banned_ids = 1;
    h_result *r = h_run(E, &ro);
    for (uint32_t i = 0; i < r->choices[0].n; i++)
        assert_int_not_equal(r->choices[0].ids[i], first);
    h_free(&r);
    ro = h_request(&prompt);
    const ech_logit_bias bias = { .id = 5, .bias = 100 };
    ro.sampling.logit_bias = &bias;
    ro.sampling.n_logit_bias = 1;
    r = h_run(E, &ro);
    for (uint32_t i = 0; i < r->choices[0].n; i++)
        assert_int_equal(r->choices[0].ids[i], 5);
    h_free(&r);
    ro = h_request(&prompt);
    ro.sampling.presence_penalty = 2;
    ro.sampling.frequency_penalty = 2;
    ro.sampling.repetition_penalty = 50;
    ro.max_tokens = 60;
    r = h_run(E, &ro); /* nothing is said twice, the ids in flight included */
    for (uint32_t i = 0; i < r->choices[0].n; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(r->choices[0].ids[i], r->choices[0].ids[k]);
    h_free(&r);
    h_free(&plain);
}

static bool is_all(const h_choice *c, int32_t id)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->ids[i] != id) return false;
    return true;
}

/* One id wins by far, so DRY alone can end its repetition, unless it breaks every repeat. */
static void dry_ends_at_its_breakers(void **state)
{
    (void)state;
    static const char *const none[1] = { NULL };
    static const char *const colon[] = { "~~", ":" };
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ech_ids ids = { 0 };
    assert_int_equal(ech_tokenizer_encode(ech_engine_tokenizer(E), ":", 1, 0, &ids, NULL), ECH_OK);
    const ech_logit_bias bias = { .id = ids.data[ids.n - 1], .bias = 100 };
    ech_ids_fini(&ids);
    ro.sampling.logit_bias = &bias;
    ro.sampling.n_logit_bias = 1;
    ro.sampling.dry_multiplier = 100;
    h_result *by_default = h_run(E, &ro);
    ro.sampling.dry_breakers = none;
    h_result *without = h_run(E, &ro);
    ro.sampling.dry_breakers = colon;
    ro.sampling.n_dry_breakers = 2;
    h_result *named = h_run(E, &ro);
    assert_true(is_all(&by_default->choices[0], bias.id));
    assert_false(is_all(&without->choices[0], bias.id));
    assert_true(is_all(&named->choices[0], bias.id));
    h_free(&by_default);
    h_free(&without);
    h_free(&named);
    ro.sampling.dry_breakers = none;
    ro.sampling.n_dry_breakers = 1;
    h_result *refused = h_run(E, &ro);
    assert_int_equal(refused->submitted, ECH_EINVAL);
    assert_non_null(strstr(refused->error.text, "dry_breakers[0]"));
    h_free(&refused);
}

/* A hook that lets only ids through whose parity differs from the id before. */
typedef struct zigzag {
    int32_t last;
    int n_left; // ids until it is complete
} zigzag;

static int n_hooks_open;

static ech_status zigzag_open(void *self, void **ret_state, ech_error *err)
{
    zigzag *const z = malloc(sizeof *z);
    (void)err;
    *z = (zigzag){ .last = 0, .n_left = *(const int *)self };
    n_hooks_open++;
    *ret_state = z;
    return ECH_OK;
}

static ech_status zigzag_mask(void *state, uint32_t *words, size_t n_words, ech_error *err)
{
    const zigzag *const z = state;
    (void)err;
    for (size_t i = 0; i < n_words; i++)
        words[i] = z->last % 2 == 0 ? 0xaaaaaaaau : 0x55555555u;
    return ECH_OK;
}

static ech_status zigzag_accept(void *state, int32_t id, bool *ret_ended, ech_error *err)
{
    zigzag *const z = state;
    if (id % 2 == z->last % 2) {
        err->code = ECH_EINTERNAL;
        return ECH_EINTERNAL;
    }
    z->last = id;
    *ret_ended = --z->n_left == 0;
    return ECH_OK;
}

static void zigzag_close(void *state)
{
    n_hooks_open--;
    free(state);
}

static void a_hook_restricts_every_id(void **state)
{
    (void)state;
    int length = 25;
    const ech_constraint_hook hook = { &length, zigzag_open, zigzag_mask, zigzag_accept,
                                       zigzag_close };
    const ech_prompt prompts[2] = { h_text("Once upon a time"), h_text("The") };
    ech_request_options ro = h_request(prompts);
    ro.hook = &hook;
    ro.n_prompts = 2;
    ro.n = 4;
    ro.ignore_eos = true;
    ro.max_tokens = 60;
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ro.sampling.repetition_penalty = 1.1f;
    ech_request_options plain = h_request(prompts);
    plain.max_tokens = 100;
    ech_request *beside;
    assert_int_equal(ech_engine_submit(E, &plain, &beside, NULL), ECH_OK);
    h_result *eight = h_run(E, &ro);
    h_result *other = h_finish(&beside);
    ro.n_prompts = ro.n = 1;
    for (uint32_t k = 0; k < 8; k++) {
        const h_choice *const c = &eight->choices[k];
        assert_int_equal(c->finish, ECH_FINISH_STOP);
        assert_int_equal(c->n, 25);
        for (uint32_t i = 0; i < c->n; i++)
            assert_int_not_equal(c->ids[i] % 2, i == 0 ? 0 : c->ids[i - 1] % 2);
        ro.prompts = &prompts[k / 4];
        ro.sampling.seed = k % 4;
        h_result *alone = h_run(E, &ro);
        h_assert_same(&alone->choices[0], c);
        h_free(&alone);
    }
    assert_int_equal(n_hooks_open, 0);
    h_free(&eight);
    h_free(&other);
}

static void a_constraint_is_satisfied(void **state)
{
    (void)state;
    ech_mask_vocab *vocab;
    ech_constraint *constraint;
    ech_error err = { .code = ECH_OK };
    assert_int_equal(ech_engine_mask_vocab(E, &vocab, &err), ECH_OK);
    ech_constraint_spec spec = ech_constraint_spec_default();
    spec.content_kind = ECH_CONSTRAINT_REGEX;
    spec.content = "(red|blue|green)-[0-9]{3}!";
    spec.content_len = strlen(spec.content);
    if (ech_constraint_compile(vocab, &spec, NULL, &constraint, &err) != ECH_OK)
        fail_msg("%s", err.text);
    const ech_prompt prompt = h_text("The colour is");
    ech_request_options ro = h_request(&prompt);
    ro.constraint = constraint;
    ro.n = 8;
    ro.sampling.temperature = 1.5f;
    h_result *r = h_run(E, &ro);
    ech_constraint_unref(&constraint);
    ech_mask_vocab_unref(&vocab);
    for (uint32_t k = 0; k < 8; k++) {
        const char *const text = r->choices[k].text.data;
        int digits = 0, end = 0;
        assert_int_equal(r->choices[k].finish, ECH_FINISH_STOP);
        assert_int_equal(sscanf(text + strcspn(text, "-"), "-%3d!%n", &digits, &end), 1);
        assert_int_equal(strcspn(text, "-") + (size_t)end, r->choices[k].text.len);
        assert_true(strncmp(text, "red-", 4) == 0 || strncmp(text, "blue-", 5) == 0 ||
                    strncmp(text, "green-", 6) == 0);
    }
    h_free(&r);
}

/* A constraint that often leaves no choice: its ids are computed at once, and nothing tells. */
static void forced_ids_are_those_of_plain_decoding(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *text;
    } specs[] = {
        { ECH_CONSTRAINT_REGEX, "#7%4@~0#9%2~ said [a-z]{3,5} to (Hugo|Molly) "
                                "and walked back to the village\\." },
        { ECH_CONSTRAINT_JSON_SCHEMA,
          "{\"type\":\"object\",\"properties\":{\"the_name_of_the_turtle\":{\"type\":"
          "\"string\",\"maxLength\":6},\"number_of_boats\":{\"enum\":[1,22,333]}},"
          "\"required\":[\"the_name_of_the_turtle\",\"number_of_boats\"],"
          "\"additionalProperties\":false}" },
        { ECH_CONSTRAINT_CHOICE, "[\"#7%4@~0#9%2@~5#1%8@~\"]" },
    };
    uint64_t steps[2] = { 0, 0 };
    for (uint32_t i = 0; i < 12; i++) {
        ech_constraint *c = h_constraint(E, specs[i % 3].kind, specs[i % 3].text);
        const ech_constraint_hook hook = h_plain_hook(c);
        const ech_prompt prompt = h_text(i % 2 == 0 ? "Once upon a time" : "The");
        ech_request_options ro = h_request(&prompt);
        ro.n = 1 + i % 3;
        ro.max_tokens = i < 8 ? 100 : 7 + i;
        ro.logprobs = i % 4 == 0 ? -1 : (int32_t)i;
        ro.sampling.temperature = i % 2 == 0 ? 1 : 0;
        ro.sampling.has_seed = true;
        ro.sampling.repetition_penalty = 1.2f;
        ro.sampling.dry_multiplier = i % 3 == 0 ? 1 : 0;
        if (i == 5) ro.min_tokens = 3;
        h_result *r[2];
        for (int k = 0; k < 2; k++) {
            const uint64_t before = h_counters(E).steps;
            ro.constraint = k == 0 ? c : NULL;
            ro.hook = k == 0 ? NULL : &hook;
            r[k] = h_run(E, &ro);
            steps[k] += h_counters(E).steps - before;
        }
        for (uint32_t k = 0; k < ro.n; k++)
            h_assert_same(&r[1]->choices[k], &r[0]->choices[k]);
        h_free(&r[0]);
        h_free(&r[1]);
        ech_constraint_unref(&c);
    }
    print_message("%llu steps, plain %llu\n", (unsigned long long)steps[0],
                  (unsigned long long)steps[1]);
    assert_true(steps[0] * 4 < steps[1] * 3);
}

/*
 * An answer that was preempted is computed again in pieces: while it is, nothing is known ahead of
 * it, or ids that were taken long ago would be taken again.
 */
static void forced_ids_survive_preemption(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.kv_memory = o.kv_memory / 64 * 9; /* pages for two of the six answers at their full length */
    o.max_seq_len = 256;
    o.prefill_chunk = 5;
    o.no_prefix_cache = true;
    ech_engine *e = h_open(&o);
    ech_constraint *c = h_constraint(e, ECH_CONSTRAINT_REGEX, "([a-z]{4,5}#@~%0#7%4@~0#9%2~){5}");
    const ech_constraint_hook hook = h_plain_hook(c);
    const ech_prompt prompt = h_text("The");
    ech_request_options ro = h_request(&prompt);
    ro.max_tokens = 200;
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ech_request *running[6];
    for (uint32_t i = 0; i < 6; i++) {
        ro.sampling.seed = i;
        ro.constraint = c;
        assert_int_equal(ech_engine_submit(e, &ro, &running[i], NULL), ECH_OK);
    }
    uint32_t n_preempted = 0;
    for (uint32_t i = 0; i < 6; i++) {
        h_result *mixed = h_finish(&running[i]);
        ro.sampling.seed = i;
        ro.constraint = NULL;
        ro.hook = &hook;
        n_preempted += mixed->usage.preemptions;
        h_result *alone = h_run(E, &ro);
        h_assert_same(&alone->choices[0], &mixed->choices[0]);
        h_free(&mixed);
        h_free(&alone);
    }
    assert_true(n_preempted > 0);
    h_assert_idle(e);
    ech_constraint_unref(&c);
    ech_engine_close(&e);
}

/* What forbids the forced id: the request fails as it does when the id is drawn. */
static void a_forced_id_that_is_banned_fails(void **state)
{
    (void)state;
    ech_constraint *c = h_constraint(E, ECH_CONSTRAINT_CHOICE, "[\"#7%4@~0#9\"]");
    const ech_prompt prompt = h_text("The");
    ech_request_options ro = h_request(&prompt);
    ro.constraint = c;
    h_result *good = h_run(E, &ro);
    const int32_t last = good->choices[0].ids[good->choices[0].n - 1];
    const ech_logit_bias never = { .id = last, .bias = -INFINITY };
    assert_int_equal(good->error.code, ECH_OK);
    ro.sampling.logit_bias = &never;
    ro.sampling.n_logit_bias = 1;
    h_result *bad = h_run(E, &ro);
    assert_int_equal(bad->error.code, ECH_EINVAL);
    assert_string_equal(bad->error.argument, "logit_bias");
    assert_int_equal(bad->choices[0].n, good->choices[0].n - 1);
    h_free(&good);
    h_free(&bad);
    ech_constraint_unref(&c);
}

/* "<think>" and its end are added tokens of the model: fed as a prompt's ids they are not parsed,
 * forced by a bias they are. */
static void reasoning_is_told_from_content(void **state)
{
    (void)state;
    const ech_tokenizer *const t = ech_engine_tokenizer(E);
    const ech_prompt prompt = h_text("<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n"
                                     "<|im_start|>assistant\n");
    ech_parser_options po = ech_parser_options_default();
    po.reasoning = ECH_REASONING_THINK;
    const ech_logit_bias open_think = { .id = ech_tokenizer_find_added(t, "<think>", 7),
                                        .bias = 3 };
    ech_request_options ro = h_request(&prompt);
    ro.parser = &po;
    ro.max_tokens = 200;
    ro.sampling.logit_bias = &open_think;
    ro.sampling.n_logit_bias = open_think.id >= 0;
    ech_request *request;
    ech_event ev = { 0 };
    size_t n_reasoning = 0, n_content = 0;
    assert_int_equal(ech_engine_submit(E, &ro, &request, NULL), ECH_OK);
    while (ev.kind != ECH_EVENT_DONE) {
        assert_int_equal(ech_request_next(request, 30000, &ev, NULL), ECH_OK);
        if (ev.kind != ECH_EVENT_TEXT) continue;
        assert_null(memmem(ev.text, ev.text_len, "think>", 6));
        n_reasoning += ev.channel == ECH_CHANNEL_REASONING ? ev.text_len : 0;
        n_content += ev.channel == ECH_CHANNEL_CONTENT ? ev.text_len : 0;
    }
    assert_true(n_content > 0);
    assert_true(n_reasoning == 0 || ev.usage.reasoning_tokens > 0);
    ech_request_close(&request);
}

static void close_ends_what_runs(void **state)
{
    (void)state;
    const ech_engine_options o = h_options();
    ech_engine *e = h_open(&o);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 400;
    ech_request *request;
    assert_int_equal(ech_engine_submit(e, &ro, &request, NULL), ECH_OK);
    ech_engine_close(&e);
    assert_null(e);
    h_result *r = h_finish(&request);
    assert_int_equal(r->choices[0].finish, ECH_FINISH_CANCELLED);
    h_free(&r);
    ech_engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tale_gives_the_golden_ids),
        cmocka_unit_test(tiny_models_give_the_golden_ids),
        cmocka_unit_test(batch_chunk_and_threads_change_no_bit),
        cmocka_unit_test(a_slow_reader_is_left_out_and_comes_back),
        cmocka_unit_test(close_ends_what_runs),
    };
    const struct CMUnitTest on_one_engine[] = {
        cmocka_unit_test(a_prompt_is_reused_to_its_last_token),
        cmocka_unit_test(choices_differ_by_their_seed_alone),
        cmocka_unit_test(a_drawn_seed_is_shown_and_repeats),
        cmocka_unit_test(stop_strings_end_the_text),
        cmocka_unit_test(max_tokens_and_context_end_with_length),
        cmocka_unit_test(bad_options_are_refused_by_name),
        cmocka_unit_test(a_cancelled_request_ends_and_gives_its_pages_back),
        cmocka_unit_test(a_deadline_ends_a_request),
        cmocka_unit_test(a_prompt_can_be_scored_and_echoed),
        cmocka_unit_test(a_miss_is_explained),
        cmocka_unit_test(penalties_and_lists_take_effect),
        cmocka_unit_test(dry_ends_at_its_breakers),
        cmocka_unit_test(a_hook_restricts_every_id),
        cmocka_unit_test(a_constraint_is_satisfied),
        cmocka_unit_test(forced_ids_are_those_of_plain_decoding),
        cmocka_unit_test(forced_ids_survive_preemption),
        cmocka_unit_test(a_forced_id_that_is_banned_fails),
        cmocka_unit_test(reasoning_is_told_from_content),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(on_one_engine, open_one, close_one);
}
