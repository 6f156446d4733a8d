/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of request fields and its parser. Invariant: no value reaches ech_params that is
 * outside its row's range. Text threads.
 *
 * The order of the rows is the order of the documentation. A name may stand in several rows, for
 * paths where it means something else (text, input, add_special_tokens); `where` then keeps them
 * apart, and no two rows of a name share a path. Limits here are those of the API (OpenAI's,
 * else what servers around have); what the model or the engine bounds is checked further down.
 */
#include "src/server/fields.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "echelon/parser.h"
#include "src/base/error.h"
#include "src/server/reply.h"
#include "src/server/state.h"

#define AT(field) offsetof(ech_params, field)
/* max below min: no bounds. */
#define NO_BOUNDS 1, 0
/*
 * Values end up in 32-bit fields of the engine's options: what is larger is refused here, not
 * cut.
 */
#define INT_BOUND 2147483647.0

/* Schemas of fields that take more than one form. */
#define IDS  "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}"
#define TEXT "{\"type\":\"string\"}"
#define PROMPTS                                                                                    \
    "{\"anyOf\":[" TEXT ",{\"type\":\"array\",\"minItems\":1,\"items\":" TEXT "}," IDS             \
    ",{\"type\":\"array\",\"minItems\":1,\"items\":" IDS "}]}"

/* OpenAI's, and what servers have added. */
#define EFFORTS "none|minimal|low|medium|high|xhigh|max"

