/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of tokenizer.json around the model: normalizer, pre-tokenizer, decoder and
 * post-processor, each a chain that "Sequence" nests. One function per part, a table of its types.
 *
 * The reference is Hugging Face's tokenizers: defaults of absent members, and composite parts taken
 * apart into simple operations, are as there. Invariant: what a part is made of lives in the
 * tokenizer's arena or is owned by the operation; an operation that could not be added has freed
 * its regex.
 *
 * Bounds: MAX_DEPTH of nested Sequences, MAX_SEQUENCE parts in each. A type that is not in its
 * table is refused by name: guessing would change ids silently. Runs while a tokenizer is opened,
 * on that thread.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_json.h"

#define MAX_DEPTH    8
#define MAX_SEQUENCE 64
/* GPT-2's pattern, as OpenAI published it with the model. */
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* A type's name and what reads it. */
typedef ech_status (*part_fn)(ech_tokenizer *t, const json_t *part, const char *what,
                              ech_error *err);

typedef struct part_type {
    const char *name;
    part_fn read;
} part_type;

typedef ech_status (*chain_fn)(ech_tokenizer *t, const json_t *part, int depth, ech_error *err);

static ech_status no_memory(ech_error *const err)
{
    return ech_fail(err, ECH_ENOMEM, "reading a tokenizer: out of memory");
}

static ech_status added(const ech_status rc, const char *const what, ech_error *const err)
{
    if (rc == ECH_OK) return rc;
    return rc == ECH_ELIMIT ? ech_fail(err, rc, "reading %s: too many parts", what)
                            : no_memory(err);
}

/* "Sequence": each element through the chain's own function. */
static ech_status each_of(ech_tokenizer *const t, const json_t *const part, const char *const key,
                          const int depth, const chain_fn fn, const char *const what,
                          ech_error *const err)
{
    const json_t *const list = json_object_get(part, key);
    if (!json_is_array(list))
        return ech_fail(err, ECH_EFORMAT, "reading %s: its Sequence has no list \"%s\"", what, key);
    if (json_array_size(list) > MAX_SEQUENCE)
        return ech_fail(err, ECH_ELIMIT, "reading %s: more than %d parts", what, MAX_SEQUENCE);
    for (size_t i = 0; i < json_array_size(list); i++) {
        ECH_TRY(fn(t, json_array_get(list, i), depth + 1, err));
    }
    return ECH_OK;
}

/*
 * The part's type; NULL when there is no part. null and an absent member both mean: nothing to do.
 */
static ech_status part_name(const json_t *const part, const int depth, const char *const what,
                            const char **const ret_name, ech_error *const err)
{
    *ret_name = NULL;
    if (part == NULL || json_is_null(part)) return ECH_OK;
    if (depth > MAX_DEPTH) return ech_fail(err, ECH_ELIMIT, "reading %s: nested too deeply", what);
    *ret_name = json_string_value(json_object_get(part, "type"));
    return *ret_name != NULL ? ECH_OK
                             : ech_fail(err, ECH_EFORMAT, "reading %s: it has no \"type\"", what);
}

static ech_status read_part(ech_tokenizer *const t, const json_t *const part,
                            const char *const name, const part_type *const types, const size_t n,
                            const char *const what, ech_error *const err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, types[i].name) == 0) return types[i].read(t, part, what, err);
    }
    return ech_fail(err, ECH_EUNSUPPORTED, "reading %s: the type %.60s is not supported", what,
                    name);
}

#define READ_PART(types)                                                                           \
    read_part(t, part, name, (types), sizeof(types) / sizeof(types)[0], what, err)

/*
 * {"String": …} or {"Regex": …}, or a bare string: the pattern, and a regex where it is one.
 * *ret_re is NULL for a string; with it ret_s is the regex's source. Both null-safe: an absent
 * pattern is an error here, not at its first use.
 */
