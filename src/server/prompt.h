/* SPDX-License-Identifier: Apache-2.0 */
/* Raw prompts in the four shapes that clients send: a string, strings, ids, lists of ids. */
#ifndef ECH_SERVER_PROMPT_H
#define ECH_SERVER_PROMPT_H

#include "src/server/fields.h"

#define ECH_PROMPTS_MAX 4096

/* Sets options->prompts, in the exchange's arena or its JSON. False: the answer is set. */
bool ech_prompts_take(ech_exchange *x, const json_t *v, const char *param,
                      ech_request_options *options);
/*
 * What fields say of prompts beyond their text: suffix, truncate_prompt_tokens; with these, or with
 * return_token_ids, texts become ids here and not in the engine. False: the answer is set.
 */
bool ech_prompts_prepare(ech_exchange *x, const ech_params *p, ech_request_options *options);
/* Of each prompt of ids only the last ones, as truncate_prompt_tokens says. */
void ech_prompts_truncate(const ech_exchange *x, const ech_params *p, ech_request_options *options);

#endif
