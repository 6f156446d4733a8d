/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of blocks that grow; the head is filled front to back. A piece larger than a block gets a
 * block of its own behind the head, so that the head's free space is not lost.
 */
#include "src/base/arena.h"

#include <stdlib.h>

#define ALIGN 16
/* The first block is small: most requests fit it, and a thousand may wait. Each is twice the last.
 */
#define FIRST_BLOCK 4096
#define LAST_BLOCK  65536

struct ech_arena_block {
    ech_arena_block *next;
    size_t used, cap; /* bytes of data[] */
    _Alignas(ALIGN) char data[];
};

static ech_arena_block *block_new(const size_t cap)
{
    ech_arena_block *const b = calloc(1, sizeof *b + cap);
    if (b != NULL) b->cap = cap;
    return b;
}

/* A block with room for size bytes, linked in; NULL when memory is exhausted. */
static ech_arena_block *block_for(ech_arena *const a, const size_t size)
{
    if (a->head != NULL && a->head->cap - a->head->used >= size) return a->head;
    const size_t doubled = a->head != NULL ? 2 * a->head->cap : FIRST_BLOCK;
    const size_t cap = doubled < LAST_BLOCK ? doubled : LAST_BLOCK;
    ech_arena_block *const b = block_new(size > cap / 4 ? size : cap);
    if (b == NULL) return NULL;
    if (a->head != NULL && size > cap / 4) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *ech_arena_alloc(ech_arena *const a, const size_t size)
{
    if (size > SIZE_MAX / 2) return NULL;
    const size_t rounded = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (a->limit != 0 && (a->total > a->limit || rounded > a->limit - a->total)) return NULL;
    ech_arena_block *const b = block_for(a, rounded);
    if (b == NULL) return NULL;
    void *const p = b->data + b->used;
    b->used += rounded;
    a->total += rounded;
    return p;
}

void *ech_arena_array(ech_arena *const a, const size_t n, const size_t size)
{
    if (size != 0 && n > SIZE_MAX / 2 / size) return NULL;
    return ech_arena_alloc(a, n * size);
}

char *ech_arena_strdup(ech_arena *const a, const ech_str s)
{
    char *const p = ech_arena_alloc(a, s.len + 1);
    if (p != NULL && s.len > 0) memcpy(p, s.ptr, s.len);
    return p;
}

void ech_arena_fini(ech_arena *const a)
{
    while (a->head != NULL) {
        ech_arena_block *const next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->total = 0;
}
