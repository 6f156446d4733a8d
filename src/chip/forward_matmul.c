/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of a step: prepare the input rows (norm, rounding), multiply in tiles of panels
 * and rows, finish every tile while it is in the cache (bias, residual, SwiGLU).
 *
 * How a product is cut into tiles changes no bit: a kernel keeps one chain per output over all of
 * K (ops.h), and what follows is done element by element.
 *
 * What a core writes in one operation it should read in the next: cores may be far from each other,
 * and a cache line takes longer from one to the other than many operations on it. Tiles go in
 * shares (pool.h), and every operation orders its tiles by columns, so that a share is the same
 * heads in q, k, v, in attention and in what is prepared of its result; and the same columns of
 * what SwiGLU gives and of its bytes. Only rows that are normed must be seen whole by one core.
 *
 * A core's scratch holds, in this order: the tile's products, then prepared rows or the norm of a
 * row on its way to bf16.
 */
#include "src/base/error.h"
#include "src/chip/forward.h"
#include "src/chip/quant.h"

/* A tile is at most so many rows: its products stay in the L1 cache. */
#define TILE_ROWS  48
#define TILE_BYTES (TILE_ROWS * ECH_MM_MAX_PANELS * ECH_PANEL * sizeof(float))

/* So few rows are prepared by every core for itself, which costs less than a barrier. */
#define PRIVATE_ROWS  2
#define PRIVATE_BYTES (ECH_FORWARD_SCRATCH - TILE_BYTES - ECH_MAX_COLS * sizeof(float))

ech_act_type ech_act_of(const ech_pack_type type, const ech_compute compute)
{
    if (ech_pack_is_quant(type)) return ECH_ACT_Q8;
    return type == ECH_PACK_BF16 && compute == ECH_COMPUTE_BF16 ? ECH_ACT_BF16 : ECH_ACT_F32;
}

uint64_t ech_prep_row_bytes(const ech_pack_type type, const ech_compute compute,
                            const uint64_t cols)
{
    const uint64_t each = ech_act_of(type, compute) == ECH_ACT_BF16 ? 2 : 4;
    if (ech_pack_is_quant(type)) return (ech_quant_row_bytes(cols) + 63) / 64 * 64 + 64;
    /* 64 more, so that rows of 4 KiB don't fall on the same cache sets. */
    return (cols * each + 63) / 64 * 64 + 64;
}

/* One product: what the operations of a program and the head have in common. */
typedef struct product {
    const ech_op *op;
    const ech_op_weight *weight;
    const float *norm; // [cols] or NULL
    float eps;
    const float *bias; // [rows] or NULL
    ech_epilogue epilogue;
    const ech_op_buffer *in;
    const int32_t *pick; // [n_rows] rows of `in`, or NULL: row r is row r
    uint32_t n_rows;
    float *out; // [n_rows, out_stride]
    size_t out_stride;
    uint32_t out_width;
} product;

/* Input rows as the kernel takes them. */
typedef struct prepared {
    char *rows;
    size_t stride; /* bytes */
} prepared;

/* Columns of a row, whole units of quantised weights but for the row's end. */
typedef struct columns {
    uint32_t from, to;
} columns;

#define PREP_COLUMNS (4 * ECH_QUANT_UNIT)

static const float *input_row(const ech_forward *const f, const product *const p, const uint32_t r)
{
    return ech_forward_row(f, p->in, p->pick != NULL ? (uint32_t)p->pick[r] : r);
}

static char *scratch_rows(ech_core *const core)
{
    return (char *)core->scratch + TILE_BYTES;
}

static void prepare_columns(const ech_forward *const f, const product *const p,
                            const float *const x, const columns some, const ech_act_type act,
                            char *const dst)
{
    const uint32_t n = p->weight->cols;
    if (act == ECH_ACT_F32)
        f->k->scale((float *)dst + some.from, x + some.from, 1.0f, some.to - some.from);
    else if (act == ECH_ACT_BF16)
        f->k->to_bf16(x + some.from, some.to - some.from, (uint16_t *)dst + some.from);
    else
        f->k->to_q8(x, n, ech_quant_factor((ech_pack_type)p->weight->type), dst,
                    some.from / ECH_QUANT_BLOCK,
                    some.to == n ? ech_quant_blocks(n) : some.to / ECH_QUANT_BLOCK);
}

