/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a vocabulary: bytes of the tokens, the trie of all of them, and the slices with the
 * trie of what each family leaves over. One sort serves all tries.
 *
 * Invariants: ids that take part are sorted by bytes, equal bytes by id, and only the first of
 * equals is in a trie; its twins hang on it by same[]. Every token has at least one byte and at
 * most MAX_TOKEN_LEN, which is what a node's 16-bit depth can hold. Bytes of ordinary tokens never
 * contain 0xFF, so a control token's encoding can't be spelled.
 *
 * Runs once per model, on the thread that loads it; afterwards immutable and shared, with a count
 * of references.
 */
#include "src/text/constraint_vocab.h"

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/utf8.h"

#define MAX_TOKEN_LEN 32767u

static ech_status no_memory(ech_error *const err)
{
    return ech_fail(err, ECH_ENOMEM, "building a vocabulary: out of memory");
}

static ech_status check_tokens(const ech_mask_token *const tokens, const size_t n,
                               const int32_t *const eos, const size_t n_eos, ech_error *const err)
{
    if (n == 0) return ech_fail(err, ECH_EINVAL, "building a vocabulary: it has no tokens");
    if (n > ECH_MASK_VOCAB_MAX_IDS) {
        return ech_fail(err, ECH_ELIMIT, "building a vocabulary: %zu ids, the most is %u", n,
                        ECH_MASK_VOCAB_MAX_IDS);
    }
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        total += tokens[i].len;
        if (tokens[i].len > MAX_TOKEN_LEN || total > UINT32_MAX / 2) {
            return ech_fail(err, ECH_ELIMIT, "building a vocabulary: token %zu is too long", i);
        }
    }
    for (size_t i = 0; i < n_eos; i++) {
        if (eos[i] < 0 || (size_t)eos[i] >= n) {
            return ech_fail(err, ECH_EINVAL, "building a vocabulary: eos id %d is not in it",
                            (int)eos[i]);
        }
    }
    return ECH_OK;
}

/* ---- bytes ---- */

/*
 * An ordinary token with the byte 0xFF in it (which UTF-8 never has) would be read as a control
 * token.
 */
static bool takes_part(const ech_mask_vocab *const v, const ech_mask_token *const t,
                       const size_t id)
{
    if (t->len == 0 || t->kind == ECH_MASK_TOKEN_UNUSED || v->is_eos[id]) return false;
    return t->kind == ECH_MASK_TOKEN_CONTROL || memchr(t->bytes, ECH_CONTROL_BYTE, t->len) == NULL;
}

/* Three bytes of id: ECH_MASK_VOCAB_MAX_IDS keeps ids within them. */
static void encode_control(char out[4], const uint32_t id)
{
    out[0] = (char)ECH_CONTROL_BYTE;
    out[1] = (char)(id >> 16);
    out[2] = (char)(id >> 8);
    out[3] = (char)id;
}

/*
 * Offsets are 32 bits; check_tokens bounds the sum. Unused tokens have length 0 and are in no trie.
 */
static bool copy_bytes(ech_mask_vocab *const v, const ech_mask_token *const tokens)
{
    size_t total = 0;
    for (uint32_t i = 0; i < v->n_ids; i++)
        total += tokens[i].len < 4 ? 4 : tokens[i].len;
    v->bytes = malloc(total + 1);
    v->first = malloc(((size_t)v->n_ids + 1) * sizeof *v->first);
    v->kinds = malloc(v->n_ids);
    if (v->bytes == NULL || v->first == NULL || v->kinds == NULL) return false;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n_ids; i++) {
        v->first[i] = at;
        const bool used = takes_part(v, &tokens[i], i);
        v->kinds[i] = (uint8_t)(used ? tokens[i].kind : ECH_MASK_TOKEN_UNUSED);
        if (v->kinds[i] == ECH_MASK_TOKEN_CONTROL) {
            encode_control(v->bytes + at, i);
            at += 4;
        } else if (used) {
            memcpy(v->bytes + at, tokens[i].bytes, tokens[i].len);
            at += tokens[i].len;
        }
        if (at - v->first[i] > v->token_len) v->token_len = at - v->first[i];
    }
    v->first[v->n_ids] = at;
    return true;
}

typedef struct control {
    const char *bytes;
    uint32_t len;
    int32_t id;
} control;

static int longest_first(const void *const x, const void *const y)
{
    const control *const a = x, *const b = y;
    if (a->len != b->len) return (a->len < b->len) - (a->len > b->len);
    return (a->id > b->id) - (a->id < b->id);
}

/*
 * Longest first, so that of two control tokens of which one begins the other, the longer is
 * recognised.
 */
