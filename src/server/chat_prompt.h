/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to a prompt: the model's template, found and opened; a conversation made ids. */
#ifndef ECH_SERVER_CHAT_PROMPT_H
#define ECH_SERVER_CHAT_PROMPT_H

#include "echelon/chat.h"
#include "src/server/guide.h"

/* The template of the served model; without one chat answers 400. */
typedef struct ech_served_chat {
    ech_chat *chat;      /* NULL: the model has none */
    const char *why_not; /* then: what to tell a client; static */
    ech_buf source;
    json_t *kwargs; /* variables that a request may replace; NULL: none */
    bool has_reasoning_content, has_reasoning; /* fields that reasoning is returned in */
} ech_served_chat;

/* From file (NULL: none), else what the engine's model holds, else chat_template.jinja or
 * tokenizer_config.json of its folder. */
ech_status ech_served_chat_open(ech_served_chat *t, const char *file, const ech_engine *engine,
                                const char *model_dir, ech_error *err);
/* --chat-template-kwargs and --reasoning-field; either may be NULL. EINVAL. */
ech_status ech_served_chat_set(ech_served_chat *t, const char *kwargs, const char *reasoning_field,
                               ech_error *err);
void ech_served_chat_close(ech_served_chat *t);

/*
 * Sets options->prompts from the messages of g->params, and what the request asks of the answer's
 * form (guide.h). False: the answer is set.
 */
bool ech_chat_take(ech_exchange *x, ech_generation *g, ech_request_options *options);

#endif