static void prepare_row(const ech_forward *const f, const product *const p, const uint32_t r,
                        const ech_act_type act, char *const dst, ech_core *const core)
{
    const float *x = input_row(f, p, r);
    const uint32_t n = p->weight->cols;
    if (p->norm != NULL) {
        float *const normed =
            act == ECH_ACT_F32 ? (float *)dst : (float *)(scratch_rows(core) + PRIVATE_BYTES);
        f->k->rms_norm(x, p->norm, n, p->eps, normed);
        if (act == ECH_ACT_F32) return;
        x = normed;
    }
    prepare_columns(f, p, x, (columns){ 0, n }, act, dst);
}

/*
 * Rows that need no norm, column by column. The share of a core is of the columns that it wrote, if
 * its share of the operation before was of columns too.
 */
static void prepare_by_columns(const ech_forward *const f, const product *const p,
                               const ech_act_type act, const prepared to, ech_core *const core)
{
    const uint32_t n = p->weight->cols, n_tiles = (n + PREP_COLUMNS - 1) / PREP_COLUMNS;
    for (uint32_t t; ech_pool_tile(core, n_tiles, &t);) {
        const uint32_t from = t * PREP_COLUMNS;
        const columns some = { from, n - from < PREP_COLUMNS ? n : from + PREP_COLUMNS };
        for (uint32_t r = 0; r < p->n_rows; r++)
            prepare_columns(f, p, input_row(f, p, r), some, act, to.rows + r * to.stride);
    }
}

/* All rows, ready for every core; with a barrier where cores share the work. */
static prepared prepare(const ech_forward *const f, const product *const p, ech_core *const core)
{
    const ech_act_type act = ech_act_of((ech_pack_type)p->weight->type, (ech_compute)f->h->compute);
    if (p->norm == NULL && act == ECH_ACT_F32 && p->pick == NULL)
        return (prepared){ (char *)ech_forward_row(f, p->in, 0), p->in->stride * sizeof(float) };
    const size_t stride = f->h->prep_bytes;
    if (p->n_rows <= PRIVATE_ROWS && p->n_rows * stride <= PRIVATE_BYTES) {
        for (uint32_t r = 0; r < p->n_rows; r++)
            prepare_row(f, p, r, act, scratch_rows(core) + r * stride, core);
        return (prepared){ scratch_rows(core), stride };
    }
    const prepared shared = { f->arena + f->h->prep_offset, stride };
    if (p->norm == NULL)
        prepare_by_columns(f, p, act, shared, core);
    else
        for (uint32_t r; ech_pool_tile(core, p->n_rows, &r);)
            prepare_row(f, p, r, act, shared.rows + r * stride, core);
    ech_pool_barrier(core);
    return shared;
}

/* ---- finishing a tile -------------------------------------------------------------------------
 */

/* A rectangle of products, in scratch or in the output: rows r0 …, panels p0 … */
typedef struct tile {
    float *y;        // [n_rows, n_panels * 16]
    size_t y_stride; /* floats */
    uint32_t r0, n_rows, p0, n_panels;
} tile;

static uint32_t columns_left(const product *const p, const uint32_t col, const uint32_t n)
{
    return p->out_width - col < n ? p->out_width - col : n;
}

/* Whether the kernel may write a tile's products where they belong: no column is padding. */
static bool writes_out(const product *const p, const uint32_t p0, const uint32_t n_panels)
{
    return p->epilogue == ECH_EPILOGUE_NONE && (p0 + n_panels) * ECH_PANEL <= p->out_width;
}

static void finish_plain(const ech_forward *const f, const product *const p, const tile *const t)
{
    const uint32_t col = t->p0 * ECH_PANEL;
    const uint32_t n = columns_left(p, col, t->n_panels * ECH_PANEL);
    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *const out = p->out + (t->r0 + r) * p->out_stride + col;
        const float *const y = t->y + r * t->y_stride;
        if (p->epilogue == ECH_EPILOGUE_ADD)
            f->k->add(out, y, n);
        else if (y != out)
            f->k->scale(out, y, 1.0f, n);
        if (p->bias != NULL) f->k->add(out, p->bias + col, n);
    }
}

static void finish_swiglu(const ech_forward *const f, const product *const p, const tile *const t)
{
    for (uint32_t r = 0; r < t->n_rows; r++)
        for (uint32_t pair = 0; pair < t->n_panels / 2; pair++) {
            const uint32_t col = (t->p0 / 2 + pair) * ECH_PANEL;
            const float *const gate = t->y + r * t->y_stride + (size_t)pair * 2 * ECH_PANEL;
            f->k->swiglu(gate, gate + ECH_PANEL, columns_left(p, col, ECH_PANEL),
                         p->out + (t->r0 + r) * p->out_stride + col);
        }
}

