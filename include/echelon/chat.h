/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/chat.h - from a conversation to a prompt: history put in order, the chat template
 * rendered, ids by origin.
 *
 *     ech_chat *chat;
 *     ech_chat_prompt p = { 0 };
 *     ech_error err;
 *     if (ech_chat_open(&chat, source, source_len, tok, &err) != ECH_OK) …
 *     if (ech_chat_make_prompt(chat, request, request_len, NULL, &p, &err) != ECH_OK) …
 *     … p.ids.data[0 … p.ids.n) …
 *     ech_chat_prompt_release(&p);
 *     ech_chat_close(&chat);
 *
 * A request is JSON as /v1/chat/completions takes it. Its `messages`, `tools`, `tool_choice`,
 * `documents`, `chat_template_kwargs`, `add_generation_prompt`, `continue_final_message` and
 * `reasoning_effort` are looked at, and `chat_template_defaults`, which a server adds to it; everything else is ignored.
 *
 * ## What is put in order before the template renders
 *
 * - `content` that is null or absent becomes "". A list of parts stays a list for a template that
 *   handles parts; for others the texts are joined. Parts that are not text are refused by place.
 * - `tool_calls[].function.arguments` that is a string and parses as an object is passed as one,
 *   its numbers printed as they were spelled; other strings stay strings. A template that only
 *   works with strings gets strings.
 * - `reasoning_content`, `reasoning` and `thinking` become the name that the template reads.
 *   `<think>…</think>` at the beginning of an assistant's content is split off into it.
 * - Calls that an assistant's content spells out in the model's own form (`<tool_call>…</tool_call>`)
 *   become its `tool_calls`, where it has none and all of them are complete.
 * - The role `developer` becomes `system`, unless the template knows it.
 * - Tool-call ids become nine letters and digits for templates that insist on them (Mistral's).
 * - `tools` is None when there are none, or with `tool_choice` "none"; an empty list for a template
 *   that walks it all the same. Members of `chat_template_kwargs` are variables; they can't replace
 *   messages, tools and documents. A `reasoning_effort` of "none" makes enable_thinking false, unless
 *   they set it. Members of `chat_template_defaults` are variables that all this leaves open.
 * - bos_token, eos_token and their kin come from the tokenizer.
 *
 * ## Control tokens
 *
 * An added token of the vocabulary that is special, or that the template itself writes
 * (`<think>`, `<tool_call>`), becomes its id only where all its bytes are the template's. What a
 * user, a tool or a document says is text, whatever it looks like.
 *
 * Threads: an open ech_chat never changes; any number of threads may use it at once.
 */
#ifndef ECHELON_CHAT_H
#define ECHELON_CHAT_H

#include "echelon/template.h"
#include "echelon/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A chat template made ready for one tokenizer. */
typedef struct ech_chat ech_chat;

/**
 * Compiles source[0..len), a Jinja template. tok must outlive the result; it may be NULL, then
 * prompts have text and spans but no ids, and bos_token and its kin are taken from the request.
 *
 * Ownership: on success *ret_chat is the caller's, released with ech_chat_close(). On failure it
 * is untouched. Errors: those of ech_template_compile().
 */
ECH_API ech_status ech_chat_open(ech_chat **ret_chat, const char *source, size_t len,
                                 const ech_tokenizer *tok, ech_error *err);

/** Releases it and sets *chat to NULL. NULL is fine. */
ECH_API void ech_chat_close(ech_chat **chat);

/** The compiled template, for its introspection; borrowed. */
ECH_API const ech_template *ech_chat_template(const ech_chat *chat);

/**
 * The template of a model's folder: chat_template.jinja, or what older folders keep in
 * tokenizer_config.json, there the one named "default" where it has several.
 *
 * Ownership: on success *ret_source is the caller's, released with free(); a zero byte follows that
 * *ret_len doesn't count. On failure both are untouched.
 * Errors: ENOTFOUND the folder has none, or dir is a file; EIO, ELIMIT, ENOMEM.
 */
ECH_API ech_status ech_chat_read_source(char **ret_source, size_t *ret_len, const char *dir,
                                        ech_error *err);

/** A prompt: what the model is given. */
typedef struct ech_chat_prompt {
    ech_rendered rendered;   /* the text and whose bytes they are */
    ech_ids ids;             /* empty without a tokenizer */
} ech_chat_prompt;

/**
 * Makes the prompt of request[0..len), a JSON object.
 *
 * opts: limits and the time, as for ech_template_render(); NULL for the defaults. Its
 * spelled_numbers is not looked at.
 *
 * With `continue_final_message` true the prompt ends with the last message's content, so that the
 * model goes on with it; `add_generation_prompt` (default true) is then taken as false.
 *
 * Ownership: on success *ret holds memory that ech_chat_prompt_release() frees. On failure it is
 * untouched.
 *
 * Errors: EINVAL when the request is not as it should be or the template refused it, err->text
 * says what, with the place first where a field is at fault ("messages[2].role: …"); those of
 * ech_template_render() otherwise.
 */
ECH_API ech_status ech_chat_make_prompt(const ech_chat *chat, const char *request, size_t len,
                                        const ech_template_options *opts, ech_chat_prompt *ret,
                                        ech_error *err);

/** Frees what a prompt holds and zeroes it; safe on a zeroed or released one. */
ECH_API void ech_chat_prompt_release(ech_chat_prompt *prompt);

#ifdef __cplusplus
}
#endif

#endif
