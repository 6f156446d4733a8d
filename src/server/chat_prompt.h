/* SPDX-License-Identifier: Apache-2.0 */
/* From messages to a prompt: history put in order, the template rendered, ids by origin. */
#ifndef ECH_SERVER_CHAT_PROMPT_H
#define ECH_SERVER_CHAT_PROMPT_H

#include "echelon/template.h"
#include "src/server/guide.h"

/* The template of the served model; without one chat answers 400. */
typedef struct ech_chat_template {
    ech_template *compiled; /* NULL: the model has none */
    const char *why_not;    /* then: what to tell a client; static */
    ech_buf source;
    ech_ids markers; /* ids that only the template may write, besides special ones */
} ech_chat_template;

/*
 * From file (NULL: none), else what the model's own file holds (GGUF), else chat_template.jinja or
 * tokenizer_config.json of the model's folder.
 */
ech_status ech_chat_template_open(ech_chat_template *t, const char *file, const ech_engine *engine,
                                  const char *model_dir, ech_error *err);
void ech_chat_template_close(ech_chat_template *t);

/* Sets options->prompts from the request's messages. False: the answer is set. */
bool ech_chat_prompt(ech_exchange *x, ech_generation *g, ech_request_options *options);

#endif
