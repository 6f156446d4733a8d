/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callables: what children can run, named by the SHA-256 of their canonical descriptor. The table
 * and the programs' bytes live in shared memory, where a replaced child reads them again.
 *
 *     host, orchestration   kind, name, ABI version, build id of the image, offset in it
 *     program               kind, platform's kind, name, length, bytes
 */
#ifndef ECH_RUNTIME_REGISTRY_H
#define ECH_RUNTIME_REGISTRY_H

#include "src/runtime/node.h"

#define ECH_CALLABLE_ABI 1u
#define ECH_MAX_TICKETS  32u /* registrations of one digest at one time */

/* Notes the images that are loaded now: only their functions exist in the children. */
void ech_registry_note_images(ech_worker *w);
/* EINVAL when a callable has no child that could run it. */
ech_status ech_registry_check_runnable(const ech_worker *w, ech_error *err);
/* The entry of a current handle; ESTALE otherwise. Lock held. */
ech_status ech_registry_find(const ech_worker *w, const ech_callable *c, uint32_t *ret_index,
                             ech_error *err);
/* Whether a child of this kind (ech_endpoint_kind) can run a callable of this kind. */
bool ech_registry_runs(const ech_worker *w, uint32_t endpoint_kind, uint32_t callable_kind);

#endif
