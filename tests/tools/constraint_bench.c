/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What masks cost with a real vocabulary: constraint_bench TOKENIZER_FOLDER [WARM_DOCUMENTS].
 *
 * For each schema: compiles it, follows some documents to warm the cache, then times the mask at
 * every token of other documents, made by the same generator from another seed. Documents hold
 * words, escapes, numbers, nested lists, in three layouts. Prints one line a schema: compile time,
 * and p50, p99, worst mask time and the share of misses over the timed documents. With 0 warm
 * documents (default: 20) the timed ones begin right after compiling: what a cold start costs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/constraint.h"
#include "src/base/buf.h"
#include "src/base/clock.h"

#define TIMED_DOCS 200

static int warm_docs = 20;

static uint64_t rng;

static uint32_t below(const uint32_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((rng >> 33) % n);
}

/* ---- documents ---- */

static const char *const WORDS[] = {
    "the",
    "quick",
    "brown",
    "fox",
    "Ingenuity",
    "server",
    "42",
    "na\xC3\xAFve",
    "\xE4\xBD\xA0\xE5\xA5\xBD",
    "\\n",
    "\\\"quoted\\\"",
    "C:\\\\path",
    "\\u00e9t\\u00e9",
    "e.g.",
    "(see",
    "below)",
    "\xF0\x9F\x98\x80",
    "unbelievable",
    "configuration",
    "HTTP/1.1",
    "foo_bar",
    "x=1;",
    "https://example.com/a?b=c",
    "--",
    ("Stra\xC3\x9F"
     "e"),
    "\\t",
    "don't",
    "100%",
    "#hash",
    "<b>bold</b>",
    "   ",
    "AAAA",
    "ok",
};

static void sentence(ech_buf *const b, const uint32_t words)
{
    (void)ech_buf_push(b, '"');
    for (uint32_t i = 0; i < words; i++) {
        if (i > 0) (void)ech_buf_push(b, ' ');
        (void)ech_buf_puts(b, WORDS[below(sizeof WORDS / sizeof WORDS[0])]);
    }
    (void)ech_buf_push(b, '"');
}

static void lowercase(ech_buf *const b, const uint32_t min, const uint32_t max)
{
    static const char *const PARTS[] = { "an", "the", "ing",   "server", "node",
                                         "a",  "x",   "quick", "-",      "lo" };
    const uint32_t want = min + below(max - min + 1);
    const size_t from = b->len;
    while (b->len - from < want) {
        const char *const part = PARTS[below(sizeof PARTS / sizeof PARTS[0])];
        if (b->len - from + strlen(part) > want)
            (void)ech_buf_push(b, 'q');
        else
            (void)ech_buf_puts(b, part);
    }
}

/* Layout: 0 compact, 1 spaces after separators, 2 indented. */
static int layout;

static void gap(ech_buf *const b, const int depth, const bool is_colon)
{
    if (layout == 0) return;
    if (layout == 1 || is_colon) {
        (void)ech_buf_push(b, ' ');
        return;
    }
    (void)ech_buf_push(b, '\n');
    for (int i = 0; i < depth; i++)
        (void)ech_buf_puts(b, "  ");
}

static void key(ech_buf *const b, const char *const name, const int depth, const bool is_first)
{
    if (!is_first) (void)ech_buf_push(b, ',');
    if (!is_first || layout == 2) gap(b, depth, false);
    (void)ech_buf_printf(b, "\"%s\":", name);
    gap(b, depth, true);
}

static void close_object(ech_buf *const b, const int depth)
{
    if (layout == 2) gap(b, depth, false);
    (void)ech_buf_push(b, '}');
}

static void person(ech_buf *const b)
{
    (void)ech_buf_push(b, '{');
    key(b, "name", 1, true);
    sentence(b, 1 + below(6));
    key(b, "age", 1, false);
    (void)ech_buf_printf(b, "%u", below(120));
    key(b, "slug", 1, false);
    (void)ech_buf_push(b, '"');
    lowercase(b, 3, 30);
    (void)ech_buf_push(b, '"');
    key(b, "born", 1, false);
    (void)ech_buf_printf(b, "\"%u-%02u-%02uT%02u:%02u:%02uZ\"", 1900 + below(120), 1 + below(12),
                         1 + below(28), below(24), below(60), below(60));
    key(b, "bio", 1, false);
    sentence(b, 5 + below(40));
    key(b, "score", 1, false);
    (void)ech_buf_printf(b, "%u.%u", below(100), below(100000));
    key(b, "tags", 1, false);
    (void)ech_buf_push(b, '[');
    const uint32_t n = below(5);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) (void)ech_buf_push(b, ',');
        if (i > 0) gap(b, 2, true);
        sentence(b, 1 + below(3));
    }
    (void)ech_buf_push(b, ']');
    close_object(b, 0);
}

