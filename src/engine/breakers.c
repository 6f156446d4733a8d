/* SPDX-License-Identifier: Apache-2.0 */
/* From texts to ids that break a repeat. See breakers.h; pure, any thread. */
#include "src/engine/breakers.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"

/* What repeats in every dialogue and list without being a loop: the field's usual four. */
static const char *const DEFAULTS[] = { "\n", ":", "\"", "*" };

enum { MAX_TEXT = 256 }; /* bytes of one string */

typedef struct texts {
    const char *const *items;
    size_t n;
} texts;

static texts texts_of(const ech_sampling *s)
{
    if (s->dry_breakers != NULL) return (texts){ s->dry_breakers, s->n_dry_breakers };
    return (texts){ DEFAULTS, sizeof DEFAULTS / sizeof DEFAULTS[0] };
}

static ech_status check(const texts *t, ech_error *err)
{
    if (t->n > ECH_BREAKERS_MAX)
        return ech_fail_argument(err, ECH_EINVAL, "dry_breakers",
                                 "dry_breakers has %zu strings, may have %d", t->n,
                                 ECH_BREAKERS_MAX);
    for (size_t i = 0; i < t->n; i++) {
        const size_t len = t->items[i] != NULL ? strnlen(t->items[i], MAX_TEXT + 1) : 0;
        if (len == 0 || len > MAX_TEXT)
            return ech_fail_argument(err, ECH_EINVAL, "dry_breakers",
                                     "dry_breakers[%zu] has %zu bytes, must have 1 to %d", i, len,
                                     MAX_TEXT);
    }
    return ECH_OK;
}

static bool holds_one(const char *bytes, size_t len, const texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (memmem(bytes, len, t->items[i], strlen(t->items[i])) != NULL) return true;
    return false;
}

static ech_status find_tokens(ech_ids *ret, const texts *t, const ech_tokenizer *tok)
{
    const size_t n = ech_tokenizer_n_ids(tok);
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)i;
        size_t len;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        if (len > 0 && holds_one(bytes, len, t)) ECH_TRY(ech_ids_append(ret, &id, 1));
    }
    return ECH_OK;
}

static ech_status spell(ech_ids *ret, const texts *t, const ech_tokenizer *tok, ech_error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        const size_t at = ret->n;
        const int32_t length = 0;
        ECH_TRY(ech_ids_append(ret, &length, 1));
        ECH_TRY(ech_tokenizer_encode(tok, t->items[i], strlen(t->items[i]), ECH_ENCODE_SPECIAL, ret,
                                     err));
        ret->data[at] = (int32_t)(ret->n - at - 1);
        if (ret->data[at] < 2) ret->n = at; /* one token: it is among those that hold it */
    }
    return ECH_OK;
}

static ech_status keep(const ech_ids *ids, ech_arena *arena, const int32_t **ret, size_t *ret_n)
{
    int32_t *const copy = ech_arena_array(arena, ids->n, sizeof *copy);
    if (copy == NULL) return ECH_ENOMEM;
    if (ids->n > 0) memcpy(copy, ids->data, ids->n * sizeof *copy);
    *ret = copy;
    *ret_n = ids->n;
    return ECH_OK;
}

ech_status ech_breakers_find(ech_breakers *ret, const ech_sampling *s, const ech_tokenizer *tok,
                             ech_arena *arena, ech_error *err)
{
    const texts t = texts_of(s);
    ech_ids ids = { 0 };
    *ret = (ech_breakers){ 0 };
    ECH_TRY(check(&t, err));
    if (s->dry_multiplier == 0 || s->dry_range == 0) return ECH_OK;
    ech_status rc = find_tokens(&ids, &t, tok);
    if (rc == ECH_OK) rc = keep(&ids, arena, &ret->ids, &ret->n_ids);
    ids.n = 0;
    if (rc == ECH_OK) rc = spell(&ids, &t, tok, err);
    if (rc == ECH_OK) rc = keep(&ids, arena, &ret->sequences, &ret->n_sequences);
    ech_ids_fini(&ids);
    if (rc == ECH_ENOMEM) return ech_fail(err, rc, "finding dry_breakers' tokens: out of memory");
    return rc;
}
