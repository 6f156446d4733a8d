/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes of prompts; see prompt.h. Text threads.
 *
 * Ownership: ids lie in the exchange's arena, texts stay in its JSON; both live as long as the
 * exchange. OpenAI's four shapes are told apart by the first entry of the list; an entry of
 * another kind behind it is an error.
 */
#include "src/server/prompt.h"

#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/* Ids are taken as they are: neither parsed for specials nor given a BOS. */
static bool take_ids(ech_exchange *const x, const json_t *const list, const char *const param,
                     ech_prompt *const p)
{
    const size_t n = json_array_size(list);
    int32_t *const ids = ech_arena_array(&x->arena, n + 1, sizeof *ids);
    if (ids == NULL) return ech_reply_refuse(x, param, "does not fit in memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *const v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= x->server->info.vocab_size) {
            return ech_reply_refuse(x, param, "has an entry that is no token id of this model");
        }
        ids[i] = (int32_t)json_integer_value(v);
    }
    *p = (ech_prompt){ .ids = ids, .n_ids = n };
    return true;
}

/* An empty prompt is refused: there would be no position to predict from. */
static bool take_one(ech_exchange *const x, const json_t *const v, const char *const param,
                     ech_prompt *const p)
{
    if (json_is_string(v)) {
        *p = (ech_prompt){ .text = json_string_value(v), .text_len = json_string_length(v) };
    } else if (json_is_array(v)) {
        if (!take_ids(x, v, param, p)) return false;
    } else {
        return ech_reply_refuse(
            x, param,
            "must be a string, a list of strings, a list of token ids, or a list of such lists");
    }
    if (p->text_len == 0 && p->n_ids == 0) return ech_reply_refuse(x, param, "is empty");
    return true;
}

/* Text stays text here; the engine tokenises it, unless something below needs the ids before. */
bool ech_prompts_take(ech_exchange *const x, const json_t *const v, const char *const param,
                      ech_request_options *const options)
{
    if (v == NULL) return ech_reply_refuse(x, param, "is missing");
    if (json_is_array(v) && json_array_size(v) == 0) return ech_reply_refuse(x, param, "is empty");
    /* A list whose first entry is a number is one prompt. */
    const bool is_one = !json_is_array(v) || json_is_number(json_array_get(v, 0));
    const size_t n = is_one ? 1 : json_array_size(v);
    if (n > ECH_PROMPTS_MAX) return ech_reply_refuse(x, param, "has more than 4096 prompts");
    ech_prompt *const prompts = ech_arena_array(&x->arena, n, sizeof *prompts);
    if (prompts == NULL) return ech_reply_refuse(x, param, "does not fit in memory");
    for (size_t i = 0; i < n; i++) {
        if (!take_one(x, is_one ? v : json_array_get(v, i), param, &prompts[i])) return false;
    }
    options->prompts = prompts;
    options->n_prompts = n;
    return true;
}

/* ---- beyond the text ------------------------------------------------------------------------ */

/* Tokens between which a model fills in, as vocabularies name them: before, after, here. */
static const char *const FIM[][3] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" },
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>" },
    { "<PRE>", "<SUF>", "<MID>" },
    { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>" },
};

/* All three, or the model wasn't trained for it. */
static bool find_fim(const ech_tokenizer *const tok, int32_t ids[3])
{
    for (size_t i = 0; i < sizeof FIM / sizeof FIM[0]; i++) {
        bool all = true;
        for (size_t k = 0; k < 3; k++) {
            ids[k] = ech_tokenizer_find_added(tok, FIM[i][k], strlen(FIM[i][k]));
            all = all && ids[k] >= 0;
        }
        if (all) return true;
    }
    return false;
}

/* The flags that the engine uses for a text, so that both ways give the same ids. */
static ech_status encode(const ech_exchange *const x, const ech_params *const p,
                         const char *const text, const size_t len, ech_ids *const ids,
                         ech_error *const err)
{
    const unsigned flags = (p->parse_special ? ECH_ENCODE_SPECIAL : 0U) |
                           (p->add_special ? ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS : 0U);
    return ech_tokenizer_encode(ech_engine_tokenizer(x->server->engine), text, len, flags, ids,
                                err);
}