static void anything(ech_buf *const b, const int depth)
{
    const uint32_t kind = depth > 5 ? 2 + below(4) : below(6);
    const uint32_t n = below(4);
    if (kind == 0) {
        (void)ech_buf_push(b, '{');
        for (uint32_t i = 0; i < n; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "key_%u", below(50));
            key(b, name, depth, i == 0);
            anything(b, depth + 1);
        }
        close_object(b, depth - 1);
    } else if (kind == 1) {
        (void)ech_buf_push(b, '[');
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0) (void)ech_buf_push(b, ',');
            if (i > 0) gap(b, depth, true);
            anything(b, depth + 1);
        }
        (void)ech_buf_push(b, ']');
    } else if (kind == 2) {
        (void)ech_buf_printf(b, "%d", (int)below(100000) - 5000);
    } else if (kind == 3) {
        (void)ech_buf_puts(b, below(2) ? "true" : "null");
    } else {
        sentence(b, below(12));
    }
}

static void object(ech_buf *const b)
{
    (void)ech_buf_push(b, '{');
    for (uint32_t i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "key_%u", below(50));
        key(b, name, 1, i == 0);
        anything(b, 2);
    }
    close_object(b, 0);
}

static void tree(ech_buf *const b, const int depth)
{
    (void)ech_buf_push(b, '{');
    key(b, "v", depth, true);
    sentence(b, 1 + below(4));
    key(b, "kids", depth, false);
    (void)ech_buf_push(b, '[');
    for (uint32_t i = 0, n = depth > 4 ? 0 : below(4); i < n; i++) {
        if (i > 0) (void)ech_buf_push(b, ',');
        if (i > 0) gap(b, depth, true);
        tree(b, depth + 1);
    }
    (void)ech_buf_push(b, ']');
    close_object(b, depth - 1);
}

static void patterns(ech_buf *const b)
{
    (void)ech_buf_push(b, '{');
    key(b, "a", 1, true);
    (void)ech_buf_push(b, '"');
    lowercase(b, 1, 200);
    (void)ech_buf_push(b, '"');
    key(b, "b", 1, false);
    (void)ech_buf_printf(b, "\"%04x%04x-%04x\"", below(65536), below(65536), below(65536));
    key(b, "c", 1, false);
    (void)ech_buf_puts(b, "\"find ");
    lowercase(b, 1, 60);
    (void)ech_buf_puts(b, " needle ");
    lowercase(b, 1, 60);
    (void)ech_buf_push(b, '"');
    key(b, "d", 1, false);
    (void)ech_buf_puts(b, "\"someone.else@mail.example.org\"");
    key(b, "e", 1, false);
    (void)ech_buf_push(b, '"');
    for (uint32_t i = 0, n = 1 + below(40); i < n; i++)
        (void)ech_buf_puts(b, below(2) ? "word " : "\xC3\xA9t\xC3\xA9 ");
    (void)ech_buf_push(b, '"');
    close_object(b, 0);
}

/* ---- schemas ---- */

static void tree_document(ech_buf *const b)
{
    tree(b, 1);
}

static const struct {
    const char *name;
    ech_constraint_kind kind;
    const char *text;
    void (*make)(ech_buf *);
} CASES[] = {
    { "person", ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":400},"
      "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},"
      "\"slug\":{\"type\":\"string\",\"pattern\":\"^[a-z-]{3,30}$\"},"
      "\"born\":{\"type\":\"string\",\"format\":\"date-time\"},\"bio\":{\"type\":\"string\"},"
      "\"score\":{\"type\":\"number\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}"
      "}},"
      "\"required\":[\"name\",\"age\",\"slug\",\"born\",\"bio\",\"score\",\"tags\"]}",
      person },
    { "json_object", ECH_CONSTRAINT_JSON_OBJECT, "", object },
    { "tree", ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"$ref\":\"#/$defs/"
      "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"string\"},"
      "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
      "n\"}}},\"required\":[\"v\",\"kids\"]}}}",
      tree_document },
    { "patterns", ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z-]{1,200}"
      "$\"},"
      "\"b\":{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{8}-[0-9a-f]{4}$\"},"
      "\"c\":{\"type\":\"string\",\"pattern\":\"needle\"},\"d\":{\"type\":\"string\",\"format\":"
      "\"email\"},"
      "\"e\":{\"type\":\"string\",\"pattern\":\"^(\\\\p{L}+ )+$\",\"maxLength\":250}},"
      "\"required\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}",
      patterns },
};

