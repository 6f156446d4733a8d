/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zygote: the worker's only direct child, one thread, parent of all its other processes. It
 * was forked when everything was mapped and nothing was running, so whatever it forks, the first
 * time or after a death, starts from the same picture. It watches the worker's end, its children's
 * ends and a socket with requests; pid and exit status go into the shared table, and a process
 * entry is reaped only when the worker has read them, so that no pid is used twice meanwhile.
 */
#ifndef ECH_RUNTIME_ZYGOTE_H
#define ECH_RUNTIME_ZYGOTE_H

#include "src/runtime/node.h"

/* Forks it. The lock is not held: the fork copies it free. */
ech_status ech_zygote_start(ech_worker *w, ech_error *err);
/* Requests; a zygote that is gone is noticed by events.c, so these can't fail. */
void ech_zygote_spawn(ech_worker *w, uint32_t child, uint32_t generation);
void ech_zygote_reap(ech_worker *w, uint32_t child);
/* Tells it to leave, waits, kills it if it doesn't, and reaps it. ETIMEOUT when even that fails. */
ech_status ech_zygote_stop(ech_worker *w, ech_error *err);

#endif
