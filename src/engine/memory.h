/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engine and chip share: every region of the worker, made at its final size before the fork.
 *
 *     source.N   the model's files, read only              read by `pack`
 *     cache      a file of packed weights, read only       read by `load`
 *     weights    the packed image                          written by `pack`, or that file
 *     kv         pages                                     written by `forward`
 *     step       rows, page tables, ids, logits, sampler rows, history, lists, masks, state,
 * records, hidden states
 *
 * What a step reads and the engine writes for the next one exists twice, by the step's parity.
 * What belongs to a slot exists once per slot and is only appended to while a step is in flight:
 * a page table's entries, history.
 */
#ifndef ECH_ENGINE_MEMORY_H
#define ECH_ENGINE_MEMORY_H

#include "echelon/worker.h"
#include "src/chip/sampler.h"
#include "src/chip/step.h"
#include "src/engine/sched.h"
#include "src/model/cache.h"

/* Ints of one slot's lists: what a request may list itself, and as many for DRY's breakers. */
#define ECH_MAX_LISTS      16384u
#define ECH_LISTS_PER_SLOT (2 * ECH_MAX_LISTS)
#define ECH_OUT_STRIDE     ECH_SAMPLE_OUT_BYTES(ECH_SAMPLE_TOP_DEFAULT)

typedef struct ech_memory_shape {
    uint32_t max_rows;    /* of a step */
    uint32_t max_running; /* slots, ≤ ECH_SCHED_MAX_RUNNING */
    uint32_t max_seq_len;
    uint32_t vocab;
    uint32_t hidden; /* numbers of a hidden state */
    uint32_t n_pages;
    uint64_t page_bytes;
    uint64_t weights_bytes;
} ech_memory_shape;

typedef struct ech_area {
    ech_buffer buffer;
    uint8_t *ptr;
    uint64_t bytes;
} ech_area;

typedef struct ech_memory {
    ech_memory_shape shape;
    uint32_t n_sources;
    ech_area *sources; // [n_sources]
    ech_area cache;    // the cache file, where the weights are copied out of it
    ech_region weights_region;
    ech_area weights;
    ech_area kv;      // u8  [n_pages, page_bytes]
    ech_area rows;    // ech_row [2, max_rows]
    ech_area tables;  // u32 [max_running, pages of max_seq_len]
    ech_area ids;     // i32 [2, MAX_RUNNING]
    ech_area logits;  // f32 [MAX_LOGITS, vocab]
    ech_area srows;   // ech_sampler_row [2, MAX_LOGITS]
    ech_area history; // i32 [max_running, max_seq_len]
    ech_area lists;   // i32 [max_running, ECH_LISTS_PER_SLOT]
    ech_area masks;   // u32 [2, MAX_RUNNING, words of vocab]
    ech_area state;   // f32 [MAX_RUNNING, 2]
    ech_area out;     // u8  [2, MAX_LOGITS, ECH_OUT_STRIDE]
    ech_area hidden;  // f32 [2, max_rows, hidden] of embeddings; empty pages until the first one
} ech_memory;

/*
 * Makes every region of a NEW worker. They are the worker's; fini frees the table alone. file: NULL
 * or packed weights; is_mapped: they are the region `weights` themselves.
 */
ech_status ech_memory_map(ech_memory *m, ech_worker *w, const ech_memory_shape *shape,
                          const ech_model *model, const ech_cache_file *file, bool is_mapped,
                          ech_error *err);
void ech_memory_fini(ech_memory *m);
/* Bytes of the step's areas, for the plan that is printed. */
uint64_t ech_memory_step_bytes(const ech_memory_shape *shape);
/* About how much of the weights is there: looks at a sample of pages. */
uint64_t ech_memory_weights_filled(const ech_memory *m);

static inline uint32_t ech_memory_table_len(const ech_memory_shape *const s)
{
    return (s->max_seq_len + ECH_KV_TOKENS - 1) / ECH_KV_TOKENS;
}

#endif
