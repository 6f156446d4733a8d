/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of a step: prepare the input rows (norm, rounding), multiply in tiles of panels
 * and rows, finish every tile while it is in the cache (bias, residual, SwiGLU).
 *
 * How a product is cut into tiles changes no bit: a kernel keeps one chain per output over all of
 * K (ops.h), and what follows is done element by element.
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
    const ech_op_weight *weight;
    const float *norm; // [cols] or NULL
    float eps;
    const float *bias; // [rows] or NULL
    ech_epilogue epilogue;
    const ech_op_buffer *in;
    const int32_t *pick;        // [n_rows] rows of `in`, or NULL: row r is row r
    const ech_op_weight *after; /* what the next product reads, or NULL */
    uint32_t n_rows;
    float *out; // [n_rows, out_stride]
    size_t out_stride;
    uint32_t out_width;
} product;

/* Input rows as the kernel takes them. */
typedef struct prepared {
    const char *rows;
    size_t stride; /* bytes */
} prepared;

static const float *input_row(const ech_forward *const f, const product *const p, const uint32_t r)
{
    return ech_forward_row(f, p->in, p->pick != NULL ? (uint32_t)p->pick[r] : r);
}

static char *scratch_rows(ech_core *const core)
{
    return (char *)core->scratch + TILE_BYTES;
}

static void prepare_row(const ech_forward *const f, const product *const p, const uint32_t r,
                        const ech_act_type act, char *const dst, ech_core *const core)
{
    const float *x = input_row(f, p, r);
    const uint32_t n = p->weight->cols;
    if (act == ECH_ACT_F32) {
        if (p->norm != NULL)
            f->k->rms_norm(x, p->norm, n, p->eps, (float *)dst);
        else
            f->k->scale((float *)dst, x, 1.0f, n);
        return;
    }
    if (p->norm != NULL) {
        float *const normed = (float *)(scratch_rows(core) + PRIVATE_BYTES);
        f->k->rms_norm(x, p->norm, n, p->eps, normed);
        x = normed;
    }
    if (act == ECH_ACT_BF16)
        f->k->to_bf16(x, n, (uint16_t *)dst);
    else
        f->k->to_q8(x, n, ech_quant_factor((ech_pack_type)p->weight->type), dst);
}