static bool list_controls(ech_mask_vocab *const v, const ech_mask_token *const tokens)
{
    size_t n = 0, total = 0;
    for (uint32_t i = 0; i < v->n_ids; i++) {
        if (v->kinds[i] != ECH_MASK_TOKEN_CONTROL) continue;
        n++;
        total += tokens[i].len;
    }
    control *const list = malloc((n + 1) * sizeof *list);
    v->controls = malloc((n + 1) * sizeof *v->controls);
    v->control_first = malloc((n + 1) * sizeof *v->control_first);
    v->control_bytes = malloc(total + 1);
    const bool ok =
        list != NULL && v->controls != NULL && v->control_first != NULL && v->control_bytes != NULL;
    n = 0;
    for (uint32_t i = 0; ok && i < v->n_ids; i++) {
        if (v->kinds[i] != ECH_MASK_TOKEN_CONTROL) continue;
        list[n++] = (control){ tokens[i].bytes, tokens[i].len, (int32_t)i };
    }
    if (ok) {
        qsort(list, n, sizeof *list, longest_first);
        v->n_controls = (uint32_t)n;
        v->control_first[0] = 0;
        for (size_t i = 0; i < n; i++) {
            v->controls[i] = list[i].id;
            memcpy(v->control_bytes + v->control_first[i], list[i].bytes, list[i].len);
            v->control_first[i + 1] = v->control_first[i] + list[i].len;
        }
    }
    free(list);
    return ok;
}

/*
 * For the texts of a specification (markers of reasoning, of calls), not for what the model writes:
 * a search through all control tokens at each byte is good enough there.
 */
ech_status ech_mask_vocab_encode(const ech_mask_vocab *const v, const ech_str text,
                                 ech_buf *const out)
{
    for (size_t at = 0; at < text.len;) {
        uint32_t i = 0;
        size_t len = 0;
        for (; i < v->n_controls; i++) {
            len = v->control_first[i + 1] - v->control_first[i];
            const char *const bytes = v->control_bytes + v->control_first[i];
            if (len <= text.len - at && memcmp(bytes, text.ptr + at, len) == 0) break;
        }
        if (i < v->n_controls) {
            char code[4];
            encode_control(code, (uint32_t)v->controls[i]);
            ECH_TRY(ech_buf_append(out, code, 4));
            at += len;
        } else {
            ECH_TRY(ech_buf_push(out, text.ptr[at++]));
        }
    }
    return ECH_OK;
}

/* ---- tries ---- */

/*
 * Bytes as unsigned, then length, then id: the order in which a depth-first trie meets its tokens.
 */
static int compare_tokens(const void *const x, const void *const y, void *const user)
{
    const ech_mask_vocab *const v = user;
    const int32_t i = *(const int32_t *)x, k = *(const int32_t *)y;
    const ech_str a = ech_mask_vocab_bytes(v, i), b = ech_mask_vocab_bytes(v, k);
    const int c = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    if (c != 0) return c;
    if (a.len != b.len) return (a.len > b.len) - (a.len < b.len);
    return (i > k) - (i < k);
}

/* The ids that take part, by their bytes. */
static int32_t *sort_ids(const ech_mask_vocab *const v, uint32_t *const ret_n)
{
    int32_t *const ids = malloc(((size_t)v->n_ids + 1) * sizeof *ids);
    if (ids == NULL) return NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_ids; i++) {
        if (v->kinds[i] != ECH_MASK_TOKEN_UNUSED) ids[n++] = (int32_t)i;
    }
    qsort_r(ids, n, sizeof *ids, compare_tokens, (void *)(uintptr_t)v);
    *ret_n = n;
    return ids;
}

static size_t common_prefix(const ech_str a, const ech_str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

/*
 * The trie of the sorted ids for which skip is 0. open[d] is the node of depth d on the path to the
 * token added last.
 */
static bool build_trie(ech_trie *const t, const ech_mask_vocab *const v, const int32_t *const ids,
                       const uint32_t n, const uint8_t *const skip)
{
    uint32_t *const open = malloc(((size_t)v->token_len + 2) * sizeof *open);
    if (open == NULL) return false;
    ech_str last = { "", 0 };
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        if (skip != NULL && skip[ids[i]]) continue;
        const ech_str bytes = ech_mask_vocab_bytes(v, ids[i]);
        size_t d = common_prefix(last, bytes);
        if (d == bytes.len && d == last.len && d > 0) continue; /* in the chain of its twin */
        for (size_t k = d; k < last.len; k++)
            t->nodes[open[k + 1]].end = t->n;
        ok = ECH_VEC_GROW(t->nodes, t->cap, t->n, bytes.len - d);
        for (; ok && d < bytes.len; d++) {
            open[d + 1] = t->n;
            t->nodes[t->n++] = (ech_trie_node){ 0, 0, (uint16_t)(d + 1), (uint8_t)bytes.ptr[d] };
        }
        if (ok) t->nodes[open[bytes.len]].token = (uint32_t)ids[i] + 1;
        last = bytes;
    }
    for (size_t k = 0; k < last.len && ok; k++)
        t->nodes[open[k + 1]].end = t->n;
    free(open);
    return ok;
}