/* The first token of the three, with what the post-processor puts before a text. */
static ech_status begin_fim(const ech_exchange *const x, const ech_params *const p,
                            const int32_t first, ech_ids *const ids, ech_error *const err)
{
    if (!p->add_special) return ech_ids_append(ids, &first, 1);
    const ech_tokenizer *const tok = ech_engine_tokenizer(x->server->engine);
    size_t len;
    const char *const text = ech_tokenizer_token_bytes(tok, first, &len);
    ECH_TRY(ech_tokenizer_encode(tok, text, len, ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD, ids, err));
    while (ids->n > 0 && ids->data[ids->n - 1] != first) { /* an end-of-sequence isn't here yet */
        ids->n--;
    }
    return ids->n > 0 ? ECH_OK : ech_ids_append(ids, &first, 1);
}

/* before prefix after suffix here: the model writes what is between. */
static ech_status encode_fim(const ech_exchange *const x, const ech_params *const p,
                             const ech_prompt *const prompt, const int32_t fim[3],
                             ech_ids *const ids, ech_error *const err)
{
    ech_params bare = *p;
    bare.add_special = false;
    ECH_TRY(begin_fim(x, p, fim[0], ids, err));
    if (prompt->ids != NULL)
        ECH_TRY(ech_ids_append(ids, prompt->ids, prompt->n_ids));
    else
        ECH_TRY(encode(x, &bare, prompt->text, prompt->text_len, ids, err));
    ECH_TRY(ech_ids_append(ids, &fim[1], 1));
    ECH_TRY(encode(x, &bare, p->suffix, strlen(p->suffix), ids, err));
    return ech_ids_append(ids, &fim[2], 1);
}

/* The prompt as ids in the exchange's arena. */
static bool tokenise(ech_exchange *const x, const ech_params *const p, const int32_t fim[3],
                     ech_prompt *const prompt)
{
    ech_ids ids = { 0 };
    ech_error err = { .code = ECH_ENOMEM, .text = "there is no memory for the prompt now" };
    ech_status rc = ECH_OK;
    if (p->suffix != NULL)
        rc = encode_fim(x, p, prompt, fim, &ids, &err);
    else if (prompt->ids == NULL)
        rc = encode(x, p, prompt->text, prompt->text_len, &ids, &err);
    else
        return true;
    int32_t *const copy = rc == ECH_OK ? ech_arena_array(&x->arena, ids.n + 1, sizeof *copy) : NULL;
    if (copy != NULL && ids.n > 0) memcpy(copy, ids.data, ids.n * sizeof *copy);
    if (copy != NULL) *prompt = (ech_prompt){ .ids = copy, .n_ids = ids.n };
    ech_ids_fini(&ids);
    if (copy == NULL) ech_reply_failure(x, &err);
    return copy != NULL;
}

/*
 * Pointers are moved, nothing is copied. -1 leaves room for one token of an answer; an embedding
 * needs none.
 */
void ech_prompts_truncate(const ech_exchange *const x, const ech_params *const p,
                          ech_request_options *const options)
{
    if (!ech_fields_seen(p, "truncate_prompt_tokens")) return;
    const int64_t most = p->truncate_prompt_tokens >= 0
                             ? p->truncate_prompt_tokens
                             : (int64_t)x->server->info.max_seq_len - !options->embed;
    ech_prompt *const prompts = (ech_prompt *)(uintptr_t)options->prompts; /* our own arena's */
    for (size_t i = 0; i < options->n_prompts; i++) {
        const size_t n = prompts[i].n_ids;
        if (n <= (size_t)most) continue;
        prompts[i].ids += n - (size_t)most;
        prompts[i].n_ids = (size_t)most;
    }
}

/*
 * What can't be said in text: a suffix, a cut, ids that are to be returned. Then the prompt is
 * tokenised here, with the flags that the engine would have used.
 */
bool ech_prompts_prepare(ech_exchange *const x, const ech_params *const p,
                         ech_request_options *const options)
{
    int32_t fim[3];
    const bool truncates = ech_fields_seen(p, "truncate_prompt_tokens");
    if (truncates && p->truncate_prompt_tokens == 0)
        return ech_reply_refuse(x, "truncate_prompt_tokens", "must be at least 1, or -1");
    if (p->suffix != NULL && !find_fim(ech_engine_tokenizer(x->server->engine), fim))
        return ech_reply_refuse(x, "suffix", "needs a model with fill-in-the-middle tokens");
    if (p->suffix == NULL && !truncates && !p->return_token_ids) return true;
    ech_prompt *const prompts = (ech_prompt *)(uintptr_t)options->prompts;
    for (size_t i = 0; i < options->n_prompts; i++) {
        if (!tokenise(x, p, fim, &prompts[i])) return false;
    }
    ech_prompts_truncate(x, p, options);
    return true;
}
