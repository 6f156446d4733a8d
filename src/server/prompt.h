/* SPDX-License-Identifier: Apache-2.0 */
/* Raw prompts in the four shapes that clients send: a string, strings, ids, lists of ids. */
#ifndef ECH_SERVER_PROMPT_H
#define ECH_SERVER_PROMPT_H

#include "src/server/exchange.h"

#define ECH_PROMPTS_MAX 4096

/* Sets options->prompts, in the exchange's arena or its JSON. False: the answer is set. */
bool ech_prompts_take(ech_exchange *x, const json_t *v, const char *param,
                      ech_request_options *options);

#endif
