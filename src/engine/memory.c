/* SPDX-License-Identifier: Apache-2.0 */
/* The shared regions of an engine. See memory.h. Runs before the fork, on the opening thread. */
#include "src/engine/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/error.h"

_Static_assert(ECH_KV_TOKENS == 32, "pages are those of src/chip/kv.h");

typedef struct area_plan {
    const char *name;
    size_t offset; /* of the ech_area in ech_memory */
    uint64_t bytes;
} area_plan;

enum { N_STEP_AREAS = 11 };

static void plan_areas(const ech_memory_shape *s, area_plan plan[N_STEP_AREAS])
{
    const uint64_t slots = s->max_running;
    const area_plan areas[N_STEP_AREAS] = {
        { "step.rows", offsetof(ech_memory, rows), UINT64_C(2) * s->max_rows * sizeof(ech_row) },
        { "step.tables", offsetof(ech_memory, tables), slots * ech_memory_table_len(s) * 4 },
        { "step.ids", offsetof(ech_memory, ids), UINT64_C(2) * ECH_SCHED_MAX_RUNNING * 4 },
        { "step.logits", offsetof(ech_memory, logits),
          (uint64_t)ECH_STEP_MAX_LOGITS * s->vocab * 4 },
        { "step.sampler_rows", offsetof(ech_memory, srows),
          UINT64_C(2) * ECH_STEP_MAX_LOGITS * sizeof(ech_sampler_row) },
        { "step.history", offsetof(ech_memory, history), slots * s->max_seq_len * 4 },
        { "step.lists", offsetof(ech_memory, lists), slots * ECH_LISTS_PER_SLOT * 4 },
        { "step.masks", offsetof(ech_memory, masks),
          UINT64_C(2) * ECH_SCHED_MAX_RUNNING * ECH_MASK_WORDS(s->vocab) * 4 },
        { "step.state", offsetof(ech_memory, state), (uint64_t)ECH_SCHED_MAX_RUNNING * 2 * 4 },
        { "step.records", offsetof(ech_memory, out),
          UINT64_C(2) * ECH_STEP_MAX_LOGITS * ECH_OUT_STRIDE },
        { "step.hidden", offsetof(ech_memory, hidden),
          UINT64_C(2) * s->max_rows * s->hidden * sizeof(float) },
    };
    memcpy(plan, areas, sizeof areas);
}

uint64_t ech_memory_step_bytes(const ech_memory_shape *shape)
{
    area_plan plan[N_STEP_AREAS];
    uint64_t bytes = 0;
    plan_areas(shape, plan);
    for (int i = 0; i < N_STEP_AREAS; i++)
        bytes += plan[i].bytes;
    return bytes;
}

static ech_status map_sources(ech_memory *m, ech_worker *w, const ech_model *model, ech_error *err)
{
    const uint32_t n = ech_model_n_sources(model);
    m->sources = calloc(n, sizeof *m->sources);
    if (m->sources == NULL) return ech_fail(err, ECH_ENOMEM, "mapping the model: out of memory");
    m->n_sources = n;
    for (uint32_t i = 0; i < n; i++) {
        const ech_model_source src = ech_model_source_at(model, i);
        char name[32];
        ech_region region;
        (void)snprintf(name, sizeof name, "source.%u", i);
        ECH_TRY(ech_worker_region_map_file(w, name, src.path, &region, err));
        /* What was checked must be what is packed: a file that has changed since is another. */
        if (region.bytes != src.bytes)
            return ech_fail(err, ECH_EFORMAT,
                            "mapping %s: it had %llu bytes a moment ago and has %llu now", src.path,
                            (unsigned long long)src.bytes, (unsigned long long)region.bytes);
        m->sources[i] = (ech_area){ .ptr = region.ptr, .bytes = region.bytes };
        ECH_TRY(ech_worker_buffer_at(w, &region, 0, region.bytes, ECH_ACCESS_READ,
                                     &m->sources[i].buffer, err));
    }
    return ECH_OK;
}

/* By its descriptor: what was checked is what is mapped, whatever its name means by now. */
static ech_status map_cache(ech_worker *w, const char *name, const ech_cache_file *file,
                            ech_region *ret_region, ech_area *ret_area, ech_error *err)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    ECH_TRY(ech_worker_region_map_file(w, name, path, ret_region, err));
    if (ret_region->bytes != file->bytes)
        return ech_fail(err, ECH_EFORMAT, "mapping %s: it changed its size just now", file->path);
    *ret_area = (ech_area){ .ptr = ret_region->ptr, .bytes = ret_region->bytes };
    return ech_worker_buffer_at(w, ret_region, 0, ret_region->bytes, ECH_ACCESS_READ,
                                &ret_area->buffer, err);
}

static ech_status map_region(ech_worker *w, const char *name, uint64_t bytes,
                             ech_region *ret_region, ech_area *ret_area, ech_error *err)
{
    ECH_TRY(ech_worker_region_create(w, name, bytes, ECH_REGION_HUGE, ret_region, err));
    *ret_area = (ech_area){ .ptr = ret_region->ptr, .bytes = bytes };
    return ech_worker_buffer_at(w, ret_region, 0, bytes, ECH_ACCESS_RW, &ret_area->buffer, err);
}

static ech_status map_weights(ech_memory *m, ech_worker *w, const ech_cache_file *file,
                              bool is_mapped, ech_error *err)
{
    ech_region cache_region;
    if (file != NULL && is_mapped)
        return map_cache(w, "weights", file, &m->weights_region, &m->weights, err);
    if (file != NULL) ECH_TRY(map_cache(w, "cache", file, &cache_region, &m->cache, err));
    return map_region(w, "weights", m->shape.weights_bytes, &m->weights_region, &m->weights, err);
}

ech_status ech_memory_map(ech_memory *m, ech_worker *w, const ech_memory_shape *shape,
                          const ech_model *model, const ech_cache_file *file, bool is_mapped,
                          ech_error *err)
{
    *m = (ech_memory){ .shape = *shape };
    ech_region kv_region;
    ECH_TRY(map_sources(m, w, model, err));
    ECH_TRY(map_weights(m, w, file, is_mapped, err));
    ECH_TRY(map_region(w, "kv", shape->n_pages * shape->page_bytes, &kv_region, &m->kv, err));
    area_plan plan[N_STEP_AREAS];
    plan_areas(shape, plan);
    for (int i = 0; i < N_STEP_AREAS; i++) {
        ech_area *const a = (ech_area *)(void *)((char *)m + plan[i].offset);
        ECH_TRY(ech_worker_buffer_create(w, plan[i].name, plan[i].bytes, ECH_ACCESS_RW, &a->buffer,
                                         err));
        a->ptr = ech_worker_buffer_ptr(w, a->buffer);
        a->bytes = plan[i].bytes;
    }
    return ECH_OK;
}

void ech_memory_fini(ech_memory *m)
{
    free(m->sources);
    *m = (ech_memory){ 0 };
}

uint64_t ech_memory_weights_filled(const ech_memory *m)
{
    enum { SAMPLES = 256 };
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n_pages = m->weights.bytes / page;
    const uint64_t samples = n_pages < SAMPLES ? n_pages : SAMPLES;
    uint64_t n_there = 0;
    for (uint64_t i = 0; i < samples; i++) {
        unsigned char is_there = 0;
        (void)mincore(m->weights.ptr + n_pages * i / samples * page, page, &is_there);
        n_there += is_there & 1;
    }
    return samples > 0 ? m->weights.bytes / samples * n_there : 0;
}
