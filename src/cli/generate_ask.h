/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `echelon generate` is asked beyond plain prompts: a conversation, tools, reasoning, and what
 * the answer must be. The flags become a request as /v1/chat/completions takes it, and the same
 * functions read it as in the server (chat.h, guide.h).
 */
#ifndef ECH_CLI_GENERATE_ASK_H
#define ECH_CLI_GENERATE_ASK_H

#include <jansson.h>

#include "echelon/chat.h"
#include "echelon/engine.h"
#include "echelon/guide.h"
#include "src/base/buf.h"
#include "src/cli/options.h"

/* As the command line has them; NULL and false: not given. */
typedef struct ech_ask_flags {
    const char *schema; /* a file, or JSON */
    bool json_object;
    const char *regex;
    ech_strings choices;
    const char *grammar; /* a file */
    const char *chat;    /* a file of messages, or of a whole request; "-": standard input */
    const char *tools;   /* a file */
    const char *tool_choice;
    const char *template_path, *template_kwargs;
    const char *reasoning_effort, *reasoning_parser, *tool_call_parser;
    bool enable_thinking, no_thinking;
    int64_t reasoning_budget; /* -1: not given */
} ech_ask_flags;

/* Starts as { 0 }; one thread. */
typedef struct ech_ask {
    ech_buf request; /* JSON */
    json_t *file;    /* what --chat holds */
    bool is_chat;
    ech_guide *guide;
    ech_constraint *constraint;
    ech_chat *chat;
    ech_chat_prompt made;
    ech_prompt prompt; /* of a chat: the made ids */
} ech_ask;

/* Reads the files and the JSON that the flags name. EINVAL says which flag is wrong. */
ech_status ech_ask_read(ech_ask *a, const ech_ask_flags *f, ech_error *err);
/*
 * Fills what the request asks of the answer into *o, and its prompt if it is a chat. What is
 * pointed to lives as long as *a, which must outlive the request. The engine is ready.
 */
ech_status ech_ask_apply(ech_ask *a, const ech_ask_flags *f, ech_engine *engine,
                         ech_request_options *o, ech_error *err);
/* Frees everything. */
void ech_ask_fini(ech_ask *a);

#endif
