/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the last run's steps reached, kept for `echelon doctor` in a small file of the cache folder
 * ($XDG_CACHE_HOME/echelon/last-run.json, else ~/.cache). Written when a command closes its engine;
 * a folder that can't be written means that nothing is remembered.
 */
#ifndef ECH_CLI_LAST_RUN_H
#define ECH_CLI_LAST_RUN_H

#include "echelon/engine.h"

typedef struct ech_last_run {
    char command[32];
    char model[256]; /* the last 255 bytes of its path */
    int64_t time;    /* seconds since 1970 */
    ech_meter_kind product;
    double bytes_per_second; /* weights read by steps of one row; 0: there were none */
    double macs_per_second;  /* of prompt rows; 0: there were none */
} ech_last_run;

/* Remembers what this engine's steps reached; nothing when it made none. */
void ech_last_run_keep(const char *command, ech_engine *engine);
/* False when there is none, or none that can be read. */
bool ech_last_run_read(ech_last_run *ret);

#endif
