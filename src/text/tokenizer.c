/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a tokenizer, and looking into it. The parts are read by tokenizer_json.c and
 * tokenizer_gguf.c; running is tokenizer_encode.c and tokenizer_detok.c.
 *
 * Any thread may use an open tokenizer. The one thing that changes is the row of spare scratches:
 * a call takes one out by an atomic exchange, so that it is nobody else's, and puts it back.
 *
 * Order of building: parts are read, ech_tokenizer_finish makes the tables that need all of them,
 * and from then on nothing changes. All texts are in the arena. Left out: who adds BOS and EOS
 * when, which is the caller's flag.
 */
#include "echelon/tokenizer.h"

#include <stdlib.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/text/tokenizer_parts.h"

void ech_ids_fini(ech_ids *const ids)
{
    free(ids->data);
    *ids = (ech_ids){ 0 };
}

/* Growth by half keeps appending one by one linear. */
ech_status ech_ids_append(ech_ids *const ids, const int32_t *const data, const size_t n)
{
    if (n > ids->cap - ids->n) {
        if (n > SIZE_MAX / 16 - ids->n) return ECH_ENOMEM;
        size_t cap = ids->cap < 64 ? 64 : ids->cap;
        while (cap - ids->n < n) {
            cap += cap / 2;
        }
        int32_t *const p = realloc(ids->data, cap * sizeof *p);
        if (p == NULL) return ECH_ENOMEM;
        ids->data = p;
        ids->cap = cap;
    }
    for (size_t i = 0; i < n; i++) { /* mostly one or two: no call for that */
        ids->data[ids->n + i] = data[i];
    }
    ids->n += n;
    return ECH_OK;
}

/* ---- Scratch ---- */

void ech_tok_scratch_destroy(ech_tok_scratch **const scratch)
{
    ech_tok_scratch *const s = *scratch;
    if (s == NULL) return;
    ech_regex_scratch_destroy(&s->re);
    ech_model_scratch_destroy(&s->model);
    ech_norm_scratch_fini(&s->norm);
    ech_pretok_scratch_fini(&s->pretok);
    free(s);
    *scratch = NULL;
}

/* Buffers in a scratch have grown to what texts needed, so a spare one is worth keeping. */
ech_status ech_tok_scratch_take(const ech_tokenizer *const t, ech_tok_scratch **const ret_s)
{
    /* Taking needs no change of what others see of the tokenizer: the spares are nobody's. */
    ech_tok_scratch **const spares = (ech_tok_scratch **)(uintptr_t)t->spares;
    for (size_t i = 0; i < ECH_TOK_SPARES; i++) {
        if (ech_load_relaxed(&spares[i]) == NULL) continue;
        /* Acquires what the thread that gave it back wrote; pairs with the exchange in _give. */
        ech_tok_scratch *const s = ech_exchange(&spares[i], NULL);
        if (s != NULL) {
            *ret_s = s;
            return ECH_OK;
        }
    }
    ech_tok_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) return ECH_ENOMEM;
    if (ech_regex_scratch_create(&s->re) != ECH_OK ||
        ech_model_scratch_create(&s->model) != ECH_OK) {
        ech_tok_scratch_destroy(&s);
        return ECH_ENOMEM;
    }
    *ret_s = s;
    return ECH_OK;
}

void ech_tok_scratch_give(const ech_tokenizer *const t, ech_tok_scratch *s)
{
    ech_tok_scratch **const spares = (ech_tok_scratch **)(uintptr_t)t->spares;
    for (size_t i = 0; s != NULL && i < ECH_TOK_SPARES; i++) {
        if (ech_load_relaxed(&spares[i]) == NULL) s = ech_exchange(&spares[i], s);
    }
    ech_tok_scratch_destroy(&s); /* more threads than places */
}

/* ---- Building ---- */

ech_tokenizer *ech_tokenizer_new(void)
{
    ech_tokenizer *const t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    for (int i = 0; i < ECH_SPECIAL_COUNT; i++) {
        t->special_ids[i] = ECH_NO_ID;
    }
    return t;
}

static void added_fini(ech_added *const a)
{
    free(a->tokens);
    free(a->by_id);
    ech_lexicon_fini(&a->lex);
    ech_trie_fini(&a->plain);
    ech_trie_fini(&a->normal);
}

void ech_tokenizer_close(ech_tokenizer **const tok)
{
    ech_tokenizer *const t = *tok;
    if (t == NULL) return;
    for (size_t i = 0; i < ECH_TOK_SPARES; i++) {
        ech_tok_scratch_destroy(&t->spares[i]);
    }
    added_fini(&t->added);
    ech_normalizer_fini(&t->normalizer);
    ech_pretok_fini(&t->pretok);
    ech_model_fini(&t->model);
    ech_decoder_fini(&t->decoder);
    ech_buf_fini(&t->token_bytes);
    free(t->token_ends);
    ech_arena_fini(&t->arena);
    free(t);
    *tok = NULL;
}