static const ech_field FIELDS[] = {
    { "model", ECH_FIELD_STRING, ~0U, AT(model), NO_BOUNDS,
      "name of a served model; absent: the served one" },
    { "messages", ECH_FIELD_JSON, ECH_IN_CHAT | ECH_IN_MESSAGES, AT(messages), NO_BOUNDS,
      "the conversation, a list of messages", ECH_IN_CHAT | ECH_IN_MESSAGES,
      "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\"],"
      "\"properties\":{\"role\":{\"type\":\"string\"}}}}" },
    { "prompt", ECH_FIELD_JSON, ECH_IN_COMPLETIONS | ECH_IN_TOKENIZE, AT(prompt), NO_BOUNDS,
      "a string, a list of strings, a list of token ids, or a list of such lists; a string for "
      "/tokenize",
      ECH_IN_COMPLETIONS, PROMPTS },
    { "content", ECH_FIELD_JSON, ECH_IN_TOKENIZE, AT(content), NO_BOUNDS,
      "the text, under llama-server's name", 0, TEXT },
    { "text", ECH_FIELD_JSON, ECH_IN_TOKENIZE, AT(text), NO_BOUNDS,
      "the text, under another common name", 0, TEXT },
    { "text", ECH_FIELD_OBJECT, ECH_IN_RESPONSES, AT(text), NO_BOUNDS,
      "format: what response_format is in chat" },
    { "tokens", ECH_FIELD_JSON, ECH_IN_DETOKENIZE, AT(tokens), NO_BOUNDS, "token ids",
      ECH_IN_DETOKENIZE, IDS },
    { "max_tokens", ECH_FIELD_INT, ECH_IN_OPENAI | ECH_IN_MESSAGES, AT(max_tokens), 0, INT_BOUND,
      "most tokens of an answer; completions: 16 when absent, 0 scores the prompt",
      ECH_IN_MESSAGES },
    { "max_completion_tokens", ECH_FIELD_INT, ECH_IN_CHAT, AT(max_completion_tokens), 1, INT_BOUND,
      "wins over max_tokens" },
    { "min_tokens", ECH_FIELD_INT, ECH_IN_GENERATION, AT(min_tokens), 0, INT_BOUND,
      "an answer does not end before it has so many" },
    { "temperature", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(temperature), 0, 100, "0 is greedy" },
    { "top_p", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(top_p), 1e-9, 1,
      "nucleus; keeps the token that crosses it" },
    { "top_k", ECH_FIELD_INT, ECH_IN_GENERATION, AT(top_k), -1, INT_BOUND, "0 or -1: off" },
    { "min_p", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(min_p), 0, 1,
      "relative to the most probable token" },
    { "typical_p", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(typical_p), 1e-9, 1,
      "locally typical sampling" },
    { "repetition_penalty", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(repetition_penalty), 0.001,
      1000, "1: off" },
    { "frequency_penalty", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(frequency_penalty), -2, 2,
      "per occurrence in the answer" },
    { "presence_penalty", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(presence_penalty), -2, 2,
      "once a token occurred in the answer" },
    { "dry_multiplier", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(dry_multiplier), 0, 1e6, "0: off" },
    { "dry_base", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(dry_base), 1, 1e6,
      "growth of the DRY penalty" },
    { "dry_allowed_length", ECH_FIELD_INT, ECH_IN_GENERATION, AT(dry_allowed_length), 0, 1 << 20,
      "repeats up to it are free" },
    { "dry_penalty_last_n", ECH_FIELD_INT, ECH_IN_GENERATION, AT(dry_range), -1, INT_BOUND,
      "tokens looked back at; -1: all" },
    { "dry_sequence_breakers", ECH_FIELD_STRINGS, ECH_IN_GENERATION, AT(dry_breakers), 0, 64,
      "texts that no repeat reaches over; absent: newline, colon, quote, star", 0, NULL, NULL,
      256 },
    { "xtc_probability", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(xtc_probability), 0, 1, "0: off" },
    { "xtc_threshold", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(xtc_threshold), 0, 1,
      "probability from which XTC removes" },
    { "mirostat", ECH_FIELD_INT, ECH_IN_GENERATION, AT(mirostat), 0, 2,
      "0: off, else the version" },
    { "mirostat_tau", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(mirostat_tau), 0, 1000,
      "wanted surprise" },
    { "mirostat_eta", ECH_FIELD_NUMBER, ECH_IN_GENERATION, AT(mirostat_eta), 0, 1000,
      "learning rate" },
    { "seed", ECH_FIELD_INT, ECH_IN_GENERATION, AT(seed), -0x1p63, 0x1p63,
      "choice k draws with seed + k; absent: drawn" },
    { "n", ECH_FIELD_INT, ECH_IN_OPENAI, AT(n), 1, 128, "answers to each prompt" },
    { "stop", ECH_FIELD_STRINGS, ECH_IN_OPENAI, AT(stop), 0, 64,
      "strings that end the answer; none may be empty", 0, NULL, NULL,
      ECH_PARSER_MAX_STOP_BYTES },
    { "stop_token_ids", ECH_FIELD_IDS, ECH_IN_GENERATION, AT(stop_token_ids), 0, INT_BOUND,
      "ids that end the answer" },
    { "include_stop_str_in_output", ECH_FIELD_BOOL, ECH_IN_GENERATION, AT(include_stop), NO_BOUNDS,
      "keep the stop string" },
    { "ignore_eos", ECH_FIELD_BOOL, ECH_IN_GENERATION, AT(ignore_eos), NO_BOUNDS,
      "end-of-sequence tokens don't end the answer" },
    { "skip_special_tokens", ECH_FIELD_BOOL, ECH_IN_GENERATION, AT(skip_special), NO_BOUNDS,
      "leave special tokens out of the text" },
    { "add_special_tokens", ECH_FIELD_BOOL, ECH_IN_RAW | ECH_IN_TOKENIZE, AT(add_special),
      NO_BOUNDS, "what the post-processor adds" },
    { "add_special_tokens", ECH_FIELD_BOOL, ECH_IN_TURNS, AT(add_special_in_chat), NO_BOUNDS,
      "only false: the template writes what is special" },
    { "timings_per_token", ECH_FIELD_BOOL, ECH_IN_OPENAI, AT(timings), NO_BOUNDS,
      "timings so far in every chunk, and in a whole answer" },
    { "add_special", ECH_FIELD_BOOL, ECH_IN_TOKENIZE, AT(add_special), NO_BOUNDS,
      "the same, under llama-server's name" },
    { "parse_special", ECH_FIELD_BOOL, ECH_IN_RAW | ECH_IN_TOKENIZE, AT(parse_special), NO_BOUNDS,
      "special tokens written in a prompt count as such" },
    { "bad_words", ECH_FIELD_STRINGS, ECH_IN_GENERATION, AT(bad_words), 0, 1024,
      "words that don't occur in the answer", 0, NULL, NULL,
      510 },
    { "allowed_token_ids", ECH_FIELD_IDS, ECH_IN_GENERATION, AT(allowed_token_ids), 0, INT_BOUND,
      "only these are drawn" },
    { "logit_bias", ECH_FIELD_OBJECT, ECH_IN_GENERATION, AT(logit_bias), NO_BOUNDS,
      "an object: token id → number in [-100, 100]" },
    { "logprobs", ECH_FIELD_JSON, ECH_IN_OPENAI, AT(logprobs), NO_BOUNDS,
      "chat: true or false; completions: 0 to 20" },
    { "top_logprobs", ECH_FIELD_INT, ECH_IN_CHAT, AT(top_logprobs), 0, 20, "needs logprobs: true" },
    { "n_probs", ECH_FIELD_INT, ECH_IN_COMPLETIONS, AT(top_logprobs), 0, 20,
      "logprobs, under llama-server's name" },
    { "prompt_logprobs", ECH_FIELD_INT, ECH_IN_GENERATION, AT(prompt_logprobs), 0, 20,
      "log-probabilities of the prompt's tokens" },
    { "echo", ECH_FIELD_BOOL, ECH_IN_COMPLETIONS, AT(echo), NO_BOUNDS,
      "the prompt comes first in the text" },
    { "stream", ECH_FIELD_BOOL, ECH_IN_GENERATION, AT(stream), NO_BOUNDS, "server-sent events" },
    { "stream_options", ECH_FIELD_OBJECT, ECH_IN_OPENAI, AT(stream_options), NO_BOUNDS,
      "include_usage: one more chunk with the counts" },
    { "return_token_ids", ECH_FIELD_BOOL, ECH_IN_GENERATION, AT(return_token_ids), NO_BOUNDS,
      "token_ids of each answer, prompt_token_ids of its prompt" },
    { "priority", ECH_FIELD_INT, ECH_IN_GENERATION | ECH_IN_EMBEDDINGS, AT(priority), -INT_BOUND,
      INT_BOUND, "lower runs first" },
    { "cache_salt", ECH_FIELD_STRING, ECH_IN_GENERATION | ECH_IN_EMBEDDINGS, AT(cache_salt),
      NO_BOUNDS, "prompts are reused among requests of one salt" },
    { "chat_template_kwargs", ECH_FIELD_OBJECT, ECH_IN_TURNS, AT(chat_template_kwargs), NO_BOUNDS,
      "more variables for the template" },
    { "add_generation_prompt", ECH_FIELD_BOOL, ECH_IN_CHAT, AT(add_generation_prompt), NO_BOUNDS,
      "the answer's beginning ends the prompt" },
    { "continue_final_message", ECH_FIELD_BOOL, ECH_IN_CHAT, AT(continue_final_message), NO_BOUNDS,
      "go on with the last message" },
    { "documents", ECH_FIELD_JSON, ECH_IN_TURNS, AT(documents), NO_BOUNDS,
      "documents for templates that take them" },
    { "tools", ECH_FIELD_JSON, ECH_IN_TURNS, AT(tools), NO_BOUNDS,
      "functions that the model may call" },
    { "tool_choice", ECH_FIELD_JSON, ECH_IN_TURNS, AT(tool_choice), NO_BOUNDS,
      "none, auto, required, or a function by name" },
    { "parallel_tool_calls", ECH_FIELD_BOOL, ECH_IN_TURNS, AT(parallel_tool_calls), NO_BOUNDS,
      "several calls in one answer; default true" },
    { "response_format", ECH_FIELD_JSON, ECH_IN_OPENAI, AT(response_format), NO_BOUNDS,
      "text, json_object, or json_schema with a schema" },
    { "structured_outputs", ECH_FIELD_OBJECT, ECH_IN_GENERATION, AT(structured_outputs), NO_BOUNDS,
      "one of json, regex, choice, grammar, json_object" },
    { "json_schema", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(json_schema), NO_BOUNDS,
      "the same as structured_outputs.json" },
    { "guided_json", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(guided_json), NO_BOUNDS,
      "the same as structured_outputs.json" },
    { "guided_regex", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(guided_regex), NO_BOUNDS,
      "the same as structured_outputs.regex" },
    { "guided_choice", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(guided_choice), NO_BOUNDS,
      "the same as structured_outputs.choice" },
    { "guided_grammar", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(guided_grammar), NO_BOUNDS,
      "the same as structured_outputs.grammar" },
    { "grammar", ECH_FIELD_JSON, ECH_IN_GENERATION, AT(grammar), NO_BOUNDS,
      "the same as structured_outputs.grammar" },
    { "thinking_budget", ECH_FIELD_INT, ECH_IN_TURNS, AT(thinking_budget), -1, INT_BOUND,
      "most tokens of reasoning; -1: no bound" },
    { "reasoning_effort", ECH_FIELD_STRING, ECH_IN_CHAT, AT(reasoning_effort), NO_BOUNDS,
      "given to the template; none turns thinking off", 0, NULL, EFFORTS },
    { "input", ECH_FIELD_JSON, ECH_IN_RESPONSES, AT(input), NO_BOUNDS,
      "a string or a list of items", ECH_IN_RESPONSES },
    { "input", ECH_FIELD_JSON, ECH_IN_EMBEDDINGS, AT(input), NO_BOUNDS,
      "a string, a list of strings, a list of token ids, or a list of such lists",
      ECH_IN_EMBEDDINGS, PROMPTS },
    { "dimensions", ECH_FIELD_INT, ECH_IN_EMBEDDINGS, AT(dimensions), 1, INT_BOUND,
      "the first so many numbers, then scaled to length 1; at most what the model has" },
    { "encoding_format", ECH_FIELD_STRING, ECH_IN_EMBEDDINGS, AT(encoding_format), NO_BOUNDS,
      "float (default) or base64 of little-endian floats", 0, NULL, "float|base64" },
    { "suffix", ECH_FIELD_STRING, ECH_IN_COMPLETIONS, AT(suffix), NO_BOUNDS,
      "what follows the answer; for models with fill-in-the-middle tokens" },
    { "truncate_prompt_tokens", ECH_FIELD_INT, ECH_IN_GENERATION | ECH_IN_EMBEDDINGS,
      AT(truncate_prompt_tokens), -1, INT_BOUND,
      "only the last so many tokens of a prompt count; -1: as many as fit" },
    { "instructions", ECH_FIELD_STRING, ECH_IN_RESPONSES, AT(instructions), NO_BOUNDS,
      "the system prompt" },
    { "max_output_tokens", ECH_FIELD_INT, ECH_IN_RESPONSES, AT(max_output_tokens), 1, INT_BOUND,
      "most tokens of an answer" },
    { "reasoning", ECH_FIELD_OBJECT, ECH_IN_RESPONSES, AT(reasoning), NO_BOUNDS,
      "effort: given to the template" },
    { "include", ECH_FIELD_JSON, ECH_IN_RESPONSES, AT(include), NO_BOUNDS,
      "a list; there is nothing of it here, and log-probabilities are refused", 0,
      "{\"type\":\"array\",\"items\":" TEXT "}" },
    { "system", ECH_FIELD_JSON, ECH_IN_MESSAGES, AT(system), NO_BOUNDS,
      "the system prompt, a string or text blocks" },
    { "stop_sequences", ECH_FIELD_STRINGS, ECH_IN_MESSAGES, AT(stop_sequences), 0, 64,
      "strings that end the answer", 0, NULL, NULL,
      ECH_PARSER_MAX_STOP_BYTES },
    { "thinking", ECH_FIELD_OBJECT, ECH_IN_MESSAGES, AT(thinking), NO_BOUNDS,
      "type enabled, adaptive or disabled; budget_tokens" },
    { "output_format", ECH_FIELD_OBJECT, ECH_IN_MESSAGES, AT(output_format), NO_BOUNDS,
      "type json_schema and a schema: what response_format is in chat" },
    { "output_config", ECH_FIELD_OBJECT, ECH_IN_MESSAGES, AT(output_config), NO_BOUNDS,
      "format: the same as output_format; effort: given to the template" },
    { "best_of", ECH_FIELD_INT, ECH_IN_COMPLETIONS, AT(best_of), 1, 128,
      "only what n is: no answers are drawn that are not returned" },
    { "functions", ECH_FIELD_REFUSED, ECH_IN_CHAT, 0, NO_BOUNDS,
      "an older form that isn't taken: use tools" },
    { "function_call", ECH_FIELD_REFUSED, ECH_IN_CHAT, 0, NO_BOUNDS,
      "an older form that isn't taken: use tool_choice", 0, NULL, "none|auto" },
    { "modalities", ECH_FIELD_REFUSED, ECH_IN_CHAT, 0, NO_BOUNDS, "answers are text alone", 0, NULL,
      "text" },
    { "audio", ECH_FIELD_REFUSED, ECH_IN_CHAT, 0, NO_BOUNDS, "answers are text alone" },
    { "web_search_options", ECH_FIELD_REFUSED, ECH_IN_CHAT, 0, NO_BOUNDS,
      "nothing is looked up on the web" },
    { "use_beam_search", ECH_FIELD_REFUSED, ECH_IN_GENERATION, 0, NO_BOUNDS,
      "answers are drawn, no beams are searched" },
    { "prompt_embeds", ECH_FIELD_REFUSED, ECH_IN_OPENAI, 0, NO_BOUNDS,
      "prompts are texts or token ids" },
    { "background", ECH_FIELD_REFUSED, ECH_IN_RESPONSES, 0, NO_BOUNDS,
      "responses are not kept: the request waits for its own" },
    { "conversation", ECH_FIELD_REFUSED, ECH_IN_RESPONSES, 0, NO_BOUNDS,
      "conversations are not kept: send the items" },
    { "previous_response_id", ECH_FIELD_REFUSED, ECH_IN_RESPONSES, 0, NO_BOUNDS,
      "responses are not kept: send the items" },
    { "prompt", ECH_FIELD_REFUSED, ECH_IN_RESPONSES, 0, NO_BOUNDS,
      "prompts are not kept: send the items" },
    { "top_logprobs", ECH_FIELD_REFUSED, ECH_IN_RESPONSES, 0, NO_BOUNDS,
      "log-probabilities are in chat and completions" },
    { "mcp_servers", ECH_FIELD_REFUSED, ECH_IN_MESSAGES, 0, NO_BOUNDS,
      "tools are called by the client" },
    { "container", ECH_FIELD_REFUSED, ECH_IN_MESSAGES, 0, NO_BOUNDS, "nothing is run here" },
    { "cache_prompt", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS,
      "prompts are always cached" },
    { "user", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION | ECH_IN_EMBEDDINGS, 0, NO_BOUNDS,
      "no effect" },
    { "metadata", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS, "no effect" },
    { "store", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS, "no effect" },
    { "service_tier", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS, "no effect" },
    { "safety_identifier", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS, "no effect" },
    { "prompt_cache_key", ECH_FIELD_ACCEPTED, ECH_IN_GENERATION, 0, NO_BOUNDS, "no effect" },
};

