/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes: what a method and a path lead to. */
#ifndef ECH_SERVER_ROUTE_H
#define ECH_SERVER_ROUTE_H

#include "src/server/exchange.h"

/*
 * The route of a request; *ret_tail is what follows a path that takes a tail. NULL when there is
 * none: *ret_allow is then NULL for an unknown path, else the methods that the path has.
 */
const ech_route *ech_route_find(const char *method, const char *path, const char **ret_tail,
                                const char **ret_allow);
/* All of them, for /openapi.json. */
const ech_route *ech_route_at(size_t idx);

#endif
