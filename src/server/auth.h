/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys: lines "NAME KEY" or "KEY" of a file, or one key from an option. Compared in constant
 * time. A reload swaps the whole set; sets that were replaced are kept until the end, since an
 * exchange may still hold a key of theirs.
 */
#ifndef ECH_SERVER_AUTH_H
#define ECH_SERVER_AUTH_H

#include "src/base/arena.h"

typedef struct ech_key {
    const char *name;
    const char *secret;
} ech_key;

typedef struct ech_key_set {
    const ech_key *keys; /* [n] */
    size_t n;
} ech_key_set;

typedef struct ech_keys {
    ech_arena arena;            /* of every set that there was */
    const ech_key_set *current; /* atomic pointer; NULL: no key is asked for */
} ech_keys;

/* Reads the file (NULL: none) and the option (NULL: none) and makes them current. On failure the
 * old set stays. Not on two threads at once. */
ech_status ech_keys_load(ech_keys *k, const char *path, const char *option, ech_error *err);
bool ech_keys_required(const ech_keys *k);
/* The key that equals secret; NULL when none does. */
const ech_key *ech_keys_find(const ech_keys *k, const char *secret);
void ech_keys_fini(ech_keys *k);

#endif
