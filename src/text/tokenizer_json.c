/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json as a whole: its model with vocabulary and merges, the added tokens, and the
 * folder around it. Every size and id is checked before it is used; what isn't known is refused by
 * name.
 *
 * Invariant: the two members that make up nearly all of the file, vocabulary and merges, are never
 * parsed into a tree. They are found by a scan, replaced by null in a copy that jansson reads, and
 * then read in place, straight into the model's tables.
 *
 * The file is untrusted. Runs while a tokenizer is opened, on that thread; src.t is the caller's to
 * close, whatever happens.
 */
#include "src/text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "src/base/error.h"
#include "src/base/utf8.h"

/* Where the large members lie in the file; to 0: absent. */
typedef struct extent {
    size_t from, to;
} extent;

typedef struct source {
    const char *json;
    size_t len;
    extent vocab, merges;
    ech_tokenizer *t;
    ech_error *err;
} source;

/* Absent and null leave {NULL, 0}. The copy is in the arena, which outlives the JSON tree. */
ech_status ech_part_string(const json_t *const o, const char *const key, const char *const what,
                           ech_tokenizer *const t, ech_str *const ret_s, ech_error *const err)
{
    const json_t *const v = json_object_get(o, key);
    if (v == NULL || json_is_null(v)) {
        *ret_s = (ech_str){ 0 };
        return ECH_OK;
    }
    if (!json_is_string(v))
        return ech_fail(err, ECH_EFORMAT, "reading %s: \"%s\" must be a string", what, key);
    const size_t len = json_string_length(v);
    const char *const copy = ech_arena_strdup(&t->arena, (ech_str){ json_string_value(v), len });
    if (copy == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", what);
    *ret_s = (ech_str){ copy, len };
    return ECH_OK;
}

ech_status ech_part_bool(const json_t *const o, const char *const key, const char *const what,
                         bool *const io, ech_error *const err)
{
    const json_t *const v = json_object_get(o, key);
    if (v == NULL || json_is_null(v)) return ECH_OK;
    if (!json_is_boolean(v))
        return ech_fail(err, ECH_EFORMAT, "reading %s: \"%s\" must be true or false", what, key);
    *io = json_is_true(v);
    return ECH_OK;
}

ech_status ech_part_size(const json_t *const o, const char *const key, const char *const what,
                         size_t *const io, ech_error *const err)
{
    const json_t *const v = json_object_get(o, key);
    if (v == NULL || json_is_null(v)) return ECH_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return ech_fail(err, ECH_EFORMAT, "reading %s: \"%s\" must be a whole number, 0 or more",
                        what, key);
    }
    *io = (size_t)json_integer_value(v);
    return ECH_OK;
}

/* ---- Finding the large members ---- */

/* Calls back for each member of the object at in: the key, in at its value. */
typedef ech_status (*member_fn)(source *src, ech_json_scan *in, ech_str key);

static ech_status each_member(source *const src, ech_json_scan *const in, const member_fn fn)
{
    ech_buf key = { 0 };
    ech_status rc = ech_json_expect(in, '{');
    if (rc == ECH_OK && ech_json_take(in, '}')) return ECH_OK;
    while (rc == ECH_OK) {
        ech_buf_clear(&key);
        rc = ech_json_string(in, &key);
        if (rc == ECH_OK) rc = ech_json_expect(in, ':');
        if (rc == ECH_OK) rc = fn(src, in, ech_buf_view(&key));
        if (rc == ECH_OK && !ech_json_take(in, ',')) {
            rc = ech_json_expect(in, '}');
            break;
        }
    }
    ech_buf_fini(&key);
    return rc;
}

static ech_status model_member(source *const src, ech_json_scan *const in, const ech_str key)
{
    extent at = { 0 };
    ECH_TRY(ech_json_skip(in, &at.from, &at.to));
    if (ech_str_eq(key, ECH_STR_LIT("vocab"))) src->vocab = at;
    if (ech_str_eq(key, ECH_STR_LIT("merges"))) src->merges = at;
    return ECH_OK;
}

/* A second "model" would leave the extents and the tree disagreeing about which one is meant. */
static ech_status top_member(source *const src, ech_json_scan *const in, const ech_str key)
{
    extent at;
    if (!ech_str_eq(key, ECH_STR_LIT("model"))) return ech_json_skip(in, &at.from, &at.to);
    if (src->vocab.to != 0) return ech_json_fail(in, "a second \"model\"");
    return each_member(src, in, model_member);
}

