/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of prompts; see prompt.h. Text threads. */
#include "src/server/prompt.h"

#include "src/server/reply.h"
#include "src/server/state.h"

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
