/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables as bytes: see tokenizer_tables.h. Any thread; nothing is kept.
 *
 * Invariant: every number of a view was compared with what it counts before the view is given out,
 * each table has an empty slot, which ends every probe, and each id in a table has a text.
 */
#include "src/text/tokenizer_tables.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/text/tokenizer_parts.h"

#define MAGIC   UINT64_C(0x4543485441424c45)
#define VERSION 1

typedef struct header {
    uint64_t magic;
    uint32_t version;
    uint32_t n_ids;
    uint32_t n_merge_slots, n_slots, n_tokens;
    uint32_t reserved;
    uint64_t text_bytes, token_bytes;
    uint64_t lex_seed, merge_seed;
    ech_tok_source source;
} header;

_Static_assert(sizeof(header) == 112 && sizeof(ech_merge) == 16 && sizeof(size_t) == 8,
               "part of the format");

/* ---- reading ---- */

static bool is_table_size(const uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0 && n <= 4 * ECH_LEXICON_MAX_IDS;
}

static bool fits(const header *const h, const size_t len)
{
    return h->n_ids <= ECH_LEXICON_MAX_IDS && h->n_tokens <= 2 * ECH_LEXICON_MAX_IDS &&
           is_table_size(h->n_merge_slots) && is_table_size(h->n_slots) && h->text_bytes <= len &&
           h->token_bytes <= len &&
           len == sizeof *h + sizeof(ech_merge) * h->n_merge_slots + 8ULL * h->n_tokens +
                      4ULL * h->n_slots + 4ULL * h->n_ids + h->text_bytes + h->token_bytes;
}

static ech_tok_tables lay_out(const header *const h, const char *const at)
{
    ech_tok_tables t = { .source = h->source,
                         .lex_seed = h->lex_seed,
                         .merge_seed = h->merge_seed,
                         .n_merge_slots = h->n_merge_slots,
                         .n_slots = h->n_slots,
                         .n_ids = h->n_ids,
                         .text_bytes = h->text_bytes,
                         .n_tokens = h->n_tokens };
    t.merges = (const void *)(at + sizeof *h);
    t.token_ends = (const void *)(t.merges + t.n_merge_slots);
    t.slots = (const void *)(t.token_ends + t.n_tokens);
    t.text_ends = t.slots + t.n_slots;
    t.texts = (const void *)(t.text_ends + t.n_ids);
    t.token_bytes = t.texts + t.text_bytes;
    return t;
}

/* Ends grow up to the last byte, and each text ends with its zero. */
static bool has_good_ends(const ech_tok_tables *const t, const uint64_t token_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < t->n_ids; i++) {
        const uint64_t end = t->text_ends[i];
        if (end < at || end > t->text_bytes || (end > at && t->texts[end - 1] != 0)) return false;
        at = end;
    }
    if (at != t->text_bytes) return false;
    at = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (t->token_ends[i] < at) return false;
        at = t->token_ends[i];
    }
    return at == token_bytes;
}

static bool has_text(const ech_tok_tables *const t, const uint64_t id)
{
    return id < t->n_ids && t->text_ends[id] > (id == 0 ? 0 : t->text_ends[id - 1]);
}

static bool has_good_slots(ech_tok_tables *const t)
{
    for (size_t i = 0; i < t->n_slots; i++) {
        if (t->slots[i] == 0) continue;
        if (!has_text(t, ech_lexicon_slot_id(t->slots[i]))) return false;
        t->n_texts++;
    }
    return 2 * t->n_texts <= t->n_slots;
}

static bool has_good_merges(ech_tok_tables *const t)
{
    for (size_t i = 0; i < t->n_merge_slots; i++) {
        const ech_merge *const m = &t->merges[i];
        if (m->pair == 0) continue;
        const uint64_t pair = m->pair - 1;
        if (!has_text(t, pair >> 32) || !has_text(t, (uint32_t)pair) || m->id < 0 ||
            !has_text(t, (uint64_t)m->id))
            return false;
        t->n_merges++;
    }
    return t->n_merges < t->n_merge_slots;
}

bool ech_tok_tables_view(const ech_str bytes, const uint64_t digest[2], ech_tok_tables *const ret)
{
    header h;
    if (bytes.len < sizeof h || (uintptr_t)bytes.ptr % _Alignof(ech_merge) != 0) return false;
    memcpy(&h, bytes.ptr, sizeof h);
    if (h.magic != MAGIC || h.version != VERSION || h.source.digest[0] != digest[0] ||
        h.source.digest[1] != digest[1] || !fits(&h, bytes.len))
        return false;
    *ret = lay_out(&h, bytes.ptr);
    return has_good_ends(ret, h.token_bytes) && has_good_slots(ret) && has_good_merges(ret);
}

