/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to an engine while a test runs on it, by a thread of its own: chips that are killed
 * every few steps, pages that are crossed on purpose.
 */
#ifndef ECH_TESTS_UNIT_ENGINE_TROUBLE_H
#define ECH_TESTS_UNIT_ENGINE_TROUBLE_H

#include <pthread.h>

#include "src/engine/engine_int.h"

typedef enum h_trouble_kind { H_NO_TROUBLE, H_CHIPS_DIE, H_PAGES_CROSS } h_trouble_kind;

typedef struct h_trouble {
    ech_engine *engine;
    h_trouble_kind kind;
    uint32_t every; // steps from one kill to the next, about
    uint32_t ends;  // atomic
    uint32_t n_kills;
    pthread_t thread;
} h_trouble;

void h_trouble_start(h_trouble *t, ech_engine *e, h_trouble_kind kind, uint32_t every);
/* Ends it; how many chips were killed. */
uint32_t h_trouble_stop(h_trouble *t);

#endif
