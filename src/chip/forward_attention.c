/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages. A tile is one KV head and one block of rows (consecutive positions of one
 * sequence), or one split of those: all query heads of the group and all rows of the block read
 * each key and value from memory once. Within a split, parts of a block follow each other: as many
 * rows as a matrix kernel needs, so that scores stay in the nearest caches. Where a block has
 * several parts, a split's keys and values are widened to f32 once for all of them, side by side:
 * pages lie at distances that share the sets of a cache. That changes no bit, a kernel widens
 * exactly too.
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
 *   - with ECH_COMPUTE_BF16, keys and values of type f16 or bf16, and heads of no more than
 *     BF16_DIM: q, k, p and v are rounded to bf16 before those two chains, which are then the
 *     kernels' chains over pairs (ops.h); l is the sum of p unrounded
 *
 * Rows of a part that lie before the part's last position get p = 0 past their own: adding
 * 0 * v changes nothing. So a chunk of a prompt equals its rows one by one, however it is cut.
 */
#include <math.h>
#include <string.h>

#include "src/base/error.h"
#include "src/chip/cpu/exp.h"
#include "src/chip/forward.h"

/*
 * Query rows, (rows) * (heads of a group): most of a block and of a part, and how many a part has
 * where a row has no more than that.
 */
enum { BLOCK_QUERIES = 256, PART_QUERIES = ECH_MAX_GROUP, FULL_PART = 48 };

/* Widest heads whose keys and values of a split are copied as bf16: their copy fits in scratch. */
enum { BF16_DIM = 256 };

/* Floats of a core's scratch; widths are padded to panels. */
#define PART_FLOATS(dim_pad)  (PART_QUERIES * ((dim_pad) + ECH_ATTN_SPLIT * 3 / 2 + 2))
#define QUERY_FLOATS(dim_pad) (2 * (dim_pad) + 2)
#define COPY_FLOATS(dim_pad)  (2 * ECH_ATTN_SPLIT * (dim_pad))
#define SCRATCH_FLOATS        (ECH_FORWARD_SCRATCH / sizeof(float))

_Static_assert(PART_FLOATS(ECH_KV_MAX_HEAD_DIM) +
                       ECH_MAX_GROUP * QUERY_FLOATS(ECH_KV_MAX_HEAD_DIM) <=
                   SCRATCH_FLOATS,
               "the queries of one row fit in a core's scratch");
_Static_assert(PART_FLOATS(BF16_DIM) + COPY_FLOATS(BF16_DIM) / 2 +
                       ECH_MAX_GROUP * QUERY_FLOATS(BF16_DIM) <=
                   SCRATCH_FLOATS,
               "and beside a split as bf16");

/* A tile: its rows, its KV head, the first position it reads. */
typedef struct tile {
    const ech_row_block *block; /* NULL: none */
    uint32_t kv_head;
    uint32_t from;
} tile;

typedef struct work {
    const ech_forward *f;
    const ech_op_attention *op;
    uint32_t kv_head;
    uint32_t group; /* query heads */
    uint32_t dim_pad;
    const ech_row_block *block; /* the tile's */
    ech_row_block part;         /* rows of it that are worked on */
    uint32_t n_queries;         /* of the part, row by row */
    uint32_t at;                /* the part's first query in the block */
    tile then;                  /* that this core probably takes next */
    ech_act_type act;           /* of the two products */
    ech_pack_type copy_type;    /* of a split's copy: f32, or bf16 with ECH_ACT_BF16 */
    char *keys;                 // [ECH_ATTN_SPLIT / 16 panels, head_dim, 16], or NULL: no copy
    char *values;               // [dim_pad / 16 panels, ECH_ATTN_SPLIT, 16]
    void *q;                    // [block's queries, q_stride bytes] f32, or bf16
    size_t q_stride;
    float *O;              // [block's queries, dim_pad] merged
    float *M, *L;          // [block's queries]          merged
    float *s;              // [part's queries, ECH_ATTN_SPLIT]
    uint16_t *p;           // [part's queries, ECH_ATTN_SPLIT] s as bf16
    const void *weights;   /* s, or p with ECH_ACT_BF16 */
    size_t weights_stride; /* bytes */
    float *o;              // [part's queries, dim_pad] of one split
    float *m, *l;          // [part's queries]          of one split
} work;