#define N_FIELDS (sizeof FIELDS / sizeof FIELDS[0])
_Static_assert(sizeof FIELDS / sizeof FIELDS[0] <= 128, "ech_params.seen has a bit for each row");

size_t ech_fields_count(void)
{
    return N_FIELDS;
}
const ech_field *ech_field_at(const size_t idx)
{
    return &FIELDS[idx];
}

/* Zero and "not given" differ for a seed, for breakers, for what only an explicit value forbids. */
bool ech_fields_seen(const ech_params *const p, const char *const name)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if ((p->seen[i / 64] >> i % 64 & 1) != 0 && strcmp(FIELDS[i].name, name) == 0) return true;
    }
    return false;
}

/* NULL when v was taken, else what it must be. */
static const char *take_number(const ech_field *const f, const json_t *const v, void *const at)
{
    if (!json_is_number(v)) return "must be a number";
    const double d = json_number_value(v);
    if (!isfinite(d)) return "must be a finite number";
    if (f->max >= f->min && (d < f->min || d > f->max)) return "is out of range";
    *(float *)at = (float)d;
    return NULL;
}

/*
 * 1.0 is whole, 1.5 and "1" are not. The comparison is one of doubles, which hold every bound of
 * the table; 2^63 itself, which a double rounds to from below, is refused by hand.
 */