/* ---- tiles ------------------------------------------------------------------------------------
 */

/*
 * Panels of a tile: many, so that several chains hide each other's latency, but not so many that
 * cores wait for the last tile. Even, for the pairs of SwiGLU.
 */
static uint32_t panels_per_tile(const uint32_t n_panels, const uint32_t n_cores)
{
    uint32_t n = ECH_MM_MAX_PANELS;
    while (n > 2 && n_panels / n < 4 * n_cores)
        n /= 2;
    return n;
}

static const ech_op_weight *weight_of(const ech_op *const op)
{
    return op->kind == ECH_OP_HEAD ? &op->head.weight : &op->matmul.weight;
}

static const ech_op *product_after(const ech_forward *const f, const ech_op *op)
{
    for (op++; op < f->ops + f->h->n_ops; op++)
        if (op->kind == ECH_OP_MATMUL || op->kind == ECH_OP_HEAD) return op;
    return NULL;
}

/* The heads whose columns a product's output is, or begins; or NULL. */
static const ech_op_rope_kv *heads_of(const ech_forward *const f, const ech_op *const op)
{
    if (op->kind != ECH_OP_MATMUL) return NULL;
    const ech_op *o = op + 1;
    while (o < f->ops + f->h->n_ops && o->kind == ECH_OP_MATMUL)
        o++;
    if (o == f->ops + f->h->n_ops || o->kind != ECH_OP_ROPE_KV) return NULL;
    return o->rope_kv.qkv.offset == op->matmul.out.offset ? &o->rope_kv : NULL;
}

/*
 * How a product is cut: tile i is rows of block i % row_blocks and the panels of group
 * group_at(i / row_blocks). Groups go in ascending order, but in q, k, v by heads: those of a KV
 * head's queries, then its keys', then its values'.
 */
typedef struct tiling {
    uint32_t n_panels, group, row_blocks, n_groups;
    uint32_t n_kv;     /* groups of all keys, or 0: in ascending order */
    uint32_t q_groups; /* to one of keys */
    bool has_v;
} tiling;

static void order_by_heads(tiling *const g, const ech_op_weight *const w,
                           const ech_op_rope_kv *const heads)
{
    const uint32_t width = g->group * ECH_PANEL, kv = heads->n_kv_heads * heads->head_dim;
    const uint32_t q = heads->n_heads * heads->head_dim;
    /* A program may end its product elsewhere, as any other. */
    if (kv % width != 0 || (w->rows != q + kv && w->rows != q + 2 * kv)) return;
    g->n_kv = kv / width;
    g->q_groups = q / kv; /* heads are a multiple of KV heads */
    g->has_v = w->rows > q + kv;
}

static tiling tiling_of(const ech_op_weight *const w, const ech_op_rope_kv *const heads,
                        const uint32_t n_rows, const uint32_t n_cores)
{
    tiling g = { .n_panels = (w->rows + ECH_PANEL - 1) / ECH_PANEL };
    g.group = panels_per_tile(g.n_panels, n_cores);
    g.row_blocks = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    g.n_groups = (g.n_panels + g.group - 1) / g.group;
    if (heads != NULL) order_by_heads(&g, w, heads);
    return g;
}

static uint32_t group_at(const tiling *const g, const uint32_t at)
{
    if (g->n_kv == 0) return at;
    const uint32_t each = g->q_groups + 1 + g->has_v, head = at / each, i = at % each;
    if (i < g->q_groups) return head * g->q_groups + i;
    return i * g->n_kv + head;
}

static uint32_t n_tiles_of(const tiling *const g)
{
    return g->n_groups * g->row_blocks;
}

/* Panels of a matrix that lie together. */
typedef struct panel_run {
    const char *first;
    size_t panel_bytes;
    uint32_t n;
} panel_run;

static panel_run run_at(const ech_forward *const f, const ech_op_weight *const w,
                        const tiling *const g, const uint32_t i)
{
    const uint32_t panel = group_at(g, i / g->row_blocks) * g->group;
    const size_t each = ech_panel_bytes((ech_pack_type)w->type, w->cols);
    return (panel_run){
        .first = f->image + w->offset + panel * each,
        .panel_bytes = each,
        .n = g->n_panels - panel < g->group ? g->n_panels - panel : g->group,
    };
}

/*
 * What this core will probably read after tile i: the next tile of its share, or, at the share's
 * end, the first of its share of the next product. No panels when they are the same or there are
 * none.
 */