static int compare_times(const void *const x, const void *const y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static uint32_t *words;
static int64_t times[4000000];
static size_t n_times;

/* Follows a document; false when a token of it isn't allowed. */
static bool follow(ech_constraint *const c, const ech_ids *const ids, const bool timed)
{
    const size_t n_words = ech_mask_vocab_words(ech_constraint_vocab(c));
    ech_constraint_state *s = NULL;
    if (ech_constraint_state_create(c, -1, &s, NULL) != ECH_OK) return false;
    bool ok = true;
    for (size_t i = 0; i < ids->n && ok; i++) {
        const int64_t before = ech_now_ns();
        ok = ech_constraint_state_mask(s, words, n_words, NULL) == ECH_OK;
        const int64_t after = ech_now_ns();
        if (timed && n_times < sizeof times / sizeof times[0]) times[n_times++] = after - before;
        const int32_t id = ids->data[i];
        ok = ok && ((words[id >> 5] >> (id & 31)) & 1) &&
             ech_constraint_state_accept(s, id, NULL) == ECH_OK;
    }
    ok = ok && ech_constraint_state_can_end(s);
    ech_constraint_state_destroy(&s);
    return ok;
}

static bool run(const ech_tokenizer *const tok, ech_mask_vocab *const vocab, const size_t k)
{
    ech_constraint_spec spec = ech_constraint_spec_default();
    spec.content_kind = CASES[k].kind;
    spec.content = CASES[k].text;
    spec.content_len = strlen(CASES[k].text);
    ech_constraint *c = NULL;
    ech_error err;
    const int64_t before = ech_now_ns();
    if (ech_constraint_compile(vocab, &spec, NULL, &c, &err) != ECH_OK) {
        (void)fprintf(stderr, "%s: %s\n", CASES[k].name, err.text);
        return false;
    }
    const int64_t compile_ns = ech_now_ns() - before;
    n_times = 0;
    ech_constraint_stats warm = { 0 };
    for (int d = 0; d < warm_docs + TIMED_DOCS; d++) {
        ech_buf text = { 0 };
        ech_ids ids = { 0 };
        rng = (uint64_t)d * 7919 + 1;
        layout = d % 3;
        CASES[k].make(&text);
        if (d == warm_docs) warm = ech_constraint_get_stats(c);
        const bool ok = ech_tokenizer_encode(tok, text.data, text.len, 0, &ids, &err) == ECH_OK &&
                        follow(c, &ids, d >= warm_docs);
        if (!ok) (void)fprintf(stderr, "%s: refused: %s\n", CASES[k].name, text.data);
        ech_ids_fini(&ids);
        ech_buf_fini(&text);
        if (!ok) return false;
    }
    const ech_constraint_stats stats = ech_constraint_get_stats(c);
    qsort(times, n_times, sizeof times[0], compare_times);
    (void)printf("%-12s compile %6.1f ms  tokens %6zu  p50 %6.1f us  p90 %6.1f us  p99 %6.1f us  "
                 "p99.9 %6.1f us  worst "
                 "%6.1f us  misses %5.2f %%  %u instr  %zu masks  %zu KiB\n",
                 CASES[k].name, (double)compile_ns / 1e6, n_times, (double)times[n_times / 2] / 1e3,
                 (double)times[n_times * 90 / 100] / 1e3, (double)times[n_times * 99 / 100] / 1e3,
                 (double)times[n_times * 999 / 1000] / 1e3, (double)times[n_times - 1] / 1e3,
                 100.0 * (double)(stats.mask_misses - warm.mask_misses) / (double)n_times,
                 (unsigned)stats.n_instructions, stats.n_masks, stats.cache_bytes / 1024);
    ech_constraint_unref(&c);
    return true;
}

int main(const int argc, char **const argv)
{
    ech_tokenizer *tok = NULL;
    ech_mask_vocab *vocab = NULL;
    ech_error err = { 0 };
    if (argc == 3) warm_docs = atoi(argv[2]);
    if (argc < 2 || argc > 3 || warm_docs < 0) {
        (void)fprintf(stderr, "usage: constraint_bench TOKENIZER_FOLDER [WARM_DOCUMENTS]\n");
        return 2;
    }
    ech_status rc = ech_tokenizer_open(&tok, argv[1], &err);
    const int64_t before = ech_now_ns();
    const int32_t eos = rc == ECH_OK ? ech_tokenizer_special_id(tok, ECH_SPECIAL_EOS) : 0;
    if (rc == ECH_OK) rc = ech_mask_vocab_from_tokenizer(tok, &eos, 1, &vocab, &err);
    if (rc != ECH_OK) {
        (void)fprintf(stderr, "constraint_bench: %s\n", err.text);
        return 1;
    }
    (void)printf("vocabulary: %zu ids, %.0f ms\n", ech_mask_vocab_size(vocab),
                 (double)(ech_now_ns() - before) / 1e6);
    words = calloc(ech_mask_vocab_words(vocab), sizeof *words);
    bool ok = true;
    for (size_t k = 0; k < sizeof CASES / sizeof CASES[0]; k++)
        ok = run(tok, vocab, k) && ok;
    free(words);
    ech_mask_vocab_unref(&vocab);
    ech_tokenizer_close(&tok);
    return ok ? 0 : 1;
}
