/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pack program at work: all items' tiles are one row of numbers that the cores take from, so
 * that none waits at the end of an item. A tile's source is asked for ahead of time, and huge pages
 * lie under the image before it is written: taking small faults and collapsing later costs twenty
 * times as much. Nothing here decides what the bytes are.
 */
#include "src/chip/pack_run.h"

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/shm.h"

/* What a core asks the kernel to read ahead of it, at a time. */
#define READ_AHEAD (UINT64_C(8) << 20)

typedef struct packing {
    const ech_pack_item *items;
    uint32_t n_items;
    uint32_t n_tiles; /* of all items */
    const ech_exec_args *args;
    const ech_pack_ops *ops;
    uint32_t n_polls; /* core 0's */
    uint32_t stop;    /* written by core 0 */
    uint32_t damaged; /* item whose copy has another checksum, + 1; written by any core */
} packing;

/*
 * Where a core is in the row of tiles. They come to it in ascending order, but for those that it
 * takes over from a share before its own.
 */
typedef struct cursor {
    uint32_t item;
    uint32_t first; /* tile of the item's first */
    uint64_t ahead; /* end of what was asked for, in the item's source */
} cursor;

static const ech_exec_tensor *image_of(const packing *const p)
{
    return &p->args->tensors[p->args->n_tensors - 1];
}

static const ech_pack_item *find_item(const packing *const p, cursor *const c, const uint32_t tile)
{
    if (tile < c->first) *c = (cursor){ 0 };
    for (;;) {
        const uint32_t n = ech_pack_item_tiles(&p->items[c->item]);
        if (tile - c->first < n) return &p->items[c->item];
        c->first += n;
        c->item++;
        c->ahead = 0;
    }
}

static void read_ahead(const ech_pack_item *const it, const uint32_t tile, cursor *const c,
                       const char *const source)
{
    const bool copies = it->kind == ECH_IMAGE_RAW;
    const uint64_t row_bytes =
        copies ? it->cols : ech_src_bytes((ech_src_type)it->src_type, it->cols);
    const uint64_t end = it->rows * row_bytes, at = (uint64_t)tile * ECH_PANEL * row_bytes;
    if (at + READ_AHEAD / 2 < c->ahead || c->ahead >= end) return;
    const uint64_t from = c->ahead > at ? c->ahead : at;
    const uint64_t n = copies || end - from < READ_AHEAD ? end - from : READ_AHEAD;
    ech_os_read_ahead(source + it->src_offset + from, n);
    c->ahead = from + n;
}

static void populate(const ech_exec_tensor *const image, const uint64_t from, const uint64_t to)
{
    const uintptr_t base = (uintptr_t)image->ptr, end = base + image->bytes;
    for (uintptr_t at = (base + from) & ~(ECH_HUGE_PAGE - 1); at < base + to; at += ECH_HUGE_PAGE)
        if (at >= base && end - at >= ECH_HUGE_PAGE) ech_os_populate_huge((void *)at);
}

static bool take_tile(packing *const p, ech_core *const core, uint32_t *const ret_tile)
{
    if (core->idx == 0 && p->args->poll != NULL && p->args->poll(p->args->poll_ctx, p->n_polls++))
        ech_store_relaxed(&p->stop, 1);
    return ech_load_relaxed(&p->stop) == 0 && ech_pool_tile(core, p->n_tiles, ret_tile);
}

/* What two cores began at the same time may be left in small pages. Quick where nothing is. */
static void collapse_rest(const packing *const p, ech_core *const core)
{
    const ech_exec_tensor *const image = image_of(p);
    const uintptr_t base = (uintptr_t)image->ptr;
    const uint64_t n = image->bytes / ECH_HUGE_PAGE;
    if (base % ECH_HUGE_PAGE != 0) return;
    for (uint32_t t; ech_pool_tile(core, (uint32_t)n, &t);)
        (void)ech_os_collapse((void *)(base + t * ECH_HUGE_PAGE), ECH_HUGE_PAGE);
    ech_pool_barrier(core);
}