static panel_run read_next(const ech_forward *const f, const product *const p,
                           const tiling *const g, const uint32_t i, const ech_core *const core)
{
    if (i + 1 != ech_pool_share(core, n_tiles_of(g), core->idx + 1)) {
        if (i / g->row_blocks == (i + 1) / g->row_blocks) return (panel_run){ 0 };
        return run_at(f, p->weight, g, i + 1);
    }
    const ech_op *const op = product_after(f, p->op);
    if (op == NULL) return (panel_run){ 0 };
    const uint32_t n_rows = op->kind == ECH_OP_HEAD ? f->n_logits : f->n_rows;
    if (n_rows == 0) return (panel_run){ 0 };
    const tiling then = tiling_of(weight_of(op), heads_of(f, op), n_rows, core->n_cores);
    return run_at(f, weight_of(op), &then, ech_pool_share(core, n_tiles_of(&then), core->idx));
}

static void multiply_tile(const ech_forward *const f, const product *const p,
                          const prepared *const x, const panel_run *const now,
                          const panel_run *const then, const tile *const t)
{
    const ech_pack_type type = (ech_pack_type)p->weight->type;
    const void *panels[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
    for (uint32_t j = 0; j < t->n_panels; j++) {
        panels[j] = now->first + j * now->panel_bytes;
        next[j] = j < then->n ? then->first + j * then->panel_bytes : panels[j];
    }
    f->k->mm[type][ech_act_of(type, (ech_compute)f->h->compute)](&(ech_mm_args){
        .w = panels,
        .next = then->n > 0 ? next : NULL,
        .n_panels = t->n_panels,
        .n_parts = 1,
        .k_part = p->weight->cols,
        .k_last = p->weight->cols,
        .x = x->rows + t->r0 * x->stride,
        .x_stride = x->stride,
        .n_rows = t->n_rows,
        .y = t->y,
        .y_stride = t->y_stride,
    });
}

static void multiply(const ech_forward *const f, const product *const p, ech_core *const core)
{
    const prepared x = prepare(f, p, core);
    const tiling g = tiling_of(p->weight, heads_of(f, p->op), p->n_rows, core->n_cores);
    for (uint32_t i; ech_pool_tile(core, n_tiles_of(&g), &i);) {
        const panel_run now = run_at(f, p->weight, &g, i), then = read_next(f, p, &g, i, core);
        tile t = {
            .y = core->scratch,
            .y_stride = (size_t)now.n * ECH_PANEL,
            .r0 = i % g.row_blocks * TILE_ROWS,
            .p0 = group_at(&g, i / g.row_blocks) * g.group,
            .n_panels = now.n,
        };
        t.n_rows = p->n_rows - t.r0 < TILE_ROWS ? p->n_rows - t.r0 : TILE_ROWS;
        if (writes_out(p, t.p0, t.n_panels)) {
            t.y = p->out + t.r0 * p->out_stride + (size_t)t.p0 * ECH_PANEL;
            t.y_stride = p->out_stride;
        }
        multiply_tile(f, p, &x, &now, &then, &t);
        if (p->epilogue == ECH_EPILOGUE_SWIGLU)
            finish_swiglu(f, p, &t);
        else
            finish_plain(f, p, &t);
    }
}

void ech_forward_matmul(const ech_forward *const f, const ech_op *const op, ech_core *const core)
{
    const ech_op_matmul *const m = &op->matmul;
    multiply(f,
             &(product){
                 .op = op,
                 .weight = &m->weight,
                 .norm = ech_forward_vector(f, m->norm),
                 .eps = m->eps,
                 .bias = ech_forward_vector(f, m->bias),
                 .epilogue = (ech_epilogue)m->epilogue,
                 .in = &m->in,
                 .n_rows = f->n_rows,
                 .out = ech_forward_row(f, &m->out, 0),
                 .out_stride = m->out.stride,
                 .out_width = m->out.width,
             },
             core);
}

void ech_forward_head(const ech_forward *const f, const ech_op *const op, ech_core *const core)
{
    const ech_op_head *const h = &op->head;
    if (f->n_logits == 0) return;
    multiply(f,
             &(product){
                 .op = op,
                 .weight = &h->weight,
                 .norm = ech_forward_vector(f, h->norm),
                 .eps = h->eps,
                 .epilogue = ECH_EPILOGUE_NONE,
                 .in = &h->in,
                 .pick = f->logit_rows,
                 .n_rows = f->n_logits,
                 .out = f->logits,
                 .out_stride = f->h->vocab,
                 .out_width = f->h->vocab,
             },
             core);
}
