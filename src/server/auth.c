/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys; see auth.h. Reading is lock-free: one acquire load of the current set.
 *
 * Invariant: a set never changes once it is current; a reload makes another. Old sets aren't
 * freed before the server ends, since requests point into them: a reload costs what a file
 * costs, and somebody has to send a signal for it. No set at all means that no key is needed.
 */
#include "src/server/auth.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"

/* More would make the walk through them, which is the same for every request, felt. */
#define MAX_KEYS      4096
#define MAX_FILE_SIZE (1U << 20)
#define MAX_LIMIT     1000000000

/* CR counts, for files that were written on Windows. */
static bool is_blank(const char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of *rest, empty at its end. */
static ech_str take_word(ech_str *const rest)
{
    size_t start = 0;
    while (start < rest->len && is_blank(rest->ptr[start])) {
        start++;
    }
    size_t end = start;
    while (end < rest->len && !is_blank(rest->ptr[end])) {
        end++;
    }
    const ech_str word = { rest->ptr + start, end - start };
    rest->ptr += end;
    rest->len -= end;
    return word;
}

/* ---- one line ------------------------------------------------------------------------------- */

/* strtol takes more than a limit may be (blanks, signs, an empty text): what is left after it and
 * the range are both checked. */
static bool parse_number(const ech_str s, const long min, const long max, long *const ret)
{
    char text[16];
    char *end;
    if (s.len == 0 || s.len >= sizeof text) return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    *ret = strtol(text, &end, 10);
    return *end == '\0' && *ret >= min && *ret <= max;
}

/*
 * SETTING=VALUE. Limits of 0 are refused: to forbid a key everything it is left out of the file.
 * Priority may be negative, lower is more urgent.
 */
static bool parse_setting(const ech_str word, ech_key_limits *const l)
{
    const struct {
        const char *name;
        uint32_t *target;
    } SETTINGS[] = {
        { "max-requests", &l->max_requests },
        { "requests-per-minute", &l->requests_per_minute },
        { "tokens-per-minute", &l->tokens_per_minute },
        { "weight", &l->weight },
    };
    const char *const eq = memchr(word.ptr, '=', word.len);
    if (eq == NULL) return false;
    const ech_str name = { word.ptr, (size_t)(eq - word.ptr) };
    const ech_str value = { eq + 1, word.len - name.len - 1 };
    long n;
    if (ech_str_eq(name, ECH_STR_LIT("priority"))) {
        l->has_priority = true;
        if (!parse_number(value, -1000000, 1000000, &n)) return false;
        l->priority = (int32_t)n;
        return true;
    }
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        if (!ech_str_eq(name, ech_str_from(SETTINGS[i].name))) continue;
        const long max = SETTINGS[i].target == &l->weight ? 1000000 : MAX_LIMIT;
        if (!parse_number(value, 1, max, &n)) return false;
        *SETTINGS[i].target = (uint32_t)n;
        return true;
    }
    return false;
}

/*
 * What a name has used so far; a new name has used nothing. NULL: out of memory. By name and not
 * by key: a reload must not give a name a fresh minute. The lock is the one that guards the
 * numbers.
 */
static ech_quota *quota_of(ech_keys *const k, const char *const name)
{
    (void)pthread_mutex_lock(&k->lock);
    ech_quota *q = k->quotas;
    while (q != NULL && strcmp(q->name, name) != 0) {
        q = q->next;
    }
    if (q == NULL && (q = ech_arena_alloc(&k->arena, sizeof *q)) != NULL) {
        *q = (ech_quota){ .name = name, .next = k->quotas };
        k->quotas = q;
    }
    (void)pthread_mutex_unlock(&k->lock);
    return q;
}

/* What a header carries. Another byte would end a secret early (a file of UTF-16: after its first
 * letter), or no client could send it; none at all would let everybody in. */
static bool is_secret(const ech_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f) return false; /* above 0x7f: negative, or larger */
    }
    return s.len > 0;
}

/* Names and secrets live as long as the server: an audit line may still name a key that a reload
 * has taken away. */
static ech_status add_key(ech_keys *const k, ech_key *const key, const ech_str name,
                          const ech_str secret, ech_error *const err)
{
    if (!is_secret(secret) || memchr(name.ptr, '\0', name.len) != NULL)
        return ech_fail(err, ECH_EINVAL,
                        "a key must be visible ASCII characters, at least one, and its name text");
    key->name = ech_arena_strdup(&k->arena, name);
    key->secret = ech_arena_strdup(&k->arena, secret);
    key->quota = key->name != NULL ? quota_of(k, key->name) : NULL;
    return key->secret != NULL && key->quota != NULL
               ? ECH_OK
               : ech_fail(err, ECH_ENOMEM, "reading API keys: out of memory");
}

/*
 * Writes *ret_key unless the line is empty or a comment; says so in *ret_found. A line with one
 * word is a key without a name. What is wrong is quoted from the settings only: a secret must
 * not get into a log.
 */
static ech_status parse_line(ech_keys *const k, ech_str line, ech_key *const ret_key,
                             bool *const ret_found, ech_error *const err)
{
    const ech_str first = take_word(&line);
    *ret_found = first.len > 0 && first.ptr[0] != '#';
    if (!*ret_found) return ECH_OK;
    const ech_str second = take_word(&line);
    ech_key key = { .limits = { .weight = 1 } };
    if (second.len == 0) {
        ECH_TRY(add_key(k, &key, ECH_STR_LIT("default"), first, err));
    } else {
        ECH_TRY(add_key(k, &key, first, second, err));
    }
    for (ech_str word; (word = take_word(&line)).len > 0;) {
        if (!parse_setting(word, &key.limits))
            return ech_fail(err, ECH_EINVAL,
                            "'%.*s' is no setting of a key: max-requests, requests-per-minute, "
                            "tokens-per-minute, weight (each =N) or priority=N",
                            (int)(word.len < 60 ? word.len : 60), word.ptr);
    }
    *ret_key = key;
    return ECH_OK;
}

