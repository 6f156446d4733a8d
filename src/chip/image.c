/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed image's header and directory: planning, writing, checking. Nothing here reads or
 * writes an entry's bytes, except ech_image_verify(). Pure functions over memory that the caller
 * owns; any thread.
 */
#include "src/chip/image.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/chip/quant.h"

/* No model has more; bounds what a damaged header can ask for. */
#define MAX_ENTRIES (1u << 20)
#define MAX_DIM     (UINT64_C(1) << 32)

const char *ech_pack_type_name(const ech_pack_type type)
{
    static const char *const names[ECH_PACK_COUNT] = {
        [ECH_PACK_F32] = "f32", [ECH_PACK_F16] = "f16", [ECH_PACK_BF16] = "bf16",
        [ECH_PACK_S8] = "s8",   [ECH_PACK_Q8] = "q8",   [ECH_PACK_Q4] = "q4",
        [ECH_PACK_Q4M] = "q4m", [ECH_PACK_Q6] = "q6",   [ECH_PACK_Q6K] = "q6k",
        [ECH_PACK_Q4K] = "q4k", [ECH_PACK_Q5K] = "q5k",
    };
    return (uint32_t)type < ECH_PACK_COUNT ? names[type] : "unknown";
}

static uint64_t round_up(const uint64_t n, const uint64_t to)
{
    return (n + to - 1) / to * to;
}

size_t ech_panel_bytes(const ech_pack_type type, const uint64_t cols)
{
    if (cols == 0 || cols > MAX_DIM) return 0;
    uint64_t bytes = 0;
    switch (type) {
    case ECH_PACK_F32:
        bytes = cols * ECH_PANEL * 4;
        break;
    case ECH_PACK_F16:
        bytes = cols * ECH_PANEL * 2;
        break;
    case ECH_PACK_BF16:
        bytes = round_up(cols, 2) * ECH_PANEL * 2;
        break;
    case ECH_PACK_S8:
        bytes = cols * ECH_PANEL;
        break;
    case ECH_PACK_Q8:
    case ECH_PACK_Q4:
    case ECH_PACK_Q4M:
    case ECH_PACK_Q6:
    case ECH_PACK_Q6K:
    case ECH_PACK_Q4K:
    case ECH_PACK_Q5K:
        bytes = (cols + ech_quant_unit_cols(type) - 1) / ech_quant_unit_cols(type) *
                ech_quant_unit_bytes(type);
        break;
    case ECH_PACK_COUNT:
        break;
    }
    return round_up(bytes, 64);
}

size_t ech_matrix_bytes(const ech_pack_type type, const uint64_t rows, const uint64_t cols)
{
    const size_t panel = ech_panel_bytes(type, cols);
    size_t bytes = 0;
    if (panel == 0 || rows == 0 || rows > MAX_DIM ||
        __builtin_mul_overflow(panel, round_up(rows, ECH_PANEL) / ECH_PANEL, &bytes))
        return 0;
    return bytes;
}

static uint64_t rotl(const uint64_t x, const int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t mix(uint64_t h, const uint64_t w)
{
    h = rotl(h ^ (w * UINT64_C(0x9e3779b97f4a7c15)), 29);
    return h * UINT64_C(0xd6e8feb86659fd93) + 1;
}

uint64_t ech_checksum(const void *const data, const size_t len)
{
    /* Four lanes hide the multiplier's latency; words are read as little-endian. */
    uint64_t h[4] = { len, UINT64_C(0x243f6a8885a308d3), UINT64_C(0x13198a2e03707344),
                      UINT64_C(0xa4093822299f31d0) };
    const unsigned char *const p = data;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        uint64_t w[4];
        memcpy(w, p + i, sizeof(w));
        for (int lane = 0; lane < 4; lane++)
            h[lane] = mix(h[lane], w[lane]);
    }
    for (int lane = 0; i < len; lane++) {
        uint64_t w = 0;
        const size_t n = len - i < 8 ? len - i : 8;
        memcpy(&w, p + i, n);
        h[lane] = mix(h[lane], w);
        i += n;
    }
    uint64_t r = len;
    for (int lane = 0; lane < 4; lane++)
        r = mix(r, h[lane]);
    return r ^ r >> 32;
}

/* ---- planning ---------------------------------------------------------------------------------
 */

