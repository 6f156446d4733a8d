/* SPDX-License-Identifier: Apache-2.0 */
/* API keys; see auth.h. Reading is lock-free: one acquire load of the current set. */
#include "src/server/auth.h"

#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"

#define MAX_KEYS      4096
#define MAX_FILE_SIZE (1U << 20)

static bool is_blank(const char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static ech_str trim(ech_str s)
{
    while (s.len > 0 && is_blank(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_blank(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* "NAME KEY" or "KEY"; false for an empty line or a comment. */
static bool parse_line(ech_keys *const k, const ech_str line, ech_key *const ret_key)
{
    const ech_str s = trim(line);
    if (s.len == 0 || s.ptr[0] == '#') return false;
    size_t name_len = 0;
    while (name_len < s.len && !is_blank(s.ptr[name_len])) {
        name_len++;
    }
    const ech_str rest = trim((ech_str){ s.ptr + name_len, s.len - name_len });
    ret_key->name =
        rest.len > 0 ? ech_arena_strdup(&k->arena, (ech_str){ s.ptr, name_len }) : "default";
    ret_key->secret = ech_arena_strdup(&k->arena, rest.len > 0 ? rest : s);
    return ret_key->name != NULL && ret_key->secret != NULL;
}

static size_t parse_file(ech_keys *const k, const ech_buf *const file, ech_key *const keys,
                         size_t n)
{
    for (size_t at = 0; at < file->len && n < MAX_KEYS;) {
        const char *const nl = memchr(file->data + at, '\n', file->len - at);
        const size_t len = nl != NULL ? (size_t)(nl - file->data) - at : file->len - at;
        if (parse_line(k, (ech_str){ file->data + at, len }, &keys[n])) n++;
        at += len + 1;
    }
    return n;
}

ech_status ech_keys_load(ech_keys *const k, const char *const path, const char *const option,
                         ech_error *const err)
{
    if (path == NULL && option == NULL) return ECH_OK;
    ech_buf file = { 0 };
    if (path != NULL) ECH_TRY(ech_buf_read_file(&file, path, MAX_FILE_SIZE, err));
    ech_key *const keys = ech_arena_array(&k->arena, MAX_KEYS + 1, sizeof *keys);
    ech_key_set *const set = ech_arena_alloc(&k->arena, sizeof *set);
    if (keys == NULL || set == NULL) {
        ech_buf_fini(&file);
        return ech_fail(err, ECH_ENOMEM, "reading API keys: out of memory");
    }
    size_t n = 0;
    if (option != NULL) {
        keys[n++] = (ech_key){ "default", ech_arena_strdup(&k->arena, ech_str_from(option)) };
    }
    n = parse_file(k, &file, keys, n);
    ech_buf_fini(&file);
    if (n == 0)
        return ech_fail(err, ECH_EINVAL, "reading API keys from %s: there is no key in it", path);
    *set = (ech_key_set){ keys, n };
    /* Partner: the acquire in the readers below. */
    ech_store_release(&k->current, set);
    return ECH_OK;
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
    ech_arena_fini(&k->arena);
    k->current = NULL;
}
