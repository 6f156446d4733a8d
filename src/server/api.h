/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of the routes (route.c); each is described where it is defined. */
#ifndef ECH_SERVER_API_H
#define ECH_SERVER_API_H

#include "src/server/exchange.h"

void ech_api_chat(ech_exchange *x);
void ech_api_completions(ech_exchange *x);
void ech_api_responses(ech_exchange *x);
void ech_api_messages(ech_exchange *x);
void ech_api_count_tokens(ech_exchange *x);
void ech_api_embeddings(ech_exchange *x);
void ech_api_apply_template(ech_exchange *x);
void ech_api_tokenize(ech_exchange *x);
void ech_api_detokenize(ech_exchange *x);
void ech_api_models(ech_exchange *x);
void ech_api_model(ech_exchange *x);
void ech_api_health(ech_exchange *x);
void ech_api_live(ech_exchange *x);
void ech_api_version(ech_exchange *x);
void ech_api_props(ech_exchange *x);
void ech_api_requests(ech_exchange *x);
void ech_api_cancel(ech_exchange *x);
void ech_api_metrics(ech_exchange *x);
void ech_api_openapi(ech_exchange *x);
void ech_api_page(ech_exchange *x);

#endif
