/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request fields: one table says the name, where it is valid, its kind, range and meaning. Parsing,
 * docs/api.md and /openapi.json are made from it.
 */
#ifndef ECH_SERVER_FIELDS_H
#define ECH_SERVER_FIELDS_H

#include "src/server/exchange.h"

/* Where a field is valid. */
enum {
    ECH_IN_CHAT = 1,
    ECH_IN_COMPLETIONS = 2,
    ECH_IN_TOKENIZE = 4,
    ECH_IN_DETOKENIZE = 8,
    ECH_IN_RESPONSES = 16,
    ECH_IN_MESSAGES = 32,
    ECH_IN_EMBEDDINGS = 64,
    ECH_IN_TURNS = ECH_IN_CHAT | ECH_IN_RESPONSES | ECH_IN_MESSAGES, /* those with a template */
    ECH_IN_GENERATION = ECH_IN_TURNS | ECH_IN_COMPLETIONS,
    ECH_IN_OPENAI = ECH_IN_CHAT | ECH_IN_COMPLETIONS,
    ECH_IN_RAW = ECH_IN_COMPLETIONS | ECH_IN_EMBEDDINGS, /* those with prompts as they are */
};

typedef enum ech_field_kind {
    ECH_FIELD_NUMBER,   /* float */
    ECH_FIELD_INT,      /* int64_t; must be whole, 1.0 is */
    ECH_FIELD_BOOL,     /* bool */
    ECH_FIELD_STRING,   /* const char * into the request's JSON */
    ECH_FIELD_STRINGS,  /* a string or a list of them: ech_field_strings */
    ECH_FIELD_IDS,      /* a list of token ids: ech_field_ids */
    ECH_FIELD_OBJECT,   /* a JSON object: const json_t * */
    ECH_FIELD_JSON,     /* anything: const json_t * */
    ECH_FIELD_ACCEPTED, /* known and without effect here */
    ECH_FIELD_REFUSED,  /* known, would change the answer, isn't done: only what asks for nothing */
} ech_field_kind;

#define ECH_FIELD_LIST_MAX 1024

typedef struct ech_field_strings {
    const char **items;
    size_t n;
} ech_field_strings;

typedef struct ech_field_ids {
    int32_t *items;
    size_t n;
} ech_field_ids;

/* What a generation's request says. Pointers live in the exchange's arena or its JSON. */
typedef struct ech_params {
    const char *model;
    const json_t *messages, *prompt, *stream_options, *logit_bias, *content, *input, *tokens, *text;
    const json_t *chat_template_kwargs, *logprobs, *documents;
    const json_t *tools, *tool_choice, *response_format, *structured_outputs, *json_schema;
    const json_t *guided_json, *guided_regex, *guided_choice, *guided_grammar, *grammar;
    ech_field_strings stop, stop_sequences, bad_words, dry_breakers;
    ech_field_ids stop_token_ids, allowed_token_ids;
    int64_t max_tokens, max_completion_tokens, max_output_tokens, min_tokens, n, seed, top_k,
        top_logprobs, prompt_logprobs, best_of;
    int64_t thinking_budget, dimensions;
    int64_t priority, dry_allowed_length, dry_range, mirostat, truncate_prompt_tokens;
    float temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty,
        presence_penalty;
    float dry_multiplier, dry_base, xtc_probability, xtc_threshold, mirostat_tau, mirostat_eta;
    bool stream, echo, ignore_eos, include_stop, skip_special, add_special, parse_special,
        return_token_ids, timings, add_special_in_chat;
    bool add_generation_prompt, continue_final_message, parallel_tool_calls;
    const char *encoding_format, *suffix, *cache_salt, *reasoning_effort, *instructions;
    const json_t *system, *thinking, *reasoning, *include, *output_format, *output_config;
    uint64_t seen[2]; /* bit i: row i of the table was in the request */
} ech_params;

typedef struct ech_field {
    const char *name;
    ech_field_kind kind;
    unsigned where;  /* ECH_IN_… */
    size_t offset;   /* in ech_params */
    double min, max; /* NUMBER and INT; max < min: no bounds */
    const char *doc;
    unsigned needed;    /* of where: it must be there; checked by the dialect */
    const char *schema; /* JSON: JSON schema of what it may be; NULL: anything */
    const char *values; /* STRING: the words that it may be, '|' between them; NULL: anything.
                           REFUSED: words that pass, alone or in a list */
    unsigned entry_bytes; /* STRINGS: most of one entry */
} ech_field;

size_t ech_fields_count(void);
const ech_field *ech_field_at(size_t idx);

/*
 * Reads body into *p, whose fields hold the defaults before. Unknown fields go to
 * x->ignored, or are an error with --strict. On failure the answer is set and false returned.
 */
bool ech_fields_parse(ech_exchange *x, const json_t *body, unsigned where, ech_params *p);
bool ech_fields_seen(const ech_params *p, const char *name);
/* Whether v is one of the words of f->values; then *ret is it. */
bool ech_field_take_word(const ech_field *f, const json_t *v, const char **ret);
/* The row that is valid at one of `where`; NULL: there is none. */
const ech_field *ech_field_find(const char *name, unsigned where);

#endif