/* ---- the set -------------------------------------------------------------------------------- */

/* Room for as many keys as there can be; the bound is checked again while they are read. */
static size_t count_lines(const ech_buf *const file)
{
    size_t n = 1;
    for (size_t i = 0; i < file->len; i++) {
        n += file->data[i] == '\n';
    }
    return n < MAX_KEYS ? n : MAX_KEYS;
}

static ech_status parse_file(ech_keys *const k, const ech_buf *const file, const char *const path,
                             ech_key *const keys, size_t *const n, ech_error *const err)
{
    static const char BOM[] = "\xef\xbb\xbf"; /* it would hide a comment, and make its words a key */
    unsigned line = 1;
    size_t at = file->len >= 3 && memcmp(file->data, BOM, 3) == 0 ? 3 : 0;
    for (; at < file->len; line++) {
        const char *const nl = memchr(file->data + at, '\n', file->len - at);
        const size_t len = nl != NULL ? (size_t)(nl - file->data) - at : file->len - at;
        bool found;
        const ech_status rc =
            parse_line(k, (ech_str){ file->data + at, len }, &keys[*n], &found, err);
        if (rc != ECH_OK)
            return ech_error_prefix(err, rc, "reading API keys from %s, line %u", path, line);
        *n += found;
        if (*n > MAX_KEYS)
            return ech_fail(err, ECH_ELIMIT, "reading API keys from %s, line %u: more than %d keys",
                            path, line, MAX_KEYS);
        at += len + 1;
    }
    return ECH_OK;
}

/*
 * The whole set is made before it becomes current, so a reader sees the old one or the new one and
 * never a mixture, and a file with a fault changes nothing. A file without a key is a fault too:
 * it would open the server to everybody.
 */
static ech_status load(ech_keys *const k, const char *const path, const char *const option,
                       const ech_buf *const file, ech_error *const err)
{
    ech_key *const keys = ech_arena_array(&k->arena, count_lines(file) + 1, sizeof *keys);
    ech_key_set *const set = ech_arena_alloc(&k->arena, sizeof *set);
    if (keys == NULL || set == NULL)
        return ech_fail(err, ECH_ENOMEM, "reading API keys: out of memory");
    size_t n = 0;
    if (option != NULL) {
        keys[0] = (ech_key){ .limits = { .weight = 1 } };
        const ech_status rc =
            add_key(k, &keys[n++], ECH_STR_LIT("default"), ech_str_from(option), err);
        if (rc != ECH_OK) return ech_error_prefix(err, rc, "reading --api-key");
    }
    ECH_TRY(parse_file(k, file, path, keys, &n, err));
    if (n == 0)
        return ech_fail(err, ECH_EINVAL, "reading API keys from %s: there is no key in it", path);
    *set = (ech_key_set){ keys, n };
    /* Partner: the acquire in the readers below. */
    ech_store_release(&k->current, set);
    return ECH_OK;
}

void ech_keys_init(ech_keys *const k)
{
    (void)pthread_mutex_init(&k->lock, NULL);
}

/*
 * Main thread. The file's bytes are wiped, secrets stay in the arena. Neither path nor option:
 * no key is needed.
 */
ech_status ech_keys_load(ech_keys *const k, const char *const path, const char *const option,
                         ech_error *const err)
{
    if (path == NULL && option == NULL) return ECH_OK;
    ech_buf file = { 0 };
    ech_status rc = path != NULL ? ech_buf_read_file(&file, path, MAX_FILE_SIZE, err) : ECH_OK;
    if (rc == ECH_OK) rc = load(k, path, option, &file, err);
    if (file.data != NULL) explicit_bzero(file.data, file.len);
    ech_buf_fini(&file);
    return rc;
}

bool ech_keys_required(const ech_keys *const k)
{
    return ech_load_acquire(&k->current) != NULL;
}

/* Time depends on the length of what was sent only, not on where it differs. */
static bool equal_secret(const char *const sent, const size_t sent_len, const char *const secret)
{
    const size_t len = strlen(secret);
    unsigned diff = sent_len != len;
    for (size_t i = 0; i < sent_len; i++) {
        diff |= (unsigned char)sent[i] ^ (unsigned char)secret[len == 0 ? 0 : i % len];
    }
    return diff == 0;
}

/* Looks at every key, also after it has found one: how long it takes says nothing about which. */
const ech_key *ech_keys_find(const ech_keys *const k, const char *const secret)
{
    const ech_key_set *const set = ech_load_acquire(&k->current);
    if (set == NULL) return NULL;
    const size_t len = strlen(secret);
    const ech_key *found = NULL;
    for (size_t i = 0; i < set->n; i++) {
        if (equal_secret(secret, len, set->keys[i].secret)) found = &set->keys[i];
    }
    return found;
}

void ech_keys_fini(ech_keys *const k)
{
    (void)pthread_mutex_destroy(&k->lock);
    k->quotas = NULL;
    ech_arena_fini(&k->arena);
    k->current = NULL;
}