/*
 * The id of a new added token: its row in a GGUF file's one table, else the model's own, else the
 * next behind all others. The "id" in a tokenizer.json is not looked at: the reference doesn't
 * either.
 */
static int64_t added_id(const ech_tokenizer *const t, const ech_added_token *const token)
{
    if (token->id >= 0) return token->id;
    const int32_t id = ech_lexicon_find(&t->model.lex, token->text.ptr, token->text.len);
    if (id >= 0) return id;
    const size_t n_added = t->added.lex.n_ids, n_model = t->model.lex.n_texts;
    return (int64_t)(n_added > n_model ? n_added : n_model);
}

static ech_status added_reserve(ech_added *const a)
{
    if (a->lex.slots == NULL) ECH_TRY(ech_lexicon_init(&a->lex, 64));
    if (a->n < a->cap) return ECH_OK;
    const size_t cap = a->cap == 0 ? 64 : a->cap * 2;
    ech_added_token *const tokens = realloc(a->tokens, cap * sizeof *tokens);
    if (tokens == NULL) return ECH_ENOMEM;
    a->tokens = tokens;
    a->cap = cap;
    return ECH_OK;
}

/* A text that was added before: the later rules count, but once special is always special. */
static bool replace_token(ech_added *const a, ech_added_token *const token)
{
    if (ech_lexicon_find(&a->lex, token->text.ptr, token->text.len) < 0) return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!ech_str_eq(a->tokens[i].text, token->text)) continue;
        token->id = a->tokens[i].id;
        token->special = token->special || a->tokens[i].special;
        a->tokens[i] = *token;
    }
    return true;
}

/*
 * Limits are there because the texts come from a file. An empty text is left out, as the reference
 * does.
 */
ech_status ech_tokenizer_add_token(ech_tokenizer *const t, ech_added_token token,
                                   ech_error *const err)
{
    const int shown = (int)(token.text.len > 60 ? 60 : token.text.len);
    if (token.text.len == 0) return ECH_OK;
    if (token.text.len > ECH_ADDED_MAX_BYTES || t->added.n == ECH_ADDED_MAX) {
        return ech_fail(
            err, ECH_ELIMIT,
            "reading the added token \"%.*s\": longer than %d bytes, or one too many (%d)", shown,
            token.text.ptr, ECH_ADDED_MAX_BYTES, ECH_ADDED_MAX);
    }
    if (added_reserve(&t->added) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "reading added tokens: out of memory");
    if (replace_token(&t->added, &token)) return ECH_OK;
    const int64_t id = added_id(t, &token);
    const ech_status rc = ech_lexicon_add(&t->added.lex, token.text, id);
    if (rc != ECH_OK) {
        return ech_fail(err, rc == ECH_ENOMEM ? rc : ECH_EFORMAT,
                        "reading the added token \"%.*s\": id %lld is %s", shown, token.text.ptr,
                        (long long)id, rc == ECH_ELIMIT ? "out of range" : "given twice");
    }
    token.id = (int32_t)id;
    t->added.tokens[t->added.n++] = token;
    return ECH_OK;
}

/*
 * An added token's text as it stands in normalised text. A token marked "normalized" is searched in
 * normalised text, so its own text must be normalised too.
 */
static ech_status normalised_text(ech_tokenizer *const t, const ech_added_token *const token,
                                  ech_tok_scratch *const s, ech_str *const ret_text,
                                  ech_error *const err)
{
    ech_norm_text n = { token->text.ptr, token->text.len, NULL, false };
    ECH_TRY(ech_normalizer_apply(&t->normalizer, &s->norm, s->re, &n, err));
    char *const copy = ech_arena_strdup(&t->arena, (ech_str){ n.ptr, n.len });
    if (copy == NULL) return ECH_ENOMEM;
    *ret_text = (ech_str){ copy, n.len };
    return ECH_OK;
}

/*
 * Puts the tokens that are special, or those that are not, into the tries. Special ones first, and
 * a text that is in the trie stays (keep): of two equal texts the special one wins.
 */
static ech_status fill_tries(ech_tokenizer *const t, ech_tok_scratch *const s, const bool special,
                             ech_error *const err)
{
    for (size_t i = 0; i < t->added.n; i++) {
        ech_added_token *const token = &t->added.tokens[i];
        if (token->special != special) continue;
        token->decoded = token->text;
        if (token->normalized) {
            ECH_TRY(normalised_text(t, token, s, &token->decoded, err));
            t->added.has_normal = true;
        }
        ECH_TRY(ech_trie_add(token->normalized ? &t->added.normal : &t->added.plain, token->decoded,
                             (int32_t)i, true));
    }
    return ECH_OK;
}

/* The token of each added id. */
static ech_status index_added(ech_tokenizer *const t)
{
    t->added.n_by_id = t->added.lex.n_ids;
    t->added.by_id = malloc((t->added.n_by_id + 1) * sizeof *t->added.by_id);
    if (t->added.by_id == NULL) return ECH_ENOMEM;
    for (size_t i = 0; i < t->added.n_by_id; i++) {
        t->added.by_id[i] = -1;
    }
    for (size_t i = 0; i < t->added.n; i++) {
        t->added.by_id[t->added.tokens[i].id] = (int32_t)i;
    }
    return ECH_OK;
}