static void pack_core(void *const run, ech_core *const core)
{
    packing *const p = run;
    const ech_exec_tensor *const image = image_of(p);
    cursor c = { 0 };
    for (uint32_t t; take_tile(p, core, &t);) {
        const ech_pack_item *const it = find_item(p, &c, t);
        const char *const source = p->args->tensors[it->src_tensor].ptr;
        uint64_t from, to;
        ech_pack_tile_range(it, t - c.first, &from, &to);
        populate(image, from, to);
        read_ahead(it, t - c.first, &c, source);
        if (!ech_pack_tile(p->ops, it, t - c.first, source, image->ptr)) {
            ech_store_relaxed(&p->damaged, c.item + 1);
            ech_store_relaxed(&p->stop, 1);
        }
    }
    ech_pool_barrier(core);
    collapse_rest(p, core);
}

/* An image that is there: pieces of it go into the page tables, on all cores. */
static void enter_core(void *const run, ech_core *const core)
{
    packing *const p = run;
    const ech_exec_tensor *const image = image_of(p);
    if (core->idx == 0) (void)ech_os_lock(image->ptr, image->bytes);
    for (uint32_t t; take_tile(p, core, &t);) {
        const uint64_t at = t * ECH_HUGE_PAGE, left = image->bytes - at;
        ech_os_populate((char *)image->ptr + at, left < ECH_HUGE_PAGE ? left : ECH_HUGE_PAGE);
    }
    ech_pool_barrier(core);
}

static ech_status bind(packing *const p, const ech_pack_header *const h, ech_error *const err)
{
    const ech_exec_args *const a = p->args;
    if (a->n_tensors != h->n_sources + 1 || a->n_scalars != 0)
        return ech_fail(err, ECH_EINVAL, "packing: %u tensors and %u scalars, needed are %u and 0",
                        a->n_tensors, a->n_scalars, h->n_sources + 1);
    if (image_of(p)->bytes < h->image_bytes || (uintptr_t)image_of(p)->ptr % 64 != 0)
        return ech_fail(err, ECH_EINVAL,
                        "packing: the image has %zu bytes, needed are %llu, "
                        "aligned to 64",
                        image_of(p)->bytes, (unsigned long long)h->image_bytes);
    uint64_t n_tiles = 0;
    for (uint32_t i = 0; i < h->n_items; i++) {
        ECH_TRY(ech_pack_check_source(&p->items[i], a->tensors[p->items[i].src_tensor].bytes, err));
        n_tiles += ech_pack_item_tiles(&p->items[i]);
    }
    if (h->n_items == 0) n_tiles = (image_of(p)->bytes + ECH_HUGE_PAGE - 1) / ECH_HUGE_PAGE;
    if (n_tiles > UINT32_MAX)
        return ech_fail(err, ECH_ELIMIT, "packing: %llu tiles, the limit is 2^32 - 1",
                        (unsigned long long)n_tiles);
    p->n_tiles = (uint32_t)n_tiles;
    return ECH_OK;
}

ech_status ech_pack_execute(const void *const program, const ech_exec_args *const args,
                            ech_pool *const pool, const ech_pack_ops *const ops,
                            ech_error *const err)
{
    const ech_pack_header *const h = program;
    packing p = {
        .items = (const ech_pack_item *)(h + 1),
        .n_items = h->n_items,
        .args = args,
        .ops = ops,
    };
    ECH_TRY(bind(&p, h, err));
    ech_pool_run(pool, h->n_items > 0 ? pack_core : enter_core, &p);
    if (p.damaged != 0)
        return ech_fail(err, ECH_EFORMAT,
                        "copying packed weights: the bytes at %llu don't have their checksum",
                        (unsigned long long)p.items[p.damaged - 1].src_offset);
    if (p.stop != 0) return ech_fail(err, ECH_ECANCELLED, "packing: cancelled");
    return ECH_OK;
}