/*
 * Copies the file with null in place of the large members. The two extents in the order of the
 * file, since members of an object have none.
 */
static ech_status reduced(const source *const src, ech_buf *const out)
{
    extent a = src->vocab, b = src->merges;
    if (b.to != 0 && b.from < a.from) {
        a = src->merges;
        b = src->vocab;
    }
    size_t done = 0;
    for (int i = 0; i < 2; i++) {
        const extent x = i == 0 ? a : b;
        if (x.to == 0) continue;
        ECH_TRY(ech_buf_append(out, src->json + done, x.from - done));
        ECH_TRY(ech_buf_puts(out, "null"));
        done = x.to;
    }
    return ech_buf_append(out, src->json + done, src->len - done);
}

/* The scan keeps the whole file as its text, so that errors have the file's lines and columns. */
static ech_json_scan scan_at(const source *const src, const extent at)
{
    return (ech_json_scan){ .s = src->json, .len = at.to, .at = at.from, .err = src->err };
}

/* ---- The model ---- */

/* Takes a string of the vocabulary into the arena. */
static ech_status read_text(const source *const src, ech_json_scan *const in,
                            ech_buf *const scratch, ech_str *const ret)
{
    ech_buf_clear(scratch);
    ECH_TRY(ech_json_string(in, scratch));
    const char *const copy = ech_arena_strdup(&src->t->arena, ech_buf_view(scratch));
    if (copy == NULL)
        return ech_fail(src->err, ECH_ENOMEM, "reading the vocabulary: out of memory");
    *ret = (ech_str){ copy, scratch->len };
    return ECH_OK;
}

static ech_status add_text(const source *const src, const ech_json_scan *const in,
                           const ech_str text, const int64_t id)
{
    const ech_status rc = ech_lexicon_add(&src->t->model.lex, text, id);
    if (rc == ECH_OK) return rc;
    if (rc == ECH_ENOMEM) return ech_fail(src->err, rc, "reading the vocabulary: out of memory");
    return ech_json_fail(in, rc == ECH_ELIMIT ? "an id of the vocabulary is out of range"
                                              : "an id of the vocabulary is given twice");
}

/* {"text": id, …} */
static ech_status read_vocab_object(const source *const src, ech_json_scan *const in,
                                    ech_buf *const scratch)
{
    ECH_TRY(ech_json_expect(in, '{'));
    if (ech_json_take(in, '}')) return ECH_OK;
    do {
        ech_str text = { 0 };
        double value;
        int64_t id;
        ECH_TRY(read_text(src, in, scratch, &text));
        ECH_TRY(ech_json_expect(in, ':'));
        ECH_TRY(ech_json_number(in, &value, &id));
        ECH_TRY(add_text(src, in, text, id));
    } while (ech_json_take(in, ','));
    return ech_json_expect(in, '}');
}

/* ids grow by one from 0, so doubling once is enough. */
static ech_status add_score(ech_model *const m, const size_t id, const double score,
                            size_t *const cap)
{
    if (id >= *cap) {
        const size_t next = *cap == 0 ? 4096 : *cap * 2;
        double *const scores = realloc(m->scores, next * sizeof *scores);
        if (scores == NULL) return ECH_ENOMEM;
        m->scores = scores;
        *cap = next;
    }
    m->scores[id] = score;
    return ECH_OK;
}

/*
 * [["text", score], …]: ids are places in the list. Scores are log probabilities; the unknown
 * token's is lower than all of them.
 */
static ech_status read_vocab_array(const source *const src, ech_json_scan *const in,
                                   ech_buf *const scratch)
{
    ech_model *const m = &src->t->model;
    size_t cap = 0;
    double lowest = 0;
    ECH_TRY(ech_json_expect(in, '['));
    if (ech_json_take(in, ']')) return ech_json_fail(in, "an empty vocabulary");
    int64_t id = 0;
    do {
        ech_str text = { 0 };
        double score;
        int64_t ignored;
        ECH_TRY(ech_json_expect(in, '['));
        ECH_TRY(read_text(src, in, scratch, &text));
        ECH_TRY(ech_json_expect(in, ','));
        ECH_TRY(ech_json_number(in, &score, &ignored));
        ECH_TRY(ech_json_expect(in, ']'));
        ECH_TRY(add_text(src, in, text, id));
        if (add_score(m, (size_t)id, score, &cap) != ECH_OK ||
            ech_trie_add(&m->trie, text, (int32_t)id, false) != ECH_OK) {
            return ech_fail(src->err, ECH_ENOMEM, "reading the vocabulary: out of memory");
        }
        if (id == 0 || score < lowest) lowest = score;
        id++;
    } while (ech_json_take(in, ','));
    m->unk_score = lowest - 10.0; /* the reference's penalty for an unknown character */
    return ech_json_expect(in, ']');
}

