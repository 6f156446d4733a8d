/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory with one lifetime: allocated piece by piece, freed at once. For a model's tables and for
 * a request. Pieces are aligned to 16 bytes and zeroed. One owner at a time.
 */
#ifndef ECH_BASE_ARENA_H
#define ECH_BASE_ARENA_H

#include "src/base/buf.h"

typedef struct ech_arena_block ech_arena_block;

typedef struct ech_arena {
    ech_arena_block *head;  /* the block being filled, then older ones */
    size_t total;           /* bytes handed out */
    size_t limit;           /* ENOMEM (NULL) beyond this many; 0: none */
} ech_arena;

/* NULL when memory or the limit is exhausted. size 0 gives a pointer that may not be read. */
void *ech_arena_alloc(ech_arena *a, size_t size);
/* n elements of size bytes; NULL on overflow as well. */
void *ech_arena_array(ech_arena *a, size_t n, size_t size);
/* A zero-terminated copy. */
char *ech_arena_strdup(ech_arena *a, ech_str s);
/* Frees every block; the arena is ready for use again. */
void ech_arena_fini(ech_arena *a);

#endif
