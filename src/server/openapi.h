/* SPDX-License-Identifier: Apache-2.0 */
/* What the server takes and gives, in words and for machines: made of the tables of routes and
 * fields. */
#ifndef ECH_SERVER_OPENAPI_H
#define ECH_SERVER_OPENAPI_H

#include <jansson.h>

#include "src/base/buf.h"

/* The document of GET /openapi.json: OpenAPI 3.1. ENOMEM. */
ech_status ech_openapi_put(ech_buf *b);
/* docs/api.md, Markdown. ENOMEM. */
ech_status ech_api_doc_put(ech_buf *b);
/* Schemas of the answers, by name (openapi_schemas.c); a new reference, NULL: out of memory. */
json_t *ech_openapi_schemas(void);

#endif
