/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON line per request, when it is over: who, what, how long, how many tokens; a text only
 * where
 * --audit-text asks for it. */
#ifndef ECH_SERVER_AUDIT_H
#define ECH_SERVER_AUDIT_H

#include "src/server/exchange.h"

void ech_audit_write(const ech_exchange *x);
/* A request that was refused before it had a route: its framing was bad, or it came too slowly. */
void ech_audit_write_refused(ech_server *server, const char *id, int status, const char *code);

#endif
