/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pack program: its builder (parent, one thread), its check, and its tiles (any core of a
 * chip, in any order, twice with the same result: tiles of one program write different bytes).
 *
 * A tile takes 16 source rows. When they are one panel of the destination, the usual case, they
 * are interleaved block by block; otherwise (fused matrices whose parts don't end at a panel)
 * every row goes to its own place.
 */
#include "src/chip/pack.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/chip/dequant.h"
#include "src/chip/half.h"
#include "src/chip/quant.h"
#include "src/chip/repack.h"

#define MAX_ITEMS   (1u << 20)
#define MAX_SOURCES 255 /* a task has 256 tensors, the last is the image */
#define MAX_ROWS    (UINT64_C(1) << 32)

size_t ech_src_bytes(const ech_src_type type, const uint64_t n)
{
    const uint32_t elems = ech_src_block_elems(type);
    if (elems == 0 || n > UINT64_C(1) << 48 || n % elems != 0) return 0;
    return n / elems * ech_src_block_bytes(type);
}

/* ---- building ---------------------------------------------------------------------------------
 */

struct ech_pack_builder {
    ech_buf items;
};

ech_status ech_pack_builder_create(ech_pack_builder **const ret_b)
{
    *ret_b = calloc(1, sizeof(**ret_b));
    return *ret_b != NULL ? ECH_OK : ECH_ENOMEM;
}

void ech_pack_builder_destroy(ech_pack_builder **const b)
{
    if (*b == NULL) return;
    ech_buf_fini(&(*b)->items);
    free(*b);
    *b = NULL;
}

static uint64_t dst_row(const ech_pack_place *const p, const uint64_t r)
{
    return p->row0 + r / p->group * p->stride + r % p->group;
}

/* Whether all rows have a place in the matrix, without overflow on the way. */
static bool place_fits(const ech_pack_place *const p, const uint64_t rows, const uint64_t dst_rows)
{
    const uint64_t padded = (dst_rows + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL;
    if (rows == 0 || rows > MAX_ROWS || p->row0 > MAX_ROWS || p->group == 0) return false;
    if (p->group >= rows) return p->row0 + rows <= dst_rows;
    return p->stride >= p->group && p->stride <= MAX_ROWS &&
           rows / p->group <= MAX_ROWS / p->stride && dst_row(p, rows - 1) < padded;
}

static ech_status add_item(ech_pack_builder *const b, const ech_pack_item *const item,
                           ech_error *const err)
{
    if (ech_buf_append(&b->items, item, sizeof(*item)) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "emitting the pack program: out of memory");
    return ECH_OK;
}

ech_status ech_pack_builder_matrix(ech_pack_builder *const b, const ech_image_entry *const entry,
                                   const ech_pack_source source, const uint64_t rows,
                                   const ech_pack_place place, ech_error *const err)
{
    if (entry->kind != ECH_IMAGE_MATRIX || !place_fits(&place, rows, entry->rows))
        return ech_fail(err, ECH_EINVAL,
                        "emitting the pack program: %llu rows don't fit in entry %s of %llu",
                        (unsigned long long)rows, entry->name, (unsigned long long)entry->rows);
    const ech_pack_item item = {
        .src_offset = source.offset,
        .src_tensor = source.tensor,
        .src_type = source.type,
        .rows = rows,
        .cols = entry->cols,
        .dst_offset = entry->offset,
        .dst_rows = entry->rows,
        .place = place,
        .kind = ECH_IMAGE_MATRIX,
        .type = entry->type,
    };
    return add_item(b, &item, err);
}

ech_status ech_pack_builder_vector(ech_pack_builder *const b, const ech_image_entry *const entry,
                                   const ech_pack_source source, const uint64_t first,
                                   const uint64_t n, ech_error *const err)
{
    if (entry->kind != ECH_IMAGE_VECTOR || n == 0 || first > entry->rows || n > entry->rows - first)
        return ech_fail(err, ECH_EINVAL,
                        "emitting the pack program: %llu numbers don't fit in vector %s of %llu",
                        (unsigned long long)n, entry->name, (unsigned long long)entry->rows);
    const ech_pack_item item = {
        .src_offset = source.offset,
        .src_tensor = source.tensor,
        .src_type = source.type,
        .rows = 1,
        .cols = n,
        .dst_offset = entry->offset + first * sizeof(float),
        .dst_rows = 1,
        .place = ech_pack_rows(0),
        .kind = ECH_IMAGE_VECTOR,
    };
    return add_item(b, &item, err);
}

ech_status ech_pack_builder_copy(ech_pack_builder *const b, const ech_image_entry *const entry,
                                 const ech_pack_source source, ech_error *const err)
{
    const ech_pack_item item = {
        .src_offset = source.offset,
        .src_tensor = source.tensor,
        .rows = 1,
        .cols = entry->bytes,
        .dst_offset = entry->offset,
        .dst_rows = 1,
        .place = ech_pack_rows(0),
        .kind = ECH_IMAGE_RAW,
        .checksum = entry->checksum,
    };
    return add_item(b, &item, err);
}

ech_status ech_pack_builder_finish(ech_pack_builder *const b, const uint32_t n_sources,
                                   const uint64_t image_bytes, void **const ret_bytes,
                                   size_t *const ret_len, ech_error *const err)
{
    const ech_pack_header h = {
        .n_items = (uint32_t)(b->items.len / sizeof(ech_pack_item)),
        .n_sources = n_sources,
        .image_bytes = image_bytes,
    };
    const size_t len = sizeof(h) + b->items.len;
    char *const bytes = malloc(len);
    if (bytes == NULL) return ech_fail(err, ECH_ENOMEM, "emitting the pack program: out of memory");
    memcpy(bytes, &h, sizeof(h));
    if (b->items.len > 0) memcpy(bytes + sizeof(h), b->items.data, b->items.len);
    ech_program_seal(bytes, len, ECH_PROGRAM_PACK);
    const ech_status rc = ech_pack_check(bytes, len, err);
    if (rc != ECH_OK) {
        free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_len = len;
    return ECH_OK;
}

/* ---- checking ---------------------------------------------------------------------------------
 */

static ech_status check_item(const ech_pack_item *const it, const ech_pack_header *const h,
                             const uint32_t idx, ech_error *const err)
{
    uint64_t bytes = 0;
    if (it->kind == ECH_IMAGE_MATRIX && it->type != ECH_PACK_S8 &&
        place_fits(&it->place, it->rows, it->dst_rows))
        bytes = ech_matrix_bytes((ech_pack_type)it->type, it->dst_rows, it->cols);
    if (it->kind == ECH_IMAGE_VECTOR && it->rows == 1 && it->cols <= MAX_ROWS) bytes = it->cols * 4;
    const bool copies = it->kind == ECH_IMAGE_RAW && it->rows == 1;
    if (copies) bytes = it->cols;
    if (bytes == 0 || it->src_tensor >= h->n_sources ||
        (!copies && ech_src_bytes((ech_src_type)it->src_type, it->cols) == 0))
        return ech_fail(err, ECH_EFORMAT, "loading a pack program: item %u has no possible shape",
                        idx);
    const uint64_t align = it->kind == ECH_IMAGE_MATRIX ? 64 : 4;
    if (it->dst_offset % align != 0 || it->dst_offset > h->image_bytes ||
        bytes > h->image_bytes - it->dst_offset)
        return ech_fail(err, ECH_EFORMAT, "loading a pack program: item %u lies outside the image",
                        idx);
    return ECH_OK;
}

ech_status ech_pack_check(const void *const program, const size_t len, ech_error *const err)
{
    const ech_pack_header *const h = program;
    if (len < sizeof(*h) || h->n_items > MAX_ITEMS || h->n_sources > MAX_SOURCES ||
        len - sizeof(*h) != h->n_items * sizeof(ech_pack_item))
        return ech_fail(err, ECH_EFORMAT,
                        "loading a pack program: %zu bytes don't hold what the header says", len);
    const ech_pack_item *const items = (const ech_pack_item *)(h + 1);
    for (uint32_t i = 0; i < h->n_items; i++)
        ECH_TRY(check_item(&items[i], h, i, err));
    return ECH_OK;
}

ech_status ech_pack_check_source(const ech_pack_item *const item, const uint64_t source_bytes,
                                 ech_error *const err)
{
    uint64_t bytes = 0;
    const uint64_t row = item->kind == ECH_IMAGE_RAW
                             ? item->cols
                             : ech_src_bytes((ech_src_type)item->src_type, item->cols);
    if (__builtin_mul_overflow(row, item->rows, &bytes) || item->src_offset > source_bytes ||
        bytes > source_bytes - item->src_offset)
        return ech_fail(err, ECH_EINVAL,
                        "packing: %llu x %llu numbers at byte %llu lie outside source %u of %llu "
                        "bytes",
                        (unsigned long long)item->rows, (unsigned long long)item->cols,
                        (unsigned long long)item->src_offset, item->src_tensor,
                        (unsigned long long)source_bytes);
    return ECH_OK;
}

/* ---- packing ----------------------------------------------------------------------------------
 */

/* Columns that are converted at a time: whole blocks of every source type, one super-block. */
#define CHUNK ECH_QUANT_SUPER

/* x[i] to column k + i of one row (lane) of a panel. */
static void put_row(const ech_pack_ops *const ops, char *const panel, const ech_pack_type type,
                    const uint32_t lane, const uint64_t k, const float *const x, const uint32_t n)
{
    float *const f32 = (float *)panel;
    uint16_t *const u16 = (uint16_t *)panel;
    if (ech_quant_is_super(type)) {
        ech_quant_put(panel, type, lane, k, x, n);
        return;
    }
    if (ech_pack_is_quant(type)) {
        uint32_t i = 0;
        for (ech_quant_block b = { 0 }; i + ECH_QUANT_BLOCK <= n; i += ECH_QUANT_BLOCK) {
            ops->quantise(type, x + i, &b);
            ech_quant_store(panel, type, lane, k + i, &b);
        }
        if (i < n) ech_quant_put(panel, type, lane, k + i, x + i, n - i);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = k + i;
        if (type == ECH_PACK_F32)
            f32[at * ECH_PANEL + lane] = x[i];
        else if (type == ECH_PACK_F16)
            u16[at * ECH_PANEL + lane] = ech_f16_from_f32(x[i]);
        else
            u16[(at / 2 * ECH_PANEL + lane) * 2 + at % 2] = ech_bf16_from_f32(x[i]);
    }
}

static void widen(const ech_pack_ops *const ops, const ech_src_type type, const char *const from,
                  const uint32_t n, float *const x)
{
    if (type == ECH_SRC_BF16)
        ops->widen_bf16(from, n, x);
    else if (type == ECH_SRC_F16)
        ops->widen_f16(from, n, x);
    else
        ech_dequant(type, from, n, x);
}

/* Columns [k, k + n) of one source row to one row (lane) of a panel. */
static void pack_piece(const ech_pack_ops *const ops, const ech_pack_item *const it,
                       const char *const row, const uint64_t k, const uint32_t n, char *const panel,
                       const uint32_t lane)
{
    const ech_src_type source = (ech_src_type)it->src_type;
    const ech_pack_type type = (ech_pack_type)it->type;
    const char *const from = row + ech_src_bytes(source, k);
    float x[CHUNK];
    if (ech_repack_has(source, type)) {
        ech_repack(source, from, n, panel, lane, k);
        return;
    }
    widen(ops, source, from, n, x);
    put_row(ops, panel, type, lane, k, x, n);
}

/* Rows [r0, r0 + n) wherever they go. A few columns of all rows, so that their places stay near. */
static void pack_scattered(const ech_pack_ops *const ops, const ech_pack_item *const it,
                           const uint64_t r0, const uint32_t n, const char *const src,
                           char *const matrix)
{
    const size_t row_bytes = ech_src_bytes((ech_src_type)it->src_type, it->cols);
    const size_t panel_bytes = ech_panel_bytes((ech_pack_type)it->type, it->cols);
    for (uint64_t k = 0; k < it->cols; k += CHUNK) {
        const uint32_t nk = it->cols - k < CHUNK ? (uint32_t)(it->cols - k) : CHUNK;
        for (uint32_t r = 0; r < n; r++) {
            const uint64_t to = dst_row(&it->place, r0 + r);
            pack_piece(ops, it, src + (r0 + r) * row_bytes, k, nk,
                       matrix + to / ECH_PANEL * panel_bytes, (uint32_t)(to % ECH_PANEL));
        }
    }
}

/* 16 rows of 16-bit words into [word][16]. */
static void interleave16(const char *const src, const size_t row_bytes, uint16_t *const dst,
                         const uint64_t n)
{
    for (uint64_t k = 0; k < n; k++)
        for (uint32_t r = 0; r < ECH_PANEL; r++)
            memcpy(&dst[k * ECH_PANEL + r], src + r * row_bytes + 2 * k, 2);
}

/* A whole panel whose numbers keep their type. False when it isn't such a case. */
static bool pack_same_type(const ech_pack_ops *const ops, const ech_pack_item *const it,
                           const char *const src, char *const panel)
{
    const size_t row_bytes = ech_src_bytes((ech_src_type)it->src_type, it->cols);
    if (it->src_type == ECH_SRC_F32 && it->type == ECH_PACK_F32)
        ops->interleave32(src, row_bytes, it->cols, (uint32_t *)panel);
    else if (it->src_type == ECH_SRC_F16 && it->type == ECH_PACK_F16)
        interleave16(src, row_bytes, (uint16_t *)panel, it->cols);
    else if (it->src_type == ECH_SRC_BF16 && it->type == ECH_PACK_BF16 && it->cols % 2 == 0)
        ops->interleave32(src, row_bytes, it->cols / 2, (uint32_t *)panel);
    else
        return false;
    return true;
}

uint32_t ech_pack_item_tiles(const ech_pack_item *const it)
{
    return it->kind == ECH_IMAGE_MATRIX ? (uint32_t)((it->rows + ECH_PANEL - 1) / ECH_PANEL) : 1;
}

void ech_pack_tile_range(const ech_pack_item *const it, const uint32_t tile,
                         uint64_t *const ret_from, uint64_t *const ret_to)
{
    *ret_from = it->dst_offset;
    if (it->kind != ECH_IMAGE_MATRIX) {
        *ret_to = it->dst_offset + it->cols * (it->kind == ECH_IMAGE_RAW ? 1 : sizeof(float));
        return;
    }
    const uint64_t r0 = (uint64_t)tile * ECH_PANEL;
    const uint64_t last = it->rows - r0 < ECH_PANEL ? it->rows - 1 : r0 + ECH_PANEL - 1;
    const size_t panel_bytes = ech_panel_bytes((ech_pack_type)it->type, it->cols);
    *ret_from += dst_row(&it->place, r0) / ECH_PANEL * panel_bytes;
    *ret_to = it->dst_offset + (dst_row(&it->place, last) / ECH_PANEL + 1) * panel_bytes;
}

bool ech_pack_tile(const ech_pack_ops *const ops, const ech_pack_item *const it,
                   const uint32_t tile, const void *const source, void *const image)
{
    const char *const src = (const char *)source + it->src_offset;
    char *const dst = (char *)image + it->dst_offset;
    if (it->kind == ECH_IMAGE_VECTOR) {
        ech_dequant((ech_src_type)it->src_type, src, it->cols, (float *)dst);
        return true;
    }
    if (it->kind == ECH_IMAGE_RAW) {
        memcpy(dst, src, it->cols);
        return it->checksum == 0 || ech_checksum(dst, it->cols) == it->checksum;
    }
    const uint64_t r0 = (uint64_t)tile * ECH_PANEL;
    const uint32_t n = it->rows - r0 < ECH_PANEL ? (uint32_t)(it->rows - r0) : ECH_PANEL;
    const uint64_t to = dst_row(&it->place, r0);
    const bool is_panel = n == ECH_PANEL && to % ECH_PANEL == 0 &&
                          dst_row(&it->place, r0 + ECH_PANEL - 1) == to + ECH_PANEL - 1;
    const size_t row_bytes = ech_src_bytes((ech_src_type)it->src_type, it->cols);
    char *const panel = dst + to / ECH_PANEL * ech_panel_bytes((ech_pack_type)it->type, it->cols);
    if (is_panel && pack_same_type(ops, it, src + r0 * row_bytes, panel)) return true;
    pack_scattered(ops, it, r0, n, src, dst);
    return true;
}