static uint32_t position(const work *const w, const uint32_t query)
{
    return w->f->rows[w->part.first + query / w->group].pos;
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
    const uint32_t page = w->f->pages[w->f->rows[w->part.first].pages + pos / ECH_KV_PAGE];
    return ech_forward_kv(w->f, page, w->op->layer, w->kv_head);
}

static uint32_t end_of(const ech_forward *const f, const ech_row_block *const b)
{
    return f->rows[b->first + b->n - 1].pos + 1;
}

static void gather_queries(work *const w)
{
    const uint32_t n = w->op->head_dim;
    for (uint32_t i = 0; i < w->block->n * w->group; i++) {
        const float *const qkv = ech_forward_row(w->f, &w->op->qkv, w->block->first + i / w->group);
        const float *const x = qkv + ((size_t)w->kv_head * w->group + i % w->group) * n;
        void *const to = (char *)w->q + i * w->q_stride;
        if (w->act == ECH_ACT_BF16)
            w->f->k->to_bf16(x, n, to);
        else
            memcpy(to, x, n * sizeof(float));
    }
}

enum { HALVES = ECH_KV_PAGE / ECH_PANEL, SCORE_PAGES = ECH_MM_MAX_PANELS / HALVES };

/* The K or V panels' first byte of the page that holds pos, or NULL past the part's last. */
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

/* Keys of page number i of the tile that comes next, or NULL. */
static const char *keys_then(const work *const w, const uint32_t i)
{
    const ech_forward *const f = w->f;
    const tile *const t = &w->then;
    const uint32_t pos = t->from + i * ECH_KV_PAGE;
    if (t->block == NULL || pos >= end_of(f, t->block)) return NULL;
    const uint32_t page = f->pages[f->rows[t->block->first].pages + pos / ECH_KV_PAGE];
    return ech_forward_kv(f, page, w->op->layer, t->kv_head) +
           ech_kv_scale_bytes((ech_kv_type)f->h->kv_type);
}

/*
 * Keys or values of page number i of all that is read from a split of n positions on: its keys, its
 * values, the keys of the tile's next split or of the next tile. NULL when that ends before.
 */
static const char *page_in_turn(const work *const w, const uint32_t from, const uint32_t n,
                                uint32_t i)
{
    const uint32_t n_pages = (n + ECH_KV_PAGE - 1) / ECH_KV_PAGE;
    if (i < n_pages) return keys_at(w, from + i * ECH_KV_PAGE);
    i -= n_pages;
    if (i < n_pages) return values_at(w, from + i * ECH_KV_PAGE);
    i -= n_pages;
    if (keys_at(w, from + ECH_ATTN_SPLIT) == NULL) return keys_then(w, i);
    return keys_at(w, from + ECH_ATTN_SPLIT + i * ECH_KV_PAGE);
}

/*
 * s[query, j] for n positions of a split, whole pages at a time. Meanwhile what is read four pages
 * later is fetched, here and in weigh().
 */