static ech_status read_pattern(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_str *const ret_s,
                               ech_regex **const ret_re, ech_error *const err)
{
    const json_t *const p = json_object_get(part, "pattern");
    *ret_re = NULL;
    if (json_is_string(p)) return ech_part_string(part, "pattern", what, t, ret_s, err);
    const bool is_regex = json_object_get(p, "Regex") != NULL;
    ECH_TRY(ech_part_string(p, is_regex ? "Regex" : "String", what, t, ret_s, err));
    if (ret_s->ptr == NULL)
        return ech_fail(err, ECH_EFORMAT, "reading %s: it has no \"pattern\"", what);
    if (!is_regex) return ECH_OK;
    const ech_status rc = ech_regex_create(ret_re, *ret_s, err);
    return rc == ECH_OK ? rc : ech_error_prefix(err, rc, "reading %s", what);
}

/* One character, as "replacement" and Strip's "content" are. */
static ech_status read_char(ech_tokenizer *const t, const json_t *const part, const char *const key,
                            const char *const what, ech_str *const ret_s, ech_error *const err)
{
    uint32_t cp;
    ECH_TRY(ech_part_string(part, key, what, t, ret_s, err));
    if (ret_s->len == 0 || ech_utf8_decode(ret_s->ptr, ret_s->len, &cp) != (int)ret_s->len) {
        return ech_fail(err, ECH_EFORMAT, "reading %s: \"%s\" must be one character", what, key);
    }
    return ECH_OK;
}

/* ---- Normalizers ---- */

static ech_status add_norm(ech_tokenizer *const t, const ech_norm_op op, const char *const what,
                           ech_error *const err)
{
    return added(ech_normalizer_add(&t->normalizer, op), what, err);
}

#define SIMPLE_NORM(fn, k)                                                                         \
    static ech_status fn(ech_tokenizer *const t, const json_t *const part, const char *const what, \
                         ech_error *const err)                                                     \
    {                                                                                              \
        (void)part;                                                                                \
        return add_norm(t, (ech_norm_op){ .kind = (k) }, what, err);                               \
    }
SIMPLE_NORM(norm_nfc, ECH_NORM_NFC)
SIMPLE_NORM(norm_nfd, ECH_NORM_NFD)
SIMPLE_NORM(norm_nfkc, ECH_NORM_NFKC)
SIMPLE_NORM(norm_nfkd, ECH_NORM_NFKD)
SIMPLE_NORM(norm_lowercase, ECH_NORM_LOWERCASE)
SIMPLE_NORM(norm_accents, ECH_NORM_STRIP_ACCENTS)
SIMPLE_NORM(norm_nmt, ECH_NORM_NMT)
SIMPLE_NORM(norm_byte_level, ECH_NORM_BYTE_LEVEL)
#undef SIMPLE_NORM

/* flags: 1 left, 2 right. */
static ech_status norm_strip(ech_tokenizer *const t, const json_t *const part,
                             const char *const what, ech_error *const err)
{
    bool left = true, right = true;
    ECH_TRY(ech_part_bool(part, "strip_left", what, &left, err));
    ECH_TRY(ech_part_bool(part, "strip_right", what, &right, err));
    return add_norm(
        t, (ech_norm_op){ .kind = ECH_NORM_STRIP, .flags = (left ? 1U : 0) | (right ? 2U : 0) },
        what, err);
}

static ech_status norm_prepend(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_error *const err)
{
    ech_norm_op op = { .kind = ECH_NORM_PREPEND };
    ECH_TRY(ech_part_string(part, "prepend", what, t, &op.content, err));
    return add_norm(t, op, what, err);
}

/* An empty string would match between all characters. */
static ech_status norm_replace(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_error *const err)
{
    ech_norm_op op = { .kind = ECH_NORM_REPLACE };
    ECH_TRY(ech_part_string(part, "content", what, t, &op.content, err));
    ECH_TRY(read_pattern(t, part, what, &op.pattern, &op.re, err));
    if (op.pattern.len == 0) {
        ech_regex_destroy(&op.re);
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: Replace of an empty pattern is not supported", what);
    }
    return add_norm(t, op, what, err);
}