/*
 * One merge, ["left", "right"] or "left right". Both forms go into one buffer: left and right are
 * views of it until the next call.
 */
static ech_status read_merge(ech_json_scan *const in, ech_buf *const pair, ech_str *const ret_left,
                             ech_str *const ret_right)
{
    ech_buf_clear(pair);
    size_t left = 0;
    if (ech_json_take(in, '[')) {
        ECH_TRY(ech_json_string(in, pair));
        left = pair->len;
        ECH_TRY(ech_json_expect(in, ','));
        ECH_TRY(ech_json_string(in, pair));
        ECH_TRY(ech_json_expect(in, ']'));
        *ret_left = (ech_str){ pair->data, left };
        *ret_right = (ech_str){ pair->data + left, pair->len - left };
        return ECH_OK;
    }
    ECH_TRY(ech_json_string(in, pair));
    const char *const space = pair->len > 0 ? memchr(pair->data, ' ', pair->len) : NULL;
    if (space == NULL ||
        memchr(space + 1, ' ', (size_t)(pair->data + pair->len - space - 1)) != NULL) {
        return ech_json_fail(in, "a merge must be two parts with one space between them");
    }
    left = (size_t)(space - pair->data);
    *ret_left = (ech_str){ pair->data, left };
    *ret_right = (ech_str){ space + 1, pair->len - left - 1 };
    return ECH_OK;
}

/*
 * Quotes are counted beforehand for an upper bound, two or four a merge, so the table never has to
 * grow.
 */
static ech_status read_merges(const source *const src, ech_buf *const scratch)
{
    ech_json_scan in = scan_at(src, src->merges);
    if (ech_json_peek(&in) == 'n') return ECH_OK;
    /* A merge takes at least 7 bytes: an upper bound for how many there are. */
    size_t n = 0;
    for (size_t i = src->merges.from; i < src->merges.to; i++) {
        n += src->json[i] == '"';
    }
    ECH_TRY(ech_json_expect(&in, '['));
    const ech_status rc = ech_model_reserve_merges(
        &src->t->model,
        src->json[in.at] == '[' || ech_json_peek(&in) == '[' ? n / 4 + 1 : n / 2 + 1);
    if (rc != ECH_OK)
        return ech_fail(src->err, rc, "reading the merges: %s",
                        rc == ECH_ELIMIT ? "too many" : "out of memory");
    if (ech_json_take(&in, ']')) return ECH_OK;
    uint32_t rank = 0;
    do {
        ech_str left = { 0 }, right = { 0 };
        ECH_TRY(read_merge(&in, scratch, &left, &right));
        ECH_TRY(ech_model_add_merge(&src->t->model, left, right, rank, src->err));
        rank++;
    } while (ech_json_take(&in, ','));
    return ech_json_expect(&in, ']');
}

static ech_status read_vocab(const source *const src, ech_buf *const scratch)
{
    ech_json_scan in = scan_at(src, src->vocab);
    if (src->t->model.kind != ECH_MODEL_UNIGRAM) return read_vocab_object(src, &in, scratch);
    const ech_status rc = ech_trie_init(&src->t->model.trie);
    if (rc != ECH_OK) return ech_fail(src->err, rc, "reading the vocabulary: out of memory");
    return read_vocab_array(src, &in, scratch);
}

/*
 * The kind, by "type" or, in old files, by what is there. Only BPE has merges, only Unigram's
 * vocabulary is a list, only WordPiece bounds the length of a word.
 */