static void score(work *const w, const uint32_t from, const uint32_t n)
{
    const ech_kv_type type = (ech_kv_type)w->f->h->kv_type;
    const size_t panel_bytes = ech_kv_k_panel_bytes(type, w->op->head_dim);
    const uint32_t n_pages = (n + ECH_KV_PAGE - 1) / ECH_KV_PAGE;
    for (uint32_t page = 0; page < n_pages; page += SCORE_PAGES) {
        const void *panels[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
        const uint32_t n_now = n_pages - page < SCORE_PAGES ? n_pages - page : SCORE_PAGES;
        for (uint32_t i = 0; i < n_now * HALVES; i++) {
            const uint32_t at = page + i / HALVES;
            const char *const after = page_in_turn(w, from, n, at + SCORE_PAGES);
            panels[i] = keys_at(w, from + at * ECH_KV_PAGE) + i % HALVES * panel_bytes;
            next[i] = after != NULL ? after + i % HALVES * panel_bytes : panels[i];
        }
        w->f->k->mm[ech_kv_panel_type(type)][w->act](&(ech_mm_args){
            .w = panels,
            .next = next,
            .n_panels = n_now * HALVES,
            .n_parts = 1,
            .k_part = w->op->head_dim,
            .k_last = w->op->head_dim,
            .x = (const char *)w->q + w->at * w->q_stride,
            .x_stride = w->q_stride,
            .n_rows = w->n_queries,
            .y = w->s + page * ECH_KV_PAGE,
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
                w->s[i * ECH_ATTN_SPLIT + at + j] *= scales[j];
    }
}

/* o[query, d] over n positions of a split: the pages are parts of one chain. */
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
            const char *const block = values_at(w, from + page * ECH_KV_PAGE) + p * panel_bytes;
            const char *after = page_in_turn(w, from, n, n_pages + page + SCORE_PAGES);
            after = after != NULL ? after + p * panel_bytes : block;
            for (uint32_t i = 0; i < n_now; i++) {
                panels[page * n_now + i] = block + i * panel_bytes;
                next[page * n_now + i] = after + i * panel_bytes;
            }
        }
        w->f->k->mm[ech_kv_panel_type(type)][w->act](&(ech_mm_args){
            .w = panels,
            .next = next,
            .n_panels = n_now,
            .n_parts = n_pages,
            .k_part = ECH_KV_PAGE,
            .k_last = n - (n_pages - 1) * ECH_KV_PAGE,
            .x = w->weights,
            .x_stride = w->weights_stride,
            .n_rows = w->n_queries,
            .y = w->o + (size_t)p * ECH_PANEL,
            .y_stride = w->dim_pad,
        });
    }
}

/* ---- a split's copy ---------------------------------------------------------------------------
 */

/* The n columns at an offset of a page's block; meanwhile those of a later page are fetched. */
static void copy_panel(ech_panel_fn *const copy, const char *const block, const char *const ahead,
                       const size_t offset, const uint32_t n, char *const to)
{
    copy(block + offset, n, ahead != NULL ? ahead + offset : NULL, to);
}

/* The block's keys and values of n positions of a split, as panels of the copy's type. */
static void copy_split(work *const w, const uint32_t from, const uint32_t n)
{
    const ech_kv_type type = (ech_kv_type)w->f->h->kv_type;
    const ech_pack_type panel_type = ech_kv_panel_type(type);
    ech_panel_fn *const copy =
        w->act == ECH_ACT_BF16 ? w->f->k->round[panel_type] : w->f->k->widen[panel_type];
    const size_t key_bytes = ech_kv_k_panel_bytes(type, w->op->head_dim);
    const size_t value_bytes = ech_kv_v_panel_bytes(type);
    const size_t key_to = ech_panel_bytes(w->copy_type, w->op->head_dim);
    const size_t value_to = ech_panel_bytes(w->copy_type, ECH_ATTN_SPLIT);
    for (uint32_t at = 0; at < n; at += ECH_KV_PAGE) {
        const uint32_t n_page = n - at < ECH_KV_PAGE ? n - at : ECH_KV_PAGE;
        const char *const block = page_block(w, from + at) + ech_kv_scale_bytes(type);
        const char *const ahead = keys_at(w, from + at + SCORE_PAGES * ECH_KV_PAGE);
        for (uint32_t i = 0; i * ECH_PANEL < n_page; i++)
            copy_panel(copy, block, ahead, i * key_bytes, w->op->head_dim,
                       w->keys + (at / ECH_PANEL + i) * key_to);
        for (uint32_t i = 0; i < w->dim_pad / ECH_PANEL; i++)
            copy_panel(copy, block, ahead, w->f->k_bytes + i * value_bytes, n_page,
                       w->values + i * value_to + ech_panel_bytes(w->copy_type, at));
    }
}