static const char *take_int(const ech_field *const f, const json_t *const v, void *const at)
{
    if (!json_is_number(v)) return "must be a whole number";
    const double d = json_number_value(v);
    if (!isfinite(d) || d != floor(d)) return "must be a whole number";
    if (f->max >= f->min && (d < f->min || d > f->max)) return "is out of range";
    if (json_is_real(v) && d >= 0x1p63) return "is out of range";
    *(int64_t *)at = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)d;
    return NULL;
}

/* Where a string ends early in C, what follows would be lost without a word. */
static bool has_zero_byte(const json_t *const v)
{
    return strlen(json_string_value(v)) != json_string_length(v);
}

/*
 * An empty string would match everywhere, and a zero byte would end it early in C: both refused.
 * A single string counts as a list of one. The pointers go into the request's JSON, the list
 * into the arena; both live as long as the exchange.
 */
static const char *take_strings(ech_exchange *const x, const ech_field *const f,
                                const json_t *const v, ech_field_strings *const list)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if ((double)n > f->max) return "has too many entries";
    list->items = ech_arena_array(&x->arena, n + 1, sizeof *list->items);
    if (list->items == NULL) return "does not fit in memory";
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(item)) return "must be a string or a list of strings";
        if (json_string_length(item) == 0)
            return "has an empty string, which would match everywhere";
        if (has_zero_byte(item)) return "has a zero byte";
        if (json_string_length(item) > f->entry_bytes) return "has an entry that is too long";
        list->items[list->n++] = json_string_value(item);
    }
    return NULL;
}