static ech_status model_kind(const source *const src, const json_t *const model,
                             ech_model_kind *const ret_kind)
{
    static const struct {
        const char *name;
        ech_model_kind kind;
    } KINDS[] = {
        { "BPE", ECH_MODEL_BPE },
        { "Unigram", ECH_MODEL_UNIGRAM },
        { "WordPiece", ECH_MODEL_WORDPIECE },
        { "WordLevel", ECH_MODEL_WORDLEVEL },
    };
    const char *const type = json_string_value(json_object_get(model, "type"));
    for (size_t i = 0; type != NULL && i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(type, KINDS[i].name) == 0) {
            *ret_kind = KINDS[i].kind;
            return ECH_OK;
        }
    }
    if (type != NULL)
        return ech_fail(src->err, ECH_EUNSUPPORTED,
                        "reading the model: the type %.60s is not supported", type);
    *ret_kind = src->merges.to != 0                                          ? ECH_MODEL_BPE
                : src->json[src->vocab.from] == '['                          ? ECH_MODEL_UNIGRAM
                : json_object_get(model, "max_input_chars_per_word") != NULL ? ECH_MODEL_WORDPIECE
                                                                             : ECH_MODEL_WORDLEVEL;
    return ECH_OK;
}

/*
 * The limit of 64 keeps what spelling one symbol needs small (see spell_piece in tokenizer_bpe.c).
 */
static ech_status read_model_options(const source *const src, const json_t *const model)
{
    ech_model *const m = &src->t->model;
    ech_error *const err = src->err;
    const json_t *const dropout = json_object_get(model, "dropout");
    if (json_is_number(dropout) && json_number_value(dropout) != 0.0) {
        return ech_fail(
            err, ECH_EUNSUPPORTED,
            "reading the model: \"dropout\" would make encoding random, which is not supported");
    }
    ECH_TRY(ech_part_bool(model, "fuse_unk", "the model", &m->fuse_unk, err));
    ECH_TRY(ech_part_bool(model, "byte_fallback", "the model", &m->byte_fallback, err));
    ECH_TRY(ech_part_bool(model, "ignore_merges", "the model", &m->ignore_merges, err));
    ECH_TRY(ech_part_size(model, "max_input_chars_per_word", "the model", &m->max_word_chars, err));
    ECH_TRY(
        ech_part_string(model, "continuing_subword_prefix", "the model", src->t, &m->prefix, err));
    ECH_TRY(ech_part_string(model, "end_of_word_suffix", "the model", src->t, &m->suffix, err));
    if (m->kind == ECH_MODEL_WORDPIECE &&
        json_object_get(model, "continuing_subword_prefix") == NULL) {
        m->prefix = ECH_STR_LIT("##");
    }
    if (m->prefix.len > 64 || m->suffix.len > 64)
        return ech_fail(err, ECH_ELIMIT, "reading the model: its prefix or suffix is too long");
    return ECH_OK;
}

/*
 * The unknown token: by text, or for Unigram by id. For the others an unknown token that is in no
 * vocabulary is remembered as such: it is an error only when a text needs it.
 */
static ech_status read_unknown(const source *const src, const json_t *const model)
{
    ech_model *const m = &src->t->model;
    if (m->kind == ECH_MODEL_UNIGRAM) {
        size_t id = SIZE_MAX;
        ECH_TRY(ech_part_size(model, "unk_id", "the model", &id, src->err));
        if (id == SIZE_MAX) return ECH_OK;
        if (id >= m->lex.n_ids)
            return ech_fail(src->err, ECH_EFORMAT,
                            "reading the model: unk_id is not in the vocabulary");
        m->unk_id = (int32_t)id;
        return ECH_OK;
    }
    ech_str unk = { 0 };
    ECH_TRY(ech_part_string(model, "unk_token", "the model", src->t, &unk, src->err));
    m->has_unk = unk.ptr != NULL;
    if (m->has_unk) m->unk_id = ech_lexicon_find(&m->lex, unk.ptr, unk.len);
    return ECH_OK;
}

/*
 * The unknown token is looked up after the vocabulary was read, merges last, since they refer to
 * it.
 */