/*
 * Some vocabularies have several ids with the same bytes, and all of them are allowed where one is.
 */
static void chain_twins(ech_mask_vocab *const v, const int32_t *const ids, const uint32_t n)
{
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (ech_str_eq(ech_mask_vocab_bytes(v, ids[i]), ech_mask_vocab_bytes(v, ids[i + 1]))) {
            v->same[ids[i]] = (uint32_t)ids[i + 1] + 1;
        }
    }
}

/* ---- slices ---- */

/*
 * How many characters of the kind a token consists of; 0: it isn't of the kind. A token that is not
 * UTF-8 by itself (part of a character) is of no kind: its fate depends on what comes before and
 * after. U+007F counts as plain, as it does in JSON.
 */
static size_t slice_len(const ech_slice_kind kind, const ech_str bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes.len; n++) {
        uint32_t cp = 0;
        const int len = ech_utf8_decode(bytes.ptr + i, bytes.len - i, &cp);
        if (len <= 0) return 0;
        i += (size_t)len;
        const bool is_space = cp == ' ' || cp == '\t' || cp == '\n' || cp == '\r';
        const bool is_plain = cp >= 0x20 && cp != '"' && cp != '\\';
        if (!(kind == ECH_SLICE_SPACE ? is_space : is_plain)) return 0;
    }
    return n;
}

static void set_bit(uint32_t *const words, const uint32_t id)
{
    words[id >> 5] |= UINT32_C(1) << (id & 31);
}

/*
 * masks[k] has the tokens of at most k + 1 characters, so each token is set from its own length on.
 */
static bool build_slices(ech_mask_vocab *const v, const ech_slice_kind kind,
                         const int32_t *const ids, const uint32_t n)
{
    ech_slices *const s = &v->slices[kind];
    s->masks = calloc((size_t)ECH_SLICE_LEVELS * v->n_words, sizeof *s->masks);
    uint8_t *const is_in = calloc(v->n_ids, 1);
    bool ok = s->masks != NULL && is_in != NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
        const uint32_t id = (uint32_t)ids[i];
        const size_t len = slice_len(kind, ech_mask_vocab_bytes(v, ids[i]));
        if (len == 0 || len > ECH_SLICE_LEVELS) continue;
        is_in[id] = 1;
        for (size_t k = len - 1; k < ECH_SLICE_LEVELS; k++) {
            set_bit(s->masks + k * v->n_words, id);
            s->counts[k]++;
        }
    }
    ok = ok && build_trie(&s->rest, v, ids, n, is_in);
    free(is_in);
    return ok;
}

/* ---- the object ---- */

/* Sorts the ids into those of ordinary tokens, which come first, and the others; both stay sorted.
 */
static uint32_t part_long(const ech_mask_vocab *const v, int32_t *const ids, const uint32_t n,
                          int32_t *const scratch)
{
    uint32_t n_short = 0, n_long = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ech_mask_vocab_bytes(v, ids[i]).len > ECH_ORDINARY_LEN)
            scratch[n_long++] = ids[i];
        else
            ids[n_short++] = ids[i];
    }
    if (n_long > 0) memcpy(ids + n_short, scratch, n_long * sizeof *ids);
    return n_short;
}

/* reach is what a mask looks ahead: the ordinary tokens' bound, and the longest of all. */
static bool build_tries(ech_mask_vocab *const v, int32_t *const ids, const uint32_t n)
{
    int32_t *const scratch = malloc(((size_t)n + 1) * sizeof *scratch);
    if (scratch == NULL) return false;
    const uint32_t n_short = part_long(v, ids, n, scratch);
    free(scratch);
    v->reach[0] = v->token_len < ECH_ORDINARY_LEN ? v->token_len : ECH_ORDINARY_LEN;
    v->reach[1] = v->token_len;
    bool ok = build_trie(&v->all, v, ids, n_short, NULL) &&
              build_trie(&v->longs, v, ids + n_short, n - n_short, NULL);
    for (int k = 0; k < ECH_SLICE_COUNT; k++) {
        ok = ok && build_slices(v, (ech_slice_kind)k, ids, n_short);
    }
    return ok;
}