/* BertNormalizer in its fixed order; strip_accents follows lowercase where it is null. */
static ech_status norm_bert(ech_tokenizer *const t, const json_t *const part,
                            const char *const what, ech_error *const err)
{
    bool clean = true, chinese = true, lower = true;
    ECH_TRY(ech_part_bool(part, "clean_text", what, &clean, err));
    ECH_TRY(ech_part_bool(part, "handle_chinese_chars", what, &chinese, err));
    ECH_TRY(ech_part_bool(part, "lowercase", what, &lower, err));
    bool accents = lower;
    ECH_TRY(ech_part_bool(part, "strip_accents", what, &accents, err));
    if (clean) ECH_TRY(add_norm(t, (ech_norm_op){ .kind = ECH_NORM_BERT_CLEAN }, what, err));
    if (chinese) ECH_TRY(add_norm(t, (ech_norm_op){ .kind = ECH_NORM_BERT_CHINESE }, what, err));
    if (accents) ECH_TRY(add_norm(t, (ech_norm_op){ .kind = ECH_NORM_NFD }, what, err));
    if (accents) ECH_TRY(add_norm(t, (ech_norm_op){ .kind = ECH_NORM_BERT_ACCENTS }, what, err));
    return lower ? add_norm(t, (ech_norm_op){ .kind = ECH_NORM_LOWERCASE }, what, err) : ECH_OK;
}

static int base64_value(const char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/*
 * Decodes in place of nothing: the result goes to the arena. ptr NULL: not base64, or no memory.
 * Four characters make three bytes; leftover bits at the end are dropped, as is everything from "="
 * on.
 */
static ech_str decode_base64(ech_tokenizer *const t, const ech_str s)
{
    char *const out = ech_arena_alloc(&t->arena, s.len / 4 * 3 + 4);
    size_t n = 0;
    uint32_t bits = 0;
    int n_bits = 0;
    for (size_t i = 0; out != NULL && i < s.len && s.ptr[i] != '='; i++) {
        const int v = base64_value(s.ptr[i]);
        if (v < 0) return (ech_str){ 0 };
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[n++] = (char)(bits >> n_bits);
    }
    return (ech_str){ out, n };
}

/*
 * SentencePiece's table, untrusted like the rest of the file: ech_charsmap_valid checks it once, so
 * look-ups need not. An empty one does nothing.
 */
static ech_status norm_precompiled(ech_tokenizer *const t, const json_t *const part,
                                   const char *const what, ech_error *const err)
{
    ech_norm_op op = { .kind = ECH_NORM_PRECOMPILED };
    ech_str text;
    ECH_TRY(ech_part_string(part, "precompiled_charsmap", what, t, &text, err));
    if (text.len == 0) return ECH_OK;
    op.content = decode_base64(t, text);
    if (op.content.ptr == NULL || !ech_charsmap_valid(op.content)) {
        return ech_fail(err, ECH_EFORMAT, "reading %s: its precompiled_charsmap is malformed",
                        what);
    }
    return add_norm(t, op, what, err);
}

ech_status ech_json_normalizer(ech_tokenizer *const t, const json_t *const part, const int depth,
                               ech_error *const err)
{
    static const part_type TYPES[] = {
        { "NFC", norm_nfc },
        { "NFD", norm_nfd },
        { "NFKC", norm_nfkc },
        { "NFKD", norm_nfkd },
        { "Lowercase", norm_lowercase },
        { "Strip", norm_strip },
        { "StripAccents", norm_accents },
        { "Replace", norm_replace },
        { "Prepend", norm_prepend },
        { "Nmt", norm_nmt },
        { "Precompiled", norm_precompiled },
        { "BertNormalizer", norm_bert },
        { "ByteLevel", norm_byte_level },
    };
    static const char what[] = "the normalizer";
    const char *name;
    ECH_TRY(part_name(part, depth, what, &name, err));
    if (name == NULL) return ECH_OK;
    if (strcmp(name, "Sequence") == 0)
        return each_of(t, part, "normalizers", depth, ech_json_normalizer, what, err);
    return READ_PART(TYPES);
}

/* ---- Pre-tokenizers ---- */

static ech_status add_pretok(ech_tokenizer *const t, const ech_pretok_op op, const char *const what,
                             ech_error *const err)
{
    return added(ech_pretok_add(&t->pretok, op), what, err);
}

/*
 * NAMES are in the order of ech_split_behavior. io keeps its value, ISOLATED, where nothing is
 * said.
 */
static ech_status read_behavior(const json_t *const part, const char *const what,
                                ech_split_behavior *const io, ech_error *const err)
{
    static const char *const NAMES[] = { "Isolated", "Removed", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const json_t *const v = json_object_get(part, "behavior");
    if (v == NULL || json_is_null(v)) return ECH_OK;
    for (int i = 0; json_is_string(v) && i < 5; i++) {
        if (strcmp(json_string_value(v), NAMES[i]) == 0) {
            *io = (ech_split_behavior)i;
            return ECH_OK;
        }
    }
    return ech_fail(err, ECH_EUNSUPPORTED, "reading %s: its \"behavior\" is not known", what);
}

static ech_status pretok_split(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_SPLIT };
    ECH_TRY(read_behavior(part, what, &op.behavior, err));
    ECH_TRY(ech_part_bool(part, "invert", what, &op.inverted, err));
    ECH_TRY(read_pattern(t, part, what, &op.pattern, &op.re, err));
    return add_pretok(t, op, what, err);
}

static ech_status add_gpt2(ech_tokenizer *const t, ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_SPLIT, .behavior = ECH_SPLIT_ISOLATED };
    ECH_TRY(ech_regex_create(&op.re, ECH_STR_LIT(GPT2_PATTERN), err));
    return add_pretok(t, op, "the pre-tokenizer", err);
}