static ech_status plan_add(ech_image_plan *const plan, const char *const name,
                           ech_image_entry entry, uint32_t *const ret_idx, ech_error *const err)
{
    const size_t len = strlen(name);
    if (len == 0 || len >= ECH_IMAGE_NAME)
        return ech_fail(err, ECH_EINVAL,
                        "planning the image: entry name \"%.40s\" has %zu bytes, "
                        "1 to %d are possible",
                        name, len, ECH_IMAGE_NAME - 1);
    for (uint32_t i = 0; i < plan->n_entries; i++)
        if (strcmp(plan->entries[i].name, name) == 0)
            return ech_fail(err, ECH_EINVAL, "planning the image: two entries are named %s", name);
    if (entry.bytes == 0)
        return ech_fail(err, ECH_EINVAL, "planning the image: entry %s has no possible size", name);
    if (plan->n_entries == MAX_ENTRIES)
        return ech_fail(err, ECH_ELIMIT, "planning the image: more than %u entries", MAX_ENTRIES);
    if (plan->n_entries == plan->cap_entries) {
        const uint32_t cap = plan->cap_entries == 0 ? 64 : plan->cap_entries * 2;
        ech_image_entry *const entries = realloc(plan->entries, cap * sizeof(*entries));
        if (entries == NULL) return ech_fail(err, ECH_ENOMEM, "planning the image: out of memory");
        plan->entries = entries;
        plan->cap_entries = cap;
    }
    memcpy(entry.name, name, len);
    plan->entries[plan->n_entries] = entry;
    if (ret_idx != NULL) *ret_idx = plan->n_entries;
    plan->n_entries++;
    return ECH_OK;
}

ech_status ech_image_plan_matrix(ech_image_plan *const plan, const char *const name,
                                 const ech_pack_type type, const uint64_t rows, const uint64_t cols,
                                 uint32_t *const ret_idx, ech_error *const err)
{
    return plan_add(plan, name,
                    (ech_image_entry){
                        .kind = ECH_IMAGE_MATRIX,
                        .type = type,
                        .rows = rows,
                        .cols = cols,
                        .bytes = ech_matrix_bytes(type, rows, cols),
                    },
                    ret_idx, err);
}

ech_status ech_image_plan_vector(ech_image_plan *const plan, const char *const name,
                                 const uint64_t n, uint32_t *const ret_idx, ech_error *const err)
{
    return plan_add(plan, name,
                    (ech_image_entry){
                        .kind = ECH_IMAGE_VECTOR,
                        .rows = n,
                        .cols = 1,
                        .bytes = n <= MAX_DIM ? n * sizeof(float) : 0,
                    },
                    ret_idx, err);
}

ech_status ech_image_plan_raw(ech_image_plan *const plan, const char *const name,
                              const uint64_t bytes, uint32_t *const ret_idx, ech_error *const err)
{
    return plan_add(plan, name,
                    (ech_image_entry){
                        .kind = ECH_IMAGE_RAW,
                        .rows = bytes,
                        .cols = 1,
                        .bytes = bytes <= MAX_DIM ? bytes : 0,
                    },
                    ret_idx, err);
}

uint64_t ech_image_plan_place(ech_image_plan *const plan)
{
    uint64_t at = sizeof(ech_image_header) + plan->n_entries * sizeof(ech_image_entry);
    for (uint32_t i = 0; i < plan->n_entries; i++) {
        at = round_up(at, ECH_IMAGE_ALIGN);
        plan->entries[i].offset = at;
        at += plan->entries[i].bytes;
    }
    return round_up(at, ECH_IMAGE_ALIGN);
}

void ech_image_plan_write(const ech_image_plan *const plan, void *const image)
{
    const size_t dir_bytes = plan->n_entries * sizeof(ech_image_entry);
    uint64_t end = sizeof(ech_image_header) + dir_bytes;
    if (plan->n_entries > 0) {
        const ech_image_entry *const last = &plan->entries[plan->n_entries - 1];
        end = last->offset + last->bytes;
    }
    const ech_image_header header = {
        .magic = ECH_IMAGE_MAGIC,
        .layout_version = ECH_IMAGE_LAYOUT_VERSION,
        .n_entries = plan->n_entries,
        .image_bytes = round_up(end, ECH_IMAGE_ALIGN),
        .dir_offset = sizeof(header),
        .dir_checksum = ech_checksum(plan->entries, dir_bytes),
    };
    memcpy(image, &header, sizeof(header));
    if (dir_bytes > 0) memcpy((char *)image + header.dir_offset, plan->entries, dir_bytes);
}