/* All rows, ready for every core; with a barrier where cores share the work. */
static prepared prepare(const ech_forward *const f, const product *const p, const ech_act_type act,
                        ech_core *const core)
{
    if (p->norm == NULL && act == ECH_ACT_F32 && p->pick == NULL)
        return (prepared){ (const char *)ech_forward_row(f, p->in, 0),
                           p->in->stride * sizeof(float) };
    const size_t stride = f->h->prep_bytes;
    if (p->n_rows <= PRIVATE_ROWS && p->n_rows * stride <= PRIVATE_BYTES) {
        for (uint32_t r = 0; r < p->n_rows; r++)
            prepare_row(f, p, r, act, scratch_rows(core) + r * stride, core);
        return (prepared){ scratch_rows(core), stride };
    }
    char *const shared = f->arena + f->h->prep_offset;
    for (uint32_t r; ech_pool_tile(core, p->n_rows, &r);)
        prepare_row(f, p, r, act, shared + r * stride, core);
    ech_pool_barrier(core);
    return (prepared){ shared, stride };
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

/* How a product is cut: tile i is rows of block i % row_blocks and panels of group i / row_blocks.
 */
typedef struct tiling {
    uint32_t n_panels, group, row_blocks, n_tiles;
} tiling;

static tiling tiling_of(const product *const p, const uint32_t n_cores)
{
    tiling g = { .n_panels = (p->weight->rows + ECH_PANEL - 1) / ECH_PANEL };
    g.group = panels_per_tile(g.n_panels, n_cores);
    g.row_blocks = (p->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    g.n_tiles = (g.n_panels + g.group - 1) / g.group * g.row_blocks;
    return g;
}

/*
 * Where the panels begin that this core will probably read after tile i: those of the tile that it
 * would take if all cores took turns, or, at the end, its first ones of the next product. NULL when
 * they are the same panels.
 */
static const char *read_next(const ech_forward *const f, const product *const p,
                             const tiling *const g, const uint32_t i, const ech_core *const core)
{
    const uint32_t now = i / g->row_blocks, then = (i + core->n_cores) / g->row_blocks;
    if (now == then) return NULL;
    if (then * g->group < g->n_panels)
        return f->image + p->weight->offset +
               (size_t)then * g->group *
                   ech_panel_bytes((ech_pack_type)p->weight->type, p->weight->cols);
    if (p->after == NULL) return NULL;
    return f->image + p->after->offset +
           (size_t)core->idx * g->group *
               ech_panel_bytes((ech_pack_type)p->after->type, p->after->cols);
}

static void multiply(const ech_forward *const f, const product *const p, ech_core *const core)
{
    const ech_pack_type type = (ech_pack_type)p->weight->type;
    const ech_act_type act = ech_act_of(type, (ech_compute)f->h->compute);
    const prepared x = prepare(f, p, act, core);
    const tiling g = tiling_of(p, core->n_cores);
    ech_mm_fn *const mm = f->k->mm[type][act];
    const size_t panel_bytes = ech_panel_bytes(type, p->weight->cols);
    for (uint32_t i; ech_pool_tile(core, g.n_tiles, &i);) {
        tile t = {
            .y = core->scratch,
            .r0 = i % g.row_blocks * TILE_ROWS,
            .p0 = i / g.row_blocks * g.group,
        };
        t.n_rows = p->n_rows - t.r0 < TILE_ROWS ? p->n_rows - t.r0 : TILE_ROWS;
        t.n_panels = g.n_panels - t.p0 < g.group ? g.n_panels - t.p0 : g.group;
        t.y_stride = (size_t)t.n_panels * ECH_PANEL;
        if (writes_out(p, t.p0, t.n_panels)) {
            t.y = p->out + t.r0 * p->out_stride + (size_t)t.p0 * ECH_PANEL;
            t.y_stride = p->out_stride;
        }
        const void *panels[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
        const char *const after = read_next(f, p, &g, i, core);
        for (uint32_t j = 0; j < t.n_panels; j++) {
            panels[j] = f->image + p->weight->offset + (t.p0 + j) * panel_bytes;
            next[j] = after != NULL ? after + j * panel_bytes : panels[j];
        }
        mm(&(ech_mm_args){
            .w = panels,
            .next = after != NULL ? next : NULL,
            .n_panels = t.n_panels,
            .n_parts = 1,
            .k_part = p->weight->cols,
            .k_last = p->weight->cols,
            .x = x.rows + t.r0 * x.stride,
            .x_stride = x.stride,
            .n_rows = t.n_rows,
            .y = t.y,
            .y_stride = t.y_stride,
        });
        if (p->epilogue == ECH_EPILOGUE_SWIGLU)
            finish_swiglu(f, p, &t);
        else
            finish_plain(f, p, &t);
    }
}

/* The weights of the first product after an operation, or NULL. */
static const ech_op_weight *weights_after(const ech_forward *const f, const ech_op_matmul *const op)
{
    for (const ech_op *o = f->ops; o < f->ops + f->h->n_ops; o++) {
        if (o->kind == ECH_OP_MATMUL && &o->matmul > op) return &o->matmul.weight;
        if (o->kind == ECH_OP_HEAD && &o->head.weight > &op->weight) return &o->head.weight;
    }
    return NULL;
}

void ech_forward_matmul(const ech_forward *const f, const ech_op_matmul *const op,
                        ech_core *const core)
{
    multiply(f,
             &(product){
                 .weight = &op->weight,
                 .norm = ech_forward_vector(f, op->norm),
                 .eps = op->eps,
                 .bias = ech_forward_vector(f, op->bias),
                 .epilogue = (ech_epilogue)op->epilogue,
                 .in = &op->in,
                 .after = weights_after(f, op),
                 .n_rows = f->n_rows,
                 .out = ech_forward_row(f, &op->out, 0),
                 .out_stride = op->out.stride,
                 .out_width = op->out.width,
             },
             core);
}

void ech_forward_head(const ech_forward *const f, const ech_op_head *const op, ech_core *const core)
{
    if (f->n_logits == 0) return;
    multiply(f,
             &(product){
                 .weight = &op->weight,
                 .norm = ech_forward_vector(f, op->norm),
                 .eps = op->eps,
                 .epilogue = ECH_EPILOGUE_NONE,
                 .in = &op->in,
                 .pick = f->logit_rows,
                 .n_rows = f->n_logits,
                 .out = f->logits,
                 .out_stride = f->h->vocab,
                 .out_width = f->h->vocab,
             },
             core);
}