/* Ids index tables of the model's size: none outside reaches the engine. */
static const char *take_ids(ech_exchange *const x, const json_t *const v, ech_field_ids *const list)
{
    if (!json_is_array(v)) return "must be a list of token ids";
    const size_t n = json_array_size(v);
    const double vocab = (double)x->server->info.vocab_size;
    if ((double)n > vocab) return "has more entries than there are tokens";
    list->items = ech_arena_array(&x->arena, n + 1, sizeof *list->items);
    if (list->items == NULL) return "does not fit in memory";
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_array_get(v, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            (double)json_integer_value(item) >= vocab) {
            return "has an entry that is no token id of this model";
        }
        list->items[list->n++] = (int32_t)json_integer_value(item);
    }
    return NULL;
}

/* The length is compared as well: a word with a zero byte behind it is another word. */
bool ech_field_take_word(const ech_field *const f, const json_t *const v, const char **const ret)
{
    const char *const word = json_string_value(v);
    if (word == NULL) return false;
    for (const char *p = f->values; *p != '\0';) {
        const size_t n = strcspn(p, "|");
        if (n == json_string_length(v) && memcmp(p, word, n) == 0) {
            *ret = word;
            return true;
        }
        p += n + (p[n] == '|');
    }
    return false;
}

/* Whether a field that isn't done may have this value: one that says so, or one of its words. */
static bool asks_for_nothing(const ech_field *const f, const json_t *const v)
{
    const char *word;
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            const json_t *const item = json_array_get(v, i);
            if (f->values == NULL || !ech_field_take_word(f, item, &word)) return false;
        }
        return true;
    }
    if (json_is_string(v))
        return json_string_length(v) == 0 ||
               (f->values != NULL && ech_field_take_word(f, v, &word));
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
}

