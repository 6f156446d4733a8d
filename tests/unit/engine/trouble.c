/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/trouble.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/test.h"

/* Strikes every few steps, so that something is committed in between. */
static void kill_chips(h_trouble *t)
{
    uint64_t at = 3;
    while (!ech_load_acquire(&t->ends)) {
        (void)usleep(500);
        const uint64_t steps = h_counters(t->engine).steps;
        ech_child_info info;
        if (steps < at || ech_worker_child_info(t->engine->worker, 0, &info, NULL) != ECH_OK)
            continue;
        if (info.state != ECH_CHILD_READY || info.pid <= 0) continue;
        (void)kill(info.pid, SIGKILL);
        t->n_kills++;
        at = steps + t->every / 2 + steps % t->every;
    }
}

/* Exchanges what two pages hold, again and again. */
static void cross_pages(h_trouble *t)
{
    const ech_memory *const m = &t->engine->memory;
    const uint64_t bytes = m->shape.page_bytes;
    uint8_t *const kept = malloc(bytes);
    uint64_t rng = 1;
    while (!ech_load_acquire(&t->ends)) {
        uint8_t *const a = m->kv.ptr + h_draw(&rng, m->shape.n_pages) * bytes;
        uint8_t *const b = m->kv.ptr + h_draw(&rng, m->shape.n_pages) * bytes;
        memcpy(kept, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, kept, bytes);
        (void)usleep(2000);
    }
    free(kept);
}

static void *run(void *arg)
{
    h_trouble *const t = arg;
    if (t->kind == H_CHIPS_DIE) kill_chips(t);
    if (t->kind == H_PAGES_CROSS) cross_pages(t);
    return NULL;
}

void h_trouble_start(h_trouble *t, ech_engine *e, h_trouble_kind kind, uint32_t every)
{
    *t = (h_trouble){ .engine = e, .kind = kind, .every = every };
    assert_int_equal(pthread_create(&t->thread, NULL, run, t), 0);
}

uint32_t h_trouble_stop(h_trouble *t)
{
    ech_store_release(&t->ends, 1);
    (void)pthread_join(t->thread, NULL);
    return t->n_kills;
}
