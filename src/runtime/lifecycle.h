/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping: what init.c and close.c share. */
#ifndef ECH_RUNTIME_LIFECYCLE_H
#define ECH_RUNTIME_LIFECYCLE_H

#include "src/runtime/node.h"

/* How long a rollback may take, and how long a ready child has to leave before it is killed. */
#define ECH_ROLLBACK_NS (INT64_C(10) * ECH_NS_PER_S)

/*
 * Lock held. Asks all children to leave (those that are still starting are killed at once), kills
 * what is left at grace_ns, gives up at hard_ns (absolute). ETIMEOUT names a survivor.
 */
ech_status ech_stop_children(ech_worker *w, int64_t grace_ns, int64_t hard_ns, ech_error *err);
/* Asks the zygote for a child's process and prepares its mailbox. Lock held. */
void ech_start_child(ech_worker *w, uint32_t child);
/* Whether a STARTING child has become READY, or why it can't; ECH_EAGAIN: not yet. Lock held. */
ech_status ech_child_started(ech_worker *w, uint32_t child, ech_error *err);
/* Frees the graph and what else init made in private memory. */
void ech_worker_free_graph(ech_worker *w);

#endif
