/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages. A tile is one KV head and one block of rows (consecutive positions of one
 * sequence), or one split of those: all query heads of the group and all rows of the block read
 * each key and value once.
 *
 * The bits of a row depend on its queries and on the pages alone. The order, for every row:
 *
 *   - positions are split at multiples of ECH_ATTN_SPLIT; inside a split
 *       s[j] = chain over d of k[d, j] * q[d]          (for q8, times K's scale of position j)
 *       m = max s * scale, p[j] = exp(s[j] * scale - m), l = sum of p in 16 lanes
 *       o[d] = chain over j of v[j, d] * p[j]          (for q8, p[j] times V's scale first)
 *   - splits are merged in ascending order:
 *       M' = max(M, m), O = O * exp(M - M') + o * exp(m - M'), L likewise
 *   - out = O / L, as O * (1 / L)
 *
 * Rows of a block that lie before the block's last position get p = 0 past their own: adding
 * 0 * v changes nothing. So a chunk of a prompt equals its rows one by one.
 */
#include <math.h>
#include <string.h>

#include "src/chip/cpu/exp.h"
#include "src/chip/forward.h"

/* Widths in scratch are padded to panels; head dimensions end at ECH_KV_MAX_HEAD_DIM. */
typedef struct scratch {
    float *q;                                       // [queries, head_dim]
    float *s;                                       // [queries, ECH_ATTN_SPLIT]
    float *o;                                       // [queries, dim_pad] of one split
    float *O;                                       // [queries, dim_pad] merged
    float m[ECH_ATTN_QUERIES], l[ECH_ATTN_QUERIES]; // of one split
    float M[ECH_ATTN_QUERIES], L[ECH_ATTN_QUERIES]; // merged
} scratch;

_Static_assert(ECH_ATTN_QUERIES *(3 * ECH_KV_MAX_HEAD_DIM + ECH_ATTN_SPLIT) * sizeof(float) <=
                   ECH_FORWARD_SCRATCH,
               "an attention tile fits in a core's scratch");

typedef struct work {
    const ech_forward *f;
    const ech_op_attention *op;
    const ech_row_block *block;
    uint32_t kv_head;
    uint32_t group;     /* query heads */
    uint32_t n_queries; /* block->n * group, row by row */
    uint32_t dim_pad;
    scratch s;
} work;

static uint32_t position(const work *const w, const uint32_t query)
{
    return w->f->rows[w->block->first + query / w->group].pos;
}

/* Positions of split [from, from + ECH_ATTN_SPLIT) that a query reads. */
static uint32_t visible(const work *const w, const uint32_t query, const uint32_t from)
{
    const uint32_t end = position(w, query) + 1;
    if (end <= from) return 0;
    return end - from < ECH_ATTN_SPLIT ? end - from : ECH_ATTN_SPLIT;
}

/* Block of the page that holds position pos. */
static const char *page_block(const work *const w, const uint32_t pos)
{
    const uint32_t page = w->f->pages[w->f->rows[w->block->first].pages + pos / ECH_KV_PAGE];
    return ech_forward_kv(w->f, page, w->op->layer, w->kv_head);
}

static void gather_queries(work *const w)
{
    const uint32_t n = w->op->head_dim;
    for (uint32_t i = 0; i < w->n_queries; i++) {
        const float *const qkv = ech_forward_row(w->f, &w->op->qkv, w->block->first + i / w->group);
        memcpy(w->s.q + (size_t)i * n, qkv + ((size_t)w->kv_head * w->group + i % w->group) * n,
               n * sizeof(float));
    }
}

enum { HALVES = ECH_KV_PAGE / ECH_PANEL, SCORE_PAGES = ECH_MM_MAX_PANELS / HALVES };

/* The K or V panels' first byte of the page that holds pos, or NULL past the block's last. */
static const char *keys_at(const work *const w, const uint32_t pos)
{
    if (pos > position(w, w->n_queries - 1)) return NULL;
    return page_block(w, pos) + ech_kv_scale_bytes((ech_kv_type)w->f->h->kv_type);
}

static const char *values_at(const work *const w, const uint32_t pos)
{
    const char *const keys = keys_at(w, pos);
    return keys != NULL ? keys + w->f->k_bytes : NULL;
}

/*
 * s[query, j] for n positions of a split, whole pages at a time. Meanwhile the pages' successors
 * are fetched, or, beside the last ones, the values that weigh() begins with.
 */
static void score(work *const w, const uint32_t from, const uint32_t n)
{
    const ech_kv_type type = (ech_kv_type)w->f->h->kv_type;
    const size_t panel_bytes = ech_kv_k_panel_bytes(type, w->op->head_dim);
    const uint32_t n_pages = (n + ECH_KV_PAGE - 1) / ECH_KV_PAGE;
    for (uint32_t page = 0; page < n_pages; page += SCORE_PAGES) {
        const void *panels[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
        const bool is_last = n_pages - page <= SCORE_PAGES;
        const uint32_t n_now = is_last ? n_pages - page : SCORE_PAGES;
        for (uint32_t i = 0; i < n_now * HALVES; i++) {
            const uint32_t pos = from + (page + i / HALVES) * ECH_KV_PAGE;
            const char *const after = is_last ? values_at(w, from + i / HALVES * ECH_KV_PAGE)
                                              : keys_at(w, pos + SCORE_PAGES * ECH_KV_PAGE);
            panels[i] = keys_at(w, pos) + i % HALVES * panel_bytes;
            next[i] = after != NULL ? after + i % HALVES * panel_bytes : panels[i];
        }
        w->f->k->mm[ech_kv_panel_type(type)][ECH_ACT_F32](&(ech_mm_args){
            .w = panels,
            .next = next,
            .n_panels = n_now * HALVES,
            .n_parts = 1,
            .k_part = w->op->head_dim,
            .k_last = w->op->head_dim,
            .x = w->s.q,
            .x_stride = w->op->head_dim * sizeof(float),
            .n_rows = w->n_queries,
            .y = w->s.s + page * ECH_KV_PAGE,
            .y_stride = ECH_ATTN_SPLIT,
        });
    }
}

/* q8: s[query, j] times the scale of position j, of K (offset 0) or of V. */
static void apply_scales(work *const w, const uint32_t from, const uint32_t n, const size_t offset)
{
    if (w->f->h->kv_type != ECH_KV_Q8) return;
    for (uint32_t at = 0; at < n; at += ECH_KV_PAGE) {
        const float *const scales = (const float *)(page_block(w, from + at) + offset);
        const uint32_t n_page = n - at < ECH_KV_PAGE ? n - at : ECH_KV_PAGE;
        for (uint32_t i = 0; i < w->n_queries; i++)
            for (uint32_t j = 0; j < n_page; j++)
                w->s.s[i * ECH_ATTN_SPLIT + at + j] *= scales[j];
    }
}

/*
 * o[query, d] over n positions of a split: the pages are parts of one chain. Meanwhile the values
 * four pages on are fetched, or the keys that the next split begins with.
 */
static void weigh(work *const w, const uint32_t from, const uint32_t n)
{
    const ech_kv_type type = (ech_kv_type)w->f->h->kv_type;
    const size_t panel_bytes = ech_kv_v_panel_bytes(type);
    const uint32_t n_pages = (n + ECH_KV_PAGE - 1) / ECH_KV_PAGE;
    const uint32_t n_panels = w->dim_pad / ECH_PANEL;
    for (uint32_t p = 0; p < n_panels; p += ECH_MM_MAX_PANELS) {
        const void *panels[ECH_ATTN_SPLIT / ECH_KV_PAGE * ECH_MM_MAX_PANELS];
        const void *next[ECH_ATTN_SPLIT / ECH_KV_PAGE * ECH_MM_MAX_PANELS];
        const uint32_t n_now = n_panels - p < ECH_MM_MAX_PANELS ? n_panels - p : ECH_MM_MAX_PANELS;
        for (uint32_t page = 0; page < n_pages; page++) {
            const uint32_t pos = from + page * ECH_KV_PAGE;
            const uint32_t ahead = pos + SCORE_PAGES * ECH_KV_PAGE;
            const char *const block = values_at(w, pos) + p * panel_bytes;
            const char *after =
                page + SCORE_PAGES < n_pages ? values_at(w, ahead) : keys_at(w, ahead);
            after = after != NULL ? after + p * panel_bytes : block;
            for (uint32_t i = 0; i < n_now; i++) {
                panels[page * n_now + i] = block + i * panel_bytes;
                next[page * n_now + i] = after + i * panel_bytes;
            }
        }
        w->f->k->mm[ech_kv_panel_type(type)][ECH_ACT_F32](&(ech_mm_args){
            .w = panels,
            .next = next,
            .n_panels = n_now,
            .n_parts = n_pages,
            .k_part = ECH_KV_PAGE,
            .k_last = n - (n_pages - 1) * ECH_KV_PAGE,
            .x = w->s.s,
            .x_stride = ECH_ATTN_SPLIT * sizeof(float),
            .n_rows = w->n_queries,
            .y = w->s.o + (size_t)p * ECH_PANEL,
            .y_stride = w->dim_pad,
        });
    }
}

/* Softmax of every query's part; zeros up to the positions that the block reads together. */
static void softmax_split(work *const w, const uint32_t from, const uint32_t n_block)
{
    for (uint32_t i = 0; i < w->n_queries; i++) {
        float *const s = w->s.s + (size_t)i * ECH_ATTN_SPLIT;
        const uint32_t n = visible(w, i, from);
        if (n > 0) w->s.l[i] = w->f->k->softmax(s, n, w->op->scale, &w->s.m[i]);
        memset(s + n, 0, (n_block - n) * sizeof(float));
    }
}

static void merge_query(work *const w, const uint32_t i, const bool is_first)
{
    float *const O = w->s.O + (size_t)i * w->dim_pad;
    const float *const o = w->s.o + (size_t)i * w->dim_pad;
    if (is_first) {
        memcpy(O, o, w->dim_pad * sizeof(float));
        w->s.M[i] = w->s.m[i];
        w->s.L[i] = w->s.l[i];
        return;
    }
    const float max = w->s.m[i] > w->s.M[i] ? w->s.m[i] : w->s.M[i];
    const float a = ech_exp_ref(w->s.M[i] - max), b = ech_exp_ref(w->s.m[i] - max);
    w->f->k->mix(O, a, o, b, w->dim_pad);
    w->s.L[i] = fmaf(w->s.L[i], a, w->s.l[i] * b);
    w->s.M[i] = max;
}

/* One split: o, m and l of every query that sees some of it. `end` is the block's. */
static void attend_split(work *const w, const uint32_t from, const uint32_t end)
{
    const uint32_t n = end - from < ECH_ATTN_SPLIT ? end - from : ECH_ATTN_SPLIT;
    score(w, from, n);
    apply_scales(w, from, n, 0);
    softmax_split(w, from, n);
    apply_scales(w, from, n, w->f->k_bytes);
    weigh(w, from, n);
}

static void merge_split(work *const w, const uint32_t from)
{
    for (uint32_t i = 0; i < w->n_queries; i++)
        if (visible(w, i, from) > 0) merge_query(w, i, from == 0);
}

static void write_out(work *const w)
{
    for (uint32_t i = 0; i < w->n_queries; i++) {
        float *const out = ech_forward_row(w->f, &w->op->out, w->block->first + i / w->group) +
                           ((size_t)w->kv_head * w->group + i % w->group) * w->op->head_dim;
        w->f->k->scale(out, w->s.O + (size_t)i * w->dim_pad, 1.0f / w->s.L[i], w->op->head_dim);
    }
}

static void take_tile(work *const w, const ech_row_block *const block, const uint32_t kv_head)
{
    w->block = block;
    w->kv_head = kv_head;
    w->n_queries = block->n * w->group;
}

static uint32_t end_of(const ech_forward *const f, const ech_row_block *const b)
{
    return f->rows[b->first + b->n - 1].pos + 1;
}

/* A tile is a block and a KV head, with all its positions. */
static void attend_whole(work *const w, ech_core *const core)
{
    const ech_forward *const f = w->f;
    const uint32_t n_heads = w->op->n_kv_heads;
    for (uint32_t t; ech_pool_tile(core, f->n_blocks * n_heads, &t);) {
        /* Later rows read more: they go first, so that the last tiles are small. */
        take_tile(w, &f->blocks[f->n_blocks - 1 - t / n_heads], t % n_heads);
        gather_queries(w);
        const uint32_t end = end_of(f, w->block);
        for (uint32_t from = 0; from < end; from += ECH_ATTN_SPLIT) {
            attend_split(w, from, end);
            merge_split(w, from);
        }
        write_out(w);
    }
}

/* ---- one sequence on several cores ------------------------------------------------------------
 *
 * Where there are few blocks and KV heads, a tile is one split of them: its o, m and l go to a slot
 * of the memory that prepared rows have while a matrix is multiplied. Then all meet, and the slots
 * are merged in the order of above. So the bits are the same.
 */

static uint32_t splits_of(const ech_forward *const f, const ech_row_block *const b)
{
    return (end_of(f, b) + ECH_ATTN_SPLIT - 1) / ECH_ATTN_SPLIT;
}

static size_t slot_floats(const work *const w)
{
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < w->f->n_blocks; i++)
        n_rows = w->f->blocks[i].n > n_rows ? w->f->blocks[i].n : n_rows;
    return (size_t)n_rows * w->group * (w->dim_pad + 2);
}

/* Splits of all blocks when they are to be tiles of their own, else 0. */
static uint32_t splits_apart(const work *const w, const uint32_t n_cores)
{
    const ech_forward *const f = w->f;
    /* With four tiles to a core, or one core, there is nothing to gain. */
    if (n_cores == 1 || f->n_blocks * w->op->n_kv_heads >= 4 * n_cores) return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_blocks; i++)
        n += splits_of(f, &f->blocks[i]);
    const size_t bytes = (size_t)n * w->op->n_kv_heads * slot_floats(w) * sizeof(float);
    return n > f->n_blocks && bytes <= f->h->prep_bytes * f->h->max_rows ? n : 0;
}

static float *slot_at(const work *const w, const uint32_t split, const size_t floats)
{
    return (float *)(w->f->arena + w->f->h->prep_offset) +
           ((size_t)split * w->op->n_kv_heads + w->kv_head) * floats;
}

/* The block that split number *split of all falls into; *split becomes the block's own number. */
static const ech_row_block *block_at(const ech_forward *const f, uint32_t *const split)
{
    const ech_row_block *b = f->blocks;
    for (; *split >= splits_of(f, b); b++)
        *split -= splits_of(f, b);
    return b;
}

static void attend_apart(work *const w, const uint32_t n_splits, ech_core *const core)
{
    const ech_forward *const f = w->f;
    const uint32_t n_heads = w->op->n_kv_heads;
    const size_t floats = slot_floats(w);
    for (uint32_t t; ech_pool_tile(core, n_splits * n_heads, &t);) {
        uint32_t split = t / n_heads;
        take_tile(w, block_at(f, &split), t % n_heads);
        float *const slot = slot_at(w, t / n_heads, floats);
        w->s.o = slot + 2 * w->n_queries;
        gather_queries(w);
        attend_split(w, split * ECH_ATTN_SPLIT, end_of(f, w->block));
        memcpy(slot, w->s.m, w->n_queries * sizeof(float));
        memcpy(slot + w->n_queries, w->s.l, w->n_queries * sizeof(float));
    }
    ech_pool_barrier(core);
    for (uint32_t t; ech_pool_tile(core, f->n_blocks * n_heads, &t);) {
        take_tile(w, &f->blocks[t / n_heads], t % n_heads);
        uint32_t first = 0;
        for (uint32_t i = 0; i < t / n_heads; i++)
            first += splits_of(f, &f->blocks[i]);
        for (uint32_t i = 0; i < splits_of(f, w->block); i++) {
            float *const slot = slot_at(w, first + i, floats);
            memcpy(w->s.m, slot, w->n_queries * sizeof(float));
            memcpy(w->s.l, slot + w->n_queries, w->n_queries * sizeof(float));
            w->s.o = slot + 2 * w->n_queries;
            merge_split(w, i * ECH_ATTN_SPLIT);
        }
        write_out(w);
    }
}

void ech_forward_attention(const ech_forward *const f, const ech_op_attention *const op,
                           ech_core *const core)
{
    work w = {
        .f = f,
        .op = op,
        .group = op->n_heads / op->n_kv_heads,
        .dim_pad = (op->head_dim + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL,
    };
    w.s.q = core->scratch;
    w.s.o = w.s.q + ECH_ATTN_QUERIES * w.dim_pad;
    w.s.O = w.s.o + ECH_ATTN_QUERIES * w.dim_pad;
    w.s.s = w.s.O + ECH_ATTN_QUERIES * w.dim_pad;
    const uint32_t n_splits = splits_apart(&w, core->n_cores);
    if (n_splits == 0)
        attend_whole(&w, core);
    else
        attend_apart(&w, n_splits, core);
}