/* malloc'd, so that whoever frees a table needn't know where it came from. */
static void *copy_of(const void *const from, const size_t bytes)
{
    void *const to = malloc(bytes + 1);
    if (to != NULL) memcpy(to, from, bytes);
    return to;
}

static ech_status take_texts(const ech_tok_tables *const t, ech_lexicon *const lex,
                             ech_arena *const arena)
{
    char *const bytes = ech_arena_alloc(arena, t->text_bytes);
    lex->texts = calloc(t->n_ids + 1, sizeof *lex->texts);
    if (bytes == NULL || lex->texts == NULL) return ECH_ENOMEM;
    memcpy(bytes, t->texts, t->text_bytes);
    for (size_t id = 0, at = 0; id < t->n_ids; at = t->text_ends[id++]) {
        if (t->text_ends[id] == at) continue;
        lex->texts[id] = (ech_str){ bytes + at, t->text_ends[id] - at - 1 };
        if (lex->texts[id].len > lex->max_len) lex->max_len = lex->texts[id].len;
    }
    lex->n_ids = lex->cap_ids = t->n_ids;
    lex->n_texts = t->n_texts;
    return ECH_OK;
}

ech_status ech_tok_tables_take(const ech_tok_tables *const t, ech_model *const m,
                               ech_arena *const arena)
{
    ech_lexicon_fini(&m->lex);
    m->lex.seed = t->lex_seed;
    m->lex.slots = copy_of(t->slots, t->n_slots * sizeof *t->slots);
    m->lex.mask = t->n_slots - 1;
    m->merges = copy_of(t->merges, t->n_merge_slots * sizeof *t->merges);
    m->merge_mask = t->n_merge_slots - 1;
    m->n_merges = t->n_merges;
    m->seed = t->merge_seed;
    if (m->lex.slots == NULL || m->merges == NULL) return ECH_ENOMEM;
    return take_texts(t, &m->lex, arena);
}

bool ech_tokenizer_had_tables(const ech_tokenizer *const t)
{
    return t->had_tables;
}

/* ---- writing ---- */

static ech_status put_texts(const ech_lexicon *const lex, ech_buf *const out)
{
    for (size_t id = 0; id < lex->n_ids; id++) {
        const ech_str text = lex->texts[id];
        if (text.ptr == NULL) continue;
        ECH_TRY(ech_buf_append(out, text.ptr, text.len));
        ECH_TRY(ech_buf_append(out, "", 1));
    }
    return ECH_OK;
}

static ech_status put_text_ends(const ech_lexicon *const lex, ech_buf *const out)
{
    uint32_t at = 0;
    for (size_t id = 0; id < lex->n_ids; id++) {
        if (lex->texts[id].ptr != NULL) at += (uint32_t)lex->texts[id].len + 1;
        ECH_TRY(ech_buf_append(out, &at, sizeof at));
    }
    return ECH_OK;
}

static uint64_t count_text_bytes(const ech_lexicon *const lex)
{
    uint64_t n = 0;
    for (size_t id = 0; id < lex->n_ids; id++)
        if (lex->texts[id].ptr != NULL) n += lex->texts[id].len + 1;
    return n;
}

ech_status ech_tokenizer_write_tables(const ech_tokenizer *const t, ech_buf *const out)
{
    const ech_model *const m = &t->model;
    const header h = { .magic = MAGIC,
                       .version = VERSION,
                       .n_ids = (uint32_t)m->lex.n_ids,
                       .n_merge_slots = (uint32_t)m->merge_mask + 1,
                       .n_slots = (uint32_t)m->lex.mask + 1,
                       .n_tokens = (uint32_t)t->n_ids,
                       .text_bytes = count_text_bytes(&m->lex),
                       .token_bytes = t->token_bytes.len,
                       .lex_seed = m->lex.seed,
                       .merge_seed = m->seed,
                       .source = t->source };
    if (m->kind != ECH_MODEL_BPE || h.text_bytes > UINT32_MAX) return ECH_OK;
    ECH_TRY(ech_buf_append(out, &h, sizeof h));
    ECH_TRY(ech_buf_append(out, m->merges, h.n_merge_slots * sizeof *m->merges));
    ECH_TRY(ech_buf_append(out, t->token_ends, t->n_ids * sizeof *t->token_ends));
    ECH_TRY(ech_buf_append(out, m->lex.slots, h.n_slots * sizeof *m->lex.slots));
    ECH_TRY(put_text_ends(&m->lex, out));
    ECH_TRY(put_texts(&m->lex, out));
    return ech_buf_append(out, t->token_bytes.data, t->token_bytes.len);
}