/* What is returned is the second half of a sentence whose first is the field's name. */
static const char *take(ech_exchange *const x, const ech_field *const f, const json_t *const v,
                        ech_params *const p)
{
    void *const at = (char *)p + f->offset;
    switch (f->kind) {
    case ECH_FIELD_NUMBER:
        return take_number(f, v, at);
    case ECH_FIELD_INT:
        return take_int(f, v, at);
    case ECH_FIELD_BOOL:
        if (!json_is_boolean(v)) return "must be true or false";
        *(bool *)at = json_is_true(v);
        return NULL;
    case ECH_FIELD_STRING:
        if (f->values != NULL)
            return ech_field_take_word(f, v, at) ? NULL : "must be one of";
        if (!json_is_string(v)) return "must be a string";
        if (has_zero_byte(v)) return "has a zero byte";
        *(const char **)at = json_string_value(v);
        return NULL;
    case ECH_FIELD_STRINGS:
        return take_strings(x, f, v, at);
    case ECH_FIELD_IDS:
        return take_ids(x, v, at);
    case ECH_FIELD_OBJECT:
        if (!json_is_object(v)) return "must be an object";
        *(const json_t **)at = v;
        return NULL;
    case ECH_FIELD_JSON:
        *(const json_t **)at = v;
        return NULL;
    case ECH_FIELD_ACCEPTED:
        return NULL;
    case ECH_FIELD_REFUSED:
        return asks_for_nothing(f, v) ? NULL : "can't be done here:";
    }
    return "is of no kind";
}

