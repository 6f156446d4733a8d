/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control lane: one command at a time to one child, answered whatever runs there. A command
 * that isn't answered in time poisons the endpoint, since its answer might come to the next one.
 */
#ifndef ECH_RUNTIME_CONTROL_H
#define ECH_RUNTIME_CONTROL_H

#include "src/runtime/node.h"

/* Lock held; given up while waiting. resp and ret_len may be NULL when cap is 0. */
ech_status ech_control_send(ech_worker *w, uint32_t child, int32_t op, uint32_t arg,
                            const void *req, size_t req_len, void *resp, size_t cap,
                            size_t *ret_len, double timeout_s, ech_error *err);

#endif