/*
 * In this order: the space, the cut, then bytes to characters, so that the pattern sees the text
 * itself.
 */
static ech_status pretok_byte_level(ech_tokenizer *const t, const json_t *const part,
                                    const char *const what, ech_error *const err)
{
    bool prefix = true, regex = true;
    ECH_TRY(ech_part_bool(part, "add_prefix_space", what, &prefix, err));
    ECH_TRY(ech_part_bool(part, "use_regex", what, &regex, err));
    if (prefix)
        ECH_TRY(add_pretok(t, (ech_pretok_op){ .kind = ECH_PRETOK_PREFIX_SPACE }, what, err));
    if (regex) ECH_TRY(add_gpt2(t, err));
    return add_pretok(t, (ech_pretok_op){ .kind = ECH_PRETOK_BYTE_CHARS }, what, err);
}

static ech_status pretok_digits(ech_tokenizer *const t, const json_t *const part,
                                const char *const what, ech_error *const err)
{
    bool individual = false;
    ECH_TRY(ech_part_bool(part, "individual_digits", what, &individual, err));
    const ech_pretok_op op = { .kind = ECH_PRETOK_DIGITS,
                               .behavior = individual ? ECH_SPLIT_ISOLATED : ECH_SPLIT_CONTIGUOUS };
    return add_pretok(t, op, what, err);
}

/* The scheme, or in older files add_prefix_space. NAMES are in the order of ech_meta_scheme. */
static ech_status read_scheme(const json_t *const part, const char *const what,
                              ech_meta_scheme *const ret, ech_error *const err)
{
    bool prefix = true;
    ECH_TRY(ech_part_bool(part, "add_prefix_space", what, &prefix, err));
    *ret = prefix ? ECH_META_ALWAYS : ECH_META_NEVER;
    static const char *const NAMES[] = { "never", "first", "always" };
    const json_t *const v = json_object_get(part, "prepend_scheme");
    if (v == NULL || json_is_null(v)) return ECH_OK;
    for (int i = 0; json_is_string(v) && i < 3; i++) {
        if (strcmp(json_string_value(v), NAMES[i]) == 0) {
            *ret = (ech_meta_scheme)i;
            return ECH_OK;
        }
    }
    return ech_fail(err, ECH_EUNSUPPORTED, "reading %s: its \"prepend_scheme\" is not known", what);
}

static ech_status pretok_metaspace(ech_tokenizer *const t, const json_t *const part,
                                   const char *const what, ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_METASPACE };
    bool split = true;
    ECH_TRY(read_char(t, part, "replacement", what, &op.pattern, err));
    ECH_TRY(ech_part_bool(part, "split", what, &split, err));
    ECH_TRY(read_scheme(part, what, &op.scheme, err));
    op.behavior = split ? ECH_SPLIT_MERGED_WITH_NEXT : ECH_SPLIT_ISOLATED;
    return add_pretok(t, op, what, err);
}