/* A walk over some ninety rows for each name of a body; a body has a dozen. */
const ech_field *ech_field_find(const char *const name, const unsigned where)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if ((FIELDS[i].where & where) != 0 && strcmp(FIELDS[i].name, name) == 0) return &FIELDS[i];
    }
    return NULL;
}

/*
 * A header can't carry what a name may: only names of ordinary characters are listed. An unknown
 * field is no error by default: SDKs send new ones before servers know them. The header tells
 * who looks, and is bounded, since a body may hold any number of names.
 */
static bool note_ignored(ech_exchange *const x, const char *const name)
{
    if (x->server->options.strict) {
        ech_reply_error(x, 400, "unknown_field", name,
                        "the field '%.100s' is not known here (--strict)", name);
        return false;
    }
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (strspn(name, PLAIN) != strlen(name) || x->ignored.len + strlen(name) > 1024) return true;
    if (x->ignored.len > 0 && ech_buf_puts(&x->ignored, ", ") != ECH_OK) return true;
    (void)ech_buf_puts(&x->ignored, name); /* out of memory: the header is shorter */
    return true;
}

/*
 * Walks the body, not the table: an unknown name has to be noticed. What is wrong first, in the
 * body's order, is what the answer names. A name that is repeated in the JSON never gets here
 * twice: the parser keeps the last. Whether a needed field is missing is for the dialect to say,
 * which knows what stands in for it.
 */
bool ech_fields_parse(ech_exchange *const x, const json_t *const body, const unsigned where,
                      ech_params *const p)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value)
    {
        const ech_field *const f = ech_field_find(name, where);
        if (f == NULL) {
            if (!note_ignored(x, name)) return false;
            continue;
        }
        /* null is what clients send for "not given". */
        if (json_is_null(value)) continue;
        const char *const why = take(x, f, value, p);
        if (why != NULL) {
            if (f->kind == ECH_FIELD_REFUSED) {
                ech_reply_error(x, 400, "unsupported_value", name, "%s %s %s", name, why, f->doc);
            } else if (f->values != NULL) {
                ech_reply_error(x, 400, "invalid_value", name, "%s %s %s", name, why, f->values);
            } else if (f->max >= f->min && strstr(why, "range") != NULL) {
                ech_reply_error(x, 400, "invalid_value", name, "%s %s: %.10g to %.10g", name, why,
                                f->min, f->max);
            } else {
                ech_reply_error(x, 400, "invalid_value", name, "%s %s", name, why);
            }
            return false;
        }
        const size_t row = (size_t)(f - FIELDS);
        p->seen[row / 64] |= UINT64_C(1) << row % 64;
    }
    return true;
}