/*
 * y[query, column] = sum over k of panels that lie side by side. Meanwhile as much of the next
 * split is fetched: panel i's part of it is what lies i * step positions on from `then`.
 */
typedef struct copy_product {
    const char *panels;
    size_t panel_bytes;
    uint32_t n_panels;
    const char *(*next_at)(const work *w, uint32_t pos);
    uint32_t then, step;
} copy_product;

static void multiply_copy(const work *const w, const copy_product *const c, ech_mm_args args)
{
    float *const y = args.y;
    for (uint32_t p = 0; p < c->n_panels; p += ECH_MM_MAX_PANELS) {
        const void *now[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
        args.n_panels = c->n_panels - p < ECH_MM_MAX_PANELS ? c->n_panels - p : ECH_MM_MAX_PANELS;
        for (uint32_t i = 0; i < args.n_panels; i++) {
            now[i] = c->panels + (p + i) * c->panel_bytes;
            const uint32_t pos = c->then + (p + i) * c->step;
            const char *const page = c->next_at(w, pos);
            const size_t second = pos % ECH_KV_PAGE != 0 ? c->panel_bytes : 0;
            next[i] = page != NULL ? page + second : now[i];
        }
        args.w = now;
        args.next = next;
        args.y = y + (size_t)p * ECH_PANEL;
        w->f->k->mm[w->copy_type][w->act](&args);
    }
}

static void score_copy(work *const w, const uint32_t from, const uint32_t n)
{
    const uint32_t dim = w->op->head_dim;
    multiply_copy(w,
                  &(copy_product){
                      .panels = w->keys,
                      .panel_bytes = ech_panel_bytes(w->copy_type, dim),
                      .n_panels = (n + ECH_PANEL - 1) / ECH_PANEL,
                      .next_at = keys_at,
                      .then = from + ECH_ATTN_SPLIT,
                      .step = ECH_PANEL,
                  },
                  (ech_mm_args){
                      .n_parts = 1,
                      .k_part = dim,
                      .k_last = dim,
                      .x = (const char *)w->q + w->at * w->q_stride,
                      .x_stride = w->q_stride,
                      .n_rows = w->n_queries,
                      .y = w->s,
                      .y_stride = ECH_ATTN_SPLIT,
                  });
}

static void weigh_copy(work *const w, const uint32_t from, const uint32_t n)
{
    multiply_copy(w,
                  &(copy_product){
                      .panels = w->values,
                      .panel_bytes = ech_panel_bytes(w->copy_type, ECH_ATTN_SPLIT),
                      .n_panels = w->dim_pad / ECH_PANEL,
                      .next_at = values_at,
                      .then = from + ECH_ATTN_SPLIT,
                      .step = ECH_KV_PAGE,
                  },
                  (ech_mm_args){
                      .n_parts = 1,
                      .k_part = n,
                      .k_last = n,
                      .x = w->weights,
                      .x_stride = w->weights_stride,
                      .n_rows = w->n_queries,
                      .y = w->o,
                      .y_stride = w->dim_pad,
                  });
}

/* Softmax of what every query sees; zeros up to the positions that the part reads together. */
static void softmax_split(work *const w, const uint32_t from, const uint32_t n_read)
{
    for (uint32_t i = 0; i < w->n_queries; i++) {
        float *const s = w->s + (size_t)i * ECH_ATTN_SPLIT;
        const uint32_t n = visible(w, i, from);
        if (n > 0) w->l[i] = w->f->k->softmax(s, n, w->op->scale, &w->m[i]);
        memset(s + n, 0, (n_read - n) * sizeof(float));
    }
}

/* exp(x); of the two that a merge takes one is exp(0), exactly 1. */
static float factor(const float x)
{
    return x == 0.0f ? 1.0f : ech_exp_ref(x);
}

/* i: of the part. */
static void merge_query(work *const w, const uint32_t i, const bool is_first)
{
    float *const O = w->O + (size_t)(w->at + i) * w->dim_pad;
    float *const M = &w->M[w->at + i], *const L = &w->L[w->at + i];
    const float *const o = w->o + (size_t)i * w->dim_pad;
    if (is_first) {
        memcpy(O, o, w->dim_pad * sizeof(float));
        *M = w->m[i];
        *L = w->l[i];
        return;
    }
    const float max = w->m[i] > *M ? w->m[i] : *M;
    const float a = factor(*M - max), b = factor(w->m[i] - max);
    w->f->k->mix(O, a, o, b, w->dim_pad);
    *L = fmaf(*L, a, w->l[i] * b);
    *M = max;
}

/* What the values are multiplied by, as their product takes it. */
static void round_weights(work *const w, const uint32_t n)
{
    for (uint32_t i = 0; i < w->n_queries && w->act == ECH_ACT_BF16; i++)
        w->f->k->to_bf16(w->s + (size_t)i * ECH_ATTN_SPLIT, n, w->p + (size_t)i * ECH_ATTN_SPLIT);
}

/* Positions of a split that rows of a block read, their last row all of them. */
static uint32_t read_of(const work *const w, const ech_row_block *const b, const uint32_t from)
{
    const uint32_t end = end_of(w->f, b);
    if (end <= from) return 0;
    return end - from < ECH_ATTN_SPLIT ? end - from : ECH_ATTN_SPLIT;
}

/* One split: o, m and l of every query of the part that sees some of it. */
static void attend_split(work *const w, const uint32_t from, const bool has_copy)
{
    const uint32_t n = read_of(w, &w->part, from);
    if (n == 0) return;
    if (has_copy)
        score_copy(w, from, n);
    else
        score(w, from, n);
    apply_scales(w, from, n, 0);
    softmax_split(w, from, n);
    apply_scales(w, from, n, w->f->k_bytes);
    round_weights(w, n);
    if (has_copy)
        weigh_copy(w, from, n);
    else
        weigh(w, from, n);
}

static void merge_split(work *const w, const uint32_t from)
{
    for (uint32_t i = 0; i < w->n_queries; i++)
        if (visible(w, i, from) > 0) merge_query(w, i, from == 0);
}

static void write_out(work *const w)
{
    for (uint32_t i = 0; i < w->block->n * w->group; i++) {
        float *const out = ech_forward_row(w->f, &w->op->out, w->block->first + i / w->group) +
                           ((size_t)w->kv_head * w->group + i % w->group) * w->op->head_dim;
        w->f->k->scale(out, w->O + (size_t)i * w->dim_pad, 1.0f / w->L[i], w->op->head_dim);
    }
}

static void take_tile(work *const w, const tile t)
{
    w->block = t.block;
    w->kv_head = t.kv_head;
}

static uint32_t part_rows(const uint32_t group)
{
    return group < FULL_PART ? FULL_PART / group : 1;
}

/* The part that begins at a row of the block; false at its end. */
static bool take_part(work *const w, const uint32_t row)
{
    if (row >= w->block->n) return false;
    const uint32_t n = part_rows(w->group), left = w->block->n - row;
    w->part = (ech_row_block){ w->block->first + row, left < n ? left : n };
    w->n_queries = w->part.n * w->group;
    w->at = row * w->group;
    return true;
}

/*
 * Whether the products of a split's n positions read a copy: where several parts read it, or where
 * pages aren't what they take. Those of pairs don't take an odd n: the other half of the last pair
 * may be anything, also NaN.
 */
static bool copies(const work *const w, const uint32_t n)
{
    const bool is_read_often = w->keys != NULL && w->block->n > part_rows(w->group);
    if (w->act != ECH_ACT_BF16) return is_read_often;
    return is_read_often || w->f->h->kv_type != ECH_KV_BF16 || n % 2 != 0;
}

/* Whether the core will probably take the tile behind t. */
static bool follows_tile(const ech_core *const core, const uint32_t n_tiles, const uint32_t t)
{
    return t + 1 != ech_pool_share(core, n_tiles, core->idx + 1) && t + 1 < n_tiles;
}

/* Tile t of whole blocks. Later rows read more: they go first, so that the last tiles are small. */
static tile whole_tile(const ech_forward *const f, const uint32_t t)
{
    return (tile){ &f->blocks[f->n_blocks - 1 - t % f->n_blocks], t / f->n_blocks, 0 };
}

/* A tile is a block and a KV head, with all its positions. */
static void attend_whole(work *const w, ech_core *const core)
{
    const ech_forward *const f = w->f;
    const uint32_t n_tiles = f->n_blocks * w->op->n_kv_heads;
    for (uint32_t t; ech_pool_tile(core, n_tiles, &t);) {
        take_tile(w, whole_tile(f, t));
        w->then = follows_tile(core, n_tiles, t) ? whole_tile(f, t + 1) : (tile){ 0 };
        gather_queries(w);
        const uint32_t end = end_of(f, w->block);
        for (uint32_t from = 0; from < end; from += ECH_ATTN_SPLIT) {
            (void)take_part(w, 0); /* whose first row names the pages */
            const uint32_t n = read_of(w, w->block, from);
            const bool has_copy = copies(w, n);
            if (has_copy) copy_split(w, from, n);
            for (uint32_t row = 0; take_part(w, row); row += w->part.n) {
                attend_split(w, from, has_copy);
                merge_split(w, from);
            }
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

/* Tile t of n_splits of all blocks. */
static tile split_tile(const ech_forward *const f, const uint32_t n_splits, const uint32_t t)
{
    const ech_row_block *b = f->blocks;
    uint32_t split = t % n_splits;
    for (; split >= splits_of(f, b); b++)
        split -= splits_of(f, b);
    return (tile){ b, t / n_splits, split * ECH_ATTN_SPLIT };
}

/*
 * A block of a tile of this kind is one part, or there were enough blocks (see
 * ech_forward_attention_rows). Its o, m and l lie in the slot.
 */
static void take_slot(work *const w, float *const slot)
{
    (void)take_part(w, 0);
    ECH_DCHECK(w->part.n == w->block->n);
    w->m = slot;
    w->l = slot + w->n_queries;
    w->o = slot + 2 * (size_t)w->n_queries;
}

static void attend_apart(work *const w, const uint32_t n_splits, ech_core *const core)
{
    const ech_forward *const f = w->f;
    const uint32_t n_heads = w->op->n_kv_heads;
    const size_t floats = slot_floats(w);
    for (uint32_t t; ech_pool_tile(core, n_splits * n_heads, &t);) {
        const tile now = split_tile(f, n_splits, t);
        take_tile(w, now);
        w->then = follows_tile(core, n_splits * n_heads, t) ? split_tile(f, n_splits, t + 1)
                                                            : (tile){ 0 };
        take_slot(w, slot_at(w, t % n_splits, floats));
        gather_queries(w);
        const uint32_t n = read_of(w, w->block, now.from);
        const bool has_copy = copies(w, n);
        if (has_copy) copy_split(w, now.from, n);
        attend_split(w, now.from, has_copy);
    }
    ech_pool_barrier(core);
    for (uint32_t t; ech_pool_tile(core, f->n_blocks * n_heads, &t);) {
        take_tile(w, (tile){ &f->blocks[t % f->n_blocks], t / f->n_blocks, 0 });
        uint32_t first = 0;
        for (const ech_row_block *b = f->blocks; b < w->block; b++)
            first += splits_of(f, b);
        for (uint32_t i = 0; i < splits_of(f, w->block); i++) {
            take_slot(w, slot_at(w, first + i, floats));
            merge_split(w, i * ECH_ATTN_SPLIT);
        }
        write_out(w);
    }
}

/* ---- the operation ----------------------------------------------------------------------------
 */

static uint32_t padded(const uint32_t head_dim)
{
    return (head_dim + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL;
}

static ech_act_type act_of(const ech_forward *const f)
{
    const bool can = f->h->kv_type == ECH_KV_F16 || f->h->kv_type == ECH_KV_BF16;
    return f->h->compute == ECH_COMPUTE_BF16 && can && f->h->head_dim <= BF16_DIM ? ECH_ACT_BF16
                                                                                  : ECH_ACT_F32;
}

/*
 * Floats of a split's copy. 0, no copy, where nothing is gained or there is no room for it beside
 * some parts' queries.
 */
static size_t copy_floats(const ech_forward *const f)
{
    const uint32_t dim_pad = padded(f->h->head_dim);
    const size_t n = COPY_FLOATS(dim_pad);
    if (act_of(f) == ECH_ACT_BF16) return n / 2;
    const size_t others = PART_FLOATS(dim_pad) + 2 * ECH_MAX_GROUP * QUERY_FLOATS(dim_pad);
    if (f->k->widen[ech_kv_panel_type((ech_kv_type)f->h->kv_type)] == NULL) return 0;
    return n + others <= SCRATCH_FLOATS ? n : 0;
}

/* Queries of a block that fit in scratch. */
static uint32_t most_queries(const ech_forward *const f)
{
    const uint32_t dim_pad = padded(f->h->head_dim);
    const size_t n =
        (SCRATCH_FLOATS - PART_FLOATS(dim_pad) - copy_floats(f)) / QUERY_FLOATS(dim_pad);
    return n < BLOCK_QUERIES ? (uint32_t)n : BLOCK_QUERIES;
}

/*
 * The more rows, the seldomer keys and values come from memory; but every core gets eight tiles,
 * unless blocks became less than a part.
 */
uint32_t ech_forward_attention_rows(const ech_forward *const f, const uint32_t n_cores)
{
    uint32_t group = 1;
    for (uint32_t i = 0; i < f->h->n_ops; i++)
        if (f->ops[i].kind == ECH_OP_ATTENTION) {
            const ech_op_attention *const a = &f->ops[i].attention;
            if (a->n_heads / a->n_kv_heads > group) group = a->n_heads / a->n_kv_heads;
        }
    const uint32_t most = most_queries(f) / group;
    const uint32_t shared = f->n_rows * f->h->n_kv_heads / (8 * n_cores);
    const uint32_t n = shared > part_rows(group) ? shared : part_rows(group);
    return n < most ? n : most;
}

void ech_forward_attention(const ech_forward *const f, const ech_op_attention *const op,
                           ech_core *const core)
{
    const uint32_t dim_pad = padded(op->head_dim), n = most_queries(f);
    const size_t n_copy = copy_floats(f);
    work w = {
        .f = f,
        .op = op,
        .group = op->n_heads / op->n_kv_heads,
        .dim_pad = dim_pad,
    };
    w.act = act_of(f);
    w.copy_type = w.act == ECH_ACT_BF16 ? ECH_PACK_BF16 : ECH_PACK_F32;
    w.q_stride = w.act == ECH_ACT_BF16 ? (op->head_dim + 1) / 2 * sizeof(float)
                                       : op->head_dim * sizeof(float);
    if (n_copy > 0) {
        w.keys = core->scratch;
        w.values = w.keys + n_copy / 2 * sizeof(float);
    }
    w.s = (float *)core->scratch + n_copy;
    w.o = w.s + PART_QUERIES * ECH_ATTN_SPLIT;
    w.p = (uint16_t *)(w.o + PART_QUERIES * dim_pad);
    w.q = w.p + PART_QUERIES * ECH_ATTN_SPLIT;
    w.weights = w.act == ECH_ACT_BF16 ? (const void *)w.p : w.s;
    w.weights_stride = ECH_ATTN_SPLIT * (w.act == ECH_ACT_BF16 ? sizeof(*w.p) : sizeof(*w.s));
    w.O = (float *)w.q + n * dim_pad;
    w.M = w.O + n * dim_pad;
    w.L = w.M + n;
    w.m = w.L + n;
    w.l = w.m + PART_QUERIES;
    const uint32_t n_splits = splits_apart(&w, core->n_cores);
    if (n_splits == 0)
        attend_whole(&w, core);
    else
        attend_apart(&w, n_splits, core);
}