static bool fill(ech_mask_vocab *const v, const ech_mask_token *const tokens,
                 const int32_t *const eos, const size_t n_eos)
{
    v->is_eos = calloc(v->n_ids, 1);
    v->same = calloc(v->n_ids, sizeof *v->same);
    v->eos = malloc((n_eos + 1) * sizeof *v->eos);
    if (v->is_eos == NULL || v->same == NULL || v->eos == NULL) return false;
    for (size_t i = 0; i < n_eos; i++) {
        if (!v->is_eos[eos[i]]) v->eos[v->n_eos++] = eos[i];
        v->is_eos[eos[i]] = 1;
    }
    if (!copy_bytes(v, tokens) || !list_controls(v, tokens)) return false;
    uint32_t n = 0;
    int32_t *const ids = sort_ids(v, &n);
    if (ids == NULL) return false;
    chain_twins(v, ids, n);
    const bool ok = build_tries(v, ids, n);
    free(ids);
    return ok;
}

ech_status ech_mask_vocab_create(const ech_mask_token *const tokens, const size_t n_tokens,
                                 const int32_t *const eos, const size_t n_eos,
                                 ech_mask_vocab **const ret_vocab, ech_error *const err)
{
    ECH_TRY(check_tokens(tokens, n_tokens, eos, n_eos, err));
    ech_mask_vocab *v = calloc(1, sizeof *v);
    if (v == NULL) return no_memory(err);
    v->refs = 1;
    v->n_ids = (uint32_t)n_tokens;
    v->n_words = (v->n_ids + 31) / 32;
    if (!fill(v, tokens, eos, n_eos)) {
        ech_mask_vocab_unref(&v);
        return no_memory(err);
    }
    *ret_vocab = v;
    return ECH_OK;
}

/*
 * Added tokens that are not marked special but look like markers (<tool_call>, [INST]) are control
 * tokens too, so that what is written inside a string can't spell one.
 */
static ech_mask_token_kind kind_of(const ech_tokenizer *const tok, const int32_t id,
                                   const char *const bytes, const size_t len)
{
    if (ech_tokenizer_is_special(tok, id)) return ECH_MASK_TOKEN_CONTROL;
    if (!ech_tokenizer_is_added(tok, id) || len < 3) return ECH_MASK_TOKEN_TEXT;
    const char first = bytes[0], last = bytes[len - 1];
    const bool is_marker = (first == '<' && last == '>') || (first == '[' && last == ']');
    return is_marker ? ECH_MASK_TOKEN_CONTROL : ECH_MASK_TOKEN_TEXT;
}

ech_status ech_mask_vocab_from_tokenizer(const ech_tokenizer *const tok, const int32_t *const eos,
                                         const size_t n_eos, ech_mask_vocab **const ret_vocab,
                                         ech_error *const err)
{
    const size_t n = ech_tokenizer_n_ids(tok);
    ech_mask_token *const tokens = calloc(n + 1, sizeof *tokens);
    if (tokens == NULL) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *const bytes = ech_tokenizer_token_bytes(tok, (int32_t)i, &len);
        tokens[i].bytes = bytes;
        tokens[i].len = (uint32_t)len;
        if (bytes != NULL) tokens[i].kind = kind_of(tok, (int32_t)i, bytes, len);
    }
    const ech_status rc = ech_mask_vocab_create(tokens, n, eos, n_eos, ret_vocab, err);
    free(tokens);
    return rc;
}

ech_mask_vocab *ech_mask_vocab_ref(ech_mask_vocab *const v)
{
    (void)ech_fetch_add_relaxed(&v->refs, 1);
    return v;
}

void ech_mask_vocab_unref(ech_mask_vocab **const vocab)
{
    if (vocab == NULL || *vocab == NULL) return;
    ech_mask_vocab *const v = *vocab;
    *vocab = NULL;
    /* Acquire and release: whoever frees sees what all other holders wrote. */
    if (ech_fetch_add(&v->refs, UINT32_MAX) != 1) return;
    free(v->bytes);
    free(v->first);
    free(v->kinds);
    free(v->same);
    free(v->eos);
    free(v->is_eos);
    free(v->controls);
    free(v->control_bytes);
    free(v->control_first);
    free(v->all.nodes);
    free(v->longs.nodes);
    for (int k = 0; k < ECH_SLICE_COUNT; k++) {
        free(v->slices[k].masks);
        free(v->slices[k].rest.nodes);
    }
    free(v);
}

size_t ech_mask_vocab_size(const ech_mask_vocab *const v)
{
    return v->n_ids;
}

size_t ech_mask_vocab_words(const ech_mask_vocab *const v)
{
    return v->n_words;
}