static ech_status pretok_punctuation(ech_tokenizer *const t, const json_t *const part,
                                     const char *const what, ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_PUNCTUATION };
    ECH_TRY(read_behavior(part, what, &op.behavior, err));
    return add_pretok(t, op, what, err);
}

static ech_status pretok_whitespace(ech_tokenizer *const t, const json_t *const part,
                                    const char *const what, ech_error *const err)
{
    (void)part;
    return add_pretok(t, (ech_pretok_op){ .kind = ECH_PRETOK_WHITESPACE }, what, err);
}

static ech_status pretok_whitespace_split(ech_tokenizer *const t, const json_t *const part,
                                          const char *const what, ech_error *const err)
{
    (void)part;
    return add_pretok(
        t, (ech_pretok_op){ .kind = ECH_PRETOK_WHITESPACE_SPLIT, .behavior = ECH_SPLIT_REMOVED },
        what, err);
}

static ech_status pretok_bert(ech_tokenizer *const t, const json_t *const part,
                              const char *const what, ech_error *const err)
{
    ECH_TRY(pretok_whitespace_split(t, part, what, err));
    return add_pretok(t, (ech_pretok_op){ .kind = ECH_PRETOK_PUNCTUATION }, what, err);
}

static ech_status pretok_delimiter(ech_tokenizer *const t, const json_t *const part,
                                   const char *const what, ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_SPLIT, .behavior = ECH_SPLIT_REMOVED };
    ECH_TRY(read_char(t, part, "delimiter", what, &op.pattern, err));
    return add_pretok(t, op, what, err);
}

ech_status ech_json_pretok(ech_tokenizer *const t, const json_t *const part, const int depth,
                           ech_error *const err)
{
    static const part_type TYPES[] = {
        { "Split", pretok_split },
        { "ByteLevel", pretok_byte_level },
        { "Digits", pretok_digits },
        { "Metaspace", pretok_metaspace },
        { "Punctuation", pretok_punctuation },
        { "Whitespace", pretok_whitespace },
        { "WhitespaceSplit", pretok_whitespace_split },
        { "BertPreTokenizer", pretok_bert },
        { "CharDelimiterSplit", pretok_delimiter },
    };
    static const char what[] = "the pre-tokenizer";
    const char *name;
    ECH_TRY(part_name(part, depth, what, &name, err));
    if (name == NULL) return ECH_OK;
    if (strcmp(name, "Sequence") == 0)
        return each_of(t, part, "pretokenizers", depth, ech_json_pretok, what, err);
    return READ_PART(TYPES);
}

/*
 * A byte-level BPE reads raw bytes (see ech_model.is_byte_level), so spelling each byte as a
 * character and reading it back is left out where it is the last operation.
 */
bool ech_pretok_take_byte_chars(ech_pretok *const p)
{
    if (p->n_ops == 0 || p->ops[p->n_ops - 1].kind != ECH_PRETOK_BYTE_CHARS) return false;
    for (size_t i = 0; i + 1 < p->n_ops; i++) {
        if (p->ops[i].kind == ECH_PRETOK_BYTE_CHARS)
            return false; /* twice: spelled characters are spelled again */
    }
    p->n_ops--;
    return true;
}

/* ---- Decoders ---- */

static ech_status add_decoder(ech_tokenizer *const t, const ech_decode_op op,
                              const char *const what, ech_error *const err)
{
    return added(ech_decoder_add(&t->decoder, op), what, err);
}

#define SIMPLE_DECODER(fn, k)                                                                      \
    static ech_status fn(ech_tokenizer *const t, const json_t *const part, const char *const what, \
                         ech_error *const err)                                                     \
    {                                                                                              \
        (void)part;                                                                                \
        return add_decoder(t, (ech_decode_op){ .kind = (k) }, what, err);                          \
    }
SIMPLE_DECODER(decode_byte_level, ECH_DECODE_BYTE_LEVEL)
SIMPLE_DECODER(decode_byte_fallback, ECH_DECODE_BYTE_FALLBACK)
SIMPLE_DECODER(decode_fuse, ECH_DECODE_FUSE)
#undef SIMPLE_DECODER

