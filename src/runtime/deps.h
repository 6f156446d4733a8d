/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of one run, kept for a dump: tasks and the edges between them. Lock held. */
#ifndef ECH_RUNTIME_DEPS_H
#define ECH_RUNTIME_DEPS_H

#include "src/runtime/graph.h"

typedef struct ech_deps ech_deps;

/* NULL when there is no memory: the dump then says that it wasn't kept. */
ech_deps *ech_deps_new(const ech_worker *w);
void ech_deps_free(ech_deps **deps);
/* All of these take NULL and do nothing. */
void ech_deps_edge(ech_deps *deps, const ech_slot *producer, const ech_slot *consumer);
void ech_deps_terminal(ech_deps *deps, const ech_slot *slot);

#endif