static ech_status read_model(source *const src, const json_t *const model)
{
    ech_model_kind kind = ECH_MODEL_BPE;
    if (!json_is_object(model) || src->vocab.to == 0) {
        return ech_fail(src->err, ECH_EFORMAT,
                        "reading a tokenizer: there is no \"model\" with a \"vocab\"");
    }
    ECH_TRY(model_kind(src, model, &kind));
    /* A vocabulary's entry takes at least 6 bytes; the table grows if that was too low a guess. */
    const size_t guess = (src->vocab.to - src->vocab.from) / 24;
    const ech_status rc = ech_model_init(&src->t->model, kind,
                                         guess < ECH_LEXICON_MAX_IDS ? guess : ECH_LEXICON_MAX_IDS);
    if (rc != ECH_OK) return ech_fail(src->err, rc, "reading the model: out of memory");
    ECH_TRY(read_model_options(src, model));
    if (kind == ECH_MODEL_BPE && src->t->tables != NULL) {
        if (ech_tok_tables_take(src->t->tables, &src->t->model, &src->t->arena) != ECH_OK)
            return ech_fail(src->err, ECH_ENOMEM, "reading the model: out of memory");
        return read_unknown(src, model);
    }
    ech_buf scratch = { 0 };
    ech_status done = read_vocab(src, &scratch);
    if (done == ECH_OK) done = read_unknown(src, model);
    if (done == ECH_OK && kind == ECH_MODEL_BPE && src->merges.to != 0)
        done = read_merges(src, &scratch);
    ech_buf_fini(&scratch);
    return done;
}

/* ---- Added tokens and the rest ---- */

static ech_status read_added(const source *const src, const json_t *const list)
{
    if (list == NULL || json_is_null(list)) return ECH_OK;
    if (!json_is_array(list))
        return ech_fail(src->err, ECH_EFORMAT, "reading \"added_tokens\": it must be a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const o = json_array_get(list, i);
        static const char WHAT[] = "an added token";
        ech_added_token token = { .id = -1, .normalized = true };
        if (!json_is_object(o))
            return ech_fail(src->err, ECH_EFORMAT,
                            "reading \"added_tokens\": entry %zu must be an object", i);
        ECH_TRY(ech_part_string(o, "content", WHAT, src->t, &token.text, src->err));
        ECH_TRY(ech_part_bool(o, "single_word", WHAT, &token.single_word, src->err));
        ECH_TRY(ech_part_bool(o, "lstrip", WHAT, &token.lstrip, src->err));
        ECH_TRY(ech_part_bool(o, "rstrip", WHAT, &token.rstrip, src->err));
        ECH_TRY(ech_part_bool(o, "normalized", WHAT, &token.normalized, src->err));
        ECH_TRY(ech_part_bool(o, "special", WHAT, &token.special, src->err));
        ECH_TRY(ech_tokenizer_add_token(src->t, token, src->err));
    }
    return ECH_OK;
}

/*
 * A byte-level model is told by its pre-tokenizer, so the model's tables of bytes are made after
 * that, in ech_tokenizer_finish.
 */
static ech_status read_parts(source *const src, const json_t *const top)
{
    ech_tokenizer *const t = src->t;
    ECH_TRY(read_model(src, json_object_get(top, "model")));
    ECH_TRY(ech_json_normalizer(t, json_object_get(top, "normalizer"), 0, src->err));
    ECH_TRY(ech_json_pretok(t, json_object_get(top, "pre_tokenizer"), 0, src->err));
    if (t->model.kind == ECH_MODEL_BPE)
        t->model.is_byte_level = ech_pretok_take_byte_chars(&t->pretok);
    ECH_TRY(ech_json_decoder(t, json_object_get(top, "decoder"), 0, src->err));
    ECH_TRY(ech_json_post(t, json_object_get(top, "post_processor"), 0, src->err));
    return read_added(src, json_object_get(top, "added_tokens"));
}

/*
 * Parses a small document, refusing what jansson refuses. A NUL within a string is allowed, as JSON
 * allows it.
 */
static ech_status load_json(const char *const s, const size_t len, const size_t flags,
                            const char *const name, json_t **const ret, ech_error *const err)
{
    json_error_t why;
    *ret = json_loadb(s, len, JSON_ALLOW_NUL | flags, &why);
    if (*ret == NULL) return ech_fail(err, ECH_EFORMAT, "reading %s: %s", name, why.text);
    if (json_is_object(*ret)) return ECH_OK;
    json_decref(*ret);
    return ech_fail(err, ECH_EFORMAT, "reading %s: it is not an object", name);
}

/* A file whose tables are there was looked through when they were made. */
static ech_status take_extents(source *const src)
{
    const uint64_t *const x = src->t->tables->source.extents;
    const bool is_vocab_first = x[2] == 0 || x[0] < x[2];
    const uint64_t *const a = is_vocab_first ? x : x + 2, *const b = is_vocab_first ? x + 2 : x;
    if (x[1] == 0 || a[0] > a[1] || b[0] > b[1] || a[1] > src->len || b[1] > src->len ||
        (b[1] != 0 && a[1] > b[0]))
        return ech_fail(src->err, ECH_EFORMAT, "reading a tokenizer: its tables are damaged");
    src->vocab = (extent){ x[0], x[1] };
    src->merges = (extent){ x[2], x[3] };
    return ECH_OK;
}