static ech_status decode_replace(ech_tokenizer *const t, const json_t *const part,
                                 const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_REPLACE };
    ECH_TRY(ech_part_string(part, "content", what, t, &op.content, err));
    ECH_TRY(read_pattern(t, part, what, &op.pattern, &op.re, err));
    return add_decoder(t, op, what, err);
}

static ech_status decode_strip(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_STRIP };
    ECH_TRY(read_char(t, part, "content", what, &op.content, err));
    ECH_TRY(ech_part_size(part, "start", what, &op.start, err));
    ECH_TRY(ech_part_size(part, "stop", what, &op.stop, err));
    return add_decoder(t, op, what, err);
}

/* A leading space is taken off exactly if encoding may have put it there. */
static ech_status decode_metaspace(ech_tokenizer *const t, const json_t *const part,
                                   const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_METASPACE };
    ech_meta_scheme scheme;
    ECH_TRY(read_char(t, part, "replacement", what, &op.pattern, err));
    ECH_TRY(read_scheme(part, what, &scheme, err));
    op.strips_start = scheme != ECH_META_NEVER;
    return add_decoder(t, op, what, err);
}

/* cleanup also joins what was split around punctuation and English short forms. */
static ech_status decode_wordpiece(ech_tokenizer *const t, const json_t *const part,
                                   const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_WORDPIECE, .cleans_up = true };
    ECH_TRY(ech_part_string(part, "prefix", what, t, &op.pattern, err));
    if (op.pattern.ptr == NULL) op.pattern = ECH_STR_LIT("##");
    ECH_TRY(ech_part_bool(part, "cleanup", what, &op.cleans_up, err));
    return add_decoder(t, op, what, err);
}

static ech_status decode_bpe(ech_tokenizer *const t, const json_t *const part,
                             const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_BPE };
    ECH_TRY(ech_part_string(part, "suffix", what, t, &op.pattern, err));
    if (op.pattern.ptr == NULL) op.pattern = ECH_STR_LIT("</w>");
    return add_decoder(t, op, what, err);
}

static ech_status decode_ctc(ech_tokenizer *const t, const json_t *const part,
                             const char *const what, ech_error *const err)
{
    ech_decode_op op = { .kind = ECH_DECODE_CTC, .cleans_up = true };
    ECH_TRY(ech_part_string(part, "pad_token", what, t, &op.pattern, err));
    ECH_TRY(ech_part_string(part, "word_delimiter_token", what, t, &op.content, err));
    ECH_TRY(ech_part_bool(part, "cleanup", what, &op.cleans_up, err));
    return add_decoder(t, op, what, err);
}

ech_status ech_json_decoder(ech_tokenizer *const t, const json_t *const part, const int depth,
                            ech_error *const err)
{
    static const part_type TYPES[] = {
        { "ByteLevel", decode_byte_level },
        { "ByteFallback", decode_byte_fallback },
        { "Fuse", decode_fuse },
        { "Replace", decode_replace },
        { "Strip", decode_strip },
        { "Metaspace", decode_metaspace },
        { "WordPiece", decode_wordpiece },
        { "BPEDecoder", decode_bpe },
        { "CTC", decode_ctc },
    };
    static const char what[] = "the decoder";
    const char *name;
    ECH_TRY(part_name(part, depth, what, &name, err));
    if (name == NULL) return ECH_OK;
    if (strcmp(name, "Sequence") == 0)
        return each_of(t, part, "decoders", depth, ech_json_decoder, what, err);
    return READ_PART(TYPES);
}

/* ---- Post-processors ---- */

/*
 * Puts ids around what earlier post-processors have put around the text. Later post-processors go
 * outside: before what was in front, and behind what was at the end.
 */
static ech_status add_around(ech_tokenizer *const t, const int32_t *const before,
                             const size_t n_before, const int32_t *const after,
                             const size_t n_after, ech_error *const err)
{
    if (n_before > ECH_POST_MAX_IDS - t->n_before || n_after > ECH_POST_MAX_IDS - t->n_after) {
        return ech_fail(err, ECH_ELIMIT, "reading the post-processor: it adds more than %d ids",
                        ECH_POST_MAX_IDS);
    }
    memmove(t->before + n_before, t->before, t->n_before * sizeof *t->before);
    memcpy(t->before, before, n_before * sizeof *before);
    memcpy(t->after + t->n_after, after, n_after * sizeof *after);
    t->n_before += n_before;
    t->n_after += n_after;
    return ECH_OK;
}