static const ech_added_token *added_token(const ech_tokenizer *const t, const int64_t id)
{
    if (id < 0 || (uint64_t)id >= t->added.n_by_id || t->added.by_id[id] < 0) return NULL;
    return &t->added.tokens[t->added.by_id[id]];
}

ech_str ech_tokenizer_text(const ech_tokenizer *const t, const int64_t id)
{
    const ech_added_token *const token = added_token(t, id);
    return token != NULL ? token->decoded : ech_lexicon_text(&t->model.lex, id);
}

/*
 * What each id adds to a text, all in one buffer. token_ends[id] is where the bytes of id end; they
 * begin where the ones before end. Each id is decoded as in the middle of a text, so that bytes can
 * be put together.
 */
static ech_status fill_token_bytes(ech_tokenizer *const t, ech_tok_scratch *const s)
{
    const ech_tok_tables *const made = t->tables;
    t->token_ends = malloc((t->n_ids + 1) * sizeof *t->token_ends);
    if (t->token_ends == NULL) return ECH_ENOMEM;
    if (made != NULL && made->n_tokens == t->n_ids) {
        memcpy(t->token_ends, made->token_ends, t->n_ids * sizeof *t->token_ends);
        return ech_buf_append(&t->token_bytes, made->token_bytes,
                              t->n_ids > 0 ? t->token_ends[t->n_ids - 1] : 0);
    }
    for (size_t id = 0; id < t->n_ids; id++) {
        const ech_str text = ech_tokenizer_text(t, (int64_t)id);
        if (text.ptr != NULL)
            ECH_TRY(ech_decoder_step(&t->decoder, s->re, text, false, &t->token_bytes));
        t->token_ends[id] = t->token_bytes.len;
    }
    return ECH_OK;
}

static ech_status finish(ech_tokenizer *const t, ech_tok_scratch *const s, ech_error *const err)
{
    if (t->added.lex.slots == NULL) ECH_TRY(ech_lexicon_init(&t->added.lex, 1));
    t->n_ids = t->model.lex.n_ids > t->added.lex.n_ids ? t->model.lex.n_ids : t->added.lex.n_ids;
    ECH_TRY(ech_trie_init(&t->added.plain));
    ECH_TRY(ech_trie_init(&t->added.normal));
    ECH_TRY(fill_tries(t, s, true, err));
    ECH_TRY(fill_tries(t, s, false, err));
    ECH_TRY(index_added(t));
    return fill_token_bytes(t, s);
}

ech_status ech_tokenizer_finish(ech_tokenizer *const t, ech_error *const err)
{
    ECH_TRY(ech_model_finish(&t->model, err));
    ech_tok_scratch *s = NULL;
    ech_error detail = { 0 };
    ech_status rc = ech_tok_scratch_take(t, &s);
    if (rc == ECH_OK) rc = finish(t, s, &detail);
    ech_tok_scratch_give(t, s);
    if (rc == ECH_OK) return rc;
    if (detail.code == rc && err != NULL) *err = detail;
    return detail.code == rc ? rc
                             : ech_fail(err, rc, "building a tokenizer: %s", ech_status_str(rc));
}

/* ---- Looking in ---- */

size_t ech_tokenizer_n_ids(const ech_tokenizer *const tok)
{
    return tok->n_ids;
}

const char *ech_tokenizer_token_bytes(const ech_tokenizer *const tok, const int32_t id,
                                      size_t *const ret_len)
{
    *ret_len = 0;
    if (ech_tokenizer_text(tok, id).ptr == NULL) return NULL;
    const size_t from = id == 0 ? 0 : tok->token_ends[id - 1];
    *ret_len = tok->token_ends[id] - from;
    return tok->token_bytes.data != NULL ? tok->token_bytes.data + from : "";
}

bool ech_tokenizer_is_special(const ech_tokenizer *const tok, const int32_t id)
{
    const ech_added_token *const token = added_token(tok, id);
    return token != NULL && token->special;
}

bool ech_tokenizer_is_added(const ech_tokenizer *const tok, const int32_t id)
{
    return added_token(tok, id) != NULL;
}

int32_t ech_tokenizer_find_added(const ech_tokenizer *const tok, const char *const text,
                                 const size_t len)
{
    return ech_lexicon_find(&tok->added.lex, text, len);
}

int32_t ech_tokenizer_special_id(const ech_tokenizer *const tok, const ech_special which)
{
    return which < ECH_SPECIAL_COUNT ? tok->special_ids[which] : ECH_NO_ID;
}

const char *ech_tokenizer_special_text(const ech_tokenizer *const tok, const ech_special which)
{
    return which < ECH_SPECIAL_COUNT ? tok->special_texts[which] : NULL;
}