static ech_status find_extents(source *const src)
{
    size_t bad = 0;
    if (src->t->tables != NULL) return take_extents(src);
    if (!ech_utf8_valid(src->json, src->len, &bad)) {
        return ech_fail_at(src->err, ECH_EFORMAT, 0, 0, (int64_t)bad,
                           "reading a tokenizer: byte %zu is not UTF-8", bad);
    }
    ech_json_scan in = { .s = src->json, .len = src->len, .err = src->err };
    return each_member(src, &in, top_member);
}

static ech_status read_tokenizer(source *const src)
{
    if (src->len > ECH_TOKENIZER_MAX_BYTES)
        return ech_fail(src->err, ECH_ELIMIT, "reading a tokenizer: it is larger than %zu bytes",
                        ECH_TOKENIZER_MAX_BYTES);
    ECH_TRY(find_extents(src));
    ech_buf small = { 0 };
    json_t *top = NULL;
    ech_status rc = reduced(src, &small);
    if (rc != ECH_OK) {
        rc = ech_fail(src->err, rc, "reading a tokenizer: out of memory");
    } else {
        rc = load_json(small.data, small.len, 0, "a tokenizer", &top, src->err);
    }
    ech_buf_fini(&small);
    if (rc != ECH_OK) return rc;
    rc = read_parts(src, top);
    json_decref(top);
    return rc == ECH_OK ? ech_tokenizer_finish(src->t, src->err) : rc;
}

/* ---- Names of the special tokens ---- */

static const char *const SPECIAL_KEYS[ECH_SPECIAL_COUNT] = {
    "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token",
};

/* A value is a text or an added token as an object. The first file that names a token wins. */
static ech_status read_config(ech_tokenizer *const t, const char *const json, const size_t len,
                              const char *const name, ech_error *const err)
{
    json_t *top = NULL;
    /* "model_max_length" is 1e30, written as an integer, where there is no limit. */
    ECH_TRY(load_json(json, len, JSON_DECODE_INT_AS_REAL, name, &top, err));
    ech_status rc = ECH_OK;
    for (int i = 0; rc == ECH_OK && i < ECH_SPECIAL_COUNT; i++) {
        const json_t *v = json_object_get(top, SPECIAL_KEYS[i]);
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (t->special_texts[i] != NULL || !json_is_string(v)) continue;
        const ech_str text = { json_string_value(v), json_string_length(v) };
        t->special_texts[i] = ech_arena_strdup(&t->arena, text);
        if (t->special_texts[i] == NULL)
            rc = ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", name);
        t->special_ids[i] = ech_lexicon_find(&t->added.lex, text.ptr, text.len);
        if (t->special_ids[i] < 0)
            t->special_ids[i] = ech_lexicon_find(&t->model.lex, text.ptr, text.len);
    }
    json_decref(top);
    return rc;
}

/* What the files don't name: the model's own unknown token. */
static void name_unknown(ech_tokenizer *const t)
{
    if (t->special_ids[ECH_SPECIAL_UNK] >= 0 || t->model.unk_id < 0) return;
    t->special_ids[ECH_SPECIAL_UNK] = t->model.unk_id;
    if (t->special_texts[ECH_SPECIAL_UNK] == NULL) {
        t->special_texts[ECH_SPECIAL_UNK] = ech_lexicon_text(&t->model.lex, t->model.unk_id).ptr;
    }
}

/* The contents of tokenizer.json, of the files that name special tokens, if any, and tables. */
typedef struct texts {
    ech_str json, config, map, tables;
} texts;

static ech_status read_texts(ech_tokenizer *const t, const texts *const in, ech_error *const err)
{
    source src = { .json = in->json.ptr, .len = in->json.len, .t = t, .err = err };
    ECH_TRY(read_tokenizer(&src));
    t->source.extents[0] = src.vocab.from;
    t->source.extents[1] = src.vocab.to;
    t->source.extents[2] = src.merges.from;
    t->source.extents[3] = src.merges.to;
    if (in->config.len > 0)
        ECH_TRY(read_config(t, in->config.ptr, in->config.len, "tokenizer_config.json", err));
    if (in->map.len > 0)
        ECH_TRY(read_config(t, in->map.ptr, in->map.len, "special_tokens_map.json", err));
    name_unknown(t);
    return ECH_OK;
}