/* Appends the ids of a special token of a template. */
static ech_status template_ids(const json_t *const specials, const char *const name,
                               int32_t *const out, size_t *const n, ech_error *const err)
{
    const json_t *const ids = json_object_get(json_object_get(specials, name), "ids");
    if (!json_is_array(ids)) {
        return ech_fail(err, ECH_EFORMAT,
                        "reading the post-processor: the special token %.60s has no ids", name);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *const id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= ECH_LEXICON_MAX_IDS) {
            return ech_fail(err, ECH_EFORMAT,
                            "reading the post-processor: the special token %.60s has a bad id",
                            name);
        }
        if (*n == ECH_POST_MAX_IDS)
            return ech_fail(err, ECH_ELIMIT, "reading the post-processor: it adds more than %d ids",
                            ECH_POST_MAX_IDS);
        out[(*n)++] = (int32_t)json_integer_value(id);
    }
    return ECH_OK;
}

/* Only "single" is read; pairs of texts are never encoded here. */
static ech_status post_template(ech_tokenizer *const t, const json_t *const part,
                                const char *const what, ech_error *const err)
{
    const json_t *const single = json_object_get(part, "single"), *const specials = json_object_get(
                                                                      part, "special_tokens");
    int32_t ids[2][ECH_POST_MAX_IDS]; /* before and after the text */
    size_t n[2] = { 0, 0 };
    int n_texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *const piece = json_array_get(single, i);
        const char *const name =
            json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        if (name != NULL) {
            const int side = n_texts > 0;
            ECH_TRY(template_ids(specials, name, ids[side], &n[side], err));
        } else if (json_object_get(piece, "Sequence") != NULL) {
            n_texts++;
        } else {
            return ech_fail(
                err, ECH_EFORMAT,
                "reading %s: a template's piece is neither a SpecialToken nor a Sequence", what);
        }
    }
    if (n_texts != 1)
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: a template must hold the text once, this has it %d times",
                        what, n_texts);
    return add_around(t, ids[0], n[0], ids[1], n[1], err);
}

/* ["text", id] */
static ech_status read_pair(const json_t *const part, const char *const key, const char *const what,
                            int32_t *const ret_id, ech_error *const err)
{
    const json_t *const id = json_array_get(json_object_get(part, key), 1);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= ECH_LEXICON_MAX_IDS) {
        return ech_fail(err, ECH_EFORMAT, "reading %s: \"%s\" must be a text and its id", what,
                        key);
    }
    *ret_id = (int32_t)json_integer_value(id);
    return ECH_OK;
}

/* BertProcessing and RobertaProcessing: cls text sep. */
static ech_status post_pair(ech_tokenizer *const t, const json_t *const part,
                            const char *const what, ech_error *const err)
{
    int32_t cls = 0, sep = 0;
    ECH_TRY(read_pair(part, "cls", what, &cls, err));
    ECH_TRY(read_pair(part, "sep", what, &sep, err));
    return add_around(t, &cls, 1, &sep, 1, err);
}

/* ByteLevel changes offsets only, which nobody asks for here. */
static ech_status post_nothing(ech_tokenizer *const t, const json_t *const part,
                               const char *const what, ech_error *const err)
{
    (void)t;
    (void)part;
    (void)what;
    (void)err;
    return ECH_OK;
}

ech_status ech_json_post(ech_tokenizer *const t, const json_t *const part, const int depth,
                         ech_error *const err)
{
    static const part_type TYPES[] = {
        { "ByteLevel", post_nothing },
        { "TemplateProcessing", post_template },
        { "BertProcessing", post_pair },
        { "RobertaProcessing", post_pair },
    };
    static const char what[] = "the post-processor";
    const char *name;
    ECH_TRY(part_name(part, depth, what, &name, err));
    if (name == NULL) return ECH_OK;
    if (strcmp(name, "Sequence") == 0)
        return each_of(t, part, "processors", depth, ech_json_post, what, err);
    return READ_PART(TYPES);
}