void ech_image_plan_fini(ech_image_plan *const plan)
{
    free(plan->entries);
    *plan = (ech_image_plan){ 0 };
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static uint64_t entry_bytes(const ech_image_entry *const e)
{
    switch (e->kind) {
    case ECH_IMAGE_MATRIX:
        return ech_matrix_bytes((ech_pack_type)e->type, e->rows, e->cols);
    case ECH_IMAGE_VECTOR:
        return e->rows <= MAX_DIM && e->cols == 1 ? e->rows * 4 : 0;
    case ECH_IMAGE_RAW:
        return e->rows <= MAX_DIM && e->cols == 1 ? e->rows : 0;
    default:
        return 0;
    }
}

/* Entries stand in the order of their offsets, so that overlaps show as a wrong order. */
static ech_status check_entry(const ech_image_entry *const e, const uint32_t idx,
                              const uint64_t from, const uint64_t image_bytes, ech_error *const err)
{
    if (memchr(e->name, 0, sizeof(e->name)) == NULL || e->name[0] == 0)
        return ech_fail(err, ECH_EFORMAT, "weights image: entry %u has no terminated name", idx);
    const uint64_t bytes = entry_bytes(e);
    if (bytes == 0 || bytes != e->bytes)
        return ech_fail(err, ECH_EFORMAT,
                        "weights image: entry %s has %llu bytes, its kind and shape say %llu",
                        e->name, (unsigned long long)e->bytes, (unsigned long long)bytes);
    if (e->offset % ECH_IMAGE_ALIGN != 0 || e->offset < from || e->offset > image_bytes ||
        e->bytes > image_bytes - e->offset)
        return ech_fail(err, ECH_EFORMAT,
                        "weights image: entry %s at %llu is unaligned, overlaps the one before or "
                        "ends past the image's %llu bytes",
                        e->name, (unsigned long long)e->offset, (unsigned long long)image_bytes);
    return ECH_OK;
}

static int compare_names(const void *const a, const void *const b)
{
    return strcmp((*(const ech_image_entry *const *)a)->name,
                  (*(const ech_image_entry *const *)b)->name);
}

static ech_status check_unique(const ech_image_entry *const entries, const uint32_t n,
                               ech_error *const err)
{
    const ech_image_entry **const sorted = malloc((n + 1) * sizeof(*sorted));
    if (sorted == NULL) return ech_fail(err, ECH_ENOMEM, "checking the weights image");
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &entries[i];
    qsort(sorted, n, sizeof(*sorted), compare_names);
    ech_status rc = ECH_OK;
    for (uint32_t i = 1; i < n && rc == ECH_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = ech_fail(err, ECH_EFORMAT, "weights image: two entries are named %s",
                          sorted[i]->name);
    free(sorted);
    return rc;
}

static ech_status check_header(const ech_image_header *const h, const size_t len,
                               ech_error *const err)
{
    if (h->magic != ECH_IMAGE_MAGIC)
        return ech_fail(err, ECH_EFORMAT, "weights image: no magic, not a packed image");
    if (h->layout_version != ECH_IMAGE_LAYOUT_VERSION)
        return ech_fail(err, ECH_EFORMAT,
                        "weights image: layout version %u, this program has %d: pack again",
                        h->layout_version, ECH_IMAGE_LAYOUT_VERSION);
    if (h->image_bytes > len)
        return ech_fail(err, ECH_EFORMAT, "weights image: %zu bytes, the header says %llu", len,
                        (unsigned long long)h->image_bytes);
    if (h->n_entries > MAX_ENTRIES || h->dir_offset % 8 != 0 || h->dir_offset < sizeof(*h) ||
        h->dir_offset > h->image_bytes ||
        h->n_entries * sizeof(ech_image_entry) > h->image_bytes - h->dir_offset)
        return ech_fail(err, ECH_EFORMAT,
                        "weights image: the directory (%u entries at %llu) lies outside",
                        h->n_entries, (unsigned long long)h->dir_offset);
    return ECH_OK;
}

ech_status ech_image_check(const void *const image, const size_t len, ech_error *const err)
{
    if (len < sizeof(ech_image_header))
        return ech_fail(err, ECH_EFORMAT, "weights image: %zu bytes, a header has %zu", len,
                        sizeof(ech_image_header));
    ech_image_header h;
    memcpy(&h, image, sizeof(h));
    ECH_TRY(check_header(&h, len, err));
    const ech_image_entry *const entries =
        (const ech_image_entry *)((const char *)image + h.dir_offset);
    const size_t dir_bytes = h.n_entries * sizeof(*entries);
    if (ech_checksum(entries, dir_bytes) != h.dir_checksum)
        return ech_fail(err, ECH_EFORMAT, "weights image: the directory's checksum is wrong");
    uint64_t from = h.dir_offset + dir_bytes;
    for (uint32_t i = 0; i < h.n_entries; i++) {
        ECH_TRY(check_entry(&entries[i], i, from, h.image_bytes, err));
        from = entries[i].offset + entries[i].bytes;
    }
    return check_unique(entries, h.n_entries, err);
}

const ech_image_entry *ech_image_entries(const void *const image, uint32_t *const ret_n)
{
    const ech_image_header *const h = image;
    *ret_n = h->n_entries;
    return (const ech_image_entry *)((const char *)image + h->dir_offset);
}

const ech_image_entry *ech_image_find(const void *const image, const char *const name)
{
    uint32_t n = 0;
    const ech_image_entry *const entries = ech_image_entries(image, &n);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}

ech_status ech_image_verify(const void *const image, const size_t len, ech_error *const err)
{
    ECH_TRY(ech_image_check(image, len, err));
    uint32_t n = 0;
    const ech_image_entry *const entries = ech_image_entries(image, &n);
    for (uint32_t i = 0; i < n; i++) {
        const ech_image_entry *const e = &entries[i];
        if (e->checksum != 0 &&
            ech_checksum((const char *)image + e->offset, e->bytes) != e->checksum)
            return ech_fail(err, ECH_EFORMAT,
                            "weights image: the bytes of entry %s don't match their checksum",
                            e->name);
    }
    return ECH_OK;
}