static ech_status open_once(ech_tokenizer **const ret_tok, const texts *const in,
                            const uint64_t digest[2], const ech_tok_tables *const tables,
                            ech_error *const err)
{
    ech_tokenizer *t = ech_tokenizer_new();
    if (t == NULL) return ech_fail(err, ECH_ENOMEM, "opening a tokenizer: out of memory");
    memcpy(t->source.digest, digest, sizeof t->source.digest);
    t->tables = tables;
    const ech_status rc = read_texts(t, in, err);
    if (rc != ECH_OK) {
        ech_tokenizer_close(&t);
        return rc;
    }
    t->tables = NULL;
    t->had_tables = tables != NULL;
    *ret_tok = t;
    return ECH_OK;
}

/* Tables that turn out to be wrong are as none. */
static ech_status open_texts(ech_tokenizer **const ret_tok, const texts *const in,
                             ech_error *const err)
{
    ech_tok_tables tables;
    const XXH128_hash_t hash = XXH3_128bits(in->json.ptr, in->json.len);
    const uint64_t digest[2] = { hash.low64, hash.high64 };
    if (ech_tok_tables_view(in->tables, digest, &tables) &&
        open_once(ret_tok, in, digest, &tables, NULL) == ECH_OK)
        return ECH_OK;
    return open_once(ret_tok, in, digest, NULL, err);
}

ech_status ech_tokenizer_open_json(ech_tokenizer **const ret_tok, const char *const json,
                                   const size_t json_len, const char *const config,
                                   const size_t config_len, ech_error *const err)
{
    const texts in = { .json = { json, json_len },
                       .config = { config, config != NULL ? config_len : 0 } };
    return open_texts(ret_tok, &in, err);
}

ech_status ech_tokenizer_open_json_with(ech_tokenizer **const ret_tok, const ech_str json,
                                        const ech_str tables, ech_error *const err)
{
    return open_texts(ret_tok, &(texts){ .json = json, .tables = tables }, err);
}

/* Reads dir/name; a file that isn't there leaves out empty where it is optional. */
static ech_status read_file(const char *const dir, const char *const name, const bool is_optional,
                            ech_buf *const out, ech_error *const err)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) {
        return ech_fail(err, ECH_EINVAL, "opening a tokenizer: the path is too long");
    }
    ech_error why = { 0 };
    const ech_status rc = ech_buf_read_regular(out, path, ECH_TOKENIZER_MAX_BYTES, &why);
    if (rc == ECH_OK || (rc == ECH_ENOTFOUND && is_optional)) return ECH_OK;
    if (err != NULL) *err = why;
    return rc;
}

/* The buffers are the caller's, on failure too. */
static ech_status open_files(ech_tokenizer **const ret_tok, const char *const dir, ech_buf files[3],
                             const ech_str tables, ech_error *const err)
{
    ECH_TRY(read_file(dir, "tokenizer.json", false, &files[0], err));
    ECH_TRY(read_file(dir, "tokenizer_config.json", true, &files[1], err));
    ECH_TRY(read_file(dir, "special_tokens_map.json", true, &files[2], err));
    const texts in = { ech_buf_view(&files[0]), ech_buf_view(&files[1]), ech_buf_view(&files[2]),
                       tables };
    return open_texts(ret_tok, &in, err);
}

ech_status ech_tokenizer_open_with(ech_tokenizer **const ret_tok, const char *const dir,
                                   const ech_str tables, ech_error *const err)
{
    ech_buf files[3] = { { 0 }, { 0 }, { 0 } };
    ech_status rc = open_files(ret_tok, dir, files, tables, err);
    for (int i = 0; i < 3; i++) {
        ech_buf_fini(&files[i]);
    }
    return rc == ECH_OK ? rc : ech_error_prefix(err, rc, "opening the tokenizer of %s", dir);
}

ech_status ech_tokenizer_open(ech_tokenizer **const ret_tok, const char *const dir,
                              ech_error *const err)
{
    return ech_tokenizer_open_with(ret_tok, dir, (ech_str){ 0 }, err);
}
